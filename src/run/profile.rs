//! Profiles a kernel or program: sends plans until no rung is left to try, imports the artifacts
//! and makes one profile.
//!
//! The agent judges a rung by cheap checks and goes down the ladder by itself. Here the artifacts
//! are imported, and a rung without usable results (an empty report, counters that are all NaN, a
//! trace without GPU rows) is refused. The next plan of the run starts below that rung and reuses
//! the build. A run that needs a survey before it can select kernels or regions sends further plans
//! in the same way (`pass_planner`).

use std::path::{Path, PathBuf};

use rgpu_protocol::HostFacts;

use super::assemble::{self, ProfileBuilder};
use super::event::RunEvent;
use super::job::{JobResult, RunContext};
use super::lifecycle::{Plans, PlansEnd, RunError, RunHost, RunStart};
use super::listings::{self, CompiledFiles};
use super::local_build;
use super::pass_planner::{NextStep, PassPlanner};
use super::rungs::{below_rung, falls_short, is_below};
use crate::analysis::Thresholds;
use crate::error::{Exit, Failure, Result};
use crate::model::{Profile, RungId, Sidecars};
use crate::tool::{self, Draft, Expectations, JobName, PlanError, Request, Target};

/// A run sends at most this many plans, plus one for each pass: one for each refused rung, and some
/// to spare.
const MAX_PLANS_PER_RUN: u32 = 12;

/// The inputs of a profile run.
pub struct ProfileRun<'a> {
    /// The request to carry out.
    pub request: Request,
    /// The user's project; paths in it are shown relative to it.
    pub project: &'a Path,
    /// The user's thresholds for the rules.
    pub thresholds: &'a Thresholds,
    /// The folder of the kernel's source; the state of its repository is recorded.
    pub source_folder: &'a Path,
    /// Paths where this machine may have nvdisasm, for hosts without one.
    pub nvdisasm: &'a [PathBuf],
    /// The lowest rung that counts as success, if any is required.
    pub at_least: Option<&'a RungId>,
    /// Whether to try rungs again that failed on this host before.
    pub try_failed: bool,
}

/// How a profile run ended.
#[derive(Debug)]
pub enum ProfileOutcome {
    /// A profile with its sidecars. The failure is set if there is a profile but the run went
    /// wrong, for example with wrong results.
    Profile(Box<Profile>, Box<Sidecars>, Option<Failure>),
    /// The job was submitted and runs on detached.
    Detached,
}

impl ProfileRun<'_> {
    /// Runs until the profile is made or the job is detached.
    ///
    /// # Errors
    /// The link, the host, the build or the run folder fails, or the user cancels, and nothing is
    /// left to profile.
    pub async fn run(
        mut self,
        host: &mut RunHost<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<ProfileOutcome> {
        let facts = host.facts(context).await?;
        let failed = host.failed_rungs();
        if !self.try_failed {
            self.request.failed = failed.known(&facts, host.now_s);
        }
        let builder = ProfileBuilder::new(&self.request, self.project, self.thresholds);
        let planner = PassPlanner::new(&mut self.request, &facts);
        let (max_plans, expect) = (MAX_PLANS_PER_RUN, Expectations::default());
        let mut plans = ProfilePlans { run: self, builder, planner, expect, max_plans };
        if host.run_plans(&mut plans, context).await? == PlansEnd::Detached {
            return Ok(ProfileOutcome::Detached);
        }
        let facts = host.facts(context).await?;
        failed.learn(&facts, &plans.builder.profile.ladder, host.now_s);
        plans.ask_provider(host, &facts, context).await?;
        plans.finish(host, facts, context).await
    }
}

/// The plans of a profile run.
pub(super) struct ProfilePlans<'a> {
    pub(super) run: ProfileRun<'a>,
    pub(super) builder: ProfileBuilder,
    planner: PassPlanner,
    /// The results to expect from the current plan.
    expect: Expectations,
    max_plans: u32,
}

impl Plans for ProfilePlans<'_> {
    fn max_plans(&self) -> u32 {
        self.max_plans
    }

    fn source_folder(&self) -> Option<&Path> {
        Some(self.run.source_folder)
    }

    async fn draft(
        &mut self,
        job: &JobName,
        host: &mut RunHost<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<Option<Draft>, RunError> {
        let facts = host.facts(context).await?;
        let (request, builder) = (&mut self.run.request, &mut self.builder);
        local_build::compile_here(request, builder, 1, host, &facts, context).await?;
        let draft = loop {
            let planned = tool::plan(&self.run.request, &facts, &host.toolbox(&facts), job);
            match planned {
                Err(error @ PlanError::NothingLeft { .. }) if self.planner.is_surveying() => {
                    let why = Failure::from(error).cause.unwrap_or_default();
                    if self.planner.skip_survey(&mut self.run.request, &why) == NextStep::End {
                        return Ok(None);
                    }
                }
                planned => break planned?,
            }
        };
        // Checked before anything is sent. A survey has rungs of its own.
        let is_first = job.sequence == 1 && host.start != RunStart::Resumed;
        if is_first
            && !self.planner.is_surveying()
            && let Some(failure) = self.out_of_reach(&draft, &facts)
            && !self.provider_may_reach(host, &facts)
        {
            let remote = host.link.remote();
            return Err(failure.on(remote.name(), remote.transport()).into());
        }
        for file in &draft.files {
            // Keep the harness of a Python kernel, so that the user can read it and run it by hand.
            if let (tool::HARNESS, tool::Content::Bytes(text)) = (&*file.path, &file.content) {
                context.folder.write(tool::HARNESS, text)?;
            }
        }
        for note in &draft.expect.notes {
            context.reporter.report(&RunEvent::Note { text: note });
        }
        self.expect = draft.expect.clone();
        Ok(Some(draft))
    }

    fn take(
        &mut self,
        end: JobResult,
        host: &mut RunHost<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<NextStep> {
        let Self { run: ProfileRun { request, .. }, builder, planner, .. } = self;
        builder.expect(&self.expect);
        let refused = builder.take(context.folder, &end, request)?;
        let next = match refused {
            Some(refused) => {
                refused.refuse(request, context.reporter);
                NextStep::Plan
            }
            None => {
                let mut say = |text: &str| context.reporter.report(&RunEvent::Note { text });
                self.max_plans += 1;
                planner.next(request, builder, &end, &mut say)?
            }
        };
        builder.job = Some(end);
        if next == NextStep::Plan {
            request.reuse = host.reuse(&builder.built)?;
        }
        Ok(next)
    }
}

impl ProfilePlans<'_> {
    /// Makes the profile of all jobs.
    async fn finish(
        self,
        host: &mut RunHost<'_>,
        facts: HostFacts,
        context: &mut RunContext<'_>,
    ) -> Result<ProfileOutcome> {
        let Self { run, mut builder, planner, .. } = self;
        let remote = host.link.remote();
        context.record.program_exit = builder.program_exit;
        let (selection, unselected) = planner.finish(&builder, &facts);
        builder.profile.selection = selection;
        let failure = builder.failure(remote).or(unselected);
        let failure = failure.or_else(|| match run.request.pass {
            0 => None,
            _ => builder.failure_of_all_passes(remote),
        });
        // Without measurements and compiled code there is no profile, only the failure.
        if let Some(failure) =
            failure.as_ref().filter(|f| builder.is_empty() || f.exit == Exit::Cancelled)
        {
            return Err(failure.clone());
        }
        let (mut profile, mut sidecars) =
            assemble::profile(builder, &run.request, facts.clone(), context.record);
        let built =
            CompiledFiles::new(context.folder, &profile.artifacts, sidecars.hotspots.as_mut());
        let listings = listings::fill(host.link, context, &facts, run.nvdisasm, &mut [built]).await;
        profile.artifacts.extend(listings.into_iter().flatten());
        let failure = failure.or_else(|| run.only_compiled(&profile, &facts));
        Ok(ProfileOutcome::Profile(Box::new(profile), Box::new(sidecars), failure))
    }

    /// The failure of a plan whose best rung is below the required one.
    fn out_of_reach(&self, draft: &Draft, facts: &HostFacts) -> Option<Failure> {
        let least = self.run.at_least?;
        let mut steps = draft.plan.steps.iter().rev();
        let step = steps.find(|step| !assemble::SETUP_STEPS.contains(&step.id.as_str()));
        // A plan that only compiles has no such step.
        let rungs = step.map_or(&[][..], |step| &step.rungs);
        let on_cpu = facts.gpus.is_empty();
        let short = rungs.iter().all(|rung| falls_short(&rung.id[..].into(), least, on_cpu));
        let what = match (on_cpu, rungs.first()) {
            (true, _) => format!("without a GPU the run cannot reach rung `{least}`"),
            (false, best) => {
                format!("the run reaches rung `{}` at best, below `{least}`", best?.id)
            }
        };
        short.then(|| {
            let mut left_out = draft.expect.left_out.clone();
            left_out.retain(|record| !is_below(&record.rung[..].into(), least));
            below_rung(what, &left_out)
        })
    }
}

impl ProfileRun<'_> {
    /// The failure of a run that compiled its kernel but had no GPU and no reference to run.
    fn only_compiled(&self, profile: &Profile, facts: &HostFacts) -> Option<Failure> {
        let Target::Kernel { spec, .. } = &self.request.target else { return None };
        let only = profile.rung == RungId::None && facts.gpus.is_empty();
        only.then(|| {
            PlanError::no_gpu(&facts.remote, spec, self.request.mode, &profile.ladder).into()
        })
    }
}
