//! The recording of one thread: its buffer and the nesting of its push ranges, per domain.

use crate::clock::monotonic_ns;
use crate::cupti;
use crate::log::{self, Attributes, Event};
use crate::process::{self, Process, SharedBuffer, lock};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// A buffer is flushed when it holds this many bytes.
const FLUSH_BYTES: usize = 48 << 10;
/// A buffer is also flushed if its last flush is this long ago, so that a crash loses little.
/// Nanoseconds.
const FLUSH_NS: u64 = 100_000_000;
/// Set in the ids of ranges that were not written, so that their ends are not written either.
const DROPPED_ID: u64 = 1 << 63;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
    // Leaked on purpose: a program's thread-exit code may use NVTX after ours has run.
    static RECORDER: Cell<*mut Recorder> = const { Cell::new(std::ptr::null_mut()) };
    static FLUSH_ON_EXIT: FlushOnExit = const { FlushOnExit };
}

pub(crate) struct Recorder {
    process: &'static Process,
    tid: u32,
    buffer: SharedBuffer,
    buffered_bytes: usize,
    nesting: Vec<Nesting>,
    thread_is_exiting: bool,
}

/// Push ranges open in one domain, outermost first: `inherited` from before a fork, then `written`
/// to this log, then dropped because of the size limit. `depth` counts all three.
#[derive(Clone, Copy, Default)]
struct Nesting {
    domain: usize,
    inherited: u32,
    written: u32,
    depth: u32,
}

/// Runs `record` with this thread's recorder. Returns `None` when nothing is recorded, because the
/// log did not open or because this call came from inside another one (a signal handler, or an
/// allocator with NVTX ranges).
pub(crate) fn with_recorder<R>(record: impl FnOnce(&mut Recorder) -> R) -> Option<R> {
    if IS_RECORDING.replace(true) {
        return None;
    }
    // A panic must not unwind into the program; the event is then lost silently.
    let result = catch_unwind(AssertUnwindSafe(|| {
        let process = process::current()?;
        let mut recorder = RECORDER.get();
        if recorder.is_null() {
            recorder = Box::into_raw(Box::new(Recorder::new(process)));
            RECORDER.set(recorder);
        }
        // SAFETY: only this thread has the pointer, and IS_RECORDING allows one call at a time.
        let recorder = unsafe { &mut *recorder };
        if !std::ptr::eq(recorder.process, process) {
            recorder.restart_after_fork(process);
        }
        Some(record(recorder))
    }));
    IS_RECORDING.set(false);
    result.unwrap_or(None)
}

impl Recorder {
    fn new(process: &'static Process) -> Self {
        // If thread-local destructors are already running, ours will not run.
        let thread_is_exiting = FLUSH_ON_EXIT.try_with(|_| ()).is_err();
        let buffer = process.new_buffer();
        Self {
            process,
            tid: thread_id(),
            buffer,
            buffered_bytes: 0,
            nesting: Vec::new(),
            thread_is_exiting,
        }
    }

    /// Continues in a forked child: new log and new thread id; the open ranges belong to the
    /// parent.
    fn restart_after_fork(&mut self, process: &'static Process) {
        let parent = std::mem::replace(self, Self::new(process));
        self.nesting = parent.nesting.clone();
        for nesting in &mut self.nesting {
            (nesting.inherited, nesting.written) = (nesting.depth, 0);
        }
        std::mem::forget(parent); // its buffer holds the parent's events
    }

    /// The process this thread records for.
    pub(crate) fn process(&self) -> &'static Process {
        self.process
    }

    /// Opens a range on this thread's stack; returns its level.
    pub(crate) fn push(&mut self, domain: usize, attributes: &Attributes<'_>) -> u32 {
        let room = self.has_room();
        let nesting = self.nesting(domain);
        let level = nesting.depth;
        let write = room && level == nesting.inherited + nesting.written;
        nesting.depth = level.saturating_add(1);
        nesting.written += u32::from(write);
        if write {
            self.write("push", domain, Some(level), None, attributes);
        } else {
            self.process.count_unwritten();
        }
        level
    }

    /// Closes the innermost range and returns its level; `None` if none is open.
    pub(crate) fn pop(&mut self, domain: usize) -> Option<u32> {
        let nesting = self.nesting(domain);
        let Some(level) = nesting.depth.checked_sub(1) else {
            self.process.count_unbalanced();
            return None;
        };
        nesting.depth = level;
        let write = level >= nesting.inherited && level < nesting.inherited + nesting.written;
        nesting.inherited = nesting.inherited.min(level);
        nesting.written -= u32::from(write);
        if write {
            self.write("pop", domain, Some(level), None, &Attributes::default());
        }
        // A forked child usually exits without exit handlers, so CUPTI's activity records are
        // flushed here.
        if level == 0 && self.process.is_forked() {
            cupti::flush_finished();
        }
        Some(level)
    }

    /// Opens a range that any thread may end; returns its id, never 0.
    pub(crate) fn start(&mut self, domain: usize, attributes: &Attributes<'_>) -> u64 {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        if !self.has_room() {
            self.process.count_unwritten();
            return id | DROPPED_ID;
        }
        self.write("start", domain, None, Some(id), attributes);
        id
    }

    /// Ends a range of [`Recorder::start`].
    pub(crate) fn end(&mut self, domain: usize, id: u64) {
        if id & DROPPED_ID == 0 {
            self.write("end", domain, None, Some(id), &Attributes::default());
        }
    }

    pub(crate) fn mark(&mut self, domain: usize, attributes: &Attributes<'_>) {
        if self.has_room() {
            self.write("mark", domain, None, None, attributes);
        } else {
            self.process.count_unwritten();
        }
    }

    fn has_room(&self) -> bool {
        self.process.has_room(self.buffered_bytes)
    }

    fn nesting(&mut self, domain: usize) -> &mut Nesting {
        let known = self.nesting.iter().position(|nesting| nesting.domain == domain);
        let index = known.unwrap_or_else(|| {
            self.nesting.push(Nesting { domain, ..Nesting::default() });
            self.nesting.len() - 1
        });
        &mut self.nesting[index]
    }

    fn write(
        &mut self,
        event: &'static str,
        domain: usize,
        level: Option<u32>,
        id: Option<u64>,
        attributes: &Attributes<'_>,
    ) {
        let ns = monotonic_ns();
        let line = Event {
            event,
            ns,
            tid: self.tid,
            domain,
            level,
            id,
            message: attributes.message.as_deref(),
            category: attributes.category,
            color: attributes.color,
            payload: attributes.payload,
        };
        let mut buffer = lock(&self.buffer);
        if buffer.lines.capacity() == 0 && !self.thread_is_exiting {
            buffer.lines.reserve(FLUSH_BYTES + FLUSH_BYTES / 4);
        }
        log::append(&mut buffer.lines, &line);
        buffer.events += 1;
        let due = buffer.lines.len() >= FLUSH_BYTES || ns - buffer.flushed_ns.min(ns) >= FLUSH_NS;
        if due || self.thread_is_exiting || self.process.is_unbuffered() {
            self.process.flush(&mut buffer, ns);
        }
        self.buffered_bytes = buffer.lines.len();
    }
}

fn thread_id() -> u32 {
    // SAFETY: takes no arguments and cannot fail. (`gettid` itself is missing before glibc 2.30.)
    let tid = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(tid).unwrap_or(0)
}

/// Writes the thread's buffer to the file when the thread ends.
struct FlushOnExit;

impl Drop for FlushOnExit {
    fn drop(&mut self) {
        with_recorder(|recorder| {
            recorder.thread_is_exiting = true;
            let mut buffer = lock(&recorder.buffer);
            recorder.process.flush(&mut buffer, monotonic_ns());
            buffer.lines = Vec::new();
            drop(buffer);
            recorder.process.forget_buffer(&recorder.buffer);
        });
    }
}
