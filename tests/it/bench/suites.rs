//! A suite's rows, reports and page, and the pairs in it.

use std::fs;

use rgpu_model::comparison::TimeVerdict;
use rgpu_model::suite::{RowState, SuiteState, SuiteVerdict};

use super::{SUITE, laptop_with, states, suite};
use crate::browser::Browser;

#[test]
fn a_suite_has_a_row_and_a_run_for_each_case_and_reports_in_every_format() {
    let (laptop, _host) = laptop_with(SUITE);
    let run = suite(&laptop, "bench run --run-id night", 0);
    assert_eq!(
        states(&run),
        [
            ("memory:vecadd[n=1000]", RowState::Ok),
            ("memory:vecadd[n=4000]", RowState::Ok),
            ("memory:transpose", RowState::Ok),
        ]
    );
    assert!(run.clean && run.state == SuiteState::Done);
    let pair = run.rows[2].pair.as_ref().unwrap();
    assert_eq!(
        (pair.verdict, pair.speedup, pair.too_close),
        (TimeVerdict::Faster, Some(2.0), false)
    );
    assert_eq!(run.rows[2].times.len(), 2);
    let time = &run.rows[0].times[0];
    assert_eq!((time.key.sizes.as_str(), time.key.dtype.as_str()), ("n=1000", "f32"));
    assert!(time.key.gpu.contains("H200") && time.key.method.contains("l2_flush"), "{time:?}");
    assert_eq!(time.against.as_ref().unwrap().verdict, SuiteVerdict::New);
    let folder = laptop.project("artifacts/runs/night");
    for row in &run.rows {
        let own = laptop.project("artifacts/runs").join(row.run.as_ref().unwrap());
        let record: serde_json::Value =
            serde_json::from_slice(&fs::read(own.join("run.json")).unwrap()).unwrap();
        assert_eq!(record["parent"]["suite"], "night");
        assert_eq!(record["state"], "done");
        let side = if row.baseline.is_some() { "b/samples.jsonl" } else { "samples.jsonl" };
        assert_eq!(fs::read_to_string(own.join(side)).unwrap().lines().count(), 31);
    }
    // The second case takes what the first one built.
    let builds = |run: &str| {
        let plan = laptop.project("artifacts/runs").join(run).join("plan-1.json");
        fs::read_to_string(plan).unwrap().matches("\"id\": \"build\"").count()
    };
    let built: Vec<usize> =
        run.rows[..2].iter().map(|row| builds(row.run.as_ref().unwrap())).collect();
    assert_eq!(built, [1, 0]);
    assert_eq!(run.rows[1].times[0].key.toolkit, run.rows[0].times[0].key.toolkit);
    for (file, words) in [
        ("report.md", "| memory:transpose"),
        ("suite.csv", "memory:vecadd[n=1000],memory:vecadd,h200,ok"),
        ("junit.xml", "<testcase name=\"memory:transpose\""),
        ("index.html", "memory:vecadd against n"),
        ("run.json", "bench, 3 cases"),
    ] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        assert!(text.contains(words), "{file}: {text}");
    }
    for format in ["table", "markdown", "csv", "junit"] {
        let shown = laptop.run(&format!("bench show night --format {format}"));
        assert!(String::from_utf8_lossy(&shown.stdout).contains("memory:transpose"));
    }
    // The runs of its cases begin with its name, too, and are not counted.
    let shown = laptop.show("bench show nig");
    assert!(shown.contains("memory:transpose") && shown.ends_with("status 0\n"), "{shown}");
    fs::create_dir(laptop.project("artifacts/runs/nightly")).unwrap();
    for file in ["run.json", "suite.json"] {
        let other = laptop.project("artifacts/runs/nightly").join(file);
        fs::copy(folder.join(file), other).unwrap();
    }
    let shown = laptop.show("bench show nig");
    assert!(shown.contains("nightly") && !shown.contains("night-001"), "{shown}");
    assert!(shown.ends_with("status 2\n"), "{shown}");
    laptop.wait_until_quiet();
}

#[test]
fn the_page_of_a_suite_draws_samples_and_roofline_and_filters_both() {
    let text =
        SUITE.to_owned() + "[[target]]\nname = \"compute:matmul\"\nkernel = \"tiled-matmul\"\n";
    let (laptop, _host) = laptop_with(&text);
    for id in ["one", "two"] {
        suite(&laptop, &format!("bench run --run-id {id}"), 0);
    }
    let page = laptop.project("artifacts/runs/two/index.html");
    let Some(mut browser) = Browser::start() else { return };
    let target = std::path::Path::new(env!("CARGO_BIN_EXE_rgpu")).ancestors().nth(2).unwrap();
    for (width, name) in [(390, "narrow"), (1280, "wide")] {
        browser.resize(width);
        for scheme in ["light", "dark"] {
            browser.wish(scheme);
            browser.open(&page);
            browser.picture(&target.join(format!("pages/suite-{name}-{scheme}.png")));
            let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
            assert!(wide <= u64::from(width), "{wide} pixels wide");
        }
    }
    let mut count = |what: &str| {
        let counted = browser.value(&format!("document.querySelectorAll({what:?}).length"));
        counted.as_u64().unwrap()
    };
    // Two sizes of vecadd and the product have counted work; the pair may have it, too.
    let points = count("svg.roofline circle");
    assert!(points >= 3, "{points}");
    assert!(count("svg.roofline .roof") >= 2 && count("svg.roofline text.k0") >= 1);
    assert_eq!(count("svg.spread"), 5);
    assert!(count("svg.spread .median") == 5 && count("svg.spread .band") == 5);
    let filled = "getComputedStyle(document.querySelector('td svg polyline')).fill";
    assert_eq!(browser.value(filled), "none");
    browser.value(
        "(() => { const f = document.getElementById('filter'); f.value = 'matmul'; \
         f.dispatchEvent(new Event('input')); })()",
    );
    let shown = "[...document.querySelectorAll('[data-point]')].filter(g => g.style.display !== 'none').length";
    assert_eq!(browser.value(shown), 1);
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
    laptop.wait_until_quiet();
}

#[test]
fn each_size_of_a_pair_has_its_own_speedup() {
    let (laptop, _host) = laptop_with(&(SUITE.to_owned() + "sizes = \"odd|large\"\n"));
    let run = suite(&laptop, "bench run -t memory:transpose --run-id night", 0);
    let pair = run.rows[0].pair.as_ref().unwrap();
    let sizes: Vec<&str> = pair.sizes.iter().map(|one| one.size.as_str()).collect();
    assert_eq!(sizes, ["odd", "large"]);
    assert!(pair.sizes.iter().all(|one| one.speedup > 1.0), "{pair:?}");
    let shown = laptop.show("bench show night");
    assert_eq!(shown.matches("geomean of 2").count(), 1, "{shown}");
    laptop.wait_until_quiet();
}

#[test]
fn a_pair_that_is_too_close_to_call_grows_and_says_so() {
    let same =
        SUITE.replace("optimised = \"transpose-padded\"", "optimised = \"transpose-conflicts\"");
    let grow = "grow = { vars = [\"rows\"], factor = 2, times = 1 }\n";
    let (laptop, _host) = laptop_with(&(same + grow));
    let run = suite(&laptop, "bench run -t memory:transpose --run-id night", 0);
    let pair = run.rows[0].pair.as_ref().unwrap();
    assert!(pair.too_close && pair.verdict == TimeVerdict::Same, "{pair:?}");
    assert_eq!(pair.grown.len(), 1);
    assert_eq!(pair.grown[0].sizes, "cols=4096,rows=4096");
    assert_eq!(run.rows[0].times[0].key.sizes, "cols=4096,rows=8192");
    let report = fs::read_to_string(laptop.project("artifacts/runs/night/report.md")).unwrap();
    assert!(report.contains(". Too close to call. At cols"), "{report}");
    laptop.wait_until_quiet();
}

#[test]
fn a_row_says_which_tool_gave_no_results_and_why() {
    let (laptop, host) = laptop_with(&SUITE.replace("mode = \"bench\"", "level = \"sol\""));
    let run = suite(&laptop, "bench run --run-id right", 0);
    assert!(run.rows.iter().all(|row| row.missing.is_empty()), "{run:#?}");
    host.mischief("ncu counters-refused\n");
    let run = suite(&laptop, "bench run --run-id night", 0);
    for row in &run.rows {
        assert_eq!((row.state, row.missing.len()), (RowState::Ok, 1), "{row:#?}");
        let missing = &row.missing[0];
        assert_eq!((missing.tool.as_str(), missing.code.as_str()), ("ncu", "counters_refused"));
        assert!(!row.times.is_empty(), "{row:#?}");
    }
    let shown = laptop.show("bench show night");
    assert_eq!(shown.matches("no ncu (counters_refused)").count(), 3, "{shown}");
    assert!(shown.contains("ERR_NVGPUCTRPERM"), "{shown}");
    let report = fs::read_to_string(laptop.project("artifacts/runs/night/report.md")).unwrap();
    assert!(report.contains("## Missing\n\n- memory:vecadd"), "{report}");
    laptop.wait_until_quiet();
}
