//! The options of the tools that profile. They are flags of `rgpu profile` and `rgpu exec`: the
//! comment of a field is its text in `--help`. The struct of a flag says which modes take it.

use std::convert::Infallible;
use std::str::FromStr;

use clap::{Arg, Args, Command};
use serde::Serialize;
use serde_json::Value;

use crate::kernel::FlagGroup;
use rgpu_model::byte_size::bytes;
use rgpu_model::duration::duration;

/// The options of every tool, and the part of a run to measure.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolOptions {
    /// Options of Nsight Compute.
    #[command(flatten)]
    pub ncu: NcuOptions,
    /// Options of mode `deep`.
    #[command(flatten)]
    pub deep: DeepOptions,
    /// Options of Nsight Systems.
    #[command(flatten)]
    pub nsys: NsysOptions,
    /// Options of Compute Sanitizer.
    #[command(flatten)]
    pub sanitizer: SanitizerOptions,
    /// The part of a program's run to measure.
    #[command(flatten)]
    pub window: Window,
}

impl ToolOptions {
    /// The flags that are set, each with the group by which a mode takes it; `None`: every mode
    /// does.
    pub fn given_flags(&self) -> Vec<(String, Option<FlagGroup>)> {
        let of_structs = [
            (given_flags(&self.ncu), Some(FlagGroup::Ncu)),
            (given_flags(&self.nsys), Some(FlagGroup::Nsys)),
            (given_flags(&self.sanitizer), Some(FlagGroup::Sanitizer)),
            (given_flags(&self.deep), Some(FlagGroup::Deep)),
            (given_flags(&self.window), None),
        ];
        let mut given = Vec::new();
        for (flags, group) in of_structs {
            for flag in flags {
                let group = match flag.as_str() {
                    "--regions" => Some(FlagGroup::Regions),
                    "--capture-range" => Some(FlagGroup::CaptureRange),
                    "--after" => Some(FlagGroup::After),
                    "--for" => Some(FlagGroup::For),
                    _ => group,
                };
                given.push((flag, group));
            }
        }
        given
    }
}

/// The flags of tools that a preset of a project may set. A project is often somebody else's: none
/// of these sends or writes a file, starts a program, or passes arguments to a tool.
pub const TOOL_FLAGS_OF_PROJECTS: &[&str] = &[
    "after",
    "budget",
    "capture-range",
    "clock-control",
    "for",
    "kernel-exclude",
    "kernel-name",
    "kernel-name-base",
    "launch-count",
    "launch-skip",
    "light",
    "metrics",
    "nvtx-include",
    "regions",
    "replay-mode",
    "sample",
    "section",
    "set",
    "target-processes",
    "tool",
    "top",
    "trace",
];

/// The flags of `options` that have not their default value, such as `--set`. Fields have the same
/// name for clap and serde.
pub fn given_flags<T: Args + Default + Serialize>(options: &T) -> Vec<String> {
    let (given, default) = (fields(options), fields(&T::default()));
    let command = T::augment_args(Command::new("options"));
    let is_given =
        |flag: &&Arg| given.get(flag.get_id().as_str()) != default.get(flag.get_id().as_str());
    let names = command.get_arguments().filter(is_given).filter_map(Arg::get_long);
    names.map(|name| format!("--{name}")).collect()
}

fn fields(options: &impl Serialize) -> Value {
    serde_json::to_value(options).unwrap_or_default()
}

/// More arguments for a tool.
pub(crate) type Words = Vec<String>;

/// Splits a tool's arguments as a shell would. No shell is involved.
fn words(text: &str) -> Result<Words, String> {
    shlex::split(text).ok_or_else(|| "a quote is not closed".to_owned())
}

/// Flags of Nsight Compute, under ncu's own names.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[command(next_help_heading = "Nsight Compute")]
pub struct NcuOptions {
    /// Section set: one of ncu's (basic, detailed, full, roofline …), or launchstats, minimal, sol,
    /// extended
    // Default: none if sections or metrics are named, else `full` for a kernel and `basic` for a
    // program.
    #[arg(long, value_name = "SET")]
    pub set: Option<String>,

    /// A section by its identifier
    #[arg(long = "section", value_name = "ID")]
    pub sections: Vec<String>,

    /// Metrics, separated by commas
    #[arg(long, value_name = "METRICS", value_delimiter = ',')]
    pub metrics: Vec<String>,

    /// Only kernels with this name
    #[arg(long, short = 'k', value_name = "NAME|regex:RE")]
    pub kernel_name: Vec<String>,

    /// Whether rgpu has chosen `kernel_name`, by the names in the program's source. If none of its
    /// kernels runs, mode `deep` takes all.
    #[arg(skip)]
    pub is_kernel_name_assumed: bool,

    /// The form of the name to match
    #[arg(long, value_name = "function|demangled|mangled", value_parser = ["function", "demangled", "mangled"])]
    pub kernel_name_base: Option<String>,

    /// Leave out kernels with this name
    #[arg(long, value_name = "NAME|regex:RE")]
    pub kernel_exclude: Vec<String>,

    /// Launches to skip first
    #[arg(long, value_name = "N")]
    pub launch_skip: Option<u64>,

    /// Number of launches to profile
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub launch_count: Option<u64>,

    /// Numbers of the launches to profile, by kernel and geometry, from 1; empty: all. Mode `deep`
    /// chooses them.
    #[arg(skip)]
    pub launch_numbers: Vec<u64>,

    /// How passes are repeated
    #[arg(long, value_name = "MODE", value_parser = ["kernel", "application", "range", "app-range"])]
    pub replay_mode: Option<String>,

    /// Only these NVTX regions; it is an error if the program has none of them: A, A::A1, domain@A,
    /// decode*, regex:RE
    // `Request::patterns` has them as patterns.
    #[arg(long, value_name = "REGION,…")]
    pub regions: Vec<String>,

    /// Only launches inside this NVTX range; the name is passed to ncu unchecked: A, A::A1,
    /// domain@A
    #[arg(long, value_name = "RANGE")]
    pub nvtx_include: Vec<String>,

    /// Which processes to profile
    // Default: `all`.
    #[arg(long, value_name = "WHICH", value_parser = ["all", "application-only"])]
    pub target_processes: Option<String>,

    /// How ncu controls the GPU clocks
    // Default: `none`. rgpu changes no clock unless told to.
    #[arg(long, value_name = "POLICY", value_parser = ["base", "boost", "force-boost", "none", "reset"])]
    pub clock_control: Option<String>,

    /// Use `sudo -n` if reading counters needs it
    #[arg(long)]
    pub sudo: bool,

    /// More arguments for ncu, as one string
    #[arg(long = "ncu-args", id = "ncu_args", value_name = "ARGS", allow_hyphen_values = true, value_parser = words)]
    pub ncu_args: Option<Words>,
}

/// Options of mode `deep`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[command(next_help_heading = "Mode deep")]
pub struct DeepOptions {
    /// Number of kernels to profile with ncu, by GPU time [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub top: Option<u32>,

    /// Budget for profiling them with ncu: 10m, 500MB, or both [default: 1.5 times the
    /// program's time under ncu, at least 20s; 500MB]
    #[arg(long = "budget", id = "budget", value_name = "TIME|SIZE", value_delimiter = ',', value_parser = limit)]
    pub budget: Vec<Limit>,

    /// Start with the small section set `minimal`
    #[arg(long)]
    pub light: bool,
}

impl DeepOptions {
    /// Number of kernels to profile in detail, those with the most GPU time first.
    pub fn top(&self) -> usize {
        self.top.map_or(3, |top| top as usize)
    }

    /// Limits for the detailed profile.
    pub fn budget(&self) -> DeepBudget {
        let mut budget = DeepBudget { seconds: None, bytes: 500_000_000 };
        for limit in &self.budget {
            match *limit {
                Limit::Seconds(seconds) => budget.seconds = Some(seconds),
                Limit::Bytes(bytes) => budget.bytes = bytes,
            }
        }
        budget
    }
}

/// A limit for a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeepBudget {
    /// The time limit in seconds. `None`: as the duration of the program allows.
    pub seconds: Option<u64>,
    /// The size limit of the reports in bytes.
    pub bytes: u64,
}

/// One part of `--budget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Time on the host, in seconds.
    Seconds(u64),
    /// Size of the reports.
    Bytes(u64),
}

fn limit(text: &str) -> Result<Limit, String> {
    duration(text)
        .map(|time| Limit::Seconds(time.as_secs().max(1)))
        .or_else(|_| bytes(text).map(Limit::Bytes))
        .map_err(|_| "neither a time nor a size: write 10m or 500MB".to_owned())
}

/// Flags of Nsight Systems, under nsys's own names.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[command(next_help_heading = "Nsight Systems")]
pub struct NsysOptions {
    /// What to trace [default: cuda,nvtx]
    #[arg(long, value_name = "LIST")]
    pub trace: Option<String>,

    /// Where nsys samples the CPU; if given, no second run records call stacks [default: none]
    #[arg(long, value_name = "HOW", value_parser = ["none", "process-tree", "system-wide", "cpu"])]
    pub sample: Option<String>,

    /// Record only inside this NVTX range
    #[arg(long, value_name = "RANGE")]
    pub capture_range: Option<CaptureRange>,

    /// More arguments for nsys profile, as one string
    #[arg(long = "nsys-args", id = "nsys_args", value_name = "ARGS", allow_hyphen_values = true, value_parser = words)]
    pub nsys_args: Option<Words>,
}

/// The condition under which Nsight Systems captures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureRange {
    /// Between `cudaProfilerStart` and `cudaProfilerStop`.
    CudaProfilerApi,
    /// Inside the NVTX range with this path (`A`, `dom@A`); names need not be registered strings.
    Nvtx(String),
}

impl FromStr for CaptureRange {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "cudaProfilerApi" => Self::CudaProfilerApi,
            range => Self::Nvtx(range.to_owned()),
        })
    }
}

/// The part of a program's run to measure. A program with an end of its window is stopped there as
/// by Ctrl-C, which is no failure.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[command(next_help_heading = "Part of the run")]
pub struct Window {
    /// Measure from this time after the program's start, e.g. 30s
    #[arg(long = "after", value_name = "TIME", value_parser = whole_seconds)]
    pub after_s: Option<u64>,

    /// Measure for this time, then stop the program and its children as Ctrl-C does; `range`: to
    /// the end of the range of --capture-range
    #[arg(long = "for", value_name = "TIME|range", value_parser = window_end)]
    pub end: Option<WindowEnd>,

    /// Stop the program as Ctrl-C does once it has printed nothing for this time, and name its
    /// ranks, their last collective and their stacks; what was measured is kept
    #[arg(long = "hang", alias = "stall", value_name = "TIME", value_parser = hang_seconds)]
    pub hang_s: Option<u64>,
}

/// When a [`Window`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowEnd {
    /// Seconds after its beginning.
    Seconds(u64),
    /// The end of the first range of [`NsysOptions::capture_range`].
    Range,
}

impl Window {
    /// Seconds after the start of the program at which it is stopped. `None`: no time is set.
    pub fn stop_s(&self) -> Option<u64> {
        match self.end {
            Some(WindowEnd::Seconds(seconds)) => {
                Some(self.after_s.unwrap_or(0).saturating_add(seconds))
            }
            Some(WindowEnd::Range) | None => None,
        }
    }

    /// Whether a program that ran for `seconds` was stopped at the end of the window.
    pub fn stopped(&self, seconds: f64) -> bool {
        match self.end {
            Some(WindowEnd::Range) => true,
            _ => self.stop_s().is_some_and(|stop_s| seconds >= stop_s as f64),
        }
    }
}

fn hang_seconds(text: &str) -> Result<u64, String> {
    match whole_seconds(text)? {
        0 => Err("write at least 1s".to_owned()),
        seconds => Ok(seconds),
    }
}

fn window_end(text: &str) -> Result<WindowEnd, String> {
    match text {
        "range" => Ok(WindowEnd::Range),
        text => whole_seconds(text).map(WindowEnd::Seconds),
    }
}

/// Parses a time. The tools take whole seconds.
fn whole_seconds(text: &str) -> Result<u64, String> {
    let time = duration(text)?;
    match time.subsec_nanos() {
        0 => Ok(time.as_secs()),
        _ => Err("write whole seconds, e.g. 10s or 2m".to_owned()),
    }
}

/// Options of Compute Sanitizer.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[command(next_help_heading = "compute-sanitizer")]
pub struct SanitizerOptions {
    /// Which tools [default: all for a kernel, memcheck for a program]
    #[arg(long = "tool", value_name = "TOOL", value_delimiter = ',', value_parser = ["memcheck", "racecheck", "initcheck", "synccheck", ALL])]
    pub tools: Vec<String>,

    /// More arguments for compute-sanitizer, as one string
    #[arg(long = "sanitizer-args", id = "sanitizer_args", value_name = "ARGS", allow_hyphen_values = true, value_parser = words)]
    pub sanitizer_args: Option<Words>,
}

/// The value of `--tool` for every tool.
const ALL: &str = "all";

impl SanitizerOptions {
    /// The tools to run, each once and in the order given. `for_kernel`: the default is all of
    /// them.
    pub fn tools(&self, for_kernel: bool) -> Vec<SanitizerTool> {
        let default = if for_kernel { ALL } else { SanitizerTool::Memcheck.name() };
        let default = [default.to_owned()];
        let named = if self.tools.is_empty() { &default[..] } else { &self.tools };
        let mut tools = Vec::new();
        for word in named {
            for tool in SanitizerTool::ALL {
                if (word == tool.name() || word == ALL) && !tools.contains(&tool) {
                    tools.push(tool);
                }
            }
        }
        tools
    }
}

/// A tool of Compute Sanitizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SanitizerTool {
    /// Out-of-bounds and misaligned accesses, leaks.
    Memcheck,
    /// Races on shared memory.
    Racecheck,
    /// Reads of uninitialised memory.
    Initcheck,
    /// Invalid use of barriers.
    Synccheck,
}

impl SanitizerTool {
    /// Every tool of compute-sanitizer that rgpu runs.
    pub const ALL: [Self; 4] = [Self::Memcheck, Self::Racecheck, Self::Initcheck, Self::Synccheck];

    /// Name on the tool's command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcheck => "memcheck",
            Self::Racecheck => "racecheck",
            Self::Initcheck => "initcheck",
            Self::Synccheck => "synccheck",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn parse(words: &[&str]) -> Result<ToolOptions, clap::Error> {
        let command = ToolOptions::augment_args(Command::new("rgpu"));
        let matches = command.try_get_matches_from([&["rgpu"], words].concat())?;
        ToolOptions::from_arg_matches(&matches)
    }

    #[test]
    fn each_given_flag_is_found_with_its_group() {
        let words = [
            ("--set=full", Some(FlagGroup::Ncu)),
            ("--section=A", Some(FlagGroup::Ncu)),
            ("--regions=A", Some(FlagGroup::Regions)),
            ("--sudo", Some(FlagGroup::Ncu)),
            ("--ncu-args=x", Some(FlagGroup::Ncu)),
            ("--capture-range=A", Some(FlagGroup::CaptureRange)),
            ("--nsys-args=x", Some(FlagGroup::Nsys)),
            ("--tool=all", Some(FlagGroup::Sanitizer)),
            ("--sanitizer-args=x", Some(FlagGroup::Sanitizer)),
            ("--top=2", Some(FlagGroup::Deep)),
            ("--budget=10m,1GB", Some(FlagGroup::Deep)),
            ("--after=5s", Some(FlagGroup::After)),
            ("--for=range", Some(FlagGroup::For)),
            ("--hang=5s", None),
        ];
        let options = parse(&words.map(|(word, _)| word)).unwrap();
        let expected = words
            .map(|(word, group)| (word.split('=').next().unwrap_or_default().to_owned(), group));
        assert_eq!(options.given_flags(), expected);
        assert!(ToolOptions::default().given_flags().is_empty());
    }

    /// A flag whose field serde names otherwise would never count as given.
    #[test]
    fn clap_and_serde_name_every_flag_alike() {
        let saved = fields(&ToolOptions::default());
        let names: Vec<&str> = saved
            .as_object()
            .unwrap()
            .values()
            .flat_map(|group| group.as_object().unwrap().keys().map(String::as_str))
            .collect();
        let command = ToolOptions::augment_args(Command::new("rgpu"));
        for flag in command.get_arguments() {
            assert!(names.contains(&flag.get_id().as_str()), "{}", flag.get_id());
        }
    }

    #[test]
    fn extra_arguments_are_split_here_and_an_open_quote_is_an_error() {
        let options = parse(&["--ncu-args=--cache-control none 'a b'"]).unwrap();
        assert_eq!(options.ncu.ncu_args.unwrap(), ["--cache-control", "none", "a b"]);
        let error = parse(&["--nsys-args='a"]).unwrap_err().to_string();
        assert!(error.contains("a quote is not closed"), "{error}");
    }

    #[test]
    fn tools_run_once_and_their_default_depends_on_the_target() {
        let tools = |words: &[&str]| parse(words).unwrap().sanitizer.tools(true);
        assert_eq!(tools(&[]), SanitizerTool::ALL);
        assert_eq!(tools(&["--tool=racecheck,all"])[0], SanitizerTool::Racecheck);
        assert_eq!(tools(&["--tool=racecheck,all"]).len(), 4);
        assert_eq!(SanitizerOptions::default().tools(false), [SanitizerTool::Memcheck]);
    }
}
