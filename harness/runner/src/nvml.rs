//! Reads clocks, temperature, throttling, power limits and the other processes of the GPU from
//! NVML.
//!
//! NVML is opened at run time. A host without it (or a container that hides it) lacks these facts;
//! the job still runs. Values that a GPU does not report are absent.

#![allow(unsafe_code, non_snake_case)] // calls by NVML's own names

use crate::fault::loader_text;
use libloading::Library;
use rgpu_case::ClockReading;
use std::ffi::{CStr, CString, c_char, c_uint, c_ulonglong, c_void};

type Handle = *mut c_void;
type GetUint = unsafe extern "C" fn(Handle, *mut c_uint) -> c_uint;
type GetProcesses = unsafe extern "C" fn(Handle, *mut c_uint, *mut ProcessInfo) -> c_uint;

/// `nvmlProcessInfo_t` of the `_v2` and `_v3` calls.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: c_uint,
    used_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlMarginTemperature_v1_t`.
#[repr(C)]
struct MarginTemperature {
    version: c_uint,
    margin_c: i32,
}

/// `nvmlMarginTemperature_v1`: the size of the structure, and its version above that.
const MARGIN_VERSION: c_uint = size_of::<MarginTemperature>() as c_uint | 1 << 24;

/// `NVML_TEMPERATURE_THRESHOLD_SLOWDOWN`.
const THRESHOLD_SLOWDOWN: c_uint = 1;

/// The most processes that one query returns.
const MAX_PROCESSES: usize = 64;

/// `NVML_CLOCK_SM`, `NVML_CLOCK_MEM`.
const CLOCK_SM: c_uint = 1;
const CLOCK_MEM: c_uint = 2;

/// Bits of `nvmlClocksEventReasons` that mean a slowed GPU. Idle (1) and a clock set by the user
/// (2) do not.
const THROTTLE: [(c_ulonglong, &str); 7] = [
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal"),
    (0x40, "hw_thermal"),
    (0x80, "hw_power_brake"),
    (0x100, "display_clock"),
];

/// NVML and the queried device.
pub(crate) struct Nvml {
    library: Library,
    device: Handle,
    /// Whether the device is a MIG slice.
    pub(crate) mig: bool,
}

impl Nvml {
    /// Opens NVML for the device with this UUID (`GPU-…`, from CUDA, which does not distinguish a
    /// MIG slice from its GPU). The error is a sentence for the report's gaps.
    pub(crate) fn open(uuid: &str) -> Result<Nvml, String> {
        // SAFETY: NVML's initialisers are safe to run.
        let library = unsafe { Library::new("libnvidia-ml.so.1") }.map_err(|e| {
            let loader_error = loader_text(&e);
            format!("NVML is missing, so clocks and throttling are unknown: {loader_error}")
        })?;
        let mut nvml = Nvml { library, device: std::ptr::null_mut(), mig: false };
        // SAFETY: signature from nvml.h.
        unsafe {
            let init = nvml
                .symbol::<unsafe extern "C" fn() -> c_uint>(c"nvmlInit_v2")
                .ok_or("NVML has no `nvmlInit_v2`")?;
            nvml.check("nvmlInit", init())?;
        }
        match nvml.by_uuid(uuid) {
            Ok(device) => nvml.device = device,
            Err(gpu) => {
                let mig = uuid.replacen("GPU-", "MIG-", 1);
                nvml.device = nvml.by_uuid(&mig).map_err(|_| gpu)?;
                nvml.mig = true;
            }
        }
        Ok(nvml)
    }

    fn by_uuid(&self, uuid: &str) -> Result<Handle, String> {
        type F = unsafe extern "C" fn(*const c_char, *mut Handle) -> c_uint;
        let text = CString::new(uuid).map_err(|_| "a UUID holds a NUL".to_owned())?;
        let mut device = std::ptr::null_mut();
        // SAFETY: signature from nvml.h; the string and the handle are live.
        unsafe {
            let get = self.symbol::<F>(c"nvmlDeviceGetHandleByUUID").ok_or("NVML is too old")?;
            self.check("nvmlDeviceGetHandleByUUID", get(text.as_ptr(), &mut device))?;
        }
        Ok(device)
    }

    /// # Safety
    /// `F` must be the type of the symbol.
    unsafe fn symbol<F: Copy>(&self, name: &CStr) -> Option<F> {
        // SAFETY: the caller guarantees the type.
        unsafe { self.library.get::<F>(name.to_bytes_with_nul()) }.ok().map(|symbol| *symbol)
    }

    fn check(&self, call: &str, code: c_uint) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        type F = unsafe extern "C" fn(c_uint) -> *const c_char;
        // SAFETY: signature from nvml.h; the result is a static string.
        let description = unsafe {
            let text = self.symbol::<F>(c"nvmlErrorString").map(|f| f(code));
            let text = text.filter(|text| !text.is_null());
            text.map(|text| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        Err(format!(
            "`{call}` failed ({code}): {}",
            description.unwrap_or_else(|| "no words".into())
        ))
    }

    /// Queries a value of the device; `None` when NVML or the GPU does not provide it.
    fn uint(&self, name: &CStr) -> Option<u32> {
        let mut value = 0;
        // SAFETY: every function called through here is `(device, unsigned *)` in nvml.h.
        let code = unsafe { self.symbol::<GetUint>(name)?(self.device, &mut value) };
        (code == 0).then_some(value)
    }

    fn uint_of(&self, name: &CStr, which: c_uint) -> Option<u32> {
        type F = unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_uint;
        let mut value = 0;
        // SAFETY: every function called through here is `(device, enum, unsigned *)` in nvml.h.
        let code = unsafe { self.symbol::<F>(name)?(self.device, which, &mut value) };
        (code == 0).then_some(value)
    }

    fn throttle_reasons(&self) -> Option<Vec<String>> {
        type F = unsafe extern "C" fn(Handle, *mut c_ulonglong) -> c_uint;
        let mut bits = 0;
        // SAFETY: both names have this signature in nvml.h; the first is the newer one.
        let code = unsafe {
            let get = self
                .symbol::<F>(c"nvmlDeviceGetCurrentClocksEventReasons")
                .or_else(|| self.symbol::<F>(c"nvmlDeviceGetCurrentClocksThrottleReasons"))?;
            get(self.device, &mut bits)
        };
        (code == 0).then(|| {
            let set = THROTTLE.iter().filter(|(bit, _)| bits & bit != 0);
            set.map(|(_, name)| (*name).to_owned()).collect()
        })
    }

    /// Reads the current clocks, temperature, power and throttle reasons.
    pub(crate) fn reading(&self) -> ClockReading {
        ClockReading {
            first_sample: 0,
            sm_mhz: self.uint_of(c"nvmlDeviceGetClockInfo", CLOCK_SM),
            mem_mhz: self.uint_of(c"nvmlDeviceGetClockInfo", CLOCK_MEM),
            temperature_c: self.uint_of(c"nvmlDeviceGetTemperature", 0),
            power_mw: self.uint(c"nvmlDeviceGetPowerUsage"),
            throttle: self.throttle_reasons().unwrap_or_default(),
        }
    }

    /// How many °C the GPU is below the temperature at which the driver slows it down (`T.Limit` of
    /// nvidia-smi). Negative above it.
    pub(crate) fn headroom_c(&self) -> Option<i32> {
        type GetMargin = unsafe extern "C" fn(Handle, *mut MarginTemperature) -> c_uint;
        let mut margin = MarginTemperature { version: MARGIN_VERSION, margin_c: 0 };
        // SAFETY: signature and layout from nvml.h, as the version in the structure says.
        let code = unsafe {
            self.symbol::<GetMargin>(c"nvmlDeviceGetMarginTemperature")
                .map(|get| get(self.device, &mut margin))
        };
        if code == Some(0) {
            return Some(margin.margin_c);
        }
        // GPUs and drivers without a margin have a fixed temperature.
        let limit = self.uint_of(c"nvmlDeviceGetTemperatureThreshold", THRESHOLD_SLOWDOWN)?;
        let now = self.uint_of(c"nvmlDeviceGetTemperature", 0)?;
        Some(i32::try_from(limit).ok()? - i32::try_from(now).ok()?)
    }

    /// Enforced and default power limit in mW.
    pub(crate) fn power_limits(&self) -> Option<(u32, u32)> {
        let enforced = self
            .uint(c"nvmlDeviceGetEnforcedPowerLimit")
            .or_else(|| self.uint(c"nvmlDeviceGetPowerManagementLimit"))?;
        Some((enforced, self.uint(c"nvmlDeviceGetPowerManagementDefaultLimit")?))
    }

    /// Whether this is a vGPU. A whole GPU passed through to a virtual machine is not one.
    pub(crate) fn is_virtual(&self) -> Option<bool> {
        // NVML_GPU_VIRTUALIZATION_MODE_VGPU
        self.uint(c"nvmlDeviceGetVirtualizationMode").map(|mode| mode == 2)
    }

    /// Ids of other processes on the GPU. Call this before creating a context: in a container NVML
    /// returns the ids of the host, among which our own cannot be recognised.
    pub(crate) fn other_processes(&self) -> Option<Vec<u32>> {
        let mut pids = self.processes(c"nvmlDeviceGetComputeRunningProcesses")?;
        pids.extend(self.processes(c"nvmlDeviceGetGraphicsRunningProcesses").unwrap_or_default());
        pids.retain(|&pid| pid != std::process::id());
        pids.sort_unstable();
        pids.dedup();
        Some(pids)
    }

    fn processes(&self, name: &CStr) -> Option<Vec<u32>> {
        let name = name.to_str().ok()?;
        let versions = [format!("{name}_v3\0"), format!("{name}_v2\0")];
        // Drivers 535.43 to 535.86 wrote 32 bytes per process under `_v3`, so the array has room
        // for that.
        let mut infos = [ProcessInfo::default(); MAX_PROCESSES * 32 / 24 + 1];
        let mut count = MAX_PROCESSES as c_uint;
        let code = versions.iter().find_map(|name| {
            let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
            // SAFETY: both versions have this signature and layout in nvml.h; `count` holds the
            // capacity of `infos`.
            unsafe {
                Some(self.symbol::<GetProcesses>(name)?(
                    self.device,
                    &mut count,
                    infos.as_mut_ptr(),
                ))
            }
        })?;
        // 7: there are more processes than fit. Those returned are enough for a warning.
        let count = (count as usize).min(MAX_PROCESSES);
        matches!(code, 0 | 7).then(|| infos[..count].iter().map(|info| info.pid).collect())
    }

    /// Version of the kernel driver, such as `570.124.06`.
    pub(crate) fn driver_version(&self) -> Option<String> {
        type F = unsafe extern "C" fn(*mut c_char, c_uint) -> c_uint;
        let mut text: [c_char; 96] = [0; 96];
        // SAFETY: NVML writes at most 95 characters and a NUL.
        unsafe {
            let code = self.symbol::<F>(c"nvmlSystemGetDriverVersion")?(text.as_mut_ptr(), 95);
            (code == 0).then(|| CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
        }
    }
}
