//! The interface itself, as any HTTP client finds it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};

use super::worker::Worker;
use crate::host::{digest, submission};
use crate::laptop::{Laptop, status, wait_for};

const JSON: &str = "Content-Type: application/json";

/// A request that submits one shell script.
pub(super) fn plan(job: &str, script: &str) -> Vec<u8> {
    let mut plan = submission(&["/bin/sh", "-c", script], &[], &["out"]).plan;
    plan.job = job.to_owned();
    serde_json::to_vec(&json!({ "plan": plan })).unwrap()
}

pub(super) fn wait_until_ended(worker: &Worker, job: &str) -> Value {
    wait_for("the end of the job", || {
        let line = worker.ask(&format!("GET /v1/jobs/{job}"), &[], b"").json();
        line.get("ended").cloned()
    })
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
        for path in ["GET /v1/health", "GET /nowhere", "POST /v1/jobs"] {
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
fn the_same_submit_twice_is_one_job_and_another_plan_of_its_name_is_refused() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let body = plan("twice.1", "echo once >> ../../../ran; echo hello; echo file > out");
    let key = "Idempotency-Key: twice.1";
    let first = worker.ask("POST /v1/jobs", &[JSON, key], &body);
    assert_eq!((first.status, &first.json()["is"]), (201, &"following".into()));
    let second = worker.ask("POST /v1/jobs", &[JSON, key], &body);
    assert_eq!((second.status, &second.json()["is"]), (200, &"following".into()));
    assert_eq!(wait_until_ended(&worker, "twice.1"), json!({"how": "done"}));
    let third = worker.ask("POST /v1/jobs", &[JSON, key], &body);
    assert_eq!(third.status, 200);
    let ran = std::fs::read_to_string(laptop.path("agent/ran")).unwrap();
    assert_eq!(ran, "once\n");
    let other = worker.ask("POST /v1/jobs", &[JSON], &plan("twice.1", "true"));
    assert_eq!((other.status, other.code().as_str()), (409, "job_exists"));
    let unlike = worker.ask("POST /v1/jobs", &[JSON, "Idempotency-Key: x"], &body);
    assert_eq!((unlike.status, unlike.code().as_str()), (422, "bad_key"));
    let jobs = worker.ask("GET /v1/jobs", &[], b"").json();
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(worker.ask("DELETE /v1/jobs/twice.1", &[], b"").status, 200);
    assert_eq!(worker.ask("GET /v1/jobs/twice.1", &[], b"").code(), "no_such_job");
    // Whoever follows is told of what was asked for.
    let followed = worker.ask("GET /v1/jobs/twice.1/events?wait=60", &[], b"");
    assert_eq!((followed.status, &followed.json()["request"]), (404, &"attach".into()));
}

#[test]
fn events_are_told_as_a_document_as_a_stream_and_from_any_number_on() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let body = plan("told.1", "echo one; echo two >&2; sleep 1; echo three; echo file > out");
    worker.ask("POST /v1/jobs", &[JSON], &body);
    // Documents, each from where the one before ended.
    let (mut after, mut stdout, mut seqs) = (0, Vec::new(), Vec::new());
    loop {
        let reply =
            worker.ask(&format!("GET /v1/jobs/told.1/events?after={after}&wait=30"), &[], b"");
        assert_eq!(reply.status, 200);
        let told = reply.json();
        for event in told["events"].as_array().unwrap() {
            seqs.push(event["seq"].as_u64().unwrap());
        }
        for piece in told["output"].as_array().unwrap() {
            if piece["stream"] == "stdout" {
                assert_eq!(piece["offset"], stdout.len());
                stdout.extend(Base64::decode_vec(piece["data"].as_str().unwrap()).unwrap());
            }
        }
        assert!(told["next"].as_u64().unwrap() > after || told["ended"] == true);
        after = told["next"].as_u64().unwrap();
        if told["ended"] == true {
            break;
        }
    }
    assert_eq!(stdout, b"one\nthree\n");
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    // After the end there is nothing to wait for.
    let begun = Instant::now();
    let told =
        worker.ask(&format!("GET /v1/jobs/told.1/events?after={after}&wait=30"), &[], b"").json();
    assert_eq!((&told["ended"], told["events"].as_array().unwrap().len()), (&true.into(), 0));
    assert!(begun.elapsed() < Duration::from_secs(10));
    // Server-sent, from the second event on.
    let accept = "Accept: text/event-stream";
    let reply = worker.ask("GET /v1/jobs/told.1/events", &[accept, "Last-Event-ID: 1"], b"");
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let text = String::from_utf8(reply.body).unwrap();
    assert!(!text.contains("id: 1\n") && text.contains("id: 2\nevent: event\ndata: {"), "{text}");
    assert!(text.contains("event: output\ndata: {\"step\":\"run\""), "{text}");
    assert!(text.contains(&format!("id: {after}\n")), "{text}");
    for bad in ["after=x", "wait=-1", "had=1", "dance=1"] {
        let reply = worker.ask(&format!("GET /v1/jobs/told.1/events?{bad}"), &[], b"");
        assert_eq!((reply.status, reply.code().as_str()), (400, "bad_query"), "{bad}");
    }
}

#[test]
fn a_wait_for_news_ends_at_its_time() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    worker.ask("POST /v1/jobs", &[JSON], &plan("slow.1", "sleep 1000"));
    let told = worker.ask("GET /v1/jobs/slow.1/events?after=0&wait=5", &[], b"").json();
    let after = told["next"].as_u64().unwrap();
    let begun = Instant::now();
    let told =
        worker.ask(&format!("GET /v1/jobs/slow.1/events?after={}&wait=1", after + 5), &[], b"");
    let took = begun.elapsed();
    assert!((Duration::from_millis(900)..Duration::from_secs(20)).contains(&took), "{took:?}");
    assert_eq!((&told.json()["events"], &told.json()["ended"]), (&json!([]), &false.into()));
    assert_eq!(worker.ask("DELETE /v1/jobs/slow.1", &[], b"").code(), "running");
    assert_eq!(worker.ask("POST /v1/jobs/slow.1/cancel", &[], b"").json()["is"], "done");
    assert_eq!(wait_until_ended(&worker, "slow.1"), json!({"how": "cancelled"}));
}

#[test]
fn no_request_is_held_longer_than_platforms_allow_whatever_its_client_asks_for() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let mut plan: Value = serde_json::from_slice(&plan("slow.1", "sleep 1000")).unwrap();
    plan["plan"]["steps"][0]["timeout_s"] = json!(1000);
    let plan = serde_json::to_vec(&plan).unwrap();
    worker.ask("POST /v1/jobs", &[JSON], &plan);
    let told = worker.ask("GET /v1/jobs/slow.1/events?after=0&wait=3", &[], b"").json();
    let after = told["next"].as_u64().unwrap();
    let frames: &str = "Accept: application/vnd.rgpu.frames";
    let day = 86_400;
    let events = format!("GET /v1/jobs/slow.1/events?after={after}&wait={day}");
    // Longer than a day, not said at all, and in each form.
    let requests = [
        (events.clone(), vec![], &b""[..]),
        (events.clone(), vec![frames], b""),
        (events, vec!["Accept: text/event-stream"], b""),
        (format!("GET /v1/jobs/slow.1/events?after={after}"), vec![frames], b""),
        (format!("POST /v1/jobs?wait={day}"), vec![JSON, frames], &plan),
    ];
    std::thread::scope(|threads| {
        for (request, headers, body) in requests {
            let worker = &worker;
            threads.spawn(move || {
                let begun = Instant::now();
                let reply = worker.ask(&request, &headers, body);
                let took = begun.elapsed().as_secs();
                assert_eq!(reply.status, 200, "{request}");
                assert!((99..115).contains(&took), "{request} {headers:?}: {took} s");
            });
        }
    });
    worker.ask("POST /v1/jobs/slow.1/cancel", &[], b"");
    wait_until_ended(&worker, "slow.1");
}

#[test]
fn blobs_come_whole_packed_or_in_ranges_and_never_damaged() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    let bytes = b"some bytes that are a blob".repeat(1000);
    let name = digest(&bytes).to_string();
    let put = format!("PUT /v1/blobs/{name}");
    let head = |worker: &Worker| {
        let reply = worker.ask(&format!("HEAD /v1/blobs/{name}"), &[], b"");
        (reply.status, reply.header("upload-offset").unwrap().to_owned())
    };
    assert_eq!(head(&worker), (404, "0".into()));
    let total = bytes.len();
    let range = |from: usize, to: usize| format!("Content-Range: bytes {from}-{}/{total}", to - 1);
    let reply = worker.ask(&put, &[&range(0, 1000)], &bytes[..1000]);
    assert_eq!((reply.status, reply.header("upload-offset")), (202, Some("1000")));
    // A restarted server knows how far it came.
    let port = worker.stop(rustix::process::Signal::TERM);
    let worker = Worker::start_at(&laptop, port);
    assert_eq!(head(&worker), (404, "1000".into()));
    let reply = worker.ask(&put, &[&range(2000, 3000)], &bytes[2000..3000]);
    assert_eq!((reply.status, reply.header("upload-offset")), (409, Some("1000")));
    let reply = worker.ask(&put, &[&range(1000, total)], &bytes[1000..]);
    assert_eq!((reply.status, &reply.json()["is"]), (200, &"stored".into()));
    assert_eq!(head(&worker), (200, total.to_string()));
    let asked = json!({"blobs": [
        {"digest": name, "size": total}, {"digest": digest(b"no"), "size": 2},
    ]});
    let asked = serde_json::to_vec(&asked).unwrap();
    let lacks = worker.ask("POST /v1/blobs/missing", &[JSON], &asked).json();
    assert_eq!(lacks["digests"], json!([digest(b"no")]));

    let packed = zstd::bulk::compress(&bytes, 1).unwrap();
    let zstd = ["Content-Encoding: zstd", "Rgpu-Plain-Size: 26000"];
    assert_eq!(worker.ask(&put, &zstd, &packed).status, 200);
    let damaged = worker.ask(&format!("PUT /v1/blobs/{}", digest(b"other")), &[], &bytes);
    assert_eq!((damaged.status, damaged.code().as_str()), (422, "damaged_blob"));
    assert_eq!(worker.ask("PUT /v1/blobs/short", &[], b"x").code(), "bad_digest");
    assert_eq!(worker.ask(&put, &["Content-Range: bytes 5-2/9"], b"x").code(), "bad_range");
    assert_eq!(worker.ask(&put, &["Content-Encoding: gzip"], b"x").status, 415);
    let long = worker.ask(&put, &[], &vec![0; 5 << 20]);
    assert_eq!((long.status, long.code().as_str()), (413, "too_long"));
}

#[test]
fn a_file_is_sent_in_ranges_and_a_changed_one_is_noticed() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    worker.ask(
        "POST /v1/jobs",
        &[JSON],
        &plan("file.1", "printf 0123456789 > out; ln -s /etc/passwd link"),
    );
    wait_until_ended(&worker, "file.1");
    let get = "GET /v1/jobs/file.1/artifacts/out";
    let whole = worker.ask(get, &[], b"");
    assert_eq!((whole.status, &*whole.body), (200, &b"0123456789"[..]));
    assert_eq!(whole.header("rgpu-sha256"), Some(digest(b"0123456789").as_str()));
    assert_eq!(whole.header("content-length"), Some("10"));
    let tag = whole.header("etag").unwrap();
    let part = worker.ask(get, &["Range: bytes=3-5", &format!("If-Range: {tag}")], b"");
    assert_eq!((part.status, &*part.body), (206, &b"345"[..]));
    assert_eq!(part.header("content-range"), Some("bytes 3-5/10"));
    assert_eq!(worker.ask(get, &["Range: bytes=10-"], b"").status, 416);
    assert_eq!(worker.ask(get, &[&format!("If-None-Match: {tag}")], b"").status, 304);

    let file = laptop.path("agent/jobs/file.1/work/out");
    std::fs::write(&file, "abcdefghij").unwrap();
    let other = worker.ask(get, &["Range: bytes=3-5", &format!("If-Range: {tag}")], b"");
    assert_eq!((other.status, &*other.body), (200, &b"abcdefghij"[..]));
    let changed = worker.ask(get, &["Range: bytes=3-5", &format!("If-Match: {tag}")], b"");
    assert_eq!((changed.status, changed.code().as_str()), (412, "changed"));

    for path in ["link", "../plan.json", "%2e%2e/plan.json", "no", "a%00b", "%ff"] {
        let reply = worker.ask(&format!("GET /v1/jobs/file.1/artifacts/{path}"), &[], b"");
        assert!([400, 404].contains(&reply.status), "{path}: {reply:?}");
        reply.code();
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_in_the_same_form() {
    let laptop = Laptop::new();
    let worker = Worker::start(&laptop);
    for (request, body, status) in [
        ("GET /", &b""[..], 404),
        ("GET /v1/jobs/no-such", b"", 404),
        ("POST /v1/jobs/no-such/cancel", b"", 404),
        ("POST /v1/jobs/no-such/stdin", b"x", 404),
        ("POST /v1/jobs/no-such/stdin?eof=maybe", b"x", 400),
        ("GET /v1/jobs/%ff", b"", 400),
        ("POST /v1/jobs", b"{", 400),
        ("POST /v1/jobs", b"{\"plan\":{}}", 400),
        ("POST /v1/jobs", b"{\"plan\":{\"job\":\"../x\",\"title\":\"\",\"steps\":[]}}", 422),
        ("POST /v1/facts", b"[]", 400),
        ("PUT /v1/jobs", b"", 405),
        ("POST /v1/jobs?dance=1", b"{}", 400),
    ] {
        let reply = worker.ask(request, &[JSON], body);
        assert_eq!(reply.status, status, "{request}: {reply:?}");
        reply.code();
    }
    let long = vec![b' '; 2 << 20];
    assert_eq!(worker.ask("POST /v1/jobs", &[JSON], &long).status, 413);
    let document = worker.ask("GET /v1/openapi.json", &[], b"").json();
    assert_eq!(document["openapi"], "3.1.0");
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
        b"PUT /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
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
