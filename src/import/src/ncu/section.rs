//! The section tables of ncu's pages, with the values of one result.

use std::cell::Cell;
use std::collections::HashMap;

use rgpu_format::ncu_rep::{Metric, MetricRef, NcuResult, Section};

use super::roofline::compute_capability;
use rgpu_model::Launch;
use rgpu_model::launch::{RawRow, RawSection, RawTable};

/// Every section that has a value or a rule's message, in the order of ncu's pages. `rules` has the
/// section of each of the launch's rule messages.
pub(super) fn import(
    result: &NcuResult<'_>,
    metrics: &[Metric<'_>],
    launch: &Launch,
    rules: &[String],
) -> Vec<RawSection> {
    let arch = compute_capability(launch);
    let mut sections: Vec<_> = result.sections().collect();
    sections.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
    let breakdowns = metrics.iter().filter(|metric| metric.name().starts_with(BREAKDOWN));
    let breakdowns = breakdowns
        .filter_map(|metric| Some((metric.name().to_owned(), metric.value().text()?.to_owned())));
    let values =
        RowValues { launch, arch, breakdowns: breakdowns.collect(), left: MAX_ROWS.into() };
    let read = sections.iter().map(|section| values.section(section, rules));
    read.filter(|s| !(s.rows.is_empty() && s.tables.is_empty() && s.rules.is_empty())).collect()
}

/// Prefix of a metric that lists the parts of another metric.
const BREAKDOWN: &str = "breakdown:";
/// Most rows imported for one launch. A full report has about 500.
const MAX_ROWS: usize = 1 << 13;

struct RowValues<'a> {
    launch: &'a Launch,
    /// The GPU's compute capability, to skip rows for other GPUs. `None` skips nothing.
    arch: Option<u64>,
    breakdowns: HashMap<String, String>,
    left: Cell<usize>,
}

impl RowValues<'_> {
    fn section(&self, section: &Section<'_>, rules: &[String]) -> RawSection {
        let tables = section.tables().into_iter();
        let tables = tables.filter(|t| self.arch.is_none_or(|arch| t.filter.passes(arch)));
        let tables = tables.map(|table| RawTable {
            label: table.label,
            rows: table.metrics.iter().flat_map(|metric| self.rows(metric)).collect(),
        });
        let said = rules.iter().zip(0..).filter(|(id, _)| **id == section.identifier);
        RawSection {
            id: section.identifier.to_string(),
            name: section.name.to_string(),
            description: section.description.to_string(),
            rows: section.header().iter().flat_map(|metric| self.rows(metric)).collect(),
            tables: tables.filter(|table| !table.rows.is_empty()).collect(),
            rules: said.map(|(_, number)| number).collect(),
        }
    }

    /// The rows of a metric: one if it has a value, and for a breakdown one for each part.
    fn rows(&self, metric: &MetricRef) -> Vec<RawRow> {
        let name = match self.arch {
            Some(arch) => metric.name_for(arch),
            None => Some(metric.name()),
        };
        let Some(name) = name else { return Vec::new() };
        if name.starts_with(BREAKDOWN) {
            let parts = self.breakdowns.get(name).map_or("", String::as_str);
            return parts.split(',').filter_map(|part| self.row(part.trim(), "")).collect();
        }
        self.row(name, metric.label()).into_iter().collect()
    }

    fn row(&self, name: &str, label: &str) -> Option<RawRow> {
        let metric = self.launch.metrics.get(name)?;
        self.left.set(self.left.get().checked_sub(1)?);
        let label = if label.is_empty() { name } else { label };
        Some(RawRow {
            label: label.to_owned(),
            metric: name.to_owned(),
            value: metric.value.clone(),
            unit: metric.unit.to_string(),
        })
    }
}
