//! A time as a share of its speed-of-light bound, in words.

use super::quantity::{duration, percent};
use rgpu_model::bound::BoundShare;
use rgpu_model::speed_of_light::SpeedBound;

/// `54 % of what the tensor cores (bf16) allow at the specified 1830 MHz, 66 % at the measured
/// 1500 MHz`.
pub(super) fn share_text(share: &BoundShare) -> String {
    let verb = if share.limit == SpeedBound::Memory { "allows" } else { "allow" };
    let clock = match share.specified_mhz {
        Some(mhz) => format!("the specified {mhz:.0} MHz"),
        None => "the specified clock".to_owned(),
    };
    let mut text = format!("{} of what {} {verb} at {clock}", percent(share.percent), share.unit);
    if let Some(measured) = &share.at_measured_clock {
        text += &format!(", {} at the measured {:.0} MHz", percent(measured.percent), measured.mhz);
    }
    if share.percent > 100.0 {
        text += "; faster than the bound: ";
        if share.limit == SpeedBound::Memory {
            text += "if the data does not come from the L2, ";
        }
        text += "check the measurement and `[work]`";
    }
    text
}

/// `measured 1.6 ms, predicted 1.54 ms (80 % of such kernels: 1.48 ms to 1.62 ms), bound 1.11 ms`.
/// `None` without a prediction.
pub(super) fn prediction_text(share: &BoundShare) -> Option<String> {
    let predicted = share.predicted.as_ref()?;
    let [fast, slow] = predicted.likely_ns.map(duration);
    let borrowed = match &predicted.borrowed_from {
        Some(from) => format!(", by the efficiencies of {from}"),
        None => String::new(),
    };
    Some(format!(
        "measured {}, predicted {} (80 % of such kernels: {fast} to {slow}{borrowed}), bound {}",
        duration(share.measured_ns()),
        duration(predicted.ns),
        duration(share.bound_ns)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::bound::{PredictedTime, ShareAtClock};

    #[test]
    fn measured_predicted_and_bound_stand_in_one_line() {
        let mut share = BoundShare { percent: 50.0, bound_ns: 1000.0, ..BoundShare::default() };
        assert_eq!(prediction_text(&share), None);
        let likely_ns = [1400.0, 1800.0];
        share.predicted = Some(PredictedTime { ns: 1600.0, likely_ns, borrowed_from: None });
        assert_eq!(
            prediction_text(&share).as_deref(),
            Some(
                "measured 2.00 µs, predicted 1.60 µs (80 % of such kernels: 1.40 µs to 1.80 µs), \
                 bound 1.00 µs"
            )
        );
        share.predicted.as_mut().unwrap().borrowed_from = Some("h200".to_owned());
        assert!(prediction_text(&share).unwrap().contains(", by the efficiencies of h200)"));
    }

    #[test]
    fn both_clocks_are_named_and_a_time_below_the_bound_is_doubted() {
        let mut share = BoundShare {
            limit: SpeedBound::Compute,
            unit: "the tensor cores (bf16)".to_owned(),
            percent: 54.0,
            specified_mhz: Some(1830.0),
            at_measured_clock: Some(ShareAtClock { mhz: 1500.0, bound_ns: 1.0, percent: 65.9 }),
            ..BoundShare::default()
        };
        assert_eq!(
            share_text(&share),
            "54 % of what the tensor cores (bf16) allow at the specified 1830 MHz, 66 % at the \
             measured 1500 MHz"
        );
        share.at_measured_clock = None;
        share.specified_mhz = None;
        (share.limit, share.unit) = (SpeedBound::Memory, "HBM".to_owned());
        assert_eq!(share_text(&share), "54 % of what HBM allows at the specified clock");
        share.percent = 120.0;
        assert!(share_text(&share).ends_with("check the measurement and `[work]`"));
    }
}
