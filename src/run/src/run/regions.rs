//! Chooses the NVTX regions that the next passes of `rgpu profile --regions` measure.
//!
//! The first pass of such a run, the survey, records the program's regions in the profile. The
//! user's patterns select some of them. The result is the regions of each further pass.

use std::collections::{HashMap, HashSet};

use rgpu_model::Region;
use rgpu_model::error::{Exit, Failure};
use rgpu_model::selection::RegionChoice;
use rgpu_model::timeline::RegionKind;
use rgpu_plan::tool::{RGPU_DOMAIN, RangeKind, RecordedRegion, RegionPattern, RunnerRanges};

/// The error for a pattern without a match lists at most this many regions.
const MAX_SHOWN_REGIONS: usize = 20;

/// Regions that one pass measures together.
#[derive(Clone, Debug, Default)]
pub(super) struct PassRegions {
    pub regions: Vec<RecordedRegion>,
}

impl PassRegions {
    /// Whether a launch inside the ranges of `path` is in one of the regions; always true without
    /// regions.
    pub(super) fn contains_launch(&self, path: &[String], runner_ranges: RunnerRanges) -> bool {
        if self.regions.is_empty() {
            return true;
        }
        let Some(launch) = RecordedRegion::from_path(path, RangeKind::Either, runner_ranges) else {
            return false;
        };
        self.regions.iter().any(|region| {
            launch.path.starts_with(&region.path)
                // Start/end ranges are not part of the nesting.
                || (region.kind == RangeKind::StartEnd && launch.path.contains(&region.path[0]))
        })
    }

    /// Splits the regions into layers in which none contains another, because the range replay of
    /// ncu does not support nested ranges. Each layer becomes a pass.
    pub(super) fn split_nested(self) -> Vec<PassRegions> {
        let mut layers: Vec<PassRegions> = Vec::new();
        let mut outer: HashMap<&[String], usize> = HashMap::new();
        for region in &self.regions {
            *outer.entry(&region.path).or_default() += 1;
        }
        let depth = |region: &RecordedRegion| {
            let around = (0..region.path.len()).filter_map(|end| outer.get(&region.path[..end]));
            around.sum::<usize>()
        };
        for region in &self.regions {
            let depth = depth(region);
            while layers.len() <= depth {
                layers.push(PassRegions::default());
            }
            layers[depth].regions.push(region.clone());
        }
        layers.retain(|layer| !layer.regions.is_empty());
        layers
    }
}

/// Whether a path of ranges is inside the runner's timed phase.
pub(super) fn is_in_timed_phase(path: &[String]) -> bool {
    path.first().is_some_and(|part| *part == format!("{RGPU_DOMAIN}@timed"))
}

/// The regions of a profile without the ranges that the runner itself opens; each path once,
/// parents before children.
pub(super) fn user_regions(regions: &[Region], runner_ranges: RunnerRanges) -> Vec<RecordedRegion> {
    let mut recorded: Vec<RecordedRegion> = Vec::new();
    let mut known: HashSet<RecordedRegion> = HashSet::new();
    for region in regions {
        let kind = match region.kind {
            RegionKind::StartEnd => RangeKind::StartEnd,
            _ => RangeKind::PushPop,
        };
        if let Some(region) = RecordedRegion::from_path(&region.path, kind, runner_ranges)
            && known.insert(region.clone())
        {
            recorded.push(region);
        }
    }
    recorded
}

/// The recorded regions that any of the patterns matches.
///
/// # Errors
/// `no_matching_region` for the first pattern without a match; lists the recorded regions.
pub(super) fn matching_regions(
    patterns: &[RegionPattern],
    recorded: &[RecordedRegion],
) -> Result<Vec<RecordedRegion>, Box<Failure>> {
    for pattern in patterns {
        if !recorded.iter().any(|region| pattern.matches(region)) {
            return Err(Box::new(no_match(pattern, recorded)));
        }
    }
    let matching = recorded.iter().filter(|region| patterns.iter().any(|p| p.matches(region)));
    Ok(matching.cloned().collect())
}

/// The regions that each pattern matched, for the profile.
pub(super) fn region_choices(
    patterns: &[RegionPattern],
    chosen: &[RecordedRegion],
) -> Vec<RegionChoice> {
    let choice = |pattern: &RegionPattern| RegionChoice {
        asked: pattern.text().to_owned(),
        matched: chosen
            .iter()
            .filter(|r| pattern.matches(r))
            .map(RecordedRegion::display)
            .collect(),
    };
    patterns.iter().map(choice).collect()
}

/// The regions that exact patterns name. They need no survey.
pub(super) fn exact_regions(
    patterns: &[RegionPattern],
) -> Result<Vec<RecordedRegion>, Box<Failure>> {
    let mut regions = Vec::new();
    for pattern in patterns {
        if !pattern.is_exact() {
            return Err(Box::new(
                Failure::new(
                    Exit::Tool,
                    "no_survey",
                    format!(
                        "`--regions {}`: no first pass could list the program's regions",
                        pattern.text()
                    ),
                )
                .hint("give full region names: without patterns no first pass is needed")
                .hint(
                    "`rgpu doctor` says why neither the NVTX collector nor nsys runs on the host",
                ),
            ));
        }
        let path =
            rgpu_plan::tool::RegionPath::parse(pattern.text()).map_err(|e| Box::new(e.into()))?;
        let part = |name: &String| match &path.domain {
            Some(domain) => format!("{domain}@{name}"),
            None => name.clone(),
        };
        let path = path.names.iter().map(part).collect();
        regions.push(RecordedRegion { path, kind: RangeKind::Either });
    }
    Ok(regions)
}

/// The failure for patterns of regions when only the reference ran, which opens no ranges.
pub(super) fn no_gpu() -> Failure {
    Failure::new(Exit::Host, "no_gpu", "regions cannot be profiled without a GPU")
        .cause("only the reference ran, on the CPU, so the kernel's NVTX ranges were never entered")
        .hint("run it on a host with a GPU: `--remote NAME`; `rgpu doctor NAME` says what the host can do")
}

/// The failure for a pattern without a match; lists the existing regions, most similar first.
fn no_match(pattern: &RegionPattern, recorded: &[RecordedRegion]) -> Failure {
    let failure = Failure::new(
        Exit::Config,
        "no_matching_region",
        format!("no matching region for `{}`", pattern.text()),
    );
    if recorded.is_empty() {
        return failure
            .cause("the program opened no NVTX range")
            .hint("ranges come from nvtxRangePush and nvtxRangeStart, in Python from `nvtx` or `torch.cuda.nvtx`");
    }
    let names: Vec<String> = recorded.iter().map(RecordedRegion::display).collect();
    let near = rgpu_model::error::nearest(pattern.text(), names.iter().map(String::as_str));
    let mut shown: Vec<&str> = near;
    let mut known: HashSet<&str> = shown.iter().copied().collect();
    shown.extend(names.iter().map(String::as_str).filter(|name| known.insert(name)));
    let more = shown.len().saturating_sub(MAX_SHOWN_REGIONS);
    shown.truncate(MAX_SHOWN_REGIONS);
    let mut text = format!("there are `{}`", shown.join("`, `"));
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    failure.hint(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(path: &[&str]) -> RecordedRegion {
        RecordedRegion::push_pop(path.iter().map(|part| (*part).to_owned()).collect())
    }

    fn patterns(list: &str) -> Vec<RegionPattern> {
        RegionPattern::list(list).unwrap()
    }

    #[test]
    fn regions_of_all_phases_of_the_runner_are_listed_once() {
        let of = |path: &[&str]| Region {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            kind: "push_pop".into(),
            ..Region::default()
        };
        let regions = [
            of(&["rgpu@warmup"]),
            of(&["rgpu@warmup", "rgpu@large", "A"]),
            of(&["rgpu@timed", "rgpu@large", "A"]),
            of(&["rgpu@timed", "rgpu@large", "A", "A1"]),
        ];
        let shown: Vec<_> = user_regions(&regions, RunnerRanges::Present)
            .iter()
            .map(RecordedRegion::display)
            .collect();
        assert_eq!(shown, ["A", "A::A1"]);
    }

    #[test]
    fn a_pattern_without_a_region_names_those_that_exist_nearest_first() {
        let recorded = [region(&["load"]), region(&["decode_1"]), region(&["decode_2"])];
        assert_eq!(matching_regions(&patterns("decode*"), &recorded).unwrap().len(), 2);
        let failure = matching_regions(&patterns("load,decode"), &recorded).unwrap_err();
        assert_eq!((failure.code.as_str(), failure.exit), ("no_matching_region", Exit::Config));
        assert!(failure.hints[0].starts_with("there are `decode_1`"), "{:?}", failure.hints);
        assert!(failure.hints[0].contains("`load`"));
        assert!(
            matching_regions(&patterns("A"), &[])
                .unwrap_err()
                .cause
                .unwrap()
                .contains("no NVTX range")
        );
    }

    #[test]
    fn nested_regions_are_split_into_layers() {
        let regions = vec![region(&["A"]), region(&["A", "A1"]), region(&["B"])];
        let layers = PassRegions { regions }.split_nested();
        let shown: Vec<Vec<String>> = layers
            .iter()
            .map(|l| l.regions.iter().map(RecordedRegion::display).collect())
            .collect();
        assert_eq!(shown, [vec!["A", "B"], vec!["A::A1"]]);
    }

    #[test]
    fn exact_regions_accepts_only_full_names() {
        assert_eq!(exact_regions(&patterns("A::A1")).unwrap()[0].display(), "A::A1");
        assert_eq!(exact_regions(&patterns("A*")).unwrap_err().code, "no_survey");
    }

    #[test]
    fn a_launch_lies_in_a_region_or_in_one_inside_it() {
        let layer = PassRegions { regions: vec![region(&["A"])] };
        let path = |parts: &[&str]| parts.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
        assert!(
            layer.contains_launch(
                &path(&["rgpu@timed", "rgpu@n=1", "A", "A1"]),
                RunnerRanges::Present
            )
        );
        assert!(
            !layer.contains_launch(&path(&["rgpu@timed", "rgpu@n=1", "B"]), RunnerRanges::Present)
        );
        assert!(!layer.contains_launch(&[], RunnerRanges::Present));
    }
}
