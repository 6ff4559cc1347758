//! CUDA C++.
//!
//! A bare .cu file is profiled without a kernel.toml if it is unambiguous: exactly one `__global__`
//! function, no template, no `main`, no dynamic shared memory, one axis of threads, and parameters
//! that are pointers to known element types, any number of floating-point scalars, and at most one
//! integer. Then the integer is the number of elements `n`; every array has `n` elements; a `const`
//! pointer is an input, and any other is read and written; arrays get random values, and
//! floating-point scalars are 1; a block has 256 threads (or the number in `__launch_bounds__`),
//! and the grid covers `n`. All of this is printed with the result.

use std::fmt::Write;
use std::path::Path;

use rgpu_case::{Dtype, Init, Number, Role};

use super::super::cuda_scanner::{GlobalFunction, Param, ParamKind, ScannedSource, scan};
use super::super::expr::{Expr, Grammar};
use super::super::spec::{
    ArgSpec, DeclaredWork, EntryPoint, LaunchSpec, NamedCase, ScalarValue, Sizes,
};
use super::super::{KernelError, KernelSpec, name_of};
use super::Language;

/// Elements of each array of a bare kernel: enough to fill any GPU.
const DEFAULT_ELEMENTS: i64 = 1 << 24;

/// Threads per block if the source does not say.
const DEFAULT_BLOCK_THREADS: u32 = 256;

/// Kernels in CUDA C++.
pub(super) struct Cuda;

impl Language for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn extension(&self) -> &'static str {
        "cu"
    }

    fn infer(&self, file: &Path, text: &str) -> Result<(KernelSpec, Vec<String>), KernelError> {
        let source = scan(text);
        let not_inferred = |problem: String| KernelError::NotInferred {
            file: file.to_owned(),
            problem,
            instead: None,
        };
        let function = only_function(file, &source)?;
        if source.dynamic_shared {
            return Err(not_inferred(
                "it uses dynamic shared memory, whose size is unknown".to_owned(),
            ));
        }
        if source.several_axes {
            return Err(not_inferred("it uses more than one axis of threads or blocks".to_owned()));
        }
        if function.template {
            return Err(not_inferred(format!("`{}` is a template", function.name)));
        }
        let length = length(function).map_err(not_inferred)?;
        let vars = vec!["n".to_owned()];
        let n = || Expr::parse("n", Grammar::Size, &vars);
        let invalid_expr = |error: super::super::expr::ExprError| not_inferred(error.to_string());
        let mut args = Vec::new();
        for param in &function.params {
            args.push(arg(param, n().map_err(invalid_expr)?).map_err(not_inferred)?);
        }
        let block = function.max_threads.unwrap_or(DEFAULT_BLOCK_THREADS);
        let grid = Expr::parse(&format!("ceil_div(n, {block})"), Grammar::Size, &vars)
            .map_err(invalid_expr)?;
        let spec = KernelSpec {
            name: name_of(file),
            language: "cuda",
            folder: file.parent().unwrap_or(Path::new("")).to_owned(),
            file: None,
            source: file.to_owned(),
            entry: EntryPoint::Device(function.name.clone()),
            mode: None,
            arch: Vec::new(),
            flags: Vec::new(),
            args,
            launch: Some(LaunchSpec {
                grid: vec![grid],
                block: vec![Expr::number(block.into())],
                cluster: None,
                shared: None,
            }),
            sizes: Sizes {
                vars,
                groups: false,
                cases: vec![NamedCase {
                    name: "large".to_owned(),
                    groups: vec![vec![DEFAULT_ELEMENTS]],
                    ..NamedCase::default()
                }],
                default: Some("large".to_owned()),
            },
            reference: None,
            work: DeclaredWork::default(),
            extra_files: Vec::new(),
            model: None,
            task: None,
        };
        let assumptions = assumptions(&spec, function, length, block);
        Ok((spec, assumptions))
    }

    fn compiled(&self, file: &Path, text: &str) -> Option<KernelSpec> {
        let source = scan(text);
        let first = source.functions.first()?;
        // NVRTC compiles no host code.
        let entry = if source.main || source.host_entry {
            EntryPoint::Host
        } else {
            EntryPoint::Device(first.name.clone())
        };
        Some(KernelSpec {
            name: name_of(file),
            language: "cuda",
            folder: file.parent().unwrap_or(Path::new("")).to_owned(),
            file: None,
            source: file.to_owned(),
            entry,
            mode: None,
            arch: Vec::new(),
            flags: Vec::new(),
            args: Vec::new(),
            launch: None,
            sizes: Sizes::default(),
            reference: None,
            work: DeclaredWork::default(),
            extra_files: Vec::new(),
            model: None,
            task: None,
        })
    }

    fn skeleton(&self, file: &Path, text: &str) -> Result<String, KernelError> {
        let source = scan(text);
        if source.host_entry {
            return Ok(host_skeleton(file));
        }
        match source.functions.first() {
            Some(function) if !source.main => Ok(device_skeleton(file, function, &source)),
            // This returns the error that explains the problem, or the only function.
            _ => only_function(file, &source).map(|f| device_skeleton(file, f, &source)),
        }
    }
}

fn only_function<'a>(
    file: &Path,
    source: &'a ScannedSource,
) -> Result<&'a GlobalFunction, KernelError> {
    let not_inferred = |problem: String, instead: Option<String>| {
        Err(KernelError::NotInferred { file: file.to_owned(), problem, instead })
    };
    match source.functions.as_slice() {
        _ if source.main => not_inferred(
            "it has its own `main`".to_owned(),
            Some("build it and profile the program: `rgpu profile -- ./app`".to_owned()),
        ),
        _ if source.host_entry => {
            not_inferred("it is a host entry, whose sizes are unknown".to_owned(), None)
        }
        [function] => Ok(function),
        [] => not_inferred(
            "it has no `__global__` function".to_owned(),
            Some("name a file that defines one".to_owned()),
        ),
        many => {
            let names: Vec<_> = many.iter().map(|f| f.name.as_str()).collect();
            not_inferred(format!("it has {} kernels: `{}`", many.len(), names.join("`, `")), None)
        }
    }
}

/// The integer parameter that is the number of elements; `None` if there is no integer parameter.
fn length(function: &GlobalFunction) -> Result<Option<&str>, String> {
    let integers: Vec<&str> = function
        .params
        .iter()
        .filter(|p| matches!(p.kind, ParamKind::Scalar(d) if !d.is_float() && d != Dtype::Bool))
        .map(|p| p.name.as_str())
        .collect();
    match integers.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        many => Err(format!(
            "`{}` has {} integer parameters (`{}`), so the extents of its arrays are unknown",
            function.name,
            many.len(),
            many.join("`, `")
        )),
    }
}

fn arg(param: &Param, n: Expr) -> Result<ArgSpec, String> {
    let scalar = |dtype, value| ArgSpec {
        name: param.name.clone(),
        dtype,
        role: Role::Scalar,
        shape: Vec::new(),
        init: None,
        value: Some(value),
    };
    match &param.kind {
        ParamKind::Pointer { dtype, constant } => Ok(ArgSpec {
            name: param.name.clone(),
            dtype: *dtype,
            role: role(*constant),
            shape: vec![n],
            init: Some(random(*dtype)),
            value: None,
        }),
        ParamKind::Scalar(dtype) if dtype.is_float() => {
            Ok(scalar(*dtype, ScalarValue::Number(Number::Float(1.0))))
        }
        ParamKind::Scalar(Dtype::Bool) => {
            Ok(scalar(Dtype::Bool, ScalarValue::Number(Number::Int(1))))
        }
        ParamKind::Scalar(dtype @ (Dtype::I64 | Dtype::I32 | Dtype::U64 | Dtype::U32)) => {
            Ok(scalar(*dtype, ScalarValue::Expr(n)))
        }
        ParamKind::Scalar(dtype) => {
            Err(format!("`{}` of type `{dtype}` is too narrow to be a length", param.name))
        }
        ParamKind::Other(text) => Err(format!("the type of the parameter `{text}` is unknown")),
    }
}

/// The role of an array: a declaration tells whether it may be written, not whether it is read.
fn role(constant: bool) -> Role {
    if constant { Role::In } else { Role::InOut }
}

fn random(dtype: Dtype) -> Init {
    match dtype {
        dtype if dtype.is_float() => Init::Uniform { lo: -1.0, hi: 1.0 },
        Dtype::Bool => Init::Ints { lo: 0, hi: 1 },
        _ => Init::Ints { lo: 0, hi: 100 },
    }
}

fn assumptions(
    spec: &KernelSpec,
    function: &GlobalFunction,
    length: Option<&str>,
    block: u32,
) -> Vec<String> {
    let names = |role| {
        let names: Vec<_> =
            spec.args.iter().filter(|a| a.role == role).map(|a| format!("`{}`", a.name)).collect();
        names.join(", ")
    };
    let mut lines = vec![match length {
        Some(length) => {
            format!("`{length}` is the number of elements of every array: {DEFAULT_ELEMENTS}")
        }
        None => format!("every array has {DEFAULT_ELEMENTS} elements"),
    }];
    let (inputs, both) = (names(Role::In), names(Role::InOut));
    if !inputs.is_empty() {
        lines.push(format!("inputs, with random values: {inputs}"));
    }
    if !both.is_empty() {
        lines.push(format!("read and written, with random values before the launch: {both}"));
    }
    let floats = spec.args.iter().filter(|a| a.role == Role::Scalar && a.dtype.is_float());
    lines.extend(floats.map(|a| format!("`{}` is 1", a.name)));
    let from = match function.max_threads {
        Some(_) => " (its launch bounds)",
        None => "",
    };
    lines.push(format!("blocks of {block} threads{from}, enough of them for every element"));
    lines.push("there is no reference: results are not checked".to_owned());
    lines
}

fn device_skeleton(file: &Path, function: &GlobalFunction, source: &ScannedSource) -> String {
    let file_name = file.file_name().and_then(|n| n.to_str()).unwrap_or("kernel.cu");
    let integers: Vec<&str> = function
        .params
        .iter()
        .filter(|p| matches!(p.kind, ParamKind::Scalar(d) if !d.is_float() && d != Dtype::Bool))
        .map(|p| p.name.as_str())
        .collect();
    let vars = if integers.is_empty() { vec!["n"] } else { integers };
    let shape: Vec<String> = vars.iter().take(1).map(|var| format!("\"{var}\"")).collect();
    let mut toml = String::new();
    // Writing to a String cannot fail.
    let mut line = |text: String| {
        let _ = writeln!(toml, "{text}");
    };
    line(
        "# What rgpu could read from the source is filled in; lines marked `check` are guesses."
            .into(),
    );
    line(format!("name = \"{}\"", name_of(file)));
    line("language = \"cuda\"".into());
    line(format!("source = \"{file_name}\""));
    line(format!("entry = {{ device = \"{}\" }}", function.name));
    for other in source.functions.iter().filter(|other| other.name != function.name) {
        line(format!("# check: `{}` is a kernel of this file as well", other.name));
    }
    line("mode = \"ncu\"".into());
    for param in &function.params {
        line(String::new());
        line("[[arg]]".into());
        line(format!("name = \"{}\"", param.name));
        match &param.kind {
            ParamKind::Pointer { dtype, constant } => {
                line(format!("dtype = \"{dtype}\""));
                line(format!(
                    "shape = [{}]            # check: row-major, slowest first",
                    shape.join(", ")
                ));
                line(match random(*dtype) {
                    Init::Ints { lo, hi } => format!("init = {{ ints = [{lo}, {hi}] }}"),
                    _ => "init = { uniform = [-1.0, 1.0] }".to_owned(),
                });
                line(match role(*constant) {
                    Role::In => "role = \"in\"".to_owned(),
                    _ => "role = \"inout\"             # check: \"out\", without `init`, if the kernel never reads it".to_owned(),
                });
            }
            ParamKind::Scalar(dtype) => {
                line(format!("dtype = \"{dtype}\""));
                line("role = \"scalar\"".into());
                line(match dtype.is_float() {
                    true => "value = 1.0                # check".to_owned(),
                    false if *dtype == Dtype::Bool => {
                        "value = 1                  # check".to_owned()
                    }
                    false => format!("value = \"{}\"", param.name),
                });
            }
            ParamKind::Other(text) => {
                line(format!("# check: `{text}` has no dtype of rgpu; this is a guess"));
                line("dtype = \"u8\"".into());
                line(format!("shape = [{}]", shape.join(", ")));
                line("role = \"inout\"".into());
            }
        }
    }
    let block = function.max_threads.unwrap_or(DEFAULT_BLOCK_THREADS);
    line(String::new());
    line("[launch]".into());
    line(format!("grid = [\"ceil_div({}, {block})\"]   # check", vars[0]));
    line(format!("block = [{block}]                  # check"));
    if source.dynamic_shared {
        line("shared = 0                   # check: bytes of dynamic shared memory".into());
    }
    line(String::new());
    line("[sizes]".into());
    let list: Vec<_> = vars.iter().map(|var| format!("\"{var}\"")).collect();
    line(format!("vars = [{}]", list.join(", ")));
    let case = |value: i64| {
        let pairs: Vec<_> = vars.iter().map(|var| format!("{var} = {value}")).collect();
        format!("{{ {} }}", pairs.join(", "))
    };
    line(format!("cases.small = {}", case(1000)));
    line(format!("cases.large = {}", case(if vars.len() == 1 { DEFAULT_ELEMENTS } else { 1024 })));
    line("default = \"large\"".into());
    line(String::new());
    line("# A plain C function with the same result makes rgpu check the kernel:".into());
    line("# [reference]".into());
    line("# source = \"reference.c\"".into());
    line("# function = \"rgpu_reference\"       # int rgpu_reference(const rgpu_case *c), see rgpu.h".into());
    line("# tolerance = { abs = 1e-6, rel = 1e-6 }".into());
    line(String::new());
    line("# What the problem needs at least, for rates and the roofline:".into());
    line("# [work]".into());
    line(format!("# flops = \"{}\"", vars[0]));
    line(format!("# bytes = \"12 * {}\"", vars[0]));
    toml
}

fn host_skeleton(file: &Path) -> String {
    let file_name = file.file_name().and_then(|n| n.to_str()).unwrap_or("kernel.cu");
    let name = name_of(file);
    format!(
        r#"# A host entry: the file defines rgpu_prepare, rgpu_launch and rgpu_finish of rgpu.h.
name = "{name}"
language = "cuda"
source = "{file_name}"
entry = {{ host = 1 }}
mode = "bench"

[[arg]]                      # check: one for each tensor and scalar that rgpu_case carries
name = "x"
dtype = "f32"
shape = ["n"]
init = {{ uniform = [-1.0, 1.0] }}
role = "in"

[[arg]]
name = "y"
dtype = "f32"
shape = ["n"]
role = "out"

[sizes]
vars = ["n"]
cases.small = {{ n = 1000 }}
cases.large = {{ n = {DEFAULT_ELEMENTS} }}
default = "large"

# A plain C function with the same result makes rgpu check the kernel:
# [reference]
# source = "reference.c"
# function = "rgpu_reference"       # int rgpu_reference(const rgpu_case *c), see rgpu.h
# tolerance = {{ abs = 1e-6, rel = 1e-6 }}
"#
    )
}
