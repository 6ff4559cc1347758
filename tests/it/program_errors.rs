//! Programs that end with an error while a tool measures them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rgpu_model::Profile;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

/// A program that counts its runs in `runs`, then continues with these lines.
fn program(laptop: &Laptop, lines: &str) -> String {
    let path = laptop.path("app");
    let runs = laptop.path("runs");
    fs::write(&path, format!("#!/bin/sh\necho >>{}\n{lines}\n", runs.display())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn runs(laptop: &Laptop) -> usize {
    let path = laptop.path("runs");
    let runs = fs::read_to_string(&path).unwrap_or_default().lines().count();
    let _ = fs::remove_file(path);
    runs
}

#[test]
fn a_program_that_fails_by_itself_is_run_twice_and_keeps_what_was_measured() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let app = program(&laptop, "echo trouble >&2\nexit 9");
    let line = format!("profile --mode nsys --remote h200 -- {app}");
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!((status(&output), runs(&laptop)), (6, 2), "{shown}");
    let error = "error: the program ended with status 9, also without a tool";
    assert!(shown.contains(error) && shown.contains("trouble"), "{shown}");
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    assert_eq!(profile.rung, "nsys.full");
    assert!(!profile.launches.is_empty());
    let record = profile.ladder.iter().find(|record| record.rung == "nsys.full").unwrap();
    assert_eq!((record.exit, record.ok), (Some(9), true), "{record:#?}");
    // `exec` ends as the program does.
    let line = format!("exec --mode nsys --remote h200 -- {app}");
    let output = laptop.run(&line);
    assert_eq!((status(&output), runs(&laptop)), (9, 1), "{}", laptop.shown(&line, &output));
}

#[test]
fn the_exception_of_the_rank_that_failed_first_is_the_cause() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let app = program(
        &laptop,
        "cat >&2 <<'EOF'\n\
         [rank1]: Traceback (most recent call last):\n\
         [rank1]:   File \"train.py\", line 3, in <module>\n\
         [rank1]: KeyError: 'layer'\n\
         [rank0]: Traceback (most recent call last):\n\
         [rank0]:   File \"train.py\", line 9, in <module>\n\
         [rank0]: torch.distributed.DistBackendError: ncclRemoteError\n\
         EOF\n\
         seq 2000 >&2\n\
         cat >&2 <<'EOF'\n\
         torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n\
         Root Cause (first observed failure):\n\
         rank      : 1 (local_rank: 1)\n\
         EOF\n\
         exit 1",
    );
    let line = format!("profile --mode nsys --remote h200 -- {app}");
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!((status(&output), runs(&laptop)), (6, 1), "{shown}");
    assert!(shown.contains("rank 1 failed first"), "{shown}");
    assert!(shown.contains("no tool causes its KeyError"), "{shown}");
    assert!(!shown.contains("cause:   torch.distributed.elastic"), "{shown}");
}

#[test]
fn a_program_that_only_the_sanitizer_crashes_is_said_to_end_well_alone() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("compute-sanitizer program-crashes\n");
    let app = program(&laptop, "exit 0");
    let script = laptop.path("app.py");
    fs::rename(app, &script).unwrap();
    let line = format!("profile --mode sanitizer --remote h200 -- {}", script.display());
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!((status(&output), runs(&laptop)), (0, 1), "{shown}");
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    let note = &profile.sanitizer[0].note;
    assert!(note.ends_with("; alone, the program ends well"), "{note}");
    let [warning] = &profile.warnings[..] else { panic!("{:?}", profile.warnings) };
    let crash = "the program was ended by signal 6 (SIGABRT) on rung sanitizer, but not without a \
                 tool; the sanitizer seems to crash it";
    let text = &warning.text;
    assert!(text.starts_with(crash) && text.contains("xla_gpu_enable_command_buffer"), "{text}");
    assert!(!text.contains("--replay-mode"), "it is a flag of ncu: {text}");
    let steps: Vec<&str> = profile.ladder.iter().map(|record| record.step.as_str()).collect();
    assert_eq!(steps, ["sanitizer-memcheck", "plain"], "the crash is not repeated");
}

#[test]
fn a_program_that_fails_before_it_launches_anything_does_not_walk_down_the_ladder() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("nsys no-gpu-rows\nncu no-kernels\n");
    let app = program(&laptop, "echo 'RuntimeError: no device' >&2\nexit 1");
    for mode in ["nsys", "ncu"] {
        let line = format!("profile --mode {mode} --remote h200 -- {app}");
        let output = laptop.run(&line);
        let shown = laptop.shown(&line, &output);
        assert_eq!((status(&output), runs(&laptop)), (6, 2), "{shown}");
        let error = "error: the program ended with status 1, also without a tool";
        assert!(shown.contains(error) && shown.contains("RuntimeError: no device"), "{shown}");
        let line = format!("exec --mode {mode} --remote h200 -- {app}");
        let output = laptop.run(&line);
        assert_eq!((status(&output), runs(&laptop)), (1, 1), "{}", laptop.shown(&line, &output));
        // What reads JSON gets a document in any case.
        let output = laptop.run(&line.replace(" -- ", " --json -- "));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((status(&output), runs(&laptop)), (1, 1), "{document}");
        assert_eq!(document["exit"], 1);
        assert_eq!(document["error"]["code"], "program_failed");
        assert!(
            document["error"]["cause"].as_str().unwrap().contains("RuntimeError"),
            "{document}"
        );
    }
}

#[test]
fn a_program_that_fails_only_under_a_tool_is_measured_below_it() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    let counter = laptop.path("runs");
    let once = format!("test $(wc -l <{}) -gt 1 || exit 3", counter.display());
    let app = program(&laptop, &once);
    let line = format!("profile --mode nsys --remote h200 -- {app}");
    // The trace is there although the program failed.
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!((status(&output), runs(&laptop)), (0, 2), "{shown}");
    let warned = || {
        let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
        let texts: Vec<String> = profile.warnings.into_iter().map(|gap| gap.text).collect();
        let text = "the program ended with status 3 on rung nsys.full, but not without a tool";
        assert_eq!(texts, [text]);
        profile.rung
    };
    assert_eq!(warned(), "nsys.full");
    // Without a trace the next rung is tried. None here has a number from a GPU.
    host.mischief("nsys no-gpu-rows\n");
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!(status(&output), 5, "{shown}");
    assert!(runs(&laptop) > 2, "{shown}");
    assert_ne!(warned(), "nsys.full", "{shown}");
}

#[test]
fn an_exception_that_no_tool_causes_is_told_once_and_not_run_again() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("nsys no-gpu-rows\n");
    let traceback = |exception: &str| {
        format!(
            "cat >&2 <<'END'\nTraceback (most recent call last):\n  File \"train.py\", line 3, in \
             <module>\n    import nosuch\n{exception}\nEND\nexit 1"
        )
    };
    let missing = "ModuleNotFoundError: No module named 'nosuch'";
    let app = program(&laptop, &traceback(missing));
    let line = format!("profile --mode nsys --remote h200 -- {app}");
    let output = laptop.run(&line);
    let shown = laptop.shown(&line, &output);
    assert_eq!((status(&output), runs(&laptop)), (6, 1), "{shown}");
    let told = "error: the program ended with status 1 on rung nsys.full; it was not run again, \
                since no tool causes its ModuleNotFoundError: a module is not installed";
    assert!(shown.contains(told), "{shown}");
    assert_eq!(shown.matches("Traceback (most recent call last)").count(), 1, "{shown}");
    assert_eq!(shown.matches("File \"train.py\"").count(), 1, "{shown}");
    assert!(shown.contains(&format!("cause: {missing}")), "{shown}");
    // What reads JSON did not see the output.
    let output = laptop.run(&line.replace(" -- ", " --json -- "));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(runs(&laptop), 1);
    assert!(document["error"]["cause"].as_str().unwrap().contains("train.py"), "{document}");
    // Neither a GPU nor a tool has a part in these.
    for exception in ["ZeroDivisionError: division by zero", "ConfigError: no such layer"] {
        program(&laptop, &traceback(exception));
        let output = laptop.run(&line);
        let shown = laptop.shown(&line, &output);
        assert_eq!((status(&output), runs(&laptop)), (6, 1), "{shown}");
        assert_eq!(shown.matches("Traceback (most recent call last)").count(), 1, "{shown}");
        assert!(shown.contains("it was not run again, since no tool causes its"), "{shown}");
    }
    // A tool may cause these, also while another exception is handled.
    for exception in [
        "RuntimeError: CUDA error: unknown",
        "KeyError: 1\nOSError: 2",
        "RuntimeError: a\nTrainError: b",
        "torch.OutOfMemoryError: a",
    ] {
        let app = program(&laptop, &traceback(exception));
        let output = laptop.run(&line);
        let shown = laptop.shown(&line, &output);
        assert_eq!((status(&output), runs(&laptop)), (6, 2), "{app}: {shown}");
    }
}

#[test]
fn a_script_that_raises_before_torch_records_runs_once() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("nsys no-gpu-rows\n");
    let count = laptop.path("runs");
    let text = "def f(x):\n    return 1 / x\n\nf(0)\n";
    laptop.write("train.py", &format!("open({count:?}, 'a').write('1\\n')\n\n{text}"));
    for mode in ["torch", "nsys"] {
        let line = format!("profile --mode {mode} --remote h200 -- python3 train.py");
        let output = laptop.run(&line);
        let shown = laptop.shown(&line, &output);
        assert_eq!((status(&output), runs(&laptop)), (6, 1), "{shown}");
        assert_eq!(shown.matches("Traceback (most recent call last)").count(), 1, "{shown}");
        assert!(shown.contains("error: the program ended with status 1"), "{shown}");
        assert!(shown.contains("cause: ZeroDivisionError: division by zero"), "{shown}");
    }
}
