//! Reads one input: its images, their facts, and the files written from them.

use std::path::Path;

use rgpu_format::container::{Image as Packed, ImageEntry, ImagePath};
use rgpu_format::cubin::{self, CodeSection, Cubin};
use rgpu_format::demangle::{self, demangle};
use rgpu_format::fatbin::Unpacker;
use rgpu_format::ptx;

use super::code::LifeRanges;
use super::image_task::ImageTask;
use super::images::{at_place, first_errors, header, walk};
use super::inputs;
use super::ordered_writer::{OrderedWriter, PendingFile};
use super::spare_cores::CORES;
use rgpu_analysis::occupancy::{BlockResources, limits_of_arch, occupancy};
use rgpu_import::gpu_code;
use rgpu_model::disasm::ImageKind;
use rgpu_model::disasm::{Image, Input, Kernel, Occupancy, ReadStatus};
use rgpu_model::hotspots::shown_source_name;

/// The error of an input with code for other architectures only.
pub const OTHER_ARCHES: &str = "no GPU code for the requested architectures";

/// Reads files, with state shared between them.
pub(super) struct ImageReader<'w> {
    task: &'w ImageTask,
    /// Gives the written files their names.
    pub(super) writer: OrderedWriter,
}

/// An image and its written files; `None` if it is filtered out.
type ImageResult = Option<(Image, Vec<PendingFile>)>;

impl<'w> ImageReader<'w> {
    pub(super) fn new(task: &'w ImageTask) -> Self {
        Self { task, writer: OrderedWriter::default() }
    }

    /// Reads the file with this number; errors are recorded in the result. Also returns the numbers
    /// of its images, under which the written files are named.
    pub(super) fn read(&self, number: usize, path: &Path) -> (Input, Vec<usize>) {
        let mut input = Input { path: path.display().to_string(), ..Input::default() };
        let (mut numbers, mut count) = (Vec::new(), 0);
        match inputs::bytes(path) {
            Ok(data) => {
                let walked = walk(&data, &self.task.limits, &mut |found| {
                    let result = self.images(path, (number, count), &found);
                    for (at, ((place, _), result)) in found.iter().zip(result).enumerate() {
                        match result {
                            Ok(Some(image)) => {
                                numbers.push(count + at);
                                input.images.push(image);
                            }
                            Ok(None) => {}
                            Err(error) => input.errors.push(at_place(place, error)),
                        }
                    }
                    count += found.len();
                });
                match walked {
                    Ok(kind) => input.kind = Some(kind),
                    Err(error) => input.errors.push(error.to_string()),
                }
            }
            Err(error) => input.errors.push(error),
        }
        if let Some(out) = &self.task.out {
            self.writer.end(&self.task.names, out, (number, count));
        }
        input.errors = first_errors(input.errors);
        if input.errors.is_empty() && input.images.is_empty() {
            let filtered = !self.task.filter.arches.is_empty();
            input.errors.push(if filtered {
                OTHER_ARCHES.to_owned()
            } else {
                "the file contains no GPU code".to_owned()
            });
        }
        input.status = match (input.errors.is_empty(), input.images.is_empty()) {
            (true, _) => ReadStatus::Ok,
            (false, false) => ReadStatus::Partial,
            (false, true) => ReadStatus::Failed,
        };
        (input, numbers)
    }

    /// Reads one batch of images, numbered from `first`.
    fn images(
        &self,
        path: &Path,
        (file, first): (usize, usize),
        found: &[ImageEntry<'_>],
    ) -> Vec<Result<Option<Image>, String>> {
        CORES.parallel_map(found.len(), Unpacker::default, |unpacker, at| {
            let (place, found) = &found[at];
            let result: Result<ImageResult, String> = match found {
                Ok(found) => image(path, place, found, self, unpacker),
                Err(error) => Err(error.to_string()),
            };
            let (result, files) = match result {
                Ok(Some((image, files))) => (Ok(Some(image)), files),
                Ok(None) => (Ok(None), Vec::new()),
                Err(error) => (Err(error), Vec::new()),
            };
            if let Some(out) = &self.task.out {
                self.writer.image(&self.task.names, out, (file, first + at), files);
            }
            result
        })
    }
}

/// Reads one image. `None` if the user asked for another architecture.
fn image(
    path: &Path,
    place: &ImagePath,
    found: &Packed<'_>,
    reader: &ImageReader<'_>,
    unpacker: &mut Unpacker,
) -> Result<ImageResult, String> {
    let task = reader.task;
    let mut image = header(place, found);
    let from_header = !image.arch.is_empty();
    if from_header && !task.filter.matches_arch(&image.arch) {
        return Ok(None);
    }
    if task.list_only && from_header || !matches!(image.kind, ImageKind::Cubin | ImageKind::Ptx) {
        return Ok(Some((image, Vec::new())));
    }
    let bytes = found.bytes_into(&task.limits, unpacker).map_err(|e| e.to_string())?;
    image.bytes = bytes.len() as u64;
    if image.kind == ImageKind::Ptx {
        return read_ptx(path, image, bytes, task);
    }
    read_cubin(path, image, bytes, reader)
}

fn read_ptx(
    path: &Path,
    mut image: Image,
    bytes: &[u8],
    task: &ImageTask,
) -> Result<ImageResult, String> {
    let text = String::from_utf8_lossy(bytes);
    let ptx = ptx::read(&text).map_err(|e| e.to_string())?;
    if !task.filter.matches_arch(&ptx.target) {
        return Ok(None);
    }
    image.arch = ptx.target;
    image.version = Some(ptx.version);
    image.entries = ptx.entries.into_iter().filter(|e| task.filter.matches_kernel(e)).collect();
    let mut files = Vec::new();
    if task.extract
        && let Some(out) = &task.out
    {
        let file = PendingFile::write(out, (path, &image.arch, None), "ptx", bytes);
        files.push(file.inspect_err(|why| task.record_write_error(why))?);
    }
    Ok(Some((image, files)))
}

fn read_cubin(
    path: &Path,
    mut image: Image,
    bytes: &[u8],
    reader: &ImageReader<'_>,
) -> Result<ImageResult, String> {
    let task = reader.task;
    let cubin = cubin::read(bytes).map_err(|e| e.to_string())?;
    let arch = cubin.sm.to_string();
    if !task.filter.matches_arch(&arch) {
        return Ok(None);
    }
    image.arch = arch;
    image.version = cubin.toolkit.map(|t| t.to_string());
    image.has_lines = cubin.has_lines;
    if let Some(producer) = &cubin.producer {
        image.compiler = Some(producer.release.clone()).filter(|r| !r.is_empty());
        image.command_line = Some(producer.command_line.clone()).filter(|c| !c.is_empty());
    }
    if task.list_only {
        return Ok(Some((image, Vec::new())));
    }
    image.kernels = kernels(&cubin, &image.arch, bytes, reader);
    let mut files = Vec::new();
    let Some(out) = &task.out else { return Ok(Some((image, files))) };
    let mut write = |part: Option<&str>, extension, bytes: &[u8]| {
        let file = PendingFile::write(out, (path, &image.arch, part), extension, bytes);
        files.push(file.inspect_err(|why| task.record_write_error(why))?);
        Ok::<(), String>(())
    };
    if task.extract {
        write(None, "cubin", bytes)?;
        if let Some(ptx) = &cubin.ptx {
            write(None, "ptx", ptx.text(bytes).as_bytes())?;
        }
    }
    let no_kernel_matches = image.kernels.is_empty() && !task.filter.selects_all_kernels();
    if task.write_listings && !no_kernel_matches {
        let (text, tool, problem) = listing(&cubin, bytes, task);
        if task.by_kernel {
            for (kernel, text) in split_by_kernel(&text) {
                let name = demangle(kernel);
                let name = demangle::short(name.as_deref().unwrap_or(kernel));
                write(Some(name), "sass", text.as_bytes())?;
            }
        } else {
            write(None, "sass", text.as_bytes())?;
        }
        image.tool = Some(tool);
        image.tool_problem = problem;
    }
    Ok(Some((image, files)))
}

/// Kernels that a core takes at a time.
const KERNELS_PER_CHUNK: usize = 16;

/// The facts of the requested kernels of a cubin.
fn kernels(cubin: &Cubin, arch: &str, bytes: &[u8], reader: &ImageReader<'_>) -> Vec<Kernel> {
    let task = reader.task;
    let kernels: Vec<_> =
        cubin.kernels.iter().filter(|k| task.filter.matches_kernel(&k.name)).collect();
    let chunks: Vec<_> = kernels.chunks(KERNELS_PER_CHUNK).collect();
    let facts = |kernel: &&cubin::Kernel| {
        let mut facts = gpu_code::kernel(kernel, cubin, bytes);
        facts.occupancy = theoretical_occupancy(&facts, arch, task.threads, 0);
        facts
    };
    let facts_by_chunk = CORES.parallel_map(
        chunks.len(),
        || (),
        |(), at| chunks[at].iter().map(facts).collect::<Vec<Kernel>>(),
    );
    facts_by_chunk.into_iter().flatten().collect()
}

/// Splits a listing into its code sections, with their names.
fn split_by_kernel(listing: &str) -> Vec<(&str, String)> {
    const SECTION: &str = "\t.section\t.text.";
    let mut parts: Vec<(&str, String)> = Vec::new();
    for line in listing.lines() {
        if let Some(rest) = line.strip_prefix(SECTION) {
            let name = rest.split(',').next().unwrap_or_default().trim_matches('"');
            parts.push((name, String::new()));
        }
        if let Some((_, text)) = parts.last_mut() {
            // The next section's heading comes before its `.section` line.
            if !line.starts_with("//----") {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    parts
}

/// Lists a cubin with nvdisasm if possible, else with rgpu. Returns the text, the tool's name, and
/// why nvdisasm failed if it did.
pub fn listing(cubin: &Cubin, bytes: &[u8], task: &ImageTask) -> (String, String, Option<String>) {
    let mut problem = None;
    if let Some(tool) = &task.nvdisasm {
        let (flags, symbols) = listing_options(cubin, task);
        match tool.listing(bytes, flags, &symbols) {
            Ok(text) => {
                let text = if task.columns.control {
                    gpu_code::annotate(&text, cubin, bytes)
                } else {
                    text
                };
                return (name_sources(&text), tool.name(), None);
            }
            Err(error) => problem = Some(error.to_string()),
        }
    }
    let own_name = format!("rgpu {}", env!("CARGO_PKG_VERSION"));
    let is_selected = |section: &CodeSection| task.filter.matches_kernel(&section.name);
    (gpu_code::listing(cubin, bytes, task.columns, &is_selected), own_name, problem)
}

/// A listing in which the sources that rgpu sent to a host have their own names.
fn name_sources(listing: &str) -> String {
    const LINE: &str = "//## File \"";
    let mut text = String::with_capacity(listing.len());
    for line in listing.split_inclusive('\n') {
        let named = line.find(LINE).map(|at| line.split_at(at + LINE.len()));
        let named = named.and_then(|(head, rest)| Some((head, rest.split_once('"')?)));
        match named {
            Some((head, (file, rest))) => {
                text.extend([head, shown_source_name(file), "\"", rest]);
            }
            None => text.push_str(line),
        }
    }
    text
}

/// nvdisasm's flags for a cubin, and the symbol indices of the requested functions, empty for all.
pub(super) fn listing_options(
    cubin: &Cubin,
    task: &ImageTask,
) -> (&'static [&'static str], Vec<usize>) {
    let flags: &[&str] = match (task.life_ranges, task.columns.lines) {
        // nvdisasm does not accept both flags together.
        (LifeRanges::Optional | LifeRanges::Required, _) => &["-plr"],
        (LifeRanges::Skip, true) => &["-gi"],
        (LifeRanges::Skip, false) => &[],
    };
    let kernels = cubin.kernels.iter().filter(|k| task.filter.matches_kernel(&k.name));
    let symbols = kernels.map(|k| k.symbol_index);
    (flags, if task.filter.selects_all_kernels() { Vec::new() } else { symbols.collect() })
}

/// The theoretical occupancy for the kernel's required block size, else for `threads`, else for the
/// largest block that it allows. `dynamic_shared` is the block's dynamic shared memory in bytes.
/// `None` if the block size, the registers or the architecture are unknown.
pub fn theoretical_occupancy(
    kernel: &Kernel,
    arch: &str,
    threads: Option<u32>,
    dynamic_shared: u64,
) -> Option<Occupancy> {
    let product = |block: [u32; 3]| block.iter().fold(1_u32, |n, d| n.saturating_mul(*d));
    let threads = kernel
        .required_block
        .map(product)
        .or(threads)
        .or(kernel.max_threads.map(product))
        .filter(|n| *n > 0)?;
    let block = BlockResources {
        threads,
        registers: kernel.registers?,
        shared_bytes: kernel.shared_bytes.saturating_add(dynamic_shared),
        carve_out: None,
    };
    let found = occupancy(limits_of_arch(arch)?, &block)?;
    Some(Occupancy {
        threads,
        blocks: found.blocks,
        percent: found.percent,
        limiter: found.limiter.name().to_owned(),
    })
}
