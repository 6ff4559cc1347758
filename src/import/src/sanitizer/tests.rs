use super::*;
use std::path::{Path, PathBuf};

fn fixture(case: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/sanitizer/synthetic")
        .join(case)
}

fn import(case: &str, tool: Tool) -> SanitizerResult {
    let log = sanitizer::read_log(&std::fs::read(fixture(case)).unwrap());
    import_log(&log, tool, "raw/x.log")
}

#[test]
fn one_bad_write_is_one_cause_with_its_follow_ups() {
    let result = import("memcheck-oob/log.txt", Tool::Memcheck);
    assert_eq!((result.verdict.as_str(), result.errors), ("found", Some(7)));
    assert_eq!(result.causes.len(), 2);
    let cause = &result.causes[0];
    assert_eq!((cause.kind.as_str(), cause.count, cause.follow_ups), ("out_of_bounds", 2, 1));
    assert_eq!((cause.file.as_deref(), cause.line), (Some("bad.cu"), Some(2)));
    assert_eq!((cause.thread, cause.block), (Some([63, 0, 0]), Some([0, 0, 0])));
    assert_eq!(cause.details[1], "1 bytes after the nearest allocation of 252 bytes");
    assert!(result.note.contains("3 more errors"));
}

#[test]
fn a_race_counts_its_hazards_and_names_every_access() {
    let result = import("racecheck/log.txt", Tool::Racecheck);
    let cause = &result.causes[0];
    assert_eq!((cause.kind.as_str(), cause.count, cause.line), ("race", 256, Some(9)));
    assert_eq!(cause.details[1], "read at race.cu:11, 34 hazards");
}

#[test]
fn the_caller_is_the_users_function_not_the_runtime_or_the_kernels_stub() {
    let called_from = |case: &str, tool| -> Vec<String> {
        let result = import(&format!("../2025.3.1/{case}/stdout.txt"), tool);
        let details = result.causes.into_iter().flat_map(|cause| cause.details);
        details.filter(|line| line.starts_with("called from")).collect()
    };
    // cudaMalloc, main
    assert_eq!(called_from("memcheck-leak", Tool::Memcheck), ["called from main"]);
    // cudaLaunchKernel, race, main
    assert_eq!(called_from("racecheck-race-hazards", Tool::Racecheck)[0], "called from main");
    let xml = fixture("../2025.3.1/memcheck-oob-xml/findings.xml");
    let records = sanitizer::read_xml(&std::fs::read(xml).unwrap()).unwrap().records;
    // cuLaunchKernel, libcudart_static…, cudaLaunchKernel, oob, main
    assert_eq!(caller(&records[0]), Some("main"));
    // A runtime function is better than nothing.
    let mut record = records[0].clone();
    record.host_stack.truncate(3);
    assert_eq!(caller(&record), Some("cuLaunchKernel"));
}

#[test]
fn calls_by_which_a_library_asks_what_there_is_are_not_the_programs_faults() {
    let path = fixture("../2025.3.1/memcheck-nccl/stdout.txt");
    let recorded = std::fs::read_to_string(path).unwrap();
    let import = |text: &str| {
        import_log(&sanitizer::read_log(text.as_bytes()), Tool::Memcheck, "raw/memcheck.log")
    };
    let result = import(&recorded);
    assert_eq!(
        (result.verdict.as_str(), result.errors, result.causes.len()),
        ("clean", Some(0), 0)
    );
    let probes = "8 failing calls by which libnccl.so.2 asks what the GPU has are not counted";
    assert_eq!(result.note, probes);
    // The same call of the program itself counts, and so does another error of the library.
    for (from, to) in [
        ("in libnccl.so.2", "in train"),
        ("cudaErrorNoKernelImageForDevice", "cudaErrorInvalidValue"),
    ] {
        let result = import(&recorded.replace(from, to));
        assert_eq!((result.verdict.as_str(), result.errors), ("found", Some(8)), "{to}");
        assert!(result.note.is_empty(), "{}", result.note);
    }
    // A fault beside them stays.
    let more = recorded.replace("ERROR SUMMARY: 8", "ERROR SUMMARY: 9");
    assert_eq!(import(&more).errors, Some(1));
}

#[test]
fn no_summary_and_an_abnormal_end_are_unknown_in_the_tools_words() {
    let never = import("aborted/log.txt", Tool::Memcheck);
    assert_eq!((never.verdict.as_str(), never.errors), ("unknown", None));
    assert!(never.note.contains("terminated before first instrumented API call"));
    let wrong_tool = import("clean/log.txt", Tool::Racecheck);
    assert!(wrong_tool.note.starts_with("racecheck ended without its summary"));
    assert_eq!(import("clean/log.txt", Tool::Initcheck).verdict, "clean");
}

#[test]
fn the_xml_beside_the_log_gives_whole_paths() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memcheck.log");
    let log = "========= COMPUTE-SANITIZER\n\
        ========= Invalid __global__ write of size 4 bytes\n\
        =========     at oob(int *, int)+0x80 in bad.cu:2\n\
        ========= \n\
        ========= ERROR SUMMARY: 1 error\n";
    std::fs::write(&path, log).unwrap();
    let xml = std::fs::read_to_string(fixture("memcheck-oob/report.xml")).unwrap();
    let one = xml.find("</record>").unwrap() + "</record>".len();
    let xml = format!("{}</ComputeSanitizerOutput>", &xml[..one]);
    std::fs::write(path.with_extension("xml"), xml).unwrap();
    let imported = (LOG_IMPORTER.import)(&Source::new(&path, "raw/memcheck.log")).unwrap();
    assert!(imported.gaps.is_empty(), "{:?}", imported.gaps);
    assert_eq!(imported.sanitizer[0].tool, "memcheck");
    assert_eq!(imported.sanitizer[0].causes[0].file.as_deref(), Some("/src/bad.cu"));
    let xml_path = path.with_extension("xml");
    let again = (XML_IMPORTER.import)(&Source::new(&xml_path, "raw/memcheck.xml")).unwrap();
    assert!(again.sanitizer.is_empty());
}

#[test]
fn an_xml_alone_is_never_clean() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("synccheck.xml");
    std::fs::write(&path, "<ComputeSanitizerOutput></ComputeSanitizerOutput>").unwrap();
    let imported = (XML_IMPORTER.import)(&Source::new(&path, "raw/synccheck.xml")).unwrap();
    let result = &imported.sanitizer[0];
    assert_eq!((result.tool.as_str(), result.verdict.as_str()), ("synccheck", "unknown"));
    assert!(result.note.contains("cannot tell a clean run"));
}

fn real(case: &str, tool: Tool) -> SanitizerResult {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/sanitizer/2025.3.1");
    let log = std::fs::read(folder.join(case).join("stdout.txt")).unwrap();
    import_log(&sanitizer::read_log(&log), tool, "raw/x.log")
}

#[test]
fn every_faulty_kernel_is_one_cause_at_its_line() {
    let cases = [
        ("memcheck-oob", Tool::Memcheck, "out_of_bounds", "oob", "oob.cu", 6),
        ("racecheck-race", Tool::Racecheck, "race", "race", "race.cu", 8),
        ("racecheck-race-hazards", Tool::Racecheck, "race", "race", "race.cu", 8),
        ("initcheck-uninit", Tool::Initcheck, "uninitialized", "count", "uninit.cu", 12),
        ("synccheck-bad-barrier", Tool::Synccheck, "barrier", "bad_barrier", "bad_barrier.cu", 16),
    ];
    for (case, tool, kind, kernel, file, line) in cases {
        let result = real(case, tool);
        assert_eq!(result.verdict, "found", "{case}");
        assert_eq!(result.causes.len(), 1, "{case}: {:#?}", result.causes);
        let cause = &result.causes[0];
        assert_eq!((cause.kind.as_str(), cause.kernel.as_str()), (kind, kernel), "{case}");
        assert_eq!((cause.file.as_deref(), cause.line), (Some(file), Some(line)), "{case}");
    }
    let uninit = real("initcheck-uninit", Tool::Initcheck);
    let inside = "in atomicAdd(unsigned int *, unsigned int) at device_atomic_functions.hpp:112";
    assert_eq!(uninit.causes[0].details[0], inside);
    assert_eq!(real("memcheck-oob", Tool::Memcheck).causes[0].follow_ups, 1);
}
