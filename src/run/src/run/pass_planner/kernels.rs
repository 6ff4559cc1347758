//! The passes of mode `deep`: names the chosen kernels and launches to ncu exactly.

use std::collections::{BTreeMap, HashSet, VecDeque};

use super::super::assemble::ProfileBuilder;
use super::super::deep::fit::{BudgetFit, DeepChoices, FALLBACK_SET, fit};
use super::super::deep::{self, KernelCandidate, LaunchClass, SetUpLaunches};
use super::super::job::JobResult;
use super::super::regions::{self, PassRegions};
use super::{Pass, PassPlanner, profile_step, runner_ranges, stop_s};
use rgpu_analysis::{set_up, tuning};
use rgpu_model::Launch;
use rgpu_model::error::Result;
use rgpu_model::profile::Gap;
use rgpu_model::selection::{GeometrySum, KernelChoice, Price};
use rgpu_model::timeline::WHOLE_GRAPHS;
use rgpu_plan::tool::{
    KernelFilter, LaunchCost, ProfileTarget, Request, RunnerRanges, function_name,
};

/// The set that is collected unless the user names another.
const USUAL_SET: &str = "full";

/// The set for programs for which [`USUAL_SET`] takes too long.
const CHEAPER_SET: &str = "detailed";

/// An ncu filter that matches exactly the chosen kernels.
#[derive(Clone, Debug)]
pub(super) struct ExactFilter {
    pub(super) filter: String,
    pub(super) base: &'static str,
}

impl PassPlanner {
    /// Chooses the kernels that take the most time and fit the budget, and plans their passes.
    /// `program_s` is the program's time in the survey.
    pub(super) fn choose_kernels(
        &mut self,
        builder: &mut ProfileBuilder,
        program_s: f64,
        say: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let chosen_regions = std::mem::take(&mut self.current);
        let (mut top, mut total, mut set_up_ns) = self.top_kernels(builder, &chosen_regions)?;
        if top.is_empty() && self.user_request.ncu.is_kernel_name_assumed {
            say("none of the program's own kernels ran: those with the most time are taken");
            self.user_request.ncu.kernel_name.clear();
            self.selection.kernel_names.clear();
            (top, total, set_up_ns) = self.top_kernels(builder, &chosen_regions)?;
        }
        self.selection.set_up_ns = set_up_ns;
        if top.is_empty() {
            let text = "no kernel that passes the filters ran".to_owned();
            say(&text);
            self.selection.left_out.push(Gap { code: "no_kernels".to_owned(), text });
            return Ok(());
        }
        let options = &self.user_request.ncu;
        let (skip, count) = (options.launch_skip.unwrap_or(0), options.launch_count);
        for kernel in &mut top {
            kernel.launches =
                kernel.launches.saturating_sub(skip).min(count.unwrap_or(u64::MAX)).max(1);
            let first = usize::try_from(skip).unwrap_or(usize::MAX).min(kernel.durations.len());
            kernel.durations.drain(..first);
        }
        let limit = self.user_request.deep.budget();
        let fit = fit(&top, &self.choices(&top), program_s, limit);
        self.select_sections(&fit);
        let percent = |ns: u64| if total == 0 { 0.0 } else { 100.0 * ns as f64 / total as f64 };
        let (taken, rest) = top.split_at(fit.kernels);
        let in_a_row = launches_in_a_row(taken, &fit.counts, skip, &chosen_regions);
        for (kernel, pass) in taken.iter().zip(&in_a_row) {
            let by_number = !fit.numbers.is_empty();
            let skipped = pass.skip.filter(|_| !by_number).unwrap_or(0);
            let profiled = fit.counts.get(self.selection.kernels.len()).copied().unwrap_or(0);
            let choice = choice(kernel, percent(kernel.total_ns), profiled, skipped);
            self.selection.kernels.push(choice);
        }
        let others = rest.iter().map(|kernel| choice(kernel, percent(kernel.total_ns), 0, 0));
        self.selection.kernels.extend(others);
        let covered = percent(taken.iter().map(|kernel| kernel.total_ns).sum());
        self.selection.covered_percent = Some(covered);
        let inexact = taken.iter().filter(|kernel| kernel.mangled.is_none());
        self.selection.left_out.extend(inexact.map(|kernel| Gap {
            code: "inexact_name".to_owned(),
            text: format!("`{}`: its mangled name is not known, so kernels with the same unmangled name are profiled too", kernel.kernel),
        }));
        self.selection.left_out.extend(fit.left_out.iter().cloned());
        let launches: u64 = fit.counts.iter().sum();
        let cut = taken.iter().zip(&fit.counts).any(|(kernel, count)| kernel.launches > *count);
        let one =
            Pass { regions: chosen_regions, kernels: Some(exact_filter(taken)), ..Pass::default() };
        let passes = match fit.numbers.is_empty() {
            // Numbers that ncu does not find are too large for this run: its first launches are
            // left.
            false => VecDeque::from([Pass {
                count: Some(launches),
                numbers: fit.numbers,
                retry: in_a_row.into_iter().map(Pass::without_chosen_skip).collect(),
                ..one
            }]),
            true if cut || skip > 0 || count.is_some() => in_a_row.into(),
            true => VecDeque::from([one]),
        };
        say(&self.price_text(taken, &fit.counts, &fit.price, covered, passes.len()));
        for gap in &fit.left_out {
            say(&gap.text);
        }
        self.selection.price = Some(fit.price);
        self.set_passes(passes);
        Ok(())
    }

    /// The kernels with the most time in these regions, longest first, the time of all kernels in
    /// nanoseconds, and the time of each kernel's set-up, if these are all regions.
    fn top_kernels(
        &self,
        builder: &ProfileBuilder,
        chosen_regions: &PassRegions,
    ) -> Result<(Vec<KernelCandidate>, u64, BTreeMap<String, u64>)> {
        let ranges = runner_ranges(&self.user_request);
        let launches = &builder.profile.launches;
        let timed = launches.iter().any(|launch| regions::is_in_timed_phase(&launch.region));
        let scope = launches.iter().filter(|launch| {
            (ranges == RunnerRanges::Absent || !timed || regions::is_in_timed_phase(&launch.region))
                && chosen_regions.contains_launch(&launch.region, ranges)
        });
        let scope: Vec<&Launch> = scope.collect();
        let whole = ranges == RunnerRanges::Absent && chosen_regions.regions.is_empty();
        let sums = if whole { builder.profile.kernels.as_slice() } else { &[] };
        // With named regions or kernels the user has chosen what counts.
        let preparing = if whole && self.user_request.ncu.kernel_name.is_empty() {
            set_up::preparing_launches(launches)
        } else {
            HashSet::new()
        };
        let benchmarked = tuning::benchmarked_launches(launches);
        let set_up = SetUpLaunches { benchmarked, preparing };
        let all = deep::candidates(scope.iter().copied(), sums, &set_up);
        // Of the whole program, CUDA graphs count that were traced without their kernels.
        let candidates_ns: u64 = all.iter().map(|kernel| kernel.total_ns).sum();
        let graphs = sums.iter().filter(|sum| sum.kernel == WHOLE_GRAPHS);
        let total = candidates_ns + graphs.map(|sum| sum.total_ns).sum::<u64>();
        let set_up_ns = deep::set_up_times(&all, sums);
        let filter = KernelFilter::new(&self.user_request.ncu)?;
        let matching = deep::without_tuning(all, launches, &builder.profile.kernels)
            .into_iter()
            .filter(|kernel| filter.matches(&kernel.kernel, kernel.mangled.as_deref()));
        Ok((matching.take(self.user_request.deep.top().max(1)).collect(), total, set_up_ns))
    }

    /// The sections and launches to choose from.
    fn choices(&self, top: &[KernelCandidate]) -> DeepChoices {
        let request = &self.user_request;
        let options = &request.ncu;
        let named = options.set.is_some() || self.names_sections();
        let cost = |set: &str| {
            let mut other = request.clone();
            other.ncu.set = Some(set.to_owned());
            other.ncu.sections.clear();
            other.ncu.metrics.clear();
            LaunchCost::estimate(&other, set)
        };
        let cheaper = [(CHEAPER_SET, cost(CHEAPER_SET))];
        let cheaper = if named || request.deep.light { &[][..] } else { &cheaper[..] };
        let asked = LaunchCost::estimate(request, self.usual_set());
        let mut choices = DeepChoices::new(asked, cheaper, cost(FALLBACK_SET));
        let ranges = matches!(options.replay_mode.as_deref(), Some("range" | "app-range"));
        // A colon separates the parts of `--kernel-id`.
        let nameable = !exact_filter(top).filter["regex:".len()..].contains(':');
        let whole = matches!(request.target, ProfileTarget::Program(_))
            && request.patterns.is_empty()
            && request.ncu.nvtx_include.is_empty();
        let user_launches = options.launch_skip.is_some() || options.launch_count.is_some();
        choices.by_number =
            whole && nameable && !ranges && !user_launches && options.ncu_args.is_none();
        if let Some(count) = options.launch_count {
            choices.max_launches = count;
        }
        choices
    }

    /// The set that is collected unless the user names another.
    fn usual_set(&self) -> &'static str {
        if self.user_request.deep.light { FALLBACK_SET } else { USUAL_SET }
    }

    fn names_sections(&self) -> bool {
        let options = &self.user_request.ncu;
        !options.sections.is_empty() || !options.metrics.is_empty()
    }

    /// Records the sections that fit.
    fn select_sections(&mut self, fit: &BudgetFit) {
        let options = &self.user_request.ncu;
        self.selection.set = match fit.set {
            Some(set) => Some(set.to_owned()),
            None if self.names_sections() => options.set.clone(),
            None => Some(options.set.clone().unwrap_or_else(|| self.usual_set().to_owned())),
        };
        if fit.set.is_some() {
            self.selection.sections.clear();
            self.selection.metrics.clear();
        }
    }

    /// The chosen kernels with their price, for the user. `counts` has the launches of each.
    ///
    /// The price is that of an otherwise idle machine: beside other work, passes took up to 2.6
    /// times as long. Only the time after which a program is stopped can be promised.
    fn price_text(
        &self,
        taken: &[KernelCandidate],
        counts: &[u64],
        price: &Price,
        covered: f64,
        passes: usize,
    ) -> String {
        let names: Vec<&str> = taken.iter().map(|kernel| function_name(&kernel.kernel)).collect();
        let launches: u64 = taken.iter().map(|kernel| kernel.launches).sum();
        let sections = match &self.selection.set {
            Some(set) => format!(" (set `{set}`)"),
            None => String::new(),
        };
        let most = match self.user_request.target {
            ProfileTarget::Program(_) => format!("at most {} s", stop_s(price) * passes as u64),
            ProfileTarget::Kernel { .. } => "longer".to_owned(),
        };
        format!(
            "`{}` use {covered:.1} % of the GPU time; {} of their {launches} launches are profiled with ncu{sections}: about {:.0} s on an idle machine, {most} beside other work",
            names.join("`, `"),
            counts.iter().sum::<u64>(),
            price.seconds
        )
    }

    /// Plans other passes if ncu found none of the launches that the current one chose. Returns
    /// whether there are any.
    pub(super) fn plan_retry(
        &mut self,
        request: &Request,
        end: &JobResult,
        say: &mut dyn FnMut(&str),
    ) -> bool {
        let step = profile_step(request);
        let missed = end.last_rung(&step).is_some_and(|r| !r.ok && r.code == "no_kernels");
        let passes = std::mem::take(&mut self.retry);
        if !missed || passes.is_empty() {
            return false;
        }
        let chosen = if request.ncu.launch_numbers.is_empty() {
            "after those that were to be skipped"
        } else {
            "with the chosen numbers"
        };
        say(&format!(
            "ncu matched no launch {chosen}: the first launches of each kernel are profiled instead"
        ));
        // `skip` of the retry is what the user skips.
        for choice in &mut self.selection.kernels {
            let of_choice = |pass: &&Pass| {
                pass.kernels.as_ref().is_some_and(|kernels| kernels.filter == choice.filter)
            };
            if let Some(pass) = passes.iter().find(of_choice) {
                choice.skipped = pass.skip.unwrap_or(0);
            }
        }
        self.pass_count += u32::try_from(passes.len()).unwrap_or(u32::MAX);
        let others = std::mem::take(&mut self.passes);
        self.passes = passes.into_iter().chain(others).collect();
        true
    }
}

/// The choice of a kernel with these numbers of launches.
fn choice(kernel: &KernelCandidate, percent: f64, profiled: u64, skipped: u64) -> KernelChoice {
    KernelChoice {
        kernel: kernel.kernel.clone(),
        filter: exact_filter(std::slice::from_ref(kernel)).filter,
        total_ns: kernel.total_ns,
        percent,
        launches: kernel.launches,
        profiled,
        skipped,
        geometries: kernel.classes.iter().map(geometry).collect(),
    }
}

fn geometry(class: &LaunchClass) -> GeometrySum {
    let (grid, block, shared_bytes) = class.geometry;
    GeometrySum {
        grid,
        block,
        shared_bytes,
        launches: class.numbers.len() as u64,
        total_ns: class.total_ns.round() as u64,
    }
}

/// A pass for each kernel: it skips `skip` launches and those before the most typical ones. If ncu
/// finds none there, another skips only `skip` launches.
fn launches_in_a_row(
    kernels: &[KernelCandidate],
    counts: &[u64],
    skip: u64,
    regions: &PassRegions,
) -> Vec<Pass> {
    let passes = kernels.iter().zip(counts).map(|(kernel, count)| {
        let count = kernel.launches.min(*count);
        let chosen_skip = skip + deep::skip(&kernel.durations, count);
        let first = Pass {
            regions: regions.clone(),
            kernels: Some(exact_filter(std::slice::from_ref(kernel))),
            skip: (skip > 0).then_some(skip),
            count: Some(count),
            ..Pass::default()
        };
        if chosen_skip > skip {
            Pass { skip: Some(chosen_skip), retry: vec![first.clone()], ..first }
        } else {
            first
        }
    });
    passes.collect()
}

/// A filter for exactly these kernels: by mangled name if all are known, since all tools spell
/// those alike, else by bare name.
fn exact_filter(kernels: &[KernelCandidate]) -> ExactFilter {
    let mangled: Option<Vec<&str>> =
        kernels.iter().map(|kernel| kernel.mangled.as_deref()).collect();
    let (names, base) = match mangled {
        Some(names) => (names, "mangled"),
        None => (kernels.iter().map(|kernel| function_name(&kernel.kernel)).collect(), "function"),
    };
    let names: Vec<String> = names.iter().map(|name| rgpu_plan::tool::escaped(name)).collect();
    let filter = match names.as_slice() {
        [only] => format!("regex:^{only}$"),
        names => format!("regex:^({})$", names.join("|")),
    };
    ExactFilter { filter, base }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_plan::kernel::ProfileMode;

    #[test]
    fn the_price_promises_no_more_than_the_time_after_which_a_program_is_stopped() {
        let program = rgpu_plan::tool::Program { name: "app".into(), ..Default::default() };
        let mut request = Request::new(ProfileMode::Deep, ProfileTarget::Program(program));
        let planner = PassPlanner::start_run(&mut request, &Default::default());
        let kernel = KernelCandidate { kernel: "add".into(), launches: 70, ..Default::default() };
        let price = Price { seconds: 17.0, limit_seconds: Some(20.4), ..Price::default() };
        let text =
            |passes| planner.price_text(std::slice::from_ref(&kernel), &[3], &price, 61.25, passes);
        assert_eq!(
            text(1),
            "`add` use 61.2 % of the GPU time; 3 of their 70 launches are profiled with ncu: about \
             17 s on an idle machine, at most 41 s beside other work"
        );
        assert!(text(2).contains("at most 82 s"), "each pass has its own limit");
    }

    /// Inductor benchmarked a kernel 211 times in the survey, and the next run launched it 11
    /// times.
    #[test]
    fn a_pass_that_skips_too_many_launches_is_retried_without_its_skip() {
        let durations: Vec<f64> = (0..222).map(|n| 100_000.0 - 100.0 * f64::from(n)).collect();
        let kernel = KernelCandidate {
            kernel: "triton_poi_fused_gelu_view_6".to_owned(),
            total_ns: durations.iter().sum::<f64>() as u64,
            launches: 222,
            durations,
            ..KernelCandidate::default()
        };
        let passes = |skip| {
            let kernels = std::slice::from_ref(&kernel);
            launches_in_a_row(kernels, &[4], skip, &PassRegions::default())
        };
        let first = passes(0).remove(0);
        assert_eq!(first.skip, Some(109));
        let retry = first.without_chosen_skip();
        assert_eq!((retry.skip, retry.count, retry.retry.len()), (None, Some(4), 0));
        // The user's own skip stays, and a pass without one of its own is what it is.
        assert_eq!(passes(5).remove(0).without_chosen_skip().skip, Some(5));
        let equal = KernelCandidate { durations: vec![5.0; 9], launches: 9, ..kernel.clone() };
        let only = launches_in_a_row(&[equal], &[2], 0, &PassRegions::default()).remove(0);
        assert_eq!((only.skip, only.retry.len()), (None, 0));
        assert_eq!(only.without_chosen_skip().count, Some(2));
    }
}
