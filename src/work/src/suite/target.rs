//! A target of a suite, as bench.toml describes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::matrix::Matrix;
use rgpu_model::suite::Level;
use rgpu_plan::kernel::ProfileMode;

/// An entry of bench.toml, named `suite:case`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetSpec {
    /// The name of its own suite.
    pub suite: String,
    /// The name of the case.
    pub case: String,
    /// Further suites that it belongs to.
    pub suites: Vec<String>,
    /// The kernel, pair of kernels or program that it runs.
    pub work: TargetKind,
    /// The line of each key of bench.toml that says something about it, such as `matrix.sizes.n`.
    pub lines: BTreeMap<String, usize>,
    /// Its settings, with the defaults of the file where it has none.
    pub settings: CaseSettings,
    /// The axes of its matrix.
    pub matrix: Matrix,
    /// Whether a program wrote it, so that it is left out unless asked for.
    pub generated: bool,
}

impl TargetSpec {
    /// `suite:case`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.suite, self.case)
    }

    /// The kernels that it runs, by name or path.
    pub fn kernels(&self) -> Vec<&str> {
        self.keyed_kernels().into_iter().map(|(_, kernel)| kernel).collect()
    }

    /// The kernels that it runs, each with the key that names it.
    pub fn keyed_kernels(&self) -> Vec<(&'static str, &str)> {
        match &self.work {
            TargetKind::Kernel(kernel) => vec![("kernel", kernel)],
            TargetKind::Pair { baseline, optimised } => {
                vec![("baseline", baseline), ("optimised", optimised)]
            }
            TargetKind::Program(_) => Vec::new(),
        }
    }
}

/// What a target runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// One kernel, by name or path.
    Kernel(String),
    /// Two kernels with the same contract.
    Pair {
        /// The side to compare with.
        baseline: String,
        /// The side that should be faster.
        optimised: String,
    },
    /// A program with its arguments.
    Program(Vec<String>),
}

/// The path that a kernel of bench.toml is, which lies in `folder`; `None` if it is a name.
pub fn kernel_path(kernel: &str, folder: &Path) -> Option<PathBuf> {
    kernel.contains(['/', '.']).then(|| folder.join(kernel))
}

/// The path that a program of bench.toml is, which lies in `folder`; `None` if it is a name.
pub fn program_path(program: &str, folder: &Path) -> Option<PathBuf> {
    program.contains('/').then(|| folder.join(program))
}

impl Default for TargetKind {
    fn default() -> Self {
        Self::Kernel(String::new())
    }
}

/// Settings that the defaults and each target may have. An absent one is rgpu's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseSettings {
    /// How much is measured besides times.
    pub level: Option<Level>,
    /// The mode of `rgpu profile`; absent: as the level says.
    pub mode: Option<ProfileMode>,
    /// Name of the remote.
    pub remote: Option<String>,
    /// The GPU: an index, a UUID, or a part of a name.
    pub gpu: Option<String>,
    /// The architecture to compile for.
    pub arch: Option<String>,
    /// The sizes, as `--problem-sizes` takes them; empty: the kernel's default.
    pub sizes: Vec<String>,
    /// Environment variables of every step.
    pub env: BTreeMap<String, String>,
    /// Macros of the compiler.
    pub define: BTreeMap<String, String>,
    /// Seed of the inputs.
    pub seed: Option<u64>,
    /// Launches before the first timed one.
    pub warmup: Option<u32>,
    /// Number of timed launches.
    pub iters: Option<u32>,
    /// Time limit of each step in seconds.
    pub timeout_s: Option<u64>,
    /// Time limit of the check of results in seconds.
    pub verify_timeout_s: Option<u64>,
    /// The speedup below which a pair is too close to call.
    pub min_speedup: Option<f64>,
    /// The smallest effect that counts, as a fraction.
    pub threshold: Option<f64>,
    /// How sizes grow if a pair is too close to call.
    pub grow: Option<SizeGrowth>,
}

/// How the sizes of a pair grow that is too close to call.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeGrowth {
    /// The variables that grow.
    pub vars: Vec<String>,
    /// The factor of each step.
    pub factor: i64,
    /// The number of steps.
    pub times: u32,
}

impl CaseSettings {
    /// These settings, with `defaults` where they say nothing. Tables are joined key by key.
    pub fn or(mut self, defaults: &Self) -> Self {
        let join = |own: &mut BTreeMap<String, String>, others: &BTreeMap<String, String>| {
            for (key, value) in others {
                own.entry(key.clone()).or_insert_with(|| value.clone());
            }
        };
        join(&mut self.env, &defaults.env);
        join(&mut self.define, &defaults.define);
        let d = defaults.clone();
        Self {
            level: self.level.or(d.level),
            mode: self.mode.or(d.mode),
            remote: self.remote.or(d.remote),
            gpu: self.gpu.or(d.gpu),
            arch: self.arch.or(d.arch),
            sizes: if self.sizes.is_empty() { d.sizes } else { self.sizes },
            env: self.env,
            define: self.define,
            seed: self.seed.or(d.seed),
            warmup: self.warmup.or(d.warmup),
            iters: self.iters.or(d.iters),
            timeout_s: self.timeout_s.or(d.timeout_s),
            verify_timeout_s: self.verify_timeout_s.or(d.verify_timeout_s),
            min_speedup: self.min_speedup.or(d.min_speedup),
            threshold: self.threshold.or(d.threshold),
            grow: self.grow.or(d.grow),
        }
    }
}
