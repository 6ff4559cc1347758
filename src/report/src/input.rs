//! The input of a report: the profile and its sidecar documents.

use rgpu_model::{Comparison, HotSpots, Profile, Sidecars, Trace};

/// Everything that a report may show of one run.
#[derive(Clone, Copy, Debug)]
pub struct ReportInput<'a> {
    /// The profile to report.
    pub profile: &'a Profile,
    /// The hot spots of its launches, by instruction and line.
    pub hotspots: Option<&'a HotSpots>,
    /// The single events of the run.
    pub trace: Option<&'a Trace>,
    /// The comparison with another run.
    pub comparison: Option<&'a Comparison>,
}

impl<'a> ReportInput<'a> {
    /// A profile with its sidecar documents.
    pub fn new(profile: &'a Profile, sidecars: &'a Sidecars) -> Self {
        Self {
            hotspots: sidecars.hotspots.as_ref(),
            trace: sidecars.trace.as_ref(),
            ..profile.into()
        }
    }
}

impl<'a> From<&'a Profile> for ReportInput<'a> {
    fn from(profile: &'a Profile) -> Self {
        Self { profile, hotspots: None, trace: None, comparison: None }
    }
}
