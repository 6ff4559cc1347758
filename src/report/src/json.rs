//! Writes documents as indented JSON, byte for byte as `serde_json::to_string_pretty` does. That
//! writes each level of an indentation on its own, which takes most of the time for a document of a
//! hundred thousand lines; this writes the indentation at once.
//!
//! A document may be larger than the values that it shows, since they share names and paths. So it
//! is written while it is made, and never held as one text or `serde_json::Value`.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use super::{Document, ReportInput, Style};
use rgpu_model::Profile;

/// The profile as JSON.
pub(super) fn render<'p>(subject: &ReportInput<'p>, _: &Style) -> Vec<Document<'p>> {
    let json = |profile: &Profile, out: &mut dyn Write| write(out, profile);
    vec![Document::written("profile.json", subject.profile, json)]
}

/// Writes a document with a newline at its end.
///
/// # Errors
/// Those of `out`; [`io::ErrorKind::InvalidData`] if the value cannot be JSON.
pub fn write(out: &mut (impl Write + ?Sized), value: &impl Serialize) -> io::Result<()> {
    write_at(out, value, 0)?;
    out.write_all(b"\n")
}

/// Writes a value at this depth of a document, without a newline.
///
/// # Errors
/// As [`write()`].
pub fn write_at(
    out: &mut (impl Write + ?Sized),
    value: &impl Serialize,
    depth: usize,
) -> io::Result<()> {
    let formatter = IndentedFormatter { depth, has_element: false };
    Ok(value.serialize(&mut Serializer::with_formatter(out, formatter))?)
}

/// A small document as text, with a newline at its end.
///
/// # Errors
/// As [`write()`].
pub fn pretty(value: &impl Serialize) -> io::Result<String> {
    let mut text = Vec::with_capacity(1 << 14);
    write(&mut text, value)?;
    // Strings are UTF-8 and everything else is ASCII.
    Ok(String::from_utf8(text).unwrap_or_default())
}

struct IndentedFormatter {
    depth: usize,
    /// Whether the current list or object has an element.
    has_element: bool,
}

/// A newline and enough spaces for most indentations.
const NEWLINE_AND_SPACES: &[u8] =
    b"\n                                                                ";

impl IndentedFormatter {
    fn line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        let mut spaces = self.depth * 2;
        let max_spaces = NEWLINE_AND_SPACES.len() - 1;
        out.write_all(&NEWLINE_AND_SPACES[..=spaces.min(max_spaces)])?;
        while spaces > max_spaces {
            spaces -= max_spaces;
            out.write_all(&NEWLINE_AND_SPACES[1..=spaces.min(max_spaces)])?;
        }
        Ok(())
    }

    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_element = false;
        out.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_element {
            self.line(out)?;
        }
        out.write_all(bracket)
    }

    fn next<W: ?Sized + Write>(&self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(b",")?;
        }
        self.line(out)
    }
}

impl Formatter for IndentedFormatter {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_element = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_element = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn documents_look_as_serde_json_prints_them() {
        let mut deep = json!([]);
        for _ in 0..40 {
            deep = json!({ "a": [deep, {}, 1.5, null], "b\n\"": "ü" });
        }
        for value in [json!(1), json!([]), json!({}), json!([[], [1, [2]], {"a": {}}]), deep] {
            let theirs: String = serde_json::to_string_pretty::<Value>(&value).unwrap() + "\n";
            assert_eq!(pretty(&value).unwrap(), theirs);
        }
    }
}
