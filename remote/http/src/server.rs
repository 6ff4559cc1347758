//! Listens, serves each connection, and ends.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connections::{Connection, Connections};
use crate::request_guard::RequestGuard;
use crate::routes::router;
use crate::settings::Settings;
use crate::state::State;

/// From the first byte of a request to the last of its head; and how long a connection may idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// How long what runs may take to end once the server is to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The server cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// The address.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The event loop.
    #[error("the event loop cannot start: {0}")]
    Runtime(io::Error),
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(settings: Settings) -> Result<(), ServerError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(ServerError::Runtime)?;
    let result = runtime.block_on(serve(settings));
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn serve(settings: Settings) -> Result<(), ServerError> {
    let address = settings.listen;
    let listener = listen(address).map_err(|source| ServerError::Listen { address, source })?;
    let address = listener.local_addr().map_err(ServerError::Runtime)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Runtime)?;
    let (json, way) = (settings.json, settings.hand_over.clone());
    let state = Arc::new(State::new(RequestGuard::new(settings, address), way));
    match json {
        true => println!(r#"{{"schema":"rgpu.worker/1","url":"http://{address}"}}"#),
        false => println!("listening on http://{address}"),
    }
    if !address.ip().is_loopback() {
        eprintln!(
            "rgpu-agent-http: {address} is no loopback address, and this server has no TLS of its \
             own: put one that has in front of it, or reach it through `ssh -L`"
        );
    }

    let all = Connections::new();
    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        };
        // Too many open files, or a client that is gone already.
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (state, stopping) = (state.clone(), stopping.clone());
        all.open(|connection| {
            tasks.spawn(async move { serve_one(stream, connection, &state, stopping).await })
        });
    }
    drop(listener);
    let _ = stop.send(true);
    state.stop_followers();
    let ended = async { while tasks.join_next().await.is_some() {} };
    // What does not end in time is cut; clients resume.
    let _ = timeout(SHUTDOWN_GRACE, ended).await;
    Ok(())
}

/// Also when the port was ours a moment ago.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

async fn serve_one(
    stream: TcpStream,
    connection: Connection,
    state: &Arc<State>,
    mut stopping: watch::Receiver<bool>,
) {
    // Small answers must not wait for more.
    let _ = stream.set_nodelay(true);
    let router = router(state).layer(Extension(Arc::new(connection)));
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
