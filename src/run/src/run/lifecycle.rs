//! The main loop of a run, shared by all commands: get the host's facts, draft a plan, submit it,
//! follow its job to the end, and again until no plan is left.
//!
//! Each command has its [`PlanDriver`], which drafts the next plan and handles the result of its
//! job. A resumed run drafts the same plans again. It follows the jobs that its folder records
//! instead of submitting them, so nothing runs twice.

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
use crate::store::{EnvRecord, RunFolder, StoreError};
use rgpu_model::error::{Failure, Result};
use rgpu_plan::bundle::{self, BlobSource, Bundle, DEFAULT_MAX_BYTES, Packer};
use rgpu_plan::tool::{Draft, HostBinaries, JobName, PlanError};
use rgpu_remote::{HostLink, OnRemote, RemoteSpec, Submission};

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
pub(super) enum RunProgress {
    /// No plan is left.
    Done,
    /// The first job was submitted and runs on detached.
    Detached,
}

/// Why a run cannot continue.
#[derive(Debug)]
pub(super) enum RunError {
    /// No plan can be made for the host.
    Plan(PlanError),
    /// Any other failure, ready to be shown.
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

/// Drafts the plans of one command and handles their results.
pub(super) trait PlanDriver {
    /// The run sends at most this many plans.
    fn max_plans(&self) -> u32 {
        1
    }

    /// The folder whose repository state is recorded. `None` if no repository is recorded, because
    /// git would take longer than the run itself.
    fn source_folder(&self) -> Option<&Path> {
        None
    }

    /// Drafts the next plan; `None` if none is left. If the host's facts turn out to be outdated,
    /// the same plan is drafted again.
    async fn draft(
        &mut self,
        job: &JobName,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<Option<Draft>, RunError>;

    /// Follows a job to its end and fetches its files. `before` holds the recorded events.
    async fn follow(
        &mut self,
        job: &str,
        before: &[Event],
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<JobResult> {
        job::follow_to_end(session.link, job, before, context).await
    }

    /// Processes an ended job. Returns whether another plan follows.
    fn handle_result(
        &mut self,
        result: JobResult,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<NextStep>;
}

/// The resources of a run on its host: the connection, the facts, and the files for its plans.
pub struct RunSession<'a> {
    pub(super) link: &'a mut HostLink,
    /// rgpu's own programs for the host.
    pub(super) programs: &'a Programs,
    pub(super) start: RunStart,
    /// The current time in Unix seconds.
    pub(super) now_s: i64,
    /// Secret environment variables of the steps; never logged.
    pub(super) secrets: BTreeMap<String, String>,
    /// Hashes input files, each once per run.
    packer: Packer,
    spec: &'a RemoteSpec,
    cache: FactsCache,
    facts: Option<HostFacts>,
    /// False once the host was asked or its facts proved outdated.
    may_use_cached_facts: bool,
    /// Files that this run built, to send again if the host has lost them.
    built: BTreeMap<Digest, BlobSource>,
}

impl<'a> RunSession<'a> {
    /// The session of a run that starts now.
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
            may_use_cached_facts: true,
            built: BTreeMap::new(),
        }
    }

    /// Uses a packer that has hashed some files already.
    pub fn with_packer(self, packer: Packer) -> Self {
        Self { packer, ..self }
    }

    /// Starts with facts that this command has just asked for. A resumed run keeps those that it
    /// was planned with.
    pub fn start_with_facts(&mut self, facts: HostFacts) {
        if self.start != RunStart::Resumed {
            self.facts = Some(facts);
        }
    }

    /// The host's facts: for a resumed run those that it was planned with, else cached ones. Asks
    /// the host if there are none.
    pub(super) async fn facts(&mut self, context: &mut RunContext<'_>) -> Result<HostFacts> {
        if self.facts.is_none() && self.may_use_cached_facts {
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
        self.may_use_cached_facts = false;
        let Self { link, spec, programs, now_s, cache, .. } = self;
        let facts =
            cache.ask(link, spec, programs, *now_s, context.reporter, &context.cancel).await?;
        tracing::debug!(gpus = facts.gpus.len(), "run: the host told its facts");
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
        self.may_use_cached_facts = false;
    }

    /// rgpu's programs for a host with these facts.
    pub(super) fn host_binaries(&self, facts: &HostFacts) -> HostBinaries {
        self.programs.host_binaries(&facts.agent.arch)
    }

    /// Makes built files inputs of later plans. Pairs of (path on the host, local path).
    pub(super) fn add_built_files(
        &mut self,
        built: &[(String, PathBuf)],
    ) -> Result<Vec<InputFile>> {
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
    /// No plan can be made, the link, the host or the run folder fails, or the user cancels. A
    /// failed job is no error; it is passed to [`PlanDriver::handle_result`].
    pub(super) async fn run_plans(
        &mut self,
        plans: &mut impl PlanDriver,
        context: &mut RunContext<'_>,
    ) -> Result<RunProgress, RunError> {
        let mut sequence = 1;
        let mut facts_refreshed = false;
        while sequence <= plans.max_plans() {
            let name = JobName { run: context.record.id.clone(), sequence };
            let draft = match plans.draft(&name, self, context).await {
                Ok(Some(draft)) => draft,
                Ok(None) => break,
                // The user may have changed the Python environment since the facts were saved.
                Err(RunError::Plan(PlanError::NoPython { .. })) if self.may_use_cached_facts => {
                    self.forget_facts();
                    continue;
                }
                Err(error) => {
                    self.write_env(plans, context.folder)?;
                    return Err(error);
                }
            };
            let job = name.job();
            tracing::debug!(job, steps = draft.plan.steps.len(), "run: the plan is drafted");
            let recorded = self.resume_job(&job, context).await?;
            if recorded.is_none() {
                let submitted = self.submit(&draft, sequence, context).await;
                if matches!(submitted, Err(SubmitError::FactsChanged(_))) && !facts_refreshed {
                    facts_refreshed = true;
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
                    detached = self.link.detach() => detached,
                    () = context.cancel.wait_for_more_than(0) => {
                        return Err(job::cancelled_beside_job(&context.record.id).into());
                    }
                }
                .on(self.link.remote())?;
                return Ok(RunProgress::Detached);
            }
            let before = recorded.unwrap_or_default();
            tracing::debug!(job, recorded_events = before.len(), "run: following the job");
            let result = plans.follow(&job, &before, self, context).await?;
            tracing::debug!(job, outcome = ?result.outcome, files = result.files.len(), "run: the job ended");
            if plans.handle_result(result, self, context)? == NextStep::End {
                break;
            }
            sequence += 1;
            facts_refreshed = false;
        }
        Ok(RunProgress::Done)
    }

    /// Resumes a job recorded in the run folder. Returns its recorded events; `None` if the job
    /// must be submitted.
    async fn resume_job(
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
            job::resume(self.link, job, &recorded, context).await?;
        }
        Ok(Some(recorded.events))
    }

    /// Packs and submits a plan. If an input file changed between hashing and sending, retries
    /// once.
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
        let text = format!("`{path}` changed during the upload; sending its current content");
        context.reporter.report(&RunEvent::Note { text: &text });
        context.folder.write_json(&file, &second.plan)?;
        job::submit(self.link, &second, context).await
    }

    /// Writes `env.json`, unless it holds these facts already. Uses cached facts if the host was
    /// not asked.
    fn write_env(&self, plans: &impl PlanDriver, folder: &RunFolder) -> Result<()> {
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
    crate::saved_json::from_slice::<EnvRecord>(&folder.read("env.json").ok()?).ok()?.host
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
