//! Profiles a kernel or program: sends plans until no rung is left to try, imports the artifacts
//! and makes one profile.
//!
//! The agent judges a rung by cheap checks and goes down the ladder by itself. Here the artifacts
//! are imported, and a rung without usable results (an empty report, counters that are all NaN, a
//! trace without GPU rows) is refused. The next plan of the run starts below that rung and reuses
//! the build. A run that needs a survey before it can select kernels or regions sends further plans
//! in the same way (`pass_planner`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_protocol::{Digest, HostFacts};

use super::assemble::{self, ProfileBuilder};
use super::bundle_reader::submission;
use super::event::RunEvent;
use super::facts::FactsCache;
use super::job::{self, JobResult, RunContext};
use super::listings::{self, CompiledFiles};
use super::pass_planner::{NextStep, PassPlanner};
use super::programs::Programs;
use super::rungs::{below_rung, falls_short, is_below};
use super::{local_build, resume};
use crate::analysis::Thresholds;
use crate::bundle::{self, BlobSource, Bundle, Packer};
use crate::error::{Exit, Failure, Result};
use crate::kernel::Entry;
use crate::model::{Profile, RungId, Sidecars};
use crate::remote::{HostLink, OnRemote, RemoteSpec};
use crate::store::EnvRecord;
use crate::tool::{self, Draft, JobName, PlanError, Request, Target};

/// A run sends at most this many plans: one for each refused rung, and some to spare.
const MAX_PLANS_PER_RUN: u32 = 12;

/// The inputs of a profile run.
pub struct ProfileRun<'a> {
    /// The request to carry out.
    pub request: Request,
    /// The remote's definition.
    pub spec: &'a RemoteSpec,
    /// The host's facts, cached between runs.
    pub cache: FactsCache,
    /// rgpu's own programs for the host.
    pub programs: &'a Programs,
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
    /// The current time in Unix seconds.
    pub now_s: i64,
    /// Whether to try rungs again that failed on this host before.
    pub try_failed: bool,
    /// Whether to return once the job is submitted.
    pub detach: bool,
    /// Whether to resume this run's jobs instead of submitting the first plan again.
    pub resume: bool,
    /// Hashes input files, each once per run.
    pub packer: Packer,
    /// Files that this run built, to send again if the host has lost them.
    pub built: BTreeMap<Digest, BlobSource>,
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
        link: &mut HostLink,
        context: &mut RunContext<'_>,
    ) -> Result<ProfileOutcome> {
        let known = self.cache.load(self.now_s);
        let mut from_cache = known.is_some();
        let mut facts = match known {
            Some(facts) => facts,
            None => self.ask_facts(link, context).await?,
        };
        let failed = self.cache.failed_rungs(&self.spec.name);
        if !self.try_failed {
            self.request.failed = failed.known(&facts, self.now_s);
        }
        let env = EnvRecord::new(Some(facts.clone()), self.source_folder);
        context.folder.write_json("env.json", &env)?;
        let mut builder = ProfileBuilder::new(&self.request, self.project, self.thresholds);
        let mut planner = PassPlanner::new(&mut self.request, &facts);
        let mut seq = 1;
        // One for each refused rung; each pass adds one more.
        let mut max_plans = MAX_PLANS_PER_RUN;
        while seq <= max_plans {
            let draft = match self.draft(link, &facts, context, &mut builder, seq).await {
                Err(failure) if planner.is_surveying() && failure.code == "nothing_left" => {
                    match planner.skip_survey(
                        &mut self.request,
                        failure.cause.as_deref().unwrap_or_default(),
                    ) {
                        NextStep::Plan => continue,
                        NextStep::End => break,
                    }
                }
                // The user may have changed the Python environment since the facts were cached.
                Err(failure) if failure.code == "no_torch" && from_cache => {
                    from_cache = false;
                    self.cache.forget();
                    facts = self.ask_facts(link, context).await?;
                    context.folder.write_json(
                        "env.json",
                        &EnvRecord::new(Some(facts.clone()), self.source_folder),
                    )?;
                    continue;
                }
                draft => draft?,
            };
            // Checked before anything is sent. A survey has rungs of its own.
            if let Some(failure) = self
                .out_of_reach(&draft, &facts)
                .filter(|_| seq == 1 && !self.resume && !planner.is_surveying())
                .filter(|_| !self.provider_may_reach(link, &facts))
            {
                return Err(failure.on(link.remote().name(), link.remote().transport()));
            }
            for file in &draft.files {
                // Keep the harness of a Python kernel, so that the user can read it and run it by
                // hand.
                if let (tool::HARNESS, tool::Content::Bytes(text)) = (&*file.path, &file.content) {
                    context.folder.write(tool::HARNESS, text)?;
                }
            }
            for note in &draft.expect.notes {
                context.reporter.say(&RunEvent::Note { text: note });
            }
            let expect = draft.expect.clone();
            let end = match self.run_plan(link, draft, context, seq).await? {
                PlanOutcome::Ended(end) => *end,
                PlanOutcome::FactsChanged => {
                    self.cache.forget();
                    facts = self.ask_facts(link, context).await?;
                    continue;
                }
                PlanOutcome::Detached => return Ok(ProfileOutcome::Detached),
            };
            builder.expect(&expect);
            let refused = builder.take(context.folder, &end, &self.request)?;
            let Some(refused) = refused else {
                let mut say = |text: &str| context.reporter.say(&RunEvent::Note { text });
                let next = planner.next(&mut self.request, &mut builder, &end, &mut say)?;
                builder.job = Some(end);
                if next == NextStep::End {
                    break;
                }
                self.reuse_built(&builder)?;
                seq += 1;
                max_plans += 1;
                continue;
            };
            builder.job = Some(end);
            context.reporter.say(&RunEvent::Refused {
                rung: &refused.rung,
                code: refused.code,
                text: &refused.text,
            });
            self.next_request(&builder, refused)?;
            seq += 1;
        }
        failed.learn(&facts, &builder.profile.ladder, self.now_s);
        self.ask_provider(link, &facts, context, &mut builder, seq).await?;
        context.record.program_exit = builder.program_exit;
        let (selection, unselected) = planner.finish(&builder, &facts);
        builder.profile.selection = selection;
        let failure = builder.failure(link.remote()).or(unselected);
        let failure = failure.or_else(|| match self.request.look {
            0 => None,
            _ => builder.failure_of_all_passes(link.remote()),
        });
        // Without measurements and compiled code there is no profile, only the failure.
        if let Some(failure) =
            failure.as_ref().filter(|f| builder.is_empty() || f.exit == Exit::Cancelled)
        {
            return Err(failure.clone());
        }
        let known = facts.clone();
        let (mut profile, mut sidecars) =
            assemble::profile(builder, &self.request, facts, context.record);
        let built =
            CompiledFiles::new(context.folder, &profile.artifacts, sidecars.hotspots.as_mut());
        let listings = listings::fill(link, context, &known, self.nvdisasm, &mut [built]).await;
        profile.artifacts.extend(listings.into_iter().flatten());
        let failure = failure.or_else(|| self.only_compiled(&profile, &known));
        Ok(ProfileOutcome::Profile(Box::new(profile), Box::new(sidecars), failure))
    }

    /// Asks the host for its facts.
    async fn ask_facts(
        &self,
        link: &mut HostLink,
        context: &mut RunContext<'_>,
    ) -> Result<HostFacts> {
        let Self { spec, programs, now_s, .. } = self;
        self.cache.ask(link, spec, programs, *now_s, context.reporter, &context.cancel).await
    }

    /// Drafts the next plan, after building on this machine what the host cannot build.
    async fn draft(
        &mut self,
        link: &HostLink,
        facts: &HostFacts,
        context: &mut RunContext<'_>,
        builder: &mut ProfileBuilder,
        seq: u32,
    ) -> Result<Draft> {
        let toolbox = self.programs.toolbox(&facts.agent.arch);
        self.compile_here(link, facts, context, builder).await?;
        let job = JobName { run: context.record.id.clone(), sequence: seq };
        Ok(tool::plan(&self.request, facts, &toolbox, &job)?)
    }

    /// Compiles the kernel on this machine for a host without a compiler. Without a compiler here,
    /// the plan reports that.
    async fn compile_here(
        &mut self,
        link: &HostLink,
        facts: &HostFacts,
        context: &mut RunContext<'_>,
        builder: &mut ProfileBuilder,
    ) -> Result<()> {
        let Target::Kernel { spec, .. } = &self.request.target else { return Ok(()) };
        let wheels = self.request.build.fetch && facts.tool("cc").is_some();
        let has = wheels || !tool::compilers(facts, &spec.entry).is_empty();
        let ready = !self.request.prebuilt.is_empty() || !self.request.reuse.is_empty();
        if has || ready || super::is_local(link) || !matches!(spec.entry, Entry::Device(_)) {
            return Ok(());
        }
        let (end, expect) =
            match local_build::build(&self.request, facts, self.programs, 1, context).await {
                Ok(built) => built,
                // The plan leaves the build out and says why.
                Err(failure) if failure.code == "no_compiler" => return Ok(()),
                Err(failure) => return Err(failure),
            };
        self.request.prebuilt =
            builder.take_local_build(context.folder, &end, &expect, &self.request)?;
        if !end.step_ok("build") {
            builder.job = Some(end);
            let failure =
                RemoteSpec::local().open().ok().and_then(|local| builder.failure(&*local));
            return Err(failure.unwrap_or_else(|| {
                Failure::new(Exit::Kernel, "does_not_compile", "the kernel does not compile")
            }));
        }
        Ok(())
    }

    /// The failure of a plan whose best rung is below the required one.
    fn out_of_reach(&self, draft: &Draft, facts: &HostFacts) -> Option<Failure> {
        let least = self.at_least?;
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

    /// The failure of a run that compiled its kernel but had no GPU and no reference to run.
    fn only_compiled(&self, profile: &Profile, facts: &HostFacts) -> Option<Failure> {
        let Target::Kernel { spec, .. } = &self.request.target else { return None };
        let only = profile.rung == RungId::None && facts.gpus.is_empty();
        only.then(|| {
            PlanError::no_gpu(&facts.remote, spec, self.request.mode, &profile.ladder).into()
        })
    }

    /// Submits a plan or resumes its job, and follows the job to its end.
    async fn run_plan(
        &mut self,
        link: &mut HostLink,
        draft: Draft,
        context: &mut RunContext<'_>,
        seq: u32,
    ) -> Result<PlanOutcome> {
        let job_name = draft.plan.job.clone();
        if self.resume
            && let Some(known) = resume::recorded_job(context.folder, context.record, &job_name)?
        {
            if !known.ended() {
                job::take_up(link, &job_name, &known, context).await?;
            }
            let end = job::follow_to_end(link, &job_name, &known.events, context).await?;
            return Ok(PlanOutcome::Ended(Box::new(end)));
        }
        let before = match seq {
            1 => Vec::new(),
            _ => context.folder.read("commands.sh").unwrap_or_default(),
        };
        let write_plan = |bundle: Bundle, context: &RunContext<'_>| {
            let Bundle { plan, mut blobs, .. } = bundle;
            context.folder.write_json(&format!("plan-{seq}.json"), &plan)?;
            context.folder.write("commands.sh", &with_commands(&before, &plan, seq))?;
            blobs.extend(self.built.clone());
            Ok(submission(plan, blobs))
        };
        match job::pack_and_submit(link, &mut self.packer, &draft, context, write_plan).await {
            Err(failure) if failure.code == "facts_changed" => {
                return Ok(PlanOutcome::FactsChanged);
            }
            other => other?,
        }
        if self.detach {
            link.detach().await.on(link.remote())?;
            return Ok(PlanOutcome::Detached);
        }
        let end = job::follow_to_end(link, &job_name, &[], context).await?;
        Ok(PlanOutcome::Ended(Box::new(end)))
    }

    /// Removes the refused rung or metrics from the request, and reuses the build.
    fn next_request(
        &mut self,
        builder: &ProfileBuilder,
        refused: assemble::RefusedRung,
    ) -> Result<()> {
        if refused.metrics.is_empty() {
            self.request.skip.insert(refused.rung.into());
        } else {
            self.request.drop_metrics.extend(refused.metrics);
        }
        self.reuse_built(builder)
    }

    /// Lets the next plan reuse the files built so far.
    pub(super) fn reuse_built(&mut self, builder: &ProfileBuilder) -> Result<()> {
        self.request.reuse.clear();
        for (path, local) in &builder.built {
            self.request.reuse.push(self.packer.built(path, local, &mut self.built)?);
        }
        Ok(())
    }
}

/// The earlier plans' commands, followed by this plan's.
fn with_commands(before: &[u8], plan: &rgpu_protocol::Plan, seq: u32) -> Vec<u8> {
    let mut text = before.to_vec();
    if !text.is_empty() {
        text.extend(format!("\n# plan {seq}\n").bytes());
    }
    text.extend(bundle::commands(plan).bytes());
    text
}

enum PlanOutcome {
    Ended(Box<JobResult>),
    FactsChanged,
    Detached,
}
