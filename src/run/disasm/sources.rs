//! Texts of source files that a line table names: where it says, else beside the cubin.
//!
//! A cubin may come from anyone and name any path, so only files that are called like sources are
//! opened, and only lines around those that instructions come from are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use crate::model::code::SourceText;
use crate::model::hotspots::SourceAt;

/// Lines kept before and behind one that an instruction comes from.
const AROUND: u32 = 6;
/// Larger files are not read.
const LARGEST: u64 = 4 << 20;
/// How sources are called.
const ENDINGS: &[&str] = &[
    "cu", "cuh", "c", "cc", "cpp", "cxx", "h", "hh", "hpp", "hxx", "inl", "inc", "ipp", "py", "rs",
    "jl", "f90", "cuf", "ptx", "mojo",
];

/// The lines seen, by file.
#[derive(Debug, Default)]
pub(super) struct Sources(BTreeMap<String, BTreeSet<u32>>);

impl Sources {
    /// Remembers a position.
    pub(super) fn see(&mut self, at: &SourceAt) {
        match self.0.get_mut(&at.file) {
            Some(lines) => drop(lines.insert(at.line)),
            None => drop(self.0.insert(at.file.clone(), BTreeSet::from([at.line]))),
        }
    }

    /// Their texts; `cubin` is the file that names them.
    pub(super) fn read(self, cubin: &Path) -> Vec<SourceText> {
        let text = |(file, seen): (String, BTreeSet<u32>)| {
            let (text, read_from) = found(&file, cubin);
            let near = |line: u32| {
                let range = line.saturating_sub(AROUND)..=line.saturating_add(AROUND);
                seen.range(range).next().is_some()
            };
            let lines = text.iter().flat_map(|text| text.lines()).zip(1_u32..);
            let lines = lines.filter(|(_, number)| near(*number));
            let lines = lines.map(|(line, number)| (number, line.trim_end().to_owned())).collect();
            SourceText { file, read_from, lines }
        };
        self.0.into_iter().map(text).collect()
    }
}

/// A file's text, and where it was read if not where its name says.
fn found(file: &str, cubin: &Path) -> (Option<String>, Option<String>) {
    let named = Path::new(file);
    if let Some(text) = read(named) {
        return (Some(text), None);
    }
    let beside = named.file_name().and_then(|name| Some(cubin.parent()?.join(name)));
    match beside.and_then(|path| Some((read(&path)?, path))) {
        Some((text, path)) => (Some(text), Some(path.display().to_string())),
        None => (None, None),
    }
}

fn read(path: &Path) -> Option<String> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    if !ENDINGS.contains(&ending.as_str()) || !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= LARGEST).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
