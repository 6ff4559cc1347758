//! The meaning of answers that do not come from the agent, and the next step for each.
//!
//! Platforms and proxies answer in plain text or HTML of their own. Each table lists the most
//! specific rows first; its last rows match the status alone.

use reqwest::StatusCode;
use rgpu_protocol::FromAgent;

use crate::foreign_text;
use crate::refusal::{self, PlatformError, PlatformErrorPattern, losing_host, row, transient};

/// The kind of server expected at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// The server that `rgpu worker` starts.
    Worker,
    /// An app on Modal.
    Modal,
}

const PROXY_TOKEN_HINT: &str = "it takes proxy tokens (`wk-…` and `ws-…`), not the API's: `modal workspace proxy-tokens create`";
const TOKEN_HINT: &str = "give the token that the worker was started with: `rgpu remote add REMOTE URL --token-env VARIABLE`";
const URL_HINT: &str = "check the address: `rgpu remote list`";
const APP_ADDRESS_HINT: &str = "take the address that `modal deploy remote/modal_app.py` printed; `modal app list` shows what runs";
const APP_LOGS_HINT: &str =
    "`modal app logs rgpu` shows what the app said; jobs continue: `rgpu runs attach latest`";

/// Plain-text answers of Modal itself instead of the app.
static MODAL_PLATFORM_ANSWERS: &[PlatformErrorPattern] = &[
    row(
        401,
        "missing credentials for proxy",
        "wrong_token",
        "the platform saw no proxy token",
        PROXY_TOKEN_HINT,
    ),
    row(
        401,
        "proxy authorization",
        "wrong_token",
        "the platform rejects the token",
        PROXY_TOKEN_HINT,
    ),
    transient(
        404,
        "invalid function call",
        "no_such_app",
        "no app is running at this address",
        "take the address that `modal deploy` printed; a container that is restarting comes back by itself",
    ),
    row(
        404,
        "is disabled",
        "no_budget",
        "the workspace is disabled",
        "its budget is spent: raise it with the platform",
    ),
    row(
        0,
        "endpoint is stopped",
        "app_stopped",
        "the app at this address is stopped",
        "deploy it again: `modal deploy remote/modal_app.py`",
    ),
    row(
        400,
        "bad redirect method",
        "bad_redirect",
        "invalid request for a result",
        "this is a defect of rgpu: nothing was sent twice",
    ),
    transient(
        408,
        "Missing request",
        "request_lost",
        "the platform lost the request",
        APP_LOGS_HINT,
    ),
    transient(
        500,
        "function execution timed out",
        "function_timeout",
        "the platform ended the request at its time limit",
        "deploy the app with a longer one (RGPU_FRONT_TIMEOUT); jobs continue: `rgpu runs attach latest`",
    ),
    transient(
        500,
        "terminated by signal",
        "container_died",
        "the container died",
        "it may have run out of memory: `modal app logs rgpu` shows it",
    ),
    transient(
        500,
        "lost track of input",
        "request_lost",
        "the platform lost the request",
        APP_LOGS_HINT,
    ),
];

/// Other answers from an address on Modal: of the app, or by status alone.
static MODAL_APP_ANSWERS: &[PlatformErrorPattern] = &[
    row(401, "", "wrong_token", "the token is rejected", PROXY_TOKEN_HINT),
    row(402, "", "no_credit", "the platform requires a payment", "add credit with the platform"),
    row(403, "", "forbidden", "the platform forbids it", PROXY_TOKEN_HINT),
    row(404, "", "wrong_address", "there is no app of rgpu's at this address", APP_ADDRESS_HINT),
    transient(408, "", "slow_link", "the request came too slowly for the platform", ""),
    row(413, "", "too_long", "the platform accepts no bodies of this length", ""),
    transient(429, "", "too_many", "the platform received too many requests", "wait a minute"),
    transient(500, "", "server_error", "the app failed", APP_LOGS_HINT),
    transient(502, "", "bad_gateway", "the app does not answer", APP_LOGS_HINT),
    transient(
        503,
        "",
        "busy",
        "the platform has no capacity now",
        "wait, or deploy in another region (RGPU_REGION)",
    ),
    transient(504, "", "bad_gateway", "the app does not answer in time", APP_LOGS_HINT),
];

/// Answers of a worker or of a proxy before it.
static WORKER_ANSWERS: &[PlatformErrorPattern] = &[
    losing_host(row(
        400,
        "HTTPS",
        "wants_tls",
        "the server only accepts TLS",
        "write https:// before it",
    )),
    losing_host(row(
        400,
        "plain HTTP",
        "wants_tls",
        "the server only accepts TLS",
        "write https:// before it",
    )),
    row(400, "\"no_host\"", "bad_proxy", "the request has no Host header", ""),
    row(400, "\"two_hosts\"", "bad_proxy", "the request has two Host headers", ""),
    row(
        401,
        "\"no_token\"",
        "wrong_token",
        "the token did not reach the worker",
        "a proxy may remove it; the worker says",
    ),
    row(401, "", "wrong_token", "the worker rejects the token", TOKEN_HINT),
    row(402, "", "no_credit", "the platform requires a payment", "add credit with the platform"),
    row(
        403,
        "\"foreign_origin\"",
        "forbidden",
        "the worker mistakes the request for one from a web page",
        "",
    ),
    row(403, "", "forbidden", "the server forbids it", TOKEN_HINT),
    row(404, "", "wrong_address", "there is no worker at this address", URL_HINT),
    row(
        407,
        "",
        "proxy_login",
        "a proxy asks for a login",
        "put its address and login into HTTPS_PROXY",
    ),
    transient(408, "", "slow_link", "the request came too slowly for the server", ""),
    row(
        413,
        "",
        "too_long",
        "a proxy accepts no bodies of this length",
        "allow bodies of 5 MiB in the proxy",
    ),
    row(
        421,
        "",
        "wrong_host",
        "the worker does not know this host name",
        "start it with `--allow-host` and the host name of the address",
    ),
    transient(429, "", "too_many", "the server received too many requests", "wait a minute"),
    transient(500, "", "server_error", "the server failed", ""),
    transient(
        502,
        "",
        "bad_gateway",
        "the server behind the address does not answer",
        "is `rgpu worker` running on the host?",
    ),
    transient(503, "", "busy", "the server has no capacity now", ""),
    row(
        0,
        "\"is\":\"refused\"",
        "refused",
        "the worker rejects the request",
        "update rgpu on the older side",
    ),
    transient(
        504,
        "",
        "bad_gateway",
        "the server behind the address does not answer in time",
        "is `rgpu worker` running on the host?",
    ),
];

impl ServerKind {
    fn called(self) -> &'static str {
        match self {
            Self::Worker => "a worker",
            Self::Modal => "rgpu's app",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Worker => URL_HINT,
            Self::Modal => APP_ADDRESS_HINT,
        }
    }

    /// The hint for a server that cannot be reached.
    pub(super) fn unreachable_hint(self) -> &'static str {
        match self {
            Self::Worker => "is `rgpu worker` running on the host, and the port open?",
            Self::Modal => {
                "check the address against what `modal deploy` printed, and this machine's network"
            }
        }
    }
}

/// For an answer with this status and body; `to` is the target of a redirect.
pub(super) fn refusal_of_response(
    site: ServerKind,
    url: &str,
    status: StatusCode,
    body: &[u8],
    to: Option<&str>,
) -> PlatformError {
    let number = status.as_u16();
    if status.is_redirection() {
        let to = to.unwrap_or("nowhere");
        return PlatformError {
            status: number,
            code: "redirected",
            what: format!("`{url}` redirects to another address"),
            body: format!("{status} to `{}`", shown(to.as_bytes())),
            hint: "the redirect is not followed, to protect the token: use the final address",
            is_transient: false,
            loses_host: true,
        };
    }
    let text = String::from_utf8_lossy(body);
    let body = body_text(status, body);
    let tables = match site {
        ServerKind::Worker => [MODAL_PLATFORM_ANSWERS, WORKER_ANSWERS],
        ServerKind::Modal => [MODAL_PLATFORM_ANSWERS, MODAL_APP_ANSWERS],
    };
    match refusal::find(&tables, number, &text) {
        Some(row) => row.refusal(number, format!("{}: `{url}`", row.what), body),
        None => PlatformError {
            status: number,
            code: "bad_status",
            what: format!("`{url}` does not answer as {} does", site.called()),
            body,
            hint: site.hint(),
            is_transient: status.is_server_error(),
            loses_host: true,
        },
    }
}

/// For a successful answer that is not an agent's.
pub(super) fn foreign_server(site: ServerKind, url: &str, body: &[u8]) -> PlatformError {
    let (code, what) = match site {
        ServerKind::Worker => ("not_a_worker", "no worker of rgpu's"),
        ServerKind::Modal => ("not_our_app", "not rgpu's app"),
    };
    PlatformError {
        status: StatusCode::OK.as_u16(),
        code,
        what: format!("the server at `{url}` is {what}"),
        body: shown(body),
        hint: site.hint(),
        is_transient: false,
        loses_host: false,
    }
}

/// For results that redirect to each other.
pub(super) fn redirect_loop(url: &str, hops: u32) -> PlatformError {
    PlatformError {
        status: StatusCode::SEE_OTHER.as_u16(),
        code: "redirect_loop",
        what: format!("`{url}` redirects again and again without an answer"),
        body: format!("303 See Other, {hops} times in a row without delay"),
        hint: APP_LOGS_HINT,
        is_transient: false,
        loses_host: true,
    }
}

/// The server's own text: our worker's message, or the start of any other body.
fn body_text(status: StatusCode, body: &[u8]) -> String {
    let text = match serde_json::from_slice(body) {
        Ok(FromAgent::Refused { text, .. }) => text,
        _ => shown(body),
    };
    if text.is_empty() { status.to_string() } else { format!("{status}: {text}") }
}

/// The start of a foreign body, on one line.
fn shown(body: &[u8]) -> String {
    foreign_text::excerpt(&String::from_utf8_lossy(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(status: u16, body: &str) -> PlatformError {
        let status = StatusCode::from_u16(status).unwrap();
        refusal_of_response(ServerKind::Worker, "https://box", status, body.as_bytes(), None)
    }

    #[test]
    fn known_bodies_have_names_of_their_own() {
        for (status, body, code, is_transient) in [
            (401, "modal-http: invalid credentials for proxy authorization", "wrong_token", false),
            (404, "modal-http: invalid function call", "no_such_app", true),
            (404, "modal-http: workspace x is disabled", "no_budget", false),
            (410, "modal-http: app for invoked web endpoint is stopped", "app_stopped", false),
            (
                408,
                "modal-http: Missing request, possibly due to expiry or cancellation",
                "request_lost",
                true,
            ),
            (
                500,
                "modal-http: internal error: function execution timed out",
                "function_timeout",
                true,
            ),
            (
                500,
                "modal-http: internal error: function was terminated by signal",
                "container_died",
                true,
            ),
            (500, "<html>oops</html>", "server_error", true),
            (400, "The plain HTTP request was sent to HTTPS port", "wants_tls", false),
            (400, "You're speaking plain HTTP to an SSL-enabled server", "wants_tls", false),
            (404, "<html>nginx</html>", "wrong_address", false),
            (402, "", "no_credit", false),
            (429, "slow down", "too_many", true),
            (418, "a teapot", "bad_status", false),
            (599, "", "bad_status", true),
        ] {
            let named = refusal_of(status, body);
            assert_eq!((named.code, named.is_transient), (code, is_transient), "{status} {body}");
            let loses_host = ["wants_tls", "bad_status"].contains(&code);
            assert_eq!(named.loses_host, loses_host, "{status} {body}");
        }
    }

    #[test]
    fn a_body_is_shown_in_part_and_in_one_line() {
        let named = refusal_of(404, &format!("<html>\n  <body>{}", "x".repeat(5000)));
        assert!(named.body.starts_with("404 Not Found: xxx"), "{}", named.body);
        assert!(named.body.len() < 300);
        let ours = refusal_of(
            401,
            r#"{"is":"refused","request":"request","code":"wrong_token","text":"no"}"#,
        );
        assert_eq!(ours.body, "401 Unauthorized: no");
    }
}
