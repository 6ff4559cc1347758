//! Reads layouts, tilers, coordinates and swizzles from text. Errors name the column.
//!
//! The syntax is CuTe's: `((32,4),8):((16,4),1)`; static integers may be written `_32`. A shape
//! without strides is column-major. `<4:1,8:2>` is a tiler with one layout for each mode, and
//! `S<3,4,3> o 0 o L` (also `Sw<3,4,3> o L`) a swizzled layout.

use std::str::FromStr;

use crate::divide::Tiler;
use crate::layout::{Coordinate, Layout, LayoutError, MAX_DEPTH, Mode, Tree};
use crate::swizzle::{Swizzle, SwizzledLayout};

/// The place and reason of a syntax error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}, in column {column} of `{text}`")]
pub struct ParseError {
    /// The message without the place: what was expected or is too large.
    pub reason: String,
    /// The text that was parsed, unchanged.
    pub text: String,
    /// The column, from 1, in characters.
    pub column: usize,
}

impl ParseError {
    /// The text, and below it a caret at the place.
    pub fn caret(&self) -> String {
        // Tabs and line ends would move the caret.
        let line: String =
            self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{line}\n{}^", " ".repeat(self.column - 1))
    }
}

type ParseResult<T> = Result<T, ParseError>;

/// A nested tuple of integers with the byte position of each part.
enum Tuple {
    Leaf(i64, usize),
    Node(Vec<Tuple>, usize),
}

impl Tuple {
    fn position(&self) -> usize {
        match self {
            Self::Leaf(_, at) | Self::Node(_, at) => *at,
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    fn error(&self, at: usize, reason: impl Into<String>) -> ParseError {
        let before = self.text.get(..at).unwrap_or(self.text);
        ParseError {
            reason: reason.into(),
            text: self.text.to_owned(),
            column: before.chars().count() + 1,
        }
    }

    fn peek(&mut self) -> Option<char> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at += rest.len() - rest.trim_start().len();
        rest.trim_start().chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn expect(&mut self, wanted: char) -> ParseResult<()> {
        if self.take(wanted) { Ok(()) } else { Err(self.unexpected(&format!("`{wanted}`"))) }
    }

    fn unexpected(&mut self, wanted: &str) -> ParseError {
        let found = self.peek().map_or("the end".to_owned(), |c| format!("`{c}`"));
        self.error(self.at, format!("{wanted} is expected, not {found}"))
    }

    fn end(&mut self) -> ParseResult<()> {
        if self.peek().is_none() { Ok(()) } else { Err(self.unexpected("the end")) }
    }

    fn number(&mut self) -> ParseResult<i64> {
        let negative = self.take('-');
        // CuTe prints static integers as `_4`.
        self.take('_');
        self.peek();
        let start = self.at;
        let digits = self.text.get(start..).unwrap_or_default();
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return Err(self.unexpected("a number"));
        }
        self.at += length;
        let sign = if negative { "-" } else { "" };
        format!("{sign}{}", &digits[..length])
            .parse()
            .map_err(|_| self.error(start, "a number beyond 2^63 - 1 does not fit"))
    }

    fn tuple(&mut self, depth: usize) -> ParseResult<Tuple> {
        self.peek();
        let start = self.at;
        if depth > MAX_DEPTH {
            return Err(self.error(start, format!("tuples nest at most {MAX_DEPTH} deep")));
        }
        if !self.take('(') {
            return Ok(Tuple::Leaf(self.number()?, start));
        }
        let mut parts = Vec::new();
        while !self.take(')') {
            if !parts.is_empty() {
                if !self.take(',') {
                    return Err(self.unexpected("`,` or `)`"));
                }
                // Python writes a tuple of one with a comma.
                if self.take(')') {
                    break;
                }
            }
            parts.push(self.tuple(depth + 1)?);
        }
        Ok(Tuple::Node(parts, start))
    }

    fn layout(&mut self) -> ParseResult<Layout> {
        self.peek();
        let start = self.at;
        let shape = self.tuple(0)?;
        let tree = if self.take(':') {
            let stride = self.tuple(0)?;
            self.join(&shape, &stride)?
        } else {
            let mut stride = Some(1);
            self.column_major(&shape, &mut stride)?
        };
        Layout::new(tree).map_err(|error| self.error(start, error.to_string()))
    }

    fn extent(&self, extent: i64, at: usize) -> ParseResult<i64> {
        match extent {
            1.. => Ok(extent),
            _ => Err(self.error(at, LayoutError::Extent(extent).to_string())),
        }
    }

    fn join(&self, shape: &Tuple, stride: &Tuple) -> ParseResult<Tree> {
        match (shape, stride) {
            (Tuple::Leaf(extent, at), Tuple::Leaf(stride, _)) => {
                Ok(Tree::Leaf(Mode::new(self.extent(*extent, *at)?, *stride)))
            }
            (Tuple::Node(shapes, _), Tuple::Node(strides, _)) if shapes.len() == strides.len() => {
                let parts = shapes.iter().zip(strides).map(|(s, d)| self.join(s, d));
                Ok(Tree::Node(parts.collect::<ParseResult<_>>()?))
            }
            (shape, stride) => {
                let count = |tuple: &Tuple| match tuple {
                    Tuple::Leaf(..) => "a number".to_owned(),
                    Tuple::Node(parts, _) => format!("a tuple of {}", parts.len()),
                };
                let reason = format!(
                    "the stride is {}, but the shape is {}: they must nest alike",
                    count(stride),
                    count(shape)
                );
                Err(self.error(stride.position(), reason))
            }
        }
    }

    fn column_major(&self, shape: &Tuple, stride: &mut Option<i64>) -> ParseResult<Tree> {
        match shape {
            Tuple::Leaf(extent, at) => {
                let extent = self.extent(*extent, *at)?;
                let too_large = || self.error(*at, LayoutError::Size.to_string());
                let now = stride.ok_or_else(too_large)?;
                *stride = now.checked_mul(extent);
                Ok(Tree::Leaf(Mode::new(extent, now)))
            }
            Tuple::Node(parts, _) => {
                let parts = parts.iter().map(|part| self.column_major(part, stride));
                Ok(Tree::Node(parts.collect::<ParseResult<_>>()?))
            }
        }
    }

    fn tiler(&mut self, depth: usize) -> ParseResult<Tiler> {
        if !self.take('<') {
            return Ok(Tiler::Layout(self.layout()?));
        }
        if depth > MAX_DEPTH {
            return Err(self.error(self.at, format!("tilers nest at most {MAX_DEPTH} deep")));
        }
        let mut parts = vec![self.tiler(depth + 1)?];
        while !self.take('>') {
            if !self.take(',') {
                return Err(self.unexpected("`,` or `>`"));
            }
            parts.push(self.tiler(depth + 1)?);
        }
        Ok(Tiler::Modes(parts))
    }

    fn swizzle_numbers(&mut self) -> ParseResult<Swizzle> {
        self.peek();
        let start = self.at;
        let bits = self.number()?;
        self.expect(',')?;
        let base = self.number()?;
        self.expect(',')?;
        let shift = self.number()?;
        let error = |e: &dyn ToString| self.error(start, e.to_string());
        let narrow = |n: i64| {
            i32::try_from(n).map_err(|_| error(&"a number of a swizzle must be below 2^31"))
        };
        Swizzle::new(narrow(bits)?, narrow(base)?, narrow(shift)?).map_err(|e| error(&e))
    }

    fn swizzled(&mut self) -> ParseResult<SwizzledLayout> {
        let mut swizzle = None;
        let mut offset = 0;
        if self.take('S') {
            self.take('w');
            self.expect('<')?;
            swizzle = Some(self.swizzle_numbers()?);
            self.expect('>')?;
            self.expect('o')?;
            // The offset is optional: a number that another `o` follows.
            let start = self.at;
            match self.number() {
                Ok(number) if self.take('o') => offset = number,
                _ => self.at = start,
            }
        }
        let layout = self.layout()?;
        let start = self.at;
        SwizzledLayout::new(swizzle.unwrap_or_default(), offset, layout)
            .map_err(|error| self.error(start, error.to_string()))
    }
}

fn whole<T>(text: &str, read: impl FnOnce(&mut Reader<'_>) -> ParseResult<T>) -> ParseResult<T> {
    let mut reader = Reader::new(text);
    let value = read(&mut reader)?;
    reader.end()?;
    Ok(value)
}

impl FromStr for Layout {
    type Err = ParseError;

    fn from_str(text: &str) -> ParseResult<Self> {
        whole(text, |reader| reader.layout())
    }
}

impl FromStr for Tiler {
    type Err = ParseError;

    fn from_str(text: &str) -> ParseResult<Self> {
        whole(text, |reader| reader.tiler(0))
    }
}

impl FromStr for SwizzledLayout {
    type Err = ParseError;

    fn from_str(text: &str) -> ParseResult<Self> {
        whole(text, |reader| reader.swizzled())
    }
}

impl FromStr for Swizzle {
    type Err = ParseError;

    /// Three numbers, `3,4,3`, or CuTe's `S<3,4,3>`.
    fn from_str(text: &str) -> ParseResult<Self> {
        whole(text, |reader| {
            if !reader.take('S') {
                return reader.swizzle_numbers();
            }
            reader.take('w');
            reader.expect('<')?;
            let swizzle = reader.swizzle_numbers()?;
            reader.expect('>')?;
            Ok(swizzle)
        })
    }
}

impl FromStr for Coordinate {
    type Err = ParseError;

    fn from_str(text: &str) -> ParseResult<Self> {
        fn convert(tuple: &Tuple) -> Coordinate {
            match tuple {
                Tuple::Leaf(value, _) => Coordinate::Index(*value),
                Tuple::Node(parts, _) => Coordinate::Tuple(parts.iter().map(convert).collect()),
            }
        }
        whole(text, |reader| reader.tuple(0)).map(|tuple| convert(&tuple))
    }
}
