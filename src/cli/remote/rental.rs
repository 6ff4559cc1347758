//! `rgpu remote up`, `down` and `login`: handles rented remotes.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::super::support::app::{App, GlobalArgs, Status};
use super::super::support::session;
use super::super::support::terminal::{escape_controls, write_stderr};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_remote::{
    ConnectOptions, HostKeyQuestion, HostRequest, OnRemote, Remote, RemoteSpec, Rental,
    UnknownHostPolicy, UserPrompt, wafer,
};
use rgpu_report::usd;
use rgpu_run::config::LOCAL;

/// How long a platform may take to report a remote's state for a list.
const STATE_TIMEOUT: Duration = Duration::from_secs(10);

/// The output of `remote up` and `remote down` with `--json` (`rgpu.rental/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct RentalStatus<'a> {
    /// Name and version of this schema: `rgpu.rental/1`.
    schema: &'static str,
    /// The name of the remote.
    name: &'a str,
    #[serde(flatten)]
    rental: Rental,
}

impl<'a> RentalStatus<'a> {
    fn new(name: &'a str, rental: Rental) -> Self {
        Self { schema: "rgpu.rental/1", name, rental }
    }
}

/// The output of `remote login --json` (`rgpu.login/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct Login {
    /// Name and version of this schema: `rgpu.login/1`.
    schema: &'static str,
    /// The user's e-mail address, or their id if there is none.
    who: String,
    /// The file that stores the login.
    file: String,
}

/// Prints each status message once.
struct StatusPrinter {
    quiet: bool,
    verbose: bool,
    last: Mutex<String>,
}

impl StatusPrinter {
    fn new(app: &App) -> Self {
        let GlobalArgs { quiet, verbose, .. } = app.global;
        Self { quiet, verbose: verbose > 0 && !quiet, last: Mutex::default() }
    }
}

impl UserPrompt for StatusPrinter {
    fn ask_host_key(&self, _: &HostKeyQuestion) -> bool {
        false
    }

    fn verbose(&self, line: &str) {
        if self.verbose {
            write_stderr(&format!("{}\n", escape_controls(line.as_bytes())));
        }
    }

    fn starting(&self, what: &str) {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *last != what && !self.quiet {
            write_stderr(&format!("{}\n", escape_controls(what.as_bytes())));
            what.clone_into(&mut last);
        }
    }
}

/// Options of a connection to a platform or a cluster's login node. Without our agent's program,
/// only a cluster cannot be asked, and says so.
fn connect_options(app: &App) -> ConnectOptions {
    ConnectOptions {
        agent: session::programs(app).map(|programs| programs.agent).unwrap_or_default(),
        unknown_host_policy: UnknownHostPolicy::Refuse,
        user_prompt: Arc::new(StatusPrinter::new(app)),
        run: String::new(),
        host_request: HostRequest::default(),
    }
}

/// `remote up`: creates the remote if needed, and waits until it runs.
pub(super) fn up(app: &App, name: &str) -> Result<Status> {
    let (spec, remote) = open(app, name)?;
    let options = connect_options(app);
    let rental = app.block_on(async {
        match remote.rented() {
            Some(rented) => rented.up(&options).await.on(&*remote),
            // A deployed app is not created again, only woken and checked.
            None => match remote.check_deployed_app(&*options.user_prompt).await.on(&*remote)? {
                Some(version) => Ok(Rental {
                    state: "running".to_owned(),
                    version: Some(version),
                    ..Rental::default()
                }),
                None => Err(not_rented(&spec, RentalRequest::Up)),
            },
        }
    })?;
    if app.global.json {
        app.print_json(&RentalStatus::new(&spec.name, rental))?;
        return Ok(0);
    }
    if let Some(version) = &rental.version {
        let version = escape_controls(version.as_bytes());
        app.print_note(&format!("`{}` answers, with an app of rgpu {version}", spec.name));
        app.print_note(&format!("next: rgpu remote check {}", spec.name));
        return Ok(0);
    }
    app.print_note(&format!("`{}` is {}", spec.name, words(&rental)));
    app.print_note(&format!(
        "next: rgpu remote check {}; rgpu remote down {0} gives it back",
        spec.name
    ));
    Ok(0)
}

/// `remote down`: destroys the remote after the user agrees.
pub(super) fn down(app: &App, name: &str, yes: bool) -> Result<Status> {
    let (spec, remote) = open(app, name)?;
    if remote.rented().is_none() {
        return Err(not_rented(&spec, RentalRequest::Down));
    }
    if !yes && !confirm(&spec)? {
        app.print_note("nothing was done");
        return Ok(0);
    }
    let was_destroyed = app.block_on(async {
        match remote.rented() {
            Some(rented) => rented.down(&connect_options(app)).await.on(&*remote),
            None => Err(not_rented(&spec, RentalRequest::Down)),
        }
    })?;
    if app.global.json {
        let state = if was_destroyed { "destroyed" } else { "absent" }.to_owned();
        app.print_json(&RentalStatus::new(&spec.name, Rental { state, ..Rental::default() }))?;
        return Ok(0);
    }
    app.print_note(&match (was_destroyed, spec.scheme()) {
        (true, "slurm") => format!("the node of `{}` is given back", spec.name),
        (false, "slurm") => format!("no node of `{}` was kept", spec.name),
        (true, _) => format!("`{}` is destroyed", spec.name),
        (false, _) => format!("`{}` does not exist", spec.name),
    });
    Ok(0)
}

/// `remote login`: logs in to a platform, given by its name or by one of its remotes.
pub(super) fn login(app: &App, what: &str) -> Result<Status> {
    let is_wafer = match app.config.remotes.get(what) {
        Some(spec) => spec.scheme() == "wafer",
        None => what == "wafer",
    };
    if !is_wafer {
        return Err(Failure::new(Exit::Usage, "no_login", format!("`{what}` has no login"))
            .hint("platforms with a login: wafer"));
    }
    let show = |url: &str| {
        let url = escape_controls(url.as_bytes());
        app.print_note(&format!(
            "open this page in any browser and log in there:\n  {url}\nwaiting for \
                          the login …"
        ));
    };
    let done = app.block_on(async {
        let done = wafer::login(&show).await;
        done.map_err(|e| rgpu_remote::RemoteError::from(e).failure("wafer", "wafer"))
    })?;
    if app.global.json {
        app.print_json(&Login { schema: "rgpu.login/1", who: done.who, file: done.file })?;
        return Ok(0);
    }
    app.print_note(&format!(
        "logged in as {}; kept in {}",
        escape_controls(done.who.as_bytes()),
        done.file
    ));
    Ok(0)
}

/// The state of each rented remote, or why it is unknown. `None` for others.
pub(super) fn states(app: &App, specs: &[RemoteSpec]) -> Result<Vec<Option<RentalState>>> {
    app.block_on(async {
        let mut all = Vec::new();
        for spec in specs {
            let Ok(remote) = spec.open() else {
                all.push(None);
                continue;
            };
            let Some(rented) = remote.rented() else {
                all.push(None);
                continue;
            };
            let options = connect_options(app);
            all.push(Some(
                match tokio::time::timeout(STATE_TIMEOUT, rented.state(&options)).await {
                    Ok(Ok(rental)) => RentalState::Known(rental),
                    Ok(Err(error)) => RentalState::Unknown {
                        error: error.failure(&spec.name, remote.transport()),
                    },
                    Err(_) => RentalState::Unknown {
                        error: Failure::new(
                            Exit::Host,
                            "no_answer",
                            format!("no answer in {} s", STATE_TIMEOUT.as_secs()),
                        ),
                    },
                },
            ));
        }
        Ok(all)
    })
}

/// The state of a rented remote, if its platform reports one.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum RentalState {
    /// The state that the platform reports.
    Known(Rental),
    /// The platform did not report a state.
    Unknown {
        /// Why the state is unknown.
        error: Failure,
    },
}

impl RentalState {
    /// The state in a few words.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Known(rental) => words(rental),
            Self::Unknown { error } => escape_controls(error.what.as_bytes()),
        }
    }
}

fn words(rental: &Rental) -> String {
    let mut text = rental.state.clone();
    if let Some(gpu) = &rental.gpu {
        text += &format!(", {gpu}");
    }
    if let Some(ssh) = &rental.ssh {
        text += &format!(", {ssh}");
    }
    if let Some(left) = rental.credits.as_ref().and_then(|credits| credits.left_usd) {
        text += &format!(", {} left", usd(left));
    }
    escape_controls(text.as_bytes())
}

fn open(app: &App, name: &str) -> Result<(RemoteSpec, Box<dyn Remote>)> {
    let spec = session::spec(app, Some(name))?;
    let remote = spec.open().map_err(|e| e.failure(&spec.name, spec.scheme()))?;
    Ok((spec, remote))
}

/// A request that needs a rented remote.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RentalRequest {
    Up,
    Down,
}

/// The failure for a remote that rgpu neither creates nor destroys, with the alternative.
fn not_rented(spec: &RemoteSpec, request: RentalRequest) -> Failure {
    let RemoteSpec { name, url, .. } = spec;
    let message = format!("`{name}` is {url}: rgpu neither makes nor destroys it");
    let failure = Failure::new(Exit::Usage, "not_rented", message);
    let failure = match (request, spec.scheme()) {
        (RentalRequest::Up, "http" | "https") => {
            failure.hint("start the worker on its machine: rgpu worker --token-file FILE")
        }
        (RentalRequest::Up, "local") => failure,
        (RentalRequest::Up, _) => failure.hint("such a host is not created by rgpu"),
        (RentalRequest::Down, "modal" | "modal+http") => {
            failure.hint("stop its app: modal app stop rgpu")
        }
        (RentalRequest::Down, "http" | "https") => {
            failure.hint("stop the worker on its machine: Ctrl-C, or SIGTERM to `rgpu worker`")
        }
        (RentalRequest::Down, _) => failure,
    };
    match request {
        RentalRequest::Up => {
            failure.hint(format!("see whether it answers: rgpu remote check {name}"))
        }
        RentalRequest::Down if spec.name == LOCAL || name == url => failure,
        RentalRequest::Down => {
            failure.hint(format!("take it off your list: rgpu remote remove {name}"))
        }
    }
}

/// Asks at the terminal. Without a terminal nothing is destroyed.
fn confirm(spec: &RemoteSpec) -> Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let message = match spec.scheme() {
            "slurm" => format!("jobs on the kept node of `{}` would be ended", spec.name),
            _ => format!("`{}` and all its data would be destroyed", spec.name),
        };
        return Err(Failure::new(Exit::Usage, "not_agreed", message)
            .hint(format!("to confirm: `rgpu remote down {} --yes`", spec.name)));
    }
    let question = match spec.scheme() {
        "slurm" => "Give back the node that is kept at",
        _ => "Destroy, with all its data,",
    };
    write_stderr(&format!("{question} `{}` ({})? [y/N] ", spec.name, spec.url));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    Ok(read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}
