//! A client that speaks the protocol as lines of JSON, and nothing else.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::laptop::{Laptop, PATIENCE};

/// The limit that results keep.
pub(super) const MAX_RESULT_BYTES: usize = 8000;

/// A client with its server.
pub(super) struct Client {
    pub(super) server: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// What came before it was asked for.
    kept: Vec<Value>,
    next: u64,
}

impl Client {
    /// Starts a server, without any greeting.
    pub(super) fn silent(laptop: &Laptop) -> Client {
        Client::silent_with(laptop, &[])
    }

    fn silent_with(laptop: &Laptop, variables: &[(&str, &str)]) -> Client {
        let mut command = laptop.rgpu(["mcp"]);
        command.envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().unwrap();
        let (stdin, stdout) = (server.stdin.take(), server.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Whatever is no JSON has no place on stdout.
                let message = serde_json::from_str(&line).unwrap_or_else(|_| json!({"junk": line}));
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        Client { server, stdin, lines, kept: Vec::new(), next: 0 }
    }

    /// Starts a server and greets it.
    pub(super) fn start(laptop: &Laptop) -> Client {
        let mut client = Client::silent(laptop);
        client.greet();
        client
    }

    /// The same, with these environment variables.
    pub(super) fn start_with(laptop: &Laptop, variables: &[(&str, &str)]) -> Client {
        let mut client = Client::silent_with(laptop, variables);
        client.greet();
        client
    }

    pub(super) fn greet(&mut self) {
        let greeted = self.request(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            }),
        );
        assert_eq!(greeted["result"]["protocolVersion"], "2025-06-18", "{greeted}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    pub(super) fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    pub(super) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Sends a request and does not wait; its id.
    pub(super) fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Waits for a message.
    pub(super) fn wait_for(&mut self, what: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&what) {
            return self.kept.remove(at);
        }
        loop {
            let message = self.lines.recv_timeout(PATIENCE).expect("no answer");
            assert!(message["junk"].is_null(), "{message}");
            if what(&message) {
                return message;
            }
            self.kept.push(message);
        }
    }

    pub(super) fn answer(&mut self, id: u64) -> Value {
        self.wait_for(|message| message["id"] == id && message["method"].is_null())
    }

    pub(super) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// Starts a call of a tool.
    pub(super) fn begin(&mut self, tool: &str, arguments: Value) -> u64 {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool: its document, and whether it is a failure.
    pub(super) fn try_call(&mut self, tool: &str, arguments: Value) -> (Value, bool) {
        let id = self.begin(tool, arguments);
        let answer = self.answer(id);
        let result = &answer["result"];
        let document = result["structuredContent"].clone();
        assert!(document.is_object(), "{tool}: {answer}");
        let bytes = document.to_string().len();
        assert!(bytes <= MAX_RESULT_BYTES, "{tool}: {bytes} bytes");
        // Clients of before structured results read the text.
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), document);
        (document, result["isError"] == true)
    }

    /// Calls a tool that does its work.
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let (document, is_error) = self.try_call(tool, arguments);
        assert!(!is_error, "{tool}: {document:#}");
        document
    }

    /// Calls a tool that refuses; the code of its error.
    pub(super) fn refused(&mut self, tool: &str, arguments: Value) -> Value {
        let (document, is_error) = self.try_call(tool, arguments);
        assert!(is_error, "{tool}: {document:#}");
        document["error"].clone()
    }

    /// Calls a tool that starts a run, and waits for its end.
    pub(super) fn run_to_end(&mut self, tool: &str, arguments: Value) -> Value {
        let mut result = self.call(tool, arguments);
        while result["state"] == "running" {
            result = self.call("runs", json!({"action": "wait", "run": result["run"]}));
        }
        result
    }

    /// Closes its side; the server's exit status.
    pub(super) fn close(mut self) -> i32 {
        drop(self.stdin.take());
        self.server.wait().unwrap().code().unwrap()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
