//! One input: its images, their facts, and the files that are written of them.

use std::path::Path;

use rgpu_format::container::{Found, Image as Packed, Place};
use rgpu_format::cubin::{self, CodeSection, Cubin};
use rgpu_format::demangle::{self, demangle};
use rgpu_format::fatbin::Unpacker;
use rgpu_format::ptx;

use super::code::LifeRanges;
use super::image_task::ImageTask;
use super::images::{at_place, header, walk};
use super::inputs;
use super::ordered_writer::{OrderedWriter, PendingFile};
use super::spare_cores::SpareCores;
use crate::analysis::occupancy::{Block, limits_of_arch, occupancy};
use crate::import::gpu_code;
use crate::model::disasm::{Image, Input, Kernel, Occupancy, Status};

/// What is said of an input whose code is all for other architectures.
pub const OTHER_ARCHES: &str = "no GPU code for the architectures asked";

/// Reads files, and keeps what they share.
pub(super) struct ImageReader<'w> {
    what: &'w ImageTask,
    /// Cores that files, images and kernels are spread over.
    pub(super) cores: SpareCores,
    /// Where files get their names.
    pub(super) outbox: OrderedWriter,
}

/// An image and the files written of it; `None` where it is not wanted.
type ImageResult = Option<(Image, Vec<PendingFile>)>;

impl<'w> ImageReader<'w> {
    pub(super) fn new(what: &'w ImageTask) -> Self {
        Self { what, cores: SpareCores::all(), outbox: OrderedWriter::default() }
    }

    /// Reads the file of this number. Never fails: what went wrong stands in the result. Beside it
    /// the numbers of its images, by which their files are named.
    pub(super) fn read(&self, number: usize, path: &Path) -> (Input, Vec<usize>) {
        let mut input = Input { path: path.display().to_string(), ..Input::default() };
        let (mut numbers, mut count) = (Vec::new(), 0);
        match inputs::bytes(path) {
            Ok(data) => {
                let walked = walk(&data, &self.what.limits, &mut |found| {
                    let made = self.images(path, (number, count), &found);
                    for (at, ((place, _), made)) in found.iter().zip(made).enumerate() {
                        match made {
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
                    Ok(kind) => input.kind = Some(kind.to_owned()),
                    Err(error) => input.errors.push(error.to_string()),
                }
            }
            Err(error) => input.errors.push(error),
        }
        if let Some(out) = &self.what.out {
            self.outbox.end(&self.what.names, out, (number, count));
        }
        if input.errors.is_empty() && input.images.is_empty() {
            let filtered = !self.what.wanted.arches.is_empty();
            input.errors.push(match filtered {
                true => OTHER_ARCHES.to_owned(),
                false => "no GPU code in it".to_owned(),
            });
        }
        input.status = match (input.errors.is_empty(), input.images.is_empty()) {
            (true, _) => Status::Ok,
            (false, false) => Status::Partial,
            (false, true) => Status::Failed,
        };
        (input, numbers)
    }

    /// The images of one batch, of which the first has this number.
    fn images(
        &self,
        path: &Path,
        (file, first): (usize, usize),
        found: &[Found<'_>],
    ) -> Vec<Result<Option<Image>, String>> {
        self.cores.spread(found.len(), Unpacker::default, |unpacker, at| {
            let (place, found) = &found[at];
            let made: Result<ImageResult, String> = match found {
                Ok(found) => image(path, place, found, self, unpacker),
                Err(error) => Err(error.to_string()),
            };
            let (made, files) = match made {
                Ok(Some((image, files))) => (Ok(Some(image)), files),
                Ok(None) => (Ok(None), Vec::new()),
                Err(error) => (Err(error), Vec::new()),
            };
            if let Some(out) = &self.what.out {
                self.outbox.image(&self.what.names, out, (file, first + at), files);
            }
            made
        })
    }
}

/// One image.
fn image(
    path: &Path,
    place: &Place,
    found: &Packed<'_>,
    reader: &ImageReader<'_>,
    unpacker: &mut Unpacker,
) -> Result<ImageResult, String> {
    let what = reader.what;
    let mut image = header(place, found);
    let from_header = !image.arch.is_empty();
    if from_header && !what.wanted.arch(&image.arch) {
        return Ok(None);
    }
    if what.list_only && from_header || !matches!(image.kind.as_str(), "cubin" | "ptx") {
        return Ok(Some((image, Vec::new())));
    }
    let bytes = found.bytes_into(&what.limits, unpacker).map_err(|e| e.to_string())?;
    image.bytes = bytes.len() as u64;
    if image.kind == "ptx" {
        return of_ptx(path, image, bytes, what);
    }
    of_cubin(path, image, bytes, reader)
}

fn of_ptx(
    path: &Path,
    mut image: Image,
    bytes: &[u8],
    what: &ImageTask,
) -> Result<ImageResult, String> {
    let text = String::from_utf8_lossy(bytes);
    let ptx = ptx::read(&text).map_err(|e| e.to_string())?;
    if !what.wanted.arch(&ptx.target) {
        return Ok(None);
    }
    image.arch = ptx.target;
    image.version = Some(ptx.version);
    image.entries = ptx.entries.into_iter().filter(|e| what.wanted.kernel(e)).collect();
    let mut files = Vec::new();
    if what.extract
        && let Some(out) = &what.out
    {
        let file = PendingFile::write(out, (path, &image.arch, None), "ptx", bytes);
        files.push(file.inspect_err(|why| what.not_written(why))?);
    }
    Ok(Some((image, files)))
}

fn of_cubin(
    path: &Path,
    mut image: Image,
    bytes: &[u8],
    reader: &ImageReader<'_>,
) -> Result<ImageResult, String> {
    let what = reader.what;
    let cubin = cubin::read(bytes).map_err(|e| e.to_string())?;
    let arch = cubin.sm.to_string();
    if !what.wanted.arch(&arch) {
        return Ok(None);
    }
    image.arch = arch;
    image.version = cubin.toolkit.map(|t| t.to_string());
    image.has_lines = cubin.has_lines;
    if let Some(producer) = &cubin.producer {
        image.compiler = Some(producer.release.clone()).filter(|r| !r.is_empty());
        image.command_line = Some(producer.command_line.clone()).filter(|c| !c.is_empty());
    }
    if what.list_only {
        return Ok(Some((image, Vec::new())));
    }
    image.kernels = kernels(&cubin, &image.arch, bytes, reader);
    let mut files = Vec::new();
    let Some(out) = &what.out else { return Ok(Some((image, files))) };
    let mut write = |part: Option<&str>, extension, bytes: &[u8]| {
        let file = PendingFile::write(out, (path, &image.arch, part), extension, bytes);
        files.push(file.inspect_err(|why| what.not_written(why))?);
        Ok::<(), String>(())
    };
    if what.extract {
        write(None, "cubin", bytes)?;
        if let Some(ptx) = &cubin.ptx {
            write(None, "ptx", ptx.text(bytes).as_bytes())?;
        }
    }
    let nothing = image.kernels.is_empty() && !what.wanted.kernels.is_empty();
    if what.sass && !nothing {
        let (text, tool, problem) = listing(&cubin, bytes, what);
        if what.by_kernel {
            for (kernel, text) in by_kernel(&text) {
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

/// Kernels that one core looks at before it asks for more.
const KERNELS_PER_CHUNK: usize = 16;

/// The facts of the wanted kernels of a cubin.
fn kernels(cubin: &Cubin, arch: &str, bytes: &[u8], reader: &ImageReader<'_>) -> Vec<Kernel> {
    let what = reader.what;
    let wanted: Vec<_> = cubin.kernels.iter().filter(|k| what.wanted.kernel(&k.name)).collect();
    let chunks: Vec<_> = wanted.chunks(KERNELS_PER_CHUNK).collect();
    let facts = |kernel: &&cubin::Kernel| {
        let mut facts = gpu_code::kernel(kernel, cubin, bytes);
        facts.occupancy = occupied(&facts, arch, what.threads);
        facts
    };
    let told = reader.cores.spread(
        chunks.len(),
        || (),
        |(), at| chunks[at].iter().map(facts).collect::<Vec<Kernel>>(),
    );
    told.into_iter().flatten().collect()
}

/// The parts of a listing, one for each section of code, with the section's name.
fn by_kernel(listing: &str) -> Vec<(&str, String)> {
    const SECTION: &str = "\t.section\t.text.";
    let mut parts: Vec<(&str, String)> = Vec::new();
    for line in listing.lines() {
        if let Some(rest) = line.strip_prefix(SECTION) {
            let name = rest.split(',').next().unwrap_or_default().trim_matches('"');
            parts.push((name, String::new()));
        }
        if let Some((_, text)) = parts.last_mut() {
            // The heading of the next section stands before it.
            if !line.starts_with("//----") {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    parts
}

/// The listing, by nvdisasm where it can, else our own. Returns the text, which tool wrote it, and
/// why nvdisasm did not where it should have.
pub fn listing(cubin: &Cubin, bytes: &[u8], what: &ImageTask) -> (String, String, Option<String>) {
    let mut problem = None;
    if let Some(tool) = &what.nvdisasm {
        let (flags, symbols) = asked(cubin, what);
        match tool.listing(bytes, flags, &symbols) {
            Ok(text) => {
                let text = match what.shown.control {
                    true => gpu_code::annotate(&text, cubin, bytes),
                    false => text,
                };
                return (text, tool.name(), None);
            }
            Err(error) => problem = Some(error.to_string()),
        }
    }
    let ours = format!("rgpu {}", env!("CARGO_PKG_VERSION"));
    let wanted = |section: &CodeSection| what.wanted.kernel(&section.name);
    (gpu_code::listing(cubin, bytes, what.shown, &wanted), ours, problem)
}

/// What nvdisasm is asked of a cubin: flags, and the functions wanted by the number of their
/// symbol, empty for all.
pub(super) fn asked(cubin: &Cubin, what: &ImageTask) -> (&'static [&'static str], Vec<usize>) {
    let flags: &[&str] = match (what.lives, what.shown.lines) {
        // The tool does not take both.
        (LifeRanges::Welcome | LifeRanges::Needed, _) => &["-plr"],
        (LifeRanges::Unasked, true) => &["-gi"],
        (LifeRanges::Unasked, false) => &[],
    };
    let wanted = cubin.kernels.iter().filter(|k| what.wanted.kernel(&k.name));
    let symbols = wanted.map(|k| k.symbol_index);
    (flags, if what.wanted.kernels.is_empty() { Vec::new() } else { symbols.collect() })
}

/// The theoretical occupancy for the block the kernel requires, else the one asked, else the
/// largest it allows.
fn occupied(kernel: &Kernel, arch: &str, threads: Option<u32>) -> Option<Occupancy> {
    let product = |block: [u32; 3]| block.iter().fold(1_u32, |n, d| n.saturating_mul(*d));
    let threads = kernel
        .required_block
        .map(product)
        .or(threads)
        .or(kernel.max_threads.map(product))
        .filter(|n| *n > 0)?;
    let block = Block {
        threads,
        registers: kernel.registers?,
        shared_bytes: kernel.shared_bytes,
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
