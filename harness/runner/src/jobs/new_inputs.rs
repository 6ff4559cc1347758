//! Generates new input contents on the GPU for every timed call of a kernel whose reference runs on
//! the GPU.
//!
//! A pool of values is generated once for each random tensor from its `init` (see `generate.rs`).
//! Before each call every element is set to a value of the pool, selected by the seed, the call and
//! the element's index. One PTX kernel copies bits from the pool, so it works for every dtype and
//! `init`, and a call costs well under a millisecond where the host would take a second.
//!
//! Contents that the user fixed are kept: zeros, constants, files, and arguments with their own
//! seed.

use super::Session;
use super::session::DeviceCase;
use crate::cuda::{Buffer, ExpectedFailures, Function, Gpu, KernelArgs, Module};
use crate::fault::Result;
use crate::generate;
use crate::host_case::HostCase;
use rgpu_case::{Arg, Case, Dtype, Init, LaunchShape, Role};

/// Kernels of ours around a timed call: one writes new inputs, one checks the outputs.
pub(super) const TIMED_CALL_PTX: &str = include_str!("../cuda/timed_call.ptx");

/// Values in a pool: few enough for the L2 cache, more than a 16-bit dtype has.
const POOL_VALUES: u64 = 1 << 18;

/// Separates the keys of pools and calls from those of initial contents.
const POOL_KEY: u64 = 0x706f_6f6c;
const CALL_KEY: u64 = 0x6361_6c6c;

/// Writes new contents into the random tensors of a case before each call.
pub(super) struct InputGenerator<'w> {
    gpu: &'w Gpu,
    draw_kernel: Function<'w>,
    tensors: Vec<GeneratedTensor<'w>>,
    seed: u64,
}

struct GeneratedTensor<'w> {
    /// Index among the arguments of all groups, the problems of a grouped kernel.
    index: usize,
    dtype: Dtype,
    elements: u64,
    /// Distinguishes the arguments within one call.
    key: u64,
    pool: Buffer<'w>,
}

impl<'w> InputGenerator<'w> {
    pub(super) fn new(session: &'w Session<'_>, host: &HostCase<'_>) -> Result<InputGenerator<'w>> {
        let gpu = &session.gpu;
        let module = Module::from_image(gpu, TIMED_CALL_PTX.as_bytes().to_vec(), "timed_call.ptx")?;
        let draw_kernel = module.function("rgpu_draw")?;
        let seed = session.input.spec.seed;
        let positions = host.case.groups.first().map_or(1, |group| group.args.len().max(1));
        let mut tensors = Vec::new();
        for (index, arg) in host.args.iter().enumerate() {
            if !is_random(arg.spec) || arg.size_bytes() == 0 {
                continue;
            }
            let (group, position) = (index / positions, index % positions);
            let key = generate::arg_key(seed, arg.spec, group, position);
            let pool_arg = Arg { dims: vec![POOL_VALUES], ..arg.spec.clone() };
            let values = generate::contents(&pool_arg, key ^ POOL_KEY, &session.input.folder)?;
            let pool = Buffer::new(gpu, values.bytes().len(), 0)?;
            pool.upload(values.bytes())?;
            let elements = arg.spec.count().unwrap_or(0); // the input check rejects sizes that overflow
            tensors.push(GeneratedTensor { index, dtype: arg.spec.dtype, elements, key, pool });
        }
        let inputs = InputGenerator { gpu, draw_kernel, tensors, seed };
        if let Some(first) = inputs.tensors.first() {
            let args = inputs.args(first, &first.pool, 0);
            inputs.draw_kernel.prepare(&inputs.launch(), &args, ExpectedFailures::Allowed)?;
        }
        Ok(inputs)
    }

    /// Whether any tensor gets new contents, so that each call has different data.
    pub(super) fn has_new_inputs(&self) -> bool {
        !self.tensors.is_empty()
    }

    /// Enqueues the contents of call `call` into `device`. The same call number gives any device
    /// memory of this case the same contents.
    pub(super) fn enqueue_contents(&self, device: &DeviceCase<'_>, call: u64) -> Result<()> {
        for tensor in &self.tensors {
            let Some(buffer) = device.input_buffer(tensor.index) else { continue };
            self.draw_kernel.launch(&self.launch(), &self.args(tensor, buffer, call))?;
        }
        Ok(())
    }

    fn args(&self, tensor: &GeneratedTensor<'_>, out: &Buffer<'_>, call: u64) -> KernelArgs {
        let key = generate::call_key(self.seed ^ CALL_KEY, call, tensor.key);
        KernelArgs::new(vec![
            ("out".into(), 8, out.address()),
            ("pool".into(), 8, tensor.pool.address()),
            ("pool_count".into(), 8, POOL_VALUES),
            ("elements".into(), 8, tensor.elements),
            ("key".into(), 8, key),
            ("bits".into(), 8, u64::from(tensor.dtype.bits())),
        ])
    }

    fn launch(&self) -> LaunchShape {
        gpu_filling_launch(self.gpu)
    }
}

/// A launch shape that fills the GPU, for kernels that stride over their elements.
pub(super) fn gpu_filling_launch(gpu: &Gpu) -> LaunchShape {
    let blocks = 8 * gpu.facts.sms.max(1);
    LaunchShape { grid: [blocks, 1, 1], block: [256, 1, 1], cluster: None, dynamic_shared: 0 }
}

/// Whether an argument's contents may be replaced by another random draw.
fn is_random(arg: &Arg) -> bool {
    let random = matches!(
        arg.init,
        Some(Init::Uniform { .. } | Init::Normal { .. } | Init::Ints { .. } | Init::Bits { .. })
    );
    random && arg.seed.is_none() && matches!(arg.role, Role::In | Role::InOut)
}

/// Names of the inputs that keep their contents in every timed call, because their init or seed
/// fixes them.
pub(super) fn fixed_inputs(case: &Case) -> Vec<String> {
    let args = case.groups.first().map_or(&[][..], |group| &group.args);
    let inputs = args.iter().filter(|arg| matches!(arg.role, Role::In | Role::InOut));
    inputs.filter(|arg| !is_random(arg)).map(|arg| arg.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::tests::vecadd;

    #[test]
    fn what_a_user_fixed_is_not_drawn_anew() {
        let mut case = vecadd(4).cases.remove(0);
        assert_eq!(fixed_inputs(&case), [""; 0]);
        let args = &mut case.groups[0].args;
        args[0].init = Some(Init::File { path: "a.bin".into() });
        args[1].seed = Some(7);
        assert_eq!(fixed_inputs(&case), ["a", "b"]);
    }
}
