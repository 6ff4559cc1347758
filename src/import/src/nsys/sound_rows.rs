//! Rows of a trace without those whose times cannot be, by the rule of [`sound_times`].
//!
//! [`sound_times`]: crate::sound_times

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

use rgpu_format::nsys_row::{
    ApiCall, Diagnostic, GraphLaunch, Kernel, KernelInterval, Memcpy, Memset, NO_TIME, NativeStack,
    NvtxEvent, NvtxKind, PythonStack, Strings,
};

use rgpu_format::memory::{MemoryBudget, OverBudget};

use super::MAX_LAUNCHES;
use super::ranks::CollectiveFacts;
use super::rows::TraceRows;
use super::trace::{self, Trace, process};
use crate::region_tree::{MAX_REGIONS_BYTES, REGION_BYTES_PER_RANGE};
use crate::sound_times::{
    LeftOut, Overlong, RowKind, StreamKey, StreamOrder, StreamRow, TimeRule, TimeSample,
    is_forbidden,
};
use rgpu_model::profile::Gap;

/// Reads a trace without rows whose times cannot be. Most traces have none and are read once.
pub(super) fn read<R: TraceRows>(file: &R, keep: usize) -> Result<(Trace, LeftOut), R::Error> {
    let rows = SoundRows {
        file,
        is_first_reading: Cell::new(true),
        rule: Cell::default(),
        sample: RefCell::default(),
        kernel_order: RefCell::default(),
        copy_order: RefCell::default(),
        kernel_ends: RefCell::default(),
        copy_ends: RefCell::default(),
        left_out: Cell::default(),
        budget: RefCell::new(budget_of(file)),
        rows_with_room: Cell::default(),
        without_room: Cell::default(),
    };
    let mut trace = trace::read(&rows, keep)?;
    if rows.has_more_to_leave_out(&trace.strings)? {
        rows.is_first_reading.set(false);
        rows.budget.replace(budget_of(file));
        rows.rows_with_room.take();
        rows.without_room.set(None);
        drop(trace);
        trace = trace::read(&rows, keep)?;
    }
    trace.without_room = rows.without_room.get();
    if let Some(budget) = rows.budget.borrow().as_ref() {
        trace.limit_lists(budget.left());
    }
    let mut left_out = rows.left_out.get();
    left_out.clip((rows.kernel_ends.borrow().len() + rows.copy_ends.borrow().len()) as u64);
    Ok((trace, left_out))
}

struct SoundRows<'a, R> {
    file: &'a R,
    /// Whether the rows are sampled, too.
    is_first_reading: Cell<bool>,
    rule: Cell<TimeRule>,
    sample: RefCell<TimeSample>,
    kernel_order: RefCell<StreamOrder>,
    copy_order: RefCell<StreamOrder>,
    /// Earlier ends of kernels and copies, by row.
    kernel_ends: RefCell<HashMap<u64, i64>>,
    copy_ends: RefCell<HashMap<u64, i64>>,
    left_out: Cell<LeftOut>,
    /// Memory that is left for rows; `None` if they were counted before.
    budget: RefCell<Option<MemoryBudget>>,
    /// Rows that had room, by kind.
    rows_with_room: Cell<[u64; RowKind::COUNT]>,
    without_room: Cell<Option<RowsWithoutRoom>>,
}

/// Rows that were left out because there was no memory left for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowsWithoutRoom {
    /// The kind of the first, and how many rows of all kinds were read before it.
    pub(super) first: RowKind,
    pub(super) rows_before: u64,
    /// Number of rows.
    pub(super) rows: u64,
    pub(super) over: OverBudget,
}

impl RowsWithoutRoom {
    pub(super) fn gap(&self, from: &str) -> Gap {
        let (one, many) = self.first.words();
        let (before, rows, over) = (self.rows_before, self.rows, self.over);
        let noun = if rows == 1 { one } else { many };
        let text = format!(
            "{from}: {over}; the first {before} rows are read, and {rows} are left out, {noun} first"
        );
        Gap { code: "too_much_memory".to_owned(), text }
    }
}

/// The memory for the rows of a file, beside that for the regions.
fn budget_of<R: TraceRows>(file: &R) -> Option<MemoryBudget> {
    let mut budget = MemoryBudget::for_file(file.file_bytes()?);
    // A budget is larger than this part of it.
    let _ = budget.take(MAX_REGIONS_BYTES);
    Some(budget)
}

/// Memory of each of the first kernels, which are listed one by one.
const LISTED_KERNEL_BYTES: usize = 1500;

/// Memory of a row with what is made of it, without its event in the trace: those are listed as far
/// as there is memory left when all rows are read ([`Trace::limit_lists`]).
fn row_bytes(kind: RowKind) -> usize {
    match kind {
        // With the row by which the order of the stream is checked.
        RowKind::Kernel | RowKind::Copy => 216,
        RowKind::Fill | RowKind::Graph => 120,
        RowKind::Call => 40,
        RowKind::Range => 208 + REGION_BYTES_PER_RANGE,
    }
}

fn kernel_row(kernel: &KernelInterval, row: u64) -> Option<StreamRow> {
    if kernel.graph_node.is_some_and(|node| node != 0) {
        return None;
    }
    let process = process(kernel.global_pid);
    Some(StreamRow {
        key: StreamKey {
            process,
            device: kernel.device.unwrap_or(0),
            context: kernel.context.unwrap_or(0),
            stream: u64::from(kernel.stream?),
        },
        start_ns: kernel.start_ns,
        end_ns: kernel.end_ns,
        row,
        call: kernel.correlation.map(|id| (process, id)),
    })
}

fn copy_row(copy: &Memcpy, row: u64) -> Option<StreamRow> {
    let process = process(copy.global_pid);
    Some(StreamRow {
        key: StreamKey {
            process,
            device: copy.device.unwrap_or(0),
            context: 0,
            stream: u64::from(copy.stream?),
        },
        start_ns: copy.start_ns,
        end_ns: copy.end_ns,
        row,
        call: copy.correlation.map(|id| (process, id)),
    })
}

impl<R: TraceRows> SoundRows<'_, R> {
    /// Whether rows of that kind can have these times.
    fn allows(&self, kind: RowKind, start_ns: i64, end_ns: Option<i64>) -> bool {
        let allows = self.rule.get().allows(kind, start_ns, end_ns);
        if allows && self.is_first_reading.get() {
            self.sample.borrow_mut().see(kind, start_ns, end_ns);
        }
        allows
    }

    /// Whether there is memory for a row. Once there is none, all later rows are left out.
    fn has_room(&self, kind: RowKind) -> bool {
        let mut budget = self.budget.borrow_mut();
        let Some(budget) = budget.as_mut() else {
            let mut rows_with_room = self.rows_with_room.get();
            rows_with_room[kind as usize] += 1;
            self.rows_with_room.set(rows_with_room);
            return true;
        };
        let mut rows_with_room = self.rows_with_room.get();
        let of_kind = &mut rows_with_room[kind as usize];
        let is_listed = kind == RowKind::Kernel && *of_kind < MAX_LAUNCHES as u64;
        let listed_bytes = if is_listed { LISTED_KERNEL_BYTES } else { 0 };
        let Err(over) = budget.take(row_bytes(kind) + listed_bytes) else {
            *of_kind += 1;
            self.rows_with_room.set(rows_with_room);
            return true;
        };
        let rows_before = rows_with_room.iter().sum();
        let first = RowsWithoutRoom { first: kind, rows_before, rows: 0, over };
        let known = self.without_room.get().unwrap_or(first);
        self.without_room.set(Some(RowsWithoutRoom { rows: known.rows + 1, ..known }));
        false
    }

    /// Whether any memory is left for what takes it by itself, such as stacks.
    fn has_memory(&self) -> bool {
        self.budget.borrow().as_ref().is_none_or(|budget| budget.left() > 0)
    }

    /// Passes on the rows of a kind whose start and end can be, and counts the others.
    fn sound_only<T>(
        &self,
        kind: RowKind,
        times: impl Fn(&T) -> (i64, i64),
        left_out: &Cell<u64>,
        mut row: impl FnMut(T),
    ) -> impl FnMut(T) {
        move |value| {
            let (start_ns, end_ns) = times(&value);
            if !self.allows(kind, start_ns, Some(end_ns)) {
                left_out.set(left_out.get() + 1);
            } else if self.has_room(kind) {
                row(value);
            }
        }
    }

    fn count(&self, kind: RowKind, count: u64) {
        let mut left_out = self.left_out.get();
        left_out.set(kind, count);
        self.left_out.set(left_out);
    }

    /// Looks at what the first reading saw. Returns whether a second one would leave out more.
    fn has_more_to_leave_out(&self, strings: &Strings) -> Result<bool, R::Error> {
        let window = self.sample.take().window();
        if let Some(window) = &window {
            self.rule.set(TimeRule::within(window));
        }
        let is_inside = |row: &StreamRow| {
            self.rule.get().allows(RowKind::Kernel, row.start_ns, Some(row.end_ns))
        };
        let is_narrower = window.is_some();
        let most = |kind: RowKind| self.rows_with_room.get()[kind as usize];
        let has_room = |rows: &[StreamRow], most: u64| (rows.len() as u64) < most;
        let mut kernels = self.kernel_order.take();
        if kernels.is_unsorted || is_narrower {
            let (mut rows, mut number) = (Vec::new(), 0);
            self.file.kernel_intervals(|kernel| {
                if has_room(&rows, most(RowKind::Kernel)) {
                    rows.extend(kernel_row(&kernel, number).filter(is_inside));
                }
                number += 1;
            })?;
            kernels = StreamOrder::from_rows(rows);
        }
        let mut copies = self.copy_order.take();
        if copies.is_unsorted || is_narrower {
            let (mut rows, mut number) = (Vec::new(), 0);
            self.file.memcpys(|copy| {
                if has_room(&rows, most(RowKind::Copy)) {
                    rows.extend(copy_row(&copy, number).filter(is_inside));
                }
                number += 1;
            })?;
            copies = StreamOrder::from_rows(rows);
        }
        let (kernels, copies) = (kernels.finish(), copies.finish());
        let wanted: HashSet<(u64, i64)> =
            kernels.iter().chain(&copies).flat_map(|found| found.calls).flatten().collect();
        let mut names: HashMap<(u64, i64), i64> = HashMap::new();
        if !wanted.is_empty() {
            self.file.api_calls(|call| {
                let Some(key) = call.correlation.map(|id| (process(call.global_tid), id)) else {
                    return;
                };
                if let Some(name) = call.name.filter(|_| wanted.contains(&key)) {
                    names.insert(key, name);
                }
            })?;
        }
        let is_too_long = |found: &&Overlong| {
            let name = |call: Option<(u64, i64)>| strings.get(*names.get(&call?)?);
            is_forbidden(found, found.calls.map(name))
        };
        let ends = |found: &[Overlong]| -> HashMap<u64, i64> {
            found.iter().filter(is_too_long).map(|found| (found.row, found.next_ns)).collect()
        };
        *self.kernel_ends.borrow_mut() = ends(&kernels);
        *self.copy_ends.borrow_mut() = ends(&copies);
        let has_clips =
            !self.kernel_ends.borrow().is_empty() || !self.copy_ends.borrow().is_empty();
        Ok(is_narrower || has_clips)
    }
}

impl<R: TraceRows> TraceRows for SoundRows<'_, R> {
    type Error = R::Error;

    fn take_memory(&self, bytes: usize) {
        if let Some(budget) = self.budget.borrow_mut().as_mut() {
            // The next row finds that nothing is left.
            let _ = budget.take(bytes);
        }
    }

    fn strings(&self) -> Result<Strings, R::Error> {
        let strings = self.file.strings()?;
        self.take_memory(strings.bytes());
        Ok(strings)
    }

    fn kernels(&self, mut row: impl FnMut(Kernel)) -> Result<(), R::Error> {
        let rule = self.rule.get();
        self.file.kernels(|kernel| {
            if rule.allows(RowKind::Kernel, kernel.start_ns, Some(kernel.end_ns)) {
                row(kernel);
            }
        })
    }

    fn first_kernels(&self, most: u64, mut row: impl FnMut(Kernel)) -> Result<(), R::Error> {
        let rule = self.rule.get();
        let left_out = self.left_out.get().count(RowKind::Kernel);
        let mut seen = 0;
        self.file.first_kernels(most.saturating_add(left_out), |kernel| {
            if seen < most && rule.allows(RowKind::Kernel, kernel.start_ns, Some(kernel.end_ns)) {
                seen += 1;
                row(kernel);
            }
        })
    }

    fn kernel_intervals(&self, mut row: impl FnMut(KernelInterval)) -> Result<(), R::Error> {
        let (mut number, mut left_out) = (0, 0);
        let ends = self.kernel_ends.borrow();
        let mut order = self.kernel_order.borrow_mut();
        self.file.kernel_intervals(|mut kernel| {
            let at = number;
            number += 1;
            if !self.allows(RowKind::Kernel, kernel.start_ns, Some(kernel.end_ns)) {
                left_out += 1;
                return;
            }
            if self.is_first_reading.get() {
                if let Some(seen) = kernel_row(&kernel, at).filter(|_| !order.is_unsorted) {
                    order.see(seen);
                }
            } else if let Some(end_ns) = ends.get(&at) {
                kernel.end_ns = *end_ns;
            }
            if self.has_room(RowKind::Kernel) {
                row(kernel);
            }
        })?;
        self.count(RowKind::Kernel, left_out);
        Ok(())
    }

    fn memcpys(&self, mut row: impl FnMut(Memcpy)) -> Result<(), R::Error> {
        let (mut number, mut left_out) = (0, 0);
        let ends = self.copy_ends.borrow();
        let mut order = self.copy_order.borrow_mut();
        self.file.memcpys(|mut copy| {
            let at = number;
            number += 1;
            if !self.allows(RowKind::Copy, copy.start_ns, Some(copy.end_ns)) {
                left_out += 1;
                return;
            }
            if self.is_first_reading.get() {
                if let Some(seen) = copy_row(&copy, at).filter(|_| !order.is_unsorted) {
                    order.see(seen);
                }
            } else if let Some(end_ns) = ends.get(&at) {
                copy.end_ns = *end_ns;
            }
            if self.has_room(RowKind::Copy) {
                row(copy);
            }
        })?;
        self.count(RowKind::Copy, left_out);
        Ok(())
    }

    fn memsets(&self, row: impl FnMut(Memset)) -> Result<(), R::Error> {
        let left_out = Cell::default();
        let times = |fill: &Memset| (fill.start_ns, fill.end_ns);
        self.file.memsets(self.sound_only(RowKind::Fill, times, &left_out, row))?;
        self.count(RowKind::Fill, left_out.get());
        Ok(())
    }

    fn graph_launches(&self, row: impl FnMut(GraphLaunch)) -> Result<(), R::Error> {
        let left_out = Cell::default();
        let times = |graph: &GraphLaunch| (graph.start_ns, graph.end_ns);
        self.file.graph_launches(self.sound_only(RowKind::Graph, times, &left_out, row))?;
        self.count(RowKind::Graph, left_out.get());
        Ok(())
    }

    fn api_calls(&self, row: impl FnMut(ApiCall)) -> Result<(), R::Error> {
        let left_out = Cell::default();
        let times = |call: &ApiCall| (call.start_ns, call.end_ns);
        self.file.api_calls(self.sound_only(RowKind::Call, times, &left_out, row))?;
        self.count(RowKind::Call, left_out.get());
        Ok(())
    }

    /// Marks and names without a sound time are kept for their names.
    fn nvtx_events(&self, mut row: impl FnMut(NvtxEvent)) -> Result<(), R::Error> {
        let mut left_out = 0;
        let rule = self.rule.get();
        self.file.nvtx_events(|mut event| {
            if !matches!(event.kind, NvtxKind::PushPop | NvtxKind::StartEnd) {
                if !rule.allows(RowKind::Range, event.start_ns, None) {
                    event.start_ns = NO_TIME;
                }
                event.end_ns = None;
                row(event);
            } else if !self.allows(RowKind::Range, event.start_ns, event.end_ns) {
                left_out += 1;
            } else if self.has_room(RowKind::Range) {
                row(event);
            }
        })?;
        self.count(RowKind::Range, left_out);
        Ok(())
    }

    fn native_stacks(&self, mut row: impl FnMut(NativeStack)) -> Result<(), R::Error> {
        self.file.native_stacks(|stack| {
            if self.has_memory() {
                row(stack);
            }
        })
    }

    fn python_stacks(&self, mut row: impl FnMut(PythonStack)) -> Result<(), R::Error> {
        self.file.python_stacks(|stack| {
            if self.has_memory() {
                row(stack);
            }
        })
    }

    fn collectives(&self) -> HashMap<i64, CollectiveFacts> {
        self.file.collectives()
    }

    fn other_rows(&self) -> Vec<(&'static str, u64)> {
        self.file.other_rows()
    }

    fn diagnostics(&self) -> Result<Vec<Diagnostic>, R::Error> {
        self.file.diagnostics()
    }
}

#[cfg(test)]
mod tests;
