//! The published description of this interface: `schemas/openapi.json` of the source tree.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// The document.
pub(crate) fn text() -> String {
    rgpu_protocol::http::openapi::document().to_string()
}

/// The document as an answer.
pub(crate) async fn document() -> Response {
    let mut response = text().into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
