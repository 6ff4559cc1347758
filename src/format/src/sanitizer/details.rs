//! Parses the indented lines of a record, and text forms that these share with the head line.

use super::heads;
use super::record::{
    Allocation, Frame, InstructionLocation, Position, RaceSide, Record, RecordKind,
};

/// Adds one detail line to `record`; lines that are not understood are kept in `details`.
pub(super) fn apply(record: &mut Record, line: &str) {
    let line = line.trim();
    let clause = line.strip_prefix("and ").unwrap_or(line);
    if let Some(rest) = line.strip_prefix("Host Frame:") {
        record.host_stack.push(host_frame(rest.trim()));
    } else if let Some(rest) = line.strip_prefix("Device Frame:") {
        let place = parse_location(rest.trim());
        record.device_stack.push(Frame {
            function: place.function,
            pc: place.pc,
            module: None,
            file: place.file,
            line: place.line,
        });
    } else if let Some(rest) = line.strip_prefix("Saved host backtrace up to driver entry point") {
        record.host_stack_at = rest.trim().strip_prefix("at ").map(str::to_owned);
    } else if let Some(module) = line.strip_prefix("in ").filter(|_| waits_for_module(record)) {
        if let Some(frame) = record.host_stack.last_mut() {
            frame.module = Some(module.trim().to_owned());
        }
    } else if record.kind == RecordKind::Race && clause.contains(" access at ") {
        record.race.extend(heads::race_sides(clause));
    } else if record.kind == RecordKind::Hazard && clause.contains(" Thread (") {
        record.race.extend(hazard_side(clause));
    } else if let Some(rest) = line.strip_prefix("at ").filter(|_| record.place.is_none()) {
        record.place = Some(parse_location(rest));
    } else if let Some(position) = position(line) {
        record.position = Some(position);
    } else if let Some(rest) =
        line.strip_prefix("Access to ").or_else(|| line.strip_prefix("Address "))
    {
        record.address = hex(rest);
        record.problem = rest
            .split_once(" is ")
            .map(|(_, problem)| problem.trim_end_matches('.').to_owned())
            .filter(|p| !p.is_empty());
    } else if let Some(allocation) = allocation(clause) {
        record.allocation = Some(allocation);
    } else {
        if record.address.is_none() {
            record.address = hex_after(line, "shared address 0x");
        }
        record.details.push(line.to_owned());
    }
}

/// Older versions print the module of a frame on a separate line.
fn waits_for_module(record: &Record) -> bool {
    record.host_stack.last().is_some_and(|f| f.module.is_none())
}

/// Parses `FUNCTION+0xOFF in FILE:LINE`, where everything but the function is optional, or `0xOFF
/// in FILE:LINE:FUNCTION` of older versions.
pub(super) fn parse_location(text: &str) -> InstructionLocation {
    let text = text.trim();
    if text.starts_with("0x") {
        return old_place(text);
    }
    let (head, source) = match text.rsplit_once(" in ") {
        Some((head, source)) if head.contains("+0x") => (head, Some(source)),
        _ => (text, None),
    };
    let (function, pc) = match head.rsplit_once("+0x") {
        Some((function, offset)) => (function, hex_digits(offset)),
        None => (head, None),
    };
    let (file, line) = source.map_or((None, None), source_line);
    InstructionLocation {
        function: Some(function.to_owned()).filter(|f| !f.is_empty()),
        pc,
        file,
        line,
    }
}

fn old_place(text: &str) -> InstructionLocation {
    let pc = hex(text);
    let Some((_, rest)) = text.split_once(" in ") else {
        return InstructionLocation { pc, ..InstructionLocation::default() };
    };
    // FILE:LINE:FUNCTION, where FUNCTION may contain colons.
    for (at, _) in rest.match_indices(':') {
        let tail = &rest[at + 1..];
        let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        if digits > 0 && tail[digits..].starts_with(':') {
            return InstructionLocation {
                function: Some(tail[digits + 1..].to_owned()),
                pc,
                file: Some(rest[..at].to_owned()),
                line: tail[..digits].parse().ok(),
            };
        }
        if digits > 0 && digits == tail.len() {
            return InstructionLocation {
                function: None,
                pc,
                file: Some(rest[..at].to_owned()),
                line: tail.parse().ok(),
            };
        }
    }
    InstructionLocation { function: Some(rest.to_owned()), pc, file: None, line: None }
}

fn source_line(text: &str) -> (Option<String>, Option<u32>) {
    match text.trim().rsplit_once(':') {
        Some((file, line)) if line.parse::<u32>().is_ok() => {
            (Some(file.to_owned()), line.parse().ok())
        }
        _ => (Some(text.trim().to_owned()), None),
    }
}

/// Parses `by thread (x,y,z) in block (x,y,z)`.
fn position(line: &str) -> Option<Position> {
    let rest = line.strip_prefix("by ").unwrap_or(line).strip_prefix("thread ")?;
    let (thread, block) = rest.split_once(" in block ")?;
    Some(Position { thread: triple(thread)?, block: triple(block)? })
}

/// Parses `… in block (x,y,z) :`, for a hazard that names no thread.
pub(super) fn block_only(text: &str) -> Option<Position> {
    let (_, block) = text.split_once(" in block ")?;
    Some(Position { thread: [0; 3], block: triple(block)? })
}

/// Parses `(x,y,z)` at the start of `text`, with or without blanks.
fn triple(text: &str) -> Option<[u32; 3]> {
    let (inside, _) = text.trim().strip_prefix('(')?.split_once(')')?;
    let mut parts = inside.split(',').map(|n| n.trim().parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// Parses `is N bytes after the nearest allocation at 0xH of size M bytes`, or `is inside the …`.
fn allocation(line: &str) -> Option<Allocation> {
    let (before, after) = line.split_once("the nearest allocation")?;
    let relation =
        before.split_whitespace().rfind(|w| matches!(*w, "after" | "before" | "inside"))?;
    Some(Allocation {
        relation: relation.to_owned(),
        distance_bytes: before.strip_prefix("is ").and_then(number),
        address: hex_after(after, "at 0x"),
        bytes: after.split_once(" of size ").and_then(|(_, n)| number(n)),
    })
}

/// Parses `Write Thread (x,y,z) at PLACE`.
fn hazard_side(line: &str) -> Option<RaceSide> {
    let (direction, rest) = line.split_once(" Thread ")?;
    let (thread, place_text) = rest.split_once(" at ").unwrap_or((rest, ""));
    Some(RaceSide {
        direction: heads::direction(direction),
        place: parse_location(place_text),
        thread: triple(thread),
        hazards: None,
    })
}

/// Parses `FUNCTION [0xOFF] in MODULE`, or `PATH (FUNCTION + 0xN) [0xOFF]` of older versions.
fn host_frame(text: &str) -> Frame {
    let (head, tail) = text
        .rsplit_once(" [0x")
        .unwrap_or_else(|| text.strip_prefix("[0x").map_or((text, ""), |tail| ("", tail)));
    let pc = hex_digits(tail);
    let module = tail.split_once("] in ").map(|(_, module)| module.trim().to_owned());
    if module.is_none() && (head.starts_with('/') || head.starts_with("./")) {
        let (path, function) = match head.split_once(" (") {
            Some((path, rest)) => (path, rest.split(" + ").next()),
            None => (head, None),
        };
        let function = function.map(str::to_owned);
        return Frame { function, pc, module: Some(path.to_owned()), ..Frame::default() };
    }
    let (function, source) = match head.rsplit_once(" in ") {
        Some((function, source)) if source.contains(':') => (function, Some(source)),
        _ => (head, None),
    };
    let (file, line) = source.map_or((None, None), source_line);
    let function = Some(function.trim().to_owned()).filter(|f| !f.is_empty());
    Frame { function, pc, module, file, line }
}

/// The decimal number at the start of `text`, with optional thousands separators.
pub(super) fn number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    text[..end].replace(',', "").parse().ok()
}

/// The hexadecimal number after the `0x` at the start of `text`.
pub(super) fn hex(text: &str) -> Option<u64> {
    hex_digits(text.trim_start().strip_prefix("0x")?)
}

/// The hexadecimal number after `mark`, which ends with `0x`.
pub(super) fn hex_after(text: &str, mark: &str) -> Option<u64> {
    hex_digits(text.split_once(mark)?.1)
}

fn hex_digits(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
    u64::from_str_radix(&text[..end], 16).ok()
}
