//! Turns how a job ended into the one failure that a user reads.

use rgpu_protocol::event::StartError;
use rgpu_protocol::plan::GpuSetting;
use rgpu_protocol::{Outcome, RungRecord};

use super::job::{JobResult, cancelled};
use rgpu_model::error::{Exit, Failure, Side};
use rgpu_plan::tool::{PLAIN_STEP, RungInfo};
use rgpu_remote::Remote;

/// Id of the step of `rgpu exec` that runs the program.
pub const EXEC_STEP: &str = "exec";

/// The failure of a job that did not succeed.
pub(super) fn failure(remote: &dyn Remote, result: &JobResult) -> Failure {
    let failure = match &result.outcome {
        Some(Outcome::Cancelled) => return cancelled(),
        Some(Outcome::Failed { step, code }) => return step_failure(remote, result, step, code),
        Some(Outcome::LeaseExpired) => Failure::new(
            Exit::Host,
            "lease_expired",
            "the job was stopped: no rgpu was attached for too long",
        )
        .hint("run it again, or use `--detach` for jobs that should continue without rgpu")
        .lost_host(true),
        Some(Outcome::QueueTimeout) => {
            Failure::new(Exit::Host, "queue_timeout", "the GPU did not become free in time")
                .hint("wait longer with `--queue-timeout 2h`, or choose another with `--gpu`")
        }
        Some(Outcome::NoGpu { text }) => Failure::new(Exit::Host, "no_gpu", text.clone())
            .hint("`rgpu doctor` lists the host's GPUs; `--share-gpu` runs while other processes use the GPU"),
        Some(Outcome::HostError { code, text }) => match remote.host_loss_reason() {
            Some(end) => return end.failure(remote.name(), remote.transport()),
            None if code == GpuSetting::REFUSED => Failure::new(
                Exit::Host,
                "clocks_refused",
                "the host does not let this user lock the GPU's clocks",
            )
            .cause(text)
            .hint("`--lock-clocks` needs root on the host; without it the clocks stay as they are"),
            None => Failure::new(Exit::Host, code, text.clone()),
        },
        Some(Outcome::Done | Outcome::Unknown) | None => {
            Failure::new(Exit::Host, "no_end", "the job ended without a result")
                .hint("run it again; its output is under `log/` in the run folder")
                .lost_host(true)
        }
    };
    failure.host(remote.name(), remote.transport())
}

/// The failure after a second try: the host's facts changed again between the plan and its start.
pub(super) fn facts_changed_twice() -> Failure {
    let what = "the host's GPUs or tools changed while the command ran";
    Failure::new(Exit::Host, "facts_changed", what).hint("run the command again")
}

/// A signal as text: `signal 11 (SIGSEGV)`; only the number if this machine does not know it.
pub fn signal(number: i32) -> String {
    match nix::sys::signal::Signal::try_from(number) {
        Ok(known) => format!("signal {number} ({})", known.as_str()),
        Err(_) => format!("signal {number}"),
    }
}

/// The failure of a step, from the record of its last rung.
fn step_failure(remote: &dyn Remote, result: &JobResult, step: &str, code: &str) -> Failure {
    let record = result.last_rung(step);
    let seconds = record.map_or(0.0, |r| r.seconds);
    let program =
        record.and_then(|r| r.argv.first()).map_or(step, |p| p.rsplit('/').next().unwrap_or(p));
    let reason = rgpu_plan::tool::reason(code);
    let what = match code {
        "timeout" => format!("`{program}` was stopped after {seconds:.0} s"),
        "start_failed" => format!("`{program}` could not be started"),
        "signal" => format!(
            "`{program}` was ended by {}",
            signal(record.and_then(|r| r.signal).unwrap_or(0))
        ),
        "exit" => {
            format!("`{program}` ended with status {}", record.and_then(|r| r.exit).unwrap_or(-1))
        }
        "missing" => format!("step `{step}` has no tool on this host"),
        _ => reason.title.to_owned(),
    };
    let start_error = record.filter(|r| starts_program(r)).and_then(|record| record.start_error);
    let (exit, side) = match start_error {
        // The user named a program that the host does not have. `exec` has a status for that.
        Some(StartError::NotFound) if step != EXEC_STEP => (Exit::Usage, Side::Host),
        _ => side_of(step, code),
    };
    let mut failure = Failure::new(exit, code, what)
        .side(side)
        .host(remote.name(), remote.transport())
        .step(step)
        .cause(cause(record));
    failure.start_error = start_error;
    if code == "timeout" {
        failure = failure.hint("raise the limit with `--timeout 30m`");
    }
    if !reason.help.is_empty() {
        failure = failure.hint(reason.help);
    }
    failure
}

/// Whether a rung starts the user's program itself, without a tool before it.
pub fn starts_program(record: &RungRecord) -> bool {
    let step = record.step.as_str();
    let is_of_program = [EXEC_STEP, PLAIN_STEP].contains(&step) || step.starts_with("profile");
    let info = RungInfo::find(&record.rung[..].into());
    is_of_program && info.is_none_or(|info| info.tool.name().is_none())
}

/// The exit status and side of a failed step: the reason's side, except that signals, and exit
/// statuses of steps that run the user's code, count against the kernel.
fn side_of(step: &str, code: &str) -> (Exit, Side) {
    let side = match (step, code) {
        (_, "signal") => Side::Kernel,
        ("build" | "reference" | "verify" | "time" | "exec", "exit") => Side::Kernel,
        _ => rgpu_plan::tool::reason(code).side,
    };
    let exit = match side {
        Side::Kernel => Exit::Kernel,
        Side::Tool => Exit::Tool,
        Side::Host | Side::Transport => Exit::Host,
        Side::Local => Exit::Config,
    };
    (exit, side)
}

/// A failure shows at most this many of the last lines that a tool printed.
pub const MAX_CAUSE_LINES: usize = 12;

/// The cause to show: the diagnosed line, and the last lines that the tool printed.
pub(super) fn cause(record: Option<&RungRecord>) -> String {
    let Some(record) = record else { return String::new() };
    let tail = if record.stderr_tail.trim().is_empty() {
        &record.stdout_tail
    } else {
        &record.stderr_tail
    };
    let lines: Vec<&str> = tail.lines().filter(|l| !l.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(MAX_CAUSE_LINES)..].join("\n");
    match (record.message.is_empty(), last.is_empty() || last.contains(&record.message)) {
        (true, _) => last,
        (false, true) if last.is_empty() => record.message.clone(),
        (false, true) => last,
        (false, false) => format!("{}\n{last}", record.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_remote::fake::InProcessAgent;

    #[test]
    fn a_named_program_that_is_missing_is_a_mistake_of_the_command_line() {
        let remote = InProcessAgent::new(Vec::new());
        let failure = |step: &str, rung: &str| {
            let record = RungRecord {
                step: step.to_owned(),
                rung: rung.to_owned(),
                start_error: Some(StartError::NotFound),
                ..RungRecord::default()
            };
            let outcome =
                Some(Outcome::Failed { step: step.to_owned(), code: "start_failed".to_owned() });
            failure(&remote, &JobResult { outcome, rungs: vec![record], ..JobResult::default() })
        };
        let named = failure("profile", "cpu");
        assert_eq!((named.exit, named.start_error), (Exit::Usage, Some(StartError::NotFound)));
        assert_eq!(failure(EXEC_STEP, EXEC_STEP).exit, Exit::Host);
        let tool = failure("profile", "nsys.full");
        assert_eq!((tool.exit, tool.start_error), (Exit::Host, None));
    }

    #[test]
    fn only_a_job_without_a_result_of_its_own_has_lost_its_host() {
        let remote = InProcessAgent::new(Vec::new());
        let failure = |outcome| failure(&remote, &JobResult { outcome, ..JobResult::default() });
        for outcome in [None, Some(Outcome::Done), Some(Outcome::LeaseExpired)] {
            assert!(failure(outcome.clone()).lost_host, "{outcome:?}");
        }
        let host_error = Outcome::HostError { code: "no_end".to_owned(), text: String::new() };
        let no_gpu = Outcome::NoGpu { text: "none is free".to_owned() };
        for outcome in [host_error, no_gpu, Outcome::QueueTimeout, Outcome::Cancelled] {
            assert!(!failure(Some(outcome.clone())).lost_host, "{outcome:?}");
        }
    }
}
