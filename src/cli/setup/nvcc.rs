//! `rgpu setup nvcc`: fetches nvcc's wheels into rgpu's cache, where builds find it.

use std::time::Duration;

use clap::Args;
use rgpu_protocol::event::Stream;
use rgpu_protocol::plan::Arg;

use super::super::support::app::{App, Status};
use super::super::support::fetch_consent::save_nvcc_consent;
use super::super::support::followed_run::FollowedRun;
use super::super::support::session;
use super::host_tool::ask_facts;
use super::{SetupResult, consent, show};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::tool::{NVCC, Program, PythonEnv, WheelNvcc, lacks_for_wheels};
use rgpu_remote::RemoteSpec;
use rgpu_run::run::{
    EXEC_STEP, ExecRequest, ExecRun, FileCopies, ProgramExit, RunContext, RunSession,
};

/// Time limit of the call that shows the compiler's version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes of a log that are read.
const LOG_BYTES: u64 = 64 << 10;

/// Install nvcc, NVIDIA's compiler, for builds without a CUDA toolkit: 135 MB, no GPU needed
///
/// NVIDIA's wheels, pinned by their hashes, go into rgpu's own cache. `rgpu build` and kernels use
/// that nvcc where there is no other. It needs python3 and a C++ compiler.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = examples!("rgpu setup nvcc", "rgpu setup nvcc --remote h200 --yes"))]
pub(in crate::cli) struct NvccArgs {
    /// The host: a remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port
    /// [default: this machine]
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Fetch without asking
    #[arg(long, short)]
    pub yes: bool,

    /// Fetch it even if there is another nvcc
    #[arg(long)]
    pub force: bool,

    /// Accept the key of an unknown host
    #[arg(long)]
    pub accept_new: bool,
}

pub(super) fn run(app: &App, args: &NvccArgs) -> Result<Status> {
    let spec = match &args.remote {
        Some(name) => session::spec(app, Some(name))?,
        None => RemoteSpec::local(),
    };
    let facts = ask_facts(app, &spec, args.accept_new)?;
    let other = facts.tool("nvcc").filter(|nvcc| !nvcc.version.is_empty() && !args.force);
    if let Some(nvcc) = other {
        let (version, path) = (nvcc.version.as_str(), nvcc.path.clone());
        return show(app, SetupResult { tool: "nvcc", version, path, fetched: false });
    }
    let lacks = lacks_for_wheels(&facts).join(" and ");
    if !lacks.is_empty() {
        let what = format!("nvcc needs {lacks}, which `{}` lacks", spec.name);
        return Err(Failure::new(Exit::Host, "not_installed", what)
            .hint(format!("install {lacks} there, and again: `rgpu setup nvcc`")));
    }
    let about = format!(
        "{} is NVIDIA's, under its licence: {}\n\
         pip or uv of `{}` fetches it, {}, from the index that it is set up with",
        NVCC.title,
        super::LICENCE,
        spec.name,
        NVCC.size()
    );
    let remote = args.remote.as_ref().map(|_| format!(" --remote {}", spec.name));
    let command = format!("rgpu setup nvcc{} --yes", remote.unwrap_or_default());
    consent(app, args.yes, about, &command)?;
    let fetched = fetch(app, &spec, args.accept_new)?;
    save_nvcc_consent(app, &spec);
    let Fetched { path, is_new } = fetched;
    show(app, SetupResult { tool: "nvcc", version: NVCC.version(), path, fetched: is_new })
}

/// The compiler in the host's cache.
struct Fetched {
    /// The folder of its environment.
    path: String,
    /// Whether it was not there before.
    is_new: bool,
}

/// Makes or finds the environment with the compiler, and starts it once.
fn fetch(app: &App, spec: &RemoteSpec, accept_new: bool) -> Result<Fetched> {
    FollowedRun::run_in_scratch_folder(
        app,
        spec,
        "setup",
        "setup nvcc".to_owned(),
        accept_new,
        async |session, context| fetch_as_job(session, context).await,
    )
}

async fn fetch_as_job(
    session: &mut RunSession<'_>,
    context: &mut RunContext<'_>,
) -> Result<Fetched> {
    let run = ExecRun {
        program: Some(&|_| Ok(request())),
        needs_facts: false,
        pull: &[],
        copies: FileCopies::default(),
    };
    let end = run.run(session, context).await?.end;
    let log = |step, stream| context.folder.log_tail(step, stream, LOG_BYTES);
    match end {
        Some(Ok(ProgramExit::Exit(0))) => Ok(Fetched {
            path: log(EXEC_STEP, Stream::Stdout).lines().next().unwrap_or_default().to_owned(),
            is_new: log(PythonEnv::STEP, Stream::Stderr).contains("python_env: installing"),
        }),
        Some(Err(failure)) => Err(failure),
        _ => Err(Failure::new(Exit::Tool, "not_installed", "nvcc was fetched and does not run")
            .cause(log(EXEC_STEP, Stream::Stderr))),
    }
}

/// The job: it prints the folder of the environment, then the compiler's version.
fn request() -> ExecRequest {
    let WheelNvcc { step, files, argv } = WheelNvcc::new();
    let show = "readlink -f \"$1\"; shift; exec \"$@\" --version";
    let words = ["sh", "-c", show, "sh"].map(Arg::from);
    let argv = words.into_iter().chain([Arg::in_job("env")]).chain(argv).collect();
    let prepare = vec![step];
    let program = Program { name: "nvcc".to_owned(), argv, files, prepare, ..Program::default() };
    ExecRequest { program, timeout: VERSION_TIMEOUT, ..ExecRequest::default() }
}
