//! What a trace tells of a kernel that takes most of a program: how its grid fills the GPU, how many
//! warps an SM can hold and what limits that, and, where its launches have counters, their verdict.
//!
//! The account finds the kernel and has no geometry; the profile's launches have.

use super::datasheet;
use super::device::find_device;
use super::occupancy::{self, BlockResources, Limiter};
use rgpu_account::class;
use rgpu_model::account::AccountCause;
use rgpu_model::finding::KernelVerdict;
use rgpu_model::{Finding, Launch, Profile};

/// The finding of the account that is added to.
const ID: &str = "dominant_kernel";

/// Percent of an SM's warps below which what limits them is worth a word.
const LOW_OCCUPANCY: f64 = 15.0;
/// Shared memory of a block that is worth a word, in bytes.
const LEAST_SHARED_BYTES: u64 = 100;
/// Waves of blocks up to which the last one counts.
const FEW_WAVES: f64 = 4.0;
/// Registers of a thread at which the compiler has no more to give, and puts the rest into memory.
const ALL_REGISTERS: u32 = 255;
/// Threads of the four warps that multiply together on tensor cores, from Hopper on.
const WARP_GROUP: u64 = 128;
/// The part of the last wave that is full, below which it is a tail.
const FULL_TAIL: f64 = 0.6;

/// Adds what is known of the launches to findings about a kernel that takes most of a program.
pub(super) fn explain(profile: &Profile, findings: &mut [Finding]) {
    for finding in findings.iter_mut().filter(|finding| finding.id == ID) {
        let Some(kernel) = finding.covers.first().map(|covered| covered.kernel.clone()) else {
            continue;
        };
        let of_kernel = profile.launches.iter().filter(|launch| launch.kernel == kernel);
        let longest = of_kernel.max_by(|a, b| {
            let ns = |launch: &Launch| launch.duration_ns.unwrap_or(0.0);
            ns(a).total_cmp(&ns(b))
        });
        let Some(launch) = longest else { continue };
        let facts = Facts::new(profile, launch);
        finding.text.push_str(&facts.words());
        if let Some(hint) = facts.hint() {
            finding.hint = format!("{hint}; {}", finding.hint);
        }
    }
}

/// Adds what counters told of the kernel, which is known once all kernels were judged.
pub(super) fn add_counters(profile: &mut Profile) {
    let verdicts = &profile.kernel_verdicts;
    let told = |kernel: &str| -> Option<(String, Option<String>)> {
        let mut launches = profile.launches.iter().filter(|launch| launch.kernel == kernel);
        if launches.all(|launch| launch.metrics.is_empty()) {
            return None;
        }
        let of_kernel =
            verdicts.iter().find(|verdict: &&KernelVerdict| verdict.kernel == kernel)?;
        let id = of_kernel.verdict.as_ref()?;
        let text = of_kernel.text.clone();
        let hints = profile.findings.iter().filter(|finding| finding.id == *id);
        let hint = hints
            .filter(|finding| finding.covers.iter().any(|covered| covered.kernel == kernel))
            .map(|finding| finding.hint.clone())
            .next();
        Some((text, hint))
    };
    let added: Vec<_> = profile
        .findings
        .iter()
        .map(|finding| {
            let kernel = finding.covers.first().filter(|_| finding.id == ID)?;
            told(&kernel.kernel)
        })
        .collect();
    for (finding, added) in profile.findings.iter_mut().zip(added) {
        if let Some((text, hint)) = added {
            finding.text.push_str("; its counters: ");
            finding.text.push_str(&text);
            if let Some(hint) = hint {
                finding.hint = hint;
            }
        }
    }
}

/// The geometry of a launch.
struct Facts {
    blocks: u64,
    threads: u64,
    registers: Option<u32>,
    shared_bytes: Option<u64>,
    sms: Option<u64>,
    occupancy: Option<occupancy::SmOccupancy>,
    is_double: bool,
    /// Whether a matrix product has fewer threads than a warp group, on a GPU that has them.
    lacks_warp_group: bool,
}

impl Facts {
    fn new(profile: &Profile, launch: &Launch) -> Facts {
        let product = |size: [u32; 3]| {
            size.iter().fold(1_u64, |product, side| product.saturating_mul(u64::from(*side)))
        };
        let device = find_device(profile);
        let sheet = device.name.as_deref().and_then(datasheet::peaks);
        let compute = device.compute.or(sheet.map(|sheet| (sheet.major, 0)));
        let limits = compute.and_then(|(major, minor)| occupancy::limits(major, minor));
        let threads = product(launch.block);
        let block = u32::try_from(threads).ok().zip(launch.registers);
        let occupancy = limits.zip(block).and_then(|(limits, (threads, registers))| {
            let shared_bytes = launch.shared_bytes.unwrap_or(0);
            let block = BlockResources { threads, registers, shared_bytes, carve_out: None };
            occupancy::occupancy(limits, &block)
        });
        Facts {
            blocks: product(launch.grid),
            threads,
            registers: launch.registers,
            shared_bytes: launch.shared_bytes.filter(|bytes| *bytes >= LEAST_SHARED_BYTES),
            sms: sheet.map(|sheet| u64::from(sheet.sms)).filter(|sms| *sms > 0),
            occupancy,
            is_double: takes_doubles(&launch.kernel),
            lacks_warp_group: threads < WARP_GROUP
                && compute.is_some_and(|(major, _)| major >= 9)
                && class::of_kernel(&launch.kernel) == AccountCause::MatrixProduct,
        }
    }

    /// Waves of blocks: how often the grid fills the GPU.
    fn waves(&self) -> Option<f64> {
        let slots = self.sms?.checked_mul(u64::from(self.occupancy.as_ref()?.blocks))?;
        Some(self.blocks as f64 / slots.max(1) as f64)
    }

    fn words(&self) -> String {
        if self.blocks == 0 || self.threads == 0 {
            return String::new();
        }
        let mut words =
            format!("; its grid has {} blocks of {} threads", self.blocks, self.threads);
        if let Some(waves) = self.waves() {
            words.push_str(&format!(" ({waves:.2} waves)"));
        }
        if let Some(registers) = self.registers {
            words.push_str(&format!(", {registers} registers a thread"));
        }
        if let Some(bytes) = self.shared_bytes {
            words.push_str(&format!(", {:.1} KB of shared memory a block", bytes as f64 / 1e3));
        }
        if let Some(found) = &self.occupancy {
            words.push_str(&format!(
                ": {} warps of an SM at once, {:.0} % of what it holds, limited by {}",
                found.warps,
                found.percent,
                found.limiter.name()
            ));
        }
        if self.is_double {
            words.push_str("; it takes FP64 arrays");
        }
        words
    }

    /// What the geometry alone says to do; `None` if it fills the GPU.
    fn hint(&self) -> Option<String> {
        if self.blocks == 0 || self.threads == 0 {
            return None;
        }
        if let Some(sms) = self.sms.filter(|sms| self.blocks < *sms) {
            return Some(format!(
                "the grid leaves {} of {sms} SMs empty: give it more and smaller blocks",
                sms - self.blocks
            ));
        }
        if self.registers.is_some_and(|registers| registers >= ALL_REGISTERS) {
            let group = if self.lacks_warp_group {
                ", and a product needs 4 warps to multiply as a warp group on tensor cores"
            } else {
                ""
            };
            return Some(format!(
                "{ALL_REGISTERS} registers are all that a thread can have, so what it holds likely \
                 spills to memory: more threads for the same tile (Triton: `num_warps=8`) or a \
                 smaller tile{group}"
            ));
        }
        let found = self.occupancy.as_ref()?;
        if found.percent < LOW_OCCUPANCY {
            let less = match found.limiter {
                Limiter::SharedMemory => {
                    "ask for no more shared memory than it uses (the dynamic size of the launch), or \
                     smaller tiles"
                }
                Limiter::Registers => "fewer registers (`__launch_bounds__`, smaller tiles)",
                Limiter::Blocks => "larger blocks",
                Limiter::Warps => "blocks whose warps divide the SM's number of warps",
            };
            return Some(format!(
                "only {} warps of an SM hide what each waits for: {less}",
                found.warps
            ));
        }
        let waves = self.waves()?;
        let tail = waves.fract();
        if waves > 1.0 && waves < FEW_WAVES && tail > 0.0 && tail < FULL_TAIL {
            return Some(format!(
                "the last of its waves is {:.0} % full, and the blocks that start last run nearly \
                 alone: let the longest blocks start first, or make them smaller",
                100.0 * tail
            ));
        }
        if waves < FEW_WAVES {
            return Some(
                "few waves of blocks: if the blocks' work differs, those that start last run nearly \
                 alone, so let the longest start first"
                    .to_owned(),
            );
        }
        None
    }
}

/// Whether a kernel's parameters are pointers to doubles.
fn takes_doubles(kernel: &str) -> bool {
    let parameters = kernel.find('(').and_then(|at| kernel.get(at..)).unwrap_or_default();
    parameters.contains("double")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::finding::CoveredKernel;

    /// What is told of a kernel with this geometry on an H200.
    fn told(grid: u32, block: u32, registers: u32, shared_bytes: u64) -> (String, String) {
        let launch = Launch {
            kernel: "weigh(const float *)".to_owned(),
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            registers: Some(registers),
            shared_bytes: Some(shared_bytes),
            duration_ns: Some(2e6),
            ..Launch::default()
        };
        let profile = Profile {
            device: Some("NVIDIA H200".to_owned()),
            launches: vec![launch],
            ..Profile::default()
        };
        let covers = vec![CoveredKernel {
            kernel: "weigh(const float *)".to_owned(),
            ..CoveredKernel::default()
        }];
        let finding = Finding { id: ID.to_owned(), covers, ..Finding::default() };
        let mut findings = vec![finding];
        explain(&profile, &mut findings);
        let finding = findings.remove(0);
        (finding.text, finding.hint)
    }

    #[test]
    fn the_geometry_of_a_kernel_says_what_it_can() {
        let (text, hint) = told(132 * 16, 128, 32, 227 << 10);
        assert!(text.contains("4 warps of an SM at once, 6 % of what it holds"), "{text}");
        assert!(text.contains("limited by shared memory"), "{text}");
        assert!(hint.contains("dynamic size"), "{hint}");
        let (text, hint) = told(40, 256, 32, 0);
        assert!(text.contains("40 blocks of 256 threads (0.04 waves)"), "{text}");
        assert!(hint.starts_with("the grid leaves 92 of 132 SMs empty"), "{hint}");
        let (_, hint) = told(132 * 64, 64, 255, 0);
        assert!(hint.contains("num_warps=8") && !hint.contains("warp group"), "{hint}");
        let (_, hint) = told(132 * 8 + 264, 256, 32, 0);
        assert!(hint.contains("25 % full"), "{hint}");
        let (_, hint) = told(132 * 800, 256, 32, 0);
        assert!(hint.is_empty(), "{hint}");
        assert!(takes_doubles("price(double *, int)") && !takes_doubles("price(float *)"));
    }
}
