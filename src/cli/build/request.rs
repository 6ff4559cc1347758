//! Turns the flags of `rgpu build` into a build request.

#![expect(clippy::disallowed_methods, reason = "a source that the user named")]

use std::path::{Path, PathBuf};

use super::args::{BuildArgs, EmitKind};
use crate::cli::support::app::App;
use crate::cli::support::kernel_folders::kernel_folders;
use crate::cli::support::missing;
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_plan::kernel::{
    CaseSelection, CudaInPython, ProfileMode, check_architecture, find, imports,
};
use rgpu_plan::tool::{
    self, BuildOptions, BuildProduct, Dsl, DslBuild, PlanPart, ProfileTarget, Request,
};
use rgpu_run::run::{BuildTarget, Emit};
use rgpu_run::store::{CaseSizes, InputsRecord, digest_file};

/// A resolved command line.
pub(super) struct BuildCommand {
    pub(super) target: BuildTarget,
    pub(super) name: String,
    pub(super) source: PathBuf,
    pub(super) emit: Emit,
    pub(super) assumptions: Vec<String>,
    pub(super) inputs: InputsRecord,
    /// The folder of a source that was taken out of another file, until the build has ended.
    pub(super) _scratch: Option<tempfile::TempDir>,
}

/// Default architecture of a DSL kernel: most such files are for Blackwell.
const DSL_ARCH: &str = "sm_100a";

/// Resolves the command line.
pub(super) fn resolve(app: &App, args: &BuildArgs) -> Result<BuildCommand> {
    for arch in &args.arch {
        check_architecture(arch)?;
    }
    let emit = emit(args);
    let options = split_options(args.compile_options.as_deref())?;
    match (&args.dsl, &args.kernel, &args.file) {
        (Some(dsl), _, Some(file)) => dsl_build(args, *dsl, Path::new(file), emit, options),
        (None, None, Some(file)) if is_python(file) && !Path::new(file).exists() => {
            Err(missing::file(file))
        }
        (None, None, Some(file)) if is_python(file) => {
            let path = Path::new(file);
            if let Some(command) = cuda_in_python(app, args, path, emit, &options)? {
                return Ok(command);
            }
            match imported_dsls(path).as_slice() {
                [dsl] => {
                    let mut command = dsl_build(args, *dsl, path, emit, options)?;
                    let name = dsl.name();
                    command.assumptions.insert(0, format!("--dsl {name}: `{file}` imports it"));
                    Ok(command)
                }
                [] => Err(imports_no_dsl(usage(format!("`{file}` imports no DSL to compile")))),
                _ => Err(with_dsl_hint(usage(format!("`{file}` imports several DSLs")), path)),
            }
        }
        (None, None, Some(file)) if is_not_compilable(file) => Err(not_compilable(file)),
        (None, Some(name), _) | (None, None, Some(name)) => {
            kernel_build(app, args, name, emit, options)
        }
        _ => Err(usage("nothing to build".to_owned()).hint("rgpu build --kernel vecadd")),
    }
}

/// The build of the CUDA C++ in the strings of a Python file. `None`: it has none, or kernels of a
/// DSL too, which go first.
fn cuda_in_python(
    app: &App,
    args: &BuildArgs,
    path: &Path,
    emit: Emit,
    options: &[String],
) -> Result<Option<BuildCommand>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let found = CudaInPython::find(&text, &name);
    let has_dsl_kernels = text.contains("jit") || text.contains(".kernel");
    if has_dsl_kernels && !imported_dsls(path).is_empty() && !compiles_nothing(&text) {
        return Ok(None);
    }
    if found.source.is_empty() {
        let Some(line) = found.computed_lines.first() else { return Ok(None) };
        let what = format!("the CUDA C++ of `{name}`, line {line}, is computed when the file runs");
        return Err(usage(what)
            .hint(format!("`rgpu profile {}` runs the file", shell_word(path.display())))
            .hint("or write the string without `{…}`, with `#define` for what changes"));
    }
    let disk = |e: std::io::Error| {
        Failure::new(Exit::Disk, "disk", "cannot write the code to compile").cause(e)
    };
    let scratch = tempfile::tempdir().map_err(disk)?;
    rgpu_model::agent_files::trust(scratch.path());
    let source = scratch.path().join(path.with_extension("cu").file_name().unwrap_or_default());
    std::fs::write(&source, &found.source).map_err(disk)?;
    let mut command =
        kernel_build(app, args, &source.display().to_string(), emit, options.to_vec())?;
    command.assumptions.splice(0..0, found.assumptions);
    command.assumptions.extend(found.computed_lines.iter().map(|line| {
        format!("the string of line {line} is left out: it is computed when the file runs")
    }));
    command.inputs.files = vec![digest(path)?];
    command.source = path.to_owned();
    command._scratch = Some(scratch);
    Ok(Some(command))
}

fn usage(what: String) -> Failure {
    Failure::new(Exit::Usage, "usage", what)
}

fn is_python(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "py")
}

/// Whether the file's extension is one that `build` cannot compile.
fn is_not_compilable(file: &str) -> bool {
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| !["cu", "py", "toml"].contains(&extension))
}

/// The failure for such a file, naming the command that takes it.
fn not_compilable(file: &str) -> Failure {
    let failure = usage(format!("`{file}` is not a kind of file that build compiles"));
    let word = shell_word(file);
    let failure = match Path::new(file).extension().and_then(|extension| extension.to_str()) {
        Some("rs" | "sh") => failure.hint(format!("to run it: rgpu exec {word}")),
        Some("cubin" | "fatbin" | "ptx" | "so") => {
            failure.hint(format!("it is compiled already; to show its code: rgpu disasm {word}"))
        }
        _ => failure,
    };
    failure.hint(
        "build takes a .cu, a .py with `--dsl cute` or `--dsl triton`, a kernel.toml, or the name of a kernel",
    )
}

/// The DSLs that a Python file imports. Empty if the file cannot be read.
fn imported_dsls(file: &Path) -> Vec<Dsl> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let imports = imports(&text);
    let known = [("cutlass", Dsl::Cute), ("triton", Dsl::Triton)];
    let dsls = known
        .into_iter()
        .filter(|(module, _)| imports.iter().any(|import| import.top_level() == *module));
    dsls.map(|(_, dsl)| dsl).collect()
}

/// Adds the command for each DSL that a Python file imports, or says that there is nothing to
/// compile.
fn with_dsl_hint(failure: Failure, file: &Path) -> Failure {
    let dsls = imported_dsls(file);
    if dsls.is_empty() {
        return imports_no_dsl(failure);
    }
    let word = shell_word(file.display());
    dsls.into_iter().fold(failure, |failure, dsl| {
        failure.hint(format!("rgpu build {word} --dsl {}", dsl.name()))
    })
}

/// Adds what to do with a Python file that imports no DSL.
fn imports_no_dsl(failure: Failure) -> Failure {
    failure
        .hint("it imports neither `triton` nor `cutlass`: there is nothing to compile ahead in it")
        .hint(
            "what torch launches shows under: rgpu profile --kernel NAME, or rgpu exec FILE --mode nsys",
        )
}

fn emit(args: &BuildArgs) -> Emit {
    let has = |kind| args.emit.contains(&kind);
    Emit { ptx: has(EmitKind::Ptx), cubin: has(EmitKind::Cubin), sass: has(EmitKind::Sass) }
}

fn keep_ir(args: &BuildArgs) -> bool {
    args.keep_ir || args.emit.contains(&EmitKind::Ir)
}

/// Whether machine code is generated.
fn makes_cubin(emit: Emit) -> bool {
    emit.cubin || emit.sass || !emit.ptx
}

/// Splits options as a shell would. No shell is involved.
fn split_options(text: Option<&str>) -> Result<Vec<String>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    shlex::split(text)
        .ok_or_else(|| usage(format!("`--compile-options`: a quote is not closed in `{text}`")))
}

fn kernel_build(
    app: &App,
    args: &BuildArgs,
    name: &str,
    emit: Emit,
    options: Vec<String>,
) -> Result<BuildCommand> {
    let of_dsl = [("--log-level", args.log_level.is_some()), ("--print-ir", args.print_ir)];
    if let Some((flag, _)) = of_dsl.iter().find(|(_, given)| *given) {
        return Err(usage(format!("`{flag}` is for the kernels of a DSL")).hint(
            "nvcc prints more with `--compile-options='--dryrun'`, ptxas with `-Xptxas=-v`",
        ));
    }
    let mut loaded = find::find_to_compile(name, &kernel_folders(app)).map_err(Failure::from)?;
    if !args.problem_sizes.is_empty() && loaded.spec.file.is_none() {
        // `--problem-sizes` needs a kernel with sizes.
        loaded = find::find(name, &kernel_folders(app)).map_err(Failure::from)?;
    }
    let spec = loaded.spec;
    if spec.language != "cuda" {
        let what = format!("`{}` is a kernel in {}", spec.name, spec.language);
        return Err(with_dsl_hint(usage(what), &spec.source));
    }
    let selection = if args.problem_sizes.is_empty() {
        CaseSelection::Default
    } else {
        CaseSelection::Given(args.problem_sizes.clone())
    };
    let cases = spec.cases(&selection).map_err(Failure::from)?;
    let sizes = cases.iter().map(|case| CaseSizes {
        name: case.name.clone(),
        vars: case.vars.clone(),
        groups: case.groups.iter().map(|group| group.sizes.clone()).collect(),
    });
    let inputs = InputsRecord {
        schema: "rgpu.inputs/1".to_owned(),
        seed: 0,
        cases: sizes.collect(),
        files: spec.files().iter().map(|path| digest(path)).collect::<Result<_>>()?,
    };
    let sources = spec.sources(&kernel_folders(app)).map_err(Failure::from)?;
    let target = ProfileTarget::Kernel { spec: Box::new(spec.clone()), sources, cases, seed: 0 };
    let mut request = Request::new(ProfileMode::Verify, target);
    request.part = PlanPart::Build;
    request.arch = args.arch.first().cloned();
    request.timeout_s = args.timeout.as_secs().max(1);
    let level = args.opt_level.map(|level| format!("-Xptxas=-O{level}"));
    request.build = BuildOptions {
        output: if makes_cubin(emit) { BuildProduct::Cubin } else { BuildProduct::Ptx },
        keep_ir: keep_ir(args),
        flags: level.into_iter().chain(options).collect(),
        fetch: args.yes,
        fetch_here: false,
    };
    Ok(BuildCommand {
        target: BuildTarget::Kernel(Box::new(request)),
        name: spec.name,
        source: spec.source,
        emit,
        assumptions: loaded.assumptions,
        inputs,
        _scratch: None,
    })
}

fn dsl_build(
    args: &BuildArgs,
    dsl: Dsl,
    file: &Path,
    emit: Emit,
    options: Vec<String>,
) -> Result<BuildCommand> {
    if !is_python(&file.display().to_string()) {
        return Err(usage(format!("`{}` is not a Python file", file.display()))
            .hint("`--dsl` takes a .py; a .cu is built without it"));
    }
    let cases = cases(&args.problem_sizes)?;
    let inputs = InputsRecord {
        schema: "rgpu.inputs/1".to_owned(),
        seed: 0,
        cases: Vec::new(),
        files: vec![digest(file)?],
    };
    if compiles_nothing(&std::fs::read_to_string(file).unwrap_or_default()) {
        let reason = tool::reason(NOTHING_COMPILED);
        return Err(Failure::new(Exit::Kernel, NOTHING_COMPILED, reason.title)
            .file(file.display())
            .hint(reason.help));
    }
    let build = DslBuild {
        dsl,
        file: file.to_owned(),
        arch: args.arch.first().cloned().unwrap_or_else(|| DSL_ARCH.to_owned()),
        cases,
        cubin: makes_cubin(emit),
        keep_ir: keep_ir(args),
        opt_level: args.opt_level,
        options,
        log_level: args.log_level.map(super::args::LogLevel::number),
        print_ir: args.print_ir,
        timeout_s: args.timeout.as_secs().max(1),
        log_bytes: None,
    };
    let assumed = args.arch.is_empty().then(|| format!("compiled for {DSL_ARCH}"));
    Ok(BuildCommand {
        name: build.stem(),
        source: file.to_owned(),
        target: BuildTarget::Dsl(build),
        emit,
        assumptions: assumed.into_iter().collect(),
        inputs,
        _scratch: None,
    })
}

/// The code of the failure for a file that compiles no kernel, as of the host.
const NOTHING_COMPILED: &str = "nothing_compiled";

/// Whether a file has kernels of a DSL and nothing in it could compile them. The host looks closer,
/// but only after it has fetched the DSL.
fn compiles_nothing(text: &str) -> bool {
    let has = |word: &str| text.contains(word);
    let has_kernels = has("jit") || has(".kernel");
    // A star import may bring `compile_kernel`.
    has_kernels && !has("compile") && !has("warmup") && !has("import *")
}

fn digest(path: &Path) -> Result<rgpu_run::store::InputDigest> {
    digest_file(path).map_err(|e| {
        let failure = Failure::new(Exit::Config, "missing_source", "the source cannot be read");
        missing::file_or(path, &e, failure)
    })
}

/// Parses cases of groups of integers: `|` separates cases, `;` groups, `,` values.
fn cases(flags: &[String]) -> Result<Vec<Vec<Vec<i64>>>> {
    let value = |text: &str| {
        text.trim().replace('_', "").parse::<i64>().map_err(|_| {
            Failure::new(
                Exit::Config,
                "bad_sizes",
                format!("`{}` in `--problem-sizes` is not a whole number", text.trim()),
            )
            .hint("a DSL file has no names for its sizes: '80,4096,7168,1;40,7168,2048,1'")
        })
    };
    let group = |text: &str| text.split(',').map(value).collect::<Result<Vec<i64>>>();
    let case = |text: &str| text.split(';').map(group).collect::<Result<Vec<_>>>();
    flags.iter().flat_map(|flag| flag.split('|')).map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_files_that_are_not_compiled_are_told_from_kernels() {
        for file in ["bad.rs", "notes.txt", "a.cubin", "dir/x.cuh"] {
            assert!(is_not_compilable(file), "{file}");
        }
        for name in ["vecadd", "a.cu", "a.py", "kernels/x/kernel.toml", "kernels/vecadd", "."] {
            assert!(!is_not_compilable(name), "{name}");
        }
        assert!(not_compilable("bad.rs").hints.concat().contains("rgpu exec bad.rs"));
    }

    #[test]
    fn a_file_with_kernels_and_without_a_compile_function_is_known_before_anything_is_fetched() {
        let kernel = "import triton\n@triton.jit\ndef add(x):\n    pass\n";
        assert!(compiles_nothing(kernel));
        let compiled = [
            "def compile_kernel(sizes):\n    return add\n",
            "from kernels import compile_kernel\n",
            "from kernels import *\n",
            "add.warmup(grid=(1,))\n",
        ];
        for more in compiled {
            assert!(!compiles_nothing(&format!("{kernel}{more}")), "{more}");
        }
        assert!(!compiles_nothing("import kernels\n"), "another module may do it");
    }

    #[test]
    fn sizes_of_a_dsl_file_are_cases_of_groups() {
        let of = |text: &str| cases(&[text.to_owned()]);
        assert_eq!(of("1,2;3,4").unwrap(), [[[1, 2], [3, 4]]]);
        assert_eq!(of("1|2_000").unwrap(), [[[1]], [[2000]]]);
        assert_eq!(of("m=1").unwrap_err().code, "bad_sizes");
        assert!(cases(&[]).unwrap().is_empty());
    }
}
