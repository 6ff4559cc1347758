//! CUDA C++: a `.cu` file with a `main`, compiled by nvcc on the host. An unchanged text is not
//! compiled again. NVRTC compiles no `main`; kernels without one are for `rgpu build`.

use rgpu_protocol::HostFacts;
use rgpu_protocol::plan::Arg;

use super::super::{ExecError, Snippet, WORK_FOLDER};
use super::{BuildTools, Language, has_line};
use crate::kernel::sources::NvccBuild;
use crate::tool::{
    BuildSteps, BundleFile, NvccStep, PROGRAM_PATH, Program, compile_steps, lacks_for_wheels,
    native,
};
use rgpu_model::error::shell_word;

pub(super) struct Cuda;

impl Language for Cuda {
    fn name(&self) -> &'static str {
        "CUDA C++"
    }

    fn names(&self) -> &'static [&'static str] {
        &["cu", "cuda", "cpp", "cc", "cxx", "c++"]
    }

    fn fits(&self, text: &str) -> bool {
        text.contains("__global__") || has_line(text, &["#include", "#pragma"])
    }

    fn is_library(&self, snippet: &Snippet) -> bool {
        let text = String::from_utf8_lossy(&snippet.source);
        !has_main(&text) && text.contains("__global__")
    }

    fn needs_facts(&self) -> bool {
        true
    }

    fn program(&self, snippet: &Snippet, tools: &BuildTools<'_>) -> Result<Program, ExecError> {
        let text = String::from_utf8_lossy(&snippet.source);
        if !has_main(&text) {
            return Err(ExecError::NoMain {
                name: snippet.name.clone(),
                file: snippet.typed_argument(),
            });
        }
        let mounted = snippet.absolute_path.as_ref().and_then(|path| tools.mounts.place_of(path));
        let path = mounted.unwrap_or_else(|| format!("src/{}", snippet.name));
        let nvcc = NvccBuild {
            sources: Vec::new(),
            flags: Vec::new(),
            // A mount may contain headers that the file includes, so the program is then compiled
            // each time.
            inputs: tools
                .mounts
                .files
                .is_empty()
                .then(|| rgpu_protocol::Digest::sha256(&snippet.source).as_str().to_owned()),
        };
        let Some(facts) = tools.facts else { return Err(no_compiler(snippet, None)) };
        let step = NvccStep {
            title: format!("compile {}", snippet.name),
            facts,
            // The suffix enables features that only this generation of GPUs has.
            arch: facts.gpus.first().map(|gpu| native(gpu.sm)),
            may_fetch: tools.may_fetch_nvcc,
            timeout_s: tools.timeout_s,
        };
        let Some(BuildSteps { steps, files }) =
            compile_steps(std::slice::from_ref(&path), &nvcc, &step)
        else {
            return Err(no_compiler(snippet, Some(facts)));
        };
        let mut argv = vec![Arg::in_job(PROGRAM_PATH)];
        argv.extend(tools.args.iter().cloned().map(Arg::from));
        Ok(Program {
            name: snippet.name.clone(),
            argv,
            files: std::iter::once(BundleFile::text(path, snippet.source.clone()))
                .chain(files)
                .collect(),
            cwd: WORK_FOLDER.to_owned(),
            prepare: steps,
            ..Program::default()
        })
    }
}

/// The error that a host cannot compile a program.
fn no_compiler(snippet: &Snippet, facts: Option<&HostFacts>) -> ExecError {
    let remote = facts.map_or("NAME", |facts| &facts.remote);
    let is_here = remote == "local";
    let compiled_here = if is_here { String::new() } else { compile_here_hint(snippet, remote) };
    let lacks = facts.map(lacks_for_wheels).unwrap_or_default().join(" and ");
    let first =
        if lacks.is_empty() { String::new() } else { format!("install {lacks} there, then ") };
    ExecError::NoCompiler {
        problem: format!("the host has no nvcc to compile `{}`", snippet.name),
        hint: format!(
            "a program with a `main` needs nvcc: {first}`rgpu build --kernel vecadd --remote {remote} --yes` allows rgpu to fetch it there, and this command then does; or install the CUDA toolkit, or name its `bin` in the remote's `path`{compiled_here}"
        ),
    }
}

/// How to compile the file on this machine and run the program on a host without nvcc.
fn compile_here_hint(snippet: &Snippet, remote: &str) -> String {
    let file = snippet.typed_argument();
    let (remote, program) = (shell_word(remote), shell_word(snippet.stem()));
    let start = shell_word(format_args!("./{}", snippet.stem()));
    format!(
        "; or compile it on this machine and send the program: `nvcc -o {program} {file} && rgpu exec --remote {remote} --mount {program} -- {start}`"
    )
}

/// Whether a `main` is defined: the word followed by a parenthesis, not in a line comment. The
/// preprocessor is not considered.
fn has_main(text: &str) -> bool {
    text.match_indices("main").any(|(at, word)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].trim_start();
        let line = text[..at].rsplit('\n').next().unwrap_or_default().trim_start();
        before.is_none_or(|c| c.is_whitespace())
            && after.starts_with('(')
            && !line.starts_with("//")
            && !line.starts_with('*')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_nvcc_compiles_with_the_wheels_that_the_user_agreed_to() {
        let snippet = Snippet {
            language: &Cuda,
            name: "a.cu".to_owned(),
            source: b"int main() {}".to_vec(),
            typed_path: None,
            absolute_path: None,
            script_env: Default::default(),
        };
        let mut facts = crate::tool::assumed("box", "x86_64");
        facts.tools.retain(|tool| tool.name != "nvcc");
        let mounts = crate::exec::Snapshot::default();
        let mut tools = BuildTools {
            facts: Some(&facts),
            built: Err(String::new()),
            mounts: &mounts,
            args: &[],
            timeout_s: 60,
            may_fetch_nvcc: false,
        };
        let refused = Cuda.program(&snippet, &tools).unwrap_err();
        let ExecError::NoCompiler { hint, .. } = refused else { panic!("{refused:?}") };
        assert!(hint.ends_with("`nvcc -o a FILE && rgpu exec --remote box --mount a -- ./a`"));
        tools.may_fetch_nvcc = true;
        let program = Cuda.program(&snippet, &tools).unwrap();
        let steps: Vec<_> =
            program.prepare.iter().map(|step| (&*step.id, &*step.rungs[0].id)).collect();
        assert_eq!(steps, [("python", "python"), ("build", "build.wheels")]);
        let argv = format!("{:?}", program.prepare[1].rungs[0].argv);
        assert!(argv.contains("bin/wheel_tool.py") && argv.contains("nvcc"), "{argv}");
        assert!(program.files.iter().any(|file| file.path == "bin/wheel_tool.py"));
    }

    #[test]
    fn a_main_is_found_where_one_is_defined() {
        for yes in
            ["int main() {}", "int\nmain (int argc, char** argv)\n{}", "auto main() -> int {}"]
        {
            assert!(has_main(yes), "{yes}");
        }
        for no in ["__global__ void domain(int) {}", "// int main()", "int mainly() {}", "x.main()"]
        {
            assert!(!has_main(no), "{no}");
        }
    }
}
