//! Whether a hardware file can be true: units, ranges, and numbers that must agree.

use schemars::JsonSchema;
use serde::Serialize;

use super::catalogue::builtin_gpus;
use super::{Direction, Figure, Hardware, LinkKind, Quantity, Sparsity, Tier};
use crate::dtype::MathKind;

/// An implausible number of a hardware file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem {
    /// Where in the file, for example `compute.bf16`.
    pub place: String,
    /// The problem, with the plausible values.
    pub text: String,
}

/// The ranges of plausible numbers, in base units. They are wide: they catch wrong units, not wrong
/// digits.
const CLOCK_HZ: (f64, f64) = (0.2e9, 5e9);
const PROCESSORS: (f64, f64) = (4.0, 4096.0);
const PEAK: (f64, f64) = (1e12, 1e17);
const HBM_BANDWIDTH: (f64, f64) = (1e11, 1e14);
const HBM_BYTES: (f64, f64) = (4e9, 4e12);
const LINK: (f64, f64) = (1e9, 2e13);
/// FLOP a byte: from a vector unit to FP4 tensor cores.
const RIDGE: (f64, f64) = (2.0, 5000.0);
/// The accepted ratio of dense FLOPs per clock and SM within one architecture.
const SAME_ARCHITECTURE: f64 = 1.35;

/// Everything in `hardware` that cannot be right. Empty if the file may be used.
#[must_use]
pub fn check(hardware: &Hardware) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut report = |place: String, text: String| problems.push(Problem { place, text });
    let is_between = |value: f64, (least, most): (f64, f64)| value >= least && value <= most;

    let id = &hardware.id;
    let is_name = !id.is_empty()
        && id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !is_name {
        report("id".into(), "use lower-case letters, digits and `-`".into());
    }
    for (name, source) in &hardware.sources {
        if !is_date(&source.date) {
            report(format!("sources.{name}.date"), "write the day as YYYY-MM-DD".into());
        }
    }
    let mut figures: Vec<(String, &Figure, Quantity)> = vec![
        ("processors".into(), &hardware.processors, Quantity::Count),
        ("domain".into(), &hardware.domain, Quantity::Count),
    ];
    figures.extend(hardware.clock.as_ref().map(|f| ("clock".into(), f, Quantity::Frequency)));
    for memory in &hardware.memory {
        let tier = tier_name(memory.tier);
        let capacity = memory.capacity.as_ref();
        figures
            .extend(capacity.map(|f| (format!("memory.{tier}.capacity"), f, Quantity::Capacity)));
        let bandwidth = memory.bandwidth.as_ref();
        let place = format!("memory.{tier}.bandwidth");
        figures.extend(bandwidth.map(|f| (place, f, Quantity::Bandwidth)));
    }
    let mut sources: Vec<(String, &str)> = Vec::new();
    for (place, figure, quantity) in &figures {
        if figure.unit.quantity() != *quantity {
            report(place.clone(), format!("the unit measures no {quantity:?}").to_lowercase());
        }
        if !(figure.value.is_finite() && figure.value > 0.0) {
            report(place.clone(), "must be a number above 0".into());
        }
        sources.push((place.clone(), &figure.source));
    }
    for peak in &hardware.compute {
        sources.push((format!("compute.{}", peak.dtype), &peak.source));
        if peak.unit.quantity() != Quantity::Compute {
            report(format!("compute.{}", peak.dtype), "the unit measures no FLOP/s".into());
        } else if !is_between(peak.unit.base(peak.value), PEAK) {
            let text =
                format!("{} {:?} is not a valid peak of a GPU: wrong unit?", peak.value, peak.unit);
            report(format!("compute.{}", peak.dtype), text);
        }
    }
    for link in &hardware.link {
        let place = format!("link.{}", link_name(link.kind));
        sources.push((place.clone(), &link.source));
        if link.unit.quantity() != Quantity::Bandwidth {
            report(place, "the unit measures no bandwidth".into());
        } else if !is_between(link.unit.base(link.value), LINK) {
            report(
                place,
                format!(
                    "{} {:?} is not a valid bandwidth of a link: wrong unit?",
                    link.value, link.unit
                ),
            );
        }
    }
    for (place, source) in sources {
        if !hardware.sources.contains_key(source) {
            report(place, format!("names the source `{source}`, which is not under [sources]"));
        }
    }
    if !is_between(hardware.processors.value, PROCESSORS) {
        report(
            "processors".into(),
            format!("{} is not a valid number of SMs", hardware.processors.value),
        );
    }
    if let Some(hz) = hardware.clock_hz().filter(|hz| !is_between(*hz, CLOCK_HZ)) {
        report("clock".into(), format!("{:.0} MHz is not a valid clock of a GPU", hz / 1e6));
    }
    match hardware.bandwidth(Tier::Hbm) {
        Some(rate) if !is_between(rate, HBM_BANDWIDTH) => {
            let text = format!(
                "{:.3} TB/s is not a valid bandwidth of HBM: bits for bytes, or GB for TB?",
                rate / 1e12
            );
            report("memory.hbm.bandwidth".into(), text);
        }
        Some(_) => {}
        None => report("memory.hbm.bandwidth".into(), "is missing".into()),
    }
    match hardware.capacity(Tier::Hbm) {
        Some(bytes) if !is_between(bytes, HBM_BYTES) => {
            report(
                "memory.hbm.capacity".into(),
                format!("{:.1} GB is not a valid capacity of HBM", bytes / 1e9),
            );
        }
        Some(_) => {}
        None => report("memory.hbm.capacity".into(), "is missing".into()),
    }
    if hardware.peak(MathKind::Half).is_none() {
        report("compute.bf16".into(), "there is no dense peak of the tensor cores".into());
    }
    if let Some(ridge) = hardware.ridge(MathKind::Half).filter(|ridge| !is_between(*ridge, RIDGE)) {
        let text =
            format!("{ridge:.0} FLOP a byte is not a ridge point: peak or bandwidth is wrong");
        report("compute.bf16".into(), text);
    }
    tiers_in_order(hardware, &mut report);
    sparse_is_not_dense(hardware, &mut report);
    links_one_way(hardware, &mut report);
    problems
}

/// An inner memory that is slower than an outer one has a wrong unit.
fn tiers_in_order(hardware: &Hardware, report: &mut impl FnMut(String, String)) {
    let mut known: Vec<(Tier, f64)> = (hardware.memory.iter())
        .filter_map(|memory| Some((memory.tier, hardware.bandwidth(memory.tier)?)))
        .collect();
    known.sort_by_key(|(tier, _)| *tier);
    for pair in known.windows(2) {
        if pair[0].1 < pair[1].1 {
            let (inner, outer) = (tier_name(pair[0].0), tier_name(pair[1].0));
            report(format!("memory.{inner}.bandwidth"), format!("is slower than {outer}"));
        }
    }
}

/// Compares with the file's own sparse figure, and with the FLOPs a clock and SM of a shipped GPU
/// of the same architecture.
fn sparse_is_not_dense(hardware: &Hardware, report: &mut impl FnMut(String, String)) {
    for sparse in hardware.compute.iter().filter(|peak| peak.sparsity == Sparsity::Sparse) {
        let dense = (hardware.compute.iter())
            .find(|peak| peak.sparsity == Sparsity::Dense && peak.dtype == sparse.dtype);
        if let Some(dense) = dense
            && dense.unit.base(dense.value) >= sparse.unit.base(sparse.value)
        {
            let text = "the dense peak is not below the sparse one: is it the sparse figure?";
            report(format!("compute.{}", dense.dtype), text.into());
        }
    }
    // With FP32 sums, GeForce multiplies at half the rate of other products of its architecture.
    let is_geforce = |hardware: &Hardware| hardware.name.contains("GeForce");
    let is_same_line = |known: &&Hardware| {
        known.sm.is_some() && known.sm == hardware.sm && is_geforce(known) == is_geforce(hardware)
    };
    for known in builtin_gpus().filter(is_same_line) {
        for math in [MathKind::Half, MathKind::Fp8, MathKind::Tf32] {
            let (Some((rate, peak)), Some((known_rate, _))) =
                (hardware.peak(math), known.peak(math))
            else {
                continue;
            };
            let a_processor = rate / hardware.processors.value;
            let ratio = a_processor / (known_rate / known.processors.value);
            if !(1.0 / SAME_ARCHITECTURE..=SAME_ARCHITECTURE).contains(&ratio) {
                let guess = match ratio {
                    r if (1.7..2.3).contains(&r) => ": this looks like the sparse figure",
                    r if (0.43..0.59).contains(&r) => ": this looks like half the dense figure",
                    _ => "",
                };
                let text = format!("an SM does {ratio:.2} times what one of {} does", known.id);
                report(format!("compute.{}", peak.dtype), text + guess);
            }
        }
    }
}

/// NVLink of one architecture differs by two where one file counts both directions as one.
fn links_one_way(hardware: &Hardware, report: &mut impl FnMut(String, String)) {
    let Some(rate) = hardware.link(LinkKind::Nvlink) else { return };
    for known in builtin_gpus().filter(|known| known.sm.is_some() && known.sm == hardware.sm) {
        let Some(known_rate) = known.link(LinkKind::Nvlink) else { continue };
        let ratio = rate / known_rate;
        let direction = hardware.link.iter().find(|link| link.kind == LinkKind::Nvlink);
        if (1.9..2.1).contains(&ratio) && direction.is_some_and(|l| l.direction == Direction::One) {
            let text = format!("is twice that of {}: does it count both directions?", known.id);
            report("link.nvlink".into(), text);
        }
    }
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    bytes.len() == 10
        && bytes[4] == b'-'
        && bytes[7] == b'-'
        && [0, 1, 2, 3, 5, 6, 8, 9].into_iter().all(is_digit)
}

fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Registers => "registers",
        Tier::Shared => "shared",
        Tier::L2 => "l2",
        Tier::L3 => "l3",
        Tier::Hbm => "hbm",
        Tier::Host => "host",
        Tier::Pool => "pool",
        Tier::Nvme => "nvme",
    }
}

fn link_name(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Nvlink => "nvlink",
        LinkKind::Host => "host",
        LinkKind::Nic => "nic",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::{Unit, find};

    fn changed(change: impl Fn(&mut Hardware)) -> Vec<Problem> {
        let mut hardware = find("h200").unwrap().clone();
        change(&mut hardware);
        check(&hardware)
    }

    #[test]
    fn every_shipped_file_passes() {
        for hardware in builtin_gpus() {
            assert_eq!(check(hardware), [], "{}", hardware.id);
        }
    }

    #[test]
    fn a_sparse_peak_sold_as_dense_is_found() {
        let problems = changed(|hardware| hardware.compute[0].value = 1978.9);
        let texts: Vec<&str> = problems.iter().map(|p| p.text.as_str()).collect();
        assert!(texts.iter().any(|text| text.contains("sparse figure")), "{texts:?}");
    }

    #[test]
    fn wrong_units_are_found() {
        let hbm = |hardware: &mut Hardware, unit| {
            let memory = hardware.memory.iter_mut().find(|m| m.tier == Tier::Hbm).unwrap();
            memory.bandwidth.as_mut().unwrap().unit = unit;
        };
        // 4800 Gb/s is 600 GB/s: plausible alone, but not with these products.
        let problems = changed(|hardware| hbm(hardware, Unit::TerabytesPerSecond));
        assert!(problems.iter().any(|p| p.place == "memory.hbm.bandwidth"), "{problems:?}");
        let problems = changed(|hardware| hbm(hardware, Unit::Gigabytes));
        assert!(problems.iter().any(|p| p.text.contains("bandwidth")), "{problems:?}");
        let problems = changed(|hardware| hardware.compute[0].unit = Unit::Petaflops);
        assert!(problems.iter().any(|p| p.place == "compute.bf16"), "{problems:?}");
    }

    #[test]
    fn nvlink_of_both_directions_sold_as_one_is_found() {
        let problems = changed(|hardware| hardware.link[0].direction = Direction::One);
        assert!(problems.iter().any(|p| p.place == "link.nvlink"), "{problems:?}");
    }

    #[test]
    fn a_figure_without_its_source_is_found() {
        let problems = changed(|hardware| drop(hardware.sources.remove("whitepaper")));
        assert!(problems.iter().any(|p| p.place == "processors"), "{problems:?}");
    }
}
