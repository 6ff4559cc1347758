//! The device, its primary context and the stream of all work.

#![allow(unsafe_code)] // driver calls

use super::driver::{Driver, call};
use crate::fault::{Fault, Result};
use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUstream, CUuuid};
use rgpu_case::{DeviceFacts, ErrorClass};
use std::ffi::{CStr, c_char};

/// The first visible device (selected by `CUDA_VISIBLE_DEVICES`), with its primary context current.
pub(crate) struct Gpu {
    pub(crate) driver: &'static Driver,
    pub(crate) stream: CUstream,
    pub(crate) facts: DeviceFacts,
    /// Maximum shared memory of one block, in bytes.
    pub(crate) shared_limit: u32,
}

/// A device without a context: enough to query its other users.
pub(crate) struct FoundDevice {
    driver: &'static Driver,
    device: CUdevice,
    pub(crate) facts: DeviceFacts,
}

impl Gpu {
    /// Finds the device without creating a context on it.
    pub(crate) fn find(driver: &'static Driver) -> Result<FoundDevice> {
        let mut count = 0;
        let mut device: CUdevice = 0;
        let mut cuda_version = 0;
        // SAFETY: all arguments are live locals.
        unsafe {
            call!(driver, cuDeviceGetCount(&mut count))?;
            if count == 0 {
                let text = "the driver finds no device (is `CUDA_VISIBLE_DEVICES` empty?)";
                return Err(Fault::new(ErrorClass::NoDriver, text));
            }
            call!(driver, cuDeviceGet(&mut device, 0))?;
            call!(driver, cuDriverGetVersion(&mut cuda_version))?;
        }
        let facts = facts(driver, device, cuda_version as u32)?;
        Ok(FoundDevice { driver, device, facts })
    }
}

impl FoundDevice {
    /// Makes the primary context current and a stream on it.
    ///
    /// The stream synchronises with the legacy default stream, so that a host entry that uses the
    /// latter by mistake is still ordered with our copies.
    pub(crate) fn open(self) -> Result<Gpu> {
        let driver = self.driver;
        let mut context = std::ptr::null_mut();
        let mut stream = std::ptr::null_mut();
        // SAFETY: the device is valid; context and stream are live locals, and neither is destroyed
        // before the process ends.
        unsafe {
            call!(driver, cuDevicePrimaryCtxRetain(&mut context, self.device))?;
            call!(driver, cuCtxSetCurrent(context))?;
            call!(driver, cuStreamCreate(&mut stream, 0))?;
        }
        use CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as SHARED;
        let shared_limit = attribute(driver, self.device, SHARED)?;
        Ok(Gpu { driver, stream, facts: self.facts, shared_limit })
    }
}

impl Gpu {
    /// Waits for all work on the stream. A fault of the kernel is reported here.
    pub(crate) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives as long as the process.
        unsafe { call!(self.driver, cuStreamSynchronize(self.stream)) }
    }

    /// Whether a fault of the kernel has destroyed the context, after which every call fails.
    pub(crate) fn is_lost(&self) -> bool {
        self.driver.is_lost()
    }

    /// Waits for all work on every stream of the context.
    pub(crate) fn synchronize_all(&self) -> Result<()> {
        let Some(synchronize) = self.driver.cuCtxSynchronize else { return self.synchronize() };
        // SAFETY: the context is current.
        self.driver.check("cuCtxSynchronize", unsafe { synchronize() })
    }

    /// Resets lines that a kernel asked L2 to keep, so that a flush replaces them too. Drivers
    /// before 11.0 have no such lines.
    pub(crate) fn reset_persisting_l2(&self) -> Result<()> {
        let Some(reset) = self.driver.cuCtxResetPersistingL2Cache else { return Ok(()) };
        // SAFETY: the context is current.
        self.driver.check("cuCtxResetPersistingL2Cache", unsafe { reset() })
    }
}

fn facts(driver: &Driver, device: CUdevice, cuda_version: u32) -> Result<DeviceFacts> {
    use CUdevice_attribute::*;
    let mut name: [c_char; 256] = [0; 256];
    let mut uuid = CUuuid { bytes: [0; 16] };
    let mut memory = 0usize;
    // SAFETY: the driver writes at most 255 characters and a NUL; the others are live locals.
    let name = unsafe {
        call!(driver, cuDeviceGetName(name.as_mut_ptr(), 255, device))?;
        call!(driver, cuDeviceGetUuid_v2(&mut uuid, device))?;
        call!(driver, cuDeviceTotalMem_v2(&mut memory, device))?;
        CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
    };
    let get = |which| attribute(driver, device, which);
    Ok(DeviceFacts {
        name,
        uuid: format!("GPU-{}", uuid_text(&uuid.bytes.map(|byte| byte as u8))),
        compute_capability: [
            get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ],
        cuda_version,
        driver: None,
        memory_bytes: memory as u64,
        l2_bytes: get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.into(),
        sms: get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
    })
}

fn attribute(driver: &Driver, device: CUdevice, which: CUdevice_attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: `value` is a live local.
    unsafe { call!(driver, cuDeviceGetAttribute(&mut value, which, device))? };
    Ok(u32::try_from(value).unwrap_or(0))
}

/// `8-4-4-4-12`, as nvidia-smi prints it.
fn uuid_text(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_grouped_as_nvidia_smi_groups_them() {
        let bytes = std::array::from_fn(|i| i as u8 * 17);
        assert_eq!(uuid_text(&bytes), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
