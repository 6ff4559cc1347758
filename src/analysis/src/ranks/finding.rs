//! Findings on ranks: the rank that the others wait for, and work that is not shared equally.

use super::balance::excess;
use crate::Limits;
use crate::threshold::{RANK_IMBALANCE, STRAGGLER_SHARE, Threshold};
use rgpu_model::finding::{GainScope, PotentialGain};
use rgpu_model::ranks::{LateCause, Ranks, Straggler};
use rgpu_model::timeline::display_path;
use rgpu_model::{Evidence, Finding};

pub(super) fn findings(ranks: &Ranks, limits: &Limits<'_>) -> Vec<Finding> {
    let span_ns = ranks.ranks.iter().map(|rank| rank.span_ns).max().unwrap_or(0);
    if span_ns == 0 || ranks.ranks.len() < 2 {
        return Vec::new();
    }
    let least = limits.threshold(&STRAGGLER_SHARE);
    let worst = ranks.stragglers.first();
    let straggler = worst.and_then(|worst| straggler(ranks, worst, span_ns, least));
    straggler.into_iter().chain(imbalance(ranks, span_ns, limits)).collect()
}

/// `4.47 ms`, `2.50 s`.
fn time(ns: u64) -> String {
    match ns as f64 / 1e9 {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds => format!("{:.2} ms", seconds * 1e3),
    }
}

fn straggler(ranks: &Ranks, worst: &Straggler, span_ns: u64, least: Threshold) -> Option<Finding> {
    let share = worst.late_ns as f64 / span_ns as f64;
    if share < least.value {
        return None;
    }
    let calls: u64 = ranks.collectives.iter().map(|sum| sum.calls).sum();
    let place = worst.region.as_deref().map_or_else(String::new, |r| format!(" in `{r}`"));
    let took = time(worst.cause_ns);
    let did = match (&worst.cause, worst.kernel.as_deref()) {
        (LateCause::Compute, Some(kernel)) => {
            format!("it computed {took} longer{place}, mostly in `{kernel}`")
        }
        (LateCause::Compute, None) => format!("it computed {took} longer{place}"),
        (LateCause::Copy, _) => format!("its GPU only copied for {took} longer{place}"),
        (LateCause::Host, _) => {
            format!(
                "its GPU was idle for {took} longer{place}: its host launched the next kernel late"
            )
        }
        (LateCause::Communication, _) => {
            format!("it was in collectives of another group for {took} longer")
        }
        _ => "no cause was found: it spent its time like the other ranks".to_owned(),
    };
    let hint = match worst.cause {
        LateCause::Compute => {
            "give the ranks equal work (batch, sequence lengths, experts), or look at this rank's \
             GPU: clocks, throttling, other jobs (`rgpu report` of its report alone)"
        }
        LateCause::Copy => {
            "copy less on this rank, or copy from pinned memory while its kernels run"
        }
        LateCause::Host => {
            "look at what its host does in that region: data loading, logging, checkpoints, \
             synchronisation, or other load on its cores"
        }
        _ => {
            "compare the ranks before that collective in the trace: `rgpu report RUN --format \
             perfetto --open`"
        }
    };
    Some(Finding {
        id: "straggler".to_owned(),
        category: "ranks".to_owned(),
        rank: Some(worst.rank),
        stake: Some(stake(worst.late_ns, share)),
        text: format!(
            "rank {} arrives last at {} of {calls} collectives and makes the others wait {} in total, \
             {:.0} % of the time: {did}",
            worst.rank,
            worst.times_last,
            time(worst.late_ns),
            100.0 * share,
        ),
        hint: hint.to_owned(),
        evidence: vec![
            least.share_evidence("ranks.late_share", share, "of the span"),
            Evidence {
                threshold: Some(ranks.clock.residual_ns.unwrap_or(0) as f64),
                source: "residual of the clocks".to_owned(),
                ..Evidence::number("ranks.late_ns", worst.late_ns as f64, "ns")
            },
        ],
        ..Finding::default()
    })
}

fn stake(ns: u64, share: f64) -> PotentialGain {
    PotentialGain::bound(ns, GainScope::Program, share)
}

/// The region whose slowest rank computes longer than the mean by most.
fn imbalance(ranks: &Ranks, span_ns: u64, limits: &Limits<'_>) -> Option<Finding> {
    let least = limits.threshold(&RANK_IMBALANCE);
    let region = ranks.regions.first()?;
    let (ns, share) = (excess(region), excess(region) / span_ns as f64);
    if region.imbalance < least.value || share < limits.threshold(&STRAGGLER_SHARE).value {
        return None;
    }
    Some(Finding {
        id: "rank_imbalance".to_owned(),
        category: "ranks".to_owned(),
        rank: Some(region.slowest),
        stake: Some(stake(ns as u64, share)),
        text: format!(
            "in `{}` rank {} computes {} longer than the mean of the ranks ({:.0} %)",
            display_path(&region.path),
            region.slowest,
            time(ns as u64),
            100.0 * region.imbalance,
        ),
        hint: "give the ranks equal work there, or look at this rank's clocks".to_owned(),
        evidence: vec![least.share_evidence("ranks.imbalance", region.imbalance, "of the mean")],
        ..Finding::default()
    })
}
