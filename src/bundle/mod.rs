//! Bundles: a draft's files as content-addressed blobs, ready to be sent.
//!
//! A host keeps blobs by their sha256, so that a file travels once, whichever run it is part of.
//! A file over 4 MiB is a list of 4 MiB blobs: resume, parallel channels and ranges are one
//! mechanism. Nothing here talks to a host.

mod commands;
mod error;
mod pack;

pub use commands::{commands, quoted};
pub use error::BundleError;
pub use pack::{BlobSource, Bundle, DEFAULT_MAX_BYTES, Packer};

pub use crate::kernel::is_private;
