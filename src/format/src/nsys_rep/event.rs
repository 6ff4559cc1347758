//! One event of a report, as a row of one of the tables.

use crate::nsys_row::{
    ApiCall, CopyKind, Diagnostic, GraphLaunch, Kernel, MAX_FRAMES, Memcpy, Memset, NativeFrame,
    NativeStack, NvtxEvent, NvtxKind, PythonFrame, PythonStack, python_frames,
};
use crate::wire::{Field, Message, WireError};

/// An event of a report, in the form of nsys's own sqlite export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NsysEvent {
    /// A kernel that ran on a GPU.
    Kernel(Kernel),
    /// A copy that a GPU made.
    Memcpy(Memcpy),
    /// A fill of device memory that a GPU made.
    Memset(Memset),
    /// A CUDA graph traced as a whole.
    Graph(GraphLaunch),
    /// A call of the CUDA runtime or driver.
    ApiCall(ApiCall),
    /// The native frames of a call.
    NativeStack(NativeStack),
    /// A range, a mark or a name.
    Nvtx(NvtxEvent),
    /// The frames of Python of a call; a mark of NVTX.
    PythonStack(PythonStack),
    /// A message of nsys about its own work.
    Diagnostic(Diagnostic),
    /// GPU work of a kind that is not read (synchronisation), with its kind.
    OtherGpuWork(u64),
    /// Any other event, with its type.
    Other(u64),
}

impl NsysEvent {
    /// Heap bytes of the event's texts and frames.
    pub(super) fn text_bytes(&self) -> usize {
        match self {
            NsysEvent::Nvtx(NvtxEvent { text: Some(text), .. }) => text.len(),
            NsysEvent::Diagnostic(diagnostic) => diagnostic.text.len(),
            NsysEvent::NativeStack(stack) => size_of_val(stack.frames.as_slice()),
            NsysEvent::PythonStack(stack) => size_of_val(stack.frames.as_slice()),
            _ => 0,
        }
    }
}

/// A table of events. Events that no table has are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventTable {
    /// Kernels.
    Kernel,
    /// Copies.
    Memcpy,
    /// Fills.
    Memset,
    /// CUDA graphs traced as a whole.
    Graph,
    /// Calls, those of the profiler itself included, and their native frames.
    ApiCall,
    /// Ranges, marks and names, and frames of Python.
    Nvtx,
    /// Messages of nsys.
    Diagnostic,
    /// GPU work of other kinds.
    OtherGpuWork,
}

/// The integers of a message by field, up to the highest field used here. Of repeated fields the
/// last counts, as in protobuf.
#[derive(Default)]
struct Numbers {
    values: [u64; 28],
    /// A bit for each field that the message has.
    present: u32,
}

impl Numbers {
    fn read(message: Message<'_>) -> Result<Numbers, WireError> {
        let mut numbers = Numbers::default();
        for field in message.fields() {
            numbers.see(&field?);
        }
        Ok(numbers)
    }

    fn see(&mut self, field: &Field<'_>) {
        let Some(value) = self.values.get_mut(field.number as usize) else { return };
        let bit = 1 << field.number;
        match field.varint() {
            Some(number) => (*value, self.present) = (number, self.present | bit),
            None => self.present &= !bit,
        }
    }

    fn int(&self, field: u32) -> Option<i64> {
        self.unsigned(field).map(u64::cast_signed)
    }

    /// The integer of a field; 0 if it is absent, because proto3 omits zeros.
    fn int_or_zero(&self, field: u32) -> i64 {
        self.int(field).unwrap_or(0)
    }

    fn small(&self, field: u32) -> Option<u32> {
        self.unsigned(field).and_then(|n| u32::try_from(n).ok())
    }

    fn unsigned(&self, field: u32) -> Option<u64> {
        let value = self.values.get(field as usize)?;
        (self.present >> field & 1 == 1).then_some(*value)
    }

    fn triple(&self, first: u32) -> Option<[u32; 3]> {
        Some([self.small(first)?, self.small(first + 1)?, self.small(first + 2)?])
    }
}

/// The table that has an event. Nothing of the event is read but what tells the table.
pub(super) fn table_of(message: Message<'_>) -> Result<Option<EventTable>, WireError> {
    let (_, Some((number, body))) = body(message)? else { return Ok(None) };
    Ok(Some(match number {
        102 => EventTable::Nvtx,
        108 => EventTable::ApiCall,
        110 => EventTable::Diagnostic,
        _ => GpuWork::read(body)?.table(),
    }))
}

/// The event, if that table has it. Of other events no more is read than tells the table.
pub(super) fn read_of(
    message: Message<'_>,
    table: EventTable,
) -> Result<Option<NsysEvent>, WireError> {
    let (kind, Some((number, body))) = body(message)? else { return Ok(None) };
    Ok(match (number, table) {
        (102, EventTable::Nvtx) => Some(nvtx(body)?),
        (108, EventTable::ApiCall) => Some(api_call(body, kind)?),
        (110, EventTable::Diagnostic) => Some(diagnostic(body)?),
        (102 | 108 | 110, _)
        | (_, EventTable::Nvtx | EventTable::ApiCall | EventTable::Diagnostic) => None,
        _ => {
            let work = GpuWork::read(body)?;
            if work.table() == table { Some(work.event()?) } else { None }
        }
    })
}

pub(super) fn read(message: Message<'_>) -> Result<NsysEvent, WireError> {
    match body(message)? {
        (_, Some((102, message))) => nvtx(message),
        (_, Some((107, message))) => GpuWork::read(message)?.event(),
        (kind, Some((108, message))) => api_call(message, kind),
        (_, Some((110, message))) => diagnostic(message),
        (kind, _) => Ok(NsysEvent::Other(kind)),
    }
}

/// The type of an event, and the part that has its data with the number of its field.
type EventBody<'a> = (u64, Option<(u32, Message<'a>)>);

fn body(message: Message<'_>) -> Result<EventBody<'_>, WireError> {
    let mut kind = 0;
    let mut body = None;
    for field in message.fields() {
        let field = field?;
        match (field.number, field.message()) {
            (1, _) => kind = field.varint().unwrap_or(0),
            (number @ (102 | 107 | 108 | 110), Some(message)) => body = Some((number, message)),
            _ => {}
        }
    }
    Ok((kind, body))
}

fn nvtx(message: Message<'_>) -> Result<NsysEvent, WireError> {
    let numbers = Numbers::read(message)?;
    let (mut text, mut payload) = (None, None);
    for field in message.fields() {
        let field = field?;
        match field.number {
            7 => text = field.text().map(|text| text.into_owned()),
            8 => payload = field.message(),
            _ => {}
        }
    }
    let is_mark = NvtxKind::from_number(numbers.int_or_zero(1)) == NvtxKind::Mark;
    if let Some(payload) = payload.filter(|_| is_mark)
        && let Some(frames) = frames_of_mark(payload)?
    {
        return Ok(NsysEvent::PythonStack(PythonStack {
            at_ns: numbers.int_or_zero(2),
            global_tid: numbers.int(9),
            domain: numbers.int(13),
            frames,
        }));
    }
    Ok(NsysEvent::Nvtx(NvtxEvent {
        kind: NvtxKind::from_number(numbers.int_or_zero(1)),
        start_ns: numbers.int_or_zero(2),
        end_ns: numbers.int(10),
        text,
        text_id: numbers.int(12),
        domain: numbers.int(13),
        global_tid: numbers.int(9),
        end_global_tid: numbers.int(11),
        range_id: numbers.int(4),
        category: numbers.int(5),
        payload: None,
    }))
}

/// GPU work, and the part of it that is about its kind, with the number of its field.
struct GpuWork<'a> {
    numbers: Numbers,
    detail: Option<(u32, Message<'a>)>,
}

impl<'a> GpuWork<'a> {
    fn read(message: Message<'a>) -> Result<GpuWork<'a>, WireError> {
        let mut work = GpuWork { numbers: Numbers::default(), detail: None };
        for field in message.fields() {
            let field = field?;
            match (field.number, field.message()) {
                (number @ (101..=103 | 107), Some(message)) => {
                    work.detail = Some((number, message))
                }
                _ => work.numbers.see(&field),
            }
        }
        Ok(work)
    }

    fn table(&self) -> EventTable {
        match self.detail {
            Some((101, _)) => EventTable::Kernel,
            Some((102, _)) => EventTable::Memcpy,
            Some((107, _)) => EventTable::Graph,
            Some(_) => EventTable::Memset,
            None => EventTable::OtherGpuWork,
        }
    }

    fn event(self) -> Result<NsysEvent, WireError> {
        let GpuWork { numbers, detail } = self;
        let Some((number, detail)) = detail else {
            return Ok(NsysEvent::OtherGpuWork(numbers.unsigned(7).unwrap_or(0)));
        };
        gpu_event(&numbers, number, detail)
    }
}

fn gpu_event(numbers: &Numbers, number: u32, detail: Message<'_>) -> Result<NsysEvent, WireError> {
    let detail = Numbers::read(detail)?;
    let (start_ns, end_ns) = (numbers.int_or_zero(1), numbers.int_or_zero(2));
    let (device, stream) = (numbers.small(4), numbers.small(6));
    let (correlation, global_pid) = (numbers.int(3), numbers.int(8));
    Ok(match number {
        101 => NsysEvent::Kernel(Kernel {
            start_ns,
            end_ns,
            device,
            context: numbers.small(5),
            stream,
            correlation,
            global_pid,
            demangled: detail.int(1),
            short: detail.int(2),
            mangled: detail.int(3),
            grid: detail.triple(10),
            block: detail.triple(13),
            cluster: None,
            registers: detail.small(21),
            static_shared_bytes: detail.unsigned(16),
            dynamic_shared_bytes: detail.unsigned(17),
            local_bytes_per_thread: detail.unsigned(18),
            graph_node: detail.int(27).filter(|node| *node != 0),
        }),
        102 => {
            let kind = CopyKind::from_number(detail.int_or_zero(2));
            NsysEvent::Memcpy(Memcpy {
                start_ns,
                end_ns,
                bytes: detail.unsigned(1).unwrap_or(0),
                kind,
                pageable: kind.is_pageable(detail.int(4), detail.int(5)),
                device,
                stream,
                correlation,
                global_pid,
            })
        }
        107 => NsysEvent::Graph(GraphLaunch {
            start_ns,
            end_ns,
            stream,
            correlation,
            global_pid,
            graph: detail.int(1),
        }),
        _ => NsysEvent::Memset(Memset {
            start_ns,
            end_ns,
            bytes: detail.unsigned(1).unwrap_or(0),
            value: detail.int(2),
            device,
            stream,
            correlation,
            global_pid,
        }),
    })
}

/// The frames of Python in a mark's payload. `None` for other payloads.
fn frames_of_mark(payload: Message<'_>) -> Result<Option<Vec<PythonFrame>>, WireError> {
    for field in payload.fields() {
        let field = field?;
        let Some(binary) = field.message().filter(|_| field.number == 9) else { continue };
        for part in binary.fields() {
            let part = part?;
            if let Some(bytes) = part.message().filter(|_| part.number == 2) {
                return Ok(python_frames(bytes.bytes()));
            }
        }
    }
    Ok(None)
}

/// The class of the rows that hold a call's native frames.
const BACKTRACE: i64 = 67;

/// Only calls of the runtime and the driver, and their frames; the other classes are the profiler's
/// own overhead.
fn api_call(message: Message<'_>, kind: u64) -> Result<NsysEvent, WireError> {
    let numbers = Numbers::read(message)?;
    match numbers.int_or_zero(6) {
        0 | 1 => {}
        BACKTRACE => return native_stack(message, &numbers),
        _ => return Ok(NsysEvent::Other(kind)),
    }
    Ok(NsysEvent::ApiCall(ApiCall {
        start_ns: numbers.int_or_zero(1),
        end_ns: numbers.int_or_zero(2),
        global_tid: numbers.int(13),
        correlation: numbers.int(3),
        name: numbers.int(7),
        return_value: numbers.int(8),
    }))
}

fn native_stack(message: Message<'_>, numbers: &Numbers) -> Result<NsysEvent, WireError> {
    let mut frames = Vec::new();
    for field in message.fields() {
        let field = field?;
        let Some(frame) = field.message().filter(|_| field.number == 15) else { continue };
        if frames.len() == MAX_FRAMES {
            break;
        }
        let frame = Numbers::read(frame)?;
        frames.push(NativeFrame {
            symbol: frame.int_or_zero(1),
            module: frame.int_or_zero(2),
            is_resolved: frame.int_or_zero(6) == 0,
        });
    }
    Ok(NsysEvent::NativeStack(NativeStack {
        start_ns: numbers.int_or_zero(1),
        end_ns: numbers.int_or_zero(2),
        global_tid: numbers.int(13),
        correlation: numbers.int(3),
        frames,
    }))
}

fn diagnostic(message: Message<'_>) -> Result<NsysEvent, WireError> {
    let mut diagnostic = Diagnostic { at_ns: None, severity: None, text: String::new() };
    for field in message.fields() {
        let field = field?;
        match (field.number, field.message()) {
            (1, Some(time)) => diagnostic.at_ns = Some(Numbers::read(time)?.int_or_zero(1)),
            (3, _) => diagnostic.severity = field.varint().map(|n| n.cast_signed()),
            (4, Some(text)) => diagnostic.text = text.text().into_owned(),
            _ => {}
        }
    }
    Ok(NsysEvent::Diagnostic(diagnostic))
}
