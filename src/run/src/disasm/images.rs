//! Finds the GPU code images in a file and reads their headers.

use std::path::Path;

use rgpu_format::container::{
    self, ContainerError, ContainerKind, Image as Packed, ImageEntry, ImagePath, Limits,
};
use rgpu_format::fatbin::{Compression, EntryKind};
use rgpu_format::ncu_rep;

use super::image_task::ImageTask;
use super::inputs;
use rgpu_model::disasm::Image;
use rgpu_model::disasm::{ImageCompression, ImageKind, InputKind};

/// An image's position in the file and its bytes.
pub type LocatedImage = (String, Vec<u8>);

/// Every requested cubin and PTX of a file, for views, and the errors of its parts.
pub fn image_bytes(
    path: &Path,
    task: &ImageTask,
) -> Result<(Vec<LocatedImage>, Vec<String>), String> {
    let data = inputs::bytes(path)?;
    let (mut all, mut errors) = (Vec::new(), Vec::new());
    let read_image = |(place, image): &ImageEntry<'_>| -> Result<Option<LocatedImage>, String> {
        let image = image.as_ref().map_err(ToString::to_string)?;
        let image_header = header(place, image);
        if !task.filter.matches_arch(&image_header.arch) && !image_header.arch.is_empty() {
            return Ok(None);
        }
        // LTO IR and unknown kinds are not code yet; only their headers are listed.
        if !matches!(image_header.kind, ImageKind::Cubin | ImageKind::Ptx) {
            return Ok(None);
        }
        let bytes = image.bytes(&task.limits).map_err(|e| e.to_string())?;
        Ok(Some((place.to_string(), bytes.into_owned())))
    };
    let walked = walk(&data, &task.limits, &mut |found| {
        for found in &found {
            match read_image(found) {
                Ok(image) => all.extend(image),
                Err(error) => errors.push(at_place(&found.0, error)),
            }
        }
    });
    walked.map_err(|e| e.to_string())?;
    Ok((all, errors))
}

/// Visits the images of a file of any kind; returns the kind's name.
pub(super) fn walk(
    data: &[u8],
    limits: &Limits,
    visit: &mut dyn FnMut(Vec<ImageEntry<'_>>),
) -> Result<InputKind, ContainerError> {
    let unknown = match container::batches(data, limits, visit) {
        Err(unknown @ ContainerError::UnknownFile { .. }) => unknown,
        walked => return walked.map(input_kind),
    };
    // An ncu report contains the cubins that it profiled. Other tools' formats contain no code.
    let (report, _) = match ncu_rep::NcuReport::read(data, &ncu_rep::NcuReadLimits::default()) {
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
        let place =
            ImagePath { members: vec![format!("cubin {}", seen.len())], ..ImagePath::default() };
        found.push((place, Ok(Packed::Cubin(source.cubin))));
    }
    visit(found);
    Ok(InputKind::NcuRep)
}

fn input_kind(kind: ContainerKind) -> InputKind {
    match kind {
        ContainerKind::Cubin => InputKind::Cubin,
        ContainerKind::Fatbin => InputKind::Fatbin,
        ContainerKind::Ptx => InputKind::Ptx,
        ContainerKind::HostElf => InputKind::Elf,
        ContainerKind::Archive => InputKind::Archive,
        ContainerKind::Zip => InputKind::Zip,
        ContainerKind::Windows => InputKind::Windows,
        ContainerKind::CArray => InputKind::CArray,
    }
}

/// The facts of an image that need no decompression.
pub(super) fn header(place: &ImagePath, found: &Packed<'_>) -> Image {
    let mut image = Image { place: place.to_string(), ..Image::default() };
    let plain = |image: &mut Image, kind: ImageKind, bytes: &[u8]| {
        image.kind = kind;
        image.compression = ImageCompression::None;
        (image.stored_bytes, image.bytes) = (bytes.len() as u64, bytes.len() as u64);
    };
    match found {
        Packed::Cubin(bytes) => plain(&mut image, ImageKind::Cubin, bytes),
        Packed::Ptx(bytes) => plain(&mut image, ImageKind::Ptx, bytes),
        Packed::Entry(entry) => {
            image.kind = match entry.kind {
                EntryKind::Ptx => ImageKind::Ptx,
                EntryKind::Cubin => ImageKind::Cubin,
                EntryKind::LtoIr => ImageKind::LtoIr,
                EntryKind::Other(number) => format!("kind_{number}").into(),
            };
            image.compression = match entry.compression {
                Compression::None => ImageCompression::None,
                Compression::Lz4 => ImageCompression::Lz4,
                Compression::Zstd => ImageCompression::Zstd,
            };
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

/// Errors of one file that are told.
const MAX_ERRORS: usize = 20;

/// The first errors of a file and the last, which may say that a part is left out; and the number
/// of the others.
pub fn first_errors(mut errors: Vec<String>) -> Vec<String> {
    let more = errors.len().saturating_sub(MAX_ERRORS);
    if more > 0 {
        let last = errors.pop();
        errors.truncate(MAX_ERRORS - 1);
        errors.extend(last);
        errors.push(format!("… and {more} more"));
    }
    errors
}

/// An error with the position of the part that it is about.
pub(super) fn at_place(place: &ImagePath, error: String) -> String {
    match place.to_string() {
        here if here.is_empty() => error,
        place => format!("{place}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_errors_are_cut_to_the_first_and_the_last() {
        let errors = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(first_errors(errors(20)), errors(20));
        let told = first_errors(errors(100));
        assert_eq!(told[..19], errors(19));
        assert_eq!(told[19..], ["99", "… and 80 more"]);
    }
}
