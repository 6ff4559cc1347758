//! Detects the kind of a file and searches it accordingly.

use super::{ContainerError, Limits, archive, c_array, host, windows, zipped};
use crate::cubin;
use crate::fatbin::{self, Entry, FatbinError, Unpacker};
use crate::ptx;
use std::borrow::Cow;
use std::fmt;

/// A kind of file that may hold GPU code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerKind {
    /// Machine code for one GPU architecture.
    Cubin,
    /// One or several fatbins after one another.
    Fatbin,
    /// The text of one PTX module.
    Ptx,
    /// An ELF file for a CPU.
    HostElf,
    /// An `ar` archive, such as `libx.a`.
    Archive,
    /// A zip file, such as a wheel.
    Zip,
    /// A Windows program or library (PE), or an object file (COFF).
    Windows,
    /// A C source with code in arrays of numbers.
    CArray,
}

/// Detects the kind of a file from its first bytes (a few hundred are enough), by content alone.
pub fn kind(head: &[u8]) -> Option<ContainerKind> {
    if cubin::is_cubin(head) {
        Some(ContainerKind::Cubin)
    } else if head.starts_with(b"\x7fELF") {
        Some(ContainerKind::HostElf)
    } else if fatbin::is_fatbin(head) {
        Some(ContainerKind::Fatbin)
    } else if head.starts_with(b"!<arch>\n") {
        Some(ContainerKind::Archive)
    } else if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        Some(ContainerKind::Zip)
    } else if ptx::is_ptx(head) {
        Some(ContainerKind::Ptx)
    } else if windows::is_windows(head) {
        Some(ContainerKind::Windows)
    } else if c_array::is_source(head) {
        Some(ContainerKind::CArray)
    } else {
        None
    }
}

/// The position of an image in a file. Displays as `member/section#index@offset`, outermost first;
/// empty if the file itself is the image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImagePath {
    /// Names of zip and archive members, outermost first.
    pub members: Vec<String>,
    /// The host ELF section and its index.
    pub section: Option<(String, usize)>,
    /// Index of the fatbin in the section or file, from 0, and of the entry in the fatbin.
    pub entry: Option<(usize, usize)>,
}

impl fmt::Display for ImagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.members.clone();
        parts.extend(self.section.as_ref().map(|(name, index)| format!("{name}#{index}")));
        parts.extend(self.entry.map(|(fatbin, entry)| format!("fatbin {fatbin} entry {entry}")));
        f.write_str(&parts.join(" › "))
    }
}

impl ImagePath {
    pub(super) fn member(&self, name: &str) -> ImagePath {
        let mut inner = self.clone();
        inner.members.push(name.to_owned());
        inner
    }
}

/// One piece of GPU code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Image<'a> {
    /// The bytes of a cubin file.
    Cubin(&'a [u8]),
    /// The text of a PTX file.
    Ptx(&'a [u8]),
    /// An entry of a fatbin, possibly compressed.
    Entry(Entry<'a>),
}

impl<'a> Image<'a> {
    /// The image's bytes.
    ///
    /// # Errors
    /// See [`Entry::unpack`].
    pub fn bytes(&self, limits: &Limits) -> Result<Cow<'a, [u8]>, FatbinError> {
        match self {
            Image::Cubin(bytes) | Image::Ptx(bytes) => Ok(Cow::Borrowed(bytes)),
            Image::Entry(entry) => entry.unpack(limits.unpacked_bytes),
        }
    }

    /// Returns the image's bytes, unpacked into the unpacker's buffer if they are compressed.
    ///
    /// # Errors
    /// See [`Entry::unpack`].
    pub fn bytes_into<'r>(
        &self,
        limits: &Limits,
        unpacker: &'r mut Unpacker,
    ) -> Result<&'r [u8], FatbinError>
    where
        'a: 'r,
    {
        match self {
            Image::Cubin(bytes) | Image::Ptx(bytes) => Ok(bytes),
            Image::Entry(entry) => entry.unpack_into(limits.unpacked_bytes, unpacker),
        }
    }
}

/// The path of an image with the image, or with the error of a part that could not be read.
pub type ImageEntry<'a> = (ImagePath, Result<Image<'a>, ContainerError>);

/// Passes every image of a file to `visit`, in file order.
///
/// # Errors
/// Only [`ContainerError::UnknownFile`]; all other errors are passed to `visit`.
pub fn walk(
    data: &[u8],
    limits: &Limits,
    visit: &mut dyn FnMut(&ImagePath, Result<Image<'_>, ContainerError>),
) -> Result<ContainerKind, ContainerError> {
    batches(data, limits, &mut |found| {
        for (place, image) in found {
            visit(&place, image);
        }
    })
}

/// Passes the images of a file to `visit` in file order, in batches: all images of the file, or of
/// one zip member after the other. Only zip members are decompressed.
///
/// # Errors
/// As [`walk`].
pub fn batches(
    data: &[u8],
    limits: &Limits,
    visit: &mut dyn FnMut(Vec<ImageEntry<'_>>),
) -> Result<ContainerKind, ContainerError> {
    let Some(kind) = kind(&data[..data.len().min(4096)]) else {
        let start = data[..data.len().min(16)].escape_ascii().to_string();
        return Err(ContainerError::UnknownFile { start });
    };
    match kind {
        ContainerKind::Zip => zipped::walk(data, limits, visit),
        ContainerKind::CArray => c_array::walk(data, limits, visit),
        _ => visit(inside(data, kind, &ImagePath::default(), limits)),
    }
    Ok(kind)
}

/// Finds all images in one file or member. Nested zip files are not opened: wheels contain none,
/// zip bombs do.
pub(super) fn inside<'a>(
    data: &'a [u8],
    kind: ContainerKind,
    place: &ImagePath,
    limits: &Limits,
) -> Vec<ImageEntry<'a>> {
    let mut found = Vec::new();
    add(data, kind, place, limits, &mut found);
    found
}

/// Finds all images in one file or member and appends them to `found`.
pub(super) fn add<'a>(
    data: &'a [u8],
    kind: ContainerKind,
    place: &ImagePath,
    limits: &Limits,
    found: &mut Vec<ImageEntry<'a>>,
) {
    match kind {
        ContainerKind::Cubin => found.push((place.clone(), Ok(Image::Cubin(data)))),
        ContainerKind::Ptx => found.push((place.clone(), Ok(Image::Ptx(data)))),
        ContainerKind::Fatbin => fatbins(data, place, limits, found),
        ContainerKind::HostElf => host::walk(data, place, limits, found),
        ContainerKind::Archive => archive::walk(data, place, limits, found),
        ContainerKind::Windows => windows::walk(data, place, limits, found),
        ContainerKind::Zip | ContainerKind::CArray => {}
    }
}

/// Finds all fatbins of a section or file.
pub(super) fn fatbins<'a>(
    data: &'a [u8],
    place: &ImagePath,
    limits: &Limits,
    found: &mut Vec<ImageEntry<'a>>,
) {
    for (number, fatbin) in fatbin::find(data).enumerate() {
        if found.len() > limits.members {
            let (count, limit) = (found.len(), limits.members);
            found.push((place.clone(), Err(ContainerError::TooMany { count, limit })));
            return;
        }
        match fatbin {
            Ok(fatbin) => {
                found.extend(fatbin.entries.into_iter().enumerate().map(|(at, entry)| {
                    let place = ImagePath { entry: Some((number, at)), ..place.clone() };
                    (place, Ok(Image::Entry(entry)))
                }))
            }
            Err(error) => found.push((place.clone(), Err(error.into()))),
        }
    }
}
