//! SIGINT and SIGTERM ask the current runs to stop.
//!
//! A separate thread handles them, so that a busy or blocked main thread (a stalled terminal, an
//! unanswered question) holds up no signal. If nobody acts on a signal in time, the process ends.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::app::{show_failure, wants_json};
use super::open_files::{cannot_start, check_open_file_limit};
use super::terminal::restore_mode;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::run::Canceller;

/// A first signal must be acted on within this time.
const FIRST_SIGNAL_TIMEOUT: Duration = Duration::from_secs(1);

/// After a second signal the process ends within this time, which leaves room for its last
/// messages.
const SECOND_SIGNAL_TIMEOUT: Duration = Duration::from_secs(3);

/// The last message may take this long to print.
const LAST_MESSAGE_TIMEOUT: Duration = Duration::from_millis(100);

/// The cancellers of the current runs. There may be several, one, or none.
static LISTENERS: Mutex<Vec<Canceller>> = Mutex::new(Vec::new());

/// The result of starting the thread.
static STARTED: OnceLock<std::result::Result<(), Failure>> = OnceLock::new();

/// From now on signals ask `canceller` to stop.
pub(in crate::cli) fn listen(canceller: Canceller) -> Result<()> {
    STARTED.get_or_init(start).clone()?;
    let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.retain(|listener| !listener.is_closed());
    listeners.push(canceller);
    Ok(())
}

/// From now on a file that may not grow (`ulimit -f`) is an error of its write, which removes what is
/// half-written. By default the signal of it ends the process.
pub(in crate::cli) fn outlive_file_size_limit() {
    // Without an event loop the default stays. With too few files its signals panic, and the command
    // is refused for want of them.
    if check_open_file_limit().is_ok()
        && let Ok(runtime) = Builder::new_current_thread().enable_io().build()
    {
        let _entered = runtime.enter();
        let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
    }
}

fn start() -> Result<()> {
    let failed = |e: io::Error| cannot_start("signals", "signals cannot be handled", &e);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (interrupt, terminate) = {
        let _entered = runtime.enter();
        let interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        (interrupt, signal(SignalKind::terminate()).map_err(failed)?)
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || handle_signals(&runtime, interrupt, terminate))
        .map(drop)
        .map_err(failed)
}

/// Asks every run to stop at each signal, and ends the process if none does.
fn handle_signals(runtime: &Runtime, mut interrupt: Signal, mut terminate: Signal) {
    runtime.block_on(async {
        let mut signals = 0_u32;
        let mut due: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = until(due) => match signals {
                    1 if any_acted() => {
                        due = None;
                        continue;
                    }
                    _ => end(),
                },
            }
            signals += 1;
            let timeout = match signals {
                1 => FIRST_SIGNAL_TIMEOUT,
                2 => SECOND_SIGNAL_TIMEOUT,
                _ => end(),
            };
            due = Some(Instant::now() + timeout);
            ask_all_to_stop();
        }
    });
}

fn ask_all_to_stop() {
    let listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.iter().for_each(Canceller::request_cancel);
}

/// Whether a live run has acted on every request.
fn any_acted() -> bool {
    let listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.iter().any(|listener| !listener.is_closed() && listener.handled_all_requests())
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Ends the process. If stderr is blocked, it ends without a message, and if stdout is, without the
/// document of `--json`.
fn end() -> ! {
    restore_mode();
    let printer = std::thread::spawn(|| {
        let failure = Failure::new(Exit::Cancelled, "cancelled", "cancelled");
        show_failure(&failure, Exit::Cancelled as u8, wants_json());
    });
    let started_at = std::time::Instant::now();
    while !printer.is_finished() && started_at.elapsed() < LAST_MESSAGE_TIMEOUT {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::process::exit(i32::from(Exit::Cancelled as u8))
}
