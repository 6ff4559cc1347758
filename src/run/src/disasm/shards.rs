//! Splits the listing of a large cubin into several calls of nvdisasm, each for a list of functions
//! (`-fun`), and joins their texts.
//!
//! nvdisasm lists whole sections for `-fun`, in file order, and numbers labels (`.L_x_3`) over its
//! whole output. So a call names one function per section, and labels are renumbered in order of
//! appearance when texts are joined: the result does not depend on the number of calls. Seen with
//! 13.5.

use std::collections::HashMap;
use std::fmt::Write;

use rgpu_format::cubin;

/// Cubins with less code are not split: starting nvdisasm costs as much as 400 kB of code.
const MIN_SPLIT_BYTES: u64 = 2 << 20;

/// Most code of one call, to limit memory: nvdisasm takes some 40 times as much. Each call reads
/// the whole file, a second for 50 MB, so few large calls are faster than many.
const MAX_SHARD_BYTES: u64 = 12 << 20;

/// Flags whose texts can be joined: they only add lines or columns to a plain listing.
const JOINABLE_FLAGS: &[&str] = &["-g", "-gi", "-gp", "-hex", "-ndf", "-plr", "-lrm", "count"];

/// The beginning of each part's heading in a listing.
const PART_HEADER: &str = "//--------------------- ";

/// The arguments of each call, without the file. `symbols` are the requested functions, empty for
/// all; `cores` is how many calls can run at once.
pub(super) fn split_calls(
    cubin: &[u8],
    flags: &[&str],
    symbols: &[usize],
    cores: usize,
) -> Vec<Vec<String>> {
    let call = |symbols: &[usize]| {
        let mut words: Vec<String> =
            std::iter::once(&"-c").chain(flags).map(|w| (*w).to_owned()).collect();
        if !symbols.is_empty() {
            let list: Vec<String> = symbols.iter().map(usize::to_string).collect();
            words.extend(["-fun".to_owned(), list.join(",")]);
        }
        words
    };
    let joinable =
        cubin.len() as u64 >= MIN_SPLIT_BYTES && flags.iter().all(|f| JOINABLE_FLAGS.contains(f));
    match joinable.then(|| lists(cubin, symbols, cores)).flatten() {
        Some(lists) if lists.len() > 1 => lists.iter().map(|list| call(list)).collect(),
        _ => vec![call(symbols)],
    }
}

/// Lists of functions with about the same amount of code. `None` if the cubin is too small, or a
/// section has no function to name it by.
fn lists(cubin: &[u8], symbols: &[usize], cores: usize) -> Option<Vec<Vec<usize>>> {
    let cubin = cubin::read(cubin).ok()?;
    let mut sections = Vec::new();
    for section in &cubin.code {
        let is_selected =
            |f: &cubin::Function| symbols.is_empty() || symbols.contains(&f.symbol_index);
        match section.functions.iter().find(|f| is_selected(f)) {
            Some(function) => sections.push((section.bytes, function.symbol_index)),
            None if symbols.is_empty() => return None,
            None => {}
        }
    }
    let total: u64 = sections.iter().map(|(bytes, _)| bytes).sum();
    if total < MIN_SPLIT_BYTES {
        return None;
    }
    let cores = cores.max(1) as u64;
    // An equal number for each core, and at least two, so that labels are numbered alike on all
    // machines.
    let parts = total.div_ceil(MAX_SHARD_BYTES).max((total / (MIN_SPLIT_BYTES / 2)).min(cores));
    let share = total.div_ceil(parts.next_multiple_of(cores).max(2));
    let (mut lists, mut list_bytes) = (vec![Vec::new()], 0);
    for (bytes, symbol) in sections {
        if list_bytes >= share {
            lists.push(Vec::new());
            list_bytes = 0;
        }
        list_bytes += bytes;
        if let Some(list) = lists.last_mut() {
            list.push(symbol);
        }
    }
    Some(lists)
}

/// Joins the texts of several calls, in order.
pub(super) fn join(mut texts: Vec<String>) -> String {
    if texts.len() == 1 {
        return texts.pop().unwrap_or_default();
    }
    let last = texts.len().saturating_sub(1);
    let mut joined = String::with_capacity(texts.iter().map(String::len).sum());
    let mut labels = Labels::default();
    for (at, text) in texts.iter().enumerate() {
        labels.next_text();
        let mut keep = at == 0;
        for line in text.split_inclusive('\n') {
            if let Some(name) = line.strip_prefix(PART_HEADER) {
                // Parts other than code are about the whole file; keep those of the last text only.
                keep = at == last || name.starts_with(".text");
            }
            if keep {
                labels.line(line, &mut joined);
            }
        }
    }
    joined
}

/// Numbers the labels of several texts on from one another, in the order in which they appear.
#[derive(Default)]
struct Labels {
    /// New numbers by the number in the current text.
    new: HashMap<u32, usize>,
    next: usize,
}

impl Labels {
    const PREFIX: &str = ".L_x_";

    fn next_text(&mut self) {
        self.new.clear();
    }

    /// Writes a line with its labels renumbered.
    fn line(&mut self, line: &str, out: &mut String) {
        let mut rest = line;
        while let Some(at) = rest.find(Self::PREFIX) {
            let (head, tail) = rest.split_at(at + Self::PREFIX.len());
            out.push_str(head);
            let digits = tail.len() - tail.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, tail) = tail.split_at(digits);
            rest = tail;
            match number.parse() {
                Ok(number) => {
                    let next = &mut self.next;
                    let new = self.new.entry(number).or_insert_with(|| {
                        *next += 1;
                        *next - 1
                    });
                    let _ = write!(out, "{new}");
                }
                Err(_) => out.push_str(number),
            }
        }
        out.push_str(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_join_to_one_whose_labels_do_not_tell_how_many_there_were() {
        let part = |name: &str, label: u32| {
            format!("{PART_HEADER}.text.{name} ---\n.L_x_{label}:\n BRA `(.L_x_{label}) ;\n")
        };
        let text = |parts: &[String]| {
            format!("\t.target\tsm_90a\n{}{PART_HEADER}SYMBOLS ---\n\t.type\n", parts.concat())
        };
        let whole = text(&[part("a", 0), part("b", 1), part("c", 2)]);
        let two = join(vec![text(&[part("a", 7)]), text(&[part("b", 4), part("c", 0)])]);
        assert_eq!(two, whole);
        let three = [part("a", 0), part("b", 0), part("c", 0)].map(|p| text(&[p]));
        assert_eq!(join(three.to_vec()), whole);
    }

    #[test]
    fn what_is_small_or_no_plain_listing_stays_one_call() {
        let words = split_calls(&[0; 100], &["-gi"], &[3, 4], 8);
        assert_eq!(words, [["-c", "-gi", "-fun", "3,4"]]);
        assert_eq!(split_calls(&vec![0; 9 << 20], &["-json"], &[], 8), [["-c", "-json"]]);
        assert_eq!(split_calls(&vec![0; 9 << 20], &[], &[], 8), [["-c"]]);
    }
}
