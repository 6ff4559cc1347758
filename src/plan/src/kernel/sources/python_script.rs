//! A Python file that is run as the script it is: plain torch, JAX or CuPy, or with kernels of its
//! own in a DSL or in strings of CUDA C++.
//!
//! Its text tells whether running it does anything. Benchmarks of `triton.testing.perf_report` and
//! tests that nothing calls, and exported notebooks, are run by a script of ours. Kernels are found
//! in the file and in the modules beside it that it imports, so that ncu measures these and not
//! those of libraries.

#![expect(clippy::disallowed_methods, reason = "names in the folder of the user's script")]

mod outline;
mod own_kernels;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Found, FoundProgram, KernelSource, text_of};
use crate::kernel::{KernelError, ProfileMode, cuda_source, imports, name_of};
use outline::{Definition, Outline};
use own_kernels::{OwnKernels, cuda_text};
use rgpu_model::agent_files;
use rgpu_model::error::shell_word;

pub(super) static PYTHON_SCRIPT: KernelSource =
    KernelSource { name: "a Python script", read: read_script };

/// Larger files are no programs that somebody wrote.
const MAX_SCRIPT_BYTES: u64 = 1 << 20;

/// The most files beside the script that are read for kernels.
const MAX_FILES: usize = 64;

/// The most names of its folder that are looked at.
const MAX_LISTED_FILES: usize = 1000;

/// Function of modules that another harness calls.
const CUSTOM_KERNEL: &str = "custom_kernel";

/// The decorator of Triton's benchmarks.
const PERF_REPORT: &str = "triton.testing.perf_report";

/// The CUDA C++ that stands in strings of a Python file, as one source to compile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CudaInPython {
    /// The source: the device code of the strings, with `#line` for the lines of the Python file.
    pub source: String,
    /// What was taken and what was left out, in words, to be printed.
    pub assumptions: Vec<String>,
    /// Lines of strings that are computed when the file runs, so that they cannot be compiled
    /// before.
    pub computed_lines: Vec<usize>,
}

impl CudaInPython {
    /// Takes the strings with `__global__` functions out of a Python text. `name`: the name of its
    /// file. Of two strings that define the same kernel, the first is taken.
    pub fn find(python: &str, name: &str) -> Self {
        let outline = Outline::read(python);
        let mut found = Self::default();
        let mut kernels: BTreeSet<String> = BTreeSet::new();
        let mut lines = Vec::new();
        let mut left_out = 0;
        for text in outline.texts.iter().filter(|text| text.text.contains("__global__")) {
            let (code, host_parts) = cuda_source::device_code(&cuda_text(text));
            let names = cuda_source::kernel_names(&code);
            if names.is_empty() {
                continue;
            }
            if text.is_computed {
                found.computed_lines.push(text.line);
                continue;
            }
            if names.iter().any(|name| kernels.contains(name)) {
                found.assumptions.push(format!(
                    "the string of line {} is left out: it defines `{}` again",
                    text.line,
                    names.join("`, `")
                ));
                continue;
            }
            kernels.extend(names);
            left_out += host_parts;
            lines.push(text.line.to_string());
            let quoted = name.replace(['"', '\\', '\n'], "_");
            found.source.push_str(&format!("#line {} \"{quoted}\"\n{code}\n", text.line));
        }
        if !lines.is_empty() {
            let many = if lines.len() == 1 { "the string of line" } else { "the strings of lines" };
            let parts = if left_out == 0 { "" } else { ", without its host functions" };
            let first = format!("the CUDA C++ in {many} {}{parts}", lines.join(", "));
            found.assumptions.insert(0, first);
        }
        found
    }
}

fn read_script(path: &Path) -> Option<Result<Found, KernelError>> {
    let text = text_of(path, &["py"])?;
    if text.len() as u64 > MAX_SCRIPT_BYTES {
        return None;
    }
    let outline = Outline::read(&text);
    let has = |name: &str| outline.definitions.iter().any(|d| d.is_outermost && d.name == name);
    if has(CUSTOM_KERNEL) {
        return None;
    }
    let modules = texts_beside(path, &text);
    let outlines: Vec<Outline<'_>> =
        modules.python.iter().map(|text| Outline::read(text)).collect();
    let outlines: Vec<Outline<'_>> = std::iter::once(outline.clone()).chain(outlines).collect();
    let kernels = OwnKernels::find(&outlines, &modules.cuda);
    let benchmarks: Vec<&str> = outline.decorated(PERF_REPORT).map(|d| d.name).collect();
    let tests: Vec<&Definition<'_>> = outline
        .definitions
        .iter()
        .filter(|d| d.is_outermost && !d.is_class && d.name.starts_with("test_"))
        .collect();
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let mut assumptions = Vec::new();
    let driver = if outline.acts || outline.has_main {
        assumptions.push(format!("`{file}` is run as a script, by the host's `python3`"));
        let is_notebook = outline.calls.iter().any(|(name, _)| name == "get_ipython");
        if is_notebook {
            assumptions.push("its lines for IPython (`!…`, `%…`) are left out".to_owned());
        }
        let plots = outlines.iter().flat_map(|o| &o.calls).any(|(name, _)| name == PERF_REPORT);
        if is_notebook { Some("notebook") } else { plots.then_some("plots") }
    } else if !benchmarks.is_empty() {
        let names = benchmarks.join("`, `");
        assumptions.push(format!("nothing calls `{names}`: rgpu calls it for all its values"));
        Some("benchmarks")
    } else if !tests.is_empty() {
        assumptions.push(format!("`{file}` only defines tests: pytest runs them"));
        Some("tests")
    } else if kernels.names.is_empty() {
        return None;
    } else {
        return Some(Err(nothing_called(path, &outline, &kernels)));
    };
    let mode = if kernels.names.is_empty() { ProfileMode::Nsys } else { ProfileMode::Deep };
    if !kernels.languages.is_empty() {
        let languages: Vec<&str> = kernels.languages.iter().copied().collect();
        assumptions.push(format!("it has kernels in {}", languages.join(" and ")));
    }
    Some(Ok(Found::Program(FoundProgram {
        format: PYTHON_SCRIPT.name,
        name: name_of(path),
        path: path.to_owned(),
        command: vec!["python3".to_owned(), path.display().to_string()],
        build: None,
        files: Vec::new(),
        cwd: String::new(),
        driver,
        is_rank: driver.is_none() && is_rank(&outlines),
        kernel_filter: kernels.pattern(),
        kernels: kernels.names,
        mode,
        assumptions,
    })))
}

/// Whether a program joins a group of ranks that it does not start itself.
fn is_rank(outlines: &[Outline<'_>]) -> bool {
    let calls = |names: &[&str]| {
        let mut called = outlines.iter().flat_map(|outline| &outline.calls);
        called.any(|(name, _)| names.contains(&name.rsplit('.').next().unwrap_or_default()))
    };
    calls(&["init_process_group", "init_device_mesh"])
        && !calls(&["spawn", "Process", "start_processes", "notebook_launcher"])
}

/// The error for a file with kernels that running it does not launch: what to write.
fn nothing_called(path: &Path, outline: &Outline<'_>, kernels: &OwnKernels) -> KernelError {
    let is_kernel = |name: &str| kernels.names.iter().any(|kernel| kernel.ends_with(name));
    let launcher = outline.definitions.iter().find(|definition| {
        definition.is_outermost && !definition.is_class && !definition.indexed.is_empty()
    });
    let others = outline.definitions.iter().filter(|definition| {
        definition.is_outermost && !definition.is_class && !is_kernel(definition.name)
    });
    let function = launcher.or_else(|| others.clone().find(|d| !d.name.starts_with('_')));
    let call = match function {
        Some(function) => format!("{}({})", function.name, function.required.join(", ")),
        None => "…".to_owned(),
    };
    let word = shell_word(path.display());
    if let Some(sibling) = program_beside(path) {
        return KernelError::NotInferred {
            file: path.to_owned(),
            problem: "running it calls nothing".to_owned(),
            instead: Some(format!(
                "`{0}` imports it and runs: `rgpu profile {0}`",
                shell_word(sibling.display())
            )),
        };
    }
    KernelError::NotInferred {
        file: path.to_owned(),
        problem: format!(
            "it defines `{}`, and running it calls nothing",
            kernels.names.iter().take(3).cloned().collect::<Vec<_>>().join("`, `")
        ),
        instead: Some(format!(
            "write a call with its inputs at the end, `if __name__ == \"__main__\": {call}`, and \
             `rgpu profile {word}` runs it; or `rgpu kernels new {word}` writes a kernel.toml for \
             one function"
        )),
    }
}

/// A script in the same folder that imports this one and runs.
fn program_beside(path: &Path) -> Option<PathBuf> {
    let stem = path.file_stem()?.to_str()?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let names = std::fs::read_dir(listed).ok()?.flatten().take(MAX_LISTED_FILES);
    let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    names.sort();
    let scripts = names.into_iter().filter(|name| name.to_string_lossy().ends_with(".py"));
    scripts.map(|name| folder.join(name)).filter(|beside| beside != path).take(MAX_FILES).find(
        |beside| {
            let bytes = agent_files::read(beside, MAX_SCRIPT_BYTES).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            let outline = Outline::read(&text);
            (outline.acts || outline.has_main)
                && imports(&text).iter().any(|import| import.top_level() == stem)
        },
    )
}

/// The texts of the files beside a script that it uses.
#[derive(Debug, Default)]
struct TextsBeside {
    python: Vec<String>,
    cuda: Vec<String>,
}

/// Reads the local modules that a script imports, and the CUDA files that it names. Files that
/// cannot be read are left out.
fn texts_beside(path: &Path, text: &str) -> TextsBeside {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut found = TextsBeside::default();
    let mut seen = BTreeSet::from([path.to_owned()]);
    let mut queue: Vec<PathBuf> = named_files(folder, text);
    while let Some(next) = queue.pop() {
        if seen.len() > MAX_FILES || !seen.insert(next.clone()) {
            continue;
        }
        let Ok(bytes) = agent_files::read(&next, MAX_SCRIPT_BYTES) else { continue };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if next.extension().is_some_and(|extension| extension == "py") {
            queue.extend(named_files(folder, &text));
            found.python.push(text);
        } else {
            found.cuda.push(text);
        }
    }
    found
}

/// The modules and CUDA files that may be in this folder by the words of a Python text.
fn named_files(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for import in imports(text) {
        let module = import.module.trim_start_matches('.').replace('.', "/");
        if !module.is_empty() {
            found.push(folder.join(format!("{module}.py")));
            found.push(folder.join(&module).join("__init__.py"));
        }
        for name in &import.names {
            found.push(folder.join(&module).join(format!("{name}.py")));
        }
    }
    let outline = Outline::read(text);
    let is_source = |text: &str| {
        let is_short = text.len() < 1024 && !text.contains(['\n', '\0']);
        is_short && !text.starts_with('/') && !text.contains("..") && text.ends_with(".cu")
    };
    found.extend(outline.texts.iter().filter(|t| is_source(t.text)).map(|t| folder.join(t.text)));
    found.retain(|path| path.is_file());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Option<Result<FoundProgram, String>> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let read = read_script(&folder.path().join(files[0].0))?;
        Some(match read {
            Ok(Found::Program(program)) => Ok(program),
            Ok(Found::Kernel(_)) => panic!("no kernel is expected"),
            Err(error) => Err(rgpu_model::error::Failure::from(error).to_string()),
        })
    }

    const KERNEL: &str = "import triton\n@triton.jit\ndef add(x): pass\n";

    #[test]
    fn a_script_is_run_as_it_is_and_its_kernels_are_measured() {
        let script = found(&[("x.py", "import torch\ntorch.ones(3).cuda().sum()\n")]);
        let script = script.unwrap().unwrap();
        assert_eq!((script.mode, script.driver), (ProfileMode::Nsys, None));
        assert_eq!((script.kernels.len(), script.kernel_filter), (0, None));
        let launches = format!("{KERNEL}add[(1,)](torch.ones(3))\n");
        let script = found(&[("x.py", launches.as_str())]).unwrap().unwrap();
        assert_eq!((script.mode, script.kernels), (ProfileMode::Deep, vec!["add".to_owned()]));
        assert!(script.assumptions.concat().contains("Triton"), "{:?}", script.assumptions);
    }

    #[test]
    fn kernels_of_modules_and_cuda_files_beside_the_script_are_its_own() {
        let script = found(&[
            ("x.py", "import torch\nfrom ops import f\nf()\n"),
            ("ops.py", &format!("{KERNEL}ext = load(name='e', sources=['k.cu', 'gone.cu'])\n")),
            ("k.cu", "__global__ void twice(float *x) {}\n"),
        ]);
        assert_eq!(script.unwrap().unwrap().kernels, ["add", "twice"]);
    }

    #[test]
    fn what_nothing_calls_is_run_by_our_script_or_told_what_to_write() {
        let report = "@triton.testing.perf_report(b)\ndef bench(n, provider): pass\n";
        let script = found(&[("x.py", &format!("{KERNEL}{report}"))]).unwrap().unwrap();
        assert_eq!(script.driver, Some("benchmarks"));
        let script =
            found(&[("x.py", &format!("{KERNEL}{report}bench.run()\n"))]).unwrap().unwrap();
        assert_eq!(script.driver, Some("plots"));
        let script = found(&[("x.py", &format!("{KERNEL}def test_add(): pass\n"))]);
        assert_eq!(script.unwrap().unwrap().driver, Some("tests"));
        let script = found(&[("x.py", "get_ipython().system('ls')\nprint(1)\n")]);
        assert_eq!(script.unwrap().unwrap().driver, Some("notebook"));
        let alone = format!("{KERNEL}def total(x, scale, n=3):\n    add[(1,)](x)\n");
        let beside = [("x.py", alone.as_str()), ("go.py", "from x import total\ntotal(1, 2)\n")];
        let error = found(&beside).unwrap().unwrap_err();
        assert!(error.contains("go.py` imports it and runs"), "{error}");
        let error = found(&[("x.py", alone.as_str())]).unwrap().unwrap_err();
        assert!(error.contains("if __name__ == \"__main__\": total(x, scale)"), "{error}");
    }

    #[test]
    fn a_program_of_ranks_is_known_unless_it_starts_them_itself() {
        let joins = "import torch.distributed as dist\ndist.init_process_group('nccl')\n";
        assert!(found(&[("x.py", joins)]).unwrap().unwrap().is_rank);
        let spawns = format!("{joins}torch.multiprocessing.spawn(run, nprocs=2)\n");
        assert!(!found(&[("x.py", spawns.as_str())]).unwrap().unwrap().is_rank);
    }

    #[test]
    fn what_another_harness_calls_is_no_script() {
        for text in [
            "def custom_kernel(data): pass\n",
            "import torch\nclass Model(torch.nn.Module): pass\ndef get_inputs(): return []\n",
            "def scale(x): return x\n",
            "",
        ] {
            assert!(found(&[("x.py", text)]).is_none(), "{text}");
        }
    }

    #[test]
    fn strings_of_cuda_are_taken_out_with_their_lines() {
        let text = "a = '// __global__'\nb = r'''\n__global__ void k() { printf(\"\\n\"); }'''\n\
                    c = '__global__ void l() { int n = 1;\\n}'\nd = f'__global__ void m() {{ {N} }}'\n\
                    e = 'torch::Tensor f() {} __global__ void k() {}'\n";
        let found = CudaInPython::find(text, "x.py");
        let expected = "#line 2 \"x.py\"\n\n__global__ void k() { printf(\"\\n\"); }\n\
                        #line 4 \"x.py\"\n__global__ void l() { int n = 1;\n}\n";
        assert_eq!(found.source, expected);
        assert_eq!(found.computed_lines, [5]);
        let told = found.assumptions.join("\n");
        assert!(told.starts_with("the CUDA C++ in the strings of lines 2, 4\n"), "{told}");
        assert!(told.contains("line 6 is left out: it defines `k` again"), "{told}");
        assert_eq!(CudaInPython::find("import torch\n", "x.py"), CudaInPython::default());
    }
}
