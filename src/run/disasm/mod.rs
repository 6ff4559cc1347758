//! `rgpu disasm`: every file looked into, every kernel's facts told, every listing written.
//!
//! [`inputs`] says which files are meant, [`all`] reads them on all cores (`cores`) and writes what is
//! asked of each (`outbox`), with nvdisasm for the operands where it is there (`nvdisasm`; `remote`
//! where that is a host). [`code`] gives a cubin instruction by instruction, for
//! views. A file that cannot be read is told in its place in the document; the others are done all
//! the same.

mod code;
mod cores;
mod diff;
mod fetch;
mod fill;
mod images;
mod inputs;
mod lines_diff;
mod names;
mod nvdisasm;
mod operands;
mod outbox;
mod read;
mod remote;
mod sampled;
mod shards;
mod sources;
mod turns;
mod what;

pub use code::{CodeError, Lifespans, Places, code};
pub use diff::{Side, diff};
pub use fetch::{FetchError, Voice as FetchVoice, WHEEL, fetch, fetched, pinned};
pub use fill::{Built, fill, listings};
pub use images::{Placed, image_bytes};
pub use inputs::{InputError, Inputs, Meant, inputs};
pub use lines_diff::{Normalize, lines_diff};
pub use names::Names;
pub use nvdisasm::{Nvdisasm, ToolError, find};
pub use operands::{OperandsError, operands};
pub use read::{OTHER_ARCHES, listing};
pub use remote::{AskHost, Host, Question, questions};
pub use sampled::sampled;
pub use what::{Wanted, What};

use std::path::PathBuf;

use crate::model::disasm::{Disasm, Input, SCHEMA, Status};
use cores::Cores;
use read::Reader;

/// What `work` makes of each number below `count`, in order, on all cores.
pub fn spread<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    Cores::all().spread(count, || (), |(), at| work(at))
}

/// Reads all files, on all cores; `done` hears of each as it ends, from any thread.
pub fn all(files: &[PathBuf], what: &What, done: &(dyn Fn(&Input) + Sync)) -> Disasm {
    let reader = Reader::new(what);
    let inputs = reader.cores.spread(
        files.len(),
        || (),
        |(), number| {
            let (input, numbers) = reader.read(number, &files[number]);
            done(&input);
            (input, numbers)
        },
    );
    let mut named = reader.outbox.named();
    let mut document = Disasm {
        schema: SCHEMA.to_owned(),
        rgpu: env!("CARGO_PKG_VERSION").to_owned(),
        inputs: Vec::with_capacity(inputs.len()),
    };
    for (number, (mut input, numbers)) in inputs.into_iter().enumerate() {
        for (image, at) in input.images.iter_mut().zip(numbers) {
            match named.remove(&(number, at)) {
                Some(Ok(names)) => image.files = names,
                Some(Err(error)) => {
                    input.errors.push(error);
                    input.status = Status::Partial;
                }
                None => {}
            }
        }
        document.inputs.push(input);
    }
    document
}
