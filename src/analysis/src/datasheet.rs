//! Peak rates of GPUs from their datasheets, for profiles whose reports state none.
//!
//! Dense rates, in 1e12 operations a second, at the boost clock; memory in 1e12 bytes a second.
//! Sources: NVIDIA's datasheets of each product (V100 2020, T4 2019, A100 2021, A10 2021, L4 and
//! L40S 2023, H100 and H200 2024, B200 in the DGX B200 sheet 2024) and the architecture whitepapers
//! of Ada and consumer Blackwell for GeForce, whose tensor rates with FP32 sums are half of those
//! with FP16 sums. A report's own ceilings are at the clock of its run and are never mixed with
//! these.

/// One GPU's peaks; 0 if the GPU has no such unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peaks {
    /// Part of the GPU's name; the first row that matches is used.
    pub(super) name: &'static str,
    /// The major compute capability.
    pub(super) major: u32,
    /// The number of SMs.
    pub(super) sms: u32,
    /// The kind of operation, as rooflines label it, with its rate.
    pub(super) compute: [(&'static str, f64); 6],
    /// DRAM bandwidth in 1e12 bytes a second.
    pub(super) dram: f64,
    /// Whether a recording confirms the row.
    pub(super) measured: bool,
}

const fn row(name: &'static str, (major, sms): (u32, u32), rates: [f64; 6], dram: f64) -> Peaks {
    let [fp64, fp32, tf32, bf16, fp8, fp4] = rates;
    let compute = [
        ("FP64", fp64),
        ("FP32", fp32),
        ("tensor tf32", tf32),
        ("tensor bf16", bf16),
        ("tensor fp8", fp8),
        ("tensor fp4", fp4),
    ];
    Peaks { name, major, sms, compute, dram, measured: false }
}

/// More specific names first.
static TABLE: &[Peaks] = &[
    row("B200", (10, 148), [37.0, 75.0, 1120.0, 2250.0, 4500.0, 9000.0], 7.7),
    Peaks { measured: true, ..row("H200", (9, 132), [34.0, 67.0, 495.0, 989.0, 1979.0, 0.0], 4.8) },
    row("H100 PCIe", (9, 114), [26.0, 51.0, 378.0, 756.0, 1513.0, 0.0], 2.0),
    row("H100 NVL", (9, 132), [30.0, 60.0, 418.0, 835.0, 1671.0, 0.0], 3.9),
    row("H100", (9, 132), [34.0, 67.0, 495.0, 989.0, 1979.0, 0.0], 3.35),
    row("A100-SXM4-40GB", (8, 108), [9.7, 19.5, 156.0, 312.0, 0.0, 0.0], 1.555),
    row("A100-PCIE-40GB", (8, 108), [9.7, 19.5, 156.0, 312.0, 0.0, 0.0], 1.555),
    row("A100 80GB PCIe", (8, 108), [9.7, 19.5, 156.0, 312.0, 0.0, 0.0], 1.935),
    row("A100", (8, 108), [9.7, 19.5, 156.0, 312.0, 0.0, 0.0], 2.039),
    row("L40S", (8, 142), [1.4, 91.6, 183.0, 362.0, 733.0, 0.0], 0.864),
    row("L4", (8, 58), [0.5, 30.3, 60.0, 121.0, 242.0, 0.0], 0.3),
    row("A10", (8, 72), [0.5, 31.2, 62.5, 125.0, 0.0, 0.0], 0.6),
    row("V100", (7, 80), [7.8, 15.7, 0.0, 0.0, 0.0, 0.0], 0.9),
    row("T4", (7, 40), [0.25, 8.1, 0.0, 0.0, 0.0, 0.0], 0.32),
    row("RTX 5090", (12, 170), [1.6, 104.8, 105.0, 209.0, 419.0, 1676.0], 1.792),
    row("RTX 4090", (8, 128), [1.3, 82.6, 83.0, 165.0, 330.0, 0.0], 1.008),
];

/// The row for a GPU, found by the driver's name for it.
pub(super) fn peaks(gpu: &str) -> Option<&'static Peaks> {
    // Only whole words match: `L4` must not match `L40S`.
    TABLE.iter().find(|row| {
        gpu.match_indices(row.name).any(|(at, name)| {
            let outside = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
            outside(gpu[..at].chars().next_back()) && outside(gpu[at + name.len()..].chars().next())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_found_by_the_drivers_name_for_it() {
        let name = |gpu| peaks(gpu).map(|row| row.name);
        assert_eq!(name("NVIDIA H200"), Some("H200"));
        assert_eq!(name("NVIDIA H100 80GB HBM3"), Some("H100"));
        assert_eq!(name("NVIDIA H100 PCIe"), Some("H100 PCIe"));
        assert_eq!(name("NVIDIA A100-SXM4-80GB"), Some("A100"));
        assert_eq!(name("NVIDIA A100-SXM4-40GB"), Some("A100-SXM4-40GB"));
        assert_eq!(name("NVIDIA L40S"), Some("L40S"));
        assert_eq!(name("NVIDIA L4"), Some("L4"));
        assert_eq!(name("NVIDIA L40"), None);
        assert_eq!(name("NVIDIA GeForce RTX 4090"), Some("RTX 4090"));
        assert_eq!(name("NVIDIA GeForce RTX 4090 D"), Some("RTX 4090"));
        assert_eq!(name("Quadro"), None);
    }
}
