//! A machine without a GPU: the kernel is really compiled, its reference really runs, and the first
//! line says so; on a played one, what is said where there is nothing to run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rgpu_model::Profile;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, built, status};

/// A compiler for CUDA on this machine: a toolkit, or what `cargo xtask setup` brings.
fn compiler() -> Option<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [
        PathBuf::from("/usr/local/cuda/bin/nvcc"),
        repository.join(".rgpu/cuda/lib/libnvrtc.so.13"),
        repository.join(".rgpu/cuda/bin/nvcc"),
    ];
    places.into_iter().find(|path| path.exists())
}

#[test]
fn without_a_gpu_the_kernel_is_compiled_and_the_reference_runs_on_the_cpu() {
    let Some(compiler) = compiler() else {
        eprintln!("skipped: no CUDA compiler here; `cargo xtask setup` brings one");
        return;
    };
    if std::path::Path::new("/dev/nvidia0").exists() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let laptop = Laptop::new();
    std::os::unix::fs::symlink(built("rgpu-runner"), laptop.path("libexec/rgpu-runner")).unwrap();
    let line = "profile --kernel vecadd --problem-sizes n=100000";
    let mut command = laptop.rgpu(crate::laptop::words(line));
    // As `cargo xtask run` would: the project is the repository, the runs are not.
    let output = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RGPU_RUNS_DIR", laptop.project("artifacts/runs"))
        .output()
        .unwrap();
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "with {}:\n{shown}", compiler.display());
    let first = String::from_utf8(output.stdout).unwrap();
    assert!(first.lines().next().is_some_and(|l| l.to_lowercase().contains("no gpu")), "{shown}");
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    // The collector is used where it was built.
    assert!(matches!(profile.rung.as_str(), "nvtx" | "cpu"), "{}", profile.rung);
    assert_eq!(profile.cases[0].timing.as_ref().unwrap().clock, "cpu_reference");
    assert!(profile.launches.is_empty());
    let kinds: Vec<&str> = profile.artifacts.iter().map(|a| a.kind.as_str()).collect();
    assert!(kinds.contains(&"cubin") && kinds.contains(&"ptx"), "{kinds:?}");
    laptop.wait_until_quiet();
}

const SAXPY: &str = "extern \"C\" __global__ void saxpy(const float *x, float *y, float a, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] += a * x[i];\n}\n";

/// A played host without a GPU, and a user's own kernel.
fn bare_kernel(tools: &[&str]) -> Laptop {
    let laptop = Laptop::new();
    FakeHost::with(&laptop, tools).mischief("nvidia-smi no-devices\n");
    laptop.write("saxpy.cu", SAXPY);
    laptop.hide_compiler();
    laptop
}

/// Plays NVIDIA's wheels on that host: its Python makes an environment whose own Python is nvcc,
/// which compiles what was recorded: that has no kernel `saxpy`.
fn play_wheels(laptop: &Laptop) {
    laptop.write("saxpy.cu", &SAXPY.replace("void saxpy", "void block_sum"));
    let script = |path: PathBuf, text: String| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let nvcc = laptop.path("nvcc-of-wheels");
    let fake = built("rgpu-fake");
    script(nvcc.clone(), format!("#!/bin/sh\nshift 2\nexec '{}' nvcc \"$@\"\n", fake.display()));
    let make = format!(
        "mkdir -p \"$2/bin\"; cp '{}' \"$2/bin/python\"; touch \"$2/.ready\"",
        nvcc.display()
    );
    script(
        laptop.path("h200/bin/python3"),
        format!(
            "#!/bin/sh\ncase \"$1\" in\n*python_env.py) {make} ;;\n*) exec /usr/bin/python3 \"$@\" ;;\nesac\n"
        ),
    );
}

#[test]
fn a_kernel_that_nothing_there_can_run_names_the_missing_gpu_first() {
    let laptop = bare_kernel(&["nvidia-smi"]);
    insta::assert_snapshot!(laptop.show("profile --kernel saxpy.cu --remote h200"));
    insta::assert_snapshot!(
        laptop.show("compare --kernel saxpy.cu --kernel saxpy.cu --remote h200 -q")
    );
    // Of one with a kernel.toml its own is meant.
    assert_eq!(status(&laptop.run("kernels new saxpy.cu")), 0);
    let shown = laptop.show("profile --kernel saxpy.cu --remote h200 -q");
    assert!(shown.contains("under `[reference]` in its kernel.toml"), "{shown}");
    assert!(!shown.contains("kernels new"), "{shown}");
}

#[test]
fn setting_up_a_compiler_is_no_rung() {
    let laptop = bare_kernel(&["nvidia-smi"]);
    play_wheels(&laptop);
    let built = laptop.show("build saxpy.cu --remote h200 --yes");
    assert!(built.ends_with("status 0\n"), "{built}");
    for mode in ["ncu", "bench"] {
        let line = format!("profile --kernel saxpy.cu --mode {mode} --remote h200");
        let shown = laptop.show(&line);
        assert!(shown.ends_with("status 5\n"), "{shown}");
        assert!(shown.contains("error: `h200` has no working GPU, and `saxpy`"), "{shown}");
        // What was compiled is shown and kept all the same.
        let profile = laptop.latest_json("profile.json");
        assert_eq!(profile["rung"], "none");
        assert!(!profile["code"].as_array().unwrap().is_empty(), "{shown}");
        let report = fs::read_to_string(laptop.latest().join("report.md")).unwrap();
        assert!(report.contains("- rung: none\n"), "{report}");
    }
    let shown = laptop.show("profile --kernel saxpy.cu --at-least cpu --remote h200");
    assert!(shown.ends_with("status 5\n"), "{shown}");
    assert!(shown.contains("without a GPU the run cannot reach rung `cpu`"), "{shown}");
    assert!(shown.contains("(no_gpu)"), "{shown}");
    let jobs = laptop.latest_json("run.json")["jobs"].clone();
    assert_eq!(jobs.as_array().unwrap().len(), 0, "nothing was sent");
    let (exit, error) =
        error(&laptop, "profile --kernel saxpy.cu --mode verify --remote h200 --json");
    assert_eq!((exit, error["code"].as_str()), (4, Some("no_gpu")), "{error:#}");
}

#[test]
fn a_dry_run_for_a_host_without_a_gpu_shows_what_an_assumed_one_would_run() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).mischief("nvidia-smi no-devices\n");
    laptop.run("remote check h200");
    let shown = laptop.show("profile vecadd --mode ncu --remote h200 --dry-run");
    let (real, assumed) = shown.split_once("# assumed: `h200` has no GPU").expect(&shown);
    assert!(assumed.contains("ncu ") && !real.contains("--nvtx-include"), "{shown}");
    assert!(shown.ends_with("status 0\n"), "{shown}");
}

#[test]
fn a_dry_run_says_which_step_it_lacks() {
    let laptop = bare_kernel(&["nvidia-smi"]);
    laptop.run("remote check h200");
    let shown = laptop.show("profile vecadd --mode ncu --remote h200 --dry-run");
    assert!(shown.ends_with("status 0\n"), "{shown}");
    assert!(shown.contains("the kernel is not compiled; `rgpu build vecadd"), "{shown}");
    laptop.write("hello.rs", "fn main() {}\n");
    let shown = laptop.show("exec hello.rs --remote h200 --dry-run");
    assert!(shown.contains("cargo compiles `hello.rs` on this machine first"), "{shown}");
}

#[test]
fn two_kernels_that_could_only_be_compiled_are_not_compared() {
    let laptop = bare_kernel(&["nvidia-smi"]);
    play_wheels(&laptop);
    let built = laptop.show("build saxpy.cu --remote h200 --yes");
    assert!(built.ends_with("status 0\n"), "{built}");
    // What the run would compile, its plan compiles too.
    let planned = laptop.show("profile saxpy.cu --remote h200 --dry-run");
    assert!(!planned.contains("the kernel is not compiled"), "{planned}");
    assert!(planned.contains("nvcc"), "{planned}");
    let line = "compare --kernel saxpy.cu --kernel saxpy.cu --remote h200 --json";
    let (exit, error) = error(&laptop, line);
    assert_eq!((exit, error["code"].as_str()), (5, Some("no_gpu")), "{error:#}");
    assert!(laptop.latest().join("b/cubin/saxpy.cubin").is_file());
}

/// A failing command's error document.
fn error(laptop: &Laptop, line: &str) -> (i32, serde_json::Value) {
    let output = laptop.run(line);
    let text = laptop.shown(line, &output);
    let value: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (status(&output), value["error"].clone())
}

#[test]
fn where_only_the_reference_ran_each_mode_says_so_and_what_to_do() {
    let laptop = bare_kernel(&["nvidia-smi"]);
    insta::assert_snapshot!(laptop.show("profile --kernel vecadd --mode bench --remote h200"));
    let said = laptop.run("doctor h200 --json");
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    // The doctor tries no mode: each could only say the same.
    assert_eq!(said["modes"], serde_json::json!([]));
    assert!(said["untried"].as_str().unwrap().starts_with("the host has no "), "{said}");
    let told = laptop.show("doctor h200");
    assert_eq!(told.matches("no mode was tried: the host has no ").count(), 1, "{told}");
    assert!(!told.contains("trying "), "{told}");
    assert!(told.matches("asking the host").count() <= 1, "{told}");
}

#[test]
fn a_profile_without_a_number_of_a_gpu_is_no_success() {
    let laptop = bare_kernel(&["nvidia-smi"]);
    for line in ["--kernel vecadd --mode bench", "--mode nsys -- true"] {
        let (flags, program) = line.split_once(" -- ").unwrap_or((line, ""));
        let program = if program.is_empty() { String::new() } else { format!(" -- {program}") };
        let run = |more: &str| format!("profile {flags} --remote h200 {more}{program}");
        let (exit, error) = error(&laptop, &run("--json"));
        assert_eq!((exit, error["code"].as_str()), (5, Some("not_measured")), "{error:#}");
        assert_eq!(laptop.latest_json("run.json")["exit"], 5);
        // The result is kept all the same.
        assert_eq!(laptop.latest_json("profile.json")["run"]["remote"], "h200");
        let shown = laptop.show(&run("--allow-unmeasured"));
        assert!(shown.ends_with("status 0\n"), "{shown}");
    }
}

#[test]
fn a_program_of_exec_that_ends_well_and_measures_nothing_is_no_success() {
    let laptop = bare_kernel(&["nvidia-smi"]);
    let run = |more: &str, code: &str| {
        format!("exec --mode nsys --remote h200 {more} --lang sh --code '{code}'")
    };
    let (exit, error) = error(&laptop, &run("--json", "true"));
    assert_eq!((exit, error["code"].as_str()), (5, Some("not_measured")), "{error:#}");
    assert_eq!(laptop.latest_json("run.json")["exit"], 5);
    let shown = laptop.show(&run("--gpu 0", "true"));
    assert!(shown.contains("`--gpu` has no effect: the host has no GPU"), "{shown}");
    let shown = laptop.show(&run("--allow-unmeasured", "true"));
    assert!(shown.ends_with("status 0\n"), "{shown}");
    // Its own failure comes first.
    let shown = laptop.show(&run("--require-gpu", "exit 3"));
    assert!(shown.ends_with("status 3\n"), "{shown}");
    // This machine has no driver: that is known.
    let here = |more: &str| format!("exec --mode nsys {more} --remote local --lang sh --code true");
    assert!(laptop.show(&here("")).ends_with("status 0\n"));
    assert!(laptop.show(&here("--require-gpu")).ends_with("status 5\n"));
    let shown = laptop.show("exec --allow-unmeasured -- true");
    assert!(shown.contains("`--allow-unmeasured` has no effect without `--mode`"), "{shown}");
    assert!(shown.ends_with("status 2\n"), "{shown}");
}

#[test]
fn a_program_that_is_not_there_is_told_once() {
    let laptop = Laptop::new();
    for (line, expected) in [
        ("profile -- no-such-program", 2),
        ("exec --mode nsys -- no-such-program", 127),
        ("exec --json -- no-such-program", 127),
    ] {
        let output = laptop.run(line);
        let shown = laptop.shown(line, &output);
        assert_eq!(status(&output), expected, "{shown}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(told.matches("is not on PATH").count(), 1, "{shown}");
        assert!(!told.contains("did not work"), "{shown}");
    }
}

#[test]
fn a_suite_says_that_nothing_ran_on_a_gpu() {
    let laptop = bare_kernel(&["nvidia-smi"]);
    laptop.write(
        "bench.toml",
        "[defaults]\nmode = \"bench\"\nremote = \"h200\"\n[[target]]\nname = \"memory:vecadd\"\n\
         kernel = \"vecadd\"\n[[target]]\nname = \"app:true\"\nprogram = [\"true\"]\nmode = \"nsys\"\n",
    );
    let output = laptop.run("bench run --run-id night");
    let shown = laptop.shown("bench run", &output);
    assert_eq!(status(&output), 5, "{shown}");
    assert!(shown.contains("error: nothing was measured on a GPU of `h200`"), "{shown}");
    assert!(shown.contains("memory:vecadd  no GPU"), "{shown}");
    assert!(shown.contains("nothing ran on one, so there are no times of a GPU"), "{shown}");
    assert!(shown.contains("2 cases: 2 no GPU"), "{shown}");
    // No format has it as a success.
    let run = laptop.run("bench show night --json");
    let run: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&run["rows"][0]["state"], &run["clean"]), (&"no_gpu".into(), &false.into()));
    let file =
        |name: &str| fs::read_to_string(laptop.project("artifacts/runs/night").join(name)).unwrap();
    assert!(file("suite.csv").contains("memory:vecadd,memory:vecadd,h200,no GPU,"));
    assert!(file("junit.xml").contains("<skipped message=\"no GPU\"/>"), "{}", file("junit.xml"));
    assert!(file("report.md").starts_with("# night: no GPU\n"), "{}", file("report.md"));
    let shown = laptop.show("bench history memory:vecadd");
    assert!(shown.contains("`memory:vecadd` ran only on hosts without a GPU"), "{shown}");
    assert!(shown.contains("`rgpu bench run -t memory:vecadd --remote NAME`"), "{shown}");
    let again = laptop.show("bench resume night");
    assert!(again.contains("nothing to resume") && again.ends_with("status 5\n"), "{again}");
    let allowed = laptop.show("bench resume night --allow-unmeasured");
    assert!(allowed.ends_with("status 0\n"), "{allowed}");
    let page = file("index.html");
    assert!(page.contains("<td class=\"warn\">no GPU</td>"), "{page}");
    assert!(page.contains("no times of a GPU") && !page.contains("class=\"good\">ok"), "{page}");
}
