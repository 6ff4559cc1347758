//! Reads the statements and expressions of a function.
//!
//! This is not a C++ parser. What it does not understand becomes [`Expression::Other`] and is
//! skipped up to the next `;`, so that nothing is concluded from it.

use std::collections::HashSet;
use std::rc::Rc;

use super::lex::Token;
use super::tree::{
    Declaration, Expression, ForLoop, LaunchExpression, MemoryKind, Statement, StatementKind,
    TypeText,
};

/// How deeply statements and expressions may be nested.
const MAX_DEPTH: u32 = 80;

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
fn is_vector(word: &str) -> bool {
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

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

pub(super) struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: u32,
    types: &'a TypeNames,
}

impl<'a> Parser<'a> {
    pub(super) fn new(tokens: &'a [Token], types: &'a TypeNames) -> Self {
        Self { tokens, at: 0, depth: 0, types }
    }

    fn text_at(&self, at: usize) -> &'a str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    fn text(&self) -> &'a str {
        self.text_at(self.at)
    }

    fn line(&self) -> u32 {
        let last = self.tokens.len().saturating_sub(1);
        self.tokens.get(self.at.min(last)).map_or(0, |token| token.line)
    }

    fn is_over(&self) -> bool {
        self.at >= self.tokens.len()
    }

    /// Takes the next token if it is `text`.
    fn take(&mut self, text: &str) -> bool {
        let is_there = !self.is_over() && self.text() == text;
        self.at += usize::from(is_there);
        is_there
    }

    fn is_joined(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(|token| token.joined)
    }

    /// Whether three joined `>` follow, which end a launch's configuration.
    fn ends_launch(&self) -> bool {
        self.text() == ">"
            && self.text_at(self.at + 1) == ">"
            && self.text_at(self.at + 2) == ">"
            && self.is_joined(self.at + 1)
            && self.is_joined(self.at + 2)
    }

    /// Skips what the bracket at this place encloses, with both brackets.
    fn skip_brackets(&mut self) {
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

    fn block(&mut self) -> Vec<Statement> {
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

    fn list(&mut self, end: &str) -> Vec<Expression> {
        let mut items = Vec::new();
        while !self.is_over() && !self.take(end) {
            let before = self.at;
            items.push(self.assignment());
            if self.take(end) {
                break;
            }
            if !self.take(",") {
                // What is not understood is skipped, so that the list ends where it should.
                while !self.is_over() && self.text() != "," && self.text() != end {
                    if matches!(self.text(), "(" | "[" | "{") {
                        self.skip_brackets();
                    } else {
                        self.at += 1;
                    }
                }
                self.take(",");
            }
            if self.at == before {
                self.at += 1;
            }
        }
        items
    }

    fn comma_expression(&mut self) -> Vec<Expression> {
        let mut parts = vec![self.assignment()];
        while self.take(",") {
            parts.push(self.assignment());
        }
        parts
    }

    /// An expression; of several with commas the last.
    pub(super) fn expression(&mut self) -> Expression {
        self.comma_expression().pop().unwrap_or(Expression::Other)
    }

    /// An expression without a comma.
    pub(super) fn assignment(&mut self) -> Expression {
        self.depth += 1;
        let expression = if self.depth > MAX_DEPTH {
            self.at = self.tokens.len();
            Expression::Other
        } else {
            self.assignment_within_depth()
        };
        self.depth -= 1;
        expression
    }

    fn assignment_within_depth(&mut self) -> Expression {
        let left = self.binary(0);
        if self.text() == "?" {
            self.at += 1;
            let then = self.assignment();
            self.take(":");
            let otherwise = self.assignment();
            return Expression::Ternary(Box::new(left), Box::new(then), Box::new(otherwise));
        }
        const ASSIGNMENTS: [&str; 10] =
            ["=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<="];
        let operator = if self.text() == ">"
            && self.text_at(self.at + 1) == ">="
            && self.is_joined(self.at + 1)
        {
            self.at += 1;
            Some(">>=")
        } else {
            ASSIGNMENTS.into_iter().find(|operator| *operator == self.text())
        };
        let Some(operator) = operator else { return left };
        self.at += 1;
        let right = if self.text() == "{" {
            self.at += 1;
            Expression::List(self.list("}"))
        } else {
            self.assignment()
        };
        Expression::Assign(operator, Box::new(left), Box::new(right))
    }

    /// The binary operator that stands here, its precedence, and its number of tokens.
    fn operator(&self) -> Option<(&'static str, u8, usize)> {
        if self.ends_launch() {
            return None;
        }
        let text = self.text();
        if text == ">" && self.text_at(self.at + 1) == ">" && self.is_joined(self.at + 1) {
            return Some((">>", 8, 2));
        }
        if text == ">" && self.text_at(self.at + 1) == ">=" && self.is_joined(self.at + 1) {
            return None;
        }
        const TABLE: [(&str, u8); 18] = [
            ("||", 1),
            ("&&", 2),
            ("|", 3),
            ("^", 4),
            ("&", 5),
            ("==", 6),
            ("!=", 6),
            ("<", 7),
            (">", 7),
            ("<=", 7),
            (">=", 7),
            ("<<", 8),
            ("+", 9),
            ("-", 9),
            ("*", 10),
            ("/", 10),
            ("%", 10),
            (".*", 11),
        ];
        TABLE.iter().find(|(known, _)| *known == text).map(|(op, level)| (*op, *level, 1))
    }

    fn binary(&mut self, least: u8) -> Expression {
        let mut left = self.unary();
        while let Some((operator, level, tokens)) = self.operator() {
            if level <= least {
                break;
            }
            self.at += tokens;
            let right = self.binary(level);
            left = Expression::Binary(operator, Box::new(left), Box::new(right));
        }
        left
    }

    fn unary(&mut self) -> Expression {
        self.depth += 1;
        let expression = if self.depth > MAX_DEPTH {
            self.at = self.tokens.len();
            Expression::Other
        } else {
            self.unary_within_depth()
        };
        self.depth -= 1;
        expression
    }

    fn unary_within_depth(&mut self) -> Expression {
        const PREFIXES: [&str; 8] = ["-", "+", "!", "~", "*", "&", "++", "--"];
        if let Some(operator) = PREFIXES.into_iter().find(|operator| *operator == self.text()) {
            self.at += 1;
            return Expression::Unary(operator, Box::new(self.unary()));
        }
        if self.text() == "sizeof" {
            self.at += 1;
            return self.size_of();
        }
        if self.text() == "("
            && let Some(kind) = self.c_cast()
        {
            return Expression::Cast(kind, Box::new(self.unary()));
        }
        self.postfix()
    }

    fn size_of(&mut self) -> Expression {
        if self.text() != "(" {
            let _ = self.unary();
            return Expression::Other;
        }
        let start = self.at;
        self.skip_brackets();
        let inside = self.tokens.get(start + 1..self.at.saturating_sub(1)).unwrap_or_default();
        let mut parser = Parser { tokens: inside, at: 0, depth: self.depth, types: self.types };
        match parser.type_text() {
            Some(kind) if parser.is_over() => Expression::SizeOf(kind),
            _ => Expression::Other,
        }
    }

    /// The type of a cast `(type)` that stands here.
    fn c_cast(&mut self) -> Option<TypeText> {
        let start = self.at;
        self.at += 1;
        let kind = self.type_text();
        let closes = self.take(")");
        let is_cast = kind.as_ref().is_some_and(|kind| {
            let first = kind.words.first().map_or("", |word| &**word);
            let is_known = is_builtin_type(first) || self.types.0.contains(first) || first == "std";
            let next = self.text();
            let begins_operand = is_name(next)
                || next.starts_with(|c: char| c.is_ascii_digit() || c == '.')
                || (next == "(" && (is_known || kind.stars > 0))
                || (matches!(next, "*" | "&" | "-" | "~" | "!") && (is_known || kind.stars > 0));
            !first.is_empty() && closes && begins_operand
        });
        if is_cast {
            kind
        } else {
            self.at = start;
            None
        }
    }

    fn postfix(&mut self) -> Expression {
        let mut expression = self.primary();
        loop {
            match self.text() {
                "(" => {
                    self.at += 1;
                    let arguments = self.list(")");
                    expression = Expression::Call(Box::new(expression), arguments);
                }
                "[" => {
                    self.at += 1;
                    let index = self.expression();
                    if !self.take("]") {
                        return Expression::Other;
                    }
                    expression = Expression::Index(Box::new(expression), Box::new(index));
                }
                "." | "->" => {
                    self.at += 1;
                    if self.text() == "template" {
                        self.at += 1;
                    }
                    let name: Rc<str> = self.text().into();
                    self.at += 1;
                    if self.text() == "<"
                        && let Some(end) = self.template_end(self.at)
                        && self.text_at(end) == "("
                    {
                        self.at = end;
                    }
                    expression = Expression::Member(Box::new(expression), name);
                }
                "++" => {
                    self.at += 1;
                    expression = Expression::Postfix("++", Box::new(expression));
                }
                "--" => {
                    self.at += 1;
                    expression = Expression::Postfix("--", Box::new(expression));
                }
                _ => return expression,
            }
        }
    }

    fn primary(&mut self) -> Expression {
        let text = self.text();
        match text {
            "(" => {
                self.at += 1;
                let mut parts = self.comma_expression();
                if !self.take(")") {
                    return Expression::Other;
                }
                return match parts.pop() {
                    Some(only) if parts.is_empty() => only,
                    // `(64, 64)` of a launch.
                    Some(last) => Expression::List(parts.into_iter().chain([last]).collect()),
                    None => Expression::Other,
                };
            }
            "{" => {
                self.at += 1;
                return Expression::List(self.list("}"));
            }
            "[" => return self.lambda(),
            "static_cast" | "reinterpret_cast" | "const_cast" | "bit_cast" => {
                if let Some(end) = self.template_end(self.at + 1)
                    && self.text_at(end) == "("
                {
                    let inside = self.tokens.get(self.at + 2..end - 1).unwrap_or_default();
                    let mut parser =
                        Parser { tokens: inside, at: 0, depth: self.depth, types: self.types };
                    let kind = parser.type_text().unwrap_or_default();
                    self.at = end + 1;
                    let inner = self.expression();
                    self.take(")");
                    return Expression::Cast(kind, Box::new(inner));
                }
            }
            "true" => {
                self.at += 1;
                return Expression::Number(1);
            }
            "false" | "nullptr" | "NULL" => {
                self.at += 1;
                return Expression::Number(0);
            }
            _ => {}
        }
        if text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            self.at += 1;
            return parse_number(text).map_or(Expression::Other, Expression::Number);
        }
        if text.starts_with(['"', '\'']) {
            self.at += 1;
            return Expression::Other;
        }
        if is_name(text) || text == "::" {
            return self.name();
        }
        // Nothing that begins an expression.
        Expression::Other
    }

    /// `[…](…) {…}`.
    fn lambda(&mut self) -> Expression {
        self.skip_brackets();
        if self.text() == "(" {
            self.skip_brackets();
        }
        while !self.is_over() && is_name(self.text()) {
            self.at += 1;
        }
        if self.text() == "{" {
            return Expression::Lambda(self.block());
        }
        Expression::Other
    }

    /// A name with its scopes and template arguments, and a launch if it is one. Of `a::b` the last
    /// part counts.
    fn name(&mut self) -> Expression {
        let line = self.line();
        self.take("::");
        let mut name: Rc<str> = self.text().into();
        self.at += 1;
        let mut template = Vec::new();
        loop {
            if self.text() == "::" && is_name(self.text_at(self.at + 1)) {
                name = self.text_at(self.at + 1).into();
                self.at += 2;
                continue;
            }
            if self.text() == "<"
                && let Some(end) = self.template_end(self.at)
                && matches!(self.text_at(end), "(" | "<<<" | "::" | "{" | ")" | "," | ";")
            {
                let inside = self.tokens.get(self.at + 1..end - 1).unwrap_or_default();
                template = split_arguments(inside);
                self.at = end;
                continue;
            }
            break;
        }
        if self.take("<<<") {
            let mut config = Vec::new();
            while !self.is_over() && !self.ends_launch() {
                let before = self.at;
                config.push(self.assignment());
                self.take(",");
                if self.at == before {
                    self.at += 1;
                }
            }
            self.at += 3;
            let arguments = if self.take("(") { self.list(")") } else { Vec::new() };
            return Expression::Launch(Box::new(LaunchExpression {
                name,
                template,
                config,
                arguments,
                line,
            }));
        }
        if self.text() == "{" && is_vector(&name) {
            self.at += 1;
            return Expression::List(self.list("}"));
        }
        let is_type = is_builtin_type(&name) && name.as_ref() != "dim3";
        if is_type && self.text() == "(" {
            // `int(x)`.
            self.at += 1;
            let inner = self.expression();
            self.take(")");
            let kind = TypeText { words: vec![name], ..TypeText::default() };
            return Expression::Cast(kind, Box::new(inner));
        }
        if !template.is_empty() && self.text() == "(" {
            // The arguments go with the call, so that a wrapper's constants are known.
            self.at += 1;
            let arguments = self.list(")");
            let marked = template
                .into_iter()
                .map(|argument| {
                    let words = argument.iter().map(|token| token.text.clone()).collect();
                    Expression::SizeOf(TypeText { words, ..TypeText::default() })
                })
                .collect();
            let callee = Expression::Call(Box::new(Expression::Name(name)), marked);
            return Expression::Call(Box::new(callee), arguments);
        }
        Expression::Name(name)
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

/// The value of an integer literal.
pub(super) fn parse_number(text: &str) -> Option<i64> {
    let digits = text.replace(['\'', '_'], "").to_ascii_lowercase();
    let (radix, digits) = match digits.get(..2) {
        Some("0x") => (16, digits.get(2..)?),
        Some("0b") => (2, digits.get(2..)?),
        _ => (10, digits.as_str()),
    };
    let digits = digits.trim_end_matches(['u', 'l']);
    let is_octal = radix == 10 && digits.len() > 1 && digits.starts_with('0');
    let whole = i64::from_str_radix(digits, if is_octal { 8 } else { radix }).ok();
    // `ceil(n / 256.0f)` divides by a whole number.
    let float = || {
        let value: f64 = digits.trim_end_matches('f').parse().ok()?;
        let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
        is_whole.then_some(value as i64)
    };
    whole.or_else(|| if radix == 10 { float() } else { None })
}
