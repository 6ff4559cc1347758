//! Measured efficiencies, as `rgpu model fit` writes them and predictions read them.

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
    /// The fits of kernels, by kind and format.
    #[serde(default)]
    pub kernel: Vec<KernelFit>,
    /// The fits of collectives, by name and number of GPUs.
    #[serde(default)]
    pub collective: Vec<CollectiveFit>,
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
    /// The errors on the rows that were fitted.
    pub train: Errors,
    /// The errors on the rows that were held out.
    pub test: Errors,
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
        let factor = |errors: &Errors| match (errors.measured_over_predicted, end) {
            (Some([fast, _]), LikelyEnd::Fast) => fast,
            (Some([_, slow]), LikelyEnd::Slow) => slow,
            (None, _) => 1.0,
        };
        let mut shifted = self.clone();
        for fit in &mut shifted.kernel {
            let factor = factor(&fit.test);
            let efficiency = &mut fit.efficiency;
            efficiency.compute /= factor;
            efficiency.memory /= factor;
            efficiency.launch_ns = efficiency.launch_ns.map(|ns| ns * factor);
            efficiency.quantize = efficiency.quantize.map(|share| share / factor);
            efficiency.block_ns = efficiency.block_ns.map(|ns| ns * factor);
            efficiency.softmax = efficiency.softmax.map(|share| share * factor);
        }
        for fit in &mut shifted.collective {
            let factor = factor(&fit.test);
            for regime in &mut fit.regimes {
                regime.alpha_ns *= factor;
                regime.bandwidth /= factor;
            }
        }
        shifted
    }

    /// The efficiencies for a kernel. `None` if this kind was not measured, or only at other sizes.
    #[must_use]
    pub fn efficiency(
        &self,
        op: OpKind,
        math: MathKind,
        flops: f64,
        bytes: f64,
    ) -> Option<Efficiency> {
        let is_inside = |[least, most]: [f64; 2], value: f64| value >= least && value <= most;
        let of = |op: OpKind| {
            let is_same = |fit: &&KernelFit| !op.has_products() || fit.dtype.math() == math;
            self.kernel.iter().filter(|fit| fit.op == op).find(is_same)
        };
        // Without steps to fit, the kernels of an eager module are as elementwise kernels.
        let fit = match op {
            OpKind::EagerModule => of(op).or_else(|| of(OpKind::Elementwise))?,
            op => of(op)?,
        };
        (is_inside(fit.flops, flops) && is_inside(fit.bytes, bytes)).then_some(fit.efficiency)
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
