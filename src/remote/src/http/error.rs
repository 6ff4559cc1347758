//! Errors of requests, each with its remedy.

use std::time::Duration;

use crate::refusal::PlatformError;
use rgpu_model::error::{Exit, Failure, Side};

/// An error between this machine and an HTTP server: a worker, an app on Modal, Wafer's service.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No usable token for the worker.
    #[error("there is no token for the worker: {why}")]
    Token {
        /// Why there is no token.
        why: String,
        /// The remedy; `None`: name a source.
        hint: Option<String>,
    },
    /// No usable proxy token for the app.
    #[error("there is no proxy token for the app: {why}")]
    ProxyToken {
        /// Why there is no proxy token.
        why: String,
        /// The remedy; `None`: make a token.
        hint: Option<String>,
    },
    /// The token is for the platform's API, not for its web endpoints.
    #[error(
        "{from} is a token of Modal's API, which its web endpoints do not take: it was not sent"
    )]
    ApiToken {
        /// Where the token comes from.
        from: String,
    },
    /// The app has another version.
    #[error("the deployed app is of rgpu {theirs}, and this is rgpu {ours}")]
    OtherVersion {
        /// The version of the deployed app.
        theirs: String,
        /// The version of this program.
        ours: &'static str,
    },
    /// The worker is too old for the current format of uploaded files.
    #[error(
        "the worker is older than this rgpu, and does not understand how this rgpu uploads files"
    )]
    WorkerTooOld,
    /// A token would go over the network in the clear.
    #[error("a token would go in the clear to `{url}`")]
    PlainHttp {
        /// The address without TLS.
        url: String,
    },
    /// The certificates of `ca_file` cannot be used, or no client can be made.
    #[error("no secure connection can be made: {why}")]
    Tls {
        /// Why no secure connection is possible.
        why: String,
    },
    /// No connection could be made.
    #[error("`{url}` cannot be reached")]
    Unreachable {
        /// The address that cannot be reached.
        url: String,
        /// Why it cannot be reached.
        why: String,
        /// What to do next; may be empty.
        hint: &'static str,
    },
    /// The server's certificate is not trusted.
    #[error("the certificate of `{url}` is not trusted")]
    Untrusted {
        /// The address with the untrusted certificate.
        url: String,
        /// Why the certificate is not trusted.
        why: String,
    },
    /// The address is https, but the server does not speak TLS.
    #[error("the server at `{url}` does not use TLS")]
    NoTls {
        /// The address of the server without TLS.
        url: String,
    },
    /// The address is http, but the server speaks TLS only.
    #[error("the server at `{url}` only accepts TLS")]
    WantsTls {
        /// The address of the server that only accepts TLS.
        url: String,
    },
    /// No data arrived within the limit.
    #[error("no answer in {} s while {doing}", limit.as_secs())]
    Silent {
        /// The activity that was interrupted.
        doing: &'static str,
        /// The limit that expired.
        limit: Duration,
    },
    /// An answer ended early.
    #[error("the answer was cut while {doing}")]
    Cut {
        /// The activity that was interrupted.
        doing: &'static str,
        /// Why it was cut.
        why: String,
    },
    /// The server answered with an error.
    #[error("{}", .0.what)]
    Refused(Box<PlatformError>),
}

/// The client's activity while it waits for the agent's hello.
pub(crate) const GREETING: &str = "greeting the worker";

/// The hint for a server that accepts a connection and sends no HTTP.
const NOT_HTTP: &str =
    "no worker answers at this address; is it the port that `rgpu worker` printed?";

impl HttpError {
    pub(crate) fn refused(refusal: PlatformError) -> Self {
        Self::Refused(Box::new(refusal))
    }

    /// The error with its cause, on one line.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Cut { why, .. } | Self::Unreachable { why, .. } | Self::Untrusted { why, .. } => {
                format!("{self}: {why}")
            }
            Self::Refused(refusal) => refusal.line(),
            other => other.to_string(),
        }
    }

    /// Whether it is an error of the link, so that a retry may help.
    pub fn is_link(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Cut { .. } => true,
            Self::Refused(refusal) => refusal.is_transient,
            Self::Token { .. }
            | Self::ProxyToken { .. }
            | Self::ApiToken { .. }
            | Self::OtherVersion { .. }
            | Self::WorkerTooOld
            | Self::PlainHttp { .. }
            | Self::Tls { .. }
            | Self::NoTls { .. }
            | Self::WantsTls { .. }
            | Self::Untrusted { .. } => false,
        }
    }

    /// Whether it ends the session with the host.
    pub(crate) fn loses_host(&self) -> bool {
        match self {
            Self::OtherVersion { .. }
            | Self::WorkerTooOld
            | Self::Unreachable { .. }
            | Self::Untrusted { .. }
            | Self::NoTls { .. }
            | Self::WantsTls { .. }
            | Self::Silent { .. }
            | Self::Cut { .. } => true,
            Self::Refused(refusal) => refusal.loses_host,
            Self::Token { .. }
            | Self::ProxyToken { .. }
            | Self::ApiToken { .. }
            | Self::PlainHttp { .. }
            | Self::Tls { .. } => false,
        }
    }

    /// The error's code in `--json`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Token { .. } | Self::ProxyToken { .. } => "no_token",
            Self::ApiToken { .. } => "api_token",
            Self::OtherVersion { .. } | Self::WorkerTooOld => "other_version",
            Self::PlainHttp { .. } => "plain_http",
            Self::Tls { .. } => "bad_tls",
            Self::Unreachable { .. } => "unreachable",
            Self::Untrusted { .. } => "untrusted_certificate",
            Self::NoTls { .. } => "no_tls",
            Self::WantsTls { .. } => "wants_tls",
            Self::Silent { .. } => "no_answer",
            Self::Cut { .. } => "link_cut",
            Self::Refused(refusal) => refusal.code,
        }
    }

    /// The side that failed, and the matching exit status.
    pub(crate) fn failed_side(&self) -> (Side, Exit) {
        match self {
            Self::Token { .. }
            | Self::ProxyToken { .. }
            | Self::ApiToken { .. }
            | Self::PlainHttp { .. }
            | Self::Tls { .. } => (Side::Local, Exit::Config),
            Self::NoTls { .. } | Self::WantsTls { .. } => (Side::Host, Exit::Host),
            Self::OtherVersion { .. } | Self::WorkerTooOld => (Side::Host, Exit::Host),
            Self::Refused(refusal) if !refusal.is_transient => (Side::Host, Exit::Host),
            _ => (Side::Transport, Exit::Host),
        }
    }

    /// Adds the cause and the next steps.
    pub(crate) fn explain(&self, failure: Failure, remote: &str) -> Failure {
        // A remote given by its address has no name yet.
        let has_no_name = remote.contains("://");
        let command_with = |url: String| {
            if has_no_name {
                format!("use {url} as the address")
            } else {
                format!("rgpu remote add {remote} {url}")
            }
        };
        match self {
            Self::Token { hint: Some(hint), .. } | Self::ProxyToken { hint: Some(hint), .. } => {
                failure.hint(hint)
            }
            Self::Token { hint: None, .. } if has_no_name => failure
                .hint(format!("give it a name: rgpu remote add NAME {remote} --token-file FILE"))
                .hint("or put the token from the token file of `rgpu worker` into $RGPU_WORKER_TOKEN"),
            Self::Token { hint: None, .. } => failure.hint(format!(
                "name the token's source: rgpu remote add {remote} URL --token-file FILE, or --token-env VARIABLE"
            )),
            Self::NoTls { url } => failure
                .hint("`rgpu worker` itself speaks plain http, to this machine or through `ssh -L`")
                .hint(command_with(url.replacen("https://", "http://", 1))),
            Self::WantsTls { url } => {
                failure.hint(command_with(url.replacen("http://", "https://", 1)))
            }
            Self::ProxyToken { hint: None, .. } => failure
                .hint("make one: `modal workspace proxy-tokens create`; put its parts in $MODAL_KEY and $MODAL_SECRET")
                .hint(format!(
                    "or name a file of mode 0600 with both: rgpu remote add {remote} modal --url URL --env-file FILE"
                )),
            Self::ApiToken { .. } => failure
                .hint("rgpu does not send API tokens, which can do all that your account can")
                .hint("make a proxy token (`wk-…`, `ws-…`) instead: `modal workspace proxy-tokens create`"),
            Self::OtherVersion { .. } => failure
                .hint("deploy this version's app: `modal deploy remote/modal_app.py`, or update rgpu here"),
            Self::WorkerTooOld => failure
                .hint("on the host, stop the worker and start this version's `rgpu worker`: running jobs continue"),
            Self::PlainHttp { .. } => failure
                .hint("reach it through ssh: `ssh -L 8790:127.0.0.1:8790 HOST`, and http://127.0.0.1:8790")
                .hint("or put a server with TLS in front of it; or add it with `--allow-plain-http`"),
            Self::Unreachable { why, hint: "", .. } => failure.cause(why),
            Self::Unreachable { why, hint, .. } => failure.cause(why).hint(*hint),
            Self::Untrusted { why, .. } => failure.cause(why).hint(
                "name a file with the certificate of the CA that signed it: `--ca-file FILE` of `rgpu remote add`",
            ),
            Self::Cut { why, doing } if *doing == GREETING => failure.cause(why).hint(NOT_HTTP),
            Self::Cut { why, .. } => failure.cause(why),
            Self::Silent { doing, .. } if *doing == GREETING => failure.hint(NOT_HTTP),
            Self::Refused(refusal) => refusal.explain(failure, remote),
            Self::Silent { .. } | Self::Tls { .. } => failure,
        }
    }
}
