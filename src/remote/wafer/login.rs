//! Logging in: a page is opened anywhere, and asked after until its user is done with it.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::api::{Api, json};
use super::error::WaferError;
use super::service::WaferService;
use super::token::{self, Login};
use super::workspace::whose;

/// How often it is asked, as Wafer's own program does.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The longest that a page is waited for, whatever the service says.
const MAX_WAIT: Duration = Duration::from_secs(600);

#[derive(Deserialize)]
struct StartedLogin {
    state: String,
    auth_url: String,
    expires_in: f64,
}

/// Who is logged in, and where that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// The address of the user, else their id.
    pub who: String,
    /// The file.
    pub file: String,
}

/// Logs in. `show` is given the page's address.
///
/// # Errors
/// The link, a refusal, or a user who did not come.
pub async fn login(show: &(dyn Fn(&str) + Sync)) -> Result<LoggedIn, WaferError> {
    let place = WaferService::find()?;
    let api = Api::new(&place.api, None)?;
    let empty = serde_json::Map::new();
    let started: StartedLogin =
        api.post("/v1/auth/cli-auth/start", &empty, "beginning to log in").await?;
    show(&started.auth_url);
    let limit = Duration::try_from_secs_f64(started.expires_in).unwrap_or(MAX_WAIT).min(MAX_WAIT);
    let login = wait(&api, &started.state, limit).await?;
    let who = whose(&api, login.access_token.secret()).await?;
    let email = who.contains('@').then_some(who.as_str());
    let path = place.credentials();
    token::save(&path, &login, email)?;
    Ok(LoggedIn { who, file: path.display().to_string() })
}

async fn wait(api: &Api, state: &str, limit: Duration) -> Result<Login, WaferError> {
    #[derive(Serialize)]
    struct Body<'a> {
        state: &'a str,
    }
    let begun = Instant::now();
    let (path, doing) = ("/v1/auth/cli-auth/token", "waiting for the login");
    loop {
        let asked = Instant::now();
        match api.ask(Method::POST, path, Some(json(&Body { state })?), doing).await {
            Ok(answer) if answer.status == StatusCode::PRECONDITION_REQUIRED => {}
            Ok(answer) => return api.document(answer),
            // The page is open all the same.
            Err(error) if error.is_link() => {}
            Err(error) => return Err(error),
        }
        if begun.elapsed() + POLL_INTERVAL > limit {
            return Err(WaferError::LoginTimeout { limit });
        }
        tokio::time::sleep_until(asked + POLL_INTERVAL).await;
    }
}
