//! Dropout as kernels of its own: forward draws numbers and writes a mask, backward scales by it.
//!
//! The names of torch's kernels tell (`fused_dropout`, `masked_scale`). Within attention the fused
//! kernel does both without a tensor; elsewhere the compiler fuses them with their neighbours and
//! draws the numbers again in place of keeping the mask. Half to all of their time goes.

use super::Found;
use super::picked::{Changes, Picked, has_name, names_that};
use crate::view::View;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let names = names_that(view, |name| {
        ["dropout_kernel", "masked_scale_kernel"].iter().any(|word| name.contains(word))
    });
    let kernels = Picked::find(view, |work| has_name(&names, work));
    if !kernels.matters() {
        return None;
    }
    let changes = Changes::new(view);
    Some(Found {
        change: "fuse dropout with its neighbours".to_owned(),
        text: format!("dropout's own kernels take {}", kernels.words()),
        hint: "`model = torch.compile(model)`; in attention `dropout_p` of \
               `F.scaled_dot_product_attention`; or no dropout where the data is large"
            .to_owned(),
        least: changes.scaled(&kernels.at, 0.5),
        most: changes.without(&kernels.at, 1.0),
        work: kernels.at.clone(),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn dropout_is_found_where_it_takes_time() {
        let dropout = "void at::native::<unnamed>::fused_dropout_kernel_vec<float, float, unsigned int, (int)1, (int)4, bool>(X)";
        let step = |us| StepScript::new().kernel(names::PRODUCT, 100.0).kernel(dropout, us);
        let window = step(10.0).play(3);
        let found = window.look(find).unwrap();
        assert!((window.removed_ns(&found.least) - 5_000.0).abs() < 1.0);
        assert!(step(0.5).play(3).look(find).is_none());
    }
}
