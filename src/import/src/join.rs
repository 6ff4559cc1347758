//! Joins the reports of many ranks: one report with several processes, or several reports of one
//! program.
//!
//! Ranks get their numbers from the reports, else from the names of the files, else from the order.
//! Collectives are matched between ranks, and the clocks of the reports are aligned on their ends.
//! All times are then relative to the first event. Without a common clock, each rank's times begin
//! at 0.

mod clock;
mod collectives;
pub mod second_pass;
mod sums;
mod trace;

use std::collections::BTreeSet;
use std::path::Path;

use super::ImportedArtifact;
use super::trace_events::{TRACE_CUT, unlisted_events_gap};
use rgpu_model::number_form::by_number;
use rgpu_model::profile::Gap;
use rgpu_model::rank_work::{JoinedRanks, RankWork};
use rgpu_model::ranks::{ClockSource, MAX_RANKS, RankClock};
use trace::ReportTimes;

/// The ranks of one report, as indexes into all ranks.
type ReportRanks = Vec<usize>;

/// Joins the processes of one report. Does nothing if it has only one.
pub fn join_processes(imported: &mut ImportedArtifact) {
    let Some(mut joined) = imported.sidecars.ranks.take() else { return };
    let from = joined.ranks.first().map(|rank| rank.location.from.clone()).unwrap_or_default();
    imported.gaps.push(Gap {
        code: "ranks_inferred".to_owned(),
        text: format!(
            "{from}: it has the work of {} processes without their ranks; they are numbered by GPU \
             and process id",
            joined.ranks.len()
        ),
    });
    imported.gaps.extend(match_ranks(&mut joined));
    collectives::sort_by_start(&mut joined.collectives, &joined.ranks);
    joined.clock = RankClock { source: ClockSource::Report, ..RankClock::default() };
    let first_ns = joined.ranks.iter().map(|rank| rank.first_ns).min().unwrap_or(0);
    joined.ranks.iter_mut().for_each(|rank| rank.shift(first_ns.saturating_neg()));
    imported.sidecars.ranks = Some(joined);
}

/// Joins several reports of one rank or more each. A report without GPU work only adds its gaps.
pub fn join_reports(mut reports: Vec<ImportedArtifact>) -> ImportedArtifact {
    let mut joined_report = ImportedArtifact::default();
    let mut joined = JoinedRanks::default();
    let mut of_reports: Vec<ReportRanks> = Vec::new();
    for report in &mut reports {
        let ranks = report.sidecars.ranks.take().unwrap_or_default().ranks;
        let first = joined.ranks.len();
        joined.ranks.extend(ranks);
        of_reports.push((first..joined.ranks.len()).collect());
    }
    joined_report.gaps.extend(number_ranks(&mut joined.ranks));
    joined_report.gaps.extend(match_ranks(&mut joined));
    // The events of a report without ranks keep the report's own clock.
    let firsts: Vec<i64> = of_reports
        .iter()
        .map(|ranks| ranks.iter().map(|at| joined.ranks[*at].first_ns).min().unwrap_or(0))
        .collect();
    let (clock, clocks) = clock::align(&mut joined, &of_reports);
    joined.clock = clock;
    // Starts on different ranks can be compared only on the common clock.
    collectives::sort_by_start(&mut joined.collectives, &joined.ranks);
    let numbers: Vec<Vec<u32>> = of_reports
        .iter()
        .map(|ranks| ranks.iter().map(|at| joined.ranks[*at].location.rank).collect())
        .collect();
    sort_by_number(&mut joined);
    let times: Vec<ReportTimes> = (clocks.into_iter().zip(firsts))
        .map(|(clock, first_ns)| ReportTimes { clock, first_ns })
        .collect();
    joined_report.sidecars.trace =
        trace::join(&mut reports, &numbers, &times, joined.ranks.iter().map(|r| &r.location));
    sums::join_sums(&mut joined_report, reports, &numbers);
    // The reports' own gaps tell of documents that are not written.
    joined_report.gaps.retain(|gap| gap.code != TRACE_CUT);
    let trace = joined_report.sidecars.trace.iter();
    let gaps: Vec<Gap> = trace.filter_map(unlisted_events_gap).collect();
    joined_report.gaps.extend(gaps);
    joined_report.sidecars.ranks = Some(joined);
    joined_report
}

/// Sorts the ranks by number. Matched collectives refer to them by index.
fn sort_by_number(joined: &mut JoinedRanks) {
    let mut order: Vec<usize> = (0..joined.ranks.len()).collect();
    order.sort_by_key(|at| joined.ranks[*at].location.rank);
    let mut moved = vec![0; order.len()];
    for (to, from) in order.iter().enumerate() {
        moved[*from] = u32::try_from(to).unwrap_or(u32::MAX);
    }
    for collective in &mut joined.collectives {
        for (rank, _) in &mut collective.calls {
            *rank = moved[*rank as usize];
        }
        collective.calls.sort_unstable();
    }
    joined.ranks.sort_by_key(|rank| rank.location.rank);
}

/// Numbers the ranks of several reports. Returns a gap for each number that is missing or not
/// certain.
fn number_ranks(ranks: &mut [RankWork]) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for rank in ranks.iter_mut().filter(|rank| rank.location.rank >= MAX_RANKS) {
        gaps.push(Gap {
            code: "ranks_inferred".to_owned(),
            text: format!(
                "{}: its rank {} is ignored: rgpu knows ranks below {MAX_RANKS}",
                rank.location.from, rank.location.rank
            ),
        });
        (rank.location.rank, rank.is_numbered) = (0, false);
    }
    let mut several_in = BTreeSet::new();
    for pair in ranks.windows(2) {
        if pair[0].location.from == pair[1].location.from {
            several_in.insert(pair[0].location.from.clone());
        }
    }
    for rank in ranks.iter_mut().filter(|rank| !rank.is_numbered) {
        let of_file = rank_of_name(&rank.location.from);
        if let Some(number) = of_file.filter(|_| !several_in.contains(&rank.location.from)) {
            rank.location.rank = number;
            rank.is_numbered = true;
        }
    }
    let numbers: BTreeSet<u32> = ranks.iter().map(|rank| rank.location.rank).collect();
    let all_numbered = ranks.iter().all(|rank| rank.is_numbered);
    if !all_numbered || numbers.len() < ranks.len() {
        for (rank, number) in ranks.iter_mut().zip(0..) {
            rank.location.rank = number;
        }
        let why = if all_numbered {
            "several have the same number"
        } else {
            "not every report has a number"
        };
        gaps.push(Gap {
            code: "ranks_inferred".to_owned(),
            text: format!("ranks are numbered in the order of the reports: {why}"),
        });
    }
    let world =
        ranks.iter().filter_map(|rank| rank.world_size).filter(|size| *size <= MAX_RANKS).max();
    let last = ranks.iter().map(|rank| rank.location.rank + 1).max();
    let all = world.max(last).unwrap_or(0);
    let present: BTreeSet<u32> = ranks.iter().map(|rank| rank.location.rank).collect();
    let missing: Vec<String> =
        (0..all).filter(|rank| !present.contains(rank)).take(8).map(|r| r.to_string()).collect();
    if !missing.is_empty() {
        let missing_count = all as usize - present.len();
        let more = if missing_count > missing.len() { ", …" } else { "" };
        let have = by_number(missing_count, "has", "have");
        gaps.push(Gap {
            code: "ranks_missing".to_owned(),
            text: format!(
                "{missing_count} of {all} ranks {have} no report ({}{more}): what {} did is unknown",
                missing.join(", "),
                by_number(missing_count, "it", "they")
            ),
        });
    }
    gaps
}

/// The number after `rank` in the name of a file: `rank3.nsys-rep`, `report.rank_3.json`.
pub(super) fn rank_of_name(path: &str) -> Option<u32> {
    let name = Path::new(path).file_name()?.to_str()?.to_lowercase();
    let rest = &name[name.rfind("rank")? + "rank".len()..];
    let rest = rest.trim_start_matches(['-', '_', '.', '=']);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok().filter(|rank| *rank < MAX_RANKS)
}

/// Matches the collectives of the ranks. Returns a gap for each group that could not be compared.
fn match_ranks(joined: &mut JoinedRanks) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let outcome = collectives::match_all(&joined.ranks);
    joined.collectives = outcome.matched;
    joined.unmatched = outcome.unmatched;
    let different = outcome.mismatches.into_iter();
    gaps.extend(different.map(|text| Gap { code: "ranks_differ".to_owned(), text }));
    if joined.ranks.len() > 1 && joined.collectives.is_empty() {
        let mut calls = joined.ranks.iter().flat_map(|rank| &rank.collectives);
        let text = if calls.any(|call| !call.operation.is_point_to_point()) {
            "no collective of NCCL is on all ranks of its group: ranks are compared by their own times"
        } else {
            "no collectives of NCCL were recorded: ranks are compared by their own times"
        };
        gaps.push(Gap { code: "no_collectives".to_owned(), text: text.to_owned() });
    }
    let kernels = |rank: &RankWork| -> BTreeSet<String> { rank.names.iter().cloned().collect() };
    if let [first, rest @ ..] = &joined.ranks[..] {
        let first_names = kernels(first);
        for other in rest.iter().filter(|other| kernels(other).is_disjoint(&first_names)) {
            gaps.push(Gap {
                code: "ranks_differ".to_owned(),
                text: format!(
                    "rank {} has no kernel, copy or range in common with rank {}: they may be of \
                     different programs",
                    other.location.rank, first.location.rank
                ),
            });
        }
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::Trace;
    use rgpu_model::rank_work::{GpuWork, GpuWorkKind, RankCollective};
    use rgpu_model::ranks::{CollectiveOperation, RankLocation};
    use rgpu_model::trace::{TraceWork, TraceWorkKind};

    #[test]
    fn a_rank_is_read_from_the_name_of_a_file() {
        for (name, expected) in [
            ("out/rank3.nsys-rep", Some(3)),
            ("report.rank_12.sqlite", Some(12)),
            ("Rank-0.pt.trace.json", Some(0)),
            ("rank1/report.nsys-rep", None),
            ("frank.json", None),
            ("rank4294967295.nsys-rep", None),
            ("rank_20261123.nsys-rep", None),
        ] {
            assert_eq!(rank_of_name(name), expected, "{name}");
        }
    }

    #[test]
    fn events_and_the_work_of_ranks_get_the_same_times() {
        // 40 all-reduces over 4 s. The clock of the second report is 7 s ahead and 20 ppm fast.
        let report = |number: u32, own: fn(i64) -> i64| {
            let start = |k: i64| own(1_790_000_000_000_000_000 + k * 100_000_000);
            let mut rank = RankWork {
                is_numbered: true,
                location: RankLocation { rank: number, ..RankLocation::default() },
                first_ns: start(0),
                names: vec!["nccl".to_owned()],
                ..RankWork::default()
            };
            let mut trace = Trace { names: rank.names.clone(), ..Trace::default() };
            for (k, gpu_work) in (0..40).zip(0..) {
                rank.gpu_work.push(GpuWork {
                    start_ns: start(k),
                    end_ns: start(k) + 1_000_000,
                    called_ns: None,
                    name: 0,
                    region: None,
                    kind: GpuWorkKind::Collective,
                });
                rank.collectives.push(RankCollective {
                    gpu_work,
                    group: "world".into(),
                    operation: CollectiveOperation::AllReduce,
                    bytes: None,
                    bytes_are_per_rank: false,
                    ranks: None,
                });
                trace.work.push(TraceWork {
                    kind: TraceWorkKind::Kernel,
                    name: 0,
                    start_ns: start(k).abs_diff(start(0)),
                    duration_ns: 1_000_000,
                    device: 0,
                    stream: 0,
                    bytes: None,
                    pageable: None,
                    call: None,
                    launch: None,
                    regions: Default::default(),
                    rank: Some(0),
                    shape: None,
                });
            }
            let mut imported = ImportedArtifact::default();
            imported.sidecars.ranks =
                Some(JoinedRanks { ranks: vec![rank], ..JoinedRanks::default() });
            imported.sidecars.trace = Some(trace);
            imported
        };
        let fast = |ns: i64| ns + 7_000_000_000 + (ns - 1_790_000_000_000_000_000) / 50_000;
        let joined = join_reports(vec![report(0, |ns| ns), report(1, fast)]);
        let (ranks, trace) = (joined.sidecars.ranks.unwrap(), joined.sidecars.trace.unwrap());
        assert_eq!(ranks.clock.source, ClockSource::Fitted);
        for (rank, number) in ranks.ranks.iter().zip(0..) {
            let of_rank = trace.work.iter().filter(|work| work.rank == Some(number));
            let listed: Vec<(u64, u64)> =
                of_rank.map(|work| (work.start_ns, work.end_ns())).collect();
            let pieces = rank.gpu_work.iter();
            let pieces: Vec<(u64, u64)> =
                pieces.map(|p| (p.start_ns as u64, p.end_ns as u64)).collect();
            assert_eq!(listed, pieces, "rank {number}");
            // 20 ppm of 4 s are 80 µs.
            assert!(listed[39].0.abs_diff(3_900_000_000) < 1_000, "{listed:?}");
        }
    }

    #[test]
    fn ranks_without_a_report_are_named() {
        let rank = |number| RankWork {
            is_numbered: true,
            world_size: Some(4),
            location: RankLocation { rank: number, ..RankLocation::default() },
            ..RankWork::default()
        };
        let gaps = number_ranks(&mut [rank(0), rank(3)]);
        assert_eq!(gaps.len(), 1);
        assert!(gaps[0].text.starts_with("2 of 4 ranks have no report (1, 2)"), "{}", gaps[0].text);
        let mut same = [rank(1), rank(1)];
        let gaps = number_ranks(&mut same);
        assert_eq!(same.map(|rank| rank.location.rank), [0, 1]);
        assert_eq!(gaps[0].code, "ranks_inferred");
        // The largest number has no next one.
        let mut far = [rank(0), RankWork { world_size: Some(u32::MAX), ..rank(u32::MAX) }];
        let gaps = number_ranks(&mut far);
        assert_eq!(far.map(|rank| rank.location.rank), [0, 1]);
        assert!(gaps[0].text.contains("its rank 4294967295 is ignored"), "{}", gaps[0].text);
        assert!(gaps.last().unwrap().text.starts_with("2 of 4 ranks"), "{gaps:?}");
    }
}
