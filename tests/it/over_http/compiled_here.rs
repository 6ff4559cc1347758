//! A host without a CUDA compiler: kernels are compiled on this machine, and nothing of that stays.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};

use super::worker::Worker;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, built, status, wait_for, words};

/// A laptop with nvcc, and a host, `box`, without.
struct HostWithoutCompiler {
    laptop: Laptop,
    _worker: Worker,
}

impl HostWithoutCompiler {
    /// `None`: the real machine has a compiler where any host would find it.
    fn new() -> Option<HostWithoutCompiler> {
        if Path::new("/usr/local/cuda").exists() || Path::new("/opt/cuda").exists() {
            eprintln!("skipped: this machine has a CUDA toolkit");
            return None;
        }
        let laptop = Laptop::new();
        FakeHost::with(&laptop, &["ncu", "nsys", "compute-sanitizer", "nvidia-smi"]);
        fs::create_dir_all(laptop.path("here/bin")).unwrap();
        symlink(built("rgpu-fake"), laptop.path("here/bin/nvcc")).unwrap();
        let home = laptop.path("there");
        let worker = Worker::start_with(&laptop, &[("RGPU_AGENT_HOME", home.as_os_str())]);
        Some(HostWithoutCompiler { laptop, _worker: worker })
    }

    fn rgpu(&self, line: &str) -> Command {
        let mut command = self.laptop.rgpu(words(line));
        let path = format!("{}:/usr/bin:/bin", self.laptop.path("here/bin").display());
        command.env("PATH", path);
        command
    }

    fn run(&self, line: &str) -> (Output, String) {
        let output = self.rgpu(line).output().unwrap();
        let shown = self.laptop.shown(line, &output);
        (output, shown)
    }

    /// Jobs that lie on this machine.
    fn jobs_here(&self) -> Vec<String> {
        names(&self.laptop.path("agent/jobs"))
    }

    fn nothing_stays_here(&self) {
        wait_for("no job to be left on this machine", || self.jobs_here().is_empty().then_some(()));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn what_was_compiled_here_for_a_host_is_not_kept_here_as_a_job() {
    let Some(host) = HostWithoutCompiler::new() else { return };
    let (output, shown) = host.run("profile --kernel vecadd --mode bench --remote box");
    assert_eq!(status(&output), 0, "{shown}");
    assert!(shown.contains("compiling on this machine"), "{shown}");
    host.nothing_stays_here();
    // One that is left to itself is taken up from what is in the run's folder.
    let (output, shown) = host.run("profile --kernel vecadd --mode bench --remote box --detach");
    assert_eq!(status(&output), 0, "{shown}");
    host.nothing_stays_here();
    let (output, shown) = host.run("runs attach latest");
    assert_eq!(status(&output), 0, "{shown}");
    let events = fs::read_to_string(host.laptop.latest().join("events.jsonl")).unwrap();
    let begun = r#""event":"step_started","step":"build""#;
    assert_eq!(events.matches(begun).count(), 1, "{events}");
    // Each side has a build of its own.
    let (output, shown) =
        host.run("compare --kernel vecadd --kernel reduce --mode bench --remote box");
    assert!(!shown.contains("job_exists") && !shown.contains("another plan"), "{shown}");
    assert_eq!(status(&output), 0, "{shown}");
    host.nothing_stays_here();
}

#[test]
fn a_build_here_that_fails_or_is_stopped_leaves_no_job_either() {
    let Some(host) = HostWithoutCompiler::new() else { return };
    host.laptop.write("bad.cu", "extern \"C\" __global__ void bad(int n) { does_not_compile; }\n");
    let (output, shown) = host.run("profile --kernel bad.cu --mode bench --remote box");
    assert_ne!(status(&output), 0, "{shown}");
    assert!(shown.contains("does not compile"), "{shown}");
    host.nothing_stays_here();
    fs::write(host.laptop.path("here/mischief"), "nvcc hang\n").unwrap();
    let mut child = host.rgpu("profile --kernel vecadd --mode bench --remote box").spawn().unwrap();
    wait_for("the compiler to hang", || {
        let jobs = host.jobs_here();
        let log = host.laptop.path("agent/jobs").join(jobs.first()?);
        walkdir::WalkDir::new(log)
            .into_iter()
            .flatten()
            .any(|entry| fs::read(entry.path()).is_ok_and(|text| text.starts_with(b"hanging")))
            .then_some(())
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    wait_for("the end of the command", || child.try_wait().unwrap());
    host.nothing_stays_here();
}

#[test]
fn a_dry_run_says_that_the_kernel_is_compiled_here_first() {
    let Some(host) = HostWithoutCompiler::new() else { return };
    host.run("remote check box");
    let told =
        "`box` has no CUDA compiler, so `vecadd` is compiled for sm_90a on this machine first";
    for line in [
        "profile --kernel vecadd --mode bench --remote box --dry-run",
        "compare --kernel vecadd --kernel reduce --mode bench --remote box --dry-run",
    ] {
        let (output, shown) = host.run(line);
        assert_eq!(status(&output), 0, "{shown}");
        assert!(shown.contains(told), "{shown}");
        assert!(!shown.contains("step build"), "{shown}");
    }
    host.nothing_stays_here();
}

#[test]
fn the_doctor_leaves_nothing_behind_on_either_machine() {
    let Some(host) = HostWithoutCompiler::new() else { return };
    let (output, shown) = host.run("doctor box --json");
    assert_eq!(status(&output), 0, "{shown}");
    assert!(shown.contains("ncu.asked"), "{shown}");
    host.nothing_stays_here();
    wait_for("no job to be left there", || {
        names(&host.laptop.path("there/jobs")).is_empty().then_some(())
    });
}

#[test]
fn a_build_is_made_here_where_the_default_remote_has_no_compiler() {
    let Some(host) = HostWithoutCompiler::new() else { return };
    host.run("remote default box");
    let line = "build --kernel vecadd --arch sm_90a";
    let (output, shown) = host.run(line);
    assert_eq!(status(&output), 0, "{shown}");
    let told = "`box` has no CUDA compiler: this was compiled on this machine";
    assert!(shown.contains(told), "{shown}");
    assert_eq!(host.laptop.latest_json("run.json")["remote"], "local");
    // One that was named is meant.
    let (output, shown) = host.run(&format!("{line} --remote box"));
    assert_eq!(status(&output), 4, "{shown}");
    assert!(shown.contains("`--remote local`"), "{shown}");
}

#[test]
fn a_build_that_no_machine_can_make_names_the_default_remote_and_its_remedy() {
    let Some(host) = HostWithoutCompiler::new() else { return };
    host.laptop.hide_compiler();
    fs::remove_file(host.laptop.path("here/bin/nvcc")).unwrap();
    host.run("remote default box");
    let (output, shown) = host.run("build --kernel vecadd --arch sm_90a");
    assert_eq!(status(&output), 4, "{shown}");
    assert!(shown.contains("error: the host has no CUDA compiler for `vecadd.cu`"), "{shown}");
    assert!(!shown.contains("this was compiled on this machine"), "{shown}");
    assert_eq!(host.laptop.latest_json("run.json")["remote"], "box");
    host.nothing_stays_here();
}

#[test]
fn a_build_that_an_agent_starts_uses_no_compiler_of_this_machine() {
    let Some(host) = HostWithoutCompiler::new() else { return };
    host.run("remote default box");
    let line = "build --kernel vecadd --arch sm_90a";
    let output = host.rgpu(line).env("RGPU_STARTED_BY_AGENT", "1").output().unwrap();
    let shown = host.laptop.shown(line, &output);
    assert_eq!(status(&output), 4, "{shown}");
    assert!(shown.contains("not compiled on this machine, since an agent"), "{shown}");
    assert!(!shown.contains("this was compiled on this machine"), "{shown}");
    assert_eq!(host.laptop.latest_json("run.json")["remote"], "box");
    host.nothing_stays_here();
}

#[test]
fn nothing_that_an_agent_starts_is_compiled_here_for_another_host() {
    let Some(host) = HostWithoutCompiler::new() else { return };
    for line in [
        "profile --kernel vecadd --mode bench --remote box",
        "compare --kernel vecadd --kernel reduce --mode bench --remote box",
    ] {
        let output = host.rgpu(line).env("RGPU_STARTED_BY_AGENT", "1").output().unwrap();
        let shown = host.laptop.shown(line, &output);
        assert_ne!(status(&output), 0, "{shown}");
        assert!(shown.contains("not compiled on this machine, since an agent"), "{shown}");
        assert!(shown.contains("has no CUDA compiler"), "{shown}");
        assert!(!shown.contains("compiling on this machine"), "{shown}");
        let line = format!("{line} --dry-run");
        let output = host.rgpu(&line).env("RGPU_STARTED_BY_AGENT", "1").output().unwrap();
        let shown = host.laptop.shown(&line, &output);
        assert!(!shown.contains("is compiled for"), "{shown}");
    }
    host.nothing_stays_here();
}

#[test]
fn names_flags_and_includes_that_could_reach_this_machine_are_not_compiled_here() {
    let Some(host) = HostWithoutCompiler::new() else { return };
    host.run("remote default box");
    let private = host.laptop.path("private.inc");
    fs::write(&private, "1\n").unwrap();
    let kernel = "extern \"C\" __global__ void k(int n) {}\n";
    let macros = format!("#define P <{}>\n#include P\n{kernel}", private.display());
    for (source, text, flags, why) in [
        ("k.cu", kernel, r#"["-DN=$(touch${IFS}RAN)"]"#, "the flag `-DN="),
        ("k.cu", kernel, r#"["-Xptxas=;touch${IFS}RAN;"]"#, "the flag `-Xptxas="),
        ("v$(touch${IFS}RAN).cu", kernel, "[]", "has a character that a shell could take"),
        ("k.cu", macros.as_str(), "[]", "which could read a file of this machine"),
    ] {
        let described = format!(
            "name = \"k\"\nlanguage = \"cuda\"\nsource = '{source}'\nflags = {flags}\n\
             entry = {{ device = \"k\" }}\n\n\
             [[arg]]\nname = \"n\"\ndtype = \"i32\"\nrole = \"scalar\"\nvalue = 4\n\n\
             [launch]\ngrid = [1]\nblock = [1]\n"
        );
        host.laptop.write("kernels/k/kernel.toml", &described);
        host.laptop.write(&format!("kernels/k/{source}"), text);
        for command in ["profile --mode bench --remote box", "build --arch sm_90a"] {
            let (output, shown) = host.run(&format!("{command} --kernel kernels/k"));
            assert_ne!(status(&output), 0, "{shown}");
            assert!(shown.contains("not compiled on this machine"), "{shown}");
            assert!(shown.contains(why), "{shown}");
        }
    }
    host.nothing_stays_here();
}
