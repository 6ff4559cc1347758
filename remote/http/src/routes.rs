//! The routes of `rgpu-agent-http`, each with the function that answers it.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use rgpu_agent::connection;

use crate::answer::json;
use crate::mail;
use crate::request_guard::guard;
use crate::state::State;

/// Builds the router. Before each route the guard checks the request's token, `Host` and `Origin`.
pub(crate) fn router(state: &Arc<State>) -> Router {
    Router::new()
        .route("/v1/health", get(health))
        .route("/v1/mail/{name}", post(mail::post))
        .layer(from_fn_with_state(state.clone(), guard))
        .with_state(state.clone())
}

/// Returns the agent's hello: whether it is there, and its version.
async fn health() -> Response {
    json(StatusCode::OK, &connection::hello())
}
