//! Functions and types for Rust snippets of `rgpu exec`.
//!
//! ```no_run
//! use rgpu_prelude::*;
//!
//! fn main() -> Result<()> {
//!     let gpu = Gpu::new()?;
//!     let double = gpu.kernel(
//!         r#"extern "C" __global__ void twice(float* x, int n) {
//!             int i = blockIdx.x * blockDim.x + threadIdx.x;
//!             if (i < n) x[i] *= 2.0f;
//!         }"#,
//!         "twice",
//!     )?;
//!     let mut x = gpu.stream.clone_htod(&[1.0f32, 2.0, 3.0])?;
//!     let n = 3i32;
//!     let _range = range("twice");
//!     let mut launch = gpu.stream.launch_builder(&double);
//!     launch.arg(&mut x).arg(&n);
//!     // SAFETY: the arguments are those of the kernel, and it stays within `n`.
//!     unsafe { launch.launch(LaunchConfig::for_num_elems(3)) }?;
//!     println!("{:?}", gpu.stream.clone_dtoh(&x)?);
//!     Ok(())
//! }
//! ```
//!
//! It links no CUDA library: driver and NVRTC are opened at their first use, so a snippet compiles
//! and starts on machines without either.

mod gpu;
pub mod nvtx;

pub use cudarc;
pub use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, LaunchConfig, PushKernelArg,
};
pub use cudarc::{driver, nvrtc};
pub use gpu::Gpu;
pub use nvtx::range;

/// Any error, so that `?` works on all of them in a snippet.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a snippet's `main`.
pub type Result<T, E = Error> = std::result::Result<T, E>;
