//! Treats any text as a listing of nvdisasm.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rgpu_format::sass::text;

fuzz_target!(|listing: &str| {
    let sections = text::read(listing);
    let headed = listing.lines().filter(|line| line.contains(".section")).count();
    assert!(sections.len() <= headed);
    // Each instruction takes a line, and each register a column of the row.
    let lines: usize = sections.iter().map(|section| section.lines.len()).sum();
    assert!(lines <= listing.lines().count());
    for section in &sections {
        for line in &section.lines {
            assert!(line.live.is_empty() || section.has_lives);
            assert!(section.resolved(line.text).len() <= line.text.len() + 20);
        }
    }
});
