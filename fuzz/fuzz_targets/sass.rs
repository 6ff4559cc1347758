//! Treats any bytes as machine code; the first byte selects the architecture.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use rgpu_format::sass::{self, Columns};

fuzz_target!(|bytes: &[u8]| {
    let Some((sm, code)) = bytes.split_first() else { return };
    let sm = u32::from(*sm);
    let summary = sass::summarize_code(code, sm);
    let code: Vec<_> = sass::decode(code).collect();
    let trimmed = sass::trimmed(&code, sm);
    assert!(trimmed.len() <= code.len());
    let mix = sass::mix(&code, sm);
    assert_eq!(mix.classes.iter().map(|c| c.count).sum::<u64>(), code.len() as u64);
    let blocks = sass::blocks(trimmed, sm);
    // Blocks cover the code exactly once, and lead only to blocks.
    let covered: u64 = blocks.iter().map(|b| b.end - b.start).sum();
    assert_eq!(covered, trimmed.len() as u64 * 16);
    for next in blocks.iter().flat_map(|b| &b.next) {
        assert!(blocks.binary_search_by_key(next, |b| b.start).is_ok());
    }
    // The single pass agrees with the separate functions.
    let loops = blocks.iter().filter(|b| b.loop_head).count();
    assert_eq!(summary.bytes, trimmed.len() * 16);
    assert_eq!((summary.blocks, summary.loops), (blocks.len() as u64, loops as u64));
    assert_eq!(summary.mix, sass::mix(trimmed, sm));
    let columns = Columns { control: true, bits: true };
    let text = sass::listing(&code, sm, columns, &BTreeMap::new());
    assert!(text.lines().count() >= code.len());
});
