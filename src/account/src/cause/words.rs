//! Numbers, names and places as findings write them.

use rgpu_model::trace::{TraceWork, TraceWorkKind};

use crate::host_calls::HostCall;
use crate::view::View;

/// A time: `850 ns`, `12.3 µs`, `1.25 ms`.
pub(crate) fn time(ns: f64) -> String {
    if ns < 1e3 {
        format!("{ns:.0} ns")
    } else if ns < 1e6 {
        format!("{} µs", digits(ns / 1e3))
    } else if ns < 1e9 {
        format!("{} ms", digits(ns / 1e6))
    } else {
        format!("{} s", digits(ns / 1e9))
    }
}

/// A size: `4 B`, `16.8 MB`.
pub(crate) fn size(bytes: f64) -> String {
    if bytes < 1e3 {
        format!("{bytes:.0} B")
    } else if bytes < 1e6 {
        format!("{} kB", digits(bytes / 1e3))
    } else if bytes < 1e9 {
        format!("{} MB", digits(bytes / 1e6))
    } else {
        format!("{} GB", digits(bytes / 1e9))
    }
}

/// A number with three digits, or all before the point.
fn digits(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.2}")
    } else if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// How often in a step: `3`, `0.25`; with one digit where it is not whole.
pub(super) fn count(number: usize, view: &View<'_>) -> String {
    let per_step = number as f64 / view.step_count();
    if (per_step - per_step.round()).abs() < 0.05 && per_step >= 1.0 {
        format!("{per_step:.0}")
    } else if per_step < 1.0 {
        format!("{per_step:.2}")
    } else {
        format!("{per_step:.1}")
    }
}

/// `1 time` or `3 times` a step.
pub(super) fn times(number: usize, view: &View<'_>) -> String {
    let count = count(number, view);
    if count == "1" { "once a step".to_owned() } else { format!("{count} times a step") }
}

/// Columns of a kernel's name in a text.
const MAX_NAME_COLUMNS: usize = 60;

/// A kernel's name for a text: the functor in place of torch's templates around it, what a template
/// of CUTLASS is made of, else the name without its namespace, arguments and parameters.
pub(crate) fn short_name(name: &str) -> String {
    let own = functor(name).unwrap_or_else(|| {
        let name = name.strip_prefix("void ").unwrap_or(name);
        let inner = ["cutlass::Kernel2<", "cutlass::Kernel<", "cutlass::device_kernel<"]
            .iter()
            .find_map(|template| name.split_once(template));
        inner.map_or(name, |(_, inner)| inner)
    });
    let own = without_unnamed(own);
    let end = own.find(['<', '(', ',', '>']).filter(|at| *at > 0).unwrap_or(own.len());
    let path = own.get(..end).unwrap_or(own);
    let last = path.rsplit("::").find(|part| !part.is_empty()).unwrap_or(path);
    last.trim_end_matches(['_', ' ']).chars().take(MAX_NAME_COLUMNS).collect()
}

/// The functor that a kernel of torch applies, or the kernel's own name; `None` for other kernels.
fn functor(name: &str) -> Option<&str> {
    // Templates of kernels, functors around functors, and their types.
    const AROUND: &[&str] = &[
        "vectorized_elementwise_kernel",
        "unrolled_elementwise_kernel",
        "elementwise_kernel",
        "index_elementwise_kernel",
        "reduce_kernel",
        "multi_tensor_apply_kernel",
        "distribution_elementwise_grid_stride_kernel",
        "gpu_kernel_impl",
        "gpu_index_kernel",
        "BinaryFunctor",
        "AUnaryFunctor",
        "BUnaryFunctor",
        "ReduceOp",
        "func_wrapper_t",
        "TensorList",
        "FusedOptimizerTensorList",
        "OpaqueType",
        "memory::",
    ];
    let parts = name.split("at::native::").skip(1).map(without_unnamed);
    let mut parts = parts.filter(|part| !AROUND.iter().any(|around| part.starts_with(around)));
    parts.next().filter(|part| !part.is_empty())
}

fn without_unnamed(name: &str) -> &str {
    let name = name.strip_prefix("<unnamed>::").unwrap_or(name);
    name.strip_prefix("(anonymous namespace)::").unwrap_or(name)
}

/// Name of a call without its version: `cudaMalloc_v3020` is `cudaMalloc`.
pub(crate) fn call_name(name: &str) -> &str {
    let is_version = |(_, version): &(&str, &str)| {
        version.len() > 1 && version.bytes().all(|byte| byte.is_ascii_digit())
    };
    name.rsplit_once("_v").filter(is_version).map_or(name, |(name, _)| name)
}

/// Where the host is at `call`: in a region, or before the next kernel or copy that the call's
/// thread launches. Empty if neither is known.
pub(super) fn place(view: &View<'_>, call: &HostCall) -> String {
    let calls = &view.host().all;
    let from = calls.partition_point(|other| other.at < call.at);
    let later = calls.get(from..).unwrap_or_default();
    let mut later = later.iter().take(2_000).filter(|other| other.thread == call.thread);
    let next = later.find_map(|other| view.trace.work.get(other.work? as usize));
    next.map_or(String::new(), |work| place_of_work(view, work))
}

/// Where a piece of work is: in its region, or by its name.
pub(super) fn place_of_work(view: &View<'_>, work: &TraceWork) -> String {
    let region = work.regions.first().and_then(|at| view.trace.regions.get(*at as usize));
    if let Some(name) = region.and_then(|region| region.path.last()) {
        return format!(" in `{name}`");
    }
    let name = view.name(work);
    match work.kind {
        TraceWorkKind::Kernel => format!(" before kernel `{}`", short_name(name)),
        TraceWorkKind::Copy => format!(" before a copy {name}"),
        TraceWorkKind::Set => " before a fill".to_owned(),
        TraceWorkKind::Graph => " before a CUDA graph".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(time(850.0), "850 ns");
        assert_eq!(time(12_340.0), "12.3 µs");
        assert_eq!(time(1_250_000.0), "1.25 ms");
        assert_eq!(size(4.0), "4 B");
        assert_eq!(size(16_777_216.0), "16.8 MB");
    }

    #[test]
    fn names_lose_types_and_versions() {
        assert_eq!(short_name("void at::native::add<float>(int, float)"), "add");
        assert_eq!(short_name("(anonymous namespace)::f"), "f");
        let copy = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(X)::[lambda()], at::native::memory::LoadWithCast<(int)1>>(int)";
        assert_eq!(short_name(copy), "direct_copy_kernel_cuda");
        let product =
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nt_align1>(T1::Params)";
        assert_eq!(short_name(product), "cutlass_80_simt_sgemm_128x32_8x5_nt_align1");
        let cat = "void at::native::<unnamed>::CatArrayBatchedCopy<at::native::<unnamed>::OpaqueType<2>>(at::native::<unnamed>::TensorSizeStride<2>)";
        assert_eq!(short_name(cat), "CatArrayBatchedCopy");
        assert_eq!(call_name("cudaMalloc_v3020"), "cudaMalloc");
        assert_eq!(call_name("my_vector"), "my_vector");
    }
}
