//! Runs Slurm's programs on the login node, through the agent there.
//!
//! A command is a list of words that the agent starts without a shell, so nothing needs quotes. One
//! request carries several commands. Everything that they print is text of others: it is bounded by
//! the agent's limit for probes, and read by exact rules.

use std::sync::Arc;

use rgpu_protocol::{Probe, ProbeAnswer};
use tokio::time::Instant;

use super::error::SlurmError;
use super::job::JobInfo;
use crate::client::StreamOpener;
use crate::{RemoteError, Session, UserPrompt};

/// How long one of Slurm's programs may take. They wait for the controller themselves.
const PROGRAM_TIMEOUT_S: u64 = 60;

/// How long one may take at least, however near the end of the wait is.
const LEAST_TIMEOUT_S: u64 = 1;

/// A program of Slurm with its arguments.
pub(super) type Argv = Vec<String>;

/// Makes an argv of literals and strings.
macro_rules! argv {
    ($($word:expr),* $(,)?) => { vec![$(String::from($word)),*] };
}
pub(super) use argv;

/// The exit status and output of a program.
#[derive(Debug)]
pub(super) struct CommandOutput {
    pub(super) exit: Option<i32>,
    /// Standard output, then standard error.
    pub(super) text: String,
}

impl CommandOutput {
    pub(super) fn succeeded(&self) -> bool {
        self.exit == Some(0)
    }
}

/// The login node, over a connection to its agent.
pub(super) struct LoginNode {
    session: Session,
    user_prompt: Arc<dyn UserPrompt>,
    /// The absolute path of the remote's folder there.
    root: String,
    /// The path of `srun`, which a shell starts without the remote's `path`.
    srun: String,
    /// When the user no longer waits for a node. No program takes longer.
    pub(super) deadline: Option<Instant>,
}

impl LoginNode {
    /// The login node behind `session`, whose agent keeps its files in the remote's folder.
    pub(super) async fn new(
        mut session: Session,
        user_prompt: Arc<dyn UserPrompt>,
    ) -> Result<Self, RemoteError> {
        let find_srun = Probe { find: argv!["srun"], ..probe(None, PROGRAM_TIMEOUT_S) };
        let facts = session.facts(vec![find_srun]).await?;
        let srun = facts.answers.into_iter().next().and_then(|answer| answer.path);
        let srun = srun.ok_or(SlurmError::NoProgram { program: "srun" })?;
        Ok(Self { session, user_prompt, root: facts.folder, srun, deadline: None })
    }

    pub(super) fn srun(&self) -> &str {
        &self.srun
    }

    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// Whether the next request can be answered.
    pub(super) fn is_usable(&self) -> bool {
        !self.session.has_pending_answer()
    }

    /// Opens further streams to this node.
    pub(super) fn streams(&self) -> Arc<dyn StreamOpener> {
        Arc::clone(&self.session.streams)
    }

    /// Runs one program after the other. `None`: the node does not have the program.
    pub(super) async fn run_all(
        &mut self,
        commands: Vec<Argv>,
    ) -> Result<Vec<Option<CommandOutput>>, RemoteError> {
        let programs: Vec<String> =
            commands.iter().map(|argv| argv.first().cloned().unwrap_or_default()).collect();
        for argv in &commands {
            // The text of the batch script would fill the screen.
            let shown: Vec<&str> =
                argv.iter().map(|arg| arg.lines().next().unwrap_or_default()).collect();
            self.user_prompt.verbose(&format!("on the login node: {}", shown.join(" ")));
        }
        let timeout_s = self.timeout_s(commands.len());
        let probes = commands.into_iter().map(|argv| probe(Some(argv), timeout_s));
        let facts = self.session.facts(probes.collect()).await?;
        if facts.answers.len() != programs.len() {
            let what = format!("{} answers to {}", facts.answers.len(), programs.len());
            return Err(RemoteError::ProtocolViolation { what });
        }
        let answers = facts.answers.into_iter().map(|answer| match answer {
            ProbeAnswer { path: None, .. } => Ok(None),
            ProbeAnswer { error: Some(message), .. } => {
                Err(SlurmError::NoAnswer { message }.into())
            }
            ProbeAnswer { exit, text, .. } => Ok(Some(CommandOutput { exit, text })),
        });
        answers.collect()
    }

    /// Whether the user no longer waits for a node.
    pub(super) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// How many seconds each of `count` programs may take.
    fn timeout_s(&self, count: usize) -> u64 {
        let Some(deadline) = self.deadline else { return PROGRAM_TIMEOUT_S };
        let left = deadline.saturating_duration_since(Instant::now());
        let left_s = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        let each_s = left_s / u64::try_from(count).unwrap_or(u64::MAX).max(1);
        each_s.clamp(LEAST_TIMEOUT_S, PROGRAM_TIMEOUT_S)
    }

    /// Runs `program`.
    pub(super) async fn run(
        &mut self,
        program: &'static str,
        args: Argv,
    ) -> Result<CommandOutput, RemoteError> {
        let command = [argv![program], args].concat();
        let answer = self.run_all(vec![command]).await?.pop().flatten();
        answer.ok_or_else(|| SlurmError::NoProgram { program }.into())
    }

    /// As [`Self::run`]; the program must end well.
    pub(super) async fn run_checked(
        &mut self,
        program: &'static str,
        args: Argv,
    ) -> Result<String, RemoteError> {
        let answer = self.run(program, args).await?;
        if answer.succeeded() {
            Ok(answer.text)
        } else {
            Err(SlurmError::from_program(program, &answer.text).into())
        }
    }

    /// The user's jobs with one of these names that have not ended: number, name and state.
    pub(super) async fn find(
        &mut self,
        names: &[&str],
    ) -> Result<Vec<(String, String, String)>, RemoteError> {
        let args =
            argv!["--me", "--noheader", format!("--name={}", names.join(",")), "--format=%i %j %T"];
        let text = self.run_checked("squeue", args).await?;
        let found = text.lines().filter_map(|line| {
            let mut parts = line.split_ascii_whitespace();
            let (id, name, state) = (parts.next()?, parts.next()?, parts.next()?);
            let ours = is_job_number(id) && names.contains(&name);
            ours.then(|| (id.to_owned(), name.to_owned(), state.to_owned()))
        });
        Ok(found.collect())
    }

    /// The number of an ended job with this name, if the cluster keeps accounts.
    pub(super) async fn find_ended(&mut self, name: &str) -> Result<Option<String>, RemoteError> {
        let command = argv![
            "sacct",
            "--noheader",
            "--parsable2",
            "--allocations",
            format!("--name={name}"),
            "--format=JobID"
        ];
        let answer = self.run_all(vec![command]).await?.pop().flatten();
        let text =
            answer.filter(CommandOutput::succeeded).map(|answer| answer.text).unwrap_or_default();
        Ok(text.lines().map(str::trim).find(|line| is_job_number(line)).map(str::to_owned))
    }

    /// A job's state; `None`: Slurm has forgotten the job.
    pub(super) async fn info(&mut self, id: &str) -> Result<Option<JobInfo>, RemoteError> {
        let answer = self.run("scontrol", argv!["--oneliner", "show", "job", id]).await?;
        if let Some(info) = answer.text.lines().find_map(JobInfo::from_scontrol) {
            return Ok(Some(info));
        }
        if !answer.text.contains("Invalid job id") {
            return Err(SlurmError::from_program("scontrol", &answer.text).into());
        }
        let command = argv![
            "sacct",
            "--noheader",
            "--parsable2",
            "--allocations",
            format!("--jobs={id}"),
            "--format=State"
        ];
        // Many clusters keep no accounts; then nobody knows.
        let answer = self.run_all(vec![command]).await?.pop().flatten();
        let text =
            answer.filter(CommandOutput::succeeded).map(|answer| answer.text).unwrap_or_default();
        Ok(text.lines().find_map(JobInfo::from_sacct))
    }

    /// The position of a waiting job among those of its partition, and how many there are.
    pub(super) async fn queue_position(
        &mut self,
        id: &str,
        partition: &str,
    ) -> Result<Option<(usize, usize)>, RemoteError> {
        let args = argv![
            "--noheader",
            "--states=PENDING",
            "--sort=-p,i",
            format!("--partition={partition}"),
            "--format=%i"
        ];
        let answer = self.run("squeue", args).await?;
        let jobs: Vec<&str> = answer.text.lines().map(str::trim).collect();
        Ok(jobs.iter().position(|job| *job == id).map(|at| (at + 1, jobs.len())))
    }

    /// Ends a job; it may have ended already.
    pub(super) async fn cancel(&mut self, id: &str) -> Result<(), RemoteError> {
        self.scancel(argv![id]).await
    }

    /// Sends the batch script of a job the signal at which it ends by itself.
    pub(super) async fn signal_script(&mut self, id: &str) -> Result<(), RemoteError> {
        self.scancel(argv!["--batch", "--signal=USR1", id]).await
    }

    async fn scancel(&mut self, args: Argv) -> Result<(), RemoteError> {
        let answer = self.run("scancel", args).await?;
        if answer.succeeded() || answer.text.contains("Invalid job id") {
            Ok(())
        } else {
            Err(SlurmError::from_program("scancel", &answer.text).into())
        }
    }
}

fn probe(run: Option<Argv>, timeout_s: u64) -> Probe {
    Probe {
        name: "slurm".to_owned(),
        find: Vec::new(),
        run,
        read: false,
        keep: Vec::new(),
        timeout_s,
    }
}

/// Whether `text` is a job's number.
pub(super) fn is_job_number(text: &str) -> bool {
    (1..=12).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
}
