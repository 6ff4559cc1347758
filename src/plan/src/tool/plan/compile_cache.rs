//! Wraps a compile command in a script that reuses its output if the host has it in its cache.

use rgpu_protocol::DiagnosisRule;
use rgpu_protocol::plan::Arg;
use sha2::{Digest, Sha256};

use super::draft::BundleFile;
use super::message_rows::{NextRungs, table};
use crate::tool::nvcc;

/// The script that keeps a compiler's output under a key.
const COMPILE_ONCE_SCRIPT: &str = rgpu_harness::COMPILE_ONCE;
const COMPILE_ONCE_PATH: &str = "bin/compile_once.sh";

/// Wraps `argv`, which makes the file `out` in the job's folder, so that it runs only if the same
/// command has not made it on that host from the same `inputs` before. Returns the command and the
/// file that it needs. `inputs` is `None` if the inputs are not all known: the command then always
/// runs, and nothing is cached.
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
        // Without a key nothing is kept.
        None => String::new(),
    };
    if key.is_empty() {
        let mut always: Vec<Arg> = vec!["sh".into(), "-c".into()];
        always.push("mkdir -p \"${1%/*}\" && shift && exec \"$@\"".into());
        always.extend(["sh".into(), Arg::in_job(out)]);
        always.extend(argv);
        return (always, None);
    }
    let mut once: Vec<Arg> = vec!["sh".into(), Arg::in_job(COMPILE_ONCE_PATH), key.into()];
    once.push(Arg::in_job(out));
    once.extend(argv);
    (once, Some(BundleFile::text(COMPILE_ONCE_PATH, COMPILE_ONCE_SCRIPT)))
}

/// The meanings of messages of nvcc and the host compiler.
pub fn compiler_rows() -> Vec<DiagnosisRule> {
    table(nvcc::MESSAGE_ROWS, NextRungs::default())
}
