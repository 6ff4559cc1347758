//! One request to Wafer's service: time limits, no redirects, bounded answers. The caller decides
//! whether a request may be repeated.

use std::path::Path;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use super::error::WaferError;
use super::refusal;
use super::sse::SseStream;
use super::token::Token;
use crate::fetch::open_parent;
use crate::foreign_text::excerpt;
use crate::http::{self, Attempts, HttpError, error_chain};
use crate::{RemoteError, limits};

/// The longest answer in bytes.
const MAX_BODY_BYTES: usize = 4 << 20;

/// The content type of documents.
pub(super) const JSON: &str = "application/json";

/// Attempts for a request that changes nothing, and the pause before the second.
const MAX_TRIES: u32 = 4;
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A client of the service. Clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct Api {
    client: Client,
    base: String,
    headers: HeaderMap,
}

pub(super) struct ApiAnswer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

impl Api {
    /// A client of the service at `base`.
    pub(super) fn new(base: &str, token: Option<&Token>) -> Result<Self, WaferError> {
        let local = |why: String| WaferError::Local {
            what: "no connection to Wafer can be made".to_owned(),
            why,
        };
        let url = Url::parse(base).map_err(|e| local(e.to_string()))?;
        let client = http::client(&url).build().map_err(|e| local(error_chain(&e)))?;
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token.header()?);
        }
        Ok(Self { client, base: base.to_owned(), headers })
    }

    /// Adds the key that the authentication server requires of every client.
    pub(super) fn client_key(mut self, key: &str) -> Result<Self, WaferError> {
        let value = HeaderValue::from_str(key).map_err(|e| WaferError::Local {
            what: "`supabase_anon_key` of ~/.wafer/config.toml cannot be used".to_owned(),
            why: e.to_string(),
        })?;
        self.headers.insert(HeaderName::from_static("apikey"), value);
        Ok(self)
    }

    /// Fetches a JSON document.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        doing: &'static str,
    ) -> Result<T, WaferError> {
        let answer = self.get_with_retries(path, doing).await?;
        self.document(answer)
    }

    /// Sends a JSON document and reads one.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        doing: &'static str,
    ) -> Result<T, WaferError> {
        let answer = self.ask(Method::POST, path, Some(json(body)?), doing).await?;
        self.document(answer)
    }

    /// Sends a `GET` request, and repeats it if that may help, since it changes nothing.
    pub(super) async fn get_with_retries(
        &self,
        path: &str,
        doing: &'static str,
    ) -> Result<ApiAnswer, WaferError> {
        let mut attempts = Attempts::new(MAX_TRIES, FIRST_RETRY_PAUSE);
        loop {
            let answer = self.ask(Method::GET, path, None, doing).await;
            let passes = match &answer {
                Ok(answer) => answer.status.is_server_error(),
                // After silence, the limit has already passed.
                Err(WaferError::Http(HttpError::Silent { .. })) => false,
                Err(error) => error.is_link(),
            };
            if !passes || !attempts.next().await {
                return answer;
            }
        }
    }

    /// Sends a request and returns any answer.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        doing: &'static str,
    ) -> Result<ApiAnswer, WaferError> {
        let body = body.map(|body| (JSON, body));
        let response = self.send(method, path, body, doing, limits::ANSWER_TIMEOUT).await?;
        let status = response.status();
        let body = http::read_body(response, MAX_BODY_BYTES, limits::ANSWER_TIMEOUT, doing).await?;
        Ok(ApiAnswer { status, body })
    }

    /// Sends a body of this content type and returns the stream of the answer; silence for longer
    /// than `max_silence` is an error.
    pub(super) async fn stream(
        &self,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
        doing: &'static str,
        max_silence: Duration,
    ) -> Result<SseStream, WaferError> {
        let response = self.send(Method::POST, path, body, doing, max_silence).await?;
        let status = response.status();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if status.is_success() && kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Ok(SseStream::new(response, doing, max_silence));
        }
        let body = http::refusal_body(response, MAX_BODY_BYTES).await;
        if status.is_success() {
            return Err(self.foreign(&body));
        }
        Err(WaferError::refused(refusal::named(status, &body)))
    }

    /// Downloads a file of at most `max_bytes` bytes; leaves no partial file.
    pub(super) async fn download(
        &self,
        path: &str,
        to: &Path,
        max_bytes: u64,
        doing: &'static str,
    ) -> Result<(), RemoteError> {
        let mut response = self.send(Method::GET, path, None, doing, limits::STALL_TIMEOUT).await?;
        let status = response.status();
        if !status.is_success() {
            let body = http::refusal_body(response, MAX_BODY_BYTES).await;
            return Err(WaferError::refused(refusal::named(status, &body)).into());
        }
        let disk_error = |source| RemoteError::Disk { path: to.to_owned(), source };
        let (folder, name) = open_parent(to)?;
        // Dropped before its end, the new file is removed.
        let (file, new) = folder.begin(&name).map_err(disk_error)?;
        let mut file = File::from_std(file);
        let mut received_bytes = 0;
        while let Some(bytes) =
            http::next_chunk(&mut response, limits::STALL_TIMEOUT, doing).await?
        {
            received_bytes += bytes.len() as u64;
            if received_bytes > max_bytes {
                let why = format!("it is over {max_bytes} bytes");
                return Err(WaferError::refused(refusal::too_long(why)).into());
            }
            file.write_all(&bytes).await.map_err(disk_error)?;
        }
        file.sync_all().await.map_err(disk_error)?;
        new.finish().map_err(disk_error)
    }

    /// The JSON document in an answer.
    pub(super) fn document<T: DeserializeOwned>(&self, answer: ApiAnswer) -> Result<T, WaferError> {
        // The service answers JSON; a 404 with anything else means a wrong address.
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&answer.body).is_ok();
        if answer.status == StatusCode::NOT_FOUND && !is_json {
            return Err(self.foreign(&answer.body));
        }
        if !answer.status.is_success() {
            return Err(WaferError::refused(refusal::named(answer.status, &answer.body)));
        }
        serde_json::from_slice(&answer.body).map_err(|_| self.foreign(&answer.body))
    }

    fn foreign(&self, body: &[u8]) -> WaferError {
        let body = match excerpt(&String::from_utf8_lossy(body)) {
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
        let failed = |error: &reqwest::Error| {
            if error.is_connect() {
                HttpError::Unreachable { url: self.base.clone(), why: error_chain(error), hint: "" }
            } else {
                HttpError::Cut { doing, why: error_chain(error) }
            }
        };
        Ok(http::send(request, limit, doing, failed).await?)
    }
}

/// Encodes the body of a request.
pub(super) fn json(value: &impl Serialize) -> Result<Vec<u8>, WaferError> {
    serde_json::to_vec(value).map_err(|e| WaferError::Local {
        what: "a request cannot be written".to_owned(),
        why: e.to_string(),
    })
}
