//! A bundle's blobs as a remote takes them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use rgpu_protocol::{Digest, Plan};

use crate::bundle;
use crate::remote::{self, Submission};

/// Where the bytes of a bundle are.
struct BundleReader(BTreeMap<Digest, bundle::BlobSource>);

impl remote::BlobReader for BundleReader {
    fn open(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        match self.0.get(digest) {
            Some(source) => source.read(digest).map_err(io::Error::other),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "the bundle has no such blob")),
        }
    }
}

/// A plan with where its files' bytes are.
pub(super) fn submission(plan: Plan, blobs: BTreeMap<Digest, bundle::BlobSource>) -> Submission {
    Submission { plan, blobs: Arc::new(BundleReader(blobs)), secrets: BTreeMap::new() }
}
