//! What `rgpu disasm` takes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Read cubins, fatbins, objects, libraries, archives, wheels and PTX: registers, spills, SASS
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct DisasmArgs {
    /// Files, folders (all GPU code in them), or runs (id, prefix, latest)
    #[arg(value_name = "FILE|DIR|RUN", required = true)]
    pub what: Vec<String>,

    /// Where listings, extracted files and summary.json go [default: artifacts/sass]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Only code for this architecture, e.g. sm_90a; repeatable
    #[arg(long, value_name = "ARCH")]
    pub arch: Vec<String>,

    /// Only kernels of this name, or matching regex:RE; mangled or not; repeatable
    #[arg(long, short = 'k', value_name = "NAME|regex:RE")]
    pub kernel_name: Vec<String>,

    /// Write the cubins and PTX themselves, too
    #[arg(long)]
    pub extract: bool,

    /// Only list what is there: nothing is decompressed, nothing written
    #[arg(long, conflicts_with_all = ["extract", "view", "out"])]
    pub list: bool,

    /// Print this on stdout instead of writing files
    #[arg(long, value_enum, value_name = "VIEW")]
    pub view: Option<View>,

    /// Say what changed from the first input to the second: resources, spills, instructions
    #[arg(long, conflicts_with_all = ["list", "view", "extract", "out"])]
    pub diff: bool,

    /// Print the instructions of a run, or of an .ncu-rep, with the samples that fell on each and
    /// what its warps waited for
    #[arg(long, conflicts_with_all = ["list", "view", "extract", "out", "diff", "tool", "arch", "control_codes", "line_info", "block"])]
    pub hot: bool,

    /// With --diff: end with status 1 where anything differs
    #[arg(long, requires = "diff")]
    pub exit_code: bool,

    /// Show the control word of each instruction: barriers, yield bit, stall
    #[arg(long)]
    pub control_codes: bool,

    /// Show the source lines that instructions came from (needs -lineinfo)
    #[arg(long)]
    pub line_info: bool,

    /// Who writes listings: nvdisasm where it is found, or rgpu itself, without operands
    #[arg(long, value_enum, default_value_t = Tool::Auto, value_name = "TOOL")]
    pub tool: Tool,

    /// Have nvdisasm run on this host, one job for all files: a remote of `rgpu remote list`, an
    /// alias of ~/.ssh/config, or ssh://user@host:port [default: the default remote, where this
    /// machine has no nvdisasm]
    #[arg(long, short, value_name = "REMOTE", conflicts_with_all = ["list", "diff", "hot"])]
    pub remote: Option<String>,

    /// Accept the key of a host never seen before
    #[arg(long)]
    pub accept_new: bool,

    /// Threads of a block to tell the occupancy for, where the kernel does not fix them
    #[arg(long, value_name = "N")]
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
    /// Instructions counted by class
    Mix,
    /// Basic blocks as a Graphviz graph
    Cfg,
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
}
