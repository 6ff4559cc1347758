//! Compares cubins of three architectures and both ELF layouts with the output of NVIDIA's tools.

use crate::{damage, fixture};
use rgpu_format::cubin::{self, CubinError, Stack};
use std::collections::BTreeMap;

const FIXTURES: [(&str, &str); 5] = [
    ("cubin/13.5/facts", "sm_80"),
    ("cubin/13.5/facts", "sm_90a"),
    ("cubin/13.5/facts", "sm_100a"),
    ("cubin/12.9/facts", "sm_90a"),
    ("cubin/12.9/facts", "sm_100a"),
];

/// The output of `cuobjdump -res-usage` for each kernel, as `NAME:VALUE` pairs.
fn res_usage(text: &str) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut all = BTreeMap::new();
    let mut kernel = None;
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix("Function ") {
            kernel = Some(name.trim_end_matches(':').to_owned());
        } else if let Some(name) = kernel.take() {
            let pairs = line.split_whitespace().map(|pair| {
                let (key, value) = pair.split_once(':').unwrap();
                (key.to_owned(), value.parse().unwrap())
            });
            all.insert(name, pairs.collect());
        }
    }
    all
}

/// Spill stores and loads, barriers and shared memory of each kernel, from `ptxas -v`.
fn ptxas_info(text: &str) -> BTreeMap<String, [u64; 4]> {
    let mut all = BTreeMap::new();
    let mut kernel = String::new();
    let number = |line: &str, before: &str| -> u64 {
        let end = line.find(before).unwrap_or(0);
        line[..end].split_whitespace().last().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    for line in text.lines() {
        if let Some(rest) = line.split("Function properties for ").nth(1) {
            kernel = rest.to_owned();
        } else if line.contains("bytes spill stores") {
            let facts =
                [number(line, " bytes spill stores"), number(line, " bytes spill loads"), 0, 0];
            all.insert(kernel.clone(), facts);
        } else if line.contains("Used ") {
            let facts = all.get_mut(&kernel).unwrap();
            facts[2] = number(line, " barriers");
            facts[3] = number(line, " bytes smem");
        }
    }
    all
}

#[test]
fn resources_equal_cuobjdump_and_ptxas() {
    for (folder, sm) in FIXTURES {
        let cubin = cubin::read(&fixture::bytes(&format!("{folder}/{sm}.cubin"))).unwrap();
        assert_eq!(cubin.sm.to_string(), sm, "{folder}");
        let usage = res_usage(&fixture::text(&format!("{folder}/{sm}.res-usage.txt")));
        let info = ptxas_info(&fixture::text(&format!("{folder}/{sm}.ptxas.txt")));
        assert_eq!(cubin.kernels.len(), usage.len());
        assert_eq!(cubin.kernels.len(), info.len());
        for kernel in &cubin.kernels {
            let of = |key: &str| usage[&kernel.name][key];
            let place = format!("{folder} {sm} {}", kernel.name);
            assert_eq!(u64::from(kernel.registers.unwrap()), of("REG"), "{place}");
            assert_eq!(kernel.stack, Some(Stack::Bytes(of("STACK") as u32)), "{place}");
            assert_eq!(kernel.shared_bytes + kernel.shared_reserved_bytes, of("SHARED"), "{place}");
            assert_eq!(kernel.local_bytes, of("LOCAL"), "{place}");
            assert_eq!(kernel.constants[0].bytes, of("CONSTANT[0]"), "{place}");
            let spills = kernel.spills.unwrap();
            let ours = [
                spills.store_bytes,
                spills.load_bytes,
                u64::from(kernel.barriers),
                kernel.shared_bytes,
            ];
            assert_eq!(ours, info[&kernel.name], "{place}");
        }
    }
}

#[test]
fn launch_bounds_clusters_and_parameters_are_read() {
    let cubin = cubin::read(&fixture::bytes("cubin/13.5/facts/sm_90a.cubin")).unwrap();
    let kernel = |name: &str| cubin.kernels.iter().find(|k| k.name.contains(name)).unwrap();
    assert_eq!(kernel("block_sum").max_threads, Some([256, 1, 1]));
    assert_eq!(kernel("spilling").max_threads, Some([1024, 1, 1]));
    assert_eq!(kernel("clustered").cluster, Some([2, 1, 1]));
    let params: Vec<_> =
        kernel("spilling").params.iter().map(|p| (p.ordinal, p.offset, p.bytes)).collect();
    assert_eq!(params, [(0, 0, 8), (1, 8, 16), (2, 24, 1), (3, 26, 2)]);
    assert_eq!(kernel("spilling").param_offset, Some(0x210));
    assert_eq!(kernel("spilling").param_bytes, Some(28));
    assert!(!kernel("block_sum").exits.is_empty());
}

#[test]
fn parameters_of_more_than_four_kib_have_their_sizes() {
    let cubin = cubin::read(&fixture::bytes("cubin/13.5/wide-params/sm_90a.cubin")).unwrap();
    let params: Vec<_> = cubin.kernels[0].params.iter().map(|p| (p.offset, p.bytes)).collect();
    assert_eq!(params, [(0, 20_000), (20_000, 8), (20_008, 4000), (24_008, 1)]);
}

#[test]
fn the_compiler_and_its_command_line_are_read() {
    let new = cubin::read(&fixture::bytes("cubin/13.5/facts/sm_100a.cubin")).unwrap();
    assert_eq!(new.toolkit.unwrap().to_string(), "13.5");
    let producer = new.producer.unwrap();
    assert_eq!(producer.tool, "ptxas");
    assert!(producer.release.ends_with("V13.5.37"), "{}", producer.release);
    assert!(producer.command_line.contains("-arch sm_100a"), "{}", producer.command_line);
    assert_eq!(new.virtual_sm, Some(100));

    let old = cubin::read(&fixture::bytes("cubin/12.9/facts/sm_90a.cubin")).unwrap();
    assert_eq!(old.abi, cubin::Abi::V7);
    assert_eq!(old.toolkit.unwrap().to_string(), "12.9");
    assert_eq!(old.virtual_sm, Some(90));

    let both = cubin::read(&fixture::bytes("cubin/12.9/facts/sm_100a.cubin")).unwrap();
    assert_eq!(both.abi, cubin::Abi::V8);
    assert_eq!(both.toolkit.unwrap().to_string(), "12.9");
    assert_eq!((both.virtual_sm, both.sm.to_string().as_str()), (Some(100), "sm_100a"));
}

#[test]
fn a_line_info_cubin_gives_its_ptx() {
    let file = fixture::bytes("cubin/13.5/facts/sm_100a.cubin");
    let with = cubin::read(&file).unwrap();
    let ptx = with.ptx.unwrap().text(&file);
    assert!(with.has_lines);
    assert!(ptx.contains(".target sm_100a"));
    assert!(ptx.contains(".entry block_sum"));
    assert!(ptx.ends_with("}\n") && !ptx.contains('\0'));
    let without = cubin::read(&fixture::bytes("cubin/13.5/facts/sm_80.cubin")).unwrap();
    assert!(!without.has_lines && without.ptx.is_none());
}

#[test]
fn other_files_are_named_for_what_they_are() {
    let text = cubin::read(b"// Generated by NVIDIA NVVM Compiler").unwrap_err();
    assert!(matches!(text, CubinError::NotElf { .. }), "{text}");
    let mut host = fixture::bytes("cubin/13.5/facts/sm_80.cubin");
    host[18] = 62;
    assert_eq!(cubin::read(&host), Err(CubinError::NotCuda { machine: 62 }));
    let mut abi = fixture::bytes("cubin/13.5/facts/sm_80.cubin");
    abi[8] = 9;
    assert!(matches!(cubin::read(&abi), Err(CubinError::UnknownAbi { abi_version: 9, .. })));
}

#[test]
fn memory_without_bytes_in_the_file_may_be_of_cudas_own_section_types() {
    let mut file = fixture::bytes("cubin/13.5/facts/sm_90a.cubin");
    let number = |file: &[u8], at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (table, count) = (number(&file, 0x28) as usize, usize::from(file[0x3c]));
    let mut changed = 0;
    for header in (0..count).map(|n| table + n * 64) {
        const NOBITS: u32 = 8;
        const SHARED: u32 = 0x7000_000a;
        if number(&file, header + 4) == NOBITS {
            file[header + 4..header + 8].copy_from_slice(&SHARED.to_le_bytes());
            // Far beyond the end of the file, since the section has no bytes there.
            file[header + 0x22] = 1;
            changed += 1;
        }
    }
    assert!(changed > 0);
    let cubin = cubin::read(&file).unwrap();
    assert!(cubin.kernels.iter().any(|k| k.shared_bytes >= 1 << 16));
}

#[test]
fn a_cubin_at_an_odd_address_reads_the_same() {
    let data = fixture::bytes("cubin/13.5/facts/sm_90a.cubin");
    let shifted: Vec<u8> = std::iter::once(0).chain(data.iter().copied()).collect();
    assert_eq!(cubin::read(&shifted[1..]), cubin::read(&data));
}

#[test]
fn damaged_cubins_never_panic() {
    for (folder, sm) in FIXTURES {
        let data = fixture::bytes(&format!("{folder}/{sm}.cubin"));
        let read = |bytes: &[u8]| drop(cubin::read(bytes));
        damage::cut_everywhere(&data, read);
        damage::flip_bits(&data, 4_000, read);
    }
}

#[test]
fn thousands_of_headers_for_one_section_are_refused() {
    let data = fixture::bytes("cubin/13.5/facts/sm_90a.cubin");
    let number = |at: usize, len: usize| -> usize {
        let bytes = data[at..at + len].iter().rev();
        bytes.fold(0, |all, byte| all << 8 | usize::from(*byte))
    };
    // `e_shoff`, `e_shentsize` and `e_shnum`; in a header, the size is at 32.
    let (table, entry, count) = (number(40, 8), number(58, 2), number(60, 2));
    let headers = (0..count).map(|n| table + n * entry);
    let longest = headers.max_by_key(|at| number(at + 32, 8)).unwrap();
    let mut bomb = data.clone();
    bomb.extend_from_slice(&data[table..table + count * entry]);
    for _ in 0..2_000 {
        bomb.extend_from_slice(&data[longest..longest + entry]);
    }
    bomb[40..48].copy_from_slice(&(data.len() as u64).to_le_bytes());
    bomb[60..62].copy_from_slice(&(count as u16 + 2_000).to_le_bytes());
    let error = cubin::read(&bomb).unwrap_err();
    assert!(error.to_string().contains("overlap"), "{error}");
}
