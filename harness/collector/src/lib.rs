//! `librgpu_collector.so`: records a program's NVTX ranges and GPU work where Nsight Systems is
//! missing, broken or forbidden.
//!
//! The NVTX headers inside the program load the library for the ranges; the CUDA driver loads it
//! for GPU work. Ranges need no privileges, no driver and no GPU, and measure host time. Each
//! kernel, copy and fill with its time, and the call that started it, come from a libcupti found on
//! the host. That needs no privileges and no permission to read counters.
//!
//! ```text
//! LIB=/path/librgpu_collector.so RGPU_NVTX_LOG=/path/nvtx.jsonl
//! NVTX_INJECTION64_PATH=$LIB ./program                               # ranges
//! NVTX_INJECTION64_PATH=$LIB CUDA_INJECTION64_PATH=$LIB ./program    # ranges and the GPU
//! ```
//!
//! | variable | meaning |
//! |---|---|
//! | `RGPU_CUPTI` | paths of libcupti to try first, with `:` between them |
//! | `RGPU_NVTX_LOG` | where to write; each process appends to `<value>.<pid>`. Unset: nothing is recorded |
//! | `RGPU_NVTX_LIMIT` | bytes of log per process, default 268435456 (256 MiB); one buffer of 64 KiB per thread may come on top |
//!
//! # The log, format 1
//!
//! UTF-8, one JSON object per line. The string `event` gives the type of the line. Absent fields
//! mean "not given by the program". A reader skips unknown events and unknown fields.
//!
//! | `event` | fields |
//! |---|---|
//! | `opened` | `format` (1), `pid`, `ppid`, `exe`, `clock` (`monotonic`), `ns`, `unix_ns` (wall clock read together with `ns`), `limit_bytes` |
//! | `domain` | `domain` (≥ 1), `name` |
//! | `category` | `domain`, `category`, `name` |
//! | `thread` | `tid`, `name` |
//! | `push` | `ns`, `tid`, `domain`, `level` (0 is outermost), and the *attributes* |
//! | `pop` | `ns`, `tid`, `domain`, `level` (of the range that ends) |
//! | `start` | `ns`, `tid`, `domain`, `id` (unique in the process), and the *attributes* |
//! | `end` | `ns`, `tid`, `domain`, `id` (may be another thread's) |
//! | `mark` | `ns`, `tid`, `domain`, and the *attributes* |
//! | `cupti` | `state`: `on` (`version`, `path`, `clock`: `ours` or `compared`, see `ns` below) or `off` (`text`: why) |
//! | `name` | `id` (≥ 0), `text`; a `name` in the lines below is the `id` of a text |
//! | `kernel` | *timing*, `name` (mangled), `grid`, `block`, `registers`, `static_bytes`, `dynamic_bytes`, `local_bytes`, `graph_node` |
//! | `copy` | *timing*, `kind` (CUPTI's number: 1 host to device, 2 device to host, 8 on a device, 10 between devices …), `bytes` |
//! | `set` | a fill (memset): *timing*, `value`, `bytes` |
//! | `call` | `ns`, `end_ns`, `id`, `tid`, `name`, `result` (where it is not 0) |
//! | `closed` | `ns`, `events`, `dropped`, `unbalanced`, `work`, `calls`, `lost` |
//!
//! *Attributes*: `message` (text; registered strings are already resolved), `category` (number, in
//! this domain), `color` (ARGB as a number), `payload` (integer or float).
//!
//! *Timing*: `ns` and `end_ns` (absent where CUPTI did not know), `id`, `device`, `context`,
//! `stream`. The `id` is CUPTI's correlation number: GPU work and the `call` that started it share
//! it, and that call's `tid` and `ns` show in which ranges it was made. Frequent calls that neither
//! start work nor wait for it (`cudaGet…`, `cuCtxPush` …) are left out; `cupti/buffers.rs` lists
//! them.
//!
//! - `ns` is `CLOCK_MONOTONIC` in nanoseconds: the same clock in all processes of a boot. CUPTI is
//!   given that clock (`ours`); a version of CUPTI that takes none is compared with it once
//!   (`compared`).
//! - Domain 0 is the default domain and has no `domain` line. A `domain` line always comes before
//!   the first event that uses it.
//! - Lines of one thread are in order; lines of different threads are not: sort by `ns`.
//! - Push and pop nest per thread **and** domain. Starts and ends may cross.
//! - A range whose `pop` or `end` is missing was open when the log ended. An `end` without its
//!   `start` belongs to a range opened before a fork.
//! - Above the limit no new range, mark, GPU work or call is written. `dropped` counts these, and
//!   lines whose write failed. Ranges that were written are still closed.
//! - `unbalanced` counts pops that had nothing to pop.
//! - `events` counts push, pop, start, end and mark lines of this process; `work` counts kernels,
//!   copies and fills; `calls` counts calls; `lost` counts records that CUPTI dropped or that could
//!   not be read.
//! - Lines of GPU work appear when CUPTI returns them, half a second late or more: sort by `ns`.
//! - `closed` is missing when the process was killed, aborted or left by `_exit`: then up to 64 KiB
//!   of each thread's last events, spanning at most 100 ms however long ago, may be missing too,
//!   and the last half second of GPU work. Lines may follow `closed` (exit handlers that still use
//!   NVTX). A second `opened` line in one file means that a program replaced itself with `exec`;
//!   `tid`s, domains and ids start anew there.
//! - The last line may be cut short when the disk was full.
//! - A text of more than 4,096 bytes is cut and ends in `…`; bytes that are no UTF-8 become U+FFFD.
//!
//! A forked child writes its own log from its first event on, even if the child is the first to use
//! NVTX or CUDA. The child's log is not buffered, since such children usually leave by `_exit`;
//! for the same reason CUPTI is asked for finished records when the child's outermost range ends.
//!
//! # Rules for this code
//!
//! This code runs in another program's process: it never panics across the boundary, never blocks
//! on a lock that a dead thread may hold, never trusts a handle (domains and strings are numbers,
//! not addresses), and ignores NVTX calls that a thread makes while one of its own is being
//! recorded (an allocator with NVTX ranges, a signal handler).

#![allow(unsafe_code, reason = "an injection library is called through C pointers")]

mod abi;
mod attach;
mod callbacks;
mod clock;
mod cupti;
mod log;
mod names;
mod process;
mod sink;
mod text;
mod thread;

pub use attach::InitializeInjectionNvtx2;
pub use cupti::InitializeInjection;
