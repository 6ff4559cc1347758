//! Live ranges of registers: how many are live at each instruction, and which.

use std::collections::BTreeMap;
use std::fmt::Write;

use rgpu_model::code::{CodeImage, CodeKernel, LifeRange};

/// How many of the longest live ranges are named at most.
const MAX_LONGEST: usize = 5;

/// A map for every kernel with a row per instruction and a column per general register: `^` where
/// it is written, `v` where it is read, `x` for both, `:` where it is only live, `.` where it is
/// not live. `>` marks the rows with the most live registers. `None` if liveness is unknown.
pub fn live(image: &CodeImage) -> Option<String> {
    let known = image.kernels.iter().filter(|k| k.instructions.iter().any(|i| i.live.is_some()));
    let kernels: Vec<String> = known.map(|kernel| kernel_text(kernel, &image.arch)).collect();
    (!kernels.is_empty()).then(|| kernels.join("\n"))
}

fn kernel_text(kernel: &CodeKernel, arch: &str) -> String {
    let mut text = format!("{} ({arch}): ", kernel.shown());
    let live_counts = || kernel.instructions.iter().filter_map(|i| Some((i.live?, i.offset)));
    let (max_live, at) = live_counts()
        .map(|(live, offset)| (live.registers, offset))
        .fold((0, 0), |best, one| if one.0 > best.0 { one } else { best });
    let of_allocated = kernel.registers.map_or(String::new(), |n| format!(" of {n}"));
    let _ = writeln!(text, "at most {max_live}{of_allocated} registers live, at {at:04x}");
    let general = |range: &&LifeRange| number(&range.register).is_some();
    write_longest(&mut text, kernel, at);
    let width = kernel.ranges.iter().filter_map(|r| number(&r.register)).max().map_or(0, |n| n + 1);
    let uniform = live_counts().any(|(live, _)| live.uniform > 0);
    let uniform_predicates = live_counts().any(|(live, _)| live.uniform_predicates > 0);
    let column_head = |on: bool, head: &str| if on { format!(" {head:>3}") } else { String::new() };
    let left_head = format!(
        "  {:>6} {:>4} {:>3}{}{}  ",
        "offset",
        "R",
        "P",
        column_head(uniform, "UR"),
        column_head(uniform_predicates, "UP")
    );
    let tens: String = (0..width).map(|n| if n % 10 == 0 { tens(n) } else { ' ' }).collect();
    let units: String = (0..width).map(|n| digit(n % 10)).collect();
    let _ = writeln!(text, "{}{}", " ".repeat(left_head.len()), tens.trim_end());
    let _ = writeln!(text, "{left_head}{units}");
    let mut rows: BTreeMap<u64, Vec<char>> = BTreeMap::new();
    for instruction in &kernel.instructions {
        rows.insert(instruction.offset, vec!['.'; width]);
    }
    for range in kernel.ranges.iter().filter(general) {
        let Some(column) = number(&range.register) else { continue };
        let mut set = |offset: u64, mark: char| {
            let cell = rows.get_mut(&offset).and_then(|row| row.get_mut(column));
            if let Some(cell) = cell {
                *cell = if *cell == '^' && mark == 'v' { 'x' } else { mark };
            }
        };
        let offsets = kernel.instructions.iter().map(|i| i.offset);
        offsets.filter(|at| (range.from..=range.to).contains(at)).for_each(|at| set(at, ':'));
        range.writes.iter().for_each(|at| set(*at, '^'));
        range.reads.iter().for_each(|at| set(*at, 'v'));
    }
    for instruction in &kernel.instructions {
        let live = instruction.live.unwrap_or_default();
        let map: String = rows.remove(&instruction.offset).into_iter().flatten().collect();
        let count = |on: bool, n: u32| if on { format!(" {n:>3}") } else { String::new() };
        let _ = writeln!(
            text,
            "{} {:>6} {:>4} {:>3}{}{}  {map}  {}",
            if live.registers == max_live { ">" } else { " " },
            format!("{:04x}", instruction.offset),
            live.registers,
            live.predicates,
            count(uniform, live.uniform),
            count(uniform_predicates, live.uniform_predicates),
            instruction.text
        );
    }
    text
}

/// Names the longest live ranges at the point of highest register pressure.
fn write_longest(text: &mut String, kernel: &CodeKernel, at: u64) {
    let mut live_at_peak: Vec<&LifeRange> = kernel
        .ranges
        .iter()
        .filter(|r| number(&r.register).is_some() && (r.from..=r.to).contains(&at))
        .collect();
    live_at_peak.sort_by_key(|r| std::cmp::Reverse(r.to - r.from));
    let range_text = |r: &&LifeRange| format!("{} {:04x}-{:04x}", r.register, r.from, r.to);
    let named: Vec<String> = live_at_peak.iter().take(MAX_LONGEST).map(range_text).collect();
    if !named.is_empty() {
        let _ = writeln!(text, "  longest of them: {}", named.join(", "));
    }
}

/// The number of a general register.
fn number(register: &str) -> Option<usize> {
    register.strip_prefix('R')?.parse().ok()
}

fn digit(n: usize) -> char {
    char::from_digit((n % 10) as u32, 10).unwrap_or(' ')
}

/// The tens of a column's number as one character; from 100 on letters, `A` for 10 tens.
fn tens(n: usize) -> char {
    char::from_digit((n / 10) as u32, 36).map_or(' ', |c| c.to_ascii_uppercase())
}
