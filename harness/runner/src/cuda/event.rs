//! CUDA events: points in a stream that time the work between them.

#![allow(unsafe_code)] // driver calls

use super::{Gpu, driver::call};
use crate::fault::Result;
use cudarc::driver::sys::CUevent;

/// A point in the stream.
pub(crate) struct CudaEvent<'g> {
    gpu: &'g Gpu,
    event: CUevent,
}

impl<'g> CudaEvent<'g> {
    pub(crate) fn new(gpu: &'g Gpu) -> Result<CudaEvent<'g>> {
        let mut event = std::ptr::null_mut();
        // SAFETY: `event` is a live local; flags 0 keep timing on.
        unsafe { call!(gpu.driver, cuEventCreate(&mut event, 0))? };
        Ok(CudaEvent { gpu, event })
    }

    pub(crate) fn record(&self) -> Result<()> {
        // SAFETY: event and stream are alive.
        unsafe { call!(self.gpu.driver, cuEventRecord(self.event, self.gpu.stream)) }
    }

    /// Waits until the stream has passed this point. A fault of the kernel is reported here.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the event is alive.
        unsafe { call!(self.gpu.driver, cuEventSynchronize(self.event)) }
    }

    /// Nanoseconds from `earlier` to this event. The stream must have passed both.
    pub(crate) fn since_ns(&self, earlier: &CudaEvent<'_>) -> Result<f64> {
        let mut ms = 0f32;
        // SAFETY: both events are alive, and `ms` is a live local.
        unsafe {
            call!(self.gpu.driver, cuEventElapsedTime(&mut ms, earlier.event, self.event))?;
        }
        Ok(f64::from(ms) * 1e6)
    }
}

impl Drop for CudaEvent<'_> {
    fn drop(&mut self) {
        if self.gpu.driver.is_lost() {
            return;
        }
        // SAFETY: made in `new`, destroyed only here.
        let _ = unsafe { (self.gpu.driver.cuEventDestroy_v2)(self.event) };
    }
}
