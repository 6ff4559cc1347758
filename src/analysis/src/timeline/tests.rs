//! The timeline of real recordings, held against what SQL says of nsys's own export of them.

use std::path::PathBuf;

use rusqlite::{Connection, OpenFlags};

use super::finding::findings;
use super::*;
use crate::Thresholds;
use rgpu_import::nsys::{import_report, import_sqlite};
use rgpu_model::finding::{GainScope, START_UP};
use rgpu_model::timeline::{KernelSum, WHOLE_GRAPHS, WaitCause, WaitSum};
use rgpu_model::trace::{CallEvent, RangeEvent, TraceRegion};

fn fixture(case: &str, file: &str) -> PathBuf {
    let fixtures = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("tests/fixtures/nsys/2025.3.1");
    fixtures.join(case).join(file)
}

fn timeline(trace: &Trace) -> Option<Timeline> {
    super::timeline(trace, &Limits::new(&Thresholds::default(), None))
}

/// Of a program whose graphs were traced as a whole.
fn replayed() -> Graphs {
    let whole = KernelSum { kernel: WHOLE_GRAPHS.to_owned(), ..KernelSum::default() };
    Graphs::new(&Profile { kernels: vec![whole], ..Profile::default() }, None)
}

fn of(case: &str) -> Timeline {
    let imported = import_sqlite(&fixture(case, "report.sqlite"), "raw/report.sqlite").unwrap();
    timeline(&imported.sidecars.trace.unwrap()).unwrap()
}

/// Asks the export; `c` are its kernels and graphs, `m` its copies and fills.
fn sql(case: &str, query: &str) -> u64 {
    let path = fixture(case, "report.sqlite");
    let uri = format!("file:{}?immutable=1", path.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let file = Connection::open_with_flags(uri, flags).unwrap();
    let rows = |tables: &[&str]| {
        let there = tables.iter().filter(|table| {
            file.prepare(&format!("SELECT 1 FROM CUPTI_ACTIVITY_KIND_{table}")).is_ok()
        });
        let selects = there.map(|t| {
            format!(
                "SELECT start, end, correlationId id, streamId stream FROM CUPTI_ACTIVITY_KIND_{t}"
            )
        });
        selects.collect::<Vec<_>>().join(" UNION ALL ")
    };
    let query = format!(
        "WITH c AS ({}), m AS ({}),
         ends AS (SELECT *, max(end) OVER (ORDER BY start, end
                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached FROM c),
         gaps AS (SELECT reached AS g0, ends.start AS g1, r.start AS called, r.end AS returned,
                  r.globalTid AS thread
                  FROM ends JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = ends.id
                  WHERE ends.start > reached)
         {query}",
        rows(&["KERNEL", "GRAPH_TRACE"]),
        rows(&["MEMCPY", "MEMSET"]),
    );
    file.query_row(&query, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

const CASES: [&str; 3] = ["regions", "timeline-graph", "timeline-node"];

fn waiting(sums: &[rgpu_model::timeline::WaitSum], cause: &str) -> u64 {
    sums.iter().find(|sum| sum.cause == cause).map_or(0, |sum| sum.total_ns)
}

#[test]
fn spans_and_kernel_times_are_what_sql_says() {
    for case in CASES {
        let time = &of(case).devices[0];
        assert_eq!(time.span_ns, sql(case, "SELECT max(end) - min(start) FROM c"), "{case}");
        let without = sql(case, "SELECT sum(g1 - g0) FROM gaps");
        assert_eq!(time.span_ns - time.kernel_ns, without, "{case}");
        let causes: u64 = time.waiting.iter().map(|sum| sum.total_ns).sum();
        assert_eq!(causes, without, "{case}");
        let gaps: u64 = time.waiting.iter().map(|sum| sum.gaps).sum();
        assert_eq!(gaps, sql(case, "SELECT count(*) FROM gaps"), "{case}");
        assert_eq!(time.busy_ns, time.kernel_ns + time.copy_ns - time.overlap_ns);
        assert_eq!(time.idle_ns, time.span_ns - time.busy_ns);
        let alone = "SELECT coalesce(sum(max(0, min(g1, m.end) - max(g0, m.start))), 0)
                     FROM gaps, m";
        assert_eq!(time.copy_ns - time.overlap_ns, sql(case, alone), "{case}");
    }
}

#[test]
fn causes_are_what_sql_says_where_one_rule_decides() {
    for case in CASES {
        let time = &of(case).devices[0];
        // No copy runs in a gap whose launch was there before it.
        let queued = "SELECT coalesce(sum(g1 - g0), 0) FROM gaps WHERE returned <= g0";
        assert_eq!(waiting(&time.waiting, "queued"), sql(case, queued), "{case}");
        // Without a wait: late until the call, then its latency, but for what copies cover.
        let waits = "FROM CUPTI_ACTIVITY_KIND_RUNTIME w JOIN StringIds s ON s.id = w.nameId
            WHERE w.globalTid = thread AND w.end > g0 AND w.start < called
            AND (s.value LIKE '%Synchronize%' OR s.value LIKE 'cudaMemcpy_v%')";
        let during = "(w.start <= g0 OR EXISTS (SELECT 1 FROM m
            WHERE m.start <= w.start AND m.end > w.start AND m.end > g0))";
        let not_waited = format!("FROM gaps WHERE called > g0 AND NOT EXISTS (SELECT 1 {waits}");
        let copied = |from: &str, until: &str| {
            let ns = format!("min({until}, m.end) - max({from}, m.start)");
            format!("(SELECT coalesce(sum(max(0, {ns})), 0) FROM m)")
        };
        let under_way =
            "SELECT coalesce(sum(g1 - g0), 0) FROM gaps WHERE called <= g0 AND returned > g0";
        let after = copied("called", "g1");
        let after =
            format!("SELECT coalesce(sum(g1 - called - {after}), 0) {not_waited} AND {during})");
        let latency = sql(case, under_way) + sql(case, &after);
        assert_eq!(waiting(&time.waiting, "launch_latency"), latency, "{case}");
        let before = copied("g0", "called");
        let before = format!("SELECT coalesce(sum(called - g0 - {before}), 0) {not_waited})");
        let late = sql(case, &before);
        assert!(waiting(&time.waiting, "host_late") >= late, "{case}");
    }
}

#[test]
fn every_phase_of_a_program_waits_for_what_it_was_written_to_wait_for() {
    for case in ["timeline-graph", "timeline-node"] {
        let timeline = of(case);
        let main = |name: &str| {
            let region = timeline.regions.iter().find(|r| r.path == [name]).unwrap();
            let by_gaps = region.waiting.iter().max_by_key(|sum| sum.gaps).unwrap();
            (by_gaps.cause.to_string(), by_gaps.gaps)
        };
        assert_eq!(main("synced"), ("synchronisation".to_owned(), 7), "{case}");
        assert_eq!(main("busy_host"), ("host_late".to_owned(), 4), "{case}");
        assert_eq!(main("copied"), ("copy".to_owned(), 3), "{case}");
        assert_eq!(main("tiny").0, "launch_latency", "{case}");
        assert_eq!(main("graph").0, "queued", "{case}");
        assert_eq!(main("async"), ("queued".to_owned(), 9), "{case}");
        let device = &timeline.devices[0];
        assert!(device.overlap_ns > 0 && device.concurrent_ns > 0 && device.most_at_once == 2);
        assert_eq!(device.streams.len(), 2);
        assert!(device.gaps[0].duration_ns >= device.gaps[1].duration_ns);
        let kernels = timeline.regions.iter().find(|r| r.path == ["graph"]).unwrap().kernels;
        assert_eq!(kernels, if case == "timeline-node" { 15 } else { 3 });
    }
}

#[test]
fn a_report_and_its_export_have_one_timeline() {
    for case in CASES {
        let bytes = std::fs::read(fixture(case, "report.nsys-rep")).unwrap();
        let native = import_report(&bytes, "raw/report.sqlite").unwrap();
        assert_eq!(timeline(&native.sidecars.trace.unwrap()), Some(of(case)), "{case}");
    }
}

#[test]
fn findings_name_the_share_the_cause_and_the_next_step() {
    let own = Thresholds::default();
    let found = findings(&of("timeline-graph"), None, &replayed(), &Limits::new(&own, None));
    let ids: Vec<_> = found.iter().map(|f| f.id.as_str()).collect();
    assert_eq!(ids, ["gpu_waits_for_host", "gpu_waits_for_copies"]);
    assert_eq!(
        found[0].text,
        "for 35 % of 4.47 ms the GPU runs no kernel because the host had not launched the next \
         kernel (7 gaps)"
    );
    let stake = found[0].stake.as_ref().unwrap();
    assert_eq!(stake.of, GainScope::Program);
    assert!((stake.share - 0.348).abs() < 0.001);
    let place = &found[0].places[0];
    assert_eq!((place.region.as_deref(), place.gaps), (Some("busy_host"), 5));
    assert!(!place.first_launch && place.longest_ns < place.total_ns);
    assert!(found.iter().all(|f| !f.hint.is_empty() && f.evidence[0].value >= 10.0));
}

/// Two kernels of the regions given, 100 ns each and 50 ns apart, launched ahead.
fn two(regions: Vec<TraceRegion>, of_work: [Vec<u32>; 2], names: [&str; 2]) -> Trace {
    let [first, second] = of_work;
    let work = |name, start_ns, regions: Vec<u32>| TraceWork {
        kind: TraceWorkKind::Kernel,
        name,
        start_ns,
        duration_ns: 100,
        device: 0,
        stream: 7,
        bytes: None,
        pageable: None,
        call: Some(0),
        launch: None,
        regions: regions.into(),
        rank: None,
        shape: None,
    };
    let call =
        CallEvent { name: 0, start_ns: 0, duration_ns: 1, thread: 1, waits: false, rank: None };
    Trace {
        names: names.map(str::to_owned).to_vec(),
        regions,
        work: vec![work(0, 10, first), work(1, 160, second)],
        calls: vec![call],
        ..Trace::default()
    }
}

fn region(path: &[&str], parent: Option<u32>) -> TraceRegion {
    let path = path.iter().map(|part| (*part).to_owned()).collect();
    TraceRegion { path, parent, start_end: false }
}

/// A program of torch.compile copies between the benchmarks of its start-up, and next to nothing
/// after it.
#[test]
fn copies_of_start_up_are_not_held_against_the_time_after_it() {
    let copied = |first_ns: u64, all_ns: u64| {
        let mut timeline = of("timeline-graph");
        let device = &mut timeline.devices[0];
        device.span_ns = 12_505_274_786;
        let sum = |cause, total_ns, gaps| WaitSum { cause, total_ns, gaps };
        device.waiting =
            vec![sum(WaitCause::HostLate, 12_276_406_129, 4324), sum(WaitCause::Copy, all_ns, 174)];
        device.first_launches = vec![
            sum(WaitCause::HostLate, 12_251_585_199, 4103),
            sum(WaitCause::Copy, first_ns, 100),
        ];
        let own = Thresholds::default();
        let found = findings(&timeline, None, &Graphs::default(), &Limits::new(&own, None));
        found.iter().any(|finding| finding.id == "gpu_waits_for_copies")
    };
    assert!(!copied(88_448_150, 88_928_150));
    assert!(copied(48_000, 88_928_150), "most of it is after start-up");
}

#[test]
fn what_lies_between_two_cases_of_the_runner_is_no_wait() {
    let regions = vec![
        region(&["rgpu@timed"], None),
        region(&["rgpu@timed", "rgpu@small"], Some(0)),
        region(&["rgpu@timed", "rgpu@large"], Some(0)),
    ];
    let apart = timeline(&two(regions.clone(), [vec![1], vec![2]], ["a", "b"])).unwrap();
    assert_eq!((apart.scope.as_str(), apart.devices[0].span_ns), ("timed", 200));
    assert!(apart.devices[0].waiting.is_empty());
    let together = timeline(&two(regions.clone(), [vec![1], vec![1]], ["a", "b"])).unwrap();
    assert_eq!((together.devices[0].span_ns, together.devices[0].waiting[0].total_ns), (250, 50));
    let outside = timeline(&two(regions, [vec![], vec![1]], ["a", "b"])).unwrap();
    assert_eq!(outside.devices[0].span_ns, 100);
}

#[test]
fn time_before_a_kernels_first_launch_is_told_apart_from_a_late_host() {
    let work = |name, start_ns, call| TraceWork {
        kind: TraceWorkKind::Kernel,
        name,
        start_ns,
        duration_ns: 10,
        device: 0,
        stream: 7,
        bytes: None,
        pageable: None,
        call: Some(call),
        launch: Some(call),
        regions: Default::default(),
        rank: None,
        shape: None,
    };
    let call = |name, start_ns, duration_ns| CallEvent {
        name,
        start_ns,
        duration_ns,
        thread: 1,
        waits: false,
        rank: None,
    };
    let trace = Trace {
        names: ["a", "b", "cudaLaunchKernel", "cuLibraryLoadData", "cudaGraphLaunch"]
            .map(str::to_owned)
            .to_vec(),
        work: vec![work(0, 0, 0), work(1, 1000, 2), work(1, 1500, 3)],
        calls: vec![call(2, 0, 1), call(3, 50, 900), call(2, 990, 5), call(4, 1490, 5)],
        ..Trace::default()
    };
    let timeline = timeline(&trace).unwrap();
    let first: u64 = timeline.devices[0].first_launches.iter().map(|sum| sum.total_ns).sum();
    assert_eq!(first, 990, "b is launched first after 990 ns, then once more after 490 ns");
    let own = Thresholds::default();
    let found = findings(&timeline, None, &Graphs::default(), &Limits::new(&own, None));
    let ids: Vec<_> = found.iter().map(|f| f.id.as_str()).collect();
    assert_eq!(ids, ["gpu_waits_for_first_launches", "gpu_waits_for_host"]);
    assert_eq!(found[0].places[0].call, "cuLibraryLoadData");
    assert!(!found[1].hint.contains("CUDA graph;") && found[1].hint.contains("already"));
}

/// Kernels on one GPU by name, start and length in µs, each launched 1 µs before its start, with
/// other calls of the same thread by name and start.
fn kernels(work: &[(&str, u64, u64)], other_calls: &[(&str, u64)]) -> Trace {
    let mut trace = Trace::default();
    let mut name = |name: &str| {
        let at = trace.names.iter().position(|known| known == name);
        at.unwrap_or_else(|| {
            trace.names.push(name.to_owned());
            trace.names.len() - 1
        }) as u32
    };
    let launches = work.iter().map(|(_, start, _)| ("cudaLaunchKernel", start.saturating_sub(1)));
    let calls = launches.chain(other_calls.iter().copied());
    let calls: Vec<CallEvent> = calls
        .map(|(call, start)| CallEvent {
            name: name(call),
            start_ns: start * 1000,
            duration_ns: 500,
            thread: 1,
            waits: false,
            rank: None,
        })
        .collect();
    let work = work.iter().zip(0..).map(|((kernel, start, us), at)| TraceWork {
        kind: TraceWorkKind::Kernel,
        name: name(kernel),
        start_ns: start * 1000,
        duration_ns: us * 1000,
        device: 0,
        stream: 7,
        bytes: None,
        pageable: None,
        call: Some(at),
        launch: None,
        regions: Default::default(),
        rank: None,
        shape: None,
    });
    let work = work.collect();
    Trace { work, calls, ..trace }
}

fn found(trace: &Trace) -> Vec<Finding> {
    let own = Thresholds::default();
    findings(&timeline(trace).unwrap(), None, &Graphs::default(), &Limits::new(&own, None))
}

fn ids(found: &[Finding]) -> Vec<&str> {
    found.iter().map(|finding| finding.id.as_str()).collect()
}

#[test]
fn code_that_is_loaded_for_a_known_name_is_start_up_unless_that_repeats() {
    let work = [("copy", 0, 10), ("copy", 11, 10), ("copy", 1000, 10)];
    assert_eq!(ids(&found(&kernels(&work, &[]))), ["gpu_waits_for_host"]);
    let loads = [("cuModuleLoadData", 500)];
    assert_eq!(ids(&found(&kernels(&work, &loads))), [START_UP]);
    // cuDNN loads a plan for each new shape.
    let steps: Vec<_> = (0..12).map(|step| ("sdpa", step * 1000, 10)).collect();
    let loads: Vec<_> = (0..11).map(|step| ("cuLibraryLoadData", step * 1000 + 500)).collect();
    assert_eq!(ids(&found(&kernels(&steps, &loads))), ["gpu_waits_for_host"]);
    assert_eq!(ids(&found(&kernels(&steps[..8], &loads[..7]))), [START_UP]);
}

#[test]
fn compilation_and_autotuning_by_xla_are_start_up() {
    let work = [("fusion", 0, 10), ("fusion", 11, 10), ("fusion", 1000, 10)];
    let compiled = |name: &str, us: u64| {
        let mut trace = kernels(&work, &[]);
        trace.names.push(name.to_owned());
        trace.ranges = vec![RangeEvent {
            name: trace.names.len() as u32 - 1,
            start_ns: 100_000,
            duration_ns: Some(us * 1000),
            thread: 2,
            depth: 0,
            start_end: false,
            region: None,
            rank: None,
        }];
        found(&trace)
    };
    assert_eq!(ids(&compiled("TSL@XlaCompileBackend:#module=gemm#", 800)), [START_UP]);
    assert_eq!(ids(&compiled("TSL@XlaCompileBackend:#module=gemm#", 80)), ["gpu_waits_for_host"]);
    assert_eq!(ids(&compiled("TSL@XlaModule:#hlo_module=step#", 800)), ["gpu_waits_for_host"]);
    let tune = "stream_executor::gpu::RepeatBufferKernelImpl(char *, long, long)";
    let tuned: Vec<_> = (0..20).map(|n| (tune, n * 1000, 10)).collect();
    assert_eq!(ids(&found(&kernels(&tuned, &[]))), [START_UP]);
}

#[test]
fn a_long_gap_that_stands_alone_before_the_last_first_launch_is_start_up() {
    let mut work = vec![("fill", 0, 10), ("fill", 11, 10), ("fill", 9000, 10), ("gemm", 9011, 10)];
    assert_eq!(ids(&found(&kernels(&work, &[]))), [START_UP]);
    work.pop();
    assert_eq!(ids(&found(&kernels(&work, &[]))), ["gpu_waits_for_host"]);
}

/// The cuBLAS program: cuBLAS allocates its workspace 9 ms after its library was loaded, which is
/// by far longer than what else comes before that kernel.
#[test]
fn start_up_that_is_known_does_not_hide_a_long_gap_that_stands_alone() {
    let work =
        [("a", 0, 10), ("nvjet", 88_700, 1380), ("nvjet", 96_840, 1380), ("reduce", 98_230, 10)];
    assert_eq!(ids(&found(&kernels(&work, &[]))), [START_UP]);
    let time = timeline(&kernels(&work, &[])).unwrap().devices.remove(0);
    assert_eq!(time.start_up_idle_ns(), 1000 * (88_690 + 6760 + 10));
}

/// Recorded programs, as nsys exported them.
#[test]
fn what_real_programs_do_once_is_start_up() {
    let found_in = |program: &str| {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .join("tests/fixtures/programs");
        let path = root.join(program).join("report.sqlite");
        let trace = import_sqlite(&path, "report.sqlite").unwrap().sidecars.trace.unwrap();
        let found = found(&trace);
        let device = timeline(&trace).unwrap().devices.remove(0);
        let steady_gaps = device.waiting.iter().map(|sum| sum.gaps).sum::<u64>()
            - device.first_launches.iter().map(|sum| sum.gaps).sum::<u64>();
        let ids: Vec<String> = found.iter().map(|finding| finding.id.clone()).collect();
        (ids, steady_gaps, device.span_ns - device.start_up_ns())
    };
    // Of 129 ms, 15 ms are left: the kernels, and what the GPU needs between them.
    let (ids, _, steady_ns) = found_in("gemm");
    assert_eq!(ids, [START_UP]);
    assert!(steady_ns < 15_500_000, "{steady_ns}");
    let (ids, ..) = found_in("triton_norm");
    assert_eq!(ids, [START_UP]);
    let (ids, gaps, _) = found_in("cupy_heat");
    assert!(ids.contains(&START_UP.to_owned()) && gaps > 100, "{ids:?} {gaps}");
}

#[test]
fn a_host_that_works_for_long_is_told_to_work_ahead_of_time() {
    let hint = |step_us: u64| {
        let work: Vec<_> = (0..40).map(|step| ("gemm", step * step_us, 10)).collect();
        let found = found(&kernels(&work, &[]));
        assert_eq!(ids(&found), ["gpu_waits_for_host"]);
        found[0].hint.clone()
    };
    assert!(hint(5000).contains("a data loader with workers"), "{}", hint(5000));
    assert!(hint(100).contains("CUDA graph"), "{}", hint(100));
}

#[test]
fn memory_that_is_allocated_is_start_up_until_it_repeats() {
    let allocated = |steps: u64, allocating: std::ops::Range<u64>| {
        let work: Vec<_> = (0..steps).map(|step| ("gemm", step * 1000, 10)).collect();
        let calls: Vec<_> =
            allocating.map(|step| ("cudaMalloc_v3020", step * 1000 + 100)).collect();
        let mut trace = kernels(&work, &calls);
        let from = trace.calls.len() - calls.len();
        trace.calls[from..].iter_mut().for_each(|call| call.duration_ns = 800_000);
        trace
    };
    // `cudaHostAlloc` and `cudaMalloc` once each in the cuBLAS program, 17 and 7 ms.
    let started = found(&allocated(3, 0..2));
    assert_eq!(ids(&started), [START_UP]);
    assert!(started[0].text.ends_with("(2 gaps; 1.60 ms to allocate memory)"), "{started:?}");
    assert!(started[0].hint.starts_with("allocate memory once"), "{started:?}");
    // The first step of a training allocates before twenty launches of one kernel.
    let training = timeline(&allocated(81, 0..20)).unwrap().devices.remove(0);
    assert_eq!(training.start_up_idle_ns(), 20 * 990_000);
    assert_eq!(training.start_up_allocation_ns, Some(20 * 800_000));
    // In each step.
    let repeated = allocated(81, 0..80);
    assert_eq!(ids(&found(&repeated)), ["gpu_waits_for_host"]);
    assert_eq!(timeline(&repeated).unwrap().devices[0].start_up_allocation_ns, None);
    // A short allocation does not explain a long gap.
    let mut short = allocated(3, 0..2);
    short.calls.iter_mut().for_each(|call| call.duration_ns = 500);
    assert_eq!(ids(&found(&short)), ["gpu_waits_for_host"]);
}

/// Twelve layers run three times before they are captured, and the graph is replayed.
#[test]
fn the_warm_up_of_a_graph_is_start_up() {
    let program = |replays: u64| {
        let mut work: Vec<_> = (0..36).map(|n| ("nvjet", n * 40, 4)).collect();
        work.extend((0..replays).map(|n| ("graph", 2000 + n * 52, 50)));
        let mut trace = kernels(&work, &[]);
        trace.names.push("cuGraphLaunch".to_owned());
        let name = trace.names.len() as u32 - 1;
        trace.calls[36..].iter_mut().for_each(|call| call.name = name);
        trace
    };
    assert_eq!(ids(&found(&program(50))), [START_UP]);
    let time = timeline(&program(50)).unwrap().devices.remove(0);
    assert_eq!(time.start_up_idle_ns(), 1000 * (35 * 36 + 596));
    // Three replays are a trial, or most work is outside of them.
    let found = found(&program(3));
    assert!(ids(&found).contains(&"gpu_waits_for_host"), "{found:?}");
}

#[test]
fn a_wait_for_the_gpu_in_start_up_does_not_repeat() {
    let mut trace = kernels(&[("a", 0, 10), ("b", 1000, 10)], &[("cudaDeviceSynchronize", 5)]);
    let wait = trace.calls.last_mut().unwrap();
    (wait.duration_ns, wait.waits) = (400_000, true);
    let time = timeline(&trace).unwrap();
    assert!(waiting(&time.devices[0].waiting, "synchronisation") > 300_000);
    assert_eq!(time.devices[0].start_up_ns(), 990_000);
    assert_eq!(ids(&found(&trace)), [START_UP]);
}

#[test]
fn the_steady_state_is_judged_without_start_up() {
    // 10 ms before the first launch of b, then 30 µs before each of ten launches and 20 µs in them.
    let mut work = vec![("a", 0, 20), ("b", 10_020, 20)];
    work.extend((0..10).map(|n| ("a", 10_070 + n * 50, 20)));
    let found = found(&kernels(&work, &[]));
    assert_eq!(ids(&found), [START_UP, "gpu_waits_for_host"]);
    assert_eq!(
        found[1].text,
        "apart from start-up (10.00 ms), for 54 % of the other 0.54 ms the GPU runs no kernel \
         because the host had not launched the next kernel (10 gaps)"
    );
    let stakes = found.iter().map(|f| f.stake.as_ref().unwrap());
    let stakes: Vec<_> = stakes.map(|stake| (stake.ns, stake.share > 0.1)).collect();
    assert_eq!(stakes, [(10_000_000, true), (290_000, false)]);
}

#[test]
fn few_gaps_are_compared_with_the_whole_span() {
    let mut work = vec![("a", 0, 20), ("b", 10_020, 20)];
    work.extend((0..9).map(|n| ("a", 10_070 + n * 50, 20)));
    assert_eq!(ids(&found(&kernels(&work, &[]))), [START_UP], "nine gaps do not show a repetition");
}

/// torch's fill of integers.
const FILL: &str = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<int>, std::array<char *, (unsigned long)1>>(int, T2, T3)";

#[test]
fn bursts_of_a_benchmark_are_no_steps_of_the_program() {
    let mut work: Vec<(&str, u64, u64)> = Vec::new();
    let mut at = 0;
    let mut push = |kernel: &'static str, gap: u64, us: u64| {
        work.push((kernel, at + gap, us));
        at += gap + us;
    };
    // `triton.testing.do_bench`: once, five times after fills, as a warm-up, and timed.
    for candidate in ["triton_mm_0", "triton_mm_1"] {
        push(candidate, 40, 10);
        for timed in [5, 95] {
            for _ in 0..timed {
                push(FILL, 40, 14);
                push(candidate, 40, 10);
            }
            (0..if timed == 5 { 30 } else { 0 }).for_each(|_| push(candidate, 40, 10));
        }
    }
    for _ in 0..100 {
        ["a", "b", "c", "triton_mm_1"].into_iter().for_each(|kernel| push(kernel, 1, 20));
    }
    let trace = kernels(&work, &[]);
    assert_eq!(ids(&found(&trace)), [START_UP]);
    let device = timeline(&trace).unwrap().devices.remove(0);
    // All but the first launch, which no fill precedes.
    assert_eq!(device.tuning_ns, 1000 * (2 * (100 * 14 + 130 * 10) + 10));
    // Without the gaps before the first launches of `a`, `b` and `c`, with that of the benchmark.
    assert_eq!(device.span_ns - device.start_up_ns(), 400 * 21_000 - 3000 + 10_000);
}

#[test]
fn gaps_around_fills_of_tritons_benchmarks_are_start_up() {
    let benchmarks = |fill_us: u64| -> Vec<(&str, u64, u64)> {
        let pair =
            |n: u64| [(FILL, n * 200, fill_us), ("triton_poi_fused_gelu_0", n * 200 + 100, 10)];
        (0..120).flat_map(pair).collect()
    };
    assert_eq!(ids(&found(&kernels(&benchmarks(14), &[]))), [START_UP]);
    assert_eq!(ids(&found(&kernels(&benchmarks(1), &[]))), ["gpu_waits_for_host"], "a small fill");
}

#[test]
fn a_program_that_replays_graphs_is_not_told_to_use_one() {
    let work: Vec<_> = (0..12).map(|n| ("a", n * 100, 10)).collect();
    let mut trace = kernels(&work, &[]);
    let own = Thresholds::default();
    let hint = |trace: &Trace| {
        let graphs = Graphs::new(&Profile::default(), Some(trace));
        let mut profile = Profile::default();
        analyze(&mut profile, trace, &graphs, &Limits::new(&own, None)).remove(0).hint
    };
    assert!(hint(&trace).contains("capture a step that repeats in a CUDA graph"));
    let beside = work.iter().map(|(_, at, length)| ("b", at + 1200, *length));
    let mut more = kernels(&work.iter().copied().chain(beside).collect::<Vec<_>>(), &[]);
    for trace in [&mut trace, &mut more] {
        trace.names.push("cudaGraphLaunch".to_owned());
        trace.calls[3].name = trace.names.len() as u32 - 1;
    }
    assert!(hint(&trace).starts_with("the program replays CUDA graphs of these kernels already"));
    // Half of the time is before `b`, which is in no graph.
    assert!(hint(&more).starts_with("the program replays CUDA graphs already: capture what"));
}

#[test]
fn nccl_is_known_by_its_kernels_names() {
    let trace =
        two(Vec::new(), [vec![], vec![]], ["gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"]);
    let time = timeline(&trace).unwrap();
    let device = &time.devices[0];
    assert_eq!((device.nccl_launches, device.nccl_ns, device.nccl_alone_ns), (1, 100, 100));
    let own = Thresholds::default();
    let found = findings(&time, None, &Graphs::default(), &Limits::new(&own, None));
    assert!(found.iter().any(|f| f.id == "nccl_not_hidden"));
}

#[test]
fn a_trace_without_kernels_has_no_timeline() {
    assert_eq!(timeline(&Trace::default()), None);
}
