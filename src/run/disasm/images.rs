//! The images of a file: how they are found, and what is said of one before it is unpacked.

use std::path::Path;

use rgpu_format::container::{self, ContainerError, Found, Image as Packed, Kind, Limits, Place};
use rgpu_format::fatbin::{Compression, EntryKind};
use rgpu_format::ncu_rep;

use super::image_task::ImageTask;
use super::inputs;
use crate::model::disasm::Image;

/// The bytes of an image, with its place in the file.
pub type LocatedImage = (String, Vec<u8>);

/// Every wanted image of a file, for views, and the errors of parts.
///
/// # Errors
/// The file cannot be read or holds nothing of interest.
pub fn image_bytes(
    path: &Path,
    what: &ImageTask,
) -> Result<(Vec<LocatedImage>, Vec<String>), String> {
    let data = inputs::bytes(path)?;
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    let one = |(place, image): &Found<'_>| -> Result<Option<LocatedImage>, String> {
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
pub(super) fn walk(
    data: &[u8],
    limits: &Limits,
    visit: &mut dyn FnMut(Vec<Found<'_>>),
) -> Result<&'static str, ContainerError> {
    let unknown = match container::batches(data, limits, visit) {
        Err(unknown @ ContainerError::UnknownFile { .. }) => unknown,
        walked => return walked.map(kind_name),
    };
    // A report keeps the cubins of what it profiled. Formats of tools are no containers of code.
    let (report, _) = match ncu_rep::NcuReport::read(data, &ncu_rep::Limits::default()) {
        Ok(report) => report,
        Err(ncu_rep::Error::Unpacked(error)) => return Err(error.into()),
        Err(_) => return Err(unknown),
    };
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
pub(super) fn header(place: &Place, found: &Packed<'_>) -> Image {
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

/// An error of a part, with its place.
pub(super) fn at_place(place: &Place, error: String) -> String {
    match place.to_string() {
        here if here.is_empty() => error,
        place => format!("{place}: {error}"),
    }
}
