//! cuDNN converts between NCHW and NHWC around each convolution.
//!
//! Its convolutions on tensor cores want the channels last. Given NCHW, cuDNN launches
//! `nchwToNhwcKernel` before them and `nhwcToNchwKernel` after them; their names are the signature.
//! With channels last in model and input no conversion is left, and the convolutions stay as they
//! are.

use super::Found;
use super::picked::{Changes, Framework, Picked, has_name, names_that};
use crate::view::View;

/// Whether a kernel converts the layout for a convolution.
pub(super) fn is_conversion(name: &str) -> bool {
    const NAMES: &[&str] =
        &["nchwToNhwc", "nhwcToNchw", "nchwToFold", "nhwcToFold", "nhwcAddPaddingKernel"];
    NAMES.iter().any(|known| name.contains(known))
}

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let names = names_that(view, is_conversion);
    let conversions = Picked::find(view, |work| has_name(&names, work));
    if !conversions.matters() {
        return None;
    }
    let hint = if Framework::of(view) == Framework::Jax {
        "give the convolutions `dimension_numbers=(\"NHWC\", \"HWIO\", \"NHWC\")` and the images \
         with their channels last"
    } else {
        "`model = model.to(memory_format=torch.channels_last)` and \
         `images = images.to(memory_format=torch.channels_last)`"
    };
    let changes = Changes::new(view);
    Some(Found {
        change: "keep the channels last".to_owned(),
        text: format!(
            "cuDNN changes the layout around convolutions, which takes {}",
            conversions.words()
        ),
        hint: hint.to_owned(),
        least: changes.scaled(&conversions.at, 0.1),
        most: changes.without(&conversions.at, 0.3),
        work: conversions.at,
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn conversions_around_convolutions_are_found_and_channels_last_is_silent() {
        let to = "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float>(X)";
        let back = "void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float>(X)";
        let fault = StepScript::new()
            .kernel(to, 20.0)
            .kernel(names::CONVOLUTION, 100.0)
            .kernel(back, 20.0)
            .play(3);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 40_000.0).abs() < 1.0);
        assert!((fault.removed_ns(&found.least) - 36_000.0).abs() < 1.0);
        assert!(StepScript::new().kernel(names::CONVOLUTION, 100.0).play(3).look(find).is_none());
    }
}
