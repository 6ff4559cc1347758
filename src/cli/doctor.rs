//! `rgpu doctor`: finds out which tools work on a host, by running a tiny kernel under each.
//!
//! A tool's `--version` proves nothing: counters may be refused and traces empty. Every mode
//! therefore runs `vecadd` on a small case, and passes if rows and finite counters came back.

mod collectives;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueHint};
use rgpu_protocol::HostFacts;
use schemars::JsonSchema;
use serde::Serialize;

use super::support::app::{App, Status};
use super::support::fetch_consent::allow_agreed_nvcc;
use super::support::followed_run::FollowedRun;
use super::support::host_text::host_text;
use super::support::kernel_folders::kernel_folders;
use super::support::nvdisasm;
use super::support::progress::LiveOutput;
use super::support::session::{self, OutputOptions, RemoteSession};
use super::support::terminal::escape_controls;
use super::support::verification::unverified;
#[cfg(test)]
pub(super) use collectives::CollectivesDocument;
use rgpu_model::RungId;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::{CaseSelection, KernelError, KernelFolders, MODES, ProfileMode, find};
use rgpu_plan::tool::{GpuSelection, HOST_TOOLS, HostTool, ProfileTarget, Request, SanitizerTool};
use rgpu_remote::RemoteSpec;
use rgpu_report::{TextTable, wrap};
use rgpu_run::config::Origin;
use rgpu_run::run::{ProfileOutcome, ProfileRun, Reporter, RunEvent, RunStart};
use rgpu_run::store::{RunFolder, RunRecord};

/// Run every tool on a host with a tiny kernel, and show what works and why the rest does not
///
/// With `--collectives`: time NCCL's collectives between its GPUs instead.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = examples!(
    "rgpu doctor",
    "rgpu doctor h200 --fresh",
    "rgpu doctor h200 --json",
    "rgpu doctor h200 --collectives --gpus 2 --out calib.toml",
))]
pub(super) struct DoctorArgs {
    /// A remote [default: that of RGPU_REMOTE, or of your settings]
    pub remote: Option<String>,

    /// Forget everything known about the host first
    #[arg(long)]
    pub fresh: bool,

    /// Accept the key of an unknown host
    #[arg(long)]
    pub accept_new: bool,

    /// Time all-reduce, all-gather, reduce-scatter and all-to-all of NCCL from 1 KiB to 512 MiB,
    /// and fit latency and time per byte
    #[arg(long, conflicts_with = "fresh")]
    pub collectives: bool,

    /// With --collectives: this many GPUs, all, or those with these indexes [default: all]
    #[arg(long, value_name = "N|all|LIST", requires = "collectives")]
    pub gpus: Option<GpuSelection>,

    /// With --collectives: do not set NCCL_NVLS_ENABLE=0. Without this flag it is set, because
    /// NVLink multicast of one user can disable the GPUs of a shared host for others
    #[arg(long, requires = "collectives")]
    pub nvls: bool,

    /// With --collectives: write the fit as a calibration for `rgpu model … --calib` (.toml), or
    /// the times for `rgpu model fit` (.csv); may be repeated
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "collectives")]
    pub out: Vec<collectives::OutFile>,
}

/// The kernel to run.
const KERNEL: &str = "vecadd";
const CASE: &str = "n=65536";

/// The output of `doctor --json` (`rgpu.doctor/1`).
#[derive(Serialize, JsonSchema)]
pub(super) struct DoctorDocument {
    /// Name and version of this schema: `rgpu.doctor/1`.
    schema: &'static str,
    /// Facts about the host.
    host: HostFacts,
    /// The modes that were tried.
    modes: Vec<ModeLine>,
    /// Why no mode was tried, and what to do about it. Absent if modes were tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    untried: Option<String>,
    /// The programs and settings that this machine uses.
    chosen: ChosenPaths,
}

/// The result of one mode.
#[derive(Serialize, JsonSchema)]
struct ModeLine {
    /// The mode's name, as in `--mode`.
    mode: &'static str,
    /// The rung that the mode reached; empty if it reached none.
    rung: RungId,
    /// Why it reached no higher rung, with the tools' messages.
    why: Vec<String>,
    /// Duration of the try in seconds.
    seconds: f64,
}

/// The programs and settings that this machine uses, with their paths.
#[derive(Serialize, JsonSchema)]
struct ChosenPaths {
    /// The remote's name.
    remote: String,
    /// The remote's address.
    address: String,
    /// The user's settings file; a note if it does not exist.
    settings: String,
    /// The agent's program for that host.
    agent: String,
    /// The runner's path, or a note that it is not built.
    runner: String,
    /// The collector's path, or a note that it is not built.
    collector: String,
    /// The folder for runs, and the setting that chose it.
    runs: String,
}

/// Runs `doctor`: tries every tool and mode on a host, or times its collectives.
pub(super) fn run(app: &App, args: &DoctorArgs) -> Result<Status> {
    if args.collectives {
        return collectives::run(app, args);
    }
    let spec = session::spec(app, args.remote.as_deref())?;
    let started_at = Instant::now();
    let diagnosis = diagnose(app, spec, args.fresh, args.accept_new)?;
    if app.global.json {
        app.print_json(&diagnosis)?;
        return Ok(0);
    }
    show(app, &diagnosis, started_at.elapsed().as_secs_f64());
    Ok(0)
}

/// Tries every tool and mode on a host with a GPU, and says in at most three lines what works.
pub(super) fn summary(app: &App, spec: RemoteSpec) -> Result<String> {
    let name = spec.name.clone();
    let diagnosis = diagnose(app, spec, false, false)?;
    if let Some(why) = diagnosis.untried {
        return Ok(format!("no mode was tried: {why}"));
    }
    let (failing, working): (Vec<&ModeLine>, Vec<&ModeLine>) =
        diagnosis.modes.iter().partition(|line| line.rung.is_empty());
    let reached = |line: &&ModeLine| format!("{} ({})", line.mode, line.rung);
    let mut lines = Vec::new();
    if !working.is_empty() {
        let modes: Vec<String> = working.iter().map(reached).collect();
        lines.push(format!("works on `{name}`: {}", modes.join(", ")));
    }
    if !failing.is_empty() {
        let modes: Vec<&str> = failing.iter().map(|line| line.mode).collect();
        lines.push(format!("does not work: {}", modes.join(", ")));
    }
    lines.push(format!("`rgpu doctor {name}` says why not more"));
    Ok(lines.join("\n"))
}

/// Tries every tool and mode on a host. Without a GPU none can show more than that, so none is
/// tried.
fn diagnose(app: &App, spec: RemoteSpec, fresh: bool, accept_new: bool) -> Result<DoctorDocument> {
    let scratch = tempfile::tempdir()
        .map_err(|e| Failure::new(Exit::Disk, "disk", "cannot make a temporary folder").cause(e))?;
    let output_options = OutputOptions {
        live: LiveOutput::Hidden,
        ..OutputOptions::with_progress_bar(app, None, accept_new)
    };
    app.block_on(async {
        let mut session = session::open(app, spec, output_options).await?;
        let cache = session::facts_cache(app, &session.spec);
        if fresh {
            cache.forget();
            cache.failed_rungs(&session.spec.name).forget();
        }
        let now = jiff::Timestamp::now().as_second();
        let host = session.ask_facts(&cache, now).await?;
        let mut modes = Vec::new();
        // Without the kernel nothing can be tried, but everything else is still shown.
        let untried =
            no_gpu(&host).or_else(|| find::find(KERNEL, &own_places(app)).err().map(not_found));
        let modes_to_try = MODES.iter().filter(|info| info.in_doctor && untried.is_none());
        for mode in modes_to_try.map(|info| info.mode) {
            if session.cancel.request_count() > 0 {
                return Err(Failure::new(Exit::Cancelled, "cancelled", "cancelled"));
            }
            modes.push(try_mode(app, &mut session, mode, scratch.path()).await?);
        }
        session.reporter.report(&RunEvent::Finished { exit: 0 });
        let path = |p: &Option<std::path::PathBuf>| {
            p.as_ref().map_or("not built".to_owned(), |p| p.display().to_string())
        };
        let arch = &host.agent.arch;
        let tools = session.programs.host_binaries(arch);
        let other = session.programs.agent_for(arch).filter(|_| arch != std::env::consts::ARCH);
        let agent = other.unwrap_or_else(|| session.programs.agent.clone());
        let chosen = ChosenPaths {
            remote: session.spec.name.clone(),
            address: session.spec.url.clone(),
            settings: settings(app),
            agent: agent.display().to_string(),
            runner: path(&tools.runner),
            collector: path(&tools.collector),
            runs: format!(
                "{} ({})",
                app.config.runs_dir.value.display(),
                app.config.runs_dir.origin
            ),
        };
        session.link.close().await;
        Ok(DoctorDocument { schema: "rgpu.doctor/1", host, modes, untried, chosen })
    })
}

/// Why no mode can work on a host without a GPU; `None` if it has one.
fn no_gpu(host: &HostFacts) -> Option<String> {
    if !host.gpus.is_empty() {
        return None;
    }
    let why = match host.driver {
        Some(_) => "the host has no GPU that its driver knows",
        None => "the host has no NVIDIA driver, and so no GPU",
    };
    Some(format!(
        "{why}; there, `rgpu profile` compiles kernels and runs their references on the CPU"
    ))
}

/// The folders of rgpu's own kernels: `doctor` runs none of the project's.
fn own_places(app: &App) -> KernelFolders {
    let by_project = matches!(app.config.kernel_path.origin, Origin::Project(_));
    let mut places = kernel_folders(app);
    places.project = PathBuf::new();
    places.kernel_path.retain(|_| !by_project);
    places
}

/// The message for a missing kernel, with the setting to change.
fn not_found(error: KernelError) -> String {
    let searched = match &error {
        KernelError::Unknown { searched, .. } => {
            let folders: Vec<String> =
                searched.iter().map(|folder| format!("`{}`", folder.display())).collect();
            format!("rgpu's own `{KERNEL}` is not in {}", folders.join(", "))
        }
        _ => error.to_string(),
    };
    format!("{searched}; set `kernel_path` in your settings to the folder with rgpu's kernels")
}

/// The path of the settings file, and whether it exists.
fn settings_file(path: &Path) -> String {
    if path.exists() {
        path.display().to_string()
    } else {
        format!("{} (does not exist: defaults apply)", path.display())
    }
}

/// The user's settings file, and how many thresholds are set.
fn settings(app: &App) -> String {
    let file = settings_file(&app.config.user_file);
    match app.config.thresholds.value.iter().count() {
        0 => file,
        own => format!("{file}; {own} thresholds set ({})", app.config.thresholds.origin),
    }
}

/// Runs the tiny kernel in one mode.
async fn try_mode(
    app: &App,
    session: &mut RemoteSession,
    mode: ProfileMode,
    scratch: &std::path::Path,
) -> Result<ModeLine> {
    let started_at = Instant::now();
    let spec = find::find(KERNEL, &own_places(app)).map_err(Failure::from)?.spec;
    let cases = spec.cases(&CaseSelection::Given(vec![CASE.to_owned()])).map_err(Failure::from)?;
    let source_folder = spec.folder.clone();
    let sources = spec.sources(&own_places(app)).map_err(Failure::from)?;
    let target = ProfileTarget::Kernel { spec: Box::new(spec), sources, cases, seed: 1 };
    let mut request = Request::new(mode, target);
    request.named = KERNEL.to_owned();
    request.timing.iters = Some(10);
    request.timeout_s = 120;
    request.share_gpu = true;
    allow_agreed_nvcc(app, &session.spec, &mut request.build);
    request.ncu.set = Some("minimal".to_owned());
    request.sanitizer.tools = vec![SanitizerTool::Memcheck.name().to_owned()];
    session.reporter.report(&RunEvent::Note { text: &format!("trying {mode}") });

    let id =
        format!("doctor-{mode}-{}-{}", std::process::id(), jiff::Timestamp::now().as_millisecond());
    let folder = RunFolder::create(scratch, &id, None)?;
    let record = RunRecord {
        title: format!("doctor ({mode})"),
        mode: mode.name().to_owned(),
        kernel: KERNEL.to_owned(),
        ..session::record(app, &session.spec, id, "doctor", jiff::Timestamp::now())
    };
    let run = ProfileRun {
        request,
        project: &app.config.project,
        thresholds: &app.config.thresholds.value,
        source_folder: &source_folder,
        local_nvdisasm: &nvdisasm::only_cache(app),
        required_rung: None,
        pulled: &mut Vec::new(),
        retry_failed_rungs: true,
    };
    let mut followed_run = FollowedRun { folder, record, start: RunStart::New };
    let (mut run_session, mut context) = followed_run.session_and_context(app, session);
    let outcome = run.run(&mut run_session, &mut context).await;
    let record = followed_run.record;
    // Jobs on this machine were removed already.
    for job in record.jobs.iter().filter(|job| job.remote == session.spec.name) {
        // If the host cannot remove it now, its quota removes it later.
        let _ = session.link.remove_job(&job.job).await;
    }
    let mut line =
        ModeLine { mode: mode.name(), rung: RungId::default(), why: Vec::new(), seconds: 0.0 };
    match outcome {
        Ok(ProfileOutcome::Profile { profile, failure, .. }) => {
            // The failure that a real run in this mode would end with.
            let not_checked = unverified(&profile);
            line.rung = match profile.gpu {
                _ if not_checked.is_some() || profile.rung == RungId::None => RungId::default(),
                None if profile.rung != RungId::Cpu => {
                    format!("{} on the CPU", profile.rung).into()
                }
                _ => profile.rung,
            };
            for record in profile.ladder.iter().filter(|r| !r.ok) {
                let message = if record.message.is_empty() {
                    String::new()
                } else {
                    format!(": {}", record.message)
                };
                line.why.push(format!("failed: {} ({}{message})", record.rung, record.code));
            }
            line.why.extend(failure.or(not_checked).map(|f| f.what));
        }
        Ok(ProfileOutcome::Detached) => {}
        Err(failure) if failure.exit == Exit::Cancelled => return Err(failure),
        Err(failure) => line.why.push(match &failure.cause {
            Some(cause) => {
                format!("{}: {}", failure.what, cause.lines().last().unwrap_or_default())
            }
            None => failure.what.clone(),
        }),
    }
    line.seconds = started_at.elapsed().as_secs_f64();
    Ok(line)
}

/// The commands that install the profilers that a host with a GPU lacks.
fn proposals(host: &HostFacts) -> Vec<String> {
    let missing = HOST_TOOLS
        .iter()
        .filter(|tool| !host.gpus.is_empty() && host.tool(tool.name).is_none())
        .filter_map(|tool| Some((tool, tool.megabytes(&host.agent.arch)?)));
    let remote = escape_controls(host.remote.as_bytes());
    let line = |(tool, megabytes): (&HostTool, u64)| {
        let HostTool { name, command, .. } = tool;
        format!(
            "  {name} is missing: `rgpu setup {command} --remote {remote}` installs it there \
             ({megabytes} MB, without root)"
        )
    };
    missing.map(line).collect()
}

fn show(app: &App, diagnosis: &DoctorDocument, seconds: f64) {
    let text = host_text(&diagnosis.chosen.remote, &diagnosis.host, seconds, app.columns());
    app.print(&text);
    let mut table = TextTable::new("mode | reaches | time: | why not more");
    for line in &diagnosis.modes {
        let rung = if line.rung.is_empty() { "nothing".to_owned() } else { line.rung.to_string() };
        let why = escape_controls(line.why.join("; ").as_bytes());
        table.add_row([line.mode.to_owned(), rung, format!("{:.1} s", line.seconds), why]);
    }
    app.print("\n");
    if let Some(why) = &diagnosis.untried {
        let text = format!("no mode was tried: {why}");
        for line in wrap(&escape_controls(text.as_bytes()), app.style().width.saturating_sub(2)) {
            app.print(&format!("  {line}\n"));
        }
    }
    app.print(&table.without_empty_columns().plain(app.style().width, 2));
    for line in proposals(&diagnosis.host) {
        app.print(&format!("{line}\n"));
    }
    let c = &diagnosis.chosen;
    app.print(&format!(
        "\n  settings   {}\n  agent      {}\n  runner     {}\n  collector  {}\n  runs       {}\n",
        c.settings, c.agent, c.runner, c.collector, c.runs
    ));
}

#[cfg(test)]
mod tests {
    use rgpu_protocol::probe::{GpuFacts, ToolFacts};

    use super::*;

    #[test]
    fn a_host_without_a_gpu_is_told_once_and_why() {
        let mut host = HostFacts::default();
        assert!(no_gpu(&host).unwrap().starts_with("the host has no NVIDIA driver"));
        host.driver = Some("580.159.04".to_owned());
        assert!(no_gpu(&host).unwrap().starts_with("the host has no GPU that its driver knows"));
        host.gpus.push(GpuFacts::default());
        assert_eq!(no_gpu(&host), None);
    }

    #[test]
    fn settings_that_do_not_exist_are_not_named_as_if_they_did() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        assert!(settings_file(&path).ends_with("config.toml (does not exist: defaults apply)"));
        std::fs::write(&path, "").unwrap();
        assert_eq!(settings_file(&path), path.display().to_string());
    }

    #[test]
    fn a_host_with_a_gpu_is_offered_the_profilers_that_it_lacks() {
        let mut host = HostFacts { remote: "h200".to_owned(), ..HostFacts::default() };
        host.agent.arch = "x86_64".to_owned();
        assert!(proposals(&host).is_empty());
        host.gpus.push(GpuFacts::default());
        let tool = |name: &str| ToolFacts { name: name.to_owned(), ..ToolFacts::default() };
        host.tools = vec![tool("ncu"), tool("nsys")];
        let command =
            "`rgpu setup sanitizer --remote h200` installs it there (12 MB, without root)";
        assert_eq!(proposals(&host), [format!("  compute-sanitizer is missing: {command}")]);
        host.agent.arch = "riscv64".to_owned();
        assert!(proposals(&host).is_empty());
    }
}
