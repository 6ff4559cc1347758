//! Output of `nsys stats --format csv` to sums, launches and regions, for hosts that provide no
//! report.
//!
//! This output has less than a report: sums by name, and ranges without nesting. If it contains the
//! GPU trace, launches come from there and the sums are computed from them.

use std::collections::BTreeMap;

use rgpu_format::csv::number;
use rgpu_format::nsys_stats::{NsysStats, Report, Table};

use super::region_tree::part;
use super::sound_times::{LeftOut, RowKind, TimeRule, TimeSample, check_launches};
use super::{ImportedArtifact, Importer};
use rgpu_model::number_form::by_number;
use rgpu_model::profile::ArtifactKind;
use rgpu_model::profile::Gap;
use rgpu_model::timeline::RegionKind;
use rgpu_model::timeline::{CopySum, KernelSum};
use rgpu_model::{Launch, Region};

/// `nsys_stats_csv`: what `nsys stats --format csv` prints or writes.
pub(super) const IMPORTER: Importer = Importer {
    kind: ArtifactKind::NsysStatsCsv,
    recognises: |_, head| NsysStats::is_print(head),
    import: |source| {
        let stats = NsysStats::read(&source.bytes()?).map_err(|cause| source.broken(cause))?;
        Ok(import(&stats, source.from))
    },
};

/// Most launches listed one by one, since a profile is one JSON document. Later ones are only
/// summed.
const MAX_LAUNCHES: usize = 10_000;

/// Imports the output; `from` is its path in the run folder.
pub fn import(stats: &NsysStats, from: &str) -> ImportedArtifact {
    let mut imported = ImportedArtifact::default();
    let mut copies: BTreeMap<String, CopySum> = BTreeMap::new();
    let mut ragged = 0;
    for table in &stats.tables {
        ragged += table.ragged;
        match &table.report {
            Report::Kernels => imported.kernels = kernels(table),
            Report::GpuTrace => trace(table, from, &mut imported),
            Report::CopyTimes => add_copies(table, &mut copies),
            Report::CopySizes => add_copies(table, &mut copies),
            Report::Ranges => imported.regions.extend(regions(table, from)),
            Report::RangeKernels | Report::Calls | Report::Other(_) => {}
        }
    }
    for table in stats.tables.iter().filter(|table| table.report == Report::RangeKernels) {
        add_range_kernels(table, from, &mut imported.regions);
    }
    imported.copies = copies.into_values().collect();
    let gap = |code: &str, text: String| Gap { code: code.to_owned(), text };
    imported
        .gaps
        .extend(stats.skipped.iter().map(|words| gap("nsys_skipped", format!("{from}: {words}"))));
    if let Some(cause) = &stats.broken {
        let text = format!("{from}: {cause}; the rows before are kept");
        imported.gaps.push(gap("damaged_report", text));
    }
    if ragged > 0 {
        let have = by_number(ragged, "row has", "rows have");
        let text = format!("{from}: {ragged} {have} a different number of fields than the header");
        imported.gaps.push(gap("damaged_report", text));
    }
    if !imported.regions.is_empty() {
        let text = format!(
            "{from}: the output of `nsys stats` has no nesting of ranges; import the report for it"
        );
        imported.gaps.push(gap("flat_regions", text));
    }
    imported
}

fn whole(value: Option<f64>) -> u64 {
    value.filter(|value| *value > 0.0).map_or(0, |value| value.round() as u64)
}

const COUNT: &[&str] = &["Instances", "Num Calls", "Count", "Operations", "Kern Inst"];
const TOTAL: &[&str] = &["Total Time", "Total"];
const LEAST: &[&str] = &["Min", "Minimum"];
const MOST: &[&str] = &["Max", "Maximum"];

fn kernel_sum(table: &Table, row: &[String], name: &[&str]) -> KernelSum {
    KernelSum {
        kernel: table.cell(row, table.column(name)).to_owned(),
        launches: whole(number(table.cell(row, table.column(COUNT)))),
        total_ns: whole(table.ns(row, table.column(TOTAL))),
        set_up_ns: None,
        min_ns: whole(table.ns(row, table.column(LEAST))),
        max_ns: whole(table.ns(row, table.column(MOST))),
    }
}

fn kernels(table: &Table) -> Vec<KernelSum> {
    let mut sums: Vec<_> = table.rows.iter().map(|row| kernel_sum(table, row, &["Name"])).collect();
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.total_ns));
    sums
}

/// The kind of copy, from `[CUDA memcpy Host-to-Device]` or, before 2023, `[CUDA memcpy HtoD]`.
fn copy_kind(operation: &str) -> String {
    let inner = operation.trim().trim_start_matches('[').trim_end_matches(']');
    let inner = inner.strip_prefix("CUDA ").unwrap_or(inner);
    let direction = inner.strip_prefix("memcpy ").unwrap_or(inner);
    match direction {
        "Host-to-Device" => "HtoD",
        "Device-to-Host" => "DtoH",
        "Device-to-Device" => "DtoD",
        "Host-to-Host" => "HtoH",
        "Peer-to-Peer" => "PtoP",
        other => other,
    }
    .to_owned()
}

/// Adds one of the two tables of copies: one has the times, the other the sizes.
fn add_copies(table: &Table, copies: &mut BTreeMap<String, CopySum>) {
    for row in &table.rows {
        let kind = copy_kind(table.cell(row, table.column(&["Operation"])));
        let sum =
            copies.entry(kind.clone()).or_insert_with(|| CopySum { kind, ..CopySum::default() });
        sum.count = whole(number(table.cell(row, table.column(COUNT)))).max(sum.count);
        match table.report {
            Report::CopySizes => sum.bytes = whole(table.bytes(row, table.column(&["Total"]))),
            _ => sum.total_ns = whole(table.ns(row, table.column(TOTAL))),
        }
    }
}

fn trace(table: &Table, from: &str, imported: &mut ImportedArtifact) {
    let column = |names: &[&str]| table.column(names);
    let (start, duration, name) = (column(&["Start"]), column(&["Duration"]), column(&["Name"]));
    let is_kernel = |row: &&Vec<String>| !table.cell(row, column(&["GrdX"])).trim().is_empty();
    // Microseconds and milliseconds have been converted; a time that is no number has none.
    let span = |row: &[String]| {
        let start_ns = table.ns(row, start).filter(|ns| ns.is_finite()).map(|ns| ns as i64)?;
        let ns = table.ns(row, duration).unwrap_or(0.0) as i64;
        Some((start_ns, start_ns.saturating_add(ns)))
    };
    let mut sample = TimeSample::default();
    for (start_ns, end_ns) in table.rows.iter().filter_map(|row| span(row)) {
        if TimeRule::default().allows(RowKind::Kernel, start_ns, Some(end_ns)) {
            sample.see(RowKind::Kernel, start_ns, Some(end_ns));
        }
    }
    let rule = sample.window().map_or_else(TimeRule::default, |window| TimeRule::within(&window));
    let mut left_out = LeftOut::default();
    let is_sound = |row: &[String]| {
        let allows = |(start, end)| rule.allows(RowKind::Kernel, start, Some(end));
        // A print without starts keeps its rows.
        table.cell(row, start).trim().is_empty() || span(row).is_some_and(allows)
    };
    let starts = table.rows.iter().filter(|row| is_sound(row));
    let first = starts.filter_map(|row| table.ns(row, start)).fold(f64::INFINITY, f64::min);
    let small = |row: &[String], names: &[&str]| {
        number(table.cell(row, table.column(names)))
            .map(|n| n.clamp(0.0, f64::from(u32::MAX)) as u32)
    };
    let mut kernels = 0_usize;
    let mut launches = Vec::new();
    for row in &table.rows {
        if !is_sound(row) {
            left_out.add(if is_kernel(&row) { RowKind::Kernel } else { RowKind::Copy });
            continue;
        }
        // Copies and fills have no grid.
        let triple = |prefix: &str| {
            let axis = |axis: &str| small(row, &[&format!("{prefix}{axis}")]);
            Some([axis("X")?, axis("Y")?, axis("Z")?])
        };
        let Some(grid) = triple("Grd") else { continue };
        kernels += 1;
        let shared = |name| table.bytes(row, table.column(&[name]));
        launches.push(Launch {
            kernel: table.cell(row, name).to_owned(),
            grid,
            block: triple("Blk").unwrap_or_default(),
            duration_ns: table.ns(row, duration),
            start_ns: table.ns(row, start).map(|start| (start - first).max(0.0) as u64),
            stream: small(row, &["Strm"]).map(u64::from),
            registers: small(row, &["Reg/Trd"]),
            shared_bytes: shared("StcSMem").zip(shared("DymSMem")).map(|(a, b)| (a + b) as u64),
            ..Launch::default()
        });
    }
    imported.gaps.extend(left_out.gaps(from));
    imported.gaps.extend(check_launches(&mut launches, from));
    if imported.kernels.is_empty() {
        imported.kernels = super::imported::kernel_sums(&launches);
    }
    launches.truncate(MAX_LAUNCHES);
    launches.iter_mut().zip(0..).for_each(|(launch, id)| launch.id = id);
    if kernels > launches.len() {
        imported.gaps.push(Gap {
            code: "launches_capped".to_owned(),
            text: format!(
                "{from}: {kernels} kernels were traced; the first {MAX_LAUNCHES} are listed one \
                 by one; the sums include all"
            ),
        });
    }
    imported.launches = launches;
    let device = table.rows.iter().map(|row| table.cell(row, table.column(&["Device"])));
    // Printed as `NVIDIA H200 (0)`.
    let name = |device: &str| Some(device.rsplit_once(" (")?.0.to_owned());
    imported.device = device.filter_map(name).next();
}

/// The range's path, from `domain:name`. The default domain is empty.
fn range(text: &str) -> Vec<String> {
    let (domain, name) = text.split_once(':').unwrap_or(("", text));
    vec![part(Some(domain), Some(name))]
}

fn kind(style: &str) -> RegionKind {
    match style {
        "StartEnd" => RegionKind::StartEnd,
        _ => RegionKind::PushPop,
    }
}

fn regions(table: &Table, from: &str) -> Vec<Region> {
    let column = |names: &[&str]| table.column(names);
    let rows = table.rows.iter().map(|row| Region {
        path: range(table.cell(row, column(&["Range"]))),
        kind: kind(table.cell(row, column(&["Style"]))),
        instances: Some(whole(number(table.cell(row, column(COUNT))))),
        host_ns: Some(whole(table.ns(row, column(TOTAL)))),
        from: from.to_owned(),
        ..Region::default()
    });
    rows.collect()
}

/// Adds the kernels of each range, with their GPU time.
fn add_range_kernels(table: &Table, from: &str, regions: &mut Vec<Region>) {
    let column = |names: &[&str]| table.column(names);
    for row in &table.rows {
        let path = range(table.cell(row, column(&["NVTX Range"])));
        let index = regions.iter().position(|region| region.path == path);
        let index = index.unwrap_or_else(|| {
            let kind = kind(table.cell(row, column(&["Style"])));
            let instances = Some(whole(number(table.cell(row, column(&["NVTX Inst"])))));
            regions.push(Region {
                path,
                kind,
                instances,
                from: from.to_owned(),
                ..Region::default()
            });
            regions.len() - 1
        });
        let region = &mut regions[index];
        let sum = kernel_sum(table, row, &["Kernel Name"]);
        region.gpu_ns = Some(region.gpu_ns.unwrap_or(0).saturating_add(sum.total_ns));
        region.kernels.push(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nsys;
    use std::path::{Path, PathBuf};

    fn folder() -> PathBuf {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .join("tests/fixtures/nsys/2025.3.1/regions")
    }

    fn print(files: &[&str]) -> ImportedArtifact {
        let text: Vec<u8> =
            files.iter().flat_map(|file| std::fs::read(folder().join(file)).unwrap()).collect();
        import(&NsysStats::read(&text).unwrap(), "stats.csv")
    }

    #[test]
    fn prints_agree_with_the_report_they_were_made_of() {
        let report = std::fs::read(folder().join("report.nsys-rep")).unwrap();
        let report = nsys::import_report(&report, "report.nsys-rep").unwrap();
        let stats = print(&[
            "cuda_gpu_kern_sum.csv",
            "cuda_gpu_mem_time_sum.csv",
            "cuda_gpu_mem_size_sum.csv",
            "nvtx_sum.csv",
            "nvtx_kern_sum.csv",
        ]);
        assert_eq!(stats.kernels, report.kernels);
        assert_eq!(stats.copies.len(), report.copies.len());
        for (printed, exact) in stats.copies.iter().zip(&report.copies) {
            assert_eq!((&printed.kind, printed.count), (&exact.kind, exact.count));
            assert_eq!(printed.total_ns, exact.total_ns);
            // The size is printed in MB with three decimals.
            assert!(printed.bytes.abs_diff(exact.bytes) <= 500, "{printed:?}");
        }
        assert_eq!(stats.regions.len(), report.regions.len());
        for region in &report.regions {
            let last = region.path.last().unwrap();
            let printed = stats.regions.iter().find(|r| r.path[0] == *last).unwrap();
            assert_eq!((printed.instances, printed.host_ns), (region.instances, region.host_ns));
            assert_eq!(printed.kind, region.kind);
            assert_eq!(printed.gpu_ns, region.gpu_ns, "{last}");
        }
    }

    #[test]
    fn the_gpu_trace_gives_launches_and_their_sums() {
        let report = std::fs::read(folder().join("report.nsys-rep")).unwrap();
        let report = nsys::import_report(&report, "report.nsys-rep").unwrap();
        let stats = print(&["cuda_gpu_trace.csv"]);
        assert_eq!(stats.device.as_deref(), Some("NVIDIA H200"));
        assert_eq!(stats.kernels, report.kernels);
        let facts = |launch: &Launch| {
            (launch.kernel.clone(), launch.grid, launch.block, launch.duration_ns, launch.registers)
        };
        let all = |launches: &[Launch]| launches.iter().map(facts).collect::<Vec<_>>();
        assert_eq!(all(&stats.launches), all(&report.launches));
    }

    #[test]
    fn rows_of_the_gpu_trace_with_times_that_cannot_be_are_left_out() {
        let text = std::fs::read_to_string(folder().join("cuda_gpu_trace.csv")).unwrap();
        let good = import(&NsysStats::read(text.as_bytes()).unwrap(), "stats.csv");
        let row = |times: &str| {
            format!("{times},9,16,1,1,256,1,1,16,0.0,0.0,,,,,NVIDIA H200 (0),1,,13,lost\n")
        };
        let bad = ["0,0", "451384855,-7", "1700000000000000000,5", "nan,5", "451384855,1e30"];
        let bad: String = bad.map(row).concat();
        // An empty line would end the table.
        let stats = NsysStats::read(format!("{}\n{bad}", text.trim_end()).as_bytes()).unwrap();
        let imported = import(&stats, "stats.csv");
        assert_eq!(imported.kernels, good.kernels);
        let told = imported.gaps.iter().find(|gap| gap.code == "impossible_times").unwrap();
        assert!(told.text.contains("5 kernels have times"), "{}", told.text);
    }

    #[test]
    fn a_skipped_report_is_a_gap_in_nsyss_words() {
        let path = folder().with_file_name("no-cuda").join("cuda_gpu_kern_sum.csv");
        let stats = NsysStats::read(&std::fs::read(path).unwrap()).unwrap();
        let imported = import(&stats, "stats.csv");
        assert_eq!(imported.gaps[0].code, "nsys_skipped");
        assert!(imported.gaps[0].text.ends_with("does not contain CUDA kernel data."));
    }
}
