//! The Case of a request: what the runner allocates, launches and checks.

use rgpu_case::{CASE_ABI, Case, DataSet, Entry as CaseEntry, HostFunction, Reference, Tolerance};

use super::build;
use super::request::Request;
use crate::kernel::{Entry, KernelSpec};

/// All paths are relative to the job's folder, where the Case lies.
pub(super) fn case_of(
    request: &Request,
    spec: &KernelSpec,
    data_sets: Vec<DataSet>,
    small: Vec<DataSet>,
    seed: u64,
) -> Case {
    let module = build::module(spec);
    let reference = spec.reference.as_ref().map(|reference| {
        let check = HostFunction {
            library: build::REFERENCE.to_owned(),
            function: reference.function.clone(),
        };
        match &reference.device {
            None => Reference::HostLibrary(check),
            Some(device) if matches!(spec.entry, Entry::Host) => Reference::DeviceFunction {
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
    Case {
        abi: CASE_ABI,
        kernel: spec.name.clone(),
        entry: match &spec.entry {
            Entry::Device(function) => CaseEntry::Device { module, function: function.clone() },
            Entry::Host => CaseEntry::Host { library: module },
        },
        data_sets,
        reference,
        tolerance: spec.reference.as_ref().map_or_else(Tolerance::default, |r| r.tolerance),
        seed,
        timing: request.timing.clone(),
        policies: request.policies.clone(),
    }
}
