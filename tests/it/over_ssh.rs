//! The same commands over ssh: a real OpenSSH server on this machine, with played tools behind it.

use std::fs;

use rgpu_model::Profile;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, OF_MANY_GPUS, status, wait_for};
use crate::sshd::{Cutter, Sshd, free_port, keygen};

const NCU: &str = "profile --kernel vecadd --mode ncu --remote box --accept-new --json";

/// Makes the server known to the laptop as `box`, with the played tools on its path.
pub(crate) fn add_remote_to_config(laptop: &Laptop, sshd: &Sshd, port: u16) {
    let settings = format!(
        "[remote.box]\nurl = \"ssh://{}@127.0.0.1:{port}\"\nssh_config = {:?}\npath = [{:?}]\nenv = {{ RGPU_FAKE_HOST = {:?} }}\n",
        sshd.user,
        sshd.path("ssh_config"),
        laptop.path("h200/bin"),
        laptop.path("h200"),
    );
    fs::write(laptop.path("config/config.toml"), settings).unwrap();
}

fn shown(laptop: &Laptop, sshd: &Sshd, line: &str) -> String {
    let text = laptop.show(line);
    let folder = sshd.path("").to_string_lossy().trim_end_matches('/').to_owned();
    let text = text
        .replace(&folder, "[SSHD]")
        .replace(&format!("{}@", sshd.user), "[USER]@")
        .replace(&format!("`{}`", sshd.user), "`[USER]`");
    let text = regex::Regex::new("SHA256:[A-Za-z0-9+/]{43}").unwrap().replace_all(&text, "[KEY]");
    regex::Regex::new(r"127\.0\.0\.1(\]?):\d+")
        .unwrap()
        .replace_all(&text, "127.0.0.1$1:[PORT]")
        .into_owned()
}

#[test]
fn a_profile_over_ssh_is_whole_though_the_hosts_start_up_file_prints() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let sshd = Sshd::start();
    for file in [".bashrc", ".profile", ".zshenv", ".kshrc"] {
        fs::write(sshd.path("home").join(file), "echo 'Welcome!'; printf 'no newline'\n").unwrap();
    }
    add_remote_to_config(&laptop, &sshd, sshd.port);
    for _ in 0..2 {
        let output = laptop.run(NCU);
        assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
        let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(profile.rung, "ncu.asked");
        assert_eq!(profile.host.unwrap().transport, "ssh");
        assert!(profile.launches[0].metrics.len() > 500);
    }
    let output = laptop.run("exec --remote box -- nvidia-smi -L");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("GPU 0: NVIDIA H200"));
}

#[test]
fn the_hosts_settings_for_communication_between_gpus_reach_a_program() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    let exports = OF_MANY_GPUS.map(|setting| format!("export {setting}\n")).concat();
    for file in [".bashrc", ".profile", ".zshenv", ".kshrc"] {
        fs::write(sshd.path("home").join(file), format!("{exports}export SLURM_JWT=secret\n"))
            .unwrap();
    }
    add_remote_to_config(&laptop, &sshd, sshd.port);
    let output = laptop.run("exec --remote box --accept-new -- env");
    let shown = laptop.shown("exec --remote box --accept-new -- env", &output);
    let env = String::from_utf8_lossy(&output.stdout);
    for setting in OF_MANY_GPUS {
        assert!(env.lines().any(|line| line == setting), "{setting}: {shown}");
    }
    assert!(!env.contains("SLURM_JWT"), "{shown}");
}

#[test]
fn hosts_that_cannot_be_trusted_or_reached_are_status_four() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    // Nobody is there to be asked.
    insta::assert_snapshot!(shown(&laptop, &sshd, "profile --kernel vecadd --remote box"));
    assert_eq!(status(&laptop.run("exec --remote box --accept-new -- true")), 0);
    // Another machine answers in its place.
    fs::remove_file(sshd.path("host_key")).unwrap();
    keygen(&sshd.path("host_key"));
    let sshd = sshd.restart("");
    insta::assert_snapshot!(shown(&laptop, &sshd, "remote check box"));
    add_remote_to_config(&laptop, &sshd, free_port());
    insta::assert_snapshot!(shown(&laptop, &sshd, "profile --kernel vecadd --remote box"));
}

#[test]
fn a_user_who_may_not_log_in_is_told_what_was_tried() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    fs::write(sshd.path("authorized_keys"), "").unwrap();
    let text = shown(&laptop, &sshd, "remote check box --accept-new");
    assert!(text.ends_with("status 4\n"), "{text}");
    insta::assert_snapshot!(text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_cut_in_the_middle_costs_the_profile_nothing() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let sshd = Sshd::start();
    let cutter = Cutter::before(sshd.port).await;
    add_remote_to_config(&laptop, &sshd, cutter.port);
    tokio::task::block_in_place(|| {
        let child = laptop.start(NCU);
        host.wait_for_gate("ncu");
        // The tool waits, so nothing comes from the server but keep-alives: the link dies at the
        // next byte. Then it is whole again.
        let before = cutter.links();
        cutter.cut_after(0);
        host.open_gate("ncu");
        wait_for("another link", || (cutter.links() > before).then_some(()));
        cutter.cut_after(u64::MAX);
        let output = child.wait_with_output().unwrap();
        assert_eq!(status(&output), 0, "{}", laptop.shown(NCU, &output));
        let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(profile.rung, "ncu.asked");
        assert!(profile.launches[0].metrics.len() > 500);
        let log = fs::read_to_string(laptop.latest().join("log/profile.stdout")).unwrap();
        assert_eq!(log.matches("==PROF== Profiling").count(), 1, "{log}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn input_that_a_cut_meets_in_the_middle_arrives_whole_and_once() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    let cutter = Cutter::before(sshd.port).await;
    add_remote_to_config(&laptop, &sshd, cutter.port);
    tokio::task::block_in_place(|| {
        assert_eq!(status(&laptop.run("exec --remote box --accept-new -- true")), 0);
        let before = cutter.links() + 1;
        let (printed, told) = laptop.typed_around(
            "exec --remote box --timeout 60s -- cat",
            || cutter.cut_after(0),
            || {
                wait_for("another link", || (cutter.links() > before).then_some(()));
                cutter.cut_after(u64::MAX);
            },
        );
        assert_eq!(printed, "first\nsecond\nthird\nlast\n");
        assert!(told.contains("reconnected"), "{told}");
        // Who reads the events later is not told how long the first attempt had to wait.
        let events = fs::read_to_string(laptop.latest().join("events.jsonl")).unwrap();
        assert!(events.contains("\"link_lost\"") && !events.contains("reconnecting"), "{events}");
    });
}

#[test]
fn input_and_output_of_many_megabytes_flow_at_once() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    assert_eq!(status(&laptop.run("exec --remote box --accept-new -- true")), 0);
    let input: Vec<u8> = (0..30_000_000_u32).map(|i| (i * 7 / 3 % 256) as u8).collect();
    for _ in 0..4 {
        // A command whose two directions wait for each other is stopped there.
        let line = "exec --remote box --timeout 60s -- cat";
        let output = laptop.run_with_input(line, &input);
        assert_eq!(status(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == input, "{} of {}", output.stdout.len(), input.len());
    }
}

#[test]
fn a_command_that_is_being_flooded_with_input_and_floods_back_hears_a_signal() {
    let laptop = Laptop::new();
    let sshd = Sshd::start();
    add_remote_to_config(&laptop, &sshd, sshd.port);
    assert_eq!(status(&laptop.run("exec --remote box --accept-new -- true")), 0);
    let output = laptop.run_flooded_until_stopped("exec --remote box -- cat");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cancelling"), "{said}");
    assert!(status(&output) >= 128, "{said}");
}
