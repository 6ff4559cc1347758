//! Compares decoded instructions with nvdisasm's listings of the same cubins.
//!
//! The fixtures hold a part of the corpus. With `RGPU_SASS_CORPUS` set to the folder that `cargo
//! xtask sass-table` writes (`target/sass-corpus`), all of it is compared.

use crate::{damage, fixture};
use rgpu_format::cubin::{self, CodeSection};
use rgpu_format::sass::{self, Access, Class, Columns, Instruction, Mnemonic};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// One instruction as nvdisasm prints it.
struct PrintedLine<'a> {
    offset: u64,
    /// Guard, name and operands.
    text: &'a str,
}

impl PrintedLine<'_> {
    fn guard(&self) -> Option<&str> {
        self.text.split_whitespace().next().filter(|w| w.starts_with('@'))
    }

    /// The name with its modifiers.
    fn name(&self) -> &str {
        let word = self.text.split_whitespace().find(|w| !w.starts_with('@')).unwrap();
        word.trim_end_matches(';')
    }

    /// The label of a branch.
    fn label(&self) -> Option<&str> {
        let (_, rest) = self.text.split_once("`(")?;
        rest.split_once(')').map(|(label, _)| label)
    }
}

/// A section's instructions and labels. Sections may share a name and are then matched by order.
#[derive(Default)]
struct Section<'a> {
    name: &'a str,
    lines: Vec<PrintedLine<'a>>,
    labels: HashMap<&'a str, u64>,
}

fn sections(listing: &str) -> Vec<Section<'_>> {
    let mut all: Vec<Section<'_>> = Vec::new();
    let mut waiting = Vec::new();
    for line in listing.lines() {
        if let Some(rest) = line.strip_prefix("\t.section\t") {
            let name = rest.split(',').next().unwrap_or(rest);
            all.push(Section { name, ..Section::default() });
        } else if let Some(label) = line.strip_suffix(':') {
            waiting.push(label);
        } else if let Some(rest) = line.trim_start().strip_prefix("/*") {
            let (offset, text) = rest.split_once("*/").unwrap();
            let text = text.split("/* 0x").next().unwrap().trim();
            let Ok(offset) = u64::from_str_radix(offset, 16) else { continue };
            let section = all.last_mut().unwrap();
            section.labels.extend(waiting.drain(..).map(|label| (label, offset)));
            section.lines.push(PrintedLine { offset, text });
        }
    }
    all
}

/// Cubins that have a listing beside them.
fn corpus() -> Vec<PathBuf> {
    let mut found = fixture::files("cubin/13.5/instructions", ".cubin");
    if let Some(folder) = std::env::var_os("RGPU_SASS_CORPUS") {
        let entries = std::fs::read_dir(Path::new(&folder)).unwrap();
        found.extend(
            entries
                .map(|e| e.unwrap().path())
                .filter(|p| p.extension().is_some_and(|x| x == "cubin")),
        );
    }
    assert!(found.len() >= 4);
    found
}

fn instructions(section: &CodeSection, file: &[u8]) -> Vec<Instruction> {
    sass::decode(section.code(file)).collect()
}

/// Calls `check` with every instruction of every cubin, its printed form, its section's labels and
/// its architecture; returns the number of instructions.
fn every(check: impl Fn(&Instruction, &PrintedLine<'_>, &HashMap<&str, u64>, u32)) -> usize {
    let mut count = 0;
    for path in corpus() {
        let file = std::fs::read(&path).unwrap();
        let listing = std::fs::read_to_string(path.with_extension("sass")).unwrap();
        let cubin = cubin::read(&file).unwrap();
        let printed = sections(&listing);
        let text: Vec<_> = printed.iter().filter(|s| s.name.starts_with(".text.")).collect();
        assert_eq!(text.len(), cubin.code.len(), "{}", path.display());
        for section in text {
            let name = section.name.strip_prefix(".text.").unwrap();
            // Names are unique in the corpus.
            let code = cubin.code.iter().find(|c| c.name == name).unwrap();
            let ours = instructions(code, &file);
            assert_eq!(ours.len(), section.lines.len(), "{} {name}", path.display());
            for (ours, theirs) in ours.iter().zip(&section.lines) {
                assert_eq!(ours.offset, theirs.offset);
                check(ours, theirs, &section.labels, cubin.sm.number);
                count += 1;
            }
        }
    }
    eprintln!("{count} instructions compared");
    count
}

#[test]
fn names_and_guards_equal_nvdisasm() {
    every(|ours, theirs, _, sm| {
        let name = theirs.name().split('.').next().unwrap();
        let line = theirs.text;
        assert_eq!(sass::mnemonic(ours, sm).to_string(), name, "sm_{sm} {line}");
        assert_ne!(Class::from_mnemonic(sass::mnemonic(ours, sm)), Class::Unknown, "{name}");
        let guard = ours.guard().map(|g| g.to_string());
        assert_eq!(guard, theirs.guard().map(|g| g.replace("UP", "P")), "sm_{sm} {line}");
    });
}

#[test]
fn reuse_flags_equal_nvdisasm() {
    every(|ours, theirs, _, sm| {
        // nvdisasm does not print the flags of texture instructions, whose operands are register
        // groups.
        if Class::from_mnemonic(sass::mnemonic(ours, sm)) == Class::Texture {
            return;
        }
        let printed = theirs.text.matches(".reuse").count();
        let set = ours.control().reuse.count_ones() as usize;
        assert_eq!(set, printed, "sm_{sm} {}", theirs.text);
    });
}

#[test]
fn branches_go_where_nvdisasm_says() {
    let branches = every(|ours, theirs, labels, sm| {
        let name = theirs.name().split('.').next().unwrap();
        let direct = ["BRA", "BSSY", "WARPSYNC"].contains(&name) && theirs.label().is_some();
        if let (true, Some(to)) = (direct, theirs.label().and_then(|l| labels.get(l))) {
            assert_eq!(ours.target(sm), Some(*to), "sm_{sm} {}", theirs.text);
        }
    });
    assert!(branches > 1000);
}

/// Whether instructions of this class deliver their result late and signal it by a barrier.
fn announces(class: Class) -> bool {
    matches!(
        class,
        Class::Global(Access::Load) | Class::Shared(Access::Load) | Class::Local(Access::Load)
    )
}

#[test]
fn no_load_is_used_before_its_barrier_is_waited_for() {
    let mut loads = 0;
    for path in corpus() {
        let file = std::fs::read(&path).unwrap();
        let cubin = cubin::read(&file).unwrap();
        for section in &cubin.code {
            let code = instructions(section, &file);
            for (at, load) in code.iter().enumerate() {
                let class = Class::from_mnemonic(sass::mnemonic(load, cubin.sm.number));
                let register = (load.low >> 16 & 0xff) as u8;
                if !announces(class) || register == 0xff {
                    continue;
                }
                // Loads that write several registers are checked by their first. A load may rely on
                // the barrier of a later one, which returns after it.
                let Some(barrier) = load.control().write_barrier else { continue };
                loads += 1;
                let rest = &code[at + 1..];
                let end = rest.iter().position(|i| {
                    i.control().wait_mask >> barrier & 1 == 1
                        || Class::from_mnemonic(sass::mnemonic(i, cubin.sm.number))
                            == Class::Control
                });
                for user in &rest[..end.unwrap_or(rest.len())] {
                    // Register-form arithmetic reads Ra, and Rb if the form has one.
                    let class = Class::from_mnemonic(sass::mnemonic(user, cubin.sm.number));
                    if !matches!(class, Class::Fp32 | Class::Fp16) {
                        continue;
                    }
                    let a = (user.low >> 24 & 0xff) as u8;
                    let b = (user.low >> 32 & 0xff) as u8;
                    let has_b = user.opcode() >> 9 == 1;
                    assert!(a != register || register == 0, "{}: {user:x?}", path.display());
                    assert!(!has_b || b != register, "{}: {user:x?}", path.display());
                }
            }
        }
    }
    assert!(loads > 20, "{loads}");
    eprintln!("{loads} loads followed");
}

#[test]
fn the_fifth_generation_tensor_kernel_names_its_instructions() {
    let file = fixture::bytes("cubin/13.5/instructions/tcgen05.sm_100a.O3.cubin");
    let cubin = cubin::read(&file).unwrap();
    for (kernel, pair) in [("one_block", false), ("pair_of_blocks", true)] {
        let facts = cubin.kernels.iter().find(|k| k.name == kernel).unwrap();
        assert_eq!((facts.tcgen05_one_cta, facts.tcgen05_two_cta), (!pair, pair), "{kernel}");
        let section = cubin.code.iter().find(|c| c.index == facts.section_index).unwrap();
        let mix = sass::mix(&instructions(section, &file), cubin.sm.number);
        for name in ["UTCHMMA", "UTCQMMA", "UTCOMMA", "UTCCP", "LDTM", "STTM", "UTMALDG", "UTCBAR"]
        {
            assert!(mix.has(name), "{kernel} has no {name}");
        }
        assert!(mix.count(Class::TensorBlock) >= 6 && mix.count(Class::Tma) == 1);
        assert!(mix.classes.iter().all(|c| c.class != Class::Unknown));
    }
}

#[test]
fn an_unknown_opcode_is_shown_as_its_number() {
    let unknown = Instruction { offset: 0, low: 0x7000 | 0xfff, high: 0 };
    assert_eq!(sass::mnemonic(&unknown, 90), Mnemonic::Unknown(0xfff));
    let text = sass::listing(&[unknown], 90, Columns::default(), &BTreeMap::new());
    assert!(text.contains("op_0xfff ;"), "{text}");
}

#[test]
fn a_warp_groups_change_of_registers_is_named() {
    // From wagmiv67 for sm_90a: `USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8`.
    let alloc = Instruction { offset: 0, low: 0x0000_00e8_0000_79c8, high: 0x000e_2400_0800_0600 };
    assert_eq!(sass::mnemonic(&alloc, 90), Mnemonic::Known("USETMAXREG"));
}

#[test]
fn a_form_in_no_table_has_the_name_of_its_operation() {
    // FFMA with an operand form that no kernel of the corpus has.
    let form = Instruction { offset: 0, low: 0x7000 | 0xe23, high: 0 };
    assert_eq!(sass::mnemonic(&form, 90), Mnemonic::Known("FFMA"));
    // Two operations share these bits; only the form distinguishes them.
    let either = Instruction { offset: 0, low: 0x7000 | 0x3ab, high: 0 };
    assert_eq!(sass::mnemonic(&either, 90), Mnemonic::Unknown(0x3ab));
}

#[test]
fn blocks_split_at_branches_and_mark_loops() {
    let file = fixture::bytes("cubin/13.5/facts/sm_90a.cubin");
    let cubin = cubin::read(&file).unwrap();
    let section = cubin.code.iter().find(|c| c.name.contains("spilling")).unwrap();
    let code = instructions(section, &file);
    let code = sass::trimmed(&code, 90);
    let blocks = sass::blocks(code, 90);
    assert_eq!(blocks.first().unwrap().start, 0);
    assert!(blocks.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert!(blocks.iter().any(|block| block.next.len() == 2));
    assert!(blocks.iter().any(|block| block.loop_head));
    // Every successor is a block.
    for next in blocks.iter().flat_map(|b| &b.next) {
        assert!(blocks.iter().any(|b| b.start == *next));
    }
    let text = sass::listing(code, 90, Columns { control: true, bits: true }, &BTreeMap::new());
    assert!(text.contains(":S") && text.contains(".L_0:") && text.contains("EXIT"), "{text}");
}

#[test]
fn a_branch_through_uniform_registers_ends_its_block() {
    for sm in ["sm_90a", "sm_100a"] {
        let file = fixture::bytes(&format!("cubin/13.5/instructions/uniform.{sm}.O3.cubin"));
        let cubin = cubin::read(&file).unwrap();
        let number = cubin.sm.number;
        let code = |kernel: &str| {
            let section = cubin.code.iter().find(|c| c.name.contains(kernel)).unwrap();
            instructions(section, &file)
        };
        let indexed = code("indexed");
        let branch = indexed.iter().find(|i| i.opcode() == 0x958).unwrap();
        assert_eq!(sass::mnemonic(branch, number), Mnemonic::Known("BRXU"));
        let blocks = sass::blocks(&indexed, number);
        let block = blocks.iter().find(|b| b.end == branch.offset + 16).unwrap();
        assert!(block.indirect && block.next.is_empty(), "{sm}: {block:?}");
        let coordinates = sass::mix(&code("coordinates"), number);
        assert!(coordinates.has("USGXT"), "{sm}");
        assert_eq!(Class::from_mnemonic(Mnemonic::Known("USGXT")), Class::Uniform);
    }
}

#[test]
fn any_bytes_are_decoded_without_panics() {
    let file = fixture::bytes("cubin/13.5/facts/sm_90a.cubin");
    let read = |bytes: &[u8]| {
        for sm in [75, 80, 90, 100, 120] {
            let code: Vec<_> = sass::decode(bytes).collect();
            let code = sass::trimmed(&code, sm);
            let _ = (sass::blocks(code, sm), sass::mix(code, sm));
            let _ = sass::listing(code, sm, Columns::default(), &BTreeMap::new());
        }
    };
    damage::flip_bits(&file[..4096], 50, read);
}

#[test]
fn one_pass_over_the_code_finds_what_the_readers_of_its_parts_find() {
    for path in corpus() {
        let file = std::fs::read(&path).unwrap();
        let cubin = cubin::read(&file).unwrap();
        let sm = cubin.sm.number;
        for section in &cubin.code {
            let code = instructions(section, &file);
            let trimmed = sass::trimmed(&code, sm);
            let blocks = sass::blocks(trimmed, sm);
            let summary = sass::summarize_code(section.code(&file), sm);
            let loops = blocks.iter().filter(|b| b.loop_head).count();
            assert_eq!(summary.bytes, trimmed.len() * 16, "{}", section.name);
            assert_eq!(summary.mix, sass::mix(trimmed, sm), "{}", section.name);
            assert_eq!((summary.blocks, summary.loops), (blocks.len() as u64, loops as u64));
        }
    }
}

#[test]
fn the_shape_of_code_tells_names_guards_and_branches_but_no_registers() {
    let code = |words: &[[u64; 2]]| -> Vec<u8> {
        words.iter().flatten().flat_map(|word| word.to_le_bytes()).collect()
    };
    let shape = |words: &[[u64; 2]]| sass::summarize_code(&code(words), 90).shape;
    let exit = [0x794d, 0];
    // FFMA with another register, guard, or kind of name; two opcodes that no table has.
    let (ffma, other_register) = ([0x0007_7223, 0], [0x0009_7223, 0]);
    let (guarded, fadd) = ([0x0007_0223, 0], [0x0007_7221, 0]);
    assert_eq!(shape(&[ffma, exit]), shape(&[other_register, exit]));
    assert_ne!(shape(&[ffma, exit]), shape(&[guarded, exit]));
    assert_ne!(shape(&[ffma, exit]), shape(&[fadd, exit]));
    assert_ne!(shape(&[[0x7fff, 0], exit]), shape(&[[0x7ffe, 0], exit]));
    let branch = |by: u64| [0x7947 | (by & 0xff) << 16 | (by >> 8) << 34, 0x0380_0000];
    assert_ne!(shape(&[branch(4), ffma, exit]), shape(&[branch(8), ffma, exit]));
    assert_eq!(sass::summarize_code(&[], 90).blocks, 0);
}
