//! Loads and calls the user's shared libraries: references and host entries. A reference computes
//! the expected outputs. A host entry is a library that launches the kernel itself.

#![allow(unsafe_code)] // calls into libraries whose signatures are declared only in `rgpu.h`

use crate::abi::{AbiCase, RawCase};
use crate::fault::{Fault, Result, loader_text};
use crate::python_reference::PythonReference;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use rgpu_case::{ErrorClass, HostFunction};
use std::ffi::{c_int, c_void};
use std::path::Path;

type ReferenceFn = unsafe extern "C" fn(*const RawCase) -> c_int;
type PrepareFn = unsafe extern "C" fn(*const RawCase, *mut *mut c_void) -> c_int;
type LaunchFn = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type RefreshFn = unsafe extern "C" fn(*mut c_void) -> c_int;
type FinishFn = unsafe extern "C" fn(*mut c_void);
type DeviceReferenceFn = unsafe extern "C" fn(*const RawCase, *mut c_void) -> c_int;

/// A reference that runs on the CPU.
pub(crate) enum HostReference {
    Library(ReferenceLibrary),
    Python(PythonReference),
}

impl HostReference {
    pub(crate) fn open(function: &HostFunction, folder: &Path) -> Result<HostReference> {
        if function.is_python() {
            return Ok(HostReference::Python(PythonReference::new(function, folder)));
        }
        ReferenceLibrary::open(function, folder).map(HostReference::Library)
    }
}

/// A shared library with a reference function.
pub(crate) struct ReferenceLibrary {
    call: ReferenceFn,
    name: String,
    _library: Library,
}

impl ReferenceLibrary {
    fn open(function: &HostFunction, folder: &Path) -> Result<ReferenceLibrary> {
        let library = open(&folder.join(&function.library))?;
        let name = function.function.clone();
        // SAFETY: `rgpu.h` declares this signature for a reference.
        let call = unsafe { symbol::<ReferenceFn>(&library, &function.library, &name)? };
        Ok(ReferenceLibrary { call: *call, name, _library: library })
    }

    /// Runs the reference on host pointers.
    pub(crate) fn run(&self, case: &AbiCase) -> Result<()> {
        // SAFETY: the case and its buffers live until the call returns, and are laid out as
        // `rgpu.h` states. The rest is the user's code.
        let status = unsafe { (self.call)(case.as_ptr()) };
        match status {
            0 => Ok(()),
            code => {
                let text = format!("the reference `{}` returned {code}", self.name);
                Err(Fault::new(ErrorClass::Reference, text).at_call(&self.name, code.into()))
            }
        }
    }
}

/// A loaded reference that runs on the GPU.
pub(crate) struct DeviceReferenceLibrary {
    call: DeviceReferenceFn,
    name: String,
    _library: Library,
}

impl DeviceReferenceLibrary {
    pub(crate) fn open(path: &str, name: &str, folder: &Path) -> Result<DeviceReferenceLibrary> {
        let library = open(&folder.join(path))?;
        // SAFETY: `rgpu.h` declares this signature for a device reference.
        let call = *unsafe { symbol::<DeviceReferenceFn>(&library, path, name)? };
        Ok(DeviceReferenceLibrary { call, name: name.to_owned(), _library: library })
    }

    /// Enqueues the reference on a `CUstream`, with device pointers.
    pub(crate) fn run(&self, case: &AbiCase, stream: *mut c_void) -> Result<()> {
        // SAFETY: as for a host reference; the device buffers live until the caller has
        // synchronised the stream.
        match unsafe { (self.call)(case.as_ptr(), stream) } {
            0 => Ok(()),
            code => {
                let text = format!("the reference `{}` returned {code}", self.name);
                Err(Fault::new(ErrorClass::Reference, text).at_call(&self.name, code.into()))
            }
        }
    }
}

/// A loaded host entry: `rgpu_prepare`, `rgpu_launch`, `rgpu_finish` and, optionally,
/// `rgpu_refresh`.
pub(crate) struct EntryLibrary {
    prepare: PrepareFn,
    launch: LaunchFn,
    refresh: Option<RefreshFn>,
    finish: FinishFn,
    _library: Library,
}

impl EntryLibrary {
    pub(crate) fn open(path: &str, folder: &Path) -> Result<EntryLibrary> {
        let library = open(&folder.join(path))?;
        // SAFETY: `rgpu.h` declares these signatures for the four functions.
        unsafe {
            let prepare = *symbol::<PrepareFn>(&library, path, "rgpu_prepare")?;
            let launch = *symbol::<LaunchFn>(&library, path, "rgpu_launch")?;
            let finish = *symbol::<FinishFn>(&library, path, "rgpu_finish")?;
            let refresh = library.get::<RefreshFn>("rgpu_refresh").ok().map(|symbol| *symbol);
            Ok(EntryLibrary { prepare, launch, refresh, finish, _library: library })
        }
    }

    /// Runs `rgpu_prepare` on device pointers. The case must outlive the state, so [`EntryState`]
    /// owns it.
    pub(crate) fn prepare(&self, case: AbiCase) -> Result<EntryState<'_>> {
        let mut state = std::ptr::null_mut();
        // SAFETY: the case lives until `rgpu_finish` has returned (`EntryState` owns it).
        let status = unsafe { (self.prepare)(case.as_ptr(), &mut state) };
        match status {
            0 => Ok(EntryState { library: self, state, _case: case }),
            code => Err(entry_fault("rgpu_prepare", code)),
        }
    }
}

/// The state that `rgpu_prepare` returned; dropping it calls `rgpu_finish`.
pub(crate) struct EntryState<'a> {
    library: &'a EntryLibrary,
    state: *mut c_void,
    _case: AbiCase,
}

impl EntryState<'_> {
    /// Runs `rgpu_launch` on a `CUstream`.
    pub(crate) fn launch(&self, stream: *mut c_void) -> Result<()> {
        // SAFETY: the state comes from this library's `rgpu_prepare`, and the stream is alive.
        match unsafe { (self.library.launch)(self.state, stream) } {
            0 => Ok(()),
            code => Err(entry_fault("rgpu_launch", code)),
        }
    }

    /// Whether the library has an `rgpu_refresh`.
    pub(crate) fn can_refresh(&self) -> bool {
        self.library.refresh.is_some()
    }

    /// Runs `rgpu_refresh`, if the library has it.
    pub(crate) fn refresh(&self) -> Result<()> {
        // SAFETY: the state comes from this library's `rgpu_prepare`.
        match self.library.refresh.map_or(0, |refresh| unsafe { refresh(self.state) }) {
            0 => Ok(()),
            code => Err(entry_fault("rgpu_refresh", code)),
        }
    }
}

impl Drop for EntryState<'_> {
    fn drop(&mut self) {
        // SAFETY: called once, with the state that `rgpu_prepare` gave.
        unsafe { (self.library.finish)(self.state) }
    }
}

fn entry_fault(call: &str, code: c_int) -> Fault {
    let text = format!("`{call}` returned {code}");
    Fault::new(ErrorClass::HostEntry, text).at_call(call, code.into())
}

fn open(path: &Path) -> Result<Library> {
    if !path.exists() {
        let text = format!("the library `{}` is missing", path.display());
        return Err(Fault::new(ErrorClass::MissingFile, text));
    }
    // SAFETY: its initialisers are the user's code, which the user asked to run. RTLD_LOCAL
    // separates two libraries that both define `rgpu_reference`; RTLD_NOW reports unresolved
    // symbols here and not during a launch.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|e| {
        let text = format!("cannot load the library `{}`: {}", path.display(), loader_text(&e));
        Fault::new(ErrorClass::Load, text)
    })
}

/// # Safety
/// `T` must be the type that the library gives the symbol.
unsafe fn symbol<T>(library: &Library, path: &str, name: &str) -> Result<Symbol<T>> {
    // SAFETY: the caller vouches for the type.
    unsafe { library.get::<T>(name) }.map_err(|_| {
        let text = format!("the library `{path}` has no function `{name}` (is it `extern \"C\"`?)");
        Fault::new(ErrorClass::Load, text)
    })
}
