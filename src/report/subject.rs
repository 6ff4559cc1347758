//! What a report is of: the profile, and the documents beside it as far as there are any.

use crate::model::{Comparison, HotSpots, Profile, Sidecars, Trace};

/// What a report is of.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// Where its launches spent their time, by instruction and line.
    pub hotspots: Option<&'a HotSpots>,
    /// What happened when.
    pub trace: Option<&'a Trace>,
    /// How it compares with another run.
    pub comparison: Option<&'a Comparison>,
}

impl<'a> Subject<'a> {
    /// A profile with the documents beside it.
    pub fn new(profile: &'a Profile, sidecars: &'a Sidecars) -> Self {
        Self {
            hotspots: sidecars.hotspots.as_ref(),
            trace: sidecars.trace.as_ref(),
            ..profile.into()
        }
    }
}

impl<'a> From<&'a Profile> for Subject<'a> {
    fn from(profile: &'a Profile) -> Self {
        Self { profile, hotspots: None, trace: None, comparison: None }
    }
}
