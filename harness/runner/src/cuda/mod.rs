//! The CUDA driver: opened at run time, called through a table of our own.
//!
//! The types are cudarc's; the calls are not, for three reasons. cudarc panics on a driver that
//! lacks a symbol. It tries `libcuda.so` before `libcuda.so.1`, and the former may be the stub of a
//! toolkit. And its result enum holds only the errors known to the bindings, while newer drivers
//! return newer ones: here a result is a number, with the name that the driver itself gives it.

mod device;
mod driver;
mod event;
mod kernel;
mod memory;
mod symbols;

pub(crate) use device::Gpu;
pub(crate) use driver::Driver;
pub(crate) use event::Event;
pub(crate) use kernel::{Function, KernelArgs, Module, ProbeCalls};
pub(crate) use memory::Buffer;
