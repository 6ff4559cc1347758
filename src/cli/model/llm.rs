//! `rgpu model layer` and `rgpu model llm`: a model from a `config.json`, spread over GPUs.

use std::path::{Path, PathBuf};

use clap::Args;
use rgpu_predict::Dtype;
use rgpu_predict::config::Model;
use rgpu_predict::document::{
    CalibrationState, LikelyServing, LlmDocument, LlmParts, definitions, load_point, model_document,
};
use rgpu_predict::hw::Tier;
use rgpu_predict::kernel::{AttentionKind, Fusion};
use rgpu_predict::llm::serve::LoadResult;
use rgpu_predict::llm::{
    Deployment, Load, Parallelism, Phase, Placement, Step, serve, serve_after, suggest,
};

use super::compare::{self, ComparisonDocument};
use super::gpu::{GpuArgs, PredictedGpu, target};
use super::page::{self, PageArgs};
use super::{coll, input, llm_text};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};

/// Predict a model on GPUs: layers, phases, memory, and a server under load
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct LlmArgs {
    /// The model's config.json
    pub config: PathBuf,

    #[command(flatten)]
    pub gpu: GpuArgs,

    /// Tensor-parallel GPUs per pipeline stage; they split heads, MLPs and experts
    #[arg(long, default_value = "1")]
    pub tp: u32,

    /// Pipeline stages; they split layers
    #[arg(long, default_value = "1")]
    pub pp: u32,

    /// Expert-parallel GPUs per pipeline stage; divides --tp
    #[arg(long, default_value = "1")]
    pub ep: u32,

    /// Split norms and residuals over the tokens
    #[arg(long)]
    pub sp: bool,

    /// Split attention over sequences instead of heads
    #[arg(long)]
    pub dp_attention: bool,

    /// Tokens of a prompt
    #[arg(long, default_value = "1024", value_parser = input::count)]
    pub isl: f64,

    /// Tokens of an answer
    #[arg(long, default_value = "1024", value_parser = input::count)]
    pub osl: f64,

    /// Requests at once: a number, a list, or 1..256:x2
    #[arg(long, default_value = "1", value_parser = input::counts)]
    pub concurrency: input::Counts,

    /// Additional GPUs that only do prefill
    #[arg(long, value_name = "GPUS")]
    pub prefill_gpus: Option<u32>,

    /// Where data live, for example weights=hbm,kv=host; also pool and nvme
    #[arg(long, value_parser = placement)]
    pub place: Option<Placement>,

    /// The format of the KV cache
    #[arg(long, value_name = "DTYPE")]
    pub kv_dtype: Option<Dtype>,

    /// The format of linear weights and experts, instead of the config's
    #[arg(long, value_name = "DTYPE")]
    pub weights: Option<Dtype>,

    /// Which operations share a kernel
    #[arg(long, value_parser = ["eager", "fused", "megakernel"], default_value = "fused")]
    pub fusion: String,

    /// Write attention's scores to memory
    #[arg(long)]
    pub naive_attention: bool,

    /// A file with links that differ from the GPU's own
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,

    /// Show other parallel layouts on as many GPUs, and why each is ruled out
    #[arg(long)]
    pub suggest: bool,

    /// Compare with another way: a TOML file with the flags that differ, without dashes
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,

    #[command(flatten)]
    pub page: PageArgs,
}

/// The document to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Kernels of each kind of layer.
    Layers,
    /// Memory of each GPU, and the server's throughput and latencies.
    Server,
}

pub(super) fn placement(typed: &str) -> std::result::Result<Placement, String> {
    let mut placement = Placement { weights: Tier::Hbm, kv: Tier::Hbm };
    for word in typed.split(',') {
        let (what, tier) = word.split_once('=').unwrap_or((word, ""));
        let tier = match tier {
            "hbm" => Tier::Hbm,
            "host" => Tier::Host,
            "pool" => Tier::Pool,
            "nvme" => Tier::Nvme,
            other => return Err(format!("`{other}` is not a place: use hbm, host, pool or nvme")),
        };
        match what {
            "weights" => placement.weights = tier,
            "kv" => placement.kv = tier,
            other => return Err(format!("`{other}` cannot be placed: use weights or kv")),
        }
    }
    Ok(placement)
}

/// Reads a model's config.
pub(super) fn model(path: &Path) -> Result<Model> {
    let config = rgpu_run::saved_json::any_from_slice(&input::read(path)?).map_err(|error| {
        Failure::new(Exit::Config, "bad_config", "the config is not JSON")
            .file(path.display())
            .cause(error)
    })?;
    Model::from_config(&config).map_err(|error| {
        Failure::new(Exit::Config, "bad_config", error.to_string()).file(path.display())
    })
}

/// The failure for a way that cannot be.
fn impossible(error: &rgpu_predict::llm::PlacementError) -> Failure {
    Failure::new(Exit::Config, "impossible", error.to_string())
        .hint("`--suggest` shows which ways are possible")
}

/// Predicts a model, and the way that it is compared with.
pub(super) fn run(app: &App, args: &LlmArgs, detail: Detail) -> Result<Status> {
    let document = document(app, args)?;
    let name = file_name(&args.config);
    let Some(path) = &args.compare else {
        let place = format!("{} · {}", document.gpu, llm_text::spread(&document.parallelism));
        let is_page =
            page::write(app, &args.page, &name, &place, &[page::side(&name, &document)?])?;
        match (app.global.json, is_page) {
            (true, _) => app.print_json(&document)?,
            (false, true) => {}
            (false, false) => llm_text::print(app, &document, detail),
        }
        return Ok(0);
    };
    let other_args = compare::other(args, path)?;
    let other = self::document(app, &other_args).map_err(|failure| match failure.place.file {
        Some(_) => failure,
        None => failure.file(path.display()),
    })?;
    let other_name = file_name(path);
    let sides = [page::side("command line", &document)?, page::side(&other_name, &other)?];
    let place = format!("against {other_name}");
    let is_page = page::write(app, &args.page, &name, &place, &sides)?;
    match (app.global.json, is_page) {
        (true, _) => app.print_json(&ComparisonDocument::new(document, other))?,
        (false, true) => {}
        (false, false) => {
            let way = |document: &LlmDocument| {
                format!("{}, {}", document.gpu, llm_text::spread(&document.parallelism))
            };
            compare::print(app, (&way(&document), &document), (&way(&other), &other));
        }
    }
    Ok(0)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn document(app: &App, args: &LlmArgs) -> Result<LlmDocument> {
    let target = target(app, &args.gpu)?;
    let mut model = model(&args.config)?;
    if let Some(dtype) = args.weights {
        (model.linear_dtype, model.expert_dtype) = (dtype, dtype);
    }
    let deployment = deployment(args, &model, &target)?;
    predict(args, &model, &deployment, &target)
}

fn deployment(args: &LlmArgs, model: &Model, target: &PredictedGpu) -> Result<Deployment> {
    let topology = coll::topology(&target.gpu, args.topology.as_deref())?;
    let mut deployment = Deployment::new(model, topology);
    deployment.parallelism = Parallelism {
        tp: args.tp,
        pp: args.pp,
        ep: args.ep,
        sp: args.sp,
        dp_attention: args.dp_attention,
    };
    if let Some(placement) = args.place {
        deployment.placement = placement;
    }
    if let Some(dtype) = args.kv_dtype {
        deployment.kv_dtype = dtype;
    }
    deployment.fusion = match args.fusion.as_str() {
        "eager" => Fusion::Eager,
        "megakernel" => Fusion::Megakernel,
        _ => Fusion::Fused,
    };
    if args.naive_attention {
        deployment.attention = AttentionKind::Naive;
    }
    Ok(deployment)
}

fn predict(
    args: &LlmArgs,
    model: &Model,
    deployment: &Deployment,
    target: &PredictedGpu,
) -> Result<LlmDocument> {
    let context = target.context();
    let ends = target.likely_ends();
    let mut points = Vec::new();
    let mut first: Option<(Load, LoadResult)> = None;
    let mut refused = None;
    for concurrency in &args.concurrency.0 {
        let load = Load {
            input: args.isl,
            output: args.osl,
            concurrency: *concurrency,
            prefill_gpus: args.prefill_gpus,
        };
        let before = first.as_ref().map(|(_, served)| served);
        match serve_after(before, model, deployment, &load, &context) {
            Ok(served) => {
                let mut point = load_point(&load, &Ok(served.serving));
                if let (Some(ends), true) = (&ends, served.serving.is_calibrated) {
                    let at = |end: &PredictedGpu| serve(model, deployment, &load, &end.context());
                    if let (Ok(fast), Ok(slow)) = (at(&ends[0]), at(&ends[1])) {
                        point.likely = Some(LikelyServing::between(&fast.serving, &slow.serving));
                    }
                }
                points.push(point);
                first.get_or_insert((load, served));
            }
            Err(error) => {
                points.push(load_point(&load, &Err(error.to_string())));
                refused.get_or_insert(error);
            }
        }
    }
    let suggestions = if args.suggest {
        let concurrency = args.concurrency.0.first().copied().unwrap_or(1.0);
        let load = Load {
            input: args.isl,
            output: args.osl,
            concurrency,
            prefill_gpus: args.prefill_gpus,
        };
        let gpus = args.tp.saturating_mul(args.pp);
        let candidates = suggest(model, deployment, &load, gpus, &context);
        candidates.into_iter().map(Into::into).collect()
    } else {
        Vec::new()
    };
    if let (None, Some(error), false) = (&first, &refused, args.suggest) {
        return Err(impossible(error));
    }
    let parts = LlmParts { hardware: &target.hardware, model, deployment, context: &context };
    let mut phases = Vec::new();
    let mut stages = Vec::new();
    let mut is_calibrated = first.is_some();
    if let Some((load, served)) = &first {
        let sequences = (load.concurrency / served.micro_batches).ceil();
        let seen = load.input + load.output / 2.0;
        let decode = Step { phase: Phase::Decode, sequences, queries: 1.0, keys: seen };
        phases.push(parts.phase(&Step::prefill(1.0, load.input), &served.prefill));
        phases.push(parts.phase(&decode, &served.decode));
        stages.clone_from(&served.memory);
        is_calibrated = served.serving.is_calibrated;
    }
    let mut notes =
        vec!["memory of the runtime (CUDA context, NCCL, allocator) is not counted".to_owned()];
    for dtype in [model.linear_dtype, model.expert_dtype] {
        let name = &target.hardware.id;
        if target.gpu.math(dtype) != dtype.math() {
            let note = format!("{name} multiplies no {dtype}: weights are widened to 16 bits");
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    Ok(LlmDocument {
        schema: "rgpu.model-llm/1",
        gpu: target.hardware.id.clone(),
        model: model_document(model),
        parallelism: deployment.parallelism,
        placement: deployment.placement,
        calibration: CalibrationState::from_bool(is_calibrated),
        points,
        phases,
        stages,
        suggestions,
        definitions: definitions(),
        notes,
    })
}
