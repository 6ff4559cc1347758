//! The structs of `rgpu.h` in Rust, as passed to host entries (functions of a user's library that
//! launch the kernels) and to references.

use rgpu_case::{CASE_ABI, Case};
use std::ffi::c_void;

/// The C struct `rgpu_tensor` of rgpu.h.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Tensor {
    data: *mut c_void,
    bytes: u64,
    dtype: u32,
    rank: u32,
    dims: *const u64,
}

/// The C struct `rgpu_case` of rgpu.h.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawCase {
    abi: u32,
    groups: u32,
    nvars: u32,
    nargs: u32,
    sizes: *const i64,
    args: *const Tensor,
}

/// A `rgpu_case` that owns everything it points to except the tensors' data.
///
/// Everything it points to is on the heap, so addresses stay valid when this value moves.
#[derive(Debug)]
pub(crate) struct AbiCase {
    raw: Box<RawCase>,
    _tensors: Vec<Tensor>,
    _sizes: Vec<i64>,
    _dims: Vec<Vec<u64>>,
}

impl AbiCase {
    /// The C structs for a case. `data` has one address per argument, in the order of
    /// `rgpu_case.args`: group by group. Tensors lie on the GPU, or for a reference on the CPU in
    /// host memory. The addresses must stay valid while the callee uses them.
    pub(crate) fn new(case: &Case, data: &[*mut c_void]) -> AbiCase {
        let args: Vec<_> = case.groups.iter().flat_map(|group| &group.args).collect();
        let dims: Vec<Vec<u64>> = args.iter().map(|arg| arg.dims.clone()).collect();
        let tensors: Vec<Tensor> = args
            .iter()
            .zip(&dims)
            .zip(data)
            .map(|((arg, dims), &data)| Tensor {
                data,
                bytes: arg.bytes().unwrap_or(0), // checked when the input was read
                dtype: arg.dtype.code(),
                rank: dims.len() as u32,
                dims: if dims.is_empty() { std::ptr::null() } else { dims.as_ptr() },
            })
            .collect();
        let sizes: Vec<i64> = case.groups.iter().flat_map(|group| group.sizes.clone()).collect();
        let raw = Box::new(RawCase {
            abi: CASE_ABI,
            groups: case.groups.len() as u32,
            nvars: case.vars.len() as u32,
            nargs: case.groups.first().map_or(0, |group| group.args.len()) as u32,
            sizes: sizes.as_ptr(),
            args: tensors.as_ptr(),
        });
        AbiCase { raw, _tensors: tensors, _sizes: sizes, _dims: dims }
    }

    pub(crate) fn as_ptr(&self) -> *const RawCase {
        &*self.raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// The layout that a C compiler gives the structs of `rgpu.h` on 64-bit Linux. The test of the
    /// `cpu` job also has real C code read them.
    #[test]
    fn structs_have_the_layout_of_the_header() {
        assert_eq!(size_of::<Tensor>(), 32);
        assert_eq!((offset_of!(Tensor, dtype), offset_of!(Tensor, dims)), (16, 24));
        assert_eq!(size_of::<RawCase>(), 32);
        assert_eq!((offset_of!(RawCase, sizes), offset_of!(RawCase, args)), (16, 24));
    }
}
