//! Makes traces of programs: a host thread that launches, and a GPU.

use rgpu_model::Trace;
use rgpu_model::trace::{CallEvent, RangeEvent, TraceWork, TraceWorkKind};

/// A program so far.
#[derive(Default)]
pub(super) struct Maker {
    pub(super) trace: Trace,
    pub(super) order: Vec<u32>,
    /// Number of the stream for what is launched next.
    pub(super) stream: u64,
    /// Number of the shape of what is launched next.
    pub(super) shape: Option<u32>,
    host_ns: u64,
    gpu_ns: u64,
}

impl Maker {
    pub(super) fn kernel(&mut self, name: &str, ns: u64) {
        self.launch(TraceWorkKind::Kernel, name, ns, None);
    }

    pub(super) fn copy(&mut self, name: &str, bytes: u64, ns: u64) {
        self.launch(TraceWorkKind::Copy, name, ns, Some(bytes));
    }

    fn launch(&mut self, kind: TraceWorkKind, name: &str, duration_ns: u64, bytes: Option<u64>) {
        let call = Some(self.trace.calls.len() as u32);
        self.call("cudaLaunchKernel", 2_000);
        let start_ns = self.gpu_ns.max(self.host_ns + 1_000);
        self.gpu_ns = start_ns + duration_ns;
        let name = self.number(name);
        self.order.push(self.trace.work.len() as u32);
        self.trace.work.push(TraceWork {
            kind,
            name,
            start_ns,
            duration_ns,
            device: 0,
            stream: self.stream,
            bytes,
            pageable: None,
            call,
            launch: None,
            regions: Default::default(),
            rank: None,
            shape: self.shape,
        });
        self.trace.span_ns = self.trace.span_ns.max(self.gpu_ns);
    }

    /// The host calls something.
    pub(super) fn call(&mut self, name: &str, duration_ns: u64) {
        self.pause(500);
        let name = self.number(name);
        let start_ns = self.host_ns;
        let waits = false;
        let call = CallEvent { name, start_ns, duration_ns, thread: 1, waits, rank: None };
        self.trace.calls.push(call);
        self.pause(duration_ns);
    }

    /// The host waits for the GPU.
    pub(super) fn wait(&mut self) {
        let until = self.gpu_ns.saturating_sub(self.host_ns) + 3_000;
        self.call("cudaStreamSynchronize", until);
        self.trace.calls.last_mut().unwrap().waits = true;
    }

    /// The host does something else.
    pub(super) fn pause(&mut self, ns: u64) {
        self.host_ns += ns;
        self.trace.span_ns = self.trace.span_ns.max(self.host_ns);
    }

    /// A range around what `inside` does.
    pub(super) fn range(&mut self, name: &str, depth: u32, inside: impl FnOnce(&mut Maker)) {
        let at = self.trace.ranges.len();
        let number = self.number(name);
        let start_ns = self.host_ns;
        self.trace.ranges.push(RangeEvent {
            name: number,
            start_ns,
            duration_ns: None,
            thread: 1,
            depth,
            start_end: false,
            region: None,
            rank: None,
        });
        inside(self);
        self.trace.ranges[at].duration_ns = Some(self.host_ns - start_ns);
    }

    pub(super) fn name(&self, work: u32) -> &str {
        &self.trace.names[self.trace.work[work as usize].name as usize]
    }

    fn number(&mut self, name: &str) -> u32 {
        let known = self.trace.names.iter().position(|n| n == name);
        known.unwrap_or_else(|| {
            self.trace.names.push(name.to_owned());
            self.trace.names.len() - 1
        }) as u32
    }
}

/// Numbers that look random.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % limit
    }
}
