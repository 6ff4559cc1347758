//! The arguments of `rgpu disasm`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::support::run_args::duration;

/// Read cubins, fatbins, objects, libraries, archives, wheels and PTX: registers, spills, SASS
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct DisasmArgs {
    /// Files, folders (all GPU code in them), or runs (id, prefix, latest)
    #[arg(value_name = "FILE|DIR|RUN", required = true)]
    pub what: Vec<String>,

    /// Folder for listings, extracted files and summary.json [default: artifacts/sass]; with --view
    /// or --format, the file that is written
    #[arg(long, value_name = "PATH")]
    pub out: Option<PathBuf>,

    /// Only code for this architecture, repeatable: sm_100 takes in sm_100a and sm_100f, sm_100a is
    /// itself alone
    #[arg(long, value_name = "ARCH", value_parser = arch)]
    pub arch: Vec<String>,

    /// Write over a file that is no earlier output of the same kind; never over an input
    #[arg(long, conflicts_with_all = ["list", "diff"])]
    pub force: bool,

    /// Only kernels of this name, or matching regex:RE; mangled or not; repeatable
    #[arg(long, short = 'k', value_name = "NAME|regex:RE")]
    pub kernel_name: Vec<String>,

    /// Write the cubins and PTX themselves, too
    #[arg(long)]
    pub extract: bool,

    /// Write one listing for each kernel, not one for each file and architecture
    #[arg(long, conflicts_with_all = ["list", "view", "format", "diff", "hot"])]
    pub per_kernel: bool,

    /// Only list what is there: no code is decompressed, nothing is written. Members of a wheel and
    /// an .ncu-repz are unpacked in memory, to see what they hold
    #[arg(long, conflicts_with_all = ["extract", "view", "out", "format"])]
    pub list: bool,

    /// Print this on stdout instead of writing files
    #[arg(long, value_enum, value_name = "VIEW")]
    pub view: Option<View>,

    /// `html`: one page with source, PTX and SASS side by side. `dot` or `svg`: how --view cfg is
    /// drawn [default: by the ending of --out, else dot]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,

    /// Say what changed from the first input to the second: resources, spills, instructions
    #[arg(long, conflicts_with_all = ["list", "view", "extract", "out", "format"])]
    pub diff: bool,

    /// Print the instructions of a run, or of an .ncu-rep, with the samples that fell on each and
    /// what its warps waited for
    #[arg(long, conflicts_with_all = ["list", "view", "extract", "diff", "tool", "arch", "control_codes", "line_info", "block"])]
    pub hot: bool,

    /// With --diff: exit with 1 on this
    #[arg(long, value_enum, value_name = "CHANGE", value_delimiter = ',', requires = "diff")]
    pub fail_on: Vec<FailOn>,

    /// With --diff: what else does not count, beside addresses, labels and padding
    #[arg(long, value_enum, value_name = "WHAT", requires = "diff")]
    pub normalize: Option<Without>,

    /// Show the control word of each instruction: barriers, yield bit, stall
    #[arg(long)]
    pub control_codes: bool,

    /// Show the source lines that instructions came from (needs -lineinfo)
    #[arg(long)]
    pub line_info: bool,

    /// Who writes listings: nvdisasm where it is found, or rgpu itself, without operands
    #[arg(long, value_enum, default_value_t = Tool::Auto, value_name = "TOOL")]
    pub tool: Tool,

    /// Processor time that each call of nvdisasm on this machine may take [default: 30s, and 10s
    /// for each MiB of a cubin]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["list", "hot"])]
    pub timeout: Option<Duration>,

    /// Have nvdisasm run on this host, one job for all files (not with --list and --hot, which need
    /// none): a remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port
    /// [default: the default remote, where this machine has no nvdisasm]
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Accept the key of a host never seen before
    #[arg(long)]
    pub accept_new: bool,

    /// Threads of a block to tell the occupancy for, where the kernel does not fix them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub block: Option<u32>,
}

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum View {
    /// The listing
    Sass,
    /// PTX: of the file, or what -lineinfo left in a cubin
    Ptx,
    /// Each source line with the instructions it became
    Source,
    /// Instructions counted by class; as everywhere, without the padding at the end
    Mix,
    /// Basic blocks and the ways between, as Graphviz or SVG
    Cfg,
    /// Which registers live at each instruction (needs nvdisasm)
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
    /// Graphviz
    Dot,
    /// A picture
    Svg,
    /// One page, without network
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
            Err(format!("no such architecture\n{known}\nwith a or f behind from sm_90 on"))
        }
    }
}

/// What `--diff` fails on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum FailOn {
    /// Any bit of the code, any fact, a kernel more or less
    Any,
    /// Other instructions, or a kernel more or less
    Instructions,
    /// A kernel that takes more registers, memory or spills, or has a lower occupancy
    Resources,
}

impl FailOn {
    /// The message for a difference that `--fail-on` fails on.
    pub(in crate::cli) fn found(self) -> &'static str {
        match self {
            Self::Any => "the two sides are not the same",
            Self::Instructions => "instructions differ, or a kernel is on one side only",
            Self::Resources => "a kernel takes more resources, or has a lower occupancy",
        }
    }
}

/// What does not count in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Without {
    /// Numbers of registers
    Registers,
}

/// Who writes listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Tool {
    /// nvdisasm where it is found, else rgpu
    Auto,
    /// rgpu: names, guards, control words and branches, without operands
    Rgpu,
    /// nvdisasm, or fail
    Nvdisasm,
    /// Nobody: facts alone, and with --extract the files
    None,
}
