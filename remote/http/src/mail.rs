//! Connections to the agent, over requests with answers; see [`rgpu_protocol::mail`].
//!
//! Each has an agent in threads of this process, and a keeper, which has its bytes between the
//! requests. They end with the server; jobs are separate processes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Query, State as Shared};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use rgpu_agent::connection;
use rgpu_agent::mail::Keeper;
use rgpu_agent::service::Service;
use rgpu_agent::verbs;
use rgpu_protocol::mail::{HEAD_HEADER, MAX_HTTP_BYTES, MailHead, MailRequest, valid_name};

use crate::answer::HttpRefusal;
use crate::body::read;
use crate::request_guard::{busy, lock};
use crate::state::State;

/// Most connections at the same time. Each has a few threads.
const MAX_CONNECTIONS: usize = 256;

/// A client that asks nothing for this long is gone. While it is there, one of its requests waits
/// for the agent's bytes.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);

/// How often connections that are over are removed.
pub(crate) const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The connections, by their names.
pub(crate) struct Keepers {
    relay_socket: Option<PathBuf>,
    running: Mutex<HashMap<String, Arc<Keeper>>>,
}

impl Keepers {
    /// None yet. If `relay_socket` is given, the agent behind it carries out the jobs.
    pub(crate) fn new(relay_socket: Option<PathBuf>) -> Self {
        // Before any request asks for their state.
        service(relay_socket.clone()).restart_relays();
        Self { relay_socket, running: Mutex::default() }
    }

    /// Returns the connection of a name, or `None` if it is over.
    fn find(&self, name: &str) -> Option<Arc<Keeper>> {
        lock(&self.running).get(name).cloned()
    }

    /// Returns the connection of a name, and starts it if it is new.
    fn begin(&self, name: String) -> Result<Arc<Keeper>, HttpRefusal> {
        let mut running = lock(&self.running);
        let count = running.len();
        let place = match running.entry(name) {
            Entry::Occupied(there) => return Ok(there.get().clone()),
            Entry::Vacant(place) => place,
        };
        if count >= MAX_CONNECTIONS {
            return Err(busy("too many clients at once"));
        }
        let started = self.start().map_err(|e| busy(&format!("no agent can start now: {e}")))?;
        Ok(place.insert(started).clone())
    }

    /// Starts an agent and its keeper, each in threads of its own.
    fn start(&self) -> io::Result<Arc<Keeper>> {
        let (agent_input, input) = io::pipe()?;
        let (output, agent_output) = io::pipe()?;
        let keeper = Arc::new(Keeper::new(input, MAX_HTTP_BYTES));
        let relay_socket = self.relay_socket.clone();
        std::thread::Builder::new().name("agent".into()).spawn(move || {
            let (from, to) =
                (OwnedFd::from(agent_input).into(), OwnedFd::from(agent_output).into());
            // The client learns from the end of the stream that the agent has ended.
            let _ = connection::serve_over(service(relay_socket), from, to);
        })?;
        let gatherer = keeper.clone();
        std::thread::Builder::new().name("keeper".into()).spawn(move || gatherer.gather(output))?;
        Ok(keeper)
    }

    /// Removes the connections that are over.
    pub(crate) fn sweep(&self) {
        self.end(|keeper| keeper.is_over(CLIENT_TIMEOUT));
    }

    /// Ends all connections. Their clients continue with the next server.
    pub(crate) fn end_all(&self) {
        self.end(|_| true);
    }

    fn end(&self, is_over: impl Fn(&Keeper) -> bool) {
        let over = lock(&self.running).extract_if(|_, keeper| is_over(keeper)).collect::<Vec<_>>();
        // Not under the lock: each may wait for its agent.
        for (_, keeper) in over {
            keeper.close();
        }
    }
}

fn service(relay_socket: Option<PathBuf>) -> Service {
    Service::open(&verbs::folders()).with_relay(relay_socket)
}

/// Answers `POST /v1/mail/{name}`: passes the body to the agent, and its bytes to the client.
pub(crate) async fn post(
    Shared(state): Shared<Arc<State>>,
    Path(name): Path<String>,
    Query(request): Query<MailRequest>,
    body: Body,
) -> Result<Response, HttpRefusal> {
    if !valid_name(&name) {
        let text = "the name of a connection is up to 32 hexadecimal digits in lower case";
        return Err(HttpRefusal::new(StatusCode::BAD_REQUEST, "bad_name", text));
    }
    let bytes = read(body, MAX_HTTP_BYTES).await?;
    let exchange = move || {
        let keeper = if request.begin {
            Some(state.keepers.begin(name)?)
        } else {
            state.keepers.find(&name)
        };
        Ok(match keeper {
            Some(keeper) => keeper.exchange(request, &bytes),
            None => (MailHead::gone(request.from), Vec::new()),
        })
    };
    let (head, bytes) = match tokio::task::spawn_blocking(exchange).await {
        Ok(answer) => answer?,
        Err(error) => return Err(busy(&error.to_string())),
    };
    let head = serde_json::to_string(&head).ok().and_then(|head| HeaderValue::try_from(head).ok());
    let head = head.ok_or_else(|| busy("its answer has no header"))?;
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(HEAD_HEADER, head);
    Ok(response)
}
