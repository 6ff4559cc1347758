//! The current phase of a run, from the files that it appends to.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

use super::{RunFolder, RunState};

/// The parts of the events that are searched for the phase, from their end, until one has it: a run
/// whose program prints much has many events of output after it.
const PHASE_BYTES: [u64; 3] = [16 << 10, 512 << 10, 16 << 20];

/// The part of the events that is searched for the end of a rung, which has output of its program.
const RUNG_BYTES: u64 = 128 << 10;

/// The phase of a run, from the last event that begins one. If the run has not ended and no process
/// follows it, nothing is recorded any more, so the text says that this is only what was seen last.
pub fn phase(folder: &RunFolder) -> Option<String> {
    let last = last_phase(folder);
    let may_go_on = || {
        let record = folder.current_record();
        record.is_ok_and(|run| matches!(run.state, RunState::Running | RunState::Detached))
    };
    // Asked in this order: a follower that ends now has written the record before.
    if folder.is_followed() || !may_go_on() {
        return last;
    }
    let seen = last.map(|last| format!("; last seen: {last}")).unwrap_or_default();
    Some(format!("not followed{seen}"))
}

fn last_phase(folder: &RunFolder) -> Option<String> {
    for max_bytes in PHASE_BYTES {
        let (text, length) = tail(folder, "events.jsonl", max_bytes)?;
        let phase = phase_in(&text);
        if phase.is_some() || length <= max_bytes {
            return phase;
        }
    }
    None
}

/// The last phase that begins in these events.
fn phase_in(events: &str) -> Option<String> {
    let mut link_is_back = false;
    // Most lines are output, and reading their JSON takes long.
    let mut lines = events.lines().rev().filter(|line| !line.contains(r#""event":"output""#));
    lines.find_map(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        let title = || event["title"].as_str().map(ToOwned::to_owned);
        match event["event"].as_str()? {
            "link_back" => link_is_back = true,
            "link_lost" if !link_is_back => {
                return Some(format!("the link is lost: {}", title().unwrap_or_default()));
            }
            "queued" => return Some("waiting for the GPU".to_owned()),
            "step_started" => return title(),
            "ended" => return Some("fetching the results".to_owned()),
            _ => {}
        }
        None
    })
}

/// The reason code with which the last rung of a step ended, and its seconds. `None` if none has
/// ended.
pub fn rung_end(folder: &RunFolder, step: &str) -> Option<(String, f64)> {
    let (text, _) = tail(folder, "events.jsonl", RUNG_BYTES)?;
    text.lines().rev().find_map(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        let is_end = event["event"] == "rung_ended" && event["step"] == step;
        let code = event["code"].as_str().filter(|_| is_end)?;
        Some((code.to_owned(), event["seconds"].as_f64().unwrap_or_default()))
    })
}

/// The end of a file of the run as text, and the size of the file. `None` if it cannot be read.
pub fn tail(folder: &RunFolder, name: impl AsRef<Path>, max_bytes: u64) -> Option<(String, u64)> {
    tail_of(folder.files().open_file(name).ok()?, max_bytes)
}

/// The end of a file as text, and the size of the file. `None` if it cannot be read.
pub fn tail_of(file: File, max_bytes: u64) -> Option<(String, u64)> {
    let length = file.metadata().ok()?.len();
    let bytes = read_from(file, length.saturating_sub(max_bytes), max_bytes).ok()?;
    Some((String::from_utf8_lossy(&bytes).into_owned(), length))
}

/// At most `max_bytes` bytes of a file of the run from `offset` on.
pub fn read_at(
    folder: &RunFolder,
    name: impl AsRef<Path>,
    offset: u64,
    max_bytes: u64,
) -> io::Result<Vec<u8>> {
    read_from(folder.files().open_file(name)?, offset, max_bytes)
}

fn read_from(mut file: File, offset: u64, max_bytes: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{JobRecord, RunRecord};

    #[test]
    fn the_phase_of_a_run_that_no_process_follows_is_only_the_last_that_was_seen() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path(), "one", None).unwrap();
        let mut record = RunRecord::new("one".into(), "profile", jiff::Timestamp::UNIX_EPOCH);
        record.jobs = vec![JobRecord {
            job: "one.1".into(),
            remote: "h200".into(),
            last_seq: 1,
            outcome: None,
            unsynced: Vec::new(),
        }];
        folder.save(&record).unwrap();
        assert_eq!(phase(&folder), None);
        let path = folder.path().to_owned();
        let opened = RunFolder::open(&path).unwrap();
        assert_eq!(phase(&opened), None, "this process follows it");
        drop(folder);
        assert_eq!(phase(&opened).as_deref(), Some("not followed"));
        std::fs::write(path.join("events.jsonl"), "{\"event\":\"queued\"}\n").unwrap();
        let seen = "not followed; last seen: waiting for the GPU";
        assert_eq!(phase(&opened).as_deref(), Some(seen));
        let followed = RunFolder::open(&path).unwrap().follow().unwrap();
        assert_eq!(phase(&opened).as_deref(), Some("waiting for the GPU"));
        record.state = RunState::Done;
        followed.save(&record).unwrap();
        drop(followed);
        assert_eq!(phase(&opened).as_deref(), Some("waiting for the GPU"));
    }

    #[test]
    fn much_output_does_not_hide_the_phase() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path(), "one", None).unwrap();
        folder.save(&RunRecord::new("one".into(), "exec", jiff::Timestamp::UNIX_EPOCH)).unwrap();
        let step = r#"{"event":"step_started","step":"exec","title":"run sh"}"#;
        let output = format!("{}\n", r#"{"event":"output","step":"exec","bytes":7}"#);
        let lines = PHASE_BYTES[1] as usize / output.len() + 1;
        folder
            .write("events.jsonl", format!("{step}\n{}", output.repeat(lines)).as_bytes())
            .unwrap();
        assert_eq!(phase(&folder).as_deref(), Some("run sh"));
    }

    #[test]
    fn the_end_of_a_steps_last_rung_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path(), "one", None).unwrap();
        assert_eq!(rung_end(&folder, "exec"), None);
        let events = concat!(
            r#"{"event":"rung_ended","step":"exec","code":"exit","seconds":1.0}"#,
            "\n",
            r#"{"event":"rung_ended","step":"exec","code":"timeout","seconds":2.5}"#,
            "\n",
            r#"{"event":"rung_ended","step":"other","code":"","seconds":1.0}"#,
            "\n",
        );
        folder.write("events.jsonl", events.as_bytes()).unwrap();
        assert_eq!(rung_end(&folder, "exec"), Some(("timeout".to_owned(), 2.5)));
        assert_eq!(rung_end(&folder, "build"), None);
    }
}
