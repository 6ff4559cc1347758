//! What a call does, and what a program is written in, by names.

use crate::view::View;

/// What a call into CUDA does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Launches a kernel.
    Launch,
    /// Copies memory.
    Copy,
    /// Fills memory.
    Fill,
    /// Waits for a stream, an event or the device.
    Wait,
    /// Asks whether a stream or an event is done.
    Query,
    /// Records an event.
    Record,
    /// Lets a stream wait for an event.
    StreamWait,
    /// Allocates memory of the GPU.
    Allocate,
    /// Frees memory of the GPU, or gives that of a pool back.
    Free,
    /// Allocates, locks, unlocks or frees memory of the host.
    Pin,
    /// Launches a CUDA graph.
    GraphLaunch,
    /// Begins to capture a CUDA graph.
    BeginCapture,
    /// Ends a capture, makes, instantiates or updates a CUDA graph.
    GraphMake,
    /// Destroys a CUDA graph.
    GraphDestroy,
    /// Loads, links or unloads code.
    Load,
    /// Anything else.
    #[default]
    Other,
}

/// Parts of lower-case names of calls and what such calls do; the first that fits counts.
const KINDS: &[(&str, CallKind)] = &[
    ("graphlaunch", CallKind::GraphLaunch),
    ("begincapture", CallKind::BeginCapture),
    ("endcapture", CallKind::GraphMake),
    ("graphinstantiate", CallKind::GraphMake),
    ("graphcreate", CallKind::GraphMake),
    ("graphclone", CallKind::GraphMake),
    ("graphadd", CallKind::GraphMake),
    ("graphexecdestroy", CallKind::GraphDestroy),
    ("graphdestroy", CallKind::GraphDestroy),
    ("graphexec", CallKind::GraphMake),
    ("graphupload", CallKind::GraphMake),
    ("launchkernel", CallKind::Launch),
    ("launchcooperativekernel", CallKind::Launch),
    ("culaunch", CallKind::Launch),
    ("cudalaunch", CallKind::Launch),
    ("synchronize", CallKind::Wait),
    ("eventquery", CallKind::Query),
    ("streamquery", CallKind::Query),
    ("eventrecord", CallKind::Record),
    ("streamwaitevent", CallKind::StreamWait),
    ("hostregister", CallKind::Pin),
    ("hostunregister", CallKind::Pin),
    ("hostalloc", CallKind::Pin),
    ("mallochost", CallKind::Pin),
    ("memallochost", CallKind::Pin),
    ("freehost", CallKind::Pin),
    ("mempooltrim", CallKind::Free),
    ("memcpy", CallKind::Copy),
    ("memset", CallKind::Fill),
    ("moduleload", CallKind::Load),
    ("moduleunload", CallKind::Load),
    ("libraryload", CallKind::Load),
    ("libraryunload", CallKind::Load),
    ("culink", CallKind::Load),
    ("cudamalloc", CallKind::Allocate),
    ("cumemalloc", CallKind::Allocate),
    ("cumemcreate", CallKind::Allocate),
    ("cumemmap", CallKind::Allocate),
    ("cumemaddressreserve", CallKind::Allocate),
    ("cumemsetaccess", CallKind::Allocate),
    ("cudafree", CallKind::Free),
    ("cumemfree", CallKind::Free),
    ("cumemunmap", CallKind::Free),
    ("cumemrelease", CallKind::Free),
    ("cumemaddressfree", CallKind::Free),
];

impl CallKind {
    /// By the name of the call, as the tool gives it: `cudaLaunchKernel_v7000`.
    pub fn of(name: &str) -> CallKind {
        let name = name.to_ascii_lowercase();
        // `cuMemSetAccess` holds "memset", and `cudaFreeArray` is no pool.
        if name.starts_with("cumemsetaccess") {
            return CallKind::Allocate;
        }
        let kind = KINDS.iter().find(|(part, _)| name.contains(part));
        kind.map_or(CallKind::Other, |(_, kind)| *kind)
    }

    /// Whether it allocates or frees memory of the GPU or the host.
    pub fn is_allocation(self) -> bool {
        matches!(self, CallKind::Allocate | CallKind::Free | CallKind::Pin)
    }
}

/// What a program is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framework {
    /// PyTorch.
    Torch,
    /// JAX, or another front end of XLA.
    Jax,
    /// CuPy.
    Cupy,
    /// CUDA C++, or not known.
    #[default]
    Cuda,
}

impl Framework {
    /// By the names of the window's kernels, the trace's regions and its operators.
    pub fn of(view: &View<'_>) -> Framework {
        let mut names = vec![false; view.trace.names.len()];
        for (_, work) in view.work() {
            if let Some(is_used) = names.get_mut(work.name as usize) {
                *is_used = true;
            }
        }
        let used = view.trace.names.iter().zip(&names).filter(|(_, is_used)| **is_used);
        let (mut is_jax, mut is_cupy) = (false, false);
        for (name, _) in used {
            if name.contains("at::native") || name.contains("at::cuda") || name.contains("c10::") {
                return Framework::Torch;
            }
            is_cupy |= name.contains("cupy");
            is_jax |= is_of_xla(name);
        }
        let is_operator = |event: &rgpu_model::trace::HostEvent| {
            event.operator.as_ref().is_some_and(|operator| operator.starts_with("aten::"))
        };
        if view.trace.host.iter().take(10_000).any(is_operator) {
            return Framework::Torch;
        }
        let mut regions = view.trace.regions.iter().flat_map(|region| &region.path);
        is_jax |= regions.any(|name| name.contains("XlaModule") || name.starts_with("TSL:"));
        if is_cupy {
            Framework::Cupy
        } else if is_jax {
            Framework::Jax
        } else {
            Framework::Cuda
        }
    }
}

/// Names that XLA gives its kernels: `loop_add_fusion_3`, `input_reduce_fusion`, `wrapped_add`.
fn is_of_xla(name: &str) -> bool {
    !name.contains(['(', '<', ' ']) && (name.contains("fusion") || name.starts_with("wrapped_"))
}
