//! Kernels: their bound, their predicted time, and the terms of it.
//!
//! `bound` = max(FLOPs / peak, bytes / HBM). `time` = max(products with padding and waves, bytes,
//! shared memory) + quantization + launches. All arithmetic is on plain numbers; texts are made
//! only for [`KernelTime::terms`].

pub mod attention;
pub mod gemm;
pub mod launch;
pub mod moe;
pub mod quantized;
pub mod streaming;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use attention::{Attention, AttentionKind};
pub use gemm::Gemm;
pub use launch::{Fusion, LaunchMode};
pub use moe::Experts;
pub use quantized::QuantizedGemm;
pub use streaming::StreamingKernel;

use crate::calibration::{Calibration, Efficiency, FEATURES, SustainedFit, Trend};
use crate::dtype::MathKind;
use crate::hw::{Gpu, Hardware, Tier};
use crate::term::{Input, Term};
use crate::{Dtype, nearest};

/// A kind of kernel. Calibrations keep their efficiencies by it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OpKind {
    /// One matrix product, or several in one launch.
    Gemm,
    /// Many products of different sizes in one launch.
    GroupedGemm,
    /// A kernel that narrows 16-bit activations, and the product of them.
    QuantizedGemm,
    /// Attention of many queries.
    AttentionPrefill,
    /// Attention of one query per sequence.
    AttentionDecode,
    /// A normalization, as RMS norm.
    Norm,
    /// A layer norm, which subtracts the mean.
    LayerNorm,
    /// A softmax over rows.
    Softmax,
    /// A sum or another reduction of each row.
    Reduction,
    /// A sum or another reduction of each column.
    ColumnReduction,
    /// A sum or another reduction of all elements.
    FullReduction,
    /// A copy into another number format.
    Cast,
    /// A function of each element: GELU, exponential.
    Activation,
    /// Rows of a table, by their indices.
    Gather,
    /// Any other kernel that reads and writes its operands once.
    Elementwise,
    /// The small kernels of a module that runs without fusion, inside a step.
    EagerModule,
}

impl OpKind {
    /// All kinds, with their names.
    pub const ALL: &'static [(Self, &'static str)] = &[
        (Self::Gemm, "gemm"),
        (Self::GroupedGemm, "grouped_gemm"),
        (Self::QuantizedGemm, "quantized_gemm"),
        (Self::AttentionPrefill, "attention_prefill"),
        (Self::AttentionDecode, "attention_decode"),
        (Self::Norm, "norm"),
        (Self::LayerNorm, "layer_norm"),
        (Self::Softmax, "softmax"),
        (Self::Reduction, "reduction"),
        (Self::ColumnReduction, "column_reduction"),
        (Self::FullReduction, "full_reduction"),
        (Self::Cast, "cast"),
        (Self::Activation, "activation"),
        (Self::Gather, "gather"),
        (Self::Elementwise, "elementwise"),
        (Self::EagerModule, "eager_module"),
    ];

    /// Whether its time depends on the format of its products. Other kernels only move bytes.
    #[must_use]
    pub fn has_products(self) -> bool {
        matches!(
            self,
            Self::Gemm
                | Self::GroupedGemm
                | Self::QuantizedGemm
                | Self::AttentionPrefill
                | Self::AttentionDecode
        )
    }

    /// The name in flags and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

/// A name that is not a kind of kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{typed}` is not a kernel that can be predicted; the nearest is `{nearest}`")]
pub struct UnknownOp {
    /// The name that was given.
    pub typed: String,
    /// The most similar name.
    pub nearest: &'static str,
}

impl std::str::FromStr for OpKind {
    type Err = UnknownOp;

    fn from_str(text: &str) -> Result<Self, UnknownOp> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind);
        let names = Self::ALL.iter().map(|(_, name)| *name);
        found.ok_or_else(|| UnknownOp {
            typed: text.to_owned(),
            nearest: nearest(text, names).unwrap_or("gemm"),
        })
    }
}

/// The GPU, calibration and launch mode of a prediction.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The GPU to predict for.
    pub gpu: &'a Gpu,
    /// Measured efficiencies; `None` predicts with full efficiency.
    pub calibration: Option<&'a Calibration>,
    /// How kernels are launched.
    pub launch: LaunchMode,
}

impl<'a> Context<'a> {
    /// Kernels of a CUDA graph, without measured efficiencies.
    #[must_use]
    pub fn new(gpu: &'a Gpu) -> Self {
        Self { gpu, calibration: None, launch: LaunchMode::Graph }
    }

    /// The cost of a launch where the tile of a product is chosen, in ns. A calibrated prediction
    /// chooses as its fit did, on kernels in a stream.
    fn launch_ns_of_choice(&self) -> f64 {
        let launch = if self.calibration.is_some() { LaunchMode::Stream } else { self.launch };
        launch.ns()
    }

    /// The efficiencies of a kind of kernel, at any size. `None` if it was not fitted.
    fn fit_of(&self, op: OpKind, math: MathKind) -> Option<Efficiency> {
        self.calibration?.fit_of(op, math).map(|fit| fit.efficiency)
    }
}

/// The work of a kernel: what it must do, and what its shape adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelWork {
    /// The kind of kernel.
    pub op: OpKind,
    /// The arithmetic of its products.
    pub math: MathKind,
    /// FLOPs that the result needs.
    pub flops: f64,
    /// Bytes that must cross HBM.
    pub bytes: f64,
    /// FLOPs with those on padding, at least `flops`.
    pub padded_flops: f64,
    /// Waves rounded up, over exact waves: at least 1.
    pub wave_factor: f64,
    /// Waves of tiles, rounded up; 0 if there are none.
    pub waves: f64,
    /// Bytes that cross shared memory, 0 if not known.
    pub shared_bytes: f64,
    /// Bytes that this way of computing adds to HBM's traffic.
    pub added_bytes: f64,
    /// Exponentials of a softmax, with those on padding.
    pub exponentials: f64,
    /// Rows that are quantized first, 0 if there are none.
    pub quantized_rows: f64,
    /// Bytes that the quantization reads and writes, with those of rows that end inside a pass.
    pub quantized_bytes: f64,
    /// Number of launches.
    pub launches: f64,
    /// Rows of the tensor, of the result of a product, or heads of all sequences of an attention;
    /// 0 if not known.
    pub rows: f64,
    /// Elements of a row, or keys of an attention; 0 if not known.
    pub columns: f64,
    /// How far the rows of the operands are from an alignment of 16 bytes: 0, or the number of
    /// halvings, 3 for one of 2 bytes.
    pub misalignment: f64,
    /// Whether elements have 32 bits, in kernels that only move bytes: 1 or 0.
    pub wide: f64,
    /// Whether k is in several parts.
    pub is_split: bool,
    /// The tile that was chosen, for texts; zeros if there is none.
    pub tile: [f64; 3],
}

impl KernelWork {
    /// Work that pads nothing and fills the GPU.
    #[must_use]
    pub fn ideal(op: OpKind, math: MathKind, flops: f64, bytes: f64) -> Self {
        Self {
            op,
            math,
            flops,
            bytes,
            padded_flops: flops,
            wave_factor: 1.0,
            waves: 0.0,
            shared_bytes: 0.0,
            added_bytes: 0.0,
            exponentials: 0.0,
            quantized_rows: 0.0,
            quantized_bytes: 0.0,
            launches: 1.0,
            rows: 0.0,
            columns: 0.0,
            misalignment: 0.0,
            wide: 0.0,
            is_split: false,
            tile: [0.0; 3],
        }
    }

    /// Notes the rows of the tensor of a kernel that only moves bytes.
    pub fn set_rows(&mut self, rows: f64, columns: f64, dtype: Dtype) {
        (self.rows, self.columns) = match self.op {
            OpKind::ColumnReduction => (columns, rows),
            _ => (rows, columns),
        };
        self.misalignment = gemm::halvings_from_16(columns, dtype);
        self.wide = if dtype.bits() == 32 { 1.0 } else { 0.0 };
    }

    /// The numbers that a [`Trend`] weighs.
    #[must_use]
    pub fn features(&self) -> [f64; FEATURES] {
        let of = |value: f64, unit: f64| {
            if value > 0.0 { (value / unit).ln().clamp(-8.0, 8.0) } else { 0.0 }
        };
        let (size, columns, rows) =
            (of(self.bytes, 1e6), of(self.columns, 1024.0), of(self.rows, 1024.0));
        [
            1.0,
            size,
            size * size / 10.0,
            columns,
            columns * columns / 10.0,
            rows,
            rows * rows / 10.0,
            if self.op.has_products() {
                self.misalignment
            } else {
                self.wide * size.max(0.0).tanh()
            },
        ]
    }

    fn trend(&self, trend: &Trend) -> f64 {
        let pairs = trend.iter().zip(self.features());
        pairs.map(|(weight, feature)| weight * feature).sum::<f64>().clamp(-1.5, 1.5).exp()
    }

    /// The time of all exponentials, in ns; 0 if the clock is not known.
    fn softmax_ns(&self, gpu: &Gpu) -> f64 {
        if self.exponentials == 0.0 {
            return 0.0;
        }
        let rate =
            gpu.clock_hz.unwrap_or(f64::INFINITY) * gpu.processors * attention::EXP_PER_CLOCK;
        self.exponentials / rate * 1e9 * self.wave_factor
    }

    /// Its bound and predicted time on one GPU.
    #[must_use]
    pub fn time(&self, context: &Context<'_>) -> KernelTime {
        let gpu = context.gpu;
        let peak = gpu.peaks[self.math.index()];
        let calibration = context.calibration;
        let fit = calibration.and_then(|c| c.fit_at(self.op, self.math, self.flops, self.bytes));
        let efficiency = fit.map(|fit| fit.efficiency);
        let used = efficiency.unwrap_or(Efficiency::PERFECT);
        let end = fit.zip(calibration.and_then(|calibration| calibration.end));
        let of_end = end.map_or(1.0, |(fit, end)| fit.likely_factor(end, &self.features()));
        let seconds = 1e9;
        let compute = |flops: f64| if peak > 0.0 { flops / peak * seconds } else { 0.0 };
        let wave_ns = compute(self.padded_flops) * self.wave_factor;
        let shared_ns = gpu.shared.map_or(0.0, |rate| self.shared_bytes / rate * seconds);
        let launch_ns = efficiency.and_then(|e| e.launch_ns).unwrap_or(context.launch.ns());
        let (mut waves_ns, mut load, mut aligned) = (0.0, 1.0, 1.0);
        let mut memory_share = used.memory;
        let mut launches_ns = launch_ns * self.launches;
        if let Some(tiles) = used.tiles {
            if self.misalignment > 0.0 {
                aligned = tiles.misaligned;
            }
            load = tiles.load * aligned;
            waves_ns = self.waves * tiles.wave_ns;
            launches_ns = launch_ns + if self.is_split { tiles.split_ns } else { 0.0 };
        }
        if let Some(rows) = used.rows {
            if self.misalignment > 0.0 {
                aligned = rows.misaligned;
            }
            let waves = (self.rows / (gpu.processors * rows.at_once)).max(1.0);
            waves_ns += waves * (rows.row_ns + self.columns * rows.element_ns) / aligned;
            memory_share *= aligned;
        }
        KernelTime {
            work: *self,
            bound_compute_ns: compute(self.flops),
            bound_memory_ns: self.bytes / gpu.hbm * seconds,
            compute_ns: wave_ns / (used.compute * aligned) + waves_ns,
            memory_ns: (self.bytes + self.added_bytes) / gpu.hbm * seconds / memory_share,
            shared_ns: shared_ns * self.wave_factor / load
                + if shared_ns > 0.0 { waves_ns } else { 0.0 },
            softmax_ns: self.softmax_ns(gpu) * used.softmax.unwrap_or(0.0),
            quantize_ns: self.quantized_bytes / gpu.hbm * seconds / used.quantize.unwrap_or(1.0)
                + self.quantized_rows / gpu.processors * used.block_ns.unwrap_or(0.0),
            launch_ns: launches_ns,
            power_ns: 0.0,
            trend: used.trend.map_or(1.0, |trend| self.trend(&trend)) * of_end,
            efficiency: used,
            is_calibrated: efficiency.is_some(),
        }
    }
}

/// The time of products and of HBM traffic that overlap, with the exponent of
/// [`Efficiency::overlap`].
fn overlapped(on_chip: f64, memory: f64, exponent: Option<f64>) -> f64 {
    let (least, most) = if on_chip < memory { (on_chip, memory) } else { (memory, on_chip) };
    match exponent {
        Some(p) if most > 0.0 => most * (1.0 + (least / most).powf(p)).powf(1.0 / p),
        _ => most,
    }
}

/// The bound and the predicted time of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelTime {
    /// The work that was timed.
    pub work: KernelWork,
    /// FLOPs over the peak rate, in ns.
    pub bound_compute_ns: f64,
    /// Bytes over HBM's bandwidth, in ns.
    pub bound_memory_ns: f64,
    /// Time of the products with padding, waves and efficiency, in ns.
    pub compute_ns: f64,
    /// Time of the HBM traffic with added bytes and efficiency, in ns.
    pub memory_ns: f64,
    /// Time of the shared-memory traffic, in ns.
    pub shared_ns: f64,
    /// Time of the softmax that is not hidden behind the products, in ns; 0 without a
    /// calibration.
    pub softmax_ns: f64,
    /// Time of the kernel that quantizes the activations, in ns; 0 if there is none.
    pub quantize_ns: f64,
    /// Time of all launches, in ns.
    pub launch_ns: f64,
    /// Time of the products at the rate that the power limit allows, in ns; 0 for a single call.
    pub power_ns: f64,
    /// The factor by which the fitted times of kernels of such sizes differ from the terms.
    pub trend: f64,
    /// The efficiencies that were used; ones without a calibration.
    pub efficiency: Efficiency,
    /// Whether measured efficiencies were used.
    pub is_calibrated: bool,
}

/// The longest term of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LimitedBy {
    /// The matrix multiplications, with the softmax of an attention.
    Compute,
    /// HBM traffic.
    Memory,
    /// Shared-memory traffic.
    Shared,
    /// The quantization of the activations.
    Quantize,
    /// The overhead of the launches.
    Launch,
    /// The links between GPUs.
    Link,
}

impl KernelTime {
    /// The speed-of-light bound, in ns.
    #[must_use]
    pub fn bound_ns(&self) -> f64 {
        self.bound_compute_ns.max(self.bound_memory_ns)
    }

    /// The predicted time, in ns.
    #[must_use]
    pub fn time_ns(&self) -> f64 {
        let terms = self.longest_ns() + self.quantize_ns + self.launch_ns;
        (terms * self.trend).max(self.bound_ns()).max(self.power_ns)
    }

    /// This kernel, called again and again until the power limit acts.
    #[must_use]
    pub fn repeated(self, sustained: &SustainedFit) -> Self {
        Self { power_ns: self.bound_compute_ns / sustained.compute, ..self }
    }

    /// The time of the terms that overlap: the longest, or more where the overlap was fitted.
    fn longest_ns(&self) -> f64 {
        let on_chip = (self.compute_ns + self.softmax_ns).max(self.shared_ns);
        overlapped(on_chip, self.memory_ns, self.efficiency.overlap)
    }

    /// The longest term of the prediction.
    #[must_use]
    pub fn limited_by(&self) -> LimitedBy {
        let work = (self.compute_ns + self.softmax_ns).max(self.memory_ns).max(self.shared_ns);
        match work {
            work if self.launch_ns > work.max(self.quantize_ns) => LimitedBy::Launch,
            work if self.quantize_ns > work => LimitedBy::Quantize,
            work if work == self.memory_ns => LimitedBy::Memory,
            work if work == self.compute_ns + self.softmax_ns => LimitedBy::Compute,
            _ => LimitedBy::Shared,
        }
    }

    /// The terms of the bound and of the prediction, with formulas and sources.
    #[must_use]
    pub fn terms(&self, hardware: &Hardware, launch: LaunchMode) -> Vec<Term> {
        let work = &self.work;
        let peak = hardware.peak(work.math);
        let peak_source = peak.map(|(_, peak)| hardware.source_text(&peak.source));
        let peak = Input {
            symbol: "P",
            value: peak.map_or(0.0, |(rate, _)| rate),
            unit: "FLOP/s",
            source: peak_source,
        };
        let bandwidth = Input {
            symbol: "B",
            value: hardware.bandwidth(Tier::Hbm).unwrap_or(0.0),
            unit: "B/s",
            source: (hardware.memory(Tier::Hbm).and_then(|memory| memory.bandwidth.as_ref()))
                .map(|figure| hardware.source_text(&figure.source)),
        };
        let computed = Input::computed;
        let longest = (self.compute_ns + self.softmax_ns).max(self.memory_ns).max(self.shared_ns);
        let is_longest = |ns: f64| ns >= longest;
        let calibrated = "calibration";
        let mut terms = vec![
            Term {
                name: "bound_compute",
                ns: self.bound_compute_ns,
                counts: false,
                formula: "F / P",
                inputs: vec![computed("F", work.flops, "FLOP"), peak.clone()],
            },
            Term {
                name: "bound_memory",
                ns: self.bound_memory_ns,
                counts: false,
                formula: "Q / B",
                inputs: vec![computed("Q", work.bytes, "B"), bandwidth.clone()],
            },
            Term {
                name: "compute",
                ns: self.compute_ns,
                counts: is_longest(self.compute_ns + self.softmax_ns),
                formula: "F_padded * w / (P * eta_c)",
                inputs: vec![
                    computed("F_padded", work.padded_flops, "FLOP"),
                    computed("w", work.wave_factor, "waves, rounded up / exact"),
                    peak,
                    Input::with_source("eta_c", self.efficiency.compute, "1", calibrated),
                ],
            },
            Term {
                name: "memory",
                ns: self.memory_ns,
                counts: is_longest(self.memory_ns),
                formula: "(Q + Q_added) / (B * eta_m)",
                inputs: vec![
                    computed("Q", work.bytes, "B"),
                    computed("Q_added", work.added_bytes, "B"),
                    bandwidth.clone(),
                    Input::with_source("eta_m", self.efficiency.memory, "1", calibrated),
                ],
            },
        ];
        if let (Some(rate), true) = (hardware.bandwidth(Tier::Shared), self.shared_ns > 0.0) {
            let figure = hardware.memory(Tier::Shared).and_then(|memory| memory.bandwidth.as_ref());
            let source = figure.map(|f| hardware.source_text(&f.source)).unwrap_or_default();
            terms.push(Term {
                name: "shared_memory",
                ns: self.shared_ns,
                counts: is_longest(self.shared_ns),
                formula: "Q_shared * w / B_shared",
                inputs: vec![
                    computed("Q_shared", work.shared_bytes, "B"),
                    computed("w", work.wave_factor, "waves, rounded up / exact"),
                    Input::with_source("B_shared", rate, "B/s", &source),
                ],
            });
        }
        if self.softmax_ns > 0.0 {
            let clock = hardware.clock_hz().unwrap_or(0.0);
            terms.push(Term {
                name: "softmax",
                ns: self.softmax_ns,
                counts: is_longest(self.compute_ns + self.softmax_ns),
                formula: "N_exp * w / (S * x * f) * s",
                inputs: vec![
                    computed("N_exp", work.exponentials, "exponentials"),
                    computed("w", work.wave_factor, "waves, rounded up / exact"),
                    Input {
                        symbol: "S",
                        value: hardware.processors.value,
                        unit: "SMs",
                        source: Some(hardware.source_text(&hardware.processors.source)),
                    },
                    Input::with_source(
                        "x",
                        attention::EXP_PER_CLOCK,
                        "1/clock",
                        attention::EXP_SOURCE,
                    ),
                    computed("f", clock, "Hz"),
                    Input::with_source(
                        "s",
                        self.efficiency.softmax.unwrap_or(0.0),
                        "1",
                        calibrated,
                    ),
                ],
            });
        }
        if self.quantize_ns > 0.0 {
            let eta = self.efficiency.quantize.unwrap_or(1.0);
            let block_ns = self.efficiency.block_ns.unwrap_or(0.0);
            terms.push(Term {
                name: "quantize",
                ns: self.quantize_ns,
                counts: true,
                formula: "Q_quantize / (B * eta_q) + R / S * tau_b",
                inputs: vec![
                    computed("Q_quantize", work.quantized_bytes, "B"),
                    bandwidth,
                    Input::with_source("eta_q", eta, "1", calibrated),
                    computed("R", work.quantized_rows, "rows, one block each"),
                    computed("S", hardware.processors.value, "SMs"),
                    Input::with_source("tau_b", block_ns, "ns a block", calibrated),
                ],
            });
        }
        let (tau, source) = match self.efficiency.launch_ns {
            Some(tau) => (tau, calibrated),
            None => (launch.ns(), launch::SOURCE),
        };
        terms.push(Term {
            name: "launch",
            ns: self.launch_ns,
            counts: true,
            formula: "n * tau",
            inputs: vec![
                computed("n", work.launches, "launches"),
                Input::with_source("tau", tau, "ns", source),
            ],
        });
        if !self.is_calibrated {
            // An efficiency of 1 is the bound's assumption, not a measurement.
            for input in terms.iter_mut().flat_map(|term| &mut term.inputs) {
                if input.source.as_deref() == Some(calibrated) {
                    input.source = None;
                }
            }
        }
        terms
    }
}

/// Both factors' formats: the wider one decides what the products run on.
pub(crate) fn math_of(gpu: &Gpu, a: Dtype, b: Dtype) -> MathKind {
    gpu.math(if a.bits() >= b.bits() { a } else { b })
}
