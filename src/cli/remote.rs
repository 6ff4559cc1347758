//! `rgpu remote`: the GPU hosts the user has.

mod rent;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use rgpu_protocol::HostFacts;
use serde::Serialize;

use super::app::{App, Status};
use super::progress::Live;
use super::session::{self, Voice};
use super::terminal::safe;
use crate::config::LOCAL;
use crate::error::{Exit, Failure, Result};
use crate::remote::{Price, RemoteSpec, Transport, without_secret};
use crate::report::{Align, Grid, wrap};
use crate::run::{Reporter, Said};

/// Name, list and check the GPU hosts you have
#[derive(Subcommand, Clone, Debug)]
pub(super) enum RemoteCommand {
    /// Name a host: rgpu remote add h200 ssh://root@gpu-box:2222
    Add(Box<AddArgs>),
    /// List the remotes; of rented ones also how they stand
    List,
    /// Log in to a platform: rgpu remote login wafer
    Login {
        /// The platform, or a remote of it
        platform: String,
    },
    /// Make a rented remote where it is not there, and wait until it runs
    Up {
        /// Its name
        name: String,
    },
    /// Destroy a rented remote with all that lies there
    Down {
        /// Its name
        name: String,

        /// Without asking
        #[arg(long)]
        yes: bool,
    },
    /// Connect, and say what the host has, in seconds
    Check(CheckArgs),
    /// Use this remote when --remote is not given
    Default {
        /// Its name
        name: String,
    },
    /// Forget a remote
    Remove {
        /// Its name
        name: String,
    },
}

/// `remote add`.
#[derive(Args, Clone, Debug)]
pub(super) struct AddArgs {
    /// What you call it
    pub name: String,

    /// Where it is: ssh://user@host:port, an alias of ~/.ssh/config, https://host of a worker, or
    /// `modal` with --url, or `wafer` with --workspace
    #[arg(value_name = "URL")]
    pub at: String,

    /// The address of your app, as `modal deploy` printed it
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,

    #[command(flatten)]
    pub wafer: rent::WaferArgs,

    /// The key file to log in with
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,

    /// Hosts to go through, as ssh's ProxyJump
    #[arg(long, value_name = "HOSTS")]
    pub jump: Option<String>,

    /// Which ssh client: auto, builtin, or openssh (your own `ssh`)
    #[arg(long, value_name = "CLIENT")]
    pub transport: Option<Transport>,

    /// A folder on the host where tools are looked for before PATH
    #[arg(long, value_name = "DIR")]
    pub path: Vec<String>,

    /// A variable for everything that runs there
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,

    /// What the agent is started through, e.g. "docker exec -i C"
    #[arg(long, value_name = "COMMAND")]
    pub via: Option<String>,

    /// The variable that holds a worker's token
    #[arg(long, value_name = "VARIABLE")]
    pub token_env: Option<String>,

    /// The file that holds a worker's token
    #[arg(long, value_name = "FILE", conflicts_with = "token_env")]
    pub token_file: Option<PathBuf>,

    /// The variable that holds the key of a proxy token [default: MODAL_KEY]
    #[arg(long, value_name = "VARIABLE")]
    pub key_env: Option<String>,

    /// The variable that holds its secret [default: MODAL_SECRET]
    #[arg(long, value_name = "VARIABLE")]
    pub secret_env: Option<String>,

    /// A file of mode 0600 with these variables
    #[arg(long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,

    /// The keychain's service that holds them, as `modal-key` and `modal-secret`; of a worker as
    /// `token`
    #[arg(long, value_name = "SERVICE", conflicts_with_all = ["env_file", "token_env", "token_file"])]
    pub keychain: Option<String>,

    /// A file of certificates to trust besides the system's
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// Send the token also where it can be read on the way
    #[arg(long)]
    pub allow_plain_http: bool,

    /// What it costs in US dollars an hour; runs then say what they cost
    #[arg(long, value_name = "USD")]
    pub price_per_hour: Option<Price>,

    /// Connect now, and accept the key of a host never seen before
    #[arg(long)]
    pub accept_new: bool,

    /// Use it when --remote is not given
    #[arg(long)]
    pub default: bool,
}

/// `remote check`.
#[derive(Args, Clone, Debug)]
pub(super) struct CheckArgs {
    /// A remote [default: the default remote]
    pub name: Option<String>,

    /// Accept the key of a host never seen before
    #[arg(long)]
    pub accept_new: bool,
}

/// Runs a `remote` command.
pub(super) fn run(app: &App, command: &RemoteCommand) -> Result<Status> {
    match command {
        RemoteCommand::Add(args) => add(app, args),
        RemoteCommand::List => list(app),
        RemoteCommand::Login { platform } => rent::login(app, platform),
        RemoteCommand::Up { name } => rent::up(app, name),
        RemoteCommand::Down { name, yes } => rent::down(app, name, *yes),
        RemoteCommand::Check(args) => {
            let spec = session::spec(app, args.name.as_deref())?;
            check(app, spec, args.accept_new)
        }
        RemoteCommand::Default { name } => {
            known(app, name)?;
            app.config.set_default(name)?;
            app.say(&format!("`{name}` is the default remote"));
            Ok(0)
        }
        RemoteCommand::Remove { name } => {
            if !app.config.remove_remote(name)? {
                known(app, name)?;
            }
            app.say(&format!("`{name}` is forgotten"));
            Ok(0)
        }
    }
}

/// A remote that is defined, or the error that names the nearest.
fn known(app: &App, name: &str) -> Result<RemoteSpec> {
    app.config.remote(name, |_| false)
}

fn add(app: &App, args: &AddArgs) -> Result<Status> {
    if !crate::kernel::valid_name(&args.name) || args.name == LOCAL {
        let why = if args.name == LOCAL {
            "it is this machine"
        } else {
            "use letters, digits, `.`, `_` and `-`"
        };
        return Err(Failure::new(
            Exit::Usage,
            "bad_name",
            format!("`{}` cannot be a remote's name: {why}", args.name),
        ));
    }
    let url = address(args)?;
    // Adding a remote again changes what is said now and keeps the rest.
    let known = app.config.remotes.get(&args.name);
    let mut spec = known.cloned().unwrap_or_else(|| RemoteSpec::new(&args.name, &url));
    spec.url.clone_from(&url);
    if let Some(path) = &args.identity {
        let path = std::path::absolute(path).map_err(|e| {
            Failure::new(Exit::Config, "bad_identity", "the key file cannot be found")
                .file(path.display())
                .cause(e)
        })?;
        if !path.is_file() {
            return Err(Failure::new(Exit::Config, "bad_identity", "the key file is not there")
                .file(path.display()));
        }
        spec.identity = Some(path);
    }
    if args.jump.is_some() {
        spec.jump.clone_from(&args.jump);
    }
    if let Some(transport) = args.transport {
        spec.transport = transport;
    }
    if args.price_per_hour.is_some() {
        spec.price_per_hour = args.price_per_hour;
    }
    if !args.path.is_empty() {
        spec.path.clone_from(&args.path);
    }
    for pair in &args.env {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Failure::new(
                Exit::Usage,
                "usage",
                format!("`--env {pair}`: write NAME=VALUE"),
            ));
        };
        spec.env.insert(name.to_owned(), value.to_owned());
    }
    if let Some(via) = &args.via {
        spec.via = shlex::split(via).ok_or_else(|| {
            Failure::new(Exit::Usage, "usage", format!("`--via {via}`: a quote is not closed"))
        })?;
    }
    worker_options(app, args, &mut spec)?;
    args.wafer.settings(&mut spec);
    // What is wrong with an address is said before it is kept.
    spec.open().map_err(|e| e.failure(&spec.name, spec.scheme()))?;
    app.config.add_remote(&args.name, &spec, args.default)?;
    let verb = if known.is_some() { "is changed:" } else { "is" };
    app.say(&format!("`{}` {verb} {url}", args.name));
    if args.accept_new {
        return check(app, spec, true);
    }
    let next =
        if spec.open().is_ok_and(|remote| remote.rented().is_some()) { "up" } else { "check" };
    app.say(&format!("next: rgpu remote {next} {}", args.name));
    Ok(0)
}

/// The address as settings keep it.
fn address(args: &AddArgs) -> Result<String> {
    let wrong = |what: &str| Err(Failure::new(Exit::Usage, "usage", what));
    [Some(&args.at), args.url.as_ref()]
        .into_iter()
        .flatten()
        .try_for_each(|a| without_secret(a))?;
    if args.at == "wafer" || args.wafer.workspace.is_some() {
        return match (args.at.as_str(), &args.wafer.workspace) {
            ("wafer", Some(workspace)) => Ok(format!("wafer://{workspace}")),
            _ => wrong("write `rgpu remote add NAME wafer --workspace WORKSPACE`"),
        };
    }
    match (args.at.as_str(), &args.url) {
        ("modal", Some(url)) => {
            crate::remote::modal::address(url).map_err(|e| e.failure(&args.name, "modal"))
        }
        ("modal", None) => {
            wrong("write `modal --url URL`, with the address that `modal deploy` printed")
        }
        (_, Some(_)) => {
            wrong("`--url` goes with a platform: `rgpu remote add NAME modal --url URL`")
        }
        (url, None) => Ok(url.to_owned()),
    }
}

/// The settings of a worker, and of what speaks as one.
///
/// # Errors
/// A variable's name that cannot be one.
fn worker_options(app: &App, args: &AddArgs, spec: &mut RemoteSpec) -> Result<()> {
    let names = [
        ("--token-env", &args.token_env),
        ("--key-env", &args.key_env),
        ("--secret-env", &args.secret_env),
    ];
    for (flag, name) in names {
        let first = |name: &str| name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let rest = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.as_ref().is_some_and(|name| !first(name) || !rest(name)) {
            // What is no name may be the secret itself, so it is not shown again.
            let what = format!("`{flag}` takes the name of a variable, not what is in it");
            return Err(Failure::new(Exit::Usage, "bad_variable", what)
                .hint(format!("export BOX_TOKEN=…; rgpu remote add … {flag} BOX_TOKEN")));
        }
    }
    let mut set = |key: &str, value: String| spec.options.insert(key.to_owned(), value);
    if let Some(name) = &args.token_env {
        set("token_env", name.clone());
    }
    if let Some(path) = &args.token_file {
        set("token_file", app.cwd.join(path).display().to_string());
    }
    if let Some(name) = &args.key_env {
        set("key_env", name.clone());
    }
    if let Some(name) = &args.secret_env {
        set("secret_env", name.clone());
    }
    if let Some(path) = &args.env_file {
        set("env_file", app.cwd.join(path).display().to_string());
    }
    if let Some(service) = &args.keychain {
        set("keychain", service.clone());
    }
    if let Some(path) = &args.ca_file {
        set("ca_file", app.cwd.join(path).display().to_string());
    }
    if args.allow_plain_http {
        set("allow_plain_http", "yes".to_owned());
    }
    // One way to a token: the one said last.
    let gone: &[&str] = match (&args.token_env, &args.token_file) {
        (Some(_), _) => &["token_file", "keychain"],
        (_, Some(_)) => &["token_env", "keychain"],
        (None, None) => match (&args.env_file, &args.keychain) {
            (Some(_), _) => &["keychain"],
            (_, Some(_)) => &["env_file", "token_env", "token_file"],
            (None, None) if args.key_env.is_some() => &["env_file", "keychain"],
            (None, None) => &[],
        },
    };
    for gone in gone {
        spec.options.remove(*gone);
    }
    Ok(())
}

/// A remote in `remote list --json`.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    url: &'a str,
    default: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    price_per_hour: Option<Price>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rental: Option<rent::Stood>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostFacts>,
}

fn list(app: &App) -> Result<Status> {
    let local = RemoteSpec::local();
    let now = jiff::Timestamp::now().as_second();
    let specs: Vec<&RemoteSpec> = app.config.remotes.values().chain([&local]).collect();
    let lines: Vec<Line<'_>> = rent::states(app, &specs)?
        .into_iter()
        .zip(specs)
        .map(|(rental, spec)| Line {
            name: &spec.name,
            url: &spec.url,
            default: spec.name == app.config.default_remote.value,
            price_per_hour: spec.price_per_hour,
            rental,
            host: session::facts_cache(app, spec).load(now),
        })
        .collect();
    if app.global.json {
        app.print_json(&lines)?;
        return Ok(0);
    }
    let mut grid = Grid::new(&[
        ("", Align::Left),
        ("remote", Align::Left),
        ("address", Align::Left),
        ("state", Align::Left),
        ("last seen with", Align::Left),
    ]);
    for line in &lines {
        grid.row([
            if line.default { "*".to_owned() } else { String::new() },
            line.name.to_owned(),
            line.url.to_owned(),
            line.rental.as_ref().map(rent::Stood::words).unwrap_or_default(),
            line.host.as_ref().map(gpus).unwrap_or_default(),
        ]);
    }
    app.print(&grid.without_empty_columns().fitted(app.columns(), 0));
    Ok(0)
}

/// The GPUs of a host in a few words.
pub(super) fn gpus(host: &HostFacts) -> String {
    if host.gpus.is_empty() {
        return "no GPU".to_owned();
    }
    let mut names: Vec<(String, u32)> = Vec::new();
    for gpu in &host.gpus {
        match names.iter_mut().find(|(name, _)| *name == gpu.name) {
            Some((_, n)) => *n += 1,
            None => names.push((gpu.name.clone(), 1)),
        }
    }
    let list: Vec<String> = names
        .into_iter()
        .map(|(name, n)| if n > 1 { format!("{n} × {name}") } else { name })
        .collect();
    safe(list.join(", ").as_bytes())
}

fn check(app: &App, spec: RemoteSpec, accept_new: bool) -> Result<Status> {
    let name = spec.name.clone();
    let voice = Voice { live: Live::Hidden, events: None, accept_new, run: "", row: None };
    let begun = Instant::now();
    let facts = app.block_on(async {
        let mut open = session::open(app, spec, voice).await?;
        let cache = session::facts_cache(app, &open.spec);
        let now = jiff::Timestamp::now().as_second();
        let facts = open.ask(&cache, now).await;
        open.reporter.say(&Said::Finished { exit: 0 });
        open.follow.close().await;
        facts
    })?;
    if app.global.json {
        app.print_json(&facts)?;
        return Ok(0);
    }
    app.print(&host_text(&name, &facts, begun.elapsed().as_secs_f64(), app.columns()));
    Ok(0)
}

/// A host in a few lines of `width` columns.
pub(super) fn host_text(name: &str, facts: &HostFacts, seconds: f64, width: usize) -> String {
    let clean = |text: &str| safe(text.as_bytes());
    let agent = &facts.agent;
    let head = format!(
        "{name}  {} ({}, {} CPUs, {}), as {}  [{seconds:.1} s]",
        clean(&agent.os),
        clean(&agent.arch),
        agent.cpus,
        crate::report::bytes(agent.memory_bytes as f64),
        clean(&agent.user),
    );
    let mut out = lines(&head, width, "  ");
    for gpu in &facts.gpus {
        let line = format!(
            "  GPU {}      {}, {}, sm_{}  {}",
            gpu.index,
            clean(&gpu.name),
            crate::report::bytes(gpu.memory_bytes as f64),
            gpu.sm,
            clean(&gpu.uuid),
        );
        out += &lines(&line, width, "             ");
    }
    match &facts.driver {
        Some(driver) => {
            let cuda =
                facts.cuda.as_deref().map(|c| format!(", CUDA {}", clean(c))).unwrap_or_default();
            out += &format!("  driver     {}{cuda}\n", clean(driver));
        }
        None => out += "  driver     none: no GPU work can run there\n",
    }
    let mut grid =
        Grid::new(&[("tool", Align::Left), ("version", Align::Left), ("path", Align::Left)]);
    for tool in &facts.tools {
        grid.row([clean(&tool.name), clean(&tool.version), clean(&tool.path)]);
        for problem in &tool.problems {
            grid.row([String::new(), String::new(), clean(problem)]);
        }
    }
    out += "\n";
    out += &grid.fitted(width, 2);
    out
}

/// A line wrapped at blanks; those that follow begin with `indent`.
fn lines(text: &str, width: usize, indent: &str) -> String {
    let wrapped = wrap(text, width.saturating_sub(indent.len()));
    let mut out = String::new();
    for (at, line) in wrapped.iter().enumerate() {
        out += &format!("{}{line}\n", if at == 0 { "" } else { indent });
    }
    out
}
