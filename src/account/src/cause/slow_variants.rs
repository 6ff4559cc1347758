//! Kernels of a framework that are known as the slower of two ways to the same result.
//!
//! The name tells which operator was taken, and the table below says with which other one the same is
//! had. What the other one takes depends on sizes, so the gain is a bound.

use super::Found;
use super::picked::{Changes, Picked, has_name, names_that};
use crate::view::View;

/// A smaller part of a step is not worth another operator.
const MIN_SHARE: f64 = 0.05;

/// A slower way.
struct SlowVariant {
    /// Parts of kernels' names.
    names: &'static [&'static str],
    /// What these kernels are, as the start of a sentence.
    what: &'static str,
    /// The change in a few words.
    change: &'static str,
    /// The next step.
    hint: &'static str,
    /// What is left of their time at best, 0 to 1.
    left: f64,
}

const VARIANTS: &[SlowVariant] = &[
    SlowVariant {
        names: &["im2col_kernel", "col2im_kernel", "vol2col", "col2vol"],
        what: "convolutions by unfolding, one image at a time, without cuDNN,",
        change: "convolve with cuDNN",
        hint: "leave `torch.backends.cudnn.enabled` on and the type FP32, FP16 or BF16, so that cuDNN \
               does the convolution; `F.conv2d` in place of `F.unfold` and a product",
        left: 0.2,
    },
    SlowVariant {
        names: &[
            "conv_depthwise2d",
            "conv_depthwise3d",
            "dgrad2d_grouped_direct",
            "wgrad2d_grouped",
        ],
        what: "depthwise or grouped convolutions by direct kernels",
        change: "use cuDNN's grouped convolutions",
        hint: "`model.to(memory_format=torch.channels_last)` with `torch.autocast(\"cuda\", \
               torch.bfloat16)` gives cuDNN's kernels for groups; where groups are few, a dense \
               convolution is faster",
        left: 0.3,
    },
    SlowVariant {
        names: &["cunn_SpatialSoftMax"],
        what: "softmax over an axis that is not the last",
        change: "take the softmax over the last axis",
        hint: "arrange the data so that the axis of `softmax(dim=...)` is the last one: its rows are \
               then read in one piece",
        left: 0.3,
    },
    SlowVariant {
        names: &["tensor_kernel_scan_outer_dim", "scan_outer_dim"],
        what: "running sums over an axis that is not the last",
        change: "sum along the last axis",
        hint: "make the axis of `cumsum` or `cumprod` the last one (`x.transpose(...).contiguous()` \
               once): along another one each column is a serial loop of a single thread",
        left: 0.2,
    },
    SlowVariant {
        names: &["cdist_kernel_cuda_impl", "pdist_kernel_cuda_impl"],
        what: "distances pair by pair without a matrix product",
        change: "compute distances with a matrix product",
        hint: "`torch.cdist(a, b, compute_mode=\"use_mm_for_euclid_dist\")`, or `(a * a).sum(1)[:, \
               None] - 2 * a @ b.T + (b * b).sum(1)`",
        left: 0.15,
    },
    SlowVariant {
        names: &["ctc_loss_log_alpha", "ctc_loss_backward"],
        what: "the CTC loss by torch's own kernels",
        change: "use cuDNN's CTC loss",
        hint: "give `F.ctc_loss` targets in one row on the CPU as int32, lengths on the CPU as int32 \
               and `blank=0`: then cuDNN computes it",
        left: 0.3,
    },
    SlowVariant {
        names: &["adaptive_average_pool", "adaptive_average_gradinput", "adaptiveaverage"],
        what: "adaptive pooling with its atomics",
        change: "pool with a mean",
        hint: "`x.mean((2, 3))` for an output of 1 x 1, `F.avg_pool2d` for whole factors",
        left: 0.3,
    },
    SlowVariant {
        names: &["sampleMultinomialOnce", "sampleMultinomialWithReplacement"],
        what: "draws by `torch.multinomial`, one row a block,",
        change: "draw by a race of exponentials",
        hint: "one draw a row: `(p / torch.empty_like(p).exponential_(1)).argmax(-1)`",
        left: 0.3,
    },
    SlowVariant {
        names: &["triu_tril_kernel"],
        what: "masks made anew in each step",
        change: "make the mask once",
        hint: "make the triangular mask once (`register_buffer`) and slice it, or pass \
               `is_causal=True` and make none",
        left: 0.0,
    },
    SlowVariant {
        names: &["getrf", "getri", "trsm_left_kernel", "laswp"],
        what: "factorisations (LU) of matrices",
        change: "solve in place of inverting",
        hint: "`torch.linalg.solve(a, b)` in place of `torch.linalg.inv(a) @ b`; for a symmetric \
               positive matrix `torch.linalg.cholesky` and `torch.cholesky_solve`; one call for a \
               batch of small matrices; keep the factors where the matrix stays the same",
        left: 0.3,
    },
];

/// See [`super::CAUSES`]. Of several variants the one with most time.
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let with_work = VARIANTS.iter().map(|variant| {
        let names = names_that(view, |name| variant.names.iter().any(|part| name.contains(part)));
        (variant, Picked::find(view, |work| has_name(&names, work)))
    });
    let (variant, kernels) = with_work.max_by(|a, b| a.1.share().total_cmp(&b.1.share()))?;
    if kernels.share() < MIN_SHARE {
        return None;
    }
    let changes = Changes::new(view);
    let most = if variant.left > 0.0 {
        changes.scaled(&kernels.at, variant.left)
    } else {
        changes.without(&kernels.at, 1.0)
    };
    Some(Found {
        change: variant.change.to_owned(),
        text: format!("{} take {}", variant.what, kernels.words()),
        hint: variant.hint.to_owned(),
        least: changes.scaled(&kernels.at, 1.0),
        most,
        work: kernels.at.clone(),
        is_bound: true,
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn the_variant_with_most_time_is_told_with_its_other_way() {
        let unfold = "void at::native::im2col_kernel<float>(long, const T1 *, long)";
        let scan = "void at::native::tensor_kernel_scan_outer_dim<float, unsigned int>(T1 *)";
        let step = StepScript::new().kernel(names::PRODUCT, 100.0);
        let fault = step.clone().kernel(unfold, 50.0).kernel(scan, 20.0).play(3);
        let found = fault.look(find).unwrap();
        assert!(found.is_bound && found.hint.contains("cudnn.enabled"));
        assert!((fault.removed_ns(&found.most) - 40_000.0).abs() < 10.0);
        assert!(
            step.clone().kernel(scan, 20.0).play(3).look(find).unwrap().hint.contains("cumsum")
        );
        assert!(step.kernel(scan, 2.0).play(3).look(find).is_none());
    }
}
