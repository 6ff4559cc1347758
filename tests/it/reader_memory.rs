//! No reader takes more memory than four times the bytes of its file and 64 MiB. The files here
//! hold as many of the smallest things as fit: short rows, tiny events, many names.

use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};

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
fn report_within_bound(name: &str, bytes: &[u8]) -> String {
    let laptop = Laptop::new();
    fs::write(laptop.path("project").join(name), bytes).unwrap();
    run_within_bound(&laptop, &["report", "--json", name], bytes.len())
}

/// The memory of a process without pages of files: a debug build has 40 MiB of its own file there.
fn anonymous_kib(child: &Child) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The seconds of CPU of a process so far.
fn cpu_seconds(child: &Child) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    // User and system time in ticks of 10 ms, after the name, which may have spaces.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse().ok()?;
    Some((ticks + fields.next()?.parse::<u64>().ok()?) / 100)
}

/// A debug build takes a few seconds of CPU for each file; a loop over all pairs takes minutes.
const MAX_CPU_SECONDS: u64 = 60;

/// Runs a command that reads a file of this length, checks its peak memory and its time, and returns
/// what it printed.
fn run_within_bound(laptop: &Laptop, words: &[&str], file_bytes: usize) -> String {
    let shown = laptop.path("shown");
    let mut command = laptop.rgpu(words);
    command.stdout(fs::File::create(&shown).unwrap());
    command.stderr(fs::File::create(laptop.path("told")).unwrap()).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = anonymous_kib(&child).max(peak);
        let seconds = cpu_seconds(&child).unwrap_or(0);
        if seconds > MAX_CPU_SECONDS {
            child.kill().unwrap();
            panic!("{words:?}: more than {MAX_CPU_SECONDS} s of CPU");
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let most = (4 * file_bytes as u64 + (64 << 20)) >> 10;
    assert!(peak > 0 && peak <= most, "{words:?}: {peak} KiB, and at most {most} are allowed");
    fs::read_to_string(shown).unwrap() + &fs::read_to_string(laptop.path("told")).unwrap()
}

/// Each file is refused or read in part, with words that say where it stopped.
fn check<B: AsRef<[u8]>>(files: &[(&str, B, &str)]) {
    for (name, bytes, told) in files {
        let shown = report_within_bound(name, bytes.as_ref());
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
    let cases = "{\"abi\":1,\"runner\":\"\",\"kernel\":\"\",\"job\":\"time\",\"cases\":[";
    let end = "{\"name\":\"b\"}]}";
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

#[test]
fn traces_of_torch() {
    let head = "{\"traceEvents\":[";
    let end = "{}]}";
    let event = |category: &'static str| {
        move |n: usize| {
            format!(
                "{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":\"{n}\",\"ts\":{n},\"dur\":1}},"
            )
        }
    };
    let nested = |n: usize| {
        let ns = 10_000_000 - 2 * n;
        format!(
            "{{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"{n}\",\"ts\":{n},\"dur\":{ns}}},"
        )
    };
    let collective = |n: usize| {
        format!(
            "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"nccl\",\"ts\":{n},\"dur\":1,\"args\":{{\
             \"Collective name\":\"\",\"correlation\":{n}}}}},"
        )
    };
    let operators = dense(head, event("cpu_op"), end);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(operators.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let shown = report_within_unpacked_bound("packed.json.gz", &packed, operators.len());
    assert!(shown.contains(LIMIT), "{shown}");
    check(&[
        ("operators.json", operators, LIMIT),
        ("kernels.json", dense(head, event("kernel"), end), LIMIT),
        ("calls.json", dense(head, event("Runtime"), end), LIMIT),
        ("functions.json", dense(head, event("python_function"), end), LIMIT),
        ("annotations.json", dense(head, event("user_annotation"), end), LIMIT),
        ("nested.json", dense(head, nested, end), LIMIT),
        ("collectives.json", dense(head, collective, end), LIMIT),
        (
            "devices.json",
            dense("{\"traceEvents\":[],\"deviceProperties\":[", |_| "{},".into(), "{}]}"),
            LIMIT,
        ),
    ]);
}

/// As [`report_within_bound`], for a packed file.
fn report_within_unpacked_bound(name: &str, packed: &[u8], unpacked_bytes: usize) -> String {
    let laptop = Laptop::new();
    fs::write(laptop.path("project").join(name), packed).unwrap();
    run_within_bound(&laptop, &["report", "--json", name], unpacked_bytes)
}

#[test]
fn a_diagnosis_of_a_host() {
    let laptop = Laptop::new();
    let sheet = laptop.run("model hw show h200 --toml").stdout;
    let sheet = String::from_utf8(sheet).unwrap().replace("id = \"h200\"", "id = \"lab\"");
    laptop.write("sheet.toml", &sheet);
    let head = "{\"schema\":\"rgpu.doctor/1\",\"host\":{\"gpus\":[{}";
    let text = dense(head, |_| ",{}".to_owned(), "]}}");
    laptop.write("doctor.json", &text);
    let words = ["model", "hw", "add", "sheet.toml", "--doctor", "doctor.json"];
    let shown = run_within_bound(&laptop, &words, text.len());
    assert!(shown.contains("does not fit") && shown.contains(LIMIT), "{shown}");
}

/// An export of nsys of [`FILE_BYTES`] with one table of these rows, and these names.
fn export(table: &str, columns: &str, row: &str, names: &[String]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export.sqlite");
    let export = rusqlite::Connection::open(&path).unwrap();
    export
        .execute_batch(&format!(
            "PRAGMA page_size = 65536; PRAGMA journal_mode = OFF;
             CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
             CREATE TABLE {table} ({columns}); BEGIN"
        ))
        .unwrap();
    let mut name = export.prepare("INSERT INTO StringIds VALUES (?1, ?2)").unwrap();
    for (id, text) in (0_i64..).zip(names) {
        name.execute((id, text)).unwrap();
    }
    let rows = format!(
        "WITH RECURSIVE n(c) AS (SELECT ?1 UNION ALL SELECT c + 1 FROM n WHERE c < ?1 + 9999)
         INSERT INTO {table} SELECT {row} FROM n"
    );
    let pages =
        || export.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).unwrap() as usize;
    let mut first = 0_i64;
    while pages() * 65536 < FILE_BYTES {
        export.execute(&rows, [first]).unwrap();
        first += 10_000;
    }
    export.execute_batch("COMMIT").unwrap();
    fs::read(path).unwrap()
}

#[test]
fn exports_of_nsys() {
    let (kernels, ranges) = ("CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS");
    let of_kernels = "start, end, correlationId, demangledName, streamId";
    let of_ranges = "start, end, eventType, text, textId, globalTid";
    let kernel = "1 + c % 100, c % 100 + 2, 1, c % 100000, 1";
    let none: [String; 0] = [];
    let numbers: Vec<String> = (0..100_000).map(|n| format!("{n:x}")).collect();
    let long: Vec<String> = (0..1024).map(|n| format!("{n}{}", "x".repeat(1000))).collect();
    // In each group of 64, every range is inside the one before it; the names differ by group.
    let nested = "c % 64 + c / 64 * 2000, 1000 - c % 64 + c / 64 * 2000, 59, NULL, c % 64 + c / 64 % 16 * 64, 1";
    let end = "too long";
    check(&[
        ("kernels.sqlite", export(kernels, of_kernels, kernel, &none), LIMIT),
        ("names.sqlite", export(kernels, of_kernels, kernel, &numbers), LIMIT),
        ("ranges.sqlite", export(ranges, of_ranges, "c, c + 1, 59, c, NULL, 1", &none), LIMIT),
        ("same.sqlite", export(ranges, of_ranges, "c, c + 1, 59, NULL, 1, 1", &none), LIMIT),
        ("nested.sqlite", export(ranges, of_ranges, nested, &long), end),
    ]);
    // Names without any row that has them.
    let names: Vec<String> = (0..900_000).map(|_| "a".to_owned()).collect();
    check(&[("strings.sqlite", export(ranges, of_ranges, "c, c, 59, 1, 1, 1", &names), LIMIT)]);
}

#[test]
fn saved_documents() {
    let head = "{\"schema\":\"rgpu.profile/1\",\"run\":{\"id\":\"a\",\"mode\":\"ncu\",\"remote\":\"h\",\
                \"started\":\"2026-01-01T00:00:00Z\",\"seconds\":1},\"kernel\":{\"name\":\"k\"},\
                \"rung\":\"full\",";
    let launch = |n| format!("{{\"id\":{n},\"kernel\":\"\"}},");
    let metric = |n| {
        let metrics = "{\"a\":{\"value\":1}}";
        format!("{{\"id\":{n},\"kernel\":\"\",\"metrics\":{metrics}}},")
    };
    let gap = "{\"code\":\"\",\"text\":\"\"}";
    let launches = format!("{head}\"launches\":[");
    let last = "{\"id\":0,\"kernel\":\"\"}]}";
    let profiles = [
        dense(&launches, launch, last),
        dense(&launches, metric, last),
        dense(&format!("{head}\"gaps\":["), |_| format!("{gap},"), &format!("{gap}]}}")),
        dense(&format!("{head}\"tags\":["), |_| "\"\",".into(), "\"\"]}"),
    ];
    let run = "{\"schema\":\"rgpu.run/1\",\"id\":\"a\",\"started\":\"2026-01-01T10:00:00Z\",\
               \"title\":\"profile k\",\"command\":\"profile\",\"argv\":[],\"remote\":\"h\",\
               \"state\":\"done\"}";
    for text in &profiles {
        let laptop = Laptop::new();
        laptop.write("saved/a/run.json", run);
        laptop.write("saved/a/profile.json", text);
        let shown = run_within_bound(&laptop, &["report", "saved/a", "--json"], text.len());
        assert!(shown.contains("does not fit") && shown.contains(LIMIT), "{shown}");
        // No document of rgpu's own, which are checked against their schemas.
        fs::remove_dir_all(laptop.project("saved")).unwrap();
    }
}

/// A protobuf field with bytes, as reports of ncu have them.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (low, high) = (bytes.len() as u8 & 0x7f, bytes.len() >> 7);
    let length = match u8::try_from(high).unwrap() {
        0 => vec![low],
        high => vec![low | 0x80, high],
    };
    [&[number << 3 | 2][..], &length, bytes].concat()
}

#[test]
fn reports_of_ncu() {
    let varint = |mut value: usize| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    };
    let prefixed =
        |message: &[u8]| [&u32::try_from(message.len()).unwrap().to_le_bytes(), message].concat();
    let report = |kernel: &[u8]| {
        let kernel = prefixed(kernel);
        let count = FILE_BYTES / kernel.len();
        // The names of the metrics, the number of results and the length of the payload.
        let names: Vec<u8> =
            (0..100).flat_map(|n| field(1, format!("m__{n}").as_bytes())).collect();
        let header = [
            field(4, &names),
            [vec![2 << 3], varint(count)].concat(),
            [vec![5 << 3], varint(count * kernel.len())].concat(),
        ];
        let begin = [b"NVR\0".to_vec(), prefixed(&[1 << 3, 7]), prefixed(&header.concat())];
        [begin.concat(), kernel.repeat(count)].concat()
    };
    let name = field(7, b"k");
    let metric = |n: u8| field(13, &[&[1 << 3, n], &field(2, &[5 << 3, 1])[..]].concat());
    let metrics: Vec<u8> = (0..100).flat_map(metric).collect();
    check(&[
        ("launches.ncu-rep", report(&name), LIMIT),
        ("metric.ncu-rep", report(&[name.clone(), metric(0)].concat()), LIMIT),
        ("metrics.ncu-rep", report(&[name, metrics].concat()), LIMIT),
    ]);
}

/// An export of nsys with a kernel and its call every 10 ns, `launches` of them of this process, each
/// kernel with one of these names, and rows of ranges.
fn launches_and_ranges(
    (launches, process): (usize, &str),
    names: &[String],
    ranges: (usize, &str),
) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export.sqlite");
    let export = rusqlite::Connection::open(&path).unwrap();
    let numbers = |table: &str, count: usize, row: &str| {
        format!(
            "INSERT INTO {table} WITH RECURSIVE n(c) AS
             (SELECT 0 UNION ALL SELECT c + 1 FROM n WHERE c < {count} - 1) SELECT {row} FROM n;"
        )
    };
    let name_count = names.len();
    let kernel = format!("c*10+5, c*10+9, 0, 7, c, {process}, c % {name_count}");
    let call = format!("c*10, c*10+2, c, {process}");
    export
        .execute_batch(&format!(
            "PRAGMA journal_mode = OFF; BEGIN;
             CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId,
                 correlationId, globalPid, demangledName);
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, correlationId, globalTid);
             CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid);
             {} {} {}",
            numbers("CUPTI_ACTIVITY_KIND_KERNEL", launches, &kernel),
            numbers("CUPTI_ACTIVITY_KIND_RUNTIME", launches, &call),
            numbers("NVTX_EVENTS", ranges.0, ranges.1),
        ))
        .unwrap();
    let mut name = export.prepare("INSERT INTO StringIds VALUES (?1, ?2)").unwrap();
    for (id, text) in (0_i64..).zip(names) {
        name.execute((id, text)).unwrap();
    }
    drop(name);
    export.execute_batch("COMMIT").unwrap();
    fs::read(path).unwrap()
}

/// What a few bytes of a file make many of: each launch is in many regions, each region has many
/// kernels, and the path of each launch is long.
#[test]
fn exports_whose_launches_are_in_many_regions() {
    let one = ["k".to_owned()];
    let many: Vec<String> = (0..6000).map(|n| format!("k{n}")).collect();
    let open = "0, 1000000, 60, 'r' || c, 0";
    let nested = "c, 1000000 - c, 59, 'r' || c, 0";
    let long = "c, 1000000 - c, 59, 'r' || c || printf('%1000s', 'x'), 0";
    let long_names = launches_and_ranges((10_000, "0"), &one, (64, long));
    check(&[
        (
            "open.sqlite",
            &launches_and_ranges((12_000, "0"), &one, (12_000, open)),
            "at the same time",
        ),
        (
            "nested.sqlite",
            &launches_and_ranges((6000, "0"), &many, (64, nested)),
            "longest kernels only",
        ),
        ("long.sqlite", &long_names, "too long"),
    ]);
    let laptop = Laptop::new();
    fs::write(laptop.project("long.sqlite"), &long_names).unwrap();
    for format in [["--format", "html"], ["--format", "csv"], ["--json", "--redact"]] {
        let words = [&["report", "long.sqlite"], &format[..]].concat();
        run_within_bound(&laptop, &words, long_names.len());
    }
}

/// Work of many processes, and of many GPUs, takes time in proportion to its length.
#[test]
fn traces_of_many_processes_and_gpus() {
    let event = |n: usize| {
        format!(
            "{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":{n},\"dur\":1,\"args\":{{\
             \"device\":{n}}}}},"
        )
    };
    let events: String = (0..150_000).map(event).collect();
    let trace = format!("{{\"traceEvents\":[{events}{{}}]}}");
    report_within_bound("gpus.json", trace.as_bytes());
    let one = ["k".to_owned()];
    let processes = launches_and_ranges((30_000, "c << 24"), &one, (1, "0, 9, 59, 'r', 0"));
    check(&[("processes.sqlite", processes, "30000 processes used a GPU")]);
}
