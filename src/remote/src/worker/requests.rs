//! One request and its whole answer: our own time limits, retries (all requests may be repeated),
//! and no redirects, because a token must not be carried to another address. Modal alone answers a
//! long request with the address of its result on the same origin, which is polled by `GET`. The
//! request itself is sent again, once, if that result is lost.

#![expect(clippy::disallowed_methods, reason = "the certificate that the user's settings name")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use reqwest::{Certificate, Client, Method, Response, StatusCode, Url, redirect};
use rgpu_protocol::frame::MAX_BODY;
use rgpu_protocol::mail::MAX_HTTP_BYTES;
use tokio::time::timeout;

use super::address::Address;
use super::refusal::{self, ServerKind};
use super::token::Credentials;
use crate::http::{self, Attempts, HttpError, error_chain, jitter};
use crate::limits;

/// Attempts for a request that may be repeated. Longer outages count as a cut link, which has its
/// own limits.
const MAX_TRIES: u32 = 4;

/// The pause before the second attempt; each next one is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two results that redirect to each other.
const MAX_REDIRECT_PAUSE: Duration = Duration::from_secs(5);

/// The query parameter in a result's address on Modal.
const RESULT_QUERY: &str = "__modal_function_call_id";

/// A redirect answered faster than this counts as a loop; this many in a row are an error.
const FAST_REDIRECT: Duration = Duration::from_secs(1);
const MAX_FAST_REDIRECTS: u32 = 8;

/// The limit on the check whether a server speaks TLS.
const TLS_PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes that must arrive while an answer is read: a hundredth of a modem's rate.
const MIN_BYTES: usize = 16 << 10;

/// How long an idle connection is kept; a worker keeps it three times as long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of one worker. Clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct WorkerClient {
    client: Client,
    base: String,
    credentials: Credentials,
    site: ServerKind,
}

#[derive(Clone)]
pub(super) struct WorkerRequest {
    /// The bytes of a `POST`; `None`: a `GET`.
    body: Option<Bytes>,
    path: String,
    limit: Duration,
    doing: &'static str,
    /// The address of the result of an earlier request, which replaces `path`.
    result: Option<Url>,
}

/// The result of one attempt.
enum Attempt {
    Answer(WorkerAnswer),
    /// The result will be at this address.
    Later(Url),
}

/// The answer to a request.
pub(super) struct WorkerAnswer {
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl WorkerRequest {
    /// A `GET` request.
    pub(super) fn get(path: impl Into<String>, doing: &'static str) -> Self {
        let limit = limits::ANSWER_TIMEOUT;
        Self { body: None, path: path.into(), limit, doing, result: None }
    }

    /// A `POST` request, which may be repeated.
    pub(super) fn post(path: impl Into<String>, body: Bytes, doing: &'static str) -> Self {
        Self { body: Some(body), ..Self::get(path, doing) }
    }

    /// The request for the result of this one.
    fn result(self, url: Url) -> Self {
        Self { body: None, result: Some(url), ..self }
    }

    /// Sets the limit on the time until the answer begins, and on a standstill within it.
    pub(super) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl WorkerClient {
    /// A client for the worker at `address`.
    pub(super) fn new(
        address: &Address,
        credentials: Credentials,
        site: ServerKind,
    ) -> Result<Self, HttpError> {
        let tls = |why: String| HttpError::Tls { why };
        let mut client = http::client(address.url()).pool_idle_timeout(IDLE_TIMEOUT);
        if let Some(path) = &address.ca {
            let shown = path.display();
            let pem = std::fs::read(path).map_err(|e| tls(format!("`{shown}`: {e}")))?;
            let certificates = Certificate::from_pem_bundle(&pem).map_err(|e| {
                tls(format!("`{shown}` holds no certificates: {}", error_chain(&e)))
            })?;
            client = client.tls_certs_merge(certificates);
        }
        let client = client.build().map_err(|e| tls(error_chain(&e)))?;
        Ok(Self { client, base: address.as_str().to_owned(), credentials, site })
    }

    /// Sends a request, and repeats it if that may help.
    pub(super) async fn send(&self, mut ask: WorkerRequest) -> Result<WorkerAnswer, HttpError> {
        let first_attempts = Attempts::new(MAX_TRIES, RETRY_PAUSE);
        let mut attempts = first_attempts.clone();
        let (begun, mut fast_redirects) = (Instant::now(), 0);
        // The request to repeat if its result is lost.
        let mut original = Some(ask.clone());
        loop {
            let sent = Instant::now();
            let (error, requested_pause) = match self.try_once(&ask).await {
                Err((error, requested_pause)) => (error, requested_pause),
                Ok(Attempt::Answer(answer)) => return Ok(answer),
                Ok(Attempt::Later(url)) => {
                    if begun.elapsed() > limits::RESULT_TIMEOUT {
                        let (doing, limit) = (ask.doing, limits::RESULT_TIMEOUT);
                        return Err(HttpError::Silent { doing, limit });
                    }
                    if sent.elapsed() > FAST_REDIRECT {
                        fast_redirects = 0;
                    } else if fast_redirects == MAX_FAST_REDIRECTS {
                        let refusal = refusal::redirect_loop(&self.base, fast_redirects);
                        return Err(HttpError::refused(refusal));
                    } else {
                        let pause =
                            RETRY_PAUSE.saturating_mul(1 << fast_redirects).min(MAX_REDIRECT_PAUSE);
                        tokio::time::sleep(pause.mul_f64(jitter())).await;
                        fast_redirects += 1;
                    }
                    (ask, attempts) = (ask.result(url), first_attempts.clone());
                    continue;
                }
            };
            // After silence the link counts as cut, because the limit has already passed.
            let silent = matches!(error, HttpError::Silent { .. });
            let polls_exhausted = attempts.is_last() && ask.result.is_some();
            if let Some(original) =
                original.take_if(|_| polls_exhausted && !silent && error.is_link())
            {
                (ask, attempts) = (original, first_attempts.clone());
                continue;
            }
            let may_repeat = !silent && error.is_link();
            if !may_repeat || !attempts.next_after(requested_pause).await {
                return Err(error);
            }
        }
    }

    /// The error for a successful answer that is not an agent's.
    pub(super) fn foreign_answer(&self, body: &[u8]) -> HttpError {
        HttpError::refused(refusal::foreign_server(self.site, &self.base, body))
    }

    /// Whether the server at an `http://` address speaks TLS. It gets no token.
    pub(super) async fn wants_tls(&self) -> bool {
        let Some(rest) = self.base.strip_prefix("http://") else { return false };
        let client = Client::builder().redirect(redirect::Policy::none()).no_proxy();
        let Ok(client) = client.tls_certs_only([]).build() else { return false };
        match timeout(TLS_PROBE_TIMEOUT, client.get(format!("https://{rest}")).send()).await {
            Ok(Ok(_)) => true,
            // No certificate is trusted here, so a TLS server fails with a certificate error.
            Ok(Err(error)) => error_chain(&error).contains("certificate"),
            Err(_) => false,
        }
    }

    async fn try_once(
        &self,
        ask: &WorkerRequest,
    ) -> Result<Attempt, (HttpError, Option<Duration>)> {
        let doing = ask.doing;
        // A container may have to start for it.
        let limit = match self.site {
            ServerKind::Worker => ask.limit,
            ServerKind::Modal => ask.limit.max(limits::HELD_ANSWER_TIMEOUT),
        };
        let url = match &ask.result {
            Some(url) => url.to_string(),
            None => format!("{}{}", self.base, ask.path),
        };
        let method = if ask.body.is_some() { Method::POST } else { Method::GET };
        let mut request =
            self.client.request(method, url).headers(self.credentials.headers().clone());
        if let Some(body) = &ask.body {
            request = request.header(CONTENT_TYPE, "application/octet-stream").body(body.clone());
        }
        let sent = http::send(request, limit, doing, |error| self.failed(error, doing)).await;
        let response = sent.map_err(|error| (error, None))?;
        let status = response.status();
        if status.is_success() {
            let answer = read_answer(response, ask.limit, doing).await;
            return answer.map(Attempt::Answer).map_err(|error| (error, None));
        }
        let header = |name: HeaderName| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let (to, pause) = (header(LOCATION), header(RETRY_AFTER));
        if self.site == ServerKind::Modal
            && status == StatusCode::SEE_OTHER
            && let Some(result) = to.as_deref().and_then(|to| result_at(response.url(), to))
        {
            return Ok(Attempt::Later(result));
        }
        let pause = pause.and_then(|s| s.parse().ok()).map(Duration::from_secs);
        let body = http::refusal_body(response, MAX_BODY).await;
        let refusal =
            refusal::refusal_of_response(self.site, &self.base, status, &body, to.as_deref());
        Err((HttpError::refused(refusal), pause))
    }

    fn failed(&self, error: &reqwest::Error, doing: &'static str) -> HttpError {
        let (url, why) = (self.base.clone(), error_chain(error));
        if why.contains("certificate") {
            HttpError::Untrusted { url, why }
        } else if why.contains("InvalidContentType") {
            // A plain HTTP server behind an https:// address.
            HttpError::NoTls { url }
        } else if error.is_connect() {
            HttpError::Unreachable { url, why, hint: self.site.unreachable_hint() }
        } else {
            HttpError::Cut { doing, why }
        }
    }
}

/// The URL of a request's result; `None`: `to` is not one, or is on another origin.
fn result_at(requested_url: &Url, to: &str) -> Option<Url> {
    let to = requested_url.join(to).ok()?;
    let has_id = to.query_pairs().any(|(name, id)| name == RESULT_QUERY && !id.is_empty());
    let has_no_login = to.username().is_empty() && to.password().is_none();
    (has_id && has_no_login && to.origin() == requested_url.origin()).then_some(to)
}

/// Reads an answer. Each time `limit` is over, [`MIN_BYTES`] must have arrived: a server that sends
/// one byte now and then could hold its client for ever.
async fn read_answer(
    mut response: Response,
    limit: Duration,
    doing: &'static str,
) -> Result<WorkerAnswer, HttpError> {
    let headers = std::mem::take(response.headers_mut());
    let announced_bytes = response.content_length().unwrap_or(0);
    let mut body = Vec::with_capacity(announced_bytes.min(MAX_HTTP_BYTES as u64) as usize);
    let (mut begun, mut bytes_before) = (Instant::now(), 0);
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        match http::next_chunk(&mut response, left, doing).await {
            Ok(None) => return Ok(WorkerAnswer { headers, body }),
            Ok(Some(bytes)) if body.len() + bytes.len() > MAX_HTTP_BYTES => {
                let why = format!("it is over {MAX_HTTP_BYTES} bytes");
                return Err(HttpError::Cut { doing, why });
            }
            Ok(Some(bytes)) => body.extend_from_slice(&bytes),
            Err(HttpError::Silent { .. }) if body.len() - bytes_before >= MIN_BYTES => {
                (begun, bytes_before) = (Instant::now(), body.len());
            }
            Err(HttpError::Silent { .. }) => return Err(HttpError::Silent { doing, limit }),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_asked_for_on_the_same_origin_alone() {
        let requested_url = Url::parse("https://me--rgpu.modal.run/v1/jobs").unwrap();
        for good in ["?__modal_function_call_id=fc-1", "/v1/jobs?x=1&__modal_function_call_id=fc-1"]
        {
            assert!(
                result_at(&requested_url, good).unwrap().as_str().starts_with("https://me--rgpu")
            );
        }
        for bad in [
            "/v1/jobs",
            "?__modal_function_call_id=",
            "https://evil.example/?__modal_function_call_id=fc-1",
            "http://me--rgpu.modal.run/?__modal_function_call_id=fc-1",
            "https://me--rgpu.modal.run:444/?__modal_function_call_id=fc-1",
            "https://u@me--rgpu.modal.run/?__modal_function_call_id=fc-1",
            "//evil.example/?__modal_function_call_id=fc-1",
            "https://[",
        ] {
            assert_eq!(result_at(&requested_url, bad), None, "{bad}");
        }
    }
}
