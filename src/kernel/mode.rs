//! The modes of `rgpu profile`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A mode of `rgpu profile`, which decides the tool and the data collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Hardware counters, by Nsight Compute.
    Ncu,
    /// A time line, by Nsight Systems.
    Nsys,
    /// Faults, by Compute Sanitizer.
    Sanitizer,
    /// Times only, without a profiling tool.
    Bench,
    /// NVTX ranges only.
    Nvtx,
    /// Only the check against the reference.
    Verify,
    /// First a time line, then hardware counters of the kernels with the most time.
    Deep,
    /// Operators and kernels of a Python kernel, by torch's own profiler.
    Torch,
}

impl Mode {
    /// Every mode that `--mode` accepts.
    pub const ALL: [Self; 8] = [
        Self::Ncu,
        Self::Nsys,
        Self::Sanitizer,
        Self::Bench,
        Self::Nvtx,
        Self::Verify,
        Self::Deep,
        Self::Torch,
    ];

    /// The name on the command line and in kernel.toml.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ncu => "ncu",
            Self::Nsys => "nsys",
            Self::Sanitizer => "sanitizer",
            Self::Bench => "bench",
            Self::Nvtx => "nvtx",
            Self::Verify => "verify",
            Self::Deep => "deep",
            Self::Torch => "torch",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is not a mode.
#[derive(Debug, thiserror::Error)]
#[error(
    "unknown mode `{0}`; there are `ncu`, `nsys`, `sanitizer`, `bench`, `nvtx`, `verify`, `deep`, `torch`"
)]
pub struct UnknownMode(pub String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| UnknownMode(text.to_owned()))
    }
}
