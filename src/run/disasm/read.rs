//! One input: its images, their facts, and the files that are written of them.

use std::path::{Path, PathBuf};

use regex::Regex;
use rgpu_format::container::{self, ContainerError, Image as Found, Kind, Limits, Place};
use rgpu_format::cubin::{self, CodeSection, Cubin};
use rgpu_format::demangle::{self, demangle};
use rgpu_format::fatbin::{Compression, EntryKind};
use rgpu_format::{ncu_rep, ptx};

use super::code::Lifespans;
use super::names::Names;
use super::nvdisasm::Nvdisasm;
use crate::analysis::occupancy::{Block, limits_of_arch, occupancy};
use crate::import::gpu_code::{self, Shown};
use crate::model::disasm::{Image, Input, Kernel, Occupancy, Status};
use crate::store::atomic;

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
        let name = demangle(symbol);
        self.kernels.is_empty()
            || self
                .kernels
                .iter()
                .any(|k| k.is_match(symbol) || name.as_deref().is_some_and(|n| k.is_match(n)))
    }
}

/// What is said of an input whose code is all for other architectures.
pub const OTHER_ARCHES: &str = "no GPU code for the architectures asked";

/// Reads one file. Never fails: what went wrong stands in the result.
pub fn read(path: &Path, what: &What) -> Input {
    let mut input = Input { path: path.display().to_string(), ..Input::default() };
    match std::fs::read(path) {
        Ok(data) => {
            let walked = walk(&data, &what.limits, &mut |place, found| {
                let told = found
                    .map_err(|e| e.to_string())
                    .and_then(|found| image(path, place, &found, what));
                match told {
                    Ok(image) => input.images.extend(image),
                    Err(error) if place.to_string().is_empty() => input.errors.push(error),
                    Err(error) => input.errors.push(format!("{place}: {error}")),
                }
            });
            match walked {
                Ok(kind) => input.kind = Some(kind.to_owned()),
                Err(error) => input.errors.push(error.to_string()),
            }
        }
        Err(error) => input.errors.push(format!("the file cannot be read: {error}")),
    }
    if input.errors.is_empty() && input.images.is_empty() {
        let filtered = !what.wanted.arches.is_empty();
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
    input
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
    let walked = walk(&data, &what.limits, &mut |place, found| {
        let bytes = found.map_err(|e| e.to_string()).and_then(|found| {
            let told = header(place, &found);
            if !what.wanted.arch(&told.arch) && !told.arch.is_empty() {
                return Ok(());
            }
            // LTO IR and what is newer than us is no code yet, and listed by its header alone.
            if !matches!(told.kind.as_str(), "cubin" | "ptx") {
                return Ok(());
            }
            let bytes = found.bytes(&what.limits).map_err(|e| e.to_string())?;
            all.push((place.to_string(), bytes.into_owned()));
            Ok(())
        });
        errors.extend(bytes.err().map(|error| match place.to_string() {
            here if here.is_empty() => error,
            place => format!("{place}: {error}"),
        }));
    });
    walked.map_err(|e| e.to_string())?;
    Ok((all, errors))
}

/// Visits the GPU code of a file, of whatever kind; returns the kind's name.
fn walk(
    data: &[u8],
    limits: &Limits,
    visit: &mut dyn FnMut(&Place, Result<Found<'_>, ContainerError>),
) -> Result<&'static str, ContainerError> {
    let unknown = match container::walk(data, limits, visit) {
        Err(unknown @ ContainerError::UnknownFile { .. }) => unknown,
        walked => return walked.map(kind_name),
    };
    // A report keeps the cubins of what it profiled. Formats of tools are no containers of code.
    let report = ncu_rep::NcuReport::read(data, &ncu_rep::Limits::default());
    let Ok((report, _)) = report else { return Err(unknown) };
    let mut seen: Vec<&[u8]> = Vec::new();
    for source in &report.sources() {
        if source.cubin.is_empty() || seen.contains(&source.cubin) {
            continue;
        }
        seen.push(source.cubin);
        let place = Place { members: vec![format!("cubin {}", seen.len())], ..Place::default() };
        visit(&place, Ok(Found::Cubin(source.cubin)));
    }
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
fn header(place: &Place, found: &Found<'_>) -> Image {
    let mut image = Image { place: place.to_string(), ..Image::default() };
    let plain = |image: &mut Image, kind: &str, bytes: &[u8]| {
        image.kind = kind.to_owned();
        image.compression = "none".to_owned();
        (image.stored_bytes, image.bytes) = (bytes.len() as u64, bytes.len() as u64);
    };
    match found {
        Found::Cubin(bytes) => plain(&mut image, "cubin", bytes),
        Found::Ptx(bytes) => plain(&mut image, "ptx", bytes),
        Found::Entry(entry) => {
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

/// One image; `None` where it is not wanted.
fn image(
    path: &Path,
    place: &Place,
    found: &Found<'_>,
    what: &What,
) -> Result<Option<Image>, String> {
    let mut image = header(place, found);
    let from_header = !image.arch.is_empty();
    if from_header && !what.wanted.arch(&image.arch) {
        return Ok(None);
    }
    if what.list_only && from_header || !matches!(image.kind.as_str(), "cubin" | "ptx") {
        return Ok(Some(image));
    }
    let bytes = found.bytes(&what.limits).map_err(|e| e.to_string())?;
    image.bytes = bytes.len() as u64;
    if image.kind == "ptx" {
        return of_ptx(path, image, &bytes, what);
    }
    of_cubin(path, image, &bytes, what)
}

fn of_ptx(
    path: &Path,
    mut image: Image,
    bytes: &[u8],
    what: &What,
) -> Result<Option<Image>, String> {
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
    if what.extract {
        write(&mut image, path, "ptx", bytes, what)?;
    }
    Ok(Some(image))
}

fn of_cubin(
    path: &Path,
    mut image: Image,
    bytes: &[u8],
    what: &What,
) -> Result<Option<Image>, String> {
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
        return Ok(Some(image));
    }
    for kernel in cubin.kernels.iter().filter(|k| what.wanted.kernel(&k.name)) {
        let mut facts = gpu_code::kernel(kernel, &cubin, bytes);
        facts.occupancy = occupied(&facts, &image.arch, what.threads);
        image.kernels.push(facts);
    }
    if what.extract {
        write(&mut image, path, "cubin", bytes, what)?;
        if let Some(text) = &cubin.ptx {
            write(&mut image, path, "ptx", text.as_bytes(), what)?;
        }
    }
    let nothing = image.kernels.is_empty() && !what.wanted.kernels.is_empty();
    if what.sass && !nothing {
        let (text, tool, problem) = listing(&cubin, bytes, what);
        image.tool = Some(tool);
        image.tool_problem = problem;
        if what.by_kernel {
            for (kernel, text) in by_kernel(&text) {
                let name = demangle(kernel);
                let name = demangle::short(name.as_deref().unwrap_or(kernel)).to_owned();
                write_part(&mut image, path, Some(&name), "sass", text.as_bytes(), what)?;
            }
        } else {
            write(&mut image, path, "sass", text.as_bytes(), what)?;
        }
    }
    Ok(Some(image))
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

/// Writes a file of `image` into the output folder, where there is one.
fn write(
    image: &mut Image,
    path: &Path,
    extension: &str,
    bytes: &[u8],
    what: &What,
) -> Result<(), String> {
    write_part(image, path, None, extension, bytes, what)
}

/// The same of one `part` of the image, which its name tells.
fn write_part(
    image: &mut Image,
    path: &Path,
    part: Option<&str>,
    extension: &str,
    bytes: &[u8],
    what: &What,
) -> Result<(), String> {
    let Some(out) = &what.out else { return Ok(()) };
    let name = what.names.fresh(path, &image.arch, part, extension);
    std::fs::create_dir_all(out).map_err(|e| format!("`{}` not made: {e}", out.display()))?;
    atomic::write(&out.join(&name), bytes).map_err(|e| format!("`{name}` not written: {e}"))?;
    image.files.push(name);
    Ok(())
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
