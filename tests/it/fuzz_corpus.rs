//! Replays the corpora of the fuzz targets (`fuzz/corpus/`) through the targets themselves, with a
//! stable compiler. A target without a corpus, or without a line here, fails.

#![expect(unused_attributes, reason = "`no_main` is for the programs that cargo-fuzz makes")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

// The targets, as cargo-fuzz builds them.
#[path = "../../fuzz/fuzz_targets/agent.rs"]
mod agent;
#[path = "../../fuzz/fuzz_targets/client.rs"]
mod client;
#[path = "../../fuzz/fuzz_targets/container.rs"]
mod container;
#[path = "../../fuzz/fuzz_targets/csv.rs"]
mod csv;
#[path = "../../fuzz/fuzz_targets/cubin.rs"]
mod cubin;
#[path = "../../fuzz/fuzz_targets/fatbin.rs"]
mod fatbin;
#[path = "../../fuzz/fuzz_targets/layout.rs"]
mod layout;
#[path = "../../fuzz/fuzz_targets/logs.rs"]
mod logs;
#[path = "../../fuzz/fuzz_targets/ncu_rep.rs"]
mod ncu_rep;
#[path = "../../fuzz/fuzz_targets/nsys_rep.rs"]
mod nsys_rep;
#[path = "../../fuzz/fuzz_targets/nsys_sqlite.rs"]
mod nsys_sqlite;
#[path = "../../fuzz/fuzz_targets/predict.rs"]
mod predict;
#[path = "../../fuzz/fuzz_targets/sanitizer.rs"]
mod sanitizer;
#[path = "../../fuzz/fuzz_targets/sass.rs"]
mod sass;
#[path = "../../fuzz/fuzz_targets/sass_text.rs"]
mod sass_text;
#[path = "../../fuzz/fuzz_targets/torch_trace.rs"]
mod torch_trace;

/// Stands in for libfuzzer's macro: the target becomes a function of its input. It is below the
/// targets, so that they find it only under the name that they import.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: &[u8]| $body:expr) => {
        pub(crate) fn run($input: &[u8]) {
            $body
        }
    };
    (|$input:ident: &str| $body:expr) => {
        pub(crate) fn run(bytes: &[u8]) {
            // As libfuzzer does: the text up to its first damage.
            let $input = match std::str::from_utf8(bytes) {
                Ok(text) => text,
                Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap(),
            };
            $body
        }
    };
}

type Target = fn(&[u8]);

const TARGETS: &[(&str, Target)] = &[
    ("agent", agent::run),
    ("client", client::run),
    ("container", container::run),
    ("csv", csv::run),
    ("cubin", cubin::run),
    ("fatbin", fatbin::run),
    ("layout", layout::run),
    ("logs", logs::run),
    ("ncu_rep", ncu_rep::run),
    ("nsys_rep", nsys_rep::run),
    ("nsys_sqlite", nsys_sqlite::run),
    ("predict", predict::run),
    ("sanitizer", sanitizer::run),
    ("sass", sass::run),
    ("sass_text", sass_text::run),
    ("torch_trace", torch_trace::run),
];

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(name)
}

fn names(folder: PathBuf) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: fs::DirEntry| entry.path().file_stem().unwrap().to_str().unwrap().to_owned();
    entries.map(|entry| name(entry.unwrap())).collect()
}

#[test]
fn every_fuzz_target_is_replayed_here_and_built_by_cargo_fuzz() {
    let listed: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(listed, names(folder("fuzz_targets")));
    assert_eq!(listed, names(folder("corpus")), "a target without a corpus, or the reverse");
    let manifest = fs::read_to_string(folder("Cargo.toml")).unwrap();
    let built = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"));
    let built: BTreeSet<String> =
        built.map(|path| path.trim_end_matches(".rs\"").to_owned()).collect();
    assert_eq!(listed, built);
}

#[test]
fn what_fuzzing_found_worth_keeping_breaks_no_target() {
    for (name, run) in TARGETS {
        let files: Vec<_> = fs::read_dir(folder("corpus").join(name)).unwrap().collect();
        assert!(!files.is_empty(), "{name}");
        for file in files {
            let path = file.unwrap().path();
            let input = fs::read(&path).unwrap();
            eprintln!("{}", path.display());
            run(&input);
        }
    }
}
