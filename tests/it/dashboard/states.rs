//! States of the page that few projects have: pages past the end of a list, runs without a report,
//! a phone.

use std::fs;

use rgpu_model::suite::{RowState, SuiteRow, SuiteRun, SuiteState, SuiteTime};
use serde_json::{Value, json};

use super::client::Dashboard;
use super::make_run;
use crate::browser::Browser;
use crate::laptop::{Laptop, wait_for};

/// A browser on the overview of a dashboard.
fn browser_on(dashboard: &Dashboard) -> Option<Browser> {
    let mut browser = Browser::start()?;
    let path = dashboard.link.split_once(&dashboard.origin()).unwrap().1.to_owned();
    browser.open_at(&dashboard.origin(), &path);
    wait_for("the overview", || {
        let ready = "location.pathname === '/' && !!document.documentElement.dataset.ready";
        (browser.value(ready) == true).then_some(())
    });
    Some(browser)
}

/// The text of a view, once it has these words.
fn text_with(browser: &mut Browser, address: &str, words: &str) -> String {
    browser.value(&format!("location.hash = '#{address}', 0"));
    wait_for(words, || {
        let text = browser.value("document.getElementById('main').innerText");
        text.as_str().filter(|text| text.contains(words)).map(ToOwned::to_owned)
    })
}

#[test]
fn the_end_of_a_list_and_the_output_of_a_run_without_a_report_are_shown() {
    let laptop = Laptop::new();
    for (at, id) in ["one", "two", "program"].into_iter().enumerate() {
        make_run(&laptop, id, "vecadd", at * 2 + 1);
    }
    let program = laptop.project("artifacts/runs/program");
    fs::remove_file(program.join("profile.json")).unwrap();
    fs::create_dir_all(program.join("log")).unwrap();
    fs::write(program.join("log/exec.stdout"), "what it printed\n").unwrap();
    let dashboard = Dashboard::start_unopened(&laptop, "");
    let Some(mut browser) = browser_on(&dashboard) else { return };
    text_with(&mut browser, "/runs", "1 to 3 of 3");
    let text = text_with(&mut browser, "/runs?offset=50", "the list ends before this page");
    assert!(text.contains("0 to 0 of 3") && text.contains("newer"), "{text}");
    text_with(&mut browser, "/run/program", "what it printed");
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
    // Whatever comes of a comparison, its sides come before the command.
    let text = text_with(&mut browser, "/compare?a=one&b=two", "rgpu compare one two");
    assert!(text.find("compared run") < text.find("rgpu compare"), "{text}");
}

#[test]
fn a_report_is_a_frame_where_there_is_room_and_a_link_on_a_phone() {
    let laptop = Laptop::new();
    make_run(&laptop, "one", "vecadd", 1);
    make_run(&laptop, "two", "vecadd", 3);
    let dashboard = Dashboard::start_unopened(&laptop, "");
    let Some(mut browser) = browser_on(&dashboard) else { return };
    browser.resize(1280);
    text_with(&mut browser, "/run/one", "open the report in its own tab");
    assert_eq!(browser.value("document.querySelectorAll('iframe').length"), 1);
    wait_for("the report", || {
        let text = browser.value("document.getElementById('main').innerText");
        (!text.as_str().unwrap().contains("being made")).then_some(())
    });
    browser.resize(390);
    text_with(&mut browser, "/run/two", "two");
    let text = text_with(&mut browser, "/run/two", "open the report in its own tab");
    assert!(!text.contains("being made"), "{text}");
    assert_eq!(browser.value("document.querySelectorAll('iframe').length"), 0);
}

#[test]
fn the_page_of_a_stopped_fan_out_or_suite_leads_to_its_runs() {
    let laptop = Laptop::new();
    let runs = ["both-b200", "both-h200", "case", "night", "both"];
    for (at, id) in runs.into_iter().enumerate() {
        make_run(&laptop, id, "vecadd", at + 4);
    }
    let change = |id: &str, fields: Value| {
        let path = laptop.project(format!("artifacts/runs/{id}/run.json"));
        let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        record.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        fs::write(path, record.to_string()).unwrap();
    };
    // Neither was there at the end: the fan-out has no common document, and the suite waiting
    // cases.
    for id in ["both", "night"] {
        fs::remove_file(laptop.project(format!("artifacts/runs/{id}/profile.json"))).unwrap();
    }
    change("both", json!({"remote": "h200,b200", "state": "cancelled"}));
    change("both-h200", json!({"state": "cancelled"}));
    change("night", json!({"kernel": "", "remote": "h200 b200", "state": "cancelled"}));
    change("case", json!({"parent": {"suite": "night"}}));
    let suite = SuiteRun {
        schema: rgpu_model::suite::SCHEMA.to_owned(),
        id: "night".to_owned(),
        state: SuiteState::Open,
        ..SuiteRun::default()
    };
    let text = serde_json::to_string(&suite).unwrap();
    fs::write(laptop.project("artifacts/runs/night/suite.json"), text).unwrap();

    let dashboard = Dashboard::start_unopened(&laptop, "");
    let Some(mut browser) = browser_on(&dashboard) else { return };
    let links = "[...document.querySelectorAll('main a')].map(a => a.textContent + ' ' + a.hash)";
    text_with(&mut browser, "/run/both", "all runs of this command");
    let shown = browser.value(links);
    let shown: Vec<&str> = shown.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for link in ["both-h200 #/run/both-h200", "both-b200 #/run/both-b200"] {
        assert!(shown.contains(&link), "{link}: {shown:?}");
    }
    for (page, link, found) in [
        ("/run/both", "all runs of this command", "1 to 3 of 3 (5 in all)"),
        ("/run/night", "all runs of this suite", "1 to 1 of 1 (5 in all)"),
        ("/suites/night", "all its runs", "1 to 1 of 1 (5 in all)"),
    ] {
        text_with(&mut browser, page, link);
        let links = "[...document.querySelectorAll('main a')]";
        browser.value(&format!("{links}.find(a => a.textContent === {link:?}).click()"));
        wait_for(found, || {
            let text = browser.value("document.getElementById('found')?.textContent ?? ''");
            (text == found).then_some(())
        });
    }
    // Each remote of a suite has a link of its own.
    text_with(&mut browser, "/run/night", "all runs of this suite");
    let hosts = "[...document.querySelectorAll('main dd a')].map(a => a.textContent).join()";
    assert_eq!(browser.value(hosts), "h200,b200");
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn the_matrix_of_a_suite_has_the_order_of_its_file_and_of_numbers() {
    let laptop = Laptop::new();
    make_run(&laptop, "night", "vecadd", 1);
    let folder = laptop.project("artifacts/runs/night");
    fs::remove_file(folder.join("profile.json")).unwrap();
    let row = |case: &str, axes: &[(&str, &str)], sizes: &[&str]| SuiteRow {
        case: case.to_owned(),
        target: "gemm:tiled".to_owned(),
        axes: axes.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        state: RowState::Ok,
        times: sizes
            .iter()
            .map(|size| SuiteTime { size: (*size).into(), median_ns: 1e3, ..SuiteTime::default() })
            .collect(),
        ..SuiteRow::default()
    };
    let suite = SuiteRun {
        schema: rgpu_model::suite::SCHEMA.to_owned(),
        id: "night".to_owned(),
        state: SuiteState::Done,
        rows: vec![
            row(
                "gemm:tiled[arch=sm_90a,TILE=32]",
                &[("TILE", "32"), ("arch", "sm_90a")],
                &["n=1024"],
            ),
            row(
                "gemm:tiled[arch=sm_90a,TILE=8]",
                &[("TILE", "8"), ("arch", "sm_90a")],
                &["small", "n=4096", "n=256", "large"],
            ),
        ],
        ..SuiteRun::default()
    };
    fs::write(folder.join("suite.json"), serde_json::to_string(&suite).unwrap()).unwrap();
    let dashboard = Dashboard::start_unopened(&laptop, "");
    let Some(mut browser) = browser_on(&dashboard) else { return };
    text_with(&mut browser, "/suites/night", "n=4096");
    let cells = |of: &str| {
        let matrix = "document.querySelector('[aria-label^=\"Matrix of cases\"]')";
        format!("[...{matrix}.querySelectorAll({of:?})].map(cell => cell.textContent).join('|')")
    };
    let head = browser.value(&cells("th"));
    assert_eq!(head, "case|small|large|n=256|n=1024|n=4096");
    let names = browser.value(&cells("td:first-child"));
    assert_eq!(names, "gemm:tiled · arch=sm_90a · TILE=32|gemm:tiled · arch=sm_90a · TILE=8");
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}
