//! A measured step of a model on an idle GPU: what ran, and its prediction.

use crate::Calibration;
use crate::collective::Topology;
use crate::config::Model;
use crate::hw::Gpu;
use crate::kernel::{Context, Fusion, LaunchMode};
use crate::llm::layer::{visit_embedding, visit_head, visit_layer};
use crate::llm::{Deployment, Parallelism, Phase, Step, StepOperation, check_parallelism, phase};
use crate::measurement::Measurement;
use crate::reconcile::Pair;

/// A row of kind `step`, with the model that ran.
#[derive(Clone, Debug)]
pub struct MeasuredStep<'a> {
    /// The measurement that it was read from.
    pub row: &'a Measurement,
    /// The model that ran.
    pub model: &'a Model,
    /// How the model ran.
    pub deployment: Deployment,
    /// The phase and the numbers of sequences and tokens.
    pub step: Step,
    /// The measured time of the step, in ns.
    pub time_ns: f64,
}

impl<'a> MeasuredStep<'a> {
    /// Reads a row.
    ///
    /// # Errors
    /// Says what is not known, or why the model cannot run like this.
    pub fn new(
        row: &'a Measurement,
        model: &'a Model,
        topology: Topology,
        gpu: &Gpu,
    ) -> Result<Self, String> {
        let sequences = row.batch.ok_or("the number of sequences is not known")?;
        let queries = row.queries.ok_or("the number of queries is not known")?;
        let keys = row.keys.ok_or("the context is not known")?;
        let time_ns = row.time_ns.ok_or("no time was measured")?;
        let step = match row.op.as_deref() {
            Some("prefill") => Step::prefill(sequences, queries),
            Some("decode") => Step::decode(sequences, keys),
            _ => return Err("the step is not `prefill` or `decode`".to_owned()),
        };
        let step = Step { queries, keys, ..step };
        let mut deployment = Deployment::new(model, topology);
        deployment.parallelism = Parallelism { tp: row.tp.unwrap_or(1), ..Parallelism::NONE };
        deployment.fusion = row.fusion.unwrap_or_default();
        check_parallelism(model, &deployment, gpu).map_err(|error| error.to_string())?;
        Ok(Self { row, model, deployment, step, time_ns })
    }

    /// Whether its kernels were nodes of a CUDA graph.
    #[must_use]
    pub fn is_in_graph(&self) -> bool {
        self.row.launch.is_none_or(|launch| launch == LaunchMode::Graph)
    }

    /// Its prediction, or why there is none.
    ///
    /// In a CUDA graph a step takes what its kernels take. Without one, the host may be slower than
    /// the GPU: it needs its measured time for each launch.
    ///
    /// # Errors
    /// The time of a launch is not known.
    pub fn pair(&self, gpu: &Gpu, calibration: Option<&Calibration>) -> Result<Pair, String> {
        let context = Context { calibration, ..Context::new(gpu) };
        let times = phase(self.model, &self.deployment, &self.step, &context);
        let kernels_ns = times.pipeline_latency_ns();
        let predicted_ns = match (self.is_in_graph(), self.row.launch_ns) {
            (true, _) => kernels_ns,
            (false, Some(launch_ns)) => kernels_ns.max(times.launches() * launch_ns),
            (false, None) => return Err("a step without a CUDA graph needs launch_ns".to_owned()),
        };
        let quantity = match (self.step.phase, self.is_in_graph()) {
            (Phase::Prefill, true) => "prefill",
            (Phase::Prefill, false) => "eager_prefill",
            (Phase::Decode, true) => "decode",
            (Phase::Decode, false) => "eager_decode",
        };
        Ok(Pair {
            row: self.row.clone(),
            quantity,
            measured_ns: self.time_ns,
            bound_ns: times.pipeline_latency_bound_ns(),
            predicted_ns,
            likely_ns: None,
            is_calibrated: times.is_calibrated(),
            launches: Some(times.launches()),
        })
    }

    /// Whether small operations were kernels of their own, in a CUDA graph.
    pub(crate) fn is_eager_in_graph(&self) -> bool {
        self.is_in_graph() && self.deployment.fusion == Fusion::Eager
    }

    /// Passes the operations of one GPU to `visit`, each with how often it is done.
    pub(crate) fn visit(&self, context: &Context<'_>, visit: &mut dyn FnMut(&StepOperation, f64)) {
        let Self { model, deployment, step, .. } = self;
        for (_, layer, times) in model.kinds_in(0..model.order.len()) {
            visit_layer(model, layer, deployment, step, context, &mut |_, part| {
                visit(&part, times);
            });
        }
        visit_embedding(model, deployment, step, context, &mut |_, part| visit(&part, 1.0));
        visit_head(model, deployment, step, context, &mut |_, part| visit(&part, 1.0));
    }
}

/// The time of a part of a step, and whether it used measured efficiencies.
pub(crate) fn time_of(part: &StepOperation) -> (f64, bool) {
    match part {
        StepOperation::Kernel(kernel) => (kernel.time_ns(), kernel.is_calibrated),
        StepOperation::Collective(collective) => (collective.time_ns(), collective.is_calibrated),
        StepOperation::Fetch { ns, .. } => (*ns, false),
    }
}
