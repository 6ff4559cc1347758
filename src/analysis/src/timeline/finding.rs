//! Findings of a timeline: causes of much idle time, each with its places and the next step.

use std::collections::{HashMap, HashSet};

use super::graphs::{Graphs, is_graph_launch};
use super::pageable;
use crate::Limits;
use crate::threshold::{NCCL_ALONE, WAITING_SHARE};
use rgpu_model::finding::{GainScope, PotentialGain, START_UP};
use rgpu_model::number_form::counted;
use rgpu_model::ranks::Ranks;
use rgpu_model::timeline::{DeviceTime, IdleGroup, PageableCopies, Timeline, WaitCause, WaitSum};
use rgpu_model::{Evidence, Finding};

/// The maximum number of places that a finding lists.
const MAX_PLACES: usize = 5;

/// What the GPU does in the findings about idle time, before the cause.
pub(super) const IDLE_BECAUSE: &str = "runs no kernel because";

/// Fewer gaps do not show what repeats: they are compared with the whole span.
pub(super) const MIN_REPEATED_GAPS: u64 = 10;

/// A cause of idle time that a user can remove.
struct Idle {
    id: &'static str,
    /// The causes of the timeline that it adds up.
    causes: &'static [WaitCause],
    /// Whether it is about start-up, or about the time after it. `None` for both.
    first_launch: Option<bool>,
    because: &'static str,
    hint: &'static str,
}

/// Id of the finding about copies.
const COPIES: &str = "gpu_waits_for_copies";

const IDLE: &[Idle] = &[
    Idle {
        id: START_UP,
        causes: &[WaitCause::HostLate, WaitCause::LaunchLatency, WaitCause::Synchronisation],
        first_launch: Some(true),
        because: "the program starts up, which happens once: the host loads libraries, loads or \
                  compiles code, or chooses algorithms",
        hint: "run a few steps as a warm-up before what you measure; keep \
               compiled code (a cache of Triton, Inductor, XLA or CuPy) between runs",
    },
    Idle {
        id: "gpu_waits_for_host",
        causes: &[WaitCause::HostLate],
        first_launch: Some(false),
        because: "the host had not launched the next kernel",
        hint: "move work of the host off the launching thread or ahead of the launches (data \
               loaders, logging, Python); queue several steps before looking at a result; capture a \
               step that repeats in a CUDA graph",
    },
    Idle {
        id: "gpu_waits_for_launches",
        causes: &[WaitCause::LaunchLatency],
        first_launch: Some(false),
        because: "the next launch was still on its way",
        hint: "launch less often: fuse small kernels, batch the work, or capture the sequence in a \
               CUDA graph",
    },
    Idle {
        id: "gpu_waits_after_synchronisation",
        causes: &[WaitCause::Synchronisation],
        first_launch: Some(false),
        because: "the host had waited for the GPU to finish before it launched on",
        hint: "wait once after the loop, not after each step; order streams with events \
               (cudaStreamWaitEvent) instead of waiting on the host",
    },
    Idle {
        id: COPIES,
        causes: &[WaitCause::Copy],
        first_launch: None,
        because: "only copies ran",
        hint: "copy from pinned memory with cudaMemcpyAsync on a stream of its own, so that the \
               copy of one step overlaps the kernels of another",
    },
];

/// Nanoseconds of all idle time of what the program repeats, other than for copies.
pub(super) fn steady_idle_ns(device: &DeviceTime) -> u64 {
    let steady = IDLE.iter().filter(|idle| idle.first_launch == Some(false));
    let of = |idle: &Idle| {
        let first_ns = sum_of(&device.first_launches, idle.causes).0;
        sum_of(&device.waiting, idle.causes).0.saturating_sub(first_ns)
    };
    steady.map(of).sum()
}

/// Whether a finding is about idle time of what the program repeats.
pub(super) fn is_steady_idle(id: &str) -> bool {
    IDLE.iter().any(|idle| idle.id == id && idle.first_launch == Some(false))
}

/// Whether a finding is about idle time other than start-up, or about copies.
pub(super) fn is_idle_after_start_up(id: &str) -> bool {
    id == pageable::ID || IDLE.iter().any(|idle| idle.id == id && idle.first_launch != Some(true))
}

/// The hint for launches that are late although they replay CUDA graphs.
const GRAPHS_ALREADY: &str = "the launches replay CUDA graphs already: put more work into each \
     graph, and queue the next replay before looking at a result";

/// The hint for late launches outside of CUDA graphs, in a program that replays some.
const OUTSIDE_GRAPHS: &str = "the program replays CUDA graphs already: capture what it launches outside \
     of them too, if that repeats, and queue work before looking at a result";

/// The hint for a host that is late mostly before one of cuDNN's kernels, and by more than
/// [`PLAN_NS`]: that long it takes to make a plan for a new shape.
const PLANS: &str = "cuDNN seems to make a new plan for each new shape: keep the shapes equal (pad a \
     cache that grows, and mask it), or use another backend (`torch.nn.attention.sdpa_kernel`)";
/// The hint for a host that is late by [`HOST_WORK_NS`] in the mean: it does work of its own then.
const HOST_WORK: &str = "do this work of the host ahead of time, on other threads or processes (a data \
     loader with workers, pinned memory, copies with `non_blocking`), or on the GPU";
/// The hint for a host that is late by less than [`LAUNCHES_NS`] in the mean: its launches take
/// that time.
const LAUNCHES: &str = "launch less: capture a step that repeats in a CUDA graph, fuse small kernels, \
     or batch the work; queue several steps before looking at a result (in torch: \
     `torch.compile(mode=\"reduce-overhead\")`, an optimizer with `fused=True`)";
/// Nanoseconds that the host takes for a launch or a few of them.
const LAUNCHES_NS: u64 = 200_000;
/// Nanoseconds of host work before a launch that no sequence of launches explains.
const HOST_WORK_NS: u64 = 1_000_000;
/// The hint for start-up that is mostly allocation.
const ALLOCATE_ONCE: &str = "allocate memory once, before what you measure, and use it again (an \
     allocator that keeps memory, a pool); run a few steps as a warm-up first";

/// Allocations with a smaller share of start-up are not reported.
const MIN_ALLOCATION_SHARE: f64 = 0.01;
/// Nanoseconds of host work before a launch that are no mere launch.
const PLAN_NS: u64 = 5_000_000;

/// The hint for late launches of kernels that also run in CUDA graphs.
const KERNELS_OF_GRAPHS: &str = "the program replays CUDA graphs of these kernels already: unless \
     these launches are their warm-up, replay the graph here too, and queue work before looking at a \
     result";

/// The findings of a timeline. Of ranks, each finding is about the rank that it concerns most.
pub(super) fn findings(
    timeline: &Timeline,
    ranks: Option<&Ranks>,
    graphs: &Graphs,
    limits: &Limits<'_>,
) -> Vec<Finding> {
    let several = timeline.devices.len() > 1;
    let mut waited_ns: HashMap<u32, u64> = HashMap::new();
    for rank in ranks.iter().flat_map(|ranks| &ranks.ranks) {
        let sum = waited_ns.entry(rank.location.rank).or_default();
        *sum = sum.saturating_add(rank.waited_ns);
    }
    let mut all: Vec<Finding> = timeline
        .devices
        .iter()
        .flat_map(|device| {
            let found = |idle| waiting(device, idle, (several, graphs), limits);
            let idle = IDLE.iter().filter_map(found);
            let waited_ns = device.rank.and_then(|rank| waited_ns.get(&rank)).copied();
            let idle: Vec<Finding> = idle.collect();
            let is_told = idle.iter().any(|finding| {
                finding.id == COPIES && mostly_pageable(device, stake_ns(finding)).is_some()
            });
            let pageable = pageable::finding(device, several, limits).filter(|_| !is_told);
            let found = idle.into_iter().chain(pageable);
            let found = found.chain(nccl(device, waited_ns.unwrap_or(0), several, limits));
            found.map(|finding| Finding { rank: device.rank, ..finding }).collect::<Vec<_>>()
        })
        .collect();
    if timeline.devices.iter().any(|device| device.rank.is_some()) {
        all.sort_by_key(|finding| std::cmp::Reverse(stake_ns(finding)));
        let mut seen = HashSet::new();
        all.retain(|finding| seen.insert(finding.id.clone()));
    }
    all
}

fn stake_ns(finding: &Finding) -> u64 {
    finding.stake.as_ref().map_or(0, |stake| stake.ns)
}

/// The copies from or to pageable memory, if they are most of the time of all copies.
fn mostly_pageable(device: &DeviceTime, all_ns: u64) -> Option<&PageableCopies> {
    device.pageable_copies.first().filter(|copies| copies.total_ns * 2 > all_ns)
}

/// Time and gaps of these causes, of all gaps or of those that first launches end.
fn sum_of(sums: &[WaitSum], causes: &[WaitCause]) -> (u64, u64) {
    let sums = sums.iter().filter(|sum| causes.contains(&sum.cause));
    sums.fold((0, 0), |(ns, gaps), sum| (ns + sum.total_ns, gaps + sum.gaps))
}

fn waiting(
    device: &DeviceTime,
    idle: &Idle,
    (several, graphs): (bool, &Graphs),
    limits: &Limits<'_>,
) -> Option<Finding> {
    let threshold = limits.threshold(&WAITING_SHARE);
    let all = sum_of(&device.waiting, idle.causes);
    let first = sum_of(&device.first_launches, idle.causes);
    let (ns, gaps) = match idle.first_launch {
        None => all,
        Some(true) => first,
        Some(false) => (all.0.saturating_sub(first.0), all.1.saturating_sub(first.1)),
    };
    // Copies of start-up, such as those between a compiler's benchmarks, are no part of what
    // repeats.
    let mostly_start_up = first.0 * 2 > all.0;
    let whole_ns = match idle.first_launch {
        Some(true) => device.span_ns,
        None if mostly_start_up => device.span_ns,
        _ if gaps < MIN_REPEATED_GAPS => device.span_ns,
        _ => steady_ns(device, limits),
    };
    let share = share(ns, whole_ns).filter(|share| *share >= threshold.value)?;
    let of_this = |place: &&IdleGroup| {
        idle.causes.contains(&place.cause)
            && idle.first_launch.is_none_or(|first| place.first_launch == first)
    };
    let places: Vec<IdleGroup> = device.places.iter().filter(of_this).cloned().collect();
    let most = |holds: &dyn Fn(&IdleGroup) -> bool| {
        let places = places.iter().filter(|place| holds(place));
        places.map(|place| place.total_ns).sum::<u64>() * 2 > ns
    };
    let metric = match idle.first_launch {
        Some(true) => "timeline.first_launches".to_owned(),
        _ => format!("timeline.{}", idle.causes[0]),
    };
    let plans = |place: &IdleGroup| {
        place.before.contains("cudnn") && place.total_ns * 2 > ns && place.longest_ns > PLAN_NS
    };
    let pageable = mostly_pageable(device, ns).filter(|_| idle.id == COPIES);
    let hint = if most(&|place| is_graph_launch(&place.call)) {
        GRAPHS_ALREADY
    } else if idle.id == START_UP && device.start_up_allocation_ns.unwrap_or(0) * 2 > ns {
        ALLOCATE_ONCE
    } else if idle.id == "gpu_waits_for_host" && places.iter().any(plans) {
        PLANS
    } else if idle.id == "gpu_waits_for_host" && ns / gaps.max(1) >= HOST_WORK_NS {
        HOST_WORK
    } else if idle.hint.contains("CUDA graph") && most(&|place| graphs.has_kernel(&place.before)) {
        KERNELS_OF_GRAPHS
    } else if idle.hint.contains("CUDA graph") && graphs.are_replayed {
        OUTSIDE_GRAPHS
    } else if idle.id == "gpu_waits_for_host" && ns / gaps.max(1) < LAUNCHES_NS {
        LAUNCHES
    } else {
        idle.hint
    };
    Some(Finding {
        id: idle.id.to_owned(),
        category: "host".to_owned(),
        stake: Some(stake(ns, device)),
        text: format!(
            "{} {}{IDLE_BECAUSE} {} ({}{}{})",
            part_of(share, whole_ns, device),
            subject(device, several),
            idle.because,
            counted(gaps, "gap", "gaps"),
            allocations(device, idle, ns),
            pageable.map(pageable::clause).unwrap_or_default(),
        ),
        hint: pageable.map_or_else(|| hint.to_owned(), pageable::hint),
        evidence: vec![
            threshold.share_evidence(&metric, share, ""),
            Evidence::number("timeline.kernel_ns", device.kernel_ns as f64, "ns"),
        ],
        places: merged(places).into_iter().take(MAX_PLACES).collect(),
        ..Finding::default()
    })
}

/// How long memory is allocated in start-up of `ns`, if that is a part to speak of:
/// `; 24.0 ms to allocate memory`.
fn allocations(device: &DeviceTime, idle: &Idle, ns: u64) -> String {
    let allocation_ns = device.start_up_allocation_ns.unwrap_or(0);
    if idle.id == START_UP && allocation_ns as f64 >= MIN_ALLOCATION_SHARE * ns as f64 {
        format!("; {} to allocate memory", time(allocation_ns))
    } else {
        String::new()
    }
}

/// Places that differ only in their cause as one.
fn merged(places: Vec<IdleGroup>) -> Vec<IdleGroup> {
    let mut all: Vec<IdleGroup> = Vec::new();
    for place in places {
        let same = all.iter_mut().find(|other| {
            other.before == place.before
                && other.region == place.region
                && other.first_launch == place.first_launch
        });
        let Some(same) = same else {
            all.push(place);
            continue;
        };
        same.host = same.host.take().or(place.host);
        same.total_ns += place.total_ns;
        same.gaps = same.gaps.max(place.gaps);
        // The long ones of one cause say nothing about the sum.
        same.long_gaps = None;
        if same.longest_start_ns == place.longest_start_ns {
            same.longest_ns += place.longest_ns;
        }
    }
    all.sort_by_key(|place| std::cmp::Reverse(place.total_ns));
    all
}

/// Collectives that no computation hides, less the time in which they waited for other ranks.
fn nccl(
    device: &DeviceTime,
    waited_ns: u64,
    several: bool,
    limits: &Limits<'_>,
) -> Option<Finding> {
    let threshold = limits.threshold(&NCCL_ALONE);
    let whole_ns = steady_ns(device, limits);
    let alone_ns = device.nccl_alone_ns.saturating_sub(waited_ns);
    let alone = share(alone_ns, whole_ns).filter(|alone| *alone >= threshold.value)?;
    Some(Finding {
        id: "nccl_not_hidden".to_owned(),
        category: "host".to_owned(),
        stake: Some(stake(alone_ns, device)),
        text: format!(
            "{} {}runs nothing but NCCL ({}{})",
            part_of(alone, whole_ns, device),
            subject(device, several),
            counted(device.nccl_launches, "launch", "launches"),
            if waited_ns > 0 { "; waits for other ranks not counted" } else { "" },
        ),
        hint: "start collectives earlier and on a stream of their own, in buckets, so that \
               computation overlaps them"
            .to_owned(),
        evidence: vec![threshold.share_evidence("timeline.nccl_alone", alone, "")],
        ..Finding::default()
    })
}

pub(super) fn stake(ns: u64, device: &DeviceTime) -> PotentialGain {
    let share = share(ns, device.span_ns).unwrap_or(0.0);
    PotentialGain::bound(ns, GainScope::Program, share)
}

/// Nanoseconds that a program which runs for long repeats: the span without start-up, if that is
/// large enough for a finding of its own.
pub(crate) fn steady_ns(device: &DeviceTime, limits: &Limits<'_>) -> u64 {
    let large = limits.threshold(&WAITING_SHARE).value;
    match share(device.start_up_idle_ns(), device.span_ns) {
        Some(share) if share >= large => device.span_ns.saturating_sub(device.start_up_ns()),
        _ => device.span_ns,
    }
}

/// `for 54 % of 2.25 s`; of less than the whole span,
/// `apart from start-up (2.00 s), for 54 % of the other 250.00 ms`. Start-up is in pieces, so that
/// the rest is no time after it.
pub(super) fn part_of(share: f64, whole_ns: u64, device: &DeviceTime) -> String {
    let (share, whole) = (percent(share), time(whole_ns));
    match device.span_ns.saturating_sub(whole_ns) {
        0 => format!("for {share} of {whole}"),
        start_up_ns => {
            let start_up = time(start_up_ns);
            format!("apart from start-up ({start_up}), for {share} of the other {whole}")
        }
    }
}

pub(super) fn subject(device: &DeviceTime, several: bool) -> String {
    match device.rank {
        Some(rank) => format!("rank {rank} "),
        None if several => format!("GPU {} ", device.device),
        None => "the GPU ".to_owned(),
    }
}

/// `43 %`; a share just below the whole is `99.7 %`.
pub(super) fn percent(share: f64) -> String {
    match 100.0 * share {
        percent if (99.0..99.95).contains(&percent) => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// `4.47 ms`, `2.50 s`.
pub(super) fn time(ns: u64) -> String {
    match ns as f64 / 1e9 {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds => format!("{:.2} ms", seconds * 1e3),
    }
}

pub(super) fn share(ns: u64, whole_ns: u64) -> Option<f64> {
    (whole_ns > 0).then(|| ns as f64 / whole_ns as f64)
}
