use std::path::{Path, PathBuf};

use rgpu_format::ncu_csv::{NcuCsv, SourcePage};
use rgpu_format::ncu_rep::NcuReadLimits;

use super::*;
use crate::ncu::{self, RequestedCounters};

fn fixture(case: &str, file: &str) -> Vec<u8> {
    let root: PathBuf = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/ncu/2025.3.1");
    std::fs::read(root.join(case).join(file)).unwrap()
}

fn page(case: &str, file: &str) -> ImportedArtifact {
    import(&NcuCsv::read(&fixture(case, file)).unwrap(), "page.csv")
}

fn report(case: &str) -> Vec<Launch> {
    let bytes = fixture(case, "report.ncu-repz");
    let limits = NcuReadLimits { max_size: 1 << 30 };
    ncu::import(&bytes, "report", &RequestedCounters::default(), &limits).unwrap().launches
}

/// Whether a printed number equals the exact one to the digits that ncu prints: three decimals of
/// the printed unit for some metrics, two for others.
fn same(printed: f64, exact: f64, factor: f64) -> bool {
    (printed - exact).abs() <= 0.00501 * factor + exact.abs() * 1e-6
}

#[test]
fn the_raw_page_says_what_the_report_says() {
    for case in ["full-vecadd", "full-spill", "full-tiled-matmul", "regions"] {
        let (launches, exact) = (page(case, "raw.csv").launches, report(case));
        assert_eq!(launches.len(), exact.len(), "{case}");
        let mut compared = 0;
        for (launch, exact) in launches.iter().zip(&exact) {
            assert_eq!(
                (&launch.kernel, launch.grid, launch.block, launch.stream, &launch.region),
                (&exact.kernel, exact.grid, exact.block, exact.stream, &exact.region)
            );
            assert_eq!(
                (launch.registers, launch.shared_bytes),
                (exact.registers, exact.shared_bytes)
            );
            for (name, metric) in &launch.metrics {
                let (Some(printed), Some(exact)) = (metric.value.as_f64(), exact.number(name))
                else {
                    continue;
                };
                assert!(same(printed, exact, 1.0), "{case} {name}: {printed} and {exact}");
                compared += 1;
            }
        }
        assert!(compared > 500 * launches.len(), "{case}: {compared}");
    }
}

#[test]
fn labels_of_the_details_page_stand_for_the_metrics_they_show() {
    for case in ["full-vecadd", "full-spill", "full-tiled-matmul", "full-divergent"] {
        let (launches, exact) = (page(case, "details.csv").launches, report(case));
        let (launch, exact) = (&launches[0], &exact[0]);
        let mut compared = 0;
        for (section, label, name) in LABELS {
            // A page shows a section only where it was collected.
            let Some(printed) = launch.number(name) else { continue };
            let exact = exact.number(name).unwrap_or_else(|| panic!("{case}: no {name}"));
            let near = (printed / exact - 1.0).abs() < 0.01 || (printed - exact).abs() < 0.0051;
            assert!(near, "{case}: {section}/{label} is {printed}, {name} is {exact}");
            compared += 1;
        }
        assert!(compared >= 28, "{case}: {compared} labels");
        assert!(!launch.rules.is_empty());
    }
}

#[test]
fn a_page_leads_to_the_verdict_that_its_report_leads_to() {
    let primary = |launch: &Launch| rgpu_analysis::classify(launch).0.map(|c| c.primary);
    for case in ["full-vecadd", "full-spill", "full-tiled-matmul"] {
        let exact = report(case);
        assert_eq!(primary(&page(case, "raw.csv").launches[0]), primary(&exact[0]), "{case}");
    }
    let vecadd = page("full-vecadd", "details.csv").launches;
    assert_eq!(primary(&vecadd[0]).as_deref(), Some("memory_bound"));
}

#[test]
fn a_range_has_its_open_ranges_and_no_grid() {
    let launches = page("range-replay", "raw.csv").launches;
    assert_eq!(launches.len(), 2);
    assert_eq!(launches[0].region, ["A"]);
    assert_eq!((launches[0].kernel.as_str(), launches[0].grid), ("range", [0; 3]));
}

#[test]
fn scaled_units_and_odd_values_are_read() {
    let text = "==PROF== talk\n\"ID\",\"Process ID\",\"Process Name\",\"Host Name\",\"Kernel Name\",\"gpu__time_duration.sum\",\"dram__bytes.sum\",\"a__b\",\"c__d\"\n\
        \"\",\"\",\"\",\"\",\"\",\"msecond\",\"Gbyte\",\"\",\"%\"\n\
        \"0\",\"1\",\"p\",\"h\",\"k<a, b>(int)\",\"1,234.5\",\"0.25\",\"no data\",\"nan\"\n\
        \"1\",\"1\",\"p\",\"h\",\"k\",\"2\",\"1\"\n\
        \"2\",\"1\",\"p\",\"h\",\"k\",\"3\",\"1\",\"x\",\"4";
    let imported = import(&NcuCsv::read(text.as_bytes()).unwrap(), "page.csv");
    let launch = &imported.launches[0];
    assert_eq!(imported.launches.len(), 1);
    assert_eq!(launch.kernel, "k<a, b>(int)");
    assert_eq!(launch.duration_ns, Some(1_234_500_000.0));
    assert_eq!(launch.metrics["dram__bytes.sum"].unit, "byte");
    assert_eq!(launch.number("dram__bytes.sum"), Some(0.25e9));
    assert!(!launch.metrics.contains_key("a__b"));
    let codes: Vec<_> = imported.gaps.iter().map(|gap| gap.code.as_str()).collect();
    assert_eq!(codes, ["printed_values", "nan_metric", "damaged_report", "damaged_report"]);
}

#[test]
fn the_source_page_has_the_hot_spots_of_the_report() {
    let mut compared = 0;
    for case in ["full-vecadd", "full-tiled-matmul"] {
        let page = SourcePage::read(&fixture(case, "source.csv")).unwrap();
        let printed = source::import(&page, "source.csv");
        assert!(printed.gaps.is_empty() && printed.refusals.is_empty(), "{:?}", printed.gaps);
        let bytes = fixture(case, "report.ncu-repz");
        let limits = NcuReadLimits { max_size: 1 << 30 };
        let exact = ncu::import(&bytes, "report", &RequestedCounters::default(), &limits).unwrap();
        let (launch, known) = (&printed.launches[0], &exact.launches[0]);
        assert_eq!(launch.kernel, known.kernel, "{case}");
        let samples = |launch: &Launch| -> BTreeMap<String, Option<u64>> {
            let seen = launch.stalls.iter().filter(|stall| stall.samples != Some(0));
            seen.map(|stall| (stall.reason.clone(), stall.samples)).collect()
        };
        assert_eq!(samples(launch), samples(known), "{case}");
        for (name, metric) in &launch.metrics {
            let exact = &known.metrics[name];
            assert_eq!((&metric.value, &metric.unit), (&exact.value, &exact.unit), "{case} {name}");
        }
        let spots =
            |imported: ImportedArtifact| imported.sidecars.hotspots.unwrap().launches.remove(0);
        let (printed, exact) = (spots(printed), spots(exact));
        assert_eq!(printed.samples, exact.samples, "{case}");
        let exact: BTreeMap<u64, _> = exact.instructions.iter().map(|i| (i.offset, i)).collect();
        for spot in &printed.instructions {
            let known = exact[&spot.offset];
            let (ours, theirs) = (&spot.counts, &known.counts);
            assert_eq!(spot.address, known.address);
            // The report has no count for what never ran.
            for (ours, theirs) in [
                (ours.samples, theirs.samples),
                (ours.samples_not_issued, theirs.samples_not_issued),
                (ours.executed, theirs.executed),
                (ours.thread_executed, theirs.thread_executed),
            ] {
                assert_eq!(ours, Some(theirs.unwrap_or(0)), "{case} {:#x}", spot.offset);
            }
            assert_eq!(
                (&ours.stalls, &ours.stalls_not_issued),
                (&theirs.stalls, &theirs.stalls_not_issued)
            );
            for (name, value) in ours.metrics.iter() {
                assert_eq!(value, theirs.metrics.get(name).unwrap_or(&0.0), "{case} {name}");
                compared += 1;
            }
            let (text, name) = (spot.sass.as_deref().unwrap(), known.sass.as_deref().unwrap());
            assert!(text.starts_with(name), "{text} and {name}");
        }
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn addresses_of_branches_become_offsets() {
    let page = SourcePage::read(&fixture("full-tiled-matmul", "source.csv")).unwrap();
    let imported = source::import(&page, "source.csv");
    let spots = &imported.sidecars.hotspots.as_ref().unwrap().launches[0].instructions;
    let at = |offset: u64| spots.iter().find(|spot| spot.offset == offset).unwrap();
    assert_eq!(at(0xb0).sass.as_deref(), Some("@!P0 BRA 0x870"));
    assert_eq!(at(0xe0).sass.as_deref(), Some("UMOV UR4, 0x400"));
}
