//! CUDA C++.
//!
//! A bare .cu or .cuh file is profiled without a kernel.toml as far as its source tells how its
//! kernel is launched ([`super::super::cuda_source`]). What was assumed is printed with the result.

use std::fmt::Write;
use std::path::Path;

use rgpu_case::Dtype;

use super::super::cuda_scanner::{GlobalFunction, ParamKind, ScannedSource, scan};
use super::super::cuda_source::infer::infer;
use super::super::find::described;
use super::super::spec::{DeclaredWork, EntryPoint, Sizes};
use super::super::{FoundKernel, KernelError, KernelSpec, name_of};
use super::Language;

/// Elements of each array of a host entry's first kernel.toml.
const DEFAULT_ELEMENTS: i64 = 1 << 24;

/// Threads per block of a kernel.toml to complete.
const DEFAULT_BLOCK_THREADS: u32 = 256;

/// Kernels in CUDA C++.
pub(super) struct Cuda;

impl Language for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["cu", "cuh"]
    }

    fn infer(
        &self,
        file: &Path,
        text: &str,
        launch: Option<&str>,
    ) -> Result<FoundKernel, KernelError> {
        if scan(text).host_entry {
            return Err(KernelError::NotInferred {
                file: file.to_owned(),
                problem: "it is a host entry, whose sizes are unknown".to_owned(),
                instead: None,
            });
        }
        infer(file, text, launch)
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

    fn skeleton(
        &self,
        file: &Path,
        text: &str,
        launch: Option<&str>,
    ) -> Result<String, KernelError> {
        if scan(text).host_entry {
            return Ok(host_skeleton(file));
        }
        match infer(file, text, launch) {
            Ok(found) => Ok(kernel_skeleton(&found)),
            Err(error) => {
                let source = scan(text);
                match source.functions.first() {
                    Some(first) if launch.is_none() => {
                        Ok(device_skeleton(file, first, &source, &error.to_string()))
                    }
                    _ => Err(error),
                }
            }
        }
    }
}

/// The kernel.toml that says what was assumed, and how to go on.
fn kernel_skeleton(found: &FoundKernel) -> String {
    let described = described(found);
    // The first line is the schema, which the caller writes.
    let mut toml = described.split_once('\n').map_or("", |(_, text)| text).to_owned();
    toml.push_str(
        r#"
# A plain C function with the same result makes rgpu check the kernel:
# [reference]
# source = "reference.c"
# function = "rgpu_reference"       # int rgpu_reference(const rgpu_case *c): `rgpu kernels header`
# tolerance = { abs = 1e-6, rel = 1e-6 }

# What the problem needs at least, for rates and the roofline:
# [work]
# flops = "…"
# bytes = "…"
"#,
    );
    toml
}

/// A kernel.toml to complete, for a kernel whose launch is not known because of `problem`.
fn device_skeleton(
    file: &Path,
    function: &GlobalFunction,
    source: &ScannedSource,
    problem: &str,
) -> String {
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
    line(format!("# rgpu cannot tell how this kernel is launched: {}", problem.replace('\n', " ")));
    line("# Lines marked `check` are guesses, and what is marked `open` is yours to write.".into());
    line(format!("name = \"{}\"", name_of(file)));
    line("language = \"cuda\"".into());
    line(format!("source = \"{file_name}\""));
    if function.template {
        line(format!(
            "entry = {{ device = \"\" }}   # open: the instance, as in `{}<16>`",
            function.name
        ));
    } else {
        line(format!("entry = {{ device = \"{}\" }}", function.name));
    }
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
                line(if dtype.is_float() {
                    "init = { uniform = [-1.0, 1.0] }".to_owned()
                } else {
                    "init = { ints = [0, 1] }".to_owned()
                });
                line(if *constant {
                    "role = \"in\"".to_owned()
                } else {
                    "role = \"inout\"             # check: \"out\", without `init`, if the kernel never reads it".to_owned()
                });
            }
            ParamKind::Scalar(dtype) => {
                line(format!("dtype = \"{dtype}\""));
                line("role = \"scalar\"".into());
                line(if dtype.is_float() {
                    "value = 1.0                # check".to_owned()
                } else if *dtype == Dtype::Bool {
                    "value = 1                  # check".to_owned()
                } else {
                    format!("value = \"{}\"", param.name)
                });
            }
            ParamKind::Other(text) => {
                line(format!(
                    "# open: `{text}` has no dtype of rgpu: write `dtype`, `shape` and `role`"
                ));
            }
        }
    }
    let block = function.max_threads.unwrap_or(DEFAULT_BLOCK_THREADS);
    line(String::new());
    line("[launch]".into());
    line(format!("grid = [\"ceil_div({}, {block})\"]   # check", vars[0]));
    line(format!("block = [{block}]                  # check"));
    if source.dynamic_shared {
        line("shared = \"\"                  # open: bytes of dynamic shared memory".into());
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
