//! Runs a loop: one function for each phase. Each ends with [`LoopRunner::enter`], which records the
//! next phase; a killed loop begins the recorded phase again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;

use super::commit::{check_repository, commit_files};
use super::config::{LoopConfig, LoopMode, is_allowed};
use super::documents::{
    DocumentKind, ReviewerVerdict, Verdict, WorkerResult, write_json, write_text,
};
use super::error::io_error;
use super::measure::{MeasureResult, PhaseError};
use super::prompt::time_text;
use super::state::{
    IterationRecord, KeptState, LoopComparison, LoopState, MeasuredTime, Outcome, Phase, Proposal,
    Stop, StopReason,
};
use super::status::LoopStatus;
use super::{
    FOLDER, LOOP_LOCK, LoopError, LoopRow, Loops, ROLE, fresh_nonce, iteration_folder, tree,
};
use rgpu_model::comparison::TimeVerdict;
use rgpu_model::error::Failure;
use rgpu_model::fault_point;
use rgpu_model::number_form::counted;
use rgpu_run::child_tree::TreeWatch;
use rgpu_run::store::state::StateLock;

/// What a loop needs besides its settings.
pub struct LoopSetup {
    /// The program that verifies and measures: this one.
    pub program: PathBuf,
    /// The folder of its runs.
    pub runs_dir: PathBuf,
    /// Gets each line of `run.log`.
    pub on_line: Box<dyn Fn(&str)>,
}

/// A loop that this process runs.
pub struct LoopRunner {
    pub(super) loops: Loops,
    pub(super) number: i64,
    pub(super) id: String,
    pub(super) folder: PathBuf,
    pub(super) config: LoopConfig,
    pub(super) state: LoopState,
    pub(super) watch: TreeWatch,
    pub(super) program: PathBuf,
    pub(super) runs_dir: PathBuf,
    on_line: Box<dyn Fn(&str)>,
    /// The files of each copy, as this process has recorded or checked them.
    digests: BTreeMap<&'static str, tree::FileDigests>,
    /// Seconds that earlier processes ran, and since when this one does.
    ran: (f64, Instant),
    _lock: StateLock,
}

impl Loops {
    /// Refuses a new loop while the newest one is not finished.
    ///
    /// # Errors
    /// [`LoopError::WrongState`]; the database cannot be read.
    pub fn refuse_unfinished(&self) -> Result<(), LoopError> {
        match self.find(None) {
            Ok(row) if row.state.phase != Phase::Stopped => Err(LoopError::WrongState {
                id: row.id,
                state: "is not finished".to_owned(),
                hint: "`rgpu loop resume` continues it; `--fresh` leaves it and begins with \
                       the project as it is"
                    .to_owned(),
            }),
            Ok(_) | Err(LoopError::NoLoop(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl LoopRunner {
    /// Starts a loop.
    ///
    /// # Errors
    /// Another loop runs; an earlier one is not finished and `is_fresh` is not set; the database
    /// cannot be written.
    pub fn start(
        mut loops: Loops,
        config: LoopConfig,
        is_fresh: bool,
        setup: LoopSetup,
    ) -> Result<Self, LoopError> {
        config.refuse_commands_of_agent("start loop.toml")?;
        check_repository(&loops.project)?;
        let lock = StateLock::take(loops.db.files(), LOOP_LOCK, ROLE)?;
        if !is_fresh {
            loops.refuse_unfinished()?;
        }
        match loops.find(None) {
            Ok(row) if row.state.phase != Phase::Stopped => {
                let text = "another loop was started with `--fresh`".to_owned();
                let stop = Some(Stop { reason: StopReason::Replaced, text });
                let state = LoopState { phase: Phase::Stopped, stop, ..row.state.clone() };
                loops.change(row.number, row.state.phase, &state, None)?;
            }
            Ok(_) | Err(LoopError::NoLoop(_)) => {}
            Err(error) => return Err(error),
        }
        config.allowed(&loops.project)?;
        // Nothing is recorded where nothing can be kept.
        let folder = loops.project.join(FOLDER);
        loops.files.make_folder(&folder).map_err(io_error("create", &folder))?;
        let (number, id) = loops.add(&config)?;
        // A folder with this id that stands there already is not ours to fill and to remove.
        let folder = loops.folder(&id);
        loops.files.new_folder(&folder).map_err(io_error("create", &folder))?;
        let runner = Self::new(loops, (number, id), config, LoopState::new(), lock, setup)?;
        fault_point::kill_if_named("loop added");
        Ok(runner)
    }

    /// Goes on with a loop whose process has gone.
    ///
    /// # Errors
    /// It has stopped, or runs; the files of its best are damaged.
    pub fn resume(loops: Loops, id: Option<&str>, setup: LoopSetup) -> Result<Self, LoopError> {
        check_repository(&loops.project)?;
        let lock = StateLock::take(loops.db.files(), LOOP_LOCK, ROLE)?;
        let row = loops.find(id)?;
        let LoopRow { number, id, config, state, .. } = row;
        if state.phase == Phase::Stopped {
            return Err(LoopError::WrongState {
                id,
                state: "has stopped".to_owned(),
                hint: "`rgpu loop start` begins another one with the best that this one left"
                    .to_owned(),
            });
        }
        let mut runner = Self::new(loops, (number, id), config, state, lock, setup)?;
        runner.kill_leftovers();
        // In `apply` the best may be half replaced; that phase begins again from the change.
        if runner.state.phase != Phase::Apply {
            runner.check_copy("best")?;
        }
        runner.log(&format!("resumed in phase {}", runner.state.phase.as_str()));
        Ok(runner)
    }

    fn new(
        loops: Loops,
        (number, id): (i64, String),
        config: LoopConfig,
        state: LoopState,
        lock: StateLock,
        setup: LoopSetup,
    ) -> Result<Self, LoopError> {
        let folder = loops.folder(&id);
        let files = &loops.files;
        files.make_folder(&folder).map_err(io_error("create", &folder))?;
        // Copies of the project are no part of it.
        let ignore = loops.project.join(FOLDER).join(".gitignore");
        write_text(files, &ignore, b"*\n")?;
        let watch = TreeWatch::listen(true).map_err(io_error("watch", Path::new("/proc/self")))?;
        let ran = (state.active_s, Instant::now());
        Ok(Self {
            loops,
            number,
            id,
            folder,
            config,
            state,
            watch,
            program: setup.program,
            runs_dir: setup.runs_dir,
            on_line: setup.on_line,
            digests: BTreeMap::new(),
            ran,
            _lock: lock,
        })
    }

    /// Runs the loop until it stops, and returns its status.
    ///
    /// # Errors
    /// [`LoopError::Interrupted`] after a signal; the database or the disk fails. The loop can be
    /// resumed after each.
    pub fn run(mut self) -> Result<LoopStatus, LoopError> {
        self.write_control()?;
        loop {
            let ended = match self.state.phase {
                Phase::Stopped => break,
                // The last two phases are part of stopping.
                Phase::Apply => self.apply().map_err(PhaseError::from),
                Phase::Final => self.compare_with_start(),
                Phase::Init => self.check_limits().and_then(|()| self.init()),
                Phase::Worker => self.check_limits().and_then(|()| self.run_worker()),
                Phase::Verify => self.check_limits().and_then(|()| self.verify_change()),
                Phase::Compare => self.check_limits().and_then(|()| self.compare_change()),
                Phase::Confirm => self.check_limits().and_then(|()| self.confirm_change()),
                Phase::Profile => self.check_limits().and_then(|()| self.profile_change()),
                Phase::Reviewer => self.check_limits().and_then(|()| self.run_reviewer()),
            };
            match ended {
                Ok(()) => {}
                Err(PhaseError::Error(error)) => return Err(error),
                Err(PhaseError::Stop) => self.stop_as_asked()?,
                Err(PhaseError::WallTime) => {
                    let limit = self.config.max_wall_time.duration().as_secs_f64();
                    self.restore()?;
                    self.stop(StopReason::WallTime, format!("it has run for {limit} s"))?;
                }
                Err(PhaseError::Infra(why)) => self.has_failed(&why)?,
                Err(PhaseError::Permanent(failure)) => return Err(self.give_up(failure)?),
            }
        }
        // What was recorded counts only where the next command finds it.
        self.loops.db.check_in_place()?;
        let row = self.loops.find(Some(&self.id))?;
        LoopStatus::of(&self.loops, &row)
    }

    /// Records the next phase with the changed state, and writes the files for people.
    fn enter(
        &mut self,
        phase: Phase,
        change: impl FnOnce(&mut LoopState),
    ) -> Result<(), LoopError> {
        self.enter_after(phase, None, change)
    }

    fn enter_after(
        &mut self,
        phase: Phase,
        ended: Option<&IterationRecord>,
        change: impl FnOnce(&mut LoopState),
    ) -> Result<(), LoopError> {
        let mut state =
            LoopState { phase, active_s: self.active_s(), failure: None, ..self.state.clone() };
        change(&mut state);
        fault_point::kill_if_named(&format!("loop before {}", phase.as_str()));
        self.loops.change(self.number, self.state.phase, &state, ended)?;
        self.state = state;
        fault_point::kill_if_named(&format!("loop in {}", phase.as_str()));
        self.write_control()
    }

    /// `control.json`, and `status.json` of the iteration.
    fn write_control(&self) -> Result<(), LoopError> {
        let row = self.loops.find(Some(&self.id))?;
        let status = LoopStatus::of(&self.loops, &row)?;
        write_json(&self.loops.files, &self.folder.join("control.json"), &status)?;
        if self.state.iteration > 0 {
            let proposal = &self.state.proposal;
            let status = json!({
                "iteration": self.state.iteration,
                "state": self.state.phase.state(),
                "phase": self.state.phase,
                "outcome": proposal.outcome,
                "reason": proposal.reason,
                "changed": proposal.changed,
            });
            write_json(&self.loops.files, &self.iteration_folder().join("status.json"), &status)?;
        }
        Ok(())
    }

    fn active_s(&self) -> f64 {
        self.ran.0 + self.ran.1.elapsed().as_secs_f64()
    }

    pub(super) fn iteration_folder(&self) -> PathBuf {
        iteration_folder(&self.folder, self.state.iteration)
    }

    /// The folder of a copy: `start`, `best` or `candidate`.
    fn copy(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The kernel in a copy.
    fn kernel_in(&self, name: &str) -> PathBuf {
        self.copy(name).join(&self.config.kernel_path)
    }

    /// Records the files of a copy that was just made, and returns the digest of all.
    fn record_copy(&mut self, name: &'static str) -> Result<String, LoopError> {
        let digests = tree::file_digests(&self.loops.files, &self.copy(name))?;
        let digest = tree::digest_of(&digests);
        self.digests.insert(name, digests);
        Ok(digest)
    }

    /// Checks that a copy has the files that were recorded.
    fn check_copy(&mut self, name: &'static str) -> Result<(), LoopError> {
        let now = tree::file_digests(&self.loops.files, &self.copy(name))?;
        let damaged = |file: PathBuf, recorded: String, found: String| LoopError::Damaged {
            id: self.id.clone(),
            file,
            recorded,
            found,
        };
        if let Some(recorded) = self.digests.get(name) {
            return match tree::first_difference(recorded, &now) {
                Some((path, recorded, found)) => {
                    let file = format!("{FOLDER}/{}/{name}/{}", self.id, path.display());
                    Err(damaged(PathBuf::from(file), recorded, found))
                }
                None => Ok(()),
            };
        }
        // An earlier process recorded the digest of all.
        let kept = |state: &Option<KeptState>| state.as_ref().map(|kept| kept.digest.clone());
        let recorded = match name {
            "start" => kept(&self.state.start),
            "best" => kept(&self.state.best),
            _ => Some(self.state.proposal.digest.clone()).filter(|digest| !digest.is_empty()),
        };
        let found = tree::digest_of(&now);
        match recorded {
            Some(recorded) if recorded != found => {
                let folder = PathBuf::from(format!("{FOLDER}/{}/{name}", self.id));
                Err(damaged(folder, format!("sha256 {recorded}"), format!("sha256 {found}")))
            }
            Some(_) => {
                self.digests.insert(name, now);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Checks all copies: what is compared, and with what.
    pub(super) fn check_copies(&mut self) -> Result<(), LoopError> {
        ["start", "best", "candidate"].into_iter().try_for_each(|name| self.check_copy(name))
    }

    /// Checks that a run measured the source that was recorded. `source` and `sha256` are what the run
    /// says.
    pub(super) fn check_measured(&self, source: &str, sha256: &str) -> Result<(), LoopError> {
        let source = self.loops.project.join(source);
        for (name, digests) in &self.digests {
            let inner = source.strip_prefix(self.copy(name)).ok();
            let Some(recorded) = inner.and_then(|inner| digests.get(inner)) else { continue };
            if !recorded.ends_with(sha256) {
                return Err(LoopError::Damaged {
                    id: self.id.clone(),
                    file: source,
                    recorded: recorded.clone(),
                    found: format!("sha256 {sha256} as it was measured"),
                });
            }
        }
        Ok(())
    }

    /// Tells the user a line, and adds it to `run.log`.
    pub(super) fn tell(&self, text: &str) {
        self.log(text);
        (self.on_line)(text);
    }

    pub(super) fn check_limits(&self) -> Result<(), PhaseError> {
        let requests = self.loops.stop_requests(self.number)?;
        if !self.state.has_seen(requests) {
            return Err(PhaseError::Stop);
        }
        if self.active_s() > self.config.max_wall_time.duration().as_secs_f64() {
            Err(PhaseError::WallTime)
        } else {
            Ok(())
        }
    }

    /// Gives the project the files of the best.
    fn restore(&mut self) -> Result<(), LoopError> {
        if self.state.best.is_none() {
            return Ok(());
        }
        self.check_copy("best")?;
        let backup = self.iteration_folder().join("changed");
        tree::restore(&self.loops.files, &self.copy("best"), &backup)
    }

    fn stop_as_asked(&mut self) -> Result<(), LoopError> {
        let requests = self.loops.stop_requests(self.number)?;
        self.restore()?;
        if self.state.phase == Phase::Final {
            self.tell("the best is not compared with the start");
            return self.enter(Phase::Stopped, |state| state.stops_seen = requests);
        }
        self.state.stops_seen = requests;
        self.stop(StopReason::Stopped, "the user asked for it".to_owned())
    }

    /// Begins the end of the loop.
    fn stop(&mut self, reason: StopReason, text: String) -> Result<(), LoopError> {
        self.tell(&format!("stopping: {text}"));
        self.enter(Phase::Final, |state| state.stop = Some(Stop { reason, text }))
    }

    /// Ends this process after a failure that a further try would repeat. A loop that has measured its
    /// start can be resumed when the user has mended it.
    fn give_up(&mut self, mut failure: Box<Failure>) -> Result<LoopError, LoopError> {
        self.tell(&format!("{} failed: {}", self.state.phase.as_str(), failure.what));
        if self.state.phase == Phase::Init {
            let stop = Stop { reason: StopReason::StartRefused, text: failure.what.clone() };
            self.enter(Phase::Stopped, |state| state.stop = Some(stop))?;
        } else {
            let what = failure.what.clone();
            self.enter(self.state.phase, |state| state.failure = Some(what))?;
            failure = Box::new(failure.hint("then `rgpu loop resume` continues the loop"));
        }
        Ok(LoopError::Permanent(failure))
    }

    /// Handles a failure that is not the change's fault: the phase is tried again, or the loop
    /// stops.
    fn has_failed(&mut self, why: &str) -> Result<(), LoopError> {
        let failures = self.state.infra_failures + 1;
        self.tell(&format!("{} failed: {why}", self.state.phase.as_str()));
        let is_last = failures >= self.config.max_infra_failures;
        match self.state.phase {
            // Each failed worker ends its iteration.
            Phase::Worker => {
                self.state.infra_failures = failures;
                self.decide(Outcome::WorkerFailed, why.to_owned(), Phase::Apply)
            }
            _ if !is_last => self.retry(failures, why),
            Phase::Final => self.enter(Phase::Stopped, |state| state.infra_failures = failures),
            Phase::Init => {
                self.state.infra_failures = failures;
                self.stop(
                    StopReason::InfraFailures,
                    format!("{}: {why}", counted(failures, "failure", "failures")),
                )
            }
            _ => {
                self.state.infra_failures = failures;
                self.decide(Outcome::NotMeasured, why.to_owned(), Phase::Apply)
            }
        }
    }

    fn retry(&mut self, failures: u32, why: &str) -> Result<(), LoopError> {
        self.enter(self.state.phase, |state| {
            state.infra_failures = failures;
            state.failure = Some(why.to_owned());
        })?;
        match self.pause(self.config.infra_retry_delay.duration()) {
            Err(PhaseError::Error(error)) => Err(error),
            // The next phase sees a request to stop.
            _ => Ok(()),
        }
    }

    /// Copies, verifies and profiles the start.
    fn init(&mut self) -> Result<(), PhaseError> {
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

    fn run_worker(&mut self) -> Result<(), PhaseError> {
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
        let (outcome, reason) = if decision == super::documents::Decision::Revert {
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
    fn decide(&mut self, outcome: Outcome, reason: String, next: Phase) -> Result<(), LoopError> {
        self.tell(&format!("iteration {}: {}: {reason}", self.state.iteration, outcome.as_str()));
        self.enter(next, |state| {
            state.failure = (outcome == Outcome::WorkerFailed).then(|| reason.clone());
            state.proposal.outcome = Some(outcome);
            state.proposal.reason = reason;
        })
    }

    fn verify_change(&mut self) -> Result<(), PhaseError> {
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

    fn compare_change(&mut self) -> Result<(), PhaseError> {
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

    fn confirm_change(&mut self) -> Result<(), PhaseError> {
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
    fn profile_change(&mut self) -> Result<(), PhaseError> {
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

    fn run_reviewer(&mut self) -> Result<(), PhaseError> {
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
    fn apply(&mut self) -> Result<(), LoopError> {
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
    fn compare_with_start(&mut self) -> Result<(), PhaseError> {
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
