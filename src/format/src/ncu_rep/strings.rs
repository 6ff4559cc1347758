//! The string table: metric names by number, over all blocks.

use std::borrow::Cow;

use super::wire::Message;

/// A view of the table. It stores only the strings' positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strings<'a> {
    bytes: &'a [u8],
    tag_offsets: &'a [usize],
}

impl<'a> Strings<'a> {
    pub(super) fn new(bytes: &'a [u8], tag_offsets: &'a [usize]) -> Self {
        Strings { bytes, tag_offsets }
    }

    pub(super) fn len(&self) -> usize {
        self.tag_offsets.len()
    }

    pub(super) fn get(&self, id: u64) -> Option<Cow<'a, str>> {
        Some(self.message(id)?.text())
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.message(id).is_some()
    }

    /// Whether string `id` is `name`, without decoding text.
    pub(super) fn is(&self, id: u64, name: &str) -> bool {
        self.message(id).is_some_and(|message| message.bytes() == name.as_bytes())
    }

    fn message(&self, id: u64) -> Option<Message<'a>> {
        let tag = *self.tag_offsets.get(usize::try_from(id).ok()?)?;
        // The slice is bounded by the file instead of the table; the index has already checked it.
        let field = Message::new(self.bytes.get(tag..)?, tag).fields().next()?.ok()?;
        field.message()
    }
}
