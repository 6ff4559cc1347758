//! libnvrtc: opened at run time and called through our own table. Needs no driver and no GPU.

#![allow(unsafe_code, non_snake_case)] // NVRTC's own function names

use crate::fault::{Fault, Result, loader_text};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rgpu_case::ErrorClass;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// Library names to try, newest first.
const NAMES: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"];

type RawProgram = *mut c_void;

macro_rules! table {
    ($($name:ident($($arg:ty),*);)*) => {
        /// The functions, by their own names.
        pub(super) struct Nvrtc {
            $($name: unsafe extern "C" fn($($arg),*) -> u32,)*
            error_string: unsafe extern "C" fn(u32) -> *const c_char,
            /// Major and minor, such as `[13, 5]`.
            pub(super) version: [u32; 2],
            /// Where the loader found it.
            pub(super) path: Option<PathBuf>,
            _library: Library,
        }

        impl Nvrtc {
            /// # Safety
            /// The library must be libnvrtc.
            unsafe fn resolve(library: Library) -> Result<Nvrtc, &'static str> {
                // SAFETY: the signatures are those of nvrtc.h; nvrtcResult is a 32-bit enum.
                unsafe {
                    Ok(Nvrtc {
                        $($name: *library
                            .get(concat!(stringify!($name), "\0").as_bytes())
                            .map_err(|_| stringify!($name))?,)*
                        error_string: *library
                            .get(b"nvrtcGetErrorString\0")
                            .map_err(|_| "nvrtcGetErrorString")?,
                        version: [0; 2],
                        path: None,
                        _library: library,
                    })
                }
            }
        }
    };
}

table! {
    nvrtcVersion(*mut c_int, *mut c_int);
    nvrtcGetNumSupportedArchs(*mut c_int);
    nvrtcGetSupportedArchs(*mut c_int);
    nvrtcCreateProgram(
        *mut RawProgram, *const c_char, *const c_char, c_int, *const *const c_char,
        *const *const c_char
    );
    nvrtcDestroyProgram(*mut RawProgram);
    nvrtcCompileProgram(RawProgram, c_int, *const *const c_char);
    nvrtcGetProgramLogSize(RawProgram, *mut usize);
    nvrtcGetProgramLog(RawProgram, *mut c_char);
    nvrtcGetPTXSize(RawProgram, *mut usize);
    nvrtcGetPTX(RawProgram, *mut c_char);
    nvrtcGetCUBINSize(RawProgram, *mut usize);
    nvrtcGetCUBIN(RawProgram, *mut c_char);
}

/// Makes a call and names it in errors.
macro_rules! call {
    ($nvrtc:expr, $name:ident($($arg:expr),* $(,)?)) => {
        $nvrtc.check(stringify!($name), ($nvrtc.$name)($($arg),*))
    };
}

impl Nvrtc {
    /// Opens this library, or the newest that the loader finds.
    pub(super) fn open(path: Option<&Path>) -> Result<Nvrtc> {
        let here = path.map(Path::to_path_buf).or_else(first_on_path);
        let library = match &here {
            Some(path) => load(path.as_os_str()),
            None => NAMES
                .iter()
                .map(|name| load(name.as_ref()))
                .reduce(|found, next| found.or_else(|loader_error| next.map_err(|_| loader_error)))
                .unwrap_or_else(|| Err("no name to look for".to_owned())),
        };
        let library = library.map_err(|loader_error| missing_library(&loader_error))?;
        // SAFETY: the library was found under libnvrtc's own name, or named as such by the user.
        let mut nvrtc = unsafe { Nvrtc::resolve(library) }
            .map_err(|symbol| missing_library(&format!("it has no `{symbol}`")))?;
        let [mut major, mut minor] = [0, 0];
        // SAFETY: both are live locals.
        unsafe { call!(nvrtc, nvrtcVersion(&mut major, &mut minor))? };
        nvrtc.version = [major.unsigned_abs(), minor.unsigned_abs()];
        nvrtc.path = loaded_from(here.as_deref());
        nvrtc.hold_builtins();
        Ok(nvrtc)
    }

    /// Loads libnvrtc-builtins from beside the library. NVRTC asks the loader for it by its bare
    /// name. That fails for a library opened by its path (unless it has an RPATH, as in NVIDIA's
    /// wheels from 13 on), but works if the process has already loaded a library of that name.
    fn hold_builtins(&self) {
        let [major, minor] = self.version;
        let Some(folder) = self.path.as_deref().and_then(Path::parent) else { return };
        let builtins = folder.join(format!("libnvrtc-builtins.so.{major}.{minor}"));
        if let Ok(library) = load(builtins.as_os_str()) {
            std::mem::forget(library);
        }
    }

    /// Supported architectures, such as `sm_90`, without those that end in a letter.
    pub(super) fn architectures(&self) -> Vec<String> {
        let mut count = 0;
        // SAFETY: `count` is a live local, and the vector has as many elements as NVRTC reported.
        let known = unsafe {
            let counted = call!(self, nvrtcGetNumSupportedArchs(&mut count));
            let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
            counted
                .and_then(|()| call!(self, nvrtcGetSupportedArchs(known.as_mut_ptr())))
                .map(|()| known)
        };
        known.unwrap_or_default().iter().map(|number| format!("sm_{number}")).collect()
    }

    fn check(&self, call: &str, code: u32) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the result is a static string for any code.
        let name = unsafe {
            let name = (self.error_string)(code);
            if name.is_null() { "unknown".into() } else { CStr::from_ptr(name).to_string_lossy() }
        };
        // Codes are those of `nvrtcResult`.
        let class = match code {
            1 => ErrorClass::OutOfMemory,
            5 | 6 => ErrorClass::Compile, // an option, the code
            _ => ErrorClass::NoCompiler,  // builtins missing, internal errors
        };
        Err(Fault::new(class, format!("`{call}` failed: {name} ({code})"))
            .at_call(call, code.into()))
    }
}

/// One source to compile for one architecture.
pub(super) struct Program<'n> {
    nvrtc: &'n Nvrtc,
    program: RawProgram,
}

impl<'n> Program<'n> {
    /// Messages call the source `name`; headers are (name, text).
    pub(super) fn new(
        nvrtc: &'n Nvrtc,
        source: &CStr,
        name: &CStr,
        headers: &[(CString, CString)],
    ) -> Result<Program<'n>> {
        let names: Vec<_> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let texts: Vec<_> = headers.iter().map(|(_, text)| text.as_ptr()).collect();
        let mut program = std::ptr::null_mut();
        // SAFETY: all are C strings, or arrays of them of the length given, and live until the
        // call returns; NVRTC keeps copies.
        unsafe {
            call!(
                nvrtc,
                nvrtcCreateProgram(
                    &mut program,
                    source.as_ptr(),
                    name.as_ptr(),
                    headers.len() as c_int,
                    texts.as_ptr(),
                    names.as_ptr(),
                )
            )?;
        }
        Ok(Program { nvrtc, program })
    }

    pub(super) fn compile(&self, options: &[CString]) -> Result<()> {
        let words: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the array holds as many C strings as given.
        unsafe {
            call!(
                self.nvrtc,
                nvrtcCompileProgram(self.program, words.len() as c_int, words.as_ptr())
            )
        }
    }

    /// The compiler's log, byte for byte.
    pub(super) fn log(&self) -> Vec<u8> {
        let Nvrtc { nvrtcGetProgramLogSize: size, nvrtcGetProgramLog: get, .. } = *self.nvrtc;
        self.text("nvrtcGetProgramLog", size, get).unwrap_or_default()
    }

    /// The PTX; empty when there is none.
    pub(super) fn ptx(&self) -> Result<Vec<u8>> {
        let Nvrtc { nvrtcGetPTXSize: size, nvrtcGetPTX: get, .. } = *self.nvrtc;
        self.text("nvrtcGetPTX", size, get)
    }

    /// The cubin; empty when there is none.
    pub(super) fn cubin(&self) -> Result<Vec<u8>> {
        let Nvrtc { nvrtcGetCUBINSize: size, nvrtcGetCUBIN: get, .. } = *self.nvrtc;
        self.bytes("nvrtcGetCUBIN", size, get)
    }

    fn text(&self, call: &str, size: GetSize, get: GetBytes) -> Result<Vec<u8>> {
        let mut bytes = self.bytes(call, size, get)?;
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(bytes)
    }

    fn bytes(&self, call: &str, size: GetSize, get: GetBytes) -> Result<Vec<u8>> {
        let mut count = 0;
        // SAFETY: `count` is a live local.
        self.nvrtc.check(&format!("{call}Size"), unsafe { size(self.program, &mut count) })?;
        let mut bytes = vec![0u8; count];
        if count > 0 {
            // SAFETY: the buffer has the size that NVRTC asked for.
            self.nvrtc.check(call, unsafe { get(self.program, bytes.as_mut_ptr().cast()) })?;
        }
        Ok(bytes)
    }
}

type GetSize = unsafe extern "C" fn(RawProgram, *mut usize) -> u32;
type GetBytes = unsafe extern "C" fn(RawProgram, *mut c_char) -> u32;

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed only here.
        let _ = unsafe { (self.nvrtc.nvrtcDestroyProgram)(&mut self.program) };
    }
}

/// The error for a host without NVRTC, in the loader's usual words. So one pattern recognises every
/// compiler that does not start, and it is not mistaken for an error in the code.
fn missing_library(loader_error: &str) -> Fault {
    let text = format!("error while loading shared libraries: no NVRTC: {loader_error}");
    Fault::new(ErrorClass::NoCompiler, text)
}

/// The first library in the folders of `LD_LIBRARY_PATH`. The loader alone would prefer the newest
/// name from anywhere to an older one from there, and NVRTC would then use headers of another
/// version.
fn first_on_path() -> Option<PathBuf> {
    let folders = std::env::var_os("LD_LIBRARY_PATH")?;
    std::env::split_paths(&folders)
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .find(|path| path.is_file())
}

fn load(name: &std::ffi::OsStr) -> Result<Library, String> {
    // SAFETY: NVRTC's initialisers are safe to run.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }.map_err(|e| loader_text(&e))
}

/// The path that the library was loaded from; for a bare name only the loader knows it. Symbolic
/// links are resolved, so that files beside the library are found.
fn loaded_from(path: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = path {
        return std::fs::canonicalize(path).ok();
    }
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let is_nvrtc = |path: &&Path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libnvrtc.so"))
    };
    paths.into_iter().find(is_nvrtc).map(Path::to_path_buf)
}
