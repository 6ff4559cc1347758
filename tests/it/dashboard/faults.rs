//! Who gets in, and what a damaged project or a second dashboard does.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::Dashboard;
use super::make_run;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for, words};

#[test]
fn a_browser_that_cannot_be_opened_is_reported() {
    let laptop = Laptop::new();
    let mut command = laptop.rgpu(words("dashboard --listen 127.0.0.1:0 --open"));
    command.env("PATH", laptop.path("no-programs")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
    // The other line says how the dashboard ends.
    let told: Vec<String> = lines.by_ref().take(2).collect();
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(
        told.iter().any(|line| line.starts_with("the link cannot be opened: ")
            && line.ends_with(": open it yourself")),
        "{told:?}"
    );
}

#[test]
fn a_link_works_once_and_opens_a_session_of_its_own_server() {
    let laptop = Laptop::new();
    let mut dashboard = Dashboard::start_unopened(&laptop, "");
    let path = dashboard.link.split_once("/login").unwrap().1.to_owned();
    assert_eq!(dashboard.send("HEAD", &format!("/login{path}"), &[], "").status, 405);
    dashboard.open();
    assert_eq!(dashboard.send("GET", "/login", &[], "").status, 403);
    let again = dashboard.send("GET", &format!("/login{path}"), &[], "");
    assert_eq!(again.status, 403);
    assert!(!again.head.contains("set-cookie"), "{}", again.head);
    wait_for("a warning", || dashboard.told().contains("opened a second time").then_some(()));
    assert_eq!(dashboard.send("GET", "/login?token=0", &[], "").status, 403);
    for path in ["/", "/api/v1/overview", "/api/v1/live", "/runs/x/report", "/api/v1/actions"] {
        assert_eq!(dashboard.send("GET", path, &[], "").status, 401, "{path}");
        let wrong = "Cookie: rgpu-dashboard-1=0".to_owned();
        assert_eq!(dashboard.send("GET", path, &[&wrong], "").status, 401, "{path}");
    }
    // Two dashboards do not know each other's sessions.
    let other = Dashboard::start(&laptop, "");
    let cookie = dashboard.cookie();
    assert_eq!(other.send("GET", "/api/v1/overview", &[&cookie], "").status, 401);
    assert_eq!(dashboard.get("/overview")["total"], 0);
    // Other servers of this machine get the cookie. It opens the page, which has no secret.
    for path in ["/api/v1/overview", "/api/v1/live", "/runs/x/report"] {
        assert_eq!(dashboard.send("GET", path, &[&cookie], "").status, 403, "{path}");
    }
    let page = dashboard.send("GET", "/", &[&cookie], "");
    assert_eq!(page.status, 200);
    assert!(!page.body.contains(dashboard.key()) && !page.head.contains(dashboard.key()));
    // A browser sends no header for a frame: the key is in the address.
    let report = format!("/runs/x/report?key={}", dashboard.key());
    assert_eq!(dashboard.send("GET", &report, &[&cookie], "").status, 404);
    assert_eq!(dashboard.send("GET", &report, &[], "").status, 401);
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let laptop = Laptop::new();
    let dashboard = Dashboard::start(&laptop, "");
    let cookie = dashboard.cookie();
    for header in [
        "Host: evil.example".to_owned(),
        format!("Host: evil.example:{}", dashboard.port),
        "Origin: https://evil.example".to_owned(),
        "Origin: null".to_owned(),
        format!("Origin: http://127.0.0.1:{}", dashboard.port - 1),
    ] {
        for path in ["/", "/login?token=x", "/api/v1/overview"] {
            let answer = dashboard.send("GET", path, &[&cookie, &header], "");
            assert_eq!(answer.status, 403, "{header} {path}: {}", answer.body);
        }
    }
    let page = dashboard.send("GET", "/", &[&cookie], "");
    assert_eq!(page.status, 200);
    let head = page.head.to_lowercase();
    for part in ["default-src 'none'", "frame-ancestors 'none'", "nosniff", "no-referrer"] {
        assert!(head.contains(part), "{head}");
    }
    assert!(!head.contains("unsafe-inline") && !head.contains("unsafe-eval"), "{head}");
}

#[test]
fn actions_need_the_page_and_show_the_command_that_they_run() {
    let laptop = Laptop::new();
    let dashboard = Dashboard::start(&laptop, "");
    assert_eq!(status(&laptop.run("queue add --name one -- false")), 0);
    assert_eq!(status(&laptop.run("queue run --once")), 0);
    let requeue = json!({"action": {"do": "requeue", "entry": 1}});
    let headers = dashboard.action_headers();
    for left_out in 0..3 {
        let some: Vec<&String> =
            headers.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, h)| h).collect();
        let answer = dashboard.send("POST", "/api/v1/actions", &some, &requeue.to_string());
        assert_eq!(answer.status, if left_out == 0 { 401 } else { 403 }, "{left_out}");
    }
    let shown = json!({"action": {"do": "requeue", "entry": 1}, "show_only": true});
    let (status, result) = dashboard.act(&shown);
    assert_eq!((status, &result["state"]), (200, &json!("not_started")));
    assert_eq!(result["command"], "rgpu queue requeue 1");
    assert_eq!(dashboard.get("/queue/1")["entry"]["state"], "failed");
    let (status, result) = dashboard.act(&requeue);
    assert_eq!((status, &result["state"], &result["exit"]), (200, &json!("ended"), &json!(0)));
    assert_eq!(dashboard.get("/queue/1")["entry"]["state"], "waiting");
    let (status, _) = dashboard.act(&json!({"action": {"do": "cancel_entry", "entry": 1}}));
    assert_eq!((status, &dashboard.get("/queue/1")["entry"]["state"]), (200, &json!("cancelled")));
    for wrong in [
        json!({"action": {"do": "attach", "run": "--help"}}),
        json!({"action": {"do": "shell", "run": "x"}}),
        json!({"action": {"do": "requeue", "entry": 1, "more": 1}}),
        json!([]),
    ] {
        assert_eq!(dashboard.act(&wrong).0, 400, "{wrong}");
    }
    let read_only = Dashboard::start(&laptop, "--read-only");
    let (status, refused) = read_only.act(&requeue);
    assert_eq!((status, &refused["error"]["code"]), (403, &json!("read_only")));
}

#[test]
fn a_run_is_started_and_followed_and_its_stream_goes_on_after_a_cut() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let dashboard = Dashboard::start(&laptop, "");
    let start = json!({"action": {
        "do": "profile", "kernel": "vecadd", "mode": "ncu", "remote": "h200"}});
    let (status, result) = dashboard.act(&start);
    assert_eq!((status, &result["state"]), (200, &json!("running")), "{result:#}");
    host.wait_for_gate("ncu");
    let running = dashboard.get_when("/overview", |page| {
        page["running"].as_array().is_some_and(|runs| runs.len() == 1)
    });
    assert!(running["running"][0]["phase"].is_string(), "{running:#}");
    let id = running["running"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/runs/{id}/live");
    let first = dashboard.messages(&path, None, |_| true);
    let last = first[0].1.clone();
    let count = |messages: &[(String, String, serde_json::Value)]| -> usize {
        messages.iter().map(|(_, _, data)| data["events"].as_array().unwrap().len()).sum()
    };
    host.open_gate("ncu");
    let rest = dashboard.messages(&path, Some(&last), |(event, _, _)| event == "end");
    assert_eq!(rest.last().unwrap().2["state"], "done");
    let all = fs::read_to_string(laptop.project(format!("artifacts/runs/{id}/events.jsonl")));
    assert_eq!(count(&first) + count(&rest), all.unwrap().lines().count());
    let path = format!("/runs/{id}/report?key={}", dashboard.key());
    let report = dashboard.send("GET", &path, &[&dashboard.cookie()], "");
    assert_eq!(report.status, 200, "{}", report.body);
    assert!(report.head.contains("sandbox allow-scripts"), "{}", report.head);
    assert!(report.body.contains("Content-Security-Policy"));
}

#[test]
fn changes_of_the_database_are_told_and_told_again_after_a_cut() {
    let laptop = Laptop::new();
    assert_eq!(status(&laptop.run("queue add --name one -- true")), 0);
    let dashboard = Dashboard::start(&laptop, "");
    let hello = dashboard.messages("/live", None, |(_, _, data)| data["event"] != 0);
    let last = hello.last().unwrap().1.clone();
    assert_eq!(status(&laptop.run("queue add --name two -- true")), 0);
    assert_eq!(status(&laptop.run("queue cancel 2")), 0);
    let is_cancelled = |change: &serde_json::Value| {
        change["kind"] == "entry" && change["subject"] == 2 && change["to"] == "cancelled"
    };
    let seen = dashboard.messages("/live", Some(&last), |(_, _, data)| {
        data["changes"].as_array().unwrap().iter().any(is_cancelled)
    });
    let changes: Vec<&serde_json::Value> =
        seen.iter().flat_map(|(_, _, data)| data["changes"].as_array().unwrap()).collect();
    assert!(changes.iter().any(|change| change["subject"] == 2 && change["to"] == "waiting"));
    let numbers: Vec<i64> = changes.iter().map(|c| c["event"].as_i64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "each once: {numbers:?}");
}

#[test]
fn damaged_newer_and_removed_runs_do_not_hide_the_others() {
    let laptop = Laptop::new();
    make_run(&laptop, "good", "vecadd", 1);
    make_run(&laptop, "cut", "vecadd", 2);
    make_run(&laptop, "newer", "vecadd", 3);
    make_run(&laptop, "gone", "vecadd", 4);
    let hostile = "<img src=x onerror=alert(1)>\u{202e}\u{1b}[31m";
    make_run(&laptop, "hostile", hostile, 5);
    let runs = laptop.project("artifacts/runs");
    fs::write(runs.join("cut/profile.json"), "{\"schema\": \"rgpu.pro").unwrap();
    fs::write(runs.join("newer/profile.json"), "{\"schema\": \"rgpu.profile/7\"}").unwrap();
    fs::create_dir(runs.join("half")).unwrap();
    fs::write(runs.join("half/run.json"), "{\"schema\"").unwrap();
    make_run(&laptop, "later", "vecadd", 6);
    let path = runs.join("later/run.json");
    let record = fs::read_to_string(&path).unwrap().replace("rgpu.run/1", "rgpu.run/9");
    fs::write(&path, record).unwrap();
    let dashboard = Dashboard::start(&laptop, "");
    let page = dashboard.get_when("/runs", |page| page["total"] == 5);
    assert_eq!(page["unreadable"], 2);
    let folders = page["unreadable_folders"].as_array().unwrap();
    let of_folder = |id: &str| {
        let folder = folders.iter().find(|folder| folder["id"] == id).unwrap();
        folder["problem"].as_str().unwrap()
    };
    assert!(of_folder("later").contains("`rgpu.run/9`: a later rgpu"), "{folders:?}");
    assert!(of_folder("half").contains("not a valid record of a run"), "{folders:?}");
    let listed = laptop.run("runs list");
    let told = String::from_utf8_lossy(&listed.stderr);
    assert!(told.contains("left out") && told.contains("rgpu.run/9"), "{told}");
    let of = |id: &str| page["runs"].as_array().unwrap().iter().find(|r| r["id"] == id).unwrap();
    assert!(of("good").get("problem").is_none());
    assert!(of("cut")["problem"].as_str().unwrap().contains("profile.json cannot be read"));
    assert!(of("newer")["problem"].as_str().unwrap().contains("rgpu.profile/7"));
    assert_eq!(of("hostile")["kernel"], hostile);
    fs::remove_dir_all(runs.join("gone")).unwrap();
    for path in ["/runs/gone", "/runs/nobody", "/runs/..", "/runs/%2e%2e%2fx", "/runs/gone/live"] {
        assert_eq!(dashboard.ask(path).0, 404, "{path}");
    }
    let log = dashboard.ask("/runs/good/log/..%2f..%2frun.json");
    assert_eq!(log.0, 404, "{:#}", log.1);
    assert_eq!(dashboard.ask("/runs/half").0, 500);
    let path = format!("/runs/cut/report?key={}", dashboard.key());
    let report = dashboard.send("GET", &path, &[&dashboard.cookie()], "");
    assert!(report.status >= 400 && !report.body.is_empty(), "{}", report.status);
    // The documents of every run that is left keep to their schemas.
    fs::remove_dir_all(runs.join("newer")).unwrap();
}

#[test]
fn a_taken_port_and_a_public_address_are_told() {
    let laptop = Laptop::new();
    let dashboard = Dashboard::start(&laptop, "");
    let output = laptop.run(&format!("dashboard --listen 127.0.0.1:{}", dashboard.port));
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 4, "{told}");
    assert!(told.contains("nothing can listen") && told.contains("--listen 127.0.0.1:0"), "{told}");
    let output = laptop.run("dashboard --listen 0.0.0.0:0");
    assert_eq!(status(&output), 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("ssh -L"));
    let output = laptop.run("dashboard --json");
    assert_eq!(status(&output), 2);
}

#[test]
fn a_locked_foreign_or_rebuilt_database_leaves_the_runs_visible() {
    let laptop = Laptop::new();
    make_run(&laptop, "good", "vecadd", 1);
    assert_eq!(status(&laptop.run("queue add --name one -- true")), 0);
    let dashboard = Dashboard::start(&laptop, "");
    dashboard.get_when("/overview", |page| page["queue"]["waiting"] == 1);
    let path = laptop.project(".rgpu/state.db");
    // Another process holds it alone.
    let script = "import sqlite3, sys, time\n\
                  db = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
                  db.execute('PRAGMA locking_mode=EXCLUSIVE')\n\
                  db.execute('BEGIN EXCLUSIVE'); print('held', flush=True); sys.stdin.read()\n";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn().unwrap();
    let mut held = [0; 4];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut held).unwrap();
    let begun = Instant::now();
    let page = dashboard.get("/overview");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(page["total"], 1);
    assert!(page["problems"][0].as_str().unwrap().contains("busy"), "{page:#}");
    let _ = holder.kill();
    let _ = holder.wait();
    let is_read = |page: &serde_json::Value| page["queue"]["waiting"] == 1;
    dashboard.get_when("/overview", |page| is_read(page) && page["problems"] == json!([]));
    // Made again by somebody else.
    fs::remove_dir_all(laptop.project(".rgpu")).unwrap();
    dashboard.get_when("/overview", |page| page.get("queue").is_none());
    assert_eq!(status(&laptop.run("queue add --name other -- true")), 0);
    dashboard.get_when("/overview", |page| page["queue"]["waiting"] == 1);
    assert_eq!(dashboard.get("/overview")["problems"], json!([]));
    fs::write(laptop.path("home/.local/share/rgpu/state-ids"), "").unwrap();
    let page = dashboard.get_when("/overview", |page| page["problems"] != json!([]));
    assert!(page["problems"][0].as_str().unwrap().contains("was not made by you"), "{page:#}");
    assert_eq!(page["total"], 1);
}
