//! The configuration of one remote.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Price, REMOTES, Remote, RemoteError, RemoteKind, setting};
use rgpu_model::error::{Exit, Failure, nearest};

/// The ssh client to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Our own client, and the user's `ssh` for what ours cannot do.
    #[default]
    Auto,
    /// Our own client only.
    Builtin,
    /// The user's `ssh` only.
    Openssh,
}

impl Transport {
    fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

impl std::str::FromStr for Transport {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            "builtin" => Ok(Self::Builtin),
            "openssh" => Ok(Self::Openssh),
            _ => Err(format!("`{word}` is none of `auto`, `builtin`, `openssh`")),
        }
    }
}

/// One `[remote.NAME]` table. Only the user's own configuration may define one; a project's file
/// may only name a remote.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteSpec {
    /// The remote's name in the settings.
    #[serde(skip)]
    pub name: String,
    /// `local`, `ssh://[user@]host[:port]`, or an alias of `~/.ssh/config`.
    pub url: String,
    /// Jump hosts, as in ssh's `ProxyJump`: `[user@]host[:port]`, separated by commas.
    pub jump: Option<String>,
    /// The key file for the login, tried before those of `~/.ssh/config`.
    pub identity: Option<PathBuf>,
    /// The ssh configuration file to use instead of `~/.ssh/config`.
    pub ssh_config: Option<PathBuf>,
    /// Folders on the host that are searched for tools before PATH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// Environment variables for probes and steps on the host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The ssh client to use.
    #[serde(default, skip_serializing_if = "Transport::is_auto")]
    pub transport: Transport,
    /// The command through which the agent is started, e.g. `["docker", "exec", "-i", "C"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
    /// The folder on the host for the agent's program, tried before the default ones.
    pub agent_folder: Option<String>,
    /// The price in US dollars per hour, from which runs compute their cost.
    pub price_per_hour: Option<Price>,
    /// Settings of one kind of remote; opening the remote rejects unknown ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// Refuses an address that seems to contain a secret, because addresses are shown and stored in
/// settings and run folders.
///
/// # Errors
/// The address has a password before `@`, a query or a fragment. The failure does not repeat it.
pub fn without_secret(address: &str) -> Result<(), Failure> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let found = match rest.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => "a password",
        _ if address.contains("://") && rest.contains(['?', '#']) => "a query or a fragment",
        _ => return Ok(()),
    };
    let what = format!("an address with {found} is not taken: it would be shown, and kept");
    Err(Failure::new(Exit::Config, "secret_in_address", what).hint(
        "ssh: keys and the agent log in; http: `--token-env VAR`, `--token-file F` or `--keychain`",
    ))
}

impl RemoteSpec {
    /// A remote at `url` with default settings.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self { name: name.into(), url: url.into(), ..Self::default() }
    }

    /// The remote for this machine.
    pub fn local() -> Self {
        Self::new("local", "local")
    }

    /// The price per hour in US dollars, if the user configured one.
    pub fn usd_per_hour(&self) -> Option<f64> {
        self.price_per_hour.map(Price::usd_per_hour)
    }

    /// The scheme of the address; `ssh` for an alias of `~/.ssh/config`.
    pub fn scheme(&self) -> &str {
        match self.url.split_once("://") {
            Some((scheme, _)) => scheme,
            None if self.url == "local" => "local",
            None => "ssh",
        }
    }

    /// The kind of remote; `None` if there is none of this scheme.
    pub fn kind(&self) -> Option<&'static RemoteKind> {
        REMOTES.iter().find(|kind| kind.scheme == self.scheme())
    }

    /// Makes the remote without connecting.
    pub fn open(&self) -> Result<Box<dyn Remote>, RemoteError> {
        match self.kind() {
            Some(kind) => {
                setting::check(self, kind.settings)?;
                (kind.open)(self)
            }
            None => {
                let (url, scheme) = (self.url.clone(), self.scheme());
                let same_initial =
                    |s: &&str| *s != "local" && s.chars().next() == scheme.chars().next();
                let schemes = REMOTES.iter().map(|kind| kind.scheme).filter(same_initial);
                let why = match nearest(scheme, schemes).first() {
                    Some(near) => {
                        let rest = &url[scheme.len()..];
                        format!("there is no kind `{scheme}`; did you mean `{near}{rest}`?")
                    }
                    None => format!(
                        "there is no kind `{scheme}`; an address is {}",
                        forms().join(" or ")
                    ),
                };
                Err(RemoteError::Address { url, why })
            }
        }
    }
}

/// The forms of addresses, each once.
fn forms() -> Vec<&'static str> {
    REMOTES.iter().map(|kind| kind.form).filter(|form| !form.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_scheme_is_told_the_nearest() {
        for (url, meant) in [("sssh://h:22", "`ssh://h:22`"), ("htps://h", "`https://h`")] {
            let text = RemoteSpec::new("x", url).open().map(drop).unwrap_err().to_string();
            assert!(text.contains(meant), "{text}");
        }
        let text = RemoteSpec::new("x", "ftp://h").open().map(drop).unwrap_err().to_string();
        assert!(text.contains("an address is local or ssh://"), "{text}");
    }

    #[test]
    fn addresses_with_secrets_are_refused_and_not_repeated() {
        for bad in [
            "ssh://u:hunter2@h",
            "http://u:hunter2@127.0.0.1:8791",
            "https://h/?token=hunter2",
            "https://h/#hunter2",
            "u:hunter2@h",
            "ssh://u:hun/ter2@h",
        ] {
            let text = without_secret(bad).unwrap_err().to_string();
            assert!(!text.contains("hun"), "{text}");
        }
        for good in
            ["ssh://u@h:22", "u@h", "ssh://u@[::1]:22", "http://127.0.0.1:1", "h*", "wafer://w"]
        {
            without_secret(good).unwrap();
        }
    }
}
