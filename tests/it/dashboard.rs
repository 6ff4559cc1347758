//! `rgpu dashboard`: its API, who gets in, and its page, with a project of runs, a suite, a queue
//! and a loop on a played GPU host.

mod client;
mod export;
mod faults;
mod states;
mod views;

use std::fs;

use rgpu_model::Profile;
use rgpu_run::store::{RunFolder, RunRecord, RunState};
use serde_json::{Value, json};

use crate::documents;
use crate::laptop::{Laptop, status};
use crate::loops::TestLoop;
use client::Dashboard;

const BENCH: &str = r#"
[defaults]
mode = "bench"
remote = "h200"

[[target]]
name = "memory:vecadd"
kernel = "vecadd"
[target.matrix]
sizes.n = [1000, 4000]
"#;

/// A project with something for each view.
struct Project {
    test: TestLoop,
}

impl Project {
    fn new() -> Self {
        let test = TestLoop::new(&["time 0.8", "time 1.5"]);
        test.run("max_iterations=2", 0);
        let laptop = &test.laptop;
        laptop.write("bench.toml", BENCH);
        for (line, expected) in [
            ("bench run --run-id night", 0),
            ("profile --kernel vecadd --remote h200 --mode ncu --run-id first --label who=me", 0),
            (
                "profile --kernel vecadd --remote h200 --mode ncu --run-id second --note 'a second look'",
                0,
            ),
            ("queue add --name ok -- echo printed", 0),
            ("queue add --name bad -- false", 0),
            ("queue run --once", 0),
            ("queue add --name waits -- true", 0),
        ] {
            let output = laptop.run(line);
            assert_eq!(status(&output), expected, "{}", laptop.shown(line, &output));
        }
        Self { test }
    }

    fn laptop(&self) -> &Laptop {
        &self.test.laptop
    }
}

#[test]
fn documents_of_other_commands_are_those_that_the_commands_print() {
    let project = Project::new();
    let dashboard = Dashboard::start(project.laptop(), "");
    let loops = dashboard.get("/loops");
    let own = loops["loops"][0]["id"].as_str().unwrap();
    assert_eq!(loops["loops"][0]["mode"], "command");
    let log = dashboard.get("/runs/second")["logs"][0]["name"].as_str().unwrap().to_owned();
    let patch = format!("/loops/{own}/iterations/1/patch");
    // The page's own documents have no such command, but they are there.
    for address in ["/hosts", "/queue/1", "/model", &format!("/runs/second/log/{log}"), &patch] {
        assert!(dashboard.get(address).is_object(), "{address}");
    }
    assert_eq!(dashboard.get("/history?case=memory:*")["schema"], "rgpu.history/1");
    let printed = |line: &str| -> Value {
        serde_json::from_slice(&project.laptop().run(line).stdout).unwrap()
    };
    let compared = dashboard.get("/compare?a=first&b=second");
    assert_eq!(compared, printed("compare first second --json"));
    documents::printed_keeps("compare", &compared);
    assert_eq!(dashboard.get("/suites/night"), printed("bench show night --json"));
    assert_eq!(dashboard.get("/queue")["entries"], printed("queue ls --json --all")["entries"]);
    let mut status = printed("loop status --json");
    status.as_object_mut().unwrap().remove("nonce");
    assert_eq!(dashboard.get(&format!("/loops/{own}")), status);
}

/// Makes a run without a host.
fn make_run(laptop: &Laptop, id: &str, kernel: &str, at: usize) {
    let folder = RunFolder::create(&laptop.project("artifacts/runs"), id, None).unwrap();
    let record = RunRecord {
        title: format!("profile {kernel} (ncu)"),
        kernel: kernel.to_owned(),
        mode: "ncu".to_owned(),
        remote: ["h200", "b200"][at % 2].to_owned(),
        started: format!("2026-01-01T{:02}:{:02}:{:02}Z", at / 3600, at / 60 % 60, at % 60),
        state: if at % 7 == 3 { RunState::Failed } else { RunState::Done },
        ..RunRecord::new(id.to_owned(), "profile", jiff::Timestamp::UNIX_EPOCH)
    };
    let mut profile = Profile { schema: rgpu_model::profile::SCHEMA.into(), ..Profile::default() };
    profile.device = Some(["NVIDIA H200", "NVIDIA B200"][at % 2].to_owned());
    profile.timing =
        Some(rgpu_model::profile::Timing { median_ns: 20_000.0 + at as f64, ..Default::default() });
    folder.write_json("profile.json", &profile).unwrap();
    folder.save(&record).unwrap();
}

/// Makes a run of a program of two ranks, of which the second is late.
fn make_run_of_ranks(laptop: &Laptop, id: &str) {
    make_run(laptop, id, "train.py", 200);
    let path = laptop.project("artifacts/runs").join(id).join("profile.json");
    let mut profile: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let rank = |number: u32, idle_ns: u64| {
        json!({"rank": number, "host": "node0", "gpu": number, "pid": 1000 + number, "span_ns": 1_000_000,
            "compute_ns": 800_000 - idle_ns, "communication_ns": 200_000, "exposed_ns": 200_000,
            "overlapped_ns": 0, "copy_ns": 0, "idle_ns": idle_ns, "waited_ns": 100_000 - idle_ns,
            "times_last": number * 9, "late_ns": idle_ns})
    };
    profile["ranks"] = json!({
        "clock": {"source": "report"},
        "ranks": [rank(0, 0), rank(1, 90_000)],
        "collectives": [{"operation": "all_reduce", "group": "0", "ranks": 2, "calls": 10,
            "median_ns": 5000, "total_ns": 50_000, "waited_ns": 90_000}],
        "stragglers": [{"rank": 1, "times_last": 9, "late_ns": 90_000, "cause": "host", "cause_ns": 90_000,
            "region": "step::load_batch"}],
    });
    fs::write(&path, profile.to_string()).unwrap();
}

#[test]
fn the_ranks_of_a_run_are_those_of_its_report() {
    let laptop = Laptop::new();
    make_run(&laptop, "single", "vecadd", 1);
    make_run_of_ranks(&laptop, "ranks");
    let dashboard = Dashboard::start(&laptop, "");
    let page = dashboard.get_when("/overview", |page| page["total"] == 2);
    assert_eq!(page["recent"][0]["ranks"], 2);
    assert!(page["recent"][1].get("ranks").is_none());
    let document = dashboard.get("/runs/ranks");
    let printed = laptop.run("report ranks --json");
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(document["ranks"], printed["ranks"]);
    assert_eq!(document["ranks"]["stragglers"][0]["rank"], 1);
    assert!(dashboard.get("/runs/single").get("ranks").is_none());
}

#[test]
fn the_list_of_runs_is_paged_searched_and_filtered() {
    let laptop = Laptop::new();
    for at in 0..130 {
        make_run(&laptop, &format!("run-{at:03}"), ["matmul", "vecadd"][at % 2], at);
    }
    let dashboard = Dashboard::start(&laptop, "");
    let first = dashboard.get_when("/runs", |page| page["total"] == 130);
    assert_eq!(first["found"], 130);
    assert_eq!(first["runs"].as_array().unwrap().len(), 50);
    assert_eq!(first["runs"][0]["id"], "run-129");
    assert_eq!(first["runs"][0]["trend"].as_array().unwrap().len(), 20);
    assert_eq!(first["runs"][0]["series"], "profile vecadd · ncu · b200 · NVIDIA B200");
    assert_eq!(dashboard.get("/runs?offset=100")["runs"].as_array().unwrap().len(), 30);
    assert_eq!(dashboard.get("/runs?limit=3&offset=3")["runs"][0]["id"], "run-126");
    for (query, found) in [
        ("kernel=mat", 65),
        ("q=MATMUL+run-00", 5),
        ("gpu=NVIDIA+B200", 65),
        ("state=failed", 19),
        ("state=failed&remote=h200", 9),
        ("remote=nobody", 0),
        ("label=who", 0),
    ] {
        assert_eq!(dashboard.get(&format!("/runs?{query}"))["found"], found, "{query}");
    }
    // The times of a kernel are those of all pages, oldest first.
    let kernel = dashboard.get("/runs?kernel=matmul&limit=2");
    let points = kernel["times"][0]["points"].as_array().unwrap();
    assert_eq!((kernel["times"].as_array().unwrap().len(), points.len()), (1, 65));
    assert_eq!((&points[0]["run"], &points[64]["run"]), (&json!("run-000"), &json!("run-128")));
    assert!(first.get("times").is_none());
    assert_eq!(first["facets"]["remote"], json!({"b200": 65, "h200": 65}));
    let (status, refused) = dashboard.ask("/runs?colour=red");
    assert_eq!((status, refused["error"]["code"].as_str()), (400, Some("wrong_query")));
    // What has changed is seen without a new start.
    make_run(&laptop, "run-new", "fresh", 130);
    fs::remove_dir_all(laptop.project("artifacts/runs/run-000")).unwrap();
    dashboard.get_when("/runs?limit=1", |page| page["runs"][0]["id"] == "run-new");
    assert_eq!(dashboard.get("/runs")["total"], 130);
    assert!(dashboard.memory() < 100 << 20, "{} bytes", dashboard.memory());
}

#[test]
fn an_export_is_the_same_page_without_a_server() {
    let project = Project::new();
    let output = project.laptop().run("dashboard export page --reports 2 --json");
    assert_eq!(status(&output), 0, "{}", project.laptop().shown("export", &output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "rgpu.dashboard-export/1");
    assert_eq!(document["reports"], 2);
    let page = fs::read_to_string(project.laptop().project("page/index.html")).unwrap();
    assert!(page.contains("rgpu.dashboard-runs/1") && page.contains("Content-Security-Policy"));
    assert!(project.laptop().project("page/runs/second/report.html").is_file());
}
