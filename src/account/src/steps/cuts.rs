//! Where steps begin, and how equal they are.

use std::collections::HashMap;

use rgpu_model::account::StepSource;

use super::launches::Launches;

/// Units of the sequence of launches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cuts {
    /// Position of each unit's first launch, rising; the last is the end of the last unit.
    pub(super) at: Vec<usize>,
    /// How they were found.
    pub(super) source: StepSource,
    /// The range that marks them.
    pub(super) name: Option<String>,
}

impl Cuts {
    /// The units as pairs of their begin and end.
    pub(super) fn units(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.at.iter().zip(self.at.iter().skip(1)).map(|(from, to)| (*from, *to))
    }

    /// Number of units.
    pub(super) fn count(&self) -> usize {
        self.at.len().saturating_sub(1)
    }

    /// The median number of launches in a unit.
    pub(super) fn unit_len(&self) -> usize {
        let mut lengths: Vec<usize> = self.units().map(|(from, to)| to - from).collect();
        lengths.sort_unstable();
        percentile(&lengths, 50)
    }

    /// The GPU's time in all units, in nanoseconds.
    pub(super) fn gpu_ns(&self, launches: &Launches) -> u64 {
        match (self.at.first(), self.at.last()) {
            (Some(from), Some(to)) => launches.gpu_between(*from, *to),
            _ => 0,
        }
    }

    /// The part of the launches that is equal from unit to unit, whatever their order: each unit is
    /// compared with the one of median length whose tokens are the most usual.
    pub(super) fn equal_share(&self, tokens: &[u32]) -> f64 {
        let length = self.unit_len();
        let mut middle: Vec<_> = self.units().filter(|(from, to)| to - from == length).collect();
        middle.truncate(SAMPLES);
        let usual = usual_unit(tokens, &middle);
        let wanted = counts(tokens, usual);
        let (mut equal, mut all) = (0_usize, 0_usize);
        let same = tokens.get(usual.0..usual.1);
        for unit in self.units() {
            if tokens.get(unit.0..unit.1) == same {
                equal += length;
                all += length;
                continue;
            }
            let here = counts(tokens, unit);
            equal +=
                here.iter().map(|(t, n)| (*n).min(*wanted.get(t).unwrap_or(&0))).sum::<usize>();
            all += (unit.1 - unit.0).max(length);
        }
        equal as f64 / all.max(1) as f64
    }
}

/// The most units that are compared for the usual one.
const SAMPLES: usize = 15;

/// The value below which `percent` of the sorted values lie; the default for an empty list.
pub(super) fn percentile<T: Copy + Default>(sorted: &[T], percent: usize) -> T {
    let at = sorted.len().saturating_sub(1).saturating_mul(percent) / 100;
    sorted.get(at).copied().unwrap_or_default()
}

/// The first of `units` that equals most of the others.
fn usual_unit(tokens: &[u32], units: &[(usize, usize)]) -> (usize, usize) {
    let slices = units.iter().map(|(from, to)| tokens.get(*from..*to).unwrap_or_default());
    let slices: Vec<_> = slices.collect();
    let equal = |at: usize| slices.iter().filter(|other| slices.get(at) == Some(other)).count();
    let best = (0..units.len()).rev().max_by_key(|at| equal(*at));
    best.and_then(|at| units.get(at)).copied().unwrap_or((0, 0))
}

fn counts(tokens: &[u32], (from, to): (usize, usize)) -> HashMap<u32, usize> {
    let mut counts = HashMap::new();
    for token in tokens.get(from..to).unwrap_or_default() {
        *counts.entry(*token).or_default() += 1;
    }
    counts
}
