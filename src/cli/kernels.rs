//! `rgpu kernels`: lists, shows and starts the kernels that `--kernel` finds.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rgpu_case::RunnerJob;
use schemars::JsonSchema;
use serde::Serialize;

use super::support::app::{App, Status};
use super::support::kernel_folders::kernel_folders;
use super::support::profile_request::write_kernel_toml;
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_plan::kernel::{
    CaseSelection, Found, FoundKernel, FoundProgram, KernelSpec, NO_KERNELS, ReferenceSpec, find,
};
use rgpu_report::TextTable;
use rgpu_run::store::atomic;

/// List kernels, show one, or start a kernel.toml
#[derive(Subcommand, Clone, Debug)]
pub(super) enum KernelsCommand {
    /// List the kernels that --kernel finds by name
    #[command(after_long_help = examples!("rgpu kernels list"))]
    List,
    /// Show a kernel's entry, arguments and cases
    #[command(after_long_help = examples!(
        "rgpu kernels show tiled-matmul",
        "rgpu kernels show path/to/mine.cu",
    ))]
    Show(ShowArgs),
    /// Write a kernel.toml beside a .cu or .py file, or begin an answer to a problem
    #[command(after_long_help = examples!(
        "rgpu kernels new path/to/mine.cu",
        "rgpu kernels new --like problems/vectoradd_py",
    ))]
    New(NewArgs),
    /// Print rgpu.h, the header of host entries and of references in C
    #[command(after_long_help = examples!("rgpu kernels header > rgpu.h"))]
    Header,
}

#[derive(Args, Clone, Debug)]
pub(super) struct ShowArgs {
    /// A name, a folder, a kernel.toml, or the source of a kernel or program
    pub name: String,

    /// The kernel and how it is launched, as for `rgpu profile`
    #[arg(long, value_name = "NAME[<<<GRID, BLOCK, BYTES>>>(ARGS)]")]
    pub launch: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(super) struct NewArgs {
    /// The kernel's source, a .cu, .cuh, .cubin, .fatbin, .ptx or .py file; with --like the answer
    /// to write [default: the usual name beside the problem]
    #[arg(required_unless_present = "like")]
    pub file: Option<PathBuf>,

    /// A problem of GPU MODE or KernelBench: its template becomes the beginning of an answer
    #[arg(long, value_name = "PROBLEM", conflicts_with = "launch")]
    pub like: Option<PathBuf>,

    /// The kernel and how it is launched, as for `rgpu profile`
    #[arg(long, value_name = "NAME[<<<GRID, BLOCK, BYTES>>>(ARGS)]")]
    pub launch: Option<String>,
}

pub(super) fn run(app: &App, command: &KernelsCommand) -> Result<Status> {
    match command {
        KernelsCommand::List => list(app),
        KernelsCommand::Show(args) => show(app, args),
        KernelsCommand::New(args) => new(app, args),
        KernelsCommand::Header => {
            app.print(rgpu_plan::tool::RGPU_H);
            Ok(0)
        }
    }
}

/// The output of `kernels list --json` (`rgpu.kernels/1`).
#[derive(Serialize, JsonSchema)]
pub(super) struct KernelList {
    /// Name and version of this schema: `rgpu.kernels/1`.
    schema: &'static str,
    /// The kernels, sorted by name.
    kernels: Vec<KernelLine>,
}

/// The output of `kernels show --json` (`rgpu.kernel/1`).
#[derive(Serialize, JsonSchema)]
pub(super) struct KernelDetails {
    /// Name and version of this schema: `rgpu.kernel/1`.
    schema: &'static str,
    #[serde(flatten)]
    kernel: KernelLine,
    /// What a whole program is made of. Absent for a kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<ProgramDetails>,
}

/// A whole program in the JSON output: it is built and run as it is.
#[derive(Serialize, JsonSchema)]
struct ProgramDetails {
    /// Its format in words, e.g. `a CUDA C++ program`.
    format: String,
    /// The program and its first arguments. Of a program that is built, its first arguments alone.
    command: Vec<String>,
    /// Whether it is built on the host.
    built: bool,
    /// The names of its own kernels, without template arguments; empty if they are unknown.
    kernels: Vec<String>,
    /// What was assumed, in words.
    assumptions: Vec<String>,
}

/// A kernel in the JSON output.
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct KernelLine {
    /// The name in kernel.toml.
    name: String,
    /// The folder of its kernel.toml.
    folder: String,
    /// Its language. This and the fields down to `args` are empty or absent if its
    /// `kernel.toml` cannot be read.
    language: String,
    /// The function to launch.
    entry: String,
    /// The default mode of `profile`; empty if kernel.toml has none.
    mode: String,
    /// The names of its cases.
    cases: Vec<String>,
    /// The case that runs by default.
    default_case: Option<String>,
    /// Its arguments, each as `name: type role`.
    args: Vec<String>,
    /// Why its `kernel.toml` cannot be read. Absent if it can.
    error: Option<String>,
}

impl KernelLine {
    fn new(spec: &KernelSpec) -> Self {
        Self {
            name: spec.name.clone(),
            folder: spec.folder.display().to_string(),
            language: spec.language.to_owned(),
            entry: spec.entry_name().to_owned(),
            mode: spec.mode.map(|m| m.name().to_owned()).unwrap_or_default(),
            cases: spec.sizes.cases.iter().map(|c| c.name.clone()).collect(),
            default_case: spec.sizes.default.clone(),
            args: spec
                .args
                .iter()
                .map(|a| format!("{}: {} {:?}", a.name, a.dtype, a.role).to_lowercase())
                .collect(),
            error: None,
        }
    }
}

/// The first few cases. A kernel may have dozens; `kernels show` lists them all.
fn list_first_cases(cases: &[String]) -> String {
    const MAX_SHOWN_CASES: usize = 3;
    match cases.len().saturating_sub(MAX_SHOWN_CASES) {
        0 => cases.join(" "),
        more => format!("{} and {more} more", cases[..MAX_SHOWN_CASES].join(" ")),
    }
}

fn list(app: &App) -> Result<Status> {
    let folders = kernel_folders(app);
    let listed = find::list(&folders);
    let lines: Vec<KernelLine> = listed
        .into_iter()
        .map(|kernel| match kernel.spec {
            Ok(spec) => KernelLine::new(&spec),
            Err(error) => KernelLine {
                name: kernel.name,
                folder: kernel.folder.display().to_string(),
                language: String::new(),
                entry: String::new(),
                mode: String::new(),
                cases: Vec::new(),
                default_case: None,
                args: Vec::new(),
                error: Some(error.to_string()),
            },
        })
        .collect();
    if app.global.json {
        app.print_json(&KernelList { schema: "rgpu.kernels/1", kernels: lines })?;
        return Ok(0);
    }
    if lines.is_empty() {
        app.print_note(&format!("there are no kernels\nhelp: {NO_KERNELS}"));
        return Ok(0);
    }
    let mut table = TextTable::new("kernel | mode | entry | cases | folder");
    for line in lines {
        let cases = line.error.unwrap_or_else(|| list_first_cases(&line.cases));
        let is_shipped =
            folders.shipped.as_ref().is_some_and(|p| Path::new(&line.folder).starts_with(p));
        let folder =
            if is_shipped { "shipped".to_owned() } else { relative_to_cwd(app, &line.folder) };
        table.add_row([line.name, line.mode, line.entry, cases, folder]);
    }
    app.print(&table.fitted(app.columns(), 0));
    Ok(0)
}

/// The path relative to the current folder, if it is inside.
fn relative_to_cwd(app: &App, path: &str) -> String {
    Path::new(path).strip_prefix(&app.cwd).map_or(path.to_owned(), |p| p.display().to_string())
}

fn show(app: &App, args: &ShowArgs) -> Result<Status> {
    let name = args.name.as_str();
    if let Some(launch) = &args.launch {
        return show_kernel(app, &find::find_launch(Path::new(name), launch)?);
    }
    match find::find_source(name, &kernel_folders(app)).map_err(Failure::from)? {
        Found::Kernel(loaded) => show_kernel(app, &loaded),
        Found::Program(program) => show_program(app, name, &program),
    }
}

fn show_program(app: &App, name: &str, program: &FoundProgram) -> Result<Status> {
    if app.global.json {
        app.print_json(&KernelDetails {
            schema: "rgpu.kernel/1",
            kernel: KernelLine {
                name: program.name.clone(),
                folder: program.path.parent().unwrap_or(Path::new("")).display().to_string(),
                language: String::new(),
                entry: String::new(),
                mode: program.mode.name().to_owned(),
                cases: Vec::new(),
                default_case: None,
                args: Vec::new(),
                error: None,
            },
            program: Some(ProgramDetails {
                format: program.format.to_owned(),
                command: program.command.clone(),
                built: program.build.is_some(),
                kernels: program.kernels.clone(),
                assumptions: program.assumptions.clone(),
            }),
        })?;
        return Ok(0);
    }
    let path = relative_to_cwd(app, &program.path.display().to_string());
    app.print(&format!("{}  {} in {path}\n", program.name, program.format));
    let kernels = if program.kernels.is_empty() {
        "only a run tells".to_owned()
    } else {
        program.kernels.join(", ")
    };
    let words = program.command.iter().map(shell_word).collect::<Vec<_>>().join(" ");
    let command = if program.build.is_some() {
        format!("built on the host; arguments: `rgpu profile {} -- ARGS`", shell_word(name))
    } else {
        format!("`{words}`")
    };
    for (what, how) in [
        ("kernels", kernels.as_str()),
        ("command", &command),
        ("mode", program.mode.name()),
        ("results", "not checked: a program has no reference"),
    ] {
        app.print(&format!("  {what:<9} {how}\n"));
    }
    for assumption in program.assumptions.iter().chain(&program.usual_arguments.assumption()) {
        app.print_note(&format!("assumed: {assumption}"));
    }
    Ok(0)
}

fn show_kernel(app: &App, loaded: &FoundKernel) -> Result<Status> {
    let spec = &loaded.spec;
    if app.global.json {
        app.print_json(&KernelDetails {
            schema: "rgpu.kernel/1",
            kernel: KernelLine::new(spec),
            program: None,
        })?;
        return Ok(0);
    }
    app.print(&format!(
        "{}  {} kernel `{}` in {}\n",
        spec.name,
        spec.language,
        spec.entry_name(),
        relative_to_cwd(app, &spec.source.display().to_string())
    ));
    let cases = spec.cases(&CaseSelection::All).map_err(Failure::from)?;
    let mut table = TextTable::new("argument | type | role");
    for arg in &spec.args {
        table.add_row([
            arg.name.clone(),
            arg.dtype.to_string(),
            format!("{:?}", arg.role).to_lowercase(),
        ]);
    }
    app.print(&table.plain(app.style().width, 2));
    let mut table = TextTable::new("case | sizes | is | ");
    for case in &spec.sizes.cases {
        let values = case.values.iter().map(|(name, value)| format!("{name}={value}"));
        let values = values.collect::<Vec<_>>().join(",");
        let sizes = case.groups.iter().map(|group| {
            let pairs = spec.sizes.vars.iter().zip(group).map(|(v, n)| format!("{v}={n}"));
            pairs.collect::<Vec<_>>().join(",")
        });
        let sizes: Vec<String> =
            sizes.chain(Some(values)).filter(|text| !text.is_empty()).collect();
        let default =
            if spec.sizes.default.as_deref() == Some(case.name.as_str()) { "default" } else { "" };
        table.add_row([
            case.name.clone(),
            sizes.join("; "),
            jobs_text(&case.jobs).to_owned(),
            default.to_owned(),
        ]);
    }
    app.print("\n");
    app.print(&table.without_empty_columns().plain(app.style().width, 2));
    app.print(&format!(
        "\n  {}; reference: {}\n",
        if cases.len() == 1 { "1 case".to_owned() } else { format!("{} cases", cases.len()) },
        match &spec.reference {
            Some(ReferenceSpec { checker: Some(checker), source, .. }) => format!(
                "`{checker}` in {} judges the results",
                relative_to_cwd(app, &source.display().to_string())
            ),
            Some(r) => format!(
                "`{}` in {}",
                r.function,
                relative_to_cwd(app, &r.source.display().to_string())
            ),
            None => "none: results are not checked".to_owned(),
        }
    ));
    for assumption in &loaded.assumptions {
        app.print_note(&format!("assumed: {assumption}"));
    }
    Ok(0)
}

/// What is done with a case that only certain jobs take.
fn jobs_text(jobs: &[RunnerJob]) -> &'static str {
    match (jobs.contains(&RunnerJob::Time), jobs.contains(&RunnerJob::Once)) {
        _ if jobs.is_empty() => "",
        (true, true) => "checked, timed, profiled",
        (true, false) => "checked, timed",
        (false, _) => "checked",
    }
}

fn new(app: &App, args: &NewArgs) -> Result<Status> {
    let file = args.file.as_deref();
    if let Some(problem) = &args.like {
        return begin_answer(app, problem, file);
    }
    let Some(file) = file else { return Ok(0) };
    let text = find::skeleton(file, args.launch.as_deref()).map_err(Failure::from)?;
    let target = file.with_file_name("kernel.toml");
    write_kernel_toml(&target, &text, file)?;
    let parent = file.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    app.print_note(&format!("wrote {}; fill in sizes and the reference, then", target.display()));
    app.print_note(&format!("  rgpu profile --kernel {}", shell_word(folder.display())));
    Ok(0)
}

/// Writes the beginning of an answer to a problem.
fn begin_answer(app: &App, problem: &Path, file: Option<&Path>) -> Result<Status> {
    let (file, text) = find::answer_template(problem, file).map_err(Failure::from)?;
    let word = shell_word(file.display());
    write_new(&file, &text).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::new(Exit::Config, "exists", "there is already a file of that name")
                .file(file.display())
                .hint(format!("`rgpu profile {word}` checks and times it"))
                .hint("or name another: `rgpu kernels new FILE.py --like PROBLEM`")
        }
        _ => Failure::new(Exit::Disk, "disk", "cannot write").cause(error).file(file.display()),
    })?;
    app.print_note(&format!("wrote {}; edit it, then", file.display()));
    app.print_note(&format!("  rgpu profile {word}"));
    let path = file.display().to_string();
    if let Err(error) = find::find_source(&path, &kernel_folders(app)) {
        app.print_note(&format!("warning: from there it is not found as an answer: {error}"));
    }
    Ok(0)
}

fn write_new(file: &Path, text: &str) -> io::Result<()> {
    atomic::write_new(file, |file| file.write_all(text.as_bytes()))
}
