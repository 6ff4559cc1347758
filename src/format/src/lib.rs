//! Readers of other tools' file formats: each takes bytes and returns an exact typed copy.
//!
//! Each module reads one kind of file that a GPU tool writes, and keeps its contents in the file's
//! own terms; `rgpu::import` turns them into a profile. No reader does I/O (except `nsys_sqlite`,
//! where SQLite itself opens the file read-only), no reader panics on any input, and none uses more
//! memory than [`memory`] allows for its input, unpacked within the limits of [`unpack`].

pub mod container;
pub mod csv;
pub mod cubin;
pub mod demangle;
pub mod fatbin;
mod in_order;
pub mod memory;
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
