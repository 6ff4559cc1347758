//! A connection to one host, directly or through jump hosts.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use russh::client::{self, Handle};
use russh::{Preferred, cipher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::SshError;
use super::address::Address;
use super::auth::Login;
use super::channel;
use super::host_key::{HostKeyHandler, HostKeyState};
use super::resolve::{ResolvedHost, resolve, tokens};
use super::socket::NodelayStream;
use crate::local::child_pipes;
use crate::stream::{AgentStream, StreamEnd};
use crate::{ConnectOptions, limits};

/// If the round trip is longer, channels are opened ahead of use.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(20);

/// The number of channels opened ahead, as many as an upload uses. They cost the host little until
/// a command runs on them.
const SPARE_CHANNELS: usize = 9;

/// Round trips of a login with a key: the service, the key, the signature. There are more if the
/// first key is refused, so the computed pace is an upper bound.
const LOGIN_ROUND_TRIPS: u32 = 3;

/// Most jump hosts in a row; more are treated as a loop.
const MAX_JUMPS: usize = 8;

/// The way to a host, from the remote's configuration.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) address: Address,
    /// Jump hosts, the first one first; `None`: those of the ssh configuration.
    pub(super) jumps: Option<Vec<Address>>,
    pub(super) identity: Option<PathBuf>,
    pub(super) config: Option<PathBuf>,
}

/// A connection that has logged in; its channels carry agents and commands.
pub(super) struct Connection {
    handle: Arc<Handle<HostKeyHandler>>,
    /// The connections to the jump hosts, which carry this one.
    _jump_connections: Vec<Arc<Handle<HostKeyHandler>>>,
    address: String,
    /// An upper bound on the round trip, computed from the login.
    login_pace: Duration,
    round_trip: Duration,
    spares: Mutex<Vec<JoinHandle<Result<channel::OpenChannel, russh::Error>>>>,
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl Connection {
    /// Connects and logs in.
    pub(super) async fn open(route: &Route, options: &ConnectOptions) -> Result<Self, SshError> {
        let mut passed = Vec::new();
        let ReachedHost { handle, resolved, login } = reach(route, options, &mut passed, 0).await?;
        let connection = Self {
            handle: Arc::new(handle),
            _jump_connections: passed,
            address: resolved.address(),
            login_pace: login / LOGIN_ROUND_TRIPS,
            round_trip: Duration::ZERO,
            spares: Mutex::new(Vec::new()),
        };
        Ok(connection)
    }

    /// The round trip, measured when the first channel was opened.
    pub(super) fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Runs `command` on the first channel, and measures the round trip.
    pub(super) async fn first(&mut self, command: &str) -> Result<AgentStream, SshError> {
        let started = Instant::now();
        // The first channel is requested first, because a host may grant only one.
        let (open, ()) = tokio::join!(self.channel(), async {
            if self.login_pace > LONG_ROUND_TRIP {
                self.open_spares().await;
            }
        });
        let open = open?;
        self.round_trip = started.elapsed();
        tracing::debug!(round_trip = ?self.round_trip, "ssh: first channel opened");
        self.exec(open, command).await
    }

    /// Runs `command` on another channel.
    pub(super) async fn run(&self, command: &str) -> Result<AgentStream, SshError> {
        // A host may have refused the later ones of these, and would refuse a new one too.
        loop {
            let Some(spare) = self.spares.lock().await.pop() else { break };
            if let Ok(Ok(Ok(open))) = timeout(limits::CONNECT_TIMEOUT, spare).await {
                return self.exec(open, command).await;
            }
        }
        let open = self.channel().await?;
        self.exec(open, command).await
    }

    async fn open_spares(&self) {
        let open = |_| {
            let handle = self.handle.clone();
            tokio::spawn(async move { handle.channel_open_session().await })
        };
        self.spares.lock().await.extend((0..SPARE_CHANNELS).map(open));
    }

    async fn channel(&self) -> Result<channel::OpenChannel, SshError> {
        let doing = "opening a channel";
        match timeout(limits::CONNECT_TIMEOUT, self.handle.channel_open_session()).await {
            Ok(open) => open.map_err(|source| self.broken(doing, source)),
            Err(_) => Err(self.timed_out(doing)),
        }
    }

    async fn exec(
        &self,
        open: channel::OpenChannel,
        command: &str,
    ) -> Result<AgentStream, SshError> {
        let doing = "starting the agent";
        match timeout(limits::CONNECT_TIMEOUT, open.exec(false, command)).await {
            Ok(result) => result.map_err(|source| self.broken(doing, source))?,
            Err(_) => return Err(self.timed_out(doing)),
        }
        Ok(channel::wire(open))
    }

    fn broken(&self, doing: &'static str, source: russh::Error) -> SshError {
        SshError::Broken { address: self.address.clone(), doing, source }
    }

    fn timed_out(&self, stage: &'static str) -> SshError {
        SshError::Timeout { address: self.address.clone(), stage, limit: limits::CONNECT_TIMEOUT }
    }
}

/// A host that we logged in to.
struct ReachedHost {
    handle: Handle<HostKeyHandler>,
    resolved: ResolvedHost,
    /// The duration of the login.
    login: Duration,
}

/// Connects along `route`. Adds the connections to the jump hosts to `passed`.
fn reach<'a>(
    route: &'a Route,
    options: &'a ConnectOptions,
    passed: &'a mut Vec<Arc<Handle<HostKeyHandler>>>,
    depth: usize,
) -> std::pin::Pin<Box<dyn Future<Output = Result<ReachedHost, SshError>> + Send + 'a>> {
    Box::pin(async move {
        let resolved = resolve(&route.address, route.config.as_deref()).await?;
        if let Some(setting) = resolved.unsupported_settings.first() {
            let (host, why) = (route.address.host.clone(), format!("it has `{setting}`"));
            return Err(SshError::NeedsOwnSsh { host, why });
        }
        let jumps = jumps(route, &resolved)?;
        if depth > MAX_JUMPS {
            let message = format!("more than {MAX_JUMPS} jump hosts in a row");
            return Err(SshError::Config { host: route.address.host.clone(), message });
        }
        options.user_prompt.verbose(&format!(
            "{} is {}@{}",
            route.address.host,
            resolved.user,
            resolved.address()
        ));
        tracing::debug!(
            host = route.address.host,
            jumps = jumps.len(),
            proxy = resolved.proxy_command.is_some(),
            "ssh: connecting"
        );
        let mut proxied = None;
        let stream: Box<dyn Duplex> = match jumps.split_last() {
            Some((last, before)) => {
                let next = Route {
                    address: last.clone(),
                    // The first host of a list may have jump hosts of its own.
                    jumps: (!before.is_empty()).then(|| before.to_vec()),
                    ..route.clone()
                };
                connect_through(&next, &resolved, options, passed, depth).await?
            }
            None => match &resolved.proxy_command {
                Some(command) => {
                    let (stream, ending) = proxy(command, &resolved)?;
                    proxied = Some(ending);
                    stream
                }
                None => Box::new(NodelayStream::new(connect_tcp(&resolved).await?)),
            },
        };
        let handshake = shake_hands(stream, &resolved, options).await;
        let mut handle = match (handshake, proxied) {
            (Err(SshError::Handshake { source, .. }), Some(ending)) => {
                ending.settle().await;
                let (host, last) = (resolved.host.clone(), ending.stderr_tail(200));
                let message = if last.is_empty() { source.to_string() } else { last };
                return Err(SshError::Proxy { host, message });
            }
            (handshake, _) => handshake?,
        };
        tracing::debug!(address = resolved.address(), "ssh: keys exchanged, host key accepted");
        let started = Instant::now();
        Login {
            resolved: &resolved,
            identity: route.identity.as_deref(),
            user_prompt: &*options.user_prompt,
        }
        .run(&mut handle)
        .await?;
        let login = started.elapsed();
        tracing::debug!(address = resolved.address(), ?login, "ssh: logged in");
        Ok(ReachedHost { handle, resolved, login })
    })
}

/// The jump hosts: the remote's own list, or else the configuration's.
fn jumps(route: &Route, resolved: &ResolvedHost) -> Result<Vec<Address>, SshError> {
    if let Some(jumps) = &route.jumps {
        return Ok(jumps.clone());
    }
    let list = resolved.jump.as_deref().unwrap_or_default();
    list.split(',')
        .filter(|jump| !jump.is_empty())
        .map(|jump| {
            Address::parse(jump).map_err(|why| SshError::Config {
                host: route.address.host.clone(),
                message: format!("ProxyJump `{jump}`: {why}"),
            })
        })
        .collect()
}

/// A byte stream to `target` through the host at the end of `route`.
async fn connect_through(
    route: &Route,
    target: &ResolvedHost,
    options: &ConnectOptions,
    passed: &mut Vec<Arc<Handle<HostKeyHandler>>>,
    depth: usize,
) -> Result<Box<dyn Duplex>, SshError> {
    let jump = route.address.host.clone();
    let wrap = |source: SshError| SshError::Jump { jump: jump.clone(), source: Box::new(source) };
    let ReachedHost { handle, resolved, .. } =
        reach(route, options, passed, depth + 1).await.map_err(wrap)?;
    let opening = handle.channel_open_direct_tcpip(
        target.host.as_str(),
        u32::from(target.port),
        "127.0.0.1",
        0,
    );
    let channel = match timeout(limits::CONNECT_TIMEOUT, opening).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(russh::Error::ChannelOpenFailure(why))) => {
            let source = io::Error::other(format!("the jump host answers {why:?}"));
            return Err(wrap(SshError::Unreachable { address: target.address(), source }));
        }
        Ok(Err(source)) => {
            let (address, doing) = (resolved.address(), "passing it");
            return Err(wrap(SshError::Broken { address, doing, source }));
        }
        Err(_) => {
            let (address, stage, limit) =
                (target.address(), "connecting through the jump host", limits::CONNECT_TIMEOUT);
            return Err(wrap(SshError::Timeout { address, stage, limit }));
        }
    };
    passed.push(Arc::new(handle));
    Ok(Box::new(channel.into_stream()))
}

/// A TCP connection to the first of the host's addresses that answers.
async fn connect_tcp(resolved: &ResolvedHost) -> Result<TcpStream, SshError> {
    let name = resolved.host.trim_start_matches('[').trim_end_matches(']');
    let address = resolved.address();
    let family_matches = |found: &SocketAddr| match resolved.family.as_deref() {
        Some("inet") => found.is_ipv4(),
        Some("inet6") => found.is_ipv6(),
        _ => true,
    };
    let found: Vec<SocketAddr> =
        match timeout(limits::CONNECT_TIMEOUT, lookup_host((name, resolved.port))).await {
            Ok(Ok(found)) => found.filter(family_matches).collect(),
            Ok(Err(source)) => return Err(SshError::Name { host: name.to_owned(), source }),
            Err(_) => {
                let (stage, limit) = ("looking up its name", limits::CONNECT_TIMEOUT);
                return Err(SshError::Timeout { address, stage, limit });
            }
        };
    let mut last = None;
    for socket in found {
        tracing::debug!(%socket, "ssh: trying an address");
        match timeout(limits::CONNECT_TIMEOUT, TcpStream::connect(socket)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                last = Some(SshError::Refused { address: address.clone() });
            }
            Ok(Err(source)) => {
                last = Some(SshError::Unreachable { address: address.clone(), source });
            }
            Err(_) => {
                let (stage, limit) = ("connecting", limits::CONNECT_TIMEOUT);
                last = Some(SshError::Timeout { address: address.clone(), stage, limit });
            }
        }
    }
    Err(last.unwrap_or_else(|| SshError::Name {
        host: name.to_owned(),
        source: io::Error::other("it has no address of the required family"),
    }))
}

/// The user's ProxyCommand as a byte stream; a shell runs it, as in ssh.
fn proxy(command: &str, resolved: &ResolvedHost) -> Result<(Box<dyn Duplex>, StreamEnd), SshError> {
    let line = tokens(command, |token| match token {
        'h' => Some(resolved.host.clone()),
        'n' => Some(resolved.alias.clone()),
        'p' => Some(resolved.port.to_string()),
        'r' => Some(resolved.user.clone()),
        _ => None,
    });
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("exec {line}")).process_group(0);
    let pipes = child_pipes(command).map_err(|error| SshError::Proxy {
        host: resolved.host.clone(),
        message: format!("`{line}`: {error}"),
    })?;
    Ok((Box::new(tokio::io::join(pipes.stdout, pipes.stdin)), pipes.ending))
}

/// Exchanges keys and checks the host's key.
async fn shake_hands(
    stream: Box<dyn Duplex>,
    resolved: &ResolvedHost,
    options: &ConnectOptions,
) -> Result<Handle<HostKeyHandler>, SshError> {
    let host_key =
        HostKeyState::new(resolved, options.unknown_host_policy, options.user_prompt.clone());
    let config = Arc::new(config(&host_key));
    let connecting = client::connect_stream(config, stream, host_key.handler());
    tokio::pin!(connecting);
    let result = loop {
        match timeout(limits::CONNECT_TIMEOUT, &mut connecting).await {
            Ok(result) => break result,
            // There is no limit while the user compares a fingerprint.
            Err(_) if host_key.is_asking_user() => {}
            Err(_) => {
                return Err(SshError::Timeout {
                    address: resolved.address(),
                    stage: "exchanging keys",
                    limit: limits::CONNECT_TIMEOUT,
                });
            }
        }
    };
    match (result, host_key.refused()) {
        (_, Some(why)) => Err(why),
        (Ok(handle), None) => Ok(handle),
        (Err(source), None) => Err(SshError::Handshake { address: resolved.address(), source }),
    }
}

/// The settings, chosen by measurements.
fn config(host_key: &HostKeyState) -> client::Config {
    let usual = Preferred::DEFAULT;
    let mut ciphers = vec![cipher::AES_128_GCM];
    ciphers.extend(usual.cipher.iter().copied().filter(|name| *name != cipher::AES_128_GCM));
    let keys = host_key.key_order(&usual.key);
    let certificates = if host_key.has_authority() { keys.clone() } else { Vec::new() };
    client::Config {
        // As much as an agent prefetches over a long link.
        window_size: 32 << 20,
        maximum_packet_size: 65535,
        keepalive_interval: Some(Duration::from_secs(15)),
        keepalive_max: 3,
        nodelay: true,
        preferred: Preferred {
            key: Cow::Owned(keys),
            host_key_certificates: Cow::Owned(certificates),
            cipher: Cow::Owned(ciphers),
            ..usual
        },
        ..client::Config::default()
    }
}
