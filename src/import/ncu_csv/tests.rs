use std::path::{Path, PathBuf};

use rgpu_format::ncu_csv::NcuCsv;
use rgpu_format::ncu_rep::Limits;

use super::*;
use crate::import::ncu::{self, RequestedCounters};

fn fixture(case: &str, file: &str) -> Vec<u8> {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ncu/2025.3.1");
    std::fs::read(root.join(case).join(file)).unwrap()
}

fn page(case: &str, file: &str) -> Imported {
    import(&NcuCsv::read(&fixture(case, file)).unwrap(), "page.csv")
}

fn report(case: &str) -> Vec<Launch> {
    let bytes = fixture(case, "report.ncu-repz");
    let limits = Limits { max_size: 1 << 30 };
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
    let primary = |launch: &Launch| crate::analysis::classify(launch).0.map(|c| c.primary);
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
