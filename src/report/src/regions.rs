//! The `regions` folder of a run: one consolidated report, and one folder per region.
//!
//! ```text
//! regions/
//!   report.json report.md            the selection, every region, totals, fingerprint
//!   A/ A__A1/ …                      one region each
//!     region.json region.md          the same for it alone
//!     kernels.csv                    one row a launch with its metrics, or one row a kernel
//!     sections.txt                   the tool's own section tables
//! ```

mod document;
mod markdown;
mod name;
mod sections;

use crate::csv;
use document::LaunchIndex;
use rgpu_model::regions::RegionEntry;
use rgpu_model::{Profile, RegionsDocument};

/// A file of the `regions` folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionFile {
    /// The path in the run folder.
    pub path: String,
    /// The content; ends with a newline.
    pub text: String,
}

/// All files of the folder, each made when it is asked for; none if the program has no regions and
/// none was requested.
pub fn files(profile: &Profile) -> impl Iterator<Item = RegionFile> {
    document::document(profile).into_iter().flat_map(move |document| {
        let whole = [
            file("report.json", json(&document)),
            file("report.md", markdown::consolidated(&document)),
        ];
        let index = LaunchIndex::new(profile);
        let header = RegionsDocument { regions: Vec::new(), ..document.clone() };
        whole.into_iter().chain(
            (0..document.regions.len())
                .flat_map(move |at| of_region(&document, &header, &document.regions[at], &index)),
        )
    })
}

/// The files of one region; none if it has no folder. `header` is the document without regions.
fn of_region(
    document: &RegionsDocument,
    header: &RegionsDocument,
    entry: &RegionEntry,
    index: &LaunchIndex<'_>,
) -> Vec<RegionFile> {
    if entry.folder.is_empty() {
        return Vec::new();
    }
    let launches = index.launches_in(&entry.region);
    let alone = RegionsDocument { regions: vec![entry.clone()], ..header.clone() };
    let inside = |name: &str, text| file(&format!("{}/{name}", entry.folder), text);
    vec![
        inside("region.json", json(&alone)),
        inside("region.md", markdown::region(document, entry)),
        inside("kernels.csv", csv::of_region(&entry.region, &launches)),
        inside("sections.txt", sections::text(entry, &launches)),
    ]
}

fn file(name: &str, text: String) -> RegionFile {
    RegionFile { path: format!("regions/{name}"), text }
}

fn json(document: &RegionsDocument) -> String {
    // Serialising plain data with string keys cannot fail.
    serde_json::to_string_pretty(document).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests;
