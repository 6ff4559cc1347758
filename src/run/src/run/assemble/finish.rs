//! Finishes a run's profile: joins the numbers, gives one verdict over all cases, and runs the
//! analysis last.

use std::path::Path;

use rgpu_case::{BoardReport, BoardRules, ClockPolicy, RankingBy};
use rgpu_protocol::{HostFacts, RungRecord};

use super::ProfileBuilder;
use crate::run::{memory_pools, stages};
use crate::store::RunRecord;
use rgpu_analysis as analysis;
use rgpu_model::profile::CodeLanguage;
use rgpu_model::profile::{BoardScore, Score, Trust};
use rgpu_model::profile::{CaseResult, Correctness, KernelInfo, RunInfo, SCHEMA};
use rgpu_model::profile::{CheckVerdict, CostSource, TimingClock};
use rgpu_model::{Profile, RungId, Sidecars};
use rgpu_plan::kernel::ProfileMode;
use rgpu_plan::tool::{DraftInfo, ProfileTarget, Request, RungInfo, SECOND_STEP};

/// Makes the profile from all results of the run.
pub(in crate::run) fn build_profile(
    builder: ProfileBuilder,
    request: &Request,
    facts: HostFacts,
    record: &RunRecord,
) -> (Profile, Sidecars) {
    let mut builder = builder;
    builder.end_survey();
    let reached = builder.rung();
    let mut profile = builder.profile;
    profile.schema = SCHEMA.to_owned();
    profile.run = RunInfo {
        id: record.id.clone(),
        started: record.started.clone(),
        seconds: record.seconds,
        cost_usd: record.cost.cost_usd,
        cost_from: record.cost.source().map(CostSource::from),
        mode: request.mode.name().to_owned(),
        remote: record.remote.clone(),
        command: record.argv.clone(),
        labels: record.labels.clone(),
        rgpu: env!("CARGO_PKG_VERSION").to_owned(),
        locked_sm_mhz: match request.policies.clocks {
            ClockPolicy::AsFound => None,
            ClockPolicy::Locked { sm_mhz } => Some(sm_mhz),
        },
    };
    profile.kernel = kernel_info(request, &builder.draft_info, &profile, &builder.project);
    if let ProfileTarget::Kernel { spec, cases, .. } = &request.target {
        profile.kernel.model =
            spec.model.as_ref().map(|model| stages::model(model, &builder.model));
        profile.stages = stages::stages(&profile.regions, cases, spec);
    }
    profile.host = Some(facts);
    profile.rung = reached;
    drop_lower_rungs(&mut profile, request.mode);
    set_rates(&mut profile, request);
    profile.cases.iter_mut().for_each(count_timed_calls);
    profile.timing = profile.cases.first().and_then(|c| c.timing.clone());
    profile.correctness = overall_correctness(&profile.cases);
    if let ProfileTarget::Kernel { spec, .. } = &request.target {
        let rules = spec.task.as_ref().map(|task| &task.rules);
        profile.score = rules.and_then(|rules| score(rules, &profile, builder.board.clone()));
    }
    join_code(&mut profile);
    memory_pools::add_notes(&mut profile.sanitizer, &request.target);
    analysis::analyze_all(&mut profile, &builder.sidecars, &builder.thresholds);
    builder.sidecars.cut_to_documents();
    (profile, builder.sidecars)
}

/// Removes rungs that were left out below the reached one, which cost nothing. Rungs of the same
/// tool stay: they say why this one was used (root's ncu in place of the user's). So do rungs of
/// other steps.
fn drop_lower_rungs(profile: &mut Profile, mode: ProfileMode) {
    let reached = profile.rung.clone();
    let is_end = |r: &&RungRecord| r.ok && r.rung == reached && r.step != SECOND_STEP;
    let Some(end) = profile.ladder.iter().rev().find(is_end) else { return };
    let step = end.step.clone();
    // The mode's own order counts: in mode `torch`, torch's profiler is above nsys.
    let position = |id: &RungId| mode.info().rungs.iter().position(|rung| rung == id);
    let is_lower = |rung: &RungId| match (position(rung), position(&reached)) {
        (Some(rung), Some(reached)) => rung > reached,
        _ => crate::run::is_below(rung, &reached),
    };
    let lower = |record: &RungRecord| {
        let rung = RungId::from(&*record.rung);
        let tool = |rung: &RungId| RungInfo::find(rung).map(|info| info.tool);
        !record.ok
            // On a CPU, no rung counts as above the GPU's, whatever its name.
            && record.code != "no_gpu"
            && record.step == step
            && record.argv.is_empty()
            && is_lower(&rung)
            && tool(&rung) != tool(&reached)
    };
    let gone: Vec<RungRecord> = profile.ladder.extract_if(.., |record| lower(record)).collect();
    profile.gaps.retain(|gap| {
        !gone.iter().any(|r| gap.code == r.code && gap.text == format!("{}: {}", r.rung, r.message))
    });
}

fn kernel_info(
    request: &Request,
    info: &DraftInfo,
    profile: &Profile,
    project: &Path,
) -> KernelInfo {
    let arch = if info.arch.is_empty() { Vec::new() } else { vec![info.arch.clone()] };
    match &request.target {
        ProfileTarget::Kernel { spec, .. } => KernelInfo {
            name: spec.name.clone(),
            language: spec.language.into(),
            entry: spec.entry_name().to_owned(),
            source: spec.source.strip_prefix(project).unwrap_or(&spec.source).display().to_string(),
            sha256: crate::store::digest_file(&spec.source).ok().map(|d| d.sha256.into()),
            arch,
            compiler: profile.code.first().map(|c| c.compiler.clone()).unwrap_or_default(),
            model: None,
        },
        ProfileTarget::Program(program) => KernelInfo {
            name: program.name.clone(),
            language: CodeLanguage::Program,
            model: profile.kernel.model.clone(),
            ..KernelInfo::default()
        },
    }
}

/// Sets the rates at the median time, from the case's `[work]`.
fn set_rates(profile: &mut Profile, request: &Request) {
    let ProfileTarget::Kernel { cases, .. } = &request.target else { return };
    for result in &mut profile.cases {
        let Some(case) = cases.iter().find(|case| case.name == result.name) else { continue };
        if let Some(timing) = result
            .timing
            .as_mut()
            .filter(|t| t.median_ns > 0.0 && t.clock != TimingClock::CpuReference)
        {
            timing.flops_per_s = case.flops.map(|f| f * 1e9 / timing.median_ns);
            timing.bytes_per_s = case.bytes.map(|b| b * 1e9 / timing.median_ns);
        }
    }
}

/// Copies the number of verified timed calls from the timing to the check.
fn count_timed_calls(case: &mut CaseResult) {
    let Some((check, timing)) = case.correctness.as_mut().zip(case.timing.as_ref()) else { return };
    check.timed_calls = timing.verified;
    check.timed_inputs = timing.verified.and(timing.distinct_inputs);
}

/// One verdict over all cases: wrong if any is, right only if all are.
fn overall_correctness(cases: &[CaseResult]) -> Option<Correctness> {
    let checks: Vec<&Correctness> = cases.iter().filter_map(|c| c.correctness.as_ref()).collect();
    let first = *checks.first()?;
    let chosen = checks
        .iter()
        .find(|c| c.verdict == CheckVerdict::Wrong)
        .or_else(|| checks.iter().find(|c| c.verdict == CheckVerdict::Unchecked))
        .copied()
        .unwrap_or(first);
    let mut all = chosen.clone();
    if all.verdict == CheckVerdict::Right {
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
        all.timed_inputs = sum(|c| c.timed_inputs);
        all.bit_equal = checks.iter().try_fold(true, |all, c| Some(all && c.bit_equal?));
    }
    Some(all)
}

/// The time that a leaderboard would rank. `None`: nothing was timed, by us or by the board.
fn score(rules: &BoardRules, profile: &Profile, board: Option<BoardReport>) -> Option<Score> {
    let count = rules.benchmarks.len();
    let first = if rules.ranking_by == RankingBy::Last { count.saturating_sub(1) } else { 0 };
    let median_of = |at: usize| {
        let name = format!("benchmark.{at}");
        let case = profile.cases.iter().find(|case| case.name == name)?;
        case.timing.as_ref().map(|timing| timing.median_ns).filter(|ns| *ns > 0.0)
    };
    let times: Option<Vec<f64>> = (first..count).map(median_of).collect();
    let is_wrong = profile.correctness.as_ref().is_some_and(|c| c.verdict == CheckVerdict::Wrong);
    let time_ns = times.filter(|_| !is_wrong).and_then(|times| rules.ranking_by.combine(&times));
    if time_ns.is_none() && board.is_none() {
        return None;
    }
    Some(Score {
        time_ns,
        ranking_by: rules.ranking_by.name().to_owned(),
        benchmarks: (count - first) as u64,
        board: board.map(|board| BoardScore {
            time_ns: rules.ranking_by.combine(&board.mean_ns),
            mean_ns: board.mean_ns,
            trust: Trust::Unprotected,
            message: board.message,
        }),
    })
}

/// Links each launch to the compiled code of the same name.
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
        let verdict = |cases: &[CaseResult]| overall_correctness(cases).map(|c| c.verdict);
        assert_eq!(verdict(&[]), None);
        assert_eq!(
            verdict(&[case("right", None), case("wrong", None), case("unchecked", None)]).unwrap(),
            "wrong"
        );
        assert_eq!(verdict(&[case("right", None), case("unchecked", None)]).unwrap(), "unchecked");
        let all =
            overall_correctness(&[case("right", Some(true)), case("right", Some(false))]).unwrap();
        assert_eq!((all.verdict.as_str(), all.checked, all.bit_equal), ("right", 20, Some(false)));
    }
}
