//! Frames: length-prefixed pieces of a byte stream.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | u32 little endian: body length, at most [`MAX_BODY`] |
//! | 4 | 1 | kind: 0 JSON message, 1 blob bytes, 2 output bytes |
//! | 5 | n | body |
//!
//! Before the first frame the agent writes [`MAGIC`] on a line of its own. The client skips up to
//! [`MAX_PREAMBLE`] bytes before it, which start-up files of the host's shell may print.
//!
//! Blob and output frames follow a message that gives their number of bytes. This module only
//! encodes and parses frames. It works on byte slices, so that sync and async callers share it.

/// Longest body of a frame, in bytes.
pub const MAX_BODY: usize = 1 << 20;

/// Bytes of the header before each body.
pub const HEADER: usize = 5;

/// The agent's first line.
pub const MAGIC: &[u8] = b"\x01rgpu-agent-stream-1\n";

/// Most bytes that may come before [`MAGIC`].
pub const MAX_PREAMBLE: usize = 64 << 10;

/// The type of a frame's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// One JSON message ([`crate::ToAgent`] or [`crate::FromAgent`]).
    Message,
    /// Bytes of a blob or an artifact.
    Blob,
    /// Output of a step, or input for it.
    Output,
}

/// A frame whose body borrows from the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The type of the body.
    pub kind: FrameKind,
    /// The body, at most [`MAX_BODY`] bytes.
    pub body: &'a [u8],
}

/// The stream is damaged or does not follow this protocol.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// The length field is over [`MAX_BODY`].
    #[error("a frame of {0} bytes is over the limit of {MAX_BODY}")]
    TooLong(usize),
    /// The kind byte is unknown.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// The agent's first line did not come.
    #[error("the agent did not answer: {MAX_PREAMBLE} bytes without its first line")]
    NoMagic,
}

/// Returns the header of a body of `len` bytes, at most [`MAX_BODY`].
pub fn header(kind: FrameKind, len: usize) -> [u8; HEADER] {
    debug_assert!(len <= MAX_BODY);
    let l = (len as u32).to_le_bytes();
    [l[0], l[1], l[2], l[3], kind as u8]
}

/// Parses the frame at the start of `bytes`. Returns the frame and its length with header, or
/// `None` if more bytes are needed.
pub fn parse(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some(head) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if len > MAX_BODY {
        return Err(FrameError::TooLong(len));
    }
    let kind = match head[4] {
        0 => FrameKind::Message,
        1 => FrameKind::Blob,
        2 => FrameKind::Output,
        other => return Err(FrameError::UnknownKind(other)),
    };
    Ok(bytes.get(HEADER..HEADER + len).map(|body| (Frame { kind, body }, HEADER + len)))
}

/// Finds [`MAGIC`] in the bytes received so far. Returns its offset, or `None` if more bytes are
/// needed.
pub fn find_magic(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    match bytes.windows(MAGIC.len()).position(|w| w == MAGIC) {
        Some(at) if at <= MAX_PREAMBLE => Ok(Some(at)),
        None if bytes.len() < MAX_PREAMBLE + MAGIC.len() => Ok(None),
        _ => Err(FrameError::NoMagic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_cut_at_any_byte_asks_for_more() {
        let mut wire = header(FrameKind::Output, 3).to_vec();
        wire.extend(b"abc");
        for cut in 0..wire.len() {
            assert_eq!(parse(&wire[..cut]), Ok(None));
        }
        let (frame, used) = parse(&wire).unwrap().unwrap();
        assert_eq!((frame.kind, frame.body, used), (FrameKind::Output, &b"abc"[..], 8));
    }

    #[test]
    fn absurd_lengths_and_kinds_are_refused() {
        assert_eq!(parse(&[255, 255, 255, 255, 0]), Err(FrameError::TooLong(u32::MAX as usize)));
        assert_eq!(parse(&[0, 0, 0, 0, 9]), Err(FrameError::UnknownKind(9)));
    }

    #[test]
    fn text_before_the_magic_is_skipped_up_to_the_limit() {
        let mut wire = b"Welcome to gpu-box\r\n".to_vec();
        assert_eq!(find_magic(&wire), Ok(None));
        wire.extend(MAGIC);
        assert_eq!(find_magic(&wire), Ok(Some(20)));
        assert_eq!(find_magic(&vec![b'x'; MAX_PREAMBLE + 64]), Err(FrameError::NoMagic));
    }
}
