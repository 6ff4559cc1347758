//! The host: whether the agent runs, and its facts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::Response;
use rgpu_agent::connection::FEATURES;
use rgpu_agent::setup::ConnectionSettings;
use rgpu_protocol::http::FactsRequest;
use rgpu_protocol::{FromAgent, Hello, PROTOCOL};

use crate::answer::{HttpRefusal, json};
use crate::body::read_json;
use crate::state::State;

/// Returns the agent's hello.
pub(crate) async fn health() -> Response {
    let hello = Hello {
        rgpu: PROTOCOL,
        features: FEATURES.map(String::from).to_vec(),
        required: Vec::new(),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    json(StatusCode::OK, &hello)
}

/// Sets its flag when dropped, as when the client disconnects during its request.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs probes and returns the facts.
pub(crate) async fn facts(
    Shared(state): Shared<Arc<State>>,
    body: Body,
) -> Result<Response, HttpRefusal> {
    let FactsRequest { probes, settings } = read_json(body).await?;
    let cancel = CancelOnDrop(Arc::default());
    let stop = cancel.0.clone();
    let facts = state
        .run_blocking(move |service| {
            let setup = ConnectionSettings::new(&settings.path, settings.env);
            service.facts(&probes, &setup, &stop).map(Box::new)
        })
        .await?;
    Ok(json(StatusCode::OK, &FromAgent::Facts { facts }))
}
