//! A GPU with its context, a stream and the NVRTC compiler.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream};
use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};

use crate::Result;

/// A CUDA device that this process uses.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// The GPU's primary context, current on this thread.
    pub context: Arc<CudaContext>,
    /// A stream of this value's own.
    pub stream: Arc<CudaStream>,
}

impl Gpu {
    /// Opens the first GPU that this process may use.
    ///
    /// # Errors
    /// There is no driver or no GPU.
    pub fn new() -> Result<Self> {
        Self::nth(0)
    }

    /// Opens the GPU with this index.
    ///
    /// # Errors
    /// There is no driver or no such GPU.
    pub fn nth(index: usize) -> Result<Self> {
        // SAFETY: it only looks for the library, without which cudarc would panic.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err("this machine has no CUDA driver (libcuda.so.1)".into());
        }
        let context = CudaContext::new(index)?;
        let stream = context.new_stream()?;
        Ok(Self { context, stream })
    }

    /// Compiles CUDA C++ with NVRTC for this GPU and loads it.
    ///
    /// # Errors
    /// NVRTC is missing, or the source does not compile; then the error is the compiler's log.
    pub fn compile(&self, source: &str) -> Result<Arc<CudaModule>> {
        self.compile_with(source, &[])
    }

    /// Like [`Gpu::compile`], with more options for NVRTC.
    ///
    /// # Errors
    /// As [`Gpu::compile`].
    pub fn compile_with(&self, source: &str, options: &[&str]) -> Result<Arc<CudaModule>> {
        // SAFETY: as above.
        if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
            return Err("this machine has no NVRTC (libnvrtc.so)".into());
        }
        let (major, minor) = self.context.compute_capability()?;
        let mut all = vec![format!("--gpu-architecture=compute_{major}{minor}")];
        all.push("-lineinfo".to_owned());
        all.extend(options.iter().map(|option| (*option).to_owned()));
        let options = CompileOptions { options: all, ..CompileOptions::default() };
        match compile_ptx_with_opts(source, options) {
            Ok(ptx) => Ok(self.context.load_module(ptx)?),
            Err(CompileError::CompileError { log, .. }) => {
                Err(log.to_string_lossy().trim_end_matches('\0').to_owned().into())
            }
            Err(error) => Err(format!("NVRTC failed: {error:?}").into()),
        }
    }

    /// Compiles a source and returns one of its kernels.
    ///
    /// # Errors
    /// As for [`Gpu::compile`], and if there is no kernel of that name.
    pub fn kernel(&self, source: &str, name: &str) -> Result<CudaFunction> {
        Ok(self.compile(source)?.load_function(name)?)
    }
}
