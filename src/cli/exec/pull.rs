//! Where pulled files go: the run folder keeps them, and the working folder here gets them under
//! their own names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::ExecArgs;
use super::pull_folder::{ExistingFile, PullFolder, SkipReason, SkippedFile, forbidden};
use crate::cli::app::App;
use crate::error::{Exit, Failure, Result};
use crate::run::{FileCopies, HostFile};
use crate::store::{DestinationError, DestinationRoot, RunFolder, RunRecord};
use rgpu_protocol::plan::valid_relative_path;

/// Refuses a pattern that no host would take, in the user's own words.
///
/// # Errors
/// It leads out of the working folder, or has signs of other patterns than ours.
pub(super) fn check(pattern: &str) -> Result<()> {
    let wrong = |why: &str| {
        let what = format!("`--pull {pattern}`: {why}");
        Err(Failure::new(Exit::Usage, "bad_pattern", what)
            .hint("a path in the working folder; `*` stands for any characters but `/`, `**` for any: 'out/**'"))
    };
    if !valid_relative_path(pattern.trim_start_matches("./")) {
        return wrong("it is no path inside the working folder");
    }
    match pattern.chars().find(|c| "[]?{}".contains(*c)) {
        Some(sign) => wrong(&format!("`{sign}` stands for nothing in a pattern")),
        None => Ok(()),
    }
}

/// Copies of pulled files that are written while these come.
pub(super) fn copies(app: &App, args: &ExecArgs) -> FileCopies {
    let root = DestinationRoot::open(&root(app, args)).ok();
    let patterns = args.pull.clone();
    FileCopies::to(move |place| {
        let name = place.strip_prefix("pulled/")?;
        // `place` reports what is forbidden, and what cannot be written.
        forbidden(&patterns, name).is_none().then_some(())?;
        root.as_ref()?.destination(name).ok()
    })
}

/// The folder that was mounted first, else the current one.
fn root(app: &App, args: &ExecArgs) -> PathBuf {
    let mounted = args.mount.first().map(|text| app.cwd.join(text)).filter(|path| path.is_dir());
    mounted.unwrap_or_else(|| app.cwd.clone())
}

/// What became of pulled files in the folder here.
#[derive(Default)]
pub(super) struct PulledFiles {
    /// Names of those that are there now.
    pub(super) names: Vec<String>,
    /// Those that stay in the run folder.
    pub(super) unplaced: Vec<SkippedFile>,
}

/// Puts the files into the folder that was mounted first, else into the current one, with what
/// `copies` there are already.
///
/// # Errors
/// Our disk.
pub(super) fn place(
    app: &App,
    args: &ExecArgs,
    (folder, record): (&RunFolder, &RunRecord),
    pulled: &[HostFile],
    copies: &mut FileCopies,
) -> Result<PulledFiles> {
    let mut placed = PulledFiles::default();
    if pulled.is_empty() {
        return Ok(placed);
    }
    let path = root(app, args);
    let unwritten = |here: &Path, kept: &Path, error: std::io::Error| {
        Failure::new(Exit::Disk, "disk", "a pulled file cannot be written")
            .file(here.display())
            .cause(error)
            .hint(format!("it is in the run folder: {}", kept.display()))
    };
    let root = DestinationRoot::open(&path).map_err(|e| unwritten(&path, folder.path(), e))?;
    let ground = PullFolder::new(folder, record);
    for file in pulled {
        let kept = folder.path().join(&file.artifact.path);
        let Some(name) = file.artifact.path.strip_prefix("pulled/") else { continue };
        let mut leave = |why| {
            let file = kept.clone();
            placed.unplaced.push(SkippedFile { name: name.to_owned(), why, file });
        };
        if let Some(why) = forbidden(&args.pull, name) {
            leave(why);
            continue;
        }
        let here = path.join(name);
        let destination = match root.destination(name) {
            Ok(destination) => destination,
            Err(DestinationError::Link(link)) => {
                leave(SkipReason::BehindLink { link });
                continue;
            }
            Err(DestinationError::Io(error)) => return Err(unwritten(&here, &kept, error)),
        };
        let written = match (ground.find(&destination, file), copies.take(&file.artifact.path)) {
            (ExistingFile::Obstacle(why), _) => {
                leave(why);
                continue;
            }
            (ExistingFile::Itself, _) => Ok(()),
            (ExistingFile::Room, Some(copy)) => copy.finish(),
            (ExistingFile::Room, None) => destination.copy_from(&kept),
        };
        written.map_err(|error| unwritten(&here, &kept, error))?;
        placed.names.push(name.to_owned());
    }
    if !placed.names.is_empty() {
        app.say(&format!("pulled {}", first_of(&placed.names)));
    }
    warn(app, &placed.unplaced);
    Ok(placed)
}

/// Says what stays in the run folder: each file that was written here, and each link, each `.git` and
/// each part that no pattern names once.
fn warn(app: &App, unplaced: &[SkippedFile]) {
    let mut refused: BTreeMap<String, Vec<&SkippedFile>> = BTreeMap::new();
    for one in unplaced {
        match &one.why {
            SkipReason::WrittenHere {} => app.say(&format!(
                "warning: `{}` was written here since the run began, and stays; the host's is {}",
                one.name,
                short(app, &one.file)
            )),
            SkipReason::BehindLink { link } => refused
                .entry(format!("`{link}` is a link here, and nothing pulled goes through it"))
                .or_default()
                .push(one),
            SkipReason::OfGit { git } => refused
                .entry(format!("git runs what lies in `{git}`, and nothing pulled goes there"))
                .or_default()
                .push(one),
            SkipReason::NotNamed { part } => refused
                .entry(format!(
                    "`{part}` may steer programs here, and no `--pull` names it without `*`"
                ))
                .or_default()
                .push(one),
        }
    }
    for (why, files) in refused {
        let names: Vec<_> = files.iter().map(|one| short(app, &one.file)).collect();
        app.say(&format!("warning: {why}; what the host sent is {}", first_of(&names)));
    }
}

/// `a, b, c and 4 more`.
fn first_of(names: &[String]) -> String {
    let more = names.len().saturating_sub(3);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names[..names.len() - more].join(", "))
}

/// A path as it would be typed from here.
fn short(app: &App, path: &Path) -> String {
    path.strip_prefix(&app.cwd).unwrap_or(path).display().to_string()
}
