//! Reads the file's sections and the chunks of events.

use super::NsysRepError;
use super::event::{self, EventTable, NsysEvent};
use super::session;
use crate::in_order;
use crate::memory::MemoryBudget;
use crate::nsys_row::{Gpu, Strings};
use crate::unpack::TooLarge;
use crate::wire::{Message, WireError};

const MAGIC: &[u8] = b"NVIDIA Tegra Profiler Report ";
const END: &[u8] = b"U3w[END]";
const EVENTS: &str = "Raw Sampling Data";
const OFFSETS: &str = "Sampling Data Offsets";
const EVENTS_MAGIC: &[u8] = b"QDTEXT00";
/// Maximum unpacked size of a chunk; real chunks are far smaller.
const MAX_CHUNK_BYTES: u64 = 256 << 20;
/// Reports with a larger chunk are read on one thread: each thread holds an unpacked chunk.
const MAX_SHARED_CHUNK_BYTES: usize = 16 << 20;
/// Smaller reports are read in a few milliseconds, so threads would not pay.
const MIN_SHARED_BYTES: usize = 4 << 20;

/// An indexed report. Events are unpacked chunk by chunk on request.
#[derive(Debug, Clone)]
pub struct NsysReport<'a> {
    build: String,
    chunks: Vec<Chunk<'a>>,
    strings: Strings,
    gpus: Vec<Gpu>,
    stated_events: Option<u64>,
    readers: usize,
}

/// An LZ4 block of the file, and its size when it is unpacked.
#[derive(Debug, Clone, Copy)]
struct Chunk<'a> {
    packed: &'a [u8],
    raw_len: usize,
    offset: u64,
}

/// The number of events of a report, and the tables of the events of each chunk.
#[derive(Debug, Clone, Default)]
pub struct EventIndex {
    events: u64,
    tables: Vec<TableSet>,
}

impl EventIndex {
    /// The number of events.
    pub fn events(&self) -> u64 {
        self.events
    }
}

/// A set of tables.
#[derive(Debug, Clone, Copy, Default)]
struct TableSet(u8);

impl TableSet {
    fn insert(&mut self, table: EventTable) {
        self.0 |= 1 << table as u8;
    }

    fn has(self, table: EventTable) -> bool {
        self.0 & (1 << table as u8) != 0
    }
}

impl<'a> NsysReport<'a> {
    /// Whether these bytes look like the start of a report; used to choose a reader.
    pub fn is_report(head: &[u8]) -> bool {
        head.starts_with(MAGIC)
    }

    /// Indexes a report and reads its strings.
    ///
    /// # Errors
    /// [`NsysRepError`] names the damaged or unknown part and its offset.
    pub fn read(data: &'a [u8]) -> Result<NsysReport<'a>, NsysRepError> {
        let build = build(data)?;
        let sections = sections(data)?;
        let section = |name: &'static str| {
            let found = sections.iter().find(|(found, ..)| found == name);
            let found = found.and_then(|(_, offset, size)| {
                let start = usize::try_from(*offset).ok()?;
                let end = start.checked_add(usize::try_from(*size).ok()?)?;
                Some((data.get(start..end)?, *offset))
            });
            found.ok_or_else(|| NsysRepError::Section { section: name, build: build.clone() })
        };
        let (events, base) = section(EVENTS)?;
        let (offsets, _) = section(OFFSETS)?;
        let form = |what, offset| NsysRepError::Form { build: build.clone(), what, offset };
        if !events.starts_with(EVENTS_MAGIC) {
            return Err(form("another magic of the event section", base));
        }
        let mut cursor = Cursor { bytes: events, at: EVENTS_MAGIC.len(), base };
        let session = cursor.message().ok_or_else(|| form("no session", base))?;
        let counts = cursor.message().ok_or_else(|| form("no counts", base))?;
        let number = |message: Message<'_>, field_number| {
            let fields = message.fields().filter_map(Result::ok);
            fields.filter(|f| f.number == field_number).find_map(|f| f.varint())
        };
        let codec = counts.fields().filter_map(Result::ok).find(|f| f.number == 9);
        if codec.and_then(|f| f.text()).as_deref() != Some("lz4") {
            return Err(form("another compression than lz4", counts.offset() as u64));
        }
        let last = number(Message::new(offsets, 0), 2)
            .and_then(|offset| usize::try_from(offset).ok()?.checked_add(EVENTS_MAGIC.len()))
            .ok_or_else(|| form("no offset of the strings", base))?;
        let mut chunks = Vec::new();
        while cursor.at <= last {
            let at_strings = cursor.at == last;
            let chunk = cursor.chunk()?;
            chunks.push(chunk);
            if at_strings {
                break;
            }
        }
        let strings = match chunks.pop() {
            Some(chunk) if cursor.at > last => strings(&chunk)?,
            _ => return Err(form("no chunk of strings", base + last as u64)),
        };
        Ok(NsysReport {
            build,
            chunks,
            strings,
            gpus: session::gpus(session),
            stated_events: number(counts, 1),
            readers: in_order::readers(),
        })
    }

    /// The complete parts of a report that was cut off: the chunks of events before the cut, and
    /// the strings if they are complete. The strings follow the last event, so most cut reports
    /// have no names. `None` if not even one chunk is complete.
    pub fn salvage(data: &'a [u8]) -> Option<NsysReport<'a>> {
        let build = build(data).ok()?;
        let start = data.windows(EVENTS_MAGIC.len()).position(|bytes| bytes == EVENTS_MAGIC)?;
        let at = EVENTS_MAGIC.len();
        let mut cursor = Cursor { bytes: data.get(start..)?, at, base: start as u64 };
        let (session, counts) = (cursor.message()?, cursor.message()?);
        let fields = counts.fields().filter_map(Result::ok);
        let stated_events = fields.filter(|f| f.number == 1).find_map(|f| f.varint());
        let (mut chunks, mut events, mut names) = (Vec::new(), 0, Strings::default());
        while let Ok(chunk) = cursor.chunk() {
            let Ok(bytes) = chunk.unpack() else { break };
            let Ok(count) = count_items(&bytes, chunk.offset) else { break };
            if Some(events) == stated_events {
                names = strings(&chunk).unwrap_or_default();
                break;
            }
            events += count;
            chunks.push(chunk);
        }
        let gpus = session::gpus(session);
        let readers = in_order::readers();
        let report = NsysReport { build, chunks, strings: names, gpus, stated_events, readers };
        (!report.chunks.is_empty()).then_some(report)
    }

    /// The report without its unreadable chunks, and the errors of those.
    pub fn whole_chunks(&self) -> (NsysReport<'a>, Vec<NsysRepError>) {
        let mut broken = Vec::new();
        let mut readable = self.clone();
        readable.chunks.retain(|chunk| match chunk.events(|_| {}) {
            Ok(_) => true,
            Err(cause) => {
                broken.push(cause);
                false
            }
        });
        (readable, broken)
    }

    /// The report, which at most this many threads read at once.
    pub fn with_readers(self, most: usize) -> NsysReport<'a> {
        NsysReport { readers: self.readers.min(most), ..self }
    }

    /// The build of the nsys version that wrote the report.
    pub fn build(&self) -> &str {
        &self.build
    }

    /// The bytes of all chunks of events, unpacked.
    pub fn unpacked_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.raw_len).fold(0, usize::saturating_add)
    }

    /// The texts of all events, by id.
    pub fn strings(&self) -> &Strings {
        &self.strings
    }

    /// The GPUs of the machine that was profiled.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// The number of events stated in the report.
    pub fn stated_events(&self) -> Option<u64> {
        self.stated_events
    }

    /// Unpacks all events, without their data.
    ///
    /// # Errors
    /// [`NsysRepError::Chunk`] for a chunk that cannot be unpacked.
    pub fn index(&self) -> Result<EventIndex, NsysRepError> {
        let mut index = EventIndex::default();
        let chunks: Vec<&Chunk<'_>> = self.chunks.iter().collect();
        let read = |chunk: &Chunk<'_>, to: &mut dyn FnMut((u64, TableSet), usize)| {
            let mut tables = TableSet::default();
            let events = chunk.each(|message| {
                event::table_of(message)?.into_iter().for_each(|table| tables.insert(table));
                Ok(())
            })?;
            to((events, tables), 0);
            Ok(())
        };
        self.stream(&chunks, read, |(events, tables)| {
            index.events += events;
            index.tables.push(tables);
        })?;
        Ok(index)
    }

    /// Passes what `pick` takes of the events of one table to `each` in file order. Chunks without
    /// any are not unpacked, and the data of other events are not read: most of the time of a large
    /// report goes into both. `index` is that of this report. `pick` is called on several threads.
    ///
    /// # Errors
    /// [`NsysRepError::Chunk`] for a chunk that cannot be unpacked, after `each` got the events of
    /// the chunks before it.
    pub fn events_of<T: Send>(
        &self,
        index: &EventIndex,
        table: EventTable,
        pick: impl Fn(NsysEvent) -> Option<T> + Sync,
        each: impl FnMut(T),
    ) -> Result<(), NsysRepError> {
        let chunks: Vec<&Chunk<'_>> = self.chunks_of(index, table).collect();
        let read = |chunk: &Chunk<'_>, to: &mut dyn FnMut(T, usize)| {
            chunk.each_of(table, |event| {
                let text_bytes = event.text_bytes();
                if let Some(row) = pick(event) {
                    to(row, text_bytes);
                }
            })
        };
        self.stream(&chunks, read, each)
    }

    /// Passes the first `most` events of one table to `each` in file order.
    ///
    /// # Errors
    /// As [`NsysReport::events_of`], for the chunks that are unpacked.
    pub fn first_events_of(
        &self,
        index: &EventIndex,
        table: EventTable,
        most: u64,
        mut each: impl FnMut(NsysEvent),
    ) -> Result<(), NsysRepError> {
        let mut seen = 0;
        for chunk in self.chunks_of(index, table) {
            if seen >= most {
                break;
            }
            chunk.each_of(table, |event| {
                if seen < most {
                    each(event);
                }
                seen += 1;
            })?;
        }
        Ok(())
    }

    fn chunks_of<'s>(
        &'s self,
        index: &'s EventIndex,
        table: EventTable,
    ) -> impl Iterator<Item = &'s Chunk<'a>> {
        let chunks = self.chunks.iter().zip(&index.tables);
        chunks.filter(move |(_, tables)| tables.has(table)).map(|(chunk, _)| chunk)
    }

    /// Has `read` read the chunks, on several threads if they are large, and passes its rows to
    /// `take` in file order. `read` gives each row with the length of its texts.
    fn stream<T: Send>(
        &self,
        chunks: &[&Chunk<'_>],
        read: impl Fn(&Chunk<'_>, &mut dyn FnMut(T, usize)) -> Result<(), NsysRepError> + Sync,
        mut take: impl FnMut(T),
    ) -> Result<(), NsysRepError> {
        let bytes = chunks.iter().map(|chunk| chunk.raw_len).fold(0, usize::saturating_add);
        let largest = chunks.iter().map(|chunk| chunk.raw_len).max().unwrap_or(0);
        let readers = self.readers.min(chunks.len());
        if readers > 1 && bytes >= MIN_SHARED_BYTES && largest <= MAX_SHARED_CHUNK_BYTES {
            let outcome = in_order::stream(
                chunks,
                readers,
                |own, to| {
                    for chunk in own {
                        read(chunk, &mut |row, text_bytes| {
                            to.row(row, text_bytes);
                        })?;
                        if !to.part_ends() {
                            break;
                        }
                    }
                    Ok(())
                },
                |batch| {
                    batch.rows.into_iter().for_each(&mut take);
                    Ok(())
                },
            );
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
        chunks.iter().try_for_each(|chunk| read(chunk, &mut |row, _| take(row)))
    }

    /// Unpacks all events and passes them to `each` in file order. Returns their number.
    ///
    /// # Errors
    /// [`NsysRepError::Chunk`] for a chunk that cannot be unpacked, after `each` got the events of
    /// the chunks before it.
    pub fn events(&self, mut each: impl FnMut(NsysEvent)) -> Result<u64, NsysRepError> {
        let mut count = 0;
        for chunk in &self.chunks {
            count += chunk.events(&mut each)?;
        }
        Ok(count)
    }
}

impl Chunk<'_> {
    fn broken(&self, cause: impl Into<String>) -> NsysRepError {
        NsysRepError::Chunk { offset: self.offset, cause: cause.into() }
    }

    /// Passes the chunk's events to `each`; returns their number.
    fn events(&self, mut each: impl FnMut(NsysEvent)) -> Result<u64, NsysRepError> {
        self.each(|message| {
            each(event::read(message)?);
            Ok(())
        })
    }

    /// Passes the chunk's events to `each` as they are; returns their number.
    fn each(
        &self,
        mut each: impl FnMut(Message<'_>) -> Result<(), WireError>,
    ) -> Result<u64, NsysRepError> {
        let mut count = 0;
        let bytes = self.unpack()?;
        for message in items(&bytes, self.offset)? {
            each(message?).map_err(|e| self.broken(e.to_string()))?;
            count += 1;
        }
        Ok(count)
    }

    /// Passes the chunk's events of one table to `each`.
    fn each_of(
        &self,
        table: EventTable,
        mut each: impl FnMut(NsysEvent),
    ) -> Result<(), NsysRepError> {
        self.each(|message| {
            event::read_of(message, table)?.into_iter().for_each(&mut each);
            Ok(())
        })?;
        Ok(())
    }

    fn unpack(&self) -> Result<Vec<u8>, NsysRepError> {
        let bytes = lz4_flex::block::decompress(self.packed, self.raw_len)
            .map_err(|e| self.broken(e.to_string()))?;
        if bytes.len() != self.raw_len {
            let (got, stated) = (bytes.len(), self.raw_len);
            return Err(self.broken(format!("it unpacks to {got} bytes instead of {stated}")));
        }
        Ok(bytes)
    }
}

fn build(data: &[u8]) -> Result<String, NsysRepError> {
    let start = || data[..data.len().min(40)].escape_ascii().to_string();
    let rest = data.strip_prefix(MAGIC);
    let rest = rest.ok_or_else(|| NsysRepError::NotAReport { start: start() })?;
    let end = rest.iter().take(200).position(|b| *b == b'.' || *b == b'\n');
    let end = end.ok_or_else(|| NsysRepError::NotAReport { start: start() })?;
    Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
}

/// Name, offset and size of every section.
fn sections(data: &[u8]) -> Result<Vec<(String, u64, u64)>, NsysRepError> {
    let length = data.len();
    let cut = || NsysRepError::Cut { length: length as u64 };
    let tail = length.checked_sub(16).ok_or_else(cut)?;
    if &data[tail + 8..] != END {
        return Err(cut());
    }
    let offset = data[tail..tail + 8].iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let contents = usize::try_from(offset).ok().and_then(|start| data.get(start..tail));
    let contents = Message::new(contents.ok_or_else(cut)?, usize::try_from(offset).unwrap_or(0));
    let mut sections = Vec::new();
    for field in contents.fields() {
        let field = field.map_err(NsysRepError::Contents)?;
        let Some(entry) = field.message().filter(|_| field.number == 1) else { continue };
        let (mut name, mut offset, mut size) = (String::new(), 0, 0);
        for part in entry.fields() {
            let part = part.map_err(NsysRepError::Contents)?;
            match part.number {
                1 => name = part.text().unwrap_or_default().into_owned(),
                2 => offset = part.varint().unwrap_or(0),
                3 => size = part.varint().unwrap_or(0),
                _ => {}
            }
        }
        sections.push((name, offset, size));
    }
    Ok(sections)
}

/// The strings, numbered by position.
fn strings(chunk: &Chunk<'_>) -> Result<Strings, NsysRepError> {
    let bytes = chunk.unpack()?;
    let mut strings = Strings::default();
    let mut budget = MemoryBudget::for_file(bytes.len());
    for (id, message) in (0..).zip(items(&bytes, chunk.offset)?) {
        let text = message?.text();
        budget
            .take(Strings::bytes_of(&text))
            .map_err(|over| chunk.broken(format!("name {id} does not fit: {over}")))?;
        strings.insert(id, text.into_owned());
    }
    Ok(strings)
}

/// The items of an unpacked chunk: varint length, then repeated 1.
fn items(
    bytes: &[u8],
    offset: u64,
) -> Result<impl Iterator<Item = Result<Message<'_>, NsysRepError>>, NsysRepError> {
    let broken = move |cause: String| NsysRepError::Chunk { offset, cause };
    let mut cursor = Cursor { bytes, at: 0, base: offset };
    let list = cursor.message().ok_or_else(|| broken("its length is broken".to_owned()))?;
    Ok(list.fields().filter_map(move |field| match field {
        Ok(field) => field.message().filter(|_| field.number == 1).map(Ok),
        // Offsets of wire errors count from the start of the unpacked chunk here.
        Err(e) => Some(Err(broken(format!("unpacked: {e}")))),
    }))
}

fn count_items(bytes: &[u8], offset: u64) -> Result<u64, NsysRepError> {
    items(bytes, offset)?.try_fold(0, |count, item| item.map(|_| count + 1))
}

/// Reads lengths and the data after them.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Offset of `bytes` in the file.
    base: u64,
}

impl<'a> Cursor<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(len).ok()?)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn message(&mut self) -> Option<Message<'a>> {
        let len = self.varint()?;
        let start = self.at;
        Some(Message::new(self.take(len)?, start))
    }

    fn chunk(&mut self) -> Result<Chunk<'a>, NsysRepError> {
        let offset = self.base + self.at as u64;
        let broken = |cause: &str| NsysRepError::Chunk { offset, cause: cause.to_owned() };
        let lengths = self.varint().zip(self.varint());
        let (packed, raw) = lengths.ok_or_else(|| broken("its lengths are cut off"))?;
        let packed = self.take(packed).ok_or_else(|| broken("it reaches beyond its section"))?;
        let bound = TooLarge::new(packed.len(), MAX_CHUNK_BYTES);
        bound.check(raw).map_err(|e| broken(&e.to_string()))?;
        let raw_len = usize::try_from(raw).map_err(|_| broken("it is too large"))?;
        Ok(Chunk { packed, raw_len, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_readers_find_what_one_finds_in_its_order() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/nsys/2025.3.1");
        let bytes = std::fs::read(format!("{root}/timeline-node/report.nsys-rep")).unwrap();
        let mut report = NsysReport::read(&bytes).unwrap();
        let raw: usize = report.chunks.iter().map(|chunk| chunk.raw_len).sum();
        report.chunks = report.chunks.repeat(MIN_SHARED_BYTES / raw + 2);
        let alone = report.clone().with_readers(1);
        report.readers = 3;
        let index = report.index().unwrap();
        assert_eq!(index.events(), alone.index().unwrap().events());
        for table in [EventTable::Kernel, EventTable::ApiCall, EventTable::Nvtx] {
            let events = |report: &NsysReport<'_>| {
                let mut found = Vec::new();
                report.events_of(&index, table, Some, |event| found.push(event)).unwrap();
                found
            };
            let found = events(&report);
            assert!(!found.is_empty());
            assert!(found == events(&alone), "{table:?}");
            let mut first = Vec::new();
            let most = found.len() as u64 / 2 + 1;
            report.first_events_of(&index, table, most, |event| first.push(event)).unwrap();
            assert!(first == found[..most as usize], "the first {most} of {table:?}");
        }
        // A broken chunk ends the reading, after the events of the chunks before it.
        let broken = report.chunks.len() / 2;
        report.chunks[broken].raw_len -= 1;
        let mut found = 0;
        let outcome = report.events_of(&index, EventTable::Nvtx, Some, |_| found += 1);
        assert_eq!(outcome, Err(report.chunks[broken].unpack().unwrap_err()));
        let mut before = 0;
        let whole = NsysReport { chunks: report.chunks[..broken].to_vec(), ..report };
        whole.events_of(&index, EventTable::Nvtx, Some, |_| before += 1).unwrap();
        assert_eq!(found, before);
    }
}
