//! The steps of a window with their graph, as causes look at them.

use std::sync::OnceLock;

use rgpu_model::Trace;
use rgpu_model::account::AccountCause;
use rgpu_model::finding::CodePlace;
use rgpu_model::trace::{CallEvent, TraceWork, TraceWorkKind};

use crate::class::{self, KernelFamily};
use crate::code::OwnCode;
use crate::facts::GpuFacts;
use crate::graph::Graph;
use crate::host_calls::HostCalls;
use crate::path::Segment;
use crate::steps::{Step, Steps};

/// What a cause looks at.
pub struct View<'t> {
    /// The trace.
    pub trace: &'t Trace,
    /// The GPU's peaks.
    pub facts: &'t GpuFacts,
    /// The steps.
    pub steps: &'t Steps,
    /// The graph of the window's steps.
    pub graph: &'t Graph<'t>,
    /// The critical path through the window.
    pub path: &'t [Segment],
    /// Class by index of a name.
    classes: Vec<AccountCause>,
    /// The host's calls, computed when first asked for.
    host: OnceLock<HostCalls>,
    /// The user's own code, looked at when first asked for.
    code: OnceLock<OwnCode<'t>>,
    /// Author by index of a name.
    families: Vec<KernelFamily>,
}

impl<'t> View<'t> {
    /// The view of a window.
    pub fn new(
        trace: &'t Trace,
        facts: &'t GpuFacts,
        steps: &'t Steps,
        graph: &'t Graph<'t>,
        path: &'t [Segment],
    ) -> View<'t> {
        let names = trace.names.iter().map(|name| class::class_and_family(name));
        let (classes, families) = names.unzip();
        let (host, code) = (OnceLock::new(), OnceLock::new());
        View { trace, facts, steps, graph, path, classes, families, host, code }
    }

    /// The steps of the window.
    pub fn window(&self) -> &'t [Step] {
        self.steps.all.get(self.steps.window.clone()).unwrap_or_default()
    }

    /// Number of steps in the window.
    pub fn step_count(&self) -> f64 {
        self.window().len().max(1) as f64
    }

    /// All work of the window.
    pub fn work(&self) -> impl Iterator<Item = (u32, &'t TraceWork)> + '_ {
        let all = self.window().iter().flat_map(|step| &step.work);
        all.filter_map(|at| Some((*at, self.trace.work.get(*at as usize)?)))
    }

    /// The name of a piece of work.
    pub fn name(&self, work: &TraceWork) -> &'t str {
        self.trace.names.get(work.name as usize).map_or("", String::as_str)
    }

    /// The class of a piece of work.
    pub fn class(&self, work: &TraceWork) -> AccountCause {
        match work.kind {
            TraceWorkKind::Kernel => {
                self.classes.get(work.name as usize).cloned().unwrap_or_default()
            }
            _ => class::of_work(self.trace, work),
        }
    }

    /// Who wrote a kernel; the default for other work.
    pub fn family(&self, work: &TraceWork) -> KernelFamily {
        let known = self.families.get(work.name as usize).copied();
        known.filter(|_| work.kind == TraceWorkKind::Kernel).unwrap_or_default()
    }

    /// Whether the window has a kernel of this author.
    pub fn has_family(&self, family: KernelFamily) -> bool {
        self.work().any(|(_, work)| self.family(work) == family)
    }

    /// The calls of the window's process from the window's first launch to its last, as indexes
    /// into the trace's calls, in order of start.
    pub fn calls(&self) -> impl Iterator<Item = (u32, &'t CallEvent)> + '_ {
        let calls = self.window().iter().flat_map(|step| &step.work);
        let calls = calls.filter_map(|at| self.trace.work.get(*at as usize)?.call);
        let (first, last) = calls.fold((u32::MAX, 0), |(a, b), at| (a.min(at), b.max(at)));
        let range = first as usize..(last as usize + 1).max(first as usize);
        let listed = self.trace.calls.get(range).unwrap_or_default();
        listed.iter().zip(first..).map(|(call, at)| (at, call))
    }

    /// The outermost calls of the window's process, with the host's time before each.
    pub fn host(&self) -> &HostCalls {
        self.host.get_or_init(|| HostCalls::new(self))
    }

    /// Where in the user's own code these calls and this work come from, most time first; `calls`
    /// and `work` are indexes into the trace's. Without work, the host's own time before a call
    /// counts as well.
    pub fn places(&self, work: &[u32], calls: &[u32]) -> Vec<CodePlace> {
        let ns = |call: u32| self.trace.calls.get(call as usize).map_or(0, |c| c.duration_ns);
        let of_work = work.iter().filter_map(|at| {
            let work = self.trace.work.get(*at as usize)?;
            Some((work.call?, work.duration_ns))
        });
        let host = &self.host().all;
        let before_ns = |at: u32| {
            let known = host.binary_search_by_key(&at, |call| call.at).ok();
            known.and_then(|known| host.get(known)).map_or(0, |call| call.before_path_ns)
        };
        let is_host = work.is_empty();
        let of_calls = calls.iter().map(|at| {
            let before_ns = if is_host { before_ns(*at) } else { 0 };
            (*at, ns(*at).saturating_add(before_ns))
        });
        let code = self.code.get_or_init(|| OwnCode::new(self.trace));
        code.places(of_work.chain(of_calls).map(|(call, ns)| (call, ns as f64)))
    }

    /// Mean time of the window's steps in nanoseconds; 0 for an empty window.
    pub fn step_ns(&self) -> f64 {
        let ends = self.window().first().zip(self.window().last());
        let ns = ends.map_or(0, |(first, last)| last.end_ns.saturating_sub(first.start_ns));
        ns as f64 / self.step_count()
    }

    /// Nanoseconds of a step in which the GPU works, by the union of the window's work; at most a
    /// step.
    pub fn busy_ns(&self) -> f64 {
        let mut spans: Vec<(u64, u64)> =
            self.work().map(|(_, work)| (work.start_ns, work.end_ns())).collect();
        spans.sort_unstable();
        let (mut busy_ns, mut until_ns) = (0_u64, 0_u64);
        for (start_ns, end_ns) in spans {
            busy_ns = busy_ns.saturating_add(end_ns.saturating_sub(start_ns.max(until_ns)));
            until_ns = until_ns.max(end_ns);
        }
        (busy_ns as f64 / self.step_count()).min(self.step_ns())
    }

    /// The name of a call.
    pub fn call_name(&self, call: &CallEvent) -> &'t str {
        self.trace.names.get(call.name as usize).map_or("", String::as_str)
    }

    /// Nanoseconds of a step on the critical path for which `is_it` holds.
    pub fn path_ns(&self, is_it: impl Fn(&Segment) -> bool) -> f64 {
        let ns: u64 = self.path.iter().filter(|s| is_it(s)).map(|s| s.end_ns - s.start_ns).sum();
        ns as f64 / self.step_count()
    }
}
