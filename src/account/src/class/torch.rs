//! Kernels of torch: a template around a functor, and the functor decides.

use rgpu_model::account::AccountCause;

use super::words::KernelWords;

/// The class of a kernel of torch; `None` if it is none of torch's.
pub(super) fn class(words: &KernelWords) -> Option<AccountCause> {
    if !is_torch(words) {
        return None;
    }
    let is_element_wise = words.has(&["elementwise_kernel"]);
    if let Some(class) = words.first_hit(FUNCTORS) {
        return Some(class);
    }
    if is_element_wise || words.has(ELEMENT_WISE) {
        return Some(element_wise(words));
    }
    Some(AccountCause::OtherKernel)
}

/// Whether torch wrote the kernel. Some of its kernels have no namespace but an unnamed one.
fn is_torch(words: &KernelWords) -> bool {
    const NAMESPACES: &[&str] = &["at::native", "at6native", "at::cuda", "at4cuda", "c10::"];
    const UNNAMED: &[&str] = &[
        "softmax_warp_",
        "cunn_softmax",
        "elementwise_kernel_with_index",
        "indexing_backward_kernel",
        "multi_tensor_apply_kernel",
        "rowwisemomentscudakernel",
        "gammabetabackward",
        "gathertopk",
        "bitonicsortkvinplace",
    ];
    // Kernels of CUTLASS may have types of torch.
    !words.head_has(&["cutlass"]) && (words.has(NAMESPACES) || words.head_has(UNNAMED))
}

/// Words of kernels and functors, first hit counts.
const FUNCTORS: &[(AccountCause, &[&str])] = &[
    (
        AccountCause::Optimizer,
        &["multi_tensor_apply", "fusedadam", "fusedoptimizer", "fusedsgd", "amp_update_scale"],
    ),
    (
        AccountCause::Layout,
        &[
            "catarray",
            "split_with_sizes",
            "chunk_cat",
            "transpose",
            "im2col",
            "col2im",
            "roll_cuda",
        ],
    ),
    (AccountCause::Layout, &["flip_kernel", "pixel_shuffle", "channel_shuffle", "_pad"]),
    (
        AccountCause::Softmax,
        &[
            "softmax",
            "nll_loss",
            "cross_entropy",
            "ctc_loss",
            "smooth_l1",
            "mse_kernel",
            "mse_backward",
            "huber",
            "kl_div",
            "margin_loss",
        ],
    ),
    (
        AccountCause::Normalisation,
        &[
            "layer_norm",
            "layernorm",
            "rms_norm",
            "group_norm",
            "groupnorm",
            "batch_norm",
            "batchnorm",
            "gammabeta",
            "rowwisemoments",
            "computefusedparams",
            "computeinternalgradients",
            "compute1dbackwardfusedparams",
            "weight_norm",
        ],
    ),
    (
        AccountCause::Random,
        &[
            "dropout",
            "masked_scale",
            "distribution",
            "philox",
            "random_",
            "bernoulli",
            "randperm",
            "multinomial",
        ],
    ),
    (AccountCause::Fft, &["_fft_", "conjugate_symmetry"]),
    (AccountCause::Convolution, &["conv_depthwise", "depthwise_conv", "naive_conv", "slow_conv"]),
    (
        AccountCause::GatherScatter,
        &[
            "embedding",
            "indexselect",
            "index_put",
            "index_elementwise",
            "indexing_backward",
            "indexfunc",
            "index_kernel",
            "index_copy",
            "index_fill",
            "gather_kernel",
            "scatter",
            "compute_grad_weight",
            "krn_partial",
            "compute_num_of_partial_segments",
            "grid_sampler",
            "take_put",
        ],
    ),
    (
        AccountCause::Sort,
        &["sort", "topk", "kthvalue", "gathermedian", "compute_mode", "unique", "nonzero"],
    ),
    (AccountCause::Reduction, &["reduce_kernel", "cumsum", "cumprod", "_scan_", "_pool"]),
    (AccountCause::Reduction, &["reduce", "histogram", "bincount", "avgpool", "maxpool"]),
];

/// Functors of element-wise work in kernels that have no `elementwise_kernel` in their name.
const ELEMENT_WISE: &[&str] =
    &["elementwise", "triu_tril", "lstm_cell", "gru_cell", "upsample", "arange", "linspace"];

/// The class of a kernel that works element by element.
///
/// `bfloat16_copy_kernel_cuda` and its like convert a contiguous tensor. `direct_copy_kernel_cuda`
/// converts if the template loads and stores with a cast; else it copies, in another layout if the
/// template takes strides.
fn element_wise(words: &KernelWords) -> AccountCause {
    if words.has(&["float16_copy_kernel", "float8_copy_kernel"]) {
        return AccountCause::Cast;
    }
    if words.has(&["direct_copy_kernel"]) {
        let strided_cast = words.has(&["gpu_kernel_impl"]) && !words.has(&["impl_nocast"]);
        return if strided_cast || words.has(&["loadwithcast", "storewithcast"]) {
            AccountCause::Cast
        } else {
            AccountCause::Layout
        };
    }
    if words.has(&["fillfunctor"]) { AccountCause::Fill } else { AccountCause::ElementWise }
}
