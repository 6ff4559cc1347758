//! Byte ranges of requests (RFC 9110 §14). Only single ranges are supported.

use std::fmt;

/// `Content-Range: bytes FIRST-LAST/TOTAL`; `end` is LAST + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentRange {
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) total: u64,
}

impl ContentRange {
    /// Parses a range that is not empty and lies within the total.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, last, total) = (number(first)?, number(last)?, number(total)?);
        let range = Self { first, end: last.checked_add(1)?, total };
        (range.first < range.end && range.end <= range.total).then_some(range)
    }

    pub(crate) fn len(self) -> u64 {
        self.end - self.first
    }
}

impl fmt::Display for ContentRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {}-{}/{}", self.first, self.end - 1, self.total)
    }
}

/// The part of a file that a `Range` header requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    /// The whole file: there is no header, or one that may be ignored.
    All,
    /// From the first offset up to the second, exclusive.
    Part(u64, u64),
    /// A range beyond the end of the file.
    Nothing,
}

impl RequestedRange {
    /// Parses `bytes=A-B`, `bytes=A-` and `bytes=-N`.
    pub(crate) fn parse(text: Option<&str>, size: u64) -> Self {
        let Some(range) = text.and_then(|text| text.strip_prefix("bytes=")) else {
            return Self::All;
        };
        let Some((first, last)) = range.split_once('-') else { return Self::All };
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first > last => Self::All,
            (Some(first), _) if first >= size && (last.is_empty() || number(last).is_some()) => {
                Self::Nothing
            }
            (Some(first), Some(last)) => Self::Part(first, size.min(last.saturating_add(1))),
            (Some(first), None) if last.is_empty() => Self::Part(first, size),
            (None, Some(0)) if first.is_empty() => Self::Nothing,
            (None, Some(n)) if first.is_empty() && size > 0 => {
                Self::Part(size.saturating_sub(n), size)
            }
            _ => Self::All,
        }
    }
}

/// Accepts digits only; `str::parse` would accept a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_says() {
        for (text, expected) in [
            ("bytes=0-0", RequestedRange::Part(0, 1)),
            ("bytes=2-", RequestedRange::Part(2, 10)),
            ("bytes=-3", RequestedRange::Part(7, 10)),
            ("bytes=-30", RequestedRange::Part(0, 10)),
            ("bytes=5-99", RequestedRange::Part(5, 10)),
            ("bytes=10-", RequestedRange::Nothing),
            ("bytes=10-12", RequestedRange::Nothing),
            ("bytes=-0", RequestedRange::Nothing),
            ("bytes=5-2", RequestedRange::All),
            ("bytes=a-2", RequestedRange::All),
            ("bytes=+1-2", RequestedRange::All),
            ("bytes=0-1,3-4", RequestedRange::All),
            ("lines=1-2", RequestedRange::All),
            ("bytes=-", RequestedRange::All),
        ] {
            assert_eq!(RequestedRange::parse(Some(text), 10), expected, "{text}");
        }
        assert_eq!(RequestedRange::parse(None, 10), RequestedRange::All);
        assert_eq!(RequestedRange::parse(Some("bytes=0-"), 0), RequestedRange::Nothing);
    }

    #[test]
    fn a_content_range_lies_within_its_total() {
        let range = ContentRange::parse("bytes 0-3/10").unwrap();
        assert_eq!((range.first, range.end, range.total, range.len()), (0, 4, 10, 4));
        assert_eq!(range.to_string(), "bytes 0-3/10");
        for bad in ["bytes 3-2/10", "bytes 0-10/10", "bytes */10", "0-3/10", "bytes 0-3/*"] {
            assert_eq!(ContentRange::parse(bad), None, "{bad}");
        }
    }
}
