//! No reader takes more memory than four times the bytes of its file and 64 MiB. The files here hold
//! as many of the smallest things as fit: short rows, tiny events, many names.

use std::fs;
use std::process::Stdio;

use crate::floods::peak_kib;
use crate::laptop::Laptop;

/// Size of a generated file in bytes. Without limits such a file takes 90 MiB to 2 GiB.
const FILE_BYTES: usize = 8 << 20;

/// A file that begins with `head` and goes on with what `next` makes of the numbers from 0.
fn dense(head: &str, next: impl Fn(usize) -> String, tail: &str) -> String {
    let mut text = head.to_owned();
    for number in 0.. {
        text += &next(number);
        if text.len() + tail.len() > FILE_BYTES {
            break;
        }
    }
    text + tail
}

/// Reads the file with `rgpu report`, checks its peak memory, and returns what it printed.
fn report_within_bound(name: &str, text: &str) -> String {
    let laptop = Laptop::new();
    let (path, shown) = (laptop.path("project").join(name), laptop.path("shown"));
    fs::write(&path, text).unwrap();
    let mut command = laptop.rgpu(["report", "--json", name]);
    command.stdout(fs::File::create(&shown).unwrap());
    command.stderr(fs::File::create(laptop.path("told")).unwrap()).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut peak = 0;
    // The peak never shrinks, and the largest document is written last.
    while child.try_wait().unwrap().is_none() {
        peak = peak_kib(&child).max(peak);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let most = (4 * text.len() as u64 + (64 << 20)) >> 10;
    assert!(peak > 0 && peak <= most, "{name}: {peak} KiB, and at most {most} are allowed");
    fs::read_to_string(shown).unwrap() + &fs::read_to_string(laptop.path("told")).unwrap()
}

/// Each file is refused or read in part, with words that say where it stopped.
fn check(files: &[(&str, String, &str)]) {
    for (name, text, told) in files {
        let shown = report_within_bound(name, text);
        let end = shown.len().saturating_sub(2000);
        assert!(shown.contains(told), "{name}: {}", shown.get(end..).unwrap_or_default());
    }
}

const LIMIT: &str = "MiB of memory that a file of this size may take";

#[test]
fn pages_of_ncu() {
    const ID: &str = "ID,Process ID,Kernel Name";
    let columns: String = (0..2000).map(|n| format!(",m__{n}.sum")).collect();
    let wide = format!("1,1,k{}\n", ",1".repeat(2000));
    let details = format!("{ID},Metric Name,Metric Value\n");
    let rules = format!("{ID},Metric Name,Metric Value,Rule Name,Rule Type,Rule Description\n");
    let source = "\"Kernel Name\",\"k\"\n\"Address\",\"Source\",\"# Samples\"\n";
    check(&[
        ("wide.csv", dense(&format!("{ID}{columns}\n,,\n"), |_| wide.clone(), ""), LIMIT),
        ("short.csv", dense(&format!("{ID},a__b\n,,,\n"), |_| "1,1,k,1\n".into(), ""), LIMIT),
        ("launches.csv", dense(&details, |n| format!("{},,,a__b,1\n", n % 2), ""), LIMIT),
        ("metrics.csv", dense(&details, |n| format!("1,,,a__{n},1\n"), ""), LIMIT),
        ("rules.csv", dense(&rules, |_| "1,,,,,,,x\n".into(), ""), LIMIT),
        ("fields.csv", dense(&details, |_| ",".repeat(1000), ""), "more than 65536 fields"),
        ("source.csv", dense(source, |n| format!("0x{n:x},A,1\n"), ""), LIMIT),
        ("kernels.csv", dense("", |_| format!("{source}0x1,A,1\n"), ""), LIMIT),
    ]);
}

#[test]
fn tables_of_nsys() {
    let sums = "Time (%),Total Time (ns),Instances,Name\n";
    let trace = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Name\n";
    let ranges = "Time (%),Total Time (ns),Instances,Style,Range\n";
    let copies = "Time (%),Total Time (ns),Count,Operation\n";
    check(&[
        ("sums.csv", dense(sums, |n| format!("1,1,1,{n}\n"), ""), LIMIT),
        ("trace.csv", dense(trace, |_| "1,1,,1,1,1,1,1,1,k\n".into(), ""), LIMIT),
        ("ranges.csv", dense(ranges, |n| format!("1,1,1,,{n}\n"), ""), LIMIT),
        ("copies.csv", dense(copies, |n| format!("1,1,1,{n}\n"), ""), LIMIT),
        ("tables.csv", dense("", |_| format!("{sums}\n"), ""), LIMIT),
        ("skipped.csv", dense(&format!("{sums}\n"), |_| "SKIPPED: \n".into(), ""), LIMIT),
    ]);
}

#[test]
fn logs_and_reports_of_our_own_programs() {
    let ranges = "{\"rgpu_ranges\":1,\"clock\":\"unix_ns\",\"pid\":5}\n";
    let range =
        |n| format!("{{\"domain\":\"r\",\"path\":[\"{n}\"],\"start_ns\":1,\"end_ns\":2}}\n");
    let deep = |n: usize| {
        let names = "\"\",".repeat(1000);
        format!("{{\"domain\":\"\",\"path\":[{names}\"{n}\"],\"start_ns\":1,\"end_ns\":2}}\n")
    };
    let opened = "{\"event\":\"opened\",\"format\":1}\n";
    let pushes =
        |n: usize| format!("{{\"event\":\"push\",\"ns\":{n}}}\n{{\"event\":\"pop\",\"ns\":{n}}}\n");
    let kernels =
        |n: usize| format!("{{\"event\":\"kernel\",\"ns\":{n},\"end_ns\":{n},\"id\":{n}}}\n");
    let cases = "{\"data_sets\":[";
    let end = "{\"name\":\"b\"}],\"abi\":1,\"runner\":\"\",\"kernel\":\"\",\"job\":\"time\"}";
    check(&[
        ("ranges.jsonl", dense(ranges, range, ""), LIMIT),
        ("deep.jsonl", dense(ranges, deep, ""), LIMIT),
        ("pushes.jsonl", dense(opened, pushes, ""), LIMIT),
        ("kernels.jsonl", dense(opened, kernels, ""), LIMIT),
        ("sessions.jsonl", dense(opened, |_| opened.to_owned(), ""), LIMIT),
        ("cases.json", dense(cases, |_| "{\"name\":\"a\"},".into(), end), LIMIT),
    ]);
}

#[test]
fn logs_of_compute_sanitizer() {
    let banner = "========= COMPUTE-SANITIZER\n";
    let record = |n: usize| {
        format!(
            "========= Invalid __global__ read of size 4 bytes\n=========     at k+0x{n:x}\n\
             =========     by thread (0,0,0) in block (0,0,0)\n=========\n"
        )
    };
    let xml = "<?xml version=\"1.0\"?><ComputeSanitizerOutput>";
    let element = |n: usize| format!("<record><kind>{n}</kind></record>");
    let left_out = "its summaries are read";
    check(&[
        ("records.log", dense(banner, record, ""), left_out),
        ("notes.log", dense(banner, |_| "========= E\n".into(), ""), left_out),
        ("memcheck.xml", dense(xml, element, "</ComputeSanitizerOutput>"), LIMIT),
    ]);
}
