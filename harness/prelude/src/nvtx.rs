//! NVTX ranges without NVIDIA's headers: the program's side of version 3 of the interface.
//!
//! A tool that wants ranges names a library in `NVTX_INJECTION64_PATH`. The first call opens it and
//! passes its `InitializeInjectionNvtx2` a function that returns two tables: one with the addresses
//! of each module's function slots, one for the version. The tool stores its functions in the
//! slots; a call whose slot is empty does nothing. Source of numbers and layouts: `nvtxTypes.h` of
//! NVTX 3.0 to 3.4.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Function slots per module: more than any module has.
const SLOTS_PER_MODULE: usize = 17;

/// Modules with their number of functions, including slot 0, which is unused: core, CUDA, OpenCL,
/// CUDA runtime, core 2 (domains), synchronisation.
const MODULES: [(c_int, usize); 6] = [(1, 16), (2, 9), (3, 15), (4, 7), (5, 16), (6, 7)];

/// `nvtxRangePushA` and `nvtxRangePop` of the core module.
const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;

/// The functions of every module, as stored by a tool.
static FUNCTIONS: [[AtomicPtr<c_void>; SLOTS_PER_MODULE]; MODULES.len()] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS_PER_MODULE] }; MODULES.len()];

/// The addresses of each module's function slots.
static TABLES: [[AtomicPtr<c_void>; SLOTS_PER_MODULE]; MODULES.len()] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS_PER_MODULE] }; MODULES.len()];

static START: Once = Once::new();

/// NVIDIA's struct of this name.
#[repr(C)]
struct NvtxExportTableCallbacks {
    size: usize,
    module: unsafe extern "C" fn(c_int, *mut *const c_void, *mut c_uint) -> c_int,
}

#[repr(C)]
struct NvtxExportTableVersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set: unsafe extern "C" fn(u32),
}

static CALLBACKS: NvtxExportTableCallbacks =
    NvtxExportTableCallbacks { size: size_of::<NvtxExportTableCallbacks>(), module: module_table };
static VERSION: NvtxExportTableVersionInfo = NvtxExportTableVersionInfo {
    size: size_of::<NvtxExportTableVersionInfo>(),
    version: 3,
    reserved: 0,
    set: set_version,
};

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

unsafe extern "C" fn set_version(_: u32) {}

unsafe extern "C" fn module_table(
    module: c_int,
    table: *mut *const c_void,
    count: *mut c_uint,
) -> c_int {
    let Some(module_index) = MODULES.iter().position(|(number, _)| *number == module) else {
        return 0;
    };
    let slot_count = MODULES[module_index].1;
    for slot in 1..slot_count {
        let function = &raw const FUNCTIONS[module_index][slot];
        TABLES[module_index][slot].store(function.cast_mut().cast(), Ordering::Relaxed);
    }
    // SAFETY: the tool passes pointers for its two results, each of which may be null.
    unsafe {
        if !table.is_null() {
            *table = (&raw const TABLES[module_index]).cast();
        }
        if !count.is_null() {
            *count = slot_count as c_uint;
        }
    }
    1
}

unsafe extern "C" fn export_table(number: u32) -> *const c_void {
    match number {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION).cast(),
        _ => std::ptr::null(),
    }
}

/// Opens the tool's library, if one is configured.
fn start() {
    type Initialize = unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> c_int;
    let Some(path) = std::env::var_os("NVTX_INJECTION64_PATH") else { return };
    let Ok(path) = CString::new(path.into_encoded_bytes()) else { return };
    const RTLD_LAZY: c_int = 1;
    // SAFETY: the tool that started this process named the library; its function has this signature
    // in every version of the interface.
    unsafe {
        let library = dlopen(path.as_ptr(), RTLD_LAZY);
        if library.is_null() {
            return;
        }
        let name: &CStr = c"InitializeInjectionNvtx2";
        let initialize = dlsym(library, name.as_ptr());
        if initialize.is_null() {
            return;
        }
        let initialize: Initialize = std::mem::transmute(initialize);
        if initialize(export_table) == 0 {
            FUNCTIONS
                .iter()
                .flatten()
                .for_each(|f| f.store(std::ptr::null_mut(), Ordering::Release));
        }
    }
}

/// The tool's function in this slot of the core module; `None` if no tool has set it.
fn tool_function(slot: usize) -> Option<*mut c_void> {
    START.call_once(start);
    let function = FUNCTIONS[0][slot].load(Ordering::Acquire);
    (!function.is_null()).then_some(function)
}

/// A range on this thread; dropping it ends the range.
#[must_use = "the range ends when this is dropped"]
#[derive(Debug)]
pub struct Range(std::marker::PhantomData<*const ()>);

/// Begins a range on this thread: `let _range = range("load");`.
pub fn range(name: impl AsRef<str>) -> Range {
    push(name.as_ref());
    Range(std::marker::PhantomData)
}

/// Begins a range on this thread; [`pop`] ends it.
pub fn push(name: &str) {
    let Some(function) = tool_function(RANGE_PUSH) else { return };
    let name = CString::new(name.replace('\0', " ")).unwrap_or_default();
    // SAFETY: the tool stored a function of this signature in this slot.
    unsafe {
        let function: unsafe extern "C" fn(*const c_char) -> c_int = std::mem::transmute(function);
        function(name.as_ptr());
    }
}

/// Ends the range that began last on this thread.
pub fn pop() {
    let Some(function) = tool_function(RANGE_POP) else { return };
    // SAFETY: the tool stored a function of this signature in this slot.
    unsafe {
        let function: unsafe extern "C" fn() -> c_int = std::mem::transmute(function);
        function();
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        pop();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "an unwrap tells a test failure well enough")]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static RECORDED_CALLS: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn record_call(text: &str) {
        if let Ok(mut heard) = RECORDED_CALLS.lock() {
            heard.push(text.to_owned());
        }
    }

    unsafe extern "C" fn pushed(name: *const c_char) -> c_int {
        // SAFETY: `push` passes a string that ends with a zero.
        record_call(&unsafe { CStr::from_ptr(name) }.to_string_lossy());
        0
    }

    unsafe extern "C" fn popped() -> c_int {
        record_call("end");
        0
    }

    #[test]
    fn a_tool_that_stores_its_functions_hears_of_each_range() {
        // SAFETY: a tool uses the tables in the same way.
        unsafe {
            let callbacks = export_table(1).cast::<NvtxExportTableCallbacks>();
            let (mut table, mut count) = (std::ptr::null(), 0);
            assert_eq!(((*callbacks).module)(1, &mut table, &mut count), 1);
            assert_eq!(count, 16);
            let places: *const *mut *mut c_void = table.cast();
            **places.add(RANGE_PUSH) = pushed as *mut c_void;
            **places.add(RANGE_POP) = popped as *mut c_void;
            assert_eq!(((*callbacks).module)(9, &mut table, &mut count), 0);
            assert!(export_table(2).is_null());
        }
        {
            let _outer = range("outer");
            let _inner = range("with\0zero");
        }
        assert_eq!(*RECORDED_CALLS.lock().unwrap(), ["outer", "with zero", "end", "end"]);
    }
}
