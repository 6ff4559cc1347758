//! What the text of a Python file names: modules that it imports, files that it opens, and folders
//! that it adds to `sys.path`.
//!
//! The text is divided into words without being run or checked. A mistake in it hides at most what
//! stands on the same line or in the same string. Paths are computed only from literals, `__file__`
//! and the usual functions of `os.path` and `pathlib`; any other expression has no value.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::kernel::python_tokens::{Token, tokens};

/// The most names of each kind that are taken from one file.
const MAX_NAMES: usize = 2000;

/// How deep expressions may be nested.
const MAX_DEPTH: usize = 24;

/// The most words of an expression for a path, and of a call that adds to `sys.path`.
const MAX_ROW: usize = 512;

/// The longest path.
const MAX_PATH_BYTES: usize = 4096;

/// Functions whose first argument names a file to read, beside `open` and `Path`.
const READERS: [&str; 13] = [
    "fromfile",
    "genfromtxt",
    "imread",
    "load",
    "load_file",
    "loadtxt",
    "memmap",
    "read_csv",
    "read_json",
    "read_parquet",
    "read_text",
    "read_video",
    "safe_open",
];

/// Endings of files that a Python program compiles or loads: a string that ends so names one.
const SOURCE_ENDINGS: [&str; 12] =
    [".c", ".cc", ".cpp", ".cu", ".cubin", ".cuh", ".cxx", ".fatbin", ".h", ".hpp", ".ptx", ".so"];

/// Whether a path has an ending of [`SOURCE_ENDINGS`].
pub(super) fn is_compiled_source(path: &Path) -> bool {
    let ending = path.extension().map(|ending| format!(".{}", ending.to_string_lossy()));
    ending.is_some_and(|ending| SOURCE_ENDINGS.contains(&ending.as_str()))
}

/// The names in a Python file. Paths are relative to the folder in which the program runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PythonSource {
    /// The imports, in their order.
    pub imports: Vec<Import>,
    /// Files that it opens for reading, and sources that it compiles or loads.
    pub files: Vec<PathBuf>,
    /// Folders that it adds to `sys.path`.
    pub search_folders: Vec<PathBuf>,
}

/// One import of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Import {
    /// The number of leading dots; 0: an absolute import.
    pub level: usize,
    /// The parts of the module's name.
    pub module: Vec<String>,
    /// The names behind `import` in `from … import`, which may be modules too.
    pub names: Vec<String>,
}

impl PythonSource {
    /// Reads the text of the file at `path`.
    pub(super) fn read(text: &str, path: &Path) -> Self {
        let tokens = tokens(text);
        let mut reader = Reader { tokens: &tokens, path, variables: BTreeMap::new() };
        let mut source = Self::default();
        for at in 0..tokens.len() {
            reader.look(at, &mut source);
        }
        source.imports.truncate(MAX_NAMES);
        source.files.truncate(MAX_NAMES);
        source.search_folders.truncate(MAX_NAMES);
        source
    }
}

/// Looks at the words of one file.
struct Reader<'t> {
    tokens: &'t [Token<'t>],
    /// The path of the file.
    path: &'t Path,
    /// Variables whose value is a path.
    variables: BTreeMap<&'t str, PathBuf>,
}

impl<'t> Reader<'t> {
    fn token(&self, at: usize) -> &'t Token<'t> {
        self.tokens.get(at).unwrap_or(&Token::End)
    }

    fn is_sign(&self, at: usize, sign: char) -> bool {
        *self.token(at) == Token::Sign(sign)
    }

    fn name(&self, at: usize) -> Option<&'t str> {
        if let Token::Name(name) = self.token(at) { Some(name) } else { None }
    }

    /// Takes what begins at this word.
    fn look(&mut self, at: usize, source: &mut PythonSource) {
        if let Token::Text(text) = self.token(at) {
            self.source_file(text, source);
        }
        let Some(name) = self.name(at) else { return };
        let before = at.checked_sub(1).map_or(&Token::End, |before| self.token(before));
        let starts_statement = matches!(before, Token::End | Token::Sign(':'));
        match name {
            "import" if starts_statement => self.import(at + 1, source),
            "from" if starts_statement => self.import_from(at + 1, source),
            "import_module" | "__import__" if self.is_sign(at + 1, '(') => {
                if let Token::Text(module) = self.token(at + 2) {
                    let name = module.trim_start_matches('.');
                    let parts = name.split('.').filter(|part| !part.is_empty());
                    source.imports.push(Import {
                        level: module.len() - name.len(),
                        module: parts.map(str::to_owned).collect(),
                        names: Vec::new(),
                    });
                }
            }
            "open" | "Path" | "PurePath" | "run_path" if self.is_sign(at + 1, '(') => {
                if let Some((path, end)) = self.value(at + 2, 0)
                    && !(name == "open" && self.is_mode_for_writing(end))
                {
                    source.files.extend(within(&path).filter(|path| !path.as_os_str().is_empty()));
                }
                // `Path(…) / "x"` names a file by the whole expression.
                if let Some((path, _)) = self.value(at, 0).filter(|_| name != "open") {
                    source.files.extend(within(&path).filter(|path| !path.as_os_str().is_empty()));
                }
            }
            // `default="data/x"` of an option names a file if there is one.
            "default" if self.is_sign(at + 1, '=') => self.data_file(at + 2, source),
            name if READERS.contains(&name) && self.is_sign(at + 1, '(') => {
                self.data_file(at + 2, source);
            }
            "join" | "joinpath" if self.is_sign(at + 1, '(') => {
                if let Some((path, _)) = self.value(at, 0).filter(|(p, _)| is_compiled_source(p)) {
                    source.files.extend(within(&path));
                }
            }
            "sys" if self.names(at + 1, &["path"]) => self.search_folders(at + 3, source),
            _ if starts_statement && self.is_sign(at + 1, '=') && !self.is_sign(at + 2, '=') => {
                let value = self.value(at + 2, 0);
                let whole = value.filter(|(_, end)| *self.token(*end) == Token::End);
                match whole {
                    Some((path, _)) => {
                        self.variables.insert(name, path);
                    }
                    None => {
                        self.variables.remove(name);
                    }
                }
            }
            _ => {}
        }
    }

    /// Takes the path that the expression at this place stands for.
    fn data_file(&self, at: usize, source: &mut PythonSource) {
        if let Some((path, _)) = self.value(at, 0) {
            source.files.extend(within(&path).filter(|path| !path.as_os_str().is_empty()));
        }
    }

    /// Takes a string that names a source to compile: in the folder in which the program runs, or in
    /// that of the file.
    fn source_file(&self, text: &str, source: &mut PythonSource) {
        let named = Path::new(text);
        if text.len() > MAX_PATH_BYTES || text.contains('\n') || !is_compiled_source(named) {
            return;
        }
        let beside = self.path.parent().unwrap_or(Path::new("")).join(named);
        source.files.extend(within(named).chain(within(&beside)));
    }

    /// Whether `.a.b` stands at this place.
    fn names(&self, at: usize, names: &[&str]) -> bool {
        let mut places = names.iter().zip((at..).step_by(2));
        places.all(|(name, at)| self.is_sign(at, '.') && self.name(at + 1) == Some(name))
    }

    /// `a.b as c, d` behind `import`.
    fn import(&self, mut at: usize, source: &mut PythonSource) {
        loop {
            let (module, end) = self.dotted(at);
            if module.is_empty() {
                return;
            }
            source.imports.push(Import { module, ..Import::default() });
            at = if self.name(end) == Some("as") { end + 2 } else { end };
            if !self.is_sign(at, ',') {
                return;
            }
            at += 1;
        }
    }

    /// `..a.b import (c as d, e)` behind `from`.
    fn import_from(&self, mut at: usize, source: &mut PythonSource) {
        let mut level = 0;
        while self.is_sign(at, '.') {
            level += 1;
            at += 1;
        }
        let (module, end) =
            if self.name(at) == Some("import") { (Vec::new(), at) } else { self.dotted(at) };
        if self.name(end) != Some("import") || level == 0 && module.is_empty() {
            return;
        }
        let mut names = Vec::new();
        let mut at = end + 1;
        while *self.token(at) != Token::End && !self.is_sign(at, ')') && names.len() < MAX_NAMES {
            match self.name(at) {
                Some("as") => at += 1,
                // Another statement begins.
                Some("from" | "import") => break,
                Some(name) => names.push(name.to_owned()),
                None => {}
            }
            at += 1;
        }
        source.imports.push(Import { level, module, names });
    }

    /// The parts of `a.b.c`, and the place behind them.
    fn dotted(&self, mut at: usize) -> (Vec<String>, usize) {
        let mut parts = Vec::new();
        while let Some(name) = self.name(at) {
            parts.push(name.to_owned());
            at += 1;
            if !self.is_sign(at, '.') {
                break;
            }
            at += 1;
        }
        (parts, at)
    }

    /// `.append(…)`, `.insert(0, …)` or `.extend([…])` behind `sys.path`.
    fn search_folders(&self, first: usize, source: &mut PythonSource) {
        let ways = ["append", "insert", "extend"];
        if !ways.iter().any(|way| self.names(first, &[way])) || !self.is_sign(first + 2, '(') {
            return;
        }
        let mut depth = 0_usize;
        for at in first + 2..self.tokens.len().min(first + MAX_ROW) {
            match self.token(at) {
                Token::Sign('(' | '[') => depth += 1,
                Token::Sign(')' | ']') => depth = depth.saturating_sub(1),
                Token::Sign(',') => {}
                Token::End => return,
                _ => continue,
            }
            if depth == 0 {
                return;
            }
            // Deeper brackets belong to a value that was read already.
            let is_list = depth == 2 && self.names(first, &["extend"]);
            if (depth == 1 || is_list)
                && let Some((path, end)) = self.value(at + 1, 0)
                && matches!(self.token(end), Token::Sign(',' | ')' | ']'))
            {
                source.search_folders.extend(within(&path));
            }
        }
    }

    /// Whether the mode behind the path of `open` writes.
    fn is_mode_for_writing(&self, mut at: usize) -> bool {
        if !self.is_sign(at, ',') {
            return false;
        }
        at += 1;
        if self.name(at) == Some("mode") && self.is_sign(at + 1, '=') {
            at += 2;
        }
        matches!(self.token(at), Token::Text(mode) if mode.contains(['w', 'a', 'x']))
    }

    /// The path that the expression at this place stands for, and the place behind it.
    fn value(&self, at: usize, depth: usize) -> Option<(PathBuf, usize)> {
        if depth > MAX_DEPTH {
            return None;
        }
        let (mut path, mut at) = match self.token(at) {
            Token::Text(text) if !text.starts_with(['/', '~']) => (PathBuf::from(text), at + 1),
            Token::Name("__file__") => (self.path.to_owned(), at + 1),
            Token::Name(name) if self.variables.contains_key(name) => {
                (self.variables.get(name)?.clone(), at + 1)
            }
            Token::Name(_) => self.function(at, depth)?,
            Token::Sign('(') => {
                let (path, end) = self.value(at + 1, depth + 1)?;
                (path, Some(end + 1).filter(|_| self.is_sign(end, ')'))?)
            }
            _ => return None,
        };
        // Members of pathlib's paths, and their operator `/`. Each path of a long row of them is
        // looked at for itself, so a row has an end.
        let last = at.saturating_add(MAX_ROW);
        loop {
            if at > last {
                return None;
            }
            if self.is_sign(at, '/') && !self.is_sign(at + 1, '/') {
                let (inner, end) = self.value_without_operator(at + 1, depth + 1)?;
                path.push(inner);
                at = end;
            } else if self.names(at, &["parent"]) {
                path = parent(&path)?;
                at += 2;
            } else if self.names(at, &["parents"]) && self.is_sign(at + 2, '[') {
                let Token::Number(number) = self.token(at + 3) else { return None };
                for _ in 0..=(*number).min(MAX_DEPTH) {
                    path = parent(&path)?;
                }
                at += 5;
            } else if let (true, Some(method)) = (self.is_sign(at, '.'), self.name(at + 1))
                && ["resolve", "absolute", "as_posix"].contains(&method)
                && self.is_sign(at + 2, '(')
                && self.is_sign(at + 3, ')')
            {
                at += 4;
            } else if self.names(at, &["joinpath"]) && self.is_sign(at + 2, '(') {
                let (parts, end) = self.arguments(at + 3, depth)?;
                path.extend(parts);
                at = end;
            } else {
                return (path.as_os_str().len() <= MAX_PATH_BYTES).then_some((path, at));
            }
        }
    }

    /// The right side of pathlib's operator `/`.
    fn value_without_operator(&self, at: usize, depth: usize) -> Option<(PathBuf, usize)> {
        match self.token(at) {
            Token::Text(text) if !text.starts_with('/') => Some((PathBuf::from(text), at + 1)),
            Token::Name(name) if self.variables.contains_key(name) => {
                Some((self.variables.get(name)?.clone(), at + 1))
            }
            _ => self.value(at, depth),
        }
    }

    /// The value of a function of `os`, `os.path` or `pathlib`.
    fn function(&self, at: usize, depth: usize) -> Option<(PathBuf, usize)> {
        let (parts, end) = self.dotted(at);
        let name = parts.last()?.as_str();
        match name {
            "pardir" if parts.len() > 1 => return Some((PathBuf::from(".."), end)),
            "curdir" if parts.len() > 1 => return Some((PathBuf::from("."), end)),
            _ => {}
        }
        if !self.is_sign(end, '(') {
            return None;
        }
        if self.is_sign(end + 1, ')') {
            let is_here = matches!(name, "getcwd" | "cwd" | "Path" | "PurePath");
            return is_here.then(|| (PathBuf::new(), end + 2));
        }
        let (arguments, end) = self.arguments(end + 1, depth)?;
        let first = arguments.first()?;
        let path = match name {
            "dirname" => parent(first)?,
            "abspath" | "realpath" | "normpath" | "fspath" | "str" => first.clone(),
            "join" | "Path" | "PurePath" | "PosixPath" => arguments.iter().collect(),
            _ => return None,
        };
        Some((path, end))
    }

    /// The arguments of a call up to its bracket, if each is a path, and the place behind it.
    fn arguments(&self, mut at: usize, depth: usize) -> Option<(Vec<PathBuf>, usize)> {
        let mut found = Vec::new();
        let last = at.saturating_add(MAX_ROW);
        while at <= last {
            let (path, end) = self.value(at, depth + 1)?;
            found.push(path);
            match self.token(end) {
                Token::Sign(')') => return Some((found, end + 1)),
                Token::Sign(',') if self.is_sign(end + 1, ')') => return Some((found, end + 2)),
                Token::Sign(',') => at = end + 1,
                _ => return None,
            }
        }
        None
    }
}

/// The folder of a path; `None` above the folder in which the program runs.
fn parent(path: &Path) -> Option<PathBuf> {
    let mut path = within(path).next()?;
    path.pop().then_some(path)
}

/// A path without `.` and `..`, if it stays in the folder in which the program runs.
pub(super) fn within(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let mut plain = PathBuf::new();
    let is_inner = path.components().all(|part| match part {
        Component::Normal(name) => {
            plain.push(name);
            true
        }
        Component::CurDir => true,
        Component::ParentDir => plain.pop(),
        Component::RootDir | Component::Prefix(_) => false,
    });
    is_inner.then_some(plain).into_iter()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> PythonSource {
        PythonSource::read(text, Path::new("tools/run.py"))
    }

    fn imports(text: &str) -> Vec<String> {
        let shown = |import: Import| {
            let names = import.names.join(",");
            let colon = if names.is_empty() { "" } else { ":" };
            format!("{}{}{colon}{names}", ".".repeat(import.level), import.module.join("."))
        };
        read(text).imports.into_iter().map(shown).collect()
    }

    fn paths(text: &str) -> Vec<String> {
        read(text).files.iter().map(|path| path.display().to_string()).collect()
    }

    fn folders(text: &str) -> Vec<String> {
        read(text).search_folders.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn imports_of_every_form_are_found() {
        for (text, found) in [
            ("import a", "a"),
            ("import a.b as c, d ; import e", "a.b d e"),
            ("try: import a\nexcept ImportError: import b", "a b"),
            ("from a.b import c as d, e", "a.b:c,e"),
            ("from a import (\n  b, # first\n  c as d,\n)\nimport e", "a:b,c e"),
            ("from . import c", ".:c"),
            ("from ..a import *", "..a"),
            ("from ... import b", "...:b"),
            ("def f():\n    from a import \\\n        b", "a:b"),
            ("importlib.import_module('a.b')", "a.b"),
            ("import_module(\".a\", __package__)", ".a"),
            ("__import__('a')", "a"),
            ("'''\nimport a\n'''\n# import b\nx = 'import c'", ""),
            ("raise X from e\nyield from y\nimport_module(name)", ""),
            ("from a import", "a"),
            ("from import a", ""),
            ("import", ""),
        ] {
            assert_eq!(imports(text).join(" "), found, "{text}");
        }
    }

    #[test]
    fn a_mistake_hides_no_later_line() {
        assert_eq!(imports("x = (1,\nimport a\ndef f(:\n  import b"), ["a", "b"]);
        assert_eq!(imports("x = 'never closed\nimport a"), ["a"]);
        assert_eq!(imports("x = \"a\\\"b'\nimport a"), ["a"]);
        assert_eq!(imports("x = ))]\nimport a\n\0\u{feff}import b\n"), ["a"]);
        assert_eq!(imports("x = '''never closed\nimport a"), [""; 0]);
    }

    #[test]
    fn paths_of_files_are_computed_from_literals_and_the_files_own_path() {
        for (text, found) in [
            ("open('input.txt')", "input.txt"),
            ("exec(open('configurator.py').read())", "configurator.py"),
            ("with open(r'a/../b.txt', 'rb', encoding=None) as f:", "b.txt"),
            ("open('out.txt', 'w'); open('log', mode='a')", ""),
            ("open('/etc/passwd'); open('~/x'); open('../x')", ""),
            ("open(f'{x}.txt'); open(b'x'); open('a\\tb'); open(name)", ""),
            ("open(os.path.join(os.path.dirname(__file__), 'data', 'x'))", "tools/data/x"),
            ("HERE = os.path.dirname(os.path.abspath(__file__))\nopen(join(HERE, 'x'))", "tools/x"),
            ("HERE = f()\nopen(os.path.join(HERE, 'x'))", ""),
            ("Path(__file__).resolve().parent / 'x' / 'y'", "tools/run.py tools/x/y"),
            ("open(Path(__file__).parents[1] / 'x')", "x tools/run.py x"),
            ("open(Path(__file__).parents[2] / 'x')", "tools/run.py"),
            ("Image.open('a.png')", "a.png"),
            ("np.load('a.npy'); x = torch.load(os.path.join('w', 'b.pt'))", "a.npy w/b.pt"),
            ("parser.add_argument('--data', default='data/in.txt')", "data/in.txt"),
            ("load(name='e', sources=['k.cu'])", "k.cu tools/k.cu"),
            (
                "load(sources=[os.path.join(os.path.dirname(__file__), 'x', 'k.cpp')])",
                "tools/x/k.cpp k.cpp tools/k.cpp",
            ),
            ("print('x.txt', '/abs/k.cu')", ""),
        ] {
            assert_eq!(paths(text).join(" "), found, "{text}");
        }
    }

    #[test]
    fn folders_of_the_search_path_are_found() {
        for (text, found) in [
            ("sys.path.append('src')", "src"),
            ("sys.path.insert(0, os.path.dirname(os.path.dirname(__file__)))", ""),
            ("sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'lib'))", "lib"),
            ("sys.path.insert(0, str(Path(__file__).parent))", "tools"),
            ("sys.path.extend(['a', 'b'])", "a b"),
            ("sys.path.append(x)", ""),
            ("sys.path.append('..')", ""),
            ("print(sys.path)", ""),
        ] {
            let expected: Vec<&str> = found.split(' ').collect();
            assert_eq!(folders(text).join(" "), expected.join(" "), "{text}");
        }
        assert_eq!(folders("sys.path.append(os.path.dirname(os.path.dirname(__file__)))").len(), 1);
    }

    #[test]
    fn deep_nesting_ends() {
        let deep = format!("open({}'x'{})", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(paths(&deep), [""; 0]);
    }

    #[test]
    fn repeated_beginnings_take_linear_time() {
        let parts = [
            "open(",
            "open('a',",
            "open('a', open(",
            "open('a'/",
            "Path(\"\")/",
            "Path('a')/",
            "join('',",
            "join('', Path('')/",
            "Path(''/",
            "sys.path.append(",
            "sys.path.extend([",
            ": from a import (",
            "__main__ open(",
        ];
        for part in parts {
            let started = std::time::Instant::now();
            read(&part.repeat(10_000));
            let seconds = started.elapsed().as_secs();
            assert!(seconds < 20, "`{part}` took {seconds} s");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z .'\"\\\\\n(){}=,/#;é\\[\\]]{0,200}") {
            read(&text);
            read(&format!("from {text} import {text}\nopen({text}\nsys.path.append({text}"));
        }
    }
}
