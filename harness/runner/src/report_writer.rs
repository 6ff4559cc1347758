//! Builds the report and prints the progress lines on standard output.
//!
//! The file is written when the job starts, at every phase change, and at the end. Until the end it
//! holds the error that applies if the process dies now: after a crash in a host entry or a time
//! limit, the report still names the phase and case.
//!
//! Only the process that started the job writes it. The user's code may fork, and its child may
//! come back into the runner while the parent ends with status 0. What the child measured is no
//! result.

use crate::fault::{Fault, Result};
use crate::file;
use crate::ranges::{Range, Ranges};
use rgpu_case::{
    CASE_ABI, Case, CaseReport, DeviceFacts, ErrorClass, HostWarning, Phase, RunnerError,
    RunnerJob, RunnerReport, TimingSource,
};
use std::cell::RefCell;
use std::io::Write;
use std::path::PathBuf;

/// Prints a progress line. Unlike `println!`, it does not panic when the reader of standard output
/// is gone.
macro_rules! print_progress {
    ($($words:tt)*) => {
        $crate::report_writer::print_line(format_args!($($words)*))
    };
}
pub(crate) use print_progress;

/// Collects the results of a job and rewrites its report file.
pub(crate) struct ReportWriter {
    report: RefCell<RunnerReport>,
    current: RefCell<CurrentPhase>,
    ranges: Ranges,
    out: Option<PathBuf>,
    /// The process that started the job.
    pid: u32,
}

/// The phase entered last, and its case if it has one.
#[derive(Default)]
struct CurrentPhase {
    phase: Option<Phase>,
    case: Option<String>,
}

/// The open NVTX ranges of a phase and its case.
pub(crate) struct PhaseRanges<'a> {
    // Fields drop in this order, so the inner range closes first.
    _case: Option<Range<'a>>,
    _phase: Range<'a>,
}

impl ReportWriter {
    pub(crate) fn new(job: RunnerJob, out: Option<PathBuf>, ranges: Ranges) -> ReportWriter {
        let report = RunnerReport {
            abi: CASE_ABI,
            runner: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: String::new(),
            job,
            model: None,
            cases: Vec::new(),
            board: None,
            device: None,
            warnings: Vec::new(),
            gaps: Vec::new(),
            error: None,
        };
        ReportWriter {
            report: RefCell::new(report),
            current: RefCell::default(),
            ranges,
            out,
            pid: std::process::id(),
        }
    }

    /// Fails in a forked child of the process that started the job.
    pub(crate) fn check_process(&self) -> Result<()> {
        let own = std::process::id();
        if own == self.pid {
            return Ok(());
        }
        let text = format!(
            "process {own} is a forked child of the runner (process {}) and writes no report; call \
             `_exit` in a child that the kernel forks",
            self.pid
        );
        Err(Fault::new(ErrorClass::Crash, text))
    }

    pub(crate) fn set_kernel(&self, kernel: &str) {
        self.report.borrow_mut().kernel = kernel.to_owned();
    }

    pub(crate) fn set_device(&self, device: DeviceFacts) {
        let [major, minor] = device.compute_capability;
        print_progress!(
            "device: {} (sm_{major}{minor}), driver {}, CUDA {}.{}",
            device.name,
            device.driver.as_deref().unwrap_or("unknown"),
            device.cuda_version / 1000,
            device.cuda_version % 1000 / 10
        );
        self.report.borrow_mut().device = Some(device);
    }

    pub(crate) fn add_warning(&self, warning: HostWarning) {
        print_progress!("warning: {}", warning.text);
        self.report.borrow_mut().warnings.push(warning);
    }

    pub(crate) fn warnings(&self) -> Vec<HostWarning> {
        self.report.borrow().warnings.clone()
    }

    /// Records a value that could not be read. The same sentence is recorded only once.
    pub(crate) fn add_gap(&self, text: impl Into<String>) {
        let text = text.into();
        let mut report = self.report.borrow_mut();
        if !report.gaps.contains(&text) {
            print_progress!("gap: {text}");
            report.gaps.push(text);
        }
    }

    /// Changes the report of a case, which is added if it is missing.
    pub(crate) fn update_case(&self, name: &str, change: impl FnOnce(&mut CaseReport)) {
        let mut report = self.report.borrow_mut();
        let position = report.cases.iter().position(|case| case.name == name);
        let index = position.unwrap_or_else(|| {
            let name = name.to_owned();
            report.cases.push(CaseReport { name, ..CaseReport::default() });
            report.cases.len() - 1
        });
        change(&mut report.cases[index]);
    }

    /// The clock and the median in nanoseconds of a case that was timed.
    pub(crate) fn timing_of(&self, name: &str) -> Option<(TimingSource, f64)> {
        let report = self.report.borrow();
        let timing = report.cases.iter().find(|case| case.name == name)?.timing.as_ref()?;
        Some((timing.source, timing.median_ns))
    }

    /// Opens the ranges of a phase, and remembers phase and case for error reports.
    pub(crate) fn enter_phase(&self, phase: Phase, case: Option<&Case>) -> Result<PhaseRanges<'_>> {
        let name = case.map(|case| case.name.as_str());
        *self.current.borrow_mut() =
            CurrentPhase { phase: Some(phase), case: name.map(str::to_owned) };
        if let Some(name) = name {
            self.update_case(name, |_| {});
        }
        let text = match name {
            Some(name) => format!("the process ended during `{}` of `{name}`", phase.name()),
            None => format!("the process ended during `{}`", phase.name()),
        };
        let ended = Fault::new(ErrorClass::Crash, text + " without a message");
        self.write(Some(&self.with_phase_and_case(ended)))?;
        let outer = self.ranges.push(phase.name());
        let inner = case.map(|case| self.ranges.push(&case.range_name()));
        Ok(PhaseRanges { _case: inner, _phase: outer })
    }

    /// Adds the phase entered last, and its case, to an error.
    fn with_phase_and_case(&self, fault: Fault) -> RunnerError {
        let mut error = *fault.0;
        let current = self.current.borrow();
        error.phase = error.phase.or(current.phase);
        error.case = error.case.or_else(|| current.case.clone());
        error
    }

    /// Writes the final report, prints the outcome and returns the exit status.
    pub(crate) fn finish(&self, outcome: Result<()>) -> u8 {
        let error = outcome.err().map(|fault| self.with_phase_and_case(fault));
        let written = self.write(error.as_ref());
        let failed = error.or_else(|| written.err().map(|fault| *fault.0));
        match failed {
            None => 0,
            Some(error) => {
                print_error(&error);
                error.class.exit_code()
            }
        }
    }

    fn write(&self, error: Option<&RunnerError>) -> Result<()> {
        self.check_process()?;
        let Some(out) = &self.out else { return Ok(()) };
        let mut report = self.report.borrow().clone();
        report.error = error.cloned();
        let unwritable = |e: &dyn std::fmt::Display| {
            let text = format!("cannot write the report `{}`: {e}", out.display());
            Fault::new(ErrorClass::Output, text)
        };
        let mut bytes = serde_json::to_vec(&report).map_err(|e| unwritable(&e))?;
        bytes.push(b'\n');
        file::write_atomically(out, &bytes).map_err(|e| unwritable(&e))
    }
}

/// The implementation of `print_progress!`.
pub(crate) fn print_line(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints an error as the runner's last line.
pub(crate) fn print_error(error: &RunnerError) {
    let place = match (error.phase, &error.case) {
        (Some(phase), Some(name)) => format!("\n  during `{}` of `{name}`", phase.name()),
        (Some(phase), None) => format!("\n  during `{}`", phase.name()),
        _ => String::new(),
    };
    let _ = writeln!(std::io::stderr(), "error: {}{place}", error.text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn read(path: &Path) -> RunnerReport {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn a_report_exists_from_the_first_phase_on_and_names_phase_and_case() {
        let out = std::env::temp_dir().join(format!("rgpu-runner-report-{}", std::process::id()));
        let report =
            ReportWriter::new(RunnerJob::Time, Some(out.clone()), Ranges::new(None).unwrap());
        let case = crate::input::tests::vecadd(4).cases.remove(0);
        let ranges = report.enter_phase(Phase::Timed, Some(&case)).unwrap();
        let error = read(&out).error.unwrap();
        assert_eq!((error.class, error.phase), (ErrorClass::Crash, Some(Phase::Timed)));
        assert_eq!(error.case.as_deref(), Some("n=4"));
        drop(ranges);
        assert_eq!(report.finish(Err(Fault::new(ErrorClass::Launch, "no"))), 6);
        assert_eq!(read(&out).error.unwrap().case.as_deref(), Some("n=4"));
        assert_eq!(report.finish(Ok(())), 0);
        assert_eq!(read(&out).error, None);
        std::fs::remove_file(&out).unwrap();
    }

    #[test]
    fn a_report_that_cannot_be_written_is_the_error() {
        let out = PathBuf::from("/nowhere/report.json");
        let report = ReportWriter::new(RunnerJob::Time, Some(out), Ranges::new(None).unwrap());
        assert_eq!(report.finish(Ok(())), ErrorClass::Output.exit_code());
    }
}
