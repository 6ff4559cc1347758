//! `rgpu remote add`: checks a remote's settings and saves them.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::kind_settings::KindSettings;
use super::{check, list};
use crate::cli::doctor;
use crate::cli::support::app::{App, Status};
use crate::cli::support::session;
use rgpu_model::error::{Exit, Failure, Result, nearest};
use rgpu_remote::{
    AddressFlag, Price, REMOTES, Remote, RemoteKind, RemoteSpec, Transport, without_secret,
};
use rgpu_run::config::LOCAL;

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct AddArgs {
    /// The name for it
    pub name: String,

    /// Its address: ssh://user@host:port, an alias of ~/.ssh/config, https://host of a worker, or
    /// `slurm` with --login, `modal` with --url, or `wafer` with --workspace
    #[arg(value_name = "URL")]
    pub at: String,

    /// The key file to log in with
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,

    /// Hosts to go through, as ssh's ProxyJump
    #[arg(long, value_name = "HOSTS")]
    pub jump: Option<String>,

    /// Which ssh client: auto, builtin, or openssh (your own `ssh`)
    #[arg(long, value_name = "CLIENT")]
    pub transport: Option<Transport>,

    /// A folder on the host to search for tools before PATH
    #[arg(long, value_name = "DIR", value_hint = ValueHint::Other)]
    pub path: Vec<String>,

    /// An environment variable for everything that runs there
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,

    /// A command to start the agent through, e.g. "docker exec -i C"
    #[arg(long, value_name = "COMMAND")]
    pub via: Option<String>,

    /// Its price in US dollars per hour; runs then show their cost
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub price_per_hour: Option<Price>,

    /// Connect now, and accept the key of an unknown host
    #[arg(long)]
    pub accept_new: bool,

    /// Use it when --remote is not given
    #[arg(long)]
    pub default: bool,

    /// Do not check the host's tools now (checked only at a terminal)
    #[arg(long)]
    pub no_doctor: bool,

    #[command(flatten)]
    pub kind: KindSettings,
}

/// Runs `remote add`: checks the address and writes the remote to the user's settings. At a
/// terminal it ends with what works there.
pub(super) fn add(app: &App, args: &AddArgs) -> Result<Status> {
    if !rgpu_plan::kernel::valid_name(&args.name) || args.name == LOCAL {
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
    // Adding a remote again changes only the given settings.
    let known = app.config.remotes.get(&args.name);
    let new_spec = RemoteSpec::new(&args.name, &url);
    // Settings of one kind of remote mean nothing to another.
    let kind = |spec: &RemoteSpec| spec.scheme().replace("https", "http");
    let previous = known.filter(|known| kind(known) == kind(&new_spec));
    let mut spec = previous.cloned().unwrap_or(new_spec);
    spec.url.clone_from(&url);
    if let Some(path) = &args.identity {
        let path = std::path::absolute(path).map_err(|e| {
            Failure::new(Exit::Config, "bad_identity", "the key file cannot be found")
                .file(path.display())
                .cause(e)
        })?;
        if !path.is_file() {
            return Err(Failure::new(Exit::Config, "bad_identity", "the key file does not exist")
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
    args.kind.apply(app, &mut spec)?;
    // Report a wrong address before saving it.
    spec.open().map_err(|e| e.failure(&spec.name, spec.scheme()))?;
    args.kind.check(app, &spec)?;
    app.config.add_remote(&args.name, &spec, args.default)?;
    let verb = match known {
        Some(known) if *known == spec => "is, as before,",
        Some(_) => "is changed:",
        None => "is",
    };
    app.print_note(&format!("`{}` {verb} {url}", args.name));
    if args.default {
        app.print_note("it is the default remote now");
    }
    if is_unknown_word(&spec) {
        app.print_note(&format!(
            "warning: `{url}` is no alias of ~/.ssh/config, so it is taken for the name of a host; \
             an address is written ssh://user@host:port"
        ));
    }
    // Settings of one host may not suit another.
    let unchanged_settings = previous
        .filter(|previous| previous.url != url)
        .map(|previous| unchanged_settings(previous, &spec));
    if let Some(unchanged_settings) =
        unchanged_settings.filter(|unchanged_settings| !unchanged_settings.is_empty())
    {
        app.print_note(&format!(
            "it keeps its earlier settings: {}; to start over: rgpu remote remove {}",
            unchanged_settings.join(", "),
            args.name
        ));
    }
    // Remotes that are created or deployed first are woken and checked before anything runs there.
    let needs_up = |remote: &dyn Remote| remote.rented().is_some() || remote.transport() == "modal";
    // A cluster starts nodes by itself, which may take hours.
    let is_cluster = spec.scheme() == "slurm";
    let needs_up = !is_cluster && spec.open().is_ok_and(|remote| needs_up(&*remote));
    let can_wait = app.is_attended() && !app.global.json && !app.global.quiet;
    let tries_tools = can_wait && !args.no_doctor && !needs_up && !is_cluster;
    if args.accept_new {
        let accept = check::CheckArgs { remote: None, accept_new: true, host_key: None };
        check::check(app, spec.clone(), &accept)?;
    }
    if tries_tools {
        app.print_note("trying its tools; Ctrl-C skips this");
        match doctor::summary(app, spec) {
            Ok(text) => app.print_note(&text),
            Err(failure) => {
                app.print_note(&format!("its tools were not tried: {}", failure.what));
                if let Some(hint) = failure.hints.first() {
                    app.print_note(&format!("help: {hint}"));
                }
                app.print_note(&format!("next: rgpu doctor {}", args.name));
            }
        }
    } else if !args.accept_new {
        let next = if needs_up { "up" } else { "check" };
        app.print_note(&format!("next: rgpu remote {next} {}", args.name));
    }
    let used = &app.config.default_remote.value;
    if can_wait && !args.default && *used != args.name {
        app.print_note(&format!(
            "commands without `--remote` use `{used}`; to change that: rgpu remote default {}",
            args.name
        ));
    }
    if args.accept_new { Ok(0) } else { list::print_settings(app) }
}

/// Whether the address is one word that names no alias of ssh, as a mistyped one does.
fn is_unknown_word(spec: &RemoteSpec) -> bool {
    spec.scheme() == "ssh"
        && !spec.url.contains(['.', ':', '/', '@'])
        && !session::ssh_aliases().contains(&spec.url)
}

/// The settings, besides the address, that did not change.
fn unchanged_settings(previous: &RemoteSpec, now: &RemoteSpec) -> Vec<String> {
    let settings = |spec| toml::Table::try_from(spec).unwrap_or_default();
    let (previous, now) = (settings(previous), settings(now));
    let same = previous.into_iter().filter(|(key, value)| now.get(key) == Some(value));
    same.map(|(key, _)| key).filter(|key| key != "url").collect()
}

/// The address as saved in the settings.
fn address(args: &AddArgs) -> Result<String> {
    let AddArgs { name, at, .. } = args;
    without_secret(at)?;
    let usage = |what: String| Failure::new(Exit::Usage, "usage", what);
    let example =
        |kind: &RemoteKind| format!("{}: rgpu remote add {name} {}", kind.what, kind.example);
    let platform = platforms().find(|(kind, _)| kind.scheme == at.as_str());
    let kind = match platform {
        Some((kind, _)) => Some(kind),
        None => RemoteSpec::new(name, at).kind(),
    };
    if platform.is_none()
        && let Some(similar) = similar_platform(at)
    {
        let what = format!("there is no platform `{at}`: did you mean `{}`?", similar.scheme);
        return Err(Failure::new(Exit::Usage, "unknown_platform", what)
            .hint(example(similar))
            .hint(format!("a host of that name: rgpu remote add {name} ssh://{at}")));
    }
    if let Some((flag, owner)) = args.kind.first_foreign(kind) {
        let what = format!("`--{flag}` belongs to {}, and `{at}` is none", owner.what);
        return Err(usage(what).hint(example(owner)));
    }
    let Some((kind, place)) = platform else { return Ok(at.clone()) };
    match args.kind.get(place.setting.flag) {
        None => {
            Err(usage(format!("{} needs `--{}`", kind.what, place.setting.flag))
                .hint(example(kind)))
        }
        Some(value) => {
            without_secret(value)?;
            (place.address)(value).map_err(|error| error.failure(name, kind.scheme))
        }
    }
}

/// The kinds whose scheme can be given instead of an address, with the flag that has it.
fn platforms() -> impl Iterator<Item = (&'static RemoteKind, &'static AddressFlag)> {
    REMOTES.iter().filter_map(|kind| Some((kind, kind.address.as_ref()?)))
}

/// The platform probably meant by a word that is neither an address nor an ssh host.
fn similar_platform(at: &str) -> Option<&'static RemoteKind> {
    let known = || session::ssh_aliases().iter().any(|alias| alias == at);
    if at.len() < 4 || !at.chars().all(char::is_alphabetic) || known() {
        return None;
    }
    let near = nearest(at, platforms().map(|(kind, _)| kind.scheme));
    platforms().map(|(kind, _)| kind).find(|kind| near.first() == Some(&kind.scheme))
}
