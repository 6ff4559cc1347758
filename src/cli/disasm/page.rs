//! `--format html`: one page with source, PTX and SASS side by side, and a run's samples if it has
//! some.

use std::path::{Path, PathBuf};

use super::output_file::OutputFile;
use super::{
    DisasmArgs, hot, image_filter, known, listing_columns, output_file, output_folder, tool, view,
};
use crate::cli::support::app::{App, Status};
use crate::cli::support::nvdisasm::find_here;
use crate::cli::support::open_profile::open_run;
use rgpu_model::HotSpots;
use rgpu_model::code::{CodeDocument, SCHEMA};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::code::page;
use rgpu_run::disasm::{self, ImageFilter, ImageTask, LifeRanges, SourcePositions, read_code};
use rgpu_run::store::RunFolder;

/// Writes the page of files.
pub(super) fn write_page(
    app: &App,
    args: &DisasmArgs,
    files: &[PathBuf],
    filter: ImageFilter,
) -> Result<Status> {
    let mut task = ImageTask {
        filter,
        columns: listing_columns(args),
        life_ranges: LifeRanges::Optional,
        ..ImageTask::default()
    };
    task.nvdisasm = tool::chosen(app, args, files, &task)?;
    let mut read = |file: &Path, cubin: &_, bytes: &[u8]| {
        // Life ranges are optional here: without them the page is still made.
        let image = read_code(file, cubin, bytes, &task, SourcePositions::Read);
        image.map(view::CubinImage::Image).map_err(|e| view::failure(app, &e, "html"))
    };
    let document = view::gather(app, files, "page", &mut read, &task)?;
    let failed = !document.errors.is_empty();
    if document.images.iter().all(|i| i.kernels.is_empty()) {
        if failed {
            return Ok(Exit::Artifact as u8);
        }
        return Err(known::unmatched(args, files).unwrap_or_else(|| {
            Failure::new(Exit::Artifact, "nothing_to_show", "the files contain no SASS")
                .hint("`--list` shows the content")
        }));
    }
    let stem = files.first().and_then(|f| f.file_stem());
    let name = stem.map_or("code".into(), |s| s.to_string_lossy());
    write_document(app, args, files, &document, &name)?;
    Ok(if failed { Exit::Artifact as u8 } else { 0 })
}

/// Writes the page of `--hot`, for one run or one report.
pub(super) fn write_hot_page(app: &App, args: &DisasmArgs) -> Result<Status> {
    let (spots, folder) = hot::spots(app, args)?;
    write_sampled_page(app, args, &spots, folder.as_deref())
}

/// Writes the page of a run with samples. `None` if it has none.
pub(super) fn write_run_page(app: &App, args: &DisasmArgs, run: &Path) -> Result<Option<Status>> {
    let Ok(opened) = RunFolder::open(run).map_err(Failure::from).and_then(|run| open_run(&run))
    else {
        return Ok(None);
    };
    match opened.sidecars.hotspots {
        Some(spots) if !spots.launches.is_empty() => {
            write_sampled_page(app, args, &spots, opened.folder.as_deref()).map(Some)
        }
        _ => Ok(None),
    }
}

fn write_sampled_page(
    app: &App,
    args: &DisasmArgs,
    spots: &HotSpots,
    folder: Option<&Path>,
) -> Result<Status> {
    let mut task = ImageTask {
        filter: image_filter(args)?,
        columns: listing_columns(args),
        life_ranges: LifeRanges::Optional,
        ..ImageTask::default()
    };
    if args.tool != super::args::Tool::Rgpu {
        task.nvdisasm = find_here(app);
        if task.nvdisasm.is_none() {
            app.print_note("no nvdisasm here: instructions come without operands");
        }
    }
    let name = args.what.first().map_or("code", String::as_str);
    let path = |from: &str| folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(from));
    let mut document = CodeDocument {
        schema: SCHEMA.to_owned(),
        rgpu: env!("CARGO_PKG_VERSION").to_owned(),
        view: "page".to_owned(),
        ..CodeDocument::default()
    };
    let mut reports: Vec<&str> = spots.launches.iter().map(|l| l.from.as_str()).collect();
    reports.sort_unstable();
    reports.dedup();
    for from in reports {
        let images = disasm::sampled(spots, from, &path(from), &task).map_err(|e| {
            Failure::new(Exit::Artifact, "unreadable", "the report's code cannot be read")
                .file(path(from).display())
                .cause_from(&e)
        })?;
        document.images.extend(images);
    }
    if document.images.is_empty() {
        let message = "the report has no cubin with samples";
        return Err(Failure::new(Exit::Artifact, "nothing_to_show", message)
            .file(name)
            .hint("`rgpu disasm RUN --hot` lists the offsets that were sampled"));
    }
    let stem = Path::new(name).file_stem().map_or("code".into(), |s| s.to_string_lossy());
    let files: Vec<PathBuf> = args.what.iter().map(PathBuf::from).collect();
    write_document(app, args, &files, &document, &stem)?;
    Ok(0)
}

/// Writes the page where the user asked, else beside the listings.
fn write_document(
    app: &App,
    args: &DisasmArgs,
    files: &[PathBuf],
    document: &CodeDocument,
    name: &str,
) -> Result<()> {
    if app.global.json {
        return app.print_json(document);
    }
    let text = page(document, name);
    let default = || {
        let safe = |c: char| if c.is_alphanumeric() || "._-+".contains(c) { c } else { '_' };
        let name: String = name.trim_start_matches('.').chars().map(safe).collect();
        output_folder(app, args).map(|folder| folder.join(format!("{name}.html")))
    };
    let file = args.out.clone().map_or_else(default, Ok)?;
    output_file::write_text(app, Some(OutputFile { path: &file, args, inputs: files }), &text)
}
