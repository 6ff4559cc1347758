//! The protocol between the laptop and the agent on a GPU host.
//!
//! Everything a user asks for is a [`Plan`]: data that says which steps to run, what each needs,
//! when it succeeded, and which rung to try next when it failed. The agent carries a plan out
//! without knowing any tool; the laptop reads the [`Event`]s and artifacts that come back.
//!
//! They travel as frames on a byte stream ([`frame`]), which requests with answers can carry too
//! ([`mail`]). So that versions can differ, unknown fields are ignored, and unknown message and
//! event types are read as `Unknown`. Only an unknown *required* feature ends a connection.

pub mod digest;
pub mod event;
pub mod frame;
pub mod glob;
pub mod mail;
pub mod message;
pub mod pattern;
pub mod plan;
pub mod probe;
pub mod program_needs;
#[cfg(feature = "server")]
pub mod server;

pub use digest::{Digest, sha256};
pub use event::{Event, EventBody, Outcome, RungRecord, Stream};
pub use message::{FromAgent, Hello, ToAgent};
pub use pattern::{DiagnosisRule, Pattern, Source};
pub use plan::{GpuChoice, Plan, Rung, Step};
pub use probe::{HostFacts, Probe, ProbeAnswer};

/// The protocol generation, sent in the first frame of each direction.
pub const PROTOCOL: u32 = 1;

/// Most bytes of a blob, and of a piece of an artifact. Resuming and parallel channels work in
/// these units.
pub const BLOB_BYTES: u64 = 4 << 20;

/// Size of the pieces that input files are split into. Small pieces spread evenly over parallel
/// streams; with pieces of [`BLOB_BYTES`], some streams would still send after others are done.
pub const PIECE_BYTES: u64 = 1 << 20;
