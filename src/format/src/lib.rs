//! Readers of foreign files: bytes in, an exact typed mirror out.
//!
//! Each module reads one kind of file that a GPU tool writes and keeps what the file says, in the
//! file's own terms; turning that into a profile is the business of `rgpu::import`. No reader does
//! I/O (but for `nsys_sqlite`, which SQLite itself opens, read-only), none panics on any input,
//! and none takes memory beyond a small multiple of its input, unpacked within [`unpack`]'s bounds.

pub mod container;
pub mod csv;
pub mod cubin;
pub mod demangle;
pub mod fatbin;
pub mod ncu_csv;
pub mod ncu_rep;
pub mod nsys_rep;
pub mod nsys_row;
#[cfg(feature = "sqlite")]
pub mod nsys_sqlite;
pub mod nsys_stats;
pub mod nvtx_log;
pub mod ptx;
pub mod range_log;
pub mod sanitizer;
pub mod sass;
pub mod torch_trace;
pub mod units;
pub mod unpack;
pub mod wire;
