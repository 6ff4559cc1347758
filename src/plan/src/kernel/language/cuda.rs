//! CUDA C++.
//!
//! A bare .cu or .cuh file is profiled without a kernel.toml as far as its source tells how its
//! kernel is launched ([`super::super::cuda_source`]). What was assumed is printed with the result.

use std::fmt::Write;
use std::path::Path;

use rgpu_case::Dtype;

use super::super::cuda_source::infer::infer;
use super::super::cuda_source::{Declared, Function, Param, includes_torch, read};
use super::super::find::described;
use super::super::spec::{DeclaredWork, EntryPoint, Sizes};
use super::super::{FoundKernel, KernelError, KernelSpec, name_of, reference};
use super::Language;

/// Elements of each array of a host entry's first kernel.toml.
const DEFAULT_ELEMENTS: i64 = 1 << 24;

/// Threads per block of a kernel.toml to complete.
const DEFAULT_BLOCK_THREADS: i64 = 256;

/// The end of a first kernel.toml: how to go on.
const TO_GO_ON: &str = r#"
# A function with the same result makes rgpu check the kernel. In Python it takes arguments and sizes
# by name, as NumPy arrays or torch tensors, and returns the output:
# reference = "reference.py:reference"    # at the head of this file
# In C it is `int rgpu_reference(const rgpu_case *c)` (`rgpu kernels header`):
# [reference]
# source = "reference.c"
# tolerance = { abs = 1e-6, rel = 1e-6 }

# What the problem needs at least, for rates and the roofline:
# [work]
# flops = "…"
# bytes = "…"
"#;

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
        let mut found = infer(file, text, launch)?;
        reference::take_beside(&mut found);
        Ok(found)
    }

    fn compiled(&self, file: &Path, text: &str) -> Option<KernelSpec> {
        let declared = read(file, text);
        let first = declared.own_kernels().first().copied()?;
        // NVRTC compiles no host code.
        let entry = if declared.has_main || declared.has_host_entry {
            EntryPoint::Host
        } else if !declared.makes_code(!includes_torch(text))
            && let Ok(instance) = infer(file, text, None)
        {
            instance.spec.entry
        } else {
            EntryPoint::Device(first.name.to_string())
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
        let declared = read(file, text);
        if declared.has_host_entry {
            return Ok(host_skeleton(file));
        }
        match infer(file, text, launch) {
            Ok(mut found) => {
                reference::take_beside(&mut found);
                Ok(kernel_skeleton(&found))
            }
            Err(error) => match declared.own_kernels().first() {
                Some(first) if launch.is_none() => {
                    Ok(device_skeleton(file, first, &declared, &error.to_string()))
                }
                _ => Err(error),
            },
        }
    }
}

/// The kernel.toml that says what was assumed, and how to go on.
fn kernel_skeleton(found: &FoundKernel) -> String {
    let described = described(found);
    // The first line is the schema, which the caller writes.
    let mut toml = described.split_once('\n').map_or("", |(_, text)| text).to_owned();
    toml.push_str(TO_GO_ON);
    toml
}

/// A kernel.toml to complete, for a kernel whose launch is not known because of `problem`.
fn device_skeleton(file: &Path, kernel: &Function, declared: &Declared, problem: &str) -> String {
    let file_name = file.file_name().and_then(|n| n.to_str()).unwrap_or("kernel.cu");
    let is_size = |param: &&Param| {
        let scalar = declared.element_of(param).filter(|(_, is_array)| !is_array);
        let dtype = scalar.and_then(|(element, _)| element.scalar());
        dtype.is_some_and(|dtype| !dtype.is_float() && dtype != Dtype::Bool)
    };
    let integers: Vec<&str> = kernel.params.iter().filter(is_size).map(|p| &*p.name).collect();
    let vars = if integers.is_empty() { vec!["n"] } else { integers };
    let first = vars.first().copied().unwrap_or("n");
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
    let name = &kernel.name;
    line(if kernel.template.is_empty() {
        format!("entry = {{ device = \"{name}\" }}")
    } else {
        format!("entry = {{ device = \"\" }}   # open: the instance, as in `{name}<16>`")
    });
    for other in declared.own_kernels().iter().filter(|other| other.name != kernel.name) {
        line(format!("# check: `{}` is a kernel of this file as well", other.name));
    }
    line("mode = \"ncu\"".into());
    for param in &kernel.params {
        line(format!("\n[[arg]]\nname = \"{}\"", param.name));
        line(arg_to_check(param, declared, first));
    }
    let block = kernel.max_threads().unwrap_or(DEFAULT_BLOCK_THREADS);
    line(format!("\n[launch]\ngrid = [\"ceil_div({first}, {block})\"]   # check"));
    line(format!("block = [{block}]                  # check"));
    if kernel.has_dynamic_shared() {
        line("shared = \"\"                  # open: bytes of dynamic shared memory".into());
    }
    let list: Vec<_> = vars.iter().map(|var| format!("\"{var}\"")).collect();
    line(format!("\n[sizes]\nvars = [{}]", list.join(", ")));
    let case = |value: i64| {
        let pairs: Vec<_> = vars.iter().map(|var| format!("{var} = {value}")).collect();
        format!("{{ {} }}", pairs.join(", "))
    };
    line(format!("cases.small = {}", case(1000)));
    line(format!("cases.large = {}", case(if vars.len() == 1 { DEFAULT_ELEMENTS } else { 1024 })));
    line("default = \"large\"".into());
    toml + TO_GO_ON
}

/// The lines of an argument below its name.
fn arg_to_check(param: &Param, declared: &Declared, size: &str) -> String {
    match declared.element_of(param) {
        Some((element, true)) => {
            let dtype = element.dtype;
            let init = if dtype.is_float() { "uniform = [-1.0, 1.0]" } else { "ints = [0, 1]" };
            let role = if param.is_constant() {
                "role = \"in\"".to_owned()
            } else {
                "role = \"inout\"             # check: \"out\", without `init`, if the kernel never reads it".to_owned()
            };
            let shape =
                format!("shape = [\"{size}\"]            # check: row-major, slowest first");
            format!("dtype = \"{dtype}\"\n{shape}\ninit = {{ {init} }}\n{role}")
        }
        Some((element, false)) if element.count == 1 => {
            let dtype = element.dtype;
            let value = match dtype {
                dtype if dtype.is_float() => "1.0                # check".to_owned(),
                Dtype::Bool => "1                  # check".to_owned(),
                _ => format!("\"{}\"", param.name),
            };
            format!("dtype = \"{dtype}\"\nrole = \"scalar\"\nvalue = {value}")
        }
        _ => format!(
            "# open: `{}` has no dtype of rgpu: write `dtype`, `shape` and `role`",
            param.text()
        ),
    }
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
