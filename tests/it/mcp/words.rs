//! What an agent cannot start on this machine: it has the tools, and can write files of the
//! project.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::client::Client;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

fn campaign(of: &str, action: &str, arguments: &[&str]) -> Value {
    json!({"of": of, "action": action, "arguments": arguments, "wait_s": 45})
}

/// A program of the project that leaves a mark if it is started.
fn write_program(laptop: &Laptop, name: &str) {
    let mark = laptop.project("started");
    laptop.write(name, &format!("#!/bin/sh\necho $0 $@ >> {}\n", mark.display()));
    fs::set_permissions(laptop.project(name), fs::Permissions::from_mode(0o755)).unwrap();
}

#[track_caller]
fn nothing_started(laptop: &Laptop) {
    let mark = fs::read_to_string(laptop.project("started"));
    assert!(mark.is_err(), "{mark:?}");
}

#[test]
fn the_queue_takes_no_environment_and_no_other_program_however_they_are_spelled() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    write_program(&laptop, "rgpu");
    let mut client = Client::start(&laptop);
    let report = ["--", "rgpu", "report", "none"];
    for words in [
        &["--env=PATH=."][..],
        &["--env", "PATH=."],
        &["--env=LD_PRELOAD=./x.so"],
        &["--env=SSH_AUTH_SOCK"],
        &["--en=PATH=."],
        &["--name", "--env=PATH=."],
        &["-e", "PATH=."],
    ] {
        let error =
            client.refused("campaign", campaign("queue", "add", &[words, &report].concat()));
        assert_eq!(error["code"], "wrong_argument", "{words:?}: {error:#}");
    }
    for words in [
        &["--file=rgpu"][..],
        &["--", "./rgpu"],
        &["--", "rgpu", "exec", "--mount=.", "--", "true"],
        &["--", "rgpu", "exec", "--env-file=x", "--", "true"],
        &["--", "rgpu", "loop", "start", "loop.toml", "worker_command=./rgpu"],
        &["--", "rgpu", "loop", "tui", "--run", "--", "loop.toml", "worker_command=./rgpu"],
        &["--", "rgpu", "queue", "add", "--", "./rgpu"],
    ] {
        let error = client.refused("campaign", campaign("queue", "add", words));
        assert_eq!(error["code"], "wrong_argument", "{words:?}: {error:#}");
    }
    let error = client.refused("campaign", campaign("queue", "ls", &[]));
    assert_eq!(error["code"], "no_queue", "nothing was added: {error:#}");
    drop(client);

    // A PATH of the user that leads into the project starts our own program all the same.
    let path = format!(".:{}", std::env::var("PATH").unwrap());
    let mut client = Client::start_with(&laptop, &[("PATH", &path)]);
    client.call("campaign", campaign("queue", "add", &report));
    let ran = client.call("campaign", campaign("queue", "run", &[]));
    assert_eq!(ran["document"]["entries"][0]["state"], "failed", "{ran:#}");
    drop(client);
    nothing_started(&laptop);
}

#[test]
fn an_agents_runner_starts_only_rgpu_whatever_the_database_says() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    write_program(&laptop, "evil");
    assert_eq!(status(&laptop.run("queue add -- ./evil of the user")), 0);
    assert_eq!(status(&laptop.run("queue add --after 1 -- ./evil after it")), 0);
    let mut client = Client::start(&laptop);
    for _ in 0..3 {
        client.call("campaign", campaign("queue", "add", &["--", "rgpu", "report", "none"]));
    }
    // The agent writes the database: another program, a preloaded library, a file as script.
    let db = Connection::open(laptop.project(".rgpu/state.db")).unwrap();
    let argv = |id: i64| -> Vec<u8> {
        let query = "SELECT argv FROM queue_entry WHERE id = ?1";
        db.query_row(query, [id], |row| row.get(0)).unwrap()
    };
    assert!(argv(3).starts_with(b"/"), "{:?}", String::from_utf8_lossy(&argv(3)));
    db.execute("UPDATE queue_entry SET argv = ?1 WHERE id = 4", [b"./evil\0".to_vec()]).unwrap();
    let env = format!("PATH=.\0BASH_ENV={0}\0LD_PRELOAD={0}\0", laptop.project("evil").display());
    db.execute("UPDATE queue_entry SET env = ?1 WHERE id = 5", [env.into_bytes()]).unwrap();
    drop(db);
    let ran = client.call("campaign", campaign("queue", "run", &[]));
    assert_eq!(ran["state"], "done", "{ran:#}");
    assert!(ran["messages"].as_str().unwrap().contains("1, 2, 4"), "{ran:#}");
    let states: Vec<(i64, &str)> = (ran["document"]["entries"].as_array().unwrap().iter())
        .map(|entry| (entry["id"].as_i64().unwrap(), entry["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states, [(3, "failed"), (5, "failed")], "{ran:#}");
    let log = fs::read_to_string(laptop.project(".rgpu/queue/5/1.log")).unwrap();
    assert!(!log.contains("LD_PRELOAD"), "{log}");
    nothing_started(&laptop);
    // The user's own runner starts what the user added.
    assert_eq!(status(&laptop.run("queue cancel 4")), 0);
    laptop.run("queue run --once");
    let mark = fs::read_to_string(laptop.project("started")).unwrap();
    assert_eq!(mark.lines().count(), 2, "{mark}");
}

#[test]
fn an_entry_of_an_agent_is_checked_again_when_it_runs() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let secret = laptop.path("secret.sh");
    fs::write(&secret, "echo secret\n").unwrap();
    laptop.write("in.sh", "echo fine\n");
    let mut client = Client::start(&laptop);
    let entry = ["--", "rgpu", "exec", "--remote=h200", "in.sh"];
    for _ in 0..2 {
        client.call("campaign", campaign("queue", "add", &entry));
    }
    // The file becomes a link, and the database names another file.
    fs::remove_file(laptop.project("in.sh")).unwrap();
    std::os::unix::fs::symlink(&secret, laptop.project("in.sh")).unwrap();
    let db = Connection::open(laptop.project(".rgpu/state.db")).unwrap();
    let query = "SELECT argv FROM queue_entry WHERE id = 2";
    let argv: Vec<u8> = db.query_row(query, [], |row| row.get(0)).unwrap();
    let argv = String::from_utf8(argv).unwrap().replace("in.sh", secret.to_str().unwrap());
    db.execute("UPDATE queue_entry SET argv = ?1 WHERE id = 2", [argv.into_bytes()]).unwrap();
    drop(db);
    let ran = client.call("campaign", campaign("queue", "run", &[]));
    assert_eq!(ran["state"], "done", "{ran:#}");
    for id in 1..=2 {
        let log = laptop.project(format!(".rgpu/queue/{id}/1.log"));
        let log = fs::read_to_string(log).unwrap();
        assert!(log.contains("outside of the project"), "{log}");
        assert!(!log.contains("echo secret"), "{log}");
    }
}

#[test]
fn an_agent_gets_kernels_and_includes_of_its_project_alone() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let kernel = "name = \"private\"\nsource = \"private.cu\"\n";
    for folder in ["other/kernels/private", "other/kernels/linked"] {
        fs::create_dir_all(laptop.path(folder)).unwrap();
        fs::write(laptop.path(folder).join("kernel.toml"), kernel).unwrap();
        fs::write(laptop.path(folder).join("private.cu"), "// secret\n").unwrap();
    }
    laptop.write("rgpu.toml", "kernel_path = [\"../other/kernels\"]\n");
    fs::create_dir_all(laptop.project("kernels")).unwrap();
    let linked = laptop.path("other/kernels/linked");
    std::os::unix::fs::symlink(linked, laptop.project("kernels/linked")).unwrap();
    let mut client = Client::start(&laptop);
    for name in ["private", "linked"] {
        let error = client.refused("profile", json!({"kernel": name, "remote": "h200"}));
        let told = error.to_string();
        assert!(
            told.contains("outside of the project") || told.contains("symbolic link"),
            "{name}: {told}"
        );
    }
}

#[test]
fn a_loop_that_starts_a_program_is_for_the_user_and_a_manual_one_is_not() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    write_program(&laptop, "worker");
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vecadd");
    for entry in fs::read_dir(shipped).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            laptop.write(&format!("kernels/k/{name}"), &fs::read_to_string(&path).unwrap());
        }
    }
    let manual = "kernel_path = \"kernels/k\"\nremote = \"h200\"\nprofile_mode = \"none\"\n";
    laptop.write("manual.toml", manual);
    let command = format!("{manual}mode = \"command\"\nworker_command = \"./worker x\"\n");
    laptop.write("loop.toml", &command);
    let mut client = Client::start(&laptop);
    for words in [
        &["manual.toml", "worker_command=./worker", "mode=command"][..],
        &["manual.toml", "reviewer_command=./worker"],
        &["manual.toml", "instructions=/etc/passwd"],
        &["loop.toml", "--fresh"],
    ] {
        let error = client.refused("campaign", campaign("loop", "start", words));
        assert_eq!(error["code"], "wrong_argument", "{words:?}: {error:#}");
    }
    let error = client.refused("campaign", campaign("loop", "start", &["loop.toml"]));
    assert_eq!(error["code"], "needs_user", "{error:#}");
    assert!(error["what"].as_str().unwrap().contains("`./worker x`"), "{error:#}");
    assert!(error["hints"].to_string().contains("rgpu loop start loop.toml"), "{error:#}");
    // Through the queue it is refused as well, also by the user's own runner.
    let add = ["--", "rgpu", "loop", "start", "loop.toml"];
    client.call("campaign", campaign("queue", "add", &add));
    laptop.run("queue run --once");
    let log = fs::read_to_string(laptop.project(".rgpu/queue/1/1.log")).unwrap();
    assert!(log.contains("which an agent may not do"), "{log}");
    nothing_started(&laptop);
    // A loop whose worker is the agent.
    let dry = ["manual.toml", "--mode=dry-run", "max_iterations=1"];
    let ran = client.call("campaign", campaign("loop", "start", &dry));
    assert_eq!(ran["state"], "done", "{ran:#}");
    nothing_started(&laptop);
}

#[test]
fn an_agent_reaches_only_hosts_of_the_users_settings() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    fs::create_dir(laptop.path("home/.ssh")).unwrap();
    fs::write(laptop.path("home/.ssh/config"), "Host prod\n  HostName 127.0.0.1\n").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = Client::start(&laptop);
    for remote in [format!("ssh://{address}"), format!("http://{address}"), "prod".to_owned()] {
        for (tool, arguments) in [
            ("hosts", json!({"action": "doctor", "remote": remote})),
            ("exec", json!({"argv": ["true"], "remote": remote})),
            ("build", json!({"kernel": "vecadd", "remote": remote})),
            ("profile", json!({"kernel": "vecadd", "mode": "verify", "remote": remote})),
            (
                "compare",
                json!({"kernels": ["transpose-conflicts", "transpose-padded"], "remote": remote}),
            ),
        ] {
            let error = client.refused(tool, arguments);
            assert_eq!(error["code"], "remote_of_agent", "{tool} {remote}: {error:#}");
        }
    }
    let flag = format!("--remote=ssh://{address}");
    for (of, action, words) in [
        ("bench", "run", &[flag.as_str()][..]),
        ("queue", "add", &["--", "rgpu", "exec", &flag, "--", "true"]),
        ("loop", "start", &["loop.toml", &flag[2..]]),
    ] {
        let error = client.refused("campaign", campaign(of, action, words));
        assert_eq!(error["code"], "wrong_argument", "{words:?}: {error:#}");
    }
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nothing connected");
    // The user's own command line may.
    let output = laptop.run(&format!("exec --remote ssh://{address} --timeout 1 -- true"));
    assert_ne!(status(&output), 0);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("an agent may not"));
}

#[test]
fn an_agents_program_is_a_file_of_the_project_and_no_private_one() {
    let laptop = Laptop::new();
    // With a remote that is this machine nothing is sent.
    let added = laptop.run("remote add far ssh://me@127.0.0.1:1");
    assert_eq!(status(&added), 0, "{}", laptop.shown("remote add", &added));
    fs::write(laptop.path("secret.py"), "secret\n").unwrap();
    fs::create_dir(laptop.project(".ssh")).unwrap();
    laptop.write(".ssh/x.py", "secret\n");
    let absolute = laptop.path("secret.py").display().to_string();
    std::os::unix::fs::symlink(&absolute, laptop.project("linked.py")).unwrap();
    let mut client = Client::start(&laptop);
    for program in [
        &["../secret.py"][..],
        &[absolute.as_str()],
        &["python3", "../secret.py"],
        &["env", "A=1", "python3", "linked.py"],
        &[".ssh/x.py"],
        &["python3", ".ssh/x.py"],
    ] {
        let arguments = json!({"program": program, "mode": "nsys", "remote": "far"});
        let error = client.refused("profile", arguments);
        assert_eq!(error["code"], "wrong_argument", "{program:?}: {error:#}");
    }
}
