//! The folder of regions of real recordings.

use std::path::PathBuf;

use super::*;
use rgpu_import::{ImportedArtifact, ncu, nsys};
use rgpu_model::Sidecars;
use rgpu_model::selection::{RegionChoice, Selection};

fn fixture(path: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures").join(path)
}

fn profile(imported: ImportedArtifact, rung: &str) -> Profile {
    let mut profile = Profile { rung: rung.into(), ..Profile::default() };
    profile.run.id = "20261121-101502-regions-ncu-3f2a".to_owned();
    profile.run.mode = rung.split('.').next().unwrap_or_default().to_owned();
    profile.kernel.name = "regions".to_owned();
    let mut sidecars = Sidecars::default();
    imported.add_to(&mut profile, &mut sidecars);
    rgpu_analysis::analyze_all(&mut profile, &sidecars, &rgpu_analysis::Thresholds::default());
    profile
}

fn of_ncu(case: &str) -> Profile {
    let bytes = std::fs::read(fixture(&format!("ncu/2025.3.1/{case}/report.ncu-repz"))).unwrap();
    let limits = rgpu_format::ncu_rep::NcuReadLimits::default();
    let report =
        ncu::import(&bytes, "raw/report.ncu-repz", &ncu::RequestedCounters::default(), &limits);
    profile(report.unwrap(), "ncu.asked")
}

fn of_nsys(case: &str) -> Profile {
    let path = fixture(&format!("nsys/2025.3.1/{case}/report.sqlite"));
    profile(nsys::import_sqlite(&path, "raw/report.sqlite").unwrap(), "nsys.full")
}

fn files(profile: &Profile) -> Vec<RegionFile> {
    super::files(profile).collect()
}

fn text<'a>(files: &'a [RegionFile], path: &str) -> &'a str {
    &files.iter().find(|file| file.path == path).unwrap().text
}

#[test]
fn every_region_has_its_folder_beside_one_consolidated_report() {
    let files = files(&of_nsys("regions"));
    let paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
    let mut expected = vec!["regions/report.json".to_owned(), "regions/report.md".to_owned()];
    for folder in ["A", "A__A1", "B", "rgpu@whole"] {
        for name in ["region.json", "region.md", "kernels.csv", "sections.txt"] {
            expected.push(format!("regions/{folder}/{name}"));
        }
    }
    assert_eq!(paths, expected);
    insta::assert_snapshot!("nsys_report", text(&files, "regions/report.md"));
    insta::assert_snapshot!("nsys_region", text(&files, "regions/B/region.md"));
}

#[test]
fn launches_of_a_region_come_with_their_metrics() {
    let files = files(&of_ncu("regions"));
    insta::assert_snapshot!("ncu_region", text(&files, "regions/A/region.md"));
    let mut rows = text(&files, "regions/A/kernels.csv").lines();
    let head = rows.next().unwrap();
    assert!(head.starts_with("launch,kernel,region,stream,grid,block,start [ns],duration [ns],"));
    assert!(head.contains("gpu__time_duration.sum [ns]"));
    let rows: Vec<_> = rows.collect();
    assert!(rows[0].starts_with("0,vecadd,A,") && rows[0].contains(",16384x1x1,256x1x1,"));
    assert!(rows[1].starts_with("1,tiled_matmul,") && rows.len() == 2, "{}", rows[1]);
    let sections = text(&files, "regions/A__A1/sections.txt");
    assert!(sections.contains("launch 1: tiled_matmul") && !sections.contains("launch 0"));
    assert!(sections.contains("GPU Speed Of Light Throughput (SpeedOfLight)"), "{sections}");
}

#[test]
fn a_replayed_range_tells_its_metrics_and_its_kernels() {
    let files = files(&of_ncu("range-replay"));
    insta::assert_snapshot!("range_region", text(&files, "regions/A/region.md"));
    let document: RegionsDocument =
        serde_json::from_str(text(&files, "regions/A/region.json")).unwrap();
    assert_eq!(document.regions.len(), 1);
    assert_eq!(document.regions[0].region.ranges[0].kernels, ["vecadd", "tiled_matmul"]);
    assert!(document.regions[0].region.metrics.len() > 50);
}

#[test]
fn a_pattern_without_a_region_is_named_with_the_regions_there_are() {
    let mut profile = of_ncu("regions");
    let choice = |asked: &str, matched: &[&str]| RegionChoice {
        asked: asked.to_owned(),
        matched: matched.iter().map(|name| (*name).to_owned()).collect(),
    };
    profile.selection = Some(Selection {
        regions: vec![choice("A*", &["A", "A::A1"]), choice("decode", &[])],
        regions_seen: ["A", "A::A1", "B"].map(str::to_owned).to_vec(),
        ..Selection::default()
    });
    let files = files(&profile);
    assert_eq!(files.len(), 2 + 2 * 4);
    let report = text(&files, "regions/report.md");
    assert!(report.contains("- `A*`: A, A::A1\n"), "{report}");
    let none = "- `decode`: no matching region; the program has A, A::A1, B\n";
    assert!(report.contains(none), "{report}");
}

#[test]
fn ranges_of_the_runner_are_not_the_users_and_cases_are_told_apart() {
    let path = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
    let region = |parts: &[&str]| rgpu_model::Region {
        path: path(parts),
        kind: "push_pop".into(),
        ..Default::default()
    };
    let names = |profile: &Profile| -> Vec<String> {
        document::document(profile)
            .map(|d| d.regions.into_iter().map(|r| r.name).collect())
            .unwrap_or_default()
    };
    let mut profile =
        Profile { regions: vec![region(&["rgpu@timed", "rgpu@n=1"])], ..Profile::default() };
    assert!(files(&profile).is_empty());
    profile.regions.push(region(&["rgpu@warmup", "rgpu@n=1", "A"]));
    profile.regions.push(region(&["rgpu@timed", "rgpu@n=1", "A"]));
    assert_eq!(names(&profile), ["A"]);
    profile.regions.push(region(&["rgpu@timed", "rgpu@n=2", "A"]));
    assert_eq!(names(&profile), ["n=1::A", "n=2::A"]);
}

#[test]
fn ranges_of_libraries_and_the_last_of_thousands_have_no_folder() {
    let mut profile = of_nsys("regions");
    let mut library = profile.regions[0].clone();
    library.path = vec!["TSL@XlaPass:#name=cse#".to_owned()];
    let step = |number: u64| {
        let mut step = profile.regions[0].clone();
        step.path = vec![format!("step_{number}")];
        step.gpu_ns = Some(1_000_000_000 + number);
        step
    };
    let steps: Vec<_> = (0..600).map(step).collect();
    profile.regions.extend(steps);
    profile.regions.push(library.clone());
    let files = files(&profile);
    let folders = files.iter().filter(|file| file.path.ends_with("/region.json")).count();
    assert_eq!(folders, 500);
    let all = text(&files, "regions/report.md");
    assert!(all.contains("step\\_0 ") && !all.contains("XlaPass"), "{all}");
    let has = |folder: &str| files.iter().any(|file| file.path.contains(&format!("/{folder}/")));
    assert!(has("step_599") && !has("step_0"));

    profile.selection = Some(Selection {
        regions: vec![RegionChoice { asked: "TSL*".into(), matched: vec![library.display()] }],
        ..Selection::default()
    });
    assert!(super::files(&profile).any(|file| file.path.contains("XlaPass")));
}
