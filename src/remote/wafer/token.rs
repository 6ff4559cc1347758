//! The login, as Wafer's own program keeps it: `WAFER_AUTH_TOKEN`, else
//! `~/.wafer/credentials.json`. A token within half a minute of its end counts as expired, one whose
//! end cannot be read is not shown either; one of the file is then renewed, and the file written
//! anew for both programs.

use std::fmt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use base64ct::{Base64UrlUnpadded, Encoding};
use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::api::Api;
use super::error::WaferError;
use super::service::WaferService;

/// Seconds before its end from which on a token is no longer shown.
const MARGIN_S: i64 = 30;

/// What a token of a service begins with.
const SERVICE: &str = "wfr_cloud_";

/// A token. It stands in no error and no log.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The header that shows it.
    ///
    /// # Errors
    /// It holds what no header can.
    pub(super) fn header(&self) -> Result<HeaderValue, WaferError> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.0)).map_err(|_| {
            WaferError::NoToken { why: "the token holds characters that no token has".to_owned() }
        })?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Its text, for Wafer alone.
    pub(super) fn secret(&self) -> &str {
        &self.0
    }
}

/// What a login brings.
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

/// The token to show.
///
/// # Errors
/// There is none, or it has expired and cannot be renewed.
pub(super) async fn find(place: &WaferService) -> Result<Token, WaferError> {
    let now = jiff::Timestamp::now().as_second();
    let of_environment = place.token.as_ref().map(|token| (token, age(token, now)));
    if let Some((token, TokenAge::Good)) = of_environment {
        return Ok(Token(token.clone()));
    }
    let path = place.credentials();
    let Some(login) = read(&path)? else {
        return Err(match of_environment {
            Some((_, age)) => age.error("WAFER_AUTH_TOKEN"),
            None => WaferError::NoToken { why: format!("`{}` is not there", path.display()) },
        });
    };
    let kept = age(&login.access_token.0, now);
    if kept == TokenAge::Good {
        return Ok(login.access_token);
    }
    let Some(refresh) = &login.refresh_token else {
        return Err(kept.error(&format!("`{}`", path.display())));
    };
    let renewed = renew(place, refresh).await?;
    save(&path, &renewed, None)?;
    Ok(renewed.access_token)
}

async fn renew(place: &WaferService, refresh: &Token) -> Result<Login, WaferError> {
    let missing = |what: &str| WaferError::Expired {
        why: format!("it cannot be renewed: {what} is not in ~/.wafer/config.toml"),
    };
    if place.auth.is_empty() {
        return Err(missing("`supabase_url`"));
    }
    if place.client_key.is_empty() {
        return Err(missing("`supabase_anon_key`"));
    }
    #[derive(Serialize)]
    struct Body<'a> {
        refresh_token: &'a str,
    }
    let api = Api::new(&place.auth, None)?.client_key(&place.client_key)?;
    let path = "/auth/v1/token?grant_type=refresh_token";
    let body = Body { refresh_token: refresh.secret() };
    api.post(path, &body, "renewing the login").await.map_err(|error| match error {
        WaferError::Refused(refusal) => WaferError::Expired { why: refusal.body },
        other => other,
    })
}

/// What can be said of a token without asking anyone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenAge {
    /// It can be shown.
    Good,
    /// It is too old.
    Over,
    /// It does not say when it ends, as all of Wafer's do.
    Unknown,
}

impl TokenAge {
    /// Why a token that lies `there` is not shown.
    fn error(self, there: &str) -> WaferError {
        match self {
            Self::Unknown => WaferError::BadToken { there: there.to_owned() },
            _ => WaferError::Expired { why: format!("the token of {there} is too old") },
        }
    }
}

fn age(token: &str, now: i64) -> TokenAge {
    match end(token) {
        Some(end) if end - now > MARGIN_S => TokenAge::Good,
        Some(_) => TokenAge::Over,
        None => TokenAge::Unknown,
    }
}

/// When a token ends, in seconds of Unix time.
fn end(token: &str) -> Option<i64> {
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

/// The login that is kept; `None`: there is none, or what is there is none.
fn read(path: &Path) -> Result<Option<Login>, WaferError> {
    let because = |why: String| WaferError::NoToken { why: format!("`{}` {why}", path.display()) };
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(because(format!("cannot be read: {e}"))),
    };
    if meta.mode() & 0o077 != 0 {
        return Err(because("can be read by others: `chmod 600` it".to_owned()));
    }
    let bytes = std::fs::read(path).map_err(|e| because(format!("cannot be read: {e}")))?;
    let login = serde_json::from_slice(&bytes);
    login.map(Some).map_err(|e| because(format!("holds no login: {e}")))
}

/// Keeps a login where both programs find it. What else stands there stays.
///
/// # Errors
/// Our own disk.
pub(super) fn save(path: &Path, login: &Login, email: Option<&str>) -> Result<(), WaferError> {
    let failed = |e: std::io::Error| WaferError::Local {
        what: format!("the login cannot be written to `{}`", path.display()),
        why: e.to_string(),
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    let there = std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let mut fields: Map<String, Value> = there.unwrap_or_default();
    let token = |token: &Token| Value::from(token.0.as_str());
    let said = [
        ("access_token", Some(token(&login.access_token))),
        ("refresh_token", login.refresh_token.as_ref().map(token)),
        ("provider_token", login.provider_token.as_ref().map(token)),
        ("email", email.map(Value::from)),
    ];
    for (name, value) in said {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    }
    let text = serde_json::to_vec_pretty(&fields).map_err(|e| failed(e.into()))?;
    // Whole or not at all, and never readable by others.
    let fresh = folder.join(format!(".credentials.{}", std::process::id()));
    let written = (|| {
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        std::io::Write::write_all(&mut file, &text)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    })();
    written.map_err(|error| {
        let _ = std::fs::remove_file(&fresh);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
        assert_eq!(age(&jwt(1_031), 1_000), TokenAge::Good);
        assert_eq!(age(&jwt(1_030), 1_000), TokenAge::Over);
        assert_eq!(age("wfr_cloud_abc_2000_x", 1_000), TokenAge::Good);
        assert_eq!(age("wfr_cloud_abc_900_x", 1_000), TokenAge::Over);
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
