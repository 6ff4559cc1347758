//! Facts from the name of a kernel: its author, whether it multiplies matrices, and whether it
//! works element by element.
//!
//! Names are those of cuBLAS (`nvjet_…`, `sm80_xmma_gemm_…`, `ampere_sgemm_…`), cuDNN, CUTLASS,
//! torch, CUB and XLA, as `tests/fixtures/kernel_names` lists them.

/// The author of a kernel. Hints about its code help only the author.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// torch's own operators, each a kernel.
    Torch,
    /// CuPy's own operators, each a kernel.
    Cupy,
    /// Another library, such as cuBLAS or cuDNN.
    Library,
    /// The user or a compiler that the user directs, such as Triton.
    User,
}

/// The author of a kernel.
pub(super) fn author(name: &str) -> Author {
    const TORCH: &[&str] = &["at::cuda::", "at_cuda_detail::", "c10::"];
    const LIBRARIES: &[&str] = &[
        "nvjet_",
        "_xmma_",
        "cudnn",
        "cublas",
        "cutlass_",
        "cutlass::device_kernel<",
        "cub::",
        "thrust::",
        "ncclDevKernel",
        "nccl",
        "cufft",
        "cusparse",
        "cusolver",
        "curand",
        "stream_executor::",
        "flash_fwd",
        "flash_bwd",
        "fmha_",
        "pytorch_flash::",
    ];
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if name.contains("at::native::") {
        Author::Torch
    } else if name.starts_with("cupy_") {
        Author::Cupy
    } else if has(LIBRARIES) || is_library_gemm(name) {
        Author::Library
    } else if has(TORCH) {
        Author::Torch
    } else {
        Author::User
    }
}

/// The next step for kernels that a framework has for each operation; `None` for other authors.
pub(super) fn fuse_hint(name: &str) -> Option<&'static str> {
    match author(name) {
        Author::Torch => Some(
            "these are torch's own kernels: let `torch.compile` fuse them, call one fused operator \
             in place of several, and give them larger or contiguous tensors",
        ),
        Author::Cupy => Some(
            "these are CuPy's own kernels, one for each operation: fuse the expression \
             (`cupy.fuse`, or `cupy.ElementwiseKernel`, with `raw` arguments for shifted arrays), and \
             write into arrays that exist (`out=`)",
        ),
        Author::Library | Author::User => None,
    }
}

/// What a kernel does that works element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementWise {
    /// It computes new values.
    Arithmetic,
    /// It copies, casts or fills.
    Move,
}

/// Whether a kernel of torch or CuPy works element by element, so that others like it could be
/// fused with it.
pub(super) fn element_wise(name: &str) -> Option<ElementWise> {
    const CUPY: &[&str] = &[
        "absolute",
        "add",
        "clip",
        "copy",
        "cos",
        "divide",
        "equal",
        "exp",
        "floor_divide",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "log",
        "maximum",
        "minimum",
        "multiply",
        "negative",
        "not_equal",
        "power",
        "reciprocal",
        "sin",
        "sqrt",
        "square",
        "subtract",
        "tanh",
        "true_divide",
        "where",
    ];
    const MOVES: &[&str] = &["copy_kernel_cuda", "FillFunctor"];
    let kind = |moves| if moves { ElementWise::Move } else { ElementWise::Arithmetic };
    match author(name) {
        Author::Torch => {
            let is_one =
                name.contains("elementwise_kernel") && !name.contains("index_elementwise_kernel");
            is_one.then(|| kind(MOVES.iter().any(|word| name.contains(word))))
        }
        Author::Cupy => {
            // `cupy_add__float32_float32_float32`: the operation, then the types.
            let (operation, _) = name.strip_prefix("cupy_")?.split_once("__")?;
            CUPY.contains(&operation).then(|| kind(operation == "copy"))
        }
        Author::Library | Author::User => None,
    }
}

/// cuBLAS' older names: `ampere_sgemm_128x64_tn`, `volta_fp16_s884gemm_…`.
fn is_library_gemm(name: &str) -> bool {
    const GENERATIONS: &[&str] =
        &["maxwell_", "pascal_", "volta_", "turing_", "ampere_", "hopper_"];
    GENERATIONS.iter().any(|generation| name.starts_with(generation)) && name.contains("gemm")
}

/// Whether a kernel of NCCL moves data between GPUs: `ncclDevKernel_AllReduce_…`, earlier
/// `ncclKernel_…`. Its grid is small by design, and it waits for other ranks.
pub(super) fn is_collective(name: &str) -> bool {
    name.trim_start_matches("void ").starts_with("nccl")
}

/// Whether a kernel serves XLA's autotuning, which times candidates before the program's own work:
/// it delays the stream, prepares and checks buffers, and compares results.
pub(super) fn is_autotuning(name: &str) -> bool {
    const KERNELS: &[&str] = &[
        "DelayKernel",
        "RedzoneAllocatorKernelImpl",
        "RepeatBufferKernelImpl",
        "xla_fp_comparison",
    ];
    name.contains("stream_executor::") && KERNELS.iter().any(|kernel| name.contains(kernel))
}

/// Whether a kernel delays the stream before XLA's autotuning times a candidate.
pub(super) fn delays_autotuning(name: &str) -> bool {
    is_autotuning(name) && name.contains("DelayKernel")
}

/// The unit that a matrix product, a convolution or attention uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MatrixUnit {
    /// The tensor cores, with 16-bit operands.
    Tensor16,
    /// The tensor cores, with another type or an unknown one.
    Tensor,
    /// The FP32 units.
    Fp32,
}

/// The unit that a kernel multiplies matrices with, if its name says so.
pub(super) fn matrix_unit(name: &str) -> Option<MatrixUnit> {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if let Some(at) = name.find("nvjet_") {
        // `nvjet_sm90_tst_…`: types of A, of the sum and of the result; `t` and `h` have 16 bits.
        let types = name[at..].split('_').find(|word| word.len() == 3);
        let half = types.is_some_and(|types| types.starts_with(['t', 'h']));
        return Some(if half { MatrixUnit::Tensor16 } else { MatrixUnit::Tensor });
    }
    if has(&["_ffma_", "_simt_"]) && has(&["gemm", "conv", "fprop", "dgrad", "wgrad"]) {
        return Some(MatrixUnit::Fp32);
    }
    if is_library_gemm(name) && name.contains("_sgemm_") {
        return Some(MatrixUnit::Fp32);
    }
    if has(&["_xmma_", "tensorop", "OpClassTensorOp", "wgmma", "_wmma_"]) || is_cute_product(name) {
        let half = has(&["bf16bf16", "f16f16", "bf16_s", "f16_s", "wgmma_f16", "wmma_f16"])
            || has(&["F16F16_SS", "F16F16_RS", "BF16BF16_SS", "BF16BF16_RS"]);
        return Some(if half { MatrixUnit::Tensor16 } else { MatrixUnit::Tensor });
    }
    let attention = ["flash_fwd", "flash_bwd", "fmha_", "_sdpa_"];
    has(&attention).then_some(MatrixUnit::Tensor)
}

/// Whether a kernel of CUTLASS 3 names a matrix instruction of the tensor cores: its main loop, or
/// CuTe's operation (`cute::SM90::GMMA::MMA_64x128x16_F32BF16BF16_SS`,
/// `cute::SM80_16x8x16_F32BF16…`).
fn is_cute_product(name: &str) -> bool {
    let loops = ["TmaGmma", "CpAsyncGmma", "GMMA::MMA_", "TmaUmma", "SM100_MMA_"];
    name.contains("cute::") && loops.iter().any(|word| name.contains(word))
        || ["cute::SM70_8x8x", "cute::SM75_16x8x", "cute::SM80_16x8x", "cute::SM80_8x8x"]
            .iter()
            .any(|operation| name.contains(operation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_wise_kernels_compute_or_move() {
        let torch = |kernel, functor| format!("void at::native::{kernel}<4, {functor}, X>(int)");
        let add = "at::native::CUDAFunctor_add<float>";
        let copy = "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}";
        let half =
            "at::native::float16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}";
        let cases = [
            (torch("vectorized_elementwise_kernel", add), Some(ElementWise::Arithmetic)),
            (torch("unrolled_elementwise_kernel", copy), Some(ElementWise::Move)),
            // `.half()` and `.bfloat16()` of a contiguous tensor.
            (torch("vectorized_elementwise_kernel", half), Some(ElementWise::Move)),
            (torch("index_elementwise_kernel", add), None),
            (torch("reduce_kernel", add), None),
            ("cupy_add__float32_float32_float32".to_owned(), Some(ElementWise::Arithmetic)),
            ("cupy_copy__float32_float32".to_owned(), Some(ElementWise::Move)),
            ("cupy_sum__float32_float32".to_owned(), None),
            ("triton_poi_fused_add_0".to_owned(), None),
        ];
        for (name, kind) in cases {
            assert_eq!(element_wise(&name), kind, "{name}");
        }
    }

    #[test]
    fn cupys_operators_are_its_own_and_kernels_of_its_users_are_theirs() {
        assert_eq!(author("cupy_copy__float32_float32"), Author::Cupy);
        assert_eq!(author("cupy_multiply__float_float32_float32"), Author::Cupy);
        // `cupy.ElementwiseKernel(…, "decay")`.
        assert_eq!(author("decay"), Author::User);
    }

    #[test]
    fn names_tell_the_author_and_the_unit() {
        let of = |name: &str| (author(name), matrix_unit(name));
        let fp32 = (Author::Library, Some(MatrixUnit::Fp32));
        let half = (Author::Library, Some(MatrixUnit::Tensor16));
        assert_eq!(of("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT"), half);
        assert_eq!(of("nvjet_sm90_hsh_64x8_64x16_2x4_h_bz_bias_TNT"), half);
        assert_eq!(
            of(
                "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas"
            ),
            fp32
        );
        assert_eq!(
            of("void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(T1::Params)"),
            fp32
        );
        assert_eq!(of("ampere_sgemm_128x64_tn"), fp32);
        assert_eq!(
            of(
                "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_execute_kernel__5x_cublas"
            ),
            (Author::Library, Some(MatrixUnit::Tensor))
        );
        assert_eq!(
            of("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized>(T1)"),
            half
        );
        assert_eq!(
            of("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64"),
            half
        );
        assert_eq!(
            of(
                "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4>, cute::TiledMMA<cute::MMA_Atom<cute::SM90::GMMA::MMA_64x128x16_F32BF16BF16_SS<0, 0>>>>>>(T1::Params)"
            ),
            half
        );
        assert_eq!(of("void device_kernel<cute::Layout<int>>(T1)").1, None);
        let elementwise =
            "void at::native::vectorized_elementwise_kernel<(int)8, at::native::Fill>";
        assert_eq!(of(elementwise), (Author::Torch, None));
        assert_eq!(of("void tiled<float>(float *)"), (Author::User, None));
        assert_eq!(of("triton_poi_fused_gelu_view_6"), (Author::User, None));
    }
}
