//! What the laptop and the agent on a GPU host say to each other.
//!
//! Everything a user asks for is a [`Plan`]: data that says which steps to run, what each needs,
//! what success looks like and which rung comes next when it fails. The agent carries a plan out
//! without knowing any tool; the laptop reads the [`Event`]s and artifacts that come back.
//!
//! The same types travel as frames on a byte stream ([`frame`]) and as bodies over HTTP. Unknown
//! fields are skipped by serde, unknown message and event types are read as `Unknown`, so that an
//! older peer can talk to a newer one; only an unknown *required* feature stops a conversation.

pub mod digest;
pub mod event;
pub mod frame;
pub mod glob;
pub mod http;
pub mod mail;
pub mod message;
pub mod pattern;
pub mod plan;
pub mod probe;

pub use digest::Digest;
pub use event::{Event, EventBody, Outcome, RungRecord, Stream};
pub use message::{FromAgent, Hello, ToAgent};
pub use pattern::{Diagnosis, Pattern, Source};
pub use plan::{GpuChoice, Plan, Rung, Step};
pub use probe::{HostFacts, Probe, ProbeAnswer};

/// The protocol generation; the first frame each way carries it.
pub const PROTOCOL: u32 = 1;

/// The most bytes of a blob, and of a piece of an artifact: resuming, parallel channels and HTTP
/// ranges are one mechanism.
pub const BLOB_BYTES: u64 = 4 << 20;

/// What the files of a bundle are cut into. Several streams end together when each may take another
/// small piece; with pieces as long as a blob may be, some still send while the others have ended.
pub const PIECE_BYTES: u64 = 1 << 20;
