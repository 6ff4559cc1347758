//! Python files that `rgpu profile FILE` runs as the scripts they are.

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

/// Modules in the places of Triton and its benchmarks.
fn play_triton(laptop: &Laptop) {
    laptop.write(
        "triton/__init__.py",
        "from . import testing\n\
         class Kernel:\n    def __init__(self, f): self.f = f\n    \
         def __getitem__(self, grid): return self.f\n\
         jit = Kernel\n",
    );
    laptop.write(
        "triton/testing.py",
        "class Benchmark:\n    def __init__(self, **fields): self.__dict__.update(fields)\n\
         class Mark:\n    def __init__(self, fn, benchmarks):\n        \
         self.fn, self.benchmarks = fn, benchmarks\n    \
         def run(self, **_): raise SystemExit('it needs matplotlib')\n\
         def perf_report(benchmarks): return lambda fn: Mark(fn, benchmarks)\n",
    );
}

const KERNEL: &str = "import triton\n@triton.jit\ndef add_kernel(x):\n    print('launched', x)\n";

/// Runs a line that ends well.
fn run(laptop: &Laptop, line: &str) -> String {
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    shown
}

fn one_line(shown: &str) -> String {
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_script_is_run_as_it_is_with_its_arguments_and_files() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("helper.py", "NAME = 'helped'\n");
    laptop.write(
        "train.py",
        "import sys, helper\nprint(helper.NAME, sys.argv[1:], open('in.txt').read())\n",
    );
    laptop.write("in.txt", "text");
    let shown = run(&laptop, "profile train.py --remote h200 --allow-unmeasured -- 3 --lr 1");
    assert!(shown.contains("helped ['3', '--lr', '1'] text"), "{shown}");
    assert!(one_line(&shown).contains("assumed: mode `nsys`, it has no kernels of its own"));
    let record = laptop.latest_json("run.json");
    assert_eq!(
        (record["mode"].as_str(), record["kernel"].as_str()),
        (Some("nsys"), Some("train.py"))
    );
    let shown = run(&laptop, "profile train.py --mode nvtx --allow-unmeasured");
    assert!(shown.contains("helped []"), "{shown}");
}

#[test]
fn a_script_with_kernels_of_its_own_is_measured_with_mode_deep() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    play_triton(&laptop);
    laptop.write("ops.py", KERNEL);
    laptop.write("x.py", "from ops import add_kernel\nadd_kernel[(1,)](7)\n");
    let shown = run(&laptop, "profile x.py --remote h200");
    let words = one_line(&shown);
    assert!(words.contains("launched 7"), "{shown}");
    assert!(words.contains("assumed: mode `deep`, it has kernels of its own"), "{shown}");
    assert!(words.contains("only the program's own kernels are profiled: `add_kernel`"), "{shown}");
    // The played tools report kernels of other names.
    assert!(
        words.contains("none of the program's own kernels ran: those with the most"),
        "{shown}"
    );
    assert_eq!(laptop.latest_json("run.json")["mode"], "deep");
    let shown = laptop.show("kernels show x.py");
    assert!(shown.contains("a Python script") && shown.contains("add_kernel"), "{shown}");
}

#[test]
fn benchmarks_tests_and_notebooks_are_run_by_a_script_of_ours() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    play_triton(&laptop);
    let report = "@triton.testing.perf_report(triton.testing.Benchmark(x_names=['n'], \
                  x_vals=[2, 4], line_arg='who', line_vals=['a', 'b'], line_names=['A', 'B'], \
                  plot_name='sums', ylabel='ms', args={'k': 1}))\n\
                  def bench(n, who, k):\n    add_kernel[(1,)](n)\n    return n + k\n";
    laptop.write("b.py", &format!("{KERNEL}{report}"));
    let shown = run(&laptop, "profile b.py --mode nvtx --allow-unmeasured");
    assert!(shown.contains("sums (ms)") && shown.contains("n=4: A 5, B 5"), "{shown}");
    assert!(one_line(&shown).contains("nothing calls `bench`: rgpu calls it for all its values"));
    laptop.write("p.py", &format!("{KERNEL}{report}bench.run(show_plots=True, print_data=True)\n"));
    let shown = run(&laptop, "profile p.py --mode nvtx --allow-unmeasured");
    assert!(shown.contains("n=2: A 3, B 3"), "{shown}");
    laptop.write("t.py", &format!("{KERNEL}def test_add():\n    add_kernel[(1,)](8)\n"));
    let shown = run(&laptop, "profile t.py --mode nvtx --allow-unmeasured");
    assert!(one_line(&shown).contains("`t.py` only defines tests"), "{shown}");
    laptop.write(
        "n.py",
        "# In[1]:\nget_ipython().system('pip install x')\nprint('cell', __name__)\n",
    );
    let shown = run(&laptop, "profile n.py --mode nvtx --allow-unmeasured");
    assert!(shown.contains("cell __main__"), "{shown}");
    assert!(shown.contains("left out: pip install x"), "{shown}");
}

#[test]
fn a_program_of_ranks_is_started_by_torchrun() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("r.py", "import torch.distributed as dist\ndist.init_process_group('nccl')\n");
    let shown = laptop.show("profile r.py --gpus 2 --dry-run --remote h200 -- --lr 1");
    let start = "-m torch.distributed.run --standalone --nproc-per-node 2 ";
    assert!(one_line(&shown).contains(start), "{shown}");
    assert!(one_line(&shown).contains("assumed: it is one of several ranks"), "{shown}");
}

#[test]
fn kernels_that_nothing_launches_are_told_with_what_to_write() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write("k.py", &format!("{KERNEL}def add(x, y):\n    Add.apply(x)\n"));
    let output = laptop.run("profile k.py");
    let shown = one_line(&laptop.shown("profile k.py", &output));
    assert_eq!(status(&output), 3, "{shown}");
    assert!(shown.contains("it defines `add_kernel`, and running it calls nothing"), "{shown}");
    assert!(shown.contains("if __name__ == \"__main__\": add(x, y)"), "{shown}");
}

#[test]
fn a_list_of_requirements_that_cannot_be_installed_does_not_keep_a_script_from_running() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    let settings = laptop.path("config/config.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    let offline = "env = { PIP_INDEX_URL = \"http://127.0.0.1:9\", PIP_RETRIES = \"0\", \
                   UV_INDEX_URL = \"http://127.0.0.1:9\", UV_OFFLINE = \"1\", ";
    std::fs::write(&settings, text.replacen("env = { ", offline, 1)).unwrap();
    laptop.write("requirements.txt", "no-such-package-of-rgpu==1\n-e .\n");
    laptop.write("x.py", "import sys\nprint('ran', sys.argv[1:])\n");
    for command in ["profile --mode nvtx --allow-unmeasured", "exec"] {
        let shown = run(&laptop, &format!("{command} --remote h200 x.py -- 1"));
        let words = one_line(&shown);
        assert!(shown.contains("ran ['1']"), "{shown}");
        assert!(words.contains("packages of `requirements.txt` that the host lacks"), "{shown}");
        assert!(words.contains("`-e .` of `requirements.txt` is not honoured"), "{shown}");
        assert!(words.contains("the host's own Python runs the program"), "{shown}");
    }
}

#[test]
fn cuda_in_the_strings_of_a_python_file_is_compiled() {
    let laptop = Laptop::new();
    FakeHost::new(&laptop);
    laptop.write(
        "ext.py",
        "from torch.utils.cpp_extension import load_inline\n\
         code = '''\n#include <torch/extension.h>\n__global__ void twice(float *x) { x[0] *= 2; }\n\
         torch::Tensor run(torch::Tensor x) { twice<<<1, 1>>>(x.data_ptr<float>()); return x; }\n'''\n",
    );
    let output = laptop.run("build ext.py --remote h200 --arch sm_90a");
    let shown = one_line(&laptop.shown("build ext.py", &output));
    let taken = "the CUDA C++ in the string of line 2, without its host functions";
    assert!(shown.contains(taken), "{shown}");
    laptop.write("f.py", "code = f'''__global__ void k() {{ int n = {N}; }}'''\n");
    let shown = one_line(&laptop.show("build f.py --remote h200 --arch sm_90a"));
    assert!(
        shown.contains("the CUDA C++ of `f.py`, line 1, is computed when the file runs"),
        "{shown}"
    );
}
