//! The number of bytes that a message announces. They are collected before they are used, so the
//! number is limited to what an agent sends at once.

use rgpu_protocol::frame::MAX_BODY;
use rgpu_protocol::{BLOB_BYTES, FromAgent};

use super::RemoteError;

/// Bytes of output that one message may announce; an agent sends them in one frame.
const MAX_OUTPUT_BYTES: u64 = MAX_BODY as u64;

/// Bytes on the wire of one piece of an artifact. An incompressible piece grows a little as a zstd
/// frame.
const MAX_STORED_BYTES: u64 = BLOB_BYTES + (64 << 10);

/// The bytes that follow `message` in blob or output frames.
///
/// # Errors
/// [`RemoteError::ProtocolViolation`]: more than an agent sends at once, or an offset that
/// overflows.
pub(super) fn announced_bytes(message: &FromAgent) -> Result<u64, RemoteError> {
    let violation = |what: String| Err(RemoteError::ProtocolViolation { what });
    match message {
        FromAgent::Output { step, offset, len, .. }
            if *len > MAX_OUTPUT_BYTES || offset.checked_add(*len).is_none() =>
        {
            violation(format!("{len} bytes of output at {offset} of step `{step}`"))
        }
        FromAgent::Output { len, .. } => Ok(*len),
        FromAgent::Data { path, offset, len, stored, .. }
            if *len > BLOB_BYTES
                || *stored > MAX_STORED_BYTES
                || offset.checked_add(*len).is_none() =>
        {
            violation(format!("a piece of {len} bytes at {offset} of `{path}`"))
        }
        FromAgent::Data { stored, .. } => Ok(*stored),
        _ => Ok(0),
    }
}

#[cfg(test)]
mod tests {
    use rgpu_protocol::Stream;

    use super::*;

    fn output(offset: u64, len: u64) -> FromAgent {
        let (job, step) = ("run.1".to_owned(), "run".to_owned());
        FromAgent::Output { job, step, stream: Stream::Stdout, offset, len }
    }

    #[test]
    fn no_message_announces_more_than_an_agent_sends_at_once() {
        assert_eq!(announced_bytes(&output(7, MAX_OUTPUT_BYTES)).unwrap(), MAX_OUTPUT_BYTES);
        for (offset, len) in [(0, u64::MAX), (0, MAX_OUTPUT_BYTES + 1), (u64::MAX, 1)] {
            let error = announced_bytes(&output(offset, len)).unwrap_err();
            assert!(matches!(error, RemoteError::ProtocolViolation { .. }), "{error:?}");
        }
        for (offset, len, stored) in
            [(0, BLOB_BYTES + 1, 1), (0, 1, u64::MAX), (u64::MAX, 1, 1), (0, u64::MAX, 0)]
        {
            let (job, path) = ("run.1".to_owned(), "raw/x".to_owned());
            let data = FromAgent::Data { job, path, offset, len, stored, zstd: false };
            assert!(announced_bytes(&data).is_err(), "{data:?}");
        }
    }
}
