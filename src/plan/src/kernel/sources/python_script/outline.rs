//! The outline of a Python file: its functions and classes with their decorators, and what it does
//! when it is run.

use std::collections::{BTreeMap, BTreeSet};

use crate::kernel::is_identifier;
use crate::kernel::python_tokens::{Token, tokens_with_places};

/// The most definitions that are taken from one file.
const MAX_DEFINITIONS: usize = 2000;

/// The most strings and calls that are taken from one file.
const MAX_TEXTS: usize = 20_000;

/// The most words between brackets that are looked at, and the most bytes before a statement in its line.
const MAX_LENGTH: usize = 4096;

/// Last names of functions that only set something up: called by themselves, they are no work.
const SET_UP: [&str; 23] = [
    "add_argument",
    "append",
    "basicConfig",
    "clear_cache",
    "cuda_is_available",
    "disable_cache",
    "enable_cache",
    "extend",
    "filterwarnings",
    "getLogger",
    "init",
    "insert",
    "insert_library_path",
    "install",
    "is_available",
    "load_dotenv",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "setLevel",
    "setdefault",
    "simplefilter",
    "use",
];

/// The outline of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Outline<'t> {
    /// Functions and classes, also those inside of others.
    pub definitions: Vec<Definition<'t>>,
    /// Whether the file tests `__name__`, to do something if it is run.
    pub has_main: bool,
    /// Whether running the file does more than define and set up.
    pub acts: bool,
    /// Names that are indexed, as in `kernel[grid](…)`.
    pub indexed: BTreeSet<&'t str>,
    /// Names with what they stand for, from imports: `tl` → `triton.language`.
    pub imported: BTreeMap<&'t str, String>,
    /// Texts of strings, with their lines.
    pub texts: Vec<SourceText<'t>>,
    /// Calls of functions by their names, with the last string among their arguments that may be a
    /// name.
    pub calls: Vec<(String, Option<&'t str>)>,
}

/// A string of the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceText<'t> {
    /// The text between the quotes.
    pub text: &'t str,
    /// Its first line, from 1.
    pub line: usize,
    /// Whether escapes in it are to be replaced.
    pub has_escapes: bool,
    /// Whether parts of it are computed.
    pub is_computed: bool,
}

/// A function or class.
#[derive(Clone, Debug, Default)]
pub(super) struct Definition<'t> {
    pub name: &'t str,
    pub is_class: bool,
    /// Whether it is at the top level of the file.
    pub is_outermost: bool,
    /// Full names of its decorators.
    pub decorators: Vec<Decorator>,
    /// Names of its parameters without a default value.
    pub required: Vec<&'t str>,
    /// Names that are indexed inside of it.
    pub indexed: BTreeSet<&'t str>,
}

/// A decorator.
#[derive(Clone, Debug)]
pub(super) struct Decorator {
    /// Its name with the modules of the imports: `triton.jit`.
    pub name: String,
    /// Whether it has the argument `device=True`.
    pub is_for_device: bool,
}

impl<'t> Outline<'t> {
    /// Reads a file's text.
    pub(super) fn read(text: &'t str) -> Self {
        let placed = tokens_with_places(text);
        let mut outline = Self::default();
        let mut reader = Reader { text, ..Reader::default() };
        let statements = placed.split(|(_, token)| *token == Token::End);
        let statements: Vec<&[(usize, Token<'t>)]> =
            statements.filter(|statement| !statement.is_empty()).collect();
        for statement in &statements {
            reader.take_names(statement, &mut outline);
        }
        for statement in statements {
            reader.look(statement, &mut outline);
        }
        outline
    }

    /// The full name of a dotted one, by the imports.
    fn full_name(&self, parts: &[&str]) -> String {
        let Some((first, rest)) = parts.split_first() else { return String::new() };
        let mut name = self.imported.get(first).cloned().unwrap_or_else(|| (*first).to_owned());
        for part in rest {
            name.push('.');
            name.push_str(part);
        }
        name
    }

    /// The definitions at the top level with this decorator.
    pub(super) fn decorated(&self, decorator: &str) -> impl Iterator<Item = &Definition<'t>> {
        self.definitions.iter().filter(move |definition| {
            definition.is_outermost && definition.decorators.iter().any(|own| own.name == decorator)
        })
    }
}

/// Looks at the statements of one file in their order.
#[derive(Default)]
struct Reader<'t> {
    text: &'t str,
    /// Functions, classes and variables of the top level.
    outermost: BTreeSet<&'t str>,
    /// The indentation of the function or class at whose inside the reader is.
    indent: Option<usize>,
    /// Decorators before a definition.
    pending: Vec<Decorator>,
    /// The place up to which lines were counted, and how many ended before it.
    counted: (usize, usize),
}

impl<'t> Reader<'t> {
    /// How many bytes stand before a place in its line, at most [`MAX_LENGTH`].
    fn column(&self, place: usize) -> usize {
        let first = place.saturating_sub(MAX_LENGTH);
        let before = self.text.as_bytes().get(first..place).unwrap_or_default();
        before.iter().rev().take_while(|byte| **byte != b'\n').count()
    }

    /// The line of a place that is behind those asked for before, from 1.
    fn line(&mut self, place: usize) -> usize {
        let (from, lines) = self.counted;
        let between = self.text.as_bytes().get(from..place).unwrap_or_default();
        let lines = lines + between.iter().filter(|byte| **byte == b'\n').count();
        self.counted = (place.max(from), lines);
        lines + 1
    }

    /// Takes imports, and the names of the top level.
    fn take_names(&mut self, statement: &[(usize, Token<'t>)], outline: &mut Outline<'t>) {
        let words = Words::of(statement);
        let column = statement.first().map_or(0, |(place, _)| self.column(*place));
        match words.name(0) {
            Some("import") => {
                let mut at = 1;
                loop {
                    let (parts, end) = words.dotted(at);
                    let Some(first) = parts.first() else { return };
                    at = end;
                    if words.name(end) == Some("as")
                        && let Some(alias) = words.name(end + 1)
                    {
                        outline.imported.insert(alias, parts.join("."));
                        at = end + 2;
                    } else {
                        outline.imported.insert(first, (*first).to_owned());
                    }
                    if !words.is_sign(at, ',') {
                        return;
                    }
                    at += 1;
                }
            }
            Some("from") => {
                let (parts, end) = words.dotted(1);
                if words.name(end) != Some("import") {
                    return;
                }
                let module = parts.join(".");
                let mut at = end + 1;
                while at < statement.len() {
                    if let Some(name) = words.name(at) {
                        let is_renamed = words.name(at + 1) == Some("as");
                        let alias = if is_renamed { words.name(at + 2) } else { Some(name) };
                        let full = format!("{module}.{name}");
                        outline.imported.extend(alias.map(|alias| (alias, full)));
                        at += if is_renamed { 2 } else { 0 };
                    }
                    at += 1;
                }
            }
            Some("def" | "class") if column == 0 => self.outermost.extend(words.name(1)),
            Some("async") if column == 0 => self.outermost.extend(words.name(2)),
            Some(name) if column == 0 && words.is_sign(1, '=') && !words.is_sign(2, '=') => {
                self.outermost.insert(name);
            }
            _ => {}
        }
    }

    fn look(&mut self, statement: &[(usize, Token<'t>)], outline: &mut Outline<'t>) {
        let words = Words::of(statement);
        let column = statement.first().map_or(0, |(place, _)| self.column(*place));
        self.take_texts_and_calls(statement, outline);
        if self.indent.is_some_and(|indent| column <= indent) {
            self.indent = None;
        }
        if words.is_sign(0, '@') {
            let (parts, end) = words.dotted(1);
            let arguments = statement.get(end..).unwrap_or_default();
            let is_for_device = arguments.windows(3).any(|three| {
                matches!(
                    three,
                    [(_, Token::Name("device")), (_, Token::Sign('=')), (_, Token::Name("True"))]
                )
            });
            self.pending.push(Decorator { name: outline.full_name(&parts), is_for_device });
            return;
        }
        let first = if words.name(0) == Some("async") { 1 } else { 0 };
        let decorators = std::mem::take(&mut self.pending);
        let indexed = words.indexed();
        if let (Some(kind @ ("def" | "class")), Some(name)) =
            (words.name(first), words.name(first + 1))
        {
            if outline.definitions.len() < MAX_DEFINITIONS {
                outline.definitions.push(Definition {
                    name,
                    is_class: kind == "class",
                    is_outermost: self.indent.is_none() && column == 0,
                    decorators,
                    required: words.required_parameters(first + 2),
                    indexed: indexed.clone(),
                });
            }
            if self.indent.is_none() {
                self.indent = Some(column);
            }
        } else if self.indent.is_none() {
            self.look_outside(statement, column, outline);
        } else if let Some(outer) = outline.definitions.iter_mut().rev().find(|d| d.is_outermost) {
            outer.indexed.extend(indexed.iter().copied());
        }
        outline.indexed.extend(indexed);
    }

    /// Looks at a statement that running the file executes.
    fn look_outside(
        &self,
        statement: &[(usize, Token<'t>)],
        column: usize,
        outline: &mut Outline<'t>,
    ) {
        let words = Words::of(statement);
        if words.name(0) == Some("if")
            && statement.iter().any(|(_, t)| *t == Token::Name("__name__"))
        {
            outline.has_main = true;
        }
        match words.name(0) {
            Some(
                "import" | "from" | "if" | "elif" | "else" | "try" | "except" | "finally" | "pass",
            ) => {}
            Some("for" | "while" | "with" | "assert") if column == 0 => outline.acts = true,
            _ => outline.acts |= self.is_work(statement, outline),
        }
    }

    /// Whether a statement calls something of the file's own, or calls anything for its effect.
    fn is_work(&self, statement: &[(usize, Token<'t>)], outline: &Outline<'t>) -> bool {
        let words = Words::of(statement);
        let mut calls_own = false;
        for at in 0..statement.len() {
            let is_member = at > 0 && words.is_sign(at - 1, '.');
            let Some(name) = words.name(at).filter(|_| !is_member) else { continue };
            // `f(…)`, `kernel[grid](…)` and `bench.run(…)` of what the file defines or imports from
            // its own folder.
            let (_, end) = words.dotted(at);
            let is_called = words.is_sign(end, '(') || words.is_call_of_index(end);
            calls_own |= is_called && self.outermost.contains(name) && at > 0;
        }
        let (parts, end) = words.dotted(0);
        let Some(last) = parts.last() else { return calls_own };
        let is_expression = words.is_sign(end, '(') || words.is_sign(end, '[');
        let is_set_up = SET_UP.contains(last)
            || last.starts_with("set_")
            || outline.full_name(&parts).starts_with("sys.")
            || outline.full_name(&parts).starts_with("os.environ");
        let is_assigned = statement.iter().any(|(_, token)| *token == Token::Sign('='))
            && !words.is_sign(end, '(')
            && !words.is_call_of_index(end);
        calls_own || is_expression && !is_assigned && !is_set_up
    }

    fn take_texts_and_calls(
        &mut self,
        statement: &[(usize, Token<'t>)],
        outline: &mut Outline<'t>,
    ) {
        let words = Words::of(statement);
        for (at, (place, token)) in statement.iter().enumerate() {
            let (text, has_escapes, is_computed) = match token {
                Token::Text(text) => (*text, false, false),
                Token::EscapedText(text) | Token::Bytes(text) => (*text, true, false),
                Token::Computed(text) => (*text, true, true),
                Token::Name(_) if !(at > 0 && words.is_sign(at - 1, '.')) => {
                    let (parts, end) = words.dotted(at);
                    if words.is_sign(end, '(') && outline.calls.len() < MAX_TEXTS {
                        let last = words.last_name(end);
                        outline.calls.push((outline.full_name(&parts), last));
                    }
                    continue;
                }
                _ => continue,
            };
            // A line is counted only where somebody may be told it.
            let line = if text.contains("__global__") { self.line(*place) } else { 0 };
            if outline.texts.len() < MAX_TEXTS {
                outline.texts.push(SourceText { text, line, has_escapes, is_computed });
            }
        }
    }
}

/// The words of one statement.
struct Words<'s, 't> {
    tokens: &'s [(usize, Token<'t>)],
    /// For each word the place behind it, and for an open bracket that behind the one that closes
    /// it.
    ends: Vec<usize>,
}

impl<'s, 't> Words<'s, 't> {
    fn of(tokens: &'s [(usize, Token<'t>)]) -> Self {
        let mut ends: Vec<usize> = (1..=tokens.len()).collect();
        let mut open = Vec::new();
        for (at, (_, token)) in tokens.iter().enumerate() {
            match token {
                Token::Sign('(' | '[' | '{') => open.push(at),
                Token::Sign(')' | ']' | '}') => {
                    if let Some(end) = open.pop().and_then(|opened| ends.get_mut(opened)) {
                        *end = at + 1;
                    }
                }
                _ => {}
            }
        }
        for opened in open {
            ends[opened] = tokens.len();
        }
        Self { tokens, ends }
    }

    fn name(&self, at: usize) -> Option<&'t str> {
        if let Some((_, Token::Name(name))) = self.tokens.get(at) { Some(name) } else { None }
    }

    fn is_sign(&self, at: usize, sign: char) -> bool {
        self.tokens.get(at).is_some_and(|(_, token)| *token == Token::Sign(sign))
    }

    /// The parts of `a.b.c`, and the place behind them. Dots before it are left out.
    fn dotted(&self, mut at: usize) -> (Vec<&'t str>, usize) {
        let mut parts = Vec::new();
        while self.is_sign(at, '.') {
            at += 1;
        }
        while let Some(name) = self.name(at).filter(|name| *name != "import") {
            parts.push(name);
            at += 1;
            if !self.is_sign(at, '.') {
                break;
            }
            at += 1;
        }
        (parts, at)
    }

    /// The place behind the bracket that closes the one at `open`.
    fn end_of_brackets(&self, open: usize) -> usize {
        self.ends.get(open).copied().unwrap_or(self.tokens.len())
    }

    /// Whether an index at this place is called: `[grid](…)`.
    fn is_call_of_index(&self, at: usize) -> bool {
        self.is_sign(at, '[') && self.is_sign(self.end_of_brackets(at), '(')
    }

    /// Names that are indexed and called.
    fn indexed(&self) -> BTreeSet<&'t str> {
        let mut found = BTreeSet::new();
        for at in 0..self.tokens.len() {
            if let Some(name) = self.name(at)
                && self.is_call_of_index(at + 1)
            {
                found.insert(name);
            }
        }
        found
    }

    /// The last string among the arguments of the call whose bracket is at `open` that may be a
    /// name. Strings in inner brackets do not count.
    fn last_name(&self, open: usize) -> Option<&'t str> {
        let mut depth = 0_usize;
        let mut found = None;
        let end = self.end_of_brackets(open).min(open + MAX_LENGTH);
        for (_, token) in self.tokens.get(open..end)? {
            match token {
                Token::Sign('(' | '[' | '{') => depth += 1,
                Token::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
                Token::Text(text) if depth == 1 && is_identifier(text) => found = Some(*text),
                _ => {}
            }
        }
        found
    }

    /// The parameters without a default value of the list that begins at `open`.
    fn required_parameters(&self, open: usize) -> Vec<&'t str> {
        let end = self.end_of_brackets(open).saturating_sub(1);
        let Some(list) = self.tokens.get(open + 1..end).filter(|_| self.is_sign(open, '(')) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let mut depth = 0_usize;
        let mut starts = 0;
        for at in 0..=list.len() {
            match list.get(at).map(|(_, token)| token) {
                Some(Token::Sign('(' | '[' | '{')) => depth += 1,
                Some(Token::Sign(')' | ']' | '}')) => depth = depth.saturating_sub(1),
                Some(Token::Sign(',')) | None if depth == 0 => {
                    let parameter = &list[starts..at];
                    let has_default = parameter.iter().any(|(_, t)| *t == Token::Sign('='));
                    if let (Some((_, Token::Name(name))), false) = (parameter.first(), has_default)
                    {
                        found.push(*name);
                    }
                    starts = at + 1;
                }
                _ => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
