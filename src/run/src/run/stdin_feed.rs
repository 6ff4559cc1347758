//! Forwards standard input to a running program.
//!
//! The host does not acknowledge it, so it is buffered up to a size and sent again from its start
//! over each new link; the host skips the part that the job already has. If a longer input is cut
//! in the middle, it is unknown how much arrived, so the program is stopped.

use tokio::sync::{mpsc, watch};

use rgpu_model::error::{Exit, Failure};
use rgpu_remote::{JobStdin, RemoteError};

/// Most bytes that are buffered for sending again.
const MAX_KEPT_BYTES: usize = 16 << 20;

/// A program's standard input and the link that it goes over.
pub(super) struct StdinFeed {
    links: watch::Receiver<Option<JobStdin>>,
    link: Option<JobStdin>,
    buffer: Option<StdinBuffer>,
}

/// The source, and the input that may have to be sent again.
struct StdinBuffer {
    source: mpsc::Receiver<Vec<u8>>,
    /// Whether stdin ended, and whether the current connection has been told.
    has_ended: bool,
    end_sent: bool,
    /// The buffered bytes, and the offset of the first in the whole input.
    bytes: Vec<u8>,
    start: u64,
    /// Offset in the whole input of the next byte to send over the current link.
    next: u64,
}

impl StdinFeed {
    /// Forwards `source`, if there is one, over the current one of `links`.
    pub(super) fn new(
        source: Option<mpsc::Receiver<Vec<u8>>>,
        mut links: watch::Receiver<Option<JobStdin>>,
    ) -> Self {
        let link = links.borrow_and_update().clone();
        let buffer = source.map(|source| StdinBuffer {
            source,
            has_ended: false,
            end_sent: false,
            bytes: Vec::new(),
            start: 0,
            next: 0,
        });
        Self { links, link, buffer }
    }

    /// Forwards stdin until it ends. Returns early only if the link is lost and cannot be restored.
    /// Cancel-safe.
    pub(super) async fn run(&mut self) -> Failure {
        let Some(buffer) = &mut self.buffer else { return std::future::pending().await };
        loop {
            tokio::select! {
                biased;
                changed = self.links.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                    self.link = self.links.borrow().clone();
                    if let Some(link) = &self.link
                        && !buffer.restart(link.may_repeat())
                    {
                        self.buffer = None;
                        return input_cut();
                    }
                }
                sent = buffer.send_next(self.link.as_ref()) => {
                    if sent.is_err() {
                        // The next link arrives in the branch above.
                        self.link = None;
                    }
                }
            }
        }
    }
}

impl StdinBuffer {
    /// Starts again over a new link. Returns false if that is impossible.
    fn restart(&mut self, may_repeat: bool) -> bool {
        if self.next == 0 && !self.end_sent {
            return true;
        }
        if may_repeat && self.start == 0 {
            (self.next, self.end_sent) = (0, false);
            return true;
        }
        // The end was sent before the cut, so no input was on its way.
        self.end_sent
    }

    /// Sends the next bytes or the end.
    async fn send_next(&mut self, link: Option<&JobStdin>) -> Result<(), RemoteError> {
        let Some(link) = link else { return std::future::pending().await };
        let rest = &self.bytes[(self.next - self.start) as usize..];
        if !rest.is_empty() {
            self.next += link.send(self.next, rest).await? as u64;
            if self.start > 0 || self.bytes.len() > MAX_KEPT_BYTES {
                self.bytes.drain(..(self.next - self.start) as usize);
                self.start = self.next;
            }
        } else if !self.has_ended {
            match self.source.recv().await {
                Some(bytes) => self.bytes.extend(bytes),
                None => self.has_ended = true,
            }
        } else if !self.end_sent {
            link.end(self.next).await?;
            self.end_sent = true;
        } else {
            return std::future::pending().await;
        }
        Ok(())
    }
}

fn input_cut() -> Failure {
    Failure::new(
        Exit::Host,
        "input_cut",
        "the link was lost while standard input was sent, so the program was stopped",
    )
    .cause(format!(
        "more than {} MiB had been sent, and it is unknown how much arrived",
        MAX_KEPT_BYTES >> 20
    ))
    .hint("send it as a file: `--mount FILE`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer() -> (mpsc::Sender<Vec<u8>>, StdinBuffer) {
        let (sender, source) = mpsc::channel(4);
        let buffer = StdinBuffer {
            source,
            has_ended: false,
            end_sent: false,
            bytes: Vec::new(),
            start: 0,
            next: 0,
        };
        (sender, buffer)
    }

    #[test]
    fn over_a_new_link_it_begins_again_unless_too_much_was_sent() {
        let (_sender, mut buffer) = buffer();
        assert!(buffer.restart(false), "nothing was sent");
        (buffer.bytes, buffer.next) = (vec![1; 10], 7);
        assert!(buffer.restart(true));
        assert_eq!(buffer.next, 0);
        buffer.next = 7;
        assert!(!buffer.restart(false), "an agent that cannot tell what it has had");
        (buffer.bytes, buffer.start, buffer.next) = (Vec::new(), 20 << 20, 20 << 20);
        assert!(!buffer.restart(true), "what was sent is not kept");
        buffer.end_sent = true;
        assert!(buffer.restart(true), "all of it was sent");
    }
}
