//! Times that no GPU of a kind can reach.
//!
//! Every right kernel has to move `needed_bytes`: the outputs, and the inputs as far as they were
//! seen to influence the outputs. All of them pass between the SMs and L2. All but what L2 can keep
//! from one call to the next, or has not written back when the call ends, also pass between L2 and
//! DRAM. Both take a least time at the peak rates of the GPU. A time below that is refused, and a
//! time near it is told. Work that `[work]` lists refuses nothing: a kernel may need less of it.

use super::datasheet::{self, Peaks};
use super::device;
use rgpu_model::Profile;
use rgpu_model::profile::{CaseResult, CheckVerdict, Correctness, Gap, Timing, TimingClock};

/// What a time may lie below its least time: errors of clocks.
const SLACK: f64 = 0.02;

/// What datasheets round away from the rate of DRAM.
const ROUNDED: f64 = 0.03;

/// Times whose least time is at least this share of them are told.
const NEAR_SHARE: f64 = 0.9;

/// Bytes that an SM can take from L2 in a clock.
const L2_BYTES_PER_CLOCK: f64 = 64.0;

/// The size of an L2 that nobody reports: larger than any.
const UNKNOWN_L2_BYTES: f64 = 256.0 * 1024.0 * 1024.0;

/// The least time of a case.
struct LeastTime {
    ns: f64,
    /// What takes it.
    limit: &'static str,
}

/// What is wrong with the first case whose time is impossible; `None` if there is none.
pub fn impossible_time(profile: &Profile) -> Option<String> {
    each_case(profile).find_map(|(case, timing, least)| {
        (timing.median_ns < least.ns * (1.0 - SLACK)).then(|| {
            format!(
                "`{}` takes {:.2} µs, but {} bytes that any right kernel moves take {:.2} µs at the \
                 peak rate of {}",
                case.name,
                timing.median_ns / 1e3,
                timing.needed_bytes.unwrap_or_default(),
                least.ns / 1e3,
                least.limit,
            )
        })
    })
}

/// Tells times that are near the least possible one, or faster than the listed work can be done.
pub(super) fn add_notes(profile: &mut Profile) {
    let mut notes: Vec<Gap> = each_case(profile)
        .filter(|(_, timing, least)| least.ns >= NEAR_SHARE * timing.median_ns)
        .map(|(case, timing, least)| Gap {
            code: "near_least_time".to_owned(),
            text: format!(
                "`{}` reaches {:.0} % of the rate that {} can have at most: check that its data \
                 are new for each call",
                case.name,
                100.0 * least.ns / timing.median_ns,
                least.limit,
            ),
        })
        .collect();
    if let Some(sheet) = sheet_of(profile) {
        let peak = sheet.compute.iter().map(|(_, rate)| rate * 1e12).fold(0.0, f64::max);
        let outruns = |timing: &&Timing| {
            timing.flops_per_s.is_some_and(|rate| peak > 0.0 && rate > peak * (1.0 + SLACK))
        };
        notes.extend(profile.cases.iter().filter(|c| c.timing.as_ref().filter(outruns).is_some()).map(
            |case| Gap {
                code: "faster_than_work".to_owned(),
                text: format!(
                    "`{}` is faster than its listed work: `[work]` has more operations than any \
                     unit of the GPU can do in that time",
                    case.name
                ),
            },
        ));
    }
    notes.retain(|note| !profile.warnings.contains(note));
    profile.warnings.extend(notes);
}

/// The cases that ran on a known GPU and are right, with their times and least times.
fn each_case(profile: &Profile) -> impl Iterator<Item = (&CaseResult, &Timing, LeastTime)> {
    let sheet = sheet_of(profile);
    profile.cases.iter().filter_map(move |case| {
        let timing = case.timing.as_ref()?;
        let on_gpu = timing.clock != TimingClock::CpuReference && timing.median_ns > 0.0;
        let is_right = |check: &Correctness| check.verdict == CheckVerdict::Right;
        let checked = timing.verified.is_some_and(|calls| calls > 0)
            || case.correctness.as_ref().is_some_and(is_right);
        (on_gpu && checked).then_some(())?;
        Some((case, timing, least_time(timing, sheet?)?))
    })
}

fn sheet_of(profile: &Profile) -> Option<&'static Peaks> {
    device::find_device(profile).name.as_deref().and_then(datasheet::peaks)
}

fn least_time(timing: &Timing, sheet: &Peaks) -> Option<LeastTime> {
    let bytes = timing.needed_bytes? as f64;
    let kept =
        timing.l2_bytes.filter(|size| *size > 0).map_or(UNKNOWN_L2_BYTES, |size| size as f64);
    let dram = (bytes - kept).max(0.0) / (sheet.dram * (1.0 + ROUNDED)) * 1e-3;
    let l2 = bytes / l2_rate(timing, sheet)? * 1e9;
    Some(if dram > l2 {
        LeastTime { ns: dram, limit: "DRAM" }
    } else {
        LeastTime { ns: l2, limit: "L2" }
    })
}

/// The most bytes a second between all SMs and L2, at the highest clock: that of the FP32 peak, or
/// one that was seen. Volta, Turing and GA100 have 64 lanes per SM, the others 128; a lane has one
/// fused multiply-add a clock.
fn l2_rate(timing: &Timing, sheet: &Peaks) -> Option<f64> {
    let fp32 = sheet.compute.iter().find(|(label, _)| *label == "FP32").map(|(_, rate)| *rate)?;
    let sms = f64::from(sheet.sms);
    let lanes =
        if sheet.major < 8 || (sheet.major == 8 && sheet.sms == 108) { 64.0 } else { 128.0 };
    let boost_hz = fp32 * 1e12 / (sms * lanes * 2.0);
    let seen_hz = timing.sm_mhz.unwrap_or_default() * 1e6;
    Some(boost_hz.max(seen_hz) * sms * L2_BYTES_PER_CLOCK).filter(|rate| *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case on an H200, whose L2 has 50 MiB.
    fn profile(ns: f64, needed: Option<u64>, flops_per_s: Option<f64>) -> Profile {
        let timing = Timing {
            median_ns: ns,
            needed_bytes: needed,
            l2_bytes: Some(50 << 20),
            verified: Some(10),
            flops_per_s,
            ..Timing::default()
        };
        let case = CaseResult { name: "a".into(), timing: Some(timing), ..CaseResult::default() };
        Profile { device: Some("NVIDIA H200".into()), cases: vec![case], ..Profile::default() }
    }

    #[test]
    fn a_time_below_that_of_the_bytes_over_dram_is_impossible() {
        // 1 GiB at 4.9 TB/s, less what L2 keeps, takes 206 µs.
        let needed = Some(1 << 30);
        let told = impossible_time(&profile(190e3, needed, None)).unwrap();
        assert!(told.contains("`a` takes 190.00 µs") && told.contains("DRAM"), "{told}");
        assert_eq!(impossible_time(&profile(204e3, needed, None)), None, "within the slack");
        assert_eq!(impossible_time(&profile(1.0, None, None)), None, "nothing is known");
        let mut unchecked = profile(1.0, needed, None);
        unchecked.cases[0].timing.as_mut().unwrap().verified = None;
        assert_eq!(impossible_time(&unchecked), None, "wrong results may have left work out");
    }

    #[test]
    fn what_fits_in_l2_is_held_against_the_rate_of_l2() {
        // 16 MiB at 16.7 TB/s take 1 µs.
        let told = impossible_time(&profile(0.8e3, Some(16 << 20), None)).unwrap();
        assert!(told.contains("L2"), "{told}");
        assert_eq!(impossible_time(&profile(1.1e3, Some(16 << 20), None)), None);
    }

    #[test]
    fn near_times_and_times_beyond_the_listed_work_are_told_once() {
        let mut near = profile(215e3, Some(1 << 30), None);
        add_notes(&mut near);
        add_notes(&mut near);
        assert_eq!(near.warnings.len(), 1);
        assert_eq!(near.warnings[0].code, "near_least_time");
        let mut fast = profile(1e6, Some(1 << 20), Some(2.5e15));
        add_notes(&mut fast);
        assert_eq!(fast.warnings[0].code, "faster_than_work");
        assert_eq!(impossible_time(&fast), None, "listed work alone refuses nothing");
        let mut usual = profile(1e6, Some(1 << 20), Some(9e14));
        add_notes(&mut usual);
        assert!(usual.warnings.is_empty());
    }
}
