//! Cancelling: counts how often the user asked to stop.
//!
//! The first request cancels the job on the host and waits for its end. The second stops waiting,
//! but the job is still cancelled. The front end counts Ctrl-C and SIGTERM; the engine only
//! listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::watch;

/// How often the user asked, and whether that was because nobody reads the output.
#[derive(Clone, Copy, Debug, Default)]
struct CancelRequests {
    times: u32,
    unread: bool,
}

/// The front end's side; every clone may ask.
#[derive(Clone, Debug)]
pub struct Canceller {
    asked: Arc<watch::Sender<CancelRequests>>,
    handled: Arc<AtomicU32>,
}

/// The receiving half: the engine checks it.
#[derive(Clone, Debug)]
pub struct CancelSignal {
    asked: watch::Receiver<CancelRequests>,
    handled: Arc<AtomicU32>,
}

/// Makes a connected pair.
pub fn channel() -> (Canceller, CancelSignal) {
    let (sender, receiver) = watch::channel(CancelRequests::default());
    let handled = Arc::new(AtomicU32::new(0));
    (
        Canceller { asked: Arc::new(sender), handled: Arc::clone(&handled) },
        CancelSignal { asked: receiver, handled },
    )
}

impl Canceller {
    /// Counts one more request.
    pub fn ask(&self) {
        self.asked.send_modify(|asked| asked.times += 1);
    }

    /// Requests a stop because nobody reads the program's output any more, as `SIGPIPE` stops a
    /// program. Counts once.
    pub fn output_unread(&self) {
        self.asked.send_modify(|asked| {
            asked.times += u32::from(!asked.unread);
            asked.unread = true;
        });
    }

    /// Whether the engine has acted on every request.
    pub fn all_handled(&self) -> bool {
        self.handled.load(Ordering::SeqCst) >= self.asked.borrow().times
    }

    /// Whether the engine no longer listens.
    pub fn is_closed(&self) -> bool {
        self.asked.is_closed()
    }
}

impl CancelSignal {
    /// The number of requests.
    pub fn asked(&self) -> u32 {
        self.asked.borrow().times
    }

    /// The number of requests that [`CancelSignal::wait_for_more_than`] has returned for.
    pub fn handled(&self) -> u32 {
        self.handled.load(Ordering::SeqCst)
    }

    /// Whether a stop was requested because nobody reads the program's output.
    pub fn output_unread(&self) -> bool {
        self.asked.borrow().unread
    }

    /// Waits for more than `times` requests. Never returns if the front end is gone.
    pub async fn wait_for_more_than(&mut self, times: u32) {
        match self.asked.wait_for(|asked| asked.times > times).await {
            Ok(asked) => {
                let _ = self.handled.fetch_max(asked.times, Ordering::SeqCst);
            }
            Err(_) => std::future::pending::<()>().await,
        }
    }
}
