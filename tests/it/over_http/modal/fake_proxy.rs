//! A fake of Modal's proxy, by Modal's documentation and reports of its users: it checks the proxy
//! token, answers long requests with a 303 to the address of the result, and has plain-text error
//! bodies. Behind it is a real worker, which sees none of this. The test sets the time limit.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::worker::Worker;
use crate::laptop::Laptop;

pub(in super::super) const KEY: &str = "wk-key-that-must-not-be-told";
pub(in super::super) const SECRET: &str = "ws-secret-that-must-not-be-told";

/// The query of a result's address.
const RESULT: &str = "__modal_function_call_id=";

/// The fault of a request.
pub(in super::super) enum Fault {
    None,
    /// It does not reach the app. Status line and body of the answer.
    Refused(&'static str, &'static str),
    /// The app handles it, and its answer is lost. Status line and body instead of it.
    Lost(&'static str, &'static str),
    /// The app handles it, and only this many bytes of its answer arrive.
    Cut(usize),
    /// It is redirected to its result at once, as may happen under load.
    Late,
    /// It is redirected again and again.
    Round,
    /// It is redirected to this address.
    Elsewhere(String),
    /// A container is started first.
    Cold(Duration),
    /// A long poll ends after a second.
    Brief,
}

/// A request, for the test's choice of a fault.
pub(in super::super) struct ReceivedRequest {
    /// Whether it is for a result.
    pub(in super::super) result: bool,
    /// Whether it submits a plan.
    pub(in super::super) submits: bool,
    /// Number of earlier requests of any kind.
    pub(in super::super) before: usize,
}

type FaultFn = Box<dyn Fn(&ReceivedRequest) -> Fault + Send + Sync>;

/// The stored result of a redirected request.
enum StoredResult {
    /// The app has not answered yet.
    Coming(TcpStream),
    /// The answer, which can be requested again.
    Here(Vec<u8>),
}

struct Inner {
    app: Option<(u16, String)>,
    limit: Duration,
    choose_fault: FaultFn,
    request_count: AtomicUsize,
    kept: Mutex<HashMap<String, StoredResult>>,
    log: Mutex<Vec<String>>,
}

/// A running fake proxy.
pub(in super::super) struct FakeModalProxy {
    pub(in super::super) port: u16,
    inner: Arc<Inner>,
}

impl FakeModalProxy {
    /// Starts a proxy in front of a worker; `None`: no app is deployed.
    pub(in super::super) fn start(
        worker: Option<&Worker>,
        limit: Duration,
        choose_fault: impl Fn(&ReceivedRequest) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let inner = Arc::new(Inner {
            app: worker.map(|worker| (worker.port, worker.token.clone())),
            limit,
            choose_fault: Box::new(choose_fault),
            request_count: AtomicUsize::new(0),
            kept: Mutex::default(),
            log: Mutex::default(),
        });
        let shared = inner.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let inner = shared.clone();
                std::thread::spawn(move || inner.serve(stream));
            }
        });
        Self { port, inner }
    }

    /// `METHOD path` of each request, in order, and whether it `submits`.
    pub(in super::super) fn log(&self) -> Vec<String> {
        self.inner.log.lock().unwrap().clone()
    }

    /// Adds it to the laptop's settings as remote `b200`, with the right token.
    pub(in super::super) fn add_remote_to_config(&self, laptop: &Laptop) {
        add_remote_to_config(
            laptop,
            self.port,
            &format!("MODAL_KEY={KEY}\nMODAL_SECRET={SECRET}\n"),
        );
    }
}

/// Adds an app at a port to the laptop's settings as remote `b200`; `env_file` is the text of its
/// token file.
pub(in super::super) fn add_remote_to_config(laptop: &Laptop, port: u16, env_file: &str) {
    use std::os::unix::fs::PermissionsExt;
    let file = laptop.path("modal.env");
    std::fs::write(&file, env_file).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let settings = format!(
        "[remote.b200]\nurl = \"modal+http://127.0.0.1:{port}\"\npath = [{:?}]\n\
         env = {{ RGPU_FAKE_HOST = {:?} }}\noptions = {{ env_file = {file:?} }}\n",
        laptop.path("h200/bin"),
        laptop.path("h200"),
    );
    std::fs::write(laptop.path("config/config.toml"), settings).unwrap();
}

struct Request {
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn read(stream: &mut TcpStream) -> Option<Self> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).ok()?;
        let mut lines = head.trim_end().split("\r\n");
        let line = lines.next()?.to_owned();
        let headers: Vec<_> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let len = headers.iter().find(|(name, _)| name == "content-length");
        let mut body = vec![0; len.map_or(0, |(_, len)| len.parse().unwrap())];
        stream.read_exact(&mut body).ok()?;
        Some(Self { line, headers, body })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

fn say(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let len = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n{headers}\r\n");
    let _ = stream.write_all((head + body).as_bytes());
}

impl Inner {
    fn serve(&self, mut stream: TcpStream) {
        let Some(request) = Request::read(&mut stream) else { return };
        let mut words = request.line.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let submits = String::from_utf8_lossy(&request.body).contains("\"do\":\"submit\"");
        let what = if submits { " submits" } else { "" };
        self.log.lock().unwrap().push(format!("{method} {target}{what}"));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let received = ReceivedRequest {
            result: query.contains(RESULT),
            submits,
            before: self.request_count.fetch_add(1, Ordering::SeqCst),
        };
        let text = |stream: &mut TcpStream, status: &str, body: &str| {
            say(stream, status, "Content-Type: text/plain\r\n", body);
        };
        match (request.header("modal-key"), request.header("modal-secret")) {
            (Some(KEY), Some(SECRET)) => {}
            (None, _) | (_, None) => {
                let body = "modal-http: missing credentials for proxy authorization";
                return text(&mut stream, "401 Unauthorized", body);
            }
            _ => {
                let body = "modal-http: invalid credentials for proxy authorization";
                return text(&mut stream, "401 Unauthorized", body);
            }
        }
        let Some((port, token)) = &self.app else {
            return text(&mut stream, "404 Not Found", "modal-http: invalid function call");
        };
        let fault = (self.choose_fault)(&received);
        match &fault {
            Fault::Refused(status, body) => return text(&mut stream, status, body),
            Fault::Round => {
                let to = format!("Location: {path}?{RESULT}fc-round\r\n");
                return say(&mut stream, "303 See Other", &to, "");
            }
            Fault::Elsewhere(to) => {
                return say(&mut stream, "303 See Other", &format!("Location: {to}\r\n"), "");
            }
            Fault::Cold(time) => std::thread::sleep(*time),
            _ => {}
        }
        if received.result {
            if method != "GET" {
                return text(&mut stream, "400 Bad Request", "modal-http: bad redirect method");
            }
            let id = query.rsplit_once(RESULT).unwrap().1.to_owned();
            let kept = self.kept.lock().unwrap().remove(&id);
            return match kept {
                Some(StoredResult::Coming(app)) => self.answer(stream, app, path, id, &fault),
                Some(StoredResult::Here(bytes)) => {
                    let _ = stream.write_all(&bytes);
                    self.kept.lock().unwrap().insert(id, StoredResult::Here(bytes));
                }
                None => text(
                    &mut stream,
                    "408 Request Timeout",
                    "modal-http: Missing request, possibly due to expiry or cancellation",
                ),
            };
        }
        let mut app = TcpStream::connect(("127.0.0.1", *port)).unwrap();
        let target = match fault {
            Fault::Brief => target.replace("wait_ms=10000", "wait_ms=1000"),
            _ => target.to_owned(),
        };
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        for (name, value) in &request.headers {
            if !["modal-key", "modal-secret", "connection"].contains(&name.as_str()) {
                head += &format!("{name}: {value}\r\n");
            }
        }
        head += &format!("authorization: Bearer {token}\r\nconnection: close\r\n\r\n");
        let _ = app.write_all(head.as_bytes());
        let _ = app.write_all(&request.body);
        self.answer(stream, app, path, format!("fc-{}", received.before), &fault);
    }

    /// Passes the app's answer on if it begins in time, and puts it off otherwise.
    fn answer(&self, mut to: TcpStream, mut app: TcpStream, path: &str, id: String, fault: &Fault) {
        if let Fault::Lost(status, body) = fault {
            let _ = app.read_to_end(&mut Vec::new());
            return say(&mut to, status, "Content-Type: text/plain\r\n", body);
        }
        let begun = Instant::now();
        app.set_read_timeout(Some(self.limit.max(Duration::from_millis(1)))).unwrap();
        let mut first = [0];
        let late = matches!(fault, Fault::Late) || app.peek(&mut first).is_err();
        app.set_read_timeout(None).unwrap();
        if late {
            let location = format!("Location: {path}?{RESULT}{id}\r\n");
            self.kept.lock().unwrap().insert(id, StoredResult::Coming(app));
            return say(&mut to, "303 See Other", &location, "");
        }
        assert!(begun.elapsed() < Duration::from_secs(150));
        let mut most = if let Fault::Cut(most) = fault { *most } else { usize::MAX };
        let mut whole = Vec::new();
        let mut piece = [0; 64 << 10];
        let mut open = true;
        while let Ok(n @ 1..) = app.read(&mut piece) {
            let passed = n.min(most);
            most -= passed;
            // A client that goes away ends a stream, and no result that it may ask for again.
            open = open && to.write_all(&piece[..passed]).is_ok();
            if most == 0 {
                let _ = to.shutdown(std::net::Shutdown::Both);
                open = false;
            }
            whole.extend_from_slice(&piece[..n]);
            if !open && whole.len() > 8 << 20 {
                return;
            }
        }
        self.kept.lock().unwrap().insert(id, StoredResult::Here(whole));
    }
}
