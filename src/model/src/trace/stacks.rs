//! From where in the program CUDA was called: call stacks, each frame and each path to it once.
//!
//! A program calls CUDA from few places very often. So the stacks of a trace are one tree: an entry
//! is a frame together with the entry that called it, and a call knows its innermost entry only.
//! Recordings of hostile programs may have endless stacks of names that never repeat; what is
//! beyond the limits is left out and counted.

use std::collections::HashMap;
use std::sync::Arc;

/// Most frames of one stack; inner ones are kept.
const MAX_DEPTH: usize = 256;
/// Most different frames of a trace.
const MAX_FRAMES: usize = 1 << 16;
/// Most entries of the tree.
const MAX_ENTRIES: usize = 1 << 18;
/// Most bytes of a file's or function's name.
const MAX_NAME_BYTES: usize = 1 << 10;

/// A place in the source of the program or of a library.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeFrame {
    /// The source file of a Python frame; the executable or library of a native one.
    pub file: Arc<str>,
    /// The line of the call, from 1. `None` if the recording does not tell; native frames have none.
    pub line: Option<u32>,
    /// The function; empty if it has no name.
    pub function: Arc<str>,
    /// Whether it is a frame of Python.
    pub is_python: bool,
}

/// A frame, and the entry that called it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StackEntry {
    frame: u32,
    /// The entry that called this one; it comes before this one.
    caller: Option<u32>,
}

/// The stacks of the calls of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stacks {
    frames: Vec<CodeFrame>,
    entries: Vec<StackEntry>,
    /// Indexes into the trace's calls with the innermost entry of each, in order.
    calls: Vec<(u32, u32)>,
}

impl Stacks {
    /// Whether no call has a stack.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Number of calls that have a stack.
    pub fn call_count(&self) -> usize {
        self.calls.len()
    }

    /// All frames, each once.
    pub fn frames(&self) -> &[CodeFrame] {
        &self.frames
    }

    /// The frames of a call, innermost first, as indexes into [`Stacks::frames`]. None if the call
    /// has no stack.
    pub fn of_call(&self, call: u32) -> impl Iterator<Item = u32> + '_ {
        let found = self.calls.binary_search_by_key(&call, |(call, _)| *call).ok();
        let innermost = found.and_then(|at| self.calls.get(at)).map(|(_, entry)| *entry);
        let entry = |at: u32| self.entries.get(at as usize);
        // A caller comes before what it calls, so this ends.
        let up = move |at: &u32| entry(*at)?.caller.filter(|caller| caller < at);
        std::iter::successors(innermost, up).filter_map(move |at| Some(entry(at)?.frame))
    }

    /// The innermost entry that two stacks have in common. `None` if that is the outermost one, or
    /// if there is none.
    pub fn common(&self, a: u32, b: u32) -> Option<u32> {
        let (of_a, of_b) = (self.path(a), self.path(b));
        let same = of_a.iter().rev().zip(of_b.iter().rev()).take_while(|(a, b)| a == b);
        same.skip(1).last().map(|(entry, _)| *entry)
    }

    /// An entry and its callers, innermost first.
    fn path(&self, entry: u32) -> Vec<u32> {
        let caller = |at: &u32| self.entries.get(*at as usize)?.caller.filter(|c| c < at);
        std::iter::successors(Some(entry), caller).collect()
    }

    /// The innermost entry of each call that has one, by index of the call, in order.
    pub fn calls(&self) -> &[(u32, u32)] {
        &self.calls
    }

    /// Gives calls these entries, in place of those that they had. Calls may come in any order; of
    /// a call that comes twice the last counts.
    pub fn set_calls(&mut self, mut calls: Vec<(u32, u32)>) {
        calls.reverse();
        calls.sort_by_key(|(call, _)| *call);
        calls.dedup_by_key(|(call, _)| *call);
        calls.retain(|(_, entry)| (*entry as usize) < self.entries.len());
        self.calls = calls;
    }

    /// Adds the stacks of another trace, whose calls become `number` of their index here.
    pub fn add(&mut self, other: &Stacks, number: impl Fn(u32) -> Option<u32>) {
        let mut maker = StackMaker::from(std::mem::take(self));
        let mut moved: Vec<Option<u32>> = Vec::with_capacity(other.entries.len());
        for entry in &other.entries {
            let caller = entry.caller.map(|at| moved.get(at as usize).copied().flatten());
            let at = match (other.frames.get(entry.frame as usize), caller) {
                (None, _) | (_, Some(None)) => None,
                (Some(frame), caller) => maker.entry(frame.clone(), caller.flatten()),
            };
            moved.push(at);
        }
        let mut calls = std::mem::take(&mut maker.stacks.calls);
        let entry = |at: u32| moved.get(at as usize).copied().flatten();
        calls.extend(
            other.calls.iter().filter_map(|(call, at)| Some((number(*call)?, entry(*at)?))),
        );
        *self = maker.stacks;
        self.set_calls(calls);
    }
}

/// Makes [`Stacks`].
#[derive(Debug, Default)]
pub struct StackMaker {
    stacks: Stacks,
    frames: HashMap<CodeFrame, u32>,
    entries: HashMap<StackEntry, u32>,
    left_out: u64,
}

impl From<Stacks> for StackMaker {
    fn from(stacks: Stacks) -> StackMaker {
        let frames = stacks.frames.iter().cloned().zip(0..).collect();
        let entries = stacks.entries.iter().copied().zip(0..).collect();
        StackMaker { stacks, frames, entries, left_out: 0 }
    }
}

impl StackMaker {
    /// The entry of a stack, whose frames come innermost first. `None` for an empty one, and if
    /// there is no room for it.
    pub fn stack(&mut self, frames: impl IntoIterator<Item = CodeFrame>) -> Option<u32> {
        let inner: Vec<CodeFrame> = frames.into_iter().take(MAX_DEPTH).collect();
        let mut caller = None;
        for frame in inner.into_iter().rev() {
            caller = Some(self.entry(frame, caller)?);
        }
        caller
    }

    /// The number of stacks and parts of stacks for which there was no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The frames and entries; calls are to be [set](Stacks::set_calls).
    pub fn finish(self) -> Stacks {
        self.stacks
    }

    fn entry(&mut self, mut frame: CodeFrame, caller: Option<u32>) -> Option<u32> {
        cut(&mut frame.file);
        cut(&mut frame.function);
        let known = self.frames.get(&frame).copied();
        if known.is_none() && self.stacks.frames.len() >= MAX_FRAMES {
            self.left_out += 1;
            return None;
        }
        let number = known.unwrap_or_else(|| {
            let number = u32::try_from(self.stacks.frames.len()).unwrap_or(u32::MAX);
            self.frames.insert(frame.clone(), number);
            self.stacks.frames.push(frame);
            number
        });
        let entry = StackEntry { frame: number, caller };
        if let Some(at) = self.entries.get(&entry) {
            return Some(*at);
        }
        if self.stacks.entries.len() >= MAX_ENTRIES {
            self.left_out += 1;
            return None;
        }
        let at = u32::try_from(self.stacks.entries.len()).ok()?;
        self.entries.insert(entry, at);
        self.stacks.entries.push(entry);
        Some(at)
    }
}

fn cut(name: &mut Arc<str>) {
    if name.len() > MAX_NAME_BYTES {
        let end = (0..=MAX_NAME_BYTES).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        *name = name.get(..end).unwrap_or_default().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, line: u32) -> CodeFrame {
        CodeFrame { file: file.into(), line: Some(line), function: "f".into(), is_python: true }
    }

    fn lines(stacks: &Stacks, call: u32) -> Vec<u32> {
        stacks.of_call(call).filter_map(|at| stacks.frames()[at as usize].line).collect()
    }

    #[test]
    fn equal_paths_are_kept_once_and_read_from_the_innermost_out() {
        let mut maker = StackMaker::default();
        let deep = maker.stack([frame("b.py", 9), frame("a.py", 3)]).unwrap();
        let again = maker.stack([frame("b.py", 9), frame("a.py", 3)]).unwrap();
        let other = maker.stack([frame("b.py", 9), frame("a.py", 4)]).unwrap();
        assert_eq!(deep, again);
        assert_eq!(maker.stack([]), None);
        let mut stacks = maker.finish();
        stacks.set_calls(vec![(7, other), (2, deep), (9, u32::MAX), (7, deep)]);
        assert_eq!((stacks.frames().len(), stacks.entries.len(), stacks.call_count()), (3, 4, 2));
        assert_eq!((lines(&stacks, 2), lines(&stacks, 7)), (vec![9, 3], vec![9, 3]));
        assert!(lines(&stacks, 3).is_empty());
    }

    #[test]
    fn stacks_of_two_traces_are_joined() {
        let make = |line, call| {
            let mut maker = StackMaker::default();
            let entry = maker.stack([frame("b.py", line), frame("a.py", 3)]).unwrap();
            let mut stacks = maker.finish();
            stacks.set_calls(vec![(call, entry)]);
            stacks
        };
        let mut joined = make(9, 0);
        joined.add(&make(8, 0), |call| Some(call + 5));
        joined.add(&make(7, 1), |_| None);
        assert_eq!((lines(&joined, 0), lines(&joined, 5)), (vec![9, 3], vec![8, 3]));
        assert_eq!(joined.call_count(), 2);
    }

    #[test]
    fn endless_stacks_and_names_are_bounded() {
        let mut maker = StackMaker::default();
        let endless = (0..u32::MAX).map(|line| frame("a.py", line));
        let entry = maker.stack(endless).unwrap();
        let long = maker.stack([frame(&"é".repeat(2000), 1)]).unwrap();
        for line in 0..(MAX_FRAMES as u32 + 10) {
            maker.stack([frame("many.py", line)]);
        }
        assert!(maker.left_out() >= 10);
        let mut stacks = maker.finish();
        stacks.set_calls(vec![(0, entry), (1, long)]);
        assert_eq!(lines(&stacks, 0).len(), MAX_DEPTH);
        let file = &stacks.frames()[stacks.of_call(1).next().unwrap() as usize].file;
        assert_eq!(file.len(), MAX_NAME_BYTES);
    }
}
