//! How asking a worker can fail, each way with its remedy.

use std::time::Duration;

use super::refusal::{NamedRefusal, ServerKind};
use crate::error::{Exit, Failure, Side};

/// A failure between this machine and a worker.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// There is no token to show.
    #[error("there is no token for the worker: {why}")]
    Token {
        /// In words.
        why: String,
        /// What helps, where a place for it is named.
        hint: Option<String>,
    },
    /// There is no token to show to the platform.
    #[error("there is no proxy token for the app: {why}")]
    ProxyToken {
        /// In words.
        why: String,
        /// What helps, where that is not to make one.
        hint: Option<String>,
    },
    /// A token of the platform's API where one for its web endpoints is wanted.
    #[error(
        "{from} is a token of Modal's API, which its web endpoints do not take: it was not sent"
    )]
    ApiToken {
        /// Where it was found.
        from: String,
    },
    /// The app is of another version.
    #[error("the deployed app is of rgpu {theirs}, and this is rgpu {ours}")]
    OtherVersion {
        /// The app's.
        theirs: String,
        /// This program's.
        ours: &'static str,
    },
    /// The worker is of a time before files were cut as they are now.
    #[error("the worker is older than this rgpu, and does not take its files")]
    Older,
    /// A token would go over the network in the clear.
    #[error("a token would go in the clear to `{url}`")]
    Plain {
        /// The address.
        url: String,
    },
    /// The certificates of `ca_file` cannot be used, or no client can be made.
    #[error("no secure connection can be made: {why}")]
    Tls {
        /// In words.
        why: String,
    },
    /// No connection.
    #[error("`{url}` cannot be reached")]
    Unreachable {
        /// The address.
        url: String,
        /// Why.
        why: String,
        /// What should be there.
        site: ServerKind,
    },
    /// The server's certificate is not to be trusted.
    #[error("the certificate of `{url}` is not trusted")]
    Untrusted {
        /// The address.
        url: String,
        /// Why.
        why: String,
    },
    /// The address is of TLS and the server is not.
    #[error("what answers at `{url}` does not speak TLS")]
    NoTls {
        /// The address.
        url: String,
    },
    /// The server is of TLS and the address is not.
    #[error("what answers at `{url}` speaks TLS alone")]
    WantsTls {
        /// The address.
        url: String,
    },
    /// Nothing came for too long.
    #[error("no answer in {} s while {doing}", limit.as_secs())]
    Silent {
        /// What was going on.
        doing: &'static str,
        /// The limit that ran out.
        limit: Duration,
    },
    /// An answer ended before its end.
    #[error("the answer was cut while {doing}")]
    Cut {
        /// What was going on.
        doing: &'static str,
        /// Why.
        why: String,
    },
    /// The server answered, and not what was hoped for.
    #[error("{}", .0.what)]
    Refused(Box<NamedRefusal>),
}

/// What is done first.
pub(super) const GREETING: &str = "greeting the worker";

/// Of what takes a connection and says nothing that is HTTP.
const NOT_HTTP: &str =
    "something listens there that may be no worker: is it the port that `rgpu worker` printed?";

impl HttpError {
    /// What answers there is no worker of ours.
    pub(super) fn not_a_worker(site: ServerKind, url: &str, body: &[u8]) -> Self {
        Self::Refused(Box::new(NamedRefusal::not_ours(site, url, body)))
    }

    /// Whether trying again may help.
    pub fn is_link(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Cut { .. } => true,
            Self::Refused(named) => named.passes,
            Self::Token { .. }
            | Self::ProxyToken { .. }
            | Self::ApiToken { .. }
            | Self::OtherVersion { .. }
            | Self::Older
            | Self::Plain { .. }
            | Self::Tls { .. }
            | Self::NoTls { .. }
            | Self::WantsTls { .. }
            | Self::Untrusted { .. } => false,
        }
    }

    /// The code under which `--json` names it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Token { .. } | Self::ProxyToken { .. } => "no_token",
            Self::ApiToken { .. } => "api_token",
            Self::OtherVersion { .. } | Self::Older => "other_version",
            Self::Plain { .. } => "plain_http",
            Self::Tls { .. } => "bad_tls",
            Self::Unreachable { .. } => "unreachable",
            Self::Untrusted { .. } => "untrusted_certificate",
            Self::NoTls { .. } => "no_tls",
            Self::WantsTls { .. } => "wants_tls",
            Self::Silent { .. } => "no_answer",
            Self::Cut { .. } => "link_cut",
            Self::Refused(named) => named.code,
        }
    }

    /// The side that failed and the exit status that goes with it.
    pub(in crate::remote) fn blame(&self) -> (Side, Exit) {
        match self {
            Self::Token { .. }
            | Self::ProxyToken { .. }
            | Self::ApiToken { .. }
            | Self::Plain { .. }
            | Self::Tls { .. } => (Side::Local, Exit::Config),
            Self::NoTls { .. } | Self::WantsTls { .. } => (Side::Host, Exit::Host),
            Self::OtherVersion { .. } | Self::Older => (Side::Host, Exit::Host),
            Self::Refused(named) if !named.passes => (Side::Host, Exit::Host),
            _ => (Side::Transport, Exit::Host),
        }
    }

    /// Adds why, and what to do next.
    pub(in crate::remote) fn explain(&self, failure: Failure, remote: &str) -> Failure {
        // An address stands in for a name where none was given.
        let unnamed = remote.contains("://");
        let said_anew = |url: String| match unnamed {
            true => format!("write {url}"),
            false => format!("rgpu remote add {remote} {url}"),
        };
        match self {
            Self::Token { hint: Some(hint), .. } | Self::ProxyToken { hint: Some(hint), .. } => {
                failure.hint(hint)
            }
            Self::Token { hint: None, .. } if unnamed => failure
                .hint(format!("give it a name: rgpu remote add NAME {remote} --token-file FILE"))
                .hint("or put the token of the worker's own file into $RGPU_WORKER_TOKEN"),
            Self::Token { hint: None, .. } => failure.hint(format!(
                "name it: rgpu remote add {remote} URL --token-file FILE, or --token-env VARIABLE"
            )),
            Self::NoTls { url } => failure
                .hint("`rgpu worker` itself speaks plain http, to this machine or through `ssh -L`")
                .hint(said_anew(url.replacen("https://", "http://", 1))),
            Self::WantsTls { url } => {
                failure.hint(said_anew(url.replacen("http://", "https://", 1)))
            }
            Self::ProxyToken { hint: None, .. } => failure
                .hint("make one: `modal workspace proxy-tokens create`; put its parts in $MODAL_KEY and $MODAL_SECRET")
                .hint(format!(
                    "or name a file of mode 0600 with both: rgpu remote add {remote} modal --url URL --env-file FILE"
                )),
            Self::ApiToken { .. } => failure
                .hint("an API token can do all that your account can: it stays with the `modal` command")
                .hint("make a proxy token (`wk-…`, `ws-…`) instead: `modal workspace proxy-tokens create`"),
            Self::OtherVersion { .. } => failure
                .hint("deploy this version's app: `modal deploy remote/modal_app.py`, or update rgpu here"),
            Self::Older => failure
                .hint("end it, and start this version's `rgpu worker` there: its jobs go on meanwhile"),
            Self::Plain { .. } => failure
                .hint("reach it through ssh: `ssh -L 8790:127.0.0.1:8790 HOST`, and http://127.0.0.1:8790")
                .hint("or put a server with TLS in front of it; or add it with `--allow-plain-http`"),
            Self::Unreachable { why, site: ServerKind::Worker, .. } => {
                failure.cause(why).hint("is `rgpu worker` running there, and the port open?")
            }
            Self::Unreachable { why, site: ServerKind::Modal, .. } => failure
                .cause(why)
                .hint("check the address against what `modal deploy` printed, and this machine's network"),
            Self::Untrusted { why, .. } => failure.cause(why).hint(
                "name a file with the certificate of its authority: `--ca-file FILE` of `rgpu remote add`",
            ),
            Self::Cut { why, doing } if *doing == GREETING => failure.cause(why).hint(NOT_HTTP),
            Self::Cut { why, .. } => failure.cause(why),
            Self::Silent { doing, .. } if *doing == GREETING => failure.hint(NOT_HTTP),
            Self::Refused(named) => {
                let failure = match named.body.as_str() {
                    "" => failure,
                    body => failure.cause(body),
                };
                let hint = match unnamed {
                    true => named.hint.replace("REMOTE URL", &format!("NAME {remote}")),
                    false => named.hint.replace("REMOTE", remote),
                };
                match hint {
                    hint if hint.is_empty() => failure,
                    hint => failure.hint(hint),
                }
            }
            Self::Silent { .. } | Self::Tls { .. } => failure,
        }
    }
}
