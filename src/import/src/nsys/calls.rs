//! Lists the API calls one by one, and tells which of them may wait for the GPU.

use rgpu_format::nsys_row::ApiCall;

use super::first::{EarliestRows, Timed};
use super::numbers::ValueNumbers;

/// Most calls that are listed in memory: for each piece of work its launch and one more.
const MAX_CALLS: usize = 2 * crate::trace_events::MAX_WORK;

/// A call.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListedCall {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) thread: u64,
    /// The number of its name among [`ListedCalls::names`]; `u32::MAX` without one.
    pub(super) name: u32,
    /// Its number in reading order.
    number: u32,
}

impl Timed for ListedCall {
    fn time(&self) -> (i64, u64) {
        (self.start_ns, u64::from(self.number))
    }
}

/// The listed calls, sorted by start.
#[derive(Debug, Default)]
pub(super) struct ListedCalls {
    pub(super) calls: Vec<ListedCall>,
    /// String ids of the names.
    names: ValueNumbers,
    /// Number of calls left out.
    pub(super) cut: u64,
    /// Number of all calls.
    seen: usize,
}

impl ListedCalls {
    /// Leaves the first calls.
    pub(super) fn truncate(&mut self, most: usize) {
        self.cut += self.calls.len().saturating_sub(most) as u64;
        self.calls.truncate(most);
    }

    /// The string id of a name.
    pub(super) fn name_id(&self, name: u32) -> Option<i64> {
        self.names.get(name).map(u64::cast_signed)
    }

    /// Number of different names.
    pub(super) fn name_count(&self) -> usize {
        self.names.len()
    }

    /// The index in the list by number in reading order; `u32::MAX` for calls that are not listed.
    pub(super) fn index_by_number(&self) -> Vec<u32> {
        let mut indexes = vec![u32::MAX; self.seen];
        for (call, index) in self.calls.iter().zip(0..) {
            if let Some(place) = indexes.get_mut(call.number as usize) {
                *place = index;
            }
        }
        indexes
    }
}

/// Collects the calls in one pass over the rows.
#[derive(Debug)]
pub(super) struct CallCollector {
    earliest: EarliestRows<ListedCall>,
    names: ValueNumbers,
    seen: usize,
}

impl CallCollector {
    pub(super) fn new() -> CallCollector {
        CallCollector {
            earliest: EarliestRows::new(MAX_CALLS),
            names: ValueNumbers::default(),
            seen: 0,
        }
    }

    /// Adds a call and returns its number in reading order.
    pub(super) fn see(&mut self, call: &ApiCall) -> u32 {
        let number = u32::try_from(self.seen).unwrap_or(u32::MAX);
        self.seen += 1;
        let name = call.name.map_or(u32::MAX, |id| self.names.number(id.cast_unsigned()).0);
        self.earliest.see(ListedCall {
            start_ns: call.start_ns,
            end_ns: call.end_ns,
            thread: call.global_tid.unwrap_or(0).cast_unsigned(),
            name,
            number,
        });
        number
    }

    pub(super) fn finish(self) -> ListedCalls {
        let mut calls = self.earliest.finish();
        let names = self.names;
        let order = |call: &ListedCall| {
            (call.start_ns, call.end_ns, call.thread, names.get(call.name), call.number)
        };
        calls.sort_by_key(order);
        let cut = self.seen.saturating_sub(calls.len()) as u64;
        ListedCalls { calls, names, cut, seen: self.seen }
    }
}

/// The name as programs write it. nsys appends the entry point's version (`_v7000`) and the kind of
/// default stream (`_ptsz`).
pub(super) fn plain_name(name: &str) -> &str {
    let name = match name.rsplit_once("_v") {
        Some((plain, version)) if version.bytes().all(|b| b.is_ascii_digit()) => plain,
        _ => name,
    };
    name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name)
}

/// What the name of a call tells about whether it waits for the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitRule {
    /// It does.
    Waits,
    /// It does not.
    Returns,
    /// A copy in the order of the host: it returns once its copy has been made, unless both sides
    /// are on GPUs.
    Copies,
    /// An asynchronous copy: whether it returns at once depends on the memory.
    CopiesLater,
    /// It frees memory, for which the GPU must have ended all of its work.
    Frees,
}

impl WaitRule {
    /// The rule of a call by its name as programs write it.
    pub(super) fn of(name: &str) -> WaitRule {
        let is_later = name.contains("Async");
        let copies = ["cudaMemcpy", "cuMemcpy"].iter().any(|start| name.starts_with(start));
        let frees = ["cudaFree", "cuMemFree"].iter().any(|start| name.starts_with(start));
        // Nodes of graphs copy and free when the graph is launched.
        if name.contains("Graph") {
            WaitRule::Returns
        } else if copies {
            if is_later { WaitRule::CopiesLater } else { WaitRule::Copies }
        } else if frees && !is_later {
            WaitRule::Frees
        } else if name.ends_with("Synchronize") {
            WaitRule::Waits
        } else {
            WaitRule::Returns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_lose_the_version_that_nsys_appends() {
        assert_eq!(plain_name("cudaLaunchKernel_v7000"), "cudaLaunchKernel");
        assert_eq!(plain_name("cudaMemcpyAsync_ptsz_v7000"), "cudaMemcpyAsync");
        assert_eq!(plain_name("cuMemcpyDtoH_v2"), "cuMemcpyDtoH");
        assert_eq!(plain_name("my_value"), "my_value");
    }

    #[test]
    fn names_tell_waits_copies_and_frees_apart() {
        let rules = [
            ("cudaStreamSynchronize", WaitRule::Waits),
            ("cuCtxSynchronize", WaitRule::Waits),
            ("cudaEventSynchronize", WaitRule::Waits),
            ("cudaEventQuery", WaitRule::Returns),
            ("cudaStreamQuery", WaitRule::Returns),
            ("cudaStreamWaitEvent", WaitRule::Returns),
            ("cudaLaunchKernel", WaitRule::Returns),
            ("cudaGraphLaunch", WaitRule::Returns),
            ("cudaGraphAddMemcpyNode", WaitRule::Returns),
            ("cudaMemset", WaitRule::Returns),
            ("cudaMemcpy2D", WaitRule::Copies),
            ("cuMemcpyHtoD", WaitRule::Copies),
            ("cudaMemcpyAsync", WaitRule::CopiesLater),
            ("cuMemcpyDtoHAsync", WaitRule::CopiesLater),
            ("cudaFree", WaitRule::Frees),
            ("cuMemFree", WaitRule::Frees),
            ("cuMemFreeAsync", WaitRule::Returns),
        ];
        for (name, rule) in rules {
            assert_eq!(WaitRule::of(name), rule, "{name}");
        }
    }
}
