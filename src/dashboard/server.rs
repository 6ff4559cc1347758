//! The server: its routes, and what each answers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rgpu_protocol::server::{Connection, Connections, accept, http1_builder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::access::{AccessControl, KEY_HEADER, Login};
use super::action::{self, ActionRequest};
use super::page::message_page;
use super::run_query::RunQuery;
use super::{DashboardContext, Server, host, live, overview, queue_and_loops, run_detail, suites};
use crate::loopback;
use rgpu_model::error::{ErrorDocument, Exit, Failure, Result};
use rgpu_report::page_parts::hash;
use rgpu_work::own_command::CommandLine;

/// The most bytes of a request's body.
const MAX_BODY_BYTES: usize = 64 << 10;

/// How long a comparison may take.
const COMPARE_LIMIT: Duration = Duration::from_secs(120);

/// How long after the last request the server still looks for changes.
const WATCH_AFTER_REQUEST: Duration = Duration::from_secs(20);

/// Where the server listens if nobody says otherwise.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8710);

/// How the server listens.
#[derive(Clone, Copy, Debug)]
pub struct ServeOptions {
    /// The address to listen at; only loopback addresses are accepted. `None`: the first free port
    /// from 8710 on.
    pub listen: Option<SocketAddr>,
    /// Whether actions are refused.
    pub read_only: bool,
}

/// Serves the page until SIGINT or SIGTERM. `print_link` gets the link, and `warn` what the user
/// should know later.
pub async fn serve(
    context: DashboardContext,
    options: ServeOptions,
    print_link: impl FnOnce(&str),
    warn: fn(&str),
) -> Result<()> {
    let again = "another dashboard may run there; `--listen 127.0.0.1:0` lets the system choose a \
                 port";
    let listener = match options.listen {
        Some(address) => loopback::listen(address, again).await?,
        None => loopback::listen_from(DEFAULT_ADDRESS, again).await?,
    };
    let address = listener.local_addr().map_err(loopback::failed)?;
    let access = AccessControl::new(address, options.read_only)?;
    let link = format!("http://{address}/login?token={}", access.token());
    let server = Arc::new(Server::new(context, access));
    live::watch(&server);
    let router = router(&server, warn);
    print_link(&link);
    let mut terminate = signal(SignalKind::terminate()).map_err(loopback::failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(loopback::failed)?;
    let connections = Connections::new();
    loop {
        let stream = tokio::select! {
            stream = accept(&listener, &connections) => stream,
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        };
        let _ = stream.set_nodelay(true);
        connections.open(|connection| {
            let router = router.clone().layer(Extension(Arc::new(connection)));
            let service = TowerToHyperService::new(router);
            let connection = http1_builder().serve_connection(TokioIo::new(stream), service);
            // A client that closes its connection is no failure.
            tokio::spawn(async move { drop(connection.await) }).abort_handle()
        });
    }
}

type SharedServer = State<Arc<Server>>;

fn router(server: &Arc<Server>, warn: fn(&str)) -> Router {
    let login = move |State(server): SharedServer, Query(query): Query<LoginQuery>| async move {
        log_in(&server, &query.token, warn)
    };
    // A program that only looks at a link does not use it up.
    let refuse_head = || async { StatusCode::METHOD_NOT_ALLOWED };
    let api = Router::new()
        .route("/overview", get(get_overview))
        .route("/hosts", get(get_hosts))
        .route("/runs", get(get_runs))
        .route("/runs/{id}", get(get_run))
        .route("/runs/{id}/log/{name}", get(get_log))
        .route("/runs/{id}/live", get(get_run_live))
        .route("/compare", get(get_comparison))
        .route("/suites", get(get_suites))
        .route("/suites/{id}", get(get_suite))
        .route("/history", get(get_history))
        .route("/queue", get(get_queue))
        .route("/queue/{id}", get(get_entry))
        .route("/loops", get(get_loops))
        .route("/loops/{id}", get(get_loop))
        .route("/loops/{id}/iterations/{iteration}/patch", get(get_patch))
        .route("/model", get(get_predictions))
        .route("/live", get(get_live))
        .route("/actions", post(post_action));
    Router::new()
        .route("/", get(get_page))
        .route("/login", get(login).head(refuse_head))
        .route("/runs/{id}/report", get(get_report))
        .nest("/api/v1", api)
        .fallback(|| async { refusal(&unknown("there is nothing at this address")) })
        .layer(from_fn_with_state(Arc::clone(server), guard))
        .with_state(Arc::clone(server))
}

/// Lets own requests through, and adds what every answer carries.
async fn guard(
    State(server): SharedServer,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let (is_login, is_page) = (path == "/login", path == "/");
    let (uri, headers) = (request.uri(), request.headers());
    let checked = server.access.check_origin(uri, headers).and_then(|()| {
        if is_login {
            Ok(())
        } else {
            let method = request.method();
            server.access.check_session(headers)?;
            if !is_page {
                server.access.check_key(method, uri, headers)?;
            }
            server.access.check_may_act(method, headers)?;
            if connection.admit() { Ok(()) } else { Err(too_many_connections()) }
        }
    });
    let mut response = match checked {
        Ok(()) => {
            server.record_request();
            next.run(request).await
        }
        Err(failure) if is_page || is_login => {
            message(status(&failure), &overview::problem_lines(&failure), "'none'")
        }
        Err(failure) => refusal(&failure),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in [
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let strictest = "default-src 'none'; frame-ancestors 'none'";
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(strictest));
    response
}

#[derive(serde::Deserialize)]
struct LoginQuery {
    #[serde(default)]
    token: String,
}

fn log_in(server: &Server, token: &str, warn: fn(&str)) -> Response {
    match server.access.log_in(token) {
        Login::Opened => {
            // Not a redirect: the navigation may come from elsewhere, and then has no strict
            // cookies.
            let script = format!(
                "try {{ localStorage.setItem(\"{KEY_HEADER}\", \"{}\"); }} catch {{}} \
                 location.replace(\"/\");",
                server.access.key()
            );
            let policy = format!(
                "default-src 'none'; script-src '{}'; img-src data:; frame-ancestors 'none'",
                hash(&script)
            );
            let page = format!(
                "<!doctype html><title>rgpu dashboard</title><link rel=\"icon\" href=\"data:,\">\
                 <noscript>This page needs JavaScript, which is switched off.</noscript>\
                 <script>{script}</script>\n"
            );
            let mut response = text(StatusCode::OK, "text/html; charset=utf-8", page);
            if let Ok(policy) = HeaderValue::from_str(&policy) {
                response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
            }
            if let Ok(cookie) = HeaderValue::from_str(&server.access.cookie()) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        }
        Login::UsedBefore { is_second } => {
            if is_second {
                warn(
                    "warning: the link was opened a second time, and refused. If you did not open \
                     it first, stop this dashboard",
                );
            }
            let words = "this link was used already: it works once\n\
                         if you did not open it, stop `rgpu dashboard` and start it again\n";
            message(StatusCode::FORBIDDEN, words, "'none'")
        }
        Login::WrongToken => {
            let words = "the token of this link is wrong: open the link that `rgpu dashboard` \
                         printed\n";
            message(StatusCode::FORBIDDEN, words, "'none'")
        }
    }
}

impl Server {
    /// Notes the time of a request.
    fn record_request(&self) {
        *self.last_request.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Instant::now();
    }

    /// Whether the last request is no longer ago than `WATCH_AFTER_REQUEST`.
    pub(super) fn had_request_recently(&self) -> bool {
        let last = *self.last_request.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        last.elapsed() < WATCH_AFTER_REQUEST
    }
}

fn text(status: StatusCode, kind: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A page with a message for a reader who gets no other page. `ancestors` are the pages that may
/// have it in a frame.
fn message(status: StatusCode, message: &str, ancestors: &str) -> Response {
    let (html, policy) = message_page(message);
    let mut response = text(status, "text/html; charset=utf-8", html);
    if let Ok(policy) = HeaderValue::from_str(&format!("{policy}; frame-ancestors {ancestors}")) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(body) => text(StatusCode::OK, "application/json", body),
        Err(e) => refusal(
            &Failure::new(Exit::Bug, "bug", "a document cannot be written as JSON").cause(e),
        ),
    }
}

fn refusal(failure: &Failure) -> Response {
    let document = ErrorDocument::new(failure.clone(), failure.exit as u8);
    let body = serde_json::to_string(&document).unwrap_or_default();
    text(status(failure), "application/json", body)
}

fn status(failure: &Failure) -> StatusCode {
    match (failure.code.as_str(), failure.exit) {
        ("no_session", _) => StatusCode::UNAUTHORIZED,
        ("no_host", _) => StatusCode::BAD_REQUEST,
        ("foreign_request" | "read_only", _) => StatusCode::FORBIDDEN,
        ("busy", _) => StatusCode::SERVICE_UNAVAILABLE,
        (code, Exit::Usage | Exit::Config)
            if code.starts_with("unknown_") || code.starts_with("no_") =>
        {
            StatusCode::NOT_FOUND
        }
        (_, Exit::Usage | Exit::Config) => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn too_many_connections() -> Failure {
    Failure::new(Exit::Host, "busy", "the dashboard has too many connections")
        .hint("close other pages of this dashboard")
}

fn unknown(what: &str) -> Failure {
    Failure::new(Exit::Usage, "unknown_address", what)
}

/// The answer with a document, or why there is none.
fn answer<T: Serialize>(result: Result<T>) -> Response {
    match result {
        Ok(document) => json(&document),
        Err(failure) => refusal(&failure),
    }
}

/// The query of a request as its type. Unknown names are errors.
fn query<T: DeserializeOwned>(uri: &axum::http::Uri) -> Result<T> {
    let read = Query::<T>::try_from_uri(uri);
    read.map(|query| query.0).map_err(|e| {
        Failure::new(Exit::Usage, "wrong_query", "the address has an unknown query parameter")
            .cause(e.body_text())
    })
}

async fn get_page(State(server): SharedServer) -> Response {
    let mut response =
        text(StatusCode::OK, "text/html; charset=utf-8", server.page.html().to_owned());
    if let Ok(policy) = HeaderValue::from_str(server.page.policy()) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

async fn get_overview(State(server): SharedServer) -> Response {
    let context = server.context.clone();
    let state = server.blocking(move || Ok(queue_and_loops::for_overview(&context))).await;
    let state = state.unwrap_or_else(|failure| queue_and_loops::QueueAndLoops {
        problems: vec![overview::problem_lines(&failure)],
        ..queue_and_loops::QueueAndLoops::default()
    });
    let (context, table) = (server.context.clone(), Arc::clone(&server.table));
    answer(
        server
            .blocking(move || {
                let problem = table.problem();
                Ok(overview::overview(&context, &table.snapshot(), state, problem))
            })
            .await,
    )
}

async fn get_hosts(State(server): SharedServer) -> Response {
    let (context, snapshot) = (server.context.clone(), server.table.snapshot());
    let read = server.blocking(move || {
        let state = queue_and_loops::for_overview(&context);
        Ok(host::hosts(&context, &snapshot, &state.entries))
    });
    answer(read.await)
}

async fn get_runs(State(server): SharedServer, uri: axum::http::Uri) -> Response {
    answer(query::<RunQuery>(&uri).map(|query| query.page(&server.table.snapshot())))
}

async fn get_run(State(server): SharedServer, Path(id): Path<String>) -> Response {
    let context = server.context.clone();
    answer(server.blocking(move || run_detail::detail(&context, &id)).await)
}

async fn get_log(
    State(server): SharedServer,
    Path((id, name)): Path<(String, String)>,
) -> Response {
    let context = server.context.clone();
    answer(server.blocking(move || run_detail::log(&context, &id, &name)).await)
}

/// The query of a stream.
#[derive(serde::Deserialize)]
struct LiveQuery {
    /// The id of the last message, from a page that opened the stream again by itself.
    last: Option<String>,
}

/// The id of the last message that the client got.
fn last_id(headers: &HeaderMap, query: LiveQuery) -> Option<String> {
    let header = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    header.map(str::to_owned).or(query.last)
}

async fn get_run_live(
    State(server): SharedServer,
    Path(id): Path<String>,
    Query(query): Query<LiveQuery>,
    headers: HeaderMap,
) -> Response {
    match run_detail::find(&server.context, &id) {
        Ok(folder) => live::run_stream(&server, folder, last_id(&headers, query).as_deref()),
        Err(failure) => refusal(&failure),
    }
}

async fn get_live(
    State(server): SharedServer,
    Query(query): Query<LiveQuery>,
    headers: HeaderMap,
) -> Response {
    live::changes_stream(&server, last_id(&headers, query).as_deref())
}

async fn get_report(State(server): SharedServer, Path(id): Path<String>) -> Response {
    match run_detail::report_page(&server, &id).await {
        Ok(page) => {
            let mut response = text(StatusCode::OK, "text/html; charset=utf-8", page);
            // Its own policy, in the page, allows its own script. Here it gets an origin of its
            // own, so that it can reach nothing of this server.
            let policy = "sandbox allow-scripts; frame-ancestors 'self'";
            response
                .headers_mut()
                .insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
            response
        }
        Err(failure) => message(status(&failure), &overview::problem_lines(&failure), "'self'"),
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CompareQuery {
    a: String,
    b: String,
    /// Whether differing conditions are no error.
    #[serde(default)]
    force: bool,
}

async fn get_comparison(State(server): SharedServer, uri: axum::http::Uri) -> Response {
    answer(compare(&server, &uri).await)
}

async fn compare(server: &Server, uri: &axum::http::Uri) -> Result<Value> {
    let CompareQuery { a, b, force } = query(uri)?;
    for id in [&a, &b] {
        run_detail::find(&server.context, id)?;
    }
    let mut line = CommandLine::new(["compare"]);
    if force {
        line.arg("--force");
    }
    line.arg(a);
    line.arg(b);
    server.run_command(line, COMPARE_LIMIT).await?.into_document()
}

async fn get_suites(State(server): SharedServer) -> Response {
    json(&suites::suites(&server.table.snapshot()))
}

async fn get_suite(State(server): SharedServer, Path(id): Path<String>) -> Response {
    let context = server.context.clone();
    let read = server.blocking(move || {
        let folder = run_detail::find(&context, &id)?;
        suites::suite(folder.path())
    });
    answer(read.await)
}

#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HistoryQuery {
    case: String,
    gpu: String,
}

impl Default for HistoryQuery {
    fn default() -> Self {
        Self { case: "*".to_owned(), gpu: String::new() }
    }
}

async fn get_history(State(server): SharedServer, uri: axum::http::Uri) -> Response {
    let context = server.context.clone();
    match query::<HistoryQuery>(&uri) {
        Ok(HistoryQuery { case, gpu }) => {
            answer(server.blocking(move || suites::history(&context, &case, &gpu)).await)
        }
        Err(failure) => refusal(&failure),
    }
}

async fn get_queue(State(server): SharedServer) -> Response {
    let context = server.context.clone();
    answer(server.blocking(move || queue_and_loops::queue(&context)).await)
}

async fn get_entry(State(server): SharedServer, Path(id): Path<String>) -> Response {
    let (context, snapshot) = (server.context.clone(), server.table.snapshot());
    let read = server.blocking(move || {
        let id = id.parse().map_err(|_| unknown("the number of an entry is missing"))?;
        queue_and_loops::entry(&context, &snapshot, id)
    });
    answer(read.await)
}

async fn get_loops(State(server): SharedServer) -> Response {
    let context = server.context.clone();
    answer(server.blocking(move || queue_and_loops::loops(&context)).await)
}

async fn get_loop(State(server): SharedServer, Path(id): Path<String>) -> Response {
    let context = server.context.clone();
    answer(server.blocking(move || queue_and_loops::loop_status(&context, &id)).await)
}

async fn get_patch(
    State(server): SharedServer,
    Path((id, iteration)): Path<(String, String)>,
) -> Response {
    let context = server.context.clone();
    let read = server.blocking(move || {
        let number = iteration.parse();
        let number = number.map_err(|_| unknown("the number of an iteration is missing"))?;
        queue_and_loops::patch(&context, &id, number)
    });
    answer(read.await)
}

async fn get_predictions(State(server): SharedServer) -> Response {
    json(&suites::predictions(&server.table.snapshot()))
}

async fn post_action(State(server): SharedServer, body: Body) -> Response {
    answer(act(&server, body).await)
}

async fn act(server: &Server, body: Body) -> Result<action::ActionResult> {
    let wrong = |why: String| {
        Failure::new(Exit::Usage, "wrong_argument", "the action cannot be read").cause(why)
    };
    let bytes: Bytes =
        axum::body::to_bytes(body, MAX_BODY_BYTES).await.map_err(|e| wrong(e.to_string()))?;
    let request: ActionRequest =
        serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
    action::start(server, &request).await
}
