//! The minimum rate of an answer. There is a time limit on each chunk, but a server that sends one
//! byte just before the limit could hold its client for ever. So an answer must also bring a
//! minimum number of bytes.

use std::time::{Duration, Instant};

use crate::limits;

/// Bytes that must arrive within [`limits::STALL_TIMEOUT`]: a hundredth of a modem's rate.
const MIN_BYTES: usize = 16 << 10;

/// Counts the bytes of one transfer.
#[derive(Debug)]
pub(super) struct TransferRate {
    since: Instant,
    bytes: usize,
}

impl TransferRate {
    /// Starts to count at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, bytes: 0 }
    }

    /// Adds received bytes.
    ///
    /// # Errors
    /// Too few bytes arrived within the limit; the error is a message.
    pub(super) fn add_bytes(&mut self, bytes: usize, now: Instant) -> Result<(), String> {
        self.bytes += bytes;
        let elapsed: Duration = now.saturating_duration_since(self.since);
        if elapsed < limits::STALL_TIMEOUT {
            return Ok(());
        }
        if self.bytes < MIN_BYTES {
            return Err(format!("only {} bytes came in {} s", self.bytes, elapsed.as_secs()));
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
        let mut transfer_rate = TransferRate::new(begun);
        let slow = (1..=limits::STALL_TIMEOUT.as_secs())
            .find_map(|s| transfer_rate.add_bytes(1, at(s)).err());
        assert_eq!(slow.as_deref(), Some("only 120 bytes came in 120 s"));
        let mut transfer_rate = TransferRate::new(begun);
        assert!((1..=1000).all(|s| transfer_rate.add_bytes(200, at(s)).is_ok()));
    }
}
