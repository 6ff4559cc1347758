//! Detects the kind of a file and searches it accordingly.

use super::{ContainerError, Limits, archive, c_array, host, windows, zipped};
use crate::cubin;
use crate::fatbin::{self, Entry, FatbinError, Unpacker};
use crate::memory::MemoryBudget;
use crate::ptx;
use std::borrow::Cow;
use std::collections::BTreeMap;
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

/// Memory of an image or an error, as found, as read and as told, without its texts: an estimate.
const IMAGE_BYTES: usize = 2560;
/// A text of an image is in its path, its document, its table and their text.
const COPIES_OF_TEXT: usize = 4;

/// The memory that is left for the images of one file.
#[derive(Debug)]
pub(super) struct Room {
    budget: MemoryBudget,
    /// Images and errors so far.
    count: usize,
    /// Whether one did not fit. Nothing is added after it.
    pub(super) is_full: bool,
}

impl Room {
    /// The room for the images of a file of `file_bytes` unpacked bytes.
    pub(super) fn for_file(file_bytes: usize) -> Self {
        Self { budget: MemoryBudget::for_file(file_bytes), count: 0, is_full: false }
    }

    /// Adds the room for the images of a member of `member_bytes` unpacked bytes.
    pub(super) fn grow(&mut self, member_bytes: usize) {
        self.budget.grow(member_bytes);
    }
}

/// The images found so far.
#[derive(Debug)]
pub(super) struct Found<'a, 'r> {
    pub(super) entries: Vec<ImageEntry<'a>>,
    room: &'r mut Room,
}

impl<'a, 'r> Found<'a, 'r> {
    pub(super) fn new(room: &'r mut Room) -> Self {
        Self { entries: Vec::new(), room }
    }

    /// Adds an image or an error, if it fits; the first that does not is replaced by an error.
    pub(super) fn push(&mut self, place: ImagePath, image: Result<Image<'a>, ContainerError>) {
        if self.room.is_full {
            return;
        }
        let member_bytes: usize = place.members.iter().map(String::len).sum();
        let section_bytes: usize = place.section.as_ref().map_or(0, |(name, _)| name.len());
        let entry_bytes: usize = match &image {
            Ok(Image::Entry(entry)) => {
                entry.identifier.as_ref().map_or(0, String::len)
                    + entry.options.as_ref().map_or(0, String::len)
            }
            Ok(_) | Err(_) => 0,
        };
        let text_bytes = member_bytes + section_bytes + entry_bytes;
        let bytes = text_bytes.saturating_mul(COPIES_OF_TEXT).saturating_add(IMAGE_BYTES);
        match self.room.budget.take(bytes) {
            Ok(()) => {
                self.room.count += 1;
                self.entries.push((place, image));
            }
            Err(over) => {
                self.room.is_full = true;
                let count = self.room.count;
                let error = ContainerError::TooManyImages { count, over };
                self.entries.push((ImagePath::default(), Err(error)));
            }
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.room.is_full
    }
}

/// The ranges of a file that its sections have: bytes that several name are read once.
#[derive(Debug, Default)]
pub(super) struct ReadRanges {
    /// The end of each range by its start; none overlap.
    ends: BTreeMap<usize, usize>,
    /// Whether an overlap was told.
    is_told: bool,
}

impl ReadRanges {
    /// Whether a section with these bytes is to be read. The first that has bytes of one before it
    /// becomes an error at `place`.
    pub(super) fn add(
        &mut self,
        (start, length): (usize, usize),
        (section, index): (&str, usize),
        place: &ImagePath,
        found: &mut Found<'_, '_>,
    ) -> bool {
        let end = start.saturating_add(length);
        let before = self.ends.range(..end).next_back();
        if length == 0 || before.is_none_or(|(_, before_end)| *before_end <= start) {
            if length > 0 {
                self.ends.insert(start, end);
            }
            return true;
        }
        if !self.is_told {
            self.is_told = true;
            let section = section.to_owned();
            found.push(place.clone(), Err(ContainerError::SharedSection { section, index }));
        }
        false
    }
}

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
        _ => {
            let mut room = Room::for_file(data.len());
            visit(inside(data, kind, &ImagePath::default(), limits, &mut room));
        }
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
    room: &mut Room,
) -> Vec<ImageEntry<'a>> {
    let mut found = Found::new(room);
    add(data, kind, place, limits, &mut found);
    found.entries
}

/// Finds all images in one file or member and appends them to `found`.
pub(super) fn add<'a>(
    data: &'a [u8],
    kind: ContainerKind,
    place: &ImagePath,
    limits: &Limits,
    found: &mut Found<'a, '_>,
) {
    if found.is_full() {
        return;
    }
    match kind {
        ContainerKind::Cubin => found.push(place.clone(), Ok(Image::Cubin(data))),
        ContainerKind::Ptx => found.push(place.clone(), Ok(Image::Ptx(data))),
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
    found: &mut Found<'a, '_>,
) {
    for (number, fatbin) in fatbin::find(data).enumerate() {
        if found.is_full() {
            return;
        }
        if found.entries.len() > limits.members {
            let (count, limit) = (found.entries.len(), limits.members);
            found.push(place.clone(), Err(ContainerError::TooMany { count, limit }));
            return;
        }
        match fatbin {
            Ok(fatbin) => {
                for (at, entry) in fatbin.entries.into_iter().enumerate() {
                    if found.is_full() {
                        return;
                    }
                    let place = ImagePath { entry: Some((number, at)), ..place.clone() };
                    found.push(place, Ok(Image::Entry(entry)));
                }
            }
            Err(error) => found.push(place.clone(), Err(error.into())),
        }
    }
}
