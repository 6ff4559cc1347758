//! Kernels that compilers and CuPy name after the operations within.

use rgpu_model::account::AccountCause;

use super::words::KernelWords;

/// The class of a kernel that Inductor, torch's compiler, wrote in Triton:
/// `triton_poi_fused_add_mul_3` works point by point, `red` and `per` reduce, `tem` is a template of
/// a product or of attention, `for` is an optimizer over lists of tensors.
pub(super) fn inductor(words: &KernelWords) -> Option<AccountCause> {
    let rest = words.text().strip_prefix("triton_")?;
    let (kind, rest) = rest.split_once('_')?;
    match kind {
        "tem" if rest.contains("attention") || rest.contains("sdpa") => {
            Some(AccountCause::Attention)
        }
        "tem" if rest.contains("conv") => Some(AccountCause::Convolution),
        "tem" | "mm" | "bmm" => Some(AccountCause::MatrixProduct),
        "for" if rest.starts_with("fused") => Some(AccountCause::Optimizer),
        "poi" => Some(pointwise(rest)),
        "red" | "per" | "spl" | "split" => Some(AccountCause::Fused),
        _ => None,
    }
}

/// The class of a point-wise kernel of Inductor: one that only converts, or only moves, is no fused
/// arithmetic. `rest` begins with `fused_`; names of operators are joined by `_`.
fn pointwise(rest: &str) -> AccountCause {
    // Operators that move nothing; the long ones first.
    const FREE: &[&str] = &[
        "unsafe_view",
        "unsqueeze",
        "squeeze",
        "view",
        "permute",
        "expand",
        "select",
        "slice",
        "reshape",
        "detach",
        "alias",
        "fused",
        "t",
    ];
    const MOVES: &[&str] = &["clone", "transpose", "cat", "copy", "stack", "constant", "pad", "nd"];
    let (mut casts, mut moves) = (false, false);
    // `_to_copy` is an operator's name with the separator within.
    let text = rest.replace("_to_copy", "_tocopy").replace("unsafe_view", "view");
    for word in text.split('_').filter(|word| !word.is_empty()) {
        if word.bytes().all(|byte| byte.is_ascii_digit()) || FREE.contains(&word) {
            continue;
        } else if word == "tocopy" {
            casts = true;
        } else if MOVES.contains(&word) {
            moves = true;
        } else {
            return AccountCause::Fused;
        }
    }
    match (casts, moves) {
        (true, false) => AccountCause::Cast,
        (_, true) => AccountCause::Layout,
        (false, false) => AccountCause::Fused,
    }
}

/// The class of a kernel of XLA: `loop_multiply_fusion`, `input_reduce_fusion_1`,
/// `gemm_fusion_dot_5`, `wrapped_subtract`; a fusion is named after its last operation. The kernels
/// of its autotuning are its own, too.
pub(super) fn xla(words: &KernelWords) -> Option<AccountCause> {
    const HERO: &[(AccountCause, &[&str])] = &[
        (AccountCause::MatrixProduct, &["gemm", "_dot"]),
        (AccountCause::Softmax, &["softmax"]),
        (AccountCause::GatherScatter, &["scatter", "gather"]),
        (AccountCause::Layout, &["transpose", "concatenate", "copy"]),
    ];
    const WRAPPED: &[(AccountCause, &[&str])] = &[
        (AccountCause::Cast, &["convert"]),
        (AccountCause::Reduction, &["reduce", "scan"]),
        (AccountCause::GatherScatter, &["scatter", "gather", "slice"]),
        (AccountCause::Sort, &["sort"]),
        (AccountCause::Random, &["rng"]),
        (AccountCause::Layout, &["transpose", "concatenate", "copy", "reverse", "pad"]),
        (AccountCause::Fill, &["broadcast", "iota"]),
    ];
    if words.has(&["stream_executor::"]) {
        return Some(AccountCause::OtherKernel);
    }
    let text = words.text();
    if text.contains("threefry2x32") {
        return Some(AccountCause::Random);
    }
    if !words.is_identifier() {
        return None;
    }
    if text.starts_with("wrapped_") {
        return Some(words.first_hit(WRAPPED).unwrap_or(AccountCause::ElementWise));
    }
    let without_number =
        text.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_' || c == '.');
    let is_fusion = text.split(['_', '.']).any(|word| word == "fusion")
        && (without_number.ends_with("fusion") || text.starts_with("gemm_fusion"));
    if is_fusion {
        return Some(words.first_hit(HERO).unwrap_or(AccountCause::Fused));
    }
    let is_copy = without_number == "copy" && text != "copy";
    is_copy.then_some(AccountCause::Layout)
}

/// The class of a kernel of CuPy: `cupy_add__float32_float32_float32` is the operation and the
/// types, `cupy_getitem_mask` one of its own. Random numbers come from templates around cuRAND.
pub(super) fn cupy(words: &KernelWords) -> Option<AccountCause> {
    const OPERATIONS: &[(AccountCause, &[&str])] = &[
        (AccountCause::Sort, &["getitem_mask", "nonzero", "sort", "partition", "unique"]),
        (AccountCause::Reduction, &["scan", "bsum", "cumsum", "cumprod"]),
        (
            AccountCause::GatherScatter,
            &["take", "scatter", "getitem", "setitem", "putmask", "choose"],
        ),
        (AccountCause::Layout, &["concatenate", "transpose", "roll", "tri"]),
        (AccountCause::Fill, &["fill"]),
        (AccountCause::Random, &["random", "rand_", "seed"]),
    ];
    const REDUCTIONS: &[&str] = &[
        "sum",
        "prod",
        "amax",
        "amin",
        "max",
        "min",
        "mean",
        "argmax",
        "argmin",
        "var",
        "std",
        "all",
        "any",
        "nansum",
        "nanprod",
        "norm",
        "l2norm",
        "bincount",
        "count_nonzero",
    ];
    if words.head().starts_with("init_curand") || words.head().starts_with("execute_dist") {
        return Some(AccountCause::Random);
    }
    let rest = words.text().strip_prefix("cupy_")?;
    let (operation, types) = rest.split_once("__").unwrap_or((rest, ""));
    if operation == "copy" {
        let same = types.split_once('_').is_none_or(|(from, to)| from == to);
        return Some(if same { AccountCause::Layout } else { AccountCause::Cast });
    }
    if REDUCTIONS.contains(&operation) {
        return Some(AccountCause::Reduction);
    }
    let known = OPERATIONS.iter().find(|(_, names)| names.iter().any(|n| operation.contains(n)));
    if let Some((class, _)) = known {
        return Some(class.clone());
    }
    // A user's own `cupy_mine` has no types.
    let class =
        if types.is_empty() { AccountCause::OtherKernel } else { AccountCause::ElementWise };
    Some(class)
}
