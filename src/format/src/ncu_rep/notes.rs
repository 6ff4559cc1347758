//! What a reading notes beside its values: problems, and fields that the layout here lacks.

use std::collections::BTreeMap;

use super::error::{Problem, Problems};
use super::wire::{Field, Message};

/// Fields that the file has and this reader does not know, counted by message and number.
///
/// New releases of ncu add fields; they are skipped, and a reader of the report may say so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownFields {
    total: u64,
    fields: BTreeMap<(&'static str, u32), u64>,
}

impl UnknownFields {
    /// Distinct fields kept; a damaged file has any number of them.
    const KEPT: usize = 256;

    /// How many unknown fields the file has.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The message's name here, the field number and how often it occurs; at most 256 of them.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u32, u64)> + '_ {
        self.fields.iter().map(|(&(message, number), &count)| (message, number, count))
    }

    fn add(&mut self, message: &'static str, number: u32) {
        self.total += 1;
        if self.fields.len() < Self::KEPT || self.fields.contains_key(&(message, number)) {
            *self.fields.entry((message, number)).or_default() += 1;
        }
    }
}

/// What a decoder tells its caller beside the value.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) problems: Problems,
    pub(super) unknown: UnknownFields,
}

impl Notes {
    /// Hands every field to `take`, which answers `None` where it knows no such field or the field
    /// has another type. Damage is noted and ends the walk: what came before it stays.
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
                        self.unknown.add(what, field.number);
                    }
                }
                Err(source) => {
                    self.problems.push(Problem::Damaged { offset: message.offset(), what, source });
                }
            }
        }
    }
}
