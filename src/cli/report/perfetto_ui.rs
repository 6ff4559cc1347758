//! `--format perfetto --open`: opens ui.perfetto.dev, whose page fetches the trace from this
//! process.
//!
//! The page may fetch from this machine on one port only, 9001: its content security policy allows
//! no other, and Perfetto's own `tools/open_trace_in_ui` uses it too. A random part of the path
//! keeps other pages and users from reading the trace. It is on no command line. Nothing else is
//! served, and after one fetch nothing is.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, HeaderName};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rgpu_protocol::server::{Connection, Connections, accept, http1_builder};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::cli::support::app::App;
use crate::cli::support::desktop::open_secret_link;
use crate::cli::support::signals;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::run::channel;
use rgpu_run::store::state::random_id;

const PORT: u16 = 9001;
const ORIGIN: &str = "https://ui.perfetto.dev";

/// A browser asks for it before a page of the internet may fetch from this machine.
const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");

/// Opens the trace in the browser. Returns when the page has fetched it, or on Ctrl-C.
pub(super) fn show(app: &App, trace: &Path, bytes: Vec<u8>) -> Result<()> {
    let path: Arc<str> = format!("/{}/trace.pftrace", random_id()?).into();
    let link = format!("{ORIGIN}/#!/?url=http://127.0.0.1:{PORT}{path}");
    let (canceller, mut stop) = channel();
    signals::listen(canceller)?;
    let not_served = |e: io::Error| {
        let failure = Failure::new(Exit::Config, "not_served", "the trace is not served").cause(e);
        failure.file(trace.display()).hint(format!(
            "the page accepts no port but {PORT}; open {ORIGIN} and drop the file there"
        ))
    };
    app.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).await.map_err(not_served)?;
        app.print_note(&format!("{link}\nserved until the page has fetched it; Ctrl-C ends this"));
        let _file = open_secret_link("trace", &link)?;
        tokio::select! {
            () = serve_once(&listener, &path, bytes.into()) => {}
            () = stop.wait_for_more_than(0) => {}
        }
        Ok(())
    })
}

/// Answers requests until the trace was sent once.
async fn serve_once(listener: &TcpListener, path: &Arc<str>, trace: Bytes) {
    let connections = Connections::new();
    let mut answers = JoinSet::new();
    loop {
        tokio::select! {
            stream = accept(listener, &connections) => connections.open(|connection| {
                answers.spawn(answer(stream, connection, Arc::clone(path), trace.clone()))
            }),
            Some(sent) = answers.join_next() => {
                if sent.unwrap_or(false) {
                    return;
                }
            }
        }
    }
}

/// Answers one connection, and returns whether the trace was sent over it.
async fn answer(stream: TcpStream, connection: Connection, path: Arc<str>, trace: Bytes) -> bool {
    let is_asked = AtomicBool::new(false);
    let service = service_fn(|request: Request<_>| {
        let response = response(&request, &path, &trace);
        let is_trace = request.method() == Method::GET && response.status() == StatusCode::OK;
        // Idle connections do not close one that knows the path.
        let is_trace = is_trace && connection.admit();
        is_asked.fetch_or(is_trace, Ordering::Relaxed);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut server = http1_builder();
    let ended = server.keep_alive(false).serve_connection(TokioIo::new(stream), service).await;
    ended.is_ok() && is_asked.load(Ordering::Relaxed)
}

fn response<B>(request: &Request<B>, path: &str, trace: &Bytes) -> Response<Full<Bytes>> {
    let (status, body) = match *request.method() {
        _ if request.uri().path() != path => (StatusCode::NOT_FOUND, Bytes::new()),
        Method::GET => (StatusCode::OK, trace.clone()),
        Method::OPTIONS => (StatusCode::NO_CONTENT, Bytes::new()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let allow = [(ACCESS_CONTROL_ALLOW_ORIGIN, ORIGIN), (ALLOW_PRIVATE_NETWORK, "true")];
    for (name, value) in allow.into_iter().chain([(CACHE_CONTROL, "no-store")]) {
        response.headers_mut().insert(name, hyper::header::HeaderValue::from_static(value));
    }
    response
}
