//! The value of a metric, of one of its instances or of a device attribute.

use std::borrow::Cow;

use super::notes::Notes;
use super::wire::{Field, Message, whole_varint};

/// A value as stored in the file.
///
/// `Missing` is not zero; neither is a `Double` that is NaN.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue<'a> {
    /// ncu's "no data": no value, or one of a field that is unknown here.
    Missing,
    /// Text, such as a kernel name or an enumeration's label.
    Text(Cow<'a, str>),
    /// A 32-bit float.
    Float(f32),
    /// A 64-bit float, the type of most counters.
    Double(f64),
    /// An unsigned 32-bit integer.
    Uint32(u32),
    /// An unsigned 64-bit integer.
    Uint64(u64),
}

impl<'a> MetricValue<'a> {
    /// Reads `ProfileMetricValue`: one of fields 1 to 5.
    pub(super) fn read(message: Message<'a>, notes: &mut Notes) -> Self {
        MetricValue::read_single_number(message.bytes()).unwrap_or_else(|| {
            let mut value = MetricValue::Missing;
            notes.walk(message, "metric value", |_, field| value.set(&field));
            value
        })
    }

    /// Reads the value without noting problems, since the whole file was checked before.
    #[inline]
    pub(super) fn read_checked(message: Message<'a>) -> Self {
        MetricValue::read_single_number(message.bytes()).unwrap_or_else(|| {
            let mut value = MetricValue::Missing;
            for field in message.fields().flatten() {
                value.set(&field);
            }
            value
        })
    }

    /// Reads a double (tag 3 << 3 | 1) or a 64-bit integer (5 << 3) with nothing else around it, of
    /// at most ten bytes: nearly all values of a full report.
    #[inline]
    pub(super) fn read_single_number(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x19, number @ ..] => {
                let number = <[u8; 8]>::try_from(number).ok()?;
                Some(MetricValue::Double(f64::from_le_bytes(number)))
            }
            [0x28, number @ ..] => whole_varint(number).map(MetricValue::Uint64),
            _ => None,
        }
    }

    #[inline]
    fn set(&mut self, field: &Field<'a>) -> Option<()> {
        *self = match field.number {
            1 => MetricValue::Text(field.text()?),
            2 => MetricValue::Float(field.float()?),
            3 => MetricValue::Double(field.double()?),
            4 => MetricValue::Uint32(field.uint32()?),
            5 => MetricValue::Uint64(field.varint()?),
            _ => return None,
        };
        Some(())
    }

    /// The value as a number, including non-finite ones; `None` for text and missing values.
    /// Integers beyond 2^53 lose their last digits.
    #[inline]
    pub fn number(&self) -> Option<f64> {
        match *self {
            MetricValue::Float(value) => Some(f64::from(value)),
            MetricValue::Double(value) => Some(value),
            MetricValue::Uint32(value) => Some(f64::from(value)),
            MetricValue::Uint64(value) => Some(value as f64),
            MetricValue::Missing | MetricValue::Text(_) => None,
        }
    }

    /// The value as a finite number, for analysis.
    #[inline]
    pub fn finite(&self) -> Option<f64> {
        self.number().filter(|value| value.is_finite())
    }

    /// The exact integer; `None` for other types.
    pub fn integer(&self) -> Option<u64> {
        match *self {
            MetricValue::Uint32(value) => Some(u64::from(value)),
            MetricValue::Uint64(value) => Some(value),
            _ => None,
        }
    }

    /// The text; `None` for other types.
    pub fn text(&self) -> Option<&str> {
        match self {
            MetricValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The same value, without borrowing from the file.
    pub fn into_owned(self) -> MetricValue<'static> {
        match self {
            MetricValue::Missing => MetricValue::Missing,
            MetricValue::Text(text) => MetricValue::Text(Cow::Owned(text.into_owned())),
            MetricValue::Float(value) => MetricValue::Float(value),
            MetricValue::Double(value) => MetricValue::Double(value),
            MetricValue::Uint32(value) => MetricValue::Uint32(value),
            MetricValue::Uint64(value) => MetricValue::Uint64(value),
        }
    }
}
