use rgpu_model::account::AccountCause as C;
use rgpu_model::trace::TraceWork;

use super::*;

/// Names that nsys 2025.3.1 gave of programs on an H200.
const RECORDED: &str =
    include_str!("../../../../tests/fixtures/kernel_names/nsys-2025.3.1-h200.txt");

fn torch(kernel: &str, functor: &str) -> String {
    format!(
        "void at::native::{kernel}<(int)4, {functor}, std::array<char *, (unsigned long)2>>(int, T2)"
    )
}

#[test]
fn recorded_names_have_the_class_that_people_give_them() {
    let lines = RECORDED.lines().map(|name| {
        let (class, family) = class_and_family(name);
        let short: String = name.chars().take(110).collect();
        format!("{:15} {:14} {short}\n", class.as_str(), format!("{family:?}"))
    });
    insta::assert_snapshot!(lines.collect::<String>());
}

#[test]
fn the_functor_of_torchs_templates_decides() {
    let copy =
        "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 3)]";
    let half = "at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float) (instance 1)]";
    let cast = format!("{copy}, at::native::memory::LoadWithCast<(int)1>, X");
    let strided =
        format!("void at::native::gpu_kernel_impl_nocast<{copy}>(at::TensorIteratorBase &)");
    for (name, class) in [
        (
            torch("vectorized_elementwise_kernel", "at::native::CUDAFunctor_add<float>"),
            C::ElementWise,
        ),
        (torch("vectorized_elementwise_kernel", "at::native::FillFunctor<float>"), C::Fill),
        (torch("vectorized_elementwise_kernel", half), C::Cast),
        (torch("unrolled_elementwise_kernel", &cast), C::Cast),
        (torch("unrolled_elementwise_kernel", copy), C::Layout),
        (torch("elementwise_kernel", &strided), C::Layout),
        (torch("elementwise_kernel", &strided.replace("_nocast", "")), C::Cast),
        (
            torch("reduce_kernel", "at::native::ReduceOp<float, at::native::MeanOps<float>>"),
            C::Reduction,
        ),
        (
            torch("<unnamed>::multi_tensor_apply_kernel", "at::native::LpNormFunctor<float>"),
            C::Optimizer,
        ),
        (
            "void at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float>(T4 *)".to_owned(),
            C::Softmax,
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, 9>(float*)".to_owned(),
            C::Softmax,
        ),
        (
            "void <unnamed>::indexing_backward_kernel_small_stride<float>(const long *)".to_owned(),
            C::GatherScatter,
        ),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEE".to_owned(),
            C::Fill,
        ),
    ] {
        assert_eq!(class_and_family(&name), (class, KernelFamily::Torch), "{name}");
    }
}

#[test]
fn libraries_are_told_from_each_other() {
    for (name, class, family) in [
        ("ampere_sgemm_128x64_tn", C::MatrixProduct, KernelFamily::Nvidia),
        (
            "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(T1::Params)",
            C::MatrixProduct,
            KernelFamily::Nvidia,
        ),
        (
            "void scal_kernel<float, float, (int)1>(cublasTransposeParams<T2>, const T1 *)",
            C::MatrixProduct,
            KernelFamily::Nvidia,
        ),
        (
            "void multi_bluestein_fft<(unsigned int)81, EPT<(unsigned int)9>>(X)",
            C::Fft,
            KernelFamily::Nvidia,
        ),
        ("void preprocess_kernel<float>(real_complex_args_t<T2>)", C::Fft, KernelFamily::Nvidia),
        (
            "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float>(X)",
            C::Layout,
            KernelFamily::Nvidia,
        ),
        (
            "void cudnn::bn_fw_tr_1C11_singleread<__half, 512>(X)",
            C::Normalisation,
            KernelFamily::Nvidia,
        ),
        (
            "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<X>::Params)",
            C::Attention,
            KernelFamily::Attention,
        ),
        (
            "void cub::CUB_300102::detail::select::DeviceSelectSweepKernel<X, at::cuda::Y>(T1)",
            C::Sort,
            KernelFamily::Cub,
        ),
        (
            "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<X>>(T)",
            C::ElementWise,
            KernelFamily::Cub,
        ),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(X)",
            C::Communication,
            KernelFamily::Communication,
        ),
        ("triton_poi_fused_add_mul_3", C::Fused, KernelFamily::Inductor),
        ("triton_poi_fused__to_copy_view_3", C::Cast, KernelFamily::Inductor),
        ("triton_poi_fused_clone_transpose_1", C::Layout, KernelFamily::Inductor),
        ("triton_tem_fused_mm_0", C::MatrixProduct, KernelFamily::Inductor),
        ("triton_for_fused_0", C::Optimizer, KernelFamily::Inductor),
        ("loop_multiply_fusion_1", C::Fused, KernelFamily::Xla),
        ("input_scatter_fusion", C::GatherScatter, KernelFamily::Xla),
        ("wrapped_convert", C::Cast, KernelFamily::Xla),
        ("cupy_getitem_mask", C::Sort, KernelFamily::Cupy),
        ("cupy_copy__float32_float64", C::Cast, KernelFamily::Cupy),
        ("cupy_copy__float32_float32", C::Layout, KernelFamily::Cupy),
        ("cupy_scan_naive", C::Reduction, KernelFamily::Cupy),
        ("cupy_sum__float32_float32", C::Reduction, KernelFamily::Cupy),
    ] {
        assert_eq!(class_and_family(name), (class, family), "{name}");
    }
}

#[test]
fn a_users_name_counts_where_it_says_plainly() {
    for (name, class) in [
        ("sgemm_naive(const float *, float *)", C::MatrixProduct),
        ("void rowSoftmaxKernel<float>(float *)", C::Softmax),
        ("_attn_fwd", C::Attention),
        ("fused_rms_norm_kernel", C::Normalisation),
        ("gather_neighbours(int *)", C::GatherScatter),
        ("tensorDiffTerms(DiffTensor *)", C::OtherKernel),
        ("mine(softmax_args)", C::OtherKernel),
        ("reducedOrderModel(float *)", C::OtherKernel),
        ("sortOfThing(float *)", C::OtherKernel),
        ("k<cutlass::Array<float, 4>>(float *)", C::OtherKernel),
        ("", C::OtherKernel),
    ] {
        assert_eq!(class_and_family(name), (class, KernelFamily::Own), "{name}");
    }
}

#[test]
fn copies_are_told_by_kind_and_memory() {
    let mut trace = Trace::default();
    for (name, pageable, class) in [
        ("HtoD", Some(true), C::CopyPageable),
        ("DtoH", Some(false), C::CopyPinned),
        ("HtoD", None, C::CopyHost),
        ("DtoD", None, C::CopyDevice),
        ("PtoP", None, C::CopyDevice),
        ("unified HtoD", None, C::CopyUnified),
    ] {
        trace.names = vec![name.to_owned()];
        let kind = TraceWorkKind::Copy;
        let work = TraceWork { kind, bytes: Some(1), pageable, ..TraceWork::default() };
        assert_eq!(of_work(&trace, &work), class, "{name}");
        assert_eq!(of_work(&trace, &TraceWork { name: 9, ..work }), C::CopyDevice);
    }
}

#[test]
fn calls_are_told_by_their_names() {
    for (name, class) in [
        ("cudaLaunchKernel", C::LaunchCall),
        ("cuLaunchKernelEx", C::LaunchCall),
        ("cudaGraphLaunch", C::LaunchCall),
        ("cudaMemcpyAsync", C::LaunchCall),
        ("cudaStreamSynchronize", C::Synchronisation),
        ("cudaMallocFromPoolAsync", C::Allocation),
        ("cudaFreeHost", C::Allocation),
        ("cudaHostUnregister", C::Allocation),
        ("cuModuleLoadData", C::Compilation),
        ("cuLibraryLoadData", C::Compilation),
        ("cudaGraphInstantiateWithFlags", C::Compilation),
        ("cudaStreamBeginCapture", C::Compilation),
        ("cudaStreamIsCapturing", C::OtherCall),
        ("cudaEventRecord", C::OtherCall),
    ] {
        assert_eq!(of_call(name), class, "{name}");
    }
}
