//! One job of Slurm that holds a node for a run or, kept warm, for several: submitted once, found
//! again, and waited for.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::SlurmError;
use super::job::{JobInfo, Phase, find_end};
use super::login::{LoginNode, argv, is_job_number};
use super::script::{GpuOption, NewJob, SUBMITTED_BEFORE, folder};
use super::settings::Settings;
use crate::{RemoteError, UserPrompt};

/// The pauses between two looks at a job: short at first, since free nodes are granted at once.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A shorter wait is not shown.
const SHOW_AFTER: Duration = Duration::from_secs(2);

/// How long a job that somebody else submits just now may take to appear.
const APPEAR_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the processes of an ending job may take to end.
const ENDING_TIMEOUT: Duration = Duration::from_secs(120);

/// A job that holds a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allocation {
    /// Slurm's number of the job.
    pub(super) id: String,
    pub(super) name: String,
}

/// A job to submit.
pub(super) struct AllocationRequest<'a> {
    /// The job's name.
    pub(super) name: &'a str,
    /// The file name of the agent's program.
    pub(super) program: &'a str,
    /// After what time without use it ends.
    pub(super) idle: Duration,
    /// How many nodes it has.
    pub(super) nodes: u32,
    /// The GPUs of each node, if the command asks for a number.
    pub(super) gpus: Option<u32>,
}

/// The state of an allocation that was waited for.
pub(super) enum AllocationState {
    /// Its node can be used.
    Running(JobInfo),
    /// It has ended.
    Ended(SlurmError),
}

impl Allocation {
    /// The first job that has one of these names and has not ended.
    pub(super) async fn find(
        login: &mut LoginNode,
        names: &[&str],
    ) -> Result<Option<(Self, String)>, RemoteError> {
        let found = login.find(names).await?;
        let named = |name: &&str| found.iter().find(|(_, found, _)| found == name);
        let first = names.iter().find_map(named).cloned();
        Ok(first.map(|(id, name, state)| (Self { id, name }, state)))
    }

    /// Submits a job, unless one of this name was submitted before.
    pub(super) async fn submit(
        login: &mut LoginNode,
        settings: &Settings,
        request: AllocationRequest<'_>,
    ) -> Result<Self, RemoteError> {
        let AllocationRequest { name, program, idle, nodes, gpus } = request;
        if settings.time.is_none() && !has_default_time(login, settings).await? {
            return Err(SlurmError::NoTime.into());
        }
        let root = login.root().to_owned();
        let (time, idle_s) = (settings.time.as_deref(), idle.as_secs());
        let job = NewJob { settings, name, root: &root, program, time, idle_s, nodes, gpus };
        let waits_since = Instant::now();
        let mut gpu_option = GpuOption::PerNode;
        loop {
            let answer = login.run("sh", job.submission(gpu_option)).await?;
            let number = answer.text.lines().find_map(job_number);
            match (answer.exit, number) {
                (Some(0 | SUBMITTED_BEFORE), Some(id)) => {
                    return Ok(Self { id, name: name.to_owned() });
                }
                (Some(SUBMITTED_BEFORE), None) => {
                    // Another request is submitting it, or was cut before it wrote the number.
                    if let Some((found, _)) = Self::find(login, &[name]).await? {
                        return Ok(found);
                    }
                    if let Some(id) = login.find_ended(name).await? {
                        return Ok(Self { id, name: name.to_owned() });
                    }
                    if login.is_late() {
                        let message = "the job that is being submitted has no number".to_owned();
                        return Err(SlurmError::NoAnswer { message }.into());
                    }
                    if waits_since.elapsed() > APPEAR_TIMEOUT {
                        login.run("rm", argv!["-rf", job.folder()]).await?;
                    }
                    sleep(FIRST_PAUSE * 4).await;
                }
                (Some(127), _) => return Err(SlurmError::NoProgram { program: "sbatch" }.into()),
                _ if gpu_option == GpuOption::PerNode && lacks_gpu_option(&answer.text) => {
                    gpu_option = GpuOption::Gres;
                }
                _ => return Err(SlurmError::from_program("sbatch", &answer.text).into()),
            }
        }
    }

    /// Waits until the job's node can be used, and shows why it waits.
    pub(super) async fn wait(
        &self,
        login: &mut LoginNode,
        settings: &Settings,
        queued_since: Instant,
        queue_timeout: Option<Duration>,
        user_prompt: &dyn UserPrompt,
    ) -> Result<AllocationState, RemoteError> {
        let (mut pause, mut shown, mut ending_since) = (FIRST_PAUSE, String::new(), None);
        let started = Instant::now();
        loop {
            let info = login.info(&self.id).await?;
            let Some(info) = info else {
                return Ok(AllocationState::Ended(self.end(login, None).await));
            };
            if info.restarts > 0 {
                // Its processes have ended, and its script does nothing the second time.
                login.cancel(&self.id).await?;
                let info = JobInfo { state: "REQUEUED".to_owned(), ..info };
                return Ok(AllocationState::Ended(self.end(login, Some(&info)).await));
            }
            let text = match info.phase() {
                Phase::Running if info.state == "RUNNING" => {
                    let text = self.running_text(&info);
                    if shown.is_empty() {
                        user_prompt.verbose(&text)
                    } else {
                        user_prompt.starting(&text)
                    }
                    return Ok(AllocationState::Running(info));
                }
                Phase::Ended => {
                    return Ok(AllocationState::Ended(self.end(login, Some(&info)).await));
                }
                Phase::Ending => {
                    let since = *ending_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > ENDING_TIMEOUT {
                        return Ok(AllocationState::Ended(self.end(login, Some(&info)).await));
                    }
                    format!("the job {} of Slurm is ending", self.id)
                }
                Phase::Starting => {
                    format!("the job {} of Slurm: its node is being prepared", self.id)
                }
                Phase::Running | Phase::Waiting => {
                    if info.never_runs() {
                        let (job, reason) = (self.id.clone(), info.reason);
                        return Err(SlurmError::NeverRuns { job, reason }.into());
                    }
                    self.waiting_text(login, settings, &info).await?
                }
            };
            if let Some(limit) = queue_timeout.filter(|limit| queued_since.elapsed() > *limit) {
                let reason = if info.reason.is_empty() { info.state } else { info.reason };
                let job = self.id.clone();
                return Err(SlurmError::QueueTimeout { job, limit, reason }.into());
            }
            if text != shown && started.elapsed() > SHOW_AFTER {
                user_prompt.starting(&text);
                shown = text;
            }
            let left = queue_timeout.map(|limit| limit.saturating_sub(queued_since.elapsed()));
            let least = Duration::from_millis(50);
            sleep(pause.min(left.unwrap_or(pause)).max(least)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The end of the job if Slurm is ending it or has ended it: it was cancelled, reached its
    /// limit or the like. `None`: it goes on, or has ended by itself.
    pub(super) async fn forced_end(
        &self,
        login: &mut LoginNode,
    ) -> Result<Option<SlurmError>, RemoteError> {
        let since = Instant::now();
        loop {
            let Some(info) = login.info(&self.id).await? else { return Ok(None) };
            match info.phase() {
                // Only an ended job tells how.
                Phase::Ending if since.elapsed() < ENDING_TIMEOUT => sleep(FIRST_PAUSE * 4).await,
                Phase::Ended if find_end(&info.state).is_some() => {
                    return Ok(Some(self.end(login, Some(&info)).await));
                }
                _ => return Ok(None),
            }
        }
    }

    fn running_text(&self, info: &JobInfo) -> String {
        let nodes = if info.nodes.is_empty() { "a node" } else { &info.nodes };
        let times = format!("{} of {} used", info.run_time, info.time_limit);
        format!("the job {} of Slurm runs on {nodes}: {times}", self.id)
    }

    async fn waiting_text(
        &self,
        login: &mut LoginNode,
        settings: &Settings,
        info: &JobInfo,
    ) -> Result<String, RemoteError> {
        let mut text = format!("the job {} of Slurm waits", self.id);
        if info.state != "PENDING" {
            text += &format!(" ({})", info.state);
        }
        match info.reason.as_str() {
            "" => {}
            reason if info.is_held_by_limit() => {
                text += &format!(", held back by a limit: {reason}")
            }
            reason => text += &format!(": {reason}"),
        }
        if let Some(partition) = &settings.partition
            && let Some((position, jobs)) = login.queue_position(&self.id, partition).await?
        {
            text += &format!("; position {position} of {jobs} in `{partition}`");
        }
        if let Some(start) = &info.start {
            text += &format!("; expected to start at {start} (the cluster's time)");
        }
        Ok(text)
    }

    /// The end of the job, with the last lines of its batch script.
    async fn end(&self, login: &mut LoginNode, info: Option<&JobInfo>) -> SlurmError {
        let log = format!("{}/log", folder(login.root(), &self.name));
        let answer = login.run("tail", argv!["-n", "5", log]).await;
        let log =
            answer.ok().filter(super::login::CommandOutput::succeeded).map(|answer| answer.text);
        SlurmError::ended(&self.id, info, &log.unwrap_or_default())
    }

    /// Asks the batch script of a running job to end. Slurm then counts the job as completed.
    pub(super) async fn finish(&self, login: &mut LoginNode) -> Result<(), RemoteError> {
        login.signal_script(&self.id).await
    }

    /// Ends the job and removes its folder.
    pub(super) async fn cancel(&self, login: &mut LoginNode) -> Result<(), RemoteError> {
        login.cancel(&self.id).await?;
        let folder = folder(login.root(), &self.name);
        login.run("rm", argv!["-rf", folder]).await.map(drop)
    }
}

/// The number in `7` or, with several clusters, `7;cluster`.
fn job_number(line: &str) -> Option<String> {
    let number = line.trim().split(';').next()?;
    is_job_number(number).then(|| number.to_owned())
}

/// Whether `sbatch` cannot count GPUs per node, as clusters without `select/cons_tres`.
fn lacks_gpu_option(message: &str) -> bool {
    ["gpus-per-node", "cons_tres", "nrecognized option"].iter().any(|word| message.contains(word))
}

/// Whether a job without a time limit gets one from its partition.
async fn has_default_time(login: &mut LoginNode, settings: &Settings) -> Result<bool, RemoteError> {
    let mut args = argv!["--oneliner", "show", "partition"];
    args.extend(settings.partition.clone());
    let answer = login.run("scontrol", args).await?;
    let mut partitions = answer.text.lines().filter(|line| line.starts_with("PartitionName="));
    let is_default = |line: &&str| line.split_ascii_whitespace().any(|pair| pair == "Default=YES");
    let line = match settings.partition {
        Some(_) => partitions.next(),
        None => partitions.find(is_default),
    };
    let time = line.and_then(|line| {
        line.split_ascii_whitespace().find_map(|pair| pair.strip_prefix("DefaultTime="))
    });
    // `sbatch` says what is wrong with a partition that is not there.
    Ok(!matches!(time, Some("NONE" | "UNLIMITED")))
}
