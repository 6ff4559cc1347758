//! Builds the regions document of a profile.

use std::collections::{BTreeSet, HashMap};

use super::name::folder_names;
use crate::region_rows::is_of_library;
use rgpu_model::regions::{RegionEntry, RegionLaunch, RegionTotals, RegionsDocument, SCHEMA};
use rgpu_model::timeline::{RegionKind, display_path};
use rgpu_model::{Launch, Profile, Region};

/// The maximum number of regions with a folder. Programs that number their ranges have thousands.
const MAX_FOLDERS: usize = 500;

/// The maximum number of launches listed per region.
const MAX_LISTED_LAUNCHES: usize = 1_000;

/// The runner's range around the launches that it times.
const RUNNER_TIMED_RANGE: &str = "rgpu@timed";

/// The runner's ranges around its other phases.
const RUNNER_UNTIMED_RANGES: &[&str] = &["rgpu@setup", "rgpu@warmup", "rgpu@verify"];

/// A region of the user's code, with the case in which it was recorded.
struct UserRegion<'a> {
    region: &'a Region,
    case: Option<&'a str>,
    /// The path without the runner's ranges.
    path: &'a [String],
}

/// The document; `None` if no region of the user's code was recorded and none was requested.
pub(super) fn document(profile: &Profile) -> Option<RegionsDocument> {
    let requested = profile.selection.as_ref().map(|selection| &selection.regions[..]);
    let requested = requested.unwrap_or_default();
    let user_regions: Vec<UserRegion<'_>> =
        profile.regions.iter().filter_map(user_region).collect();
    let matched: BTreeSet<&str> =
        requested.iter().flat_map(|choice| &choice.matched).map(String::as_str).collect();
    let chosen: Vec<UserRegion<'_>> = user_regions
        .into_iter()
        .filter(|user_region| {
            if requested.is_empty() {
                !is_of_library(user_region.region)
            } else {
                matched.contains(display_path(user_region.path).as_str())
            }
        })
        .collect();
    if chosen.is_empty() && requested.is_empty() {
        return None;
    }
    let cases: BTreeSet<_> = chosen.iter().filter_map(|user_region| user_region.case).collect();
    let named = |user_region: &UserRegion<'_>| match user_region.case {
        Some(case) if cases.len() > 1 => format!("{case}::{}", display_path(user_region.path)),
        _ => display_path(user_region.path),
    };
    let mut names: Vec<String> = chosen.iter().map(named).collect();
    make_names_unique(&mut names, &chosen);
    let mut folders = folder_names(&names);
    remove_folders(&mut folders, &chosen);
    let entries = chosen.iter().zip(names).zip(folders);
    let launches = LaunchIndex::new(profile);
    let regions: Vec<RegionEntry> = entries
        .map(|((user_region, name), folder)| {
            entry(profile, &launches, user_region.region, name, folder)
        })
        .collect();
    let selection = profile.selection.clone();
    Some(RegionsDocument {
        schema: SCHEMA.to_owned(),
        run: profile.run.id.clone(),
        kernel: profile.kernel.name.clone(),
        mode: profile.run.mode.clone(),
        rung: profile.rung.clone(),
        device: profile.device.clone(),
        no_match: requested
            .iter()
            .filter(|choice| choice.matched.is_empty())
            .map(|choice| choice.asked.clone())
            .collect(),
        fingerprint: selection.as_ref().map(|s| s.fingerprint.clone()).unwrap_or_default(),
        selection,
        totals: RegionTotals {
            regions: regions.len() as u64,
            launches: profile.kernels.iter().map(|kernel| kernel.launches).sum(),
            kernel_ns: profile.kernels.iter().map(|kernel| kernel.total_ns).sum(),
        },
        regions,
        gaps: profile.gaps.clone(),
    })
}

/// The region as a user region; `None` for the runner's own ranges and unmeasured phases.
fn user_region(region: &Region) -> Option<UserRegion<'_>> {
    let first = region.path.first()?;
    if RUNNER_UNTIMED_RANGES.contains(&first.as_str()) {
        return None;
    }
    if first != RUNNER_TIMED_RANGE {
        return Some(UserRegion { region, case: None, path: &region.path });
    }
    let case = region.path.get(1)?;
    let path = region.path.get(2..).filter(|path| !path.is_empty())?;
    Some(UserRegion { region, case: Some(case.strip_prefix("rgpu@").unwrap_or(case)), path })
}

/// Leaves a folder to the regions with the most GPU time.
fn remove_folders(folders: &mut [String], chosen: &[UserRegion<'_>]) {
    let mut by_time: Vec<usize> = (0..chosen.len()).collect();
    by_time.sort_by_key(|at| std::cmp::Reverse(chosen[*at].region.gpu_ns));
    for at in by_time.into_iter().skip(MAX_FOLDERS) {
        folders[at].clear();
    }
}

/// Makes names unique: a push/pop and a start/end region may have the same name.
fn make_names_unique(names: &mut [String], chosen: &[UserRegion<'_>]) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (name, user_region) in names.iter_mut().zip(chosen) {
        let mut number = 1;
        let plain = name.clone();
        while !seen.insert(name.clone()) {
            number += 1;
            *name = match (&user_region.region.kind, number) {
                (RegionKind::StartEnd, 2) => format!("{plain} (start/end)"),
                _ => format!("{plain} ({number})"),
            };
        }
    }
}

fn entry(
    profile: &Profile,
    launches: &LaunchIndex<'_>,
    region: &Region,
    name: String,
    folder: String,
) -> RegionEntry {
    let all = launches.launches_in(region);
    let sections: BTreeSet<&str> =
        all.iter().flat_map(|launch| &launch.raw_sections).map(|s| s.id.as_str()).collect();
    let kernel_ns: u64 = profile.kernels.iter().map(|kernel| kernel.total_ns).sum();
    let own_ns: u64 = region.kernels.iter().map(|kernel| kernel.total_ns).sum();
    // A range that was measured as a whole has no times of its kernels.
    let is_whole = !region.ranges.is_empty() && own_ns == 0;
    let known = kernel_ns > 0 && region.gpu_ns.is_some() && !is_whole;
    let times = profile.timeline.iter().flat_map(|timeline| &timeline.regions);
    let start_end = region.kind == RegionKind::StartEnd;
    let mut times = times.filter(|t| t.path == region.path && t.start_end == start_end);
    RegionEntry {
        name,
        folder,
        share_percent: known.then(|| 100.0 * own_ns as f64 / kernel_ns as f64),
        launches: all.iter().take(MAX_LISTED_LAUNCHES).map(|launch| listed(launch)).collect(),
        more_launches: all.len().saturating_sub(MAX_LISTED_LAUNCHES) as u64,
        waiting: times.next().map(|time| time.waiting.clone()).unwrap_or_default(),
        sections: sections.into_iter().map(str::to_owned).collect(),
        region: region.clone(),
    }
}

/// The launches of a profile, by number and by path.
pub(super) struct LaunchIndex<'a> {
    launches: &'a [Launch],
    /// The place of each number in the list.
    by_id: HashMap<u32, usize>,
    /// The places in the list, in order of the paths: those inside a region are neighbours.
    by_path: Vec<usize>,
}

impl<'a> LaunchIndex<'a> {
    pub(super) fn new(profile: &'a Profile) -> Self {
        let launches = &profile.launches;
        let mut by_id = HashMap::new();
        for (at, launch) in launches.iter().enumerate() {
            by_id.entry(launch.id).or_insert(at);
        }
        let mut by_path: Vec<usize> = (0..launches.len()).collect();
        by_path.sort_by_key(|at| &launches[*at].region[..]);
        Self { launches, by_id, by_path }
    }

    /// The launches of a region: those that the tool listed, else those whose path is inside it.
    /// Results of the whole region come first.
    pub(super) fn launches_in(&self, region: &Region) -> Vec<&'a Launch> {
        let find = |id: &u32| self.by_id.get(id).copied();
        let whole = region.ranges.iter().filter_map(|range| find(&range.launch));
        let mut inside: Vec<usize> = Vec::new();
        if !region.launches.is_empty() || !region.ranges.is_empty() {
            inside.extend(region.launches.iter().filter_map(find));
        } else if region.kind != RegionKind::StartEnd {
            let path = |at: &usize| &self.launches[*at].region[..];
            let first = self.by_path.partition_point(|at| path(at) < &region.path[..]);
            let later = self.by_path[first..].iter().copied();
            inside.extend(later.take_while(|at| path(at).starts_with(&region.path)));
        }
        inside.sort_unstable();
        inside.dedup();
        whole.chain(inside).map(|at| &self.launches[at]).collect()
    }
}

fn listed(launch: &Launch) -> RegionLaunch {
    RegionLaunch {
        launch: launch.id,
        kernel: launch.kernel.clone(),
        grid: launch.grid,
        block: launch.block,
        duration_ns: launch.duration_ns,
        bound_by: launch.classification.as_ref().map(|class| class.primary.clone()),
        metrics: launch.metrics.clone(),
    }
}
