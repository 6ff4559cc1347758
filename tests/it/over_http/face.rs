//! The interface itself, as any HTTP client finds it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rgpu_protocol::frame::{self, FrameKind, MAGIC};
use serde_json::{Value, json};

use super::worker::Worker;
use crate::laptop::{Laptop, status, wait_for};

/// Messages as frames.
fn frames(messages: &[Value]) -> Vec<u8> {
    let frame = |message: &Value| {
        let body = message.to_string().into_bytes();
        [&frame::header(FrameKind::Message, body.len())[..], &body].concat()
    };
    messages.iter().flat_map(frame).collect()
}

#[test]
fn nobody_gets_in_without_the_token_under_another_name_or_from_a_web_page() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let token = format!("Authorization: Bearer {}", worker.token);
    let host = "Host: 127.0.0.1";
    for (headers, status, code) in [
        (&[host][..], 401, "no_token"),
        (&[host, "Authorization: Bearer wrong"], 401, "wrong_token"),
        (&[host, "Authorization: Basic eDp5"], 401, "no_token"),
        (&[host, "Modal-Key: a", "Modal-Secret: b"], 401, "wrong_token"),
        (&[&token], 400, "no_host"),
        (&["Host: evil.example", &token], 421, "wrong_host"),
        (&[host, "Host: evil.example", &token], 400, "two_hosts"),
        (&[host, host, &token], 400, "two_hosts"),
        (&[host, &token, "Origin: http://evil.example"], 403, "foreign_origin"),
        (&[host, &token, "Origin: null"], 403, "foreign_origin"),
    ] {
        for path in ["GET /v1/health", "GET /nowhere", "POST /v1/mail/ab"] {
            let reply = worker.ask_as(path, headers, b"");
            assert_eq!((reply.status, reply.code().as_str()), (status, code), "{headers:?}");
        }
    }
    for uri in ["http://evil.example", "http://127.0.0.1:1", "http://x@127.0.0.1"] {
        let reply = worker.ask_as(&format!("GET {uri}/v1/health"), &[host, &token], b"");
        assert_eq!((reply.status, reply.code().as_str()), (400, "two_hosts"), "{uri}");
        let named = uri.replace("http://", "Host: ");
        let reply = worker.ask_as(&format!("GET {uri}/v1/health"), &[&named, &token], b"");
        assert_eq!((reply.status, reply.code().as_str()), (400, "two_hosts"), "{uri}");
    }
    let good = worker.ask_as("GET /v1/health", &[host, &token, "Origin: http://127.0.0.1"], b"");
    assert_eq!((good.status, &good.json()["rgpu"]), (200, &1.into()));
    // Guessing ends; who has the token is not kept out.
    let tries: Vec<u16> = (0..40)
        .map(|_| worker.ask_as("GET /v1/health", &[host, "Authorization: Bearer x"], b"").status)
        .collect();
    assert_eq!(tries.last(), Some(&429));
    assert_eq!(worker.ask("GET /v1/health", &[], b"").status, 200);
}

#[test]
fn a_token_that_others_can_read_starts_no_worker() {
    let laptop = Laptop::new();
    drop(Worker::start(&laptop));
    let token = laptop.path("token");
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let line = format!("worker --listen 127.0.0.1:0 --token-file {}", token.display());
    let output = laptop.run(&line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("error: others can read the token"), "{said}");
    assert!(said.contains("chmod 600"), "{said}");
    assert_eq!(status(&output), 3);
    std::fs::write(&token, "short\n").unwrap();
    std::fs::set_permissions(&token, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let output = laptop.run(&line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(status(&output) == 3 && said.contains("it has 5 characters"), "{said}");
}

#[test]
fn a_second_worker_on_a_port_that_is_taken_says_so_and_writes_nothing() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let port = worker.port;
    let token = laptop.path("second");
    let line = format!("worker --listen 127.0.0.1:{port} --token-file {}", token.display());
    let output = laptop.run(&line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status(&output), 4, "{said}");
    assert!(said.starts_with("error: another program listens at"), "{said}");
    assert!(said.contains("help: ") && said.contains("--listen"), "{said}");
    assert!(!token.exists());
    let output = laptop.run(&format!("{line} --json"));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["error"]["code"], "address_in_use");
    // An address that no machine has, and a port that is free again.
    let output = laptop.run("worker --listen 192.0.2.1:8790");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(status(&output) == 4 && said.contains("not an address of this machine"), "{said}");
    worker.stop(rustix::process::Signal::TERM);
    Worker::start_at(&laptop, port);
}

#[test]
fn bytes_that_are_brought_or_asked_for_twice_count_once() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let (head, first) = worker.mail("ab?begin=true&wait_ms=5000", b"");
    assert!(first.starts_with(MAGIC) && !head.ended);
    // As if none of its bytes had arrived.
    let (_, mut came) = worker.mail("ab?begin=true&wait_ms=5000", b"");
    assert!(came.starts_with(&first));
    let requests = frames(&[json!({"rgpu": 1}), json!({"do": "ping"})]);
    // In two pieces, the second one first and each twice.
    let (a, b) = requests.split_at(9);
    std::thread::scope(|threads| {
        let late = threads.spawn(|| worker.mail("ab?take=9", b).0.taken);
        std::thread::sleep(Duration::from_millis(200));
        worker.mail("ab", a);
        assert_eq!(late.join().unwrap(), requests.len() as u64);
    });
    worker.mail("ab", a);
    assert_eq!(worker.mail("ab?take=9", b).0.taken, requests.len() as u64);
    let pongs = |bytes: &[u8]| String::from_utf8_lossy(bytes).matches("pong").count();
    while pongs(&came) == 0 {
        let (head, bytes) = worker.mail(&format!("ab?from={}&wait_ms=2000", came.len()), b"");
        assert_eq!(head.from, came.len() as u64);
        came.extend(bytes);
    }
    let (_, more) = worker.mail(&format!("ab?from={}&wait_ms=300", came.len()), b"");
    assert_eq!(pongs(&[came.clone(), more].concat()), 1);
    // The end of the client's stream is the end of the agent.
    worker.mail(&format!("ab?take={}&eof=true", requests.len()), b"");
    let (head, _) = worker.mail(&format!("ab?from={}&wait_ms=5000", came.len()), b"");
    assert!(head.ended);
    // One that was never there has ended too.
    let (head, bytes) = worker.mail("cd?from=7", b"");
    assert!(head.ended && head.from == 7 && bytes.is_empty());
}

#[test]
fn a_request_waits_for_news_to_its_time_and_never_longer_than_platforms_allow() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let (_, greeting) = worker.mail("ab?begin=true&wait_ms=5000", b"");
    for (wait_ms, least, most) in [(1000, 1, 20), (86_400_000, 59, 80)] {
        let begun = Instant::now();
        let query = format!("ab?from={}&wait_ms={wait_ms}", greeting.len());
        let (head, bytes) = worker.mail(&query, b"");
        let took = begun.elapsed();
        assert!(!head.ended && bytes.is_empty(), "{}", bytes.escape_ascii());
        let expected = Duration::from_secs(least)..Duration::from_secs(most);
        assert!(expected.contains(&took), "{took:?}");
    }
}

#[test]
fn a_client_that_is_gone_leaves_no_agent_behind() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", worker.id())).unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks.filter_map(name).filter(|name| ["agent\n", "keeper\n"].contains(&&**name)).count()
    };
    worker.mail("ab?begin=true&wait_ms=5000", b"");
    assert_eq!(threads(), 2);
    worker.mail("ab?eof=true", b"");
    wait_for("the end of one that said so", || (threads() == 0).then_some(()));
    worker.mail("cd?begin=true&wait_ms=5000", b"");
    assert_eq!(threads(), 2);
    std::thread::sleep(Duration::from_secs(50));
    wait_for("the end of one that said nothing", || (threads() == 0).then_some(()));
}

#[test]
fn requests_that_make_no_sense_are_refused_in_the_same_form() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    for (request, body, status) in [
        ("GET /", &b""[..], 404),
        ("GET /v1/mail/ab", b"", 405),
        ("POST /v1/health", b"", 405),
        ("POST /v1/mail/", b"", 404),
        ("POST /v1/mail/..", b"", 400),
        ("POST /v1/mail/%ff", b"", 400),
        ("POST /v1/mail/AB?begin=true", b"", 400),
        ("POST /v1/mail/ab?take=-1", b"", 400),
        ("POST /v1/mail/ab?eof=maybe", b"", 400),
        ("POST /v1/mail/ab?dance=1", b"", 400),
    ] {
        let reply = worker.ask(request, &[], body);
        assert_eq!(reply.status, status, "{request}: {reply:?}");
        reply.code();
    }
    let long = worker.ask("POST /v1/mail/ab", &[], &vec![0; (4 << 20) + 1]);
    assert_eq!((long.status, long.code().as_str()), (413, "too_long"));
}

#[test]
fn clients_that_speak_too_slowly_are_let_go() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let mut slow = TcpStream::connect(("127.0.0.1", worker.port)).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let begun = Instant::now();
    let mut letters =
        "GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX: ".bytes().chain(std::iter::repeat(b'x'));
    loop {
        let gone = slow.write_all(&[letters.next().unwrap()]).is_err();
        let mut answer = [0; 100];
        let ended = matches!(slow.read(&mut answer), Ok(n) if n < 100);
        if gone || ended {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it is still listened to");
    }
    assert_eq!(worker.ask("GET /v1/health", &[], b"").status, 200);
}

/// More connections than the worker keeps, and what one of each has sent.
fn crowd(worker: &Worker, sent: &[u8]) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect(("127.0.0.1", worker.port)).unwrap();
        // The oldest are closed while the last come.
        let _ = stream.write_all(sent);
        stream
    };
    (0..1050).map(connect).collect()
}

#[test]
fn connections_that_show_no_token_keep_nobody_out() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    // Who has shown the token keeps the connection.
    let mut client = TcpStream::connect(("127.0.0.1", worker.port)).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let request = format!(
        "GET /v1/health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        worker.token
    );
    let mut ask_again = || {
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 4096];
        let n = client.read(&mut answer).unwrap();
        assert!(answer[..n].starts_with(b"HTTP/1.1 200"), "{}", answer[..n].escape_ascii());
    };
    ask_again();
    for sent in [
        &b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX: x"[..],
        b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PUT /v1/mail/ab HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    ] {
        let _crowd = crowd(&worker, sent);
        let begun = Instant::now();
        assert_eq!(worker.ask("GET /v1/health", &[], b"").status, 200);
        // The worker gives an incomplete request 15 s. An answer that waited for those of the crowd
        // would take that long.
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        ask_again();
    }
}
