//! Errors of requests to Wafer, each with its remedy.

use std::time::Duration;

use super::refusal::from_stream_text;
use crate::foreign_text::excerpt;
use crate::http::HttpError;
use crate::refusal::PlatformError;
use rgpu_model::error::{Exit, Failure, Side};

/// An error between this machine and a workspace.
#[derive(Debug, thiserror::Error)]
pub enum WaferError {
    /// Settings or files on this machine cannot be used.
    #[error("{what}")]
    Local {
        /// The operation that failed.
        what: String,
        /// Why the operation failed.
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
    /// A request to the service failed, or its answer cannot be used.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The answer does not come from Wafer.
    #[error("the server at `{url}` is not Wafer's service")]
    Foreign {
        /// The address that was called.
        url: String,
        /// The start of the answer.
        body: String,
    },
    /// The workspace is not running.
    #[error("the workspace `{name}` is not running: it is `{status}`")]
    NotRunning {
        /// The name of the workspace.
        name: String,
        /// Its status, as Wafer names it.
        status: String,
    },
    /// The workspace did not start.
    #[error("the workspace `{name}` did not start")]
    NotUp {
        /// The name of the workspace.
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
        message: String,
    },
    /// The service has no ncu of its own.
    #[error("Wafer does not run its own ncu: {message}")]
    NoServedNcu {
        /// The message of Wafer's service.
        message: String,
    },
    /// The user did not finish the login in time.
    #[error("the login was not finished within {} s", limit.as_secs())]
    LoginTimeout {
        /// The limit that Wafer set.
        limit: Duration,
    },
}

impl WaferError {
    /// Wafer refused the request.
    pub(super) fn refused(refusal: PlatformError) -> Self {
        Self::Http(HttpError::refused(refusal))
    }

    /// The error that `message` on the stream reports: of the service or of the command.
    pub(super) fn from_stream(message: &str, doing: &'static str) -> Self {
        match from_stream_text(message) {
            Some(refusal) => Self::refused(refusal),
            None => Self::Command { doing, message: excerpt(message) },
        }
    }

    /// An answer ended early.
    pub(super) fn cut(doing: &'static str, why: impl Into<String>) -> Self {
        Self::Http(HttpError::Cut { doing, why: why.into() })
    }

    /// The error with its cause, on one line.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Http(error) => error.line(),
            Self::Command { message, .. } => format!("{self}: {message}"),
            other => other.to_string(),
        }
    }

    /// Whether a retry may help.
    pub fn is_link(&self) -> bool {
        matches!(self, Self::Http(error) if error.is_link())
    }

    /// Whether it ends the session with the workspace.
    pub(crate) fn loses_host(&self) -> bool {
        match self {
            Self::Foreign { .. }
            | Self::NotRunning { .. }
            | Self::NotUp { .. }
            | Self::Command { .. }
            | Self::LoginTimeout { .. } => true,
            Self::Http(error) => error.loses_host(),
            Self::Local { .. }
            | Self::NoToken { .. }
            | Self::Expired { .. }
            | Self::BadToken { .. }
            | Self::NoServedNcu { .. } => false,
        }
    }

    /// The error's code in `--json`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Local { .. } => "wafer_settings",
            Self::NoToken { .. } => "no_token",
            Self::Expired { .. } => "expired_token",
            Self::BadToken { .. } => "bad_token",
            Self::Http(error) => error.code(),
            Self::Foreign { .. } => "not_wafer",
            Self::NotRunning { .. } => "workspace_not_running",
            Self::NotUp { .. } => "workspace_not_up",
            Self::Command { .. } => "workspace_command",
            Self::NoServedNcu { .. } => "no_served_ncu",
            Self::LoginTimeout { .. } => "login_timeout",
        }
    }

    /// The side that failed, and the matching exit status.
    pub(crate) fn failed_side(&self) -> (Side, Exit) {
        match self {
            Self::Local { .. }
            | Self::NoToken { .. }
            | Self::Expired { .. }
            | Self::BadToken { .. } => (Side::Local, Exit::Config),
            // A refusal that may pass is Wafer's too.
            Self::Http(error) if !matches!(error, HttpError::Refused(_)) => error.failed_side(),
            _ => (Side::Host, Exit::Host),
        }
    }

    /// Adds the cause and the next steps.
    pub(crate) fn explain(&self, failure: Failure, remote: &str) -> Failure {
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
            Self::Http(error) => error.explain(failure, remote),
            Self::Foreign { body, .. } => {
                failure.cause(body).hint("check WAFER_API_URL and `[api]` in ~/.wafer/config.toml")
            }
            Self::NotRunning { .. } => failure.hint(format!("start it: `rgpu remote up {remote}`")),
            Self::NotUp { why, .. } => failure.cause(why).hint(format!(
                "`rgpu remote list` shows its state; `rgpu remote down {remote}` gives it back"
            )),
            Self::Command { message, .. } => failure.cause(message),
            Self::NoServedNcu { .. } | Self::LoginTimeout { .. } => failure,
        }
    }
}
