//! The server: listens, serves connections, and shuts down.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rgpu_protocol::server::{Connection, Connections, accept, http1_builder};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::mail::SWEEP_INTERVAL;
use crate::request_guard::{MAX_CONCURRENT_REQUESTS, RequestGuard};
use crate::routes::router;
use crate::settings::Settings;
use crate::state::State;

/// How long connections may take to end after the server was told to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The event loop cannot start.
    #[error("the event loop cannot start: {0}")]
    Runtime(io::Error),
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(settings: Settings) -> Result<(), ServerError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(MAX_CONCURRENT_REQUESTS)
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
    let (json, relay_socket) = (settings.json, settings.hand_over.clone());
    let state = Arc::new(State::new(RequestGuard::new(settings, address), relay_socket));
    if json {
        println!(r#"{{"schema":"rgpu.worker/1","url":"http://{address}"}}"#)
    } else {
        println!("listening on http://{address}")
    }
    if !address.ip().is_loopback() {
        eprintln!(
            "rgpu-agent-http: {address} is not a loopback address, and this server has no TLS of its \
             own: put one that has in front of it, or reach it through `ssh -L`"
        );
    }

    let connections = Connections::new();
    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        let stream = tokio::select! {
            stream = accept(&listener, &connections) => stream,
            Some(_) = tasks.join_next() => continue,
            _ = sweep.tick() => {
                let state = state.clone();
                tokio::task::spawn_blocking(move || state.keepers.sweep());
                continue;
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        };
        let (state, stopping) = (state.clone(), stopping.clone());
        connections.open(|connection| {
            tasks.spawn(async move { serve_one(stream, connection, &state, stopping).await })
        });
    }
    drop(listener);
    let _ = stop.send(true);
    // Requests that wait for the agent are answered with its end.
    tokio::task::spawn_blocking(move || state.keepers.end_all());
    let ended = async { while tasks.join_next().await.is_some() {} };
    // Remaining connections are cut; their clients resume.
    let _ = timeout(SHUTDOWN_GRACE, ended).await;
    Ok(())
}

/// `std` sets `SO_REUSEADDR`, so a restart can use the same port at once.
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
    // Send small responses at once.
    let _ = stream.set_nodelay(true);
    let router = router(state).layer(Extension(Arc::new(connection)));
    let service = TowerToHyperService::new(router);
    let connection = http1_builder().serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
