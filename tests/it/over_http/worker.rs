//! A running worker, and what a bare HTTP client sees of it.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::{Child, Stdio};

use rgpu_protocol::mail::{HEAD_HEADER, MailHead};
use rustix::process::{Pid, Signal, kill_process};

use crate::laptop::{Laptop, built};

/// A running `rgpu worker`, known to the laptop as `box`.
pub(super) struct Worker {
    child: Child,
    pub(super) port: u16,
    pub(super) token: String,
}

impl Worker {
    /// On a port of its own.
    pub(super) fn start(laptop: &Laptop) -> Self {
        Self::start_at(laptop, 0)
    }

    pub(super) fn start_at(laptop: &Laptop, port: u16) -> Self {
        Self::begin(laptop, port, &[])
    }

    /// On a port of its own, with more in its environment.
    pub(super) fn start_with(laptop: &Laptop, env: &[(&str, &OsStr)]) -> Self {
        Self::begin(laptop, 0, env)
    }

    fn begin(laptop: &Laptop, port: u16, env: &[(&str, &OsStr)]) -> Self {
        let program = laptop.path("libexec/rgpu-agent-http");
        if !program.exists() {
            symlink(built("rgpu-agent-http"), program).unwrap();
        }
        let token = laptop.path("token");
        let mut command = laptop.rgpu(["worker", "--listen", &format!("127.0.0.1:{port}")]);
        command.arg("--token-file").arg(&token).envs(env.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit_once(':').expect(&line).1.parse().unwrap();
        let token = fs::read_to_string(token).unwrap().trim().to_owned();
        let this = Self { child, port, token };
        add_remote_to_config(laptop, this.port);
        this
    }

    /// The id of `rgpu worker`, which has become the server.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it; its port.
    pub(super) fn stop(mut self, signal: Signal) -> u16 {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
        self.port
    }

    /// One request with the token, and all that comes back.
    pub(super) fn ask(&self, request: &str, headers: &[&str], body: &[u8]) -> Reply {
        let token = format!("Authorization: Bearer {}", self.token);
        self.ask_as(request, &[headers, &[&token, "Host: localhost"]].concat(), body)
    }

    /// One request of a conversation, by its name and query; the answer's head and bytes.
    pub(super) fn mail(&self, name: &str, bytes: &[u8]) -> (MailHead, Vec<u8>) {
        let reply = self.ask(&format!("POST /v1/mail/{name}"), &[], bytes);
        assert_eq!(reply.status, 200, "{name}: {reply:?}");
        let head = serde_json::from_str(reply.header(HEAD_HEADER).unwrap()).unwrap();
        (head, reply.body)
    }

    /// One request as it is said.
    pub(super) fn ask_as(&self, request: &str, headers: &[&str], body: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        // Version 1.0: no chunks, and the connection ends with the answer.
        let mut head = format!("{request} HTTP/1.0\r\nContent-Length: {}\r\n", body.len());
        for header in headers {
            head += &format!("{header}\r\n");
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        // A server that refuses the head does not read the body.
        let _ = stream.write_all(body);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        Reply::parse(&bytes)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes an address known to the laptop as `box`.
pub(super) fn add_remote_to_config(laptop: &Laptop, port: u16) {
    let settings = format!(
        "[remote.box]\nurl = \"http://127.0.0.1:{port}\"\npath = [{:?}]\n\
         env = {{ RGPU_FAKE_HOST = {:?} }}\noptions = {{ token_file = {:?} }}\n",
        laptop.path("h200/bin"),
        laptop.path("h200"),
        laptop.path("token"),
    );
    fs::write(laptop.path("config/config.toml"), settings).unwrap();
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    head: String,
    pub(super) body: Vec<u8>,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(super) fn json(&self) -> serde_json::Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {} {text}", self.head))
    }

    /// The code of a refusal.
    pub(super) fn code(&self) -> String {
        let json = self.json();
        assert_eq!(json["is"], "refused", "{json}");
        json["code"].as_str().unwrap().to_owned()
    }
}
