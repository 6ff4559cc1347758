//! A program that has printed nothing for too long: which ranks it has, and where each of them is.
//!
//! Stacks come from the commands that the plan names. What the kernel tells of a process is written
//! in any case, and so is why a command gave no stack.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rgpu_protocol::plan::HangDetection;

use super::environment::{Environment, find_on_path};
use super::{EarlyEnd, Supervisor};
use crate::command::{CommandOutput, ask};
use crate::process;

/// At most this many processes are looked at.
const MAX_PROCESSES: usize = 64;
/// At most this many are named in the warning.
const MAX_NAMED: usize = 8;
const MAX_STACK_BYTES: usize = 64 << 10;
const MAX_LINE_CHARS: usize = 160;
/// The longest time for one stack, and for all.
const STACK_TIME: Duration = Duration::from_secs(5);
const ALL_STACKS_TIME: Duration = Duration::from_secs(30);

/// A process of the program.
struct HungProcess {
    pid: i32,
    /// The number of its rank; `None` if it is not one.
    rank: Option<String>,
}

impl Supervisor {
    /// Writes the ranks of the program with their stacks to the file of the plan, warns, and
    /// returns the warning.
    pub(crate) fn describe_hang(
        &mut self,
        hang: &HangDetection,
        watchdog: Option<i32>,
        env: &Environment,
    ) -> Result<String, EarlyEnd> {
        let mut living = process::own_descendants(watchdog);
        living.spare(&hang.spare);
        let processes = hung_processes(living.pids.iter().copied(), &hang.rank_variables);
        let mut text = format!("no output for {} s", hang.quiet_s);
        let mut file = format!("{text}\n");
        let deadline = Instant::now() + ALL_STACKS_TIME;
        for (at, one) in processes.iter().take(MAX_PROCESSES).enumerate() {
            let name = match &one.rank {
                Some(rank) => format!("rank {rank} (process {})", one.pid),
                None => format!("process {}", one.pid),
            };
            let command = command_line(one.pid);
            let (call, details) = describe(one.pid, hang, env, deadline);
            if at < MAX_NAMED {
                let _ = write!(text, "; {name}: {call}");
            }
            let _ = write!(file, "\n{name}: {command}\n{details}");
        }
        if processes.len() > MAX_NAMED {
            let _ = write!(text, "; {} more", processes.len() - MAX_NAMED);
        }
        let path = self.folder.work().join(&hang.file);
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        match folder.and_then(|()| fs::write(&path, file)) {
            Ok(()) => {
                let _ = write!(text, "; stacks are in {}", hang.file);
            }
            Err(error) => {
                let _ = write!(text, "; the stacks cannot be written: {error}");
            }
        }
        self.warn(HangDetection::CODE, text.clone())?;
        Ok(text)
    }
}

/// The ranks among these processes, by number; all of them if none is a rank. Children inherit the
/// variable, so a rank is the process whose parent has another value.
fn hung_processes(pids: impl Iterator<Item = i32>, variables: &[String]) -> Vec<HungProcess> {
    let rank_of = |pid: i32| rank(&fs::read(format!("/proc/{pid}/environ")).ok()?, variables);
    let all: Vec<HungProcess> = pids
        .map(|pid| {
            let own = rank_of(pid);
            let is_inherited = own.is_some() && process::parent(pid).and_then(rank_of) == own;
            HungProcess { pid, rank: own.filter(|_| !is_inherited) }
        })
        .collect();
    if all.iter().any(|one| one.rank.is_some()) {
        let mut ranks: Vec<_> = all.into_iter().filter(|one| one.rank.is_some()).collect();
        ranks.sort_by_key(|one| one.rank.as_ref().and_then(|rank| rank.parse::<u64>().ok()));
        ranks
    } else {
        all
    }
}

/// The value of the first variable that is set in an environment.
fn rank(environment: &[u8], variables: &[String]) -> Option<String> {
    let value = |name: &String| {
        environment.split(|byte| *byte == 0).find_map(|line| {
            let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            str::from_utf8(value).ok().filter(|text| text.parse::<u64>().is_ok())
        })
    };
    variables.iter().find_map(value).map(str::to_owned)
}

/// The activity of a process, in a few words and in detail.
fn describe(
    pid: i32,
    hang: &HangDetection,
    env: &Environment,
    deadline: Instant,
) -> (String, String) {
    let (waits, mut details) = kernel_view(pid);
    let mut call = None;
    for command in &hang.stacks {
        let Some(name) = command.first() else { continue };
        match stack(pid, command, env, deadline) {
            Ok(text) => {
                call = named_call(&text, &hang.calls);
                let _ = writeln!(details, "  stack by {name}:\n{}", indented(&text));
                break;
            }
            Err(why) => {
                let _ = writeln!(details, "  no stack by {name}: {why}");
            }
        }
    }
    (call.unwrap_or(waits), details)
}

/// The output of a command that prints the stack of a process.
fn stack(
    pid: i32,
    command: &[String],
    env: &Environment,
    deadline: Instant,
) -> Result<String, String> {
    let left = deadline.saturating_duration_since(Instant::now()).min(STACK_TIME);
    if left.is_zero() {
        return Err("no time left".to_owned());
    }
    let name = command.first().map_or("", String::as_str);
    let path = env.get("PATH").map_or("", String::as_str);
    let program = find_on_path(name, path).ok_or("it is not on the host")?;
    let mut argv: Vec<String> =
        command.iter().map(|word| word.replace(HangDetection::PID, &pid.to_string())).collect();
    argv[0] = program.display().to_string();
    let output = ask(&argv, &BTreeMap::new(), MAX_STACK_BYTES, left);
    let CommandOutput { exit, stdout, stderr, timed_out } =
        output.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match exit {
        _ if timed_out => Err(format!("it did not end within {} s", left.as_secs())),
        Some(0) if !stdout.trim_ascii().is_empty() => Ok(text(&stdout)),
        _ => {
            let message = text(&stderr);
            let last = message.lines().last().unwrap_or("it printed nothing");
            Err(short(last))
        }
    }
}

/// The first line of a stack with one of these words; `None` if no line has one.
fn named_call(stack: &str, calls: &[String]) -> Option<String> {
    let names = |line: &&str| {
        let lower = line.to_lowercase();
        calls.iter().any(|call| lower.contains(call))
    };
    stack.lines().find(names).map(|line| short(line.trim()))
}

/// The activity of a process, from the kernel: where it waits in a few words, and details.
fn kernel_view(pid: i32) -> (String, String) {
    let read = |name: &str| {
        let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join(name));
        text.map(|text| text.trim().to_owned()).map_err(|error| error.to_string())
    };
    let status = read("status").unwrap_or_default();
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim).to_owned()
    };
    let (state, threads) = (field("State:"), field("Threads:"));
    let wait = read("wchan").ok().filter(|wait| !matches!(wait.as_str(), "" | "0"));
    let words = match &wait {
        Some(wait) => format!("{state}, waits in {wait}"),
        None => state.clone(),
    };
    let mut details = format!("  state {words}; {threads} threads\n");
    for name in ["syscall", "stack"] {
        let line = match read(name) {
            Ok(text) => text,
            Err(error) => format!("cannot be read: {error}"),
        };
        let _ = writeln!(details, "  kernel's {name}:\n{}", indented(&line));
    }
    (words, details)
}

fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    short(words.join(" ").trim())
}

fn short(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).take(MAX_LINE_CHARS).collect()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(all: &[&str]) -> Vec<String> {
        all.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn the_rank_is_the_first_variable_with_a_number() {
        let variables = words(&["RANK", "SLURM_PROCID"]);
        let of = |environment: &str| rank(environment.as_bytes(), &variables);
        assert_eq!(of("A=1\0RANK=3\0SLURM_PROCID=5\0"), Some("3".to_owned()));
        assert_eq!(of("RANKS=9\0SLURM_PROCID=5\0"), Some("5".to_owned()));
        assert_eq!(of("RANK=first\0MY_RANK=2\0"), None);
    }

    #[test]
    fn the_call_of_a_stack_is_its_first_line_with_a_collective() {
        // The form of `py-spy dump`.
        let stack = "Process 7: python3 train.py\nPython v3.12.3 (/usr/bin/python3.12)\n\n\
                     Thread 7 (active): \"MainThread\"\n    \
                     wait (torch/cuda/streams.py:225)\n    \
                     all_reduce (torch/distributed/distributed_c10d.py:2809)\n    \
                     <module> (train.py:26)";
        assert_eq!(
            named_call(stack, &words(&["all_reduce", "nccl"])).unwrap(),
            "all_reduce (torch/distributed/distributed_c10d.py:2809)"
        );
        assert_eq!(named_call(stack, &words(&["barrier"])), None);
    }

    #[test]
    fn a_missing_command_and_one_that_fails_say_why() {
        let env: Environment = BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
        let pid = std::process::id() as i32;
        let of = |command: &[&str]| {
            stack(pid, &words(command), &env, Instant::now() + Duration::from_secs(20))
        };
        assert_eq!(of(&["no-such-spy"]).unwrap_err(), "it is not on the host");
        assert_eq!(of(&["sh", "-c", "echo no right >&2; exit 1"]).unwrap_err(), "no right");
        assert_eq!(of(&["echo", "frame", "{pid}"]).unwrap(), format!("frame {pid}"));
        assert!(kernel_view(pid).1.contains("threads"));
    }
}
