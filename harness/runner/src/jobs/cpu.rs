//! `cpu`: runs the reference on the CPU, without a driver, under the same ranges as a kernel.

use crate::fault::{Fault, Result};
use crate::host_case::{HostCase, ReferenceRun};
use crate::input::Input;
use crate::library::HostReference;
use crate::report_writer::{ReportWriter, print_progress};
use crate::sampling::{Sampling, describe_timing};
use rgpu_case::{Case, ErrorClass, HostFunction, Phase, Reference, TimingPlan, TimingSource};

/// A reference is slow and its timing coarse, so this job takes fewer samples than a GPU job.
const MIN_ITERS: u32 = 5;
const MAX_SECONDS: f64 = 2.0;

/// Runs and times the reference of every case.
pub(crate) fn run(input: &Input, report: &ReportWriter) -> Result<()> {
    let (function, cases) = reference(input, report)?;
    let library = {
        let _ranges = report.enter_phase(Phase::Setup, None)?;
        HostReference::open(function, &input.folder)?
    };
    let plan = TimingPlan {
        min_iters: input.spec.timing.min_iters.min(MIN_ITERS),
        max_seconds: input.spec.timing.max_seconds.min(MAX_SECONDS),
        ..input.spec.timing.clone()
    };
    for case in cases {
        run_case(input, report, &library, case, &plan)?;
    }
    Ok(())
}

fn run_case(
    input: &Input,
    report: &ReportWriter,
    library: &HostReference,
    case: &Case,
    plan: &TimingPlan,
) -> Result<()> {
    let setup = report.enter_phase(Phase::Setup, Some(case))?;
    let host = HostCase::generate(case, input.spec.seed, &input.folder)?;
    let mut run = ReferenceRun::new(&host)?;
    drop(setup);
    {
        let _ranges = report.enter_phase(Phase::Warmup, Some(case))?;
        let ns = run.call(library)?;
        report.update_case(&case.name, |report| report.reference_ns = Some(ns));
        run.check_complete()?;
    }
    let ranges = report.enter_phase(Phase::Timed, Some(case))?;
    let mut sampling = Sampling::start(plan);
    while sampling.next_batch_limit() > 0 {
        run.restore();
        sampling.push(&[run.call(library)?], None);
    }
    drop(ranges);
    if let Some(timing) = sampling.finish(TimingSource::Cpu, None, None) {
        print_progress!("cpu {}: reference {}", case.name, describe_timing(&timing));
        report.update_case(&case.name, |report| report.timing = Some(timing));
    }
    Ok(())
}

/// The host function and the cases that it is meant for.
fn reference<'a>(
    input: &'a Input,
    report: &ReportWriter,
) -> Result<(&'a HostFunction, &'a [Case])> {
    match &input.spec.reference {
        Some(Reference::HostLibrary(function)) => Ok((function, &input.spec.cases)),
        Some(
            Reference::DeviceKernel { check, small, .. }
            | Reference::DeviceFunction { check, small, .. },
        ) => {
            let names = input.spec.cases.iter().map(|case| format!("`{}`", case.name));
            report.add_gap(format!(
                "not run: {}: its reference is a GPU kernel; the CPU reference ran on the small \
                 sizes instead",
                names.collect::<Vec<_>>().join(", ")
            ));
            Ok((check, small))
        }
        // `input::read` refuses a Python reference.
        Some(Reference::Python { .. }) | None => Err(Fault::new(
            ErrorClass::Reference,
            "the kernel has no reference, so nothing can run without a GPU",
        )),
    }
}
