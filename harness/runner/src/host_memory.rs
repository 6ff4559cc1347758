//! Host memory for tensors, with the alignment that `rgpu.h` promises.

#![allow(unsafe_code)] // raw allocation: std has no aligned, fallible byte buffer

use crate::fault::{Fault, Result};
use rgpu_case::ErrorClass;
use std::alloc::Layout;
use std::ptr::NonNull;

/// Alignment of tensor data in bytes, promised by `rgpu.h`.
const ALIGNMENT_BYTES: usize = 256;

/// A zeroed byte buffer with a fixed address.
#[derive(Debug)]
pub(crate) struct HostBuffer {
    start: NonNull<u8>,
    size: usize,
    layout: Layout,
}

impl HostBuffer {
    /// Returns `out_of_memory` instead of aborting, since the size comes from the user.
    pub(crate) fn new(size: usize) -> Result<HostBuffer> {
        let refused = || {
            let text = format!("cannot allocate {size} bytes of host memory");
            Fault::new(ErrorClass::OutOfMemory, text)
        };
        let layout =
            Layout::from_size_align(size.max(1), ALIGNMENT_BYTES).map_err(|_| refused())?;
        // SAFETY: the layout's size is at least 1.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(refused)?;
        Ok(HostBuffer { start, size, layout })
    }

    pub(crate) fn copy_of(bytes: &[u8]) -> Result<HostBuffer> {
        let mut buffer = HostBuffer::new(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(buffer)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `start` owns `size` initialised bytes for as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.size) }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and freed only here.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_may_be_empty() {
        let buffer = HostBuffer::new(1000).unwrap();
        assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT_BYTES, 0);
        assert!(buffer.bytes().iter().all(|&byte| byte == 0));
        assert!(HostBuffer::new(0).unwrap().bytes().is_empty());
    }

    #[test]
    fn an_absurd_size_is_an_error_and_not_an_abort() {
        let fault = HostBuffer::new(usize::MAX / 2).unwrap_err();
        assert_eq!(fault.class(), ErrorClass::OutOfMemory);
    }
}
