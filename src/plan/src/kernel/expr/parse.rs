//! Parses expressions by recursive descent, with a limit on depth so that no input exhausts the
//! stack.

use super::{ExprError, Function, Grammar, Node, Operator};

/// Limits on the nesting of parentheses and signs, and on the number of operators.
const MAX_DEPTH: usize = 64;
const MAX_OPERATORS: usize = 1_000;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    grammar: Grammar,
    operators: usize,
}

pub(super) fn parse(text: &str, grammar: Grammar) -> Result<Node, ExprError> {
    let mut parser = Parser { text, at: 0, grammar, operators: 0 };
    let root = parser.sum(0)?;
    match parser.peek() {
        None => Ok(root),
        Some(_) => Err(parser.expected("an operator or the end")),
    }
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.rest().chars().next()
    }

    fn eat(&mut self, expected: char) -> bool {
        let matches = self.peek() == Some(expected);
        if matches {
            self.at += expected.len_utf8();
        }
        matches
    }

    fn expected(&self, expected: &'static str) -> ExprError {
        let at = self.text[..self.at].chars().count() + 1;
        ExprError::Syntax { expected, at, text: self.text.to_owned() }
    }

    fn count_operator(&mut self, depth: usize) -> Result<(), ExprError> {
        self.operators += 1;
        if depth > MAX_DEPTH || self.operators > MAX_OPERATORS {
            return Err(ExprError::TooDeep { text: self.text.chars().take(40).collect() });
        }
        Ok(())
    }

    fn sum(&mut self, depth: usize) -> Result<Node, ExprError> {
        let mut left = self.product(depth)?;
        loop {
            let operator = match self.peek() {
                Some('+') => Operator::Add,
                Some('-') => Operator::Sub,
                _ => return Ok(left),
            };
            self.at += 1;
            self.count_operator(depth)?;
            let right = self.product(depth)?;
            left = Node::Binary(operator, Box::new(left), Box::new(right));
        }
    }

    fn product(&mut self, depth: usize) -> Result<Node, ExprError> {
        let mut left = self.factor(depth)?;
        loop {
            let operator = match self.peek() {
                Some('*') => Operator::Mul,
                Some('/') => Operator::Div,
                Some('%') => Operator::Rem,
                _ => return Ok(left),
            };
            self.at += 1;
            self.count_operator(depth)?;
            let right = self.factor(depth)?;
            left = Node::Binary(operator, Box::new(left), Box::new(right));
        }
    }

    fn factor(&mut self, depth: usize) -> Result<Node, ExprError> {
        self.count_operator(depth)?;
        match self.peek() {
            Some('-') => {
                self.at += 1;
                Ok(Node::Negative(Box::new(self.factor(depth + 1)?)))
            }
            Some('(') => {
                self.at += 1;
                let inner = self.sum(depth + 1)?;
                if !self.eat(')') {
                    return Err(self.expected("`)`"));
                }
                Ok(inner)
            }
            Some(c) if c.is_ascii_digit() => self.number(),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.name(depth),
            _ => Err(self.expected("a number, a name or `(`")),
        }
    }

    fn take(&mut self, accepts: impl Fn(char) -> bool) -> String {
        let rest = self.rest();
        let end = rest.find(|c| !accepts(c)).unwrap_or(rest.len());
        let word = rest[..end].to_owned();
        self.at += end;
        word
    }

    fn number(&mut self) -> Result<Node, ExprError> {
        let start = self.at;
        let digits = self.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        let plain = digits.replace('_', "");
        let overflow = || ExprError::Overflow { text: self.text.to_owned() };
        if plain.bytes().all(|b| b.is_ascii_digit()) {
            return plain.parse().map(Node::Int).map_err(|_| overflow());
        }
        if self.grammar == Grammar::Work
            && let Ok(value) = plain.parse::<f64>()
        {
            return Ok(Node::Float(value));
        }
        self.at = start;
        Err(self.expected(match self.grammar {
            Grammar::Size => "a whole number",
            Grammar::Work => "a number",
        }))
    }

    fn name(&mut self, depth: usize) -> Result<Node, ExprError> {
        let name = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
        if self.peek() != Some('(') {
            return Ok(Node::Var(name));
        }
        let function = match name.as_str() {
            "min" => Some(Function::Min),
            "max" => Some(Function::Max),
            "ceil_div" => Some(Function::CeilDiv),
            "align_up" => Some(Function::AlignUp),
            "sum" if self.grammar == Grammar::Work => None,
            _ => {
                let work = self.grammar == Grammar::Work;
                return Err(ExprError::UnknownFunction { name, text: self.text.to_owned(), work });
            }
        };
        self.at += 1;
        let first = Box::new(self.sum(depth + 1)?);
        let node = match function {
            None => Node::Sum(first),
            Some(function) => {
                if !self.eat(',') {
                    return Err(self.expected("`,`"));
                }
                Node::Call(function, first, Box::new(self.sum(depth + 1)?))
            }
        };
        if self.eat(')') { Ok(node) } else { Err(self.expected("`)`")) }
    }
}
