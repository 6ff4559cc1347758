//! Errors of Slurm, while the login node is asked and when a job ends, each with its remedy. A job
//! here is Slurm's.

use std::time::Duration;

use super::job::{EndKind, JobInfo, find_end};
use crate::foreign_text::excerpt;
use rgpu_model::error::{Exit, Failure, Side};

/// Why a job was not submitted to Slurm, or did not run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SlurmError {
    /// The login node lacks a program of Slurm.
    #[error("the login node has no `{program}`")]
    NoProgram {
        /// Its name, such as `srun`.
        program: &'static str,
    },
    /// Slurm's controller does not answer now.
    #[error("Slurm does not answer on the login node")]
    NoAnswer {
        /// The output of Slurm's program, or why it gave none.
        message: String,
    },
    /// An answer could not be read.
    #[error("`{program}` gave no answer that rgpu understands")]
    Unclear {
        /// The program that answered.
        program: &'static str,
        /// Its output, shortened for one line.
        message: String,
    },
    /// `sbatch` refused the job.
    #[error("Slurm refuses the job: {what}")]
    Refused {
        /// The error's code in `--json`.
        code: &'static str,
        /// The reason, as text for users.
        what: String,
        /// The message of `sbatch`.
        message: String,
        /// What to do next.
        hint: &'static str,
    },
    /// Neither the user nor the partition sets a time limit.
    #[error("the job has no time limit: neither the remote nor the partition names one")]
    NoTime,
    /// The job waits for something that never happens.
    #[error("Slurm will never start the job {job}: {reason}")]
    NeverRuns {
        /// Slurm's number of the job.
        job: String,
        /// Slurm's reason why it never starts, such as `BadConstraints`.
        reason: String,
    },
    /// The job waited too long.
    #[error("the job {job} did not start within {} s: {reason}", limit.as_secs())]
    QueueTimeout {
        /// Slurm's number of the job.
        job: String,
        /// `--queue-timeout`.
        limit: Duration,
        /// Slurm's reason for waiting.
        reason: String,
    },
    /// Slurm gave the job no number in time.
    #[error("Slurm did not take the job within {} s", limit.as_secs())]
    NotSubmitted {
        /// `--queue-timeout`.
        limit: Duration,
    },
    /// The job has ended.
    #[error("the job {job} of Slurm has ended: {what}")]
    Ended {
        /// Slurm's number of the job.
        job: String,
        /// How the job ended, as text for users.
        what: String,
        /// Slurm's word for it; empty if Slurm has forgotten the job.
        state: String,
        /// The last lines of the batch script's log.
        log: String,
    },
}

/// Messages of `sbatch`: text, error code, meaning, and what to do. The text lacks its
/// first letter where Slurm capitalizes it in some versions only.
const REFUSALS: &[(&str, &str, &str, &str)] = &[
    (
        "nvalid account or account/partition",
        "slurm_account",
        "the account is wrong, or may not use this partition",
        "`sacctmgr show associations user=$USER` on the login node lists yours; then `rgpu remote add REMOTE slurm --login URL --account NAME`",
    ),
    (
        "nvalid partition",
        "slurm_partition",
        "there is no such partition",
        "`sinfo` on the login node lists the partitions; then `rgpu remote add REMOTE slurm --login URL --partition NAME`",
    ),
    (
        "No partition specified",
        "slurm_partition",
        "the cluster has no default partition",
        "`sinfo` on the login node lists the partitions; then `rgpu remote add REMOTE slurm --login URL --partition NAME`",
    ),
    (
        "nvalid qos",
        "slurm_qos",
        "the QOS is not valid",
        "`rgpu remote add REMOTE slurm --login URL --qos NAME` names another",
    ),
    (
        "reservation",
        "slurm_reservation",
        "the reservation is wrong",
        "`scontrol show reservation` on the login node lists them",
    ),
    (
        "nvalid feature",
        "slurm_constraint",
        "no node has the constraint",
        "`sinfo -o '%f'` on the login node lists the features of nodes",
    ),
    (
        "nvalid generic resource",
        "slurm_gpus",
        "no node has such GPUs",
        "`sinfo -o '%G'` on the login node lists them; then `rgpu remote add REMOTE slurm --login URL --gpus TYPE:NUMBER`",
    ),
    (
        "node configuration is not available",
        "slurm_nodes",
        "no node of the partition has what was asked for",
        "`sinfo -Nel` on the login node lists the nodes",
    ),
    (
        "time limit",
        "slurm_time",
        "the time limit is wrong, or longer than the partition allows",
        "`sinfo -o '%P %l'` on the login node lists the limits; then `rgpu remote add REMOTE slurm --login URL --time TIME`",
    ),
    (
        "accounting/QOS policy",
        "slurm_policy",
        "it exceeds a limit of the account or QOS",
        "ask for less, or for another QOS: `rgpu remote add REMOTE slurm --login URL --qos NAME`",
    ),
];

/// Messages of Slurm's programs while its controller is away or busy.
const NO_ANSWER_MESSAGES: [&str; 5] = [
    "Unable to contact slurm controller",
    "Socket timed out on send/recv",
    "Zero Bytes were transmitted or received",
    "Slurm temporarily unable to accept job",
    "Slurm controller not responding",
];

/// Messages in a batch script's log when its processes used too much memory.
const OUT_OF_MEMORY_MESSAGES: [&str; 2] = ["exceeded memory limit", "oom_kill event"];

impl SlurmError {
    /// The error that `program` reports with `message`.
    pub(super) fn from_program(program: &'static str, message: &str) -> Self {
        let excerpted = excerpt(message);
        if NO_ANSWER_MESSAGES.iter().any(|pattern| message.contains(pattern)) {
            return Self::NoAnswer { message: excerpted };
        }
        if program != "sbatch" {
            return Self::Unclear { program, message: excerpted };
        }
        match REFUSALS.iter().find(|(pattern, ..)| message.contains(pattern)) {
            Some((_, code, what, hint)) => {
                Self::Refused { code, what: (*what).to_owned(), message: excerpted, hint }
            }
            None => Self::Refused {
                code: "slurm_refused",
                what: excerpted.clone(),
                message: String::new(),
                hint: "",
            },
        }
    }

    /// The end of a job in this state; `log` is the end of its batch script's log.
    pub(super) fn ended(job: &str, info: Option<&JobInfo>, log: &str) -> Self {
        let mut state = info.map(|info| info.state.clone()).unwrap_or_default();
        // Without cgroups only the log tells that memory ran out.
        if state == "FAILED" && OUT_OF_MEMORY_MESSAGES.iter().any(|pattern| log.contains(pattern)) {
            state = "OUT_OF_MEMORY".to_owned();
        }
        let what = match (find_end(&state), state.as_str()) {
            (Some(kind), _) => kind.what.to_owned(),
            (None, "") => "Slurm no longer knows it".to_owned(),
            (None, "COMPLETED") => "nothing used it any more".to_owned(),
            (None, word) => word.to_owned(),
        };
        Self::Ended { job: job.to_owned(), what, state, log: excerpt(log) }
    }

    /// Whether the node may be lost with all that ran there.
    pub(super) fn is_lost_node(&self) -> bool {
        self.end_kind().is_some_and(|kind| kind.lost_node)
    }

    fn end_kind(&self) -> Option<&'static EndKind> {
        match self {
            Self::Ended { state, .. } => find_end(state),
            _ => None,
        }
    }

    /// Whether it is an error of the link, so that a retry may help.
    pub fn is_link(&self) -> bool {
        matches!(self, Self::NoAnswer { .. })
    }

    /// Whether it ends the session with the node, or there is no node. The user's own limits have
    /// exit statuses of their own.
    pub(crate) fn loses_host(&self) -> bool {
        match self {
            Self::NoProgram { .. }
            | Self::NoAnswer { .. }
            | Self::Unclear { .. }
            | Self::Refused { .. }
            | Self::NoTime
            | Self::NeverRuns { .. }
            | Self::Ended { .. } => true,
            Self::QueueTimeout { .. } | Self::NotSubmitted { .. } => false,
        }
    }

    /// The error's code in `--json`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoProgram { .. } => "no_slurm",
            Self::NoAnswer { .. } => "slurm_no_answer",
            Self::Unclear { .. } => "slurm_unclear",
            Self::Refused { code, .. } => code,
            Self::NoTime => "slurm_time",
            Self::NeverRuns { .. } => "slurm_never_runs",
            Self::QueueTimeout { .. } | Self::NotSubmitted { .. } => "queue_timeout",
            Self::Ended { .. } => self.end_kind().map_or("slurm_ended", |kind| kind.code),
        }
    }

    /// The side that failed, and the matching exit status.
    pub(crate) fn failed_side(&self) -> (Side, Exit) {
        match self {
            Self::NoTime => (Side::Local, Exit::Config),
            _ => self.end_kind().map_or((Side::Host, Exit::Host), |kind| (kind.side, kind.exit)),
        }
    }

    /// Adds the cause and the next steps.
    pub(crate) fn explain(&self, failure: Failure, remote: &str) -> Failure {
        let (cause, hint) = match self {
            Self::NoProgram { .. } => (
                "",
                "is it the login node? `rgpu remote add REMOTE slurm --login URL --path DIR` names the folder of Slurm's programs",
            ),
            Self::NoAnswer { message } | Self::Unclear { message, .. } => (message.as_str(), ""),
            Self::Refused { message, hint, .. } => (message.as_str(), *hint),
            Self::NoTime => {
                ("", "name one: `rgpu remote add REMOTE slurm --login URL --time 30:00`")
            }
            Self::NeverRuns { .. } => (
                "",
                "the job was removed from the queue; change the remote's settings and try again",
            ),
            Self::NotSubmitted { .. } => (
                "`sbatch` on the login node did not end",
                "if a job was made all the same, it was removed; wait longer with \
                 `--queue-timeout 2h`",
            ),
            Self::QueueTimeout { .. } => {
                ("", "the job was removed from the queue; wait longer with `--queue-timeout 2h`")
            }
            Self::Ended { log, .. } => {
                (log.as_str(), self.end_kind().map_or("run it again", |kind| kind.hint))
            }
        };
        let failure = if cause.is_empty() { failure } else { failure.cause(cause) };
        let hint = hint.replace("REMOTE", remote);
        if hint.is_empty() { failure } else { failure.hint(hint) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_sbatch_are_told_apart() {
        for (message, code) in [
            ("sbatch: error: invalid partition specified: x", "slurm_partition"),
            (
                "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
                "slurm_account",
            ),
            ("sbatch: error: Batch job submission failed: Invalid qos specification", "slurm_qos"),
            (
                "Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
                "slurm_time",
            ),
            (
                "sbatch: error: Unable to contact slurm controller (connect failure)",
                "slurm_no_answer",
            ),
            ("sbatch: error: the moon is full", "slurm_refused"),
        ] {
            assert_eq!(SlurmError::from_program("sbatch", message).code(), code, "{message}");
        }
        let unknown = SlurmError::from_program("sbatch", "the moon\u{1b}[2J is full").to_string();
        assert_eq!(unknown, "Slurm refuses the job: the moon[2J is full");
    }

    #[test]
    fn ends_that_the_user_asked_for_are_the_users() {
        let end = |state: &str| {
            let info = JobInfo { state: state.into(), ..JobInfo::default() };
            SlurmError::ended("7", Some(&info), "")
        };
        assert_eq!(end("TIMEOUT").failed_side(), (Side::Kernel, Exit::Kernel));
        assert_eq!(end("PREEMPTED").failed_side(), (Side::Host, Exit::Host));
        assert_eq!(end("SOMETHING_NEW").code(), "slurm_ended");
        assert!(end("SOMETHING_NEW").to_string().ends_with("has ended: SOMETHING_NEW"));
        let info = JobInfo { state: "FAILED".into(), ..JobInfo::default() };
        let log = "slurmstepd: error: StepId=1.batch exceeded memory limit (2 > 1), being killed";
        assert_eq!(SlurmError::ended("7", Some(&info), log).code(), "slurm_out_of_memory");
        assert!(end("NODE_FAIL").is_lost_node() && !end("CANCELLED").is_lost_node());
    }
}
