//! The functions that NVTX calls instead of its no-ops, by module. Each one converts C types, calls
//! the thread's recorder once, and converts the result.

use crate::abi::{
    CChar, COLOR_ARGB, EventAttributes, Function, Handle, MESSAGE_NARROW, MESSAGE_REGISTERED,
    MESSAGE_WIDE, WideChar,
};
use crate::log::{Attributes, Notice, Payload};
use crate::names::{DOMAINS, STRINGS};
use crate::text;
use crate::thread::with_recorder;
use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::null;

/// Result of push and pop when the call was not recorded.
const NO_TRACKING: c_int = -2;
/// Result of pop when no range is open.
const NOTHING_TO_POP: c_int = -1;

/// Callback numbers of the CORE module and our functions.
pub(crate) fn core() -> Vec<(usize, Function)> {
    vec![
        (1, erase(mark_ex as *const c_void)),
        (2, erase(mark_a as *const c_void)),
        (3, erase(mark_w as *const c_void)),
        (4, erase(start_ex as *const c_void)),
        (5, erase(start_a as *const c_void)),
        (6, erase(start_w as *const c_void)),
        (7, erase(end as *const c_void)),
        (8, erase(push_ex as *const c_void)),
        (9, erase(push_a as *const c_void)),
        (10, erase(push_w as *const c_void)),
        (11, erase(pop as *const c_void)),
        (12, erase(category_a as *const c_void)),
        (13, erase(category_w as *const c_void)),
        (14, erase(thread_a as *const c_void)),
        (15, erase(thread_w as *const c_void)),
    ]
}

/// Callback numbers of the CORE2 module and our functions. Resources (6, 7) stay no-ops.
pub(crate) fn core2() -> Vec<(usize, Function)> {
    vec![
        (1, erase(domain_mark_ex as *const c_void)),
        (2, erase(domain_start_ex as *const c_void)),
        (3, erase(domain_end as *const c_void)),
        (4, erase(domain_push_ex as *const c_void)),
        (5, erase(domain_pop as *const c_void)),
        (8, erase(domain_category_a as *const c_void)),
        (9, erase(domain_category_w as *const c_void)),
        (10, erase(register_a as *const c_void)),
        (11, erase(register_w as *const c_void)),
        (12, erase(domain_create_a as *const c_void)),
        (13, erase(domain_create_w as *const c_void)),
    ]
}

fn erase(function: *const c_void) -> Function {
    // SAFETY: always one of the functions below; NVTX calls it with that number's signature.
    unsafe { std::mem::transmute::<*const c_void, Function>(function) }
}

/// The text of a message, if there is one.
type Text<'a> = Option<Cow<'a, str>>;

fn plain(message: Text<'_>) -> Attributes<'_> {
    Attributes { message, ..Attributes::default() }
}

/// A domain handle is its number. Unknown handles mean the default domain.
fn domain_number(handle: Handle) -> usize {
    let number = handle.addr();
    if DOMAINS.get(number).is_some() { number } else { 0 }
}

/// Reads event attributes of any version: a field counts only when `size` covers it.
///
/// # Safety
/// `given` is null or points to at least 4 bytes, and to `size` bytes as that field states.
unsafe fn attributes<'a>(given: *const EventAttributes) -> Attributes<'a> {
    if given.is_null() {
        return Attributes::default();
    }
    let mut read = EventAttributes {
        version: 0,
        size: 0,
        category: 0,
        color_type: 0,
        color: 0,
        payload_type: 0,
        reserved: 0,
        payload: [0; 8],
        message_type: 0,
        message: null(),
    };
    // SAFETY: the caller promises 4 bytes, then `size` bytes; `read` has room for its own size.
    unsafe {
        let size = given.byte_add(offset_of!(EventAttributes, size)).cast::<u16>().read_unaligned();
        let size = usize::from(size).min(size_of::<EventAttributes>());
        let (from, to) = (given.cast::<u8>(), (&raw mut read).cast::<u8>());
        std::ptr::copy_nonoverlapping(from, to, size.max(4));
    }
    // SAFETY: the program states the type of its message pointer.
    let message = match read.message_type {
        MESSAGE_NARROW => unsafe { text::narrow(read.message.cast::<CChar>()) },
        MESSAGE_WIDE => unsafe { text::wide(read.message.cast::<WideChar>()) }.map(Cow::Owned),
        MESSAGE_REGISTERED => STRINGS.get(read.message.addr()).map(Cow::Borrowed),
        _ => None,
    };
    Attributes {
        message,
        category: Some(read.category).filter(|category| *category != 0),
        color: Some(read.color).filter(|_| read.color_type == COLOR_ARGB),
        payload: payload(read.payload_type, read.payload),
    }
}

fn payload(kind: i32, bytes: [u8; 8]) -> Option<Payload> {
    let [a, b, c, d, ..] = bytes;
    let low = [a, b, c, d];
    let float = |value: f64| value.is_finite().then_some(Payload::Float(value));
    match kind {
        1 => Some(Payload::Unsigned(u64::from_ne_bytes(bytes))),
        2 => Some(Payload::Signed(i64::from_ne_bytes(bytes))),
        3 => float(f64::from_ne_bytes(bytes)),
        4 => Some(Payload::Unsigned(u32::from_ne_bytes(low).into())),
        5 => Some(Payload::Signed(i32::from_ne_bytes(low).into())),
        6 => float(f32::from_ne_bytes(low).into()),
        _ => None,
    }
}

// Every argument is read inside `with`: reading may allocate, and an allocator with NVTX ranges
// would otherwise recurse without end.

fn record_mark<'a>(domain: usize, attributes: impl FnOnce() -> Attributes<'a>) {
    with_recorder(|recorder| recorder.mark(domain, &attributes()));
}

fn record_push<'a>(domain: usize, attributes: impl FnOnce() -> Attributes<'a>) -> c_int {
    let level = with_recorder(|recorder| recorder.push(domain, &attributes()));
    level.map_or(NO_TRACKING, |level| c_int::try_from(level).unwrap_or(c_int::MAX))
}

fn record_pop(domain: usize) -> c_int {
    match with_recorder(|recorder| recorder.pop(domain)) {
        Some(Some(level)) => c_int::try_from(level).unwrap_or(c_int::MAX),
        Some(None) => NOTHING_TO_POP,
        None => NO_TRACKING,
    }
}

fn record_start<'a>(domain: usize, attributes: impl FnOnce() -> Attributes<'a>) -> u64 {
    // An id must not be 0. The highest one is marked as not written.
    with_recorder(|recorder| recorder.start(domain, &attributes())).unwrap_or(u64::MAX)
}

fn record_end(domain: usize, id: u64) {
    with_recorder(|recorder| recorder.end(domain, id));
}

fn name_category<'a>(domain: usize, category: u32, name: impl FnOnce() -> Text<'a>) {
    with_recorder(|recorder| {
        if let Some(name) = name() {
            recorder.process().write_notice(&Notice::Category { domain, category, name: &name });
        }
    });
}

fn name_thread<'a>(tid: u32, name: impl FnOnce() -> Text<'a>) {
    with_recorder(|recorder| {
        if let Some(name) = name() {
            recorder.process().write_notice(&Notice::Thread { tid, name: &name });
        }
    });
}

fn register<'a>(text: impl FnOnce() -> Text<'a>) -> Handle {
    let number = with_recorder(|recorder| Some(recorder.process().string_number(&text()?)));
    number.flatten().map_or(null(), std::ptr::without_provenance)
}

fn create_domain<'a>(name: impl FnOnce() -> Text<'a>) -> Handle {
    let number = with_recorder(|recorder| Some(recorder.process().domain_number(&name()?)));
    number.flatten().map_or(null(), std::ptr::without_provenance)
}

/// A `char` argument.
///
/// # Safety
/// As [`text::narrow`].
unsafe fn narrow<'a>(text: *const CChar) -> Text<'a> {
    // SAFETY: the caller guarantees it.
    unsafe { text::narrow(text) }
}

/// A `wchar_t` argument.
///
/// # Safety
/// As [`text::wide`].
unsafe fn wide<'a>(text: *const WideChar) -> Text<'a> {
    // SAFETY: the caller guarantees it.
    unsafe { text::wide(text) }.map(Cow::Owned)
}

// Below, every `unsafe` block relies on the rules that NVTX's documentation sets for programs:
// strings end in NUL, and attributes have the length they state.

unsafe extern "C" fn mark_ex(given: *const EventAttributes) {
    record_mark(0, || unsafe { attributes(given) });
}

unsafe extern "C" fn mark_a(message: *const CChar) {
    record_mark(0, || plain(unsafe { narrow(message) }));
}

unsafe extern "C" fn mark_w(message: *const WideChar) {
    record_mark(0, || plain(unsafe { wide(message) }));
}

unsafe extern "C" fn start_ex(given: *const EventAttributes) -> u64 {
    record_start(0, || unsafe { attributes(given) })
}

unsafe extern "C" fn start_a(message: *const CChar) -> u64 {
    record_start(0, || plain(unsafe { narrow(message) }))
}

unsafe extern "C" fn start_w(message: *const WideChar) -> u64 {
    record_start(0, || plain(unsafe { wide(message) }))
}

unsafe extern "C" fn end(id: u64) {
    record_end(0, id);
}

unsafe extern "C" fn push_ex(given: *const EventAttributes) -> c_int {
    record_push(0, || unsafe { attributes(given) })
}

unsafe extern "C" fn push_a(message: *const CChar) -> c_int {
    record_push(0, || plain(unsafe { narrow(message) }))
}

unsafe extern "C" fn push_w(message: *const WideChar) -> c_int {
    record_push(0, || plain(unsafe { wide(message) }))
}

unsafe extern "C" fn pop() -> c_int {
    record_pop(0)
}

unsafe extern "C" fn category_a(category: u32, name: *const CChar) {
    name_category(0, category, || unsafe { narrow(name) });
}

unsafe extern "C" fn category_w(category: u32, name: *const WideChar) {
    name_category(0, category, || unsafe { wide(name) });
}

unsafe extern "C" fn thread_a(tid: u32, name: *const CChar) {
    name_thread(tid, || unsafe { narrow(name) });
}

unsafe extern "C" fn thread_w(tid: u32, name: *const WideChar) {
    name_thread(tid, || unsafe { wide(name) });
}

unsafe extern "C" fn domain_mark_ex(domain: Handle, given: *const EventAttributes) {
    record_mark(domain_number(domain), || unsafe { attributes(given) });
}

unsafe extern "C" fn domain_start_ex(domain: Handle, given: *const EventAttributes) -> u64 {
    record_start(domain_number(domain), || unsafe { attributes(given) })
}

unsafe extern "C" fn domain_end(domain: Handle, id: u64) {
    record_end(domain_number(domain), id);
}

unsafe extern "C" fn domain_push_ex(domain: Handle, given: *const EventAttributes) -> c_int {
    record_push(domain_number(domain), || unsafe { attributes(given) })
}

unsafe extern "C" fn domain_pop(domain: Handle) -> c_int {
    record_pop(domain_number(domain))
}

unsafe extern "C" fn domain_category_a(domain: Handle, category: u32, name: *const CChar) {
    name_category(domain_number(domain), category, || unsafe { narrow(name) });
}

unsafe extern "C" fn domain_category_w(domain: Handle, category: u32, name: *const WideChar) {
    name_category(domain_number(domain), category, || unsafe { wide(name) });
}

unsafe extern "C" fn register_a(_domain: Handle, text: *const CChar) -> Handle {
    register(|| unsafe { narrow(text) })
}

unsafe extern "C" fn register_w(_domain: Handle, text: *const WideChar) -> Handle {
    register(|| unsafe { wide(text) })
}

unsafe extern "C" fn domain_create_a(name: *const CChar) -> Handle {
    create_domain(|| unsafe { narrow(name) })
}

unsafe extern "C" fn domain_create_w(name: *const WideChar) -> Handle {
    create_domain(|| unsafe { wide(name) })
}
