//! Counters from the service's own ncu, where the workspace's may not read them.

use std::fs;

use rgpu_model::Profile;
use serde_json::{Value, json};

use super::service::Service;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

const LINE: &str = "profile --kernel vecadd --mode ncu --remote w200 --json";
const RUN: &str = "POST /v1/ncu/run";

/// A laptop with a workspace whose ncu may not read counters, and a service whose own may.
fn refused() -> (Laptop, Service) {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let words = "ncu counters-refused full\nncu counters-refused basic\n";
    fs::write(laptop.path("h200/mischief"), words).unwrap();
    let service = Service::start(&laptop);
    (laptop, service)
}

fn profiled(laptop: &Laptop, line: &str) -> Profile {
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn counters_that_a_workspace_may_not_read_come_from_the_services_own_ncu() {
    let (laptop, _service) = refused();
    let profile = profiled(&laptop, LINE);
    let rungs: Vec<(&str, &str)> = profile
        .ladder
        .iter()
        .filter(|record| record.step == "profile")
        .map(|record| (record.rung.as_str(), record.code.as_str()))
        .collect();
    assert_eq!(rungs, [("ncu.asked", "counters_refused"), ("ncu.launch", ""), ("ncu.service", "")]);
    assert_eq!(profile.rung, "ncu.service");
    assert!(
        profile
            .data_lost_on_rung()
            .unwrap()
            .contains("the provider's ncu ran on one that the provider chose")
    );
    assert_eq!(profile.launches.len(), 1);
    assert!(profile.launches[0].metrics.len() > 100, "{}", profile.launches[0].metrics.len());
    assert!(profile.timing.is_some() && profile.correctness.is_some());
    let report = profile.artifacts.iter().find(|a| a.path == "raw/service.ncu-rep").unwrap();
    assert_eq!(report.kind, "ncu_rep");
    let log = fs::read_to_string(laptop.latest().join("log/service.stdout")).unwrap();
    assert!(log.contains("==PROF=="), "{log}");
    // What the service billed is what the run cost.
    assert_eq!(
        (profile.run.cost_usd, profile.run.cost_from.as_deref()),
        (Some(0.02), Some("provider"))
    );
    assert_eq!(Service::asked(&laptop, RUN), 1);
    assert_eq!(Service::asked(&laptop, "GET /v1/ncu/run/"), 1);
    // People read it too; what the host refused is remembered, what the service gave is not.
    let shown = laptop.run("profile --kernel vecadd --mode ncu --remote w200");
    let table = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(table.contains("ncu.service") && table.contains("as billed"), "{table}");
    let told = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(told.contains("Wafer's own ncu is asked: `ncu.service`"), "{told}");
    assert!(told.contains("position 1 in the queue, about 30 s"), "{told}");
    // It is enough where that much is asked for at least.
    let least = profiled(&laptop, &format!("{LINE} --at-least ncu.basic"));
    assert_eq!(least.rung, "ncu.service");
}

#[test]
fn a_service_that_may_not_read_counters_either_tells_the_launch() {
    let laptop = Laptop::new();
    FakeHost::with(&laptop, &["nsys", "nvcc", "nvidia-smi"]);
    let served = laptop.path("served");
    fs::create_dir_all(served.join("bin")).unwrap();
    std::os::unix::fs::symlink(crate::laptop::built("rgpu-fake"), served.join("bin/ncu")).unwrap();
    fs::write(served.join("mischief"), "ncu counters-refused full\n").unwrap();
    let _service = Service::start(&laptop);
    let profile = profiled(&laptop, LINE);
    assert_eq!(profile.rung, "ncu.service_launch");
    let of = |rung: &str| profile.ladder.iter().find(|record| record.rung == rung).unwrap();
    assert_eq!(of("ncu.asked").code, "tool_missing");
    assert_eq!(of("ncu.service").code, "counters_refused");
    assert!(of("ncu.service").message.contains("ERR_NVGPUCTRPERM"));
    let launch = of("ncu.service_launch").argv.join(" ");
    assert!(launch.contains("--section LaunchStats"), "{launch}");
    // What the workspace itself could trace stays.
    assert!(of("nsys.cuda").ok && laptop.latest().join("trace.json").exists());
    assert_eq!(profile.launches.len(), 1);
}

#[test]
fn a_service_without_an_ncu_or_one_that_fails_costs_the_profile_nothing() {
    let (laptop, service) = refused();
    let answer =
        |status: u16, body: Value| json!([{"on": RUN, "status": status, "body": body.to_string()}]);
    let detail = |words: &str| json!({"detail": words});
    let says = |lines: &[&str]| json!([{"on": RUN, "lines": lines, "stop": lines.len()}]);
    let report = |status: u16, body: &str| json!([{"on": "GET /v1/ncu/run/.*", "status": status, "body": body}]);
    let page =
        json!([{"on": RUN, "status": 200, "body": "<html>hello</html>", "type": "text/html"}]);
    for (rules, code) in [
        (answer(404, detail("Not Found")), "no_served_ncu"),
        (answer(405, detail("Method Not Allowed")), "no_served_ncu"),
        (answer(501, detail("Not Implemented")), "no_served_ncu"),
        (page, "no_served_ncu"),
        (answer(401, detail("Not authenticated")), "refused_token"),
        (answer(402, detail("Insufficient credits")), "no_credit"),
        (answer(503, detail("No GPU available")), "no_gpu"),
        (answer(500, detail("Internal Server Error")), "server_error"),
        (says(&["[ERROR] Session timed out"]), "session_timeout"),
        (says(&["[ERROR] no such container"]), "workspace_command"),
        (says(&["[STATUS:RUNNING]", "a word"]), "link_cut"),
        (json!([{"on": RUN, "cut": 3}]), "link_cut"),
        (says(&["[EXIT:0]", "[DONE]"]), "no_file"),
        (says(&["[EXIT:9]", "[DONE]"]), "no_file"),
        // A program may say so as well as the service.
        (says(&["[REPORT_READY:../../etc]", "[DONE]"]), "no_file"),
        (report(404, "{\"detail\": \"No report\"}"), "no_file"),
        (report(200, "no report of ncu's"), "unreadable_artifact"),
    ] {
        service.faults(&laptop, rules.clone());
        let before = Service::asked(&laptop, RUN);
        let profile = profiled(&laptop, LINE);
        let tried: Vec<_> =
            profile.ladder.iter().filter(|record| record.rung.starts_with("ncu.service")).collect();
        assert_eq!(profile.rung, "ncu.launch", "{rules}");
        assert_eq!(tried.first().map(|record| record.code.as_str()), Some(code), "{rules}");
        // The workspace has told the launch already: nothing less is asked for.
        assert_eq!(Service::asked(&laptop, RUN) - before, 1, "{rules}");
        assert_eq!(profile.launches.len(), 1, "{rules}");
        assert!(!laptop.latest().join("raw/service.part").exists(), "{rules}");
    }
    // A service that nobody wants asked is not.
    service.faults(&laptop, json!([]));
    service.add_remote_to_config(&laptop, "options = { ncu = \"workspace\" }");
    let before = Service::asked(&laptop, RUN);
    assert_eq!(profiled(&laptop, LINE).rung, "ncu.launch");
    assert_eq!(Service::asked(&laptop, RUN), before);
}
