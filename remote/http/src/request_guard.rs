//! Checks whether a request is allowed: token, `Host`, `Origin`, and the number of concurrent
//! requests.
//!
//! This also matters on loopback, where any web page and any user of the machine can reach the
//! port. A page's request carries `Origin`, or, after DNS rebinding, a foreign name in `Host`.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rgpu_protocol::server::{Connection, named_host};
use tokio::sync::Semaphore;

use crate::answer::HttpRefusal;
use crate::body::discard;
use crate::settings::{Settings, Token};
use crate::state::State;

/// Most requests in progress at the same time. Each may have a thread that waits for its agent.
pub(crate) const MAX_CONCURRENT_REQUESTS: usize = 1024;

/// Most wrong tokens per [`WRONG_TOKEN_WINDOW`]. Further ones get status 429.
const MAX_WRONG_TOKENS: u32 = 30;
const WRONG_TOKEN_WINDOW: Duration = Duration::from_secs(60);

/// The checks before each request, and their state.
pub(crate) struct RequestGuard {
    token: Token,
    names: Vec<String>,
    listen: IpAddr,
    request_slots: Semaphore,
    wrong_tokens: Mutex<(Instant, u32)>,
}

impl RequestGuard {
    /// Creates the guard of a server that listens at `address`.
    pub(crate) fn new(settings: Settings, address: SocketAddr) -> Self {
        let mut names = settings.hosts;
        names.push("localhost".into());
        Self {
            token: settings.token,
            names,
            listen: address.ip(),
            request_slots: Semaphore::new(MAX_CONCURRENT_REQUESTS),
            wrong_tokens: Mutex::new((Instant::now(), 0)),
        }
    }

    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let host = named_host(uri, headers).map_err(|refused| {
            HttpRefusal::new(StatusCode::BAD_REQUEST, refused.code(), refused.to_string())
        })?;
        if !self.is_allowed_host(host) {
            let name = without_port(host);
            let text = format!(
                "this worker is not called `{name}`: start it with `--allow-host {name}` if it is"
            );
            return Err(HttpRefusal::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", text));
        }
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            if origin.split_once("://").is_none_or(|(_, authority)| authority != host) {
                let text = "web pages of other sites may not use a worker";
                return Err(HttpRefusal::new(StatusCode::FORBIDDEN, "foreign_origin", text));
            }
        }
        match client_token(headers) {
            Some(token) if self.token.is(&token) => Ok(()),
            Some(_) => Err(self.wrong_token()),
            None => Err(HttpRefusal::new(
                StatusCode::UNAUTHORIZED,
                "no_token",
                "a token is required: `Authorization: Bearer …`",
            )),
        }
    }

    /// Returns whether `host` is an allowed name, or an address, which DNS rebinding cannot fake.
    fn is_allowed_host(&self, host: &str) -> bool {
        let name = without_port(host);
        match name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || !self.listen.is_loopback(),
            Err(_) => self.names.contains(&name.to_ascii_lowercase()),
        }
    }

    fn wrong_token(&self) -> HttpRefusal {
        let mut wrong_tokens = lock(&self.wrong_tokens);
        if wrong_tokens.0.elapsed() > WRONG_TOKEN_WINDOW {
            *wrong_tokens = (Instant::now(), 0);
        }
        wrong_tokens.1 = wrong_tokens.1.saturating_add(1);
        if wrong_tokens.1 > MAX_WRONG_TOKENS {
            let text = "too many wrong tokens in the last minute";
            return HttpRefusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_tries", text);
        }
        HttpRefusal::new(StatusCode::UNAUTHORIZED, "wrong_token", "the token is wrong")
    }
}

/// Returns `Host` without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns the client's token: a bearer token, or the two parts of Modal's proxy token.
fn client_token(headers: &HeaderMap) -> Option<Vec<u8>> {
    let value = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    if let (Some(key), Some(secret)) = (value("modal-key"), value("modal-secret")) {
        return Some([key, b".", secret].concat());
    }
    let (scheme, token) = value("authorization")?.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii().to_vec())
}

/// Checks a request before its handler runs, and turns errors of the router into refusals.
pub(crate) async fn guard(
    Shared(state): Shared<Arc<State>>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match state.request_guard.check(request.uri(), request.headers()) {
        Err(refused) => {
            discard(request.into_body()).await;
            refused.into_response()
        }
        Ok(()) if !connection.admit() => busy("too many connections").into_response(),
        Ok(()) => match state.request_guard.request_slots.try_acquire() {
            Ok(_permit) => next.run(request).await,
            Err(_) => busy("too many requests at once").into_response(),
        },
    };
    let status = response.status();
    if (status.is_client_error() || status.is_server_error()) && !is_json(&response) {
        let allow = response.headers_mut().remove(header::ALLOW);
        let code = match status {
            StatusCode::NOT_FOUND => "no_such_resource",
            StatusCode::METHOD_NOT_ALLOWED => "bad_method",
            _ => "bad_request",
        };
        let text = status.canonical_reason().unwrap_or("refused").to_lowercase();
        response = HttpRefusal::new(status, code, text).into_response();
        if let Some(allow) = allow {
            response.headers_mut().insert(header::ALLOW, allow);
        }
    }
    let headers = response.headers_mut();
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::TOO_MANY_REQUESTS => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        _ => {}
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns a refusal that asks the client to retry soon.
pub(crate) fn busy(text: &str) -> HttpRefusal {
    HttpRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text)
}

/// A thread that panics while it holds one of these locks leaves the data valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_json(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind == "application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect()
    }

    #[test]
    fn tokens_are_read_in_both_forms() {
        assert_eq!(client_token(&headers(&[("authorization", "bearer abc ")])).unwrap(), b"abc");
        let modal = headers(&[("modal-key", "wk-1"), ("modal-secret", "ws-2")]);
        assert_eq!(client_token(&modal).unwrap(), b"wk-1.ws-2");
        for none in [&[][..], &[("authorization", "Basic x")], &[("modal-key", "wk-1")]] {
            assert!(client_token(&headers(none)).is_none());
        }
    }

    #[test]
    fn a_host_is_a_name_with_or_without_a_port() {
        for (host, name) in [
            ("box", "box"),
            ("box:8790", "box"),
            ("127.0.0.1:1", "127.0.0.1"),
            ("[::1]:1", "[::1]"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}
