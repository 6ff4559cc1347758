//! Resolves a host's name with `ssh -G`, which applies the user's whole configuration (Match,
//! Include, canonical names) in four milliseconds. If no ssh is installed, a reader of our own
//! reads the file and refuses what it does not understand.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use tokio::time::timeout;

use super::SshError;
use super::address::{Address, valid_host, valid_user};
use super::config_file;
use super::known_hosts::NameForm;
use crate::limits;
use rgpu_model::program_answer::{MAX_PROBE_BYTES, answer_of};

/// The settings for a connection to a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResolvedHost {
    /// The name that the user wrote.
    pub(super) alias: String,
    pub(super) host: String,
    pub(super) user: String,
    pub(super) port: u16,
    /// Key files in order, whether or not they exist.
    pub(super) identities: Vec<PathBuf>,
    pub(super) certificates: Vec<PathBuf>,
    /// Whether a key of the ssh-agent is only tried if a key file names it.
    pub(super) identities_only: bool,
    /// The ssh-agent's socket; `None`: no agent is used.
    pub(super) agent_socket: Option<PathBuf>,
    /// The known_hosts files: the user's first, where new keys are added, then the system's.
    pub(super) known_hosts: Vec<PathBuf>,
    /// The form of host names in new entries.
    pub(super) written: NameForm,
    pub(super) host_key_alias: Option<String>,
    /// Whether `StrictHostKeyChecking` is `accept-new` or `no`; we treat both as `accept-new`.
    pub(super) accept_new: bool,
    /// The jump hosts: `[user@]host[:port],…`.
    pub(super) jump: Option<String>,
    pub(super) proxy_command: Option<String>,
    /// The address family, `inet` or `inet6`; `None` allows both.
    pub(super) family: Option<String>,
    /// Whether Kerberos may be tried if a host offers it.
    pub(super) kerberos: bool,
    /// Settings that only `ssh` supports, as lines of `ssh -G`.
    pub(super) unsupported_settings: Vec<String>,
}

impl ResolvedHost {
    /// `host:port`, as in error messages.
    pub(super) fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// Resolves `address` with `ssh -G`; `config` replaces the user's configuration file.
pub(super) async fn resolve(
    address: &Address,
    config: Option<&Path>,
) -> Result<ResolvedHost, SshError> {
    let fail = |message: String| SshError::Config { host: address.host.clone(), message };
    let mut command = Command::new("ssh");
    if let Some(config) = config {
        command.arg("-F").arg(config);
    }
    command.arg("-G");
    if let Some(user) = &address.user {
        command.arg("-l").arg(user);
    }
    if let Some(port) = address.port {
        command.arg("-p").arg(port.to_string());
    }
    // Address::parse has checked the form; `--` covers anything that missed.
    command.arg("--").arg(&address.host).stdin(Stdio::null()).kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let asked = async { answer_of(command.spawn()?, MAX_PROBE_BYTES).await };
    let answer = match timeout(limits::RESOLVE_TIMEOUT, asked).await {
        Ok(Ok(answer)) if answer.status.success() => {
            String::from_utf8_lossy(&answer.stdout).into_owned()
        }
        Ok(Ok(answer)) => {
            return Err(fail(String::from_utf8_lossy(&answer.stderr).trim().to_owned()));
        }
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            config_file::answer(address, config).map_err(fail)?
        }
        Ok(Err(error)) => return Err(fail(format!("`ssh -G`: {error}"))),
        Err(_) => {
            return Err(fail(format!(
                "`ssh -G` took over {} s",
                limits::RESOLVE_TIMEOUT.as_secs()
            )));
        }
    };
    let resolved = read_answer(&answer, &address.host, &LoginSession::read());
    // HostName and User come from the user's own file, but also reach command lines.
    if !valid_host(&resolved.host) {
        return Err(fail(format!("`{}` is not a host name", resolved.host.escape_default())));
    }
    if !valid_user(&resolved.user) {
        return Err(fail(format!("`{}` is not a user name", resolved.user.escape_default())));
    }
    Ok(resolved)
}

/// The user's home and ssh-agent. Only `LoginSession::read` and `can_ask_elsewhere` read the
/// environment here.
struct LoginSession {
    home: PathBuf,
    agent: Option<PathBuf>,
}

impl LoginSession {
    fn read() -> Self {
        // The account's home as in ssh, which ignores HOME.
        let account = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
        let home = account
            .map(|user| user.dir)
            .or_else(|| etcetera::home_dir().ok())
            .unwrap_or_else(|| PathBuf::from("/"));
        let agent = std::env::var_os("SSH_AUTH_SOCK").filter(|v| !v.is_empty()).map(PathBuf::from);
        Self { home, agent }
    }
}

/// Whether the user has set a program with which `ssh` asks questions without a terminal.
pub(super) fn can_ask_elsewhere() -> bool {
    std::env::var_os("SSH_ASKPASS").is_some_and(|program| !program.is_empty())
}

/// The home folder of the user who is logged in.
pub(super) fn home() -> PathBuf {
    LoginSession::read().home
}

fn read_answer(answer: &str, alias: &str, session: &LoginSession) -> ResolvedHost {
    let mut resolved = ResolvedHost {
        alias: alias.to_owned(),
        host: alias.to_owned(),
        port: 22,
        agent_socket: session.agent.clone(),
        ..ResolvedHost::default()
    };
    let (mut identities, mut certificates, mut known) = (Vec::new(), Vec::new(), Vec::new());
    for line in answer.lines() {
        let Some((key, value)) = line.split_once(' ') else { continue };
        let value = value.trim();
        let some = (value != "none").then(|| value.to_owned());
        match key.to_ascii_lowercase().as_str() {
            "hostname" => resolved.host = value.to_owned(),
            "user" => resolved.user = value.to_owned(),
            "port" => resolved.port = value.parse().unwrap_or(22),
            "identityfile" => identities.extend(some),
            "certificatefile" => certificates.extend(some),
            "identitiesonly" => resolved.identities_only = value == "yes",
            "identityagent" => {
                resolved.agent_socket = match value {
                    "none" => None,
                    "SSH_AUTH_SOCK" => session.agent.clone(),
                    path => Some(PathBuf::from(path)),
                }
            }
            // The user's files come before the system's, in whatever order the lines are.
            "userknownhostsfile" => {
                known.splice(0..0, value.split_whitespace().map(str::to_owned));
            }
            "globalknownhostsfile" => known.extend(value.split_whitespace().map(str::to_owned)),
            "hashknownhosts" if value == "yes" => resolved.written = NameForm::Hashed,
            "hostkeyalias" => resolved.host_key_alias = some,
            "stricthostkeychecking" => {
                resolved.accept_new = matches!(value, "accept-new" | "no" | "off" | "false");
            }
            "proxyjump" => resolved.jump = some,
            "proxycommand" => {
                let has_unknown_token =
                    some.as_deref().is_some_and(|command| !only_tokens(command, PROXY_TOKENS));
                if has_unknown_token {
                    resolved.unsupported_settings.push(line.to_owned());
                }
                resolved.proxy_command = some;
            }
            "gssapiauthentication" => resolved.kerberos = value == "yes",
            // These settings change the source of keys, revoke keys or pass sockets. Ignoring one
            // could mean another host or a weaker check.
            "knownhostscommand" | "revokedhostkeys" | "pkcs11provider" if some.is_some() => {
                resolved.unsupported_settings.push(line.to_owned());
            }
            "proxyusefdpass" | "verifyhostkeydns" if value != "no" && value != "false" => {
                resolved.unsupported_settings.push(line.to_owned());
            }
            "addressfamily" => resolved.family = (value != "any").then(|| value.to_owned()),
            _ => {}
        }
    }
    let path = |text: String| expand(&text, &resolved, session);
    let identities = identities.into_iter().map(path).collect();
    let path = |text: String| expand(&text, &resolved, session);
    let certificates = certificates.into_iter().map(path).collect();
    let known_hosts = known
        .into_iter()
        .filter(|file| file != "none")
        .map(|text| expand(&text, &resolved, session))
        .collect();
    if let Some(socket) = resolved.agent_socket.take() {
        resolved.agent_socket = Some(expand(&socket.to_string_lossy(), &resolved, session));
    }
    ResolvedHost { identities, certificates, known_hosts, ..resolved }
}

/// Expands `~` and the tokens that ssh allows in file names.
fn expand(text: &str, resolved: &ResolvedHost, session: &LoginSession) -> PathBuf {
    let home = session.home.to_string_lossy();
    let text = tokens(text, |token| match token {
        'd' => Some(home.clone().into_owned()),
        'h' => Some(resolved.host.clone()),
        'n' => Some(resolved.alias.clone()),
        'p' => Some(resolved.port.to_string()),
        'r' => Some(resolved.user.clone()),
        _ => None,
    });
    match text.strip_prefix("~/") {
        Some(rest) => session.home.join(rest),
        None => PathBuf::from(text.replace("${HOME}", &home)),
    }
}

/// The tokens that we expand in a ProxyCommand; ssh has more.
pub(super) const PROXY_TOKENS: &str = "hnpr";

/// Whether `text` uses only tokens in `known`.
fn only_tokens(text: &str, known: &str) -> bool {
    let has_unknown = std::cell::Cell::new(false);
    tokens(text, |token| {
        has_unknown.set(has_unknown.get() || !known.contains(token));
        None
    });
    !has_unknown.get()
}

/// Replaces each `%x` for which `known` returns a value. `%%` becomes `%`; other tokens stay.
pub(super) fn tokens(text: &str, known: impl Fn(char) -> Option<String>) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('%') => out.push('%'),
            Some(token) => match known(token) {
                Some(value) => out.push_str(&value),
                None => out.extend(['%', token]),
            },
            None => out.push('%'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_ssh_is_read_with_its_tokens() {
        let session = LoginSession { home: "/home/me".into(), agent: Some("/run/agent".into()) };
        let answer = "host gpu\nuser ubuntu\nhostname gpu.lab\nport 2222\nidentitiesonly yes\n\
             globalknownhostsfile /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2\n\
             userknownhostsfile ~/.ssh/known_hosts ~/.ssh/%h\nidentityfile ~/.ssh/id_ed25519\n\
             identityfile %d/.ssh/%r\nstricthostkeychecking accept-new\nproxyjump me@bastion\n\
             hostkeyalias none\naddressfamily any\n";
        let resolved = read_answer(answer, "gpu", &session);
        assert_eq!(
            (resolved.host.as_str(), resolved.user.as_str(), resolved.port),
            ("gpu.lab", "ubuntu", 2222)
        );
        assert_eq!(
            resolved.identities,
            [Path::new("/home/me/.ssh/id_ed25519"), Path::new("/home/me/.ssh/ubuntu")]
        );
        assert_eq!(resolved.known_hosts[1], Path::new("/home/me/.ssh/gpu.lab"));
        assert_eq!(resolved.known_hosts[2], Path::new("/etc/ssh/ssh_known_hosts"));
        assert_eq!(resolved.agent_socket.as_deref(), Some(Path::new("/run/agent")));
        assert_eq!(resolved.jump.as_deref(), Some("me@bastion"));
        assert!(resolved.identities_only && resolved.accept_new);
        assert_eq!((resolved.host_key_alias, resolved.family), (None, None));
        assert!(resolved.unsupported_settings.is_empty());
    }

    #[test]
    fn settings_that_only_ssh_can_honour_are_kept_apart() {
        let session = LoginSession { home: "/home/me".into(), agent: None };
        let unsupported = |line: &str| read_answer(line, "gpu", &session).unsupported_settings;
        for line in [
            "knownhostscommand /bin/keys %H",
            "revokedhostkeys /etc/ssh/revoked",
            "pkcs11provider /usr/lib/opensc.so",
            "proxyusefdpass yes",
            "verifyhostkeydns true",
            "proxycommand nc -x %C %h %p",
        ] {
            assert_eq!(unsupported(line), [line]);
        }
        for line in [
            "knownhostscommand none",
            "proxyusefdpass no",
            "verifyhostkeydns false",
            "proxycommand nc %h %p 100%%",
        ] {
            assert!(unsupported(line).is_empty(), "{line}");
        }
    }
}
