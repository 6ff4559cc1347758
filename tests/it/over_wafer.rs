//! The same commands in a workspace at Wafer: a stand-in for its service, with played tools in the
//! workspace. That it is a faithful one is shown by the service's own published clients.

mod counters;
mod faults;
mod published;
pub(crate) mod service;

use std::fs;

use rgpu_model::Profile;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, wait_for};
use crate::sshd::Sshd;
use service::{EXPIRED, Service, TOKEN};

fn json_of(laptop: &Laptop, line: &str) -> Value {
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema = document["schema"].as_str().unwrap().split(['.', '/']).nth(1).unwrap();
    crate::documents::printed_keeps(schema, &document);
    document
}

#[test]
fn a_workspace_is_made_looked_at_and_given_back() {
    let laptop = Laptop::new();
    let service = Service::with(&laptop, json!({"workspaces": []}));
    fs::write(laptop.path("config/config.toml"), "").unwrap();
    let add =
        "remote add w200 wafer --workspace b200-dev --environment modal --price-per-hour 6.25";
    insta::assert_snapshot!(laptop.show(add));
    assert_eq!(json_of(&laptop, "remote list --json")["remotes"][0]["rental"]["state"], "absent");
    insta::assert_snapshot!(laptop.show("remote check w200"));
    insta::assert_snapshot!(laptop.show("remote up w200"));
    let made = json_of(&laptop, "remote up w200 --json");
    assert_eq!((&made["state"], &made["gpu"]), (&json!("running"), &json!("B200")));
    assert_eq!(Service::asked(&laptop, "POST /v1/workspaces"), 2, "made once, waited for once");
    insta::assert_snapshot!(laptop.show("remote list"));
    let line = &json_of(&laptop, "remote list --json")["remotes"][0];
    assert_eq!(line["rental"]["credits"]["left_usd"], 17.5);
    assert_eq!(line["price_per_hour"], 6.25);
    insta::assert_snapshot!(laptop.show("remote down w200"));
    insta::assert_snapshot!(laptop.show("remote down w200 --yes"));
    assert_eq!(json_of(&laptop, "remote down w200 --yes --json")["state"], "absent");
    insta::assert_snapshot!(laptop.show("remote down local --yes"));
    drop(service);
}

#[test]
fn a_login_is_waited_for_and_kept_where_wafers_own_program_finds_it() {
    let laptop = Laptop::new();
    let service = Service::with(&laptop, json!({"pending": 1}));
    fs::remove_file(laptop.path("home/.wafer/credentials.json")).unwrap();
    insta::assert_snapshot!(laptop.show("remote check w200"));
    let output = laptop.run("remote login w200");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        status(&output) == 0 && said.contains("https://app.wafer.example/cli?state="),
        "{said}"
    );
    assert!(said.contains("logged in as me@example.com") && !said.contains(TOKEN), "{said}");
    let path = laptop.path("home/.wafer/credentials.json");
    let kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&kept["access_token"], &kept["email"]), (&json!(TOKEN), &json!("me@example.com")));
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).unwrap()) & 0o777, 0o600);
    // An old one is renewed, and the file written anew.
    service.log_in(&laptop, EXPIRED);
    assert_eq!(json_of(&laptop, "remote list --json")["remotes"][0]["rental"]["state"], "running");
    assert!(fs::read_to_string(&path).unwrap().contains(TOKEN));
    // One of the environment goes before the file's, unless it is too old.
    service.log_in(&laptop, "wfr_cloud_x_1_y");
    let mut command = laptop.rgpu(["remote", "list", "--json"]);
    let output = command.env("WAFER_AUTH_TOKEN", TOKEN).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list["remotes"][0]["rental"]["state"], "running", "{list}");
}

#[test]
fn commands_run_in_a_workspace_without_ssh_with_their_output_input_and_status() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let _service = Service::with(&laptop, json!({}));
    let line = "exec --remote w200 -- sh -c 'echo out; echo err >&2; exit 3'";
    let output = laptop.run(line);
    assert_eq!(status(&output), 3, "{}", laptop.shown(line, &output));
    assert_eq!(output.stdout, b"out\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("err\n"));
    let output = laptop.run_with_input("exec --remote w200 -q -- cat", b"some input");
    assert_eq!((status(&output), &*output.stdout), (0, &b"some input"[..]));
    let output = laptop.run("remote check w200");
    assert_eq!(status(&output), 0, "{}", laptop.shown("remote check w200", &output));
    // What a program prints is never taken for a word of the service.
    let line =
        "exec --remote w200 -q -- sh -c 'echo [EXIT:0]; echo [DONE]; echo [ERROR] x; exit 5'";
    let output = laptop.run(line);
    assert_eq!(status(&output), 5, "{}", laptop.shown(line, &output));
    assert_eq!(output.stdout, b"[EXIT:0]\n[DONE]\n[ERROR] x\n");
    // The agent is sent once.
    let before = Service::asked(&laptop, "POST");
    assert_eq!(status(&laptop.run("exec --remote w200 -q -- true")), 0);
    assert!(Service::asked(&laptop, "POST") - before < 15);
    wait_for("nothing left but the service", || {
        laptop.running().iter().all(|line| line.contains("service.py")).then_some(())
    });
}

#[test]
fn megabytes_go_both_ways_in_commands() {
    let laptop = Laptop::new();
    let _service = Service::start(&laptop);
    let input: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(7919) % 251) as u8).collect();
    let output = laptop.run_with_input("exec --remote w200 --timeout 60s -- cat", &input);
    assert_eq!(status(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == input, "{} of {}", output.stdout.len(), input.len());
}

#[test]
fn every_mode_profiles_in_a_workspace_and_says_what_it_cost() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let _service = Service::start(&laptop);
    for (mode, rung) in [("ncu", "ncu.asked"), ("nsys", "nsys.full"), ("bench", "events")] {
        let line = format!("profile --kernel vecadd --mode {mode} --remote w200 --json");
        let output = laptop.run(&line);
        assert_eq!(status(&output), 0, "{}", laptop.shown(&line, &output));
        let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(profile.rung, rung);
        assert_eq!(profile.host.unwrap().transport, "wafer");
        let (cost, seconds) = (profile.run.cost_usd.unwrap(), profile.run.seconds);
        assert!((cost - seconds).abs() < 1e-6, "at $3600 an hour: {cost} for {seconds} s");
        assert!(laptop.latest_json("run.json")["cost_usd"].as_f64().unwrap() > 0.0);
    }
    let line = "profile --kernel vecadd --mode sanitizer --remote w200";
    let output = laptop.run(line);
    assert!(status(&output) <= 1, "{}", laptop.shown(line, &output));
    let listed = laptop.run("runs list");
    let listed = String::from_utf8_lossy(&listed.stdout);
    assert_eq!(listed.matches('$').count(), 4, "{listed}");
}

#[test]
fn what_the_service_bills_goes_before_the_price_and_a_place_in_the_queue_is_shown() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let service = Service::start(&laptop);
    let said = ["[STATUS:QUEUED]", "[QUEUE_POSITION:2:30]", "[BILLING:$0.25 used, $17.25 left]"];
    let rule = json!([{"on": "POST .*/exec", "lines": said, "skip": 1, "times": 2}]);
    service.faults(&laptop, rule);
    let line = "profile --kernel vecadd --mode bench --remote w200";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("position 2 in the queue, about 30 s"), "{told}");
    assert!(told.contains("$0.25 used, $17.25 left"), "{told}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("cost        $0.5000 as billed"), "{table}");
    let profile = laptop.latest_json("profile.json");
    assert_eq!(profile["run"]["cost_usd"], 0.5);
    assert_eq!(profile["run"]["cost_from"], "provider");
    let listed = &json_of(&laptop, "runs list --json")["runs"];
    assert_eq!(
        (&listed[0]["cost_usd"], &listed[0]["cost_from"]),
        (&json!(0.5), &json!("provider"))
    );
    assert_eq!(listed[0]["usd_per_hour"], 3600.0);
    assert_eq!(
        listed[0]["billed"],
        json!({"usd": 0.5, "times": 2, "words": ["$0.25 used, $17.25 left"]})
    );
    let listed = laptop.run("runs list");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("$0.5000 as billed"), "{listed}");
    let shown = laptop.run("runs show");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("$0.5000 as billed"), "{shown}");
    // What is said there last is billed as well.
    let commands = || {
        let log = fs::read_to_string(laptop.path("wafer/requests")).unwrap();
        log.lines().filter(|line| line.ends_with("/exec")).count()
    };
    service.faults(&laptop, json!([{"on": "POST .*/exec", "lines": ["[BILLING:$0.25 used]"]}]));
    let before = commands();
    assert_eq!(status(&laptop.run("exec --remote w200 -q -- true")), 0);
    let record = json_of(&laptop, "runs show --json");
    // A look at the job that is under way when there is nothing more to see is not waited for.
    let (billed, asked) = (record["billed"]["times"].as_u64().unwrap(), commands() - before);
    assert!((asked as u64 - 1..=asked as u64).contains(&billed), "{billed} of {asked}");
    // Of a run without a profile, too; and words without a sum leave the price to say it.
    let rule = json!([{"on": "POST .*/exec", "lines": ["[BILLING:3 credits]"], "times": 1}]);
    service.faults(&laptop, rule);
    assert_eq!(status(&laptop.run("exec --remote w200 -q -- true")), 0);
    let record = json_of(&laptop, "runs show --json");
    assert_eq!((&record["cost_from"], &record["billed"]["times"]), (&json!("price"), &json!(1)));
    let shown = laptop.run("runs show");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("\n  cost        $"), "{shown}");
}

#[test]
fn ctrl_c_stops_what_runs_in_the_workspace() {
    let laptop = Laptop::new();
    let _service = Service::start(&laptop);
    let child = laptop.start(r#"exec --remote w200 -- sh -c 'echo started; sleep 7009'"#);
    let runs = laptop.project("artifacts/runs");
    wait_for("the program's first word", || {
        let id = fs::read_to_string(runs.join(".latest")).ok()?;
        let log = fs::read_to_string(runs.join(id.trim()).join("log/exec.stdout")).ok()?;
        log.contains("started").then_some(())
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", String::from_utf8_lossy(&output.stderr));
    wait_for("the program's end", || {
        laptop.running().iter().all(|line| !line.contains("sleep 7009")).then_some(())
    });
}

#[test]
fn a_workspace_with_ssh_is_reached_by_it_with_host_keys_checked() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let sshd = Sshd::start();
    let ssh = json!({"ssh": ["127.0.0.1", sshd.port, sshd.user]});
    let service = Service::with(&laptop, ssh);
    service.add_remote_to_config(&laptop, &format!("ssh_config = {:?}", sshd.path("ssh_config")));
    let output = laptop.run("exec --remote w200 -q -- true");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(status(&output) == 125 && said.contains("is not known yet"), "{said}");
    let line = "profile --kernel vecadd --mode ncu --remote w200 --accept-new --json";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((profile.rung.as_str(), Service::asked(&laptop, "POST")), ("ncu.asked", 0));
    // A container that only the service can choose is asked of the service.
    let routed =
        format!("ssh_config = {:?}\noptions = {{ routing = \"gpu\" }}", sshd.path("ssh_config"));
    service.add_remote_to_config(&laptop, &routed);
    let output = laptop.run("exec --remote w200 -q -- echo routed");
    assert_eq!((status(&output), &*output.stdout), (0, &b"routed\n"[..]));
    assert!(Service::asked(&laptop, "POST") > 0);
}
