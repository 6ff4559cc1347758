//! The ways in which `rgpu` reads, writes and deletes in a project.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::machine::{Machine, ShownOutput};
use super::places::{Kind, Place};
use crate::top::View;

/// How long a server may take for all questions about a place.
const LIMIT: Duration = Duration::from_secs(15);

/// One way, as a user, a page or an agent goes it.
pub(super) struct Way {
    pub(super) name: &'static str,
    /// Whether it changes the project.
    pub(super) changes: bool,
    how: How,
}

enum How {
    /// Commands; `RUN` stands for the place's run.
    Commands(&'static [&'static str]),
    /// Requests to the served page; paths of the API.
    Page(&'static [&'static str]),
    /// Calls of an agent: tools with their arguments, and resources.
    Agent(&'static [(&'static str, &'static str)]),
    /// A program that uses the Python package.
    Python(&'static str),
    /// The view in a terminal, which is left again.
    Top(&'static str),
}

impl Way {
    /// A link to nothing tells only of ways that write; nobody reads a pipe over a network.
    pub(super) fn is_for(&self, kind: Kind) -> bool {
        let is_command = matches!(self.how, How::Commands(_));
        match kind {
            Kind::Outside | Kind::Key | Kind::Device | Kind::Circle => true,
            Kind::Dangling => self.changes,
            Kind::Pipe => is_command,
        }
    }

    pub(super) fn go(&self, machine: &Machine, place: &Place) -> ShownOutput {
        let of_run = |line: &str| line.replace("RUN", place.run());
        match self.how {
            How::Commands(lines) => {
                let lines: Vec<String> = lines.iter().map(|line| of_run(line)).collect();
                machine.run(&lines)
            }
            How::Page(paths) => page(machine, paths.iter().map(|path| of_run(path))),
            How::Python(program) => machine.python(&of_run(program)),
            How::Top(line) => top(machine, line),
            How::Agent(calls) => agent(machine, calls.iter().map(|(tool, of)| (*tool, of_run(of)))),
        }
    }
}

const fn reads(name: &'static str, lines: &'static [&'static str]) -> Way {
    Way { name, changes: false, how: How::Commands(lines) }
}

const fn changes(name: &'static str, lines: &'static [&'static str]) -> Way {
    Way { name, changes: true, how: How::Commands(lines) }
}

/// What the package shows of a run.
const OF_PYTHON: &str = "import sys, rgpu
for look in (lambda: rgpu.report('RUN'), lambda: rgpu.report('RUN').report(),
             lambda: rgpu.compare('RUN', 'RUN')):
    try:
        print(look())
    except rgpu.Error as error:
        print(error, getattr(error, 'hints', ''), file=sys.stderr)
";

pub(super) fn of_runs() -> Vec<Way> {
    vec![
        reads("report", &["report RUN", "report RUN --json"]),
        reads(
            "report in other formats",
            &[
                "report RUN --format markdown",
                "report RUN --format csv",
                "report RUN --format brief",
            ],
        ),
        changes("report --format html", &["report RUN --format html"]),
        changes("report --format perfetto", &["report RUN --format perfetto"]),
        reads("runs list", &["runs list", "runs list --json"]),
        reads("runs show", &["runs show RUN", "runs show RUN --json"]),
        changes("runs note", &["runs note RUN x"]),
        changes("runs attach", &["runs attach RUN --yes"]),
        changes("runs export", &["runs export RUN --out ../made/run.tar.zst"]),
        changes("runs export --redact", &["runs export RUN --redact --out ../made/run.tar.zst"]),
        changes("runs clean", &["runs clean --all --keep 0 --yes"]),
        changes("runs clean RUN", &["runs clean RUN --yes"]),
        Way { name: "python", changes: false, how: How::Python(OF_PYTHON) },
        Way { name: "top", changes: false, how: How::Top("top hosts") },
        reads("cache show", &["cache show", "cache show --json"]),
        changes("runs reindex", &["runs reindex"]),
        reads("compare", &["compare RUN RUN"]),
        changes("disasm", &["disasm RUN --force"]),
        reads("bench show", &["bench show night", "bench history"]),
        changes("dashboard export", &["dashboard export ../made/page"]),
        Way {
            name: "dashboard",
            changes: false,
            how: How::Page(&[
                "/api/v1/overview",
                "/api/v1/runs",
                "/api/v1/runs/RUN",
                "/api/v1/runs/RUN/log/exec.stdout",
                "/api/v1/runs/RUN/log/id_ed25519",
                "/api/v1/suites",
                "/api/v1/suites/night",
                "/api/v1/history",
                "/runs/RUN/report",
            ]),
        },
        Way {
            name: "mcp",
            changes: false,
            how: How::Agent(&[
                ("runs", r#"{"action": "list"}"#),
                ("runs", r#"{"action": "show", "run": "RUN"}"#),
                ("report", r#"{"of": "RUN"}"#),
                ("report", r#"{"of": "RUN", "part": "launches"}"#),
                ("disasm", r#"{"of": "RUN"}"#),
                ("", "rgpu://runs/RUN/profile.json"),
                ("", "rgpu://runs/RUN/report.md"),
                ("", "rgpu://runs/RUN/log/exec.stdout"),
                ("", "rgpu://runs/RUN/log/id_ed25519"),
                ("", "rgpu://runs/RUN/error.json"),
                ("", "rgpu://runs/RUN/raw/verify.json"),
                ("", "rgpu://runs/RUN/raw/id_ed25519"),
                ("", "rgpu://runs/RUN/id_ed25519"),
            ]),
        },
        changes("exec", &["exec -- echo x"]),
    ]
}

pub(super) fn of_state() -> Vec<Way> {
    vec![
        reads("queue list", &["queue list", "queue list --json"]),
        reads("queue show", &["queue show 1", "queue show 1 --json"]),
        reads("queue log", &["queue log 1"]),
        changes("queue add and run", &["queue add -- echo x", "queue run --once"]),
        changes("queue requeue", &["queue requeue 1"]),
        changes("queue clean", &["queue clean --all --keep 0 --yes"]),
        reads("loop status", &["loop status", "loop status --json"]),
        reads("loop report", &["loop report", "loop best"]),
        changes("loop clean", &["loop clean --keep 0 --yes"]),
        changes("loop cancel", &["loop cancel"]),
        Way { name: "top", changes: false, how: How::Top("top queue") },
        changes("dashboard export", &["dashboard export ../made/page"]),
        Way {
            name: "dashboard",
            changes: false,
            how: How::Page(&[
                "/api/v1/overview",
                "/api/v1/queue",
                "/api/v1/queue/1",
                "/api/v1/loops",
                "/api/v1/loops/1",
                "/api/v1/loops/1/iterations/1/patch",
            ]),
        },
        Way {
            name: "mcp",
            changes: false,
            how: How::Agent(&[
                ("campaign", r#"{"of": "queue", "action": "ls"}"#),
                ("campaign", r#"{"of": "queue", "action": "show", "arguments": ["1"]}"#),
                ("campaign", r#"{"of": "queue", "action": "log", "arguments": ["1"]}"#),
                ("campaign", r#"{"of": "loop", "action": "status"}"#),
                ("campaign", r#"{"of": "loop", "action": "report"}"#),
            ]),
        },
        changes("loop start", &["loop start loop.toml max_iterations=1"]),
    ]
}

pub(super) fn of_results() -> Vec<Way> {
    vec![
        changes("build", &["build --kernel vecadd --remote h200 --arch sm_90a"]),
        changes("disasm", &["disasm first"]),
        changes("disasm --force", &["disasm first --force"]),
        changes("profile", &["profile --kernel vecadd --remote h200 --mode bench"]),
    ]
}

pub(super) fn of_settings() -> Vec<Way> {
    vec![
        reads("runs list", &["runs list"]),
        reads("kernels show", &["kernels show k", "kernels show k --json"]),
        reads("bench list", &["bench list"]),
        changes("bench run", &["bench run --remote h200"]),
        changes("profile", &["profile --kernel k --remote h200 --mode verify"]),
        changes("build", &["build --kernel k --remote h200 --arch sm_90a"]),
        changes("loop start", &["loop start loop.toml max_iterations=1"]),
    ]
}

/// Opens the view, and leaves it once it has drawn something.
fn top(machine: &Machine, line: &str) -> ShownOutput {
    let view = View::open(&machine.laptop, line);
    let (text, status) = view.look_and_leave(LIMIT);
    ShownOutput { text: text.into_bytes(), status }
}

/// Starts the page, opens its link and asks for each path.
fn page(machine: &Machine, paths: impl Iterator<Item = String>) -> ShownOutput {
    let mut command = machine.laptop.rgpu(["dashboard", "--listen", "127.0.0.1:0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut link = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut link).unwrap();
    let mut text = Vec::new();
    let mut is_answered = true;
    if let Some((port, login)) =
        link.trim().strip_prefix("http://127.0.0.1:").and_then(|rest| rest.split_once('/'))
    {
        let login = ask(port, &format!("/{login}"), "");
        let login = String::from_utf8_lossy(&login).into_owned();
        let between = |before: &str, after: char| {
            let rest = login.split_once(before).map_or("", |(_, rest)| rest);
            rest.split(after).next().unwrap_or_default().to_owned()
        };
        let cookie = between("set-cookie: ", ';');
        let key = between("setItem(\"x-rgpu-key\", \"", '"');
        assert!(!cookie.is_empty() && !key.is_empty(), "{login}");
        let headers = format!("Cookie: {cookie}\r\nX-Rgpu-Key: {key}\r\n");
        for path in paths {
            let answer = ask(port, &path, &headers);
            is_answered &= !answer.is_empty();
            text.extend(answer);
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    let _ = server.stderr.take().unwrap().read_to_end(&mut text);
    ShownOutput { text, status: is_answered.then_some(0) }
}

fn ask(port: &str, path: &str, headers: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n");
    stream.write_all(format!("{head}{headers}\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Starts the server for agents, and makes each call; a call without a tool reads a resource.
fn agent<'a>(machine: &Machine, calls: impl Iterator<Item = (&'a str, String)>) -> ShownOutput {
    let mut command = machine.laptop.rgpu(["mcp"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let (mut stdin, stdout) = (server.stdin.take().unwrap(), server.stdout.take().unwrap());
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let about = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    request(&mut stdin, 0, "initialize", about);
    let greeted = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let _ = writeln!(stdin, "{greeted}");
    let mut asked = 1;
    request(&mut stdin, asked, "resources/list", json!({}));
    for (tool, of) in calls {
        asked += 1;
        if tool.is_empty() {
            request(&mut stdin, asked, "resources/read", json!({"uri": of}));
        } else {
            let arguments: Value = serde_json::from_str(&of).unwrap();
            let call = json!({"name": tool, "arguments": arguments});
            request(&mut stdin, asked, "tools/call", call);
        }
    }
    let (mut text, mut missing) = (String::new(), asked + 1);
    let (begun, mut status) = (Instant::now(), Some(0));
    while missing > 0 {
        let left = LIMIT.saturating_sub(begun.elapsed());
        let line = match lines.recv_timeout(left) {
            Ok(line) => line,
            Err(end) => {
                status = (end == RecvTimeoutError::Disconnected).then_some(1);
                break;
            }
        };
        let answer: Value = serde_json::from_str(&line).unwrap_or_default();
        missing -= u32::from(answer["id"].is_number());
        text += &line;
    }
    let _ = server.kill();
    let _ = server.wait();
    let _ = server.stderr.take().unwrap().read_to_string(&mut text);
    ShownOutput { text: text.into_bytes(), status }
}

fn request(stdin: &mut ChildStdin, id: u32, method: &str, params: Value) {
    let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    // A server that refuses the project has ended.
    let _ = writeln!(stdin, "{request}");
}
