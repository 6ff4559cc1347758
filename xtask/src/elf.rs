//! What a binary asks of the host it runs on: interpreter, libraries, glibc version.

use goblin::elf::Elf;
use std::fmt;
use std::io;
use std::path::Path;

/// The file is no ELF binary that can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElfError {
    /// It cannot be read at all.
    #[error("unreadable")]
    Read(#[from] io::Error),
    /// It is not ELF, or damaged.
    #[error("not a readable ELF file")]
    Parse(#[from] goblin::error::Error),
}

/// What a host must have.
pub(crate) struct Needs {
    pub(crate) bytes: u64,
    pub(crate) interpreter: Option<String>,
    libraries: Vec<String>,
    glibc: Option<Version>,
}

/// A glibc version such as 2.17.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Version(u32, u32, u32);

/// Reads the needs of the binary at `path`.
pub(crate) fn read(path: &Path) -> Result<Needs, ElfError> {
    let bytes = std::fs::read(path)?;
    let elf = Elf::parse(&bytes)?;
    let versions = elf.verneed.iter().flat_map(goblin::elf::symver::VerneedSection::iter);
    let names = versions.flat_map(|needed| {
        let names = needed.iter().map(|version| version.vna_name).collect::<Vec<_>>();
        names.into_iter().filter_map(|name| elf.dynstrtab.get_at(name))
    });
    Ok(Needs {
        bytes: bytes.len() as u64,
        interpreter: elf.interpreter.map(str::to_owned),
        glibc: names.filter_map(glibc_version).max(),
        libraries: elf.libraries.iter().map(|&library| library.to_owned()).collect(),
    })
}

/// `GLIBC_2.17` as a version; other symbol versions are none.
fn glibc_version(name: &str) -> Option<Version> {
    let mut parts = name.strip_prefix("GLIBC_")?.split('.').map(|part| part.parse().ok());
    let (major, minor) = (parts.next()??, parts.next()??);
    Some(Version(major, minor, parts.next().unwrap_or(Some(0))?))
}

impl fmt::Display for Needs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes", self.bytes)?;
        match self.glibc {
            Some(Version(major, minor, 0)) => write!(out, ", glibc {major}.{minor} or newer")?,
            Some(Version(major, minor, patch)) => {
                write!(out, ", glibc {major}.{minor}.{patch} or newer")?;
            }
            None => write!(out, ", any glibc")?,
        }
        if let Some(interpreter) = &self.interpreter {
            write!(out, ", interpreter {interpreter}")?;
        }
        write!(out, ", libraries {}", self.libraries.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        let newest = ["GLIBC_2.9", "GLIBC_2.17", "GLIBC_2.2.5", "GCC_3.0", "GLIBC_PRIVATE"];
        let newest = newest.into_iter().filter_map(glibc_version).max();
        assert_eq!(newest, Some(Version(2, 17, 0)));
    }

    #[test]
    fn this_test_binary_says_what_it_needs() {
        let needs = read(&std::env::current_exe().expect("a path")).expect("our own ELF file");
        assert!(needs.glibc >= Some(Version(2, 2, 5)), "{needs}");
        assert!(needs.libraries.iter().any(|library| library.starts_with("libc.so")), "{needs}");
    }

    #[test]
    fn a_text_file_is_refused() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(matches!(read(&file), Err(ElfError::Parse(_))));
    }
}
