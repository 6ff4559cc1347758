//! Hot spots against ncu's own source page.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_format::ncu_rep::NcuReadLimits;

use crate::ImportedArtifact;
use crate::ncu::{RequestedCounters, import};
use rgpu_model::NamedNumbers;
use rgpu_model::hotspots::{InstructionSpot, LaunchSpots};

fn fixtures() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/ncu/2025.3.1")
}

fn imported(case: &str) -> ImportedArtifact {
    let bytes = std::fs::read(fixtures().join(case).join("report.ncu-repz")).unwrap();
    import(&bytes, "raw/report.ncu-repz", &RequestedCounters::default(), &NcuReadLimits::default())
        .unwrap()
}

fn spots(case: &str) -> LaunchSpots {
    imported(case).sidecars.hotspots.unwrap().launches.remove(0)
}

/// The rows of `--page source --csv`: cells by column name.
fn source_page(case: &str) -> Vec<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(fixtures().join(case).join("source.csv")).unwrap();
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim_start_matches('"').trim_end_matches('"');
        line.split("\",\"").map(str::to_owned).collect()
    };
    let mut lines = text.lines().skip_while(|line| !line.starts_with("\"Address\""));
    let head = cells(lines.next().unwrap());
    lines.map(|line| head.iter().cloned().zip(cells(line)).collect()).collect()
}

/// ncu's column for a stall reason, without `stall_`, and our name.
const REASONS: &[(&str, &str)] = &[
    ("barrier", "barrier"),
    ("branch_resolving", "branch_resolving"),
    ("dispatch", "dispatch_stall"),
    ("drain", "drain"),
    ("imc", "imc_miss"),
    ("lg", "lg_throttle"),
    ("long_sb", "long_scoreboard"),
    ("math", "math_pipe_throttle"),
    ("membar", "membar"),
    ("mio", "mio_throttle"),
    ("misc", "misc"),
    ("no_inst", "no_instruction"),
    ("not_selected", "not_selected"),
    ("selected", "selected"),
    ("short_sb", "short_scoreboard"),
    ("tex", "tex_throttle"),
    ("wait", "wait"),
];

const METRICS: &[(&str, &str)] = &[
    ("Thread Instructions Executed", "thread_inst_executed"),
    ("L1 Tag Requests Global", "memory_l1_tag_requests_global"),
    ("L1 Wavefronts Shared", "memory_l1_wavefronts_shared"),
    ("L1 Wavefronts Shared Ideal", "memory_l1_wavefronts_shared_ideal"),
    ("L1 Wavefronts Shared Excessive", "derived__memory_l1_wavefronts_shared_excessive"),
    ("L2 Theoretical Sectors Global", "memory_l2_theoretical_sectors_global"),
    ("L2 Theoretical Sectors Global Ideal", "memory_l2_theoretical_sectors_global_ideal"),
    (
        "L2 Theoretical Sectors Global Excessive",
        "derived__memory_l2_theoretical_sectors_global_excessive",
    ),
];

/// The differences between a row and the instruction at its address, and the number of compared
/// cells.
fn differences(row: &BTreeMap<String, String>, spot: &InstructionSpot) -> (Vec<String>, usize) {
    let counts = &spot.counts;
    let reason = |map: &NamedNumbers<u64>, name: &str| map.get(name).copied().unwrap_or(0);
    let mut pairs = vec![
        ("# Samples".to_owned(), counts.samples.unwrap_or(0)),
        ("Warp Stall Sampling (All Samples)".to_owned(), counts.samples.unwrap_or(0)),
        (
            "Warp Stall Sampling (Not-issued Samples)".to_owned(),
            counts.samples_not_issued.unwrap_or(0),
        ),
        ("Instructions Executed".to_owned(), counts.executed.unwrap_or(0)),
        (
            "Predicated-On Thread Instructions Executed".to_owned(),
            counts.thread_executed.unwrap_or(0),
        ),
    ];
    for (column, ours) in REASONS {
        pairs.push((format!("stall_{column}"), reason(&counts.stalls, ours)));
        pairs.push((
            format!("stall_{column} (Not Issued)"),
            reason(&counts.stalls_not_issued, ours),
        ));
    }
    for (column, metric) in METRICS {
        let value = counts.metrics.get(metric).copied().unwrap_or(0.0);
        pairs.push(((*column).to_owned(), value as u64));
    }
    let access = spot.access.clone().unwrap_or_default();
    let words = [
        ("Address Space", access.space),
        ("Access Operation", access.operation),
        ("Access Size", if access.bits == 0 { String::new() } else { access.bits.to_string() }),
    ];
    let mut mismatches = Vec::new();
    let mut compared = 0;
    let pairs = pairs.into_iter().map(|(column, ours)| (column, ours.to_string()));
    let words = words.into_iter().map(|(column, ours)| (column.to_owned(), ours));
    for (column, ours) in pairs.chain(words) {
        // The page leaves out columns without values.
        let Some(cell) = row.get(&column) else { continue };
        compared += 1;
        let cell = if cell == "-" { "" } else { cell };
        if !cell.eq_ignore_ascii_case(&ours) {
            mismatches.push(format!("{} {column}: {cell:?} against {ours:?}", row["Address"]));
        }
    }
    (mismatches, compared)
}

#[test]
fn compared_columns_of_every_row_equal_ncus_source_page() {
    let mut compared = 0;
    for case in ["full-vecadd", "full-tiled-matmul"] {
        let spots = spots(case);
        let ours_by_address: BTreeMap<_, _> =
            spots.instructions.iter().map(|spot| (spot.address.unwrap(), spot)).collect();
        let rows = source_page(case);
        assert!(rows.len() >= ours_by_address.len(), "{case}");
        let nothing = InstructionSpot::default();
        for row in &rows {
            let address = u64::from_str_radix(row["Address"].trim_start_matches("0x"), 16).unwrap();
            let (mismatches, cells) =
                differences(row, ours_by_address.get(&address).unwrap_or(&&nothing));
            assert!(mismatches.is_empty(), "{case}: {mismatches:#?}");
            compared += cells;
        }
        let samples: u64 = spots.instructions.iter().filter_map(|s| s.counts.samples).sum();
        assert_eq!(Some(samples), spots.samples, "{case}");
    }
    assert!(compared > 8000, "{compared}");
}

#[test]
fn every_instruction_is_named_as_ncus_source_page_names_it() {
    for case in ["full-vecadd", "full-tiled-matmul"] {
        let spots = spots(case);
        let rows: BTreeMap<String, String> = source_page(case)
            .into_iter()
            .map(|row| (row["Address"].clone(), row["Source"].trim().to_owned()))
            .collect();
        for spot in &spots.instructions {
            let row = &rows[&format!("{:#x}", spot.address.unwrap())];
            // The guard and the opcode. Modifiers and operands would need nvdisasm.
            let words = if row.starts_with('@') { 2 } else { 1 };
            let ncus_name: Vec<&str> = row.split_whitespace().take(words).collect();
            let mut ncus_name = ncus_name.join(" ");
            if let Some(dot) = ncus_name.find('.') {
                ncus_name.truncate(dot);
            }
            assert_eq!(spot.sass.as_deref(), Some(ncus_name.as_str()), "{case}: {row}");
        }
        let named: usize = rows.values().filter(|row| *row != "NOP").count();
        assert!(spots.instructions.len() >= named, "{case}: only padding is not counted");
    }
}

#[test]
fn instructions_and_lines_lead_to_the_source_inside_the_report() {
    let spots = spots("full-tiled-matmul");
    let first = &spots.instructions[0];
    assert_eq!((first.offset, first.at.len(), first.at[0].line), (0, 1, 8));
    assert!(first.at[0].file.ends_with("tiled_matmul.cu"), "{:?}", first.at);
    assert!(first.ptx_line.is_some());
    assert_eq!(first.function, None);
    // The multiplication of the two tiles has most of the samples.
    let hottest = &spots.lines[0];
    assert_eq!(hottest.at.line, 25);
    assert_eq!(
        hottest.text.as_deref(),
        Some("sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];")
    );
    let all: u64 = spots.lines.iter().filter_map(|line| line.counts.samples).sum();
    assert_eq!(Some(all), spots.samples);
    assert!(hottest.counts.metrics.get("memory_l1_wavefronts_shared").is_some_and(|n| *n > 0.0));
    assert!(hottest.counts.metrics.get("derived__avg_thread_executed").is_none());
}

#[test]
fn spills_are_local_memory_and_sums_hold_for_every_recorded_launch() {
    let spilled = spots("full-spill");
    let local = |spot: &&InstructionSpot| spot.access.as_ref().is_some_and(|a| a.space == "local");
    assert_eq!(spilled.instructions.iter().filter(local).count(), 615);
    for case in std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path()) {
        if !case.join("report.ncu-repz").exists() {
            continue;
        }
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let gaps = imported(&name).gaps;
        let wrong = gaps.iter().find(|gap| {
            ["hotspot_sums", "stall_samples", "hotspots_cut"].contains(&gap.code.as_str())
        });
        assert_eq!(wrong, None, "{name}");
    }
}
