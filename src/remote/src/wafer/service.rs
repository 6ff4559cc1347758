//! The address of Wafer's service, found as its own command line does: `WAFER_API_URL`, or else
//! `~/.wafer/config.toml`, or else the live service. `~/.wafer/.env` is read as that program reads
//! it. A `.env` of the current folder is not read: a project must not decide where a token goes.
//!
//! Source: the published packages `wafer-ai` 0.0.13 and 0.0.85.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reqwest::Url;
use serde::Deserialize;

use super::error::WaferError;
use crate::http::is_loopback;
use crate::secret_file::variables;
use rgpu_model::regular_file::{self, MAX_TOML_BYTES};
use rgpu_model::toml_error;

/// The URLs of the live service and of its authentication server.
const LIVE_SERVICE: (&str, &str) = ("https://www.api.wafer.ai", "https://auth.wafer.ai");

/// Other services that the program knows by name.
const NAMED_SERVICES: &[(&str, &str, &str)] = &[
    ("prod", LIVE_SERVICE.0, LIVE_SERVICE.1),
    ("staging", "https://wafer-api-staging.onrender.com", ""),
    ("local", "http://localhost:8000", "http://localhost:54321"),
];

/// The service's addresses and credentials.
#[derive(Clone, Debug)]
pub(super) struct WaferService {
    /// The service's URL without a trailing slash.
    pub(super) api: String,
    /// The URL of the authentication server; empty: not known.
    pub(super) auth: String,
    /// The key that the authentication server requires of every client; empty: not known.
    pub(super) client_key: String,
    /// The folder with the login of both programs.
    pub(super) folder: PathBuf,
    /// A token from the environment.
    pub(super) token: Option<String>,
}

/// The relevant part of `~/.wafer/config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WaferConfigFile {
    api: FileApi,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FileApi {
    environment: String,
    environments: BTreeMap<String, FileEnvironment>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FileEnvironment {
    url: String,
    supabase_url: String,
    supabase_anon_key: String,
}

impl WaferService {
    /// Reads the user's environment and files.
    pub(super) fn find() -> Result<Self, WaferError> {
        let home = etcetera::home_dir().map_err(|e| WaferError::Local {
            what: "your home folder is unknown".to_owned(),
            why: e.to_string(),
        })?;
        Self::from(home.join(".wafer"), |name| {
            std::env::var(name).ok().filter(|value| !value.is_empty())
        })
    }

    fn from(folder: PathBuf, var: impl Fn(&str) -> Option<String>) -> Result<Self, WaferError> {
        let dotenv = variables(&text(&folder.join(".env"))?);
        let var = |name: &str| var(name).or_else(|| dotenv.get(name).cloned());
        let path = folder.join("config.toml");
        let file: WaferConfigFile =
            toml::from_str(&text(&path)?).map_err(|e: toml::de::Error| WaferError::Local {
                what: format!("`{}` cannot be read", path.display()),
                why: toml_error::short(&e.to_string()),
            })?;
        let name = match file.api.environment.as_str() {
            "" => "prod",
            name => name,
        };
        let (mut api, mut auth) = LIVE_SERVICE;
        if let Some((_, a, b)) = NAMED_SERVICES.iter().find(|(known, ..)| *known == name) {
            (api, auth) = (a, b);
        }
        let own = file.api.environments.get(name);
        let value_or = |own: Option<&String>, default: &str| {
            own.filter(|value| !value.is_empty()).map_or_else(|| default.to_owned(), Clone::clone)
        };
        let api = var("WAFER_API_URL").unwrap_or_else(|| value_or(own.map(|o| &o.url), api));
        let auth =
            var("SUPABASE_URL").unwrap_or_else(|| value_or(own.map(|o| &o.supabase_url), auth));
        let client_key = value_or(own.map(|o| &o.supabase_anon_key), "");
        let (api, auth) =
            (checked_url(&api)?, if auth.is_empty() { auth } else { checked_url(&auth)? });
        Ok(Self { api, auth, client_key, folder, token: var("WAFER_AUTH_TOKEN") })
    }

    /// The file with the login.
    pub(super) fn credentials(&self) -> PathBuf {
        self.folder.join("credentials.json")
    }
}

/// Checks that a token may be sent to an address; returns it without a trailing slash.
fn checked_url(address: &str) -> Result<String, WaferError> {
    let invalid = |why: &str| WaferError::Local {
        what: format!("`{address}` is not an address for Wafer's service"),
        why: why.to_owned(),
    };
    let url = Url::parse(address).map_err(|e| invalid(&e.to_string()))?;
    if url.scheme() != "https" && !is_loopback(&url) {
        return Err(invalid("a token goes over https, or to this machine"));
    }
    Ok(address.trim_end_matches('/').to_owned())
}

/// The text of a file; empty if it does not exist.
fn text(path: &Path) -> Result<String, WaferError> {
    match regular_file::read_to_string(path, MAX_TOML_BYTES) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(WaferError::Local {
            what: format!("`{}` cannot be read", path.display()),
            why: e.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_service(
        config: &str,
        dotenv: &str,
        vars: &[(&str, &str)],
    ) -> Result<WaferService, WaferError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.toml"), config).unwrap();
        std::fs::write(dir.path().join(".env"), dotenv).unwrap();
        WaferService::from(dir.path().to_owned(), |name| {
            vars.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_wins_over_the_file_and_the_file_over_what_is_built_in() {
        let built_in = read_service("", "", &[]).unwrap();
        assert_eq!((built_in.api.as_str(), built_in.auth.as_str()), LIVE_SERVICE);
        let config = "[api]\nenvironment = \"mine\"\n[api.environments.mine]\n\
             url = \"https://wafer.example/\"\nsupabase_url = \"https://auth.example\"\n\
             supabase_anon_key = \"k\"\n[defaults]\ngpu = \"B200\"\n";
        let mine = read_service(config, "", &[]).unwrap();
        assert_eq!((mine.api.as_str(), mine.client_key.as_str()), ("https://wafer.example", "k"));
        let dotenv = "# mine\nexport WAFER_AUTH_TOKEN='t'\nWAFER_API_URL=https://a.example\n";
        let vars = [("WAFER_API_URL", "http://127.0.0.1:1/")];
        let from_env = read_service(config, dotenv, &vars).unwrap();
        assert_eq!(from_env.api, "http://127.0.0.1:1");
        assert_eq!(from_env.token.as_deref(), Some("t"));
        assert_eq!(
            read_service("[api]\nenvironment = \"local\"", "", &[]).unwrap().auth,
            NAMED_SERVICES[2].2
        );
    }

    #[test]
    fn no_token_goes_over_the_network_in_the_clear() {
        for bad in ["http://wafer.example", "ftp://127.0.0.1x", "wafer"] {
            let error = read_service("", "", &[("WAFER_API_URL", bad)]).unwrap_err();
            assert_eq!(error.code(), "wafer_settings", "{bad}");
        }
        assert_eq!(read_service("[api", "", &[]).unwrap_err().code(), "wafer_settings");
    }
}
