//! Ceilings and achieved points of the roofline charts in a report.

use std::collections::BTreeSet;

use rgpu_format::ncu_rep::{NcuResult, Rate, RooflineChart, RooflinePoint, Section};

use rgpu_model::Launch;
use rgpu_model::launch::Roof;
use rgpu_model::speed_of_light::PeakSource;

const TENSOR: &str = "sm__ops_path_tensor_";

/// The charts of the sections read so far. All launches of a report have the same charts, half a
/// megabyte each, with other values.
#[derive(Debug, Default)]
pub(super) struct KnownCharts<'a>(Vec<SectionCharts<'a>>);

/// The charts of one section that apply to one GPU.
#[derive(Debug)]
struct SectionCharts<'a> {
    section: &'a [u8],
    compute_capability: u64,
    charts: Vec<RooflineChart>,
}

impl<'a> KnownCharts<'a> {
    fn charts_in(&mut self, section: &Section<'a>, compute_capability: u64) -> &[RooflineChart] {
        let known = self.0.iter().position(|known| {
            known.compute_capability == compute_capability && known.section == section.raw()
        });
        let at = known.unwrap_or_else(|| {
            let charts = section.rooflines_for(compute_capability);
            self.0.push(SectionCharts { section: section.raw(), compute_capability, charts });
            self.0.len() - 1
        });
        &self.0[at].charts
    }
}

/// Every ceiling once, with the launch's achieved value. Of the dozens of tensor ceilings, only the
/// dense ones, and the sparse ones that the launch used.
pub(super) fn import<'a>(
    result: &NcuResult<'a>,
    launch: &Launch,
    known: &mut KnownCharts<'a>,
) -> Vec<Roof> {
    let Some(arch) = compute_capability(launch) else { return Vec::new() };
    let mut roofs: Vec<Roof> = Vec::new();
    let mut labels = BTreeSet::new();
    for section in result.sections().filter(|section| section.identifier.contains("Roofline")) {
        for chart in known.charts_in(&section, arch) {
            for roof in chart_roofs(chart, &section.identifier, arch, launch) {
                if labels.insert(roof.label.clone()) {
                    roofs.push(roof);
                }
            }
        }
    }
    roofs
}

/// Compute capability as ten times major plus minor.
pub(super) fn compute_capability(launch: &Launch) -> Option<u64> {
    let major = launch.number("device__attribute_compute_capability_major")?;
    let minor = launch.number("device__attribute_compute_capability_minor")?;
    Some(major as u64 * 10 + minor as u64)
}

fn chart_roofs(chart: &RooflineChart, section: &str, arch: u64, launch: &Launch) -> Vec<Roof> {
    let number = |name: &str| launch.number(name);
    // Ceilings and points are in the same order. A chart may have fewer points than ceilings.
    let points = chart.achieved.iter().map(Some).chain(std::iter::repeat(None));
    let sides: [fn(&RooflinePoint) -> Option<&Rate>; 2] =
        [|point| point.work.as_ref(), |point| point.traffic.as_ref()];
    let mut roofs = Vec::new();
    for (ceiling, point) in chart.ceilings.iter().zip(points) {
        for side in sides {
            let Some(rate) = side(ceiling) else { continue };
            let name = rate.names(arch).first().copied().unwrap_or_default();
            let Some((label, unit)) = label(name) else { continue };
            let Some(peak) = rate.value(arch, number).filter(|peak| *peak > 0.0) else { continue };
            let achieved = point.and_then(side).and_then(|rate| rate.value(arch, number));
            if name.starts_with(TENSOR) && achieved.unwrap_or_default() == 0.0 && !is_dense(name) {
                continue;
            }
            roofs.push(Roof {
                chart: section.to_owned(),
                label,
                peak,
                unit: unit.to_owned(),
                achieved,
                source: PeakSource::Report,
            });
        }
    }
    roofs
}

/// Whether a tensor peak is for dense operations. The peak of a plain type counts sparse
/// operations, except for FP64, which has no sparse ones.
fn is_dense(name: &str) -> bool {
    name.contains("_sparsity_off") || name.contains("_src_fp64")
}

/// Our label and unit for a ceiling, from the name of its metric.
fn label(metric: &str) -> Option<(String, &'static str)> {
    if let Some(rest) = metric.strip_prefix(TENSOR) {
        let kind = rest.split('.').next().unwrap_or_default();
        let unit = if kind.contains("int") { "OP/s" } else { "FLOP/s" };
        let words = [
            ("op_", ""),
            ("src_", ""),
            ("_dst_", " to "),
            ("_sparsity_off", ""),
            ("_sparsity_on", " sparse"),
            ("_", " "),
        ];
        let kind = words.iter().fold(kind.to_owned(), |kind, (from, to)| kind.replace(from, to));
        return Some((format!("tensor {kind}"), unit));
    }
    const LABELS: &[(&str, &str, &str)] = &[
        ("op_ffma", "FP32", "FLOP/s"),
        ("op_dfma", "FP64", "FLOP/s"),
        ("op_hfma", "FP16", "FLOP/s"),
        ("dram__", "DRAM", "byte/s"),
        ("lts__", "L2", "byte/s"),
        ("l1tex__", "L1", "byte/s"),
    ];
    let row = LABELS.iter().find(|(part, _, _)| metric.contains(part))?;
    Some((row.1.to_owned(), row.2))
}
