//! The string table: names of metrics, by number, over all blocks.

use std::borrow::Cow;

use super::wire::Message;

/// A view of the table; only the strings' places are kept, not the strings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strings<'a> {
    bytes: &'a [u8],
    tags: &'a [usize],
}

impl<'a> Strings<'a> {
    pub(super) fn new(bytes: &'a [u8], tags: &'a [usize]) -> Self {
        Strings { bytes, tags }
    }

    pub(super) fn len(&self) -> usize {
        self.tags.len()
    }

    pub(super) fn get(&self, id: u64) -> Option<Cow<'a, str>> {
        Some(self.message(id)?.text())
    }

    /// Whether string `id` is `name`; no text is decoded for it.
    pub(super) fn is(&self, id: u64, name: &str) -> bool {
        self.message(id).is_some_and(|message| message.bytes() == name.as_bytes())
    }

    fn message(&self, id: u64) -> Option<Message<'a>> {
        let tag = *self.tags.get(usize::try_from(id).ok()?)?;
        // Bounded by the file and not by the table, which is enough: the index has checked it.
        let field = Message::new(self.bytes.get(tag..)?, tag).fields().next()?.ok()?;
        field.message()
    }
}
