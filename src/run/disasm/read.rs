//! One input: its images, their facts, and the files that are written of them.

use std::path::{Path, PathBuf};

use regex::Regex;
use rgpu_format::container::{self, ContainerError, Found, Image as Packed, Kind, Limits, Place};
use rgpu_format::cubin::{self, CodeSection, Cubin};
use rgpu_format::demangle::{self, demangle};
use rgpu_format::fatbin::{Compression, EntryKind, Unpacker};
use rgpu_format::{ncu_rep, ptx};

use super::code::Lifespans;
use super::cores::Cores;
use super::names::Names;
use super::nvdisasm::Nvdisasm;
use super::outbox::{Outbox, Waiting};
use crate::analysis::occupancy::{Block, limits_of_arch, occupancy};
use crate::import::gpu_code::{self, Shown};
use crate::model::disasm::{Image, Input, Kernel, Occupancy, Status};

/// Which images and kernels are wanted.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Architectures as typed (`sm_90a`, `90`); all where empty.
    pub arches: Vec<String>,
    /// A kernel's symbol or demangled name must match one of these; all where empty.
    pub kernels: Vec<Regex>,
}

/// What is done with each image.
#[derive(Debug, Default)]
pub struct What {
    /// Which.
    pub wanted: Wanted,
    /// Where files go; nothing is written without.
    pub out: Option<PathBuf>,
    /// Listings are written.
    pub sass: bool,
    /// Each kernel has a listing of its own.
    pub by_kernel: bool,
    /// Cubins and PTX are written.
    pub extract: bool,
    /// Headers only: nothing is decompressed, no kernel is looked at.
    pub list_only: bool,
    /// Columns of listings.
    pub shown: Shown,
    /// Life ranges of registers, in views.
    pub lives: Lifespans,
    /// The tool that knows operands, where there is one.
    pub nvdisasm: Option<Nvdisasm>,
    /// Threads of a block that occupancy is told for, where the kernel does not say.
    pub threads: Option<u32>,
    /// Bounds.
    pub limits: Limits,
    /// Names already taken in `out`.
    pub names: Names,
}

impl Wanted {
    /// Whether code for `arch` is wanted: `sm_100` lets `sm_100a` and `sm_100f` through too, whose
    /// code runs on the same GPUs; `sm_100a` only itself.
    pub fn arch(&self, arch: &str) -> bool {
        fn plain(arch: &str) -> &str {
            arch.trim_start_matches("sm_").trim_start_matches("compute_")
        }
        let arch = plain(arch);
        let of = |asked: &str| arch == asked || arch.strip_suffix(['a', 'f']) == Some(asked);
        self.arches.is_empty() || self.arches.iter().any(|asked| of(plain(asked)))
    }

    /// Whether a kernel or function is wanted by its symbol.
    pub fn kernel(&self, symbol: &str) -> bool {
        if self.kernels.is_empty() {
            return true;
        }
        let name = demangle(symbol);
        let named =
            |k: &Regex| k.is_match(symbol) || name.as_deref().is_some_and(|n| k.is_match(n));
        self.kernels.iter().any(named)
    }
}

/// What is said of an input whose code is all for other architectures.
pub const OTHER_ARCHES: &str = "no GPU code for the architectures asked";

/// Reads files, and keeps what they share.
pub(super) struct Reader<'w> {
    what: &'w What,
    /// Cores that files, images and kernels are spread over.
    pub(super) cores: Cores,
    /// Where files get their names.
    pub(super) outbox: Outbox,
}

/// An image and the files written of it; `None` where it is not wanted.
type Made = Option<(Image, Vec<Waiting>)>;

impl<'w> Reader<'w> {
    pub(super) fn new(what: &'w What) -> Self {
        Self { what, cores: Cores::all(), outbox: Outbox::default() }
    }

    /// Reads the file of this number. Never fails: what went wrong stands in the result. Beside it
    /// the numbers of its images, by which their files are named.
    pub(super) fn read(&self, number: usize, path: &Path) -> (Input, Vec<usize>) {
        let mut input = Input { path: path.display().to_string(), ..Input::default() };
        let (mut numbers, mut count) = (Vec::new(), 0);
        match std::fs::read(path) {
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
            Err(error) => input.errors.push(format!("the file cannot be read: {error}")),
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
            let made: Result<Made, String> = match found {
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

/// An error of a part, with its place.
fn at_place(place: &Place, error: String) -> String {
    match place.to_string() {
        here if here.is_empty() => error,
        place => format!("{place}: {error}"),
    }
}

/// The bytes of an image, with its place in the file.
pub type Placed = (String, Vec<u8>);

/// Every wanted image of a file, for views, and the errors of parts.
///
/// # Errors
/// The file cannot be read or holds nothing of interest.
pub fn image_bytes(path: &Path, what: &What) -> Result<(Vec<Placed>, Vec<String>), String> {
    let data = std::fs::read(path).map_err(|e| format!("the file cannot be read: {e}"))?;
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    let one = |(place, image): &Found<'_>| -> Result<Option<Placed>, String> {
        let image = image.as_ref().map_err(ToString::to_string)?;
        let told = header(place, image);
        if !what.wanted.arch(&told.arch) && !told.arch.is_empty() {
            return Ok(None);
        }
        // LTO IR and what is newer than us is no code yet, and listed by its header alone.
        if !matches!(told.kind.as_str(), "cubin" | "ptx") {
            return Ok(None);
        }
        let bytes = image.bytes(&what.limits).map_err(|e| e.to_string())?;
        Ok(Some((place.to_string(), bytes.into_owned())))
    };
    let walked = walk(&data, &what.limits, &mut |found| {
        for found in &found {
            match one(found) {
                Ok(image) => all.extend(image),
                Err(error) => errors.push(at_place(&found.0, error)),
            }
        }
    });
    walked.map_err(|e| e.to_string())?;
    Ok((all, errors))
}

/// Visits the GPU code of a file, of whatever kind; returns the kind's name.
fn walk(
    data: &[u8],
    limits: &Limits,
    visit: &mut dyn FnMut(Vec<Found<'_>>),
) -> Result<&'static str, ContainerError> {
    let unknown = match container::batches(data, limits, visit) {
        Err(unknown @ ContainerError::UnknownFile { .. }) => unknown,
        walked => return walked.map(kind_name),
    };
    // A report keeps the cubins of what it profiled. Formats of tools are no containers of code.
    let report = ncu_rep::NcuReport::read(data, &ncu_rep::Limits::default());
    let Ok((report, _)) = report else { return Err(unknown) };
    let mut seen: Vec<&[u8]> = Vec::new();
    let mut found = Vec::new();
    let sources = report.sources();
    for source in &sources {
        if source.cubin.is_empty() || seen.contains(&source.cubin) {
            continue;
        }
        seen.push(source.cubin);
        let place = Place { members: vec![format!("cubin {}", seen.len())], ..Place::default() };
        found.push((place, Ok(Packed::Cubin(source.cubin))));
    }
    visit(found);
    Ok("ncu_rep")
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Cubin => "cubin",
        Kind::Fatbin => "fatbin",
        Kind::Ptx => "ptx",
        Kind::HostElf => "elf",
        Kind::Archive => "archive",
        Kind::Zip => "zip",
    }
}

/// What can be said without decompression.
fn header(place: &Place, found: &Packed<'_>) -> Image {
    let mut image = Image { place: place.to_string(), ..Image::default() };
    let plain = |image: &mut Image, kind: &str, bytes: &[u8]| {
        image.kind = kind.to_owned();
        image.compression = "none".to_owned();
        (image.stored_bytes, image.bytes) = (bytes.len() as u64, bytes.len() as u64);
    };
    match found {
        Packed::Cubin(bytes) => plain(&mut image, "cubin", bytes),
        Packed::Ptx(bytes) => plain(&mut image, "ptx", bytes),
        Packed::Entry(entry) => {
            image.kind = match entry.kind {
                EntryKind::Ptx => "ptx".to_owned(),
                EntryKind::Cubin => "cubin".to_owned(),
                EntryKind::LtoIr => "lto_ir".to_owned(),
                EntryKind::Other(number) => format!("kind_{number}"),
            };
            image.compression = match entry.compression {
                Compression::None => "none",
                Compression::Lz4 => "lz4",
                Compression::Zstd => "zstd",
            }
            .to_owned();
            image.arch = entry.sm.to_string();
            image.stored_bytes = entry.stored.len() as u64;
            image.bytes = entry.unpacked_bytes;
            image.identifier = entry.identifier.clone();
            if entry.kind == EntryKind::Ptx {
                let (major, minor) = entry.version;
                image.version = Some(format!("{major}.{minor}"));
                image.command_line = entry.options.clone();
            }
        }
    }
    image
}

/// One image.
fn image(
    path: &Path,
    place: &Place,
    found: &Packed<'_>,
    reader: &Reader<'_>,
    unpacker: &mut Unpacker,
) -> Result<Made, String> {
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

fn of_ptx(path: &Path, mut image: Image, bytes: &[u8], what: &What) -> Result<Made, String> {
    let text = String::from_utf8_lossy(bytes);
    let Some(ptx) = ptx::read(&text) else {
        return Err("not PTX: there is no `.version`".to_owned());
    };
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
        files.push(Waiting::write(out, (path, &image.arch, None), "ptx", bytes)?);
    }
    Ok(Some((image, files)))
}

fn of_cubin(
    path: &Path,
    mut image: Image,
    bytes: &[u8],
    reader: &Reader<'_>,
) -> Result<Made, String> {
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
        files.push(Waiting::write(out, (path, &image.arch, part), extension, bytes)?);
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
const CHUNK: usize = 16;

/// The facts of the wanted kernels of a cubin.
fn kernels(cubin: &Cubin, arch: &str, bytes: &[u8], reader: &Reader<'_>) -> Vec<Kernel> {
    let what = reader.what;
    let wanted: Vec<_> = cubin.kernels.iter().filter(|k| what.wanted.kernel(&k.name)).collect();
    let chunks: Vec<_> = wanted.chunks(CHUNK).collect();
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
pub fn listing(cubin: &Cubin, bytes: &[u8], what: &What) -> (String, String, Option<String>) {
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
pub(super) fn asked(cubin: &Cubin, what: &What) -> (&'static [&'static str], Vec<usize>) {
    let flags: &[&str] = match (what.lives, what.shown.lines) {
        // The tool does not take both.
        (Lifespans::Welcome | Lifespans::Needed, _) => &["-plr"],
        (Lifespans::Unasked, true) => &["-gi"],
        (Lifespans::Unasked, false) => &[],
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
