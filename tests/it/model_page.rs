//! The pages of `rgpu model … --html`, opened in a browser. Pictures go to `target/pages/`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::browser::Browser;
use crate::documents::printed_keeps;
use crate::laptop::{Laptop, status};

/// The page that a `model` command writes, opened in both themes and on a narrow screen.
fn seen(laptop: &Laptop, line: &str, name: &str) -> Option<Browser> {
    let line = format!("model {line} --html page.html");
    let output = laptop.run(&line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(&line, &output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "page.html\n");
    let target = Path::new(env!("CARGO_BIN_EXE_rgpu")).ancestors().nth(2).unwrap();
    let picture = |how: &str| target.join("pages").join(format!("{name}-{how}.png"));
    let page = laptop.project("page.html");
    let mut browser = Browser::start()?;
    browser.resize(390);
    browser.open(&page);
    browser.picture(&picture("narrow"));
    let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
    assert!(wide <= 390, "{wide} pixels wide");
    browser.resize(1280);
    for scheme in ["light", "dark"] {
        browser.wish(scheme);
        browser.open(&page);
        assert_eq!(browser.value("document.documentElement.dataset.theme"), scheme);
        assert_ne!(browser.value("document.documentElement.dataset.ready ?? ''"), "");
        browser.picture(&picture(scheme));
    }
    let text = browser.value("document.querySelector('main').textContent");
    for wrong in ["[object", "undefined", "NaN", "Infinity"] {
        assert!(!text.as_str().unwrap().contains(wrong), "{wrong} is on the page");
    }
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
    insta::assert_snapshot!(format!("structure_of_{name}"), structure(&mut browser));
    Some(browser)
}

/// The sections of a page with what is drawn and tabulated in each, without numbers.
fn structure(browser: &mut Browser) -> String {
    let lines = browser.value(
        r#"[...document.querySelectorAll("main :is(section, h2, h3, svg, table, .waterfall, .tiles, dl)")].map(n => {
          const name = n.getAttribute("aria-label") ?? "";
          switch (n.tagName.toLowerCase()) {
            case "section": return "section " + n.id;
            case "h2": case "h3": return "  " + n.tagName.toLowerCase() + " " + n.textContent;
            case "svg": return "  drawing: " + name;
            case "table": return "  table: " + [...n.querySelectorAll("thead th")].map(t => t.textContent.trim()).join(" | ");
            default: return "  " + (n.classList[0] ?? "definitions");
          }
        })"#,
    );
    let lines: Vec<String> = serde_json::from_value(lines).unwrap();
    lines.join("\n")
}

fn config(laptop: &Laptop, name: &str) {
    let path = format!("{}/src/predict/tests/data/configs/{name}.json", env!("CARGO_MANIFEST_DIR"));
    laptop.write("config.json", &fs::read_to_string(path).unwrap());
}

fn texts(browser: &mut Browser, what: &str) -> Vec<String> {
    let all = format!("[...document.querySelectorAll({what:?})].map(n => n.textContent)");
    serde_json::from_value(browser.value(&all)).unwrap()
}

fn json(laptop: &Laptop, line: &str) -> Value {
    let output = laptop.run(&format!("model {line} --json"));
    assert_eq!(status(&output), 0, "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_server_is_drawn_from_its_curve_down_to_the_terms_of_a_kernel() {
    let laptop = Laptop::new();
    config(&laptop, "llama-3.1-70b");
    let line = "llm config.json --gpu h200 --tp 4 --concurrency 1..64:x4 --suggest";
    let Some(mut browser) = seen(&laptop, line, "model-server") else { return };
    let document = json(&laptop, line);
    let suggestions = document["suggestions"].as_array().unwrap();
    let is_other = |way: &&Value| way["parallelism"] != document["parallelism"];
    let others: Vec<&Value> = suggestions.iter().filter(is_other).collect();
    let ways = others.iter().filter(|way| way["serving"].is_object()).count();
    assert!(ways > 0);
    assert_eq!(texts(&mut browser, "#pareto circle").len(), 4 + ways);
    assert_eq!(texts(&mut browser, "#loads tbody tr").len(), 4 + others.len());

    // On one stage the layers' times add up to the time of a token: 16.2 ms.
    let tpot = document["points"][0]["serving"]["tpot_ns"].as_f64().unwrap();
    let sum = texts(&mut browser, "#time .waterfall b.num");
    assert_eq!(sum, [format!("{:.1} ms", tpot / 1e6)]);

    // A layer by keyboard, then one of its kernels.
    browser.value("document.querySelector('#time .waterfall button').focus()");
    browser.press(" ");
    let parts = &document["phases"][1]["layers"][0]["parts"];
    let names = texts(&mut browser, "#time .waterfall button");
    assert_eq!(names.len(), parts.as_array().unwrap().len());
    assert!(names.contains(&"gate up".to_owned()), "{names:?}");
    browser.value(
        "[...document.querySelectorAll('#time .waterfall button')].find(b => b.textContent === 'gate up').click()",
    );
    let terms = texts(&mut browser, "#time tbody tr");
    assert!(terms.iter().any(|term| term.contains("(Q + Q_added) / (B * eta_m)")), "{terms:?}");
    assert!(terms.iter().any(|term| term.contains("4.80 TB/s")), "{terms:?}");
    // And back.
    browser
        .value("document.querySelector('#time [aria-label=\"Part of the model\"] button').click()");
    assert_eq!(texts(&mut browser, "#time .waterfall button").len(), 3);
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn two_ways_to_run_a_model_are_compared() {
    let laptop = Laptop::new();
    config(&laptop, "llama-3.1-70b");
    laptop.write("other.toml", "gpu = \"b200\"\ntp = 2\nweights = \"fp8\"\n");
    let line = "llm config.json --gpu h200 --tp 4 --concurrency 1,16 --compare other.toml";
    let document = json(&laptop, line);
    printed_keeps("model-comparison", &document);
    assert_eq!(document["b"]["gpu"], "b200");
    assert_eq!(document["b"]["parallelism"]["tp"], 2);
    assert_eq!(document["a"]["parallelism"]["tp"], 4);
    let rate = |side: &str| {
        let serving = &document[side]["points"][1]["serving"];
        serving["output_tokens_per_s_gpu"].as_f64().unwrap()
    };
    let gain = format!("{:.2}", rate("b") / rate("a"));
    let text = laptop.show(&format!("model {line}"));
    assert!(text.contains(&format!("{gain} x")), "{gain} is not in {text}");

    let Some(mut browser) = seen(&laptop, line, "model-compared") else { return };
    let rows = texts(&mut browser, "#compare tbody tr");
    assert_eq!(rows.len(), 2);
    assert!(rows[1].ends_with(&format!("{gain} ×")), "{gain} is not in {}", rows[1]);
    let unlike = texts(&mut browser, "#compare li");
    assert!(unlike.contains(&"GPU: h200 against b200".to_owned()), "{unlike:?}");
    assert_eq!(texts(&mut browser, "#time .waterfall").len(), 2);
}

#[test]
fn a_file_to_compare_with_is_checked() {
    let laptop = Laptop::new();
    config(&laptop, "llama-3.1-70b");
    let line = "model llm config.json --gpu h200 --tp 4 --compare other.toml";
    for (text, exit, reason) in [
        ("tpp = 2\n", 3, "unknown field `tpp`"),
        ("fusion = \"none\"\n", 3, "`none` is none of eager, fused, megakernel"),
        ("weights = \"fp9\"\n", 3, "fp9"),
        ("tp = 1\n", 3, "GB too much"),
        ("place = \"kv=tape\"\n", 3, "`tape` is not a place"),
    ] {
        laptop.write("other.toml", text);
        let output = laptop.run(line);
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(status(&output), exit, "{text}: {shown}");
        assert!(shown.contains(reason) && shown.contains("other.toml"), "{text}: {shown}");
    }
}

#[test]
fn kernels_and_collectives_have_pages_and_other_files_are_kept() {
    let laptop = Laptop::new();
    let line = "kernel gemm --mnk 80,4096,7168 --dtype nvfp4 --gpu b200";
    if let Some(mut browser) = seen(&laptop, line, "model-kernel") {
        let title = browser.value("document.querySelector('#summary .title').textContent");
        assert_eq!(title, "2.78 µs, and never below 2.28 µs");
        assert_eq!(texts(&mut browser, ".waterfall b.num"), ["2.78 µs"]);
        assert_eq!(texts(&mut browser, ".waterfall .beside").len(), 3);
    }
    let line = "coll allreduce --bytes 64M --gpus 8 --gpu h200";
    if let Some(mut browser) = seen(&laptop, line, "model-collective") {
        assert_eq!(texts(&mut browser, "#sizes circle").len(), 9);
        assert_eq!(texts(&mut browser, ".waterfall b.num"), ["317 µs"]);
        assert!(texts(&mut browser, "#sizes line.error").is_empty());
    }
    laptop.write("calib.toml", crate::model::CALIBRATION);
    let calibrated = format!("{line} --calib calib.toml --force");
    if let Some(mut browser) = seen(&laptop, &calibrated, "model-calibrated-collective") {
        assert_eq!(texts(&mut browser, "#sizes line.error").len(), 9);
    }
    laptop.write("page.html", "<html>mine</html>");
    let output = laptop.run(&format!("model {line} --html page.html"));
    assert_eq!(status(&output), 2);
    assert_eq!(fs::read_to_string(laptop.project("page.html")).unwrap(), "<html>mine</html>");
    let output = laptop.run(&format!("model {line} --html page.html --force"));
    assert_eq!(status(&output), 0);
}
