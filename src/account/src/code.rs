//! The places in the user's own code that calls came from.
//!
//! A stack begins in a driver's library and ends at the program's start. What its author can change
//! is the innermost frame that is neither of a package nor of Python nor of CUDA. Where calls have
//! frames of Python, only those count: native frames below them are the interpreter and packages.
//! A native program launches a kernel through a stub that has the kernel's own name, directly around
//! the runtime's launch; that is no place either, since it only says what was launched.
//!
//! Files are told relative to the folder that holds all of the user's files, which is the program's
//! own folder.

mod is_own;
mod told;

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use rgpu_model::Trace;
use rgpu_model::finding::CodePlace;
use rgpu_model::trace::TraceWorkKind;

use crate::path::HostNames;

/// Most places that a finding tells.
const MAX_PLACES: usize = 3;
/// The part of a finding's time from which on a place is told.
const MIN_SHARE: f64 = 0.05;

/// Finds the places of calls.
pub(crate) struct OwnCode<'t> {
    trace: &'t Trace,
    /// Whether each frame is the user's own.
    is_own: Vec<bool>,
    /// The folder that files are told relative to, with a `/` at its end; empty if there is none.
    root: String,
    /// What threads of the host did, computed when first asked for.
    host: OnceLock<HostNames<'t>>,
}

/// A place before it is told: a frame of a stack, or a function of a framework's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place<'t> {
    Frame(u32),
    Function(&'t str),
}

impl<'t> OwnCode<'t> {
    /// Looks at the stacks of a trace, or at the functions where it has no stacks.
    pub(crate) fn new(trace: &'t Trace) -> OwnCode<'t> {
        let kernels = kernel_names(trace);
        let is_own: Vec<bool> =
            trace.stacks.frames().iter().map(|frame| is_own::is_own(frame, &kernels)).collect();
        let own = trace.stacks.frames().iter().zip(&is_own);
        let files = own.filter(|(frame, own)| **own && frame.is_python);
        let root = told::root(files.map(|(frame, _)| &*frame.file));
        OwnCode { trace, is_own, root, host: OnceLock::new() }
    }

    /// The places that these calls came from, most weight first. A call without a place counts for
    /// the whole, so that shares are of all. `calls` are indexes into the trace's calls.
    pub(crate) fn places(&self, calls: impl IntoIterator<Item = (u32, f64)>) -> Vec<CodePlace> {
        let mut sums: HashMap<Place<'t>, f64> = HashMap::new();
        let mut whole = 0.0;
        for (call, weight) in calls {
            let weight = weight.max(0.0);
            whole += weight;
            if let Some(place) = self.place(call) {
                *sums.entry(place).or_default() += weight;
            }
        }
        if whole <= 0.0 {
            return Vec::new();
        }
        let mut all: Vec<(Place<'t>, f64)> = sums.into_iter().collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.retain(|(_, weight)| *weight >= MIN_SHARE * whole);
        all.truncate(MAX_PLACES);
        all.into_iter().filter_map(|(place, weight)| self.told(place, weight / whole)).collect()
    }

    /// The place of a call: its innermost own frame, of Python if there is one. A function of a
    /// framework's trace if the call has no stack.
    fn place(&self, call: u32) -> Option<Place<'t>> {
        let frames = self.trace.stacks.frames();
        let (mut of_python, mut native, mut was_launch) = (None, None, false);
        for at in self.trace.stacks.of_call(call) {
            let Some(frame) = frames.get(at as usize) else { continue };
            let is_own = self.is_own.get(at as usize).copied().unwrap_or(false);
            if frame.is_python {
                of_python = of_python.or(Some(at).filter(|_| is_own));
            } else if is_own && !was_launch {
                native = native.or(Some(at));
            }
            was_launch = is_own::launches(&frame.function);
        }
        if let Some(frame) = of_python.or(native) {
            return Some(Place::Frame(frame));
        }
        if self.trace.host.is_empty() {
            return None;
        }
        let call = self.trace.calls.get(call as usize)?;
        let host = self.host.get_or_init(|| HostNames::new(&self.trace.host));
        let end_ns = call.start_ns.saturating_add(call.duration_ns.max(1));
        let event = host.find(call.thread, call.start_ns, end_ns)?;
        event.function.as_deref().map(Place::Function)
    }

    fn told(&self, place: Place<'_>, share: f64) -> Option<CodePlace> {
        let mut told = match place {
            Place::Frame(at) => {
                told::of_frame(self.trace.stacks.frames().get(at as usize)?, &self.root)
            }
            Place::Function(text) => told::of_function(text),
        };
        told.share = share;
        Some(told)
    }
}

/// The names of a trace's kernels without types, parameters and arguments.
fn kernel_names(trace: &Trace) -> HashSet<&str> {
    if trace.stacks.is_empty() {
        return HashSet::new();
    }
    let kernels = trace.work.iter().filter(|work| work.kind == TraceWorkKind::Kernel);
    let names: HashSet<u32> = kernels.map(|work| work.name).collect();
    let names = names.into_iter().filter_map(|at| trace.names.get(at as usize));
    names.map(|name| is_own::plain_function(name)).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests;
