//! Tasks in C++ (`lang: cu`). Their own program, `eval.cu`, is compiled together with the
//! submission and makes the data, checks and times; so such a task is a program, and what it prints
//! of its results are claims.

use std::path::{Path, PathBuf};

use super::super::super::cuda_source::kernel_names;
use super::super::super::{KernelError, KernelFolders, OwnFiles, ProfileMode};
use super::super::{FoundProgram, NvccBuild, ProgramBuild, SentContent, UsualArguments};
use super::task::Task;
use super::{TASK_FILE, placed, spec_name};
use rgpu_model::agent_files;
use rgpu_model::regular_file::MAX_SOURCE_BYTES;

/// The name of the format in messages.
pub(in super::super) const PROGRAM_FORMAT: &str = "a GPU MODE problem in C++";

/// The source that joins the task's.
const JOINED: &str = "rgpu_task.cu";

/// The file with the timed cases, one a line.
const CASES: &str = "rgpu_cases.txt";

/// The task's program with this submission.
pub(super) fn program(task: &Task, submission: PathBuf) -> Result<FoundProgram, KernelError> {
    let mut assumptions = task.notes.clone();
    let files = placed(task, Some(&submission), &mut assumptions)?;
    let own_files = OwnFiles::find(task.folder(), &KernelFolders::default());
    let mut sent: Vec<(String, Vec<u8>)> = Vec::with_capacity(files.len() + 2);
    let mut kernels = Vec::new();
    for (name, path) in &files {
        if *path != submission {
            own_files.check_task_file(path, TASK_FILE)?;
        }
        let bytes = agent_files::read(path, MAX_SOURCE_BYTES)
            .map_err(KernelError::unreadable(path, Some(TASK_FILE)))?;
        if *path == submission {
            kernels.extend(kernel_names(&String::from_utf8_lossy(&bytes)));
        }
        sent.push((name.clone(), bytes));
    }
    let sources: Vec<&str> = if task.sources.is_empty() {
        files.iter().map(|(name, _)| name.as_str()).filter(|name| name.ends_with(".cu")).collect()
    } else {
        task.sources.iter().map(String::as_str).collect()
    };
    if let Some(missing) = sources.iter().find(|name| !files.iter().any(|(n, _)| n == *name)) {
        return Err(super::wrong(
            &task.file,
            format!("`config.sources` names `{missing}`, which is none of its `files`"),
        ));
    }
    sent.push((JOINED.to_owned(), joined(&sources).into_bytes()));
    let cases = if task.benchmarks.is_empty() { &task.tests } else { &task.benchmarks };
    let lines: Vec<String> = cases.iter().map(|case| format!("{}\n", case.line)).collect();
    sent.push((CASES.to_owned(), lines.concat().into_bytes()));
    let mode = if task.benchmarks.is_empty() { "test" } else { "benchmark" };
    assumptions.push(format!(
        "the task's own program checks and times {}: what it prints are its own claims",
        if mode == "test" { "its tests" } else { "its benchmarks" }
    ));
    let build = NvccBuild {
        sources: vec![JOINED.to_owned()],
        flags: vec!["-std=c++20".to_owned(), "-DNDEBUG".to_owned()],
        inputs: None,
    };
    Ok(FoundProgram {
        format: PROGRAM_FORMAT,
        name: spec_name(task, &submission),
        path: submission,
        command: vec![mode.to_owned(), CASES.to_owned()],
        build: Some(ProgramBuild::Nvcc(build)),
        files: sent.into_iter().map(|(name, bytes)| (name, SentContent::Bytes(bytes))).collect(),
        cwd: String::new(),
        kernels,
        kernel_filter: None,
        driver: None,
        is_rank: false,
        usual_arguments: UsualArguments::default(),
        mode: ProfileMode::Nsys,
        assumptions,
    })
}

/// One source of the task's. Its results go to standard output, unless the variable is set.
fn joined(sources: &[&str]) -> String {
    let includes: Vec<String> =
        sources.iter().map(|name| format!("#include \"{name}\"\n")).collect();
    format!(
        "// Made by rgpu: the sources of the task as one.\n#include <cstdlib>\n\
         __attribute__((constructor)) static void rgpu_result_channel() {{\n  \
         setenv(\"POPCORN_FD\", \"1\", 0);\n}}\n{}",
        includes.concat()
    )
}

/// Whether a source in C++ defines the function that the task's program calls.
pub(super) fn defines_entry(path: &Path, text: &str) -> bool {
    let is_source =
        path.extension().is_some_and(|extension| extension == "cu" || extension == "cpp");
    is_source && text.contains("custom_kernel(")
}
