//! The user's own `ssh` as the carrier of the same stream, for what russh cannot do: hardware keys
//! without an agent, Kerberos, passwords. It costs more round trips and its own start-up time.

use std::sync::Arc;

use tokio::process::Command;

use super::connection::Way;
use crate::remote::client::Streams;
use crate::remote::deploy::Start;
use crate::remote::local::child;
use crate::remote::stream::Wire;
use crate::remote::{
    ConnectOptions, FirstUse, Remote, RemoteError, RemoteSpec, Session, Talk, limits,
};

/// A host over `ssh`.
pub(super) struct OpenSsh {
    pub(super) spec: RemoteSpec,
    pub(super) way: Way,
}

#[async_trait::async_trait]
impl Remote for OpenSsh {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn transport(&self) -> &'static str {
        "ssh"
    }

    async fn connect(&self, options: &ConnectOptions) -> Result<Session, RemoteError> {
        let streams = Processes {
            start: Start::of(&self.spec, &options.agent)?,
            way: self.way.clone(),
            first_use: options.first_use,
            talk: options.talk.clone(),
        };
        let wire = streams.open().await?;
        Session::start(wire, Arc::new(streams), &self.spec).await
    }
}

/// One `ssh` process per stream; the user's ControlMaster makes them cheap.
struct Processes {
    start: Start,
    way: Way,
    first_use: FirstUse,
    talk: Arc<dyn Talk>,
}

#[async_trait::async_trait]
impl Streams for Processes {
    async fn open(&self) -> Result<Wire, RemoteError> {
        let mut command = Command::new("ssh");
        let way = &self.way;
        if let Some(config) = &way.config {
            command.arg("-F").arg(config);
        }
        if let Some(identity) = &way.identity {
            command.arg("-i").arg(identity);
        }
        if let Some(jumps) = &way.jumps {
            let hops: Vec<String> = jumps
                .iter()
                .map(|hop| {
                    let user = hop.user.iter().map(|user| format!("{user}@"));
                    let port = hop.port.iter().map(|port| format!(":{port}"));
                    user.chain([hop.host.clone()]).chain(port).collect()
                })
                .collect();
            command.arg("-J").arg(hops.join(","));
        }
        if let Some(user) = &way.address.user {
            command.arg("-l").arg(user);
        }
        if let Some(port) = way.address.port {
            command.arg("-p").arg(port.to_string());
        }
        // A changed key is refused whatever the user's file says; ssh asks on the terminal itself.
        let strict = match self.first_use {
            FirstUse::Ask => "ask",
            FirstUse::AcceptNew => "accept-new",
            FirstUse::Refuse => "yes",
        };
        command
            .arg("-T")
            .args(["-o", &format!("StrictHostKeyChecking={strict}")])
            .args(["-o", &format!("ConnectTimeout={}", limits::CONNECT.as_secs())])
            .args(["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3"])
            .args(["-o", "ForwardAgent=no", "-o", "ClearAllForwardings=yes"])
            .arg("--")
            .arg(&way.address.host)
            .arg(self.start.command());
        self.start.run(child(command)?, &*self.talk).await
    }
}
