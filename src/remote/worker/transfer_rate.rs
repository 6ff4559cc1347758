//! How slowly an answer may come. Each byte of it is waited for within a limit; a server that sends
//! one just before that would still hold its client for ever. So what is under way must also bring
//! something worth waiting for.

use std::time::{Duration, Instant};

use crate::remote::limits;

/// Bytes that must come within [`limits::STALL`]: a hundredth of what a modem brings.
const MIN_BYTES: usize = 16 << 10;

/// What has come of something that is under way.
#[derive(Debug)]
pub(super) struct TransferRate {
    since: Instant,
    bytes: usize,
}

impl TransferRate {
    /// It begins now.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, bytes: 0 }
    }

    /// More has come.
    ///
    /// # Errors
    /// Too little since the limit began, in words.
    pub(super) fn came(&mut self, bytes: usize, now: Instant) -> Result<(), String> {
        self.bytes += bytes;
        let past: Duration = now.saturating_duration_since(self.since);
        if past < limits::STALL {
            return Ok(());
        }
        if self.bytes < MIN_BYTES {
            return Err(format!("only {} bytes came in {} s", self.bytes, past.as_secs()));
        }
        *self = Self::new(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_a_second_is_too_little_and_a_modem_is_enough() {
        let begun = Instant::now();
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        let mut pace = TransferRate::new(begun);
        let slow = (1..=limits::STALL.as_secs()).find_map(|s| pace.came(1, at(s)).err());
        assert_eq!(slow.as_deref(), Some("only 120 bytes came in 120 s"));
        let mut pace = TransferRate::new(begun);
        assert!((1..=1000).all(|s| pace.came(200, at(s)).is_ok()));
    }
}
