//! Roofline charts: the metrics of the ceilings and of the achieved points.
//!
//! A chart holds only names; the values are the result's metrics. A ceiling is the sum of some
//! metrics per cycle, multiplied by a clock.

use super::notes::Notes;
use super::wire::Message;

/// 1 label, 2 and 3 axes, 4 ceilings, 5 achieved points.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RooflineChart {
    /// The label of the chart, as ncu shows it.
    pub label: String,
    /// The GPUs that the chart applies to.
    pub filter: ArchFilter,
    /// The GPU's limits, such as `DRAM Roofline`.
    pub ceilings: Vec<RooflinePoint>,
    /// The points that the launch achieved, in the units of the ceilings.
    pub achieved: Vec<RooflinePoint>,
}

/// A ceiling or an achieved point: 1 work, 2 traffic, 3 options {1 label}.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RooflinePoint {
    /// Its label, such as `DRAM Roofline`.
    pub label: String,
    /// Operations per second; `None` if the file has none for this point.
    pub work: Option<Rate>,
    /// Bytes per second; `None` if the file has none for this point.
    pub traffic: Option<Rate>,
}

/// A rate per second: one metric (2), or metrics per cycle and a clock (3: 1, 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rate {
    /// The metric is already a rate.
    Metric(MetricRef),
    /// The sum of the metrics, multiplied by the clock.
    PerCycle {
        /// Values per cycle, which are summed.
        values: Vec<MetricRef>,
        /// The clock, in cycles per second.
        clock: MetricRef,
    },
}

/// A metric by name: 1 name, 2 label, 6 filter, 7 options {1 name, 3 filter} for other GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricRef {
    name: String,
    label: String,
    filter: ArchFilter,
    options: Vec<(String, ArchFilter)>,
}

/// The GPUs that an element applies to: 1 minimum and 2 maximum compute capability, times ten, or 3
/// several such ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchFilter {
    least: Option<u64>,
    greatest: Option<u64>,
    ranges: Vec<(u64, u64)>,
}

impl ArchFilter {
    /// Whether the filter accepts a GPU. `compute_capability` is ten times major plus minor: 90 for
    /// 9.0.
    pub fn passes(&self, compute_capability: u64) -> bool {
        self.least.is_none_or(|least| least <= compute_capability)
            && self.greatest.is_none_or(|greatest| compute_capability <= greatest)
            && (self.ranges.is_empty()
                || self
                    .ranges
                    .iter()
                    .any(|&(least, greatest)| (least..=greatest).contains(&compute_capability)))
    }

    pub(super) fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut filter = ArchFilter::default();
        notes.walk(message, "filter", |notes, field| match field.number {
            1 => field.varint().map(|arch| filter.least = Some(arch)),
            2 => field.varint().map(|arch| filter.greatest = Some(arch)),
            3 => field.message().map(|message| {
                let (mut least, mut greatest) = (0, u64::MAX);
                notes.walk(message, "filter range", |_, field| match field.number {
                    1 => field.varint().map(|arch| least = arch),
                    2 => field.varint().map(|arch| greatest = arch),
                    _ => None,
                });
                filter.ranges.push((least, greatest));
            }),
            _ => None,
        });
        filter
    }
}

impl MetricRef {
    /// The metric's name on this GPU; `None` if the chart has none for it.
    pub fn name_for(&self, compute_capability: u64) -> Option<&str> {
        let option = self.options.iter().find(|(_, filter)| filter.passes(compute_capability));
        let own = self.filter.passes(compute_capability).then_some(&self.name);
        option.map(|(name, _)| name).or(own).map(String::as_str)
    }

    pub(super) fn named(name: String, label: String) -> Self {
        MetricRef { name, label, ..MetricRef::default() }
    }

    /// The metric's name, regardless of the GPU.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The section's label for it; may be empty.
    pub fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut metric = MetricRef::default();
        notes.walk(message, "section metric", |notes, field| match field.number {
            1 => field.text().map(|name| metric.name = name.into_owned()),
            2 => field.text().map(|label| metric.label = label.into_owned()),
            6 => field.message().map(|filter| metric.filter = ArchFilter::read(filter, notes)),
            7 => field.message().map(|message| {
                let (mut name, mut filter) = (String::new(), ArchFilter::default());
                notes.walk(message, "metric option", |notes, field| match field.number {
                    1 => field.text().map(|text| name = text.into_owned()),
                    3 => field.message().map(|message| filter = ArchFilter::read(message, notes)),
                    _ => None,
                });
                metric.options.push((name, filter));
            }),
            _ => None,
        });
        metric
    }
}

impl Rate {
    fn read(message: Message<'_>, notes: &mut Notes) -> Option<Self> {
        let mut rate = None;
        notes.walk(message, "roofline value", |notes, field| match field.number {
            2 => field.message().map(|m| rate = Some(Rate::Metric(MetricRef::read(m, notes)))),
            3 => field.message().map(|message| {
                let (mut values, mut clock) = (Vec::new(), MetricRef::default());
                notes.walk(message, "roofline expression", |notes, field| match field.number {
                    1 => field.message().map(|m| values.push(MetricRef::read(m, notes))),
                    2 => field.message().map(|m| clock = MetricRef::read(m, notes)),
                    _ => None,
                });
                rate = Some(Rate::PerCycle { values, clock });
            }),
            _ => None,
        });
        rate
    }

    /// The rate computed from the metrics' values; `None` if one of them is missing.
    pub fn value(
        &self,
        compute_capability: u64,
        mut number: impl FnMut(&str) -> Option<f64>,
    ) -> Option<f64> {
        let mut of = |metric: &MetricRef| number(metric.name_for(compute_capability)?);
        match self {
            Rate::Metric(metric) => of(metric),
            Rate::PerCycle { values, clock } => {
                let mut sum = 0.0;
                for value in values {
                    sum += of(value)?;
                }
                Some(sum * of(clock)?)
            }
        }
    }

    /// The names of the metrics in the rate, without the clock.
    pub fn names(&self, compute_capability: u64) -> Vec<&str> {
        let metrics = match self {
            Rate::Metric(metric) => std::slice::from_ref(metric),
            Rate::PerCycle { values, .. } => values,
        };
        metrics.iter().filter_map(|metric| metric.name_for(compute_capability)).collect()
    }
}

impl RooflinePoint {
    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut point = RooflinePoint::default();
        notes.walk(message, "roofline point", |notes, field| match field.number {
            1 => field.message().map(|message| point.work = Rate::read(message, notes)),
            2 => field.message().map(|message| point.traffic = Rate::read(message, notes)),
            3 => field.message().map(|message| {
                notes.walk(message, "roofline options", |_, field| match field.number {
                    1 => field.text().map(|text| point.label = text.into_owned()),
                    _ => None,
                });
            }),
            _ => None,
        });
        point
    }
}

impl RooflineChart {
    /// The chart of a section's item; `None` if the item is no roofline chart.
    pub(super) fn from_item(item: Message<'_>, notes: &mut Notes) -> Option<Self> {
        let (mut chart, mut filter) = (None, ArchFilter::default());
        notes.walk(item, "section item", |notes, field| match field.number {
            6 => field.message().map(|message| chart = Some(RooflineChart::read(message, notes))),
            200 => field.message().map(|message| filter = ArchFilter::read(message, notes)),
            _ => None,
        });
        chart.map(|chart| RooflineChart { filter, ..chart })
    }

    /// The chart of a section's item, if it is one and applies to a GPU. Most charts are for other
    /// GPUs, and their points are not decoded.
    pub(super) fn from_item_for(item: Message<'_>, compute_capability: u64) -> Option<Self> {
        let filters = item.fields().flatten().filter(|field| field.number == 200);
        let filter = filters.filter_map(|field| field.message()).last();
        let filter = filter.map(|m| ArchFilter::read(m, &mut Notes::default()));
        if filter.is_none_or(|filter| filter.passes(compute_capability)) {
            RooflineChart::from_item(item, &mut Notes::default())
        } else {
            None
        }
    }

    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut chart = RooflineChart::default();
        notes.walk(message, "roofline chart", |notes, field| match field.number {
            1 => field.text().map(|text| chart.label = text.into_owned()),
            4 => field.message().map(|m| chart.ceilings.push(RooflinePoint::read(m, notes))),
            5 => field.message().map(|m| chart.achieved.push(RooflinePoint::read(m, notes))),
            _ => None,
        });
        chart
    }
}
