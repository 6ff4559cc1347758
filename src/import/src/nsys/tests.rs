use super::*;
use crate::ReadProgress;
use rgpu_model::timeline::WHOLE_GRAPHS;
use rgpu_model::trace::TraceWorkKind;
use std::path::PathBuf;

const FIXTURES: &str = "tests/fixtures/nsys/2025.3.1";

fn fixture(file: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(FIXTURES).join(file)
}

/// Rows of an `nsys stats` table without its preamble: cells by column name.
fn stats(file: &str) -> Vec<std::collections::HashMap<String, String>> {
    let text = std::fs::read_to_string(fixture(file)).unwrap();
    let mut lines = text.lines().filter(|l| l.contains(',') && !l.starts_with("Processing"));
    let head: Vec<String> = lines.next().unwrap().split(',').map(str::to_owned).collect();
    lines
        .map(|line| head.iter().cloned().zip(line.split(',').map(str::to_owned)).collect())
        .collect()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

#[test]
fn kernels_and_copies_sum_to_what_nsys_stats_prints() {
    let imported = import_sqlite(&fixture("regions/report.sqlite"), "raw/report.sqlite").unwrap();
    let rows = stats("regions/cuda_gpu_kern_sum.csv");
    assert_eq!(imported.kernels.len(), rows.len());
    for (sum, row) in imported.kernels.iter().zip(&rows) {
        assert_eq!(sum.kernel, row["Name"]);
        assert_eq!(sum.total_ns, number(&row["Total Time (ns)"]));
        assert_eq!(sum.launches, number(&row["Instances"]));
        let extremes = (number(&row["Min (ns)"]), number(&row["Max (ns)"]));
        assert_eq!((sum.min_ns, sum.max_ns), extremes);
    }
    let copy = &imported.copies[0];
    let row = &stats("regions/cuda_gpu_mem_time_sum.csv")[0];
    assert_eq!((copy.kind.as_str(), imported.copies.len()), ("HtoD", 1));
    assert_eq!(copy.total_ns, number(&row["Total Time (ns)"]));
    assert_eq!((copy.count, copy.bytes), (3, 3 * 16_777_216));
    assert_eq!(imported.device.as_deref(), Some("NVIDIA H200"));
    assert!(imported.gaps.is_empty(), "{:?}", imported.gaps);
    assert!(imported.refusals.is_empty());
}

#[test]
fn regions_hold_the_host_time_and_the_kernels_that_nsys_stats_prints() {
    let imported = import_sqlite(&fixture("regions/report.sqlite"), "raw/report.sqlite").unwrap();
    let paths: Vec<String> = imported.regions.iter().map(|region| region.display()).collect();
    assert_eq!(paths, ["A", "A::A1", "B", "rgpu@whole"]);
    let by_name = |name: &str| {
        let name = match name.split_once(':') {
            Some(("", name)) => name.to_owned(),
            Some((domain, name)) => format!("{domain}@{name}"),
            None => name.to_owned(),
        };
        imported.regions.iter().find(|region| region.path.last() == Some(&name)).unwrap()
    };
    let rows = stats("regions/nvtx_sum.csv");
    assert_eq!(rows.len(), imported.regions.len());
    for row in &rows {
        let region = by_name(&row["Range"]);
        assert_eq!(
            region.host_ns.unwrap(),
            number(&row["Total Time (ns)"]),
            "{}",
            region.display()
        );
        assert_eq!(region.instances.unwrap(), number(&row["Instances"]));
        assert_eq!(region.kind.replace('_', ""), row["Style"].to_lowercase());
    }
    let mut in_rows = 0;
    for row in stats("regions/nvtx_kern_sum.csv") {
        let region = by_name(&row["NVTX Range"]);
        let kernel = region.kernels.iter().find(|k| k.kernel == row["Kernel Name"]).unwrap();
        assert_eq!(kernel.total_ns, number(&row["Total Time (ns)"]), "{}", region.display());
        assert_eq!(kernel.launches, number(&row["Kern Inst"]));
        in_rows += 1;
    }
    assert_eq!(in_rows, imported.regions.iter().map(|region| region.kernels.len()).sum::<usize>());
    for region in &imported.regions {
        let sum: u64 = region.kernels.iter().map(|kernel| kernel.total_ns).sum();
        assert_eq!(region.gpu_ns, Some(sum), "only kernels were launched inside the ranges");
    }
}

#[test]
fn regions_have_the_projected_time_that_nsys_stats_prints() {
    let imported = import_sqlite(&fixture("regions/report.sqlite"), "raw/report.sqlite").unwrap();
    let mut compared = 0;
    for row in stats("regions/nvtx_gpu_proj_sum.csv") {
        let name = row["Range"].trim_start_matches(':').to_owned();
        let regions = &imported.regions;
        let of_row = |region: &&rgpu_model::Region| region.path.last() == Some(&name);
        let Some(region) = regions.iter().find(of_row) else { continue };
        let projected = number(&row["Total Proj Time (ns)"]);
        assert_eq!(region.gpu_span_ns, Some(projected), "{}", region.display());
        assert!(region.gpu_ns < region.gpu_span_ns || region.kernels.len() == 1);
        compared += 1;
    }
    assert_eq!(compared, 3, "the push/pop regions");
    assert!(imported.regions.iter().all(|region| region.inferred_gpu_ns.is_none()));
}

#[test]
fn launches_come_in_time_order_with_their_shape_and_region() {
    let imported = import_sqlite(&fixture("regions/report.sqlite"), "raw/report.sqlite").unwrap();
    let rows = stats("regions/cuda_gpu_trace.csv");
    let rows: Vec<_> = rows.iter().filter(|row| !row["GrdX"].is_empty()).collect();
    assert_eq!(imported.launches.len(), rows.len());
    for (launch, row) in imported.launches.iter().zip(&rows) {
        assert_eq!(launch.kernel, row["Name"]);
        assert_eq!(launch.duration_ns, Some(number(&row["Duration (ns)"]) as f64));
        let of = |keys: [&str; 3]| keys.map(|key| number(&row[key]) as u32);
        assert_eq!(launch.grid, of(["GrdX", "GrdY", "GrdZ"]));
        assert_eq!(launch.block, of(["BlkX", "BlkY", "BlkZ"]));
        assert_eq!(launch.registers, Some(number(&row["Reg/Trd"]) as u32));
        assert_eq!(launch.stream, Some(number(&row["Strm"])));
    }
    let regions: Vec<String> = imported.launches.iter().map(|l| l.region.join("::")).collect();
    assert_eq!(regions, ["A", "A::A1", "B", "B", "B", "B", "B"]);
    let starts: Vec<u64> = imported.launches.iter().map(|l| l.start_ns.unwrap()).collect();
    assert!(starts.is_sorted() && starts[0] > 0);
}

#[test]
fn a_trace_without_gpu_rows_is_refused_and_keeps_its_host_times() {
    let path = fixture("regions-nvtx-only/report.sqlite");
    let imported = import_sqlite(&path, "raw/report.sqlite").unwrap();
    assert_eq!(imported.refusals[0].code, "no_gpu_rows");
    assert!(imported.launches.is_empty() && imported.kernels.is_empty());
    for row in stats("regions-nvtx-only/nvtx_sum.csv") {
        let total = number(&row["Total Time (ns)"]);
        assert!(imported.regions.iter().any(|region| region.host_ns == Some(total)));
    }
    assert!(imported.regions.iter().all(|region| region.gpu_ns.is_none()));
}

#[test]
fn the_report_itself_imports_to_the_same_as_its_export() {
    for case in ["regions", "regions-nvtx-only", "timeline-graph", "timeline-node"] {
        let bytes = std::fs::read(fixture(&format!("{case}/report.nsys-rep"))).unwrap();
        let native = import_report(&bytes, "raw/report").unwrap();
        let export =
            import_sqlite(&fixture(&format!("{case}/report.sqlite")), "raw/report").unwrap();
        assert_eq!(native.launches, export.launches, "{case}");
        assert_eq!(native.kernels, export.kernels);
        assert_eq!(native.copies, export.copies);
        assert_eq!(native.regions, export.regions);
        assert_eq!(native.sidecars, export.sidecars);
        assert_eq!((native.gaps, native.refusals), (export.gaps, export.refusals));
        assert_eq!(native.device, export.device);
    }
}

#[test]
fn graphs_traced_as_a_whole_are_a_row_of_the_kernels() {
    let path = fixture("timeline-graph/report.sqlite");
    let imported = import_sqlite(&path, "raw/report.sqlite").unwrap();
    let graphs = imported.kernels.iter().find(|sum| sum.kernel == WHOLE_GRAPHS).unwrap();
    assert_eq!(graphs.launches, 3);
    let work = imported.sidecars.trace.unwrap().work;
    let computes =
        work.iter().filter(|w| matches!(w.kind, TraceWorkKind::Kernel | TraceWorkKind::Graph));
    let ns: u64 = computes.map(|work| work.duration_ns).sum();
    assert_eq!(imported.kernels.iter().map(|sum| sum.total_ns).sum::<u64>(), ns);
}

#[test]
fn the_trace_lists_every_event_with_its_call_and_regions() {
    let imported = import_sqlite(&fixture("regions/report.sqlite"), "raw/report.sqlite").unwrap();
    let trace = imported.sidecars.trace.unwrap();
    let rows = stats("regions/cuda_gpu_trace.csv");
    assert_eq!(trace.work.len(), rows.len());
    // `nsys stats` counts from the start of the capture, the trace from its first event.
    let offset = number(&rows[0]["Start (ns)"]) - trace.work[0].start_ns;
    assert_eq!(offset, 286_018_598, "the first API call");
    let text = |index: u32| trace.names[index as usize].as_str();
    for (work, row) in trace.work.iter().zip(&rows) {
        assert_eq!(work.start_ns + offset, number(&row["Start (ns)"]));
        assert_eq!(work.duration_ns, number(&row["Duration (ns)"]));
        assert_eq!((u64::from(work.device), work.stream), (0, number(&row["Strm"])));
        let call = &trace.calls[work.call.unwrap() as usize];
        let copy = work.launch.is_none();
        let (name, waits) = if copy { ("cudaMemcpy", true) } else { ("cudaLaunchKernel", false) };
        assert_eq!((text(call.name), call.waits), (name, waits));
        assert!(call.start_ns < work.start_ns);
    }
    assert_eq!(trace.calls.len(), 28);
    assert_eq!(trace.calls.iter().filter(|call| call.waits).count(), 5);
    let paths: Vec<Vec<String>> = trace.work[3..]
        .iter()
        .map(|work| {
            work.regions.iter().map(|r| trace.regions[*r as usize].path.join("/")).collect()
        })
        .collect();
    assert_eq!(paths[0], ["A", "rgpu@whole"]);
    assert_eq!(paths[1], ["A/A1", "rgpu@whole"]);
    assert!(paths[2..].iter().all(|path| *path == ["B", "rgpu@whole"]));
    let ranges: Vec<_> =
        trace.ranges.iter().map(|r| (text(r.name), r.depth, r.start_end, r.duration_ns)).collect();
    let expected = [
        ("rgpu@whole", 0, true, Some(451_513_034 - 451_175_604)),
        ("A", 0, false, Some(451_384_146 - 451_181_897)),
        ("A1", 1, false, Some(451_383_674 - 451_320_915)),
        ("B", 0, false, Some(451_407_317 - 451_384_720)),
    ];
    assert_eq!(ranges, expected);
    assert_eq!(trace.span_ns, 451_513_034 - 286_018_598);
    assert_eq!((trace.cut.work, trace.cut.ranges, trace.cut.calls), (0, 0, 0));
}

#[test]
fn a_range_that_nsys_closed_itself_when_it_stopped_was_never_closed() {
    let path = fixture("timeline-node/report.sqlite");
    let imported = import_sqlite(&path, "raw/report.sqlite").unwrap();
    let trace = imported.sidecars.trace.unwrap();
    let open: Vec<_> = trace.ranges.iter().filter(|range| range.duration_ns.is_none()).collect();
    let names: Vec<_> = open.iter().map(|range| &trace.names[range.name as usize]).collect();
    assert_eq!(names, ["never_closed"]);
    let region = imported.regions.iter().find(|r| r.path == ["never_closed"]).unwrap();
    assert!(region.host_ns.unwrap() < 100_000, "not until the end of the capture");
    assert!(imported.gaps.iter().any(|gap| gap.code == "open_ranges"));
}

#[test]
fn a_capture_range_and_a_program_without_cuda_are_read_from_their_reports() {
    let report = |case: &str| {
        let bytes = std::fs::read(fixture(&format!("{case}/report.nsys-rep"))).unwrap();
        import_report(&bytes, "raw/report.nsys-rep").unwrap()
    };
    let range = report("capture-range");
    assert_eq!(range.launches.len(), 2);
    assert!(range.refusals.is_empty());
    assert_eq!(report("no-cuda").refusals[0].code, "no_gpu_rows");
}

#[test]
fn the_export_beside_a_report_counts_where_the_report_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.nsys-rep");
    std::fs::copy(fixture("regions/report.sqlite"), report.with_extension("sqlite")).unwrap();
    std::fs::write(&report, "NVIDIA Tegra Profiler Report 2030@1.\nof another form").unwrap();
    let imported = (REPORT_IMPORTER.import)(&Source::new(&report, "raw/report")).unwrap();
    assert_eq!(imported.launches.len(), 7);
    std::fs::copy(fixture("regions/report.nsys-rep"), &report).unwrap();
    let both = (REPORT_IMPORTER.import)(&Source::new(&report, "raw/report")).unwrap();
    assert_eq!(both.launches, imported.launches);
    assert!(both.gaps.is_empty(), "{:?}", both.gaps);
    let export = report.with_extension("sqlite");
    let second = (SQLITE_IMPORTER.import)(&Source::new(&export, "raw/export")).unwrap();
    assert!(second.launches.is_empty() && second.refusals.is_empty());
    std::fs::copy(fixture("regions-nvtx-only/report.sqlite"), &export).unwrap();
    let differs = (REPORT_IMPORTER.import)(&Source::new(&report, "raw/report")).unwrap();
    assert_eq!(differs.gaps[0].code, "native_reading_differs");
}

#[test]
fn a_trace_of_ranges_alone_is_not_refused_for_its_missing_gpu_rows() {
    let report = fixture("regions-nvtx-only/report.nsys-rep");
    let mut source = Source::new(&report, "raw/report.nsys-rep");
    assert_eq!((REPORT_IMPORTER.import)(&source).unwrap().refusals[0].code, NO_GPU_ROWS);
    source.traced = TracedActivity::HostOnly;
    let imported = (REPORT_IMPORTER.import)(&source).unwrap();
    assert!(imported.refusals.is_empty());
    assert_eq!(imported.regions.len(), 4);
}

#[test]
fn a_capture_that_was_never_imported_is_named_with_what_would_help() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("report.qdstrm");
    std::fs::write(&capture, "anything").unwrap();
    let alone = (CAPTURE_IMPORTER.import)(&Source::new(&capture, "raw/report.qdstrm")).unwrap();
    assert_eq!(alone.gaps[0].code, "capture_not_imported");
    std::fs::write(capture.with_extension("nsys-rep"), "").unwrap();
    let sidecars = (CAPTURE_IMPORTER.import)(&Source::new(&capture, "raw/report.qdstrm")).unwrap();
    assert!(sidecars.gaps.is_empty());
}

#[test]
fn a_cut_report_is_imported_as_far_as_it_goes_and_says_where_it_ends() {
    let bytes = std::fs::read(fixture("regions/report.nsys-rep")).unwrap();
    let imported = super::import_report(&bytes[..bytes.len() - 9], "r.nsys-rep").unwrap();
    assert!(!imported.launches.is_empty());
    let gap = imported.gaps.iter().find(|gap| gap.code == "damaged_report").unwrap();
    assert!(gap.text.contains("end marker is missing at offset"), "{}", gap.text);
}

#[test]
fn a_rank_has_all_work_of_its_report_in_order_with_its_calls() {
    let path = fixture("regions/report.sqlite");
    let source = Source { is_rank: true, ..Source::new(&path, "rank0.sqlite").alone() };
    let imported = (SQLITE_IMPORTER.import)(&source).unwrap();
    let trace = imported.sidecars.trace.unwrap();
    let listed = trace.work.iter().map(|work| {
        let region = work.regions.first().map(|at| &trace.regions[*at as usize].path);
        (work.start_ns, work.duration_ns, trace.names[work.name as usize].as_str(), region)
    });
    let ranks = imported.sidecars.ranks.unwrap().ranks;
    assert_eq!(ranks.len(), 1);
    let rank = &ranks[0];
    let pieces = rank.gpu_work.iter().map(|piece| {
        let region = piece.region.map(|at| &rank.regions[at as usize]);
        let start_ns = piece.start_ns.abs_diff(rank.first_ns);
        (start_ns, piece.end_ns.abs_diff(piece.start_ns), rank.name(piece.name), region)
    });
    let listed: Vec<_> = listed.collect();
    assert!(listed.len() > 7, "kernels and copies");
    assert_eq!(pieces.collect::<Vec<_>>(), listed);
    assert!(rank.gpu_work.iter().all(|piece| piece.called_ns.is_some()));
    assert_eq!(rank.location.gpu, Some(0));
}

/// Records the progress reports.
#[derive(Debug, Default)]
struct SeenProgress(std::cell::RefCell<Vec<(u64, u64)>>);

impl ReadProgress for SeenProgress {
    fn read(&self, done: u64, all: u64) {
        self.0.borrow_mut().push((done, all));
    }
}

#[test]
fn whoever_watches_is_told_how_far_a_large_export_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let export = folder.path().join("synthetic-large.sqlite");
    std::fs::copy(fixture("regions/report.sqlite"), &export).unwrap();
    let sql = "WITH RECURSIVE n(c) AS (SELECT 1 UNION ALL SELECT c + 1 FROM n WHERE c < 40000)
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, nameId, returnValue)
        SELECT c, c + 1, 0, 25, 0 FROM n";
    rusqlite::Connection::open(&export).unwrap().execute_batch(sql).unwrap();
    let seen = SeenProgress::default();
    (SQLITE_IMPORTER.import)(&Source::new(&export, "large").alone().watched(&seen)).unwrap();
    let all = 40_000 + 28 + 3 + 6 + 7;
    assert_eq!(seen.0.into_inner(), [(1 << 14, all), (2 << 14, all)]);
}

#[test]
fn remarks_of_nsys_are_counted_without_what_most_processes_lack() {
    let remark = |severity: i64, text: &str| Diagnostic {
        at_ns: None,
        severity: Some(severity),
        text: text.to_owned(),
    };
    let no_nvtx = "No NVTX events collected. Does the process use NVTX?";
    let no_cuda = "No CUDA events collected. Does the process use CUDA?";
    // As recorded of a JAX program: nsys 2025.3.1, H200.
    let error = "Error when processing events: Source ID=\nType=ErrorInformation (18)\n\
                 std::exception::what: LogicException\n[QuadDCommon::tag_message*] = Cannot find \
                 string for an exterior index\n";
    let all = [
        remark(2, no_nvtx),
        remark(2, no_cuda),
        remark(1, "Profiling has started."),
        remark(2, no_nvtx),
        remark(2, no_cuda),
        remark(3, error),
    ];
    let texts = |imported: &ImportedArtifact| -> Vec<String> {
        remarks(&all, imported).into_iter().map(|gap| gap.text).collect()
    };
    let empty = ImportedArtifact {
        refusals: vec![RejectedReport { code: NO_GPU_ROWS, ..RejectedReport::default() }],
        ..ImportedArtifact::default()
    };
    let error = "nsys could not process some events: Cannot find string for an exterior index";
    assert_eq!(texts(&empty), [&format!("{no_cuda} (2 times)"), error]);
    assert_eq!(texts(&ImportedArtifact::default()), [error]);
}
