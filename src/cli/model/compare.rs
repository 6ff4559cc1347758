//! `--compare`: a second way to run a model, from a file with the flags that differ.

use std::path::{Path, PathBuf};

use rgpu_predict::Dtype;
use rgpu_predict::document::LlmDocument;
use rgpu_predict::llm::Serving;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input;
use super::llm::{LlmArgs, placement};
use crate::cli::support::app::App;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::toml_error;
use rgpu_report::{TextTable, duration};

/// The file: flags without dashes. What it leaves out is as on the command line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct OtherFlags {
    config: Option<PathBuf>,
    gpu: Option<String>,
    calib: Option<PathBuf>,
    launch: Option<String>,
    tp: Option<u32>,
    pp: Option<u32>,
    ep: Option<u32>,
    sp: Option<bool>,
    dp_attention: Option<bool>,
    isl: Option<u32>,
    osl: Option<u32>,
    prefill_gpus: Option<u32>,
    place: Option<String>,
    kv_dtype: Option<String>,
    weights: Option<String>,
    fusion: Option<String>,
    naive_attention: Option<bool>,
    topology: Option<PathBuf>,
}

/// Two ways to run a model (`rgpu.model-comparison/1`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct ComparisonDocument {
    /// Name and version of this schema: `rgpu.model-comparison/1`.
    schema: &'static str,
    /// The way of the command line.
    a: LlmDocument,
    /// The way of the file.
    b: LlmDocument,
}

impl ComparisonDocument {
    pub(super) fn new(a: LlmDocument, b: LlmDocument) -> Self {
        Self { schema: "rgpu.model-comparison/1", a, b }
    }
}

/// `args` with the flags of a file in place of its own. Paths of the file are relative to it.
pub(super) fn other(args: &LlmArgs, path: &Path) -> Result<LlmArgs> {
    let bad = |what: String| {
        Failure::new(Exit::Config, "bad_comparison", what)
            .file(path.display())
            .hint("the file has flags without dashes, for example `tp = 8` and `gpu = \"b200\"`")
    };
    let flags: OtherFlags = toml::from_str(&input::toml(path)?)
        .map_err(|error: toml::de::Error| bad(toml_error::short(&error.to_string())))?;
    let beside = |file: PathBuf| path.parent().unwrap_or(Path::new("")).join(file);
    let mut args = args.clone();
    if let Some(config) = flags.config {
        args.config = beside(config);
    }
    if let Some(gpu) = flags.gpu {
        // A calibration belongs to one GPU.
        if gpu != args.gpu.gpu {
            args.gpu.calib = None;
        }
        args.gpu.gpu =
            if gpu.ends_with(".toml") { beside(gpu.into()).display().to_string() } else { gpu };
    }
    let calib = |file: PathBuf| if file.as_os_str() == "none" { file } else { beside(file) };
    args.gpu.calib = flags.calib.map(calib).or(args.gpu.calib);
    args.topology = flags.topology.map(beside).or(args.topology);
    let one_of = |value: Option<String>, old: String, allowed: &[&str]| match value {
        Some(value) if !allowed.contains(&value.as_str()) => {
            Err(bad(format!("`{value}` is none of {}", allowed.join(", "))))
        }
        value => Ok(value.unwrap_or(old)),
    };
    args.gpu.launch = one_of(flags.launch, args.gpu.launch, &["graph", "stream", "synchronous"])?;
    args.fusion = one_of(flags.fusion, args.fusion, &["eager", "fused", "megakernel"])?;
    args.tp = flags.tp.unwrap_or(args.tp);
    args.pp = flags.pp.unwrap_or(args.pp);
    args.ep = flags.ep.unwrap_or(args.ep);
    args.sp = flags.sp.unwrap_or(args.sp);
    args.dp_attention = flags.dp_attention.unwrap_or(args.dp_attention);
    args.isl = flags.isl.map_or(args.isl, f64::from);
    args.osl = flags.osl.map_or(args.osl, f64::from);
    args.prefill_gpus = flags.prefill_gpus.or(args.prefill_gpus);
    args.naive_attention = flags.naive_attention.unwrap_or(args.naive_attention);
    if let Some(place) = flags.place {
        args.place = Some(placement(&place).map_err(&bad)?);
    }
    let dtype = |name: String| name.parse::<Dtype>().map_err(|error| bad(error.to_string()));
    args.kv_dtype = flags.kv_dtype.map(dtype).transpose()?.or(args.kv_dtype);
    args.weights = flags.weights.map(dtype).transpose()?.or(args.weights);
    Ok(args)
}

/// Prints both at equal numbers of requests.
pub(super) fn print(app: &App, a: (&str, &LlmDocument), b: (&str, &LlmDocument)) {
    app.print(&format!("{} against {}; above 1 means that the second is better\n\n", a.0, b.0));
    let gain = |x: f64, y: f64| format!("{:.2} x", x / y);
    let mut table = TextTable::new(
        "requests: | TTFT: | gain: | TPOT with prefills: | gain: | tokens/s a GPU: | gain:",
    );
    let both = |get: fn(&Serving) -> f64, s: &Serving, t: &Serving| {
        format!("{} -> {}", duration(get(s)), duration(get(t)))
    };
    for (point, other) in a.1.points.iter().zip(&b.1.points) {
        let requests = point.concurrency.to_string();
        let (Some(s), Some(t)) = (&point.serving, &other.serving) else {
            let reason = [point, other].into_iter().find_map(|side| side.impossible.clone());
            let reason = reason.unwrap_or_default();
            table.add_row([requests, reason]);
            continue;
        };
        let (rate, other_rate) = (s.output_tokens_per_s_gpu, t.output_tokens_per_s_gpu);
        table.add_row([
            requests,
            both(|s| s.ttft_ns, s, t),
            gain(s.ttft_ns, t.ttft_ns),
            both(|s| s.tpot_mixed_ns, s, t),
            gain(s.tpot_mixed_ns, t.tpot_mixed_ns),
            format!("{rate:.0} -> {other_rate:.0}"),
            gain(other_rate, rate),
        ]);
    }
    app.print(&table.fitted(app.columns(), 2));
}
