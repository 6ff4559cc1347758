//! Cancelling: how often the user asked to stop.
//!
//! Once: the job is cancelled on the host and its end awaited. Twice: waiting stops, the cancel
//! stands. The front end raises the count (Ctrl-C, SIGTERM); the engine only listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::watch;

/// How often was asked, and why.
#[derive(Clone, Copy, Debug, Default)]
struct CancelRequests {
    times: u32,
    unread: bool,
}

/// The front end's end; each clone may ask.
#[derive(Clone, Debug)]
pub struct Canceller {
    asked: Arc<watch::Sender<CancelRequests>>,
    heard: Arc<AtomicU32>,
}

/// The engine's end.
#[derive(Clone, Debug)]
pub struct CancelSignal {
    asked: watch::Receiver<CancelRequests>,
    heard: Arc<AtomicU32>,
}

/// A pair of both ends.
pub fn channel() -> (Canceller, CancelSignal) {
    let (sender, receiver) = watch::channel(CancelRequests::default());
    let heard = Arc::new(AtomicU32::new(0));
    (
        Canceller { asked: Arc::new(sender), heard: Arc::clone(&heard) },
        CancelSignal { asked: receiver, heard },
    )
}

impl Canceller {
    /// Asks once more.
    pub fn ask(&self) {
        self.asked.send_modify(|asked| asked.times += 1);
    }

    /// Asks because nobody reads the program's output any more: what `SIGPIPE` does to a program.
    pub fn output_unread(&self) {
        self.asked.send_modify(|asked| {
            asked.times += u32::from(!asked.unread);
            asked.unread = true;
        });
    }

    /// Whether the engine has acted on all that was asked.
    pub fn is_heard(&self) -> bool {
        self.heard.load(Ordering::SeqCst) >= self.asked.borrow().times
    }

    /// Whether nobody listens any more.
    pub fn is_closed(&self) -> bool {
        self.asked.is_closed()
    }
}

impl CancelSignal {
    /// How often was asked.
    pub fn asked(&self) -> u32 {
        self.asked.borrow().times
    }

    /// How often was asked and [`CancelSignal::beyond`] has told of it.
    pub fn heard(&self) -> u32 {
        self.heard.load(Ordering::SeqCst)
    }

    /// Whether it was asked because nobody reads the program's output.
    pub fn output_unread(&self) -> bool {
        self.asked.borrow().unread
    }

    /// Waits until it was asked more than `times` times. Never returns when nobody can ask any more.
    pub async fn beyond(&mut self, times: u32) {
        match self.asked.wait_for(|asked| asked.times > times).await {
            Ok(asked) => {
                let _ = self.heard.fetch_max(asked.times, Ordering::SeqCst);
            }
            Err(_) => std::future::pending::<()>().await,
        }
    }
}
