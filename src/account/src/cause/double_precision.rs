//! FP64 where nobody asked for it: one float64 array or scalar promotes all that follows.
//!
//! The signature is the type in the kernels' names: torch's functors of `double`, CuPy's types
//! `float64`, products of doubles, numba's arrays of `double` (Python's numbers are FP64). FP64 moves twice the bytes, so an element-wise kernel takes half
//! of its time in FP32; a product gains at least as much.

use super::Found;
use super::picked::{Changes, Framework, Picked, has_name, names_that};
use crate::view::View;

/// FP32's part of the time of FP64: most and least gain.
const FP32_RATIO: (f64, f64) = (0.4, 0.6);

/// Whether a kernel of a library works on numbers of FP64.
fn is_double(name: &str) -> bool {
    let is_cupy = name.starts_with("cupy_") && name.ends_with("float64");
    let is_torch = name.contains("at::native")
        && ["<double", "lambda(double"].iter().any(|word| name.contains(word));
    let is_numba = name.contains("cudapy")
        && ["Array<double", "ArrayId"].iter().any(|word| name.contains(word));
    let is_product = ["dgemm", "d884gemm", "f64f64_f64"].iter().any(|word| name.contains(word));
    is_cupy || is_torch || is_numba || is_product
}

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let names = names_that(view, is_double);
    let kernels = Picked::find(view, |work| has_name(&names, work));
    // A few scalars in FP64 are no cause.
    if kernels.share() < 0.05 {
        return None;
    }
    let hint = match Framework::of(view) {
        Framework::Torch => {
            "find the float64 tensor that comes in: NumPy arrays are float64 unless told \
             (`torch.from_numpy(x).float()`, `torch.as_tensor(x, dtype=torch.float32)`), and \
             `torch.set_default_dtype` may have been changed"
        }
        Framework::Cupy => {
            "make arrays with `dtype=cp.float32`; `cp.zeros`, `cp.linspace`, `cp.random.rand` and \
             NumPy arrays are float64 unless told"
        }
        _ => {
            "use FP32 unless the result needs FP64: in numba `np.float32` arrays and constants \
             (`np.float32(0.5)`; a plain `0.5` makes the expression FP64)"
        }
    };
    let changes = Changes::new(view);
    let (most, least) = FP32_RATIO;
    Some(Found {
        change: "compute in FP32".to_owned(),
        text: format!("kernels that compute in FP64 take {}", kernels.words()),
        hint: hint.to_owned(),
        least: changes.scaled(&kernels.at, least),
        most: changes.scaled(&kernels.at, most),
        work: kernels.at,
        decides: Some("whether the result needs FP64: compare it with FP32's".to_owned()),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn float64_arrays_are_found_and_float32_is_silent() {
        let fault = StepScript::new().kernels(3, "cupy_add__float64_float64_float64", 80.0).play(3);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 144_000.0).abs() < 10.0);
        let torch = names::ADD.replace("float", "double");
        assert!(StepScript::new().kernel(&torch, 80.0).play(3).look(find).is_some());
        assert!(StepScript::new().kernel(names::ADD, 80.0).play(3).look(find).is_none());
        let numba = "cudapy::__main__::step[abi:v1](Array<double, 1, C, mutable, aligned>)";
        assert!(StepScript::new().kernel(numba, 80.0).play(3).look(find).is_some());
        assert!(StepScript::new().kernel("mine(double *)", 80.0).play(3).look(find).is_none());
    }
}
