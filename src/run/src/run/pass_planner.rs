//! Plans the passes of a profile run: a survey first where one is needed, then the passes that
//! measure what it found.
//!
//! ncu knows no globs and no nested range replay, and does not know which kernels matter. So a
//! first plan surveys the regions (`--regions`) or the kernels that take the most time (`--mode
//! deep`), and later plans name them to ncu exactly.

mod kernels;

use std::collections::VecDeque;

use rgpu_protocol::{HostFacts, Outcome, RungRecord};

use super::assemble::ProfileBuilder;
use super::fingerprint::fingerprint;
use super::job::JobResult;
use super::regions::{self, PassRegions};
use super::required_rung::is_rung_of;
use kernels::ExactFilter;
use rgpu_model::error::{Failure, Result};
use rgpu_model::number_form::by_number;
use rgpu_model::profile::Gap;
use rgpu_model::selection::{NcuTime, Price, ReplayMode};
use rgpu_model::{Launch, RungId, Selection};
use rgpu_plan::kernel::ProfileMode;
use rgpu_plan::tool::{
    FirstPass, PlanPart, ProfileTarget, RecordedRegion, Request, RungTool, RunnerRanges, WindowEnd,
};

/// Turns a request into the first plan of its run, a survey if one is needed. Returns whether later
/// plans depend on a survey.
pub fn first_plan(request: &mut Request, facts: &HostFacts) -> bool {
    PassPlanner::start_run(request, facts).is_surveying()
}

/// The state of a run's passes.
pub(super) struct PassPlanner {
    /// The user's request, before any pass narrowed it.
    user_request: Request,
    first_pass: Option<FirstPass>,
    passes: VecDeque<Pass>,
    /// Number of passes; 0 if the request runs unchanged.
    pass_count: u32,
    passes_started: u32,
    /// The regions of the current pass.
    current: PassRegions,
    /// Passes in place of the current one, if ncu finds none of its launches.
    retry: Vec<Pass>,
    /// Regions whose launches an earlier pass has measured one by one.
    covered: Vec<RecordedRegion>,
    selection: Selection,
    /// Why nothing could be selected.
    failure: Option<Failure>,
}

/// Seconds after which the program of a priced pass is stopped as by Ctrl-C. The launches that ncu
/// has profiled until then are kept.
///
/// Some programs never end under ncu, for example if they repeat work until it is fast enough.
fn stop_s(price: &Price) -> u64 {
    let expected = price.limit_seconds.unwrap_or_default().max(price.seconds);
    (2.0 * expected).ceil() as u64
}

/// The regions, kernels and launches of one pass.
#[derive(Clone, Debug, Default)]
struct Pass {
    regions: PassRegions,
    kernels: Option<ExactFilter>,
    skip: Option<u64>,
    count: Option<u64>,
    /// Numbers of the launches, as [`NcuOptions::launch_numbers`](rgpu_plan::tool::NcuOptions).
    numbers: Vec<u64>,
    /// Passes in place of this one, if ncu finds none of these launches.
    retry: Vec<Pass>,
}

impl Pass {
    /// This pass, or the one that retries it.
    fn without_chosen_skip(mut self) -> Pass {
        match self.retry.pop() {
            Some(retry) => retry,
            None => self,
        }
    }
}

impl PassPlanner {
    /// Starts a run of the request on a host. Changes the request into that of the first plan.
    pub(super) fn start_run(request: &mut Request, facts: &HostFacts) -> Self {
        let user_request = request.clone();
        let counters = request.mode.collects_counters() && !facts.gpus.is_empty();
        let first_pass = match request.mode {
            ProfileMode::Deep => Some(FirstPass::Kernels),
            _ if !request.patterns.is_empty() => Some(FirstPass::Ranges),
            _ => None,
        };
        let first_pass = first_pass.filter(|_| counters);
        if let Some(first_pass) = first_pass {
            request.part = PlanPart::FirstPass(first_pass);
        }
        let options = &user_request.ncu;
        let selection = Selection {
            kernel_names: options.kernel_name.clone(),
            kernel_excludes: options.kernel_exclude.clone(),
            sections: options.sections.clone(),
            metrics: options.metrics.clone(),
            ..Selection::default()
        };
        Self {
            user_request,
            first_pass,
            passes: VecDeque::new(),
            pass_count: 0,
            passes_started: 0,
            current: PassRegions::default(),
            retry: Vec::new(),
            covered: Vec::new(),
            selection,
            failure: None,
        }
    }

    /// Whether the current plan is the survey.
    pub(super) fn is_surveying(&self) -> bool {
        self.first_pass.is_some()
    }

    /// Goes on without a survey, which cannot be made on this host.
    pub(super) fn skip_survey(&mut self, request: &mut Request, why: &str) -> NextStep {
        let first_pass = self.first_pass.take();
        self.selection
            .left_out
            .push(Gap { code: "no_survey".to_owned(), text: format!("no first pass: {why}") });
        request.part = PlanPart::Whole;
        if first_pass == Some(FirstPass::Kernels) && self.user_request.patterns.is_empty() {
            return NextStep::Plan;
        }
        match regions::exact_regions(&self.user_request.patterns) {
            Ok(exact) => {
                self.set_regions(&self.user_request.patterns.clone(), exact);
                self.plan_region_passes();
                self.next_pass(request)
            }
            Err(failure) => {
                self.failure = Some(*failure);
                NextStep::End
            }
        }
    }

    /// Decides what follows a plan that ended.
    pub(super) fn next(
        &mut self,
        request: &mut Request,
        builder: &mut ProfileBuilder,
        end: &JobResult,
        say: &mut dyn FnMut(&str),
    ) -> Result<NextStep> {
        if self.first_pass.is_none() {
            self.add_ncu_time(request, end);
            if !self.plan_retry(request, end, say) {
                self.record_pass(request, end);
            }
            return Ok(self.next_pass(request));
        }
        // A failed build or check ends the run.
        if !matches!(end.outcome, Some(Outcome::Done)) {
            return Ok(NextStep::End);
        }
        if !end.step_ok("survey") {
            let why = end.last_rung("survey").map_or("no tool to make it with", |r| &r.message);
            let why = why.to_owned();
            return Ok(self.skip_survey(request, &why));
        }
        let first_pass = self.first_pass.take();
        request.part = PlanPart::Whole;
        let ranges = runner_ranges(&self.user_request);
        let seen = regions::user_regions(&builder.profile.regions, ranges);
        self.selection.regions_seen = seen.iter().map(RecordedRegion::display).collect();
        if !self.user_request.patterns.is_empty() {
            match regions::matching_regions(&self.user_request.patterns, &seen) {
                Ok(chosen) => self.set_regions(&self.user_request.patterns.clone(), chosen),
                Err(failure) => {
                    self.failure = Some(*failure);
                    return Ok(NextStep::End);
                }
            }
        }
        match first_pass {
            Some(FirstPass::Kernels) => {
                // The export of the timeline is no part of the program's time.
                let is_survey = |r: &&RungRecord| r.ok && r.step == "survey";
                let program_s = end.rungs.iter().find(is_survey).map_or(1.0, |r| r.seconds);
                self.choose_kernels(builder, program_s, say)?;
                builder.set_survey_aside();
            }
            _ => self.plan_region_passes(),
        }
        Ok(self.next_pass(request))
    }

    fn set_regions(
        &mut self,
        patterns: &[rgpu_plan::tool::RegionPattern],
        chosen: Vec<RecordedRegion>,
    ) {
        self.selection.regions = regions::region_choices(patterns, &chosen);
        self.current = PassRegions { regions: chosen };
    }

    /// Plans the passes by region: one for kernel replay. Range replay measures each range as a
    /// whole, so it needs one pass per nesting level.
    fn plan_region_passes(&mut self) {
        let chosen = std::mem::take(&mut self.current);
        let ranges =
            matches!(self.user_request.ncu.replay_mode.as_deref(), Some("range" | "app-range"));
        let layers = if ranges { chosen.split_nested() } else { vec![chosen] };
        let passes = layers.into_iter().map(|regions| Pass { regions, ..Pass::default() });
        self.set_passes(passes.collect());
    }

    fn set_passes(&mut self, passes: VecDeque<Pass>) {
        self.pass_count = u32::try_from(passes.len()).unwrap_or(u32::MAX);
        self.passes = passes;
    }

    /// Turns the request into the next pass.
    fn next_pass(&mut self, request: &mut Request) -> NextStep {
        // Skip regions whose launches were already measured one by one.
        while let Some(pass) = self.passes.pop_front() {
            self.passes_started += 1;
            let inside = |region: &RecordedRegion| self.covered.iter().any(|c| c.contains(region));
            if !pass.regions.regions.is_empty() && pass.regions.regions.iter().all(inside) {
                continue;
            }
            request.pass = if self.pass_count > 1 { self.passes_started } else { 0 };
            request.regions.clone_from(&pass.regions.regions);
            if let Some(chosen) = pass.kernels {
                request.ncu.kernel_name = vec![chosen.filter];
                request.ncu.kernel_name_base = Some(chosen.base.to_owned());
                request.ncu.kernel_exclude.clear();
            }
            if pass.count.is_some() {
                request.ncu.launch_skip = pass.skip;
                request.ncu.launch_count = pass.count;
            }
            request.ncu.launch_numbers = pass.numbers;
            if self.user_request.mode == ProfileMode::Deep && self.selection.set.is_some() {
                request.ncu.set.clone_from(&self.selection.set);
                request.ncu.sections.clone_from(&self.selection.sections);
                request.ncu.metrics.clone_from(&self.selection.metrics);
            }
            let is_program = matches!(request.target, ProfileTarget::Program(_));
            if let Some(price) = self.selection.price.as_ref().filter(|_| is_program) {
                request.window.end = Some(WindowEnd::Seconds(stop_s(price)));
            }
            self.current = pass.regions;
            self.retry = pass.retry;
            return NextStep::Plan;
        }
        NextStep::End
    }

    /// Adds the time that a pass of mode `deep` took, also if ncu found none of its launches.
    fn add_ncu_time(&mut self, request: &Request, end: &JobResult) {
        let step = profile_step(request);
        let ran = |r: &&RungRecord| {
            r.step == step
                && !r.argv.is_empty()
                && is_rung_of(&RungId::from(r.rung.as_str()), RungTool::Ncu)
        };
        let Some(rung) = end.rungs.iter().rfind(ran).filter(|_| self.selection.price.is_some())
        else {
            return;
        };
        let profiled = end.profiled.step_time(&step);
        let time = self.selection.ncu_time.get_or_insert_default();
        time.runs += 1;
        time.seconds += rung.seconds;
        time.launches += profiled.launches;
        time.launches_seconds += profiled.ms as f64 / 1e3;
    }

    /// Records how a pass ended.
    fn record_pass(&mut self, request: &Request, end: &JobResult) {
        let step = profile_step(request);
        let names = self.current.regions.iter().map(RecordedRegion::display).collect::<Vec<_>>();
        let subject = if names.is_empty() { request.ncu.kernel_name.clone() } else { names };
        let subject = subject.join("`, `");
        let failed = end.rungs.iter().find(|r| r.step == step && !r.ok);
        let last = end.rungs.iter().rfind(|r| r.step == step);
        if self.selection.price.is_some()
            && last.is_some_and(|r| request.window.stopped(r.seconds))
            && let Some(stop_s) = request.window.stop_s()
        {
            let text = format!(
                "the program was stopped after {stop_s} s, twice the limit of this pass; `--budget` raises it"
            );
            self.selection.left_out.push(Gap { code: "stopped".to_owned(), text });
        }
        let mode = self.user_request.ncu.replay_mode.as_deref().unwrap_or("kernel");
        match end.rung_of(&step) {
            Some(RungId::NcuRequested | RungId::NcuSudo) => {
                self.selection.replay_mode = mode.into()
            }
            Some(rung) if is_rung_of(&rung, RungTool::Ncu) => {
                let used_mode = if rung == RungId::NcuAppRange { "app-range" } else { "kernel" };
                self.selection.replay_mode = used_mode.into();
                if used_mode == "kernel" {
                    self.covered.extend(self.current.regions.iter().cloned());
                }
                if used_mode != mode
                    && let Some(failed) = failed
                {
                    let text = format!(
                        "`{subject}`: measured with {used_mode} replay, because {mode} replay failed: {}",
                        failure_text(failed)
                    );
                    self.selection.left_out.push(Gap { code: failed.code.clone(), text });
                }
            }
            Some(_) => {}
            None if !subject.is_empty() => {
                let (code, why) = failed
                    .map_or(("missing", String::new()), |r| (r.code.as_str(), failure_text(r)));
                let text = format!("`{subject}`: no counters: {why}");
                self.selection.left_out.push(Gap { code: code.to_owned(), text });
            }
            None => {}
        }
    }

    /// Returns the selection for the profile, or why there is none. For modes that record regions
    /// without a survey, the patterns are matched here.
    pub(super) fn finish(
        mut self,
        builder: &ProfileBuilder,
        facts: &HostFacts,
    ) -> (Option<Selection>, Option<Failure>) {
        let counters = self.user_request.mode.collects_counters();
        let patterns = std::mem::take(&mut self.user_request.patterns);
        if !counters && patterns.is_empty() {
            return (None, None);
        }
        if !patterns.is_empty() && self.selection.regions.is_empty() && self.failure.is_none() {
            let seen =
                regions::user_regions(&builder.profile.regions, runner_ranges(&self.user_request));
            self.selection.regions_seen = seen.iter().map(RecordedRegion::display).collect();
            // The runner opens a kernel's ranges around its launches, and there were none.
            let kernel = matches!(self.user_request.target, ProfileTarget::Kernel { .. });
            let reference = kernel && facts.gpus.is_empty() && seen.is_empty();
            match regions::matching_regions(&patterns, &seen) {
                Ok(chosen) => self.selection.regions = regions::region_choices(&patterns, &chosen),
                // No regions were recorded; the ladder says why.
                Err(_) if counters && seen.is_empty() => {}
                Err(_) if reference => self.failure = Some(regions::no_gpu()),
                Err(failure) => self.failure = Some(*failure),
            }
        }
        if counters && self.selection.set.is_none() {
            let named = !self.user_request.ncu.sections.is_empty()
                || !self.user_request.ncu.metrics.is_empty();
            let usual = match self.user_request.target {
                ProfileTarget::Kernel { .. } => "full",
                ProfileTarget::Program(_) => "basic",
            };
            let usual = (!named).then(|| usual.to_owned());
            self.selection.set = self.user_request.ncu.set.clone().or(usual);
        }
        if counters && self.selection.replay_mode.is_empty() {
            let mode = self.user_request.ncu.replay_mode.as_deref().unwrap_or("kernel");
            self.selection.replay_mode = mode.into();
        }
        // Before the counts of the plan become those of the result, which no repetition shares.
        self.selection.fingerprint = fingerprint(&self.user_request, &self.selection, facts);
        count_profiled(&mut self.selection, &builder.profile.launches);
        // ncu prints no times of a launch that it repeats with the whole program.
        let counted = counted_launches(&builder.profile.launches);
        let has_all = |time: &NcuTime| counted > 0 && time.launches == counted;
        self.selection.ncu_time = self.selection.ncu_time.take().filter(has_all);
        // In mode deep and with regions, each kernel or region has a pass of its own.
        if self.user_request.mode == ProfileMode::Ncu && self.selection.regions.is_empty() {
            let options = &self.user_request.ncu;
            let (skip, max) = (options.launch_skip.unwrap_or(0), options.launch_count);
            let gap = limited_launches(skip, max, &builder.profile.launches);
            self.selection.left_out.extend(gap);
        }
        (Some(self.selection), self.failure)
    }
}

/// Replaces the planned number of launches of each chosen kernel by the number that was profiled,
/// and the planned share of the GPU time by that of the kernels profiled. Says where launches are
/// fewer.
fn count_profiled(selection: &mut Selection, launches: &[Launch]) {
    // Those measure ranges, not launches.
    if matches!(selection.replay_mode, ReplayMode::Range | ReplayMode::AppRange) {
        return;
    }
    let counted: Vec<&Launch> = launches.iter().filter(|l| !l.metrics.is_empty()).collect();
    for choice in selection.kernels.iter_mut().filter(|choice| choice.profiled > 0) {
        let (kernel, planned) = (&choice.kernel, choice.profiled);
        choice.profiled = counted.iter().filter(|l| l.kernel == *kernel).count() as u64;
        if choice.profiled >= planned {
            continue;
        }
        let (done, all) = (choice.profiled, choice.launches);
        let [done_were, planned_were] = [done, planned].map(|n| by_number(n, "was", "were"));
        let text = format!(
            "`{kernel}`: {done} of {all} launches {done_were} profiled, although {planned} \
             {planned_were} planned"
        );
        // The plan's own text would contradict it.
        let of_kernel = format!("`{kernel}`: ");
        let is_planned =
            |gap: &&mut Gap| gap.code == "budget_launches" && gap.text.starts_with(&of_kernel);
        match selection.left_out.iter_mut().find(is_planned) {
            Some(gap) => gap.text = text,
            None => selection.left_out.push(Gap { code: "fewer_launches".to_owned(), text }),
        }
    }
    let profiled = selection.kernels.iter().filter(|choice| choice.profiled > 0);
    // A sum of no floats is -0.0.
    let covered = profiled.fold(0.0, |sum, choice| sum + choice.percent);
    if let Some(percent) = &mut selection.covered_percent {
        *percent = covered;
    }
}

fn counted_launches(launches: &[Launch]) -> u64 {
    launches.iter().filter(|launch| !launch.metrics.is_empty()).count() as u64
}

/// Says that the program can have launched more than `--launch-count` let ncu profile.
fn limited_launches(skip: u64, max: Option<u64>, launches: &[Launch]) -> Option<Gap> {
    let max = max?;
    let profiled = counted_launches(launches);
    let skipped = match skip {
        0 => "the first".to_owned(),
        skipped => format!("after {skipped}, the next"),
    };
    (profiled >= max).then(|| Gap {
        code: "launch_count".to_owned(),
        text: format!(
            "only {skipped} {max} {} profiled (`--launch-count {max}`), so shares are of {}",
            by_number(max, "launch was", "launches were"),
            by_number(max, "it", "those")
        ),
    })
}

/// The next step after a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    Plan,
    /// Send no further plan.
    End,
}

/// The step of the request's pass.
fn profile_step(request: &Request) -> String {
    match request.pass {
        0 | 1 => "profile".to_owned(),
        pass => format!("profile-{pass}"),
    }
}

/// Whether the runner's own ranges enclose the user's.
pub(super) fn runner_ranges(request: &Request) -> RunnerRanges {
    match request.target {
        ProfileTarget::Kernel { .. } => RunnerRanges::Present,
        ProfileTarget::Program(_) => RunnerRanges::Absent,
    }
}

fn failure_text(record: &RungRecord) -> String {
    let title = rgpu_plan::tool::reason(&record.code).title;
    match record.message.trim() {
        "" => title.to_owned(),
        words => format!("{title} ({words})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::selection::KernelChoice;

    #[test]
    fn a_priced_pass_is_stopped_after_twice_what_was_expected() {
        let price = |seconds, limit_seconds| Price { seconds, limit_seconds, ..Price::default() };
        assert_eq!(stop_s(&price(17.0, Some(20.4))), 41);
        // One launch that exceeds the budget is profiled anyway.
        assert_eq!(stop_s(&price(30.0, Some(5.0))), 60);
        assert_eq!(stop_s(&price(30.0, None)), 60);
    }

    #[test]
    fn a_pass_tells_how_much_of_its_time_no_choice_of_launches_avoids() {
        let program = rgpu_plan::tool::Program { name: "app".into(), ..Default::default() };
        let mut request = Request::new(ProfileMode::Deep, ProfileTarget::Program(program));
        let facts = HostFacts::default();
        let mut planner = PassPlanner::start_run(&mut request, &facts);
        request.part = PlanPart::Whole;
        let rung = |code: &str, seconds| RungRecord {
            step: "profile".to_owned(),
            rung: RungId::NcuRequested.to_string(),
            argv: vec!["ncu".to_owned()],
            ok: code.is_empty(),
            code: code.to_owned(),
            seconds,
            ..RungRecord::default()
        };
        let line = b"==PROF== Profiling \"a\" - 0: 0%....50%....100% - 10 passes\n";
        let mut end = JobResult { rungs: vec![rung("", 9.0)], ..JobResult::default() };
        for (bytes, at_ms) in [(&line[..30], 1000), (&line[30..], 3500)] {
            end.profiled.add_output("profile", rgpu_protocol::Stream::Stdout, bytes);
            let len = bytes.len() as u64;
            end.profiled.set_time("profile", rgpu_protocol::Stream::Stdout, len, at_ms);
        }
        planner.add_ncu_time(&request, &end);
        assert_eq!(planner.selection.ncu_time, None, "only mode deep has a price");
        planner.selection.price = Some(Price::default());
        let missed = JobResult { rungs: vec![rung("no_kernels", 4.0)], ..JobResult::default() };
        planner.add_ncu_time(&request, &missed);
        planner.add_ncu_time(&request, &end);
        let expected = NcuTime { runs: 2, seconds: 13.0, launches: 1, launches_seconds: 2.5 };
        assert_eq!(planner.selection.ncu_time, Some(expected));
    }

    #[test]
    fn the_selection_says_what_was_profiled_in_the_end() {
        let kernel = |kernel: &str, percent, profiled| KernelChoice {
            kernel: kernel.to_owned(),
            percent,
            launches: 600,
            profiled,
            ..KernelChoice::default()
        };
        let mut selection = Selection {
            kernels: vec![kernel("gemm", 50.0, 10), kernel("add", 20.0, 3), kernel("x", 10.0, 0)],
            covered_percent: Some(70.0),
            left_out: vec![Gap {
                code: "budget_launches".to_owned(),
                text: "`gemm`: 10 of 600 launches, to stay within the budget".to_owned(),
            }],
            ..Selection::default()
        };
        let launch = Launch { kernel: "gemm".to_owned(), ..Launch::from_numbers(&[("m", 1.0)]) };
        let traced = Launch { kernel: "add".to_owned(), ..Launch::default() };
        count_profiled(&mut selection, &[launch.clone(), traced]);
        let counts: Vec<u64> = selection.kernels.iter().map(|choice| choice.profiled).collect();
        assert_eq!((counts, selection.covered_percent), (vec![1, 0, 0], Some(50.0)));
        let texts: Vec<&str> = selection.left_out.iter().map(|gap| gap.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "`gemm`: 1 of 600 launches was profiled, although 10 were planned",
                "`add`: 0 of 600 launches were profiled, although 3 were planned",
            ]
        );
        let limited =
            |skip, max| Some(limited_launches(skip, max, std::slice::from_ref(&launch))?.text);
        assert_eq!((limited(0, None), limited(0, Some(2))), (None, None));
        let told = [limited(0, Some(1)), limited(7, Some(1))].map(Option::unwrap_or_default);
        assert!(told[0].starts_with("only the first 1 launch was profiled"), "{told:?}");
        assert!(told[1].starts_with("only after 7, the next 1 launch was"), "{told:?}");
        // Where none was profiled, the share is no negative zero.
        count_profiled(&mut selection, &[]);
        assert_eq!(
            selection.covered_percent.map(|percent| percent.to_string()).as_deref(),
            Some("0")
        );
    }
}
