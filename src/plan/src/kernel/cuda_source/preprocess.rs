//! Expands the macros of a source and reads the files that it includes by quoted names.
//!
//! Branches of `#if` are taken as nvcc takes them in its pass for the device. A condition that
//! cannot be evaluated counts as true.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use super::lex::{Piece, Token, lex};
use super::parse::{Parser, TypeNames};
use super::tree::Expression;

/// Limits: tokens that a source may become, and how deeply macros and includes may be nested.
pub(super) const MAX_TOKENS: usize = 1_000_000;
const MAX_DEPTH: usize = 32;
const MAX_INCLUDES: u16 = 64;

/// The most names of included files that are looked for.
const MAX_NAMES: usize = 500;

/// The most tokens that macros are looked for in: macros of macros grow without end.
const MAX_STEPS: usize = 5_000_000;

#[derive(Clone, Debug)]
struct Macro {
    /// `None` for a macro without parentheses.
    params: Option<Vec<Rc<str>>>,
    body: Vec<Token>,
}

/// The tokens of a source after preprocessing.
pub(super) fn preprocess(text: &str, read_include: &dyn Fn(&str) -> Option<String>) -> Vec<Token> {
    let mut macros = HashMap::new();
    for (name, value) in [
        ("__CUDACC__", "1"),
        ("__NVCC__", "1"),
        ("__cplusplus", "201703"),
        ("__CUDA_ARCH__", "900"),
        ("__CUDACC_VER_MAJOR__", "13"),
        ("CUDART_VERSION", "13000"),
    ] {
        let token = Token { text: value.into(), line: 0, file: 0, joined: false };
        macros.insert(Rc::from(name), Macro { params: None, body: vec![token] });
    }
    let steps = Cell::new(0);
    let mut preprocessor = Preprocessor {
        macros,
        tokens: Vec::new(),
        files: 0,
        read: Vec::new(),
        read_include,
        steps,
    };
    preprocessor.file(text, 0, 0);
    preprocessor.tokens
}

struct Preprocessor<'a> {
    macros: HashMap<Rc<str>, Macro>,
    tokens: Vec<Token>,
    files: u16,
    /// Names of the files included so far: each is read once.
    read: Vec<String>,
    read_include: &'a dyn Fn(&str) -> Option<String>,
    /// How many tokens were looked at for macros.
    steps: Cell<usize>,
}

/// One open `#if`.
struct Branch {
    /// Whether its lines count now.
    taken: bool,
    /// Whether one of its branches was taken already, or the whole does not count.
    done: bool,
}

impl Preprocessor<'_> {
    fn file(&mut self, text: &str, file: u16, depth: usize) {
        let mut branches: Vec<Branch> = Vec::new();
        // Tokens are expanded in runs between directives, because a call of a macro may span lines.
        let mut run: Vec<Token> = Vec::new();
        for piece in lex(text, file) {
            // A branch inside one that does not count is never taken.
            let counts = branches.last().is_none_or(|branch| branch.taken);
            match piece {
                Piece::Token(token) if counts => run.push(token),
                Piece::Token(_) => {}
                Piece::Directive(tokens) => {
                    let ended = std::mem::take(&mut run);
                    self.expand_into_tokens(&ended);
                    self.directive(&tokens, counts, &mut branches, depth);
                }
            }
        }
        self.expand_into_tokens(&run);
    }

    fn expand_into_tokens(&mut self, run: &[Token]) {
        let mut expanded = Vec::new();
        self.expand(run, &mut Vec::new(), &mut expanded);
        let room = MAX_TOKENS.saturating_sub(self.tokens.len());
        self.tokens.extend(expanded.into_iter().take(room));
    }

    fn directive(
        &mut self,
        tokens: &[Token],
        counts: bool,
        branches: &mut Vec<Branch>,
        depth: usize,
    ) {
        let Some((word, rest)) = tokens.split_first() else { return };
        let is_defined =
            |name: Option<&Token>| name.is_some_and(|name| self.macros.contains_key(&name.text));
        match &*word.text {
            "if" | "ifdef" | "ifndef" => {
                let holds = match &*word.text {
                    "ifdef" => is_defined(rest.first()),
                    "ifndef" => !is_defined(rest.first()),
                    _ => counts && self.condition(rest),
                };
                branches.push(Branch { taken: counts && holds, done: !counts || holds });
            }
            "elif" | "else" => {
                let holds = &*word.text == "else" || self.condition(rest);
                if let Some(branch) = branches.last_mut() {
                    branch.taken = !branch.done && holds;
                    branch.done |= holds;
                }
            }
            "endif" => {
                branches.pop();
            }
            "define" if counts => self.define(rest),
            "undef" if counts => {
                if let Some(name) = rest.first() {
                    self.macros.remove(&name.text);
                }
            }
            "include" if counts && depth < MAX_DEPTH && self.files < MAX_INCLUDES => {
                let quoted = rest.first().and_then(|name| name.text.strip_prefix('"'));
                let Some(name) = quoted.and_then(|name| name.strip_suffix('"')) else { return };
                if self.read.iter().any(|read| read == name) || self.read.len() >= MAX_NAMES {
                    return;
                }
                self.read.push(name.to_owned());
                if let Some(text) = (self.read_include)(name) {
                    self.files += 1;
                    self.file(&text, self.files, depth + 1);
                }
            }
            _ => {}
        }
    }

    fn define(&mut self, tokens: &[Token]) {
        let Some((name, rest)) = tokens.split_first() else { return };
        let has_params = rest.first().is_some_and(|next| &*next.text == "(" && next.joined);
        let end = if has_params { rest.iter().position(|t| &*t.text == ")") } else { None };
        let (params, body) = match end {
            Some(end) => {
                let params = rest.get(1..end).unwrap_or_default().iter();
                let names = params.filter(|t| &*t.text != ",").map(|t| t.text.clone()).collect();
                (Some(names), rest.get(end + 1..).unwrap_or_default())
            }
            None => (None, rest),
        };
        self.macros.insert(name.text.clone(), Macro { params, body: body.to_vec() });
    }

    /// Appends `tokens` with their macros expanded; those named in `hidden` are being expanded.
    fn expand(&self, tokens: &[Token], hidden: &mut Vec<Rc<str>>, expanded: &mut Vec<Token>) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            if !self.may_step(1) {
                return;
            }
            let found = self.macros.get(&token.text).filter(|_| !hidden.contains(&token.text));
            let (Some(found), true) = (found, hidden.len() < MAX_DEPTH) else {
                if expanded.len() < MAX_TOKENS {
                    expanded.push(token.clone());
                }
                continue;
            };
            let body = match &found.params {
                None => found.body.clone(),
                Some(params) => {
                    let call = arguments(tokens, at);
                    let is_open = tokens.get(at).is_some_and(|token| &*token.text == "(");
                    let unclosed_end = if is_open { tokens.len() } else { at };
                    let end = call.as_ref().map_or(unclosed_end, |(_, end)| *end);
                    if !self.may_step(end - at) {
                        return;
                    }
                    let Some((arguments, end)) = call else {
                        expanded.push(token.clone());
                        continue;
                    };
                    at = end;
                    let expand_argument = |argument: &&[Token]| {
                        let mut expanded = Vec::new();
                        self.expand(argument, &mut hidden.clone(), &mut expanded);
                        expanded
                    };
                    let arguments: Vec<Vec<Token>> =
                        arguments.iter().map(expand_argument).collect();
                    substitute(&found.body, params, &arguments)
                }
            };
            if !self.may_step(body.len()) {
                return;
            }
            let moved: Vec<Token> = body
                .into_iter()
                .map(|part| Token { line: token.line, file: token.file, ..part })
                .collect();
            hidden.push(token.text.clone());
            self.expand(&moved, hidden, expanded);
            hidden.pop();
        }
    }

    /// Counts steps. Whether there may be more.
    fn may_step(&self, steps: usize) -> bool {
        self.steps.set(self.steps.get().saturating_add(steps));
        self.steps.get() <= MAX_STEPS
    }

    /// Whether the condition of an `#if` holds.
    fn condition(&self, tokens: &[Token]) -> bool {
        let mut known: Vec<Token> = Vec::new();
        let mut rest = tokens.iter().peekable();
        while let Some(token) = rest.next() {
            if &*token.text != "defined" {
                known.push(token.clone());
                continue;
            }
            let mut name = rest.next();
            if name.is_some_and(|name| &*name.text == "(") {
                name = rest.next();
                rest.next();
            }
            let is_defined = name.is_some_and(|name| self.macros.contains_key(&name.text));
            let text = if is_defined { "1" } else { "0" };
            known.push(Token { text: text.into(), ..token.clone() });
        }
        let mut expanded = Vec::new();
        self.expand(&known, &mut Vec::new(), &mut expanded);
        let types = TypeNames::default();
        let expression = Parser::new(&expanded, &types).expression();
        number(&expression).is_none_or(|value| value != 0)
    }
}

/// The arguments of a macro's call whose `(` is at `open`, and the index after its `)`.
fn arguments(tokens: &[Token], open: usize) -> Option<(Vec<&[Token]>, usize)> {
    if &*tokens.get(open)?.text != "(" {
        return None;
    }
    let mut depth = 0_usize;
    let mut start = open + 1;
    let mut arguments = Vec::new();
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match &*token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    arguments.push(tokens.get(start..at)?);
                    return Some((arguments, at + 1));
                }
            }
            "," if depth == 1 => {
                arguments.push(tokens.get(start..at)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    None
}

fn substitute(body: &[Token], params: &[Rc<str>], arguments: &[Vec<Token>]) -> Vec<Token> {
    let mut text = Vec::new();
    for token in body {
        if matches!(&*token.text, "#" | "\\") {
            continue;
        }
        let is_rest = &*token.text == "__VA_ARGS__";
        let position = if is_rest {
            params.iter().position(|param| &**param == "...")
        } else {
            params.iter().position(|param| *param == token.text)
        };
        match position {
            Some(at) if is_rest => {
                for (i, argument) in arguments.iter().skip(at).enumerate() {
                    if i > 0 {
                        text.push(Token { text: ",".into(), ..token.clone() });
                    }
                    text.extend(argument.iter().cloned());
                }
            }
            Some(at) => text.extend(arguments.get(at).into_iter().flatten().cloned()),
            None => text.push(token.clone()),
        }
        if text.len() > MAX_TOKENS {
            break;
        }
    }
    text
}

/// The value of an expression of numbers; a name that is no macro is 0.
fn number(expression: &Expression) -> Option<i64> {
    Some(match expression {
        Expression::Number(value) => *value,
        Expression::Name(_) => 0,
        Expression::Unary(operator, inner) => {
            let inner = number(inner)?;
            match *operator {
                "!" => i64::from(inner == 0),
                "-" => inner.checked_neg()?,
                "+" => inner,
                _ => return None,
            }
        }
        Expression::Binary(operator, left, right) => {
            let left = number(left)?;
            match *operator {
                "&&" if left == 0 => return Some(0),
                "||" if left != 0 => return Some(1),
                _ => {}
            }
            let right = number(right)?;
            match *operator {
                "&&" | "||" => i64::from(right != 0),
                "==" => i64::from(left == right),
                "!=" => i64::from(left != right),
                "<" => i64::from(left < right),
                ">" => i64::from(left > right),
                "<=" => i64::from(left <= right),
                ">=" => i64::from(left >= right),
                "+" => left.checked_add(right)?,
                "-" => left.checked_sub(right)?,
                "*" => left.checked_mul(right)?,
                "/" => left.checked_div(right)?,
                "%" => left.checked_rem(right)?,
                _ => return None,
            }
        }
        _ => return None,
    })
}
