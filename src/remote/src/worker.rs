//! An agent behind an HTTP address: `rgpu worker` on any host. A platform with its own gateway
//! before the agent ([`super::modal`]) is another [`ServerKind`].
//!
//! The frames of a session travel in requests (`mail`). So the code that follows a job,
//! resumes an upload and recovers from a cut link is the same as over ssh.
//!
//! | module | contents |
//! |---|---|
//! | `address`, `token` | the user's settings and their checks |
//! | `mail` | one conversation with the worker's agent |
//! | `requests` | one request: time limits, retries, no redirects except to its result |
//! | `refusal` | the meaning of answers that do not come from the agent |

mod address;
mod mail;
mod refusal;
mod requests;
mod token;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rgpu_protocol::Hello;
use tokio::time::timeout;

use super::client::StreamOpener;
use super::http::{GREETING, HttpError};
use super::stream::AgentStream;
use super::{
    ConnectOptions, Remote, RemoteError, RemoteKind, RemoteSpec, Session, UserPrompt, deploy,
    limits,
};
use mail::WorkerMail;
use requests::{WorkerClient, WorkerRequest};

pub(super) use address::{Address, CA_FILE, no_ssh_settings};
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

    /// Waits for the first answer, `greeting`. If a platform takes long to start the host, the user
    /// is told.
    async fn greet<T>(
        &self,
        requests: &WorkerClient,
        user_prompt: &dyn UserPrompt,
        greeting: impl Future<Output = Result<T, HttpError>>,
    ) -> Result<T, HttpError> {
        let mut greeting = std::pin::pin!(async {
            match greeting.await {
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
    fn check_hello(&self, hello: &Hello) -> Result<(), HttpError> {
        let ours = env!("CARGO_PKG_VERSION");
        if self.site == ServerKind::Modal && hello.version != ours {
            return Err(HttpError::OtherVersion { theirs: hello.version.clone(), ours });
        }
        if !hello.features.iter().any(|feature| feature == "pieces") {
            return Err(HttpError::WorkerTooOld);
        }
        Ok(())
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
        let requests = self.requests().await?;
        let request = WorkerRequest::get("/v1/health", GREETING).within(limits::CONNECT_TIMEOUT);
        let answer = self.greet(&requests, user_prompt, requests.send(request)).await?;
        let Ok(hello) = serde_json::from_slice::<Hello>(&answer.body) else {
            return Err(requests.foreign_answer(&answer.body).into());
        };
        self.check_hello(&hello)?;
        Ok(Some(hello.version))
    }

    async fn connect(&self, options: &ConnectOptions) -> Result<Session, RemoteError> {
        let requests = Arc::new(self.requests().await?);
        let user_prompt = options.user_prompt.clone();
        let begun = Instant::now();
        let mail = WorkerMail::new(requests.clone());
        let first = self.greet(&requests, &*user_prompt, mail.begin()).await?;
        // A fresh connection takes that many round trips.
        let round_trip = begun.elapsed() / if self.address.is_tls() { 4 } else { 2 };
        let wire = deploy::await_magic(super::mail::stream(mail, first), &*user_prompt).await?;
        let streams = WorkerStreams { requests, user_prompt, round_trip };
        let session = Session::start(wire, Arc::new(streams), &self.spec).await?;
        if let Some(hello) = session.agent() {
            self.check_hello(hello)?;
        }
        Ok(session)
    }
}

/// Opens further streams to the worker.
struct WorkerStreams {
    requests: Arc<WorkerClient>,
    user_prompt: Arc<dyn UserPrompt>,
    round_trip: Duration,
}

#[async_trait::async_trait]
impl StreamOpener for WorkerStreams {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        let mail = WorkerMail::new(self.requests.clone());
        let first = mail.begin().await?;
        deploy::await_magic(super::mail::stream(mail, first), &*self.user_prompt).await
    }

    fn round_trip(&self) -> Duration {
        self.round_trip
    }
}
