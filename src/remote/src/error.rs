//! Errors in reaching a host, talking to its agent or moving files.
//!
//! Each transport has an error type of its own; [`RemoteError`] holds them all. Front ends get it
//! as a [`Failure`] with a code, an exit status, the side that failed and hints.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rgpu_protocol::frame::FrameError;
use rgpu_protocol::{Digest, Outcome};

use super::Remote;
use super::http::HttpError;
use super::slurm::SlurmError;
use super::ssh::SshError;
use super::wafer::WaferError;
use rgpu_model::error::{Exit, Failure, Side};

/// The agent's code for a job that it does not have.
const NO_SUCH_JOB: &str = "no_such_job";

/// The agent's code for a plan made from facts about the host that are no longer true.
const FACTS_CHANGED: &str = "facts_changed";

/// The agent's code for a blob that does not have its digest.
const DAMAGED_BLOB: &str = "damaged_blob";

/// The agent's code, and that of the failure, for a name that another job of the host has.
pub const JOB_EXISTS: &str = "job_exists";

/// An error between this machine and a job.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The remote's address is invalid.
    #[error("`{url}` is not the address of a remote: {why}")]
    Address {
        /// The address as configured.
        url: String,
        /// Why the address is invalid.
        why: String,
    },
    /// A setting of the remote cannot be used.
    #[error("the remote's setting `{setting}` cannot be used: {why}")]
    Setting {
        /// The setting's name in `config.toml`.
        setting: String,
        /// Why the setting cannot be used.
        why: String,
    },
    /// The agent's program, which is copied to hosts, cannot be read on this machine.
    #[error("the agent's program cannot be read at `{path}`")]
    UnreadableAgent {
        /// Where the agent's program should be.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A program on this machine could not be started.
    #[error("cannot start `{program}`")]
    Spawn {
        /// The program that cannot be started.
        program: String,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// An error of the ssh connection.
    #[error(transparent)]
    Ssh(#[from] SshError),
    /// An error of a request to a worker.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// An error of Wafer's service.
    #[error(transparent)]
    Wafer(#[from] WaferError),
    /// An error of Slurm.
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    /// Our agent cannot run on that host.
    #[error("the agent cannot run on the host: {why}")]
    Unfit {
        /// The mismatch, in words.
        why: String,
        /// The host's architecture in the words of `uname -m`, if the architecture does not match.
        arch: Option<String>,
    },
    /// The start command ended or went silent before the agent's first line.
    #[error("the agent did not start on the host: {ended}")]
    AgentStart {
        /// How the command ended.
        ended: String,
        /// The last text it printed.
        last: String,
    },
    /// No folder on the host could hold the agent.
    #[error("the host has no folder that can hold the agent's program")]
    NoFolder {
        /// The folders tried and the error for each.
        tried: String,
    },
    /// The connection was lost in the middle of an operation.
    #[error("the link was cut while {doing}")]
    LinkCut {
        /// The activity that was interrupted.
        doing: &'static str,
        /// The cause, as far as known.
        why: String,
    },
    /// No data arrived within the limit.
    #[error("no answer in {} s while {doing}", limit.as_secs())]
    Silent {
        /// The activity that was interrupted.
        doing: &'static str,
        /// The limit that expired, see [`super::limits`].
        limit: Duration,
    },
    /// The agent refused a request.
    #[error("the agent refused to {request}: {text}")]
    Refused {
        /// The name of the refused request.
        request: String,
        /// The agent's code, e.g. `facts_changed`.
        code: String,
        /// The agent's message, for users.
        text: String,
    },
    /// One side needs a feature that the other's version does not have.
    #[error("this rgpu and the agent are incompatible: {0}")]
    Mismatch(String),
    /// The bytes are not frames of our protocol.
    #[error("the agent's stream is damaged")]
    Frames(#[from] FrameError),
    /// A well-formed frame whose content is invalid here.
    #[error("the agent's stream violates the protocol: {what}")]
    ProtocolViolation {
        /// The content, with its first bytes.
        what: String,
    },
    /// The host's events or output do not continue the earlier ones.
    #[error("the host's record has a gap: {what}")]
    MissingData {
        /// The position of the gap.
        what: String,
    },
    /// A cancelled job has not ended in time.
    #[error("the host has not confirmed within {} s that the job is stopped", limit.as_secs())]
    Unconfirmed {
        /// How long we waited.
        limit: Duration,
    },
    /// A file is shorter now than when its step ended.
    #[error("`{path}` has become shorter on the host")]
    Shorter {
        /// Path on the host.
        path: String,
        /// Its length when it was fetched.
        fetched_bytes: u64,
        /// Its length when the step ended.
        recorded_bytes: u64,
    },
    /// A file arrived, but its digest differs.
    #[error("`{path}` arrived damaged")]
    Damaged {
        /// Path on the host.
        path: String,
        /// The digest that the host named.
        want: Digest,
        /// The digest of the received bytes.
        got: Digest,
    },
    /// A file on this machine cannot be written.
    #[error("cannot write `{path}`")]
    Disk {
        /// The file that cannot be written.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A file of the bundle can no longer be read on this machine.
    #[error("cannot read a file to upload ({digest:?})")]
    Blob {
        /// The sha256 of the file to upload.
        digest: Digest,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The link stayed cut.
    #[error("the host could not be reached again for {} s", after.as_secs())]
    GaveUp {
        /// How long we retried.
        after: Duration,
        /// The last try's error.
        #[source]
        last: Box<RemoteError>,
    },
}

impl RemoteError {
    /// The error of an install script that found no folder; `tried` are its folders, each with the
    /// error. If a copied program is `not found`, the host lacks the dynamic loader that the
    /// program names: shells report both with the same words.
    pub(super) fn not_installed(tried: String) -> Self {
        let is_loader_missing = tried.split("the copy does not run: ").skip(1).any(|error| {
            let error = error.split("; ").next().unwrap_or_default();
            let is_missing = ["not found", "No such file"].iter().any(|text| error.contains(text));
            is_missing && !error.contains("shared librar") && !error.contains("GLIBC_")
        });
        if is_loader_missing {
            Self::Unfit {
                why: "the host lacks glibc's loader; is it a musl system (Alpine)?".to_owned(),
                arch: None,
            }
        } else {
            Self::NoFolder { tried }
        }
    }

    /// Whether it is an error of the link, so that a retry may help.
    pub fn is_link(&self) -> bool {
        match self {
            Self::LinkCut { .. } | Self::Silent { .. } => true,
            Self::Ssh(error) => error.is_link(),
            Self::Http(error) => error.is_link(),
            Self::Wafer(error) => error.is_link(),
            Self::Slurm(error) => error.is_link(),
            _ => false,
        }
    }

    /// Whether the host does no part of the request: the agent refused it, or there is no agent.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. }) || self.has_no_usable_agent()
    }

    /// Whether the host refuses a plan because facts about the host are no longer true.
    pub fn refuses_facts(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == FACTS_CHANGED)
    }

    /// Whether an input of a plan cannot be read, or its bytes are not those of the plan. The file
    /// may have been written meanwhile.
    pub fn refuses_input(&self) -> bool {
        match self {
            Self::Refused { code, .. } => code == DAMAGED_BLOB,
            error => matches!(error, Self::Blob { .. }),
        }
    }

    /// The outcome of a job that the host does not have; `None` for another error.
    pub fn no_such_job(&self) -> Option<Outcome> {
        match self {
            Self::Refused { code, text, .. } if code == NO_SUCH_JOB => {
                Some(Outcome::HostError { code: code.clone(), text: text.clone() })
            }
            _ => None,
        }
    }

    /// Whether no agent that we can talk to runs on the host.
    pub(super) fn has_no_usable_agent(&self) -> bool {
        matches!(
            self,
            Self::AgentStart { .. }
                | Self::NoFolder { .. }
                | Self::Unfit { .. }
                | Self::Mismatch(_)
        )
    }

    /// Whether a retry may help on a host that was reached before. Besides link errors, that is a
    /// shell that does not start yet, as while a host boots.
    pub(super) fn is_transient(&self) -> bool {
        self.is_link() || matches!(self, Self::AgentStart { .. })
    }

    /// Whether it ends the session with the host. A live agent, or this machine, tells the others,
    /// and they concern one command.
    fn loses_host(&self) -> bool {
        match self {
            Self::UnreadableAgent { .. }
            | Self::Spawn { .. }
            | Self::Ssh(_)
            | Self::Unfit { .. }
            | Self::AgentStart { .. }
            | Self::NoFolder { .. }
            | Self::LinkCut { .. }
            | Self::Silent { .. }
            | Self::Mismatch(_)
            | Self::Frames(_)
            | Self::ProtocolViolation { .. }
            | Self::MissingData { .. }
            | Self::Unconfirmed { .. }
            | Self::GaveUp { .. } => true,
            Self::Http(error) => error.loses_host(),
            Self::Wafer(error) => error.loses_host(),
            Self::Slurm(error) => error.loses_host(),
            Self::Address { .. }
            | Self::Setting { .. }
            | Self::Refused { .. }
            | Self::Shorter { .. }
            | Self::Damaged { .. }
            | Self::Disk { .. }
            | Self::Blob { .. } => false,
        }
    }

    /// The error's code in `--json`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Address { .. } => "bad_address",
            Self::Setting { .. } => "bad_setting",
            Self::UnreadableAgent { .. } => "agent_missing",
            Self::Spawn { .. } => "spawn_failed",
            Self::Ssh(error) => error.code(),
            Self::Http(error) => error.code(),
            Self::Wafer(error) => error.code(),
            Self::Slurm(error) => error.code(),
            Self::Unfit { .. } => "agent_unfit",
            Self::AgentStart { .. } => "agent_start",
            Self::NoFolder { .. } => "no_folder",
            Self::LinkCut { .. } => "link_cut",
            Self::Silent { .. } => "no_answer",
            Self::Refused { .. } if self.refuses_facts() => FACTS_CHANGED,
            Self::Refused { code, .. } if code == "quota" => "quota",
            Self::Refused { code, .. } if code == "disk_full" => "host_disk_full",
            Self::Refused { code, .. } if code == NO_SUCH_JOB => NO_SUCH_JOB,
            Self::Refused { .. } if self.refuses_input() => DAMAGED_BLOB,
            Self::Refused { code, .. } if code == JOB_EXISTS => JOB_EXISTS,
            Self::Refused { .. } => "refused",
            Self::Mismatch(_) => "version_mismatch",
            Self::Frames(_) | Self::ProtocolViolation { .. } => "bad_stream",
            Self::MissingData { .. } => "gap",
            Self::Unconfirmed { .. } => "unconfirmed",
            Self::Damaged { .. } | Self::Shorter { .. } => "damaged",
            Self::Disk { .. } => "disk",
            Self::Blob { .. } => "input_gone",
            Self::GaveUp { .. } => "unreachable",
        }
    }

    /// The side that failed, and the matching exit status.
    fn failed_side(&self) -> (Side, Exit) {
        match self {
            Self::Address { .. } | Self::Setting { .. } => (Side::Local, Exit::Config),
            Self::UnreadableAgent { .. } | Self::Spawn { .. } => (Side::Local, Exit::Host),
            Self::Disk { .. } => (Side::Local, Exit::Disk),
            Self::Blob { .. } => (Side::Local, Exit::Config),
            Self::Ssh(error) => error.failed_side(),
            Self::Http(error) => error.failed_side(),
            Self::Wafer(error) => error.failed_side(),
            Self::Slurm(error) => error.failed_side(),
            Self::LinkCut { .. }
            | Self::Silent { .. }
            | Self::Damaged { .. }
            | Self::Shorter { .. } => (Side::Transport, Exit::Host),
            Self::GaveUp { .. } => (Side::Transport, Exit::Host),
            _ => (Side::Host, Exit::Host),
        }
    }

    /// The failure as front ends show it.
    pub fn failure(&self, remote: &str, transport: &str) -> Failure {
        let (side, exit) = self.failed_side();
        let failure = Failure::new(exit, self.code(), self.to_string())
            .side(side)
            .host(remote, transport)
            // A setting, or a limit that the user set, may be at fault instead.
            .lost_host(exit == Exit::Host && self.loses_host());
        match self {
            Self::Ssh(error) => error.explain(failure, remote),
            Self::Http(error) => error.explain(failure, remote),
            Self::Wafer(error) => error.explain(failure, remote),
            Self::Slurm(error) => error.explain(failure, remote),
            Self::AgentStart { last, .. } => failure
                .cause(last)
                .hint(format!("run `rgpu remote check {remote} -v` to see all that the host prints")),
            Self::NoFolder { tried } => failure.cause(tried).hint(format!(
                "name a folder of your own that may hold programs: `agent_folder` of [remote.{remote}]"
            )),
            Self::LinkCut { why, .. } => failure.cause(why),
            Self::Damaged { want, got, .. } => failure
                .cause(format!("expected {want:?}, got {got:?}"))
                .hint("if it was overwritten on the host after its step had ended, it is lost; \
                       otherwise fetch it again"),
            Self::Shorter { fetched_bytes, recorded_bytes, .. } => failure
                .cause(format!("it had {recorded_bytes} bytes when its step ended, and {fetched_bytes} when they were fetched"))
                .hint("the original content is lost: was the file overwritten after its step had \
                       ended?"),
            Self::UnreadableAgent { path, .. } => because(failure, self).hint(format!(
                "a release has it under `libexec/rgpu`, and `cargo xtask dist` makes it in a clone; RGPU_LIBEXEC names the folder above it (looked for `{}`)",
                path.display()
            )),
            Self::Unfit { why, .. } if why.contains("musl") => failure.hint(
                "use a container with glibc on the host; `rgpu remote add --via 'docker exec -i NAME'` starts the agent in it",
            ),
            Self::Unfit { .. } => failure.hint(
                "a release has binaries for hosts of x86_64 and aarch64 with glibc 2.17 or newer; in a clone `cargo xtask dist` makes them, for ARM hosts `cargo xtask dist aarch64`, and RGPU_LIBEXEC names their folder",
            ),
            Self::Mismatch(_) => failure.hint(OF_ONE_BUILD),
            Self::Refused { code, text, .. } if code == BAD_MESSAGE => {
                another_build("the agent that is sent to the host", text).host(remote, transport)
            }
            Self::Refused { code, .. } if code == JOB_EXISTS => failure.hint(
                "a run with this id was on that host before, of another project or folder: choose \
                 another `--run-id`",
            ),
            Self::Refused { .. } if self.refuses_facts() => {
                failure.hint(format!("run `rgpu doctor {remote} --fresh`"))
            }
            Self::Refused { code, .. } if code == "quota" || code == "disk_full" => failure
                .hint(format!("`rgpu runs list --remote {remote}` lists the jobs there"))
                .hint(format!("`rgpu runs clean --remote {remote}` removes jobs whose results \
                               were fetched")),
            Self::Refused { code, .. } if code == NO_SUCH_JOB => failure
                .hint("it was never submitted to this host, or has been removed")
                .hint(format!("`rgpu runs list --remote {remote}` lists the jobs there")),
            Self::GaveUp { .. } => {
                because(failure, self).hint("the job continues on the host: `rgpu runs attach latest`")
            }
            _ => because(failure, self),
        }
    }
}

/// The code with which an agent refuses a message that it cannot read.
const BAD_MESSAGE: &str = "bad_message";

/// What to do where command and programs are of different builds.
const OF_ONE_BUILD: &str = "command, agent and runner must be of one build: unpack one release whole; in a clone \
                            `cargo xtask setup` (and `cargo xtask dist`, if `target/dist` is there) builds them; \
                            RGPU_LIBEXEC, if it is set, names their folder";

/// The failure of a program of rgpu that is of another build than the command. `what` names it,
/// `why` is what it said.
pub fn another_build(what: &str, why: &str) -> Failure {
    let what = format!("{what} is of another build than this rgpu");
    Failure::new(Exit::Config, "another_build", what).cause(why).hint(OF_ONE_BUILD)
}

/// Adds the sources of `error`, but not its own message, which the failure already has.
pub(super) fn because(failure: Failure, error: &dyn std::error::Error) -> Failure {
    match error.source() {
        Some(source) => failure.cause_from(source),
        None => failure,
    }
}

/// Adds the remote to an error.
pub trait OnRemote<T> {
    /// Turns an error into a [`Failure`] of this remote.
    fn on(self, remote: &dyn Remote) -> Result<T, Failure>;
}

impl<T> OnRemote<T> for Result<T, RemoteError> {
    fn on(self, remote: &dyn Remote) -> Result<T, Failure> {
        self.map_err(|error| error.failure(remote.name(), remote.transport()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ssh::SshFailureKind;
    use super::*;

    #[test]
    fn only_failures_of_the_link_and_of_the_agent_lose_the_host() {
        let no_folder = || RemoteError::NoFolder { tried: String::new() };
        let own_ssh = |kind| {
            let (host, message) = ("h200".to_owned(), String::new());
            RemoteError::Ssh(SshError::Own { host, kind, message })
        };
        let slurm_end = |state: &str| {
            let (job, what, log) = ("7".to_owned(), String::new(), String::new());
            RemoteError::Slurm(SlurmError::Ended { job, what, state: state.to_owned(), log })
        };
        let refused = |code: &str| RemoteError::Refused {
            request: "submit".to_owned(),
            code: code.to_owned(),
            text: String::new(),
        };
        for error in [
            RemoteError::GaveUp { after: Duration::from_secs(60), last: Box::new(no_folder()) },
            no_folder(),
            RemoteError::LinkCut { doing: "testing", why: String::new() },
            own_ssh(SshFailureKind::Refused),
            slurm_end("NODE_FAIL"),
            RemoteError::Slurm(SlurmError::NoProgram { program: "srun" }),
        ] {
            assert!(error.failure("h200", "ssh").lost_host, "{error}");
        }
        for error in [
            own_ssh(SshFailureKind::Config),
            slurm_end("OUT_OF_MEMORY"),
            // The agent's own codes do not count, not even one that is ours too.
            refused("no_folder"),
            refused("facts_changed"),
            RemoteError::Shorter { path: "x".to_owned(), fetched_bytes: 2, recorded_bytes: 1 },
        ] {
            assert!(!error.failure("h200", "ssh").lost_host, "{error}");
        }
        assert!(!Failure::new(Exit::Host, "link_cut", "a code alone tells nothing").lost_host);
    }
}
