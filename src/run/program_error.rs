//! A program that ends with an error while a tool measures it: the program's own fault, or the
//! tool's. One run without a tool decides. The ladder is not walked down meanwhile, since a program
//! that fails by itself fails on every rung.

use rgpu_protocol::plan::HangDetection;
use rgpu_protocol::{Outcome, RungRecord};

use super::assemble::RefusedRung;
use super::job::JobResult;
use super::outcome;
use crate::error::{Exit, Failure, Side};
use crate::model::RungId;
use crate::model::profile::Gap;
use crate::remote::Remote;
use crate::tool::{PLAIN_STEP, PlanPart, RUNGS, Request, RungInfo, Target};

/// The longest run under a tool after which the program is run again without one, in seconds.
const MAX_REPEATED_S: f64 = 60.0;

/// Codes of rungs that ended with the program, not because of the tool. An accepted rung has none.
const CODES_OF_PROGRAMS: [&str; 7] =
    ["", "exit", "signal", "program_failed", "no_cuda_call", "no_kernels", "not_attached"];

/// A program's error under a tool, while the program runs without one.
#[derive(Debug)]
pub(super) struct ProgramError {
    record: RungRecord,
    /// The result of the job with the error.
    pub result: JobResult,
    /// The rung of that job that was refused, if one was.
    pub refused: Option<RefusedRung>,
    /// The part of the request that the job did.
    part: PlanPart,
}

/// The result of running the program without a tool.
pub(super) enum Fault {
    /// It fails by itself.
    Program(Failure),
    /// It fails only under the tool, which the gap says.
    Tool(Gap),
}

/// The record of the error with which the program of a job ended. `None` if it ended well, or the
/// tool failed.
pub(super) fn find<'r>(request: &Request, result: &'r JobResult) -> Option<&'r RungRecord> {
    let Target::Program(_) = request.target else { return None };
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
pub(super) fn has_stalled(record: &RungRecord) -> bool {
    record.notes.iter().any(|(code, _)| code == HangDetection::CODE)
}

/// The failure of a job whose program hung. `None` if none did.
pub(super) fn stall_failure(result: &JobResult, remote: &dyn Remote) -> Option<Failure> {
    let record = result.rungs.iter().rev().find(|record| has_stalled(record))?;
    let (_, text) = record.notes.iter().find(|(code, _)| code == HangDetection::CODE)?;
    let failure =
        Failure::new(Exit::Kernel, HangDetection::CODE, "the program hung and was stopped")
            .side(Side::Kernel)
            .host(remote.name(), remote.transport())
            .step(&record.step)
            .cause(text.replace("; ", "\n"))
            .hint("`--stall` has the time without output after which a program counts as hung");
    Some(failure)
}

fn failed(record: &RungRecord) -> bool {
    record.signal.is_some() || record.exit.is_some_and(|status| status != 0)
}

/// The exit status as a shell gives it.
pub(super) fn shell_status(record: &RungRecord) -> Option<i32> {
    record.signal.map(|signal| 128 + signal).or(record.exit)
}

/// The failure of a program whose error is its own.
pub(super) fn failure(record: &RungRecord, how: &str, remote: &dyn Remote) -> Failure {
    Failure::new(Exit::Kernel, "program_failed", format!("the program {}{how}", ending(record)))
        .side(Side::Kernel)
        .host(remote.name(), remote.transport())
        .step(&record.step)
        .cause(outcome::cause(Some(record)))
}

fn ending(record: &RungRecord) -> String {
    match (record.signal, record.exit) {
        (Some(signal), _) => format!("was ended by {}", outcome::signal(signal)),
        (None, status) => format!("ended with status {}", status.unwrap_or(-1)),
    }
}

impl ProgramError {
    /// Changes the request into a run without a tool. `None` if that run would take long.
    pub(super) fn check(
        record: &RungRecord,
        result: &JobResult,
        refused: Option<RefusedRung>,
        request: &mut Request,
    ) -> Option<Self> {
        if record.seconds > MAX_REPEATED_S {
            return None;
        }
        let part = std::mem::replace(&mut request.part, PlanPart::Plain);
        Some(Self { record: record.clone(), result: result.clone(), refused, part })
    }

    /// The note that is shown before that run.
    pub(super) fn note(&self) -> String {
        format!(
            "the program {} on rung {}; it is run once without a tool",
            ending(&self.record),
            self.record.rung
        )
    }

    /// Judges the run without a tool, and changes the request back. `None` if it did not end.
    pub(super) fn judge(
        &self,
        plain: &JobResult,
        request: &mut Request,
        remote: &dyn Remote,
    ) -> Option<Fault> {
        request.part = self.part;
        let record = plain.last_rung(PLAIN_STEP)?;
        if !matches!(plain.outcome, Some(Outcome::Done | Outcome::Failed { .. })) {
            return None;
        }
        if failed(record) {
            return Some(Fault::Program(failure(record, ", also without a tool", remote)));
        }
        let text = format!(
            "the program {} on rung {}, but not without a tool",
            ending(&self.record),
            self.record.rung
        );
        Some(Fault::Tool(Gap { code: "fails_under_tool".to_owned(), text }))
    }

    /// Whether the job measured something, or had a rung refused: then the ladder continues from there.
    pub(super) fn measured(&self) -> bool {
        self.refused.is_some() || self.result.step_ok(&self.record.step)
    }

    /// Leaves out all rungs of the tool under which the program fails. Returns the rung that failed.
    pub(super) fn exclude_tool(&self, request: &mut Request) -> RungId {
        let rung = RungId::from(self.record.rung.as_str());
        let tool = RungInfo::find(&rung).map(|info| info.tool);
        let rungs = RUNGS.iter().filter(|info| Some(info.tool) == tool);
        request.skip.extend(rungs.map(|info| info.id.to_string()));
        rung
    }
}
