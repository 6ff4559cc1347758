//! Reads Wafer's streams line by line.
//!
//! Only lines that begin with `data: ` count. The rest of such a line is either a message of the
//! service in brackets or a line printed by a program, and nothing distinguishes the two: a program
//! may print `[EXIT:0]` too. So nothing important is concluded from such a line, see
//! [`super::exec`].
//! | line | meaning |
//! |---|---|
//! | `[STATUS:WORD]`, `[STATUS:GPU_ALLOCATED:N]` | a phase |
//! | `[QUEUE_POSITION:N:SECONDS]` | the place in the queue for a GPU |
//! | `[BILLING:TEXT]` | the cost |
//! | `[SYNC:…]`, `[CONTEXT:…]` | files copied between containers |
//! | `[REPORT_READY:JOB]` | the service's own ncu made a report |
//! | `[SSH:HOST:PORT:USER]` | a workspace has come up |
//! | `[ERROR] TEXT` | it failed and ends |
//! | `[EXIT:N]`, `[DONE]` | it ends |
//!
//! Source: the clients in `wafer-ai` 0.0.13 and 0.0.85.

use std::time::Duration;

use reqwest::Response;

use super::error::WaferError;
use crate::http;

/// The longest line in bytes.
const MAX_LINE: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SseLine {
    /// A phase or a queue position, as text for the user.
    Phase(String),
    /// The cost, as the service words it.
    Billing(String),
    /// `creating`, `running`, `error` …, in lower case.
    Status(String),
    /// A workspace is up and has ssh access.
    Ssh,
    /// The service reports that the command failed.
    Error(String),
    /// It ended with this status; `None`: the status is not a number.
    Exit(Option<i32>),
    /// The stream is complete.
    Done,
    /// A report can be fetched under this name.
    Report(String),
    /// A line without relevance.
    Notice,
    /// A line printed by a program.
    Text(String),
}

impl SseLine {
    fn parse(content: &str) -> Self {
        let bracketed = |name: &str| {
            content.strip_prefix('[')?.strip_prefix(name)?.strip_prefix(':')?.strip_suffix(']')
        };
        if content == "[DONE]" {
            Self::Done
        } else if let Some(message) = content.strip_prefix("[ERROR]") {
            Self::Error(message.trim().to_owned())
        } else if let Some(status) = bracketed("EXIT") {
            Self::Exit(status.parse().ok())
        } else if let Some(gpu) = bracketed("STATUS:GPU_ALLOCATED") {
            Self::Phase(format!("GPU {gpu} is yours"))
        } else if let Some(status) = bracketed("STATUS") {
            Self::Status(status.to_lowercase())
        } else if let Some(place) = bracketed("QUEUE_POSITION") {
            Self::Phase(match place.split_once(':') {
                Some((place, seconds)) => {
                    format!("position {place} in the queue, about {seconds} s")
                }
                None => format!("position {place} in the queue"),
            })
        } else if let Some(text) = bracketed("BILLING") {
            Self::Billing(text.to_owned())
        } else if let Some(name) = bracketed("REPORT_READY") {
            Self::Report(name.chars().take(200).collect())
        } else if bracketed("SSH").is_some() {
            Self::Ssh
        } else if bracketed("SYNC").is_some() || bracketed("CONTEXT").is_some() {
            Self::Notice
        } else {
            Self::Text(content.to_owned())
        }
    }
}

/// A stream that is being read.
pub(super) struct SseStream {
    response: Response,
    buffer: Vec<u8>,
    doing: &'static str,
    max_silence: Duration,
}

impl SseStream {
    /// Reads `response`; silence for longer than `max_silence` is an error.
    pub(super) fn new(response: Response, doing: &'static str, max_silence: Duration) -> Self {
        Self { response, buffer: Vec::new(), doing, max_silence }
    }

    pub(super) fn set_max_silence(&mut self, max_silence: Duration) {
        self.max_silence = max_silence;
    }

    /// The next line; `None`: the stream stopped, which does not tell how the command ended.
    pub(super) async fn next(&mut self) -> Result<Option<SseLine>, WaferError> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=searched + at).collect();
                searched = 0;
                let line = String::from_utf8_lossy(&line);
                match line.trim_end_matches(['\r', '\n']).strip_prefix("data: ") {
                    Some(content) => return Ok(Some(SseLine::parse(content))),
                    None => continue,
                }
            }
            searched = self.buffer.len();
            if searched > MAX_LINE {
                let why = format!("a line of it is over {MAX_LINE} bytes");
                return Err(WaferError::cut(self.doing, why));
            }
            match http::next_chunk(&mut self.response, self.max_silence, self.doing).await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HttpError;

    #[test]
    fn words_in_brackets_are_told_from_what_is_printed() {
        for (content, line) in [
            ("[DONE]", SseLine::Done),
            ("[EXIT:3]", SseLine::Exit(Some(3))),
            ("[EXIT:x]", SseLine::Exit(None)),
            ("[ERROR] no such container", SseLine::Error("no such container".into())),
            ("[STATUS:CREATING]", SseLine::Status("creating".into())),
            ("[STATUS:GPU_ALLOCATED:2]", SseLine::Phase("GPU 2 is yours".into())),
            ("[QUEUE_POSITION:3:90]", SseLine::Phase("position 3 in the queue, about 90 s".into())),
            ("[BILLING:$0.02 used]", SseLine::Billing("$0.02 used".into())),
            ("[REPORT_READY:j-1]", SseLine::Report("j-1".into())),
            ("[SSH:10.0.0.1:22:root]", SseLine::Ssh),
            ("[SYNC:FORWARD:DONE:5]", SseLine::Notice),
            ("[CONTEXT:gpu]", SseLine::Notice),
            ("[EXIT:0", SseLine::Text("[EXIT:0".into())),
            (" [DONE]", SseLine::Text(" [DONE]".into())),
            ("hello", SseLine::Text("hello".into())),
        ] {
            assert_eq!(SseLine::parse(content), line, "{content}");
        }
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused_at_its_limit() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\ndata: first\ndata: ").await.unwrap();
            let mut sent = 0;
            while stream.write_all(&[b'x'; 64 << 10]).await.is_ok() {
                sent += 64 << 10;
            }
            sent
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let response = client.get(format!("http://{address}/")).send().await.unwrap();
        let mut stream = SseStream::new(response, "testing", Duration::from_secs(60));
        let first = stream.next().await.unwrap();
        assert_eq!(first, Some(SseLine::Text("first".to_owned())));
        let error = stream.next().await.unwrap_err();
        assert!(
            matches!(&error, WaferError::Http(HttpError::Cut { why, .. }) if why.contains("over")),
            "{error:?}"
        );
        assert!(stream.buffer.capacity() <= 4 * MAX_LINE, "{}", stream.buffer.capacity());
        drop(stream);
        // What was sent beyond the limit waits in the sockets' buffers only.
        assert!(server.await.unwrap() < MAX_LINE + (64 << 20));
    }
}
