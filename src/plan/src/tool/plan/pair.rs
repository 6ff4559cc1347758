//! Makes one plan from two requests: both kernels are built, checked, timed against each other in
//! one process and then profiled one after the other, under one lock of one GPU.
//!
//! The plan of each side moves into a folder of the job (`a/`, `b/`), and its steps are renamed
//! `a-build`, `b-verify` …; one step `pair` replaces the two `time` steps. A kernel in Python runs
//! in a process of its own: then each side is timed twice, in the order a b b a. A tool that fails
//! on one side does not affect the other side or the times.

use rgpu_protocol::HostFacts;
use rgpu_protocol::plan::{Arg, ArtifactSpec, OnFailure, Plan, Rung, Step};

use super::draft::{Draft, DraftInfo, ExpectedReport, PlanError};
use super::harness::JobRunner;
use super::ladder::{self, artifact};
use super::planner::plain_rung;
use super::request::{HostBinaries, JobName, Request};
use super::{RAW, RUNNER, RUNNER_INPUT_PLAIN};
use rgpu_model::RungId;
use rgpu_model::profile::ArtifactKind;

/// Folders of the two sides, in the job and in the run folder.
pub const SIDES: [&str; 2] = ["a", "b"];

/// Id of the step that times both kernels.
pub const PAIR: &str = "pair";

/// Names of the second `time` step of each side, if processes alternate, and of its report.
const TIME_AGAIN: &str = "time-again";
/// The first and the second report of a side whose processes alternate, in the side's folder.
pub const TIME_REPORTS: [&str; 2] = ["raw/time.json", "raw/time-again.json"];

/// One plan for both sides.
#[derive(Clone, Debug)]
pub struct PairDraft {
    /// The plan with the files of both sides.
    pub draft: Draft,
    /// Facts about each side's plan; `None` for a side that is left out.
    pub infos: [Option<DraftInfo>; 2],
}

/// Makes the plan for both sides; a request that is `None` is left out.
pub fn pair(
    requests: [Option<&Request>; 2],
    facts: &HostFacts,
    binaries: &HostBinaries,
    job: &JobName,
) -> Result<PairDraft, PlanError> {
    let mut infos = [None, None];
    let mut parts: Vec<Draft> = Vec::new();
    for ((request, side), info) in requests.iter().zip(SIDES).zip(&mut infos) {
        let Some(request) = request else { continue };
        let draft = super::plan(request, facts, binaries, job)?;
        *info = Some(draft.info.clone());
        parts.push(move_into(draft, side));
    }
    let mut parts = parts.into_iter();
    let Some(mut draft) = parts.next() else {
        return Err(PlanError::NoUsableRung { title: "compare".to_owned(), left_out: Vec::new() });
    };
    for other in parts {
        draft.files.extend(other.files);
        draft.plan.files.extend(other.plan.files);
        draft.plan.steps.extend(other.plan.steps);
        draft.plan.gpu = draft.plan.gpu.or(other.plan.gpu);
        draft.plan.title = format!("{}, {}", draft.plan.title, other.plan.title);
    }
    draft.info = DraftInfo::default();
    if let [Some(a), Some(b)] = requests {
        let is_python = [a, b].map(|request| JobRunner::new(request, facts).is_python());
        let own_processes = is_python.contains(&true);
        interleave(&mut draft.plan, a, own_processes);
        if own_processes {
            infos.iter_mut().flatten().for_each(expect_second_report);
        }
    }
    Ok(PairDraft { draft, infos })
}

/// Puts the steps in order and replaces the two `time` steps with `pair`, or with four steps if one
/// process cannot hold both kernels.
fn interleave(plan: &mut Plan, request: &Request, own_processes: bool) {
    let timed: Vec<Step> = plan.steps.extract_if(.., |s| s.id.ends_with("-time")).collect();
    let is_profile = |step: &Step| {
        let own = step.id.split_once('-').map_or("", |(_, own)| own);
        own == ladder::STEP || own == "export"
    };
    let (mut profiles, mut steps): (Vec<Step>, Vec<Step>) =
        plan.steps.drain(..).partition(is_profile);
    if let [a, b] = timed.as_slice() {
        if own_processes {
            steps.extend([
                a.clone(),
                b.clone(),
                second_time_step(b, SIDES[1]),
                second_time_step(a, SIDES[0]),
            ])
        } else {
            steps.push(pair_step(a, request))
        }
    }
    // The speedup and the other side's profile are worth keeping if a tool fails on one side.
    for profile in &mut profiles {
        profile.on_failure = OnFailure::Continue;
    }
    plan.steps = steps;
    plan.steps.extend(profiles);
}

/// The step that times both kernels, with the rungs of the `time` step that it replaces.
fn pair_step(time: &Step, request: &Request) -> Step {
    let [a, b] = SIDES;
    let report = |side: &str| format!("{side}/{RAW}/time.json");
    let rungs = time.rungs.iter().map(|rung| {
        let id = RungId::from(&*rung.id);
        let mut argv = vec![Arg::in_job(format!("{a}/{RUNNER}"))];
        argv.extend([Arg::in_job(format!("{a}/{RUNNER_INPUT_PLAIN}")), PAIR.into()]);
        argv.extend(["--against".into(), Arg::in_job(format!("{b}/{RUNNER_INPUT_PLAIN}"))]);
        argv.extend(["--out".into(), Arg::in_job(report(a))]);
        argv.extend(["--other".into(), Arg::in_job(report(b))]);
        if id == RungId::HostClock {
            argv.push("--host-clock".into());
        }
        if request.strict {
            argv.push("--strict".into());
        }
        let artifacts = SIDES.map(|side| artifact(report(side), ArtifactKind::CaseReport)).to_vec();
        let mut new = plain_rung(&id, argv, artifacts);
        new.loses.clone_from(&rung.loses);
        new.cwd = format!("{a}/{RAW}");
        new.success.files = SIDES.map(report).to_vec();
        new
    });
    Step {
        id: PAIR.to_owned(),
        title: "measure both, calls interleaved a b b a".to_owned(),
        needs: Vec::new(),
        rungs: rungs.collect(),
        ..time.clone()
    }
}

/// The second `time` step of a side. Nothing imports its report; the comparison reads it.
fn second_time_step(time: &Step, side: &str) -> Step {
    let [first, second] = TIME_REPORTS.map(|report| format!("{side}/{report}"));
    let mut step = time.clone();
    step.id = format!("{side}-{TIME_AGAIN}");
    step.title = format!("{}, again", time.title);
    for rung in &mut step.rungs {
        for word in &mut rung.argv {
            if let Arg::InJob { in_job, .. } = word
                && *in_job == first
            {
                in_job.clone_from(&second);
            }
        }
        rung.success.files = vec![second.clone()];
        let kind = "case_report_again".to_owned();
        rung.artifacts = vec![ArtifactSpec { path: second.clone(), kind }];
    }
    step
}

/// Adds the report of the second `time` step.
fn expect_second_report(info: &mut DraftInfo) {
    let is_first = |report: &&ExpectedReport| report.path == TIME_REPORTS[0];
    let second = info.reports.iter().filter(is_first).map(|first| ExpectedReport {
        step: TIME_AGAIN.to_owned(),
        path: TIME_REPORTS[1].to_owned(),
        ..first.clone()
    });
    let second: Vec<ExpectedReport> = second.collect();
    info.reports.extend(second);
}

/// Moves a draft into a folder of the job.
fn move_into(mut draft: Draft, side: &str) -> Draft {
    let prefix = |path: &mut String| *path = format!("{side}/{path}");
    for file in &mut draft.files {
        prefix(&mut file.path);
    }
    for file in &mut draft.plan.files {
        prefix(&mut file.path);
    }
    for step in &mut draft.plan.steps {
        step.id = format!("{side}-{}", step.id);
        for need in &mut step.needs {
            *need = format!("{side}-{need}");
        }
        step.rungs.iter_mut().for_each(|rung| move_rung(rung, side));
    }
    draft
}

fn move_rung(rung: &mut Rung, side: &str) {
    let prefix = |path: &mut String| *path = format!("{side}/{path}");
    let relative = |path: &str| !path.starts_with('/');
    rung.needs.iter_mut().filter(|path| relative(path)).for_each(prefix);
    rung.success.files.iter_mut().for_each(prefix);
    for ArtifactSpec { path, .. } in &mut rung.artifacts {
        prefix(path);
    }
    rung.cwd = if rung.cwd.is_empty() { side.to_owned() } else { format!("{side}/{}", rung.cwd) };
    for word in rung.argv.iter_mut().chain(rung.env.values_mut()) {
        if let Arg::InJob { in_job, .. } = word {
            *in_job = if in_job.is_empty() { side.to_owned() } else { format!("{side}/{in_job}") };
        }
    }
}

/// The id that `step` has in the plan of `side` alone; `None` for a step of the other side. `pair`
/// is the `time` step of both.
pub fn side_of(step: &str, side: &str) -> Option<String> {
    if step == PAIR {
        return Some("time".to_owned());
    }
    step.strip_prefix(side)?.strip_prefix('-').map(str::to_owned)
}
