//! Loads modules, finds kernels in them, and launches kernels through the driver API.

#![allow(unsafe_code)] // driver calls

use super::{Gpu, driver::call, symbols};
use crate::fault::{Fault, Result, bad_case};
use cudarc::driver::sys::{
    CUfunction, CUfunction_attribute, CUjit_option, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchAttributeValue, CUlaunchConfig, CUmodule,
};
use rgpu_case::{ErrorClass, LaunchShape};
use std::ffi::{CString, c_int, c_void};
use std::path::Path;

/// Size of the buffer for the log of the driver's PTX compiler.
const LOG_BYTES: usize = 16 * 1024;

/// Number of extra zero parameters passed after those of the input, in case the kernel takes more.
/// Needed only for drivers that cannot report the number of parameters.
const SPARE_PARAMETERS: usize = 64;

/// A loaded module. It is never unloaded: it lives as long as the process.
pub(crate) struct Module<'g> {
    gpu: &'g Gpu,
    module: CUmodule,
    symbols: Vec<String>,
}

/// A kernel, ready to launch.
pub(crate) struct Function<'g> {
    gpu: &'g Gpu,
    function: CUfunction,
    name: String,
}

impl<'g> Module<'g> {
    pub(crate) fn load(gpu: &'g Gpu, path: &Path) -> Result<Module<'g>> {
        let shown = path.display();
        let image = std::fs::read(path).map_err(|e| {
            Fault::new(ErrorClass::MissingFile, format!("cannot read the module `{shown}`: {e}"))
        })?;
        Module::from_image(gpu, image, &shown.to_string())
    }

    /// Loads PTX, a cubin or a fatbin; errors name it by `shown`.
    pub(crate) fn from_image(gpu: &'g Gpu, mut image: Vec<u8>, shown: &str) -> Result<Module<'g>> {
        let symbols = symbols::kernel_symbols(&image);
        image.push(0); // PTX must end with a NUL
        let mut module = std::ptr::null_mut();
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(LOG_BYTES)];
        // SAFETY: the image ends with a NUL, and the two options get the value kinds that cuda.h
        // asks for: a buffer, and its size in the pointer itself.
        let loaded = unsafe {
            call!(
                gpu.driver,
                cuModuleLoadDataEx(
                    &mut module,
                    image.as_ptr().cast(),
                    options.len() as u32,
                    options.as_mut_ptr(),
                    values.as_mut_ptr(),
                )
            )
        };
        loaded.map_err(|mut fault| {
            let compiler_log = log.split(|&byte| byte == 0).next().unwrap_or_default();
            let compiler_log = String::from_utf8_lossy(compiler_log);
            if !compiler_log.trim().is_empty() {
                fault.0.text +=
                    &format!("; the driver's compiler reports: {}", compiler_log.trim());
            }
            let [major, minor] = gpu.facts.compute_capability;
            fault.while_doing(format_args!("module `{shown}` on sm_{major}{minor}"))
        })?;
        Ok(Module { gpu, module, symbols })
    }

    /// Finds a kernel by its symbol, or by its name if only one kernel has that: with template
    /// arguments (`matmul<float, 16>`), or without.
    ///
    /// The symbols are searched first, because compute-sanitizer would report a failing driver
    /// call.
    pub(crate) fn function(&self, name: &str) -> Result<Function<'g>> {
        let named = |name: &str| {
            let function = self.get(name)?;
            Ok(Function { gpu: self.gpu, function, name: name.to_owned() })
        };
        if self.symbols.iter().any(|symbol| symbol == name) {
            return named(name);
        }
        match symbols::matching_symbols(&self.symbols, name).as_slice() {
            [only] => named(only),
            [] if self.symbols.is_empty() => {
                named(name).map_err(|fault| fault.while_doing(format_args!("kernel `{name}`")))
            }
            [] => named(name).map_err(|fault| {
                let there = list(&self.symbols);
                fault.while_doing(format_args!("kernel `{name}` (the module has {there})"))
            }),
            several => Err(bad_case(format!(
                "kernel `{name}` is ambiguous; use one of these symbols: {}",
                list(several)
            ))),
        }
    }

    fn get(&self, name: &str) -> Result<CUfunction> {
        let name = CString::new(name).map_err(|_| bad_case("a kernel name contains a NUL"))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded, and the name is a C string.
        unsafe {
            call!(self.gpu.driver, cuModuleGetFunction(&mut function, self.module, name.as_ptr()))?;
        }
        Ok(function)
    }
}

fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(8).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > shown.len() { ", …" } else { "" };
    shown.join(", ") + more
}

/// Whether driver calls that are expected to fail may be made: compute-sanitizer reports each one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedFailures {
    /// No tool observes the program.
    Allowed,
    /// compute-sanitizer reports every failing call of the program it runs.
    Forbidden,
}

/// Parameter values of a kernel.
pub(crate) struct KernelArgs {
    _values: Vec<Vec<u64>>,
    _spare: Box<[u64; 512]>,
    pointers: Vec<*mut c_void>,
    parameters: Vec<Parameter>,
}

/// A parameter of the kernel, as the arguments make it.
struct Parameter {
    name: String,
    bytes: usize,
    is_structure: bool,
}

impl KernelArgs {
    /// Takes (name, size in bytes, little-endian value) for each argument: a device pointer or a
    /// scalar. Those named `p.x`, `p.y` are the members of the structure `p`, which is one
    /// parameter.
    pub(crate) fn new(arguments: Vec<(String, usize, u64)>) -> KernelArgs {
        let mut parameters: Vec<Parameter> = Vec::new();
        let mut values: Vec<Vec<u64>> = Vec::new();
        for (name, bytes, value) in arguments {
            let Some((structure, _)) = name.split_once('.') else {
                parameters.push(Parameter { name, bytes, is_structure: false });
                values.push(vec![value]);
                continue;
            };
            if parameters.last().is_none_or(|last| last.name != structure) {
                let name = structure.to_owned();
                parameters.push(Parameter { name, bytes: 0, is_structure: true });
                values.push(Vec::new());
            }
            if let (Some(parameter), Some(words)) = (parameters.last_mut(), values.last_mut()) {
                parameter.add_member(words, bytes, value);
            }
        }
        // The driver may copy up to 16 bytes more, where a member is aligned so.
        values.iter_mut().for_each(|words| words.resize(words.len() + 2, 0));
        // As large as the largest kernel parameter, in case the driver copies from it.
        let mut spare = Box::new([0u64; 512]);
        // The buffers do not move with the vectors.
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
        pointers.extend(std::iter::repeat_n(spare.as_mut_ptr().cast(), SPARE_PARAMETERS));
        KernelArgs { _values: values, _spare: spare, pointers, parameters }
    }
}

impl Parameter {
    /// Lays out one more member of a structure, of at most 8 bytes, behind the others.
    fn add_member(&mut self, words: &mut Vec<u64>, bytes: usize, value: u64) {
        let start = self.bytes.next_multiple_of(bytes.max(1));
        self.bytes = start + bytes;
        words.resize(self.bytes.div_ceil(8), 0);
        // At a multiple of its size it lies in one word.
        if let Some(word) = words.get_mut(start / 8) {
            let bits = u64::MAX >> (64 - 8 * bytes.clamp(1, 8));
            *word |= (value & bits) << (8 * (start % 8));
        }
    }

    /// Whether a kernel's parameter of so many bytes can be this one. A structure may be larger
    /// than its members, by the alignment of a vector type at most.
    fn has_bytes(&self, taken: usize) -> bool {
        let most = if self.is_structure { self.bytes + 15 } else { self.bytes };
        (self.bytes..=most).contains(&taken)
    }
}

impl Function<'_> {
    /// Refuses arguments that the kernel does not take, and a launch that cannot work, with a
    /// clearer message than a bare `CUDA_ERROR_INVALID_VALUE`. Raises the limits that the launch
    /// needs.
    pub(crate) fn prepare(
        &self,
        launch: &LaunchShape,
        args: &KernelArgs,
        expected_failures: ExpectedFailures,
    ) -> Result<()> {
        self.check_parameters(args, expected_failures)?;
        let refused = |text: String| {
            Fault::new(ErrorClass::Launch, format!("kernel `{}`: {text}", self.name))
        };
        let shape = launch.grid.iter().chain(&launch.block).chain(launch.cluster.iter().flatten());
        if shape.clone().any(|&n| n == 0) {
            return Err(refused("a grid, block or cluster extent is 0".into()));
        }
        use CUfunction_attribute::*;
        let threads: u64 = launch.block.iter().map(|&n| u64::from(n)).product();
        let most = self.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        if threads > u64::from(most) {
            return Err(refused(format!(
                "{threads} threads in a block, but it allows only {most}"
            )));
        }
        if launch.dynamic_shared > 0 {
            let fixed = self.attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
            let room = self.gpu.shared_limit.saturating_sub(fixed);
            let requested = launch.dynamic_shared;
            if requested > room {
                return Err(refused(format!(
                    "{requested} bytes of dynamic shared memory, but this GPU leaves it {room}"
                )));
            }
            self.set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, requested as c_int)?;
        }
        if let Some(cluster) = launch.cluster {
            if self.gpu.driver.cuLaunchKernelEx.is_none() {
                return Err(refused("clusters need driver 520 (CUDA 11.8) or newer".into()));
            }
            for axis in 0..3 {
                if !launch.grid[axis].is_multiple_of(cluster[axis]) {
                    let (grid, cluster) = (launch.grid, cluster);
                    return Err(refused(format!("grid {grid:?} is not a multiple of {cluster:?}")));
                }
            }
            if cluster.iter().product::<u32>() > 8 {
                self.set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
            }
        }
        Ok(())
    }

    /// Enqueues a launch and returns without waiting for it.
    pub(crate) fn launch(&self, launch: &LaunchShape, args: &KernelArgs) -> Result<()> {
        let Gpu { driver, stream, .. } = *self.gpu;
        let [gx, gy, gz] = launch.grid;
        let [bx, by, bz] = launch.block;
        let shared = launch.dynamic_shared;
        let parameters = args.pointers.as_ptr().cast_mut();
        let none = std::ptr::null_mut();
        let Some(([cx, cy, cz], launch_ex)) = launch.cluster.zip(driver.cuLaunchKernelEx) else {
            // SAFETY: `parameters` has a live 8-byte value for each parameter (`check_parameters`),
            // which the driver copies before it returns.
            return unsafe {
                call!(
                    driver,
                    cuLaunchKernel(
                        self.function,
                        gx,
                        gy,
                        gz,
                        bx,
                        by,
                        bz,
                        shared,
                        stream,
                        parameters,
                        none
                    )
                )
            };
        };
        // SAFETY: all-zero bytes are a valid value of this union of plain numbers and pointers.
        let mut value: CUlaunchAttributeValue = unsafe { std::mem::zeroed() };
        value.clusterDim.x = cx;
        value.clusterDim.y = cy;
        value.clusterDim.z = cz;
        let mut attribute = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            pad: [0; 4],
            value,
        };
        let config = CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: shared,
            hStream: stream,
            attrs: &mut attribute,
            numAttrs: 1,
        };
        // SAFETY: as above; config and attribute live until the call returns.
        let code = unsafe { launch_ex(&config, self.function, parameters, none) };
        driver.check("cuLaunchKernelEx", code)
    }

    /// Checks number and sizes of the parameters, where the driver can report them (12.4 or newer).
    fn check_parameters(
        &self,
        args: &KernelArgs,
        expected_failures: ExpectedFailures,
    ) -> Result<()> {
        let Some(info) = self.gpu.driver.cuFuncGetParamInfo else { return Ok(()) };
        let most = match expected_failures {
            ExpectedFailures::Forbidden => args.parameters.len(),
            ExpectedFailures::Allowed => usize::MAX,
        };
        let mut takes = Vec::new();
        while takes.len() < most {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: both are live locals; an index beyond the last gives an error.
            if unsafe { info(self.function, takes.len(), &mut offset, &mut size) } != 0 {
                break;
            }
            takes.push(size);
        }
        let kernel = &self.name;
        if takes.len() != args.parameters.len() {
            return Err(bad_case(format!(
                "kernel `{kernel}` takes {} parameters, the case has {} arguments",
                takes.len(),
                args.parameters.len()
            )));
        }
        for (i, (taken, given)) in takes.iter().zip(&args.parameters).enumerate() {
            if !given.has_bytes(*taken) {
                return Err(bad_case(format!(
                    "parameter {i} of kernel `{kernel}` has {taken} bytes, but argument `{}` \
                     has {}",
                    given.name, given.bytes
                )));
            }
        }
        Ok(())
    }

    fn attribute(&self, which: CUfunction_attribute) -> Result<u32> {
        let mut value = 0;
        // SAFETY: `value` is a live local.
        unsafe { call!(self.gpu.driver, cuFuncGetAttribute(&mut value, which, self.function))? };
        Ok(u32::try_from(value).unwrap_or(0))
    }

    fn set(&self, which: CUfunction_attribute, value: c_int) -> Result<()> {
        // SAFETY: the function belongs to a loaded module.
        unsafe { call!(self.gpu.driver, cuFuncSetAttribute(self.function, which, value)) }
            .map_err(|fault| fault.with_class(ErrorClass::Launch))
    }
}
