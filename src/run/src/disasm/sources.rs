//! Reads the source files that a line table names: at the named path, else beside the cubin, else,
//! for a file that one of our jobs compiled, the unchanged input of its run.
//!
//! A cubin may come from anyone and name any path. So only files with a source's extension are
//! opened, for an agent only those of the project, and only lines near those of instructions are
//! kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rgpu_protocol::Plan;
use rgpu_protocol::plan::valid_job_id;

use crate::store::{InputsRecord, digest_file};
use rgpu_model::agent_files;
use rgpu_model::code::SourceText;
use rgpu_model::hotspots::SourceAt;
use rgpu_model::regular_file::MAX_FILE_BYTES;
use rgpu_plan::kernel::is_private;

/// Lines kept before and after a line with instructions.
const CONTEXT_LINES: u32 = 6;
/// Larger files are not read.
const MAX_SOURCE_BYTES: u64 = 4 << 20;
/// File extensions of sources.
const SOURCE_EXTENSIONS: &[&str] = &[
    "cu", "cuh", "c", "cc", "cpp", "cxx", "h", "hh", "hpp", "hxx", "inl", "inc", "ipp", "py", "rs",
    "jl", "f90", "cuf", "ptx", "mojo",
];

/// The lines with instructions, by file.
#[derive(Debug, Default)]
pub(super) struct Sources(BTreeMap<String, BTreeSet<u32>>);

impl Sources {
    pub(super) fn add(&mut self, at: &SourceAt) {
        match self.0.get_mut(&at.file) {
            Some(lines) => drop(lines.insert(at.line)),
            None => drop(self.0.insert(at.file.clone(), BTreeSet::from([at.line]))),
        }
    }

    /// Reads the lines and their context; `cubin` is the file that names them.
    pub(super) fn read(self, cubin: &Path) -> Vec<SourceText> {
        let text = |(file, seen): (String, BTreeSet<u32>)| {
            let (text, read_from) = find_text(&file, cubin);
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

/// A file's text, and its path if it was found elsewhere than named.
fn find_text(file: &str, cubin: &Path) -> (Option<String>, Option<String>) {
    let named = Path::new(file);
    if let Some(text) = read(named) {
        return (Some(text), None);
    }
    let beside_cubin = named.file_name().and_then(|name| Some(cubin.parent()?.join(name)));
    let beside_cubin = beside_cubin.and_then(|path| Some((read(&path)?, path)));
    match beside_cubin.or_else(|| from_run_inputs(named, cubin)) {
        Some((text, path)) => (Some(text), Some(path.display().to_string())),
        None => (None, None),
    }
}

/// Finds a source that was sent as `…/jobs/RUN.N/work/…/NAME`: the run's folder is near the cubin,
/// and the file is beside the inputs in its `inputs.json`. The digest must match the run's plan.
fn from_run_inputs(named: &Path, cubin: &Path) -> Option<(String, PathBuf)> {
    let words: Vec<&str> = named.iter().filter_map(|word| word.to_str()).collect();
    let job = words.windows(3).find(|w| w[0] == "jobs" && w[2] == "work")?[1];
    let (run, number) = job.rsplit_once('.').filter(|(run, _)| valid_job_id(run))?;
    let cubin = std::path::absolute(cubin).ok()?;
    let near = cubin.ancestors().skip(1).flat_map(|a| [a.join("runs").join(run), a.join(run)]);
    let folder = near.into_iter().find(|folder| folder.join("inputs.json").is_file())?;
    let inputs: InputsRecord = read_json(&folder.join("inputs.json"))?;
    let plan: Plan = read_json(&folder.join(format!("plan-{}.json", number.parse::<u32>().ok()?)))?;
    let name = named.file_name()?;
    let sent = plan.files.iter().find(|file| Path::new(&file.path).file_name() == Some(name))?;
    let folders = inputs.files.iter().filter_map(|file| Path::new(&file.path).parent());
    folders.map(|folder| folder.join(name)).find_map(|path| {
        let text = read(&path)?;
        let unchanged = digest_file(&path).is_ok_and(|now| now.sha256 == sent.digest);
        unchanged.then_some((text, path))
    })
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    crate::saved_json::from_slice(&agent_files::read(path, MAX_FILE_BYTES).ok()?).ok()
}

/// The text of a source file. The real path counts: a link may be named as a source and lead to
/// any file. For a command of an agent it must be a file of the project.
fn read(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let ending = path.extension()?.to_str()?.to_ascii_lowercase();
    if !SOURCE_EXTENSIONS.contains(&ending.as_str()) || is_private(&path) {
        return None;
    }
    let bytes = agent_files::read(&path, MAX_SOURCE_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_with_a_sources_name_does_not_bring_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path(".ssh")).unwrap();
        for (target, link) in [("id_ed25519", "key.cu"), (".ssh/my.py", "mine.cu")] {
            std::fs::write(path(target), "secret\n").unwrap();
            std::os::unix::fs::symlink(path(target), path(link)).unwrap();
        }
        std::os::unix::fs::symlink("/dev/zero", path("zero.cu")).unwrap();
        std::fs::write(path("k.cuh"), "text\n").unwrap();
        std::os::unix::fs::symlink(path("k.cuh"), path("linked.cu")).unwrap();
        let text = |name: &str| find_text(&format!("/nowhere/{name}"), &path("k.cubin")).0;
        for name in ["key.cu", "mine.cu", "zero.cu"] {
            assert_eq!(text(name), None, "{name}");
        }
        assert_eq!(text("linked.cu").as_deref(), Some("text\n"));
    }

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
        let from = |cubin: &str| find_text(named, &folder.path().join(cubin));
        let read = (Some("first\nsecond\n".to_owned()), Some(header.display().to_string()));
        assert_eq!(from("artifacts/k.sm_90a.cubin"), read);
        assert_eq!(from("artifacts/runs/20261121-k-1f2e/cubin/k.cubin"), read);
        // In another folder its run is not found, and a changed file does not match.
        assert_eq!(from("other/k.cubin"), (None, None));
        std::fs::write(&header, "another\n").unwrap();
        assert_eq!(from("artifacts/k.sm_90a.cubin"), (None, None));
    }
}
