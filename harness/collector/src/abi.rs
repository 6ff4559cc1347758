//! The C interface of NVTX version 3: export tables, callback numbers and event attributes. Source:
//! `nvtxDetail/nvtxTypes.h` and `nvToolsExt.h` of NVTX 3.0 to 3.4, which keep this layout.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A callback of unknown signature, as NVTX stores it.
pub(crate) type Function = unsafe extern "C" fn();
/// The function that NVTX passes to an injection library: table number → table.
pub(crate) type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

/// Export table through which the callback slots of each module are found.
pub(crate) const TABLE_CALLBACKS: u32 = 1;
/// Export table through which a tool states its NVTX version.
pub(crate) const TABLE_VERSION_INFO: u32 = 3;
/// The NVTX version of this library.
pub(crate) const NVTX_VERSION: u32 = 3;

/// Module of the calls for the default domain.
pub(crate) const MODULE_CORE: c_int = 1;
/// Module of the calls that name a domain.
pub(crate) const MODULE_CORE2: c_int = 5;

/// NVTX export table 1, which the program's NVTX fills.
#[repr(C)]
pub(crate) struct CallbacksTable {
    pub(crate) struct_size: usize,
    /// Returns an array of pointers to the callback slots of a module, and its length; 0 on
    /// failure.
    pub(crate) get_module_table:
        Option<unsafe extern "C" fn(c_int, *mut *mut *mut Option<Function>, *mut c_uint) -> c_int>,
}

/// NVTX export table 3; it tells the program which injection attached.
#[repr(C)]
pub(crate) struct VersionInfoTable {
    pub(crate) struct_size: usize,
    pub(crate) version: u32,
    pub(crate) reserved: u32,
    pub(crate) set_injection_version: Option<unsafe extern "C" fn(u32)>,
}

/// `nvtxEventAttributes_t`, version 2 (48 bytes). Older programs pass fewer bytes: see `size`.
///
/// | offset | field |
/// |---|---|
/// | 0 | version u16, size u16, category u32 |
/// | 8 | color type i32, color u32 |
/// | 16 | payload type i32, reserved i32, payload 8 bytes |
/// | 32 | message type i32, 4 bytes padding, message pointer |
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EventAttributes {
    pub(crate) version: u16,
    pub(crate) size: u16,
    pub(crate) category: u32,
    pub(crate) color_type: i32,
    pub(crate) color: u32,
    pub(crate) payload_type: i32,
    pub(crate) reserved: i32,
    pub(crate) payload: [u8; 8],
    pub(crate) message_type: i32,
    pub(crate) message: *const c_void,
}

/// The color field holds an ARGB value.
pub(crate) const COLOR_ARGB: i32 = 1;
/// The message is a `char` string.
pub(crate) const MESSAGE_NARROW: i32 = 1;
/// The message is a `wchar_t` string.
pub(crate) const MESSAGE_WIDE: i32 = 2;
/// The message is a registered string's handle.
pub(crate) const MESSAGE_REGISTERED: i32 = 3;

/// `wchar_t` on Linux: one UTF-32 unit.
pub(crate) type WideChar = i32;
pub(crate) type CChar = c_char;
/// `nvtxDomainHandle_t` and `nvtxStringHandle_t`: opaque to the program, a number to us.
pub(crate) type Handle = *const c_void;
