//! `ar` archives: static libraries of host objects. Members may share a name.

use super::walk::{Kind, Place, Visit, inside, kind};
use super::{ContainerError, Limits};
use goblin::archive::Archive;

pub(super) fn walk(data: &[u8], place: &Place, limits: &Limits, visit: &mut Visit<'_>) {
    let archive = match Archive::parse(data) {
        Ok(archive) => archive,
        Err(error) => {
            visit(place, Err(ContainerError::Archive { cause: error.to_string() }));
            return;
        }
    };
    if archive.len() > limits.members {
        let (count, limit) = (archive.len(), limits.members);
        visit(place, Err(ContainerError::TooMany { count, limit }));
        return;
    }
    for index in 0..archive.len() {
        let Some(member) = archive.get_at(index) else { continue };
        let inner = place.member(member.extended_name());
        let start = usize::try_from(member.offset).unwrap_or(usize::MAX);
        let bytes = start.checked_add(member.size()).and_then(|end| data.get(start..end));
        let Some(bytes) = bytes else {
            let cause = "the member runs past the end of the file".to_owned();
            visit(&inner, Err(ContainerError::Archive { cause }));
            continue;
        };
        // Archives in archives do not occur, but would be a way to recurse.
        match kind(&bytes[..bytes.len().min(4096)]) {
            None | Some(Kind::Archive | Kind::Zip) => {}
            Some(kind) => inside(bytes, kind, &inner, limits, visit),
        }
    }
}
