//! Splits CUDA C++ into tokens and preprocessor directives.

use std::rc::Rc;

use super::preprocess::MAX_TOKENS;

/// A token, and where it stands. A token that a macro wrote stands where the macro is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kernel) struct Token {
    pub(super) text: Rc<str>,
    /// Line in its file, from 1.
    pub(super) line: u32,
    /// 0 for the source itself, else the number of an included file.
    pub(super) file: u16,
    /// Whether it follows the token before it without a space: `>` and `>` are then `>>`.
    pub(super) joined: bool,
}

impl Token {
    /// A token that stands in no file.
    pub(super) fn made(text: &str) -> Self {
        Self { text: text.into(), line: 0, file: 0, joined: false }
    }
}

/// The tokens as they are written.
pub(super) fn text_of(tokens: &[Token]) -> String {
    let mut text = String::new();
    for token in tokens {
        if !token.joined && !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&token.text);
    }
    text
}

/// What the preprocessor reads: a token, or the tokens of a line that begins with `#`.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Token(Token),
    Directive(Vec<Token>),
}

/// Operators of several characters, longest first. `>>` and `>>>` are not among them: they may
/// close templates.
const OPERATORS: [&str; 22] = [
    "<<<", "<<=", "...", "::", "->", "==", "!=", "<=", ">=", "&&", "||", "++", "--", "+=", "-=",
    "*=", "/=", "%=", "&=", "|=", "^=", "<<",
];

/// Splits `text` into at most [`MAX_TOKENS`] tokens. Comments are left out; a string or character is
/// one token that begins with its quote.
pub(super) fn lex(text: &str, file: u16) -> Vec<Piece> {
    let mut lexer = Lexer { rest: text, line: 1, file, left: MAX_TOKENS };
    let mut pieces = Vec::new();
    let mut at_line_start = true;
    loop {
        let (joined, newline) = lexer.skip_space(true);
        at_line_start |= newline;
        if lexer.rest.is_empty() {
            return pieces;
        }
        if at_line_start && lexer.rest.starts_with('#') {
            lexer.advance(1);
            pieces.push(Piece::Directive(lexer.directive()));
            at_line_start = true;
            continue;
        }
        at_line_start = false;
        pieces.push(Piece::Token(lexer.token(joined)));
    }
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    file: u16,
    /// How many more tokens are read.
    left: usize,
}

impl Lexer<'_> {
    fn advance(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        let lines = taken.bytes().filter(|&b| b == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.rest = rest;
    }

    /// Skips spaces and comments, and newlines if `newlines`. Returns whether nothing was skipped,
    /// and whether a newline was.
    fn skip_space(&mut self, newlines: bool) -> (bool, bool) {
        let (before, line) = (self.rest.len(), self.line);
        loop {
            if let Some(after) = self.rest.strip_prefix("\\\n") {
                self.line = self.line.saturating_add(1);
                self.rest = after;
            } else if let Some(after) = self.rest.strip_prefix("\\\r\n") {
                self.line = self.line.saturating_add(1);
                self.rest = after;
            } else if self.rest.starts_with("//") {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.advance(end);
            } else if let Some(inside) = self.rest.strip_prefix("/*") {
                let end = inside.find("*/").map_or(self.rest.len(), |at| at + 4);
                self.advance(end);
            } else {
                match self.rest.chars().next() {
                    Some('\n') if !newlines => break,
                    Some(c) if c.is_whitespace() || c == '\u{feff}' => self.advance(c.len_utf8()),
                    _ => break,
                }
            }
        }
        (self.rest.len() == before, self.line != line)
    }

    /// The tokens up to the end of the line.
    fn directive(&mut self) -> Vec<Token> {
        let mut tokens = Vec::new();
        loop {
            let (joined, _) = self.skip_space(false);
            if self.rest.is_empty() || self.rest.starts_with('\n') {
                return tokens;
            }
            tokens.push(self.token(joined));
        }
    }

    fn token(&mut self, joined: bool) -> Token {
        let line = self.line;
        let len = self.token_len().max(1);
        let text = self.rest.get(..len).unwrap_or(self.rest);
        let text: Rc<str> = text.into();
        self.advance(text.len());
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.rest = "";
        }
        Token { text, line, file: self.file, joined }
    }

    fn token_len(&self) -> usize {
        let rest = self.rest;
        let Some(first) = rest.chars().next() else { return 0 };
        if first.is_ascii_digit() || (first == '.' && second_is_digit(rest)) {
            return number_len(rest);
        }
        if first.is_alphabetic() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            return end.unwrap_or(rest.len());
        }
        if first == '"' || first == '\'' {
            return quoted_len(rest, first);
        }
        let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
        operator.map_or(first.len_utf8(), |operator| operator.len())
    }
}

fn second_is_digit(text: &str) -> bool {
    text.as_bytes().get(1).is_some_and(u8::is_ascii_digit)
}

/// The length of a number with its suffix: `1'000u`, `0x1p3`, `1e-5f`.
fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_hex = text.starts_with("0x") || text.starts_with("0X");
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(b' ');
        let is_exponent = if is_hex { b"pP" } else { b"eE" }.contains(&before);
        let is_part = byte.is_ascii_alphanumeric()
            || matches!(byte, b'.' | b'_')
            || (byte == b'\'' && bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric))
            || (matches!(byte, b'+' | b'-') && is_exponent);
        if !is_part {
            break;
        }
        at += 1;
    }
    at
}

/// The length of a string or character that begins `text`; it ends at the end of the line at last.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => return at,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}
