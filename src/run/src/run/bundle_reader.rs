//! Turns a plan and its bundled files into a submission, whose blobs are read from disk when the
//! host requests them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use rgpu_protocol::{Digest, Plan};

use rgpu_plan::bundle;
use rgpu_remote::{self as remote, Submission};

/// The sources of a bundle's blobs.
struct BundleReader(BTreeMap<Digest, bundle::BlobSource>);

impl remote::BlobReader for BundleReader {
    fn open(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        match self.0.get(digest) {
            Some(source) => source.read(digest).map_err(io::Error::other),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "the bundle has no such blob")),
        }
    }
}

/// A submission of a plan with its blobs, without secrets.
pub(super) fn submission(plan: Plan, blobs: BTreeMap<Digest, bundle::BlobSource>) -> Submission {
    Submission { plan, blobs: Arc::new(BundleReader(blobs)), secrets: BTreeMap::new() }
}
