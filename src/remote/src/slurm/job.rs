//! What Slurm says about a job, and what its words mean.
//!
//! `scontrol show job` knows a job until some minutes after its end (`MinJobAge`), `sacct` knows it
//! later where accounting is set up. Words that these tables lack are shown as they are.

use crate::foreign_text::excerpt;
use rgpu_model::error::{Exit, Side};

/// A job, as `scontrol --oneliner show job` or `sacct` describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobInfo {
    pub(super) state: String,
    pub(super) reason: String,
    pub(super) nodes: String,
    /// When Slurm expects it to start, by the cluster's clock.
    pub(super) start: Option<String>,
    /// The time that it has left, and its limit.
    pub(super) run_time: String,
    pub(super) time_limit: String,
    /// How often it was queued again.
    pub(super) restarts: u32,
}

/// Where a job is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// In the queue, or in a state that we do not know.
    Waiting,
    /// Its node is being prepared.
    Starting,
    Running,
    /// Its processes are being ended.
    Ending,
    Ended,
}

impl JobInfo {
    /// Reads a line of `scontrol --oneliner show job`; `None`: it describes no job.
    pub(super) fn from_scontrol(line: &str) -> Option<Self> {
        // Values that users choose, such as the job's name and comment, come with later keys or are
        // ours, so the first one of a key counts.
        let value = |key: &str| {
            line.split_ascii_whitespace().find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
        };
        let known = |text: &&str| !matches!(*text, "(null)" | "None" | "Unknown" | "N/A" | "");
        let text = |key: &str| excerpt(value(key).filter(known).unwrap_or_default());
        line.starts_with("JobId=").then(|| Self {
            state: text("JobState"),
            reason: text("Reason"),
            nodes: text("NodeList"),
            start: Some(text("StartTime")).filter(|start| !start.is_empty()),
            run_time: text("RunTime"),
            time_limit: text("TimeLimit"),
            restarts: value("Restarts").and_then(|n| n.parse().ok()).unwrap_or(0),
        })
    }

    /// Reads a line `STATE` of `sacct`, such as `CANCELLED by 1000`.
    pub(super) fn from_sacct(line: &str) -> Option<Self> {
        let state = line.split_ascii_whitespace().next()?.trim_end_matches('+');
        Some(Self { state: excerpt(state), ..Self::default() })
    }

    /// Whether its list of nodes names several: `a,b` or `node[1-2]`.
    pub(super) fn has_several_nodes(&self) -> bool {
        self.nodes.contains([',', '['])
    }

    pub(super) fn phase(&self) -> Phase {
        match self.state.as_str() {
            "CONFIGURING" | "POWER_UP_NODE" => Phase::Starting,
            "RUNNING" | "SUSPENDED" | "STOPPED" | "RESIZING" => Phase::Running,
            "COMPLETING" | "STAGE_OUT" | "SIGNALING" => Phase::Ending,
            state if state == "COMPLETED" || find_end(state).is_some() => Phase::Ended,
            _ => Phase::Waiting,
        }
    }

    /// Whether the reason for which it waits never goes away by itself.
    pub(super) fn never_runs(&self) -> bool {
        const NEVER: [&str; 8] = [
            "BadConstraints",
            "PartitionConfig",
            "PartitionNodeLimit",
            "PartitionTimeLimit",
            "AccountNotAllowed",
            "InvalidAccount",
            "InvalidQOS",
            "JobHeld",
        ];
        NEVER.iter().any(|word| self.reason.starts_with(word))
    }

    /// Whether a limit of the user, the account or the QOS holds it back.
    pub(super) fn is_held_by_limit(&self) -> bool {
        let per_account = self.reason.starts_with("Max") && self.reason.ends_with("PerAccount");
        per_account
            || ["AssocGrp", "AssocMax", "QOSGrp", "QOSMax"]
                .iter()
                .any(|start| self.reason.starts_with(start))
    }
}

/// A state in which a job has ended otherwise than by itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EndKind {
    pub(super) state: &'static str,
    /// The error's code in `--json`.
    pub(super) code: &'static str,
    pub(super) what: &'static str,
    pub(super) hint: &'static str,
    pub(super) side: Side,
    pub(super) exit: Exit,
    /// Whether its node may be gone with what ran there, so that nothing on it tells the end.
    pub(super) lost_node: bool,
}

const fn by_cluster(
    state: &'static str,
    code: &'static str,
    what: &'static str,
    hint: &'static str,
) -> EndKind {
    EndKind { state, code, what, hint, side: Side::Host, exit: Exit::Host, lost_node: false }
}

const fn by_request(
    state: &'static str,
    code: &'static str,
    what: &'static str,
    hint: &'static str,
) -> EndKind {
    let kind = by_cluster(state, code, what, hint);
    EndKind { side: Side::Kernel, exit: Exit::Kernel, ..kind }
}

const AGAIN: &str = "run it again; nothing of it runs any more";

/// All such states.
static ENDS: &[EndKind] = &[
    EndKind {
        lost_node: true,
        ..by_cluster("NODE_FAIL", "slurm_node_fail", "its node failed", AGAIN)
    },
    EndKind {
        lost_node: true,
        ..by_cluster("BOOT_FAIL", "slurm_boot_fail", "its node did not boot", AGAIN)
    },
    by_cluster(
        "PREEMPTED",
        "slurm_preempted",
        "another job took its place",
        "run it again, or name another partition or QOS: `rgpu remote add REMOTE slurm --login URL --partition NAME`",
    ),
    by_cluster("REVOKED", "slurm_revoked", "another cluster took it over", AGAIN),
    by_cluster(
        "CANCELLED",
        "slurm_cancelled",
        "it was cancelled",
        "the cluster's administrators may say why; then run it again",
    ),
    by_cluster("FAILED", "slurm_failed", "its batch script failed", ""),
    by_request(
        "TIMEOUT",
        "slurm_time_limit",
        "it reached its time limit",
        "raise the limit: `rgpu remote add REMOTE slurm --login URL --time 2:00:00`",
    ),
    by_request(
        "OUT_OF_MEMORY",
        "slurm_out_of_memory",
        "it used more memory than it was granted",
        "ask for more: `rgpu remote add REMOTE slurm --login URL --memory 32G`",
    ),
    by_request("DEADLINE", "slurm_deadline", "its deadline passed", ""),
];

/// The meaning of a state in which a job has ended; `None` for all others.
pub(super) fn find_end(state: &str) -> Option<&'static EndKind> {
    ENDS.iter().find(|kind| kind.state == state)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From Slurm 22.05, shortened.
    const PENDING: &str = "JobId=7 JobName=rgpu-x UserId=root(0) GroupId=root(0) MCS_label=N/A \
        Priority=4294901754 Nice=0 Account=(null) QOS=(null) JobState=PENDING Reason=Resources \
        Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:00 \
        TimeLimit=00:10:00 TimeMin=N/A SubmitTime=2026-11-23T17:00:00 \
        StartTime=2026-11-23T17:10:00 EndTime=Unknown Partition=gpu NodeList=(null) \
        Comment=x JobState=RUNNING";

    #[test]
    fn a_line_of_scontrol_is_read_and_its_first_values_count() {
        let info = JobInfo::from_scontrol(PENDING).unwrap();
        assert_eq!((info.state.as_str(), info.reason.as_str()), ("PENDING", "Resources"));
        assert_eq!(info.start.as_deref(), Some("2026-11-23T17:10:00"));
        assert_eq!((info.nodes.as_str(), info.restarts), ("", 0));
        assert_eq!(info.phase(), Phase::Waiting);
        assert_eq!(JobInfo::from_scontrol("slurm_load_jobs error: Invalid job id specified"), None);
    }

    #[test]
    fn states_and_reasons_fall_into_their_groups_and_unknown_ones_wait() {
        let phase = |state: &str| JobInfo { state: state.into(), ..JobInfo::default() }.phase();
        assert_eq!(phase("OUT_OF_MEMORY"), Phase::Ended);
        assert_eq!(phase("COMPLETED"), Phase::Ended);
        assert_eq!(phase("SOMETHING_NEW"), Phase::Waiting);
        let reason = |word: &str| JobInfo { reason: word.into(), ..JobInfo::default() };
        assert!(reason("JobHeldAdmin").never_runs() && !reason("SomethingNew").never_runs());
        assert!(reason("MaxGRESPerAccount").is_held_by_limit());
        assert!(reason("QOSMaxGRESPerUser").is_held_by_limit());
        assert!(!reason("Priority").is_held_by_limit() && !reason("Priority").never_runs());
        assert_eq!(JobInfo::from_sacct("CANCELLED by 1000").unwrap().state, "CANCELLED");
    }
}
