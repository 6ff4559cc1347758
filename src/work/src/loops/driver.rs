//! Runs a loop: it starts or resumes one, and goes from phase to phase. Each phase ends with
//! [`LoopRunner::enter`], which records the next one; a killed loop begins the recorded phase
//! again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use super::commit::check_repository;
use super::config::LoopConfig;
use super::documents::{write_json, write_text};
use super::error::io_error;
use super::measure::PhaseError;
use super::state::{IterationRecord, LoopState, Outcome, Phase, Stop, StopReason};
use super::status::LoopStatus;
use super::{FOLDER, LOOP_LOCK, LoopError, LoopRow, Loops, ROLE, iteration_folder, tree};
use rgpu_model::error::Failure;
use rgpu_model::fault_point;
use rgpu_model::number_form::counted;
use rgpu_run::child_tree::{TreeWatch, WaitResult};
use rgpu_run::store::state::StateLock;

/// How long to look for a signal between phases.
const SIGNAL_WAIT: Duration = Duration::from_millis(1);

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
    pub(super) digests: BTreeMap<&'static str, tree::FileDigests>,
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
            // A phase that starts no program waits for nothing, so it sees no signal.
            if self.state.phase != Phase::Stopped
                && self.watch.wait(Some(SIGNAL_WAIT)) == WaitResult::Terminate
            {
                return Err(LoopError::Interrupted);
            }
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
        LoopStatus::for_row(&self.loops, &row)
    }

    /// Records the next phase with the changed state, and writes the files for people.
    pub(super) fn enter(
        &mut self,
        phase: Phase,
        change: impl FnOnce(&mut LoopState),
    ) -> Result<(), LoopError> {
        self.enter_after(phase, None, change)
    }

    pub(super) fn enter_after(
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
        let status = LoopStatus::for_row(&self.loops, &row)?;
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

    /// Ends this process after a failure that a further try would repeat. A loop that has measured
    /// its start can be resumed when the user has mended it.
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
}
