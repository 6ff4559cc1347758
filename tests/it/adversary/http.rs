//! A hostile HTTP server: answers that are false in status, headers, length, encoding and target,
//! to the first request and to later ones. It plays a worker, an app on Modal and Wafer's service.
//! The token goes to no other server.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use serde_json::json;

use super::invalid_messages::ESCAPES;
use super::provider_lies;
use crate::floods::{MAX_KIB, add_remote_to_config, first_mail, peak_kib};
use crate::laptop::{Laptop, status, wait_for, words};

/// A command that has not ended by itself after this time gets one signal.
const SIGNAL_AFTER: Duration = Duration::from_secs(2);

/// How long a command may take to end after a signal, whatever the machine does beside it.
const STOPPED: Duration = Duration::from_secs(10);

/// What the server plays. Each kind has its own client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PlayedServer {
    Worker,
    Modal,
    Wafer,
}

impl PlayedServer {
    const ALL: [Self; 3] = [Self::Worker, Self::Modal, Self::Wafer];

    /// The answer to an honest first request.
    fn honest(self) -> Vec<u8> {
        match self {
            Self::Worker | Self::Modal => first_mail(),
            Self::Wafer => whole("200 OK", "", &provider_lies::workspace(json!({}))),
        }
    }

    /// Makes the server at `port` known to the laptop as `box`.
    fn know(self, laptop: &Laptop, port: u16) {
        match self {
            Self::Worker => add_remote_to_config(laptop, port),
            Self::Modal => provider_lies::know_modal(laptop, port),
            Self::Wafer => provider_lies::know_wafer(laptop, port),
        }
    }
}

/// What the server sends after the request.
#[derive(Clone)]
pub(super) enum Answer {
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// The first bytes, then the second ones again and again.
    Endless(Vec<u8>, Vec<u8>),
    /// The first bytes, then one byte of the second ones every 100 ms.
    Slow(Vec<u8>, Vec<u8>),
}

/// Every lie, with its name. `other` is the address of another server.
fn answers(other: u16) -> Vec<(String, Answer)> {
    let mut all = Vec::new();
    let mut add = |name: &str, answer: Answer| all.push((name.to_owned(), answer));
    let head = |status: &str, more: &str| format!("HTTP/1.1 {status}\r\n{more}\r\n").into_bytes();
    for status in [
        204, 206, 301, 304, 400, 401, 403, 404, 405, 409, 410, 413, 416, 418, 429, 500, 502, 503,
        504, 999,
    ] {
        let text = format!("{status} {ESCAPES}");
        let answer = whole(&format!("{status} Nothing"), "", text.as_bytes());
        add(&format!("status {status}"), Answer::Bytes(answer));
    }
    for status in [301, 302, 303, 307, 308] {
        for to in [
            format!("http://127.0.0.1:{other}/v1/health"),
            format!("//localhost:{other}/"),
            "/v1/health".into(),
            "file:///etc/passwd".into(),
        ] {
            let answer = whole(&format!("{status} Moved"), &format!("Location: {to}\r\n"), b"");
            let to = to.replace(&other.to_string(), "PORT");
            add(&format!("status {status} to {to}"), Answer::Bytes(answer));
        }
    }
    let json = br#"{"code":"x\u001b]0;owned\u0007","text":"\u001b[2Ja\nerror: forged","request":"\u009b2J"}"#;
    add(
        "an error with terminal commands",
        Answer::Bytes(whole("400 Bad", "Content-Type: application/json\r\n", json)),
    );
    add(
        "a retry after years",
        Answer::Bytes(whole("429 Later", "Retry-After: 99999999999\r\n", b"")),
    );
    add("a body that is no JSON", Answer::Bytes(whole("200 OK", "", ESCAPES.as_bytes())));
    add("an empty body", Answer::Bytes(whole("200 OK", "", b"")));
    add(
        "another program's hello",
        Answer::Bytes(whole(
            "200 OK",
            "",
            br#"{"rgpu":99,"required":["\u001b[2J"],"version":"\u001b]0;owned\u0007"}"#,
        )),
    );
    add("a gzip bomb", Answer::Bytes(whole("200 OK", "Content-Encoding: gzip\r\n", &bomb())));
    add("a body that is too short", Answer::Bytes(head("200 OK", "Content-Length: 1000\r\n")));
    add(
        "a body of 2^63 bytes",
        Answer::Endless(
            head("200 OK", "Content-Length: 9223372036854775807\r\n"),
            vec![b' '; 64 << 10],
        ),
    );
    add("a negative length", Answer::Bytes(head("200 OK", "Content-Length: -1\r\n")));
    add("two lengths", Answer::Bytes(head("200 OK", "Content-Length: 1\r\nContent-Length: 2\r\n")));
    add(
        "a length and chunks",
        Answer::Bytes(
            [
                head("200 OK", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
                b"0\r\n\r\n".to_vec(),
            ]
            .concat(),
        ),
    );
    for (name, chunks) in [
        ("no number", "zz\r\n"),
        ("a chunk over 2^64", "fffffffffffffffff\r\n"),
        ("no end", "5\r\nab"),
        ("a negative chunk", "-1\r\n"),
    ] {
        let chunked = head("200 OK", "Transfer-Encoding: chunked\r\n");
        add(&format!("chunks: {name}"), Answer::Bytes([&chunked, chunks.as_bytes()].concat()));
    }
    add(
        "chunks without end",
        Answer::Endless(
            head("200 OK", "Transfer-Encoding: chunked\r\n"),
            b"1\r\n \r\n".repeat(10_000),
        ),
    );
    add(
        "an endless body",
        Answer::Endless(head("200 OK", "Connection: close\r\n"), vec![b' '; 64 << 10]),
    );
    add(
        "an endless header",
        Answer::Endless(b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; 64 << 10]),
    );
    add(
        "endless headers",
        Answer::Endless(b"HTTP/1.1 200 OK\r\n".to_vec(), b"X: y\r\n".repeat(10_000)),
    );
    add(
        "endless interim answers",
        Answer::Endless(Vec::new(), b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000)),
    );
    add(
        "a switch of protocols",
        Answer::Bytes(head("101 Switching", "Upgrade: other\r\nConnection: upgrade\r\n")),
    );
    add("no HTTP", Answer::Bytes(ESCAPES.as_bytes().to_vec()));
    add("another version of HTTP", Answer::Bytes(b"HTTP/9.9 200 OK\r\n\r\n".to_vec()));
    add("the end", Answer::Bytes(Vec::new()));
    add(
        "a slow body",
        Answer::Slow(head("200 OK", "Content-Length: 100000\r\n"), vec![b' '; 100_000]),
    );
    add("slow headers", Answer::Slow(Vec::new(), b"HTTP/1.1 200 OK\r\n".repeat(1000)));
    add(
        "a header with terminal commands",
        Answer::Bytes(whole("200 \u{1b}[2J", "X-Y: \u{1b}]0;owned\u{7}\r\n", b"{}")),
    );
    all
}

/// A mebibyte that unpacks to a gibibyte.
fn bomb() -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        packed.write_all(&vec![0; 1 << 20]).unwrap();
    }
    packed.finish().unwrap()
}

/// An answer with this status line, further header lines, and a whole body.
pub(super) fn whole(status: &str, more: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n");
    [head.as_bytes(), body].concat()
}

/// Serves `honest` honest answers, then `answer` to everything; returns the port.
fn serve(played: PlayedServer, answer: Answer, honest: usize, over: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let left = Arc::new(AtomicUsize::new(honest));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if over.load(Ordering::Relaxed) {
                return;
            }
            let (answer, left, over) = (answer.clone(), left.clone(), over.clone());
            std::thread::spawn(move || {
                // The client hangs up some day.
                let _ = respond(stream, played, &answer, &left, &over);
            });
        }
    });
    port
}

fn respond(
    mut stream: TcpStream,
    played: PlayedServer,
    answer: &Answer,
    left: &AtomicUsize,
    over: &AtomicBool,
) -> std::io::Result<()> {
    let mut head = BufReader::new(stream.try_clone()?);
    let (mut request, mut line) = (String::new(), String::new());
    head.read_line(&mut request)?;
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    let honest = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if honest.is_ok() {
        return stream.write_all(&played.honest());
    }
    // What the client still sends is read, so that it receives our answer.
    std::thread::spawn(move || drop(std::io::copy(&mut head, &mut std::io::sink())));
    let over = || over.load(Ordering::Relaxed);
    match answer {
        Answer::Bytes(bytes) => stream.write_all(bytes),
        Answer::Endless(first, more) => {
            stream.write_all(first)?;
            while !over() {
                stream.write_all(more)?;
            }
            Ok(())
        }
        Answer::Slow(first, more) => {
            stream.write_all(first)?;
            for byte in more {
                if over() {
                    break;
                }
                stream.write_all(&[*byte])?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        }
    }
}

/// Runs a command against the server; returns its end, or the promise that was broken.
fn run(played: PlayedServer, answer: &Answer, honest: usize) -> Result<char, String> {
    let laptop = Laptop::new();
    let over = Arc::new(AtomicBool::new(false));
    played.know(&laptop, serve(played, answer.clone(), honest, over.clone()));
    let mut command = laptop.rgpu(words("remote check box"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (begun, mut peak, mut asked) = (Instant::now(), 0, None);
    let code = wait_for("the end of the command", || {
        peak = peak.max(peak_kib(&child));
        if asked.is_none() && begun.elapsed() > SIGNAL_AFTER {
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            asked = Some(Instant::now());
        }
        child.try_wait().unwrap()
    });
    over.store(true, Ordering::Relaxed);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    let code = status(&std::process::Output { status: code, ..output });
    if asked.is_some_and(|asked| asked.elapsed() > STOPPED) {
        return Err(format!("it took {:?} to end", asked.unwrap().elapsed()));
    }
    if peak > MAX_KIB {
        return Err(format!("{peak} KiB"));
    }
    if said.contains(['\u{1b}', '\u{9b}', '\u{202e}', '\u{7}']) || said.contains("\nerror: forged")
    {
        return Err(format!("terminal commands: {said:?}"));
    }
    if said.contains("defect of its own") {
        return Err(said);
    }
    match (code, asked) {
        (130, Some(_)) => Ok('s'),
        // It may have been refused while the signal was on its way.
        (2..=8, _) => Ok('r'),
        _ => Err(format!("status {code}: {said}")),
    }
}

#[test]
fn no_answer_of_a_server_breaks_a_promise() {
    let strangers = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = strangers.local_addr().unwrap().port();
    strangers.set_nonblocking(true).unwrap();
    let mut cases = VecDeque::new();
    for played in PlayedServer::ALL {
        let mut answers = answers(other);
        if played == PlayedServer::Wafer {
            answers.extend(provider_lies::of_wafer());
        }
        for (name, answer) in answers {
            cases.extend([(played, name.clone(), 0, answer.clone()), (played, name, 1, answer)]);
        }
    }
    let cases = Mutex::new(cases);
    let (ends, broken) = (Mutex::new(BTreeMap::<_, BTreeMap<_, _>>::new()), Mutex::new(Vec::new()));
    std::thread::scope(|threads| {
        // Most of them wait.
        for _ in 0..12 {
            threads.spawn(|| {
                loop {
                    let Some((played, name, honest, answer)) = cases.lock().unwrap().pop_front()
                    else {
                        return;
                    };
                    match run(played, &answer, honest) {
                        Ok(end) => {
                            let mut ends = ends.lock().unwrap();
                            ends.entry(name).or_default().insert((played, honest), end);
                        }
                        Err(why) => {
                            let case = format!("{played:?}: {name} ({honest}): {why}");
                            broken.lock().unwrap().push(case);
                        }
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    // A redirect is not followed to another server, so the token does not get there.
    assert!(strangers.accept().is_err(), "another server was asked");
    // Printed only: on a slow machine the signal may come before an error.
    let mut text = "r: refused, s: waits until a signal; first and second answer\n".to_owned();
    write!(text, "{:<46}", "").unwrap();
    for played in PlayedServer::ALL {
        write!(text, "{:<8}", format!("{played:?}").to_lowercase()).unwrap();
    }
    for (name, ends) in ends.into_inner().unwrap() {
        write!(text, "\n{name:<46}").unwrap();
        for played in PlayedServer::ALL {
            let end = |honest| ends.get(&(played, honest)).copied().unwrap_or('-');
            write!(text, "{} {}     ", end(0), end(1)).unwrap();
        }
    }
    eprintln!("{text}");
}
