//! Runs the programs of a loop: workers, reviewers, and rgpu itself to verify, compare and profile.
//! rgpu runs as a child of the same program with `--json`, so a crash or a hang of a measurement
//! does not end the loop, and a comparison of the loop is the same as one that a user types.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, WaitStatus};
use serde::de::DeserializeOwned;

use super::driver::LoopRunner;
use super::error::io_error;
use super::state::{LoopComparison, MeasuredTime, Outcome, Phase};
use super::{LoopError, status};
use rgpu_model::beneath::Folder;
use rgpu_model::comparison::CaseChange;
use rgpu_model::error::{ErrorDocument, Exit, Failure, NO_SUCH_FILE};
use rgpu_model::fault_point;
use rgpu_model::profile::{CheckVerdict, Trust};
use rgpu_model::suite::NO_GPU;
use rgpu_model::{Comparison, Profile};
use rgpu_run::child_tree::{ChildAction, LimitedOutput, MAX_LOG_BYTES, WaitResult};
use rgpu_run::process_tree;

/// The variable by which the processes of a loop are found after it was killed.
const MARKER: &str = "RGPU_LOOP";

/// How often to look for a request to stop, and to record that the loop is alive.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The largest document of a child.
const MAX_DOCUMENT_BYTES: u64 = 1 << 30;

/// The GPU's time outside of the timed events may exceed that of the base by so many nanoseconds.
const MAX_HIDDEN_NS: f64 = 10_000.0;

/// Why a phase did not end.
#[derive(Debug)]
pub(super) enum PhaseError {
    /// The loop cannot continue.
    Error(LoopError),
    /// The user asked the loop to stop.
    Stop,
    /// The loop has run for as long as it may.
    WallTime,
    /// Something failed that is not the change's fault.
    Infra(String),
    /// A mistake in the settings, or a host that can never measure: a further try fails as well.
    Permanent(Box<Failure>),
}

impl From<LoopError> for PhaseError {
    fn from(error: LoopError) -> Self {
        Self::Error(error)
    }
}

/// How a child ended.
pub(super) enum ChildEnd {
    /// It exited, or was killed by a signal: 128 plus its number.
    Exited(i32),
    /// Its time limit ended it.
    TimedOut,
}

impl ChildEnd {
    /// The end as a phrase of a message.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Exited(code) => format!("exit status {code}"),
            Self::TimedOut => "its time limit ended it".to_owned(),
        }
    }
}

/// The result of a measurement: a value, or what is wrong with the change and why.
pub(super) type MeasureResult<T> = Result<T, (Outcome, String)>;

/// The id of the loop that started this process, if one did.
pub fn loop_id_from_env() -> Option<String> {
    let marker = std::env::var(MARKER).ok()?;
    marker.splitn(3, '/').nth(2).filter(|id| !id.is_empty()).map(str::to_owned)
}

/// A profile that was made for a loop.
pub(super) struct LoopProfile {
    /// Its file, from the project.
    pub(super) file: String,
    /// The compiled code, from the project.
    pub(super) cubins: Vec<String>,
    /// The kernel's time; `None` if the profile has none.
    pub(super) time: Option<MeasuredTime>,
    /// Why the time is not believed.
    pub(super) unprotected: Option<String>,
}

impl LoopRunner {
    /// Kills what is left of a killed loop's children.
    pub(super) fn kill_leftovers(&self) {
        process_tree::kill_marked(&format!("{MARKER}={}", self.marker()));
    }

    fn marker(&self) -> String {
        format!("{}/{}/{}", self.loops.db.id(), self.number, self.id)
    }

    /// Runs a command to its end, or ends its whole process tree.
    pub(super) fn run_child(
        &mut self,
        mut command: Command,
        limit: Duration,
    ) -> Result<ChildEnd, PhaseError> {
        command.env(MARKER, self.marker()).stdin(Stdio::null()).process_group(0);
        let program = PathBuf::from(command.get_program());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(e) => {
                return Err(PhaseError::Infra(format!(
                    "`{}` cannot start: {e}",
                    program.display()
                )));
            }
        };
        fault_point::kill_if_named(&format!("loop child of {}", self.state.phase.as_str()));
        let pid = child.id().cast_signed();
        let mut halt: Option<PhaseError> = None;
        let mut is_timed_out = false;
        let (watch, loops) = (&mut self.watch, &self.loops);
        let (folder, number, state) = (&self.folder, self.number, &self.state);
        let files = &self.loops.files;
        let end = watch.follow(pid, |wake, elapsed| {
            const ENDS: &[Signal] = &[Signal::INT, Signal::TERM];
            if wake == Some(WaitResult::Terminate) {
                halt = Some(PhaseError::Error(LoopError::Interrupted));
                return ChildAction::End(ENDS);
            }
            if elapsed >= limit {
                is_timed_out = true;
                return ChildAction::End(ENDS);
            }
            status::write_heartbeat(files, folder, state, Some(pid));
            // The requests before this phase have been seen.
            match loops.stop_requests(number) {
                Ok(count) if count > 0 && !state.has_seen(count) => {
                    halt = Some(PhaseError::Stop);
                    ChildAction::End(ENDS)
                }
                _ => ChildAction::Wait(Some(POLL_INTERVAL.min(limit.saturating_sub(elapsed)))),
            }
        });
        if let Some(halt) = halt {
            return Err(halt);
        }
        if is_timed_out {
            return Ok(ChildEnd::TimedOut);
        }
        let code = end.status.and_then(WaitStatus::exit_status).unwrap_or_else(|| {
            128 + end.status.and_then(WaitStatus::terminating_signal).unwrap_or(0)
        });
        Ok(ChildEnd::Exited(code))
    }

    /// Waits for `limit`. Fails early if the loop is asked to stop.
    pub(super) fn pause(&mut self, limit: Duration) -> Result<(), PhaseError> {
        let start = std::time::Instant::now();
        loop {
            status::write_heartbeat(&self.loops.files, &self.folder, &self.state, None);
            let left = limit.saturating_sub(start.elapsed());
            if self.watch.wait(Some(POLL_INTERVAL.min(left))) == WaitResult::Terminate {
                return Err(LoopError::Interrupted.into());
            }
            let count = self.loops.stop_requests(self.number)?;
            if count > 0 && !self.state.has_seen(count) {
                return Err(PhaseError::Stop);
            }
            if start.elapsed() >= limit {
                return Ok(());
            }
        }
    }

    /// Runs a template of loop.toml.
    pub(super) fn run_template(
        &mut self,
        template: &str,
        prompt: &Path,
        limit: Duration,
    ) -> Result<ChildEnd, PhaseError> {
        // Here again: a loop that is resumed has its settings from the project's database.
        self.config.refuse_commands_of_agent("resume")?;
        let words = shlex::split(template).unwrap_or_default();
        let folder = self.iteration_folder();
        let kernel = self.loops.project.join(&self.config.kernel_path);
        let fill = |word: &String| {
            let paths = [("{prompt}", prompt), ("{iter_dir}", &*folder), ("{kernel}", &*kernel)];
            let mut word = word.clone();
            for (name, path) in paths {
                word = word.replace(name, &path.to_string_lossy());
            }
            word
        };
        let words: Vec<String> = words.iter().map(fill).collect();
        let Some((program, arguments)) = words.split_first() else {
            return Err(PhaseError::Infra("the command is empty".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.loops.project);
        let log = self.folder.join("run.log");
        let (out, output) = LimitedOutput::start(self.open_log()?, MAX_LOG_BYTES)
            .map_err(io_error("open", &log))?;
        command.stdout(out.try_clone().map_err(io_error("open", &log))?).stderr(out);
        let end = self.run_child(command, limit);
        output.finish();
        end
    }

    /// Runs rgpu, and returns its exit status and the document that it printed into `name` of the
    /// iteration's folder.
    /// The copies that may be measured are checked before and after it.
    fn run_rgpu(&mut self, args: &[OsString], name: &str) -> Result<(i32, Vec<u8>), PhaseError> {
        self.check_copies()?;
        let result = self.run_rgpu_unchecked(args, name)?;
        self.check_copies()?;
        Ok(result)
    }

    fn run_rgpu_unchecked(
        &mut self,
        args: &[OsString],
        name: &str,
    ) -> Result<(i32, Vec<u8>), PhaseError> {
        let path = self.iteration_folder().join(name);
        let file = self.new_output(&path)?;
        let mut command = Command::new(&self.program);
        command.arg0("rgpu").args(args).arg("--json").current_dir(&self.loops.project);
        if let Some(remote) = &self.config.remote {
            command.args(["--remote", remote]);
        }
        command.stdout(file).stderr(self.open_log()?);
        let limit = self.config.measure_timeout.duration();
        match self.run_child(command, limit)? {
            ChildEnd::TimedOut => Err(PhaseError::Infra(format!(
                "`rgpu {}` was ended after {} s",
                args.first().map(|word| word.to_string_lossy()).unwrap_or_default(),
                limit.as_secs_f64()
            ))),
            ChildEnd::Exited(code) => {
                let bytes = self.loops.files.read(&path, MAX_DOCUMENT_BYTES);
                Ok((code, bytes.map_err(io_error("read", &path))?))
            }
        }
    }

    /// The arguments of `rgpu COMMAND` for these kernels.
    fn arguments(&self, words: &[&str], kernels: &[&Path], with_sizes: bool) -> Vec<OsString> {
        let mut args: Vec<OsString> = words.iter().map(OsString::from).collect();
        for kernel in kernels {
            args.extend([OsStr::new("--kernel").to_owned(), kernel.into()]);
        }
        for sizes in self.config.problem_sizes.iter().filter(|_| with_sizes) {
            args.extend([OsStr::new("--problem-sizes").to_owned(), sizes.into()]);
        }
        args
    }

    fn read_document<T: DeserializeOwned>(
        &self,
        code: i32,
        bytes: &[u8],
    ) -> Result<MeasureResult<T>, PhaseError> {
        read_document(self.state.phase == Phase::Init, code, bytes)
    }

    /// Verifies a kernel on all named sizes. Returns the run folder.
    pub(super) fn verify(&mut self, kernel: &Path) -> Result<MeasureResult<String>, PhaseError> {
        let args = self.arguments(&["profile", "--mode", "verify"], &[kernel], false);
        let (code, bytes) = self.run_rgpu(&args, "verify.json")?;
        let profile: Profile = match self.read_document(code, &bytes)? {
            Ok(profile) => profile,
            Err(fault) => return Ok(Err(fault)),
        };
        self.check_measured_source(&profile)?;
        let verdict = profile.correctness.as_ref().map(|correctness| &correctness.verdict);
        Ok(match verdict {
            Some(CheckVerdict::Right) => Ok(self.run_folder(&profile.run.id)),
            Some(CheckVerdict::Wrong) => Err((Outcome::Wrong, "its results are wrong".to_owned())),
            _ => {
                let words = "it has no reference, so its results cannot be checked";
                Err((Outcome::Refused, words.to_owned()))
            }
        })
    }

    /// Compares two kernels by their times (`rgpu compare --mode bench`). The inner error says why
    /// there is no comparison.
    pub(super) fn compare(
        &mut self,
        base: &Path,
        new: &Path,
        name: &str,
    ) -> Result<MeasureResult<LoopComparison>, PhaseError> {
        let threshold = self.config.threshold.to_string();
        let words = ["compare", "--mode", "bench", "--threshold", &threshold];
        let args = self.arguments(&words, &[base, new], true);
        let (code, bytes) = self.run_rgpu(&args, &format!("{name}.json"))?;
        let comparison: Comparison = match self.read_document(code, &bytes)? {
            Ok(comparison) => comparison,
            Err(fault) => return Ok(Err(fault)),
        };
        let run = self.run_folder(&comparison.b.run);
        let sides = ["a", "b"].map(|side| self.side_profile(&run, side));
        for side in sides.iter().flatten() {
            self.check_measured_source(side)?;
        }
        if let [Some(base), Some(new)] = &sides
            && let Some(words) = hidden_work(base, new)
        {
            return Ok(Err((Outcome::NotBelieved, words)));
        }
        if let Some(words) = sides.iter().flatten().find_map(|side| self.unprotected_time(side)) {
            return Ok(Err((Outcome::NotBelieved, words)));
        }
        let time = comparison.time.as_ref();
        let sides = [side_time(&comparison.cases, false), side_time(&comparison.cases, true)];
        let (Some(time), [Some(base), Some(new)]) = (time, sides) else {
            return Err(PhaseError::Infra(format!(
                "no times were measured: {}",
                comparison.summary
            )));
        };
        Ok(Ok(LoopComparison {
            run,
            verdict: comparison.verdict,
            summary: comparison.summary,
            speedup: time.speedup,
            ci95: time.ci95,
            base,
            new,
        }))
    }

    /// Profiles a kernel in a mode.
    pub(super) fn profile(
        &mut self,
        kernel: &Path,
        mode: &str,
    ) -> Result<MeasureResult<LoopProfile>, PhaseError> {
        let args = self.arguments(&["profile", "--mode", mode], &[kernel], true);
        let (code, bytes) = self.run_rgpu(&args, "profile.json")?;
        let profile: Profile = match self.read_document(code, &bytes)? {
            Ok(profile) => profile,
            Err(fault) => return Ok(Err(fault)),
        };
        self.check_measured_source(&profile)?;
        let run = self.run_folder(&profile.run.id);
        Ok(Ok(LoopProfile {
            cubins: self.cubins(&run),
            file: format!("{run}/profile.json"),
            time: profile_time(&profile),
            unprotected: self.unprotected_time(&profile),
        }))
    }

    /// Why a time is not believed: the kernel could have changed it, and the settings do not allow
    /// that. `None` if it is.
    pub(super) fn unprotected_time(&self, profile: &Profile) -> Option<String> {
        unprotected_case(profile).filter(|_| !self.config.allow_unprotected).map(|(case, why)| {
            format!(
                "the time of `{case}` is unprotected: {why}; `rgpu loop start --allow-unprotected` \
                 believes it"
            )
        })
    }

    /// The brief of a profile, of at most `bytes` bytes; empty if there is none.
    pub(super) fn brief(
        &mut self,
        profile: Option<&str>,
        bytes: usize,
    ) -> Result<String, PhaseError> {
        let Some(profile) = profile else { return Ok(String::new()) };
        let path = self.iteration_folder().join("brief.txt");
        let file = self.new_output(&path)?;
        let mut command = Command::new(&self.program);
        let run = Path::new(profile).parent().unwrap_or(Path::new(profile));
        command.arg0("rgpu").args(["report", "--format", "brief", "--bytes", &bytes.to_string()]);
        command.arg("--").arg(run).current_dir(&self.loops.project);
        command.stdout(file).stderr(self.open_log()?);
        match self.run_child(command, self.config.measure_timeout.duration())? {
            ChildEnd::Exited(0) => {
                let brief = self.loops.files.read_to_string(&path, MAX_DOCUMENT_BYTES);
                Ok(brief.unwrap_or_default())
            }
            end => {
                self.log(&format!("no brief of `{profile}`: {}", end.text()));
                Ok(String::new())
            }
        }
    }

    /// A run's folder, from the project if it is inside.
    fn run_folder(&self, id: &str) -> String {
        let folder = self.runs_dir.join(id);
        folder.strip_prefix(&self.loops.project).unwrap_or(&folder).to_string_lossy().into_owned()
    }

    /// Checks that a profile is one of the source that was recorded.
    fn check_measured_source(&self, profile: &Profile) -> Result<(), LoopError> {
        match &profile.kernel.sha256 {
            Some(sha256) => self.check_measured(&profile.kernel.source, sha256),
            None => Ok(()),
        }
    }

    fn side_profile(&self, run: &str, side: &str) -> Option<Profile> {
        let folder = Folder::open(&self.loops.project.join(run)).ok()?;
        let path = Path::new(side).join("profile.json");
        rgpu_run::saved_json::from_slice(&folder.read(path, MAX_DOCUMENT_BYTES).ok()?).ok()
    }

    /// A new file for a child's output. What had its name, such as the output of a try that was
    /// killed, is removed.
    fn new_output(&self, path: &Path) -> Result<File, LoopError> {
        let files = &self.loops.files;
        match files.remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(io_error("replace", path)(e)),
            _ => files.create_new(path, 0o666).map_err(io_error("create", path)),
        }
    }

    /// The compiled code in a run's folder, from the project.
    pub(super) fn cubins(&self, run: &str) -> Vec<String> {
        let folder = Path::new(run).join("cubin");
        let run = Folder::open(&self.loops.project.join(run));
        let entries = run.and_then(|run| run.folder("cubin")?.entries()).unwrap_or_default();
        let names = entries.iter().map(|entry| folder.join(&entry.path));
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }

    fn open_log(&self) -> Result<File, LoopError> {
        let path = self.folder.join("run.log");
        self.loops.files.append(&path, 0o666).map_err(io_error("open", &path))
    }

    /// Adds a line to `run.log`.
    pub(super) fn log(&self, text: &str) {
        use std::io::Write;
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        // The log is for people; only the database counts.
        if let Ok(mut log) = self.open_log() {
            let _ = log.write_all(format!("{now} {text}\n").as_bytes());
        }
    }
}

/// The output of a child, or a sentence on the kernel's fault. Other failures are mistakes of the
/// user or failures of the infrastructure.
///
/// `is_start`: what is measured is the start. Its failures with [`Exit::Config`], and a missing
/// file, are mistakes of the user, and those of a change are the change's, because the start could
/// be measured.
fn read_document<T: DeserializeOwned>(
    is_start: bool,
    code: i32,
    bytes: &[u8],
) -> Result<MeasureResult<T>, PhaseError> {
    if code == 0 {
        let document = rgpu_run::saved_json::from_slice(bytes);
        return document
            .map(Ok)
            .map_err(|e| PhaseError::Infra(format!("rgpu printed no document: {e}")));
    }
    let failure =
        rgpu_run::saved_json::from_slice::<ErrorDocument>(bytes).map(|document| document.error);
    let is = |exit: Exit| code == exit as u8 as i32;
    match failure {
        Ok(failure)
            if (is(Exit::Usage) && (is_start || failure.code != NO_SUCH_FILE))
                || failure.code == NO_GPU
                || (is(Exit::Config) && (is_start || failure.code.contains("remote"))) =>
        {
            Err(PhaseError::Permanent(Box::new(failure)))
        }
        Ok(failure) if is(Exit::Kernel) || is(Exit::Config) || is(Exit::Usage) => {
            let cause = failure.cause.as_deref().and_then(|cause| cause.lines().next());
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            let is_disbelieved = matches!(&*failure.code, "clocks_disagree" | "not_credible");
            let outcome = if is_disbelieved { Outcome::NotBelieved } else { Outcome::Wrong };
            Ok(Err((outcome, format!("{}{cause}", failure.what))))
        }
        Ok(failure) => Err(PhaseError::Infra(failure.what)),
        // A profile with wrong results, for example.
        Err(_) if is(Exit::Kernel) => Ok(Err((Outcome::Wrong, "its results are wrong".to_owned()))),
        Err(_) => Err(PhaseError::Infra(format!("rgpu ended with exit status {code}"))),
    }
}

/// The first case of a profile whose time the kernel could have changed, and why.
fn unprotected_case(profile: &Profile) -> Option<(String, String)> {
    profile.cases.iter().find_map(|case| {
        let timing = case.timing.as_ref().filter(|t| t.trust == Some(Trust::Unprotected))?;
        let why = timing.trust_reason.clone();
        Some((case.name.clone(), why.unwrap_or_else(|| "it shares the clock's process".to_owned())))
    })
}

/// The time of one side over all sizes.
fn side_time(cases: &[CaseChange], is_new: bool) -> Option<MeasuredTime> {
    let sides: Vec<_> = cases
        .iter()
        .map(|case| {
            let side = if is_new { &case.time.b } else { &case.time.a };
            (case.name.clone(), side.median_ns, side.ci95_ns)
        })
        .collect();
    MeasuredTime::from_cases(&sides)
}

/// The time of a profile over all its sizes.
fn profile_time(profile: &Profile) -> Option<MeasuredTime> {
    let mut sides: Vec<_> = profile
        .cases
        .iter()
        .filter_map(|case| Some((case.name.clone(), case.timing.as_ref()?)))
        .map(|(name, timing)| (name, timing.median_ns, Some(timing.ci95_ns)))
        .collect();
    if let (true, Some(timing)) = (sides.is_empty(), &profile.timing) {
        sides.push((profile.kernel.name.clone(), timing.median_ns, Some(timing.ci95_ns)));
    }
    MeasuredTime::from_cases(&sides)
}

/// Says that the new side has work that its timed events do not cover, such as work on another
/// stream: the GPU is busy outside of them for longer than on the base. `None` if it is not.
fn hidden_work(base: &Profile, new: &Profile) -> Option<String> {
    let hidden = |profile: &Profile| {
        let timing = profile.timing.as_ref()?;
        Some((timing.median_ns, timing.wall_ns? - timing.median_ns))
    };
    let ((base_ns, before), (new_ns, now)) = (hidden(base)?, hidden(new)?);
    let limit = MAX_HIDDEN_NS.max((base_ns - new_ns) / 2.0);
    (now - before > limit).then(|| {
        format!(
            "the GPU is busy {:.1} µs outside of the timed {:.1} µs ({:.1} µs on the base): work that \
             the events do not cover",
            now / 1000.0,
            new_ns / 1000.0,
            before / 1000.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::profile::{CaseResult, Timing};

    fn profile(median_ns: f64, wall_ns: f64) -> Profile {
        let timing = Timing { median_ns, wall_ns: Some(wall_ns), ..Timing::default() };
        Profile { timing: Some(timing), ..Profile::default() }
    }

    #[test]
    fn work_beside_the_events_is_found_and_a_faster_kernel_is_not_accused() {
        let base = profile(300_000.0, 320_000.0);
        assert!(hidden_work(&base, &profile(10_000.0, 320_000.0)).is_some());
        assert!(hidden_work(&base, &profile(150_000.0, 171_000.0)).is_none());
        assert!(hidden_work(&base, &profile(299_000.0, 327_000.0)).is_none());
        assert!(hidden_work(&base, &Profile::default()).is_none());
    }

    #[test]
    fn a_time_that_the_kernel_could_have_changed_is_found_with_its_reason() {
        let of_trust = |trust| {
            let timing = Timing {
                trust,
                trust_reason: Some("every call has the same data".into()),
                ..Timing::default()
            };
            let case =
                CaseResult { name: "a".into(), timing: Some(timing), ..CaseResult::default() };
            Profile { cases: vec![case], ..Profile::default() }
        };
        let found = unprotected_case(&of_trust(Some(Trust::Unprotected))).unwrap();
        assert_eq!(found, ("a".into(), "every call has the same data".into()));
        for trust in [None, Some(Trust::Bounded), Some(Trust::Proven)] {
            assert_eq!(unprotected_case(&of_trust(trust)), None);
        }
    }

    #[test]
    fn a_failure_is_the_kernels_the_users_or_the_infrastructures() {
        let document = |exit, code: &str| {
            let failure = rgpu_model::error::Failure::new(exit, code, "what").cause("why\nmore");
            serde_json::to_vec(&ErrorDocument::new(failure, exit as u8)).unwrap()
        };
        let read =
            |exit: Exit, bytes: &[u8]| read_document::<Profile>(false, exit as u8 as i32, bytes);
        for (exit, code) in [
            (Exit::Kernel, "does_not_compile"),
            (Exit::Config, "missing_source"),
            (Exit::Usage, NO_SUCH_FILE),
        ] {
            let (outcome, words) = read(exit, &document(exit, code)).unwrap().unwrap_err();
            assert_eq!((outcome, words.as_str()), (Outcome::Wrong, "what: why"));
        }
        let start = document(Exit::Config, "missing_source");
        let halts = [
            read(Exit::Config, &document(Exit::Config, "unknown_remote")),
            read(Exit::Usage, &document(Exit::Usage, "bad_problem_sizes")),
            read(Exit::Host, &document(Exit::Host, "no_gpu")),
            read_document::<Profile>(true, Exit::Config as i32, &start),
            read_document::<Profile>(
                true,
                Exit::Usage as i32,
                &document(Exit::Usage, NO_SUCH_FILE),
            ),
        ];
        for halt in halts {
            assert!(matches!(halt, Err(PhaseError::Permanent(_))), "{halt:?}");
        }
        for (exit, code) in
            [(Exit::Host, "unreachable"), (Exit::Tool, "x"), (Exit::Cancelled, "cancelled")]
        {
            let halt = read(exit, &document(exit, code)).unwrap_err();
            assert!(matches!(halt, PhaseError::Infra(_)), "{halt:?}");
        }
        assert!(read(Exit::Kernel, b"{}").unwrap().is_err());
        assert!(matches!(read(Exit::Done, b"half a doc"), Err(PhaseError::Infra(_))));
    }
}
