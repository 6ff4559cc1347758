//! The output of a run's program: its end, as far as there is room, and where the rest is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::resource;
use rgpu_run::store::{RunFolder, live};

/// The steps that run the user's program, the one that is shown first.
const STEPS: &[&str] = &["exec", "profile", "survey", "plain"];

/// The last output of a program.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct CutProgramOutput {
    /// The end of stdout.
    stdout: String,
    /// The end of stderr.
    stderr: String,
    /// How many bytes each has in all.
    bytes: [u64; 2],
}

impl CutProgramOutput {
    /// The output of the run's program, of its first step that has any: at most `room` bytes of
    /// JSON. Under a tool, the tool's messages are part of it. `cut` says what is left out.
    pub(super) fn from_folder(
        folder: &RunFolder,
        run: &str,
        room: usize,
        cut: &mut Vec<String>,
    ) -> Option<Self> {
        STEPS.iter().find_map(|step| Self::from_step(folder, run, step, room, cut))
    }

    fn from_step(
        folder: &RunFolder,
        run: &str,
        step: &str,
        room: usize,
        cut: &mut Vec<String>,
    ) -> Option<Self> {
        let log = |stream: &str| {
            live::tail(folder, format!("log/{step}.{stream}"), room as u64).unwrap_or_default()
        };
        let [(stdout, out_bytes), (stderr, err_bytes)] = [log("stdout"), log("stderr")];
        if out_bytes == 0 && err_bytes == 0 {
            return None;
        }
        // Each stream gets half of the room, and what the other one leaves.
        let [out_size, err_size] = [json_size(&stdout), json_size(&stderr)];
        let err_room = err_size.min((room / 2).max(room.saturating_sub(out_size)));
        let kept = [end_of(&stdout, room - err_room), end_of(&stderr, err_room)];
        for (name, kept, whole, bytes) in
            [("stdout", kept[0], &stdout, out_bytes), ("stderr", kept[1], &stderr, err_bytes)]
        {
            if kept.len() < whole.len() || bytes > room as u64 {
                let kept = kept.len();
                let uri = resource::log_address(run, step, name);
                cut.push(format!("output.{name}: the last {kept} of {bytes} bytes; all: {uri}"));
            }
        }
        let [stdout, stderr] = kept.map(str::to_owned);
        Some(Self { stdout, stderr, bytes: [out_bytes, err_bytes] })
    }
}

/// The bytes of a character in a JSON text.
fn json_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if c.is_ascii_control() => 6,
        c => c.len_utf8(),
    }
}

fn json_size(text: &str) -> usize {
    text.chars().map(json_bytes).sum()
}

/// The end of a text that takes at most `room` bytes as JSON.
fn end_of(text: &str, room: usize) -> &str {
    let mut used = 0;
    let mut start = text.len();
    for (at, c) in text.char_indices().rev() {
        used += json_bytes(c);
        if used > room {
            break;
        }
        start = at;
    }
    // A character that was cut in the file.
    text[start..].trim_start_matches('\u{fffd}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(dir: &std::path::Path) -> RunFolder {
        RunFolder::create(dir, "one", None).unwrap()
    }

    #[test]
    fn the_end_is_kept_and_what_was_cut_is_told_with_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        let read = |room: usize| {
            let mut cut = Vec::new();
            (CutProgramOutput::from_folder(&folder, "one", room, &mut cut), cut)
        };
        assert!(read(1000).0.is_none());
        folder.write("log/profile.stdout", b"under a tool\n").unwrap();
        let (output, cut) = read(1000);
        assert_eq!(output.unwrap().stdout, "under a tool\n");
        assert!(cut.is_empty(), "{cut:?}");
        let long = format!("{}the end\n", "é\"\n".repeat(5000));
        folder.write("log/exec.stdout", long.as_bytes()).unwrap();
        folder.write("log/exec.stderr", b"few").unwrap();
        let (output, cut) = read(1000);
        let output = output.unwrap();
        assert!(output.stdout.ends_with("the end\n") && output.stdout.len() > 600);
        assert!(json_size(&output.stdout) <= 997, "{}", json_size(&output.stdout));
        assert_eq!(output.stderr, "few");
        assert_eq!(output.bytes, [long.len() as u64, 3]);
        let [told] = &cut[..] else { panic!("{cut:?}") };
        assert!(told.ends_with("; all: rgpu://runs/one/log/exec.stdout"), "{told}");
        assert!(told.contains(&format!("of {} bytes", long.len())), "{told}");
    }
}
