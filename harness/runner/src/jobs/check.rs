//! Checks the outputs of timed calls against a reference on the GPU, without synchronising.
//!
//! The reference uses its own memory with the same contents as the kernel's, so neither can change
//! what the other reads. After a call's end event, a kernel of ours counts the elements beyond the
//! tolerance, separately for each output and each call of a batch.

use super::Session;
use super::new_inputs::{InputGenerator, TIMED_CALL_PTX, gpu_filling_launch};
use super::session::{DeviceCase, PreparedTarget, bind_kernel};
use super::time::MAX_BATCH;
use super::verify::DeviceReference;
use crate::abi::AbiCase;
use crate::cuda::{Buffer, ExpectedFailures, Function, KernelArgs, Module};
use crate::fault::{Fault, Result};
use crate::host_case::HostCase;
use crate::library::DeviceReferenceLibrary;
use crate::poison::Poison;
use rgpu_case::{Dtype, ErrorClass};

/// Checks the outputs of one case after each call.
pub(super) struct Check<'w> {
    session: &'w Session<'w>,
    reference: ReadyReference<'w>,
    /// The memory that the reference writes to.
    twin: DeviceCase<'w>,
    beyond: Function<'w>,
    /// For each output: the values of its codes of up to 16 bits; empty for wider dtypes.
    tables: Vec<(usize, Buffer<'w>)>,
    /// One count for each output and call of a batch.
    counts: Buffer<'w>,
}

enum ReadyReference<'w> {
    Kernel(PreparedTarget<'w>),
    Function(&'w DeviceReferenceLibrary, AbiCase),
}

impl<'w> Check<'w> {
    pub(super) fn new(
        session: &'w Session<'w>,
        reference: &'w DeviceReference<'w>,
        host: &'w HostCase<'w>,
    ) -> Result<Check<'w>> {
        let gpu = &session.gpu;
        let twin = DeviceCase::new(gpu, host, 0)?;
        twin.fill_inputs()?;
        let module = Module::from_image(gpu, TIMED_CALL_PTX.as_bytes().to_vec(), "timed_call.ptx")?;
        let beyond = module.function("rgpu_beyond")?;
        let mut tables = Vec::new();
        for (i, buffer) in twin.tensors() {
            let arg = host.args[i].spec;
            if arg.role.is_output() && buffer.size() > 0 {
                let values = code_values(arg.dtype);
                let table = Buffer::new(gpu, values.len(), 0)?;
                table.upload(&values)?;
                tables.push((i, table));
            }
        }
        let counts = Buffer::new(gpu, 8 * MAX_BATCH * tables.len().max(1), 0)?;
        counts.memset(0)?;
        let reference = match reference {
            DeviceReference::Kernel(function) => {
                let launch = host.case.reference_launch.as_ref();
                let bound = bind_kernel(function, launch, &twin, ExpectedFailures::Allowed)
                    .map_err(as_reference_fault)?;
                ReadyReference::Kernel(bound)
            }
            DeviceReference::Function(library) => {
                ReadyReference::Function(library, AbiCase::new(host.case, &twin.addresses()))
            }
        };
        let check = Check { session, reference, twin, beyond, tables, counts };
        if let Some((at, (i, _))) = check.tables.iter().enumerate().next() {
            let args = check.args(&check.twin, at, *i, 0);
            check.beyond.prepare(&gpu_filling_launch(gpu), &args, ExpectedFailures::Allowed)?;
        }
        Ok(check)
    }

    /// Enqueues the reference on the contents of a call.
    pub(super) fn enqueue_reference(&self, inputs: &InputGenerator<'_>, call: u64) -> Result<()> {
        inputs.enqueue_contents(&self.twin, call)?;
        self.twin.restore_inout()?;
        self.twin.enqueue_poison()?;
        match &self.reference {
            ReadyReference::Kernel(prepared) => prepared.launch().map_err(as_reference_fault),
            ReadyReference::Function(library, case) => {
                library.run(case, self.session.gpu.stream.cast())
            }
        }
    }

    /// Enqueues the comparison of the current outputs; its counts go to the batch's `slot`.
    pub(super) fn enqueue_comparison(&self, device: &DeviceCase<'_>, slot: usize) -> Result<()> {
        let launch = gpu_filling_launch(&self.session.gpu);
        for (at, (i, _)) in self.tables.iter().enumerate() {
            self.beyond.launch(&launch, &self.args(device, at, *i, slot))?;
        }
        Ok(())
    }

    /// Waits for the comparisons, and fails if a call since the last check was wrong. `first` is
    /// the number of the call in slot 0.
    pub(super) fn fail_on_mismatch(&self, first: u64) -> Result<()> {
        let mut bytes = vec![0; self.counts.size()];
        self.counts.download(&mut bytes)?;
        let outputs = self.tables.len().max(1);
        for (at, count) in bytes.chunks_exact(8).enumerate() {
            let bad = count.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
            let Some((i, _)) = self.tables.get(at % outputs) else { continue };
            let arg = &self.twin.host.args[*i];
            let tolerance = arg.spec.tolerance.unwrap_or(self.session.input.spec.tolerance);
            let elements = arg.spec.count().unwrap_or(0);
            if bad as f64 > tolerance.mismatch_fraction * elements as f64 {
                let (name, output) = (&self.twin.host.case.name, &arg.spec.name);
                let of_group = match self.twin.host.case.groups.len() {
                    1 => String::new(),
                    _ => format!(" (group {})", arg.group),
                };
                let call = first + (at / outputs) as u64;
                let exceed = if bad == 1 { "exceeds" } else { "exceed" };
                let mut fault = Fault::new(
                    ErrorClass::WrongResult,
                    format!(
                        "timed call {call} of the kernel on `{name}`, on new data, is wrong: \
                         {bad} of {elements} elements of `{output}`{of_group} {exceed} the \
                         tolerance of the reference on the GPU"
                    ),
                );
                fault.0.case = Some(name.clone());
                return Err(fault);
            }
        }
        self.counts.memset(0)
    }

    fn args(&self, device: &DeviceCase<'_>, at: usize, i: usize, slot: usize) -> KernelArgs {
        let arg = self.twin.host.args[i].spec;
        let tolerance = arg.tolerance.unwrap_or(self.session.input.spec.tolerance);
        let address = |device: &DeviceCase<'_>| {
            device
                .tensors()
                .find(|(index, _)| *index == i)
                .map_or(0, |(_, buffer)| buffer.address())
        };
        let count = self.counts.address() + 8 * (slot * self.tables.len() + at) as u64;
        // A result may equal the pattern of an integer dtype, but not the NaN.
        let detects_unwritten =
            arg.role == rgpu_case::Role::Out && arg.dtype.is_float() && arg.dtype != Dtype::E2m1;
        KernelArgs::new(vec![
            ("actual".into(), 8, address(device)),
            ("wanted".into(), 8, address(&self.twin)),
            ("elements".into(), 8, arg.count().unwrap_or(0)),
            ("kind".into(), 8, dtype_kind(arg.dtype)),
            ("table".into(), 8, self.tables[at].1.address()),
            ("abs".into(), 8, tolerance.abs.to_bits()),
            ("rel".into(), 8, tolerance.rel.to_bits()),
            ("poison".into(), 8, Poison::First.bits(arg.dtype)),
            ("tells".into(), 8, u64::from(detects_unwritten)),
            ("count".into(), 8, count),
        ])
    }
}

fn as_reference_fault(fault: Fault) -> Fault {
    fault.while_doing("the reference on the GPU")
}

/// The code by which `rgpu_beyond` identifies a dtype.
fn dtype_kind(dtype: Dtype) -> u64 {
    match (dtype, dtype.bits()) {
        (_, 4) => 0,
        (_, 8) => 1,
        (_, 16) => 2,
        (Dtype::F32, _) => 3,
        (Dtype::F64, _) => 4,
        (Dtype::I32, _) => 5,
        (_, 32) => 6,
        (Dtype::I64, _) => 7,
        _ => 8,
    }
}

/// The values of all codes of a narrow dtype, as f64 bytes.
fn code_values(dtype: Dtype) -> Vec<u8> {
    if dtype.bits() > 16 {
        return Vec::new();
    }
    (0..1u64 << dtype.bits()).flat_map(|code| dtype.decode(code).as_f64().to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_kind_and_the_narrow_ones_a_table() {
        for dtype in Dtype::ALL {
            let narrow = dtype.bits() <= 16;
            assert_eq!(dtype_kind(dtype) <= 2, narrow, "{dtype}");
            assert_eq!(
                code_values(dtype).len(),
                if narrow { 8 << dtype.bits() } else { 0 },
                "{dtype}"
            );
        }
        assert_eq!(code_values(Dtype::E2m1)[8 * 7..8 * 8], 6f64.to_le_bytes());
        let wide = [Dtype::F32, Dtype::F64, Dtype::I32, Dtype::U32, Dtype::I64, Dtype::U64];
        assert_eq!(wide.map(dtype_kind), [3, 4, 5, 6, 7, 8]);
    }
}
