//! Runs the runner as a process on a machine without a driver, with references built by `cc`.

#![allow(clippy::unwrap_used)]

use rgpu_case::{ErrorClass, Phase, RunnerReport, TimingSource};
use std::path::Path;
use std::process::{Command, Output};

const VECADD: &str = r#"
#include "rgpu.h"
int rgpu_reference(const rgpu_case *c) {
  if (c->abi != RGPU_ABI || c->groups != 1 || c->nvars != 1 || c->nargs != 4) return 10;
  const rgpu_tensor *a = rgpu_arg(c, 0, 0), *b = rgpu_arg(c, 0, 1), *y = rgpu_arg(c, 0, 2);
  const rgpu_tensor *n = rgpu_arg(c, 0, 3);
  if (a->dtype != RGPU_F32 || n->dtype != RGPU_I32 || n->rank != 0 || n->dims) return 11;
  if ((uintptr_t)a->data % 256 || a->bytes != 4 * rgpu_count(a)) return 12;
  if (*(const int32_t *)n->data != rgpu_size(c, 0, 0)) return 13;
  for (int64_t i = 0; i < rgpu_size(c, 0, 0); ++i)
    ((float *)y->data)[i] = ((const float *)a->data)[i] + ((const float *)b->data)[i];
  return 0;
}
"#;

/// A runner input with two cases of `y = a + b`.
const CASE: &str = r#"{"abi":1,"kernel":"vecadd",
 "entry":{"device":{"module":"k.cubin","function":"vecadd"}},
 "cases":[
  {"name":"n=4","vars":["n"],"groups":[{"sizes":[4],"args":[
    {"name":"a","dtype":"f32","dims":[4],"role":"in","init":{"uniform":{"lo":-1,"hi":1}}},
    {"name":"b","dtype":"f32","dims":[4],"role":"in","init":{"ints":{"lo":0,"hi":9}}},
    {"name":"y","dtype":"f32","dims":[4],"role":"out"},
    {"name":"n","dtype":"i32","role":"scalar","value":4}]}],
   "launch":{"grid":[1,1,1],"block":[32,1,1]}},
  {"name":"n=5000","vars":["n"],"groups":[{"sizes":[5000],"args":[
    {"name":"a","dtype":"f32","dims":[5000],"role":"in","init":{"uniform":{"lo":-1,"hi":1}}},
    {"name":"b","dtype":"f32","dims":[5000],"role":"in","init":{"ints":{"lo":0,"hi":9}}},
    {"name":"y","dtype":"f32","dims":[5000],"role":"out"},
    {"name":"n","dtype":"i32","role":"scalar","value":5000}]}],
   "launch":{"grid":[20,1,1],"block":[256,1,1]}}],
 "reference":{"host_library":{"library":"reference.so"}},
 "timing":{"iters":7}}"#;

fn folder(reference: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("case.json"), CASE).unwrap();
    std::fs::write(folder.path().join("reference.c"), reference).unwrap();
    let built = Command::new("cc")
        .args(["-O2", "-shared", "-fPIC", "-Wall", "-Werror", "-std=c99", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../include"))
        .args(["-o", "reference.so", "reference.c"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    folder
}

fn runner(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rgpu-runner"))
        .args(args)
        .args(["--out", "report.json"])
        .current_dir(folder)
        .output()
        .unwrap()
}

fn report(folder: &Path) -> RunnerReport {
    serde_json::from_slice(&std::fs::read(folder.join("report.json")).unwrap()).unwrap()
}

#[test]
fn the_reference_is_timed_on_the_cpu_under_the_same_ranges() {
    let folder = folder(VECADD);
    let output = runner(folder.path(), &["case.json", "cpu", "--ranges", "ranges.jsonl"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = report(folder.path());
    assert_eq!((report.error, report.cases.len()), (None, 2));
    for case in &report.cases {
        let timing = case.timing.as_ref().unwrap();
        assert_eq!((timing.source, timing.samples), (TimingSource::Cpu, 7));
        assert!(timing.median_ns > 0.0 && timing.ci95_ns[0] <= timing.median_ns);
    }
    let log = std::fs::read_to_string(folder.path().join("ranges.jsonl")).unwrap();
    for phase in ["setup", "warmup", "timed"] {
        assert!(log.contains(&format!(r#""path":["{phase}","n=5000"]"#)), "{log}");
    }
    assert!(String::from_utf8_lossy(&output.stdout).contains("cpu n=5000: reference median"));
}

/// Two groups of different sizes; the reference checks their layout.
#[test]
fn groups_reach_the_reference_row_by_row() {
    let folder = folder(
        r#"
#include "rgpu.h"
int rgpu_reference(const rgpu_case *c) {
  if (c->groups != 2 || c->nvars != 2 || c->nargs != 2) return 10;
  if (rgpu_size(c, 0, 0) != 2 || rgpu_size(c, 1, 0) != 3 || rgpu_size(c, 1, 1) != 7) return 11;
  for (uint32_t g = 0; g < c->groups; ++g) {
    const rgpu_tensor *x = rgpu_arg(c, g, 0), *y = rgpu_arg(c, g, 1);
    if (x->rank != 2 || x->dims[0] != (uint64_t)rgpu_size(c, g, 0) || x->dims[1] != 7) return 12;
    if (rgpu_count(y) != rgpu_count(x)) return 13;
    for (uint64_t i = 0; i < rgpu_count(x); ++i) rgpu_set(y, i, rgpu_get(x, i));
  }
  return 0;
}"#,
    );
    let group = |m: u64| {
        format!(
            r#"{{"sizes":[{m},7],"args":[
            {{"name":"x","dtype":"bf16","dims":[{m},7],"role":"in","init":{{"normal":{{"mean":0,"sd":1}}}}}},
            {{"name":"y","dtype":"e2m1","dims":[{m},7],"role":"inout"}}]}}"#
        )
    };
    let input = format!(
        r#"{{"abi":1,"kernel":"groups","entry":{{"host":{{"library":"entry.so"}}}},
        "cases":[{{"name":"two","vars":["m","k"],"groups":[{},{}]}}],
        "reference":{{"host_library":{{"library":"reference.so"}}}},"timing":{{"iters":1}}}}"#,
        group(2),
        group(3)
    );
    std::fs::write(folder.path().join("case.json"), input).unwrap();
    let output = runner(folder.path(), &["case.json", "cpu"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_reference_that_returns_non_zero_is_named_with_its_status() {
    let folder =
        folder("#include \"rgpu.h\"\nint rgpu_reference(const rgpu_case *c) { return c ? 3 : 0; }");
    let output = runner(folder.path(), &["case.json", "cpu"]);
    assert_eq!(output.status.code(), Some(9));
    let error = report(folder.path()).error.unwrap();
    assert_eq!((error.class, error.code), (ErrorClass::Reference, Some(3)));
    assert_eq!((error.phase, error.case.as_deref()), (Some(Phase::Warmup), Some("n=4")));
}

#[test]
fn a_reference_that_leaves_elements_unwritten_is_refused() {
    let folder = folder(&VECADD.replace("int64_t i = 0;", "int64_t i = 1;"));
    let output = runner(folder.path(), &["case.json", "cpu"]);
    assert_eq!(output.status.code(), Some(9));
    let text = report(folder.path()).error.unwrap().text;
    assert!(text.contains("left 1 of 4 elements of `y` unwritten"), "{text}");
}

#[test]
fn a_reference_that_crashes_leaves_a_report_with_the_place() {
    let folder = folder("#include <stdlib.h>\nint rgpu_reference(void) { abort(); }");
    let output = runner(folder.path(), &["case.json", "cpu"]);
    assert_eq!(output.status.code(), None, "ended by a signal");
    let error = report(folder.path()).error.unwrap();
    assert_eq!((error.class, error.phase), (ErrorClass::Crash, Some(Phase::Warmup)));
}

/// The child does the rest of the job correctly, and its parent ends with status 0.
#[test]
fn a_forked_child_that_comes_back_writes_no_report() {
    let start = "int rgpu_reference(const rgpu_case *c) {";
    let folder = folder(&VECADD.replace(
        start,
        &format!(
            "#include <sys/wait.h>\n#include <unistd.h>\n{start}\n  \
             if (fork() > 0) {{ wait(0); _exit(0); }}"
        ),
    ));
    let output = runner(folder.path(), &["case.json", "cpu"]);
    assert_eq!(output.status.code(), Some(0), "the parent's own status");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("is a forked child of the runner"), "{messages}");
    let report = report(folder.path());
    let error = report.error.unwrap();
    assert_eq!((error.class, error.phase), (ErrorClass::Crash, Some(Phase::Warmup)));
    assert!(report.cases.iter().all(|case| case.timing.is_none()), "{:?}", report.cases);
    assert!(!folder.path().join("report.json.part").exists());
}

#[test]
fn a_library_without_the_symbol_is_a_load_error() {
    let folder = folder("int other(void) { return 0; }");
    let output = runner(folder.path(), &["case.json", "cpu"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(report(folder.path()).error.unwrap().text.contains("no function `rgpu_reference`"));
}

#[test]
fn an_unresolved_symbol_is_named_when_the_library_is_loaded() {
    let folder = folder("int elsewhere(void);\nint rgpu_reference(void) { return elsewhere(); }");
    let output = runner(folder.path(), &["case.json", "cpu"]);
    assert_eq!(output.status.code(), Some(5));
    let text = report(folder.path()).error.unwrap().text;
    assert!(text.contains("undefined symbol: elsewhere"), "{text}");
}

#[test]
fn missing_files_and_words_end_with_their_own_status() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(runner(folder.path(), &["case.json", "cpu"]).status.code(), Some(3));
    assert_eq!(report(folder.path()).error.unwrap().class, ErrorClass::MissingFile);
    assert_eq!(runner(folder.path(), &["case.json", "fly"]).status.code(), Some(2));
    std::fs::write(folder.path().join("case.json"), CASE).unwrap();
    let output = runner(folder.path(), &["case.json", "cpu"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("reference.so` is missing"));
}
