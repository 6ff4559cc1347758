//! The meaning of Wafer's error statuses and bodies, and the next step for each. Its bodies are
//! `{"detail": "…"}`; some refusals come within a stream, as `[ERROR] …`, with the same text.

use reqwest::StatusCode;
use serde::Deserialize;

use crate::foreign_text::excerpt;
use crate::refusal::{self, PlatformError, PlatformErrorPattern, losing_host, row, transient};

const REFUSED_LOGIN: &str = "Wafer rejects the login: it is wrong or has expired";
const LOGIN_HINT: &str = "log in again: `rgpu remote login wafer`";
const ADD_CREDIT_HINT: &str = "add credit with Wafer; `rgpu remote list --json` shows the balance";
const START_HINT: &str = "start it: `rgpu remote up REMOTE`";
const GPU_HINT: &str = "all its GPUs are busy: try again in a minute";
const TIME_LIMIT_HINT: &str =
    "Wafer ended the session; the job continues as long as its workspace runs";

/// Wafer's answers, in lower case.
static WAFER_ANSWERS: &[PlatformErrorPattern] = &[
    // `invalid or expired` does not say which of the two.
    row(401, "or expired", "refused_token", REFUSED_LOGIN, LOGIN_HINT),
    row(401, "expired or", "refused_token", REFUSED_LOGIN, LOGIN_HINT),
    row(401, "expired", "expired_token", "the login for Wafer has expired", LOGIN_HINT),
    row(401, "invalid", "wrong_token", "Wafer rejects the login: it is wrong", LOGIN_HINT),
    row(401, "", "refused_token", REFUSED_LOGIN, LOGIN_HINT),
    row(402, "", "no_credit", "the credits at Wafer are used up", ADD_CREDIT_HINT),
    row(404, "", "no_workspace", "Wafer has no such workspace", START_HINT),
    row(0, "credit", "no_credit", "the credits at Wafer are used up", ADD_CREDIT_HINT),
    losing_host(row(
        0,
        "not running",
        "workspace_not_running",
        "the workspace is not running",
        START_HINT,
    )),
    transient(503, "", "no_gpu", "Wafer has no GPU free", GPU_HINT),
    transient(0, "no gpu", "no_gpu", "Wafer has no GPU free", GPU_HINT),
    transient(0, "creating", "workspace_creating", "the workspace is still being made", START_HINT),
    transient(0, "timeout", "session_timeout", "a session timed out inside Wafer", TIME_LIMIT_HINT),
    transient(
        0,
        "timed out",
        "session_timeout",
        "a session timed out inside Wafer",
        TIME_LIMIT_HINT,
    ),
    row(400, "", "bad_request", "Wafer does not understand the request", ""),
    row(403, "", "forbidden", "Wafer forbids it", LOGIN_HINT),
    row(409, "", "conflict", "Wafer already uses that name for something else", ""),
    row(413, "", "too_long", "Wafer accepts no request of this length", ""),
    transient(429, "", "too_many", "Wafer received too many requests", "wait a minute"),
    transient(500, "", "server_error", "Wafer's service failed", ""),
    transient(502, "", "server_error", "Wafer's service does not answer", ""),
    transient(504, "", "server_error", "Wafer's service does not answer in time", ""),
];

/// The refusal that a response of the service means, by its status and body.
pub(super) fn named(status: StatusCode, body: &[u8]) -> PlatformError {
    let (message, status) = (body_text(body), status.as_u16());
    known(status, &message).unwrap_or_else(|| PlatformError {
        status,
        code: "refused",
        what: format!("Wafer answers {status}"),
        body: message,
        hint: "",
        is_transient: false,
        loses_host: false,
    })
}

/// From text within a stream; `None`: unknown text.
pub(super) fn from_stream_text(message: &str) -> Option<PlatformError> {
    known(0, &excerpt(message))
}

/// For an answer longer than any should be.
pub(super) fn too_long(why: String) -> PlatformError {
    let what = "Wafer's answer is implausibly long".to_owned();
    PlatformError {
        status: 200,
        code: "too_long",
        what,
        body: why,
        hint: "",
        is_transient: false,
        loses_host: false,
    }
}

fn known(status: u16, message: &str) -> Option<PlatformError> {
    let row = refusal::find(&[WAFER_ANSWERS], status, &message.to_lowercase())?;
    Some(row.refusal(status, row.what.to_owned(), message.to_owned()))
}

#[derive(Deserialize)]
struct Detail {
    detail: serde_json::Value,
}

/// The text of a body: its `detail`, or else its start.
fn body_text(body: &[u8]) -> String {
    match serde_json::from_slice::<Detail>(body) {
        Ok(Detail { detail: serde_json::Value::String(message) }) => excerpt(&message),
        Ok(Detail { detail }) => excerpt(&detail.to_string()),
        Err(_) => excerpt(&String::from_utf8_lossy(body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_and_words_have_names() {
        for (status, body, code, is_transient) in [
            (401, r#"{"detail": "Invalid token"}"#, "wrong_token", false),
            (401, r#"{"detail": "Token has expired"}"#, "expired_token", false),
            (401, r#"{"detail": "Invalid or expired token"}"#, "refused_token", false),
            (401, r#"{"detail": "Not authenticated"}"#, "refused_token", false),
            (401, "", "refused_token", false),
            (402, r#"{"detail": "Insufficient credits"}"#, "no_credit", false),
            (404, r#"{"detail": "Workspace not found"}"#, "no_workspace", false),
            (503, r#"{"detail": "No GPU available"}"#, "no_gpu", true),
            (400, r#"{"detail": "Workspace is not running"}"#, "workspace_not_running", false),
            (500, r#"{"detail": "exec timeout"}"#, "session_timeout", true),
            (409, r#"{"detail": "Workspace is creating"}"#, "workspace_creating", true),
            (502, "<html>bad gateway</html>", "server_error", true),
            (418, "", "refused", false),
        ] {
            let refusal = named(StatusCode::from_u16(status).unwrap(), body.as_bytes());
            assert_eq!(
                (refusal.code, refusal.is_transient),
                (code, is_transient),
                "{status} {body}"
            );
        }
        assert_eq!(from_stream_text("Session timed out").unwrap().code, "session_timeout");
        assert!(from_stream_text("segmentation fault").is_none());
    }
}
