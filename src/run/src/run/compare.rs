//! Compares two kernels on one device. Both sides' plans run as one job; the results are split into
//! one profile per side, and the paired timings are read: those of interleaved calls in one
//! process, or of processes that alternated.
//!
//! Each side has its own folder in the run (`a/`, `b/`), laid out like any run's. If a pass of ncu
//! or nsys fails on one side, the other side and the timings are kept, and the comparison says why
//! the pass is missing.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use rgpu_case::RunnerReport;
use rgpu_protocol::{GpuChoice, HostFacts, Outcome, RungRecord};

use super::assemble::{self, ProfileBuilder};
use super::event::RunEvent;
use super::job::{HostFile, JobResult, RunContext};
use super::lifecycle::{PlanDriver, RunError, RunSession};
use super::listings::{self, CompiledFiles};
use super::local_build;
use super::pass_planner::NextStep;
use crate::disasm::NvdisasmSearch;
use crate::store::RunFolder;
use rgpu_analysis::Thresholds;
use rgpu_analysis::compare::PairedTimes;
use rgpu_model::comparison::{Part, PartName, TimeSource};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::{Profile, RungId, Sidecars};
use rgpu_plan::kernel::ProfileMode;
use rgpu_plan::tool::{
    self, Draft, DraftInfo, JobName, PairDraft, PlanError, ProfileTarget, Request, SIDES,
    TIME_REPORTS,
};
use rgpu_remote::HostLink;

/// A comparison sends at most this many plans.
const MAX_PLANS_PER_COMPARISON: u32 = 24;

/// The inputs of a comparison.
pub struct CompareRun<'a> {
    /// The request of each side; its mode is set to each of [`CompareRun::passes`] in turn.
    pub requests: [Request; 2],
    /// The tools to run besides the timings, in order: ncu, nsys. Empty for the timings alone.
    pub passes: Vec<ProfileMode>,
    /// The folder of the user's project.
    pub project: &'a Path,
    /// The folder of the base kernel's source; the state of its repository is recorded.
    pub source_folder: &'a Path,
    /// The user's thresholds for the rules.
    pub thresholds: &'a Thresholds,
    /// Paths where this machine may have nvdisasm, for hosts without one.
    pub nvdisasm: &'a NvdisasmSearch,
}

/// The result of a comparison.
#[derive(Debug)]
pub struct ComparisonOutcome {
    /// The profile of each side with its sidecars.
    pub profiles: [(Profile, Sidecars); 2],
    /// The paired timings by case; empty without a GPU.
    pub paired: Vec<PairedTimes>,
    /// For each tool, its result or why there is none.
    pub parts: Vec<Part>,
    /// The files that each side built: path on the host, and path on this machine.
    pub built: [Vec<(String, PathBuf)>; 2],
}

/// The rung on which a pass of one side ended, or why there is none.
type PassResult = std::result::Result<String, String>;

/// The state of one side while the comparison runs.
struct SideBuilder {
    name: &'static str,
    request: Request,
    builder: ProfileBuilder,
    folder: RunFolder,
    /// The result of each pass.
    pass_results: Vec<(ProfileMode, PassResult)>,
    /// Whether the current pass needs another plan for this side.
    open: bool,
    /// Facts about the current plan that are not in the plan; `None` if the side is not part of
    /// it.
    draft_info: Option<DraftInfo>,
}

impl CompareRun<'_> {
    /// Runs both sides to the end.
    ///
    /// # Errors
    /// The link, the host or the run folder fails, a side does not build or computes wrong results,
    /// or the user cancels.
    pub async fn run(
        self,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<ComparisonOutcome> {
        let Self { requests, passes, project, source_folder, thresholds, nvdisasm } = self;
        let facts = session.facts(context).await?;
        let mut sides = Vec::new();
        for ((name, request), sequence) in SIDES.into_iter().zip(requests).zip(1..) {
            let builder = ProfileBuilder::new(&request, project, thresholds);
            let folder = context.folder.side(name)?;
            let (pass_results, open, draft_info) = (Vec::new(), false, None);
            let mut side =
                SideBuilder { name, request, builder, folder, pass_results, open, draft_info };
            side.compile_here(sequence, session, &facts, context).await?;
            sides.push(side);
        }
        let passes = if passes.is_empty() { vec![ProfileMode::Bench] } else { passes };
        let mut plans = CompareDriver {
            sides,
            passes: passes.into(),
            mode: ProfileMode::Bench,
            passes_begun: 0,
            source_folder,
        };
        session.run_plans(&mut plans, context).await?;
        let facts = session.facts(context).await?;
        let sides = plans.sides;
        // Without timings or references there is nothing to compare.
        for side in sides.iter().filter(|_| facts.gpus.is_empty()) {
            let ProfileTarget::Kernel { spec, .. } = &side.request.target else { continue };
            if side.builder.rung() == RungId::None {
                let ladder = &side.builder.profile.ladder;
                return Err(
                    PlanError::no_gpu(&facts.remote, spec, side.request.mode, ladder).into()
                );
            }
        }
        let folders: Vec<RunFolder> = sides.iter().map(|side| side.folder.clone()).collect();
        let files: Vec<_> = sides.iter().map(|side| side.builder.built.clone()).collect();
        let mut made = finish(sides, facts.clone(), context)?;
        let mut built = Vec::new();
        for ((profile, sidecars), folder) in made.profiles.iter_mut().zip(&folders) {
            built.push(CompiledFiles::new(folder, &profile.artifacts, sidecars.hotspots.as_mut()));
        }
        let listings =
            listings::write_all_listings(session.link, context, &facts, nvdisasm, &mut built).await;
        for ((profile, _), listings) in made.profiles.iter_mut().zip(listings) {
            profile.artifacts.extend(listings);
        }
        for (slot, files) in made.built.iter_mut().zip(files) {
            *slot = files;
        }
        Ok(made)
    }
}

/// Drafts the plans of a comparison and handles their results. Each pass runs one tool, with as
/// many plans as rungs are refused.
struct CompareDriver<'a> {
    sides: Vec<SideBuilder>,
    /// The tools of the passes after the current one.
    passes: VecDeque<ProfileMode>,
    /// The tool of the current pass.
    mode: ProfileMode,
    passes_begun: u32,
    source_folder: &'a Path,
}

impl CompareDriver<'_> {
    fn begin_pass(&mut self, mode: ProfileMode) {
        self.mode = mode;
        self.passes_begun += 1;
        for side in &mut self.sides {
            side.open = true;
            side.request.mode = mode;
            side.request.skip.clear();
        }
    }
}

impl PlanDriver for CompareDriver<'_> {
    fn max_plans(&self) -> u32 {
        MAX_PLANS_PER_COMPARISON
    }

    fn source_folder(&self) -> Option<&Path> {
        Some(self.source_folder)
    }

    async fn draft(
        &mut self,
        job: &JobName,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<Option<Draft>, RunError> {
        let facts = session.facts(context).await?;
        loop {
            if self.sides.iter().all(|side| !side.open) {
                let Some(mode) = self.passes.pop_front() else { return Ok(None) };
                self.begin_pass(mode);
            }
            let mut requests = [None, None];
            for (slot, side) in requests.iter_mut().zip(&self.sides) {
                *slot = side.open.then_some(&side.request);
            }
            let error = match tool::plan_pair(requests, &facts, &session.host_binaries(&facts), job)
            {
                Ok(PairDraft { draft, infos }) => {
                    report_notes(&infos, context);
                    for (side, info) in self.sides.iter_mut().zip(infos) {
                        side.draft_info = info;
                    }
                    return Ok(Some(draft));
                }
                Err(error) if self.passes_begun == 1 => return Err(error.into()),
                Err(error) => Failure::from(error),
            };
            // A later pass that cannot be planned is left out; the other passes run.
            for side in self.sides.iter_mut().filter(|side| side.open) {
                side.pass_results.push((self.mode, Err(error.to_string())));
                side.open = false;
            }
        }
    }

    fn handle_result(
        &mut self,
        result: JobResult,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<NextStep> {
        for side in &mut self.sides {
            if let Some(info) = side.draft_info.take() {
                side.open = side.add_job(&result, &info, self.mode, context)?;
            }
        }
        for side in &self.sides {
            if let Some(failure) = failure_of_side(side, session.link, &result) {
                return Err(failure);
            }
        }
        for side in &mut self.sides {
            // The remaining plans use the same GPU.
            if let Some(uuid) = &result.gpu {
                side.request.gpu = GpuChoice::Uuid(uuid.clone());
            }
            side.request.reuse = session.add_built_files(&side.builder.built)?;
        }
        Ok(NextStep::Plan)
    }
}

/// Reports the notes of both sides, each once.
fn report_notes(infos: &[Option<DraftInfo>; 2], context: &mut RunContext<'_>) {
    let mut reported: Vec<&String> = Vec::new();
    for note in infos.iter().flatten().flat_map(|info| &info.notes) {
        if !reported.contains(&note) {
            reported.push(note);
            context.reporter.report(&RunEvent::Note { text: note });
        }
    }
}

impl SideBuilder {
    /// Compiles the side on this machine for a host without a compiler.
    async fn compile_here(
        &mut self,
        sequence: u32,
        session: &RunSession<'_>,
        facts: &HostFacts,
        context: &mut RunContext<'_>,
    ) -> Result<()> {
        let mut own = RunContext {
            folder: &self.folder,
            record: &mut *context.record,
            reporter: &mut *context.reporter,
            cancel: context.cancel.clone(),
            input: None,
        };
        let (request, builder) = (&mut self.request, &mut self.builder);
        local_build::compile_here(request, builder, sequence, session, facts, &mut own).await
    }

    /// Adds the side's part of an ended job to its profile. Returns whether the side needs another
    /// plan with a lower rung.
    fn add_job(
        &mut self,
        result: &JobResult,
        info: &DraftInfo,
        mode: ProfileMode,
        context: &mut RunContext<'_>,
    ) -> Result<bool> {
        let end = part_of(result, self.name);
        move_logs(context.folder, &self.folder, self.name)?;
        self.builder.start_plan(info);
        let refused = self.builder.add_job(&self.folder, &end, &self.request)?;
        let rung = end.rung_of("profile").map(String::from);
        let failure_message = end.last_rung("profile").map(failure_text);
        self.builder.job = Some(end);
        self.pass_results.retain(|(m, _)| *m != mode);
        let result = match &refused {
            Some(refused) => Err(format!("{}: {}", refused.rung, refused.text)),
            None => rung.ok_or_else(|| {
                let left_out = info.left_out.first().map(|r| format!("{}: {}", r.rung, r.message));
                failure_message.or(left_out).unwrap_or_else(|| "the step did not run".to_owned())
            }),
        };
        self.pass_results.push((mode, result));
        let needs_another = refused.is_some();
        if let Some(refused) = refused {
            refused.exclude_from(&mut self.request, context.reporter);
        }
        Ok(needs_another)
    }
}

/// The failed rung and its reason.
fn failure_text(record: &RungRecord) -> String {
    if record.message.is_empty() {
        format!("{}: {}", record.rung, tool::reason(&record.code).title)
    } else {
        format!("{}: {}", record.rung, record.message)
    }
}

/// The failure that ends the comparison: a side does not build, is wrong, or cannot be timed.
fn failure_of_side(side: &SideBuilder, link: &HostLink, end: &JobResult) -> Option<Failure> {
    let concerns_side = match &end.outcome {
        Some(Outcome::Failed { step, .. }) => tool::side_of(step, side.name).is_some(),
        Some(Outcome::Done) => true,
        // The failure concerns the whole job, so either side may report it.
        _ => true,
    };
    let mut failure = side.builder.failure(link.remote()).filter(|_| concerns_side)?;
    if failure.place.step.is_some()
        && matches!(end.outcome, Some(Outcome::Failed { .. } | Outcome::Done))
    {
        failure = failure.hint(format!("it is side `{}` of the comparison", side.name));
    }
    Some(failure)
}

/// One side's part of a job, with step names and paths as in a run of its own.
fn part_of(end: &JobResult, side: &str) -> JobResult {
    let own = |path: &str| path.strip_prefix(side)?.strip_prefix('/').map(str::to_owned);
    let mut part = end.clone();
    part.outcome = match &end.outcome {
        Some(Outcome::Failed { step, code }) => Some(match tool::side_of(step, side) {
            Some(step) => Outcome::Failed { step, code: code.clone() },
            None => Outcome::Done,
        }),
        other => other.clone(),
    };
    part.rungs = end
        .rungs
        .iter()
        .filter_map(|r| Some(RungRecord { step: tool::side_of(&r.step, side)?, ..r.clone() }))
        .collect();
    part.ended = end
        .ended
        .iter()
        .filter_map(|(step, rung)| Some((tool::side_of(step, side)?, rung.clone())))
        .collect();
    part.files = end
        .files
        .iter()
        .filter_map(|file| {
            let mut artifact = file.artifact.clone();
            artifact.path = own(&artifact.path)?;
            artifact.step = tool::side_of(&artifact.step, side)?;
            Some(HostFile { host_path: own(&file.host_path)?, rung: file.rung.clone(), artifact })
        })
        .collect();
    part
}

/// Moves a side's logs into its folder, named as in a run of its own.
fn move_logs(run: &RunFolder, side: &RunFolder, name: &str) -> Result<()> {
    let failed = |e: std::io::Error| {
        Failure::new(Exit::Disk, "disk", "cannot write the run folder").cause(e)
    };
    let Ok(logs) = run.files().folder("log").and_then(|log| log.entries()) else { return Ok(()) };
    let side = Path::new(side.path().file_name().unwrap_or_default()).join("log");
    run.files().make_folder(&side).map_err(failed)?;
    for log in logs {
        let file = log.path.to_string_lossy().into_owned();
        if let Some(own) = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')) {
            let from = Path::new("log").join(&log.path);
            run.files().rename(from, side.join(own)).map_err(failed)?;
        }
    }
    Ok(())
}

fn finish(
    sides: Vec<SideBuilder>,
    facts: HostFacts,
    context: &RunContext<'_>,
) -> Result<ComparisonOutcome> {
    let paired = match sides.as_slice() {
        [a, b] => read_paired(&a.folder, &b.folder),
        _ => Vec::new(),
    };
    let mut pass_results: Vec<[(ProfileMode, PassResult); 2]> = Vec::new();
    let mut profiles = Vec::new();
    let mut timed = true;
    for side in sides {
        if side.name == SIDES[0] {
            pass_results = side.pass_results.iter().map(|l| [l.clone(), l.clone()]).collect();
        } else {
            for ([_, second], other) in pass_results.iter_mut().zip(side.pass_results.iter()) {
                *second = other.clone();
            }
        }
        let mut record = context.record.clone();
        record.title = format!("side {} of {}", side.name, context.record.title);
        record.jobs.clear();
        side.folder.save(&record)?;
        let made = assemble::build_profile(side.builder, &side.request, facts.clone(), &record);
        timed &= made.0.gpu.is_some();
        profiles.push(made);
    }
    let [a, b] = <[(Profile, Sidecars); 2]>::try_from(profiles)
        .map_err(|_| Failure::new(Exit::Bug, "bug", "a comparison has other than two sides"))?;
    let mut parts = vec![Part {
        part: PartName::Speedup,
        there: !paired.is_empty(),
        note: match (paired.first(), timed) {
            (Some(PairedTimes { source: TimeSource::Abba, .. }), _) => {
                "timed calls interleaved a b b a in one process on one device"
            }
            (Some(_), _) => "timed in processes of each side, in the order a b b a, on one device",
            (None, true) => "the interleaved calls gave no times",
            (None, false) => "the host has no GPU",
        }
        .to_owned(),
    }];
    for mode in [ProfileMode::Nsys, ProfileMode::Ncu] {
        parts.push(part(mode, pass_results.iter().find(|[(m, _), _]| *m == mode)));
    }
    Ok(ComparisonOutcome { profiles: [a, b], paired, parts, built: Default::default() })
}

/// The comparison's entry for a tool: whether both sides have its results, and if not, why.
fn part(mode: ProfileMode, pass_results: Option<&[(ProfileMode, PassResult); 2]>) -> Part {
    let name = mode.name();
    let reached = |result: &PassResult| match result {
        // A ladder may end on another tool's rung.
        Ok(rung) if rung.starts_with(name) => Ok(rung.clone()),
        Ok(rung) => Err(format!("ended on rung `{rung}`")),
        Err(why) => Err(why.clone()),
    };
    let (there, note) = match pass_results {
        None => (false, "not requested".to_owned()),
        Some([(_, a), (_, b)]) => match (reached(a), reached(b)) {
            (Ok(a), Ok(b)) if a == b => (true, format!("rung `{a}` on both sides")),
            (Ok(a), Ok(b)) => (true, format!("rung `{a}` on side a, `{b}` on side b")),
            (Err(a), Err(b)) if a == b => (false, a),
            (a, b) => {
                let reason = |side: &str, r: &std::result::Result<String, String>| {
                    r.as_ref().err().map(|why| format!("side {side}: {why}"))
                };
                let both = [reason("a", &a), reason("b", &b)];
                (false, both.into_iter().flatten().collect::<Vec<_>>().join("; "))
            }
        },
    };
    Part { part: name.into(), there, note }
}

/// The paired timings in the reports of the runner or the harness.
fn read_paired(a: &RunFolder, b: &RunFolder) -> Vec<PairedTimes> {
    let read = |side: &RunFolder, report: &str| {
        let bytes = side.read(report).ok()?;
        crate::saved_json::from_slice::<RunnerReport>(&bytes).ok()
    };
    let [first, again] = TIME_REPORTS;
    let Some(report) = read(a, first) else { return Vec::new() };
    if let [Some(a2), Some(b1), Some(b2)] = [read(a, again), read(b, first), read(b, again)] {
        let timing = |report: &RunnerReport, name: &str| {
            let case = report.cases.iter().find(|case| case.name == name)?;
            case.timing.clone().filter(|timing| timing.source != rgpu_case::TimingSource::Cpu)
        };
        let paired = |case: &rgpu_case::CaseReport| {
            let [a1, a2] = [timing(&report, &case.name)?, timing(&a2, &case.name)?];
            let [b1, b2] = [timing(&b1, &case.name)?, timing(&b2, &case.name)?];
            PairedTimes::from_processes(&case.name, [&a1, &a2], [&b1, &b2])
        };
        return report.cases.iter().filter_map(paired).collect();
    }
    let to_paired = |case: rgpu_case::CaseReport| {
        let paired = case.paired?;
        let sound = paired.ci95.iter().all(|x| x.is_finite() && *x > 0.0);
        sound.then_some(PairedTimes {
            case: case.name,
            speedup: paired.speedup_of_other,
            ci95: paired.ci95,
            rounds: paired.rounds as u64,
            source: TimeSource::Abba,
        })
    };
    report.cases.into_iter().filter_map(to_paired).collect()
}
