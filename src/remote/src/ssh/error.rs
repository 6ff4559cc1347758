//! Errors of ssh connections. Each reason why a host cannot be reached has its own variant, because
//! each has its own remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::super::error::because;
use super::failure_kind::SshFailureKind;
use rgpu_model::error::{Exit, Failure, Side};

/// Precedes the output of the user's own `ssh` if both clients were refused.
const USER_SSH_OUTPUT_PREFIX: &str = "then your own ssh: ";

/// An error between this machine and an sshd.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// `ssh -G` failed for the host's name.
    #[error("the ssh configuration for `{host}` cannot be read: {message}")]
    Config {
        /// The host as the user wrote it.
        host: String,
        /// The message of ssh.
        message: String,
    },
    /// The name has no address.
    #[error("the host name `{host}` is not known")]
    Name {
        /// The name, as resolved by the ssh configuration.
        host: String,
        /// The error of the name lookup.
        #[source]
        source: io::Error,
    },
    /// The machine answers, but no sshd listens.
    #[error("`{address}` refuses connections")]
    Refused {
        /// The host and port that were tried.
        address: String,
    },
    /// There is no route to the host.
    #[error("`{address}` cannot be reached")]
    Unreachable {
        /// The host and port that were tried.
        address: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The host does not answer.
    #[error("`{address}` does not answer within {} s ({stage})", limit.as_secs())]
    Timeout {
        /// The host and port that were tried.
        address: String,
        /// The stage that timed out.
        stage: &'static str,
        /// The time that the stage was given.
        limit: Duration,
    },
    /// The two sides could not agree, or the server hung up.
    #[error("the ssh handshake with `{address}` failed")]
    Handshake {
        /// The host and port that answered.
        address: String,
        /// The error of russh.
        #[source]
        source: russh::Error,
    },
    /// The host shows a key other than the known one, and is refused.
    #[error("the host key of `{host}` is not the known one: refused")]
    KeyChanged {
        /// The host in the form of known_hosts.
        host: String,
        /// The type of the host key.
        algorithm: String,
        /// The fingerprint that the host shows.
        got: String,
        /// The known fingerprints, each with `file:line`.
        known: Vec<String>,
    },
    /// A known_hosts file revokes the key or its authority.
    #[error("the host key of `{host}` is marked as revoked: refused")]
    KeyRevoked {
        /// The host in the form of known_hosts.
        host: String,
        /// The fingerprint of the revoked key.
        got: String,
        /// The position of the entry, `file:line`.
        place: String,
    },
    /// The host was never seen before, and no user can be asked.
    #[error("the host key of `{host}` is not known yet")]
    KeyUnknown {
        /// The host in the form of known_hosts.
        host: String,
        /// The type of the host key.
        algorithm: String,
        /// The fingerprint of the unknown key.
        got: String,
        /// The user's known_hosts file.
        file: Option<PathBuf>,
    },
    /// The user did not confirm the fingerprint.
    #[error("the host key of `{host}` was not confirmed")]
    KeyDeclined {
        /// The host in the form of known_hosts.
        host: String,
        /// The fingerprint of the rejected key.
        got: String,
    },
    /// The host's certificate is not valid.
    #[error("the host certificate of `{host}` is refused: {why}")]
    Certificate {
        /// The host in the form of known_hosts.
        host: String,
        /// Why the certificate is refused.
        why: String,
    },
    /// A known_hosts file could not be written.
    #[error("the host key cannot be remembered in `{file}`")]
    Remember {
        /// The known_hosts file that should have got the key.
        file: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The server accepted no key.
    #[error("permission denied for `{user}` on `{host}`")]
    Denied {
        /// The user name at login.
        user: String,
        /// The host that denied the login.
        host: String,
        /// The keys that were tried or skipped, in order.
        tried: Vec<String>,
        /// The methods that the server accepts.
        allowed: String,
        /// Why the user's own `ssh` may succeed; `None`: it would not.
        own_ssh_hint: Option<String>,
    },
    /// The ssh configuration uses a setting that only `ssh` supports.
    #[error("the ssh configuration of `{host}` needs ssh itself: {why}")]
    NeedsOwnSsh {
        /// The host as the user wrote it.
        host: String,
        /// The setting that only ssh itself supports.
        why: String,
    },
    /// The user's own `ssh` failed.
    #[error("{}", kind.describe(host))]
    Own {
        /// The host as the user wrote it.
        host: String,
        /// The kind of failure.
        kind: SshFailureKind,
        /// The output of `ssh`.
        message: String,
    },
    /// The connection ended while logging in or opening a channel.
    #[error("the ssh connection to `{address}` broke while {doing}")]
    Broken {
        /// The host and port of the connection.
        address: String,
        /// The activity that was interrupted.
        doing: &'static str,
        /// The error of russh.
        #[source]
        source: russh::Error,
    },
    /// The user's ProxyCommand failed.
    #[error("the ProxyCommand of `{host}` failed: {message}")]
    Proxy {
        /// The host behind the ProxyCommand.
        host: String,
        /// The command's output or error.
        message: String,
    },
    /// A jump host could not be passed.
    #[error("the jump host `{jump}` could not be passed")]
    Jump {
        /// The jump host's address.
        jump: String,
        /// The error at the jump host.
        #[source]
        source: Box<SshError>,
    },
}

impl SshError {
    /// Why the user's own `ssh` may succeed; `None`: it would not.
    pub(super) fn own_ssh_hint(&self) -> Option<String> {
        match self {
            Self::Denied { own_ssh_hint, .. } => own_ssh_hint.clone(),
            Self::NeedsOwnSsh { why, .. } => Some(why.clone()),
            Self::Handshake { source: russh::Error::NoCommonAlgo { .. }, .. } => {
                Some("the host knows none of our own algorithms".to_owned())
            }
            Self::Jump { source, .. } => source.own_ssh_hint(),
            _ => None,
        }
    }

    /// The same error, after the user's own `ssh` was denied as well.
    pub(super) fn with_own_ssh_message(self, message: &str) -> Self {
        match self {
            Self::Denied { user, host, mut tried, allowed, own_ssh_hint } => {
                tried.push(format!("{USER_SSH_OUTPUT_PREFIX}{message}"));
                Self::Denied { user, host, tried, allowed, own_ssh_hint }
            }
            Self::Jump { jump, source } => {
                Self::Jump { jump, source: Box::new(source.with_own_ssh_message(message)) }
            }
            other => other,
        }
    }

    /// Whether a retry may help.
    pub(crate) fn is_link(&self) -> bool {
        match self {
            Self::Name { .. }
            | Self::Refused { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Handshake { .. }
            | Self::Broken { .. }
            | Self::Proxy { .. } => true,
            Self::Own { kind, .. } => kind.is_link(),
            Self::Jump { source, .. } => source.is_link(),
            _ => false,
        }
    }

    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Config { .. } => "ssh_config",
            Self::Name { .. } => "unknown_host",
            Self::Refused { .. } => "connection_refused",
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "connect_timeout",
            Self::Handshake { .. } => "ssh_handshake",
            Self::KeyChanged { .. } => "host_key_changed",
            Self::KeyRevoked { .. } => "host_key_revoked",
            Self::KeyUnknown { .. } | Self::KeyDeclined { .. } => "host_key_unknown",
            Self::Certificate { .. } => "host_certificate",
            Self::Remember { .. } => "known_hosts",
            Self::Denied { .. } => "permission_denied",
            Self::Broken { .. } => "link_cut",
            Self::Proxy { .. } => "proxy_command",
            Self::NeedsOwnSsh { .. } => "needs_openssh",
            Self::Own { kind, .. } => kind.code(),
            Self::Jump { source, .. } => source.code(),
        }
    }

    pub(crate) fn failed_side(&self) -> (Side, Exit) {
        match self {
            Self::Config { .. } | Self::NeedsOwnSsh { .. } => (Side::Local, Exit::Config),
            Self::Own { kind, .. } => kind.failed_side(),
            Self::Remember { .. } | Self::Proxy { .. } => (Side::Local, Exit::Host),
            Self::Denied { .. } => (Side::Host, Exit::Host),
            _ => (Side::Transport, Exit::Host),
        }
    }

    /// Adds the cause and the next steps.
    pub(crate) fn explain(&self, failure: Failure, remote: &str) -> Failure {
        // A remote given by its address has no settings yet.
        let has_no_name = remote.contains("://");
        let (add, table) = if has_no_name {
            let add = format!("rgpu remote add NAME {remote}");
            (add.clone(), format!("[remote.NAME], after `{add}`"))
        } else {
            (format!("rgpu remote add {remote} URL"), format!("[remote.{remote}]"))
        };
        match self {
            Self::Name { .. } => because(failure, self)
                .hint("check the spelling, or the HostName in your ssh configuration"),
            Self::Refused { .. } => failure.hint("is sshd running on the host, and is this its port?"),
            Self::Timeout { stage: "connecting", .. } => {
                failure.hint("is the host up, and does a firewall or a VPN block the connection?")
            }
            Self::Timeout { stage: "exchanging keys", .. } => failure
                .hint("something other than sshd accepts connections at this address: is the port right?"),
            Self::KeyChanged { algorithm, got, known, .. } => failure
                .cause(format!(
                    "it shows {algorithm} {got}\nknown is  {}",
                    known.join("\nor        ")
                ))
                .hint("the connection may be intercepted, or the host was reinstalled: ask its owner")
                .hint("once sure, remove the line named above and connect again"),
            Self::KeyRevoked { got, place, .. } => {
                failure.cause(format!("{got} is revoked at {place}"))
            }
            Self::KeyUnknown { algorithm, got, file, .. } => {
                let searched_file = file.as_ref().map_or(String::new(), |file| {
                    format!("\nknown keys are looked for in `{}`", file.display())
                });
                failure.cause(format!("it shows {algorithm} {got}{searched_file}")).hint(format!(
                    "compare it with the host's own (`ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` on the host), then `rgpu remote check {remote} --accept-new`"
                ))
            }
            Self::KeyDeclined { got, .. } => failure.cause(format!("it shows {got}")),
            Self::Denied { tried, allowed, .. } => {
                let tried = if tried.is_empty() { "no key was found".into() } else { tried.join("\n") };
                let failure = failure.cause(format!("{tried}\nthe server takes: {allowed}"));
                let failure = if tried.contains("passphrase") {
                    failure.hint("unlock the key for this session: `ssh-add KEY`")
                } else {
                    failure.hint(format!(
                        "name a key: `{add} --identity KEY`, load one with `ssh-add`, or copy yours to the host with `ssh-copy-id`"
                    ))
                };
                // Hardware keys, passwords, second factors, Kerberos: ssh itself can ask for them.
                if tried.contains(USER_SSH_OUTPUT_PREFIX) {
                    failure
                } else if ["keyboard-interactive", "password", "gssapi"].iter().any(|m| allowed.contains(m)) {
                    failure.hint(format!(
                        "or let your own ssh log in: `transport = \"openssh\"` in {table}"
                    ))
                } else {
                    failure
                }
            }
            Self::Handshake { .. } => because(failure, self).hint(format!(
                "does `ssh` reach the host? Then let it carry the connection: `transport = \"openssh\"` in {table}"
            )),
            Self::NeedsOwnSsh { .. } => {
                failure.hint(format!("let it carry the connection: `transport = \"openssh\"` in {table}"))
            }
            Self::Own { kind, message, .. } => {
                let failure = failure.cause(message);
                match kind.hint(remote) {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
            Self::Jump { source, .. } => {
                let inner = Failure::new(Exit::Host, self.code(), source.to_string());
                let inner = source.explain(inner, remote);
                let mut failure = failure.cause(match inner.cause {
                    Some(cause) => format!("{}: {cause}", inner.what),
                    None => inner.what,
                });
                failure.hints = inner.hints;
                failure
            }
            _ => because(failure, self),
        }
    }
}
