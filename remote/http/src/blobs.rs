//! Blobs: finding missing ones and storing them, whole or in ranges.
//!
//! Ranges are appended to a temporary file. Only a complete blob with the right digest gets its
//! name. After a lost connection, a client asks with `HEAD` how many bytes are stored.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path as InPath, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rgpu_agent::blob::BlobEncoding;
use rgpu_agent::service::{Refusal, Service};
use rgpu_protocol::http::{MissingBlobs, MissingRequest, PLAIN_SIZE, UPLOAD_OFFSET};
use rgpu_protocol::{BLOB_BYTES, Digest, FromAgent};

use crate::answer::{HttpRefusal, json};
use crate::body::{read, read_json};
use crate::range::ContentRange;
use crate::state::State;

/// The maximum size of a request body: zstd may enlarge incompressible bytes a little.
const MAX_BLOB_BODY_BYTES: usize = BLOB_BYTES as usize + (64 << 10);

/// Returns the blobs of the request that are not stored.
pub(crate) async fn missing(
    Shared(state): Shared<Arc<State>>,
    body: Body,
) -> Result<Response, HttpRefusal> {
    let MissingRequest { blobs: requested } = read_json(body).await?;
    let digests = state
        .run_blocking(move |service| {
            let blobs = service.blobs()?;
            let missing = requested.into_iter().filter(|blob| !blobs.has(&blob.digest, blob.size));
            Ok(missing.map(|blob| blob.digest).collect())
        })
        .await?;
    Ok(json(StatusCode::OK, &MissingBlobs { digests }))
}

/// Returns whether a blob is stored, or how much of it.
pub(crate) async fn head(
    Shared(state): Shared<Arc<State>>,
    InPath(digest): InPath<String>,
) -> Result<Response, HttpRefusal> {
    let digest = parse(digest)?;
    let (whole, part) = state
        .run_blocking(move |service| {
            let blobs = service.blobs()?;
            let len = |path: &Path| fs::metadata(path).map(|meta| meta.len()).ok();
            let whole = len(&blobs.path(&digest)).filter(|size| blobs.has(&digest, *size));
            Ok((whole, len(&blobs.part_path(&digest)).unwrap_or(0)))
        })
        .await?;
    let mut response = match whole {
        Some(_) => StatusCode::OK.into_response(),
        None => HttpRefusal::new(StatusCode::NOT_FOUND, "no_such_blob", "the blob is not stored")
            .into_response(),
    };
    response.headers_mut().insert(UPLOAD_OFFSET, HeaderValue::from(whole.unwrap_or(part)));
    Ok(response)
}

/// Stores a blob or a range of it.
pub(crate) async fn put(
    Shared(state): Shared<Arc<State>>,
    InPath(digest): InPath<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpRefusal> {
    let digest = parse(digest)?;
    let range = headers.get(header::CONTENT_RANGE).map(|value| {
        value.to_str().ok().and_then(ContentRange::parse).ok_or_else(|| {
            let text = "write `Content-Range: bytes FIRST-LAST/TOTAL`";
            HttpRefusal::new(StatusCode::BAD_REQUEST, "bad_range", text)
        })
    });
    let range = range.transpose()?;
    let packed = match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => BlobEncoding::Plain,
        Some(b"zstd") if range.is_none() => BlobEncoding::Zstd,
        Some(_) => {
            let text = "a whole blob may be zstd; a range must be uncompressed";
            return Err(HttpRefusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_encoding", text));
        }
    };
    let bytes = read(body, MAX_BLOB_BODY_BYTES).await?;
    let size = match packed {
        BlobEncoding::Plain => bytes.len() as u64,
        BlobEncoding::Zstd => {
            let size = headers.get(PLAIN_SIZE).and_then(|size| size.to_str().ok()?.parse().ok());
            size.filter(|size| *size <= BLOB_BYTES).ok_or_else(|| {
                let text =
                    format!("`{PLAIN_SIZE}` must be the uncompressed size, at most {BLOB_BYTES}");
                HttpRefusal::new(StatusCode::BAD_REQUEST, "bad_blob", text)
            })?
        }
    };
    let stored = {
        let digest = digest.clone();
        state
            .run_blocking(move |service| match range {
                None => {
                    service.put_blob(&digest, size, &bytes, packed).map(|()| StoredBytes::Whole)
                }
                Some(range) => append(service, &digest, range, &bytes),
            })
            .await?
    };
    let (status, offset) = match stored {
        StoredBytes::Whole => (StatusCode::OK, None),
        StoredBytes::Part(offset) => (StatusCode::ACCEPTED, Some(offset)),
        StoredBytes::WrongOffset { stored: offset } => {
            let text = format!("{offset} bytes of it are stored: continue there");
            let mut response =
                HttpRefusal::new(StatusCode::CONFLICT, "wrong_offset", text).into_response();
            response.headers_mut().insert(UPLOAD_OFFSET, HeaderValue::from(offset));
            return Ok(response);
        }
    };
    let mut response = json(status, &FromAgent::Stored { digest });
    if let Some(offset) = offset {
        response.headers_mut().insert(UPLOAD_OFFSET, HeaderValue::from(offset));
    }
    Ok(response)
}

/// The result of storing bytes.
enum StoredBytes {
    /// The blob is complete.
    Whole,
    /// This many bytes of it are stored.
    Part(u64),
    /// The range does not begin where the stored bytes end.
    WrongOffset { stored: u64 },
}

fn append(
    service: &Service,
    digest: &Digest,
    range: ContentRange,
    bytes: &[u8],
) -> Result<StoredBytes, Refusal> {
    let refuse = |text: String| Refusal::new("blob", "bad_blob", text);
    if range.total > BLOB_BYTES || range.len() != bytes.len() as u64 {
        let len = bytes.len();
        return Err(refuse(format!(
            "the body has {len} bytes, but the range is {range} (a blob has at most {BLOB_BYTES} bytes)"
        )));
    }
    let path = service.blobs()?.part_path(digest);
    let io = |e: io::Error| {
        let fault =
            rgpu_agent::host_fault::HostFault::new(format!("write `{}`", path.display()), e);
        Refusal::new("blob", fault.code(), fault.to_string())
    };
    let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(io)?;
    let stored_len = file.metadata().map_err(io)?.len();
    if range.first == 0 && stored_len > 0 {
        // The client starts again.
        file.set_len(0).map_err(io)?;
    } else if range.first != stored_len {
        return Ok(StoredBytes::WrongOffset { stored: stored_len });
    }
    file.write_all(bytes).map_err(io)?;
    if range.end < range.total {
        return Ok(StoredBytes::Part(range.end));
    }
    let whole = fs::read(&path).map_err(io)?;
    // The blob is complete or damaged, so the partial file is of no more use.
    let _ = fs::remove_file(&path);
    service.put_blob(digest, range.total, &whole, BlobEncoding::Plain).map(|()| StoredBytes::Whole)
}

fn parse(digest: String) -> Result<Digest, HttpRefusal> {
    Digest::try_from(digest)
        .map_err(|e| HttpRefusal::new(StatusCode::BAD_REQUEST, "bad_digest", e.to_string()))
}
