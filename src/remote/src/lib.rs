//! Remotes: machines, or services that provide machines, and the transports that reach them.
//!
//! Every transport brings up the agent and hands over a byte stream to it. The protocol on that
//! stream is the same for all ([`client`]), so a transport is small. None of them runs commands one
//! by one, because over a long link each extra command costs round trips.
//!
//! | module | contents |
//! |---|---|
//! | [`spec`], [`price`], [`bill`], [`options`], [`setting`] | settings from the user's configuration and the front end |
//! | [`local`], [`ssh`], [`slurm`], [`worker`], [`modal`], [`wafer`] | the transports |
//! | [`rented`], [`provider_ncu`] | rented remotes; the provider's own ncu |
//! | [`deploy`] | starts the cached agent on a host and uploads it if it is missing |
//! | [`stream`], [`client`], [`upload`], [`fetch`] | frames, messages, uploads, downloads |
//! | `partial_file`, `piece_digests` | a file being downloaded, and the check of its digest |
//! | [`sent_record`] | which blobs were sent before, so that new ones go out without asking |
//! | [`host_link`] | follows a job to its end across cut links |
//! | `pending_messages`, `followed_job`, `announced_bytes` | limits on unrequested data from a host |
//! | `mail` | frames in requests with answers, for `worker` and `wafer` |
//! | `http` | what the clients of `worker` (and so `modal`) and `wafer` have in common |
//! | `refusal`, `foreign_text` | answers that do not come from the agent, and their text |
//! | `secret_file`, `keychain` | where a user keeps secrets |

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod announced_bytes;
pub mod bill;
mod binary_requirements;
pub mod client;
pub mod deploy;
pub mod error;
#[cfg(any(test, feature = "test-host"))]
pub mod fake;
pub mod fetch;
mod followed_job;
mod foreign_text;
pub mod host_link;
mod http;
mod keychain;
pub mod limits;
pub mod local;
mod mail;
pub mod modal;
pub mod options;
mod partial_file;
mod pending_messages;
mod piece_digests;
pub mod price;
pub mod provider_ncu;
mod refusal;
pub mod rented;
mod secret_file;
pub mod sent_record;
pub mod setting;
pub mod slurm;
pub mod spec;
pub mod ssh;
pub mod stream;
pub mod upload;
pub mod wafer;
pub mod worker;

pub use bill::{Bill, BillReader, PendingBills};
pub use binary_requirements::{arch_of, why_not_runnable};
pub use client::{HostJobs, JobMessage, JobStdin, Session, StreamOpener};
pub use error::{JOB_EXISTS, OnRemote, RemoteError, another_build};
pub use fetch::{FetchOutcome, RemoteFile};
pub use host_link::{HostLink, ReconnectPolicy};
pub use http::HttpError;
pub use options::{
    ConnectOptions, HostKeyQuestion, HostRequest, HostUse, UnknownHostPolicy, UserPrompt,
};
pub use price::Price;
pub use provider_ncu::{ProviderJob, ProviderNcu, ProviderResult};
pub use rented::{Credits, Rental, RentedRemote};
pub use secret_file::{CredentialError, read_private};
pub use sent_record::SentRecord;
pub use setting::{AddressFlag, Setting, SettingValue};
pub use spec::{RemoteSpec, Transport, without_secret};
pub use upload::{BlobReader, Submission, TransferProgress};

/// A machine, or a service that provides machines, as the user configured it. Its transport starts
/// the agent there.
#[async_trait::async_trait]
pub trait Remote: Send + Sync {
    /// The name under which the user configured it.
    fn name(&self) -> &str;

    /// `local`, `ssh`, `worker` …
    fn transport(&self) -> &'static str;

    /// Brings up an agent. May return before the agent's hello: [`Session::wait_for_hello`] waits
    /// for it.
    async fn connect(&self, options: &ConnectOptions) -> Result<Session, RemoteError>;

    /// The provider's bills since the last call.
    fn take_bills(&self) -> Vec<Bill> {
        Vec::new()
    }

    /// Connects to the app that the user deployed, checks that its version is ours, and returns
    /// that version. `None`: this kind of remote has no deployed app.
    async fn check_deployed_app(&self, _: &dyn UserPrompt) -> Result<Option<String>, RemoteError> {
        Ok(None)
    }

    /// The provider's own ncu, for counters that a job may not read there; `None`: it has none.
    fn provider_ncu(&self) -> Option<&dyn ProviderNcu> {
        None
    }

    /// The reason why this command's host ended; `None` while it runs or the reason is unknown.
    fn host_loss_reason(&self) -> Option<RemoteError> {
        None
    }

    /// Asks whether this command's host is being taken away, which ends what runs there by signals.
    /// If so, waits for its end: then [`Self::host_loss_reason`] is known.
    async fn is_host_taken(&self, _: &ConnectOptions) -> bool {
        false
    }

    /// Makes [`Self::release`] do nothing, because a job is still running on the host.
    fn keep_host(&self) {}

    /// Gives back a host that was requested for this command, at its end. Reports a failure only to
    /// the front end.
    async fn release(&self, _: &ConnectOptions) {}

    /// Operations on the rented machine; `None`: the remote is not rented.
    fn rented(&self) -> Option<&dyn RentedRemote> {
        None
    }
}

/// One URL scheme, and how to open its remotes.
pub struct RemoteKind {
    /// The URL scheme of its addresses.
    pub scheme: &'static str,
    /// How help and errors spell such an address; empty: they do not list it.
    pub form: &'static str,
    /// Whether each connection can have a host of its own: a container or a granted node.
    pub has_many_hosts: bool,
    /// What its remotes are, for messages.
    pub what: &'static str,
    /// The heading of its settings in the help of `rgpu remote add`.
    pub heading: &'static str,
    /// The words after `rgpu remote add NAME`, as an example.
    pub example: &'static str,
    /// The flag that says where it is, if the scheme stands in place of an address.
    pub address: Option<AddressFlag>,
    /// The settings that its remotes have besides those of every remote.
    pub settings: &'static [Setting],
    /// Makes the remote without connecting.
    pub open: fn(&RemoteSpec) -> Result<Box<dyn Remote>, RemoteError>,
}

impl RemoteKind {
    /// The flags of `rgpu remote add` that its remotes take.
    pub fn flags(&self) -> impl Iterator<Item = &Setting> {
        self.address.iter().map(|address| &address.setting).chain(self.settings)
    }
}

/// Every kind of remote. To add one: write its file and add its `KIND` here.
pub static REMOTES: &[RemoteKind] = &[
    local::KIND,
    ssh::KIND,
    slurm::KIND,
    worker::HTTPS,
    worker::HTTP,
    modal::KIND,
    modal::PLAIN,
    wafer::KIND,
];
