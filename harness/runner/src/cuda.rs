//! The CUDA driver API: libcuda is opened at run time and called through our own table.
//!
//! The types are cudarc's, but not the calls, for three reasons. cudarc panics on a driver that
//! lacks a symbol. It tries `libcuda.so` before `libcuda.so.1`, and the former may be the stub of a
//! toolkit. Its result enum holds only the errors known to the bindings, while newer drivers return
//! newer ones; here a result is a number, with the name that the driver itself reports.

mod device;
mod driver;
mod event;
mod graph;
mod kernel;
mod memory;
mod symbols;

pub(crate) use device::Gpu;
pub(crate) use driver::Driver;
pub(crate) use event::CudaEvent;
pub(crate) use graph::Graph;
pub(crate) use kernel::{ExpectedFailures, Function, KernelArgs, Module};
pub(crate) use memory::Buffer;
