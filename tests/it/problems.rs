//! Problems of GPU MODE and KernelBench: what `kernels show` tells of them, and how they run, for
//! real where this machine's `python3` has torch.

use std::path::Path;
use std::process::Command;

use rgpu_model::Profile;

use crate::laptop::{Laptop, status, words};

const TASK: &str = "lang: py
files:
  - {name: submission.py, source: \"@SUBMISSION@\"}
  - {name: utils.py, source: ../utils.py}
  - {name: reference.py, source: reference.py}
  - {name: eval.py, source: ../eval.py}
config: {main: eval.py}
tests:
  - {size: 100, seed: 1}
  - {size: 257, seed: 2}
benchmarks:
  - {size: 4096, seed: 3}
  - {size: 65536, seed: 4}
ranking_by: geom
";

const UTILS: &str = "import torch

def make_match_reference(reference, rtol=1e-5, atol=1e-8):
    def check(data, output):
        right = torch.allclose(output, reference(data), rtol=rtol, atol=atol)
        return right, '' if right else 'mismatch found'
    return check
";

const REFERENCE: &str = "import dataclasses
import torch
from utils import make_match_reference

@dataclasses.dataclass
class Config:
    scale: float
    weights: dict

def generate_input(size: int, seed: int):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(size, generator=draw)
    return x, Config(2.0, {'w': [torch.ones(size)]}), torch.empty(size)

def ref_kernel(data):
    x, config, out = data
    out[...] = x * config.scale * config.weights['w'][0]
    return out

check_implementation = make_match_reference(ref_kernel)
";

const PROBLEM: &str = "import torch

class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)
        self.scale = scale

    def forward(self, x, index):
        return torch.relu(self.linear(x))[index] * self.scale

def get_inputs():
    return [torch.randn(8, 64), torch.tensor([3, 1])]

def get_init_inputs():
    return [3.0]
";

fn laptop() -> Laptop {
    let laptop = Laptop::new();
    laptop.write("set/vec/task.yml", TASK);
    laptop.write("set/vec/reference.py", REFERENCE);
    laptop.write("set/utils.py", UTILS);
    laptop.write("set/eval.py", "");
    laptop.write("set/vec/submission.py", &submission("out.copy_(x + x)"));
    laptop.write("kb/problem.py", PROBLEM);
    laptop.write("kb/answer.py", &answer("clamp_min(0)"));
    laptop
}

fn submission(line: &str) -> String {
    format!(
        "#!POPCORN leaderboard vec\ndef custom_kernel(data):\n    x, config, out = data\n    {line}\n    return out\n"
    )
}

fn answer(function: &str) -> String {
    let body = PROBLEM.split("def get_inputs").next().unwrap_or_default();
    body.replace("Model", "ModelNew")
        .replace("torch.relu(self.linear(x))", &format!("self.linear(x).{function}"))
}

fn skipped() -> bool {
    let script = "from importlib import metadata; metadata.version('torch'); import torch";
    let asked = Command::new("python3").args(["-c", script]).output();
    let has_torch = asked.is_ok_and(|output| output.status.success());
    let skipped = Path::new("/dev/nvidia0").exists() || !has_torch;
    if skipped {
        eprintln!("skipped: this machine has a GPU, or its python3 has no torch");
    }
    skipped
}

/// A command with the user's own PATH: an environment with torch leads it.
fn run(laptop: &Laptop, line: &str) -> (i32, String) {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = laptop.rgpu(words(line)).env("PATH", path).output().unwrap();
    (status(&output), laptop.shown(line, &output))
}

#[test]
fn a_problem_is_shown_without_running_anything() {
    let laptop = laptop();
    let (status, shown) = run(&laptop, "kernels show set/vec");
    assert_eq!(status, 0, "{shown}");
    insta::assert_snapshot!("kernels_show_gpu_mode", shown);
    let (status, shown) = run(&laptop, "kernels show kb/answer.py");
    assert_eq!(status, 0, "{shown}");
    insta::assert_snapshot!("kernels_show_kernel_bench", shown);
    laptop.write("set.yaml", "name: set\nproblems:\n  - {directory: set/vec, name: vec}\n");
    let (status, shown) = run(&laptop, "bench list --file set.yaml");
    assert!(status == 0 && shown.contains("set:vec"), "{shown}");
}

#[test]
fn a_problem_runs_on_this_machine_only_if_the_user_chose_it() {
    let laptop = laptop();
    laptop.write("set.yaml", "name: set\nproblems:\n  - {directory: set/vec, name: vec}\n");
    for line in ["profile set/vec", "profile kb/answer.py", "bench run --file set.yaml"] {
        let (status, shown) = run(&laptop, line);
        assert_eq!(status, 2, "{shown}");
        assert!(shown.contains("would run on this machine") && shown.contains("--remote local"));
    }
    assert!(!laptop.project("artifacts/runs").exists(), "nothing was begun");
    // What a project chooses is not the user's choice; a plan runs nothing.
    laptop.write("rgpu.toml", "default_remote = \"local\"\n");
    assert_eq!(run(&laptop, "profile kb/answer.py").0, 2);
    let (_, shown) = run(&laptop, "profile kb/answer.py --dry-run");
    assert!(!shown.contains("would run on this machine"), "{shown}");
}

#[test]
fn an_answer_begins_beside_its_problem() {
    let laptop = laptop();
    let (status, shown) = run(&laptop, "kernels new --like set/vec/task.yml set/vec/mine.py");
    assert_eq!(status, 0, "{shown}");
    assert!(shown.contains("wrote set/vec/mine.py") && !shown.contains("warning"), "{shown}");
    let (status, shown) = run(&laptop, "kernels show set/vec/mine.py");
    assert!(status == 0 && shown.contains("vec-mine"), "{shown}");
    let (status, shown) = run(&laptop, "kernels new --like set/vec/task.yml set/vec/mine.py");
    assert!(status == 3 && shown.contains("already a file"), "{shown}");
    let (status, shown) = run(&laptop, "kernels new --like set/utils.py");
    assert!(status != 0 && shown.contains("it is no problem of GPU MODE"), "{shown}");
}

#[test]
fn right_submissions_pass_and_wrong_ones_are_refused_by_the_tasks_own_check() {
    if skipped() {
        return;
    }
    let laptop = laptop();
    let (status, shown) = run(&laptop, "profile set/vec --remote local");
    assert_eq!(status, 0, "{shown}");
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    let checked = profile.correctness.unwrap();
    assert_eq!((checked.verdict.as_str(), checked.max_abs), ("right", None));
    // Without a GPU the benchmarks are left out.
    let names: Vec<&str> = profile
        .cases
        .iter()
        .filter(|case| case.correctness.is_some())
        .map(|case| case.name.as_str())
        .collect();
    assert_eq!(names, ["test.0", "test.1"], "{shown}");
    assert!(profile.score.is_none());
    for (line, told) in [
        ("out.copy_(x + x); out[5] += 1", "`check_implementation` refuses it: mismatch found"),
        ("pass", "`check_implementation` refuses it: mismatch found"),
        ("out.copy_(x + x); x.zero_()", "input `data[0]`"),
        ("raise ValueError('no')", "raised ValueError: no at submission.py:4"),
    ] {
        laptop.write("set/vec/submission.py", &submission(line));
        let (status, shown) = run(&laptop, "profile set/vec/submission.py --remote local");
        assert_eq!(status, 6, "{line}: {shown}");
        assert!(shown.contains(told) && !shown.contains("Traceback"), "{line}: {shown}");
    }
}

#[test]
fn an_answer_is_compared_with_the_model_of_its_problem() {
    if skipped() {
        return;
    }
    let laptop = laptop();
    let (status, shown) = run(&laptop, "profile kb/answer.py --remote local");
    assert_eq!(status, 0, "{shown}");
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    assert_eq!(profile.correctness.unwrap().verdict, "right", "{shown}");
    let forms: Vec<&str> = profile.cases[0].baselines.iter().map(|b| b.form.as_str()).collect();
    assert!(forms.contains(&"eager"), "{shown}");
    assert!(shown.contains("over the reference ("), "{shown}");
    laptop.write("kb/answer.py", &answer("clamp_min(0.5)"));
    let (status, shown) = run(&laptop, "profile kb/answer.py --remote local");
    assert_eq!(status, 6, "{shown}");
    assert!(shown.contains("computes wrong results"), "{shown}");
}
