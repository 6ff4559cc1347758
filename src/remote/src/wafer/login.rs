//! Logs in: the user opens a page in a browser, and we poll until the login is finished.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::api::{Api, json};
use super::error::WaferError;
use super::service::WaferService;
use super::token::{self, Login};
use super::workspace::token_owner;

/// The interval between polls, as in Wafer's own program.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The longest wait for the user, whatever limit the service sets.
const MAX_WAIT: Duration = Duration::from_secs(600);

#[derive(Deserialize)]
struct StartedLogin {
    state: String,
    auth_url: String,
    expires_in: f64,
}

/// The user who logged in, and the file with the login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// The user's e-mail address, or else their id.
    pub who: String,
    /// The file with the login.
    pub file: String,
}

/// Logs in. `show` receives the address of the login page.
pub async fn login(show: &(dyn Fn(&str) + Sync)) -> Result<LoggedIn, WaferError> {
    let service = WaferService::find()?;
    let api = Api::new(&service.api, None)?;
    let empty = serde_json::Map::new();
    let started: StartedLogin =
        api.post("/v1/auth/cli-auth/start", &empty, "beginning to log in").await?;
    show(&started.auth_url);
    let limit = Duration::try_from_secs_f64(started.expires_in).unwrap_or(MAX_WAIT).min(MAX_WAIT);
    let login = wait_for_login(&api, &started.state, limit).await?;
    let who = token_owner(&api, login.access_token.secret()).await?;
    let email = who.contains('@').then_some(who.as_str());
    let path = service.credentials();
    token::save(&path, &login, email)?;
    Ok(LoggedIn { who, file: path.display().to_string() })
}

async fn wait_for_login(api: &Api, state: &str, limit: Duration) -> Result<Login, WaferError> {
    #[derive(Serialize)]
    struct Body<'a> {
        state: &'a str,
    }
    let begun = Instant::now();
    let (path, doing) = ("/v1/auth/cli-auth/token", "waiting for the login");
    loop {
        let polled_at = Instant::now();
        match api.ask(Method::POST, path, Some(json(&Body { state })?), doing).await {
            Ok(answer) if answer.status == StatusCode::PRECONDITION_REQUIRED => {}
            Ok(answer) => return api.document(answer),
            // The login page stays open, so the wait continues.
            Err(error) if error.is_link() => {}
            Err(error) => return Err(error),
        }
        if begun.elapsed() + POLL_INTERVAL > limit {
            return Err(WaferError::LoginTimeout { limit });
        }
        tokio::time::sleep_until(polled_at + POLL_INTERVAL).await;
    }
}
