//! `kernels.md`: kernels by GPU time, longest first.

use super::{Align, TextTable, plain, section};
use crate::model::Profile;
use crate::report::quantity::duration;

pub(super) fn report(profile: &Profile) -> String {
    let mut out = format!("# Kernels of {}\n\n", plain(&profile.kernel.name));
    section(&mut out, table(profile, usize::MAX), NO_KERNELS_NOTE);
    out
}

/// The text for a profile without kernels.
pub(super) const NO_KERNELS_NOTE: &str = "This rung records no kernels.";

/// A table of the first `max` kernels.
pub(super) fn table(profile: &Profile, max: usize) -> TextTable {
    let mut table = TextTable::new(&[
        ("kernel", Align::Left),
        ("device", Align::Left),
        ("total", Align::Right),
        ("calls", Align::Right),
        ("mean", Align::Right),
    ]);
    let device = plain(profile.device.as_deref().unwrap_or("unknown"));
    for k in profile.kernels.iter().take(max) {
        table.add_row([
            plain(&k.kernel),
            device.clone(),
            duration(k.total_ns as f64),
            k.launches.to_string(),
            duration(k.total_ns as f64 / k.launches.max(1) as f64),
        ]);
    }
    table
}
