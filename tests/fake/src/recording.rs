//! Reads recordings of the real tools: `tests/fixtures/TOOL/VERSION/CASE/`.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::ImitationError;

/// One recorded run of a tool.
pub(crate) struct Recording {
    folder: PathBuf,
    /// The tool's exit status.
    pub(crate) exit: u8,
}

/// The part of `origin.toml` that is needed here.
#[derive(Deserialize)]
struct Origin {
    #[serde(default)]
    exit_status: u8,
}

impl Recording {
    /// Opens the recording `name` of `tool` (a folder with the version, such as `ncu/2025.3.1`).
    pub(crate) fn open(tool: &str, name: &str) -> Result<Recording, ImitationError> {
        Self::find(tool, name)?
            .ok_or_else(|| format!("there is no recording `{tool}/{name}`").into())
    }

    /// Opens the recording if it exists.
    pub(crate) fn find(tool: &str, name: &str) -> Result<Option<Recording>, ImitationError> {
        let folder = fixtures().join(tool).join(name);
        let Ok(text) = fs::read_to_string(folder.join("origin.toml")) else { return Ok(None) };
        let origin: Origin = toml::from_str(&text)?;
        Ok(Some(Recording { folder, exit: origin.exit_status }))
    }

    /// A text file of the recording; empty if there is none.
    pub(crate) fn text(&self, file: &str) -> String {
        fs::read_to_string(self.folder.join(file)).unwrap_or_default()
    }

    /// The bytes of a file, if it was recorded.
    pub(crate) fn bytes(&self, file: &str) -> Option<Vec<u8>> {
        fs::read(self.folder.join(file)).ok()
    }

    /// ncu's report, unpacked; the fixtures are stored compressed.
    pub(crate) fn ncu_report(&self) -> Result<Option<Vec<u8>>, ImitationError> {
        match self.bytes("report.ncu-repz") {
            Some(packed) => Ok(Some(zstd::decode_all(packed.as_slice())?)),
            None => Ok(None),
        }
    }
}

/// The recorded host's answer to a probe.
pub(crate) fn host_text(file: &str) -> Result<String, ImitationError> {
    let path = fixtures().join("host/nvidia-h200").join(file);
    Ok(fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?)
}

/// The folders of all recordings of a tool.
pub(crate) fn all(tool: &str) -> Result<Vec<PathBuf>, ImitationError> {
    let mut folders: Vec<PathBuf> =
        fs::read_dir(fixtures().join(tool))?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    Ok(folders)
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}
