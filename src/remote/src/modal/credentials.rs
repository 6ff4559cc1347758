//! Modal's proxy token: a key and a secret, from the environment, the desktop's keychain, or a file
//! that only the user can read. It never appears in settings, arguments or errors.
//!
//! Modal has two kinds of tokens. API tokens (`ak-…`, `as-…`) can do everything that the account
//! can, and web endpoints do not accept them; they are refused before they are sent anywhere.

use std::path::{Path, PathBuf};

use super::super::http::HttpError;
use super::super::secret_file::{CredentialError, read_private, variables};
use super::super::worker::Credentials;
use super::super::{RemoteSpec, Setting, SettingValue, keychain};

/// The setting for the environment variable with the key.
pub(super) const KEY_ENV: &str = "key_env";

/// The setting for the environment variable with the secret.
pub(super) const SECRET_ENV: &str = "secret_env";

/// The setting for a file with both, in lines `NAME=VALUE`.
pub(super) const FILE: &str = "env_file";

/// The setting for the keychain service that has both.
pub(super) const KEYCHAIN: &str = "keychain";

pub(super) const KEY_ENV_SETTING: Setting = Setting::new(
    "key-env",
    SettingValue::Variable,
    "The environment variable with the key of a proxy token [default: MODAL_KEY]",
)
.instead_of(&["env-file", "keychain"]);

pub(super) const SECRET_ENV_SETTING: Setting = Setting::new(
    "secret-env",
    SettingValue::Variable,
    "The environment variable with its secret [default: MODAL_SECRET]",
);

pub(super) const FILE_SETTING: Setting = Setting::new(
    "env-file",
    SettingValue::SecretFile("it has lines MODAL_KEY=wk-… and MODAL_SECRET=ws-…, and mode 0600"),
    "A file of mode 0600 with these variables",
)
.instead_of(&["keychain"]);

/// The variables that are read if the settings name none.
const DEFAULT_VARIABLES: (&str, &str) = ("MODAL_KEY", "MODAL_SECRET");

/// The accounts of the keychain service.
const ACCOUNTS: (&str, &str) = ("modal-key", "modal-secret");

/// The proxy token of a remote. Blocks: a keychain may ask the user.
pub(super) fn find(spec: &RemoteSpec) -> Result<Credentials, HttpError> {
    let setting_or_default = |setting: &str, usual: &'static str| {
        spec.options.get(setting).map_or(usual, String::as_str).to_owned()
    };
    let names = (
        setting_or_default(KEY_ENV, DEFAULT_VARIABLES.0),
        setting_or_default(SECRET_ENV, DEFAULT_VARIABLES.1),
    );
    let (key, secret) = match (spec.options.get(FILE), spec.options.get(KEYCHAIN)) {
        (Some(path), _) => {
            let path = PathBuf::from(path);
            let text = read_private(&path).map_err(from_credential_error)?;
            let variables = variables(&text);
            let part = |name: &str| match variables.get(name) {
                Some(value) => {
                    Ok(TokenPart { value: value.clone(), from: describe_in_file(name, &path) })
                }
                None => Err(token_error(&format!("there is no {}", describe_in_file(name, &path)))),
            };
            (part(&names.0)?, part(&names.1)?)
        }
        (None, Some(service)) => {
            (read_from_keychain(service, ACCOUNTS.0)?, read_from_keychain(service, ACCOUNTS.1)?)
        }
        (None, None) => (read_from_environment(&names.0)?, read_from_environment(&names.1)?),
    };
    key.check("wk-")?;
    secret.check("ws-")?;
    Credentials::pair(("modal-key", &key.value), ("modal-secret", &secret.value))
        .ok_or_else(|| token_error("it holds characters that no token has"))
}

/// One part of a token and its source.
struct TokenPart {
    value: String,
    from: String,
}

impl TokenPart {
    /// Refuses a value that cannot be this part: it must begin with `prefix`.
    fn check(&self, prefix: &str) -> Result<(), HttpError> {
        let Self { value, from } = self;
        if value.is_empty() {
            return Err(token_error(&format!("{from} is empty")));
        }
        if value.starts_with("ak-") || value.starts_with("as-") {
            return Err(HttpError::ApiToken { from: from.clone() });
        }
        let other = if prefix == "wk-" { "ws-" } else { "wk-" };
        if value.starts_with(other) {
            return Err(token_error(&format!(
                "{from} begins with `{other}` instead of `{prefix}`: key and secret are swapped"
            )));
        }
        Ok(())
    }
}

fn token_error(why: &str) -> HttpError {
    HttpError::ProxyToken { why: why.to_owned(), hint: None }
}

fn from_credential_error(error: CredentialError) -> HttpError {
    HttpError::ProxyToken { why: error.why, hint: error.hint }
}

fn read_from_environment(name: &str) -> Result<TokenPart, HttpError> {
    let from = format!("${name}");
    match std::env::var(name) {
        Ok(value) => Ok(TokenPart { value: value.trim().to_owned(), from }),
        Err(_) => Err(token_error(&format!("{from} is not set"))),
    }
}

fn describe_in_file(name: &str, path: &Path) -> String {
    format!("`{name}` in `{}`", path.display())
}

/// The value that the desktop's keychain has for an account.
fn read_from_keychain(service: &str, account: &str) -> Result<TokenPart, HttpError> {
    let value = keychain::secret(service, account).map_err(from_credential_error)?;
    Ok(TokenPart { value, from: format!("`{account}` of `{service}` in the keychain") })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn of_file(text: &str) -> Result<Credentials, HttpError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("modal.env");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut spec = RemoteSpec::new("b200", "modal://x.modal.run");
        spec.options.insert(FILE.into(), path.display().to_string());
        find(&spec)
    }

    #[test]
    fn a_file_of_variables_is_read_as_shells_write_it() {
        let found = of_file("# mine\nexport MODAL_KEY=\"wk-1\"\nMODAL_SECRET = ws-2\n").unwrap();
        assert_eq!(found.headers()["modal-key"], "wk-1");
        assert_eq!(found.headers()["modal-secret"], "ws-2");
        assert!(!format!("{found:?} {:?}", found.headers()).contains("wk-1"));
        let error = of_file("MODAL_KEY=wk-1\n").unwrap_err().to_string();
        assert!(error.contains("no `MODAL_SECRET`"), "{error}");
    }

    #[test]
    fn tokens_of_the_api_and_swapped_parts_are_refused_and_not_repeated() {
        for (text, code) in [
            ("MODAL_KEY=ak-hunter2\nMODAL_SECRET=as-hunter2\n", "api_token"),
            ("MODAL_KEY=wk-hunter2\nMODAL_SECRET=as-hunter2\n", "api_token"),
            ("MODAL_KEY=ws-hunter2\nMODAL_SECRET=wk-hunter2\n", "no_token"),
            ("MODAL_KEY=\nMODAL_SECRET=wk-hunter2\n", "no_token"),
        ] {
            let error = of_file(text).unwrap_err();
            assert_eq!(error.code(), code, "{text}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
