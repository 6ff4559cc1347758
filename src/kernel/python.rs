//! The parts of a kernel.toml that differ for Python: entry, reference, model. Also the modules
//! that a source imports from its own folder.

use std::path::{Path, PathBuf};

use rgpu_case::{Number, Setting, Tolerance};

use super::KernelError;
use super::document::Item;
use super::read::{existing_file, identifier, tolerance};
use super::spec::{ModelSpec, PythonFunction, ReferenceSpec};

/// The default names of the reference: for plain functions, and for kernels whose data a
/// `generate_input` makes.
const REFERENCE: &str = "reference";
const GENERATED_INPUT_REFERENCE: &str = "ref_kernel";

/// Parses `entry = { python = "softmax", prepare = "build", fresh = true }`.
pub(super) fn entry(item: &Item<'_>) -> Result<PythonFunction, KernelError> {
    let table = item.table(&["python", "prepare", "fresh"])?;
    Ok(PythonFunction {
        function: identifier(&table.required("python")?)?,
        prepare: table.optional("prepare").map(|item| identifier(&item)).transpose()?,
        fresh: table.optional("fresh").map(|item| item.boolean()).transpose()?.unwrap_or(false),
    })
}

/// Parses `[reference]` of a Python kernel. `source` is the kernel's own source, and
/// `has_generate_input` says whether its data come from a `generate_input`.
pub(super) fn reference(
    item: &Item<'_>,
    folder: &Path,
    source: &Path,
    has_generate_input: bool,
) -> Result<ReferenceSpec, KernelError> {
    let table = item.table(&["source", "function", "tolerance"])?;
    let default = if has_generate_input { GENERATED_INPUT_REFERENCE } else { REFERENCE };
    Ok(ReferenceSpec {
        source: match table.optional("source") {
            Some(item) => existing_file(&item, folder, "reference.source")?,
            None => source.to_owned(),
        },
        function: match table.optional("function") {
            Some(item) => identifier(&item)?,
            None => default.to_owned(),
        },
        tolerance: match table.optional("tolerance") {
            Some(item) => tolerance(&item)?,
            None => Tolerance::default(),
        },
        device: None,
    })
}

/// Parses `[model]`: name, variant, dtype, and further parameters of `prepare`.
pub(super) fn model(item: &Item<'_>) -> Result<ModelSpec, KernelError> {
    let mut model = ModelSpec::default();
    for (name, item) in item.entries()? {
        match name {
            "name" => item.text()?.clone_into(&mut model.name),
            "variant" => item.text()?.clone_into(&mut model.variant),
            "dtype" => item.text()?.clone_into(&mut model.dtype),
            name if !super::is_identifier(name) => {
                return Err(item.error(format!("`{name}` is not an identifier")));
            }
            name => model.settings.push((name.to_owned(), setting(&item)?)),
        }
    }
    match model.name.is_empty() {
        true => Err(item.error("`model.name` is missing")),
        false => Ok(model),
    }
}

fn setting(item: &Item<'_>) -> Result<Setting, KernelError> {
    if let Ok(text) = item.text() {
        return Ok(Setting::Text(text.to_owned()));
    }
    if let Ok(flag) = item.boolean() {
        return Ok(Setting::Bool(flag));
    }
    match item.as_integer()? {
        Some(number) => Ok(Setting::Number(Number::Int(number))),
        None => item.float().map(|number| Setting::Number(Number::Float(number))).map_err(|_| {
            item.error(format!("`{}` must be a text, a number, true or false", item.key))
        }),
    }
}

/// The files in the source's folder that its `import` lines may mean: modules and packages. They
/// need not exist: other modules are installed on the host.
pub(super) fn import_candidates(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut add_module = |module: &str| {
        let path = folder.join(module.replace('.', "/"));
        found.push(path.with_extension("py"));
        found.push(path.join("__init__.py"));
    };
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(rest) = line.strip_prefix("from ") {
            let Some((module, names)) = rest.split_once(" import ") else { continue };
            let module = module.trim();
            let package = module.trim_start_matches('.');
            if !package.is_empty() {
                add_module(package);
            }
            // `name` may be a module: `from package import module`.
            for name in names.trim_matches(['(', ')', ' ']).split(',') {
                let name = name.split_whitespace().next().unwrap_or_default();
                add_module([package, name].join(".").trim_matches('.'));
            }
        } else if let Some(rest) = line.strip_prefix("import ") {
            for module in rest.split(',') {
                add_module(module.split_whitespace().next().unwrap_or_default());
            }
        }
    }
    found.retain(|path| path.file_stem().is_some_and(|stem| !stem.is_empty()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_lines_name_modules_and_packages_beside_the_source() {
        let text = "import torch, helper as h\nfrom task import input_t, output_t  # types\nfrom .near import (x,\n    y)\nimport a.b\n";
        let found = import_candidates(Path::new("k"), text);
        for name in ["k/helper.py", "k/task.py", "k/near.py", "k/a/b.py", "k/a/b/__init__.py"] {
            assert!(found.contains(&PathBuf::from(name)), "{name} of {found:?}");
        }
        assert!(import_candidates(Path::new("k"), "x = 'import y'\nfrom x\n").is_empty());
    }
}
