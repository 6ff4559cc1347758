//! Tells which launches are a program's set-up, and when the profiled ones are nothing else: they
//! fill tensors with random numbers, convert weights, or tune kernels.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::known_kernel::{ElementWise, element_wise};
use super::threshold::{Limits, SETUP_SHARE};
use super::tuning::{self, Tuner};
use rgpu_model::finding::{CoveredKernel, GainScope, PotentialGain};
use rgpu_model::timeline::TimelineScope;
use rgpu_model::{Finding, Launch, Profile};

/// Parts of the names of kernels that make random numbers: torch's, cuRAND's and JAX' ones.
const RANDOM: &[&str] = &["distribution_elementwise_grid_stride_kernel", "curand", "threefry"];

/// Parts of XLA's ranges around JAX' functions for random numbers, whose kernels have names of any
/// fusion.
const RANDOM_MODULES: &[&str] =
    &["hlo_module=jit__normal,", "hlo_module=jit__uniform,", "hlo_module=jit__threefry"];

/// Words of the names of ranges that hold a program's preparations.
const PREPARING: &[&str] = &[
    "compile",
    "init",
    "initialisation",
    "initialise",
    "initialization",
    "initialize",
    "setup",
    "warmup",
];

/// Ids of the launches that are no part of the steady work: those in ranges named for preparations
/// (`init`, `warm_up`, `compile`), and those that make random numbers, if none of their kernel is
/// among the later half. `launches` are in the order of their start.
pub fn preparing_launches(launches: &[Launch]) -> HashSet<u32> {
    let mut last_at: HashMap<&str, usize> = HashMap::new();
    last_at.extend(launches.iter().enumerate().map(|(at, launch)| (launch.kernel.as_str(), at)));
    let is_early = |launch: &Launch| last_at[launch.kernel.as_str()] < launches.len() / 2;
    // Launches share their regions, whose names may be long.
    let mut seen: HashMap<*const String, (bool, bool)> = HashMap::new();
    let prepares = |launch: &&Launch| {
        let (is_of_jax, is_preparing) = *seen.entry(launch.region.as_ptr()).or_insert_with(|| {
            (is_in_random_module(launch), launch.region.iter().any(|part| is_preparation(part)))
        });
        (is_random_kernel(launch) || is_of_jax) && is_early(launch) || is_preparing
    };
    launches.iter().filter(prepares).map(|launch| launch.id).collect()
}

/// Ids of the launches that prepare the work, in a profile that has all launches of a program or
/// its first ones. If there are no others, none: then they are what the user asked for. Mode `deep`
/// has launches that it chose.
pub(super) fn preparing_in(profile: &Profile) -> HashSet<u32> {
    let is_program = match &profile.timeline {
        Some(timeline) => timeline.scope == TimelineScope::Program,
        None => true,
    };
    if !is_program || profile.selection.is_some() {
        return HashSet::new();
    }
    let preparing = preparing_launches(&profile.launches);
    if preparing.len() < profile.launches.len() { preparing } else { HashSet::new() }
}

/// What one of the [`preparing_launches`] does.
pub(super) fn what_prepares(launch: &Launch) -> &'static str {
    if makes_random_numbers(launch) {
        "it makes random numbers, only before the program's work"
    } else {
        "its launches are in ranges that are named for preparations"
    }
}

fn makes_random_numbers(launch: &Launch) -> bool {
    is_random_kernel(launch) || is_in_random_module(launch)
}

fn is_random_kernel(launch: &Launch) -> bool {
    RANDOM.iter().any(|word| launch.kernel.contains(word))
}

/// Whether a launch is in a range of a JAX module that makes random numbers.
fn is_in_random_module(launch: &Launch) -> bool {
    let of_jax = |part: &String| RANDOM_MODULES.iter().any(|module| part.contains(module));
    launch.region.iter().any(of_jax)
}

/// Sets the time of each kernel that is set-up, and sorts kernels by their other time, longest
/// first: launches by which a compiler benchmarks, and of a whole program those that prepare its
/// work. Mode `deep` has found them in its first pass. If all time is set-up, none is told apart.
pub(super) fn mark_kernels(profile: &mut Profile, preparing: &HashSet<u32>) {
    let times = match (&profile.selection, &profile.timeline) {
        (Some(selection), _) => selection.set_up_ns.clone(),
        (None, Some(_)) => set_up_times(&profile.launches, preparing),
        (None, None) => return,
    };
    for kernel in &mut profile.kernels {
        let ns = times.get(&kernel.kernel).copied().unwrap_or(0).min(kernel.total_ns);
        // Durations of launches are rounded one by one.
        kernel.set_up_ns = Some(ns).filter(|ns| *ns > kernel.total_ns / 1000);
    }
    if profile.kernels.iter().all(|kernel| kernel.work_ns() == 0) {
        profile.kernels.iter_mut().for_each(|kernel| kernel.set_up_ns = None);
    }
    profile.kernels.sort_by_key(|kernel| Reverse((kernel.work_ns(), kernel.total_ns)));
}

/// Nanoseconds of each kernel's launches that are set-up.
fn set_up_times(launches: &[Launch], preparing: &HashSet<u32>) -> BTreeMap<String, u64> {
    let benchmarked = tuning::benchmarked_launches(launches);
    let mut times: BTreeMap<String, f64> = BTreeMap::new();
    for launch in launches {
        if benchmarked.contains_key(&launch.id) || preparing.contains(&launch.id) {
            *times.entry(launch.kernel.clone()).or_default() += launch.duration_ns.unwrap_or(0.0);
        }
    }
    times.into_iter().map(|(kernel, ns)| (kernel, ns.max(0.0).round() as u64)).collect()
}

/// Whether a range is named for preparations. Libraries name their own ranges after functions.
fn is_preparation(range: &str) -> bool {
    let name = range.to_lowercase().replace("warm-up", "warmup").replace("warm_up", "warmup");
    let words = name.replace("warm up", "warmup").replace("set-up", "setup");
    words.split(|c: char| !c.is_alphanumeric()).any(|word| PREPARING.contains(&word))
}

/// The launches that are set-up, where they hold most of the time of a profile of counters.
pub(super) struct SetUp<'a> {
    launches: Vec<&'a Launch>,
    /// Such as `making random numbers`.
    what: String,
    ns: f64,
    share: f64,
}

impl<'a> SetUp<'a> {
    /// `None` if they hold little of the time, or if a timeline tells what follows them.
    pub(super) fn from_profile(profile: &'a Profile, limits: &Limits<'_>) -> Option<Self> {
        if profile.timeline.is_some() || !profile.launches.iter().any(|l| !l.metrics.is_empty()) {
            return None;
        }
        let ns = |launches: &[&Launch]| launches.iter().filter_map(|l| l.duration_ns).sum::<f64>();
        let all: Vec<&Launch> = profile.launches.iter().collect();
        let benchmarked = tuning::benchmarked_launches(&profile.launches);
        let tuning = |launch: &&Launch| benchmarked.contains_key(&launch.id);
        let tunes = |tuner: Tuner| benchmarked.values().any(|of_launch| *of_launch == tuner);
        let random = |launch: &&Launch| makes_random_numbers(launch);
        let moves = |launch: &&Launch| element_wise(&launch.kernel) == Some(ElementWise::Move);
        let prepares = |launch: &&&Launch| random(launch) || tuning(launch) || moves(launch);
        // Weights are copied and cast before the work; a program of nothing else has that as its
        // work.
        let leading = all.iter().take_while(prepares).count();
        let leading = if leading < all.len() { leading } else { 0 };
        let what: Vec<&str> = [
            (all.iter().any(random), "making random numbers"),
            (all[..leading].iter().any(moves), "filling, copying and converting tensors"),
            (tunes(Tuner::Xla), "autotuning of XLA"),
            (tunes(Tuner::Triton), "benchmarks of Triton's kernels"),
        ]
        .into_iter()
        .filter_map(|(is_there, what)| is_there.then_some(what))
        .collect();
        let is_set_up =
            |(at, launch): &(usize, &Launch)| *at < leading || random(launch) || tuning(launch);
        let set_up = all.iter().copied().enumerate().filter(is_set_up);
        let launches: Vec<&Launch> = set_up.map(|(_, launch)| launch).collect();
        let (total_ns, ns) = (ns(&all), ns(&launches));
        let share = ns / total_ns;
        // The share is NaN without durations.
        (share >= limits.threshold(&SETUP_SHARE).value).then(|| SetUp {
            launches,
            what: what.join(" and "),
            ns,
            share,
        })
    }

    /// Ids of the launches.
    pub(super) fn ids(&self) -> HashSet<u32> {
        self.launches.iter().map(|launch| launch.id).collect()
    }

    /// The finding that little but set-up was profiled.
    pub(super) fn finding(&self, profile: &Profile, limits: &Limits<'_>) -> Finding {
        let limit = limits.threshold(&SETUP_SHARE);
        let share = self.share;
        Finding {
            id: "only_set_up".to_owned(),
            category: "selection".to_owned(),
            stake: Some(PotentialGain::bound(self.ns.round() as u64, GainScope::Kernel, share)),
            text: format!(
                "{:.0} % of the GPU time of the profiled launches is probably the program's set-up: {} ({} \
                 of the {} launches)",
                100.0 * share,
                self.what,
                self.launches.len(),
                profile.launches.len()
            ),
            hint:
                "profile what matters: an NVTX range with `--regions NAME`, the kernels that hold \
                   the time with `--mode deep`, or more launches with `--launch-count N`"
                    .to_owned(),
            evidence: vec![limit.share_evidence("launches.set_up_share", share, "of the GPU time")],
            covers: self.covers(),
            ..Finding::default()
        }
    }

    /// The kernels of the launches, that with most time first.
    fn covers(&self) -> Vec<CoveredKernel> {
        let mut covers: Vec<CoveredKernel> = Vec::new();
        for launch in &self.launches {
            let ns = launch.duration_ns.unwrap_or_default().round() as u64;
            let at = covers.iter().position(|covered| covered.kernel == launch.kernel);
            let at = at.unwrap_or_else(|| {
                let kernel = launch.kernel.clone();
                covers.push(CoveredKernel { kernel, ..CoveredKernel::default() });
                covers.len() - 1
            });
            covers[at].launches += 1;
            covers[at].total_ns += ns;
            covers[at].stake_ns += ns;
        }
        covers.sort_by_key(|covered| std::cmp::Reverse(covered.total_ns));
        covers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::timeline::{KernelSum, Timeline};

    const RANDOM: &str =
        "void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float>(int)";

    fn launches(of: &[(&str, &str)]) -> Vec<Launch> {
        let launch = |(id, (kernel, region)): (u32, &(&str, &str))| Launch {
            id,
            kernel: (*kernel).to_owned(),
            region: region.split("::").filter(|part| !part.is_empty()).map(String::from).collect(),
            ..Launch::default()
        };
        (0..).zip(of).map(launch).collect()
    }

    fn preparing(of: &[(&str, &str)]) -> Vec<u32> {
        let mut ids: Vec<u32> = preparing_launches(&launches(of)).into_iter().collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn random_numbers_are_set_up_unless_the_program_goes_on_to_make_them() {
        let dropout = [(RANDOM, ""), ("gemm", ""), (RANDOM, ""), ("gemm", "")];
        assert!(preparing(&dropout).is_empty());
        let weights = [(RANDOM, ""), (RANDOM, ""), ("gemm", ""), ("gemm", ""), ("gemm", "")];
        assert_eq!(preparing(&weights), [0, 1]);
    }

    /// The first launches of a network in JAX, which ended with a segmentation fault under ncu.
    #[test]
    fn random_numbers_of_jax_are_known_by_their_module() {
        let module = |name: &str| format!("TSL@XlaModule:#hlo_module=jit_{name},program_id=3313#");
        let [normal, multiply] = ["_normal", "multiply"].map(module);
        let of = [
            ("loop_multiply_fusion", &*normal),
            ("loop_multiply_fusion_1", &*multiply),
            ("gemm", ""),
            ("gemm", ""),
        ];
        assert_eq!(preparing(&of), [0]);
    }

    #[test]
    fn set_up_of_a_traced_program_is_told_apart_and_comes_last() {
        let mut launches =
            launches(&[(RANDOM, ""), ("gemm", "warmup"), ("gemm", ""), ("gemm", "")]);
        launches.iter_mut().for_each(|launch| launch.duration_ns = Some(100.0));
        let sum = |kernel: &str, total_ns| KernelSum {
            kernel: kernel.to_owned(),
            total_ns,
            ..KernelSum::default()
        };
        let kernels = vec![sum("gemm", 300), sum(RANDOM, 100), sum("copy", 50)];
        let mut profile = Profile { launches, kernels, ..Profile::default() };
        let marked = |profile: &mut Profile| {
            let preparing = preparing_in(profile);
            mark_kernels(profile, &preparing);
            let kernels = profile.kernels.iter();
            kernels.map(|kernel| (kernel.kernel.clone(), kernel.set_up_ns)).collect::<Vec<_>>()
        };
        assert!(marked(&mut profile).iter().all(|(_, ns)| ns.is_none()), "no trace");
        let scope = TimelineScope::Program;
        profile.timeline = Some(Timeline { scope, ..Timeline::default() });
        let expected = [("gemm", Some(100)), ("copy", None), (RANDOM, Some(100))];
        let expected = expected.map(|(kernel, ns)| (kernel.to_owned(), ns));
        assert_eq!(marked(&mut profile), expected);
        assert_eq!(marked(&mut profile), expected, "again");
        // Of a program that only sets up, nothing is told apart.
        profile.kernels.retain(|kernel| kernel.kernel == RANDOM);
        assert_eq!(marked(&mut profile), [(RANDOM.to_owned(), None)]);
    }

    #[test]
    fn ranges_that_are_named_for_preparations_hold_set_up() {
        let ranges = ["warm_up", "step::forward", "model.init", "Set-up", "initial", "recompile_7"];
        let of = ranges.map(|range| ("gemm", range));
        assert_eq!(preparing(&of), [0, 2, 3]);
    }
}
