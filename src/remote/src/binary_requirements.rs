//! Checks that our agent can run on a host before it is sent.

use goblin::elf::header::{EM_AARCH64, EM_X86_64};
use goblin::elf::{Elf, header};
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::program_needs::{GlibcVersion, ProgramNeeds};

use super::RemoteError;

/// The requirements of a program on its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BinaryRequirements {
    /// The architecture in the words of `uname -m`.
    machine: &'static str,
    /// The newest glibc symbol version that it uses; `None`: it does not use glibc.
    glibc: Option<GlibcVersion>,
}

/// The architecture of an ELF program in the words of `uname -m`, from its first 64 bytes; `None`:
/// not one that we support.
pub fn arch_of(head: &[u8]) -> Option<&'static str> {
    machine(Elf::parse_header(head).ok()?.e_machine)
}

fn machine(number: u16) -> Option<&'static str> {
    match number {
        EM_X86_64 => Some("x86_64"),
        EM_AARCH64 => Some("aarch64"),
        _ => None,
    }
}

/// The reason why a local program cannot run on a host; `None`: no known reason.
pub fn why_not_runnable(program: &[u8], host: &AgentFacts) -> Option<String> {
    let needs = match BinaryRequirements::read(program) {
        Ok(needs) => needs,
        Err(why) => return Some(why),
    };
    match needs.check(&format!("Linux {} glibc {}", host.arch, host.glibc)) {
        Err(RemoteError::Unfit { why, .. }) => Some(why.replace("this agent", "the program")),
        _ => None,
    }
}

impl BinaryRequirements {
    /// Reads the requirements of an ELF program.
    pub(super) fn read(program: &[u8]) -> Result<Self, String> {
        let needs = ProgramNeeds::read(program).map_err(|error| error.to_string())?;
        let machine = machine(needs.machine)
            .ok_or_else(|| format!("it is for {}", header::machine_to_str(needs.machine)))?;
        // Every dynamically linked glibc program has versioned symbols; one without an interpreter
        // is static.
        Ok(Self { machine, glibc: needs.interpreter.and(needs.glibc) })
    }

    /// Compares with the start command's description of the host: `Linux x86_64 glibc 2.36`.
    pub(super) fn check(&self, host: &str) -> Result<(), RemoteError> {
        let mut words = host.splitn(3, ' ');
        let mut word = || words.next().unwrap_or("");
        let (system, machine, libc) = (word(), word(), word());
        let unfit = |why: String| Err(RemoteError::Unfit { why, arch: None });
        if system != "Linux" {
            return unfit(format!("the host runs `{system}`, and the agent needs Linux"));
        }
        if machine != self.machine {
            return Err(RemoteError::Unfit {
                why: format!("the host is `{machine}`, this agent is for {}", self.machine),
                arch: Some(machine.to_owned()),
            });
        }
        let Some(needed) = self.glibc else { return Ok(()) };
        if libc.split_whitespace().next().is_some_and(|word| word.contains("musl")) {
            return unfit("the host has musl, this agent needs glibc".to_owned());
        }
        // If no version is found, the loader decides.
        match GlibcVersion::from_host_text(libc) {
            Some(found) if found < needed => {
                unfit(format!("the host has glibc {found}, this agent needs {needed}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_refused_for_what_it_lacks_and_for_nothing_else() {
        let needs = BinaryRequirements { machine: "x86_64", glibc: Some(GlibcVersion(2, 34, 0)) };
        for good in [
            "Linux x86_64 glibc 2.34",
            "Linux x86_64 ldd (Debian GLIBC 2.41-12) 2.41",
            "Linux x86_64 GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.",
            "Linux x86_64",
        ] {
            needs.check(good).unwrap();
        }
        for (bad, word) in [
            ("Linux x86_64 glibc 2.31", "glibc 2.31"),
            (
                "Linux x86_64 GNU C Library (Debian GLIBC 2.28-10) stable release version 2.28.",
                "glibc 2.28",
            ),
            (
                "Linux x86_64 GNU C Library (Debian GLIBC 2.19-18) stable release version 2.19, by Roland McGrath et al.",
                "glibc 2.19",
            ),
            ("Linux aarch64 glibc 2.39", "aarch64"),
            ("Linux x86_64 musl libc (x86_64)", "musl"),
            ("Linux x86_64 /lib/ld-musl-x86_64.so.1", "musl"),
            ("Darwin arm64", "Darwin"),
        ] {
            assert!(needs.check(bad).unwrap_err().to_string().contains(word), "{bad}");
        }
        BinaryRequirements { glibc: None, ..needs }
            .check("Linux x86_64 musl libc (x86_64)")
            .unwrap();
    }

    #[test]
    fn this_test_program_needs_what_it_was_built_for() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = BinaryRequirements::read(&own).unwrap();
        assert_eq!(needs.machine, std::env::consts::ARCH);
        assert!(BinaryRequirements::read(b"no program").is_err());
    }
}
