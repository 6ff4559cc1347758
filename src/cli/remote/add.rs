//! `rgpu remote add`: checks a remote's settings and saves them.

#![expect(clippy::disallowed_methods, reason = "the key file that the user named")]

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::{check, list, rental, slurm};
use crate::cli::doctor;
use crate::cli::support::app::{App, Status};
use crate::cli::support::{missing, session};
use rgpu_model::error::{Exit, Failure, Result, nearest, shell_word};
use rgpu_remote::{
    CredentialError, Price, Remote, RemoteSpec, Transport, read_private, without_secret,
};
use rgpu_run::config::LOCAL;

/// The heading of the flags for a worker or an app at Modal.
const WORKER: &str = "A worker, or Modal";

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

    /// The address of your app, as `modal deploy` printed it
    #[arg(help_heading = WORKER, long, value_name = "URL", value_hint = ValueHint::Url)]
    pub url: Option<String>,

    /// The environment variable with a worker's token
    #[arg(help_heading = WORKER, long, value_name = "VARIABLE")]
    pub token_env: Option<String>,

    /// The file with a worker's token
    #[arg(help_heading = WORKER, long, value_name = "FILE", conflicts_with = "token_env")]
    pub token_file: Option<PathBuf>,

    /// The environment variable with the key of a proxy token [default: MODAL_KEY]
    #[arg(help_heading = WORKER, long, value_name = "VARIABLE")]
    pub key_env: Option<String>,

    /// The environment variable with its secret [default: MODAL_SECRET]
    #[arg(help_heading = WORKER, long, value_name = "VARIABLE")]
    pub secret_env: Option<String>,

    /// A file of mode 0600 with these variables
    #[arg(help_heading = WORKER, long, value_name = "FILE")]
    pub env_file: Option<PathBuf>,

    /// The keychain service that has them, as `modal-key` and `modal-secret`, or as `token` for a
    /// worker
    #[arg(help_heading = WORKER, long, value_name = "SERVICE", conflicts_with_all = ["env_file", "token_env", "token_file"])]
    pub keychain: Option<String>,

    /// A file of certificates to trust in addition to the system's
    #[arg(help_heading = WORKER, long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// Allow sending the token over plain HTTP, where others can read it
    #[arg(help_heading = WORKER, long)]
    pub allow_plain_http: bool,

    #[command(flatten)]
    pub slurm: slurm::SlurmArgs,

    #[command(flatten)]
    pub wafer: rental::WaferArgs,
}

impl AddArgs {
    /// The first given flag that only workers use.
    fn of_worker(&self) -> Option<&'static str> {
        let given = [
            ("--token-file", self.token_file.is_some()),
            ("--token-env", self.token_env.is_some()),
            ("--keychain", self.keychain.is_some()),
            ("--ca-file", self.ca_file.is_some()),
            ("--allow-plain-http", self.allow_plain_http),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }
}

/// Runs `remote add`: checks the address and writes the remote to the user's settings. At a terminal
/// it ends with what works there.
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
    worker_options(app, args, &mut spec)?;
    args.wafer.settings(&mut spec);
    args.slurm.settings(&mut spec);
    // Report a wrong address before saving it.
    spec.open().map_err(|e| e.failure(&spec.name, spec.scheme()))?;
    check_credentials(app, args, &spec)?;
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

/// Checks the token without using it: a file must exist and be private to its user; a variable may
/// be set later.
fn check_credentials(app: &App, args: &AddArgs, spec: &RemoteSpec) -> Result<()> {
    let file = |key: &str| spec.options.get(key).map(PathBuf::from);
    let token_file_failure = |path: &Path, lack: CredentialError| {
        let exit = if path.exists() { Exit::Config } else { Exit::Usage };
        let failure = Failure::new(exit, "bad_token_file", lack.why);
        lack.hint.into_iter().fold(failure, Failure::hint)
    };
    if args.token_file.is_some()
        && let Some(path) = file("token_file")
    {
        let copy = "it is a copy of the token file whose path `rgpu worker` printed".to_owned();
        read_private(&path).map_err(|CredentialError { why, hint }| {
            token_file_failure(&path, CredentialError { why, hint: hint.or(Some(copy)) })
        })?;
    }
    if args.env_file.is_some()
        && let Some(path) = file("env_file")
    {
        read_private(&path).map_err(|lack| {
            token_file_failure(&path, lack)
                .hint("it has lines MODAL_KEY=wk-… and MODAL_SECRET=ws-…, and mode 0600")
        })?;
    }
    if args.ca_file.is_some()
        && let Some(path) = file("ca_file")
        && let Err(error) = std::fs::File::open(&path)
    {
        let failure = Failure::new(Exit::Config, "bad_ca_file", "the certificates cannot be read");
        return Err(missing::file_or(&path, &error, failure));
    }
    let named = [&args.token_env, &args.key_env, &args.secret_env];
    for name in named.into_iter().flatten() {
        if std::env::var_os(name).is_none_or(|value| value.is_empty()) {
            app.print_note(&format!(
                "warning: ${name} is not set here; export it before you use `{}`",
                spec.name
            ));
        }
    }
    Ok(())
}

/// Platforms that can be given instead of an address.
const PLATFORMS: [&str; 3] = ["modal", "wafer", "slurm"];

/// The address as saved in the settings.
fn address(args: &AddArgs) -> Result<String> {
    let AddArgs { name, at, url, .. } = args;
    let typed = [Some(at), url.as_ref(), args.slurm.login.as_ref()];
    typed.into_iter().flatten().try_for_each(|a| without_secret(a))?;
    let usage = |what: String| Failure::new(Exit::Usage, "usage", what);
    let is_cluster = at == "slurm" || at.starts_with("slurm://");
    if at == "slurm" && url.is_none() && args.wafer.first().is_none() {
        return args.slurm.address(name);
    }
    if let Some(flag) = args.slurm.first().filter(|flag| !is_cluster || *flag == "--login") {
        let what = format!("`{flag}` belongs to a cluster of Slurm, and `{at}` is none");
        return Err(usage(what)
            .hint(format!("a cluster: rgpu remote add {name} slurm --login ssh://user@login")));
    }
    let modal = |url: &str| {
        format!("an app on Modal: rgpu remote add {name} modal --url {}", shell_word(url))
    };
    let wafer = |workspace: &str, rest: &str| {
        let workspace = shell_word(workspace);
        format!("at Wafer: rgpu remote add {name} wafer --workspace {workspace}{rest}")
    };
    let workspace = args.wafer.workspace.as_deref();
    let of_wafer = args.wafer.first();
    match (at.as_str(), url, of_wafer) {
        ("wafer", Some(url), _) => {
            Err(usage("`--url` belongs to an app on Modal, not to Wafer".to_owned())
                .hint(modal(url))
                .hint(wafer(workspace.unwrap_or("WORKSPACE"), "")))
        }
        ("wafer", None, _) => match workspace {
            Some(workspace) => Ok(format!("wafer://{workspace}")),
            None => Err(usage("a remote at Wafer needs `--workspace`".to_owned())
                .hint(wafer("WORKSPACE", ""))),
        },
        ("modal", _, Some((flag, value))) => {
            Err(usage(format!("`{flag}` belongs to a workspace at Wafer, not to Modal"))
                .hint(modal(url.as_deref().unwrap_or("URL")))
                .hint(wafer(workspace.unwrap_or("WORKSPACE"), &wafer_flag_hint(flag, value))))
        }
        ("modal", Some(url), None) => {
            rgpu_remote::modal::address(url).map_err(|e| e.failure(name, "modal"))
        }
        ("modal", None, None) => Err(usage("an app on Modal needs `--url`".to_owned())
            .hint(format!("{}, as `modal deploy` printed it", modal("URL")))),
        (at, url, of_wafer) => {
            if let Some(platform) = similar_platform(at) {
                let failure = Failure::new(
                    Exit::Usage,
                    "unknown_platform",
                    format!("there is no platform `{at}`: did you mean `{platform}`?"),
                );
                return Err(failure
                    .hint(match platform {
                        "modal" => modal(url.as_deref().unwrap_or("URL")),
                        "slurm" => format!("a cluster: rgpu remote add {name} slurm --login URL"),
                        _ => wafer(workspace.unwrap_or("WORKSPACE"), ""),
                    })
                    .hint(format!("a host of that name: rgpu remote add {name} ssh://{at}")));
            }
            if let Some(url) = url {
                return Err(usage(format!(
                    "`--url` belongs to an app on Modal, and `{at}` is none"
                ))
                .hint(modal(url)));
            }
            if let Some((flag, value)) = of_wafer {
                let what = format!("`{flag}` belongs to a workspace at Wafer, and `{at}` is none");
                let wafer_flag_hint = wafer_flag_hint(flag, value);
                let failure =
                    usage(what).hint(wafer(workspace.unwrap_or("WORKSPACE"), &wafer_flag_hint));
                return Err(match flag {
                    "--gpu" => failure
                        .hint(format!("to choose a GPU for one run: rgpu profile --gpu {value}")),
                    _ => failure,
                });
            }
            match args.of_worker() {
                Some(flag) if !at.contains("://") => Err(no_scheme(args, flag)),
                _ => Ok(at.to_owned()),
            }
        }
    }
}

/// A flag of Wafer with its value for a hint. Empty for `--workspace`, which the hint already has.
fn wafer_flag_hint(flag: &str, value: &str) -> String {
    if flag == "--workspace" { String::new() } else { format!(" {flag} {value}") }
}

/// The platform probably meant by a word that is neither an address nor an ssh host.
fn similar_platform(at: &str) -> Option<&'static str> {
    let known = || session::ssh_aliases().iter().any(|alias| alias == at);
    if at.len() < 4 || !at.chars().all(char::is_alphabetic) || known() {
        return None;
    }
    nearest(at, PLATFORMS).first().copied()
}

/// The failure for a worker's address without a scheme.
fn no_scheme(args: &AddArgs, flag: &str) -> Failure {
    let AddArgs { name, at, .. } = args;
    let host = at.rsplit_once(':').map_or(at.as_str(), |(host, _)| host);
    let is_loopback = matches!(host, "localhost" | "[::1]") || host.starts_with("127.");
    let message = format!("`{flag}` is for workers, and `{at}` is not the address of one");
    let failure = Failure::new(Exit::Usage, "bad_address", message);
    let option = match flag {
        "--token-file" | "--ca-file" => format!("{flag} FILE"),
        "--token-env" => format!("{flag} VARIABLE"),
        "--keychain" => format!("{flag} SERVICE"),
        _ => flag.to_owned(),
    };
    if is_loopback {
        let url = shell_word(format_args!("http://{at}"));
        failure.hint(format!("rgpu remote add {name} {url} {option}"))
    } else {
        let url = shell_word(format_args!("https://{at}"));
        failure
            .hint(format!("behind a server with TLS: rgpu remote add {name} {url} {option}"))
            .hint(format!("through `ssh -L 8790:127.0.0.1:8790 {host}`: http://127.0.0.1:8790"))
    }
}

/// Applies the settings of workers and of platforms that speak the same protocol.
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
            // An invalid name may be the secret itself, so do not print it.
            let message = format!("`{flag}` takes the name of a variable, not its value");
            return Err(Failure::new(Exit::Usage, "bad_variable", message)
                .hint(format!("put it into a variable such as BOX_TOKEN: {flag} BOX_TOKEN")));
        }
    }
    let mut set_option = |key: &str, value: String| spec.options.insert(key.to_owned(), value);
    if let Some(name) = &args.token_env {
        set_option("token_env", name.clone());
    }
    if let Some(path) = &args.token_file {
        set_option("token_file", app.cwd.join(path).display().to_string());
    }
    if let Some(name) = &args.key_env {
        set_option("key_env", name.clone());
    }
    if let Some(name) = &args.secret_env {
        set_option("secret_env", name.clone());
    }
    if let Some(path) = &args.env_file {
        set_option("env_file", app.cwd.join(path).display().to_string());
    }
    if let Some(service) = &args.keychain {
        set_option("keychain", service.clone());
    }
    if let Some(path) = &args.ca_file {
        set_option("ca_file", app.cwd.join(path).display().to_string());
    }
    if args.allow_plain_http {
        set_option("allow_plain_http", "yes".to_owned());
    }
    // There is only one source of the token: the one given last.
    let unset_keys: &[&str] = match (&args.token_env, &args.token_file) {
        (Some(_), _) => &["token_file", "keychain"],
        (_, Some(_)) => &["token_env", "keychain"],
        (None, None) => match (&args.env_file, &args.keychain) {
            (Some(_), _) => &["keychain"],
            (_, Some(_)) => &["env_file", "token_env", "token_file"],
            (None, None) if args.key_env.is_some() => &["env_file", "keychain"],
            (None, None) => &[],
        },
    };
    for key in unset_keys {
        spec.options.remove(*key);
    }
    Ok(())
}
