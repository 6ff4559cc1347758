//! Cancelling: how often the user asked to stop.
//!
//! Once: the job is cancelled on the host and its end awaited. Twice: waiting stops, the cancel
//! stands. The front end raises the count (Ctrl-C, SIGTERM); the engine only listens.

use std::sync::Arc;

use tokio::sync::watch;

/// How often was asked, and why.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    times: u32,
    unread: bool,
}

/// The front end's end; each clone may ask.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<watch::Sender<Asked>>);

/// The engine's end.
#[derive(Clone, Debug)]
pub struct Cancel(watch::Receiver<Asked>);

/// A pair of both ends.
pub fn channel() -> (Canceller, Cancel) {
    let (sender, receiver) = watch::channel(Asked::default());
    (Canceller(Arc::new(sender)), Cancel(receiver))
}

impl Canceller {
    /// Asks once more.
    pub fn ask(&self) {
        self.0.send_modify(|asked| asked.times += 1);
    }

    /// Asks because nobody reads the program's output any more: what `SIGPIPE` does to a program.
    pub fn output_unread(&self) {
        self.0.send_modify(|asked| {
            asked.times += u32::from(!asked.unread);
            asked.unread = true;
        });
    }
}

impl Cancel {
    /// How often was asked.
    pub fn asked(&self) -> u32 {
        self.0.borrow().times
    }

    /// Whether it was asked because nobody reads the program's output.
    pub fn output_unread(&self) -> bool {
        self.0.borrow().unread
    }

    /// Waits until it was asked more than `times` times. Never returns when nobody can ask any more.
    pub async fn beyond(&mut self, times: u32) {
        if self.0.wait_for(|asked| asked.times > times).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
