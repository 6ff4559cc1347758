//! What a service answers that is out of credit, out of GPUs, of another mind or not itself; and
//! streams that end in the middle.

use serde_json::{Value, json};

use super::service::{EXPIRED, Service, TOKEN};
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for};

const EXEC: &str = "POST .*/exec";

#[test]
fn every_refusal_has_a_name_and_a_remedy_and_tells_no_token() {
    let laptop = Laptop::new();
    let service = Service::start(&laptop);
    let said = |status, body: &str| json!([{"on": EXEC, "status": status, "body": body}]);
    let mut shown = String::new();
    for rules in [
        said(401, r#"{"detail": "Invalid token"}"#),
        said(402, r#"{"detail": "Insufficient credits"}"#),
        said(404, r#"{"detail": "Workspace not found"}"#),
        said(400, r#"{"detail": "Workspace is not running"}"#),
        json!([{"on": EXEC, "lines": ["[ERROR] Out of credits"]}]),
        json!([{"on": EXEC, "status": 200, "body": "<html>Welcome to nginx</html>", "type": "text/html"}]),
        json!([{"on": "GET .*", "status": 200, "body": "<html>a captive portal</html>", "type": "text/html"}]),
        json!([{"on": "GET .*", "status": 404, "body": "<html>nothing here</html>", "type": "text/html"}]),
        said(503, r#"{"detail": "No GPU available"}"#),
        json!([{"on": EXEC, "lines": ["[ERROR] Session timed out"]}]),
        json!([{"on": EXEC, "stop": 1}]),
        json!([{"on": EXEC, "lines": ["[EXIT:0]"]}]),
        json!([{"on": EXEC, "lines": ["[DONE]"]}]),
        json!([{"on": EXEC, "cut": 1}]),
    ] {
        service.faults(&laptop, rules.clone());
        let text = laptop.show("exec --remote w200 -- true");
        assert!(!text.contains("e30."), "{text}");
        let port = format!(":{}", service.port);
        shown += &format!("## {rules}\n{}\n", text.replace(&port, ":[PORT]"));
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn a_workspace_that_does_not_run_and_a_login_that_is_too_old_are_told_at_once() {
    let laptop = Laptop::new();
    let known = json!({"workspaces": [
        {"name": "b200-dev", "gpu_type": "B200", "environment": "modal", "status": "creating"}
    ]});
    let service = Service::with(&laptop, known);
    insta::assert_snapshot!(laptop.show("remote check w200"));
    service.faults(&laptop, json!([{"on": ".*provision-stream", "lines": ["[STATUS:ERROR]"]}]));
    insta::assert_snapshot!(laptop.show("remote up w200"));
    service.faults(
        &laptop,
        json!([{"on": "POST /auth/v1/token", "status": 400,
        "body": "{\"detail\": \"Invalid Refresh Token\"}"}]),
    );
    service.log_in(&laptop, EXPIRED);
    insta::assert_snapshot!(laptop.show("remote check w200"));
    assert_eq!(Service::asked(&laptop, "POST /v1/workspaces/b200-dev/exec"), 0);
}

#[test]
fn a_token_is_called_wrong_or_expired_as_far_as_that_is_known() {
    let laptop = Laptop::new();
    let service = Service::start(&laptop);
    let mut shown = String::new();
    let mut show = |what: &str| {
        let port = format!(":{}", service.port);
        let text = laptop.show("remote check w200").replace(&port, ":[PORT]");
        assert!(!text.contains("e30.") && !text.contains("hunter2"), "{text}");
        shown += &format!("## {what}\n{text}\n");
    };
    // The stand-in's own words.
    service.log_in(&laptop, "e30.eyJleHAiOjQxMDI0NDQ4MDB9.another");
    show("another's token");
    service.log_in(&laptop, TOKEN);
    for detail in ["Not authenticated", "Token has expired", "Invalid token"] {
        let body = json!({"detail": detail}).to_string();
        service.faults(&laptop, json!([{"on": "GET .*", "status": 401, "body": body}]));
        show(detail);
    }
    service.faults(&laptop, json!([]));
    std::fs::write(
        laptop.path("home/.wafer/credentials.json"),
        json!({"access_token": "hunter2"}).to_string(),
    )
    .unwrap();
    show("no token at all");
    let old = json!({"access_token": EXPIRED}).to_string();
    std::fs::write(laptop.path("home/.wafer/credentials.json"), old).unwrap();
    show("an old one that nothing renews");
    insta::assert_snapshot!(shown);
}

#[test]
fn streams_that_are_cut_stop_or_are_lost_cost_a_profile_nothing() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let service = Service::with(&laptop, json!({}));
    // In the middle of the program's upload, of the bundle's, and of everything that follows.
    let every = |n: u32, what: Value| {
        let mut rules = Vec::new();
        for at in 0..40 {
            let mut rule = what.clone();
            rule["on"] = EXEC.into();
            rule["skip"] = (n + at * 13).into();
            rule["times"] = 1.into();
            rules.push(rule);
        }
        rules
    };
    let rules = [
        every(2, json!({"cut": 2})),
        every(5, json!({"stop": 1})),
        every(7, json!({"lose": true})),
        every(9, json!({"status": 502, "body": "<html>bad gateway</html>"})),
    ];
    service.faults(&laptop, Value::from(rules.concat()));
    let line = "profile --kernel vecadd --mode ncu --remote w200 --json";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let profile: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile["rung"], "ncu.asked");
    let log = std::fs::read_to_string(laptop.latest().join("log/profile.stdout")).unwrap();
    assert_eq!(log.matches("==PROF== Profiling").count(), 1, "{log}");
}

#[test]
fn a_service_that_is_gone_for_a_while_is_waited_for_and_what_was_submitted_runs_once() {
    let laptop = Laptop::new();
    let service = Service::start(&laptop);
    let ran = laptop.path("ran");
    let line = format!(
        "exec --remote w200 -- sh -c 'echo once >> {}; sleep 4; echo late; exit 6'",
        ran.display()
    );
    let child = laptop.start(&line);
    wait_for("the program to begin", || ran.exists().then_some(()));
    // Out of service for longer than one command is tried.
    service.faults(&laptop, json!([{"on": "(GET|POST) .*", "status": 502, "body": ""}]));
    std::thread::sleep(std::time::Duration::from_secs(8));
    service.faults(&laptop, json!([]));
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 6, "{}", laptop.shown(&line, &output));
    assert_eq!(output.stdout, b"late\n");
    assert_eq!(std::fs::read_to_string(ran).unwrap(), "once\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("link"), "it is told");
}

/// A command in a workspace whose `nth` exec meets a fault; what came of it.
fn troubled(what: &Value, nth: usize) -> Option<(Laptop, std::process::Output, String)> {
    let laptop = Laptop::new();
    let service = Service::start(&laptop);
    let mut rule = what.clone();
    rule["on"] = EXEC.into();
    rule["skip"] = nth.into();
    rule["times"] = 1.into();
    service.faults(&laptop, json!([rule]));
    std::fs::write(laptop.write("data/big", ""), vec![7; 200_000]).unwrap();
    let ran = laptop.path("ran");
    let line = format!(
        "exec --remote w200 --mount data --pull made -- \
         sh -c 'echo once >> {}; echo out; sleep 2; cp big made; echo end; exit 3'",
        ran.display()
    );
    let output = laptop.run(&line);
    let said = laptop.shown(&line, &output);
    let met = Service::asked(&laptop, "POST /v1/workspaces") > nth;
    let ran = std::fs::read_to_string(ran).unwrap_or_default();
    assert!(["", "once\n"].contains(&ran.as_str()), "{what} {nth}: {ran}\n{said}");
    let made = std::fs::read(laptop.project("data/made"));
    match status(&output) {
        3 => {
            assert_eq!(output.stdout, b"out\nend\n", "{what} {nth}: {said}");
            assert_eq!((ran.as_str(), made.unwrap()), ("once\n", vec![7; 200_000]));
        }
        // Nothing half-written.
        125 => assert!(made.is_err(), "{what} {nth}: {said}"),
        _ => panic!("{what} {nth}: {said}"),
    }
    drop(service);
    met.then_some((laptop, output, said))
}

#[test]
fn a_stream_that_just_stops_is_cut_or_is_lost_costs_nothing_in_any_phase() {
    for what in [json!({"stop": 1}), json!({"cut": 2}), json!({"lose": true})] {
        let mut phases = 0;
        for nth in 0.. {
            let Some((_, output, said)) = troubled(&what, nth) else { break };
            assert_eq!(status(&output), 3, "{what} {nth}: {said}");
            phases += 1;
        }
        assert!(phases > 4, "{what}: {phases}");
    }
}

#[test]
fn a_workspace_whose_container_dies_in_any_phase_is_told_and_runs_nothing_twice() {
    // How long each command waits for news is a matter of moments: none may end while the program
    // runs.
    assert!((0..3).any(|_| deaths_at_each_command() > 0), "it never died while the program ran");
}

/// A container dies at each command in turn; how often that was told.
fn deaths_at_each_command() -> usize {
    let (mut told, mut whole) = (0, 0);
    for nth in 0.. {
        let Some((laptop, output, said)) = troubled(&json!({"die": true}), nth) else { break };
        let state = laptop.latest_json("run.json")["state"].clone();
        if status(&output) == 3 {
            // It died before the program began, or when all was said.
            (whole, _) = (whole + 1, assert_eq!(state, "done"));
            continue;
        }
        told += 1;
        laptop.wait_until_quiet();
        assert_eq!(state, "failed", "{nth}: {said}");
        assert!(said.contains("the job's supervisor died"), "{nth}: {said}");
    }
    assert!(whole > 1, "{told} {whole}");
    told
}
