//! A launch for a kernel that the source does not launch.
//!
//! The kernel is followed once with its block and thread indexes as unknowns. A comparison
//! `i < n` whose left side grows by `c` from block to block tells that `ceil_div(n, c)` blocks cover
//! `n`. Where nothing is compared, the factor of the other axis' index tells: in `row * n + col`,
//! `col` is below `n`. Block shapes come from `__launch_bounds__`, from constants that multiply a
//! block index (`blockIdx.x * 16 + threadIdx.x`), from assertions on `blockDim`, and from arrays in
//! shared memory that a thread's index selects from.

use std::collections::HashMap;

use super::declare::{Declared, Function};
use super::infer::{bind_params, size_name};
use super::instance::Instance;
use super::machine::{Machine, Value};
use super::polynomial::Polynomial;
use super::range::Range;
use super::tree::{Expression, MemoryKind, Statement, StatementKind, visit_expressions};

pub(super) const AXES: [&str; 3] = ["x", "y", "z"];

/// Grid and block, and how they were found.
#[derive(Clone, Debug)]
pub(super) struct GuessedLaunch {
    pub(super) grid: [Polynomial; 3],
    pub(super) block: [Polynomial; 3],
    /// Why the block has this shape, in words.
    pub(super) block_origin: String,
}

/// The axes of `threadIdx` and `blockIdx` that a kernel uses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsedAxes {
    pub(super) thread: [bool; 3],
    pub(super) block: [bool; 3],
}

impl UsedAxes {
    pub(super) fn of(declared: &Declared, kernel: &Function) -> Self {
        let mut used = Self::default();
        let mut look = |expression: &Expression| {
            let Expression::Member(base, axis) = expression else { return };
            let Expression::Name(base) = &**base else { return };
            let Some(at) = AXES.iter().position(|known| *known == &**axis) else { return };
            let axes = match &**base {
                "threadIdx" | "blockDim" => &mut used.thread,
                "blockIdx" | "gridDim" => &mut used.block,
                _ => return,
            };
            if let Some(slot) = axes.get_mut(at) {
                *slot = true;
            }
        };
        visit_expressions(&kernel.body, &mut look);
        // A helper may read the indexes.
        let mut called = Vec::new();
        visit_expressions(&kernel.body, &mut |expression| {
            if let Expression::Call(function, _) = expression
                && let Expression::Name(name) = &**function
            {
                called.push(name.clone());
            }
        });
        for function in declared.device_functions.iter().filter(|f| called.contains(&f.name)) {
            visit_expressions(&function.body, &mut look);
        }
        used
    }

    pub(super) fn is_flat(self) -> bool {
        let [_, y, z] = self.thread;
        !y && !z
    }
}

pub(super) fn guess_launch(
    declared: &Declared,
    kernel: &Function,
    instance: &Instance,
    values: Option<&HashMap<String, Polynomial>>,
) -> Result<GuessedLaunch, String> {
    let used = UsedAxes::of(declared, kernel);
    let (block, block_origin) = block(declared, kernel, instance, used)?;
    let mut machine = Machine::new(declared, instance.types.clone());
    bind_params(&mut machine, kernel, instance, values);
    for (at, axis) in AXES.iter().enumerate() {
        let threads = block.get(at).copied().unwrap_or(1);
        let index = |name: &str| Range::exact(Polynomial::index(name));
        machine.set_range(&format!("blockIdx.{axis}"), index(&format!("@b{axis}")));
        let thread = if threads == 1 { Range::number(0) } else { index(&format!("@t{axis}")) };
        machine.set_range(&format!("threadIdx.{axis}"), thread);
        machine.set_range(&format!("blockDim.{axis}"), Range::number(threads));
        let blocks = Range::exact(Polynomial::variable(&format!("@g{axis}")));
        machine.set_range(&format!("gridDim.{axis}"), blocks);
    }
    machine.run(&declared.shared);
    machine.run(&kernel.body);
    let params = integer_params(&machine, kernel);
    let mut grid = [1, 1, 1].map(Polynomial::number);
    for (at, axis) in AXES.iter().enumerate() {
        if !used.block.get(at).copied().unwrap_or(false) {
            continue;
        }
        let blocks = blocks_by_comparison(&machine, axis)
            .or_else(|| blocks_by_stride(&machine, axis, &params))
            .unwrap_or_else(|| Polynomial::variable(&format!("blocks_{axis}")));
        if let Some(slot) = grid.get_mut(at) {
            *slot = blocks;
        }
    }
    Ok(GuessedLaunch { grid, block: block.map(Polynomial::number), block_origin })
}

/// The names of the parameters that are sizes.
fn integer_params(machine: &Machine<'_>, kernel: &Function) -> Vec<String> {
    let is_size = |name: &str| {
        matches!(machine.variables.get(name), Some(Value::Int(range))
            if range.as_exact().and_then(|value| value.as_variable()) == Some(&size_name(name)))
    };
    let names = kernel.params.iter().map(|param| param.name.to_string());
    names.filter(|name| is_size(name)).map(|name| size_name(&name)).collect()
}

/// The blocks along an axis that a comparison `index < bound` asks for.
fn blocks_by_comparison(machine: &Machine<'_>, axis: &str) -> Option<Polynomial> {
    let index = format!("@b{axis}");
    machine.compared.iter().find_map(|(left, right)| {
        if right.mentions("@") || right.as_number().is_some() {
            return None;
        }
        let step = left.coefficient(&index)?;
        if step.mentions("@") || !step.plus(-1)?.is_never_negative() {
            return None;
        }
        // `row * w + col < h * w` has `h` rows.
        right.divide_up(&step)
    })
}

/// The blocks along an axis of which no bound is known, from how the indexes are multiplied.
fn blocks_by_stride(machine: &Machine<'_>, axis: &str, params: &[String]) -> Option<Polynomial> {
    let index = format!("@b{axis}");
    let offsets = || machine.memories.iter().flat_map(|memory| &memory.offsets);
    let factors: Vec<(&Polynomial, Polynomial)> = offsets()
        .filter_map(|offset| Some((offset, offset.coefficient(&index)?)))
        .filter(|(_, factor)| *factor != Polynomial::default())
        .collect();
    // How many elements, or rows, the index moves by from block to block.
    let steps = factors.iter().filter_map(|(_, factor)| factor.only_coefficient());
    let step = steps.filter(|step| *step > 0).min().unwrap_or(1);
    // Where it moves within a row, the other indexes are multiplied by the row's length.
    let mut by_row = None;
    for (offset, _) in factors.iter().filter(|(_, factor)| factor.as_number().is_some()) {
        for other in AXES.iter().filter(|other| **other != axis) {
            for kind in ["b", "t"] {
                let stride = offset.coefficient(&format!("@{kind}{other}")).unwrap_or_default();
                let names = stride.names();
                if let [only] = names.as_slice()
                    && by_row.is_none()
                    && params.contains(only)
                {
                    by_row = Some(only.clone());
                }
            }
        }
    }
    let unused = || {
        // A size that multiplies no index counts rows.
        let multiplied: Vec<String> = offsets()
            .flat_map(|offset| AXES.iter().filter_map(|a| offset.coefficient(&format!("@b{a}"))))
            .flat_map(|factor| factor.names())
            .collect();
        params.iter().find(|name| !multiplied.contains(name)).cloned()
    };
    let name = by_row.or_else(unused).or_else(|| params.first().cloned())?;
    Polynomial::variable(&name).divide_up(&Polynomial::number(step))
}

/// The threads of a block along each axis, and where the numbers come from.
fn block(
    declared: &Declared,
    kernel: &Function,
    instance: &Instance,
    used: UsedAxes,
) -> Result<([i64; 3], String), String> {
    let mut machine = Machine::new(declared, instance.types.clone());
    for (name, range) in &instance.numbers {
        machine.set_range(name, range.clone());
    }
    let mut known: [Option<i64>; 3] = [None; 3];
    let mut origin = "";
    let mut found: Vec<(usize, i64, &'static str)> = Vec::new();
    block_facts(&kernel.body, &mut machine, &mut found);
    for (axis, threads, why) in found {
        if let Some(slot) = known.get_mut(axis)
            && slot.is_none()
            && (1..=1024).contains(&threads)
        {
            *slot = Some(threads);
            origin = why;
        }
    }
    let bounds = kernel.launch_bounds.as_ref().and_then(|bounds| machine.number_of(bounds));
    let limit = bounds.filter(|bounds| (1..=1024).contains(bounds));
    if used.is_flat() {
        let [x, ..] = known;
        let tile = flat_tile(kernel, &mut machine).filter(|_| limit.is_none());
        let (x, origin) = match (x, limit) {
            (None, None) if tile.is_some() => {
                (tile.unwrap_or(256), "a square of the number that divides its thread index")
            }
            (Some(x), _) => (x, origin),
            (None, Some(limit)) => (limit, "its launch bounds"),
            (None, None) => (256, "usual"),
        };
        return Ok(([x, 1, 1], origin.to_owned()));
    }
    let axes = used.thread.iter().filter(|used| **used).count();
    let mut usual = if axes >= 3 { [8, 8, 8] } else { [16, 16, 16] };
    if let (Some(limit), true) = (limit, known.iter().all(Option::is_none)) {
        let side = (1..=32).rev().find(|side| side * side <= limit && limit % side == 0);
        usual = [side.map_or(16, |side| limit / side), side.unwrap_or(16), 1];
        origin = "its launch bounds";
    }
    if known.iter().all(Option::is_none)
        && limit.is_none()
        && divides_by_warps(kernel, &mut machine)
    {
        usual = [128, 4, 1];
        origin = "four warps side by side, since it counts in warps";
    }
    let known_side = known.iter().flatten().next().copied();
    let mut block = [1; 3];
    for (at, slot) in block.iter_mut().enumerate() {
        if used.thread.get(at).copied().unwrap_or(false) {
            let fallback = usual.get(at).copied().unwrap_or(1);
            let own = known.get(at).copied().flatten();
            // Tiles are square, unless that is too many threads.
            let side = known_side.filter(|side| side * side <= 1024);
            *slot = own.or(side).unwrap_or(fallback);
        }
    }
    let threads: i64 = block.iter().product();
    if threads > 1024 {
        return Err(format!("a block of {threads} threads, where at most 1024 are possible"));
    }
    Ok((block, if origin.is_empty() { "usual" } else { origin }.to_owned()))
}

/// Whether a kernel divides an index along x by the threads of a warp.
fn divides_by_warps(kernel: &Function, machine: &mut Machine<'_>) -> bool {
    let mut divisors: Vec<&Expression> = Vec::new();
    visit_expressions(&kernel.body, &mut |expression| {
        if let Expression::Binary("/", left, right) = expression
            && left.text().contains("threadIdx.x")
        {
            divisors.push(right);
        }
    });
    divisors.into_iter().any(|divisor| machine.number_of(divisor) == Some(32))
}

/// The threads of a flat block that is a square tile: `threadIdx.x / 32` and `threadIdx.x % 32`,
/// with both axes of blocks.
fn flat_tile(kernel: &Function, machine: &mut Machine<'_>) -> Option<i64> {
    let mut divisors: Vec<(&str, &Expression)> = Vec::new();
    visit_expressions(&kernel.body, &mut |expression| {
        if let Expression::Binary(operator @ ("/" | "%"), left, right) = expression
            && left.text() == "threadIdx.x"
        {
            divisors.push((operator, right));
        }
    });
    let uses_rows = {
        let mut found = false;
        visit_expressions(&kernel.body, &mut |e| found |= e.text() == "blockIdx.y");
        found
    };
    let quotient = divisors.iter().find(|(operator, _)| *operator == "/")?.1;
    let rest = divisors.iter().find(|(operator, _)| *operator == "%")?.1;
    let side = machine.number_of(quotient)?;
    let is_square = machine.number_of(rest) == Some(side) && (2..=32).contains(&side);
    (is_square && uses_rows).then(|| side * side)
}

/// Finds what tells the threads of a block along an axis.
fn block_facts(
    body: &[Statement],
    machine: &mut Machine<'_>,
    found: &mut Vec<(usize, i64, &'static str)>,
) {
    for statement in body {
        if let StatementKind::Declare(declared) = &statement.kind {
            // Constants of the kernel, such as `const int tile = 16`.
            let is_constant = declared.extents.is_empty() && declared.memory == MemoryKind::Local;
            if is_constant
                && let Some(init) = &declared.init
                && let Some(value) = machine.number_of(init)
            {
                machine.set_range(&declared.name, Range::number(value));
            }
        }
    }
    let axis_of = |expression: &Expression, base: &str| {
        let Expression::Member(name, axis) = expression else { return None };
        let is_base = **name == Expression::Name(base.into());
        AXES.iter().position(|known| *known == &**axis).filter(|_| is_base)
    };
    let mut products: Vec<(usize, &Expression)> = Vec::new();
    let mut equal: Vec<(usize, &Expression)> = Vec::new();
    let mut sums: Vec<&Expression> = Vec::new();
    visit_expressions(body, &mut |expression| match expression {
        Expression::Binary("*", left, right) => {
            for (index, factor) in [(left, right), (right, left)] {
                if let Some(axis) = axis_of(index, "blockIdx") {
                    products.push((axis, factor));
                }
            }
        }
        Expression::Binary("==", left, right) => {
            for (dimension, value) in [(left, right), (right, left)] {
                if let Some(axis) = axis_of(dimension, "blockDim") {
                    equal.push((axis, value));
                }
            }
        }
        Expression::Binary("+", ..) => sums.push(expression),
        _ => {}
    });
    for (axis, value) in equal {
        if let Some(threads) = machine.number_of(value) {
            found.push((axis, threads, "an assertion in the kernel"));
        }
    }
    for (axis, factor) in products {
        let Some(threads) = machine.number_of(factor) else { continue };
        // The thread's index is added to it: then each thread has one element.
        let is_added = sums.iter().any(|sum| {
            let Expression::Binary(_, left, right) = sum else { return false };
            let parts = [left, right];
            parts.iter().any(|part| axis_of(part, "threadIdx") == Some(axis))
                && parts.iter().any(|part| {
                    matches!(&***part, Expression::Binary("*", a, b)
                        if [a, b].iter().any(|e| axis_of(e, "blockIdx") == Some(axis)))
                })
        });
        if is_added {
            found.push((axis, threads, "the constant beside its block index"));
        }
    }
    shared_arrays(body, machine, found, &axis_of);
}

/// Arrays in shared memory whose extents are the block's.
fn shared_arrays(
    body: &[Statement],
    machine: &mut Machine<'_>,
    found: &mut Vec<(usize, i64, &'static str)>,
    axis_of: &dyn Fn(&Expression, &str) -> Option<usize>,
) {
    for statement in body {
        let StatementKind::Declare(declared) = &statement.kind else { continue };
        if declared.memory != MemoryKind::Shared {
            continue;
        }
        let extents: Vec<Option<i64>> =
            declared.extents.iter().map(|extent| machine.number_of(extent)).collect();
        visit_expressions(body, &mut |expression| {
            // `tile[threadIdx.y][threadIdx.x]`: the outer index is the first.
            let mut indexes = Vec::new();
            let mut base = expression;
            while let Expression::Index(inner, index) = base {
                indexes.push(&**index);
                base = inner;
            }
            if indexes.len() != extents.len() || *base != Expression::Name(declared.name.clone()) {
                return;
            }
            for (index, extent) in indexes.iter().rev().zip(&extents) {
                let Some(axis) = axis_of(index, "threadIdx") else { continue };
                if let Some(extent) = extent {
                    // `[32][33]` is padded.
                    let threads = if extent % 2 == 1 && *extent > 1 { extent - 1 } else { *extent };
                    found.push((axis, threads, "the extents of its array in shared memory"));
                }
            }
        });
    }
}
