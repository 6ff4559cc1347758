//! Reads the requirements of a binary: interpreter, libraries, glibc version.

use goblin::elf::Elf;
use std::fmt;
use std::io;
use std::path::Path;

/// The file is not a readable ELF binary.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElfError {
    /// The file cannot be read.
    #[error("unreadable")]
    Read(#[from] io::Error),
    /// The file is not ELF, or is damaged.
    #[error("not a readable ELF file")]
    Parse(#[from] goblin::error::Error),
}

/// The requirements of a binary.
pub(crate) struct Needs {
    pub(crate) bytes: u64,
    machine: u16,
    /// Programs name an interpreter, libraries do not.
    interpreter: Option<String>,
    libraries: Vec<String>,
    glibc: Option<Version>,
}

/// The properties of the hosts that a binary is built for.
pub(crate) struct Limits {
    pub(crate) machine: u16,
    pub(crate) interpreter: &'static str,
    pub(crate) glibc: Version,
    pub(crate) libraries: &'static [&'static str],
}

/// A requirement that those hosts do not meet.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misfit {
    /// The binary is for another architecture.
    #[error("it is for the machine {0}")]
    Machine(u16),
    /// The binary uses an unusual dynamic loader, as under Nix.
    #[error("it needs the interpreter `{0}`")]
    Interpreter(String),
    /// The binary requires a newer glibc.
    #[error("it needs glibc {0}")]
    Glibc(Version),
    /// The binary requires a library that is not part of glibc.
    #[error("it needs the library `{0}`")]
    Library(String),
}

/// A glibc version such as 2.17.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Version(pub(crate) u32, pub(crate) u32, pub(crate) u32);

/// Reads the requirements of the binary at `path`.
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
        machine: elf.header.e_machine,
        interpreter: elf.interpreter.map(str::to_owned),
        glibc: names.filter_map(glibc_version).max(),
        libraries: elf.libraries.iter().map(|&library| library.to_owned()).collect(),
    })
}

/// Parses `GLIBC_2.17`; other symbol versions give `None`.
fn glibc_version(name: &str) -> Option<Version> {
    let mut parts = name.strip_prefix("GLIBC_")?.split('.').map(|part| part.parse().ok());
    let (major, minor) = (parts.next()??, parts.next()??);
    Some(Version(major, minor, parts.next().unwrap_or(Some(0))?))
}

impl Needs {
    /// Checks that hosts with `limits` meet all requirements.
    pub(crate) fn fit(&self, limits: &Limits) -> Result<(), Misfit> {
        if self.machine != limits.machine {
            return Err(Misfit::Machine(self.machine));
        }
        if let Some(other) = self.interpreter.as_ref().filter(|path| *path != limits.interpreter) {
            return Err(Misfit::Interpreter(other.clone()));
        }
        if let Some(newer) = self.glibc.filter(|version| *version > limits.glibc) {
            return Err(Misfit::Glibc(newer));
        }
        let loader = limits.interpreter.rsplit('/').next();
        let known = |name: &str| limits.libraries.contains(&name) || Some(name) == loader;
        match self.libraries.iter().find(|name| !known(name)) {
            Some(library) => Err(Misfit::Library(library.clone())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(out, "{major}.{minor}")?;
        if *patch > 0 { write!(out, ".{patch}") } else { Ok(()) }
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes", self.bytes)?;
        match self.glibc {
            Some(version) => write!(out, ", glibc {version} or newer")?,
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
    fn the_first_need_that_hosts_do_not_meet_is_named() {
        let limits = Limits {
            machine: 62,
            interpreter: "/lib64/ld-linux-x86-64.so.2",
            glibc: Version(2, 17, 0),
            libraries: &["libc.so.6"],
        };
        let fits = |change: fn(&mut Needs)| {
            let mut needs = Needs {
                bytes: 1,
                machine: 62,
                interpreter: Some("/lib64/ld-linux-x86-64.so.2".to_owned()),
                libraries: vec!["libc.so.6".to_owned(), "ld-linux-x86-64.so.2".to_owned()],
                glibc: Some(Version(2, 17, 0)),
            };
            change(&mut needs);
            needs.fit(&limits)
        };
        assert_eq!(fits(|_| ()), Ok(()));
        assert_eq!(fits(|needs| needs.interpreter = None), Ok(()));
        assert_eq!(fits(|needs| needs.machine = 183), Err(Misfit::Machine(183)));
        let nix = "/nix/store/x/ld-linux-x86-64.so.2";
        assert_eq!(
            fits(|needs| needs.interpreter = Some("/nix/store/x/ld-linux-x86-64.so.2".to_owned())),
            Err(Misfit::Interpreter(nix.to_owned()))
        );
        let newer = Version(2, 34, 0);
        assert_eq!(fits(|needs| needs.glibc = Some(Version(2, 34, 0))), Err(Misfit::Glibc(newer)));
        assert_eq!(
            fits(|needs| needs.libraries.push("libgcc_s.so.1".to_owned())),
            Err(Misfit::Library("libgcc_s.so.1".to_owned()))
        );
    }

    #[test]
    fn a_text_file_is_refused() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(matches!(read(&file), Err(ElfError::Parse(_))));
    }
}
