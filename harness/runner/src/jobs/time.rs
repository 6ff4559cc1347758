//! `time`: warm-up, judgement under load, samples until the interval is narrow enough.
//!
//! A batch of samples is enqueued without waiting: restore `inout`, flush L2, event, launch, event.
//! The flush keeps the GPU busy while the host enqueues what follows, so the time between the two
//! events holds no launch latency. NVML is read while the batch runs, since clocks read afterwards
//! are those of an idle GPU.

use super::Session;
use super::session::{DeviceSet, Prepared, Target};
use crate::cli::{Clock, Unfit};
use crate::cuda::{Buffer, Event, Probing};
use crate::fault::Outcome;
use crate::journal::say;
use crate::judge;
use crate::sampling::{Sampling, describe};
use rgpu_case::stats::median;
use rgpu_case::{ClockReading, DataSet, Phase, Timing, TimingSource};
use std::time::{Duration, Instant};

/// Samples in a batch at most: the launch queue holds about a thousand entries.
pub(super) const BATCH: usize = 64;

/// A batch should keep the GPU busy this long, so that NVML's slow readings fall within it.
const BATCH_NS: f64 = 50e6;

/// Warm-up lasts at least this long, whatever the number of launches: clocks rise only under load.
const WARM_UP: Duration = Duration::from_millis(200);

/// Where warm-up ends even if it has lasted less: one launch may take seconds.
const MOST_WARM_UP_LAUNCHES: u32 = 20_000;

/// Empty pairs of events that tell what the method itself costs.
const EMPTY_PAIRS: usize = 25;

pub(crate) fn run(session: &Session<'_>, clock: Clock, unfit: Unfit) -> Outcome<()> {
    if unfit == Unfit::Refuse {
        session.refuse_if_unfit()?;
    }
    let target = session.target()?;
    let flush = match session.input.case.timing.flush_l2 {
        // Twice its size, since a write of just its size need not replace every line.
        true => Some(Buffer::new(&session.gpu, flush_bytes(session.gpu.facts.l2_bytes), 0)?),
        false => None,
    };
    for (i, set) in session.input.case.data_sets.iter().enumerate() {
        let setup = session.journal.enter(Phase::Setup, Some(set))?;
        let host = session.fill(set)?;
        let device = DeviceSet::new(&session.gpu, &host, 0)?;
        device.fill_inputs()?;
        let (prepared, prepare_ns) = bind(session, &target, &device)?;
        session.journal.record(&set.name, |report| report.prepare_ns = prepare_ns);
        drop(setup);
        let work = Work { session, device: &device, prepared: &prepared, flush: flush.as_ref() };
        let launch_ns = work.warm_up(set)?;
        if i == 0 {
            work.judge_under_load(launch_ns)?;
            if unfit == Unfit::Refuse {
                session.refuse_if_unfit()?;
            }
        }
        let timing = match clock {
            Clock::Events => work.sample_by_events(set)?,
            Clock::Host => work.sample_by_host_clock(set)?,
        };
        if let Some(timing) = timing {
            say!("time {}: {}", set.name, describe(&timing));
            session.journal.record(&set.name, |report| report.timing = Some(timing));
        }
    }
    Ok(())
}

pub(super) fn bind<'t>(
    session: &'t Session<'_>,
    target: &'t Target<'_>,
    device: &DeviceSet<'_>,
) -> Outcome<(Prepared<'t>, Option<f64>)> {
    target.prepare(&session.gpu, device, Probing::Thorough)
}

pub(super) fn flush_bytes(l2_bytes: u64) -> usize {
    usize::try_from(l2_bytes * 2).unwrap_or(0).max(1 << 20)
}

/// One data set, ready to be measured.
pub(super) struct Work<'w> {
    pub(super) session: &'w Session<'w>,
    pub(super) device: &'w DeviceSet<'w>,
    pub(super) prepared: &'w Prepared<'w>,
    pub(super) flush: Option<&'w Buffer<'w>>,
}

impl Work<'_> {
    /// Launches without measuring; gives the rough time of one launch.
    pub(super) fn warm_up(&self, set: &DataSet) -> Outcome<f64> {
        let _stage = self.session.journal.enter(Phase::Warmup, Some(set))?;
        let asked = self.session.input.case.timing.warmup;
        let start = Instant::now();
        let mut done = 0;
        while done < asked || (start.elapsed() < WARM_UP && done < MOST_WARM_UP_LAUNCHES) {
            self.device.restore()?;
            self.prepared.launch()?;
            self.session.gpu.synchronize()?;
            done += 1;
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(done.max(1)))
    }

    /// Warns of a GPU that is held back, by a reading taken while the kernel runs.
    pub(super) fn judge_under_load(&self, launch_ns: f64) -> Outcome<()> {
        let Some(nvml) = &self.session.nvml else { return Ok(()) };
        let launches = (BATCH_NS / launch_ns.max(1.0)).ceil().clamp(1.0, 4.0 * BATCH as f64);
        for _ in 0..launches as usize {
            self.device.restore()?;
            self.prepared.launch()?;
        }
        let reading = nvml.reading();
        self.session.gpu.synchronize()?;
        if reading.sm_mhz.is_none() {
            self.session.journal.gap("NVML does not give this GPU's SM clock");
        }
        for warning in judge::under_load(&reading, &self.session.input.case.policies.clocks) {
            self.session.journal.warn(warning);
        }
        Ok(())
    }

    fn sample_by_events(&self, set: &DataSet) -> Outcome<Option<Timing>> {
        let gpu = &self.session.gpu;
        let mut pairs = Vec::new();
        for _ in 0..BATCH {
            pairs.push((Event::new(gpu)?, Event::new(gpu)?));
        }
        let overhead_ns = overhead(&pairs)?;
        let mut sampling = Sampling::start(&self.session.input.case.timing);
        let _stage = self.session.journal.enter(Phase::Timed, Some(set))?;
        loop {
            let batch = batch_size(sampling.wanted(), sampling.typical());
            if batch == 0 {
                break;
            }
            for (start, end) in &pairs[..batch] {
                self.before_sample()?;
                start.record()?;
                self.prepared.launch()?;
                end.record()?;
            }
            let reading = self.session.nvml.as_ref().map(|nvml| nvml.reading());
            pairs[batch - 1].1.wait()?;
            let mut samples = Vec::with_capacity(batch);
            for (start, end) in &pairs[..batch] {
                samples.push(end.since_ns(start)?);
            }
            sampling.push(&samples, reading);
        }
        Ok(sampling.finish(TimingSource::Events, overhead_ns, self.flush.is_some()))
    }

    fn sample_by_host_clock(&self, set: &DataSet) -> Outcome<Option<Timing>> {
        let mut sampling = Sampling::start(&self.session.input.case.timing);
        let _stage = self.session.journal.enter(Phase::Timed, Some(set))?;
        loop {
            let batch = batch_size(sampling.wanted(), sampling.typical());
            if batch == 0 {
                break;
            }
            let mut samples = Vec::with_capacity(batch);
            let mut reading: Option<ClockReading> = None;
            for _ in 0..batch {
                self.before_sample()?;
                self.session.gpu.synchronize()?;
                let start = Instant::now();
                self.prepared.launch()?;
                self.session.gpu.synchronize()?;
                samples.push(start.elapsed().as_nanos() as f64);
                if reading.is_none() {
                    reading = self.session.nvml.as_ref().map(|nvml| nvml.reading());
                }
            }
            sampling.push(&samples, reading);
        }
        Ok(sampling.finish(TimingSource::Host, None, self.flush.is_some()))
    }

    pub(super) fn before_sample(&self) -> Outcome<()> {
        self.device.restore()?;
        self.flush.map_or(Ok(()), |flush| flush.set(0))
    }
}

/// The first batch is one sample, which tells how many fill the wanted time.
pub(super) fn batch_size(wanted: usize, typical_ns: Option<f64>) -> usize {
    let fitting = typical_ns.map_or(1.0, |ns| (BATCH_NS / ns.max(1.0)).ceil());
    wanted.min(fitting.clamp(1.0, BATCH as f64) as usize)
}

pub(super) fn overhead(pairs: &[(Event<'_>, Event<'_>)]) -> Outcome<Option<f64>> {
    let mut samples = Vec::new();
    for (start, end) in &pairs[..EMPTY_PAIRS] {
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
        assert_eq!(batch_size(1000, Some(1e3)), BATCH);
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
