//! Sections: ncu's own page layout. They make up half of a full report and are decoded on demand.
//!
//! | message | fields |
//! |---|---|
//! | section | 1 identifier, 2 name, 3 order, 4 header {2 metrics}, 5 bodies {1 items, 2 name}, 6 metrics, 7 description |
//! | item | 1 table and 2 bar chart {1 label, 5 metrics}, 5 group {1 items}, 6 roofline chart, 8 grid {1 label, 2 columns {1 {1 suffix, 2 label}}, 3 rows {1 {1 base name, 2 label}}}, 200 filter of GPUs; the rest are charts without numbers of their own |
//!
//! A section holds names and labels; the values are the result's metrics. Source: reports of
//! 2025.3.1, compared with its details page.

use std::borrow::Cow;

use super::notes::Notes;
use super::roofline::{ArchFilter, MetricRef, RooflineChart};
use super::wire::Message;

/// A section of a result.
#[derive(Debug, Clone, Default)]
pub struct Section<'a> {
    /// NVIDIA's identifier, such as `SpeedOfLight`.
    pub identifier: Cow<'a, str>,
    /// The name that ncu shows.
    pub name: Cow<'a, str>,
    /// Position among the other sections, in ascending order.
    pub order: u64,
    /// Description of the section.
    pub description: Cow<'a, str>,
    message: Message<'a>,
}

/// A table or bar chart of a section's bodies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SectionTable {
    /// The label above it; empty if the file has none.
    pub label: String,
    /// The GPUs that it applies to.
    pub filter: ArchFilter,
    /// The metrics it shows, in order. A name that begins with `breakdown:` is a list of metrics.
    pub metrics: Vec<MetricRef>,
}

/// Maximum number of cells of a grid. Larger ones are damage and are skipped.
const MAX_GRID_CELLS: usize = 4096;

impl<'a> Section<'a> {
    pub(super) fn read(message: Message<'a>) -> Self {
        let mut section = Section { message, ..Section::default() };
        Notes::default().walk(message, "section", |_, field| match field.number {
            1 => field.text().map(|text| section.identifier = text),
            2 => field.text().map(|text| section.name = text),
            3 => field.varint().map(|order| section.order = order),
            7 => field.text().map(|text| section.description = text),
            _ => None,
        });
        section
    }

    /// The section's undecoded protobuf message.
    pub fn raw(&self) -> &'a [u8] {
        self.message.bytes()
    }

    /// The metrics of the section's header, in the order of the details page: by name.
    pub fn header(&self) -> Vec<MetricRef> {
        let headers = children(self.message, 4).flat_map(|header| children(header, 2));
        let mut metrics: Vec<_> =
            headers.map(|metric| MetricRef::read(metric, &mut Notes::default())).collect();
        metrics.sort_by(|a, b| a.name().cmp(b.name()));
        metrics
    }

    /// The tables and bar charts of its bodies.
    pub fn tables(&self) -> Vec<SectionTable> {
        let items = children(self.message, 5).flat_map(|body| children(body, 1));
        let mut tables = Vec::new();
        for item in items {
            let filter = children(item, 200).next();
            let filter = filter.map(|m| ArchFilter::read(m, &mut Notes::default()));
            let filter = filter.unwrap_or_default();
            let groups = children(item, 5).flat_map(|group| children(group, 1));
            for item in std::iter::once(item).chain(groups) {
                let charts = children(item, 1).chain(children(item, 2)).map(chart);
                let grids = children(item, 8).filter_map(grid);
                let found = charts.chain(grids).filter(|table| !table.metrics.is_empty());
                tables.extend(found.map(|table| SectionTable { filter: filter.clone(), ..table }));
            }
        }
        tables
    }

    /// The section's roofline charts for all GPUs; each chart states the GPUs it applies to.
    pub fn rooflines(&self) -> Vec<RooflineChart> {
        let items = children(self.message, 5).flat_map(|body| children(body, 1));
        items.filter_map(|item| RooflineChart::from_item(item, &mut Notes::default())).collect()
    }

    /// The section's roofline charts that apply to a GPU. `compute_capability` is ten times major
    /// plus minor.
    pub fn rooflines_for(&self, compute_capability: u64) -> Vec<RooflineChart> {
        let items = children(self.message, 5).flat_map(|body| children(body, 1));
        items.filter_map(|item| RooflineChart::from_item_for(item, compute_capability)).collect()
    }
}

fn children<'a>(message: Message<'a>, number: u32) -> impl Iterator<Item = Message<'a>> {
    let fields = message.fields().flatten().filter(move |field| field.number == number);
    fields.filter_map(|field| field.message())
}

fn label(message: Message<'_>, number: u32) -> String {
    let text = children(message, number).next();
    text.map(|text| text.text().into_owned()).unwrap_or_default()
}

fn chart(message: Message<'_>) -> SectionTable {
    let metrics = children(message, 5);
    SectionTable {
        label: label(message, 1),
        filter: ArchFilter::default(),
        metrics: metrics.map(|m| MetricRef::read(m, &mut Notes::default())).collect(),
    }
}

/// Rows times columns: a metric's name is the row's base name plus the column's suffix.
fn grid(message: Message<'_>) -> Option<SectionTable> {
    let parts = |number| -> Vec<(String, String)> {
        let cells = children(message, number).flat_map(|list| children(list, 1));
        cells.map(|cell| (label(cell, 1), label(cell, 2))).collect()
    };
    let (columns, rows) = (parts(2), parts(3));
    if rows.len().saturating_mul(columns.len()) > MAX_GRID_CELLS {
        return None;
    }
    let cells = rows.iter().flat_map(|(base, row)| {
        columns.iter().map(move |(suffix, column)| {
            MetricRef::named(format!("{base}{suffix}"), format!("{row}, {column}"))
        })
    });
    let metrics = cells.collect();
    Some(SectionTable { label: label(message, 1), filter: ArchFilter::default(), metrics })
}
