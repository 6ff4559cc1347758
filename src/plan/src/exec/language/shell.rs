//! Shell scripts: run by the shell that their first line names, else by `sh`.

use rgpu_protocol::plan::Arg;

use super::super::{ExecError, Snippet, WORK_FOLDER};
use super::{BuildTools, Language, interpreter};
use crate::tool::{BundleFile, Program};

/// The shells that a script's first line may name.
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "fish"];

pub(super) struct Shell;

impl Language for Shell {
    fn name(&self) -> &'static str {
        "shell"
    }

    fn names(&self) -> &'static [&'static str] {
        &["sh", "bash", "zsh", "shell"]
    }

    fn fits(&self, text: &str) -> bool {
        interpreter(text).is_some_and(|name| SHELLS.contains(&name))
    }

    fn program(&self, snippet: &Snippet, tools: &BuildTools<'_>) -> Result<Program, ExecError> {
        let text = String::from_utf8_lossy(&snippet.source);
        let extension = snippet.name.rsplit_once('.').map(|(_, extension)| extension);
        let named = interpreter(&text).or(extension).filter(|name| SHELLS.contains(name));
        let shell = named.unwrap_or("sh");
        let path = script_path(snippet, tools);
        let mut argv = vec![Arg::text(shell), Arg::in_job(&path)];
        argv.extend(tools.args.iter().cloned().map(Arg::from));
        Ok(Program {
            name: snippet.name.clone(),
            argv,
            files: vec![BundleFile::text(path, snippet.source.clone())],
            cwd: WORK_FOLDER.to_owned(),
            ..Program::default()
        })
    }
}

/// The path of a script in the job's folder: in the first mount if it contains the file.
pub(super) fn script_path(snippet: &Snippet, tools: &BuildTools<'_>) -> String {
    let mounted = snippet.absolute_path.as_ref().and_then(|path| tools.mounts.place_of(path));
    mounted.unwrap_or_else(|| format!("src/{}", snippet.name))
}
