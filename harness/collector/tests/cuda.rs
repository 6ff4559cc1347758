//! Tests of CUPTI records in the log. This test binary runs itself again as the program, loads the
//! collector as the CUDA driver would, and launches work that `fake/cupti.c` then reports.

#![allow(unsafe_code, reason = "the program calls into libraries that it has loaded itself")]

use nvtx::sys;
use serde_json::Value;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tempfile::TempDir;

const PROGRAM: &str = "RGPU_TEST_PROGRAM";

fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    test.parent().expect("a folder").to_owned()
}

fn collector() -> PathBuf {
    folder().join("librgpu_collector.so")
}

/// The fake libcupti, compiled once. With `clock`, it supports a clock callback.
fn cupti(clock: bool) -> &'static Path {
    static WITH: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    static WITHOUT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (place, flag) = if clock { (&WITH, "-DCLOCK") } else { (&WITHOUT, "-DNO_CLOCK") };
    let (_, path) = place.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("libcupti.so.13");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/cupti.c");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", flag, "-o"])
            .arg(&path)
            .arg(&source)
            .args(["-Wl,-soname,libcupti.so.13", "-lpthread"])
            .status()
            .expect("cc starts");
        assert!(made.success());
        (folder, path)
    });
    path
}

struct Run {
    output: Output,
    logs: Vec<Vec<Value>>,
    _folder: TempDir,
}

fn run(program: &str, cupti: &Path, settings: &[(&str, &str)]) -> Run {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command
        .args(["--exact", "be_the_program", "--ignored", "--nocapture", "--test-threads=1"])
        .env(PROGRAM, program)
        .env("NVTX_INJECTION64_PATH", collector())
        .env("RGPU_NVTX_LOG", folder.path().join("log"))
        .env("RGPU_CUPTI", cupti)
        .envs(settings.iter().copied())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("the program starts");
    let own = folder.path().join(format!("log.{}", child.id()));
    let output = child.wait_with_output().expect("the program ends");
    let mut files: Vec<_> = std::fs::read_dir(folder.path())
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort_by_key(|path| (*path != own, path.clone()));
    let logs = files.iter().map(|path| lines(path)).collect();
    Run { output, logs, _folder: folder }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the log is text");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn of<'a>(log: &'a [Value], event: &str) -> Vec<&'a Value> {
    log.iter().filter(|line| line["event"] == event).collect()
}

/// The name of a kernel or call.
fn name<'a>(log: &'a [Value], line: &Value) -> &'a str {
    let name = of(log, "name").into_iter().find(|name| name["id"] == line["name"]);
    name.and_then(|name| name["text"].as_str()).expect("a name before its use")
}

fn ns(line: &Value, field: &str) -> u64 {
    line[field].as_u64().unwrap_or_else(|| panic!("no `{field}` in {line}"))
}

/// Loads a library, if needed, and returns one of its functions.
///
/// # Safety
/// `F` is the function's type.
unsafe fn function<F: Copy>(library: &Path, name: &CStr) -> F {
    let path = CString::new(library.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: both names end in NUL; the caller guarantees the type.
    unsafe {
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!handle.is_null(), "{}", library.display());
        let symbol = libc::dlsym(handle, name.as_ptr());
        assert!(!symbol.is_null(), "{name:?}");
        std::mem::transmute_copy::<*mut c_void, F>(&symbol)
    }
}

/// Does what `cuInit` does when `CUDA_INJECTION64_PATH` is set.
fn initialise() {
    // SAFETY: the collector's own function.
    let start: extern "C" fn() -> c_int = unsafe { function(&collector(), c"InitializeInjection") };
    assert_eq!((start(), start()), (1, 1));
}

struct Cuda {
    launch: extern "C" fn(*const c_char, u64),
    copy: extern "C" fn(u64),
    idle: extern "C" fn(),
}

fn cuda() -> Cuda {
    let path = PathBuf::from(std::env::var_os("RGPU_CUPTI").expect("a path"));
    // SAFETY: the types are those of fake/cupti.c.
    unsafe {
        Cuda {
            launch: function(&path, c"fake_launch"),
            copy: function(&path, c"fake_copy"),
            idle: function(&path, c"fake_idle"),
        }
    }
}

/// Not a test: runs the programs that the tests start.
#[test]
#[ignore = "run by the tests below"]
fn be_the_program() {
    let kernel = c"_Z5heavyPfi".as_ptr();
    match std::env::var(PROGRAM).as_deref() {
        Ok("work") => {
            initialise();
            let cuda = cuda();
            sys::range_push_ascii(c"A");
            (cuda.launch)(kernel, 5_000);
            sys::range_push_ascii(c"A1");
            (cuda.launch)(c"_Z5lightPf".as_ptr(), 70);
            sys::range_pop();
            (cuda.copy)(4096);
            sys::range_pop();
            (cuda.idle)();
        }
        Ok("many") => {
            initialise();
            let cuda = cuda();
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let launch = cuda.launch;
                    std::thread::spawn(move || {
                        sys::range_push_ascii(c"thread");
                        for _ in 0..10_000 {
                            launch(c"_Z4tiny".as_ptr(), 10);
                        }
                        sys::range_pop();
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        }
        Ok("fork") => {
            initialise();
            let cuda = cuda();
            (cuda.launch)(kernel, 10);
            // SAFETY: the child only uses NVTX and exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                sys::mark_ascii(c"child");
                // Runs exit handlers, ours among them.
                unsafe { libc::exit(0) };
            }
            let mut status = 1;
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0);
        }
        Ok(which @ ("child" | "first")) => {
            // A child that uses CUDA first, as with multiprocessing, and perhaps NVTX.
            if which == "child" {
                sys::mark_ascii(c"parent");
            }
            let child = unsafe { libc::fork() };
            if child == 0 {
                initialise();
                sys::range_push_ascii(c"child's");
                (cuda().launch)(kernel, 10);
                sys::range_pop();
                // Skips exit handlers, as Python's children do.
                unsafe { libc::_exit(0) };
            }
            let mut status = 1;
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0);
        }
        Ok("abort") => {
            initialise();
            (cuda().launch)(kernel, 10);
            std::thread::sleep(std::time::Duration::from_millis(1_200));
            std::process::abort();
        }
        other => panic!("no program {other:?}"),
    }
}

#[test]
fn kernels_copies_and_the_calls_that_asked_for_them_reach_the_log() {
    for (clock, said) in [(true, "ours"), (false, "compared")] {
        let run = run("work", cupti(clock), &[]);
        assert!(run.output.status.success(), "{:?}", run.output);
        let log = &run.logs[0];
        let cupti = of(log, "cupti")[0];
        assert_eq!((&cupti["state"], &cupti["clock"]), (&"on".into(), &said.into()), "{cupti}");
        assert_eq!(cupti["version"], 130_001);

        let kernels = of(log, "kernel");
        assert_eq!(kernels.len(), 2);
        let heavy = kernels[0];
        assert_eq!(name(log, heavy), "_Z5heavyPfi");
        assert_eq!(ns(heavy, "end_ns") - ns(heavy, "ns"), 5_000);
        let expected = serde_json::json!({
            "grid": [4, 5, 6], "block": [32, 16, 8], "registers": 40, "static_bytes": 1024,
            "dynamic_bytes": 512, "local_bytes": 16, "device": 1, "context": 2, "stream": 7,
        });
        for (field, value) in expected.as_object().expect("an object") {
            assert_eq!(&heavy[field], value, "{field}");
        }
        let (copy, set) = (of(log, "copy")[0], of(log, "set")[0]);
        assert_eq!((&copy["kind"], &copy["bytes"]), (&1.into(), &4096.into()));
        assert_eq!((&set["value"], ns(set, "end_ns") - ns(set, "ns")), (&255.into(), 100));

        // The call of each kernel lies inside the range that was open, on its thread and clock.
        let pushes = of(log, "push");
        for (kernel, range) in kernels.iter().zip(&pushes) {
            let call = of(log, "call").into_iter().find(|call| call["id"] == kernel["id"]);
            let call = call.expect("the call that launched it");
            assert_eq!(name(log, call), "cudaLaunchKernel_v7000");
            assert_eq!(call["tid"], range["tid"]);
            let since = ns(call, "ns").checked_sub(ns(range, "ns")).expect("after the push");
            assert!(since < 1_000_000_000, "{since} ns after it: {said}");
        }
        let calls: Vec<_> = of(log, "call").into_iter().map(|call| name(log, call)).collect();
        assert!(!calls.contains(&"cudaGetDevice_v3020"), "{calls:?}");
        assert!(calls.contains(&"cudaDeviceSynchronize_v3020"), "{calls:?}");
        assert!(calls.contains(&"cuLaunchKernel"), "{calls:?}");
        let closed = of(log, "closed")[0];
        assert_eq!((&closed["work"], &closed["calls"]), (&4.into(), &6.into()), "{closed}");
    }
}

#[test]
fn forty_thousand_launches_of_four_threads_are_all_there() {
    let run = run("many", cupti(true), &[]);
    assert!(run.output.status.success(), "{:?}", run.output);
    let log = &run.logs[0];
    assert_eq!((of(log, "kernel").len(), of(log, "call").len()), (40_000, 40_000));
    let ids: std::collections::BTreeSet<_> =
        of(log, "kernel").iter().map(|kernel| kernel["id"].as_u64()).collect();
    assert_eq!(ids.len(), 40_000);
    assert_eq!(of(log, "name").len(), 2);
}

#[test]
fn records_beyond_the_limit_and_those_that_cupti_lost_are_counted() {
    let limits = [("RGPU_NVTX_LIMIT", "100000"), ("FAKE_CUPTI_DROPS", "3")];
    let run = run("many", cupti(true), &limits);
    let log = &run.logs[0];
    let closed = of(log, "closed")[0];
    let written = ns(closed, "work") + ns(closed, "calls");
    assert_eq!(written, (of(log, "kernel").len() + of(log, "call").len()) as u64);
    assert!(written < 2_000 && written + ns(closed, "dropped") >= 80_000, "{closed}");
    assert!(ns(closed, "lost") >= 3, "{closed}");
}

#[test]
fn a_forked_child_leaves_the_parents_cupti_alone() {
    let run = run("fork", cupti(true), &[]);
    assert!(run.output.status.success(), "{:?}", run.output);
    let [parent, child] = &run.logs[..] else { panic!("{} logs", run.logs.len()) };
    assert_eq!((of(parent, "kernel").len(), of(child, "kernel").len()), (1, 0));
    assert_eq!(of(child, "mark").len(), 1);
}

#[test]
fn a_child_that_meets_cuda_first_has_kernels_of_its_own() {
    let run = run("child", cupti(true), &[]);
    assert!(run.output.status.success(), "{:?}", run.output);
    let [parent, child] = &run.logs[..] else { panic!("{} logs", run.logs.len()) };
    assert_eq!((of(parent, "kernel").len(), of(child, "kernel").len()), (0, 1));
}

#[test]
fn a_child_that_is_the_first_to_load_the_library_loses_nothing() {
    let run = run("first", cupti(true), &[]);
    assert!(run.output.status.success(), "{:?}", run.output);
    let [child] = &run.logs[..] else { panic!("{} logs", run.logs.len()) };
    let counts = ["push", "kernel", "pop"].map(|event| of(child, event).len());
    assert_eq!(counts, [1, 1, 1], "{child:?}");
}

#[test]
fn a_crash_loses_at_most_the_last_half_second() {
    let run = run("abort", cupti(true), &[]);
    assert!(!run.output.status.success());
    assert_eq!(of(&run.logs[0], "kernel").len(), 1);
}

#[test]
fn a_libcupti_that_is_missing_refuses_or_is_unknown_leaves_the_ranges() {
    let missing = Path::new("/nonexistent/libcupti.so.13");
    for (path, settings, why) in [
        (cupti(true), [("FAKE_CUPTI_REFUSES", "10")], "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"),
        (cupti(true), [("FAKE_CUPTI_VERSION", "140000")], "version 140000, whose record format"),
        (missing, [("FAKE_CUPTI_VERSION", "")], "/nonexistent/libcupti.so.13"),
    ] {
        // The program cannot launch without the library, so it dies after its first range.
        let run = run("work", path, &settings);
        let said = String::from_utf8_lossy(&run.output.stderr);
        assert!(said.contains("only NVTX ranges are recorded") && said.contains(why), "{said}");
        let log = &run.logs[0];
        let off = of(log, "cupti")[0];
        assert!(off["state"] == "off" && off["text"].as_str().is_some_and(|t| t.contains(why)));
        assert!(of(log, "kernel").is_empty());
        if path.exists() {
            assert!(run.output.status.success(), "{said}");
            assert_eq!(of(log, "push").len(), 2);
        }
    }
}
