//! Compilers in Python wheels, pinned by hash: NVIDIA's nvcc, the CuTe DSL, Triton. They are never
//! shipped; with the user's consent they are fetched into an environment in the host's cache.

use rgpu_protocol::plan::{Arg, Step};

use super::draft::BundleFile;
use super::python_env::PythonEnv;

/// A pinned set of wheels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wheels {
    /// Name of the contents, for display.
    pub title: &'static str,
    /// Approximate download size in MB.
    megabytes: u32,
    /// Approximate size in MB of the unpacked files, if it was measured.
    unpacked_megabytes: Option<u32>,
    list: &'static str,
}

/// nvcc with all that it needs except a host compiler, and nvdisasm.
pub static NVCC: Wheels = Wheels {
    title: "nvcc 13.5",
    megabytes: 135,
    unpacked_megabytes: Some(370),
    list: include_str!("wheels/nvcc.txt"),
};

/// The wheels of the CuTe DSL.
pub static CUTE: Wheels = Wheels {
    title: "the CuTe DSL 4.4.0",
    megabytes: 120,
    unpacked_megabytes: None,
    list: include_str!("wheels/cute.txt"),
};

/// The wheels of Triton.
pub static TRITON: Wheels = Wheels {
    title: "Triton 3.6.0",
    megabytes: 190,
    unpacked_megabytes: None,
    list: include_str!("wheels/triton.txt"),
};

impl Wheels {
    /// The size of the download, and of the unpacked files if it is known: `about 120 MB`.
    pub fn size(&self) -> String {
        match self.unpacked_megabytes {
            Some(unpacked) => format!("about {} MB ({unpacked} MB unpacked)", self.megabytes),
            None => format!("about {} MB", self.megabytes),
        }
    }

    /// Version of the compiler, the last word of the title.
    pub fn version(&self) -> &'static str {
        self.title.rsplit(' ').next().unwrap_or(self.title)
    }

    /// The environment with these wheels, without the host's own packages.
    pub fn environment(&self) -> PythonEnv {
        PythonEnv {
            requirements: requirements(self.list),
            requires_python: Some(">=3.10".to_owned()),
            host_packages: false,
            is_optional: false,
        }
    }
}

/// The script that runs a program from NVIDIA's wheels.
const WHEEL_TOOL: &str = "bin/wheel_tool.py";
const WHEEL_TOOL_TEXT: &str = rgpu_harness::WHEEL_TOOL;

/// Time limit for fetching the wheels.
const FETCH_TIMEOUT_S: u64 = 30 * 60;

/// nvcc from [`NVCC`], for a host without a CUDA toolkit. It needs a host compiler.
#[derive(Debug)]
pub struct WheelNvcc {
    /// The step that fetches the wheels, or finds them in the host's cache.
    pub step: Step,
    /// The files that the step and the command need.
    pub files: Vec<BundleFile>,
    /// The command, without nvcc's own arguments.
    pub argv: Vec<Arg>,
}

impl WheelNvcc {
    /// The parts of a plan that compile with nvcc from the wheels.
    pub fn new() -> Self {
        let environment = NVCC.environment();
        let mut files = environment.files();
        files.push(BundleFile::text(WHEEL_TOOL, WHEEL_TOOL_TEXT));
        let step = environment.step(FETCH_TIMEOUT_S);
        let argv = vec![PythonEnv::python(), Arg::in_job(WHEEL_TOOL), "nvcc".into()];
        Self { step, files, argv }
    }
}

impl Default for WheelNvcc {
    fn default() -> Self {
        Self::new()
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

    #[test]
    fn the_list_and_the_app_for_modal_have_the_same_version_of_the_dsl() {
        let package = format!("nvidia-cutlass-dsl=={}", CUTE.version());
        let has_package = |text: &str| {
            text.match_indices(&package).any(|(at, _)| {
                text[at + package.len()..].starts_with(|c: char| c.is_whitespace() || c == '"')
            })
        };
        assert!(has_package(CUTE.list), "{package}");
        assert!(has_package(include_str!("../../../../../remote/modal_app.py")), "{package}");
    }
}
