//! Prints the instruction mix of each kernel of an image: how many instructions of which class it
//! has.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::TextTable;
use rgpu_model::code::{CodeImage, CodeKernel};

/// The instruction classes of each kernel, most frequent first, with the instructions in each.
/// `class_of` maps an instruction's name to its class.
pub fn mix(image: &CodeImage, width: usize, class_of: &dyn Fn(&str) -> String) -> String {
    let mut text = String::new();
    for kernel in &image.kernels {
        let all: u64 = kernel.classes.values().sum();
        let _ = writeln!(text, "{} ({}): {all} instructions", kernel.shown(), image.arch);
        text.push_str(&table(kernel, all, class_of).plain(width, 2));
    }
    text
}

fn table(kernel: &CodeKernel, all: u64, class_of: &dyn Fn(&str) -> String) -> TextTable {
    let mut table = TextTable::new("class | count: | share: | instructions");
    let mut names: BTreeMap<String, Vec<(&String, u64)>> = BTreeMap::new();
    for (name, count) in &kernel.mnemonics {
        names.entry(class_of(name)).or_default().push((name, *count));
    }
    let mut classes: Vec<(&String, &u64)> = kernel.classes.iter().collect();
    classes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (class, count) in classes {
        let mut names = names.remove(class).unwrap_or_default();
        names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let names: Vec<String> = names.iter().map(|(name, n)| format!("{name} {n}")).collect();
        table.add_row([
            class.clone(),
            count.to_string(),
            format!("{:.1} %", *count as f64 / all.max(1) as f64 * 100.0),
            names.join(", "),
        ]);
    }
    table
}
