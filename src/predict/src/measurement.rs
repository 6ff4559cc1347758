//! Measured rows: one CSV for kernels, collectives and servers, whatever tool measured them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Dtype;
use crate::collective::{self, CollectiveTime, Topology};
use crate::dtype::MathKind;
use crate::hw::Gpu;
use crate::kernel::gemm::grouped;
use crate::kernel::{
    Attention, Context, Fusion, Gemm, KernelTime, KernelWork, LaunchMode, OpKind, QuantizedGemm,
};

/// The kind of a measurement.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum MeasurementKind {
    /// One kernel.
    Kernel,
    /// One collective.
    Collective,
    /// A server under load.
    Serving,
    /// One step of a model on an idle GPU: `prefill` or `decode`.
    Step,
}

/// How the timed calls of a kernel follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Repeat {
    /// Each after the L2 was flushed.
    Cold,
    /// Back to back until the power limit acts.
    Sustained,
}

/// One row. A value that was not measured, or does not apply, is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The kind of measurement.
    pub kind: MeasurementKind,
    /// The name of the file that the row comes from.
    pub source: String,
    /// The GPU's name in the catalogue, or as the file has it.
    pub gpu: String,
    /// Number of GPUs that took part.
    pub gpus: Option<u32>,
    /// The program that ran, for example `vllm`.
    pub framework: Option<String>,
    /// The version of that program.
    pub version: Option<String>,
    /// The date, as YYYY-MM-DD.
    pub date: Option<String>,
    /// The name of the kernel, collective or step.
    pub op: Option<String>,
    /// The number format.
    pub dtype: Option<Dtype>,
    /// Number of rows of A.
    pub m: Option<f64>,
    /// Number of rows of B.
    pub n: Option<f64>,
    /// Number of columns of A and B.
    pub k: Option<f64>,
    /// The products of a group, each as `m,n,k`, with `;` between them.
    pub groups: Option<String>,
    /// Number of sequences.
    pub batch: Option<f64>,
    /// Queries per sequence.
    pub queries: Option<f64>,
    /// Keys per sequence.
    pub keys: Option<f64>,
    /// Number of query heads.
    pub heads: Option<f64>,
    /// Number of KV heads.
    pub kv_heads: Option<f64>,
    /// The head dimension, in elements.
    pub head_dim: Option<f64>,
    /// Whether a query sees only keys before it; true if absent.
    pub causal: Option<bool>,
    /// What the kernel does, where an `op` has several: `layer_norm`, `cast`.
    pub variant: Option<String>,
    /// How calls followed each other; with a cold L2 if absent.
    pub repeat: Option<Repeat>,
    /// The SM clock during the calls, in MHz.
    pub clock_mhz: Option<f64>,
    /// The GPU's power during the calls, in W.
    pub power_w: Option<f64>,
    /// The size of a message, or what an elementwise kernel reads and writes, in bytes.
    pub bytes: Option<f64>,
    /// The name of the model.
    pub model: Option<String>,
    /// Prompt length, in tokens.
    pub input: Option<f64>,
    /// Output length, in tokens.
    pub output: Option<f64>,
    /// Number of concurrent requests.
    pub concurrency: Option<f64>,
    /// Number of GPUs per pipeline stage (tensor parallelism).
    pub tp: Option<u32>,
    /// Number of pipeline stages.
    pub pp: Option<u32>,
    /// Number of GPUs that share the experts (expert parallelism).
    pub ep: Option<u32>,
    /// Whether attention is split over sequences.
    pub dp_attention: Option<bool>,
    /// The operations of a step that shared a kernel.
    pub fusion: Option<Fusion>,
    /// How the kernels of a step were launched; a CUDA graph if absent.
    pub launch: Option<LaunchMode>,
    /// Number of launches of a step that were counted.
    pub launches: Option<f64>,
    /// The host's time for one launch, measured apart from this row, in ns.
    pub launch_ns: Option<f64>,
    /// The time of a kernel, collective or step, in ns.
    pub time_ns: Option<f64>,
    /// The median time to first token in ns, or the mean if there is no median.
    pub ttft_ns: Option<f64>,
    /// The median time per output token in ns, or the mean if there is no median.
    pub tpot_ns: Option<f64>,
    /// Output tokens per second and GPU.
    pub output_tokens_per_s_gpu: Option<f64>,
}

/// The prediction for a row of a kernel or collective.
// Most of them are kernels, so boxing those would cost more than it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Prediction {
    /// A kernel.
    Kernel(KernelTime),
    /// A collective.
    Collective(CollectiveTime),
}

impl Prediction {
    /// The speed-of-light bound, in ns.
    #[must_use]
    pub fn bound_ns(&self) -> f64 {
        match self {
            Self::Kernel(kernel) => kernel.bound_ns(),
            Self::Collective(collective) => collective.bound_ns,
        }
    }

    /// The predicted time, in ns.
    #[must_use]
    pub fn time_ns(&self) -> f64 {
        match self {
            Self::Kernel(kernel) => kernel.time_ns(),
            Self::Collective(collective) => collective.time_ns(),
        }
    }

    /// Whether measured efficiencies were used.
    #[must_use]
    pub fn is_calibrated(&self) -> bool {
        match self {
            Self::Kernel(kernel) => kernel.is_calibrated,
            Self::Collective(collective) => collective.is_calibrated,
        }
    }
}

/// No size and no time in ns is larger.
pub(crate) const MAX_NUMBER: f64 = 1e15;

/// A CSV that is not a list of measurements.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the measurements cannot be read: {cause}")]
pub struct CsvError {
    /// The line number, from 1.
    line: u64,
    /// The error of the parser.
    cause: String,
}

impl Measurement {
    /// A row in which only what every row has is set.
    #[must_use]
    pub fn new(kind: MeasurementKind, source: &str, gpu: &str) -> Self {
        Self {
            kind,
            source: source.to_owned(),
            gpu: gpu.to_owned(),
            gpus: None,
            framework: None,
            version: None,
            date: None,
            op: None,
            dtype: None,
            m: None,
            n: None,
            k: None,
            groups: None,
            batch: None,
            queries: None,
            keys: None,
            heads: None,
            kv_heads: None,
            head_dim: None,
            causal: None,
            variant: None,
            repeat: None,
            clock_mhz: None,
            power_w: None,
            bytes: None,
            model: None,
            input: None,
            output: None,
            concurrency: None,
            tp: None,
            pp: None,
            ep: None,
            dp_attention: None,
            fusion: None,
            launch: None,
            launches: None,
            launch_ns: None,
            time_ns: None,
            ttft_ns: None,
            tpot_ns: None,
            output_tokens_per_s_gpu: None,
        }
    }

    /// The configuration of this row: everything that was not measured, without the file and the
    /// date.
    #[must_use]
    pub fn configuration(&self) -> String {
        let mut bare = self.clone();
        bare.source.clear();
        bare.date = None;
        bare.launches = None;
        bare.launch_ns = None;
        bare.clock_mhz = None;
        bare.power_w = None;
        bare.time_ns = None;
        bare.ttft_ns = None;
        bare.tpot_ns = None;
        bare.output_tokens_per_s_gpu = None;
        // Rows without these later columns keep the text, by which some are held out of a fit.
        let absent = r#""fusion":null,"launch":null,"launches":null,"launch_ns":null,"#;
        let columns =
            r#""causal":null,"variant":null,"repeat":null,"clock_mhz":null,"power_w":null,"#;
        serde_json::to_string(&bare).unwrap_or_default().replace(absent, "").replace(columns, "")
    }

    /// The prediction for this row. `None` if it is of a server or a step, or lacks a size.
    #[must_use]
    pub fn predict(
        &self,
        context: &Context<'_>,
        topology: Option<&Topology>,
    ) -> Option<Prediction> {
        match self.kind {
            MeasurementKind::Serving | MeasurementKind::Step => None,
            MeasurementKind::Collective => {
                let op: collective::Op = self.op.as_deref()?.parse().ok()?;
                let topology = topology?;
                let ranks = f64::from(self.gpus?);
                if ranks < 2.0 || !topology.joins(ranks) {
                    return None;
                }
                let time =
                    collective::predict(op, self.bytes?, ranks, topology, context.calibration);
                Some(Prediction::Collective(time))
            }
            MeasurementKind::Kernel => {
                let time = self.kernel(context)?;
                let is_repeated = self.repeat == Some(Repeat::Sustained);
                let limit = context.calibration.filter(|_| is_repeated);
                let limit = limit.and_then(|calibration| calibration.sustained(time.work.math));
                Some(Prediction::Kernel(limit.map_or(time, |limit| time.repeated(limit))))
            }
        }
    }

    fn kernel(&self, context: &Context<'_>) -> Option<KernelTime> {
        let dtype = self.dtype?;
        match self.op_kind()? {
            OpKind::Gemm => {
                let gemm = Gemm::new(self.m?, self.n?, self.k?, dtype);
                Some(Gemm { batch: self.batch.unwrap_or(1.0), ..gemm }.time(context))
            }
            OpKind::QuantizedGemm => {
                Some(QuantizedGemm::new(self.m?, self.n?, self.k?, dtype).time(context))
            }
            OpKind::AttentionPrefill | OpKind::AttentionDecode => {
                let activations = if dtype.bits() < 16 { Dtype::Bf16 } else { dtype };
                let heads = self.heads?;
                let kv_heads = self.kv_heads.unwrap_or(heads);
                let mut attention = Attention::new(heads, kv_heads, self.head_dim?, activations);
                attention.kv_dtype = dtype;
                attention.batch = self.batch?;
                attention.queries = self.queries?;
                attention.keys = self.keys?;
                attention.causal = self.causal.unwrap_or(true);
                Some(attention.time(context))
            }
            OpKind::GroupedGemm => {
                Some(grouped(&products(self.groups.as_deref()?, dtype)?, context))
            }
            // They are measured in steps.
            OpKind::EagerModule => None,
            op => {
                let mut work = KernelWork::ideal(op, MathKind::Fp32, 0.0, self.bytes?);
                work.set_rows(self.m.unwrap_or(0.0), self.n.unwrap_or(0.0), dtype);
                Some(work.time(context))
            }
        }
    }

    /// The kind of kernel, by `op` and `variant`.
    fn op_kind(&self) -> Option<OpKind> {
        let kind: OpKind = self.op.as_deref()?.parse().ok()?;
        Some(match self.variant.as_deref() {
            Some("layer_norm") => OpKind::LayerNorm,
            Some("cast") => OpKind::Cast,
            Some("gelu") => OpKind::Activation,
            Some("sum_columns") => OpKind::ColumnReduction,
            Some("sum_all") => OpKind::FullReduction,
            _ => kind,
        })
    }
}

/// The text of [`Measurement::groups`].
#[must_use]
pub fn products_text(groups: &[Gemm]) -> String {
    let text = |gemm: &Gemm| format!("{},{},{}", gemm.m, gemm.n, gemm.k);
    groups.iter().map(text).collect::<Vec<_>>().join(";")
}

/// The products of [`Measurement::groups`]. `None` if the text has another form.
fn products(groups: &str, dtype: Dtype) -> Option<Vec<Gemm>> {
    let product = |text: &str| {
        let sizes: Vec<f64> =
            text.split(',').map(|size| size.trim().parse().ok()).collect::<Option<_>>()?;
        match sizes[..] {
            [m, n, k] if sizes.iter().all(|size| (0.0..=MAX_NUMBER).contains(size)) => {
                Some(Gemm::new(m, n, k, dtype))
            }
            _ => None,
        }
    };
    groups.split(';').map(product).collect()
}

/// The context in which rows are predicted: kernels in a stream, as benchmarks launch them.
#[must_use]
pub fn context<'a>(gpu: &'a Gpu, calibration: Option<&'a crate::Calibration>) -> Context<'a> {
    Context { gpu, calibration, launch: LaunchMode::Stream }
}

/// Reads the CSV.
///
/// # Errors
/// A line is not of this form, or a number is negative or not finite.
pub fn read_csv(text: &[u8]) -> Result<Vec<Measurement>, CsvError> {
    let mut rows = Vec::new();
    for (at, row) in csv::Reader::from_reader(text).deserialize::<Measurement>().enumerate() {
        let line = at as u64 + 2;
        let row = row.map_err(|error| CsvError { line, cause: error.to_string() })?;
        match row.numbers().find(|(_, value)| !(0.0..=MAX_NUMBER).contains(value)) {
            Some((name, value)) => {
                let cause = format!("{name} is {value}; it must be 0 to {MAX_NUMBER:e}");
                return Err(CsvError { line, cause });
            }
            None => rows.push(row),
        }
    }
    Ok(rows)
}

/// Writes the CSV.
///
/// # Errors
/// A field cannot be written.
pub fn write_csv(rows: &[Measurement]) -> Result<Vec<u8>, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))
}

impl Measurement {
    /// All numbers with their names.
    fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> + use<> {
        [
            ("m", self.m),
            ("n", self.n),
            ("k", self.k),
            ("batch", self.batch),
            ("queries", self.queries),
            ("keys", self.keys),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("clock_mhz", self.clock_mhz),
            ("power_w", self.power_w),
            ("bytes", self.bytes),
            ("input", self.input),
            ("output", self.output),
            ("concurrency", self.concurrency),
            ("launches", self.launches),
            ("launch_ns", self.launch_ns),
            ("time_ns", self.time_ns),
            ("ttft_ns", self.ttft_ns),
            ("tpot_ns", self.tpot_ns),
            ("output_tokens_per_s_gpu", self.output_tokens_per_s_gpu),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_a_csv() {
        let mut row = Measurement::new(MeasurementKind::Kernel, "a,\"b\".json", "h200");
        row.op = Some("gemm".into());
        row.dtype = Some(Dtype::Nvfp4);
        (row.m, row.n, row.k, row.time_ns) = (Some(1.0), Some(2.0), Some(3.0), Some(4.5));
        let mut other = Measurement::new(MeasurementKind::Serving, "x", "b200");
        (other.tp, other.dp_attention) = (Some(8), Some(true));
        let rows = vec![row, other];
        assert_eq!(read_csv(&write_csv(&rows).unwrap()).unwrap(), rows);
    }

    #[test]
    fn a_group_is_predicted_as_one_launch() {
        let gpu = crate::hw::find("b200").unwrap().gpu().unwrap();
        let context = context(&gpu, None);
        let groups = [192.0, 320.0].map(|m| Gemm::new(m, 3072.0, 4096.0, Dtype::Nvfp4));
        let mut row = Measurement::new(MeasurementKind::Kernel, "a", "b200");
        (row.op, row.dtype) = (Some("grouped_gemm".into()), Some(Dtype::Nvfp4));
        row.groups = Some(products_text(&groups));
        assert_eq!(row.groups.as_deref(), Some("192,3072,4096;320,3072,4096"));
        let bound = row.predict(&context, None).unwrap().bound_ns();
        assert!((bound - 2406.0).abs() < 0.5, "{bound}");
        for wrong in ["", "1,2", "1,2,3;", "1,2,x", "1,2,-3", "1,2,NaN"] {
            row.groups = Some(wrong.into());
            assert_eq!(row.predict(&context, None), None, "{wrong}");
        }
        (row.op, row.dtype) = (Some("elementwise".into()), Some(Dtype::Fp32));
        row.bytes = Some(7.68e6);
        assert_eq!(row.predict(&context, None).unwrap().bound_ns(), 1000.0);
    }

    #[test]
    fn bad_lines_are_named() {
        let row = Measurement::new(MeasurementKind::Kernel, "a", "h200");
        let text = String::from_utf8(write_csv(&[row]).unwrap()).unwrap();
        let cut = text.replace("kernel,", "colonel,");
        assert!(read_csv(cut.as_bytes()).unwrap_err().to_string().starts_with("line 2"));
        let unknown = text.replace("ttft_ns", "ttft_ms");
        assert!(read_csv(unknown.as_bytes()).is_err());
    }
}
