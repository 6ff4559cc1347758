//! Composes a million recorded pairs with proofs; `layout.py` times it and pycute.

use std::hint::black_box;

use rgpu_layout::{Layout, Limits, compose};

const COUNT: u32 = 1_000_000;

fn main() {
    let recorded = include_str!("../src/layout/tests/data/pycute.tsv");
    let pairs: Vec<(Layout, Layout)> = recorded
        .lines()
        .filter_map(|line| {
            let mut fields = line.strip_prefix("compose\t")?.split('\t');
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        })
        .collect();
    // pycute names no nearest operand.
    let limits = Limits { nearest_tries: 0, ..Limits::default() };
    let mut found = 0_u32;
    for (a, b) in pairs.iter().cycle().take(COUNT as usize) {
        found += u32::from(black_box(&compose(a, b, limits)).is_ok());
    }
    println!("{{\"pairs\": {}, \"count\": {COUNT}, \"found\": {found}}}", pairs.len());
}
