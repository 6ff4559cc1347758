//! Measured efficiencies, as `rgpu model fit` writes them and predictions read them.

mod shipped;

pub use shipped::shipped;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Dtype;
use crate::dtype::MathKind;
use crate::kernel::OpKind;

/// The schema of a calibration file.
pub const SCHEMA: &str = "rgpu.calibration/1";

/// A calibration file: fits of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Name and version of this schema: `rgpu.calibration/1`.
    pub schema: String,
    /// The GPU's name in the catalogue.
    pub gpu: String,
    /// Where the rows come from. Absent in a fit of the user's own rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<CalibrationSource>,
    /// The fits of kernels, by kind and format.
    #[serde(default)]
    pub kernel: Vec<KernelFit>,
    /// The fits of collectives, by name and number of GPUs.
    #[serde(default)]
    pub collective: Vec<CollectiveFit>,
    /// The fits of products that are repeated until the power limit acts, by format.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sustained: Vec<SustainedFit>,
    /// The end of the likely range at which kernels are predicted; `None` for the prediction itself.
    #[serde(skip)]
    pub end: Option<LikelyEnd>,
}

/// Where the rows of a shipped calibration come from.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrationSource {
    /// Who measured them, with what.
    pub title: String,
    /// The address of the rows.
    pub url: Option<String>,
    /// The licence of the rows. The calibration has none of them, only what was fitted to them.
    pub license: String,
    /// The day of the measurement or of the reading, as YYYY-MM-DD.
    pub date: String,
    /// The GPU whose shares these are, where no rows of this one are known.
    pub borrowed_from: Option<String>,
}

/// The rate of products that are repeated until the power limit acts.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SustainedFit {
    /// The format of the factors.
    pub dtype: Dtype,
    /// The share of the compute peak that the power limit allows.
    pub compute: f64,
    /// The median SM clock of products that the limit slows, in MHz.
    pub clock_mhz: Option<f64>,
    /// The errors on the fitted rows.
    pub errors: Errors,
}

/// The fractions of the peaks that a kernel reaches.
#[serde_with::skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Efficiency {
    /// The fraction of the compute peak, above 0 and at most 1.
    pub compute: f64,
    /// The fraction of HBM's bandwidth, above 0 and at most 1.
    pub memory: f64,
    /// The time that a launch adds, in ns. `None` uses the stated time.
    pub launch_ns: Option<f64>,
    /// The fraction of HBM's bandwidth that the quantization of activations reaches. `None` if
    /// this kind of kernel quantizes nothing.
    pub quantize: Option<f64>,
    /// The time of an SM that each row of the quantization, a block, takes besides its bytes, in
    /// ns.
    pub block_ns: Option<f64>,
    /// The share of the softmax's time that the products do not hide. `None` if this kind of
    /// kernel has no softmax.
    pub softmax: Option<f64>,
    /// The parameters of the rows of a norm or a reduction. `None` if only bytes count.
    pub rows: Option<RowEfficiency>,
    /// The parameters of a product's tiles. `None` if the kernel has none.
    pub tiles: Option<TileEfficiency>,
    /// The exponent p of (a^p + b^p)^(1/p), the time of products and of HBM traffic that overlap.
    /// `None`: the larger of both.
    pub overlap: Option<f64>,
    /// How the logarithm of the time changes with the sizes, by `kernel::features`.
    pub trend: Option<Trend>,
}

/// What the tiles of a product cost beside their FLOPs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TileEfficiency {
    /// The share of shared memory's rate at which a tile's operands arrive.
    pub load: f64,
    /// The time that each wave of tiles adds, in ns.
    pub wave_ns: f64,
    /// The time of the second kernel, which adds the parts of a split product, in ns.
    pub split_ns: f64,
    /// The share of these rates that products reach whose rows are not aligned to 16 bytes.
    pub misaligned: f64,
}

/// What the rows of a kernel that only moves bytes cost beside their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RowEfficiency {
    /// The time of each row, in ns.
    pub row_ns: f64,
    /// The time that each element adds to its row, in ns.
    pub element_ns: f64,
    /// Number of rows that an SM computes at once.
    pub at_once: f64,
    /// The share of these rates that rows reach which are not aligned to 16 bytes.
    pub misaligned: f64,
}

/// The number of features of a [`Trend`].
pub const FEATURES: usize = 8;

/// Weights of a kernel's features; 0 for those that do not matter.
pub type Trend = [f64; FEATURES];

/// The range in which 80 % of the times of rows lie that their fit did not see.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LikelyRange {
    /// How the logarithm of the errors' size changes with the sizes, by `kernel::features`.
    pub spread: Trend,
    /// The 10th and the 90th percentile of ln(measured / predicted), in units of that size.
    pub quantiles: [f64; 2],
    /// What a borrowed range is wider by at each end, as ln(measured / predicted).
    #[serde(default)]
    pub margin: f64,
}

/// The errors' size is never taken to be outside of these, as ln(measured / predicted).
const SPREAD_BOUNDS: (f64, f64) = (0.01, 1.0);

impl LikelyRange {
    /// The errors' size at these sizes, as ln(measured / predicted).
    #[must_use]
    pub fn spread_at(spread: &Trend, features: &[f64; FEATURES]) -> f64 {
        let ln: f64 = spread.iter().zip(features).map(|(weight, feature)| weight * feature).sum();
        ln.exp().clamp(SPREAD_BOUNDS.0, SPREAD_BOUNDS.1)
    }

    /// The time at one end, over the prediction.
    fn factor(&self, end: LikelyEnd, features: &[f64; FEATURES]) -> f64 {
        let size = Self::spread_at(&self.spread, features);
        let ln = match end {
            LikelyEnd::Fast => self.quantiles[0] * size - self.margin,
            LikelyEnd::Slow => self.quantiles[1] * size + self.margin,
        };
        ln.exp()
    }
}

impl Efficiency {
    /// Full peak and full bandwidth, with the stated launch time.
    pub const PERFECT: Self = Self {
        compute: 1.0,
        memory: 1.0,
        launch_ns: None,
        quantize: None,
        block_ns: None,
        softmax: None,
        rows: None,
        tiles: None,
        overlap: None,
        trend: None,
    };
}

/// The errors of a fit, as fractions: 0.1 is 10 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Errors {
    /// Number of rows.
    pub n: usize,
    /// The mean of |predicted − measured| / measured.
    pub mape: f64,
    /// The median of |predicted − measured| / measured.
    pub median: f64,
    /// The 90th percentile of |predicted − measured| / measured.
    pub p90: f64,
    /// The mean of (predicted − measured) / measured: negative if predictions are too fast.
    pub bias: f64,
    /// The 10th and the 90th percentile of measured / predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_over_predicted: Option<[f64; 2]>,
}

impl Errors {
    /// Measured over predicted at one end of the range; 1 if it is not known.
    fn factor(&self, end: LikelyEnd) -> f64 {
        match (self.measured_over_predicted, end) {
            (Some([fast, _]), LikelyEnd::Fast) => fast,
            (Some([_, slow]), LikelyEnd::Slow) => slow,
            (None, _) => 1.0,
        }
    }
}

/// An end of the range in which 80 % of the held-out rows lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LikelyEnd {
    /// The 10th percentile: 90 % took longer.
    Fast,
    /// The 90th percentile: 10 % took longer.
    Slow,
}

/// The fit of one kind of kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelFit {
    /// The kind of kernel.
    pub op: OpKind,
    /// The format of its factors.
    pub dtype: Dtype,
    /// The fractions of the peaks that fit the measured times best.
    pub efficiency: Efficiency,
    /// Parameters that lie on their bound: the data do not determine them.
    pub active_bounds: Vec<String>,
    /// The FLOPs of the rows, least and most. Outside, this fit is not used.
    pub flops: [f64; 2],
    /// The bytes of the rows, least and largest.
    pub bytes: [f64; 2],
    /// The range around the prediction. `None` with few rows: that of `test` at all sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely: Option<LikelyRange>,
    /// The errors on the rows that were fitted.
    pub train: Errors,
    /// The errors on the rows that were held out.
    pub test: Errors,
}

impl KernelFit {
    /// The time at one end of the likely range, over the prediction.
    #[must_use]
    pub fn likely_factor(&self, end: LikelyEnd, features: &[f64; FEATURES]) -> f64 {
        match &self.likely {
            Some(likely) => likely.factor(end, features),
            None => self.test.factor(end),
        }
    }
}

/// A range of message sizes with one latency and rate: t = α + V / (B · share).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Regime {
    /// The least and the largest size in bytes.
    pub bytes: [f64; 2],
    /// The time of an empty message in ns.
    pub alpha_ns: f64,
    /// The share of the link's rate, above 0 and at most 1.
    pub bandwidth: f64,
}

/// The fit of one collective on one number of GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectiveFit {
    /// Its name, for example `all_reduce`.
    pub op: String,
    /// Number of GPUs.
    pub gpus: u32,
    /// Message sizes with their own parameters, smallest first.
    pub regimes: Vec<Regime>,
    /// Parameters that lie on their bound.
    pub active_bounds: Vec<String>,
    /// The errors on the rows that were fitted.
    pub train: Errors,
    /// The errors on the rows that were held out.
    pub test: Errors,
}

/// Why a text is not a calibration.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// The text is not TOML, or has unknown or missing keys.
    #[error("the calibration cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// The schema is of another version.
    #[error("the calibration's schema is `{0}`; this rgpu reads `{SCHEMA}`")]
    Schema(String),
    /// A number is not in the range that a fit can give.
    #[error("`{what}` of the calibration is {value}; it must be above 0 and at most 1")]
    Efficiency {
        /// The name of the number.
        what: String,
        /// The number.
        value: f64,
    },
}

impl Calibration {
    /// Where the efficiencies come from, as a sentence. `None` for the user's own fit.
    #[must_use]
    pub fn source_text(&self) -> Option<String> {
        let source = self.source.as_ref()?;
        Some(match &source.borrowed_from {
            Some(from) => format!(
                "no measured rows of {} ship with rgpu; the efficiencies are those of {from} ({}), \
                 with a wider interval",
                self.gpu, source.title
            ),
            None => format!("efficiencies fitted on {} ({})", source.date, source.title),
        })
    }

    /// Reads a calibration file.
    ///
    /// # Errors
    /// The text is not of this form or version, or an efficiency is above 1.
    pub fn parse(text: &str) -> Result<Self, CalibrationError> {
        let calibration: Self = toml::from_str(text)?;
        if calibration.schema != SCHEMA {
            return Err(CalibrationError::Schema(calibration.schema));
        }
        let kernels = calibration.kernel.iter().flat_map(|fit| {
            let name = fit.op.name();
            [
                (format!("{name}.compute"), fit.efficiency.compute),
                (format!("{name}.memory"), fit.efficiency.memory),
                (format!("{name}.quantize"), fit.efficiency.quantize.unwrap_or(1.0)),
                (format!("{name}.softmax"), fit.efficiency.softmax.unwrap_or(1.0)),
            ]
        });
        let collectives = calibration.collective.iter().flat_map(|fit| {
            fit.regimes.iter().map(|regime| (format!("{}.bandwidth", fit.op), regime.bandwidth))
        });
        match kernels.chain(collectives).find(|(_, value)| !(*value > 0.0 && *value <= 1.0)) {
            Some((what, value)) => Err(CalibrationError::Efficiency { what, value }),
            None => Ok(calibration),
        }
    }

    /// This calibration with all its times at one end of the likely range. Where a time is a sum,
    /// its parts are at the same end: errors of one kind of kernel go together.
    #[must_use]
    pub fn at(&self, end: LikelyEnd) -> Self {
        let mut shifted = self.clone();
        shifted.end = Some(end);
        for fit in &mut shifted.collective {
            let factor = fit.test.factor(end);
            for regime in &mut fit.regimes {
                regime.alpha_ns *= factor;
                regime.bandwidth /= factor;
            }
        }
        shifted
    }

    /// This calibration at both ends of the likely range, the fast one first.
    #[must_use]
    pub fn ends(&self) -> [Self; 2] {
        [LikelyEnd::Fast, LikelyEnd::Slow].map(|end| self.at(end))
    }

    /// The fit for a kernel. `None` if this kind was not measured, or only at other sizes.
    #[must_use]
    pub fn fit_at(&self, op: OpKind, math: MathKind, flops: f64, bytes: f64) -> Option<&KernelFit> {
        let is_inside = |[least, most]: [f64; 2], value: f64| value >= least && value <= most;
        let fit = self.fit_of(op, math)?;
        let has_flops = !op.has_products() || is_inside(fit.flops, flops);
        (has_flops && is_inside(fit.bytes, bytes)).then_some(fit)
    }

    /// The rate of repeated products of this arithmetic under the power limit.
    #[must_use]
    pub fn sustained(&self, math: MathKind) -> Option<&SustainedFit> {
        self.sustained.iter().find(|fit| fit.dtype.math() == math)
    }

    /// The fit of a kind of kernel, at any size. Of several types with the same arithmetic, such as
    /// bf16 and fp16, the one with the most rows counts.
    #[must_use]
    pub fn fit_of(&self, op: OpKind, math: MathKind) -> Option<&KernelFit> {
        let of = |op: OpKind| {
            let is_same = |fit: &&KernelFit| !op.has_products() || fit.dtype.math() == math;
            let fits = self.kernel.iter().filter(|fit| fit.op == op).filter(is_same);
            fits.max_by_key(|fit| fit.train.n)
        };
        // Without steps to fit, the kernels of an eager module are as elementwise kernels.
        match op {
            OpKind::EagerModule => of(op).or_else(|| of(OpKind::Elementwise)),
            op => of(op),
        }
    }

    /// The parameters for a collective. `None` if it was not measured, or only at other sizes.
    #[must_use]
    pub fn collective(&self, op: &str, gpus: u32, bytes: f64) -> Option<&Regime> {
        let fit = self.collective.iter().find(|fit| fit.op == op && fit.gpus == gpus)?;
        let least = fit.regimes.first()?.bytes[0];
        // Between two regimes the larger one counts.
        fit.regimes.iter().find(|regime| bytes >= least && bytes <= regime.bytes[1])
    }
}
