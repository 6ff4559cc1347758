//! Expected times: when they are written, and what they judge.

use std::fs;

use rgpu_model::suite::SuiteVerdict;
use rgpu_model::suite_history::History;

use super::{SUITE, laptop_with, suite};
use crate::documents::printed_keeps;
use crate::laptop::status;

#[test]
fn expectations_come_from_three_sessions_of_a_clean_tree_and_judge_later_ones() {
    let (laptop, _host) = laptop_with(SUITE);
    laptop.write(".gitignore", "artifacts/\n.rgpu/\nexpectations/\n");
    let git = |line: &str| {
        let words = ["-c", "user.name=x", "-c", "user.email=x@x"];
        let mut git = std::process::Command::new("git");
        git.current_dir(laptop.project("")).args(words).args(line.split(' '));
        assert!(git.output().unwrap().status.success(), "git {line}");
    };
    git("init -q");
    git("add .");
    git("commit -qm suite");
    let run = |n: usize, flags: &str, expected| {
        let line = format!("bench run -t memory:vecadd --run-id s{n} {flags}");
        let output = laptop.run(&line);
        let shown = laptop.shown(&line, &output);
        assert_eq!(status(&output), expected, "{shown}");
        shown
    };
    run(1, "", 0);
    let shown = run(2, "--update-expectations", 0);
    assert!(
        shown.contains("fewer than 3 sessions") && shown.contains("--accept few-sessions"),
        "{shown}"
    );
    let folder = laptop.project("expectations");
    assert!(!folder.exists());
    let shown = run(3, "--update-expectations", 0);
    assert!(shown.contains("2 of 2 expected times written"), "{shown}");
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&file).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    printed_keeps("expectations", &value);
    assert_eq!(value["entries"][0]["sessions"], 3);
    // Faster and slower by the file alone: the played times never change.
    let times = |text: &str, by: f64| {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        for entry in value["entries"].as_array_mut().unwrap() {
            entry["median_ns"] = (entry["median_ns"].as_f64().unwrap() * by).into();
            for at in 0..2 {
                entry["ci95_ns"][at] = (entry["ci95_ns"][at].as_f64().unwrap() * by).into();
            }
        }
        fs::write(&file, value.to_string()).unwrap();
    };
    let judged = |n: usize, flags: &str, expected| {
        let run =
            suite(&laptop, &format!("bench run -t memory:vecadd --run-id s{n} {flags}"), expected);
        run.rows[0].times[0].against.as_ref().unwrap().verdict
    };
    assert_eq!(judged(4, "--fail-on slower --validity strict", 0), SuiteVerdict::Same);
    times(&text, 0.9);
    assert_eq!(judged(5, "--fail-on slower", 1), SuiteVerdict::Slower);
    times(&text, 1.1);
    assert_eq!(judged(6, "--fail-on slower", 0), SuiteVerdict::Faster);
    // At other clocks it would be slower or faster for no cause in the kernel.
    let shown = laptop.show("bench run -t memory:vecadd --run-id locked --lock-clocks 1500");
    for words in ["expected: 2 times", "INCOMPARABLE: expected under another clock policy"] {
        assert!(shown.contains(words), "{shown}");
    }
    assert!(shown.ends_with("status 0\n"), "{shown}");
    // Two remotes name their cases apart; what is expected is of the GPU.
    let config = laptop.path("config/config.toml");
    let settings = fs::read_to_string(&config).unwrap();
    let twin = settings.replace("[remote.h200]", "[remote.twin]");
    fs::write(&config, settings + &twin).unwrap();
    let run_twins = suite(&laptop, "bench run -t memory:vecadd --remote h200,twin", 0);
    assert_eq!((run_twins.rows.len(), run_twins.times().count()), (4, 4));
    for (row, time) in run_twins.times() {
        assert!(row.case.contains('@'), "{}", row.case);
        assert_eq!(time.against.as_ref().unwrap().verdict, SuiteVerdict::Faster);
    }
    let output = laptop.run("bench history memory:vecadd --json");
    let history: History = serde_json::from_slice(&output.stdout).unwrap();
    let has = |case: &str| history.series.iter().any(|series| series.key.case == case);
    assert!(has("memory:vecadd[n=1000]") && has("memory:vecadd[n=1000]@twin"), "{history:#?}");
    // A baseline of its own name begins anew, beside the others.
    let shown = laptop.show("bench run -t memory:vecadd --baseline v1");
    assert!(
        shown.contains("there is no baseline `v1`") && shown.ends_with("status 3\n"),
        "{shown}"
    );
    let line = "bench run -t memory:vecadd --run-id v1 --baseline v1 --update-expectations";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    assert_eq!(fs::read_dir(folder.join("v1")).unwrap().count(), 1);
    fs::write(&file, "{").unwrap();
    let run_v1 = suite(&laptop, "bench run -t memory:vecadd --baseline v1 --fail-on new", 0);
    assert!(run_v1.times().all(|(_, time)| {
        time.against.as_ref().is_some_and(|judged| judged.verdict == SuiteVerdict::Same)
    }));
    fs::write(&file, &text).unwrap();
    // A changed file is another state of the tree.
    laptop.write("later.txt", "x");
    let shown = run(7, "--update-expectations", 0);
    assert!(shown.contains("files differ from the commit"), "{shown}");
    fs::write(&file, text.replace("memory:vecadd[n=1000]", "memory:gone")).unwrap();
    let shown = run(8, "", 3);
    assert!(shown.contains("`memory:gone`"), "{shown}");
    let audit = laptop.run("bench audit --json");
    let audit: serde_json::Value = serde_json::from_slice(&audit.stdout).unwrap();
    printed_keeps("audit", &audit);
    assert!(audit.to_string().contains("expectation_without_case"), "{audit:#}");
    // Another file has cases of its own, and so has a project without one.
    laptop.write("other.toml", &SUITE.replace("memory:", "other:"));
    let other = suite(&laptop, "bench run -t other:vecadd --file other.toml", 0);
    assert!(other.orphans.is_empty(), "{other:#?}");
    let shown = laptop.show("bench audit --file other.toml");
    assert!(!shown.contains("expectation_without_case"), "{shown}");
    assert!(shown.contains("the expectations are of the project's own bench.toml"), "{shown}");
    let own = suite(&laptop, "bench run -t memory:vecadd --file ./bench.toml", 3);
    assert_eq!(own.orphans.len(), 1, "{own:#?}");
    // Damage is told before anything runs, and by an audit in the same words.
    fs::write(&file, "{").unwrap();
    for flags in ["", "--update-expectations"] {
        let shown = run(9, flags, 3);
        for words in ["the expectations are not JSON", "restore it with git, or remove it"] {
            assert!(shown.contains(words), "{shown}");
        }
        assert!(!laptop.project("artifacts/runs/s9").exists(), "{shown}");
    }
    let shown = laptop.show("bench audit");
    assert!(shown.contains("the expectations are not JSON"), "{shown}");
    assert!(shown.ends_with("status 3\n"), "{shown}");
    laptop.wait_until_quiet();
}
