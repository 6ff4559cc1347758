//! Decides what a log proves about the program.

use super::record::Severity;
use super::text::{AbortKind, Log, Summary};
use std::fmt;
use std::str::FromStr;

/// The four tools of compute-sanitizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tool {
    /// Invalid accesses, leaks, API errors.
    Memcheck,
    /// Races in shared memory.
    Racecheck,
    /// Reads of memory that was never written.
    Initcheck,
    /// Barriers and other synchronisation used wrongly.
    Synccheck,
}

impl Tool {
    /// The name that `--tool` takes.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Memcheck => "memcheck",
            Tool::Racecheck => "racecheck",
            Tool::Initcheck => "initcheck",
            Tool::Synccheck => "synccheck",
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tool {
    type Err = ();

    fn from_str(name: &str) -> Result<Tool, ()> {
        [Tool::Memcheck, Tool::Racecheck, Tool::Initcheck, Tool::Synccheck]
            .into_iter()
            .find(|t| t.name() == name)
            .ok_or(())
    }
}

/// The verdict of a run of one tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The tool's own summary reports zero, and nothing contradicts it.
    Clean,
    /// The tool found errors or warnings.
    Found {
        /// Number of errors, from the tool's count if it prints one.
        errors: u64,
        /// Number of warnings, likewise.
        warnings: u64,
    },
    /// The run proves nothing.
    Unknown(UnknownReason),
}

/// The reason why a run proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownReason {
    /// There is no summary of this tool: the log was cut off, or the tool crashed or never ran.
    NoSummary,
    /// The summary reports zero, but the run ended in a way that makes it worthless.
    Aborted(AbortKind),
}

/// Judges `log` as a run of `tool`. `Clean` requires that tool's explicit zero summary.
pub fn verdict(log: &Log, tool: Tool) -> Verdict {
    let mut own_summary = false;
    let (mut errors, mut warnings) = (0u64, 0u64);
    for summary in &log.summaries {
        match *summary {
            Summary::Errors(n) => {
                own_summary |= tool != Tool::Racecheck;
                errors = errors.saturating_add(n);
            }
            Summary::Races { errors: e, warnings: w, displayed } => {
                own_summary |= tool == Tool::Racecheck;
                errors = errors.saturating_add(e);
                warnings = warnings.saturating_add(w);
                // A displayed record that is neither an error nor a warning is informational.
                if displayed > 0 && e == 0 && w == 0 {
                    warnings = warnings.saturating_add(displayed);
                }
            }
            // Leaks are also counted in the error summary.
            Summary::Leaks { .. } => {}
        }
    }
    let count = |severity| log.records.iter().filter(|r| r.severity == severity).count() as u64;
    errors = errors.max(count(Severity::Error));
    warnings = warnings.max(count(Severity::Warning));
    if errors > 0 || warnings > 0 || log.not_printed > 0 {
        return Verdict::Found { errors: errors.max(log.not_printed), warnings };
    }
    if let Some(abort) = log.aborts.first() {
        return Verdict::Unknown(UnknownReason::Aborted(abort.kind));
    }
    if own_summary { Verdict::Clean } else { Verdict::Unknown(UnknownReason::NoSummary) }
}
