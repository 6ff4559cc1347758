//! Cancelling: how often the user asked to stop.
//!
//! Once: the job is cancelled on the host and its end awaited. Twice: waiting stops, the cancel
//! stands. The front end raises the count (Ctrl-C, SIGTERM); the engine only listens.

use tokio::sync::watch;

/// The front end's end.
#[derive(Debug)]
pub struct Canceller(watch::Sender<u32>);

/// The engine's end.
#[derive(Clone, Debug)]
pub struct Cancel(watch::Receiver<u32>);

/// A pair of both ends.
pub fn channel() -> (Canceller, Cancel) {
    let (sender, receiver) = watch::channel(0);
    (Canceller(sender), Cancel(receiver))
}

impl Canceller {
    /// Asks once more.
    pub fn ask(&self) {
        self.0.send_modify(|n| *n += 1);
    }
}

impl Cancel {
    /// How often was asked.
    pub fn asked(&self) -> u32 {
        *self.0.borrow()
    }

    /// Waits until it was asked more than `times` times. Never returns when nobody can ask any more.
    pub async fn beyond(&mut self, times: u32) {
        if self.0.wait_for(|n| *n > times).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
