//! Imports the runner's own range log: regions with their host time.

use std::collections::HashMap;

use rgpu_format::range_log::{self, RangeLog};

use super::region_tree::part;
use super::sound_times::{LeftOut, RowKind};
use super::{ImportedArtifact, Importer};
use rgpu_model::Region;
use rgpu_model::profile::ArtifactKind;
use rgpu_model::profile::Gap;
use rgpu_model::timeline::RegionKind;

/// `ranges`: the log that the runner writes where no tool records ranges.
pub(super) const IMPORTER: Importer = Importer {
    kind: ArtifactKind::Ranges,
    recognises: |_, head| head.starts_with(b"{\"rgpu_ranges\""),
    import: |source| {
        let log = range_log::read(&source.bytes()?).map_err(|cause| source.broken(cause))?;
        Ok(import(&log, source.from))
    },
};

/// Imports a log; `from` is its path in the run folder.
pub fn import(log: &RangeLog, from: &str) -> ImportedArtifact {
    let mut regions: Vec<(u64, Region)> = Vec::new();
    let mut by_path: HashMap<Vec<String>, usize> = HashMap::new();
    let mut left_out = LeftOut::default();
    for range in &log.ranges {
        if range.end_ns < range.start_ns {
            left_out.add(RowKind::Range);
            continue;
        }
        let domain = |at: usize| range.domains.get(at).unwrap_or(&range.domain);
        let named = range.path.iter().enumerate();
        let path: Vec<String> =
            named.map(|(at, name)| part(Some(domain(at)), Some(name))).collect();
        let index = *by_path.entry(path.clone()).or_insert_with(|| {
            let region = Region {
                path,
                kind: RegionKind::PushPop,
                from: from.to_owned(),
                ..Region::default()
            };
            regions.push((range.start_ns, region));
            regions.len() - 1
        });
        let (start, region) = &mut regions[index];
        *start = range.start_ns.min(*start);
        region.instances = Some(region.instances.unwrap_or(0) + 1);
        let ns = range.end_ns.saturating_sub(range.start_ns);
        region.host_ns = Some(region.host_ns.unwrap_or(0).saturating_add(ns));
    }
    // Sorted by time. Of two ranges that begin together, the outer one has the shorter path.
    regions.sort_by_key(|(start, region)| (*start, region.path.len()));
    let gaps = (log.broken_lines > 0).then(|| Gap {
        code: "damaged_report".to_owned(),
        text: match log.broken_lines {
            1 => format!("{from}: 1 line is not a range"),
            n => format!("{from}: {n} lines are not ranges"),
        },
    });
    ImportedArtifact {
        regions: regions.into_iter().map(|(_, region)| region).collect(),
        gaps: gaps.into_iter().chain(left_out.gaps(from)).collect(),
        ..ImportedArtifact::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_summed_by_path_outer_first() {
        let log = br#"{"rgpu_ranges":1,"clock":"unix_ns","pid":5}
{"domain":"rgpu","path":["timed","n=1"],"start_ns":12,"end_ns":15}
{"domain":"rgpu","path":["timed","n=1"],"start_ns":16,"end_ns":20}
{"domain":"rgpu","path":["timed"],"start_ns":12,"end_ns":30}
{"domain":"rg"#;
        let imported = import(&range_log::read(log).unwrap(), "raw/ranges.jsonl");
        let regions: Vec<_> =
            imported.regions.iter().map(|r| (r.display(), r.instances, r.host_ns)).collect();
        let owned = |path: &str, times, ns| (path.to_owned(), Some(times), Some(ns));
        let expected = [owned("rgpu@timed", 1, 18), owned("rgpu@timed::n=1", 2, 7)];
        assert_eq!(regions, expected);
        assert_eq!(imported.regions[0].gpu_ns, None);
        assert_eq!(imported.gaps.len(), 1);
    }

    #[test]
    fn a_range_that_ends_before_its_start_is_left_out_and_told() {
        let log = br#"{"rgpu_ranges":1,"clock":"unix_ns","pid":5}
{"domain":"rgpu","path":["a"],"start_ns":12,"end_ns":15}
{"domain":"rgpu","path":["a"],"start_ns":16,"end_ns":15}
"#;
        let imported = import(&range_log::read(log).unwrap(), "raw/ranges.jsonl");
        assert_eq!(
            (imported.regions[0].instances, imported.regions[0].host_ns),
            (Some(1), Some(3))
        );
        assert!(imported.gaps[0].text.contains("1 range has times"), "{:?}", imported.gaps);
    }
}
