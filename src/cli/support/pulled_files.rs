//! Puts pulled files in place: the run folder keeps them, and the local working folder gets them
//! under their own names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::app::App;
use super::file_args::FileArgs;
use super::pull_check::{
    DestinationCheck, DestinationVerdict, SkipReason, SkippedFile, skip_reason_for_name,
};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_protocol::plan::valid_relative_path;
use rgpu_run::run::{FileCopies, HostFile};
use rgpu_run::store::{DestinationError, DestinationRoot, RunFolder, RunRecord};

/// Checks a pattern here, so that the message quotes what the user typed.
pub(in crate::cli) fn check(pattern: &str) -> Result<()> {
    let bad_pattern = |why: &str| {
        let what = format!("`--pull {pattern}`: {why}");
        Err(Failure::new(Exit::Usage, "bad_pattern", what)
            .hint("a path in the working folder; `*` stands for any characters but `/`, `**` for any: 'out/**'"))
    };
    if !valid_relative_path(pattern.trim_start_matches("./")) {
        return bad_pattern("it is not a path inside the working folder");
    }
    match pattern.chars().find(|c| "[]?{}".contains(*c)) {
        Some(sign) => bad_pattern(&format!("`{sign}` has no meaning in a pattern")),
        None => Ok(()),
    }
}

/// Copies of pulled files, written into the working folder while the files arrive.
pub(in crate::cli) fn copies(app: &App, args: &FileArgs) -> FileCopies {
    let root = DestinationRoot::open(&root(app, args)).ok();
    let patterns = args.pull.clone();
    FileCopies::to(move |artifact_path| {
        let name = artifact_path.strip_prefix("pulled/")?;
        // `write_pulled_files` reports skipped files and failed writes later.
        skip_reason_for_name(&patterns, name).is_none().then_some(())?;
        root.as_ref()?.destination(name).ok()
    })
}

/// The folder that was mounted first, else the current one.
fn root(app: &App, args: &FileArgs) -> PathBuf {
    let mounted = args.mount.first().map(|text| app.cwd.join(text)).filter(|path| path.is_dir());
    mounted.unwrap_or_else(|| app.cwd.clone())
}

/// The pulled files, split by whether they were put into the working folder.
#[derive(Default)]
pub(in crate::cli) struct PulledFiles {
    /// Names of those that are in it.
    pub(in crate::cli) names: Vec<String>,
    /// Those that are only in the run folder.
    pub(in crate::cli) skipped: Vec<SkippedFile>,
}

/// Puts the files into the folder that was mounted first, else into the current one. Uses the
/// copies that exist already.
pub(in crate::cli) fn write_pulled_files(
    app: &App,
    args: &FileArgs,
    (folder, record): (&RunFolder, &RunRecord),
    pulled: &[HostFile],
    copies: &mut FileCopies,
) -> Result<PulledFiles> {
    let mut placed = PulledFiles::default();
    if pulled.is_empty() {
        return Ok(placed);
    }
    let path = root(app, args);
    let unwritten = |destination_path: &Path, run_file: &Path, error: std::io::Error| {
        Failure::new(Exit::Disk, "disk", "a pulled file cannot be written")
            .file(destination_path.display())
            .cause(error)
            .hint(format!("it is in the run folder: {}", run_file.display()))
    };
    let root = DestinationRoot::open(&path).map_err(|e| unwritten(&path, folder.path(), e))?;
    let destination_check = DestinationCheck::new(folder, record);
    for file in pulled {
        let run_file = folder.path().join(&file.artifact.path);
        // In the run folder, a file has another name if one differs from it by case alone.
        let Some(name) = file.host_path.strip_prefix("here/") else { continue };
        let has_own_name = file.artifact.path.strip_prefix("pulled/") == Some(name);
        let mut skip = |why| {
            let file = run_file.clone();
            placed.skipped.push(SkippedFile { name: name.to_owned(), why, file });
        };
        if let Some(why) = skip_reason_for_name(&args.pull, name) {
            skip(why);
            continue;
        }
        let destination_path = path.join(name);
        let destination = match root.destination(name) {
            Ok(destination) => destination,
            Err(DestinationError::Link(link)) => {
                skip(SkipReason::BehindLink { link });
                continue;
            }
            Err(DestinationError::Io(error)) => {
                return Err(unwritten(&destination_path, &run_file, error));
            }
        };
        let copy = copies.take(&file.artifact.path).filter(|_| has_own_name);
        let written = match (destination_check.check(&destination, file), copy) {
            (DestinationVerdict::Refused(why), _) => {
                skip(why);
                continue;
            }
            (DestinationVerdict::AlreadyPulled, _) => Ok(()),
            (DestinationVerdict::Allowed, Some(copy)) => copy.finish(),
            (DestinationVerdict::Allowed, None) => destination.copy_from(&run_file),
        };
        written.map_err(|error| unwritten(&destination_path, &run_file, error))?;
        placed.names.push(name.to_owned());
    }
    if !placed.names.is_empty() {
        app.print_note(&format!("pulled {}", list_first(&placed.names)));
    }
    warn_about_skipped(app, &placed.skipped);
    Ok(placed)
}

/// Warns that no file matches the patterns, if there are any.
pub(in crate::cli) fn warn_of_none(app: &App, args: &FileArgs) {
    if !args.pull.is_empty() {
        app.print_note(&format!(
            "warning: nothing was pulled: no new or changed file matches `{}`",
            args.pull.join("` or `")
        ));
    }
}

/// Warns about skipped files: once for each file changed here, each link, each
/// `.git` and each part that no pattern names.
fn warn_about_skipped(app: &App, skipped_files: &[SkippedFile]) {
    let mut refused: BTreeMap<String, Vec<&SkippedFile>> = BTreeMap::new();
    for skipped in skipped_files {
        match &skipped.why {
            SkipReason::WrittenHere {} => app.print_note(&format!(
                "warning: `{}` was changed here after the run began and is kept; the host's \
                 version is {}",
                skipped.name,
                relative_to_cwd(app, &skipped.file)
            )),
            SkipReason::BehindLink { link } => refused
                .entry(format!(
                    "`{link}` is a link here, and pulled files are never written \
                                through links"
                ))
                .or_default()
                .push(skipped),
            SkipReason::OfGit { git } => refused
                .entry(format!("git runs files in `{git}`, so no pulled file is written there"))
                .or_default()
                .push(skipped),
            SkipReason::NeedsExplicitPattern { part } => refused
                .entry(format!(
                    "`{part}` may control programs here; to pull it, name it in `--pull` without \
                     `*`"
                ))
                .or_default()
                .push(skipped),
        }
    }
    for (why, files) in refused {
        let names: Vec<_> =
            files.iter().map(|skipped| relative_to_cwd(app, &skipped.file)).collect();
        app.print_note(&format!("warning: {why}; the host's file is {}", list_first(&names)));
    }
}

/// `a, b, c and 4 more`.
fn list_first(names: &[String]) -> String {
    let more = names.len().saturating_sub(3);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names[..names.len() - more].join(", "))
}

/// The path relative to the current folder, if it is inside.
fn relative_to_cwd(app: &App, path: &Path) -> String {
    path.strip_prefix(&app.cwd).unwrap_or(path).display().to_string()
}
