//! Reads zip files such as wheels. Members are unpacked one at a time, and only if their first
//! bytes show a kind of interest.

use super::walk::{ContainerKind, Found, ImageEntry, ImagePath, Room, inside, kind};
use super::{ContainerError, Limits};
use crate::unpack::TooLarge;
use std::io::{Cursor, Read};
use zip::ZipArchive;
use zip::read::ZipFile;

/// Number of leading bytes from which the kind of a member is detected.
const HEAD_BYTES: u64 = 4096;

pub(super) fn walk(data: &[u8], limits: &Limits, visit: &mut dyn FnMut(Vec<ImageEntry<'_>>)) {
    let place = ImagePath::default();
    let broken = |cause: String| ContainerError::Zip { cause };
    let mut archive = match ZipArchive::new(Cursor::new(data)) {
        Ok(archive) => archive,
        Err(error) => {
            visit(vec![(place, Err(broken(error.to_string())))]);
            return;
        }
    };
    if archive.len() > limits.members {
        let (count, limit) = (archive.len(), limits.members);
        visit(vec![(place, Err(ContainerError::TooMany { count, limit }))]);
        return;
    }
    // Entries may name the same bytes, so the ratio holds for the whole archive too.
    let mut left = TooLarge::new(data.len(), limits.total_bytes).limit;
    let mut room = Room::for_file(0);
    for index in 0..archive.len() {
        if room.is_full {
            return;
        }
        let (name, unpacked) = match archive.by_index(index) {
            Ok(file) if file.is_dir() => continue,
            Ok(mut file) => {
                let name = String::from_utf8_lossy(file.name_raw()).into_owned();
                let limit = limits.unpacked_bytes.min(left);
                let unpacked = if file.enclosed_name().is_none() || name.contains('\\') {
                    Err(ContainerError::HostilePath)
                } else {
                    unpack(&mut file, limit)
                };
                (name, unpacked)
            }
            Err(error) => (format!("member {index}"), Err(broken(error.to_string()))),
        };
        let inner = place.member(&name);
        match unpacked {
            Ok(None) => {}
            Ok(Some((kind, bytes))) => {
                left = left.saturating_sub(bytes.len() as u64);
                room.grow(bytes.len());
                visit(inside(&bytes, kind, &inner, limits, &mut room));
            }
            Err(error) => {
                let mut found = Found::new(&mut room);
                found.push(inner, Err(error));
                visit(found.entries);
            }
        }
    }
}

/// The unpacked bytes of a member, if it may hold GPU code.
fn unpack(
    file: &mut ZipFile<'_, impl Read>,
    max_bytes: u64,
) -> Result<Option<(ContainerKind, Vec<u8>)>, ContainerError> {
    let broken = |cause: String| ContainerError::Zip { cause };
    let (stored, stated) = (file.compressed_size(), file.size());
    let mut bytes = Vec::new();
    let mut read = |bytes: &mut Vec<u8>, limit: u64| {
        file.by_ref().take(limit).read_to_end(bytes).map_err(|e| broken(e.to_string()))
    };
    read(&mut bytes, HEAD_BYTES)?;
    let Some(kind) = kind(&bytes).filter(|kind| *kind != ContainerKind::Zip) else {
        return Ok(None);
    };
    TooLarge::new(usize::try_from(stored).unwrap_or(usize::MAX), max_bytes).check(stated)?;
    // Reading one byte more than stated reveals a wrong size.
    let rest = stated.saturating_add(1).saturating_sub(bytes.len() as u64);
    read(&mut bytes, rest)?;
    if bytes.len() as u64 != stated {
        return Err(broken(format!("the member is not of the {stated} bytes that are stated")));
    }
    Ok(Some((kind, bytes)))
}
