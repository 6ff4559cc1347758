//! Turns the flags into the library's request: finds the kernel, evaluates its cases, parses every
//! option.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rgpu_case::{Case, TimingPlan};
use rgpu_protocol::plan::Arg;
use rgpu_protocol::{GpuChoice, HostFacts};

use super::app::App;
use super::kernel_folders::kernel_folders;
use super::profile_args::{CudaGraph, ProfileArgs};
use super::program_files::{ProgramFiles, TypedProgram, digest, note_left_out, program_files};
use super::{mode_flags, project_program, pulled_files, session};
use rgpu_model::agent_files;
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_model::regular_file::MAX_FILE_BYTES;
use rgpu_plan::exec::{
    ExecError, MAX_MOUNT_BYTES, RUN_SCRIPT, ScriptEnv, Snapshot, WORK_FOLDER, built_program,
};
use rgpu_plan::kernel::{
    CaseSelection, Found, FoundKernel, FoundProgram, KernelSpec, ProfileMode, find, is_identifier,
};
use rgpu_plan::tool::{
    BundleFile, GpuSelection, JobFileContent, NcuOptions, PlanError, ProfileTarget, Program,
    PythonEnv, RankSelection, RegionPattern, Request, ToolOptions, WAITING_KERNELS, check_launcher,
    given_flags, python_program_word,
};
use rgpu_run::store::{CaseSizes, InputDigest, InputsRecord, atomic};

/// The most files of a program whose digests are recorded.
const MAX_RECORDED_FILES: usize = 200;

/// Time limit for making a script's environment, which may fetch gigabytes.
const ENVIRONMENT_TIMEOUT_S: u64 = 30 * 60;

/// The place in the job's folder of our script that runs a Python file which does not run well by itself.
const RUN_SCRIPT_PATH: &str = "bin/run_script.py";

/// A resolved command line.
pub(in crate::cli) struct ProfileCommand {
    /// The request to the library.
    pub request: Request,
    /// The name of the kernel or program.
    pub name: String,
    /// Assumptions to show to the user.
    pub assumptions: Vec<String>,
    /// The content of `inputs.json`.
    pub inputs: InputsRecord,
    /// The kernel's folder, whose repository state is recorded.
    pub folder: PathBuf,
    /// What of it somebody else may have written, in words: this machine runs it only with consent.
    pub foreign: Option<String>,
    /// Facts of the host that this command has just asked for, so that it does not ask again.
    pub facts: Option<HostFacts>,
}

/// Resolves the command line.
pub(in crate::cli) fn resolve(app: &App, args: &ProfileArgs) -> Result<ProfileCommand> {
    match (&args.kernel, args.program.is_empty()) {
        (Some(name), _) if args.launch.is_some() => {
            let launch = args.launch.as_deref().unwrap_or_default();
            let found = find::find_launch(Path::new(name), launch)?;
            kernel(app, args, name, found)
        }
        (Some(name), _) => match find::find_source(name, &kernel_folders(app))? {
            Found::Kernel(found) => kernel(app, args, name, found),
            Found::Program(found) => found_program(app, args, name, found),
        },
        (None, false) => program(app, args, None),
        (None, true) => program_of_project(app, args),
    }
}

/// Resolves the program that the project's rgpu.toml describes.
fn program_of_project(app: &App, args: &ProfileArgs) -> Result<ProfileCommand> {
    let mut args = args.clone();
    let Some(assumption) = project_program::take(app, &mut args.program, &mut args.files) else {
        return Err(Failure::new(Exit::Usage, "usage", "nothing to profile")
            .hint("name a kernel: rgpu profile vecadd")
            .hint("or the source of a program: rgpu profile app.cu")
            .hint("or a program: rgpu profile -- ./app args")
            .hint("`rgpu kernels list` shows the kernels"));
    };
    let mut profile_command = program(app, &args, None)?;
    profile_command.assumptions.insert(0, assumption);
    profile_command.foreign = Some(project_program::FOREIGN.to_owned());
    Ok(profile_command)
}

fn kernel(
    app: &App,
    args: &ProfileArgs,
    name: &str,
    loaded: FoundKernel,
) -> Result<ProfileCommand> {
    if args.build_target.is_some() {
        let what = format!("`--target` has no effect: `{name}` is a kernel");
        return Err(Failure::new(Exit::Usage, "usage", what));
    }
    if !args.program.is_empty() {
        let words = args.program.iter().map(shell_word).collect::<Vec<_>>().join(" ");
        let what = format!("`{name}` is a kernel, which takes no arguments after `--`");
        return Err(Failure::new(Exit::Usage, "usage", what)
            .hint("`--problem-sizes` chooses its sizes")
            .hint(format!("the program alone: rgpu profile -- {words}")));
    }
    if let Some(flag) = args.files.first_given() {
        let what = format!("`{flag}` is for programs, given after `--`");
        return Err(Failure::new(Exit::Usage, "usage", what));
    }
    if args.save_kernel {
        save_kernel(app, &loaded)?;
    }
    let spec = loaded.spec;
    let mode = args.mode.or(spec.mode).unwrap_or(ProfileMode::Ncu);
    let cases =
        spec.cases(&CaseSelection::for_mode(&args.problem_sizes, mode)).map_err(|error| {
            let failure = Failure::from(error);
            // Some expressions fail only for certain sizes, but the mistake is in the file.
            match &spec.file {
                Some(file) if failure.code == "bad_expression" => failure.file(file.display()),
                _ => failure,
            }
        })?;
    let inputs = inputs(&spec, &cases, args.seed)?;
    let sources = spec.sources(&kernel_folders(app)).map_err(Failure::from)?;
    let target =
        ProfileTarget::Kernel { spec: Box::new(spec.clone()), sources, cases, seed: args.seed };
    let mut request = options(args, mode, target)?;
    request.named = shell_word(name);
    Ok(ProfileCommand {
        request,
        name: spec.name.clone(),
        assumptions: loaded.assumptions,
        inputs,
        foreign: spec.is_problem().then(|| problem_in_words(&spec.name)),
        folder: spec.folder,
        facts: None,
    })
}

/// What a problem runs that somebody else may have written.
fn problem_in_words(name: &str) -> String {
    format!("the problem `{name}`, its functions and the submission,")
}

/// Writes the kernel.toml of a kernel that has none beside its source.
fn save_kernel(app: &App, found: &FoundKernel) -> Result<()> {
    let spec = &found.spec;
    if let Some(file) = &spec.file {
        return Err(Failure::new(Exit::Usage, "usage", "this kernel has a kernel.toml already")
            .file(file.display()));
    }
    let target = spec.source.with_file_name("kernel.toml");
    write_kernel_toml(&target, &find::described(found), &spec.source)?;
    app.print_note(&format!("wrote {}", target.display()));
    Ok(())
}

/// Writes a new kernel.toml of the kernel in `source`.
///
/// # Errors
/// [`Failure`] if there is one already, or it cannot be written.
pub(in crate::cli) fn write_kernel_toml(target: &Path, text: &str, source: &Path) -> Result<()> {
    atomic::write_new(target, |file| file.write_all(text.as_bytes())).map_err(|e| {
        let failure = match e.kind() {
            io::ErrorKind::AlreadyExists => {
                Failure::new(Exit::Config, "exists", "there is already a kernel.toml")
                    .hint("a folder has one kernel: move the file into a folder of its own")
                    .hint(format!(
                        "or measure it as it is: rgpu profile {}",
                        shell_word(source.display())
                    ))
            }
            _ => Failure::new(Exit::Disk, "disk", "cannot write").cause(e),
        };
        failure.file(target.display())
    })
}

/// Resolves a whole program that was found under a name or path. What follows `--` are its further
/// arguments.
fn found_program(
    app: &App,
    args: &ProfileArgs,
    name: &str,
    mut found: FoundProgram,
) -> Result<ProfileCommand> {
    if let Some(target) = &args.build_target {
        found.choose_target(target)?;
    }
    let mode = args.mode.unwrap_or_else(|| default_mode(args, &found));
    let mut assumptions = found.assumptions.clone();
    if args.mode.is_none() {
        assumptions.push(mode_reason(mode, &found));
    }
    let mut args = args.clone();
    args.kernel = None;
    args.mode = Some(mode);
    if mode.collects_counters()
        && let Some(filter) = own_kernels(&args.tools.ncu, &found)
    {
        args.tools.ncu.kernel_name = vec![filter];
        args.tools.ncu.is_kernel_name_assumed = true;
        assumptions.push(format!(
            "only the program's own kernels are profiled: `{}`; `--kernel-name` chooses others",
            found.kernels.join("`, `")
        ));
    }
    if args.program.is_empty() {
        assumptions.extend(found.usual_arguments.assumption());
        args.program.clone_from(&found.usual_arguments.words);
    }
    let limit = args.files.mount_limit.unwrap_or(MAX_MOUNT_BYTES);
    let built = built_program(&found, &args.program, limit)?;
    let mut profile_command = if let Some((mut program, left_out)) = built {
        note_left_out(app, &Snapshot { left_out, ..Snapshot::default() });
        add_file_args(&mut program, &args, &args.files.mounts(app)?)?;
        let mut inputs = inputs_of_program(args.seed);
        inputs.files = sent_files(&program)?;
        args.program = program_words(name, &args.program);
        program_profile(app, &args, mode, program, inputs)?
    } else {
        let mut words = found.command.clone();
        if found.is_rank {
            let ranks = args.gpus.as_ref().map_or(Some(1), GpuSelection::number);
            let ranks = ranks.map_or("gpu".to_owned(), |ranks| ranks.to_string());
            assumptions.push(format!(
                "it is one of several ranks: torchrun starts {ranks}; `--gpus N` starts N"
            ));
            let launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"];
            words.splice(1..1, launcher.map(str::to_owned).into_iter().chain([ranks]));
        }
        args.program.splice(0..0, words);
        program(app, &args, Some(&found))?
    };
    profile_command.request.named = shell_word(name);
    profile_command.foreign = found.is_problem().then(|| problem_in_words(&found.name));
    profile_command.assumptions.splice(0..0, assumptions);
    Ok(profile_command)
}

/// The mode of a program that was found by its source, where the user names none: that of the flags
/// that were given, else the program's own. Counters are those of one GPU.
fn default_mode(args: &ProfileArgs, found: &FoundProgram) -> ProfileMode {
    let has_several_gpus = args.gpus.as_ref().is_some_and(|gpus| !gpus.is_one());
    let is_given = |options: Vec<String>| !options.is_empty();
    if is_given(given_flags(&args.tools.deep)) {
        ProfileMode::Deep
    } else if is_given(given_flags(&args.tools.ncu)) && !found.mode.collects_counters() {
        ProfileMode::Ncu
    } else if has_several_gpus && args.ranks.is_none() && found.mode.collects_counters() {
        ProfileMode::Nsys
    } else {
        found.mode
    }
}

/// Why this mode was chosen.
fn mode_reason(mode: ProfileMode, found: &FoundProgram) -> String {
    let reason = match mode {
        ProfileMode::Deep if !found.kernels.is_empty() => {
            "it has kernels of its own: a timeline, then counters of these"
        }
        ProfileMode::Nsys if found.kernels.is_empty() => {
            "it has no kernels of its own: a timeline of all"
        }
        ProfileMode::Nsys => "a timeline; `--mode deep` measures counters too",
        _ => "as the flags say",
    };
    format!("mode `{mode}`, {reason}")
}

/// The digests of the files on this machine that are sent for a program.
fn sent_files(program: &Program) -> Result<Vec<InputDigest>> {
    let digest_of_sent = |file: &BundleFile| match &file.content {
        JobFileContent::Local(path) => digest(path),
        JobFileContent::Bytes(bytes) => Ok(InputDigest {
            path: file.path.clone(),
            size: bytes.len() as u64,
            sha256: rgpu_protocol::Digest::sha256(bytes),
        }),
    };
    program.files.iter().take(MAX_RECORDED_FILES).map(digest_of_sent).collect()
}

/// A program's words where the program is known by the path of its source.
fn program_words(name: &str, arguments: &[String]) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(arguments.iter().cloned()).collect()
}

/// The value of `--kernel-name` that selects a program's own kernels. `None`: the user has chosen,
/// or they are unknown.
fn own_kernels(options: &NcuOptions, found: &FoundProgram) -> Option<String> {
    let is_chosen = !options.kernel_name.is_empty()
        || !options.kernel_exclude.is_empty()
        || options.kernel_name_base.is_some();
    // A project of many kernels would make a command line that is too long.
    let kernels = found.kernels.as_slice();
    let is_usable = kernels.len() <= 64 && kernels.iter().all(|name| is_identifier(name));
    match (&found.kernel_filter, kernels) {
        _ if is_chosen => None,
        (Some(filter), _) => Some(filter.clone()),
        _ if !is_usable => None,
        (None, []) => None,
        (None, [only]) => Some(only.clone()),
        (None, several) => Some(format!("regex:^({})$", several.join("|"))),
    }
}

fn inputs_of_program(seed: u64) -> InputsRecord {
    InputsRecord { schema: "rgpu.inputs/1".to_owned(), seed, cases: Vec::new(), files: Vec::new() }
}

/// Resolves a program and the files of this machine that it names. `script`: the Python file that it
/// was found by.
fn program(app: &App, args: &ProfileArgs, script: Option<&FoundProgram>) -> Result<ProfileCommand> {
    let mode = args.mode.unwrap_or(ProfileMode::Ncu);
    mode_flags::check(args, mode)?;
    let is_local =
        session::spec(app, args.place.remote.as_deref()).is_ok_and(|spec| session::is_local(&spec));
    let mounts = args.files.mounts(app)?;
    let typed = TypedProgram {
        command: "profile",
        words: &args.program,
        env: &args.files.env,
        mounts: &mounts,
        limit: args.files.mount_limit,
        is_local,
    };
    let found = program_files(app, typed)?;
    needs_no_kernel(mode)?;
    let inputs = InputsRecord { files: found.digests()?, ..inputs_of_program(args.seed) };
    // `python3` or `torchrun` would be the same title for every program.
    let words: Vec<&str> = args.program.iter().map(String::as_str).collect();
    let named = python_program_word(&words).unwrap_or_default();
    let name = file_name(words.get(named).copied().unwrap_or_default());
    let ProgramFiles { mut argv, files, cwd, assumptions, .. } = found;
    let python_path = take_python_path(&mut argv);
    let mut program = Program { name, argv, files, cwd, ..Program::default() };
    if let Some(how) = script.and_then(|script| script.driver) {
        program.files.push(BundleFile::text(RUN_SCRIPT_PATH, RUN_SCRIPT));
        program.argv.splice(named..named, [Arg::in_job(RUN_SCRIPT_PATH), how.into()]);
    }
    let mut assumptions = assumptions;
    if let Some(script) = script {
        assumptions.extend(add_environment(app, script, &mut program)?);
    }
    if !mounts.files.is_empty() {
        WORK_FOLDER.clone_into(&mut program.cwd);
    }
    add_file_args(&mut program, args, &mounts)?;
    program.env.extend(python_path.map(|value| ("PYTHONPATH".to_owned(), value.into())));
    let profile_command = program_profile(app, args, mode, program, inputs)?;
    Ok(ProfileCommand { assumptions, ..profile_command })
}

/// Lets a Python file run in the environment that it, or a list beside it, describes. Returns what
/// was assumed.
fn add_environment(app: &App, script: &FoundProgram, program: &mut Program) -> Result<Vec<String>> {
    let text = agent_files::read(&script.path, MAX_FILE_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let found = ScriptEnv::find(&text, Some(&script.path), &app.cwd)
        .map_err(|source| ExecError::Script { name: script.name.clone(), source })?;
    if let (Some(env), Some(python)) = (&found.env, program.argv.first_mut()) {
        *python = PythonEnv::python();
        program.files.extend(env.files());
        program.prepare.push(env.step(ENVIRONMENT_TIMEOUT_S));
    }
    Ok(found.assumptions)
}

/// Adds the variables of `--env`, the files of `--mount` and the patterns of `--pull` to a program.
/// Its own files stay.
///
/// # Errors
/// A pattern leads out of the working folder.
fn add_file_args(program: &mut Program, args: &ProfileArgs, mounts: &Snapshot) -> Result<()> {
    args.files.pull.iter().try_for_each(|pattern| pulled_files::check(pattern))?;
    program.pull.clone_from(&args.files.pull);
    if !program.pull.is_empty() && program.cwd.is_empty() {
        WORK_FOLDER.clone_into(&mut program.cwd);
    }
    let env = args.files.env.iter();
    program.env.extend(env.map(|(name, value)| (name.clone(), value.as_str().into())));
    let own: BTreeSet<String> = program.files.iter().map(|file| file.path.clone()).collect();
    let mounted = mounts.files.iter().filter(|file| !own.contains(&file.path));
    program.files.extend(mounted.cloned());
    mounts.show_to(program);
    Ok(())
}

/// Takes `PYTHONPATH=…` out of a typed `env`, for the program's environment: mode torch puts its own
/// folder before that.
fn take_python_path(argv: &mut Vec<Arg>) -> Option<String> {
    let is_env = matches!(argv.first(), Some(Arg::Text(word)) if word == "env");
    let assignments = argv.iter().skip(1).take_while(
        |arg| matches!(arg, Arg::Text(word) if word.contains('=') && !word.starts_with('-')),
    );
    let is_path = |arg: &Arg| matches!(arg, Arg::Text(word) if word.starts_with("PYTHONPATH="));
    let at = assignments.filter(|_| is_env).collect::<Vec<_>>().into_iter().rposition(is_path)?;
    match argv.remove(at + 1) {
        Arg::Text(word) => word.strip_prefix("PYTHONPATH=").map(str::to_owned),
        Arg::InJob { .. } => None,
    }
}

pub(super) fn file_name(path: &str) -> String {
    let name = Path::new(path).file_name();
    name.map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The profile of an already made program.
pub(in crate::cli) fn program_profile(
    app: &App,
    args: &ProfileArgs,
    mode: ProfileMode,
    program: Program,
    inputs: InputsRecord,
) -> Result<ProfileCommand> {
    needs_no_kernel(mode)?;
    check_nodes(app, args)?;
    let name = program.name.clone();
    let request = options(args, mode, ProfileTarget::Program(program))?;
    let folder = app.cwd.clone();
    let assumptions = Vec::new();
    Ok(ProfileCommand { request, name, assumptions, inputs, folder, foreign: None, facts: None })
}

fn needs_no_kernel(mode: ProfileMode) -> Result<()> {
    if mode.info().needs_kernel {
        Err(Failure::new(Exit::Usage, "usage", format!("mode `{mode}` needs a kernel"))
            .hint("a program is profiled with --mode ncu, deep, nsys, sanitizer, nvtx or torch"))
    } else {
        Ok(())
    }
}

fn inputs(spec: &KernelSpec, cases: &[Case], seed: u64) -> Result<InputsRecord> {
    Ok(InputsRecord {
        schema: "rgpu.inputs/1".to_owned(),
        seed,
        cases: cases
            .iter()
            .map(|case| CaseSizes {
                name: case.name.clone(),
                vars: case.vars.clone(),
                groups: case.groups.iter().map(|g| g.sizes.clone()).collect(),
            })
            .collect(),
        files: spec.files().iter().map(|path| digest(path)).collect::<Result<_>>()?,
    })
}

/// The options that kernels and programs share.
fn options(args: &ProfileArgs, mode: ProfileMode, target: ProfileTarget) -> Result<Request> {
    mode_flags::check(args, mode)?;
    let mut request = Request::new(mode, target);
    let timing = TimingPlan::default();
    let graph_below_ns = match args.cuda_graph {
        None | Some(CudaGraph::Auto) => timing.graph_below_ns,
        Some(CudaGraph::Always) => f64::MAX,
        Some(CudaGraph::Never) => 0.0,
    };
    request.timing = TimingPlan {
        warmup: args.warmup.unwrap_or(timing.warmup),
        iters: args.iters,
        graph_below_ns,
        ..timing
    };
    request.strict = args.run.strict;
    if let Some(arch) = args.arch.as_deref() {
        rgpu_plan::kernel::check_architecture(arch)?;
    }
    request.arch.clone_from(&args.arch);
    if let Some(timeout) = args.run.timeout {
        request.timeout_s = timeout.as_secs().max(1);
    }
    if let Some(queue) = args.run.queue_timeout {
        request.queue_s = queue.as_secs();
    }
    if let Some(limit) = args.run.log_limit {
        request.log_bytes = limit;
    }
    request.gpu = args.place.gpu.as_deref().map_or(GpuChoice::Any, gpu_choice);
    request.share_gpu = args.place.share_gpu;
    request.gpus = gpu_selection(args, mode, &request.target)?;
    request.ranks = rank_selection(args, mode, &request.target)?;
    request.nodes = node_count(args, &request.target)?;
    if request.nodes > 1 && args.gpus.is_none() {
        // Slurm has granted the same number on each node.
        request.gpus = GpuSelection::All;
    }
    let ToolOptions { ncu, deep, nsys, sanitizer, window } = args.tools.clone();
    for value in &ncu.regions {
        request.patterns.extend(RegionPattern::list(value)?);
    }
    if mode == ProfileMode::Deep && args.run.timeout.is_none() {
        // The step's time limit must not cut off the detailed pass within its budget.
        let budget_s = deep.budget().seconds.unwrap_or_default();
        request.timeout_s = request.timeout_s.max(budget_s.saturating_mul(2));
    }
    if let Some(stop_s) = window.stop_s() {
        // The step's time limit must leave time to write the report.
        request.timeout_s = request.timeout_s.saturating_add(stop_s);
    }
    request.ncu = ncu;
    if request.ranks.is_some() && mode.collects_counters() {
        request.ncu.kernel_exclude.push(WAITING_KERNELS.to_owned());
    }
    request.deep = deep;
    request.nsys = nsys;
    request.sanitizer = sanitizer;
    request.window = window;
    Ok(request)
}

/// How many GPUs a program gets.
///
/// # Errors
/// A kernel runs on one GPU. ncu replays each kernel alone, and one that waits for another rank
/// would never end.
fn gpu_selection(
    args: &ProfileArgs,
    mode: ProfileMode,
    target: &ProfileTarget,
) -> Result<GpuSelection> {
    let asked = args.gpus.clone().unwrap_or_default();
    let refused = |what: String| Failure::new(Exit::Usage, "usage", what);
    match target {
        _ if asked.is_one() => Ok(asked),
        _ if asked == GpuSelection::Number(0) => {
            Err(refused("`--gpus 0` leaves nothing to profile".to_owned()))
        }
        ProfileTarget::Kernel { .. } => Err(refused("a kernel runs on one GPU".to_owned())
            .hint("`--gpus` is for programs, given after `--`")),
        _ if mode.collects_counters() && args.ranks.is_none() => Err(refused(format!(
            "mode `{mode}` cannot have several GPUs: ncu replays each kernel alone, and a kernel \
             that waits for another rank never ends"
        ))
        .hint("`--ranks 0` measures one rank; `--mode nsys` records all")),
        _ => Ok(asked),
    }
}

/// On how many nodes of a cluster the program is started.
fn node_count(args: &ProfileArgs, target: &ProfileTarget) -> Result<u32> {
    let nodes = args.nodes.unwrap_or(1);
    let refused = |what: &str| Err(Failure::new(Exit::Usage, "usage", what));
    match &args.gpus {
        _ if nodes == 1 => Ok(1),
        _ if matches!(target, ProfileTarget::Kernel { .. }) => refused("a kernel runs on one node"),
        _ if args.ranks.is_some() => {
            refused("`--ranks` cannot be used with `--nodes`, which records all ranks")
        }
        _ if args.tools.window.hang_s.is_some() => {
            refused("`--hang` cannot be used with `--nodes`: it looks at the processes of one node")
        }
        Some(GpuSelection::Indexes(_)) => {
            refused("with `--nodes`, `--gpus` is the number of GPUs of each node, or `all`")
        }
        _ => Ok(nodes),
    }
}

/// Refuses several nodes of a remote that is no cluster.
fn check_nodes(app: &App, args: &ProfileArgs) -> Result<()> {
    if args.nodes.is_none_or(|nodes| nodes == 1) {
        return Ok(());
    }
    let spec = session::spec(app, args.place.remote.as_deref())?;
    if spec.scheme() == "slurm" {
        return Ok(());
    }
    let what = format!("`--nodes` needs a cluster of Slurm, and `{}` is none", spec.name);
    Err(Failure::new(Exit::Usage, "usage", what)
        .hint("`rgpu remote add cluster slurm --login ssh://me@login --partition gpu` adds one"))
}

/// The ranks that the tool looks at, each by itself. `None` if it runs around the whole program.
///
/// # Errors
/// A kernel has no ranks. ncu measures one, and nsys one or all. The launcher must be known.
fn rank_selection(
    args: &ProfileArgs,
    mode: ProfileMode,
    target: &ProfileTarget,
) -> Result<Option<RankSelection>> {
    let refused = |what: String| Failure::new(Exit::Usage, "usage", what);
    let program = match (target, &args.ranks) {
        (ProfileTarget::Program(program), _) => program,
        (ProfileTarget::Kernel { .. }, None) => return Ok(None),
        (ProfileTarget::Kernel { .. }, Some(_)) => {
            return Err(refused("a kernel has no ranks".to_owned())
                .hint("`--ranks` is for programs, given after `--`"));
        }
    };
    let launcher = check_launcher(&program.argv);
    let Some(asked) = args.ranks.clone() else {
        let per_rank = mode == ProfileMode::Sanitizer && launcher.is_ok();
        return Ok(per_rank.then_some(RankSelection::All));
    };
    match mode {
        ProfileMode::Nsys if asked == RankSelection::All => return Ok(None),
        ProfileMode::Nsys if asked.single().is_none() => {
            return Err(refused(format!("nsys cannot record {asked} of all"))
                .hint("`--ranks all` records all in one report, `--ranks 0` one alone"));
        }
        _ if mode.collects_counters() && asked.single().is_none() => {
            return Err(refused(format!(
                "mode `{mode}` cannot measure {asked}: ncu replays each kernel, and several ranks \
                 that do so are not kept in step"
            ))
            .hint("name one: `--ranks 0`"));
        }
        _ => {}
    }
    launcher.map_err(PlanError::from)?;
    Ok(Some(asked))
}

/// Parses `any`, an index, a UUID, or part of a name.
pub(in crate::cli) fn gpu_choice(text: &str) -> GpuChoice {
    match text {
        "any" => GpuChoice::Any,
        text if text.starts_with("GPU-") || text.starts_with("MIG-") => {
            GpuChoice::Uuid(text.to_owned())
        }
        text => text.parse().map_or_else(|_| GpuChoice::Name(text.to_owned()), GpuChoice::Index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_chosen_by_index_uuid_or_name() {
        assert_eq!(gpu_choice("any"), GpuChoice::Any);
        assert_eq!(gpu_choice("3"), GpuChoice::Index(3));
        assert_eq!(gpu_choice("GPU-ab12"), GpuChoice::Uuid("GPU-ab12".into()));
        assert_eq!(gpu_choice("h200"), GpuChoice::Name("h200".into()));
    }
}
