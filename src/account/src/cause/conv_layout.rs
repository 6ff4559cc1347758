//! cuDNN converts between NCHW and NHWC around each convolution.
//!
//! Its convolutions on tensor cores want the channels last. Given NCHW, cuDNN launches
//! `nchwToNhwcKernel` before them and `nhwcToNchwKernel` after them; their names are the signature.
//! With channels last in model and input no conversion is left, and the convolutions stay as they
//! are.
//!
//! Where they run with the channels last already, a `.contiguous()` between them brings a tensor back
//! to NCHW, and the next operator makes it NHWC again: copies with strides, forward and backward.

use rgpu_model::account::AccountCause;
use rgpu_model::trace::TraceWork;

use super::Found;
use super::picked::{Changes, Framework, Picked, has_name, names_that};
use crate::view::View;

/// Whether a kernel converts the layout for a convolution.
pub(super) fn is_conversion(name: &str) -> bool {
    const NAMES: &[&str] =
        &["nchwToNhwc", "nhwcToNchw", "nchwToFold", "nhwcToFold", "nhwcAddPaddingKernel"];
    NAMES.iter().any(|known| name.contains(known))
}

/// A part of a step that copies around convolutions take.
const MIN_BREAK_SHARE: f64 = 0.02;

/// The strided copies of a network whose convolutions run with the channels last. `None` if they do
/// not, or cuDNN converts anyway.
pub(super) fn breaks<'v, 't>(view: &'v View<'t>) -> Option<Picked<'v, 't>> {
    let last = names_that(view, |name| name.contains("nhwc") && !is_conversion(name));
    let is_last =
        |work: &TraceWork| has_name(&last, work) && view.class(work) == AccountCause::Convolution;
    let convolutions = view.work().filter(|(_, work)| is_last(work)).count() as f64;
    let has_attention = view.work().any(|(_, work)| {
        matches!(view.class(work), AccountCause::Attention | AccountCause::Softmax)
            && work.duration_ns > 50_000
    });
    let converted = names_that(view, is_conversion);
    let conversions = Picked::find(view, |work| has_name(&converted, work));
    let strided = names_that(view, |name| {
        name.contains("at::native::elementwise_kernel<") && name.contains("direct_copy_kernel")
    });
    let copies = Picked::find(view, |work| {
        has_name(&strided, work) && view.class(work) == AccountCause::Layout
    });
    let is_network = convolutions >= 4.0 * view.step_count() && !has_attention;
    let are_breaks = copies.count() >= 4.0 && copies.share() >= MIN_BREAK_SHARE;
    (is_network && are_breaks && copies.ns() > 2.0 * conversions.ns()).then_some(copies)
}

/// Copies that leave the channels' order. See [`super::CAUSES`].
pub(super) fn find_breaks(view: &View<'_>) -> Option<Found> {
    let copies = breaks(view)?;
    let changes = Changes::new(view);
    Some(Found {
        change: "stay with the channels last".to_owned(),
        text: format!(
            "the convolutions run with the channels last, and copies with strides between them \
             change the order of tensors there and back, which takes {}",
            copies.words()
        ),
        hint: "find `.contiguous()`, `.view`, `.reshape` or `.flatten` on a tensor between \
               convolutions: `.contiguous()` makes it NCHW. Reduce with `x.mean((2, 3))`, use \
               `.flatten(1)` after pooling only, or `.contiguous(memory_format=torch.channels_last)`"
            .to_owned(),
        least: changes.scaled(&copies.at, 0.3),
        most: changes.without(&copies.at, 0.5),
        work: copies.at,
        ..Found::default()
    })
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

    #[test]
    fn copies_between_convolutions_with_the_channels_last_are_found() {
        let block =
            |step: StepScript| step.kernel(names::CONVOLUTION, 100.0).kernel(names::COPY, 20.0);
        let fault = block(block(block(block(StepScript::new())))).play(3);
        let found = fault.look(find_breaks).unwrap();
        assert!((fault.removed_ns(&found.most) - 80_000.0).abs() < 1.0);
        let product = StepScript::new().kernels(4, names::PRODUCT, 100.0);
        assert!(product.kernels(4, names::COPY, 20.0).play(3).look(find_breaks).is_none());
        let attention = block(block(block(block(StepScript::new())))).kernel(names::FLASH, 80.0);
        assert!(attention.play(3).look(find_breaks).is_none());
    }
}
