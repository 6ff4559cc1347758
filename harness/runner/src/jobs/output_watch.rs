//! Compares the outputs of timed calls on the GPU with those of a first call, without
//! synchronising.
//!
//! The first call's outputs are kept. Each timed call starts on poisoned outputs, and after its end
//! event a kernel of ours counts the words that differ from the kept outputs. This finds any call
//! that does nothing, or only part of the work.

use super::Session;
use super::session::{DeviceCase, PreparedTarget};
use crate::compare::OutputPair;
use crate::cuda::{Buffer, ExpectedFailures, Function, KernelArgs, Module};
use crate::fault::{Fault, Result};
use crate::host_memory::HostBuffer;
use rgpu_case::{ErrorClass, LaunchShape};

const COUNT_DIFFERENCES_PTX: &str = include_str!("../cuda/count_differences.ptx");

/// Calls compared value by value when timed calls differ in their bits.
const VALUE_CHECKS: usize = 3;

/// The expected outputs of one case.
pub(super) struct OutputWatch<'w> {
    session: &'w Session<'w>,
    device: &'w DeviceCase<'w>,
    compare_kernel: Function<'w>,
    count: Buffer<'w>,
    /// The first call's outputs, each with the index of its argument.
    expected_on_gpu: Vec<(usize, Buffer<'w>)>,
    /// The same by argument; `None` for inputs.
    expected_on_host: Vec<Option<HostBuffer>>,
}

impl<'w> OutputWatch<'w> {
    /// Calls once and keeps the outputs.
    pub(super) fn start(
        session: &'w Session<'w>,
        device: &'w DeviceCase<'w>,
        prepared: &PreparedTarget<'_>,
    ) -> Result<OutputWatch<'w>> {
        let gpu = &session.gpu;
        let module = Module::from_image(
            gpu,
            COUNT_DIFFERENCES_PTX.as_bytes().to_vec(),
            "count_differences.ptx",
        )?;
        let compare_kernel = module.function("rgpu_differ")?;
        let count = Buffer::new(gpu, 8, 0)?;
        count.memset(0)?;
        device.restore_inout()?;
        device.enqueue_poison()?;
        prepared.launch()?;
        gpu.synchronize_all()?;
        let mut expected_on_gpu = Vec::new();
        for (i, buffer) in device.tensors() {
            if device.host.args[i].spec.role.is_output() && buffer.size() > 0 {
                let copy = Buffer::new(gpu, buffer.size(), 0)?;
                copy.copy_from(buffer)?;
                expected_on_gpu.push((i, copy));
            }
        }
        let expected_on_host = device.download_outputs()?;
        Ok(OutputWatch {
            session,
            device,
            compare_kernel,
            count,
            expected_on_gpu,
            expected_on_host,
        })
    }

    /// Enqueues the comparison of the current outputs.
    pub(super) fn enqueue_comparison(&self) -> Result<()> {
        let blocks = 2 * self.session.gpu.facts.sms.max(1);
        let launch = LaunchShape {
            grid: [blocks, 1, 1],
            block: [256, 1, 1],
            cluster: None,
            dynamic_shared: 0,
        };
        for (i, expected) in &self.expected_on_gpu {
            let Some((_, buffer)) = self.device.tensors().find(|(at, _)| at == i) else { continue };
            let args = KernelArgs::new(vec![
                ("a".into(), 8, buffer.address()),
                ("b".into(), 8, expected.address()),
                ("bytes".into(), 8, buffer.size() as u64),
                ("count".into(), 8, self.count.address()),
            ]);
            self.compare_kernel.prepare(&launch, &args, ExpectedFailures::Allowed)?;
            self.compare_kernel.launch(&launch, &args)?;
        }
        Ok(())
    }

    /// Waits for the comparisons so far; returns how many words differed.
    pub(super) fn differing_words(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.count.download(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Makes some more calls and compares them value by value. It is an error if they differ from
    /// the first beyond the tolerance. Returns whether all bits equal the first's.
    pub(super) fn compare_values(&self, prepared: &PreparedTarget<'_>, name: &str) -> Result<bool> {
        let mut bit_equal = true;
        for _ in 0..VALUE_CHECKS {
            self.device.restore_inout()?;
            self.device.enqueue_poison()?;
            prepared.launch()?;
            bit_equal &= self.compare_current_values(name)?;
        }
        Ok(bit_equal)
    }

    /// Compares the outputs that are there with the first call's, value by value. It is an error if
    /// they differ beyond the tolerance. Returns whether all bits are equal.
    pub(super) fn compare_current_values(&self, name: &str) -> Result<bool> {
        self.session.gpu.synchronize_all()?;
        let mut bit_equal = true;
        let now = self.device.download_outputs()?;
        for (i, arg) in self.device.host.args.iter().enumerate() {
            let (Some(expected), Some(now)) = (&self.expected_on_host[i], &now[i]) else {
                continue;
            };
            let results = OutputPair {
                arg: arg.spec,
                group: arg.group,
                left: now.bytes(),
                right: expected.bytes(),
            };
            bit_equal &= results.bit_equal();
            let tolerance = arg.spec.tolerance.unwrap_or(self.session.input.spec.tolerance);
            let (bad, at) = results.differing(&tolerance);
            let allowed = tolerance.mismatch_fraction * arg.spec.count().unwrap_or(0) as f64;
            if bad > 0 && bad as f64 <= allowed {
                self.session.report.add_gap(format!(
                    "`{name}`: elements of `{}` differ from call to call on the same data",
                    arg.spec.name
                ));
            } else if bad > 0 {
                let (elements, differ) =
                    if bad == 1 { ("element", "differs") } else { ("elements", "differ") };
                let difference = format!(
                    "{bad} {elements} of `{}` {differ} from the first call's by more than the \
                     tolerance, the first of them {}",
                    arg.spec.name,
                    at.unwrap_or(0)
                );
                return Err(wrong_result(name, &difference));
            }
        }
        Ok(bit_equal)
    }
}

/// The error for a timed call whose values differ from those of the call before timing.
pub(super) fn wrong_result(name: &str, difference: &str) -> Fault {
    let mut fault = Fault::new(
        ErrorClass::WrongResult,
        format!("calls of the kernel on `{name}` do not give the same result: {difference}"),
    );
    fault.0.case = Some(name.to_owned());
    fault
}
