//! Attention written out as operators: product, scale, mask, softmax, dropout, product.
//!
//! The signature is the order in a stream: a softmax (not the log-softmax of a loss) with a product
//! before it and one after it, and between them nothing but element-wise kernels, casts, copies and
//! random numbers; backward two products stand on either side. All of them read or write a tensor
//! with a number for each pair of positions. One fused kernel keeps that tensor within the SMs, so
//! everything between the products goes, and the products become one kernel.
//!
//! What that kernel takes follows from the softmax, which is bound by memory: its time times the
//! bandwidth gives the number of pairs, and attention has 4 FLOP for each pair and element of a
//! head (64 to 128 of them), 2.5 times that backward. Flash kernels reach 35 to 65 % of the peak.
//! The peak is that of the products' type: a fused kernel in FP32 uses the same units as they do.
//! Without peaks a tenth to a third of the time is assumed to be left.

use std::collections::BTreeSet;

use rgpu_model::account::AccountCause;
use rgpu_model::trace::TraceWork;

use super::Found;
use super::picked::{Changes, Picked, duration, has_name, is_pointwise, lanes, names_that};
use crate::edits::Edits;
use crate::view::View;

/// Small kernels between the softmax and the product on either side.
const MAX_BETWEEN: usize = 10;
/// Elements of a head: most and least gain.
const HEAD: (f64, f64) = (64.0, 128.0);
/// What flash kernels reach of the peak: most and least gain.
const REACHED: (f64, f64) = (0.65, 0.35);
/// The part of a chain's time that is left where no peak is known.
const LEFT_SHARE: (f64, f64) = (0.1, 0.35);

/// A softmax with the products around it.
struct Chain {
    /// All of its work, in the order of the stream.
    work: Vec<u32>,
    softmax_ns: f64,
    is_backward: bool,
    /// Bytes of a number in the softmax's input and output.
    bytes: f64,
    /// The peak that the products have, in FLOP per second.
    peak_flops: Option<f64>,
}

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let chains = all_chains(view);
    let mut all: Vec<u32> = chains.iter().flat_map(|chain| chain.work.clone()).collect();
    all.sort_unstable();
    all.dedup();
    let work = Picked::new(view, all);
    if chains.is_empty() || !work.matters() {
        return None;
    }
    let changes = Changes::new(view);
    let edits = |is_most: bool| {
        let mut edits = Edits::default();
        for chain in &chains {
            changes.fuse(&mut edits, &chain.work, fused_ns(view, chain, is_most));
        }
        edits
    };
    Some(Found {
        change: "compute attention in one kernel".to_owned(),
        text: format!(
            "attention is written out as products around a softmax ({:.0} a step), which take {}",
            chains.len() as f64 / view.step_count(),
            work.words()
        ),
        hint: "`F.scaled_dot_product_attention(q, k, v, is_causal=…, dropout_p=…)` in place of \
               product, mask, softmax and product (JAX: `jax.nn.dot_product_attention`); a bias on \
               the scores goes in as `attn_mask`, or through \
               `torch.nn.attention.flex_attention`"
            .to_owned(),
        least: edits(false),
        most: edits(true),
        work: work.at.clone(),
        ..Found::default()
    })
}

/// The work of attention that is written out: its parts are no causes of their own.
pub(super) fn work(view: &View<'_>) -> BTreeSet<u32> {
    all_chains(view).into_iter().flat_map(|chain| chain.work).collect()
}

/// The chains of the window.
fn all_chains(view: &View<'_>) -> Vec<Chain> {
    let softmax = names_that(view, |name| {
        let lower = name.to_ascii_lowercase();
        lower.contains("softmax")
            && !lower.contains("logsoftmax")
            && !lower.contains("log_softmax")
            && !lower.contains("softmax_warp_forward_log")
    });
    let backward = names_that(view, |name| name.to_ascii_lowercase().contains("backward"));
    lanes(view).iter().flat_map(|lane| chains(view, lane, &softmax, &backward)).collect()
}

/// The chains of a lane.
fn chains(
    view: &View<'_>,
    lane: &[(u32, &TraceWork)],
    softmax: &[bool],
    backward: &[bool],
) -> Vec<Chain> {
    let is_product = |work: &TraceWork| view.class(work) == AccountCause::MatrixProduct;
    let mut chains = Vec::new();
    let mut free_from = 0_usize;
    for (position, (at, work)) in lane.iter().enumerate() {
        if !has_name(softmax, work) {
            continue;
        }
        let is_backward = has_name(backward, work);
        let products = if is_backward { 2 } else { 1 };
        let head = lane.get(free_from..position).unwrap_or_default();
        let tail = lane.get(position.saturating_add(1)..).unwrap_or_default();
        let before = reach(view, head.iter().rev().map(|(_, work)| *work), products, &is_product);
        let after = reach(view, tail.iter().map(|(_, work)| *work), products, &is_product);
        let (Some(before), Some(after)) = (before, after) else { continue };
        let end = position.saturating_add(after).saturating_add(1);
        let own = lane.get(position.saturating_sub(before)..end).unwrap_or_default();
        let name = view.name(work);
        let half = ["Half", "half", "BFloat16", "bfloat16"].iter().any(|kind| name.contains(kind));
        chains.push(Chain {
            work: own.iter().map(|(at, _)| *at).collect(),
            softmax_ns: duration(view, *at),
            is_backward,
            bytes: if half { 2.0 } else { 4.0 },
            peak_flops: peak_flops(view, own),
        });
        free_from = end;
    }
    chains
}

/// The peak of the units that a chain's products use.
fn peak_flops(view: &View<'_>, chain: &[(u32, &TraceWork)]) -> Option<f64> {
    let has = |words: &[&str]| {
        let names = chain.iter().map(|(_, work)| view.name(work));
        names.into_iter().any(|name| words.iter().any(|word| name.contains(word)))
    };
    if has(&["_ffma_", "_simt_", "sgemm"]) {
        view.facts.fp32_flops
    } else if has(&["tf32"]) {
        view.facts.tf32_flops
    } else {
        view.facts.bf16_flops
    }
}

/// How far it is to the nearest product, and to a second one that stands next to it if `products`
/// is 2; `None` if something else comes before.
fn reach<'t>(
    view: &View<'_>,
    side: impl Iterator<Item = &'t TraceWork>,
    products: usize,
    is_product: &impl Fn(&TraceWork) -> bool,
) -> Option<usize> {
    let (mut end, mut found, mut between) = (None, 0_usize, 0_usize);
    for (step, work) in side.enumerate() {
        if is_product(work) {
            found = found.saturating_add(1);
            end = Some(step.saturating_add(1));
            between = 0;
            if found == products {
                break;
            }
        } else {
            // Fills are the workspaces of products; a reduction sums the gradient of a bias.
            let class = view.class(work);
            let allowed = is_pointwise(&class) || class == AccountCause::Reduction;
            between = between.saturating_add(1);
            let limit = if found == 0 { MAX_BETWEEN } else { 2 };
            if !allowed || between > limit {
                break;
            }
        }
    }
    end
}

/// What one fused kernel takes in a chain's place, in nanoseconds.
fn fused_ns(view: &View<'_>, chain: &Chain, is_most: bool) -> f64 {
    let pick = |(most, least): (f64, f64)| if is_most { most } else { least };
    let sum: f64 = chain.work.iter().map(|at| duration(view, *at)).sum();
    let (Some(flops), Some(bandwidth)) = (chain.peak_flops, view.facts.memory_bytes_per_s) else {
        return sum * pick(LEFT_SHARE);
    };
    // Forward reads and writes each number once; backward reads two and writes one.
    let passes = if chain.is_backward { 3.0 } else { 2.0 };
    let pairs = chain.softmax_ns * 1e-9 * bandwidth / (passes * chain.bytes);
    let work = pairs * 4.0 * pick(HEAD) * if chain.is_backward { 2.5 } else { 1.0 };
    let ns = work / (flops * pick(REACHED)) * 1e9;
    // A kernel has its launch, and never takes more than what it replaces.
    ns.max(3_000.0).min(sum * 0.8)
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    fn layer(step: StepScript) -> StepScript {
        step.kernel(names::PRODUCT, 30.0)
            .kernel(names::MUL, 40.0)
            .kernel(names::ADD, 60.0)
            .kernel(names::SOFTMAX, 40.0)
            .kernel(names::PRODUCT, 30.0)
    }

    #[test]
    fn products_around_a_softmax_are_found() {
        let fault = layer(StepScript::new().kernel(names::PRODUCT, 100.0))
            .kernel("at::native::vectorized_layer_norm_kernel<float>", 10.0)
            .play(3);
        let found = fault.look(find).unwrap();
        assert_eq!(found.work.len(), 2 * 5);
        // 40 µs at 4 TB/s are 40 million pairs of two bytes, read and written.
        let (least, most) = (fault.removed_ns(&found.least), fault.removed_ns(&found.most));
        assert!((120_000.0..150_000.0).contains(&least), "{least}");
        assert!((170_000.0..190_000.0).contains(&most), "{most}");
    }

    #[test]
    fn products_in_fp32_are_fused_on_the_same_units() {
        let product =
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(T1::Params)";
        let fault = StepScript::new()
            .kernel(product, 300.0)
            .kernel(names::SOFTMAX, 40.0)
            .kernel(product, 300.0)
            .kernel(names::MEAN, 1.0)
            .play(3);
        let found = fault.look(find).unwrap();
        let (least, most) = (fault.removed_ns(&found.least), fault.removed_ns(&found.most));
        assert!(least > 120_000.0 && most < 450_000.0, "{least} {most}");
    }

    #[test]
    fn backward_has_two_products_on_each_side() {
        let fault = StepScript::new()
            .kernels(2, names::PRODUCT, 30.0)
            .kernel(names::SOFTMAX_BACKWARD, 60.0)
            .kernel(names::MUL, 40.0)
            .kernels(2, names::PRODUCT, 30.0)
            .kernel(names::MEAN, 5.0)
            .play(3);
        assert_eq!(fault.look(find).unwrap().work.len(), 2 * 6);
    }

    #[test]
    fn fused_attention_and_a_classifier_are_silent() {
        let flash = StepScript::new().kernel(names::PRODUCT, 30.0).kernel(names::FLASH, 40.0);
        assert!(flash.kernel(names::PRODUCT, 30.0).play(3).look(find).is_none());
        let loss = "void at::native::<unnamed>::nll_loss_forward_reduce_cuda_kernel_2d<float>(X)";
        let classifier = StepScript::new()
            .kernel(names::PRODUCT, 30.0)
            .kernel(names::SOFTMAX, 40.0)
            .kernel(loss, 5.0)
            .kernel(names::PRODUCT, 30.0);
        assert!(classifier.play(3).look(find).is_none());
    }
}
