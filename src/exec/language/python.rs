//! Python: run by the host's own interpreter, or in the environment that the file's PEP 723 block
//! asks for.
//!
//! The first mount leads `sys.path`. Where the file imports `task`, as kernels written for the
//! popcorn harness do, and nothing brings one, a stand-in with its type names does.

use std::collections::BTreeMap;

use rgpu_protocol::plan::Arg;

use super::super::{ExecError, Snippet, WORK_FOLDER};
use super::shell::place;
use super::{BuildTools, Language, has_line, interpreter};
use crate::tool::{BundleFile, Program, PythonEnv};

/// The stand-in for `task`.
const TASK: &str = include_str!("../../../harness/templates/task.py");

/// Python.
pub(super) struct Python;

impl Language for Python {
    fn name(&self) -> &'static str {
        "Python"
    }

    fn words(&self) -> &'static [&'static str] {
        &["py", "python", "python3"]
    }

    fn fits(&self, text: &str) -> bool {
        if let Some(name) = interpreter(text) {
            return name.starts_with("python");
        }
        let starts =
            ["import ", "from ", "def ", "print(", "class ", "# /// script", "async def ", "with "];
        has_line(text, &starts)
    }

    fn program(&self, snippet: &Snippet, shop: &BuildTools<'_>) -> Result<Program, ExecError> {
        let text = String::from_utf8_lossy(&snippet.text);
        let wanted = PythonEnv::of_script(&text)
            .map_err(|source| ExecError::Script { name: snippet.name.clone(), source })?
            .filter(|env| !env.is_plain());
        let place = place(snippet, shop);
        let mut files = vec![BundleFile::text(place.clone(), snippet.text.clone())];
        let mut prepare = Vec::new();
        if let Some(env) = &wanted {
            files.extend(env.files());
            prepare.push(env.step(shop.timeout_s));
        }
        let folder = place.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mounted = !shop.mounts.files.is_empty();
        let brought = |file: &str| shop.mounts.files.iter().any(|f| f.path == file);
        let lead = if mounted { WORK_FOLDER } else { folder };
        let stand_in = format!("{lead}/task.py");
        if imports_task(&text) && !brought(&stand_in) && !brought(&format!("{folder}/task.py")) {
            files.push(BundleFile::text(stand_in, TASK));
        }
        let python = if wanted.is_some() { PythonEnv::python() } else { Arg::text("python3") };
        let mut argv = vec![python, Arg::in_job(&place)];
        argv.extend(shop.args.iter().cloned().map(Arg::from));
        // What it prints comes as it is printed, and its folder holds what it made itself.
        let switches = ["PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"];
        let mut env: BTreeMap<_, _> = switches.map(|name| (name.to_owned(), Arg::text("1"))).into();
        if mounted {
            env.insert("PYTHONPATH".to_owned(), Arg::in_job(WORK_FOLDER));
            if folder == "src" {
                // Heard since Python 3.11; before, the script's own folder stays first.
                env.insert("PYTHONSAFEPATH".to_owned(), Arg::text("1"));
            }
        }
        Ok(Program {
            name: snippet.name.clone(),
            argv,
            files,
            env,
            cwd: WORK_FOLDER.to_owned(),
            prepare,
        })
    }
}

/// Whether the file imports a module `task`.
fn imports_task(text: &str) -> bool {
    text.lines().map(str::trim_start).any(|line| {
        let module = line.strip_prefix("from ").or_else(|| line.strip_prefix("import "));
        module.is_some_and(|rest| {
            rest.strip_prefix("task")
                .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_of_task_is_seen_and_names_that_only_begin_so_are_not() {
        for yes in ["from task import input_t, output_t", "  import task", "import task as t"] {
            assert!(imports_task(yes), "{yes}");
        }
        for no in ["import tasks", "from task_queue import x", "# from task import x", "task = 1"] {
            assert!(!imports_task(no), "{no}");
        }
    }
}
