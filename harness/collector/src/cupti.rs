//! Records GPU work through CUPTI. The CUDA driver loads this library at its initialisation if
//! `CUDA_INJECTION64_PATH` names it, and CUPTI's activity records then report each kernel, copy,
//! fill and CUDA call. Tracing needs no privileges, even where counters are restricted.
//!
//! Without a working libcupti, one line on stderr and one in the log give the reason, and NVTX
//! ranges are still recorded.

mod buffers;
mod library;
mod record;

use crate::clock::monotonic_ns;
use crate::log::Notice;
use crate::process::{self, print_warning};
use library::{Cupti, LoadedCupti};
use std::ffi::c_int;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`: the ids of `gettid`, as in NVTX events.
const SYSTEM_THREAD_IDS: u32 = 1;
/// `CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER`: we zero the buffers, so the program's threads
/// need not.
const ZEROED_BUFFERS: u32 = 5;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
const FLUSH_FORCED: u32 = 1;
/// Interval between flushes, so that a crash loses little.
const FLUSH_PERIOD: Duration = Duration::from_millis(500);
/// CUPTI's clock counts as ours if it differs by less than this.
const SAME_CLOCK_NS: u64 = 10_000_000;
/// Maximum length of the reported reasons, in bytes.
const REASONS_BYTES: usize = 800;

/// The record kinds without which there is no timeline.
const ENABLED_KINDS: &[u32] =
    &[record::CONCURRENT_KERNEL, record::MEMCPY, record::MEMSET, record::RUNTIME, record::DRIVER];

static ACTIVE: AtomicPtr<ActiveCupti> = AtomicPtr::new(std::ptr::null_mut());
static STOPPED: AtomicBool = AtomicBool::new(false);
/// Held during a flush of CUPTI's buffers.
static FLUSHING: Mutex<()> = Mutex::new(());

/// CUPTI after its activation.
pub(crate) struct ActiveCupti {
    cupti: Cupti,
    /// Difference of CUPTI's clock to ours.
    offset_ns: i64,
    /// The process that enabled the records. A forked child gets none.
    pid: AtomicU32,
}

/// Called once per process by the CUDA driver. 1 is success; not all drivers check the result.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is the CUDA driver's")]
pub extern "C" fn InitializeInjection() -> c_int {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| drop(catch_unwind(start)));
    1
}

fn start() {
    if !process::start() {
        return;
    }
    let Some(process) = process::current() else { return };
    match begin() {
        Ok((opened, clock)) => process.write_notice(&Notice::Cupti {
            state: "on",
            version: Some(opened.version),
            path: Some(&opened.path),
            clock: Some(clock),
            text: None,
        }),
        Err(why) => {
            print_warning(&format!("no usable libcupti, only NVTX ranges are recorded: {why}"));
            process.write_notice(&Notice::Cupti {
                state: "off",
                version: None,
                path: None,
                clock: None,
                text: Some(&why),
            });
        }
    }
}

/// Tries every libcupti that is found. The error says why none works.
fn begin() -> Result<(LoadedCupti, &'static str), String> {
    if let Some(loaded) = library::loaded() {
        // A second copy beside the program's own would take its records away.
        let opened = loaded.map_err(|why| format!("the program's own libcupti {why}"))?;
        let clock = activate(&opened)?;
        return Ok((opened, clock));
    }
    let mut reasons = String::new();
    for place in library::places() {
        let tried = library::open(&place).and_then(|opened| Ok((activate(&opened)?, opened)));
        match tried {
            Ok((clock, opened)) => return Ok((opened, clock)),
            Err(why) => {
                let why = format!("{}: {why}", place.display());
                if reasons.len() + why.len() < REASONS_BYTES {
                    reasons += if reasons.is_empty() { "" } else { "; " };
                    reasons += &why;
                }
            }
        }
    }
    Err(reasons)
}

/// Enables activity records. Returns how the clocks were aligned.
fn activate(opened: &LoadedCupti) -> Result<&'static str, String> {
    let cupti = opened.cupti;
    // SAFETY, for every CUPTI call here: the functions' types are those of its headers, and each
    // pointer is valid and of the requested type.
    let thread_ids =
        || cupti.check("cuptiSetThreadIdType", unsafe { (cupti.thread_ids)(SYSTEM_THREAD_IDS) });
    let early = thread_ids();
    let (mut yes, mut size) = (1u8, 1usize);
    // Older versions lack it and zero the buffers themselves.
    let _ = unsafe { (cupti.set_attribute)(ZEROED_BUFFERS, &mut size, (&raw mut yes).cast()) };
    let ours = cupti.register_clock.is_some_and(|register| unsafe { register(stamp) } == 0);
    enable_records(&cupti)?;
    // Parts of CUPTI start only when records are enabled.
    let enabled_ahead = early.or_else(|_| thread_ids()).and_then(|()| ahead_ns(&cupti));
    let ahead = enabled_ahead.inspect_err(|_| disable_records(&cupti))?;
    let (clock, offset_ns) = if ours && ahead.unsigned_abs() < SAME_CLOCK_NS {
        ("ours", 0)
    } else {
        ("compared", ahead)
    };
    let active = ActiveCupti { cupti, offset_ns, pid: AtomicU32::new(std::process::id()) };
    ACTIVE.store(Box::into_raw(Box::new(active)), Ordering::Release);
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::atexit(at_exit) };
    start_flush_thread();
    Ok(clock)
}

fn enable_records(cupti: &Cupti) -> Result<(), String> {
    // SAFETY: as in `activate`.
    let registered = unsafe { (cupti.register_callbacks)(buffers::request, buffers::complete) };
    cupti.check("cuptiActivityRegisterCallbacks", registered)?;
    for kind in ENABLED_KINDS {
        // SAFETY: as above.
        let enabled = cupti.check("cuptiActivityEnable", unsafe { (cupti.enable)(*kind) });
        if enabled.is_err() {
            disable_records(cupti);
            return enabled;
        }
    }
    // Copies between GPUs, which not every system supports.
    // SAFETY: as above.
    unsafe { (cupti.enable)(record::MEMCPY2) };
    Ok(())
}

fn disable_records(cupti: &Cupti) {
    for kind in ENABLED_KINDS {
        // SAFETY: as in `activate`; disabling a kind that was never enabled is harmless.
        unsafe { (cupti.disable)(*kind) };
    }
}

/// The clock callback that CUPTI uses.
unsafe extern "C" fn stamp() -> u64 {
    monotonic_ns()
}

/// How far CUPTI's clock is ahead of ours, from the fastest of five readings.
fn ahead_ns(cupti: &Cupti) -> Result<i64, String> {
    let mut best = (u64::MAX, 0i64);
    for _ in 0..5 {
        let (before, mut cupti_ns) = (monotonic_ns(), 0u64);
        // SAFETY: a pointer to one number.
        cupti.check("cuptiGetTimestamp", unsafe { (cupti.timestamp)(&mut cupti_ns) })?;
        let took = monotonic_ns().saturating_sub(before);
        let middle = before + took / 2;
        best = best.min((took, cupti_ns.wrapping_sub(middle).cast_signed()));
    }
    Ok(best.1)
}

/// CUPTI, if it is active in this process.
pub(crate) fn active() -> Option<&'static ActiveCupti> {
    // SAFETY: null, or a box that is never freed.
    let active = unsafe { ACTIVE.load(Ordering::Acquire).as_ref() }?;
    (active.pid.load(Ordering::Relaxed) == std::process::id()).then_some(active)
}

impl ActiveCupti {
    /// Converts a CUPTI time to our clock; `None` if CUPTI did not know it.
    fn to_our_clock(&self, ns: u64) -> Option<u64> {
        (ns != 0).then(|| ns.wrapping_sub(self.offset_ns.cast_unsigned()))
    }
}

/// Starts a thread that requests finished records, as CUPTI's documentation proposes.
fn start_flush_thread() {
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut before = all;
    // Signals must reach the program's threads, not this one.
    // SAFETY: both pointers are valid; the new thread inherits the mask, and this thread's is
    // restored.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
    }
    let spawned = std::thread::Builder::new().name("rgpu-flush".to_owned()).spawn(|| {
        while !STOPPED.load(Ordering::Relaxed) {
            std::thread::sleep(FLUSH_PERIOD);
            flush_finished();
        }
    });
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    // Without the thread a crash loses more records; nothing else changes.
    drop(spawned);
}

/// Requests the records of all finished work.
pub(crate) fn flush_finished() {
    flush(0);
}

fn flush(flag: u32) {
    let Some(active) = active() else { return };
    let Ok(_held) = FLUSHING.lock() else { return };
    if flag == FLUSH_FORCED || !STOPPED.load(Ordering::Relaxed) {
        // SAFETY: CUPTI is active in this process.
        unsafe { (active.cupti.flush_all)(flag) };
    }
}

/// Runs before the driver shuts down: requests every record that CUPTI still holds.
extern "C" fn at_exit() {
    STOPPED.store(true, Ordering::Relaxed);
    drop(catch_unwind(|| flush(FLUSH_FORCED)));
}
