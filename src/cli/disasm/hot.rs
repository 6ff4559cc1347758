//! `--hot`: the SASS of a run's kernels with what ncu's sampler saw at each instruction.

use std::path::PathBuf;

use super::{DisasmArgs, tool, wanted};
use crate::cli::app::{App, Status};
use crate::cli::report::open;
use crate::cli::terminal::safe;
use crate::error::{Exit, Failure, Result};
use crate::model::HotSpots;
use crate::model::hotspots::{Counts, InstructionSpot, LaunchSpots, SourceAt};
use crate::report::{Align, Grid, percent};

/// Instructions marked in a listing.
const MAX_MARKED_INSTRUCTIONS: usize = 5;

/// Prints the listings of one run or report.
pub(super) fn run(app: &App, args: &DisasmArgs) -> Result<Status> {
    if args.out.is_some() || args.format.is_some() {
        return Err(Failure::new(Exit::Usage, "usage", "`--hot` prints, unless it is a page")
            .hint("rgpu disasm RUN --hot --format html --out page.html"));
    }
    let (mut spots, folder) = spots(app, args)?;
    if let Some(folder) = &folder {
        // The run may have been imported where there was no nvdisasm.
        operands(app, &mut spots, &|from| folder.join(from));
    }
    if app.global.json {
        app.print_json(&spots)?;
    } else {
        // Names come from files.
        app.print(&safe(text(&spots).as_bytes()));
        let texts = || spots.launches.iter().flat_map(|l| &l.instructions).map(|i| &i.sass);
        if texts().all(Option::is_none) {
            app.say("the report has no cubin that can be read: offsets only");
        } else if !texts().flatten().any(|text| text.contains(", ")) {
            app.say("no nvdisasm here: instructions come without operands");
        }
    }
    Ok(0)
}

/// The hot spots of one run or report that are asked for, and the run's folder.
pub(super) fn spots(app: &App, args: &DisasmArgs) -> Result<(HotSpots, Option<PathBuf>)> {
    let [what] = args.what.as_slice() else {
        return Err(Failure::new(Exit::Usage, "usage", "`--hot` takes one run or one report")
            .hint("rgpu disasm latest --hot"));
    };
    let opened = open(app, what)?;
    let none = || {
        let words = format!("no launch in `{what}` was counted by instruction");
        Failure::new(Exit::Artifact, "no_hotspots", words).hint(
            "ncu's section SourceCounters does: `rgpu profile --kernel K --section SourceCounters`",
        )
    };
    let mut spots = opened.sidecars.hotspots.ok_or_else(none)?;
    let wanted = wanted(args)?;
    let names: Vec<String> = spots.launches.iter().map(|l| l.kernel.clone()).collect();
    spots.launches.retain(|launch| wanted.kernel(&launch.kernel));
    if spots.launches.is_empty() {
        let counted = names.join(", ");
        let asked = args.kernel_name.join(", ");
        let words = format!("no kernel in `{what}` that was counted is named `{asked}`");
        return Err(Failure::new(Exit::Artifact, "no_hotspots", words)
            .cause(format!("counted by instruction: {counted}")));
    }
    Ok((spots, opened.folder))
}

/// Puts operands into hot spots where there is an nvdisasm; `path` says where an artifact lies.
/// What goes wrong is said, and costs operands alone.
pub(in crate::cli) fn operands(app: &App, spots: &mut HotSpots, path: &dyn Fn(&str) -> PathBuf) {
    let mut reports: Vec<String> = spots.launches.iter().map(|l| l.from.clone()).collect();
    reports.sort();
    reports.dedup();
    reports.retain(|from| path(from).is_file());
    if reports.is_empty() {
        return;
    }
    let Some(tool) = tool::found(app) else { return };
    for from in reports {
        if let Err(error) = crate::run::disasm::operands(spots, &from, &path(&from), &tool) {
            let line = format!("`{from}`: instructions have no operands: {error}");
            app.say(&safe(line.as_bytes()));
        }
    }
}

/// One listing for each kernel: of its launches the one with most samples.
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
    let least = by_samples
        .get(MAX_MARKED_INSTRUCTIONS - 1)
        .or(by_samples.last())
        .copied()
        .unwrap_or(0)
        .max(1);
    let file = only_file(launch);
    let mut grid = Grid::new(&[
        ("", Align::Left),
        ("offset", Align::Right),
        ("samples", Align::Right),
        ("share", Align::Right),
        ("waits for", Align::Left),
        ("executed", Align::Right),
        ("line", Align::Right),
        ("function", Align::Left),
        ("instruction", Align::Left),
    ]);
    for spot in &launch.instructions {
        let n = samples(spot);
        let share = 100.0 * n as f64 / total.max(1) as f64;
        let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
        grid.row([
            if n >= least { ">" } else { "" }.to_owned(),
            format!("{:04x}", spot.offset),
            number(spot.counts.samples),
            if n > 0 { percent(share) } else { String::new() },
            waits(&spot.counts),
            number(spot.counts.executed),
            spot.at.last().map_or(String::new(), |at| place(at, file.is_none())),
            spot.function.clone().unwrap_or_default(),
            spot.sass.clone().unwrap_or_default(),
        ]);
    }
    let of = file.map_or(String::new(), |file| format!(", lines of {file}"));
    let head = format!(
        "{}, launch {}: {total} samples over {} instructions{of}; > marks the {MAX_MARKED_INSTRUCTIONS} hottest\n",
        launch.kernel,
        launch.launch,
        launch.instructions.len()
    );
    // Instructions are longest, stand last and are not to be broken.
    head + &grid.without_empty_columns().plain(usize::from(u16::MAX), 2)
}

/// The stall reason with most samples; `selected` is no stall.
fn waits(counts: &Counts) -> String {
    let reasons = counts.stalls.iter().filter(|(reason, _)| *reason != "selected");
    reasons.max_by_key(|(_, n)| **n).map(|(reason, _)| reason.to_owned()).unwrap_or_default()
}

/// The line, with its file where the listing has several.
fn place(at: &SourceAt, several: bool) -> String {
    match several {
        true => format!("{}:{}", base(&at.file), at.line),
        false => at.line.to_string(),
    }
}

fn base(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// The one file that all lines are of.
fn only_file(launch: &LaunchSpots) -> Option<&str> {
    let mut files = launch.instructions.iter().filter_map(|i| i.at.last()).map(|at| &at.file);
    let first = files.next()?;
    files.all(|file| file == first).then(|| base(first))
}
