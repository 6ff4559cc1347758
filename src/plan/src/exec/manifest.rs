//! The manifest that a Rust file may contain at its beginning, as in `cargo script`:
//!
//! ```text
//! #!/usr/bin/env cargo
//! ---
//! [dependencies]
//! rand = "0.9"
//! ---
//! fn main() {}
//! ```
//!
//! Stable compilers reject it, so it is replaced by empty lines, which keeps line numbers.

use std::path::Path;

use rgpu_model::regular_file;
use toml::{Table, Value};

/// A Rust file without its embedded manifest.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SplitSource {
    /// The embedded manifest; empty if there is none.
    pub(super) manifest: Table,
    /// The source, with unchanged line numbers.
    pub(super) source: String,
}

/// Tables that the manifest of a single file may not have.
const REFUSED_TABLES: &[&str] = &[
    "workspace",
    "lib",
    "bin",
    "example",
    "test",
    "bench",
    "build-dependencies",
    "patch",
    "replace",
];

/// Keys of `[package]` that it may not have, since they name files.
const REFUSED_PACKAGE_KEYS: &[&str] =
    &["build", "links", "workspace", "autobins", "autoexamples", "autotests", "autobenches"];

/// Splits a file into its manifest and source.
///
/// # Errors
/// The problem as text: a manifest that does not end, is invalid, or has refused tables.
pub(super) fn split(text: &str) -> Result<SplitSource, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let unsplit = || SplitSource { manifest: Table::new(), source: text.to_owned() };
    let mut lines = text.split_inclusive('\n').enumerate().peekable();
    if let Some((_, first)) = lines.peek()
        && first.starts_with("#!")
        && !first.starts_with("#![")
    {
        lines.next();
    }
    while lines.next_if(|(_, line)| line.trim().is_empty()).is_some() {}
    let Some((start_line, fence)) = lines.next() else { return Ok(unsplit()) };
    let dashes = fence.bytes().take_while(|b| *b == b'-').count();
    if dashes < 3 {
        return Ok(unsplit());
    }
    let kind = fence[dashes..].trim();
    if !matches!(kind, "" | "cargo") {
        return Err(format!(
            "line {}: a head of the kind `{kind}`; `cargo` is known",
            start_line + 1
        ));
    }
    let fence = &fence[..dashes];
    let mut inner = String::new();
    let mut end_line = None;
    for (at, line) in lines.by_ref() {
        if line.trim_end() == fence {
            end_line = Some(at);
            break;
        }
        inner.push_str(line);
    }
    let Some(end_line) = end_line else {
        return Err(format!(
            "the `{fence}` of line {} has no `{fence}` that ends it",
            start_line + 1
        ));
    };
    regular_file::check_toml_size(&inner)
        .map_err(|e| format!("line {}: the head cannot be read: {e}", start_line + 1))?;
    let manifest: Table = toml::from_str(&inner).map_err(|error| {
        let line = error.span().map_or(0, |span| inner[..span.start].matches('\n').count());
        let problem = error.message().lines().next().unwrap_or_default();
        format!("line {}: {problem}", start_line + 2 + line)
    })?;
    check(&manifest)?;
    let source = text
        .split_inclusive('\n')
        .enumerate()
        .map(|(at, line)| if (start_line..=end_line).contains(&at) { "\n" } else { line })
        .collect();
    Ok(SplitSource { manifest, source })
}

fn check(manifest: &Table) -> Result<(), String> {
    if let Some(key) = manifest.keys().find(|key| REFUSED_TABLES.contains(&key.as_str())) {
        return Err(format!("`[{key}]` has no effect for a single file"));
    }
    match manifest.get("package") {
        Some(Value::Table(package)) => {
            match package.keys().find(|key| REFUSED_PACKAGE_KEYS.contains(&key.as_str())) {
                Some(key) => Err(format!("`package.{key}` has no effect for a single file")),
                None => Ok(()),
            }
        }
        Some(_) => Err("`package` is not a table".to_owned()),
        None => Ok(()),
    }
}

/// The parts of the manifest of the generated package.
pub(super) struct PackageManifest<'a> {
    /// The manifest from the head of the file.
    pub(super) embedded: Table,
    /// The name of the package and its program.
    pub(super) name: &'a str,
    /// The path of the source file, relative to the manifest.
    pub(super) source: &'a str,
    /// Dependencies to add unless the file declares them, as manifest values.
    pub(super) added_dependencies: Vec<(&'static str, Value)>,
    /// The folder of the file, to which dependency paths are relative.
    pub(super) folder: &'a Path,
}

impl PackageManifest<'_> {
    /// The manifest as text.
    pub(super) fn render(self) -> String {
        let mut root = self.embedded;
        let text = |text: &str| Value::String(text.to_owned());
        edit_table(&mut root, "package", |package| {
            package.insert("name".to_owned(), text(self.name));
            package.insert("version".to_owned(), text("0.0.0"));
            package.insert("publish".to_owned(), Value::Boolean(false));
            package.insert("autobins".to_owned(), Value::Boolean(false));
            package.entry("edition").or_insert_with(|| text("2024"));
        });
        let bin = Table::from_iter([
            ("name".to_owned(), text(self.name)),
            ("path".to_owned(), text(self.source)),
        ]);
        root.insert("bin".to_owned(), Value::Array(vec![Value::Table(bin)]));
        // The package belongs to no workspace, wherever the cache is.
        root.insert("workspace".to_owned(), Value::Table(Table::new()));
        edit_table(&mut root, "dependencies", |dependencies| {
            for (_, dependency) in dependencies.iter_mut() {
                if let Some(Value::String(path)) = dependency.get_mut("path") {
                    *path = self.folder.join(&path).display().to_string();
                }
            }
            for (name, value) in self.added_dependencies {
                dependencies.entry(name).or_insert(value);
            }
        });
        edit_table(&mut root, "profile", |profile| {
            edit_table(profile, "dev", |dev| {
                // Fast to compile and small to send: symbol names for backtraces, no line numbers.
                if !dev.contains_key("debug") {
                    dev.insert("debug".to_owned(), Value::Boolean(false));
                    dev.entry("strip").or_insert_with(|| text("debuginfo"));
                }
                edit_table(dev, "package", |package| {
                    edit_table(package, "*", |others| {
                        others.entry("opt-level").or_insert(Value::Integer(1));
                        others.entry("debug").or_insert(Value::Boolean(false));
                    });
                });
            });
        });
        toml::to_string(&root).unwrap_or_default()
    }
}

/// Edits the table of this name; creates it if it is missing or no table.
fn edit_table(parent: &mut Table, name: &str, edit: impl FnOnce(&mut Table)) {
    let mut inner = match parent.remove(name) {
        Some(Value::Table(table)) => table,
        _ => Table::new(),
    };
    edit(&mut inner);
    parent.insert(name.to_owned(), Value::Table(inner));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_becomes_a_manifest_and_the_source_keeps_its_lines() {
        let text =
            "#!/usr/bin/env cargo\n---cargo\n[dependencies]\nrand = \"0.9\"\n---\nfn main() {}\n";
        let split = split(text).unwrap();
        assert_eq!(split.manifest["dependencies"]["rand"].as_str(), Some("0.9"));
        assert_eq!(split.source, "#!/usr/bin/env cargo\n\n\n\n\nfn main() {}\n");
        for plain in ["fn main() {}\n", "#![allow(unused)]\n\nfn main() {}\n", "", "// ---\n"] {
            assert_eq!(super::split(plain).unwrap().source, plain);
        }
    }

    #[test]
    fn a_head_that_is_wrong_names_its_line() {
        for (text, words) in [
            ("---\n[dependencies]\nfn main() {}\n", "of line 1 has no `---`"),
            ("\n---\n[dependencies\n---\n", "line 3:"),
            ("---python\n---\n", "line 1: a head of the kind `python`"),
            ("---\n[workspace]\n---\n", "`[workspace]` has no effect"),
            ("---\npackage.build = \"b.rs\"\n---\n", "`package.build` has no effect"),
        ] {
            let message = split(text).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn the_package_keeps_what_the_file_says_and_adds_the_rest() {
        let embedded: Table = toml::from_str(
            "package.edition = \"2021\"\nprofile.dev.opt-level = 3\n[dependencies]\nmine = { path = \"../mine\" }\n",
        )
        .unwrap();
        let manifest = PackageManifest {
            embedded,
            name: "s1",
            source: "x.rs",
            added_dependencies: vec![("rgpu_prelude", Value::String("1".into()))],
            folder: Path::new("/home/me/work"),
        };
        let rendered: Table = toml::from_str(&manifest.render()).unwrap();
        assert_eq!(rendered["package"]["edition"].as_str(), Some("2021"));
        assert_eq!(rendered["profile"]["dev"]["opt-level"].as_integer(), Some(3));
        assert_eq!(
            rendered["dependencies"]["mine"]["path"].as_str(),
            Some("/home/me/work/../mine")
        );
        assert_eq!(rendered["dependencies"]["rgpu_prelude"].as_str(), Some("1"));
        assert_eq!(rendered["bin"][0]["path"].as_str(), Some("x.rs"));
    }
}
