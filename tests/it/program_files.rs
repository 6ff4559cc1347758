//! Python programs bring the files beside them: the same ones with `exec` and `profile`.

use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};
use crate::over_ssh::add_remote_to_config;
use crate::sshd::Sshd;

/// A laptop with a program of several files, as public ones are.
fn project() -> Laptop {
    let laptop = Laptop::new();
    laptop.write(
        "bench.py",
        "import os\nfrom model import GPT\nexec(open('configurator.py').read())\n\
         print('ran', GPT, size, open('input.txt').read())\n",
    );
    laptop.write("model.py", "GPT = 'gpt'\n");
    laptop.write("configurator.py", "size = 3\n");
    laptop.write("input.txt", "text");
    laptop.write("unrelated.py", "");
    laptop.write("projects/adder/adder.py", "from mingpt.utils import name\nprint('ran', name)\n");
    laptop.write("mingpt/__init__.py", "");
    laptop.write("mingpt/utils.py", "from .names import name\n");
    laptop.write("mingpt/names.py", "name = 'adder'\n");
    laptop
}

/// Runs a line, which must end well, and returns what it printed and the files of its plan.
fn run(laptop: &Laptop, line: &str) -> (String, String) {
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    assert_eq!(status(&output), 0, "{shown}");
    let plan = laptop.latest_json("plan-1.json");
    let files = plan["files"].as_array().unwrap().iter();
    let files = files.filter_map(|file| file["path"].as_str());
    let own = files.filter(|path| path.starts_with("here/") || path.starts_with("app/"));
    (shown, own.collect::<Vec<_>>().join(" "))
}

#[test]
fn a_python_program_brings_its_modules_with_exec_and_with_profile() {
    let laptop = project();
    let sshd = Sshd::start();
    FakeHost::new(&laptop);
    add_remote_to_config(&laptop, &sshd, sshd.port);
    let bench = "here/bench.py here/configurator.py here/input.txt here/model.py";
    let package = "here/mingpt/__init__.py here/mingpt/names.py here/mingpt/utils.py";
    let adder = format!("{package} here/projects/adder/adder.py");
    for command in ["exec", "profile --mode nvtx"] {
        let run = |words: &str| {
            let line = format!("{command} --remote box --accept-new -- {words}");
            let (shown, files) = run(&laptop, &line);
            let mut files: Vec<&str> = files.split(' ').collect();
            files.sort_unstable();
            (shown, files.join(" "))
        };
        let (shown, files) = run("python3 bench.py");
        assert_eq!(files, bench, "{shown}");
        assert!(shown.contains("ran gpt 3 text"), "{shown}");
        assert!(shown.contains("`bench.py` and 2 modules and 1 file beside it"), "{shown}");
        let (shown, files) = run("env PYTHONPATH=. python3 projects/adder/adder.py");
        assert_eq!(files, adder, "{shown}");
        assert!(shown.contains("ran adder"), "{shown}");
        let (shown, files) = run("python3 -m mingpt.utils");
        assert_eq!(files, package, "{shown}");
        // One script alone needs no copy of a folder.
        assert_eq!(run("python3 unrelated.py").1, "app/unrelated.py");
    }
    let dry = laptop.show("exec --dry-run --remote box -- torchrun --nproc-per-node 2 bench.py");
    for sent in ["# rgpu sends here/bench.py\n", "# rgpu sends here/model.py\n"] {
        assert!(dry.contains(sent), "{dry}");
    }
}

#[test]
fn profile_mounts_folders_and_sets_variables_as_exec_does() {
    let laptop = project();
    FakeHost::new(&laptop);
    laptop.write("data/x.txt", "of data");
    laptop.write("read.py", "import os\nprint('ran', open(os.environ['NAME']).read())\n");
    for command in ["exec", "profile --mode nvtx", "profile --mode nsys --allow-unmeasured"] {
        let line = format!("{command} --mount . --env NAME=data/x.txt -- python3 read.py");
        let (shown, files) = run(&laptop, &line);
        assert!(shown.contains("ran of data"), "{shown}");
        assert!(
            files.contains("here/data/x.txt") && files.contains("here/unrelated.py"),
            "{files}"
        );
        // The missing file is named with the flag that sends it.
        let line = format!("{command} --env NAME=data/x.txt -- python3 read.py");
        let shown = laptop.show(&line);
        let hint = "`data/x.txt` is here, but was not sent to the host: `--mount .` sends it";
        assert!(shown.replace("\n", " ").contains(hint), "{shown}");
    }
    let shown = laptop.show("profile --mount . vecadd");
    assert!(shown.contains("`--mount` is for programs"), "{shown}");
}

#[test]
fn a_python_file_of_exec_brings_its_modules_too() {
    let laptop = project();
    let (shown, _) = run(&laptop, "exec bench.py");
    assert!(shown.contains("ran gpt 3 text"), "{shown}");
    let (shown, _) = run(&laptop, "exec --env PYTHONPATH=. projects/adder/adder.py");
    assert!(shown.contains("ran adder"), "{shown}");
}

#[test]
fn on_this_machine_a_program_runs_where_it_is_beside_a_copy_of_its_files() {
    let laptop = project();
    let (shown, _) = run(&laptop, "exec -- python3 bench.py");
    assert!(shown.contains("ran gpt 3 text"), "{shown}");
    assert!(!shown.contains("sent to the host"), "{shown}");
    let (shown, _) = run(&laptop, "exec -- env PYTHONPATH=. python3 projects/adder/adder.py");
    assert!(shown.contains("ran adder"), "{shown}");
}
