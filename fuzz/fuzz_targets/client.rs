//! Treats any lines as the frames that an agent sends: a real client connects, asks, follows a job,
//! fetches a file and asks again. It must end with an answer or an error, write nothing but that
//! file, and return no output beyond the job's limit.
//!
//! The first character of a line gives the frame's kind: `m` a message, `b` bytes of a blob, `o`
//! bytes of output, `#` bytes without a header, in hexadecimal digits.
#![no_main]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use rgpu_protocol::frame::{self, FrameKind};
use rgpu_protocol::plan::Limits;
use rgpu_protocol::{Digest, EventBody};
use rgpu_remote::client::{JobMessage, StreamOpener};
use rgpu_remote::options::NoPrompt;
use rgpu_remote::stream::{AgentStream, FrameReader, StreamEnd};
use rgpu_remote::{
    ConnectOptions, HostLink, ReconnectPolicy, Remote, RemoteError, RemoteFile, RemoteSpec,
    Session, UnknownHostPolicy,
};

/// The limit on each output stream of the job, in bytes.
const LOG_BYTES: u64 = 64;

/// An agent that can be reached once.
struct RecordedRemote {
    frames: Vec<u8>,
    reached: AtomicBool,
}

#[async_trait::async_trait]
impl Remote for RecordedRemote {
    fn name(&self) -> &str {
        "recorded"
    }

    fn transport(&self) -> &'static str {
        "recorded"
    }

    async fn connect(&self, _: &ConnectOptions) -> Result<Session, RemoteError> {
        if self.reached.swap(true, Ordering::Relaxed) {
            return Err(RemoteError::LinkCut { doing: "connecting", why: String::new() });
        }
        let hello = br#"{"rgpu":1,"features":["stdin_offset"]}"#;
        let mut bytes = frame::header(FrameKind::Message, hello.len()).to_vec();
        bytes.extend(hello);
        bytes.extend(&self.frames);
        let wire = AgentStream {
            reader: FrameReader::new(Box::new(std::io::Cursor::new(bytes))),
            writer: Box::new(tokio::io::sink()),
            ending: StreamEnd::default(),
        };
        Session::start(wire, Arc::new(NoStreams), &RemoteSpec::local()).await
    }
}

struct NoStreams;

#[async_trait::async_trait]
impl StreamOpener for NoStreams {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        Err(RemoteError::LinkCut { doing: "connecting", why: String::new() })
    }
}

/// The frames that the lines describe.
fn frames(lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some((kind, body)) = line.split_first() else { continue };
        let kind = match kind {
            b'm' => FrameKind::Message,
            b'b' => FrameKind::Blob,
            b'o' => FrameKind::Output,
            _ => {
                let digits = body.chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok());
                out.extend(digits.filter_map(|pair| u8::from_str_radix(pair, 16).ok()));
                continue;
            }
        };
        out.extend(frame::header(kind, body.len().min(frame::MAX_BODY)));
        out.extend(&body[..body.len().min(frame::MAX_BODY)]);
    }
    out
}

async fn converse(lines: &[u8]) -> Result<(), RemoteError> {
    let recorded = RecordedRemote { frames: frames(lines), reached: AtomicBool::new(false) };
    let options = ConnectOptions {
        agent: "unused".into(),
        unknown_host_policy: UnknownHostPolicy::Refuse,
        user_prompt: Arc::new(NoPrompt),
        run: String::new(),
        host_request: Default::default(),
    };
    let at_once =
        ReconnectPolicy { first: Duration::ZERO, longest: Duration::ZERO, total: Duration::ZERO };
    let mut link =
        HostLink::connect(Arc::new(recorded), options).await?.with_reconnect_policy(at_once);
    link.facts(&[]).await?;
    let limits = Limits { log_bytes: LOG_BYTES, ..Limits::default() };
    link.attach("run.1", &limits, 1, &[]).await?;
    let (mut seq, mut printed) = (0, std::collections::BTreeMap::<_, u64>::new());
    let mut announced = None;
    while let Some(message) = link.next().await? {
        match message {
            JobMessage::Event(event) => {
                seq += 1;
                assert_eq!(event.seq, seq);
                if let EventBody::Artifact { .. } = event.body {
                    announced = RemoteFile::from_event("run.1", &event.body);
                }
            }
            JobMessage::Output { step, stream, offset, bytes } => {
                let had = printed.entry((step, stream)).or_default();
                assert_eq!(offset, *had);
                *had += bytes.len() as u64;
                assert!(*had <= LOG_BYTES);
            }
        }
    }
    if let Some(file) = announced.filter(|file| file.size <= 1 << 20) {
        let folder = std::env::temp_dir().join(format!("rgpu-fuzz-{}", std::process::id()));
        let _ = std::fs::create_dir(&folder);
        let dest = folder.join("file");
        if link.fetch(&file, &dest, None, &|_| ()).await.is_ok() {
            let bytes = std::fs::read(&dest).unwrap_or_default();
            assert_eq!(bytes.len() as u64, file.size);
            assert!(file.composite.is_some() || Digest::sha256(&bytes) == file.digest);
        }
        let others = std::fs::read_dir(&folder).map_or(0, |entries| {
            entries
                .flatten()
                .filter(|entry| {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    name != "file" && !(name.starts_with(".file.") && name.ends_with(".part"))
                })
                .count()
        });
        assert_eq!(others, 0);
        let _ = std::fs::remove_dir_all(&folder);
    }
    link.jobs().await.map(drop)
}

fuzz_target!(|lines: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let Ok(runtime) = runtime
        && let Err(error) = runtime.block_on(converse(lines))
    {
        drop(error.to_string());
    }
});
