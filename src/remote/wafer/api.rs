//! One request to Wafer's service: its time limits, no redirects, bounded answers. What may be sent
//! twice is the caller's to know.

use std::path::Path;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode, Url, redirect};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::error::WaferError;
use super::refusal::Refusal;
use super::service::is_loopback;
use super::sse::SseStream;
use super::token::Token;
use crate::remote::foreign_text::shown;
use crate::remote::worker::chain;
use crate::remote::{RemoteError, limits};

/// The longest answer that is read, in bytes.
const MAX_BODY: usize = 4 << 20;

/// What documents are sent as.
const JSON: &str = "application/json";

/// Tries of a request that changes nothing, and the pause before the second.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(200);

/// A way to the service. Clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct Api {
    client: Client,
    base: String,
    headers: HeaderMap,
}

/// A status and a body.
pub(super) struct ApiAnswer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

impl Api {
    /// To the service at `base`.
    ///
    /// # Errors
    /// No client can be made.
    pub(super) fn new(base: &str, token: Option<&Token>) -> Result<Self, WaferError> {
        let local = |why: String| WaferError::Local {
            what: "no connection to Wafer can be made".to_owned(),
            why,
        };
        let mut client = Client::builder()
            .redirect(redirect::Policy::none())
            .referer(false)
            .connect_timeout(limits::CONNECT)
            .tcp_keepalive(Duration::from_secs(15))
            .user_agent(concat!("rgpu/", env!("CARGO_PKG_VERSION")));
        let url = Url::parse(base).map_err(|e| local(e.to_string()))?;
        if is_loopback(&url) {
            // A proxy finds another machine under that name.
            client = client.no_proxy();
        }
        if url.scheme() != "https" {
            // The system's certificates take milliseconds to read.
            client = client.tls_certs_only([]);
        }
        let client = client.build().map_err(|e| local(chain(&e)))?;
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token.header()?);
        }
        Ok(Self { client, base: base.to_owned(), headers })
    }

    /// With the key that the giver of tokens wants to see of every client.
    ///
    /// # Errors
    /// It holds what no header can.
    pub(super) fn client_key(mut self, key: &str) -> Result<Self, WaferError> {
        let value = HeaderValue::from_str(key).map_err(|e| WaferError::Local {
            what: "`supabase_anon_key` of ~/.wafer/config.toml cannot be used".to_owned(),
            why: e.to_string(),
        })?;
        self.headers.insert(HeaderName::from_static("apikey"), value);
        Ok(self)
    }

    /// Asks for a document.
    ///
    /// # Errors
    /// The link, or a refusal.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        doing: &'static str,
    ) -> Result<T, WaferError> {
        let answer = self.look(path, doing).await?;
        self.document(answer)
    }

    /// Sends a document and reads one.
    ///
    /// # Errors
    /// The link, or a refusal.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        doing: &'static str,
    ) -> Result<T, WaferError> {
        let answer = self.ask(Method::POST, path, Some(json(body)?), doing).await?;
        self.document(answer)
    }

    /// Asks for something, again where that may help: nothing changes by it.
    ///
    /// # Errors
    /// The link.
    pub(super) async fn look(
        &self,
        path: &str,
        doing: &'static str,
    ) -> Result<ApiAnswer, WaferError> {
        let mut pause = PAUSE;
        let mut tries = 1;
        loop {
            let answer = self.ask(Method::GET, path, None, doing).await;
            let passes = match &answer {
                Ok(answer) => answer.status.is_server_error(),
                // Silence has taken long enough.
                Err(WaferError::Silent { .. }) => false,
                Err(error) => error.is_link(),
            };
            if !passes || tries == TRIES {
                return answer;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
            tries += 1;
        }
    }

    /// Sends a request, and gives whatever comes back.
    ///
    /// # Errors
    /// The link.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        doing: &'static str,
    ) -> Result<ApiAnswer, WaferError> {
        let body = body.map(|body| (JSON, body));
        let response = self.send(method, path, body, doing, limits::ANSWER).await?;
        let status = response.status();
        let body = timeout(limits::ANSWER, read(response, doing))
            .await
            .map_err(|_| WaferError::Silent { doing, limit: limits::ANSWER })??;
        Ok(ApiAnswer { status, body })
    }

    /// Sends a document, and reads the stream that answers it; nothing may be silent in it for
    /// longer than `quiet`.
    ///
    /// # Errors
    /// The link, or a refusal.
    pub(super) async fn stream(
        &self,
        path: &str,
        body: Option<Vec<u8>>,
        doing: &'static str,
        quiet: Duration,
    ) -> Result<SseStream, WaferError> {
        self.answered(path, body.map(|body| (JSON, body)), doing, quiet).await
    }

    /// Sends a form whose type is `kind`, and reads the stream that answers it.
    ///
    /// # Errors
    /// As [`Self::stream`].
    pub(super) async fn send_form(
        &self,
        path: &str,
        kind: &str,
        body: Vec<u8>,
        doing: &'static str,
        quiet: Duration,
    ) -> Result<SseStream, WaferError> {
        self.answered(path, Some((kind, body)), doing, quiet).await
    }

    async fn answered(
        &self,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        doing: &'static str,
        quiet: Duration,
    ) -> Result<SseStream, WaferError> {
        let response = self.send(Method::POST, path, body, doing, quiet).await?;
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if status.is_success() && kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Ok(SseStream::new(response, doing, quiet));
        }
        let body = timeout(limits::CONNECT, read(response, doing)).await;
        let body = body.unwrap_or(Ok(Vec::new())).unwrap_or_default();
        if status.is_success() {
            return Err(self.foreign(&body));
        }
        Err(WaferError::Refused(Box::new(Refusal::of(status, &body))))
    }

    /// Fetches a file of at most `most` bytes, whole or not at all.
    ///
    /// # Errors
    /// The link, a refusal, or our own disk.
    pub(super) async fn download(
        &self,
        path: &str,
        to: &Path,
        most: u64,
        doing: &'static str,
    ) -> Result<(), RemoteError> {
        let mut response = self.send(Method::GET, path, None, doing, limits::STALL).await?;
        let status = response.status();
        if !status.is_success() {
            let body = timeout(limits::CONNECT, read(response, doing)).await;
            let body = body.unwrap_or(Ok(Vec::new())).unwrap_or_default();
            return Err(WaferError::Refused(Box::new(Refusal::of(status, &body))).into());
        }
        let disk = |source| RemoteError::Disk { path: to.to_owned(), source };
        let fresh = to.with_extension("part");
        let mut file = File::create(&fresh).await.map_err(disk)?;
        let mut got = 0;
        let limit = limits::STALL;
        let taken = async {
            while let Some(bytes) = timeout(limit, response.chunk())
                .await
                .map_err(|_| WaferError::Silent { doing, limit })?
                .map_err(|e| WaferError::Cut { doing, why: chain(&e) })?
            {
                got += bytes.len() as u64;
                if got > most {
                    let why = format!("it is over {most} bytes");
                    return Err(WaferError::Refused(Box::new(Refusal::too_long(why))).into());
                }
                file.write_all(&bytes).await.map_err(disk)?;
            }
            file.sync_all().await.map_err(disk)?;
            tokio::fs::rename(&fresh, to).await.map_err(disk)
        }
        .await;
        if taken.is_err() {
            // Nothing half-written stays.
            let _ = tokio::fs::remove_file(&fresh).await;
        }
        taken
    }

    /// The document of an answer.
    ///
    /// # Errors
    /// A refusal, or something else than a document.
    pub(super) fn document<T: DeserializeOwned>(&self, answer: ApiAnswer) -> Result<T, WaferError> {
        // The service's own words are a document; a 404 of anything else is another address.
        let ours = serde_json::from_slice::<serde::de::IgnoredAny>(&answer.body).is_ok();
        if answer.status == StatusCode::NOT_FOUND && !ours {
            return Err(self.foreign(&answer.body));
        }
        if !answer.status.is_success() {
            return Err(WaferError::Refused(Box::new(Refusal::of(answer.status, &answer.body))));
        }
        serde_json::from_slice(&answer.body).map_err(|_| self.foreign(&answer.body))
    }

    fn foreign(&self, body: &[u8]) -> WaferError {
        let body = match shown(&String::from_utf8_lossy(body)) {
            body if body.is_empty() => "it answers nothing".to_owned(),
            body => body,
        };
        WaferError::Foreign { url: self.base.clone(), body }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        doing: &'static str,
        limit: Duration,
    ) -> Result<Response, WaferError> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        request = request.headers(self.headers.clone());
        if let Some((kind, body)) = body {
            request = request.header(CONTENT_TYPE, kind).body(body);
        }
        match timeout(limit, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_connect() => {
                Err(WaferError::Unreachable { url: self.base.clone(), why: chain(&error) })
            }
            Ok(Err(error)) => Err(WaferError::Cut { doing, why: chain(&error) }),
            Err(_) => Err(WaferError::Silent { doing, limit }),
        }
    }
}

/// A document to be sent.
///
/// # Errors
/// None that a value of ours could cause.
pub(super) fn json(value: &impl Serialize) -> Result<Vec<u8>, WaferError> {
    serde_json::to_vec(value).map_err(|e| WaferError::Local {
        what: "a request cannot be written".to_owned(),
        why: e.to_string(),
    })
}

async fn read(mut response: Response, doing: &'static str) -> Result<Vec<u8>, WaferError> {
    let cut = |why: String| WaferError::Cut { doing, why };
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| cut(chain(&e)))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_BODY {
            return Err(cut(format!("it is over {MAX_BODY} bytes")));
        }
    }
    Ok(body)
}
