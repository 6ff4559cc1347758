//! The requirements of a Linux program on its host: architecture, loader, libraries, glibc.
//!
//! The laptop checks this before it sends a program, `cargo xtask dist` for what it has built. The
//! dynamic loader's own error ("GLIBC_2.34 not found") does not tell a user what to do.

use std::fmt;

use goblin::elf::Elf;

/// The requirements of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramNeeds {
    /// The architecture as ELF numbers it.
    pub machine: u16,
    /// The dynamic loader. Libraries and static programs name none.
    pub interpreter: Option<String>,
    /// The libraries that the loader must find.
    pub libraries: Vec<String>,
    /// The newest glibc symbol version that it uses.
    pub glibc: Option<GlibcVersion>,
}

impl ProgramNeeds {
    /// Reads the requirements from the bytes of the file.
    pub fn read(bytes: &[u8]) -> Result<Self, goblin::error::Error> {
        let elf = Elf::parse(bytes)?;
        let versions = elf.verneed.iter().flat_map(goblin::elf::symver::VerneedSection::iter);
        let names = versions.flat_map(|needed| {
            let names = needed.iter().map(|version| version.vna_name).collect::<Vec<_>>();
            names.into_iter().filter_map(|name| elf.dynstrtab.get_at(name))
        });
        Ok(Self {
            machine: elf.header.e_machine,
            interpreter: elf.interpreter.map(str::to_owned),
            libraries: elf.libraries.iter().map(|&library| library.to_owned()).collect(),
            glibc: names.filter_map(GlibcVersion::from_symbol).max(),
        })
    }
}

/// A glibc version such as 2.17.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct GlibcVersion(pub u32, pub u32, pub u32);

impl GlibcVersion {
    /// Parses a symbol version, `GLIBC_2.17`. Others (`GCC_3.0`, `GLIBC_PRIVATE`) give `None`.
    fn from_symbol(name: &str) -> Option<Self> {
        Self::parse(name.strip_prefix("GLIBC_")?)
    }

    /// The version of a host's glibc, from what it prints: `glibc 2.36` (getconf), `GNU C Library
    /// (Debian GLIBC 2.28-10) stable release version 2.28.` (glibc itself; older ones add `, by
    /// Roland McGrath et al.`), or `ldd (Ubuntu GLIBC 2.31-0ubuntu9) 2.31`. `None`: another text.
    pub fn from_host_text(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.lines().next()?.split_whitespace().collect();
        let after_version = words.iter().skip_while(|word| **word != "version").nth(1);
        Self::parse(after_version.or(words.last())?.trim_end_matches(['.', ',']))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let (major, minor) = (parts.next()??, parts.next()??);
        Some(Self(major, minor, parts.next().unwrap_or(Some(0))?))
    }
}

impl fmt::Display for GlibcVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(major, minor, patch) = self;
        write!(out, "{major}.{minor}")?;
        if *patch > 0 { write!(out, ".{patch}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        let newest = ["GLIBC_2.9", "GLIBC_2.17", "GLIBC_2.2.5", "GCC_3.0", "GLIBC_PRIVATE"];
        let newest = newest.into_iter().filter_map(GlibcVersion::from_symbol).max();
        assert_eq!(newest, Some(GlibcVersion(2, 17, 0)));
    }

    #[test]
    fn glibc_is_known_from_getconf_from_ldd_and_from_itself() {
        let version = |text| GlibcVersion::from_host_text(text).map(|v| v.to_string());
        let own = "GNU C Library (Debian GLIBC 2.28-10) stable release version 2.28.\nCopyright";
        assert_eq!(version("glibc 2.36\n").as_deref(), Some("2.36"));
        assert_eq!(version("glibc 2.2.5").as_deref(), Some("2.2.5"));
        assert_eq!(version("ldd (Ubuntu GLIBC 2.31-0ubuntu9) 2.31").as_deref(), Some("2.31"));
        assert_eq!(version(own).as_deref(), Some("2.28"));
        let older = "GNU C Library (Debian GLIBC 2.19-18) stable release version 2.19, by Roland McGrath et al.";
        assert_eq!(version(older).as_deref(), Some("2.19"));
        for other in ["undefined\n", "no such variable", "", "musl libc (x86_64)"] {
            assert_eq!(version(other), None, "{other}");
        }
    }

    #[test]
    fn this_test_program_needs_what_it_was_built_for() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = ProgramNeeds::read(&own).unwrap();
        assert!(needs.glibc >= Some(GlibcVersion(2, 2, 5)), "{needs:?}");
        assert!(needs.interpreter.is_some());
        assert!(needs.libraries.iter().any(|name| name.starts_with("libc.so")), "{needs:?}");
        assert!(ProgramNeeds::read(b"no program").is_err());
    }
}
