//! Writes protocol buffers: the four kinds of fields that a trace needs.

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Adds a varint field.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.key(field, 0);
        self.varint(value);
    }

    /// Adds a `fixed64` field.
    pub(super) fn fixed(&mut self, field: u32, value: u64) {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
    }

    /// Adds a string field.
    pub(super) fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// Adds an embedded message.
    pub(super) fn message(&mut self, field: u32, value: &Self) {
        self.bytes(field, &value.0);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
    }

    fn key(&mut self, field: u32, wire: u64) {
        self.varint(u64::from(field) << 3 | wire);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_written_as_the_format_says() {
        let mut inner = Message::default();
        inner.number(1, 150);
        inner.text(2, "testing");
        let mut outer = Message::default();
        outer.message(3, &inner);
        outer.fixed(47, 1);
        let written = outer.into_bytes();
        assert_eq!(written[..5], [0x1a, 12, 0x08, 0x96, 0x01]);
        assert_eq!(written[5..14], *b"\x12\x07testing");
        assert_eq!(written[14..], [0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
