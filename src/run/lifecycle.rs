//! The life of a run on its host, told once for all commands: get the host's facts, draft a plan,
//! submit it, follow its job to the end, and again until no plan is left.
//!
//! Commands differ in their [`Plans`]: how the next plan is drafted, and what an ended job means. A
//! resumed run drafts the same plans again. It follows the jobs that its folder records instead of
//! submitting them, so nothing runs twice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_protocol::plan::InputFile;
use rgpu_protocol::{Digest, Event, HostFacts, Plan};

use super::bundle_reader::submission;
use super::event::RunEvent;
use super::facts::FactsCache;
use super::failed_rungs::FailedRungs;
use super::job::{self, JobResult, RunContext, SubmitError};
use super::pass_planner::NextStep;
use super::programs::Programs;
use super::resume;
use crate::bundle::{self, BlobSource, Bundle, DEFAULT_MAX_BYTES, Packer};
use crate::error::{Failure, Result};
use crate::remote::{HostLink, OnRemote, RemoteSpec, Submission};
use crate::store::{EnvRecord, RunFolder, StoreError};
use crate::tool::{Draft, JobName, PlanError, Toolbox};

/// How a run starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStart {
    /// Submit the plans and follow their jobs.
    New,
    /// Submit the first plan and return.
    Detached,
    /// Follow the jobs that were submitted before, then submit the plans that are left.
    Resumed,
}

/// How the plans of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlansEnd {
    /// No plan is left.
    Done,
    /// The first job was submitted and runs on detached.
    Detached,
}

/// Why a run cannot go on.
#[derive(Debug)]
pub(super) enum RunError {
    /// No plan can be made for the host.
    Plan(PlanError),
    /// Any other failure.
    Failed(Failure),
}

impl From<PlanError> for RunError {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

impl From<Failure> for RunError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<SubmitError> for RunError {
    fn from(error: SubmitError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Plan(error) => error.into(),
            RunError::Failed(failure) => failure,
        }
    }
}

/// The plans of one command.
pub(super) trait Plans {
    /// The run sends at most this many plans.
    fn max_plans(&self) -> u32 {
        1
    }

    /// The folder whose repository state is recorded. `None` if asking git takes longer than the
    /// run.
    fn source_folder(&self) -> Option<&Path> {
        None
    }

    /// Drafts the next plan; `None` if none is left. If the host's facts turn out to be outdated,
    /// the same plan is drafted again.
    async fn draft(
        &mut self,
        job: &JobName,
        host: &mut RunHost<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<Option<Draft>, RunError>;

    /// Follows a job to its end and fetches its files. `before` holds the recorded events.
    async fn follow(
        &mut self,
        job: &str,
        before: &[Event],
        host: &mut RunHost<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<JobResult> {
        job::follow_to_end(host.link, job, before, context).await
    }

    /// Takes in an ended job.
    fn take(
        &mut self,
        end: JobResult,
        host: &mut RunHost<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<NextStep>;
}

/// The host of a run: the connection, the facts, and the files for its plans.
pub struct RunHost<'a> {
    /// The connection.
    pub(super) link: &'a mut HostLink,
    /// rgpu's own programs for the host.
    pub(super) programs: &'a Programs,
    pub(super) start: RunStart,
    /// The current time in Unix seconds.
    pub(super) now_s: i64,
    /// Environment of the steps with secret values, which are never logged.
    pub(super) secrets: BTreeMap<String, String>,
    /// Hashes input files, each once per run.
    packer: Packer,
    spec: &'a RemoteSpec,
    cache: FactsCache,
    facts: Option<HostFacts>,
    /// Whether facts that were saved before may be used.
    may_use_saved: bool,
    /// Files that this run built, to send again if the host has lost them.
    built: BTreeMap<Digest, BlobSource>,
}

impl<'a> RunHost<'a> {
    /// The host of a run that starts now.
    pub fn new(
        link: &'a mut HostLink,
        spec: &'a RemoteSpec,
        cache: FactsCache,
        programs: &'a Programs,
        start: RunStart,
    ) -> Self {
        Self {
            link,
            programs,
            start,
            now_s: jiff::Timestamp::now().as_second(),
            secrets: BTreeMap::new(),
            packer: Packer::new(DEFAULT_MAX_BYTES),
            spec,
            cache,
            facts: None,
            may_use_saved: true,
            built: BTreeMap::new(),
        }
    }

    /// Uses a packer that has hashed some files already.
    pub fn with_packer(self, packer: Packer) -> Self {
        Self { packer, ..self }
    }

    /// The host's facts: for a resumed run those that it was planned with, else cached ones. Asks
    /// the host if there are none.
    pub(super) async fn facts(&mut self, context: &mut RunContext<'_>) -> Result<HostFacts> {
        if self.facts.is_none() && self.may_use_saved {
            let recorded = match self.start {
                RunStart::Resumed => recorded_facts(context.folder),
                RunStart::New | RunStart::Detached => None,
            };
            self.facts = recorded.or_else(|| self.cache.load(self.now_s));
        }
        match &self.facts {
            Some(facts) => Ok(facts.clone()),
            None => self.ask_facts(context).await,
        }
    }

    /// Asks the host for its facts.
    pub(super) async fn ask_facts(&mut self, context: &mut RunContext<'_>) -> Result<HostFacts> {
        self.may_use_saved = false;
        let Self { link, spec, programs, now_s, cache, .. } = self;
        let facts =
            cache.ask(link, spec, programs, *now_s, context.reporter, &context.cancel).await?;
        self.facts = Some(facts.clone());
        Ok(facts)
    }

    /// The stored failures of rungs on this host.
    pub(super) fn failed_rungs(&self) -> FailedRungs {
        self.cache.failed_rungs(&self.spec.name)
    }

    /// The facts of this run, else the cached ones. `None` if the host was never asked.
    pub(super) fn known_facts(&self) -> Option<HostFacts> {
        self.facts.clone().or_else(|| self.cache.load(self.now_s))
    }

    /// Drops outdated facts. The host is asked when the next ones are needed.
    pub(super) fn forget_facts(&mut self) {
        self.cache.forget();
        self.facts = None;
        self.may_use_saved = false;
    }

    /// rgpu's programs for a host with these facts.
    pub(super) fn toolbox(&self, facts: &HostFacts) -> Toolbox {
        self.programs.toolbox(&facts.agent.arch)
    }

    /// Lets later plans of the run use these built files, given by their paths on the host and here.
    pub(super) fn reuse(&mut self, built: &[(String, PathBuf)]) -> Result<Vec<InputFile>> {
        let Self { packer, built: blobs, .. } = self;
        built.iter().map(|(path, local)| Ok(packer.built(path, local, blobs)?)).collect()
    }

    /// Packs a draft, with the files that this run built.
    pub(super) fn pack(&mut self, draft: &Draft) -> Result<Submission> {
        let Bundle { plan, mut blobs, .. } = self.packer.pack(draft)?;
        blobs.extend(self.built.clone());
        Ok(Submission { secrets: self.secrets.clone(), ..submission(plan, blobs) })
    }

    /// Carries out plans until none is left, or until the first is submitted if the run starts
    /// detached.
    ///
    /// # Errors
    /// No plan can be made, the link, the host or the run folder fails, or the user cancels. A job
    /// that fails is no error here: the plans take it in.
    pub(super) async fn run_plans(
        &mut self,
        plans: &mut impl Plans,
        context: &mut RunContext<'_>,
    ) -> Result<PlansEnd, RunError> {
        let mut sequence = 1;
        let mut asked_again = false;
        while sequence <= plans.max_plans() {
            let name = JobName { run: context.record.id.clone(), sequence };
            let draft = match plans.draft(&name, self, context).await {
                Ok(Some(draft)) => draft,
                Ok(None) => break,
                // The user may have changed the Python environment since the facts were saved.
                Err(RunError::Plan(PlanError::NoPython { .. })) if self.may_use_saved => {
                    self.forget_facts();
                    continue;
                }
                Err(error) => {
                    self.write_env(plans, context.folder)?;
                    return Err(error);
                }
            };
            let job = name.job();
            let recorded = self.take_up(&job, context).await?;
            if recorded.is_none() {
                let submitted = self.submit(&draft, sequence, context).await;
                if matches!(submitted, Err(SubmitError::FactsChanged(_))) && !asked_again {
                    asked_again = true;
                    self.forget_facts();
                    continue;
                }
                // Not needed to resume the job, so written while the host works.
                let written = self
                    .write_env(plans, context.folder)
                    .and_then(|()| write_commands(&draft.plan, sequence, context.folder));
                submitted?;
                written?;
            } else if recorded_facts(context.folder).is_none() {
                self.write_env(plans, context.folder)?;
            }
            if self.start == RunStart::Detached {
                tokio::select! {
                    left = self.link.detach() => left,
                    () = context.cancel.wait_for_more_than(0) => {
                        let id = &context.record.id;
                        let hint = format!("the job continues: `rgpu runs cancel {id}` stops it");
                        return Err(job::cancelled().hint(hint).into());
                    }
                }
                .on(self.link.remote())?;
                return Ok(PlansEnd::Detached);
            }
            let before = recorded.unwrap_or_default();
            let end = plans.follow(&job, &before, self, context).await?;
            if plans.take(end, self, context)? == NextStep::End {
                break;
            }
            sequence += 1;
            asked_again = false;
        }
        Ok(PlansEnd::Done)
    }

    /// Takes up a job that the run folder records. Returns its recorded events; `None` if the job
    /// must be submitted.
    async fn take_up(
        &mut self,
        job: &str,
        context: &mut RunContext<'_>,
    ) -> Result<Option<Vec<Event>>> {
        if self.start != RunStart::Resumed {
            return Ok(None);
        }
        let Some(recorded) = resume::recorded_job(context.folder, context.record, job)? else {
            return Ok(None);
        };
        if !recorded.ended() {
            job::take_up(self.link, job, &recorded, context).await?;
        }
        Ok(Some(recorded.events))
    }

    /// Packs and submits a plan. If an input file changed between hashing and sending, this is done
    /// once more.
    async fn submit(
        &mut self,
        draft: &Draft,
        sequence: u32,
        context: &mut RunContext<'_>,
    ) -> Result<(), SubmitError> {
        let file = format!("plan-{sequence}.json");
        let first = self.pack(draft)?;
        context.folder.write_json(&file, &first.plan)?;
        let failure = match job::submit(self.link, &first, context).await {
            Err(SubmitError::InputChanged(failure)) => failure,
            submitted => return submitted,
        };
        self.packer.forget();
        let second = self.pack(draft)?;
        let mut files = second.plan.files.iter().zip(&first.plan.files);
        let Some((changed, _)) = files.find(|(now, then)| now.digest != then.digest) else {
            // No input file changed: the error has another cause.
            return Err(SubmitError::Failed(failure));
        };
        let path = &changed.path;
        let text = format!("`{path}` was changed while it was sent; its current content is sent");
        context.reporter.report(&RunEvent::Note { text: &text });
        context.folder.write_json(&file, &second.plan)?;
        job::submit(self.link, &second, context).await
    }

    /// Writes `env.json`, unless it holds these facts already. Cached facts of a host that was not
    /// asked are good enough here.
    fn write_env(&self, plans: &impl Plans, folder: &RunFolder) -> Result<()> {
        let facts = self.known_facts();
        if facts.is_some() && facts == recorded_facts(folder) {
            return Ok(());
        }
        let env = match plans.source_folder() {
            Some(source_folder) => EnvRecord::new(facts, source_folder),
            None => EnvRecord::without_repository(facts),
        };
        Ok(folder.write_json("env.json", &env)?)
    }
}

/// The facts that the run was planned with.
fn recorded_facts(folder: &RunFolder) -> Option<HostFacts> {
    serde_json::from_slice::<EnvRecord>(&folder.read("env.json").ok()?).ok()?.host
}

/// Adds a plan's commands to `commands.sh`.
fn write_commands(plan: &Plan, sequence: u32, folder: &RunFolder) -> Result<()> {
    let mut text = match sequence {
        1 => Vec::new(),
        _ => folder.read("commands.sh").unwrap_or_default(),
    };
    if !text.is_empty() {
        text.extend(format!("\n# plan {sequence}\n").bytes());
    }
    text.extend(bundle::commands(plan).bytes());
    Ok(folder.write("commands.sh", &text)?)
}
