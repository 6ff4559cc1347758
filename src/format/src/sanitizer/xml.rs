//! Reader of the XML that `--xml yes --save FILE` writes.
//!
//! `ComputeSanitizerOutput` holds `record` elements. Of each we read `kind`, `level`, `what` {text,
//! type, space, size, direction, error, address, api, message, result}, `who`, `where` {func, path,
//! line, pc}, of races `source` and `destination`, of hazards `common` {type, address, blockIdx,
//! current}, `thread0` and `thread1`, `hostStack` and `deviceStack`; the rest is skipped. A clean
//! run gives an empty root element.

use super::heads;
use super::record::{
    Access, ApiError, Frame, InstructionLocation, Position, RaceSide, Record, RecordKind, Severity,
};
use super::{details, record::Leak};
use crate::memory::MemoryBudget;
use quick_xml::Reader;
use quick_xml::events::Event;
use thiserror::Error;

/// The reason why bytes could not be read as the sanitizer's XML.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum XmlError {
    /// The root element is missing or has another name.
    #[error("not compute-sanitizer's XML: the root element is `{found}`")]
    OtherRoot {
        /// Name of the root; empty if there is none.
        found: String,
    },
}

/// The contents of an XML file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XmlReport {
    /// The records that are complete, in file order.
    pub records: Vec<Record>,
    /// Offset and reason where reading stopped early, if it did.
    pub broken: Option<(u64, String)>,
}

/// Maximum nesting depth; deeper elements are skipped. Real files have 5 levels.
const MAX_DEPTH: usize = 32;

/// Maximum elements in one record; more end the reading. Real records have about 100.
const MAX_ELEMENTS: usize = 65_536;

/// Memory of a record and of one of its elements, in bytes, with all that a profile makes of them.
const RECORD_BYTES: usize = 2 << 10;
const ELEMENT_BYTES: usize = 256;

/// An element of one record.
#[derive(Default)]
struct Node {
    name: String,
    text: String,
    children: Vec<Node>,
}

impl Node {
    fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|c| c.name == name)
    }

    /// The text of the first child that has one of these names.
    fn text_of(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|n| self.child(n)).map(|c| c.text.trim()).filter(|t| !t.is_empty())
    }

    fn number_of(&self, names: &[&str]) -> Option<u64> {
        let text = self.text_of(names)?;
        if text.starts_with("0x") { details::hex(text) } else { details::number(text) }
    }
}

/// Reads the XML. A file that was cut off gives the records before the cut, and its offset.
///
/// # Errors
/// [`XmlError`] if it is another kind of file.
pub fn read_xml(data: &[u8]) -> Result<XmlReport, XmlError> {
    let text = String::from_utf8_lossy(data);
    let mut reader = Reader::from_str(&text);
    let mut report = XmlReport::default();
    let mut budget = MemoryBudget::for_file(data.len());
    let mut rooted = false;
    let mut closed = false;
    // Elements of the open record, outermost first.
    let mut open: Vec<Node> = Vec::new();
    let mut record_at = 0;
    let mut elements = 0;
    loop {
        let at = reader.buffer_position();
        let event = match reader.read_event() {
            Ok(event) => event,
            Err(e) => {
                report.broken = Some((at, e.to_string()));
                break;
            }
        };
        match event {
            Event::Start(start) => {
                let name = start.local_name().as_ref().to_owned();
                if !rooted {
                    check_root(&name)?;
                    rooted = true;
                    continue;
                }
                if open.is_empty() {
                    (record_at, elements) = (at, 0);
                }
                elements += 1;
                if open.len() > MAX_DEPTH || elements > MAX_ELEMENTS {
                    report.broken = Some((at, "a record with too many elements".to_owned()));
                    break;
                }
                open.push(Node { name, ..Node::default() });
            }
            Event::Empty(start) => {
                let name = start.local_name().as_ref().to_owned();
                if !rooted {
                    check_root(&name)?;
                    (rooted, closed) = (true, true);
                } else if let Some(parent) = open.last_mut().filter(|_| elements <= MAX_ELEMENTS) {
                    elements += 1;
                    parent.children.push(Node { name, ..Node::default() });
                }
            }
            Event::End(_) => match open.pop() {
                Some(node) => match open.last_mut() {
                    Some(parent) => parent.children.push(node),
                    None if node.name == "record" => {
                        let text_bytes = (reader.buffer_position() - record_at) as usize;
                        let own_bytes = RECORD_BYTES + elements * ELEMENT_BYTES;
                        if let Err(over) = budget.take(own_bytes + text_bytes) {
                            let place = report.records.len() + 1;
                            report.broken = Some((record_at, format!("record {place}: {over}")));
                            break;
                        }
                        report.records.push(record(&node, record_at));
                    }
                    None => {}
                },
                None => closed = true,
            },
            Event::Text(part) => {
                if let Some(node) = open.last_mut() {
                    node.text.push_str(&part.xml10_content());
                }
            }
            Event::CData(part) => {
                if let Some(node) = open.last_mut() {
                    node.text.push_str(&part.xml10_content());
                }
            }
            Event::GeneralRef(entity) => {
                if let Some(node) = open.last_mut() {
                    match entity.resolve_char_ref() {
                        Ok(Some(c)) => node.text.push(c),
                        _ => node.text.push_str(predefined(&entity.xml10_content())),
                    }
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    if !rooted {
        return Err(XmlError::OtherRoot { found: String::new() });
    }
    if !closed && report.broken.is_none() {
        report.broken = Some((data.len() as u64, "the file ends inside the root".to_owned()));
    }
    Ok(report)
}

fn check_root(name: &str) -> Result<(), XmlError> {
    match name {
        "ComputeSanitizerOutput" => Ok(()),
        other => Err(XmlError::OtherRoot { found: other.chars().take(80).collect() }),
    }
}

fn predefined(entity: &str) -> &'static str {
    match entity {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "quot" => "\"",
        "apos" => "'",
        _ => "\u{fffd}",
    }
}

fn record(node: &Node, offset: u64) -> Record {
    let none = Node::default();
    let what = node.child("what").unwrap_or(&none);
    let text = what.text_of(&["text"]).unwrap_or_default();
    let head = text.lines().next().unwrap_or_default();
    let severity = match node.text_of(&["level"]).map(str::to_ascii_lowercase).as_deref() {
        Some("warning" | "warn") => Severity::Warning,
        Some("info") => Severity::Info,
        _ => Severity::Error,
    };
    // The text is the log's head line, so the log's reader extracts most facts. The elements then
    // provide exact values.
    let mut record = heads::read(head, offset)
        .unwrap_or_else(|| Record::new(RecordKind::Other, severity, head, offset));
    record.severity = severity;
    record.message = text.to_owned();
    for line in text.lines().skip(1) {
        details::apply(&mut record, line);
    }
    if let Some(kind) = node.text_of(&["kind"]).and_then(|k| kind(k, record.kind)) {
        record.kind = kind;
    }
    access(&mut record, what);
    if let Some(common) = what.child("common") {
        hazard(&mut record, common);
    }
    let place_node = node.child("where").or_else(|| what.child("where"));
    if let Some(place) = place_node {
        record.place = Some(place_of(place));
    }
    if let Some(who) = node.child("who").or_else(|| what.child("who")) {
        record.position = position(who).or(record.position);
    }
    let sides: Vec<RaceSide> = [what, node]
        .into_iter()
        .flat_map(|parent| &parent.children)
        .filter(|c| matches!(c.name.as_str(), "source" | "destination" | "thread0" | "thread1"))
        .map(side)
        .collect();
    if !sides.is_empty() {
        record.race = sides;
    }
    if let Some(stack) = node.child("deviceStack") {
        record.device_stack = frames(stack);
    }
    if let Some(stack) = node.child("hostStack") {
        record.host_stack_at = stack.text_of(&["saveLocation"]).map(str::to_owned);
        record.host_stack = frames(stack);
    }
    record
}

fn access(record: &mut Record, what: &Node) {
    let mut access = record.access.take().unwrap_or_default();
    if let Some(space) = what.text_of(&["space"]) {
        access.space = Some(space.trim_matches('_').to_owned());
    }
    access.bytes = what.number_of(&["size", "accessSize"]).or(access.bytes);
    if let Some(direction) = what.text_of(&["direction"]).and_then(heads::direction) {
        access.direction = Some(direction);
    }
    record.access = (access != Access::default()).then_some(access);
    let address = ["address", "accessAddress", "errorAddress"];
    record.address = what.number_of(&address).or(record.address);
    if record.kind == RecordKind::Api {
        let api = record.api.take().unwrap_or_default();
        let own = |names: &[&str], other: Option<String>| {
            what.text_of(names).map(str::to_owned).or(other)
        };
        let code = what.text_of(&["result", "error"]).and_then(|t| t.parse().ok());
        let name = what.text_of(&["error"]).filter(|t| t.parse::<i64>().is_err());
        record.api = Some(ApiError {
            call: own(&["api"], api.call),
            name: name.map(str::to_owned).or(api.name),
            code: code.or(api.code),
            text: own(&["message"], api.text),
        });
    } else if let Some(problem) = what.text_of(&["error", "type"]).filter(|t| *t != "generic") {
        record.problem = Some(problem.to_owned());
    }
    if record.kind == RecordKind::Leak {
        let bytes = record.leak.map(|leak| leak.bytes);
        let bytes = bytes.or(what.number_of(&["size"])).unwrap_or(0);
        record.leak = Some(Leak { bytes, address: record.address });
        record.access = None;
    }
}

/// The facts that both sides of a hazard share.
fn hazard(record: &mut Record, common: &Node) {
    record.hazard = common.text_of(&["type"]).and_then(heads::hazard).or(record.hazard);
    record.address = common.number_of(&["address"]).or(record.address);
    if let Some(block) = common.child("blockIdx").and_then(triple) {
        record.position = Some(Position { thread: [0; 3], block });
    }
    if let Some(value) = common.text_of(&["current"]) {
        record.details.push(format!("Current Value : {value}"));
    }
    let access = record.access.get_or_insert_default();
    access.space.get_or_insert_with(|| "shared".to_owned());
}

/// The kind from the file's own word, if the text did not determine it.
fn kind(word: &str, by_text: RecordKind) -> Option<RecordKind> {
    if by_text != RecordKind::Other {
        return None;
    }
    match word {
        "Precise" | "Imprecise" => Some(RecordKind::InvalidAccess),
        "Api" => Some(RecordKind::Api),
        "Leak" => Some(RecordKind::Leak),
        "Analysis" | "Race condition" => Some(RecordKind::Race),
        "Hazard" | "Global hazard" => Some(RecordKind::Hazard),
        "Initcheck" => Some(RecordKind::Uninitialized),
        "InitcheckApiError" => Some(RecordKind::HostAccess),
        "UnusedMemory" => Some(RecordKind::UnusedMemory),
        "Synccheck" => Some(RecordKind::Synchronization),
        _ => None,
    }
}

fn place_of(node: &Node) -> InstructionLocation {
    let line = node.number_of(&["line"]).and_then(|n| u32::try_from(n).ok());
    InstructionLocation {
        function: node.text_of(&["func"]).map(str::to_owned),
        pc: node.number_of(&["pc"]),
        file: node.text_of(&["path", "file"]).map(str::to_owned),
        line: line.filter(|n| *n > 0),
    }
}

fn triple(node: &Node) -> Option<[u32; 3]> {
    let of = |name| node.number_of(&[name]).and_then(|n| u32::try_from(n).ok());
    Some([of("x")?, of("y")?, of("z")?])
}

fn position(who: &Node) -> Option<Position> {
    Some(Position {
        thread: triple(who.child("threadIdx")?)?,
        block: triple(who.child("blockIdx")?)?,
    })
}

fn side(node: &Node) -> RaceSide {
    RaceSide {
        direction: node.text_of(&["direction", "access"]).and_then(heads::direction),
        place: place_of(node.child("where").unwrap_or(node)),
        thread: node.child("threadIdx").and_then(triple),
        hazards: node.number_of(&["count"]),
    }
}

fn frames(stack: &Node) -> Vec<Frame> {
    let frames = stack.children.iter().filter(|c| c.name == "frame");
    frames
        .map(|node| {
            let place = place_of(node);
            Frame {
                function: place.function,
                pc: place.pc,
                module: node.text_of(&["module"]).map(str::to_owned),
                file: place.file,
                line: place.line,
            }
        })
        .collect()
}
