//! Compares two profiles.
//!
//! A comparison has times with confidence intervals (`interval`), kernels joined by name and
//! geometry (`join`), metrics ranked by importance (`metric_weights`), the bound and the resources
//! of each kernel on both sides, regions, and a one-sentence summary (`sentence`). [`differences`]
//! lists the reasons why two profiles are not comparable.

mod alike;
mod change;
mod interval;
mod join;
mod metric_weights;
mod sentence;
mod time;

pub use alike::{device, differences, untimed};
pub(super) use interval::mean;
pub use sentence::phrase;
pub use time::PairedTimes;

use std::collections::HashMap;

use join::KernelPair;
use rgpu_model::comparison::TimeSource;
use rgpu_model::comparison::{
    AccountChange, ComparedSide, Comparison, KernelChange, RankChange, RegionChange, SCHEMA,
    SideTime, TimeChange, TimeVerdict,
};
use rgpu_model::profile::CheckVerdict;
use rgpu_model::profile::Gap;
use rgpu_model::timeline::RegionKind;
use rgpu_model::{Profile, Region};
use time::Times;

/// The options of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct CompareOptions<'a> {
    /// The user's names for the two sides.
    pub names: [&'a str; 2],
    /// The smallest relevant effect, as a fraction.
    pub threshold: f64,
    /// Times of interleaved calls, by case; empty if the sides were timed separately.
    pub paired: &'a [PairedTimes],
}

/// Compares `b` with the base `a`.
pub fn compare(a: &Profile, b: &Profile, options: &CompareOptions<'_>) -> Comparison {
    let mut gaps = Vec::new();
    let joins = join::join(a, b);
    let kernels: Vec<KernelChange> =
        joins.joined.iter().map(|j| kernel(a, b, j, options.threshold)).collect();
    let Times { cases, time, no_time, shared } = time::times(a, b, &kernels, &joins, options);
    gaps.extend(no_time.clone());
    gaps.extend(shared.notes.iter().cloned());
    for (side, profile) in options.names.iter().zip([a, b]) {
        if profile.correctness.as_ref().is_some_and(|c| c.verdict == CheckVerdict::Wrong) {
            gaps.push(gap("wrong_result", format!("`{side}` computes wrong results")));
        }
    }
    // Without a GPU there are none.
    let has_gpu = no_time.as_ref().is_none_or(|gap| gap.code != time::NO_GPU);
    if has_gpu && (a.launches.is_empty() || b.launches.is_empty()) {
        gaps.push(gap("no_launches", "no kernel launch is recorded on both sides"));
    }
    let differences = differences(a, b);
    let verdict = time.as_ref().map_or(TimeVerdict::Ambiguous, |t| t.verdict);
    let summary = sentence::summary(&sentence::SentenceInput {
        names: options.names,
        time: time.as_ref(),
        verdict,
        threshold: options.threshold,
        cases: &cases,
        kernels: &kernels,
        differences: &differences,
        no_time: no_time.as_ref().map(|gap| gap.text.as_str()),
        shared: &shared,
    });
    Comparison {
        schema: SCHEMA.to_owned(),
        a: side(options.names[0], a),
        b: side(options.names[1], b),
        verdict,
        summary,
        threshold: options.threshold,
        time,
        cases,
        kernels,
        only_a: joins.only_a.iter().map(join::LaunchGroup::unmatched).collect(),
        only_b: joins.only_b.iter().map(join::LaunchGroup::unmatched).collect(),
        regions: regions(a, b),
        ranks: ranks(a, b),
        account: account(a, b),
        differences,
        parts: Vec::new(),
        gaps,
    }
}

/// Sets all verdicts of the comparison of a file with itself to "same", which few launches would
/// leave undecided.
pub fn judge_same_file(comparison: &mut Comparison) {
    comparison.verdict = TimeVerdict::Same;
    comparison.summary = "both sides are the same file".to_owned();
    let cases = comparison.cases.iter_mut().map(|case| &mut case.time);
    let kernels = comparison.kernels.iter_mut().filter_map(|kernel| kernel.time.as_mut());
    for time in comparison.time.iter_mut().chain(cases).chain(kernels) {
        time.verdict = TimeVerdict::Same;
    }
}

fn gap(code: &str, text: impl Into<String>) -> Gap {
    Gap { code: code.to_owned(), text: text.into() }
}

fn side(name: &str, profile: &Profile) -> ComparedSide {
    ComparedSide {
        name: name.to_owned(),
        run: profile.run.id.clone(),
        kernel: profile.kernel.name.clone(),
        mode: profile.run.mode.clone(),
        rung: profile.rung.clone(),
        device: alike::device(profile),
        correctness: profile.correctness.as_ref().map(|c| c.verdict.clone()),
        profile: None,
    }
}

fn kernel(a: &Profile, b: &Profile, joined: &KernelPair<'_>, threshold: f64) -> KernelChange {
    let KernelPair { a: left, b: right, by } = joined;
    let (x, y) = (left.median_launch(), right.median_launch());
    let time = interval::side_time(&left.durations())
        .zip(interval::side_time(&right.durations()))
        .and_then(|(ta, tb)| time_change(ta, tb, threshold, TimeSource::Launches));
    let bound = |l: &rgpu_model::Launch| l.classification.as_ref().map(|c| c.primary.clone());
    KernelChange {
        kernel: left.kernel.to_owned(),
        kernel_b: (left.kernel != right.kernel).then(|| right.kernel.to_owned()),
        joined_by: by.clone(),
        geometry_a: left.geometry,
        geometry_b: right.geometry,
        launches: [left.launches.len() as u64, right.launches.len() as u64],
        time,
        bound: bound(x).zip(bound(y)).map(|(x, y)| [x, y]),
        resources: change::resources((a, x), (b, y)),
        metrics: change::metrics(x, y),
    }
}

/// The change between two times of separate runs, with its verdict; `None` if a median is not
/// positive.
pub fn compare_times(a: SideTime, b: SideTime, threshold: f64) -> Option<TimeChange> {
    time_change(a, b, threshold, TimeSource::Samples)
}

/// The change between two times, with its verdict; `None` if a median is not positive.
fn time_change(a: SideTime, b: SideTime, threshold: f64, source: TimeSource) -> Option<TimeChange> {
    let (speedup, ci95) = interval::speedup(&a, &b)?;
    let verdict = interval::verdict(ci95, threshold);
    Some(TimeChange { a, b, speedup, ci95, verdict, source, rounds: None })
}

/// The ranks that both profiles have.
fn ranks(a: &Profile, b: &Profile) -> Vec<RankChange> {
    let of = |profile: &Profile| profile.ranks.clone().unwrap_or_default().ranks;
    let others = of(b);
    let changes = of(a).into_iter().filter_map(|rank| {
        let other = others.iter().find(|other| other.location.rank == rank.location.rank)?;
        Some(RankChange {
            rank: rank.location.rank,
            span_ns: [rank.span_ns, other.span_ns],
            compute_ns: [rank.compute_ns, other.compute_ns],
            exposed_ns: [rank.exposed_ns, other.exposed_ns],
            copy_ns: [rank.copy_ns, other.copy_ns],
            idle_ns: [rank.idle_ns, other.idle_ns],
            waited_ns: [rank.waited_ns, other.waited_ns],
            late_ns: [rank.late_ns, other.late_ns],
        })
    });
    changes.collect()
}

/// Where the time changed, if both profiles have accounts.
fn account(a: &Profile, b: &Profile) -> Option<AccountChange> {
    rgpu_account::compare::accounts(a.account.as_ref()?, b.account.as_ref()?)
}

/// The regions that both profiles have, in the base's order.
fn regions(a: &Profile, b: &Profile) -> Vec<RegionChange> {
    let mut others: HashMap<(&[String], &RegionKind), &Region> = HashMap::new();
    for other in &b.regions {
        others.entry((&other.path, &other.kind)).or_insert(other);
    }
    a.regions
        .iter()
        .filter_map(|region| {
            let other = *others.get(&(&region.path[..], &region.kind))?;
            let pair = |x: Option<u64>, y: Option<u64>| x.zip(y).map(|(x, y)| [x, y]);
            let launches = |region: &Region| {
                let launches: u64 = region.kernels.iter().map(|kernel| kernel.launches).sum();
                Some(launches).filter(|launches| *launches > 0)
            };
            Some(RegionChange {
                region: region.display(),
                instances: pair(region.instances, other.instances),
                launches: pair(launches(region), launches(other)),
                gpu_ns: pair(region.gpu_ns, other.gpu_ns),
                host_ns: pair(region.host_ns, other.host_ns),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
