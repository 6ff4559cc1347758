//! The entry point for NVTX. NVTX calls it once per program or library that embeds its headers, at
//! the first NVTX call there. Several threads may call it at once.
//!
//! NVTX hands in the function that returns its tables. The slots of these tables then hold the
//! functions of [`callbacks`], which record each NVTX call of the program.

use crate::abi::{
    CallbacksTable, Function, GetExportTable, MODULE_CORE, MODULE_CORE2, NVTX_VERSION,
    TABLE_CALLBACKS, TABLE_VERSION_INFO, VersionInfoTable,
};
use crate::{callbacks, process};
use std::ffi::{c_int, c_uint};
use std::panic::catch_unwind;

/// Called by NVTX with the function that returns its tables.
///
/// Returns 0 when nothing will be recorded; NVTX then turns its calls into no-ops.
///
/// # Safety
/// `get_export_table` is null or NVTX's own function of that type.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is NVTX's")]
pub unsafe extern "C" fn InitializeInjectionNvtx2(
    get_export_table: Option<unsafe extern "C" fn(u32) -> *const std::ffi::c_void>,
) -> c_int {
    let Some(get_export_table) = get_export_table else { return 0 };
    let attached = catch_unwind(|| {
        // SAFETY: NVTX passes its own tables.
        process::start() && unsafe { attach(get_export_table) }
    });
    c_int::from(attached.unwrap_or(false))
}

/// Puts our functions into NVTX's tables. False if NVTX has no table for its CORE module.
///
/// # Safety
/// `get_export_table` returns null or tables of the types in `abi`.
unsafe fn attach(get_export_table: GetExportTable) -> bool {
    // SAFETY: the caller guarantees it.
    unsafe {
        let versions = get_export_table(TABLE_VERSION_INFO).cast::<VersionInfoTable>();
        if let Some(versions) = versions.as_ref()
            && versions.struct_size >= size_of::<VersionInfoTable>()
            && let Some(set_version) = versions.set_injection_version
        {
            set_version(NVTX_VERSION);
        }
        let Some(table) = get_export_table(TABLE_CALLBACKS).cast::<CallbacksTable>().as_ref()
        else {
            return false;
        };
        if table.struct_size < size_of::<CallbacksTable>() {
            return false;
        }
        let core = install(table, MODULE_CORE, &callbacks::core());
        // CORE2 has the calls with a domain. Old headers lack it; then only the calls without a
        // domain are recorded.
        install(table, MODULE_CORE2, &callbacks::core2());
        core
    }
}

/// Puts `functions`, each with its callback number, into the table of a module. False if NVTX does
/// not have the module.
///
/// # Safety
/// `table` is NVTX's.
unsafe fn install(table: &CallbacksTable, module: c_int, functions: &[(usize, Function)]) -> bool {
    let Some(get_module_table) = table.get_module_table else { return false };
    let (mut slots, mut count) = (std::ptr::null_mut(), 0 as c_uint);
    // SAFETY: both results are valid pointers; NVTX fills both.
    let found = unsafe { get_module_table(module, &mut slots, &mut count) } != 0;
    if !found || slots.is_null() {
        return false;
    }
    for (number, function) in functions.iter().filter(|(number, _)| *number < count as usize) {
        // SAFETY: `slots` has `count` entries, each null or a pointer to a function pointer.
        unsafe {
            let slot = *slots.add(*number);
            if !slot.is_null() {
                *slot = Some(*function);
            }
        }
    }
    true
}
