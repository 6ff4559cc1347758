//! The same host behind the command line on a terminal: whatever text a host sends, and wherever,
//! it gives the terminal no command and no line that looks like one of rgpu's.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use regex::Regex;
use rgpu_protocol::{Event, EventBody, FromAgent, RungRecord, frame};
use tokio::io::AsyncWriteExt;

use super::agent::{FaultyAgent, State};
use super::invalid_messages::{ESCAPES, InvalidMessage};
use super::samples;
use crate::laptop::{Laptop, words};

/// A command that waits longer than this after its lie has seen it: it is killed.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// What a terminal was told.
struct ShownText {
    text: String,
    told: bool,
}

/// Runs `rgpu` on a terminal against a host that tells this lie.
fn run(
    laptop: &Laptop,
    line: &str,
    state: State,
    lie: &InvalidMessage,
    in_place: bool,
) -> ShownText {
    let agent =
        FaultyAgent::new(state, lie.clone(), in_place, laptop.path("").display().to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    laptop.play_agent(&format!(
        "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3 & exec cat >&3'"
    ));
    let host = agent.clone();
    runtime.spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut host = host.duplex();
            tokio::spawn(async move {
                let _ = socket.write_all(frame::MAGIC).await;
                let _ = tokio::io::copy_bidirectional(&mut socket, &mut host).await;
            });
        }
    });
    let (child, terminal) = start(laptop, line);
    let text = watch(child, terminal, &agent);
    runtime.shutdown_background();
    ShownText { text, told: agent.told() }
}

/// Starts `rgpu` with a terminal for its output. With `--json` only stdout is one.
fn start(laptop: &Laptop, line: &str) -> (Child, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let path = OsStr::from_bytes(name.to_bytes());
    let theirs = File::options().read(true).write(true).open(path).unwrap();
    let mut command = laptop.rgpu(words(line));
    command.stderr(if line.contains("--json") {
        Stdio::null()
    } else {
        theirs.try_clone().unwrap().into()
    });
    let child = command.stdout(theirs).spawn().unwrap();
    (child, ours.into())
}

/// All that the terminal was told until the command ended.
fn watch(mut child: Child, mut terminal: File, agent: &FaultyAgent) -> String {
    let all = Arc::new(Mutex::new(Vec::new()));
    let into = all.clone();
    let reader = std::thread::spawn(move || {
        let mut piece = [0; 4096];
        // A terminal without processes gives an error.
        while let Ok(n @ 1..) = terminal.read(&mut piece) {
            into.lock().unwrap().extend_from_slice(&piece[..n]);
        }
    });
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        let waits = agent.told() && agent.moved().elapsed() > MAX_WAIT;
        if waits || begun.elapsed() > 10 * MAX_WAIT {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    reader.join().unwrap();
    let all = all.lock().unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

/// What the text does to a terminal that rgpu itself never does.
fn harm(text: &str) -> Option<String> {
    let commands = ["\u{1b}]", "\u{7}", "\u{1b}[2J", "\u{9b}", "\u{202e}"];
    if let Some(command) = commands.iter().find(|command| text.contains(**command)) {
        return Some(format!("{command:?} reaches the terminal"));
    }
    // rgpu's own bars and colours.
    let sequences = Regex::new("\u{1b}\\[[0-9;?]*[A-Za-z]").unwrap();
    let plain = sequences.replace_all(text, "");
    let forged = plain.split(['\r', '\n']).any(|line| line.starts_with("error: forged"));
    forged.then(|| "a line looks like one of rgpu's".to_owned())
}

/// The lies that put a terminal's commands into a text of a message.
fn escapes_in(message: &serde_json::Value) -> impl Iterator<Item = InvalidMessage> {
    let lies = InvalidMessage::variants_of(message, &[]).into_iter();
    lies.filter(|lie| lie.name.ends_with("terminal commands"))
}

fn of(names: impl Fn(&str) -> bool) -> Vec<(InvalidMessage, String)> {
    let samples = samples::from_agent().into_iter().filter(|sample| names(&sample.name));
    let lies = samples.flat_map(|sample| {
        let lies: Vec<InvalidMessage> = escapes_in(&sample.message).collect();
        lies.into_iter().map(move |lie| (lie, sample.name.clone()))
    });
    lies.collect()
}

/// A rung that failed, which is told at once.
fn failed_rungs() -> Vec<(InvalidMessage, String)> {
    let record = RungRecord { ok: false, code: "x".into(), ..samples::rung_record() };
    let event = Event { seq: 1, at_ms: 5, body: EventBody::RungEnded(record) };
    let message = serde_json::to_value(FromAgent::Event { job: super::JOB.into(), event }).unwrap();
    escapes_in(&message).map(|lie| (lie, "event rung_ended, failed".to_owned())).collect()
}

#[test]
fn no_text_of_a_host_commands_a_terminal() {
    let hello = serde_json::to_value(rgpu_protocol::Hello {
        rgpu: rgpu_protocol::PROTOCOL,
        features: vec!["pieces".into()],
        required: vec!["x".into()],
        version: "v".into(),
    });
    let hello: Vec<_> = escapes_in(&hello.unwrap()).map(|lie| (lie, "hello".to_owned())).collect();
    let build = "build k.py --dsl triton --arch sm_90a --yes";
    let exec = "exec --pull 'out*' -- true";
    let events = |name: &str| name.starts_with("event") || name == "refused";
    let cases: Vec<(&str, State, Vec<(InvalidMessage, String)>)> = vec![
        ("remote check local", State::Greeting, hello),
        ("remote check local", State::Facts, of(|name| ["facts", "refused"].contains(&name))),
        (exec, State::Submitting, of(|name| ["missing", "refused"].contains(&name))),
        (build, State::Following, of(events)),
        (build, State::Following, failed_rungs()),
        ("runs list --remote local", State::Listing, of(|name| name == "jobs")),
        ("runs list --remote local --json", State::Listing, of(|name| name == "jobs")),
        ("runs attach --remote local adversary.1 --yes", State::Planning, of(|n| n == "plan")),
    ];
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for (line, state, lies) in &cases {
            let broken = &broken;
            threads.spawn(move || {
                let laptop = Laptop::new();
                laptop.write("k.py", "import triton\n");
                assert!(!lies.is_empty(), "{line}");
                for (lie, message) in lies {
                    let in_place = *message == state.awaits();
                    let shown = run(&laptop, line, *state, lie, in_place);
                    let say = |why: &str| {
                        let title = format!("rgpu {line}: {message} {}: {why}", lie.name);
                        broken.lock().unwrap().push(format!("{title}\n{:?}", shown.text));
                    };
                    if !shown.told {
                        say("the lie was never told");
                    }
                    if let Some(why) = harm(&shown.text) {
                        say(&why);
                    }
                    let json = serde_json::from_str::<serde_json::Value>(&shown.text);
                    // One that waits in vain was killed before it printed anything.
                    if line.contains("--json") && !shown.text.is_empty() && json.is_err() {
                        say("this is no JSON");
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(harm(ESCAPES).is_some() && harm("a\r\nerror: forged").is_some());
}
