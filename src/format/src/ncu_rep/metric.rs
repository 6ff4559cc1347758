//! Metrics of a result: name, value, unit, and instances read only when asked for.

use std::borrow::Cow;

use super::error::Problem;
use super::notes::Notes;
use super::strings::Strings;
use super::value::MetricValue;
use super::wire::{Fields, Message};
use crate::units::metric_unit;

/// The message's name, for problems.
const METRIC: &str = "metric";
/// Likewise for an instance.
const INSTANCE: &str = "metric instance";

/// One metric of one result (`ProfileMetricResult`: 1 name's number in the string table, 2 value,
/// 3 instances, 4 category).
///
/// A result may hold two metrics of one name (`profiler__pmsampler_…` does).
#[derive(Debug, Clone)]
pub struct Metric<'a> {
    name: Cow<'a, str>,
    value: MetricValue<'a>,
    category: u64,
    message: Message<'a>,
}

impl<'a> Metric<'a> {
    /// Reads the metric; without a name in the table there is none.
    pub(super) fn read(
        message: Message<'a>,
        strings: &Strings<'a>,
        notes: &mut Notes,
    ) -> Option<Self> {
        Metric::walk(message, strings, notes, |_, _| ())
    }

    /// Notes what is wrong with the metric and its instances; for the one check of the whole file.
    pub(super) fn check(message: Message<'a>, strings: &Strings<'a>, notes: &mut Notes) {
        Metric::walk(message, strings, notes, |notes, instance| Instance::check(instance, notes));
    }

    fn walk(
        message: Message<'a>,
        strings: &Strings<'a>,
        notes: &mut Notes,
        mut instance: impl FnMut(&mut Notes, Message<'a>),
    ) -> Option<Self> {
        let (mut id, mut value, mut category) = (None, MetricValue::Missing, 0);
        notes.walk(message, METRIC, |notes, field| match field.number {
            1 => field.varint().map(|number| id = Some(number)),
            2 => field.message().map(|message| value = MetricValue::read(message, notes)),
            3 => field.message().map(|message| instance(notes, message)),
            4 => field.varint().map(|number| category = number),
            _ => None,
        });
        let Some(name) = id.and_then(|id| strings.get(id)) else {
            let (offset, count) = (message.offset(), strings.len());
            notes.problems.push(Problem::Name { offset, id, count });
            return None;
        };
        Some(Metric { name, value, category, message })
    }

    /// The number of the name in the string table, without decoding anything else. Of a field that
    /// is there twice the last counts, as everywhere in protobuf.
    pub(super) fn name_id(message: Message<'a>) -> Option<u64> {
        let fields = message.fields().flatten().filter(|field| field.number == 1);
        fields.filter_map(|field| field.varint()).last()
    }

    /// NVIDIA's name, such as `gpu__time_duration.sum`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value over all instances.
    pub fn value(&self) -> &MetricValue<'a> {
        &self.value
    }

    /// The unit of the value as stored: the base unit, never scaled. Reports hold no units; see
    /// [`metric_unit`] for where they come from.
    pub fn unit(&self) -> Option<Cow<'static, str>> {
        metric_unit(&self.name)
    }

    /// Whether the metric comes from the PM sampler, and its instances are points in time.
    pub fn is_pm_sampled(&self) -> bool {
        self.category == 1
    }

    /// The instances, decoded as they are asked for; damage ends the walk.
    pub fn instances(&self) -> Instances<'a> {
        Instances { fields: self.message.fields() }
    }
}

/// One instance of a metric: of one instruction, one launch, one point in time.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance<'a> {
    /// What the instance belongs to: an absolute SASS address for source counters, an opcode for
    /// `…_per_opcode`, a launch's number in a range, nanoseconds for PM sampling.
    pub correlation: MetricValue<'a>,
    /// Its value.
    pub value: MetricValue<'a>,
}

impl<'a> Instance<'a> {
    const EMPTY: Self = Instance { correlation: MetricValue::Missing, value: MetricValue::Missing };

    fn check(message: Message<'a>, notes: &mut Notes) {
        notes.walk(message, INSTANCE, |notes, field| match field.number {
            1 | 2 => field.message().map(|message| drop(MetricValue::read(message, notes))),
            _ => None,
        });
    }

    #[inline]
    fn read(message: Message<'a>) -> Self {
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

/// The walk over a metric's instances.
#[derive(Debug, Clone)]
pub struct Instances<'a> {
    fields: Fields<'a>,
}

impl<'a> Iterator for Instances<'a> {
    type Item = Instance<'a>;

    fn next(&mut self) -> Option<Instance<'a>> {
        self.fields.by_ref().flatten().find_map(|field| {
            let message = field.message().filter(|_| field.number == 3)?;
            Some(Instance::read(message))
        })
    }
}
