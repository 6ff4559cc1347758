//! Bundles: the files of a draft as content-addressed blobs, ready to be sent.
//!
//! A host stores blobs by their sha256, so that a file is sent once for all runs. Files over 4 MiB
//! are split into 4 MiB blobs, which serves resuming, parallel uploads and partial reads. Nothing
//! here connects to a host.

mod commands;
mod error;
mod pack;

pub use commands::{commands, quoted};
pub use error::BundleError;
pub use pack::{BlobSource, Bundle, DEFAULT_MAX_BYTES, Packer};

pub use crate::kernel::is_private;
