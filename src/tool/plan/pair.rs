//! Two requests → one plan: both kernels built and checked, timed against each other in one
//! process, then looked at one after the other, all under one lock of one GPU.
//!
//! Each side's own plan is moved into a folder of the job (`a/`, `b/`), its steps renamed
//! `a-build`, `b-verify` …; the two `time` steps give way to one step `pair`. What tools see of
//! each side may fail without costing the other side, or the time.

use rgpu_protocol::HostFacts;
use rgpu_protocol::plan::{Arg, ArtifactSpec, OnFailure, Plan, Rung, Step};

use super::draft::{Draft, Expectations, PlanError};
use super::harness::JobRunner;
use super::ladder::{self, artifact};
use super::planner::plain_rung;
use super::request::{JobName, Request, Toolbox};
use super::{CASE_PLAIN, RAW, RUNNER};

/// The folders of the two sides, in the job and in the run folder.
pub const SIDES: [&str; 2] = ["a", "b"];

/// The step that times both.
pub const PAIR: &str = "pair";

/// One plan for both sides, with what each may expect.
#[derive(Clone, Debug)]
pub struct PairDraft {
    /// The plan with the files of both.
    pub draft: Draft,
    /// What each side's steps bring; `None` for a side that is left out.
    pub expect: [Option<Expectations>; 2],
}

/// Makes the plan; a side that is `None` is left out.
///
/// # Errors
/// [`PlanError`] of either side.
pub fn pair(
    requests: [Option<&Request>; 2],
    facts: &HostFacts,
    toolbox: &Toolbox,
    job: &JobName,
) -> Result<PairDraft, PlanError> {
    if let [Some(a), Some(b)] = requests
        && (JobRunner::of(a, facts).is_python() || JobRunner::of(b, facts).is_python())
    {
        return Err(PlanError::PairOfPython);
    }
    let mut expect = [None, None];
    let mut parts: Vec<Draft> = Vec::new();
    for ((request, side), expect) in requests.iter().zip(SIDES).zip(&mut expect) {
        let Some(request) = request else { continue };
        let draft = super::plan(request, facts, toolbox, job)?;
        *expect = Some(draft.expect.clone());
        parts.push(within(draft, side));
    }
    let mut parts = parts.into_iter();
    let Some(mut draft) = parts.next() else {
        return Err(PlanError::NothingLeft { title: "compare".to_owned(), left_out: Vec::new() });
    };
    for other in parts {
        draft.files.extend(other.files);
        draft.plan.files.extend(other.plan.files);
        draft.plan.steps.extend(other.plan.steps);
        draft.plan.gpu = draft.plan.gpu.or(other.plan.gpu);
        draft.plan.title = format!("{}, {}", draft.plan.title, other.plan.title);
    }
    draft.expect = Expectations::default();
    if let [Some(a), Some(_)] = requests {
        interleave(&mut draft.plan, a);
    }
    Ok(PairDraft { draft, expect })
}

/// Puts the steps into their order and `pair` in the place of the two `time` steps.
fn interleave(plan: &mut Plan, request: &Request) {
    let timed: Vec<Step> = plan.steps.extract_if(.., |s| s.id.ends_with("-time")).collect();
    let is_look = |step: &Step| {
        let own = step.id.split_once('-').map_or("", |(_, own)| own);
        own == ladder::STEP || own == "export"
    };
    let (mut looks, mut steps): (Vec<Step>, Vec<Step>) = plan.steps.drain(..).partition(is_look);
    if let [first, _] = timed.as_slice() {
        steps.push(pair_step(first, request));
    }
    // One side's look, and the speedup, are worth keeping whatever a tool says of the other.
    for look in &mut looks {
        look.on_failure = OnFailure::Continue;
    }
    plan.steps = steps;
    plan.steps.extend(looks);
}

/// The step that times both, on the rungs of the step that it replaces.
fn pair_step(time: &Step, request: &Request) -> Step {
    let [a, b] = SIDES;
    let report = |side: &str| format!("{side}/{RAW}/time.json");
    let rungs = time.rungs.iter().map(|rung| {
        let mut argv = vec![Arg::in_job(format!("{a}/{RUNNER}"))];
        argv.extend([Arg::in_job(format!("{a}/{CASE_PLAIN}")), PAIR.into()]);
        argv.extend(["--against".into(), Arg::in_job(format!("{b}/{CASE_PLAIN}"))]);
        argv.extend(["--out".into(), Arg::in_job(report(a))]);
        argv.extend(["--other".into(), Arg::in_job(report(b))]);
        if rung.id == "host" {
            argv.push("--host-clock".into());
        }
        if request.strict {
            argv.push("--strict".into());
        }
        let artifacts = SIDES.map(|side| artifact(report(side), "case_report")).to_vec();
        let mut new = plain_rung(&rung.id, argv, artifacts);
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

/// A draft moved into a folder of the job.
fn within(mut draft: Draft, side: &str) -> Draft {
    let put = |path: &mut String| *path = format!("{side}/{path}");
    for file in &mut draft.files {
        put(&mut file.path);
    }
    for file in &mut draft.plan.files {
        put(&mut file.path);
    }
    for step in &mut draft.plan.steps {
        step.id = format!("{side}-{}", step.id);
        for need in &mut step.needs {
            *need = format!("{side}-{need}");
        }
        step.rungs.iter_mut().for_each(|rung| rung_within(rung, side));
    }
    draft
}

fn rung_within(rung: &mut Rung, side: &str) {
    let put = |path: &mut String| *path = format!("{side}/{path}");
    let relative = |path: &str| !path.starts_with('/');
    rung.needs.iter_mut().filter(|path| relative(path)).for_each(put);
    rung.success.files.iter_mut().for_each(put);
    for ArtifactSpec { path, .. } in &mut rung.artifacts {
        put(path);
    }
    rung.cwd = if rung.cwd.is_empty() { side.to_owned() } else { format!("{side}/{}", rung.cwd) };
    for word in rung.argv.iter_mut().chain(rung.env.values_mut()) {
        if let Arg::InJob { in_job, .. } = word {
            *in_job = if in_job.is_empty() { side.to_owned() } else { format!("{side}/{in_job}") };
        }
    }
}

/// The side a step belongs to, with its own name there; `pair` is the `time` step of both.
pub fn side_of(step: &str, side: &str) -> Option<String> {
    if step == PAIR {
        return Some("time".to_owned());
    }
    step.strip_prefix(side)?.strip_prefix('-').map(str::to_owned)
}
