//! A program that ends with an error while a tool measures it: the program's own fault, or the
//! tool's. A survey of the same run decides if the program ended well in it, else one run without a
//! tool. The ladder is not walked down meanwhile, since a program that fails by itself fails on
//! every rung.

use nix::sys::signal::Signal;
use rgpu_protocol::event::Stream;
use rgpu_protocol::plan::HangDetection;
use rgpu_protocol::{Outcome, RungRecord};

use super::assemble::RefusedRung;
use super::first_exception::first_exception;
use super::job::JobResult;
use super::outcome;
use crate::store::RunFolder;
use rgpu_model::RungId;
use rgpu_model::error::{Exit, Failure, Side};
use rgpu_model::profile::Gap;
use rgpu_plan::tool::{
    PLAIN_STEP, PlanPart, ProfileTarget, RUNGS, Request, RungInfo, RungTool, runs_python,
};
use rgpu_remote::Remote;

/// The longest run under a tool after which the program is run again without one, in seconds.
const MAX_REPEATED_S: f64 = 30.0;

/// How many of the last bytes that a program printed are searched for its first exception.
const MAX_SEARCHED_BYTES: u64 = 256 << 10;

/// Exceptions of Python that no tool causes, so that the program need not run again to learn whose
/// error it is.
const OWN_EXCEPTIONS: &[(&str, &str)] = &[
    ("AssertionError", "a check of the program's own failed"),
    ("AttributeError", "a tool takes no attribute away"),
    ("Exception", "the program raised it itself"),
    ("FileNotFoundError", "a tool removes no file"),
    ("FloatingPointError", "a tool changes no number"),
    ("ImportError", "a module lacks what is imported from it"),
    ("IndentationError", "the code cannot be read"),
    ("IndexError", "a tool shortens no list"),
    ("IsADirectoryError", "a tool makes no folder of a file"),
    ("KeyError", "a tool removes no key"),
    ("LookupError", "a tool removes no key"),
    ("ModuleNotFoundError", "a module is not installed"),
    ("NameError", "the code names what is not defined"),
    ("NotADirectoryError", "a tool makes no file of a folder"),
    ("NotImplementedError", "the code says that it is not written yet"),
    ("OverflowError", "a tool changes no number"),
    ("StopIteration", "a tool shortens no list"),
    ("SyntaxError", "the code cannot be read"),
    ("TabError", "the code cannot be read"),
    ("TypeError", "a call does not fit its function"),
    ("UnboundLocalError", "the code reads a variable before it is set"),
    ("UnicodeDecodeError", "a tool changes no text"),
    ("UnicodeEncodeError", "a tool changes no text"),
    ("ValueError", "a value does not fit its function"),
    ("ZeroDivisionError", "a tool changes no number"),
    ("json.decoder.JSONDecodeError", "a tool changes no text"),
];

/// Exceptions of Python that a tool can cause: it takes memory, files, time and the driver.
const EXCEPTIONS_OF_TOOLS: [&str; 16] = [
    "BlockingIOError",
    "BrokenPipeError",
    "BufferError",
    "ChildProcessError",
    "ConnectionError",
    "ConnectionResetError",
    "EOFError",
    "EnvironmentError",
    "FileExistsError",
    "IOError",
    "MemoryError",
    "OSError",
    "PermissionError",
    "RuntimeError",
    "SystemError",
    "TimeoutError",
];

/// Words of errors that a tool can cause, whatever exception passes them on.
const TOOL_WORDS: [&str; 3] = ["cuda error", "cupti", "injection"];

/// Codes of rungs that ended with the program, not because of the tool. An accepted rung has none.
const CODES_OF_PROGRAMS: [&str; 7] =
    ["", "exit", "signal", "program_failed", "no_cuda_call", "no_kernels", "not_attached"];

/// Signals that end a program because of its own error.
const CRASH_SIGNALS: [Signal; 5] =
    [Signal::SIGILL, Signal::SIGABRT, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGSEGV];

/// A program's error under a tool.
#[derive(Debug)]
pub(super) struct ProgramError {
    record: RungRecord,
    /// The survey of the run in which the program ended well, if there was one.
    survey: Option<RungRecord>,
    /// The result of the job with the error.
    pub result: JobResult,
    /// The rung of that job that was refused, if one was.
    pub refused: Option<RefusedRung>,
    /// The part of the request that the job did.
    part: PlanPart,
}

/// The result of running the program without a tool.
pub(super) enum ProgramFault {
    /// It fails by itself.
    Program(Failure),
    /// It fails only under the tool, which the gap says.
    Tool(Gap),
}

/// The record of the error with which the program of a job ended. `None` if it ended well, or the
/// tool failed.
pub(super) fn find<'r>(request: &Request, result: &'r JobResult) -> Option<&'r RungRecord> {
    let ProfileTarget::Program(_) = request.target else { return None };
    if !matches!(result.outcome, Some(Outcome::Done | Outcome::Failed { .. })) {
        return None;
    }
    let of_mode = |step: &str| {
        step == "survey" || step.starts_with("profile") || step.starts_with("sanitizer-")
    };
    let record = result.rungs.iter().rev().find(|record| of_mode(&record.step))?;
    let is_tool =
        RungInfo::find(&record.rung[..].into()).is_some_and(|info| info.tool.is_outside());
    (is_tool
        && failed(record)
        && !request.window.stopped(record.seconds)
        && CODES_OF_PROGRAMS.contains(&record.code.as_str()))
    .then_some(record)
}

/// Whether a program was stopped because it printed nothing for too long.
pub(super) fn has_hung(record: &RungRecord) -> bool {
    record.notes.iter().any(|(code, _)| code == HangDetection::CODE)
}

/// The failure of a job whose program hung. `None` if none did.
pub(super) fn hang_failure(result: &JobResult, remote: &dyn Remote) -> Option<Failure> {
    let record = result.rungs.iter().rev().find(|record| has_hung(record))?;
    let (_, text) = record.notes.iter().find(|(code, _)| code == HangDetection::CODE)?;
    let failure =
        Failure::new(Exit::Kernel, HangDetection::CODE, "the program hung and was stopped")
            .side(Side::Kernel)
            .host(remote.name(), remote.transport())
            .step(&record.step)
            .cause(text.replace("; ", "\n"))
            .hint("`--hang` has the time without output after which a program counts as hung");
    Some(failure)
}

fn failed(record: &RungRecord) -> bool {
    record.signal.is_some() || record.exit.is_some_and(|status| status != 0)
}

/// A record whose last words are the first exception of a program of several ranks, if there is one:
/// those of its launcher come last.
fn with_first_exception(record: &RungRecord, folder: &RunFolder) -> RungRecord {
    let printed = folder.log_tail(&record.step, Stream::Stderr, MAX_SEARCHED_BYTES);
    match first_exception(&printed) {
        Some(stderr_tail) => RungRecord { stderr_tail, message: String::new(), ..record.clone() },
        None => record.clone(),
    }
}

/// The exit status as a shell gives it.
pub(super) fn shell_status(record: &RungRecord) -> Option<i32> {
    record.signal.map(|signal| 128 + signal).or(record.exit)
}

/// The failure of a program whose error is its own.
pub(super) fn failure(record: &RungRecord, how: &str, remote: &dyn Remote) -> Failure {
    let cause = outcome::cause(Some(record));
    let lines = cause.lines().filter(|line| !line.starts_with(HOOK_SAYS_SO));
    let cause = lines.collect::<Vec<_>>().join("\n");
    Failure::new(Exit::Kernel, "program_failed", format!("the program {}{how}", ending(record)))
        .side(Side::Kernel)
        .host(remote.name(), remote.transport())
        .step(&record.step)
        .cause(cause)
}

/// The line of the hook of mode `torch` under the exception that ended the program.
const HOOK_SAYS_SO: &str = "rgpu torch: the program ended with an exception";

/// The exception of Python that ended a program and that no tool causes, with the reason.
fn own_exception(record: &RungRecord) -> Option<(&str, &'static str)> {
    if record.exit.is_none_or(|status| status == 0) || crash_signal(record).is_some() {
        return None;
    }
    // Python prints the exception last, at the beginning of a line; a tool may print below it.
    let (line, name) = record.stderr_tail.lines().rev().find_map(|line| {
        let name = line.split(':').next()?.trim_end();
        let is_name = name.chars().all(|c| c.is_alphanumeric() || "._".contains(c));
        (is_name && (name.ends_with("Error") || name.ends_with("Exception")))
            .then_some((line, name))
    })?;
    let names_tool = |text: &str| {
        let text = text.to_lowercase();
        TOOL_WORDS.iter().any(|word| text.contains(word))
    };
    let known = OWN_EXCEPTIONS.iter().copied().find(|(known, _)| *known == name);
    if known.is_some() {
        return known.filter(|_| !names_tool(line));
    }
    // Python names the module of every other class. The program's own class may wrap another error.
    let mut words = record.stderr_tail.split(|c: char| !c.is_alphanumeric());
    let may_be_a_tools = name.contains('.')
        || words.any(|word| EXCEPTIONS_OF_TOOLS.contains(&word))
        || names_tool(&record.stderr_tail);
    (!may_be_a_tools).then_some((name, "the program has its own class for it"))
}

fn ending(record: &RungRecord) -> String {
    match crash_signal(record).or(record.signal) {
        Some(signal) => format!("was ended by {}", outcome::signal(signal)),
        None => format!("ended with status {}", record.exit.unwrap_or(-1)),
    }
}

/// The signal with which the program crashed. A shell adds 128 to it, and ncu ends with the number
/// itself; that is told from a program's own status for SIGSEGV only.
fn crash_signal(record: &RungRecord) -> Option<i32> {
    let of_shell = record.exit.and_then(|status| status.checked_sub(128));
    let is_ncu = tool_of(record) == Some(RungTool::Ncu);
    let of_ncu = record.exit.filter(|status| is_ncu && *status == Signal::SIGSEGV as i32);
    let signal = record.signal.or(of_ncu).or(of_shell)?;
    CRASH_SIGNALS.iter().any(|crash| *crash as i32 == signal).then_some(signal)
}

fn tool_of(record: &RungRecord) -> Option<RungTool> {
    RungInfo::find(&RungId::from(record.rung.as_str())).map(|info| info.tool)
}

/// What may help where ncu or the sanitizer crashes a program, with a semicolon before it.
fn advice(record: &RungRecord, request: &Request) -> String {
    let (tool, setup) = match tool_of(record) {
        Some(RungTool::Ncu) => ("ncu", "another version of ncu (`rgpu setup ncu`)"),
        Some(RungTool::Sanitizer) => {
            ("the sanitizer", "another version of it (`rgpu setup sanitizer`)")
        }
        _ => return String::new(),
    };
    if crash_signal(record).is_none() {
        return String::new();
    }
    // Such a crash often depends on timing: the next run may end well.
    let mut ways = vec!["another run", setup];
    if tool == "ncu" && request.ncu.replay_mode.is_none() {
        ways.insert(1, "`--replay-mode application`");
    }
    if runs_python(&request.target) {
        ways.push("for JAX, no CUDA graphs (`XLA_FLAGS=--xla_gpu_enable_command_buffer=`)");
    }
    format!("; {tool} seems to crash it. What may help: {}", ways.join(", or "))
}

/// The gap of a program that fails only under the tool. `ran`: where it did not fail.
fn tool_fault(record: &RungRecord, ran: &str, request: &Request) -> Gap {
    let (ending, advice) = (ending(record), advice(record, request));
    let text = format!("the program {ending} on rung {}, but not {ran}{advice}", record.rung);
    Gap { code: "fails_under_tool".to_owned(), text }
}

fn survey_that_ended_well(ladder: &[RungRecord]) -> Option<&RungRecord> {
    ladder.iter().rev().find(|record| record.step == "survey" && record.ok && !failed(record))
}

/// The gap of a program that crashed on a rung of ncu, but not in the survey, although a lower rung
/// was reached then. `None` if there was no such crash.
pub(super) fn crash_on_higher_rung(
    request: &Request,
    result: &JobResult,
    ladder: &[RungRecord],
) -> Option<Gap> {
    let ProfileTarget::Program(_) = request.target else { return None };
    let survey = survey_that_ended_well(ladder)?;
    let is_crash = |record: &&RungRecord| {
        !record.ok && tool_of(record) == Some(RungTool::Ncu) && crash_signal(record).is_some()
    };
    let crash = result.rungs.iter().find(is_crash)?;
    Some(tool_fault(crash, &format!("on rung {}", survey.rung), request))
}

impl ProgramError {
    /// The error of a job, after those of which `ladder` has the records. `folder`: the run's.
    pub(super) fn new(
        record: &RungRecord,
        folder: &RunFolder,
        result: &JobResult,
        refused: Option<RefusedRung>,
        request: &Request,
        ladder: &[RungRecord],
    ) -> Self {
        let survey = survey_that_ended_well(ladder).cloned();
        let record = with_first_exception(record, folder);
        let (result, part) = (result.clone(), request.part);
        Self { record, survey, result, refused, part }
    }

    /// The survey in which the program ended well, and that the error is the tool's.
    pub(super) fn survey_verdict(&self, request: &Request) -> Option<(&RungRecord, Gap)> {
        let survey = self.survey.as_ref()?;
        Some((survey, tool_fault(&self.record, &format!("on rung {}", survey.rung), request)))
    }

    /// Why the program is not run again to judge the error. `None` if it is: it decides something,
    /// and does not take long.
    pub(super) fn reason_not_to_repeat(&self) -> Option<String> {
        if let Some((exception, reason)) = own_exception(&self.record) {
            return Some(format!("no tool causes its {exception}: {reason}"));
        }
        let seconds = self.record.seconds;
        (seconds > MAX_REPEATED_S)
            .then(|| format!("it took {seconds:.0} s, more than {MAX_REPEATED_S:.0} s"))
    }

    /// The failure of a program that is not run again. `reason`: why it is not, if it is told.
    pub(super) fn failure(&self, reason: Option<&str>, remote: &dyn Remote) -> Failure {
        let told = reason.map(|reason| format!("; it was not run again, since {reason}"));
        let how = format!(" on rung {}{}", self.record.rung, told.unwrap_or_default());
        failure(&self.record, &how, remote)
    }

    /// The exit status as a shell gives it.
    pub(super) fn shell_status(&self) -> Option<i32> {
        shell_status(&self.record)
    }

    /// The note that is shown before that run.
    pub(super) fn note(&self) -> String {
        format!(
            "the program {} on rung {}; it is run a second time, without a tool, to learn whether the \
             error is its own",
            ending(&self.record),
            self.record.rung
        )
    }

    /// Judges the run without a tool, and changes the request back. `None` if it did not end.
    pub(super) fn judge(
        &self,
        plain: &JobResult,
        folder: &RunFolder,
        request: &mut Request,
        remote: &dyn Remote,
    ) -> Option<ProgramFault> {
        request.part = self.part;
        let record = &with_first_exception(plain.last_rung(PLAIN_STEP)?, folder);
        if !matches!(plain.outcome, Some(Outcome::Done | Outcome::Failed { .. })) {
            return None;
        }
        if failed(record) {
            return Some(ProgramFault::Program(failure(record, ", also without a tool", remote)));
        }
        Some(ProgramFault::Tool(tool_fault(&self.record, "without a tool", request)))
    }

    /// Whether the job measured something, or had a rung refused: then the ladder continues from
    /// there.
    pub(super) fn measured(&self) -> bool {
        self.refused.is_some() || self.result.step_ok(&self.record.step)
    }

    /// Whether the mode has no rungs of another tool for the program. The run may have its survey.
    pub(super) fn leaves_nothing_to_try(&self, request: &Request) -> bool {
        let tool = tool_of(&self.record);
        let mut rungs = request.mode.info().rungs.iter().filter_map(RungInfo::find);
        let only_tool = self.survey.is_some() && rungs.all(|info| Some(info.tool) == tool);
        only_tool || tool == Some(RungTool::Sanitizer)
    }

    /// Leaves out all rungs of the tool under which the program fails. Returns the rung that
    /// failed.
    pub(super) fn exclude_tool(&self, request: &mut Request) -> RungId {
        let tool = tool_of(&self.record);
        let rungs = RUNGS.iter().filter(|info| Some(info.tool) == tool);
        request.skip.extend(rungs.map(|info| info.id.to_string()));
        RungId::from(self.record.rung.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(stderr_tail: &str, seconds: f64) -> RungRecord {
        let (exit, stderr_tail) = (Some(1), stderr_tail.to_owned());
        RungRecord { exit, stderr_tail, seconds, ..RungRecord::default() }
    }

    #[test]
    fn only_exceptions_that_no_tool_causes_are_the_programs_own() {
        let own = |tail: &str| own_exception(&record(tail, 1.0)).map(|(name, _)| name.to_owned());
        for (tail, name) in [
            ("ZeroDivisionError: division by zero", "ZeroDivisionError"),
            ("ValueError: bad\nCollecting data...", "ValueError"),
            ("json.decoder.JSONDecodeError: Expecting value", "json.decoder.JSONDecodeError"),
            ("ConfigError: no such layer", "ConfigError"),
        ] {
            assert_eq!(own(tail).as_deref(), Some(name), "{tail}");
        }
        for tail in [
            "RuntimeError: no device",
            "OSError: no room",
            "torch.OutOfMemoryError: no room",
            "ValueError: CUDA error: an illegal memory access",
            "RuntimeError: a\n\nTrainError: b",
            "no exception of Python",
        ] {
            assert_eq!(own(tail), None, "{tail}");
        }
    }

    #[test]
    fn a_program_that_ran_for_more_than_30_s_is_not_run_again() {
        let reason = |seconds: f64| {
            let (record, survey) = (record("trouble", seconds), None);
            let (result, refused, part) = (JobResult::default(), None, PlanPart::Whole);
            ProgramError { record, survey, result, refused, part }.reason_not_to_repeat()
        };
        assert_eq!(reason(30.0), None);
        assert_eq!(reason(31.0).as_deref(), Some("it took 31 s, more than 30 s"));
    }
}
