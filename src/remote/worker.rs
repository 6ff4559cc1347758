//! An agent behind an HTTP address: `rgpu worker` on any host, or a platform that only lets HTTP
//! through.
//!
//! A session speaks frames, and here a task of ours stands in for the agent at the other end of
//! them: it turns each message into a request ([`rgpu_protocol::http`]) and hands the answers back,
//! most of them as they are. So a job is followed, an upload resumed and a cut link taken up by the
//! same code as over ssh.
//!
//! | module | what for |
//! |---|---|
//! | `address`, `token` | what the user's settings say, and what they may not |
//! | `requests` | one request: its time limits, its second tries, no redirects |
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

use std::sync::Arc;
use std::time::{Duration, Instant};

use rgpu_protocol::Hello;

use super::client::Streams;
use super::stream::Wire;
use super::{ConnectOptions, Remote, RemoteError, RemoteKind, RemoteSpec, Session, limits};
use address::Address;
use requests::{Ask, Requests};

pub use error::HttpError;

/// `https`.
pub const HTTPS: RemoteKind = RemoteKind { scheme: "https", form: "https://host[:port]", open };

/// `http`.
pub const HTTP: RemoteKind =
    RemoteKind { scheme: "http", form: "http://127.0.0.1:port of `rgpu worker`", open };

fn open(spec: &RemoteSpec) -> Result<Box<dyn Remote>, RemoteError> {
    super::deploy::no_options(spec, &[token::ENV, token::FILE, address::PLAIN, address::CA])?;
    address::no_ssh_settings(spec)?;
    Ok(Box::new(Worker { spec: spec.clone(), address: Address::of(spec)? }))
}

/// A host behind an HTTP address.
struct Worker {
    spec: RemoteSpec,
    address: Address,
}

#[async_trait::async_trait]
impl Remote for Worker {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn transport(&self) -> &'static str {
        "worker"
    }

    async fn connect(&self, _: &ConnectOptions) -> Result<Session, RemoteError> {
        let credentials = token::find(&self.spec)?;
        let requests = Requests::new(&self.address, credentials)?;
        let begun = Instant::now();
        let doing = "greeting the worker";
        let ask = Ask::get("/v1/health", doing).within(limits::CONNECT);
        let greeting = requests.message(ask).await?;
        // A fresh connection costs as many round trips more.
        let round_trip = begun.elapsed() / if self.address.is_tls() { 4 } else { 2 };
        if serde_json::from_slice::<Hello>(&greeting).is_err() {
            return Err(HttpError::not_a_worker(self.address.as_str(), &greeting).into());
        }
        let streams = Bridges { requests: Arc::new(requests), greeting, round_trip };
        let wire = streams.open().await?;
        Session::start(wire, Arc::new(streams), &self.spec).await
    }
}

/// Further streams cost nothing: requests share their connections.
struct Bridges {
    requests: Arc<Requests>,
    greeting: Vec<u8>,
    round_trip: Duration,
}

#[async_trait::async_trait]
impl Streams for Bridges {
    async fn open(&self) -> Result<Wire, RemoteError> {
        Ok(bridge::open(self.requests.clone(), &self.greeting))
    }

    fn round_trip(&self) -> Duration {
        self.round_trip
    }
}
