//! The phases of a loop: one function for each. Each ends with [`LoopRunner::enter`].

use std::path::PathBuf;

use serde_json::json;

use super::commit::commit_files;
use super::config::{LoopMode, is_allowed};
use super::documents::{
    Decision, DocumentKind, ReviewerVerdict, Verdict, WorkerResult, write_json, write_text,
};
use super::driver::LoopRunner;
use super::error::io_error;
use super::measure::{LoopProfile, MeasureResult, PhaseError};
use super::prompt::time_text;
use super::state::{
    IterationRecord, KeptState, LoopComparison, MeasuredTime, Outcome, Phase, Proposal, Stop,
    StopReason,
};
use super::{FOLDER, LoopError, fresh_nonce, iteration_folder, tree};
use rgpu_model::comparison::TimeVerdict;
use rgpu_model::fault_point;
use rgpu_model::number_form::counted;

impl LoopRunner {
    /// Copies, verifies and profiles the start.
    pub(super) fn init(&mut self) -> Result<(), PhaseError> {
        let project = self.loops.project.clone();
        let scratch = self.iteration_folder();
        self.loops.files.make_folder(&scratch).map_err(io_error("create", &scratch))?;
        let start = self.copy("start");
        tree::copy_project(&self.loops.files, &start, None)?;
        for name in ["best", "candidate"] {
            tree::copy(&self.loops.files, &start, &self.copy(name))?;
            self.record_copy(name)?;
        }
        let mut kept = KeptState {
            iteration: 0,
            files: format!("{FOLDER}/{}/start", self.id),
            digest: self.record_copy("start")?,
            commit: commit_files(&project, &self.id, None, "rgpu loop: start")?,
            time: None,
            profile: None,
            cubins: Vec::new(),
        };
        let kernel = self.kernel_in("start");
        if !kernel.exists() {
            let why = "the kernel is not among the project's files: does `.gitignore` name it?";
            return Ok(self.refuse_start(why)?);
        }
        if self.config.mode != LoopMode::DryRun {
            self.tell("verifying the start");
            if let Err((_, why)) = self.verify(&kernel)? {
                return Ok(self.refuse_start(&why)?);
            }
            let modes = [self.config.profile_mode.clone(), "bench".to_owned()];
            for mode in modes.iter().filter(|mode| *mode != "none") {
                self.tell(&format!("profiling the start ({mode})"));
                match self.profile(&kernel, mode) {
                    Ok(Ok(LoopProfile { unprotected: Some(why), .. })) => {
                        return Ok(self.refuse_start(&why)?);
                    }
                    Ok(Ok(profile)) => {
                        kept.time = kept.time.or(profile.time);
                        kept.profile = kept.profile.or(Some(profile.file));
                        kept.cubins = profile.cubins;
                    }
                    Ok(Err((_, why))) => return Ok(self.refuse_start(&why)?),
                    // A host may refuse counters; times alone suffice.
                    Err(PhaseError::Infra(why)) if mode != "bench" => {
                        self.tell(&format!("could not profile the start: {why}"));
                    }
                    Err(halt) => return Err(halt),
                }
                if kept.time.is_some() {
                    break;
                }
            }
            if let Some(time) = &kept.time {
                self.tell(&format!("the start takes {}", time_text(time)));
            }
        }
        let best = KeptState { files: format!("{FOLDER}/{}/best", self.id), ..kept.clone() };
        self.state.start = Some(kept);
        self.state.best = Some(best);
        Ok(self.begin_iteration(None)?)
    }

    fn refuse_start(&mut self, why: &str) -> Result<(), LoopError> {
        let text = format!("the start is refused: {why}");
        self.tell(&text);
        let stop = Stop { reason: StopReason::StartRefused, text };
        self.enter(Phase::Stopped, |state| state.stop = Some(stop))
    }

    fn begin_iteration(&mut self, ended: Option<&IterationRecord>) -> Result<(), LoopError> {
        let iteration = self.state.iteration + 1;
        let folder = iteration_folder(&self.folder, iteration);
        self.loops.files.make_folder(&folder).map_err(io_error("create", &folder))?;
        let nonce = fresh_nonce()?;
        self.enter_after(Phase::Worker, ended, |state| {
            state.iteration = iteration;
            state.nonce = nonce;
            state.proposal = Proposal::default();
        })
    }

    pub(super) fn run_worker(&mut self) -> Result<(), PhaseError> {
        let claim = match self.take_answer(DocumentKind::Worker) {
            Some(claim) => claim,
            None => {
                if self.config.mode == LoopMode::Command {
                    // A killed worker may have left half a change.
                    self.restore()?;
                }
                self.tell(&format!("iteration {}: worker", self.state.iteration));
                let answer = self.ask(DocumentKind::Worker)?;
                answer.map_err(|end| {
                    PhaseError::Infra(format!("the worker wrote no result: {end}"))
                })?
            }
        };
        self.collect_change(claim)
    }

    /// Copies what the worker changed, and decides what needs no measurement.
    fn collect_change(&mut self, claim: WorkerResult) -> Result<(), PhaseError> {
        // The worker could write them too.
        for name in ["start", "best"] {
            self.check_copy(name)?;
        }
        let (candidate, best) = (self.copy("candidate"), self.copy("best"));
        let files = &self.loops.files;
        tree::copy_project(files, &candidate, Some(&best))?;
        let changed = tree::changed_files(files, &candidate, &best)?;
        let patch = tree::patch(files, &best, &candidate, &changed);
        let path = self.iteration_folder().join("git_diff.patch");
        write_text(files, &path, patch.as_bytes())?;
        let allowed = self.config.allowed(&self.loops.project)?;
        let is_refused = |path: &&PathBuf| {
            !is_allowed(&allowed, path) || tree::refusal(files, &candidate.join(path)).is_some()
        };
        let refused: Vec<String> =
            changed.iter().filter(is_refused).map(|path| path.display().to_string()).collect();
        let decision = claim.decision;
        self.state.proposal = Proposal {
            digest: self.record_copy("candidate")?,
            claim: Some(claim),
            changed,
            ..Proposal::default()
        };
        let (outcome, reason) = if decision == Decision::Revert {
            (Outcome::Withdrawn, "the worker took it back".to_owned())
        } else if self.state.proposal.changed.is_empty() {
            (Outcome::Unchanged, "no file was changed".to_owned())
        } else if !refused.is_empty() {
            (Outcome::Refused, format!("these files may not be changed: {}", refused.join(", ")))
        } else {
            return Ok(self.enter(Phase::Verify, |_| {})?);
        };
        Ok(self.decide(outcome, reason, Phase::Reviewer)?)
    }

    /// Records what becomes of the change.
    pub(super) fn decide(
        &mut self,
        outcome: Outcome,
        reason: String,
        next: Phase,
    ) -> Result<(), LoopError> {
        self.tell(&format!("iteration {}: {}: {reason}", self.state.iteration, outcome.as_str()));
        self.enter(next, |state| {
            state.failure = (outcome == Outcome::WorkerFailed).then(|| reason.clone());
            state.proposal.outcome = Some(outcome);
            state.proposal.reason = reason;
        })
    }

    pub(super) fn verify_change(&mut self) -> Result<(), PhaseError> {
        match self.verify(&self.kernel_in("candidate"))? {
            Ok(run) => Ok(self.enter(Phase::Compare, |state| {
                state.infra_failures = 0;
                state.proposal.verification = Some(run);
            })?),
            Err((outcome, why)) => Ok(self.decide(outcome, why, Phase::Reviewer)?),
        }
    }

    fn compare_with_best(
        &mut self,
        name: &str,
    ) -> Result<MeasureResult<LoopComparison>, PhaseError> {
        self.compare(&self.kernel_in("best"), &self.kernel_in("candidate"), name)
    }

    pub(super) fn compare_change(&mut self) -> Result<(), PhaseError> {
        let comparison = match self.compare_with_best("compare")? {
            Ok(comparison) => comparison,
            Err((outcome, why)) => return Ok(self.decide(outcome, why, Phase::Reviewer)?),
        };
        self.state.infra_failures = 0;
        let outcome = match comparison.verdict {
            TimeVerdict::Faster => {
                self.state.proposal.comparison = Some(comparison);
                return Ok(self.enter(Phase::Confirm, |_| {})?);
            }
            TimeVerdict::Slower => Outcome::Slower,
            TimeVerdict::Same => Outcome::Same,
            TimeVerdict::Ambiguous => Outcome::Ambiguous,
        };
        self.count_target(&[&comparison.base]);
        let reason = comparison.summary.clone();
        self.state.proposal.comparison = Some(comparison);
        Ok(self.decide(outcome, reason, Phase::Reviewer)?)
    }

    pub(super) fn confirm_change(&mut self) -> Result<(), PhaseError> {
        let second = match self.compare_with_best("confirm")? {
            Ok(comparison) => comparison,
            Err((outcome, why)) => return Ok(self.decide(outcome, why, Phase::Reviewer)?),
        };
        self.state.infra_failures = 0;
        let is_confirmed = second.verdict == TimeVerdict::Faster;
        let reason = if is_confirmed {
            second.summary.clone()
        } else {
            format!("the second comparison does not agree: {}", second.summary)
        };
        let first = self.state.proposal.comparison.clone();
        self.state.proposal.confirmation = Some(second.clone());
        if is_confirmed {
            // The measurements of earlier states do not count for this one.
            self.state.target_hits = 0;
            let first = first.as_ref().map(|first| &first.new);
            let times: Vec<&MeasuredTime> = first.into_iter().chain([&second.new]).collect();
            self.count_target(&times);
            Ok(self.decide(Outcome::Kept, reason, Phase::Profile)?)
        } else {
            self.count_target(&[&second.base]);
            Ok(self.decide(Outcome::NotConfirmed, reason, Phase::Reviewer)?)
        }
    }

    /// Counts comparisons in a row in which the best reached the target.
    fn count_target(&mut self, times: &[&MeasuredTime]) {
        let Some(threshold) = self.config.target_metric_threshold else { return };
        let metric = self.config.target_metric_name;
        for time in times {
            let value = self.state.metric(metric, time);
            if value.is_some_and(|value| metric.is_reached(value, threshold)) {
                self.state.target_hits += 1
            } else {
                self.state.target_hits = 0
            }
        }
    }

    /// Profiles the change, for the prompts. Without a profile the loop continues.
    pub(super) fn profile_change(&mut self) -> Result<(), PhaseError> {
        // The comparison has the code that was measured.
        let run = self.state.proposal.confirmation.as_ref().map(|second| second.run.clone());
        let mut cubins = run.map(|run| self.cubins(&format!("{run}/b"))).unwrap_or_default();
        let mut file = None;
        let mode = self.config.profile_mode.clone();
        if mode != "none" {
            match self.profile(&self.kernel_in("candidate"), &mode) {
                Ok(Ok(profile)) => {
                    file = Some(profile.file);
                    if cubins.is_empty() {
                        cubins = profile.cubins;
                    }
                }
                Ok(Err((_, why))) | Err(PhaseError::Infra(why)) => {
                    self.tell(&format!("could not profile the change: {why}"));
                }
                Err(halt) => return Err(halt),
            }
        }
        Ok(self.enter(Phase::Reviewer, |state| {
            state.proposal.profile = file;
            state.proposal.cubins = cubins;
        })?)
    }

    pub(super) fn run_reviewer(&mut self) -> Result<(), PhaseError> {
        if self.config.mode == LoopMode::Command && self.config.reviewer_command.is_none() {
            return Ok(self.enter(Phase::Apply, |_| {})?);
        }
        // The worker knew its own nonce, so the reviewer gets another one.
        if self.state.proposal.claim.as_ref().is_some_and(|claim| claim.nonce == self.state.nonce) {
            let nonce = fresh_nonce()?;
            return Ok(self.enter(Phase::Reviewer, |state| state.nonce = nonce)?);
        }
        let verdict: Option<ReviewerVerdict> = match self.take_answer(DocumentKind::Reviewer) {
            Some(verdict) => Some(verdict),
            None => match self.ask(DocumentKind::Reviewer)? {
                Ok(verdict) => Some(verdict),
                Err(end) => {
                    self.tell(&format!("the reviewer wrote no verdict: {end}"));
                    None
                }
            },
        };
        Ok(self.enter(Phase::Apply, |state| {
            let Some(verdict) = verdict else { return };
            if verdict.requires_revert && state.proposal.outcome == Some(Outcome::Kept) {
                state.proposal.outcome = Some(Outcome::RevertedByReviewer);
                state.proposal.reason = verdict.reason.clone();
                // They were those of the change.
                state.target_hits = 0;
            }
            state.next_change_hint = verdict.next_change_hint.clone();
            state.proposal.verdict = Some(verdict);
        })?)
    }

    /// Keeps the change or takes it back, and begins the next iteration or the end.
    pub(super) fn apply(&mut self) -> Result<(), LoopError> {
        let proposal = self.state.proposal.clone();
        let outcome = proposal.outcome.unwrap_or(Outcome::NotMeasured);
        if outcome == Outcome::Kept {
            self.check_copy("candidate")?;
            tree::copy(&self.loops.files, &self.copy("candidate"), &self.copy("best"))?;
            self.record_copy("best")?;
            fault_point::kill_if_named("loop kept");
        }
        self.restore()?;
        fault_point::kill_if_named("loop restored");
        let record = IterationRecord {
            iteration: self.state.iteration,
            outcome,
            reason: proposal.reason.clone(),
            changed: proposal.changed,
            claim: proposal.claim,
            comparison: proposal.comparison,
            confirmation: proposal.confirmation,
            verdict: proposal.verdict,
        };
        self.write_metrics(&record)?;
        match outcome {
            Outcome::Kept => {
                let parent = self.state.best.as_ref().and_then(|best| best.commit.clone());
                let message =
                    format!("rgpu loop: iteration {}\n\n{}", record.iteration, record.reason);
                self.state.best = Some(KeptState {
                    iteration: record.iteration,
                    files: format!("{FOLDER}/{}/best", self.id),
                    digest: proposal.digest,
                    commit: commit_files(
                        &self.loops.project,
                        &self.id,
                        parent.as_deref(),
                        &message,
                    )?,
                    time: record.confirmation.as_ref().map(|second| second.new.clone()),
                    profile: proposal.profile,
                    cubins: proposal.cubins,
                });
                self.state.kept += 1;
                self.state.no_progress = 0;
            }
            _ => self.state.no_progress += 1,
        }
        if !matches!(outcome, Outcome::WorkerFailed | Outcome::NotMeasured) {
            self.state.infra_failures = 0;
        }
        match self.reason_to_stop(&record) {
            Some(stop) => {
                self.tell(&format!("stopping: {}", stop.text));
                self.enter_after(Phase::Final, Some(&record), |state| state.stop = Some(stop))
            }
            None => {
                // The next phase sees a request to stop.
                if outcome == Outcome::WorkerFailed
                    && let Err(PhaseError::Error(error)) =
                        self.pause(self.config.infra_retry_delay.duration())
                {
                    return Err(error);
                }
                self.begin_iteration(Some(&record))
            }
        }
    }

    /// `metrics_snapshot.json`: the worker's claim beside rgpu's own numbers.
    fn write_metrics(&self, record: &IterationRecord) -> Result<(), LoopError> {
        let snapshot = json!({
            "iteration": record.iteration,
            "outcome": record.outcome,
            "claimed": record.claim.as_ref().map(|claim| {
                json!({"metric_name": claim.metric_name, "metric_value": claim.metric_value})
            }),
            "measured": {"comparison": record.comparison, "confirmation": record.confirmation},
            "best_before": self.state.best.as_ref().and_then(|best| best.time.as_ref()),
        });
        let path = self.iteration_folder().join("metrics_snapshot.json");
        write_json(&self.loops.files, &path, &snapshot)
    }

    fn reason_to_stop(&self, record: &IterationRecord) -> Option<Stop> {
        let (config, state) = (&self.config, &self.state);
        let verdict = record.verdict.as_ref().filter(|it| it.verdict != Verdict::Continue);
        let (reason, text) = if state.target_hits >= config.target_confirmations {
            let times = state.target_hits;
            (
                StopReason::TargetReached,
                format!("the target is reached in {}", counted(times, "comparison", "comparisons")),
            )
        } else if let Some(verdict) = verdict {
            (StopReason::Reviewer, format!("the reviewer: {}", verdict.reason))
        } else if state.infra_failures >= config.max_infra_failures {
            let failures = counted(state.infra_failures, "failure", "failures");
            let text = format!("{failures}: {}", record.reason);
            (StopReason::InfraFailures, text)
        } else if state.iteration >= config.max_iterations {
            (StopReason::MaxIterations, counted(state.iteration, "iteration", "iterations"))
        } else if state.no_progress >= config.max_no_progress {
            let text = match state.no_progress {
                1 => "an iteration improved nothing".to_owned(),
                several => format!("{several} iterations in a row improved nothing"),
            };
            (StopReason::NoProgress, text)
        } else {
            return None;
        };
        Some(Stop { reason, text })
    }

    /// Compares the best with the start, measured again.
    pub(super) fn compare_with_start(&mut self) -> Result<(), PhaseError> {
        let requests = self.loops.stop_requests(self.number)?;
        let is_lost =
            self.state.stop.as_ref().is_some_and(|stop| stop.reason == StopReason::InfraFailures);
        if self.state.kept == 0 || is_lost || requests > 1 {
            return Ok(self.enter(Phase::Stopped, |_| {})?);
        }
        self.tell("comparing the best with the start");
        let measured = self.compare(&self.kernel_in("start"), &self.kernel_in("best"), "final")?;
        let comparison = match measured {
            Ok(comparison) => {
                self.tell(&comparison.summary);
                Some(comparison)
            }
            Err((_, why)) => {
                self.tell(&format!("the best cannot be compared with the start: {why}"));
                None
            }
        };
        Ok(self.enter(Phase::Stopped, |state| state.final_comparison = comparison)?)
    }
}
