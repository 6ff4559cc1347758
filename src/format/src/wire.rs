//! Reads the protobuf wire format in place: no schema, no copies, no recursion. Reports of Nsight
//! Compute (`.ncu-rep`) and Nsight Systems (`.nsys-rep`) consist of it.
//!
//! A message is a sequence of fields, each a varint tag `number << 3 | type` and a value:
//!
//! | type | value |
//! |---|---|
//! | 0 | varint, at most 10 bytes |
//! | 1 | 8 bytes, little endian |
//! | 2 | varint length, then that many bytes (text, bytes, a nested message) |
//! | 5 | 4 bytes, little endian |
//!
//! Groups (3 and 4) do not occur in these reports and are an error here. Source: the published
//! protobuf encoding guide. Every error has the absolute offset in the uncompressed file.

use std::borrow::Cow;

/// Bytes that are not a valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message ends inside a tag, a varint or a fixed-size value.
    #[error("message ends inside a value at offset {offset}")]
    Truncated {
        /// Offset of the value.
        offset: usize,
    },
    /// A length extends beyond the enclosing message.
    #[error("length {length} at offset {offset} exceeds the {left} bytes left in its message")]
    Length {
        /// Offset of the bytes.
        offset: usize,
        /// The length stated in the file.
        length: u64,
        /// The number of bytes that remain.
        left: usize,
    },
    /// A varint has more than 64 bits.
    #[error("varint at offset {offset} has more than 64 bits")]
    Varint {
        /// Offset of the varint.
        offset: usize,
    },
    /// A tag has field number 0 or an unknown wire type.
    #[error("tag {tag:#x} at offset {offset} is not a protobuf tag")]
    Tag {
        /// Offset of the tag.
        offset: usize,
        /// Value of the tag.
        tag: u64,
    },
}

/// The bytes of one message and their offset in the file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Message<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Message<'a> {
    /// A message over `bytes`, which begin at `offset` of the file.
    pub fn new(bytes: &'a [u8], offset: usize) -> Self {
        Message { bytes, offset }
    }

    /// The undecoded bytes of the message.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Offset of the message in the uncompressed file.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The message of `length` bytes at `offset` of this one; empty if it is not inside.
    pub(crate) fn part(&self, offset: u32, length: u32) -> Self {
        let bytes = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
        let part = bytes.and_then(|(at, length)| {
            let bytes = self.bytes.get(at..at.checked_add(length)?)?;
            Some(Message::new(bytes, self.offset + at))
        });
        part.unwrap_or_default()
    }

    /// The fields in file order; the first error ends the iteration.
    pub fn fields(&self) -> Fields<'a> {
        Fields { bytes: self.bytes, at: 0, base: self.offset }
    }

    /// The bytes as text. Invalid UTF-8 is replaced, since kernel names come from compilers and
    /// range names from any program.
    pub fn text(&self) -> Cow<'a, str> {
        // Checking first is faster for valid UTF-8, which nearly all text is.
        match std::str::from_utf8(self.bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(self.bytes),
        }
    }
}

/// One field of a message.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// The field's number in the schema.
    pub number: u32,
    /// Value of the field, by wire type.
    pub value: Value<'a>,
    /// Offset of its tag in the uncompressed file.
    pub offset: usize,
}

/// A value by wire type; its meaning depends on the schema.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// Wire type 0: a variable-length integer.
    Varint(u64),
    /// Wire type 1: eight bytes.
    Fixed64(u64),
    /// Wire type 2: sized bytes, a message or text.
    Bytes(Message<'a>),
    /// Wire type 5: four bytes.
    Fixed32(u32),
}

impl<'a> Field<'a> {
    /// The varint; `None` for another wire type.
    pub fn varint(&self) -> Option<u64> {
        match self.value {
            Value::Varint(value) => Some(value),
            _ => None,
        }
    }

    /// The varint as `u32`; `None` for larger values, which do not fit the schema.
    pub fn uint32(&self) -> Option<u32> {
        self.varint().and_then(|value| u32::try_from(value).ok())
    }

    /// The nested message; `None` for another wire type.
    pub fn message(&self) -> Option<Message<'a>> {
        match self.value {
            Value::Bytes(message) => Some(message),
            _ => None,
        }
    }

    /// The text; `None` for another wire type.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        self.message().map(|message| message.text())
    }

    /// A `double`; `None` for another wire type.
    pub fn double(&self) -> Option<f64> {
        match self.value {
            Value::Fixed64(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// A `float`; `None` for another wire type.
    pub fn float(&self) -> Option<f32> {
        match self.value {
            Value::Fixed32(bits) => Some(f32::from_bits(bits)),
            _ => None,
        }
    }
}

/// Iterator over a message's fields.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    base: usize,
}

impl<'a> Fields<'a> {
    #[inline]
    fn varint(&mut self) -> Result<u64, WireError> {
        // Tags, and most lengths and numbers, are one byte.
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        let offset = self.base + self.at;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let mut value = 0_u64;
        for (index, &byte) in rest.iter().take(10).enumerate() {
            // The tenth byte holds the last of 64 bits.
            if index == 9 && byte > 1 {
                return Err(WireError::Varint { offset });
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.at += index + 1;
                return Ok(value);
            }
        }
        if rest.len() < 10 {
            Err(WireError::Truncated { offset })
        } else {
            Err(WireError::Varint { offset })
        }
    }

    #[inline]
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    #[inline]
    fn take_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// The next field, if it holds bytes and its tag and length take one byte each. Large reports
    /// consist of such small messages, so this is inlined into every loop.
    #[inline]
    fn small_bytes(&mut self) -> Option<Field<'a>> {
        let [tag @ 0x08..0x80, length @ ..0x80, rest @ ..] = self.bytes.get(self.at..)? else {
            return None;
        };
        if tag & 7 != 2 {
            return None;
        }
        let bytes = rest.get(..usize::from(*length))?;
        let offset = self.base + self.at;
        self.at += 2 + bytes.len();
        let value = Value::Bytes(Message::new(bytes, offset + 2));
        Some(Field { number: u32::from(tag >> 3), value, offset })
    }

    /// The next field of any form.
    fn field(&mut self) -> Result<Field<'a>, WireError> {
        let offset = self.base + self.at;
        let tag = self.varint()?;
        let number = match u32::try_from(tag >> 3) {
            Ok(number) if (1..1 << 29).contains(&number) => number,
            _ => return Err(WireError::Tag { offset, tag }),
        };
        let start = self.base + self.at;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                let bytes = self.take_array().ok_or(WireError::Truncated { offset: start })?;
                Value::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = self.varint()?;
                let (start, left) = (self.base + self.at, self.bytes.len() - self.at);
                let error = WireError::Length { offset: start, length, left };
                let bytes = usize::try_from(length).ok().and_then(|count| self.take(count));
                Value::Bytes(Message::new(bytes.ok_or(error)?, start))
            }
            5 => {
                let bytes = self.take_array().ok_or(WireError::Truncated { offset: start })?;
                Value::Fixed32(u32::from_le_bytes(bytes))
            }
            _ => return Err(WireError::Tag { offset, tag }),
        };
        Ok(Field { number, value, offset })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        if let Some(field) = self.small_bytes() {
            return Some(Ok(field));
        }
        let field = self.field();
        if field.is_err() {
            self.at = self.bytes.len();
        }
        Some(field)
    }
}

/// The value of a varint that fills `bytes` exactly and has at most nine bytes; `None` for anything
/// else. A fast path for the metric values of ncu reports.
#[inline]
pub(crate) fn whole_varint(bytes: &[u8]) -> Option<u64> {
    let (&last, before) = bytes.split_last()?;
    if last >= 0x80 || before.len() > 8 {
        return None;
    }
    let mut value = u64::from(last);
    for &byte in before.iter().rev() {
        if byte < 0x80 {
            return None;
        }
        value = value << 7 | u64::from(byte & 0x7f);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wire_type_is_read_with_its_offset() {
        let bytes = [
            0x08, 0x96, 0x01, 0x11, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x1a, 2, b'h', b'i', 0x25, 1, 0,
            0, 0,
        ];
        let fields: Vec<_> = Message::new(&bytes, 100).fields().map(|f| f.unwrap()).collect();
        assert_eq!(fields[0].varint(), Some(150));
        assert_eq!(fields[1].double(), Some(1.0));
        assert_eq!(fields[2].text().as_deref(), Some("hi"));
        assert_eq!(fields[2].message().map(|m| m.offset()), Some(114));
        assert!(matches!(fields[3].value, Value::Fixed32(1)));
        assert_eq!(fields.iter().map(|f| f.offset).collect::<Vec<_>>(), [100, 103, 112, 116]);
    }

    #[test]
    fn a_whole_varint_is_read_as_a_field_would_be() {
        for value in [0, 1, 0x7f, 0x80, 0x7fff_1234_5678, (1 << 63) - 1] {
            let mut bytes = vec![0x08];
            let mut rest: u64 = value;
            while rest >= 0x80 {
                bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
            let field = Message::new(&bytes, 0).fields().next().unwrap().unwrap();
            assert_eq!(field.varint(), Some(value));
            assert_eq!(whole_varint(&bytes[1..]), Some(value));
        }
        for bytes in [&[][..], &[0x80], &[1, 1], &[0x80, 1, 0], &[0xff; 10]] {
            assert_eq!(whole_varint(bytes), None, "{bytes:x?}");
        }
    }

    #[test]
    fn damage_is_an_error_at_its_offset_and_ends_the_walk() {
        let case = |bytes: &[u8]| Message::new(bytes, 10).fields().last().unwrap().unwrap_err();
        assert_eq!(case(&[0x08]), WireError::Truncated { offset: 11 });
        assert_eq!(case(&[0x08, 0x80]), WireError::Truncated { offset: 11 });
        assert_eq!(case(&[0x11, 1, 2]), WireError::Truncated { offset: 11 });
        assert_eq!(case(&[0x12, 9, 1]), WireError::Length { offset: 12, length: 9, left: 1 });
        assert_eq!(case(&[0x0b, 0]), WireError::Tag { offset: 10, tag: 0x0b });
        assert_eq!(case(&[0x00, 0]), WireError::Tag { offset: 10, tag: 0 });
        assert_eq!(
            case(&[[0x08].as_slice(), &[0xff; 10]].concat()),
            WireError::Varint { offset: 11 }
        );
        let mut huge = vec![0x12];
        huge.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert!(matches!(case(&huge), WireError::Length { length: u64::MAX, .. }));
    }
}
