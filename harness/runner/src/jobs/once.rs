//! `once`: warm-up, then one launch per data set in the range `timed`, for profiling tools.

use super::Session;
use super::session::{DeviceCase, Target};
use crate::cuda::ProbeCalls;
use crate::fault::Outcome;
use crate::journal::say;
use rgpu_case::{Case, Phase};

pub(crate) fn run(session: &Session<'_>) -> Outcome<()> {
    let target = session.target()?;
    for set in &session.input.case.data_sets {
        launch_once(session, &target, set)?;
        say!("once {}: launched", set.name);
    }
    Ok(())
}

fn launch_once(session: &Session<'_>, target: &Target<'_>, set: &Case) -> Outcome<()> {
    let setup = session.journal.enter(Phase::Setup, Some(set))?;
    let host = session.fill(set)?;
    let device = DeviceCase::new(&session.gpu, &host, 0)?;
    device.fill_inputs()?;
    let (prepared, prepare_ns) = target.prepare(&session.gpu, &device, ProbeCalls::Quiet)?;
    session.journal.record(&set.name, |report| report.prepare_ns = prepare_ns);
    drop(setup);
    let warmup = session.journal.enter(Phase::Warmup, Some(set))?;
    for _ in 0..session.input.case.timing.warmup {
        device.restore()?;
        prepared.launch()?;
    }
    device.restore()?;
    session.gpu.synchronize()?;
    drop(warmup);
    // Waiting inside the range keeps the kernel's own time within it.
    let _timed = session.journal.enter(Phase::Timed, Some(set))?;
    prepared.launch()?;
    session.gpu.synchronize()
}
