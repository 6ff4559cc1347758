//! Carries the stream over the user's own `ssh`, for what russh cannot do: hardware keys without an
//! agent, Kerberos, passwords and second factors, and settings that only `ssh` supports. It costs
//! more round trips and its own start-up time.
//!
//! `ssh` asks its questions on the terminal itself, so it stays in our process group, where Ctrl-C
//! reaches it too. It is started with that signal ignored, because a job is cancelled over its
//! stream.

use std::ffi::OsString;
use std::sync::Arc;

use tokio::process::Command;

use super::SshError;
use super::connection::Route;
use super::failure_kind::{self, SshFailureKind};
use super::resolve::can_ask_elsewhere;
use crate::client::StreamOpener;
use crate::deploy::AgentStart;
use crate::local::child;
use crate::stream::AgentStream;
use crate::{
    ConnectOptions, RemoteError, RemoteSpec, Session, UnknownHostPolicy, UserPrompt, limits,
};

/// The exit status of `ssh` when `ssh` itself fails.
const OWN_FAILURE: i32 = 255;

/// Connects over the user's own `ssh`.
pub(super) async fn connect(
    spec: &RemoteSpec,
    route: &Route,
    options: &ConnectOptions,
    why: &str,
) -> Result<Session, RemoteError> {
    let streams = SshProcesses {
        start: AgentStart::new(spec, &options.agent)?,
        route: route.clone(),
        unknown_host_policy: options.unknown_host_policy,
        user_prompt: options.user_prompt.clone(),
        why: why.to_owned(),
    };
    let wire = streams.open().await?;
    Session::start(wire, Arc::new(streams), spec).await
}

/// One `ssh` process per stream.
struct SshProcesses {
    start: AgentStart,
    route: Route,
    unknown_host_policy: UnknownHostPolicy,
    user_prompt: Arc<dyn UserPrompt>,
    why: String,
}

#[async_trait::async_trait]
impl StreamOpener for SshProcesses {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        self.open_with(&self.start).await
    }

    async fn open_with(&self, start: &AgentStart) -> Result<AgentStream, RemoteError> {
        let interaction = if self.user_prompt.is_attended() || can_ask_elsewhere() {
            Interaction::Yes
        } else {
            Interaction::No
        };
        let words = arguments(&self.route, self.unknown_host_policy, interaction, start.command());
        // Leaves out the last word, the start command.
        let shown: Vec<_> =
            words.iter().take(words.len() - 1).map(|word| word.to_string_lossy()).collect();
        self.user_prompt.verbose(&format!("ssh {} …", shown.join(" ")));
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"trap "" INT; exec ssh "$@""#, "ssh"]).args(words);
        let terminal = self.user_prompt.own_ssh(&self.why);
        let wire = child(command)?;
        let ending = wire.ending.clone();
        let started = start.run(wire, &*self.user_prompt, limits::USER_SSH_TIMEOUT).await;
        drop(terminal);
        match started {
            Err(RemoteError::AgentStart { .. }) if ending.exit() == Some(OWN_FAILURE) => {
                let message = failure_kind::plain(&ending.stderr_tail(usize::MAX));
                let host = self.route.address.host.clone();
                Err(SshError::Own { host, kind: SshFailureKind::read(&message), message }.into())
            }
            started => started,
        }
    }
}

/// Whether anyone can answer a question of `ssh`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interaction {
    Yes,
    No,
}

/// The arguments of `ssh`. Hosts and users were checked when they were parsed; the `--` before the
/// host covers anything that missed.
fn arguments(
    route: &Route,
    unknown_host_policy: UnknownHostPolicy,
    interaction: Interaction,
    command: &str,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["-T".into()];
    let mut flag_with_value =
        |flag: &str, value: OsString| words.extend([OsString::from(flag), value]);
    if let Some(config) = &route.config {
        flag_with_value("-F", config.into());
    }
    if let Some(identity) = &route.identity {
        flag_with_value("-i", identity.into());
    }
    if let Some(jumps) = &route.jumps {
        let hops: Vec<String> = jumps
            .iter()
            .map(|hop| {
                let user = hop.user.iter().map(|user| format!("{user}@"));
                let port = hop.port.iter().map(|port| format!(":{port}"));
                let host = if hop.host.contains(':') {
                    format!("[{}]", hop.host)
                } else {
                    hop.host.clone()
                };
                user.chain([host]).chain(port).collect()
            })
            .collect();
        flag_with_value("-J", hops.join(",").into());
    }
    if let Some(user) = &route.address.user {
        flag_with_value("-l", user.into());
    }
    if let Some(port) = route.address.port {
        flag_with_value("-p", port.to_string().into());
    }
    // ssh always refuses a changed key with these values, and asks about a new one itself.
    let strict = match unknown_host_policy {
        UnknownHostPolicy::Ask => "ask",
        UnknownHostPolicy::AcceptNew => "accept-new",
        UnknownHostPolicy::Refuse => "yes",
    };
    let mut option = |text: String| flag_with_value("-o", text.into());
    option(format!("StrictHostKeyChecking={strict}"));
    option(format!("ConnectTimeout={}", limits::CONNECT_TIMEOUT.as_secs()));
    for text in [
        "ServerAliveInterval=15",
        "ServerAliveCountMax=3",
        "ForwardAgent=no",
        "ClearAllForwardings=yes",
        // A RemoteCommand of the configuration would replace our command.
        "RemoteCommand=none",
        "EscapeChar=none",
        "LogLevel=INFO",
    ] {
        option(text.to_owned());
    }
    if interaction == Interaction::No {
        option("BatchMode=yes".to_owned());
    }
    words.extend(["--".into(), OsString::from(&route.address.host), command.into()]);
    words
}

#[cfg(test)]
mod tests {
    use super::super::address::Address;
    use super::*;

    fn route(url: &str, jumps: Option<&str>) -> Route {
        let parse = |text: &str| Address::parse(text).unwrap();
        Route {
            address: parse(url),
            jumps: jumps.map(|list| list.split(',').map(parse).collect()),
            identity: Some("/home/me/.ssh/lab".into()),
            config: None,
        }
    }

    #[test]
    fn the_host_stands_behind_a_double_dash_and_the_command_is_one_word() {
        let route = route("ssh://me@gpu:2222", Some("you@hop:22,[fe80::1]:2022"));
        let words = arguments(&route, UnknownHostPolicy::Refuse, Interaction::No, "exec a b");
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words[words.len() - 3..], ["--", "gpu", "exec a b"]);
        for pair in [
            ["-i", "/home/me/.ssh/lab"],
            ["-J", "you@hop:22,[fe80::1]:2022"],
            ["-l", "me"],
            ["-p", "2222"],
            ["-o", "StrictHostKeyChecking=yes"],
            ["-o", "ForwardAgent=no"],
            ["-o", "BatchMode=yes"],
        ] {
            assert!(words.windows(2).any(|two| two == pair), "{pair:?} in {words:?}");
        }
    }

    #[test]
    fn ssh_may_ask_where_somebody_is_there_to_answer() {
        let words =
            arguments(&route("gpu", None), UnknownHostPolicy::Ask, Interaction::Yes, "exec a");
        let has = |text: &str| words.iter().any(|word| word == text);
        assert!(has("StrictHostKeyChecking=ask") && !has("BatchMode=yes"));
    }
}
