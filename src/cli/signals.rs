//! SIGINT and SIGTERM: whoever follows a run is asked to stop.
//!
//! A thread of its own hears them, so that a main thread that is busy or blocked (a terminal that
//! takes nothing, a question that nobody answers) holds up no signal: when nobody acts on one in
//! time, the process ends.

use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::open_files::cannot_start;
use crate::error::{Exit, Failure, Result};
use crate::run::Canceller;

/// How long a first signal may wait until somebody acts on it.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// How long the process may go on after a second signal: its last words need a moment.
const ENDED_WITHIN: Duration = Duration::from_secs(3);

/// How long it may take to say that the process ends.
const SAID_WITHIN: Duration = Duration::from_millis(100);

/// Those who are asked to stop. Several runs may go on at once, one after another, or none.
static LISTENERS: Mutex<Vec<Canceller>> = Mutex::new(Vec::new());

/// Whether the thread has started, or why it has not.
static STARTED: OnceLock<std::result::Result<(), Failure>> = OnceLock::new();

/// From now on signals ask `canceller` to stop.
///
/// # Errors
/// Signals cannot be heard.
pub(super) fn listen(canceller: Canceller) -> Result<()> {
    STARTED.get_or_init(start).clone()?;
    let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.retain(|listener| !listener.is_closed());
    listeners.push(canceller);
    Ok(())
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
        .spawn(move || hear(&runtime, interrupt, terminate))
        .map(drop)
        .map_err(failed)
}

/// Asks everybody to stop with each signal, and ends the process where nobody does.
fn hear(runtime: &Runtime, mut interrupt: Signal, mut terminate: Signal) {
    runtime.block_on(async {
        let mut times = 0_u32;
        let mut due: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = until(due) => match times {
                    1 if is_heard() => {
                        due = None;
                        continue;
                    }
                    _ => end(),
                },
            }
            times += 1;
            let within = match times {
                1 => HEARD_WITHIN,
                2 => ENDED_WITHIN,
                _ => end(),
            };
            due = Some(Instant::now() + within);
            ask();
        }
    });
}

fn ask() {
    let listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.iter().for_each(Canceller::ask);
}

/// Whether anybody who goes on has acted on all that was asked.
fn is_heard() -> bool {
    let listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.iter().any(|listener| !listener.is_closed() && listener.is_heard())
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Ends the process. Where stderr takes nothing, it ends without a word.
fn end() -> ! {
    let said = std::thread::spawn(|| {
        let _ = io::stderr().lock().write_all(b"error: cancelled\n");
    });
    let begun = std::time::Instant::now();
    while !said.is_finished() && begun.elapsed() < SAID_WITHIN {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::process::exit(i32::from(Exit::Cancelled as u8))
}
