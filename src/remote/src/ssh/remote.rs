//! The ssh remote: one connection, with an agent on each channel.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::SshError;
use super::address::Address;
use super::connection::{Connection, Route};
use super::failure_kind::SshFailureKind;
use super::openssh;
use crate::client::{StartingAgent, StreamOpener};
use crate::deploy::AgentStart;
use crate::stream::AgentStream;
use crate::{
    ConnectOptions, Remote, RemoteError, RemoteKind, RemoteSpec, Session, Transport, UserPrompt,
    limits,
};

/// Remotes of kind `ssh`.
pub const KIND: RemoteKind = RemoteKind {
    scheme: "ssh",
    form: "ssh://[user@]host[:port], or a host of your ssh configuration",
    has_many_hosts: false,
    what: "a host of ssh",
    heading: "",
    example: "ssh://user@host",
    address: None,
    settings: &[],
    open,
};

fn open(spec: &RemoteSpec) -> Result<Box<dyn Remote>, RemoteError> {
    let parse = |text: &str| {
        Address::parse(text).map_err(|why| RemoteError::Address { url: text.to_owned(), why })
    };
    let route = Route {
        address: parse(&spec.url)?,
        jumps: match &spec.jump {
            Some(list) => Some(list.split(',').map(parse).collect::<Result<_, _>>()?),
            None => None,
        },
        identity: spec.identity.clone().map(under_home),
        config: spec.ssh_config.clone().map(under_home),
    };
    Ok(Box::new(Ssh { spec: spec.clone(), route, own_ssh_reason: Mutex::new(None) }))
}

fn under_home(path: PathBuf) -> PathBuf {
    match path.strip_prefix("~") {
        Ok(rest) => etcetera::home_dir().map_or_else(|_| path.clone(), |home| home.join(rest)),
        Err(_) => path,
    }
}

/// A host reached over ssh.
struct Ssh {
    spec: RemoteSpec,
    route: Route,
    /// Why the user's own `ssh` carries the connection, once that was decided.
    own_ssh_reason: Mutex<Option<String>>,
}

impl Ssh {
    async fn builtin(&self, options: &ConnectOptions) -> Result<Session, RemoteError> {
        let start = Arc::new(AgentStart::new(&self.spec, &options.agent)?);
        let mut connection = Connection::open(&self.route, options).await?;
        let wire = connection.first(start.command()).await?;
        let starting =
            StartingAgent { start: start.clone(), user_prompt: options.user_prompt.clone() };
        let streams = SshStreams { start, connection, user_prompt: options.user_prompt.clone() };
        Ok(Session::begin(wire, starting, Arc::new(streams), &self.spec))
    }

    /// Retries with the user's own `ssh` after our client failed with `error`.
    async fn retry_with_own_ssh(
        &self,
        options: &ConnectOptions,
        error: SshError,
        why: String,
    ) -> Result<Session, RemoteError> {
        match openssh::connect(&self.spec, &self.route, options, &why).await {
            Ok(session) => {
                *self.own_ssh_reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                Ok(session)
            }
            // Our error lists what was tried.
            Err(RemoteError::Ssh(SshError::Own {
                kind: SshFailureKind::Denied, message, ..
            })) => Err(error.with_own_ssh_message(&message).into()),
            // No `ssh` is installed.
            Err(RemoteError::AgentStart { ended, .. }) if ended.contains("127") => {
                Err(error.into())
            }
            Err(other) => Err(other),
        }
    }
}

#[async_trait::async_trait]
impl Remote for Ssh {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn transport(&self) -> &'static str {
        "ssh"
    }

    async fn connect(&self, options: &ConnectOptions) -> Result<Session, RemoteError> {
        let own_ssh_why = match self.spec.transport {
            Transport::Openssh => Some("the remote's `transport` says so".to_owned()),
            _ => self.own_ssh_reason.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        if let Some(why) = own_ssh_why {
            return openssh::connect(&self.spec, &self.route, options, &why).await;
        }
        match (self.builtin(options).await, self.spec.transport) {
            (Err(RemoteError::Ssh(error)), Transport::Auto) => match error.own_ssh_hint() {
                Some(why) => self.retry_with_own_ssh(options, error, why).await,
                None => Err(error.into()),
            },
            (connected, _) => connected,
        }
    }
}

/// Opens further channels of one connection.
struct SshStreams {
    start: Arc<AgentStart>,
    connection: Connection,
    user_prompt: Arc<dyn UserPrompt>,
}

#[async_trait::async_trait]
impl StreamOpener for SshStreams {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        let wire = self.connection.run(self.start.command()).await?;
        self.start.wait_for_agent(wire, &*self.user_prompt).await
    }

    async fn open_with(&self, start: &AgentStart) -> Result<AgentStream, RemoteError> {
        let wire = self.connection.run(start.command()).await?;
        start.run(wire, &*self.user_prompt, limits::AGENT_START_TIMEOUT).await
    }

    fn round_trip(&self) -> Duration {
        self.connection.round_trip()
    }
}
