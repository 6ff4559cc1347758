//! The remote itself: an address, a connection, agents on its channels.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::SshError;
use super::address::Address;
use super::connection::{Connection, Route};
use super::openssh;
use super::trouble::SshTrouble;
use crate::remote::client::{StartingAgent, Streams};
use crate::remote::deploy::{self, AgentStart};
use crate::remote::stream::AgentStream;
use crate::remote::{
    ConnectOptions, Remote, RemoteError, RemoteKind, RemoteSpec, Session, Transport, UserPrompt,
};

/// `ssh`.
pub const KIND: RemoteKind = RemoteKind {
    scheme: "ssh",
    form: "ssh://[user@]host[:port], or a host of your ssh configuration",
    open,
};

fn open(spec: &RemoteSpec) -> Result<Box<dyn Remote>, RemoteError> {
    deploy::no_options(spec, &[])?;
    let parse = |text: &str| {
        Address::parse(text).map_err(|why| RemoteError::Address { url: text.to_owned(), why })
    };
    let way = Route {
        address: parse(&spec.url)?,
        jumps: match &spec.jump {
            Some(list) => Some(list.split(',').map(parse).collect::<Result<_, _>>()?),
            None => None,
        },
        identity: spec.identity.clone().map(under_home),
        config: spec.ssh_config.clone().map(under_home),
    };
    Ok(Box::new(Ssh { spec: spec.clone(), way, own: Mutex::new(None) }))
}

fn under_home(path: PathBuf) -> PathBuf {
    match path.strip_prefix("~") {
        Ok(rest) => etcetera::home_dir().map_or_else(|_| path.clone(), |home| home.join(rest)),
        Err(_) => path,
    }
}

/// A host over ssh.
struct Ssh {
    spec: RemoteSpec,
    way: Route,
    /// Why the user's own `ssh` carries it, once that is settled.
    own: Mutex<Option<String>>,
}

impl Ssh {
    async fn builtin(&self, options: &ConnectOptions) -> Result<Session, RemoteError> {
        let start = Arc::new(AgentStart::of(&self.spec, &options.agent)?);
        let mut connection = Connection::open(&self.way, options).await?;
        let wire = connection.first(start.command()).await?;
        let coming = StartingAgent { start: start.clone(), talk: options.talk.clone() };
        let streams = SshStreams { start, connection, talk: options.talk.clone() };
        Ok(Session::begin(wire, coming, Arc::new(streams), &self.spec))
    }

    /// After our own client failed with `error`, where the user's may do better.
    async fn own_instead(
        &self,
        options: &ConnectOptions,
        error: SshError,
        why: String,
    ) -> Result<Session, RemoteError> {
        match openssh::connect(&self.spec, &self.way, options, &why).await {
            Ok(session) => {
                *self.own.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                Ok(session)
            }
            // Ours says what was tried.
            Err(RemoteError::Ssh(SshError::Own { trouble: SshTrouble::Denied, words, .. })) => {
                Err(error.and_own_ssh(&words).into())
            }
            // There is none.
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
        let settled = match self.spec.transport {
            Transport::Openssh => Some("the remote's `transport` says so".to_owned()),
            _ => self.own.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        if let Some(why) = settled {
            return openssh::connect(&self.spec, &self.way, options, &why).await;
        }
        match (self.builtin(options).await, self.spec.transport) {
            (Err(RemoteError::Ssh(error)), Transport::Auto) => match error.beyond() {
                Some(why) => self.own_instead(options, error, why).await,
                None => Err(error.into()),
            },
            (connected, _) => connected,
        }
    }
}

/// Further channels of one connection.
struct SshStreams {
    start: Arc<AgentStart>,
    connection: Connection,
    talk: Arc<dyn UserPrompt>,
}

#[async_trait::async_trait]
impl Streams for SshStreams {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        let wire = self.connection.run(self.start.command()).await?;
        self.start.run_another(wire, &*self.talk).await
    }

    fn round_trip(&self) -> Duration {
        self.connection.round_trip()
    }
}
