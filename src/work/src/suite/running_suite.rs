//! The state of a suite while it runs: which cases are left, and what each attempt gave.

use super::case::SuiteCase;
use super::target::{SizeGrowth, TargetKind};
use rgpu_model::error::{Exit, Failure, shell_word};
use rgpu_model::profile::Gap;
use rgpu_model::suite::{
    MissingTool, NO_GPU, PairResult, RowState, SCHEMA, SuiteOptions, SuiteRow, SuiteRun,
    SuiteState, SuiteTime,
};
use rgpu_run::store::{CaseSizes, Repository};

/// The time that a case is expected to take if it never ran, in seconds.
const UNKNOWN_CASE_SECONDS: f64 = 20.0;

/// The maximum length of a case's name in the id of its run.
const MAX_SLUG_CHARS: usize = 40;
/// The ids of a suite's runs begin with its own id, and a run's id has at most 120 characters.
pub const MAX_SUITE_ID_CHARS: usize = 64;

/// The cases that a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// Those without a result.
    Open,
    /// Those that failed, for this reason if there is one.
    Failed(Option<String>),
}

/// The end of one attempt.
#[derive(Clone, Debug, Default)]
pub struct CaseEnd {
    /// Its wall-clock seconds.
    pub seconds: f64,
    /// Its times.
    pub times: Vec<SuiteTime>,
    /// The comparison of a pair.
    pub pair: Option<PairResult>,
    /// Warnings about the host, e.g. other processes on its GPU.
    pub warnings: Vec<Gap>,
    /// Tools that it asks for and that gave no results, from [`super::missing_tools`].
    pub missing: Vec<MissingTool>,
    /// Metrics of its longest launch, from [`super::metrics`].
    pub metrics: std::collections::BTreeMap<String, f64>,
    /// The failure that ended it; `None` if it ended well.
    pub failure: Option<Failure>,
}

/// A suite that runs.
#[derive(Clone, Debug, Default)]
pub struct RunningSuite {
    /// The document so far.
    pub run: SuiteRun,
}

impl RunningSuite {
    /// A new suite. `cases` come with their remotes.
    pub fn begin(
        id: &str,
        started: String,
        file: Option<String>,
        repository: Option<Repository>,
        options: SuiteOptions,
        cases: &[(SuiteCase, String)],
    ) -> Self {
        let rows = cases.iter().map(|(case, remote)| row(case, remote, &options)).collect();
        let run = SuiteRun {
            schema: SCHEMA.to_owned(),
            id: id.to_owned(),
            started,
            rgpu: env!("CARGO_PKG_VERSION").to_owned(),
            file,
            dirty: repository.as_ref().is_some_and(|repository| repository.dirty),
            commit: repository.map(|repository| repository.commit),
            options,
            rows,
            ..SuiteRun::default()
        };
        Self { run }
    }

    /// The numbers of the rows to run.
    pub fn rows_to_run(&self, kind: &RunKind) -> Vec<usize> {
        let wanted = |row: &SuiteRow| match kind {
            RunKind::Open => !row.state.has_ended(),
            RunKind::Failed(reason) => {
                let fits =
                    |wanted: &String| row.reason.as_deref().is_some_and(|r| is_reason(wanted, r));
                row.state == RowState::Failed && reason.as_ref().is_none_or(fits)
            }
        };
        (0..self.run.rows.len()).filter(|at| wanted(&self.run.rows[*at])).collect()
    }

    /// The reasons of the rows that failed, each with its number of rows.
    pub fn reasons(&self) -> Vec<(&str, usize)> {
        let mut reasons: Vec<(&str, usize)> = Vec::new();
        for reason in self.run.rows.iter().filter_map(|row| row.reason.as_deref()) {
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((reason, 1)),
            }
        }
        reasons
    }

    /// Orders rows by the time that they are expected to take, shortest first.
    pub fn order_by_estimated_time(
        &self,
        rows: &mut [usize],
        known: impl Fn(&SuiteRow) -> Option<f64>,
    ) {
        let mut estimated: Vec<(f64, usize)> =
            rows.iter().map(|at| (self.estimated_seconds(*at, &known), *at)).collect();
        estimated.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (row, (_, at)) in rows.iter_mut().zip(estimated) {
            *row = at;
        }
    }

    /// The seconds that a row is expected to take: `known` from earlier suites, else as the rows of
    /// its target that have ended, else as all rows that have ended.
    pub fn estimated_seconds(&self, at: usize, known: impl Fn(&SuiteRow) -> Option<f64>) -> f64 {
        let row = &self.run.rows[at];
        let mean = |is_like: &dyn Fn(&SuiteRow) -> bool| {
            let like = self.run.rows.iter().filter(|r| r.seconds > 0.0 && is_like(r));
            let seconds: Vec<f64> = like.map(|row| row.seconds).collect();
            (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
        };
        known(row)
            .filter(|seconds| *seconds > 0.0)
            .or_else(|| mean(&|other| other.target == row.target))
            .or_else(|| mean(&|_| true))
            .unwrap_or(UNKNOWN_CASE_SECONDS)
    }

    /// Begins an attempt and returns the id of its run.
    pub fn start(&mut self, at: usize) -> String {
        let id = self.run.id.clone();
        let row = &mut self.run.rows[at];
        row.attempts += 1;
        row.state = RowState::Running;
        let run = run_id(&id, at, &row.case, row.attempts);
        row.run = Some(run.clone());
        run
    }

    /// Records the end of an attempt. `log` is the folder of its logs.
    pub fn end(&mut self, at: usize, end: CaseEnd, log: Option<String>) {
        let row = &mut self.run.rows[at];
        row.seconds = end.seconds;
        row.warnings = end.warnings;
        row.missing = end.missing;
        row.reason = end.failure.as_ref().map(|failure| failure.code.clone());
        row.exit = Some(end.failure.as_ref().map_or(0, |failure| failure.exit as u8));
        row.failure = end.failure.as_ref().map(in_one_line);
        row.log = end.failure.as_ref().and(log);
        row.state = match &end.failure {
            None if row.warnings.iter().any(|warning| warning.code == NO_GPU) => RowState::NoGpu,
            None => RowState::Ok,
            Some(failure) if failure.exit == Exit::Cancelled => RowState::Cancelled,
            Some(_) => RowState::Failed,
        };
        if row.state == RowState::Cancelled {
            row.reason = None;
            row.exit = None;
        }
        // A failed attempt leaves no times of an earlier one beside it.
        row.times = end.times;
        row.pair = end.pair;
        row.metrics = end.metrics;
    }

    /// Records that the command ends. Rows that it did not run stay open.
    pub fn finish(&mut self, seconds: f64) {
        self.run.seconds += seconds;
        for row in self.run.rows.iter_mut().filter(|row| row.state == RowState::Running) {
            row.state = RowState::Cancelled;
        }
        let all_ended = self.run.rows.iter().all(|row| row.state.has_ended());
        self.run.state = if all_ended { SuiteState::Done } else { SuiteState::Open };
        self.run.clean = self.run.rows.iter().all(|row| row.state == RowState::Ok);
    }

    /// The exit status: that of the first case that failed. Findings count only if nothing failed.
    pub fn status(&self) -> u8 {
        let findings = Exit::Findings as u8;
        let each = || self.run.rows.iter().filter_map(|row| row.exit);
        each().find(|exit| *exit > findings).or_else(|| each().max()).unwrap_or(0)
    }
}

/// Whether a reason that the user typed means the code of a failure: the code, a word of it, or a
/// pattern.
pub fn is_reason(wanted: &str, code: &str) -> bool {
    super::matches(wanted, code) || code.split('_').any(|word| word == wanted)
}

fn row(case: &SuiteCase, remote: &str, options: &SuiteOptions) -> SuiteRow {
    let (kernel, baseline) = match &case.subject {
        TargetKind::Kernel(kernel) => (kernel.clone(), None),
        TargetKind::Pair { baseline, optimised } => (optimised.clone(), Some(baseline.clone())),
        TargetKind::Program(program) => (program.first().cloned().unwrap_or_default(), None),
    };
    SuiteRow {
        case: case.id.clone(),
        target: case.target.clone(),
        axes: case.axes.iter().map(|(_, name, value)| (name.clone(), value.clone())).collect(),
        kernel,
        baseline,
        remote: remote.to_owned(),
        again: command(case, remote, options),
        ..SuiteRow::default()
    }
}

/// The command that runs one case alone, with everything that the suite's command said about it.
fn command(case: &SuiteCase, remote: &str, options: &SuiteOptions) -> String {
    // With several remotes the case's id names the remote, and the sides of a pair are cases only
    // for a mode that compares nothing.
    let id = case.id.strip_suffix(&format!("@{remote}")).unwrap_or(&case.id);
    let id =
        ["/baseline", "/optimised"].iter().find_map(|side| id.strip_suffix(side)).unwrap_or(id);
    let SuiteOptions { file, level, mode, gpu, share_gpu, strict, lock_clocks_mhz, .. } = options;
    let SuiteOptions { iters, timeout_s, verify_timeout_s, min_speedup, threshold, .. } = options;
    let mut words = vec!["rgpu bench run".to_owned(), format!("-t {}", shell_word(id))];
    words.extend(file.iter().map(|file| format!("--file {}", shell_word(file))));
    words.extend(level.map(|level| format!("--level {}", level.as_str())));
    words.extend(mode.iter().map(|mode| format!("--mode {mode}")));
    words.push(format!("--remote {}", shell_word(remote)));
    words.extend(gpu.iter().map(|gpu| format!("--gpu {}", shell_word(gpu))));
    words.extend(share_gpu.then(|| "--share-gpu".to_owned()));
    words.extend(strict.then(|| "--strict".to_owned()));
    words.extend(lock_clocks_mhz.map(|mhz| format!("--lock-clocks {mhz}")));
    words.extend(iters.map(|iters| format!("--iters {iters}")));
    words.extend(timeout_s.map(|seconds| format!("--timeout {seconds}s")));
    words.extend(verify_timeout_s.map(|seconds| format!("--verify-timeout {seconds}s")));
    words.extend(min_speedup.map(|factor| format!("--min-speedup {factor}")));
    words.extend(threshold.map(|effect| format!("--threshold {}%", percent(effect))));
    words.join(" ")
}

/// A fraction in percent, without the digits that the conversion adds.
fn percent(fraction: f64) -> f64 {
    (fraction * 1e8).round() / 1e6
}

/// The id of the run of an attempt: that of the suite, the number of the row, and the case.
fn run_id(suite: &str, at: usize, case: &str, attempt: u32) -> String {
    let slug: String = case
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(MAX_SLUG_CHARS)
        .collect();
    let again = if attempt > 1 { format!("-{attempt}") } else { String::new() };
    format!("{suite}-{:03}-{}{again}", at + 1, slug.trim_matches('-'))
}

/// A failure with the first line of its cause, and the file of the project that is wrong.
fn in_one_line(failure: &Failure) -> String {
    let mut text = failure.what.clone();
    if let Some(cause) = failure.cause.as_deref().and_then(|cause| cause.lines().next()) {
        text += &format!(": {cause}");
    }
    let file = failure.place.file.as_ref().filter(|_| failure.exit == Exit::Config);
    if let Some(file) = file.filter(|file| !text.contains(*file)) {
        text += &format!(", in `{file}`");
    }
    text
}

/// Whether a pair is too close to call: its speedup is below the least one that is asked for, or
/// the interval spans that.
pub fn is_too_close(speedup: Option<f64>, ci95: Option<[f64; 2]>, min_speedup: f64) -> bool {
    match (speedup, ci95) {
        (_, Some([low, _])) => low < min_speedup,
        (Some(speedup), None) => speedup < min_speedup,
        (None, None) => false,
    }
}

/// The sizes of the next step, as `--problem-sizes` takes them; `None` if a value does not fit, or
/// no variable grows.
pub fn grown_sizes(cases: &[CaseSizes], grow: &SizeGrowth) -> Option<Vec<String>> {
    let mut has_grown = false;
    let mut row = |vars: &[String], values: &[i64]| -> Option<String> {
        let mut words = Vec::new();
        for (var, value) in vars.iter().zip(values) {
            let grows = grow.vars.contains(var);
            has_grown |= grows;
            let value = if grows { value.checked_mul(grow.factor)? } else { *value };
            words.push(format!("{var}={value}"));
        }
        Some(words.join(","))
    };
    let mut sizes = Vec::new();
    for case in cases {
        let groups: Option<Vec<String>> =
            case.groups.iter().map(|values| row(&case.vars, values)).collect();
        sizes.push(groups?.join(";"));
    }
    has_grown.then_some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::CaseSettings;

    fn running_suite(ids: &[&str]) -> RunningSuite {
        let case = |id: &&str| {
            let case = SuiteCase {
                id: (*id).to_owned(),
                target: (*id).to_owned(),
                suites: vec!["s".into()],
                axes: Vec::new(),
                subject: TargetKind::Kernel("k".into()),
                settings: CaseSettings::default(),
                generated: false,
            };
            (case, "h200".to_owned())
        };
        let cases: Vec<_> = ids.iter().map(case).collect();
        RunningSuite::begin("night", String::new(), None, None, SuiteOptions::default(), &cases)
    }

    fn failed(code: &str, exit: Exit) -> CaseEnd {
        CaseEnd { failure: Some(Failure::new(exit, code, "it broke")), ..CaseEnd::default() }
    }

    #[test]
    fn a_suite_is_clean_once_the_last_attempt_of_every_case_is_ok() {
        let mut running_suite = running_suite(&["s:a", "s:b", "s:c"]);
        assert_eq!(running_suite.rows_to_run(&RunKind::Open), [0, 1, 2]);
        assert_eq!(running_suite.start(0), "night-001-s-a");
        running_suite.end(0, CaseEnd::default(), None);
        running_suite.start(1);
        running_suite.end(1, failed("nvtx_missing", Exit::Tool), Some("log".into()));
        running_suite.start(2);
        running_suite.end(2, failed("cancelled", Exit::Cancelled), None);
        running_suite.finish(1.0);
        assert_eq!((running_suite.run.state, running_suite.run.clean), (SuiteState::Open, false));
        assert_eq!(running_suite.status(), 5);
        assert_eq!(running_suite.rows_to_run(&RunKind::Open), [2]);
        assert_eq!(running_suite.rows_to_run(&RunKind::Failed(Some("nvtx".into()))), [1]);
        assert!(running_suite.rows_to_run(&RunKind::Failed(Some("clocks".into()))).is_empty());
        assert_eq!(running_suite.start(1), "night-002-s-b-2");
        running_suite.end(1, CaseEnd::default(), None);
        running_suite.start(2);
        running_suite.end(2, CaseEnd::default(), None);
        running_suite.finish(1.0);
        assert_eq!((running_suite.run.state, running_suite.run.clean), (SuiteState::Done, true));
        assert_eq!((running_suite.status(), running_suite.run.rows[1].attempts), (0, 2));
    }

    #[test]
    fn a_case_with_a_wrong_file_of_the_project_names_it() {
        let failure = |exit| {
            let failure = Failure::new(exit, "bad_kernel_toml", "not TOML").cause("at key `k`\nx");
            in_one_line(&failure.file("kernels/a/kernel.toml:3"))
        };
        assert_eq!(failure(Exit::Config), "not TOML: at key `k`, in `kernels/a/kernel.toml:3`");
        assert_eq!(failure(Exit::Tool), "not TOML: at key `k`");
    }

    #[test]
    fn the_command_of_a_case_repeats_the_conditions_of_its_suite() {
        let running_suite = running_suite(&["s:a", "s:pair/baseline", "s:b@h200", "s:c[F=/x]"]);
        assert_eq!(running_suite.run.rows[0].again, "rgpu bench run -t s:a --remote h200");
        assert_eq!(running_suite.run.rows[1].again, "rgpu bench run -t s:pair --remote h200");
        assert_eq!(running_suite.run.rows[2].again, "rgpu bench run -t s:b --remote h200");
        assert_eq!(running_suite.run.rows[3].again, "rgpu bench run -t 's:c[F=/x]' --remote h200");
        let options = SuiteOptions {
            targets: vec!["s:*".into()],
            level: Some(rgpu_model::suite::Level::Sol),
            remote: Some("h200,b200".into()),
            gpu: Some("1".into()),
            strict: true,
            lock_clocks_mhz: Some(1500),
            parallel: Some(4),
            iters: Some(50),
            timeout_s: Some(90),
            verify_timeout_s: Some(30),
            min_speedup: Some(1.1),
            threshold: Some(0.023),
            ..SuiteOptions::default()
        };
        let case = SuiteCase {
            id: "s:a".into(),
            target: "s:a".into(),
            suites: vec!["s".into()],
            axes: Vec::new(),
            subject: TargetKind::Kernel("k".into()),
            settings: CaseSettings::default(),
            generated: false,
        };
        assert_eq!(
            command(&case, "h200", &options),
            "rgpu bench run -t s:a --level sol --remote h200 --gpu 1 --strict --lock-clocks 1500 \
             --iters 50 --timeout 90s --verify-timeout 30s --min-speedup 1.1 --threshold 2.3%"
        );
    }

    #[test]
    fn rows_are_ordered_by_price_which_becomes_known_as_rows_end() {
        let mut running_suite = running_suite(&["s:slow", "s:quick", "s:unknown", "s:new"]);
        running_suite.run.rows[3].target = "s:unknown".into();
        let known = |row: &SuiteRow| match row.case.as_str() {
            "s:slow" => Some(100.0),
            "s:quick" => Some(5.0),
            _ => None,
        };
        let mut rows = running_suite.rows_to_run(&RunKind::Open);
        running_suite.order_by_estimated_time(&mut rows, known);
        assert_eq!(rows, [1, 2, 3, 0]);
        assert_eq!(running_suite.estimated_seconds(2, known), UNKNOWN_CASE_SECONDS);
        running_suite.end(1, CaseEnd { seconds: 6.0, ..CaseEnd::default() }, None);
        assert_eq!(running_suite.estimated_seconds(2, known), 6.0);
        running_suite.end(2, CaseEnd { seconds: 2.0, ..CaseEnd::default() }, None);
        assert_eq!(
            (running_suite.estimated_seconds(3, known), running_suite.estimated_seconds(0, known)),
            (2.0, 100.0)
        );
    }

    #[test]
    fn a_pair_is_too_close_if_its_interval_reaches_below_the_least_speedup() {
        assert!(is_too_close(Some(1.06), Some([1.04, 1.08]), 1.05));
        assert!(is_too_close(Some(1.01), Some([1.0, 1.02]), 1.05));
        assert!(!is_too_close(Some(1.2), Some([1.1, 1.3]), 1.05));
        assert!(!is_too_close(None, None, 1.05));
    }

    #[test]
    fn sizes_grow_by_the_rule_until_they_do_not_fit() {
        let case = CaseSizes {
            name: "pair".into(),
            vars: vec!["m".into(), "k".into()],
            groups: vec![vec![2, 3], vec![4, 5]],
        };
        let grow = SizeGrowth { vars: vec!["m".into()], factor: 2, times: 1 };
        let grown = grown_sizes(std::slice::from_ref(&case), &grow);
        assert_eq!(grown.unwrap(), ["m=4,k=3;m=8,k=5"]);
        let other = SizeGrowth { vars: vec!["x".into()], ..grow.clone() };
        assert_eq!(grown_sizes(std::slice::from_ref(&case), &other), None);
        let huge = CaseSizes { groups: vec![vec![i64::MAX, 1]], ..case };
        assert_eq!(grown_sizes(&[huge], &grow), None);
    }
}
