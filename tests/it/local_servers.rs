//! The three servers that listen on this machine (worker, dashboard, MCP over HTTP) treat clients
//! without a secret alike.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::laptop::{Laptop, built, words};

/// A running server, and the header that shows its secret.
struct LocalServer {
    name: &'static str,
    process: Child,
    port: u16,
    path: &'static str,
    secret: String,
}

impl LocalServer {
    fn start_all(laptop: &Laptop) -> [LocalServer; 3] {
        [Self::start_worker(laptop), Self::start_dashboard(laptop), Self::start_mcp(laptop)]
    }

    fn start_worker(laptop: &Laptop) -> LocalServer {
        symlink(built("rgpu-agent-http"), laptop.path("libexec/rgpu-agent-http")).unwrap();
        let mut command = laptop.rgpu(words("worker --listen 127.0.0.1:0"));
        command.arg("--token-file").arg(laptop.path("token")).stderr(Stdio::null());
        let (process, line) = start(command.stdout(Stdio::piped()), |child| child.stdout.take());
        let token = std::fs::read_to_string(laptop.path("token")).unwrap();
        let secret = format!("Authorization: Bearer {}", token.trim());
        Self { name: "worker", process, port: port(&line[0]), path: "/v1/health", secret }
    }

    fn start_dashboard(laptop: &Laptop) -> LocalServer {
        let mut command = laptop.rgpu(words("dashboard --listen 127.0.0.1:0"));
        command.stderr(Stdio::null());
        let (process, line) = start(command.stdout(Stdio::piped()), |child| child.stdout.take());
        let (_, login) = line[0].trim().split_once("/login").unwrap();
        let mut server = Self {
            name: "dashboard",
            process,
            port: port(&line[0]),
            path: "/",
            secret: "A: b".into(),
        };
        let opened = server.ask(&format!("GET /login{login}"), &[&server.host()]);
        let cookie = opened.split_once("set-cookie: ").unwrap().1.split(';').next().unwrap();
        server.secret = format!("Cookie: {cookie}");
        server
    }

    fn start_mcp(laptop: &Laptop) -> LocalServer {
        let mut command = laptop.rgpu(words("mcp --http 127.0.0.1:0"));
        command.stdout(Stdio::null());
        let (process, lines) = start(command.stderr(Stdio::piped()), |child| child.stderr.take());
        let secret = format!("Authorization: Bearer {}", lines[0].trim().replace("token: ", ""));
        Self { name: "mcp", process, port: port(&lines[1]), path: "/mcp", secret }
    }

    fn host(&self) -> String {
        format!("Host: 127.0.0.1:{}", self.port)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// The answer to a request with these headers.
    fn ask(&self, request: &str, headers: &[&str]) -> String {
        let mut stream = self.connect();
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let text = format!("{request} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Checks that a client with the secret gets past all checks. MCP has no answer to a plain
    /// `GET`.
    fn check_serves(&self, when: &str) {
        let answer = self.ask(&format!("GET {}", self.path), &[&self.host(), &self.secret]);
        let status = status_of(&answer);
        let expected = if self.name == "mcp" { 400..=406 } else { 200..=200 };
        let is_served = expected.contains(&status) && status != 401 && status != 403;
        assert!(is_served, "{} {when}: {answer}", self.name);
    }

    /// Limits the process to this many open files more than it has now.
    fn limit_open_files(&self, more: u64) {
        let pid = Pid::from_child(&self.process);
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap().count();
        let most = Some(open as u64 + more);
        prlimit(Some(pid), Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a server; its first two lines, or the only one.
fn start<R: Read>(
    command: &mut Command,
    output: fn(&mut Child) -> Option<R>,
) -> (Child, Vec<String>) {
    let mut process = command.spawn().unwrap();
    let mut reader = BufReader::new(output(&mut process).unwrap());
    let mut lines = vec![String::new()];
    reader.read_line(&mut lines[0]).unwrap();
    if lines[0].starts_with("token: ") {
        lines.push(String::new());
        reader.read_line(&mut lines[1]).unwrap();
    }
    (process, lines)
}

fn port(line: &str) -> u16 {
    let rest = line.split_once("http://127.0.0.1:").unwrap_or_else(|| panic!("{line}")).1;
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

fn status_of(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[test]
fn idle_connections_take_neither_the_open_files_nor_the_places_of_clients() {
    let laptop = Laptop::new();
    for server in LocalServer::start_all(&laptop) {
        server.check_serves("alone");
        let half = format!("GET {} HTTP/1.1\r\n{}\r\nX: x", server.path, server.host());
        for (sent, more) in [("", 64), (half.as_str(), 16), (half.as_str(), 8)] {
            server.limit_open_files(more);
            let connect = |_| {
                let mut stream = server.connect();
                // The oldest are closed while the last come.
                let _ = stream.write_all(sent.as_bytes());
                stream
            };
            let crowd: Vec<TcpStream> = (0..300).map(connect).collect();
            let begun = Instant::now();
            server.check_serves("beside a crowd");
            // An answer that waited for the header of each would come later than this.
            assert!(begun.elapsed() < Duration::from_secs(14), "{}", server.name);
            drop(crowd);
            server.check_serves("after a crowd");
        }
    }
}

#[test]
fn a_header_that_takes_too_long_ends_its_connection() {
    let laptop = Laptop::new();
    let servers = LocalServer::start_all(&laptop);
    let begin = |server: &LocalServer| {
        let mut slow = server.connect();
        slow.write_all(format!("GET / HTTP/1.1\r\n{}\r\nX: x", server.host()).as_bytes()).unwrap();
        slow
    };
    let mut slow: Vec<TcpStream> = servers.iter().map(begin).collect();
    for (stream, server) in slow.iter_mut().zip(&servers) {
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        assert!(read.is_ok(), "{}: {read:?}", server.name);
        server.check_serves("after a slow client");
    }
}

#[test]
fn a_request_names_one_host_and_its_line_a_path() {
    let laptop = Laptop::new();
    for server in LocalServer::start_all(&laptop) {
        let (path, secret) = (server.path, server.secret.as_str());
        let own = server.host();
        let address = format!("127.0.0.1:{}", server.port);
        for headers in [
            &[secret][..],
            &[&own, &own, secret],
            &[&own, "Host: evil.example", secret],
            &["Host: evil.example", &own, secret],
            &[&own, &own],
        ] {
            let answer = server.ask(&format!("GET {path}"), headers);
            assert_eq!(status_of(&answer), 400, "{} {headers:?}: {answer}", server.name);
        }
        for line in [
            format!("GET http://{address}{path}"),
            format!("GET http://evil.example{path}"),
            format!("GET https://x@{address}{path}"),
            format!("CONNECT {address}"),
        ] {
            let answer = server.ask(&line, &[&own, secret]);
            assert_eq!(status_of(&answer), 400, "{} {line}: {answer}", server.name);
        }
        server.check_serves("after refusals");
    }
}
