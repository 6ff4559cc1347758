//! The user's request, resolved from flags and files: the input of [`super::plan`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rgpu_case::{Case, Policies, TimingPlan};
use rgpu_protocol::plan::{Arg, ArtifactSpec, InputFile, Step};
use rgpu_protocol::{GpuChoice, HostFacts};

use super::draft::BundleFile;
use super::gpu_selection::GpuSelection;
use super::options::{DeepOptions, NcuOptions, NsysOptions, SanitizerOptions, Window};
use super::pattern::RegionPattern;
use super::rank_selection::RankSelection;
use super::region::RecordedRegion;
use crate::kernel::sources::ProgramBuild;
use crate::kernel::{KernelSpec, ProfileMode, SourceTree};
use rgpu_model::RungId;

/// The part of a request to plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanPart {
    /// All parts of the request.
    #[default]
    Whole,
    /// Only the build step, to compile on another machine than the GPU host.
    Build,
    /// All steps before the mode's own one, and in place of that one a cheap first pass that finds
    /// the regions or kernels to select from.
    FirstPass(FirstPass),
    /// A program without any tool, to see whether it fails by itself.
    Plain,
    /// A program once more under nsys, for what the first recording left out because it costs time.
    SecondPass(SecondPass),
}

/// What a second pass (step `second`) records. Its times are not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondPass {
    /// From where in the program CUDA is called.
    pub stacks: bool,
    /// The kernels inside CUDA graphs.
    pub graph_nodes: bool,
}

/// The data that a first pass (step `survey`) records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstPass {
    /// The program's NVTX ranges.
    Ranges,
    /// Every kernel with its time, and NVTX ranges.
    Kernels,
}

/// A request to profile one kernel or program.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which steps to plan: all, or only a first pass or the build.
    pub part: PlanPart,
    /// The mode to measure with.
    pub mode: ProfileMode,
    /// The kernel or program.
    pub target: ProfileTarget,
    /// The target as typed on the command line, quoted for a shell; empty if unknown.
    pub named: String,
    /// Options of Nsight Compute.
    pub ncu: NcuOptions,
    /// Options of Nsight Systems.
    pub nsys: NsysOptions,
    /// Options of Compute Sanitizer.
    pub sanitizer: SanitizerOptions,
    /// The part of a program's run to measure.
    pub window: Window,
    /// Patterns of `--regions`, matched against the regions that a first pass records.
    pub patterns: Vec<RegionPattern>,
    /// Options of mode `deep`.
    pub deep: DeepOptions,
    /// Regions from the first pass that the user selected; empty: all.
    pub regions: Vec<RecordedRegion>,
    /// Number of this plan's main step among those of the run, from 1; each has its own logs and
    /// report. 0: it is the only one.
    pub pass: u32,
    /// Sampling of the `time` step, and the number of warm-up launches.
    pub timing: TimingPlan,
    /// Requirements on the state of the host.
    pub policies: Policies,
    /// Whether an unfit host is an error.
    pub strict: bool,
    /// Architecture to compile for; overrides kernel.toml and the GPU's own.
    pub arch: Option<String>,
    /// Time limit of each step in seconds.
    pub timeout_s: u64,
    /// Time limit of the check of results in seconds, instead of `timeout_s`.
    pub verify_timeout_s: Option<u64>,
    /// How long to wait for the GPU in seconds.
    pub queue_s: u64,
    /// Bytes kept of each output stream.
    pub log_bytes: u64,
    /// The GPU to use.
    pub gpu: GpuChoice,
    /// How many GPUs to use.
    pub gpus: GpuSelection,
    /// The ranks of a program that the tool measures, each by itself. `None`: the tool runs around
    /// the whole program.
    pub ranks: Option<RankSelection>,
    /// On how many nodes of a cluster the program is started, once on each.
    pub nodes: u32,
    /// Whether to run although other processes use the GPU.
    pub share_gpu: bool,
    /// Additional environment variables of every step.
    pub env: BTreeMap<String, String>,
    /// Names of environment variables that hold secrets.
    pub secrets: Vec<String>,
    /// Ids of rungs that the laptop refused; they are left out.
    pub skip: BTreeSet<String>,
    /// Rungs that failed on this host before, for reasons of the host; they are skipped.
    pub failed: Vec<FailedRung>,
    /// Files that an earlier plan of this run built and the host still has. If there are any, the
    /// plan has no build, verify and time steps.
    pub reuse: Vec<InputFile>,
    /// Code that was built elsewhere. If there is any for the GPU's architecture, the plan has no
    /// build step.
    pub prebuilt: Vec<PrebuiltCode>,
    /// Metrics that this GPU does not have.
    pub drop_metrics: BTreeSet<String>,
    /// Options of the build step.
    pub build: BuildOptions,
}

/// A rung that failed in an earlier run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedRung {
    /// The id of the rung that failed.
    pub rung: RungId,
    /// Code of the reason.
    pub code: String,
    /// Date and versions of the failure, for the ladder.
    pub message: String,
}

/// The product of the build step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuildProduct {
    /// The file that a run of the kernel loads: a cubin, or a shared library for a host entry.
    #[default]
    Module,
    /// A cubin, also for a host entry.
    Cubin,
    /// PTX without a cubin.
    Ptx,
}

/// Options of the build step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// The files to compile to.
    pub output: BuildProduct,
    /// Whether nvcc's preprocessed device source comes back as well.
    pub keep_ir: bool,
    /// Additional compiler flags, after those of kernel.toml.
    pub flags: Vec<String>,
    /// Whether NVIDIA's wheels may be fetched to a host that has no compiler.
    pub fetch: bool,
    /// Whether the wheels may be fetched to this machine, which compiles if the host cannot.
    pub fetch_here: bool,
}

/// A kernel's code that was built elsewhere.
#[derive(Clone, Debug)]
pub struct PrebuiltCode {
    /// The architecture that it was compiled for.
    pub arch: String,
    /// Its files, `build/…`.
    pub files: Vec<BundleFile>,
}

impl Request {
    /// `name` for the first main step of a run, `name-2` … for the later ones.
    pub(crate) fn numbered(&self, name: &str) -> String {
        match self.pass {
            0 | 1 => name.to_owned(),
            pass => format!("{name}-{pass}"),
        }
    }

    /// A request with the defaults of every option.
    pub fn new(mode: ProfileMode, target: ProfileTarget) -> Self {
        let limits = rgpu_protocol::plan::Limits::default();
        Self {
            part: PlanPart::Whole,
            mode,
            target,
            named: String::new(),
            ncu: NcuOptions::default(),
            nsys: NsysOptions::default(),
            sanitizer: SanitizerOptions::default(),
            window: Window::default(),
            regions: Vec::new(),
            pass: 0,
            patterns: Vec::new(),
            deep: DeepOptions::default(),
            timing: TimingPlan::default(),
            policies: Policies::default(),
            strict: false,
            arch: None,
            timeout_s: 600,
            verify_timeout_s: None,
            queue_s: limits.queue_s,
            log_bytes: limits.log_bytes,
            gpu: GpuChoice::default(),
            gpus: GpuSelection::default(),
            ranks: None,
            nodes: 1,
            share_gpu: false,
            env: BTreeMap::new(),
            secrets: Vec::new(),
            skip: BTreeSet::new(),
            failed: Vec::new(),
            reuse: Vec::new(),
            prebuilt: Vec::new(),
            drop_metrics: BTreeSet::new(),
            build: BuildOptions::default(),
        }
    }
}

impl Request {
    /// The ranks that a tool runs on by itself, with their program. `None` if it runs around the
    /// target, or if there is no tool.
    pub(crate) fn tool_per_rank(&self) -> Option<(&RankSelection, &Program)> {
        match (&self.ranks, &self.target) {
            (Some(ranks), ProfileTarget::Program(program)) if self.part != PlanPart::Plain => {
                Some((ranks, program))
            }
            _ => None,
        }
    }

    /// The user's value of an environment variable of the program.
    pub(crate) fn program_env(&self, name: &str) -> Option<Arg> {
        let own = match &self.target {
            ProfileTarget::Program(program) => program.env.get(name).cloned(),
            ProfileTarget::Kernel { .. } => None,
        };
        own.or_else(|| self.env.get(name).map(|value| Arg::text(value.as_str())))
    }
}

/// The kernel or program to profile.
#[derive(Clone, Debug)]
pub enum ProfileTarget {
    /// A kernel with its sizes.
    Kernel {
        /// The parsed kernel.toml.
        spec: Box<KernelSpec>,
        /// The files of the kernel, from [`KernelSpec::sources`].
        sources: SourceTree,
        /// The problem sizes, from [`KernelSpec::cases`].
        cases: Vec<Case>,
        /// Seed of generated inputs.
        seed: u64,
    },
    /// A program that rgpu did not build.
    Program(Program),
}

/// A program and the files sent with it.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The name in titles and messages.
    pub name: String,
    /// Program and arguments; an argument may be one of [`Program::files`].
    pub argv: Vec<Arg>,
    /// Files to send along.
    pub files: Vec<BundleFile>,
    /// Its own environment variables; they override those of all steps.
    pub env: BTreeMap<String, Arg>,
    /// Working folder inside the job's folder; empty: the folder for the tools' results.
    pub cwd: String,
    /// Steps before it, which compile it or make its Python environment.
    pub prepare: Vec<Step>,
    /// Patterns of files in its working folder that come back (`--pull`).
    pub pull: Vec<String>,
    /// Files that it writes about itself, which become a part of the profile.
    pub reports: Vec<ArtifactSpec>,
    /// How it is built on the host, which adds to `prepare`. Its first word is then the file that
    /// is built.
    pub build: Option<ProgramBuild>,
}

/// Our own binaries for the host's architecture, on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostBinaries {
    /// The path of `rgpu-runner`.
    pub runner: Option<PathBuf>,
    /// The path of `librgpu_collector.so`.
    pub collector: Option<PathBuf>,
}

/// The name of a job: run id and number of its plan in the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobName {
    /// The id of the run.
    pub run: String,
    /// Number of the plan in the run, from 1.
    pub sequence: u32,
}

impl JobName {
    /// The name of the job: `<run>.<sequence>`.
    pub fn job(&self) -> String {
        format!("{}.{}", self.run, self.sequence)
    }
}

/// The path of a tool on the host.
pub(crate) fn path_of<'a>(facts: &'a HostFacts, tool: &str) -> Option<&'a str> {
    facts.tool(tool).map(|tool| tool.path.as_str())
}
