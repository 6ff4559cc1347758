//! Results of range replay: one for each range, measured as a whole.
//!
//! The importer makes a launch of each, so that rules and reports can read it, and gives its region
//! the metrics. Here regions that have none yet get them.

use std::collections::HashMap;

use super::regions::is_in_timed_phase;
use rgpu_import::ImportedArtifact;
use rgpu_model::timeline::RegionKind;
use rgpu_model::{Launch, Profile, Region, RungId};
use rgpu_plan::tool::{ProfileTarget, RGPU_DOMAIN, Request};

/// Whether this rung measured whole ranges.
pub(super) fn measured_ranges(rung: &RungId, request: &Request) -> bool {
    let asked = matches!(request.ncu.replay_mode.as_deref(), Some("range" | "app-range"));
    asked
        && matches!(
            rung,
            RungId::NcuRequested | RungId::NcuAppRange | RungId::NcuSudo | RungId::NcuService
        )
}

/// Drops ranges in the runner's phases other than the timed one, which ncu cannot exclude in range
/// replay.
pub(super) fn keep_timed(imported: &mut ImportedArtifact, request: &Request) {
    if !matches!(request.target, ProfileTarget::Kernel { .. }) {
        return;
    }
    let prefix = format!("{RGPU_DOMAIN}@");
    let is_untimed = |launch: &Launch| {
        launch.region.first().is_some_and(|part| part.starts_with(&prefix))
            && !is_in_timed_phase(&launch.region)
    };
    imported.keep_launches(|launch| !is_untimed(launch));
    imported.regions.retain(|region| {
        let path = Launch { region: region.path.clone().into(), ..Launch::default() };
        !is_untimed(&path)
    });
}

/// Copies the metrics of range results to their regions, from launch `first` on.
pub(super) fn copy_to_regions(profile: &mut Profile, first: usize) {
    let mut places: HashMap<Vec<String>, usize> = HashMap::new();
    for (at, region) in profile.regions.iter().enumerate() {
        places.entry(region.path.clone()).or_insert(at);
    }
    for launch in profile.launches.get(first..).unwrap_or_default() {
        if launch.region.is_empty() {
            continue;
        }
        let from = launch.metrics.values().map(|metric| metric.from.to_string()).next();
        let place = places.get(&launch.region[..]);
        let region = match place.and_then(|at| profile.regions.get_mut(*at)) {
            Some(region) => region,
            None => {
                places.insert(launch.region.to_vec(), profile.regions.len());
                profile.regions.push(Region {
                    path: launch.region.to_vec(),
                    kind: RegionKind::PushPop,
                    instances: Some(1),
                    from: from.unwrap_or_default(),
                    ..Region::default()
                });
                let last = profile.regions.len() - 1;
                &mut profile.regions[last]
            }
        };
        // The first instance's metrics stand for the region: rates cannot be summed.
        if region.metrics.is_empty() {
            region.metrics.clone_from(&launch.metrics);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::{Metric, Value};

    fn launch(path: &[&str], ns: f64) -> Launch {
        let metric = Metric { value: Value::Float(ns), unit: "ns".into(), from: "raw/r".into() };
        Launch {
            region: path.iter().map(|part| (*part).to_owned()).collect(),
            metrics: [("gpu__time_duration.sum".into(), metric)].into(),
            ..Launch::default()
        }
    }

    #[test]
    fn metrics_of_a_range_go_to_its_region_whether_that_was_seen_before_or_not() {
        let seen = Region { path: vec!["A".into()], instances: Some(4), ..Region::default() };
        let mut profile = Profile {
            regions: vec![seen],
            launches: vec![launch(&["X"], 1.0), launch(&["A"], 2.0), launch(&["B"], 3.0)],
            ..Profile::default()
        };
        copy_to_regions(&mut profile, 1);
        let shown: Vec<_> = profile
            .regions
            .iter()
            .map(|r| (r.display(), r.instances, r.metrics["gpu__time_duration.sum"].value.as_f64()))
            .collect();
        assert_eq!(
            shown,
            [("A".to_owned(), Some(4), Some(2.0)), ("B".to_owned(), Some(1), Some(3.0))]
        );
    }
}
