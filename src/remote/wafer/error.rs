//! Errors of requests to Wafer, each with its remedy.

use std::time::Duration;

use super::refusal::Refusal;
use crate::error::{Exit, Failure, Side};

/// An error between this machine and a workspace.
#[derive(Debug, thiserror::Error)]
pub enum WaferError {
    /// Settings or files on this machine cannot be used.
    #[error("{what}")]
    Local {
        /// The operation that failed.
        what: String,
        /// Why it failed.
        why: String,
    },
    /// The user is not logged in.
    #[error("there is no login for Wafer: {why}")]
    NoToken {
        /// Why there is no login.
        why: String,
    },
    /// The login has expired.
    #[error("the login for Wafer has expired")]
    Expired {
        /// The reason why it could not be renewed.
        why: String,
    },
    /// The value found is not a token.
    #[error("the token of {there} is not a Wafer token")]
    BadToken {
        /// The variable or file with the value.
        there: String,
    },
    /// No connection could be made.
    #[error("`{url}` cannot be reached")]
    Unreachable {
        /// The address that cannot be reached.
        url: String,
        /// Why it cannot be reached.
        why: String,
    },
    /// No data arrived within the limit.
    #[error("no answer of Wafer in {} s while {doing}", limit.as_secs())]
    Silent {
        /// The activity that was interrupted.
        doing: &'static str,
        /// The limit that expired.
        limit: Duration,
    },
    /// An answer ended early.
    #[error("Wafer's answer was cut while {doing}")]
    Cut {
        /// The activity that was interrupted.
        doing: &'static str,
        /// Why it was cut.
        why: String,
    },
    /// The answer does not come from Wafer.
    #[error("the server at `{url}` is not Wafer's service")]
    Foreign {
        /// The address that was called.
        url: String,
        /// The start of the answer.
        body: String,
    },
    /// Wafer refused the request.
    #[error("{}", .0.what)]
    Refused(Box<Refusal>),
    /// The workspace is not running.
    #[error("the workspace `{name}` is not running: it is `{status}`")]
    NotRunning {
        /// The workspace's name.
        name: String,
        /// Its status in Wafer's words.
        status: String,
    },
    /// The workspace did not start.
    #[error("the workspace `{name}` did not start")]
    NotUp {
        /// The workspace's name.
        name: String,
        /// The reason, as far as known.
        why: String,
    },
    /// Our command failed in the workspace.
    #[error("a command failed in the workspace while {doing}")]
    Command {
        /// The activity that was interrupted.
        doing: &'static str,
        /// The output of the command.
        words: String,
    },
    /// The service has no ncu of its own.
    #[error("Wafer runs no ncu of its own: {words}")]
    NoServedNcu {
        /// Wafer's message.
        words: String,
    },
    /// The user did not finish the login in time.
    #[error("the login was not finished within {} s", limit.as_secs())]
    LoginTimeout {
        /// The limit that Wafer set.
        limit: Duration,
    },
}

impl WaferError {
    /// Whether a retry may help.
    pub fn is_link(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Cut { .. } => true,
            Self::Refused(refusal) => refusal.passes,
            _ => false,
        }
    }

    /// The error's code in `--json`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Local { .. } => "wafer_settings",
            Self::NoToken { .. } => "no_token",
            Self::Expired { .. } => "expired_token",
            Self::BadToken { .. } => "bad_token",
            Self::Unreachable { .. } => "unreachable",
            Self::Silent { .. } => "no_answer",
            Self::Cut { .. } => "link_cut",
            Self::Foreign { .. } => "not_wafer",
            Self::Refused(refusal) => refusal.code,
            Self::NotRunning { .. } => "workspace_not_running",
            Self::NotUp { .. } => "workspace_not_up",
            Self::Command { .. } => "workspace_command",
            Self::NoServedNcu { .. } => "no_served_ncu",
            Self::LoginTimeout { .. } => "login_timeout",
        }
    }

    /// The side that failed, and the matching exit status.
    pub(in crate::remote) fn blame(&self) -> (Side, Exit) {
        match self {
            Self::Local { .. }
            | Self::NoToken { .. }
            | Self::Expired { .. }
            | Self::BadToken { .. } => (Side::Local, Exit::Config),
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Cut { .. } => {
                (Side::Transport, Exit::Host)
            }
            _ => (Side::Host, Exit::Host),
        }
    }

    /// Adds the cause and the next steps.
    pub(in crate::remote) fn explain(&self, failure: Failure, remote: &str) -> Failure {
        const LOGIN: &str = "log in: `rgpu remote login wafer`";
        match self {
            Self::Local { why, .. } => failure.cause(why),
            Self::NoToken { .. } => {
                failure.hint(LOGIN).hint("or set WAFER_AUTH_TOKEN, as Wafer's own program reads it")
            }
            Self::Expired { why } => failure.cause(why).hint(LOGIN),
            Self::BadToken { .. } => {
                failure.cause("it does not say when it ends; it was not sent").hint(LOGIN)
            }
            Self::Unreachable { why, .. } | Self::Cut { why, .. } => failure.cause(why),
            Self::Foreign { body, .. } => {
                failure.cause(body).hint("check WAFER_API_URL and `[api]` in ~/.wafer/config.toml")
            }
            Self::Refused(refusal) => {
                let failure = failure.cause(&refusal.body);
                match refusal.hint.replace("REMOTE", remote) {
                    hint if hint.is_empty() => failure,
                    hint => failure.hint(hint),
                }
            }
            Self::NotRunning { .. } => failure.hint(format!("start it: `rgpu remote up {remote}`")),
            Self::NotUp { why, .. } => failure.cause(why).hint(format!(
                "`rgpu remote list` shows its state; `rgpu remote down {remote}` gives it back"
            )),
            Self::Command { words, .. } => failure.cause(words),
            Self::Silent { .. } | Self::NoServedNcu { .. } | Self::LoginTimeout { .. } => failure,
        }
    }
}
