//! The schemas of the files that users write: the files of this repository keep to them, and say
//! where they are.

use std::fs;
use std::path::Path;

use crate::laptop::{Laptop, status};

/// The schema of a file with this name.
fn schema(name: &str) -> Option<&'static str> {
    match name {
        "kernel.toml" => Some("kernel-toml"),
        "bench.toml" => Some("bench-toml"),
        _ => None,
    }
}

#[test]
fn the_files_of_the_repository_name_their_schema_and_keep_to_it() {
    let laptop = Laptop::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in walkdir::WalkDir::new(root.join("kernels")).into_iter().flatten() {
        let Some(schema) = schema(&entry.file_name().to_string_lossy()) else { continue };
        let text = fs::read_to_string(entry.path()).unwrap();
        let named = text.lines().next().and_then(|line| line.strip_prefix("#:schema "));
        let named = named.unwrap_or_else(|| panic!("{}: no schema", entry.path().display()));
        let named = entry.path().parent().unwrap().join(named).canonicalize().unwrap();
        assert_eq!(named, root.join(format!("schemas/{schema}.json")));
        let output = laptop.run(&format!("schema {schema} --check {}", entry.path().display()));
        assert_eq!(status(&output), 0, "{}", laptop.shown(schema, &output));
        count += 1;
    }
    assert!(count > 25, "{count}");
}

#[test]
fn what_rgpu_writes_names_its_schema_and_wrong_files_are_told() {
    let laptop = Laptop::new();
    laptop.write("k.cu", "extern \"C\" __global__ void k(float *a, int n) { if (n) a[0] = 1; }\n");
    laptop.show("kernels new k.cu");
    let text = fs::read_to_string(laptop.project("kernel.toml")).unwrap();
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("#:schema https://") && first.ends_with("kernel-toml.json"),
        "{first}"
    );

    let wrong = [
        (
            "kernel",
            "name = \"k\"\nlanguage = \"cuda\"\nsource = \"k.cu\"\nentry = { device = \"k\" }\nmodes = 1\n",
        ),
        (
            "kernel",
            "name = \"k\"\nlanguage = \"fortran\"\nsource = \"k.cu\"\nentry = { device = \"k\" }\n",
        ),
        ("rgpu", "[remote.box]\nurl = \"ssh://a\"\n"),
        ("rgpu", "[preset.x]\nsudo = true\n"),
        ("bench", "[[target]]\nkernel = \"vecadd\"\n"),
        ("loop", "kernel_path = \"k\"\nmax_wall_times = \"1h\"\n"),
        ("loop", "max_wall_time = \"1h\"\n"),
    ];
    let right = [
        (
            "rgpu",
            "default_remote = \"h200\"\n[preset.x]\nset = \"full\"\n[analysis]\nwaves_full = 2\n",
        ),
        (
            "bench",
            "[[target]]\nname = \"a:b\"\nkernel = \"vecadd\"\nmatrix = { sizes.n = \"1..8:x2\" }\n",
        ),
        (
            "loop",
            "kernel_path = \"k\"\nmax_wall_time = \"1h\"\ntarget = 2.0\nworker_timeout = 60\n",
        ),
    ];
    let files = wrong.iter().map(|file| (file, 7)).chain(right.iter().map(|file| (file, 0)));
    for ((name, text), expected) in files {
        let path = laptop.write(&format!("files/{name}.toml"), text);
        let line = format!("schema {name}-toml --check {}", path.display());
        let output = laptop.run(&line);
        assert_eq!(status(&output), expected, "{text}\n{}", laptop.shown(&line, &output));
    }
}
