//! Groups records by cause.
//!
//! A single bad store is reported once per thread that executes it, and afterwards every CUDA call
//! reports the broken context. Users need to see the one store.

use super::record::{Access, Hazard, InstructionLocation, Record, RecordKind};
use std::collections::HashMap;

/// One cause. All numbers are indices into the records passed to [`group`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The first record of the cause, which describes it best.
    pub first: usize,
    /// Further records of the same instruction and problem, from other threads or launches.
    pub repeats: Vec<usize>,
    /// CUDA calls that failed because of this cause.
    pub follow_ups: Vec<usize>,
}

/// Errors that persist in a CUDA context after a kernel failed: each later call returns them.
const STICKY: [i64; 12] = [214, 220, 226, 700, 709, 710, 714, 715, 716, 717, 718, 719];

#[derive(PartialEq, Eq, Hash)]
struct Key<'r> {
    kind: RecordKind,
    place: Option<&'r InstructionLocation>,
    access: Option<&'r Access>,
    problem: Option<&'r str>,
    hazard: Option<Hazard>,
    race: Vec<(&'r InstructionLocation, u8)>,
    /// The message, which distinguishes records without a place.
    words: Option<&'r str>,
}

fn key(record: &Record) -> Key<'_> {
    let placeless = record.place.is_none() && record.race.is_empty();
    Key {
        kind: record.kind,
        place: record.place.as_ref(),
        access: record.access.as_ref(),
        problem: record.problem.as_deref(),
        hazard: record.hazard,
        race: record
            .race
            .iter()
            .map(|side| (&side.place, side.direction.map_or(0, |d| d as u8 + 1)))
            .collect(),
        words: placeless.then_some(record.message.as_str()),
    }
}

/// Groups records by their cause, in the order of first appearance.
pub fn group(records: &[Record]) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    let mut by_key: HashMap<Key<'_>, usize> = HashMap::new();
    // The last cause that can have broken the context, and its sticky error.
    let mut breaker: Option<usize> = None;
    for (index, record) in records.iter().enumerate() {
        let sticky =
            record.api.as_ref().and_then(|api| api.code).is_some_and(|code| STICKY.contains(&code));
        if record.kind == RecordKind::Api
            && sticky
            && let Some(cause) = breaker
        {
            causes[cause].follow_ups.push(index);
            continue;
        }
        let cause = *by_key.entry(key(record)).or_insert_with(|| {
            causes.push(Cause { first: index, repeats: Vec::new(), follow_ups: Vec::new() });
            causes.len() - 1
        });
        if causes[cause].first != index {
            causes[cause].repeats.push(index);
        }
        if sticky || breaks_context(record.kind) {
            breaker = Some(cause);
        }
    }
    causes
}

fn breaks_context(kind: RecordKind) -> bool {
    matches!(kind, RecordKind::InvalidAccess | RecordKind::Synchronization | RecordKind::Other)
}
