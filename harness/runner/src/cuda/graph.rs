//! CUDA graphs: work that is captured from the stream once and then launched as a whole.

#![allow(unsafe_code)] // driver calls

use super::Gpu;
use super::driver::Driver;
use crate::fault::{Fault, Result};
use cudarc::driver::sys::{CUgraph, CUgraphExec, CUgraphNode, CUstream};
use rgpu_case::ErrorClass;
use std::ffi::{c_uint, c_ulonglong};

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: calls that cannot be captured, such as allocations, fail
/// on this thread, so a kernel that needs them is refused and not half captured.
const THREAD_LOCAL: c_uint = 1;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`: a graph may be launched again although
/// memory that an earlier launch allocated is not freed.
const AUTO_FREE_ON_LAUNCH: c_ulonglong = 1;

/// The calls for graphs, which drivers before 11.4 lack.
struct GraphCalls {
    begin: unsafe extern "C" fn(CUstream, c_uint) -> u32,
    end: unsafe extern "C" fn(CUstream, *mut CUgraph) -> u32,
    nodes: unsafe extern "C" fn(CUgraph, *mut CUgraphNode, *mut usize) -> u32,
    instantiate: unsafe extern "C" fn(*mut CUgraphExec, CUgraph, c_ulonglong) -> u32,
    destroy: unsafe extern "C" fn(CUgraph) -> u32,
}

impl GraphCalls {
    fn from_driver(driver: &Driver) -> Option<GraphCalls> {
        // Without these two, a graph could be neither launched nor freed.
        driver.cuGraphLaunch?;
        driver.cuGraphExecDestroy?;
        Some(GraphCalls {
            begin: driver.cuStreamBeginCapture_v2?,
            end: driver.cuStreamEndCapture?,
            nodes: driver.cuGraphGetNodes?,
            instantiate: driver.cuGraphInstantiateWithFlags?,
            destroy: driver.cuGraphDestroy?,
        })
    }
}

/// A graph, ready to be launched.
pub(crate) struct Graph<'g> {
    gpu: &'g Gpu,
    exec: CUgraphExec,
    nodes: usize,
}

impl<'g> Graph<'g> {
    /// Captures what `enqueue` puts on the stream. Nothing of it runs.
    pub(crate) fn capture(gpu: &'g Gpu, enqueue: impl FnOnce() -> Result<()>) -> Result<Graph<'g>> {
        let driver = gpu.driver;
        let calls = GraphCalls::from_driver(driver).ok_or_else(|| {
            let text = "CUDA graphs need driver 470 (CUDA 11.4) or newer";
            Fault::new(ErrorClass::Cuda, text)
        })?;
        // SAFETY: the stream is alive and captures nothing yet.
        let begun = unsafe { (calls.begin)(gpu.stream, THREAD_LOCAL) };
        driver.check("cuStreamBeginCapture", begun)?;
        let enqueued = enqueue();
        let mut graph: CUgraph = std::ptr::null_mut();
        // Always ended: a stream that still captures takes no other work.
        // SAFETY: the capture was begun on this stream by this thread; `graph` is a live local.
        let ended = unsafe { (calls.end)(gpu.stream, &mut graph) };
        let ended = driver.check("cuStreamEndCapture", ended);
        let captured = enqueued.and(ended).and_then(|()| {
            let (mut exec, mut nodes) = (std::ptr::null_mut(), 0);
            // SAFETY: the graph is valid; a null array asks for the number of nodes alone.
            let counted = unsafe { (calls.nodes)(graph, std::ptr::null_mut(), &mut nodes) };
            driver.check("cuGraphGetNodes", counted)?;
            // SAFETY: the graph is valid, and `exec` is a live local.
            let made = unsafe { (calls.instantiate)(&mut exec, graph, AUTO_FREE_ON_LAUNCH) };
            driver.check("cuGraphInstantiate", made)?;
            Ok(Graph { gpu, exec, nodes })
        });
        if !graph.is_null() && !driver.is_lost() {
            // SAFETY: the graph came from the capture; an executable graph does not need it.
            let _ = unsafe { (calls.destroy)(graph) };
        }
        captured
    }

    /// The number of kernels, copies, memsets and other nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Enqueues the graph on its GPU's stream, and does not wait.
    pub(crate) fn launch(&self) -> Result<()> {
        let Some(launch) = self.gpu.driver.cuGraphLaunch else { return Ok(()) };
        // SAFETY: graph and stream are alive.
        self.gpu.driver.check("cuGraphLaunch", unsafe { launch(self.exec, self.gpu.stream) })
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        if self.gpu.driver.is_lost() {
            return;
        }
        if let Some(destroy) = self.gpu.driver.cuGraphExecDestroy {
            // SAFETY: made in `capture`, destroyed only here. The driver frees it after its last
            // launch has ended.
            let _ = unsafe { destroy(self.exec) };
        }
    }
}
