//! Compares the requirements of a binary with the hosts that it is built for.

use rgpu_protocol::program_needs::{GlibcVersion, ProgramNeeds};
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

/// The requirements of a binary, with its size.
pub(crate) struct BinaryRequirements {
    pub(crate) bytes: u64,
    program: ProgramNeeds,
}

/// The properties of the hosts that a binary is built for.
pub(crate) struct Limits {
    pub(crate) machine: u16,
    pub(crate) interpreter: &'static str,
    pub(crate) glibc: GlibcVersion,
    pub(crate) libraries: &'static [&'static str],
}

/// A requirement that those hosts do not meet.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnmetRequirement {
    /// The binary is for another architecture.
    #[error("it is for the machine {0}")]
    Machine(u16),
    /// The binary uses an unusual dynamic loader, as under Nix.
    #[error("it needs the interpreter `{0}`")]
    Interpreter(String),
    /// The binary requires a newer glibc.
    #[error("it needs glibc {0}")]
    Glibc(GlibcVersion),
    /// The binary requires a library that is not part of glibc.
    #[error("it needs the library `{0}`")]
    Library(String),
}

pub(crate) fn read(path: &Path) -> Result<BinaryRequirements, ElfError> {
    let bytes = std::fs::read(path)?;
    Ok(BinaryRequirements { bytes: bytes.len() as u64, program: ProgramNeeds::read(&bytes)? })
}

impl BinaryRequirements {
    /// Checks that hosts with `limits` meet all requirements.
    pub(crate) fn fit(&self, limits: &Limits) -> Result<(), UnmetRequirement> {
        let needs = &self.program;
        if needs.machine != limits.machine {
            return Err(UnmetRequirement::Machine(needs.machine));
        }
        if let Some(other) = needs.interpreter.as_ref().filter(|path| *path != limits.interpreter) {
            return Err(UnmetRequirement::Interpreter(other.clone()));
        }
        if let Some(newer) = needs.glibc.filter(|version| *version > limits.glibc) {
            return Err(UnmetRequirement::Glibc(newer));
        }
        let loader = limits.interpreter.rsplit('/').next();
        let known = |name: &str| limits.libraries.contains(&name) || Some(name) == loader;
        match needs.libraries.iter().find(|name| !known(name)) {
            Some(library) => Err(UnmetRequirement::Library(library.clone())),
            None => Ok(()),
        }
    }
}

impl fmt::Display for BinaryRequirements {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes", self.bytes)?;
        match self.program.glibc {
            Some(version) => write!(out, ", glibc {version} or newer")?,
            None => write!(out, ", any glibc")?,
        }
        if let Some(interpreter) = &self.program.interpreter {
            write!(out, ", interpreter {interpreter}")?;
        }
        write!(out, ", libraries {}", self.program.libraries.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_need_that_hosts_do_not_meet_is_named() {
        let limits = Limits {
            machine: 62,
            interpreter: "/lib64/ld-linux-x86-64.so.2",
            glibc: GlibcVersion(2, 17, 0),
            libraries: &["libc.so.6"],
        };
        let fits = |change: fn(&mut ProgramNeeds)| {
            let mut needs = ProgramNeeds {
                machine: 62,
                interpreter: Some("/lib64/ld-linux-x86-64.so.2".to_owned()),
                libraries: vec!["libc.so.6".to_owned(), "ld-linux-x86-64.so.2".to_owned()],
                glibc: Some(GlibcVersion(2, 17, 0)),
            };
            change(&mut needs);
            BinaryRequirements { bytes: 1, program: needs }.fit(&limits)
        };
        assert_eq!(fits(|_| ()), Ok(()));
        assert_eq!(fits(|needs| needs.interpreter = None), Ok(()));
        assert_eq!(fits(|needs| needs.machine = 183), Err(UnmetRequirement::Machine(183)));
        let nix = "/nix/store/x/ld-linux-x86-64.so.2";
        assert_eq!(
            fits(|needs| needs.interpreter = Some("/nix/store/x/ld-linux-x86-64.so.2".to_owned())),
            Err(UnmetRequirement::Interpreter(nix.to_owned()))
        );
        let newer = GlibcVersion(2, 34, 0);
        assert_eq!(
            fits(|needs| needs.glibc = Some(GlibcVersion(2, 34, 0))),
            Err(UnmetRequirement::Glibc(newer))
        );
        assert_eq!(
            fits(|needs| needs.libraries.push("libgcc_s.so.1".to_owned())),
            Err(UnmetRequirement::Library("libgcc_s.so.1".to_owned()))
        );
    }

    #[test]
    fn a_text_file_is_refused() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(matches!(read(&file), Err(ElfError::Parse(_))));
    }
}
