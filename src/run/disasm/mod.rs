//! `rgpu disasm`: every file looked into, every kernel's facts told, every listing written.
//!
//! [`inputs`] says which files are meant, [`read`] reads one and writes what is asked of it, with
//! nvdisasm for the operands where it is there (`nvdisasm`; `remote` where that is a host), and
//! [`all`] does that for many on all cores. [`code`] gives a cubin instruction by instruction, for
//! views. A file that cannot be read is told in its place in the document; the others are done all
//! the same.

mod code;
mod diff;
mod fetch;
mod fill;
mod inputs;
mod lines_diff;
mod names;
mod nvdisasm;
mod operands;
mod read;
mod remote;
mod sampled;
mod shards;
mod sources;
mod turns;

pub use code::{CodeError, Lifespans, Places, code};
pub use diff::{Side, diff};
pub use fetch::{FetchError, Voice as FetchVoice, WHEEL, fetch, fetched, pinned};
pub use fill::{Built, fill, listings};
pub use inputs::{InputError, Meant, inputs};
pub use lines_diff::{Normalize, lines_diff};
pub use names::Names;
pub use nvdisasm::{Nvdisasm, ToolError, find};
pub use operands::{OperandsError, operands};
pub use read::{OTHER_ARCHES, Placed, Wanted, What, image_bytes, listing, read};
pub use remote::{AskHost, Host, Question, questions};
pub use sampled::sampled;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::model::disasm::{Disasm, Input, SCHEMA};

/// Reads all files, several at once; `done` hears of each as it ends, from any thread.
pub fn all(files: &[PathBuf], what: &What, done: &(dyn Fn(&Input) + Sync)) -> Disasm {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(files.len());
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Input)>> = Mutex::new(Vec::with_capacity(files.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(file) = files.get(at) else { break };
                    let input = read(file, what);
                    done(&input);
                    if let Ok(mut results) = results.lock() {
                        results.push((at, input));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_default();
    results.sort_by_key(|(at, _)| *at);
    Disasm {
        schema: SCHEMA.to_owned(),
        rgpu: env!("CARGO_PKG_VERSION").to_owned(),
        inputs: results.into_iter().map(|(_, input)| input).collect(),
    }
}
