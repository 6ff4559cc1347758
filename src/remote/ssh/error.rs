//! How an ssh connection fails. Each way a host cannot be reached is told apart, since each has
//! another remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::super::error::because;
use super::trouble::SshTrouble;
use crate::error::{Exit, Failure, Side};

/// Before the words of the user's own `ssh`, where both clients were refused.
const OWN_SSH_TOO: &str = "then your own ssh: ";

/// A failure between this machine and an sshd.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// `ssh -G` would not say what the host's name means.
    #[error("the ssh configuration for `{host}` cannot be read: {words}")]
    Config {
        /// The host as the user wrote it.
        host: String,
        /// ssh's own words.
        words: String,
    },
    /// The name has no address.
    #[error("the host name `{host}` is not known")]
    Name {
        /// The name, resolved through the ssh configuration.
        host: String,
        /// The resolver's words.
        #[source]
        source: io::Error,
    },
    /// Somebody is there, but no sshd.
    #[error("`{address}` refuses connections")]
    Refused {
        /// Host and port.
        address: String,
    },
    /// No way there.
    #[error("`{address}` cannot be reached")]
    Unreachable {
        /// Host and port.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Nobody answers.
    #[error("`{address}` does not answer within {} s ({stage})", limit.as_secs())]
    Timeout {
        /// Host and port.
        address: String,
        /// What was waited for.
        stage: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// The two sides could not agree, or the server went away.
    #[error("the ssh handshake with `{address}` failed")]
    Handshake {
        /// Host and port.
        address: String,
        /// Why.
        #[source]
        source: russh::Error,
    },
    /// The host shows another key than the one known: refused.
    #[error("the host key of `{host}` is not the known one: refused")]
    KeyChanged {
        /// As known_hosts names it.
        host: String,
        /// The key's type.
        algorithm: String,
        /// What the host shows.
        got: String,
        /// What is known, each with `file:line`.
        known: Vec<String>,
    },
    /// The key, or its authority, is revoked in a known_hosts file.
    #[error("the host key of `{host}` is marked as revoked: refused")]
    KeyRevoked {
        /// As known_hosts names it.
        host: String,
        /// The fingerprint.
        got: String,
        /// `file:line`.
        place: String,
    },
    /// A host never seen before, and nobody to ask.
    #[error("the host key of `{host}` is not known yet")]
    KeyUnknown {
        /// As known_hosts names it.
        host: String,
        /// The key's type.
        algorithm: String,
        /// The fingerprint.
        got: String,
        /// The user's file of known keys.
        file: Option<PathBuf>,
    },
    /// The user did not confirm the fingerprint.
    #[error("the host key of `{host}` was not confirmed")]
    KeyDeclined {
        /// As known_hosts names it.
        host: String,
        /// The fingerprint.
        got: String,
    },
    /// A host certificate that does not hold.
    #[error("the host certificate of `{host}` is refused: {why}")]
    Certificate {
        /// As known_hosts names it.
        host: String,
        /// In words.
        why: String,
    },
    /// A known_hosts file could not be written.
    #[error("the host key cannot be remembered in `{file}`")]
    Remember {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No key was taken.
    #[error("permission denied for `{user}` on `{host}`")]
    Denied {
        /// The user logged in as.
        user: String,
        /// The host.
        host: String,
        /// What was tried or passed over, in order.
        tried: Vec<String>,
        /// What the server would take.
        allowed: String,
        /// Why the user's own `ssh` may do better, if it may.
        beyond: Option<String>,
    },
    /// The ssh configuration asks for what only `ssh` itself can do.
    #[error("the ssh configuration of `{host}` needs ssh itself: {why}")]
    Beyond {
        /// The host as the user wrote it.
        host: String,
        /// What it asks for.
        why: String,
    },
    /// The user's own `ssh` failed, in its own words.
    #[error("{}", trouble.of(host))]
    Own {
        /// The host as the user wrote it.
        host: String,
        /// What kind of failure it is.
        trouble: SshTrouble,
        /// What it said.
        words: String,
    },
    /// The connection ended while logging in or opening a channel.
    #[error("the ssh connection to `{address}` broke while {doing}")]
    Broken {
        /// Host and port.
        address: String,
        /// What was going on.
        doing: &'static str,
        /// Why.
        #[source]
        source: russh::Error,
    },
    /// The user's ProxyCommand.
    #[error("the ProxyCommand of `{host}` failed: {words}")]
    Proxy {
        /// The host.
        host: String,
        /// What is known.
        words: String,
    },
    /// A host on the way.
    #[error("the jump host `{jump}` could not be passed")]
    Jump {
        /// Which.
        jump: String,
        /// Why.
        #[source]
        source: Box<SshError>,
    },
}

impl SshError {
    /// Why the user's own `ssh` may get further, if it may.
    pub(super) fn beyond(&self) -> Option<String> {
        match self {
            Self::Denied { beyond, .. } => beyond.clone(),
            Self::Beyond { why, .. } => Some(why.clone()),
            Self::Handshake { source: russh::Error::NoCommonAlgo { .. }, .. } => {
                Some("the host knows none of our own algorithms".to_owned())
            }
            Self::Jump { source, .. } => source.beyond(),
            _ => None,
        }
    }

    /// The same failure, after the user's own `ssh` was denied as well.
    pub(super) fn and_own_ssh(self, words: &str) -> Self {
        match self {
            Self::Denied { user, host, mut tried, allowed, beyond } => {
                tried.push(format!("{OWN_SSH_TOO}{words}"));
                Self::Denied { user, host, tried, allowed, beyond }
            }
            Self::Jump { jump, source } => {
                Self::Jump { jump, source: Box::new(source.and_own_ssh(words)) }
            }
            other => other,
        }
    }

    /// Whether trying again may help.
    pub(in crate::remote) fn is_link(&self) -> bool {
        match self {
            Self::Name { .. }
            | Self::Refused { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Handshake { .. }
            | Self::Broken { .. }
            | Self::Proxy { .. } => true,
            Self::Own { trouble, .. } => trouble.is_link(),
            Self::Jump { source, .. } => source.is_link(),
            _ => false,
        }
    }

    pub(in crate::remote) fn code(&self) -> &'static str {
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
            Self::Beyond { .. } => "needs_openssh",
            Self::Own { trouble, .. } => trouble.code(),
            Self::Jump { source, .. } => source.code(),
        }
    }

    pub(in crate::remote) fn blame(&self) -> (Side, Exit) {
        match self {
            Self::Config { .. } | Self::Beyond { .. } => (Side::Local, Exit::Config),
            Self::Own { trouble, .. } => trouble.blame(),
            Self::Remember { .. } | Self::Proxy { .. } => (Side::Local, Exit::Host),
            Self::Denied { .. } => (Side::Host, Exit::Host),
            _ => (Side::Transport, Exit::Host),
        }
    }

    /// With the cause and what to do next.
    pub(in crate::remote) fn explain(&self, failure: Failure, remote: &str) -> Failure {
        // An address has no settings of its own before it has a name.
        let unnamed = remote.contains("://");
        let (add, table) = if unnamed {
            let add = format!("rgpu remote add NAME {remote}");
            (add.clone(), format!("[remote.NAME], after `{add}`"))
        } else {
            (format!("rgpu remote add {remote} …"), format!("[remote.{remote}]"))
        };
        match self {
            Self::Name { .. } => because(failure, self)
                .hint("check the spelling, or the HostName in your ssh configuration"),
            Self::Refused { .. } => failure.hint("is sshd running there, and is this its port?"),
            Self::Timeout { stage: "connecting", .. } => {
                failure.hint("is the host up, and does a firewall or a VPN stand between?")
            }
            Self::Timeout { stage: "exchanging keys", .. } => failure
                .hint("something takes connections there, but does not speak as sshd does: is it this port?"),
            Self::KeyChanged { algorithm, got, known, .. } => failure
                .cause(format!(
                    "it shows {algorithm} {got}\nknown is  {}",
                    known.join("\nor        ")
                ))
                .hint("somebody may be listening in, or the host was set up anew: ask its owner")
                .hint("once sure, remove the line named above and connect again"),
            Self::KeyRevoked { got, place, .. } => {
                failure.cause(format!("{got} is revoked at {place}"))
            }
            Self::KeyUnknown { algorithm, got, file, .. } => {
                let looked = file.as_ref().map_or(String::new(), |file| {
                    format!("\nknown keys are looked for in `{}`", file.display())
                });
                failure.cause(format!("it shows {algorithm} {got}{looked}")).hint(format!(
                    "compare it with the host's own (`ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` there), then `rgpu remote check {remote} --accept-new`"
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
                        "name a key: `{add} --identity KEY`, load one with `ssh-add`, or bring yours there with `ssh-copy-id`"
                    ))
                };
                // Hardware keys, passwords, second factors, Kerberos: ssh itself can ask for them.
                if tried.contains(OWN_SSH_TOO) {
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
                "does `ssh` get there? Then let it carry the connection: `transport = \"openssh\"` in {table}"
            )),
            Self::Beyond { .. } => {
                failure.hint(format!("let it carry the connection: `transport = \"openssh\"` in {table}"))
            }
            Self::Own { trouble, words, .. } => {
                let failure = failure.cause(words);
                match trouble.hint(remote) {
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
