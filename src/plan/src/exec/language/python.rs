//! Python: run by the host's own interpreter, or in the environment that the file's PEP 723 block or
//! a list beside it describes.
//!
//! The first mount comes first in `sys.path`. If the file imports `task`, as kernels for the
//! popcorn harness do, and no mount provides it, a stand-in with its type names is sent.

use std::collections::BTreeMap;

use rgpu_protocol::plan::Arg;

use super::super::{ExecError, Snippet, WORK_FOLDER};
use super::shell::script_path;
use super::{BuildTools, Language, has_line, interpreter};
use crate::tool::{BundleFile, Program, PythonEnv};

/// The stand-in for the module `task`.
const TASK: &str = rgpu_harness::TASK;

pub(super) struct Python;

impl Language for Python {
    fn name(&self) -> &'static str {
        "Python"
    }

    fn names(&self) -> &'static [&'static str] {
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

    fn program(&self, snippet: &Snippet, tools: &BuildTools<'_>) -> Result<Program, ExecError> {
        let text = String::from_utf8_lossy(&snippet.source);
        let python_env = snippet.script_env.env.as_ref();
        let script = script_path(snippet, tools);
        let mut files = vec![BundleFile::text(script.clone(), snippet.source.clone())];
        let mut prepare = Vec::new();
        if let Some(env) = python_env {
            files.extend(env.files());
            prepare.push(env.step(tools.timeout_s));
        }
        let folder = script.rsplit_once('/').map_or("", |(folder, _)| folder);
        let has_mounts = !tools.mounts.files.is_empty();
        let is_mounted = |file: &str| tools.mounts.files.iter().any(|f| f.path == file);
        let import_root = if has_mounts { WORK_FOLDER } else { folder };
        let stand_in = format!("{import_root}/task.py");
        if imports_task(&text)
            && !is_mounted(&stand_in)
            && !is_mounted(&format!("{folder}/task.py"))
        {
            files.push(BundleFile::text(stand_in, TASK));
        }
        let python = if python_env.is_some() { PythonEnv::python() } else { Arg::text("python3") };
        let mut argv = vec![python, Arg::in_job(&script)];
        argv.extend(tools.args.iter().cloned().map(Arg::from));
        // Print without buffering, and leave no caches in the working folder.
        let switches = ["PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"];
        let mut env: BTreeMap<_, _> = switches.map(|name| (name.to_owned(), Arg::text("1"))).into();
        if has_mounts {
            env.insert("PYTHONPATH".to_owned(), Arg::in_job(WORK_FOLDER));
            if folder == "src" {
                // Works since Python 3.11; before, the script's own folder stays first in
                // `sys.path`.
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
            ..Program::default()
        })
    }
}

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
