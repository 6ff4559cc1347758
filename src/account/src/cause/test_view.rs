//! Windows of steps for tests of causes: a small machine with one host thread and one GPU plays a
//! script of calls, so that the times of the trace fit together.

use std::collections::BTreeMap;

use rgpu_model::Trace;
use rgpu_model::trace::{CallEvent, CodeFrame, StackMaker, TraceWork, TraceWorkKind};

use crate::facts::GpuFacts;
use crate::graph::Graph;
use crate::path;
use crate::steps::{Step, Steps};
use crate::view::View;

/// What one step does, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepScript {
    items: Vec<Item>,
    stream: u64,
    thread: u64,
    shape: Option<u32>,
}

#[derive(Clone, Debug)]
enum Item {
    /// The host does its own work for nanoseconds.
    Host(u64),
    /// A call that launches nothing; it waits for all work of the GPU if `waits`.
    Call { name: String, ns: u64, waits: bool, thread: u64 },
    /// A call that launches work; the call waits for it if `waits`.
    Work { call: String, call_ns: u64, waits: bool, work: TraceWork, name: String, thread: u64 },
}

/// Host time before each call unless the script says more.
const HOST_NS: u64 = 1_000;
const CALL_NS: u64 = 4_000;
/// From the start of a launch call to the start of its work on an idle GPU.
const LATENCY_NS: u64 = 6_000;
/// Between two works of a stream that are queued.
const GAP_NS: u64 = 1_000;
/// From the end of the work to the return of a wait.
const RETURN_NS: u64 = 2_000;

impl StepScript {
    /// A step that does nothing yet, on stream 7 and thread 1.
    pub(crate) fn new() -> StepScript {
        StepScript { items: Vec::new(), stream: 7, thread: 1, shape: None }
    }

    /// The following work goes to this stream.
    pub(crate) fn on_stream(mut self, stream: u64) -> StepScript {
        self.stream = stream;
        self
    }

    /// The following calls come from this thread.
    pub(crate) fn on_thread(mut self, thread: u64) -> StepScript {
        self.thread = thread;
        self
    }

    /// The following kernels have this shape.
    pub(crate) fn shaped(mut self, shape: u32) -> StepScript {
        self.shape = Some(shape);
        self
    }

    /// This step, then another one.
    pub(crate) fn then(mut self, other: StepScript) -> StepScript {
        self.items.extend(other.items);
        self
    }

    /// A CUDA graph that is recorded as a whole.
    pub(crate) fn graph(self, us: f64) -> StepScript {
        self.work(TraceWorkKind::Graph, "cudaGraphLaunch", "graph", us, None, None, false)
    }

    /// The host's own work.
    pub(crate) fn host(mut self, us: f64) -> StepScript {
        self.items.push(Item::Host(ns(us)));
        self
    }

    /// A call that launches nothing.
    pub(crate) fn call(mut self, name: &str, us: f64) -> StepScript {
        let (name, thread) = (name.to_owned(), self.thread);
        self.items.push(Item::Call { name, ns: ns(us), waits: false, thread });
        self
    }

    /// A call that waits until the GPU has done everything.
    pub(crate) fn wait(mut self, name: &str) -> StepScript {
        let (name, thread) = (name.to_owned(), self.thread);
        self.items.push(Item::Call { name, ns: RETURN_NS, waits: true, thread });
        self
    }

    /// A kernel.
    pub(crate) fn kernel(self, name: &str, us: f64) -> StepScript {
        self.work(TraceWorkKind::Kernel, "cudaLaunchKernel", name, us, None, None, false)
    }

    /// The same kernel several times.
    pub(crate) fn kernels(mut self, count: usize, name: &str, us: f64) -> StepScript {
        for _ in 0..count {
            self = self.kernel(name, us);
        }
        self
    }

    /// A copy by `cudaMemcpyAsync`. It holds the host if its side there is pageable.
    pub(crate) fn copy(
        self,
        kind: &str,
        bytes: u64,
        us: f64,
        pageable: Option<bool>,
    ) -> StepScript {
        let waits = pageable == Some(true);
        let call = "cudaMemcpyAsync";
        self.work(TraceWorkKind::Copy, call, kind, us, Some(bytes), pageable, waits)
    }

    /// A fill of memory.
    pub(crate) fn set(self, bytes: u64, us: f64) -> StepScript {
        self.work(TraceWorkKind::Set, "cudaMemsetAsync", "memset", us, Some(bytes), None, false)
    }

    #[allow(clippy::too_many_arguments)]
    fn work(
        mut self,
        kind: TraceWorkKind,
        call: &str,
        name: &str,
        us: f64,
        bytes: Option<u64>,
        pageable: Option<bool>,
        waits: bool,
    ) -> StepScript {
        let work = TraceWork {
            kind,
            duration_ns: ns(us),
            stream: self.stream,
            bytes,
            pageable,
            shape: self.shape,
            ..TraceWork::default()
        };
        let (call, name, thread) = (call.to_owned(), name.to_owned(), self.thread);
        self.items.push(Item::Work { call, call_ns: CALL_NS, waits, work, name, thread });
        self
    }

    /// The trace of this step played several times.
    pub(crate) fn play(&self, steps: usize) -> TestWindow {
        play(&vec![self.clone(); steps])
    }
}

/// The trace of steps that differ.
pub(crate) fn play(scripts: &[StepScript]) -> TestWindow {
    let mut machine = Machine::default();
    let steps: Vec<Vec<u32>> = scripts.iter().map(|script| machine.play(script)).collect();
    TestWindow::new(machine.trace, &steps)
}

fn ns(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

#[derive(Default)]
struct Machine {
    trace: Trace,
    names: BTreeMap<String, u32>,
    now_ns: u64,
    /// End of the last work of each stream.
    streams: BTreeMap<u64, u64>,
}

impl Machine {
    /// Plays a script; the work that it launched.
    fn play(&mut self, script: &StepScript) -> Vec<u32> {
        let first = self.trace.work.len();
        for item in &script.items {
            match item {
                Item::Host(ns) => self.now_ns += ns,
                Item::Call { name, ns, waits, thread } => {
                    let start = self.now_ns + HOST_NS;
                    let done = self.streams.values().copied().max().unwrap_or(0);
                    let waited = if *waits { done + RETURN_NS } else { 0 };
                    self.add_call(name, start, (start + ns).max(waited), *thread, *waits);
                }
                Item::Work { call, call_ns, waits, work, name, thread } => {
                    let start = self.now_ns + HOST_NS;
                    let free = self.streams.get(&work.stream).map_or(0, |end| end + GAP_NS);
                    let begin = (start + LATENCY_NS).max(free);
                    let end = begin + work.duration_ns;
                    self.streams.insert(work.stream, end);
                    let name = self.name(name);
                    let call_number = self.trace.calls.len() as u32;
                    let call_end = if *waits { end + RETURN_NS } else { start + call_ns };
                    self.add_call(call, start, call_end, *thread, *waits);
                    self.trace.work.push(TraceWork {
                        name,
                        start_ns: begin,
                        call: Some(call_number),
                        ..work.clone()
                    });
                }
            }
        }
        (first..self.trace.work.len()).map(|at| at as u32).collect()
    }

    fn add_call(&mut self, name: &str, start_ns: u64, end_ns: u64, thread: u64, waits: bool) {
        let name = self.name(name);
        let duration_ns = end_ns - start_ns;
        self.trace.calls.push(CallEvent { name, start_ns, duration_ns, thread, waits, rank: None });
        self.now_ns = end_ns;
    }

    fn name(&mut self, name: &str) -> u32 {
        let next = self.names.len() as u32;
        *self.names.entry(name.to_owned()).or_insert_with(|| {
            self.trace.names.push(name.to_owned());
            next
        })
    }
}

/// A trace with its steps.
pub(crate) struct TestWindow {
    pub(crate) trace: Trace,
    pub(crate) facts: GpuFacts,
    pub(crate) steps: Steps,
}

impl TestWindow {
    /// Work is in the order of launches, and stays so.
    fn new(mut trace: Trace, steps: &[Vec<u32>]) -> TestWindow {
        trace.span_ns = trace.work.iter().map(TraceWork::end_ns).max().unwrap_or(0);
        let start = |work: &Vec<u32>| work.first().map(|at| trace.work[*at as usize].start_ns);
        let starts: Vec<u64> = steps.iter().filter_map(start).collect();
        let ends = starts.iter().skip(1).copied().chain([trace.span_ns]);
        let all: Vec<Step> = (steps.iter().zip(&starts).zip(ends))
            .map(|((work, start_ns), end_ns)| Step {
                work: work.clone(),
                start_ns: *start_ns,
                end_ns,
            })
            .collect();
        let window = 0..all.len().saturating_sub(1).max(1);
        let steps = Steps { window, all, ..Steps::default() };
        // Round numbers of a large GPU.
        let facts = GpuFacts {
            sms: Some(132),
            memory_bytes_per_s: Some(4e12),
            pinned_bytes_per_s: Some(5e10),
            fp32_flops: Some(6e13),
            tf32_flops: Some(4e14),
            bf16_flops: Some(8e14),
            ..GpuFacts::default()
        };
        TestWindow { trace, facts, steps }
    }

    /// Gives all calls of a name a stack: a line of the user's Python.
    pub(crate) fn call_from(&mut self, name: &str, line: u32) {
        let frame = CodeFrame {
            file: "/work/train.py".into(),
            line: Some(line),
            function: "step".into(),
            is_python: true,
        };
        let mut maker = StackMaker::default();
        let entry = maker.stack(vec![frame]);
        self.trace.stacks = maker.finish();
        let calls = self.trace.calls.iter().zip(0_u32..);
        let is_named = |call: &CallEvent| self.trace.names[call.name as usize] == name;
        let named = calls.filter(|(call, _)| is_named(call));
        let entries = named.filter_map(|(_, at)| Some((at, entry?))).collect();
        self.trace.stacks.set_calls(entries);
    }

    /// Looks at the window as causes do.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&View<'_>) -> T) -> T {
        let work: Vec<u32> = self.steps.all.iter().flat_map(|step| step.work.clone()).collect();
        let graph = Graph::new(&self.trace, &work);
        let last = work.last().copied().unwrap_or(0);
        let from = self.steps.all.first().map_or(0, |step| step.start_ns);
        let path = path::walk(&graph, last, false, from);
        at(&View::new(&self.trace, &self.facts, &self.steps, &graph, &path))
    }

    /// Nanoseconds of the window's work that the edits take away, per step of the window.
    pub(crate) fn removed_ns(&self, edits: &crate::edits::Edits) -> f64 {
        let removed = edits
            .work_ns
            .iter()
            .map(|(at, ns)| self.trace.work[*at as usize].duration_ns as f64 - *ns as f64);
        removed.sum::<f64>() / self.steps.window.len().max(1) as f64
    }
}

/// Names of kernels as libraries write them.
pub(crate) mod names {
    pub(crate) const PRODUCT: &str = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN";
    pub(crate) const CONVOLUTION: &str = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn";
    pub(crate) const FLASH: &str = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0";
    pub(crate) const FLASH_BACKWARD: &str = "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0";
    pub(crate) const ADD: &str = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, std::array<char *, (unsigned long)3>>(int, T2, T3)";
    pub(crate) const MUL: &str = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>, std::array<char *, (unsigned long)3>>(int, T2, T3)";
    pub(crate) const FILL: &str = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, std::array<char *, (unsigned long)1>>(int, T2, T3)";
    pub(crate) const CAST: &str = "void at::native::vectorized_elementwise_kernel<(int)8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)], std::array<char *, (unsigned long)2>>(int, T2, T3)";
    pub(crate) const COPY: &str = "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)";
    pub(crate) const CAT: &str = "void at::native::<unnamed>::CatArrayBatchedCopy<at::native::<unnamed>::OpaqueType<(unsigned int)2>, unsigned int, (int)4, (int)64, (int)64>(T1 *)";
    pub(crate) const SOFTMAX: &str = "void <unnamed>::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, (int)10, (bool)0, (bool)0>(T2 *, const T1 *, int)";
    pub(crate) const SOFTMAX_BACKWARD: &str = "void <unnamed>::softmax_warp_backward<c10::BFloat16, c10::BFloat16, float, (int)10, (bool)0, (bool)0>(T2 *, const T1 *, int)";
    pub(crate) const MEAN: &str = "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, (int)4, (int)4>>(T3)";
}
