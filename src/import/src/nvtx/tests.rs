use super::*;
use std::path::Path;

const LOG: &str = r#"{"event":"opened","format":1,"pid":7,"ppid":1,"ns":100,"unix_ns":1}
{"event":"push","ns":110,"tid":7,"domain":0,"level":0,"message":"A"}
{"event":"domain","domain":1,"name":"rgpu"}
{"event":"start","ns":115,"tid":7,"domain":1,"id":1,"message":"whole"}
{"event":"push","ns":120,"tid":7,"domain":0,"level":1,"message":"A1"}
{"event":"pop","ns":130,"tid":7,"domain":0,"level":1}
{"event":"end","ns":140,"tid":8,"domain":1,"id":1}
{"event":"pop","ns":150,"tid":7,"domain":0,"level":0}
"#;

fn regions(log: &str) -> (Vec<(String, String, u64)>, Vec<String>) {
    let imported = import(&nvtx_log::read(log.as_bytes()).unwrap(), "raw/nvtx.jsonl.7");
    assert!(imported.regions.iter().all(|region| region.gpu_ns.is_none()));
    (
        imported
            .regions
            .iter()
            .map(|r| (r.display(), r.kind.to_string(), r.host_ns.unwrap()))
            .collect(),
        imported.gaps.into_iter().map(|gap| gap.code).collect(),
    )
}

#[test]
fn ranges_become_regions_in_host_time() {
    let closed = format!("{LOG}{}\n", r#"{"event":"closed","ns":160,"events":6}"#);
    let (regions, gaps) = regions(&closed);
    let owned = |path: &str, kind: &str, ns| (path.to_owned(), kind.to_owned(), ns);
    let expected = [
        owned("A", "push_pop", 40),
        owned("A::A1", "push_pop", 10),
        owned("rgpu@whole", "start_end", 25),
    ];
    assert_eq!(regions, expected);
    assert!(gaps.is_empty(), "{gaps:?}");
}

#[test]
fn a_real_log_of_two_threads_pairs_every_range() {
    let path = "tests/fixtures/nvtx/collector-1/python-threads/nvtx.jsonl";
    let log =
        std::fs::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)).unwrap();
    let imported = import(&nvtx_log::read(&log).unwrap(), "raw/nvtx.jsonl.1");
    assert!(imported.gaps.is_empty(), "{:?}", imported.gaps);
    let regions: Vec<_> =
        imported.regions.iter().map(|r| (r.display(), r.instances, r.host_ns)).collect();
    let owned = |path: &str, ns| (path.to_owned(), Some(1), Some(ns));
    let expected = [
        owned("A", 3762797179172 - 3762787704643),
        owned("A::A1", 3762797037249 - 3762787733084),
        owned("B", 3762797597580 - 3762797223393),
        owned("A1", 3762797542055 - 3762797507125),
        owned("app@whole", 3762797549980 - 3762797166893),
    ];
    assert_eq!(regions, expected);
}

#[test]
fn a_killed_program_leaves_open_ranges_that_are_named() {
    let cut: String = LOG.lines().take(5).map(|line| format!("{line}\n")).collect();
    let (regions, gaps) = regions(&cut);
    assert_eq!(regions.len(), 3);
    assert_eq!(gaps, ["unfinished_log", "open_ranges"]);
    let stray = format!("{LOG}{}\n", r#"{"event":"pop","ns":160,"tid":7,"domain":0}"#);
    assert_eq!(self::regions(&stray).1, ["unfinished_log", "stray_ends"]);
}

/// A process with CUPTI. Its two kernels run after the ranges that launched them have closed.
const TRACED: &str = r#"{"event":"opened","format":1,"pid":8,"ppid":7,"ns":100,"unix_ns":1}
{"event":"cupti","state":"on","version":130001,"path":"/x/libcupti.so.13","clock":"ours"}
{"event":"push","ns":110,"tid":8,"domain":0,"level":0,"message":"A"}
{"event":"push","ns":120,"tid":8,"domain":0,"level":1,"message":"A1"}
{"event":"pop","ns":130,"tid":8,"domain":0,"level":1}
{"event":"pop","ns":150,"tid":8,"domain":0,"level":0}
{"event":"name","id":0,"text":"cudaLaunchKernel_v7000"}
{"event":"call","ns":112,"end_ns":115,"id":1,"tid":8,"name":0}
{"event":"name","id":1,"text":"_Z5heavyPf"}
{"event":"kernel","ns":200,"end_ns":1200,"id":1,"device":0,"context":1,"stream":7,"name":1,"grid":[4,1,1],"block":[32,2,1],"registers":40,"static_bytes":1024,"dynamic_bytes":512,"local_bytes":0}
{"event":"call","ns":122,"end_ns":125,"id":2,"tid":8,"name":0}
{"event":"kernel","ns":1200,"end_ns":1500,"id":2,"device":0,"context":1,"stream":7,"name":1,"grid":[1,1,1],"block":[64,1,1],"registers":40,"static_bytes":0,"dynamic_bytes":0,"local_bytes":0}
{"event":"copy","ns":1600,"end_ns":1700,"id":3,"device":0,"context":1,"stream":7,"kind":1,"bytes":4096}
{"event":"closed","ns":2000,"events":4,"dropped":0,"unbalanced":0,"work":3,"calls":2,"lost":0}
"#;

fn traced(text: &str) -> ImportedArtifact {
    import(&nvtx_log::read(text.as_bytes()).unwrap(), "raw/nvtx.jsonl.8")
}

#[test]
fn work_belongs_to_the_range_in_which_it_was_launched() {
    let imported = traced(TRACED);
    assert!(imported.refusals.is_empty(), "{:?}", imported.refusals);
    let launches: Vec<_> = imported
        .launches
        .iter()
        .map(|l| (l.kernel.as_str(), l.region.join("::"), l.duration_ns, l.start_ns))
        .collect();
    let expected = [
        ("heavy(float*)", "A".to_owned(), Some(1000.0), Some(90)),
        ("heavy(float*)", "A::A1".to_owned(), Some(300.0), Some(1090)),
    ];
    assert_eq!(launches, expected);
    let first = &imported.launches[0];
    assert_eq!(first.mangled.as_deref(), Some("_Z5heavyPf"));
    assert_eq!((first.grid, first.block), ([4, 1, 1], [32, 2, 1]));
    assert_eq!(
        (first.registers, first.shared_bytes, first.stream),
        (Some(40), Some(1536), Some(7))
    );
    let gpu: Vec<_> = imported.regions.iter().map(|r| (r.display(), r.gpu_ns)).collect();
    assert_eq!(gpu, [("A".to_owned(), Some(1300)), ("A::A1".to_owned(), Some(300))]);
    assert_eq!((imported.copies[0].kind.as_str(), imported.copies[0].bytes), ("HtoD", 4096));
    let trace = imported.sidecars.trace.unwrap();
    assert_eq!((trace.work.len(), trace.calls.len()), (3, 2));
    assert_eq!(imported.tool_version.as_deref(), Some("CUPTI 130001"));
    // The copy's call is not in the log.
    let codes: Vec<_> = imported.gaps.iter().map(|gap| gap.code.as_str()).collect();
    assert_eq!(codes, ["unattributed_gpu_rows"]);
}

#[test]
fn an_empty_name_is_no_name() {
    let text = TRACED.replace(r#""message":"A1""#, r#""message":"""#);
    let regions: Vec<_> = traced(&text).regions.iter().map(|r| r.display()).collect();
    assert_eq!(regions, ["A", "A::(unnamed)"]);
}

#[test]
fn processes_of_one_run_are_one_trace() {
    let folder = tempfile::tempdir().unwrap();
    let write = |pid: u32, text: &str| {
        std::fs::write(folder.path().join(format!("nvtx.jsonl.{pid}")), text).unwrap();
    };
    write(7, LOG);
    write(8, TRACED);
    write(9, "not a log");
    let read = |pid: u32| {
        let path = folder.path().join(format!("nvtx.jsonl.{pid}"));
        let from = format!("raw/nvtx.jsonl.{pid}");
        import_files(&Source::new(&path, &from))
    };
    let whole = read(7).unwrap();
    let regions: Vec<_> = whole.regions.iter().map(|r| (r.display(), r.instances)).collect();
    let expected = [("A", 2), ("A::A1", 2), ("rgpu@whole", 1)];
    assert_eq!(regions, expected.map(|(name, many)| (name.to_owned(), Some(many))));
    assert_eq!(whole.launches.len(), 2);
    let rest = read(8).unwrap();
    assert!(rest.launches.is_empty() && rest.regions.is_empty() && rest.refusals.is_empty());
    assert!(read(9).is_err());
    // A log that cannot be read costs only itself, also if it is the first.
    write(7, "{\"event\":\"opened\"");
    write(8, &format!("{TRACED}cut\n"));
    assert!(read(7).is_err());
    let rest = read(8).unwrap();
    assert_eq!(rest.launches.len(), 2);
    let told: Vec<_> = rest.gaps.iter().map(|gap| gap.text.as_str()).collect();
    let cut = format!("raw/nvtx.jsonl.8: 1 line, at offset {}, cannot be read", TRACED.len());
    assert!(told.contains(&cut.as_str()), "{told:?}");
    assert!(told.contains(&"raw/nvtx.jsonl.7: the log of another process cannot be read"));
    // A log that is read alone is imported itself.
    let path = folder.path().join("nvtx.jsonl.8");
    let alone = import_files(&Source::new(&path, "nvtx.jsonl.8").alone()).unwrap();
    assert_eq!(alone.regions.len(), 2);
}

#[test]
fn cupti_that_is_off_or_saw_nothing_is_a_refusal_with_its_reason() {
    let refused = |text: &str| {
        let refusals = traced(text).refusals;
        (refusals[0].code, refusals[0].text.clone())
    };
    let off = r#"{"event":"cupti","state":"off","text":"libcupti.so.13: no such file"}"#;
    let (code, text) = refused(&format!("{LOG}{off}\n"));
    assert_eq!(code, "cupti_unusable");
    assert!(text.contains("no such file"), "{text}");
    let on = r#"{"event":"cupti","state":"on","version":28,"clock":"ours"}"#;
    assert_eq!(refused(&format!("{LOG}{on}\n")).0, "no_gpu_rows");
    assert_eq!(refused(LOG).0, "no_gpu_rows");
    let host_only = |folder: &Path| {
        let path = folder.join("nvtx.jsonl.7");
        std::fs::write(&path, LOG).unwrap();
        let source = Source::new(&path, "raw/nvtx.jsonl.7");
        import_files(&Source { traced: TracedActivity::HostOnly, ..source }).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    assert!(host_only(folder.path()).refusals.is_empty());
}
