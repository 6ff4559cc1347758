//! The course of a run that looks first and selects then: a survey of what is there, and the looks
//! that follow from it.
//!
//! ncu knows neither globs nor nested range replay nor which kernels matter. So a first plan sees
//! which regions there are (`--regions`) or which kernels hold the time (`--mode deep`), and the
//! plans after it ask ncu for exactly those, by exact names.

use std::collections::VecDeque;

use rgpu_protocol::{HostFacts, Outcome};

use super::assemble::ProfileBuilder;
use super::deep::{self, FALLBACK_SET, KernelCandidate};
use super::fingerprint::fingerprint;
use super::job::JobResult;
use super::regions::{self, RegionLayer};
use crate::error::{Failure, Result};
use crate::kernel::Mode;
use crate::model::profile::Gap;
use crate::model::selection::KernelChoice;
use crate::model::{Launch, Selection};
use crate::tool::{
    KernelFilter, LaunchCost, PlanPart, Request, RunnerRanges, SeenRegion, Survey, Target,
    function_name,
};

/// Turns a request to the first plan of its run on a host: a survey, where one is needed. Whether
/// the plans after it depend on what that sees.
pub fn first_plan(request: &mut Request, facts: &HostFacts) -> bool {
    PassPlanner::new(request, facts).surveying()
}

/// Where a run stands.
pub(super) struct PassPlanner {
    /// What the user asked, before any look narrowed it.
    asked: Request,
    survey: Option<Survey>,
    looks: VecDeque<Pass>,
    /// How many looks there are in all; 0: the request as it is.
    planned: u32,
    begun: u32,
    /// What the current look is after.
    current: RegionLayer,
    /// Regions whose launches an earlier look has brought one by one.
    covered: Vec<SeenRegion>,
    selection: Selection,
    /// Why nothing could be selected.
    failure: Option<Failure>,
}

/// One plan's main step.
#[derive(Clone, Debug, Default)]
struct Pass {
    regions: RegionLayer,
    kernels: Option<ExactFilter>,
    skip: Option<u64>,
    count: Option<u64>,
}

/// Kernels by an exact filter.
#[derive(Clone, Debug)]
struct ExactFilter {
    filter: String,
    base: &'static str,
}

impl PassPlanner {
    /// The course of a request on a host; the request is changed to the first plan's.
    pub(super) fn new(request: &mut Request, facts: &HostFacts) -> Self {
        let asked = request.clone();
        let counters = matches!(request.mode, Mode::Ncu | Mode::Deep) && !facts.gpus.is_empty();
        let survey = match request.mode {
            Mode::Deep => Some(Survey::Kernels),
            _ if !request.patterns.is_empty() => Some(Survey::Ranges),
            _ => None,
        };
        let survey = survey.filter(|_| counters);
        if let Some(survey) = survey {
            request.part = PlanPart::Survey(survey);
        }
        let options = &asked.ncu;
        let selection = Selection {
            kernel_names: options.kernel_name.clone(),
            kernel_excludes: options.kernel_exclude.clone(),
            sections: options.sections.clone(),
            metrics: options.metrics.clone(),
            ..Selection::default()
        };
        Self {
            asked,
            survey,
            looks: VecDeque::new(),
            planned: 0,
            begun: 0,
            current: RegionLayer::default(),
            covered: Vec::new(),
            selection,
            failure: None,
        }
    }

    /// Whether the plan at hand is the survey.
    pub(super) fn surveying(&self) -> bool {
        self.survey.is_some()
    }

    /// Takes note that no survey can be made on this host.
    pub(super) fn no_survey(&mut self, request: &mut Request, why: &str) -> NextStep {
        let survey = self.survey.take();
        self.selection
            .left_out
            .push(Gap { code: "no_survey".to_owned(), text: format!("no first pass: {why}") });
        request.part = PlanPart::Whole;
        if survey == Some(Survey::Kernels) && self.asked.patterns.is_empty() {
            return NextStep::Plan;
        }
        match regions::unseen(&self.asked.patterns) {
            Ok(exact) => {
                self.choose(&self.asked.patterns.clone(), exact);
                self.layers();
                self.look(request)
            }
            Err(failure) => {
                self.failure = Some(*failure);
                NextStep::End
            }
        }
    }

    /// What follows a plan that ended.
    pub(super) fn next(
        &mut self,
        request: &mut Request,
        builder: &mut ProfileBuilder,
        end: &JobResult,
        say: &mut dyn FnMut(&str),
    ) -> Result<NextStep> {
        if self.survey.is_none() {
            self.after_look(request, end);
            return Ok(self.look(request));
        }
        // A build or a check that failed ends the run.
        if !matches!(end.outcome, Some(Outcome::Done)) {
            return Ok(NextStep::End);
        }
        if !end.step_ok("survey") {
            let why = end.last_rung("survey").map_or("nothing to make it with", |r| &r.words);
            let why = why.to_owned();
            return Ok(self.no_survey(request, &why));
        }
        let survey = self.survey.take();
        request.part = PlanPart::Whole;
        let ours = ours(&self.asked);
        let seen = regions::seen(&builder.profile.regions, ours);
        self.selection.regions_seen = seen.iter().map(SeenRegion::display).collect();
        if !self.asked.patterns.is_empty() {
            match regions::choose(&self.asked.patterns, &seen) {
                Ok(chosen) => self.choose(&self.asked.patterns.clone(), chosen),
                Err(failure) => {
                    self.failure = Some(*failure);
                    return Ok(NextStep::End);
                }
            }
        }
        match survey {
            Some(Survey::Kernels) => {
                let program_s = end.rungs.iter().rev().find(|r| r.ok).map_or(1.0, |r| r.seconds);
                self.deepen(builder, program_s, say)?;
                builder.keep_survey();
            }
            _ => self.layers(),
        }
        Ok(self.look(request))
    }

    fn choose(&mut self, patterns: &[crate::tool::RegionPattern], chosen: Vec<SeenRegion>) {
        self.selection.regions = regions::choices(patterns, &chosen);
        self.current = RegionLayer { regions: chosen };
    }

    /// Looks by region: one for kernel replay; as many as ranges are nested for range replay,
    /// which measures each range as a whole.
    fn layers(&mut self) {
        let chosen = std::mem::take(&mut self.current);
        let ranges = matches!(self.asked.ncu.replay_mode.as_deref(), Some("range" | "app-range"));
        let layers = if ranges { chosen.antichains() } else { vec![chosen] };
        let looks = layers.into_iter().map(|regions| Pass { regions, ..Pass::default() });
        self.plan(looks.collect());
    }

    fn plan(&mut self, looks: VecDeque<Pass>) {
        self.planned = u32::try_from(looks.len()).unwrap_or(u32::MAX);
        self.looks = looks;
    }

    /// Turns the request to the next look.
    fn look(&mut self, request: &mut Request) -> NextStep {
        // A region whose launches are here one by one needs no look of its own.
        while let Some(look) = self.looks.pop_front() {
            self.begun += 1;
            let inside = |region: &SeenRegion| self.covered.iter().any(|c| c.holds(region));
            if !look.regions.regions.is_empty() && look.regions.regions.iter().all(inside) {
                continue;
            }
            request.look = if self.planned > 1 { self.begun } else { 0 };
            request.regions.clone_from(&look.regions.regions);
            if let Some(chosen) = look.kernels {
                request.ncu.kernel_name = vec![chosen.filter];
                request.ncu.kernel_name_base = Some(chosen.base.to_owned());
                request.ncu.kernel_exclude.clear();
            }
            if look.count.is_some() {
                request.ncu.launch_skip = look.skip;
                request.ncu.launch_count = look.count;
            }
            if let Some(set) = self.selection.set.as_ref().filter(|_| self.asked.mode == Mode::Deep)
            {
                request.ncu.set = Some(set.clone());
            }
            self.current = look.regions;
            return NextStep::Plan;
        }
        NextStep::End
    }

    /// Takes note of how a look ended.
    fn after_look(&mut self, request: &Request, end: &JobResult) {
        let step = match request.look {
            0 | 1 => "profile".to_owned(),
            look => format!("profile-{look}"),
        };
        let names = self.current.regions.iter().map(SeenRegion::display).collect::<Vec<_>>();
        let what = if names.is_empty() { request.ncu.kernel_name.clone() } else { names };
        let what = what.join("`, `");
        let failed = end.rungs.iter().find(|r| r.step == step && !r.ok);
        let mode = self.asked.ncu.replay_mode.as_deref().unwrap_or("kernel");
        match end.rung_of(&step) {
            Some("ncu.asked" | "ncu.sudo") => self.selection.replay_mode = mode.to_owned(),
            Some(rung) if rung.starts_with("ncu.") => {
                let became = if rung == "ncu.app_range" { "app-range" } else { "kernel" };
                self.selection.replay_mode = became.to_owned();
                if became == "kernel" {
                    self.covered.extend(self.current.regions.iter().cloned());
                }
                if became != mode
                    && let Some(failed) = failed
                {
                    let text = format!(
                        "`{what}`: measured by {became} replay, since by {mode} replay {}",
                        words(failed)
                    );
                    self.selection.left_out.push(Gap { code: failed.code.clone(), text });
                }
            }
            Some(_) => {}
            None if !what.is_empty() => {
                let (code, why) =
                    failed.map_or(("missing", String::new()), |r| (r.code.as_str(), words(r)));
                let text = format!("`{what}`: no counters: {why}");
                self.selection.left_out.push(Gap { code: code.to_owned(), text });
            }
            None => {}
        }
    }

    /// Chooses the kernels that hold the time, as far as the budget goes.
    fn deepen(
        &mut self,
        builder: &mut ProfileBuilder,
        program_s: f64,
        say: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let chosen_regions = std::mem::take(&mut self.current);
        let ours = ours(&self.asked);
        let timed = builder.profile.launches.iter().any(|launch| regions::is_timed(&launch.region));
        let scope: Vec<&Launch> = builder
            .profile
            .launches
            .iter()
            .filter(|launch| {
                ours == RunnerRanges::None || !timed || regions::is_timed(&launch.region)
            })
            .filter(|launch| chosen_regions.has(&launch.region, ours))
            .collect();
        let whole = ours == RunnerRanges::None && chosen_regions.regions.is_empty();
        let sums = if whole { builder.profile.kernels.as_slice() } else { &[] };
        let all = deep::candidates(scope.iter().copied(), sums);
        let total: u64 = all.iter().map(|kernel| kernel.total_ns).sum();
        let filter = KernelFilter::of(&self.asked.ncu)?;
        let mut top: Vec<KernelCandidate> = all
            .into_iter()
            .filter(|kernel| filter.lets(&kernel.kernel, kernel.mangled.as_deref()))
            .take(self.asked.deep.top.max(1))
            .collect();
        if top.is_empty() {
            let text = "no kernel ran that the filters let through".to_owned();
            say(&text);
            self.selection.left_out.push(Gap { code: "no_kernels".to_owned(), text });
            return Ok(());
        }
        let (skip, count) = (self.asked.ncu.launch_skip.unwrap_or(0), self.asked.ncu.launch_count);
        for kernel in &mut top {
            kernel.launches =
                kernel.launches.saturating_sub(skip).min(count.unwrap_or(u64::MAX)).max(1);
            let first = usize::try_from(skip).unwrap_or(usize::MAX).min(kernel.durations.len());
            kernel.durations.drain(..first);
        }
        let (costs, usual) = self.costs();
        let fit = deep::fit(&top, costs, program_s, self.asked.deep.budget);
        let named = !self.asked.ncu.sections.is_empty() || !self.asked.ncu.metrics.is_empty();
        self.selection.set = match (fit.least, named) {
            (true, _) => Some(FALLBACK_SET.to_owned()),
            (false, true) => self.asked.ncu.set.clone(),
            (false, false) => Some(usual),
        };
        if fit.least {
            self.selection.sections.clear();
            self.selection.metrics.clear();
        }
        let percent = |ns: u64| if total == 0 { 0.0 } else { 100.0 * ns as f64 / total as f64 };
        for (place, kernel) in top.iter().enumerate() {
            let profiled = if place < fit.kernels { kernel.launches.min(fit.cap) } else { 0 };
            let skipped = if profiled > 0 { deep::skip(&kernel.durations, profiled) } else { 0 };
            self.selection.kernels.push(KernelChoice {
                kernel: kernel.kernel.clone(),
                filter: exact(std::slice::from_ref(kernel)).filter,
                total_ns: kernel.total_ns,
                percent: percent(kernel.total_ns),
                launches: kernel.launches,
                profiled,
                skipped: skipped + if profiled > 0 { skip } else { 0 },
            });
        }
        let taken = &top[..fit.kernels];
        let covered = percent(taken.iter().map(|kernel| kernel.total_ns).sum());
        self.selection.covered_percent = Some(covered);
        let inexact = taken.iter().filter(|kernel| kernel.mangled.is_none());
        self.selection.left_out.extend(inexact.map(|kernel| Gap {
            code: "inexact_name".to_owned(),
            text: format!("`{}`: its mangled name is not known, so others of the same bare name are taken with it", kernel.kernel),
        }));
        self.selection.left_out.extend(fit.left_out.iter().cloned());
        say(&format!(
            "`{}` hold {covered:.1} % of the GPU time: looked at closely, about {:.0} s",
            taken.iter().map(|k| function_name(&k.kernel)).collect::<Vec<_>>().join("`, `"),
            fit.price.seconds
        ));
        for gap in &fit.left_out {
            say(&gap.text);
        }
        self.selection.price = Some(fit.price);
        let limited =
            taken.iter().any(|kernel| kernel.launches > fit.cap) || skip > 0 || count.is_some();
        let looks = match limited {
            false => {
                let kernels = Some(exact(taken));
                VecDeque::from([Pass { regions: chosen_regions, kernels, ..Pass::default() }])
            }
            // Each kernel has launches of its own to pass over.
            true => taken
                .iter()
                .zip(&self.selection.kernels)
                .map(|(kernel, choice)| Pass {
                    regions: chosen_regions.clone(),
                    kernels: Some(exact(std::slice::from_ref(kernel))),
                    skip: (choice.skipped > 0).then_some(choice.skipped),
                    count: Some(choice.profiled),
                })
                .collect(),
        };
        self.plan(looks);
        Ok(())
    }

    /// The cost of a launch with what was asked and with the least set, and the set that is usual.
    fn costs(&self) -> ((LaunchCost, Option<LaunchCost>), String) {
        let usual = match (&self.asked.ncu.set, self.asked.deep.light) {
            (Some(set), _) => set.clone(),
            (None, true) => FALLBACK_SET.to_owned(),
            (None, false) => "full".to_owned(),
        };
        let asked = LaunchCost::of(&self.asked, &usual);
        let mut least = self.asked.clone();
        least.ncu.set = Some(FALLBACK_SET.to_owned());
        least.ncu.sections.clear();
        least.ncu.metrics.clear();
        let least = LaunchCost::of(&least, FALLBACK_SET);
        ((asked, (least.passes < asked.passes).then_some(least)), usual)
    }

    /// The selection for the profile, and why it could not be made. Modes that record regions
    /// anyway are held against the patterns at the end.
    pub(super) fn finish(
        mut self,
        builder: &ProfileBuilder,
        facts: &HostFacts,
    ) -> (Option<Selection>, Option<Failure>) {
        let counters = matches!(self.asked.mode, Mode::Ncu | Mode::Deep);
        let patterns = std::mem::take(&mut self.asked.patterns);
        if !counters && patterns.is_empty() {
            return (None, None);
        }
        if !patterns.is_empty() && self.selection.regions.is_empty() && self.failure.is_none() {
            let seen = regions::seen(&builder.profile.regions, ours(&self.asked));
            self.selection.regions_seen = seen.iter().map(SeenRegion::display).collect();
            // A kernel's ranges are opened around its launches, and there were none.
            let kernel = matches!(self.asked.target, Target::Kernel { .. });
            let reference = kernel && facts.gpus.is_empty() && seen.is_empty();
            match regions::choose(&patterns, &seen) {
                Ok(chosen) => self.selection.regions = regions::choices(&patterns, &chosen),
                // Nothing recorded regions: the ladder says why.
                Err(_) if counters && seen.is_empty() => {}
                Err(_) if reference => self.failure = Some(regions::no_gpu()),
                Err(failure) => self.failure = Some(*failure),
            }
        }
        if counters && self.selection.set.is_none() {
            let named = !self.asked.ncu.sections.is_empty() || !self.asked.ncu.metrics.is_empty();
            let usual = match self.asked.target {
                Target::Kernel { .. } => "full",
                Target::Program(_) => "basic",
            };
            let usual = (!named).then(|| usual.to_owned());
            self.selection.set = self.asked.ncu.set.clone().or(usual);
        }
        if counters && self.selection.replay_mode.is_empty() {
            let mode = self.asked.ncu.replay_mode.as_deref().unwrap_or("kernel");
            self.selection.replay_mode = mode.to_owned();
        }
        self.selection.fingerprint = fingerprint(&self.asked, &self.selection, facts);
        (Some(self.selection), self.failure)
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Another plan.
    Plan,
    /// None.
    End,
}

/// Whether the runner's own ranges stand around the user's.
pub(super) fn ours(request: &Request) -> RunnerRanges {
    match request.target {
        Target::Kernel { .. } => RunnerRanges::Around,
        Target::Program(_) => RunnerRanges::None,
    }
}

fn words(record: &rgpu_protocol::RungRecord) -> String {
    let title = crate::tool::reason(&record.code).title;
    match record.words.trim() {
        "" => title.to_owned(),
        words => format!("{title} ({words})"),
    }
}

/// A filter for exactly these kernels: by their mangled names where all are known, since those are
/// spelled alike by every tool, else by their bare names.
fn exact(kernels: &[KernelCandidate]) -> ExactFilter {
    let mangled: Option<Vec<&str>> =
        kernels.iter().map(|kernel| kernel.mangled.as_deref()).collect();
    let (names, base) = match mangled {
        Some(names) => (names, "mangled"),
        None => (kernels.iter().map(|kernel| function_name(&kernel.kernel)).collect(), "function"),
    };
    let names: Vec<String> = names.iter().map(|name| crate::tool::escaped(name)).collect();
    let filter = match names.as_slice() {
        [only] => format!("regex:^{only}$"),
        names => format!("regex:^({})$", names.join("|")),
    };
    ExactFilter { filter, base }
}
