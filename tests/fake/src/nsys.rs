//! Imitates Nsight Systems 2025.3.1. The trace of the program `regions` is used for all, or with
//! the mischief `training` that of a small training.

use std::fs;
use std::time::Duration;

use crate::ImitationError;
use crate::host::Host;
use crate::misbehaviour;
use crate::options::Options;
use crate::program;
use crate::recording::{Recording, all, host_text};

const RECORDED: &str = "nsys/2025.3.1";

pub(crate) fn play(host: &Host, words: &[String]) -> Result<u8, ImitationError> {
    match words.first().map(String::as_str) {
        Some("--version" | "-v") => {
            print!("{}", host_text("nsys-version.txt")?);
            Ok(0)
        }
        Some("status") => {
            print!("{}", Recording::open(RECORDED, "status")?.text("stdout.txt"));
            Ok(0)
        }
        Some("profile") => profile(host, &words[1..]),
        Some("export") => export(&words[1..]),
        other => Err(format!("`{other:?}` is not played").into()),
    }
}

fn profile(host: &Host, words: &[String]) -> Result<u8, ImitationError> {
    let options = Options::read(words, &["-w"]);
    let is = |word| misbehaviour::is(host, "nsys", words, word);
    let traced = options.value(&["--trace", "-t"]).unwrap_or("cuda");
    let cuda = traced.split(',').any(|what| what == "cuda") && !is("no-gpu-rows");
    let with_stacks = options.value(&["--cudabacktrace"]).is_some();
    let name = match (is("importer-missing"), is("no-data"), cuda) {
        _ if is("training") && with_stacks => "frames-stacks",
        _ if is("training") => "frames-first",
        (true, ..) => "importer-missing",
        (_, true, _) => "capture-range-miss",
        (.., true) => "regions",
        (.., false) => "regions-nvtx-only",
    };
    let recorded = Recording::open(RECORDED, name)?;
    let output = options.value(&["--output", "-o"]).unwrap_or("report");
    // The program runs first; all output after it is nsys's own.
    let text = recorded.text("stdout.txt");
    let text = text.split_once("Collecting data").map_or("", |(_, rest)| rest);
    let seconds = |name| options.value(&[name]).and_then(|text| text.parse::<u64>().ok());
    let ran = match (seconds("--duration"), options.value(&["--kill"])) {
        (Some(duration), Some(signal)) => {
            let after = Duration::from_secs(seconds("--delay").unwrap_or(0) + duration);
            program::run_until(options.program, after, signal)
        }
        _ => program::run(options.program, &[]),
    };
    let Some(status) = ran else {
        eprint!("{}", Recording::open(RECORDED, "no-program")?.text("stderr.txt"));
        return Ok(1);
    };
    for line in format!("Collecting data{text}").lines() {
        match line.strip_prefix('\t').and_then(|path| path.rsplit_once('.')) {
            Some((_, extension)) => println!("\t{output}.{extension}"),
            None => println!("{line}"),
        }
    }
    if is("unknown-uuid") {
        eprintln!("Unrecognized GPU UUID: {}", host.uuid());
    }
    eprint!("{}", recorded.text("stderr.txt"));
    if let Some(report) = recorded.bytes("report.nsys-rep") {
        fs::write(format!("{output}.nsys-rep"), report)?;
    } else if name == "importer-missing" {
        fs::write(format!("{output}.qdstrm"), b"synthetic: not kept")?;
    }
    Ok(if recorded.exit == 0 { status } else { recorded.exit })
}

/// Copies the sqlite file that the real tool exported from the same report.
fn export(words: &[String]) -> Result<u8, ImitationError> {
    let options = Options::read(words, &[]);
    let [input] = options.program else { return Err("one report is wanted".into()) };
    let Ok(report) = fs::read(input) else {
        eprintln!("File {input} does not exist.");
        return Ok(1);
    };
    for folder in all(RECORDED)? {
        if fs::read(folder.join("report.nsys-rep")).is_ok_and(|recorded| recorded == report) {
            let Ok(sqlite) = fs::read(folder.join("report.sqlite")) else {
                eprintln!("the export of {input} was not kept");
                return Ok(1);
            };
            let output = options.value(&["--output", "-o"]).ok_or("no output")?;
            fs::write(output, sqlite)?;
            return Ok(0);
        }
    }
    Err(format!("`{input}` is not a recorded report").into())
}
