//! Sizes for kernels whose source gives none.

use std::collections::HashMap;

use rgpu_case::Number;

use crate::kernel::{CaseSelection, KernelSpec};

/// Bytes of all arrays together.
const MAX_BYTES: u64 = 2 << 30;

/// Elements of each array of a kernel that touches each once: enough to fill any GPU.
pub(super) const FLAT_ELEMENTS: i64 = 1 << 24;

/// The value of a size by its name, if its name says that it is small.
pub(super) fn small_size(name: &str) -> Option<i64> {
    let lower = name.to_ascii_lowercase();
    let has = |part: &str| lower.contains(part);
    let is = |names: &[&str]| names.contains(&lower.as_str());
    Some(match () {
        () if has("offset") || has("start") || has("begin") || is(&["seed", "shift", "rank"]) => 0,
        () if has("pad") => 1,
        // Streaming multiprocessors of an H200.
        () if has("num_sm") || has("sm_count") || has("multiproc") || is(&["sms", "numsms"]) => 132,
        () if has("dilation") || is(&["groups", "num_groups", "ndim"]) => 1,
        () if has("stride") && !has("_row") && !has("batch") => 1,
        () if has("radius") || has("kernel") || has("filter") || is(&["ks", "kh", "kw", "r"]) => 3,
        () if has("iter") || has("step") || is(&["nsteps", "reps", "repeat"]) => 10,
        () if has("batch") || is(&["b", "bs", "nb"]) => 16,
        () if has("head_dim") || has("headdim") || is(&["d", "hd", "dh"]) => 64,
        () if has("head") || is(&["nh", "h_q", "hq"]) => 16,
        () if has("channel") || is(&["cin", "cout", "ic", "oc", "c_in", "c_out"]) => 64,
        () if has("bins") || has("bucket") || has("class") => 256,
        () if has("block") || has("thread") => 256,
        () if has("tile") => 16,
        _ => return None,
    })
}

/// The value of the sizes that no name explains.
///
/// `degree` is the largest number of sizes that are multiplied with this one in an extent, itself
/// included, and `is_nested` tells that each thread goes over a size as well.
pub(super) fn usual_size(degree: usize, is_nested: bool) -> i64 {
    match (degree, is_nested) {
        (0 | 1, false) => FLAT_ELEMENTS,
        (0 | 1, true) => 1 << 14,
        (2, _) => 2048,
        (3, _) => 256,
        _ => 64,
    }
}

/// Halves the sizes in `free` until all arrays fit, every expression has a value, and a GPU takes
/// the launch. Returns whether that was possible.
pub(super) fn fit(spec: &mut KernelSpec, free: &[String]) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..28 {
        match spec.cases(&CaseSelection::Default) {
            Ok(cases) => {
                let args = cases.iter().flat_map(|case| &case.groups).flat_map(|g| &g.args);
                let bytes = args
                    .map(|arg| arg.bytes())
                    .try_fold(0_u64, |total, bytes| total.checked_add(bytes?));
                if bytes.is_some_and(|bytes| bytes <= MAX_BYTES) {
                    let shared = cases.iter().filter_map(|case| case.launch.as_ref());
                    if shared.clone().all(|launch| launch.dynamic_shared <= 227 << 10) {
                        return Ok(());
                    }
                    last = "more dynamic shared memory than a GPU has".to_owned();
                } else {
                    last = "its arrays would be larger than 2 GiB".to_owned();
                }
            }
            Err(error) => {
                last =
                    std::error::Error::source(&error).map_or(error.to_string(), |e| e.to_string())
            }
        }
        let vars = spec.sizes.vars.clone();
        let mut changed = false;
        for row in spec.sizes.cases.iter_mut().flat_map(|case| &mut case.groups) {
            for (name, value) in vars.iter().zip(row.iter_mut()) {
                if free.contains(name) && *value > 1 {
                    *value /= 2;
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    Err(last)
}

/// The value of a floating-point scalar.
pub(super) fn usual_number(name: &str) -> Number {
    let lower = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase();
    let is_epsilon = lower.starts_with("eps") || lower == "epsilon";
    Number::Float(if is_epsilon { 1e-5 } else { 1.0 })
}

/// Values that the source gives to sizes.
pub(super) type KnownSizes = HashMap<String, i64>;
