//! `rgpu disasm`: what files hold for the GPU: facts of kernels, SASS, PTX. No host and no GPU is
//! needed, and of NVIDIA's tools only nvdisasm is of use, for the operands of instructions.

mod args;
mod diff;
mod hot;
mod show;
mod tool;
mod view;

pub(super) use args::DisasmArgs;
pub(super) use hot::operands;
pub(super) use tool::candidates as nvdisasm;

use std::path::{Path, PathBuf};

use regex::Regex;

use super::app::{App, Status};
use crate::error::{Exit, Failure, Result};
use crate::import::gpu_code::Shown;
use crate::model::disasm::{Disasm, Status as Ended};
use crate::run::disasm::{self, InputError, Meant, Wanted, What};
use crate::store::{Runs, atomic};

/// Disassembles.
pub(super) fn run(app: &App, args: &DisasmArgs) -> Result<Status> {
    if args.diff {
        return diff::run(app, args);
    }
    if args.hot {
        return hot::run(app, args);
    }
    let files = disasm::inputs(&meant(app, &args.what)?).map_err(|error| failure(&error))?;
    let writes = !args.list && args.view.is_none();
    let out = writes.then(|| out(app, args)).transpose()?;
    let mut what = What {
        wanted: wanted(args)?,
        sass: writes,
        extract: args.extract,
        list_only: args.list,
        shown: Shown { control: args.control_codes, lines: args.line_info },
        threads: args.block,
        out,
        ..What::default()
    };
    if !args.list {
        what.nvdisasm = tool::chosen(app, args, &files, &what)?;
    }
    if let Some(view) = args.view {
        return view::print(app, &files, &what, view);
    }
    let done = |input: &crate::model::disasm::Input| {
        if app.global.verbose > 0 {
            app.say(&format!("{}: {} images", input.path, input.images.len()));
        }
    };
    let document = disasm::all(&files, &what, &done);
    if let Some(out) = &what.out {
        save(out, &document)?;
    }
    if app.global.json {
        app.print_json(&document)?;
    } else {
        show::table(app, &document, args.list);
        if let Some(out) = &what.out {
            app.say(&format!("listings and summary.json: {}", out.display()));
        }
    }
    show::errors(app, &document);
    let failed = document.inputs.iter().any(|i| i.status != Ended::Ok);
    Ok(if failed { Exit::Artifact as u8 } else { 0 })
}

/// The filters.
fn wanted(args: &DisasmArgs) -> Result<Wanted> {
    let kernels = args.kernel_name.iter().map(|k| pattern(k)).collect::<Result<Vec<Regex>>>()?;
    Ok(Wanted { arches: args.arch.clone(), kernels })
}

/// Paths as they are; what is no path is a run.
fn meant(app: &App, names: &[String]) -> Result<Vec<Meant>> {
    let mut all = Vec::new();
    for what in names {
        let path = Path::new(what);
        if path.join("run.json").is_file() {
            all.push(Meant::Run(path.to_owned()));
        } else if path.exists() || what.contains(['/', '.', '*']) {
            all.push(Meant::Path(path.to_owned()));
        } else {
            let found = Runs::new(&app.config.runs_dir.value).find(what);
            let found = found.map_err(|e| {
                Failure::from(e).hint(format!("and there is no file or folder `{what}`"))
            })?;
            all.push(Meant::Run(found.path().to_owned()));
        }
    }
    Ok(all)
}

fn failure(error: &InputError) -> Failure {
    let (code, hint) = match error {
        InputError::Missing { .. } => ("no_input", "a pattern must match something"),
        InputError::Empty { .. } => (
            "no_gpu_code",
            "what is read: cubin, fatbin, PTX, ELF objects and libraries, .a, .whl and .zip",
        ),
        InputError::Unlisted { .. } => ("unreadable", "look at the folder's permissions"),
    };
    let words = error.to_string();
    let mut failure = Failure::new(Exit::Artifact, code, words).hint(hint);
    if let Some(source) = std::error::Error::source(error) {
        failure = failure.cause(source);
    }
    failure
}

fn pattern(typed: &str) -> Result<Regex> {
    let pattern = match typed.strip_prefix("regex:") {
        Some(regex) => regex.to_owned(),
        // A demangled name goes on with its arguments.
        None => format!(r"(^|[ :]){}($|[(<])", regex::escape(typed)),
    };
    Regex::new(&pattern).map_err(|e| {
        Failure::new(Exit::Usage, "bad_regex", format!("`{typed}` is no regular expression"))
            .cause(e)
    })
}

/// The output folder, made.
fn out(app: &App, args: &DisasmArgs) -> Result<PathBuf> {
    let default = || {
        let artifacts = app.config.runs_dir.value.parent().map(Path::to_owned);
        artifacts.unwrap_or_else(|| app.cwd.join("artifacts")).join("sass")
    };
    let folder = args.out.clone().unwrap_or_else(default);
    std::fs::create_dir_all(&folder).map_err(|e| {
        Failure::new(Exit::Disk, "no_folder", "the output folder cannot be made")
            .file(folder.display())
            .cause(e)
    })?;
    Ok(folder)
}

fn save(out: &Path, document: &Disasm) -> Result<()> {
    let path = out.join("summary.json");
    let mut text = serde_json::to_string_pretty(document).map_err(|e| {
        Failure::new(Exit::Bug, "bug", "the summary cannot be written as JSON").cause(e)
    })?;
    text.push('\n');
    atomic::write(&path, text.as_bytes()).map_err(|e| {
        Failure::new(Exit::Disk, "unwritten", "the summary cannot be written")
            .file(path.display())
            .cause(e)
    })
}
