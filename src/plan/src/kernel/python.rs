//! The parts of a kernel.toml that differ for Python: entry, reference, model. Also the modules
//! that a source imports from its own folder.

use std::path::{Path, PathBuf};

use rgpu_case::{Number, Setting};

use super::KernelError;
use super::document::Item;
use super::read::identifier;
use super::spec::{ModelSpec, PythonFunction};

/// Parses `entry = { python = "softmax", prepare = "build", fresh = true }`.
pub(super) fn entry(item: &Item<'_>) -> Result<PythonFunction, KernelError> {
    let table = item.table(&["python", "prepare", "fresh"])?;
    Ok(PythonFunction {
        function: identifier(&table.required("python")?)?,
        prepare: table.optional("prepare").map(|item| identifier(&item)).transpose()?,
        fresh: table.optional("fresh").map(|item| item.boolean()).transpose()?.unwrap_or(false),
        ..PythonFunction::default()
    })
}

/// Parses `[model]`: name, variant, dtype, and further parameters of `prepare`.
pub(super) fn model(item: &Item<'_>) -> Result<ModelSpec, KernelError> {
    let mut model = ModelSpec::default();
    for (name, item) in item.entries()? {
        match name {
            "name" => item.text()?.clone_into(&mut model.name),
            "variant" => item.text()?.clone_into(&mut model.variant),
            "dtype" => item.text()?.clone_into(&mut model.dtype),
            name if !super::is_identifier(name) => {
                return Err(item.error(format!("`{name}` is not an identifier")));
            }
            name => model.settings.push((name.to_owned(), setting(&item)?)),
        }
    }
    if model.name.is_empty() { Err(item.error("`model.name` is missing")) } else { Ok(model) }
}

fn setting(item: &Item<'_>) -> Result<Setting, KernelError> {
    if let Ok(text) = item.text() {
        return Ok(Setting::Text(text.to_owned()));
    }
    if let Ok(flag) = item.boolean() {
        return Ok(Setting::Bool(flag));
    }
    match item.as_integer()? {
        Some(number) => Ok(Setting::Number(Number::Int(number))),
        None => item.float().map(|number| Setting::Number(Number::Float(number))).map_err(|_| {
            item.error(format!("`{}` must be a text, a number, true or false", item.key))
        }),
    }
}

/// Functions at the top level, each with the text of its parameter list.
pub(super) fn functions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices("def ").filter_map(move |(at, _)| {
        let starts_line = at == 0 || text.as_bytes().get(at - 1) == Some(&b'\n');
        let (name, rest) = text[at + 4..].split_once('(')?;
        let (parameters, _) = rest.split_once(')')?;
        (starts_line && super::is_identifier(name.trim())).then_some((name.trim(), parameters))
    })
}

/// One module that a Python source imports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The module with its packages; leading dots mean the source's own package.
    pub module: String,
    /// The names after `from MODULE import`; empty for `import MODULE`.
    pub names: Vec<String>,
}

impl Import {
    /// The outermost package or module. Empty for a relative import.
    pub fn top_level(&self) -> &str {
        self.module.split('.').next().unwrap_or_default()
    }
}

/// The `import` and `from` statements of a Python source, wherever they stand in it. The text of
/// strings and comments is no statement. A source with syntax errors gives what can be read.
pub fn imports(text: &str) -> Vec<Import> {
    let mut found = Vec::new();
    for statement in statements(text) {
        let statement = statement.replace(['(', ')'], " ");
        let words: Vec<&str> = statement.split_whitespace().collect();
        let names_of = |words: &[&str]| -> Vec<String> {
            let list = words.join(" ");
            let names = list.split(',').filter_map(|part| part.split_whitespace().next());
            names.map(str::to_owned).collect()
        };
        match words.split_first() {
            Some((&"import", rest)) => {
                let modules = names_of(rest).into_iter();
                found.extend(modules.map(|module| Import { module, names: Vec::new() }));
            }
            Some((&"from", rest)) => {
                let Some(at) = rest.iter().position(|word| *word == "import") else { continue };
                let names = names_of(&rest[at + 1..]);
                found.push(Import { module: rest[..at].concat(), names });
            }
            _ => {}
        }
    }
    found
}

/// What a Python source defines at its top level under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Definition {
    /// `def NAME`.
    Function,
    /// `class NAME`.
    Class,
    /// `NAME = …`, with or without a type.
    Value,
}

/// What a Python source defines under `name` at its top level, by its statements alone. Names that
/// are imported or made by code do not count.
pub(super) fn definition(text: &str, name: &str) -> Option<Definition> {
    statements(text).iter().find_map(|statement| {
        // The simple statements of a line follow each other after a space or `;`; indented ones
        // are inside of something.
        let statement = statement.strip_prefix("async ").unwrap_or(statement);
        let (rest, kind) = match statement.split_once(' ') {
            Some(("def", rest)) => (rest, Definition::Function),
            Some(("class", rest)) => (rest, Definition::Class),
            _ => (statement, Definition::Value),
        };
        let rest = if kind == Definition::Value { rest } else { rest.trim_start_matches(' ') };
        let rest = rest.strip_prefix(name)?;
        let next = rest.trim_start();
        let is_defined = match kind {
            Definition::Function => next.starts_with('('),
            // The `:` that ends the head is no part of the statement.
            Definition::Class => next.is_empty() || next.starts_with('('),
            Definition::Value => next.starts_with('=') && !next.starts_with("=="),
        };
        is_defined.then_some(kind)
    })
}

/// Whether a Python source does something of its own when it is run: it has a top-level
/// `if __name__ == …`.
pub(super) fn has_main(text: &str) -> bool {
    statements(text).iter().any(|statement| {
        let condition = statement.strip_prefix("if").unwrap_or_default();
        condition.trim_start_matches([' ', '(']).starts_with("__name__")
    })
}

/// The names of all functions, also inside of classes, that begin with `prefix` and have this
/// parameter.
pub(super) fn functions_with(text: &str, prefix: &str, parameter: &str) -> Vec<String> {
    let statements = statements(text);
    let functions = statements.iter().filter_map(|statement| {
        let (name, rest) = statement.trim_start().strip_prefix("def ")?.split_once('(')?;
        let (parameters, _) = rest.rsplit_once(')')?;
        let has_it = parameters.split(',').any(|one| {
            let name = one.split([':', '=']).next().unwrap_or_default();
            name.trim() == parameter
        });
        let name = name.trim();
        (name.starts_with(prefix) && has_it).then(|| name.to_owned())
    });
    functions.collect()
}

/// The simple statements of a Python source, without comments and without the text of strings.
/// Lines that continue in brackets or after a backslash are joined.
fn statements(text: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut statement = String::new();
    let mut depth = 0usize;
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let mut length = next.len_utf8();
        match next {
            '#' => length = rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => length = string_length(rest),
            '\\' => length += rest[1..].chars().next().map_or(0, char::len_utf8),
            '\n' | ';' | ':' if depth == 0 => statements.push(std::mem::take(&mut statement)),
            '(' | '[' | '{' => {
                depth += 1;
                statement.push(next);
            }
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                statement.push(next);
            }
            _ => statement.push(next),
        }
        if matches!(next, '\\' | '"' | '\'') {
            statement.push(' ');
        }
        rest = &rest[length..];
    }
    statements.push(statement);
    statements
}

/// The length in bytes of the string that `text` begins with, with its quotes. A string that has no
/// end stops at its line's end; one in triple quotes at the text's.
fn string_length(text: &str) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let is_triple = text.starts_with(&triple);
    let end = if is_triple { triple.as_str() } else { quote };
    let mut at = end.len();
    while let Some(next) = text[at..].chars().next() {
        if text[at..].starts_with(end) {
            return at + end.len();
        }
        if next == '\n' && !is_triple {
            return at;
        }
        at += next.len_utf8();
        if next == '\\' {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    at
}

/// The files in the source's folder that its imports may mean: modules and packages. They need not
/// exist: other modules are installed on the host.
pub(super) fn import_candidates(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut add_module = |module: &str| {
        let path = folder.join(module.replace('.', "/"));
        found.push(path.with_extension("py"));
        found.push(path.join("__init__.py"));
    };
    for import in imports(text) {
        let package = import.module.trim_start_matches('.');
        if !package.is_empty() {
            add_module(package);
        }
        // `name` may be a module: `from package import module`.
        for name in &import.names {
            add_module([package, name].join(".").trim_matches('.'));
        }
    }
    found.retain(|path| path.file_stem().is_some_and(|stem| !stem.is_empty()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_read_wherever_python_allows_them() {
        let text = "import torch, triton, triton.language as tl; import os\n\
            \"\"\"\nimport cutlass\n\"\"\"\n# import numba\nx = 'import cupy'\n\
            from a.b import (c,  # comment\n    d as e,\n)\n\
            from . import near\n\
            try: import f\nexcept ImportError: pass\n\
            import g, \\\n    h\n\
            def k():\n    from i import *\n\
            table = {'x': 1, 'import j': [2]}\nimporter = important\n";
        let shown: Vec<String> = imports(text)
            .iter()
            .map(|import| format!("{} {}", import.module, import.names.join(",")))
            .collect();
        let expected = [
            "torch ",
            "triton ",
            "triton.language ",
            "os ",
            "a.b c,d",
            ". near",
            "f ",
            "g ",
            "h ",
            "i *",
        ];
        assert_eq!(shown, expected);
        for broken in ["import", "from", "from x", "x = '", "\"\"\"import y", "import (", "\\"] {
            assert!(imports(broken).is_empty(), "{broken}");
        }
        assert_eq!(imports("import ä.ö").first().map(Import::top_level), Some("ä"));
    }

    #[test]
    fn names_are_defined_at_the_top_level_of_a_source() {
        let text = "import torch\n@torch.no_grad()\ndef custom_kernel(data: (int), x={1: 2}) -> int:\n    \
            def inner(): pass\n    other = 1\n\
            class Model(torch.nn.Module):\n    def forward(self): pass\n\
            class Plain: pass\nasync def later(): pass\n\
            \"\"\"\ndef in_text(): pass\n\"\"\"\n# def in_comment(): pass\n\
            check = make(\n    ref=1)\nequal == 3\ncustom_kernel_2(x)\n";
        let kind = |name| definition(text, name);
        assert_eq!(kind("custom_kernel"), Some(Definition::Function));
        assert_eq!(kind("Model"), Some(Definition::Class));
        assert_eq!(kind("Plain"), Some(Definition::Class));
        assert_eq!(kind("later"), Some(Definition::Function));
        assert_eq!(kind("check"), Some(Definition::Value));
        for none in ["inner", "other", "forward", "in_text", "in_comment", "equal", "ref", "custom"]
        {
            assert_eq!(kind(none), None, "{none}");
        }
        assert!(has_main("x = 1\nif __name__ == '__main__':\n    pass\n"));
        assert!(!has_main("def f():\n    if __name__ == 'x': pass\n# if __name__\n"));
        for broken in ["def", "def ", "class", "def f", "x", "", "=", "def f(\n"] {
            assert_eq!(definition(broken, "y"), None, "{broken}");
        }
    }

    #[test]
    fn import_lines_name_modules_and_packages_beside_the_source() {
        let text = "import torch, helper as h\nfrom task import input_t, output_t  # types\nfrom .near import (x,\n    y)\nimport a.b\n";
        let found = import_candidates(Path::new("k"), text);
        for name in ["k/helper.py", "k/task.py", "k/near.py", "k/a/b.py", "k/a/b/__init__.py"] {
            assert!(found.contains(&PathBuf::from(name)), "{name} of {found:?}");
        }
        assert!(import_candidates(Path::new("k"), "x = 'import y'\nfrom x\n").is_empty());
    }
}
