//! The routes of `rgpu-agent-http`, each with the function that answers it.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};

use crate::request_guard::guard;
use crate::state::State;
use crate::{artifacts, blobs, events, host, jobs, openapi};

/// Builds the router. Before each route the guard checks the request's token, `Host` and `Origin`.
pub(crate) fn router(state: &Arc<State>) -> Router {
    Router::new()
        .route("/v1/health", get(host::health))
        .route("/v1/openapi.json", get(openapi::document))
        .route("/v1/facts", post(host::facts))
        .route("/v1/blobs/missing", post(blobs::missing))
        .route("/v1/blobs/{digest}", put(blobs::put).head(blobs::head))
        .route("/v1/jobs", get(jobs::list).post(jobs::submit))
        .route("/v1/jobs/{job}", get(jobs::show).delete(jobs::forget))
        .route("/v1/jobs/{job}/plan", get(jobs::plan))
        .route("/v1/jobs/{job}/events", get(events::events))
        .route("/v1/jobs/{job}/stdin", post(jobs::stdin))
        .route("/v1/jobs/{job}/renew", post(jobs::renew))
        .route("/v1/jobs/{job}/detach", post(jobs::detach))
        .route("/v1/jobs/{job}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{job}/artifacts/{*path}", get(artifacts::get))
        .layer(from_fn_with_state(state.clone(), guard))
        .with_state(state.clone())
}
