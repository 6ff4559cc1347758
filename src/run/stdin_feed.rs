//! Standard input on its way to a running program.
//!
//! Nobody confirms it, so it is kept, up to a size, and goes over each new link from its start once
//! more: the host passes over what the program's job has had. Of a longer one that a cut meets in
//! the middle nobody can tell what arrived; then the program must not go on as if all had.

use tokio::sync::{mpsc, watch};

use crate::error::{Exit, Failure};
use crate::remote::{JobStdin, RemoteError};

/// Bytes kept.
const MAX_KEPT_BYTES: usize = 16 << 20;

/// A program's standard input.
pub(super) struct StdinFeed {
    links: watch::Receiver<Option<JobStdin>>,
    way: Option<JobStdin>,
    text: Option<StdinBuffer>,
}

/// What there is of it.
struct StdinBuffer {
    source: mpsc::Receiver<Vec<u8>>,
    /// Whether the source has ended, and whether that was said over the link of the moment.
    over: bool,
    told: bool,
    /// What is kept, and where in the whole it begins.
    kept: Vec<u8>,
    start: u64,
    /// Where in the whole stands what comes next over the link of the moment.
    next: u64,
}

impl StdinFeed {
    /// From `source` (`None`: there is none), over whatever link there is.
    pub(super) fn new(
        source: Option<mpsc::Receiver<Vec<u8>>>,
        mut links: watch::Receiver<Option<JobStdin>>,
    ) -> Self {
        let way = links.borrow_and_update().clone();
        let text = source.map(|source| StdinBuffer {
            source,
            over: false,
            told: false,
            kept: Vec::new(),
            start: 0,
            next: 0,
        });
        Self { links, way, text }
    }

    /// Sends what comes, and comes back only when it cannot go on after a cut. Cancel-safe.
    pub(super) async fn run(&mut self) -> Failure {
        let Some(text) = &mut self.text else { return std::future::pending().await };
        loop {
            tokio::select! {
                biased;
                changed = self.links.changed() => {
                    if changed.is_err() {
                        return std::future::pending().await;
                    }
                    self.way = self.links.borrow().clone();
                    if let Some(way) = &self.way
                        && !text.begins_again(way.may_repeat())
                    {
                        self.text = None;
                        return cut();
                    }
                }
                sent = text.pass(self.way.as_ref()) => {
                    if sent.is_err() {
                        // The next link is told of above.
                        self.way = None;
                    }
                }
            }
        }
    }
}

impl StdinBuffer {
    /// Begins again over a new link; false: it cannot.
    fn begins_again(&mut self, may_repeat: bool) -> bool {
        if self.next == 0 && !self.told {
            return true;
        }
        if may_repeat && self.start == 0 {
            (self.next, self.told) = (0, false);
            return true;
        }
        // Its end went out before the cut: nothing was being sent.
        self.told
    }

    /// A step further: the next bytes, or the end.
    async fn pass(&mut self, way: Option<&JobStdin>) -> Result<(), RemoteError> {
        let Some(way) = way else { return std::future::pending().await };
        let rest = &self.kept[(self.next - self.start) as usize..];
        if !rest.is_empty() {
            self.next += way.send(self.next, rest).await? as u64;
            if self.start > 0 || self.kept.len() > MAX_KEPT_BYTES {
                self.kept.drain(..(self.next - self.start) as usize);
                self.start = self.next;
            }
        } else if !self.over {
            match self.source.recv().await {
                Some(bytes) => self.kept.extend(bytes),
                None => self.over = true,
            }
        } else if !self.told {
            way.end(self.next).await?;
            self.told = true;
        } else {
            return std::future::pending().await;
        }
        Ok(())
    }
}

fn cut() -> Failure {
    Failure::new(
        Exit::Host,
        "input_cut",
        "the link was cut within standard input, so the program was stopped",
    )
    .cause(format!(
        "more than {} MiB had been sent, and how much of that arrived is not known",
        MAX_KEPT_BYTES >> 20
    ))
    .hint("send it as a file: `--mount FILE`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> (mpsc::Sender<Vec<u8>>, StdinBuffer) {
        let (sender, source) = mpsc::channel(4);
        let text =
            StdinBuffer { source, over: false, told: false, kept: Vec::new(), start: 0, next: 0 };
        (sender, text)
    }

    #[test]
    fn over_a_new_link_it_begins_again_unless_too_much_was_sent() {
        let (_sender, mut text) = text();
        assert!(text.begins_again(false), "nothing was sent");
        (text.kept, text.next) = (vec![1; 10], 7);
        assert!(text.begins_again(true));
        assert_eq!(text.next, 0);
        text.next = 7;
        assert!(!text.begins_again(false), "an agent that cannot tell what it has had");
        (text.kept, text.start, text.next) = (Vec::new(), 20 << 20, 20 << 20);
        assert!(!text.begins_again(true), "what was sent is not kept");
        text.told = true;
        assert!(text.begins_again(true), "all of it was sent");
    }
}
