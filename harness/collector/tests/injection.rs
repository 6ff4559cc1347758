//! Tests the collector inside real programs. This test binary runs itself again as the program,
//! with the library injected by the NVTX headers, as on a GPU host.

#![allow(unsafe_code, reason = "the programs fork, exit and pass wild handles on purpose")]

use nvtx::sys::{self, ffi};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Selects the program to run; unset in the test run itself.
const PROGRAM: &str = "RGPU_TEST_PROGRAM";

fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    test.parent().expect("a folder").join("librgpu_collector.so")
}

/// One run of a program and its logs, with the program's own process first.
struct Run {
    output: Output,
    logs: Vec<Vec<Value>>,
    _folder: TempDir,
}

fn run(program: &str, settings: &[(&str, &str)]) -> Run {
    let folder = tempfile::tempdir().expect("a temporary folder");
    run_in(folder, program, settings)
}

fn run_in(folder: TempDir, program: &str, settings: &[(&str, &str)]) -> Run {
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command
        .args(["--exact", "be_the_program", "--ignored", "--nocapture", "--test-threads=1"])
        .env(PROGRAM, program)
        .env("NVTX_INJECTION64_PATH", library())
        .env("RGPU_NVTX_LOG", folder.path().join("log"))
        .envs(settings.iter().copied());
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program starts");
    let pid = child.id();
    let output = child.wait_with_output().expect("the program ends");
    let own = folder.path().join(format!("log.{pid}"));
    let mut files: Vec<_> = std::fs::read_dir(folder.path())
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort_by_key(|path| (*path != own, path.clone()));
    let logs = files.iter().map(|path| lines(path)).collect();
    Run { output, logs, _folder: folder }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the log is text");
    assert!(text.ends_with('\n'), "{} ends in half a line", path.display());
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn of<'a>(log: &'a [Value], event: &str) -> Vec<&'a Value> {
    log.iter().filter(|line| line["event"] == event).collect()
}

/// Not a test: runs the programs that the tests start.
#[test]
#[ignore = "run by the tests below"]
fn be_the_program() {
    match std::env::var(PROGRAM).as_deref() {
        Ok("everything") => everything(),
        Ok("threads") => threads(),
        Ok("fork") => fork(),
        Ok("many") => (0..2_000).for_each(|_| {
            sys::range_push_ascii(c"range");
            sys::range_pop();
        }),
        Ok("deep") => {
            for _ in 0..2_000 {
                sys::range_push_ascii(c"a range that stays open");
            }
            for _ in 0..2_000 {
                sys::range_pop();
            }
        }
        Ok("wild") => wild(),
        Ok("daemon") => daemon(),
        Ok("abort") => {
            sys::range_push_ascii(c"early");
            std::thread::sleep(std::time::Duration::from_millis(150));
            sys::range_push_ascii(c"late");
            std::process::abort();
        }
        other => panic!("no program {other:?}"),
    }
}

fn everything() {
    let wide: Vec<i32> = "wide añ🚀\0".chars().map(|c| c as i32).collect();
    nvtx::name_thread(1, c"worker");
    let outer = nvtx::LocalRange::new(c"outer");
    assert_eq!(sys::range_push_ascii(c"inner"), 1);
    assert_eq!(sys::range_pop(), 1);
    nvtx::mark(c"plain \"mark\"\n");
    // SAFETY: the string ends in zero.
    unsafe { ffi::nvtxMarkW(wide.as_ptr()) };
    drop(outer);

    let domain = nvtx::Domain::new(c"a domain");
    let category = domain.register_category(c"a category");
    let registered = domain.register_string(c"registered");
    let attributes = domain
        .event_attributes_builder()
        .category(category)
        .color(0xff12_3456)
        .payload(-7i32)
        .message(registered)
        .build();
    drop(domain.local_range(attributes));
    drop(domain.range(c"crossing"));
    assert_eq!(sys::range_pop(), -1, "nothing is open");
}

fn threads() {
    let (ready, wait) = std::sync::mpsc::channel();
    for name in [c"first", c"second"] {
        let ready = ready.clone();
        std::thread::spawn(move || {
            sys::range_push_ascii(name);
            ready.send(()).expect("the program waits");
            loop {
                std::thread::park();
            }
        });
    }
    wait.iter().take(2).for_each(drop);
    std::thread::spawn(|| sys::mark_ascii(c"from a thread that ended")).join().expect("it ends");
}

fn fork() {
    let domain = sys::domain_create_ascii(c"shared");
    sys::range_push_ascii(c"parent's");
    // SAFETY: the child only uses NVTX and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        sys::range_push_ascii(c"child's");
        sys::range_pop();
        sys::range_pop(); // it belongs to the parent
        let _ = domain;
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    sys::range_pop();
}

fn wild() {
    use std::ptr::{null, null_mut, without_provenance_mut};
    // SAFETY: NVTX forbids this but real programs do it; the collector must not crash.
    unsafe {
        ffi::nvtxRangePushA(null());
        ffi::nvtxRangePushW(null());
        ffi::nvtxRangePushEx(null());
        for _ in 0..5 {
            ffi::nvtxRangePop();
        }
        ffi::nvtxRangeEnd(12_345);
        ffi::nvtxDomainRangePop(without_provenance_mut(0xdead_beef));
        ffi::nvtxDomainRangeEnd(null_mut(), 0);
        assert!(ffi::nvtxDomainCreateA(null()).is_null());
        assert!(ffi::nvtxDomainRegisterStringA(null_mut(), null()).is_null());
        let mut old: ffi::nvtxEventAttributes_t = std::mem::zeroed();
        old.size = 16; // ends before the message
        old.messageType = 1;
        old.message.ascii = without_provenance_mut(0xdead_beef);
        ffi::nvtxMarkEx(&old);
        old.size = u16::try_from(size_of_val(&old)).expect("48 bytes");
        old.messageType = 3;
        ffi::nvtxMarkEx(&old);
    }
}

fn daemon() {
    sys::mark_ascii(c"before");
    // SAFETY: closes and reuses descriptors, including the collector's, as daemons do.
    unsafe {
        for fd in 3..64 {
            libc::close(fd);
        }
        let foreign_path = std::env::var("RGPU_TEST_STRANGER").expect("a path");
        let foreign_path = std::ffi::CString::new(foreign_path).expect("no NUL");
        for _ in 0..16 {
            libc::open(foreign_path.as_ptr(), libc::O_WRONLY | libc::O_CREAT, 0o600);
        }
    }
    sys::mark_ascii(c"after");
}

#[test]
fn every_kind_of_event_reaches_the_log() {
    let run = run("everything", &[]);
    assert!(run.output.status.success(), "{:?}", run.output);
    let log = &run.logs[0];
    let opened = of(log, "opened")[0];
    assert_eq!((&opened["format"], &opened["clock"]), (&1.into(), &"monotonic".into()));
    assert_eq!(of(log, "thread")[0]["name"], "worker");

    let pushes = of(log, "push");
    let messages: Vec<_> = pushes.iter().map(|push| push["message"].as_str()).collect();
    assert_eq!(messages, [Some("outer"), Some("inner"), Some("registered")]);
    let levels: Vec<_> = pushes.iter().map(|push| push["level"].as_u64()).collect();
    assert_eq!(levels, [Some(0), Some(1), Some(0)]);
    assert_eq!(of(log, "pop").len(), 3);
    let marks: Vec<_> = of(log, "mark").iter().map(|mark| mark["message"].clone()).collect();
    assert_eq!(marks, ["plain \"mark\"\n", "wide añ🚀"]);

    let domain = of(log, "domain")[0];
    let (rich, number) = (pushes[2], &domain["domain"]);
    assert_eq!((&domain["name"], &rich["domain"]), (&"a domain".into(), number));
    assert_eq!(rich["category"], of(log, "category")[0]["category"]);
    assert_eq!((&rich["color"], &rich["payload"]), (&0xff12_3456u32.into(), &(-7).into()));
    let (start, end) = (of(log, "start")[0], of(log, "end")[0]);
    assert_eq!((&start["message"], &start["id"]), (&"crossing".into(), &end["id"]));

    let closed = of(log, "closed")[0];
    assert_eq!((&closed["events"], &closed["unbalanced"]), (&10.into(), &1.into()));
    let times: Vec<_> = log.iter().filter_map(|line| line["ns"].as_u64()).collect();
    assert!(times.is_sorted(), "one thread's lines are in order: {times:?}");
}

#[test]
fn threads_that_still_run_at_exit_lose_nothing() {
    let run = run("threads", &[]);
    let mut messages: Vec<_> =
        run.logs[0].iter().filter_map(|line| line["message"].as_str()).collect();
    messages.sort_unstable();
    assert_eq!(messages, ["first", "from a thread that ended", "second"]);
    assert_eq!(of(&run.logs[0], "closed")[0]["events"], 3);
}

#[test]
fn a_forked_child_writes_a_log_of_its_own() {
    let run = run("fork", &[]);
    assert!(run.output.status.success(), "{:?}", run.output);
    let [parent, child] = &run.logs[..] else { panic!("{} logs", run.logs.len()) };
    assert_eq!(of(child, "opened")[0]["ppid"], of(parent, "opened")[0]["pid"]);
    assert_eq!(of(child, "domain")[0]["name"], "shared");
    let events: Vec<_> = of(child, "push").into_iter().chain(of(child, "pop")).collect();
    assert_eq!(events.len(), 2, "the parent's range is not closed here: {child:?}");
    assert_eq!((&events[0]["message"], &events[0]["level"]), (&"child's".into(), &1.into()));
    assert_eq!((of(parent, "push").len(), of(parent, "pop").len()), (1, 1));
}

#[test]
fn above_the_limit_open_ranges_are_still_closed() {
    for program in ["many", "deep"] {
        let run = run(program, &[("RGPU_NVTX_LIMIT", "20000")]);
        let log = &run.logs[0];
        let (pushes, pops) = (of(log, "push").len(), of(log, "pop").len());
        assert!(pushes > 50 && pushes == pops, "{program}: {pushes} opened, {pops} closed");
        assert_eq!(of(log, "closed")[0]["dropped"], 2_000 - pushes, "{program}");
    }
}

#[test]
fn wild_handles_and_null_messages_do_no_harm() {
    let run = run("wild", &[]);
    assert!(run.output.status.success(), "{:?}", run.output);
    assert_eq!(of(&run.logs[0], "push").len(), 3);
    assert!(run.logs[0].iter().all(|line| line["message"].is_null()));
}

#[test]
fn a_descriptor_that_became_another_file_is_not_written_to() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let foreign_path = elsewhere.path().join("stranger");
    let path = foreign_path.to_str().expect("an ASCII path").to_owned();
    let run = run_in(folder, "daemon", &[("RGPU_TEST_STRANGER", &path)]);
    let messages: Vec<_> =
        of(&run.logs[0], "mark").iter().map(|mark| mark["message"].clone()).collect();
    assert_eq!(messages, ["before", "after"]);
    assert_eq!(std::fs::read(&foreign_path).expect("the program made it"), b"");
}

#[test]
fn a_crash_loses_at_most_the_last_moment() {
    let run = run("abort", &[]);
    assert!(!run.output.status.success());
    let messages: Vec<_> =
        of(&run.logs[0], "push").iter().map(|push| push["message"].clone()).collect();
    assert_eq!(messages, ["early", "late"]);
    assert!(of(&run.logs[0], "closed").is_empty());
}

#[test]
fn without_a_place_to_write_the_program_runs_all_the_same() {
    for (log, complaint) in [
        ("", "RGPU_NVTX_LOG is not set"),
        ("/nonexistent/folder/log", "cannot write `/nonexistent"),
    ] {
        let run = run("many", &[("RGPU_NVTX_LOG", log)]);
        let error_text = String::from_utf8_lossy(&run.output.stderr);
        assert!(run.output.status.success() && error_text.contains(complaint), "{error_text}");
        assert_eq!(error_text.matches("rgpu-collector:").count(), 1, "said once: {error_text}");
    }
}
