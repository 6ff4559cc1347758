//! Parses the first line of a record, which describes the error.

use super::details;
use super::record::{
    Access, ApiError, Direction, Hazard, Leak, RaceSide, Record, RecordKind, Severity,
};

/// Parses a head line, or the `what.text` of the XML. `None` for unknown lines.
pub(super) fn read(line: &str, offset: u64) -> Option<Record> {
    let (severity, text) = severity(line);
    let new = |kind| Record::new(kind, severity.unwrap_or(Severity::Error), line, offset);
    if let Some(rest) = text.strip_prefix("Race reported between ") {
        let mut record = new(RecordKind::Race);
        record.race = race_sides(rest);
        return Some(record);
    }
    if let Some(rest) = text.strip_prefix("Potential ")
        && text.contains(" hazard detected")
    {
        let mut record = new(RecordKind::Hazard);
        record.hazard = hazard(rest);
        record.access = Some(Access { space: space(rest), ..Access::default() });
        record.address = details::hex_after(rest, "__ 0x");
        record.position = details::block_only(rest);
        return Some(record);
    }
    if text.starts_with("Program hit ") {
        let mut record = new(RecordKind::Api);
        record.api = Some(api(text));
        return Some(record);
    }
    if let Some(rest) = text.strip_prefix("Leaked ") {
        let mut record = new(RecordKind::Leak);
        let bytes = details::number(rest)?;
        record.address = details::hex_after(rest, "at 0x");
        record.leak = Some(Leak { bytes, address: record.address });
        return Some(record);
    }
    let kind = if text.starts_with("Host API ") {
        RecordKind::HostAccess
    } else if text.starts_with("Uninitialized ") {
        RecordKind::Uninitialized
    } else if text.starts_with("Unused ") {
        RecordKind::UnusedMemory
    } else if text.contains(" error detected") {
        RecordKind::Synchronization
    } else if text.starts_with("Invalid ") || text.starts_with("Potential invalid ") {
        RecordKind::InvalidAccess
    } else {
        return None;
    };
    let mut record = new(kind);
    let access = access(text);
    record.access = (access != Access::default()).then_some(access);
    if let Some((_, problem)) = text.split_once(" error detected. ") {
        record.problem = Some(problem.trim_end_matches('.').to_owned());
    }
    if matches!(kind, RecordKind::UnusedMemory | RecordKind::HostAccess) {
        record.address = details::hex_after(text, "0x");
    }
    Some(record)
}

/// The level that racecheck prints first: `Error: `, or `WARN:(Warp Level Programming) ` in older
/// versions.
fn severity(line: &str) -> (Option<Severity>, &str) {
    const LEVELS: [(&str, Severity); 6] = [
        ("Error:", Severity::Error),
        ("ERROR:", Severity::Error),
        ("Warning:", Severity::Warning),
        ("WARN:", Severity::Warning),
        ("Info:", Severity::Info),
        ("INFO:", Severity::Info),
    ];
    for (word, severity) in LEVELS {
        if let Some(rest) = line.strip_prefix(word) {
            let rest = match rest.strip_prefix('(') {
                Some(note) => note.split_once(')').map_or(note, |(_, rest)| rest),
                None => rest,
            };
            return (Some(severity), rest.trim_start());
        }
    }
    (None, line.trim_start())
}

fn space(text: &str) -> Option<String> {
    let word = text.split_whitespace().find(|w| w.starts_with("__") && w.ends_with("__"))?;
    Some(word.trim_matches('_').to_owned())
}

pub(super) fn direction(text: &str) -> Option<Direction> {
    text.split(|c: char| !c.is_ascii_alphabetic()).find_map(|word| {
        match word.to_ascii_lowercase().as_str() {
            "read" => Some(Direction::Read),
            "write" => Some(Direction::Write),
            "atomic" => Some(Direction::Atomic),
            _ => None,
        }
    })
}

fn access(text: &str) -> Access {
    let direction_text = text.split(" of size ").next().unwrap_or(text);
    Access {
        space: space(text),
        direction: direction(direction_text),
        bytes: text.split_once(" of size ").and_then(|(_, rest)| details::number(rest)),
    }
}

pub(super) fn hazard(text: &str) -> Option<Hazard> {
    match text.split_whitespace().next()? {
        "RAW" => Some(Hazard::Raw),
        "WAR" => Some(Hazard::War),
        "WAW" => Some(Hazard::Waw),
        _ => None,
    }
}

/// Parses `Program hit NAME (error N) due to "TEXT" on CUDA API call to CALL.`
fn api(text: &str) -> ApiError {
    let rest = text.strip_prefix("Program hit ").unwrap_or(text);
    let between = |from: &str, to: &str| -> Option<String> {
        let (_, tail) = rest.split_once(from)?;
        Some(tail.split_once(to).map_or(tail, |(found, _)| found).trim().to_owned())
    };
    let name = rest.split_whitespace().next().filter(|w| *w != "error").map(str::to_owned);
    ApiError {
        call: between("API call to ", ". ").map(|c| c.trim_end_matches('.').to_owned()),
        name,
        code: rest
            .split_once("error ")
            .and_then(|(_, n)| details::number(n))
            .and_then(|n| i64::try_from(n).ok()),
        text: between("due to \"", "\" on "),
    }
}

/// Parses `Write access at k(int *)+0x130 in f.cu:9`, with an optional `and Read access …` after
/// it.
pub(super) fn race_sides(text: &str) -> Vec<RaceSide> {
    text.split(" and ")
        .flat_map(|part| part.strip_prefix("and ").unwrap_or(part).split_once(" access at "))
        .map(|(direction_word, rest)| {
            let (place, hazards) = match rest.rsplit_once(" [") {
                Some((place, tail)) if tail.contains("hazard") => (place, details::number(tail)),
                _ => (rest, None),
            };
            RaceSide {
                direction: direction(direction_word),
                place: details::parse_location(place),
                thread: None,
                hazards,
            }
        })
        .collect()
}
