//! Where a worker's token comes from: a variable of the environment, the desktop's keychain, or a
//! file that only its user can read. It stands in no settings, no argument and no error.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::error::HttpError;
use crate::remote::{RemoteSpec, keychain};

/// The setting that names the variable.
pub(super) const ENV: &str = "token_env";

/// The setting that names the file.
pub(super) const FILE: &str = "token_file";

/// The setting that names the keychain's service, and the account of it.
pub(super) const KEYCHAIN: &str = "keychain";
const ACCOUNT: &str = "token";

/// The variable that is read when neither is set.
const USUAL: &str = "RGPU_WORKER_TOKEN";

/// What a request shows to be let in.
#[derive(Clone)]
pub(in crate::remote) struct Credentials(HeaderMap);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// A bearer's token.
    fn bearer(token: &str, from: &str) -> Result<Self, HttpError> {
        let unfit = |why: &str| HttpError::Token {
            why: format!("{from} {why}"),
            named: Some(from.to_owned()),
        };
        if token.is_empty() {
            return Err(unfit("is empty"));
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| unfit("holds characters that no token has"))?;
        value.set_sensitive(true);
        Ok(Self(HeaderMap::from_iter([(AUTHORIZATION, value)])))
    }

    /// A token in two headers of their own; `None`: no header can hold a part.
    pub(in crate::remote) fn pair(
        first: (&'static str, &str),
        second: (&'static str, &str),
    ) -> Option<Self> {
        let mut headers = HeaderMap::new();
        for (name, part) in [first, second] {
            let mut value = HeaderValue::from_str(part).ok()?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Some(Self(headers))
    }

    /// The headers that show it.
    pub(in crate::remote) fn headers(&self) -> &HeaderMap {
        &self.0
    }
}

/// The credentials of a remote.
///
/// # Errors
/// There are none, or others can read them.
pub(super) fn find(spec: &RemoteSpec) -> Result<Credentials, HttpError> {
    if let Some(path) = spec.options.get(FILE) {
        let path = PathBuf::from(path);
        let place = format!("`{}`", path.display());
        let text = read_private(&path)
            .map_err(|why| HttpError::Token { why, named: Some(place.clone()) })?;
        return Credentials::bearer(text.trim(), &place);
    }
    if let Some(service) = spec.options.get(KEYCHAIN) {
        let token = keychain::secret(service, ACCOUNT)
            .map_err(|why| HttpError::Token { why, named: Some("the keychain".to_owned()) })?;
        return Credentials::bearer(&token, &format!("`{ACCOUNT}` of `{service}` in the keychain"));
    }
    let (name, said) = match spec.options.get(ENV) {
        Some(name) => (name.as_str(), true),
        None => (USUAL, false),
    };
    match std::env::var(name) {
        Ok(token) => Credentials::bearer(token.trim(), &format!("${name}")),
        Err(_) if said => Err(HttpError::Token {
            why: format!("${name} is not set"),
            named: Some(format!("${name}")),
        }),
        Err(_) => Err(unnamed()),
    }
}

/// Whether a place for the token is named at all; what lies there is looked at when it is needed.
///
/// # Errors
/// None is, and the usual variable is not set.
pub(super) fn is_named(spec: &RemoteSpec) -> Result<(), HttpError> {
    let named = [FILE, ENV, KEYCHAIN].iter().any(|setting| spec.options.contains_key(*setting));
    match named || std::env::var_os(USUAL).is_some() {
        true => Ok(()),
        false => Err(unnamed()),
    }
}

fn unnamed() -> HttpError {
    let why =
        format!("the remote names no variable, file or keychain for it, and ${USUAL} is not set");
    HttpError::Token { why, named: None }
}

/// A file that only its user can read.
///
/// # Errors
/// Why it is not read, in words.
pub(in crate::remote) fn read_private(path: &Path) -> Result<String, String> {
    let because = |why: String| format!("`{}` {why}", path.display());
    let meta = std::fs::metadata(path).map_err(|e| because(format!("cannot be read: {e}")))?;
    if meta.mode() & 0o077 != 0 {
        return Err(because("can be read by others: `chmod 600` it".to_owned()));
    }
    std::fs::read_to_string(path).map_err(|e| because(format!("cannot be read: {e}")))
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
        assert!(find(&spec).unwrap_err().to_string().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let found = find(&spec).unwrap();
        assert_eq!(found.headers()[AUTHORIZATION], "Bearer secret-secret");
        assert!(!format!("{found:?} {:?}", found.headers()).contains("secret-secret"));
        std::fs::write(&path, " \n").unwrap();
        let empty = find(&spec).unwrap_err();
        assert!(empty.to_string().contains("is empty"));
        let failure = crate::error::Failure::new(crate::error::Exit::Config, "no_token", "x");
        let hint = empty.explain(failure, "box").hints.concat();
        assert!(hint.contains("into `") && !hint.contains("remote add"), "{hint}");
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let mut spec = RemoteSpec::new("box", "https://box");
        spec.options.insert(ENV.into(), "RGPU_NO_SUCH_TOKEN".into());
        assert!(find(&spec).unwrap_err().to_string().contains("$RGPU_NO_SUCH_TOKEN is not set"));
    }
}
