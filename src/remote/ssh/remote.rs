//! The remote itself: an address, a connection, agents on its channels.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::address::Address;
use super::connection::{Connection, Way};
use super::openssh::OpenSsh;
use super::resolve::home;
use crate::remote::client::Streams;
use crate::remote::deploy::{self, Start};
use crate::remote::stream::Wire;
use crate::remote::{ConnectOptions, Remote, RemoteError, RemoteKind, RemoteSpec, Session, Talk};

/// `ssh`.
pub const KIND: RemoteKind = RemoteKind {
    scheme: "ssh",
    form: "ssh://[user@]host[:port], or a host of your ssh configuration",
    open,
};

/// The setting that has the user's own `ssh` carry the stream.
const CLIENT: &str = "client";

fn open(spec: &RemoteSpec) -> Result<Box<dyn Remote>, RemoteError> {
    deploy::no_options(spec, &[CLIENT])?;
    let parse = |text: &str| {
        Address::parse(text).map_err(|why| RemoteError::Address { url: text.to_owned(), why })
    };
    let way = Way {
        address: parse(&spec.url)?,
        jumps: match &spec.jump {
            Some(list) => Some(list.split(',').map(parse).collect::<Result<_, _>>()?),
            None => None,
        },
        identity: spec.identity.clone().map(under_home),
        config: spec.ssh_config.clone().map(under_home),
    };
    let spec = spec.clone();
    match spec.options.get(CLIENT).map(String::as_str) {
        None | Some("builtin") => Ok(Box::new(Ssh { spec, way })),
        Some("openssh") => Ok(Box::new(OpenSsh { spec, way })),
        Some(other) => Err(RemoteError::Setting {
            setting: CLIENT.to_owned(),
            why: format!("`{other}` is neither `builtin` nor `openssh`"),
        }),
    }
}

fn under_home(path: PathBuf) -> PathBuf {
    match path.strip_prefix("~") {
        Ok(rest) => home().join(rest),
        Err(_) => path,
    }
}

/// A host over russh.
struct Ssh {
    spec: RemoteSpec,
    way: Way,
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
        let start = Start::of(&self.spec, &options.agent)?;
        let mut connection = Connection::open(&self.way, options).await?;
        let first = connection.first(start.command()).await?;
        let wire = start.run(first, &*options.talk).await?;
        let streams = SshStreams { start, connection, talk: options.talk.clone() };
        Session::start(wire, Arc::new(streams), &self.spec).await
    }
}

/// Further channels of one connection.
struct SshStreams {
    start: Start,
    connection: Connection,
    talk: Arc<dyn Talk>,
}

#[async_trait::async_trait]
impl Streams for SshStreams {
    async fn open(&self) -> Result<Wire, RemoteError> {
        let wire = self.connection.run(self.start.command()).await?;
        self.start.run(wire, &*self.talk).await
    }

    fn round_trip(&self) -> Duration {
        self.connection.round_trip()
    }
}
