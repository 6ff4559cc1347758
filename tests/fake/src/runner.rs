//! Imitates `rgpu-runner` without a GPU. Nothing is launched and every number is invented; the
//! report marks this by naming its runner `… synthetic`.

use std::fs;
use std::path::Path;
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use rgpu_case::{
    CASE_ABI, Case, CaseReport, Correctness, DeviceFacts, EntryPoint, ErrorClass, GraphTiming,
    GuardFinding, GuardKind, GuardReport, HostWarning, Mismatch, OutputCheck, PairedTiming, Phase,
    RunnerError, RunnerInput, RunnerJob, RunnerReport, Timing, TimingSource, WarningKind,
};
use serde_json::json;

use crate::ImitationError;
use crate::host::Host;
use crate::misbehaviour;
use crate::nvcc::MARK;
use crate::options::Options;

/// The variable by which a tool tells the runner that the kernel crashes under it.
pub(crate) const FAULT: &str = "RGPU_FAKE_FAULT";

/// The invented time of every launch, in nanoseconds.
const LAUNCH_NS: f64 = 20_000.0;

pub(crate) fn play(host: &Host, words: &[String]) -> Result<u8, ImitationError> {
    if words.iter().any(|word| word == "--version") {
        println!("rgpu-runner {}", env!("CARGO_PKG_VERSION"));
        return Ok(0);
    }
    // Options may come before or after the Case and the job.
    let (mut options, mut rest) = (Vec::new(), Vec::new());
    let mut words_left = words.iter();
    while let Some(word) = words_left.next() {
        match word.as_str() {
            "--out" | "--ranges" | "--against" | "--other" => {
                options.push(word.clone());
                options.extend(words_left.next().cloned());
            }
            option if option.starts_with('-') => options.push(option.to_owned()),
            _ => rest.push(word.clone()),
        }
    }
    let options = Options::read(&options, &["--strict", "--host-clock"]);
    let [input_file, job] = rest.as_slice() else { return Ok(ErrorClass::Usage.exit_code()) };
    let input = read_input(Path::new(input_file))?;
    let job: RunnerJob = serde_json::from_value(json!(job))?;
    println!(
        "rgpu-runner {} (synthetic): {} {}",
        env!("CARGO_PKG_VERSION"),
        job.name(),
        input.kernel
    );

    let is = |word: &str| misbehaviour::is(host, "rgpu-runner", words, word);
    let fault = std::env::var(FAULT).unwrap_or_default();
    let warnings = if is("unfit") { vec![power_limit()] } else { Vec::new() };
    let marked = KernelMarks::read(&input);
    let error = if is("unfit") && options.has(&["--strict"]) {
        Some((ErrorClass::HostUnfit, Phase::Timed, "the host is not suitable for measurements"))
    } else if is("no-events") && job == RunnerJob::Time && !options.has(&["--host-clock"]) {
        Some((ErrorClass::Cuda, Phase::Timed, "cuEventCreate: not supported"))
    } else if is("no-driver") {
        Some((ErrorClass::NoDriver, Phase::Setup, "libcuda.so.1 cannot be loaded"))
    } else if (is("wrong-result") || marked.is_wrong) && job == RunnerJob::Verify {
        Some((ErrorClass::WrongResult, Phase::Verify, "output `c` does not match"))
    } else if is("illegal-access") || fault == "illegal-access" {
        let text = "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)";
        Some((ErrorClass::IllegalAccess, Phase::Timed, text))
    } else {
        None
    };
    let wrong = matches!(error, Some((ErrorClass::WrongResult, ..)));
    let stopped = error.is_some() && !wrong;
    let other =
        options.value(&["--against"]).map(|path| read_input(Path::new(path))).transpose()?;
    let advantage = other.as_ref().map(|other| advantage(host, &input, other));
    let report = RunnerReport {
        abi: CASE_ABI,
        runner: format!("{} synthetic", env!("CARGO_PKG_VERSION")),
        kernel: input.kernel.clone(),
        job,
        model: None,
        board: None,
        cases: input
            .cases
            .iter()
            .map(|case| {
                if stopped {
                    named(case)
                } else {
                    let paired = other
                        .as_ref()
                        .zip(advantage)
                        .map(|(other, speedup)| paired(other, speedup));
                    CaseReport { paired, ..results(&input, case, job, wrong, is("guard-finds")) }
                }
            })
            .collect(),
        device: (job != RunnerJob::Cpu).then(|| device(host)),
        warnings,
        gaps: Vec::new(),
        error: error.map(|(class, phase, text)| RunnerError {
            class,
            text: text.to_owned(),
            phase: Some(phase),
            case: input.cases.first().map(|case| case.name.clone()),
            call: None,
            code: None,
        }),
    };
    if let Some(out) = options.value(&["--out"]) {
        let early = early_end(&report, &is);
        if let Some(left) = early.as_ref().unwrap_or(&Some(report.clone())) {
            fs::write(out, serde_json::to_vec_pretty(left)?)?;
            // The other kernel's report of a comparison.
            if let (true, Some(other)) = (early.is_some(), options.value(&["--other"])) {
                fs::write(other, serde_json::to_vec_pretty(left)?)?;
            }
        }
        if early.is_some() {
            return Ok(0);
        }
    }
    let cuda = std::env::var_os("CUDA_INJECTION64_PATH").is_some();
    let gpu = match (cuda, is("cupti-unusable"), is("cupti-saw-nothing")) {
        (false, ..) => Gpu::NotAsked,
        (true, true, _) => Gpu::Unusable,
        (true, false, true) => Gpu::Nothing,
        (true, false, false) => Gpu::Traced,
    };
    if let (Ok(log), false) = (std::env::var("RGPU_NVTX_LOG"), is("no-ranges"))
        && (input.kernel == "nested-regions" || gpu != Gpu::NotAsked)
    {
        fs::write(format!("{log}.{}", process::id()), collected(&input, gpu)?)?;
    }
    if let (Some(other), Some(advantage), Some(out), false) =
        (&other, advantage, options.value(&["--other"]), stopped)
    {
        let cases = other.cases.iter().map(|case| CaseReport {
            timing: Some(timing(TimingSource::Events, marked.launch_ns() / advantage)),
            ..named(case)
        });
        let cases = cases.collect();
        let twin = RunnerReport { kernel: other.kernel.clone(), cases, ..report };
        fs::write(out, serde_json::to_vec_pretty(&twin)?)?;
    }
    if let Some(ranges) = options.value(&["--ranges"]) {
        fs::write(ranges, range_log(&input)?)?;
    }
    match error {
        None => Ok(0),
        Some((class, phase, text)) => {
            eprintln!("error: {text}\n  during `{}`", phase.name());
            Ok(class.exit_code())
        }
    }
}

/// What is left of a report if the kernel ends its process with status 0: `Some(None)` if there is
/// no report at all, and `None` if the kernel does no such thing.
fn early_end(report: &RunnerReport, is: &dyn Fn(&str) -> bool) -> Option<Option<RunnerReport>> {
    let mut left = report.clone();
    if is("ends-early") {
        left.error = Some(RunnerError {
            class: ErrorClass::Crash,
            text: "the process ended during `setup` without a message".to_owned(),
            phase: Some(Phase::Setup),
            case: left.cases.last().map(|case| case.name.clone()),
            call: None,
            code: None,
        });
    } else if is("leaves-out-a-case") {
        left.cases.pop();
    } else if is("checks-nothing") {
        left.cases = left
            .cases
            .iter()
            .map(|case| CaseReport { name: case.name.clone(), ..CaseReport::default() })
            .collect();
    } else if is("leaves-no-report") {
        return Some(None);
    } else {
        return None;
    }
    Some(Some(left))
}

fn named(case: &Case) -> CaseReport {
    CaseReport { name: case.name.clone(), ..CaseReport::default() }
}

fn results(
    input: &RunnerInput,
    case: &Case,
    job: RunnerJob,
    wrong: bool,
    guard_finds: bool,
) -> CaseReport {
    let mut report = named(case);
    match job {
        RunnerJob::Verify => report.correctness = Some(correctness(input, case, wrong)),
        RunnerJob::Time | RunnerJob::Pair => {
            let ns = KernelMarks::read(input).launch_ns();
            let graph = in_graph(input, ns).filter(|_| job == RunnerJob::Time);
            report.timing = Some(Timing { graph, ..timing(TimingSource::Events, ns) })
        }
        RunnerJob::Cpu => report.timing = Some(timing(TimingSource::Cpu, LAUNCH_NS)),
        RunnerJob::Guard => {
            let finding = GuardFinding {
                kind: GuardKind::WriteAfter,
                arg: "c".to_owned(),
                group: 0,
                offset: 4000,
                count: 4,
            };
            let findings = if guard_finds { vec![finding] } else { Vec::new() };
            report.guard = Some(GuardReport { launches: 2, findings });
        }
        RunnerJob::Once | RunnerJob::Torch | RunnerJob::Board => {}
    }
    report
}

fn correctness(input: &RunnerInput, case: &Case, wrong: bool) -> Correctness {
    let outputs = case.groups.iter().enumerate().flat_map(|(group, values)| {
        values.args.iter().filter(|arg| arg.role.is_output()).map(move |arg| (group, arg))
    });
    let checked = outputs.map(|(group, arg)| OutputCheck {
        name: arg.name.clone(),
        group,
        elements: arg.count().unwrap_or(0),
        mismatches: u64::from(wrong),
        unwritten: 0,
        max_abs_error: if wrong { 1.0 } else { 0.0 },
        max_rel_error: if wrong { 1.0 } else { 0.0 },
        first_mismatch: wrong.then(|| Mismatch {
            index: 7,
            coordinates: vec![7],
            expected: "1".to_owned(),
            actual: "2".to_owned(),
        }),
    });
    let outputs = if input.reference.is_some() { checked.collect() } else { Vec::new() };
    Correctness {
        passed: !wrong,
        outputs,
        bit_equal: true,
        changed_inputs: Vec::new(),
        checker: None,
    }
}

/// An input, with the path of its module as the real runner understands it: from the input's
/// folder.
fn read_input(path: &Path) -> Result<RunnerInput, ImitationError> {
    let mut input: RunnerInput = serde_json::from_slice(&fs::read(path)?)?;
    if let (EntryPoint::Device { module, .. }, Some(folder)) = (&mut input.entry, path.parent()) {
        *module = folder.join(&module).to_string_lossy().into_owned();
    }
    Ok(input)
}

/// The invented speed-up of the other kernel: 2 for a different kernel and 1 for the same, if their
/// sources say nothing else.
fn advantage(host: &Host, input: &RunnerInput, other: &RunnerInput) -> f64 {
    let by_name = if input.kernel == other.kernel { 1.0 } else { 2.0 };
    let (first, second) = (KernelMarks::read(input), KernelMarks::read(other));
    let file = host.folder.join("comparisons");
    let number: u32 = fs::read_to_string(&file).ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let _ = fs::write(&file, (number + 1).to_string());
    let factor = if second.is_once && number > 0 {
        1.0
    } else {
        by_name * first.launch_ns() / second.launch_ns()
    };
    factor * (1.0 + second.noise * normal(number))
}

/// A number that is distributed about as the normal distribution, the same for the same seed.
fn normal(seed: u32) -> f64 {
    let mut state = u64::from(seed) + 1;
    let uniform = (0..12).map(|_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24)
    });
    uniform.sum::<f64>() - 6.0
}

/// How a kernel behaves, by the line of its source that the played nvcc put behind the code.
#[derive(Clone, Copy)]
struct KernelMarks {
    time: f64,
    is_wrong: bool,
    /// Faster or slower in the first comparison only.
    is_once: bool,
    /// The standard deviation of its speed-ups, as a fraction.
    noise: f64,
}

impl KernelMarks {
    fn read(input: &RunnerInput) -> Self {
        let code = match &input.entry {
            EntryPoint::Device { module, .. } => fs::read(module).unwrap_or_default(),
            _ => Vec::new(),
        };
        let mark = MARK.as_bytes();
        let at = code.windows(mark.len()).rposition(|window| window == mark);
        let line = at.map_or(String::new(), |at| {
            String::from_utf8_lossy(&code[at + mark.len()..]).into_owned()
        });
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1)?.parse::<f64>().ok()
        };
        Self {
            time: after("time").unwrap_or(1.0),
            is_wrong: words.contains(&"wrong"),
            is_once: words.contains(&"once"),
            noise: after("noise").unwrap_or(0.0),
        }
    }

    fn launch_ns(self) -> f64 {
        LAUNCH_NS * self.time
    }
}

fn paired(other: &RunnerInput, speedup: f64) -> PairedTiming {
    let half = 0.002_f64.max(1.96 * KernelMarks::read(other).noise);
    PairedTiming {
        other_kernel: other.kernel.clone(),
        rounds: 31,
        speedup_of_other: speedup,
        ci95: [speedup * (1.0 - half), speedup * (1.0 + half)],
        converged: true,
    }
}

fn timing(source: TimingSource, ns: f64) -> Timing {
    let sample_ns: Vec<f64> = (0..31).map(|i| ns + f64::from(i - 15) * 10.0).collect();
    Timing {
        source,
        median_ns: ns,
        ci95_ns: [ns - 60.0, ns + 60.0],
        samples: sample_ns.len(),
        min_ns: ns - 150.0,
        mad_ns: 80.0,
        sample_ns,
        discarded: Vec::new(),
        converged: true,
        overhead_ns: Some(1_000.0),
        l2_flushed: true,
        flushed_bytes: Some(120 << 20),
        wall_ns: Some(ns + 12_000.0),
        distinct_inputs: Some(2),
        verified: None,
        repeated: Some(31),
        clocks: Vec::new(),
        graph: None,
        cooling: None,
        trust: None,
        trust_reason: None,
        bound_ns: None,
        bound_range_ns: None,
        claimed_ns: None,
        needed_bytes: None,
    }
}

/// Invented times in a CUDA graph, for calls below the limit of the input.
fn in_graph(input: &RunnerInput, ns: f64) -> Option<GraphTiming> {
    (ns < input.timing.graph_below_ns).then(|| GraphTiming {
        median_ns: ns - 2_000.0,
        ci95_ns: [ns - 2_020.0, ns - 1_980.0],
        samples: 32,
        sample_ns: (0..32).map(|i| ns - 2_000.0 + f64::from(i - 16) * 4.0).collect(),
        discarded: Vec::new(),
        converged: true,
        launches: 32,
        prepare_ns: 40_000.0,
        call_nodes: Some(1),
        prepare_nodes: Some(2),
    })
}

fn power_limit() -> HostWarning {
    HostWarning {
        kind: WarningKind::PowerLimit,
        text: "the power limit is 300 W, below the default of 700 W".to_owned(),
    }
}

fn device(host: &Host) -> DeviceFacts {
    DeviceFacts {
        name: "NVIDIA H200".to_owned(),
        uuid: host.uuid(),
        compute_capability: [9, 0],
        cuda_version: 13_000,
        driver: Some("580.159.04".to_owned()),
        memory_bytes: 143_771 << 20,
        l2_bytes: 60 << 20,
        sms: 132,
    }
}

/// The imitated state of CUPTI.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gpu {
    NotAsked,
    Unusable,
    Nothing,
    Traced,
}

/// The log that the collector would write: the runner's ranges, those of `nested-regions` inside
/// them, and a kernel in each innermost range if CUPTI is on.
fn collected(input: &RunnerInput, gpu: Gpu) -> Result<String, ImitationError> {
    let pid = process::id();
    let unix_ns = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
    let mut lines = vec![
        json!({"event": "opened", "format": 1, "pid": pid, "ppid": 1, "exe": "rgpu-runner", "clock": "monotonic", "ns": 0, "unix_ns": unix_ns, "limit_bytes": 1 << 28}),
        json!({"event": "domain", "domain": 1, "name": "rgpu"}),
    ];
    match gpu {
        Gpu::NotAsked => {}
        Gpu::Unusable => lines.push(json!({"event": "cupti", "state": "off", "text": "libcupti.so.13: cuptiActivityEnable: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"})),
        Gpu::Nothing | Gpu::Traced => lines.push(json!({"event": "cupti", "state": "on", "version": 130001, "path": "libcupti.so.13", "clock": "ours"})),
    }
    if gpu == Gpu::Traced {
        lines.push(json!({"event": "name", "id": 0, "text": "cuLaunchKernel"}));
        let mangled = input.kernel.replace('-', "_");
        lines.push(json!({"event": "name", "id": 1, "text": mangled}));
    }
    let (mut ns, mut launched) = (0, 0);
    let mut event = |name: &str, domain: u64, message: Option<&str>| {
        ns += 1000;
        match (name, message) {
            ("launch", _) if gpu == Gpu::Traced => {
                launched += 1;
                lines.push(json!({"event": "call", "ns": ns, "end_ns": ns + 500, "id": launched, "tid": pid, "name": 0}));
                lines.push(json!({"event": "kernel", "ns": ns + 600, "end_ns": ns + 20_600, "id": launched, "device": 0, "context": 1, "stream": 7, "name": 1, "grid": [128, 1, 1], "block": [256, 1, 1], "registers": 16, "static_bytes": 0, "dynamic_bytes": 0, "local_bytes": 0}));
                ns += 21_000;
            }
            ("launch", _) => {}
            (_, Some(message)) => lines.push(json!({"event": name, "ns": ns, "tid": pid, "domain": domain, "level": 0, "message": message})),
            (_, None) => lines.push(json!({"event": name, "ns": ns, "tid": pid, "domain": domain, "level": 0})),
        }
    };
    for phase in [Phase::Warmup, Phase::Timed] {
        event("push", 1, Some(phase.name()));
        for case in &input.cases {
            event("push", 1, Some(&case.range_name()));
            if input.kernel == "nested-regions" {
                for (name, message) in [
                    ("push", Some("A")),
                    ("push", Some("A1")),
                    ("launch", None),
                    ("pop", None),
                    ("pop", None),
                    ("push", Some("B")),
                    ("launch", None),
                    ("pop", None),
                ] {
                    event(name, 0, message);
                }
            } else {
                event("launch", 0, None);
            }
            event("pop", 1, None);
        }
        event("pop", 1, None);
    }
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

/// The range log of the real runner: each phase, and each case within it.
fn range_log(input: &RunnerInput) -> Result<String, ImitationError> {
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
    let mut log =
        format!("{}\n", json!({"rgpu_ranges": 1, "clock": "unix_ns", "pid": process::id()}));
    let mut at = now;
    for phase in [Phase::Setup, Phase::Warmup, Phase::Timed] {
        let begun = at;
        for case in &input.cases {
            let path = [phase.name().to_owned(), case.range_name()];
            log += &format!(
                "{}\n",
                json!({"domain": "rgpu", "path": path, "start_ns": at, "end_ns": at + 30_000})
            );
            at += 30_000;
        }
        log += &format!(
            "{}\n",
            json!({"domain": "rgpu", "path": [phase.name()], "start_ns": begun, "end_ns": at})
        );
    }
    Ok(log)
}
