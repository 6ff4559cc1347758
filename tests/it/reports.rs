//! `rgpu report` of real recordings, in every format.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rgpu_analysis::{Thresholds, analyze_all};
use rgpu_import::{Detail, IMPORTERS, Source};
use rgpu_model::{Profile, Sidecars};
use rgpu_report::{REPORTS, ReportInput, Style};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, PATIENCE, fixture, status};

/// A laptop whose project holds a recording under a short name.
fn with(recording: &str, name: &str) -> Laptop {
    let laptop = Laptop::new();
    std::fs::copy(fixture(recording), laptop.project(name)).unwrap();
    laptop
}

fn matmul() -> Laptop {
    with("ncu/2025.3.1/full-tiled-matmul/report.ncu-repz", "matmul.ncu-repz")
}

fn nsys() -> Laptop {
    with("nsys/2025.3.1/regions/report.nsys-rep", "regions.nsys-rep")
}

#[test]
fn the_table_of_a_recording_fits_eighty_columns() {
    for (laptop, line) in
        [(matmul(), "report matmul.ncu-repz"), (nsys(), "report regions.nsys-rep")]
    {
        let text = laptop.show(line);
        let wide = text.lines().find(|l| l.chars().count() > 80 && !l.starts_with('$'));
        assert_eq!(wide, None);
        insta::assert_snapshot!(text);
    }
}

#[test]
fn every_markdown_file_has_all_its_headings_even_without_data() {
    let expected: &[(&str, &[&str])] = &[
        ("report.md", &["## What to try", "## Kernels", "## Regions", "## Ladder", "## Missing"]),
        ("kernels.md", &["# Kernels of"]),
        ("operators.md", &["## Operators"]),
        (
            "stakeholder_summary.md",
            &[
                "## Executive Summary",
                "## Environment",
                "## Aggregates",
                "## Per-Region Timings",
                "## Per-Stage Timings",
                "## MFU",
                "## Top Operators",
                "## Top Kernels",
                "## Recommendations",
                "## Narrative",
            ],
        ),
    ];
    let none = with("cubin/13.5/facts/sm_100a.cubin", "k.cubin");
    for (laptop, file) in
        [(matmul(), "matmul.ncu-repz"), (nsys(), "regions.nsys-rep"), (none, "k.cubin")]
    {
        let line = format!("report {file} --format markdown --out set");
        let output = laptop.run(&line);
        assert_eq!(status(&output), 0, "{}", laptop.shown(&line, &output));
        for (name, headings) in expected {
            let text = std::fs::read_to_string(laptop.project(format!("set/{name}"))).unwrap();
            let mut rest = text.as_str();
            for heading in *headings {
                let at = rest.find(heading).unwrap_or_else(|| {
                    panic!("`{heading}` is not in its place in {name} of {file}:\n{text}")
                });
                let body = &rest[at + heading.len()..];
                let until = body.find("\n## ").unwrap_or(body.len());
                assert!(body[..until].trim().len() > 10, "{name} of {file}: {heading} is empty");
                rest = body;
            }
        }
    }
}

#[test]
fn the_summary_for_stakeholders_reads_well() {
    for (laptop, file) in [(matmul(), "matmul.ncu-repz"), (nsys(), "regions.nsys-rep")] {
        laptop.run(&format!("report {file} --format markdown --out set"));
        let text = std::fs::read_to_string(laptop.project("set/stakeholder_summary.md")).unwrap();
        insta::assert_snapshot!(text);
    }
}

#[test]
fn csv_has_one_row_for_each_launch_and_units_in_its_head() {
    let laptop = matmul();
    assert_eq!(status(&laptop.run("report matmul.ncu-repz --format csv --out set")), 0);
    let text = std::fs::read_to_string(laptop.project("set/metrics.csv")).unwrap();
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    assert!(head.starts_with("launch,kernel,region,stream,grid,block,start [ns],duration [ns],"));
    assert!(head.contains("dram__bytes_read.sum [byte]"), "{head}");
    assert_eq!(lines.count(), 1);
    insta::assert_snapshot!(laptop.show("report matmul.ncu-repz --format csv"));
    let laptop = nsys();
    laptop.run("report regions.nsys-rep --format csv --out set");
    insta::assert_snapshot!(std::fs::read_to_string(laptop.project("set/regions.csv")).unwrap());
}

#[test]
fn a_brief_keeps_to_its_bytes() {
    let laptop = matmul();
    for bytes in [256, 600, 4096] {
        let output = laptop.run(&format!("report matmul.ncu-repz --format brief --bytes {bytes}"));
        assert!(output.stdout.len() <= bytes, "{} of {bytes}", output.stdout.len());
        assert!(output.stdout.starts_with(b"verdict: "), "{bytes}");
    }
    let few = laptop.run("report matmul.ncu-repz --format brief --bytes 10");
    assert_eq!(few.status.code(), Some(2));
    assert!(few.stdout.is_empty() && String::from_utf8_lossy(&few.stderr).contains("256"));
    insta::assert_snapshot!(laptop.show("report matmul.ncu-repz --format brief --bytes 1500"));
}

#[test]
fn a_file_that_may_not_grow_is_one_error_and_leaves_nothing() {
    let laptop = matmul();
    let folder = || std::fs::read_dir(laptop.project("")).unwrap().count();
    let before = folder();
    let mut command = Command::new("/bin/sh");
    let plain = laptop.rgpu("report matmul.ncu-repz --format html --out x.html".split(' '));
    command.args(["-c", "ulimit -f 2; exec \"$0\" \"$@\""]).arg(plain.get_program());
    command.args(plain.get_args()).current_dir(laptop.project("")).env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(8), "{told}");
    assert!(told.contains("File too large"), "{told}");
    assert_eq!(folder(), before);
}

#[test]
fn a_report_without_a_timeline_is_no_trace() {
    let laptop = matmul();
    insta::assert_snapshot!(laptop.show("report matmul.ncu-repz --format perfetto"));
    assert!(!laptop.project("trace.pftrace").exists());
}

#[test]
fn perfettos_page_gets_the_trace_once_and_nobody_else_does() {
    let laptop = nsys();
    let link = laptop.path("link");
    let opener = laptop.path("bin/xdg-open");
    std::fs::create_dir_all(laptop.path("bin")).unwrap();
    let script = format!("#!/bin/sh\ncp \"$1\" '{0}.new' && mv '{0}.new' '{0}'\n", link.display());
    std::fs::write(&opener, script).unwrap();
    std::fs::set_permissions(&opener, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", laptop.path("bin").display());
    // With few open files, as idle connections of others leave few.
    let line = "report regions.nsys-rep --format perfetto --open -q";
    let plain = laptop.rgpu(line.split(' '));
    let mut limited = Command::new("/bin/sh");
    limited.args(["-c", "ulimit -n 48; exec \"$0\" \"$@\""]).arg(plain.get_program());
    limited.args(plain.get_args()).current_dir(laptop.project("")).env_clear();
    limited.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut rgpu = limited.env("PATH", path).spawn().unwrap();
    let started = Instant::now();
    while !link.exists() {
        assert!(started.elapsed() < PATIENCE, "nothing opened the link");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The command line of the browser, which others see, has a file in place of the link.
    let redirect = std::fs::read_to_string(link).unwrap();
    let port = 9001;
    let page = format!("content=\"0;url=https://ui.perfetto.dev/#!/?url=http://127.0.0.1:{port}");
    let (_, path) = redirect.split_once(&page).unwrap();
    let (path, _) = path.split_once('"').unwrap();
    let idle: Vec<_> =
        (0..100).map_while(|_| TcpStream::connect(("127.0.0.1", port)).ok()).collect();
    assert_eq!(idle.len(), 100);
    let answer = |method: &str, path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        (String::from_utf8(bytes[..end].to_vec()).unwrap(), bytes[end..].to_vec())
    };
    for wrong in ["/trace.pftrace", "/", "/00000000000000000000000000000000/trace.pftrace"] {
        assert!(answer("GET", wrong).0.starts_with("HTTP/1.1 404 "), "{wrong}");
    }
    // What a browser asks before a page may fetch from this machine.
    let (head, _) = answer("OPTIONS", path);
    assert!(head.contains("access-control-allow-private-network: true"), "{head}");
    let (head, body) = answer("GET", path);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("access-control-allow-origin: https://ui.perfetto.dev"), "{head}");
    assert_eq!(body, std::fs::read(laptop.project("trace.pftrace")).unwrap());
    assert_eq!(rgpu.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn a_perfetto_trace_reads_back_with_perfettos_own_protos() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join(".rgpu/perfetto/bin/python");
    if !python.is_file() {
        assert!(
            std::env::var_os("CI").is_none(),
            "no Perfetto protos: `cargo xtask test` brings them"
        );
        eprintln!("SKIPPED: no Perfetto protos; `cargo xtask test` brings them");
        return;
    }
    let laptop = nsys();
    let output = laptop.run("report regions.nsys-rep --format perfetto --out out.pftrace");
    assert_eq!(status(&output), 0);
    let script: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/it/read_trace.py"].iter().collect();
    let told =
        Command::new(python).arg(script).arg(laptop.project("out.pftrace")).output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    insta::assert_snapshot!(String::from_utf8_lossy(&told.stdout));
}

#[test]
fn a_schema_check_names_each_violation_with_its_place() {
    let laptop = Laptop::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/profile.example.json");
    let text = std::fs::read_to_string(example).unwrap();
    let mut profile: serde_json::Value = serde_json::from_str(&text).unwrap();
    laptop.write("good.json", &profile.to_string());
    profile["launches"][0]["grid"] = serde_json::json!([1, "two", 3]);
    profile.as_object_mut().unwrap().remove("rung");
    laptop.write("bad.json", &profile.to_string());
    laptop.write("none.json", "{\"schema\": ");
    insta::assert_snapshot!(
        ["good.json", "bad.json", "none.json"]
            .map(|file| laptop.show(&format!("schema profile --check {file}")))
            .join("\n")
    );
}

#[test]
fn a_file_above_the_limit_is_refused_packed_or_unpacked() {
    let laptop = matmul();
    insta::assert_snapshot!(laptop.show("report matmul.ncu-repz --max-size 10kB"));
    // It fits as it lies there and not unpacked.
    insta::assert_snapshot!(laptop.show("report matmul.ncu-repz --max-size 200kB"));
}

#[test]
fn a_file_is_checked_against_a_schema_in_each_format() {
    let laptop = Laptop::new();
    let kernel = include_str!("../../kernels/vecadd/kernel.toml");
    laptop.write("kernel.toml", kernel);
    laptop.write("wrong.toml", &format!("name = 5\n{}", kernel.replacen("name", "other", 1)));
    laptop.write("damaged.toml", "name = ");
    laptop.write("damaged.json", "{\"schema\":");
    laptop.write("lacking.json", &serde_json::json!({"schema": "rgpu.profile/1"}).to_string());
    // Each of these values takes many times its text.
    laptop.write("dense.json", &format!("[{}0]", "0,".repeat(20 << 20)));
    let (passed, artifact) = (0, 7);
    for (line, exit, told) in [
        ("schema kernel-toml --check kernel.toml", passed, "kernel.toml matches the schema"),
        ("schema kernel-toml --check wrong.toml", artifact, "violates the schema `kernel-toml`"),
        ("schema kernel-toml --check damaged.toml", artifact, "the file is not TOML"),
        ("schema profile --check damaged.json", artifact, "the file is not JSON"),
        ("schema profile --check lacking.json", artifact, "violates the schema `profile`"),
        ("schema profile --check dense.json", artifact, "does not fit"),
        ("schema profile --check /dev/null", artifact, "the file"),
    ] {
        let output = laptop.run(line);
        let shown = laptop.shown(line, &output);
        assert_eq!(output.status.code(), Some(exit), "{shown}");
        assert!(shown.contains(told), "{shown}");
    }
}

/// The last part of a command's stderr or stdout, its status, and the JSON that stdout holds.
fn failed(laptop: &Laptop, line: &str) -> (i32, String) {
    let output = laptop.run(line);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), text)
}

#[test]
fn a_file_that_is_not_there_is_the_same_usage_error_for_every_command() {
    let laptop = matmul();
    for line in [
        "report nosuch.ncu-rep",
        "compare nosuch.ncu-rep matmul.ncu-repz",
        "schema profile --check nosuch.json",
        "report 'matmul.*'",
        "report matmul.ncu-rep",
    ] {
        let (status, text) = failed(&laptop, line);
        assert_eq!(status, 2, "{line}: {text}");
        assert!(text.contains("a file `") || text.contains("no file `"), "{line}: {text}");
    }
    let (_, text) = failed(&laptop, "report matmul.*");
    assert!(text.contains("in quotes") && text.contains("matmul.ncu-repz"), "{text}");
    let (_, text) = failed(&laptop, "report matmul.ncu-rep");
    assert!(text.contains("did you mean `matmul.ncu-repz`?"), "{text}");
}

#[test]
fn a_folder_that_is_no_runs_says_what_a_run_folder_is() {
    let laptop = matmul();
    std::fs::create_dir(laptop.project("things")).unwrap();
    for line in ["report things", "report ./things", "runs show things", "compare things things"] {
        let (status, text) = failed(&laptop, line);
        assert_eq!(status, 2, "{line}: {text}");
        assert!(text.contains("run.json") && text.contains("rgpu runs list"), "{line}: {text}");
    }
}

#[test]
fn json_is_one_document_on_stdout_and_no_other_format_goes_with_it() {
    let laptop = matmul();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/profile.example.json");
    laptop.write("bad.json", "{}");
    for (line, status) in [
        ("report matmul.ncu-repz --json --format table".to_owned(), 2),
        ("report matmul.ncu-repz --json --format html".to_owned(), 2),
        ("report matmul.ncu-repz --json --format json".to_owned(), 0),
        ("report matmul.ncu-repz --json --out p.json".to_owned(), 0),
        ("report matmul.ncu-repz --json --lint nvtx".to_owned(), 0),
        ("compare matmul.ncu-repz matmul.ncu-repz --json".to_owned(), 0),
        ("schema profile --json".to_owned(), 0),
        (format!("schema profile --check {example} --json"), 0),
        ("schema profile --check bad.json --json".to_owned(), 7),
        ("runs list --json".to_owned(), 0),
        ("runs clean --json".to_owned(), 0),
    ] {
        let output = laptop.run(&line);
        assert_eq!(output.status.code(), Some(status), "{line}");
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str::<serde_json::Value>(&text)
            .unwrap_or_else(|e| panic!("{line}: {e}: {text}"));
    }
}

#[test]
fn a_document_that_is_written_in_pieces_keeps_its_characters_and_its_bytes_in_a_file() {
    let laptop = Laptop::new();
    let event = |n: usize| {
        let name = format!("ü{}👍\u{202e}", "ä".repeat(n % 7));
        let args = serde_json::json!({ "device": 0 });
        serde_json::json!({ "ph": "X", "cat": "kernel", "name": name, "ts": n, "dur": 1, "args": args })
    };
    let events: Vec<_> = (0..2000).map(event).collect();
    laptop.write("trace.json", &serde_json::json!({ "traceEvents": events }).to_string());
    let shown = laptop.run("report trace.json --json").stdout;
    assert!(shown.len() > 3 << 16, "{} bytes fill no piece", shown.len());
    assert_eq!(status(&laptop.run("report trace.json --format json --out p.json")), 0);
    let written = std::fs::read(laptop.project("p.json")).unwrap();
    let shown: Profile = serde_json::from_slice(&shown).unwrap();
    assert_eq!(shown, serde_json::from_slice(&written).unwrap());
    assert!(shown.launches.iter().all(|launch| launch.kernel.ends_with("👍\u{202e}")));
    // The second is an earlier report of the same kind, judged by its first bytes.
    assert_eq!(status(&laptop.run("report trace.json --format json --out p.json")), 0);
}

#[test]
fn a_page_takes_the_place_of_a_page_of_ours_and_of_nothing_else() {
    let laptop = matmul();
    let made = |line: &str| laptop.run(line).status.code();
    assert_eq!(made("report matmul.ncu-repz --format html"), Some(0));
    assert_eq!(made("report matmul.ncu-repz --format html"), Some(0));
    laptop.write("report.html", "<!doctype html><title>coverage</title>");
    let (status, text) = failed(&laptop, "report matmul.ncu-repz --format html");
    assert!(status == 2 && text.contains("--force"), "{text}");
    assert_eq!(made("report matmul.ncu-repz --format html --force"), Some(0));
}

#[test]
fn what_is_no_report_is_said_once_with_its_first_bytes_escaped() {
    let laptop = Laptop::new();
    let mut all = String::new();
    for name in ["rnd.ncu-rep", "rnd.nsys-rep", "rnd.sqlite"] {
        std::fs::write(laptop.project(name), b"\xaa\x17\xfe not this\n").unwrap();
        all += &laptop.show(&format!("report {name}"));
    }
    for name in ["empty.ncu-rep", "empty.nsys-rep", "empty.sqlite"] {
        laptop.write(name, "");
        all += &laptop.show(&format!("report {name}"));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn a_run_without_a_profile_says_why_it_has_none() {
    let laptop = Laptop::new();
    crate::fake_host::FakeHost::new(&laptop);
    laptop.write("bad.cu", "extern \"C\" __global__ void bad(int n) { does_not_compile; }\n");
    assert_eq!(status(&laptop.run("build vecadd --remote h200")), 0);
    let mut all = laptop.show("report latest");
    assert_ne!(status(&laptop.run("profile --kernel bad.cu --mode bench --remote h200")), 0);
    all += &laptop.show("report latest");
    all += &laptop.show("disasm latest --hot");
    insta::assert_snapshot!(all);
}

#[test]
fn a_file_of_another_kind_is_refused_by_its_first_bytes_however_large() {
    let laptop = Laptop::new();
    for name in ["huge.ncu-rep", "huge.cubin"] {
        // Zeros that take no room on the disk, and far more than fits into memory.
        std::fs::File::create(laptop.project(name)).unwrap().set_len(1 << 40).unwrap();
    }
    let (status, text) = failed(&laptop, "report huge.ncu-rep --max-size 10000GB");
    assert!(status == 7 && text.contains("the bytes 00 00 00 00"), "{text}");
    let (status, text) = failed(&laptop, "disasm huge.cubin --tool rgpu");
    assert!(status == 7 && text.contains("\\x00\\x00\\x00\\x00"), "{text}");
}

#[test]
fn a_written_report_has_the_mode_that_the_umask_gives() {
    use std::os::unix::fs::PermissionsExt;
    for (umask, mode) in [("077", 0o600), ("022", 0o644)] {
        let laptop = matmul();
        let rgpu = laptop.rgpu([""; 0]);
        let mut shell = Command::new("sh");
        let line = "umask $1; exec \"$0\" report matmul.ncu-repz --format json --out r.json";
        shell.args(["-c", line]).arg(rgpu.get_program()).arg(umask);
        shell.current_dir(laptop.project("")).env_clear();
        shell.envs(rgpu.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = shell.output().unwrap();
        assert_eq!(status(&output), 0, "{}", laptop.shown(line, &output));
        let written = std::fs::metadata(laptop.project("r.json")).unwrap();
        assert_eq!(written.permissions().mode() & 0o777, mode);
    }
}

#[test]
fn ncus_source_page_as_csv_shows_the_hot_spots_of_its_report() {
    let laptop = with("ncu/2025.3.1/full-tiled-matmul/source.csv", "source.csv");
    let text = laptop.show("report source.csv");
    for part in ["hot spots", "STS [R3], R24", "long_scoreboard", "stalls"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Lines of source code are refused with what to do.
    laptop.write(
        "lines.csv",
        "\"File Path\",\"/src/a.cu\",\n\"Function Name\",\"a\",\n\"Line No\",\"Source\",\"# Samples\"\n\"8\",\"{\",\"1\"\n",
    );
    let output = laptop.run("report lines.csv");
    let shown = laptop.shown("report lines.csv", &output);
    assert!(status(&output) == 7 && shown.contains("--print-source sass"), "{shown}");
}

/// Programs of other people's libraries, recorded on an H200: the cause comes first, then kernels.
#[test]
fn what_is_said_first_of_real_programs() {
    let mut all = String::new();
    for program in ["gemm", "cupy_heat", "triton_norm"] {
        let laptop = with(&format!("programs/{program}/report.sqlite"), "report.sqlite");
        all += &format!("{program}\n{}\n", laptop.show("report report.sqlite --format brief"));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn kernels_have_their_full_names_where_that_is_asked() {
    let laptop = with("torch/public/simple-add/trace.json", "trace.json");
    std::fs::copy(laptop.project("trace.json"), laptop.project("same.json")).unwrap();
    const FULL: &str = "at::native::vectorized_elementwise_kernel<";
    for line in
        ["report trace.json", "report trace.json --format brief", "compare trace.json same.json"]
    {
        let short = laptop.show(line);
        assert!(short.contains("add f32") && !short.contains(FULL), "{short}");
        let full = laptop.show(&format!("{line} --full-names"));
        assert!(full.contains(FULL) && !full.contains("add f32"), "{full}");
    }
    // In Markdown the underscores are escaped.
    let line = "report trace.json --format markdown";
    let named = |text: &str| text.matches("vectorized").count();
    let (short, full) = (laptop.show(line), laptop.show(&format!("{line} --full-names")));
    assert!(named(&full) > named(&short), "{full}");
}

#[test]
fn summaries_of_less_of_a_report_are_the_same() {
    for case in ["full-tiled-matmul", "full-spill", "full-divergent", "regions"] {
        let path = fixture(&format!("ncu/2025.3.1/{case}/report.ncu-repz"));
        let read = |detail| {
            let source = Source { detail, ..Source::new(&path, "report.ncu-repz") };
            let mut profile = Profile::default();
            let mut sidecars = Sidecars::default();
            (IMPORTERS[0].import)(&source).unwrap().add_to(&mut profile, &mut sidecars);
            analyze_all(&mut profile, &sidecars, &Thresholds::default());
            (profile, sidecars)
        };
        let (full, summary) = (read(Detail::Full), read(Detail::Summary));
        let sections = |(profile, _): &(Profile, Sidecars)| -> usize {
            profile.launches.iter().map(|launch| launch.raw_sections.len()).sum()
        };
        assert!(sections(&full) > 0 && sections(&summary) == 0, "{case}");
        for report in REPORTS.iter().filter(|report| report.is_summary) {
            let text = |(profile, sidecars): &(Profile, Sidecars)| {
                report.text(&ReportInput::new(profile, sidecars), &Style::default())
            };
            assert_eq!(text(&summary), text(&full), "{case} {}", report.id);
        }
    }
}

#[test]
fn a_pointer_of_git_lfs_is_named_by_every_command_that_reads_files() {
    let laptop = Laptop::new();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
    let names = ["big.nsys-rep", "big.cubin", "big.json.gz"];
    for name in names {
        laptop.write(name, pointer);
    }
    for name in names {
        for command in ["report", "disasm --tool rgpu", "compare big.cubin"] {
            let (status, text) = failed(&laptop, &format!("{command} {name}"));
            assert!(status == 7 && text.contains("git lfs pull"), "{command} {name}: {text}");
        }
    }
}

#[test]
fn table_json_and_pages_tell_of_times_that_cannot_be() {
    let laptop = Laptop::new();
    let event = |ts: u64, dur: u64| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":{dur},
                "args":{{"device":0,"stream":7}}}}"#
        )
    };
    let events = [event(0, 0), event(1_700_000_000_000_000, 5), event(1_700_000_000_000_010, 5)];
    let text = format!("{{\"schemaVersion\":1,\"traceEvents\":[{}]}}", events.join(","));
    laptop.write("synthetic.json", &text);
    let told = "1 kernel has times that cannot be";
    let table = laptop.show("report synthetic.json");
    assert!(table.replace("\n", " ").contains("times that cannot be"), "{table}");
    let json = laptop.run("report synthetic.json --format json");
    let json = String::from_utf8_lossy(&json.stdout).into_owned();
    assert!(json.contains(told), "{json}");
    laptop.show("report synthetic.json --format html --out page.html");
    assert!(std::fs::read_to_string(laptop.project("page.html")).unwrap().contains(told));
}

#[test]
fn a_failed_run_after_the_shown_one_and_a_missing_browser_are_told() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.run("profile --kernel vecadd --mode ncu --remote h200 --run-id good");
    let said = |line: &str| {
        let output = laptop.run(line);
        (status(&output), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (_, text) = said("report latest");
    assert!(text.contains("`latest` is good") && !text.contains("a newer run"), "{text}");
    let failed = laptop.run("profile --run-id bad --remote local -- no-such-program");
    assert_ne!(status(&failed), 0);
    let (code, text) = said("report latest");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("`latest` is good"), "{text}");
    assert!(text.contains("a newer run failed and has no report: bad"), "{text}");
    assert!(text.contains("`rgpu runs show bad`"), "{text}");
    // Neither a desktop nor a browser is on this PATH.
    let mut command = laptop.rgpu(["report", "good", "--format", "html", "--open"]);
    let output = command.env("PATH", laptop.path("tmp")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("cannot be opened: this machine has no browser"), "{text}");
}
