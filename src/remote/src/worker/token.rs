//! Finds a worker's token: in an environment variable, the desktop's keychain, or a file that only
//! the user can read. It never appears in settings, arguments or errors.

use std::fmt;
use std::path::PathBuf;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use crate::http::{HttpError, bearer};
use crate::secret_file::{CredentialError, read_private};
use crate::{RemoteSpec, Setting, SettingValue, keychain};

/// The setting for the environment variable.
pub(super) const ENV: &str = "token_env";

/// The setting for the file.
pub(super) const FILE: &str = "token_file";

/// The setting for the keychain service; the account's name is fixed.
pub(super) const KEYCHAIN: &str = "keychain";
const ACCOUNT: &str = "token";

pub(super) const ENV_SETTING: Setting = Setting::new(
    "token-env",
    SettingValue::Variable,
    "The environment variable with a worker's token",
)
.instead_of(&["token-file", "keychain"]);

pub(super) const FILE_SETTING: Setting = Setting::new(
    "token-file",
    SettingValue::SecretFile("it is a copy of the token file whose path `rgpu worker` printed"),
    "The file with a worker's token",
)
.instead_of(&["token-env", "keychain"]);

pub(crate) const KEYCHAIN_SETTING: Setting = Setting::new(
    "keychain",
    SettingValue::Text("SERVICE"),
    "The keychain service that has them, as `modal-key` and `modal-secret`, or as `token` for a \
     worker",
)
.instead_of(&["env-file", "token-env", "token-file"]);

/// The variable that is read if no setting names a source.
const DEFAULT_TOKEN_VARIABLE: &str = "RGPU_WORKER_TOKEN";

/// The headers that authenticate a request.
#[derive(Clone)]
pub(crate) struct Credentials(HeaderMap);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Credentials of a bearer token, with its source for messages.
    fn bearer(token: &str, from: &str) -> Result<Self, HttpError> {
        let unfit = |why: &str| HttpError::Token {
            why: format!("{from} {why}"),
            hint: Some(put_hint(from)),
        };
        if token.is_empty() {
            return Err(unfit("is empty"));
        }
        let value = bearer(token).ok_or_else(|| unfit("holds characters that no token has"))?;
        Ok(Self(HeaderMap::from_iter([(AUTHORIZATION, value)])))
    }

    /// A token in two headers; `None`: a part cannot be a header value.
    pub(crate) fn pair(first: (&'static str, &str), second: (&'static str, &str)) -> Option<Self> {
        let mut headers = HeaderMap::new();
        for (name, part) in [first, second] {
            let mut value = HeaderValue::from_str(part).ok()?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Some(Self(headers))
    }

    /// The headers to send with every request.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.0
    }
}

/// The credentials of a remote.
pub(super) fn find(spec: &RemoteSpec) -> Result<Credentials, HttpError> {
    if let Some(path) = spec.options.get(FILE) {
        let path = PathBuf::from(path);
        let place = format!("`{}`", path.display());
        let text = read_private(&path).map_err(|error| token_error(error, &place))?;
        return Credentials::bearer(text.trim(), &place);
    }
    if let Some(service) = spec.options.get(KEYCHAIN) {
        let token = keychain::secret(service, ACCOUNT)
            .map_err(|error| token_error(error, "the keychain"))?;
        return Credentials::bearer(&token, &format!("`{ACCOUNT}` of `{service}` in the keychain"));
    }
    let (name, is_set_by_user) = match spec.options.get(ENV) {
        Some(name) => (name.as_str(), true),
        None => (DEFAULT_TOKEN_VARIABLE, false),
    };
    match std::env::var(name) {
        Ok(token) => Credentials::bearer(token.trim(), &format!("${name}")),
        Err(_) if is_set_by_user => Err(HttpError::Token {
            why: format!("${name} is not set"),
            hint: Some(put_hint(&format!("${name}"))),
        }),
        Err(_) => Err(no_source()),
    }
}

/// Checks that a source for the token is named; the source is only read when needed.
pub(super) fn is_named(spec: &RemoteSpec) -> Result<(), HttpError> {
    let named = [FILE, ENV, KEYCHAIN].iter().any(|setting| spec.options.contains_key(*setting));
    if named || std::env::var_os(DEFAULT_TOKEN_VARIABLE).is_some() {
        Ok(())
    } else {
        Err(no_source())
    }
}

fn no_source() -> HttpError {
    let why = format!(
        "the remote names no variable, file or keychain for it, and ${DEFAULT_TOKEN_VARIABLE} is not set"
    );
    HttpError::Token { why, hint: None }
}

fn token_error(error: CredentialError, place: &str) -> HttpError {
    let CredentialError { why, hint } = error;
    HttpError::Token { why, hint: hint.or_else(|| Some(put_hint(place))) }
}

fn put_hint(place: &str) -> String {
    format!("put the token from the token file of `rgpu worker` into {place}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_file_is_its_users_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let mut spec = RemoteSpec::new("box", "https://box");
        spec.options.insert(FILE.into(), path.display().to_string());
        assert!(find(&spec).unwrap_err().to_string().contains("cannot be read"));
        std::fs::write(&path, "secret-secret\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let open = find(&spec).unwrap_err();
        assert!(open.to_string().contains("(mode 644)"), "{open}");
        let hints = open.explain(failure(), "box").hints;
        assert!(hints.len() == 1 && hints[0].starts_with("`chmod 600 "), "{hints:?}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let found = find(&spec).unwrap();
        assert_eq!(found.headers()[AUTHORIZATION], "Bearer secret-secret");
        assert!(!format!("{found:?} {:?}", found.headers()).contains("secret-secret"));
        std::fs::write(&path, " \n").unwrap();
        let empty = find(&spec).unwrap_err();
        assert!(empty.to_string().contains("is empty"));
        let hint = empty.explain(failure(), "box").hints.concat();
        assert!(hint.contains("into `") && !hint.contains("remote add"), "{hint}");
    }

    fn failure() -> rgpu_model::error::Failure {
        rgpu_model::error::Failure::new(rgpu_model::error::Exit::Config, "no_token", "x")
    }

    #[test]
    fn an_address_without_a_name_is_told_how_a_name_is_given() {
        let hint = |remote: &str| no_source().explain(failure(), remote).hints.concat();
        assert!(hint("box").contains("rgpu remote add box URL --token-file FILE"));
        let hint = hint("http://127.0.0.1:8790");
        assert!(hint.contains("rgpu remote add NAME http://127.0.0.1:8790 --token"), "{hint}");
        assert!(hint.contains(DEFAULT_TOKEN_VARIABLE), "{hint}");
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let mut spec = RemoteSpec::new("box", "https://box");
        spec.options.insert(ENV.into(), "RGPU_NO_SUCH_TOKEN".into());
        assert!(find(&spec).unwrap_err().to_string().contains("$RGPU_NO_SUCH_TOKEN is not set"));
    }
}
