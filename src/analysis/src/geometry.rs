//! The launches that a profiled one represents in mode `deep`: those of its kernel with equal grid
//! and block, as the survey timed them. Launches of a geometry that was not profiled have no
//! judgement.

use std::collections::HashMap;

use rgpu_model::{Launch, Profile};

/// Grid and block. Tools disagree on the shared memory that the driver adds.
type Geometry = ([u32; 3], [u32; 3]);

/// The launches of one kernel and geometry.
#[derive(Clone, Copy, Debug, Default)]
struct GeometryTime {
    /// Launches in the survey, and their nanoseconds.
    surveyed: (u64, f64),
    /// The same of the profiled ones.
    profiled: (u64, f64),
}

/// The geometries of the kernels that mode `deep` chose.
pub(super) struct GeometryTimes<'a> {
    by_kernel: HashMap<&'a str, HashMap<Geometry, GeometryTime>>,
}

impl<'a> GeometryTimes<'a> {
    pub(super) fn new(profile: &'a Profile) -> GeometryTimes<'a> {
        let mut by_kernel: HashMap<&str, HashMap<Geometry, GeometryTime>> = HashMap::new();
        for choice in profile.selection.iter().flat_map(|selection| &selection.kernels) {
            for class in &choice.geometries {
                let times = by_kernel.entry(&choice.kernel).or_default();
                let time = times.entry((class.grid, class.block)).or_default();
                time.surveyed.0 += class.launches;
                time.surveyed.1 += class.total_ns as f64;
            }
        }
        for launch in profile.launches.iter().filter(|launch| !launch.metrics.is_empty()) {
            let times = by_kernel.get_mut(launch.kernel.as_str());
            if let Some(time) = times.and_then(|all| all.get_mut(&(launch.grid, launch.block))) {
                time.profiled.0 += 1;
                time.profiled.1 += launch.duration_ns.unwrap_or_default();
            }
        }
        GeometryTimes { by_kernel }
    }

    /// The number of launches that a profiled one stands for, and the nanoseconds of all of them
    /// for each of the profiled ones. `None` where no survey tells.
    pub(super) fn stands_for(&self, launch: &Launch) -> Option<(f64, f64)> {
        if launch.metrics.is_empty() {
            return None;
        }
        let time = self.by_kernel.get(launch.kernel.as_str())?;
        match time.get(&(launch.grid, launch.block)) {
            Some(time) if time.profiled.1 > 0.0 => Some((
                time.surveyed.0 as f64 / time.profiled.0 as f64,
                time.surveyed.1 / time.profiled.1,
            )),
            // The survey did not see this geometry.
            _ => Some((1.0, 1.0)),
        }
    }

    /// The share of a kernel's time that geometries with a profiled launch have.
    pub(super) fn profiled_share(&self, kernel: &str) -> Option<f64> {
        let times = self.by_kernel.get(kernel)?.values();
        let total: f64 = times.clone().map(|time| time.surveyed.1).sum();
        let profiled = times.filter(|time| time.profiled.0 > 0).map(|time| time.surveyed.1);
        let share = profiled.sum::<f64>() / total;
        share.is_finite().then_some(share)
    }
}
