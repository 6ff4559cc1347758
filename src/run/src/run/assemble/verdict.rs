//! The failure of a run, from the job's outcome, the runner's report, the compiler's message and
//! the checked results.

use rgpu_case::ErrorClass;
use rgpu_protocol::{Outcome, RungRecord, Step};

use super::{ProfileBuilder, is_pass_step};
use crate::run::build::with_instances_to_write;
use crate::run::job::{JobResult, cancelled};
use crate::run::outcome;
use crate::store::{RunFolder, live};
use rgpu_analysis::credible;
use rgpu_import::case_report::RunnerFailure;
use rgpu_model::error::{Exit, Failure};
use rgpu_model::profile::CaseResult;
use rgpu_model::profile::{ArtifactKind, CheckVerdict};
use rgpu_model::sanitizer::SanitizerVerdict;
use rgpu_plan::kernel::{EntryPoint, plain_kernel_name};
use rgpu_plan::tool::{DraftInfo, PROGRAM_BUILD_CODES, ProfileTarget, Request};
use rgpu_remote::Remote;

/// In the error that the runner writes before each phase, in case that its process ends there.
const WITHOUT_MESSAGE: &str = "without a message";

/// The code of results and times that no right kernel can have.
const NOT_CREDIBLE: &str = "not_credible";

/// The end of a compiler's log that is read for a failure. A line may be as long as the log.
const MAX_COMPILER_MESSAGE_BYTES: u64 = 64 << 10;

impl ProfileBuilder {
    /// The failure of the last job's pass step, if no pass measured anything. For runs with several
    /// passes, whose last job may be done although its pass step failed.
    pub(in crate::run) fn nothing_measured_failure(&self, remote: &dyn Remote) -> Option<Failure> {
        let job = self.job.as_ref()?;
        let last = job.rungs.iter().rev().find(|r| is_pass_step(&r.step) && !r.ok)?;
        if !self.profile.launches.is_empty() || !self.survey.is_empty() {
            return None;
        }
        let outcome = Outcome::Failed { step: last.step.clone(), code: last.code.clone() };
        Some(outcome::failure(remote, &JobResult { outcome: Some(outcome), ..job.clone() }))
    }

    /// The failure of the run, if any.
    pub(in crate::run) fn failure(&self, remote: &dyn Remote) -> Option<Failure> {
        let has_findings =
            self.profile.sanitizer.iter().any(|s| s.verdict == SanitizerVerdict::Found);
        let job = self.job.as_ref()?;
        let failure = match &job.outcome {
            Some(Outcome::Done | Outcome::Failed { .. }) if self.missing_entry.is_some() => {
                return self.missing_entry.clone();
            }
            Some(Outcome::Done | Outcome::Failed { .. }) if self.unfinished.is_some() => {
                let (step, failure) = self.unfinished.as_ref()?;
                self.runner_failure(remote, step, failure)
            }
            Some(Outcome::Done) => {
                let wrong_case = self.profile.cases.iter().find(|c| {
                    c.correctness.as_ref().is_some_and(|c| c.verdict == CheckVerdict::Wrong)
                });
                return match wrong_case {
                    Some(case) => Some(self.wrong_result(remote, case)),
                    None => self.impossible_time(remote),
                };
            }
            Some(Outcome::Cancelled) => return Some(cancelled()),
            // A kernel crash under the sanitizer is a finding of the sanitizer, not a failure.
            Some(Outcome::Failed { .. }) if has_findings => return None,
            // A runner killed at the time limit leaves a report that names a crash. The true reason
            // is the time limit.
            Some(Outcome::Failed { code, .. }) if code == "timeout" => {
                outcome::failure(remote, job)
            }
            Some(Outcome::Failed { step, code }) => {
                let runner = self.runner.iter().find(|(s, _)| s == step).map(|(_, f)| f);
                match (step.as_str(), runner, &self.compiler) {
                    // What it printed without end says nothing.
                    ("build", _, Some(message)) if code != Step::TOO_MUCH_OUTPUT => {
                        let mut failure = outcome::failure(remote, job);
                        // Else the compiler, or the host, cannot compile any kernel so.
                        if failure.exit == Exit::Kernel
                            && !PROGRAM_BUILD_CODES.contains(&failure.code.as_str())
                        {
                            failure.what = "the kernel does not compile".to_owned();
                        }
                        failure.cause(message)
                    }
                    (_, Some(failure), _) => self.runner_failure(remote, step, failure),
                    _ => outcome::failure(remote, job),
                }
            }
            _ => outcome::failure(remote, job),
        };
        Some(failure)
    }

    fn wrong_result(&self, remote: &dyn Remote, case: &CaseResult) -> Failure {
        let first =
            case.correctness.as_ref().and_then(|c| c.first_wrong.clone()).unwrap_or_default();
        Failure::new(
            Exit::Kernel,
            "wrong_result",
            format!("the kernel computes wrong results in case `{}`", case.name),
        )
        .host(remote.name(), remote.transport())
        .step("verify")
        .cause(first)
        .hint("`rgpu profile --mode sanitizer` looks for races and stray accesses")
    }

    /// The failure if a case is faster than the GPU can move what it has to.
    fn impossible_time(&self, remote: &dyn Remote) -> Option<Failure> {
        let cause = credible::impossible_time(&self.profile)?;
        let failure = Failure::new(Exit::Kernel, NOT_CREDIBLE, "the kernel's time cannot be true")
            .host(remote.name(), remote.transport())
            .cause(cause)
            .hint("look for work that is left out, or done while no call is open");
        Some(failure)
    }

    fn runner_failure(&self, remote: &dyn Remote, step: &str, failure: &RunnerFailure) -> Failure {
        let wrong = self
            .profile
            .cases
            .iter()
            .find(|c| c.correctness.as_ref().is_some_and(|c| c.verdict == CheckVerdict::Wrong));
        if let (ErrorClass::WrongResult, Some(case)) = (failure.class, wrong) {
            return self.wrong_result(remote, case);
        }
        if is_of_another_build(failure) {
            return rgpu_remote::another_build(
                "the runner that is sent to the host",
                &failure.text,
            )
            .host(remote.name(), remote.transport())
            .step(step);
        }
        let (exit, code, what, hint) = runner_failure_texts(failure.class);
        let mut out = Failure::new(exit, code, what)
            .host(remote.name(), remote.transport())
            .step(step)
            .cause(format!("{}{}", failure.text, self.end_without_message(step, failure)));
        if !hint.is_empty() {
            out = out.hint(hint);
        }
        out
    }

    /// How the step's process ended, if the runner could not say it. Its report has what it wrote
    /// before.
    fn end_without_message(&self, step: &str, failure: &RunnerFailure) -> String {
        let record = self.job.as_ref().and_then(|job| job.last_rung(step));
        match record.filter(|_| failure.text.contains(WITHOUT_MESSAGE)) {
            Some(RungRecord { signal: Some(number), .. }) => {
                format!(", by {}", outcome::signal(*number))
            }
            Some(RungRecord { exit: Some(status), .. }) => {
                format!(", with status {status}: something in it called `exit` or `_exit`")
            }
            _ => String::new(),
        }
    }

    /// The failure if the compiled code lacks the kernel that kernel.toml names. Needed without a
    /// GPU, where nothing else reports it.
    pub(super) fn find_missing_entry(&self, request: &Request) -> Option<Failure> {
        let ProfileTarget::Kernel { spec, .. } = &request.target else { return None };
        let EntryPoint::Device(function) = &spec.entry else { return None };
        let compiled = self.profile.artifacts.iter().any(|a| a.kind == ArtifactKind::Cubin);
        let symbols: Vec<&str> = self.profile.code.iter().map(|c| c.symbol.as_str()).collect();
        // With a GPU the driver reports it. A mangled name contains the plain one.
        if self.profile.gpu.is_some()
            || !compiled
            || symbols.iter().any(|s| s.contains(plain_kernel_name(function)))
        {
            return None;
        }
        let failure = Failure::new(
            Exit::Config,
            "no_such_entry",
            format!("the compiled code has no kernel `{function}`"),
        )
        .file(spec.file.as_ref().unwrap_or(&spec.source).display());
        Some(if symbols.is_empty() {
            with_instances_to_write(failure.hint("it has none at all"), &spec.source)
        } else {
            failure.hint(format!("it has `{}`: name it in `entry`", symbols.join("`, `")))
        })
    }
}

/// Whether the runner and this rgpu are of different builds: it does not know what it was sent.
fn is_of_another_build(failure: &RunnerFailure) -> bool {
    const SIGNS: [&str; 5] = [
        "missing field",
        "unknown field",
        "unknown variant",
        "invalid type",
        "but this runner supports",
    ];
    matches!(failure.class, ErrorClass::Usage | ErrorClass::BadCase)
        && SIGNS.iter().any(|sign| failure.text.contains(sign))
}

/// Exit status, code, message and hint for a class of the runner's failures.
fn runner_failure_texts(class: ErrorClass) -> (Exit, &'static str, &'static str, &'static str) {
    match class {
        ErrorClass::WrongResult => (
            Exit::Kernel,
            "wrong_result",
            "the kernel computes wrong results",
            "`rgpu profile --mode sanitizer` looks for races and stray accesses",
        ),
        ErrorClass::ClocksDisagree => (
            Exit::Kernel,
            "clocks_disagree",
            "the kernel's own times cannot be true",
            "look for code in the kernel that changes a clock, or works while no call is open",
        ),
        ErrorClass::NotCredible => (
            Exit::Kernel,
            NOT_CREDIBLE,
            "no right kernel can have these results",
            "let the outputs depend on the inputs, and the inputs change with the seed",
        ),
        ErrorClass::IllegalAccess => (
            Exit::Kernel,
            "illegal_access",
            "the kernel crashed: it accessed memory outside its allocations",
            "`rgpu profile --mode sanitizer --tool memcheck` names the line",
        ),
        ErrorClass::NoDriver => (
            Exit::Host,
            "no_driver",
            "the host has no working GPU driver",
            "`rgpu doctor` says what is missing",
        ),
        ErrorClass::Load => (
            Exit::Kernel,
            "load",
            "the compiled kernel does not load",
            "check `--arch` against the GPU and the entry's name",
        ),
        ErrorClass::OutOfMemory => (
            Exit::Kernel,
            "out_of_memory",
            "the GPU has not enough memory for this case",
            "choose smaller sizes with `--problem-sizes`",
        ),
        ErrorClass::Launch => (
            Exit::Kernel,
            "launch",
            "the launch was refused",
            "check grid, block, cluster and shared memory in kernel.toml",
        ),
        ErrorClass::Usage | ErrorClass::BadCase | ErrorClass::MissingFile => (
            Exit::Bug,
            "runner",
            "the runner could not use the files that rgpu sent",
            "please report it with the run folder",
        ),
        _ => (Exit::Kernel, "kernel_failed", "the kernel's run failed", ""),
    }
}

/// The end of the compiler's message from its log, with paths of this machine; `None` if the log is
/// empty.
pub(in crate::run) fn compiler_message(folder: &RunFolder, info: &DraftInfo) -> Option<String> {
    let text = ["log/build.stderr", "log/build.stdout"]
        .iter()
        .filter_map(|name| Some(live::tail(folder, name, MAX_COMPILER_MESSAGE_BYTES)?.0))
        .find(|text| !text.trim().is_empty())?;
    let text = info.localize(&rgpu_protocol::pattern::strip_ansi(&text));
    let lines: Vec<&str> = text.lines().collect();
    Some(lines[lines.len().saturating_sub(40)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_of_another_build_is_told_from_a_defect() {
        let failure = |class, text: &str| RunnerFailure { class, text: text.to_owned() };
        for (class, text) in [
            (ErrorClass::BadCase, "`input.json` is not a valid runner input: missing field `seed`"),
            (ErrorClass::BadCase, "`input.json` has version 3, but this runner supports 2: use"),
        ] {
            assert!(is_of_another_build(&failure(class, text)), "{text}");
        }
        assert!(!is_of_another_build(&failure(ErrorClass::BadCase, "two cases are called `a`")));
        let printed = "the kernel printed: missing field `x`";
        assert!(!is_of_another_build(&failure(ErrorClass::WrongResult, printed)));
    }
}
