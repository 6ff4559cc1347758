//! Compiling on a host what was compiled there before: not at all.

use rgpu_protocol::Diagnosis;
use rgpu_protocol::plan::Arg;
use sha2::{Digest, Sha256};

use super::draft::BundleFile;
use super::message_rows::{NextRungs, table};
use crate::tool::nvcc;

/// Keeps what a compiler made under a key.
const ONCE: &str = include_str!("../../../harness/templates/compile_once.sh");
const ONCE_PATH: &str = "bin/compile_once.sh";

/// `argv`, which makes `out` in the job's folder, as a command that runs it only if the same argv
/// has not made it from the same `inputs` on that host before; with the file that it needs.
/// Without inputs (what is made depends on more than can be told) it runs always.
pub fn compile_once(
    argv: Vec<Arg>,
    out: &str,
    inputs: Option<&[&[u8]]>,
) -> (Vec<Arg>, Option<BundleFile>) {
    let mut hash = Sha256::new();
    for word in &argv {
        hash.update(word.resolve(""));
        hash.update([0]);
    }
    for input in inputs.unwrap_or_default() {
        hash.update(input.len().to_le_bytes());
        hash.update(input);
    }
    let digest = rgpu_protocol::Digest::from_bytes(&hash.finalize().into());
    let key = match inputs {
        Some(_) => digest.as_str().chars().take(32).collect(),
        // No other job has this name.
        None => String::new(),
    };
    if key.is_empty() {
        let mut always: Vec<Arg> = vec!["sh".into(), "-c".into()];
        always.push("mkdir -p \"${1%/*}\" && shift && exec \"$@\"".into());
        always.extend(["sh".into(), Arg::in_job(out)]);
        always.extend(argv);
        return (always, None);
    }
    let mut once: Vec<Arg> = vec!["sh".into(), Arg::in_job(ONCE_PATH), key.into()];
    once.push(Arg::in_job(out));
    once.extend(argv);
    (once, Some(BundleFile::text(ONCE_PATH, ONCE)))
}

/// What the words of nvcc and of the host's compiler mean.
pub fn compiler_rows() -> Vec<Diagnosis> {
    table(nvcc::ROWS, NextRungs::default())
}
