//! Installs NVRTC, nvdisasm and CUDA's headers in `.rgpu/cuda`, for machines without a CUDA
//! toolkit. It is a Python environment with NVIDIA's wheels, pinned by hash, with the layout of a
//! toolkit (`bin/nvdisasm`, `lib/libnvrtc.so.13`, `include/`), so that other code need not know
//! about wheels.

use crate::command::CommandError;
use crate::environment;
use crate::packages::{self, PackageError};
use crate::workspace::Workspace;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The Python environment, relative to the repository.
const ENVIRONMENT: &str = ".rgpu/cuda";
/// The wheel list, relative to the repository.
const WHEELS: &str = "wheels/src/cuda.txt";
/// A copy of the wheel list in the environment, written last.
const INSTALLED_LIST: &str = "rgpu-wheels.txt";

/// The environment could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CudaError {
    /// A package of the system, such as Python, is missing.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// venv, pip or uv failed.
    #[error(
        "NVIDIA's wheels could not be installed\n  help: `--no-cuda` skips them; kernels then \
         compile on the GPU host only"
    )]
    Wheels(#[source] CommandError),
    /// The environment does not have the expected layout.
    #[error("`{}` cannot be laid out", path.display())]
    Layout { path: PathBuf, source: io::Error },
}

/// Whether no toolkit is installed and `.rgpu/cuda` is missing or old. The system's packages that
/// `install` needs are then there.
pub(crate) fn is_needed(workspace: &Workspace) -> Result<bool, CudaError> {
    if let Some(nvcc) = installed_nvcc() {
        eprintln!("CUDA toolkit: {}", nvcc.display());
        return Ok(false);
    }
    let wheels = workspace.root.join(WHEELS);
    let wanted = fs::read(&wheels).map_err(at(&wheels))?;
    let done = workspace.root.join(ENVIRONMENT).join(INSTALLED_LIST);
    if fs::read(&done).is_ok_and(|made_from| made_from == wanted) {
        return Ok(false);
    }
    packages::for_wheels()?;
    Ok(true)
}

/// Creates `.rgpu/cuda`.
pub(crate) fn install(workspace: &Workspace) -> Result<(), CudaError> {
    let environment = workspace.root.join(ENVIRONMENT);
    let wheels = workspace.root.join(WHEELS);
    let wanted = fs::read(&wheels).map_err(at(&wheels))?;
    if environment.exists() {
        fs::remove_dir_all(&environment).map_err(at(&environment))?;
    }
    environment::create(&environment, &wheels).map_err(CudaError::Wheels)?;
    lay_out(&environment).map_err(at(&environment))?;
    let done = environment.join(INSTALLED_LIST);
    fs::write(&done, &wanted).map_err(at(&done))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> CudaError {
    let path = path.to_owned();
    move |source| CudaError::Layout { path, source }
}

/// `nvcc` of an installed toolkit.
fn installed_nvcc() -> Option<PathBuf> {
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
    let homes = homes.map(PathBuf::from).chain([PathBuf::from("/usr/local/cuda")]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = homes.map(|home| home.join("bin")).chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join("nvcc")).find(|nvcc| nvcc.is_file())
}

/// Creates links to the wheels' files where a toolkit has them. The links are relative, since the
/// repository may move.
fn lay_out(environment: &Path) -> io::Result<()> {
    let toolkit = wheel_folder(environment)?;
    for folder in ["bin", "lib"] {
        for entry in fs::read_dir(environment.join(&toolkit).join(folder))? {
            let name = entry?.file_name();
            let target = Path::new("..").join(&toolkit).join(folder).join(&name);
            symlink(target, environment.join(folder).join(&name))?;
        }
    }
    // venv leaves its own folder for headers, empty or with an empty one inside.
    let include = environment.join("include");
    if include.exists() {
        fs::remove_dir_all(&include)?;
    }
    symlink(toolkit.join("include"), include)
}

/// The folder that all CUDA 13 wheels share, relative to the environment.
fn wheel_folder(environment: &Path) -> io::Result<PathBuf> {
    for entry in fs::read_dir(environment.join("lib"))? {
        let name = entry?.file_name();
        let folder = Path::new("lib").join(name).join("site-packages/nvidia/cu13");
        if environment.join(&folder).is_dir() {
            return Ok(folder);
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "the wheels left no folder `nvidia/cu13`"))
}
