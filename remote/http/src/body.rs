//! Reads request bodies, with limits on size and time.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::StatusCode;
use tokio::time::timeout;

use crate::answer::HttpRefusal;

/// Longest pause within a body.
const MAX_BODY_PAUSE: Duration = Duration::from_secs(20);

/// Longest time for a whole body: 4 MiB at 14 KiB per second.
const MAX_BODY_TIME: Duration = Duration::from_secs(300);

/// How much of an unwanted body is read, and for how long.
const MAX_DISCARDED_BYTES: usize = 16 << 20;
const MAX_DISCARD_TIME: Duration = Duration::from_secs(2);

/// Reads a whole body of at most `limit` bytes.
pub(crate) async fn read(body: Body, limit: usize) -> Result<Vec<u8>, HttpRefusal> {
    let slow = |_| {
        let text = "the body arrived too slowly";
        HttpRefusal::new(StatusCode::REQUEST_TIMEOUT, "slow_body", text)
    };
    timeout(MAX_BODY_TIME, collect(body, limit)).await.map_err(slow)?
}

async fn collect(body: Body, limit: usize) -> Result<Vec<u8>, HttpRefusal> {
    let too_long = || {
        let text = format!("the body is over {limit} bytes");
        HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_long", text)
    };
    let min_len = body.size_hint().lower();
    if min_len > limit as u64 {
        discard(body).await;
        return Err(too_long());
    }
    let mut bytes = Vec::with_capacity(min_len as usize);
    let mut body = pin!(body);
    loop {
        let frame = timeout(MAX_BODY_PAUSE, poll_fn(|context| body.as_mut().poll_frame(context)))
            .await
            .map_err(|_| {
                HttpRefusal::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "slow_body",
                    "the body stopped arriving",
                )
            })?;
        match frame {
            None => return Ok(bytes),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else { continue };
                if bytes.len() + data.len() > limit {
                    return Err(too_long());
                }
                bytes.extend_from_slice(&data);
            }
            Some(Err(_)) => {
                let text = "the body was cut off or is not valid HTTP";
                return Err(HttpRefusal::new(StatusCode::BAD_REQUEST, "cut_body", text));
            }
        }
    }
}

/// Reads and drops an unwanted body, within limits. If the connection closed while the client still
/// sends, the client might never see the response.
pub(crate) async fn discard(body: Body) {
    let mut body = pin!(body);
    let all = async {
        let mut left = MAX_DISCARDED_BYTES;
        while let Some(Ok(frame)) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
            left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len()));
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(MAX_DISCARD_TIME, all).await;
}
