//! The blob store: `<root>/blobs/<first two hex digits>/<digest>`.
//!
//! A blob is verified before it gets its name, so named blobs are trusted. Blobs are not synced one
//! by one (that would cost seconds for 500 small files). So a blob whose change time is older than
//! the last boot is hashed again before use.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rgpu_protocol::{BLOB_BYTES, Digest};

use crate::host_fault::{HostFault, IoContext};

/// Why a blob was not stored.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The bytes do not match the digest or the size.
    #[error("the blob {wanted:?} arrived damaged: {why}")]
    Damaged {
        /// The digest that the client sent.
        wanted: Digest,
        /// Explanation for the user.
        why: String,
    },
    /// The host's file system failed.
    #[error(transparent)]
    Host(#[from] HostFault),
}

impl BlobError {
    /// Returns the code of a refusal.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Damaged { .. } => "damaged_blob",
            Self::Host(fault) => fault.code(),
        }
    }
}

/// The blobs of one root folder.
#[derive(Clone, Debug)]
pub struct Blobs {
    folder: PathBuf,
    boot_s: i64,
}

impl Blobs {
    /// Opens the store under `root`.
    pub fn new(root: &Path) -> Self {
        Self { folder: root.join("blobs"), boot_s: boot_time_s() }
    }

    /// Returns the path of a blob.
    pub fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(&digest.as_str()[..2]).join(digest.as_str())
    }

    /// Returns whether a blob of `size` bytes is stored. Removes it if its size or content is
    /// wrong.
    pub fn has(&self, digest: &Digest, size: u64) -> bool {
        let path = self.path(digest);
        let Ok(meta) = fs::symlink_metadata(&path) else { return false };
        let valid = meta.is_file()
            && meta.len() == size
            && (meta.ctime() > self.boot_s || self.verify(&path, digest));
        if !valid {
            let _ = fs::remove_file(&path);
        }
        valid
    }

    /// Hashes a blob from before the last boot, and marks it as verified.
    fn verify(&self, path: &Path, digest: &Digest) -> bool {
        let Ok(bytes) = fs::read(path) else { return false };
        let valid = Digest::sha256(&bytes) == *digest;
        if valid {
            touch(path);
        }
        valid
    }

    /// Verifies bytes that arrived on the wire and stores them.
    ///
    /// # Errors
    /// [`BlobError::Damaged`] if they do not match; the store is unchanged.
    pub fn put(
        &self,
        digest: &Digest,
        size: u64,
        wire: &[u8],
        packed: BlobEncoding,
    ) -> Result<(), BlobError> {
        let damaged = |why: String| BlobError::Damaged { wanted: digest.clone(), why };
        let unpacked;
        let bytes = match packed {
            BlobEncoding::Plain => wire,
            BlobEncoding::Zstd => {
                unpacked = zstd::bulk::decompress(wire, size.min(BLOB_BYTES) as usize)
                    .map_err(|e| damaged(e.to_string()))?;
                &unpacked
            }
        };
        if bytes.len() as u64 != size {
            return Err(damaged(format!("{} bytes instead of {size}", bytes.len())));
        }
        let actual = Digest::sha256(bytes);
        if actual != *digest {
            return Err(damaged(format!("its sha256 is {actual}")));
        }
        Ok(self.store(digest, bytes)?)
    }

    /// Stores bytes whose digest the caller has just computed.
    pub fn store(&self, digest: &Digest, bytes: &[u8]) -> Result<(), HostFault> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let path = self.path(digest);
        if let Ok(meta) = fs::symlink_metadata(&path)
            && meta.is_file()
            && meta.len() == bytes.len() as u64
            && meta.ctime() > self.boot_s
        {
            return Ok(());
        }
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let temp = self.folder.join("tmp").join(format!("{}-{serial}", std::process::id()));
        let written = write_new(&temp, bytes).and_then(|()| {
            if let Some(parent) = path.parent()
                && let Err(e) = DirBuilder::new().mode(0o700).create(parent)
                && e.kind() != io::ErrorKind::AlreadyExists
            {
                return Err(e);
            }
            fs::rename(&temp, &path)
        });
        if written.is_err() {
            let _ = fs::remove_file(&temp);
        }
        written.context("store", &path)
    }

    /// Copies a blob into a file at offset `at`; other threads may write the same file. Returns its
    /// length. A hard link would not do, because the job may write its inputs.
    pub fn copy_at(&self, digest: &Digest, out: &File, at: u64) -> io::Result<u64> {
        let path = self.path(digest);
        let bytes = fs::read(&path)?;
        out.write_all_at(&bytes, at)?;
        // The quota first removes blobs that were not used for longest.
        touch(&path);
        Ok(bytes.len() as u64)
    }
}

/// How bytes are compressed on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobEncoding {
    /// The bytes are not compressed.
    Plain,
    /// The bytes are one zstd frame.
    Zstd,
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o400).open(path)?.write_all(bytes)
}

fn touch(path: &Path) {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
    // Only the order of removal depends on this.
    let _ = rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty());
}

/// Returns the Unix time of the last boot, or the far future if unknown, so that every blob is
/// verified.
fn boot_time_s() -> i64 {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime: Option<f64> = uptime.split(' ').next().and_then(|s| s.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map(|d| d.as_secs() as i64);
    match (uptime, now) {
        (Some(uptime), Ok(now)) => now - uptime as i64,
        _ => i64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Blobs) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("blobs/tmp")).unwrap();
        let blobs = Blobs::new(dir.path());
        (dir, blobs)
    }

    #[test]
    fn a_damaged_blob_never_gets_a_name() {
        let (_dir, blobs) = store();
        let digest = Digest::sha256(b"right");
        let error = blobs.put(&digest, 5, b"wrong", BlobEncoding::Plain).unwrap_err();
        assert_eq!(error.code(), "damaged_blob");
        assert!(!blobs.has(&digest, 5));
        assert!(blobs.put(&digest, 5, b"no zstd", BlobEncoding::Zstd).is_err());
        blobs.put(&digest, 5, b"right", BlobEncoding::Plain).unwrap();
        assert!(blobs.has(&digest, 5));
        let folder = fs::metadata(blobs.path(&digest).parent().unwrap()).unwrap();
        assert_eq!(folder.mode() & 0o777, 0o700);
    }

    #[test]
    fn a_bomb_is_refused_at_its_announced_size() {
        let (_dir, blobs) = store();
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
        assert!(blobs.put(&Digest::sha256(b""), 10, &bomb, BlobEncoding::Zstd).is_err());
    }

    #[test]
    fn a_blob_of_an_earlier_boot_is_hashed_before_it_is_trusted() {
        let (_dir, mut blobs) = store();
        let digest = Digest::sha256(b"right");
        blobs.store(&digest, b"right").unwrap();
        // A power cut left zeros of the right length behind.
        let path = blobs.path(&digest);
        fs::remove_file(&path).unwrap();
        fs::write(&path, [0; 5]).unwrap();
        assert!(blobs.has(&digest, 5), "this boot's blobs are trusted by their name");
        blobs.boot_s = i64::MAX;
        assert!(!blobs.has(&digest, 5));
        assert!(!path.exists());
    }
}
