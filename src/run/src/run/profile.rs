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

use super::assemble::{self, ProfileBuilder, RefusedRung};
use super::event::RunEvent;
use super::job::{JobResult, RunContext};
use super::lifecycle::{PlanDriver, RunError, RunProgress, RunSession, RunStart};
use super::listings::{self, CompiledFiles};
use super::local_build;
use super::pass_planner::{NextStep, PassPlanner};
use super::program_error::{self, ProgramError, ProgramFault};
use super::required_rung::{below_rung_failure, is_below, misses_rung};
use super::second_pass;
use crate::disasm::NvdisasmSearch;
use rgpu_analysis::Thresholds;
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_model::profile::Gap;
use rgpu_model::{Profile, RungId, Sidecars};
use rgpu_plan::tool::{
    self, Draft, DraftInfo, JobName, PlanError, PlanPart, ProfileTarget, Request, Window,
};

/// Plans that a run may send for refused rungs. Each pass adds one.
const BASE_PLAN_LIMIT: u32 = 12;
/// Number of this run's build on this machine. A profile has one kernel, so it is built once.
const FIRST_BUILD: u32 = 1;

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
    pub local_nvdisasm: &'a NvdisasmSearch,
    /// The lowest rung that counts as success, if any is required. A rung is one way to get a
    /// result; see [`RungInfo`](rgpu_plan::tool::RungInfo).
    pub required_rung: Option<&'a RungId>,
    /// Whether to try rungs again that failed on this host before.
    pub retry_failed_rungs: bool,
}

/// How a profile run ended.
#[derive(Debug)]
pub enum ProfileOutcome {
    /// The run made a profile.
    Profile {
        /// The profile of the whole run.
        profile: Box<Profile>,
        /// The documents that accompany it, and the work of its ranks.
        sidecars: Box<Sidecars>,
        /// Set if there is a profile but the run went wrong, for example with wrong results.
        failure: Option<Failure>,
        /// The files that were built: path on the host, and path on this machine.
        built: Vec<(String, PathBuf)>,
    },
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
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<ProfileOutcome> {
        let facts = session.facts(context).await?;
        let failed = session.failed_rungs();
        if !self.retry_failed_rungs {
            self.request.failed = failed.known(&facts, session.now_s);
        }
        let builder = ProfileBuilder::new(&self.request, self.project, self.thresholds);
        let planner = PassPlanner::start_run(&mut self.request, &facts);
        let (max_plans, draft_info) = (BASE_PLAN_LIMIT, DraftInfo::default());
        let mut plans = ProfileDriver {
            run: self,
            builder,
            planner,
            draft_info,
            max_plans,
            program_error: None,
            program_checked: false,
            before_second: None,
        };
        if session.run_plans(&mut plans, context).await? == RunProgress::Detached {
            return Ok(ProfileOutcome::Detached);
        }
        let facts = session.facts(context).await?;
        failed.update(&facts, &plans.builder.profile.ladder, session.now_s);
        plans.run_provider_ncu(session, &facts, context).await?;
        plans.finish(session, facts, context).await
    }
}

/// Drafts the plans of a profile run and handles their results.
pub(super) struct ProfileDriver<'a> {
    pub(super) run: ProfileRun<'a>,
    pub(super) builder: ProfileBuilder,
    planner: PassPlanner,
    /// Facts about the current plan that are not in the plan itself.
    draft_info: DraftInfo,
    max_plans: u32,
    /// The program's error under a tool, while the program runs without one.
    program_error: Option<ProgramError>,
    /// Whether the program ran without a tool because of an error. This happens once.
    program_checked: bool,
    /// What the mode's own pass left, while a second pass runs.
    before_second: Option<BeforeSecond>,
}

/// What the mode's own pass left for the end of the run.
struct BeforeSecond {
    result: JobResult,
    window: Window,
}

impl PlanDriver for ProfileDriver<'_> {
    fn max_plans(&self) -> u32 {
        self.max_plans
    }

    fn source_folder(&self) -> Option<&Path> {
        Some(self.run.source_folder)
    }

    async fn draft(
        &mut self,
        job: &JobName,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<Option<Draft>, RunError> {
        let facts = session.facts(context).await?;
        let (request, builder) = (&mut self.run.request, &mut self.builder);
        local_build::compile_here(request, builder, FIRST_BUILD, session, &facts, context).await?;
        let draft = loop {
            let planned =
                tool::plan(&self.run.request, &facts, &session.host_binaries(&facts), job);
            match planned {
                Err(error @ PlanError::NoUsableRung { .. }) if self.planner.is_surveying() => {
                    let reason = Failure::from(error).cause.unwrap_or_default();
                    if self.planner.skip_survey(&mut self.run.request, &reason) == NextStep::End {
                        return Ok(None);
                    }
                }
                planned => break planned?,
            }
        };
        // Checked before anything is sent. Not checked for a survey, which has other rungs.
        let is_first = job.sequence == 1 && session.start != RunStart::Resumed;
        if is_first
            && !self.planner.is_surveying()
            && let Some(failure) = self.required_rung_failure(&draft, &facts)
            && !self.provider_may_reach(session, &facts)
        {
            let remote = session.link.remote();
            return Err(failure.host(remote.name(), remote.transport()).into());
        }
        for file in &draft.files {
            // Keep the harness of a Python kernel, so that the user can read it and run it by hand.
            if let (tool::HARNESS, tool::JobFileContent::Bytes(text)) = (&*file.path, &file.content)
            {
                context.folder.write(tool::HARNESS, text)?;
            }
        }
        for note in &draft.info.notes {
            context.reporter.report(&RunEvent::Note { text: note });
        }
        self.draft_info = draft.info.clone();
        Ok(Some(draft))
    }

    fn handle_result(
        &mut self,
        result: JobResult,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<NextStep> {
        self.max_plans += 1;
        if let Some(error) = self.program_error.take() {
            return self.handle_plain_run(error, result, session, context);
        }
        if let Some(first) = self.before_second.take() {
            let (request, builder) = (&mut self.run.request, &mut self.builder);
            second_pass::add(request, builder, context.folder, &result);
            request.part = PlanPart::Whole;
            request.window = first.window;
            builder.job = Some(first.result);
            return Ok(NextStep::End);
        }
        let request = &mut self.run.request;
        self.builder.start_plan(&self.draft_info);
        let refused = self.builder.add_job(context.folder, &result, request)?;
        // The kernel ends its process; it would do so in any other plan, too.
        if self.builder.is_unfinished() {
            self.builder.job = Some(result);
            return Ok(NextStep::End);
        }
        // No other plan is sent: the program would hang again.
        if let Some(failure) = program_error::hang_failure(&result, session.link.remote()) {
            self.builder.program_failure = Some(failure);
            self.builder.job = Some(result);
            return Ok(NextStep::End);
        }
        if self.program_checked || self.builder.has_findings() {
            return self.next_plan(refused, result, session, context);
        }
        let Some(record) = program_error::find(request, &result) else {
            let warning =
                program_error::crash_on_higher_rung(request, &result, &self.builder.profile.ladder);
            let warnings = &mut self.builder.profile.warnings;
            warnings.extend(warning.filter(|warning| !warnings.contains(warning)));
            return self.next_plan(refused, result, session, context);
        };
        self.program_checked = true;
        let ladder = &self.builder.profile.ladder;
        let error = ProgramError::new(record, context.folder, &result, refused, request, ladder);
        if let Some((survey, gap)) = error.survey_verdict(request) {
            self.builder.program_exit = program_error::shell_status(survey);
            return self.leave_tool(error, gap, session, context);
        }
        // A program that the user executes runs once.
        let may_repeat = context.record.command != "exec";
        if !may_repeat && error.refused.is_none() {
            return self.next_plan(None, result, session, context);
        }
        let reason = error.reason_not_to_repeat().filter(|_| may_repeat);
        if may_repeat && reason.is_none() {
            context.reporter.report(&RunEvent::Note { text: &error.note() });
            request.part = PlanPart::Plain;
            self.program_error = Some(error);
            return Ok(NextStep::Plan);
        }
        self.builder.program_exit = error.shell_status();
        self.builder.program_failure =
            Some(error.failure(reason.as_deref(), session.link.remote()));
        self.builder.job = Some(result);
        Ok(NextStep::End)
    }
}

impl ProfileDriver<'_> {
    /// Plans what follows a job.
    fn next_plan(
        &mut self,
        refused: Option<RefusedRung>,
        result: JobResult,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<NextStep> {
        let Self { run: ProfileRun { request, .. }, builder, planner, .. } = self;
        let next = match refused {
            Some(refused) => {
                refused.exclude_from(request, context.reporter);
                NextStep::Plan
            }
            None => {
                let mut say = |text: &str| context.reporter.report(&RunEvent::Note { text });
                planner.next(request, builder, &result, &mut say)?
            }
        };
        if next == NextStep::End
            && context.record.command != "exec"
            && let Some(second) = second_pass::plan(request, builder, &result)
        {
            context.reporter.report(&RunEvent::Note { text: &second.note });
            self.before_second = Some(BeforeSecond { result, window: request.window });
            request.part = PlanPart::SecondPass(second.records);
            request.window = second.window;
            return Ok(NextStep::Plan);
        }
        builder.job = Some(result);
        if next == NextStep::Plan {
            request.reuse = session.add_built_files(&builder.built)?;
        }
        Ok(next)
    }

    /// Goes on after a program that failed under a tool was run without one.
    fn handle_plain_run(
        &mut self,
        error: ProgramError,
        plain: JobResult,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<NextStep> {
        let (request, builder) = (&mut self.run.request, &mut self.builder);
        let fault = error.judge(&plain, context.folder, request, session.link.remote());
        builder.add_plain_run(&plain);
        match fault {
            None => {
                builder.job = Some(plain);
                Ok(NextStep::End)
            }
            Some(ProgramFault::Program(failure)) => {
                builder.tell_end_alone("the program fails alone, too");
                builder.program_failure = Some(failure);
                builder.job = Some(error.result);
                Ok(NextStep::End)
            }
            Some(ProgramFault::Tool(gap)) => {
                builder.tell_end_alone("alone, the program ends well");
                self.leave_tool(error, gap, session, context)
            }
        }
    }

    /// Goes on after a program that fails only under a tool, with what was measured or without that
    /// tool.
    fn leave_tool(
        &mut self,
        error: ProgramError,
        gap: Gap,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<NextStep> {
        let (request, builder) = (&mut self.run.request, &mut self.builder);
        let text = gap.text.clone();
        builder.profile.warnings.retain(|warning| warning.code != "program_status");
        builder.profile.warnings.push(gap);
        if error.measured() || error.leaves_nothing_to_try(request) {
            return self.next_plan(error.refused, error.result, session, context);
        }
        let rung = error.exclude_tool(request);
        let refused = RunEvent::Refused { rung: &rung, code: "fails_under_tool", text: &text };
        context.reporter.report(&refused);
        builder.job = Some(error.result);
        Ok(NextStep::Plan)
    }

    /// Makes the profile of all jobs.
    async fn finish(
        self,
        session: &mut RunSession<'_>,
        facts: HostFacts,
        context: &mut RunContext<'_>,
    ) -> Result<ProfileOutcome> {
        let Self { run, mut builder, planner, .. } = self;
        let remote = session.link.remote();
        context.record.program_exit = builder.program_exit;
        let (selection, selection_failure) = planner.finish(&builder, &facts);
        builder.profile.selection = selection;
        let program_failure = builder.program_failure.take();
        let failure = program_failure.or_else(|| builder.failure(remote)).or(selection_failure);
        let failure = failure.or_else(|| match run.request.pass {
            0 => None,
            _ => builder.nothing_measured_failure(remote),
        });
        let failure = failure.map(|failure| run.with_assumed_launch(failure, &facts));
        // Without measurements and compiled code there is no profile, only the failure.
        if let Some(failure) =
            failure.as_ref().filter(|f| builder.is_empty() || f.exit == Exit::Cancelled)
        {
            return Err(failure.clone());
        }
        let files = builder.built.clone();
        let (mut profile, mut sidecars) =
            assemble::build_profile(builder, &run.request, facts.clone(), context.record);
        let built =
            CompiledFiles::new(context.folder, &profile.artifacts, sidecars.hotspots.as_mut());
        let listings = listings::write_all_listings(
            session.link,
            context,
            &facts,
            run.local_nvdisasm,
            &mut [built],
        )
        .await;
        profile.artifacts.extend(listings.into_iter().flatten());
        let failure = failure.or_else(|| run.compile_only_failure(&profile, &facts));
        let (profile, sidecars) = (Box::new(profile), Box::new(sidecars));
        Ok(ProfileOutcome::Profile { profile, sidecars, failure, built: files })
    }

    /// The failure of a plan whose best rung is below the required one.
    fn required_rung_failure(&self, draft: &Draft, facts: &HostFacts) -> Option<Failure> {
        let required = self.run.required_rung?;
        let mut steps = draft.plan.steps.iter().rev();
        let step = steps.find(|step| !assemble::SETUP_STEPS.contains(&step.id.as_str()));
        // A plan that only compiles has no such step.
        let rungs = step.map_or(&[][..], |step| &step.rungs);
        let on_cpu = facts.gpus.is_empty();
        let misses = rungs.iter().all(|rung| misses_rung(&rung.id[..].into(), required, on_cpu));
        let what = match (on_cpu, rungs.first()) {
            (true, _) => format!("without a GPU the run cannot reach rung `{required}`"),
            (false, best) => {
                format!("the run reaches rung `{}` at best, below `{required}`", best?.id)
            }
        };
        misses.then(|| {
            let mut left_out = draft.info.left_out.clone();
            left_out.retain(|record| !is_below(&record.rung[..].into(), required));
            below_rung_failure(what, &left_out)
        })
    }
}

/// Whether a wrong launch could be the cause of a failure.
fn is_of_launch(failure: &Failure, facts: &HostFacts) -> bool {
    let others = ["does_not_compile", "reference", "reference_does_not_compile", "wrong_result"];
    let was_launched = failure.exit == Exit::Kernel && !facts.gpus.is_empty();
    was_launched && !others.contains(&failure.code.as_str())
}

impl ProfileRun<'_> {
    /// Adds to the failure of a bare kernel the launch that was assumed, to be corrected.
    fn with_assumed_launch(&self, failure: Failure, facts: &HostFacts) -> Failure {
        let ProfileTarget::Kernel { spec, .. } = &self.request.target else { return failure };
        match spec.assumed_launch().filter(|_| is_of_launch(&failure, facts)) {
            Some(launch) => failure.hint(format!(
                "rgpu assumed this launch; change what is wrong, and write elements for an array's \
                 `_`: `--launch {}`",
                shell_word(launch)
            )),
            None => failure,
        }
    }

    /// The failure of a run that compiled its kernel but had no GPU and no reference to run.
    fn compile_only_failure(&self, profile: &Profile, facts: &HostFacts) -> Option<Failure> {
        let ProfileTarget::Kernel { spec, .. } = &self.request.target else { return None };
        let only = profile.rung == RungId::None && facts.gpus.is_empty();
        only.then(|| {
            PlanError::no_gpu(&facts.remote, spec, self.request.mode, &profile.ladder).into()
        })
    }
}
