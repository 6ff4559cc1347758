//! Tests compute-sanitizer's log and XML: every tool, every known ending, complete and damaged.

use crate::{damage, fixture};
use rgpu_format::sanitizer::{
    self, AbortKind, Direction, Hazard, Log, Record, RecordKind, Severity, Summary, Tool,
    UnknownReason, Verdict, XmlError,
};

fn log(case: &str) -> Log {
    sanitizer::read_log(&fixture::bytes(&format!("sanitizer/synthetic/{case}")))
}

#[test]
fn an_invalid_write_is_read_in_full() {
    let log = log("memcheck-oob/log.txt");
    assert!(log.banner);
    let record = &log.records[0];
    assert_eq!(record.kind, RecordKind::InvalidAccess);
    let access = record.access.clone().unwrap();
    assert_eq!(access.space.as_deref(), Some("global"));
    assert_eq!((access.direction, access.bytes), (Some(Direction::Write), Some(4)));
    let place = record.place.clone().unwrap();
    assert_eq!(place.function.as_deref(), Some("oob(int *, int)"));
    assert_eq!(
        (place.pc, place.file.as_deref(), place.line),
        (Some(0x80), Some("bad.cu"), Some(2))
    );
    let position = record.position.unwrap();
    assert_eq!((position.thread, position.block), ([63, 0, 0], [0, 0, 0]));
    assert_eq!(record.address, Some(0x7f0b_8a80_00fc));
    assert_eq!(record.problem.as_deref(), Some("out of bounds"));
    let near = record.allocation.clone().unwrap();
    assert_eq!((near.relation.as_str(), near.distance_bytes), ("after", Some(1)));
    assert_eq!((near.address, near.bytes), (Some(0x7f0b_8a80_0000), Some(252)));
    assert_eq!(record.host_stack_at.as_deref(), Some("kernel launch time"));
    assert_eq!(record.host_stack[0].function.as_deref(), Some("launch(int*, int)"));
    assert_eq!(record.host_stack[1].module.as_deref(), Some("bad"));
    assert_eq!(record.host_stack[1].pc, Some(0x1754));
    assert!(record.details.is_empty());

    assert_eq!(log.records[1].allocation.clone().unwrap().bytes, Some(4_194_300));
    assert_eq!(log.records[1].kernel(), Some("outer(int *)"));
    let api = log.records[2].api.clone().unwrap();
    assert_eq!(api.call.as_deref(), Some("cudaDeviceSynchronize"));
    assert_eq!(api.name.as_deref(), Some("cudaErrorLaunchFailure"));
    assert_eq!((api.code, api.text.as_deref()), (Some(719), Some("unspecified launch failure")));
    assert_eq!(log.records[3].leak.unwrap().bytes, 252);
}

#[test]
fn program_output_between_the_records_is_left_aside() {
    let log = log("memcheck-oob/log.txt");
    assert_eq!(log.records.len(), 4);
    assert_eq!(log.program_lines, 3);
    assert!(log.notes.is_empty(), "{:?}", log.notes);
    assert_eq!(log.not_printed, 3);
    assert_eq!(log.summaries, [Summary::Leaks { bytes: 252, allocations: 1 }, Summary::Errors(7)]);
    let found = Verdict::Found { errors: 7, warnings: 0 };
    assert_eq!(sanitizer::verdict(&log, Tool::Memcheck), found);
}

#[test]
fn one_cause_gathers_other_threads_and_failed_calls() {
    let log = log("memcheck-oob/log.txt");
    let causes = sanitizer::group(&log.records);
    assert_eq!(causes.len(), 2);
    assert_eq!((causes[0].first, &causes[0].repeats[..]), (0, &[1][..]));
    assert_eq!(causes[0].follow_ups, [2]);
    assert_eq!(causes[1].first, 3);
}

#[test]
fn a_race_names_both_sides_and_counts_one_in_the_singular() {
    let log = log("racecheck/log.txt");
    let race = &log.records[0].race;
    assert_eq!(race.len(), 3);
    assert_eq!(race[0].direction, Some(Direction::Write));
    assert_eq!((race[0].place.line, race[0].hazards), (Some(9), None));
    assert_eq!((race[1].place.line, race[1].hazards), (Some(11), Some(34)));
    assert_eq!((race[2].place.pc, race[2].hazards), (Some(0x1a0), Some(222)));
    assert_eq!(log.records[0].kernel(), Some("race(int *)"));
    assert_eq!(
        sanitizer::verdict(&log, Tool::Racecheck),
        Verdict::Found { errors: 1, warnings: 0 }
    );
}

#[test]
fn hazards_are_read_in_the_new_and_the_old_spelling() {
    let log = log("racecheck-hazard/log.txt");
    let [new, old] = &log.records[..] else { panic!("{:?}", log.records) };
    assert_eq!((new.kind, new.hazard), (RecordKind::Hazard, Some(Hazard::War)));
    assert_eq!((new.severity, new.address), (Severity::Error, Some(0x410)));
    assert_eq!(new.race[0].thread, Some([260, 0, 0]));
    assert_eq!(new.race[1].place.line, Some(9));
    assert_eq!(new.details, ["Current Value : 0, Incoming Value : 181"]);
    assert_eq!((old.severity, old.hazard), (Severity::Warning, Some(Hazard::Raw)));
    assert_eq!(old.race[0].place.file.as_deref(), Some("/src/warp_scan.cuh"));
    assert_eq!(old.race[0].place.line, Some(146));
}

#[test]
fn uninitialized_reads_host_copies_and_unused_memory_are_told_apart() {
    let log = log("initcheck/log.txt");
    let kinds: Vec<RecordKind> = log.records.iter().map(|r| r.kind).collect();
    assert_eq!(
        kinds,
        [RecordKind::Uninitialized, RecordKind::HostAccess, RecordKind::UnusedMemory]
    );
    assert_eq!(log.records[0].address, Some(0x7f3c_7ec0_00fc));
    assert_eq!(log.records[0].place.clone().unwrap().line, Some(41));
    assert_eq!(log.records[2].access.clone().unwrap().bytes, Some(16));
}

#[test]
fn a_divergent_barrier_is_one_cause() {
    let log = log("synccheck/log.txt");
    assert_eq!(log.records[0].kind, RecordKind::Synchronization);
    assert!(log.records[0].message.contains("Divergent thread(s) in warp"));
    assert_eq!(sanitizer::group(&log.records).len(), 1);
}

#[test]
fn clean_takes_the_right_tools_own_zero_summary() {
    let errors = log("clean/log.txt");
    let races = log("clean/racecheck.log.txt");
    let none = Verdict::Unknown(UnknownReason::NoSummary);
    assert_eq!(sanitizer::verdict(&errors, Tool::Memcheck), Verdict::Clean);
    assert_eq!(sanitizer::verdict(&errors, Tool::Racecheck), none);
    assert_eq!(sanitizer::verdict(&races, Tool::Racecheck), Verdict::Clean);
    assert_eq!(sanitizer::verdict(&races, Tool::Synccheck), none);
    assert_eq!(sanitizer::verdict(&Log::default(), Tool::Memcheck), none);
    let banner_only = sanitizer::read_log(b"========= COMPUTE-SANITIZER\nSegmentation fault\n");
    assert_eq!(sanitizer::verdict(&banner_only, Tool::Memcheck), none);
}

#[test]
fn an_abnormal_end_is_never_clean() {
    let never = log("aborted/log.txt");
    assert_eq!(never.aborts[0].kind, AbortKind::NothingInstrumented);
    assert!(matches!(sanitizer::verdict(&never, Tool::Memcheck), Verdict::Unknown(_)));
    let device = log("aborted/device.log.txt");
    assert_eq!(
        sanitizer::verdict(&device, Tool::Memcheck),
        Verdict::Unknown(UnknownReason::Aborted(AbortKind::DeviceNotSupported))
    );
}

#[test]
fn older_spellings_give_the_same_facts() {
    let log = log("older/log.txt");
    let record = &log.records[0];
    let place = record.place.clone().unwrap();
    assert_eq!(place.function.as_deref(), Some("ns::kern(float const*, int)"));
    assert_eq!((place.pc, place.line), (Some(0x70), Some(17)));
    assert_eq!(record.problem.as_deref(), Some("misaligned"));
    assert_eq!(record.kernel(), Some("void outer<(int)64>(const char *, int)"));
    let modules: Vec<_> = record.host_stack.iter().map(|f| f.module.as_deref().unwrap()).collect();
    assert_eq!(
        modules,
        [
            "/lib/x86_64-linux-gnu/libcuda.so.1",
            "/usr/local/lib/libcudart.so.12",
            "/usr/lib/libcuda.so.1"
        ]
    );
    assert_eq!(record.host_stack[2].function.as_deref(), Some("cuLaunchKernel"));
    assert_eq!(log.records[1].place.clone().unwrap().function.as_deref(), Some("test(int*, int*)"));
}

#[test]
fn the_xml_gives_the_same_records_with_whole_paths() {
    let report =
        sanitizer::read_xml(&fixture::bytes("sanitizer/synthetic/memcheck-oob/report.xml"))
            .unwrap();
    assert_eq!(report.broken, None);
    let [oob, api, race] = &report.records[..] else { panic!("{:?}", report.records) };
    let place = oob.place.clone().unwrap();
    assert_eq!(place.file.as_deref(), Some("/src/bad.cu"));
    assert_eq!((place.line, place.pc), (Some(2), Some(0x80)));
    assert_eq!(oob.problem.as_deref(), Some("out of bounds"));
    assert_eq!(oob.position.unwrap().thread, [63, 0, 0]);
    assert_eq!(oob.host_stack[0].function.as_deref(), Some("launch<int>(int*)"));
    assert_eq!(oob.host_stack[1].function, None);
    assert_eq!(api.api.clone().unwrap().code, Some(719));
    assert_eq!(race.severity, Severity::Warning);
    assert_eq!(race.race[1].hazards, Some(34));
    assert_eq!(sanitizer::group(&report.records)[0].follow_ups, [1]);
}

#[test]
fn a_cut_xml_gives_its_whole_records_and_says_where_it_broke() {
    let data = fixture::bytes("sanitizer/synthetic/memcheck-oob/report.xml");
    let cut = sanitizer::read_xml(&data[..data.len() / 2]).unwrap();
    assert_eq!(cut.records.len(), 1);
    assert!(cut.broken.is_some());
    let other = sanitizer::read_xml(b"<html><body/></html>");
    assert_eq!(other, Err(XmlError::OtherRoot { found: "html".to_owned() }));
    assert!(sanitizer::read_xml(b"not xml at all").is_err());
}

#[test]
fn every_log_in_the_fixtures_is_understood_to_the_last_line() {
    for path in logs() {
        let log = sanitizer::read_log(&std::fs::read(&path).unwrap());
        let usage = path.to_string_lossy().contains("unknown-tool");
        assert_eq!(log.banner, !usage, "{}", path.display());
        assert!(log.notes.is_empty(), "{}: {:?}", path.display(), log.notes);
        let odd: Vec<&Record> =
            log.records.iter().filter(|r| r.kind == RecordKind::Other).collect();
        assert!(odd.is_empty(), "{}: {odd:?}", path.display());
        for record in &log.records {
            let known = ["Current Value", "Not written any memory", "of allocation were unused"];
            let mut strange =
                record.details.iter().filter(|d| !known.iter().any(|k| d.contains(k)));
            let host_copy = record.kind == RecordKind::HostAccess;
            assert!(host_copy || strange.next().is_none(), "{}: {record:?}", path.display());
        }
    }
}

fn logs() -> Vec<std::path::PathBuf> {
    let mut all = fixture::files("sanitizer", "log.txt");
    all.extend(fixture::files("sanitizer", "stdout.txt"));
    all
}

#[test]
fn real_logs_of_every_tool_get_the_verdict_they_deserve() {
    let found = |errors| Verdict::Found { errors, warnings: 0 };
    let aborted = |kind| Verdict::Unknown(UnknownReason::Aborted(kind));
    let cases = [
        ("memcheck-clean", Tool::Memcheck, Verdict::Clean),
        ("racecheck-clean", Tool::Racecheck, Verdict::Clean),
        ("initcheck-clean", Tool::Initcheck, Verdict::Clean),
        ("synccheck-clean", Tool::Synccheck, Verdict::Clean),
        ("memcheck-race", Tool::Memcheck, Verdict::Clean),
        ("memcheck-oob", Tool::Memcheck, found(2)),
        ("memcheck-oob-limit", Tool::Memcheck, found(2)),
        ("memcheck-child", Tool::Memcheck, found(2)),
        ("memcheck-crash", Tool::Memcheck, found(2)),
        ("memcheck-leak", Tool::Memcheck, found(1)),
        ("racecheck-race", Tool::Racecheck, found(1)),
        ("initcheck-unused", Tool::Initcheck, found(1)),
        ("memcheck-app-fails", Tool::Memcheck, aborted(AbortKind::ProgramFailed)),
        ("memcheck-no-cuda", Tool::Memcheck, aborted(AbortKind::NothingInstrumented)),
        ("memcheck-no-cuda-required", Tool::Memcheck, aborted(AbortKind::NothingInstrumented)),
        ("memcheck-no-program", Tool::Memcheck, aborted(AbortKind::NoProgram)),
        ("unknown-tool", Tool::Memcheck, Verdict::Unknown(UnknownReason::NoSummary)),
    ];
    for (case, tool, verdict) in cases {
        let path = format!("sanitizer/2025.3.1/{case}/stdout.txt");
        let log = sanitizer::read_log(&fixture::bytes(&path));
        assert_eq!(sanitizer::verdict(&log, tool), verdict, "{case}");
    }
    for (case, tool) in [
        ("initcheck-uninit", Tool::Initcheck),
        ("synccheck-bad-barrier", Tool::Synccheck),
        ("racecheck-race-hazards", Tool::Racecheck),
    ] {
        let path = format!("sanitizer/2025.3.1/{case}/stdout.txt");
        let log = sanitizer::read_log(&fixture::bytes(&path));
        assert!(matches!(sanitizer::verdict(&log, tool), Verdict::Found { .. }), "{case}");
        assert_eq!(sanitizer::group(&log.records).len(), 1, "{case}");
    }
}

/// The facts that both the log and the XML contain; the log has only file names.
fn facts(record: &Record) -> impl PartialEq + std::fmt::Debug {
    let place = record.place.as_ref().map(|place| {
        let file = place.file.as_deref().and_then(|file| file.rsplit('/').next());
        (place.pc, place.line, file.map(str::to_owned))
    });
    let race: Vec<_> = record
        .race
        .iter()
        .map(|side| (side.direction, side.place.pc, side.place.line, side.thread, side.hazards))
        .collect();
    (
        (record.kind, record.severity, record.access.clone(), record.position, record.address),
        (record.hazard, race, place, record.problem.clone(), record.leak),
        (record.api.clone(), record.host_stack_at.clone()),
    )
}

#[test]
fn the_log_and_the_xml_of_one_run_say_the_same() {
    let mut compared = 0;
    for path in fixture::files("sanitizer/2025.3.1", "findings.xml") {
        let xml = sanitizer::read_xml(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(xml.broken, None, "{}", path.display());
        let log = std::fs::read(path.with_file_name("stdout.txt")).unwrap();
        let log = sanitizer::read_log(&log);
        // The longest XML fixtures keep only their first records, as their origin notes.
        assert!(log.records.len() >= xml.records.len(), "{}", path.display());
        for whole in &xml.records {
            let same = log.records.iter().any(|short| facts(short) == facts(whole));
            assert!(same, "{}: {:#?} not in {:#?}", path.display(), whole, log.records);
            compared += 1;
        }
    }
    assert!(compared >= 10, "{compared}");
}

#[test]
fn damaged_logs_and_xml_never_panic() {
    let several = |path: &std::path::PathBuf| {
        let one = ["synthetic", "initcheck-uninit/", "memcheck-oob/", "racecheck-race"];
        one.iter().any(|case| path.to_string_lossy().contains(case))
    };
    for path in logs().into_iter().filter(several) {
        let data = std::fs::read(&path).unwrap();
        let read = |bytes: &[u8]| {
            let log = sanitizer::read_log(bytes);
            sanitizer::group(&log.records);
        };
        damage::cut_everywhere(&data, read);
        damage::flip_bits(&data, 500, read);
    }
    for path in fixture::files("sanitizer", ".xml").into_iter().filter(several) {
        let data = std::fs::read(&path).unwrap();
        let read = |bytes: &[u8]| drop(sanitizer::read_xml(bytes));
        damage::cut_everywhere(&data, read);
        damage::flip_bits(&data, 500, read);
    }
}
