//! The other entry point: the CUDA driver loads this library at its initialisation where
//! `CUDA_INJECTION64_PATH` names it, and CUPTI's activity records then tell of each kernel, copy,
//! fill and call into CUDA. Tracing needs no privileges: counters may be restricted on the host.
//!
//! Without a libcupti that works, one line on stderr and one in the log say why, and NVTX ranges
//! are recorded all the same.

mod buffers;
mod library;
mod record;

use crate::clock::monotonic_ns;
use crate::log::Notice;
use crate::process::{self, complain};
use library::{Cupti, Opened};
use std::ffi::c_int;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`: as `gettid` says, which NVTX events carry too.
const SYSTEM_THREAD_IDS: u32 = 1;
/// `CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER`: we zero them, not the program's own thread.
const ZEROED_BUFFERS: u32 = 5;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`.
const FORCED: u32 = 1;
/// How often records are asked for, so that a crash loses little.
const FLUSH_PERIOD: Duration = Duration::from_millis(500);
/// A clock of ours that CUPTI uses differs from ours by less than this.
const SAME_CLOCK_NS: u64 = 10_000_000;
/// Reasons are told in so many bytes at most.
const REASONS_BYTES: usize = 800;

/// The kinds of records without which there would be no time line.
const WANTED: &[u32] =
    &[record::CONCURRENT_KERNEL, record::MEMCPY, record::MEMSET, record::RUNTIME, record::DRIVER];

static ACTIVE: AtomicPtr<Active> = AtomicPtr::new(std::ptr::null_mut());
static STOPPED: AtomicBool = AtomicBool::new(false);
/// Held while CUPTI is asked to flush.
static FLUSHING: Mutex<()> = Mutex::new(());

/// CUPTI at work.
pub(crate) struct Active {
    cupti: Cupti,
    /// What CUPTI's clock is ahead of ours.
    offset_ns: i64,
    /// The process that asked for records; a forked child gets none.
    pid: AtomicU32,
}

/// Called by the CUDA driver, once in a process. The result is not looked at by all drivers; 1 is
/// success.
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
        Ok((opened, clock)) => process.notice(&Notice::Cupti {
            state: "on",
            version: Some(opened.version),
            path: Some(&opened.path),
            clock: Some(clock),
            text: None,
        }),
        Err(why) => {
            complain(&format!("no libcupti can be used, only NVTX ranges are recorded: {why}"));
            process.notice(&Notice::Cupti {
                state: "off",
                version: None,
                path: None,
                clock: None,
                text: Some(&why),
            });
        }
    }
}

/// Tries every libcupti there is; why none works, otherwise.
fn begin() -> Result<(Opened, &'static str), String> {
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

/// Asks for records; how the clocks were made one.
fn activate(opened: &Opened) -> Result<&'static str, String> {
    let cupti = opened.cupti;
    // SAFETY, for every call of CUPTI here: the functions' types are those of its headers, and each
    // pointer is a valid place of the type that it asks for.
    let thread_ids =
        || cupti.check("cuptiSetThreadIdType", unsafe { (cupti.thread_ids)(SYSTEM_THREAD_IDS) });
    let early = thread_ids();
    let (mut yes, mut size) = (1u8, 1usize);
    // Older ones lack it and zero the buffers themselves.
    let _ = unsafe { (cupti.set_attribute)(ZEROED_BUFFERS, &mut size, (&raw mut yes).cast()) };
    let ours = cupti.register_clock.is_some_and(|register| unsafe { register(stamp) } == 0);
    ask(&cupti)?;
    // Some of CUPTI starts only when records are asked for.
    let asked = early.or_else(|_| thread_ids()).and_then(|()| ahead_ns(&cupti));
    let ahead = asked.inspect_err(|_| give_up(&cupti))?;
    let (clock, offset_ns) = match ours && ahead.unsigned_abs() < SAME_CLOCK_NS {
        true => ("ours", 0),
        false => ("compared", ahead),
    };
    let active = Active { cupti, offset_ns, pid: AtomicU32::new(std::process::id()) };
    ACTIVE.store(Box::into_raw(Box::new(active)), Ordering::Release);
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::atexit(at_exit) };
    flush_from_time_to_time();
    Ok(clock)
}

fn ask(cupti: &Cupti) -> Result<(), String> {
    // SAFETY: as in `activate`.
    let registered = unsafe { (cupti.register_callbacks)(buffers::request, buffers::complete) };
    cupti.check("cuptiActivityRegisterCallbacks", registered)?;
    for kind in WANTED {
        // SAFETY: as above.
        let enabled = cupti.check("cuptiActivityEnable", unsafe { (cupti.enable)(*kind) });
        if enabled.is_err() {
            give_up(cupti);
            return enabled;
        }
    }
    // Copies between GPUs: not everywhere.
    // SAFETY: as above.
    unsafe { (cupti.enable)(record::MEMCPY2) };
    Ok(())
}

/// Asks for no records any more.
fn give_up(cupti: &Cupti) {
    for kind in WANTED {
        // SAFETY: as in `activate`; one that was never enabled is disabled without harm.
        unsafe { (cupti.disable)(*kind) };
    }
}

/// The clock that CUPTI is given.
unsafe extern "C" fn stamp() -> u64 {
    monotonic_ns()
}

/// How far CUPTI's clock is ahead of ours: of five looks, the one that took least.
fn ahead_ns(cupti: &Cupti) -> Result<i64, String> {
    let mut best = (u64::MAX, 0i64);
    for _ in 0..5 {
        let (before, mut theirs) = (monotonic_ns(), 0u64);
        // SAFETY: a place for one number.
        cupti.check("cuptiGetTimestamp", unsafe { (cupti.timestamp)(&mut theirs) })?;
        let took = monotonic_ns().saturating_sub(before);
        let middle = before + took / 2;
        best = best.min((took, theirs.wrapping_sub(middle).cast_signed()));
    }
    Ok(best.1)
}

/// CUPTI at work in this process.
pub(crate) fn active() -> Option<&'static Active> {
    // SAFETY: null, or a box that nobody frees.
    let active = unsafe { ACTIVE.load(Ordering::Acquire).as_ref() }?;
    (active.pid.load(Ordering::Relaxed) == std::process::id()).then_some(active)
}

impl Active {
    /// A time of CUPTI's on our clock; `None`: it did not know.
    fn ours(&self, ns: u64) -> Option<u64> {
        (ns != 0).then(|| ns.wrapping_sub(self.offset_ns.cast_unsigned()))
    }
}

/// A thread that asks for finished records, as CUPTI's own documentation proposes.
fn flush_from_time_to_time() {
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut before = all;
    // The program's signals are the program's.
    // SAFETY: both are valid places; the thread inherits the mask, and this one's is put back.
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
    // Without it a crash loses more, nothing else.
    drop(spawned);
}

/// Asks for the records of all work that has ended.
pub(crate) fn flush_finished() {
    flush(0);
}

fn flush(flag: u32) {
    let Some(active) = active() else { return };
    let Ok(_held) = FLUSHING.lock() else { return };
    if flag == FORCED || !STOPPED.load(Ordering::Relaxed) {
        // SAFETY: CUPTI is at work in this process.
        unsafe { (active.cupti.flush_all)(flag) };
    }
}

/// Before the driver's own end: every record that is still with CUPTI.
extern "C" fn at_exit() {
    STOPPED.store(true, Ordering::Relaxed);
    drop(catch_unwind(|| flush(FORCED)));
}
