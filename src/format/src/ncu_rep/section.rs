//! Sections: ncu's own page layout, kept as bytes until somebody asks.

use std::borrow::Cow;

use super::notes::Notes;
use super::wire::Message;

/// `ProfilerSection`: 1 identifier, 2 name, 3 order, 4 header, 5 bodies of items, 6 metrics,
/// 7 description.
#[derive(Debug, Clone, Default)]
pub struct Section<'a> {
    /// NVIDIA's identifier, such as `SpeedOfLight`.
    pub identifier: Cow<'a, str>,
    /// Its name for people.
    pub name: Cow<'a, str>,
    message: Message<'a>,
}

impl<'a> Section<'a> {
    pub(super) fn read(message: Message<'a>) -> Self {
        let mut section = Section { message, ..Section::default() };
        Notes::default().walk(message, "section", |_, field| match field.number {
            1 => field.text().map(|text| section.identifier = text),
            2 => field.text().map(|text| section.name = text),
            _ => None,
        });
        section
    }

    /// The undecoded section.
    pub fn raw(&self) -> &'a [u8] {
        self.message.bytes()
    }
}
