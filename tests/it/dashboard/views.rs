//! Every view in a browser: light and dark, wide and on a phone. Pictures go to `target/pages/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rgpu_model::suite::{RowState, SuiteRow, SuiteRun, SuiteState};
use serde_json::{Value, json};

use super::client::Dashboard;
use super::{Project, make_run, make_run_of_ranks};
use crate::browser::Browser;
use crate::laptop::{Laptop, status, wait_for};
use crate::loops::TestLoop;

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

const WIDE: (&str, u32) = ("wide", 1280);
const PHONE: (&str, u32) = ("phone", 390);

#[test]
fn every_view_is_drawn_light_and_wide_and_dark_on_a_phone_by_axe_cores_rules() {
    draw_every_view(&[("light", WIDE), ("dark", PHONE)]);
}

/// For .ci/long: the two combinations that the test above leaves out.
#[test]
fn every_view_is_drawn_dark_and_wide_and_light_on_a_phone_by_axe_cores_rules() {
    draw_every_view(&[("dark", WIDE), ("light", PHONE)]);
}

fn draw_every_view(looks: &[(&str, (&str, u32))]) {
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
        for &(scheme, (size, width)) in looks {
            browser.wish(scheme);
            browser.resize(width);
            show(&mut browser, &address);
            // Logs and patches are asked for when they are opened; a report is a page of its own.
            if matches!(name, "run" | "loop") {
                browser.value("document.querySelectorAll('details').forEach(d => d.open = true)");
                std::thread::sleep(Duration::from_millis(1500));
            }
            let text = browser.value("document.body.innerText");
            let text = text.as_str().unwrap();
            for bad in ["undefined", "NaN", "[object", "null", "the API has no field"] {
                if text.contains(bad) {
                    faults.push(format!("{name}: shows `{bad}`"));
                }
            }
            let broken = browser.broken_quantities();
            if broken != json!([]) {
                faults.push(format!("{name}: lines may end within {broken}"));
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
    // The page below goes on, and the dialog keeps the focus.
    assert_eq!(status(&laptop.run("queue add --name two -- true")), 0);
    wait_for("the second entry below the dialog", || {
        let text = browser.value("document.querySelector('tbody').textContent");
        text.as_str().unwrap().contains("2 two").then_some(())
    });
    assert_eq!(browser.value("document.activeElement.textContent"), "Run it");
    for scheme in ["light", "dark"] {
        browser.wish(scheme);
        browser.picture(&picture(&format!("action-{scheme}-wide")));
    }
    browser.value(&format!("{}.click()", find("Run it")));
    wait_for("the end of the action", || {
        let text = browser.value("document.querySelector('dialog').textContent");
        text.as_str().unwrap().contains("done").then_some(())
    });
    // What is done is not offered again.
    assert_eq!(browser.value(&format!("{}.hidden", find("Run it"))), true);
    assert!(laptop.show("queue ls --json").contains("cancelled"));
    browser.value(&format!("{}.click()", find("Close")));
    wait_for("the new state", || {
        let text = browser.value("document.querySelector('tbody').textContent");
        text.as_str().unwrap().contains("cancelled").then_some(())
    });
    // What is typed into a form outlives the refreshes, and so does the focus.
    browser.value("location.hash = '#/runs'");
    wait_for("the form", || {
        (browser.value("!!document.querySelector('[data-focus=profile-kernel]')") == true)
            .then_some(())
    });
    browser.value(
        "document.querySelector('summary').click(); \
         document.querySelector('[data-focus=profile-kernel]').focus(), 0",
    );
    browser.press("k");
    make_run(&laptop, "fresh", "vecadd", 1);
    wait_for("the new run", || {
        let text = browser.value("document.querySelector('tbody')?.textContent ?? ''");
        text.as_str().unwrap().contains("fresh").then_some(())
    });
    let field = "document.activeElement";
    assert_eq!(browser.value(&format!("{field}.dataset.focus")), "profile-kernel");
    assert_eq!(browser.value(&format!("{field}.value")), "k");
    assert_eq!(browser.value(&format!("{field}.closest('details').open")), true);
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

/// The text of the page once it has these words.
fn text_with(browser: &mut Browser, address: &str, words: &str) -> String {
    show(browser, address);
    wait_for(words, || {
        let text = browser.value("document.getElementById('main').innerText");
        text.as_str().filter(|text| text.contains(words)).map(ToOwned::to_owned)
    })
}

#[test]
fn what_failed_was_not_timed_or_is_made_up_is_told_as_such() {
    let test = TestLoop::new(&[]);
    test.run("--mode dry-run max_iterations=1", 0);
    let laptop = &test.laptop;
    for (id, at) in [("older", 1), ("newer", 2), ("broken", 3), ("detached", 4), ("suite", 5)] {
        make_run(laptop, id, "vecadd", at);
    }
    let write = |path: &str, text: String| {
        fs::write(laptop.project("artifacts/runs").join(path), text).unwrap();
    };
    let record = |id: &str| -> Value {
        let path = laptop.project("artifacts/runs").join(id).join("run.json");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    let mut broken = record("broken");
    broken["state"] = "failed".into();
    write("broken/run.json", broken.to_string());
    let failure = json!({"schema": "rgpu.error/1", "exit": 6, "error": {
        "code": "does_not_compile", "what": "`vecadd` does not compile", "side": "kernel",
        "cause": "k.cu(3): error: expected a `;`\n    int i = 0\n             ^", "hints": [],
        "place": {}, "exit": "kernel"}});
    write("broken/error.json", failure.to_string());
    let mut detached = record("detached");
    detached["state"] = "detached".into();
    write("detached/run.json", detached.to_string());
    let events = [
        json!({"event": "step_started", "step": "build", "title": "compile vecadd"}),
        json!({"event": "rung_started", "step": "build", "rung": "build", "argv": []}),
        json!({"event": "rung_started", "step": "profile", "rung": "ncu.asked", "argv": []}),
    ];
    write("detached/events.jsonl", events.map(|event| format!("{event}\n")).concat());
    fs::remove_file(laptop.project("artifacts/runs/suite/profile.json")).unwrap();
    let suite = SuiteRun {
        schema: rgpu_model::suite::SCHEMA.to_owned(),
        id: "suite".to_owned(),
        state: SuiteState::Done,
        rows: vec![SuiteRow {
            case: "memory:vecadd".to_owned(),
            state: RowState::NoGpu,
            ..SuiteRow::default()
        }],
        ..SuiteRun::default()
    };
    write("suite/suite.json", serde_json::to_string(&suite).unwrap());

    let dashboard = Dashboard::start_unopened(laptop, "");
    let Some(mut browser) = opened(&dashboard) else { return };
    let text = text_with(&mut browser, "/suites", "1 no GPU, not timed");
    assert!(text.contains("0 of 1 ok"), "{text}");
    let good = "[...document.querySelectorAll('main .badge.good')].map(b => b.textContent).join()";
    assert_eq!(browser.value(good), "");
    let text = text_with(&mut browser, "/suites/suite", "there are no times of a GPU");
    assert!(!text.contains("clean"), "{text}");

    // A suite whose command was killed has one state in all views.
    let killed = SuiteRun { id: "killed".to_owned(), state: SuiteState::Running, ..suite };
    make_run(laptop, "killed", "", 6);
    fs::remove_file(laptop.project("artifacts/runs/killed/profile.json")).unwrap();
    let mut running = record("killed");
    running["state"] = "running".into();
    write("killed/run.json", running.to_string());
    write("killed/suite.json", serde_json::to_string(&killed).unwrap());
    for address in ["/suites", "/suites/killed", "/run/killed"] {
        let text = text_with(&mut browser, address, "unfinished");
        assert!(!text.contains("running") && !text.contains("never submitted"), "{text}");
    }

    // A program that failed is no green run, and is found by its status.
    make_run(laptop, "program", "sh", 7);
    let mut program = record("program");
    program["program_exit"] = 3.into();
    write("program/run.json", program.to_string());
    text_with(&mut browser, "/run/program", "exit status 3");
    assert_eq!(browser.value("document.querySelector('main .badge').className"), "badge bad");
    text_with(&mut browser, "/runs?state=exit+status+3", "1 to 1 of 1");

    // Errors that a sanitizer found are a result, whatever the program made of them.
    make_run(laptop, "checked", "sh", 9);
    program["id"] = "checked".into();
    write("checked/run.json", program.to_string());
    let path = laptop.project("artifacts/runs/checked/profile.json");
    let mut profile: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    profile["sanitizer"] = json!([{"tool": "memcheck", "verdict": "found", "errors": 3}]);
    write("checked/profile.json", profile.to_string());
    text_with(&mut browser, "/runs?state=errors+found", "3 errors found");
    assert_eq!(browser.value("document.querySelector('td .badge').className"), "badge warn");

    // The time of the reference on the CPU is not the kernel's, and colours of a terminal are no
    // text.
    make_run(laptop, "reference", "vecadd", 8);
    let path = laptop.project("artifacts/runs/reference");
    let mut profile: Value =
        serde_json::from_slice(&fs::read(path.join("profile.json")).unwrap()).unwrap();
    profile["timing"]["clock"] = "cpu_reference".into();
    write("reference/profile.json", profile.to_string());
    fs::create_dir_all(path.join("log")).unwrap();
    write("reference/log/time.stdout", "\u{1b}[31mred\u{1b}[0m\n 10 %\r 90 %\r\nend\n".to_owned());
    text_with(&mut browser, "/run/reference", "CPU reference");
    browser.value("document.querySelector('[data-focus=\"log-time.stdout\"]').click(), 0");
    let shown = wait_for("the log", || {
        let text = browser.value("document.querySelector('pre.log')?.textContent ?? ''");
        text.as_str().filter(|text| text.contains("end")).map(ToOwned::to_owned)
    });
    assert_eq!(shown, "red\n 90 %\nend\n");

    text_with(&mut browser, "/run/broken", "does not compile");
    let pre = "document.querySelector('.problem pre')";
    let family = browser.value(&format!("getComputedStyle({pre}).fontFamily"));
    assert!(family.as_str().unwrap().contains("monospace"), "{family}");
    let shown = browser.value(&format!("{pre}.textContent"));
    assert!(shown.as_str().unwrap().contains("\n             ^"), "{shown}");
    browser.picture(&picture("failed-light-wide"));

    let text = text_with(&mut browser, "/run/detached", "tries ncu.asked");
    assert!(text.contains("compile vecadd") && !text.contains("tries build"), "{text}");

    let text = text_with(&mut browser, "/loops", "dry-run");
    assert!(!text.contains("undefined"), "{text}");
    let id = test.report()["id"].as_str().unwrap().to_owned();
    let text = text_with(&mut browser, &format!("/loops/{id}"), "nothing is measured");
    assert!(text.contains("target\tnone") || text.contains("target\nnone"), "{text}");
    browser.picture(&picture("dry-run-light-wide"));

    // The older run is the base, whatever was ticked first.
    text_with(&mut browser, "/compare?pick=newer%20older", "rgpu compare older newer");
    let text = text_with(&mut browser, "/compare?a=newer&b=older", "rgpu compare newer older");
    assert!(!text.contains('`'), "{text}");

    // A run that has ended meanwhile cannot be attached to, so that is not offered again.
    text_with(&mut browser, "/run/detached", "Attach");
    let click = |text: &str| {
        format!(
            "[...document.querySelectorAll('button')].find(b => b.textContent === {text:?}).click()"
        )
    };
    browser.value(&click("Attach"));
    wait_for("the command", || {
        (browser.value("!!document.querySelector('dialog code')") == true).then_some(())
    });
    detached["state"] = "failed".into();
    write("detached/run.json", detached.to_string());
    browser.value(&click("Run it"));
    wait_for("the end of the command", || {
        (browser.value("!!document.querySelector('dialog .badge')") == true).then_some(())
    });
    let buttons = "[...document.querySelectorAll('dialog button')].filter(b => !b.hidden)";
    assert_eq!(browser.value(&format!("{buttons}.map(b => b.textContent).join()")), "Copy,Close");

    // The browser reports the refusals of both comparisons itself.
    browser.complaints.retain(|complaint| !complaint.contains("/api/v1/compare?"));
    assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
}

#[test]
fn an_entry_that_prints_nothing_for_long_is_called_silent() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("queue add --name quiet -- sleep 600")), 0);
    let mut runner = laptop.start("queue run --once");
    let log = || {
        let shown = laptop.run("queue ls --json");
        let document: Value = serde_json::from_slice(&shown.stdout).ok()?;
        let entry = &document["entries"][0];
        let path = laptop.project(entry["log"].as_str()?);
        (entry["state"] == "running" && path.is_file()).then_some(path)
    };
    let log = wait_for("the running entry", log);
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(720);
    fs::File::options().write(true).open(log).unwrap().set_modified(long_ago).unwrap();
    let dashboard = Dashboard::start_unopened(&laptop, "");
    if let Some(mut browser) = opened(&dashboard) {
        for address in ["/queue", "/queue/1"] {
            text_with(&mut browser, address, "silent for 12 min");
        }
        assert!(browser.complaints.is_empty(), "{}", browser.complaints.join("\n"));
    }
    drop(dashboard);
    assert_eq!(status(&laptop.run("queue cancel 1")), 0);
    runner.wait().unwrap();
    laptop.wait_until_quiet();
}

#[test]
fn an_exported_page_needs_no_server() {
    let project = Project::new();
    let output = project.laptop().run("dashboard export page --reports 3");
    assert_eq!(status(&output), 0, "{}", project.laptop().shown("export", &output));
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&project.laptop().project("page/index.html"));
    wait_until_drawn(&mut browser, "the overview");
    let exported = browser.value("document.getElementById('live').textContent");
    assert!(exported.as_str().unwrap().starts_with("exported 20"), "{exported}");
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
