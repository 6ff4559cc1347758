//! The texts about sums by kernel that all reports share: what of them is set-up.

use super::quantity::duration;
use rgpu_model::Profile;
use rgpu_model::timeline::KernelSum;

/// `all of it set-up`, `16.7 ms of it set-up`; `None` without set-up.
pub(super) fn set_up_text(kernel: &KernelSum) -> Option<String> {
    match (kernel.set_up_ns, kernel.work_ns()) {
        (None, _) => None,
        (Some(_), 0) => Some("all of it set-up".to_owned()),
        (Some(ns), _) => Some(format!("{} of it set-up", duration(ns as f64))),
    }
}

/// The cell of a table with the set-up of a kernel: `all`, `16.7 ms`; empty without set-up.
pub(super) fn set_up_cell(kernel: &KernelSum) -> String {
    match (kernel.set_up_ns, kernel.work_ns()) {
        (None, _) => String::new(),
        (Some(_), 0) => "all".to_owned(),
        (Some(ns), _) => duration(ns as f64),
    }
}

/// GPU time of all kernels in nanoseconds, without set-up.
pub(super) fn work_ns(profile: &Profile) -> u64 {
    profile.kernels.iter().map(KernelSum::work_ns).sum()
}

/// `, apart from 110 ms of set-up`; empty without set-up.
pub(super) fn apart_from_set_up(profile: &Profile) -> String {
    match profile.kernels.iter().filter_map(|kernel| kernel.set_up_ns).sum::<u64>() {
        0 => String::new(),
        ns => format!(", apart from {} of set-up", duration(ns as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_up_is_told_apart() {
        let kernel =
            |total_ns, set_up_ns| KernelSum { total_ns, set_up_ns, ..KernelSum::default() };
        let kernels =
            vec![kernel(17_200, Some(16_700)), kernel(53_000, Some(53_000)), kernel(9_000, None)];
        let texts = kernels.iter().map(|kernel| (set_up_text(kernel), set_up_cell(kernel)));
        let expected = [
            (Some("16.7 µs of it set-up".to_owned()), "16.7 µs".to_owned()),
            (Some("all of it set-up".to_owned()), "all".to_owned()),
            (None, String::new()),
        ];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
        let profile = Profile { kernels, ..Profile::default() };
        assert_eq!(work_ns(&profile), 9_500);
        assert_eq!(apart_from_set_up(&profile), ", apart from 69.7 µs of set-up");
        assert_eq!(apart_from_set_up(&Profile::default()), "");
    }
}
