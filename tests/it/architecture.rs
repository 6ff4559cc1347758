//! Holds the shape of the library: imports go one way, and every file of a registry's folder is
//! registered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

/// What each module may import from this crate. `error` is free to all.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("error", &[]),
    ("kernel", &["model"]),
    ("tool", &["kernel", "model"]),
    ("exec", &["tool"]),
    ("bundle", &["kernel", "tool", "model"]),
    ("remote", &["bundle"]),
    ("store", &["bundle"]),
    ("config", &["remote", "store", "analysis"]),
    ("import", &["model"]),
    ("analysis", &["model"]),
    ("report", &["model"]),
    ("redact", &["model"]),
    ("disasm", &["tool", "store", "import", "analysis", "model"]),
    (
        "run",
        &[
            "config", "kernel", "tool", "exec", "bundle", "remote", "store", "import", "analysis",
            "disasm", "report", "redact", "model",
        ],
    ),
    (
        "cli",
        &[
            "config", "kernel", "tool", "exec", "bundle", "remote", "store", "run", "import",
            "analysis", "disasm", "report", "redact", "model",
        ],
    ),
];

/// Folders whose files stand in a table of the module, with what that table is called and the
/// files that are machinery of the folder instead.
const REGISTRIES: &[(&str, &str, &[&str])] = &[
    (
        "src/report",
        "REPORTS",
        &[
            "busy",
            "code",
            "comparison",
            "document",
            "remotes_table",
            "grid",
            "headline",
            "quantity",
            "regions",
            "subject",
            "text",
        ],
    ),
    ("src/analysis/lint", "LINTS", &["tests"]),
    ("src/tool", "TOOLS", &["plan"]),
    ("src/kernel/language", "LANGUAGES", &[]),
    ("src/exec/language", "LANGUAGES", &[]),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files of the library, without the crates that lie inside.
fn sources() -> Vec<PathBuf> {
    walkdir::WalkDir::new(root().join("src"))
        .into_iter()
        .filter_entry(|e| {
            e.depth() != 1 || !["format", "layout"].iter().any(|n| e.file_name() == *n)
        })
        .filter_map(Result::ok)
        .map(walkdir::DirEntry::into_path)
        .filter(|p| p.extension().is_some_and(|x| x == "rs"))
        // A `mod tests` in a file of its own.
        .filter(|p| p.file_name().is_none_or(|name| name != "tests.rs"))
        // Tests may compare with whatever they like.
        .filter(|p| p.file_name().is_none_or(|name| name != "tests.rs"))
        .collect()
}

/// The top module that a file belongs to.
fn module_of(path: &Path) -> String {
    let inner = path.strip_prefix(root().join("src")).unwrap();
    let first = inner.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// Collects the top modules that paths of the form `crate::x` name, outside of tests.
#[derive(Default)]
struct Imports(BTreeSet<String>);

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident != "tests" {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if segments.next().is_some_and(|s| s.ident == "crate")
            && let Some(module) = segments.next()
        {
            self.0.insert(module.ident.to_string());
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let syn::UseTree::Path(first) = &item.tree else { return };
        if first.ident != "crate" {
            return;
        }
        let trees = match &*first.tree {
            syn::UseTree::Group(group) => group.items.iter().collect(),
            tree => vec![tree],
        };
        for tree in trees {
            match tree {
                syn::UseTree::Path(next) => drop(self.0.insert(next.ident.to_string())),
                syn::UseTree::Name(next) => drop(self.0.insert(next.ident.to_string())),
                _ => {}
            }
        }
    }
}

#[test]
fn imports_go_one_way() {
    let rules: BTreeMap<&str, &[&str]> = MAY_IMPORT.iter().copied().collect();
    let mut broken = Vec::new();
    for path in sources() {
        let module = module_of(&path);
        if module == "lib" || module == "main" {
            continue;
        }
        let allowed =
            rules.get(module.as_str()).unwrap_or_else(|| panic!("no rule for `{module}`"));
        let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
        let mut imports = Imports::default();
        imports.visit_file(&file);
        for import in imports.0 {
            let free =
                import == "error" || import == module || !rules.contains_key(import.as_str());
            if !free && !allowed.contains(&import.as_str()) {
                broken.push(format!("{} imports {import}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_file_of_a_registry_is_registered() {
    for (folder, table, machinery) in REGISTRIES {
        let folder = root().join(folder);
        let text = fs::read_to_string(folder.with_extension("rs")).unwrap();
        let at = text
            .find(&format!("static {table}"))
            .unwrap_or_else(|| panic!("no {table} in {}", folder.display()));
        let body = &text[at..at + text[at..].find("];").unwrap()];
        for entry in fs::read_dir(&folder).unwrap() {
            let name = entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
            if name != "snapshots" && !machinery.contains(&name.as_str()) {
                assert!(
                    body.contains(&format!("{name}::")),
                    "`{name}` of {folder:?} is not in {table}"
                );
            }
        }
    }
}

#[test]
fn only_the_harness_has_unsafe_code() {
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("unsafe {") && !text.contains("unsafe fn"), "{}", path.display());
    }
}
