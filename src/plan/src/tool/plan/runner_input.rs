//! Makes the runner's input: the data to allocate, the launches, and the check.

use std::collections::BTreeMap;

use rgpu_case::{
    BoardRules, CASE_ABI, Case, EntryPoint as CaseEntry, HostFunction, PythonEntry, PythonInputs,
    Reference, RunnerInput, Setting, Tolerance,
};

use super::build;
use super::request::Request;
use crate::kernel::{EntryPoint, KernelSpec, ModelSpec, SourceTree, usual_tolerance};

/// Makes the runner's input; all paths are relative to the job's folder, where it lies.
pub(super) fn runner_input(
    request: &Request,
    spec: &KernelSpec,
    sources: &SourceTree,
    cases: Vec<Case>,
    small: Vec<Case>,
    seed: u64,
) -> RunnerInput {
    let module = build::module(spec);
    let reference = spec.reference.as_ref().map(|reference| {
        let library = match &sources.reference {
            Some(source) if reference.is_python() => in_job(source),
            _ => build::REFERENCE.to_owned(),
        };
        let check = HostFunction { library, function: reference.function.clone() };
        if spec.is_python() {
            let file = sources.reference.as_deref().unwrap_or(&sources.source);
            return Reference::Python {
                file: in_job(file),
                function: reference.function.clone(),
                checker: reference.checker.clone(),
                half_tolerance: reference.half_tolerance,
            };
        }
        match &reference.device {
            None => Reference::HostLibrary(check),
            Some(device) if matches!(spec.entry, EntryPoint::Host) => Reference::DeviceFunction {
                library: module.clone(),
                function: device.function.clone(),
                check,
                small,
            },
            Some(device) => Reference::DeviceKernel {
                module: module.clone(),
                function: device.function.clone(),
                check,
                small,
            },
        }
    });
    RunnerInput {
        abi: CASE_ABI,
        kernel: spec.name.clone(),
        entry: match &spec.entry {
            EntryPoint::Device(function) => {
                CaseEntry::Device { module, function: function.clone() }
            }
            EntryPoint::Host => CaseEntry::Host { library: module },
            EntryPoint::Python(python) => CaseEntry::Python(PythonEntry {
                file: in_job(&sources.source),
                function: python.function.clone(),
                prepare: python.prepare.clone(),
                fresh: python.fresh,
                grouped: spec.sizes.groups,
                model: spec.model.as_ref().map(settings).unwrap_or_default(),
                inputs: python.inputs.as_ref().map(|inputs| PythonInputs {
                    file: in_job(sources.reference.as_deref().unwrap_or(&sources.source)),
                    function: inputs.function.clone(),
                    constructor: inputs.constructor.clone(),
                    spread: inputs.spread,
                }),
                baselines: python.baselines.clone(),
            }),
        },
        cases,
        reference,
        tolerance: tolerance(spec),
        seed,
        timing: request.timing.clone(),
        policies: request.policies.clone(),
        board: spec.task.as_ref().map(|task| BoardRules {
            program: task.rules.program.as_deref().map(in_job),
            ..task.rules.clone()
        }),
    }
}

/// The tolerance of outputs. Calls of a bare kernel that nothing checks may differ: which of them
/// is right is not known, and the report says so.
fn tolerance(spec: &KernelSpec) -> Tolerance {
    match (&spec.reference, &spec.file) {
        (Some(reference), _) => reference.tolerance,
        (None, Some(_)) => Tolerance::default(),
        (None, None) => Tolerance { mismatch_fraction: 1.0, ..usual_tolerance(&spec.args) },
    }
}

/// Path of a source in the job's folder.
fn in_job(source: &str) -> String {
    format!("src/{source}")
}

/// The fields of `[model]` as parameters of `prepare`.
fn settings(model: &ModelSpec) -> BTreeMap<String, Setting> {
    let text = |name: &str, text: &str| (name.to_owned(), Setting::Text(text.to_owned()));
    let named = [text("name", &model.name), text("variant", &model.variant)];
    let dtype = (!model.dtype.is_empty()).then(|| text("dtype", &model.dtype));
    named.into_iter().chain(dtype).chain(model.settings.iter().cloned()).collect()
}
