//! Mode `nsys` runs a program a second time for what costs too much to be recorded at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rgpu_model::Profile;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

/// A program that counts its runs.
fn program(laptop: &Laptop) -> String {
    let (path, log) = (laptop.path("host.py"), laptop.path("runs.log"));
    fs::write(&path, format!("#!/bin/sh\necho ran >>{}\n", log.display())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Runs `rgpu`; returns what it shows, its profile, and how often the program ran.
fn measured(laptop: &Laptop, line: &str) -> (String, Profile, usize) {
    let log = laptop.path("runs.log");
    let _ = fs::remove_file(&log);
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    laptop.wait_until_quiet();
    let profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    (shown, profile, fs::read_to_string(log).unwrap().lines().count())
}

/// File and line of all places that findings tell.
fn places(profile: &Profile) -> Vec<(String, u32)> {
    let places = profile.findings.iter().flat_map(|finding| &finding.code);
    places.filter_map(|place| Some((place.file.clone(), place.line?))).collect()
}

#[test]
fn findings_get_their_lines_from_a_second_run_whose_times_do_not_count() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("nsys training\n");
    let program = program(&laptop);
    let line = |flags: &str| format!("profile --mode nsys {flags} --remote h200 -- {program}");
    let (shown, with, runs) = measured(&laptop, &line(""));
    assert_eq!(runs, 2, "{shown}");
    assert!(shown.contains("the program runs a second time"), "{shown}");
    // The backward pass of the training, and a layer.
    let places = places(&with);
    for place in [("host.py", 23), ("lib/model.py", 19)] {
        assert!(places.iter().any(|(file, line)| (file.as_str(), *line) == place), "{places:?}");
    }
    assert!(shown.contains("at host.py:23 in main ("), "{shown}");
    let second = with.ladder.iter().find(|record| record.step == "second").unwrap();
    assert!(second.ok && second.rung == "nsys.full", "{second:?}");
    assert!(second.argv.iter().any(|word| word == "--python-backtrace=cuda"), "{second:?}");
    assert!(with.gaps.iter().all(|gap| gap.code != "no_second_pass"), "{:?}", with.gaps);

    let (shown, without, runs) = measured(&laptop, &line("--sample none"));
    assert_eq!(runs, 1, "{shown}");
    assert!(without.findings.iter().all(|finding| finding.code.is_empty()), "{shown}");
    let account = |profile: &Profile| {
        let account = profile.account.as_ref().unwrap();
        (account.step.clone().unwrap(), account.parts.clone(), account.program_ns)
    };
    assert_eq!(account(&with), account(&without));
    // `exec` runs a program once.
    let line = format!("exec --mode nsys --remote h200 -- {program}");
    assert_eq!(measured(&laptop, &line).2, 1);
}

#[test]
fn a_second_run_that_brings_nothing_leaves_what_the_first_one_has() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("nsys fail --cudabacktrace=all:0\nnsys training\n");
    let program = program(&laptop);
    let line = format!("profile --mode nsys --remote h200 -- {program}");
    let (shown, profile, runs) = measured(&laptop, &line);
    assert_eq!(runs, 1, "nsys fails before the program starts: {shown}");
    assert!(profile.account.is_some() && profile.rung == "nsys.full", "{shown}");
    assert!(profile.gaps.iter().any(|gap| gap.code == "no_second_pass"), "{:?}", profile.gaps);
}
