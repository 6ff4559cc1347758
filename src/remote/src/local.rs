//! The local machine: the agent is a child process.

use std::io;
use std::process::Stdio;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::client::StreamOpener;
use super::deploy::{self, AgentStart};
use super::stream::{AgentStream, FrameReader, StreamEnd};
use super::{
    ConnectOptions, Remote, RemoteError, RemoteKind, RemoteSpec, Session, Transport, limits,
};

/// Remotes of kind `local`: this machine.
pub const KIND: RemoteKind = RemoteKind {
    scheme: "local",
    form: "local",
    has_many_hosts: false,
    what: "this machine",
    heading: "",
    example: "local",
    address: None,
    settings: &[],
    open: |spec| {
        if spec.transport != Transport::Auto {
            return Err(RemoteError::Setting {
                setting: "transport".to_owned(),
                why: "a `local` remote has no connection to carry".to_owned(),
            });
        }
        Ok(Box::new(Local { spec: spec.clone() }))
    },
};

/// The remote for this machine.
struct Local {
    spec: RemoteSpec,
}

#[async_trait::async_trait]
impl Remote for Local {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn transport(&self) -> &'static str {
        "local"
    }

    async fn connect(&self, options: &ConnectOptions) -> Result<Session, RemoteError> {
        let streams = LocalStreams { spec: self.spec.clone(), options: options.clone() };
        let wire = streams.open().await?;
        Session::start(wire, Arc::new(streams), &self.spec).await
    }
}

struct LocalStreams {
    spec: RemoteSpec,
    options: ConnectOptions,
}

#[async_trait::async_trait]
impl StreamOpener for LocalStreams {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        if self.spec.via.is_empty() {
            let mut command = Command::new(&self.options.agent);
            // Ctrl-C at the terminal is meant for rgpu. The agent is cancelled by message and must
            // survive.
            command.arg("stdio").process_group(0);
            // The agent ends by itself when its standard input closes, and may clean up first.
            return deploy::await_magic(wire(command)?, &*self.options.user_prompt).await;
        }
        // A container on this machine is handled like any other host.
        let start = AgentStart::new(&self.spec, &self.options.agent)?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(start.command()).process_group(0);
        start.run(child(command)?, &*self.options.user_prompt, limits::AGENT_START_TIMEOUT).await
    }
}

/// Starts a program as the other end of a stream. It is killed when the runtime ends.
pub(super) fn child(mut command: Command) -> Result<AgentStream, RemoteError> {
    command.kill_on_drop(true);
    wire(command)
}

fn wire(command: Command) -> Result<AgentStream, RemoteError> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let pipes = pipes(command).map_err(|source| RemoteError::Spawn { program, source })?;
    Ok(AgentStream {
        reader: FrameReader::new(Box::new(pipes.stdout)),
        writer: Box::new(pipes.stdin),
        ending: pipes.ending,
    })
}

/// A child's pipes and its exit status.
pub(super) struct ChildPipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) ending: StreamEnd,
}

/// Starts a program on pipes. It ends when its standard input closes, and is killed when the
/// runtime ends. The agent's jobs are not its children and continue.
pub(super) fn child_pipes(mut command: Command) -> io::Result<ChildPipes> {
    command.kill_on_drop(true);
    pipes(command)
}

fn pipes(mut command: Command) -> io::Result<ChildPipes> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(mut stderr)) = pipes else {
        return Err(io::Error::other("it has no pipes"));
    };
    let ending = StreamEnd::default();
    let child_ending = ending.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok(n) = stderr.read(&mut buffer).await {
            if n == 0 {
                break;
            }
            child_ending.record_stderr(&buffer[..n]);
        }
        match child.wait().await {
            Ok(status) => match status.code() {
                Some(code) => child_ending.record_exit(code),
                None => child_ending.record_end(format!("it was ended by {status}")),
            },
            Err(error) => child_ending.record_end(error.to_string()),
        }
    });
    Ok(ChildPipes { stdin, stdout, ending })
}
