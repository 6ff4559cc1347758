//! Turns the results of a run's jobs into one profile: imports artifacts, judges rungs and joins
//! the numbers.

mod finish;
mod node_reports;
mod unfinished;
mod verdict;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_case::Case;
use rgpu_protocol::event::Stream;
use rgpu_protocol::{HostFacts, RungRecord};

pub(super) use self::finish::build_profile;
use self::node_reports::is_node_report;
pub(super) use self::verdict::compiler_message;
use super::event::{Reporter, RunEvent};
use super::job::{HostFile, JobResult};
use super::program_error;
use super::range_results::{copy_to_regions, keep_timed, measured_ranges};
use super::region_filter::keep_regions;
use super::required_rung::is_rung_of;
use crate::store::RunFolder;
use rgpu_analysis::Thresholds;
use rgpu_import::case_report::RunnerFailure;
use rgpu_import::sanitizer::SEE_ALONE;
use rgpu_import::{
    IMPORTERS, ImportedArtifact, NO_GPU_ROWS, RejectedReport, Source, TracedActivity,
};
use rgpu_model::error::{Exit, Failure, Result, chain};
use rgpu_model::profile::{Artifact, CaseResult, Gap};
use rgpu_model::profile::{ArtifactKind, CheckVerdict};
use rgpu_model::sanitizer::SanitizerVerdict;
use rgpu_model::{Launch, Profile, RungId, Sidecars, Trace};
use rgpu_plan::tool::{
    BundleFile, DraftInfo, LAYOUTS_STEP, PLAIN_STEP, ProfileTarget, PythonEnv, RankSelection,
    Request, RungInfo, RungTool,
};

/// A rung whose result the laptop rejects.
#[derive(Clone, Debug)]
pub(super) struct RefusedRung {
    /// The step that the rung did.
    pub step: String,
    pub rung: RungId,
    pub code: &'static str,
    pub text: String,
    pub metrics: Vec<String>,
}

impl RefusedRung {
    /// Reports the refusal, and leaves the rung or its metrics out of the next plan.
    pub(super) fn exclude_from(self, request: &mut Request, reporter: &mut dyn Reporter) {
        let Self { step, rung, code, text, metrics } = self;
        reporter.report(&RunEvent::Refused { rung: &rung, code, text: &text });
        match metrics.is_empty() {
            // The tools of the sanitizer have a step each, with the same rungs.
            true if step.starts_with("sanitizer-") => {
                request.skip.insert(format!("{step}/{rung}"));
            }
            true => drop(request.skip.insert(rung.into())),
            false => request.drop_metrics.extend(metrics),
        }
    }
}

/// The profile of a run while its jobs' results come in.
#[derive(Default)]
pub(super) struct ProfileBuilder {
    pub profile: Profile,
    sidecars: Sidecars,
    /// Launches of the survey, which later passes replace.
    survey: Vec<Launch>,
    /// Facts about the last plan that are not in the plan itself.
    draft_info: DraftInfo,
    /// Built files, for reuse by the next plan.
    pub built: Vec<(String, PathBuf)>,
    /// The result of the last job. `None` if no job has ended.
    pub job: Option<JobResult>,
    /// Failures that the runner reported, by step.
    runner: Vec<(String, RunnerFailure)>,
    /// The step whose runner ended well by its status, but did not do its job, and why.
    unfinished: Option<(String, RunnerFailure)>,
    /// Set if the compiled code shows that the entry cannot be launched.
    missing_entry: Option<Failure>,
    /// The rung of the last step that succeeded.
    rung: RungId,
    /// The folder of the user's project.
    project: PathBuf,
    thresholds: Thresholds,
    /// The harness's report on the model that it built.
    model: rgpu_case::ModelReport,
    /// The result of a leaderboard's own program.
    board: Option<rgpu_case::BoardReport>,
    /// Exit status of the program's last run.
    pub program_exit: Option<i32>,
    /// The failure of a program whose error is its own.
    pub program_failure: Option<Failure>,
    /// Code and text of why a run under CUPTI brought only ranges.
    ranges_alone: Option<(&'static str, String)>,
    /// Whether the program of the job that is being added was stopped because it hung.
    has_hung: bool,
    /// Why the torch trace of a process without GPU work would be refused.
    torch_without_gpu: Option<String>,
    /// Whether the torch trace of another process has GPU work.
    torch_with_gpu: bool,
    /// The compiler's message of a failed build, with paths of this machine.
    compiler: Option<String>,
}

/// Artifact kinds that are imported even if their step failed.
const ALWAYS_IMPORTED_KINDS: &[ArtifactKind] = &[ArtifactKind::CaseReport];

/// Steps whose success does not set the run's rung.
pub(super) const SETUP_STEPS: &[&str] =
    &["build", "reference", "export", LAYOUTS_STEP, PythonEnv::STEP];

/// Whether the runner's ranges in this file show when the kernel ran: not in set-up steps, and not
/// under ncu, which replays each launch.
fn has_run_ranges(file: &HostFile) -> bool {
    is_pass_step(&file.artifact.step) && !is_rung_of(&file.rung, RungTool::Ncu)
}

/// Whether a step is one of the mode's passes: `profile`, `profile-2` and so on.
fn is_pass_step(step: &str) -> bool {
    step == "profile" || step.starts_with("profile-")
}

impl ProfileBuilder {
    pub(super) fn new(request: &Request, project: &Path, thresholds: &Thresholds) -> Self {
        let (project, thresholds) = (project.to_owned(), thresholds.clone());
        let mut builder = Self { project, thresholds, ..Self::default() };
        if let ProfileTarget::Kernel { cases, spec, .. } = &request.target {
            let vars = &spec.sizes.vars;
            builder.profile.cases = cases.iter().map(|case| empty_case(case, vars)).collect();
        }
        builder
    }

    /// Sets the survey's launches aside: later passes measure the chosen ones again.
    pub(super) fn set_survey_aside(&mut self) {
        self.survey = std::mem::take(&mut self.profile.launches);
        for region in &mut self.profile.regions {
            region.launches.clear();
            region.ranges.clear();
        }
    }

    /// Restores the survey's launches if no later pass brought any. Otherwise unlinks its trace's
    /// events from them.
    fn end_survey(&mut self) {
        let survey = std::mem::take(&mut self.survey);
        if self.profile.launches.is_empty() {
            self.profile.launches = survey;
        } else if !survey.is_empty()
            && let Some(trace) = &mut self.sidecars.trace
        {
            trace.work.iter_mut().for_each(|work| work.launch = None);
        }
    }

    /// Sets what we know of the next plan, and records the rungs that it leaves out.
    pub(super) fn start_plan(&mut self, info: &DraftInfo) {
        // All plans of a run leave out the same rungs, but a survey has its own.
        for record in &info.left_out {
            let same = |r: &RungRecord| r.rung == record.rung && r.code == record.code;
            if self.profile.ladder.iter().any(same) {
                continue;
            }
            self.profile.ladder.push(record.clone());
            let text = format!("{}: {}", record.rung, record.message);
            self.profile.gaps.push(Gap { code: record.code.clone(), text });
        }
        for text in &info.notes {
            let gap = Gap { code: "note".to_owned(), text: text.clone() };
            if !self.profile.gaps.contains(&gap) {
                self.profile.gaps.push(gap);
            }
        }
        self.draft_info = info.clone();
    }

    /// Adds a build made on this machine for the host. Returns the built files for the host's plan.
    pub(super) fn add_local_build(
        &mut self,
        folder: &RunFolder,
        end: &JobResult,
        info: &DraftInfo,
        request: &Request,
    ) -> Result<Vec<BundleFile>> {
        self.draft_info = info.clone();
        self.add_job(folder, end, request)?;
        Ok(std::mem::take(&mut self.built)
            .into_iter()
            .map(|(path, local)| BundleFile::copy(path, local))
            .collect())
    }

    /// The trace of the run so far.
    pub(super) fn trace(&mut self) -> Option<&mut Trace> {
        self.sidecars.trace.as_mut()
    }

    pub(super) fn outcome(&self) -> Option<&rgpu_protocol::Outcome> {
        self.job.as_ref()?.outcome.as_ref()
    }

    /// The rung that the run reached; [`RungId::None`] if there is none.
    pub(super) fn rung(&self) -> RungId {
        if self.rung.is_empty() { RungId::None } else { self.rung.clone() }
    }

    /// Adds a report of ncu from a provider's service; its launches replace those of lower rungs.
    /// Returns the code and text of the refusal if the report is not usable.
    pub(super) fn add_provider_report(
        &mut self,
        folder: &RunFolder,
        record: RungRecord,
        artifact: &Artifact,
        request: &Request,
    ) -> Option<(String, String)> {
        let rung = RungId::from(&*record.rung);
        self.profile.ladder.push(record);
        self.profile.artifacts.retain(|a| a.path != artifact.path);
        self.profile.artifacts.push(artifact.clone());
        let (launches, regions) = (self.profile.launches.clone(), self.profile.regions.clone());
        let here = self.profile.device.take();
        self.set_survey_aside();
        let file =
            HostFile { host_path: String::new(), rung: rung.clone(), artifact: artifact.clone() };
        let refused = self.import(folder, &file, true, request);
        let there = self.profile.device.take();
        self.profile.device = here.or_else(|| there.clone());
        if let Some(refused) = refused {
            (self.profile.launches, self.profile.regions) = (launches, regions);
            self.survey.clear();
            return Some((refused.code.to_owned(), refused.text));
        }
        self.rung = rung;
        if let Some(there) = there.filter(|there| self.profile.device.as_ref() != Some(there)) {
            let text = format!(
                "the counters are from another GPU, {there}, which the provider \
                                chose"
            );
            self.profile.warnings.push(Gap { code: "other_gpu".to_owned(), text });
        }
        None
    }

    /// Adds the results of an ended job. Returns the rung to refuse, if one is refused and another
    /// may do better.
    pub(super) fn add_job(
        &mut self,
        folder: &RunFolder,
        end: &JobResult,
        request: &Request,
    ) -> Result<Option<RefusedRung>> {
        // An export misses its trace if none was taken; that is no failure of its own.
        let is_relevant = |r: &&RungRecord| !(r.step == "export" && r.code == "missing");
        self.profile.ladder.extend(end.rungs.iter().filter(is_relevant).cloned());
        self.profile.warnings.extend(end.warnings.iter().cloned());
        if end.gpu.is_some() {
            self.profile.gpu.clone_from(&end.gpu);
        }
        // A container may get another GPU than the host that gave the facts; reports name it too.
        let listed =
            |host: &HostFacts| host.gpus.iter().any(|gpu| end.gpu.as_ref() == Some(&gpu.uuid));
        if self.profile.device.is_none() && !self.profile.host.as_ref().is_some_and(listed) {
            self.profile.device.clone_from(&end.gpu_name);
        }
        self.has_hung = end.rungs.iter().any(program_error::has_hung);
        let mut refused = None;
        for file in &end.files {
            self.profile.artifacts.retain(|a| a.path != file.artifact.path);
            self.profile.artifacts.push(file.artifact.clone());
            if self.draft_info.built.contains(&file.host_path) {
                let local = folder.path().join(&file.artifact.path);
                self.built.retain(|(path, _)| *path != file.host_path);
                self.built.push((file.host_path.clone(), local));
            }
            // Imported together with its log, which alone holds the verdict.
            if file.artifact.kind == ArtifactKind::SanitizerXml {
                continue;
            }
            if file.artifact.kind == ArtifactKind::Ranges && !has_run_ranges(file) {
                continue;
            }
            let believed = end.rung_of(&file.artifact.step).as_ref() == Some(&file.rung);
            if request.nodes > 1 && is_node_report(file) {
                continue;
            }
            if believed || ALWAYS_IMPORTED_KINDS.contains(&file.artifact.kind) {
                refused = self.import(folder, file, believed, request).or(refused);
            }
        }
        if request.nodes > 1 {
            refused = self.import_nodes(folder, end, request).or(refused);
        }
        refused = self.refuse_torch_without_gpu(end).or(refused);
        for (step, rung) in &end.ended {
            // The tools of ranks write their logs themselves.
            let is_own_log = |file: &&HostFile| {
                file.artifact.kind == ArtifactKind::SanitizerLog && file.artifact.step == *step
            };
            if let Some(tool) = step.strip_prefix("sanitizer-")
                && !end.files.iter().any(|file| is_own_log(&file))
            {
                self.sanitizer_log(
                    folder,
                    step,
                    tool,
                    rung.as_deref().unwrap_or_default(),
                    request,
                )?;
            }
        }
        self.find_unfinished(folder, end, request);
        self.unchecked_ranks(end, request);
        self.program_status(end, request);
        self.missing_entry = self.find_missing_entry(request);
        if !end.step_ok("build") && end.last_rung("build").is_some_and(|r| !r.ok) {
            self.compiler = compiler_message(folder, &self.draft_info);
        }
        if let Some(rung) = end.ended.iter().rev().find_map(|(step, rung)| {
            rung.as_ref().filter(|_| !SETUP_STEPS.contains(&step.as_str()))
        }) {
            self.rung = rung.as_str().into();
        }
        self.without_ranges(end, request);
        if let Some((code, text)) = self.ranges_alone.take() {
            self.without_cupti(code, &text);
        }
        Ok(refused)
    }

    /// Names the chosen ranks of which a sanitizer left no report.
    fn unchecked_ranks(&mut self, end: &JobResult, request: &Request) {
        let Some(RankSelection::Numbers(asked)) = &request.ranks else { return };
        let was_checked = |(step, rung): &(String, Option<String>)| {
            step.starts_with("sanitizer-") && rung.is_some()
        };
        if !end.ended.iter().any(was_checked) {
            return;
        }
        let results = &self.profile.sanitizer;
        let missing = asked.iter().filter(|rank| results.iter().all(|r| r.rank != Some(**rank)));
        let gaps = missing.map(|rank| Gap {
            code: "ranks_missing".to_owned(),
            text: format!("rank {rank} has no report of the sanitizer: it was not checked"),
        });
        self.profile.gaps.extend(gaps.collect::<Vec<_>>());
    }

    /// Keeps the sanitizer's standard output, which holds its verdict, as an artifact beside the
    /// XML records of the same run, and imports both.
    fn sanitizer_log(
        &mut self,
        folder: &RunFolder,
        step: &str,
        tool: &str,
        rung: &str,
        request: &Request,
    ) -> Result<()> {
        if RungId::Guard == *rung {
            return Ok(());
        }
        let Ok(text) = folder.read(&RunFolder::log_name(step, Stream::Stdout)) else {
            return Ok(());
        };
        let path = format!("raw/{tool}.log");
        folder.write(&path, &text)?;
        let digest = crate::store::digest_file(&folder.path().join(&path)).map_err(|e| {
            Failure::new(Exit::Disk, "disk", "cannot read the run folder").file(&path).cause(e)
        })?;
        let artifact = Artifact {
            path,
            kind: ArtifactKind::SanitizerLog,
            step: step.to_owned(),
            size: digest.size,
            sha256: digest.sha256.into(),
        };
        self.profile.artifacts.push(artifact.clone());
        let file = HostFile { host_path: String::new(), rung: rung.into(), artifact };
        self.import(folder, &file, false, request);
        Ok(())
    }

    /// Imports one file into the profile. Returns the rung if it is refused.
    fn import(
        &mut self,
        folder: &RunFolder,
        file: &HostFile,
        believed: bool,
        request: &Request,
    ) -> Option<RefusedRung> {
        let artifact = &file.artifact;
        let importer = IMPORTERS.iter().find(|i| i.kind == artifact.kind)?;
        let path = folder.path().join(&artifact.path);
        let mut source = Source::new(&path, &artifact.path);
        source.requested.metrics = &request.ncu.metrics;
        if matches!(file.rung, RungId::NsysNvtx | RungId::Nvtx) {
            source.traced = TracedActivity::HostOnly;
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
                    RefusedRung {
                        step: file.artifact.step.clone(),
                        rung: file.rung.clone(),
                        code: "unreadable_artifact",
                        text,
                        metrics: Vec::new(),
                    }
                });
            }
        };
        let ranges = artifact.kind == ArtifactKind::NcuRep && measured_ranges(&file.rung, request);
        if ranges {
            keep_timed(&mut imported, request);
        } else if artifact.kind == ArtifactKind::NcuRep {
            let dropped = keep_regions(
                &mut imported,
                &request.regions,
                super::pass_planner::runner_ranges(request),
            );
            imported.gaps.extend(dropped);
        }
        let refusal = imported.refusals.drain(..).next();
        if let Some(model) = imported.model.take() {
            // Only the job that measures knows the rate of matrix products.
            let known = self.model.matmul_flops_per_s;
            self.model = model;
            self.model.matmul_flops_per_s = self.model.matmul_flops_per_s.or(known);
        }
        self.board = imported.board.take().or(self.board.take());
        if let Some(failure) = imported.runner_failure.take() {
            self.runner.retain(|(step, _)| *step != artifact.step);
            self.runner.push((artifact.step.clone(), failure));
        }
        self.cases(std::mem::take(&mut imported.cases));
        localize(&mut imported, &self.draft_info, &self.project);
        let first = self.profile.launches.len();
        match refusal {
            Some(RejectedReport { code, text, metrics }) if believed => {
                // Metrics that this GPU lacks are left out; the other metrics are valid.
                if code == "unknown_metric" {
                    self.add(imported, ranges.then_some(first));
                    self.profile.gaps.push(Gap { code: code.to_owned(), text });
                    return None;
                }
                if file.rung == RungId::Cupti && !imported.regions.is_empty() {
                    self.ranges_alone = Some((code, text));
                    self.add(imported, None);
                    return None;
                }
                if self.has_hung && code == NO_GPU_ROWS {
                    // The ranges and calls before the hang are all that the tool has kept.
                    self.add(imported, None);
                    self.profile.gaps.push(Gap { code: code.to_owned(), text });
                    return None;
                }
                if artifact.kind == ArtifactKind::TorchTrace && code == NO_GPU_ROWS {
                    // Another process of the program may have used the GPU.
                    self.torch_without_gpu = Some(text);
                    return None;
                }
                Some(self.refuse(file, RejectedReport { code, text, metrics }))
            }
            _ => {
                self.torch_with_gpu |=
                    artifact.kind == ArtifactKind::TorchTrace && !imported.launches.is_empty();
                self.add(imported, ranges.then_some(first));
                None
            }
        }
    }

    /// Marks the file's rung as refused.
    fn refuse(&mut self, file: &HostFile, refusal: RejectedReport) -> RefusedRung {
        let RejectedReport { code, text, metrics } = refusal;
        let gap = Gap { code: code.to_owned(), text: format!("{}: {text}", file.rung) };
        self.profile.gaps.push(gap);
        self.mark_refused(&file.rung, code, &text);
        let step = file.artifact.step.clone();
        RefusedRung { step, rung: file.rung.clone(), code, text, metrics }
    }

    /// Refuses torch's rung if no process of the program has GPU work in its trace.
    fn refuse_torch_without_gpu(&mut self, end: &JobResult) -> Option<RefusedRung> {
        let is_on_gpu = std::mem::take(&mut self.torch_with_gpu);
        let text = self.torch_without_gpu.take()?;
        if is_on_gpu {
            // A process that launches nothing, such as one that compiles, lacks nothing.
            return None;
        }
        let file = end.files.iter().find(|f| f.artifact.kind == ArtifactKind::TorchTrace)?;
        Some(self.refuse(file, RejectedReport { code: NO_GPU_ROWS, text, metrics: Vec::new() }))
    }

    /// Adds what was imported. `ranges` is the index of the first range replay result, if any.
    fn add(&mut self, imported: ImportedArtifact, ranges: Option<usize>) {
        let known = self.profile.gaps.len();
        imported.add_to(&mut self.profile, &mut self.sidecars);
        // Several passes report the same gap; it is kept once.
        let mut new = self.profile.gaps.split_off(known);
        new.retain(|gap| !self.profile.gaps.contains(gap));
        self.profile.gaps.append(&mut new);
        if let Some(first) = ranges {
            copy_to_regions(&mut self.profile, first);
        }
    }

    /// Marks the last attempt at a rung, which the host counted as a success, as failed.
    fn mark_refused(&mut self, rung: &RungId, code: &str, text: &str) {
        if let Some(record) = self.profile.ladder.iter_mut().rev().find(|r| r.rung == *rung) {
            record.ok = false;
            record.code = code.to_owned();
            record.message = text.to_owned();
        }
    }

    /// Joins cases by name: one report has the check, another the times.
    fn cases(&mut self, cases: Vec<CaseResult>) {
        for case in cases {
            match self.profile.cases.iter_mut().find(|c| c.name == case.name) {
                Some(known) => {
                    known.timing = case.timing.or(known.timing.take());
                    if !case.baselines.is_empty() {
                        known.baselines = case.baselines;
                    }
                    known.correctness = match (case.correctness, known.correctness.take()) {
                        // A check that was skipped must not hide one that was made.
                        (Some(new), Some(old)) if new.verdict == CheckVerdict::Unchecked => {
                            Some(old)
                        }
                        (new, old) => new.or(old),
                    };
                }
                None => self.profile.cases.push(case),
            }
        }
    }

    /// A program that ended under the collector without opening a range. NVTX loads the collector
    /// at the program's first call of NVTX: without a log there was none, so the program has run as
    /// on the lowest rung and is counted there.
    fn without_ranges(&mut self, end: &JobResult, request: &Request) {
        if self.rung != RungId::Nvtx || !matches!(request.target, ProfileTarget::Program(_)) {
            return;
        }
        if end.files.iter().any(|file| file.artifact.kind == ArtifactKind::NvtxLog) {
            let is_damaged = self.profile.gaps.iter().any(|gap| gap.code == "damaged_report");
            if self.profile.regions.is_empty() && !is_damaged {
                self.profile.gaps.push(Gap {
                    code: "no_ranges".to_owned(),
                    text: "the program calls NVTX, but opened no range".to_owned(),
                });
            }
            return;
        }
        let Some(record) =
            self.profile.ladder.iter().rev().find(|r| r.rung == RungId::Nvtx && r.ok)
        else {
            return;
        };
        let plain = record_on(RungId::Cpu, record);
        let text = "the program never called NVTX: it uses no NVTX library, or ended before its \
                    first range";
        self.mark_refused(&RungId::Nvtx, "no_nvtx", text);
        self.profile.ladder.push(plain);
        self.rung = RungId::Cpu;
    }

    /// A run under CUPTI that brought only ranges counts as the rung `nvtx`.
    fn without_cupti(&mut self, code: &str, text: &str) {
        let gap = Gap { code: code.to_owned(), text: format!("cupti: {text}") };
        self.profile.gaps.push(gap);
        let Some(record) = self.profile.ladder.iter().rev().find(|r| r.rung == RungId::Cupti)
        else {
            return;
        };
        let ranges = record_on(RungId::Nvtx, record);
        self.mark_refused(&RungId::Cupti, code, text);
        self.profile.ladder.push(ranges);
        if self.rung == RungId::Cupti {
            self.rung = RungId::Nvtx;
        }
    }

    /// Records a program's exit status, with a warning if it is not 0.
    fn program_status(&mut self, end: &JobResult, request: &Request) {
        let last = end.rungs.iter().rev().find(|r| is_pass_step(&r.step));
        if last.is_some_and(|r| request.window.stopped(r.seconds)) {
            self.program_exit = Some(0);
            return;
        }
        let status = last.and_then(|r| r.exit).unwrap_or(0);
        if matches!(request.target, ProfileTarget::Program(_)) {
            self.program_exit = last.and_then(|r| r.exit);
        }
        if status != 0 && matches!(request.target, ProfileTarget::Program(_)) {
            // It may end otherwise without the tool.
            let tool = last.and_then(|r| RungInfo::find(&RungId::from(r.rung.as_str())));
            let under = tool.and_then(|rung| rung.tool.name()).map(|name| format!(" under {name}"));
            let ended = format!("the program ended with status {status}");
            let text = format!("{ended}{}", under.unwrap_or_default());
            let code = "program_status";
            // Each pass runs the program again.
            let says_so = |known: &&mut Gap| {
                let rest = known.text.strip_prefix(&ended);
                known.code == code && rest.is_some_and(|r| r.is_empty() || r.starts_with(' '))
            };
            match self.profile.warnings.iter_mut().find(says_so) {
                Some(known) if known.text != text => known.text = ended,
                Some(_) => {}
                None => self.profile.warnings.push(Gap { code: code.to_owned(), text }),
            }
        }
    }

    /// Says with the sanitizer's checks that crashed how the program ends alone.
    pub(super) fn tell_end_alone(&mut self, text: &str) {
        for result in &mut self.profile.sanitizer {
            result.note = result.note.replace(SEE_ALONE, text);
        }
    }

    /// Adds the record of a run without a tool.
    pub(super) fn add_plain_run(&mut self, plain: &JobResult) {
        self.profile.ladder.extend(plain.rungs.iter().cloned());
        self.program_exit = plain.last_rung(PLAIN_STEP).and_then(program_error::shell_status);
    }

    /// Whether a sanitizer found faults, which explain a program's error.
    pub(super) fn has_findings(&self) -> bool {
        self.profile.sanitizer.iter().any(|result| result.verdict == SanitizerVerdict::Found)
    }

    /// Whether nothing was measured.
    pub(super) fn is_empty(&self) -> bool {
        let p = &self.profile;
        p.launches.is_empty()
            && self.survey.is_empty()
            && p.regions.is_empty()
            && p.sanitizer.is_empty()
            && p.cases.iter().all(|c| c.timing.is_none() && c.correctness.is_none())
    }
}

/// The record of a rung that counts as the lower rung `id`.
fn record_on(id: RungId, record: &RungRecord) -> RungRecord {
    let loses = RungInfo::find(&id).map_or("", |info| info.loses).to_owned();
    RungRecord { rung: id.into(), loses, ..record.clone() }
}

fn empty_case(case: &Case, vars: &[String]) -> CaseResult {
    let named =
        |row: &Vec<i64>| vars.iter().cloned().zip(row.iter().copied()).collect::<BTreeMap<_, _>>();
    let sizes = case.groups.iter().map(|group| named(&group.sizes)).collect();
    CaseResult { name: case.name.clone(), sizes, ..CaseResult::default() }
}

/// Rewrites source paths to this machine's, relative to the project where possible.
fn localize(imported: &mut ImportedArtifact, info: &DraftInfo, project: &Path) {
    for cause in imported.sanitizer.iter_mut().flat_map(|s| &mut s.causes) {
        let Some(file) = &mut cause.file else { continue };
        // Compilers record either the path as given or the absolute path; both end alike.
        let matches_source = |there: &str| {
            let inner = there.trim_start_matches("../");
            file.as_str() == there || file.ends_with(&format!("/work/{inner}"))
        };
        if let Some(source) = info.sources.iter().find(|s| matches_source(&s.host_name)) {
            let here = source.local_path.strip_prefix(project).unwrap_or(&source.local_path);
            *file = here.display().to_string();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::profile::Correctness;

    fn case(verdict: &str) -> CaseResult {
        let correctness = Correctness { verdict: verdict.into(), ..Correctness::default() };
        CaseResult { name: "c".into(), correctness: Some(correctness), ..CaseResult::default() }
    }

    #[test]
    fn what_prepares_a_run_is_no_rung_of_it() {
        let spool = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(spool.path(), "r", None).unwrap();
        let request = Request::new(
            rgpu_plan::kernel::ProfileMode::Ncu,
            ProfileTarget::Program(Default::default()),
        );
        let rung_after = |steps: &[(&str, &str)]| {
            let ended = steps.iter().map(|(step, rung)| ((*step).into(), Some((*rung).into())));
            let end = JobResult { ended: ended.collect(), ..JobResult::default() };
            let mut builder = ProfileBuilder::default();
            builder.add_job(&folder, &end, &request).unwrap();
            builder.rung().to_owned()
        };
        let made = [("python", "python"), ("build", "build.wheels")];
        assert_eq!(rung_after(&made), "none");
        assert_eq!(rung_after(&[made[0], ("profile", "host"), ("export", "nsys.export")]), "host");
    }

    #[test]
    fn a_program_without_ranges_called_nvtx_or_never_did() {
        let program = Request::new(
            rgpu_plan::kernel::ProfileMode::Nvtx,
            ProfileTarget::Program(Default::default()),
        );
        let log = HostFile {
            host_path: "raw/nvtx.jsonl.1".into(),
            rung: RungId::Nvtx,
            artifact: Artifact { kind: ArtifactKind::NvtxLog, ..Artifact::default() },
        };
        let after = |files: Vec<HostFile>| {
            let record = RungRecord { rung: "nvtx".into(), ok: true, ..RungRecord::default() };
            let end = JobResult { files, ..JobResult::default() };
            let mut builder = ProfileBuilder { rung: RungId::Nvtx, ..ProfileBuilder::default() };
            builder.profile.ladder.push(record);
            builder.without_ranges(&end, &program);
            let codes: Vec<String> = builder.profile.gaps.iter().map(|g| g.code.clone()).collect();
            (builder.rung.to_string(), builder.profile.ladder[0].code.clone(), codes)
        };
        assert_eq!(after(Vec::new()), ("cpu".to_owned(), "no_nvtx".to_owned(), Vec::new()));
        let logged = ("nvtx".to_owned(), String::new(), vec!["no_ranges".to_owned()]);
        assert_eq!(after(vec![log]), logged);
    }

    #[test]
    fn a_process_without_gpu_work_is_no_gap_of_torch_if_another_process_has_some() {
        let trace = HostFile {
            host_path: "raw/torch.trace.7.json".into(),
            rung: RungId::Torch,
            artifact: Artifact { kind: ArtifactKind::TorchTrace, ..Artifact::default() },
        };
        let end = JobResult { files: vec![trace], ..JobResult::default() };
        let after = |torch_with_gpu| {
            let text = "the program used the GPU, but nothing was recorded".to_owned();
            let mut builder = ProfileBuilder {
                torch_without_gpu: Some(text),
                torch_with_gpu,
                ..ProfileBuilder::default()
            };
            let refused = builder.refuse_torch_without_gpu(&end);
            let codes: Vec<String> = builder.profile.gaps.iter().map(|g| g.code.clone()).collect();
            (refused.map(|rung| rung.code), codes)
        };
        assert_eq!(after(true), (None, Vec::new()));
        assert_eq!(after(false), (Some(NO_GPU_ROWS), vec![NO_GPU_ROWS.to_owned()]));
    }

    #[test]
    fn a_refused_rung_of_the_sanitizer_is_left_out_of_its_own_step_only() {
        let mut request = Request::new(
            rgpu_plan::kernel::ProfileMode::Sanitizer,
            ProfileTarget::Program(Default::default()),
        );
        for (step, rung) in [("sanitizer-memcheck", RungId::Guard), ("profile", RungId::NcuBasic)] {
            let (step, text) = (step.to_owned(), String::new());
            let refused = RefusedRung { step, rung, code: "empty", text, metrics: Vec::new() };
            refused.exclude_from(&mut request, &mut crate::run::Reporters::default());
        }
        let skipped: Vec<&str> = request.skip.iter().map(String::as_str).collect();
        assert_eq!(skipped, ["ncu.basic", "sanitizer-memcheck/guard"]);
    }

    #[test]
    fn a_check_that_was_not_made_never_hides_one_that_was() {
        let mut builder = ProfileBuilder::default();
        builder.cases(vec![case("right")]);
        builder.cases(vec![case("unchecked")]);
        assert_eq!(builder.profile.cases[0].correctness.as_ref().unwrap().verdict, "right");
        builder.cases(vec![case("wrong")]);
        assert_eq!(builder.profile.cases[0].correctness.as_ref().unwrap().verdict, "wrong");
    }
}
