//! What the user asks for, resolved from flags and files: the input of [`super::plan`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rgpu_case::{Case, Policies, TimingPlan};
use rgpu_protocol::plan::{Arg, InputFile, Step};
use rgpu_protocol::{GpuChoice, HostFacts};

use super::draft::BundleFile;
use super::pattern::RegionPattern;
use super::region::SeenRegion;
use crate::kernel::{KernelSpec, Mode, SourceTree};

/// How much of a request to plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanPart {
    /// All of it.
    #[default]
    Whole,
    /// The build step alone: to compile on a machine other than the GPU host.
    Build,
    /// Everything before the mode's own step, and in its place a cheap look at what is there to be
    /// selected.
    Survey(Survey),
}

/// What a first pass should see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survey {
    /// NVTX ranges.
    Ranges,
    /// Every kernel with its time, and NVTX ranges.
    Kernels,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// How much of it.
    pub part: PlanPart,
    /// How to look.
    pub mode: Mode,
    /// At what.
    pub target: Target,
    /// What the user calls it on a command line, quoted for a shell; empty where that is not known.
    pub named: String,
    /// Options of Nsight Compute.
    pub ncu: NcuOptions,
    /// Options of Nsight Systems.
    pub nsys: NsysOptions,
    /// Options of Compute Sanitizer.
    pub sanitizer: SanitizerOptions,
    /// Regions to look at: `A`, `A::A1`, `dom@A`; empty: all.
    pub nvtx_include: Vec<String>,
    /// Patterns of `--regions`, to be held against what a first pass sees.
    pub patterns: Vec<RegionPattern>,
    /// Options of mode `deep`.
    pub deep: DeepOptions,
    /// Regions that a first pass saw and the user meant; empty: all.
    pub regions: Vec<SeenRegion>,
    /// The place of this plan's main step among those of the run, from 1, each with logs and a
    /// report of its own; 0: it is the only one.
    pub look: u32,
    /// How `time` samples, and how many launches warm up.
    pub timing: TimingPlan,
    /// What the host should be like.
    pub policies: Policies,
    /// An unfit host is an error before any timing.
    pub strict: bool,
    /// Architecture to compile for, over kernel.toml's and the GPU's.
    pub arch: Option<String>,
    /// Seconds each step may take.
    pub timeout_s: u64,
    /// Seconds to wait for the GPU.
    pub queue_s: u64,
    /// Bytes kept of each output stream.
    pub log_bytes: u64,
    /// Which GPU.
    pub gpu: GpuChoice,
    /// Run although processes of others are on it.
    pub share_gpu: bool,
    /// Whether `sudo -n` may be used where counters need root.
    pub sudo: bool,
    /// Further environment of every step.
    pub env: BTreeMap<String, String>,
    /// Names of secret variables.
    pub secrets: Vec<String>,
    /// Ids of rungs that the laptop refused: left out.
    pub skip: BTreeSet<String>,
    /// Rungs that failed on this host before, for reasons of the host's own: passed over.
    pub failed: Vec<FailedRung>,
    /// Files that an earlier plan of this run built, already known to the host: build, verify and
    /// time are left out.
    pub reuse: Vec<InputFile>,
    /// Files that were built elsewhere (`build/…`): the build step is left out.
    pub prebuilt: Vec<BundleFile>,
    /// Metrics that this GPU lacks.
    pub drop_metrics: BTreeSet<String>,
    /// What compiling makes, and how.
    pub build: BuildOptions,
}

/// A rung that failed in an earlier run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedRung {
    /// Its id.
    pub rung: String,
    /// The reason.
    pub code: String,
    /// When and with what, for the ladder.
    pub words: String,
}

/// What the build step makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// What a run of the kernel loads: a cubin, or for a host entry a shared library.
    #[default]
    Module,
    /// A cubin, also of a host entry.
    Cubin,
    /// PTX and no cubin.
    Ptx,
}

/// Options of the build step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// What it makes.
    pub output: Output,
    /// What nvcc makes of the source before it becomes PTX comes back as well.
    pub keep_ir: bool,
    /// Further flags, behind those of kernel.toml.
    pub flags: Vec<String>,
    /// NVIDIA's wheels may be fetched to a host that has no compiler.
    pub fetch: bool,
    /// And to this machine, where the host's code is compiled when the host cannot.
    pub fetch_here: bool,
}

impl Request {
    /// `name` for the first look, `name-2` … for those after it.
    pub(crate) fn numbered(&self, name: &str) -> String {
        match self.look {
            0 | 1 => name.to_owned(),
            look => format!("{name}-{look}"),
        }
    }

    /// A request with the defaults of every option.
    pub fn new(mode: Mode, target: Target) -> Self {
        let limits = rgpu_protocol::plan::Limits::default();
        Self {
            part: PlanPart::Whole,
            mode,
            target,
            named: String::new(),
            ncu: NcuOptions::default(),
            nsys: NsysOptions::default(),
            sanitizer: SanitizerOptions::default(),
            nvtx_include: Vec::new(),
            regions: Vec::new(),
            look: 0,
            patterns: Vec::new(),
            deep: DeepOptions::default(),
            timing: TimingPlan::default(),
            policies: Policies::default(),
            strict: false,
            arch: None,
            timeout_s: 600,
            queue_s: limits.queue_s,
            log_bytes: limits.log_bytes,
            gpu: GpuChoice::default(),
            share_gpu: false,
            sudo: false,
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

/// What is looked at.
#[derive(Clone, Debug)]
pub enum Target {
    /// A kernel with its sizes.
    Kernel {
        /// Its spec.
        spec: Box<KernelSpec>,
        /// From [`KernelSpec::sources`].
        sources: SourceTree,
        /// From [`KernelSpec::cases`].
        data_sets: Vec<Case>,
        /// Seed of generated inputs.
        seed: u64,
    },
    /// A program as it is.
    Program(Program),
}

/// A program and what travels with it.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// What the user sees it called.
    pub name: String,
    /// Program and arguments; a word may be a file of [`Program::files`].
    pub argv: Vec<Arg>,
    /// Files to bring along.
    pub files: Vec<BundleFile>,
    /// Its own environment, over that of all steps.
    pub env: BTreeMap<String, Arg>,
    /// Its working folder in the job's; empty: where the tools leave their files.
    pub cwd: String,
    /// Steps before it: what compiles it, or what makes its Python environment.
    pub prepare: Vec<Step>,
}

/// Options of Nsight Compute. Unset fields take rgpu's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NcuOptions {
    /// `--set`: ncu's own or ours ([`super::sections::SETS`]); default `full` for a kernel and
    /// `basic` for a program, unless sections or metrics are named.
    pub set: Option<String>,
    /// `--section`, repeatable.
    pub sections: Vec<String>,
    /// `--metrics`, as given, each perhaps a list with commas.
    pub metrics: Vec<String>,
    /// `-k`/`--kernel-name`: `NAME` or `regex:RE`.
    pub kernel_name: Vec<String>,
    /// `--kernel-name-base`: `function`, `demangled`, `mangled`.
    pub kernel_name_base: Option<String>,
    /// `--kernel-exclude`: names, or `regex:RE`.
    pub kernel_exclude: Vec<String>,
    /// `--launch-skip`.
    pub launch_skip: Option<u64>,
    /// `--launch-count`.
    pub launch_count: Option<u64>,
    /// `--replay-mode`: `kernel`, `application`, `range`, `app-range`.
    pub replay_mode: Option<String>,
    /// `--target-processes`; default `all`.
    pub target_processes: Option<String>,
    /// `--clock-control`; default `none`: rgpu changes no clock unless asked.
    pub clock_control: Option<String>,
    /// `--ncu-args`, split into words.
    pub extra: Vec<String>,
}

/// Options of mode `deep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeepOptions {
    /// How many kernels to look at closely, by their GPU time.
    pub top: usize,
    /// What the close look may cost.
    pub budget: Budget,
    /// Whether to begin with the set `minimal`.
    pub light: bool,
}

/// A limit for a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Seconds.
    pub seconds: u64,
    /// Bytes of reports.
    pub bytes: u64,
}

impl Default for DeepOptions {
    fn default() -> Self {
        let budget = Budget { seconds: 600, bytes: 500_000_000 };
        Self { top: 3, budget, light: false }
    }
}

/// Options of Nsight Systems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NsysOptions {
    /// `--trace`; default `cuda,nvtx`.
    pub trace: Option<String>,
    /// `--sample`: `none`, `process-tree`, `system-wide`; default `none`.
    pub sample: Option<String>,
    /// `--capture-range`.
    pub capture_range: Option<CaptureRange>,
    /// `--nsys-args`, split into words.
    pub extra: Vec<String>,
}

/// When Nsight Systems captures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureRange {
    /// Between `cudaProfilerStart` and `cudaProfilerStop`.
    CudaProfilerApi,
    /// Inside the NVTX range of this path (`A`, `dom@A`); unregistered names count too.
    Nvtx(String),
}

/// Options of Compute Sanitizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SanitizerOptions {
    /// The tools, in this order; empty: memcheck.
    pub tools: Vec<SanitizerTool>,
    /// `--sanitizer-args`, split into words.
    pub extra: Vec<String>,
}

/// A tool of Compute Sanitizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SanitizerTool {
    /// Out-of-bounds and misaligned accesses, leaks.
    Memcheck,
    /// Races on shared memory.
    Racecheck,
    /// Reads of memory that nobody wrote.
    Initcheck,
    /// Barriers used wrongly.
    Synccheck,
}

impl SanitizerTool {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Memcheck, Self::Racecheck, Self::Initcheck, Self::Synccheck];

    /// As on the tool's command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Racecheck => "racecheck",
            Self::Initcheck => "initcheck",
            Self::Synccheck => "synccheck",
        }
    }

    /// The tools of a word of `--tool`: one of the names, or `all`.
    pub fn named(word: &str) -> Option<Vec<Self>> {
        match word {
            "all" => Some(Self::ALL.to_vec()),
            word => Self::ALL.into_iter().find(|tool| tool.name() == word).map(|tool| vec![tool]),
        }
    }
}

/// Our own binaries for the host's architecture, on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolbox {
    /// `rgpu-runner`.
    pub runner: Option<PathBuf>,
    /// `librgpu_collector.so`.
    pub collector: Option<PathBuf>,
}

/// The name of a job: run id and the place of its plan in the run, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobName {
    /// Run id.
    pub run: String,
    /// 1, 2 …
    pub sequence: u32,
}

impl JobName {
    /// `<run>.<sequence>`.
    pub fn job(&self) -> String {
        format!("{}.{}", self.run, self.sequence)
    }
}

/// The path of a tool on the host.
pub(crate) fn path_of<'a>(facts: &'a HostFacts, tool: &str) -> Option<&'a str> {
    facts.tool(tool).map(|tool| tool.path.as_str())
}
