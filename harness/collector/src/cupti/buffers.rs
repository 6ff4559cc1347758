//! CUPTI's activity buffers: supplies empty ones, and converts the records of filled ones to log
//! lines.
//!
//! CUPTI assigns a buffer to each thread or context, and calls back from its own thread or, at a
//! flush, from the program's. Only [`request`] runs while a kernel is being launched.

use super::library::NO_MORE;
use super::record::{self, Record, RecordTiming};
use super::{ActiveCupti, active};
use crate::log::{self, Activity, Notice};
use crate::process::{self, Process, lock};
use crate::text;
use std::alloc::{Layout, alloc_zeroed};
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::panic::catch_unwind;
use std::ptr::null_mut;
use std::sync::Mutex;

/// Bytes of a buffer: about 7,000 launches.
const BUFFER_BYTES: usize = 2 << 20;
/// CUPTI requires an alignment of 8.
const LAYOUT: Layout = match Layout::from_size_align(BUFFER_BYTES, 64) {
    Ok(layout) => layout,
    Err(_) => panic!("64 is a power of two"),
};
/// Lines are written to the log when they reach this many bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Returned buffers, zeroed again.
static SPARE: Mutex<Vec<SpareBuffer>> = Mutex::new(Vec::new());
/// Maximum number of returned buffers kept for reuse. Further ones are leaked. That is rare: CUPTI
/// requests about as many buffers as it returns.
const MAX_SPARE_BUFFERS: usize = 64;
static WRITER: Mutex<Writer> = Mutex::new(Writer::new());

struct SpareBuffer(*mut u8);

// SAFETY: the holder of the pointer owns the buffer.
unsafe impl Send for SpareBuffer {}

/// Gives an empty buffer to CUPTI.
///
/// # Safety
/// Called by CUPTI with three valid pointers.
pub(super) unsafe extern "C" fn request(
    buffer: *mut *mut u8,
    size: *mut usize,
    records: *mut usize,
) {
    let spare = catch_unwind(|| lock(&SPARE).pop().map(|spare| spare.0)).unwrap_or(None);
    // SAFETY: the layout is not empty.
    let empty = spare.unwrap_or_else(|| unsafe { alloc_zeroed(LAYOUT) });
    // SAFETY: CUPTI passes three valid pointers.
    unsafe {
        *buffer = empty;
        *size = if empty.is_null() { 0 } else { BUFFER_BYTES };
        *records = 0;
    }
}

/// Takes a filled buffer back.
///
/// # Safety
/// Called by CUPTI: the first `filled` bytes of the buffer hold complete records.
pub(super) unsafe extern "C" fn complete(
    context: *mut c_void,
    stream: u32,
    buffer: *mut u8,
    _size: usize,
    filled: usize,
) {
    if buffer.is_null() {
        return;
    }
    let _ = catch_unwind(|| {
        let (Some(active), Some(process)) = (active(), process::current()) else { return };
        // SAFETY: this is CUPTI's own buffer, filled to the stated length.
        lock(&WRITER).write(active, process, unsafe {
            std::slice::from_raw_parts_mut(buffer, filled.min(BUFFER_BYTES))
        });
        let mut lost = 0;
        // SAFETY: a pointer to one number; the context is CUPTI's.
        if unsafe { (active.cupti.dropped)(context, stream, &mut lost) } == 0 && lost > 0 {
            process.count_lost_by_cupti(lost as u64);
        }
    });
    // SAFETY: the buffer is BUFFER_BYTES long, and CUPTI is done with it.
    unsafe { std::ptr::write_bytes(buffer, 0, filled.min(BUFFER_BYTES)) };
    let _ = catch_unwind(|| {
        let mut spare = lock(&SPARE);
        if spare.len() < MAX_SPARE_BUFFERS {
            spare.push(SpareBuffer(buffer));
        }
    });
}

/// Converts records to lines. All buffers share one, since a name must be logged before its first
/// use.
struct Writer {
    lines: Vec<u8>,
    /// GPU activities in `lines`.
    activity_count: u64,
    /// API calls in `lines`.
    call_count: u64,
    /// Numbers of the names that are already in the log.
    names: Option<HashMap<Box<str>, u32>>,
    /// Numbers of API call names; the key says whether it is a driver call. `None`: calls that are
    /// not logged.
    call_name_ids: Option<HashMap<(bool, u32), Option<u32>>>,
}

/// Very frequent calls that neither start GPU work nor wait for it. They are not logged, unless
/// their name contains `Sync`.
const UNLOGGED_CALL_PREFIXES: &[&str] = &[
    "cudaGet",
    "cudaPeek",
    "cudaSetDevice",
    "cudaFuncGet",
    "cudaFuncSet",
    "cudaOccupancy",
    "cudaDeviceGet",
    "cudaStreamIsCapturing",
    "cudaStreamGet",
    "cudaThreadExchange",
    "cudaPointerGet",
    "__cuda",
    "cuGet",
    "cuDeviceGet",
    "cuDevicePrimaryCtxGet",
    "cuCtxGet",
    "cuCtxPush",
    "cuCtxPop",
    "cuCtxSetCurrent",
    "cuFuncGet",
    "cuFuncSet",
    "cuOccupancy",
    "cuPointerGet",
    "cuStreamIsCapturing",
    "cuStreamGet",
    "cuThreadExchange",
    "cuModuleGet",
    "cuLibraryGet",
    "cuKernelGet",
    "cuDriverGet",
    "cuTensorMapEncode",
];

impl Writer {
    const fn new() -> Self {
        Self {
            lines: Vec::new(),
            activity_count: 0,
            call_count: 0,
            names: None,
            call_name_ids: None,
        }
    }

    fn write(&mut self, active: &ActiveCupti, process: &Process, filled: &mut [u8]) {
        let mut record: *mut u8 = null_mut();
        loop {
            // SAFETY: the buffer has the length that CUPTI stated, and CUPTI steps through its own
            // records.
            let status = unsafe {
                (active.cupti.next_record)(filled.as_mut_ptr(), filled.len(), &mut record)
            };
            if status != 0 || record.is_null() {
                if status != NO_MORE {
                    process.count_lost_by_cupti(1);
                }
                break;
            }
            if process.has_room(self.lines.len()) {
                // SAFETY: CUPTI has just returned this record, and its version is known.
                self.convert(active, unsafe { record::read(record) });
            } else {
                process.count_unwritten();
            }
            if self.lines.len() >= CHUNK_BYTES {
                self.hand_over(process);
            }
        }
        self.hand_over(process);
    }

    fn hand_over(&mut self, process: &Process) {
        process.write_activity(&self.lines, self.activity_count, self.call_count);
        self.lines.clear();
        (self.activity_count, self.call_count) = (0, 0);
    }

    fn convert(&mut self, active: &ActiveCupti, record: Record) {
        match record {
            Record::Kernel {
                timing,
                name,
                grid,
                block,
                registers,
                static_bytes,
                dynamic_bytes,
                local_bytes,
                graph_node,
            } => {
                // SAFETY: the kernel name that CUPTI returned lives as long as the record.
                let name = unsafe { text::narrow(name) };
                let name = name.map(|name| self.name_id(&name));
                let activity = Activity {
                    name,
                    grid: Some(grid),
                    block: Some(block),
                    registers: Some(registers),
                    static_bytes: Some(static_bytes),
                    dynamic_bytes: Some(dynamic_bytes),
                    local_bytes: Some(local_bytes),
                    graph_node: Some(graph_node).filter(|node| *node != 0),
                    ..activity_with_timing(active, "kernel", timing)
                };
                self.append_activity(&activity);
            }
            Record::Copy { timing, kind, bytes } => {
                let activity = Activity {
                    kind: Some(kind),
                    bytes: Some(bytes),
                    ..activity_with_timing(active, "copy", timing)
                };
                self.append_activity(&activity);
            }
            Record::Set { timing, value, bytes } => {
                let activity = Activity {
                    value: Some(value),
                    bytes: Some(bytes),
                    ..activity_with_timing(active, "set", timing)
                };
                self.append_activity(&activity);
            }
            Record::Call { driver, number, start, end, thread, correlation, result } => {
                let Some(name) = self.call_name_id(active, driver, number) else { return };
                let activity = Activity {
                    event: "call",
                    ns: active.to_our_clock(start),
                    end_ns: active.to_our_clock(end),
                    id: correlation,
                    tid: Some(thread),
                    name: Some(name),
                    result: Some(result).filter(|result| *result != 0),
                    ..Activity::default()
                };
                log::append(&mut self.lines, &activity);
                self.call_count += 1;
            }
            Record::Other => {}
        }
    }

    fn append_activity(&mut self, activity: &Activity) {
        log::append(&mut self.lines, activity);
        self.activity_count += 1;
    }

    /// The id of a name. A new name is logged first.
    fn name_id(&mut self, name: &str) -> u32 {
        let names = self.names.get_or_insert_with(HashMap::new);
        if let Some(number) = names.get(name) {
            return *number;
        }
        let number = u32::try_from(names.len()).unwrap_or(u32::MAX);
        names.insert(name.into(), number);
        log::append(&mut self.lines, &Notice::Name { id: number, text: name });
        number
    }

    /// The id of an API call's name. `None` if the call is not logged.
    fn call_name_id(&mut self, active: &ActiveCupti, driver: bool, number: u32) -> Option<u32> {
        let known = self.call_name_ids.get_or_insert_with(HashMap::new);
        if let Some(name) = known.get(&(driver, number)) {
            return *name;
        }
        const DRIVER_API: u32 = 1;
        const RUNTIME_API: u32 = 2;
        let domain = if driver { DRIVER_API } else { RUNTIME_API };
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: a pointer to one pointer, which CUPTI sets to a constant.
        let status = unsafe { (active.cupti.callback_name)(domain, number, &mut name) };
        // SAFETY: as above.
        let name = (status == 0).then(|| unsafe { text::narrow(name) }).flatten();
        let is_logged = |name: &str| {
            !UNLOGGED_CALL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || name.contains("Sync")
        };
        let id = match name {
            Some(name) if is_logged(&name) => Some(self.name_id(&name)),
            Some(_) => None,
            None => Some(self.name_id(&format!("call {number}"))),
        };
        self.call_name_ids.get_or_insert_with(HashMap::new).insert((driver, number), id);
        id
    }
}

fn activity_with_timing(
    active: &ActiveCupti,
    event: &'static str,
    timing: RecordTiming,
) -> Activity {
    Activity {
        event,
        ns: active.to_our_clock(timing.start),
        end_ns: active.to_our_clock(timing.end),
        id: timing.correlation,
        device: Some(timing.device),
        context: Some(timing.context),
        stream: Some(timing.stream),
        ..Activity::default()
    }
}
