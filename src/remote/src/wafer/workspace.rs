//! Workspaces, the machines that Wafer creates, and the account that pays for them.

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::api::{Api, json};
use super::error::WaferError;
use super::sse::SseLine;
use crate::http::HttpError;
use crate::{Credits, UserPrompt};

/// The longest silence while a workspace is created.
const MAX_SILENCE: Duration = Duration::from_secs(120);

/// The limit on the whole start of a workspace.
const START_TIMEOUT: Duration = Duration::from_secs(900);

/// The properties of a new workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct NewWorkspace {
    pub(super) name: String,
    pub(super) gpu_type: String,
    pub(super) environment_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<String>,
}

/// A workspace as the service describes it. Fields that a version omits are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Workspace {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) status: String,
    pub(super) gpu_type: Option<String>,
    pub(super) ssh_host: Option<String>,
    pub(super) ssh_port: Option<u16>,
    pub(super) ssh_user: Option<String>,
}

impl Workspace {
    /// The ssh address, if the workspace has ssh access.
    pub(super) fn ssh_url(&self) -> Option<String> {
        let host = self.ssh_host.as_deref().filter(|host| !host.is_empty())?;
        let port = self.ssh_port?;
        let user = self.ssh_user.as_deref().filter(|user| !user.is_empty()).unwrap_or("root");
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        Some(format!("ssh://{user}@{host}:{port}"))
    }
}

/// The account's use and limit in cents; -1: unlimited.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    tier: String,
    status: String,
    credits_used_cents: i64,
    credits_limit_cents: i64,
    credits_remaining_cents: i64,
    topup_balance_cents: i64,
    has_hardware_counters: Option<bool>,
}

/// Characters that are not escaped in a path segment.
pub(super) const PATH_SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn path(name: &str) -> String {
    format!("/v1/workspaces/{}", utf8_percent_encode(name, PATH_SEGMENT))
}

/// The URL path for commands in a workspace.
pub(super) fn exec_path(workspace: &Workspace) -> String {
    format!("{}/exec", path(&workspace.id))
}

/// The workspace with this name or id; `None`: it does not exist.
pub(super) async fn find(api: &Api, name: &str) -> Result<Option<Workspace>, WaferError> {
    let answer = api.get_with_retries(&path(name), "asking for the workspace").await?;
    // The service answers JSON; a 404 from anything else on the way is HTML.
    let is_json = serde_json::from_slice::<serde_json::Value>(&answer.body).is_ok();
    if answer.status == StatusCode::NOT_FOUND && is_json {
        return Ok(None);
    }
    let mut workspace: Workspace = api.document(answer)?;
    if workspace.id.is_empty() {
        workspace.id = name.to_owned();
    }
    Ok(Some(workspace))
}

/// Creates the workspace if it does not exist, and waits until it runs.
pub(super) async fn bring_up(
    api: &Api,
    new_workspace: &NewWorkspace,
    user_prompt: &dyn UserPrompt,
) -> Result<Workspace, WaferError> {
    let workspace = match find(api, &new_workspace.name).await? {
        Some(workspace) => workspace,
        None => {
            user_prompt.starting(&format!(
                "making the workspace `{}` ({})",
                new_workspace.name, new_workspace.gpu_type
            ));
            api.post("/v1/workspaces", new_workspace, "making the workspace").await?
        }
    };
    if workspace.status == "running" {
        return Ok(workspace);
    }
    let provisioning = provision(api, &workspace, user_prompt);
    let limit = START_TIMEOUT;
    let doing = "waiting for the workspace";
    tokio::time::timeout(limit, provisioning)
        .await
        .map_err(|_| HttpError::Silent { doing, limit })??;
    // The stream reports only ssh access; a workspace without it may run as well.
    match find(api, &new_workspace.name).await? {
        Some(workspace) if workspace.status == "running" => Ok(workspace),
        Some(Workspace { name, status, .. }) => {
            Err(WaferError::NotUp { name, why: format!("it is `{status}`") })
        }
        None => {
            let name = new_workspace.name.clone();
            Err(WaferError::NotUp { name, why: "it is gone".to_owned() })
        }
    }
}

async fn provision(
    api: &Api,
    workspace: &Workspace,
    user_prompt: &dyn UserPrompt,
) -> Result<(), WaferError> {
    let path = format!("{}/provision-stream", path(&workspace.id));
    let mut stream = api.stream(&path, None, "waiting for the workspace", MAX_SILENCE).await?;
    let name = || workspace.name.clone();
    while let Some(line) = stream.next().await? {
        match line {
            SseLine::Status(status) if status == "error" => {
                let why = "Wafer only says `error`".to_owned();
                return Err(WaferError::NotUp { name: name(), why });
            }
            SseLine::Error(why) => return Err(WaferError::NotUp { name: name(), why }),
            SseLine::Status(message) | SseLine::Phase(message) | SseLine::Billing(message) => {
                user_prompt.starting(&message)
            }
            SseLine::Ssh | SseLine::Exit(_) | SseLine::Done => return Ok(()),
            SseLine::Notice | SseLine::Report(_) | SseLine::Text(_) => {}
        }
    }
    Ok(())
}

/// Destroys a workspace; returns whether it existed.
pub(super) async fn destroy(api: &Api, name: &str) -> Result<bool, WaferError> {
    let Some(workspace) = find(api, name).await? else { return Ok(false) };
    let doing = "destroying the workspace";
    let answer = api.ask(Method::DELETE, &path(&workspace.id), None, doing).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(false);
    }
    // Some versions answer with an empty body.
    if answer.status.is_success() && answer.body.is_empty() {
        return Ok(true);
    }
    api.document::<serde_json::Value>(answer).map(|_| true)
}

/// The account's credits.
pub(super) async fn credits(api: &Api) -> Result<Credits, WaferError> {
    let usage: Usage = api.get("/v1/billing/usage", "asking for the credits").await?;
    let usd = |cents: i64| cents as f64 / 100.0;
    Ok(Credits {
        tier: usage.tier,
        status: usage.status,
        used_usd: usd(usage.credits_used_cents),
        left_usd: (usage.credits_limit_cents >= 0).then(|| usd(usage.credits_remaining_cents)),
        topped_up_usd: usd(usage.topup_balance_cents),
        hardware_counters: usage.has_hardware_counters,
    })
}

/// The e-mail address, or else the id, of a token's owner.
pub(super) async fn token_owner(api: &Api, token: &str) -> Result<String, WaferError> {
    #[derive(Serialize)]
    struct Body<'a> {
        token: &'a str,
    }
    #[derive(Deserialize)]
    struct User {
        user_id: String,
        email: Option<String>,
    }
    let body = json(&Body { token })?;
    let answer =
        api.ask(Method::POST, "/v1/auth/verify", Some(body), "verifying the login").await?;
    let user: User = api.document(answer)?;
    Ok(user.email.unwrap_or(user.user_id))
}
