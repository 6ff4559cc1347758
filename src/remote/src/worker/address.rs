//! The address of a worker, and the check that a token may be sent there.

use std::path::PathBuf;

use reqwest::Url;

use crate::http::{HttpError, is_loopback};
use crate::{RemoteError, RemoteSpec, Setting, SettingValue};

/// The setting that allows tokens over plain HTTP to another machine.
pub(super) const PLAIN: &str = "allow_plain_http";

pub(super) const PLAIN_SETTING: Setting = Setting::new(
    "allow-plain-http",
    SettingValue::Switch,
    "Allow sending the token over plain HTTP, where others can read it",
);

/// The setting for a file of certificates to trust besides the system's.
pub(super) const CA: &str = "ca_file";

pub(crate) const CA_FILE: Setting = Setting::new(
    "ca-file",
    SettingValue::File,
    "A file of certificates to trust in addition to the system's",
);

#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// The URL without a trailing slash.
    base: String,
    url: Url,
    pub(super) ca: Option<PathBuf>,
}

impl Address {
    /// The address of `spec`.
    pub(crate) fn from_spec(spec: &RemoteSpec) -> Result<Self, RemoteError> {
        let invalid =
            |why: &str| RemoteError::Address { url: spec.url.clone(), why: why.to_owned() };
        let url = Url::parse(&spec.url).map_err(|e| invalid(&e.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            // Not repeated, because it may be a secret.
            return Err(RemoteError::Address {
                url: format!("{}://…@{}", url.scheme(), url.host_str().unwrap_or_default()),
                why: "put a token into the environment or a file, never into an address".to_owned(),
            });
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("nothing may follow `?` or `#`"));
        }
        if !url.has_host() {
            return Err(invalid("there is no host in it"));
        }
        let allows_plain = match spec.options.get(PLAIN).map(String::as_str) {
            None | Some("no" | "false") => false,
            Some("yes" | "true") => true,
            Some(other) => {
                return Err(RemoteError::Setting {
                    setting: PLAIN.to_owned(),
                    why: format!("`{other}` is neither `yes` nor `no`"),
                });
            }
        };
        let base = url.as_str().trim_end_matches('/').to_owned();
        let address = Self { base, url, ca: spec.options.get(CA).map(PathBuf::from) };
        if !address.is_tls() && !is_loopback(&address.url) && !allows_plain {
            return Err(HttpError::PlainHttp { url: spec.url.clone() }.into());
        }
        Ok(address)
    }

    /// The URL without a trailing slash.
    pub(super) fn as_str(&self) -> &str {
        &self.base
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    pub(super) fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }
}

/// Refuses settings that only apply to ssh.
pub(crate) fn no_ssh_settings(spec: &RemoteSpec) -> Result<(), RemoteError> {
    let set = [
        ("jump", spec.jump.is_some()),
        ("identity", spec.identity.is_some()),
        ("ssh_config", spec.ssh_config.is_some()),
        ("via", !spec.via.is_empty()),
        ("agent_folder", spec.agent_folder.is_some()),
    ];
    match set.iter().find(|(_, set)| *set) {
        None => Ok(()),
        Some((setting, _)) => Err(RemoteError::Setting {
            setting: (*setting).to_owned(),
            why: format!("a `{}` remote does not know it", spec.scheme()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Result<Address, RemoteError> {
        Address::from_spec(&RemoteSpec::new("box", url))
    }

    #[test]
    fn tokens_go_over_tls_or_to_this_machine_unless_the_user_says_otherwise() {
        for good in
            ["https://gpu-box:8790/", "http://127.0.0.1:1", "http://localhost", "http://[::1]:2"]
        {
            let address = address(good).unwrap();
            assert!(address.is_tls() || is_loopback(address.url()));
            assert!(!address.as_str().ends_with('/'));
        }
        assert_eq!(address("http://gpu-box:8790").unwrap_err().code(), "plain_http");
        let mut spec = RemoteSpec::new("box", "http://gpu-box:8790");
        spec.options.insert(PLAIN.into(), "yes".into());
        Address::from_spec(&spec).unwrap();
        spec.options.insert(PLAIN.into(), "maybe".into());
        assert_eq!(Address::from_spec(&spec).unwrap_err().code(), "bad_setting");
    }

    #[test]
    fn an_address_with_a_token_in_it_is_refused_and_not_repeated() {
        let error = address("https://me:hunter2@box").unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        for bad in ["https://", "https://box?x=1", "https://box/#a", "http://[::1"] {
            assert_eq!(address(bad).unwrap_err().code(), "bad_address", "{bad}");
        }
    }
}
