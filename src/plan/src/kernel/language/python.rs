//! Python: torch functions, Triton kernels behind a function, `custom_kernel(data)` modules.
//!
//! A bare .py file does not tell sizes and data, unless it follows the popcorn convention: it
//! defines `custom_kernel`, and `generate_input` and `ref_kernel` are in it or in a `reference.py`
//! beside it, with parameters that all have defaults.

use std::path::{Path, PathBuf};

use super::super::python::functions;
use super::super::spec::{DeclaredWork, EntryPoint, PythonFunction, ReferenceSpec, Sizes};
use super::super::{FoundKernel, KernelError, KernelSpec, name_of};
use super::Language;
use rgpu_model::error::shell_word;
use rgpu_model::regular_file::{self, MAX_SOURCE_BYTES};

pub(super) struct Python;

/// Name of the callable in the popcorn convention.
const POPCORN: &str = "custom_kernel";

impl Language for Python {
    fn name(&self) -> &'static str {
        "python"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["py"]
    }

    fn infer(
        &self,
        file: &Path,
        text: &str,
        launch: Option<&str>,
    ) -> Result<FoundKernel, KernelError> {
        let not_inferred = |problem: &str| KernelError::NotInferred {
            file: file.to_owned(),
            problem: problem.to_owned(),
            instead: None,
        };
        if launch.is_some() {
            return Err(not_inferred("`--launch` is for kernels in CUDA C++"));
        }
        if !functions(text).any(|(name, _)| name == POPCORN) {
            let word = shell_word(file.display());
            let as_program = format!("as a program: `rgpu profile -- python3 {word}`");
            return Err(KernelError::NotInferred {
                file: file.to_owned(),
                problem: "it has no `custom_kernel`, so the function and its arguments are unknown"
                    .to_owned(),
                instead: Some(if functions(text).any(|(name, _)| !name.starts_with('_')) {
                    format!(
                        "{as_program}; one function of it: `rgpu kernels new {word}` writes a \
                         kernel.toml to complete"
                    )
                } else {
                    as_program
                }),
            });
        }
        let reference = reference(file, text).ok_or_else(|| {
            not_inferred("there is no `generate_input`, in it or in a reference.py beside it")
        })?;
        let source = regular_file::read_to_string(&reference, MAX_SOURCE_BYTES).unwrap_or_default();
        let (_, parameters) = functions(&source)
            .find(|(name, _)| *name == "generate_input")
            .ok_or_else(|| not_inferred("`generate_input` cannot be read"))?;
        let is_required = |parameter: &str| {
            let name = parameter.split([':', '=']).next().unwrap_or_default().trim();
            !name.is_empty() && !parameter.contains('=') && !["seed", "device"].contains(&name)
        };
        if parameters.split(',').any(is_required) {
            return Err(not_inferred("`generate_input` takes sizes: they go under `[sizes]`"));
        }
        let spec = KernelSpec {
            name: name_of(file),
            language: "python",
            folder: file.parent().unwrap_or(Path::new("")).to_owned(),
            file: None,
            source: file.to_owned(),
            entry: EntryPoint::Python(PythonFunction {
                function: POPCORN.to_owned(),
                ..PythonFunction::default()
            }),
            mode: None,
            arch: Vec::new(),
            flags: Vec::new(),
            args: Vec::new(),
            launch: None,
            sizes: Sizes::default(),
            reference: Some(ReferenceSpec {
                source: reference,
                function: "ref_kernel".to_owned(),
                tolerance: rgpu_case::Tolerance { abs: 1e-3, rel: 1e-3, ..Default::default() },
                half_tolerance: None,
                checker: None,
                device: None,
            }),
            work: DeclaredWork::default(),
            extra_files: Vec::new(),
            model: None,
            task: None,
        };
        let assumptions = vec![
            "`custom_kernel(data)` is the kernel, `generate_input` makes its data".to_owned(),
            "the reference is `ref_kernel`; a value may be off by 1e-3, absolute and relative"
                .to_owned(),
        ];
        Ok(FoundKernel { spec, assumptions })
    }

    fn skeleton(
        &self,
        file: &Path,
        text: &str,
        _launch: Option<&str>,
    ) -> Result<String, KernelError> {
        let function = functions(text)
            .map(|(name, _)| name)
            .filter(|name| !name.starts_with('_') && *name != "generate_input")
            .max_by_key(|name| *name == POPCORN)
            .ok_or_else(|| KernelError::NotInferred {
                file: file.to_owned(),
                problem: "it has no function at its top level".to_owned(),
                instead: Some("`rgpu profile -- python3 FILE` profiles any program".to_owned()),
            })?;
        let name = name_of(file);
        let source = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let head = format!(
            "name = \"{name}\"\nlanguage = \"python\"\nsource = \"{source}\"\nentry = {{ python = \"{function}\" }}\n"
        );
        let args = match function {
            POPCORN => {
                "\n# No [[arg]]: `generate_input` of the reference makes the data; its parameters\n# get the sizes of their names, and `seed`.\n"
            }
            _ => {
                "\n# One for each parameter of the function, by name; an `out` that is not a parameter\n# is what the function returns.\n[[arg]]\nname = \"x\"\ndtype = \"f32\"\nshape = [\"n\"]\ninit = { normal = [0.0, 1.0] }\nrole = \"in\"\n\n[[arg]]\nname = \"y\"\ndtype = \"f32\"\nshape = [\"n\"]\nrole = \"out\"\n"
            }
        };
        let reference = if function == POPCORN { "ref_kernel" } else { "reference" };
        Ok(format!(
            "{head}{args}\n[sizes]\nvars = [\"n\"]\ncases.small = {{ n = 1000 }}\ncases.large = {{ n = 16777216 }}\ndefault = \"large\"\n\n[reference]\nsource = \"{source}\"\nfunction = \"{reference}\"       # called as the kernel is\ntolerance = {{ abs = 1e-5, rel = 1e-5 }}\n"
        ))
    }
}

/// The file with `generate_input`.
fn reference(file: &Path, text: &str) -> Option<PathBuf> {
    let has_generate_input = |text: &str| functions(text).any(|(name, _)| name == "generate_input");
    if has_generate_input(text) {
        return Some(file.to_owned());
    }
    let beside = file.with_file_name("reference.py");
    let source = regular_file::read_to_string(&beside, MAX_SOURCE_BYTES).ok()?;
    has_generate_input(&source).then_some(beside)
}

#[cfg(test)]
mod tests {
    use super::super::super::find::{KernelFolders, find};

    #[test]
    fn a_popcorn_module_is_run_as_it_is_and_other_python_needs_a_description() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let kernel =
            file("mine.py", "from task import input_t\ndef custom_kernel(data):\n    pass\n");
        let error = find(&kernel, &KernelFolders::default()).unwrap_err().to_string();
        assert!(error.contains("no task.yml beside it"), "{error}");
        file("task.py", "input_t = object\n");
        let sized = file("reference.py", "def generate_input(n: int, seed: int):\n    pass\n");
        let error = find(&kernel, &KernelFolders::default()).unwrap_err().to_string();
        assert!(error.contains("[sizes]"), "{error}");
        std::fs::write(
            sized,
            "def generate_input(seed=1):\n    pass\ndef ref_kernel(data): pass\n",
        )
        .unwrap();
        let loaded = find(&kernel, &KernelFolders::default()).unwrap();
        assert_eq!(loaded.assumptions.len(), 2);
        let tree = loaded.spec.sources(&KernelFolders::default()).unwrap();
        let names: Vec<_> = tree.files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["mine.py", "reference.py", "task.py"]);
    }

    #[test]
    fn a_skeleton_of_python_is_a_kernel_toml() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.py", "import torch\ndef _x(): pass\ndef scale(x):\n    return 2 * x\n"),
            ("b.py", "def custom_kernel(data):\n    pass\n"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let toml = super::super::super::find::skeleton(&path, None).unwrap();
            let file = folder.path().join("kernel.toml");
            let spec = super::super::super::read(&file, &toml).unwrap();
            assert!(spec.is_python() && !spec.entry_name().starts_with('_'), "{toml}");
        }
        let path = folder.path().join("c.py");
        std::fs::write(&path, "x = 1\n").unwrap();
        assert!(super::super::super::find::skeleton(&path, None).is_err());
    }
}
