//! The same commands through Modal's door: a stand-in with Modal's behaviours before a real worker.
//! What a user reads in each of its cases, and that nothing is lost or run twice.

mod each_request;
pub(super) mod fake_proxy;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rgpu_model::Profile;
use rgpu_model::suite::SuiteRun;

use super::worker::Worker;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};
use fake_proxy::{FakeModalProxy, Fault, KEY, ReceivedRequest, SECRET, add_remote_to_config};

const NCU: &str = "profile --kernel vecadd --mode ncu --remote b200 --json";
const AMPLE: Duration = Duration::from_secs(20);

/// What `remote check` shows a user, without the port.
fn checked(laptop: &Laptop, port: u16) -> String {
    let shown = laptop.show("remote check b200").replace(&port.to_string(), "[PORT]");
    for secret in [KEY, SECRET, "hunter2"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    shown
}

#[test]
fn a_profile_through_modals_door_is_whole_also_from_a_cold_start() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let worker = Worker::start(&laptop);
    let app = FakeModalProxy::start(Some(&worker), AMPLE, |request| match request.before {
        0 => Fault::Cold(Duration::from_secs(4)),
        _ => Fault::None,
    });
    app.add_remote_to_config(&laptop);
    let output = laptop.run(&format!("{NCU} --events {}", laptop.path("events").display()));
    assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "ncu.asked");
    assert_eq!(profile.host.unwrap().transport, "modal");
    assert!(profile.launches[0].metrics.len() > 500);
    let events = std::fs::read_to_string(laptop.path("events")).unwrap();
    assert!(events.contains("a container of the app is being started"), "{events}");
}

#[test]
fn cases_of_a_suite_are_spread_over_connections_of_one_app() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let worker = Worker::start(&laptop);
    let app = FakeModalProxy::start(Some(&worker), AMPLE, |_| Fault::None);
    app.add_remote_to_config(&laptop);
    laptop.write(
        "bench.toml",
        "[[target]]\nname = \"memory:vecadd\"\nkernel = \"vecadd\"\nmode = \"bench\"\n\
         [target.matrix]\nsizes.n = [1000, 2000, 3000]\n",
    );
    let line = "bench run --remote b200 --parallel 8 --run-id night --json";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let run: SuiteRun = serde_json::from_slice(&output.stdout).unwrap();
    assert!(run.clean, "{run:#?}");
    assert_eq!(run.options.parallel, Some(8));
    // There are no more connections than cases.
    let hosts: BTreeSet<u32> = run.rows.iter().map(|row| row.host_number.unwrap_or(0)).collect();
    assert_eq!(hosts, BTreeSet::from([0, 1, 2]));
}

#[test]
fn what_is_put_off_is_followed_by_get_alone_and_runs_once() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    // Everything is put off, and every result twice more.
    let app = FakeModalProxy::start(Some(&worker), AMPLE, |request| match request.result {
        false => Fault::Late,
        true if request.before % 3 != 0 => Fault::Late,
        true => Fault::None,
    });
    app.add_remote_to_config(&laptop);
    let line = "exec --remote b200 -- sh -c 'echo once >> ../../../ran; echo out; exit 3'";
    let output = laptop.run(line);
    assert_eq!(status(&output), 3, "{}", laptop.shown(line, &output));
    assert_eq!(output.stdout, b"out\n");
    assert_eq!(std::fs::read_to_string(laptop.path("agent/ran")).unwrap(), "once\n");
    let log = app.log();
    assert!(log.iter().filter(|line| line.contains("call_id")).count() > 2, "{log:#?}");
    for line in log.iter().filter(|line| line.contains("call_id")) {
        assert!(line.starts_with("GET "), "{log:#?}");
    }
    assert_eq!(log.iter().filter(|line| line.ends_with(" submits")).count(), 1, "{log:#?}");
}

#[test]
fn a_submit_whose_answer_is_lost_runs_once() {
    for fault in [
        || {
            Fault::Lost(
                "500 Internal Server Error",
                "modal-http: internal error: Server has lost track of input",
            )
        },
        || {
            Fault::Lost(
                "500 Internal Server Error",
                "modal-http: internal error: function was terminated by signal",
            )
        },
        || {
            Fault::Lost(
                "408 Request Timeout",
                "modal-http: Missing request, possibly due to expiry or cancellation",
            )
        },
        || Fault::Lost("502 Bad Gateway", "<html>bad gateway</html>"),
        || Fault::Cut(0),
        || Fault::Cut(30),
        || Fault::Cut(400),
        || Fault::Late,
    ] {
        let laptop = Laptop::new();
        let worker = Worker::start(&laptop);
        let submits = AtomicUsize::new(0);
        let app = FakeModalProxy::start(Some(&worker), AMPLE, move |request| {
            if request.submits && submits.fetch_add(1, Ordering::SeqCst) == 0 {
                fault()
            } else {
                Fault::None
            }
        });
        app.add_remote_to_config(&laptop);
        let line = "exec --remote b200 -- sh -c 'echo once >> ../../../ran; echo out; exit 3'";
        let output = laptop.run(line);
        assert_eq!(status(&output), 3, "{}", laptop.shown(line, &output));
        assert_eq!(output.stdout, b"out\n");
        assert_eq!(std::fs::read_to_string(laptop.path("agent/ran")).unwrap(), "once\n");
    }
}

/// Writes a file anew, as long as before, and as if within one tick of its file system's clock.
fn write_within_a_tick(path: &Path, byte: u8) {
    let before = std::fs::metadata(path).unwrap();
    std::fs::write(path, vec![byte; usize::try_from(before.len()).unwrap()]).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
}

#[test]
fn a_large_file_that_is_written_anew_while_it_is_sent_goes_over_as_it_is_then() {
    const BYTES: usize = 3 << 20;
    let line = |laptop: &Laptop| {
        let ran = laptop.path("ran");
        format!(
            "exec --remote b200 --mount data -- sh -c 'echo once >> {}; cat big'",
            ran.display()
        )
    };
    // The time tells, or does not.
    for tells in [false, true] {
        let laptop = Laptop::new();
        let worker = Worker::start(&laptop);
        let big = laptop.write("data/big", "");
        std::fs::write(&big, vec![b'a'; BYTES]).unwrap();
        let (path, written) = (big.clone(), AtomicUsize::new(0));
        let app = FakeModalProxy::start(Some(&worker), AMPLE, move |request| {
            if request.submits && written.fetch_add(1, Ordering::SeqCst) == 0 {
                write_within_a_tick(&path, b'b');
                if tells {
                    std::fs::write(&path, vec![b'b'; BYTES]).unwrap();
                }
            }
            Fault::None
        });
        app.add_remote_to_config(&laptop);
        let line = line(&laptop);
        let output = laptop.run(&line);
        assert_eq!(status(&output), 0, "{}", laptop.shown(&line, &output));
        assert_eq!(output.stdout.iter().filter(|b| **b == b'b').count(), BYTES);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("changed during the upload"), "{said}");
        assert_eq!(std::fs::read_to_string(laptop.path("ran")).unwrap(), "once\n");
        let plan: serde_json::Value = laptop.latest_json("plan-1.json");
        let digest = crate::host::digest(&vec![b'b'; BYTES]).to_string();
        assert_eq!(plan["files"][0]["digest"], digest);
    }
    // One that never rests is an error, and nothing runs.
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let big = laptop.write("data/big", "");
    std::fs::write(&big, vec![b'a'; BYTES]).unwrap();
    let written = AtomicUsize::new(0);
    let app = FakeModalProxy::start(Some(&worker), AMPLE, move |request| {
        if request.submits {
            write_within_a_tick(&big, b'b' + written.fetch_add(1, Ordering::SeqCst) as u8 % 20);
        }
        Fault::None
    });
    app.add_remote_to_config(&laptop);
    let line = line(&laptop);
    let output = laptop.run(&line);
    assert_eq!(status(&output), 125, "{}", laptop.shown(&line, &output));
    assert!(!laptop.path("ran").exists());
    assert_eq!(app.log().iter().filter(|line| line.ends_with(" submits")).count(), 2);
}

#[test]
fn a_profile_is_whole_although_every_third_request_meets_a_fault() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let worker = Worker::start(&laptop);
    let app = FakeModalProxy::start(Some(&worker), AMPLE, |request: &ReceivedRequest| {
        match (request.before % 3, request.before / 3 % 6) {
            (2, 0) => Fault::Refused("503 Service Unavailable", "<html>busy</html>"),
            (2, 1) => Fault::Late,
            (2, 2) => Fault::Refused("404 Not Found", "modal-http: invalid function call"),
            (2, 3) => Fault::Refused(
                "500 Internal Server Error",
                "modal-http: internal error: Server has lost track of input",
            ),
            (2, 4) => Fault::Cut(200),
            (2, 5) => Fault::Cut(2000),
            _ => Fault::None,
        }
    });
    app.add_remote_to_config(&laptop);
    let output = laptop.run(NCU);
    assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(profile.rung, "ncu.asked");
    let log = std::fs::read_to_string(laptop.latest().join("log/profile.stdout")).unwrap();
    assert_eq!(log.matches("==PROF== Profiling").count(), 1, "{log}");
}

#[test]
fn a_warm_command_is_few_requests() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let app = FakeModalProxy::start(Some(&worker), AMPLE, |_| Fault::None);
    app.add_remote_to_config(&laptop);
    let line = "exec --remote b200 -q -- true";
    assert_eq!(status(&laptop.run(line)), 0);
    let cold = app.log().len();
    assert_eq!(status(&laptop.run(line)), 0);
    let log = app.log().split_off(cold);
    let count = |what: &str| log.iter().filter(|line| line.contains(what)).count();
    let [begins, submits, ends] = ["begin=true", " submits", "eof=true"].map(count);
    assert_eq!((begins, submits, ends), (1, 1, 1), "{log:#?}");
    // Our hello, which may go with the plan, and the removal of the job; the others wait for the
    // agent.
    assert!(count("wait_ms=0") <= 4 && log.len() <= 12, "{log:#?}");
}

#[test]
fn a_page_in_the_place_of_any_answer_is_never_taken_for_one() {
    let line = "exec --remote b200 -- sh -c 'echo once >> ../../../ran; echo out; exit 3'";
    for at in 1..5 {
        let laptop = Laptop::new();
        let worker = Worker::start(&laptop);
        let app = FakeModalProxy::start(Some(&worker), AMPLE, move |request| {
            if request.before == at {
                Fault::Refused("200 OK", "<html><h1>Log in to the network</h1></html>")
            } else {
                Fault::None
            }
        });
        app.add_remote_to_config(&laptop);
        let output = laptop.run(line);
        let said = laptop.shown(line, &output);
        // The job's own end, or one clear error; the job itself at most once.
        match status(&output) {
            3 => assert_eq!(output.stdout, b"out\n", "{at}: {said}"),
            125 => assert!(said.contains("Log in to the network"), "{at}: {said}"),
            _ => panic!("{at}: {said}"),
        }
        let ran = std::fs::read_to_string(laptop.path("agent/ran")).unwrap_or_default();
        assert!(["", "once\n"].contains(&ran.as_str()), "{at}: {ran}");
        assert!(status(&output) != 3 || ran == "once\n");
    }
}

#[test]
fn modals_own_words_are_told_by_name_with_what_to_do() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let mut shown = String::new();
    for (status, body) in [
        ("404 Not Found", "modal-http: invalid function call"),
        ("404 Not Found", "modal-http: workspace me is disabled"),
        ("404 Not Found", "<html><body>Not Found</body></html>"),
        ("410 Gone", "modal-http: app for invoked web endpoint is stopped"),
        ("400 Bad Request", "modal-http: bad redirect method"),
        (
            "408 Request Timeout",
            "modal-http: Missing request, possibly due to expiry or cancellation",
        ),
        ("500 Internal Server Error", "modal-http: internal error: function execution timed out"),
        (
            "500 Internal Server Error",
            "modal-http: internal error: function was terminated by signal",
        ),
        ("500 Internal Server Error", "modal-http: internal error: Server has lost track of input"),
        ("503 Service Unavailable", "<html>busy</html>"),
        ("200 OK", "<html><h1>Welcome</h1></html>"),
    ] {
        let app =
            FakeModalProxy::start(Some(&worker), AMPLE, move |_| Fault::Refused(status, body));
        app.add_remote_to_config(&laptop);
        shown += &format!("# {status}: {body}\n{}\n", checked(&laptop, app.port));
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn an_app_is_woken_and_held_against_our_version() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let app = FakeModalProxy::start(Some(&worker), AMPLE, |request| match request.before {
        0 => Fault::Cold(Duration::from_secs(4)),
        _ => Fault::None,
    });
    app.add_remote_to_config(&laptop);
    let mut shown = laptop.show("remote up b200");
    let output = laptop.run("remote up b200 --json");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::documents::printed_keeps("rental", &said);
    assert_eq!(said["state"], "running");
    assert_eq!(said["version"], env!("CARGO_PKG_VERSION"));
    // It is asked who it is, and nothing more: no container with a GPU is started.
    assert!(app.log().iter().all(|line| line.starts_with("GET /v1/health")), "{:#?}", app.log());
    let old = r#"{"rgpu":1,"features":[],"required":[],"version":"0.0.1"}"#;
    let app = FakeModalProxy::start(Some(&worker), AMPLE, move |_| Fault::Refused("200 OK", old));
    app.add_remote_to_config(&laptop);
    shown += &laptop.show("remote up b200");
    shown += &laptop.show("remote down b200 --yes");
    insta::assert_snapshot!(shown.replace(&app.port.to_string(), "[PORT]"));
}

#[test]
fn tokens_that_cannot_be_right_are_told_with_what_to_do_and_go_nowhere() {
    let laptop = Laptop::new();
    let app = FakeModalProxy::start(None, AMPLE, |_| Fault::None);
    let mut shown = String::new();
    for file in [
        "",
        "MODAL_KEY=ak-hunter2\nMODAL_SECRET=as-hunter2\n",
        "MODAL_KEY=ws-hunter2\nMODAL_SECRET=wk-hunter2\n",
        "MODAL_KEY=wk-hunter2\nMODAL_SECRET=ws-hunter2\n",
    ] {
        add_remote_to_config(&laptop, app.port, file);
        let masked = file.replace("hunter2", "…").replace('\n', " ");
        shown += &format!("# {masked}\n{}\n", checked(&laptop, app.port));
    }
    insta::assert_snapshot!(shown);
    // The last alone was sent.
    assert_eq!(app.log().len(), 1);
    app.add_remote_to_config(&laptop);
    assert!(checked(&laptop, app.port).contains("no app is running at this address"));
}

#[test]
fn results_that_go_round_and_those_that_lead_elsewhere_are_left_and_shown_no_token() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let elsewhere = FakeModalProxy::start(None, AMPLE, |_| Fault::None);
    let port = elsewhere.port;
    let mut shown = String::new();
    let app = FakeModalProxy::start(Some(&worker), AMPLE, |_| Fault::Round);
    app.add_remote_to_config(&laptop);
    shown += &checked(&laptop, app.port);
    assert!(app.log().len() > 5);
    let foreign = format!("http://127.0.0.1:{port}/v1/health?__modal_function_call_id=fc-1");
    for to in [foreign, "https://evil.example/".into(), "/login".into()] {
        let said = to.clone();
        let app =
            FakeModalProxy::start(Some(&worker), AMPLE, move |_| Fault::Elsewhere(to.clone()));
        app.add_remote_to_config(&laptop);
        shown += &format!("# {said}\n{}\n", checked(&laptop, app.port));
        assert_eq!(app.log().len(), 1);
    }
    assert_eq!(elsewhere.log().len(), 0);
    insta::assert_snapshot!(shown.replace(&port.to_string(), "[OTHER]"));
}

#[test]
fn an_app_is_added_by_the_address_that_its_deployment_printed() {
    let laptop = Laptop::new();
    let add = "remote add b200 modal --url https://me--rgpu.modal.run --env-file modal.env";
    let mut shown = laptop.show(add);
    let file = laptop.write("modal.env", "MODAL_KEY=wk-1\n");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for line in [
        add,
        "remote list",
        "remote add b200 modal",
        "remote add b200 modal --url me--rgpu.modal.run",
        "remote add b200 modal --url http://example.com",
        "remote add b200 https://box --url https://me--rgpu.modal.run",
        "remote add b200 modal --url https://me--rgpu.modal.run --jump a",
        "remote check b200",
    ] {
        shown += &laptop.show(line);
    }
    insta::assert_snapshot!(shown);
}
