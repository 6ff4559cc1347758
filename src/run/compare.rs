//! Compares two kernels on one device. Both sides' plans run as one job; the results are split into
//! one profile per side, and the paired timings are read.
//!
//! Each side has its own folder in the run (`a/`, `b/`), laid out like any run's. If a pass of ncu
//! or nsys fails on one side, the other side and the timings stand, and the comparison says why the
//! pass is missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_case::RunnerReport;
use rgpu_protocol::{Digest, GpuChoice, HostFacts, Outcome, RungRecord};

use super::assemble::{self, ProfileBuilder};
use super::bundle_reader::submission;
use super::event::RunEvent;
use super::facts::FactsCache;
use super::job::{self, HostFile, JobResult, RunContext};
use super::listings::{self, CompiledFiles};
use super::local_build;
use super::programs::Programs;
use crate::analysis::Thresholds;
use crate::analysis::compare::Paired;
use crate::bundle::{self, BlobSource, Bundle, Packer};
use crate::error::{Exit, Failure, Result};
use crate::kernel::{Entry, Mode};
use crate::model::comparison::{Part, PartName};
use crate::model::{Profile, RungId, Sidecars};
use crate::remote::{HostLink, RemoteSpec};
use crate::store::EnvRecord;
use crate::store::RunFolder;
use crate::tool::{self, Expectations, JobName, PairDraft, PlanError, Request, SIDES, Target};

/// A comparison sends at most this many plans.
const MAX_PLANS_PER_COMPARISON: u32 = 24;

/// The inputs of a comparison.
pub struct CompareRun<'a> {
    /// The request of each side; its mode is set to each of [`CompareRun::looks`] in turn.
    pub requests: [Request; 2],
    /// The tools to run besides the timings, in order: ncu, nsys. Empty for the timings alone.
    pub looks: Vec<Mode>,
    /// The remote's definition.
    pub spec: &'a RemoteSpec,
    /// The host's facts, cached between runs.
    pub cache: FactsCache,
    /// rgpu's own programs for the host.
    pub programs: &'a Programs,
    /// The user's project.
    pub project: &'a Path,
    /// The folder of the base kernel's source; the state of its repository is recorded.
    pub source_folder: &'a Path,
    /// The user's thresholds for the rules.
    pub thresholds: &'a Thresholds,
    /// Paths where this machine may have nvdisasm, for hosts without one.
    pub nvdisasm: &'a [PathBuf],
    /// The current time in Unix seconds.
    pub now_s: i64,
    /// Hashes input files, each once per run.
    pub packer: Packer,
}

/// The result of a comparison.
#[derive(Debug)]
pub struct ComparisonOutcome {
    /// The profile of each side with its sidecars.
    pub profiles: [(Profile, Sidecars); 2],
    /// The paired timings by case; empty without a GPU.
    pub paired: Vec<Paired>,
    /// For each tool, its result or why there is none.
    pub builder: Vec<Part>,
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
    pass_results: Vec<(Mode, PassResult)>,
}

impl CompareRun<'_> {
    /// Runs both sides to the end.
    ///
    /// # Errors
    /// The link, the host or the run folder fails, a side does not build or computes wrong results,
    /// or the user cancels.
    pub async fn run(
        mut self,
        link: &mut HostLink,
        context: &mut RunContext<'_>,
    ) -> Result<ComparisonOutcome> {
        let mut facts = match self.cache.load(self.now_s) {
            Some(facts) => facts,
            None => self.ask_facts(link, context).await?,
        };
        context
            .folder
            .write_json("env.json", &EnvRecord::new(Some(facts.clone()), self.source_folder))?;
        let mut sides = Vec::new();
        for (name, request) in SIDES.into_iter().zip(self.requests.clone()) {
            let builder = ProfileBuilder::new(&request, self.project, self.thresholds);
            let folder = context.folder.side(name)?;
            sides.push(SideBuilder { name, request, builder, folder, pass_results: Vec::new() });
        }
        for (side, sequence) in sides.iter_mut().zip(1..) {
            self.compile_here(link, &facts, context, side, sequence).await?;
        }
        let mut built = BTreeMap::new();
        let mut seq = 1;
        let looks = if self.looks.is_empty() { vec![Mode::Bench] } else { self.looks.clone() };
        for (at, mode) in looks.into_iter().enumerate() {
            let mut open = [true, true];
            for side in &mut sides {
                side.request.mode = mode;
                side.request.skip.clear();
            }
            while open != [false, false] && seq <= MAX_PLANS_PER_COMPARISON {
                let planned = self.plan(&sides, open, &facts, context, seq);
                let PairDraft { draft, expect } = match planned {
                    Ok(planned) => planned,
                    // A later pass that cannot be planned is left out; the rest stands.
                    Err(failure) if at > 0 => {
                        sides.iter_mut().zip(open).filter(|(_, open)| *open).for_each(
                            |(side, _)| side.pass_results.push((mode, Err(failure.to_string()))),
                        );
                        break;
                    }
                    Err(failure) => return Err(failure),
                };
                let job = draft.plan.job.clone();
                let write_plan = |bundle: Bundle, context: &RunContext<'_>| {
                    let Bundle { plan, mut blobs, .. } = bundle;
                    context.folder.write_json(&format!("plan-{seq}.json"), &plan)?;
                    context.folder.write("commands.sh", bundle::commands(&plan).as_bytes())?;
                    blobs.extend(built.clone());
                    Ok(submission(plan, blobs))
                };
                match job::pack_and_submit(link, &mut self.packer, &draft, context, write_plan)
                    .await
                {
                    Err(failure) if failure.code == "facts_changed" => {
                        self.cache.forget();
                        facts = self.ask_facts(link, context).await?;
                        continue;
                    }
                    other => other?,
                }
                let end = job::follow_to_end(link, &job, &[], context).await?;
                seq += 1;
                for (index, expect) in expect.into_iter().enumerate() {
                    let Some(expect) = expect else { continue };
                    open[index] = self.take(&mut sides[index], &end, &expect, mode, context)?;
                }
                for side in &sides {
                    if let Some(failure) = failure_of_side(side, link, &end) {
                        return Err(failure);
                    }
                }
                for side in &mut sides {
                    // The remaining plans use the same GPU.
                    if let Some(uuid) = &end.gpu {
                        side.request.gpu = GpuChoice::Uuid(uuid.clone());
                    }
                    self.reuse(side, &mut built)?;
                }
            }
        }
        // Without timings or references there is nothing to compare.
        for side in sides.iter().filter(|_| facts.gpus.is_empty()) {
            let Target::Kernel { spec, .. } = &side.request.target else { continue };
            if side.builder.rung() == RungId::None {
                let ladder = &side.builder.profile.ladder;
                return Err(
                    PlanError::no_gpu(&facts.remote, spec, side.request.mode, ladder).into()
                );
            }
        }
        let folders: Vec<RunFolder> = sides.iter().map(|side| side.folder.clone()).collect();
        let mut made = finish(sides, facts.clone(), context)?;
        let mut built = Vec::new();
        for ((profile, sidecars), folder) in made.profiles.iter_mut().zip(&folders) {
            built.push(CompiledFiles::new(folder, &profile.artifacts, sidecars.hotspots.as_mut()));
        }
        let listings = listings::fill(link, context, &facts, self.nvdisasm, &mut built).await;
        for ((profile, _), listings) in made.profiles.iter_mut().zip(listings) {
            profile.artifacts.extend(listings);
        }
        Ok(made)
    }

    async fn ask_facts(
        &self,
        link: &mut HostLink,
        context: &mut RunContext<'_>,
    ) -> Result<HostFacts> {
        let Self { spec, programs, now_s, .. } = self;
        self.cache.ask(link, spec, programs, *now_s, context.reporter, &context.cancel).await
    }

    fn plan(
        &self,
        sides: &[SideBuilder],
        open: [bool; 2],
        facts: &HostFacts,
        context: &mut RunContext<'_>,
        seq: u32,
    ) -> Result<PairDraft> {
        let toolbox = self.programs.toolbox(&facts.agent.arch);
        let job = JobName { run: context.record.id.clone(), sequence: seq };
        let mut requests = [None, None];
        for ((slot, side), open) in requests.iter_mut().zip(sides).zip(open) {
            *slot = open.then_some(&side.request);
        }
        let planned = tool::plan_pair(requests, facts, &toolbox, &job)?;
        let mut sent_notes: Vec<&String> = Vec::new();
        for note in planned.expect.iter().flatten().flat_map(|e| &e.notes) {
            if !sent_notes.contains(&note) {
                sent_notes.push(note);
                context.reporter.say(&RunEvent::Note { text: note });
            }
        }
        Ok(planned)
    }

    /// Compiles a side on this machine for a host without a compiler.
    async fn compile_here(
        &self,
        link: &HostLink,
        facts: &HostFacts,
        context: &mut RunContext<'_>,
        side: &mut SideBuilder,
        sequence: u32,
    ) -> Result<()> {
        let Target::Kernel { spec, .. } = &side.request.target else { return Ok(()) };
        let wheels = side.request.build.fetch && facts.tool("cc").is_some();
        let has = wheels || !tool::compilers(facts, &spec.entry).is_empty();
        if has || super::is_local(link) || !matches!(spec.entry, Entry::Device(_)) {
            return Ok(());
        }
        let mut own = RunContext {
            folder: &side.folder,
            record: &mut *context.record,
            reporter: &mut *context.reporter,
            cancel: context.cancel.clone(),
            input: None,
        };
        let (end, expect) =
            match local_build::build(&side.request, facts, self.programs, sequence, &mut own).await
            {
                Ok(built) => built,
                // The plan reports the missing compiler.
                Err(failure) if failure.code == "no_compiler" => return Ok(()),
                Err(failure) => return Err(failure),
            };
        side.request.prebuilt =
            side.builder.take_local_build(&side.folder, &end, &expect, &side.request)?;
        if end.step_ok("build") {
            return Ok(());
        }
        side.builder.job = Some(end);
        let failure = RemoteSpec::local().open().ok().and_then(|l| side.builder.failure(&*l));
        Err(failure.unwrap_or_else(|| {
            Failure::new(Exit::Kernel, "does_not_compile", "the kernel does not compile")
        }))
    }

    /// Takes in one side's part of an ended job. Returns whether the side needs another plan with a
    /// lower rung.
    fn take(
        &self,
        side: &mut SideBuilder,
        end: &JobResult,
        expect: &Expectations,
        mode: Mode,
        context: &mut RunContext<'_>,
    ) -> Result<bool> {
        let end = part_of(end, side.name);
        move_logs(context.folder, &side.folder, side.name)?;
        side.builder.expect(expect);
        let refused = side.builder.take(&side.folder, &end, &side.request)?;
        let rung = end.rung_of("profile").map(String::from);
        let failure_words = end.last_rung("profile").map(failure_text);
        side.builder.job = Some(end);
        if let Some(refused) = refused {
            context.reporter.say(&RunEvent::Refused {
                rung: &refused.rung,
                code: refused.code,
                text: &refused.text,
            });
            side.pass_results.retain(|(m, _)| *m != mode);
            side.pass_results.push((mode, Err(format!("{}: {}", refused.rung, refused.text))));
            match refused.metrics.is_empty() {
                true => drop(side.request.skip.insert(refused.rung.into())),
                false => side.request.drop_metrics.extend(refused.metrics),
            }
            return Ok(true);
        }
        let result = rung.ok_or_else(|| {
            let left_out = expect.left_out.first().map(|r| format!("{}: {}", r.rung, r.words));
            failure_words.or(left_out).unwrap_or_else(|| "the step did not run".to_owned())
        });
        side.pass_results.retain(|(m, _)| *m != mode);
        side.pass_results.push((mode, result));
        Ok(false)
    }

    /// Lets the next plan reuse the files built so far.
    fn reuse(
        &mut self,
        side: &mut SideBuilder,
        built: &mut BTreeMap<Digest, BlobSource>,
    ) -> Result<()> {
        side.request.reuse.clear();
        for (path, local) in &side.builder.built {
            side.request.reuse.push(self.packer.built(path, local, built)?);
        }
        Ok(())
    }
}

/// The failed rung and its reason.
fn failure_text(record: &RungRecord) -> String {
    match record.words.is_empty() {
        true => format!("{}: {}", record.rung, tool::reason(&record.code).title),
        false => format!("{}: {}", record.rung, record.words),
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
    let from = run.path().join("log");
    let Ok(entries) = std::fs::read_dir(&from) else { return Ok(()) };
    let to = side.path().join("log");
    std::fs::create_dir_all(&to).map_err(failed)?;
    for entry in entries.filter_map(std::result::Result::ok) {
        let file = entry.file_name().to_string_lossy().into_owned();
        if let Some(own) = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')) {
            std::fs::rename(entry.path(), to.join(own)).map_err(failed)?;
        }
    }
    Ok(())
}

fn finish(
    sides: Vec<SideBuilder>,
    facts: HostFacts,
    context: &RunContext<'_>,
) -> Result<ComparisonOutcome> {
    let mut paired = Vec::new();
    let mut pass_results: Vec<[(Mode, PassResult); 2]> = Vec::new();
    let mut profiles = Vec::new();
    let mut timed = true;
    for side in sides {
        if side.name == SIDES[0] {
            paired = read_paired(&side.folder);
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
        let made = assemble::profile(side.builder, &side.request, facts.clone(), &record);
        timed &= made.0.gpu.is_some();
        profiles.push(made);
    }
    let [a, b] = <[(Profile, Sidecars); 2]>::try_from(profiles)
        .map_err(|_| Failure::new(Exit::Bug, "bug", "a comparison has other than two sides"))?;
    let mut builder = vec![Part {
        part: PartName::Speedup,
        there: !paired.is_empty(),
        note: match (paired.is_empty(), timed) {
            (false, _) => "timed calls interleaved a b b a in one process on one device".to_owned(),
            (true, true) => "the interleaved calls gave no times".to_owned(),
            (true, false) => "the host has no GPU: the references ran on the CPU".to_owned(),
        },
    }];
    for mode in [Mode::Nsys, Mode::Ncu] {
        builder.push(part(mode, pass_results.iter().find(|[(m, _), _]| *m == mode)));
    }
    Ok(ComparisonOutcome { profiles: [a, b], paired, builder })
}

/// The comparison's entry for a tool: whether both sides have its results, and if not, why.
fn part(mode: Mode, pass_results: Option<&[(Mode, PassResult); 2]>) -> Part {
    let name = mode.name();
    let reached = |result: &PassResult| match result {
        // A ladder may end on another tool's rung.
        Ok(rung) if rung.starts_with(name) => Ok(rung.clone()),
        Ok(rung) => Err(format!("ended on rung `{rung}`")),
        Err(why) => Err(why.clone()),
    };
    let (there, note) = match pass_results {
        None => (false, "not asked for".to_owned()),
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

/// The paired timings in the runner's report.
fn read_paired(side: &RunFolder) -> Vec<Paired> {
    let Ok(bytes) = side.read("raw/time.json") else { return Vec::new() };
    let Ok(report) = serde_json::from_slice::<RunnerReport>(&bytes) else { return Vec::new() };
    let to_paired = |set: rgpu_case::CaseReport| {
        let paired = set.paired?;
        let sound = paired.ci95.iter().all(|x| x.is_finite() && *x > 0.0);
        sound.then_some(Paired {
            case: set.name,
            speedup: paired.speedup,
            ci95: paired.ci95,
            rounds: paired.rounds as u64,
        })
    };
    report.data_sets.into_iter().filter_map(to_paired).collect()
}
