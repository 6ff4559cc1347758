//! The recording of one process: its log, the buffers of its threads, its counts. A forked child
//! gets a new `Process`; the old one stays unchanged, including its locks.

use crate::clock::{monotonic_ns, unix_ns};
use crate::log::{self, Notice};
use crate::names::{DOMAINS, STRINGS};
use crate::sink::Sink;
pub(crate) use crate::sink::print_warning;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Path of the log; the process id is appended.
const LOG_VARIABLE: &str = "RGPU_NVTX_LOG";
/// Maximum bytes of log per process.
const LIMIT_VARIABLE: &str = "RGPU_NVTX_LIMIT";
const DEFAULT_LIMIT: u64 = 256 << 20;
/// How long the exit handler waits for another thread to release its buffer.
const EXIT_LOCK_TIMEOUT: Duration = Duration::from_millis(50);

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static CURRENT: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
/// Number of forks: a `Process` of another generation belongs to an ancestor.
static GENERATION: AtomicU32 = AtomicU32::new(0);

struct Settings {
    log: OsString,
    limit: u64,
}

/// The recording of one process.
pub(crate) struct Process {
    /// Number of forks since the library was loaded; 0 is the process that loaded it.
    pub(crate) generation: u32,
    /// Whether it is a forked child; the fork may precede the loading of the library.
    forked: bool,
    pid: u32,
    limit: u64,
    sink: Mutex<Sink>,
    buffers: Mutex<Vec<SharedBuffer>>,
    strings: Mutex<HashMap<Box<str>, usize>>,
    written: AtomicU64,
    events: AtomicU64,
    dropped: AtomicU64,
    unbalanced: AtomicU64,
    activity_count: AtomicU64,
    call_count: AtomicU64,
    lost: AtomicU64,
    closed: AtomicBool,
}

/// A thread's lines that are not yet in the file, shared with the exit handler.
pub(crate) type SharedBuffer = Arc<Mutex<Buffer>>;

/// Complete lines and the number of events among them.
#[derive(Default)]
pub(crate) struct Buffer {
    pub(crate) lines: Vec<u8>,
    pub(crate) events: u64,
    pub(crate) flushed_ns: u64,
}

/// Reads the environment and opens the log, once. Returns false when nothing will be recorded; one
/// line on stderr then gives the reason.
pub(crate) fn start() -> bool {
    static STARTED: OnceLock<bool> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let Some(log) = std::env::var_os(LOG_VARIABLE).filter(|value| !value.is_empty()) else {
            print_warning(&format!("{LOG_VARIABLE} is not set; NVTX ranges are not recorded"));
            return false;
        };
        SETTINGS.get_or_init(|| Settings { log, limit: limit() });
        let opened = current().is_some_and(|process| process.write(&[]));
        if opened {
            // SAFETY: the handler only touches an atomic.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        }
        opened
    })
}

fn limit() -> u64 {
    let Some(value) = std::env::var_os(LIMIT_VARIABLE) else { return DEFAULT_LIMIT };
    value.to_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let value = value.to_string_lossy();
        print_warning(&format!(
            "{LIMIT_VARIABLE}=`{value}` is not a number of bytes; using {DEFAULT_LIMIT}"
        ));
        DEFAULT_LIMIT
    })
}

/// `PF_FORKNOEXEC`: forked, and no `exec` since.
const FORKED: u64 = 0x40;

/// Whether the kernel marks this process as a forked child without an `exec` since: a child of
/// Python's multiprocessing may be the first to load the library. `proc_pid_stat(5)`: the flags are
/// the seventh field after the name, which may contain any characters.
fn runs_its_parents_program() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let flags = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(6));
    flags.and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|flags| flags & FORKED != 0)
}

extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The recording of this process; `None` before [`start`].
pub(crate) fn current() -> Option<&'static Process> {
    let generation = GENERATION.load(Ordering::Relaxed);
    let seen = CURRENT.load(Ordering::Acquire);
    // SAFETY: CURRENT is null or a leaked box that is never freed after its publication.
    match unsafe { seen.as_ref() } {
        Some(process) if process.generation == generation => return Some(process),
        _ => {}
    }
    let settings = SETTINGS.get()?;
    let new = Box::into_raw(Box::new(Process::new(settings, generation)));
    match CURRENT.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: just published, never freed.
        Ok(_) => unsafe { new.as_ref() },
        Err(theirs) => {
            // SAFETY: `new` was never published; another thread published `theirs`.
            drop(unsafe { Box::from_raw(new) });
            unsafe { theirs.as_ref() }
        }
    }
}

impl Process {
    fn new(settings: &Settings, generation: u32) -> Self {
        let pid = std::process::id();
        let mut path = settings.log.clone();
        path.push(format!(".{pid}"));
        Self {
            generation,
            forked: generation > 0 || runs_its_parents_program(),
            pid,
            limit: settings.limit,
            sink: Mutex::new(Sink::new(PathBuf::from(path))),
            buffers: Mutex::default(),
            strings: Mutex::default(),
            written: AtomicU64::new(0),
            events: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            unbalanced: AtomicU64::new(0),
            activity_count: AtomicU64::new(0),
            call_count: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Creates a new thread's buffer.
    pub(crate) fn new_buffer(&self) -> SharedBuffer {
        let buffer = Buffer { flushed_ns: monotonic_ns(), ..Buffer::default() };
        let buffer = Arc::new(Mutex::new(buffer));
        lock(&self.buffers).push(Arc::clone(&buffer));
        buffer
    }

    /// Drops the buffer of a thread that ends.
    pub(crate) fn forget_buffer(&self, buffer: &SharedBuffer) {
        lock(&self.buffers).retain(|kept| !Arc::ptr_eq(kept, buffer));
    }

    /// Whether events go to the file one by one: a forked child may leave without an exit handler,
    /// and after the exit handler none follows.
    pub(crate) fn is_unbuffered(&self) -> bool {
        self.forked || self.closed.load(Ordering::Relaxed)
    }

    /// Whether it is a forked child; those usually exit without exit handlers.
    pub(crate) fn is_forked(&self) -> bool {
        self.forked
    }

    /// Whether another range, mark, GPU work or call may be written by a caller that has `buffered`
    /// unwritten bytes.
    pub(crate) fn has_room(&self, buffered: usize) -> bool {
        self.written.load(Ordering::Relaxed).saturating_add(buffered as u64) < self.limit
    }

    /// Counts an event that was not written.
    pub(crate) fn count_unwritten(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a pop without an open range.
    pub(crate) fn count_unbalanced(&self) {
        self.unbalanced.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts records that CUPTI dropped or that could not be read.
    pub(crate) fn count_lost_by_cupti(&self, many: u64) {
        self.lost.fetch_add(many, Ordering::Relaxed);
    }

    /// Writes lines from CUPTI's records: `activity_count` GPU activities and `call_count` API
    /// calls.
    pub(crate) fn write_activity(&self, lines: &[u8], activity_count: u64, call_count: u64) {
        if lines.is_empty() {
            return;
        }
        if self.write(lines) {
            self.activity_count.fetch_add(activity_count, Ordering::Relaxed);
            self.call_count.fetch_add(call_count, Ordering::Relaxed);
        } else {
            self.dropped.fetch_add(activity_count + call_count, Ordering::Relaxed);
        }
    }

    /// Writes a buffer's lines to the file and empties it.
    pub(crate) fn flush(&self, buffer: &mut Buffer, now_ns: u64) {
        let counter = if self.write(&buffer.lines) { &self.events } else { &self.dropped };
        counter.fetch_add(buffer.events, Ordering::Relaxed);
        buffer.lines.clear();
        buffer.events = 0;
        buffer.flushed_ns = now_ns;
    }

    /// Writes one line at once.
    pub(crate) fn write_notice(&self, notice: &Notice<'_>) {
        let mut line = Vec::new();
        log::append(&mut line, notice);
        self.write(&line);
    }

    /// The number of the domain with this name. A new domain is logged first.
    pub(crate) fn domain_number(&self, name: &str) -> usize {
        // Held until the line is written, so that no other thread can log an event of a new domain
        // before it.
        let _strings = lock(&self.strings);
        if let Some((number, _)) = DOMAINS.all().find(|(_, known)| *known == name) {
            return number;
        }
        let number = DOMAINS.add(name);
        if let Some(name) = DOMAINS.get(number) {
            self.write_notice(&Notice::Domain { domain: number, name });
        }
        number
    }

    /// The number of a registered string.
    pub(crate) fn string_number(&self, text: &str) -> usize {
        let mut strings = lock(&self.strings);
        if let Some(number) = strings.get(text) {
            return *number;
        }
        let number = STRINGS.add(text);
        if STRINGS.get(number) == Some(text) {
            strings.insert(text.into(), number);
        }
        number
    }

    fn write(&self, lines: &[u8]) -> bool {
        self.write_to(&mut lock(&self.sink), lines)
    }

    fn write_to(&self, sink: &mut Sink, lines: &[u8]) -> bool {
        let written = if sink.is_open() {
            sink.write(lines)
        } else {
            let mut with_head = self.head();
            with_head.extend_from_slice(lines);
            sink.write(&with_head)
        };
        self.written.fetch_add(lines.len() as u64, Ordering::Relaxed);
        written.is_ok()
    }

    /// The first lines of a log. A forked child repeats the domains it inherited.
    fn head(&self) -> Vec<u8> {
        let exe = std::env::current_exe().ok();
        let exe = exe.as_deref().map(std::path::Path::to_string_lossy);
        let mut head = Vec::new();
        let opened = Notice::Opened {
            format: log::FORMAT,
            pid: self.pid,
            ppid: std::os::unix::process::parent_id(),
            exe: exe.as_deref(),
            clock: "monotonic",
            ns: monotonic_ns(),
            unix_ns: unix_ns(),
            limit_bytes: self.limit,
        };
        log::append(&mut head, &opened);
        for (domain, name) in DOMAINS.all() {
            log::append(&mut head, &Notice::Domain { domain, name });
        }
        head
    }

    /// Writes the threads' remaining lines and the closing line.
    fn close(&self) {
        let now = monotonic_ns();
        self.closed.store(true, Ordering::Relaxed);
        let buffers = lock_with_timeout(&self.buffers).map(|list| list.clone()).unwrap_or_default();
        for buffer in &buffers {
            if let Some(mut buffer) = lock_with_timeout(buffer) {
                self.flush(&mut buffer, now);
            }
        }
        let mut line = Vec::new();
        let closed = Notice::Closed {
            ns: now,
            events: self.events.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            unbalanced: self.unbalanced.load(Ordering::Relaxed),
            work: self.activity_count.load(Ordering::Relaxed),
            calls: self.call_count.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        };
        log::append(&mut line, &closed);
        if let Some(mut sink) = lock_with_timeout(&self.sink) {
            self.write_to(&mut sink, &line);
        }
    }
}

/// Locks even after a panic under the lock: every state under our locks is usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tries to lock for a limited time: at exit the holder may be a thread that never runs again, or
/// this thread below a signal handler.
fn lock_with_timeout<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let pause = EXIT_LOCK_TIMEOUT / 50;
    for _ in 0..50 {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => std::thread::sleep(pause),
        }
    }
    None
}

/// Runs when the process exits, after `atexit` handlers and the program's own destructors.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    // SAFETY: CURRENT is null or a leaked box.
    let process = unsafe { CURRENT.load(Ordering::Acquire).as_ref() };
    if let Some(process) = process
        // A child that recorded nothing has no log to close.
        && process.generation == GENERATION.load(Ordering::Relaxed)
    {
        let _ = std::panic::catch_unwind(|| process.close());
    }
}
