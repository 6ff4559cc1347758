//! A product whose output nobody reads whole: the head of a language model for all positions of a
//! prompt, of which only the last is looked at.
//!
//! The signature is in the times. A product of large tiles computes near the peak of the tensor
//! cores, so its time is 2·m·n·k over that peak, and its output has m·n numbers. What reads all of
//! them takes at least their bytes over the bandwidth. So the longest of the kernels that follow it
//! gives a lower bound of k: if all was read, k would have to be larger than any model's width. The
//! bound is asked for only without a backward pass, where the next kernels are the only readers, and
//! not right before another product, which may be the reader. At most the product and what its
//! output costs go; at least a tenth of it stays.

use rgpu_model::account::AccountCause;
use rgpu_model::trace::TraceWork;

use super::picked::{Changes, Picked, duration, has_name, lanes, names_that};
use super::{Found, words};
use crate::view::View;

/// The part of a step that the product takes.
const MIN_SHARE: f64 = 0.1;
/// No model is as wide: elements of a row that a product sums up.
const WIDEST: f64 = 12_288.0;
/// Bytes of a number of the output.
const BYTES: f64 = 2.0;
/// Rows and columns of a tile, from which on a product is bound by computing.
const LEAST_TILE: u32 = 128;
/// Kernels that follow before the next product, at least and looked at.
const LEAST_READERS: usize = 2;
const MOST_READERS: usize = 24;
/// The part of the product that stays at least.
const KEPT_SHARE: f64 = 0.1;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let backward = names_that(view, |name| {
        ["ackward", "bprop", "_bwd", "dgrad", "wgrad"].iter().any(|word| name.contains(word))
    });
    if view.work().any(|(_, work)| has_name(&backward, work)) {
        return None;
    }
    let (flops, bandwidth) = view.facts.bf16_flops.zip(view.facts.memory_bytes_per_s)?;
    let large = names_that(view, has_large_tile);
    let mut unread: Vec<u32> = Vec::new();
    for lane in &lanes(view) {
        for (position, (at, work)) in lane.iter().enumerate() {
            let is_product =
                view.class(work) == AccountCause::MatrixProduct && has_name(&large, work);
            if !is_product || duration(view, *at) < MIN_SHARE * view.step_ns() {
                continue;
            }
            let Some(read_ns) = longest_reader_ns(view, lane, position) else { continue };
            // k = t · peak / (2 · m · n), and m · n is at most what the reader's time moves.
            let outputs = read_ns * 1e-9 * bandwidth / BYTES;
            let width = duration(view, *at) * 1e-9 * flops / (2.0 * outputs.max(1.0));
            if width > WIDEST {
                unread.push(*at);
            }
        }
    }
    let products = Picked::new(view, unread);
    if (products.at.len() as f64) * 2.0 < view.step_count() {
        return None;
    }
    let changes = Changes::new(view);
    let name = products.at.first().and_then(|at| view.trace.work.get(*at as usize));
    let name = name.map_or(String::new(), |work| words::short_name(view.name(work)));
    Some(Found {
        change: "compute only the outputs that are read".to_owned(),
        text: format!(
            "what follows the product `{name}` is too short to have read its whole output: {}",
            products.words()
        ),
        hint: "take the rows that are needed before the product: for a language model the last \
               position (`x = x[:, -1:]` before the final norm and head; Transformers: \
               `logits_to_keep=1`), for a selection the selected rows"
            .to_owned(),
        least: changes.scaled(&products.at, KEPT_SHARE),
        most: changes.scaled(&products.at, 0.01),
        work: products.at.clone(),
        ..Found::default()
    })
}

/// The longest of the kernels between a product and the next one, in nanoseconds. `None` if too few
/// follow, or what follows computes.
fn longest_reader_ns(view: &View<'_>, lane: &[(u32, &TraceWork)], position: usize) -> Option<f64> {
    let computes = |work: &TraceWork| {
        matches!(
            view.class(work),
            AccountCause::MatrixProduct | AccountCause::Convolution | AccountCause::Attention
        )
    };
    // A step may be cut anywhere: after its end comes the next step's begin, which is like its own.
    let behind = lane.get(position.saturating_add(1)..).unwrap_or_default();
    let around = behind.iter().chain(lane.get(..position).unwrap_or_default());
    let readers = around.take_while(|(_, work)| !computes(work)).take(MOST_READERS);
    let times: Vec<f64> = readers.map(|(at, _)| duration(view, *at)).collect();
    let longest = times.iter().copied().fold(0.0, f64::max);
    (times.len() >= LEAST_READERS).then_some(longest)
}

/// Whether the name of a product says that both sides of its tile are large: `..._192x192_64x4_...`.
fn has_large_tile(name: &str) -> bool {
    let is_separator = |c: char| c == '_' || c == '<' || c == ',';
    let tile = name.split(is_separator).find_map(|word| {
        let word = word.strip_prefix("tilesize").unwrap_or(word);
        let (rows, rest) = word.split_once('x')?;
        let columns = rest.split('x').next()?;
        Some((rows.parse::<u32>().ok()?, columns.parse::<u32>().ok()?))
    });
    tile.is_some_and(|(rows, columns)| rows >= LEAST_TILE && columns >= LEAST_TILE)
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    const HEAD: &str = "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN";
    const NORM: &str = "void at::native::<unnamed>::vectorized_layer_norm_kernel<float>(X)";

    fn prompt(product: &str, read_us: f64) -> StepScript {
        StepScript::new()
            .kernel(names::PRODUCT, 90.0)
            .kernel(names::FLASH, 70.0)
            .kernel(names::PRODUCT, 90.0)
            .kernel(NORM, 24.0)
            .kernel(product, 2400.0)
            .kernel(names::COPY, 5.0)
            .kernel(names::MEAN, read_us)
            .kernel(NORM, 24.0)
    }

    #[test]
    fn a_head_for_all_positions_is_found_and_one_that_is_read_is_silent() {
        let fault = prompt(HEAD, 25.0).play(4);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 2_376_000.0).abs() < 10.0);
        assert!(found.text.contains("nvjet"), "{}", found.text);
        // Reads 2 GB.
        assert!(prompt(HEAD, 500.0).play(4).look(find).is_none());
        // A few rows: bound by the weights.
        let decode = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT";
        assert!(prompt(decode, 25.0).play(4).look(find).is_none());
        let training = prompt(HEAD, 25.0).kernel(names::FLASH_BACKWARD, 90.0);
        assert!(training.play(4).look(find).is_none());
    }
}
