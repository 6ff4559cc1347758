//! `rgpu disasm`: shows the GPU code in files: facts about kernels, SASS, PTX. Needs no host and no
//! GPU; of NVIDIA's tools it uses only nvdisasm, for the operands of instructions.

#![expect(clippy::disallowed_methods, reason = "files and folders that the user named")]

mod args;
mod diff;
mod hot;
mod known;
mod launched;
mod output_file;
mod page;
mod progress;
mod show;
mod tool;
mod view;

pub(super) use args::DisasmArgs;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use regex::Regex;

use super::support::app::{App, Status};
use super::support::{missing, overwrite};
use args::{Format, Tool, View};

use rgpu_import::gpu_code::ListingColumns;
use rgpu_model::disasm::{Input, ReadStatus as Ended};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::json;
use rgpu_run::disasm::{self, FileNames, ImageFilter, ImageTask, InputError, Inputs, NamedInput};
use rgpu_run::store::{RunFolder, StoreError, atomic};

pub(super) fn run(app: &App, args: &DisasmArgs) -> Result<Status> {
    let listed = args.diff || args.hot || args.view.is_some() || args.format.is_some();
    if args.tool == Tool::None && (listed || args.per_kernel) {
        return Err(Failure::new(Exit::Usage, "usage", "`--tool none` lists no instructions")
            .hint("to list without nvdisasm: `--tool rgpu`"));
    }
    if args.tool == Tool::Rgpu && args.view == Some(View::Live) {
        let message = "`--tool rgpu` lists no operands, but life ranges need them";
        return Err(Failure::new(Exit::Usage, "usage", message)
            .hint("leave `--tool` out: nvdisasm prints operands"));
    }
    if let Some(reason) = reason_unused(args).filter(|_| args.remote.is_some()) {
        return Err(Failure::new(Exit::Usage, "usage", format!("{reason}: no host is needed"))
            .hint(
                "leave `--remote` out; it only selects where nvdisasm runs, and the files are \
                   on this machine",
            ));
    }
    if args.diff {
        return diff::run(app, args);
    }
    if args.list && !args.kernel_name.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "usage",
            "`--list` does not read kernels, so `-k` has no effect",
        )
        .hint("`--tool none` shows facts about kernels and writes no listings"));
    }
    let html = view::format(args) == Some(Format::Html) && args.view.is_none();
    if args.hot {
        return if html { page::write_hot_page(app, args) } else { hot::run(app, args) };
    }
    let named = named_inputs(app, &args.what)?;
    if let ([NamedInput::Run(run)], true) = (named.as_slice(), html)
        && let Some(status) = page::write_run_page(app, args, run)?
    {
        return Ok(status);
    }
    if let Some(failure) = args.what.iter().find_map(|name| missing::compiled_code(name)) {
        return Err(failure);
    }
    let Inputs { files, reports } = disasm::inputs(&named).map_err(|error| failure(&error))?;
    if let [first, ..] = reports.as_slice() {
        let first = first.display();
        app.print_note(&match reports.len() {
            1 => format!("skipped: `{first}`; name it to read the cubins in it"),
            n => format!("skipped: {n} reports of ncu; name one to read its cubins: `{first}`"),
        });
    }
    let launched = launched::symbols(app, args, &named);
    if launched.is_some() {
        app.print_note("only kernels that were launched are shown; `--all-kernels` shows all");
    }
    let filter = ImageFilter { launched, ..image_filter(args)? };
    if html {
        return page::write_page(app, args, &files, filter);
    }
    if let Some(view) = args.view {
        check_format(view, args)?;
        let mut task = ImageTask {
            filter,
            columns: listing_columns(args),
            life_ranges: view::life_ranges(view),
            ..ImageTask::default()
        };
        if matches!(view, View::Sass | View::Source | View::Live) {
            task.nvdisasm = tool::chosen(app, args, &files, &task)?;
        }
        return view::run(app, args, &files, &task, view);
    }
    if let Some(format) = args.format {
        return Err(misplaced(format));
    }
    listings(app, args, &files, filter)
}

/// Why nvdisasm is not used. `None` if it is.
fn reason_unused(args: &DisasmArgs) -> Option<&'static str> {
    match args.tool {
        _ if args.list => Some("`--list` reads headers, in process"),
        _ if args.hot => Some("`--hot` shows instructions as its run stored them"),
        Tool::Rgpu => Some("`--tool rgpu` lists in process"),
        Tool::None => Some("`--tool none` lists no instructions"),
        Tool::Auto | Tool::Nvdisasm => None,
    }
}

/// Writes listings and facts of every file, or with `--list` prints their contents.
fn listings(
    app: &App,
    args: &DisasmArgs,
    files: &[PathBuf],
    filter: ImageFilter,
) -> Result<Status> {
    let mut task = ImageTask {
        filter,
        write_listings: !args.list && args.tool != Tool::None,
        by_kernel: args.per_kernel,
        extract: args.extract,
        list_only: args.list,
        columns: listing_columns(args),
        threads: args.block,
        out: if args.list { None } else { Some(output_folder(app, args)?) },
        ..ImageTask::default()
    };
    if let Some(out) = task.out.as_ref().filter(|out| out.is_file()) {
        return Err(Failure::new(
            Exit::Usage,
            "no_folder",
            "listings go into a folder, this is a file",
        )
        .file(out.display())
        .hint("name a folder, new or old: `--out FOLDER`")
        .hint("one file is written by `--view sass --out FILE`, a page by `--format html`"));
    }
    if !args.list {
        task.nvdisasm = tool::chosen(app, args, files, &task)?;
    }
    if let Some(out) = &task.out {
        reserve_input_names(&task.names, out, files);
        if !args.force {
            overwrite::check(&out.join(SUMMARY), SUMMARY_HEAD)?;
        }
    }
    let bar = progress::FilesBar::new(app, files.len());
    let last = files.len().saturating_sub(1);
    let renders_text = task.out.is_some() || app.global.json;
    let inputs = disasm::read_all(files, &task, &|number, mut input| {
        bar.done();
        if app.global.verbose > 0 {
            app.print_note(&format!("{}: {} images", input.path, input.images.len()));
        }
        let text = if renders_text { entry(&input, number == last) } else { Ok(Vec::new()) };
        let empty = input.images.iter().all(|i| i.kernels.is_empty() && i.entries.is_empty());
        let symbols = match args.kernel_name.len() {
            0 | 1 => Vec::new(),
            _ => symbols(&input),
        };
        if app.global.json {
            // The text already has them: free the memory for the next file.
            input.images.iter_mut().for_each(|image| image.kernels = Vec::new());
        }
        text.map(|text| PrintedInput { input, text, empty, symbols })
    });
    drop(bar);
    if let (Some(why), Some(out)) = (task.first_write_error.get(), &task.out) {
        return Err(Failure::new(Exit::Disk, "unwritten", "the listings cannot be written")
            .file(out.display())
            .cause(why)
            .hint("`--out FOLDER` writes them elsewhere"));
    }
    let mut printed = inputs.into_iter().collect::<io::Result<Vec<PrintedInput>>>().map_err(bug)?;
    let all_failed = printed.iter().all(|t| t.input.status == Ended::Failed);
    let none = !args.list && printed.iter().all(|t| t.empty);
    let no_kernel = !args.kernel_name.is_empty() && none;
    let no_arch = !args.arch.is_empty() && printed.iter().all(|t| t.input.images.is_empty());
    let unmatched = if no_kernel || no_arch { known::unmatched(args, files) } else { None };
    if let Some(failure) = unmatched {
        printed.retain(|t| t.input.errors != [disasm::OTHER_ARCHES]);
        show::errors(app, printed.iter().map(|t| &t.input));
        return Err(failure);
    }
    known::report_unmatched_names(
        app,
        args,
        printed.iter().flat_map(|t| &t.symbols).map(String::as_str),
    )?;
    // A failed command leaves the earlier output in place.
    let out = task.out.as_ref().filter(|_| !all_failed);
    let frame = frame()?;
    let parts = || frame.parts(printed.iter().map(|t| t.text.as_slice()));
    if let Some(out) = out {
        save(out, parts())?;
    }
    if app.global.json {
        parts().for_each(|part| app.print_bytes(part));
    } else {
        show::table(app, printed.iter().map(|t| &t.input), args.list);
        if let Some(note) = show::occupancy_note(printed.iter().map(|t| &t.input)) {
            app.print_note(&note);
        }
        if let Some(out) = out {
            let listings = if task.write_listings { "listings and " } else { "" };
            app.print_note(&format!("{listings}summary.json: {}", out.display()));
        }
    }
    show::errors(app, printed.iter().map(|t| &t.input));
    let failed = printed.iter().any(|t| t.input.status != Ended::Ok);
    // The process ends here, and freeing all names one by one takes time.
    std::mem::forget(printed);
    Ok(if failed { Exit::Artifact as u8 } else { 0 })
}

/// An input that was read and rendered.
struct PrintedInput {
    /// With `--json` its kernels are dropped: the text has them.
    input: Input,
    /// Its lines of the document; empty if no document is written.
    text: Vec<u8>,
    /// Whether no kernel was found.
    empty: bool,
    /// Its kernels, if several names were given with `-k`.
    symbols: Vec<String>,
}

fn symbols(input: &Input) -> Vec<String> {
    let kernels = input.images.iter().flat_map(|i| &i.kernels).map(|kernel| &kernel.symbol);
    kernels.chain(input.images.iter().flat_map(|i| &i.entries)).cloned().collect()
}

/// The document written beside listings, and how it begins.
const SUMMARY: &str = "summary.json";
const SUMMARY_HEAD: &[u8] = b"{\n  \"schema\": \"rgpu.disasm/1\"";

/// Reserves the names of inputs that are in the output folder, so that nothing overwrites them.
fn reserve_input_names(names: &FileNames, out: &Path, files: &[PathBuf]) {
    let Ok(existing) = std::fs::read_dir(out) else { return };
    let existing: HashSet<OsString> = existing.flatten().map(|entry| entry.file_name()).collect();
    for file in files {
        if let Some(name) = file.file_name().filter(|name| existing.contains(*name))
            && output_file::is_same_file(file, &out.join(name))
        {
            names.reserve(&name.to_string_lossy());
        }
    }
}

fn listing_columns(args: &DisasmArgs) -> ListingColumns {
    ListingColumns { control: args.control_codes, lines: args.line_info }
}

/// Checks that a view can be written in the format of `--format`, or of the extension of `--out`.
fn check_format(view: View, args: &DisasmArgs) -> Result<()> {
    match (view, args.format) {
        (View::Cfg, Some(Format::Dot | Format::Svg)) => return Ok(()),
        (_, Some(format)) => return Err(misplaced(format)),
        (_, None) => {}
    }
    let Some(out) = &args.out else { return Ok(()) };
    let ending = out.extension().and_then(|e| e.to_str()).unwrap_or_default().to_lowercase();
    let usage_error =
        |words: String| Err(Failure::new(Exit::Usage, "usage", words).file(out.display()));
    match (view, ending.as_str()) {
        (View::Cfg, "dot" | "gv" | "svg" | "") => Ok(()),
        (_, "html" | "htm") => Err(misplaced(Format::Html).file(out.display())),
        (_, "json") => usage_error(format!("`--view {}` is written as text", view.name()))
            .map_err(|failure| failure.hint("`--json` prints its document: redirect that")),
        (View::Cfg, other) => usage_error(format!("control flow is not written as `.{other}`"))
            .map_err(|failure| {
                failure
                    .hint("use `.svg` or Graphviz (`.dot`), or `--json` on stdout")
                    .hint("Graphviz writes other formats: dot -Tpng x.dot -o x.png")
            }),
        (_, "svg" | "dot" | "gv" | "png" | "pdf" | "jpg") => {
            usage_error(format!("`--view {}` is text, only `--view cfg` is drawn", view.name()))
        }
        _ => Ok(()),
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

/// The filters of `--arch` and `-k`.
fn image_filter(args: &DisasmArgs) -> Result<ImageFilter> {
    let kernels = args.kernel_name.iter().map(|k| pattern(k)).collect::<Result<Vec<Regex>>>()?;
    Ok(ImageFilter { arches: args.arch.clone(), kernels, launched: None })
}

/// Resolves the arguments: paths stay paths, anything else is a run.
fn named_inputs(app: &App, names: &[String]) -> Result<Vec<NamedInput>> {
    let mut all = Vec::new();
    for name in names {
        let path = Path::new(name);
        let metadata = std::fs::metadata(path);
        app.config.check_input(&app.cwd, path)?;
        if metadata.as_ref().is_ok_and(|metadata| metadata.is_dir())
            && path.join("run.json").is_file()
        {
            // It refuses a run with a link in it.
            let run = RunFolder::open(path)?;
            all.push(NamedInput::Run(run.path().to_owned()));
        } else if metadata.as_ref().is_ok_and(|metadata| !metadata.is_dir()) {
            all.push(NamedInput::File(path.to_owned()));
        } else if metadata.is_ok() || name.contains(['/', '.', '*']) {
            all.push(NamedInput::Path(path.to_owned()));
        } else {
            all.push(NamedInput::Run(run_with_code(app, name)?));
        }
    }
    Ok(all)
}

/// Whether a run has GPU code.
fn has_code(folder: &RunFolder) -> bool {
    disasm::inputs(&[NamedInput::Run(folder.path().to_owned())]).is_ok()
}

/// The folder of a run. `latest` passes over runs without GPU code, such as commands and failures,
/// and the user is told.
fn run_with_code(app: &App, name: &str) -> Result<PathBuf> {
    let runs = app.runs();
    let found = runs.find_preferring(name, has_code).map_err(|e| match e {
        StoreError::Unknown(_) => missing::run_or_file(name),
        other => other.into(),
    })?;
    let path = found.path().to_owned();
    if runs.find(name).is_ok_and(|named| named.path() != path) {
        let id = path.file_name().unwrap_or_default().to_string_lossy();
        app.print_note(&format!("`{name}` is `{id}` here: newer runs have no GPU code"));
    }
    Ok(path)
}

fn failure(error: &InputError) -> Failure {
    let (code, hint) = match error {
        InputError::Missing { path } => return missing::run_or_file(&path.display().to_string()),
        InputError::Empty { .. } => (
            "no_gpu_code",
            "rgpu reads cubin, fatbin, PTX, ELF objects and libraries, .a, .whl, .zip, .ncu-rep",
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
        // A demangled name continues with its arguments.
        None => format!(r"(^|[ :]){}($|[(<])", regex::escape(typed)),
    };
    Regex::new(&pattern).map_err(|e| {
        Failure::new(
            Exit::Usage,
            "bad_regex",
            format!(
                "`{typed}` is not a valid regular \
                                                        expression"
            ),
        )
        .cause(e)
    })
}

/// The output folder. It is created when something is written.
fn output_folder(app: &App, args: &DisasmArgs) -> Result<PathBuf> {
    args.out.clone().map_or_else(|| app.config.folder_beside_runs("sass"), Ok)
}

/// The document around its inputs. There are many, so each is rendered when it is read.
struct DocumentFrame {
    text: String,
    /// Byte position of the inputs in `text`.
    at: usize,
}

fn frame() -> Result<DocumentFrame> {
    let text = json::pretty(&disasm::document(Vec::new())).map_err(bug)?;
    let at = text.rfind("[]").map_or(text.len(), |at| at + 1);
    Ok(DocumentFrame { text, at })
}

impl DocumentFrame {
    /// The pieces of the document's text: head, inputs, tail.
    fn parts<'p>(
        &'p self,
        inputs: impl Iterator<Item = &'p [u8]>,
    ) -> impl Iterator<Item = &'p [u8]> {
        let mut inputs = inputs.filter(|input| !input.is_empty()).peekable();
        let (head, tail) = self.text.as_bytes().split_at(self.at);
        let (line, space): (&[u8], &[u8]) = match inputs.peek() {
            Some(_) => (b"\n", b"  "),
            None => (b"", b""),
        };
        [head, line].into_iter().chain(inputs).chain([space, tail])
    }
}

/// The document's lines for one input.
fn entry(input: &Input, last: bool) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(1 << 14);
    text.extend_from_slice(b"    ");
    json::write_at(&mut text, input, 2)?;
    text.extend_from_slice(if last { b"\n" } else { b",\n" });
    text.shrink_to_fit();
    Ok(text)
}

fn bug(cause: io::Error) -> Failure {
    Failure::new(Exit::Bug, "bug", "the summary cannot be written as JSON").cause(cause)
}

fn save<'p>(out: &Path, parts: impl Iterator<Item = &'p [u8]>) -> Result<()> {
    let path = out.join(SUMMARY);
    atomic::write_parts(&path, parts).map_err(|e| {
        Failure::new(Exit::Disk, "unwritten", "the summary cannot be written")
            .file(path.display())
            .cause(e)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::disasm::Image;

    #[test]
    fn inputs_rendered_apart_are_the_document() {
        let image = Image { arch: "sm_90a".to_owned(), ..Image::default() };
        let input = Input { path: "[]".to_owned(), images: vec![image], ..Input::default() };
        for count in 0..3 {
            let document = disasm::document(vec![input.clone(); count]);
            let inputs = document.inputs.iter().enumerate();
            let texts: Vec<_> = inputs.map(|(at, i)| entry(i, at + 1 == count).unwrap()).collect();
            let frame = frame().unwrap();
            let parts: Vec<&[u8]> = frame.parts(texts.iter().map(Vec::as_slice)).collect();
            assert_eq!(parts.concat(), json::pretty(&document).unwrap().into_bytes());
        }
    }
}
