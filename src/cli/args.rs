//! The arguments of the command line. Each command is one variant and is implemented in its own
//! file.

use clap::{Parser, Subcommand};

use super::support::app::GlobalArgs;
use super::support::deferred::LazyArgs;
use super::support::profile_args::ProfileArgs;
use super::{
    bench, build, cache, compare, dashboard, disasm, doctor, exec, kernels, layout, loops, mcp,
    model, queue, remote, report, runs, schema, setup, skill, top, worker,
};
use rgpu_model::error::Exit;
use rgpu_report::KernelNames;

/// The variables that all commands read; docs/settings.md has the same.
const ENVIRONMENT: &str = "\
Environment:
  RGPU_REMOTE                         the remote, if --remote is not given
  RGPU_RUNS_DIR                       the folder of runs
  RGPU_CONFIG                         your settings file
  RGPU_LIBEXEC                        the folder of agent, runner and collector
  RGPU_LOG                            what to log on stderr, such as `rgpu_remote=debug`
  RGPU_MCP_TOKEN                      the token of `rgpu mcp --http`
  NO_COLOR, CLICOLOR, CLICOLOR_FORCE  colours, if --color is not given

Documents, with `rgpu help NAME`:
  readme  docs  install  commands  output  pytorch  settings  configuration  kernel-toml
  reading-a-profile  regions  ranks  tuning  ladders  formats  exec  build  layout  model
  bench  queue  loop  dashboard  programs  python  mcp  faults  problems
  remotes  remotes-local  remotes-ssh  remotes-slurm  remotes-http  remotes-modal  remotes-wafer
  evidence  evidence-judge  evidence-model  evidence-programs  evidence-steps  evidence-suites
  evidence-ranks  evidence-remotes  evidence-install
";

/// What stands below the commands in `rgpu --help`.
fn after_help() -> String {
    let table = Exit::table();
    format!(
        "Exit status (`rgpu exec` ends with the program's own; 125: rgpu failed):\n{table}\n\
         {ENVIRONMENT}\n`rgpu COMMAND --help` has examples."
    )
}

/// Profile, check and run GPU kernels on a remote NVIDIA GPU
#[derive(Parser, Clone, Debug)]
#[command(name = "rgpu", version = env!("RGPU_VERSION"), propagate_version = true, args_override_self = true)]
#[command(after_long_help = after_help())]
#[command(subcommand_required = true, arg_required_else_help = true, infer_subcommands = false)]
pub(super) struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Clone, Debug)]
pub(super) enum Command {
    /// Profile a kernel or a program: how fast, why not faster, what to try
    Profile(LazyArgs<Box<ProfileArgs>>),
    /// Run a file, a piece of code or a command on the GPU host
    Exec(LazyArgs<Box<exec::ExecArgs>>),
    /// Compile a kernel without a GPU: PTX, cubin, SASS, registers and spills
    Build(LazyArgs<Box<build::BuildArgs>>),
    /// Name, list and check the GPU hosts you have
    #[command(subcommand, after_long_help = examples!(
        "rgpu remote add h200 ssh://root@gpu-box:2222 --default",
        "rgpu remote list",
        "rgpu remote check h200",
    ))]
    Remote(LazyArgs<remote::RemoteCommand>),
    /// Run every tool on a host with a tiny kernel, and show what works and why the rest does not
    Doctor(LazyArgs<doctor::DoctorArgs>),
    /// List kernels, show one, or start a kernel.toml
    #[command(subcommand)]
    Kernels(LazyArgs<kernels::KernelsCommand>),
    /// List, show, attach to, cancel, annotate, export and clean up runs
    #[command(subcommand)]
    Runs(LazyArgs<runs::RunsCommand>),
    /// Explain a run or a report file
    Report(LazyArgs<report::ReportArgs>),
    /// Read cubins, fatbins, objects, libraries, archives, wheels and PTX: registers, spills, SASS
    Disasm(LazyArgs<Box<disasm::DisasmArgs>>),
    /// Compute with layouts, with proofs: algebra, scale factors, tensor memory, epilogues
    #[command(subcommand)]
    Layout(LazyArgs<Box<layout::LayoutCommand>>),
    /// Compare two runs or reports, or two kernels side by side on one GPU
    Compare(LazyArgs<Box<compare::CompareArgs>>),
    /// Run suites of kernels and programs, and report what got slower
    Bench(LazyArgs<bench::BenchArgs>),
    /// Predict kernels, collectives and language models on a GPU, and compare with measurements
    #[command(subcommand)]
    Model(LazyArgs<model::ModelCommand>),
    /// Queue commands and run them one after another
    #[command(subcommand)]
    Queue(LazyArgs<queue::QueueCommand>),
    /// Improve a kernel in a loop: a worker proposes changes, rgpu measures them and keeps the
    /// faster
    #[command(subcommand)]
    Loop(LazyArgs<loops::LoopCommand>),
    /// Show hosts, queue and loop in the terminal
    Top(LazyArgs<top::TopArgs>),
    /// Show hosts, runs, suites, queue, loops and predictions on one local page
    Dashboard(LazyArgs<dashboard::DashboardArgs>),
    /// Print the JSON Schema of a document that rgpu writes, or check a file against it
    Schema(LazyArgs<schema::SchemaArgs>),
    /// Install NVIDIA's optional tools
    #[command(subcommand, after_long_help = examples!(
        "rgpu setup nvdisasm",
        "rgpu setup ncu --remote h200",
    ))]
    Setup(LazyArgs<setup::SetupCommand>),
    /// Let others run jobs on this host over HTTP, with a token
    Worker(LazyArgs<worker::WorkerArgs>),
    /// Serve agents over the Model Context Protocol
    Mcp(LazyArgs<mcp::McpArgs>),
    /// Show and clean rgpu's cache: fetched compilers, environments, builds
    #[command(subcommand)]
    Cache(LazyArgs<cache::CacheCommand>),
    /// Tell coding agents how to work with rgpu
    #[command(subcommand)]
    Skill(LazyArgs<skill::SkillCommand>),
    /// Print a shell's completion script
    #[command(after_long_help = examples!(
        "rgpu completions bash > ~/.local/share/bash-completion/completions/rgpu",
        "rgpu completions zsh > ~/.zfunc/_rgpu",
        "rgpu completions fish > ~/.config/fish/completions/rgpu.fish",
    ))]
    Completions {
        /// The shell to print completions for [default: the one of $SHELL]
        shell: Option<clap_complete::Shell>,
    },
    /// Print the version
    #[command(hide = true)]
    Version,
    /// Print the arguments of the Python package's functions, as JSON
    #[command(name = "__arguments", hide = true)]
    Arguments,
    /// Write the man pages of all commands into a folder (for packages)
    #[command(hide = true)]
    Man {
        /// The folder
        folder: std::path::PathBuf,
    },
}

impl Cli {
    /// The names of the commands that users see.
    pub(super) fn command_list() -> Vec<String> {
        use clap::CommandFactory;
        let root = Self::command();
        let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
        shown.map(|command| command.get_name().to_owned()).collect()
    }
}

impl Command {
    /// The value of this command's `--events`.
    pub(super) fn events(&self) -> Option<&str> {
        let events = match self {
            Self::Profile(args) => &args.run.events,
            Self::Exec(args) => &args.run.events,
            Self::Build(args) => &args.events,
            Self::Compare(args) => &args.run.events,
            Self::Runs(command) => match &**command {
                runs::RunsCommand::Attach(args) => &args.events,
                _ => &None,
            },
            _ => &None,
        };
        events.as_deref()
    }

    /// How the command's tables name kernels.
    pub(super) fn kernel_names(&self) -> KernelNames {
        let full = match self {
            Self::Profile(args) => args.run.full_names,
            Self::Exec(args) => args.run.full_names,
            Self::Report(args) => args.full_names,
            Self::Compare(args) => args.full_names,
            _ => false,
        };
        if full { KernelNames::Full } else { KernelNames::Short }
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::builder::ValueRange;
    use clap::{Command, CommandFactory, ValueHint};

    /// Calls `visit` with every command that users see.
    fn visit_commands(command: &Command, visit: &mut impl FnMut(&Command)) {
        visit(command);
        for below in command.get_subcommands() {
            if !below.is_hide_set() && below.get_name() != "help" {
                visit_commands(below, visit);
            }
        }
    }

    #[test]
    fn every_command_has_examples_that_it_accepts() {
        let mut whole = Cli::command();
        whole.build();
        let mut wrong = Vec::new();
        visit_commands(&whole, &mut |command| {
            if command.has_subcommands() {
                return;
            }
            let name = command.get_bin_name().unwrap_or_default();
            let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let lines =
                text.lines().filter(|line| line.starts_with("  ") && line.contains("rgpu "));
            let mut count = 0;
            for line in lines {
                count += usize::from(line.contains(name));
                // What feeds or takes the command is not part of it.
                let line = &line[line.find("rgpu ").unwrap_or_default()..];
                let line = line.split(" > ").next().unwrap_or_default();
                let words = shlex::split(line).unwrap_or_default();
                if let Err(error) = Cli::command().try_get_matches_from(words) {
                    wrong.push(format!("`{line}`: {error}"));
                }
            }
            if count == 0 {
                wrong.push(format!("`{name}` has no example"));
            }
        });
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn older_words_still_work_and_are_shown_nowhere() {
        for line in [
            "queue ls",
            "queue prune --keep 0",
            "queue watch",
            "loop prune",
            "loop stop",
            "loop tui",
        ] {
            let words = ["rgpu"].into_iter().chain(line.split(' '));
            assert!(Cli::command().try_get_matches_from(words).is_ok(), "{line}");
        }
        let mut whole = Cli::command();
        whole.build();
        visit_commands(&whole, &mut |command| {
            let name = command.get_name();
            assert!(!["ls", "prune", "stop", "watch", "tui"].contains(&name), "{name}");
            assert_eq!(command.get_visible_aliases().count(), 0, "{name}");
        });
    }

    #[test]
    fn shells_know_of_every_value_that_is_a_path() {
        let mut whole = Cli::command();
        whole.build();
        let mut unknown = Vec::new();
        visit_commands(&whole, &mut |command| {
            for arg in
                command.get_arguments().filter(|arg| arg.get_num_args() != Some(ValueRange::EMPTY))
            {
                let names = arg.get_value_names().unwrap_or_default().join("|");
                let is_path = ["FILE", "DIR"].iter().any(|word| names.contains(word));
                // `completions` completes these with files and with names that only rgpu knows.
                let is_named = names.contains("RUN");
                if is_path && !is_named && arg.get_value_hint() == ValueHint::Unknown {
                    unknown.push(format!(
                        "{} {}",
                        command.get_bin_name().unwrap_or_default(),
                        arg.get_id()
                    ));
                }
            }
        });
        assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    }

    #[test]
    fn command_list_matches_each_help() {
        let listed = Cli::command();
        let mut whole = Cli::command();
        whole.build();
        for command in listed.get_subcommands() {
            let itself = whole.find_subcommand(command.get_name()).unwrap();
            let told = |c: &clap::Command| c.get_about().map(ToString::to_string);
            assert_eq!(told(command), told(itself), "{}", command.get_name());
            assert!(told(command).is_some());
        }
    }
}
