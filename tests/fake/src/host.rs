//! The fake host of a tool.

use std::path::{Path, PathBuf};

/// The folder of a fake host.
pub(crate) struct Host {
    pub(crate) folder: PathBuf,
}

impl Host {
    /// `RGPU_FAKE_HOST`, otherwise the folder above the `bin/` from which the tool was started.
    pub(crate) fn from_program(started_as: &str) -> Host {
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

    /// Number of GPUs, from the file `gpus`; 1 without it.
    pub(crate) fn gpus(&self) -> u32 {
        let text = std::fs::read_to_string(self.folder.join("gpus")).unwrap_or_default();
        text.trim().parse().unwrap_or(1)
    }

    /// The UUID of the GPU with this index; the first has [`Host::uuid`].
    pub(crate) fn uuid_of(&self, index: u32) -> String {
        let first = self.uuid();
        if index == 0 { first } else { format!("{}{index:04x}", &first[..first.len() - 4]) }
    }

    /// The GPU's UUID. Each fake host has its own, since tests that run in parallel would wait for
    /// one GPU if they shared the recorded one.
    pub(crate) fn uuid(&self) -> String {
        // FNV-1a; any hash with a good spread would do.
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
