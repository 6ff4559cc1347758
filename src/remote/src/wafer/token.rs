//! The login of Wafer's own program: `WAFER_AUTH_TOKEN`, or else `~/.wafer/credentials.json`. A
//! token is not sent in the last half minute before it expires, nor if its expiry cannot be read. A
//! token from the file is then renewed, and the file is rewritten for rgpu and Wafer's program.

#![expect(clippy::disallowed_methods, reason = "the user's token, in rgpu's data folder")]

use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use base64ct::{Base64UrlUnpadded, Encoding};
use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::api::Api;
use super::error::WaferError;
use super::service::WaferService;
use crate::http::{HttpError, bearer};
use crate::secret_file::{CredentialError, read_private};

/// Seconds before its expiry from which a token is no longer sent.
const MARGIN_S: i64 = 30;

/// The prefix of a service token.
const SERVICE: &str = "wfr_cloud_";

/// A token. It never appears in errors or logs.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The header that carries the token.
    pub(super) fn header(&self) -> Result<HeaderValue, WaferError> {
        bearer(&self.0).ok_or_else(|| WaferError::NoToken {
            why: "the token has characters that no token can have".to_owned(),
        })
    }

    /// The token's text, to be sent to Wafer only.
    pub(super) fn secret(&self) -> &str {
        &self.0
    }
}

/// The tokens of a login.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Login {
    #[serde(deserialize_with = "token")]
    pub(super) access_token: Token,
    #[serde(default, deserialize_with = "some_token")]
    pub(super) refresh_token: Option<Token>,
    #[serde(default, deserialize_with = "some_token")]
    pub(super) provider_token: Option<Token>,
}

fn token<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Token, D::Error> {
    String::deserialize(deserializer).map(|text| Token(text.trim().to_owned()))
}

fn some_token<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Token>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(|text| Token(text.trim().to_owned())))
}

/// The token to send.
pub(super) async fn find(service: &WaferService) -> Result<Token, WaferError> {
    let now = jiff::Timestamp::now().as_second();
    let env_token = service.token.as_ref().map(|token| (token, age(token, now)));
    if let Some((token, TokenAge::Valid)) = env_token {
        return Ok(Token(token.clone()));
    }
    let path = service.credentials();
    let Some(login) = read(&path)? else {
        return Err(match env_token {
            Some((_, age)) => age.error("WAFER_AUTH_TOKEN"),
            None => WaferError::NoToken { why: format!("`{}` does not exist", path.display()) },
        });
    };
    let stored_age = age(&login.access_token.0, now);
    if stored_age == TokenAge::Valid {
        return Ok(login.access_token);
    }
    let Some(refresh) = &login.refresh_token else {
        return Err(stored_age.error(&format!("`{}`", path.display())));
    };
    let renewed = renew(service, refresh).await?;
    save(&path, &renewed, None)?;
    Ok(renewed.access_token)
}

async fn renew(service: &WaferService, refresh: &Token) -> Result<Login, WaferError> {
    let missing_setting = |what: &str| WaferError::Expired {
        why: format!("it cannot be renewed: {what} is not in ~/.wafer/config.toml"),
    };
    if service.auth.is_empty() {
        return Err(missing_setting("`supabase_url`"));
    }
    if service.client_key.is_empty() {
        return Err(missing_setting("`supabase_anon_key`"));
    }
    #[derive(Serialize)]
    struct Body<'a> {
        refresh_token: &'a str,
    }
    let api = Api::new(&service.auth, None)?.client_key(&service.client_key)?;
    let path = "/auth/v1/token?grant_type=refresh_token";
    let body = Body { refresh_token: refresh.secret() };
    api.post(path, &body, "renewing the login").await.map_err(|error| match error {
        WaferError::Http(HttpError::Refused(refusal)) => WaferError::Expired { why: refusal.body },
        other => other,
    })
}

/// The validity of a token, as far as the token itself shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenAge {
    /// The token can be sent.
    Valid,
    /// The token has expired.
    Expired,
    /// Its expiry cannot be read. All tokens of Wafer have one.
    Unknown,
}

impl TokenAge {
    /// The error for a token of this variable or file that is not sent.
    fn error(self, source: &str) -> WaferError {
        match self {
            Self::Unknown => WaferError::BadToken { there: source.to_owned() },
            _ => WaferError::Expired { why: format!("the token of {source} is too old") },
        }
    }
}

fn age(token: &str, now: i64) -> TokenAge {
    match expiry(token) {
        Some(expiry) if expiry - now > MARGIN_S => TokenAge::Valid,
        Some(_) => TokenAge::Expired,
        None => TokenAge::Unknown,
    }
}

/// When a token expires, in seconds of Unix time. `None` if it does not say so.
fn expiry(token: &str) -> Option<i64> {
    if token.starts_with(SERVICE) {
        return token.split('_').nth(3)?.parse().ok();
    }
    #[derive(Deserialize)]
    struct Claims {
        exp: f64,
    }
    let payload = token.split('.').nth(1)?.trim_end_matches('=');
    let bytes = Base64UrlUnpadded::decode_vec(payload).ok()?;
    let claims: Claims = serde_json::from_slice(&bytes).ok()?;
    Some(claims.exp as i64)
}

/// The stored login; `None`: the file does not exist.
fn read(path: &Path) -> Result<Option<Login>, WaferError> {
    if matches!(path.try_exists(), Ok(false)) {
        return Ok(None);
    }
    let text = read_private(path).map_err(|CredentialError { why, hint }| WaferError::NoToken {
        why: hint.map_or(why.clone(), |hint| format!("{why}: {hint}")),
    })?;
    let login = serde_json::from_str(&text);
    login.map(Some).map_err(|e| WaferError::NoToken {
        why: format!("`{}` holds no login: {e}", path.display()),
    })
}

/// Stores a login where both programs find it. Keeps other fields of the file.
pub(super) fn save(path: &Path, login: &Login, email: Option<&str>) -> Result<(), WaferError> {
    let failed = |e: std::io::Error| WaferError::Local {
        what: format!("the login cannot be written to `{}`", path.display()),
        why: e.to_string(),
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    let existing = std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let mut fields: Map<String, Value> = existing.unwrap_or_default();
    let token = |token: &Token| Value::from(token.0.as_str());
    let new_fields = [
        ("access_token", Some(token(&login.access_token))),
        ("refresh_token", login.refresh_token.as_ref().map(token)),
        ("provider_token", login.provider_token.as_ref().map(token)),
        ("email", email.map(Value::from)),
    ];
    for (name, value) in new_fields {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    }
    let text = serde_json::to_vec_pretty(&fields).map_err(|e| failed(e.into()))?;
    // Written completely or not at all, and never readable by others.
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".credentials.").tempfile_in(folder)?;
        std::io::Write::write_all(&mut file, &text)?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|e| e.error)
    };
    write().map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn jwt(exp: i64) -> String {
        let claims = format!("{{\"sub\":\"me\",\"exp\":{exp}}}");
        format!("e30.{}.x", Base64UrlUnpadded::encode_string(claims.as_bytes()))
    }

    fn login(text: &str) -> Login {
        Login {
            access_token: Token(text.to_owned()),
            refresh_token: Some(Token("again".to_owned())),
            provider_token: None,
        }
    }

    #[test]
    fn a_token_expires_half_a_minute_early_and_one_that_cannot_be_read_is_called_so() {
        assert_eq!(age(&jwt(1_031), 1_000), TokenAge::Valid);
        assert_eq!(age(&jwt(1_030), 1_000), TokenAge::Expired);
        assert_eq!(age("wfr_cloud_abc_2000_x", 1_000), TokenAge::Valid);
        assert_eq!(age("wfr_cloud_abc_900_x", 1_000), TokenAge::Expired);
        for bad in ["", "x", "a.b.c", "wfr_cloud_abc", "e30.e30.x"] {
            assert_eq!(age(bad, 0), TokenAge::Unknown, "{bad}");
        }
    }

    #[test]
    fn a_login_is_kept_for_its_user_alone_with_what_stood_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".wafer/credentials.json");
        assert!(read(&path).unwrap().is_none());
        save(&path, &login("one"), Some("me@example.com")).unwrap();
        save(&path, &login("two"), None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("me@example.com") && text.contains("two"), "{text}");
        let kept = read(&path).unwrap().unwrap();
        assert_eq!(kept.access_token, Token("two".to_owned()));
        assert!(!format!("{kept:?}").contains("two"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("chmod 600"));
    }
}
