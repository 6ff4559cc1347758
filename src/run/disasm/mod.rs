//! `rgpu disasm`: every file looked into, every kernel's facts told, every listing written.
//!
//! [`inputs`] says which files are meant, [`each`] reads them on all cores (`cores`) and writes what is
//! asked of each (`outbox`), with nvdisasm for the operands where it is there (`nvdisasm`; `remote`
//! where that is a host). [`code`] gives a cubin instruction by instruction, for
//! views. A file that cannot be read is told in its place in the document; the others are done all
//! the same.

mod code;
mod diff;
mod fetch;
mod image_task;
mod images;
mod inputs;
mod leash;
mod lines_diff;
mod names;
mod nvdisasm;
mod operands;
mod ordered_writer;
mod permits;
mod read;
mod remote;
mod run_listings;
mod sampled;
mod shards;
mod sources;
mod spare_cores;

pub use code::{CodeError, LifeRanges, SourcePositions, code};
pub use diff::{DiffSide, diff};
pub use fetch::{FetchError, PipOutput as FetchVoice, WHEEL, fetch, fetched, pinned};
pub use image_task::{ImageFilter, ImageTask};
pub use images::{LocatedImage, image_bytes};
pub use inputs::{InputError, Inputs, NamedInput, inputs};
pub use lines_diff::{ComparedText, lines_diff};
pub use names::FileNames;
pub use nvdisasm::{Nvdisasm, ToolError, find};
pub use operands::{OperandsError, operands};
pub use read::{OTHER_ARCHES, listing};
pub use remote::{CommandHost, ListingHost, ListingRequest, questions};
pub use run_listings::{CompiledFiles, fill, listings};
pub use sampled::sampled;

use std::path::PathBuf;
use std::sync::Mutex;

use crate::model::disasm::{Disasm, Input, SCHEMA, Status};
use read::ImageReader;

/// Reads all files, on all cores; `done` hears of each as it ends, from any thread.
pub fn all(files: &[PathBuf], what: &ImageTask, done: &(dyn Fn(&Input) + Sync)) -> Disasm {
    let inputs = each(files, what, &|_, input| {
        done(&input);
        input
    });
    document(inputs)
}

/// A document of these inputs.
pub fn document(inputs: Vec<Input>) -> Disasm {
    Disasm { schema: SCHEMA.to_owned(), rgpu: env!("CARGO_PKG_VERSION").to_owned(), inputs }
}

/// Reads all files, on all cores, and makes of each what `make` does with its number and what was
/// read of it, on any core as well.
pub fn each<T: Send>(
    files: &[PathBuf],
    what: &ImageTask,
    make: &(dyn Fn(usize, Input) -> T + Sync),
) -> Vec<T> {
    let reader = ImageReader::new(what);
    // Files that are written have their names only when all before them have theirs.
    if what.out.is_none() || !(what.sass || what.extract) {
        let one = |(): &mut (), number: usize| make(number, reader.read(number, &files[number]).0);
        return reader.cores.spread(files.len(), || (), one);
    }
    let one = |(): &mut (), number: usize| reader.read(number, &files[number]);
    let read = reader.cores.spread(files.len(), || (), one);
    let (cores, mut named) = (reader.cores, reader.outbox.named());
    let mut inputs = Vec::with_capacity(read.len());
    for (number, (mut input, numbers)) in read.into_iter().enumerate() {
        for (image, at) in input.images.iter_mut().zip(numbers) {
            match named.remove(&(number, at)) {
                Some(Ok(names)) => image.files = names,
                Some(Err(error)) => {
                    what.not_written(&error);
                    input.errors.push(error);
                    input.status = Status::Partial;
                }
                None => {}
            }
        }
        inputs.push(Mutex::new(Some(input)));
    }
    let made = cores.spread(
        inputs.len(),
        || (),
        |(), number| {
            let input = inputs[number].lock().ok().and_then(|mut input| input.take());
            input.map(|input| make(number, input))
        },
    );
    made.into_iter().flatten().collect()
}
