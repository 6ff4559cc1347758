//! What all HTTP requests share, whether to `rgpu worker`, an app on Modal or Wafer's service: the
//! client, time limits, bounded bodies, retries and [`HttpError`].
//!
//! The client follows no redirects, because a token must not be sent to another address.

mod error;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderValue;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, Url, redirect};
use tokio::time::timeout;

use super::limits;

pub(super) use error::GREETING;
pub use error::HttpError;

/// The pause between two attempts does not grow beyond this.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The longest pause that a server may request.
const MAX_REQUESTED_PAUSE: Duration = Duration::from_secs(5);

/// Settings of a client for the server at `url`.
pub(super) fn client(url: &Url) -> ClientBuilder {
    let mut client = Client::builder()
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(limits::CONNECT_TIMEOUT)
        .tcp_keepalive(Duration::from_secs(15))
        .user_agent(concat!("rgpu/", env!("CARGO_PKG_VERSION")));
    if is_loopback(url) {
        // A proxy would see the token, and would resolve the name to another machine.
        client = client.no_proxy();
    }
    if url.scheme() != "https" {
        // Reading the system's certificates takes milliseconds.
        client = client.tls_certs_only([]);
    }
    client
}

/// Whether an address is on this machine.
pub(super) fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// The value of an `Authorization` header; `None` if the token has characters that a header cannot
/// hold.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Sends a request; the answer must begin within `limit`.
///
/// # Errors
/// If the link fails; `to_error` converts the error of reqwest. [`HttpError::Silent`] after
/// `limit`.
pub(super) async fn send(
    request: RequestBuilder,
    limit: Duration,
    doing: &'static str,
    to_error: impl FnOnce(&reqwest::Error) -> HttpError,
) -> Result<Response, HttpError> {
    let sent = timeout(limit, request.send()).await;
    sent.map_err(|_| HttpError::Silent { doing, limit })?.map_err(|error| to_error(&error))
}

/// The next bytes of a response; `None` at its end.
pub(super) async fn next_chunk(
    response: &mut Response,
    limit: Duration,
    doing: &'static str,
) -> Result<Option<Bytes>, HttpError> {
    timeout(limit, response.chunk())
        .await
        .map_err(|_| HttpError::Silent { doing, limit })?
        .map_err(|error| HttpError::Cut { doing, why: error_chain(&error) })
}

/// Reads the body of a response.
pub(super) async fn read_body(
    response: Response,
    max_bytes: usize,
    limit: Duration,
    doing: &'static str,
) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    match timeout(limit, read_chunks(response, max_bytes, &mut body)).await {
        Ok(None) => Ok(body),
        Ok(Some(why)) => Err(HttpError::Cut { doing, why }),
        Err(_) => Err(HttpError::Silent { doing, limit }),
    }
}

/// Reads the body of a refusal, as far as it arrives; its beginning is enough.
pub(super) async fn refusal_body(response: Response, max_bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let _ = timeout(limits::CONNECT_TIMEOUT, read_chunks(response, max_bytes, &mut body)).await;
    body
}

/// Reads a body to its end and returns `None`; else why it could not.
async fn read_chunks(
    mut response: Response,
    max_bytes: usize,
    body: &mut Vec<u8>,
) -> Option<String> {
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return None,
            Err(error) => return Some(error_chain(&error)),
        }
        if body.len() > max_bytes {
            return Some(format!("it is over {max_bytes} bytes"));
        }
    }
}

/// The messages of all sources of an error; reqwest's own message says little.
pub(super) fn error_chain(error: &reqwest::Error) -> String {
    let mut message = String::new();
    let mut next: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !message.contains(&text) {
            if !message.is_empty() {
                message += ": ";
            }
            message += &text;
        }
        next = error.source();
    }
    if message.is_empty() { error.to_string() } else { message }
}

/// Counts the attempts of an operation and waits between them.
#[derive(Clone, Debug)]
pub(super) struct Attempts {
    left: u32,
    pause: Duration,
}

impl Attempts {
    /// `count` attempts. The first pause is `first`; each further one is twice as long, up to
    /// [`MAX_PAUSE`].
    pub(super) fn new(count: u32, first: Duration) -> Self {
        Self { left: count.saturating_sub(1), pause: first }
    }

    /// Whether the last attempt has begun.
    pub(super) fn is_last(&self) -> bool {
        self.left == 0
    }

    /// Waits before the next attempt. False if there is none left.
    pub(super) async fn next(&mut self) -> bool {
        self.next_after(None).await
    }

    /// Like [`Self::next`], with the pause that a server requested.
    pub(super) async fn next_after(&mut self, requested: Option<Duration>) -> bool {
        if self.is_last() {
            return false;
        }
        self.left -= 1;
        let pause = requested.map_or(self.pause, |requested| requested.min(MAX_REQUESTED_PAUSE));
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        tokio::time::sleep(pause.mul_f64(jitter())).await;
        true
    }
}

/// A random factor from 0.5 to 1.5, so that clients that lost the link at the same time do not
/// reconnect at the same time.
pub(super) fn jitter() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    0.5 + (random >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_and_keep_within_bounds() {
        let pauses: Vec<f64> = (0..100).map(|_| jitter()).collect();
        assert!(pauses.iter().all(|p| (0.5..1.5).contains(p)), "{pauses:?}");
        assert!(pauses.iter().any(|p| (p - pauses[0]).abs() > 0.01));
    }
}
