//! Generates the table of opcode names, `src/format/src/sass/table.rs`. It compiles the kernels of
//! the cubin fixtures and of `kernels/` for every generation, with and without optimisation, and
//! records nvdisasm's name of each opcode. Cubins of an earlier run are reused. The cubins and
//! nvdisasm's listings stay in `target/sass-corpus`, where a test of rgpu-format compares every
//! instruction with them.

use crate::command::{self, CommandError};
use crate::workspace::Workspace;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders whose subfolders contain sources.
const SOURCES: &[&str] = &["tests/fixtures/cubin/13.5", "kernels"];
const TABLE: &str = "src/format/src/sass/table.rs";

/// Architectures, each with the constant of its generation.
const ARCHES: &[(&str, &str)] = &[
    ("sm_80", "SM80"),
    ("sm_90a", "SM90"),
    ("sm_100a", "SM100"),
    ("sm_103a", "SM100"),
    ("sm_120a", "SM120"),
];

/// Optimisation levels; unoptimised code has its own instruction forms.
const LEVELS: &[(&str, &[&str])] = &[("O3", &[]), ("O0", &["-Xptxas", "-O0"])];

/// The table could not be generated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TableError {
    /// nvcc or nvdisasm failed or is missing.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A file could not be read or written.
    #[error("`{}` cannot be used", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A line of a listing has an unknown form.
    #[error("nvdisasm's line `{line}` is not understood")]
    Line { line: String },
}

/// Compiles, disassembles and writes the table.
pub(crate) fn write(workspace: &Workspace) -> Result<(), TableError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| TableError::File { path, source }
    };
    let corpus = workspace.target.join("sass-corpus");
    fs::create_dir_all(&corpus).map_err(at(&corpus))?;
    let mut names: BTreeMap<(u16, String), Vec<&'static str>> = BTreeMap::new();
    for source in sources(workspace)? {
        let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for (arch, generation) in ARCHES {
            for (level, flags) in LEVELS {
                let cubin = corpus.join(format!("{stem}.{arch}.{level}.cubin"));
                if !cubin.is_file() {
                    let mut nvcc = Command::new("nvcc");
                    nvcc.args(["-std=c++17", "-cubin", "-arch", arch, "-o"]).arg(&cubin);
                    nvcc.arg("-I").arg(workspace.root.join("harness/include"));
                    command::run(nvcc.args(*flags).arg(&source))?;
                }
                let listing =
                    command::output(Command::new("nvdisasm").args(["-c", "-hex"]).arg(&cubin))?;
                let path = cubin.with_extension("sass");
                fs::write(&path, &listing).map_err(at(&path))?;
                for (opcode, name) in opcodes(&listing)? {
                    let generations = names.entry((opcode, name)).or_default();
                    if !generations.contains(generation) {
                        generations.push(generation);
                    }
                }
            }
        }
    }
    let path = workspace.root.join(TABLE);
    fs::write(&path, table(&names)).map_err(at(&path))?;
    command::run(Command::new("rustfmt").args(["--edition", "2024"]).arg(&path))?;
    Ok(())
}

/// The CUDA sources, sorted.
fn sources(workspace: &Workspace) -> Result<Vec<PathBuf>, TableError> {
    let list = |folder: &Path| -> Result<Vec<PathBuf>, TableError> {
        let broken = |source| TableError::File { path: folder.to_owned(), source };
        let entries = fs::read_dir(folder).map_err(broken)?;
        entries.map(|entry| Ok(entry.map_err(broken)?.path())).collect()
    };
    let mut found = Vec::new();
    for folder in SOURCES {
        for inner in list(&workspace.root.join(folder))?.iter().filter(|path| path.is_dir()) {
            found.extend(list(inner)?);
        }
    }
    found.retain(|path| path.extension().is_some_and(|x| x == "cu"));
    found.sort();
    Ok(found)
}

/// Opcode and name of each instruction in a listing with bits: `/*0070*/  @!P0 LDG.E R0, … ;  /*
/// 0x… */`.
fn opcodes(listing: &str) -> Result<Vec<(u16, String)>, TableError> {
    let mut found = Vec::new();
    for line in listing.lines() {
        let Some((text, bits)) = line.trim_start().split_once("/* 0x") else { continue };
        let Some((_, text)) = text.strip_prefix("/*").and_then(|t| t.split_once("*/")) else {
            continue;
        };
        let broken = || TableError::Line { line: line.to_owned() };
        let mut words = text.split_whitespace().filter(|w| !w.starts_with('@'));
        let name = words.next().ok_or_else(broken)?;
        let name = name.split(['.', ';']).next().unwrap_or(name);
        let bits = bits.split_whitespace().next().ok_or_else(broken)?;
        let low = u64::from_str_radix(bits, 16).map_err(|_| broken())?;
        found.push(((low & 0xfff) as u16, name.to_owned()));
    }
    Ok(found)
}

fn table(names: &BTreeMap<(u16, String), Vec<&'static str>>) -> String {
    let mut text = String::from(
        "//! Names of opcodes as nvdisasm prints them: made by `cargo xtask sass-table` from our own\n\
         //! kernels, not edited by hand.\n\n\
         use super::mnemonic::{Row, SM80, SM90, SM100, SM120};\n\n\
         pub(super) static ROWS: &[Row] = &[\n",
    );
    for ((opcode, name), generations) in names {
        let mut generations = generations.clone();
        generations.sort_by_key(|g| ARCHES.iter().position(|(_, other)| other == g));
        let _ = writeln!(text, "Row(0x{opcode:03x}, {}, \"{name}\"),", generations.join(" | "));
    }
    text.push_str("];\n");
    text
}
