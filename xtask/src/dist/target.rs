//! The architectures that binaries are built for, and the requirements that their hosts meet.

use super::DistError;
use crate::elf::{self, BinaryRequirements, Limits};
use rgpu_protocol::program_needs::GlibcVersion;
use std::path::Path;

/// The glibc of RHEL 7 and of all distributions since 2013.
const GLIBC: GlibcVersion = GlibcVersion(2, 17, 0);
/// Libraries that are part of glibc. Any other library may be missing on a host.
const LIBRARIES: &[&str] =
    &["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"];
/// Maximum size of the agent in bytes: it is uploaded to every new host, often over slow links.
const AGENT_LIMIT: u64 = 4_000_000;

/// An architecture that binaries are built for.
pub(crate) struct Target {
    /// The name that `uname -m` prints.
    pub(super) arch: &'static str,
    pub(super) triple: &'static str,
    /// The name of zig's header folders.
    pub(super) zig: &'static str,
    /// Platform tags of a wheel for hosts with [`GLIBC`] (PEP 600, and PEP 599 for older
    /// installers).
    pub(super) wheel_tags: &'static [&'static str],
    limits: Limits,
}

/// All architectures; the default is first.
pub(super) static TARGETS: [Target; 2] = [
    Target {
        arch: "x86_64",
        triple: "x86_64-unknown-linux-gnu",
        zig: "x86",
        wheel_tags: &["manylinux_2_17_x86_64", "manylinux2014_x86_64"],
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
        wheel_tags: &["manylinux_2_17_aarch64", "manylinux2014_aarch64"],
        limits: Limits {
            machine: goblin::elf::header::EM_AARCH64,
            interpreter: "/lib/ld-linux-aarch64.so.1",
            glibc: GLIBC,
            libraries: LIBRARIES,
        },
    },
];

impl Target {
    /// The target named on the command line; the default if none is named.
    pub(crate) fn named(words: &[String]) -> Option<&'static Self> {
        match words {
            [] => TARGETS.first(),
            [arch] => TARGETS.iter().find(|target| target.arch == arch),
            _ => None,
        }
    }

    /// The target in the form of cargo-zigbuild, with the oldest supported glibc.
    pub(super) fn with_glibc(&self) -> String {
        format!("{}.{GLIBC}", self.triple)
    }

    /// The requirements of the binary at `path`, if every supported host meets them.
    pub(super) fn check(&self, path: &Path, file: &str) -> Result<BinaryRequirements, DistError> {
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
