//! The files of workers and reviewers: which count, what they can do, and what rgpu tells them.

use std::fs;
use std::path::PathBuf;

use super::{TestLoop, outcomes};
use crate::laptop::{status, wait_for};

/// The nonce and the folder of the prompt that a manual loop waits with.
fn prompt(test: &TestLoop, phase: &str, iteration: u32) -> (String, PathBuf) {
    test.wait_for_phase(phase, iteration);
    let name = format!("{phase}_prompt.txt");
    let folder = test.folder().join(format!("iter_{iteration:04}"));
    let nonce = wait_for("the prompt", || {
        let nonce = test.json("status")["nonce"].as_str()?.to_owned();
        let text = fs::read_to_string(folder.join(&name)).ok()?;
        text.contains(&nonce).then_some(nonce)
    });
    (nonce, folder)
}

fn put(folder: &std::path::Path, name: &str, text: &str) {
    fs::write(folder.join("new"), text).unwrap();
    fs::rename(folder.join("new"), folder.join(name)).unwrap();
}

#[test]
fn forged_and_stale_files_do_not_count_and_a_reviewer_can_take_back_and_stop() {
    let test = TestLoop::new(&[]);
    let first = test.start("--mode manual", None);
    let (nonce, folder) = prompt(&test, "worker", 1);
    let result = |iteration: u32, nonce: &str| {
        format!("{{\"iteration\": {iteration}, \"nonce\": \"{nonce}\", \"decision\": \"KEEP\"}}")
    };
    // Stale, forged, and half of one.
    let bad = [result(0, &nonce), result(1, "0123456789abcdef"), "{\"iteration\": 1".to_owned()];
    for (number, text) in bad.iter().enumerate() {
        put(&folder, "worker_result.json", text);
        let moved = folder.join(format!("worker_result.rejected-{}.json", number + 1));
        wait_for("the rejection", || moved.exists().then_some(()));
    }
    let waiting = test.json("status");
    assert_eq!(waiting["phase"], "worker");
    let awaited = waiting["awaited"]["file"].as_str().unwrap();
    assert_eq!(test.laptop.project(awaited), folder.join("worker_result.json"));
    let shown = test.laptop.run("loop status").stdout;
    assert!(String::from_utf8_lossy(&shown).contains(awaited), "{awaited}");
    let report = test.laptop.run("loop report-time --iter 1 --time-us 312.4 --note half --json");
    assert_eq!(status(&report), 0);
    let document = serde_json::from_slice(&report.stdout).unwrap();
    crate::documents::printed_keeps("loop-progress", &document);
    assert_eq!(document["best_time_us"], 312.4);
    let progress = fs::read_to_string(folder.join("worker_progress.json")).unwrap();
    assert!(progress.contains("312.4") && progress.contains("half"), "{progress}");
    assert_eq!(status(&test.laptop.run("loop report-time --iter 2 --time-us 1")), 2);
    let source = test.laptop.project("kernels/k/k.cu");
    let text = fs::read_to_string(&source).unwrap().replace("time 1", "time 0.5");
    fs::write(&source, text).unwrap();
    put(&folder, "worker_result.json", &result(1, &nonce));

    let (second, folder) = prompt(&test, "reviewer", 1);
    assert_ne!(second, nonce, "the worker cannot answer for the reviewer");
    let prompt_text = fs::read_to_string(folder.join("reviewer_prompt.txt")).unwrap();
    for words in ["verdict on the change: kept", "2.000 times as fast", "+// rgpu-fake: time 0.5"] {
        assert!(prompt_text.contains(words), "{words}: {prompt_text}");
    }
    assert!(prompt_text.len() <= 24_000);
    let verdict = |nonce: &str| {
        format!(
            "{{\"iteration\": 1, \"nonce\": \"{nonce}\", \"verdict\": \"STOP_BLOCKED\", \
             \"confidence\": \"high\", \"reason\": \"it cheats\", \"requires_revert\": true}}"
        )
    };
    put(&folder, "reviewer_verdict.json", &verdict(&nonce));
    let moved = folder.join("reviewer_verdict.rejected-1.json");
    wait_for("the rejection", || moved.exists().then_some(()));
    put(&folder, "reviewer_verdict.json", &verdict(&second));
    let output = first.wait_with_output().unwrap();
    assert_eq!(status(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    let report = test.report();
    assert_eq!(outcomes(&report), ["reverted_by_reviewer"]);
    assert_eq!(
        status(&test.laptop.run("loop report-time --iter 1 --time-us 1")),
        2,
        "it has stopped"
    );
    assert_eq!(report["stop"]["reason"], "reviewer");
    assert_eq!(test.marker(), "// rgpu-fake: time 1");
}

#[test]
fn files_are_checked_and_their_schemas_printed() {
    let test = TestLoop::new(&[]);
    let worker = r#"{"iteration": 1, "nonce": "x", "decision": "KEEP"}"#;
    let verdict = r#"{"iteration": 1, "nonce": "x", "verdict": "CONTINUE", "confidence": "low", "reason": "-"}"#;
    test.laptop.write("worker.json", worker);
    test.laptop.write("verdict.json", verdict);
    test.laptop.write("bad.json", &verdict.replace("CONTINUE", "GO_ON"));
    for (line, expected) in [
        ("loop validate worker.json", 0),
        ("loop validate verdict.json", 0),
        ("loop validate --kind reviewer verdict.json", 0),
        ("loop validate --kind worker verdict.json", 7),
        ("loop validate bad.json", 7),
        ("loop validate none.json", 2),
        ("schema loop-worker --check worker.json", 0),
        ("schema loop-reviewer --check verdict.json", 0),
        ("schema loop-reviewer --check bad.json", 7),
        ("loop schema worker", 0),
        ("loop status", 2),
        ("loop start none.toml", 2),
        ("loop start loop.toml max_iteration=3", 3),
        ("loop start loop.toml kernel_path=kernels/none", 3),
        ("loop start loop.toml kernel_path=/etc", 3),
    ] {
        let output = test.laptop.run(line);
        assert_eq!(status(&output), expected, "{}", test.laptop.shown(line, &output));
    }
    for (file, kind) in [("worker.json", "worker"), ("verdict.json", "reviewer")] {
        let output = test.laptop.run(&format!("loop validate {file} --json"));
        let document = serde_json::from_slice(&output.stdout).unwrap();
        crate::documents::printed_keeps("loop-check", &document);
        assert_eq!((&document["file"], &document["kind"]), (&file.into(), &kind.into()));
    }
}
