//! Memory pools of Python's frameworks under memcheck: a pool takes large blocks from CUDA and
//! divides them itself. memcheck knows only the blocks, so it misses an overrun from one array into
//! the next.

use rgpu_protocol::plan::Arg;

use rgpu_model::sanitizer::{CheckTool, SanitizerResult, SanitizerVerdict};
use rgpu_plan::tool::{ProfileTarget, python_program_word, runs_python};

/// Variables that turn off the pool of PyTorch and of JAX. CuPy has none.
const VARIABLES: [&str; 2] = ["PYTORCH_NO_CUDA_MEMORY_CACHING", "XLA_PYTHON_CLIENT_ALLOCATOR"];

const NOTE: &str = "overruns inside a memory pool of PyTorch, JAX or CuPy are not seen; without the \
                    pool: `-- env PYTORCH_NO_CUDA_MEMORY_CACHING=1 python3 …` (PyTorch, not with CUDA \
                    graphs) or `-- env XLA_PYTHON_CLIENT_ALLOCATOR=platform python3 …` (JAX), or in the \
                    program `cupy.cuda.set_allocator(None)` (CuPy)";

/// Says with the clean results of memcheck that overruns inside a pool are not seen, if the program
/// may have one.
pub(super) fn add_notes(results: &mut [SanitizerResult], target: &ProfileTarget) {
    if !may_have_pool(target) {
        return;
    }
    let clean = |result: &&mut SanitizerResult| {
        result.tool == CheckTool::Memcheck && result.verdict == SanitizerVerdict::Clean
    };
    for result in results.iter_mut().filter(clean) {
        let known = std::mem::take(&mut result.note);
        result.note = if known.is_empty() { NOTE.to_owned() } else { format!("{known}; {NOTE}") };
    }
}

/// Whether a program runs Python, and its command turns no pool off.
fn may_have_pool(target: &ProfileTarget) -> bool {
    let ProfileTarget::Program(program) = target else { return false };
    let word = |arg: &'_ Arg| match arg {
        Arg::Text(text) => text.clone(),
        Arg::InJob { in_job, .. } => in_job.clone(),
    };
    let words: Vec<String> = program.argv.iter().map(word).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_python = runs_python(target) || python_program_word(&words).is_some();
    let turns_off = |name: &&str| {
        program.env.contains_key(*name)
            || words.iter().any(|word| word.split('=').next() == Some(*name))
    };
    is_python && !VARIABLES.iter().any(turns_off)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_plan::tool::Program;

    fn note(command: &str, env: &[&str], verdict: SanitizerVerdict, known: &str) -> String {
        let program = Program {
            argv: command.split(' ').map(Arg::text).collect(),
            env: env.iter().map(|name| ((*name).to_owned(), Arg::text("1"))).collect(),
            ..Program::default()
        };
        let mut results = [SanitizerResult {
            tool: CheckTool::Memcheck,
            verdict,
            note: known.to_owned(),
            ..SanitizerResult::default()
        }];
        add_notes(&mut results, &ProfileTarget::Program(program));
        let [result] = results;
        result.note
    }

    #[test]
    fn a_clean_program_in_python_may_have_overruns_inside_a_pool() {
        let clean = |command| note(command, &[], SanitizerVerdict::Clean, "");
        for command in ["python3 train.py", "./train.py", "torchrun --nproc-per-node 2 train.py"] {
            assert_eq!(clean(command), NOTE, "{command}");
        }
        assert_eq!(clean("env A=1 python3 train.py"), NOTE);
        let told = note("python3 a.py", &[], SanitizerVerdict::Clean, "2 calls are not counted");
        assert!(told.starts_with("2 calls are not counted; overruns inside"), "{told}");
    }

    #[test]
    fn nothing_is_said_of_other_programs_other_verdicts_or_without_the_pool() {
        for command in [
            "./app train",
            "env PYTORCH_NO_CUDA_MEMORY_CACHING=1 python3 train.py",
            "env XLA_PYTHON_CLIENT_ALLOCATOR=platform python3 train.py",
        ] {
            assert_eq!(note(command, &[], SanitizerVerdict::Clean, ""), "", "{command}");
        }
        let env = ["PYTORCH_NO_CUDA_MEMORY_CACHING"];
        assert_eq!(note("python3 train.py", &env, SanitizerVerdict::Clean, ""), "");
        assert_eq!(note("python3 train.py", &[], SanitizerVerdict::Found, ""), "");
    }
}
