//! Imitates Nsight Compute 2025.3.1.

use std::fs;

use crate::ImitationError;
use crate::host::Host;
use crate::misbehaviour;
use crate::options::Options;
use crate::program;
use crate::recording::{Recording, host_text};

const RECORDED: &str = "ncu/2025.3.1";

const FLAGS: &[&str] = &[
    "--nvtx",
    "--force-overwrite",
    "-f",
    "--csv",
    "--version",
    "--help",
    "--list-sections",
    "--list-sets",
    "--list-chips",
    "--query-metrics",
];

/// The published text: the recorded host gives every user access to its counters.
const COUNTERS_REFUSED: &str = "\
==PROF== Connected to process 2022 (/tmp/rgpu-record/bin/showcase)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0. For instructions on enabling permissions and to get more information see https://developer.nvidia.com/ERR_NVGPUCTRPERM
launched
==PROF== Disconnected from process 2022
";

pub(crate) fn play(host: &Host, words: &[String]) -> Result<u8, ImitationError> {
    let options = Options::read(words, FLAGS);
    for (flag, file) in [
        ("--version", "ncu-version.txt"),
        ("--list-sections", "ncu-list-sections.txt"),
        ("--list-sets", "ncu-list-sets.txt"),
        ("--list-chips", "ncu-list-chips.txt"),
    ] {
        if options.has(&[flag]) {
            print!("{}", host_text(file)?);
            return Ok(0);
        }
    }
    if let Some(option) = not_for_ranges(&options) {
        println!("==ERROR== Option {option} is not supported during range replay.");
        return Ok(1);
    }
    if let Some(unknown) = unknown_section(&options)? {
        let recorded = Recording::open(RECORDED, "unknown-section")?;
        print!("{}", recorded.text("stdout.txt").replace("SpeedOfLigth", &unknown));
        return Ok(recorded.exit);
    }
    let kernel = program::kernel(options.program)?;
    let is = |word| misbehaviour::is(host, "ncu", words, word);
    if is("counters-refused") {
        program::replay(COUNTERS_REFUSED, is_tool_line, || program::run(options.program, &[]))?;
        return Ok(1);
    }
    let name = if is("program-crashes") {
        "app-killed".to_owned()
    } else if is("counters-taken") {
        "counters-taken".to_owned()
    } else if is("no-kernels") || !selected(&options, &kernel) {
        "no-kernels-filter".to_owned()
    } else if is("range-unsupported") {
        "range-replay-managed".to_owned()
    } else {
        recording_of(&kernel, &options)
    };
    let recorded = Recording::open(RECORDED, &name)?;
    let export = options.value(&["--export", "-o"]).unwrap_or("report");
    let report =
        if export.ends_with(".ncu-rep") { export.to_owned() } else { format!("{export}.ncu-rep") };
    let text = recorded_output(&recorded.text("stdout.txt"), &report, &kernel);
    // The real tool ends a program whose kernel it could not profile.
    let killed = recorded.exit == 9;
    let ended = program::replay(&text, is_tool_line, || {
        if killed { Some(9) } else { program::run(options.program, &[]) }
    })?;
    if let Some(status) = ended.filter(|status| *status != 0 && !killed) {
        println!("==ERROR== The application returned an error code ({status}).");
    }
    if let Some(bytes) = recorded.ncu_report()? {
        let bytes = if is("cut-report") { &bytes[..bytes.len() / 2] } else { &bytes };
        fs::write(&report, bytes)?;
    }
    Ok(if recorded.exit == 0 { ended.unwrap_or(1) } else { recorded.exit })
}

/// Name of the recording for a kernel.
fn recording_of(kernel: &str, options: &Options<'_>) -> String {
    let unknown = |metric: &str| metric.starts_with("nosuch");
    let metrics: Vec<&str> =
        options.values(&["--metrics"]).flat_map(|list| list.split(',')).collect();
    let full = format!("full-{}", kernel.replace('_', "-"));
    match kernel {
        "vecadd" if !metrics.is_empty() && metrics.iter().all(|m| unknown(m)) => {
            "unknown-metric".into()
        }
        "vecadd" if metrics.iter().any(|m| unknown(m)) => "unknown-metric-among".into(),
        "regions" | "nested-regions" => regions(options),
        "ten_kernels" if metrics == ["gpu__time_duration.sum"] => "ten-times".into(),
        "ten_kernels" => "cost-minimal".into(),
        "crash" => "app-crashes".into(),
        _ => full,
    }
}

/// Name of the recording of the program with ranges, by filters and replay mode.
fn regions(options: &Options<'_>) -> String {
    let include: Vec<&str> = options.values(&["--nvtx-include"]).collect();
    match (options.value(&["--replay-mode"]).unwrap_or("kernel"), include.as_slice()) {
        ("range", ["A/A1"]) => "range-inner",
        ("range", ["A/", ..]) => "range-nested",
        ("app-range", ["A/", "B/"]) => "app-range-two",
        ("app-range", ["A/A1"]) => "range-inner",
        ("app-range", _) => "app-range",
        (_, ["A/A1"]) => "regions-include-a1",
        (_, ["A/" | "A/A1", ..]) if !include.contains(&"B/") => "regions-include",
        _ => "regions",
    }
    .to_owned()
}

/// The first option that range replay does not support.
fn not_for_ranges(options: &Options<'_>) -> Option<&'static str> {
    let replay = options.value(&["--replay-mode"])?;
    let known = ["import-source", "nvtx-exclude", "kernel-name"];
    let given = |name: &&&str| {
        options.has(&[&format!("--{name}")]) || (**name == "kernel-name" && options.has(&["-k"]))
    };
    known.iter().find(given).copied().filter(|_| replay.ends_with("range"))
}

/// The first `--section` that ncu does not have.
fn unknown_section(options: &Options<'_>) -> Result<Option<String>, ImitationError> {
    let known = host_text("ncu-list-sections.txt")?;
    let known: Vec<&str> =
        known.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let mut asked = options.values(&["--section"]);
    Ok(asked.find(|section| !section.contains(':') && !known.contains(section)).map(str::to_owned))
}

/// Whether `--kernel-name` lets the kernel through.
fn selected(options: &Options<'_>, kernel: &str) -> bool {
    // For programs with several kernels, the effect of a filter is not imitated.
    if matches!(kernel, "ten_kernels" | "regions" | "nested-regions") {
        return options.value(&["-k", "--kernel-name"]) != Some("nosuch");
    }
    let function = kernel.replace('-', "_");
    options.value(&["-k", "--kernel-name"]).is_none_or(|wanted| {
        match wanted.strip_prefix("regex:") {
            // Supports as much of regular expressions as the tests need.
            Some(regex) => match excluded(regex) {
                Some((names, rest)) => {
                    !names.split('|').any(|name| function.contains(name))
                        && function.contains(rest.trim_matches(['^', '$', '.', '*']))
                }
                None => function.contains(regex.trim_matches(['^', '$', '.', '*'])),
            },
            None => function == wanted,
        }
    })
}

/// The names that `(?!.*(?:A|B))` excludes, and the expression after it.
fn excluded(regex: &str) -> Option<(&str, &str)> {
    let (names, rest) = regex.strip_prefix("^(?!.*(?:")?.split_once("))")?;
    let rest = rest.strip_prefix("(?=").and_then(|rest| rest.strip_suffix(')')).unwrap_or(rest);
    Some((names, rest))
}

/// The recorded output, with this report's path and this kernel's name.
fn recorded_output(recorded: &str, report: &str, kernel: &str) -> String {
    let line = |line: &str| match line.split_once("Report: ") {
        Some((head, _)) => format!("{head}Report: {report}\n"),
        None if line.starts_with("1. ") => format!("1. {}\n", kernel.replace('-', "_")),
        None => format!("{line}\n"),
    };
    recorded.lines().map(line).collect()
}

fn is_tool_line(line: &str) -> bool {
    line.is_empty()
        || line.starts_with("==")
        || line.starts_with("Available")
        || line.starts_with("1. ")
}
