//! `rgpu disasm`: what files hold for the GPU: facts of kernels, SASS, PTX. No host and no GPU is
//! needed, and of NVIDIA's tools only nvdisasm is of use, for the operands of instructions.

mod args;
mod diff;
mod hot;
mod known;
mod page;
mod place;
mod progress;
mod show;
mod tool;
mod view;

pub(super) use args::DisasmArgs;
pub(super) use hot::operands;
pub(super) use show::row;
pub(super) use tool::{candidates as nvdisasm, fetched_folder};

use std::path::{Path, PathBuf};

use regex::Regex;

use super::app::{App, Status};
use super::{json, missing, report};
use args::{Format, Tool, View};

use crate::error::{Exit, Failure, Result};
use crate::import::gpu_code::Shown;
use crate::model::disasm::{Disasm, Status as Ended};
use crate::run::disasm::{self, InputError, Inputs, Meant, Names, Wanted, What};
use crate::store::{Runs, StoreError, atomic};

/// Disassembles.
pub(super) fn run(app: &App, args: &DisasmArgs) -> Result<Status> {
    let listed = args.diff || args.hot || args.view.is_some() || args.format.is_some();
    if args.tool == Tool::None && (listed || args.per_kernel) {
        return Err(Failure::new(Exit::Usage, "usage", "`--tool none` lists no instructions")
            .hint("without nvdisasm: `--tool rgpu`"));
    }
    if args.diff {
        return diff::run(app, args);
    }
    let html = view::format(args) == Some(Format::Html) && args.view.is_none();
    if args.hot {
        return if html { page::hot(app, args) } else { hot::run(app, args) };
    }
    let meant = meant(app, &args.what)?;
    if let ([Meant::Run(_)], true) = (meant.as_slice(), html)
        && let Some(status) = page::of_run(app, args)?
    {
        return Ok(status);
    }
    let Inputs { files, reports } = disasm::inputs(&meant).map_err(|error| failure(&error))?;
    if let [first, ..] = reports.as_slice() {
        let first = first.display();
        app.say(&match reports.len() {
            1 => format!("passed over: `{first}`; name it to read the cubins in it"),
            n => format!("passed over: {n} reports of ncu; name one to read its cubins: `{first}`"),
        });
    }
    if html {
        return page::run(app, args, &files);
    }
    if let Some(view) = args.view {
        fits(view, args.format)?;
        let mut what = What {
            wanted: wanted(args)?,
            shown: shown(args),
            lives: view::lives(view),
            ..What::default()
        };
        if matches!(view, View::Sass | View::Source | View::Live) {
            what.nvdisasm = tool::chosen(app, args, &files, &what)?;
        }
        return view::run(app, args, &files, &what, view);
    }
    if let Some(format) = args.format {
        return Err(misplaced(format));
    }
    listings(app, args, &files)
}

/// Listings and facts of every file, or with `--list` what is there.
fn listings(app: &App, args: &DisasmArgs, files: &[PathBuf]) -> Result<Status> {
    let mut what = What {
        wanted: wanted(args)?,
        sass: !args.list && args.tool != Tool::None,
        by_kernel: args.per_kernel,
        extract: args.extract,
        list_only: args.list,
        shown: shown(args),
        threads: args.block,
        out: (!args.list).then(|| out(app, args)),
        ..What::default()
    };
    if !args.list {
        what.nvdisasm = tool::chosen(app, args, files, &what)?;
    }
    if let Some(out) = &what.out {
        keep_inputs(&what.names, out, files);
        if !args.force {
            report::owned::check(&out.join(SUMMARY), SUMMARY_HEAD)?;
        }
    }
    let bar = progress::FilesBar::new(app, files.len());
    let mut document = disasm::all(files, &what, &|input| {
        bar.done();
        if app.global.verbose > 0 {
            app.say(&format!("{}: {} images", input.path, input.images.len()));
        }
    });
    drop(bar);
    let all_failed = document.inputs.iter().all(|i| i.status == Ended::Failed);
    let images = || document.inputs.iter().flat_map(|i| &i.images);
    let none = images().all(|i| i.kernels.is_empty() && i.entries.is_empty());
    let none = none && !args.list;
    let no_kernel = !args.kernel_name.is_empty() && none;
    let no_arch = !args.arch.is_empty() && images().next().is_none();
    let unmatched = if no_kernel || no_arch { known::unmatched(args, files) } else { None };
    if let Some(failure) = unmatched {
        document.inputs.retain(|i| i.errors != [disasm::OTHER_ARCHES]);
        show::errors(app, &document);
        return Err(failure);
    }
    // A failed command leaves what an earlier one wrote.
    let out = what.out.as_ref().filter(|_| !all_failed);
    let text = match out.is_some() || app.global.json {
        true => rendered(&document)?,
        false => String::new(),
    };
    if let Some(out) = out {
        save(out, &text)?;
    }
    if app.global.json {
        app.print(&text);
    } else {
        show::table(app, &document, args.list);
        if let Some(out) = out {
            let listings = if what.sass { "listings and " } else { "" };
            app.say(&format!("{listings}summary.json: {}", out.display()));
        }
    }
    show::errors(app, &document);
    let failed = document.inputs.iter().any(|i| i.status != Ended::Ok);
    // The process ends here: its memory goes all at once, faster than name by name.
    std::mem::forget(document);
    Ok(if failed { Exit::Artifact as u8 } else { 0 })
}

/// The document beside listings, and how it begins.
const SUMMARY: &str = "summary.json";
const SUMMARY_HEAD: &[u8] = b"{\n  \"schema\": \"rgpu.disasm/1\"";

/// Takes the names of inputs that lie in the output folder: nothing is written over them.
fn keep_inputs(names: &Names, out: &Path, files: &[PathBuf]) {
    for file in files {
        if let Some(name) = file.file_name()
            && out.join(name).symlink_metadata().is_ok()
            && place::same(file, &out.join(name))
        {
            names.take(&name.to_string_lossy());
        }
    }
}

fn shown(args: &DisasmArgs) -> Shown {
    Shown { control: args.control_codes, lines: args.line_info }
}

/// Whether a view can be written in a format.
fn fits(view: View, format: Option<Format>) -> Result<()> {
    match (view, format) {
        (View::Cfg, Some(Format::Dot | Format::Svg)) | (_, None) => Ok(()),
        (_, Some(format)) => Err(misplaced(format)),
    }
}

fn misplaced(format: Format) -> Failure {
    let (words, hint) = match format {
        Format::Html => ("the page shows all views at once", "leave `--view` out"),
        Format::Dot | Format::Svg => {
            ("only control flow is drawn", "rgpu disasm k.cubin --view cfg --format svg")
        }
    };
    Failure::new(Exit::Usage, "usage", words).hint(hint)
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
        let there = std::fs::metadata(path);
        if there.as_ref().is_ok_and(|there| there.is_dir()) && path.join("run.json").is_file() {
            all.push(Meant::Run(path.to_owned()));
        } else if there.is_ok() || what.contains(['/', '.', '*']) {
            all.push(Meant::Path(path.to_owned()));
        } else {
            let found = Runs::new(&app.config.runs_dir.value).find(what);
            let found = found.map_err(|e| match e {
                StoreError::Unknown(_) => missing::run_or_file(what),
                other => other.into(),
            })?;
            all.push(Meant::Run(found.path().to_owned()));
        }
    }
    Ok(all)
}

fn failure(error: &InputError) -> Failure {
    let (code, hint) = match error {
        InputError::Missing { path } => return missing::run_or_file(&path.display().to_string()),
        InputError::Empty { .. } => (
            "no_gpu_code",
            "what is read: cubin, fatbin, PTX, ELF objects and libraries, .a, .whl, .zip, .ncu-rep",
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

/// The output folder; made when something is written.
fn out(app: &App, args: &DisasmArgs) -> PathBuf {
    let default = || {
        let artifacts = app.config.runs_dir.value.parent().map(Path::to_owned);
        artifacts.unwrap_or_else(|| app.cwd.join("artifacts")).join("sass")
    };
    args.out.clone().unwrap_or_else(default)
}

/// The document as it is written and printed. Inputs are many, so each is rendered by itself, on any
/// core.
fn rendered(document: &Disasm) -> Result<String> {
    let bug = |e: serde_json::Error| {
        Failure::new(Exit::Bug, "bug", "the summary cannot be written as JSON").cause(e)
    };
    let inputs = disasm::spread(document.inputs.len(), |at| json::within(&document.inputs[at], 2));
    let inputs = inputs.into_iter().collect::<serde_json::Result<Vec<_>>>().map_err(bug)?;
    let (schema, rgpu) = (document.schema.clone(), document.rgpu.clone());
    let frame = json::pretty(&Disasm { schema, rgpu, inputs: Vec::new() }).map_err(bug)?;
    let Some((head, tail)) = frame.rsplit_once("[]").filter(|_| !inputs.is_empty()) else {
        return Ok(frame);
    };
    let room: usize = inputs.iter().map(|input| input.len() + ",\n    ".len()).sum();
    let mut text = String::with_capacity(frame.len() + room + 8);
    text.push_str(head);
    for (at, input) in inputs.iter().enumerate() {
        text.push_str(if at == 0 { "[\n    " } else { ",\n    " });
        text.push_str(input);
    }
    text.push_str("\n  ]");
    text.push_str(tail);
    Ok(text)
}

fn save(out: &Path, text: &str) -> Result<()> {
    std::fs::create_dir_all(out).map_err(|e| {
        Failure::new(Exit::Disk, "no_folder", "the output folder cannot be made")
            .file(out.display())
            .cause(e)
    })?;
    let path = out.join(SUMMARY);
    atomic::write(&path, text.as_bytes()).map_err(|e| {
        Failure::new(Exit::Disk, "unwritten", "the summary cannot be written")
            .file(path.display())
            .cause(e)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::disasm::{Image, Input};

    #[test]
    fn inputs_rendered_apart_are_the_document() {
        let image = Image { arch: "sm_90a".to_owned(), ..Image::default() };
        let input = Input { path: "[]".to_owned(), images: vec![image], ..Input::default() };
        for count in 0..3 {
            let document = Disasm { inputs: vec![input.clone(); count], ..Disasm::default() };
            assert_eq!(rendered(&document).unwrap(), json::pretty(&document).unwrap());
        }
    }
}
