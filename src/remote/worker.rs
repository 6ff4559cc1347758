//! An agent behind an HTTP address: `rgpu worker` on any host. A platform that puts a door of its
//! own before the agent's ([`super::modal`]) is another [`ServerKind`] of the same.
//!
//! A session speaks frames, and here a task of ours stands in for the agent at the other end of
//! them: it turns each message into a request ([`rgpu_protocol::http`]) and hands the answers back,
//! most of them as they are. So a job is followed, an upload resumed and a cut link taken up by the
//! same code as over ssh.
//!
//! | module | what for |
//! |---|---|
//! | `address`, `token` | what the user's settings say, and what they may not |
//! | `requests` | one request: its time limits, its second tries, no redirects but to its result |
//! | `pace` | how slowly an answer may come |
//! | `refusal` | what a status and a body that is not ours mean |
//! | `bridge`, `following`, `fetching` | messages to requests and back |

mod address;
mod bridge;
mod error;
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

use super::client::Streams;
use super::stream::AgentStream;
use super::{
    ConnectOptions, Remote, RemoteError, RemoteKind, RemoteSpec, Session, UserPrompt, limits,
};
use requests::{WorkerClient, WorkerRequest};

pub(super) use address::{Address, no_ssh_settings};
pub(super) use bridge::ClosingWriter;
pub use error::HttpError;
pub use refusal::ServerKind;
pub(super) use requests::chain;
pub(super) use token::Credentials;
pub use token::{CredentialError, read_private};

/// `https`.
pub const HTTPS: RemoteKind = RemoteKind { scheme: "https", form: "https://host[:port]", open };

/// `http`.
pub const HTTP: RemoteKind =
    RemoteKind { scheme: "http", form: "http://127.0.0.1:port of `rgpu worker`", open };

fn open(spec: &RemoteSpec) -> Result<Box<dyn Remote>, RemoteError> {
    let known = [token::ENV, token::FILE, token::KEYCHAIN, address::PLAIN, address::CA];
    super::deploy::no_options(spec, &known)?;
    no_ssh_settings(spec)?;
    let address = Address::of(spec)?;
    token::is_named(spec)?;
    Ok(Box::new(Worker::at(spec, address, ServerKind::Worker, token::find)))
}

/// The time after which a user is told that a host is being started.
const SLOW_START: Duration = Duration::from_secs(3);

/// How a remote's credentials are found. It may block.
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

    /// A way to it, with its credentials.
    async fn requests(&self) -> Result<WorkerClient, RemoteError> {
        let (find, spec) = (self.find, self.spec.clone());
        let found = tokio::task::spawn_blocking(move || find(&spec)).await;
        let credentials = found.map_err(|e| RemoteError::Nonsense { what: e.to_string() })??;
        Ok(WorkerClient::new(&self.address, credentials, self.site)?)
    }

    /// The agent's greeting. Where a platform starts the host first, its user is told.
    async fn greet(
        &self,
        requests: &WorkerClient,
        talk: &dyn UserPrompt,
    ) -> Result<Vec<u8>, HttpError> {
        let ask = WorkerRequest::get("/v1/health", error::GREETING).within(limits::CONNECT);
        let mut greeting = std::pin::pin!(async {
            match requests.message(ask).await {
                // A server with TLS ends a connection that begins without, each in its own way.
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
            talk.starting("a container of the app is being started");
        }
        greeting.await
    }

    /// What is wrong with a greeting.
    fn check(&self, greeting: &[u8]) -> Result<Hello, HttpError> {
        let Ok(hello) = serde_json::from_slice::<Hello>(greeting) else {
            return Err(HttpError::not_a_worker(self.site, self.address.as_str(), greeting));
        };
        let ours = env!("CARGO_PKG_VERSION");
        if self.site == ServerKind::Modal && hello.version != ours {
            return Err(HttpError::OtherVersion { theirs: hello.version, ours });
        }
        if !hello.features.iter().any(|feature| feature == "pieces") {
            return Err(HttpError::Older);
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

    async fn deployed(&self, talk: &dyn UserPrompt) -> Result<Option<String>, RemoteError> {
        if self.site != ServerKind::Modal {
            return Ok(None);
        }
        let greeting = self.greet(&self.requests().await?, talk).await?;
        Ok(Some(self.check(&greeting)?.version))
    }

    async fn connect(&self, options: &ConnectOptions) -> Result<Session, RemoteError> {
        let requests = self.requests().await?;
        let begun = Instant::now();
        let greeting = self.greet(&requests, &*options.talk).await?;
        // A fresh connection costs as many round trips more.
        let round_trip = begun.elapsed() / if self.address.is_tls() { 4 } else { 2 };
        self.check(&greeting)?;
        let streams = BridgeStreams { requests: Arc::new(requests), greeting, round_trip };
        let wire = streams.open().await?;
        Session::start(wire, Arc::new(streams), &self.spec).await
    }
}

/// Further streams cost nothing: requests share their connections.
struct BridgeStreams {
    requests: Arc<WorkerClient>,
    greeting: Vec<u8>,
    round_trip: Duration,
}

#[async_trait::async_trait]
impl Streams for BridgeStreams {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        Ok(bridge::open(self.requests.clone(), &self.greeting))
    }

    fn round_trip(&self) -> Duration {
        self.round_trip
    }
}
