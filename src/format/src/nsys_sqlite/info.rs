//! What the file says about the machine and about itself.

use super::table::Fields;

/// A GPU of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// CUDA device or nsys's own number.
    pub id: Option<u32>,
    /// Name.
    pub name: Option<String>,
    /// UUID without the `GPU-` prefix.
    pub uuid: Option<String>,
    /// Chip, such as `GH100`.
    pub chip: Option<String>,
    /// Compute capability.
    pub compute: Option<(u32, u32)>,
    /// Streaming multiprocessors.
    pub sms: Option<u32>,
    /// SM clock in Hz.
    pub clock_hz: Option<u64>,
    /// Peak of the memory in bytes per second.
    pub memory_bytes_per_s: Option<u64>,
    /// Size of the memory.
    pub memory_bytes: Option<u64>,
    /// Size of the L2 cache.
    pub l2_bytes: Option<u64>,
}

impl Gpu {
    pub(super) const TABLE: &str = "TARGET_INFO_GPU";
    pub(super) const COLUMNS: [&str; 11] = [
        "id",
        "name",
        "uuid",
        "chipName",
        "computeMajor",
        "computeMinor",
        "smCount",
        "clockRate",
        "memoryBandwidth",
        "totalMemory",
        "l2CacheSize",
    ];

    pub(super) fn read(f: &Fields<'_, '_>) -> Gpu {
        Gpu {
            id: f.small(0),
            name: f.text(1),
            uuid: f.text(2),
            chip: f.text(3),
            compute: f.small(4).zip(f.small(5)),
            sms: f.small(6),
            clock_hz: f.unsigned(7),
            memory_bytes_per_s: f.unsigned(8),
            memory_bytes: f.unsigned(9),
            l2_bytes: f.unsigned(10),
        }
    }
}

/// A message of nsys about its own work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// When, in nanoseconds since the start of the capture.
    pub at_ns: Option<i64>,
    /// How bad, as a number of `ENUM_DIAGNOSTIC_SEVERITY_LEVEL`.
    pub severity: Option<i64>,
    /// Its words.
    pub text: String,
}

impl Diagnostic {
    pub(super) const TABLE: &str = "DIAGNOSTIC_EVENT";
    pub(super) const COLUMNS: [&str; 3] = ["timestamp", "severity", "text"];

    pub(super) fn read(f: &Fields<'_, '_>) -> Diagnostic {
        Diagnostic { at_ns: f.int(0), severity: f.int(1), text: f.text(2).unwrap_or_default() }
    }
}
