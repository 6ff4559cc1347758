//! Metrics of a result: name, value, unit, and instances that are decoded on demand.

use std::borrow::Cow;

use super::error::Problem;
use super::notes::Notes;
use super::strings::Strings;
use super::value::MetricValue;
use super::wire::{Fields, Message};
use crate::units::metric_unit;

/// Message name, used in problems.
const METRIC: &str = "metric";
/// Message name of an instance.
const INSTANCE: &str = "metric instance";

/// One metric of one result (`ProfileMetricResult`: 1 name's number in the string table, 2 value,
/// 3 instances, 4 category).
///
/// A result may hold two metrics of one name (`profiler__pmsampler_…` does).
#[derive(Debug, Clone)]
pub struct Metric<'a> {
    name: Cow<'a, str>,
    name_number: u32,
    value: MetricValue<'a>,
    is_pm_sampled: bool,
    message: Message<'a>,
}

/// Where a metric lies in its result. Reading it there takes no walk over its instances, of which a
/// full report has hundreds of thousands.
#[derive(Debug, Clone, Copy)]
pub(super) struct MetricPosition {
    /// Offset in the result. A result has at most 4 GiB, since its length is a `u32`.
    offset: u32,
    length: u32,
    /// The number of the name in the string table.
    name: u32,
    /// Offset of the value in the metric, and its length; 0 if the metric has none.
    value_offset: u32,
    value_length: u32,
    is_pm_sampled: bool,
}

impl MetricPosition {
    /// Walks over a metric of `result` once per file, and notes all problems of it and its
    /// instances. `None` if its name is not in the table.
    pub(super) fn find(
        result: Message<'_>,
        message: Message<'_>,
        strings: &Strings<'_>,
        notes: &mut Notes,
    ) -> Option<Self> {
        let (mut id, mut category, mut value) = (None, 0, Message::default());
        notes.walk(message, METRIC, |notes, field| match field.number {
            1 => field.varint().map(|number| id = Some(number)),
            2 => field.message().map(|message| {
                MetricValue::read(message, notes);
                value = message;
            }),
            3 => field.message().map(|message| Instance::check(message, notes)),
            4 => field.varint().map(|number| category = number),
            _ => None,
        });
        let name = id.filter(|id| strings.contains(*id)).and_then(|id| u32::try_from(id).ok());
        let Some(name) = name else {
            let (offset, count) = (message.offset(), strings.len());
            notes.problems.push(Problem::Name { offset, id, count });
            return None;
        };
        let within = |part: Message<'_>, whole: Message<'_>| {
            u32::try_from(part.offset().saturating_sub(whole.offset())).unwrap_or(u32::MAX)
        };
        let length = |part: Message<'_>| u32::try_from(part.bytes().len()).unwrap_or(u32::MAX);
        Some(MetricPosition {
            offset: within(message, result),
            length: length(message),
            name,
            value_offset: within(value, message),
            value_length: length(value),
            is_pm_sampled: category == 1,
        })
    }

    /// Whether the metric has this name, without decoding text.
    pub(super) fn is_named(&self, name: &str, strings: &Strings<'_>) -> bool {
        strings.is(self.name.into(), name)
    }

    /// Reads the metric of `result`.
    #[inline]
    pub(super) fn read<'a>(
        &self,
        result: Message<'a>,
        strings: &Strings<'a>,
    ) -> Option<Metric<'a>> {
        let message = result.part(self.offset, self.length);
        Some(Metric {
            name: strings.get(self.name.into())?,
            name_number: self.name,
            value: MetricValue::read_checked(message.part(self.value_offset, self.value_length)),
            is_pm_sampled: self.is_pm_sampled,
            message,
        })
    }
}

impl<'a> Metric<'a> {
    /// NVIDIA's name, such as `gpu__time_duration.sum`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the name in the report's string table: metrics of one report with one number
    /// have one name.
    pub fn name_number(&self) -> u32 {
        self.name_number
    }

    /// The value over all instances.
    pub fn value(&self) -> &MetricValue<'a> {
        &self.value
    }

    /// The unit of the stored value: the base unit, never scaled. Reports contain no units; see
    /// [`metric_unit`] for their source.
    pub fn unit(&self) -> Option<Cow<'static, str>> {
        metric_unit(&self.name)
    }

    /// Whether the metric comes from the PM sampler, so that its instances are points in time.
    pub fn is_pm_sampled(&self) -> bool {
        self.is_pm_sampled
    }

    /// The instances, decoded on demand; damage ends the iteration.
    pub fn instances(&self) -> Instances<'a> {
        Instances { fields: self.message.fields() }
    }
}

/// One instance of a metric: for one instruction, launch or point in time.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance<'a> {
    /// The key of the instance: an absolute SASS address for source counters, an opcode for
    /// `…_per_opcode`, a launch's number in a range, nanoseconds for PM sampling.
    pub correlation: MetricValue<'a>,
    /// The value for this key.
    pub value: MetricValue<'a>,
}

impl<'a> Instance<'a> {
    const EMPTY: Self = Instance { correlation: MetricValue::Missing, value: MetricValue::Missing };

    #[inline]
    fn check(message: Message<'a>, notes: &mut Notes) {
        if Instance::read_common_form(message).is_some() {
            return;
        }
        notes.walk(message, INSTANCE, |notes, field| match field.number {
            1 | 2 => field.message().map(|message| drop(MetricValue::read(message, notes))),
            _ => None,
        });
    }

    #[inline]
    fn read(message: Message<'a>) -> Self {
        Instance::read_common_form(message).unwrap_or_else(|| Instance::read_any(message))
    }

    /// Reads the most common form: both values in order, each a double or a 64-bit integer, and
    /// nothing else. Longer lengths do not match. Nearly all instances of a full report have this
    /// form.
    #[inline]
    fn read_common_form(message: Message<'a>) -> Option<Self> {
        let [0x0a, length, rest @ ..] = message.bytes() else { return None };
        let (correlation, rest) = rest.split_at_checked(usize::from(*length))?;
        let [0x12, length, value @ ..] = rest else { return None };
        if usize::from(*length) != value.len() {
            return None;
        }
        let correlation = MetricValue::read_single_number(correlation)?;
        Some(Instance { correlation, value: MetricValue::read_single_number(value)? })
    }

    fn read_any(message: Message<'a>) -> Self {
        let mut instance = Instance::EMPTY;
        for field in message.fields().flatten() {
            match (field.number, field.message()) {
                (1, Some(message)) => instance.correlation = MetricValue::read_checked(message),
                (2, Some(message)) => instance.value = MetricValue::read_checked(message),
                _ => {}
            }
        }
        instance
    }
}

/// Iterator over a metric's instances.
#[derive(Debug, Clone)]
pub struct Instances<'a> {
    fields: Fields<'a>,
}

impl<'a> Iterator for Instances<'a> {
    type Item = Instance<'a>;

    #[inline]
    fn next(&mut self) -> Option<Instance<'a>> {
        while let Some(Ok(field)) = self.fields.next() {
            if let (3, Some(message)) = (field.number, field.message()) {
                return Some(Instance::read(message));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Field;

    #[test]
    fn the_quick_way_takes_only_whole_instances_and_reads_them_as_the_walk_does() {
        let double = [0x0a, 3, 0x28, 0x96, 0x01, 0x12, 9, 0x19, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f];
        let integer = [0x0a, 3, 0x28, 0x96, 0x01, 0x12, 3, 0x28, 0x80, 0x02];
        let mut cases = Vec::new();
        for whole in [&double[..], &integer] {
            assert!(Instance::read_common_form(Message::new(whole, 0)).is_some());
            for at in 0..whole.len() {
                cases.push(whole[..at].to_vec());
                cases.extend((0..=u8::MAX).map(|byte| {
                    let mut changed = whole.to_vec();
                    changed[at] = byte;
                    changed
                }));
            }
        }
        for bytes in cases {
            let message = Message::new(&bytes, 0);
            let Some(usual) = Instance::read_common_form(message) else { continue };
            let walked = Instance::read_any(message);
            assert_eq!(format!("{usual:?}"), format!("{walked:?}"), "{bytes:x?}");
            let fields: Vec<_> = message.fields().collect::<Result<_, _>>().unwrap();
            assert_eq!(fields.iter().map(|field| field.number).collect::<Vec<_>>(), [1, 2]);
            for value in fields.iter().filter_map(|field| field.message()) {
                let known =
                    |field: &Field<'_>| field.double().is_some() || field.varint().is_some();
                assert!(value.fields().all(|field| field.is_ok_and(|f| known(&f))), "{bytes:x?}");
            }
        }
    }
}
