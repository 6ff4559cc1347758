//! A headless Chromium, driven over its DevTools pipe: what a page says, draws and looks like.
//!
//! Messages are JSON ended by a zero byte, on the browser's descriptors 3 and 4. Every wait has a
//! limit. Console errors, exceptions and breaches of the page's policy are all kept.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};

/// How long an answer may take; machines that test many things at once are slow.
const PATIENCE: Duration = Duration::from_secs(90);

/// Where a browser may be found.
const NAMES: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A browser with one page.
pub(crate) struct Browser {
    process: Child,
    input: ChildStdin,
    answers: Receiver<Value>,
    next: u64,
    session: Option<String>,
    /// What went wrong on the page, in its own words.
    pub(crate) complaints: Vec<String>,
    /// The server whose pages are opened; requests to any other are complaints.
    server: Option<String>,
    _home: tempfile::TempDir,
}

impl Browser {
    /// Starts one. None where there is none on this machine, which is said; under `CI` that is a
    /// failure: `cargo xtask test` brings one.
    pub(crate) fn start() -> Option<Self> {
        let named = std::env::var_os("RGPU_TEST_BROWSER").map(Into::into);
        let Some(program) = named.or_else(|| NAMES.iter().find_map(|n| which::which(n).ok()))
        else {
            assert!(std::env::var_os("CI").is_none(), "no Chromium on this machine");
            eprintln!("SKIPPED: no Chromium on this machine, so no page was opened");
            return None;
        };
        let home = tempfile::tempdir().unwrap();
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"])
            .arg(program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--disable-dev-shm-usage", "--disable-background-networking"])
            .args(["--remote-debugging-pipe", "--window-size=1280,900"])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let (send, answers) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if send.send(value).is_err() {
                    break;
                }
                message.clear();
            }
        });
        let complaints = Vec::new();
        let mut browser = Self {
            process,
            input,
            answers,
            next: 0,
            session: None,
            complaints,
            server: None,
            _home: home,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Asks and waits for the answer; events in between are looked at.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.input.write_all(&bytes).unwrap();
        loop {
            let answer = self.receive(method);
            if answer["id"] == id {
                // A page that went to another one meanwhile is asked again.
                if answer["error"]["message"] == "Inspected target navigated or closed" {
                    return self.call(method, params);
                }
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn receive(&mut self, waiting_for: &str) -> Value {
        let answer = self.answers.recv_timeout(PATIENCE);
        let answer = answer.unwrap_or_else(|e| panic!("no answer to {waiting_for}: {e}"));
        let params = &answer["params"];
        let complaint = match answer["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => Some(&params["exceptionDetails"]),
            "Log.entryAdded" if params["entry"]["level"] == "error" => Some(&params["entry"]),
            "Runtime.consoleAPICalled" if params["type"] == "error" => Some(params),
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                let own = ["file:", "about:", "data:"].iter().any(|s| url.starts_with(s))
                    || self.server.as_ref().is_some_and(|server| url.starts_with(server));
                (!own).then_some(params)
            }
            _ => None,
        };
        self.complaints.extend(complaint.map(Value::to_string));
        answer
    }

    /// Opens a file and waits until it is loaded.
    pub(crate) fn open(&mut self, page: &Path) {
        self.navigate(&format!("file://{}", page.display()));
    }

    /// Opens a page of a server and waits until it is loaded. Requests to this server are allowed
    /// from then on.
    pub(crate) fn open_at(&mut self, origin: &str, path: &str) {
        self.server = Some(format!("{origin}/"));
        self.navigate(&format!("{origin}{path}"));
    }

    fn navigate(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        while self.receive("load")["method"] != "Page.loadEventFired" {}
    }

    /// Opens a file and draws two frames of it; the page's own work for that, from navigation to
    /// the second frame, in milliseconds of its main thread's processor time: what else the machine
    /// does meanwhile does not count.
    pub(crate) fn open_and_draw(&mut self, page: &Path) -> f64 {
        self.call("Performance.enable", json!({ "timeDomain": "threadTicks" }));
        self.open(page);
        let frame = "new Promise(done => requestAnimationFrame(done))";
        self.value(&format!("{frame}.then(() => {frame}).then(() => 0)"));
        let all = self.call("Performance.getMetrics", json!({}));
        let metric = |m: &&Value| m["name"] == "TaskDuration";
        let spent = all["metrics"].as_array().unwrap().iter().find(metric).unwrap();
        self.call("Performance.disable", json!({}));
        spent["value"].as_f64().unwrap() * 1e3
    }

    /// The value of an expression in the page. Its texts have spaces for the ones at which no line
    /// ends.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        let text = answer["result"]["value"].to_string().replace('\u{a0}', " ");
        serde_json::from_str(&text).unwrap()
    }

    /// Texts of the page in which a line may end between a number and its unit, but for code.
    pub(crate) fn broken_quantities(&mut self) -> Value {
        self.value(
            r"(() => {
                const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
                const quantity = /\d (?:%|[nµm]?s|min|h|[kMGT]?B(?:\/s)?|MHz)(?![\p{L}\d])/u;
                const found = [];
                while (walker.nextNode()) {
                    const { data, parentElement } = walker.currentNode;
                    const isCode = parentElement.closest('code, pre, .code, script, noscript');
                    if (!isCode && quantity.test(data)) found.push(data);
                }
                return found;
            })()",
        )
    }

    /// Makes the page this many CSS pixels wide, as on a smaller screen.
    pub(crate) fn resize(&mut self, width: u32) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Lets the system wish for `light` or `dark`.
    pub(crate) fn wish(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Presses a key on what has the focus.
    pub(crate) fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if key.len() == 1 && kind == "keyDown" { key } else { "" };
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "text": text }));
        }
    }

    /// The whole page as PNG, into `path`.
    pub(crate) fn picture(&mut self, path: &Path) {
        let size = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
        // The picture has no scroll bar, so its page is as wide as the window.
        let width = self.value("innerWidth").as_f64().unwrap().max(size["width"].as_f64().unwrap());
        let clip = json!({ "x": 0, "y": 0, "scale": 1, "width": width, "height": size["height"].as_f64().unwrap().min(12_000.0) });
        let params = json!({ "captureBeyondViewport": true, "clip": clip });
        let answer = self.call("Page.captureScreenshot", params);
        let png = Base64::decode_vec(answer["data"].as_str().unwrap()).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, png).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
