//! The published description of this interface, `schemas/openapi.json` in the source tree.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// Returns the document as JSON.
pub(crate) fn text() -> String {
    rgpu_protocol::http::openapi::document().to_string()
}

/// Answers with the OpenAPI document of this server.
pub(crate) async fn document() -> Response {
    let mut response = text().into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
