//! The pages of a suite and of its history in a browser.

use std::fs;
use std::path::Path;

use rgpu_model::comparison::TimeVerdict;
use rgpu_model::profile::{GraphTiming, Histogram};
use rgpu_model::suite::{
    MeasurementKey, PairResult, RowState, SuiteRow, SuiteRun, SuiteTime, SuiteVerdict,
    TimeJudgement,
};
use rgpu_model::suite_history::{EarlierChange, History, HistoryPoint, Series};
use rgpu_report::suite::{history_page, html};

use crate::browser::Browser;

const PROJECT: &str = "/home/me/attention-kernels";

/// Cases with several axes, of which one failed.
fn suite() -> SuiteRun {
    let row = |m: u32| {
        let case = format!("gemm:decode-projection[m={m},n=4096,k=7168,TYPE=bf16,MODE=eager]");
        let time = SuiteTime {
            key: MeasurementKey {
                case: case.clone(),
                side: "kernel".into(),
                gpu: "NVIDIA H200".into(),
                toolkit: "nvcc 12.9.86".into(),
                driver: "580".into(),
                clocks: "as_found".into(),
                ..MeasurementKey::default()
            },
            size: format!("m={m},n=4096,k=7168"),
            median_ns: f64::from(m) * 100.0,
            ci95_ns: [f64::from(m) * 99.0, f64::from(m) * 101.0],
            sol_percent: Some(61.0),
            ..SuiteTime::default()
        };
        SuiteRow {
            again: format!("rgpu bench run -t '{case}'"),
            case,
            target: "gemm:decode-projection".into(),
            axes: [("m".to_owned(), m.to_string()), ("MODE".to_owned(), "eager".to_owned())].into(),
            state: RowState::Ok,
            times: vec![time],
            ..SuiteRow::default()
        }
    };
    let mut rows = vec![row(16), row(1024), row(4096)];
    rows[2].state = RowState::Failed;
    rows[2].failure = Some(format!("the log: {PROJECT}/artifacts/runs/night-gemm/log/runner.log"));
    rows[2].times.clear();
    SuiteRun { id: "nightly_20261128_h200".into(), rows, ..SuiteRun::default() }
}

/// The times of the first case over three days.
fn history() -> History {
    let run = suite();
    let time = &run.rows[0].times[0];
    let point = |day: u32| HistoryPoint {
        run: format!("nightly_202611{day}_h200"),
        started: format!("2026-11-{day}T03:00:00Z"),
        median_ns: time.median_ns,
        ci95_ns: time.ci95_ns,
        ..HistoryPoint::default()
    };
    let series = Series {
        key: time.key.clone(),
        points: (26..29).map(point).collect(),
        earlier_points: 40,
        earlier_change: Some(EarlierChange {
            run: "nightly_20261102_h200".into(),
            started: "2026-11-02T03:00:00Z".into(),
            before: 1500.0,
            after: 1600.0,
            p: 1e-5,
        }),
        ..Series::default()
    };
    History { series: vec![series], ..History::default() }
}

#[test]
fn pages_fit_a_narrow_screen_and_name_their_project() {
    let Some(mut browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let target = Path::new(env!("CARGO_BIN_EXE_rgpu")).ancestors().nth(2).unwrap();
    let project = Path::new(PROJECT);
    for (name, page) in [
        ("suite", html(&suite(), &history(), project)),
        ("suite-history", history_page(&history(), project)),
    ] {
        let file = folder.path().join(format!("{name}.html"));
        fs::write(&file, page).unwrap();
        for (width, scheme) in [(420, "light"), (420, "dark"), (1200, "light"), (1200, "dark")] {
            browser.wish(scheme);
            browser.resize(width);
            browser.open(&file);
            let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
            assert!(wide <= u64::from(width), "{name} is {wide} pixels wide");
            let text = browser.value("document.body.innerText");
            assert!(text.as_str().unwrap().contains("attention-kernels"), "{text}");
            browser.picture(&target.join(format!("pages/{name}-{width}-{scheme}.png")));
        }
    }
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

/// A pair whose rows have every column of the table.
fn suite_with_every_column() -> SuiteRun {
    let time = |side: &str| SuiteTime {
        key: MeasurementKey {
            case: "memory:transpose".into(),
            side: side.into(),
            ..MeasurementKey::default()
        },
        size: "large".into(),
        median_ns: 44_500.0,
        ci95_ns: [44_400.0, 44_600.0],
        samples: 50,
        histogram: Some(Histogram {
            low_ns: 44_000.0,
            high_ns: 45_000.0,
            counts: vec![1, 9, 30, 9, 1],
            below: 0,
            above: 0,
        }),
        graph: Some(GraphTiming {
            median_ns: 2_070.0,
            ci95_ns: [2_060.0, 2_080.0],
            ..GraphTiming::default()
        }),
        sol_percent: Some(63.0),
        against: Some(TimeJudgement {
            verdict: SuiteVerdict::Ambiguous,
            speedup: Some(1.012),
            ci95: None,
            threshold: None,
            why: String::new(),
        }),
        ..SuiteTime::default()
    };
    let pair = PairResult {
        verdict: TimeVerdict::Faster,
        speedup: Some(1.897),
        ci95: None,
        too_close: true,
        summary: String::new(),
        parts: Vec::new(),
        grown: Vec::new(),
        sizes: Vec::new(),
    };
    let row = |case: &str| SuiteRow {
        case: case.to_owned(),
        state: RowState::Ok,
        times: vec![time("baseline"), time("optimised")],
        pair: Some(pair.clone()),
        ..SuiteRow::default()
    };
    let rows = vec![row("memory:transpose"), row("memory:vecadd[n=16777216,dtype=bf16]")];
    SuiteRun { id: "night".into(), rows, ..SuiteRun::default() }
}

#[test]
fn the_table_of_a_suite_fits_a_window_of_1280_pixels() {
    let Some(mut browser) = Browser::start() else { return };
    let run = suite_with_every_column();
    let mut history = history();
    history.series[0].key = run.rows[0].times[1].key.clone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("suite.html");
    fs::write(&file, html(&run, &history, Path::new(PROJECT))).unwrap();
    // A window of 1280 pixels has 15 fewer where its scroll bar takes room.
    browser.resize(1265);
    browser.open(&file);
    let [columns, wide, room] = [
        "document.querySelectorAll('#cases th').length",
        "document.querySelector('#cases').parentElement.scrollWidth",
        "document.querySelector('#cases').parentElement.clientWidth",
    ]
    .map(|number| browser.value(number).as_u64().unwrap());
    assert_eq!(columns, 11, "a column is empty");
    assert!(wide <= room, "the table is {wide} pixels wide, and its box {room}");
}
