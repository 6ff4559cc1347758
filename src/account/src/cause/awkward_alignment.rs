//! 16-bit products whose rows are not aligned to 16 bytes.
//!
//! TMA and wide loads need rows of a multiple of 16 bytes: 8 numbers of 16 bits. Where a width is
//! odd, or not a multiple of 8, cuBLAS falls back to CUTLASS kernels for older GPUs whose names end
//! in `align1`, `align2` or `align4`: the numbers of a load. Kernels that load one number at a time
//! reach a tenth to a quarter of what aligned ones do; of two, a third to 60 %; of four, 50 to
//! 85 %. Padding the width costs next to nothing.

use super::Found;
use rgpu_model::account::AccountCause;

use super::picked::{Changes, Framework, Picked, duration, has_name, names_that};
use crate::edits::Edits;
use crate::view::View;

/// What a product takes at least, in nanoseconds.
const SHORTEST_NS: f64 = 4_000.0;

/// The numbers of a load, if they are too few: 1, 2 or 4.
fn narrow_load(name: &str) -> Option<u32> {
    let is_half = ["bf16", "f16", "h16", "s16816", "s161616", "h1688", "h884"]
        .iter()
        .any(|word| name.contains(word));
    let uses_tensor_cores = ["tensorop", "wmma", "xmma"].iter().any(|word| name.contains(word))
        && !name.contains("ffma");
    if !is_half || !uses_tensor_cores || name.contains("sdpa") {
        return None;
    }
    [1_u32, 2, 4].into_iter().find(|numbers| {
        let ends = [format!("align{numbers}"), format!("aligna{numbers}_")];
        ends.iter().any(|end| {
            name.match_indices(end.as_str()).any(|(at, _)| {
                let behind = name.get(at.saturating_add(end.len())..).unwrap_or_default();
                !behind.starts_with(|c: char| c.is_ascii_digit())
            })
        })
    })
}

/// Aligned time as a part of today's: most and least gain.
fn aligned_ratio(numbers: u32) -> (f64, f64) {
    match numbers {
        1 => (0.1, 0.25),
        2 => (0.3, 0.6),
        _ => (0.5, 0.85),
    }
}

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let loads: Vec<Option<u32>> = view.trace.names.iter().map(|name| narrow_load(name)).collect();
    let names = names_that(view, |name| narrow_load(name).is_some());
    let products = Picked::find(view, |work| {
        has_name(&names, work) && view.class(work) == AccountCause::MatrixProduct
    });
    if !products.matters() {
        return None;
    }
    let changes = Changes::new(view);
    let edits = |is_most: bool| {
        let mut edits = Edits::default();
        for at in &products.at {
            let name = view.trace.work.get(*at as usize).map_or(u32::MAX, |work| work.name);
            let Some(numbers) = loads.get(name as usize).copied().flatten() else { continue };
            let (most, least) = aligned_ratio(numbers);
            let ns = duration(view, *at);
            let floor = if ns > 0.0 { SHORTEST_NS / ns } else { 1.0 };
            changes.scale(&mut edits, *at, (if is_most { most } else { least }).max(floor));
        }
        edits
    };
    let hint = if Framework::of(view) == Framework::Torch {
        "make the widths of these layers (hidden size, heads, vocabulary) multiples of 64: \
         `hidden = (hidden + 63) // 64 * 64`, with zeros in the new rows and columns the result is \
         the same"
    } else {
        "make m, n, k and the leading dimensions of these products multiples of 8, better of 64, and \
         fill with zeros"
    };
    Some(Found {
        change: "pad the widths to multiples of 64".to_owned(),
        text: format!(
            "matrices whose rows are not aligned to 16 bytes make cuBLAS use kernels with narrow \
             loads, which take {}",
            products.words()
        ),
        hint: hint.to_owned(),
        least: edits(false),
        most: edits(true),
        work: products.at.clone(),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    const ALIGN1: &str = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(T1::Params)";

    #[test]
    fn narrow_loads_of_16_bit_products_are_found_and_aligned_ones_are_silent() {
        let fault = StepScript::new().kernel(ALIGN1, 1000.0).kernel(names::ADD, 10.0).play(3);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 900_000.0).abs() < 10.0);
        assert!((fault.removed_ns(&found.least) - 750_000.0).abs() < 10.0);
        for aligned in [
            &ALIGN1.replace("align1", "align8"),
            names::PRODUCT,
            // FP32 on FP32 units has a number of 4 bytes, and no wider load is needed.
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>(T1::Params)",
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align4>(T1::Params)",
            "mine_f16_tensorop_align16",
        ] {
            assert!(StepScript::new().kernel(aligned, 1000.0).play(3).look(find).is_none());
        }
    }
}
