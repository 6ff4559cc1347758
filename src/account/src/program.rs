//! Findings about the whole program, where nothing repeats that could be called a step.
//!
//! Without steps nothing is replayed. What the program's work and its critical path tell is told
//! with an upper bound, or, where a measurement must decide, without one: the kernel that takes
//! most of the GPU's time, copies from and to pageable memory, and pages of unified memory that
//! move.

use std::collections::BTreeMap;

use rgpu_model::account::{AccountCause, AccountPart};
use rgpu_model::finding::{CodePlace, CoveredKernel, GainScope, PotentialGain};
use rgpu_model::trace::{TraceWork, TraceWorkKind};
use rgpu_model::{Finding, Trace};

use crate::cause::words;
use crate::class;
use crate::code::OwnCode;
use crate::facts::GpuFacts;

/// The part of the GPU's time that makes a kernel the first thing to look at, and the part of the
/// program's time from which on the GPU's time matters.
const LEAST_KERNEL_SHARE: f64 = 0.5;
const LEAST_GPU_SHARE: f64 = 0.2;

/// The part of the program's time that copies must take.
const LEAST_COPY_SHARE: f64 = 0.05;

/// Findings about the program whose work is `order` (indexes into the trace's work), whose time is
/// `program_ns` and whose parts are `parts`; largest first.
pub(crate) fn findings(
    trace: &Trace,
    facts: &GpuFacts,
    order: &[u32],
    program_ns: u64,
    parts: &[AccountPart],
) -> Vec<Finding> {
    let work: Vec<&TraceWork> =
        order.iter().filter_map(|at| trace.work.get(*at as usize)).collect();
    let program = Program { trace, facts, work, program_ns, parts };
    let mut all: Vec<Finding> =
        [program.pageable_copies(), program.migrations()].into_iter().flatten().collect();
    all.sort_by_key(|finding| std::cmp::Reverse(finding.stake.as_ref().map(|stake| stake.ns)));
    all.extend(program.largest_kernel());
    all
}

/// The program that is looked at.
struct Program<'t> {
    trace: &'t Trace,
    facts: &'t GpuFacts,
    work: Vec<&'t TraceWork>,
    /// From the first launch to the end of the last work, in nanoseconds.
    program_ns: u64,
    parts: &'t [AccountPart],
}

impl Program<'_> {
    /// One kernel that takes most of the GPU's time.
    fn largest_kernel(&self) -> Option<Finding> {
        let mut kernels: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut gpu_ns = 0_u64;
        for work in &self.work {
            gpu_ns = gpu_ns.saturating_add(work.duration_ns);
            if work.kind == TraceWorkKind::Kernel {
                let (ns, launches) = kernels.entry(work.name).or_default();
                *ns = ns.saturating_add(work.duration_ns);
                *launches += 1;
            }
        }
        let (name, (ns, launches)) = kernels.into_iter().max_by_key(|(_, (ns, _))| *ns)?;
        let is_large = ns as f64 >= LEAST_KERNEL_SHARE * gpu_ns as f64
            && ns as f64 >= LEAST_GPU_SHARE * self.program_ns as f64;
        if !is_large {
            return None;
        }
        let code = self.places(|work| work.kind == TraceWorkKind::Kernel && work.name == name);
        let name = self.trace.names.get(name as usize).map_or("", String::as_str);
        let times =
            if launches == 1 { "1 launch".to_owned() } else { format!("{launches} launches") };
        Some(Finding {
            id: "dominant_kernel".to_owned(),
            category: "program".to_owned(),
            text: format!(
                "nothing repeats, and one kernel takes {} of the GPU's {} in {times}: `{}`; the \
                 program takes {} from its first launch to the end of its work",
                words::time(ns as f64),
                words::time(gpu_ns as f64),
                words::short_name(name),
                words::time(self.program_ns as f64),
            ),
            hint: "`rgpu profile --mode deep` reads its counters: what limits it (memory, its own \
                   instructions, FP64, too few warps, divergence), and what the next change would \
                   give"
                .to_owned(),
            covers: vec![CoveredKernel {
                kernel: name.to_owned(),
                launches,
                total_ns: ns,
                ..CoveredKernel::default()
            }],
            code,
            ..Finding::default()
        })
    }

    /// Where in the user's own code such work comes from.
    fn places(&self, is_it: impl Fn(&TraceWork) -> bool) -> Vec<CodePlace> {
        let work = self.work.iter().filter(|work| is_it(work));
        let calls = work.filter_map(|work| Some((work.call?, work.duration_ns as f64)));
        OwnCode::new(self.trace).places(calls)
    }

    /// Copies from and to pageable memory.
    fn pageable_copies(&self) -> Option<Finding> {
        let path_ns = self.path_ns(&AccountCause::CopyPageable)?;
        let is_one =
            |work: &&&TraceWork| class::of_work(self.trace, work) == AccountCause::CopyPageable;
        let (mut to_gpu_ns, mut now_ns, mut bytes, mut count) = (0_u64, 0_u64, 0_u64, 0_usize);
        for work in self.work.iter().filter(is_one) {
            let name = self.trace.names.get(work.name as usize).map_or("", String::as_str);
            if name.starts_with("HtoD") {
                to_gpu_ns = to_gpu_ns.saturating_add(work.duration_ns);
            }
            now_ns = now_ns.saturating_add(work.duration_ns);
            bytes = bytes.saturating_add(work.bytes.unwrap_or(0));
            count += 1;
        }
        let rate = self.facts.pinned_bytes_per_s.filter(|rate| *rate > 0.0)?;
        let pinned_ns = bytes as f64 * 1e9 / rate;
        let is_to_gpu = to_gpu_ns >= now_ns / 2;
        // The copies that are not on the path take their part of the bytes with them.
        let kept = (pinned_ns / now_ns.max(1) as f64).clamp(0.0, 1.0);
        let ns = (path_ns as f64 * (1.0 - kept)) as u64;
        let id = if is_to_gpu { "pageable_copies_to_gpu" } else { "pageable_copies_to_host" };
        let text = format!(
            "{count} copies ({}) from and to pageable memory take {} of the program's {}; pinned \
             memory gives {}/s",
            words::size(bytes as f64),
            words::time(path_ns as f64),
            words::time(self.program_ns as f64),
            words::size(rate),
        );
        let hint = "copy from and to pinned memory (`cudaMallocHost`, `tensor.pin_memory()`, \
                    `cupyx.empty_pinned`) with asynchronous copies; keep on the GPU what the next \
                    kernel needs";
        let found = self.bound(id, "copy from and to pinned memory", ns, text, hint)?;
        Some(Finding { code: self.places(|work| is_one(&&work)), ..found })
    }

    /// Pages of unified memory that move: beside kernels that wait for them, or while the host does.
    fn migrations(&self) -> Option<Finding> {
        // No call launched them, so they are no work of the process.
        let rank = self.work.first().and_then(|work| work.rank);
        let all = self.trace.work.iter().filter(|work| work.rank == rank);
        let mut moves: Vec<(u64, u64)> = all
            .filter(|work| class::of_work(self.trace, work) == AccountCause::CopyUnified)
            .map(|work| (work.start_ns, work.end_ns()))
            .collect();
        moves.sort_unstable();
        let kernels = self.work.iter().filter(|work| work.kind == TraceWorkKind::Kernel);
        let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
        for kernel in kernels {
            // From the first move to the last: between them are the faults.
            let from = moves.partition_point(|(start_ns, _)| *start_ns < kernel.start_ns);
            let rest = moves.get(from..).unwrap_or_default();
            let inside = rest.get(..rest.partition_point(|(s, _)| *s < kernel.end_ns()));
            let (first, last) = inside.and_then(|all| all.first().zip(all.last())).unzip();
            let ns = first.zip(last).map_or(0, |((start_ns, _), (_, end_ns))| end_ns - start_ns);
            let sum = waiting.entry(kernel.name).or_default();
            *sum = sum.saturating_add(ns.min(kernel.duration_ns));
        }
        let in_kernels = waiting.values().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
        let on_path = self.path_ns(&AccountCause::CopyUnified).unwrap_or(0);
        let ns = in_kernels.saturating_add(on_path);
        let most = waiting.into_iter().max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns > 0);
        let name = most.and_then(|(name, _)| self.trace.names.get(name as usize));
        let text = format!(
            "pages of unified memory move between host and GPU in {} pieces, for {} of the \
             program's {}{}",
            moves.len(),
            words::time(ns as f64),
            words::time(self.program_ns as f64),
            name.map_or(String::new(), |name| {
                format!("; `{}` waits longest for them", words::short_name(name))
            }),
        );
        let hint = "`cudaMemPrefetchAsync` before the first kernel and before the host reads; \
                    `cudaMemAdvise` for data that both only read; or `cudaMalloc` and one copy; data \
                    that the host fills may be filled by a kernel";
        let change = "prefetch unified memory";
        let code = self.places(|work| most.is_some_and(|(name, _)| work.name == name));
        let found = self.bound("unified_memory_migrations", change, ns, text, hint)?;
        Some(Finding { code, ..found })
    }

    /// Nanoseconds of a cause on the program's path; `None` if they are too few to speak of.
    fn path_ns(&self, cause: &AccountCause) -> Option<u64> {
        let part = self.parts.iter().find(|part| part.cause == *cause)?;
        Some(part.ns).filter(|ns| *ns as f64 >= LEAST_COPY_SHARE * self.program_ns as f64)
    }

    /// A finding with an upper bound; `None` if that is too small to speak of.
    fn bound(&self, id: &str, change: &str, ns: u64, text: String, hint: &str) -> Option<Finding> {
        let share = ns as f64 / self.program_ns.max(1) as f64;
        let stake = PotentialGain {
            change: Some(change.to_owned()),
            ..PotentialGain::bound(ns, GainScope::Program, share)
        };
        (share >= LEAST_COPY_SHARE).then(|| Finding {
            stake: Some(stake),
            id: id.to_owned(),
            category: "program".to_owned(),
            text,
            hint: hint.to_owned(),
            ..Finding::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::test_view::StepScript;

    /// The findings of a program that runs `script` once.
    fn findings_of(script: &StepScript) -> Vec<Finding> {
        let window = script.play(1);
        let (account, findings) = crate::account(&window.trace, &window.facts).unwrap();
        assert!(account.step.is_none());
        findings
    }

    #[test]
    fn a_kernel_that_is_the_program_is_named_without_a_promise() {
        let script =
            StepScript::new().kernel("price(double *)", 80_000.0).kernel("mean(double *)", 30.0);
        let findings = findings_of(&script);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].id, "dominant_kernel");
        assert!(findings[0].text.contains("`price`"), "{}", findings[0].text);
        assert!(findings[0].stake.is_none());
        assert_eq!(findings[0].covers[0].launches, 1);
    }

    #[test]
    fn pageable_copies_around_one_kernel_are_a_bound_of_the_program() {
        let script = StepScript::new()
            .copy("HtoD", 500_000_000, 50_000.0, Some(true))
            .kernel("price(double *)", 2_000.0)
            .copy("DtoH", 500_000_000, 30_000.0, Some(true));
        let findings = findings_of(&script);
        assert_eq!(findings[0].id, "pageable_copies_to_gpu");
        let stake = findings[0].stake.as_ref().unwrap();
        assert_eq!(stake.of, GainScope::Program);
        // 80 ms; a gigabyte at 50 GB/s takes 20.
        assert!((59_000_000..61_000_000).contains(&stake.ns), "{}", stake.ns);
    }

    #[test]
    fn migrations_are_a_bound_and_small_things_are_silent() {
        let script = StepScript::new()
            .copy("unified HtoD", 100_000_000, 9_000.0, None)
            .kernel("mean(double *)", 5_000.0)
            .kernel("price(double *)", 5_000.0);
        let findings = findings_of(&script);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].id, "unified_memory_migrations");
        let small = StepScript::new()
            .kernel("mean(double *)", 5_000.0)
            .copy("HtoD", 1_000, 2.0, Some(true))
            .kernel("price(double *)", 5_100.0)
            .kernel("sum(double *)", 5_200.0);
        assert!(findings_of(&small).is_empty());
    }
}
