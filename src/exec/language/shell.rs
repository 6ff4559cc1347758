//! Shell scripts: run by the shell that their first line names, else by `sh`.

use rgpu_protocol::plan::Arg;

use super::super::{ExecError, Snippet, WORK_FOLDER};
use super::{BuildTools, Language, interpreter};
use crate::tool::{BundleFile, Program};

/// Shells of a first line that are one of these.
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "fish"];

/// Shell scripts.
pub(super) struct Shell;

impl Language for Shell {
    fn name(&self) -> &'static str {
        "shell"
    }

    fn words(&self) -> &'static [&'static str] {
        &["sh", "bash", "zsh", "shell"]
    }

    fn fits(&self, text: &str) -> bool {
        interpreter(text).is_some_and(|name| SHELLS.contains(&name))
    }

    fn program(&self, snippet: &Snippet, shop: &BuildTools<'_>) -> Result<Program, ExecError> {
        let text = String::from_utf8_lossy(&snippet.text);
        let by_name = snippet.name.rsplit_once('.').map(|(_, extension)| extension);
        let named = interpreter(&text).or(by_name).filter(|name| SHELLS.contains(name));
        let shell = named.unwrap_or("sh");
        let place = place(snippet, shop);
        let mut argv = vec![Arg::text(shell), Arg::in_job(&place)];
        argv.extend(shop.args.iter().cloned().map(Arg::from));
        Ok(Program {
            name: snippet.name.clone(),
            argv,
            files: vec![BundleFile::text(place, snippet.text.clone())],
            cwd: WORK_FOLDER.to_owned(),
            ..Program::default()
        })
    }
}

/// Where a script lies in the job's folder: in the first mount, when that holds it.
pub(super) fn place(snippet: &Snippet, shop: &BuildTools<'_>) -> String {
    let mounted = snippet.path.as_ref().and_then(|path| shop.mounts.place_of(path));
    mounted.unwrap_or_else(|| format!("src/{}", snippet.name))
}
