//! Tools on chosen ranks of a program: `--ranks`. The launchers are played: like the real ones,
//! they start a process for each rank and tell it its number.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rgpu_model::Profile;

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

/// As torch.distributed.run: the interpreter is that of `PYTHON_EXEC`, else its own.
const TORCHRUN: &str = r#"#!/usr/bin/python3
import os, subprocess, sys
words = sys.argv[1:]
many = int(words[words.index("--nproc-per-node") + 1])
program = [os.getenv("PYTHON_EXEC", sys.executable), "-u", *words[2:]]
ranks = [subprocess.Popen(program, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(many)}) for rank in range(many)]
sys.exit(max([rank.wait() for rank in ranks]))
"#;

/// As Open MPI: `mpirun -np N PROGRAM`.
const MPIRUN: &str = "#!/bin/sh
many=$2; shift 2
rank=0
while [ $rank -lt $many ]; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$many \"$@\" &
    rank=$((rank + 1))
done
wait
";

/// Writes its rank and the name of the process that started it to a file. With `die`, rank 1 dies
/// then.
const TRAIN: &str = r#"import os, sys
rank = os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
parent = open(f"/proc/{os.getppid()}/comm").read().strip()
with open(os.path.join(os.path.dirname(__file__), "seen"), "a") as file:
    file.write(f"{rank} {parent} {os.environ.get('PYTHON_EXEC', '')}\n")
if sys.argv[1:] == ["die"] and rank == "1":
    sys.exit(9)
"#;

struct Launchers {
    laptop: Laptop,
    train: String,
}

impl Launchers {
    fn new() -> Launchers {
        let laptop = Laptop::new();
        FakeHost::new(&laptop).gpus(2);
        for (name, text) in [("torchrun", TORCHRUN), ("mpirun", MPIRUN)] {
            let path = laptop.path(format!("h200/bin/{name}"));
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(laptop.path("train.py"), TRAIN).unwrap();
        let train = laptop.path("train.py").display().to_string();
        Launchers { laptop, train }
    }

    /// Runs `rgpu` with `LINE torchrun … train.py KERNEL` or the like. Returns its status and
    /// output.
    fn run(&self, line: &str, launcher: &str, kernel: &str) -> (i32, String) {
        let line = format!("{line} --remote h200 -- {launcher} {} {kernel}", self.train);
        let output = self.laptop.run(&line);
        (status(&output), self.laptop.shown(&line, &output))
    }

    fn profile(&self) -> Profile {
        serde_json::from_value(self.laptop.latest_json("profile.json")).unwrap()
    }

    /// Which process started each rank.
    fn seen(&self) -> Vec<String> {
        let text = fs::read_to_string(self.laptop.path("seen")).unwrap();
        let mut seen: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
        seen.sort();
        seen
    }
}

const TWO: &str = "torchrun --nproc-per-node 2";

#[test]
fn ncu_runs_on_one_rank_and_leaves_collectives_out() {
    let ranks = Launchers::new();
    let (ended, shown) = ranks.run("profile --mode ncu --gpus 2 --ranks 1", TWO, "vecadd");
    assert_eq!(ended, 0, "{shown}");
    let profile = ranks.profile();
    assert_eq!(profile.rung, "ncu.asked", "{:#?}", profile.ladder);
    assert!(profile.launches.iter().any(|launch| !launch.metrics.is_empty()));
    let seen = ranks.seen();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].starts_with("0 ") && !seen[0].contains("ncu"), "{seen:?}");
    assert_eq!(seen[1], "1 ncu");
    let told = |gap: &rgpu_model::profile::Gap| gap.text.contains("only rank 1 runs under ncu");
    assert!(profile.gaps.iter().any(told), "{:?}", profile.gaps);
    let excluded = profile.selection.unwrap().kernel_excludes;
    assert!(excluded.iter().any(|name| name.contains("nccl")), "{excluded:?}");
}

#[test]
fn nsys_records_one_rank_or_all() {
    let ranks = Launchers::new();
    let (ended, shown) = ranks.run("exec --mode nsys --ranks 0", TWO, "regions");
    assert_eq!(ended, 0, "{shown}");
    assert_eq!(ranks.profile().rung, "nsys.full");
    assert_eq!(ranks.seen()[0], "0 nsys");
    fs::remove_file(ranks.laptop.path("seen")).unwrap();
    let (ended, shown) = ranks.run("profile --mode nsys --ranks all", TWO, "regions");
    assert_eq!(ended, 0, "{shown}");
    assert!(ranks.seen().iter().all(|line| !line.contains("nsys")), "{:?}", ranks.seen());
}

#[test]
fn the_sanitizer_checks_each_rank_in_a_report_of_its_own() {
    let ranks = Launchers::new();
    let mpirun = "mpirun -np 2 python3";
    let (ended, shown) = ranks.run("profile --mode sanitizer", mpirun, "oob");
    assert_eq!(ended, 1, "{shown}");
    let of = |profile: &Profile| -> Vec<(Option<u32>, String)> {
        let results = profile.sanitizer.iter();
        results.map(|result| (result.rank, result.verdict.to_string())).collect()
    };
    let found = || "found".to_owned();
    assert_eq!(of(&ranks.profile()), [(Some(0), found()), (Some(1), found())]);
    assert!(shown.contains("memcheck of rank 1"), "{shown}");
    // Variables of the program reach it under this tool, too.
    let (ended, shown) = ranks.run(
        "exec --mode sanitizer --ranks 1 --env PYTHON_EXEC=/usr/bin/python3",
        TWO,
        "clean",
    );
    assert_eq!(ended, 0, "{shown}");
    assert_eq!(of(&ranks.profile()), [(Some(1), "clean".to_owned())]);
    let seen = ranks.seen();
    assert!(seen.contains(&"1 compute-sanitiz /usr/bin/python3".to_owned()), "{seen:?}");
}

#[test]
fn a_program_of_which_a_rank_dies_is_told_and_its_report_is_kept() {
    let ranks = Launchers::new();
    let (_, shown) = ranks.run("profile --mode nsys --gpus 2", TWO, "die");
    assert!(shown.contains("the program ended with status 9"), "{shown}");
    let profile = ranks.profile();
    assert_eq!(profile.rung, "nsys.full", "{shown}");
    assert!(!profile.launches.is_empty(), "{shown}");
}

#[test]
fn a_rank_that_the_program_does_not_have_is_told() {
    let ranks = Launchers::new();
    let (ended, shown) = ranks.run("profile --mode ncu --ranks 5", TWO, "vecadd");
    assert_ne!(ended, 0, "{shown}");
    assert!(shown.contains("there is no rank 5: the program has 2"), "{shown}");
}

#[test]
fn ranks_that_cannot_be_looked_at_are_refused_with_the_reason() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("x.py", "");
    for (flags, word) in [
        ("--mode ncu --ranks 0,1 -- torchrun --nproc-per-node 2 x.py", "are not kept in step"),
        ("--mode deep --ranks all -- torchrun --nproc-per-node 2 x.py", "are not kept in step"),
        (
            "--mode nsys --ranks 0,1 -- torchrun --nproc-per-node 2 x.py",
            "`--ranks all` records all",
        ),
        ("--mode ncu --ranks 0 -- python3 x.py", "needs a launcher that rgpu knows"),
        ("--mode ncu --ranks 0 -- mpirun --new 3 app", "write `--` before the program"),
        ("--mode ncu --ranks 0 --sudo -- torchrun x.py", "sudo would take away"),
        ("--mode ncu --ranks 0 --replay-mode range -- torchrun x.py", "only kernel replay"),
        ("--mode torch --ranks 0 -- torchrun x.py", "`--ranks` has no effect in mode `torch`"),
        ("--mode ncu --ranks 0 --kernel vecadd", "a kernel has no ranks"),
        ("--mode ncu --ranks one -- torchrun x.py", "`0,3`"),
    ] {
        let line = format!("profile --remote h200 {flags}");
        let output = laptop.run(&line);
        let shown = laptop.shown(&line, &output);
        let told = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(status(&output) == 2 && told.contains(word), "{shown}");
    }
}
