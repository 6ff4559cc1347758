//! What a coding agent may start on this machine: rgpu's own commands, with words of an allow-list.
//!
//! `rgpu mcp` checks the words of a client before it starts a command, and `rgpu queue` checks them
//! again when a runner that an agent started takes an entry. A flag that sets an environment, names
//! a program or a folder outside of the project, writes a file elsewhere or agrees to something is
//! in no list. Flags are taken by their whole names only, so no other spelling gets through.

use std::ffi::OsString;
use std::path::Path;

pub use rgpu_run::config::{AGENT_VARIABLE, is_started_by_agent};

/// A command that agents may start, and what they may write after it.
#[derive(Debug)]
pub(crate) struct AgentCommand {
    /// Its words after `rgpu`.
    pub(crate) words: &'static [&'static str],
    /// The flags that it takes from an agent.
    pub(crate) flags: &'static [&'static [&'static str]],
    /// What may follow `--`.
    pub(crate) last: LastWords,
}

/// What may follow `--` in a command of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastWords {
    /// Nothing: `--` is refused.
    Nothing,
    /// A program that runs on the host.
    HostProgram,
    /// A command of [`AGENT_COMMANDS`], after `rgpu`.
    OwnCommand,
}

/// How a command prints.
const PRINT: &[&str] = &["--json", "--quiet"];

/// Where a job runs, and for how long.
const JOB: &[&str] = &[
    "--remote",
    "--gpu",
    "--share-gpu",
    "--gpus",
    "--ranks",
    "--nodes",
    "--hang",
    "--timeout",
    "--queue-timeout",
    "--run-id",
    "--label",
    "--note",
    "--at-least",
    "--strict",
    "--dry-run",
    "--full-names",
    "--log-limit",
    "--mode",
];

/// What is measured.
const MEASURE: &[&str] = &[
    "--set",
    "--section",
    "--metrics",
    "--kernel-name",
    "--kernel-name-base",
    "--kernel-exclude",
    "--launch-skip",
    "--launch-count",
    "--replay-mode",
    "--regions",
    "--nvtx-include",
    "--target-processes",
    "--clock-control",
    "--top",
    "--budget",
    "--light",
    "--trace",
    "--sample",
    "--capture-range",
    "--tool",
    "--after",
    "--for",
];

/// How a kernel runs.
const KERNEL: &[&str] = &[
    "--kernel",
    "--problem-sizes",
    "--arch",
    "--seed",
    "--warmup",
    "--iters",
    "--cuda-graph",
    "--sweep",
];

const BENCH_TARGETS: &[&str] = &["--target", "--file", "--include-generated"];

const BENCH_VERDICTS: &[&str] = &["--baseline", "--fail-on", "--validity", "--budget"];

const fn command(
    words: &'static [&'static str],
    flags: &'static [&'static [&'static str]],
) -> AgentCommand {
    AgentCommand { words, flags, last: LastWords::Nothing }
}

/// The commands that agents may start with words of their own.
pub(crate) static AGENT_COMMANDS: &[AgentCommand] = &[
    AgentCommand {
        words: &["profile"],
        flags: &[JOB, MEASURE, KERNEL],
        last: LastWords::HostProgram,
    },
    AgentCommand {
        words: &["exec"],
        flags: &[JOB, MEASURE, &["--code", "--lang"]],
        last: LastWords::HostProgram,
    },
    command(
        &["build"],
        &[&[
            "--kernel",
            "--dsl",
            "--arch",
            "--problem-sizes",
            "--opt-level",
            "--timeout",
            "--run-id",
            "--remote",
        ]],
    ),
    command(
        &["disasm"],
        &[&[
            "--view",
            "--arch",
            "--kernel-name",
            "--all-kernels",
            "--per-kernel",
            "--list",
            "--diff",
            "--hot",
            "--fail-on",
            "--normalize",
            "--control-codes",
            "--line-info",
            "--timeout",
            "--block",
        ]],
    ),
    command(&["report"], &[&["--format", "--lint", "--redact", "--full-names", "--bytes"]]),
    command(&["compare"], &[JOB, KERNEL, &["--threshold", "--fail-on", "--fail-under", "--set"]]),
    command(&["doctor"], &[&["--collectives", "--gpus", "--nvls"]]),
    command(&["bench", "list"], &[BENCH_TARGETS]),
    command(
        &["bench", "run"],
        &[
            BENCH_TARGETS,
            BENCH_VERDICTS,
            &[
                "--level",
                "--mode",
                "--run-id",
                "--iters",
                "--timeout",
                "--verify-timeout",
                "--min-speedup",
                "--threshold",
                "--strict",
                "--lock-clocks",
                "--parallel",
                "--failed",
                "--reason",
                "--until-clean",
                "--remote",
                "--gpu",
                "--share-gpu",
            ],
        ],
    ),
    command(&["bench", "resume"], &[BENCH_VERDICTS]),
    command(&["bench", "show"], &[]),
    command(&["bench", "compare"], &[&["--threshold", "--fail-on"]]),
    command(&["bench", "history"], &[&["--since", "--gpu", "--threshold"]]),
    command(&["bench", "audit"], &[BENCH_TARGETS]),
    AgentCommand {
        words: &["queue", "add"],
        flags: &[&[
            "--name",
            "--after",
            "--timeout",
            "--retries",
            "--tag",
            "--priority",
            "--gpu",
            "--remote",
            "--snapshot",
        ]],
        last: LastWords::OwnCommand,
    },
    command(&["queue", "run"], &[&["--once", "--hang"]]),
    command(&["queue", "list"], &[&["--all", "--count", "--state", "--tag"]]),
    command(&["queue", "show"], &[]),
    command(&["queue", "log"], &[&["--attempt", "--follow"]]),
    command(&["queue", "wait"], &[]),
    command(&["queue", "cancel"], &[]),
    command(&["queue", "requeue"], &[&["--failed", "--lost", "--reason"]]),
    command(&["queue", "pause"], &[]),
    command(&["queue", "resume"], &[]),
    command(&["loop", "start"], &[&["--mode"]]),
    command(&["loop", "status"], &[]),
    command(&["loop", "cancel"], &[]),
    command(&["loop", "resume"], &[]),
    command(&["loop", "best"], &[]),
    command(&["loop", "report"], &[]),
];

/// The commands that an agent may put into the queue: their first words.
pub const QUEUED_COMMANDS: &[&str] =
    &["profile", "exec", "build", "disasm", "report", "compare", "doctor", "bench", "loop"];

/// The keys of loop.toml that an agent may give as `KEY=VALUE`. Those that name programs or files
/// outside of the kernel are not among them.
pub(crate) const LOOP_KEYS: &[&str] = &[
    "kernel_path",
    "mode",
    "remote",
    "allowed_paths",
    "problem_sizes",
    "threshold",
    "profile_mode",
    "target",
    "target_metric_name",
    "target_metric_direction",
    "target_metric_threshold",
    "target_confirmations",
    "max_iterations",
    "max_no_progress",
    "max_infra_failures",
    "infra_retry_delay",
    "max_wall_time",
    "worker_timeout",
    "reviewer_timeout",
    "measure_timeout",
    "prompt_bytes",
];

/// Checks the words of a command line after `rgpu`, of which an agent wrote at least a part.
pub fn check_agent_words(line: &[String]) -> Result<(), String> {
    let begins = |command: &&AgentCommand| {
        command.words.len() <= line.len() && command.words.iter().zip(line).all(|(a, b)| a == b)
    };
    let Some(command) = AGENT_COMMANDS.iter().find(begins) else {
        let words: Vec<&str> = line.iter().take(2).map(String::as_str).collect();
        return Err(format!("`rgpu {}` is for a person at a terminal", words.join(" ")));
    };
    let name = command.words.join(" ");
    let words = &line[command.words.len()..];
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    if let Some(address) = address_of_remote(command, &words[..end]) {
        return Err(format!(
            "`{address}` is an address: an agent names a remote of the user's settings"
        ));
    }
    for (at, word) in words[..end].iter().enumerate() {
        if word.starts_with('-') {
            let flag = word.split('=').next().unwrap_or_default();
            if !command.flags.iter().copied().chain([PRINT]).any(|flags| flags.contains(&flag)) {
                let known: Vec<&str> = command.flags.concat();
                let known = if known.is_empty() {
                    "it takes none".to_owned()
                } else {
                    format!("it takes {}", known.join(", "))
                };
                return Err(format!(
                    "`{flag}` is no flag that `{name}` takes from an agent; {known}, each as \
                     --flag=VALUE"
                ));
            }
        } else if command.words == ["loop", "start"] && at > 0 {
            let key = word.split('=').next().unwrap_or_default();
            if word.contains('=') && !LOOP_KEYS.contains(&key) {
                return Err(format!(
                    "`{key}` is no key that `{name}` takes from an agent: a person gives it"
                ));
            }
        }
    }
    let Some(last) = words.get(end + 1..) else { return Ok(()) };
    match command.last {
        LastWords::HostProgram => Ok(()),
        LastWords::Nothing => Err(format!("`{name}` takes nothing after `--`")),
        LastWords::OwnCommand => match last.split_first() {
            Some((program, line)) if program == "rgpu" => match line.first() {
                Some(first) if QUEUED_COMMANDS.contains(&first.as_str()) => check_agent_words(line),
                _ => Err("the queue cannot run this command here".to_owned()),
            },
            _ => Err("the queue cannot run this command here".to_owned()),
        },
    }
}

/// The address among the words that name a remote. `None` if there is none.
fn address_of_remote<'w>(command: &AgentCommand, words: &'w [String]) -> Option<&'w str> {
    let named = words.iter().enumerate().filter_map(|(at, word)| match word.split_once('=') {
        Some(("--remote" | "remote", value)) => Some(value),
        None if word == "--remote" => words.get(at + 1).map(String::as_str),
        None if command.words == ["doctor"] => Some(word),
        _ => None,
    });
    named.into_iter().find(|value| value.contains("://"))
}

/// Whether a command line is one of the program `own` that an agent may start.
pub fn is_agent_command(argv: &[OsString], own: &Path) -> bool {
    let Some((program, words)) = argv.split_first() else { return false };
    let words: Option<Vec<String>> =
        words.iter().map(|word| word.to_str().map(ToOwned::to_owned)).collect();
    Path::new(program) == own
        && words.is_some_and(|words| {
            words.first().is_some_and(|first| QUEUED_COMMANDS.contains(&first.as_str()))
                && check_agent_words(&words).is_ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Result<(), String> {
        check_agent_words(&shlex::split(line).unwrap())
    }

    #[test]
    fn words_that_name_programs_environments_or_consent_are_in_no_list_however_they_are_spelled() {
        for fine in [
            "queue add --name=x --after=3 -- rgpu profile --kernel=vecadd --mode=ncu",
            "queue add -- rgpu exec --remote=h200 -- sh -c 'echo --env'",
            "queue add -- rgpu exec --note=https://x -- curl http://x",
            "queue add -- rgpu loop start loop.toml max_iterations=3",
            "queue add -- rgpu bench run --target=suite:*",
            "queue run --once",
            "queue wait 1 2",
            "loop start loop.toml target=1.5 --mode=manual",
            "bench run --target=suite:* --json",
        ] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        for wrong in [
            "queue add --env=PATH=. -- rgpu report x",
            "queue add --env PATH=. -- rgpu report x",
            "queue add --en=PATH=. -- rgpu report x",
            "queue add -e PATH=. -- rgpu report x",
            "queue add --name --env=LD_PRELOAD=./x.so -- rgpu report x",
            "queue add --file=run.sh",
            "queue add --stdin --lang=sh",
            "queue add -- sh -c id",
            "queue add -- ./rgpu report x",
            "queue add -- rgpu",
            "queue add -- rgpu remote up cloud",
            "queue add -- rgpu queue add -- sh",
            "queue add -- rgpu exec --env-file=.env -- true",
            "queue add -- rgpu exec --mount=.. -- true",
            "queue add -- rgpu exec --pull=.envrc -- true",
            "queue add -- rgpu build --compile-options=-ccbin=./x k.cu",
            "queue add -- rgpu loop start loop.toml worker_command=./x",
            "queue add -- rgpu loop start loop.toml --fresh",
            "queue add -- rgpu loop tui --run -- loop.toml worker_command=./x",
            "queue run --detach",
            "queue run -- x",
            "queue __attempt -- . ids 1 1 1",
            "queue prune --all",
            "queue add -- rgpu doctor ssh://elsewhere",
            "queue add -- rgpu exec --remote=ssh://elsewhere -- true",
            "bench run --remote http://elsewhere",
            "bench run --remote=h200,ssh://elsewhere",
            "loop start loop.toml remote=ssh://elsewhere",
            "loop start loop.toml worker_command=./x",
            "loop start loop.toml ' worker_command=./x'",
            "loop start loop.toml reviewer_command=./x",
            "loop start loop.toml instructions=/etc/passwd",
            "loop start --fresh loop.toml",
            "loop start loop.toml -- worker_command=./x",
            "loop report-time --artifact=x",
            "bench run --accept",
            "bench run --yes",
            "bench history --out=x",
            "setup nvdisasm",
            "",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_the_program_itself_counts_as_its_own_command() {
        let own = Path::new("/usr/bin/rgpu");
        let is_own = |words: &[&str]| {
            let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
            is_agent_command(&argv, own)
        };
        assert!(is_own(&["/usr/bin/rgpu", "report", "x"]));
        for wrong in [
            &["rgpu", "report", "x"][..],
            &["./rgpu", "report", "x"],
            &["/usr/bin/rgpu", "remote", "up", "x"],
            &["/usr/bin/rgpu", "queue", "run"],
            &["/usr/bin/rgpu"],
            &["sh", "-c", "id"],
            &[],
        ] {
            assert!(!is_own(wrong), "{wrong:?}");
        }
    }
}
