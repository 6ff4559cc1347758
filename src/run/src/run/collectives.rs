//! Times NCCL's collectives on a host's GPUs: sends a program of ours, and reads its result.

use std::collections::BTreeMap;
use std::time::Duration;

use rgpu_predict::collective::Op;
use rgpu_protocol::HostFacts;
use rgpu_protocol::event::Stream;
use rgpu_protocol::plan::{Arg, GpuChoice, GpuRequest, KnownGpu};
use serde::Deserialize;

use super::exec::{ExecRequest, ExecRun, ProgramExit};
use super::file_copies::FileCopies;
use super::job::{RunContext, cancelled};
use super::lifecycle::RunSession;
use super::outcome::{EXEC_STEP, MAX_CAUSE_LINES};
use crate::store::RunFolder;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::exec::WORK_FOLDER;
use rgpu_plan::tool::{BundleFile, GpuSelection, PlanError, Program, gpu_processes};

const PROGRAM: &str = rgpu_harness::COLLECTIVES;
const PROGRAM_PATH: &str = "bin/collectives.py";
const RESULT: &str = "collectives.json";
const TIMEOUT: Duration = Duration::from_secs(900);
/// Larger times in ns and sizes in bytes are refused as wrong.
const MAX_NUMBER: f64 = 1e15;

/// The GPUs and settings of a measurement of collectives.
#[derive(Clone, Debug)]
pub struct CollectivesRequest {
    /// The GPUs that take part.
    pub gpus: GpuSelection,
    /// Whether NCCL may use NVLS.
    pub nvls: bool,
}

/// The result of the measuring program; its numbers are checked when it is read.
#[derive(Clone, Debug, Deserialize)]
pub struct MeasuredCollectives {
    /// Number of GPUs that took part, 2 or more.
    pub ranks: u32,
    /// `NCCL_NVLS_ENABLE` as NCCL saw it.
    #[serde(default)]
    pub nvls_setting: Option<String>,
    /// Lines of NCCL's log.
    #[serde(default)]
    pub log: Vec<String>,
    /// Name of the first GPU.
    #[serde(default)]
    pub gpu: String,
    /// NCCL's version code, for example 22705 for 2.27.5.
    #[serde(default)]
    pub version: u32,
    /// The path of the NCCL library that was loaded.
    #[serde(default)]
    pub library: String,
    /// The times of one call by collective and size.
    #[serde(default)]
    pub rows: Vec<CollectiveRow>,
    #[serde(default)]
    trouble: Option<Trouble>,
}

/// The times of a collective at one size.
#[derive(Clone, Debug, Deserialize)]
pub struct CollectiveRow {
    /// The name of the collective.
    pub op: String,
    /// The size, as nccl-tests counts it.
    pub bytes: f64,
    /// The time of a call in ns, one for each loop of calls: the mean over ranks.
    pub loops_ns: Vec<f64>,
}

/// Why there is no result.
#[derive(Clone, Debug, Deserialize)]
struct Trouble {
    code: String,
    text: String,
    rank: u32,
}

/// Times the collectives.
///
/// # Errors
/// The host has fewer than two GPUs, no Python or no NCCL, NCCL fails or returns wrong numbers, the
/// link fails, or the user cancels.
pub async fn measure_collectives(
    session: &mut RunSession<'_>,
    request: &CollectivesRequest,
    context: &mut RunContext<'_>,
) -> Result<MeasuredCollectives> {
    let pull = [RESULT.to_owned()];
    let program = |facts: Option<&HostFacts>| exec_request(request, facts, &pull);
    let run = ExecRun {
        program: Some(&program),
        needs_facts: true,
        pull: &pull,
        copies: FileCopies::default(),
    };
    let outcome = run.run(session, context).await?;
    let place = |failure: Failure| {
        failure.host(context.record.remote.clone(), session.link.remote().transport())
    };
    match outcome.end {
        Some(Ok(ProgramExit::Exit(0))) => {}
        Some(Ok(end)) => {
            let what = match end {
                ProgramExit::Exit(status) => format!("it ended with status {status}"),
                ProgramExit::Signal(number) => format!("it was ended by {}", super::signal(number)),
                ProgramExit::TimedOut | ProgramExit::Hung => {
                    format!("it was stopped after {} s", TIMEOUT.as_secs())
                }
            };
            let what = format!("the program that times collectives failed: {what}");
            let failure = Failure::new(Exit::Tool, "collectives_failed", what);
            return Err(place(failure.cause(last_lines(context.folder))));
        }
        Some(Err(failure)) => return Err(failure),
        None => return Err(cancelled()),
    }
    let file = outcome.pulled.first().map(|file| file.artifact.path.clone());
    let text = match file {
        Some(path) => context.folder.read(&path)?,
        None => Vec::new(),
    };
    parse(&text).map_err(place)
}

/// The last lines that the program printed.
fn last_lines(folder: &RunFolder) -> String {
    let log = folder.read(&RunFolder::log_name(EXEC_STEP, Stream::Stderr)).unwrap_or_default();
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(MAX_CAUSE_LINES)..].join("\n")
}

fn exec_request(
    request: &CollectivesRequest,
    facts: Option<&HostFacts>,
    pull: &[String],
) -> Result<ExecRequest> {
    let known: Vec<KnownGpu> = facts
        .into_iter()
        .flat_map(|facts| &facts.gpus)
        .map(|gpu| KnownGpu { index: gpu.index, uuid: gpu.uuid.clone(), name: gpu.name.clone() })
        .collect();
    let gpus = request.gpus.on_host(known, &GpuChoice::Any);
    let (known, count) = gpus.map_err(PlanError::from)?;
    if count < 2 {
        let what = format!("a collective needs at least 2 GPUs, and there is {count}");
        return Err(Failure::new(Exit::Host, "one_gpu", what)
            .hint("`rgpu remote check` lists a host's GPUs"));
    }
    let mut argv = vec![
        Arg::text("python3"),
        Arg::in_job(PROGRAM_PATH),
        Arg::text(count.to_string()),
        Arg::text(RESULT),
    ];
    if request.nvls {
        argv.push(Arg::text("--nvls"));
    }
    Ok(ExecRequest {
        program: Program {
            name: "collectives".to_owned(),
            argv,
            files: vec![BundleFile::text(PROGRAM_PATH, PROGRAM)],
            env: BTreeMap::new(),
            cwd: WORK_FOLDER.to_owned(),
            ..Program::default()
        },
        timeout: TIMEOUT,
        pull: pull.to_vec(),
        gpu: Some(GpuRequest {
            choice: GpuChoice::Any,
            count,
            share: false,
            known,
            processes: facts
                .and_then(|facts| facts.tool("nvidia-smi"))
                .map(|tool| gpu_processes(&tool.path))
                .unwrap_or_default(),
            setting: None,
        }),
        facts_digest: facts.map(HostFacts::key),
        ..ExecRequest::default()
    })
}

/// Reads the program's result, which comes from the host.
fn parse(text: &[u8]) -> Result<MeasuredCollectives> {
    let bad = |cause: String| {
        let what = "the times of the collectives cannot be read";
        Failure::new(Exit::Host, "bad_result", what).cause(cause)
    };
    let mut result: MeasuredCollectives =
        crate::saved_json::from_slice(text).map_err(|error| bad(error.to_string()))?;
    if let Some(trouble) = result.trouble.take() {
        return Err(failure(&trouble, &result.log));
    }
    let is_number = |value: f64| value > 0.0 && value <= MAX_NUMBER;
    for row in &result.rows {
        if row.op.parse::<Op>().is_err() {
            return Err(bad(format!("`{}` is not a collective", row.op.escape_debug())));
        }
        let numbers = row.loops_ns.iter().chain([&row.bytes]);
        if row.loops_ns.is_empty() || !numbers.copied().all(is_number) {
            return Err(bad(format!("a time or size of {} is not a number above 0", row.op)));
        }
    }
    if result.rows.is_empty() || result.ranks < 2 {
        Err(bad("it has no rows".to_owned()))
    } else {
        Ok(result)
    }
}

/// The failure that the program met.
fn failure(trouble: &Trouble, log: &[String]) -> Failure {
    let Trouble { code, text, rank } = trouble;
    let host = |code: &str, what: &str| Failure::new(Exit::Host, code, what).cause(text);
    let tool = |code: &str, what: &str| Failure::new(Exit::Tool, code, what).cause(text);
    match code.as_str() {
        "no_driver" => host("no_driver", "CUDA cannot be loaded on the host"),
        "too_few_gpus" => {
            host("too_few_gpus", "a program on the host sees fewer GPUs than `nvidia-smi` lists")
        }
        "no_nccl" => tool("no_nccl", "the host has no NCCL")
            .hint("`pip install nvidia-nccl-cu12` for the host's python3 installs it")
            .hint("or name its folder as LD_LIBRARY_PATH in the `env` of the remote"),
        "wrong_result" => tool("wrong_result", "NCCL returned wrong numbers"),
        _ => {
            let warnings = log.iter().filter(|line| line.contains(" WARN "));
            let lines = std::iter::once(text.as_str()).chain(warnings.map(String::as_str));
            let cause: Vec<&str> = lines.take(MAX_CAUSE_LINES).collect();
            Failure::new(Exit::Tool, "nccl_failed", format!("NCCL failed on rank {rank}"))
                .cause(cause.join("\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_without_usable_numbers_is_refused() {
        let row = |op: &str, time: &str| {
            format!(
                "{{\"ranks\": 2, \"rows\": [{{\"op\": \"{op}\", \"bytes\": 1024, \
                 \"loops_ns\": [{time}]}}]}}"
            )
        };
        assert!(parse(row("all_reduce", "9000.5").as_bytes()).is_ok());
        let other = [row("all_reduce", "-1"), row("all_reduce", ""), row("gather\u{1b}", "1")];
        let cut = ["", "{}", "{\"ranks\": 2}"].map(str::to_owned);
        for text in other.iter().chain(&cut) {
            let failure = parse(text.as_bytes()).unwrap_err();
            assert_eq!((failure.exit, failure.code.as_str()), (Exit::Host, "bad_result"), "{text}");
        }
    }

    #[test]
    fn a_failure_of_nccl_has_its_warnings() {
        let text = r#"{"ranks": 2, "log": ["h:1:1 [0] init.cc:1 NCCL WARN no shared memory", "x"],
            "trouble": {"code": "nccl_failed", "text": "ncclCommInitRank: system error", "rank": 1}}"#;
        let failure = parse(text.as_bytes()).unwrap_err();
        let cause = failure.cause.unwrap();
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Tool, "NCCL failed on rank 1"));
        assert!(cause.ends_with("NCCL WARN no shared memory"), "{cause}");
    }
}
