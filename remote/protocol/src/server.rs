//! What every HTTP server of rgpu does before it looks at a secret: the worker, the dashboard and
//! `rgpu mcp --http`. Only with the feature `server`.
//!
//! | part | what it prevents |
//! |---|---|
//! | [`accept`] | a server that ends because its process has too many open files |
//! | [`Connections`] | idle connections that keep other clients out |
//! | [`http1_builder`] | clients that never finish the header of a request |
//! | [`named_host`] | a request that names two hosts, of which only one is checked |

mod connections;
mod target;

use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};

pub use connections::{Connection, Connections};
pub use target::{TargetRefusal, named_host};

/// Longest time for a request's header, and longest idle time of a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// How long [`accept`] waits after a failure.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Accepts the next connection. If the process has too many open files, the older half of the
/// connections without a token is closed to make room. If the client has already gone, the next one
/// is accepted. Cancel-safe.
pub async fn accept(listener: &TcpListener, connections: &Connections) -> TcpStream {
    loop {
        let error = match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => error,
        };
        if error.kind() != std::io::ErrorKind::ConnectionAborted {
            connections.close_older_half();
        }
        tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
    }
}

/// A builder for connections whose clients must send the header of a request in time.
#[must_use]
pub fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder
}
