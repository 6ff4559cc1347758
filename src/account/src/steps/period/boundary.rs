//! Where within the period a step begins.

use super::Period;
use crate::steps::launches::{Launches, Role};

/// The most periods that are looked at.
const SAMPLES: usize = 32;

/// The position of the first launch of a typical unit near the middle of the stretch.
///
/// A step begins with its input: at a copy to the GPU, of several at the one after the longest
/// pause of the host. Else after the only wait of the host in a period; else after a pause that is
/// twice as long as any other; else after the last kernel of the optimizer; else where the
/// repetition begins.
pub(super) fn begin(launches: &Launches, tokens: &[u32], period: &Period) -> Option<usize> {
    let lag = period.lag;
    let middle = typical(tokens, period);
    let phases = phases(launches, tokens, period, middle);
    let input = phases.iter().filter(|p| p.role == Role::Input).max_by_key(|p| p.pause_ns);
    let mut waits = phases.iter().filter(|p| p.waited);
    let only_wait = waits.next().filter(|_| waits.next().is_none());
    let longest = phases.iter().max_by_key(|p| p.pause_ns)?;
    let others = phases.iter().filter(|p| p.at != longest.at);
    let second = others.map(|p| p.pause_ns).max().unwrap_or(u64::MAX);
    let stands_out = longest.pause_ns / 2 > second;
    let chosen = input
        .or(only_wait)
        .or(stands_out.then_some(longest))
        .map(|p| p.at)
        .or_else(|| after_optimizer(&phases))
        .unwrap_or_else(|| (period.from + lag - middle % lag) % lag);
    let begin = middle + chosen;
    let fits = begin + lag <= tokens.len();
    Some(if fits { begin } else { begin.checked_sub(lag)? })
}

/// A position in the stretch from which a unit repeats best: the begin of the longest run of
/// matches, moved to the middle of the run by whole periods.
fn typical(tokens: &[u32], period: &Period) -> usize {
    let (mut best, mut best_len) = (period.from, 0);
    let mut run = 0;
    for at in period.from..period.to.saturating_sub(period.lag) {
        run = if tokens.get(at) == tokens.get(at + period.lag) { run + 1 } else { 0 };
        if run > best_len {
            (best, best_len) = (at + 1 - run, run);
        }
    }
    best + best_len / 2 / period.lag * period.lag
}

/// A place in the period.
struct Phase {
    at: usize,
    role: Role,
    waited: bool,
    pause_ns: u64,
}

/// The places of the period that begins at `middle`, with their medians over the periods around.
fn phases(launches: &Launches, tokens: &[u32], period: &Period, middle: usize) -> Vec<Phase> {
    let lag = period.lag;
    let before = ((middle - period.from) / lag).min(SAMPLES / 2);
    let first = middle - before * lag;
    let count = ((period.to - first) / lag).clamp(1, SAMPLES);
    let mut phases = Vec::with_capacity(lag);
    for at in 0..lag {
        let usual = tokens.get(middle + at);
        let mut pauses = Vec::with_capacity(count);
        let mut waited = 0;
        for position in (0..count).map(|k| first + k * lag + at) {
            if tokens.get(position) == usual {
                pauses.extend(launches.pause_ns.get(position));
                waited += usize::from(launches.waited.get(position) == Some(&true));
            }
        }
        pauses.sort_unstable();
        let role = launches.role.get(middle + at).copied().unwrap_or(Role::Other);
        let pause_ns = crate::steps::cuts::percentile(&pauses, 50);
        let waited = waited * 5 > pauses.len() * 4;
        phases.push(Phase { at, role, waited, pause_ns });
    }
    phases
}

/// The place after the optimizer: the one that follows a kernel of it after which the next one is
/// farthest away.
fn after_optimizer(phases: &[Phase]) -> Option<usize> {
    let places = phases.iter().filter(|p| p.role == Role::Optimizer).map(|p| p.at);
    let places: Vec<usize> = places.collect();
    let next = places.iter().skip(1).copied();
    let around = places.first().map(|first| first + phases.len());
    let pairs = places.iter().zip(next.chain(around));
    let (last, _) = pairs.max_by_key(|(at, next)| next - **at)?;
    Some((last + 1) % phases.len().max(1))
}
