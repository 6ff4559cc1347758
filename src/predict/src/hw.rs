//! GPUs: every number with its unit, kind and source.
//!
//! [`Hardware`] is a file as it was written. [`Gpu`] has the few numbers that predictions need, in
//! base units: one direction, dense, bytes and FLOP a second.

pub mod catalogue;
pub mod check;
pub mod host;
pub mod unit;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use catalogue::{UnknownGpu, builtin_gpus, find, for_device};
pub use check::{Problem, check};
pub use unit::{Quantity, Unit};

use crate::dtype::{Dtype, MathKind};

/// The schema of a hardware file.
pub const SCHEMA: &str = "rgpu.hardware/1";

/// A hardware file.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Name and version of this schema: `rgpu.hardware/1`.
    pub schema: String,
    /// The name that `--gpu` takes.
    pub id: String,
    /// The product's name.
    pub name: String,
    /// `nvidia` or `amd`.
    pub vendor: String,
    /// The compute capability without its dot, for example 90. Absent for other vendors.
    pub sm: Option<u32>,
    /// The sources of the numbers, by the name that figures use.
    pub sources: BTreeMap<String, Source>,
    /// Number of SMs or compute units.
    pub processors: Figure,
    /// The clock at which the peaks are stated.
    pub clock: Option<Figure>,
    /// Number of GPUs that NVLink joins: those of a node or rack.
    pub domain: Figure,
    /// The peak rates by format.
    pub compute: Vec<Peak>,
    /// The memories, from registers outwards.
    pub memory: Vec<Memory>,
    /// The links of one GPU, by kind.
    #[serde(default)]
    pub link: Vec<Link>,
}

/// The source of numbers.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The title of the document and the position in it.
    pub title: String,
    /// The address of the document.
    pub url: Option<String>,
    /// The day it was read, as YYYY-MM-DD.
    pub date: String,
    /// A remark for the reader of the file.
    pub note: Option<String>,
}

/// How a number was obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FigureKind {
    /// Stated by the source.
    #[default]
    Stated,
    /// Measured by the source.
    Measured,
    /// Computed from numbers of the source.
    Derived,
}

/// A number with its unit and source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The number, in `unit`.
    pub value: f64,
    /// The unit of the value.
    pub unit: Unit,
    /// How it was obtained.
    #[serde(default)]
    pub kind: FigureKind,
    /// The name of its source, a key of `sources`.
    pub source: String,
    /// A remark for the reader of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Whether a rate needs zeros in a pattern of two of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sparsity {
    /// For all matrices.
    Dense,
    /// Only with structured zeros.
    Sparse,
}

/// The units that compute products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ComputePath {
    /// Tensor cores or matrix cores.
    Tensor,
    /// The vector units.
    Vector,
}

/// A peak rate.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Peak {
    /// The number format of the factors.
    pub dtype: Dtype,
    /// The units that reach this rate.
    pub path: ComputePath,
    /// Whether the rate needs structured zeros.
    pub sparsity: Sparsity,
    /// The number, in `unit`.
    pub value: f64,
    /// The unit of the value.
    pub unit: Unit,
    /// The clock of this rate in MHz, if it is not the file's.
    pub clock_mhz: Option<f64>,
    /// How it was obtained.
    #[serde(default)]
    pub kind: FigureKind,
    /// The name of its source, a key of `sources`.
    pub source: String,
    /// A remark for the reader of the file.
    pub note: Option<String>,
}

/// A level of memory.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// The register files of the SMs.
    Registers,
    /// Shared memory, or the LDS.
    Shared,
    /// The L2 cache.
    L2,
    /// A memory-side cache.
    L3,
    /// The GPU's own memory.
    Hbm,
    /// The host's memory, behind the host link.
    Host,
    /// Memory of other GPUs, behind NVLink.
    Pool,
    /// An NVMe drive of the host.
    Nvme,
}

/// The size and speed of a level of memory.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The level of the hierarchy, e.g. `l2` or `hbm`.
    pub tier: Tier,
    /// The capacity. Absent if not known.
    pub capacity: Option<Figure>,
    /// The read bandwidth. Absent if not known.
    pub bandwidth: Option<Figure>,
}

/// The two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkKind {
    /// GPUs of one node or rack: NVLink, or Infinity Fabric.
    Nvlink,
    /// The GPU and its host: PCIe, or NVLink-C2C.
    Host,
    /// The GPU's share of the network adapters.
    Nic,
}

/// Whether a rate counts one direction or adds both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// One direction.
    One,
    /// The sum of both directions.
    Both,
}

/// The links of one kind of one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The two ends of the link.
    pub kind: LinkKind,
    /// The directions that the number counts.
    pub direction: Direction,
    /// The number in `unit`, for all links of this kind together.
    pub value: f64,
    /// The unit of the value.
    pub unit: Unit,
    /// The name of its source, a key of `sources`.
    pub source: String,
    /// A remark for the reader of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Why a text is not a hardware file.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// The text is not TOML, or has unknown or missing keys.
    #[error("the hardware file cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// The schema is of another version.
    #[error("the hardware file's schema is `{0}`; this rgpu reads `{SCHEMA}`")]
    Schema(String),
    /// A number that predictions need is missing.
    #[error("`{id}` has no {what}; add it to its file with a source")]
    Missing {
        /// The GPU's name.
        id: String,
        /// The missing number, in words.
        what: &'static str,
    },
}

impl Hardware {
    /// Reads a hardware file.
    ///
    /// # Errors
    /// The text is not of this form or version.
    pub fn parse(text: &str) -> Result<Self, HardwareError> {
        let hardware: Self = toml::from_str(text)?;
        if hardware.schema == SCHEMA {
            Ok(hardware)
        } else {
            Err(HardwareError::Schema(hardware.schema))
        }
    }

    /// The data of a level of memory; `None` if the file has none.
    #[must_use]
    pub fn memory(&self, tier: Tier) -> Option<&Memory> {
        self.memory.iter().find(|memory| memory.tier == tier)
    }

    /// The clock of the peaks in Hz; `None` if the file has none.
    #[must_use]
    pub fn clock_hz(&self) -> Option<f64> {
        self.clock.as_ref().map(|clock| clock.unit.base(clock.value))
    }

    /// The bandwidth of a level of memory in B/s. `None` if it is not known.
    #[must_use]
    pub fn bandwidth(&self, tier: Tier) -> Option<f64> {
        let figure = self.memory(tier)?.bandwidth.as_ref()?;
        let value = figure.unit.base(figure.value);
        match figure.unit {
            Unit::BytesPerClock => Some(value * self.clock_hz()?),
            Unit::BytesPerClockSm => Some(value * self.clock_hz()? * self.processors.value),
            _ => Some(value),
        }
    }

    /// The capacity of a level of memory in bytes. `None` if it is not known.
    #[must_use]
    pub fn capacity(&self, tier: Tier) -> Option<f64> {
        let figure = self.memory(tier)?.capacity.as_ref()?;
        let value = figure.unit.base(figure.value);
        if figure.unit.is_per_sm() { Some(value * self.processors.value) } else { Some(value) }
    }

    /// The rate of all links of a kind in one direction, in B/s.
    #[must_use]
    pub fn link(&self, kind: LinkKind) -> Option<f64> {
        let link = self.link.iter().find(|link| link.kind == kind)?;
        let value = link.unit.base(link.value);
        Some(if link.direction == Direction::Both { value / 2.0 } else { value })
    }

    /// The dense peak of a kind of product in FLOP/s, with its entry.
    #[must_use]
    pub fn peak(&self, math: MathKind) -> Option<(f64, &Peak)> {
        let is_wanted = |peak: &&Peak| {
            peak.sparsity == Sparsity::Dense
                && peak.dtype.math() == math
                && (peak.path == ComputePath::Tensor || math == MathKind::Fp32)
        };
        self.compute.iter().find(is_wanted).map(|peak| (peak.unit.base(peak.value), peak))
    }

    /// FLOP per byte of HBM traffic above which products limit a kernel.
    #[must_use]
    pub fn ridge(&self, math: MathKind) -> Option<f64> {
        Some(self.peak(math)?.0 / self.bandwidth(Tier::Hbm)?)
    }

    /// The text that a term shows as its source.
    #[must_use]
    pub fn source_text(&self, name: &str) -> String {
        match self.sources.get(name) {
            Some(source) => format!("{} [{}: {}, {}]", source.title, self.id, name, source.date),
            None => name.to_owned(),
        }
    }

    /// The numbers that predictions need.
    ///
    /// # Errors
    /// HBM has no bandwidth or capacity, or no dense peak is known.
    pub fn gpu(&self) -> Result<Gpu, HardwareError> {
        let missing = |what| HardwareError::Missing { id: self.id.clone(), what };
        let mut peaks = [0.0; MathKind::COUNT];
        let kinds = [
            MathKind::Fp32,
            MathKind::Tf32,
            MathKind::Half,
            MathKind::Fp8,
            MathKind::Int8,
            MathKind::Fp4,
        ];
        for math in kinds {
            peaks[math.index()] = self.peak(math).map_or(0.0, |(rate, _)| rate);
        }
        if peaks[MathKind::Half.index()] == 0.0 {
            return Err(missing("dense bf16 or fp16 peak"));
        }
        let bandwidth = |tier| self.bandwidth(tier);
        Ok(Gpu {
            processors: self.processors.value,
            domain: self.domain.value,
            clock_hz: self.clock_hz(),
            peaks,
            hbm_bytes: self.capacity(Tier::Hbm).ok_or_else(|| missing("capacity of HBM"))?,
            hbm: bandwidth(Tier::Hbm).ok_or_else(|| missing("bandwidth of HBM"))?,
            shared: bandwidth(Tier::Shared),
            nvlink: self.link(LinkKind::Nvlink),
            host: bandwidth(Tier::Host).or_else(|| self.link(LinkKind::Host)),
            nic: self.link(LinkKind::Nic),
            nvme: bandwidth(Tier::Nvme),
            host_bytes: self.capacity(Tier::Host),
            nvme_bytes: self.capacity(Tier::Nvme),
        })
    }
}

/// The numbers of a GPU that predictions need, in base units. A rate that is 0 or absent is not
/// known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// Number of SMs or compute units.
    pub processors: f64,
    /// Number of GPUs that NVLink joins.
    pub domain: f64,
    /// The clock of the peaks, in Hz.
    pub clock_hz: Option<f64>,
    /// Dense peaks in FLOP/s by [`MathKind::index`]; 0 if the GPU has no such products.
    pub peaks: [f64; MathKind::COUNT],
    /// HBM capacity, in bytes.
    pub hbm_bytes: f64,
    /// HBM bandwidth, in B/s.
    pub hbm: f64,
    /// Shared-memory bandwidth of all SMs together, in B/s.
    pub shared: Option<f64>,
    /// NVLink rate in one direction, in B/s.
    pub nvlink: Option<f64>,
    /// The link to the host, one way, in B/s.
    pub host: Option<f64>,
    /// Network rate of one GPU in one direction, in B/s.
    pub nic: Option<f64>,
    /// Read bandwidth of the drives, in B/s.
    pub nvme: Option<f64>,
    /// The host's memory for one GPU in bytes.
    pub host_bytes: Option<f64>,
    /// Capacity of the drives, for one GPU, in bytes.
    pub nvme_bytes: Option<f64>,
}

impl Gpu {
    /// The arithmetic of `dtype` on this GPU: its own kind, or FP16 after widening where the
    /// tensor cores do not know it.
    #[must_use]
    pub fn math(&self, dtype: Dtype) -> MathKind {
        let own = dtype.math();
        if self.peaks[own.index()] > 0.0 { own } else { MathKind::Half }
    }

    /// The dense peak for `dtype` in FLOP/s.
    #[must_use]
    pub fn peak(&self, dtype: Dtype) -> f64 {
        self.peaks[self.math(dtype).index()]
    }

    /// This GPU with its products at another clock. Memory keeps its rate.
    #[must_use]
    pub fn at_clock(mut self, hz: f64) -> Self {
        if let Some(specified) = self.clock_hz {
            let ratio = hz / specified;
            self.peaks.iter_mut().for_each(|peak| *peak *= ratio);
            self.shared = self.shared.map(|rate| rate * ratio);
            self.clock_hz = Some(hz);
        }
        self
    }
}
