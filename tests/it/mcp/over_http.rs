//! The server over HTTP: who gets in, and who does not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, PATIENCE};

struct Server {
    process: Child,
    port: u16,
    token: String,
}

impl Server {
    fn start(laptop: &Laptop) -> Server {
        let mut command = laptop.rgpu(["mcp", "--http", "127.0.0.1:0"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let token = lines.next().unwrap().unwrap();
        let token = token.strip_prefix("token: ").unwrap().to_owned();
        let address = lines.next().unwrap().unwrap();
        let port = address.rsplit_once(':').unwrap().1.trim_end_matches("/mcp").parse().unwrap();
        Server { process, port, token }
    }

    /// Posts a message with these headers: the status, the headers and the body.
    fn post(&self, path: &str, headers: &[String], message: &Value) -> (u16, String, String) {
        self.send("POST", path, headers, &message.to_string())
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[String],
        body: &str,
    ) -> (u16, String, String) {
        let mut stream = self.begin(method, path, headers, body);
        let mut answer = String::new();
        // An event stream may stay open; what came is enough.
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let _ = stream.read_to_string(&mut answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    /// Sends a request, and leaves its answer to be read.
    fn begin(&self, method: &str, path: &str, headers: &[String], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
            body.len()
        );
        for header in headers {
            request.push_str(&format!("{header}\r\n"));
        }
        if !headers.iter().any(|header| header.starts_with("Host:")) {
            request.push_str(&format!("Host: 127.0.0.1:{}\r\n", self.port));
        }
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    /// Begins a session of an earlier revision: the headers of its requests.
    fn session(&self) -> [String; 2] {
        let (status, head, body) = self.post("/mcp", &[self.token()], &greeting());
        assert_eq!(status, 200, "{body}");
        let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
        let headers = [self.token(), format!("Mcp-Session-Id: {session}")];
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post("/mcp", &headers, &ready).0, 202);
        headers
    }

    fn token(&self) -> String {
        format!("Authorization: Bearer {}", self.token)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn greeting() -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    })
}

#[test]
fn only_clients_with_the_token_and_of_this_machine_get_in() {
    let laptop = Laptop::new();
    let server = Server::start(&laptop);
    let own = server.token();
    for (headers, status) in [
        (vec![], 401),
        (vec!["Authorization: Bearer wrong".to_owned()], 401),
        (vec![format!("Authorization: Basic {}", server.token)], 401),
        (vec![own.clone(), "Origin: https://evil.example".to_owned()], 403),
        (vec![own.clone(), "Origin: null".to_owned()], 403),
        (vec![own.clone(), "Host: evil.example".to_owned()], 403),
        (vec![own.clone(), format!("Host: evil.example@127.0.0.1:{}", server.port)], 403),
        (vec![own.clone(), format!("Host: 127.0.0.1:{}.evil.example", server.port)], 403),
        (vec![own.clone()], 200),
    ] {
        let (got, head, body) = server.post("/mcp", &headers, &greeting());
        assert_eq!(got, status, "{headers:?}: {head}\n{body}");
    }
    assert_eq!(server.post("/other", std::slice::from_ref(&own), &greeting()).0, 404);
    let huge = json!({"jsonrpc": "2.0", "id": 1, "method": "x".repeat(2 << 20)});
    assert_eq!(server.post("/mcp", &[own], &huge).0, 413);
}

#[test]
fn a_body_that_is_no_message_is_answered_with_the_code_of_json_rpc() {
    let laptop = Laptop::new();
    let server = Server::start(&laptop);
    let session = server.session();
    let none = Value::Null;
    for (body, http, id, code) in [
        ("hello", 400, &none, -32700),
        ("{\"jsonrpc\"", 400, &none, -32700),
        ("{}", 400, &none, -32600),
        ("42", 400, &none, -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, 400, &none, -32600),
        (r#"{"jsonrpc":"2.0","id":2,"method":5}"#, 400, &json!(2), -32600),
        (r#"{"jsonrpc":"1.0","id":3,"method":"ping"}"#, 400, &json!(3), -32600),
        (r#"{"jsonrpc":"2.0","id":4,"method":"none"}"#, 200, &json!(4), -32601),
        (r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{}}"#, 200, &json!(5), -32602),
        (r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":3}"#, 200, &json!(6), -32602),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}"#,
            200,
            &json!(7),
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":8,"method":"resources/read","params":{"uri":"rgpu://x"}}"#,
            200,
            &json!(8),
            -32002,
        ),
    ] {
        let (status, head, said) = server.send("POST", "/mcp", &session, body);
        assert_eq!(status, http, "{body}: {said}");
        let error = said.lines().find_map(|line| {
            let line = line.strip_prefix("data: ").unwrap_or(line);
            serde_json::from_str::<Value>(line).ok().filter(|it| it["error"].is_object())
        });
        let error = error.unwrap_or_else(|| panic!("{body}: {head}\n{said}"));
        assert_eq!((&error["error"]["code"], &error["id"]), (&json!(code), id), "{body}: {said}");
    }
    // A page elsewhere learns nothing of what is wrong with its body.
    let evil = [server.token(), "Origin: https://evil.example".to_owned()];
    assert_eq!(server.send("POST", "/mcp", &evil, "hello").0, 403);
}

#[test]
fn a_session_lists_and_calls_tools() {
    let laptop = Laptop::new();
    let server = Server::start(&laptop);
    let headers = server.session();
    let call = json!({
        "jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "runs", "arguments": {"action": "list"}},
    });
    let (status, _, body) = server.post("/mcp", &headers, &call);
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("rgpu.mcp-runs/1"), "{body}");
    assert_eq!(server.send("DELETE", "/mcp", &headers, "").0, 204);
}

/// A profile that its caller waits for.
fn long_call(meta: Value) -> String {
    let arguments = json!({"kernel": "vecadd", "mode": "ncu", "remote": "h200", "wait_s": 45});
    let params = json!({"name": "profile", "arguments": arguments, "_meta": meta});
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string()
}

#[test]
fn a_closed_connection_cancels_its_call_since_the_newest_revision() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let server = Server::start(&laptop);
    let headers = [
        server.token(),
        "MCP-Protocol-Version: 2026-07-28".to_owned(),
        "Mcp-Method: tools/call".to_owned(),
        "Mcp-Name: profile".to_owned(),
    ];
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let stream = server.begin("POST", "/mcp", &headers, &long_call(meta.clone()));
    host.wait_for_gate("ncu");
    drop(stream);
    laptop.wait_until_only_server();
    assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
    host.clear_gate("ncu");
    let first = laptop.latest();
    // Also once the answer has begun, with messages about progress.
    meta["progressToken"] = json!("p");
    let mut stream = server.begin("POST", "/mcp", &headers, &long_call(meta));
    let mut begun = [0; 15];
    stream.read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    host.wait_for_gate("ncu");
    assert_ne!(laptop.latest(), first);
    drop(stream);
    laptop.wait_until_only_server();
    assert_eq!(laptop.latest_json("run.json")["state"], "cancelled");
}

#[test]
fn a_closed_connection_cancels_nothing_in_earlier_revisions() {
    let laptop = Laptop::new();
    let host = FakeHost::new(&laptop);
    host.mischief("ncu gate\n");
    let server = Server::start(&laptop);
    let stream = server.begin("POST", "/mcp", &server.session(), &long_call(json!({})));
    host.wait_for_gate("ncu");
    drop(stream);
    std::thread::sleep(Duration::from_secs(1));
    host.open_gate("ncu");
    laptop.wait_until_only_server();
    assert_eq!(laptop.latest_json("run.json")["state"], "done");
}

#[test]
fn a_port_that_is_taken_shows_no_token() {
    let laptop = Laptop::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let shown = laptop.show(&format!("mcp --http {port}"));
    assert!(shown.contains("nothing can listen at `127.0.0.1:"), "{shown}");
    assert!(!shown.contains("token: "), "{shown}");
    let shown = laptop.show("mcp --http here");
    assert!(shown.contains("127.0.0.1:8787"), "{shown}");
}
