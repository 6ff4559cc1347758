//! Compares the reader of ncu reports with ncu's own output.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

use crate::damage::flip_bits;
use crate::fixture;
use rgpu_format::ncu_rep::{Metric, MetricValue, NcuReadLimits, NcuReport, NcuResult};

fn cases() -> Vec<PathBuf> {
    let reports = fixture::files("ncu", "report.ncu-repz");
    let cases: Vec<_> =
        reports.iter().filter_map(|report| Some(report.parent()?.to_path_buf())).collect();
    assert!(cases.len() > 10, "the fixtures are not where this test looks");
    cases
}

/// Parses ncu's CSV: quoted cells, doubled quotes, no line breaks inside.
fn csv(text: &str) -> Vec<Vec<String>> {
    let row = |line: &str| {
        let mut cells = vec![String::new()];
        let mut quoted = false;
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => {
                    cells.last_mut().unwrap().push(chars.next().unwrap())
                }
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                c => cells.last_mut().unwrap().push(c),
            }
        }
        cells
    };
    text.lines().filter(|line| line.starts_with('"')).map(row).collect()
}

/// Whether `cell` equals `value` within the digits that ncu printed.
fn prints(cell: &str, value: &MetricValue<'_>) -> bool {
    match value {
        MetricValue::Missing => cell == "no data" || cell.is_empty(),
        MetricValue::Text(text) => cell == text,
        value => {
            let value = value.number().unwrap();
            if value.is_nan() {
                return cell == "nan";
            }
            let plain = cell.replace(',', "");
            let decimals = plain.split_once('.').map_or(0, |(_, digits)| digits.len() as i32);
            let Ok(printed) = plain.parse::<f64>() else { return false };
            (printed - value).abs() <= 0.5001 * 10_f64.powi(-decimals) + value.abs() * 1e-12
        }
    }
}

/// The metrics by name. If several have the same name, ncu prints the first.
fn by_name<'a>(result: &NcuResult<'a>) -> HashMap<String, Metric<'a>> {
    let mut metrics = HashMap::new();
    for metric in result.metrics() {
        metrics.entry(metric.name().to_owned()).or_insert(metric);
    }
    metrics
}

#[test]
fn every_metric_and_unit_equals_what_ncu_prints() {
    let mut compared = 0;
    let mut wrong = Vec::new();
    for case in cases() {
        let Ok(text) = fs::read_to_string(case.join("raw.csv")) else { continue };
        let rows = csv(&text);
        let file = fs::read(case.join("report.ncu-repz")).unwrap();
        let (report, problems) = NcuReport::read(&file, &NcuReadLimits::default()).unwrap();
        assert!(problems.is_empty(), "{}: {problems:?}", case.display());
        let results: Vec<_> = report.results().collect();
        assert_eq!(results.len(), rows.len() - 2, "{}", case.display());
        for (result, row) in results.iter().zip(&rows[2..]) {
            let metrics = by_name(result);
            for ((name, unit), cell) in rows[0].iter().zip(&rows[1]).zip(row) {
                let Some(metric) = metrics.get(name) else { continue };
                compared += 1;
                if !prints(cell, metric.value()) {
                    wrong.push(format!("{name}: {cell:?} against {:?}", metric.value()));
                }
                if metric.unit().unwrap_or_default() != unit.as_str() {
                    wrong.push(format!("{name}: unit {unit:?} against {:?}", metric.unit()));
                }
            }
            // Names of parts, for the front end; ncu prints the parts themselves.
            let printed: HashSet<_> = rows[0].iter().collect();
            let silent = metrics.keys().filter(|name| !printed.contains(name));
            wrong.extend(silent.filter(|name| !name.contains(':')).cloned());
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn every_recorded_report_is_read_without_a_problem_or_an_unknown_field() {
    for case in cases() {
        let file = fs::read(case.join("report.ncu-repz")).unwrap();
        let (report, problems) = NcuReport::read(&file, &NcuReadLimits::default()).unwrap();
        assert!(problems.is_empty(), "{}: {problems:?}", case.display());
        assert_eq!(report.unknown_fields().total(), 0, "{}", case.display());
        assert!(report.results().count() > 0, "{}", case.display());
        assert_eq!(report.session().devices[0].name, "NVIDIA H200");
        assert!(report.session().command_line.contains("ncu "));
        for result in report.results() {
            // The sample counts add up, so no instance was skipped.
            let Some(total) = result.metric("smsp__pcsamp_sample_count") else { continue };
            let sum: u64 = total.instances().filter_map(|i| i.value.integer()).sum();
            assert_eq!(Some(sum), total.value().integer(), "{}", case.display());
        }
    }
}

#[test]
fn the_charts_for_one_gpu_are_those_of_all_that_apply_to_it() {
    let (mut all, mut kept) = (0, 0);
    for case in cases() {
        let file = fs::read(case.join("report.ncu-repz")).unwrap();
        let (report, _) = NcuReport::read(&file, &NcuReadLimits::default()).unwrap();
        for section in report.results().flat_map(|result| result.sections().collect::<Vec<_>>()) {
            for compute_capability in [75, 90, 100] {
                let mut charts = section.rooflines();
                all += charts.len();
                charts.retain(|chart| chart.filter.passes(compute_capability));
                kept += charts.len();
                assert_eq!(section.rooflines_for(compute_capability), charts, "{}", case.display());
            }
        }
    }
    assert!(0 < kept && kept < all, "{kept} of {all}");
}

#[test]
fn a_real_report_cut_anywhere_keeps_the_results_before_the_cut() {
    let case = cases().into_iter().find(|case| case.ends_with("regions")).unwrap();
    let packed = fs::read(case.join("report.ncu-repz")).unwrap();
    let whole = zstd::decode_all(packed.as_slice()).unwrap();
    let mut before = 0;
    for cut in (0..whole.len()).step_by(9973) {
        let Ok((report, _)) = NcuReport::read(&whole[..cut], &NcuReadLimits::default()) else {
            continue;
        };
        let results = report.results().count();
        assert!(results >= before);
        before = results;
    }
    assert_eq!(before, 6, "the last of seven results ends with the file");
}

#[test]
fn a_real_report_with_any_byte_damaged_is_read_without_panic() {
    let case = cases().into_iter().find(|case| case.ends_with("unknown-metric")).unwrap();
    let packed = fs::read(case.join("report.ncu-repz")).unwrap();
    let whole = zstd::decode_all(packed.as_slice()).unwrap();
    flip_bits(&whole, 1000, |damaged| {
        let Ok((report, _)) = NcuReport::read(damaged, &NcuReadLimits::default()) else { return };
        for result in report.results() {
            result.metrics().for_each(|metric| drop(metric.unit()));
        }
    });
}
