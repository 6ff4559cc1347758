//! The small kernels of eager modules, from whole steps of a decoder in CUDA graphs.
//!
//! The time of a step is that of its products, attention and collectives, from their own fits, and
//! for the small kernels n·τ + Q/(B·η). No single small kernel is measured, so τ also has what a
//! step adds to its other kernels: a kernel that follows another one finds its instructions and its
//! operands less near than one that repeats itself.

use super::{
    FitOutcome, HELD_OUT_FOLD, LAUNCH_BOUNDS_NS, Parameter, active_bounds, errors, fold,
    least_and_most, mean_square, minimise, split,
};
use crate::calibration::{Efficiency, KernelFit};
use crate::collective::Topology;
use crate::config::Model;
use crate::fit::EFFICIENCY_BOUNDS;
use crate::hw::Gpu;
use crate::kernel::{Context, LaunchMode, OpKind};
use crate::llm::StepOperation;
use crate::measured_step::{MeasuredStep, time_of};
use crate::measurement::{Measurement, MeasurementKind};

/// A step: the time of what has its own fit, the number of small kernels, the time of their bytes.
struct StepParts {
    others_ns: f64,
    launches: f64,
    memory_ns: f64,
    measured_ns: f64,
    is_held_out: bool,
}

impl StepParts {
    fn time_ns(&self, values: &[f64]) -> f64 {
        self.others_ns + self.launches * values[0] + self.memory_ns / values[1]
    }
}

/// Adds the fit of eager modules to a fit of kernels: from the steps of `models`, by their names.
/// Steps with a kernel that has no fit are left out.
pub fn fit_steps(
    outcome: &mut FitOutcome,
    gpu: &Gpu,
    topology: &Topology,
    models: &[(String, Model)],
    rows: &[Measurement],
) {
    let context = Context { calibration: Some(&outcome.calibration), ..Context::new(gpu) };
    let (mut steps, mut too_fast, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let mut dtype = None;
    for row in rows.iter().filter(|row| row.kind == MeasurementKind::Step) {
        let model = models.iter().find(|(name, _)| row.model.as_ref() == Some(name));
        let Some(step) =
            model.and_then(|(_, model)| MeasuredStep::new(row, model, *topology, gpu).ok())
        else {
            continue;
        };
        if !step.is_eager_in_graph() {
            continue;
        }
        let mut parts = StepParts {
            others_ns: 0.0,
            launches: 0.0,
            memory_ns: 0.0,
            measured_ns: step.time_ns,
            is_held_out: fold(&row.configuration()) == HELD_OUT_FOLD,
        };
        let (mut is_known, mut bound_ns, mut sizes) = (true, 0.0, Vec::new());
        step.visit(&context, &mut |part, times| match part {
            StepOperation::Kernel(kernel) if kernel.work.op == OpKind::EagerModule => {
                parts.launches += times * kernel.work.launches;
                parts.memory_ns += times * kernel.bound_memory_ns;
                bound_ns += times * kernel.bound_ns();
                sizes.push(kernel.work.bytes);
            }
            other => {
                let (ns, is_calibrated) = time_of(other);
                parts.others_ns += times * ns;
                is_known &= is_calibrated;
                if let StepOperation::Kernel(kernel) = other {
                    bound_ns += times * kernel.bound_ns();
                }
            }
        });
        if step.time_ns < bound_ns {
            too_fast.push((row.clone(), bound_ns, step.time_ns));
        } else if is_known {
            dtype.get_or_insert(step.model.dtype);
            bytes.extend(sizes);
            steps.push(parts);
        }
    }
    outcome.unused = outcome.unused.saturating_sub(steps.len() + too_fast.len());
    outcome.too_fast.extend(too_fast);
    let Some(dtype) = dtype else { return };
    let parameters = [
        Parameter { name: "launch_ns", bounds: LAUNCH_BOUNDS_NS, start: LaunchMode::Graph.ns() },
        Parameter { name: "memory", bounds: EFFICIENCY_BOUNDS, start: 1.0 },
    ];
    let Some((train, test)) = split(&steps, |step| step.is_held_out) else {
        outcome.too_few.push((format!("{} {dtype}", OpKind::EagerModule.name()), steps.len()));
        return;
    };
    let values = minimise(&parameters, |values| {
        mean_square(&train, |step| step.time_ns(values), |step| step.measured_ns)
    });
    let errors = |steps: &[&StepParts]| {
        errors(steps.iter().map(|step| (step.time_ns(&values), step.measured_ns)))
    };
    outcome.calibration.kernel.push(KernelFit {
        op: OpKind::EagerModule,
        dtype,
        efficiency: Efficiency {
            memory: values[1],
            launch_ns: Some(values[0]),
            ..Efficiency::PERFECT
        },
        active_bounds: active_bounds(&parameters, &values),
        flops: [0.0, 0.0],
        bytes: least_and_most(bytes.into_iter()),
        likely: None,
        train: errors(&train),
        test: errors(&test),
    });
}
