//! Documents that are too large for the profile, each a file of the run folder.

use super::{HotSpots, JoinedRanks, Trace};

/// The documents that accompany a profile, if there are any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sidecars {
    /// The content of `hotspots.json`.
    pub hotspots: Option<HotSpots>,
    /// The events of `trace.json`; before [`Sidecars::cut_to_documents`], those for the analysis.
    pub trace: Option<Trace>,
    /// The work of each rank of a program of several processes. It is not a file.
    pub ranks: Option<JoinedRanks>,
}

impl Sidecars {
    /// Adds the documents of another artifact of the same run. `first_launch` is the number that
    /// the profile gave to that artifact's first launch. Of two traces, the one with more GPU work
    /// is kept: all passes of a run see the same program.
    pub fn add(&mut self, other: Self, first_launch: u32) {
        if let Some(mut new) = other.hotspots {
            for spots in &mut new.launches {
                spots.launch = spots.launch.saturating_add(first_launch);
            }
            match &mut self.hotspots {
                Some(known) => known.launches.append(&mut new.launches),
                None => self.hotspots = Some(new),
            }
        }
        let pieces =
            |ranks: &JoinedRanks| ranks.ranks.iter().map(|r| r.gpu_work.len()).sum::<usize>();
        if other.ranks.as_ref().map(pieces) > self.ranks.as_ref().map(pieces) {
            self.ranks = other.ranks;
        }
        if let Some(mut new) = other.trace {
            for launch in new.work.iter_mut().filter_map(|work| work.launch.as_mut()) {
                *launch = launch.saturating_add(first_launch);
            }
            let known = self.trace.as_ref().map_or(0, |t| t.work.len());
            if self.trace.is_none() || new.work.len() > known {
                self.trace = Some(new);
            }
        }
    }

    /// Leaves of each document what its file has. Call this after the analysis and before anything
    /// is written or shown.
    pub fn cut_to_documents(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.cut_to_document();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotspots::LaunchSpots;

    fn spots() -> Sidecars {
        let launches = vec![LaunchSpots::default()];
        Sidecars {
            hotspots: Some(HotSpots { launches, ..HotSpots::default() }),
            ..Sidecars::default()
        }
    }

    #[test]
    fn a_second_artifacts_hot_spots_follow_its_launch_numbers() {
        let mut sidecars = Sidecars::default();
        sidecars.add(spots(), 0);
        sidecars.add(spots(), 7);
        let numbers: Vec<_> =
            sidecars.hotspots.iter().flat_map(|h| &h.launches).map(|l| l.launch).collect();
        assert_eq!(numbers, [0, 7]);
    }
}
