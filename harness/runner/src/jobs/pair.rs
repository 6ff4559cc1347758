//! `pair`: measures two kernels against each other, with timed calls interleaved a, b, b, a.
//!
//! One process runs both entries in one context, so that clocks, temperature, memory and driver
//! are the same for both at every call. L2 is flushed before each call, and calls are timed as in
//! the job `time`. A drift that is steady over a round cancels in the round's ratio
//! `sqrt(a1 a2 / (b1 b2))`. The median over the rounds has the order-statistic interval of
//! [`rgpu_case::stats`], and sampling continues until that is narrow enough.
//!
//! Effects of a call's position must not favour one side. So every other round is b, a, a, b: each
//! side is then equally often at each position and after each side. An untimed call precedes the
//! first round of a batch, since the GPU was idle before it. If the tensors of both inputs are
//! alike, both use the same memory: on two copies of it the same binary differs by up to 0.6 %
//! (H200, softmax), only because of their addresses.

use super::Session;
use super::cooling::wait_until_cool;
use super::session::DeviceCase;
use super::time::{
    MAX_BATCH, TimedCase, batch_size, event_overhead_ns, flush_bytes, prepare_target, trusted,
    written_bytes,
};
use crate::cli::{Clock, UnfitHost};
use crate::cuda::{Buffer, CudaEvent};
use crate::fault::{Fault, Result, bad_case};
use crate::file;
use crate::host_case::HostCase;
use crate::input::Input;
use crate::report_writer::print_progress;
use crate::sampling::{Sampling, describe_timing};
use rgpu_case::stats::Summary;
use rgpu_case::{
    CASE_ABI, Case, CaseReport, ClockReading, ErrorClass, PairedTiming, Phase, RunnerJob,
    RunnerReport, Timing, TimingPlan, TimingSource,
};
use std::path::Path;
use std::time::{Duration, Instant};

/// Timed calls in a round.
const CALLS_PER_ROUND: usize = 4;
/// The side (0 or 1) of each call of a round, for even and for odd rounds.
const ROUND_ORDER: [[usize; CALLS_PER_ROUND]; 2] = [[0, 1, 1, 0], [1, 0, 0, 1]];
/// Sampling stops here; more rounds only make the report longer.
const MAX_ROUNDS: usize = 2_500;

/// The runner input of the other kernel and the path of its report.
pub(crate) struct OtherKernel<'a> {
    pub(crate) input: &'a Input,
    pub(crate) out: Option<&'a Path>,
}

/// Measures every case that both inputs have.
pub(crate) fn run(
    session: &Session<'_>,
    other: &OtherKernel<'_>,
    clock: Clock,
    unfit: UnfitHost,
) -> Result<()> {
    if unfit == UnfitHost::Refuse {
        session.refuse_if_unfit()?;
    }
    let (ours, theirs) = (&session.input.spec, &other.input.spec);
    let targets = (session.load_own_target()?, session.load_target(other.input)?);
    let flush = if ours.timing.flush_l2 {
        Some(Buffer::new(&session.gpu, flush_bytes(session.gpu.facts.l2_bytes), 0)?)
    } else {
        None
    };
    let mut reports = Vec::new();
    for (i, case) in ours.cases.iter().enumerate() {
        let their_case = theirs.cases.iter().find(|their_case| their_case.name == case.name);
        let their_case = their_case
            .ok_or_else(|| bad_case(format!("`{}` has no case `{}`", theirs.kernel, case.name)))?;
        let cooling = wait_until_cool(session, unfit)?;
        let setup = session.report.enter_phase(Phase::Setup, Some(case))?;
        let hosts = (
            session.generate_case(case)?,
            HostCase::generate(their_case, theirs.seed, &other.input.folder)?,
        );
        let first = DeviceCase::new(&session.gpu, &hosts.0, 0)?;
        let second = if hosts.0.same_tensors(&hosts.1) {
            first.share_memory_with(&hosts.1)
        } else {
            session.report.add_gap(
                "the two kernels have different arguments and therefore separate memory, \
                     whose addresses may change the ratio by some tenths of a percent",
            );
            DeviceCase::new(&session.gpu, &hosts.1, 0)?
        };
        let devices = (first, second);
        devices.0.fill_inputs()?;
        devices.1.fill_inputs()?;
        let (prepared_a, prepare_ns_a) = prepare_target(session, &targets.0, &devices.0)?;
        let (prepared_b, prepare_ns_b) = prepare_target(session, &targets.1, &devices.1)?;
        drop(setup);
        let flush = flush.as_ref();
        let a = TimedCase { session, device: &devices.0, prepared: &prepared_a, flush };
        let b = TimedCase { session, device: &devices.1, prepared: &prepared_b, flush };
        let launch_ns = a.warm_up(case)?;
        b.warm_up(case)?;
        if i == 0 {
            a.warn_if_gpu_slowed(launch_ns)?;
            if unfit == UnfitHost::Refuse {
                session.refuse_if_unfit()?;
            }
        }
        let Some((first, second, mut paired)) = sample(session, [&a, &b], case, clock)? else {
            continue;
        };
        let both = [&targets.0, &targets.1];
        let needed_bytes = written_bytes(case);
        let first = Timing { cooling: cooling.clone(), needed_bytes, ..trusted(first, &both) };
        let second = Timing { cooling, needed_bytes, ..trusted(second, &both) };
        paired.other_kernel.clone_from(&theirs.kernel);
        print_progress!("pair {}: {} {}", case.name, ours.kernel, describe_timing(&first));
        print_progress!("pair {}: {} {}", case.name, theirs.kernel, describe_timing(&second));
        print_progress!(
            "pair {}: {} is {:.4} times as fast as {} (95 % interval {:.4} to {:.4}), {} rounds",
            case.name,
            theirs.kernel,
            paired.speedup_of_other,
            ours.kernel,
            paired.ci95[0],
            paired.ci95[1],
            paired.rounds
        );
        session.report.update_case(&case.name, |report| {
            report.prepare_ns = prepare_ns_a;
            report.timing = Some(first);
            report.paired = Some(paired);
        });
        reports.push(CaseReport {
            name: case.name.clone(),
            prepare_ns: prepare_ns_b,
            timing: Some(second),
            ..CaseReport::default()
        });
    }
    write_other_report(session, other, reports)
}

/// Samples rounds until the interval of their ratio is narrow enough.
fn sample(
    session: &Session<'_>,
    sides: [&TimedCase<'_>; 2],
    case: &Case,
    clock: Clock,
) -> Result<Option<(Timing, Timing, PairedTiming)>> {
    let plan = &session.input.spec.timing;
    let mut events = Vec::new();
    for _ in 0..MAX_BATCH {
        events.push((CudaEvent::new(&session.gpu)?, CudaEvent::new(&session.gpu)?));
    }
    let overhead_ns = if clock == Clock::Events { event_overhead_ns(&events[0])? } else { None };
    let mut samplings = [Sampling::start(plan), Sampling::start(plan)];
    let mut rounds = RoundRatios::start(plan);
    let _ranges = session.report.enter_phase(Phase::Timed, Some(case))?;
    loop {
        let calls = batch_size(
            rounds.max_next_rounds().saturating_mul(CALLS_PER_ROUND),
            samplings[0].typical_ns(),
        );
        // The first batch asks for one call, but a round is the smallest unit.
        let batch = calls.div_ceil(CALLS_PER_ROUND).min(MAX_BATCH / CALLS_PER_ROUND);
        if calls == 0 {
            break;
        }
        let order = order(rounds.taken(), batch);
        enqueue_untimed_call(sides, &order)?;
        let (calls, reading) = match clock {
            Clock::Events => time_by_events(session, sides, &order, &events)?,
            Clock::Host => time_by_host_clock(session, sides, &order)?,
        };
        let mut taken = [Vec::new(), Vec::new()];
        for (side, call) in order.iter().zip(&calls) {
            taken[*side].push(*call);
        }
        for (a, b) in taken[0].chunks_exact(2).zip(taken[1].chunks_exact(2)) {
            rounds.push([a[0], a[1]], [b[0], b[1]]);
        }
        let [first, second] = &mut samplings;
        first.push(&taken[0], reading.clone());
        second.push(&taken[1], reading);
    }
    let source = if clock == Clock::Events { TimingSource::Events } else { TimingSource::Host };
    let flushed = sides[0].flushed_bytes();
    let [first, second] = samplings.map(|s| s.finish(source, overhead_ns, flushed));
    let (Some(first), Some(second)) = (first, second) else { return Ok(None) };
    let paired = rounds.finish(&[&first.discarded, &second.discarded]);
    Ok(paired.map(|paired| (first, second, paired)))
}

/// The side of each call of `rounds` rounds, where `taken` rounds came before.
fn order(taken: usize, rounds: usize) -> Vec<usize> {
    (taken..taken + rounds).flat_map(|round| ROUND_ORDER[round % ROUND_ORDER.len()]).collect()
}

/// Enqueues one untimed call of the other side, so that the first timed call has the predecessor it
/// would have within a batch.
fn enqueue_untimed_call(sides: [&TimedCase<'_>; 2], order: &[usize]) -> Result<()> {
    let Some(first) = order.first() else { return Ok(()) };
    let before = sides[1 - first];
    before.enqueue_preparation()?;
    before.prepared.launch()
}

/// Enqueues complete rounds and reads their events afterwards. There is a pair of events for each
/// call.
fn time_by_events(
    session: &Session<'_>,
    sides: [&TimedCase<'_>; 2],
    order: &[usize],
    events: &[(CudaEvent<'_>, CudaEvent<'_>)],
) -> Result<(Vec<f64>, Option<ClockReading>)> {
    let events = &events[..order.len()];
    for ((start, end), side) in events.iter().zip(order) {
        let timed: &TimedCase<'_> = sides[*side];
        timed.enqueue_preparation()?;
        start.record()?;
        timed.prepared.launch()?;
        end.record()?;
    }
    let reading = session.nvml.as_ref().map(|nvml| nvml.reading());
    if let Some((_, end)) = events.last() {
        end.wait()?;
    }
    let calls = events.iter().map(|(start, end)| end.since_ns(start));
    Ok((calls.collect::<Result<_>>()?, reading))
}

/// Waits for each call and times it by the host's clock.
fn time_by_host_clock(
    session: &Session<'_>,
    sides: [&TimedCase<'_>; 2],
    order: &[usize],
) -> Result<(Vec<f64>, Option<ClockReading>)> {
    let mut calls = Vec::with_capacity(order.len());
    let mut reading = None;
    for side in order {
        let timed: &TimedCase<'_> = sides[*side];
        timed.enqueue_preparation()?;
        session.gpu.synchronize()?;
        let start = Instant::now();
        timed.prepared.launch()?;
        session.gpu.synchronize()?;
        calls.push(start.elapsed().as_nanos() as f64);
        if reading.is_none() {
            reading = session.nvml.as_ref().map(|nvml| nvml.reading());
        }
    }
    Ok((calls, reading))
}

/// The ratios of the rounds so far.
struct RoundRatios<'a> {
    plan: &'a TimingPlan,
    ratios: Vec<f64>,
    deadline: Instant,
}

impl<'a> RoundRatios<'a> {
    fn start(plan: &'a TimingPlan) -> RoundRatios<'a> {
        let limit = Duration::try_from_secs_f64(plan.max_seconds).unwrap_or(Duration::MAX);
        let now = Instant::now();
        let deadline = now.checked_add(limit).unwrap_or(now + Duration::from_secs(86_400));
        RoundRatios { plan, ratios: Vec::new(), deadline }
    }

    /// The maximum number of rounds in the next batch; 0 when done. A fixed sample count applies to
    /// each side.
    fn max_next_rounds(&self) -> usize {
        let taken = self.ratios.len();
        match self.plan.iters {
            Some(iters) => (iters.max(1) as usize).div_ceil(2).saturating_sub(taken),
            None if taken > 0 && (Instant::now() >= self.deadline || self.converged()) => 0,
            None => MAX_ROUNDS.saturating_sub(taken),
        }
    }

    /// Number of rounds taken so far.
    fn taken(&self) -> usize {
        self.ratios.len()
    }

    /// Adds a round: the calls of either side, in any order.
    fn push(&mut self, a: [f64; 2], b: [f64; 2]) {
        self.ratios.push((a[0] * a[1] / (b[0] * b[1])).sqrt());
    }

    fn converged(&self) -> bool {
        self.ratios.len() >= (self.plan.min_iters.max(1) as usize)
            && Summary::from_samples(&self.ratios)
                .is_some_and(|s| s.relative_half_width() <= self.plan.ci_target)
    }

    /// The result of the rounds, without those that contain a discarded sample.
    fn finish(self, discarded: &[&Vec<usize>]) -> Option<PairedTiming> {
        let kept: Vec<f64> = self
            .ratios
            .iter()
            .enumerate()
            .filter(|(round, ratio)| {
                let is_in_round = |sample: &usize| sample / 2 == *round;
                ratio.is_finite() && !discarded.iter().any(|side| side.iter().any(is_in_round))
            })
            .map(|(_, ratio)| *ratio)
            .collect();
        let summary = Summary::from_samples(&kept)?;
        Some(PairedTiming {
            other_kernel: String::new(),
            rounds: kept.len(),
            speedup_of_other: summary.median,
            ci95: summary.ci95,
            converged: summary.relative_half_width() <= self.plan.ci_target,
        })
    }
}

/// Writes the other kernel's report, with the same timing fields as that of the job `time`.
fn write_other_report(
    session: &Session<'_>,
    other: &OtherKernel<'_>,
    cases: Vec<CaseReport>,
) -> Result<()> {
    session.report.check_process()?;
    let Some(out) = other.out else { return Ok(()) };
    let report = RunnerReport {
        abi: CASE_ABI,
        runner: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: other.input.spec.kernel.clone(),
        job: RunnerJob::Pair,
        model: None,
        cases,
        board: None,
        device: Some(session.gpu.facts.clone()),
        warnings: session.report.warnings(),
        gaps: Vec::new(),
        error: None,
    };
    let unwritable = |e: &dyn std::fmt::Display| {
        let text = format!("cannot write the report `{}`: {e}", out.display());
        Fault::new(ErrorClass::Output, text)
    };
    let mut bytes = serde_json::to_vec(&report).map_err(|e| unwritable(&e))?;
    bytes.push(b'\n');
    file::write_atomically(out, &bytes).map_err(|e| unwritable(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(plan: &TimingPlan, count: usize, ratio: f64) -> RoundRatios<'_> {
        let mut rounds = RoundRatios::start(plan);
        for i in 0..count {
            // A drift of 1 % per call affects both sides of a round alike.
            let drift = |call: usize| 1.01_f64.powi((i * CALLS_PER_ROUND + call) as i32);
            let mut calls = [Vec::new(), Vec::new()];
            for (call, side) in order(i, 1).into_iter().enumerate() {
                calls[side].push(100.0 * [ratio, 1.0][side] * drift(call));
            }
            let [a, b] = calls.map(|calls| [calls[0], calls[1]]);
            rounds.push(a, b);
        }
        rounds
    }

    #[test]
    fn each_side_has_each_position_and_each_predecessor_equally_often() {
        // Two rounds that repeat endlessly, and each batch after its untimed call.
        let order = order(0, 2);
        let count = |fits: &dyn Fn(usize) -> bool| {
            let mut found = [0, 0];
            (0..order.len()).filter(|at| fits(*at)).for_each(|at| found[order[at]] += 1);
            found
        };
        let before = |at: usize| order[(at + order.len() - 1) % order.len()];
        for position in 0..CALLS_PER_ROUND {
            let counts = count(&|at| at % CALLS_PER_ROUND == position);
            assert_eq!(counts, [1, 1], "position {position}");
        }
        let same = count(&|at| before(at) == order[at]);
        let other = count(&|at| before(at) != order[at]);
        assert_eq!((same[0], other[0]), (same[1], other[1]));
        // The mean position of both sides is the same, so a steady drift cancels in every round.
        for round in ROUND_ORDER {
            let sum = |side| (0..CALLS_PER_ROUND).filter(|p| round[*p] == side).sum::<usize>();
            assert_eq!(sum(0), sum(1));
        }
    }

    #[test]
    fn a_batch_goes_on_with_the_order_where_the_last_one_ended() {
        let full_order = order(0, 7);
        let parts: Vec<usize> = [order(0, 1), order(1, 3), order(4, 3)].concat();
        assert_eq!(full_order, parts);
        assert_eq!(full_order[..8], [0, 1, 1, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn a_steady_drift_leaves_the_ratio_alone() {
        let plan = TimingPlan::default();
        let paired = rounds(&plan, 40, 1.5).finish(&[]).unwrap();
        assert!((paired.speedup_of_other - 1.5).abs() < 1e-9, "{}", paired.speedup_of_other);
        assert!((paired.ci95[1] - paired.ci95[0]).abs() < 1e-9 && paired.converged);
    }

    #[test]
    fn rounds_end_when_the_ratio_is_known_or_the_count_is_reached() {
        let plan = TimingPlan::default();
        assert_eq!(rounds(&plan, 29, 1.0).max_next_rounds(), MAX_ROUNDS - 29);
        assert_eq!(rounds(&plan, 30, 1.0).max_next_rounds(), 0);
        let fixed = TimingPlan { iters: Some(9), ..TimingPlan::default() };
        assert_eq!(rounds(&fixed, 0, 1.0).max_next_rounds(), 5);
        assert_eq!(rounds(&fixed, 5, 1.0).max_next_rounds(), 0);
    }

    #[test]
    fn a_round_with_a_discarded_sample_does_not_count() {
        let plan = TimingPlan::default();
        let (first, second) = (vec![0, 1], vec![5]);
        assert_eq!(rounds(&plan, 10, 1.0).finish(&[&first, &second]).unwrap().rounds, 8);
        assert_eq!(rounds(&plan, 0, 1.0).finish(&[]), None);
    }
}
