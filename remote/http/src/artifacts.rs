//! Artifacts of a job: whole, in ranges, or as frames.
//!
//! A program may change a file between two range requests. So each response carries the file's
//! state in its `ETag`, which `If-Match` and `If-Range` compare.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rgpu_agent::connection::fetch::part;
use rgpu_agent::job::JobFolder;
use rgpu_agent::journal::JournalReader;
use rgpu_protocol::http::{FRAMES, SHA256};
use rgpu_protocol::{BLOB_BYTES, EventBody};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::answer::HttpRefusal;
use crate::jobs::accepts;
use crate::range::RequestedRange;
use crate::request_guard::busy;
use crate::state::State;
use crate::stream::{ReadBody, announced_body, frames};

/// Sends an artifact or a range of it.
pub(crate) async fn get(
    Shared(state): Shared<Arc<State>>,
    Path((job, path)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, HttpRefusal> {
    let name = path.clone();
    let (folder, file, meta) = state
        .run_blocking(move |service| {
            let folder = service.find("fetch", &job)?;
            let file = service.artifact(&job, &name)?;
            let meta = file.metadata().map_err(|e| {
                rgpu_agent::service::Refusal::new("fetch", "io", format!("`{name}`: {e}"))
            })?;
            Ok((folder, file, meta))
        })
        .await?;
    let tag = tag(&meta);
    let header = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let names = |list: &str| list.split(',').any(|t| t.trim() == tag || t.trim() == "*");
    if header(header::IF_MATCH).is_some_and(|list| !names(list)) {
        let text = format!("`{}` has changed", path.escape_debug());
        return Err(HttpRefusal::new(StatusCode::PRECONDITION_FAILED, "changed", text));
    }
    if header(header::IF_NONE_MATCH).is_some_and(names) {
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        response.headers_mut().insert(header::ETAG, value(&tag));
        return Ok(response);
    }
    let size = meta.len();
    // A range of an older state would not fit, so the whole file is sent then.
    let unchanged = header(header::IF_RANGE).is_none_or(|of| of == tag);
    let requested = RequestedRange::parse(header(header::RANGE).filter(|_| unchanged), size);
    if accepts(&headers, FRAMES) {
        return piece(folder, path, requested, size, &tag).await;
    }
    let (first, end, status) = match requested {
        RequestedRange::All => (0, size, StatusCode::OK),
        RequestedRange::Part(first, end) => (first, end, StatusCode::PARTIAL_CONTENT),
        RequestedRange::Nothing => {
            let text = format!("the file has {size} bytes");
            let refused = HttpRefusal::new(StatusCode::RANGE_NOT_SATISFIABLE, "bad_range", text);
            let mut response = refused.into_response();
            let range = value(&format!("bytes */{size}"));
            response.headers_mut().insert(header::CONTENT_RANGE, range);
            return Ok(response);
        }
    };
    let digest = tokio::task::spawn_blocking(move || digest(&folder, &path, size)).await;
    let mut response = Response::new(body(file, first, end).await?);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::ETAG, value(&tag));
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {first}-{}/{size}", end - 1);
        headers.insert(header::CONTENT_RANGE, value(&range));
    }
    if let Ok(Some(digest)) = digest {
        headers.insert(SHA256, value(&digest));
    }
    Ok(response)
}

async fn body(file: File, first: u64, end: u64) -> Result<axum::body::Body, HttpRefusal> {
    let mut file = tokio::fs::File::from_std(file);
    let io = |e: std::io::Error| {
        HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "io", e.to_string())
    };
    file.seek(std::io::SeekFrom::Start(first)).await.map_err(io)?;
    Ok(ReadBody::sized(file.take(end - first), end - first))
}

/// Returns one piece as a `data` message and its blob frames.
async fn piece(
    folder: JobFolder,
    path: String,
    requested: RequestedRange,
    size: u64,
    tag: &str,
) -> Result<Response, HttpRefusal> {
    let (first, end) = match requested {
        RequestedRange::All => (0, size),
        RequestedRange::Part(first, end) => (first, end),
        // An empty piece, as on a byte stream.
        RequestedRange::Nothing => (size, size),
    };
    let len = (end - first).min(BLOB_BYTES);
    let read = tokio::task::spawn_blocking(move || part(&folder, &path, first, len)).await;
    let (message, bytes) = read.map_err(|e| busy(&e.to_string()))?;
    let mut response = frames(announced_body(&message, bytes)?);
    response.headers_mut().insert(header::ETAG, value(tag));
    Ok(response)
}

/// Returns the file's ETag: inode, length, and time of the last change.
fn tag(meta: &Metadata) -> String {
    format!("\"{:x}-{:x}-{:x}.{:x}\"", meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec())
}

/// Returns the sha256 from the file's event, if the event is for this size.
fn digest(folder: &JobFolder, path: &str, bytes: u64) -> Option<String> {
    let mut reader = JournalReader::open(&folder.events_path()).ok()?;
    let mut found = None;
    loop {
        let events = reader.read_new().ok()?;
        if events.is_empty() {
            return found;
        }
        for event in events {
            if let EventBody::Artifact { path: of, size, digest, .. } = event.body
                && of == path
            {
                found = (size == bytes).then(|| digest.to_string());
            }
        }
    }
}

/// The agent's own text is always valid in headers.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
