//! Mistakes in the settings and hosts that can never measure: each stops a loop at once.

use std::fs;
use std::net::TcpListener;

use super::{TestLoop, git, outcomes};
use crate::laptop::{status, words};

/// Runs a command that must end with this status, and returns what it says.
fn refused(test: &TestLoop, line: &str, expected: i32) -> String {
    let output = test.laptop.run(line);
    let shown = test.laptop.shown(line, &output);
    assert_eq!(status(&output), expected, "{shown}");
    shown
}

#[test]
fn an_unknown_remote_is_refused_before_there_is_a_loop() {
    let test = TestLoop::new(&["time 0.5"]);
    let said = refused(&test, "loop start loop.toml remote=nosuchremote", 3);
    assert_eq!(said.matches("there is no remote `nosuchremote`").count(), 1, "{said}");
    refused(&test, "loop status", 2);
}

#[test]
fn an_address_in_loop_toml_is_refused() {
    let test = TestLoop::new(&["time 0.5"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let file = test.laptop.project("loop.toml");
    let text = fs::read_to_string(&file).unwrap();
    for scheme in ["http", "ssh"] {
        let address = format!("{scheme}://{}", listener.local_addr().unwrap());
        fs::write(&file, text.replace("\"h200\"", &format!("{address:?}"))).unwrap();
        let said = refused(&test, "loop start loop.toml", 3);
        let add = format!("rgpu remote add NAME {address}");
        for words in ["a project may not choose", "loop.toml", &add, "`remote=NAME`"] {
            assert!(said.contains(words), "`{words}` is missing:\n{said}");
        }
    }
    assert!(listener.accept().is_err(), "a project chose the host");
    refused(&test, "loop status", 2);
}

#[test]
fn a_remote_that_is_removed_meanwhile_stops_the_loop_until_it_is_resumed() {
    let test = TestLoop::new(&["time 0.5"]);
    test.start("max_iterations=1 infra_retry_delay=30s", Some("loop in compare")).wait().unwrap();
    let settings = test.laptop.path("config/config.toml");
    let known = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, "").unwrap();
    let said = refused(&test, "loop resume", 3);
    // Once while it runs, and once at its end.
    assert_eq!(said.matches("there is no remote `h200`").count(), 2, "{said}");
    assert!(said.contains("`rgpu loop resume` continues the loop"), "{said}");
    assert_eq!(test.json("status")["phase"], "compare");
    assert!(test.laptop.show("loop status").contains("there is no remote `h200`"));
    fs::write(&settings, known).unwrap();
    refused(&test, "loop resume", 0);
    assert_eq!(outcomes(&test.report()), ["kept"]);
}

#[test]
fn wrong_values_are_refused_with_their_place_and_the_allowed_ones() {
    let test = TestLoop::new(&[]);
    let file = test.laptop.project("loop.toml");
    let text = fs::read_to_string(&file).unwrap();
    for (line, wanted) in [
        ("profile_mode = \"fast\"", "`fast` is not a mode; there are `ncu`"),
        ("problem_sizes = [\"huge\"]", "`huge`"),
        ("allowed_paths = [\"src/*.cu\"]", "`src/*.cu` matches no file"),
        ("max_wall_time = 0", "must be above 0"),
        ("instructions = \"none.md\"", "none.md` cannot be read"),
        ("max_iterations = \"many\"", "expected u32"),
        ("reviewer_command = \"no-such-program\"", "no program `no-such-program`"),
    ] {
        let key = line.split(' ').next().unwrap();
        let others: Vec<&str> = text.lines().filter(|other| !other.starts_with(key)).collect();
        fs::write(&file, format!("\n{line}\n{}\n", others.join("\n"))).unwrap();
        let said = refused(&test, "loop start loop.toml", 3);
        for words in [wanted, &format!("`{key}`: "), "loop.toml:2"] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    refused(&test, "loop status", 2);
}

#[test]
fn the_kernel_is_found_from_the_project_folder_wherever_the_command_is_typed() {
    let test = TestLoop::new(&[]);
    // It says where the project is.
    test.laptop.write("rgpu.toml", "");
    // In `kernels` there is a folder with the kernel's name.
    for kernel in ["k", "kernels/k", "kernels/k/kernel.toml"] {
        let line =
            format!("loop start ../loop.toml --mode dry-run max_iterations=1 kernel_path={kernel}");
        let mut command = test.laptop.rgpu(words(&line));
        let output = command.current_dir(test.laptop.project("kernels")).output().unwrap();
        assert_eq!(status(&output), 0, "{}", test.laptop.shown(&line, &output));
        assert_eq!(test.report()["kernel_path"], "kernels/k");
    }
}

#[test]
fn old_loops_are_named_in_full_and_can_be_removed() {
    let test = TestLoop::new(&[]);
    git(&test, "init -q");
    let ids: Vec<String> = (0..3)
        .map(|_| {
            let report = test.run("--mode dry-run max_iterations=1", 0);
            report["id"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(git(&test, "for-each-ref refs/rgpu/loop").lines().count(), 3);
    let output = test.laptop.run("loop status 2");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 2, "{said}");
    assert!(ids.iter().all(|id| said.contains(id)), "{said}");
    refused(&test, &format!("loop status {}", ids[0]), 0);

    refused(&test, "loop clean", 2);
    let planned = test.laptop.run("loop clean --dry-run");
    let planned = String::from_utf8_lossy(&planned.stdout);
    assert!(planned.contains(&format!("would remove {}", ids[0])), "{planned}");
    refused(&test, &format!("loop status {}", ids[0]), 0);
    let output = test.laptop.run("loop prune --json --yes");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::documents::printed_keeps("loop-pruned", &document);
    assert_eq!(document["removed"], serde_json::json!(ids[..2]));
    refused(&test, &format!("loop status {}", ids[0]), 2);
    let folders = fs::read_dir(test.laptop.project("artifacts/loop")).unwrap().flatten();
    let left: Vec<String> = folders
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    assert_eq!(left, [ids[2].clone()]);
    let refs = git(&test, "for-each-ref --format=%(refname) refs/rgpu/loop");
    assert_eq!(refs.trim(), format!("refs/rgpu/loop/{}", ids[2]));
    assert_eq!(test.report()["id"], ids[2].as_str());
    test.laptop.show("loop prune --keep 0 --yes");
    refused(&test, "loop status", 2);
}
