//! A kernel or program profiled: plans sent until nothing is left to try, artifacts imported, one
//! profile made.
//!
//! The agent walks down a ladder by cheap signs. Here what came back is imported, and a rung whose
//! artifact says nothing (an empty report, counters that are all NaN, a trace without GPU rows) is
//! refused: the next plan of the same run starts below it and reuses what was built. A run that has
//! to see what is there before it can select goes on in the same way (`selection`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_protocol::{Digest, HostFacts};

use super::assemble::{self, ProfileBuilder};
use super::bundle_reader::submission;
use super::disasm::{self, CompiledFiles};
use super::event::RunEvent;
use super::facts::FactsCache;
use super::job::{self, JobResult, RunContext};
use super::pass_planner::{NextStep, PassPlanner};
use super::programs::Programs;
use super::provenance::EnvRecord;
use super::rungs::{below_rung, falls_short, is_below};
use super::{local_build, resume};
use crate::analysis::Thresholds;
use crate::bundle::{self, BlobSource, Bundle, Packer};
use crate::error::{Exit, Failure, Result};
use crate::kernel::Entry;
use crate::model::{Profile, Sidecars};
use crate::remote::{HostLink, OnRemote, RemoteSpec};
use crate::tool::{self, Draft, JobName, PlanError, Request, Target};

/// Plans that one run may send at most: every rung refused once, and some room.
const MAX_PLANS_PER_RUN: u32 = 12;

/// Everything a profile run needs.
pub struct ProfileRun<'a> {
    /// What is asked.
    pub request: Request,
    /// The remote's definition.
    pub spec: &'a RemoteSpec,
    /// Its facts, kept from run to run.
    pub cache: FactsCache,
    /// Our programs for the host.
    pub programs: &'a Programs,
    /// The user's project: paths in it are shown relative to it.
    pub project: &'a Path,
    /// The user's own thresholds of the rules.
    pub thresholds: &'a Thresholds,
    /// Where the kernel lies: its repository's state is recorded.
    pub source_folder: &'a Path,
    /// Where this machine may have nvdisasm, for hosts without one.
    pub nvdisasm: &'a [PathBuf],
    /// The lowest rung that counts as success.
    pub at_least: Option<&'a str>,
    /// Unix seconds.
    pub now_s: i64,
    /// Try rungs that failed on the host before.
    pub try_failed: bool,
    /// Leave once the job is submitted.
    pub detach: bool,
    /// Take up this run's jobs instead of submitting the first plan anew.
    pub resume: bool,
    /// Hashes files, each once a run.
    pub packer: Packer,
    /// Where the bytes are of what this run built, in case the host has lost them.
    pub built: BTreeMap<Digest, BlobSource>,
}

/// How a run ended.
#[derive(Debug)]
pub enum ProfileOutcome {
    /// With a profile and the documents beside it; the failure says what went wrong all the same
    /// (wrong results, say).
    Profile(Box<Profile>, Box<Sidecars>, Option<Failure>),
    /// The job was left to itself.
    Detached,
}

impl ProfileRun<'_> {
    /// Runs to the end.
    ///
    /// # Errors
    /// Whatever left nothing to profile: the link, the host, the build, our disk, a cancel.
    pub async fn run(
        mut self,
        link: &mut HostLink,
        context: &mut RunContext<'_>,
    ) -> Result<ProfileOutcome> {
        let known = self.cache.load(self.now_s);
        let mut from_cache = known.is_some();
        let mut facts = match known {
            Some(facts) => facts,
            None => self.ask(link, context).await?,
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
        // Every rung refused once, and every look.
        let mut most = MAX_PLANS_PER_RUN;
        while seq <= most {
            let draft = match self.draft(link, &facts, context, &mut builder, seq).await {
                Err(failure) if planner.surveying() && failure.code == "nothing_left" => {
                    match planner
                        .no_survey(&mut self.request, failure.cause.as_deref().unwrap_or_default())
                    {
                        NextStep::Plan => continue,
                        NextStep::End => break,
                    }
                }
                // An environment of Python is entered and left more often than facts are asked.
                Err(failure) if failure.code == "no_torch" && from_cache => {
                    from_cache = false;
                    self.cache.forget();
                    facts = self.ask(link, context).await?;
                    context.folder.write_json(
                        "env.json",
                        &EnvRecord::new(Some(facts.clone()), self.source_folder),
                    )?;
                    continue;
                }
                draft => draft?,
            };
            // Nothing has been sent yet. A first look has rungs of its own.
            if let Some(failure) = self
                .out_of_reach(&draft, &facts)
                .filter(|_| seq == 1 && !self.resume && !planner.surveying())
                .filter(|_| !self.provider_may_reach(link, &facts))
            {
                return Err(failure.on(link.remote().name(), link.remote().transport()));
            }
            for file in &draft.files {
                // What calls a Python kernel is there to be read, and run by hand.
                if let (tool::HARNESS, tool::Content::Bytes(text)) = (&*file.path, &file.content) {
                    context.folder.write(tool::HARNESS, text)?;
                }
            }
            for note in &draft.expect.notes {
                context.reporter.say(&RunEvent::Note { text: note });
            }
            let expect = draft.expect.clone();
            let end = match self.carry(link, draft, context, seq).await? {
                PlanOutcome::Ended(end) => *end,
                PlanOutcome::FactsChanged => {
                    self.cache.forget();
                    facts = self.ask(link, context).await?;
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
                most += 1;
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
            _ => builder.no_look(link.remote()),
        });
        // Nothing was measured and nothing compiled: the failure is all there is.
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
        let listings = disasm::fill(link, context, &known, self.nvdisasm, &mut [built]).await;
        profile.artifacts.extend(listings.into_iter().flatten());
        let failure = failure.or_else(|| self.only_compiled(&profile, &known));
        Ok(ProfileOutcome::Profile(Box::new(profile), Box::new(sidecars), failure))
    }

    /// Asks the host what it has.
    async fn ask(&self, link: &mut HostLink, context: &mut RunContext<'_>) -> Result<HostFacts> {
        let Self { spec, programs, now_s, .. } = self;
        self.cache.ask(link, spec, programs, *now_s, context.reporter, &context.cancel).await
    }

    /// The next plan's draft, with what has to be built on this machine already built.
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

    /// Compiles on this machine what a host without a compiler cannot. Where this machine has none
    /// either, the plan says so.
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
                // The plan leaves the build out, and says so.
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

    /// The failure of a plan whose best rung is below the one that is asked for.
    fn out_of_reach(&self, draft: &Draft, facts: &HostFacts) -> Option<Failure> {
        let least = self.at_least?;
        let mut steps = draft.plan.steps.iter().rev();
        let step = steps.find(|step| !assemble::SETUP_STEPS.contains(&step.id.as_str()));
        // A plan that only compiles reaches none.
        let rungs = step.map_or(&[][..], |step| &step.rungs);
        let on_cpu = facts.gpus.is_empty();
        let short = rungs.iter().all(|rung| falls_short(&rung.id, least, on_cpu));
        let what = match (on_cpu, rungs.first()) {
            (true, _) => format!("without a GPU the run cannot reach rung `{least}`"),
            (false, best) => {
                format!("the run reaches rung `{}` at best, below `{least}`", best?.id)
            }
        };
        short.then(|| {
            let mut left_out = draft.expect.left_out.clone();
            left_out.retain(|record| !is_below(&record.rung, least));
            below_rung(what, &left_out)
        })
    }

    /// The failure of a run that compiled its kernel and had neither a GPU nor a reference to run.
    fn only_compiled(&self, profile: &Profile, facts: &HostFacts) -> Option<Failure> {
        let Target::Kernel { spec, .. } = &self.request.target else { return None };
        let only = profile.rung == "none" && facts.gpus.is_empty();
        only.then(|| {
            PlanError::no_gpu(&facts.remote, spec, self.request.mode, &profile.ladder).into()
        })
    }

    /// Submits a plan, or takes it up, and follows it to its end.
    async fn carry(
        &mut self,
        link: &mut HostLink,
        draft: Draft,
        context: &mut RunContext<'_>,
        seq: u32,
    ) -> Result<PlanOutcome> {
        let job_name = draft.plan.job.clone();
        if self.resume
            && let Some(known) = resume::known(context.folder, context.record, &job_name)?
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
        let kept = |bundle: Bundle, context: &RunContext<'_>| {
            let Bundle { plan, mut blobs, .. } = bundle;
            context.folder.write_json(&format!("plan-{seq}.json"), &plan)?;
            context.folder.write("commands.sh", &with_commands(&before, &plan, seq))?;
            blobs.extend(self.built.clone());
            Ok(submission(plan, blobs))
        };
        match job::pack_and_submit(link, &mut self.packer, &draft, context, kept).await {
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

    /// The request without the refused rung, on top of what is built already.
    fn next_request(
        &mut self,
        builder: &ProfileBuilder,
        refused: assemble::RefusedRung,
    ) -> Result<()> {
        if refused.metrics.is_empty() {
            self.request.skip.insert(refused.rung);
        } else {
            self.request.drop_metrics.extend(refused.metrics);
        }
        self.reuse_built(builder)
    }

    /// The next plan starts with what is built already.
    pub(super) fn reuse_built(&mut self, builder: &ProfileBuilder) -> Result<()> {
        self.request.reuse.clear();
        for (path, local) in &builder.built {
            self.request.reuse.push(self.packer.built(path, local, &mut self.built)?);
        }
        Ok(())
    }
}

/// The commands of the plans before, and those of this one.
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
