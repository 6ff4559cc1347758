//! `--diff`: compares the code of two builds.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::args::{FailOn, IgnoredDifference};
use super::{
    DisasmArgs, failure, has_code, image_filter, listing_columns, named_inputs, show, tool, view,
};
use crate::cli::support::app::{App, Status, show_failure};
use crate::cli::support::open_profile::note_latest;
use crate::cli::support::terminal::escape_but_own_colors;
use rgpu_model::code::CodeDocument;
use rgpu_model::disasm::{
    Change, CodeSimilarity, Diff, DisasmDocument, KernelDiff, ReadStatus as Ended,
};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::disasm::{
    self, DiffSide, IgnoredDifferences, ImageTask, NamedInput, SourcePositions, read_code,
};
use rgpu_run::store::{RunFolder, StoreError};

/// How many instructions are named per kernel.
const MAX_NAMED_INSTRUCTIONS: usize = 12;
/// Lines of a kernel's listing shown without `-v`.
const MAX_DIFF_LINES: usize = 60;

/// Compares the two named inputs.
pub(super) fn run(app: &App, args: &DisasmArgs) -> Result<Status> {
    let [old, new] = args.what.as_slice() else {
        return Err(Failure::new(Exit::Usage, "usage", "a difference needs two sides")
            .hint("rgpu disasm --diff old.cubin new.cubin"));
    };
    let files = |inputs: &[NamedInput]| -> Result<Vec<PathBuf>> {
        disasm::inputs(inputs).map(|inputs| inputs.files).map_err(|error| failure(&error))
    };
    let new_inputs = named_inputs(app, std::slice::from_ref(new))?;
    let old_inputs = match earlier_run(app, [old, new], &new_inputs)? {
        Some(run) => vec![run],
        None => named_inputs(app, std::slice::from_ref(old))?,
    };
    let (old_files, new_files) = (files(&old_inputs)?, files(&new_inputs)?);
    let mut task = ImageTask {
        filter: image_filter(args)?,
        threads: args.block,
        columns: listing_columns(args),
        ..ImageTask::default()
    };
    let all: Vec<PathBuf> = old_files.iter().chain(&new_files).cloned().collect();
    task.nvdisasm = tool::chosen(app, args, &all, &task)?;
    let (old, mut old_code) = read(app, old, &old_files, &task)?;
    let (new, mut new_code) = read(app, new, &new_files, &task)?;
    let tools = || old_code.images.iter().chain(&new_code.images).filter_map(|i| i.tool.as_deref());
    let is_rgpu = |t: &str| t.starts_with("rgpu");
    if tools().any(is_rgpu) && !tools().all(is_rgpu) {
        // Texts with operands cannot be compared with texts without.
        task.nvdisasm = None;
        (old_code, new_code) = (
            list_instructions(app, &old_files, &task)?,
            list_instructions(app, &new_files, &task)?,
        );
    }
    let normalize = match args.normalize {
        Some(IgnoredDifference::Registers) => IgnoredDifferences::Registers,
        None => IgnoredDifferences::Addresses,
    };
    let side = |facts, code| DiffSide { facts, code };
    let diff = disasm::diff(side(&old, &old_code), side(&new, &new_code), normalize);
    if diff.kernels.is_empty() && diff.added.is_empty() && diff.removed.is_empty() {
        return Err(super::known::unmatched(args, &all).unwrap_or_else(|| {
            Failure::new(Exit::Artifact, "nothing_to_show", "neither side has a kernel")
                .hint("`--list` shows the content")
        }));
    }
    if app.global.json {
        app.print_json(&diff)?;
    } else {
        app.print(&escape_but_own_colors(text(app, &diff).as_bytes()));
    }
    if let Some(on) = args.fail_on.iter().find(|on| has_change(**on, &diff)) {
        app.print_note(&format!("`--fail-on`: {}", on.found()));
        return Ok(Exit::Findings as u8);
    }
    let Some(why) = unjudged(args, &diff, [&old, &new]) else { return Ok(0) };
    let failure = Failure::new(Exit::Artifact, "not_compared", why)
        .hint("`rgpu disasm --list` shows what a side has; `--fail-on any` fails on the rest too");
    show_failure(&failure, failure.exit as u8, false);
    Ok(failure.exit as u8)
}

/// Why `--fail-on` cannot say that nothing changed. `None` if it can, or was not given.
fn unjudged(args: &DisasmArgs, diff: &Diff, sides: [&DisasmDocument; 2]) -> Option<&'static str> {
    if args.fail_on.is_empty() {
        return None;
    }
    if diff.kernels.is_empty() {
        return Some("nothing was compared for `--fail-on`: no kernel is on both sides");
    }
    let is_unread = sides.iter().flat_map(|side| &side.inputs).any(|i| i.status != Ended::Ok);
    is_unread.then_some("not everything was compared for `--fail-on`: some code cannot be read")
}

/// The run that `latest~N` names beside `latest`: an earlier one of the same kernel, since another
/// kernel's code is nothing to compare with. `None` for other names, and if there is none.
fn earlier_run(
    app: &App,
    [old, new]: [&String; 2],
    new_inputs: &[NamedInput],
) -> Result<Option<NamedInput>> {
    let is_latest = |name: &str| name.starts_with("latest") && !Path::new(name).exists();
    let [NamedInput::Run(path)] = new_inputs else { return Ok(None) };
    if !is_latest(old) || !is_latest(new) {
        return Ok(None);
    }
    let kernel = RunFolder::open(path)?.record()?.kernel;
    if kernel.is_empty() {
        return Ok(None);
    }
    let is_of_kernel = |folder: &RunFolder| {
        folder.record().is_ok_and(|record| record.kernel == kernel) && has_code(folder)
    };
    match app.runs().find_among(old, is_of_kernel) {
        Ok(folder) => {
            note_latest(app, old, &folder);
            Ok(Some(NamedInput::Run(folder.path().to_owned())))
        }
        Err(StoreError::Unknown(_)) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// Facts and code of one side.
fn read(
    app: &App,
    name: &str,
    files: &[PathBuf],
    task: &ImageTask,
) -> Result<(DisasmDocument, CodeDocument)> {
    let facts = ImageTask {
        filter: disasm::ImageFilter {
            arches: task.filter.arches.clone(),
            kernels: task.filter.kernels.clone(),
            launched: None,
        },
        threads: task.threads,
        ..ImageTask::default()
    };
    let document = disasm::all(files, &facts, &|_| {});
    show::errors(app, &document.inputs);
    if document.inputs.iter().all(|i| i.status == Ended::Failed) {
        return Err(Failure::new(
            Exit::Artifact,
            "unreadable",
            "no code of this file could be read",
        )
        .file(name));
    }
    Ok((document, list_instructions(app, files, task)?))
}

/// The instructions of one side. Reading errors were reported with the facts.
fn list_instructions(app: &App, files: &[PathBuf], task: &ImageTask) -> Result<CodeDocument> {
    let mut read = |file: &Path, cubin: &_, bytes: &[u8]| {
        let image = read_code(file, cubin, bytes, task, SourcePositions::Skip);
        let image = image.map_err(|e| view::failure(app, &e, "sass"))?;
        if let Some(problem) = &image.tool_problem {
            app.print_note(&show::problem_of(&image.arch, problem));
        }
        Ok(view::CubinImage::Image(image))
    };
    view::gather_quietly(files, "sass", &mut read, task)
}

/// Whether the comparison has a change that `--fail-on` names.
fn has_change(on: FailOn, diff: &Diff) -> bool {
    let moved = !diff.added.is_empty() || !diff.removed.is_empty();
    match on {
        FailOn::Any => {
            let same = |k: &KernelDiff| k.code == CodeSimilarity::Identical && k.changes.is_empty();
            moved || !diff.kernels.iter().all(same)
        }
        FailOn::Instructions => {
            let other = |k: &KernelDiff| match &k.listing {
                Some(listing) => listing.added + listing.removed > 0,
                None => k.code == CodeSimilarity::Different,
            };
            moved || diff.kernels.iter().any(other)
        }
        FailOn::Resources => diff.kernels.iter().flat_map(|k| &k.changes).any(is_worse),
    }
}

/// Whether a fact changed for the worse.
fn is_worse(change: &Change) -> bool {
    let Some((old, new)) = change.old.zip(change.new) else { return false };
    match change.what.as_str() {
        "occupancy percent" => new < old,
        "registers" | "barriers" => new > old,
        what if what.ends_with("bytes") => new > old,
        _ => false,
    }
}

fn text(app: &App, diff: &Diff) -> String {
    let mut text = String::new();
    for kernel in &diff.kernels {
        let code = match kernel.code {
            CodeSimilarity::Identical => "identical code",
            CodeSimilarity::SameText => {
                "the same instructions and operands, with different scheduling"
            }
            CodeSimilarity::SameInstructions => {
                "the same instructions, with different registers, constants or scheduling"
            }
            CodeSimilarity::Different => "other instructions",
        };
        let arch = match &kernel.old_arch {
            Some(old) => format!("{old} → {}", kernel.arch),
            None => kernel.arch.clone(),
        };
        let _ = writeln!(text, "{arch} {}: {code}", kernel.name);
        for change in &kernel.changes {
            let _ = writeln!(text, "  {}", line(change));
        }
        for (head, changes) in [("by class", &kernel.classes), ("by name", &kernel.mnemonics)] {
            let named: Vec<String> =
                changes.iter().take(MAX_NAMED_INSTRUCTIONS).map(line).collect();
            if !named.is_empty() {
                let more = changes.len() - named.len();
                let more = if more > 0 { format!(", and {more} more") } else { String::new() };
                let line = format!("  {head}: {}{more}", named.join(", "));
                push_wrapped(&mut text, &line, app.style().width);
            }
        }
        listing(app, &mut text, kernel);
    }
    for (what, names) in
        [("only in the old one", &diff.removed), ("only in the new one", &diff.added)]
    {
        for name in names {
            let _ = writeln!(text, "{name}: {what}");
        }
    }
    text
}

/// Appends a line, broken at commas to fit the width. Further lines are indented.
fn push_wrapped(text: &mut String, line: &str, width: usize) {
    let (mut used, mut first) = (0, true);
    for part in line.split(", ") {
        let length = part.chars().count() + 2;
        if !first && used + length > width {
            text.push_str(",\n    ");
            used = 4;
        } else if !first {
            text.push_str(", ");
        }
        text.push_str(part);
        used += length;
        first = false;
    }
    text.push('\n');
}

/// Appends the instructions that differ.
fn listing(app: &App, text: &mut String, kernel: &KernelDiff) {
    let Some(listing) = kernel.listing.as_ref().filter(|l| l.added + l.removed > 0) else { return };
    let _ = writeln!(
        text,
        "  {} instructions removed, {} added, {} unchanged",
        listing.removed, listing.added, listing.same
    );
    let max_lines = if app.global.verbose > 0 { usize::MAX } else { MAX_DIFF_LINES };
    let (mut shown, all) = (0, listing.hunks.iter().map(|h| h.lines.len()).sum::<usize>());
    for hunk in &listing.hunks {
        if shown >= max_lines {
            break;
        }
        let offset_text =
            |offset: Option<u64>| offset.map_or("-".to_owned(), |o| format!("{o:04x}"));
        let _ = writeln!(
            text,
            "  @@ {} {} @@",
            offset_text(hunk.old_offset),
            offset_text(hunk.new_offset)
        );
        for line in hunk.lines.iter().take(max_lines - shown) {
            let painted = match line.as_bytes().first() {
                Some(b'-') => app.style().paint("31", line),
                Some(b'+') => app.style().paint("32", line),
                _ => line.clone(),
            };
            let _ = writeln!(text, "  {painted}");
            shown += 1;
        }
    }
    if shown < all {
        let _ = writeln!(text, "  … {} more lines: `-v` shows them", all - shown);
    }
}

fn line(change: &Change) -> String {
    let number = |n: Option<f64>| n.map_or("?".to_owned(), |n| n.to_string());
    let delta =
        change.old.zip(change.new).map_or(String::new(), |(a, b)| format!(" ({:+})", b - a));
    format!("{} {} → {}{delta}", change.what, number(change.old), number(change.new))
}
