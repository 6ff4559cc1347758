//! Kernels of NCCL, of attention, of CUB and Thrust, and of NVIDIA's libraries.

use rgpu_model::account::AccountCause;

use super::KernelFamily;
use super::words::KernelWords;

/// Whether a kernel moves data between GPUs.
pub(super) fn is_communication(words: &KernelWords) -> bool {
    const ANYWHERE: &[&str] = &[
        "nccldevkernel",
        "ncclkernel",
        "nvshmem",
        "allreduce",
        "all_reduce",
        "allgather",
        "all_gather",
        "reducescatter",
        "reduce_scatter",
        "cross_device_reduce",
    ];
    words.head().starts_with("nccl") || words.head_has(ANYWHERE)
}

/// The class of a kernel of attention, with who wrote it: the flash and memory-efficient kernels of
/// torch, those of cuDNN with what they need before and after, and those of other packages.
pub(super) fn attention(words: &KernelWords) -> Option<(AccountCause, KernelFamily)> {
    const CUDNN: &[&str] = &[
        "_sdpa_",
        "cudnn::fusion::compute_dot_do_o",
        "cudnn::fusion::convert_dq",
        "cudnn::fusion::lean_reduction",
    ];
    const OTHERS: &[&str] = &[
        "flash_fwd",
        "flash_bwd",
        "flash_attn",
        "flash::",
        "flashattn",
        "fmha",
        "attentionkernel",
        "paged_attention",
        "flashinfer",
    ];
    let family = if words.has(CUDNN) {
        KernelFamily::Nvidia
    } else if words.has(OTHERS) {
        KernelFamily::Attention
    } else {
        return None;
    };
    Some((AccountCause::Attention, family))
}

/// The class of a kernel of CUB or Thrust: its path says so, since others take their types as
/// arguments.
pub(super) fn cub(words: &KernelWords) -> Option<AccountCause> {
    const ALGORITHMS: &[(AccountCause, &[&str])] = &[
        (AccountCause::Sort, &["radixsort", "radix_sort", "mergesort", "merge_sort"]),
        (AccountCause::Sort, &["segmentedsort", "segmented_sort", "blocksort", "block_sort"]),
        (AccountCause::Sort, &["uniquebykey", "unique_by_key", "unique", "topk"]),
        (AccountCause::Sort, &["deviceselect", "compactinit", "copy_if", "partition"]),
        (AccountCause::Sort, &["run_length", "runlengthencode", "rle::", "merge"]),
        (AccountCause::Reduction, &["devicescan", "scan::", "scanagent", "__scan"]),
        (AccountCause::Reduction, &["devicereduce", "segmentedreduce", "reduceagent"]),
        (AccountCause::Reduction, &["reduce_by_key", "reducebykey", "__reduce", "histogram"]),
        (AccountCause::Reduction, &["devicesegmented"]),
        (AccountCause::Fill, &["__uninitialized_fill", "fill_functor"]),
        (AccountCause::GatherScatter, &["gather", "scatter"]),
        (AccountCause::ElementWise, &["transform", "for_each", "parallel_for"]),
    ];
    if !words.head_has(&["cub::", "thrust::"]) {
        return None;
    }
    // The path names the algorithm; Thrust has one path for all, and names it in the argument.
    let by_path = ALGORITHMS.iter().find(|(_, list)| words.head_has(list));
    let class = by_path.map(|(class, _)| class.clone());
    Some(class.or_else(|| words.first_hit(ALGORITHMS)).unwrap_or_default())
}

/// The class of a kernel of cuDNN, cuBLAS, CUTLASS, cuFFT, cuRAND, cuSPARSE or cuSOLVER.
pub(super) fn nvidia(words: &KernelWords) -> Option<AccountCause> {
    const TABLE: &[(AccountCause, &[&str])] = &[
        (
            AccountCause::Layout,
            &["nchwtonhwc", "nhwctonchw", "nchwtofold", "nhwcaddpadding", "cudnn::ops::transpose"],
        ),
        (AccountCause::Normalisation, &["bn_fw_", "bn_bw_", "cudnn::bn", "cudnn::norm"]),
        (
            AccountCause::Convolution,
            &[
                "implicit_gemm",
                "implicitgemm",
                "implicit_convolve",
                "precomputed_convolve",
                "convolve_common_engine",
                "fprop",
                "dgrad",
                "wgrad",
                "winograd",
                "cudnn::cnn",
                "conv2d_grouped_direct",
                "conv2d_c1_k1",
            ],
        ),
        (AccountCause::Random, &["curand"]),
        (AccountCause::MatrixProduct, &["nvjet", "_xmma_", "cublas", "sgemm_largek", "magma_"]),
        (AccountCause::MatrixProduct, &["sgemm_32x32x32", "gemmsn_", "gemmk1_", "gemv2", "gemvx"]),
    ];
    const GENERATIONS: &[&str] =
        &["maxwell_", "pascal_", "volta_", "turing_", "ampere_", "hopper_", "blackwell_"];
    if is_cufft(words) {
        return Some(AccountCause::Fft);
    }
    if words.has(&["cudnn"]) && words.has(&["reducesplitk"]) {
        return Some(AccountCause::Convolution);
    }
    if let Some(class) = words.first_hit(TABLE) {
        return Some(class);
    }
    let is_old_product = words.head_has(&["gemm"])
        && GENERATIONS.iter().any(|generation| words.head().starts_with(generation));
    if is_old_product || words.text().contains("cublas") || words.head_has(&["cutlass"]) {
        return Some(AccountCause::MatrixProduct);
    }
    if words.has(&["cusparse"]) {
        return Some(if words.has(&["spmm", "csrmm", "csrmv", "spmv"]) {
            AccountCause::MatrixProduct
        } else {
            AccountCause::OtherKernel
        });
    }
    words.has(&["cudnn", "cusolver"]).then_some(AccountCause::OtherKernel)
}

/// Whether a kernel is one of cuFFT's, with those that pack real numbers into complex ones.
fn is_cufft(words: &KernelWords) -> bool {
    const CUFFT: &[&str] =
        &["regular_fft", "vector_fft", "bluestein", "packr2c", "unpackc2r", "spradix", "dpradix"];
    const TYPES: &[&str] = &["real_complex", "realcomplex", "cufft"];
    words.has(CUFFT)
        || words.has(&["__nv_static"]) && words.has(&["fft"])
        || TYPES.iter().any(|word| words.text().contains(word))
}
