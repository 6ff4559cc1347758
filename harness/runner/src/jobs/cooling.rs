//! Lets a hot GPU cool before a case is timed: near the GPU's temperature limit the driver lowers
//! its clocks, and the time would depend on what ran before.
//!
//! Two thresholds (a hysteresis) keep a GPU between them from waiting before every case. The wait
//! has an end, since a GPU in a hot room may never cool; then the report has a warning.

use super::Session;
use crate::cli::UnfitHost;
use crate::fault::Result;
use crate::report_writer::print_progress;
use rgpu_case::{Cooling, HostWarning, WarningKind};
use std::time::{Duration, Instant};

/// A GPU is hot with less headroom than this. Headroom: °C below the temperature that slows it
/// down.
const HOT_HEADROOM_C: i32 = 8;

/// A hot GPU has cooled when its headroom is at least this, in °C.
const COOL_HEADROOM_C: i32 = 15;

/// How often the temperature is read while waiting.
const POLL: Duration = Duration::from_millis(250);

/// Waits until a hot GPU has cooled, at most as long as the input says. `None` if it was not hot,
/// if NVML does not tell, or if `cool_seconds` is 0 or unusable.
///
/// # Errors
/// It is still hot, and `on_unfit` refuses such a host. Earlier cases may have been timed.
pub(super) fn wait_until_cool(
    session: &Session<'_>,
    on_unfit: UnfitHost,
) -> Result<Option<Cooling>> {
    let read_headroom = || session.nvml.as_ref().and_then(|nvml| nvml.headroom_c());
    let limit = Duration::try_from_secs_f64(session.input.spec.timing.cool_seconds);
    let limit = limit.unwrap_or_default();
    if limit.is_zero() {
        return Ok(None);
    }
    let Some(headroom_before_c) = read_headroom().filter(|c| *c < HOT_HEADROOM_C) else {
        return Ok(None);
    };
    let started_at = Instant::now();
    let mut headroom_c = headroom_before_c;
    print_progress!("cooling: the GPU is {headroom_c} °C below the temperature that slows it down");
    while headroom_c < COOL_HEADROOM_C && started_at.elapsed() < limit {
        std::thread::sleep(POLL.min(limit));
        headroom_c = read_headroom().unwrap_or(headroom_c);
    }
    let seconds = started_at.elapsed().as_secs_f64();
    if headroom_c < COOL_HEADROOM_C {
        session.report.add_warning(HostWarning {
            kind: WarningKind::ThermalLimit,
            text: format!(
                "the GPU is hot: {headroom_c} °C below the temperature that slows it down, after \
                 {seconds:.0} s of waiting"
            ),
        });
        if on_unfit == UnfitHost::Refuse {
            session.refuse_if_unfit()?;
        }
    }
    Ok(Some(Cooling { seconds, from_c: headroom_before_c, to_c: headroom_c }))
}
