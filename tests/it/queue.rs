//! `rgpu queue` as a user sees it, and what is left when its processes are killed.

mod crashes;
mod entries;
mod order;
mod trees;

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::documents;
use crate::laptop::{Laptop, status, wait_for, words};

/// The queue of a laptop's project.
struct TestQueue {
    laptop: Laptop,
}

impl TestQueue {
    fn new() -> Self {
        Self { laptop: Laptop::new() }
    }

    /// Adds an entry: the rest of the command line of `queue add`. Returns its number.
    fn add(&self, line: &str) -> i64 {
        self.added(&self.laptop.run(&format!("queue add {line}")))
    }

    /// Adds a script. Returns its number.
    fn add_script(&self, line: &str, bytes: &[u8]) -> i64 {
        let line = format!("queue add --stdin {line}");
        self.added(&self.laptop.run_with_input(&line, bytes))
    }

    fn added(&self, output: &Output) -> i64 {
        assert_eq!(status(output), 0, "{}", self.laptop.shown("queue add", output));
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
    }

    /// Runs all entries to their end.
    fn run_once(&self) {
        let output = self.laptop.run("queue run --once");
        assert_eq!(status(&output), 0, "{}", self.laptop.shown("queue run --once", &output));
    }

    /// Starts a runner, with a point at which it, or what it starts, is killed.
    fn start_runner(&self, kill_at: Option<&str>) -> Child {
        let mut command: Command = self.laptop.rgpu(words("queue run --once"));
        if let Some(point) = kill_at {
            command.env("RGPU_TEST_KILL_AT", point);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// What a command prints with `--json`, checked against its schema.
    fn json(&self, line: &str) -> Value {
        let output = self.laptop.run(&format!("queue {line} --json"));
        let document = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", self.laptop.shown(line, &output)));
        let is_entry = line.starts_with("show") || line.starts_with("log");
        documents::printed_keeps(if is_entry { "queue-entry" } else { "queue" }, &document);
        document
    }

    /// An entry as lists show it.
    fn entry(&self, id: i64) -> Value {
        self.json(&format!("show {id}"))["entry"].clone()
    }

    /// The states of all entries.
    fn states(&self) -> BTreeMap<i64, String> {
        let entries = self.json("ls --all")["entries"].clone();
        let state = |entry: &Value| {
            (entry["id"].as_i64().unwrap(), entry["state"].as_str().unwrap().to_owned())
        };
        entries.as_array().unwrap().iter().map(state).collect()
    }

    fn state(&self, id: i64) -> String {
        self.states()[&id].clone()
    }

    /// The output of an entry's last attempt.
    fn output(&self, id: i64) -> Vec<u8> {
        self.laptop.run(&format!("queue log {id}")).stdout
    }

    fn wait_for_state(&self, id: i64, state: &str) {
        wait_for(state, || (self.state(id) == state).then_some(()));
    }

    /// The lines of `queue.log`, without the number of the event.
    fn ends(&self) -> Vec<String> {
        let text = fs::read_to_string(self.laptop.project(".rgpu/queue.log")).unwrap_or_default();
        assert!(text.is_empty() || text.ends_with('\n'), "half a line: {text}");
        text.lines().map(|line| line.rsplit_once(" event=").unwrap().0.to_owned()).collect()
    }

    /// The lines of `queue.log` about an entry: `attempt=1 status=ok`.
    fn ends_of(&self, id: i64) -> Vec<String> {
        let about = format!("END id={id} ");
        let word = |line: &str, name: &str| {
            line.split(' ').find(|word| word.starts_with(name)).unwrap().to_owned()
        };
        let ends = self.ends().into_iter().filter(|line| line.starts_with(&about));
        ends.map(|line| format!("{} {}", word(&line, "attempt="), word(&line, "status="))).collect()
    }

    /// The lines that the commands of a test wrote into a file of the project.
    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.laptop.project(file)).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }
}
