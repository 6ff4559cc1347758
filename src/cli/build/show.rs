//! Output of `rgpu build`.

use std::path::{Path, PathBuf};

use crate::cli::support::app::App;
use crate::cli::support::kernel_cells::kernel_cells;
use crate::cli::support::terminal::escape_controls;
use rgpu_model::Build;
use rgpu_model::build::BuildStatus;
use rgpu_model::error::shell_word;
use rgpu_report::TextTable;

/// Prints one table of resources, then the paths of all results.
pub(super) fn print_result(app: &App, build: &Build, folder: &Path, copied: &CopiedPaths) {
    let mut text = format!("{}  {} for {}", build.kernel, build.language, build.arch);
    if !build.compiler.is_empty() {
        text += &format!(", {}", build.compiler);
    }
    text += "\n";
    text += &resources(build).plain(app.style().width, 2);
    let mut tools = Vec::new();
    let mut is_listed_by_rgpu = false;
    for input in &build.code {
        tools.extend(input.images.iter().filter_map(|image| image.tool.clone()));
        let entries = input.images.iter().flat_map(|image| &image.entries);
        for entry in entries {
            text += &format!("  PTX of {}\n", short_name(entry));
        }
    }
    if build.status == BuildStatus::Done {
        text += "\n";
        let short = |path: &Path| path.strip_prefix(&app.cwd).unwrap_or(path).display().to_string();
        let in_run = |kind: &str| -> Vec<PathBuf> {
            let files = build.files.iter().filter(|f| f.kind == kind);
            files.map(|f| folder.join(&f.path)).collect()
        };
        let ptx = copied.ptx.iter().cloned().chain(in_run("ptx")).collect();
        let sass = build.code.iter().flat_map(|input| &input.images);
        let sass = sass.flat_map(|image| &image.files).map(|file| folder.join(file)).collect();
        is_listed_by_rgpu = tools.first().is_some_and(|tool| tool.starts_with("rgpu"));
        let remark = if is_listed_by_rgpu { "  (no operands)" } else { "" };
        let lists: [(&str, Vec<PathBuf>, &str); 4] = [
            ("PTX", ptx, ""),
            ("CUBIN", copied.cubins.clone(), ""),
            ("SASS", sass, remark),
            ("IR", in_run("ir"), ""),
        ];
        for (title, paths, remark) in lists {
            for path in paths {
                text += &format!("  {title:<6}{}{remark}\n", short(&path));
            }
        }
        text += &format!("  run   {}\n", short(folder));
    }
    // Names come from files and compilers, so they may hold control characters.
    app.print(&escape_controls(text.as_bytes()));
    for note in &build.notes {
        app.print_note(&escape_controls(format!("note: {note}").as_bytes()));
    }
    if let (true, Some(cubin)) = (lacks_occupancy(build), copied.cubins.first()) {
        app.print_note(&format!(
            "note: no occupancy: the code does not fix the threads of a block; `rgpu disasm {} \
             --block N` computes it for N",
            shell_word(cubin.strip_prefix(&app.cwd).unwrap_or(cubin).display().to_string())
        ));
    }
    if is_listed_by_rgpu {
        app.print_note(&format!(
            "note: the listing has no operands because there is no nvdisasm: {}",
            app.setup_nvdisasm()
        ));
    }
}

/// Kernel names are cut to this many characters: those of the CuTe DSL have hundreds.
const MAX_NAME_CHARS: usize = 34;

/// Registers, memory and instructions of every kernel.
fn resources(build: &Build) -> TextTable {
    let mut table = TextTable::new(
        "kernel | regs: | stack: | spills st/ld: | shared: | occ: | instr: | tensor:",
    );
    let images = build.code.iter().flat_map(|input| &input.images);
    for kernel in images.flat_map(|image| &image.kernels) {
        let [_, regs, stack, spills, shared, _, occupancy, instructions, tensor, name] =
            kernel_cells(&build.arch, kernel);
        table.add_row([
            short_name(&name),
            regs,
            stack,
            spills,
            shared,
            occupancy,
            instructions,
            tensor,
        ]);
    }
    table.without_empty_columns()
}

/// Whether no kernel has an occupancy, although it could be computed for a size of the blocks.
fn lacks_occupancy(build: &Build) -> bool {
    let mut kernels = build.code.iter().flat_map(|input| &input.images).flat_map(|i| &i.kernels);
    build.status == BuildStatus::Done
        && kernels.clone().any(|kernel| kernel.registers.is_some())
        && kernels.all(|kernel| kernel.occupancy.is_none())
}

/// A name without namespaces, cut to the column's width.
fn short_name(name: &str) -> String {
    let (function, arguments) = name.split_at(name.find('<').unwrap_or(name.len()));
    let name = format!("{}{arguments}", function.rsplit("::").next().unwrap_or(function));
    match name.char_indices().nth(MAX_NAME_CHARS) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name,
    }
}

/// Paths of the copied results.
#[derive(Debug, Default)]
pub(super) struct CopiedPaths {
    pub(super) cubins: Vec<PathBuf>,
    pub(super) ptx: Option<PathBuf>,
}
