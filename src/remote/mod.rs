//! Remotes: the ways to an agent on a GPU host.
//!
//! Every transport does one thing: it brings up the agent and hands over a byte stream to it. What
//! is said on that stream is the same everywhere ([`client`]), so a backend is small and none of
//! them runs commands one by one: over a long link each extra command costs round trips.
//!
//! | module | what for |
//! |---|---|
//! | [`spec`], [`price`], [`bill`], [`options`] | what the user's configuration and the front end say |
//! | [`local`], [`ssh`], [`worker`], [`modal`], [`wafer`] | the transports |
//! | [`rented`], [`served`] | what is made, paid for and given back; what a provider does itself |
//! | [`deploy`] | bring up the cached agent on a host, uploading it when it is not there |
//! | [`stream`], [`client`], [`upload`], [`fetch`] | frames, messages, bundles up, artifacts down |
//! | `part`, `check` | a file on its way here, and whether it is what the host named |
//! | [`sent`] | what was sent before, so that the new need not be asked about |
//! | [`follow`] | a job followed to its end across cut links |
//! | `backlog`, `followed`, `announced` | what a host may send unasked, and how much of it |
//! | `refusal`, `foreign` | answers that are none of the agent's, and their words |

mod announced;
mod backlog;
pub mod bill;
pub mod client;
pub mod deploy;
pub mod error;
#[cfg(test)]
pub(crate) mod fake;
pub mod fetch;
mod followed;
mod foreign_text;
pub mod host_link;
mod host_needs;
mod keychain;
pub mod limits;
pub mod local;
pub mod modal;
pub mod options;
mod partial_file;
mod piece_digests;
pub mod price;
pub mod provider_ncu;
mod refusal;
pub mod rented;
pub mod sent_record;
pub mod spec;
pub mod ssh;
pub mod stream;
pub mod upload;
pub mod wafer;
pub mod worker;

pub use bill::{Bill, Bills, Meter};
pub use client::{HostJobs, JobMessage, JobStdin, Session, Streams};
pub use error::{OnRemote, RemoteError};
pub use fetch::{FetchOutcome, RemoteFile};
pub use host_link::{HostLink, ReconnectPolicy};
pub use host_needs::{arch_of, unfit};
pub use options::{ConnectOptions, FirstUse, HostKeyQuestion, UserPrompt};
pub use price::Price;
pub use provider_ncu::{ProviderJob, ProviderNcu, ProviderResult};
pub use rented::{Credits, Rental, RentedRemote};
pub use sent_record::SentRecord;
pub use spec::{RemoteSpec, Transport, without_secret};
pub use upload::{BlobReader, Submission, TransferProgress};
pub use worker::{CredentialError, read_private};

/// A way to one host.
#[async_trait::async_trait]
pub trait Remote: Send + Sync {
    /// The name under which the user knows it.
    fn name(&self) -> &str;

    /// `local`, `ssh`, `worker` …
    fn transport(&self) -> &'static str;

    /// Brings up an agent. It may not have spoken yet: [`Session::greeted`] waits for that.
    ///
    /// # Errors
    /// [`RemoteError`] says which side failed.
    async fn connect(&self, options: &ConnectOptions) -> Result<Session, RemoteError>;

    /// What its provider billed since this was last asked.
    fn take_bills(&self) -> Vec<Bill> {
        Vec::new()
    }

    /// Has the app answer that its user deployed, and checks that it is of our version, which is
    /// given; `None`: nothing is deployed for a remote like this.
    ///
    /// # Errors
    /// [`RemoteError`] says which side failed.
    async fn deployed(&self, _: &dyn UserPrompt) -> Result<Option<String>, RemoteError> {
        Ok(None)
    }

    /// Its provider's own ncu, for counters that a job there may not read.
    fn served_ncu(&self) -> Option<&dyn ProviderNcu> {
        None
    }

    /// What can be done with it besides, where it is rented.
    fn rented(&self) -> Option<&dyn RentedRemote> {
        None
    }
}

/// A kind of remote.
pub struct RemoteKind {
    /// The scheme of its addresses.
    pub scheme: &'static str,
    /// How such an address is written; empty: as another kind's.
    pub form: &'static str,
    /// Makes the remote; nothing is connected yet.
    pub open: fn(&RemoteSpec) -> Result<Box<dyn Remote>, RemoteError>,
}

/// Every kind there is.
pub static REMOTES: &[RemoteKind] =
    &[local::KIND, ssh::KIND, worker::HTTPS, worker::HTTP, modal::KIND, modal::PLAIN, wafer::KIND];
