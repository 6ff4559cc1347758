//! Treats any lines as the frames that a client sends to the agent's connection. It must end when
//! they end, and write nothing outside its folder.
//!
//! The first character of a line gives the frame's kind: `m` a message, `b` bytes of a blob, `o`
//! bytes of input. Nothing is run: each plan waits for a blob that never comes, and probes only
//! look for files.
#![no_main]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use rgpu_agent::service::Service;
use rgpu_agent::{connection, root};
use rgpu_protocol::frame::{self, FrameKind, MAGIC};
use rgpu_protocol::plan::InputFile;
use rgpu_protocol::{Digest, ToAgent};

/// A digest that no bytes have.
fn no_blob() -> Option<Digest> {
    "0".repeat(64).try_into().ok()
}

/// The message without the parts that would run a program; `None`: it is not one.
fn harmless(line: &[u8]) -> Option<Vec<u8>> {
    let mut message: ToAgent = match serde_json::from_slice(line) {
        Ok(message) => message,
        // Refused as it is, since the agent reads it with the same parser.
        Err(_) => return Some(line.to_vec()),
    };
    match &mut message {
        ToAgent::Submit { plan, .. } => plan.files.push(InputFile {
            path: "in/never".into(),
            size: 1,
            digest: no_blob()?,
            blobs: vec![no_blob()?],
            piece_bytes: 1 << 20,
            executable: false,
        }),
        ToAgent::Facts { probes } => {
            for probe in probes {
                probe.run = None;
                probe.read = false;
            }
        }
        ToAgent::Setup { .. } => return None,
        ToAgent::Blob { digest, .. } if Some(&*digest) == no_blob().as_ref() => return None,
        _ => {}
    }
    serde_json::to_vec(&message).ok()
}

fn frames(lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut add = |kind, body: &[u8]| {
        let body = &body[..body.len().min(frame::MAX_BODY)];
        out.extend(frame::header(kind, body.len()));
        out.extend(body);
    };
    add(FrameKind::Message, br#"{"rgpu":1}"#);
    for line in lines.split(|byte| *byte == b'\n') {
        match line.split_first() {
            Some((b'm', body)) => {
                if let Some(message) = harmless(body) {
                    add(FrameKind::Message, &message);
                }
            }
            Some((b'b', body)) => add(FrameKind::Blob, body),
            Some((b'o', body)) => add(FrameKind::Output, body),
            _ => {}
        }
    }
    out
}

/// The folders below `/tmp` of this process: the agent's, and one that must stay empty.
fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("rgpu-fuzz-{}-{name}", std::process::id()))
}

fuzz_target!(|lines: &[u8]| {
    let home = folder("agent");
    let candidates = root::candidates(Some(home.clone()), None, None, 0);
    let Ok((agent, client)) = UnixStream::pair() else { return };
    let Ok(input) = agent.try_clone() else { return };
    let (input, output) = (File::from(OwnedFd::from(input)), File::from(OwnedFd::from(agent)));
    let bytes = frames(lines);
    let answers = std::thread::scope(|threads| {
        threads.spawn(|| drop(connection::serve_over(Service::open(&candidates), input, output)));
        let mut reader = client.try_clone().ok();
        let answers = threads.spawn(move || {
            let mut answers = Vec::new();
            if let Some(reader) = &mut reader {
                let _ = reader.read_to_end(&mut answers);
            }
            answers
        });
        // The agent may hang up before it has read all.
        let _ = (&client).write_all(&bytes);
        let _ = client.shutdown(std::net::Shutdown::Write);
        answers.join().unwrap_or_default()
    });
    // All that it says is frames with messages or bytes.
    let mut rest = answers.strip_prefix(MAGIC).unwrap_or_default();
    while let Ok(Some((frame, used))) = frame::parse(rest) {
        if frame.kind == FrameKind::Message {
            assert!(serde_json::from_slice::<serde_json::Value>(frame.body).is_ok());
        }
        rest = &rest[used..];
    }
    let _ = std::fs::remove_dir_all(&home);
});
