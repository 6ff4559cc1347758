//! Drops the launches of an imported ncu report whose region was not requested.
//!
//! ncu's filter `A/` for a push/pop range matches A anywhere on the stack of its domain. So ncu
//! also measures launches inside `X::A`; no filter of ncu says "A is the outermost range, with any
//! ranges inside". Each result of the report names its open ranges, so launches elsewhere can be
//! dropped after the import.

use rgpu_import::ImportedArtifact;
use rgpu_model::profile::Gap;
use rgpu_model::timeline::RegionKind;
use rgpu_model::{Launch, Region};
use rgpu_plan::tool::{RangeKind, RecordedRegion, RunnerRanges, domain_and_name};

/// Drops launches outside `regions`; none if `regions` is empty. Returns a gap that says how many
/// were dropped.
pub(super) fn keep_regions(
    imported: &mut ImportedArtifact,
    regions: &[RecordedRegion],
    runner_ranges: RunnerRanges,
) -> Option<Gap> {
    if regions.is_empty() {
        return None;
    }
    let rows = imported.regions.clone();
    let dropped = imported.keep_launches(|launch| {
        let own = RecordedRegion::from_path(&launch.region, RangeKind::Either, runner_ranges);
        // ncu's own filter has passed a launch without range names; keep it.
        own.is_none_or(|own| {
            regions.iter().any(|region| holds(region, &own) || was_open(region, launch, &rows))
        })
    });
    if dropped == 0 {
        return None;
    }
    let names = regions.iter().map(RecordedRegion::display).collect::<Vec<_>>().join("`, `");
    let noun = if dropped == 1 { "launch" } else { "launches" };
    Some(Gap {
        code: "foreign_region".to_owned(),
        text: format!(
            "{dropped} {noun} of ranges that only end like `{names}` left out: ncu takes a range of \
             that name wherever it is nested"
        ),
    })
}

/// Whether `inner` is in `region`. ncu keeps one stack per domain and does not say how those of
/// several domains nest, so only the region's innermost domain counts, as in ncu's filter.
fn holds(region: &RecordedRegion, inner: &RecordedRegion) -> bool {
    let domain = region.path.last().map_or("", |part| domain_and_name(part).0);
    let in_domain = |path: &RecordedRegion| -> Vec<String> {
        path.path.iter().filter(|part| domain_and_name(part).0 == domain).cloned().collect()
    };
    let (region_path, launch_path) = (in_domain(region), in_domain(inner));
    match (region.kind, region_path.as_slice()) {
        // A start/end range may be open beside the nesting.
        (RangeKind::StartEnd | RangeKind::Either, [only]) => launch_path.contains(only),
        _ => launch_path.starts_with(&region_path),
    }
}

/// Whether `region` is a start/end range that was open at the launch.
fn was_open(region: &RecordedRegion, launch: &Launch, rows: &[Region]) -> bool {
    region.kind != RangeKind::PushPop
        && rows.iter().any(|row| {
            row.kind == RegionKind::StartEnd
                && row.path == region.path
                && row.launches.contains(&launch.id)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_import::{IMPORTERS, Source};

    fn recorded(name: &str) -> ImportedArtifact {
        let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .join("tests/fixtures/ncu/2025.3.1")
            .join(name)
            .join("report.ncu-repz");
        let importer = IMPORTERS.iter().find(|i| i.kind == "ncu_rep").unwrap();
        (importer.import)(&Source::new(&path, "raw/report.ncu-rep")).unwrap()
    }

    fn region(path: &[&str], kind: RangeKind) -> RecordedRegion {
        RecordedRegion { path: path.iter().map(|part| (*part).to_owned()).collect(), kind }
    }

    fn paths(imported: &ImportedArtifact) -> Vec<String> {
        imported.launches.iter().map(|launch| launch.region.join("::")).collect()
    }

    /// A report of launches in `A`, `A::A1` and `B`, as recorded with the filters `A1/` and `B/`.
    #[test]
    fn a_range_of_the_same_name_inside_another_is_left_out_and_counted() {
        let mut imported = recorded("regions");
        let before = paths(&imported);
        let nested = before.iter().filter(|path| *path == "A::A1").count();
        assert!(nested > 0);
        let requested = [region(&["A1"], RangeKind::PushPop), region(&["B"], RangeKind::PushPop)];
        let gap = keep_regions(&mut imported, &requested, RunnerRanges::Absent).unwrap();
        assert_eq!(gap.code, "foreign_region");
        assert!(paths(&imported).iter().all(|path| path == "B"), "{:?}", paths(&imported));
        let dropped = before.len() - imported.launches.len();
        assert!(gap.text.starts_with(&format!("{dropped} launches")), "{}", gap.text);
        // Launch numbers, regions and sums are updated.
        let ids: Vec<u32> = imported.launches.iter().map(|launch| launch.id).collect();
        assert_eq!(ids, (0..ids.len() as u32).collect::<Vec<_>>());
        // A range around everything stays, with its remaining launches.
        let rows: Vec<&str> = imported.regions.iter().map(|r| r.path[0].as_str()).collect();
        assert_eq!(rows, ["rgpu@whole", "B"]);
        for row in &imported.regions {
            assert_eq!(row.launches, ids);
            assert_eq!(row.kernels.iter().map(|k| k.launches).sum::<u64>(), ids.len() as u64);
        }
        let spots = imported.sidecars.hotspots.iter().flat_map(|h| &h.launches);
        assert!(spots.into_iter().all(|spots| ids.contains(&spots.launch)));
    }

    #[test]
    fn requested_regions_stay_with_everything_inside() {
        for requested in [region(&["A"], RangeKind::PushPop), region(&["A"], RangeKind::Either)] {
            let mut imported = recorded("regions-include");
            let before = paths(&imported);
            assert_eq!(keep_regions(&mut imported, &[requested], RunnerRanges::Absent), None);
            assert_eq!(paths(&imported), before);
            assert!(before.contains(&"A::A1".to_owned()), "{before:?}");
        }
        assert_eq!(keep_regions(&mut recorded("regions"), &[], RunnerRanges::Absent), None);
    }

    #[test]
    fn stacks_of_other_domains_do_not_matter() {
        let of = |path: &[&str]| region(path, RangeKind::Either);
        let requested = region(&["A", "d@B"], RangeKind::PushPop);
        assert!(holds(&requested, &of(&["A", "C", "d@B", "d@D"])));
        assert!(holds(&requested, &of(&["d@B"])));
        assert!(!holds(&requested, &of(&["A", "d@X", "d@B"])));
        assert!(holds(&region(&["S"], RangeKind::StartEnd), &of(&["A", "S"])));
        assert!(!holds(&region(&["S"], RangeKind::PushPop), &of(&["A", "S"])));
    }
}
