//! Compares line tables of cubins with the output of nvdisasm.

use crate::{damage, fixture};
use rgpu_format::cubin::{self, Table};
use std::collections::BTreeMap;

/// Positions as `file:line` by function and offset, innermost first.
type Listing = BTreeMap<(String, u64), Vec<String>>;

/// Parses the `//## File` lines of `nvdisasm -gi` or `-gp`, which apply to the instructions below
/// them. They are printed when the innermost line changes; further instructions get only that line.
fn listing(text: &str) -> Listing {
    let (mut function, mut at, mut fresh) = (String::new(), Vec::new(), false);
    let mut all = Listing::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix(".section").map(str::trim) {
            let name = name.strip_prefix(".text.").and_then(|name| name.split(',').next());
            function = name.unwrap_or_default().to_owned();
            at.clear();
        } else if let Some(place) = line.strip_prefix("//## File ") {
            // One line for each level, from the innermost outwards.
            if !fresh {
                at.clear();
            }
            fresh = true;
            let place = place.split(" inlined at ").next().unwrap();
            let (file, line) = place.split_once(", line ").unwrap();
            at.push(format!("{}:{}", file.trim_matches('"'), line.trim()));
        } else if let Some(rest) = line.strip_prefix("/*")
            && let Some((offset, _)) = rest.split_once("*/")
        {
            all.insert((function.clone(), u64::from_str_radix(offset, 16).unwrap()), at.clone());
            fresh = false;
            at.truncate(1);
        }
    }
    all
}

fn ours(data: &[u8], table: Table, listing: &Listing) -> Listing {
    let lines = cubin::lines(data, table).unwrap();
    let place = |((function, offset), printed): (&(String, u64), &Vec<String>)| {
        let at = lines.function(function, usize::MAX).map(|f| f.at(*offset)).unwrap_or_default();
        let count = if printed.len() == 1 { 1 } else { at.len() };
        let at = at.iter().take(count).map(|at| format!("{}:{}", at.file, at.line)).collect();
        ((function.clone(), *offset), at)
    };
    listing.iter().map(place).collect()
}

#[test]
fn every_instruction_has_the_source_chain_that_nvdisasm_prints() {
    let data = fixture::bytes("cubin/13.5/inlined/sm_90a.cubin");
    let expected = listing(&fixture::text("cubin/13.5/inlined/nvdisasm.txt"));
    let ours = ours(&data, Table::Source, &expected);
    for (at, places) in &expected {
        assert_eq!(&ours[at], places, "{at:?}");
    }
    let deepest = expected.values().map(Vec::len).max();
    assert_eq!((deepest, expected.len()), (Some(3), 176));
    let lines = cubin::lines(&data, Table::Source).unwrap();
    let chain = lines.function("first", usize::MAX).unwrap().at(0xe0);
    let names: Vec<_> = chain.iter().map(|at| at.function).collect();
    assert_eq!(names, ["_Z6squaref", "_Z13twice_squaredf", ""]);
    // The code of a function that was not inlined is in the section of the kernel that calls it.
    let kept = lines.function("$second$_Z4keptf", usize::MAX).unwrap().at(0);
    assert_eq!((kept[0].file, kept[0].line), ("/src/inlined.cu", 5));
}

#[test]
fn every_instruction_has_the_ptx_line_that_nvdisasm_prints() {
    let data = fixture::bytes("cubin/13.5/inlined/sm_90a.cubin");
    let expected = listing(&fixture::text("cubin/13.5/inlined/nvdisasm.ptx.txt"));
    let line = |at: &String| at.rsplit(':').next().unwrap().to_owned();
    let numbers = |listing: Listing| -> BTreeMap<_, Vec<_>> {
        listing.into_iter().map(|(at, places)| (at, places.iter().map(line).collect())).collect()
    };
    let ours = ours(&data, Table::Ptx, &expected);
    assert_eq!(numbers(ours), numbers(expected));
}

#[test]
fn a_cubin_without_lines_gives_an_empty_table_and_damage_never_a_panic() {
    let plain = fixture::bytes("cubin/13.5/facts/sm_80.cubin");
    assert!(cubin::lines(&plain, Table::Source).unwrap().is_empty());
    let whole = fixture::bytes("cubin/13.5/inlined/sm_90a.cubin");
    let read = |data: &[u8]| {
        for table in [Table::Source, Table::Ptx] {
            let Ok(lines) = cubin::lines(data, table) else { continue };
            let Some(function) = lines.function("first", 16) else { continue };
            for offset in (0..0x200).step_by(16) {
                drop(function.at(offset));
            }
        }
    };
    damage::cut_everywhere(&whole, read);
    damage::flip_bits(&whole, 4000, read);
}

#[test]
fn lines_of_the_ptx_text_are_those_that_the_table_counts() {
    let file = fixture::bytes("cubin/13.5/inlined/sm_90a.cubin");
    let whole = cubin::read(&file).unwrap();
    let ptx = whole.ptx.unwrap().text(&file);
    let ptx: Vec<&str> = ptx.lines().collect();
    let table = cubin::lines(&file, Table::Ptx).unwrap();
    let first = whole.kernels.iter().find(|k| k.name == "first").unwrap();
    let first = table.function("first", first.symbol_index).unwrap();
    let ptx_at = |offset| ptx[first.at(offset)[0].line as usize - 1];
    // S2R SR_TID.X, ISETP.GE, LDG and EXIT.
    assert!(ptx_at(0x10).contains("%tid.x"), "{}", ptx_at(0x10));
    assert!(ptx_at(0x60).starts_with("setp.ge.s32"), "{}", ptx_at(0x60));
    assert!(ptx_at(0xc0).starts_with("ld.global.f32"), "{}", ptx_at(0xc0));
    assert!(ptx_at(0x120).starts_with("ret"), "{}", ptx_at(0x120));
}
