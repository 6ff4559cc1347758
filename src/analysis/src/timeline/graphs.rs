//! Tells which launches belong to CUDA graphs, so that they are not told to use one.

use std::collections::HashSet;

use rgpu_model::timeline::WHOLE_GRAPHS;
use rgpu_model::trace::TraceWork;
use rgpu_model::{Launch, Profile, Trace};

/// How a launch relates to the program's CUDA graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GraphUse {
    /// It belongs to one, or it is one.
    Inside,
    /// It does not, but the program replays graphs.
    Beside,
    /// The program is not known to replay any.
    Absent,
}

/// The use of CUDA graphs, as a profile and its trace show it.
#[derive(Default)]
pub(crate) struct Graphs {
    /// Ids of the launches that the trace has, and of those among them that belong to graphs.
    traced: HashSet<u32>,
    inside: HashSet<u32>,
    /// Names of the kernels of graphs.
    kernels: HashSet<String>,
    /// Whether the program launches graphs.
    pub(super) are_replayed: bool,
}

impl Graphs {
    pub(crate) fn new(profile: &Profile, trace: Option<&Trace>) -> Graphs {
        let whole = profile.kernels.iter().any(|kernel| kernel.kernel == WHOLE_GRAPHS);
        let mut graphs = Graphs { are_replayed: whole, ..Graphs::default() };
        let Some(trace) = trace else { return graphs };
        let name = |index: u32| trace.names.get(index as usize).map_or("", String::as_str);
        graphs.are_replayed |= trace.calls.iter().any(|call| is_graph_launch(name(call.name)));
        let in_graph = |work: &&TraceWork| {
            let call = work.call.and_then(|call| trace.calls.get(call as usize));
            call.is_some_and(|call| is_graph_launch(name(call.name)))
        };
        for work in trace.work.iter().filter(in_graph) {
            graphs.inside.extend(work.launch);
            if !graphs.kernels.contains(name(work.name)) {
                graphs.kernels.insert(name(work.name).to_owned());
            }
        }
        graphs.traced = trace.work.iter().filter_map(|work| work.launch).collect();
        graphs
    }

    /// Whether a kernel of this name runs in graphs.
    pub(super) fn has_kernel(&self, name: &str) -> bool {
        self.kernels.contains(name)
    }

    /// How a launch relates to graphs. A launch that another tool than the trace's profiled, alone
    /// and by its kernel's name, is one of a graph if the kernel is.
    pub(crate) fn use_of(&self, launch: &Launch) -> GraphUse {
        let by_name = !self.traced.contains(&launch.id) && self.kernels.contains(&launch.kernel);
        match self.inside.contains(&launch.id) || by_name || is_whole_graph(launch) {
            true => GraphUse::Inside,
            false if self.are_replayed => GraphUse::Beside,
            false => GraphUse::Absent,
        }
    }
}

/// Whether a call launches a CUDA graph.
pub(super) fn is_graph_launch(call: &str) -> bool {
    call.contains("GraphLaunch")
}

/// Whether a result of ncu is a whole graph.
fn is_whole_graph(launch: &Launch) -> bool {
    launch.kernel.starts_with(rgpu_model::launch::GRAPH_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::timeline::KernelSum;
    use rgpu_model::trace::{CallEvent, TraceWorkKind};

    fn launch(id: u32, kernel: &str) -> Launch {
        Launch { id, kernel: kernel.to_owned(), ..Launch::default() }
    }

    /// Kernel `a` once alone and once in a graph, and `b` alone.
    fn trace() -> Trace {
        let work = |name, call, launch| TraceWork {
            kind: TraceWorkKind::Kernel,
            name,
            start_ns: 0,
            duration_ns: 10,
            device: 0,
            stream: 7,
            bytes: None,
            pageable: None,
            call: Some(call),
            launch: Some(launch),
            regions: Default::default(),
            rank: None,
            shape: None,
        };
        let call = |name| CallEvent {
            name,
            start_ns: 0,
            duration_ns: 1,
            thread: 1,
            waits: false,
            rank: None,
        };
        Trace {
            names: ["a", "b", "cudaLaunchKernel", "cuGraphLaunch"].map(str::to_owned).to_vec(),
            work: vec![work(0, 0, 0), work(0, 1, 1), work(1, 0, 2)],
            calls: vec![call(2), call(3)],
            ..Trace::default()
        }
    }

    #[test]
    fn a_launch_is_inside_of_a_graph_by_its_call_and_elsewhere_by_its_kernel() {
        let graphs = Graphs::new(&Profile::default(), Some(&trace()));
        assert_eq!(graphs.use_of(&launch(0, "a")), GraphUse::Beside, "its warm-up");
        assert_eq!(graphs.use_of(&launch(1, "a")), GraphUse::Inside);
        assert_eq!(graphs.use_of(&launch(2, "b")), GraphUse::Beside);
        // Launches that ncu profiled, beside those of the trace.
        assert_eq!(graphs.use_of(&launch(3, "a")), GraphUse::Inside);
        assert_eq!(graphs.use_of(&launch(4, "b")), GraphUse::Beside);
    }

    #[test]
    fn graphs_are_known_without_a_trace_of_their_kernels() {
        let alone = Graphs::new(&Profile::default(), None);
        assert_eq!(alone.use_of(&launch(0, "a")), GraphUse::Absent);
        assert_eq!(alone.use_of(&launch(0, "CUDA graph of a, b")), GraphUse::Inside);
        let whole = KernelSum { kernel: WHOLE_GRAPHS.to_owned(), ..KernelSum::default() };
        let profile = Profile { kernels: vec![whole], ..Profile::default() };
        assert_eq!(Graphs::new(&profile, None).use_of(&launch(0, "a")), GraphUse::Beside);
    }
}
