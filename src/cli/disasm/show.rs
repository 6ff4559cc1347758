//! Prints the documents of `rgpu disasm`: one line per kernel, and errors.

use crate::cli::support::app::App;
use crate::cli::support::kernel_cells::kernel_cells;
use crate::cli::support::terminal::escape_controls;
use rgpu_analysis::occupancy::limits_of_arch;
use rgpu_model::disasm::{Image, ImageKind, Input, Kernel, ReadStatus};
use rgpu_report::TextTable;
use rgpu_run::disasm::first_errors;

/// Minimum width of the kernels' names, in characters.
const MIN_NAME_WIDTH: usize = 24;
/// Columns dropped in this order to make room for names. `summary.json` has them all.
const OPTIONAL_COLUMNS: [&str; 4] = ["barriers", "shared", "stack", "occupancy"];

/// Prints kernels, or with `list` the images.
pub(super) fn table<'i>(app: &App, inputs: impl IntoIterator<Item = &'i Input>, list: bool) {
    let mut text = String::new();
    for input in inputs.into_iter().filter(|i| !i.images.is_empty()) {
        let kernels: usize = input.images.iter().map(|i| i.kernels.len()).sum();
        let entries: usize = input.images.iter().map(|i| i.entries.len()).sum();
        let kind = input.kind.as_deref().unwrap_or("file");
        text.push_str(&format!("{} ({kind}): ", input.path));
        text.push_str(&count(input.images.len(), "image"));
        if list {
            text.push('\n');
            text.push_str(&images(&input.images).plain(app.columns(), 2));
            continue;
        }
        text.push_str(&match (kernels, entries) {
            (_, 0) => format!(", {}\n", count(kernels, "kernel")),
            (0, _) => format!(", {} as PTX\n", count(entries, "kernel")),
            _ => format!(", {} and {entries} as PTX\n", count(kernels, "kernel")),
        });
        let width = app.columns();
        let facts = facts(&input.images).with_room(
            width.saturating_sub(2),
            MIN_NAME_WIDTH,
            &OPTIONAL_COLUMNS,
        );
        text.push_str(&facts.plain(width, 2));
        for image in input.images.iter().filter(|i| i.kernels.is_empty()) {
            text.push_str(&format!("  {} for {}", image.kind, image.arch));
            match image.entries.len() {
                0 if image.kind == ImageKind::LtoIr => {
                    text.push_str(": no SASS yet; linking produces it (nvcc -dlto, nvlink)\n");
                }
                0 => text.push('\n'),
                n => text.push_str(&format!(": {}\n", count(n, "kernel"))),
            }
        }
    }
    // Names come from files, so they may hold control characters.
    app.print(&escape_controls(text.as_bytes()));
}

fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn images(images: &[Image]) -> TextTable {
    let mut table = TextTable::new("kind | arch | bytes: | stored: | packing | version | place");
    for image in images {
        table.add_row([
            image.kind.to_string(),
            image.arch.clone(),
            image.bytes.to_string(),
            image.stored_bytes.to_string(),
            image.compression.to_string(),
            image.version.clone().unwrap_or_default(),
            image.place.clone(),
        ]);
    }
    table.without_empty_columns()
}

fn facts(images: &[Image]) -> TextTable {
    let mut table = TextTable::new(
        "arch | regs: | stack: | spills st/ld: | shared: | barriers: | occupancy: | instr: | \
         tensor: | kernel",
    );
    for image in images {
        for kernel in &image.kernels {
            table.add_row(kernel_cells(&image.arch, kernel));
        }
    }
    table.without_empty_columns()
}

/// Why no kernel has an occupancy, and how to get it. `None` if one has, or if none can have it.
pub(super) fn occupancy_note<'i>(inputs: impl IntoIterator<Item = &'i Input>) -> Option<String> {
    let images = inputs.into_iter().flat_map(|input| &input.images);
    let kernels: Vec<(&str, &Kernel)> =
        images.flat_map(|image| image.kernels.iter().map(|k| (&*image.arch, k))).collect();
    let lacks_threads = |(arch, kernel): &(&str, &Kernel)| {
        let is_fixed = kernel.required_block.is_some() || kernel.max_threads.is_some();
        !is_fixed && kernel.registers.is_some() && limits_of_arch(arch).is_some()
    };
    let has_none = kernels.iter().all(|(_, kernel)| kernel.occupancy.is_none());
    (has_none && kernels.iter().any(lacks_threads)).then(|| {
        "no occupancy: the code does not fix the threads of a block; `--block N` computes it for N"
            .to_owned()
    })
}

/// Why nvdisasm gave no operands for an architecture, with a hint if there is one.
pub(super) fn problem_of(arch: &str, problem: &str) -> String {
    let help = help_for(problem).map_or(String::new(), |help| format!("\n  help: {help}"));
    format!("{arch}: listed without operands because nvdisasm failed\n  cause: {problem}{help}")
}

/// The hint for a known error of nvdisasm.
pub(super) fn help_for(problem: &str) -> Option<&'static str> {
    if problem.contains("processor time") {
        return Some(
            "raise the limit with `--timeout`, or list without operands with `--tool rgpu`",
        );
    }
    let is_deprecated = problem.contains("is deprecated");
    is_deprecated.then_some("this nvdisasm is too new for it: one of CUDA 12 reads sm_50 to sm_72")
}

/// Prints each input's errors, and why nvdisasm failed, on stderr.
pub(super) fn errors<'i>(app: &App, inputs: impl IntoIterator<Item = &'i Input>) {
    for input in inputs {
        let note = match input.status {
            ReadStatus::Ok => "",
            ReadStatus::Partial => " (the rest was read)",
            ReadStatus::Failed => "",
        };
        for error in &input.errors {
            app.print_error(&format!("`{}`: {error}{note}", input.path));
        }
        let problems = input.images.iter().filter_map(|image| {
            let problem = image.tool_problem.as_ref()?;
            Some(problem_of(&image.arch, problem))
        });
        for problem in first_errors(problems.collect()) {
            let line = format!("`{}` {problem}", input.path);
            app.print_note(&escape_controls(line.as_bytes()));
        }
    }
}
