//! The launches of a process as a sequence of tokens, with what the host did between them.

use std::collections::{BTreeSet, HashMap};

use rgpu_model::Trace;
use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use crate::class;

/// What a piece of work says about the place in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A copy to the GPU: input.
    Input,
    /// A copy from the GPU: a result.
    Result,
    /// A kernel of an optimizer.
    Optimizer,
    /// Anything else.
    Other,
}

/// Launches in the order of their calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Launches {
    /// Index into the trace's work.
    pub(super) order: Vec<u32>,
    /// Token of name, kind, and size of copies: equal work has equal numbers, from 0.
    pub(super) plain: Vec<u32>,
    /// Token of the plain token, the kernel's shape, the device, the stream, and whether the host
    /// waited before the launch.
    pub(super) rich: Vec<u32>,
    /// What each says about the place in a step.
    pub(super) role: Vec<Role>,
    /// Start of the launch call (of the work, if the call is unknown), never falling.
    pub(super) host_ns: Vec<u64>,
    /// The host's time between the launch before and this one, without waits, in nanoseconds.
    pub(super) pause_ns: Vec<u64>,
    /// Whether the host waited for the GPU between the launch before and this one.
    pub(super) waited: Vec<bool>,
    /// Sum of the durations before each, in nanoseconds; one more than there are launches.
    gpu_ns: Vec<u64>,
}

impl Launches {
    /// The launches `order` of one process.
    pub(super) fn new(trace: &Trace, order: &[u32]) -> Launches {
        let mut launches = Launches { gpu_ns: vec![0], ..Launches::default() };
        let limit = trace.span_ns.max(1).min(u64::MAX / (order.len() as u64 + 1));
        let roles = NameRoles::new(trace, order);
        let mut plain = Numbers::default();
        let mut rich = Numbers::default();
        let mut host = Host::new(trace, order);
        let mut sum = 0_u64;
        for at in order {
            let Some(work) = trace.work.get(*at as usize) else { continue };
            let pause = host.before(work);
            let kind = kind_number(work.kind);
            let size = u64::from(work.bytes.unwrap_or(0).checked_ilog2().unwrap_or(0));
            let token = plain.of([u64::from(work.name), kind, size]);
            launches.order.push(*at);
            launches.plain.push(token);
            let device = u64::from(work.device) << 1 | u64::from(pause.waited);
            let shape = work.shape.map_or(0, |shape| u64::from(shape) + 1);
            let place = shape << 33 | device;
            launches.rich.push(rich.of([u64::from(token), place, work.stream]));
            launches.role.push(roles.of(work));
            launches.host_ns.push(pause.host_ns);
            launches.pause_ns.push(pause.pause_ns);
            launches.waited.push(pause.waited);
            sum = sum.saturating_add(work.duration_ns.min(limit));
            launches.gpu_ns.push(sum);
        }
        launches
    }

    /// Number of launches.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The GPU's time of the launches `from..to`, in nanoseconds.
    pub(super) fn gpu_between(&self, from: usize, to: usize) -> u64 {
        let sum = |at: usize| self.gpu_ns.get(at.min(self.len())).copied().unwrap_or(0);
        sum(to).saturating_sub(sum(from))
    }

    /// Whether the unit `from..to` holds a role.
    pub(super) fn has_role(&self, from: usize, to: usize, role: Role) -> bool {
        self.role.get(from..to).is_some_and(|roles| roles.contains(&role))
    }

    /// Whether the host waited before one of the launches `from..to`.
    pub(super) fn has_wait(&self, from: usize, to: usize) -> bool {
        self.waited.get(from..to).is_some_and(|waits| waits.contains(&true))
    }

    /// Whether something happens in `from..to` that a program does once in a step: input arrives,
    /// the optimizer runs, or the host waits.
    pub(super) fn has_event(&self, from: usize, to: usize) -> bool {
        self.has_role(from, to, Role::Input)
            || self.has_role(from, to, Role::Optimizer)
            || self.has_wait(from, to)
    }
}

/// Numbers from 0 for keys, in the order in which they come.
#[derive(Default)]
struct Numbers {
    known: HashMap<[u64; 3], u32>,
}

impl Numbers {
    fn of(&mut self, key: [u64; 3]) -> u32 {
        let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        *self.known.entry(key).or_insert(next)
    }
}

fn kind_number(kind: TraceWorkKind) -> u64 {
    match kind {
        TraceWorkKind::Kernel => 0,
        TraceWorkKind::Copy => 1,
        TraceWorkKind::Set => 2,
        TraceWorkKind::Graph => 3,
    }
}

/// The roles of kernels and copies by the index of their name.
struct NameRoles {
    kernels: HashMap<u32, Role>,
    copies: HashMap<u32, Role>,
}

impl NameRoles {
    fn new(trace: &Trace, order: &[u32]) -> NameRoles {
        let mut roles = NameRoles { kernels: HashMap::new(), copies: HashMap::new() };
        for at in order {
            let Some(work) = trace.work.get(*at as usize) else { continue };
            let name = trace.names.get(work.name as usize).map_or("", String::as_str);
            match work.kind {
                TraceWorkKind::Kernel => {
                    roles.kernels.entry(work.name).or_insert_with(|| kernel_role(name));
                }
                TraceWorkKind::Copy => {
                    roles.copies.entry(work.name).or_insert_with(|| copy_role(name));
                }
                TraceWorkKind::Set | TraceWorkKind::Graph => {}
            }
        }
        roles
    }

    fn of(&self, work: &TraceWork) -> Role {
        let known = match work.kind {
            TraceWorkKind::Kernel => self.kernels.get(&work.name),
            TraceWorkKind::Copy => self.copies.get(&work.name),
            TraceWorkKind::Set | TraceWorkKind::Graph => None,
        };
        known.copied().unwrap_or(Role::Other)
    }
}

fn kernel_role(name: &str) -> Role {
    if class::of_kernel(name) == AccountCause::Optimizer { Role::Optimizer } else { Role::Other }
}

fn copy_role(name: &str) -> Role {
    if name.starts_with("HtoD") {
        Role::Input
    } else if name.starts_with("DtoH") {
        Role::Result
    } else {
        Role::Other
    }
}

/// The host between two launches.
struct Pause {
    host_ns: u64,
    pause_ns: u64,
    waited: bool,
}

/// Walks along the calls of the threads that launch.
struct Host<'t> {
    trace: &'t Trace,
    threads: BTreeSet<(Option<u32>, u64)>,
    /// The call of the launch before.
    call: Option<usize>,
    /// The end of the launch before: of its call, or of the work if it has none.
    end_ns: u64,
    /// The latest start of a launch so far.
    latest_ns: u64,
}

impl<'t> Host<'t> {
    fn new(trace: &'t Trace, order: &[u32]) -> Host<'t> {
        let calls = order.iter().filter_map(|at| trace.work.get(*at as usize)?.call);
        let calls = calls.filter_map(|call| trace.calls.get(call as usize));
        let threads = calls.map(|call| (call.rank, call.thread)).collect();
        Host { trace, threads, call: None, end_ns: 0, latest_ns: 0 }
    }

    /// What the host did before the launch of `work`.
    fn before(&mut self, work: &TraceWork) -> Pause {
        let known =
            work.call.and_then(|at| Some((at as usize, self.trace.calls.get(at as usize)?)));
        let (start_ns, end_ns, call) = match known {
            Some((at, call)) => {
                (call.start_ns, call.start_ns.saturating_add(call.duration_ns), Some(at))
            }
            None => (work.start_ns, work.end_ns(), None),
        };
        let wait_ns = call.and_then(|call| self.waits_before(call));
        let pause_ns = start_ns.saturating_sub(self.end_ns).saturating_sub(wait_ns.unwrap_or(0));
        self.end_ns = self.end_ns.max(end_ns);
        self.latest_ns = self.latest_ns.max(start_ns);
        self.call = call.or(self.call);
        Pause { host_ns: self.latest_ns, pause_ns, waited: wait_ns.is_some() }
    }

    /// Time of the waits from the launch before to `call`; `None` if there is no wait.
    fn waits_before(&self, call: usize) -> Option<u64> {
        let between = self.trace.calls.get(self.call?..call)?;
        let waits = between.iter().filter(|c| c.waits && self.is_own(c.rank, c.thread));
        let times = waits.map(|c| c.duration_ns);
        times.fold(None, |sum: Option<u64>, ns| Some(sum.unwrap_or(0).saturating_add(ns)))
    }

    fn is_own(&self, rank: Option<u32>, thread: u64) -> bool {
        self.threads.contains(&(rank, thread))
    }
}
