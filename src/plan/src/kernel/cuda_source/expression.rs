//! Reads expressions: the part of [`Parser`] below statements.

use std::rc::Rc;

use super::parse::{MAX_DEPTH, Parser, is_builtin_type, is_name, is_vector, split_arguments};
use super::tree::{Expression, LaunchExpression, TypeText};

impl<'a> Parser<'a> {
    pub(super) fn list(&mut self, end: &str) -> Vec<Expression> {
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

    pub(super) fn comma_expression(&mut self) -> Vec<Expression> {
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
        if self.text() == "{" && (&*name == "dim3" || self.types.0.contains(&name)) {
            self.at += 1;
            let arguments = self.list("}");
            return Expression::Call(Box::new(Expression::Name(name)), arguments);
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
