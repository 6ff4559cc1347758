//! Reads the statements and expressions of a function.
//!
//! This is not a C++ parser. What it does not understand becomes [`Expression::Other`] and is
//! skipped up to the next `;`, so that nothing is concluded from it.

use std::collections::HashSet;
use std::rc::Rc;

use super::lex::Token;
use super::tree::{
    Declaration, Expression, ForLoop, MemoryKind, Statement, StatementKind, TypeText,
};

/// How deeply statements and expressions may be nested.
pub(super) const MAX_DEPTH: u32 = 80;

/// Names of types that a source declares.
#[derive(Clone, Debug, Default)]
pub(super) struct TypeNames(pub(super) HashSet<Rc<str>>);

const BUILTIN: [&str; 44] = [
    "void",
    "bool",
    "char",
    "short",
    "int",
    "long",
    "float",
    "double",
    "unsigned",
    "signed",
    "size_t",
    "ssize_t",
    "ptrdiff_t",
    "int8_t",
    "int16_t",
    "int32_t",
    "int64_t",
    "uint8_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "uint",
    "uchar",
    "ushort",
    "ulong",
    "half",
    "__half",
    "half2",
    "__half2",
    "nv_bfloat16",
    "__nv_bfloat16",
    "nv_bfloat162",
    "__nv_bfloat162",
    "dim3",
    "auto",
    "cudaStream_t",
    "cudaError_t",
    "cudaEvent_t",
    "uintptr_t",
    "intptr_t",
    "wchar_t",
    "__nv_fp8_e4m3",
    "__nv_fp8_e5m2",
    "longlong",
];

const QUALIFIERS: [&str; 18] = [
    "const",
    "constexpr",
    "volatile",
    "static",
    "register",
    "inline",
    "__restrict__",
    "restrict",
    "__restrict",
    "typename",
    "__device__",
    "__constant__",
    "mutable",
    "thread_local",
    "struct",
    "__grid_constant__",
    "class",
    "enum",
];

/// Whether `word` is one of the vector types: `float4`, `uchar2`.
pub(super) fn is_vector(word: &str) -> bool {
    let Some(base) = word.strip_suffix(['1', '2', '3', '4']) else { return false };
    matches!(
        base,
        "float"
            | "double"
            | "int"
            | "uint"
            | "char"
            | "uchar"
            | "short"
            | "ushort"
            | "long"
            | "ulong"
            | "longlong"
            | "ulonglong"
    )
}

pub(super) fn is_builtin_type(word: &str) -> bool {
    BUILTIN.contains(&word) || is_vector(word)
}

pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

pub(super) struct Parser<'a> {
    pub(super) tokens: &'a [Token],
    pub(super) at: usize,
    pub(super) depth: u32,
    pub(super) types: &'a TypeNames,
}

impl<'a> Parser<'a> {
    pub(super) fn new(tokens: &'a [Token], types: &'a TypeNames) -> Self {
        Self { tokens, at: 0, depth: 0, types }
    }

    pub(super) fn text_at(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    pub(super) fn text(&self) -> &'a str {
        self.text_at(self.at)
    }

    pub(super) fn line(&self) -> u32 {
        let last = self.tokens.len().saturating_sub(1);
        self.tokens.get(self.at.min(last)).map_or(0, |token| token.line)
    }

    pub(super) fn is_over(&self) -> bool {
        self.at >= self.tokens.len()
    }

    /// Takes the next token if it is `text`.
    pub(super) fn take(&mut self, text: &str) -> bool {
        let is_there = !self.is_over() && self.text() == text;
        self.at += usize::from(is_there);
        is_there
    }

    pub(super) fn is_joined(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| token.joined)
    }

    /// Whether three joined `>` follow, which end a launch's configuration.
    pub(super) fn ends_launch(&self) -> bool {
        self.text() == ">"
            && self.text_at(self.at + 1) == ">"
            && self.text_at(self.at + 2) == ">"
            && self.is_joined(self.at + 1)
            && self.is_joined(self.at + 2)
    }

    /// Skips what the bracket at this place encloses, with both brackets.
    pub(super) fn skip_brackets(&mut self) {
        let mut depth = 0_usize;
        while !self.is_over() {
            match self.text() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Skips to the next `;` outside of brackets and takes it; stops before a `}`.
    fn skip_statement(&mut self) {
        while !self.is_over() {
            match self.text() {
                ";" => {
                    self.at += 1;
                    return;
                }
                "}" => return,
                "(" | "[" | "{" => self.skip_brackets(),
                _ => self.at += 1,
            }
        }
    }

    /// The statements up to the end of the tokens.
    pub(super) fn statements(mut self) -> Vec<Statement> {
        let mut statements = Vec::new();
        while !self.is_over() {
            let before = self.at;
            self.statement(&mut statements);
            if self.at == before {
                self.at += 1;
            }
        }
        statements
    }

    pub(super) fn block(&mut self) -> Vec<Statement> {
        let mut statements = Vec::new();
        if !self.take("{") {
            self.statement(&mut statements);
            return statements;
        }
        while !self.is_over() && !self.take("}") {
            let before = self.at;
            self.statement(&mut statements);
            if self.at == before {
                self.at += 1;
            }
        }
        statements
    }

    fn statement(&mut self, statements: &mut Vec<Statement>) {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.at = self.tokens.len();
        } else {
            self.statement_within_depth(statements);
        }
        self.depth -= 1;
    }

    fn statement_within_depth(&mut self, statements: &mut Vec<Statement>) {
        let line = self.line();
        let mut push = |kind| statements.push(Statement { line, kind });
        match self.text() {
            ";" => self.at += 1,
            "{" => push(StatementKind::Block(self.block())),
            "if" => {
                self.at += 1;
                self.take("constexpr");
                let condition = self.condition();
                let then = self.block();
                let otherwise = if self.take("else") { self.block() } else { Vec::new() };
                push(StatementKind::If(condition, then, otherwise));
            }
            "for" => push(self.for_loop()),
            "while" => {
                self.at += 1;
                let condition = self.condition();
                push(StatementKind::While(condition, self.block()));
            }
            "do" => {
                self.at += 1;
                let body = self.block();
                self.take("while");
                let _ = self.condition();
                self.take(";");
                push(StatementKind::While(Expression::Other, body));
            }
            "switch" => {
                self.at += 1;
                let chosen = self.condition();
                push(StatementKind::Expression(chosen));
                // Any of its cases may run.
                push(StatementKind::If(Expression::Other, self.block(), Vec::new()));
            }
            "case" | "default" => {
                while !self.is_over() && !self.take(":") {
                    self.at += 1;
                }
            }
            "return" => {
                self.at += 1;
                let value = if self.text() == ";" { Expression::Other } else { self.expression() };
                self.skip_statement();
                push(StatementKind::Return(value));
            }
            "break" | "continue" | "goto" => {
                self.skip_statement();
                push(StatementKind::Leave);
            }
            "asm" | "__asm__" => push(StatementKind::Assembly(self.assembly())),
            "using" | "typedef" | "static_assert" | "template" => self.skip_statement(),
            _ => {
                let start = self.at;
                if self.declarations(statements) {
                    return;
                }
                self.at = start;
                let expression = self.comma_expression();
                if self.text() != ";" && self.text() != "}" && !self.is_over() {
                    self.skip_statement();
                } else {
                    self.take(";");
                }
                for part in expression {
                    statements.push(Statement { line, kind: StatementKind::Expression(part) });
                }
            }
        }
    }

    /// A condition in parentheses. Of a declaration in it nothing is known.
    fn condition(&mut self) -> Expression {
        if self.text() != "(" {
            return Expression::Other;
        }
        let start = self.at;
        self.skip_brackets();
        let end = self.at;
        let inside = self.tokens.get(start + 1..end.saturating_sub(1)).unwrap_or_default();
        let mut parser = Parser { tokens: inside, at: 0, depth: self.depth, types: self.types };
        let expression = parser.expression();
        if parser.is_over() { expression } else { Expression::Other }
    }

    fn for_loop(&mut self) -> StatementKind {
        self.at += 1;
        let start = self.at;
        self.skip_brackets();
        let end = self.at;
        let inside = self.tokens.get(start + 1..end.saturating_sub(1)).unwrap_or_default();
        let mut parser = Parser { tokens: inside, at: 0, depth: self.depth, types: self.types };
        let mut first = Vec::new();
        let mut condition = None;
        let mut steps = Vec::new();
        if inside.iter().any(|token| &*token.text == ";") {
            parser.statement(&mut first);
            if !parser.take(";") {
                condition = Some(parser.expression());
                parser.take(";");
            }
            steps = if parser.is_over() { Vec::new() } else { parser.comma_expression() };
        }
        let body = self.block();
        StatementKind::For(Box::new(ForLoop { start: first, condition, steps, body }))
    }

    /// The operands of inline assembly: each string may be followed by one in parentheses.
    fn assembly(&mut self) -> Vec<Expression> {
        while !self.is_over() && self.text() != "(" {
            self.at += 1;
        }
        let start = self.at;
        self.skip_brackets();
        let end = self.at;
        self.skip_statement();
        let mut operands = Vec::new();
        let mut at = start + 1;
        while at + 1 < end {
            if self.text_at(at).starts_with('"') && self.text_at(at + 1) == "(" {
                let inside = self.tokens.get(at + 2..end).unwrap_or_default();
                let mut parser =
                    Parser { tokens: inside, at: 0, depth: self.depth, types: self.types };
                operands.push(parser.expression());
                at += 1 + parser.at;
            }
            at += 1;
        }
        operands
    }

    /// Reads `type a = 1, *b[2];`. Returns whether a declaration stands here.
    fn declarations(&mut self, statements: &mut Vec<Statement>) -> bool {
        let line = self.line();
        let mut memory = MemoryKind::Local;
        let mut is_extern = false;
        loop {
            match self.text() {
                "extern" => is_extern = true,
                "__shared__" => memory = MemoryKind::Shared,
                "alignas" | "__align__" | "__attribute__" => {
                    self.at += 1;
                    self.skip_brackets();
                    continue;
                }
                _ => break,
            }
            self.at += 1;
        }
        let Some(mut base) = self.type_text() else { return false };
        // `extern __shared__ __align__(16) float s[]`.
        loop {
            match self.text() {
                "__shared__" => {
                    memory = MemoryKind::Shared;
                    self.at += 1;
                }
                "__align__" | "alignas" | "__attribute__" => {
                    self.at += 1;
                    self.skip_brackets();
                }
                _ => break,
            }
        }
        if base.words.is_empty() {
            match self.type_text() {
                Some(found) => base = found,
                None => return false,
            }
        }
        if memory == MemoryKind::Shared && is_extern {
            memory = MemoryKind::DynamicShared;
        }
        let plain = TypeText { stars: 0, reference: false, ..base.clone() };
        let mut kind = base;
        let mut found = Vec::new();
        loop {
            let name = self.text();
            if !is_name(name) || is_builtin_type(name) {
                return false;
            }
            let name: Rc<str> = name.into();
            self.at += 1;
            let mut extents = Vec::new();
            while self.take("[") {
                extents.push(if self.text() == "]" {
                    Expression::Other
                } else {
                    self.expression()
                });
                if !self.take("]") {
                    return false;
                }
            }
            let mut init = None;
            let mut constructor = Vec::new();
            match self.text() {
                "=" => {
                    self.at += 1;
                    init = Some(self.assignment());
                }
                "(" => {
                    self.at += 1;
                    constructor = self.list(")");
                }
                "{" => {
                    self.at += 1;
                    constructor = self.list("}");
                }
                ";" | "," => {}
                _ => return false,
            }
            found.push(Declaration { kind, name, extents, init, constructor, memory });
            if !self.take(",") {
                break;
            }
            kind = plain.clone();
            while self.take("*") {
                kind.stars += 1;
            }
        }
        if !self.take(";") && !self.is_over() {
            return false;
        }
        statements.extend(
            found.into_iter().map(|declared| Statement {
                line,
                kind: StatementKind::Declare(Box::new(declared)),
            }),
        );
        true
    }

    /// A type with its stars, if one stands here. Its words are empty if there are only qualifiers.
    pub(super) fn type_text(&mut self) -> Option<TypeText> {
        let mut kind = TypeText::default();
        loop {
            let word = self.text();
            if QUALIFIERS.contains(&word) {
                kind.constant |= kind.stars == 0 && matches!(word, "const" | "constexpr");
                self.at += 1;
            } else if word == "*" && !kind.words.is_empty() {
                kind.stars += 1;
                self.at += 1;
            } else if matches!(word, "&" | "&&") && !kind.words.is_empty() {
                kind.reference = true;
                self.at += 1;
            } else if is_builtin_type(word) && kind.stars == 0 && !kind.reference {
                if kind.words.iter().any(|known| !is_builtin_type(known)) {
                    break;
                }
                kind.words.push(word.into());
                self.at += 1;
            } else if is_name(word) && kind.words.is_empty() {
                kind.words.push(word.into());
                self.at += 1;
                self.rest_of_name(&mut kind)?;
            } else {
                break;
            }
        }
        if kind.words.is_empty() && !QUALIFIERS.contains(&self.text_at(self.at.wrapping_sub(1))) {
            return None;
        }
        Some(kind)
    }

    /// The `<…>` and `::…` after the first name of a type.
    fn rest_of_name(&mut self, kind: &mut TypeText) -> Option<()> {
        loop {
            if self.text() == "<" {
                let end = self.template_end(self.at)?;
                kind.words.extend(self.tokens.get(self.at..end)?.iter().map(|t| t.text.clone()));
                self.at = end;
            } else if self.text() == "::" {
                kind.words.push("::".into());
                self.at += 1;
                if self.text() == "template" {
                    self.at += 1;
                }
                kind.words.push(self.text().into());
                self.at += 1;
            } else {
                return Some(());
            }
        }
    }

    /// The index after the `>` that closes the `<` at `open`; `None` if it opens no template.
    pub(super) fn template_end(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        let mut parentheses = 0_usize;
        for at in open..self.tokens.len().min(open + 400) {
            match self.text_at(at) {
                "<" if parentheses == 0 => depth += 1,
                ">" if parentheses == 0 => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                "(" => parentheses += 1,
                ")" => parentheses = parentheses.checked_sub(1)?,
                ";" | "{" | "}" | "&&" | "||" | "=" | "<<<" | "==" | "!=" | "<=" | ">=" => {
                    return None;
                }
                _ => {}
            }
        }
        None
    }
}

/// Splits at commas outside of brackets.
pub(super) fn split_arguments(tokens: &[Token]) -> Vec<Vec<Token>> {
    let mut depth = 0_i32;
    let mut parts: Vec<Vec<Token>> = vec![Vec::new()];
    for token in tokens {
        match &*token.text {
            "<" | "(" | "[" | "{" => depth += 1,
            ">" | ")" | "]" | "}" => depth -= 1,
            "," if depth == 0 => {
                parts.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(token.clone());
        }
    }
    if parts.len() == 1 && parts.first().is_some_and(Vec::is_empty) {
        parts.clear();
    }
    parts
}
