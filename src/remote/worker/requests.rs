//! One request and its answer: time limits of our own, second tries of what may be repeated, and
//! no redirects, since a token must never be carried to another address. Modal alone answers what
//! takes long with the address of the result, on the same origin: that is asked for by `GET` until
//! it is there. What was asked is sent again only where that result is lost, and it may be repeated.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{Certificate, Client, Method, Response, StatusCode, Url, redirect};
use rgpu_protocol::FromAgent;
use rgpu_protocol::frame::MAX_BODY;
use tokio::time::timeout;

use super::address::Address;
use super::error::HttpError;
use super::refusal::{NamedRefusal, ServerKind};
use super::token::Credentials;
use crate::remote::limits;

/// Tries of a request that may be repeated. What takes longer is a cut link, which its own
/// patience is for.
const MAX_TRIES: u32 = 4;

/// The pause before the second try; each further one is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause that a server may ask for here.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The query of a result's address on Modal.
const RESULT_QUERY: &str = "__modal_function_call_id";

/// Results that lead to another one sooner than this go round, and how often they may in a row.
const FAST_REDIRECT: Duration = Duration::from_secs(1);
const MAX_FAST_REDIRECTS: u32 = 8;

/// How long it may take to find out whether a server speaks TLS.
const TLS_PROBE_TIMEOUT: Duration = Duration::from_secs(3);

/// A worker keeps an idle connection three times as long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// A way to one worker. Clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct WorkerClient {
    client: Client,
    base: String,
    credentials: Credentials,
    site: ServerKind,
}

/// A request.
#[derive(Clone)]
pub(super) struct WorkerRequest {
    method: Method,
    path: String,
    accept: &'static str,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: bytes::Bytes,
    limit: Duration,
    again: Retry,
    doing: &'static str,
    /// The result of what was asked before, in the place of `path`.
    result: Option<Url>,
}

/// Whether a request may be repeated when nobody knows whether it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    Safe,
    Never,
}

/// What one try came to.
enum Attempt {
    Answer(WorkerAnswer),
    /// It takes longer: the result will be there.
    Later(Url),
}

/// What came back.
pub(super) enum WorkerAnswer {
    /// What was asked for.
    Good(Response),
    /// A message of the agent that says why not: JSON.
    Said(Vec<u8>),
}

impl WorkerRequest {
    /// A request for `path`, which may be repeated.
    pub(super) fn get(path: impl Into<String>, doing: &'static str) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            accept: "application/json",
            headers: Vec::new(),
            body: bytes::Bytes::new(),
            limit: limits::ANSWER,
            again: Retry::Safe,
            doing,
            result: None,
        }
    }

    /// The request for the result of this one.
    fn result(self, url: Url) -> Self {
        let Self { accept, limit, doing, .. } = self;
        Self { accept, limit, result: Some(url), ..Self::get(self.path, doing) }
    }

    /// The same with a body of JSON, as `POST`.
    pub(super) fn post(path: impl Into<String>, json: Vec<u8>, doing: &'static str) -> Self {
        let this = Self { method: Method::POST, body: json.into(), ..Self::get(path, doing) };
        this.header(CONTENT_TYPE, "application/json")
    }

    pub(super) fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    pub(super) fn accept(mut self, media: &'static str) -> Self {
        self.accept = media;
        self
    }

    pub(super) fn body(mut self, bytes: Vec<u8>) -> Self {
        self.body = bytes.into();
        self
    }

    /// With a header whose value is of our making.
    pub(super) fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// With a limit on the time until the answer begins.
    pub(super) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    pub(super) fn once(mut self) -> Self {
        self.again = Retry::Never;
        self
    }
}

impl WorkerClient {
    /// For a worker at `address`.
    ///
    /// # Errors
    /// Certificates that cannot be read.
    pub(super) fn new(
        address: &Address,
        credentials: Credentials,
        site: ServerKind,
    ) -> Result<Self, HttpError> {
        let tls = |why: String| HttpError::Tls { why };
        let mut client = Client::builder()
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(limits::CONNECT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_keepalive(Duration::from_secs(15))
            .user_agent(concat!("rgpu/", env!("CARGO_PKG_VERSION")));
        if address.is_loopback() {
            // A proxy would be shown the token, and finds another machine under that name.
            client = client.no_proxy();
        }
        if !address.is_tls() {
            // The system's certificates take milliseconds to read.
            client = client.tls_certs_only([]);
        }
        if let Some(path) = &address.ca {
            let shown = path.display();
            let pem = std::fs::read(path).map_err(|e| tls(format!("`{shown}`: {e}")))?;
            let certificates = Certificate::from_pem_bundle(&pem)
                .map_err(|e| tls(format!("`{shown}` holds no certificates: {}", chain(&e))))?;
            client = client.tls_certs_merge(certificates);
        }
        let client = client.build().map_err(|e| tls(chain(&e)))?;
        Ok(Self { client, base: address.as_str().to_owned(), credentials, site })
    }

    /// Sends a request; again, where it may be repeated and that may help.
    ///
    /// # Errors
    /// The link, or an answer that is not the agent's.
    pub(super) async fn send(&self, mut ask: WorkerRequest) -> Result<WorkerAnswer, HttpError> {
        let mut pause = RETRY_PAUSE;
        let mut tries = 1;
        let (begun, mut rounds) = (Instant::now(), 0);
        // What is asked once more where its result is lost.
        let mut first = (ask.again == Retry::Safe).then(|| ask.clone());
        loop {
            let sent = Instant::now();
            let (error, asked) = match self.try_once(&ask).await {
                Err((error, asked)) => (error, asked),
                Ok(Attempt::Answer(answer)) => return Ok(answer),
                Ok(Attempt::Later(url)) => {
                    if begun.elapsed() > limits::RESULT {
                        let (doing, limit) = (ask.doing, limits::RESULT);
                        return Err(HttpError::Silent { doing, limit });
                    }
                    if sent.elapsed() > FAST_REDIRECT {
                        rounds = 0;
                    } else if rounds == MAX_FAST_REDIRECTS {
                        let named = NamedRefusal::going_round(&self.base, rounds);
                        return Err(HttpError::Refused(Box::new(named)));
                    } else {
                        let pause = RETRY_PAUSE.saturating_mul(1 << rounds).min(MAX_RETRY_PAUSE);
                        tokio::time::sleep(pause.mul_f64(jitter())).await;
                        rounds += 1;
                    }
                    ask = ask.result(url);
                    (pause, tries) = (RETRY_PAUSE, 1);
                    continue;
                }
            };
            // Silence has taken long enough: it is a cut link.
            let silent = matches!(error, HttpError::Silent { .. });
            let over = tries == MAX_TRIES && ask.result.is_some();
            if let Some(first) = first.take_if(|_| over && !silent && error.is_link()) {
                (ask, pause, tries) = (first, RETRY_PAUSE, 1);
                continue;
            }
            if tries == MAX_TRIES || ask.again == Retry::Never || silent || !error.is_link() {
                return Err(error);
            }
            tokio::time::sleep(asked.unwrap_or(pause).min(MAX_RETRY_PAUSE).mul_f64(jitter())).await;
            pause *= 2;
            tries += 1;
        }
    }

    /// The JSON message that answers a request, also when it says why not.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub(super) async fn message(&self, ask: WorkerRequest) -> Result<Vec<u8>, HttpError> {
        let (doing, limit) = (ask.doing, ask.limit.min(limits::ANSWER));
        match self.send(ask).await? {
            WorkerAnswer::Said(body) => Ok(body),
            WorkerAnswer::Good(response) => {
                let (body, cut) = read(response, MAX_BODY, limit, doing).await?;
                match cut {
                    None => Ok(body),
                    Some(why) => Err(HttpError::Cut { doing, why }),
                }
            }
        }
    }

    /// Whether what listens at an address without TLS speaks it. It is shown no token.
    pub(super) async fn wants_tls(&self) -> bool {
        let Some(rest) = self.base.strip_prefix("http://") else { return false };
        let client = Client::builder().redirect(redirect::Policy::none()).no_proxy();
        let Ok(client) = client.tls_certs_only([]).build() else { return false };
        match timeout(TLS_PROBE_TIMEOUT, client.get(format!("https://{rest}")).send()).await {
            Ok(Ok(_)) => true,
            // Nothing is trusted here, so a server with TLS gets as far as its certificate.
            Ok(Err(error)) => chain(&error).contains("certificate"),
            Err(_) => false,
        }
    }

    async fn try_once(
        &self,
        ask: &WorkerRequest,
    ) -> Result<Attempt, (HttpError, Option<Duration>)> {
        let doing = ask.doing;
        // A container may have to be started for it.
        let limit = match self.site {
            ServerKind::Worker => ask.limit,
            ServerKind::Modal => ask.limit.max(limits::HELD_ANSWER),
        };
        let url = match &ask.result {
            Some(url) => url.to_string(),
            None => format!("{}{}", self.base, ask.path),
        };
        let mut request = self
            .client
            .request(ask.method.clone(), url)
            .headers(self.credentials.headers().clone())
            .header(ACCEPT, ask.accept);
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        if ask.method != Method::GET {
            request = request.body(ask.body.clone());
        }
        let response = timeout(limit, request.send())
            .await
            .map_err(|_| (HttpError::Silent { doing, limit }, None))?
            .map_err(|error| (self.failed(&error, doing), None))?;
        let status = response.status();
        if status.is_success() {
            return Ok(Attempt::Answer(WorkerAnswer::Good(response)));
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
        // What could be read of it has to do.
        let body = match read(response, MAX_BODY, limits::CONNECT, doing).await {
            Ok((body, _)) => body,
            Err(_) => Vec::new(),
        };
        if is_said(&body) {
            return Ok(Attempt::Answer(WorkerAnswer::Said(body)));
        }
        let named = NamedRefusal::of(self.site, &self.base, status, &body, to.as_deref());
        Err((HttpError::Refused(Box::new(named)), pause))
    }

    fn failed(&self, error: &reqwest::Error, doing: &'static str) -> HttpError {
        let (url, why) = (self.base.clone(), chain(error));
        if why.contains("certificate") {
            HttpError::Untrusted { url, why }
        } else if why.contains("InvalidContentType") {
            // What answers the first bytes of TLS with none of it.
            HttpError::NoTls { url }
        } else if error.is_connect() {
            HttpError::Unreachable { url, why, site: self.site }
        } else {
            HttpError::Cut { doing, why }
        }
    }
}

/// Where the result of a request will be; `None`: that is not what `to` is, or it is elsewhere.
fn result_at(asked: &Url, to: &str) -> Option<Url> {
    let to = asked.join(to).ok()?;
    let named = to.query_pairs().any(|(name, id)| name == RESULT_QUERY && !id.is_empty());
    let bare = to.username().is_empty() && to.password().is_none();
    (named && bare && to.origin() == asked.origin()).then_some(to)
}

/// Whether a body is the agent's word about a request, and not about being asked at all.
fn is_said(body: &[u8]) -> bool {
    match serde_json::from_slice(body) {
        Ok(FromAgent::Refused { request, .. }) => request != "request",
        Ok(FromAgent::Missing { .. }) => true,
        _ => false,
    }
}

/// The body of an answer, at most `most` bytes of it; with why it was cut, if it was.
async fn read(
    mut response: Response,
    most: usize,
    limit: Duration,
    doing: &'static str,
) -> Result<(Vec<u8>, Option<String>), HttpError> {
    let mut body = Vec::new();
    let cut = timeout(limit, async {
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => return None,
                Err(error) => return Some(chain(&error)),
            }
            if body.len() > most {
                return Some(format!("it is over {most} bytes"));
            }
        }
    })
    .await
    .map_err(|_| HttpError::Silent { doing, limit })?;
    Ok((body, cut))
}

/// An error with all that is behind it; reqwest's own words say little.
pub(in crate::remote) fn chain(error: &reqwest::Error) -> String {
    let mut words = String::new();
    let mut next: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !words.contains(&text) {
            if !words.is_empty() {
                words += ": ";
            }
            words += &text;
        }
        next = error.source();
    }
    if words.is_empty() { error.to_string() } else { words }
}

/// A factor from 0.5 to 1.5: clients that were cut together must not come back together.
fn jitter() -> f64 {
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

    #[test]
    fn a_result_is_asked_for_on_the_same_origin_alone() {
        let asked = Url::parse("https://me--rgpu.modal.run/v1/jobs").unwrap();
        for good in ["?__modal_function_call_id=fc-1", "/v1/jobs?x=1&__modal_function_call_id=fc-1"]
        {
            assert!(result_at(&asked, good).unwrap().as_str().starts_with("https://me--rgpu"));
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
            assert_eq!(result_at(&asked, bad), None, "{bad}");
        }
    }

    #[test]
    fn only_the_agents_words_about_a_request_are_passed_on() {
        let said = |text: &str| is_said(text.as_bytes());
        assert!(said(r#"{"is":"refused","request":"submit","code":"bad_plan","text":""}"#));
        assert!(said(r#"{"is":"missing","job":"a","digests":[]}"#));
        assert!(!said(r#"{"is":"refused","request":"request","code":"wrong_token","text":""}"#));
        assert!(!said(r#"{"detail":"Not Found"}"#));
        assert!(!said("<html>"));
    }
}
