//! Sections: ncu's own page layout, half of a full report's bytes, decoded only when asked for.

use std::borrow::Cow;

use super::notes::Notes;
use super::roofline::RooflineChart;
use super::wire::Message;

/// `ProfilerSection`: 1 identifier, 2 name, 3 order, 4 header, 5 bodies {1 items, 2 name},
/// 6 metrics, 7 description. An item's field 6 is a roofline chart and 200 the filter of GPUs that
/// the item is for.
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

    /// The section's roofline charts, for all GPUs: a chart says itself which ones it is for.
    pub fn rooflines(&self) -> Vec<RooflineChart> {
        let children = |message: Message<'a>, number| {
            let fields = message.fields().flatten().filter(move |field| field.number == number);
            fields.filter_map(|field| field.message())
        };
        let items = children(self.message, 5).flat_map(|body| children(body, 1));
        items.filter_map(|item| RooflineChart::of_item(item, &mut Notes::default())).collect()
    }
}
