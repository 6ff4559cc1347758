//! Writes the comparison of two kernels into its run folder.

use rgpu_analysis::compare::{CompareOptions, compare};
use rgpu_model::error::Result;
use rgpu_model::{Comparison, Profile};
use rgpu_report as report;
use rgpu_run::run::{ComparisonOutcome, write_samples};
use rgpu_run::store::RunFolder;

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
