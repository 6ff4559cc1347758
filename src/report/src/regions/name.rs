//! Converts region names to folder names that are valid on any file system.
//!
//! Letters, digits, `.`, `_`, `-`, `@` and `=` stay; `::` becomes `__`, anything else `_`. Names
//! that would collide (`A::A1` and `A__A1`, or `a` and `A` on file systems that ignore case) get
//! the start of their sha256 appended.

use std::collections::{HashMap, HashSet};

use rgpu_protocol::Digest;

/// The maximum length of a name in bytes, before up to 65 bytes of digest. File systems allow 255
/// bytes per name, and the whole path is limited too.
const MAX_NAME_BYTES: usize = 64;

/// Names that Windows reserves for devices, with any extension.
const RESERVED: &[&str] = &["con", "prn", "aux", "nul", "com", "lpt"];

/// The folder names for these distinct region names, in the same order. None is empty, hidden,
/// reserved or longer than 131 bytes, and all are distinct even if case is ignored.
pub(super) fn folder_names(names: &[String]) -> Vec<String> {
    let plain: Vec<String> = names.iter().map(|name| plain(name)).collect();
    let key = |at: usize| plain[at].to_lowercase();
    let mut alike: HashMap<String, Vec<usize>> = HashMap::new();
    for at in 0..names.len() {
        alike.entry(key(at)).or_default().push(at);
    }
    // Of colliding names, the smallest that needed no change keeps its name. So the result does not
    // depend on the order of the regions.
    let mut keeps = vec![false; names.len()];
    for group in alike.values() {
        let unchanged = group.iter().filter(|at| plain[**at] == names[**at]);
        let first = match group.as_slice() {
            [only] => Some(*only).filter(|at| is_whole(&names[*at])),
            _ => unchanged.min_by_key(|at| &names[**at]).copied(),
        };
        first.into_iter().for_each(|at| keeps[at] = true);
    }
    let mut taken: HashSet<String> = (0..names.len()).filter(|at| keeps[*at]).map(key).collect();
    let mut folders = plain.clone();
    for at in (0..names.len()).filter(|at| !keeps[*at]) {
        let digest = Digest::sha256(names[at].as_bytes()).to_string();
        let lengths = (8..=digest.len()).step_by(8);
        let candidates = lengths.map(|length| format!("{}-{}", cut(&plain[at]), &digest[..length]));
        for name in candidates {
            if taken.insert(name.to_lowercase()) {
                folders[at] = name;
                break;
            }
        }
    }
    folders
}

/// Whether the plain form of a name still identifies it: nothing was cut off or replaced.
fn is_whole(name: &str) -> bool {
    let separated = name.replace("::", "__");
    plain(name) == separated
}

fn plain(name: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '=');
    let name: String =
        name.replace("::", "__").chars().map(|c| if is_safe(c) { c } else { '_' }).collect();
    let name = cut(&name);
    let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let device = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    let reserved = RESERVED.contains(&device) && stem.len() - device.len() <= 1;
    // A folder must not be hidden, look like an option, end with a dot or be empty.
    let invalid = name.is_empty() || name.starts_with(['.', '-']) || name.ends_with('.');
    let ours = matches!(stem.as_str(), "report") && name.contains('.');
    if reserved || invalid || ours {
        format!("_{}_", name.trim_matches('.'))
    } else {
        name.to_owned()
    }
}

/// The start of a name, which leaves room for the digest.
fn cut(name: &str) -> &str {
    &name[..name.len().min(MAX_NAME_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(names: &[&str]) -> Vec<String> {
        folder_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn plain_names_stay_as_they_are() {
        assert_eq!(folders(&["A", "A::A1", "step-2", "a.b"]), ["A", "A__A1", "step-2", "a.b"]);
    }

    #[test]
    fn names_that_would_be_one_folder_are_told_apart_whatever_their_order() {
        let one = folders(&["A::A1", "A__A1", "B", "b", "x y", "x_y"]);
        let other = folders(&["x_y", "x y", "b", "B", "A__A1", "A::A1"]);
        assert_eq!(one, other.into_iter().rev().collect::<Vec<_>>());
        assert_eq!(one[1..3], ["A__A1", "B"]);
        assert!(one[0].starts_with("A__A1-") && one[0].len() == "A__A1-".len() + 8);
        assert!(one[3].starts_with("b-") && one[4].starts_with("x_y-"));
        assert_eq!(one[5], "x_y");
    }

    #[test]
    fn names_that_cannot_be_folders_are_changed() {
        let long = "n".repeat(300);
        for name in ["", ".", "..", ".git", "-rf", "CON", "com1.txt", "a/b", "Ä", "end.", &long] {
            let folder = &folders(&[name])[0];
            assert!(is_sound(folder) && folder != name, "{name} -> {folder}");
        }
        assert_eq!(folders(&["report.md"])[0].find("report.md"), Some(1), "a file of ours");
    }

    fn is_sound(folder: &str) -> bool {
        let stem = folder.split('.').next().unwrap().to_ascii_lowercase();
        (1..=131).contains(&folder.len())
            && !folder.starts_with(['.', '-'])
            && !folder.ends_with('.')
            && !["con", "prn", "aux", "nul", "com1", "lpt9"].contains(&stem.as_str())
            && folder.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-@=".contains(&b))
    }

    proptest::proptest! {
        #[test]
        fn every_region_has_a_folder_of_its_own(names in proptest::collection::hash_set(
            "([aA_:.\\\\ ]{0,4}|.{0,12}|con|NUL|report.json)", 0..12,
        )) {
            let names: Vec<String> = names.into_iter().collect();
            let folders = folder_names(&names);
            let distinct: HashSet<String> = folders.iter().map(|f| f.to_lowercase()).collect();
            assert_eq!(distinct.len(), names.len(), "{names:?} -> {folders:?}");
            assert!(folders.iter().all(|folder| is_sound(folder)), "{folders:?}");
        }
    }
}
