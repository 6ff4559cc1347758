//! Steps that hold several units, because something slow comes back every so many of them.

use rgpu_model::Trace;

use super::FEWEST;
use super::cuts::{Cuts, percentile};
use super::launches::Launches;

/// The part of the time that slow units must take above the others.
const SLOW_SHARE: f64 = 0.15;

/// `cuts`, or groups of its units: if every so many units one takes much longer, while the GPU has
/// nothing to do, and these take an essential part of the time, then a step is what lies between
/// two of them. Else the median unit would hide where the time goes. An evaluation between the
/// steps of a training keeps the GPU busy, and leaves the steps as they are.
pub(super) fn groups(trace: &Trace, launches: &Launches, cuts: Cuts) -> Cuts {
    let starts = starts(trace, launches, &cuts);
    let pairs = starts.iter().zip(starts.iter().skip(1));
    let times: Vec<u64> = pairs.map(|(a, b)| b.saturating_sub(*a)).collect();
    let mut sorted = times.clone();
    sorted.sort_unstable();
    let median = percentile(&sorted, 50);
    let is_slow = |ns: u64| ns / 3 > median;
    // The first units are slow for other reasons.
    let first = times.len().div_ceil(20);
    let later = times.iter().enumerate().skip(first);
    let slow: Vec<usize> = later.filter(|(_, ns)| is_slow(**ns)).map(|(at, _)| at).collect();
    let distances = slow.iter().zip(slow.iter().skip(1)).map(|(a, b)| b - a);
    let mut distances: Vec<usize> = distances.collect();
    distances.sort_unstable();
    let usual = percentile(&distances, 50);
    let regular = distances.iter().filter(|distance| **distance == usual).count();
    if slow.len() < FEWEST || usual < 2 || regular * 4 < distances.len() * 3 {
        return cuts;
    }
    let above = |at: &usize| times.get(*at).map_or(0, |ns| ns.saturating_sub(median));
    let slow_ns: u64 = slow.iter().map(above).fold(0, u64::saturating_add);
    let all_ns: u64 = times.iter().skip(first).copied().fold(0, u64::saturating_add);
    let units: Vec<_> = cuts.units().collect();
    let busy = |at: &usize| units.get(*at).map_or(0, |(a, b)| launches.gpu_between(*a, *b));
    let busy_ns: u64 = slow.iter().map(busy).fold(0, u64::saturating_add);
    if (slow_ns as f64) < all_ns as f64 * SLOW_SHARE || busy_ns > slow_ns / 2 {
        return cuts;
    }
    // A slow unit begins a group; groups of the usual length go on before the first.
    let phase = slow.first().map_or(0, |at| at % usual);
    let at: Vec<usize> = cuts.at.iter().copied().skip(phase).step_by(usual).collect();
    if at.len() <= FEWEST { cuts } else { Cuts { at, ..cuts } }
}

/// The GPU's start of each unit, never falling.
fn starts(trace: &Trace, launches: &Launches, cuts: &Cuts) -> Vec<u64> {
    let mut latest = 0;
    let mut starts = Vec::with_capacity(cuts.count());
    for (from, _) in cuts.units() {
        let work = launches.order.get(from).and_then(|at| trace.work.get(*at as usize));
        latest = work.map_or(0, |work| work.start_ns).max(latest);
        starts.push(latest);
    }
    starts
}
