//! Problems and unknown fields that are collected while reading.

use std::collections::BTreeMap;

use super::error::{Problem, Problems};
use super::wire::{Field, Message};

/// Fields of the file that this reader does not know, counted by message and number.
///
/// New releases of ncu add fields. They are skipped; callers may report them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownFields {
    total: u64,
    fields: BTreeMap<(&'static str, u32), u64>,
}

impl UnknownFields {
    /// Maximum number of distinct fields kept, since a damaged file may have any number.
    const MAX_FIELDS: usize = 256;

    /// Number of unknown fields in the file.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Message name, field number and number of occurrences; at most 256 entries.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u32, u64)> + '_ {
        self.fields.iter().map(|(&(message, number), &count)| (message, number, count))
    }

    fn add(&mut self, message: &'static str, number: u32, count: u64) {
        self.total += count;
        if self.fields.len() < Self::MAX_FIELDS || self.fields.contains_key(&(message, number)) {
            *self.fields.entry((message, number)).or_default() += count;
        }
    }
}

/// Collects problems and unknown fields while decoding.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) problems: Problems,
    pub(super) unknown: UnknownFields,
}

impl Notes {
    /// Adds the notes on a later part of the file.
    pub(super) fn append(&mut self, later: Notes) {
        self.problems.append(later.problems);
        let known: u64 = later.unknown.fields.values().sum();
        self.unknown.total += later.unknown.total.saturating_sub(known);
        for ((message, number), count) in later.unknown.fields {
            self.unknown.add(message, number, count);
        }
    }

    /// Passes every field to `take`, which returns `None` for a field that it does not know or that
    /// has another type. Damage is noted and ends the walk; earlier fields are kept.
    #[inline]
    pub(super) fn walk<'a>(
        &mut self,
        message: Message<'a>,
        what: &'static str,
        mut take: impl FnMut(&mut Notes, Field<'a>) -> Option<()>,
    ) {
        for field in message.fields() {
            match field {
                Ok(field) => {
                    if take(self, field).is_none() {
                        self.unknown.add(what, field.number, 1);
                    }
                }
                Err(source) => {
                    self.problems.push(Problem::Damaged { offset: message.offset(), what, source });
                }
            }
        }
    }
}
