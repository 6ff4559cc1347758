//! Loops that repeat with changes: other shapes choose other kernels, lengths differ.
//!
//! Something happens once in a step nevertheless: input arrives, the optimizer ends, the host
//! waits, a rare kernel runs. The sequence is cut there. The cuts are steps if the units launch
//! about the same: the angle between a unit's counts of each token and the mean's is small for
//! nearly all units, and their lengths do not differ much.

use std::collections::BTreeMap;

use rgpu_model::account::StepSource;

use super::FEWEST;
use super::cuts::{Cuts, percentile};
use super::launches::{Launches, Role};

/// The smallest cosine between the counts of a unit and the mean's.
const COSINE: f64 = 0.9;
/// How much longer a long unit may be than a short one: between events, and between rare tokens.
const EVENT_SPREAD: f64 = 4.0;
const MARK_SPREAD: f64 = 1.5;
/// The equal share from which units are a block.
const BLOCK: f64 = 0.97;
/// The most tokens that are tried as marks.
const MARKS: usize = 24;

/// The steps by what happens once in each, if nearly all units are alike.
pub(super) fn find(launches: &Launches) -> Option<Cuts> {
    let period = StepSource::Period;
    alike(launches, after_optimizer(launches), period.clone(), EVENT_SPREAD)
        .or_else(|| alike(launches, first_input(launches), period, EVENT_SPREAD))
        .or_else(|| by_mark(launches))
        .or_else(|| alike(launches, waits(launches), StepSource::Waits, EVENT_SPREAD))
}

/// The steps by a token that comes once in each. Units that are equal throughout are a block that
/// the search for the period has refused.
fn by_mark(launches: &Launches) -> Option<Cuts> {
    let marks = rare_marks(launches).into_iter();
    let mut cuts = marks.filter_map(|at| alike(launches, at, StepSource::Period, MARK_SPREAD));
    cuts.find(|cuts| {
        let with_event = cuts.units().filter(|(from, to)| launches.has_event(*from, *to)).count();
        with_event * 10 >= cuts.count() * 9 || cuts.equal_share(&launches.plain) < BLOCK
    })
}

/// Positions after the last kernel of an optimizer.
fn after_optimizer(launches: &Launches) -> Vec<usize> {
    let pairs = launches.role.iter().zip(launches.role.iter().skip(1)).enumerate();
    let ends = pairs.filter(|(_, (a, b))| **a == Role::Optimizer && **b != Role::Optimizer);
    ends.map(|(at, _)| at + 1).collect()
}

/// Positions of the first of consecutive copies to the GPU.
fn first_input(launches: &Launches) -> Vec<usize> {
    let mut last = Role::Other;
    let mut at = Vec::new();
    for (position, role) in launches.role.iter().enumerate() {
        if *role == Role::Input && last != Role::Input {
            at.push(position);
        }
        last = *role;
    }
    at
}

/// Positions before which the host waited.
fn waits(launches: &Launches) -> Vec<usize> {
    let waited = launches.waited.iter().enumerate();
    waited.filter(|(_, waited)| **waited).map(|(at, _)| at).collect()
}

/// The positions of tokens that may come once in a step. As many tokens come as often as there are
/// steps, the tokens of the most usual counts are tried first; of those of one count the one with
/// the longest pause of the host before it.
fn rare_marks(launches: &Launches) -> Vec<Vec<usize>> {
    let mut seen: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
    for (token, pause_ns) in launches.rich.iter().zip(&launches.pause_ns) {
        let (count, pause) = seen.entry(*token).or_default();
        *count += 1;
        *pause = pause.saturating_add(*pause_ns);
    }
    let mut by_count: BTreeMap<usize, Vec<(u64, u32)>> = BTreeMap::new();
    for (token, (count, pause)) in seen {
        if count >= FEWEST && count <= launches.len() / FEWEST {
            by_count.entry(count).or_default().push((pause / count as u64, token));
        }
    }
    let mut groups: Vec<_> = by_count.into_values().collect();
    groups.sort_by_key(|tokens| std::cmp::Reverse(tokens.len()));
    let longest = groups.iter().take(MARKS).filter_map(|tokens| tokens.iter().max());
    let marks: Vec<u32> = longest.map(|(_, token)| *token).collect();
    let numbers: BTreeMap<u32, usize> = marks.iter().copied().zip(0..).collect();
    let mut positions = vec![Vec::new(); marks.len()];
    for (at, token) in launches.rich.iter().enumerate() {
        if let Some(places) = numbers.get(token).and_then(|number| positions.get_mut(*number)) {
            places.push(at);
        }
    }
    positions
}

/// The units between the positions if they are alike; their lengths may differ by `spread`. Units
/// at both ends that differ are left out.
fn alike(launches: &Launches, at: Vec<usize>, source: StepSource, spread: f64) -> Option<Cuts> {
    let mut cuts = Cuts { at, source, name: None };
    if cuts.count() < FEWEST {
        return None;
    }
    let length = cuts.unit_len();
    let fits: Vec<bool> = cosines(launches, &cuts)
        .into_iter()
        .zip(cuts.units())
        .map(|(cosine, (from, to))| {
            cosine >= COSINE && (to - from) * 3 >= length && to - from <= length * 3
        })
        .collect();
    let first = fits.iter().position(|fits| *fits)?;
    let last = fits.iter().rposition(|fits| *fits)?;
    let good = fits.get(first..=last)?.iter().filter(|fits| **fits).count();
    let fitting = cuts.units().zip(&fits).filter(|(_, fits)| **fits);
    let fitting_ns = fitting.map(|((from, to), _)| launches.gpu_between(from, to));
    let fitting_ns = fitting_ns.fold(0, u64::saturating_add);
    cuts.at = cuts.at.get(first..=last + 1)?.to_vec();
    let total = launches.gpu_between(0, launches.len());
    let few = cuts.count() < 5;
    let mut lengths: Vec<usize> = cuts.units().map(|(from, to)| to - from).collect();
    lengths.sort_unstable();
    let (low, high) = (percentile(&lengths, 10), percentile(&lengths, 90));
    let most = if few { spread.min(1.2) } else { spread };
    let fits = cuts.count() >= FEWEST
        && good * 10 >= cuts.count() * 8
        && high as f64 <= low as f64 * most + 2.0
        && fitting_ns >= total / 2;
    fits.then_some(cuts)
}

/// The cosine between each unit's counts of tokens and those of all units together.
fn cosines(launches: &Launches, cuts: &Cuts) -> Vec<f64> {
    let tokens = &launches.plain;
    let kinds = tokens.iter().max().map_or(0, |most| *most as usize + 1);
    let mut all = vec![0_u64; kinds];
    for (from, to) in cuts.units() {
        for token in tokens.get(from..to).unwrap_or_default() {
            if let Some(count) = all.get_mut(*token as usize) {
                *count += 1;
            }
        }
    }
    let norm: f64 = all.iter().map(|count| (*count as f64).powi(2)).sum::<f64>().sqrt();
    let mut here = vec![0_u64; kinds];
    let mut cosines = Vec::with_capacity(cuts.count());
    for (from, to) in cuts.units() {
        let unit = tokens.get(from..to).unwrap_or_default();
        // The square of a count grows by 2n + 1 when n grows by one.
        let (mut dot, mut square) = (0.0, 0.0);
        for token in unit {
            if let (Some(n), Some(of_all)) =
                (here.get_mut(*token as usize), all.get(*token as usize))
            {
                dot += *of_all as f64;
                square += (2 * *n + 1) as f64;
                *n += 1;
            }
        }
        for token in unit {
            if let Some(n) = here.get_mut(*token as usize) {
                *n = 0;
            }
        }
        cosines.push(dot / (norm * f64::sqrt(square)).max(f64::MIN_POSITIVE));
    }
    cosines
}
