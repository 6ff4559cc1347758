//! The hosts that binaries are made for, and what may be asked of them.

use super::DistError;
use crate::elf::{self, Limits, Needs, Version};
use std::path::Path;

/// The glibc of RHEL 7 and of everything since 2013.
const GLIBC: Version = Version(2, 17, 0);
/// Parts of glibc itself. Whatever else a binary names may be missing on a host.
const LIBRARIES: &[&str] =
    &["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"];
/// The agent is uploaded to every new host, often over slow links.
const AGENT_LIMIT: u64 = 4_000_000;

/// One architecture.
pub(crate) struct Target {
    /// As `uname -m` names it.
    pub(super) arch: &'static str,
    pub(super) triple: &'static str,
    /// As zig names the folders of its headers.
    pub(super) zig: &'static str,
    limits: Limits,
}

/// Every architecture there is, the usual one first.
static TARGETS: [Target; 2] = [
    Target {
        arch: "x86_64",
        triple: "x86_64-unknown-linux-gnu",
        zig: "x86",
        limits: Limits {
            machine: goblin::elf::header::EM_X86_64,
            interpreter: "/lib64/ld-linux-x86-64.so.2",
            glibc: GLIBC,
            libraries: LIBRARIES,
        },
    },
    Target {
        arch: "aarch64",
        triple: "aarch64-unknown-linux-gnu",
        zig: "aarch64",
        limits: Limits {
            machine: goblin::elf::header::EM_AARCH64,
            interpreter: "/lib/ld-linux-aarch64.so.1",
            glibc: GLIBC,
            libraries: LIBRARIES,
        },
    },
];

impl Target {
    /// The one named on the command line; the usual one where none is.
    pub(crate) fn named(words: &[String]) -> Option<&'static Self> {
        match words {
            [] => TARGETS.first(),
            [arch] => TARGETS.iter().find(|target| target.arch == arch),
            _ => None,
        }
    }

    /// The target as cargo-zigbuild is told it: with the oldest glibc to serve.
    pub(super) fn with_glibc(&self) -> String {
        format!("{}.{GLIBC}", self.triple)
    }

    /// What the binary at `path` needs, if every host of ours has it.
    pub(super) fn check(&self, path: &Path, file: &str) -> Result<Needs, DistError> {
        let needs =
            elf::read(path).map_err(|source| DistError::Check { path: path.into(), source })?;
        if let Err(misfit) = needs.fit(&self.limits) {
            return Err(DistError::Unfit { file: file.to_owned(), misfit });
        }
        if file == "rgpu-agent" && needs.bytes >= AGENT_LIMIT {
            let (file, bytes, limit) = (file.to_owned(), needs.bytes, AGENT_LIMIT);
            return Err(DistError::Size { file, bytes, limit });
        }
        Ok(needs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_named_by_its_architecture() {
        let named = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Target::named(&words).map(Target::with_glibc)
        };
        assert_eq!(named(&[]).as_deref(), Some("x86_64-unknown-linux-gnu.2.17"));
        assert_eq!(named(&["aarch64"]).as_deref(), Some("aarch64-unknown-linux-gnu.2.17"));
        assert_eq!(named(&["mips"]), None);
    }
}
