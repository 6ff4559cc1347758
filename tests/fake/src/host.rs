//! The fake host that a tool belongs to.

use std::path::{Path, PathBuf};

/// A fake host's folder.
pub(crate) struct Host {
    pub(crate) folder: PathBuf,
}

impl Host {
    /// `RGPU_FAKE_HOST`, else the folder above the `bin/` that the tool was started from.
    pub(crate) fn of(started_as: &str) -> Host {
        if let Some(folder) = std::env::var_os("RGPU_FAKE_HOST") {
            return Host { folder: folder.into() };
        }
        let started = Path::new(started_as);
        let path = if started_as.contains('/') {
            Some(started.to_owned())
        } else {
            std::env::var_os("PATH").and_then(|path| {
                std::env::split_paths(&path).map(|dir| dir.join(started)).find(|p| p.exists())
            })
        };
        let above = path.as_deref().and_then(Path::parent).and_then(Path::parent);
        Host { folder: above.unwrap_or(Path::new(".")).to_owned() }
    }

    /// How many GPUs it has: what the file `gpus` says, else one.
    pub(crate) fn gpus(&self) -> u32 {
        let text = std::fs::read_to_string(self.folder.join("gpus")).unwrap_or_default();
        text.trim().parse().unwrap_or(1)
    }

    /// The UUID of the GPU of this index; the first has [`Host::uuid`].
    pub(crate) fn uuid_of(&self, index: u32) -> String {
        let first = self.uuid();
        if index == 0 { first } else { format!("{}{index:04x}", &first[..first.len() - 4]) }
    }

    /// The GPU's UUID: one for each fake host, since the recorded one would make tests that run
    /// side by side wait for one GPU.
    pub(crate) fn uuid(&self) -> String {
        // FNV-1a: any spread will do.
        let hash =
            |seed: u64| {
                self.folder.as_os_str().as_encoded_bytes().iter().fold(seed, |hash, byte| {
                    (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
                })
            };
        let (a, b) = (hash(0xcbf2_9ce4_8422_2325), hash(0x9e37_79b9_7f4a_7c15));
        let parts = (a >> 32, a >> 16 & 0xffff, a & 0xffff, b >> 48, b & 0xffff_ffff_ffff);
        format!(
            "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            parts.0, parts.1, parts.2, parts.3, parts.4
        )
    }
}
