//! What lists show of a run, read from its folder.
//!
//! A profile may be large, so only the parts that are shown are kept while it is read.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;

use rgpu_protocol::Outcome;
use rgpu_protocol::plan::valid_job_id;
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use rgpu_model::beneath::Folder;
use rgpu_model::bound::BoundShare;
use rgpu_model::comparison::TimeVerdict;
use rgpu_model::fan_out::{FanOut, FanOutRow};
use rgpu_model::finding::KernelVerdict;
use rgpu_model::profile::{CaseResult, Correctness, SCHEMA, Timing, TimingClock};
use rgpu_model::ranks::Ranks;
use rgpu_model::regular_file;
use rgpu_model::sanitizer::{SanitizerResult, SanitizerVerdict};
use rgpu_model::suite::{self, RowState, SuiteRun, SuiteState, SuiteVerdict};
use rgpu_run::store::{RunFolder, RunParent, RunRecord, RunState, StoreError};

/// A larger document is read piece by piece.
const MAX_IN_MEMORY_BYTES: u64 = 4 << 20;

/// A run in a list.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RunSummary {
    /// The run's id.
    pub(crate) id: String,
    /// The title: "profile vecadd (ncu)".
    pub(crate) title: String,
    /// The command, such as `profile` or `exec`.
    pub(crate) command: String,
    /// The mode; empty for commands without modes.
    pub(crate) mode: String,
    /// The kernel or program.
    pub(crate) kernel: String,
    /// The name of the remote.
    pub(crate) remote: String,
    /// The state.
    pub(crate) state: RunState,
    /// The state as lists show it: also `exit status 3` or `time limit` of a program that ended so,
    /// `errors found` of a run whose sanitizer found some, and `unfinished` of a suite whose
    /// command ended before its cases.
    pub(crate) state_text: String,
    /// When it started (RFC 3339, UTC).
    pub(crate) started: String,
    /// Wall-clock seconds.
    pub(crate) seconds: f64,
    /// Exit status of the command. Absent until it ended.
    pub(crate) exit: Option<u8>,
    /// Labels of `--label KEY=VALUE`, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    /// The text of `--note`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
    /// The suite, queue entry or loop that started it.
    pub(crate) parent: Option<RunParent>,
    /// Cost in US dollars, if known.
    pub(crate) cost_usd: Option<f64>,
    /// Code of the failure, as in `rgpu.error/1`.
    pub(crate) reason: Option<String>,
    /// The result document that it has.
    pub(crate) result: Option<ResultKind>,
    /// The GPU's name, e.g. `NVIDIA H200`.
    pub(crate) gpu: Option<String>,
    /// The rung that was reached.
    pub(crate) rung: Option<String>,
    /// What limits the kernel with the most time, or the verdict of a comparison.
    pub(crate) verdict: Option<String>,
    /// The verdict or the most important finding in one sentence.
    pub(crate) text: Option<String>,
    /// Median time of the default case in nanoseconds.
    pub(crate) median_ns: Option<f64>,
    /// 95 % interval of the median.
    pub(crate) ci95_ns: Option<[f64; 2]>,
    /// Whether the median is that of the reference on the CPU, which says nothing about the kernel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_cpu_reference: bool,
    /// The timed case with its sizes, such as `default n=1024`. Absent if no case was timed.
    pub(crate) timed_case: Option<String>,
    /// Result of the check: `right`, `wrong` or `unchecked`.
    pub(crate) checked: Option<String>,
    /// Times beside their speed-of-light bound, one for each case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) bound: Vec<BoundShare>,
    /// Number of ranks of its program. Absent for one process.
    pub(crate) ranks: Option<usize>,
    /// Number of errors that the sanitizer found. Absent if it found none.
    pub(crate) errors_found: Option<u64>,
    /// Counts of a suite's cases.
    pub(crate) suite: Option<SuiteCounts>,
    /// Why the result cannot be shown.
    pub(crate) problem: Option<String>,
}

/// The kind of a run's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResultKind {
    /// `profile.json`.
    Profile,
    /// `compare.json`.
    Comparison,
    /// `suite.json`.
    Suite,
    /// `fan-out.json`: the same on several remotes.
    FanOut,
}

impl ResultKind {
    /// The result document of a run folder; `None` if it has none.
    pub(super) fn in_folder(folder: &Path) -> Option<Self> {
        let kinds = [
            ("profile.json", Self::Profile),
            ("compare.json", Self::Comparison),
            ("suite.json", Self::Suite),
            ("fan-out.json", Self::FanOut),
        ];
        let folder = Folder::open(folder).ok()?;
        kinds.into_iter().find(|(name, _)| folder.is_file(name)).map(|(_, kind)| kind)
    }
}

/// The cases of a suite by state and verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SuiteCounts {
    /// All cases.
    pub(crate) cases: usize,
    /// Cases that ended well on a GPU.
    pub(crate) ok: usize,
    /// Cases that ended well on a host without a GPU, so that nothing was timed.
    #[serde(default)]
    pub(crate) no_gpu: usize,
    /// Cases that failed.
    pub(crate) failed: usize,
    /// Times that are faster than expected.
    pub(crate) faster: usize,
    /// Times that are slower than expected.
    pub(crate) slower: usize,
}

/// The parts of `profile.json` that a summary has.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ProfileParts {
    schema: String,
    device: Option<String>,
    rung: String,
    timing: Option<Timing>,
    cases: Vec<CaseResult>,
    bound: Vec<BoundShare>,
    correctness: Option<Correctness>,
    kernel_verdicts: Vec<KernelVerdict>,
    sanitizer: Vec<SanitizerResult>,
    findings: Vec<FindingText>,
    ranks: Option<RankParts>,
}

/// The ranks of a profile, only counted.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RankParts {
    ranks: Vec<IgnoredAny>,
}

/// The ranks of a profile. The rest of it is passed over.
#[derive(Deserialize)]
struct ProfileRanks {
    ranks: Option<Ranks>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FindingText {
    text: String,
}

/// The parts of `compare.json` that a summary has.
#[derive(Deserialize)]
struct ComparisonParts {
    verdict: TimeVerdict,
    summary: String,
}

impl RunSummary {
    /// The summary of a run folder.
    pub(crate) fn from_folder(folder: &RunFolder) -> Result<Self, StoreError> {
        let record = folder.current_record()?;
        let limit_text = time_limit_text(&record, folder.path());
        let mut summary = Self::from_record(record);
        if summary.state != RunState::Done {
            summary.reason = folder.failure().map(|document| document.error.code);
        }
        if let Err(problem) = summary.add_result(folder.path()) {
            summary.problem = Some(problem);
        }
        // A finding of the part that was measured matters less than why there is no more.
        summary.text = limit_text.or(summary.text);
        Ok(summary)
    }

    fn from_record(record: RunRecord) -> Self {
        Self {
            state_text: state_text(&record),
            id: record.id,
            title: record.title,
            command: record.command,
            mode: record.mode,
            kernel: without_repetition(&record.kernel),
            remote: record.remote,
            state: record.state,
            started: record.started,
            seconds: record.seconds,
            exit: record.exit,
            labels: record.labels,
            note: record.note,
            parent: record.parent,
            cost_usd: record.cost.cost_usd,
            reason: None,
            result: None,
            gpu: None,
            rung: None,
            verdict: None,
            text: None,
            median_ns: None,
            ci95_ns: None,
            is_cpu_reference: false,
            timed_case: None,
            checked: None,
            bound: Vec::new(),
            ranks: None,
            errors_found: None,
            suite: None,
            problem: None,
        }
    }

    /// Whether the run may still change without a change of its folder.
    pub(super) fn is_active(&self) -> bool {
        self.state.is_active()
    }

    fn add_result(&mut self, folder: &Path) -> Result<(), String> {
        self.result = ResultKind::in_folder(folder);
        match self.result {
            Some(ResultKind::Profile) => {
                let parts: ProfileParts = document(folder, "profile.json")?;
                if parts.schema != SCHEMA {
                    return Err(other_schema("profile.json", &parts.schema));
                }
                self.add_profile(parts);
            }
            Some(ResultKind::Comparison) => {
                let parts: ComparisonParts = document(folder, "compare.json")?;
                self.verdict = Some(parts.verdict.as_str().to_owned());
                self.text = Some(parts.summary);
            }
            Some(ResultKind::Suite) => {
                let run: SuiteRun = document(folder, "suite.json")?;
                if run.schema != suite::SCHEMA {
                    return Err(other_schema("suite.json", &run.schema));
                }
                self.suite = Some(SuiteCounts::from_run(&run));
                if !self.is_active() && run.state != SuiteState::Done {
                    UNFINISHED.clone_into(&mut self.state_text);
                }
            }
            Some(ResultKind::FanOut) | None => {}
        }
        Ok(())
    }

    fn add_profile(&mut self, parts: ProfileParts) {
        self.gpu = parts.device;
        self.rung = Some(parts.rung);
        let clock = parts.timing.as_ref().map(|timing| &timing.clock);
        self.is_cpu_reference = clock == Some(&TimingClock::CpuReference);
        self.timed_case = parts.cases.iter().find(|case| case.timing.is_some()).map(case_text);
        self.median_ns = parts.timing.as_ref().map(|timing| timing.median_ns);
        self.ci95_ns = parts.timing.map(|timing| timing.ci95_ns);
        self.bound = parts.bound;
        self.ranks = parts.ranks.map(|ranks| ranks.ranks.len());
        let checked = parts.correctness.and_then(|c| serde_json::to_value(c.verdict).ok());
        self.checked = checked.and_then(|word| word.as_str().map(ToOwned::to_owned));
        let finding = parts.findings.into_iter().next().map(|finding| finding.text);
        let first = parts.kernel_verdicts.into_iter().next();
        self.text = faults_text(&parts.sanitizer)
            .or(finding)
            .or_else(|| first.as_ref().map(|verdict| verdict.text.clone()));
        self.verdict = first.and_then(|verdict| verdict.verdict);
        self.errors_found = errors_found(&parts.sanitizer);
        // The findings also explain the status of a program that failed by them.
        let has_ended = self.state == RunState::Done && self.state_text != TIME_LIMIT;
        if has_ended && self.errors_found.is_some() {
            ERRORS_FOUND.clone_into(&mut self.state_text);
        }
    }
}

impl SuiteCounts {
    /// Counts the cases of a suite.
    pub(super) fn from_run(run: &SuiteRun) -> Self {
        let verdicts = |wanted: SuiteVerdict| {
            let judged = run.times().filter_map(|(_, time)| time.against.as_ref());
            judged.filter(|judgement| judgement.verdict == wanted).count()
        };
        Self {
            cases: run.rows.len(),
            ok: run.count(RowState::Ok),
            no_gpu: run.count(RowState::NoGpu),
            failed: run.count(RowState::Failed),
            faster: verdicts(SuiteVerdict::Faster),
            slower: verdicts(SuiteVerdict::Slower),
        }
    }
}

/// The state of a suite whose command ended before its cases.
const UNFINISHED: &str = "unfinished";

/// The state of a run whose program was stopped at its time limit.
const TIME_LIMIT: &str = "time limit";

/// The state of a run whose sanitizer found errors, which is its result.
const ERRORS_FOUND: &str = "errors found";

/// The state of a run, or how its program ended: the run itself is done then.
fn state_text(record: &RunRecord) -> String {
    match record.program_exit {
        _ if step_at_limit(record).is_some() => TIME_LIMIT.to_owned(),
        Some(status) if record.state == RunState::Done && status != 0 => {
            format!("exit status {status}")
        }
        _ => record.state.as_str().to_owned(),
    }
}

/// The number of the job and the step in which the program was stopped at its time limit. `None` if
/// the run did not end so; a run that failed at it says so in its failure.
fn step_at_limit(record: &RunRecord) -> Option<(usize, &str)> {
    let has_failed = record.program_exit.is_some_and(|status| status != 0);
    if record.state != RunState::Done || !has_failed {
        return None;
    }
    record.jobs.iter().zip(1..).find_map(|(job, number)| match &job.outcome {
        Some(Outcome::Failed { step, code }) if code == "timeout" => Some((number, step.as_str())),
        _ => None,
    })
}

/// The parts of `plan-N.json` that a summary has.
#[derive(Deserialize)]
struct PlanParts {
    steps: Vec<StepLimit>,
}

/// A step of a plan and its time limit.
#[derive(Deserialize)]
struct StepLimit {
    id: String,
    timeout_s: u64,
}

/// The limit at which the program was stopped, and the flag that sets it.
fn time_limit_text(record: &RunRecord, folder: &Path) -> Option<String> {
    let (number, step) = step_at_limit(record)?;
    let plan = document::<PlanParts>(folder, &format!("plan-{number}.json")).ok();
    let limit = plan.and_then(|plan| plan.steps.into_iter().find(|one| one.id == step));
    let limit = limit.map(|one| format!(" of {}", limit_span(one.timeout_s))).unwrap_or_default();
    Some(format!("the program was stopped at its time limit{limit}: `--timeout` sets a longer one"))
}

/// A time limit as the flag takes it: `90 s`, `10 min`, `6 h`.
fn limit_span(seconds: u64) -> String {
    match seconds {
        s if s >= 3600 && s % 3600 == 0 => format!("{} h", s / 3600),
        s if s >= 120 && s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

/// How many errors the sanitizer's tools counted. A result without a count has its causes.
fn errors_found(results: &[SanitizerResult]) -> Option<u64> {
    let found = results.iter().filter(|result| result.verdict == SanitizerVerdict::Found);
    let errors = |result: &SanitizerResult| result.errors.unwrap_or(result.causes.len() as u64);
    found.map(errors).reduce(|a, b| a + b)
}

/// The first error that a sanitizer tool found. `None` if none found any.
fn faults_text(results: &[SanitizerResult]) -> Option<String> {
    let found = results.iter().find(|result| !result.causes.is_empty())?;
    let first = found.causes.first()?;
    let more = match results.iter().map(|result| result.causes.len()).sum() {
        1_usize => String::new(),
        causes => format!(" ({causes} causes in all)"),
    };
    Some(format!("{} found an error: {}{more}", found.title(), first.text))
}

/// A kernel that is compared with itself is named once.
fn without_repetition(kernels: &str) -> String {
    match kernels.split_once(", ") {
        Some((a, b)) if a == b => a.to_owned(),
        _ => kernels.to_owned(),
    }
}

/// A case's name and sizes, one list of sizes for each group. A name that is its sizes is enough.
fn case_text(case: &CaseResult) -> String {
    let sizes = |group: &BTreeMap<String, i64>| {
        group.iter().map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(",")
    };
    let groups: Vec<String> = case.sizes.iter().map(sizes).collect();
    match groups.join(";") {
        sizes if sizes == case.name => sizes,
        sizes => format!("{} {sizes}", case.name).trim_end().to_owned(),
    }
}

/// The results of each remote of a run on several, with the state that its run has now. Without a
/// common document, which a command that was stopped may not have written, only the runs. Empty for
/// other runs.
pub(super) fn remotes(runs: &Path, folder: &Path, record: &RunRecord) -> Vec<FanOutRow> {
    if !record.is_fan_out() {
        return Vec::new();
    }
    let results = document::<FanOut>(folder, "fan-out.json");
    let known = results.map(|results| results.remotes).unwrap_or_default();
    let row = |name: &str| {
        let of_name = known.iter().find(|row| row.remote == name).cloned();
        let only_name = || FanOutRow { remote: name.to_owned(), ..FanOutRow::default() };
        let mut row = of_name.unwrap_or_else(only_name);
        let id = row.run.clone().unwrap_or_else(|| record.id_on(name));
        let own = valid_job_id(&id).then(|| RunFolder::open(&runs.join(&id)));
        if let Some(Ok(own)) = own.map(|own| own?.current_record()) {
            row.run = Some(id);
            row.state = own.state.as_str().into();
        }
        row
    };
    record.remote.split(',').map(str::trim).map(row).collect()
}

/// The ranks of a run, as its profile has them. `None` if it has none, or cannot be read.
pub(super) fn ranks(folder: &Path) -> Option<Ranks> {
    document::<ProfileRanks>(folder, "profile.json").ok()?.ranks
}

/// Why a document of another schema is not shown, and what to do.
fn other_schema(name: &str, schema: &str) -> String {
    format!(
        "{name} is of `{schema}`, which this rgpu cannot read: a later one made the run, so update this one"
    )
}

/// A document of a run folder.
fn document<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, String> {
    let failed = |e: std::io::Error| format!("{name} cannot be read: {e}");
    let file = Folder::open(folder).and_then(|folder| folder.open_file(name)).map_err(failed)?;
    // What is in memory is read faster; what is large stays on disk.
    let read = if file.metadata().map_err(failed)?.len() <= MAX_IN_MEMORY_BYTES {
        let bytes = regular_file::read_from(file, MAX_IN_MEMORY_BYTES).map_err(failed)?;
        rgpu_run::saved_json::from_slice(&bytes)
    } else {
        serde_json::from_reader(BufReader::with_capacity(1 << 16, file))
    };
    read.map_err(|e| format!("{name} cannot be read: {e}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use rgpu_model::profile::CheckVerdict;
    use rgpu_model::suite::SuiteRow;
    use rgpu_model::{Finding, Profile};
    use rgpu_run::store::{JobRecord, Runs};

    fn folder(root: &Path, id: &str) -> RunFolder {
        let folder = RunFolder::create(root, id, None).unwrap();
        let mut record = RunRecord::new(id.into(), "profile", jiff::Timestamp::UNIX_EPOCH);
        record.state = RunState::Done;
        folder.save(&record).unwrap();
        folder
    }

    #[test]
    fn a_summary_has_what_the_profile_says() {
        let dir = tempfile::tempdir().unwrap();
        let run = folder(dir.path(), "one");
        let profile = Profile {
            schema: SCHEMA.to_owned(),
            device: Some("NVIDIA H200".into()),
            rung: "ncu.asked".into(),
            timing: Some(Timing {
                median_ns: 20_000.0,
                ci95_ns: [19_000.0, 21_000.0],
                ..Timing::default()
            }),
            correctness: Some(Correctness {
                verdict: CheckVerdict::Right,
                ..Correctness::default()
            }),
            cases: vec![CaseResult {
                name: "large".into(),
                sizes: vec![[("n".to_owned(), 4096)].into()],
                timing: Some(Timing::default()),
                ..CaseResult::default()
            }],
            bound: vec![BoundShare { percent: 80.0, ..BoundShare::default() }],
            kernel_verdicts: vec![KernelVerdict {
                verdict: Some("memory_bound".into()),
                text: "it is memory bound".into(),
                ..KernelVerdict::default()
            }],
            findings: vec![Finding { text: "use wider loads".into(), ..Finding::default() }],
            ..Profile::default()
        };
        run.write_json("profile.json", &profile).unwrap();
        let summary = RunSummary::from_folder(&run).unwrap();
        assert_eq!(summary.gpu.as_deref(), Some("NVIDIA H200"));
        assert_eq!(summary.rung.as_deref(), Some("ncu.asked"));
        assert_eq!(summary.median_ns, Some(20_000.0));
        assert_eq!(summary.ci95_ns, Some([19_000.0, 21_000.0]));
        assert!(!summary.is_cpu_reference);
        assert_eq!(summary.timed_case.as_deref(), Some("large n=4096"));
        assert_eq!(summary.checked.as_deref(), Some("right"));
        assert_eq!(summary.verdict.as_deref(), Some("memory_bound"));
        assert_eq!(summary.text.as_deref(), Some("use wider loads"));
        assert_eq!(summary.bound[0].percent, 80.0);
        assert_eq!(summary.result, Some(ResultKind::Profile));
        assert_eq!(summary.problem, None);
    }

    #[test]
    fn errors_that_a_sanitizer_found_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let text = |id: &str, causes: serde_json::Value| {
            let run = folder(dir.path(), id);
            let tools = json!([
                {"tool": "racecheck", "verdict": "clean", "errors": 0},
                {"tool": "memcheck", "verdict": "found", "errors": 2, "causes": causes},
            ]);
            let profile = Profile { schema: SCHEMA.to_owned(), ..Profile::default() };
            let mut profile = serde_json::to_value(&profile).unwrap();
            profile["sanitizer"] = tools;
            run.write_json("profile.json", &profile).unwrap();
            // Under the sanitizer the program failed by its errors.
            let record = RunRecord { program_exit: Some(1), ..run.record().unwrap() };
            run.save(&record).unwrap();
            let summary = RunSummary::from_folder(&run).unwrap();
            assert_eq!((&*summary.state_text, summary.errors_found), ("errors found", Some(2)));
            summary.text
        };
        let cause = json!({"kind": "out_of_bounds", "text": "Invalid read", "count": 2});
        let one = text("one", json!([cause]));
        assert_eq!(one.as_deref(), Some("memcheck found an error: Invalid read"));
        let two = text("two", json!([cause, cause]));
        assert_eq!(two.as_deref(), Some("memcheck found an error: Invalid read (2 causes in all)"));
        assert_eq!(text("none", json!([])), None);
    }

    #[test]
    fn a_failed_program_and_an_unfinished_suite_are_not_done() {
        let dir = tempfile::tempdir().unwrap();
        let ended = |id: &str, exit: i32, code: &str| {
            let run = folder(dir.path(), id);
            let mut record = run.record().unwrap();
            record.program_exit = Some(exit);
            record.jobs = vec![JobRecord {
                job: format!("{id}.1"),
                remote: "h200".into(),
                last_seq: 0,
                outcome: Some(Outcome::Failed { step: "exec".into(), code: code.into() }),
                unsynced: Vec::new(),
            }];
            run.save(&record).unwrap();
            if id == "late" {
                let steps = json!([{"id": "exec", "timeout_s": 600}]);
                run.write_json("plan-1.json", &json!({ "steps": steps })).unwrap();
            }
            let summary = RunSummary::from_folder(&run).unwrap();
            (summary.state_text, summary.text.unwrap_or_default())
        };
        assert_eq!(ended("good", 0, "exit"), ("done".into(), String::new()));
        assert_eq!(ended("bad", 3, "exit"), ("exit status 3".into(), String::new()));
        let text =
            "the program was stopped at its time limit of 10 min: `--timeout` sets a longer one";
        assert_eq!(ended("late", 124, "timeout"), ("time limit".into(), text.into()));
        let text = "the program was stopped at its time limit: `--timeout` sets a longer one";
        assert_eq!(ended("no-plan", 124, "timeout"), ("time limit".into(), text.into()));
        // A suite whose command was killed has no jobs of its own.
        let killed = folder(dir.path(), "killed");
        let mut record = killed.record().unwrap();
        record.state = RunState::Running;
        killed.save(&record).unwrap();
        let suite = SuiteRun { schema: suite::SCHEMA.into(), ..SuiteRun::default() };
        killed.write_json("suite.json", &suite).unwrap();
        let path = killed.path().to_owned();
        drop(killed);
        let summary = RunSummary::from_folder(&RunFolder::open(&path).unwrap()).unwrap();
        assert_eq!((summary.state, &*summary.state_text), (RunState::Cancelled, UNFINISHED));
    }

    #[test]
    fn a_stopped_fan_out_has_its_runs_with_the_states_that_they_have_now() {
        let dir = tempfile::tempdir().unwrap();
        let common = folder(dir.path(), "both");
        let mut record = common.record().unwrap();
        record.remote = "h200,b.200,gone".into();
        let cancelled = folder(dir.path(), "both-h200");
        let own = RunRecord { state: RunState::Cancelled, ..cancelled.record().unwrap() };
        cancelled.save(&own).unwrap();
        folder(dir.path(), "both-b-200");
        let shown = || -> Vec<(String, String, String)> {
            let rows = remotes(dir.path(), common.path(), &record);
            let row = |row: FanOutRow| {
                (row.remote, row.run.unwrap_or_default(), row.state.as_str().to_owned())
            };
            rows.into_iter().map(row).collect()
        };
        let expected =
            [("h200", "both-h200", "cancelled"), ("b.200", "both-b-200", "done"), ("gone", "", "")];
        let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
        assert_eq!(shown(), expected);
        // The common document is of the moment when the command that wrote it ended.
        let detached = FanOutRow {
            remote: "h200".into(),
            run: Some("both-h200".into()),
            state: "detached".into(),
            ..FanOutRow::default()
        };
        let results = FanOut {
            schema: String::new(),
            id: "both".into(),
            kernel: String::new(),
            mode: String::new(),
            started: String::new(),
            seconds: 0.0,
            summary: String::new(),
            base: None,
            remotes: vec![detached],
        };
        common.write_json("fan-out.json", &results).unwrap();
        assert_eq!(shown(), expected);
    }

    #[test]
    fn what_a_list_would_say_twice_is_said_once() {
        let case = |name: &str| CaseResult {
            name: name.into(),
            sizes: vec![[("n".to_owned(), 8)].into()],
            ..CaseResult::default()
        };
        assert_eq!(case_text(&case("n=8")), "n=8");
        assert_eq!(case_text(&case("small")), "small n=8");
        assert_eq!(without_repetition("vecadd, vecadd"), "vecadd");
        assert_eq!(without_repetition("vecadd, matmul"), "vecadd, matmul");
    }

    #[test]
    fn a_case_without_a_gpu_is_not_ok() {
        let row = |state| SuiteRow { state, ..SuiteRow::default() };
        let rows = [RowState::Ok, RowState::NoGpu, RowState::Ok].map(row).into();
        let counts = SuiteCounts::from_run(&SuiteRun { rows, ..SuiteRun::default() });
        assert_eq!((counts.cases, counts.ok, counts.no_gpu), (3, 2, 1));
    }

    #[test]
    fn half_written_and_newer_results_are_a_problem_of_their_run() {
        let dir = tempfile::tempdir().unwrap();
        let cut = folder(dir.path(), "cut");
        cut.write("profile.json", b"{\"schema\": \"rgpu.prof").unwrap();
        let problem = RunSummary::from_folder(&cut).unwrap().problem.unwrap();
        assert!(problem.starts_with("profile.json cannot be read"), "{problem}");
        let newer = folder(dir.path(), "newer");
        newer.write("profile.json", b"{\"schema\": \"rgpu.profile/9\"}").unwrap();
        let problem = RunSummary::from_folder(&newer).unwrap().problem.unwrap();
        assert!(problem.contains("`rgpu.profile/9`"), "{problem}");
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        std::fs::write(dir.path().join("empty/run.json"), "{").unwrap();
        let empty = Runs::new(dir.path()).find("empty").unwrap();
        assert!(RunSummary::from_folder(&empty).is_err());
        let later = r#"{"schema": "rgpu.run/9", "id": "empty"}"#;
        std::fs::write(dir.path().join("empty/run.json"), later).unwrap();
        let error = RunSummary::from_folder(&empty).unwrap_err();
        assert!(matches!(error, StoreError::OtherSchema { .. }), "{error}");
    }
}
