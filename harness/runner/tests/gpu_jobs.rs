//! Runs every GPU job as a process, with a fake driver and a fake NVML (`fake/`) built by `cc`.
//!
//! Tests with a real driver run elsewhere, on a GPU. These cover the runner's own logic: the number
//! of launches, what is restored and compared, and the report after each failure.

#![allow(clippy::unwrap_used)]

use rgpu_case::{
    ErrorClass, GuardKind, HostFunction, LaunchShape, Phase, Reference, Role, RunnerInput,
    RunnerReport, TimingSource, WarningKind,
};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with the fakes, a runner input with two cases and a reference.
struct Bench {
    folder: tempfile::TempDir,
    input: RunnerInput,
    env: Vec<(&'static str, String)>,
}

impl Bench {
    fn new(function: &str) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        for (library, built) in fakes() {
            std::fs::copy(built, at.join(library)).unwrap();
        }
        let module = format!(
            "{}\n.entry _Z6vecaddPKfS0_Pfi(\n.entry wrong(\n",
            at.join("kernels.so").display()
        );
        std::fs::write(at.join("module.ptx"), module).unwrap();
        let input = serde_json::from_str(&input_text(function)).unwrap();
        Bench { folder, input, env: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Bench {
        self.env.push((name, value.into()));
        self
    }

    fn change(mut self, change: impl FnOnce(&mut RunnerInput)) -> Bench {
        change(&mut self.input);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a job; returns its output and the report.
    fn run(&self, args: &[&str]) -> (Output, RunnerReport) {
        std::fs::write(self.path("case.json"), serde_json::to_vec(&self.input).unwrap()).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_rgpu-runner"))
            .arg("case.json")
            .args(args)
            .args(["--out", "report.json"])
            .current_dir(self.folder.path())
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("FAKE_CUDA_LOG", self.path("launches.log"))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap();
        let report = std::fs::read(self.path("report.json")).unwrap();
        (output, serde_json::from_slice(&report).unwrap())
    }

    fn launches(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("launches.log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

/// The fakes, built once for all tests, and again when a source is newer.
fn fakes() -> Vec<(&'static str, PathBuf)> {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rgpu-runner-fakes");
    std::fs::create_dir_all(&built).unwrap();
    let links = format!("-L{}", built.display());
    [
        ("libcuda.so.1", "cuda.c", vec!["-Wl,-soname,libcuda.so.1", "-ldl"]),
        ("libcuda-old.so", "cuda.c", vec!["-DOLD", "-Wl,-soname,libcuda.so.1", "-ldl"]),
        ("libnvidia-ml.so.1", "nvml.c", vec![]),
        ("kernels.so", "kernels.c", vec![links.as_str(), "-l:libcuda.so.1"]),
        ("reference.so", "reference.c", vec![]),
        ("entry.so", "entry.c", vec![]),
        ("refreshes.so", "entry.c", vec!["-DREFRESHES=1"]),
        ("forgets.so", "entry.c", vec!["-DREFRESHES=0"]),
    ]
    .map(|(library, source, flags)| (library, build(&built, library, source, &flags)))
    .into()
}

/// Compiles into a separate file, then renames it, because tests run in parallel.
fn build(folder: &Path, library: &str, source: &str, flags: &[&str]) -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = crate_folder.join("tests/fake").join(source);
    let target = folder.join(library);
    let age = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    let header = age(&crate_folder.join("../include/rgpu.h"));
    if age(&target).is_some() && age(&target) >= age(&source).max(header) {
        return target;
    }
    let own = tempfile::Builder::new().tempfile_in(folder).unwrap().into_temp_path();
    let mut command = Command::new("cc");
    command.args(["-O1", "-shared", "-fPIC", "-Wall", "-I"]).arg(crate_folder.join("../include"));
    command.arg("-o").arg(&own).arg(source).args(flags);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    own.persist(&target).unwrap();
    target
}

fn input_text(function: &str) -> String {
    let case = |n: u64| {
        format!(
            r#"{{"name":"n={n}","vars":["n"],"groups":[{{"sizes":[{n}],"args":[
            {{"name":"a","dtype":"f32","dims":[{n}],"role":"in","init":{{"uniform":{{"lo":-1,"hi":1}}}}}},
            {{"name":"b","dtype":"f32","dims":[{n}],"role":"in","init":{{"normal":{{"mean":0,"sd":1}}}}}},
            {{"name":"y","dtype":"f32","dims":[{n}],"role":"out"}},
            {{"name":"n","dtype":"i32","role":"scalar","value":{n}}}]}}],
            "launch":{{"grid":[4,1,1],"block":[256,1,1]}}}}"#
        )
    };
    format!(
        r#"{{"abi":1,"kernel":"vecadd","entry":{{"device":{{"module":"module.ptx","function":"{function}"}}}},
        "cases":[{},{}],"reference":{{"host_library":{{"library":"reference.so"}}}},
        "timing":{{"warmup":2,"max_seconds":0.3,"graph_below_ns":0}}}}"#,
        case(5),
        case(1000)
    )
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The kernel takes a structure and a pointer; the reference is a Python function.
fn structure_with_python_reference(reference: &str) -> (Output, RunnerReport) {
    let group = r#"{"sizes":[5],"args":[
        {"name":"in.a","dtype":"f32","dims":[5],"role":"in","init":{"uniform":{"lo":-1,"hi":1}}},
        {"name":"in.seven","dtype":"i16","role":"scalar","value":-7},
        {"name":"in.b","dtype":"f32","dims":[5],"role":"in","init":{"ints":{"lo":0,"hi":9}}},
        {"name":"in.n","dtype":"i32","role":"scalar","value":5},
        {"name":"y","dtype":"f32","dims":[5],"role":"out"}]}"#;
    let bench = Bench::new("takes_structure").change(|input| {
        input.cases.truncate(1);
        input.cases[0].groups = vec![serde_json::from_str(group).unwrap()];
        let function = HostFunction { library: "ref.py".into(), function: "add".into() };
        input.reference = Some(Reference::HostLibrary(function));
        input.tolerance.abs = 1e-6;
    });
    std::fs::write(bench.path("ref.py"), reference).unwrap();
    bench.run(&["verify"])
}

#[test]
fn members_of_a_structure_are_one_parameter_and_python_checks_them() {
    let right = "def add(in_a, in_b, n):\n    return [in_a[i] + in_b[i] for i in range(n)]\n";
    let (output, report) = structure_with_python_reference(right);
    assert!(output.status.success(), "{}", stderr(&output));
    let correctness = report.cases[0].correctness.as_ref().unwrap();
    assert!(correctness.passed && report.cases[0].reference_ns.is_some(), "{correctness:?}");
    let wrong = right.replace("in_a[i] +", "2 +");
    let (output, report) = structure_with_python_reference(&wrong);
    assert!(!output.status.success());
    assert_eq!(report.error.unwrap().class, ErrorClass::WrongResult);
    for (text, problem) in [
        ("def add(x):\n    return x\n", "its parameter `x` is none of `n`, `in_a`"),
        ("def add(n):\n    return [1, 2]\n", "`y` has 5 elements, and the reference gave 2"),
        ("def add(n):\n    raise ValueError('odd')\n", "ValueError: odd"),
    ] {
        let (_, report) = structure_with_python_reference(text);
        let error = report.error.unwrap();
        assert_eq!(error.class, ErrorClass::Reference);
        assert!(error.text.contains(problem), "{}", error.text);
    }
}

#[test]
fn a_right_kernel_is_verified_on_every_case_by_its_plain_name() {
    let bench = Bench::new("vecadd");
    let (output, report) = bench.run(&["verify"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(report.cases.len(), 2);
    for case in &report.cases {
        let correctness = case.correctness.as_ref().unwrap();
        assert!(correctness.passed && correctness.bit_equal);
        assert_eq!(correctness.outputs[0].max_abs_error, 0.0);
    }
    let device = report.device.unwrap();
    assert_eq!((device.name.as_str(), device.compute_capability), ("Fake GPU 0", [9, 0]));
    assert_eq!(device.driver.as_deref(), Some("570.1"));
    assert_eq!(bench.launches().len(), 4);
}

#[test]
fn a_wrong_kernel_ends_with_the_first_wrong_element_after_all_cases() {
    let (output, report) = Bench::new("wrong").run(&["verify"]);
    assert_eq!(output.status.code(), Some(1));
    let correctness = report.cases[1].correctness.as_ref().unwrap();
    let checked = &correctness.outputs[0];
    assert_eq!((checked.mismatches, checked.first_mismatch.as_ref().unwrap().index), (1, 2));
    let error = report.error.unwrap();
    assert_eq!((error.class, error.case.as_deref()), (ErrorClass::WrongResult, Some("n=5")));
    assert!(error.text.contains("1 of 5 elements of `y`"), "{}", error.text);
}

#[test]
fn unwritten_elements_and_changed_inputs_are_wrong_results() {
    let (output, report) = Bench::new("short_by_one").run(&["verify"]);
    assert_eq!(output.status.code(), Some(1));
    let correctness = report.cases[0].correctness.as_ref().unwrap();
    assert_eq!(correctness.outputs[0].unwritten, 1);
    assert!(correctness.bit_equal);

    let (output, report) = Bench::new("spoils_input").run(&["verify"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report.cases[0].correctness.as_ref().unwrap().changed_inputs, ["a"]);
}

#[test]
fn a_changing_kernel_is_not_bit_equal() {
    let (_, report) = Bench::new("never_the_same").run(&["verify"]);
    assert!(!report.cases[0].correctness.as_ref().unwrap().bit_equal);
}

#[test]
fn a_timed_call_that_does_nothing_is_a_wrong_result() {
    for kernel in ["works_once", "never_the_same"] {
        let (output, report) = Bench::new(kernel).run(&["time"]);
        assert_eq!(output.status.code(), Some(1), "{kernel}: {}", stderr(&output));
        let error = report.error.unwrap();
        assert_eq!((error.class, error.case.as_deref()), (ErrorClass::WrongResult, Some("n=5")));
        assert!(error.text.contains("do not give the same"), "{}", error.text);
    }
}

#[test]
fn calls_that_differ_in_their_last_bits_are_timed_and_said_to_be_uncompared() {
    let bench = Bench::new("sums_in_another_order").change(|input| {
        input.tolerance = rgpu_case::Tolerance { abs: 1e-5, rel: 1e-5, ..Default::default() };
    });
    let (output, report) = bench.run(&["time"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(report.cases[0].timing.as_ref().unwrap().samples > 0);
    assert!(report.gaps.iter().any(|gap| gap.contains("last bits")), "{:?}", report.gaps);
}

/// `y += a + b`: wrong as soon as a launch sees what an earlier one left.
fn accumulating() -> Bench {
    Bench::new("adds_to_output").change(|input| {
        for case in &mut input.cases {
            let y = &mut case.groups[0].args[2];
            y.role = Role::InOut;
            y.init = Some(rgpu_case::Init::Ints { lo: 1, hi: 4 });
            y.dims.push(1);
        }
    })
}

#[test]
fn inout_tensors_are_filled_again_before_each_launch() {
    let (output, report) = accumulating().run(&["verify"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(report.cases[0].correctness.as_ref().unwrap().bit_equal);
}

#[test]
fn every_launch_of_every_job_finds_inout_tensors_as_they_were() {
    for job in ["time", "once", "guard"] {
        let bench = Bench::new("wants_fresh_output").change(|input| {
            for case in &mut input.cases {
                let y = &mut case.groups[0].args[2];
                y.role = Role::InOut;
                y.init = Some(rgpu_case::Init::Const { value: rgpu_case::Number::Int(1) });
            }
        });
        let (output, _) = bench.run(&[job]);
        assert!(output.status.success(), "{job}: {}", stderr(&output));
    }
}

#[test]
fn time_gives_samples_with_clocks_and_an_interval() {
    let bench = Bench::new("vecadd");
    let (output, report) = bench.run(&["time"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for case in &report.cases {
        let timing = case.timing.as_ref().unwrap();
        assert_eq!(timing.source, TimingSource::Events);
        assert!(timing.samples >= 1 && timing.sample_ns.len() >= timing.samples);
        assert!(timing.ci95_ns[0] <= timing.median_ns && timing.median_ns <= timing.ci95_ns[1]);
        assert!(timing.l2_flushed && timing.overhead_ns.is_some());
        assert_eq!(timing.clocks[0].sm_mhz, Some(1980));
        assert_eq!(timing.clocks[0].throttle, [""; 0]);
    }
    assert_eq!(report.warnings, []);
    assert!(String::from_utf8_lossy(&output.stdout).contains("time n=1000: median"));
}

/// A kernel that takes this many nanoseconds, of which events see 2000 more; timed in a graph when
/// they see less than 20 µs.
fn with_graphs(function: &str, launch_ns: u32) -> Bench {
    let bench = Bench::new(function).change(|input| input.timing.graph_below_ns = 20_000.0);
    bench.with("FAKE_CUDA_NS", launch_ns.to_string())
}

#[test]
fn short_kernels_are_timed_in_a_graph_too_and_the_flush_is_taken_off() {
    let (output, report) = with_graphs("vecadd", 5000).run(&["time"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for case in &report.cases {
        let timing = case.timing.as_ref().unwrap();
        assert!((timing.median_ns - 7000.0).abs() < 1.0, "{}", timing.median_ns);
        let graph = timing.graph.as_ref().unwrap();
        assert!((graph.median_ns - 5000.0).abs() < 1.0, "{}", graph.median_ns);
        assert!(graph.ci95_ns[0] <= graph.median_ns && graph.median_ns <= graph.ci95_ns[1]);
        assert!(graph.samples > 0 && graph.launches == 32);
        assert_eq!((graph.call_nodes, graph.prepare_nodes), (Some(1), Some(2)));
        // The flush writes 2 MiB, at 1000 bytes a nanosecond, and the poison a few bytes.
        assert!((graph.prepare_ns - 2097.0).abs() < 10.0, "{}", graph.prepare_ns);
    }
    assert_eq!(report.gaps, [""; 0]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("time n=1000 in a CUDA graph: median 5.000 us"), "{shown}");
}

#[test]
fn inout_tensors_are_restored_inside_the_graph() {
    let bench = with_graphs("adds_to_output", 5000).change(|input| {
        for case in &mut input.cases {
            let y = &mut case.groups[0].args[2];
            y.role = Role::InOut;
            y.init = Some(rgpu_case::Init::Ints { lo: 1, hi: 4 });
        }
    });
    let (output, report) = bench.run(&["time"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let graph = report.cases[1].timing.as_ref().unwrap().graph.as_ref().unwrap();
    // 4000 bytes of `y` are copied before each call.
    assert!((graph.prepare_ns - 2101.0).abs() < 1.0, "{}", graph.prepare_ns);
    assert!((graph.median_ns - 5000.0).abs() < 1.0, "{}", graph.median_ns);
}

#[test]
fn longer_kernels_have_no_time_in_a_graph() {
    let (_, report) = with_graphs("vecadd", 19_000).run(&["time"]);
    assert_eq!(report.cases[0].timing.as_ref().unwrap().graph, None);
    assert_eq!(report.gaps, [""; 0]);
}

#[test]
fn a_graph_that_cannot_be_made_is_a_gap_and_the_other_times_stay() {
    let host_entry = || {
        with_graphs("-", 5000).change(|input| {
            input.entry = rgpu_case::EntryPoint::Host { library: "entry.so".into() };
        })
    };
    let old = with_graphs("vecadd", 5000);
    std::fs::copy(old.path("libcuda-old.so"), old.path("libcuda.so.1")).unwrap();
    for (bench, why) in [
        (
            with_graphs("vecadd", 5000).with("FAKE_CUDA_FAIL", "cuStreamEndCapture:901"),
            "`cuStreamEndCapture` failed",
        ),
        (
            with_graphs("vecadd", 5000).with("FAKE_CUDA_FAIL", "cuGraphLaunch:719"),
            "`cuGraphLaunch` failed",
        ),
        (host_entry(), "puts no work on the stream"),
        (host_entry().with("FAKE_ENTRY_WAITS", "1"), "`rgpu_launch` returned 900"),
        (with_graphs("wrong_in_a_graph", 5000), "differ from the first call's"),
        (old, "CUDA graphs need driver 470"),
    ] {
        let (output, report) = bench.run(&["time"]);
        assert!(output.status.success(), "{why}: {}", stderr(&output));
        assert_eq!(report.error, None, "{why}");
        let gap = "`n=5` was not timed in a CUDA graph: ";
        assert!(
            report.gaps.iter().any(|text| text.starts_with(gap) && text.contains(why)),
            "{why}: {:?}",
            report.gaps
        );
        for case in &report.cases {
            let timing = case.timing.as_ref().unwrap();
            assert!(timing.samples > 0 && timing.graph.is_none(), "{why}");
        }
    }
}

#[test]
fn fixed_iterations_and_the_host_clock_are_obeyed() {
    let bench = Bench::new("vecadd").change(|input| input.timing.iters = Some(17));
    let (_, report) = bench.run(&["time", "--host-clock"]);
    let timing = report.cases[1].timing.as_ref().unwrap();
    assert_eq!((timing.source, timing.sample_ns.len()), (TimingSource::Host, 17));
}

#[test]
fn once_launches_the_warm_up_and_one_more_and_nothing_else() {
    let bench = Bench::new("vecadd");
    let (output, _) = bench.run(&["once", "--ranges", "ranges.jsonl"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(bench.launches().len(), 2 * (2 + 1));
    let ranges = std::fs::read_to_string(bench.path("ranges.jsonl")).unwrap();
    assert_eq!(ranges.matches(r#""path":["timed","n=1000"]"#).count(), 1);
}

#[test]
fn range_names_hold_no_operator_of_ncus_filters() {
    let bench = Bench::new("vecadd").change(|input| input.cases[0].name = "n=5,k=1+n=2".into());
    let (_, report) = bench.run(&["once", "--ranges", "ranges.jsonl"]);
    assert_eq!(report.cases[0].name, "n=5,k=1+n=2");
    let ranges = std::fs::read_to_string(bench.path("ranges.jsonl")).unwrap();
    assert!(ranges.contains(r#""path":["timed","n=5 k=1&n=2"]"#), "{ranges}");
}

#[test]
fn a_reader_that_went_away_does_not_end_the_job() {
    let bench = Bench::new("vecadd");
    bench.run(&["once"]);
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!(
            "{{ {} case.json once --out late.json; echo $? > status; }} | true",
            env!("CARGO_BIN_EXE_rgpu-runner")
        ))
        .current_dir(bench.folder.path())
        .env("LD_LIBRARY_PATH", bench.folder.path())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(std::fs::read_to_string(bench.path("status")).unwrap().trim(), "0");
}

#[test]
fn a_host_under_other_load_is_warned_of_and_refused_before_any_timing_under_strict() {
    let busy = || {
        Bench::new("vecadd")
            .with("FAKE_NVML_PID", "4242")
            .with("FAKE_NVML_LIMIT", "300000")
            .with("FAKE_NVML_THROTTLE", "0x44")
    };
    let (output, report) = busy().run(&["time"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let kinds: Vec<WarningKind> = report.warnings.iter().map(|w| w.kind).collect();
    use WarningKind::*;
    assert_eq!(kinds, [PowerLimit, OtherProcesses, PowerLimit, ThermalLimit]);
    assert!(report.cases[0].timing.as_ref().unwrap().discarded.is_empty());

    let bench = busy();
    let (output, report) = bench.run(&["time", "--strict"]);
    assert_eq!(output.status.code(), Some(11));
    assert_eq!(report.error.unwrap().class, ErrorClass::HostUnfit);
    assert_eq!(bench.launches(), [""; 0]);
}

#[test]
fn a_hot_gpu_cools_before_it_is_timed_and_the_report_says_how_long() {
    let (output, report) = Bench::new("vecadd").with("FAKE_NVML_MARGINS", "3,9,16").run(&["time"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let cooling = report.cases[0].timing.as_ref().unwrap().cooling.as_ref().unwrap();
    // 9 °C would not have been hot, but is not cool enough to end the wait.
    assert_eq!((cooling.from_c, cooling.to_c), (3, 16));
    assert!(cooling.seconds >= 0.5, "{cooling:?}");
    assert_eq!(report.cases[1].timing.as_ref().unwrap().cooling, None);
    assert_eq!(report.warnings, []);
    // Without a margin, the slowdown temperature counts.
    for (slowdown, is_hot) in [("45", true), ("90", false)] {
        let bench = Bench::new("vecadd")
            .with("FAKE_NVML_SLOWDOWN", slowdown)
            .change(|input| input.timing.cool_seconds = 0.3);
        let (_, report) = bench.run(&["time"]);
        let cooling = &report.cases[0].timing.as_ref().unwrap().cooling;
        assert_eq!(cooling.as_ref().map(|cooling| cooling.to_c), is_hot.then_some(4));
    }
}

#[test]
fn a_gpu_that_stays_hot_is_warned_of_after_a_while_and_refused_under_strict() {
    let hot = || {
        Bench::new("vecadd")
            .with("FAKE_NVML_MARGINS", "3")
            .change(|input| input.timing.cool_seconds = 0.3)
    };
    let (output, report) = hot().run(&["time"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(report.warnings[0].kind, WarningKind::ThermalLimit);
    assert!(report.warnings[0].text.contains("3 °C below"), "{}", report.warnings[0].text);
    assert!(report.cases[1].timing.as_ref().unwrap().cooling.is_some());
    let (output, report) = hot().run(&["time", "--strict"]);
    assert_eq!(output.status.code(), Some(11));
    assert!(report.cases.iter().all(|case| case.timing.is_none()));
}

#[test]
fn a_clock_off_the_policy_is_refused_after_warm_up_and_before_timing() {
    let bench = Bench::new("vecadd").with("FAKE_NVML_MHZ", "1200").change(|input| {
        input.policies.clocks = rgpu_case::ClockPolicy::Locked { sm_mhz: 1500 };
    });
    let (output, report) = bench.run(&["time", "--strict"]);
    assert_eq!(output.status.code(), Some(11));
    assert_eq!(report.warnings[0].kind, WarningKind::Clocks);
    assert!(report.cases.iter().all(|case| case.timing.is_none()));
}

#[test]
fn an_illegal_access_names_the_call_and_leaves_a_whole_report() {
    for job in ["verify", "time", "once", "guard"] {
        let (output, report) = Bench::new("crashes").run(&[job]);
        assert_eq!(output.status.code(), Some(7), "{job}: {}", stderr(&output));
        let error = report.error.unwrap();
        assert_eq!((error.class, error.code), (ErrorClass::IllegalAccess, Some(700)), "{job}");
        assert!(error.text.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{job}: {}", error.text);
        assert!(
            error.text.contains("the cause is an earlier kernel launch"),
            "{job}: {}",
            error.text
        );
        assert!(error.phase.is_some() && error.case.as_deref() == Some("n=5"), "{job}");
        // It would only be noise in a sanitizer's log.
        assert!(!stderr(&output).contains("after the fault"), "{job}: {}", stderr(&output));
    }
}

#[test]
fn guard_finds_what_each_faulty_kernel_does() {
    for (function, kind, arg, offset) in [
        ("writes_beyond", GuardKind::WriteAfter, "y", 20),
        ("reads_beyond", GuardKind::ReadsStray, "y", 16),
        ("short_by_one", GuardKind::Unwritten, "y", 16),
        ("spoils_input", GuardKind::InputWritten, "a", 0),
        ("never_the_same", GuardKind::NotRepeatable, "y", 0),
        ("adds_to_output", GuardKind::ReadsStray, "y", 0),
    ] {
        let (output, report) = Bench::new(function).run(&["guard"]);
        assert_eq!(output.status.code(), Some(10), "{function}: {}", stderr(&output));
        let findings = &report.cases[0].guard.as_ref().unwrap().findings;
        let first = &findings[0];
        assert_eq!(
            (first.kind, first.arg.as_str(), first.offset),
            (kind, arg, offset),
            "{function}"
        );
        assert_eq!(findings.len(), 1, "{function}: {findings:?}");
        assert_eq!(report.error.unwrap().class, ErrorClass::GuardFound);
    }
}

#[test]
fn guard_says_nothing_seen_and_never_clean_of_a_right_kernel() {
    let (output, report) = Bench::new("vecadd").run(&["guard"]);
    assert!(output.status.success());
    assert_eq!(report.cases[0].guard.as_ref().unwrap().findings, []);
    assert!(String::from_utf8_lossy(&output.stdout).contains("does not mean clean"));
}

#[test]
fn a_host_entry_is_prepared_once_per_case_and_its_status_is_shown() {
    let entry = || {
        Bench::new("-").change(|input| {
            input.entry = rgpu_case::EntryPoint::Host { library: "entry.so".into() };
        })
    };
    for job in ["verify", "time", "once", "guard"] {
        let (output, report) = entry().run(&[job]);
        assert!(output.status.success(), "{job}: {}", stderr(&output));
        assert!(report.cases[0].prepare_ns.unwrap() > 0.0);
    }
    let (output, report) = entry().with("FAKE_ENTRY_FAIL", "1").run(&["verify"]);
    assert_eq!(output.status.code(), Some(8));
    let error = report.error.unwrap();
    assert_eq!((error.call.as_deref(), error.code), (Some("rgpu_launch"), Some(77)));
}

#[test]
fn a_reference_kernel_is_checked_on_small_sets_before_it_is_trusted() {
    let with_reference = |function: &str| {
        let bench = Bench::new("vecadd");
        let function = function.to_owned();
        bench.change(|input| {
            let launch =
                LaunchShape { grid: [1; 3], block: [32, 1, 1], cluster: None, dynamic_shared: 0 };
            for case in &mut input.cases {
                case.reference_launch = Some(launch.clone());
            }
            let Some(Reference::HostLibrary(check)) = input.reference.take() else { return };
            let small = vec![input.cases[0].clone()];
            let module = "module.ptx".to_owned();
            input.reference = Some(Reference::DeviceKernel { module, function, check, small });
        })
    };
    let (output, _) = with_reference("_Z6vecaddPKfS0_Pfi").run(&["verify"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let (output, report) = with_reference("wrong").run(&["verify"]);
    assert_eq!(output.status.code(), Some(9));
    assert!(report.error.unwrap().text.contains("disagrees with its host function"));
}

#[test]
fn a_host_entry_has_a_reference_on_the_gpu_that_launches_by_itself() {
    let with_reference = |function: &str| {
        let function = function.to_owned();
        Bench::new("-").change(|input| {
            input.entry = rgpu_case::EntryPoint::Host { library: "entry.so".into() };
            let Some(Reference::HostLibrary(check)) = input.reference.take() else { return };
            let small = vec![input.cases[0].clone()];
            let library = "entry.so".to_owned();
            input.reference = Some(Reference::DeviceFunction { library, function, check, small });
        })
    };
    let (output, report) = with_reference("slow_vecadd").run(&["verify"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(report.cases[0].reference_ns.is_some());
    let (output, report) = with_reference("wrong_vecadd").run(&["verify"]);
    assert_eq!(output.status.code(), Some(9));
    assert!(report.error.unwrap().text.contains("disagrees with its host function"));
    let (_, report) = with_reference("failing_vecadd").run(&["verify"]);
    assert!(report.error.unwrap().text.contains("`failing_vecadd` returned 7"));
}

/// A host entry that computes part of its result in `rgpu_prepare`, with a reference on the "GPU".
fn on_new_data(library: &str) -> Bench {
    Bench::new("-").change(|input| {
        input.entry = rgpu_case::EntryPoint::Host { library: library.into() };
        let Some(Reference::HostLibrary(check)) = input.reference.take() else { return };
        let small = vec![input.cases[0].clone()];
        let (library, function) = ("entry.so".to_owned(), "slow_vecadd".to_owned());
        input.reference = Some(Reference::DeviceFunction { library, function, check, small });
        input.timing.iters = Some(9);
    })
}

#[test]
fn every_timed_call_has_data_of_its_own_and_is_compared_with_the_reference_on_them() {
    // The first is prepared again for each call; the second is told of the new contents.
    for library in ["entry.so", "refreshes.so"] {
        for args in [&["time"][..], &["time", "--host-clock"]] {
            let (output, report) = on_new_data(library).run(args);
            assert!(output.status.success(), "{library} {args:?}: {}", stderr(&output));
            for case in &report.cases {
                let timing = case.timing.as_ref().unwrap();
                assert_eq!((timing.distinct_inputs, timing.verified), (Some(9), Some(9)));
                assert_eq!((timing.repeated, timing.flushed_bytes), (None, Some(2 << 20)));
                assert!(timing.wall_ns.unwrap() > 0.0);
            }
        }
    }
}

#[test]
fn the_small_sizes_of_a_reference_are_no_results() {
    let bench = on_new_data("entry.so").change(|input| {
        let Some(Reference::DeviceFunction { small, .. }) = &mut input.reference else { return };
        small[0].name = "small".into();
    });
    for job in ["verify", "time"] {
        let (output, report) = bench.run(&[job]);
        assert!(output.status.success(), "{}", stderr(&output));
        let names: Vec<_> = report.cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["n=5", "n=1000"], "{job}");
    }
}

#[test]
fn a_host_entry_that_keeps_to_old_contents_is_wrong_from_the_first_timed_call() {
    let (output, report) = on_new_data("forgets.so").run(&["time"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let error = report.error.unwrap();
    assert_eq!((error.class, error.case.as_deref()), (ErrorClass::WrongResult, Some("n=5")));
    assert!(
        error.text.contains("timed call 1 ") && error.text.contains("1 of 5"),
        "{}",
        error.text
    );
}

#[test]
fn without_the_check_of_the_reference_the_timing_goes_on_and_says_so() {
    let bench = on_new_data("entry.so").change(|input| {
        let Some(Reference::DeviceFunction { check, .. }) = &mut input.reference else { return };
        check.library = "not-built.so".into();
    });
    let (output, report) = bench.run(&["time"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let timing = report.cases[0].timing.as_ref().unwrap();
    assert_eq!(
        (timing.distinct_inputs, timing.verified, timing.repeated),
        (Some(2), None, Some(9))
    );
    assert!(report.gaps.iter().any(|gap| gap.contains("not-built.so")), "{:?}", report.gaps);
}

#[test]
fn inputs_that_a_case_fixes_are_named_and_the_calls_are_compared_all_the_same() {
    let bench = on_new_data("entry.so").change(|input| {
        for case in &mut input.cases {
            case.groups[0].args[1].seed = Some(1);
        }
    });
    let (output, report) = bench.run(&["time"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        report.gaps.iter().any(|gap| gap.contains("`b` had the same contents")),
        "{:?}",
        report.gaps
    );
    assert_eq!(report.cases[0].timing.as_ref().unwrap().distinct_inputs, Some(9));
}

#[test]
fn without_a_reference_on_the_gpu_calls_are_compared_with_the_first_on_the_same_of_two_sets() {
    let bench = Bench::new("vecadd").change(|input| input.timing.iters = Some(9));
    let (_, report) = bench.run(&["time"]);
    let timing = report.cases[0].timing.as_ref().unwrap();
    assert_eq!(
        (timing.distinct_inputs, timing.verified, timing.repeated),
        (Some(2), None, Some(9))
    );
}

#[test]
fn a_cluster_is_launched_by_the_extended_call() {
    let bench = Bench::new("vecadd").change(|input| {
        input.cases[0].launch.as_mut().unwrap().cluster = Some([2, 1, 1]);
    });
    let (output, _) = bench.run(&["once"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(bench.launches()[0].ends_with("grid 4 cluster 2"));
    assert!(bench.launches()[5].ends_with("grid 4 cluster 0"));
}

#[test]
fn launches_that_cannot_work_are_refused_in_words() {
    let refusal = |change: fn(&mut LaunchShape)| {
        let bench = Bench::new("vecadd");
        let bench = bench.change(|input| change(input.cases[0].launch.as_mut().unwrap()));
        let (output, report) = bench.run(&["once"]);
        assert_eq!(output.status.code(), Some(6));
        report.error.unwrap().text
    };
    assert!(refusal(|l| l.block = [2048, 1, 1]).contains("2048 threads in a block"));
    assert!(refusal(|l| l.grid = [0, 1, 1]).contains("is 0"));
    assert!(refusal(|l| l.dynamic_shared = 200_000).contains("leaves it 100000"));
    assert!(refusal(|l| l.cluster = Some([3, 1, 1])).contains("not a multiple"));
}

#[test]
fn arguments_that_the_kernel_does_not_take_are_refused_by_name() {
    let (output, report) = Bench::new("vecadd")
        .change(|input| input.cases[0].groups[0].args[3].dtype = rgpu_case::Dtype::I64)
        .run(&["verify"]);
    assert_eq!(output.status.code(), Some(3));
    let text = report.error.unwrap().text;
    assert!(text.contains("parameter 3") && text.contains("argument `n` has 8"), "{text}");
    let (_, report) = Bench::new("vecadd")
        .change(|input| drop(input.cases[0].groups[0].args.pop()))
        .run(&["verify"]);
    assert!(report.error.unwrap().text.contains("takes 4 parameters, the case has 3"));
}

#[test]
fn each_driver_failure_has_its_class_and_names_its_call() {
    for (fail, code, class, word) in [
        ("cuInit:100", 4, ErrorClass::NoDriver, "`cuInit` failed: CUDA_ERROR_NO_DEVICE (100)"),
        ("cuMemAlloc_v2:2", 6, ErrorClass::OutOfMemory, "`cuMemAlloc` failed"),
        ("cuModuleLoadDataEx:209", 5, ErrorClass::Load, "no such word"),
        ("cuModuleGetFunction:500", 5, ErrorClass::Load, "`cuModuleGetFunction`"),
        (
            "cuLaunchKernel:9999",
            6,
            ErrorClass::Launch,
            "code 9999, which this driver has no name for",
        ),
    ] {
        let (output, report) = Bench::new("vecadd").with("FAKE_CUDA_FAIL", fail).run(&["once"]);
        let error = report.error.unwrap();
        assert_eq!((output.status.code(), error.class), (Some(code), class), "{fail}");
        assert!(error.text.contains(word), "{fail}: {}", error.text);
        assert!(stderr(&output).contains(word), "{fail}");
    }
}

#[test]
fn an_unknown_kernel_is_answered_with_those_of_the_module() {
    let (output, report) = Bench::new("vecsub").run(&["once"]);
    assert_eq!(output.status.code(), Some(5));
    let text = report.error.unwrap().text;
    assert!(text.contains("`vecsub`") && text.contains("`_Z6vecaddPKfS0_Pfi`"), "{text}");
}

#[test]
fn without_nvml_the_clocks_are_a_gap_and_the_job_goes_on() {
    let bench = Bench::new("vecadd");
    std::fs::remove_file(bench.path("libnvidia-ml.so.1")).unwrap();
    let (output, report) = bench.run(&["time"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(report.gaps[0].contains("NVML is missing"));
    assert_eq!(report.cases[0].timing.as_ref().unwrap().clocks, []);
}

#[test]
fn without_a_driver_every_gpu_job_ends_with_its_own_status() {
    let bench = Bench::new("vecadd");
    std::fs::remove_file(bench.path("libcuda.so.1")).unwrap();
    for job in ["verify", "time", "once", "guard"] {
        let (output, report) = bench.run(&[job]);
        assert_eq!(output.status.code(), Some(4), "{job}");
        let error = report.error.unwrap();
        assert_eq!((error.class, error.phase), (ErrorClass::NoDriver, Some(Phase::Setup)));
        assert!(error.text.contains("there is no NVIDIA driver: libcuda.so.1:"), "{}", error.text);
    }
}
