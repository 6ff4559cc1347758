//! `time`: warms up, checks the host under load, and samples until the interval is narrow enough.
//!
//! A batch of samples is enqueued without waiting: restore `inout`, flush L2, event, launch, event.
//! The flush keeps the GPU busy while the host enqueues what follows, so the time between the two
//! events contains no launch latency. NVML is read while the batch runs, since later readings would
//! show the clocks of an idle GPU.
//!
//! A timed call must not profit from an earlier one: its outputs are poisoned, and lines that
//! persist in L2 are reset before the flush. With a reference on the GPU, each call has its own
//! data and is compared with the reference's result on them ([`super::time_new_inputs`]). Without
//! one, the calls alternate irregularly between two sets of data with their own memory, and the
//! outputs of each call are compared with those of the first call on the same set
//! ([`super::output_watch`]).
//!
//! Short kernels are timed a second time at the end, inside a CUDA graph
//! ([`super::time_in_graph`]).

use super::Session;
use super::cooling::wait_until_cool;
use super::output_watch::{OutputWatch, wrong_result};
use super::session::{DeviceCase, LaunchTarget, PreparedTarget};
use super::time_new_inputs::NewInputsCase;
use super::verify::{DeviceReference, reference_on_device};
use crate::cli::{Clock, UnfitHost};
use crate::cuda::{Buffer, CudaEvent, ExpectedFailures};
use crate::fault::Result;
use crate::host_case::HostCase;
use crate::host_warnings;
use crate::report_writer::print_progress;
use crate::sampling::{Sampling, describe_timing};
use rgpu_case::stats::median;
use rgpu_case::{Case, ClockReading, ErrorClass, Phase, Role, Timing, TimingSource, Trust};
use std::time::{Duration, Instant};

/// Maximum number of samples in a batch: the launch queue holds about a thousand entries.
pub(super) const MAX_BATCH: usize = 64;

/// A batch should keep the GPU busy for this time, so that NVML's slow readings fall within it.
const BATCH_NS: f64 = 50e6;

/// Minimum duration of warm-up, however few launches were requested: clocks rise only under load.
const MIN_WARM_UP: Duration = Duration::from_millis(200);

/// Warm-up ends after this many launches, even if it has lasted less than `MIN_WARM_UP`.
const MAX_WARM_UP_LAUNCHES: u32 = 20_000;

/// Larger cases are not doubled for calls on two sets of data.
const MAX_DOUBLED_BYTES: usize = 1 << 30;

/// Distance between the seeds of the two sets of data.
const SEED_STEP: u64 = 42;

/// Calls made to find out whether the GPU is still busy after their end event.
const LATE_CALLS: usize = 5;

/// The GPU may stay busy this long after a call's end event: nanoseconds, and fraction of the call.
pub(super) const LATE_NS: f64 = 50e3;
pub(super) const LATE_FRACTION: f64 = 0.2;

/// Empty pairs of events that measure the overhead of the method.
const EMPTY_PAIRS: usize = 25;

pub(crate) fn run(session: &Session<'_>, clock: Clock, unfit: UnfitHost) -> Result<()> {
    if unfit == UnfitHost::Refuse {
        session.refuse_if_unfit()?;
    }
    let target = session.load_own_target()?;
    let flush = if session.input.spec.timing.flush_l2 {
        // Twice the size of L2, since writing just its size need not replace every line.
        Some(Buffer::new(&session.gpu, flush_bytes(session.gpu.facts.l2_bytes), 0)?)
    } else {
        None
    };
    let reference = match reference_on_device(session) {
        Err(fault) if fault.0.class == ErrorClass::MissingFile => {
            session.report.add_gap(format!(
                "timed calls were not compared with the reference on the GPU, because nothing \
                 checks that reference: {}",
                fault.0.text
            ));
            None
        }
        reference => reference?,
    };
    for (i, case) in session.input.spec.cases.iter().enumerate() {
        let cooling = wait_until_cool(session, unfit)?;
        let first = TimingTerms { unfit, clock, first: i == 0 };
        let timing = match &reference {
            Some(reference) => {
                time_on_new_data(session, &target, flush.as_ref(), reference, case, first)
            }
            None => time_on_two_sets(session, &target, flush.as_ref(), case, first),
        };
        if let Some(timing) = timing? {
            let needed_bytes = written_bytes(case);
            let timing = Timing { cooling, needed_bytes, ..trusted(timing, &[&target]) };
            print_progress!("time {}: {}", case.name, describe_timing(&timing));
            session.report.update_case(&case.name, |report| report.timing = Some(timing));
        }
    }
    super::time_in_graph::run(session, &target, flush.as_ref());
    Ok(())
}

/// Adds how far the kernel could have influenced the times: code on the host shares this process,
/// code on the device does not reach its events.
pub(super) fn trusted(timing: Timing, in_process: &[&LaunchTarget<'_>]) -> Timing {
    let has_host_code = in_process.iter().any(|target| matches!(target, LaunchTarget::Host(_)));
    let (trust, reason) = if has_host_code {
        (Trust::Unprotected, Some("host code of a kernel shares the clock's process"))
    } else {
        (Trust::Proven, None)
    };
    Timing { trust: Some(trust), trust_reason: reason.map(str::to_owned), ..timing }
}

/// The bytes that any right kernel moves, as far as they are known here: those of its outputs, which
/// are poisoned before each call.
pub(super) fn written_bytes(case: &Case) -> Option<u64> {
    let args = case.groups.iter().flat_map(|group| &group.args);
    let outputs = args.filter(|arg| arg.role == Role::Out);
    let bytes: u64 = outputs.filter_map(|arg| arg.bytes()).sum();
    (bytes > 0).then_some(bytes)
}

/// How to time one case.
#[derive(Clone, Copy)]
struct TimingTerms {
    unfit: UnfitHost,
    clock: Clock,
    /// Whether it is the first case of the job, on which the host is checked under load.
    first: bool,
}

/// Times calls with their own data each, compared with the reference on the GPU.
fn time_on_new_data(
    session: &Session<'_>,
    target: &LaunchTarget<'_>,
    flush: Option<&Buffer<'_>>,
    reference: &DeviceReference<'_>,
    case: &Case,
    terms: TimingTerms,
) -> Result<Option<Timing>> {
    let setup = session.report.enter_phase(Phase::Setup, Some(case))?;
    let host = session.generate_case(case)?;
    let device = DeviceCase::new(&session.gpu, &host, 0)?;
    device.fill_inputs()?;
    let (prepared, prepare_ns) = prepare_target(session, target, &device)?;
    session.report.update_case(&case.name, |report| report.prepare_ns = prepare_ns);
    let timed_case = NewInputsCase::new(session, target, reference, &device, flush)?;
    drop(setup);
    let work = TimedCase { session, device: &device, prepared: &prepared, flush };
    let (clock, wall_ns) = work.before_timing(case, terms)?;
    let timing = timed_case.time_kernel(prepared, clock)?;
    Ok(timing.map(|timing| Timing { wall_ns: Some(wall_ns), ..timing }))
}

/// Times calls on two sets of data, compared with the first call on the same set.
fn time_on_two_sets(
    session: &Session<'_>,
    target: &LaunchTarget<'_>,
    flush: Option<&Buffer<'_>>,
    case: &Case,
    terms: TimingTerms,
) -> Result<Option<Timing>> {
    let setup = session.report.enter_phase(Phase::Setup, Some(case))?;
    let seed = session.input.spec.seed;
    let mut hosts = vec![session.generate_case(case)?];
    if hosts[0].args.iter().map(|arg| arg.size_bytes()).sum::<usize>() <= MAX_DOUBLED_BYTES {
        let seed = seed.wrapping_add(SEED_STEP);
        hosts.push(HostCase::generate(case, seed, &session.input.folder)?);
    }
    let mut devices = Vec::new();
    for host in &hosts {
        let device = DeviceCase::new(&session.gpu, host, 0)?;
        device.fill_inputs()?;
        devices.push(device);
    }
    let mut bound = Vec::new();
    for device in &devices {
        bound.push(prepare_target(session, target, device)?);
    }
    session.report.update_case(&case.name, |report| report.prepare_ns = bound[0].1);
    drop(setup);
    let forms: Vec<TimedCase<'_>> = devices
        .iter()
        .zip(&bound)
        .map(|(device, (prepared, _))| TimedCase { session, device, prepared, flush })
        .collect();
    // Before all other calls, so that these outputs come from a call that did the full work.
    let mut watches = start_output_watches(&forms, case)?;
    let (clock, wall_ns) = forms[0].before_timing(case, terms)?;
    let sampled = SampledForms { forms: &forms, watches: &mut watches, case };
    let timing = match clock {
        Clock::Events => sampled.sample_by_events()?,
        Clock::Host => sampled.sample_by_host_clock()?,
    };
    Ok(timing.map(|mut timing| {
        timing.wall_ns = Some(wall_ns);
        timing.distinct_inputs = Some(forms.len() as u64);
        timing.repeated = (!watches.is_empty()).then_some(timing.sample_ns.len() as u64);
        timing
    }))
}

pub(super) fn report_own_stream(session: &Session<'_>, case: &Case) {
    session.report.add_gap(format!(
        "`{}`: the GPU is still busy after the events around a call, so the kernel uses its own \
         stream; it was timed with the host's clock",
        case.name
    ));
}

/// Keeps the first call's outputs of each set of data. Empty when there is not enough memory.
fn start_output_watches<'w>(
    forms: &'w [TimedCase<'w>],
    case: &Case,
) -> Result<Vec<OutputWatch<'w>>> {
    let mut watches = Vec::new();
    for work in forms {
        let session = work.session;
        let _ranges = session.report.enter_phase(Phase::Verify, Some(case))?;
        match OutputWatch::start(session, work.device, work.prepared) {
            Err(fault) if fault.0.class == ErrorClass::OutOfMemory => {
                session.report.add_gap(format!(
                    "`{}`: not enough memory to store its outputs, so those of timed calls were \
                     not compared",
                    case.name
                ));
                return Ok(Vec::new());
            }
            watch => watches.push(watch?),
        }
    }
    Ok(watches)
}

pub(super) fn prepare_target<'t>(
    session: &'t Session<'_>,
    target: &'t LaunchTarget<'_>,
    device: &DeviceCase<'_>,
) -> Result<(PreparedTarget<'t>, Option<f64>)> {
    target.prepare(&session.gpu, device, ExpectedFailures::Allowed)
}

pub(super) fn flush_bytes(l2_bytes: u64) -> usize {
    usize::try_from(l2_bytes * 2).unwrap_or(0).max(1 << 20)
}

/// One case, ready to be measured.
pub(super) struct TimedCase<'w> {
    pub(super) session: &'w Session<'w>,
    pub(super) device: &'w DeviceCase<'w>,
    pub(super) prepared: &'w PreparedTarget<'w>,
    pub(super) flush: Option<&'w Buffer<'w>>,
}

impl TimedCase<'_> {
    /// Launches without measuring; returns the approximate time of one launch.
    pub(super) fn warm_up(&self, case: &Case) -> Result<f64> {
        let _ranges = self.session.report.enter_phase(Phase::Warmup, Some(case))?;
        let requested = self.session.input.spec.timing.warmup;
        let start = Instant::now();
        let mut done = 0;
        while done < requested || (start.elapsed() < MIN_WARM_UP && done < MAX_WARM_UP_LAUNCHES) {
            self.device.restore_inout()?;
            self.prepared.launch()?;
            self.session.gpu.synchronize()?;
            done += 1;
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(done.max(1)))
    }

    /// Warns about a slowed GPU, from a reading taken while the kernel runs.
    pub(super) fn warn_if_gpu_slowed(&self, launch_ns: f64) -> Result<()> {
        let Some(nvml) = &self.session.nvml else { return Ok(()) };
        let launches = (BATCH_NS / launch_ns.max(1.0)).ceil().clamp(1.0, 4.0 * MAX_BATCH as f64);
        for _ in 0..launches as usize {
            self.device.restore_inout()?;
            self.prepared.launch()?;
        }
        let reading = nvml.reading();
        self.session.gpu.synchronize()?;
        if reading.sm_mhz.is_none() {
            self.session.report.add_gap("NVML does not report this GPU's SM clock");
        }
        for warning in
            host_warnings::warnings_under_load(&reading, &self.session.input.spec.policies.clocks)
        {
            self.session.report.add_warning(warning);
        }
        Ok(())
    }

    /// Warms up, checks the host, and measures whole calls. Returns the clock that can time them,
    /// and the duration of one by the host's clock.
    fn before_timing(&self, case: &Case, terms: TimingTerms) -> Result<(Clock, f64)> {
        let launch_ns = self.warm_up(case)?;
        if terms.first {
            self.warn_if_gpu_slowed(launch_ns)?;
            if terms.unfit == UnfitHost::Refuse {
                self.session.refuse_if_unfit()?;
            }
        }
        let (busy_after_end, wall_ns) = self.measure_whole_calls()?;
        if terms.clock == Clock::Events && busy_after_end {
            report_own_stream(self.session, case);
            return Ok((Clock::Host, wall_ns));
        }
        Ok((terms.clock, wall_ns))
    }

    /// Whether the GPU is still busy after a call's end event, and the nanoseconds that a call
    /// takes by the host's clock.
    fn measure_whole_calls(&self) -> Result<(bool, f64)> {
        let gpu = &self.session.gpu;
        let (start, end) = (CudaEvent::new(gpu)?, CudaEvent::new(gpu)?);
        let (mut took, mut late, mut call_times_ns) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..LATE_CALLS {
            self.device.restore_inout()?;
            gpu.synchronize_all()?;
            let begin = Instant::now();
            start.record()?;
            self.prepared.launch()?;
            end.record()?;
            end.wait()?;
            let passed = Instant::now();
            gpu.synchronize_all()?;
            late.push(passed.elapsed().as_nanos() as f64);
            call_times_ns.push(begin.elapsed().as_nanos() as f64);
            took.push(end.since_ns(&start)?);
        }
        let (late, took) = (median(&late).unwrap_or(0.0), median(&took).unwrap_or(0.0));
        Ok((late > LATE_NS.max(LATE_FRACTION * took), median(&call_times_ns).unwrap_or(0.0)))
    }

    /// Bytes written over L2 before each sample; `None` when L2 is not flushed.
    pub(super) fn flushed_bytes(&self) -> Option<u64> {
        self.flush.map(|buffer| buffer.size() as u64)
    }

    /// Enqueues the work that precedes each sample.
    pub(super) fn enqueue_preparation(&self) -> Result<()> {
        self.device.restore_inout()?;
        self.device.enqueue_poison()?;
        let Some(flush) = self.flush else { return Ok(()) };
        self.session.gpu.reset_persisting_l2()?;
        flush.memset(0)
    }
}

/// One case in its two forms, ready for sampling.
struct SampledForms<'s, 'w> {
    forms: &'s [TimedCase<'w>],
    /// One per form, or empty.
    watches: &'s mut Vec<OutputWatch<'w>>,
    case: &'s Case,
}

impl SampledForms<'_, '_> {
    /// The form that a call uses, in an order that a kernel cannot predict.
    fn choose_form(&self, call: usize) -> usize {
        let mixed = (call as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (mixed.count_ones() as usize) % self.forms.len()
    }

    fn sample_by_events(mut self) -> Result<Option<Timing>> {
        let session = self.forms[0].session;
        let gpu = &session.gpu;
        let mut pairs = Vec::new();
        for _ in 0..MAX_BATCH {
            pairs.push((CudaEvent::new(gpu)?, CudaEvent::new(gpu)?));
        }
        let overhead_ns = event_overhead_ns(&pairs[0])?;
        let mut sampling = Sampling::start(&session.input.spec.timing);
        let _ranges = session.report.enter_phase(Phase::Timed, Some(self.case))?;
        let mut calls = 0;
        loop {
            let batch = batch_size(sampling.next_batch_limit(), sampling.typical_ns());
            if batch == 0 {
                break;
            }
            for (start, end) in &pairs[..batch] {
                let form = self.choose_form(calls);
                calls += 1;
                self.forms[form].enqueue_preparation()?;
                start.record()?;
                self.forms[form].prepared.launch()?;
                end.record()?;
                self.enqueue_comparison(form)?;
            }
            let reading = session.nvml.as_ref().map(|nvml| nvml.reading());
            pairs[batch - 1].1.wait()?;
            let mut samples = Vec::with_capacity(batch);
            for (start, end) in &pairs[..batch] {
                samples.push(end.since_ns(start)?);
            }
            sampling.push(&samples, reading);
            self.check_outputs()?;
        }
        Ok(sampling.finish(TimingSource::Events, overhead_ns, self.forms[0].flushed_bytes()))
    }

    fn sample_by_host_clock(mut self) -> Result<Option<Timing>> {
        let session = self.forms[0].session;
        let mut sampling = Sampling::start(&session.input.spec.timing);
        let _ranges = session.report.enter_phase(Phase::Timed, Some(self.case))?;
        let mut calls = 0;
        loop {
            let batch = batch_size(sampling.next_batch_limit(), sampling.typical_ns());
            if batch == 0 {
                break;
            }
            let mut samples = Vec::with_capacity(batch);
            let mut reading: Option<ClockReading> = None;
            for _ in 0..batch {
                let form = self.choose_form(calls);
                calls += 1;
                self.forms[form].enqueue_preparation()?;
                session.gpu.synchronize_all()?;
                let start = Instant::now();
                self.forms[form].prepared.launch()?;
                session.gpu.synchronize_all()?;
                samples.push(start.elapsed().as_nanos() as f64);
                self.enqueue_comparison(form)?;
                if reading.is_none() {
                    reading = session.nvml.as_ref().map(|nvml| nvml.reading());
                }
            }
            sampling.push(&samples, reading);
            self.check_outputs()?;
        }
        Ok(sampling.finish(TimingSource::Host, None, self.forms[0].flushed_bytes()))
    }

    fn enqueue_comparison(&self, form: usize) -> Result<()> {
        self.watches.get(form).map_or(Ok(()), OutputWatch::enqueue_comparison)
    }

    /// Fails if a timed call was wrong. If calls differ only in their last bits, bitwise comparison
    /// stops, and the report says so.
    fn check_outputs(&mut self) -> Result<()> {
        let mut words = 0;
        for watch in &*self.watches {
            words += watch.differing_words()?;
        }
        if words == 0 {
            return Ok(());
        }
        let name = &self.case.name;
        let mut alike = true;
        for (watch, work) in self.watches.iter().zip(self.forms) {
            alike &= watch.compare_values(work.prepared, name)?;
        }
        if alike {
            // Calls checked one by one give equal bits, so the timed ones that differed did not do
            // the work.
            return Err(wrong_result(
                name,
                &format!("{words} words differed in timed calls alone"),
            ));
        }
        self.forms[0].session.report.add_gap(format!(
            "`{name}`: calls differ, at least in their last bits, so timed outputs were not \
             compared beyond the first batch; other calls agree within the tolerance"
        ));
        self.watches.clear();
        Ok(())
    }
}

/// The first batch is one sample, from which the size of later batches follows.
pub(super) fn batch_size(remaining: usize, typical_ns: Option<f64>) -> usize {
    let fitting = typical_ns.map_or(1.0, |ns| (BATCH_NS / ns.max(1.0)).ceil());
    remaining.min(fitting.clamp(1.0, MAX_BATCH as f64) as usize)
}

/// The median time of empty pairs of events, in nanoseconds.
pub(super) fn event_overhead_ns(
    (start, end): &(CudaEvent<'_>, CudaEvent<'_>),
) -> Result<Option<f64>> {
    let mut samples = Vec::new();
    for _ in 0..EMPTY_PAIRS {
        start.record()?;
        end.record()?;
        end.wait()?;
        samples.push(end.since_ns(start)?);
    }
    Ok(median(&samples))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_fill_their_time_within_the_queue_and_the_wanted_count() {
        assert_eq!(batch_size(1000, None), 1);
        assert_eq!(batch_size(1000, Some(1e3)), MAX_BATCH);
        assert_eq!(batch_size(1000, Some(1e7)), 5);
        assert_eq!(batch_size(1000, Some(1e10)), 1);
        assert_eq!(batch_size(3, Some(1e3)), 3);
        assert_eq!(batch_size(0, Some(1e3)), 0);
    }

    #[test]
    fn the_flush_exceeds_l2_even_where_its_size_is_unknown() {
        assert_eq!(flush_bytes(50 << 20), 100 << 20);
        assert!(flush_bytes(0) > 0);
    }
}
