//! The arguments of `rgpu disasm`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use rgpu_model::duration::duration;

/// Read cubins, fatbins, objects, libraries, archives, wheels and PTX: registers, spills, SASS
#[derive(Args, Clone, Debug)]
#[command(after_long_help = examples!(
    "rgpu disasm artifacts/*.cubin",
    "rgpu disasm latest --hot",
    "rgpu disasm kernel.cubin --format html --out kernel.html",
    "rgpu disasm --diff old.cubin new.cubin --fail-on resources",
    "rgpu disasm kernel.cubin --remote b200",
))]
pub(in crate::cli) struct DisasmArgs {
    /// Files, folders (all GPU code in them), or runs (id, prefix, or latest: the newest
    /// with GPU code; with --hot the newest with values per instruction)
    #[arg(value_name = "FILE|DIR|RUN", required = true)]
    pub what: Vec<String>,

    /// Folder for listings, extracted files and summary.json [default: artifacts/sass]; with --view
    /// or --format, the file to write
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,

    /// Only code for this architecture; repeatable. sm_100 includes sm_100a and sm_100f; sm_100a
    /// includes only itself
    #[arg(long, value_name = "ARCH", value_parser = arch)]
    pub arch: Vec<String>,

    /// Overwrite a file that is not an earlier output of the same kind; inputs are never
    /// overwritten
    #[arg(long, conflicts_with_all = ["list", "diff"])]
    pub force: bool,

    /// Only kernels with this name, or matching regex:RE; mangled or not; repeatable
    #[arg(long, short = 'k', value_name = "NAME|regex:RE")]
    pub kernel_name: Vec<String>,

    /// All kernels of a run or an .ncu-rep, not only those that were launched; -k and --extract
    /// look at all
    #[arg(long)]
    pub all_kernels: bool,

    /// Write the cubins and PTX too
    #[arg(long)]
    pub extract: bool,

    /// Write one listing for each kernel, not one for each file and architecture
    #[arg(long, conflicts_with_all = ["list", "view", "format", "diff", "hot"])]
    pub per_kernel: bool,

    /// Only list the content; no code is decompressed and nothing is written. Members of a wheel
    /// and an .ncu-repz are unpacked in memory to list them
    #[arg(long, conflicts_with_all = ["extract", "view", "out", "format"])]
    pub list: bool,

    /// Print this on stdout instead of writing files
    #[arg(long, value_enum, value_name = "VIEW")]
    pub view: Option<View>,

    /// `html`: one page with source, PTX and SASS side by side. `dot` or `svg`: the format of
    /// --view cfg [default: from the extension of --out, else dot]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,

    /// Show what changed from the first input to the second: resources, spills, instructions;
    /// `latest~1 latest` are the last two runs of one kernel
    #[arg(long, conflicts_with_all = ["list", "view", "extract", "out", "format"])]
    pub diff: bool,

    /// Print the instructions of a run, or of an .ncu-rep, with the samples and stall reasons of
    /// each
    #[arg(long, conflicts_with_all = ["list", "view", "extract", "diff", "tool", "arch", "control_codes", "line_info", "block"])]
    pub hot: bool,

    /// With --diff: exit with 1 on this, or with 7 if nothing could be compared
    #[arg(long, value_enum, value_name = "CHANGE", value_delimiter = ',', requires = "diff")]
    pub fail_on: Vec<FailOn>,

    /// With --diff: what else to ignore, besides addresses, labels and padding
    #[arg(long, value_enum, value_name = "WHAT", requires = "diff")]
    pub normalize: Option<IgnoredDifference>,

    /// Show the control word of each instruction: barriers, yield bit, stall
    #[arg(long)]
    pub control_codes: bool,

    /// Show the source line of each instruction (needs -lineinfo)
    #[arg(long)]
    pub line_info: bool,

    /// The disassembler of the listings: nvdisasm if it is found, or rgpu itself, without operands
    #[arg(long, value_enum, default_value_t = Tool::Auto, value_name = "TOOL")]
    pub tool: Tool,

    /// Limit of CPU time for each call of nvdisasm on this machine [default: 30s plus 10s per MiB
    /// of the cubin]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["list", "hot"])]
    pub timeout: Option<Duration>,

    /// Run nvdisasm on this host, in one job for all files (not with --list or --hot, which do not
    /// need it): a remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port
    /// [default: the default remote, if this machine has no nvdisasm]
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Accept the key of an unknown host
    #[arg(long)]
    pub accept_new: bool,

    /// Threads per block to compute the occupancy for, if the kernel does not fix the number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub block: Option<u32>,
}

/// The text that `--view` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum View {
    /// The listing of the machine code
    Sass,
    /// The PTX of the file, or the PTX that -lineinfo left in a cubin
    Ptx,
    /// Each source line with the instructions it became
    Source,
    /// Instructions counted by class, without the padding at the end
    Mix,
    /// Control-flow graph of the basic blocks, as Graphviz or SVG
    Cfg,
    /// The live registers at each instruction (needs nvdisasm)
    Live,
}

impl View {
    /// The name as typed.
    pub(super) fn name(self) -> &'static str {
        match self {
            View::Sass => "sass",
            View::Ptx => "ptx",
            View::Source => "source",
            View::Mix => "mix",
            View::Cfg => "cfg",
            View::Live => "live",
        }
    }
}

/// How a view is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Format {
    /// A graph in Graphviz's language
    Dot,
    /// A picture as SVG
    Svg,
    /// One page that needs no network
    Html,
}

/// Architectures that code may be for.
const KNOWN_SM_NUMBERS: &[u32] = &[
    50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 107, 110, 120, 121,
];

/// Parses an architecture: `sm_90a`, `compute_90`, or `90a`.
fn arch(typed: &str) -> Result<String, String> {
    let plain = typed.strip_prefix("sm_").or_else(|| typed.strip_prefix("compute_"));
    let plain = plain.unwrap_or(typed);
    let number = plain.strip_suffix(['a', 'f']).unwrap_or(plain).parse();
    match number {
        Ok(number) if KNOWN_SM_NUMBERS.contains(&number) => Ok(typed.to_owned()),
        _ => {
            // In lines that fit a terminal.
            let lines = KNOWN_SM_NUMBERS
                .chunks(10)
                .map(|known| known.iter().map(|n| format!("sm_{n}")).collect::<Vec<_>>().join(" "));
            let known = lines.collect::<Vec<_>>().join("\n");
            Err(format!("no such architecture\n{known}\nwith suffix a or f from sm_90 on"))
        }
    }
}

/// The differences on which `--diff` fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum FailOn {
    /// Any difference in code or facts, or a kernel only on one side
    Any,
    /// Different instructions, or a kernel only on one side
    Instructions,
    /// A kernel uses more registers or memory, spills more, or has a lower occupancy
    Resources,
}

impl FailOn {
    /// The message for a difference that `--fail-on` fails on.
    pub(in crate::cli) fn found(self) -> &'static str {
        match self {
            Self::Any => "the two sides differ",
            Self::Instructions => "instructions differ, or a kernel is on one side only",
            Self::Resources => "a kernel uses more resources, or has a lower occupancy",
        }
    }
}

/// The differences that a comparison ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum IgnoredDifference {
    /// Register numbers
    Registers,
}

/// The program that writes listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Tool {
    /// nvdisasm if it is found, else rgpu
    Auto,
    /// rgpu: opcodes, guards, control words and branches, without operands
    Rgpu,
    /// nvdisasm; an error if it is not found
    Nvdisasm,
    /// No listings: only facts, and with --extract the files
    None,
}
