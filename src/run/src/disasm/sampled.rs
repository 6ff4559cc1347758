//! The code inside an ncu report with the sampled counts of each instruction, joined by the
//! instructions' addresses on the GPU.

use std::collections::BTreeSet;
use std::path::Path;

use regex::Regex;
use rgpu_format::cubin::{self, Cubin};
use rgpu_format::ncu_rep::{NcuReadLimits, NcuReport, Source};

use super::code::{SourcePositions, read_code};
use super::image_task::{ImageFilter, ImageTask};
use super::operands::OperandsError;
use rgpu_import::gpu_code;
use rgpu_model::HotSpots;
use rgpu_model::agent_files;
use rgpu_model::code::CodeImage;
use rgpu_model::hotspots::LaunchSpots;
use rgpu_model::regular_file::MAX_FILE_BYTES;

/// The code that the hot spots from the report at `path` belong to; `from` is the report's name in
/// them. For each kernel, the launch with the most samples is used.
///
/// # Errors
/// The report cannot be read. An unreadable cubin in it is left out.
pub fn sampled(
    spots: &HotSpots,
    from: &str,
    path: &Path,
    task: &ImageTask,
) -> Result<Vec<CodeImage>, OperandsError> {
    let bytes = agent_files::read(path, MAX_FILE_BYTES)?;
    let (report, _) = NcuReport::read(&bytes, &NcuReadLimits::default())?;
    let mut images = Vec::new();
    for source in &report.sources() {
        let Ok(cubin) = cubin::read(source.cubin) else { continue };
        let launches = launches(spots, from, task);
        let sites_by_launch: Vec<_> = launches.iter().map(|l| sites(l, source, &cubin)).collect();
        let sections: BTreeSet<usize> =
            sites_by_launch.iter().flatten().map(|site| site.section).collect();
        if sections.is_empty() {
            continue;
        }
        // Only sampled kernels: a library's cubin may hold thousands of others.
        let names = cubin.code.iter().filter(|s| sections.contains(&s.index)).map(|s| &s.name);
        let kernels = names.filter_map(|n| Regex::new(&format!("^{}$", regex::escape(n))).ok());
        let sampled_task = ImageTask {
            filter: ImageFilter { kernels: kernels.collect(), ..ImageFilter::default() },
            columns: task.columns,
            life_ranges: task.life_ranges,
            nvdisasm: task.nvdisasm.clone(),
            ..ImageTask::default()
        };
        let Ok(mut image) =
            read_code(path, &cubin, source.cubin, &sampled_task, SourcePositions::Read)
        else {
            continue;
        };
        let shown: Vec<usize> = cubin
            .code
            .iter()
            .filter(|s| sampled_task.filter.matches_kernel(&s.name))
            .map(|s| s.index)
            .collect();
        for (launch, sites) in launches.iter().zip(&sites_by_launch) {
            add_counts(&mut image, launch, sites, &shown);
        }
        images.push(image);
    }
    Ok(images)
}

/// The position of a sampled instruction.
struct SampledInstruction {
    /// Index of the instruction in the launch.
    spot: usize,
    section: usize,
    offset: u64,
}

/// For each requested kernel, the launch with the most samples.
fn launches<'s>(spots: &'s HotSpots, from: &str, task: &ImageTask) -> Vec<&'s LaunchSpots> {
    let mut all: Vec<&LaunchSpots> = Vec::new();
    let matching =
        spots.launches.iter().filter(|l| l.from == from && task.filter.matches_kernel(&l.kernel));
    for launch in matching {
        match all.iter_mut().find(|l| l.kernel == launch.kernel) {
            Some(known) if known.samples < launch.samples => *known = launch,
            Some(_) => {}
            None => all.push(launch),
        }
    }
    all
}

fn sites(launch: &LaunchSpots, source: &Source<'_>, cubin: &Cubin) -> Vec<SampledInstruction> {
    let site = |(spot, instruction): (usize, &rgpu_model::hotspots::InstructionSpot)| {
        let (function, from_start) = source.function_at(instruction.address?)?;
        let (section, start) = gpu_code::site(cubin, &function.symbol, function.index)
            .filter(|_| from_start == instruction.offset)?;
        let offset = start.checked_add(instruction.offset)?;
        Some(SampledInstruction { spot, section: section.index, offset })
    };
    launch.instructions.iter().enumerate().filter_map(site).collect()
}

/// Adds a launch's counts to the instructions; `shown` are the section indices of the image's
/// kernels.
fn add_counts(
    image: &mut CodeImage,
    launch: &LaunchSpots,
    sites: &[SampledInstruction],
    shown: &[usize],
) {
    for (kernel, section) in image.kernels.iter_mut().zip(shown) {
        let kernel_sites: Vec<&SampledInstruction> =
            sites.iter().filter(|s| s.section == *section).collect();
        if kernel_sites.is_empty() {
            continue;
        }
        let mut samples = 0;
        for site in kernel_sites {
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
