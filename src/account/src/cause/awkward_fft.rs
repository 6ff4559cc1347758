//! Fourier transforms of a length with a large prime factor.
//!
//! cuFFT has kernels for lengths that are products of 2, 3, 5, 7 (and a few primes more). Else it
//! uses Bluestein's algorithm, whose kernels have that name: two transforms of more than twice the
//! length, with products before and after. Padded to the next smooth length, one transform is left:
//! 15 to 35 % of the time. Kernels that pack real numbers of an odd length go, or stay.

use super::Found;
use super::picked::{Changes, Framework, Picked, has_name, names_that};
use crate::view::View;

/// A smooth length as a part of Bluestein's time: most and least gain.
const SMOOTH_RATIO: (f64, f64) = (0.15, 0.35);

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let names = names_that(view, |name| name.to_ascii_lowercase().contains("bluestein"));
    let packs = names_that(view, |name| {
        ["packR2C_kernel_Odd", "unpackC2R_kernel_Odd"].iter().any(|word| name.contains(word))
    });
    let kernels = Picked::find(view, |work| has_name(&names, work));
    if !kernels.matters() {
        return None;
    }
    let odd = Picked::find(view, |work| has_name(&packs, work));
    let changes = Changes::new(view);
    let (most, least) = SMOOTH_RATIO;
    let mut edits = changes.scaled(&kernels.at, most);
    edits.add(&changes.without(&odd.at, 0.0));
    let hint = match Framework::of(view) {
        Framework::Torch => {
            "pad to the next smooth length and cut the result: \
             `n = scipy.fft.next_fast_len(length)`, `torch.fft.rfft(x, n=n)`; for a convolution any \
             length that is long enough is right"
        }
        Framework::Cupy => "`n = cupyx.scipy.fft.next_fast_len(length)`, `cp.fft.rfft(x, n=n)`",
        _ => "pad the transform to the next length with no prime factor above 7",
    };
    Some(Found {
        change: "pad to a length of small prime factors".to_owned(),
        text: format!(
            "Fourier transforms of a length with a large prime factor (Bluestein's algorithm) take \
             {}",
            kernels.words()
        ),
        hint: hint.to_owned(),
        least: changes.scaled(&kernels.at, least),
        most: edits,
        work: kernels.at.iter().chain(&odd.at).copied().collect(),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::StepScript;
    use super::*;

    #[test]
    fn bluestein_is_found_and_a_smooth_length_is_silent() {
        let slow = "void multi_bluestein_fft<(unsigned int)81, EPT<(unsigned int)9>>(X)";
        let odd =
            "void kernel_wrapper<unsigned int, &packR2C_kernel_Odd_impl<unsigned int, float>>(X)";
        let fault = StepScript::new().kernels(4, slow, 100.0).kernel(odd, 50.0).play(3);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 390_000.0).abs() < 10.0);
        assert!((fault.removed_ns(&found.least) - 260_000.0).abs() < 10.0);
        let fast = "void regular_fft_factor<(unsigned int)81, EPT<(unsigned int)9>>(X)";
        assert!(StepScript::new().kernels(4, fast, 30.0).play(3).look(find).is_none());
    }
}
