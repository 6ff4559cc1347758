//! Cancelling: counts how often the user requests to stop.
//!
//! The first request cancels the job on the host and waits for its end. The second stops waiting,
//! but the job is still cancelled. The front end counts Ctrl-C and SIGTERM; the run only
//! listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::watch;

/// How often the user requests, and whether that was because nobody reads the output.
#[derive(Clone, Copy, Debug, Default)]
struct CancelRequests {
    times: u32,
    unread: bool,
}

/// The front end's side; every clone may request a stop.
#[derive(Clone, Debug)]
pub struct Canceller {
    requests: Arc<watch::Sender<CancelRequests>>,
    handled: Arc<AtomicU32>,
}

/// The receiving half: the run checks it.
#[derive(Clone, Debug)]
pub struct CancelSignal {
    requests: watch::Receiver<CancelRequests>,
    handled: Arc<AtomicU32>,
}

/// Makes a connected pair.
pub fn channel() -> (Canceller, CancelSignal) {
    let (sender, receiver) = watch::channel(CancelRequests::default());
    let handled = Arc::new(AtomicU32::new(0));
    (
        Canceller { requests: Arc::new(sender), handled: Arc::clone(&handled) },
        CancelSignal { requests: receiver, handled },
    )
}

impl Canceller {
    /// Counts one more request.
    pub fn request_cancel(&self) {
        self.requests.send_modify(|requests| requests.times += 1);
    }

    /// Requests a stop because nobody reads the program's output any more, as `SIGPIPE` stops a
    /// program. Counts once.
    pub fn request_cancel_for_unread_output(&self) {
        self.requests.send_modify(|requests| {
            requests.times += u32::from(!requests.unread);
            requests.unread = true;
        });
    }

    /// Whether the run has acted on every request.
    pub fn handled_all_requests(&self) -> bool {
        self.handled.load(Ordering::SeqCst) >= self.requests.borrow().times
    }

    /// Whether the run no longer listens.
    pub fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }
}

impl CancelSignal {
    /// The number of requests.
    pub fn request_count(&self) -> u32 {
        self.requests.borrow().times
    }

    /// The number of requests that [`CancelSignal::wait_for_more_than`] has returned for.
    pub fn handled_count(&self) -> u32 {
        self.handled.load(Ordering::SeqCst)
    }

    /// Whether a stop was requested because nobody reads the program's output.
    pub fn is_output_unread(&self) -> bool {
        self.requests.borrow().unread
    }

    /// Waits for more than `times` requests. Never returns if the front end is gone.
    pub async fn wait_for_more_than(&mut self, times: u32) {
        match self.requests.wait_for(|requests| requests.times > times).await {
            Ok(requests) => {
                let _ = self.handled.fetch_max(requests.times, Ordering::SeqCst);
            }
            Err(_) => std::future::pending::<()>().await,
        }
    }
}
