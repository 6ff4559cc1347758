//! Shared code of the commands that reach a host: the remote's definition, the connection, Ctrl-C
//! and questions to the user.

#![expect(
    clippy::disallowed_methods,
    reason = "the user's ssh settings, and the file named with `--events`"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget};
use rgpu_protocol::HostFacts;

use super::app::App;
use super::program_output::ProgramOutput;
use super::progress::{LiveOutput, Progress, ProgressRow};
use super::terminal::{Stdout, write_stderr};
use super::{release, signals, started_here};
use rgpu_model::error::{Exit, Failure, Result, chain, indent_continuation, shell_word};
use rgpu_remote::{
    ConnectOptions, HostKeyQuestion, HostLink, HostRequest, OnRemote, Remote, RemoteError,
    RemoteSpec, SentRecord, UnknownHostPolicy, UserPrompt,
};
use rgpu_report::one_line;
use rgpu_run::config::{Config, LOCAL, Origin};
use rgpu_run::run::{
    CancelSignal, Canceller, FactsCache, FailedTry, JsonLines, LinkRecord, Programs, Reporter,
    Reporters, RunEvent, SharedReporter, channel, find_programs, set_up_compilers, triple,
};
use rgpu_run::store::{Cost, RunRecord};
use rgpu_work::own_command::is_started_by_agent;

/// The remote of a command: the one the user typed, else the default remote.
pub(in crate::cli) fn spec(app: &App, requested: Option<&str>) -> Result<RemoteSpec> {
    let Config { default_remote, .. } = &app.config;
    match (requested, &default_remote.origin) {
        (Some(name), _) if is_started_by_agent() => app.config.remote_of_agent(name, ssh_alias),
        (Some(name), _) => app.config.remote(name, ssh_alias).map_err(|mut failure| {
            if !name.contains(',') {
                return failure;
            }
            failure.hints.clear();
            failure.hint("only `rgpu profile` accepts several remotes")
        }),
        (None, Origin::Project(file)) => {
            app.config.remote_of_project(&default_remote.value, file, ssh_alias)
        }
        (None, _) => app.config.remote(&default_remote.value, ssh_alias),
    }
    .map_err(|failure| match requested {
        Some(_) => failure,
        None => failure.hint(format!("the default remote comes from {}", default_remote.origin)),
    })
}

/// The remote that the record in `file` names. The record may come with a project, so it names one
/// of the user's settings, by name or address, or `local`.
///
/// # Errors
/// It names another one. The failure has the command that adds it.
pub(in crate::cli) fn spec_of_record(app: &App, name: &str, file: &Path) -> Result<RemoteSpec> {
    let address = if name.contains("://") { name.to_owned() } else { format!("ssh://{name}") };
    if app.config.remotes.values().any(|own| own.url == name || own.url == address) {
        return spec(app, Some(name));
    }
    app.config.remote_of_project(name, file, ssh_alias).map_err(|mut failure| {
        if failure.code != "remote_of_project" {
            return failure;
        }
        failure.hints.clear();
        failure.hint(format!(
            "if you trust that host: `rgpu remote add NAME {}`, and again",
            shell_word(address)
        ))
    })
}

/// Refuses a run whose record names an address that the user has never used: a run folder may come
/// with a project. Allowed are remotes of the settings and addresses this machine has connected to.
pub(in crate::cli) fn check_run(app: &App, record: &RunRecord) -> Result<()> {
    let remotes = &app.config.remotes;
    let jobs = record.jobs.iter().map(|job| job.remote.as_str());
    for name in record.remote.split(',').chain(jobs) {
        let in_settings =
            remotes.contains_key(name) || remotes.values().any(|own| own.url == *name);
        let address = name.contains("://") || ssh_alias(name);
        let connected_before =
            || SentRecord::new(&app.cache, &RemoteSpec::new(name, name)).exists();
        if address && !in_settings && !connected_before() {
            let message =
                format!("run `{}` is on `{name}`, which is not one of your remotes", record.id);
            return Err(Failure::new(Exit::Config, "remote_of_run", message).hint(format!(
                "if you trust that host: `rgpu remote add NAME {}`, and again",
                shell_word(name)
            )));
        }
    }
    Ok(())
}

/// Whether `name` is a host of `~/.ssh/config`.
pub(in crate::cli) fn ssh_alias(name: &str) -> bool {
    ssh_aliases().iter().any(|alias| alias == name)
}

/// The hosts of `~/.ssh/config`, patterns included.
pub(in crate::cli) fn ssh_aliases() -> Vec<String> {
    let Some(home) = std::env::home_dir() else { return Vec::new() };
    let text = std::fs::read_to_string(home.join(".ssh/config")).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let line = line.trim_start();
            let (key, rest) = line.split_once(|c: char| c.is_whitespace() || c == '=')?;
            key.eq_ignore_ascii_case("host").then_some(rest)
        })
        .flat_map(|patterns| patterns.split_whitespace().map(|p| p.trim_matches('"').to_owned()))
        .collect()
}

/// The record of a new run of this command line on that remote. The caller sets the title.
pub(in crate::cli) fn record(
    app: &App,
    spec: &RemoteSpec,
    id: String,
    command: &str,
    started: jiff::Timestamp,
) -> RunRecord {
    let record = RunRecord {
        argv: app.argv.clone(),
        parent: app.parent.clone(),
        remote: spec.name.clone(),
        address: spec.url.clone(),
        cost: Cost::at(spec.usd_per_hour()),
        ..RunRecord::new(id, command, started)
    };
    started_here::remember(app, &record);
    record
}

/// The file of this program. Installers of Python's tools start it by a link, and macOS reports the
/// link.
pub(in crate::cli) fn own_program() -> std::io::Result<PathBuf> {
    std::env::current_exe().map(|exe| exe.canonicalize().unwrap_or(exe))
}

/// rgpu's own programs for this machine, and their paths for other architectures.
pub(in crate::cli) fn programs(app: &App) -> Result<Programs> {
    let exe = own_program().map_err(|e| {
        Failure::new(Exit::Config, "no_exe", "this program's own path is not known").cause(e)
    })?;
    let mut programs =
        find_programs(&triple(std::env::consts::ARCH), app.config.libexec.as_deref(), &exe)?;
    programs.compilers = compilers();
    Ok(programs)
}

/// The workspace that this program was built in, if the program is `target/<profile>/rgpu`.
pub(in crate::cli) fn workspace() -> Option<PathBuf> {
    let exe = own_program().ok()?;
    let target = exe.ancestors().nth(2).filter(|target| target.ends_with("target"))?;
    target.parent().map(Path::to_owned)
}

/// Compilers that set-up installed for the workspace. Programs and libraries inside the user's
/// project are not searched: whoever wrote the project chose them.
fn compilers() -> BTreeMap<String, String> {
    workspace().as_deref().map(set_up_compilers).unwrap_or_default()
}

/// Facts about a remote that earlier runs saved.
pub(in crate::cli) fn facts_cache(app: &App, spec: &RemoteSpec) -> FactsCache {
    let compilers = if is_local(spec) { compilers() } else { BTreeMap::new() };
    FactsCache::new(&app.cache, spec, &compilers)
}

/// An open connection, its event reporter and its cancel signal.
pub(in crate::cli) struct RemoteSession {
    pub(in crate::cli) spec: RemoteSpec,
    pub(in crate::cli) link: HostLink,
    pub(in crate::cli) reporter: SharedReporter,
    pub(in crate::cli) cancel: CancelSignal,
    pub(in crate::cli) programs: Programs,
    /// Writes the program's output to this process's stdout and stderr. `None` if it does not go
    /// there.
    program_output: Option<ProgramOutput>,
}

/// How long we wait for the reader of our output after the user has cancelled.
const DRAIN_AFTER_CANCEL: Duration = Duration::from_secs(1);

/// How long after the loss of a link the third failed try is reported; each further one after twice
/// the time of the last.
const FIRST_LOSS_INTERVAL: Duration = Duration::from_secs(10);

impl RemoteSession {
    /// Asks the host for its facts and saves them in `cache`.
    pub(in crate::cli) async fn ask_facts(
        &mut self,
        cache: &FactsCache,
        now_s: i64,
    ) -> Result<HostFacts> {
        let Self { spec, link, reporter, programs, cancel, .. } = self;
        cache.ask(link, spec, programs, now_s, reporter, cancel).await
    }

    /// Runs `work` on the link, then closes the connection.
    pub(in crate::cli) async fn run_and_close<T>(
        self,
        work: impl AsyncFnOnce(&mut HostLink) -> Result<T>,
    ) -> Result<T> {
        let Self { mut link, mut reporter, mut cancel, .. } = self;
        let done = tokio::select! {
            done = work(&mut link) => done,
            // Drop the link instead of closing it: the host may never answer.
            () = cancel.wait_for_more_than(0) => {
                return Err(Failure::new(Exit::Cancelled, "cancelled", "cancelled"));
            }
        };
        reporter.report(&RunEvent::Finished { exit: 0 });
        tokio::select! {
            _ = link.close() => {}
            () = cancel.wait_for_more_than(0) => {}
        }
        done
    }

    /// Waits until the program's output is written, or until the user cancels.
    pub(in crate::cli) async fn wait_for_output(&mut self) -> Result<()> {
        let Some(program_output) = &self.program_output else { return Ok(()) };
        let cancels_seen = self.cancel.handled_count();
        tokio::select! {
            () = program_output.wait_until_written() => {}
            () = tokio::time::sleep(DRAIN_AFTER_CANCEL), if cancels_seen > 0 => {}
            () = self.cancel.wait_for_more_than(cancels_seen) => {
                if !self.cancel.is_output_unread() {
                    let message = "cancelled while the output waited to be read";
                    return Err(Failure::new(Exit::Cancelled, "cancelled", message));
                }
            }
        }
        Ok(())
    }
}

/// How a command shows its output and events.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct OutputOptions<'a> {
    pub(in crate::cli) live: LiveOutput,
    pub(in crate::cli) events: Option<&'a str>,
    pub(in crate::cli) accept_new: bool,
    /// The run's id, empty if there is no run.
    pub(in crate::cli) run: &'a str,
    /// Its progress line, if several runs are followed at once.
    pub(in crate::cli) row: Option<&'a ProgressRow>,
    /// The command's request for a host that has to be granted first.
    pub(in crate::cli) host: HostRequest,
}

impl<'a> OutputOptions<'a> {
    /// Shows a progress bar on stderr. The caller's run sets its id.
    pub(in crate::cli) fn with_progress_bar(
        app: &App,
        events: Option<&'a str>,
        accept_new: bool,
    ) -> Self {
        let live = if app.global.quiet || app.global.json {
            LiveOutput::Hidden
        } else {
            LiveOutput::Stderr
        };
        Self { live, events, accept_new, run: "", row: None, host: HostRequest::default() }
    }
}

/// Connects to a remote. From here on Ctrl-C is handled.
pub(in crate::cli) async fn open(
    app: &App,
    spec: RemoteSpec,
    output_options: OutputOptions<'_>,
) -> Result<RemoteSession> {
    open_with_key(app, spec, output_options, None).await
}

/// As [`open`]. The key of an unknown host is accepted only if it has this fingerprint.
pub(in crate::cli) async fn open_with_key(
    app: &App,
    spec: RemoteSpec,
    output_options: OutputOptions<'_>,
    accepted_key: Option<&str>,
) -> Result<RemoteSession> {
    let (session, ()) =
        connect(app, spec, output_options, Greeting::Now, accepted_key, |_| async { Ok(()) })
            .await?;
    Ok(session)
}

/// Connects to a remote and runs `work` on this machine at the same time. An error of `work` ends
/// both. If this agent ran there before, its greeting is read with the first request.
pub(in crate::cli) async fn connect_while<T, F: Future<Output = Result<T>>>(
    app: &App,
    spec: RemoteSpec,
    output_options: OutputOptions<'_>,
    work: impl FnOnce(SharedReporter) -> F,
) -> Result<(RemoteSession, T)> {
    connect(app, spec, output_options, Greeting::WithFirstRequest, None, work).await
}

/// When to wait for the agent's greeting.
#[derive(Clone, Copy)]
enum Greeting {
    Now,
    WithFirstRequest,
}

async fn connect<T, F: Future<Output = Result<T>>>(
    app: &App,
    spec: RemoteSpec,
    output_options: OutputOptions<'_>,
    greeting: Greeting,
    accepted_key: Option<&str>,
    work: impl FnOnce(SharedReporter) -> F,
) -> Result<(RemoteSession, T)> {
    let programs = programs(app)?;
    let (canceller, cancel) = channel();
    signals::listen(canceller.clone())?;
    let RunReporters { mut reporter, bar, program_output } =
        run_reporters(app, output_options, canceller)?;
    let remote: Arc<dyn Remote> =
        Arc::from(spec.open().map_err(|e| e.failure(&spec.name, spec.scheme()))?);
    let address = if spec.name == spec.url { spec.name.clone() } else { spec.url.clone() };
    reporter.report(&RunEvent::Where {
        run: output_options.run,
        remote: &spec.name,
        address: &address,
    });
    reporter.report(&RunEvent::Connecting {});
    // Several runs at once cannot share one prompt.
    let interactive = output_options.row.is_none()
        && std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal();
    let options = ConnectOptions {
        agent: known_agent(app, &spec, &programs).unwrap_or_else(|| programs.agent.clone()),
        unknown_host_policy: if output_options.accept_new {
            UnknownHostPolicy::AcceptNew
        } else if interactive || accepted_key.is_some() {
            UnknownHostPolicy::Ask
        } else {
            UnknownHostPolicy::Refuse
        },
        user_prompt: Arc::new(TerminalPrompt {
            verbose: app.global.verbose > 0 && !app.global.quiet,
            attended: interactive,
            accepted_key: accepted_key.map(str::to_owned),
            reporter: Mutex::new((reporter.clone(), None)),
            bar,
        }),
        run: output_options.run.to_owned(),
        host_request: output_options.host,
    };
    release::at_end(&remote, &options, &cancel);
    let started_at = Instant::now();
    let mut stop = cancel.clone();
    let sent = SentRecord::new(&app.cache, &spec);
    let connect = async {
        let link = connect_link(&remote, options, &programs, greeting, &sent).await;
        let link =
            link.on(&*remote).inspect_err(|failure| record_failed_try(app, &spec, failure))?;
        let link = link.with_sent_record(sent);
        let ms = u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        reporter.clone().report(&RunEvent::Connected { ms });
        Ok::<_, Failure>(link)
    };
    // The local work takes longer, so it starts first.
    let both = async { tokio::try_join!(work(reporter.clone()), connect) };
    let (done, link) = tokio::select! {
        both = both => both?,
        () = stop.wait_for_more_than(0) => return Err(Failure::new(Exit::Cancelled, "cancelled", "cancelled while connecting")),
    };
    Ok((RemoteSession { spec, link, reporter, cancel, programs, program_output }, done))
}

/// Records for lists of hosts that a remote could not be reached.
fn record_failed_try(app: &App, spec: &RemoteSpec, failure: &Failure) {
    let cause = failure.cause.as_deref().and_then(|cause| cause.trim().lines().last());
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    let text = format!("{}{cause}", failure.what);
    let at_s = jiff::Timestamp::now().as_second();
    facts_cache(app, spec).record_failed_try(&FailedTry { at_s, text });
}

/// The agent for the host's saved architecture, if that differs from this machine's.
fn known_agent(app: &App, spec: &RemoteSpec, programs: &Programs) -> Option<PathBuf> {
    let known = facts_cache(app, spec).load(jiff::Timestamp::now().as_second())?;
    let arch = known.agent.arch;
    if arch == std::env::consts::ARCH { None } else { programs.agent_for(&arch) }
}

/// Connects. If the host turns out to have another architecture, sends it that architecture's
/// agent, if this machine has one.
async fn connect_link(
    remote: &Arc<dyn Remote>,
    options: ConnectOptions,
    programs: &Programs,
    greeting: Greeting,
    sent: &SentRecord,
) -> std::result::Result<HostLink, RemoteError> {
    // A host that ran this agent before has the right architecture.
    if matches!(greeting, Greeting::WithFirstRequest) && sent.has_run_agent(&options.agent) {
        return HostLink::begin(Arc::clone(remote), options).await;
    }
    let unfit = match HostLink::connect(Arc::clone(remote), options.clone()).await {
        Err(RemoteError::Unfit { why, arch: Some(arch) }) => (why, arch),
        connected => {
            if connected.is_ok() {
                sent.record_agent(&options.agent);
            }
            return connected;
        }
    };
    let (why, arch) = unfit;
    match programs.agent_for(&arch).filter(|agent| *agent != options.agent) {
        Some(agent) => {
            HostLink::connect(Arc::clone(remote), ConnectOptions { agent, ..options }).await
        }
        None => Err(RemoteError::Unfit { why, arch: Some(arch) }),
    }
}

/// Runs `work` on this machine; Ctrl-C stops it.
pub(in crate::cli) async fn run_until_cancelled<T, F: Future<Output = Result<T>>>(
    app: &App,
    output_options: OutputOptions<'_>,
    work: impl FnOnce(SharedReporter) -> F,
) -> Result<T> {
    let (canceller, mut cancel) = channel();
    signals::listen(canceller.clone())?;
    let RunReporters { mut reporter, .. } = run_reporters(app, output_options, canceller)?;
    let done = tokio::select! {
        done = work(reporter.clone()) => done,
        () = cancel.wait_for_more_than(0) => Err(Failure::new(Exit::Cancelled, "cancelled", "cancelled")),
    };
    reporter.report(&RunEvent::Finished { exit: 0 });
    done
}

/// The reporters of a run's events, and the parts of the terminal's reporter that others use.
struct RunReporters {
    reporter: SharedReporter,
    bar: ProgressBar,
    program_output: Option<ProgramOutput>,
}

/// Makes the terminal's reporter with its bar, and the reporter of `--events`.
fn run_reporters(
    app: &App,
    output_options: OutputOptions<'_>,
    canceller: Canceller,
) -> Result<RunReporters> {
    let mut reporters = Reporters::default();
    match output_options.events {
        None => {}
        Some("-") => reporters.0.push(Box::new(JsonLines(Stdout))),
        Some(path) => {
            check_events_file(app, path)?;
            let file = std::fs::File::create(path).map_err(|e| {
                Failure::new(Exit::Disk, "disk", "cannot write the events").file(path).cause(e)
            })?;
            reporters.0.push(Box::new(JsonLines(file)));
        }
    }
    let progress = Progress::new(
        app.terminal,
        output_options.live,
        app.global.quiet,
        canceller,
        output_options.row,
    )
    .for_run(output_options.run);
    let (bar, program_output) = (progress.bar(), progress.program_output());
    reporters.0.push(Box::new(progress));
    let runs = app.runs();
    reporters.0.push(Box::new(LinkRecord::new(runs, output_options.run)));
    Ok(RunReporters { reporter: SharedReporter::new(reporters), bar, program_output })
}

/// Refuses a file for events inside the project that a link leads to: the link may have come with
/// the project. Events are written as they happen, so the file cannot be made beside it and
/// renamed.
fn check_events_file(app: &App, path: &str) -> Result<()> {
    app.config.check_output_folder(&app.cwd.join(path)).map_err(|mut failure| {
        failure.hints.clear();
        failure.hint("name another file, or remove the link")
    })
}

/// Hides a bar until this is dropped.
struct HiddenBar {
    bar: ProgressBar,
    /// Whether the bar was hidden before.
    hidden: bool,
}

impl Drop for HiddenBar {
    fn drop(&mut self) {
        if !self.hidden {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(12));
        }
    }
}

/// A lost link. The loss is reported, then the first failed try, which has the reason, then further
/// ones at growing intervals.
struct LinkLoss {
    since: Instant,
    reports: u32,
}

impl LinkLoss {
    fn new() -> Self {
        Self { since: Instant::now(), reports: 0 }
    }

    /// Whether a failed try is to be reported now; it counts as reported then.
    fn is_due(&mut self) -> bool {
        let after = match self.reports {
            0 | 1 => Duration::ZERO,
            reports => FIRST_LOSS_INTERVAL * 2_u32.saturating_pow(reports - 2),
        };
        let is_due = self.since.elapsed() >= after;
        self.reports += u32::from(is_due);
        is_due
    }
}

/// Answers the connection's questions and shows its messages.
struct TerminalPrompt {
    verbose: bool,
    /// Whether somebody can answer at the terminal.
    attended: bool,
    /// The fingerprint of the key that was agreed to before. Nobody is asked then.
    accepted_key: Option<String>,
    /// The reporter, and the loss of a link that is not back yet.
    reporter: Mutex<(SharedReporter, Option<LinkLoss>)>,
    /// Suspended while something else is on the screen: it would erase a question.
    bar: ProgressBar,
}

impl UserPrompt for TerminalPrompt {
    fn ask_host_key(&self, question: &HostKeyQuestion) -> bool {
        if let Some(accepted) = &self.accepted_key {
            return question.fingerprint == *accepted;
        }
        self.bar.suspend(|| {
            write_stderr(&format!(
                "the host {} is unknown\n  {} key {}\nAccept the key and store it in {}? [y/N] ",
                one_line(&question.host),
                one_line(&question.algorithm),
                one_line(&question.fingerprint),
                question.file.display()
            ));
            let mut answer = String::new();
            let read = std::io::stdin().lock().read_line(&mut answer);
            read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
        })
    }

    fn is_attended(&self) -> bool {
        self.attended
    }

    fn own_ssh(&self, why: &str) -> Box<dyn Send> {
        if !self.attended {
            self.verbose(&format!("your own ssh logs in: {why}"));
            return Box::new(());
        }
        self.bar.suspend(|| {
            write_stderr(&format!(
                "your own ssh logs in ({}); it may ask for a password, or wait until you touch \
                 your security key\n",
                one_line(why)
            ));
        });
        // Redrawing the bar would erase the question.
        let hidden = self.bar.is_hidden();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
        Box::new(HiddenBar { bar: self.bar.clone(), hidden })
    }

    fn verbose(&self, line: &str) {
        if self.verbose {
            self.bar.suspend(|| write_stderr(&format!("  | {}\n", indent_continuation(line, 4))));
        }
    }

    fn starting(&self, what: &str) {
        let mut shared = self.reporter.lock().unwrap_or_else(PoisonError::into_inner);
        shared.0.report(&RunEvent::Starting { what });
    }

    fn link_lost(&self, error: &RemoteError, wait: Duration) {
        let mut shared = self.reporter.lock().unwrap_or_else(PoisonError::into_inner);
        let (reporter, loss) = &mut *shared;
        let loss = loss.get_or_insert_with(LinkLoss::new);
        if loss.is_due() || self.verbose {
            let why = chain(error);
            reporter.report(&RunEvent::LinkLost { why, retry_s: wait.as_secs() });
        }
    }

    fn link_back(&self) {
        let mut shared = self.reporter.lock().unwrap_or_else(PoisonError::into_inner);
        shared.1 = None;
        shared.0.report(&RunEvent::LinkBack {});
    }
}

pub(in crate::cli) fn is_local(spec: &RemoteSpec) -> bool {
    spec.name == LOCAL || spec.url == LOCAL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tries_are_told_at_first_and_then_at_growing_intervals() {
        let mut loss = LinkLoss::new();
        let mut told_at = Vec::new();
        for second in 0..200 {
            if loss.is_due() {
                told_at.push(second);
            }
            loss.since -= Duration::from_secs(1);
        }
        assert_eq!(told_at, [0, 1, 10, 20, 40, 80, 160]);
    }
}
