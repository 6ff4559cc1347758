//! The shared state of GPU jobs: the device, the kernel or host library to run, and a case in
//! device memory.

use crate::abi::AbiCase;
use crate::cuda::{Buffer, Driver, ExpectedFailures, Function, Gpu, KernelArgs, Module};
use crate::fault::{Fault, Result, bad_case};
use crate::host_case::HostCase;
use crate::host_memory::HostBuffer;
use crate::host_warnings;
use crate::input::Input;
use crate::library::{EntryLibrary, EntryState};
use crate::nvml::Nvml;
use crate::poison::Poison;
use crate::report_writer::ReportWriter;
use rgpu_case::{Case, EntryPoint, ErrorClass, LaunchShape, Phase, Role};
use std::ffi::c_void;
use std::rc::Rc;
use std::time::Instant;

/// An open device, with the input and the report writer of the job.
pub(crate) struct Session<'a> {
    pub(crate) input: &'a Input,
    pub(crate) report: &'a ReportWriter,
    pub(crate) gpu: Gpu,
    pub(crate) nvml: Option<Nvml>,
}

impl<'a> Session<'a> {
    /// Opens driver and device, and checks the GPU before we create a context on it.
    pub(crate) fn open(input: &'a Input, report: &'a ReportWriter) -> Result<Session<'a>> {
        let _ranges = report.enter_phase(Phase::Setup, None)?;
        let mut found = Gpu::find(Driver::open()?)?;
        let nvml = Nvml::open(&found.facts.uuid).map_err(|text| report.add_gap(text)).ok();
        if let Some(nvml) = &nvml {
            found.facts.driver = nvml.driver_version();
            if nvml.mig {
                // CUDA gives a MIG instance a UUID that begins with `GPU-`.
                found.facts.uuid = found.facts.uuid.replacen("GPU-", "MIG-", 1);
            }
            let others = nvml.other_processes();
            if others.is_none() {
                report.add_gap("NVML does not report which processes use the GPU");
            }
            let facts = host_warnings::GpuFacts {
                mig: nvml.mig,
                is_virtual: nvml.is_virtual(),
                power_limits: nvml.power_limits(),
                other_processes: others.unwrap_or_default(),
            };
            for warning in host_warnings::warnings_before_launch(&facts) {
                report.add_warning(warning);
            }
        }
        report.set_device(found.facts.clone());
        Ok(Session { input, report, gpu: found.open()?, nvml })
    }

    /// Fails if there has been a warning about the host. For `--strict`.
    pub(crate) fn refuse_if_unfit(&self) -> Result<()> {
        let warnings = self.report.warnings();
        if warnings.is_empty() {
            return Ok(());
        }
        let texts: Vec<&str> = warnings.iter().map(|warning| warning.text.as_str()).collect();
        let text = format!("the host is not suitable for measurements: {}", texts.join("; "));
        Err(Fault::new(ErrorClass::HostUnfit, text))
    }

    pub(crate) fn load_own_target(&self) -> Result<LaunchTarget<'_>> {
        self.load_target(self.input)
    }

    /// Loads the kernel or host library of an input into this device's context.
    pub(crate) fn load_target(&self, input: &Input) -> Result<LaunchTarget<'_>> {
        let _ranges = self.report.enter_phase(Phase::Setup, None)?;
        let folder = &input.folder;
        Ok(match &input.spec.entry {
            EntryPoint::Device { module, function } => {
                let module = Module::load(&self.gpu, &folder.join(module))?;
                LaunchTarget::Device(module.function(function)?)
            }
            EntryPoint::Host { library } => {
                LaunchTarget::Host(EntryLibrary::open(library, folder)?)
            }
            // `input::read` refuses a Python entry.
            EntryPoint::Python(_) => return Err(bad_case("the runner cannot run Python")),
        })
    }

    /// Generates a case in host memory.
    pub(crate) fn generate_case<'s>(&self, case: &'s Case) -> Result<HostCase<'s>> {
        HostCase::generate(case, self.input.spec.seed, &self.input.folder)
    }
}

/// The kernel or host library to run, loaded.
pub(crate) enum LaunchTarget<'g> {
    Device(Function<'g>),
    Host(EntryLibrary),
}

/// A target bound to a case in device memory.
pub(crate) enum PreparedTarget<'t> {
    Device { function: &'t Function<'t>, launch: LaunchShape, args: KernelArgs },
    Host { state: EntryState<'t>, gpu: &'t Gpu },
}

impl<'t> LaunchTarget<'t> {
    /// Binds the target. Also returns the nanoseconds of `rgpu_prepare`; `None` for a kernel.
    pub(crate) fn prepare(
        &'t self,
        gpu: &'t Gpu,
        device: &DeviceCase<'_>,
        expected_failures: ExpectedFailures,
    ) -> Result<(PreparedTarget<'t>, Option<f64>)> {
        match self {
            LaunchTarget::Device(function) => {
                let launch = device.host.case.launch.as_ref();
                Ok((bind_kernel(function, launch, device, expected_failures)?, None))
            }
            LaunchTarget::Host(library) => {
                let case = AbiCase::new(device.host.case, &device.addresses());
                gpu.synchronize()?;
                let start = Instant::now();
                let state = library.prepare(case)?;
                gpu.synchronize()?;
                let ns = start.elapsed().as_nanos() as f64;
                Ok((PreparedTarget::Host { state, gpu }, Some(ns)))
            }
        }
    }
}

/// Binds a kernel to a case.
pub(crate) fn bind_kernel<'t>(
    function: &'t Function<'t>,
    launch: Option<&LaunchShape>,
    device: &DeviceCase<'_>,
    expected_failures: ExpectedFailures,
) -> Result<PreparedTarget<'t>> {
    let launch = launch.ok_or_else(|| bad_case("a kernel needs grid and block sizes"))?.clone();
    let args = device.kernel_args();
    function.prepare(&launch, &args, expected_failures)?;
    Ok(PreparedTarget::Device { function, launch, args })
}

impl PreparedTarget<'_> {
    /// Tells a host entry that the tensors have new contents, once the GPU is idle. Returns false
    /// if it has no function for that and must be prepared again.
    pub(crate) fn refresh(&self) -> Result<bool> {
        match self {
            PreparedTarget::Device { .. } => Ok(true),
            PreparedTarget::Host { state, gpu } => {
                if !state.can_refresh() {
                    return Ok(false);
                }
                gpu.synchronize()?;
                state.refresh()?;
                gpu.synchronize()?;
                Ok(true)
            }
        }
    }

    /// Enqueues one launch and returns without waiting for it.
    pub(crate) fn launch(&self) -> Result<()> {
        match self {
            PreparedTarget::Device { function, launch, args } => function.launch(launch, args),
            PreparedTarget::Host { state, gpu } => {
                state.launch(gpu.stream.cast()).map_err(|fault| {
                    // If the GPU has faulted meanwhile, the entry's own status says little.
                    match gpu.synchronize() {
                        Err(cuda) => cuda.while_doing(&fault.0.text),
                        Ok(()) => fault,
                    }
                })
            }
        }
    }
}

/// A case in device memory.
pub(crate) struct DeviceCase<'a> {
    pub(crate) host: &'a HostCase<'a>,
    /// One per argument. Absent for scalars.
    buffers: Rc<[Option<Buffer<'a>>]>,
    /// Initial contents of `inout` tensors, so that they can be restored without a copy from the
    /// host.
    pristine: Rc<[Option<Buffer<'a>>]>,
}

impl<'a> DeviceCase<'a> {
    /// Allocates the tensors with `guard_bytes` on both sides of each. Their contents are
    /// undefined.
    pub(crate) fn new(
        gpu: &'a Gpu,
        host: &'a HostCase<'a>,
        guard_bytes: usize,
    ) -> Result<DeviceCase<'a>> {
        let mut buffers = Vec::new();
        let mut pristine = Vec::new();
        for arg in &host.args {
            let is_tensor = arg.spec.role != Role::Scalar;
            let allocate = |guard_bytes| {
                Buffer::new(gpu, arg.size_bytes(), guard_bytes).map_err(|fault| {
                    fault.while_doing(format_args!("argument `{}`", arg.spec.name))
                })
            };
            let tensor = is_tensor.then(|| allocate(guard_bytes)).transpose()?;
            let pristine_buffer =
                (arg.spec.role == Role::InOut).then(|| allocate(0)).transpose()?;
            if let (Some(pristine_buffer), Some(initial)) = (&pristine_buffer, &arg.initial) {
                pristine_buffer.upload(initial.bytes())?;
            }
            buffers.push(tensor);
            pristine.push(pristine_buffer);
        }
        Ok(DeviceCase { host, buffers: buffers.into(), pristine: pristine.into() })
    }

    /// The same device memory for another case with the same contents.
    pub(crate) fn share_memory_with(&self, host: &'a HostCase<'a>) -> DeviceCase<'a> {
        DeviceCase { host, buffers: Rc::clone(&self.buffers), pristine: Rc::clone(&self.pristine) }
    }

    /// Fills inputs and leaves outputs uninitialised: poison is a write, after which initcheck
    /// would treat the outputs as initialised.
    pub(crate) fn fill_inputs(&self) -> Result<()> {
        for (arg, buffer) in self.host.args.iter().zip(self.buffers.iter()) {
            if let (Some(buffer), Some(initial)) = (buffer, &arg.initial) {
                buffer.upload(initial.bytes())?;
            }
        }
        Ok(())
    }

    /// Fills inputs and poisons outputs.
    pub(crate) fn fill_and_poison(&self, poison: Poison) -> Result<()> {
        for (arg, buffer) in self.host.args.iter().zip(self.buffers.iter()) {
            match (buffer, &arg.initial) {
                (Some(buffer), Some(initial)) => buffer.upload(initial.bytes())?,
                (Some(buffer), None) => buffer.upload(arg.before_launch(poison)?.bytes())?,
                (None, _) => {}
            }
        }
        Ok(())
    }

    /// Enqueues the copies that restore the initial contents of `inout` tensors.
    pub(crate) fn restore_inout(&self) -> Result<()> {
        for (buffer, pristine) in self.buffers.iter().zip(self.pristine.iter()) {
            if let (Some(buffer), Some(pristine)) = (buffer, pristine) {
                buffer.copy_from(pristine)?;
            }
        }
        Ok(())
    }

    /// Enqueues filling `out` tensors with the first poison pattern.
    pub(crate) fn enqueue_poison(&self) -> Result<()> {
        for (i, buffer) in self.tensors() {
            let arg = self.host.args[i].spec;
            if arg.role == Role::Out {
                buffer.memset(Poison::first_byte(arg.dtype))?;
            }
        }
        Ok(())
    }

    /// The buffer for new contents of an input: the one it is restored from before each launch, if
    /// any.
    pub(crate) fn input_buffer(&self, index: usize) -> Option<&Buffer<'a>> {
        let pristine = self.pristine.get(index)?.as_ref();
        pristine.or(self.buffers.get(index)?.as_ref())
    }

    /// All tensors with their argument index.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (usize, &Buffer<'a>)> {
        let indexed = self.buffers.iter().enumerate();
        indexed.filter_map(|(i, buffer)| Some((i, buffer.as_ref()?)))
    }

    /// Reads the outputs back. Absent for other arguments.
    pub(crate) fn download_outputs(&self) -> Result<Vec<Option<HostBuffer>>> {
        let read = |(i, buffer): (usize, &Option<Buffer<'a>>)| match buffer {
            Some(buffer) if self.host.args[i].spec.role.is_output() => {
                let mut bytes = HostBuffer::new(buffer.size())?;
                buffer.download(bytes.bytes_mut())?;
                Ok(Some(bytes))
            }
            _ => Ok(None),
        };
        self.buffers.iter().enumerate().map(read).collect()
    }

    /// The `in` tensors whose contents changed: index, first changed byte and number of changed
    /// bytes.
    pub(crate) fn changed_inputs(&self) -> Result<Vec<(usize, usize, usize)>> {
        let mut changed = Vec::new();
        for (i, buffer) in self.tensors() {
            let arg = &self.host.args[i];
            let (Role::In, Some(initial)) = (arg.spec.role, &arg.initial) else { continue };
            let mut now = HostBuffer::new(buffer.size())?;
            buffer.download(now.bytes_mut())?;
            if now.bytes() == initial.bytes() {
                continue;
            }
            let pairs = now.bytes().iter().zip(initial.bytes());
            let mut differing = pairs.enumerate().filter(|(_, (a, b))| a != b).map(|(i, _)| i);
            let first = differing.next().unwrap_or(0);
            changed.push((i, first, 1 + differing.count()));
        }
        Ok(changed)
    }

    /// Device pointers of tensors and host pointers of scalars, as the host-entry ABI requires.
    pub(crate) fn addresses(&self) -> Vec<*mut c_void> {
        let address = |(i, buffer): (usize, &Option<Buffer<'_>>)| match buffer {
            // A device address: only the GPU dereferences it.
            Some(buffer) => std::ptr::without_provenance_mut(buffer.address() as usize),
            None => std::ptr::from_ref::<u64>(&self.host.args[i].scalar).cast_mut().cast(),
        };
        self.buffers.iter().enumerate().map(address).collect()
    }

    fn kernel_args(&self) -> KernelArgs {
        let parameter = |(i, buffer): (usize, &Option<Buffer<'_>>)| {
            let arg = &self.host.args[i];
            let name = arg.spec.name.clone();
            match buffer {
                Some(buffer) => (name, 8, buffer.address()),
                None => (name, arg.size_bytes(), *arg.scalar),
            }
        };
        KernelArgs::new(self.buffers.iter().enumerate().map(parameter).collect())
    }
}
