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
    ("exec", &["tool", "model"]),
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

/// A folder with the entries of a table, which stands in the module's own file.
struct Registry {
    folder: &'static str,
    table: &'static str,
    /// A file with this text defines an entry.
    entry: &'static str,
    /// The other files of the folder; `None` if it may have any others.
    others: Option<&'static [&'static str]>,
}

const REGISTRIES: &[Registry] = &[
    Registry {
        folder: "src/report",
        table: "REPORTS",
        entry: "fn render(",
        others: Some(&[
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
        ]),
    },
    Registry {
        folder: "src/analysis/rule",
        table: "RULES",
        entry: ": Rule =",
        others: Some(&["blocks", "matrix"]),
    },
    Registry {
        folder: "src/analysis/lint",
        table: "LINTS",
        entry: ": Lint =",
        others: Some(&["tests"]),
    },
    Registry {
        folder: "src/tool",
        table: "TOOLS",
        entry: "impl Tool for ",
        others: Some(&["plan"]),
    },
    Registry {
        folder: "src/kernel/language",
        table: "LANGUAGES",
        entry: "impl Language for ",
        others: Some(&[]),
    },
    Registry {
        folder: "src/exec/language",
        table: "LANGUAGES",
        entry: "impl Language for ",
        others: Some(&[]),
    },
    Registry { folder: "src/import", table: "IMPORTERS", entry: ": Importer =", others: None },
    Registry { folder: "src/remote", table: "REMOTES", entry: ": RemoteKind =", others: None },
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files of the library, without the crate that lies inside.
fn sources() -> Vec<PathBuf> {
    walkdir::WalkDir::new(root().join("src"))
        .into_iter()
        .filter_entry(|e| e.file_name() != "format")
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
    for Registry { folder: name, table, entry, others } in REGISTRIES {
        let folder = root().join(name);
        let text = fs::read_to_string(folder.with_extension("rs")).unwrap();
        let at =
            text.find(&format!("static {table}")).unwrap_or_else(|| panic!("no {table} in {name}"));
        let body = &text[at..at + text[at..].find("];").unwrap()];
        let mut entries = 0;
        for file in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let stem = file.file_stem().unwrap().to_str().unwrap();
            if fs::read_to_string(&file).unwrap().contains(entry) {
                assert!(
                    body.contains(&format!("{stem}::")),
                    "`{stem}` of {name} is not in {table}"
                );
                entries += 1;
            } else if let Some(others) = others {
                assert!(others.contains(&stem), "`{stem}` of {name} has no entry of {table}");
            }
        }
        assert!(entries > 1, "{name} has {entries} files with an entry of {table}");
    }
}

#[test]
fn the_documents_name_only_registries_that_are_checked() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let promise =
        text.split("\n\n").find(|text| text.contains("is one new file and one line")).unwrap();
    let tables = promise
        .split('`')
        .filter(|word| word.len() > 3 && word.chars().all(|letter| letter.is_ascii_uppercase()));
    let tables: BTreeSet<&str> = tables.collect();
    assert_eq!(tables, REGISTRIES.iter().map(|registry| registry.table).collect());
}

#[test]
fn only_the_harness_has_unsafe_code() {
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("unsafe {") && !text.contains("unsafe fn"), "{}", path.display());
    }
}
