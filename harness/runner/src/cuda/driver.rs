//! The table of driver functions, and errors that name the call.

#![allow(unsafe_code, non_snake_case)] // the driver's own function names

use crate::fault::{Fault, Result, loader_text};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction,
    CUfunction_attribute, CUgraph, CUgraphExec, CUgraphNode, CUjit_option, CUlaunchConfig,
    CUmodule, CUstream, CUuuid,
};
use libloading::Library;
use rgpu_case::ErrorClass;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! table {
    ({$($name:ident($($arg:ty),*);)*} optional {$($maybe:ident($($maybe_arg:ty),*);)*}) => {
        /// The functions by their own names; those of newer drivers are optional.
        pub(crate) struct Driver {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> u32,)*
            $(pub(crate) $maybe: Option<unsafe extern "C" fn($($maybe_arg),*) -> u32>,)*
            lost: AtomicBool,
            _library: Library,
        }

        impl Driver {
            /// # Safety
            /// The library must be libcuda.
            unsafe fn resolve(library: Library) -> Result<Driver, &'static str> {
                // SAFETY: the signatures are those of cuda.h; CUresult is a 32-bit enum.
                unsafe {
                    Ok(Driver {
                        $($name: *library
                            .get(concat!(stringify!($name), "\0").as_bytes())
                            .map_err(|_| stringify!($name))?,)*
                        $($maybe: library
                            .get(concat!(stringify!($maybe), "\0").as_bytes())
                            .ok()
                            .map(|symbol| *symbol),)*
                        lost: AtomicBool::new(false),
                        _library: library,
                    })
                }
            }
        }
    };
}

table! {
    {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(u32, *mut *const c_char);
    cuGetErrorString(u32, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDeviceGetUuid_v2(*mut CUuuid, CUdevice);
    cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
    cuDeviceTotalMem_v2(*mut usize, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuCtxSetCurrent(CUcontext);
    cuStreamCreate(*mut CUstream, c_uint);
    cuStreamSynchronize(CUstream);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventDestroy_v2(CUevent);
    cuEventRecord(CUevent, CUstream);
    cuEventSynchronize(CUevent);
    cuEventElapsedTime(*mut f32, CUevent, CUevent);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemcpyHtoD_v2(CUdeviceptr, *const c_void, usize);
    cuMemcpyDtoH_v2(*mut c_void, CUdeviceptr, usize);
    cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);
    cuModuleLoadDataEx(*mut CUmodule, *const c_void, c_uint, *mut CUjit_option, *mut *mut c_void);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuFuncGetAttribute(*mut c_int, CUfunction_attribute, CUfunction);
    cuFuncSetAttribute(CUfunction, CUfunction_attribute, c_int);
    cuLaunchKernel(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
        *mut *mut c_void, *mut *mut c_void
    );
    } optional {
    // 11.8
    cuLaunchKernelEx(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void);
    cuCtxResetPersistingL2Cache();
    cuCtxSynchronize();
    // 11.4; the others of graphs are older
    cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong);
    cuStreamBeginCapture_v2(CUstream, c_uint);
    cuStreamEndCapture(CUstream, *mut CUgraph);
    cuGraphGetNodes(CUgraph, *mut CUgraphNode, *mut usize);
    cuGraphLaunch(CUgraphExec, CUstream);
    cuGraphDestroy(CUgraph);
    cuGraphExecDestroy(CUgraphExec);
    // 12.4
    cuFuncGetParamInfo(CUfunction, usize, *mut usize, *mut usize);
    }
}

/// `call!(driver, cuMemFree_v2(pointer))` inside an unsafe block: makes the call and names it in
/// errors.
macro_rules! call {
    ($driver:expr, $name:ident($($arg:expr),* $(,)?)) => {
        $driver.check(stringify!($name), ($driver.$name)($($arg),*))
    };
}
pub(crate) use call;

impl Driver {
    /// Opens libcuda and initialises it. The table lives as long as the process.
    pub(crate) fn open() -> Result<&'static Driver> {
        let no_driver = |text: String| Fault::new(ErrorClass::NoDriver, text);
        // SAFETY: libcuda's initialisers are safe to run once per process.
        let library = unsafe {
            Library::new("libcuda.so.1")
                .or_else(|first| Library::new("libcuda.so").map_err(|_| first))
        };
        let library = library
            .map_err(|e| no_driver(format!("there is no NVIDIA driver: {}", loader_text(&e))))?;
        // SAFETY: the library was found under libcuda's own name.
        let driver = unsafe { Driver::resolve(library) }.map_err(|symbol| {
            no_driver(format!("the NVIDIA driver is too old: libcuda has no `{symbol}`"))
        })?;
        // SAFETY: the flags must be 0.
        unsafe { call!(driver, cuInit(0)) }
            .map_err(|fault| fault.with_class(ErrorClass::NoDriver))?;
        Ok(Box::leak(Box::new(driver)))
    }

    /// Converts a result into a fault with the call, the code and the driver's error text.
    pub(crate) fn check(&self, call: &'static str, code: u32) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let call = call.trim_end_matches("_v2");
        let name = self.text_of(self.cuGetErrorName, code);
        let words = self.text_of(self.cuGetErrorString, code);
        let mut text = match (name, words) {
            (Some(name), Some(words)) => format!("`{call}` failed: {name} ({code}), {words}"),
            _ => format!("`{call}` failed with code {code}, which this driver has no name for"),
        };
        let class = classify(call, code);
        if matches!(class, ErrorClass::IllegalAccess | ErrorClass::Crash) {
            self.lost.store(true, Ordering::Relaxed);
            text += "; the cause is an earlier kernel launch, which this call only reports";
        }
        Err(Fault::new(class, text).at_call(call, code.into()))
    }

    /// Whether a fault of the kernel has destroyed the context. Then every call fails and nothing
    /// is left to free; compute-sanitizer would report each attempt beside the relevant fault.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    fn text_of(
        &self,
        get: unsafe extern "C" fn(u32, *mut *const c_char) -> u32,
        code: u32,
    ) -> Option<String> {
        let mut text = std::ptr::null();
        // SAFETY: the driver stores the address of a static string, or null.
        unsafe {
            if get(code, &mut text) != 0 || text.is_null() {
                return None;
            }
            Some(CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }
}

/// The class of an error. Codes are those of `CUresult` in cuda.h.
fn classify(call: &str, code: u32) -> ErrorClass {
    match code {
        2 => ErrorClass::OutOfMemory,
        // not initialized, stub, device unavailable, no device, system not ready, mismatch
        3 | 34 | 46 | 100 | 802..=804 => ErrorClass::NoDriver,
        // invalid image, no binary for gpu, invalid ptx, no ptx compiler, unsupported ptx
        200 | 209 | 218 | 221..=223 | 300..=303 | 500 => ErrorClass::Load,
        // illegal address, hardware stack, illegal instruction, misaligned, address space, pc
        700 | 714..=718 => ErrorClass::IllegalAccess,
        // launch timeout, assert, launch failed, contained
        702 | 710 | 719 | 721 => ErrorClass::Crash,
        // out of resources, cooperative launch too large, invalid cluster size
        701 | 720 | 912 => ErrorClass::Launch,
        _ if call.starts_with("cuLaunch") => ErrorClass::Launch,
        _ if call == "cuModuleLoadDataEx" || call == "cuModuleGetFunction" => ErrorClass::Load,
        _ => ErrorClass::Cuda,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_kernel_are_told_from_refused_launches_and_bad_modules() {
        assert_eq!(classify("cuStreamSynchronize", 700), ErrorClass::IllegalAccess);
        assert_eq!(classify("cuStreamSynchronize", 719), ErrorClass::Crash);
        assert_eq!(classify("cuLaunchKernel", 1), ErrorClass::Launch);
        assert_eq!(classify("cuModuleLoadDataEx", 209), ErrorClass::Load);
        assert_eq!(classify("cuMemAlloc", 2), ErrorClass::OutOfMemory);
        assert_eq!(classify("cuMemAlloc", 9999), ErrorClass::Cuda);
    }
}
