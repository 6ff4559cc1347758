//! `once`: warm-up, then one launch per case in the range `timed`, for profiling tools.

use super::Session;
use super::session::{DeviceCase, LaunchTarget};
use crate::cuda::ExpectedFailures;
use crate::fault::Result;
use crate::report_writer::print_progress;
use rgpu_case::{Case, Phase};

pub(crate) fn run(session: &Session<'_>) -> Result<()> {
    let target = session.load_own_target()?;
    for case in &session.input.spec.cases {
        launch_once(session, &target, case)?;
        print_progress!("once {}: launched", case.name);
    }
    Ok(())
}

fn launch_once(session: &Session<'_>, target: &LaunchTarget<'_>, case: &Case) -> Result<()> {
    let setup = session.report.enter_phase(Phase::Setup, Some(case))?;
    let host = session.generate_case(case)?;
    let device = DeviceCase::new(&session.gpu, &host, 0)?;
    device.fill_inputs()?;
    let (prepared, prepare_ns) =
        target.prepare(&session.gpu, &device, ExpectedFailures::Forbidden)?;
    session.report.update_case(&case.name, |report| report.prepare_ns = prepare_ns);
    drop(setup);
    let warmup = session.report.enter_phase(Phase::Warmup, Some(case))?;
    for _ in 0..session.input.spec.timing.warmup {
        device.restore_inout()?;
        prepared.launch()?;
    }
    device.restore_inout()?;
    session.gpu.synchronize()?;
    drop(warmup);
    // Waiting inside the range keeps the kernel's own time within it.
    let _timed = session.report.enter_phase(Phase::Timed, Some(case))?;
    prepared.launch()?;
    session.gpu.synchronize()
}
