//! Holds the shape of the library: imports go one way, and every file of a registry's folder is
//! registered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::Visit;

/// What each module of a crate with several modules may import from its own crate, and does import.
/// `saved_json` is free to all. The compiler keeps the walls between crates.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("kernel", &[]),
    ("tool", &["kernel"]),
    ("exec", &["kernel", "tool"]),
    ("bundle", &["kernel", "tool"]),
    ("process_tree", &[]),
    ("child_tree", &["process_tree"]),
    ("foreign_file", &[]),
    ("saved_json", &[]),
    ("store", &["process_tree"]),
    ("config", &["store"]),
    ("disasm", &["foreign_file", "store"]),
    ("run", &["config", "store", "disasm"]),
    ("own_command", &[]),
    ("queue", &["own_command"]),
    ("loops", &["own_command"]),
    ("suite", &[]),
    ("loopback", &[]),
    ("redact", &[]),
    ("mcp", &["loopback"]),
    ("dashboard", &["loopback"]),
    ("cli", &["redact", "mcp", "dashboard"]),
];

/// The crates of one module each, which is the crate's root.
const ROOTED: &[&str] = &["model", "import", "account", "analysis", "report", "remote"];

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
        folder: "src/report/src",
        table: "REPORTS",
        entry: "fn render",
        others: Some(&[
            "account",
            "blocks",
            "bound",
            "busy",
            "code",
            "comparison",
            "document",
            "finding",
            "missing",
            "paint",
            "remotes_table",
            "text_table",
            "headline",
            "checks",
            "kernel_name",
            "kernel_sums",
            "page_parts",
            "phrase",
            "prediction",
            "quantity",
            "ranks",
            "regions",
            "input",
            "region_rows",
            "sections",
            "suite",
            "text",
        ]),
    },
    Registry {
        folder: "src/analysis/src/rule",
        table: "RULES",
        entry: ": Rule =",
        others: Some(&["blocks", "matrix"]),
    },
    Registry {
        folder: "src/analysis/src/lint",
        table: "LINTS",
        entry: ": Lint =",
        others: Some(&["tests"]),
    },
    Registry {
        folder: "src/plan/src/tool",
        table: "TOOLS",
        entry: "impl Tool for ",
        others: Some(&["plan"]),
    },
    Registry {
        folder: "src/plan/src/kernel/language",
        table: "LANGUAGES",
        entry: "impl Language for ",
        others: Some(&[]),
    },
    Registry {
        folder: "src/plan/src/kernel/sources",
        table: "KERNEL_SOURCES",
        entry: ": KernelSource =",
        others: None,
    },
    Registry {
        folder: "src/plan/src/exec/language",
        table: "LANGUAGES",
        entry: "impl Language for ",
        others: Some(&[]),
    },
    Registry { folder: "src/import/src", table: "IMPORTERS", entry: ": Importer =", others: None },
    Registry {
        folder: "src/predict/src/config",
        table: "ARCHITECTURES",
        entry: ": Architecture =",
        others: Some(&["fields"]),
    },
    Registry {
        folder: "src/mcp/tool",
        table: "TOOLS",
        entry: ": ToolInfo =",
        others: Some(&["command", "inputs"]),
    },
    Registry { folder: "src/remote/src", table: "REMOTES", entry: ": RemoteKind =", others: None },
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files of the command and its crates, without those that are of use to others too.
fn sources() -> Vec<PathBuf> {
    walkdir::WalkDir::new(root().join("src"))
        .into_iter()
        .filter_entry(|e| {
            e.depth() != 1 || !["format", "layout", "predict"].iter().any(|n| e.file_name() == *n)
        })
        .filter_map(Result::ok)
        .map(walkdir::DirEntry::into_path)
        .filter(|p| p.extension().is_some_and(|x| x == "rs"))
        // A `mod tests` in a file of its own. Tests may compare with whatever they like.
        .filter(|p| p.file_name().is_none_or(|name| name != "tests.rs"))
        .collect()
}

/// The path of a file below the sources of its crate, such as `store/folder.rs`. The crates of one
/// module have that module in front: `report/page.rs`.
fn inner_path(path: &Path) -> PathBuf {
    let inner = path.strip_prefix(root().join("src")).unwrap();
    let mut parts = inner.components();
    let name = parts.next().unwrap().as_os_str();
    if parts.next().is_none_or(|part| part.as_os_str() != "src") {
        return inner.to_owned();
    }
    let is_rooted = ROOTED.iter().any(|crate_name| *crate_name == name);
    if is_rooted { Path::new(name).join(parts.as_path()) } else { parts.as_path().to_owned() }
}

/// The top module that a file belongs to.
fn module_of(path: &Path) -> String {
    let inner = inner_path(path);
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
fn imports_go_one_way_and_every_permission_is_used() {
    let rules: BTreeMap<&str, &[&str]> = MAY_IMPORT.iter().copied().collect();
    let mut unused: BTreeSet<(String, String)> = (rules.iter())
        .flat_map(|(module, allowed)| allowed.iter().map(|to| (module.to_string(), to.to_string())))
        .collect();
    let mut wrong = Vec::new();
    for path in sources() {
        let module = module_of(&path);
        if module == "lib" || module == "main" || ROOTED.contains(&module.as_str()) {
            continue;
        }
        let allowed =
            rules.get(module.as_str()).unwrap_or_else(|| panic!("no rule for `{module}`"));
        let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
        let mut imports = Imports::default();
        imports.visit_file(&file);
        for import in imports.0 {
            let free = [module.as_str(), "saved_json"].contains(&import.as_str())
                || !rules.contains_key(import.as_str());
            if !free && !allowed.contains(&import.as_str()) {
                wrong.push(format!("{} imports {import}", path.display()));
            }
            unused.remove(&(module.clone(), import));
        }
    }
    wrong.extend(unused.iter().map(|(module, to)| format!("no file of {module} imports {to}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_of_a_registry_is_registered() {
    for Registry { folder: name, table, entry, others } in REGISTRIES {
        let folder = root().join(name);
        let table_file = if folder.ends_with("src") {
            folder.join("lib.rs")
        } else {
            folder.with_extension("rs")
        };
        let text = fs::read_to_string(table_file).unwrap();
        let at =
            text.find(&format!("static {table}")).unwrap_or_else(|| panic!("no {table} in {name}"));
        let body = &text[at..at + text[at..].find("];").unwrap()];
        let mut entries = 0;
        for file in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let stem = file.file_stem().unwrap().to_str().unwrap();
            if stem == "lib" {
                continue;
            }
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
    let tables = promise.split('`').filter(|word| {
        word.len() > 3 && word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
    });
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

/// The files that may write to the terminal: this one escapes what it writes, and the other has the
/// output of the user's own program.
const WRITERS: &[&str] = &["terminal.rs", "program_output.rs"];

#[test]
fn all_text_for_the_terminal_goes_through_one_file() {
    let mut broken = Vec::new();
    for path in sources() {
        if WRITERS.iter().any(|name| path.ends_with(format!("cli/support/{name}"))) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        // Asking what a stream is writes nothing, and pip shows its own progress.
        let text = text.replace("stdout().is_terminal()", "");
        let text = text.replace("stderr().is_terminal()", "");
        let text = text.replace("Stdio::from(io::stderr())", "");
        for call in ["print!(", "println!(", "stdout()", "stderr()"] {
            if text.contains(call) {
                broken.push(format!("{}: {call}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The modules that work in a project's `.rgpu`, `artifacts` and run folders. Only `beneath` opens,
/// creates and removes files there.
const INSIDE_PROJECTS: &[&str] =
    &["queue", "loops", "store", "dashboard", "mcp", "run", "report", "suite"];

/// The files of these modules that call the file system themselves, and for what.
const OUTSIDE_CALLS: &[(&str, &str)] = &[
    ("queue/snapshot.rs", "temporary folders of git, in the folder of the entry"),
    ("loops/config/read.rs", "the loop.toml that the user named"),
    ("store/atomic.rs", "files of the user's own folders"),
    ("store/destination.rs", "the source of a copy"),
    ("store/git.rs", "follows the links of .git to see where they lead"),
    ("store/made.rs", "the user's list of run folders that rgpu made"),
    ("store/provenance.rs", "the inputs that the user named"),
    ("store/started.rs", "the user's cache"),
    ("store/state.rs", "the user's list of databases"),
    ("store/state/process_id.rs", "/proc"),
    ("dashboard/export_folder.rs", "the folder that the user named"),
    ("dashboard/run_detail.rs", "a page in a temporary folder"),
    ("dashboard/run_table.rs", "the time of a run folder"),
    ("mcp/files.rs", "the user's cache"),
    ("run/cargo_build.rs", "the user's cache"),
    ("run/facts.rs", "the user's cache"),
    ("run/failed_rungs.rs", "the user's cache"),
    ("run/laptop_code.rs", "sources and includes that are compiled on this machine"),
    ("run/programs.rs", "programs of this machine"),
    ("suite/audit.rs", "the project's sources"),
    ("suite/expectations.rs", "the folder that the user named"),
    ("suite/file.rs", "the bench.toml of the project"),
];

/// The functions that open, create, change or remove what a path names.
const FILE_CALLS: &[&str] = &[
    "fs::copy(",
    "fs::create_dir(",
    "fs::create_dir_all(",
    "fs::hard_link(",
    "fs::metadata(",
    "fs::read(",
    "fs::read_dir(",
    "fs::read_link(",
    "fs::read_to_string(",
    "fs::remove_dir(",
    "fs::remove_dir_all(",
    "fs::remove_file(",
    "fs::rename(",
    "fs::set_permissions(",
    "fs::symlink(",
    "fs::symlink_metadata(",
    "fs::write(",
    "File::create(",
    "File::create_new(",
    "File::open(",
    "File::options(",
    "OpenOptions::new(",
    "DirBuilder::new(",
    "agent_files::open(",
    "agent_files::open_named(",
    "agent_files::read(",
    "agent_files::read_to_string(",
    "regular_file::open(",
    "regular_file::read(",
    "regular_file::read_to_string(",
    "atomic::write",
    "tempdir_in(",
    "tempfile_in(",
    "WalkDir::new(",
];

#[test]
fn files_below_a_project_are_reached_through_one_module() {
    let mut unused: BTreeSet<&str> = OUTSIDE_CALLS.iter().map(|(file, _)| *file).collect();
    let mut broken = Vec::new();
    for path in sources() {
        if !INSIDE_PROJECTS.contains(&module_of(&path).as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let calls: Vec<&&str> = FILE_CALLS.iter().filter(|call| text.contains(**call)).collect();
        let inner = inner_path(&path);
        let inner = inner.to_str().unwrap();
        let is_listed = OUTSIDE_CALLS.iter().any(|(file, _)| *file == inner);
        if !calls.is_empty() && !is_listed {
            broken.push(format!("{inner}: {calls:?}"));
        }
        if !calls.is_empty() {
            unused.remove(inner);
        }
    }
    broken.extend(unused.iter().map(|file| format!("{file} calls none of them any more")));
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The files of the command line that stand above the commands and may name them: the arguments,
/// the dispatcher, and what needs either.
const ABOVE_COMMANDS: &[&str] =
    &["args", "arguments", "attach", "completions", "dispatch", "documents", "help"];

/// Commands that are built on others, and those. Each stands before the commands that it is built
/// on, so there is no circle.
const BUILT_ON: &[(&str, &[&str])] = &[
    ("exec", &["build", "profile"]),
    ("remote", &["doctor"]),
    ("doctor", &["model"]),
    ("queue", &["top"]),
    ("loops", &["top"]),
];

/// The module that all commands may import.
const SUPPORT: &str = "support";

/// Collects every path of a file, outside of tests, as its segments. Paths in macro calls too.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl Paths {
    fn add_use(&mut self, tree: &syn::UseTree, mut path: Vec<String>) {
        match tree {
            syn::UseTree::Path(next) => {
                path.push(next.ident.to_string());
                self.add_use(&next.tree, path);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.add_use(item, path.clone()));
            }
            syn::UseTree::Name(name) => self.0.push([path, vec![name.ident.to_string()]].concat()),
            syn::UseTree::Rename(name) => {
                self.0.push([path, vec![name.ident.to_string()]].concat());
            }
            syn::UseTree::Glob(_) => self.0.push(path),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident != "tests" {
            syn::visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use(&item.tree, Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.push(path.segments.iter().map(|s| s.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let tokens = call.tokens.to_string().replace(" :: ", "::");
        let words = tokens.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let paths = words.filter(|word| word.contains("::"));
        self.0.extend(paths.map(|path| path.split("::").map(ToOwned::to_owned).collect()));
    }

    // `pub(in crate::cli)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// The rooms of the command line, so commands and [`SUPPORT`], that a file in `module` names.
/// An import of the whole command line gives an empty name.
fn rooms_named(module: &[&str], file: &syn::File) -> BTreeSet<String> {
    let mut paths = Paths::default();
    paths.visit_file(file);
    let absolute = |path: &Vec<String>| -> Option<Vec<String>> {
        let up = path.iter().take_while(|segment| *segment == "super").count();
        match path.first().map(String::as_str) {
            Some("crate") => Some(path[1..].to_vec()),
            Some("super") => {
                let base = module[..module.len().checked_sub(up)?].iter().map(ToString::to_string);
                Some(base.chain(path[up..].iter().cloned()).collect())
            }
            _ => None,
        }
    };
    let inside = paths.0.iter().filter_map(absolute);
    let inside = inside.filter(|path| path.first().is_some_and(|first| first == "cli"));
    inside.map(|path| path.get(1).cloned().unwrap_or_default()).collect()
}

#[test]
fn commands_import_only_those_that_they_are_built_on() {
    for (at, (_, others)) in BUILT_ON.iter().enumerate() {
        let is_circle = BUILT_ON[..=at].iter().any(|(earlier, _)| others.contains(earlier));
        assert!(!is_circle, "{:?} leads back", BUILT_ON[at]);
    }
    let mut broken = Vec::new();
    let mut commands = BTreeSet::new();
    for path in sources() {
        let inner = path.strip_prefix(root().join("src")).unwrap().with_extension("");
        let module: Vec<&str> = inner.iter().map(|part| part.to_str().unwrap()).collect();
        let ["cli", room, ..] = module[..] else { continue };
        if ABOVE_COMMANDS.contains(&room) {
            continue;
        }
        if room != SUPPORT {
            commands.insert(room.to_owned());
        }
        let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
        for named in rooms_named(&module, &file) {
            let may_name = BUILT_ON
                .iter()
                .any(|(command, others)| *command == room && others.contains(&named.as_str()));
            if named != room && named != SUPPORT && !may_name {
                broken.push(format!("{} names cli::{named}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(commands.contains("profile") && commands.len() > 10, "{commands:?}");
    let args = fs::read_to_string(root().join("src/cli/args.rs")).unwrap();
    for command in commands {
        // `loop` is a keyword of Rust.
        let command = if command == "loops" { "loop" } else { &command };
        let variant = format!("    {}{}(", command[..1].to_uppercase(), &command[1..]);
        assert!(args.contains(&variant), "`{command}` is not a command of args.rs");
    }
}

#[test]
fn every_way_to_name_another_command_is_seen() {
    let named = |text: &str| {
        let file = syn::parse_str(text).unwrap();
        Vec::from_iter(rooms_named(&["cli", "disasm", "hot"], &file))
    };
    assert_eq!(named("use crate::cli::{report::open, support::app::App};"), ["report", "support"]);
    assert_eq!(named("use super::super::report::open as show;"), ["report"]);
    assert_eq!(
        named("fn f() { super::super::runs::show(); super::tool::find(); }"),
        ["disasm", "runs"]
    );
    assert_eq!(named("fn f() { print!(\"{}\", crate::cli::build::run()); }"), ["build"]);
    assert_eq!(named("use super::super::*;"), [""]);
    assert_eq!(named("use crate::report; pub(in crate::cli) fn f() {}"), [""; 0]);
    assert_eq!(named("mod tests { use crate::cli::build; }"), [""; 0]);
}

/// The files with names of others, and whose they are.
const FOREIGN_NAMES: &[(&str, &str)] = &[
    ("src/format/src/torch_trace.rs", "the keys of torch's traces"),
    ("src/predict/src/hw/unit.rs", "units as they are written"),
];

/// Collects, for every item, field and variant that is called otherwise in JSON or in a schema, its
/// name and that other name.
#[derive(Default)]
struct Renames(Vec<(String, String)>);

impl Renames {
    fn add(&mut self, name: Option<&syn::Ident>, attributes: &[syn::Attribute]) {
        let name = name.map(ToString::to_string).unwrap_or_default();
        for attribute in attributes {
            let is_named = ["serde", "schemars"].iter().any(|path| attribute.path().is_ident(path));
            if let (true, syn::Meta::List(list)) = (is_named, &attribute.meta) {
                let tokens = list.tokens.to_string();
                let others = tokens.split("rename = \"").skip(1);
                let others = others.filter_map(|rest| rest.split('"').next());
                self.0.extend(others.map(|other| (name.clone(), other.to_owned())));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Renames {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(Some(&item.ident), &item.attrs);
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(Some(&item.ident), &item.attrs);
        syn::visit::visit_item_enum(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        self.add(field.ident.as_ref(), &field.attrs);
        syn::visit::visit_field(self, field);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.add(Some(&variant.ident), &variant.attrs);
        syn::visit::visit_variant(self, variant);
    }
}

/// Whether two names differ in nothing but the case style.
fn is_same_name(one: &str, other: &str) -> bool {
    let letters = |name: &str| name.replace(['_', '-', '.'], "").to_lowercase();
    letters(one) == letters(other)
}

/// Whether a field cannot have this name in Rust.
fn is_keyword(name: &str) -> bool {
    name.chars().all(|letter| letter.is_ascii_lowercase())
        && syn::parse_str::<syn::Ident>(name).is_err()
}

/// The names in a file that JSON or a schema calls otherwise, for another reason than Rust's words.
fn renames_in(text: &str) -> Vec<(String, String)> {
    let mut renames = Renames::default();
    renames.visit_file(&syn::parse_str(text).unwrap());
    renames.0.retain(|(name, other)| !is_same_name(name, other) && !is_keyword(other));
    renames.0
}

#[test]
fn a_thing_has_one_name_in_rust_and_json() {
    let mut unused: BTreeSet<&str> = FOREIGN_NAMES.iter().map(|(file, _)| *file).collect();
    let mut broken = Vec::new();
    let folders = ["src", "harness", "remote"];
    let entries = folders.iter().flat_map(|name| walkdir::WalkDir::new(root().join(name)));
    for path in entries.map(|entry| entry.unwrap().into_path()) {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        // Templates are no Rust yet.
        if !text.contains("rename = \"") {
            continue;
        }
        let renames = renames_in(&text);
        let inner = path.strip_prefix(root()).unwrap().to_str().unwrap();
        if FOREIGN_NAMES.iter().any(|(file, _)| *file == inner) {
            if !renames.is_empty() {
                unused.remove(inner);
            }
            continue;
        }
        let told = renames.iter().map(|(name, other)| format!("{inner}: `{name}` is `{other}`"));
        broken.extend(told);
    }
    broken.extend(unused.iter().map(|file| format!("{file} has no foreign names any more")));
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_form_of_a_rename_is_seen() {
    let one = |from: &str, to: &str| vec![(from.to_owned(), to.to_owned())];
    assert_eq!(
        renames_in("struct A { #[serde(default, rename = \"words\")] message: String }"),
        one("message", "words")
    );
    assert_eq!(
        renames_in("enum A { B { #[serde(rename = \"place\")] position: u32 } }"),
        one("position", "place")
    );
    assert_eq!(renames_in("enum A { #[serde(rename = \"c\")] B }"), one("B", "c"));
    assert_eq!(renames_in("#[schemars(rename = \"B\")] struct A;"), one("A", "B"));
    assert!(renames_in("struct A { #[serde(rename = \"loop\")] loop_id: u32 }").is_empty());
    assert!(renames_in("struct A { #[serde(rename = \"a-B\")] a_b: u32 }").is_empty());
}
