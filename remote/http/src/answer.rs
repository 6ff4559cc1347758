//! Responses in JSON: messages of the protocol, with a fitting HTTP status.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rgpu_agent::service::Refusal;
use rgpu_protocol::FromAgent;
use serde::Serialize;

/// Returns a message as JSON.
pub(crate) fn json(status: StatusCode, message: &impl Serialize) -> Response {
    match serde_json::to_vec(message) {
        Ok(body) => {
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = status;
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A refused request, as a response.
pub(crate) struct HttpRefusal(StatusCode, Refusal);

impl HttpRefusal {
    /// Creates a refusal with its own status.
    pub(crate) fn new(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self(status, Refusal::new("request", code, text))
    }
}

impl IntoResponse for HttpRefusal {
    fn into_response(self) -> Response {
        json(self.0, &FromAgent::from(self.1))
    }
}
