//! Compilers in Python wheels, pinned by hash: NVIDIA's nvcc, the CuTe DSL, Triton. They are never
//! shipped; with the user's consent they are fetched into an environment in the host's cache.

use super::python_env::PythonEnv;

/// A pinned set of wheels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wheels {
    /// Name of the contents, for display.
    pub title: &'static str,
    /// Approximate download size in MB.
    pub megabytes: u32,
    list: &'static str,
}

/// nvcc with all that it needs except a host compiler, and nvdisasm.
pub static NVCC: Wheels =
    Wheels { title: "nvcc 13.5", megabytes: 135, list: include_str!("wheels/nvcc.txt") };

/// The wheels of the CuTe DSL.
pub(crate) static CUTE: Wheels =
    Wheels { title: "the CuTe DSL 4.4.0", megabytes: 120, list: include_str!("wheels/cute.txt") };

/// The wheels of Triton.
pub(crate) static TRITON: Wheels =
    Wheels { title: "Triton 3.6.0", megabytes: 190, list: include_str!("wheels/triton.txt") };

impl Wheels {
    /// The environment with these wheels, without the host's own packages.
    pub fn environment(&self) -> PythonEnv {
        PythonEnv {
            requirements: requirements(self.list),
            requires_python: Some(">=3.10".to_owned()),
            host_packages: false,
        }
    }
}

/// The requirements in a list, one per line with its hashes.
fn requirements(list: &str) -> Vec<String> {
    let plain = list.lines().filter(|line| !line.starts_with('#'));
    let joined = plain.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
    joined.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wheel_is_pinned_by_version_and_hash_and_no_index_is_named() {
        for wheels in [NVCC, CUTE, TRITON] {
            let all = wheels.environment().requirements;
            assert!(!all.is_empty());
            for requirement in all {
                assert!(requirement.contains("==") && requirement.contains(" --hash=sha256:"));
                assert!(!requirement.contains("://") && !requirement.contains('\\'));
            }
        }
    }
}
