//! The served dashboard, and a browser's requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::laptop::{Laptop, PATIENCE, wait_for, words};

/// A running `rgpu dashboard`.
pub(super) struct Dashboard {
    process: Child,
    pub(super) port: u16,
    pub(super) link: String,
    cookie: String,
    key: String,
    stderr: BufReader<ChildStderr>,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Dashboard {
    /// Starts one at a free port with these flags, and opens its link.
    pub(super) fn start(laptop: &Laptop, flags: &str) -> Self {
        let mut dashboard = Self::start_unopened(laptop, flags);
        dashboard.open();
        dashboard
    }

    /// Starts one whose link nobody opened.
    pub(super) fn start_unopened(laptop: &Laptop, flags: &str) -> Self {
        let line = format!("dashboard --listen 127.0.0.1:0 {flags}");
        let mut command = laptop.rgpu(words(&line));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let mut link = String::new();
        stdout.read_line(&mut link).unwrap();
        let link = link.trim().to_owned();
        let rest = link.strip_prefix("http://127.0.0.1:").unwrap_or_else(|| panic!("{link}"));
        let port = rest.split('/').next().unwrap().parse().unwrap();
        let (cookie, key) = (String::new(), String::new());
        Self { process, port, link, cookie, key, stderr }
    }

    /// Opens the login link and keeps the cookie.
    pub(super) fn open(&mut self) {
        let path = self.link.split_once(&format!(":{}", self.port)).unwrap().1.to_owned();
        let answer = self.send("GET", &path, &[], "");
        assert_eq!(answer.status, 200, "{}", answer.body);
        let set = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        assert!(set.contains("; HttpOnly; SameSite=Strict"), "{set}");
        self.cookie = set.split(';').next().unwrap().to_owned();
        let kept = answer.body.split("setItem(\"x-rgpu-key\", \"").nth(1).unwrap();
        self.key = kept.split('"').next().unwrap().to_owned();
    }

    pub(super) fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The header with the session.
    pub(super) fn cookie(&self) -> String {
        format!("Cookie: {}", self.cookie)
    }

    /// The secret that the page keeps.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The headers of the page's own requests.
    pub(super) fn page_headers(&self) -> [String; 2] {
        [self.cookie(), format!("X-Rgpu-Key: {}", self.key)]
    }

    /// The headers of the page's own actions.
    pub(super) fn action_headers(&self) -> [String; 3] {
        [self.cookie(), format!("Origin: {}", self.origin()), format!("X-Rgpu-Key: {}", self.key)]
    }

    /// Opens a connection and sends a request; what comes can be read from it.
    pub(super) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[&String],
        body: &str,
    ) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n",
            body.len()
        );
        for header in headers {
            text.push_str(&format!("{header}\r\n"));
        }
        if !headers.iter().any(|header| header.starts_with("Host:")) {
            text.push_str(&format!("Host: 127.0.0.1:{}\r\n", self.port));
        }
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    /// The answer to a request.
    pub(super) fn send(&self, method: &str, path: &str, headers: &[&String], body: &str) -> Answer {
        let mut text = String::new();
        self.request(method, path, headers, body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// The status and the document at a path of the API.
    pub(super) fn ask(&self, path: &str) -> (u16, Value) {
        let headers = self.page_headers();
        let headers: Vec<&String> = headers.iter().collect();
        let answer = self.send("GET", &format!("/api/v1{path}"), &headers, "");
        let document = serde_json::from_str(&answer.body);
        (answer.status, document.unwrap_or_else(|e| panic!("{path}: {e}: {}", answer.body)))
    }

    /// The document at a path of the API.
    pub(super) fn get(&self, path: &str) -> Value {
        let (status, document) = self.ask(path);
        assert_eq!(status, 200, "{path}: {document:#}");
        document
    }

    /// The document, once it fits.
    pub(super) fn get_when(&self, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
        wait_for(path, || Some(self.get(path)).filter(|document| fits(document)))
    }

    /// The status and the result of an action.
    pub(super) fn act(&self, action: &Value) -> (u16, Value) {
        let headers = self.action_headers();
        let headers: Vec<&String> = headers.iter().collect();
        let answer = self.send("POST", "/api/v1/actions", &headers, &action.to_string());
        (answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::Null))
    }

    /// The messages of a stream until one is the last that is wanted: event, id and data.
    pub(super) fn messages(
        &self,
        path: &str,
        last: Option<&str>,
        is_last: impl Fn(&(String, String, Value)) -> bool,
    ) -> Vec<(String, String, Value)> {
        let own = self.page_headers();
        let last = last.map(|id| format!("Last-Event-ID: {id}"));
        let headers: Vec<&String> = own.iter().chain(&last).collect();
        let stream = self.request("GET", &format!("/api/v1{path}"), &headers, "");
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (mut messages, mut event, mut id) = (Vec::new(), String::new(), String::new());
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap();
            if let Some(text) = line.strip_prefix("event: ") {
                event = text.to_owned();
            } else if let Some(text) = line.strip_prefix("id: ") {
                id = text.to_owned();
            } else if let Some(text) = line.strip_prefix("data: ") {
                messages.push((event.clone(), id.clone(), serde_json::from_str(text).unwrap()));
                if is_last(messages.last().unwrap()) {
                    break;
                }
            }
        }
        messages
    }

    /// A line of what the user is told.
    pub(super) fn told(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    /// The memory of the server in bytes.
    pub(super) fn memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
