//! What the real tools left: `tests/fixtures/TOOL/VERSION/CASE/`.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::Trouble;

/// One recorded call of a tool.
pub(crate) struct Recording {
    folder: PathBuf,
    /// The tool's exit status.
    pub(crate) exit: u8,
}

/// The part of `origin.toml` that matters here.
#[derive(Deserialize)]
struct Origin {
    #[serde(default)]
    exit_status: u8,
}

impl Recording {
    /// The recording `name` of `tool` (a folder with the version, such as `ncu/2025.3.1`).
    pub(crate) fn open(tool: &str, name: &str) -> Result<Recording, Trouble> {
        Self::find(tool, name)?
            .ok_or_else(|| format!("there is no recording `{tool}/{name}`").into())
    }

    /// The same, or nothing where there is none.
    pub(crate) fn find(tool: &str, name: &str) -> Result<Option<Recording>, Trouble> {
        let folder = fixtures().join(tool).join(name);
        let Ok(text) = fs::read_to_string(folder.join("origin.toml")) else { return Ok(None) };
        let origin: Origin = toml::from_str(&text)?;
        Ok(Some(Recording { folder, exit: origin.exit_status }))
    }

    /// A text of the recording; empty where there is none.
    pub(crate) fn text(&self, file: &str) -> String {
        fs::read_to_string(self.folder.join(file)).unwrap_or_default()
    }

    /// The bytes of a file, if it was recorded.
    pub(crate) fn bytes(&self, file: &str) -> Option<Vec<u8>> {
        fs::read(self.folder.join(file)).ok()
    }

    /// ncu's report, unpacked: our fixtures are kept small.
    pub(crate) fn ncu_report(&self) -> Result<Option<Vec<u8>>, Trouble> {
        match self.bytes("report.ncu-repz") {
            Some(packed) => Ok(Some(zstd::decode_all(packed.as_slice())?)),
            None => Ok(None),
        }
    }
}

/// A text that the recorded host answered a probe with.
pub(crate) fn host_text(file: &str) -> Result<String, Trouble> {
    let path = fixtures().join("host/nvidia-h200").join(file);
    Ok(fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// All recordings of a tool, as folders.
pub(crate) fn all(tool: &str) -> Result<Vec<PathBuf>, Trouble> {
    let mut folders: Vec<PathBuf> =
        fs::read_dir(fixtures().join(tool))?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    Ok(folders)
}

/// The folder of all fixtures.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}
