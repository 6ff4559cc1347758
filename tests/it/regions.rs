//! Regions: a first pass sees which there are, and ncu is then asked for exactly those meant.

use rgpu_model::{Profile, Selection};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

const LINE: &str = "profile --kernel nested-regions --mode ncu --set minimal --remote h200 --json";

/// A run's profile and every ncu command line of it.
struct End {
    profile: Profile,
    commands: Vec<String>,
}

impl End {
    fn selection(&self) -> &Selection {
        self.profile.selection.as_ref().unwrap()
    }

    /// What ncu was told to include, command by command.
    fn included(&self) -> Vec<Vec<String>> {
        let of = |line: &String| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let pairs = words.windows(2).filter(|pair| pair[0] == "--nvtx-include");
            pairs.map(|pair| pair[1].trim_matches('\'').to_owned()).collect()
        };
        self.commands.iter().map(of).collect()
    }
}

fn run(mischief: &str, more: &[&str]) -> End {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief(mischief);
    let words: Vec<&str> = LINE.split(' ').chain(more.iter().copied()).collect();
    let output = laptop.rgpu(&words).output().unwrap();
    assert_eq!(status(&output), 0, "{}", laptop.shown(&words.join(" "), &output));
    let profile: Profile = serde_json::from_slice(&output.stdout).unwrap();
    laptop.wait_until_quiet();
    let run = &profile.run.id;
    let text = std::fs::read_to_string(laptop.project(format!("artifacts/runs/{run}/commands.sh")));
    let text = text.unwrap();
    let commands = text.lines().filter(|line| line.contains("/ncu ")).map(str::to_owned).collect();
    End { profile, commands }
}

#[test]
fn globs_come_to_the_regions_that_the_program_has() {
    let end = run("", &["--regions", "A*"]);
    let choices = &end.selection().regions;
    assert_eq!(choices.len(), 1);
    assert_eq!(choices[0].matched, ["A", "A::A1"]);
    assert_eq!(end.selection().regions_seen, ["A", "A::A1", "B"]);
    assert_eq!(end.included()[0], ["A/", "A/A1"]);
    assert_eq!(end.profile.rung, "ncu.asked");
    let paths: Vec<String> = end.profile.launches.iter().map(|l| l.region.join("::")).collect();
    assert_eq!(paths, ["A", "A::A1"]);
    assert_eq!(end.selection().fingerprint.len(), 64);
}

#[test]
fn names_expressions_and_lists_are_taken_and_the_same_ones_have_the_same_fingerprint() {
    let end = run("", &["--regions", "A,A::A1,B"]);
    assert_eq!(end.included()[0], ["A/", "A/A1", "B/"]);
    assert_eq!(end.profile.launches.len(), 7);
    let again = run("", &["--regions", "A,A::A1,B"]);
    assert_eq!(end.selection().fingerprint, again.selection().fingerprint);
    let other = run("", &["--regions", "regex:^A::", "--regions", "B"]);
    let matched: Vec<_> = other.selection().regions.iter().map(|r| r.matched.clone()).collect();
    assert_eq!(matched, [["A::A1"], ["B"]]);
    assert_ne!(end.selection().fingerprint, other.selection().fingerprint);
}

#[test]
fn a_pattern_without_a_region_ends_with_those_that_exist() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let output = laptop.run(&format!("{LINE} --regions A1x"));
    let text = laptop.shown(LINE, &output);
    assert_eq!(status(&output), 3, "{text}");
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(error["error"]["code"], "no_matching_region", "{text}");
    let hint = error["error"]["hints"][0].as_str().unwrap();
    assert!(hint.starts_with("there are `A"), "{text}");
    assert!(hint.contains("`A::A1`") && hint.contains("`B`"), "{text}");
    assert!(!text.contains("ncu.asked"), "nothing is profiled: {text}");
}

#[test]
fn nsys_sees_the_ranges_where_the_collector_sees_none() {
    let end = run("rgpu-runner no-ranges\n", &["--regions", "A::A1"]);
    assert!(end.profile.ladder.iter().any(|r| r.step == "survey" && r.rung == "nsys.nvtx" && r.ok));
    assert_eq!(end.included().last().unwrap().as_slice(), ["A/A1"]);
    assert_eq!(end.profile.launches.len(), 1);
}

#[test]
fn range_replay_measures_nested_ranges_one_after_the_other() {
    let end = run("", &["--regions", "A,A::A1,B", "--replay-mode", "range"]);
    assert_eq!(end.selection().replay_mode, "range");
    let looks: Vec<_> = end.profile.ladder.iter().filter(|r| r.rung == "ncu.asked").collect();
    assert!(looks.iter().all(|r| r.ok), "{looks:?}");
    assert_eq!(looks.iter().map(|r| r.step.as_str()).collect::<Vec<_>>(), ["profile", "profile-2"]);
    let with_metrics: Vec<String> = end
        .profile
        .regions
        .iter()
        .filter(|region| !region.metrics.is_empty())
        .map(|region| region.display())
        .collect();
    assert_eq!(with_metrics, ["A", "B", "A::A1"]);
    for name in ["report.ncu-rep", "report-2.ncu-rep"] {
        assert!(end.profile.artifacts.iter().any(|a| a.path.ends_with(name)), "{name}");
    }
}

#[test]
fn a_call_that_range_replay_cannot_repeat_leads_to_app_range_and_is_said() {
    let end = run("ncu range-unsupported range\n", &["--regions", "A,B", "--replay-mode", "range"]);
    let refused = end.profile.ladder.iter().find(|r| r.rung == "ncu.asked").unwrap();
    assert_eq!((refused.ok, refused.code.as_str()), (false, "range_unsupported"));
    assert_eq!(end.profile.rung, "ncu.app_range");
    assert_eq!(end.selection().replay_mode, "app-range");
    let said = &end.selection().left_out[0];
    assert_eq!(said.code, "range_unsupported");
    assert!(
        said.text.contains("app-range") && said.text.contains("cuMemAllocManaged"),
        "{}",
        said.text
    );
}

#[test]
fn flags_of_another_mode_are_refused_with_the_mode_they_belong_to() {
    let laptop = Laptop::new();
    for (line, words) in [
        (
            "profile --kernel vecadd --mode sanitizer --regions A",
            ["--regions", "`ncu`, `nsys`, `nvtx`, `deep`"],
        ),
        ("profile --kernel vecadd --mode bench --set full", ["--set", "`ncu`"]),
        ("profile --kernel vecadd --mode ncu --top 2", ["--top", "mode `deep`"]),
        ("profile --kernel vecadd --mode nsys --tool memcheck", ["--tool", "`sanitizer`"]),
        ("profile --mode ncu --iters 3 -- ./app", ["--iters", "`--kernel`"]),
        (
            "profile --kernel nested-regions --mode ncu --replay-mode range -k vector_add",
            ["--kernel-name", "--replay-mode kernel"],
        ),
    ] {
        let output = laptop.run(line);
        let text = laptop.shown(line, &output);
        assert_eq!(status(&output), 2, "{text}");
        for word in words {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
