//! Products of a matrix and a single vector, or a few.
//!
//! cuBLAS names its kernels for them `gemv`. Each weight is read from memory for one row of inputs, so
//! they take what their weights' bytes take, however fast the units that multiply are (the reference's
//! cause 73). With several rows at once (requests, tokens, right-hand sides) the weights are read once
//! for all of them; with narrower weights there are fewer bytes. How many rows there are to join is in
//! no trace, so the gain is a bound: that of two rows at once or of weights half as wide.

use rgpu_model::account::AccountCause;

use super::Found;
use super::picked::{Changes, Framework, Picked, has_name, names_that};
use crate::view::View;

/// The part of a step that such products take.
const MIN_SHARE: f64 = 0.2;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let names = names_that(view, |name| name.to_ascii_lowercase().contains("gemv"));
    let products = Picked::find(view, |work| {
        has_name(&names, work) && view.class(work) == AccountCause::MatrixProduct
    });
    if products.share() < MIN_SHARE {
        return None;
    }
    let changes = Changes::new(view);
    let hint = match Framework::of(view) {
        Framework::Torch => {
            "take several rows in one product: batch the requests or samples of a step (`model(\
             torch.cat(inputs))` in place of a loop of single rows), several draft tokens at once \
             (speculative decoding); or read fewer bytes with weights in int8 or fp8"
        }
        Framework::Jax => "`jax.vmap` over requests or samples, so that one product has all rows",
        _ => {
            "collect the vectors as columns of one matrix and call `gemm` once (`cublasSgemm` in \
             place of `cublasSgemv` in a loop)"
        }
    };
    Some(Found {
        change: "multiply by several vectors at once".to_owned(),
        text: format!(
            "products of a matrix and single vectors read all weights for one row, and take {}",
            products.words()
        ),
        hint: hint.to_owned(),
        least: changes.scaled(&products.at, 1.0),
        most: changes.scaled(&products.at, 0.5),
        work: products.at.clone(),
        is_bound: true,
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn products_with_one_vector_are_found() {
        let gemv = "void gemv2T_kernel_val<int, int, float, float, float, float, (int)128>(T13)";
        let step = StepScript::new().kernels(4, gemv, 50.0).kernel(names::ADD, 10.0).play(3);
        let found = step.look(find).unwrap();
        assert!((step.removed_ns(&found.most) - 100_000.0).abs() < 10.0);
        let product = StepScript::new().kernels(4, names::PRODUCT, 50.0).play(3);
        assert!(product.look(find).is_none());
    }
}
