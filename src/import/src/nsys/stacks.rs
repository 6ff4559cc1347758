//! The stacks of a recording, and to which calls they belong.
//!
//! nsys writes the native frames of a call as a row that lasts a little longer than the call, and
//! its frames of Python as a mark of an NVTX domain at the start of that row. So a stack belongs to
//! the first call of its thread that begins within its row. In a process of Python native frames
//! are those of the interpreter and of packages; they are left out.
//!
//! Some calls have no stack in any version seen: nsys takes none of `cudaLaunchKernelExC`, which
//! starts most matrix products, and torch's threads for the backward pass have no frames of Python.
//! A call without a stack between two calls of its thread comes from what their stacks have in
//! common, unless that is the program's outermost frame. A call of a thread without Python comes
//! from the last stack of its process if that one is inside torch's `backward`, which waits for
//! these threads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use rgpu_format::nsys_row::{NativeFrame, PythonFrame, Strings};
use rgpu_model::trace::{CallEvent, CodeFrame, StackMaker, Stacks};

use super::rows::TraceRows;
use super::trace::{Domain, process};
use crate::trace_events::ns_since;

/// The name of the NVTX domain whose marks are frames of Python.
pub(super) const PYTHON_DOMAIN: &str = "Python Backtrace on CUDA";

/// How long after a stack of Python without native frames its call begins, at most.
const LONGEST_BEFORE_CALL_NS: i64 = 1_000_000;

/// Memory of a stack in the list and by its time, and of a new frame.
const STACK_BYTES: usize = 120;
const FRAME_BYTES: usize = 300;

/// Stacks in the order of the file.
#[derive(Debug, Default)]
pub(super) struct TimedStacks {
    stacks: Stacks,
    timed: Vec<TimedStack>,
    /// Entries inside torch's `backward`.
    in_backward: HashSet<u32>,
}

/// A stack with the time in which its call begins.
#[derive(Clone, Copy, Debug)]
struct TimedStack {
    thread: u64,
    start_ns: i64,
    end_ns: i64,
    entry: u32,
}

/// Reads the stacks. `python_domains` are the NVTX domains of frames of Python.
pub(super) fn read<R: TraceRows>(
    file: &R,
    strings: &Strings,
    python_domains: &[Domain],
) -> Result<TimedStacks, R::Error> {
    let mut reader = Reader::new(strings);
    // The ends of Python's stacks are those of the native ones at the same time.
    let mut python: HashMap<(u64, i64), usize> = HashMap::new();
    let mut with_python: HashSet<u64> = HashSet::new();
    file.python_stacks(|stack| {
        let process = process(stack.global_tid);
        if !python_domains.contains(&(process, stack.domain)) {
            return;
        }
        let (entry, new) = reader.python(&stack.frames);
        file.take_memory(STACK_BYTES + FRAME_BYTES * new);
        with_python.insert(process);
        let Some(entry) = entry else { return };
        let thread = stack.global_tid.unwrap_or(0).cast_unsigned();
        python.insert((thread, stack.at_ns), reader.found.timed.len());
        reader.found.timed.push(TimedStack {
            thread,
            start_ns: stack.at_ns,
            end_ns: stack.at_ns.saturating_add(LONGEST_BEFORE_CALL_NS),
            entry,
        });
    })?;
    file.native_stacks(|stack| {
        let thread = stack.global_tid.unwrap_or(0).cast_unsigned();
        if let Some(of_python) = python.get(&(thread, stack.start_ns)) {
            if let Some(timed) = reader.found.timed.get_mut(*of_python) {
                timed.end_ns = stack.end_ns;
            }
            return;
        }
        if with_python.contains(&process(stack.global_tid)) {
            return;
        }
        let (entry, new) = reader.native(&stack.frames);
        file.take_memory(STACK_BYTES + FRAME_BYTES * new);
        let Some(entry) = entry else { return };
        let (start_ns, end_ns) = (stack.start_ns, stack.end_ns);
        reader.found.timed.push(TimedStack { thread, start_ns, end_ns, entry });
    })?;
    Ok(reader.finish())
}

/// Makes the tree of the stacks. A program calls from few places, so whole stacks are known by
/// their ids.
struct Reader<'s> {
    strings: &'s Strings,
    maker: StackMaker,
    known_python: HashMap<Vec<PythonFrame>, Option<u32>>,
    known_native: HashMap<Vec<NativeFrame>, Option<u32>>,
    texts: HashMap<i64, Arc<str>>,
    found: TimedStacks,
}

impl<'s> Reader<'s> {
    fn new(strings: &'s Strings) -> Reader<'s> {
        Reader {
            strings,
            maker: StackMaker::default(),
            known_python: HashMap::new(),
            known_native: HashMap::new(),
            texts: HashMap::new(),
            found: TimedStacks::default(),
        }
    }

    fn text(&mut self, id: i64) -> Arc<str> {
        let strings = self.strings;
        let new = || unescaped(strings.get(id).unwrap_or_default()).into();
        Arc::clone(self.texts.entry(id).or_insert_with(new))
    }

    /// The entry of a stack, and the number of frames that are new.
    fn python(&mut self, frames: &[PythonFrame]) -> (Option<u32>, usize) {
        if let Some(entry) = self.known_python.get(frames) {
            return (*entry, 0);
        }
        let mut is_backward = false;
        let mut all = Vec::with_capacity(frames.len());
        for frame in frames {
            let (file, function) = (self.text(frame.file), self.text(frame.function));
            is_backward |= &*function == "backward" && file.contains("/torch/autograd/");
            all.push(CodeFrame { file, line: frame.line, function, is_python: true });
        }
        let entry = self.maker.stack(all);
        if is_backward {
            self.found.in_backward.extend(entry);
        }
        self.known_python.insert(frames.to_vec(), entry);
        (entry, frames.len())
    }

    fn native(&mut self, frames: &[NativeFrame]) -> (Option<u32>, usize) {
        if let Some(entry) = self.known_native.get(frames) {
            return (*entry, 0);
        }
        let mut all = Vec::with_capacity(frames.len());
        for frame in frames {
            // An address says nothing, and is another one in each run.
            let function = if frame.is_resolved { self.text(frame.symbol) } else { Arc::from("") };
            all.push(CodeFrame {
                file: self.text(frame.module),
                line: None,
                function,
                is_python: false,
            });
        }
        let entry = self.maker.stack(all);
        self.known_native.insert(frames.to_vec(), entry);
        (entry, frames.len())
    }

    fn finish(mut self) -> TimedStacks {
        self.found.stacks = self.maker.finish();
        self.found
    }
}

/// A name with the brackets that nsys writes as in HTML.
fn unescaped(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    text.replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&")
}

impl TimedStacks {
    /// The stacks of `calls`, which are sorted by start. `first_ns` is the time that they count
    /// from.
    pub(super) fn of_calls(&self, calls: &[CallEvent], first_ns: i64) -> Stacks {
        let mut stacks = self.stacks.clone();
        if self.timed.is_empty() {
            return stacks;
        }
        let mut threads: HashMap<u64, Vec<u32>> = HashMap::new();
        for (call, at) in calls.iter().zip(0_u32..) {
            threads.entry(call.thread).or_default().push(at);
        }
        let start_ns = |at: u32| calls.get(at as usize).map_or(0, |call| call.start_ns);
        let mut found: BTreeMap<u32, &TimedStack> = BTreeMap::new();
        for stack in &self.timed {
            let Some(of_thread) = threads.get(&stack.thread) else { continue };
            let begin_ns = ns_since(first_ns, stack.start_ns);
            let end_ns = ns_since(first_ns, stack.end_ns);
            let next = of_thread.partition_point(|at| start_ns(*at) < begin_ns);
            let next = of_thread.get(next).filter(|at| start_ns(**at) <= end_ns);
            // Of two stacks before one call the later one is nearer.
            next.map(|at| found.insert(*at, stack));
        }
        let mut entries: Vec<(u32, u32)> =
            found.iter().map(|(call, stack)| (*call, stack.entry)).collect();
        entries.extend(self.between(&threads, &found, &stacks));
        entries.extend(self.of_backward(calls, &threads, &found));
        stacks.set_calls(entries);
        stacks
    }

    /// Calls without a stack between two calls of their thread that have one.
    fn between(
        &self,
        threads: &HashMap<u64, Vec<u32>>,
        found: &BTreeMap<u32, &TimedStack>,
        stacks: &Stacks,
    ) -> Vec<(u32, u32)> {
        let mut entries = Vec::new();
        for of_thread in threads.values() {
            let mut waiting: Vec<u32> = Vec::new();
            let mut before: Option<u32> = None;
            for call in of_thread {
                let Some(stack) = found.get(call) else {
                    waiting.push(*call);
                    continue;
                };
                if !waiting.is_empty() {
                    let common = before.and_then(|before| stacks.common(before, stack.entry));
                    entries.extend(
                        common
                            .iter()
                            .flat_map(|entry| waiting.iter().map(move |call| (*call, *entry))),
                    );
                    waiting.clear();
                }
                before = Some(stack.entry);
            }
        }
        entries
    }

    /// Calls of threads without stacks while the process is in torch's `backward`.
    fn of_backward(
        &self,
        calls: &[CallEvent],
        threads: &HashMap<u64, Vec<u32>>,
        found: &BTreeMap<u32, &TimedStack>,
    ) -> Vec<(u32, u32)> {
        let mut entries = Vec::new();
        if self.in_backward.is_empty() {
            return entries;
        }
        let has_python: HashSet<u64> = found.values().map(|stack| stack.thread).collect();
        let mut last: HashMap<u64, u32> = HashMap::new();
        for (call, at) in calls.iter().zip(0_u32..) {
            let process = process(Some(call.thread.cast_signed()));
            if let Some(stack) = found.get(&at) {
                last.insert(process, stack.entry);
            } else if !has_python.contains(&call.thread)
                && threads.contains_key(&call.thread)
                && let Some(entry) = last.get(&process)
                && self.in_backward.contains(entry)
            {
                entries.push((at, *entry));
            }
        }
        entries
    }
}

#[cfg(test)]
mod tests;
