//! A hardware file from a datasheet and what `rgpu doctor` found on a host.
//!
//! The datasheet has the peaks, bandwidths and links, which no host tells. The host tells the
//! architecture and the memory that a program really gets, and whether the datasheet is of this
//! GPU.

use serde::Deserialize;

use super::{Figure, FigureKind, Hardware, Memory, Problem, Source, Tier, Unit};

/// The name of the source of what a host told.
const SOURCE: &str = "doctor";
/// The accepted difference of the datasheet's memory to the host's: ECC and the driver take some.
const MAX_CAPACITY_DIFFERENCE: f64 = 0.1;

/// The part of `rgpu doctor --json` that predictions use.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct DoctorReport {
    /// `rgpu.doctor/1`.
    pub schema: String,
    /// The host that was diagnosed.
    pub host: DiagnosedHost,
}

/// A host with its GPUs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct DiagnosedHost {
    /// The driver's version.
    pub driver: Option<String>,
    /// The GPUs of the host, by the driver's index.
    #[serde(default)]
    pub gpus: Vec<DiagnosedGpu>,
}

/// A GPU of a host.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct DiagnosedGpu {
    /// The driver's index.
    pub index: u32,
    /// The product's name, as the driver has it.
    pub name: String,
    /// The compute capability without its dot.
    pub sm: u32,
    /// Memory that the driver reports, in bytes.
    pub memory_bytes: u64,
    /// The highest SM clock in MHz.
    pub max_sm_mhz: Option<u32>,
    /// Whether the GPU is divided, so that its memory is not all there.
    #[serde(default)]
    pub mig: bool,
}

/// Why a diagnosis cannot complete a datasheet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DoctorReportError {
    /// The text is not the output of `rgpu doctor --json`.
    #[error("this is not the output of `rgpu doctor --json`: {0}")]
    Json(String),
    /// The host has no such GPU, or several different ones.
    #[error("{0}")]
    Gpu(String),
}

impl DoctorReport {
    /// Reads the output of `rgpu doctor --json`.
    ///
    /// # Errors
    /// It is not that.
    pub fn parse(text: &str) -> Result<Self, DoctorReportError> {
        let diagnosis: Self = serde_json::from_str(text)
            .map_err(|error| DoctorReportError::Json(error.to_string()))?;
        match diagnosis.schema.as_str() {
            "rgpu.doctor/1" => Ok(diagnosis),
            other => Err(DoctorReportError::Json(format!("its schema is `{other}`"))),
        }
    }

    /// The GPU of this index; without one, the only kind of GPU of the host.
    ///
    /// # Errors
    /// There is none, there are different ones, or it is divided by MIG.
    pub fn gpu(&self, index: Option<u32>) -> Result<&DiagnosedGpu, DoctorReportError> {
        let gpus = &self.host.gpus;
        let found = match index {
            Some(index) => gpus.iter().find(|gpu| gpu.index == index),
            None => gpus.first().filter(|first| gpus.iter().all(|gpu| gpu.name == first.name)),
        };
        let names: Vec<String> =
            gpus.iter().map(|gpu| format!("{} ({})", gpu.index, gpu.name)).collect();
        match found {
            Some(gpu) if gpu.mig => Err(DoctorReportError::Gpu(format!(
                "GPU {} is divided by MIG, so its memory and clocks are not the whole GPU's",
                gpu.index
            ))),
            Some(gpu) => Ok(gpu),
            None if gpus.is_empty() => {
                Err(DoctorReportError::Gpu("the host has no GPU".to_owned()))
            }
            None => Err(DoctorReportError::Gpu(format!(
                "choose one GPU of the host by its index: {}",
                names.join(", ")
            ))),
        }
    }
}

/// Adds what the host told to a datasheet: the compute capability, and the memory that programs
/// get. The second value has contradictions between both.
#[must_use]
pub fn complete(
    mut datasheet: Hardware,
    gpu: &DiagnosedGpu,
    driver: Option<&str>,
    date: &str,
) -> (Hardware, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut report = |place: &str, text: String| {
        problems.push(Problem { place: place.to_owned(), text });
    };
    if let Some(stated) = datasheet.sm.filter(|stated| *stated != gpu.sm) {
        report("sm", format!("the datasheet says {stated}, the host {}", gpu.sm));
    }
    datasheet.sm = Some(gpu.sm);
    let measured = gpu.memory_bytes as f64;
    if let Some(stated) = datasheet.capacity(Tier::Hbm) {
        let difference = (measured / stated - 1.0).abs();
        if difference > MAX_CAPACITY_DIFFERENCE {
            let (stated, measured) = (stated / 1e9, measured / 1e9);
            let text = format!("the datasheet says {stated:.1} GB, the host {measured:.1} GB");
            report("memory.hbm.capacity", text);
        }
    }
    if let (Some(stated), Some(highest)) = (datasheet.clock_hz(), gpu.max_sm_mhz)
        && stated > f64::from(highest) * 1e6
    {
        let stated = stated / 1e6;
        let text = format!("the datasheet says {stated:.0} MHz, the host's highest is {highest}");
        report("clock", text);
    }
    let capacity = Figure {
        value: gpu.memory_bytes as f64 / Unit::Mebibytes.base(1.0),
        unit: Unit::Mebibytes,
        kind: FigureKind::Measured,
        source: SOURCE.to_owned(),
        note: None,
    };
    match datasheet.memory.iter_mut().find(|memory| memory.tier == Tier::Hbm) {
        Some(memory) => memory.capacity = Some(capacity),
        None => datasheet.memory.push(Memory {
            tier: Tier::Hbm,
            capacity: Some(capacity),
            bandwidth: None,
        }),
    }
    let driver = driver.map(|driver| format!(", driver {driver}")).unwrap_or_default();
    let source = Source {
        title: format!("rgpu doctor: {}{driver}", gpu.name),
        url: None,
        date: date.to_owned(),
        note: None,
    };
    datasheet.sources.insert(SOURCE.to_owned(), source);
    (datasheet, problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::{check, find};

    fn diagnosis(name: &str) -> DoctorReport {
        let gpu = |index: u32, name: &str| {
            serde_json::json!({
                "index": index, "name": name, "uuid": "GPU-1", "sm": 90,
                "memory_bytes": 150_754_820_096_u64, "max_sm_mhz": 1980, "max_mem_mhz": 3201,
                "power_limit_w": 700.0,
            })
        };
        let text = serde_json::json!({
            "schema": "rgpu.doctor/1",
            "host": {"driver": "580.95", "gpus": [gpu(0, "NVIDIA H200"), gpu(1, name)]},
            "modes": [],
        });
        DoctorReport::parse(&text.to_string()).unwrap()
    }

    #[test]
    fn the_host_completes_a_datasheet() {
        let mut datasheet = find("h200").unwrap().clone();
        datasheet.id = "h200-lab".to_owned();
        datasheet.sm = None;
        for memory in &mut datasheet.memory {
            memory.capacity = memory.capacity.take().filter(|_| memory.tier != Tier::Hbm);
        }
        let diagnosis = diagnosis("NVIDIA H200");
        let gpu = diagnosis.gpu(None).unwrap();
        let (made, problems) = complete(datasheet, gpu, Some("580.95"), "2026-11-23");
        assert_eq!(problems, []);
        assert_eq!(check(&made), []);
        assert_eq!((made.sm, made.capacity(Tier::Hbm)), (Some(90), Some(150_754_820_096.0)));
        let capacity = made.memory(Tier::Hbm).unwrap().capacity.as_ref().unwrap();
        assert_eq!(capacity.kind, FigureKind::Measured);
        assert_eq!(made.sources["doctor"].title, "rgpu doctor: NVIDIA H200, driver 580.95");
        assert_eq!(Hardware::parse(&toml::to_string(&made).unwrap()).unwrap(), made);
    }

    #[test]
    fn a_datasheet_of_another_gpu_contradicts_the_host() {
        let mut datasheet = find("a100").unwrap().clone();
        datasheet.clock.as_mut().unwrap().value = 2500.0;
        let diagnosis = diagnosis("NVIDIA H200");
        let (_, problems) = complete(datasheet, diagnosis.gpu(None).unwrap(), None, "2026-11-23");
        let places: Vec<&str> = problems.iter().map(|problem| problem.place.as_str()).collect();
        assert_eq!(places, ["sm", "memory.hbm.capacity", "clock"]);
    }

    #[test]
    fn one_gpu_of_several_must_be_named() {
        let both = diagnosis("NVIDIA L4");
        assert!(both.gpu(None).unwrap_err().to_string().contains("1 (NVIDIA L4)"));
        assert_eq!(both.gpu(Some(1)).unwrap().name, "NVIDIA L4");
        assert!(both.gpu(Some(7)).is_err());
        let mut divided = diagnosis("NVIDIA H200");
        divided.host.gpus[0].mig = true;
        assert!(divided.gpu(None).unwrap_err().to_string().contains("MIG"));
        assert!(DoctorReport::parse("{}").is_err());
        assert!(DoctorReport::parse(r#"{"schema": "rgpu.other/1", "host": {}}"#).is_err());
    }
}
