//! The exception of Python that ended a program of several ranks: the first one, without what its
//! launcher and the other ranks print after it.
//!
//! A launcher that sees one rank fail stops the others, and prints its own traceback last. The other
//! ranks fail because their peer is gone. torch marks the lines of a rank (`[rank1]: …`), and
//! torchrun names the rank that failed first.

use std::collections::BTreeMap;

/// How many lines of a traceback are shown: the last of them, with the exception.
const MAX_LINES: usize = 10;

/// The first line of a traceback.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// What launchers print when a rank failed.
const LAUNCHER_WORDS: [&str; 7] = [
    "ChildFailedError",
    "torch.distributed.elastic",
    "torch/distributed/elastic",
    "accelerate/commands/launch.py",
    "mpirun detected that",
    "MPI_ABORT was invoked",
    "srun: error:",
];

/// Files of launchers: a traceback through one is none of the program's.
const LAUNCHER_FILES: [&str; 5] = [
    "bin/torchrun\"",
    "bin/accelerate\"",
    "torch/distributed/run.py\"",
    "torch/distributed/launcher/",
    "accelerate/commands/",
];

/// Words of exceptions that a rank gets because another one is gone.
const PEER_WORDS: [&str; 6] = [
    "Connection reset by peer",
    "Connection closed by peer",
    "ncclRemoteError",
    "remote process exited",
    "Broken pipe",
    "Socket Timeout",
];

/// One traceback of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RankTraceback {
    /// The rank, if its lines name it.
    rank: Option<u32>,
    lines: Vec<String>,
}

/// The first exception in the output of a program that a launcher started, as the lines to show.
/// `None`: no launcher said that a rank failed, or no exception is among what was printed.
pub(super) fn first_exception(printed: &str) -> Option<String> {
    if !LAUNCHER_WORDS.iter().any(|word| printed.contains(word)) {
        return None;
    }
    let found = tracebacks(printed);
    let named = root_rank(printed);
    let is_peers = |found: &RankTraceback| {
        let end = found.lines.last().map(String::as_str).unwrap_or_default();
        PEER_WORDS.iter().any(|word| end.contains(word))
    };
    let by_name = found.iter().find(|found| named.is_some() && found.rank == named);
    let first = by_name.or_else(|| found.iter().find(|found| !is_peers(found)));
    let first = first.or(found.first())?;
    let mut lines = first.lines.as_slice();
    if let Some(more) = lines.len().checked_sub(MAX_LINES) {
        lines = lines.get(more..).unwrap_or_default();
    }
    let whose = match first.rank.or(named) {
        Some(rank) => format!("rank {rank} failed first:\n"),
        None => String::new(),
    };
    Some(format!("{whose}{}", lines.join("\n")))
}

/// The rank that torchrun says failed first.
fn root_rank(printed: &str) -> Option<u32> {
    let (_, cause) = printed.rsplit_once("Root Cause (first observed failure):")?;
    let line = cause.lines().find_map(|line| line.trim().strip_prefix("rank"))?;
    line.trim_start_matches([' ', ':']).split(' ').next()?.parse().ok()
}

/// The rank that a line names at its beginning, and the rest of the line.
fn split_rank(line: &str) -> (Option<u32>, &str) {
    // `[rank1]: text` of torch, `1: text` of `srun -l`, `[1,1]<stderr>:text` of mpirun.
    let of_torch = line.strip_prefix("[rank").and_then(|rest| rest.split_once("]:"));
    let of_mpirun = line.strip_prefix("[1,").and_then(|rest| rest.split_once("]<stderr>:"));
    let of_srun = line.split_once(": ").filter(|(rank, _)| rank.len() <= 5);
    for (rank, rest) in [of_torch, of_mpirun, of_srun].into_iter().flatten() {
        if let Ok(rank) = rank.trim().parse() {
            return (
                Some(rank),
                rest.strip_prefix(' ').filter(|_| of_torch.is_some()).unwrap_or(rest),
            );
        }
    }
    (None, line)
}

/// The tracebacks of the program, in the order in which they begin. Of exceptions that follow from
/// one another the last counts, as Python prints it.
fn tracebacks(printed: &str) -> Vec<RankTraceback> {
    let mut streams: BTreeMap<Option<u32>, Vec<(usize, &str)>> = BTreeMap::new();
    for (at, line) in printed.lines().enumerate() {
        let (rank, rest) = split_rank(line);
        streams.entry(rank).or_default().push((at, rest));
    }
    let mut found: Vec<(usize, RankTraceback)> = Vec::new();
    for (rank, lines) in streams {
        let mut is_caused = false;
        let mut at = 0;
        while let Some((place, line)) = lines.get(at) {
            at += 1;
            if line.contains("During handling of the above") || line.contains("direct cause of") {
                is_caused = true;
            }
            if !line.ends_with(TRACEBACK) {
                continue;
            }
            let mut block = vec![TRACEBACK.to_owned()];
            while let Some((_, line)) = lines.get(at).filter(|(_, line)| line.starts_with(' ')) {
                block.push((*line).to_owned());
                at += 1;
            }
            let Some((_, exception)) = lines.get(at) else { continue };
            block.push((*exception).to_owned());
            if block.iter().any(|line| LAUNCHER_FILES.iter().any(|file| line.contains(file))) {
                continue;
            }
            let place = match found.last() {
                Some((first, last)) if is_caused && last.rank == rank => *first,
                _ => *place,
            };
            if std::mem::take(&mut is_caused) {
                found.pop_if(|(_, last)| last.rank == rank);
            }
            found.push((place, RankTraceback { rank, lines: block }));
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, traceback)| traceback).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of what torchrun of torch 2.9 prints.
    const TORCHRUN: &str = "\
E1129 08:00:00.1 12 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 1 (pid: 13) of binary: /usr/bin/python3
Traceback (most recent call last):
  File \"/usr/local/bin/torchrun\", line 8, in <module>
    sys.exit(main())
  File \"/usr/lib/torch/distributed/launcher/api.py\", line 277, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_08:00:00
  host      : box
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 13)
  error_file: <N/A>
============================================================
";

    fn traceback(mark: &str, line: &str, exception: &str) -> String {
        let lines =
            [TRACEBACK, &format!("  File \"train.py\", line {line}, in <module>"), exception];
        lines.map(|line| format!("{mark}{line}\n")).concat()
    }

    #[test]
    fn the_rank_that_torchrun_names_goes_first() {
        let ranks =
            traceback("[rank0]: ", "9", "torch.distributed.DistBackendError: ncclRemoteError")
                + &traceback("[rank1]: ", "3", "KeyError: 'x'");
        let found = first_exception(&format!("{ranks}{TORCHRUN}")).unwrap();
        let expected = "rank 1 failed first:\nTraceback (most recent call last):\n  \
                        File \"train.py\", line 3, in <module>\nKeyError: 'x'";
        assert_eq!(found, expected);
    }

    #[test]
    fn without_marks_the_first_exception_that_is_no_peers_counts() {
        let ranks = traceback("", "9", "RuntimeError: Connection reset by peer")
            + &traceback("", "3", "ValueError: bad");
        let found = first_exception(&format!("{ranks}{TORCHRUN}")).unwrap();
        assert!(found.ends_with("line 3, in <module>\nValueError: bad"), "{found}");
        let srun = traceback("1: ", "4", "IndexError: out") + "srun: error: box: task 1: Exited\n";
        let found = first_exception(&srun).unwrap();
        assert!(found.starts_with("rank 1 failed first") && found.ends_with("IndexError: out"));
    }

    #[test]
    fn of_exceptions_that_follow_from_one_another_the_last_counts() {
        let ranks = traceback("", "1", "KeyError: 'a'")
            + "\nDuring handling of the above exception, another exception occurred:\n\n"
            + &traceback("", "2", "ConfigError: b")
            + &traceback("", "7", "ZeroDivisionError: c");
        let found = first_exception(&format!("{ranks}{TORCHRUN}")).unwrap();
        assert!(found.ends_with("ConfigError: b"), "{found}");
    }

    #[test]
    fn a_program_without_a_launcher_is_left_as_it_is() {
        assert_eq!(first_exception(&traceback("", "1", "KeyError: 'a'")), None);
        assert_eq!(first_exception(TORCHRUN), None);
        assert_eq!(first_exception("srun: error: x\nTraceback (most recent call last):"), None);
    }
}
