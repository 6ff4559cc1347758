//! Hosts that never stop talking: rgpu takes little memory, and one signal ends it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rgpu_protocol::frame::{self, FrameKind, MAGIC};
use rgpu_protocol::{Event, EventBody, FromAgent, Hello, PROTOCOL, Stream};
use rustix::process::{Pid, Signal, kill_process};

use crate::laptop::{Laptop, status, wait_for, words};

/// How long the flood lasts before the user stops it.
const FLOOD: Duration = Duration::from_secs(3);

/// How long a stopped command may take to end: it takes less than one second, and slow machines
/// take longer.
const STOPPED: Duration = Duration::from_secs(15);

/// The memory that a command may take in a flood, in KiB: 64 MiB more than the 51 MiB that a debug
/// build takes for `exec --remote local -- true`.
pub(crate) const MAX_KIB: u64 = (51 + 64) << 10;

fn message(message: &FromAgent) -> Vec<u8> {
    framed(FrameKind::Message, &serde_json::to_vec(message).unwrap())
}

fn framed(kind: FrameKind, body: &[u8]) -> Vec<u8> {
    [&frame::header(kind, body.len()), body].concat()
}

fn hello() -> Vec<u8> {
    let hello = Hello {
        rgpu: PROTOCOL,
        features: vec!["pieces".to_owned()],
        required: Vec::new(),
        version: "a flood".to_owned(),
    };
    serde_json::to_vec(&hello).unwrap()
}

/// A MiB of output of a job that nobody follows, and as much of announced artifacts.
fn floods() -> [Vec<u8>; 2] {
    let (job, step) = ("evil.1".to_owned(), "run".to_owned());
    let bytes = vec![b'x'; 64 << 10];
    let len = bytes.len() as u64;
    let output = FromAgent::Output { job, step, stream: Stream::Stdout, offset: 0, len };
    let output = [message(&output), framed(FrameKind::Output, &bytes)].concat().repeat(16);
    let ahead = |i: usize| {
        let (job, path) = ("evil.1".to_owned(), format!("raw/{i}"));
        message(&FromAgent::Ahead { job, path, len: 1 })
    };
    [output, (0..16 << 10).flat_map(ahead).collect()]
}

/// Lets the flood last, then stops the command once; how it ended, and its peak memory in KiB.
fn stopped_once(laptop: &Laptop, line: &str) -> (i32, u64) {
    let mut command = laptop.rgpu(words(line));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let mut peak = 0;
    while begun.elapsed() < FLOOD {
        assert!(child.try_wait().unwrap().is_none(), "it ended: {}", said(child));
        peak = peak.max(peak_kib(&child));
        std::thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let asked = Instant::now();
    wait_for("the end of the command", || {
        peak = peak.max(peak_kib(&child));
        child.try_wait().unwrap()
    });
    let took = asked.elapsed();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(took < STOPPED, "{took:?}: {said}");
    eprintln!("{line}: {peak} KiB, ended {} ms after the signal", took.as_millis());
    (status(&output), peak)
}

fn said(mut child: Child) -> String {
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

pub(crate) fn peak_kib(child: &Child) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn an_agent_that_floods_in_place_of_an_answer_takes_no_memory_and_is_stopped_at_once() {
    for flood in floods() {
        let laptop = Laptop::new();
        let begin = [MAGIC, &framed(FrameKind::Message, &hello())].concat();
        let (begin_file, flood_file) = (laptop.path("begin"), laptop.path("flood"));
        fs::write(&begin_file, begin).unwrap();
        fs::write(&flood_file, flood).unwrap();
        let agent = laptop.path("libexec/rgpu-agent");
        fs::remove_file(&agent).unwrap();
        let script = format!(
            "#!/bin/sh\ncat '{}'\nwhile cat '{}'; do :; done\n",
            begin_file.display(),
            flood_file.display()
        );
        fs::write(&agent, script).unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        for line in ["runs list --remote local", "remote check local"] {
            let (status, peak) = stopped_once(&laptop, line);
            assert_eq!(status, 130, "{line}");
            assert!(peak < MAX_KIB, "{line}: {peak} KiB");
        }
    }
}

/// What a worker that floods answers to all but the first request.
#[derive(Clone)]
enum Flood {
    /// A body without an end.
    Endless(Vec<u8>),
    /// A whole body, to each request.
    Again(Vec<u8>),
}

/// A worker that greets as it should, and floods after that.
fn flooding_worker(flood: Flood) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let flood = flood.clone();
            std::thread::spawn(move || {
                // The client hangs up some day.
                let _ = answer(stream, &flood);
            });
        }
    });
    port
}

fn answer(mut stream: TcpStream, flood: &Flood) -> std::io::Result<()> {
    let mut head = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    head.read_line(&mut request)?;
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    if request.contains("begin=true") {
        return stream.write_all(&first_mail());
    }
    // What the client still sends is read, so that it hears us.
    std::thread::spawn(move || drop(std::io::copy(&mut head, &mut std::io::sink())));
    let Some((_, query)) = request.split_once("from=") else { return Ok(()) };
    let from = query.split('&').next().unwrap();
    let bytes = match flood {
        Flood::Endless(bytes) => bytes,
        Flood::Again(bytes) => return stream.write_all(&mail(from, bytes)),
    };
    write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
    loop {
        stream.write_all(bytes)?;
    }
}

/// A worker's answer with bytes of its agent from this offset on, as if it had taken everything.
fn mail(from: &str, bytes: &[u8]) -> Vec<u8> {
    let head = format!("{{\"taken\":{},\"from\":{from},\"ended\":false}}", u64::MAX);
    let head = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\nrgpu-mail: {head}\r\n\r\n",
        bytes.len()
    );
    [head.as_bytes(), bytes].concat()
}

/// A worker's first answer.
pub(crate) fn first_mail() -> Vec<u8> {
    mail("0", &[MAGIC, &framed(FrameKind::Message, &hello())].concat())
}

pub(crate) fn add_remote_to_config(laptop: &Laptop, port: u16) {
    let token = laptop.path("token");
    fs::write(&token, "a-token-of-a-worker-that-floods\n").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let settings = format!(
        "[remote.box]\nurl = \"http://127.0.0.1:{port}\"\noptions = {{ token_file = {token:?} }}\n"
    );
    fs::write(laptop.path("config/config.toml"), settings).unwrap();
}

#[test]
fn a_worker_that_floods_in_place_of_an_answer_takes_no_memory_and_is_stopped_at_once() {
    let laptop = Laptop::new();
    add_remote_to_config(&laptop, flooding_worker(Flood::Endless(vec![b' '; 1 << 20])));
    let (status, peak) = stopped_once(&laptop, "remote check box");
    assert_eq!(status, 130);
    assert!(peak < MAX_KIB, "{peak} KiB");
}

#[test]
fn a_worker_whose_agent_never_stops_talking_takes_no_memory() {
    for flood in floods() {
        let laptop = Laptop::new();
        add_remote_to_config(&laptop, flooding_worker(Flood::Again(flood)));
        let line = "exec --remote box -- true";
        let mut command = laptop.rgpu(words(line));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(FLOOD);
        // The job may have begun there: the first signal asks the host to stop it, the second one
        // waits no longer.
        for _ in 0..2 {
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
        let (asked, mut peak) = (Instant::now(), 0);
        wait_for("the end of the command", || {
            peak = peak.max(peak_kib(&child));
            child.try_wait().unwrap()
        });
        let took = asked.elapsed();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(status(&output) == 130 && took < STOPPED, "{took:?} {said}");
        assert!(peak < MAX_KIB, "{peak} KiB: {said}");
    }
}

#[test]
fn a_worker_whose_agent_announces_too_much_is_refused() {
    let laptop = Laptop::new();
    let (job, step) = ("evil.1".to_owned(), "run".to_owned());
    let (stream, offset, len) = (Stream::Stdout, 0, u64::MAX);
    let announced = message(&FromAgent::Output { job, step, stream, offset, len });
    let bytes = framed(FrameKind::Output, &vec![b'x'; 1 << 20]).repeat(3);
    let flood = Flood::Again([announced, bytes].concat());
    add_remote_to_config(&laptop, flooding_worker(flood));
    let output = laptop.run("exec --remote box -- true");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(status(&output) == 125 && said.contains("bytes of output"), "{said}");
}

#[test]
fn events_that_never_end_are_refused_before_they_take_much_memory() {
    let long = "x".repeat(100_000);
    let digest = rgpu_protocol::Digest::sha256(b"");
    let warning =
        |code: &str, text: &str| EventBody::Warning { code: code.into(), text: text.into() };
    let kinds: [(&str, usize, Box<dyn Fn(usize) -> EventBody>); 3] = [
        ("long warnings", 600, Box::new(|_| warning("w", &long))),
        (
            "long titles",
            600,
            Box::new(|n| EventBody::StepStarted { step: format!("s{n}"), title: long.clone() }),
        ),
        (
            "artifacts",
            20_000,
            Box::new(|n| EventBody::Artifact {
                step: "exec".into(),
                path: format!("here/{n}{}", "x".repeat(4000)),
                kind: "pulled".into(),
                size: 1,
                digest: digest.clone(),
                composite: None,
            }),
        ),
    ];
    for (name, count, body) in kinds {
        let laptop = Laptop::new();
        let mut frames = [MAGIC, &framed(FrameKind::Message, &hello())].concat();
        frames.extend(message(&FromAgent::Following { job: "one.1".into() }));
        for seq in 1..=count {
            let event = Event { seq: seq as u64, at_ms: 0, body: body(seq) };
            frames.extend(message(&FromAgent::Event { job: "one.1".into(), event }));
        }
        fs::write(laptop.path("frames"), frames).unwrap();
        laptop.play_agent(&format!("cat '{}'; sleep 1000", laptop.path("frames").display()));
        let mut command = laptop.rgpu(words("exec --run-id one --pull '**' -- true"));
        let (begun, mut peak) = (Instant::now(), 0);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let told = child.stderr.take().unwrap();
        let told = std::thread::spawn(move || std::io::read_to_string(told).unwrap());
        wait_for("the end of the command", || {
            peak = peak.max(peak_kib(&child));
            child.try_wait().unwrap()
        });
        let told = told.join().unwrap();
        assert!(told.contains("events of one job that take more than"), "{name}: {told:.2000}");
        eprintln!("{name}: {peak} KiB, {:.1} s", begun.elapsed().as_secs_f64());
        assert!(peak < MAX_KIB, "{name}: {peak} KiB");
    }
}

#[test]
fn a_host_that_names_too_many_plans_of_a_run_is_refused() {
    let laptop = Laptop::new();
    let plan = |job: &str| {
        serde_json::json!({"is": "plan", "plan": {"job": job, "title": "t", "steps": [], "origin":
            {"run": "one", "started": "2026-01-01T00:00:00Z", "command": "exec", "title": "t",
             "argv": ["rgpu", "exec", "--", "true"], "mode": "", "kernel": "", "labels": {}, "note": ""}}})
    };
    let jobs: Vec<_> = (1..=65)
        .map(|n| serde_json::json!({"job": format!("one.{n}"), "title": "t", "started_ms": 1, "bytes": 0}))
        .collect();
    let list = serde_json::json!({"is": "jobs", "jobs": jobs});
    let mut frames = [MAGIC, &framed(FrameKind::Message, &hello())].concat();
    for message in [plan("one.1"), list] {
        frames.extend(framed(FrameKind::Message, &serde_json::to_vec(&message).unwrap()));
    }
    fs::write(laptop.path("frames"), frames).unwrap();
    laptop.play_agent(&format!("cat '{}'; sleep 1000", laptop.path("frames").display()));
    let output = laptop.run("--json runs attach --remote local one.1 --yes");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["error"]["code"], "too_many_jobs", "{document}");
    assert!(!laptop.project("artifacts/runs/one").exists());
}

#[test]
fn too_few_open_files_are_told_with_what_to_do() {
    let laptop = Laptop::new();
    let rgpu = env!("CARGO_BIN_EXE_rgpu");
    for files in [5, 6, 7, 8, 9, 10, 12, 14, 16] {
        let mut command = laptop.rgpu([""; 0]);
        let environment: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        command = std::process::Command::new("/bin/sh");
        command.env_clear().envs(environment).current_dir(laptop.path("project"));
        let script = format!("ulimit -n {files}; exec '{rgpu}' remote check local");
        let output = command.args(["-c", &script]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!([0, 4, 8].contains(&status(&output)), "{files} files: {said}");
        if status(&output) == 8 {
            assert!(said.contains("ulimit -n"), "{files} files: {said}");
        }
    }
}
