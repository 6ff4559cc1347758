//! `rgpu disasm`: reads files with GPU code, collects the facts of every kernel, and writes
//! listings.
//!
//! [`inputs`] finds the files, [`read_all`] reads them on all cores (`spare_cores`) and writes the
//! requested files (`ordered_writer`). nvdisasm provides the operands if there is one (`nvdisasm`;
//! `host_listings` for one on a host). `code` gives a cubin instruction by instruction, for views.
//! A file that cannot be read is reported in the document; the other files are not affected.

mod code;
mod diff;
mod fetch;
mod host_listings;
mod image_task;
mod images;
mod inputs;
mod limited_process;
mod lines_diff;
mod listing_cache;
mod names;
mod nvdisasm;
mod operands;
mod ordered_writer;
mod read;
mod sampled;
mod shards;
mod sources;
mod spare_cores;

pub use code::{CodeError, LifeRanges, SourcePositions, read_code};
pub use diff::{DiffSide, diff};
pub use fetch::{FetchError, Installer, PipOutput, WHEEL, fetch, fetched, pinned};
pub use host_listings::{ListingCalls, ListingRequest, cubin_listing_requests};
pub use image_task::{ImageFilter, ImageTask};
pub use images::{LocatedImage, first_errors, image_bytes};
pub use inputs::{InputError, Inputs, NamedInput, inputs};
pub use lines_diff::{IgnoredDifferences, lines_diff};
pub use names::FileNames;
pub use nvdisasm::{Nvdisasm, NvdisasmSearch, ToolError, find};
pub use operands::{OperandsError, hot_spot_listing_requests, operands};
pub use read::{OTHER_ARCHES, listing, theoretical_occupancy};
pub use sampled::sampled;

use std::path::PathBuf;
use std::sync::Mutex;

use read::ImageReader;
use rgpu_model::disasm::{DisasmDocument, Input, ReadStatus, SCHEMA};
use spare_cores::CORES;

/// Reads all files on all cores. `done` is called for each file that is read, on any thread.
pub fn all(files: &[PathBuf], task: &ImageTask, done: &(dyn Fn(&Input) + Sync)) -> DisasmDocument {
    let inputs = read_all(files, task, &|_, input| {
        done(&input);
        input
    });
    document(inputs)
}

/// The document of these inputs.
pub fn document(inputs: Vec<Input>) -> DisasmDocument {
    DisasmDocument { schema: SCHEMA.to_owned(), rgpu: env!("CARGO_PKG_VERSION").to_owned(), inputs }
}

/// Reads all files on all cores, and calls `make` with each file's number and content, on any core.
/// Returns its results in order.
pub fn read_all<T: Send>(
    files: &[PathBuf],
    task: &ImageTask,
    make: &(dyn Fn(usize, Input) -> T + Sync),
) -> Vec<T> {
    let reader = ImageReader::new(task);
    // Written files get their final names only after those of all files before them.
    if task.out.is_none() || !(task.write_listings || task.extract) {
        let process_file =
            |(): &mut (), number: usize| make(number, reader.read(number, &files[number]).0);
        return CORES.parallel_map(files.len(), || (), process_file);
    }
    let process_file = |(): &mut (), number: usize| reader.read(number, &files[number]);
    let read = CORES.parallel_map(files.len(), || (), process_file);
    let mut named = reader.writer.named();
    let mut inputs = Vec::with_capacity(read.len());
    for (number, (mut input, numbers)) in read.into_iter().enumerate() {
        for (image, at) in input.images.iter_mut().zip(numbers) {
            match named.remove(&(number, at)) {
                Some(Ok(names)) => image.files = names,
                Some(Err(error)) => {
                    task.record_write_error(&error);
                    input.errors.push(error);
                    input.status = ReadStatus::Partial;
                }
                None => {}
            }
        }
        inputs.push(Mutex::new(Some(input)));
    }
    let results = CORES.parallel_map(
        inputs.len(),
        || (),
        |(), number| {
            let input = inputs[number].lock().ok().and_then(|mut input| input.take());
            input.map(|input| make(number, input))
        },
    );
    results.into_iter().flatten().collect()
}
