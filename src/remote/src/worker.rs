//! An agent behind an HTTP address: `rgpu worker` on any host. A platform with its own gateway
//! before the agent ([`super::modal`]) is another [`ServerKind`].
//!
//! A session exchanges frames. Here a task of ours takes the agent's place at the other end: it
//! turns each message into a request ([`rgpu_protocol::http`]) and returns the answers, mostly
//! unchanged. So the code that follows a job, resumes an upload and recovers from a cut link is the
//! same as over ssh.
//!
//! | module | contents |
//! |---|---|
//! | `address`, `token` | the user's settings and their checks |
//! | `requests` | one request: time limits, retries, no redirects except to its result |
//! | `transfer_rate` | the minimum rate of an answer |
//! | `refusal` | the meaning of answers that do not come from the agent |
//! | `bridge`, `following`, `fetching` | messages to requests and back |

mod address;
mod bridge;
mod fetching;
mod following;
mod refusal;
mod requests;
mod token;
mod transfer_rate;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rgpu_protocol::Hello;
use tokio::time::timeout;

use super::client::StreamOpener;
use super::http::{GREETING, HttpError};
use super::stream::AgentStream;
use super::{
    ConnectOptions, Remote, RemoteError, RemoteKind, RemoteSpec, Session, UserPrompt, limits,
};
use requests::{WorkerClient, WorkerRequest};

pub(super) use address::{Address, CA_FILE, no_ssh_settings};
pub(super) use bridge::ClosingWriter;
pub use refusal::ServerKind;
pub(super) use token::{Credentials, KEYCHAIN_SETTING as KEYCHAIN};

/// Workers behind TLS, with `https://` addresses.
pub const HTTPS: RemoteKind = RemoteKind {
    scheme: "https",
    form: "https://host[:port]",
    has_many_hosts: false,
    what: "a worker",
    heading: HEADING,
    example: "https://HOST --token-file FILE",
    address: None,
    settings: &[token::ENV_SETTING, token::FILE_SETTING, KEYCHAIN, CA_FILE, address::PLAIN_SETTING],
    open,
};

/// Workers without TLS, with `http://` addresses.
pub const HTTP: RemoteKind =
    RemoteKind { scheme: "http", form: "http://127.0.0.1:port of `rgpu worker`", ..HTTPS };

/// The heading of the settings of workers, and of platforms that speak the same protocol.
pub(super) const HEADING: &str = "A worker, or Modal";

fn open(spec: &RemoteSpec) -> Result<Box<dyn Remote>, RemoteError> {
    no_ssh_settings(spec)?;
    let address = Address::from_spec(spec)?;
    token::is_named(spec)?;
    Ok(Box::new(Worker::at(spec, address, ServerKind::Worker, token::find)))
}

/// The time after which the user is told that a host is starting.
const SLOW_START: Duration = Duration::from_secs(3);

/// Finds a remote's credentials. May block.
type CredentialLookup = fn(&RemoteSpec) -> Result<Credentials, HttpError>;

/// A host behind an HTTP address.
pub(super) struct Worker {
    spec: RemoteSpec,
    address: Address,
    site: ServerKind,
    find: CredentialLookup,
}

impl Worker {
    /// The host of `spec` at `address`.
    pub(super) fn at(
        spec: &RemoteSpec,
        address: Address,
        site: ServerKind,
        find: CredentialLookup,
    ) -> Self {
        Self { spec: spec.clone(), address, site, find }
    }

    /// A client with the remote's credentials.
    async fn requests(&self) -> Result<WorkerClient, RemoteError> {
        let (find, spec) = (self.find, self.spec.clone());
        let found = tokio::task::spawn_blocking(move || find(&spec)).await;
        let credentials =
            found.map_err(|e| RemoteError::ProtocolViolation { what: e.to_string() })??;
        Ok(WorkerClient::new(&self.address, credentials, self.site)?)
    }

    /// Fetches the agent's hello. If a platform takes long to start the host, the user is told.
    async fn fetch_hello(
        &self,
        requests: &WorkerClient,
        user_prompt: &dyn UserPrompt,
    ) -> Result<Vec<u8>, HttpError> {
        let request = WorkerRequest::get("/v1/health", GREETING).within(limits::CONNECT_TIMEOUT);
        let mut greeting = std::pin::pin!(async {
            match requests.message(request).await {
                // A TLS server ends a plain connection, each kind in its own way.
                Err(HttpError::Cut { .. }) if requests.wants_tls().await => {
                    Err(HttpError::WantsTls { url: self.address.as_str().to_owned() })
                }
                done => done,
            }
        });
        if self.site == ServerKind::Modal {
            if let Ok(done) = timeout(SLOW_START, greeting.as_mut()).await {
                return done;
            }
            user_prompt.starting("a container of the app is being started");
        }
        greeting.await
    }

    /// Checks the worker's version and features.
    fn check_hello(&self, greeting: &[u8]) -> Result<Hello, HttpError> {
        let Ok(hello) = serde_json::from_slice::<Hello>(greeting) else {
            let refusal = refusal::foreign_server(self.site, self.address.as_str(), greeting);
            return Err(HttpError::refused(refusal));
        };
        let ours = env!("CARGO_PKG_VERSION");
        if self.site == ServerKind::Modal && hello.version != ours {
            return Err(HttpError::OtherVersion { theirs: hello.version, ours });
        }
        if !hello.features.iter().any(|feature| feature == "pieces") {
            return Err(HttpError::WorkerTooOld);
        }
        Ok(hello)
    }
}

#[async_trait::async_trait]
impl Remote for Worker {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn transport(&self) -> &'static str {
        match self.site {
            ServerKind::Worker => "worker",
            ServerKind::Modal => "modal",
        }
    }

    async fn check_deployed_app(
        &self,
        user_prompt: &dyn UserPrompt,
    ) -> Result<Option<String>, RemoteError> {
        if self.site != ServerKind::Modal {
            return Ok(None);
        }
        let greeting = self.fetch_hello(&self.requests().await?, user_prompt).await?;
        Ok(Some(self.check_hello(&greeting)?.version))
    }

    async fn connect(&self, options: &ConnectOptions) -> Result<Session, RemoteError> {
        let requests = self.requests().await?;
        let begun = Instant::now();
        let greeting = self.fetch_hello(&requests, &*options.user_prompt).await?;
        // A fresh connection takes that many round trips.
        let round_trip = begun.elapsed() / if self.address.is_tls() { 4 } else { 2 };
        self.check_hello(&greeting)?;
        let streams = BridgeStreams { requests: Arc::new(requests), greeting, round_trip };
        let wire = streams.open().await?;
        Session::start(wire, Arc::new(streams), &self.spec).await
    }
}

/// Opens further streams, which cost nothing because requests share their connections.
struct BridgeStreams {
    requests: Arc<WorkerClient>,
    greeting: Vec<u8>,
    round_trip: Duration,
}

#[async_trait::async_trait]
impl StreamOpener for BridgeStreams {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        Ok(bridge::open(self.requests.clone(), &self.greeting))
    }

    fn round_trip(&self) -> Duration {
        self.round_trip
    }
}
