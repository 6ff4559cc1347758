//! Lets a hot GPU cool before it is timed: near its limit the driver lowers the clocks, and the
//! time would depend on what ran before.
//!
//! Two thresholds (a hysteresis) keep a GPU in between from waiting before every case. The wait has
//! an end, since a GPU in a hot room may never cool; then the report has a warning.

use super::Session;
use crate::cli::UnfitHost;
use crate::fault::Result;
use crate::report_writer::print_progress;
use rgpu_case::{Cooling, HostWarning, WarningKind};
use std::time::{Duration, Instant};

/// A GPU with less headroom than this is hot, in °C below the temperature that slows it down.
const HOT_BELOW_C: i32 = 8;

/// A hot GPU has cooled when its headroom is at least this, in °C.
const COOL_FROM_C: i32 = 15;

/// How often the temperature is read while waiting.
const POLL: Duration = Duration::from_millis(250);

/// Waits until a hot GPU has cooled, at most as long as the input says. `None` if it was not hot,
/// or NVML does not tell.
///
/// # Errors
/// It is still hot, and `unfit` refuses such a host.
pub(super) fn wait_until_cool(session: &Session<'_>, unfit: UnfitHost) -> Result<Option<Cooling>> {
    let headroom = || session.nvml.as_ref().and_then(|nvml| nvml.headroom_c());
    let limit = Duration::try_from_secs_f64(session.input.spec.timing.cool_seconds);
    let limit = limit.unwrap_or_default();
    if limit.is_zero() {
        return Ok(None);
    }
    let Some(from_c) = headroom().filter(|from_c| *from_c < HOT_BELOW_C) else { return Ok(None) };
    let started_at = Instant::now();
    let mut to_c = from_c;
    print_progress!("cool: {from_c} °C below the temperature that slows the GPU down");
    while to_c < COOL_FROM_C && started_at.elapsed() < limit {
        std::thread::sleep(POLL.min(limit));
        to_c = headroom().unwrap_or(to_c);
    }
    let seconds = started_at.elapsed().as_secs_f64();
    if to_c < COOL_FROM_C {
        session.report.add_warning(HostWarning {
            kind: WarningKind::ThermalLimit,
            text: format!(
                "the GPU is hot: {to_c} °C below the temperature that slows it down, after \
                 {seconds:.0} s of waiting"
            ),
        });
        if unfit == UnfitHost::Refuse {
            session.refuse_if_unfit()?;
        }
    }
    Ok(Some(Cooling { seconds, from_c, to_c }))
}
