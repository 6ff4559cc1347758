//! The package as users get it: a wheel in an empty environment, in a notebook, and under type
//! checkers. The packages of others come from PyPI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{folder, python, succeeds};
use crate::browser::Browser;
use crate::laptop::{Laptop, built};

/// The packages that a notebook needs besides rgpu.
const NOTEBOOK_PACKAGES: &[&str] =
    &["ipykernel==7.4.0", "nbclient==0.11.0", "nvtx==0.2.17", "pandas==3.1.1"];

/// The type checkers, and what the package imports if it is there.
const CHECKER_PACKAGES: &[&str] =
    &["basedpyright==1.40.2", "ipython==9.18.1", "mypy==2.4.1", "pandas==3.1.1"];

/// A Python environment with these packages in cargo's temporary folder. `None`, which is told,
/// where PyPI is out of reach.
fn environment(name: &str, packages: &[&str]) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let done = folder.join("installed.txt");
    let wanted = packages.join("\n");
    let mut is_there = fs::read_to_string(&done).is_ok_and(|there| there == wanted);
    if !is_there {
        succeeds(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages);
        is_there = pip.status().is_ok_and(|status| status.success());
        if is_there {
            fs::write(&done, wanted).unwrap();
        } else {
            eprintln!("skipped: packages cannot be installed here (PyPI)");
        }
    }
    is_there.then(|| folder.join("bin"))
}

#[test]
fn a_wheel_in_an_empty_environment_profiles_a_kernel_and_runs_the_examples() {
    let laptop = Laptop::new();
    let printed = succeeds(Command::new(built("xtask")).args(["wheel", "debug"]));
    let wheel = printed.lines().next().unwrap();
    let environment = laptop.path("env");
    succeeds(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let pip = ["install", "--quiet", "--no-index", "--disable-pip-version-check"];
    succeeds(Command::new(environment.join("bin/pip")).args(pip).arg(wheel));

    // Its own programs are found, and its own kernels.
    let installed = |program: &str| {
        let mut command = python(&laptop, environment.join("bin").join(program));
        for variable in ["RGPU", "PYTHONPATH", "RGPU_LIBEXEC"] {
            command.env_remove(variable);
        }
        command
    };
    let shown = succeeds(installed("rgpu").args(["profile", "--kernel", "vecadd"]));
    assert!(shown.contains("the reference on the CPU"), "{shown}");
    let found = "import rgpu._program as p; print(p.find())";
    let found = succeeds(installed("python").args(["-c", found]));
    assert_eq!(
        fs::canonicalize(found.trim()).unwrap(),
        fs::canonicalize(environment.join("bin/rgpu")).unwrap()
    );
    let shown = succeeds(installed("python").arg(folder("examples/vecadd.py")));
    assert!(shown.contains("… finished\nrung ") && shown.contains("large: "), "{shown}");
    let shown = succeeds(installed("python").arg(folder("examples/several.py")));
    assert_eq!(shown, "['9', '16']\nstopped, on the host too\n");
    laptop.wait_until_quiet();
}

/// Runs a notebook; prints its outputs, and writes the page of a cell as a file.
const NOTEBOOK: &str = r#"
import sys, nbclient, nbformat
cells = [
    "%load_ext rgpu",
    "%%rgpu --remote local\nprint('on the host')",
    "%%rgpu --remote local --mode nvtx\nimport nvtx\nwith nvtx.annotate('product'):\n    print(sum(range(100000)))",
    "import rgpu\nrgpu.profile(kernel='vecadd', remote='local').regions.to_pandas()",
    "@rgpu.kernel(sweep={'n': [10, 20]}, mode='nvtx', remote='local')\n"
    "def work(n):\n    with rgpu.annotate('part'):\n        print(list(range(n)))\n\n"
    "work().to_pandas()[['n', 'annotation', 'instances']]",
]
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
nbclient.NotebookClient(book, timeout=300).execute()
for index, cell in enumerate(book.cells):
    for output in cell.outputs:
        text = output.get("text") or output.get("data", {}).get("text/plain", "")
        print(f"[{index}] {text}")
page = next(output.data["text/html"] for output in book.cells[2].outputs if "data" in output)
open(sys.argv[1], "w").write(f"<!doctype html><meta charset=utf-8><title>a notebook</title><body>{page}")
"#;

#[test]
fn a_notebook_shows_output_tables_and_the_page_of_a_report() {
    let Some(environment) = environment("python-notebook", NOTEBOOK_PACKAGES) else { return };
    let laptop = Laptop::new();
    let page = laptop.path("notebook.html");
    let mut notebook = python(&laptop, environment.join("python"));
    // The host of the cells is this machine, with the package nvtx.
    notebook.env("PATH", format!("{}:/usr/bin:/bin", environment.display()));
    let shown = succeeds(notebook.args(["-c", NOTEBOOK]).arg(&page));
    assert!(shown.contains("[1] on the host\n"), "{shown}");
    assert!(shown.contains("rgpu@timed"), "{shown}");
    let rows: Vec<Vec<&str>> = shown.lines().map(|l| l.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["1", "10", "part", "1"]), "{shown}");
    assert!(rows.contains(&vec!["3", "20", "part", "1"]), "{shown}");

    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/pages");
    let picture = pages.join("notebook.png");
    browser.picture(&picture);
    // An empty frame makes a picture of 5 kB.
    assert!(fs::metadata(&picture).unwrap().len() > 20_000);
    let height = browser.value("document.querySelector('iframe').getBoundingClientRect().height");
    assert_eq!(height, 640.0, "its border included");
    assert_eq!(browser.complaints, [] as [&str; 0]);
    // The page in the frame, which the page around it cannot read.
    let inner = browser.value("document.querySelector('iframe').srcdoc");
    let alone = laptop.path("page.html");
    fs::write(&alone, inner.as_str().unwrap()).unwrap();
    browser.open(&alone);
    let text = browser.value("document.body.innerText");
    assert!(text.as_str().unwrap().contains("product"), "{text}");
    assert_eq!(browser.complaints, [] as [&str; 0]);
    laptop.wait_until_quiet();
}

#[test]
fn the_package_and_the_examples_pass_two_type_checkers() {
    let Some(environment) = environment("python-types", CHECKER_PACKAGES) else { return };
    let mut mypy = Command::new(environment.join("mypy"));
    succeeds(
        mypy.args(["--strict", "--cache-dir=/dev/null", "rgpu", "examples"])
            .current_dir(folder("")),
    );
    // Pyright with its own Node, in Pyright's modes (`pyproject.toml`).
    let mut pyright = Command::new(environment.join("basedpyright"));
    pyright.arg("--pythonpath").arg(environment.join("python")).current_dir(folder(""));
    succeeds(&mut pyright);
}
