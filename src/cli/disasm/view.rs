//! `--view`: prints one view of the files, on stdout or into a file; with `--json` its document.

use std::path::PathBuf;

use clap::ValueEnum;
use rgpu_format::cubin::{self, Cubin};
use rgpu_format::ptx;
use rgpu_format::sass;

use super::args::{DisasmArgs, Format, View};
use super::output_file::OutputFile;
use super::{known, output_file, show};
use crate::cli::support::app::{App, Status};
use rgpu_model::code::{CodeDocument, CodeImage, SCHEMA};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::code::{ExtraColumn, dot, live, mix, source, svg};
use rgpu_run::disasm::{
    CodeError, ImageTask, LifeRanges, SourcePositions, first_errors, image_bytes, listing,
    read_code,
};

/// Whether a view needs life ranges.
pub(super) fn life_ranges(view: View) -> LifeRanges {
    if view == View::Live { LifeRanges::Required } else { LifeRanges::Skip }
}

/// Whether a view needs source positions.
fn source_positions(view: View) -> SourcePositions {
    match view {
        View::Sass | View::Source => SourcePositions::Read,
        View::Ptx | View::Mix | View::Cfg | View::Live => SourcePositions::Skip,
    }
}

/// Shows the view of every image of every file.
pub(super) fn run(
    app: &App,
    args: &DisasmArgs,
    files: &[PathBuf],
    task: &ImageTask,
    view: View,
) -> Result<Status> {
    let json = app.global.json;
    let (mut texts, mut first_failure) = (Vec::new(), None);
    let mut document = gather_quietly(
        files,
        view.name(),
        &mut |file, cubin, bytes| {
            let image = match read_code(file, cubin, bytes, task, source_positions(view)) {
                Ok(image) => image,
                Err(error @ CodeError::NoTool) => return Err(failure(app, &error, view.name())),
                Err(error) => {
                    first_failure.get_or_insert_with(|| failure(app, &error, view.name()));
                    return Ok(CubinImage::Refused(format!("{}: {error}", cubin.sm)));
                }
            };
            if view == View::Sass && !json && !image.kernels.is_empty() {
                // nvdisasm's own text, including what it prints around the instructions.
                let (text, tool, problem) = listing(cubin, bytes, task);
                if let Some(problem) = problem {
                    app.print_note(&show::problem_of(&image.arch, &problem));
                }
                app.print_note(&format!("{}: listed by {tool}", cubin.sm));
                texts.push(text);
            }
            Ok(CubinImage::Image(image))
        },
        task,
    )?;
    document.images.iter_mut().for_each(|image| trim_to_view(image, view));
    document.images.retain(|image| match view {
        View::Ptx => image.ptx.is_some(),
        View::Source => {
            image.kernels.iter().flat_map(|k| &k.instructions).any(|i| !i.at.is_empty())
        }
        View::Mix => image.kernels.iter().any(|k| !k.classes.is_empty()),
        View::Cfg => image.kernels.iter().any(|k| !k.blocks.is_empty()),
        View::Sass | View::Live => !image.kernels.is_empty(),
    });
    // If one error kept everything from being shown, the command fails with it instead.
    if document.errors.len() > 1 || first_failure.is_none() || !document.images.is_empty() {
        document.errors.iter().for_each(|error| app.print_error(error));
    }
    let status = match (&first_failure, document.errors.is_empty()) {
        (Some(failure), _) => failure.exit as u8,
        (None, false) => Exit::Artifact as u8,
        (None, true) => 0,
    };
    if document.images.is_empty() {
        match first_failure {
            Some(failure) => return Err(failure),
            None if status == 0 => return Err(nothing(args, files, view)),
            None => {}
        }
    }
    let kernels = document.images.iter().flat_map(|i| &i.kernels);
    known::report_unmatched_names(app, args, kernels.map(|kernel| kernel.symbol.as_str()))?;
    if json {
        app.print_json(&document)?;
        return Ok(status);
    }
    let images = &document.images;
    let text = match (view, format(args)) {
        (View::Sass, _) => texts.join("\n"),
        // The PTX has empty lines for code that the compiler removed, so that the line table fits.
        // A reader does not need those at the start.
        (View::Ptx, _) => images
            .iter()
            .filter_map(|i| i.ptx.as_deref())
            .map(|ptx| ptx.trim_start_matches(['\n', '\r']))
            .collect(),
        (View::Cfg, Some(Format::Svg)) => svg(images),
        (View::Cfg, _) => images.iter().map(dot).collect(),
        (View::Mix, _) => images.iter().map(|i| mix(i, app.columns(), &class_of)).collect(),
        (View::Source, _) => {
            let column =
                if args.control_codes { ExtraColumn::Control } else { ExtraColumn::Nothing };
            images.iter().filter_map(|i| source(i, column)).collect()
        }
        (View::Live, _) => images.iter().filter_map(live).collect::<Vec<_>>().join("\n"),
    };
    if !text.is_empty() {
        output_file::write_text(
            app,
            args.out.as_deref().map(|path| OutputFile { path, args, inputs: files }),
            &text,
        )?;
    }
    Ok(status)
}

/// The format of `--format`, or of the extension of `--out`.
pub(super) fn format(args: &DisasmArgs) -> Option<Format> {
    let ending = || match args.out.as_ref()?.extension()?.to_str()? {
        "svg" => Some(Format::Svg),
        "dot" | "gv" => Some(Format::Dot),
        "html" | "htm" => Some(Format::Html),
        _ => None,
    };
    args.format.or_else(ending)
}

/// Turns one cubin into an image.
type CubinReader<'r> = dyn FnMut(&std::path::Path, &Cubin, &[u8]) -> Result<CubinImage> + 'r;

/// The result of reading a cubin.
pub(super) enum CubinImage {
    Image(CodeImage),
    /// It cannot be shown, for this reason. The others are still shown.
    Refused(String),
}

/// The code of every image, with PTX images unchanged. Errors are printed and kept in the document.
pub(super) fn gather(
    app: &App,
    files: &[PathBuf],
    view: &str,
    read: &mut CubinReader<'_>,
    task: &ImageTask,
) -> Result<CodeDocument> {
    let document = gather_quietly(files, view, read, task)?;
    document.errors.iter().for_each(|error| app.print_error(error));
    Ok(document)
}

/// Like [`gather`], without printing errors.
pub(super) fn gather_quietly(
    files: &[PathBuf],
    view: &str,
    read: &mut CubinReader<'_>,
    task: &ImageTask,
) -> Result<CodeDocument> {
    let mut document = CodeDocument {
        schema: SCHEMA.to_owned(),
        rgpu: env!("CARGO_PKG_VERSION").to_owned(),
        view: view.to_owned(),
        ..CodeDocument::default()
    };
    for file in files {
        let shown = file.display();
        let (images, mut errors) = match image_bytes(file, task) {
            Ok(found) => found,
            Err(error) => (Vec::new(), vec![error]),
        };
        for (place, bytes) in images {
            if cubin::is_cubin(&bytes) {
                match cubin::read(&bytes) {
                    // Only its content gives the architecture of a bare cubin.
                    Ok(cubin) if !task.filter.matches_arch(&cubin.sm.to_string()) => {}
                    // Do not run a tool on code that is filtered out.
                    Ok(cubin) if !any_selected(&cubin, task) => {}
                    Ok(cubin) => match read(file, &cubin, &bytes)? {
                        CubinImage::Image(image) => {
                            document.images.push(CodeImage { place, ..image });
                        }
                        CubinImage::Refused(why) => errors.push(if place.is_empty() {
                            why
                        } else {
                            format!("{place}: {why}")
                        }),
                    },
                    Err(error) if place.is_empty() => errors.push(error.to_string()),
                    Err(error) => errors.push(format!("{place}: {error}")),
                }
            } else if let Some(module) =
                ptx::is_ptx(&bytes).then(|| String::from_utf8_lossy(&bytes))
            {
                match ptx::read(&module) {
                    Ok(ptx) => document.images.push(CodeImage {
                        path: shown.to_string(),
                        place,
                        arch: ptx.target,
                        ptx: Some(module.into_owned()),
                        ..CodeImage::default()
                    }),
                    Err(error) => errors.push(error.to_string()),
                }
            }
        }
        let errors = first_errors(errors);
        document.errors.extend(errors.iter().map(|error| format!("`{shown}`: {error}")));
    }
    Ok(document)
}

/// Whether `-k` selects a kernel of the cubin.
fn any_selected(cubin: &Cubin, task: &ImageTask) -> bool {
    task.filter.selects_all_kernels()
        || cubin.code.iter().any(|s| task.filter.matches_kernel(&s.name))
}

/// Removes what the view does not show.
fn trim_to_view(image: &mut CodeImage, view: View) {
    if view != View::Ptx && view != View::Source {
        (image.ptx, image.sources) = (None, Vec::new());
    }
    if view == View::Source {
        image.ptx = None;
    }
    if view == View::Ptx {
        (image.kernels, image.tool) = (Vec::new(), None);
    }
    if matches!(view, View::Mix | View::Cfg) {
        image.tool = None;
    }
    for kernel in &mut image.kernels {
        if matches!(view, View::Mix | View::Cfg) {
            kernel.instructions.clear();
        }
        if view != View::Mix {
            kernel.classes.clear();
            kernel.mnemonics.clear();
        }
        if view != View::Cfg {
            kernel.blocks.clear();
        }
    }
}

fn class_of(name: &str) -> String {
    sass::Class::named(name).name().to_owned()
}

/// The failure for a cubin's code that cannot be shown.
pub(super) fn failure(app: &App, error: &CodeError, view: &str) -> Failure {
    let message = format!("`--view {view}` cannot be shown");
    let (code, hint) = match error {
        CodeError::NoTool => ("no_nvdisasm", Some(app.setup_nvdisasm())),
        CodeError::Tool(error) => ("nvdisasm", show::help_for(&error.to_string())),
        CodeError::NoLives => ("nvdisasm", None),
    };
    let failure = Failure::new(Exit::Tool, code, message).cause(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// The failure if nothing is left to show.
fn nothing(args: &DisasmArgs, files: &[PathBuf], view: View) -> Failure {
    if let Some(failure) = known::unmatched(args, files) {
        return failure;
    }
    let hint = match view {
        View::Ptx => "PTX is in fatbins and in cubins built with -lineinfo",
        View::Source => "source lines are in cubins built with -lineinfo or -G",
        View::Mix | View::Cfg => {
            "instructions can be listed from sm_70 on; `--list` shows the content"
        }
        _ => "`--list` shows the content",
    };
    let name =
        view.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let what = format!("the files have nothing for `--view {name}`");
    Failure::new(Exit::Artifact, "nothing_to_show", what).hint(hint)
}
