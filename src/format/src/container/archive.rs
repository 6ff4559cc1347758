//! Reads `ar` archives: static libraries of host objects. Members may share a name.

use super::walk::{ContainerKind, Found, ImagePath, add, kind};
use super::{ContainerError, Limits};
use goblin::archive::Archive;

pub(super) fn walk<'a>(
    data: &'a [u8],
    place: &ImagePath,
    limits: &Limits,
    found: &mut Found<'a, '_>,
) {
    let archive = match Archive::parse(data) {
        Ok(archive) => archive,
        Err(error) => {
            let cause = error.to_string();
            found.push(place.clone(), Err(ContainerError::Archive { cause }));
            return;
        }
    };
    if archive.len() > limits.members {
        let (count, limit) = (archive.len(), limits.members);
        found.push(place.clone(), Err(ContainerError::TooMany { count, limit }));
        return;
    }
    for index in 0..archive.len() {
        if found.is_full() {
            return;
        }
        let Some(member) = archive.get_at(index) else { continue };
        let inner = place.member(member.extended_name());
        let start = usize::try_from(member.offset).unwrap_or(usize::MAX);
        let bytes = start.checked_add(member.size()).and_then(|end| data.get(start..end));
        let Some(bytes) = bytes else {
            let cause = "the member runs past the end of the file".to_owned();
            found.push(inner, Err(ContainerError::Archive { cause }));
            continue;
        };
        // Nested archives do not occur in practice and would allow recursion.
        match kind(&bytes[..bytes.len().min(4096)]) {
            None | Some(ContainerKind::Archive | ContainerKind::Zip) => {}
            Some(kind) => add(bytes, kind, &inner, limits, found),
        }
    }
}
