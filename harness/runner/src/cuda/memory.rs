//! Device memory of one tensor, with guard bytes around it that show writes out of bounds.
//!
//! Data comes from host memory or another buffer, and goes back to host memory. The copies to and
//! from the host use the default stream, with which the stream of [`Gpu`] synchronises.

#![allow(unsafe_code)] // driver calls

use super::{Gpu, driver::call};
use crate::fault::Result;
use cudarc::driver::sys::CUdeviceptr;

/// Device memory for one tensor, with `guard_bytes` on each side that the kernel must not touch.
pub(crate) struct Buffer<'g> {
    gpu: &'g Gpu,
    base: CUdeviceptr,
    size: usize,
    guard_bytes: usize,
}

impl<'g> Buffer<'g> {
    /// Allocates the memory. `guard_bytes` must be a multiple of 256, which keeps the data aligned.
    pub(crate) fn new(gpu: &'g Gpu, size: usize, guard_bytes: usize) -> Result<Buffer<'g>> {
        let mut base = 0;
        let total = (size + 2 * guard_bytes).max(1);
        // SAFETY: `base` is a live local.
        unsafe { call!(gpu.driver, cuMemAlloc_v2(&mut base, total)) }
            .map_err(|fault| fault.while_doing(format_args!("cannot allocate {total} bytes")))?;
        Ok(Buffer { gpu, base, size, guard_bytes })
    }

    /// Address of the first byte of the data.
    pub(crate) fn address(&self) -> CUdeviceptr {
        self.base + self.guard_bytes as u64
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Copies bytes into the data, as many as fit. `bytes` may be reused on return; later work on
    /// the stream sees the data.
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<()> {
        self.write(self.guard_bytes, &bytes[..bytes.len().min(self.size)])
    }

    /// Reads the data, as many bytes as there is room for, after earlier work on the stream.
    pub(crate) fn download(&self, bytes: &mut [u8]) -> Result<()> {
        let size = bytes.len().min(self.size);
        self.read(self.guard_bytes, &mut bytes[..size])
    }

    /// Writes the guard bytes on both sides; `bytes` has the length of one side.
    pub(crate) fn write_guards(&self, bytes: &[u8]) -> Result<()> {
        let bytes = &bytes[..bytes.len().min(self.guard_bytes)];
        self.write(0, bytes)?;
        self.write(self.guard_bytes + self.size, bytes)
    }

    /// Reads the guard bytes before and after the data.
    pub(crate) fn read_guards(&self) -> Result<[Vec<u8>; 2]> {
        let mut guards = [vec![0; self.guard_bytes], vec![0; self.guard_bytes]];
        self.read(0, &mut guards[0])?;
        self.read(self.guard_bytes + self.size, &mut guards[1])?;
        Ok(guards)
    }

    /// Enqueues a copy of another buffer's data.
    pub(crate) fn copy_from(&self, other: &Buffer<'_>) -> Result<()> {
        let size = self.size.min(other.size);
        if size == 0 {
            return Ok(());
        }
        let stream = self.gpu.stream;
        // SAFETY: both ranges lie within live allocations of at least `size` bytes.
        unsafe {
            call!(
                self.gpu.driver,
                cuMemcpyDtoDAsync_v2(self.address(), other.address(), size, stream)
            )
        }
    }

    /// Enqueues a memset of the data.
    pub(crate) fn memset(&self, byte: u8) -> Result<()> {
        let stream = self.gpu.stream;
        // SAFETY: the range is this allocation's own.
        unsafe { call!(self.gpu.driver, cuMemsetD8Async(self.address(), byte, self.size, stream)) }
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let to = self.base + offset as u64;
        // SAFETY: callers keep `offset + bytes.len()` within the allocation.
        unsafe { call!(self.gpu.driver, cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), bytes.len())) }
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let from = self.base + offset as u64;
        // SAFETY: as in `write`.
        unsafe {
            call!(self.gpu.driver, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), from, bytes.len()))
        }
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        if self.gpu.driver.is_lost() {
            return;
        }
        // SAFETY: allocated in `new`, freed only here.
        let _ = unsafe { (self.gpu.driver.cuMemFree_v2)(self.base) };
    }
}
