//! Kernels in Python, for real where this machine's `python3` has torch; elsewhere the error that
//! says what is missing.

use std::fs;
use std::path::Path;
use std::process::Command;

use rgpu_model::Profile;
use rgpu_model::profile::{Timing, Trust};

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status, words};

/// The user's own PATH: an environment with torch leads it.
fn path() -> String {
    std::env::var("PATH").unwrap_or_default()
}

fn has_torch() -> bool {
    let script = "from importlib import metadata; metadata.version('torch'); import torch";
    let asked = Command::new("python3").args(["-c", script]).output();
    asked.is_ok_and(|output| output.status.success())
}

/// `rgpu` in the repository, with runs of its own.
fn rgpu(laptop: &Laptop, line: &str) -> (i32, String, String) {
    let output = laptop
        .rgpu(words(line))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("RGPU_RUNS_DIR", laptop.project("artifacts/runs"))
        .env("PATH", path())
        .output()
        .unwrap();
    let shown = laptop.shown(line, &output);
    (status(&output), String::from_utf8_lossy(&output.stdout).into_owned(), shown)
}

fn skipped() -> bool {
    let gpu = Path::new("/dev/nvidia0").exists();
    if gpu || !has_torch() {
        eprintln!("skipped: this machine has a GPU, or its python3 has no torch");
    }
    gpu || !has_torch()
}

#[test]
fn without_torch_the_error_names_what_is_missing() {
    if has_torch() {
        eprintln!("skipped: python3 of this machine has torch");
        return;
    }
    let laptop = Laptop::new();
    let (status, _, shown) = rgpu(&laptop, "profile --kernel decoder");
    assert_eq!(status, 4, "{shown}");
    assert!(shown.contains("has no torch") || shown.contains("has no Python"), "{shown}");
    assert!(!shown.contains("Traceback"), "{shown}");
}

#[test]
fn a_decoder_runs_on_the_cpu_with_its_stages_and_operators() {
    if skipped() {
        return;
    }
    let laptop = Laptop::new();
    let (status, text, shown) = rgpu(&laptop, "profile --kernel decoder --problem-sizes tiny");
    assert_eq!(status, 0, "{shown}");
    assert!(
        text.starts_with("decoder  torch was requested, but local has no GPU: it ran"),
        "{shown}"
    );
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    assert_eq!(profile.rung, "torch");
    let stages: Vec<&str> = profile.stages.iter().map(|stage| stage.region.as_str()).collect();
    assert_eq!(stages, ["LLM@prefill", "LLM@decode_all", "LLM@decode_step"]);
    assert!(profile.stages[0].utilization.as_ref().unwrap().percent > 0.0);
    let model = profile.kernel.model.unwrap();
    assert_eq!((model.variant.as_str(), model.parameters), ("4-layers-256", Some(5_261_568)));
    assert!(profile.operators.iter().any(|operator| operator.name == "aten::mm"));
    assert_eq!(profile.correctness.unwrap().verdict, "right");
    let timing = profile.timing.unwrap();
    assert!(timing.verified.unwrap() >= timing.samples);
}

/// The popcorn convention: no `[[arg]]`, groups, a `task` that is nowhere, data anew for each call.
#[test]
fn a_custom_kernel_is_checked_and_a_wrong_one_is_refused() {
    if skipped() {
        return;
    }
    let laptop = Laptop::new();
    let kernel = |add: &str| {
        format!(
            "from task import input_t\nimport torch\n\ndef custom_kernel(data: input_t):\n    a, b, c = data\n    for x, y, z in zip(a, b, c):\n        torch.matmul(x, y, out=z)\n        {add}\n    return c\n"
        )
    };
    laptop.write("pop/kernel.py", &kernel("pass"));
    laptop.write(
        "pop/reference.py",
        "import torch\n\ndef generate_input(m: tuple, k: tuple, g: int, seed: int):\n    draw = torch.Generator().manual_seed(seed)\n    a = [torch.randn(i, j, generator=draw) for i, j in zip(m, k)]\n    return a, [x.t().contiguous() for x in a], [torch.empty(i, i) for i in m[:g]]\n\ndef ref_kernel(data):\n    return [(x.double() @ y.double()).float() for x, y in zip(data[0], data[1])]\n",
    );
    laptop.write(
        "pop/kernel.toml",
        "name = \"pop\"\nlanguage = \"python\"\nsource = \"kernel.py\"\nentry = { python = \"custom_kernel\", fresh = true }\n[sizes]\nvars = [\"m\", \"k\"]\ngroups = true\ncases.pair = [{ m = 64, k = 32 }, { m = 16, k = 40 }]\n[reference]\nsource = \"reference.py\"\ntolerance = { abs = 1e-3, rel = 1e-3 }\n",
    );
    let line = format!("profile --kernel {} --mode bench", laptop.project("pop").display());
    let (status, _, shown) = rgpu(&laptop, &line);
    assert_eq!(status, 0, "{shown}");
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    let checked = profile.correctness.unwrap();
    assert_eq!((checked.verdict.as_str(), checked.checked), ("right", 64 * 64 + 16 * 16));
    laptop.write("pop/kernel.py", &kernel("z[0, 0] += 1"));
    let (status, _, shown) = rgpu(&laptop, &line);
    assert_eq!(status, 6, "{shown}");
    assert!(shown.contains("computes wrong results"), "{shown}");
    laptop.write("pop/kernel.py", &kernel("raise ValueError('not today')"));
    let (status, _, shown) = rgpu(&laptop, &line);
    assert_eq!(status, 6, "{shown}");
    assert!(shown.contains("raised ValueError: not today at kernel.py:8"), "{shown}");
    assert!(!shown.contains("Traceback"), "{shown}");
}
/// A problem of KernelBench.
const PROBLEM: &str = "import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.rand(16, 64)]

def get_init_inputs():
    return [64]
";

/// An answer that draws before its weights, so that it needs those of the reference.
fn answer() -> String {
    let class = PROBLEM.split("def get_inputs").next().unwrap();
    class
        .replace("class Model(", "class ModelNew(")
        .replace("        self.linear", "        torch.rand(1)\n        self.linear")
}

/// The time of a KernelBench answer in a project of these files.
fn judged(files: &[(&str, &str)], answer: &str) -> Timing {
    let laptop = Laptop::new();
    for (name, text) in files {
        laptop.write(name, text);
    }
    let line = format!("profile {} --mode bench --remote local", laptop.project(answer).display());
    let (status, _, shown) = rgpu(&laptop, &line);
    assert_eq!(status, 0, "{shown}");
    let profile: Profile = serde_json::from_value(laptop.latest_json("profile.json")).unwrap();
    let timing = profile.timing.unwrap();
    assert!(timing.trust.is_some_and(|trust| trust != Trust::Unprotected), "{shown}");
    assert!(timing.bound_ns.is_some() && timing.needed_bytes.is_some(), "{timing:?}");
    timing
}

#[test]
fn a_pair_of_kernel_bench_is_judged_from_a_process_of_its_own() {
    if skipped() {
        return;
    }
    let files = [("k/problem.py", PROBLEM), ("k/answer.py", &answer())];
    assert_eq!(judged(&files, "k/answer.py").trust_reason, None);
}

#[test]
fn a_reference_in_the_kernels_file_makes_its_time_bounded_at_most() {
    if skipped() {
        return;
    }
    let timing = judged(&[("k/both.py", &format!("{PROBLEM}\n\n{}", answer()))], "k/both.py");
    assert_eq!(timing.trust, Some(Trust::Bounded));
    assert!(timing.trust_reason.unwrap().contains("in the kernel's file"));
}

#[test]
fn outputs_that_no_input_changes_are_not_credible() {
    if skipped() {
        return;
    }
    let laptop = Laptop::new();
    let kernel = "def run(x, y):\n    y.zero_()\n";
    let shown = refused(&laptop, kernel, "def right(x):\n    return x.new_zeros(x.shape)\n");
    assert!(shown.contains("not_credible") && shown.contains("same for other inputs"), "{shown}");
}

/// What `rgpu` says of a kernel of one argument that it refuses.
fn refused(laptop: &Laptop, kernel: &str, reference: &str) -> String {
    laptop.write(
        "k/kernel.toml",
        "name = \"k\"\nlanguage = \"python\"\nsource = \"kernel.py\"\n\
         entry = { python = \"run\" }\n[sizes]\nvars = [\"n\"]\ncases.one = { n = 64 }\n\
         [[arg]]\nname = \"x\"\ndtype = \"f32\"\nshape = [\"n\"]\nrole = \"in\"\ninit = { normal = [0.0, 1.0] }\n\
         [[arg]]\nname = \"y\"\ndtype = \"f32\"\nshape = [\"n\"]\nrole = \"out\"\n\
         [reference]\nsource = \"right.py\"\nfunction = \"right\"\ntolerance = { abs = 0.1, rel = 0.1 }\n",
    );
    laptop.write("k/kernel.py", kernel);
    laptop.write("k/right.py", reference);
    let line = format!("profile --kernel {} --mode bench", laptop.project("k").display());
    let (status, _, shown) = rgpu(laptop, &line);
    assert_eq!(status, 6, "{shown}");
    shown
}

const TWICE: &str = "def right(x):\n    return x * 2\n";

#[test]
fn a_kernel_that_rewrites_files_of_its_job_is_refused() {
    if skipped() {
        return;
    }
    let laptop = Laptop::new();
    // The next job of the same folder would run all of them. The time of a change stays changed.
    let kernel = "import os, sys, torch
here = os.path.dirname(sys.modules['__main__'].__file__)
file = os.path.join(here, 'src/right.py')
text, seen = open(file).read(), os.stat(file)
open(file, 'w').write('def right(x):\\n    return x\\n')
open(file, 'w').write(text)
os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
open(os.path.join(here, 'json.py'), 'w').write('raise SystemExit(0)')

def run(x, y):
    torch.mul(x, 2, out=y)
";
    let shown = refused(&laptop, kernel, TWICE);
    assert!(shown.contains("not_credible"), "{shown}");
    assert!(shown.contains("the kernel's process changed `src/right.py`"), "{shown}");
}

#[test]
fn a_kernel_cannot_change_the_clock_or_open_a_ring_of_system_calls() {
    if skipped() {
        return;
    }
    let laptop = Laptop::new();
    // Both calls only ask: no mode, and a ring without entries.
    let kernel = "import ctypes
libc = ctypes.CDLL(None, use_errno=True)
told = []
for call in (libc.adjtimex, lambda room: libc.syscall(425, 0, room)):
    told.append((call(ctypes.create_string_buffer(512)), ctypes.get_errno()))
raise ValueError(f'told {told}')
";
    let shown = refused(&laptop, kernel, TWICE);
    assert!(shown.contains("told [(-1, 1), (-1, 1)]"), "{shown}");
}

/// The state of a process; none if it is gone.
fn state_of(pid: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next().filter(|state| *state != 'Z')
}

#[test]
fn all_processes_of_a_judged_kernel_end_with_what_started_them() {
    if skipped() {
        return;
    }
    let laptop = Laptop::new();
    refused(&laptop, "raise ValueError('only the harness is needed')\n", TWICE);
    let harness = fs::read_to_string(laptop.latest().join("harness.py")).unwrap();
    laptop.write("job/harness.py", &harness);
    laptop.write("job/src/right.py", TWICE);
    laptop.write(
        "job/src/kernel.py",
        "import os, time\njudge = os.getppid()\n\
         pids = open(f'/proc/{judge}/task/{judge}/children').read()\n\
         open('pids.new', 'w').write(f'{judge} {pids}')\nos.rename('pids.new', 'pids')\n\
         time.sleep(600)\n",
    );
    let mut wrapper = Command::new("sh")
        .args(["-c", "python3 harness.py cpu; true"])
        .current_dir(laptop.project("job"))
        .env("PATH", path())
        .spawn()
        .unwrap();
    let waits = |done: &dyn Fn() -> bool| {
        (0..3000).any(|_| {
            done() || {
                std::thread::sleep(std::time::Duration::from_millis(100));
                false
            }
        })
    };
    let file = laptop.project("job/pids");
    let started = waits(&|| file.exists());
    wrapper.kill().unwrap();
    wrapper.wait().unwrap();
    assert!(started, "the kernel was not loaded");
    let pids = fs::read_to_string(file).unwrap();
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert_eq!(pids.len(), 3, "judge, author and candidate: {pids:?}");
    assert!(waits(&|| pids.iter().all(|pid| state_of(pid).is_none())), "still there: {pids:?}");
}

/// As much of torch as the harness needs before it loads the kernel.
const STAND_IN_TORCH: &str = "class no_grad:
    def __enter__(self):
        pass
    def __exit__(self, *_):
        pass

class cuda:
    @staticmethod
    def is_available():
        return False

class version:
    cuda = None

class OutOfMemoryError(Exception):
    pass

__version__ = \"2.9.0\"
";

/// A laptop with a kernel in Python, and a host whose torch is a stand-in. The harness is real.
fn laptop_with_stand_in_torch() -> Laptop {
    let laptop = Laptop::new();
    FakeHost::with(&laptop, &[]);
    let site = laptop.path("site");
    fs::create_dir_all(site.join("torch-2.9.0.dist-info")).unwrap();
    fs::create_dir(site.join("torch")).unwrap();
    fs::write(site.join("torch/__init__.py"), STAND_IN_TORCH).unwrap();
    let metadata = "Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n";
    fs::write(site.join("torch-2.9.0.dist-info/METADATA"), metadata).unwrap();
    let settings = laptop.path("config/config.toml");
    let known = fs::read_to_string(&settings).unwrap();
    let env = format!("env = {{ PYTHONPATH = {site:?}, ");
    fs::write(&settings, known.replace("env = {", &env)).unwrap();
    laptop.write(
        "k/kernel.toml",
        "name = \"k\"\nlanguage = \"python\"\nsource = \"kernel.py\"\n\
         entry = { python = \"run\" }\n[sizes]\nvars = [\"n\"]\ncases.one = { n = 8 }\n\
         [[arg]]\nname = \"x\"\ndtype = \"f32\"\nshape = [\"n\"]\nrole = \"out\"\n",
    );
    laptop
}

#[test]
fn a_kernel_that_raises_when_it_is_imported_shows_its_own_frames_only() {
    let laptop = laptop_with_stand_in_torch();
    let text =
        "def jit(f):\n    raise ValueError('not in a kernel')\n\n@jit\ndef run(x):\n    pass\n";
    for (text, told) in [
        (text, "`kernel.py` raised ValueError: not in a kernel at kernel.py:2"),
        ("def run(x:\n", "`kernel.py` raised SyntaxError: "),
    ] {
        laptop.write("k/kernel.py", text);
        let line = "profile --kernel k/kernel.toml --mode verify --remote h200";
        let output = laptop.run(line);
        let shown = laptop.shown(line, &output);
        assert_eq!(status(&output), 6, "{shown}");
        assert!(shown.contains(told) && shown.contains("kernel.py\", line "), "{shown}");
        assert!(!shown.contains("harness.py\"") && !shown.contains("importlib"), "{shown}");
        assert!(!shown.contains("Traceback"), "{shown}");
    }
}

#[test]
fn a_kernel_that_ends_its_process_with_status_zero_fails_every_mode() {
    let laptop = laptop_with_stand_in_torch();
    let child_comes_back = "import os\nif os.fork():\n    os.wait()\n    os._exit(0)";
    for end in ["import os; os._exit(0)", "import sys; sys.exit(0)", child_comes_back] {
        laptop.write("k/kernel.py", &format!("{end}\ndef run(x):\n    pass\n"));
        for mode in ["verify", "bench", "nsys", "torch"] {
            let line = format!("profile --kernel k/kernel.toml --mode {mode} --remote h200");
            let output = laptop.run(&line);
            let shown = laptop.shown(&line, &output);
            assert_eq!(status(&output), 6, "{shown}");
            assert!(shown.contains("the process ended during `setup`"), "{shown}");
        }
    }
}
