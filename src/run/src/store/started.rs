//! Which runs this machine has started. A run folder may come with a cloned project, so its record
//! is somebody else's word until the run is known here.

#![expect(clippy::disallowed_methods, reason = "rgpu's own data folder")]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rgpu_protocol::Digest;

use super::{RunRecord, atomic};

/// The list of the runs that this user started on this machine.
#[derive(Clone, Debug)]
pub struct StartedRuns {
    file: PathBuf,
}

impl StartedRuns {
    /// The list in the user's cache folder.
    pub fn in_cache(cache: &Path) -> Self {
        Self { file: cache.join("started") }
    }

    /// Adds a run.
    pub fn add(&self, record: &RunRecord) -> io::Result<()> {
        atomic::make_private_folder(self.file.parent().unwrap_or(Path::new(".")))?;
        let mut options = fs::File::options();
        let mut file = options.append(true).create(true).mode(0o600).open(&self.file)?;
        file.write_all(format!("{}\n", line(record)).as_bytes())
    }

    /// Whether the run is in the list.
    pub fn has(&self, record: &RunRecord) -> bool {
        let (text, line) = (fs::read_to_string(&self.file).unwrap_or_default(), line(record));
        text.lines().any(|known| known == line)
    }
}

/// The line of a run: another command line or another remote is another run.
fn line(record: &RunRecord) -> String {
    let parts = serde_json::to_vec(&(&record.id, &record.remote, &record.argv));
    Digest::sha256(&parts.unwrap_or_default()).as_str().to_owned()
}
