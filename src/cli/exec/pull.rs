//! Where pulled files go: the run folder keeps them, and the working folder here gets them under
//! their own names.

use std::path::Path;

use super::ExecArgs;
use crate::cli::app::App;
use crate::error::{Exit, Failure, Result};
use crate::run::HostFile;
use crate::store::{RunFolder, atomic};
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

/// Puts the files into the folder that was mounted first, else into the current one. Returns their
/// names there.
///
/// # Errors
/// Our disk; a place that a link leads out of the folder.
pub(super) fn place(
    app: &App,
    args: &ExecArgs,
    folder: &RunFolder,
    pulled: &[HostFile],
) -> Result<Vec<String>> {
    let mounted = args.mount.first().map(|text| app.cwd.join(text)).filter(|path| path.is_dir());
    let root = mounted.unwrap_or_else(|| app.cwd.clone());
    let mut names = Vec::new();
    for file in pulled {
        let kept = folder.path().join(&file.artifact.path);
        let Some(name) = file.artifact.path.strip_prefix("pulled/") else { continue };
        let here = root.join(name);
        let failed = |e: std::io::Error| {
            Failure::new(Exit::Disk, "disk", "a pulled file cannot be written")
                .file(here.display())
                .cause(e)
                .hint(format!("it is in the run folder: {}", kept.display()))
        };
        if leads_out(&root, &here) {
            return Err(failed(std::io::Error::other("a link leads out of the folder")));
        }
        atomic::copy(&kept, &here).map_err(failed)?;
        names.push(name.to_owned());
    }
    if !names.is_empty() {
        let first = names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(3);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        app.say(&format!("pulled {first}{rest}"));
    }
    Ok(names)
}

/// Whether the nearest folder above `path` that is there lies outside of `root`.
fn leads_out(root: &Path, path: &Path) -> bool {
    let Ok(root) = std::fs::canonicalize(root) else { return true };
    let above = path.ancestors().skip(1).find_map(|folder| std::fs::canonicalize(folder).ok());
    above.is_none_or(|folder| !folder.starts_with(&root))
}
