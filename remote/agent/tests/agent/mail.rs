//! A connection over short commands, each of which may run twice.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use rgpu_agent::wire::write_message;
use rgpu_protocol::frame::MAGIC;
use rgpu_protocol::mail::{ANSWER_BEGIN, ANSWER_END, MailHead};
use serde_json::json;

use crate::client::{AGENT, Host};

/// Runs one command. Returns its header and bytes.
fn mail(host: &Host, words: &str, input: &[u8]) -> (MailHead, Vec<u8>) {
    let mut command = Command::new(AGENT);
    command.arg("mail").args(words.split(' ')).envs(&host.env);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(Base64::encode_string(input).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.trim().lines().collect();
    let (head, rest) = lines.split_first().unwrap();
    let (last, lines) = rest.split_last().unwrap();
    assert_eq!(*last, format!("{ANSWER_END} ab"));
    let head = head.strip_prefix(&format!("{ANSWER_BEGIN} ab ")).unwrap();
    (serde_json::from_str(head).unwrap(), Base64::decode_vec(&lines.concat()).unwrap())
}

/// Encodes messages as frames.
fn frames(messages: &[serde_json::Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| write_message(&mut bytes, message).unwrap());
    bytes
}

#[test]
fn bytes_that_are_brought_or_asked_for_twice_count_once() {
    let host = Host::new();
    let (head, first) = mail(&host, "c0 0 0 5000 ab begin", b"");
    assert!(first.starts_with(MAGIC) && !head.ended);
    // As if none of its bytes had arrived.
    let (_, mut said) = mail(&host, "c0 0 0 5000 ab begin", b"");
    assert!(said.starts_with(&first));
    let hello = frames(&[json!({"rgpu": 1}), json!({"do": "ping"})]);
    // In two pieces, the second one first and each twice.
    let (a, b) = hello.split_at(9);
    let late = std::thread::spawn({
        let (env, b) = (host.env.clone(), b.to_vec());
        move || {
            let host = Host { dir: tempfile::tempdir().unwrap(), env };
            mail(&host, "c0 9 0 0 ab", &b).0.taken
        }
    });
    std::thread::sleep(Duration::from_millis(200));
    mail(&host, "c0 0 0 0 ab", a);
    assert_eq!(late.join().unwrap(), hello.len() as u64);
    mail(&host, "c0 0 0 0 ab", a);
    assert_eq!(mail(&host, "c0 9 0 0 ab", b).0.taken, hello.len() as u64);
    let pongs = |bytes: &[u8]| String::from_utf8_lossy(bytes).matches("pong").count();
    let begun = Instant::now();
    while pongs(&said) == 0 {
        let (head, bytes) = mail(&host, &format!("c0 0 {} 2000 ab", said.len()), b"");
        assert_eq!(head.from, said.len() as u64);
        said.extend(bytes);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    let (_, more) = mail(&host, &format!("c0 0 {} 300 ab", said.len()), b"");
    assert_eq!(pongs(&[said.clone(), more].concat()), 1);
    // Confirmed bytes are not sent again.
    assert_eq!(mail(&host, "c0 0 0 0 ab", b"").1, b"");
    let (head, _) = mail(&host, &format!("c0 {} 0 0 ab eof", hello.len()), b"");
    assert!(!head.ended);
    let (head, _) = mail(&host, &format!("c0 0 {} 5000 ab", said.len()), b"");
    assert!(head.ended);
    let folder = host.home().join("mail/c0");
    while folder.exists() {
        assert!(begun.elapsed() < Duration::from_secs(40), "its folder stays");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_conversation_that_is_not_there_has_ended_and_bad_names_reach_nothing() {
    let host = Host::new();
    assert!(mail(&host, "c1 0 7 0 ab", b"").0.ended);
    for words in ["../x 0 0 0 ab begin", "c1 0 0 0 AB", "c1 x 0 0 ab", "c1 0 0 0 ab twice"] {
        let mut command = Command::new(AGENT);
        command.arg("mail").args(words.split(' ')).envs(&host.env).stdin(Stdio::null());
        assert!(!command.output().unwrap().status.success(), "{words}");
    }
    assert!(!host.home().join("mail").exists());
}
