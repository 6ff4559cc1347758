//! Texts of source files that a line table names: where it says, else beside the cubin, else, for what
//! one of our own jobs compiled in its folder, the file that its run was given, if it is still the same.
//!
//! A cubin may come from anyone and name any path, so only files that are called like sources are
//! opened, and only lines around those that instructions come from are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use rgpu_protocol::Plan;
use rgpu_protocol::plan::valid_job_id;

use crate::model::code::SourceText;
use crate::model::hotspots::SourceAt;
use crate::run::{InputsRecord, digest_file};

/// Lines kept before and behind one that an instruction comes from.
const CONTEXT_LINES: u32 = 6;
/// Larger files are not read.
const MAX_SOURCE_BYTES: u64 = 4 << 20;
/// How sources are called.
const SOURCE_EXTENSIONS: &[&str] = &[
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
                let range = line.saturating_sub(CONTEXT_LINES)..=line.saturating_add(CONTEXT_LINES);
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
    let sidecars = named.file_name().and_then(|name| Some(cubin.parent()?.join(name)));
    let sidecars = sidecars.and_then(|path| Some((read(&path)?, path)));
    match sidecars.or_else(|| given(named, cubin)) {
        Some((text, path)) => (Some(text), Some(path.display().to_string())),
        None => (None, None),
    }
}

/// What was sent as `…/jobs/RUN.N/work/…/NAME`, a path of the host: a file beside those that the
/// run's `inputs.json` names, near the cubin, with the digest that its plan has for that name.
fn given(named: &Path, cubin: &Path) -> Option<(String, PathBuf)> {
    let words: Vec<&str> = named.iter().filter_map(|word| word.to_str()).collect();
    let job = words.windows(3).find(|w| w[0] == "jobs" && w[2] == "work")?[1];
    let (run, number) = job.rsplit_once('.').filter(|(run, _)| valid_job_id(run))?;
    let cubin = std::path::absolute(cubin).ok()?;
    let near = cubin.ancestors().skip(1).flat_map(|a| [a.join("runs").join(run), a.join(run)]);
    let folder = near.into_iter().find(|folder| folder.join("inputs.json").is_file())?;
    let inputs: InputsRecord = document(&folder.join("inputs.json"))?;
    let plan: Plan = document(&folder.join(format!("plan-{}.json", number.parse::<u32>().ok()?)))?;
    let name = named.file_name()?;
    let sent = plan.files.iter().find(|file| Path::new(&file.path).file_name() == Some(name))?;
    let sidecars = inputs.files.iter().filter_map(|file| Path::new(&file.path).parent());
    sidecars.map(|folder| folder.join(name)).find_map(|path| {
        let same = digest_file(&path).is_ok_and(|now| now.sha256 == sent.digest);
        Some((read(&path).filter(|_| same)?, path))
    })
}

fn document<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn read(path: &Path) -> Option<String> {
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    if !SOURCE_EXTENSIONS.contains(&ending.as_str()) || !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(MAX_SOURCE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_SOURCE_BYTES).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_of_ours_compiled_is_read_where_its_run_had_it_while_it_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("k.cu");
        std::fs::write(&source, "first\nsecond\n").unwrap();
        let run = folder.path().join("artifacts/runs/20261121-k-1f2e");
        std::fs::create_dir_all(&run).unwrap();
        // The headers beside it were sent too.
        let header = folder.path().join("k.cuh");
        std::fs::write(&header, "first\nsecond\n").unwrap();
        let sent = digest_file(&header).unwrap();
        let inputs = serde_json::json!({
            "schema": "rgpu.inputs/1", "seed": 0, "cases": [],
            "files": [digest_file(&source).unwrap()],
        });
        let plan = serde_json::json!({
            "job": "20261121-k-1f2e.1", "title": "build k", "steps": [],
            "files": [{"path": "src/k.cuh", "size": sent.size, "digest": sent.sha256, "blobs": []}],
        });
        std::fs::write(run.join("inputs.json"), inputs.to_string()).unwrap();
        std::fs::write(run.join("plan-1.json"), plan.to_string()).unwrap();
        let named = "/home/u/.cache/rgpu/jobs/20261121-k-1f2e.1/work/build/../src/k.cuh";
        let from = |cubin: &str| found(named, &folder.path().join(cubin));
        let read = (Some("first\nsecond\n".to_owned()), Some(header.display().to_string()));
        assert_eq!(from("artifacts/k.sm_90a.cubin"), read);
        assert_eq!(from("artifacts/runs/20261121-k-1f2e/cubin/k.cubin"), read);
        // Elsewhere nothing says what it was, and a file that has changed is another.
        assert_eq!(from("other/k.cubin"), (None, None));
        std::fs::write(&header, "another\n").unwrap();
        assert_eq!(from("artifacts/k.sm_90a.cubin"), (None, None));
    }
}
