//! Classifies failures of the user's own `ssh`, which reports them only as text on standard error
//! and exits with 255. They get the same codes and hints as those of our own client.

use rgpu_model::error::{Exit, Side};

/// Why the user's own `ssh` failed, as far as its text tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SshFailureKind {
    /// The host shows a key other than the known one.
    KeyChanged,
    /// The host's key is revoked.
    KeyRevoked,
    /// The host was never seen before.
    KeyUnknown,
    /// All login attempts were refused.
    Denied,
    /// The name has no address.
    Name,
    /// The machine answers, but no sshd listens.
    Refused,
    /// There is no route to the host.
    Unreachable,
    /// The host does not answer.
    Timeout,
    /// The configuration cannot be read.
    Config,
    /// The two sides could not agree on algorithms or protocol.
    Handshake,
    /// None of the known messages.
    Other,
}

/// Messages of `ssh`, the most specific first: the last line is the same for every kind of refused
/// key.
const SSH_MESSAGES: &[(&str, SshFailureKind)] = &[
    ("REVOKED HOST KEY DETECTED", SshFailureKind::KeyRevoked),
    ("is marked as revoked", SshFailureKind::KeyRevoked),
    (" revoked by file ", SshFailureKind::KeyRevoked),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", SshFailureKind::KeyChanged),
    ("host key is known for", SshFailureKind::KeyUnknown),
    ("Host key verification failed", SshFailureKind::KeyUnknown),
    ("Permission denied", SshFailureKind::Denied),
    ("Too many authentication failures", SshFailureKind::Denied),
    ("Could not resolve hostname", SshFailureKind::Name),
    ("Connection refused", SshFailureKind::Refused),
    ("Connection timed out", SshFailureKind::Timeout),
    ("Operation timed out", SshFailureKind::Timeout),
    ("No route to host", SshFailureKind::Unreachable),
    ("Network is unreachable", SshFailureKind::Unreachable),
    ("Bad configuration option", SshFailureKind::Config),
    ("terminating, ", SshFailureKind::Config),
    ("Unable to negotiate", SshFailureKind::Handshake),
    ("kex_exchange_identification", SshFailureKind::Handshake),
];

impl SshFailureKind {
    /// The failure that `message` reports.
    pub(super) fn read(message: &str) -> Self {
        SSH_MESSAGES
            .iter()
            .find(|(word, _)| message.contains(word))
            .map_or(Self::Other, |(_, kind)| *kind)
    }

    /// The first line of a failure report.
    pub(super) fn describe(self, host: &str) -> String {
        match self {
            Self::KeyChanged => format!("the host key of `{host}` is not the known one: refused"),
            Self::KeyRevoked => format!("the host key of `{host}` is marked as revoked: refused"),
            Self::KeyUnknown => format!("the host key of `{host}` is not known yet"),
            Self::Denied => format!("permission denied on `{host}`"),
            Self::Name => format!("the host name `{host}` is not known"),
            Self::Refused => format!("`{host}` refuses connections"),
            Self::Unreachable => format!("`{host}` cannot be reached"),
            Self::Timeout => format!("`{host}` does not answer"),
            Self::Config => format!("the ssh configuration for `{host}` cannot be read"),
            Self::Handshake => format!("the ssh handshake with `{host}` failed"),
            Self::Other => format!("your own ssh could not connect to `{host}`"),
        }
    }

    pub(super) fn code(self) -> &'static str {
        match self {
            Self::KeyChanged => "host_key_changed",
            Self::KeyRevoked => "host_key_revoked",
            Self::KeyUnknown => "host_key_unknown",
            Self::Denied => "permission_denied",
            Self::Name => "unknown_host",
            Self::Refused => "connection_refused",
            Self::Unreachable => "unreachable",
            Self::Timeout => "connect_timeout",
            Self::Config => "ssh_config",
            Self::Handshake => "ssh_handshake",
            Self::Other => "openssh",
        }
    }

    pub(super) fn is_link(self) -> bool {
        matches!(
            self,
            Self::Name
                | Self::Refused
                | Self::Unreachable
                | Self::Timeout
                | Self::Handshake
                | Self::Other
        )
    }

    pub(super) fn failed_side(self) -> (Side, Exit) {
        match self {
            Self::Config => (Side::Local, Exit::Config),
            Self::Denied => (Side::Host, Exit::Host),
            _ => (Side::Transport, Exit::Host),
        }
    }

    /// The next step for the user.
    pub(super) fn hint(self, remote: &str) -> Option<String> {
        Some(match self {
            Self::KeyChanged => {
                "the connection may be intercepted, or the host was reinstalled: ask its owner".to_owned()
            }
            Self::KeyUnknown => format!(
                "compare it with the host's own (`ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` on the host), then `rgpu remote check {remote} --accept-new`"
            ),
            Self::Denied => {
                "does `ssh` log in with the same name and key? `rgpu remote check -v` shows how it is called".to_owned()
            }
            Self::Refused => "is sshd running on the host, and is this its port?".to_owned(),
            Self::Timeout => {
                "is the host up, and does a firewall or a VPN block the connection?".to_owned()
            }
            _ => return None,
        })
    }
}

/// The messages of `ssh` without the `@` borders that it draws around warnings.
pub(super) fn plain(message: &str) -> String {
    let lines =
        message.lines().map(|line| line.trim_matches(|c: char| c == '@' || c.is_whitespace()));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_telling_words_count() {
        // The message of OpenSSH 9.2.
        let changed = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n\
             @    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n\
             @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n\
             Offending ED25519 key in /home/me/.ssh/known_hosts:3\n\
             Host key verification failed.\n";
        assert_eq!(SshFailureKind::read(changed), SshFailureKind::KeyChanged);
        assert!(plain(changed).starts_with("WARNING: REMOTE"), "{}", plain(changed));
        assert!(plain(changed).contains("known_hosts:3\nHost key"));
        for (message, kind) in [
            ("Host key verification failed.", SshFailureKind::KeyUnknown),
            ("me@box: Permission denied (publickey).", SshFailureKind::Denied),
            ("ssh: connect to host box port 22: Connection refused", SshFailureKind::Refused),
            ("Connection closed by 10.0.0.1 port 22", SshFailureKind::Other),
        ] {
            assert_eq!(SshFailureKind::read(message), kind, "{message}");
        }
    }
}
