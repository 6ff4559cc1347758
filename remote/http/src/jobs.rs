//! Jobs: submitting, listing, commands, and removal.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Query, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use rgpu_agent::connection::follow::{ClientOutput, Position};
use rgpu_agent::service::{JobCommand, SubmitResult};
use rgpu_agent::setup::ConnectionSettings;
use rgpu_protocol::FromAgent;
use rgpu_protocol::frame::MAX_BODY;
use rgpu_protocol::http::{FRAMES, HEARTBEAT_INTERVAL, IDEMPOTENCY_KEY, MAX_WAIT_S, SubmitRequest};
use serde::Deserialize;

use crate::answer::{HttpRefusal, done, json};
use crate::body::{read, read_json};
use crate::state::State;
use crate::stream::FollowedBody;

/// The parameters of `POST /v1/jobs`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SubmitQuery {
    wait: Option<u64>,
    inline: u64,
}

/// Returns whether the client accepts the media type.
pub(crate) fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| {
        accept.split(',').any(|kind| kind.split(';').next().is_some_and(|k| k.trim() == media))
    })
}

/// Returns the time to wait, within the limit of all platforms.
pub(crate) fn wait_duration(seconds: Option<u64>, default_s: u64) -> Duration {
    Duration::from_secs(seconds.unwrap_or(default_s).min(MAX_WAIT_S))
}

/// Starts a job, or attaches to the existing one with the same name.
pub(crate) async fn submit(
    Shared(state): Shared<Arc<State>>,
    Query(query): Query<SubmitQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpRefusal> {
    let SubmitRequest { plan, secrets, settings } = read_json(body).await?;
    if headers.get(IDEMPOTENCY_KEY).is_some_and(|key| key.as_bytes() != plan.job.as_bytes()) {
        let text = format!("`{IDEMPOTENCY_KEY}` is the name of the plan's job");
        return Err(HttpRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_key", text));
    }
    let job = plan.job.clone();
    let submitted = state
        .run_blocking(move |service| {
            let setup = ConnectionSettings::new(&settings.path, settings.env);
            service.submit(&plan, &secrets, &setup)
        })
        .await?;
    let (folder, status, _link) = match submitted {
        SubmitResult::Missing(digests) => {
            return Ok(json(
                StatusCode::CONFLICT,
                &FromAgent::Missing { job, digests, awaited: false },
            ));
        }
        // Keeps the link open until the follower has its own.
        SubmitResult::Started { folder, link } => (folder, StatusCode::CREATED, Some(link)),
        SubmitResult::AlreadyHere(folder) => {
            state
                .run_blocking({
                    let job = job.clone();
                    move |service| service.send_command(JobCommand::Renew, &job)
                })
                .await?;
            (folder, StatusCode::OK, None)
        }
    };
    if accepts(&headers, FRAMES) {
        let received = ClientOutput::Given(Vec::new());
        let position = Position {
            from_seq: 1,
            received,
            inline_bytes: query.inline,
            heartbeat_interval: Some(HEARTBEAT_INTERVAL),
        };
        let wait = wait_duration(query.wait, MAX_WAIT_S);
        return Ok(FollowedBody::start(&state, folder, position, wait)?.frames());
    }
    Ok(json(status, &FromAgent::Following { job }))
}

/// Lists the jobs, newest first.
pub(crate) async fn list(Shared(state): Shared<Arc<State>>) -> Result<Response, HttpRefusal> {
    let listing = state.run_blocking(|service| Ok(service.listing())).await?;
    Ok(json(StatusCode::OK, &listing))
}

/// Returns one job's line.
pub(crate) async fn show(
    Shared(state): Shared<Arc<State>>,
    Path(job): Path<String>,
) -> Result<Response, HttpRefusal> {
    let line = state.run_blocking(move |service| service.job(&job)).await?;
    Ok(json(StatusCode::OK, &line))
}

/// Returns a job's plan, for a client that did not make it.
pub(crate) async fn plan(
    Shared(state): Shared<Arc<State>>,
    Path(job): Path<String>,
) -> Result<Response, HttpRefusal> {
    let plan = state.run_blocking(move |service| service.plan(&job).map(Box::new)).await?;
    Ok(json(StatusCode::OK, &FromAgent::Plan { plan }))
}

/// Removes an ended job.
pub(crate) async fn forget(
    Shared(state): Shared<Arc<State>>,
    Path(job): Path<String>,
) -> Result<Response, HttpRefusal> {
    let removed = state.run_blocking(move |service| service.set_aside(&job)).await?;
    // The response does not wait for this. After a failure, the next sweep removes the rest.
    tokio::task::spawn_blocking(move || removed.remove());
    Ok(done("forget"))
}

/// The parameters of `POST /v1/jobs/{id}/stdin`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StdinQuery {
    eof: bool,
    offset: Option<u64>,
}

/// Passes bytes to the running step's standard input.
pub(crate) async fn stdin(
    Shared(state): Shared<Arc<State>>,
    Path(job): Path<String>,
    Query(query): Query<StdinQuery>,
    body: Body,
) -> Result<Response, HttpRefusal> {
    let bytes = read(body, 4 * MAX_BODY).await?;
    let own_state = state.clone();
    state
        .run_blocking(move |_| own_state.send_input(&job, &bytes, query.eof, query.offset))
        .await?;
    Ok(done("stdin"))
}

/// Starts the job's lease again, because a client is there.
pub(crate) async fn renew(
    Shared(state): Shared<Arc<State>>,
    Path(job): Path<String>,
) -> Result<Response, HttpRefusal> {
    tell(state, JobCommand::Renew, job).await
}

/// Ends the lease: the client disconnects on purpose.
pub(crate) async fn detach(
    Shared(state): Shared<Arc<State>>,
    Path(job): Path<String>,
) -> Result<Response, HttpRefusal> {
    tell(state, JobCommand::Detach, job).await
}

/// Cancels the job. Its terminal event confirms this.
pub(crate) async fn cancel(
    Shared(state): Shared<Arc<State>>,
    Path(job): Path<String>,
) -> Result<Response, HttpRefusal> {
    tell(state, JobCommand::Cancel, job).await
}

async fn tell(
    state: Arc<State>,
    command: JobCommand,
    job: String,
) -> Result<Response, HttpRefusal> {
    state.run_blocking(move |service| service.send_command(command, &job)).await?;
    Ok(done(command.name()))
}
