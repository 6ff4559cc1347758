//! Finds and opens libcupti. It comes with CUDA toolkits and with PyTorch's wheels, and is never
//! linked. Of two copies in one process only one gets records, so a copy that the program has
//! already loaded is always used.

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::record;

/// Paths of libcupti, separated by `:`, to try before the known locations.
const PATHS_VARIABLE: &str = "RGPU_CUPTI";

/// Names under which programs load it, newest first.
const NAMES: &[&str] = &["libcupti.so.13", "libcupti.so.12"];

/// `CUptiResult`; 0 is success.
pub(super) type Status = u32;
/// The buffer holds no more records.
pub(super) const NO_MORE: Status = 12;
/// Callback that supplies a buffer: address, size, maximum number of records (0: no limit).
pub(super) type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Callback that returns a buffer: context, stream, buffer, its size, filled bytes.
pub(super) type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
type Stamp = unsafe extern "C" fn() -> u64;

/// The CUPTI functions that we call.
#[derive(Clone, Copy)]
pub(super) struct Cupti {
    pub(super) version: unsafe extern "C" fn(*mut u32) -> Status,
    pub(super) result_text: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    pub(super) register_callbacks: unsafe extern "C" fn(Request, Complete) -> Status,
    pub(super) enable: unsafe extern "C" fn(u32) -> Status,
    pub(super) disable: unsafe extern "C" fn(u32) -> Status,
    pub(super) next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Status,
    pub(super) dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Status,
    pub(super) flush_all: unsafe extern "C" fn(u32) -> Status,
    pub(super) timestamp: unsafe extern "C" fn(*mut u64) -> Status,
    pub(super) callback_name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> Status,
    pub(super) thread_ids: unsafe extern "C" fn(u32) -> Status,
    pub(super) set_attribute: unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> Status,
    /// Available since CUDA 11.6. Without it the clocks are compared once.
    pub(super) register_clock: Option<unsafe extern "C" fn(Stamp) -> Status>,
}

/// A libcupti that the process has loaded.
pub(super) struct LoadedCupti {
    pub(super) cupti: Cupti,
    pub(super) version: u32,
    /// Its path; a bare name if the loader or the program found it.
    pub(super) path: String,
}

/// All paths to try, best first: already loaded, named by `RGPU_CUPTI`, beside libraries that the
/// program has loaded, in toolkits, known to the loader.
pub(super) fn places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = Vec::new();
    let mut add = |path: PathBuf| {
        if !places.contains(&path) {
            places.push(path);
        }
    };
    if let Some(given) = std::env::var_os(PATHS_VARIABLE) {
        std::env::split_paths(&given).filter(|path| path.is_absolute()).for_each(&mut add);
    }
    let mut folders = beside_loaded();
    folders.extend(toolkits());
    for folder in folders {
        let names = NAMES.iter().chain(&["libcupti.so"]);
        names.map(|name| folder.join(name)).filter(|path| path.exists()).for_each(&mut add);
    }
    NAMES.iter().map(PathBuf::from).for_each(add);
    places
}

/// Paths of libcupti relative to CUDA libraries that this process has loaded: in the same Python
/// environment or in the same toolkit.
fn beside_loaded() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut folders = Vec::new();
    for line in maps.lines() {
        let Some(at) = line.find('/') else { continue };
        let path = Path::new(&line[at..]);
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let ours = ["libcudart", "libtorch", "libcublas", "libnvrtc", "_C."];
        if !ours.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let packages =
            path.ancestors().find(|p| p.ends_with("site-packages") || p.ends_with("dist-packages"));
        let mut found = match (packages, path.parent()) {
            (Some(packages), _) => ["nvidia/cu13/lib", "nvidia/cuda_cupti/lib"]
                .map(|below| packages.join(below))
                .to_vec(),
            (None, Some(folder)) => {
                let above = folder.ancestors().skip(1).take(3);
                let toolkits = above.map(|folder| folder.join("extras/CUPTI/lib64"));
                std::iter::once(folder.to_owned()).chain(toolkits).collect()
            }
            (None, None) => Vec::new(),
        };
        found.retain(|folder| !folders.contains(folder));
        folders.extend(found);
    }
    folders
}

/// Toolkit folders: those that the environment names, then the usual ones, newest first.
fn toolkits() -> Vec<PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
    let mut roots: Vec<PathBuf> = named.map(PathBuf::from).collect();
    roots.push("/usr/local/cuda".into());
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/local")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|n| n.as_bytes().starts_with(b"cuda-")))
        .collect();
    versions.sort();
    roots.extend(versions.into_iter().rev());
    roots.into_iter().map(|root| root.join("extras/CUPTI/lib64")).collect()
}

/// The libcupti that the program has already loaded.
pub(super) fn loaded() -> Option<Result<LoadedCupti, String>> {
    NAMES.iter().find_map(|name| {
        let handle = dlopen(Path::new(name), libc::RTLD_NOW | libc::RTLD_NOLOAD).ok()?;
        Some(symbols(handle, name))
    })
}

/// Opens the libcupti at `path`.
pub(super) fn open(path: &Path) -> Result<LoadedCupti, String> {
    let handle = dlopen(path, libc::RTLD_NOW)?;
    symbols(handle, &path.to_string_lossy())
}

/// A library handle that is never closed.
#[derive(Clone, Copy)]
struct Handle(*mut c_void);

fn dlopen(path: &Path, flags: i32) -> Result<Handle, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "a NUL in a path")?;
    // SAFETY: `name` ends in NUL. The library's initialisers are outside our control.
    let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
    if !handle.is_null() {
        return Ok(Handle(handle));
    }
    // SAFETY: dlerror returns null or a string that lives until the next call of this thread.
    let error = unsafe { libc::dlerror() };
    // SAFETY: as above.
    let error = (!error.is_null()).then(|| unsafe { CStr::from_ptr(error) });
    Err(error.map_or("cannot be opened".to_owned(), |text| text.to_string_lossy().into_owned()))
}

fn symbols(handle: Handle, path: &str) -> Result<LoadedCupti, String> {
    /// # Safety
    /// `F` is the type of the function of that name in CUPTI's headers.
    unsafe fn get<F: Copy>(handle: Handle, name: &CStr) -> Result<F, String> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is open and the name ends in NUL.
        let symbol = unsafe { libc::dlsym(handle.0, name.as_ptr()) };
        if symbol.is_null() {
            Err(format!("has no `{}`", name.to_string_lossy()))
        } else {
            // SAFETY: `F` is as large as a pointer, and the caller guarantees its type.
            Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&symbol) })
        }
    }
    // SAFETY: the types of `Cupti` are those of cupti_activity.h, cupti_callbacks.h, cupti_result.h
    // and cupti_version.h of CUDA 12 and 13.
    let cupti = unsafe {
        Cupti {
            version: get(handle, c"cuptiGetVersion")?,
            result_text: get(handle, c"cuptiGetResultString")?,
            register_callbacks: get(handle, c"cuptiActivityRegisterCallbacks")?,
            enable: get(handle, c"cuptiActivityEnable")?,
            disable: get(handle, c"cuptiActivityDisable")?,
            next_record: get(handle, c"cuptiActivityGetNextRecord")?,
            dropped: get(handle, c"cuptiActivityGetNumDroppedRecords")?,
            flush_all: get(handle, c"cuptiActivityFlushAll")?,
            timestamp: get(handle, c"cuptiGetTimestamp")?,
            callback_name: get(handle, c"cuptiGetCallbackName")?,
            thread_ids: get(handle, c"cuptiSetThreadIdType")?,
            set_attribute: get(handle, c"cuptiActivitySetAttribute")?,
            register_clock: get(handle, c"cuptiActivityRegisterTimestampCallback").ok(),
        }
    };
    let mut version = 0;
    // SAFETY: a pointer to one number.
    cupti.check("cuptiGetVersion", unsafe { (cupti.version)(&mut version) })?;
    if !record::is_known(version) {
        return Err(format!(
            "has version {version}, whose record format the collector does not know"
        ));
    }
    Ok(LoadedCupti { cupti, version, path: path.to_owned() })
}

impl Cupti {
    /// Converts a call's status to an error with CUPTI's own text.
    pub(super) fn check(&self, call: &str, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: a pointer to one pointer, which CUPTI sets to a constant.
        let known = unsafe { (self.result_text)(status, &mut text) } == 0 && !text.is_null();
        // SAFETY: as above.
        let text = known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy());
        Err(format!("{call}: {} ({status})", text.as_deref().unwrap_or("failed")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_none_of_ours_is_refused_with_what_it_lacks() {
        let error = open(Path::new("libc.so.6")).err();
        assert_eq!(error.as_deref(), Some("has no `cuptiGetVersion`"));
        let error = open(Path::new("/nonexistent/libcupti.so.12")).err();
        assert!(error.is_some_and(|e| e.contains("libcupti.so.12")));
    }

    #[test]
    fn the_loaders_own_names_are_tried_last() {
        let places = places();
        assert_eq!(places.last().map(PathBuf::as_path), Some(Path::new("libcupti.so.12")));
    }
}
