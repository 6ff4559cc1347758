//! Writes the comparison of two kernels into its run folder.

use crate::analysis::compare::{CompareOptions, compare};
use crate::error::Result;
use crate::model::{Comparison, Profile};
use crate::report;
use crate::run::{ComparisonOutcome, write_samples};
use crate::store::RunFolder;

/// Compares the two sides and writes everything into the folder. Returns the comparison and the
/// profile of each side.
pub(in crate::cli) fn write_comparison(
    folder: &RunFolder,
    names: [&str; 2],
    threshold: f64,
    outcome: ComparisonOutcome,
) -> Result<(Comparison, [Profile; 2])> {
    let ComparisonOutcome { profiles: [(a, beside_a), (b, beside_b)], paired, parts, .. } = outcome;
    let options = CompareOptions { names, threshold, paired: &paired };
    let mut comparison = compare(&a, &b, &options);
    comparison.parts = parts;
    for (name, profile, sidecars) in [("a", &a, &beside_a), ("b", &b, &beside_b)] {
        let side = folder.side(name)?;
        side.write_json("profile.json", profile)?;
        write_samples(&side)?;
        if let Some(hotspots) = &sidecars.hotspots {
            side.write_json("hotspots.json", hotspots)?;
        }
        if let Some(trace) = &sidecars.trace {
            side.write_json("trace.json", trace)?;
        }
    }
    comparison.a.profile = Some("a/profile.json".to_owned());
    comparison.b.profile = Some("b/profile.json".to_owned());
    folder.write_json("compare.json", &comparison)?;
    folder.write(
        "compare.md",
        report::comparison::markdown(&comparison, report::KernelNames::Short).as_bytes(),
    )?;
    Ok((comparison, [a, b]))
}
