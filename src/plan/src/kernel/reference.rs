//! `[reference]`: the function that outputs are compared with, and how much they may differ.
//!
//! It is a C function on host memory, or a Python function on arrays of NumPy, torch or JAX. Beside
//! a bare source it is found by its name and parameters.

use std::path::Path;

use rgpu_case::{Dtype, Role, Tolerance};
use rgpu_model::agent_files;
use rgpu_model::regular_file::MAX_SOURCE_BYTES;

use super::document::{Item, Table};
use super::read::{existing_file, file_of, identifier, launch_of, one_of};
use super::spec::{ArgSpec, DeviceReference, LaunchSpec, ReferenceSpec, Sizes};
use super::{EntryPoint, FoundKernel, KernelError, plain_kernel_name, python};

/// The file beside a bare source that may hold its reference.
const BESIDE: &str = "reference.py";

/// The default name of a reference in Python.
const PYTHON_FUNCTION: &str = "reference";

/// The default name of a reference in C.
const C_FUNCTION: &str = "rgpu_reference";

/// The default name of the reference of a kernel whose data a `generate_input` makes.
const GENERATED_INPUT_REFERENCE: &str = "ref_kernel";

/// Parses `[reference]`, or `reference = "ref.py:function"`. `source` is the kernel's own source,
/// which holds the reference of a Python kernel if nothing else is said.
pub(super) fn read(
    item: &Item<'_>,
    folder: &Path,
    source: &Path,
    entry: &EntryPoint,
    args: &[ArgSpec],
    sizes: &Sizes,
) -> Result<ReferenceSpec, KernelError> {
    let is_python_kernel = matches!(entry, EntryPoint::Python(_));
    let default_function = |source: &Path| {
        if !is_python(source) {
            C_FUNCTION
        } else if is_python_kernel && args.is_empty() {
            GENERATED_INPUT_REFERENCE
        } else {
            PYTHON_FUNCTION
        }
    };
    if let Ok(text) = item.text() {
        let (file, function) = text.rsplit_once(':').unwrap_or((text, ""));
        let source = file_of(item, file, folder, "reference")?;
        let function = if function.is_empty() { default_function(&source) } else { function };
        if !super::is_identifier(function) {
            return Err(item.error(format!("`{function}` is no function's name")));
        }
        let (function, tolerance) = (function.to_owned(), usual_tolerance(args));
        return Ok(ReferenceSpec::new(source, function, tolerance));
    }
    let keys: &'static [&'static str] = if is_python_kernel {
        &["source", "function", "tolerance"]
    } else {
        &[
            "source",
            "function",
            "tolerance",
            "device",
            "grid",
            "block",
            "cluster",
            "shared",
            "small",
        ]
    };
    let table = item.table(keys)?;
    let source = match table.optional("source") {
        None if is_python_kernel => source.to_owned(),
        _ => existing_file(&table.required("source")?, folder, "reference.source")?,
    };
    let function = match table.optional("function") {
        Some(item) => identifier(&item)?,
        None => default_function(&source).to_owned(),
    };
    let tolerance = match table.optional("tolerance") {
        Some(item) => tolerance(&item)?,
        None if is_python(&source) && !is_python_kernel => usual_tolerance(args),
        None => Tolerance::default(),
    };
    let device = if is_python_kernel { None } else { device(&table, entry, sizes)? };
    Ok(ReferenceSpec { device, ..ReferenceSpec::new(source, function, tolerance) })
}

impl ReferenceSpec {
    fn new(source: std::path::PathBuf, function: String, tolerance: Tolerance) -> Self {
        Self { source, function, tolerance, half_tolerance: None, checker: None, device: None }
    }

    /// Whether it is a Python function.
    pub(crate) fn is_python(&self) -> bool {
        is_python(&self.source)
    }
}

fn is_python(source: &Path) -> bool {
    source.extension().is_some_and(|extension| extension == "py")
}

/// The tolerance if none is given, by the coarsest format of an output: sums in another order
/// differ by so much.
pub(crate) fn usual_tolerance(args: &[ArgSpec]) -> Tolerance {
    let outputs = args.iter().filter(|arg| matches!(arg.role, Role::Out | Role::InOut));
    let most = outputs.map(|arg| match arg.dtype {
        Dtype::E4m3 | Dtype::E5m2 | Dtype::E2m1 => 0.1,
        Dtype::F16 | Dtype::Bf16 => 1e-2,
        dtype if dtype.is_float() => 1e-4,
        _ => 0.0,
    });
    let value = most.fold(0.0, f64::max);
    Tolerance { abs: value, rel: value, ..Tolerance::default() }
}

/// Takes the reference that lies beside a bare source: a function of `reference.py` with the
/// kernel's name, or `reference`, all of whose parameters the kernel has.
pub(super) fn take_beside(found: &mut FoundKernel) {
    let spec = &mut found.spec;
    let file = spec.folder.join(BESIDE);
    let Ok(bytes) = agent_files::read(&file, MAX_SOURCE_BYTES) else { return };
    let text = String::from_utf8_lossy(&bytes);
    let names: Vec<String> = spec.args.iter().map(|arg| arg.name.replace('.', "_")).collect();
    let is_known = |parameter: &str| {
        let name = parameter.split([':', '=']).next().unwrap_or_default().trim();
        name.is_empty()
            || parameter.contains('=')
            || name.starts_with('*')
            || names.iter().chain(&spec.sizes.vars).any(|known| known == name)
    };
    let fits = |(_, parameters): &(&str, &str)| parameters.split(',').all(is_known);
    let named = |wanted: &str| {
        python::functions(&text).find(|function| function.0 == wanted && fits(function))
    };
    let kernel = match &spec.entry {
        EntryPoint::Device(entry) => plain_kernel_name(entry),
        _ => return,
    };
    let Some((function, _)) = named(kernel).or_else(|| named(PYTHON_FUNCTION)) else { return };
    let tolerance = usual_tolerance(&spec.args);
    let line = format!(
        "results are checked against `{function}` of {BESIDE}; a value may be off by {:?}, \
         absolute and relative",
        tolerance.abs
    );
    spec.reference = Some(ReferenceSpec::new(file, function.to_owned(), tolerance));
    // In place of the line that there is none.
    found.assumptions.pop();
    found.assumptions.push(line);
}

fn device(
    table: &Table<'_>,
    entry: &EntryPoint,
    sizes: &Sizes,
) -> Result<Option<DeviceReference>, KernelError> {
    let Some(item) = table.optional("device") else {
        let device_keys = ["grid", "block", "cluster", "shared", "small"];
        return match device_keys.iter().find_map(|key| table.optional(key)) {
            Some(item) => {
                Err(item.error(format!("`{}` belongs to a `reference.device`", item.key)))
            }
            None => Ok(None),
        };
    };
    let names: Vec<&str> = sizes.cases.iter().map(|case| case.name.as_str()).collect();
    let list = table.required("small")?;
    let small: Vec<String> = list
        .list()?
        .iter()
        .map(|item| one_of(item, "case", &names).map(str::to_owned))
        .collect::<Result<_, _>>()?;
    if small.is_empty() {
        return Err(list.error("a reference kernel is checked at one case at least"));
    }
    Ok(Some(DeviceReference {
        function: identifier(&item)?,
        launch: reference_launch(table, entry, &sizes.vars)?,
        small,
    }))
}

/// Launch shape of a reference kernel; `None` for a host entry, whose reference does its own
/// launch.
fn reference_launch(
    table: &Table<'_>,
    entry: &EntryPoint,
    vars: &[String],
) -> Result<Option<LaunchSpec>, KernelError> {
    if matches!(entry, EntryPoint::Device(_)) {
        return launch_of(table, vars).map(Some);
    }
    match ["grid", "block", "cluster", "shared"].iter().find_map(|key| table.optional(key)) {
        Some(item) => Err(item.error(format!(
            "with a host entry the reference launches its own kernels: it takes no `{}`",
            item.key
        ))),
        None => Ok(None),
    }
}

pub(super) fn tolerance(item: &Item<'_>) -> Result<Tolerance, KernelError> {
    let table = item.table(&["abs", "rel", "mismatch_fraction"])?;
    let number = |key: &'static str, max: f64| match table.optional(key) {
        None => Ok(0.0),
        Some(item) => match item.float()? {
            value if (0.0..=max).contains(&value) => Ok(value),
            value => Err(item.error(format!("{value} is not between 0 and {max}"))),
        },
    };
    let tolerance = Tolerance {
        abs: number("abs", f64::MAX)?,
        rel: number("rel", f64::MAX)?,
        mismatch_fraction: number("mismatch_fraction", 1.0)?,
    };
    Ok(tolerance)
}

#[cfg(test)]
mod tests {
    use super::super::find::find;
    use super::super::{KernelFolders, read};

    fn file(folder: &std::path::Path, name: &str, text: &str) -> String {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    #[test]
    fn a_reference_is_a_table_or_a_file_with_a_function() {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "k.cu", "__global__ void k(float *x) {}");
        file(dir.path(), "ref.py", "def twice(x):\n    return 2 * x\n");
        file(dir.path(), "ref.c", "");
        let spec = |reference: &str, dtype: &str| {
            let text = format!(
                "name = \"k\"\nlanguage = \"cuda\"\nsource = \"k.cu\"\n\
                 entry = {{ device = \"k\" }}\n{}\n[[arg]]\nname = \"x\"\n\
                 dtype = \"{dtype}\"\nshape = [8]\nrole = \"out\"\n\
                 [launch]\ngrid = [1]\nblock = [8]\n{}",
                if reference.starts_with('[') { "" } else { reference },
                if reference.starts_with('[') { reference } else { "" },
            );
            read(&dir.path().join("kernel.toml"), &text)
        };
        let found = |reference: &str, dtype: &str| {
            let reference = spec(reference, dtype).unwrap().reference.unwrap();
            (reference.is_python(), reference.function.clone(), reference.tolerance.rel)
        };
        assert_eq!(found("reference = \"ref.py:twice\"", "f32"), (true, "twice".into(), 1e-4));
        assert_eq!(found("reference = \"ref.py\"", "bf16"), (true, "reference".into(), 1e-2));
        assert_eq!(found("[reference]\nsource = \"ref.py\"", "i32").2, 0.0);
        assert_eq!(
            found("[reference]\nsource = \"ref.c\"", "f32"),
            (false, "rgpu_reference".into(), 0.0)
        );
        for wrong in ["\"gone.py:f\"", "\"ref.py:a b\""] {
            assert!(spec(&format!("reference = {wrong}"), "f32").is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_function_beside_a_bare_source_checks_it_if_its_parameters_are_the_kernels() {
        let dir = tempfile::tempdir().unwrap();
        let source = "__global__ void k(const float *x, float *y, int n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i]; }";
        let path = file(dir.path(), "mine.cu", source);
        let of = |text: &str| {
            file(dir.path(), "reference.py", text);
            let found = find(&path, &KernelFolders::default()).unwrap();
            (found.spec.reference.map(|r| r.function), found.assumptions.last().cloned().unwrap())
        };
        let (function, line) = of("def reference(x, n, scale=1.0):\n    return x\n");
        assert_eq!(function.as_deref(), Some("reference"));
        assert!(line.contains("checked against `reference` of reference.py"), "{line}");
        let (function, _) = of("def reference(x): ...\ndef k(x): ...\n");
        assert_eq!(function.as_deref(), Some("k"));
        // A problem of a leaderboard takes its own data.
        let (function, line) = of("def reference(data):\n    return data\n");
        assert_eq!(function, None);
        assert!(line.contains("there is no reference"), "{line}");
    }
}
