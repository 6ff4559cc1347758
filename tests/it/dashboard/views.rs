//! Every view in a browser: light and dark, wide and on a phone. Pictures go to `target/pages/`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Dashboard;
use super::{Project, make_run, make_run_of_ranks};
use crate::browser::Browser;
use crate::laptop::{Laptop, status, wait_for};

/// Every view of the project, by the name of its picture.
fn views(loop_id: &str) -> Vec<(&'static str, String)> {
    [
        ("overview", "/".to_owned()),
        ("hosts", "/hosts".into()),
        ("runs", "/runs".into()),
        ("kernel", "/runs?kernel=vecadd".into()),
        ("run", "/run/second".into()),
        ("ranks", "/run/ranks".into()),
        ("compare", "/compare?a=first&b=second".into()),
        ("suites", "/suites".into()),
        ("suite", "/suites/night".into()),
        ("history", "/history".into()),
        ("queue", "/queue".into()),
        ("entry", "/queue/1".into()),
        ("loops", "/loops".into()),
        ("loop", format!("/loops/{loop_id}")),
        ("model", "/model".into()),
    ]
    .into()
}

fn picture(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_rgpu")).ancestors().nth(2).unwrap();
    target.join("pages").join(format!("dashboard-{name}.png"))
}

/// Shows a view and waits until it is drawn.
fn show(browser: &mut Browser, address: &str) {
    browser.value("delete document.documentElement.dataset.ready, 0");
    // The same address again draws nothing, so a nameless parameter tells two apart.
    let mark = if address.contains('?') { "&" } else { "?" };
    browser.value(&format!(
        "location.hash = {:?} + {mark:?} + 'at=' + performance.now()",
        format!("#{address}")
    ));
    wait_until_drawn(browser, address);
}

fn wait_until_drawn(browser: &mut Browser, what: &str) {
    wait_for(what, || {
        let ready = browser.value("document.documentElement.dataset.ready ?? ''");
        (ready != "").then_some(())
    });
}

/// The rules of axe-core; `None` where npm cannot bring it.
fn axe() -> Option<String> {
    const WANTED: &str = "axe-core@4.10.3";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("axe-core");
    std::fs::create_dir_all(&folder).ok()?;
    let script = folder.join("node_modules/axe-core/axe.min.js");
    if !script.is_file() {
        let install =
            ["install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", WANTED];
        Command::new("npm").args(install).current_dir(&folder).output().ok()?;
    }
    std::fs::read_to_string(script).ok()
}

/// What breaks axe-core's rules on the page as it stands.
fn breaches(browser: &mut Browser) -> Value {
    browser.value(
        "axe.run(document, { iframes: false, resultTypes: ['violations'] }).then(result => \
         result.violations.map(v => v.id + ': ' + v.help + ': ' + \
         v.nodes.slice(0, 3).map(n => n.target.join(' ')).join(', ')))",
    )
}

#[test]
fn every_view_is_drawn_in_both_themes_and_widths_and_keeps_to_axe_cores_rules() {
    let project = Project::new();
    make_run_of_ranks(project.laptop(), "ranks");
    let dashboard = Dashboard::start_unopened(project.laptop(), "");
    let Some(mut browser) = Browser::start() else { return };
    let path = dashboard.link.split_once(&dashboard.origin()).unwrap().1.to_owned();
    browser.open_at(&dashboard.origin(), &path);
    wait_until_drawn_after_login(&mut browser);
    let axe = axe();
    if axe.is_none() {
        eprintln!("SKIPPED: npm brings no axe-core, so its rules were not checked");
    }
    let loop_id = project.test.report()["id"].as_str().unwrap().to_owned();
    let mut faults = Vec::new();
    for (name, address) in views(&loop_id) {
        for scheme in ["light", "dark"] {
            for (size, width) in [("wide", 1280), ("phone", 390)] {
                browser.wish(scheme);
                browser.resize(width);
                show(&mut browser, &address);
                // Logs and patches are asked for when they are opened; a report is a page of its own.
                if matches!(name, "run" | "loop") {
                    browser
                        .value("document.querySelectorAll('details').forEach(d => d.open = true)");
                    std::thread::sleep(Duration::from_millis(1500));
                }
                let text = browser.value("document.body.innerText");
                let text = text.as_str().unwrap();
                for bad in ["undefined", "NaN", "[object", "null", "the API has no field"] {
                    if text.contains(bad) {
                        faults.push(format!("{name}: shows `{bad}`"));
                    }
                }
                let over = browser.value(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth",
                );
                if over.as_i64().unwrap() > 0 {
                    faults.push(format!("{name} {size}: {over} pixels too wide"));
                }
                if let Some(axe) = &axe {
                    browser.value(&format!("if (!window.axe) {{ {axe} }} 0"));
                    let found = breaches(&mut browser);
                    for breach in found.as_array().unwrap() {
                        faults.push(format!("{name} {scheme} {size}: {breach}"));
                    }
                }
                browser.picture(&picture(&format!("{name}-{scheme}-{size}")));
            }
        }
    }
    faults.dedup();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

fn wait_until_drawn_after_login(browser: &mut Browser) {
    wait_for("the page after the link", || {
        (browser.value("location.pathname") == "/").then_some(())
    });
    wait_until_drawn(browser, "the overview");
}

/// A browser on the page of a dashboard.
fn opened(dashboard: &Dashboard) -> Option<Browser> {
    let mut browser = Browser::start()?;
    let path = dashboard.link.split_once(&dashboard.origin()).unwrap().1.to_owned();
    browser.open_at(&dashboard.origin(), &path);
    wait_until_drawn_after_login(&mut browser);
    Some(browser)
}

#[test]
fn the_page_is_used_by_keyboard_and_text_of_hosts_is_never_markup() {
    let laptop = Laptop::new();
    for at in 0..60 {
        make_run(&laptop, &format!("run-{at:02}"), ["matmul", "vecadd"][at % 2], at);
    }
    let hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>";
    make_run(&laptop, "hostile", hostile, 61);
    let dashboard = Dashboard::start_unopened(&laptop, "");
    let Some(mut browser) = opened(&dashboard) else { return };
    // The numbers open the views, and the slash goes to the search.
    browser.press("3");
    wait_for("the runs", || {
        (browser.value("document.querySelector('h1').textContent") == "Runs").then_some(())
    });
    wait_for("all runs", || {
        let text = browser.value("document.getElementById('found')?.textContent ?? ''");
        text.as_str().unwrap().contains("of 61").then_some(())
    });
    assert_eq!(browser.value("document.querySelectorAll('img, td script').length"), 0);
    let shown = browser.value("document.querySelector('tbody').textContent");
    assert!(shown.as_str().unwrap().contains(hostile), "{shown}");
    browser.press("/");
    for key in ["m", "a", "t"] {
        browser.press(key);
    }
    wait_for("a filtered list", || {
        let text = browser.value("document.getElementById('found').textContent");
        text.as_str().unwrap().contains("of 30").then_some(())
    });
    // The state is in the address, and the search keeps the focus.
    assert_eq!(browser.value("location.hash.includes('q=mat')"), true);
    assert_eq!(browser.value("document.activeElement.value"), "mat");
    browser.value("history.back()");
    // Two runs are picked for a comparison, in the address.
    browser.value("location.hash = '#/runs?pick=run-01%20run-02'");
    wait_for("the choice", || {
        let text = browser.value("document.querySelector('main').textContent");
        text.as_str().unwrap().contains("Compare the two").then_some(())
    });
    // What is new appears by itself.
    make_run(&laptop, "run-new", "matmul", 70);
    browser.value("location.hash = '#/runs?kernel=matmul'");
    wait_for("the new run", || {
        let text = browser.value("document.querySelector('tbody')?.textContent ?? ''");
        text.as_str().unwrap().contains("run-new").then_some(())
    });
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn an_action_shows_its_command_before_it_is_run() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("queue add --name one -- true")), 0);
    let dashboard = Dashboard::start_unopened(&laptop, "");
    let Some(mut browser) = opened(&dashboard) else { return };
    browser.value("location.hash = '#/queue'");
    let find = |text: &str| {
        format!("[...document.querySelectorAll('button')].find(b => b.textContent === {text:?})")
    };
    wait_for("the entry", || {
        (browser.value(&format!("!!{}", find("Cancel"))) == true).then_some(())
    });
    browser.value(&format!("{}.click()", find("Cancel")));
    wait_for("the command", || {
        let shown = browser.value("document.querySelector('dialog code')?.textContent ?? ''");
        (shown == "rgpu queue cancel 1").then_some(())
    });
    let text = browser.value("document.querySelector('dialog').innerText");
    assert!(!text.as_str().unwrap().contains("undefined"), "{text}");
    for scheme in ["light", "dark"] {
        browser.wish(scheme);
        browser.picture(&picture(&format!("action-{scheme}-wide")));
    }
    browser.value(&format!("{}.click()", find("Run it")));
    wait_for("the end of the action", || {
        let text = browser.value("document.querySelector('dialog').textContent");
        text.as_str().unwrap().contains("done").then_some(())
    });
    assert!(laptop.show("queue ls --json").contains("cancelled"));
    browser.value(&format!("{}.click()", find("Close")));
    wait_for("the new state", || {
        let text = browser.value("document.querySelector('tbody').textContent");
        text.as_str().unwrap().contains("cancelled").then_some(())
    });
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn an_exported_page_needs_no_server() {
    let project = Project::new();
    let output = project.laptop().run("dashboard export page --reports 3");
    assert_eq!(status(&output), 0, "{}", project.laptop().shown("export", &output));
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&project.laptop().project("page/index.html"));
    wait_until_drawn(&mut browser, "the overview");
    for address in ["/", "/hosts", "/runs?q=vecadd", "/run/second", "/queue/1", "/history"] {
        show(&mut browser, address);
        let text = browser.value("document.getElementById('main').innerText");
        let text = text.as_str().unwrap();
        assert!(!text.contains("does not have it") && !text.contains("undefined"), "{text}");
    }
    // Its filter finds what the server finds.
    let dashboard = Dashboard::start(project.laptop(), "");
    for query in ["q=vecadd", "q=median_ns", "parent=suite:night", "parent=suite:other"] {
        let found = dashboard.get_when(&format!("/runs?{query}"), |page| page["reading"] == false);
        show(&mut browser, &format!("/runs?{query}"));
        let text = browser.value("document.getElementById('found').textContent");
        let shown = text.as_str().unwrap().split(" of ").nth(1).unwrap().split(' ').next();
        assert_eq!(shown, Some(found["found"].to_string().as_str()), "{query}: {text}");
    }
    assert_eq!(browser.value("document.querySelectorAll('button:not(#theme)').length"), json!(0));
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}
