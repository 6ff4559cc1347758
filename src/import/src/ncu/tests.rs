//! The importer against reports of an H200.

use std::path::Path;

use rgpu_format::ncu_rep::NcuReadLimits;

use super::{ImportedArtifact, RequestedCounters, import};
use rgpu_analysis::classify;
use rgpu_model::launch::RawRow;
use rgpu_model::{Launch, Value};

fn imported(case: &str, requested: &[&str]) -> ImportedArtifact {
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/ncu/2025.3.1");
    let bytes = std::fs::read(fixtures.join(case).join("report.ncu-repz")).unwrap();
    let requested: Vec<_> = requested.iter().map(|name| (*name).to_owned()).collect();
    import(
        &bytes,
        "raw/report.ncu-repz",
        &RequestedCounters { metrics: &requested },
        &NcuReadLimits::default(),
    )
    .unwrap()
}

fn launch(case: &str) -> Launch {
    imported(case, &[]).launches.remove(0)
}

#[test]
fn launches_that_several_threads_read_are_as_one_alone_and_in_order() {
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/ncu/2025.3.1");
    let packed = std::fs::read(fixtures.join("full-tiled-matmul/report.ncu-repz")).unwrap();
    let one = zstd::decode_all(&packed[..]).unwrap();
    // The same blocks three times more, after the file's header.
    let header = u32::from_le_bytes(one[4..8].try_into().unwrap()) as usize;
    let mut four = one.clone();
    (0..3).for_each(|_| four.extend_from_slice(&one[8 + header..]));
    let read = |bytes: &[u8]| {
        import(bytes, "raw", &RequestedCounters::default(), &NcuReadLimits::default()).unwrap()
    };
    let (one, four) = (read(&one), read(&four));
    assert_eq!(four.launches.len(), 4);
    for (launch, id) in four.launches.iter().zip(0..) {
        assert_eq!(*launch, Launch { id, ..one.launches[0].clone() });
    }
    let spots = |imported: &ImportedArtifact| imported.sidecars.hotspots.clone().unwrap().launches;
    let (one_spots, four_spots) = (spots(&one), spots(&four));
    assert_eq!(four_spots.iter().map(|spots| spots.launch).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(four_spots.iter().all(|spots| spots.instructions == one_spots[0].instructions));
    assert_eq!(one.gaps, four.gaps);
}

#[test]
fn a_full_report_gives_launch_stalls_rules_and_its_origin() {
    let all = imported("full-vecadd", &[]);
    assert!(all.refusals.is_empty(), "{:?}", all.refusals);
    assert_eq!(all.device.as_deref(), Some("NVIDIA H200"));
    assert_eq!(all.clock_control.as_deref(), Some("none"));
    assert!(all.tool_version.unwrap().starts_with("2025.3.1"));
    let launch = &all.launches[0];
    assert_eq!(
        (launch.kernel.as_str(), launch.grid, launch.block),
        ("vecadd", [65536, 1, 1], [256, 1, 1])
    );
    assert_eq!(
        (launch.duration_ns, launch.registers, launch.shared_bytes),
        (Some(58944.0), Some(16), Some(0))
    );
    let duration = &launch.metrics["gpu__time_duration.sum"];
    assert_eq!((duration.unit.as_str(), duration.from.as_str()), ("ns", "raw/report.ncu-repz"));
    let stall = &launch.stalls[0];
    assert_eq!((stall.reason.as_str(), stall.samples), ("long_scoreboard", Some(6132)));
    assert!((stall.percent.unwrap() - 83.3).abs() < 0.1);
    let rule = launch.rules.iter().find(|rule| rule.rule == "SOLBottleneck").unwrap();
    assert_eq!(
        (rule.kind.as_str(), rule.title.as_str()),
        ("optimization", "High Memory Throughput")
    );
    assert!(rule.text.contains("Look at the Memory Workload Analysis section"), "{}", rule.text);
}

#[test]
fn a_metric_without_a_value_is_absent() {
    let all = imported("full-vecadd", &[]);
    let name = "sass__inst_executed_register_spilling_mem_local";
    assert!(!all.launches[0].metrics.contains_key(name));
    // It never has a value.
    assert_eq!(all.gaps, []);
    // ncu's own steps are metrics like others, as on its raw page.
    assert_eq!(all.launches[0].number("derived_tempMetric1"), Some(10_485_760.0));
}

#[test]
fn metrics_of_the_sampler_are_series_over_the_launch() {
    let launch = launch("full-vecadd");
    let find = |name: &str| launch.series.iter().find(|series| series.metric == name).unwrap();
    // It has no value for the launch as a whole.
    let name = "FBSP.TriageCompute.dramc__read_throughput.avg.pct_of_peak_sustained_elapsed";
    assert!(!launch.metrics.contains_key(name));
    let read = find(name);
    assert_eq!(read.unit, "%");
    assert!(read.values.len() > 10 && read.values.len() <= 128, "{read:?}");
    assert!(read.values.iter().all(|value| (0.0..=100.0).contains(value)), "{read:?}");
    let span_ns = read.start_ns as f64 + read.interval_ns * (read.values.len() - 1) as f64;
    assert!(span_ns > 0.5 * launch.duration_ns.unwrap(), "{read:?}");
    // The sampler's runs are not faster than the launch that is reported.
    assert!(span_ns < 3.0 * launch.duration_ns.unwrap(), "{read:?}");
    let blocks = find("FE_B.TriageCompute.gr__ctas_launched_realtime.sum");
    assert!(blocks.values.iter().any(|value| *value > 0.0), "{blocks:?}");
}

/// ncu's details page: section, label, unit and value of every metric, in page order.
fn details_page(case: &str) -> Vec<[String; 4]> {
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/ncu/2025.3.1");
    let text = std::fs::read_to_string(fixtures.join(case).join("details.csv")).unwrap();
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim_start_matches('"').trim_end_matches([',', '"']);
        line.split("\",\"").map(str::to_owned).collect()
    };
    let rows = text.lines().filter(|line| line.starts_with("\"0\",")).map(cells);
    let metrics = rows.filter(|row| row.len() == 15);
    metrics.map(|row| [11, 12, 13, 14].map(|column| row[column].clone())).collect()
}

/// Whether `cell` equals `value` to the printed digits, in some power of a thousand of its unit.
fn prints(cell: &str, value: &Value) -> bool {
    let Some(number) = value.as_f64() else { return matches!(value, Value::Text(t) if t == cell) };
    let plain = cell.replace(',', "");
    let decimals = plain.split_once('.').map_or(0, |(_, digits)| digits.len() as i32);
    let Ok(printed) = plain.parse::<f64>() else { return false };
    (-1..5).any(|power| {
        let scaled = number / 1000_f64.powi(power);
        (printed - scaled).abs() <= 0.5001 * 10_f64.powi(-decimals)
            && (printed != 0.0 || scaled == 0.0 || power == 0)
    })
}

#[test]
fn raw_sections_hold_what_ncus_details_page_prints_in_its_order() {
    for case in [
        "full-vecadd",
        "full-tiled-matmul",
        "full-transpose-conflicts",
        "full-uncoalesced",
        "full-spill",
        "full-divergent",
    ] {
        let launch = launch(case);
        let sections = &launch.raw_sections;
        let ours: Vec<_> =
            sections.iter().flat_map(|s| s.rows.iter().map(move |row| (&s.name, row))).collect();
        let page = details_page(case);
        let labels = |rows: &[(&String, &RawRow)]| -> Vec<_> {
            rows.iter().map(|(section, row)| format!("{section} / {}", row.label)).collect()
        };
        let printed: Vec<_> =
            page.iter().map(|[section, label, ..]| format!("{section} / {label}")).collect();
        assert_eq!(labels(&ours), printed, "{case}");
        for ((_, row), [_, label, unit, cell]) in ours.iter().zip(&page) {
            assert!(prints(cell, &row.value), "{case} {label}: {cell} {unit} against {row:?}");
            assert!(unit.ends_with(row.unit.as_str()) || unit.len() < 8, "{label}: {unit}");
        }
        let bars = sections.iter().find(|s| s.id == "ComputeWorkloadAnalysis").unwrap();
        assert_eq!(bars.tables[0].label, "Pipe Utilization (% of elapsed cycles)");
        assert!(bars.tables[0].rows.iter().any(|row| row.label == "ALU"));
        let light = sections.iter().find(|s| s.id == "SpeedOfLight").unwrap();
        let memory = light.tables.iter().find(|t| t.label == "Memory Throughput Breakdown");
        assert!(memory.unwrap().rows.len() > 20);
        let said: Vec<_> =
            light.rules.iter().map(|rule| launch.rules[*rule as usize].rule.as_str()).collect();
        assert!(said.contains(&"SOLBottleneck"), "{case}: {said:?}");
    }
}

#[test]
fn ceilings_come_from_the_report_itself() {
    let launch = launch("full-tiled-matmul");
    let roof = |label: &str| launch.roofline.iter().find(|roof| roof.label == label).unwrap();
    let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 1e-3;
    assert!(near(roof("DRAM").peak, 4.811e12));
    assert!(near(roof("L2").peak, 10.251e12));
    assert!(near(roof("FP32").peak, 2.0 * roof("FP64").peak));
    assert!(near(roof("FP32").achieved.unwrap(), 8.587e12));
    // wgmma reaches 1.5 times what mma.sync does.
    assert!(near(
        roof("tensor hgmma bf16 to fp32").peak,
        1.5 * roof("tensor hmma bf16 to fp32").peak
    ));
    assert!(launch.roofline.iter().all(|roof| !roof.label.contains("sparse")));
}

#[test]
fn every_teaching_kernel_gets_the_diagnosis_it_was_written_for() {
    for (case, primary, also) in [
        ("full-vecadd", "memory_bound", "stalled"),
        ("full-tiled-matmul", "memory_bound", "stalled"),
        ("full-transpose-conflicts", "bank_conflicts", "memory_bound"),
        ("full-uncoalesced", "uncoalesced", "memory_bound"),
        ("full-spill", "spills", "memory_bound"),
        ("full-divergent", "divergence", "compute_bound"),
    ] {
        let (classification, findings) = classify(&launch(case));
        let classification = classification.unwrap();
        assert_eq!(classification.primary, primary, "{case}");
        assert!(classification.verdicts.iter().any(|verdict| verdict.verdict == also), "{case}");
        assert_eq!((findings[0].id.as_str(), findings[0].priority), (primary, 1));
        assert!(findings.iter().all(|finding| !finding.hint.is_empty()), "{case}");
    }
    let found = classify(&launch("full-vecadd")).1;
    assert!(found[0].text.contains("DRAM at 67 %"), "{}", found[0].text);
    assert_eq!(
        found[0].evidence[1].metric,
        "dram__cycles_active.avg.pct_of_peak_sustained_elapsed"
    );
}

#[test]
fn launches_carry_their_nested_ranges() {
    let regions: Vec<_> =
        imported("regions", &[]).launches.into_iter().map(|launch| launch.region).collect();
    assert_eq!(regions[0], ["A"]);
    assert_eq!(regions[1], ["A", "A1"]);
    assert!(regions[2..].iter().all(|region| region == &["B"]));
}

#[test]
fn regions_hold_the_launches_inside_them_and_ncus_own_times() {
    let all = imported("regions", &[]);
    let regions: Vec<_> = all
        .regions
        .iter()
        .map(|region| (region.display(), region.kind.as_str(), region.launches.clone()))
        .collect();
    let of = |path: &str, kind, launches: &[u32]| (path.to_owned(), kind, launches.to_vec());
    let expected = [
        of("A", "push_pop", &[0, 1]),
        of("rgpu@whole", "start_end", &[0, 1, 2, 3, 4, 5, 6]),
        of("A::A1", "push_pop", &[1]),
        of("B", "push_pop", &[2, 3, 4, 5, 6]),
    ];
    assert_eq!(regions, expected);
    let b = all.regions.iter().find(|region| region.path == ["B"]).unwrap();
    assert_eq!((b.host_ns, b.instances), (None, None));
    assert_eq!((b.kernels[0].kernel.as_str(), b.kernels[0].launches), ("vecadd", 5));
    let sum: f64 = all.launches[2..].iter().filter_map(|launch| launch.duration_ns).sum();
    assert_eq!(b.gpu_ns, Some(sum as u64));
}

#[test]
fn a_replayed_range_is_a_region_with_metrics_and_its_kernels() {
    for (case, paths) in [("range-replay", &["A", "B"][..]), ("app-range", &["A"])] {
        let all = imported(case, &[]);
        let ranges: Vec<_> = all.regions.iter().filter(|r| r.kind == "push_pop").collect();
        assert_eq!(ranges.iter().map(|r| r.display()).collect::<Vec<_>>(), paths, "{case}");
        let a = ranges[0];
        assert_eq!(a.ranges.len(), 1);
        assert_eq!(
            (a.ranges[0].launch, &a.ranges[0].kernels[..]),
            (0, &A_KERNELS.map(str::to_owned)[..])
        );
        assert_eq!(a.metrics, all.launches[0].metrics);
        assert!(a.kernels.is_empty(), "a range has no times of its kernels");
        let whole = all.launches[0].duration_ns.map(|ns| ns as u64);
        assert!(whole.is_some_and(|ns| ns > 0) && a.gpu_ns == whole, "{case}: {:?}", a.gpu_ns);
    }
}

const A_KERNELS: [&str; 2] = ["vecadd", "tiled_matmul"];

#[test]
fn a_range_names_its_kernels() {
    let launches = imported("range-replay", &[]).launches;
    assert_eq!(launches[0].kernel, "range of vecadd, tiled_matmul");
    assert_eq!(launches[0].region, ["A"]);
    assert!(launches[0].duration_ns.unwrap() > 0.0);
    assert_eq!(launches.len(), 2);
}

#[test]
fn a_metric_that_ncu_did_not_know_is_refused_by_name() {
    let requested = ["gpu__time_duration.sum", "nosuch__metric.sum"];
    let refusals = imported("unknown-metric-among", &requested).refusals;
    assert_eq!((refusals[0].code, refusals.len()), ("unknown_metric", 1));
    assert_eq!(refusals[0].metrics, ["nosuch__metric.sum"]);
}

#[test]
fn a_report_cut_short_is_imported_as_far_as_it_goes() {
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/ncu/2025.3.1");
    let packed = std::fs::read(fixtures.join("regions/report.ncu-repz")).unwrap();
    let whole = zstd::decode_all(packed.as_slice()).unwrap();
    let cut = &whole[..whole.len() / 2];
    let all =
        import(cut, "raw/report.ncu-rep", &RequestedCounters::default(), &NcuReadLimits::default())
            .unwrap();
    assert!((1..7).contains(&all.launches.len()));
    let damage = all.gaps.iter().find(|gap| gap.code == "damaged_report").unwrap();
    assert!(damage.text.contains(&format!("file ends at offset {}", cut.len())), "{}", damage.text);
}

#[test]
fn a_report_cut_before_its_first_result_ends_is_an_error_that_says_where() {
    let fixtures = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/ncu/2025.3.1");
    let packed = std::fs::read(fixtures.join("regions/report.ncu-repz")).unwrap();
    let whole = zstd::decode_all(packed.as_slice()).unwrap();
    let error = import(
        &whole[..20_000],
        "report",
        &RequestedCounters::default(),
        &NcuReadLimits::default(),
    )
    .unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(error.to_string(), "the report is damaged before the end of its first result");
    let expected = "file ends at offset 20000 inside block header that begins at 5967 and needs \
                    27010 bytes";
    assert_eq!(source, expected);
}

#[test]
fn counters_that_a_crash_left_without_numbers_are_refused() {
    let all = imported("app-crashes", &[]);
    assert_eq!(all.refusals.len(), 1);
    assert_eq!(all.refusals[0].code, "nan_counters");
    assert_eq!(all.launches[0].kernel, "wild(float *)");
    assert_eq!(all.launches[0].duration_ns, None);
    let gap = all.gaps.iter().find(|gap| gap.code == "nan_metric").unwrap();
    assert!(gap.text.contains("`gpu__time_duration.sum`"));
}
