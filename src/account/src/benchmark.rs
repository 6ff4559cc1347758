//! Benchmarks of single kernels, which are no loop with steps.
//!
//! Triton's `do_bench` fills a large buffer before each repetition, so that no data is left in the
//! cache, and records two events around it. The signature is one fill kernel or memset of equal size
//! and 20 µs or more that stands before most of the launches: at least 30 times, at most 16 launches
//! apart, and an event recorded between it and the next launch. What is measured changes its size
//! from time to time, so nothing is a step: each kernel is told by itself.
//!
//! An autotuner measures its candidates in the same way, in the middle of a program: then such
//! repetitions come in bursts with other work between, and the kernels that are measured are used in
//! that work. Once is start-up; three bursts or more are told.

use std::collections::{BTreeMap, BTreeSet};

use rgpu_model::account::AccountCause;
use rgpu_model::finding::{CodePlace, CoveredKernel, GainScope, PotentialGain};
use rgpu_model::trace::TraceWork;
use rgpu_model::{Finding, Trace};

use crate::cause::words;
use crate::class;
use crate::code::OwnCode;
use crate::host_calls::{CallKind, median};

/// Fills of one size.
const LEAST_FILLS: usize = 30;
/// The time of a fill that clears a cache, in nanoseconds.
const LEAST_FILL_NS: u64 = 20_000;
/// Launches from a fill to the next one.
const MOST_BETWEEN: usize = 16;
/// The part of all launches that such repetitions are.
const LEAST_SHARE: f64 = 0.6;
/// Calls before a launch among which its event was recorded.
const CALLS_BEFORE: usize = 12;
/// Launches of kernels that are never measured, from which on a piece of work is the program's own.
const LEAST_OWN_LAUNCHES: usize = 16;
/// Bursts of repetitions that are no start-up, and the part of the program's time that they take.
const LEAST_BURSTS: usize = 3;
const LEAST_TUNING_SHARE: f64 = 0.02;
/// Kernels that the finding names.
const MAX_KERNELS: usize = 4;

/// What tells kernels and their sizes apart: name, grid, bytes.
type Kind = (u32, Option<u32>, Option<u64>);

/// A benchmark: the launches that belong to its repetitions, without those that clear the cache.
pub(crate) struct Benchmark {
    measured: Vec<u32>,
    repetitions: usize,
    fill_ns: u64,
    fill: u32,
    /// Whether such repetitions are most of the program.
    is_whole: bool,
    /// From the first work of each burst to the last, in nanoseconds, if they are an autotuner's.
    bursts: Vec<(u64, u64)>,
}

/// The benchmark that a program is; `None` if it is none. `order` is its work in the order of the
/// launches.
pub(crate) fn find(trace: &Trace, order: &[u32]) -> Option<Benchmark> {
    let work = |at: &u32| trace.work.get(*at as usize);
    let kind = |work: &TraceWork| -> Kind { (work.name, work.shape, work.bytes) };
    let mut fills: BTreeMap<Kind, (usize, u64)> = BTreeMap::new();
    for work in order.iter().filter_map(work) {
        if work.duration_ns >= LEAST_FILL_NS && class::of_work(trace, work) == AccountCause::Fill {
            let sum = fills.entry(kind(work)).or_default();
            *sum = (sum.0.saturating_add(1), sum.1.saturating_add(work.duration_ns));
        }
    }
    let (fill, (count, fill_ns)) = fills.into_iter().max_by_key(|(_, (count, _))| *count)?;
    if count < LEAST_FILLS {
        return None;
    }
    let is_fill = |at: &u32| work(at).is_some_and(|work| kind(work) == fill);
    let records: Vec<bool> =
        trace.names.iter().map(|name| CallKind::of(name) == CallKind::Record).collect();
    let mut measured = Vec::new();
    let mut repetitions: Vec<&[u32]> = Vec::new();
    let mut others: Vec<&[u32]> = Vec::new();
    for repetition in order.split(is_fill).skip(1) {
        let first = repetition.first().filter(|_| repetition.len() <= MOST_BETWEEN);
        let first = first.and_then(work).and_then(|work| work.call);
        if first.is_some_and(|call| is_timed(trace, call, &records)) {
            measured.extend_from_slice(repetition);
            repetitions.push(repetition);
        } else {
            others.push(repetition);
        }
    }
    if repetitions.len() * 2 < count {
        return None;
    }
    let covered = measured.len().saturating_add(count);
    let names: BTreeSet<u32> = measured.iter().filter_map(|at| Some(work(at)?.name)).collect();
    let is_measured = |at: &&u32| work(at).is_some_and(|work| names.contains(&work.name));
    let own = others.into_iter().filter(|part| {
        let launches = part.iter().filter(is_measured).count();
        launches > 0 && part.len() - launches >= LEAST_OWN_LAUNCHES
    });
    let own_ns: Vec<u64> = own.filter_map(|part| Some(work(part.last()?)?.start_ns)).collect();
    let bursts = bursts(trace, &repetitions, &own_ns);
    Some(Benchmark {
        measured,
        repetitions: repetitions.len(),
        fill_ns,
        fill: fill.0,
        is_whole: covered as f64 >= LEAST_SHARE * order.len() as f64,
        bursts,
    })
}

/// From the first work to the last of repetitions between which the program's own work is; `own_ns`
/// are times in it, in order.
fn bursts(trace: &Trace, repetitions: &[&[u32]], own_ns: &[u64]) -> Vec<(u64, u64)> {
    let mut bursts: Vec<(u64, u64)> = Vec::new();
    for repetition in repetitions {
        let work = |at: Option<&u32>| trace.work.get(*at? as usize);
        let ends = work(repetition.first()).zip(work(repetition.last()));
        let Some((start_ns, end_ns)) = ends.map(|(a, b)| (a.start_ns, b.end_ns())) else {
            continue;
        };
        let is_between = |from_ns: u64| {
            let next = own_ns.partition_point(|own_ns| *own_ns < from_ns);
            own_ns.get(next).is_some_and(|own_ns| *own_ns < start_ns)
        };
        match bursts.last_mut() {
            Some((_, until_ns)) if !is_between(*until_ns) => *until_ns = end_ns.max(*until_ns),
            _ => bursts.push((start_ns, end_ns)),
        }
    }
    bursts
}

/// Whether an event was recorded right before a launch, by one of the last calls; of any thread, since
/// torch launches a backward pass from one of its own.
fn is_timed(trace: &Trace, launch: u32, records: &[bool]) -> bool {
    let before = trace.calls.get(..launch as usize).unwrap_or_default();
    let mut before = before.iter().rev().take(CALLS_BEFORE);
    before.any(|call| records.get(call.name as usize).copied().unwrap_or(false))
}

impl Benchmark {
    /// Whether it is all that the program does.
    pub(crate) fn is_program(&self) -> bool {
        self.is_whole && self.bursts.len() < LEAST_BURSTS
    }

    /// An autotuner that measures again and again; `None` if it is none. `program_ns` is the time
    /// from the first launch to the end of the last work.
    pub(crate) fn tuning(&self, trace: &Trace, program_ns: u64) -> Option<Finding> {
        // The first burst is start-up.
        let again = self.bursts.get(1..).filter(|again| again.len() + 1 >= LEAST_BURSTS)?;
        let ns = again.iter().map(|(start, end)| end - start).fold(0, u64::saturating_add);
        let share = ns as f64 / program_ns.max(1) as f64;
        if share < LEAST_TUNING_SHARE {
            return None;
        }
        let name = self.measured.first().and_then(|at| trace.work.get(*at as usize));
        let name = name.and_then(|work| trace.names.get(work.name as usize));
        Some(Finding {
            id: "tuned_again".to_owned(),
            category: "program".to_owned(),
            stake: Some(PotentialGain {
                change: Some("tune once".to_owned()),
                ..PotentialGain::bound(ns, GainScope::Program, share.min(1.0))
            }),
            text: format!(
                "an autotuner measures its candidates (such as `{}`) anew {} times in the middle of \
                 the program, {} repetitions in all: {} after the first time",
                words::short_name(name.map_or("", String::as_str)),
                again.len(),
                self.repetitions,
                words::time(ns as f64),
            ),
            hint: "leave out of the key what changes with each request and does not decide which \
                   candidate is best (Triton: `@triton.autotune(key=[\"width\"])` without rows or \
                   tokens, or a size rounded to a power of two), tune all keys in a warm-up, or keep \
                   the results (`cache_results=True`); `TRITON_PRINT_AUTOTUNING=1` prints each search"
                .to_owned(),
            code: self.places(trace),
            ..Finding::default()
        })
    }

    fn places(&self, trace: &Trace) -> Vec<CodePlace> {
        OwnCode::new(trace).places(self.measured.iter().filter_map(|at| {
            let work = trace.work.get(*at as usize)?;
            Some((work.call?, work.duration_ns as f64))
        }))
    }

    /// What it measured, by kernel.
    pub(crate) fn finding(&self, trace: &Trace) -> Finding {
        let mut kernels: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for work in self.measured.iter().filter_map(|at| trace.work.get(*at as usize)) {
            kernels.entry(work.name).or_default().push(work.duration_ns);
        }
        let mut kernels: Vec<(&str, u64, Vec<u64>)> = kernels
            .into_iter()
            .map(|(name, times)| {
                let name = trace.names.get(name as usize).map_or("", String::as_str);
                (name, times.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns)), times)
            })
            .collect();
        kernels.sort_by_key(|(name, ns, _)| (std::cmp::Reverse(*ns), *name));
        kernels.truncate(MAX_KERNELS);
        let listed = kernels.iter().map(|(name, ns, times)| {
            format!(
                "`{}` {} in {} launches, {} in the median ({} to {})",
                words::short_name(name),
                words::time(*ns as f64),
                times.len(),
                words::time(median(times.clone()) as f64),
                words::time(times.iter().min().copied().unwrap_or(0) as f64),
                words::time(times.iter().max().copied().unwrap_or(0) as f64),
            )
        });
        let listed: Vec<String> = listed.collect();
        let fill = trace.names.get(self.fill as usize).map_or("", String::as_str);
        Finding {
            id: "benchmark".to_owned(),
            category: "program".to_owned(),
            text: format!(
                "the program measures kernels one by one ({} repetitions; `{}` clears the cache \
                 before each, {} in all), so it has no steps: {}",
                self.repetitions,
                words::short_name(fill),
                words::time(self.fill_ns as f64),
                listed.join("; "),
            ),
            hint:
                "`rgpu profile --mode deep --kernel NAME` on one size reads what limits the kernel \
                   that you tune; the time between repetitions is the benchmark's own"
                    .to_owned(),
            covers: kernels
                .iter()
                .map(|(name, ns, times)| CoveredKernel {
                    kernel: (*name).to_owned(),
                    launches: times.len() as u64,
                    total_ns: *ns,
                    ..CoveredKernel::default()
                })
                .collect(),
            code: self.places(trace),
            ..Finding::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cause::test_view::{StepScript, names, play};

    #[test]
    fn a_benchmark_of_several_sizes_has_no_steps() {
        let size = |shape: u32, us: f64| {
            let clear = StepScript::new().kernel(names::FILL, 60.0).call("cudaEventRecord", 1.0);
            clear.then(StepScript::new().shaped(shape).kernel("softmax_kernel(float *)", us))
        };
        let mut scripts = Vec::new();
        for shape in 0..4 {
            scripts.extend(vec![size(shape, 20.0 * f64::from(shape + 1)); 25]);
        }
        let mut window = play(&scripts);
        window.call_from("cudaLaunchKernel", 5);
        let (account, findings) = crate::account(&window.trace, &window.facts).unwrap();
        assert!(account.step.is_none());
        assert_eq!(findings[0].id, "benchmark");
        assert_eq!(findings[0].code.first().and_then(|place| place.line), Some(5));
        assert!(findings[0].text.contains("100 repetitions"), "{}", findings[0].text);
        assert!(findings[0].text.contains("(20.0 µs to 80.0 µs)"), "{}", findings[0].text);
        // A loop that fills one buffer and works on it is a loop.
        let looped = StepScript::new().kernel(names::FILL, 60.0).kernel("mine(float *)", 90.0);
        let window = looped.play(100);
        let (account, findings) = crate::account(&window.trace, &window.facts).unwrap();
        assert!(account.step.is_some());
        assert!(findings.iter().all(|finding| finding.id != "benchmark"));
    }

    #[test]
    fn an_autotuner_in_the_middle_of_a_program_is_told() {
        let norm = "add_norm_kernel(float *)";
        let layer = || {
            StepScript::new()
                .kernel(names::PRODUCT, 300.0)
                .kernel(names::MUL, 20.0)
                .kernel(names::PRODUCT, 300.0)
                .kernel(norm, 20.0)
        };
        let serve = || (0..6).fold(StepScript::new(), |step, _| step.then(layer()));
        let clear = || StepScript::new().kernel(names::FILL, 60.0).call("cudaEventRecord", 1.0);
        let tune = (0..60).fold(StepScript::new(), |all, _| all.then(clear().kernel(norm, 20.0)));
        let phase = || [vec![tune.clone()], vec![serve(); 10]].concat();
        let window = play(&(0..5).flat_map(|_| phase()).collect::<Vec<_>>());
        let (account, findings) = crate::account(&window.trace, &window.facts).unwrap();
        let found = findings.iter().find(|finding| finding.id == "tuned_again").unwrap();
        assert!(found.text.contains("anew 4 times"), "{}", found.text);
        assert!(account.program_ns > 0);
        let once = play(&[vec![tune.clone()], vec![serve(); 50]].concat());
        let (account, findings) = crate::account(&once.trace, &once.facts).unwrap();
        assert!(account.step.is_some());
        assert!(findings.iter().all(|finding| finding.id != "tuned_again"));
    }
}
