//! How asking Wafer can fail, each way with its remedy.

use std::time::Duration;

use super::refusal::Refusal;
use crate::error::{Exit, Failure, Side};

/// A failure between this machine and a workspace.
#[derive(Debug, thiserror::Error)]
pub enum WaferError {
    /// Settings or files of this machine.
    #[error("{what}")]
    Local {
        /// In words.
        what: String,
        /// Why.
        why: String,
    },
    /// Nobody is logged in.
    #[error("there is no login for Wafer: {why}")]
    NoToken {
        /// In words.
        why: String,
    },
    /// The login is too old.
    #[error("the login for Wafer has expired")]
    Expired {
        /// What became of renewing it.
        why: String,
    },
    /// What should be a token is none.
    #[error("the token of {there} is none of Wafer's")]
    BadToken {
        /// The variable or the file.
        there: String,
    },
    /// No connection.
    #[error("`{url}` cannot be reached")]
    Unreachable {
        /// The address.
        url: String,
        /// Why.
        why: String,
    },
    /// Nothing came for too long.
    #[error("no answer of Wafer in {} s while {doing}", limit.as_secs())]
    Silent {
        /// What was going on.
        doing: &'static str,
        /// The limit that ran out.
        limit: Duration,
    },
    /// An answer ended before its end.
    #[error("Wafer's answer was cut while {doing}")]
    Cut {
        /// What was going on.
        doing: &'static str,
        /// Why.
        why: String,
    },
    /// An answer that is none of Wafer's.
    #[error("what answers at `{url}` is not Wafer's service")]
    Foreign {
        /// The address.
        url: String,
        /// The beginning of the answer.
        body: String,
    },
    /// Wafer would not.
    #[error("{}", .0.what)]
    Refused(Box<Refusal>),
    /// The workspace is not one that commands run in.
    #[error("the workspace `{name}` is not running: it is `{status}`")]
    NotRunning {
        /// The workspace.
        name: String,
        /// Its status, as Wafer has it.
        status: String,
    },
    /// The workspace did not come up.
    #[error("the workspace `{name}` did not come up")]
    NotUp {
        /// The workspace.
        name: String,
        /// What is known of why.
        why: String,
    },
    /// A command of ours failed in the workspace.
    #[error("a command failed in the workspace while {doing}")]
    Command {
        /// What was going on.
        doing: &'static str,
        /// What it printed.
        words: String,
    },
    /// The service runs no ncu itself.
    #[error("Wafer runs no ncu of its own: {words}")]
    NoServedNcu {
        /// Its words.
        words: String,
    },
    /// Nobody finished the login in time.
    #[error("the login was not finished within {} s", limit.as_secs())]
    LoginTimeout {
        /// The limit that Wafer named.
        limit: Duration,
    },
}

impl WaferError {
    /// Whether trying again may help.
    pub fn is_link(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Cut { .. } => true,
            Self::Refused(refusal) => refusal.passes,
            _ => false,
        }
    }

    /// The code under which `--json` names it.
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

    /// The side that failed and the exit status that goes with it.
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

    /// Adds why, and what to do next.
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
            Self::NotRunning { .. } => {
                failure.hint(format!("bring it up: `rgpu remote up {remote}`"))
            }
            Self::NotUp { why, .. } => failure.cause(why).hint(format!(
                "`rgpu remote list` says how it stands; `rgpu remote down {remote}` gives it back"
            )),
            Self::Command { words, .. } => failure.cause(words),
            Self::Silent { .. } | Self::NoServedNcu { .. } | Self::LoginTimeout { .. } => failure,
        }
    }
}
