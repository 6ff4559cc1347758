//! The code inside an ncu report, with what was counted laid over it: joined by the address each
//! instruction had on the GPU.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;
use rgpu_format::cubin::{self, Cubin};
use rgpu_format::ncu_rep::{Limits, NcuReport, Source};

use super::code::{SourcePositions, code};
use super::image_task::{ImageFilter, ImageTask};
use super::operands::OperandsError;
use crate::import::gpu_code;
use crate::model::HotSpots;
use crate::model::code::CodeImage;
use crate::model::hotspots::LaunchSpots;

/// The code that the hot spots which come `from` the report at `path` fall on. Of several launches
/// of one kernel the one with most samples counts.
///
/// # Errors
/// The report cannot be read; a cubin in it that cannot is left out.
pub fn sampled(
    spots: &HotSpots,
    from: &str,
    path: &Path,
    what: &ImageTask,
) -> Result<Vec<CodeImage>, OperandsError> {
    let bytes = std::fs::read(path)?;
    let (report, _) = NcuReport::read(&bytes, &Limits::default())?;
    let mut images = Vec::new();
    for source in &report.sources() {
        let Ok(cubin) = cubin::read(source.cubin) else { continue };
        let launches = launches(spots, from, what);
        let places: Vec<_> = launches.iter().map(|l| sites(l, source, &cubin)).collect();
        let sections: BTreeSet<usize> = places.iter().flatten().map(|site| site.section).collect();
        if sections.is_empty() {
            continue;
        }
        // Only what was sampled: a library's cubin may hold thousands of kernels.
        let names = cubin.code.iter().filter(|s| sections.contains(&s.index)).map(|s| &s.name);
        let kernels = names.filter_map(|n| Regex::new(&format!("^{}$", regex::escape(n))).ok());
        let only = ImageTask {
            wanted: ImageFilter { arches: Vec::new(), kernels: kernels.collect() },
            shown: what.shown,
            lives: what.lives,
            nvdisasm: what.nvdisasm.clone(),
            ..ImageTask::default()
        };
        let Ok(mut image) = code(path, &cubin, source.cubin, &only, SourcePositions::Wanted) else {
            continue;
        };
        let shown: Vec<usize> =
            cubin.code.iter().filter(|s| only.wanted.kernel(&s.name)).map(|s| s.index).collect();
        for (launch, sites) in launches.iter().zip(&places) {
            lay(&mut image, launch, sites, &shown);
        }
        images.push(image);
    }
    Ok(images)
}

/// One sampled instruction's place.
struct SampledInstruction {
    /// Number in the launch.
    spot: usize,
    section: usize,
    offset: u64,
}

/// Of each wanted kernel the launch with most samples.
fn launches<'s>(spots: &'s HotSpots, from: &str, what: &ImageTask) -> Vec<&'s LaunchSpots> {
    let mut all: Vec<&LaunchSpots> = Vec::new();
    let of = spots.launches.iter().filter(|l| l.from == from && what.wanted.kernel(&l.kernel));
    for launch in of {
        match all.iter_mut().find(|l| l.kernel == launch.kernel) {
            Some(known) if known.samples < launch.samples => *known = launch,
            Some(_) => {}
            None => all.push(launch),
        }
    }
    all
}

fn sites(launch: &LaunchSpots, source: &Source<'_>, cubin: &Cubin) -> Vec<SampledInstruction> {
    let site = |(spot, instruction): (usize, &crate::model::hotspots::InstructionSpot)| {
        let (function, from_start) = source.function_at(instruction.address?)?;
        let (section, start) = gpu_code::site(cubin, &function.symbol, function.index)
            .filter(|_| from_start == instruction.offset)?;
        let offset = start.checked_add(instruction.offset)?;
        Some(SampledInstruction { spot, section: section.index, offset })
    };
    launch.instructions.iter().enumerate().filter_map(site).collect()
}

/// Lays a launch's counts over the instructions; `shown` are the sections of the image's kernels.
fn lay(image: &mut CodeImage, launch: &LaunchSpots, sites: &[SampledInstruction], shown: &[usize]) {
    for (kernel, section) in image.kernels.iter_mut().zip(shown) {
        let here: Vec<&SampledInstruction> =
            sites.iter().filter(|s| s.section == *section).collect();
        if here.is_empty() {
            continue;
        }
        let mut samples = 0;
        for site in here {
            let Some(spot) = launch.instructions.get(site.spot) else { continue };
            let found = kernel.instructions.binary_search_by_key(&site.offset, |i| i.offset);
            if let Some(line) = found.ok().and_then(|at| kernel.instructions.get_mut(at)) {
                line.counts = Some(spot.counts.clone());
                samples += spot.counts.samples.unwrap_or(0);
            }
        }
        kernel.samples = Some(samples);
    }
}
