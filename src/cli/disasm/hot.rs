//! `--hot`: prints the SASS of a run's kernels with the samples of ncu at each instruction.

use std::path::{Path, PathBuf};

use super::{DisasmArgs, image_filter};
use crate::cli::support::app::{App, Status};
use crate::cli::support::missing;
use crate::cli::support::nvdisasm::add_operands;
use crate::cli::support::open_profile::{OpenedProfile, note_latest, open, open_run};
use crate::cli::support::terminal::escape_controls;
use rgpu_model::HotSpots;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::hotspots::{Counts, InstructionSpot, LaunchSpots, SourceAt};
use rgpu_report::{TextTable, percent};
use rgpu_run::store::{RunFolder, StoreError};

/// How many instructions a listing marks as hottest.
const MAX_MARKED_INSTRUCTIONS: usize = 5;

/// Prints the listings of one run or report.
pub(super) fn run(app: &App, args: &DisasmArgs) -> Result<Status> {
    if args.out.is_some() || args.format.is_some() {
        return Err(Failure::new(Exit::Usage, "usage", "`--hot` prints, unless it is a page")
            .hint("rgpu disasm RUN --hot --format html --out page.html"));
    }
    let (mut spots, folder) = spots(app, args)?;
    if let Some(folder) = &folder {
        // The run may have been imported without nvdisasm.
        add_operands(app, &mut spots, &|from| folder.join(from));
    }
    if app.global.json {
        app.print_json(&spots)?;
    } else {
        // Names come from files, so they may hold control characters.
        app.print(&escape_controls(text(&spots).as_bytes()));
        let texts = || spots.launches.iter().flat_map(|l| &l.instructions).map(|i| &i.sass);
        if texts().all(Option::is_none) {
            app.print_note("the report has no cubin that can be read: offsets only");
        } else if !texts().flatten().any(|text| text.contains(", ")) {
            app.print_note("no nvdisasm here: instructions come without operands");
        }
    }
    Ok(0)
}

/// The selected hot spots of one run or report, and the run's folder.
pub(super) fn spots(app: &App, args: &DisasmArgs) -> Result<(HotSpots, Option<PathBuf>)> {
    let [name] = args.what.as_slice() else {
        return Err(Failure::new(Exit::Usage, "usage", "`--hot` takes one run or one report")
            .hint("rgpu disasm latest --hot"));
    };
    let is_latest = name.starts_with("latest") && !Path::new(name).is_file();
    let opened = if is_latest { open_latest(app, name)? } else { open(app, name)? };
    let none = || {
        let message = format!("no launch in `{name}` has values per instruction");
        Failure::new(Exit::Artifact, "no_hotspots", message).hint(SOURCE_COUNTERS)
    };
    let mut spots = opened.sidecars.hotspots.ok_or_else(none)?;
    let image_filter = image_filter(args)?;
    let names: Vec<String> = spots.launches.iter().map(|l| l.kernel.clone()).collect();
    spots.launches.retain(|launch| image_filter.matches_kernel(&launch.kernel));
    if spots.launches.is_empty() {
        let counted = names.join(", ");
        let requested = args.kernel_name.join(", ");
        let message = format!(
            "no kernel in `{name}` with values per instruction is named \
                               `{requested}`"
        );
        return Err(Failure::new(Exit::Artifact, "no_hotspots", message)
            .cause(format!("kernels with values per instruction: {counted}")));
    }
    Ok((spots, opened.folder))
}

/// The latest run with values per instruction: others, such as builds, are passed over. The latest
/// of all if none has them.
fn open_latest(app: &App, name: &str) -> Result<OpenedProfile> {
    let has_spots = |folder: &RunFolder| folder.has("hotspots.json");
    let found = app.runs().find_preferring(name, has_spots);
    let folder = found.map_err(|e| match e {
        StoreError::Unknown(_) => missing::run_or_file(name),
        other => other.into(),
    })?;
    note_latest(app, name, &folder);
    open_run(&folder).map_err(|failure| failure.hint(SOURCE_COUNTERS))
}

/// How a run gets values per instruction.
const SOURCE_COUNTERS: &str = "values per instruction need ncu's section SourceCounters: `rgpu profile --kernel K --section SourceCounters`";

/// One listing per kernel, of its launch with the most samples.
fn text(spots: &HotSpots) -> String {
    let mut shown: Vec<&LaunchSpots> = Vec::new();
    for launch in &spots.launches {
        match shown.iter_mut().find(|l| l.kernel == launch.kernel) {
            Some(known) if known.samples < launch.samples => *known = launch,
            Some(_) => {}
            None => shown.push(launch),
        }
    }
    let listings: Vec<String> = shown.into_iter().map(listing).collect();
    listings.join("\n")
}

fn listing(launch: &LaunchSpots) -> String {
    let samples = |spot: &InstructionSpot| spot.counts.samples.unwrap_or(0);
    let total = launch.samples.unwrap_or_else(|| launch.instructions.iter().map(samples).sum());
    let mut by_samples: Vec<u64> = launch.instructions.iter().map(samples).collect();
    by_samples.sort_by_key(|n| std::cmp::Reverse(*n));
    let min_marked = by_samples
        .get(MAX_MARKED_INSTRUCTIONS - 1)
        .or(by_samples.last())
        .copied()
        .unwrap_or(0)
        .max(1);
    let file = only_file(launch);
    let mut table = TextTable::new(
        " | offset: | samples: | share: | waits for | executed: | line: | function | instruction",
    );
    for spot in &launch.instructions {
        let n = samples(spot);
        let share = 100.0 * n as f64 / total.max(1) as f64;
        let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
        table.add_row([
            if n >= min_marked { ">" } else { "" }.to_owned(),
            format!("{:04x}", spot.offset),
            number(spot.counts.samples),
            if n > 0 { percent(share) } else { String::new() },
            main_stall(&spot.counts),
            number(spot.counts.executed),
            spot.at.last().map_or(String::new(), |at| source_position(at, file.is_none())),
            spot.function.clone().unwrap_or_default(),
            spot.sass.clone().unwrap_or_default(),
        ]);
    }
    let file_note = file.map_or(String::new(), |file| format!(", lines of {file}"));
    let head = format!(
        "{}, launch {}: {total} samples over {} instructions{file_note}; > marks the {MAX_MARKED_INSTRUCTIONS} hottest\n",
        launch.kernel,
        launch.launch,
        launch.instructions.len()
    );
    // Instructions are the longest and last column, and are never broken.
    head + &table.without_empty_columns().plain(usize::from(u16::MAX), 2)
}

/// The stall reason with the most samples. `selected` is not a stall.
fn main_stall(counts: &Counts) -> String {
    let reasons = counts.stalls.iter().filter(|(reason, _)| *reason != "selected");
    reasons.max_by_key(|(_, n)| **n).map(|(reason, _)| reason.to_owned()).unwrap_or_default()
}

/// The line, with its file if the listing has several files.
fn source_position(at: &SourceAt, several: bool) -> String {
    if several { format!("{}:{}", base(&at.file), at.line) } else { at.line.to_string() }
}

fn base(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// The file of all lines. `None` if there are several or none.
fn only_file(launch: &LaunchSpots) -> Option<&str> {
    let mut files = launch.instructions.iter().filter_map(|i| i.at.last()).map(|at| &at.file);
    let first = files.next()?;
    files.all(|file| file == first).then(|| base(first))
}
