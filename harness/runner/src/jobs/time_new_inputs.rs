//! Timing on new data for each call, for kernels whose reference runs on the GPU.
//!
//! For each call, the inputs are generated again, a host entry is refreshed or prepared again, the
//! reference computes the expected outputs, outputs are poisoned and L2 is flushed. Then come
//! event, launch, event, and after them the check of the outputs. Only the launch lies between the
//! two events. The reference keeps the GPU busy while the host enqueues what follows, so the events
//! include no launch latency.
//!
//! The host synchronizes after each call. If the GPU is still busy after the end event, the kernel
//! uses a stream of its own and is timed by the host's clock.
//!
//! The reference determines the cost: if it takes t seconds per call, `max_seconds` allows
//! `max_seconds / t` samples.

use super::Session;
use super::check::Check;
use super::new_inputs::{InputGenerator, fixed_inputs};
use super::session::{DeviceCase, LaunchTarget, PreparedTarget};
use super::time::{
    LATE_FRACTION, LATE_NS, TimedCase, batch_size, event_overhead_ns, prepare_target,
};
use super::verify::DeviceReference;
use crate::cli::Clock;
use crate::cuda::{Buffer, CudaEvent};
use crate::fault::Result;
use crate::sampling::Sampling;
use rgpu_case::{Case, ClockReading, ErrorClass, Phase, Timing, TimingSource};
use std::time::Instant;

/// One case, ready to be timed with new inputs for each call.
pub(super) struct NewInputsCase<'w> {
    session: &'w Session<'w>,
    target: &'w LaunchTarget<'w>,
    device: &'w DeviceCase<'w>,
    flush: Option<&'w Buffer<'w>>,
    inputs: InputGenerator<'w>,
    /// `None` when there is not enough memory for it.
    check: Option<Check<'w>>,
    case: &'w Case,
}

/// Samples taken with one clock.
struct ClockSamples {
    timing: Option<Timing>,
    /// Calls for which the GPU was still busy after the end event.
    late: u64,
}

impl<'w> NewInputsCase<'w> {
    pub(super) fn new(
        session: &'w Session<'w>,
        target: &'w LaunchTarget<'w>,
        reference: &'w DeviceReference<'w>,
        device: &'w DeviceCase<'w>,
        flush: Option<&'w Buffer<'w>>,
    ) -> Result<NewInputsCase<'w>> {
        let case = device.host.case;
        let inputs = InputGenerator::new(session, device.host)?;
        let check = match Check::new(session, reference, device.host) {
            Err(fault) if fault.0.class == ErrorClass::OutOfMemory => {
                session.report.add_gap(format!(
                    "`{}`: not enough memory for a reference with its own data, so the outputs of \
                     timed calls were not compared",
                    case.name
                ));
                None
            }
            check => Some(check?),
        };
        let fixed = fixed_inputs(case);
        if !fixed.is_empty() {
            session.report.add_gap(format!(
                "`{}`: `{}` had the same contents in every timed call, because `init` or `seed` \
                 fixes them",
                case.name,
                fixed.join("`, `")
            ));
        }
        Ok(NewInputsCase { session, target, device, flush, inputs, check, case })
    }

    /// Times the kernel. If the GPU was still busy after more than half of the end events, times it
    /// again with the host's clock.
    pub(super) fn time_kernel(
        &self,
        prepared: PreparedTarget<'w>,
        clock: Clock,
    ) -> Result<Option<Timing>> {
        let _ranges = self.session.report.enter_phase(Phase::Timed, Some(self.case))?;
        let (prepared, sampled) = self.sample(prepared, clock, 0)?;
        let taken = sampled.timing.as_ref().map_or(0, |timing| timing.sample_ns.len() as u64);
        if clock == Clock::Host || sampled.late * 2 <= taken {
            return Ok(sampled.timing);
        }
        super::time::report_own_stream(self.session, self.case);
        Ok(self.sample(prepared, Clock::Host, taken)?.1.timing)
    }

    /// Times calls. `calls_before` is the number of calls made earlier; each call number gives
    /// other inputs, so none repeat.
    fn sample(
        &self,
        mut prepared: PreparedTarget<'w>,
        clock: Clock,
        calls_before: u64,
    ) -> Result<(PreparedTarget<'w>, ClockSamples)> {
        let gpu = &self.session.gpu;
        let pair = (CudaEvent::new(gpu)?, CudaEvent::new(gpu)?);
        let (start, end) = &pair;
        let overhead_ns = match clock {
            Clock::Events => event_overhead_ns(&pair)?,
            Clock::Host => None,
        };
        let mut sampling = Sampling::start(&self.session.input.spec.timing);
        let (mut calls, mut late, mut each_ns) = (calls_before, 0, None);
        loop {
            let batch = batch_size(sampling.next_batch_limit(), each_ns);
            if batch == 0 {
                break;
            }
            let first = calls + 1;
            let began = Instant::now();
            let mut samples = Vec::with_capacity(batch);
            let mut reading: Option<ClockReading> = None;
            for slot in 0..batch {
                calls += 1;
                prepared = self.renew(prepared, calls)?;
                let work = TimedCase {
                    session: self.session,
                    device: self.device,
                    prepared: &prepared,
                    flush: self.flush,
                };
                work.enqueue_preparation()?;
                let mut read_clocks = || {
                    if reading.is_none() {
                        reading = self.session.nvml.as_ref().map(|nvml| nvml.reading());
                    }
                };
                let ns = match clock {
                    Clock::Events => {
                        start.record()?;
                        prepared.launch()?;
                        end.record()?;
                        read_clocks();
                        end.wait()?;
                        let passed = Instant::now();
                        gpu.synchronize_all()?;
                        let busy_after_end_ns = passed.elapsed().as_nanos() as f64;
                        let ns = end.since_ns(start)?;
                        late += u64::from(busy_after_end_ns > LATE_NS.max(LATE_FRACTION * ns));
                        ns
                    }
                    Clock::Host => {
                        gpu.synchronize_all()?;
                        let begin = Instant::now();
                        prepared.launch()?;
                        gpu.synchronize_all()?;
                        let ns = begin.elapsed().as_nanos() as f64;
                        read_clocks();
                        ns
                    }
                };
                samples.push(ns);
                if let Some(check) = &self.check {
                    check.enqueue_comparison(self.device, slot)?;
                }
            }
            if let Some(check) = &self.check {
                check.fail_on_mismatch(first)?;
            }
            each_ns = Some(began.elapsed().as_nanos() as f64 / batch as f64);
            sampling.push(&samples, reading);
        }
        let source = match clock {
            Clock::Events => TimingSource::Events,
            Clock::Host => TimingSource::Host,
        };
        let flushed = self.flush.map(|buffer| buffer.size() as u64);
        let timing = sampling.finish(source, overhead_ns, flushed).map(|mut timing| {
            let taken = timing.sample_ns.len() as u64;
            timing.verified = self.check.is_some().then_some(taken);
            timing.distinct_inputs = Some(if self.inputs.has_new_inputs() { taken } else { 1 });
            timing
        });
        Ok((prepared, ClockSamples { timing, late }))
    }

    /// Generates new inputs, refreshes the kernel and enqueues the reference.
    fn renew(&self, prepared: PreparedTarget<'w>, call: u64) -> Result<PreparedTarget<'w>> {
        self.inputs.enqueue_contents(self.device, call)?;
        self.device.restore_inout()?;
        let prepared = if self.inputs.has_new_inputs() && !prepared.refresh()? {
            // Dropped first, so that two states are not in memory at once.
            drop(prepared);
            prepare_target(self.session, self.target, self.device)?.0
        } else {
            prepared
        };
        if let Some(check) = &self.check {
            check.enqueue_reference(&self.inputs, call)?;
        }
        Ok(prepared)
    }
}
