//! From what jobs brought back to one profile: artifacts imported, rungs judged, numbers joined.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_case::{DataSet, ErrorClass};
use rgpu_protocol::event::Stream;
use rgpu_protocol::{HostFacts, Outcome, RungRecord};

use super::job::{HostFile, JobEnd, cancelled};
use super::range_results::{give_to_regions, keep_timed, measured_ranges};
use super::region_filter::keep_regions;
use super::{outcome, stages};
use crate::analysis::{self, Thresholds};
use crate::error::{Exit, Failure, Result, Side};
use crate::import::case_report::RunnerFailure;
use crate::import::{IMPORTERS, Imported, Refusal, Source, Traced};
use crate::kernel::Entry;
use crate::model::profile::{Artifact, CaseResult, Correctness, Gap, KernelInfo, RunInfo, SCHEMA};
use crate::model::{Beside, Launch, Profile};
use crate::remote::Remote;
use crate::store::{RunFolder, RunRecord};
use crate::tool::{BundleFile, Expectations, Request, Target};

/// A rung that the laptop does not believe.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub rung: String,
    pub code: &'static str,
    pub text: String,
    pub metrics: Vec<String>,
}

/// What a run has gathered so far.
#[derive(Default)]
pub(super) struct Parts {
    pub profile: Profile,
    beside: Beside,
    /// Launches of a first pass, which those of the closer look replace.
    survey: Vec<Launch>,
    /// The last plan's expectations.
    expect: Expectations,
    /// What was built, for the next plan.
    pub built: Vec<(String, PathBuf)>,
    /// The last job.
    pub job: Option<JobEnd>,
    /// Why the runner stopped, by the step it ran in.
    runner: Vec<(String, RunnerFailure)>,
    /// Why the entry cannot be launched, where the compiled code tells.
    missing_entry: Option<Failure>,
    /// The rung of the last step that ended well.
    rung: String,
    /// The user's project.
    project: PathBuf,
    /// The user's own thresholds.
    thresholds: Thresholds,
    /// What the harness says of the model that it built.
    model: rgpu_case::ModelReport,
    /// The status of the last run of a program.
    pub program_exit: Option<i32>,
    /// Why a run under CUPTI brought ranges alone.
    ranges_alone: Option<(&'static str, String)>,
    /// A build failure's whole message, with this machine's paths.
    compiler: Option<String>,
}

/// Kinds that tell something even when their step failed.
const ALWAYS: &[&str] = &["case_report"];

/// Steps whose success is not the run's rung.
pub(super) const PREPARING: &[&str] = &["build", "reference", "export"];

/// Whether the runner's ranges in this file say when the kernel ran: not those of the steps before,
/// and not under ncu, which runs each launch many times over.
fn tells_ranges(file: &HostFile) -> bool {
    is_look(&file.artifact.step) && !file.rung.starts_with("ncu.")
}

/// Whether a step is the mode's own: `profile`, or one of several looks (`profile-2`).
fn is_look(step: &str) -> bool {
    step == "profile" || step.starts_with("profile-")
}

impl Parts {
    pub(super) fn new(request: &Request, project: &Path, thresholds: &Thresholds) -> Self {
        let (project, thresholds) = (project.to_owned(), thresholds.clone());
        let mut parts = Self { project, thresholds, ..Self::default() };
        if let Target::Kernel { data_sets, spec, .. } = &request.target {
            let vars = &spec.sizes.vars;
            parts.profile.cases = data_sets.iter().map(|set| empty_case(set, vars)).collect();
        }
        parts
    }

    /// Sets the launches of a first pass aside: a closer look brings the chosen ones anew.
    pub(super) fn keep_survey(&mut self) {
        self.survey = std::mem::take(&mut self.profile.launches);
        for region in &mut self.profile.regions {
            region.launches.clear();
            region.ranges.clear();
        }
    }

    /// Takes the launches of the first pass back where the closer look brought none; else events of
    /// its trace no longer point at them.
    fn end_survey(&mut self) {
        let survey = std::mem::take(&mut self.survey);
        if self.profile.launches.is_empty() {
            self.profile.launches = survey;
        } else if !survey.is_empty()
            && let Some(trace) = &mut self.beside.trace
        {
            trace.work.iter_mut().for_each(|work| work.launch = None);
        }
    }

    /// Takes note of what a plan was expected to bring.
    pub(super) fn expect(&mut self, expect: &Expectations) {
        // Every plan of a run leaves out the same, but a first pass has rungs of its own.
        for record in &expect.left_out {
            let same = |r: &RungRecord| r.rung == record.rung && r.code == record.code;
            if self.profile.ladder.iter().any(same) {
                continue;
            }
            self.profile.ladder.push(record.clone());
            let text = format!("{}: {}", record.rung, record.words);
            self.profile.gaps.push(Gap { code: record.code.clone(), text });
        }
        for text in &expect.notes {
            let gap = Gap { code: "note".to_owned(), text: text.clone() };
            if !self.profile.gaps.contains(&gap) {
                self.profile.gaps.push(gap);
            }
        }
        self.expect = expect.clone();
    }

    /// Takes in a build made on this machine for the host: its record, its artifacts, and the files
    /// that the host's plan brings along.
    pub(super) fn take_local_build(
        &mut self,
        folder: &RunFolder,
        end: &JobEnd,
        expect: &Expectations,
        request: &Request,
    ) -> Result<Vec<BundleFile>> {
        self.expect = expect.clone();
        self.take(folder, end, request)?;
        Ok(std::mem::take(&mut self.built)
            .into_iter()
            .map(|(path, local)| BundleFile::copy(path, local))
            .collect())
    }

    /// Takes in an ended job; the rung that should not be believed, if another may do better.
    pub(super) fn take(
        &mut self,
        folder: &RunFolder,
        end: &JobEnd,
        request: &Request,
    ) -> Result<Option<Refused>> {
        // A time line that was never taken is not missing when it should be exported.
        let told = |r: &&RungRecord| !(r.step == "export" && r.code == "missing");
        self.profile.ladder.extend(end.rungs.iter().filter(told).cloned());
        self.profile.warnings.extend(end.warnings.iter().cloned());
        if end.gpu.is_some() {
            self.profile.gpu.clone_from(&end.gpu);
        }
        // A container may get another GPU than the one had that was asked; reports say it too.
        let listed =
            |host: &HostFacts| host.gpus.iter().any(|gpu| end.gpu.as_ref() == Some(&gpu.uuid));
        if self.profile.device.is_none() && !self.profile.host.as_ref().is_some_and(listed) {
            self.profile.device.clone_from(&end.gpu_name);
        }
        let mut refused = None;
        for file in &end.files {
            self.profile.artifacts.retain(|a| a.path != file.artifact.path);
            self.profile.artifacts.push(file.artifact.clone());
            if self.expect.built.contains(&file.host_path) {
                let local = folder.path().join(&file.artifact.path);
                self.built.retain(|(path, _)| *path != file.host_path);
                self.built.push((file.host_path.clone(), local));
            }
            // Imported with its log, which alone makes the verdict.
            if file.artifact.kind == "sanitizer_xml" {
                continue;
            }
            if file.artifact.kind == "ranges" && !tells_ranges(file) {
                continue;
            }
            let believed = end.rung_of(&file.artifact.step) == Some(file.rung.as_str());
            if believed || ALWAYS.contains(&file.artifact.kind.as_str()) {
                refused = self.import(folder, file, believed, request).or(refused);
            }
        }
        for (step, rung) in &end.ended {
            if let Some(tool) = step.strip_prefix("sanitizer-") {
                self.sanitizer_log(
                    folder,
                    step,
                    tool,
                    rung.as_deref().unwrap_or_default(),
                    request,
                )?;
            }
        }
        self.program_status(end, request);
        self.missing_entry = self.missing_entry(request);
        if !end.step_ok("build") && end.last_rung("build").is_some_and(|r| !r.ok) {
            self.compiler = compiler_message(folder, &self.expect);
        }
        if let Some(rung) =
            end.ended.iter().rev().find_map(|(step, rung)| {
                rung.as_ref().filter(|_| !PREPARING.contains(&step.as_str()))
            })
        {
            self.rung.clone_from(rung);
        }
        self.without_ranges(end, request);
        if let Some((code, text)) = self.ranges_alone.take() {
            self.without_cupti(code, &text);
        }
        Ok(refused)
    }

    /// The sanitizer's log is its standard output, where its verdict stands: it is kept beside the
    /// records of the same run, and imported with them.
    fn sanitizer_log(
        &mut self,
        folder: &RunFolder,
        step: &str,
        tool: &str,
        rung: &str,
        request: &Request,
    ) -> Result<()> {
        if rung == "guard" {
            return Ok(());
        }
        let Ok(text) = folder.read(&RunFolder::log_name(step, Stream::Stdout)) else {
            return Ok(());
        };
        let path = format!("raw/{tool}.log");
        folder.write(&path, &text)?;
        let digest = super::provenance::digest_file(&folder.path().join(&path)).map_err(|e| {
            Failure::new(Exit::Disk, "disk", "cannot read the run folder").file(&path).cause(e)
        })?;
        let artifact = Artifact {
            path,
            kind: "sanitizer_log".to_owned(),
            step: step.to_owned(),
            size: digest.size,
            sha256: digest.sha256.into(),
        };
        self.profile.artifacts.push(artifact.clone());
        let file = HostFile { host_path: String::new(), rung: rung.to_owned(), artifact };
        self.import(folder, &file, false, request);
        Ok(())
    }

    /// Imports one file into the profile.
    fn import(
        &mut self,
        folder: &RunFolder,
        file: &HostFile,
        believed: bool,
        request: &Request,
    ) -> Option<Refused> {
        let artifact = &file.artifact;
        let importer = IMPORTERS.iter().find(|i| i.kind == artifact.kind)?;
        let path = folder.path().join(&artifact.path);
        let mut source = Source::new(&path, &artifact.path);
        source.asked.metrics = &request.ncu.metrics;
        if ["nsys.nvtx", "nvtx"].contains(&file.rung.as_str()) {
            source.traced = Traced::HostOnly;
        }
        let mut imported = match (importer.import)(&source) {
            Ok(imported) => imported,
            Err(error) => {
                let text = chain(&error);
                self.profile
                    .gaps
                    .push(Gap { code: "unreadable_artifact".to_owned(), text: text.clone() });
                return believed.then(|| {
                    self.mark_refused(&file.rung, "unreadable_artifact", &text);
                    Refused {
                        rung: file.rung.clone(),
                        code: "unreadable_artifact",
                        text,
                        metrics: Vec::new(),
                    }
                });
            }
        };
        let ranges = artifact.kind == "ncu_rep" && measured_ranges(&file.rung, request);
        if ranges {
            keep_timed(&mut imported, request);
        } else if artifact.kind == "ncu_rep" {
            let dropped =
                keep_regions(&mut imported, &request.regions, super::selection::ours(request));
            imported.gaps.extend(dropped);
        }
        let refusal = imported.refusals.drain(..).next();
        if let Some(model) = imported.model.take() {
            // Only the job that measures knows the rate of matrix products.
            let known = self.model.matmul_flops_per_s;
            self.model = model;
            self.model.matmul_flops_per_s = self.model.matmul_flops_per_s.or(known);
        }
        if let Some(failure) = imported.runner_failure.take() {
            self.runner.retain(|(step, _)| *step != artifact.step);
            self.runner.push((artifact.step.clone(), failure));
        }
        self.cases(std::mem::take(&mut imported.cases));
        localize(&mut imported, &self.expect, &self.project);
        let first = self.profile.launches.len();
        match refusal {
            Some(Refusal { code, text, metrics }) if believed => {
                // Metrics that this GPU lacks cost nothing but themselves: the rest stands.
                if code == "unknown_metric" {
                    self.add(imported, ranges.then_some(first));
                    self.profile.gaps.push(Gap { code: code.to_owned(), text });
                    return None;
                }
                if file.rung == "cupti" && !imported.regions.is_empty() {
                    self.ranges_alone = Some((code, text));
                    self.add(imported, None);
                    return None;
                }
                self.profile
                    .gaps
                    .push(Gap { code: code.to_owned(), text: format!("{}: {text}", file.rung) });
                self.mark_refused(&file.rung, code, &text);
                Some(Refused { rung: file.rung.clone(), code, text, metrics })
            }
            _ => {
                self.add(imported, ranges.then_some(first));
                None
            }
        }
    }

    /// Adds what was imported; `ranges` is the place of the first result of range replay.
    fn add(&mut self, imported: Imported, ranges: Option<usize>) {
        let known = self.profile.gaps.len();
        imported.add_to(&mut self.profile, &mut self.beside);
        // Several looks lack the same: it is said once.
        let mut new = self.profile.gaps.split_off(known);
        new.retain(|gap| !self.profile.gaps.contains(gap));
        self.profile.gaps.append(&mut new);
        if let Some(first) = ranges {
            give_to_regions(&mut self.profile, first);
        }
    }

    /// Makes the last try of a rung, which the host took for good, a failed one.
    fn mark_refused(&mut self, rung: &str, code: &str, text: &str) {
        if let Some(record) = self.profile.ladder.iter_mut().rev().find(|r| r.rung == rung) {
            record.ok = false;
            record.code = code.to_owned();
            record.words = text.to_owned();
        }
    }

    /// Joins cases by name: one report has the check, another the times.
    fn cases(&mut self, cases: Vec<CaseResult>) {
        for case in cases {
            match self.profile.cases.iter_mut().find(|c| c.name == case.name) {
                Some(known) => {
                    known.timing = case.timing.or(known.timing.take());
                    known.correctness = match (case.correctness, known.correctness.take()) {
                        // A check that was not made never hides one that was.
                        (Some(new), Some(old)) if new.verdict == "unchecked" => Some(old),
                        (new, old) => new.or(old),
                    };
                }
                None => self.profile.cases.push(case),
            }
        }
    }

    /// A program that ran to its end under the collector and opened no range: that run is what the
    /// lowest rung would have been, and is taken as it.
    fn without_ranges(&mut self, end: &JobEnd, request: &Request) {
        let logged = end.files.iter().any(|file| file.artifact.kind == "nvtx_log");
        if logged || self.rung != "nvtx" || !matches!(request.target, Target::Program(_)) {
            return;
        }
        let Some(record) = self.profile.ladder.iter().rev().find(|r| r.rung == "nvtx" && r.ok)
        else {
            return;
        };
        let mut plain = RungRecord { rung: "cpu".to_owned(), ..record.clone() };
        plain.loses = "everything of the GPU".to_owned();
        self.mark_refused("nvtx", "no_ranges", "the program opened no NVTX range");
        self.profile.ladder.push(plain);
        self.rung = "cpu".to_owned();
    }

    /// A run under CUPTI that brought ranges alone is what the rung `nvtx` would have been, and is
    /// taken as it.
    fn without_cupti(&mut self, code: &str, text: &str) {
        let gap = Gap { code: code.to_owned(), text: format!("cupti: {text}") };
        self.profile.gaps.push(gap);
        let Some(record) = self.profile.ladder.iter().rev().find(|r| r.rung == "cupti") else {
            return;
        };
        let mut ranges = RungRecord { rung: "nvtx".to_owned(), ..record.clone() };
        ranges.loses = "everything of the GPU: only NVTX ranges, in host time".to_owned();
        self.mark_refused("cupti", code, text);
        self.profile.ladder.push(ranges);
        if self.rung == "cupti" {
            self.rung = "nvtx".to_owned();
        }
    }

    /// A program's own status, where it is not 0: the profile stands, but the user should know.
    fn program_status(&mut self, end: &JobEnd, request: &Request) {
        let last = end.rungs.iter().rev().find(|r| is_look(&r.step));
        let status = last.and_then(|r| r.exit).unwrap_or(0);
        if matches!(request.target, Target::Program(_)) {
            self.program_exit = last.and_then(|r| r.exit);
        }
        if status != 0 && matches!(request.target, Target::Program(_)) {
            let text = format!("the program ended with status {status}");
            let gap = Gap { code: "program_status".to_owned(), text };
            // Each look runs the program again.
            if !self.profile.warnings.contains(&gap) {
                self.profile.warnings.push(gap);
            }
        }
    }

    /// The kernel that kernel.toml names but the compiled code has not: without a GPU nothing else
    /// would tell.
    fn missing_entry(&self, request: &Request) -> Option<Failure> {
        let Target::Kernel { spec, .. } = &request.target else { return None };
        let Entry::Device(function) = &spec.entry else { return None };
        let compiled = self.profile.artifacts.iter().any(|a| a.kind == "cubin");
        let symbols: Vec<&str> = self.profile.code.iter().map(|c| c.symbol.as_str()).collect();
        // With a GPU the driver says it itself. A mangled name holds the plain one.
        if self.profile.gpu.is_some()
            || !compiled
            || symbols.iter().any(|s| *s == function || s.contains(function.as_str()))
        {
            return None;
        }
        let failure = Failure::new(
            Exit::Config,
            "no_such_entry",
            format!("the compiled code has no kernel `{function}`"),
        )
        .file(spec.file.as_ref().unwrap_or(&spec.source).display());
        Some(match symbols.is_empty() {
            true => failure.hint("it has none at all: a template needs an explicit instantiation"),
            false => failure.hint(format!("it has `{}`: name it in `entry`", symbols.join("`, `"))),
        })
    }

    /// Whether there is nothing worth a profile.
    pub(super) fn is_empty(&self) -> bool {
        let p = &self.profile;
        p.launches.is_empty()
            && self.survey.is_empty()
            && p.regions.is_empty()
            && p.sanitizer.is_empty()
            && p.cases.iter().all(|c| c.timing.is_none() && c.correctness.is_none())
    }

    /// The failure of a run that looked several times and has nothing to show for it.
    pub(super) fn no_look(&self, remote: &dyn Remote) -> Option<Failure> {
        let end = self.job.as_ref()?;
        let last = end.rungs.iter().rev().find(|r| is_look(&r.step) && !r.ok)?;
        if !self.profile.launches.is_empty() || !self.survey.is_empty() {
            return None;
        }
        let outcome = Outcome::Failed { step: last.step.clone(), code: last.code.clone() };
        Some(outcome::failure(remote, &JobEnd { outcome: Some(outcome), ..end.clone() }))
    }

    /// What went wrong, if anything did.
    pub(super) fn failure(&self, remote: &dyn Remote) -> Option<Failure> {
        let found = self.profile.sanitizer.iter().any(|s| s.verdict == "found");
        let end = self.job.as_ref()?;
        let failure = match &end.outcome {
            Some(Outcome::Done | Outcome::Failed { .. }) if self.missing_entry.is_some() => {
                return self.missing_entry.clone();
            }
            Some(Outcome::Done) => {
                let wrong = self
                    .profile
                    .cases
                    .iter()
                    .find(|c| c.correctness.as_ref().is_some_and(|c| c.verdict == "wrong"))?;
                return Some(self.wrong_result(remote, wrong));
            }
            Some(Outcome::Cancelled) => return Some(cancelled()),
            // A kernel that crashes under the sanitizer is what the sanitizer was asked about.
            Some(Outcome::Failed { .. }) if found => return None,
            // A runner that was stopped in time has nothing to say of why.
            Some(Outcome::Failed { code, .. }) if code == "timeout" => {
                outcome::failure(remote, end)
            }
            Some(Outcome::Failed { step, .. }) => {
                let runner = self.runner.iter().find(|(s, _)| s == step).map(|(_, f)| f);
                match (step.as_str(), runner, &self.compiler) {
                    ("build", _, Some(message)) => {
                        let mut failure = outcome::failure(remote, end);
                        failure.what = "the kernel does not compile".to_owned();
                        failure.exit = Exit::Kernel;
                        failure.side = Side::Kernel;
                        failure.cause(message)
                    }
                    (_, Some(failure), _) => self.runner_failure(remote, step, failure),
                    _ => outcome::failure(remote, end),
                }
            }
            _ => outcome::failure(remote, end),
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
        .on(remote.name(), remote.transport())
        .step("verify")
        .cause(first)
        .hint("`rgpu profile --mode sanitizer` looks for races and stray accesses")
    }

    fn runner_failure(&self, remote: &dyn Remote, step: &str, failure: &RunnerFailure) -> Failure {
        let wrong = self
            .profile
            .cases
            .iter()
            .find(|c| c.correctness.as_ref().is_some_and(|c| c.verdict == "wrong"));
        if let (ErrorClass::WrongResult, Some(case)) = (failure.class, wrong) {
            return self.wrong_result(remote, case);
        }
        let (exit, code, what, hint) = runner_words(failure.class);
        let mut out = Failure::new(exit, code, what)
            .on(remote.name(), remote.transport())
            .step(step)
            .cause(&failure.text);
        if !hint.is_empty() {
            out = out.hint(hint);
        }
        out
    }
}

/// What a class of the runner's failures means to a user.
fn runner_words(class: ErrorClass) -> (Exit, &'static str, &'static str, &'static str) {
    match class {
        ErrorClass::WrongResult => (
            Exit::Kernel,
            "wrong_result",
            "the kernel computes wrong results",
            "`rgpu profile --mode sanitizer` looks for races and stray accesses",
        ),
        ErrorClass::IllegalAccess => (
            Exit::Kernel,
            "illegal_access",
            "the kernel crashed: it accessed memory that is not its own",
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
            "the runner could not use what rgpu sent",
            "please report it with the run folder",
        ),
        _ => (Exit::Kernel, "kernel_failed", "the kernel's run failed", ""),
    }
}

/// The profile of everything gathered.
pub(super) fn profile(
    parts: Parts,
    request: &Request,
    facts: HostFacts,
    record: &RunRecord,
) -> (Profile, Beside) {
    let mut parts = parts;
    parts.end_survey();
    let mut profile = parts.profile;
    profile.schema = SCHEMA.to_owned();
    profile.run = RunInfo {
        id: record.id.clone(),
        started: record.started.clone(),
        seconds: record.seconds,
        cost_usd: record.cost_usd,
        mode: request.mode.name().to_owned(),
        remote: record.remote.clone(),
        command: record.argv.clone(),
        labels: record.labels.clone(),
        rgpu: env!("CARGO_PKG_VERSION").to_owned(),
    };
    profile.kernel = kernel_info(request, &parts.expect, &profile, &parts.project);
    if let Target::Kernel { spec, data_sets, .. } = &request.target {
        profile.kernel.model = spec.model.as_ref().map(|model| stages::model(model, &parts.model));
        profile.stages = stages::stages(&profile.regions, data_sets, spec);
    }
    profile.host = Some(facts);
    profile.rung = if parts.rung.is_empty() { "none".to_owned() } else { parts.rung };
    forget_lower(&mut profile);
    rates(&mut profile, request);
    profile.cases.iter_mut().for_each(count_timed_calls);
    profile.timing = profile.cases.first().and_then(|c| c.timing.clone());
    profile.correctness = overall(&profile.cases);
    join_code(&mut profile);
    analysis::analyze_all(&mut profile, &parts.beside, &parts.thresholds);
    (profile, parts.beside)
}

/// A rung that was left out below the one that was reached is nobody's loss; of the same tool it is
/// why this one was taken (root's ncu in place of the user's). Another step's ladder is another matter.
fn forget_lower(profile: &mut Profile) {
    let reached = profile.rung.clone();
    let Some(end) = profile.ladder.iter().rev().find(|r| r.ok && r.rung == reached) else { return };
    let step = end.step.clone();
    let lower = |record: &RungRecord| {
        let tool = |rung: &str| rung.split('.').next().map(str::to_owned);
        !record.ok
            && record.step == step
            && record.argv.is_empty()
            && super::is_below(&record.rung, &reached)
            && tool(&record.rung) != tool(&reached)
    };
    let gone: Vec<RungRecord> = profile.ladder.extract_if(.., |record| lower(record)).collect();
    profile.gaps.retain(|gap| {
        !gone.iter().any(|r| gap.code == r.code && gap.text == format!("{}: {}", r.rung, r.words))
    });
}

fn kernel_info(
    request: &Request,
    expect: &Expectations,
    profile: &Profile,
    project: &Path,
) -> KernelInfo {
    let arch = if expect.arch.is_empty() { Vec::new() } else { vec![expect.arch.clone()] };
    match &request.target {
        Target::Kernel { spec, .. } => KernelInfo {
            name: spec.name.clone(),
            language: spec.language.to_owned(),
            entry: spec.entry_name().to_owned(),
            source: spec.source.strip_prefix(project).unwrap_or(&spec.source).display().to_string(),
            sha256: super::provenance::digest_file(&spec.source).ok().map(|d| d.sha256.into()),
            arch,
            compiler: profile.code.first().map(|c| c.compiler.clone()).unwrap_or_default(),
            model: None,
        },
        Target::Program(program) => KernelInfo {
            name: program.name.clone(),
            language: "program".to_owned(),
            ..KernelInfo::default()
        },
    }
}

/// Rates at the median, from what `[work]` says a case needs.
fn rates(profile: &mut Profile, request: &Request) {
    let Target::Kernel { data_sets, .. } = &request.target else { return };
    for case in &mut profile.cases {
        let Some(set) = data_sets.iter().find(|s| s.name == case.name) else { continue };
        if let Some(timing) =
            case.timing.as_mut().filter(|t| t.median_ns > 0.0 && t.clock != "cpu_reference")
        {
            timing.flops_per_s = set.flops.map(|f| f * 1e9 / timing.median_ns);
            timing.bytes_per_s = set.bytes.map(|b| b * 1e9 / timing.median_ns);
        }
    }
}

/// What the timing compared belongs to what is known of a case's correctness.
fn count_timed_calls(case: &mut CaseResult) {
    let Some((check, timing)) = case.correctness.as_mut().zip(case.timing.as_ref()) else { return };
    check.timed_calls = timing.verified;
    check.timed_contents = timing.verified.and(timing.contents);
}

fn empty_case(set: &DataSet, vars: &[String]) -> CaseResult {
    let named =
        |row: &Vec<i64>| vars.iter().cloned().zip(row.iter().copied()).collect::<BTreeMap<_, _>>();
    let sizes = set.groups.iter().map(|group| named(&group.sizes)).collect();
    CaseResult { name: set.name.clone(), sizes, timing: None, correctness: None }
}

/// One verdict over all cases: wrong if any is, right only if all are.
fn overall(cases: &[CaseResult]) -> Option<Correctness> {
    let checks: Vec<&Correctness> = cases.iter().filter_map(|c| c.correctness.as_ref()).collect();
    let first = *checks.first()?;
    let chosen = checks
        .iter()
        .find(|c| c.verdict == "wrong")
        .or_else(|| checks.iter().find(|c| c.verdict == "unchecked"))
        .copied()
        .unwrap_or(first);
    let mut all = chosen.clone();
    if all.verdict == "right" {
        all.checked = checks.iter().map(|c| c.checked).sum();
        all.max_abs = checks
            .iter()
            .filter_map(|c| c.max_abs)
            .fold(None, |m: Option<f64>, x| Some(m.map_or(x, |m| m.max(x))));
        all.max_rel = checks
            .iter()
            .filter_map(|c| c.max_rel)
            .fold(None, |m: Option<f64>, x| Some(m.map_or(x, |m| m.max(x))));
        let sum = |f: fn(&Correctness) -> Option<u64>| {
            checks.iter().filter_map(|c| f(c)).reduce(|a, b| a + b)
        };
        all.timed_calls = sum(|c| c.timed_calls);
        all.timed_contents = sum(|c| c.timed_contents);
        all.bit_equal = checks.iter().try_fold(true, |all, c| Some(all && c.bit_equal?));
    }
    Some(all)
}

/// Launches point at the compiled code of the same name.
fn join_code(profile: &mut Profile) {
    for launch in &mut profile.launches {
        let named =
            |symbol: &str| symbol == launch.kernel || Some(symbol) == launch.mangled.as_deref();
        let at = profile
            .code
            .iter()
            .position(|c| named(&c.symbol) || c.name.as_deref().is_some_and(named));
        launch.code = at.and_then(|at| u32::try_from(at).ok());
    }
}

/// Sources under this machine's paths, relative to the project where they lie in it.
fn localize(imported: &mut Imported, expect: &Expectations, project: &Path) {
    for cause in imported.sanitizer.iter_mut().flat_map(|s| &mut s.causes) {
        let Some(file) = &mut cause.file else { continue };
        // Compilers record the path they were given or the absolute one: both end alike.
        let is = |there: &str| {
            let inner = there.trim_start_matches("../");
            file.as_str() == there || file.ends_with(&format!("/work/{inner}"))
        };
        if let Some(source) = expect.sources.iter().find(|s| is(&s.there)) {
            let here = source.here.strip_prefix(project).unwrap_or(&source.here);
            *file = here.display().to_string();
        }
    }
}

/// What the compiler said, from its log, with this machine's paths.
pub(super) fn compiler_message(folder: &RunFolder, expect: &Expectations) -> Option<String> {
    let read =
        |name: &str| folder.read(name).ok().map(|b| String::from_utf8_lossy(&b).into_owned());
    let text = ["log/build.stderr", "log/build.stdout"]
        .iter()
        .filter_map(|name| read(name))
        .find(|text| !text.trim().is_empty())?;
    let text = expect.localize(&rgpu_protocol::pattern::strip_ansi(&text));
    let lines: Vec<&str> = text.lines().collect();
    Some(lines[lines.len().saturating_sub(40)..].join("\n"))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

/// Puts the compiled modules where `rgpu disasm artifacts/*.cubin` finds them:
/// `<kernel>.<arch>.cubin` beside the runs.
pub fn publish_cubins(profile: &Profile, run: &Path, runs_root: &Path) -> std::io::Result<()> {
    let Some(artifacts) = runs_root.parent() else { return Ok(()) };
    for cubin in profile.artifacts.iter().filter(|a| a.kind == "cubin") {
        let arch = profile.kernel.arch.first().map_or("sm", String::as_str);
        let bytes = std::fs::read(run.join(&cubin.path))?;
        crate::store::atomic::write(
            &artifacts.join(format!("{}.{arch}.cubin", profile.kernel.name)),
            &bytes,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(verdict: &str, bit_equal: Option<bool>) -> CaseResult {
        let correctness = Correctness {
            verdict: verdict.into(),
            checked: 10,
            bit_equal,
            ..Correctness::default()
        };
        CaseResult { name: verdict.into(), correctness: Some(correctness), ..CaseResult::default() }
    }

    #[test]
    fn one_wrong_case_makes_the_whole_wrong_and_one_unchecked_makes_it_unchecked() {
        let verdict = |cases: &[CaseResult]| overall(cases).map(|c| c.verdict);
        assert_eq!(verdict(&[]), None);
        assert_eq!(
            verdict(&[case("right", None), case("wrong", None), case("unchecked", None)]).unwrap(),
            "wrong"
        );
        assert_eq!(verdict(&[case("right", None), case("unchecked", None)]).unwrap(), "unchecked");
        let all = overall(&[case("right", Some(true)), case("right", Some(false))]).unwrap();
        assert_eq!((all.verdict.as_str(), all.checked, all.bit_equal), ("right", 20, Some(false)));
    }

    #[test]
    fn a_check_that_was_not_made_never_hides_one_that_was() {
        let mut parts = Parts::default();
        let named = |v: &str| CaseResult { name: "c".into(), ..case(v, None) };
        parts.cases(vec![named("right")]);
        parts.cases(vec![named("unchecked")]);
        assert_eq!(parts.profile.cases[0].correctness.as_ref().unwrap().verdict, "right");
        parts.cases(vec![named("wrong")]);
        assert_eq!(parts.profile.cases[0].correctness.as_ref().unwrap().verdict, "wrong");
    }
}
