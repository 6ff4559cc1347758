//! Steps that ranges of the program mark.

use std::collections::BTreeMap;

use rgpu_model::Trace;
use rgpu_model::account::StepSource;
use rgpu_model::trace::RangeEvent;

use super::FEWEST;
use super::cuts::Cuts;
use super::launches::Launches;

/// Steps that a range marks.
#[derive(Clone, Debug)]
pub(super) struct Marked {
    pub(super) cuts: Cuts,
    /// Whether the name says that it is a step.
    pub(super) says_step: bool,
    /// Whether something happens in nearly each that happens once in a step.
    pub(super) has_event: bool,
    depth: u32,
}

/// The ranges of one name on one thread.
#[derive(Default)]
struct Group<'t> {
    ranges: Vec<&'t RangeEvent>,
}

/// The range that marks the steps: its instances come at least three times, launch work, and what
/// is launched from one start to the next is most of the work. A range that a library makes, or in
/// which less than half of that is launched, is a part of a step. A name that says `step` wins, then
/// the outermost, then the one that begins first. A range of epochs holds steps and comes last.
pub(super) fn find(trace: &Trace, launches: &Launches) -> Option<Marked> {
    let rank = launches.order.first().and_then(|at| trace.work.get(*at as usize)?.rank);
    let mut groups: BTreeMap<(&str, u64), Group> = BTreeMap::new();
    for range in &trace.ranges {
        if range.rank != rank {
            continue;
        }
        let name = trace.names.get(range.name as usize).map_or("", String::as_str);
        let group = groups.entry((without_number(name), range.thread)).or_default();
        group.ranges.push(range);
    }
    let marked = groups.iter().filter_map(|((name, _), group)| group.marked(name, launches));
    marked.min_by_key(|m| {
        let name = m.cuts.name.as_deref().unwrap_or_default();
        (name_rank(name), m.depth, m.cuts.at.first().copied())
    })
}

impl Group<'_> {
    fn marked(&self, name: &str, launches: &Launches) -> Option<Marked> {
        let depth = self.ranges.iter().map(|r| r.depth).min()?;
        let mut outer: Vec<_> = self.ranges.iter().filter(|r| r.depth == depth).collect();
        if outer.len() < FEWEST {
            return None;
        }
        outer.sort_by_key(|r| r.start_ns);
        let position = |ns: u64| launches.host_ns.partition_point(|start| *start < ns);
        let mut at: Vec<usize> = outer.iter().map(|r| position(r.start_ns)).collect();
        let last = outer.last()?;
        let end = last.duration_ns.map(|ns| position(last.start_ns.saturating_add(ns)));
        at.push(end.unwrap_or(launches.len()));
        at.sort_unstable();
        at.dedup();
        let cuts = Cuts { at, source: StepSource::Range, name: Some(shown_name(name)) };
        if cuts.count() < FEWEST || cuts.count() * 2 < outer.len() {
            return None;
        }
        let first = cuts.at.first().copied()?;
        let inside = cuts.gpu_ns(launches);
        let later = launches.gpu_between(first, launches.len());
        let all = launches.gpu_between(0, launches.len());
        if inside < later / 10 * 9 || inside < all / 10 * 3 {
            return None;
        }
        let says_step = name_rank(name) < 2;
        let own_ns = outer.iter().map(|r| {
            let end = r.start_ns.saturating_add(r.duration_ns.unwrap_or(0));
            launches.gpu_between(position(r.start_ns), position(end))
        });
        let own_ns = own_ns.fold(0_u64, u64::saturating_add);
        if !says_step && (is_of_library(name) || own_ns < inside / 2) {
            return None;
        }
        let with_event = cuts.units().filter(|(from, to)| launches.has_event(*from, *to)).count();
        let has_event = with_event * 10 >= cuts.count() * 9;
        Some(Marked { says_step, has_event, depth, cuts })
    }
}

/// How well a name fits a step, best first.
fn name_rank(name: &str) -> u32 {
    let name = name.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    // A `writer` is no iteration.
    let iterates = name.split(|c: char| !c.is_alphabetic()).any(|word| word.starts_with("iter"));
    if name.starts_with("profilerstep") || name == "torch@step" {
        0
    } else if (has(&["step"]) || iterates) && !has(&["optimizer", "opt.", "scheduler", "substep"]) {
        1
    } else if has(&["epoch"]) {
        3
    } else {
        2
    }
}

/// The name as it is shown: of a module of XLA only the module.
fn shown_name(name: &str) -> String {
    let module = name.split_once("#hlo_module=").map(|(_, rest)| rest);
    let module = module.and_then(|rest| rest.split([',', '#']).next());
    module.unwrap_or(name).to_owned()
}

/// Whether the range's domain is a library's that marks its own calls.
fn is_of_library(name: &str) -> bool {
    let libraries =
        ["CCCL@", "NCCL@", "cublas", "cudnn", "cusolver", "cusparse", "cufft", "cutensor"];
    libraries.iter().any(|library| {
        let domain = name.get(..library.len()).unwrap_or_default();
        name.contains('@') && domain.eq_ignore_ascii_case(library)
    })
}

/// A name without the number at its end: `ProfilerStep#12` is `ProfilerStep`.
fn without_number(name: &str) -> &str {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let bare = bare.trim_end_matches(['#', ' ', '_', '-', ':', '=', '/', '(', '[']);
    if bare.is_empty() { name } else { bare }
}
