//! Files of a project that somebody prepared: texts that take long, files that never end, and files
//! that another user put beside or above what was named.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::find::{KernelFolders, find, find_source};
use super::super::{KernelError, KernelSpec};

fn read(path: &Path) -> Result<super::Found, KernelError> {
    find_source(path.to_str().unwrap(), &KernelFolders::default())
}

#[test]
fn no_text_takes_a_time_that_is_the_square_of_its_length() {
    let main = "int main() {}\n";
    let many = |line: &dyn Fn(usize) -> String| (0..100_000).map(line).collect::<String>();
    let macros = (0..60).map(|n| format!("#define A{n} A{0} A{0}\n", n + 1)).collect::<String>();
    let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n";
    let texts = [
        ("bodies.cu", format!("{main}{}", "__global__{".repeat(200_000))),
        ("words.cu", format!("{main}{}", "__global__ ".repeat(200_000))),
        ("brackets.cu", format!("{main}{}", "__global__ k(".repeat(200_000))),
        ("kernels.cu", main.to_owned() + &many(&|n| format!("__global__ void k{n}() {{}}\n"))),
        ("includes.cu", main.to_owned() + &many(&|n| format!("#include \"h{n}.h\"\n"))),
        ("macros.cu", format!("{macros}__global__ void k(float *x, int n) {{ A0 }}\n")),
        ("calls.cu", format!("#define f(x) x\n__global__ void k() {{ {} }}", "f(".repeat(200_000))),
        ("branches.cu", format!("{}__global__ void k() {{}}", "#if 1\nint x;\n".repeat(100_000))),
        ("names.cu", many(&|n| format!("#include \"h{n}.h\"\n")) + "__global__ void k() {}\n"),
        ("open.ptx", format!("{ptx}{}", ".visible .entry k(".repeat(200_000))),
        ("many.ptx", ptx.to_owned() + &many(&|n| format!(".entry k{n}() {{ ret; }}\n"))),
    ];
    for (name, text) in texts {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        let start = Instant::now();
        if let Ok(super::Found::Kernel(found)) = read(&path) {
            let _ = found.spec.sources(&KernelFolders::default());
        }
        let took = start.elapsed();
        assert!(took < Duration::from_secs(20), "{name} took {took:?}");
    }
}

#[test]
fn the_names_above_a_folder_are_looked_for_a_limited_number_of_times() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("Makefile"), "app: a.cu\n\tnvcc a.cu\n").unwrap();
    fs::write(dir.path().join("a.cu"), "int main() {}\n").unwrap();
    let names: String = (0..60_000).map(|n| format!("\"../a{n}/../b\" ")).collect();
    for number in 0..40 {
        fs::write(dir.path().join(format!("{number}.h")), &names).unwrap();
    }
    let start = Instant::now();
    read(dir.path()).unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn a_device_is_no_source() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["zero.cu", "zero.py", "zero.cuh"] {
        let path = dir.path().join(name);
        symlink("/dev/zero", &path).unwrap();
        assert!(matches!(read(&path), Err(KernelError::Unreadable { .. })), "{name}");
    }
}

#[test]
fn files_that_another_user_put_beside_or_above_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let task = "lang: py\nfiles:\n  - {name: submission.py, source: \"@SUBMISSION@\"}\n  \
                - {name: reference.py, source: reference.py}\ntests:\n  - {seed: 1}\n";
    let toml = "name = 'theirs'\nlanguage = 'cuda'\nsource = 'k.cu'\nentry = { device = 'k' }\n\
                [[arg]]\nname = 'x'\ndtype = 'f32'\nrole = 'inout'\nshape = [1]\n\
                [launch]\ngrid = [1]\nblock = [256]\n";
    let inputs = "def get_inputs(): pass\ndef get_init_inputs(): pass\n";
    for (name, text) in [
        ("reference.py", "def generate_input(seed): pass\ndef ref_kernel(x): pass\n"),
        ("own/sub.py", "def custom_kernel(x): pass\n"),
        ("own/level_1_problem_1.py", "class ModelNew: pass\n"),
        ("own/k.cu", "__global__ void k(float *x) { x[0] = 1; }\n"),
        ("task.yml", task),
        ("level1/1_x.py", &format!("class Model: pass\n{inputs}")),
        ("own/kernel.toml", toml),
    ] {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), text).unwrap();
    }
    let spec = |name: &str| -> Option<KernelSpec> {
        let found = find(path(name).to_str().unwrap(), &KernelFolders::default());
        found.ok().map(|found| found.spec)
    };
    let counts = || {
        [
            spec("own/sub.py").is_some_and(|spec| spec.task.is_some()),
            spec("own/level_1_problem_1.py").is_some_and(|spec| spec.reference.is_some()),
            spec("own/k.cu").is_some_and(|spec| spec.file.is_some()),
        ]
    };
    assert_eq!(counts(), [true; 3]);
    for name in ["task.yml", "level1/1_x.py", "own/kernel.toml"] {
        if chown(path(name), Some(65534), None).is_err() {
            eprintln!("skipped: only root can make files of other users");
            return;
        }
    }
    assert_eq!(counts(), [false; 3]);
}
