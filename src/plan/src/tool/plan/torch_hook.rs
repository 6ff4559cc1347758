//! Mode `torch` for a program: a `sitecustomize` in front of the program's modules starts torch's
//! profiler.
//!
//! Python imports `sitecustomize` from PYTHONPATH before the program, in every Python process of
//! it.

use rgpu_protocol::plan::Arg;

use super::draft::PlanError;
use super::message_rows::{MessageRow, RowAction};
use super::options::{CaptureRange, WindowEnd};
use super::request::{ProfileTarget, Program, Request};

/// Folder of the hook in the job's folder.
const FOLDER: &str = "hook";
/// Path of the hook in the job's folder.
pub(super) const PATH: &str = "hook/sitecustomize.py";
/// The text of the hook, a module that Python imports when it starts.
pub(super) const TEXT: &str = rgpu_harness::TORCH_HOOK;
/// Path of the traces, without the process id and `.json` that the hook adds.
const TRACE: &str = "raw/torch.trace";
/// Pattern of the traces' paths.
pub(super) const TRACES: &str = "raw/torch.trace.*.json";
/// Starts a program with the folder `$0` before its own PYTHONPATH.
const START: &str = r#"PYTHONPATH="$0${PYTHONPATH:+:$PYTHONPATH}" exec "$@""#;
/// Starts a program that the hook interrupts. The shell outlives it, so that a program that dies of
/// the signal has an exit status as any other.
const START_INTERRUPTED: &str =
    r#"trap : INT; PYTHONPATH="$0${PYTHONPATH:+:$PYTHONPATH}" "$@"; exit $?"#;

/// Meanings of the hook's messages.
pub(super) static MESSAGE_ROWS: &[MessageRow] = &[
    MessageRow(
        "rgpu torch: the program ended with an exception",
        "program_failed",
        RowAction::FailedStop,
    ),
    MessageRow("rgpu torch: * failed:", "torch_hook_failed", RowAction::FailedNext),
    MessageRow(
        "rgpu torch: the program did not import torch",
        "torch_not_imported",
        RowAction::FailedNext,
    ),
    MessageRow(
        "rgpu torch: the program did not use the GPU",
        "torch_without_gpu",
        RowAction::FailedNext,
    ),
    MessageRow("rgpu torch: the program made an optimizer", "torch_no_step", RowAction::FailedNext),
    MessageRow("rgpu torch: the program opened no range", "torch_no_range", RowAction::FailedNext),
    MessageRow("rgpu torch: nothing ran on", "torch_no_window", RowAction::FailedNext),
];

/// Checks `--capture-range`.
///
/// # Errors
/// [`PlanError::Option`] if it is not an NVTX range, or for a kernel, whose calls are recorded.
pub(super) fn check(request: &Request) -> Result<(), PlanError> {
    let refuse = |value: &str, problem: &str| {
        Err(PlanError::Option {
            flag: "--capture-range",
            value: value.to_owned(),
            problem: problem.to_owned(),
            near: Vec::new(),
        })
    };
    match (&request.nsys.capture_range, &request.target) {
        (Some(CaptureRange::CudaProfilerApi), _) => {
            refuse("cudaProfilerApi", "mode `torch` records inside an NVTX range only")
        }
        (Some(CaptureRange::Nvtx(range)), ProfileTarget::Kernel { .. }) => {
            refuse(range, "it has no effect on a kernel in mode `torch`")
        }
        _ => Ok(()),
    }
}

/// The program's command with the hook.
pub(super) fn command_line(request: &Request, program: &Program) -> Vec<Arg> {
    let start = if request.window.end.is_some() { START_INTERRUPTED } else { START };
    let mut argv: Vec<Arg> = ["sh", "-c", start].map(Arg::from).into();
    argv.push(Arg::in_job(FOLDER));
    argv.extend(program.argv.iter().cloned());
    argv
}

/// The environment variables that the hook reads.
pub(super) fn environment(request: &Request, without_gpu: bool) -> Vec<(String, Arg)> {
    let mut settings = vec![("RGPU_TORCH_TRACE".to_owned(), Arg::in_job(TRACE))];
    if let Some(CaptureRange::Nvtx(name)) = &request.nsys.capture_range {
        settings.push(("RGPU_TORCH_RANGE".to_owned(), Arg::text(name.as_str())));
    }
    let end = request.window.end.map(|end| match end {
        WindowEnd::Seconds(seconds) => seconds.to_string(),
        WindowEnd::Range => "range".to_owned(),
    });
    let after = request.window.after_s.map(|seconds| seconds.to_string());
    for (name, value) in [("RGPU_TORCH_AFTER", after), ("RGPU_TORCH_FOR", end)] {
        settings.extend(value.map(|value| (name.to_owned(), Arg::Text(value))));
    }
    if without_gpu {
        settings.push(("RGPU_TORCH_WITHOUT_GPU".to_owned(), Arg::text("1")));
    }
    settings
}

/// The switch of Python in the program's command that keeps it from importing the hook: `-S` and
/// `-I` import no `sitecustomize`, `-E` and `-I` ignore PYTHONPATH.
pub(super) fn hindering_switch(program: &Program) -> Option<char> {
    let text = |arg: &Arg| match arg {
        Arg::Text(text) => text.clone(),
        Arg::InJob { in_job, .. } => in_job.clone(),
    };
    let mut words = program.argv.iter().map(text);
    words.find(|word| {
        let name = word.rsplit('/').next().unwrap_or_default();
        name.starts_with("python") || name.starts_with("pypy")
    })?;
    while let Some(word) = words.next() {
        let switches = word.strip_prefix('-').filter(|rest| !rest.is_empty())?;
        if switches.starts_with('-') {
            continue;
        }
        for (at, switch) in switches.char_indices() {
            match switch {
                'S' | 'I' | 'E' => return Some(switch),
                // What follows is the program.
                'c' | 'm' => return None,
                'W' | 'X' => {
                    // Their value is the rest of the word, else the next word.
                    if at + 1 == switches.len() {
                        words.next();
                    }
                    break;
                }
                _ => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(words: &str) -> Program {
        Program { argv: words.split(' ').map(Arg::from).collect(), ..Program::default() }
    }

    #[test]
    fn switches_that_keep_python_from_the_hook_are_seen_and_those_of_the_program_are_not() {
        for (words, switch) in [
            ("python3 -S train.py", Some('S')),
            ("/opt/py/bin/python3.11 -uI train.py", Some('I')),
            ("env A=1 python -E -m train", Some('E')),
            ("python3 -X dev -W ignore -I x.py", Some('I')),
            ("python3 -Xdev -S x.py", Some('S')),
            ("python3 train.py -S", None),
            ("python3 -m train -I", None),
            ("python3 -uBc pass -S", None),
            ("python3 -Wignore::S x.py", None),
            ("./app -S", None),
            ("torchrun -S x.py", None),
        ] {
            assert_eq!(hindering_switch(&program(words)), switch, "{words}");
        }
    }
}
