//! The finding about element-wise kernels that follow one another: each reads its operands from
//! memory and writes its result there, where one fused kernel would do that once.

use std::collections::BTreeMap;

use super::computes;
use crate::Limits;
use crate::known_kernel::{self, ElementWise};
use crate::stake::{self, MeanGpuTime};
use crate::threshold::{FUSIBLE_SHARE, LAUNCH_NS};
use rgpu_model::finding::CoveredKernel;
use rgpu_model::number_form::counted;
use rgpu_model::{Evidence, Finding, Timeline, Trace};

/// Id of the finding.
pub(super) const ID: &str = "element_wise_kernels";

/// Element-wise kernels of one stream without another kernel between them.
#[derive(Default)]
struct Sequence<'a> {
    /// Names and nanoseconds of kernels that run for longer than a launch takes.
    kernels: Vec<(&'a str, u64)>,
    /// Whether one of them computes. Copies and fills alone, such as casts of a model's weights,
    /// are not fused.
    has_arithmetic: bool,
}

/// What fusing could give back.
#[derive(Default)]
struct Fusible<'a> {
    sequences: u64,
    by_kernel: BTreeMap<&'a str, CoveredKernel>,
}

impl<'a> Fusible<'a> {
    /// Adds a sequence that ended. Fused, it takes at least as long as its longest kernel.
    fn add(&mut self, sequence: Sequence<'a>) {
        let total_ns: u64 = sequence.kernels.iter().map(|(_, ns)| ns).sum();
        let longest_ns = sequence.kernels.iter().map(|(_, ns)| *ns).max().unwrap_or(0);
        if sequence.kernels.len() < 2 || !sequence.has_arithmetic {
            return;
        }
        self.sequences += 1;
        let gain = 1.0 - longest_ns as f64 / total_ns as f64;
        for (name, ns) in sequence.kernels {
            let covered = self.by_kernel.entry(name).or_default();
            covered.launches += 1;
            covered.total_ns += ns;
            covered.stake_ns += (ns as f64 * gain).round() as u64;
        }
    }
}

/// The finding, if fusing could give back enough of the GPU time.
pub(super) fn finding(
    trace: &Trace,
    timeline: Option<&Timeline>,
    limits: &Limits<'_>,
) -> Option<Finding> {
    let launch_ns = limits.threshold(&LAUNCH_NS).value as u64;
    let mut open: BTreeMap<_, Sequence<'_>> = BTreeMap::new();
    let mut fusible = Fusible::default();
    let mut gpu_ns = 0_u64;
    // There are few names, and to read one takes longer than all else here.
    let kinds: Vec<_> = trace.names.iter().map(|name| known_kernel::element_wise(name)).collect();
    for work in trace.work.iter().filter(|work| computes(work)) {
        gpu_ns = gpu_ns.saturating_add(work.duration_ns);
        let name = trace.names.get(work.name as usize).map_or("", String::as_str);
        let sequence = open.entry((work.rank, work.device, work.stream)).or_default();
        match kinds.get(work.name as usize).copied().flatten() {
            None => fusible.add(std::mem::take(sequence)),
            Some(_) if work.duration_ns < launch_ns => {}
            Some(kind) => {
                sequence.kernels.push((name, work.duration_ns));
                sequence.has_arithmetic |= kind == ElementWise::Arithmetic;
            }
        }
    }
    open.into_values().for_each(|sequence| fusible.add(sequence));

    let mut covers: Vec<CoveredKernel> = Vec::new();
    for (name, covered) in fusible.by_kernel {
        let text = "runs next to other element-wise kernels".to_owned();
        covers.push(CoveredKernel { kernel: name.to_owned(), text, ..covered });
    }
    covers.sort_by_key(|covered| std::cmp::Reverse(covered.stake_ns));
    let sum = |of: fn(&CoveredKernel) -> u64| covers.iter().map(of).sum::<u64>();
    let [launches, total_ns, ns] = [sum(|c| c.launches), sum(|c| c.total_ns), sum(|c| c.stake_ns)];
    let threshold = limits.threshold(&FUSIBLE_SHARE);
    let share = (gpu_ns > 0).then(|| ns as f64 / gpu_ns as f64)?;
    if share < threshold.value {
        return None;
    }
    let longest = covers.first()?.kernel.clone();
    Some(Finding {
        id: ID.to_owned(),
        category: "memory".to_owned(),
        stake: Some(stake::of_kernels(ns as f64, gpu_ns as f64, MeanGpuTime::new(timeline))),
        text: format!(
            "element-wise kernels follow one another, {launches} launches in {}: {:.0} % of the GPU \
             time; each reads its operands from memory and writes its result there",
            counted(fusible.sequences, "sequence", "sequences"),
            100.0 * total_ns as f64 / gpu_ns as f64,
        ),
        hint: known_kernel::fuse_hint(&longest)?.to_owned(),
        evidence: vec![
            threshold.share_evidence("timeline.fusible", share, "of the GPU time"),
            Evidence::number("timeline.element_wise_ns", total_ns as f64, "ns"),
        ],
        covers,
        ..Finding::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Thresholds;
    use rgpu_model::trace::{TraceWork, TraceWorkKind};

    const ADD: &str = "cupy_add__float32_float32_float32";
    const COPY: &str = "cupy_copy__float32_float32";
    const OTHER: &str = "decay";

    /// Kernels one after another: stream, name, microseconds.
    fn trace(kernels: &[(u64, &str, u64)]) -> Trace {
        let names: Vec<String> = [ADD, COPY, OTHER].map(str::to_owned).into();
        let mut start_ns = 0;
        let work = kernels.iter().map(|&(stream, kernel, us)| {
            let name = names.iter().position(|name| name == kernel).unwrap() as u32;
            let work = TraceWork {
                kind: TraceWorkKind::Kernel,
                name,
                start_ns,
                duration_ns: us * 1000,
                device: 0,
                stream,
                bytes: None,
                pageable: None,
                call: None,
                launch: None,
                regions: Default::default(),
                rank: None,
                shape: None,
            };
            start_ns += us * 1000;
            work
        });
        Trace { work: work.collect(), names, ..Trace::default() }
    }

    fn found(kernels: &[(u64, &str, u64)]) -> Option<Finding> {
        finding(&trace(kernels), None, &Limits::new(&Thresholds::default(), None))
    }

    #[test]
    fn all_but_the_longest_of_a_sequence_could_be_given_back() {
        let kernels = [(0, COPY, 60), (0, ADD, 90), (0, OTHER, 200), (0, ADD, 50), (0, ADD, 100)];
        let finding = found(&kernels).unwrap();
        let stake = finding.stake.unwrap();
        assert_eq!((stake.ns, stake.share), (110_000, 0.22));
        assert!(finding.text.contains("4 launches in 2 sequences: 60 % of"), "{}", finding.text);
        assert!(finding.hint.contains("cupy.fuse"), "{}", finding.hint);
        let covers = finding.covers.iter().map(|c| (c.kernel.as_str(), c.launches, c.total_ns));
        assert_eq!(covers.collect::<Vec<_>>(), [(ADD, 3, 240_000), (COPY, 1, 60_000)]);
    }

    #[test]
    fn other_streams_other_kernels_and_copies_alone_are_no_sequence() {
        assert_eq!(found(&[(0, ADD, 90), (1, ADD, 90)]), None);
        assert_eq!(found(&[(0, ADD, 90), (0, OTHER, 9), (0, ADD, 90)]), None);
        assert_eq!(found(&[(0, COPY, 90), (0, COPY, 90)]), None);
        // As short as a launch: another rule has those.
        assert_eq!(found(&[(0, ADD, 2), (0, ADD, 2)]), None);
        assert_eq!(found(&[]), None);
    }
}
