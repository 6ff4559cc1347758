//! Makes the links of Markdown files right where an installation has these files.
//!
//! In the repository, files link to each other by relative paths. An installation has some of them,
//! in other folders. A link to one of these leads there; any other leads to the repository's page.

use super::{DistError, at};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Files and folders of the repository, and where the tree of an installation has them.
pub(super) const SHIPPED: &[(&str, &str)] = &[
    ("kernels", "share/rgpu/kernels"),
    // Each kernel.toml names its schema, as `../../schemas/…`.
    ("schemas", "share/rgpu/schemas"),
    ("docs", "share/doc/rgpu/docs"),
    ("python/examples", "share/doc/rgpu/python/examples"),
    ("README.md", "share/doc/rgpu/README.md"),
    ("CHANGELOG.md", "share/doc/rgpu/CHANGELOG.md"),
    ("LICENSE-APACHE", "share/doc/rgpu/LICENSE-APACHE"),
    ("LICENSE-MIT", "share/doc/rgpu/LICENSE-MIT"),
];

/// The repository's pages of files.
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main");

/// The text of a Markdown file of the repository at `root`, with links for its place in the tree.
/// `file` is its path in the repository.
pub(super) fn for_tree(root: &Path, file: &Path) -> Result<String, DistError> {
    let folder = place_of(file).and_then(|place| place.parent().map(Path::to_owned));
    rewrite(root, file, |target| {
        Some(relative(folder.as_deref()?, &place_of(target)?).display().to_string())
    })
}

/// As [`for_tree`], for a place without any other file: all links lead to the repository's pages.
pub(super) fn for_pages(root: &Path, file: &Path) -> Result<String, DistError> {
    rewrite(root, file, |_| None)
}

/// Replaces each relative link by the place of its target, else by the repository's page.
fn rewrite(
    root: &Path,
    file: &Path,
    place: impl Fn(&Path) -> Option<String>,
) -> Result<String, DistError> {
    let path = root.join(file);
    let text = fs::read_to_string(&path).map_err(at(&path))?;
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    for link in links(&text) {
        let (path, heading) = split_heading(link);
        let target = normal(&file.with_file_name("").join(path));
        let target = target
            .filter(|target| root.join(target).exists())
            .ok_or_else(|| DistError::DeadLink { file: file.to_owned(), link: link.to_owned() })?;
        let page = || format!("{REPOSITORY}/{}", target.display());
        let start = link.as_ptr() as usize - rest.as_ptr() as usize;
        out.push_str(&rest[..start]);
        out.push_str(&place(&target).unwrap_or_else(page));
        out.push_str(heading);
        rest = &rest[start + link.len()..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The targets of the relative links of a Markdown text, in order. Blocks of code have none.
fn links(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let after = line.split("](").skip(1);
        let targets = after.filter_map(|after| Some(after.split_once(')')?.0));
        let is_relative = |target: &&str| {
            !target.is_empty() && !target.starts_with('#') && !target.contains([':', ' '])
        };
        found.extend(targets.filter(is_relative));
    }
    found
}

/// A link's path, and its `#heading`, which may be empty.
fn split_heading(link: &str) -> (&str, &str) {
    link.split_at(link.find('#').unwrap_or(link.len()))
}

/// Where the tree has a file or folder of the repository.
fn place_of(target: &Path) -> Option<PathBuf> {
    SHIPPED.iter().find_map(|(from, to)| {
        let rest = target.strip_prefix(from).ok()?;
        Some(Path::new(to).components().chain(rest.components()).collect())
    })
}

/// The path without `.` and `..`; `None` if it leaves the repository.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir if normal.pop() => {}
            _ => return None,
        }
    }
    Some(normal)
}

/// The path from a folder to `target`.
fn relative(folder: &Path, target: &Path) -> PathBuf {
    let same = folder.components().zip(target.components()).take_while(|(a, b)| a == b).count();
    let up = folder.components().skip(same).map(|_| Component::ParentDir);
    up.chain(target.components().skip(same)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tree::lay_out_documents;
    use super::*;
    use crate::workspace::Workspace;

    /// All files below `folder` whose names end with `ending`.
    fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                found.extend(files(&path, ending));
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
        found
    }

    /// The name by which a link finds a heading.
    fn anchor(heading: &str) -> String {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().replace(' ', "-")
    }

    #[test]
    fn no_link_of_an_installation_is_dead() {
        let workspace = Workspace::find().expect("this workspace");
        let tree = std::env::temp_dir().join(format!("rgpu-xtask-links-{}", std::process::id()));
        lay_out_documents(&workspace.root, &tree).expect("the documents");
        let mut dead = Vec::new();
        for file in files(&tree, ".md") {
            let text = fs::read_to_string(&file).expect("a text");
            for link in links(&text) {
                let (path, heading) = split_heading(link);
                let target = file.with_file_name(path);
                let has_heading = || {
                    let text = fs::read_to_string(&target).unwrap_or_default();
                    text.lines().any(|line| line.starts_with('#') && anchor(line) == heading[1..])
                };
                if !target.exists() || !heading.is_empty() && !has_heading() {
                    dead.push(format!("{}: {link}", file.display()));
                }
            }
        }
        let manifests = files(&tree, "kernel.toml");
        for manifest in &manifests {
            let text = fs::read_to_string(manifest).expect("a text");
            if let Some(schema) = text.lines().find_map(|line| line.strip_prefix("#:schema "))
                && !manifest.with_file_name(schema).exists()
            {
                dead.push(format!("{}: {schema}", manifest.display()));
            }
        }
        fs::remove_dir_all(&tree).expect("our own folder");
        assert!(dead.is_empty(), "{dead:#?}");
        assert!(manifests.len() > 10, "{manifests:?}");
    }

    #[test]
    fn links_lead_to_what_the_tree_has_and_else_to_the_repository() {
        let folder = std::env::temp_dir().join(format!("rgpu-xtask-link-{}", std::process::id()));
        for name in ["docs/a.md", "kernels/race/k.cu", "src/x.rs", "README.md"] {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, "").expect("a file");
        }
        let file = Path::new("docs/a.md");
        let write = |text: &str| fs::write(folder.join(file), text).expect("a file");
        write(
            "[r](../README.md#top), [k](../kernels/race) [s](../src/x.rs) [h](#h) [w](https://w)\n\
             ```\nx[0](y)\n```\n[a](a.md)\n",
        );
        let tree = for_tree(&folder, file);
        let pages = for_pages(&folder, file);
        write("[n](none.md)");
        let dead = for_tree(&folder, file).map_err(|error| error.to_string());
        write("[n](../../../etc/passwd)");
        let outside = for_tree(&folder, file);
        fs::remove_dir_all(&folder).expect("our own folder");
        assert_eq!(
            tree.expect("a text"),
            format!(
                "[r](../README.md#top), [k](../../../rgpu/kernels/race) [s]({REPOSITORY}/src/x.rs) \
                 [h](#h) [w](https://w)\n```\nx[0](y)\n```\n[a](a.md)\n"
            )
        );
        assert_eq!(
            pages.expect("a text"),
            format!(
                "[r]({REPOSITORY}/README.md#top), [k]({REPOSITORY}/kernels/race) \
                 [s]({REPOSITORY}/src/x.rs) [h](#h) [w](https://w)\n```\nx[0](y)\n```\n\
                 [a]({REPOSITORY}/docs/a.md)\n"
            )
        );
        assert_eq!(dead, Err("`docs/a.md` links to `none.md`, which is not there".to_owned()));
        assert!(outside.is_err());
    }
}
