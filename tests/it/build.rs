//! `rgpu build`: a played nvcc, a played Python environment with recorded outputs of the CuTe DSL,
//! and, where they may be fetched (`RGPU_TEST_DSL=1`), the real ones.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, built, fixture, status, wait_for, words};

/// What a user saw, whether or not this machine has an nvdisasm.
fn told(shown: String) -> String {
    let note = "note: the listing has no operands because there is no nvdisasm: \
                `rgpu setup nvdisasm --yes` fetches it (5 MB)\n";
    shown.replace("  (no operands)", "").replace(note, "")
}

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_kernel_becomes_ptx_a_cubin_its_listing_and_a_table() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    insta::assert_snapshot!(told(laptop.show("build --kernel vecadd --arch sm_90a --remote h200")));
    let summary = laptop.latest_json("summary.json");
    assert_eq!(summary["schema"], "rgpu.build/1");
    assert_eq!(summary["status"], "done");
    assert_eq!(summary["main_ptx"], "ptx/vecadd.ptx");
    assert!(laptop.project("artifacts/vecadd.sm_90a.cubin").is_file());
    assert!(laptop.latest().join("sass/vecadd.sm_90a.sass").is_file());
    let listed = laptop.run("disasm artifacts/vecadd.sm_90a.cubin --tool rgpu");
    assert_eq!(status(&listed), 0);
}

#[test]
fn ptx_alone_makes_no_cubin_and_goes_where_it_is_asked() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let line = "build --kernel vecadd --arch sm_90a --remote h200 --emit ptx --out out/k.ptx --opt-level 0 --compile-options '-DX=1 -g'";
    let output = laptop.run(&format!("{line} --json"));
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["options"], serde_json::json!(["-Xptxas=-O0", "-DX=1", "-g"]));
    let kinds: Vec<_> =
        summary["files"].as_array().unwrap().iter().map(|f| f["kind"].clone()).collect();
    assert_eq!(kinds, ["ptx"]);
    assert!(fs::read_to_string(laptop.project("out/k.ptx")).unwrap().contains(".version"));
    assert!(!laptop.project("artifacts/vecadd.sm_90a.cubin").exists());
}

#[test]
fn a_folder_that_is_named_is_all_that_is_written() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let line = "build --kernel vecadd --arch sm_90a --remote h200 --out mine";
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("CUBIN mine/cubin/"), "{said}");
    assert!(!laptop.project("artifacts").exists());
}

#[test]
fn mistakes_say_what_to_type() {
    let laptop = Laptop::new();
    laptop.write("k.py", "x = 1\n");
    laptop.write("bad.rs", "fn main() {}\n");
    let mut story = String::new();
    for line in [
        "build",
        "build --kernel vecadd --arch sm_105",
        "build --kernel vecadd --print-ir",
        "build --kernel vecadd --emit ptx,elf",
        "build k.py",
        "build k.py --dsl cute --arch sm_100a --problem-sizes m=1",
        "build k.py --dsl cute --arch sm_100a",
        "build gone.py --dsl triton",
        "build gone.py",
        "build k.cu --dsl triton",
        "build bad.rs",
        "build notes.txt",
        "build k.cubin",
    ] {
        story += &laptop.show(line);
    }
    insta::assert_snapshot!(story);
    assert!(!laptop.project("artifacts").exists());
}

#[test]
fn code_that_does_not_compile_leaves_a_bundle_and_a_host_without_a_compiler_says_what_to_do() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("bad.cu", "__global__ void k(float *x) {\n  x[0] = does_not_compile;\n}\n");
    insta::assert_snapshot!(laptop.show("build bad.cu --arch sm_90a --remote h200 -q"));
    let summary = laptop.latest_json("summary.json");
    assert_eq!(summary["status"], "failed");
    assert_eq!(summary["error"]["code"], "does_not_compile");
    let laptop = Laptop::new();
    FakeHost::with(&laptop, &["nvidia-smi"]);
    insta::assert_snapshot!(laptop.show("build --kernel wagmiv67 --arch sm_100a --remote h200 -q"));
}

const KERNELS: &str = "template <int N> __global__ void t(float *x) { x[blockIdx.y] = N; }\n\
    __global__ void a(float *x, int m, int n) { x[m] = n; }\n\
    __global__ void b(float *x) { extern __shared__ float s[]; x[0] = s[threadIdx.y]; }\n";

#[test]
fn any_file_of_kernels_can_be_compiled_and_exec_does_so_where_there_is_no_main() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("three.cu", KERNELS);
    insta::assert_snapshot!(told(laptop.show("build three.cu --arch sm_90a --remote h200")));
    let output = laptop.run("exec three.cu --remote h200");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 0, "{said}");
    assert!(said.contains("its kernels are compiled and nothing is run"), "{said}");
    let artifacts = fs::read_dir(laptop.project("artifacts")).unwrap().flatten();
    let cubins = artifacts.filter(|e| e.path().extension().is_some_and(|x| x == "cubin")).count();
    assert_eq!(cubins, 1);
    assert_eq!(laptop.latest_json("summary.json")["kernel"], "three");
    // Through a pipe too; arguments are for a program.
    let piped = laptop.run_with_input("exec - --remote h200 --json", KERNELS.as_bytes());
    assert_eq!(status(&piped), 0, "{}", String::from_utf8_lossy(&piped.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&piped.stdout).unwrap();
    assert_eq!(summary["schema"], "rgpu.build/1");
    insta::assert_snapshot!(laptop.show("exec three.cu --remote h200 -- 3"));
}

#[test]
fn a_template_that_nothing_instantiates_is_told_with_the_line_to_write() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let template = "template <typename T, int N> __global__ void scale(const T *x, T *y, int n) { y[0] = N; }\n";
    laptop.write("scale.cu", template);
    let mut story = laptop.show("build scale.cu --arch sm_90a --remote h200 -q");
    let summary = laptop.latest_json("summary.json");
    assert_eq!(summary["status"], "failed");
    assert_eq!(summary["error"]["code"], "no_kernels");
    assert!(!laptop.project("artifacts/scale.sm_90a.cubin").exists());
    story += &laptop.show("build scale.cu --arch sm_90a --remote h200 -q --emit ptx");
    insta::assert_snapshot!(story);
    let line = "template __global__ void scale<float, 16>(const float *x, float *y, int n);";
    laptop.write("scale.cu", &format!("{template}{line}\n"));
    let output = laptop.run("build scale.cu --arch sm_90a --remote h200");
    assert_eq!(status(&output), 0, "{}", laptop.shown("build", &output));
}

#[test]
fn a_build_whose_command_went_away_is_taken_up() {
    let laptop = Laptop::new();
    laptop.write("gemm.py", "import cutlass\n");
    let cubin = fixture("cubin/13.5/instructions/tcgen05.sm_100a.O3.cubin");
    let gate = laptop.path("gate");
    let path = played_python(
        &laptop,
        &format!(
            "echo compiling; while [ ! -e '{}' ]; do sleep 0.05; done; mkdir cubin; cp '{}' cubin/gemm.sm_100a.cubin; cp '{}' dsl.json",
            gate.display(),
            cubin.display(),
            fixture("build/cute/dsl.json").display()
        ),
    );
    let rgpu = |line: &str| {
        let mut command = laptop.rgpu(words(line));
        command.env("PATH", &path);
        command
    };
    let line = "build gemm.py --dsl cute --arch sm_100a --yes";
    let mut killed = rgpu(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let runs = laptop.project("artifacts/runs");
    wait_for("the compiler", || {
        let id = fs::read_to_string(runs.join(".latest")).ok()?;
        let log = fs::read_to_string(runs.join(id.trim()).join("log/build.stdout")).ok()?;
        log.contains("compiling").then_some(())
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    fs::write(&gate, "").unwrap();
    let attach = "runs attach latest";
    let taken_up = rgpu(attach).output().unwrap();
    let shown = laptop.shown(attach, &taken_up);
    assert_eq!(status(&taken_up), 0, "{shown}");
    assert!(shown.contains("CUBIN artifacts/gemm.sm_100a.cubin"), "{shown}");
    assert_eq!(laptop.latest_json("run.json")["state"], "done");
    // The same for one that was left on purpose.
    fs::remove_file(&gate).unwrap();
    let left = rgpu(&format!("{line} --detach")).output().unwrap();
    assert_eq!(status(&left), 0, "{}", laptop.shown(line, &left));
    assert_eq!(laptop.latest_json("run.json")["state"], "detached");
    fs::write(&gate, "").unwrap();
    let brought = rgpu(attach).output().unwrap();
    assert_eq!(status(&brought), 0, "{}", laptop.shown(attach, &brought));
    assert!(laptop.latest().join("summary.json").is_file());
}

/// A Python whose environments hold this program in the place of the interpreter.
fn played_python(laptop: &Laptop, program: &str) -> String {
    let player = laptop.path("player/python");
    script(&player, program);
    let make = format!(
        "mkdir -p \"$2/bin\"; cp '{}' \"$2/bin/python\"; touch \"$2/.ready\"",
        player.display()
    );
    script(&laptop.path("bin/python3"), &make);
    format!("{}:/usr/bin:/bin", laptop.path("bin").display())
}

#[test]
fn a_dsl_file_is_compiled_in_its_environment_and_what_was_recorded_is_read() {
    let laptop = Laptop::new();
    laptop.write("gemm.py", "import cutlass\n");
    let cubin = fixture("cubin/13.5/instructions/tcgen05.sm_100a.O3.cubin");
    let record = fixture("build/cute/dsl.json");
    let path = played_python(
        &laptop,
        &format!(
            "mkdir cubin; cp '{}' cubin/gemm.sm_100a.cubin; cp '{}' dsl.json",
            cubin.display(),
            record.display()
        ),
    );
    let line = "build gemm.py --dsl cute --arch sm_100a --yes --problem-sizes '512,512,512'";
    let output = laptop.rgpu(words(line)).env("PATH", &path).output().unwrap();
    insta::assert_snapshot!(told(laptop.shown(line, &output)));
    assert!(laptop.project("artifacts/gemm.sm_100a.cubin").is_file());
    let sass = fs::read_to_string(laptop.latest().join("sass/gemm.sm_100a.sass")).unwrap();
    assert!(sass.contains("UTCHMMA"));
    // Asked for once: not again.
    let line = line.replace(" --yes", " -q");
    let again = laptop.rgpu(words(&line)).env("PATH", &path).output().unwrap();
    assert_eq!(status(&again), 0, "{}", laptop.shown(&line, &again));
}

#[test]
fn a_dsl_file_that_does_not_compile_leaves_everything_that_helps() {
    let laptop = Laptop::new();
    laptop.write("c3.py", "import cutlass\n");
    let folder = fixture("build/cute-failed");
    let path = played_python(
        &laptop,
        &format!(
            "W=$(cd .. && pwd); for f in dsl.json stderr.log; do sed \"s#/WORK#$W#g\" '{}'/$f > $f; done; mv dsl.json d; cat stderr.log >&2; mv d dsl.json; mkdir ir; echo module > ir/c3.sm_100a.mlir; exit 1",
            folder.display()
        ),
    );
    let line = "build c3.py --dsl cute --arch sm_100a --yes -q";
    let output = laptop.rgpu(words(line)).env("PATH", &path).output().unwrap();
    insta::assert_snapshot!(laptop.shown(line, &output));
    let summary = laptop.latest_json("summary.json");
    assert_eq!(summary["error"]["class"], "ValueError");
    assert_eq!(summary["error"]["diagnoses"][0]["who"], "mlir");
    for file in ["traceback.txt", "ir/c3.sm_100a.mlir", "log/build.stderr"] {
        assert!(laptop.latest().join(file).is_file(), "{file}");
    }
}

#[test]
fn a_build_that_fails_is_told_once() {
    let laptop = Laptop::new();
    laptop.write("k.py", "import triton\n");
    let nothing =
        "echo 'build_dsl: NothingCompiled: nothing was compiled: no function' >&2; exit 1";
    let path = played_python(&laptop, nothing);
    let line = "build k.py --dsl triton --arch sm_100a --yes";
    let output = laptop.rgpu(words(line)).env("PATH", &path).output().unwrap();
    let shown = laptop.shown(line, &output);
    assert_ne!(status(&output), 0, "{shown}");
    assert_eq!(shown.matches("nothing was compiled: no function").count(), 1, "{shown}");
    assert!(!shown.contains("did not work"), "{shown}");
}

#[test]
fn the_last_two_builds_of_one_kernel_are_compared_though_another_was_built_between() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    for kernel in ["vecadd", "reduce", "vecadd"] {
        let line = format!("build {kernel} --arch sm_90a --remote h200");
        assert_eq!(status(&laptop.run(&line)), 0, "{line}");
    }
    let shown = laptop.show("disasm --diff latest~1 latest --tool rgpu --fail-on any");
    assert!(shown.contains("build vecadd, started") && !shown.contains("reduce"), "{shown}");
    assert!(shown.ends_with("status 0\n"), "{shown}");
}

#[test]
fn a_dsl_file_that_compiles_nothing_is_refused_before_anything_is_fetched() {
    let laptop = Laptop::new();
    laptop.write("add.py", "import triton\n@triton.jit\ndef add(x):\n    pass\n");
    let shown = laptop.show("build add.py --arch sm_100a --yes");
    assert!(shown.contains("error: the file compiles no kernel"), "{shown}");
    assert!(shown.contains("define `compile_kernel(problem_sizes)`"), "{shown}");
    assert!(shown.ends_with("status 6\n"), "{shown}");
    assert!(!laptop.project("artifacts").exists());
}

#[test]
fn a_message_of_nvcc_is_told_once() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("bad.cu", "__global__ void k(float *x) {\n  x[0] = does_not_compile;\n}\n");
    for line in
        ["build bad.cu --arch sm_90a --remote h200", "profile bad.cu --mode bench --remote h200"]
    {
        let shown = laptop.show(line);
        assert!(shown.ends_with("status 6\n"), "{shown}");
        assert_eq!(shown.matches("identifier \"does_not_compile\"").count(), 1, "{shown}");
    }
    laptop.write("new.cu", "__global__ void unknown_arch(float *x) {\n  x[0] = 1;\n}\n");
    for line in
        ["build new.cu --arch sm_90a --remote h200", "profile new.cu --mode bench --remote h200"]
    {
        let shown = laptop.show(line);
        assert!(!shown.ends_with("status 0\n"), "{shown}");
        assert_eq!(shown.matches("Unsupported gpu architecture").count(), 1, "{shown}");
        assert!(shown.matches("a newer CUDA toolkit").count() <= 1, "{shown}");
    }
}

#[test]
fn the_occupancy_of_a_build_goes_by_the_block_of_kernel_toml() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let shown = laptop.show("build vecadd --arch sm_90a --remote h200");
    assert!(shown.contains("occ") && shown.contains("100 %"), "{shown}");
    assert!(!shown.contains("no occupancy"), "{shown}");
    laptop.write("vecadd.cu", "__global__ void vecadd(float *x, int m, int n) { x[m] = n; }\n");
    let shown = laptop.show("build vecadd.cu --arch sm_90a --remote h200");
    let told = "`rgpu disasm artifacts/vecadd.sm_90a.cubin --block N` computes it for N";
    assert!(shown.contains(told), "{shown}");
}

#[test]
fn the_traceback_of_a_dsl_has_the_users_frames_only() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("k.py"), "def f():\n    {}['x']\nf()\n").unwrap();
    let harness = Path::new(env!("CARGO_MANIFEST_DIR")).join("harness/templates");
    let code = "import sys; sys.dont_write_bytecode = True\n\
                sys.path.insert(0, sys.argv[1])\n\
                import build_dsl\n\
                try: build_dsl.load(sys.argv[2] + '/k.py')\n\
                except KeyError as e: print(build_dsl.users_traceback(e, sys.argv[2]))\n";
    let mut python = Command::new("python3");
    let output = python.args(["-c", code]).arg(harness).arg(scratch.path()).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown.matches("/k.py\", line ").count(), 2, "{shown}");
    assert_eq!(shown.matches("File \"").count(), 2, "{shown}");
    assert!(shown.trim_end().ends_with("KeyError: 'x'"), "{shown}");
}

#[test]
fn a_dsl_that_a_file_imports_need_not_be_named() {
    let laptop = Laptop::new();
    laptop.write("gemm.py", "import torch, cutlass.cute as cute\n");
    laptop.write("both.py", "import triton; import cutlass\n");
    let cubin = fixture("cubin/13.5/instructions/tcgen05.sm_100a.O3.cubin");
    let record = fixture("build/cute/dsl.json");
    let compile = format!(
        "mkdir cubin; cp '{}' cubin/gemm.sm_100a.cubin; cp '{}' dsl.json",
        cubin.display(),
        record.display()
    );
    let path = played_python(&laptop, &compile);
    let line = "build gemm.py --arch sm_100a --yes";
    let output = laptop.rgpu(words(line)).env("PATH", &path).output().unwrap();
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    assert!(shown.contains("assumed: --dsl cute: `gemm.py` imports it"), "{shown}");
    let shown = laptop.show("build both.py");
    assert!(shown.contains("rgpu build both.py --dsl triton"), "{shown}");
    assert!(shown.ends_with("status 2\n"), "{shown}");
}

#[test]
fn a_download_that_ctrl_c_stopped_is_asked_for_again() {
    let laptop = Laptop::new();
    laptop.write("gemm.py", "import cutlass\n");
    let started = laptop.path("started");
    let make = format!("touch '{}'; sleep 100", started.display());
    script(&laptop.path("bin/python3"), &make);
    let path = format!("{}:/usr/bin:/bin", laptop.path("bin").display());
    let line = "build gemm.py --arch sm_100a --yes";
    let mut command = laptop.rgpu(words(line));
    let child = command.env("PATH", &path).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    wait_for("the download", || started.exists().then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(status(&output), 130, "{}", laptop.shown(line, &output));
    let shown = laptop.show("build gemm.py --arch sm_100a");
    assert!(shown.contains("is only fetched with your consent"), "{shown}");
}

#[test]
fn an_environment_that_ctrl_c_stops_leaves_no_traceback_and_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let maker = Path::new(env!("CARGO_MANIFEST_DIR")).join("harness/templates/python_env.py");
    let spec = folder.path().join("spec.json");
    let requirements = r#"{"requirements": [], "requires_python": null, "host_packages": false}"#;
    fs::write(&spec, requirements).unwrap();
    // It plays uv, which makes the environment.
    let uv = folder.path().join("bin/uv");
    script(&uv, "touch started; mkdir -p env/half; exec sleep 100");
    let environment = folder.path().join("env");
    let child = Command::new("python3")
        .arg(maker)
        .args([&environment, &spec])
        .current_dir(folder.path())
        .env("PATH", format!("{}:/usr/bin:/bin", folder.path().join("bin").display()))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the environment", || environment.join("half").exists().then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 130, "{said}");
    assert!(!said.contains("Traceback") && said.contains("stopped before"), "{said}");
    assert!(!environment.exists());
}

#[test]
fn several_architectures_are_built_in_a_run_each() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    for arch in ["--arch sm_90a,sm_80", "--arch sm_90a --arch sm_80"] {
        let shown = laptop.show(&format!("build vecadd {arch} --remote h200"));
        assert!(shown.ends_with("status 0\n"), "{shown}");
        for arch in ["sm_90a", "sm_80"] {
            let cubin = laptop.project(format!("artifacts/vecadd.{arch}.cubin"));
            assert!(cubin.is_file(), "{shown}");
            fs::remove_file(cubin).unwrap();
        }
        let argv = laptop.latest_json("run.json")["argv"].clone();
        let argv: Vec<&str> = argv.as_array().unwrap().iter().flat_map(|w| w.as_str()).collect();
        assert!(argv.ends_with(&["--arch", "sm_80"]) && !argv.contains(&"sm_90a"), "{argv:?}");
    }
    for line in [
        "build vecadd --arch sm_90a,sm_80 --json",
        "build vecadd --arch sm_90a,sm_99",
        "profile vecadd --arch sm_90a --arch sm_80 --dry-run",
        "profile vecadd --arch sm_90a,sm_80 --dry-run",
    ] {
        let output = laptop.run(line);
        assert_eq!(status(&output), 2, "{}", laptop.shown(line, &output));
    }
    let shown = laptop.show("profile vecadd --arch sm_90a --arch sm_80 --dry-run");
    assert!(shown.contains("`rgpu build --arch sm_90a,sm_100a` compiles for several"), "{shown}");
}

/// The wheels are hundreds of megabytes: fetched only where that is wanted.
#[test]
fn the_example_kernels_of_both_dsls_use_the_tensor_cores_of_blackwell() {
    if std::env::var_os("RGPU_TEST_DSL").is_none() {
        eprintln!(
            "skipped: RGPU_TEST_DSL=1 fetches the CuTe DSL and Triton and compiles with them"
        );
        return;
    }
    let laptop = Laptop::new();
    let root = env!("CARGO_MANIFEST_DIR");
    for (dsl, file) in [("cute", "tcgen05_gemm"), ("triton", "triton_matmul")] {
        let line = format!("build {root}/kernels/dsl/{file}.py --dsl {dsl} --arch sm_100a --yes");
        let output = laptop.run(&line);
        assert_eq!(status(&output), 0, "{}", laptop.shown(&line, &output));
        let listing = laptop.latest().join(format!("sass/{file}.sm_100a.sass"));
        let sass = fs::read_to_string(listing).unwrap();
        assert!(sass.contains("UTCHMMA") && sass.contains("LDTM"), "{file}");
    }
}

#[test]
fn nvrtc_of_this_machine_compiles_for_blackwell_where_it_is_set_up() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join(".rgpu/cuda/bin").exists() {
        eprintln!("skipped: no NVRTC here; `cargo xtask setup` brings it");
        return;
    }
    let laptop = Laptop::new();
    symlink(built("rgpu-runner"), laptop.path("libexec/rgpu-runner")).unwrap();
    let line = "build --kernel vecadd --arch sm_100a --json";
    let output = laptop
        .rgpu(words(line))
        .current_dir(root)
        .env("RGPU_RUNS_DIR", laptop.project("artifacts/runs"))
        .output()
        .unwrap();
    assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(summary["compiler"].as_str().unwrap().starts_with("NVRTC 13"));
    assert_eq!(summary["code"][0]["images"][0]["arch"], "sm_100a");
    assert!(laptop.project("artifacts/vecadd.sm_100a.cubin").is_file());
}

#[test]
fn files_whose_names_are_no_names_of_kernels_do_not_take_each_others_places() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    for (file, name) in [("k ü/my kern.cu", "my-kern"), ("a b/other one.cu", "other-one")] {
        laptop.write(file, KERNELS);
        let output = laptop.run(&format!("build '{file}' --arch sm_90a --remote h200"));
        assert_eq!(status(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(laptop.latest_json("summary.json")["kernel"], name);
    }
    let cubins = ["my-kern", "other-one"].map(|name| format!("artifacts/{name}.sm_90a.cubin"));
    assert!(cubins.iter().all(|cubin| laptop.project(cubin).is_file()));
    // A file of a DSL is told by the same name.
    laptop.write("my gemm.py", "import cutlass\n");
    let path = played_python(&laptop, "exit 1");
    let line = "build 'my gemm.py' --dsl cute --yes";
    let output = laptop.rgpu(words(line)).env("PATH", path).output().unwrap();
    assert_eq!(status(&output), 6, "{}", laptop.shown(line, &output));
    assert_eq!(laptop.latest_json("run.json")["kernel"], "my-gemm");
}

#[test]
fn commands_to_type_next_name_a_file_as_a_shell_takes_it() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("k ü/my kern.cu", KERNELS);
    laptop.write("k ü/my gemm.py", "import triton, cutlass\n");
    laptop.write("k ü/my run.rs", "fn main() {}\n");
    for (line, hint) in [
        ("exec 'k ü/my kern.cu' --remote h200 -- 3", "rgpu build 'k ü/my kern.cu'"),
        ("exec 'k ü/my kern.cu' --remote h200 -- 3", "rgpu profile --kernel 'k ü/my kern.cu'"),
        ("build 'k ü/my gemm.py'", "rgpu build 'k ü/my gemm.py' --dsl triton"),
        ("build 'k ü/my run.rs'", "rgpu exec 'k ü/my run.rs'"),
        ("kernels new 'k ü/my kern.cu'", "rgpu profile --kernel 'k ü'"),
    ] {
        let shown = laptop.show(line);
        assert!(shown.contains(hint), "{shown}");
    }
}
