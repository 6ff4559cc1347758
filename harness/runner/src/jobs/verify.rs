//! `verify`: checks the kernel's outputs for every case of the input.
//!
//! Each case is launched twice on the same inputs. Before each launch its outputs are filled with
//! another bit pattern ([`Poison`]), which shows elements that are never written. Both results are
//! compared with the reference, which runs on the host or, checked first on small cases, on the
//! GPU. The result of each case goes to the report.

use super::Session;
use super::session::{DeviceCase, LaunchTarget, bind_kernel};
use crate::abi::AbiCase;
use crate::compare::{OutputPair, passes};
use crate::cuda::{ExpectedFailures, Function, Module};
use crate::fault::{Fault, Result};
use crate::host_case::{HostCase, ReferenceRun};
use crate::host_memory::HostBuffer;
use crate::library::{DeviceReferenceLibrary, HostReference};
use crate::poison::Poison;
use crate::report_writer::print_progress;
use rgpu_case::{
    Case, Correctness, ErrorClass, HostFunction, OutputCheck, Phase, Reference, Tolerance,
};
use std::time::Instant;

/// The source of the expected outputs.
enum ExpectedOutputs<'g> {
    Nothing,
    Host(HostReference),
    Device(DeviceReference<'g>),
}

/// A slow, simple implementation on the GPU, whose outputs count as correct.
pub(super) enum DeviceReference<'g> {
    Kernel(Function<'g>),
    Function(DeviceReferenceLibrary),
}

/// Outputs of one case, by argument. `None` for arguments that are not outputs.
type Outputs = Vec<Option<HostBuffer>>;

/// Verifies every case. The first wrong one becomes the error after all are done.
pub(crate) fn run(session: &Session<'_>) -> Result<()> {
    let target = session.load_own_target()?;
    let folder = &session.input.folder;
    let expected = match (&session.input.spec.reference, reference_on_device(session)?) {
        (_, Some(reference)) => ExpectedOutputs::Device(reference),
        (Some(Reference::HostLibrary(function)), None) => {
            ExpectedOutputs::Host(HostReference::open(function, folder)?)
        }
        _ => {
            session.report.add_gap("the kernel has no reference: its values were not checked");
            ExpectedOutputs::Nothing
        }
    };
    let mut wrong = None;
    for case in &session.input.spec.cases {
        let correctness = verify(session, &target, &expected, case)?;
        let verdict = describe_correctness(&correctness);
        print_progress!("verify {}: {verdict}", case.name);
        if !correctness.passed && wrong.is_none() {
            let mut fault = Fault::new(
                ErrorClass::WrongResult,
                format!("the kernel's results are wrong for `{}`: {verdict}", case.name),
            );
            fault.0.case = Some(case.name.clone());
            wrong = Some(fault);
        }
        session.report.update_case(&case.name, |report| report.correctness = Some(correctness));
    }
    wrong.map_or(Ok(()), Err)
}

/// Loads the reference on the GPU, if the input has one, and checks it against the host function on
/// the small cases.
pub(super) fn reference_on_device<'g>(
    session: &'g Session<'_>,
) -> Result<Option<DeviceReference<'g>>> {
    let folder = &session.input.folder;
    let (reference, check, small) = match &session.input.spec.reference {
        Some(Reference::DeviceKernel { module, function, check, small }) => {
            let module = Module::load(&session.gpu, &folder.join(module))?;
            (DeviceReference::Kernel(module.function(function)?), check, small)
        }
        Some(Reference::DeviceFunction { library, function, check, small }) => {
            let library = DeviceReferenceLibrary::open(library, function, folder)?;
            (DeviceReference::Function(library), check, small)
        }
        _ => return Ok(None),
    };
    let _ranges = session.report.enter_phase(Phase::Setup, None)?;
    check_on_small_cases(session, &reference, check, small)?;
    Ok(Some(reference))
}

fn verify(
    session: &Session<'_>,
    target: &LaunchTarget<'_>,
    expected: &ExpectedOutputs<'_>,
    case: &Case,
) -> Result<Correctness> {
    let setup = session.report.enter_phase(Phase::Setup, Some(case))?;
    let host = session.generate_case(case)?;
    let device = DeviceCase::new(&session.gpu, &host, 0)?;
    device.fill_and_poison(Poison::First)?;
    let (prepared, prepare_ns) =
        target.prepare(&session.gpu, &device, ExpectedFailures::Allowed)?;
    session.report.update_case(&case.name, |report| report.prepare_ns = prepare_ns);
    drop(setup);

    let _ranges = session.report.enter_phase(Phase::Verify, Some(case))?;
    prepared.launch()?;
    session.gpu.synchronize()?;
    let first = device.download_outputs()?;
    let changed = device.changed_inputs()?;
    device.fill_and_poison(Poison::Second)?;
    prepared.launch()?;
    session.gpu.synchronize()?;
    let second = device.download_outputs()?;
    drop(prepared);

    let expected_outputs = match expected {
        ExpectedOutputs::Nothing => None,
        ExpectedOutputs::Host(library) => Some(host_reference(session, library, &host)?),
        ExpectedOutputs::Device(reference) => {
            let (outputs, ns) = device_reference(session, reference, &host)?;
            session.report.update_case(&case.name, |report| report.reference_ns = Some(ns));
            Some(outputs)
        }
    };
    let (outputs, bit_equal, passed) =
        compare(&host, &first, &second, expected_outputs.as_ref(), &session.input.spec.tolerance);
    let changed_inputs: Vec<String> =
        changed.iter().map(|&(i, ..)| host.args[i].spec.name.clone()).collect();
    Ok(Correctness {
        passed: passed && changed_inputs.is_empty(),
        outputs,
        bit_equal,
        changed_inputs,
        checker: None,
    })
}

/// Compares both launches. Returns the check of each output, whether the launches are bit-equal,
/// and whether all checks pass; without expected outputs there are no checks.
fn compare(
    host: &HostCase<'_>,
    first: &Outputs,
    second: &Outputs,
    expected_outputs: Option<&Outputs>,
    tolerance: &Tolerance,
) -> (Vec<OutputCheck>, bool, bool) {
    let mut outputs = Vec::new();
    let (mut bit_equal, mut passed) = (true, true);
    for (i, arg) in host.args.iter().enumerate() {
        let (Some(first), Some(second)) = (&first[i], &second[i]) else { continue };
        let results = OutputPair {
            arg: arg.spec,
            group: arg.group,
            left: first.bytes(),
            right: second.bytes(),
        };
        bit_equal &= results.bit_equal();
        if let Some(expected_outputs) =
            expected_outputs.and_then(|expected_outputs| expected_outputs[i].as_ref())
        {
            let checked = results.check(expected_outputs.bytes(), tolerance);
            passed &= passes(&checked, arg.spec, tolerance);
            outputs.push(checked);
        }
    }
    (outputs, bit_equal, passed)
}

fn host_reference(
    session: &Session<'_>,
    library: &HostReference,
    host: &HostCase<'_>,
) -> Result<Outputs> {
    let mut run = ReferenceRun::new(host)?;
    let ns = run.call(library)?;
    session.report.update_case(&host.case.name, |report| report.reference_ns = Some(ns));
    run.check_complete()?;
    Ok(run.buffers)
}

/// The reference's outputs, and its time in nanoseconds.
fn device_reference(
    session: &Session<'_>,
    reference: &DeviceReference<'_>,
    host: &HostCase<'_>,
) -> Result<(Outputs, f64)> {
    let as_reference_fault = |fault: Fault| fault.while_doing("the reference on the GPU");
    let device = DeviceCase::new(&session.gpu, host, 0)?;
    device.fill_and_poison(Poison::First)?;
    let start = Instant::now();
    match reference {
        DeviceReference::Kernel(function) => {
            let launch = host.case.reference_launch.as_ref();
            let prepared = bind_kernel(function, launch, &device, ExpectedFailures::Allowed)
                .map_err(as_reference_fault)?;
            prepared.launch().map_err(as_reference_fault)?;
        }
        DeviceReference::Function(library) => {
            let case = AbiCase::new(host.case, &device.addresses());
            library.run(&case, session.gpu.stream.cast())?;
        }
    }
    session.gpu.synchronize().map_err(as_reference_fault)?;
    let ns = start.elapsed().as_nanos() as f64;
    Ok((device.download_outputs()?, ns))
}

/// Fails unless the reference on the GPU agrees with the host function `check` on every small case.
fn check_on_small_cases(
    session: &Session<'_>,
    reference: &DeviceReference<'_>,
    check: &HostFunction,
    small: &[Case],
) -> Result<()> {
    let check = HostReference::open(check, &session.input.folder)?;
    small.iter().try_for_each(|case| check_reference(session, reference, &check, case))
}

fn check_reference(
    session: &Session<'_>,
    reference: &DeviceReference<'_>,
    check: &HostReference,
    case: &Case,
) -> Result<()> {
    let host = session.generate_case(case)?;
    let mut run = ReferenceRun::new(&host)?;
    run.call(check)?;
    run.check_complete()?;
    let (got, _) = device_reference(session, reference, &host)?;
    let (outputs, _, passed) =
        compare(&host, &got, &got, Some(&run.buffers), &session.input.spec.tolerance);
    if passed {
        return Ok(());
    }
    let verdict = describe_correctness(&Correctness {
        passed,
        outputs,
        bit_equal: true,
        changed_inputs: Vec::new(),
        checker: None,
    });
    Err(Fault::new(
        ErrorClass::Reference,
        format!(
            "the reference on the GPU disagrees with its host function on `{}`: {verdict}",
            case.name
        ),
    ))
}

/// One line with the first failure, or with the largest errors.
fn describe_correctness(correctness: &Correctness) -> String {
    let mut parts = Vec::new();
    for name in &correctness.changed_inputs {
        parts.push(format!("input `{name}` was changed"));
    }
    for output in &correctness.outputs {
        let name = &output.name;
        if output.unwritten > 0 {
            let (left, all) = (output.unwritten, output.elements);
            let were = if left == 1 { "was" } else { "were" };
            parts.push(format!("{left} of {all} elements of `{name}` {were} never written"));
        }
        let Some(first) = &output.first_mismatch else {
            parts.push(format!(
                "`{name}` is correct, largest error {:.3e} absolute, {:.3e} relative",
                output.max_abs_error, output.max_rel_error
            ));
            continue;
        };
        let are = if output.mismatches == 1 { "is" } else { "are" };
        parts.push(format!(
            "{} of {} elements of `{name}` {are} beyond the tolerance, first at {:?}: got {}, \
             expected {}",
            output.mismatches, output.elements, first.coordinates, first.actual, first.expected
        ));
    }
    if correctness.outputs.is_empty() {
        parts.push("nothing to compare with".to_owned());
    }
    parts.push(if correctness.bit_equal {
        "two calls are bit-equal".to_owned()
    } else {
        "two calls differ in their bits".to_owned()
    });
    parts.join("; ")
}
