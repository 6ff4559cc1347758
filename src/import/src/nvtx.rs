//! The collector's logs to launches, copies and regions.
//!
//! Each process writes its own log. All logs of a run form one trace with one clock. They are
//! converted to the same rows as nsys's, so that work, regions and single events are imported the
//! same way. Without CUPTI there are only ranges, in host time.

#![expect(
    clippy::disallowed_methods,
    reason = "reports that the user named, or of a run folder that was checked for links"
)]

mod gaps;
mod paired;
mod rows;

use std::path::{Path, PathBuf};

use rgpu_format::nvtx_log::{self, NvtxLog};

use super::{
    ImportError, ImportedArtifact, Importer, RejectedReport, Source, TracedActivity, nsys,
};
use paired::PairedRanges;
use rgpu_model::agent_files;
use rgpu_model::profile::ArtifactKind;
use rgpu_model::profile::Gap;
use rows::LogRows;

/// `nvtx_log`: what the collector writes inside a program.
pub(super) const IMPORTER: Importer = Importer {
    kind: ArtifactKind::NvtxLog,
    recognises: |_, head| head.starts_with(HEAD),
    import: import_files,
};

/// The first bytes of every log.
const HEAD: &[u8] = b"{\"event\":\"opened\"";

/// Imports all logs of a run with the first one that can be read; the import of the others returns
/// nothing.
fn import_files(source: &Source<'_>) -> Result<ImportedArtifact, ImportError> {
    let mut whole = nvtx_log::read(&source.bytes()?).map_err(|cause| source.broken(cause))?;
    let others = if source.alone { Vec::new() } else { others(source.path) };
    let read_other = |path: &Path| {
        let bytes = Source { path, ..*source }.bytes();
        bytes.ok().and_then(|bytes| nvtx_log::read(&bytes).ok())
    };
    let mut before = others.iter().take_while(|other| other.as_path() < source.path);
    if before.any(|path| read_other(path).is_some()) {
        return Ok(ImportedArtifact::default());
    }
    let mut gaps: Vec<Gap> = gaps::damaged(&whole, source.from).into_iter().collect();
    for path in &others {
        let from = Path::new(source.from).with_file_name(path.file_name().unwrap_or_default());
        let from = from.display().to_string();
        match read_other(path) {
            Some(log) => {
                gaps.extend(gaps::damaged(&log, &from));
                whole.sessions.extend(log.sessions);
            }
            // The import of that log itself reports what is wrong with it.
            None => gaps.push(Gap {
                code: "unreadable_artifact".to_owned(),
                text: format!("{from}: the log of another process cannot be read"),
            }),
        }
    }
    whole.sessions.sort_by_key(|session| session.opened.ns);
    let mut imported = import(&whole, source.from);
    // A log that is read alone is not refused for missing GPU work.
    if source.traced == TracedActivity::HostOnly
        || (source.alone && gaps::cupti(&whole).next().is_none())
    {
        imported.refusals.clear();
    }
    imported.gaps.extend(gaps);
    Ok(imported)
}

/// The logs of other processes beside `path`: the same name with a different number.
fn others(path: &Path) -> Vec<PathBuf> {
    let numbered = |path: &Path| {
        let (stem, number) = path.file_name()?.to_str()?.rsplit_once('.')?;
        let number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        number.then(|| stem.to_owned())
    };
    let (Some(stem), Some(folder)) = (numbered(path), path.parent()) else { return Vec::new() };
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut others: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|other| other != path && numbered(other).as_deref() == Some(&stem))
        .filter(|other| begins_like_a_log(other))
        .collect();
    others.sort();
    others
}

fn begins_like_a_log(path: &Path) -> bool {
    use std::io::Read;
    let mut head = [0; HEAD.len()];
    let read = agent_files::open_named(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == *HEAD
}

/// Imports the logs of one run; `from` is the path of the first in the run folder.
pub fn import(log: &NvtxLog, from: &str) -> ImportedArtifact {
    let mut paired = PairedRanges::default();
    for (number, session) in (0u64..).zip(&log.sessions) {
        paired.add_session(number, session);
    }
    let Ok(mut imported) = nsys::import(&LogRows::new(log, &paired), from, false);
    // The log's own count of open ranges is reported below instead.
    imported.gaps.retain(|gap| gap.code != "open_ranges");
    imported.gaps.extend(gaps::gaps(log, &paired, from));
    imported.refusals = refusals(log, from);
    if let Some(on) = gaps::cupti(log).find(|cupti| cupti.state == "on") {
        imported.tool_version = on.version.map(|version| format!("CUPTI {version}"));
    }
    imported
}

/// If CUPTI was requested, the logs must contain GPU work.
fn refusals(log: &NvtxLog, from: &str) -> Vec<RejectedReport> {
    let off = gaps::cupti(log).find(|cupti| cupti.state != "on");
    let on = gaps::cupti(log).any(|cupti| cupti.state == "on");
    let work = log.sessions.iter().any(|session| !session.work.is_empty());
    let refusal = match (on, off) {
        _ if work => return Vec::new(),
        (true, _) => {
            let text = format!("{from}: CUPTI saw no work on a GPU");
            RejectedReport { code: nsys::NO_GPU_ROWS, text, ..RejectedReport::default() }
        }
        (false, Some(off)) => {
            let why = off.text.as_deref().unwrap_or("it gives no reason");
            let text = format!("{from}: no usable libcupti: {why}");
            RejectedReport { code: "cupti_unusable", text, ..RejectedReport::default() }
        }
        // No process initialised CUDA, or CUPTI was not requested.
        (false, None) => {
            let text = format!("{from}: no process initialised CUDA under the collector");
            RejectedReport { code: nsys::NO_GPU_ROWS, text, ..RejectedReport::default() }
        }
    };
    vec![refusal]
}

#[cfg(test)]
mod tests;
