//! The progress that NVIDIA's tools print, for our own bar. Its lines are left out of the output
//! that is shown; the logs keep them.
//!
//! ```text
//! ==PROF== Profiling "tile" - 2 (3/9): 0%....50%....100% - 38 passes      ncu, piece by piece
//! [1/1] [=====25%                   ] report.nsys-rep                     nsys profile
//! Processing 22593 events: [==8%                        ]                 nsys export
//! ```

use std::collections::HashMap;

use rgpu_protocol::event::Stream;

/// Most bytes of a progress line that are read.
const MAX_LINE_BYTES: usize = 4096;

/// The beginnings of progress lines; `#` stands for a number.
const BEGINNINGS: [&[u8]; 4] =
    [b"==PROF== Profiling \"", b"[#/#] [=", b"[#/#] [#%", b"Processing # events: ["];

/// Most bytes of a line before it is known what it is.
const MAX_HELD_BYTES: usize = 64;

/// The current activity of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolStatus {
    pub(super) text: String,
    /// Finished parts, and their number if it is known.
    pub(super) done: Option<(u64, u64)>,
}

/// Finds progress lines in the output of a step.
#[derive(Default)]
pub(super) struct ToolProgress {
    lines: HashMap<Stream, LineState>,
}

/// The current line of a stream.
enum LineState {
    /// It may become a progress line: nothing of it has been shown.
    Held(Vec<u8>),
    Progress(Vec<u8>),
    Other,
}

impl Default for LineState {
    fn default() -> Self {
        Self::Held(Vec::new())
    }
}

/// Whether a line is a progress line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    Yes,
    Maybe,
    No,
}

impl ToolProgress {
    /// Adds output. Returns the part to show, and the last status in it.
    pub(super) fn add(&mut self, stream: Stream, output: &[u8]) -> (Vec<u8>, Option<ToolStatus>) {
        let line = self.lines.entry(stream).or_default();
        let (mut shown, mut status) = (Vec::with_capacity(output.len()), None);
        let mut rest = output;
        while let Some((first, others)) = rest.split_first() {
            match line {
                LineState::Held(held) => {
                    held.push(*first);
                    rest = others;
                    match beginning(held) {
                        Beginning::Maybe if held.len() < MAX_HELD_BYTES => {}
                        Beginning::Yes => *line = LineState::Progress(std::mem::take(held)),
                        Beginning::Maybe | Beginning::No => {
                            shown.append(held);
                            if *first != b'\n' {
                                *line = LineState::Other;
                            }
                        }
                    }
                }
                LineState::Progress(text) => {
                    let end = rest.iter().position(|byte| b"\r\n".contains(byte));
                    let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
                    let room = MAX_LINE_BYTES.saturating_sub(text.len());
                    text.extend(piece.iter().take(room));
                    status = read_status(&String::from_utf8_lossy(text)).or(status);
                    // A carriage return begins the next line.
                    rest = after.strip_prefix(b"\n").unwrap_or(after);
                    if end.is_some() {
                        *line = LineState::default();
                    }
                }
                LineState::Other => {
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    let (piece, after) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
                    shown.extend_from_slice(piece);
                    rest = after;
                    if end.is_some() {
                        *line = LineState::default();
                    }
                }
            }
        }
        (shown, status)
    }

    /// Ends all lines. Returns the rest to show.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let held = self.lines.drain().filter_map(|(_, line)| match line {
            LineState::Held(held) => Some(held),
            LineState::Progress(_) | LineState::Other => None,
        });
        held.flatten().filter(|byte| *byte != b'\r').collect()
    }
}

/// Whether a line that begins so is a progress line.
fn beginning(line: &[u8]) -> Beginning {
    let start = line.iter().position(|byte| *byte != b'\r').unwrap_or(line.len());
    let line = line.get(start..).unwrap_or_default();
    let results = BEGINNINGS.map(|pattern| compare(pattern, line));
    let any = |result| results.contains(&result);
    match any(Beginning::Yes) {
        true => Beginning::Yes,
        false if any(Beginning::Maybe) => Beginning::Maybe,
        false => Beginning::No,
    }
}

fn compare(pattern: &[u8], line: &[u8]) -> Beginning {
    let mut line = line;
    for expected in pattern {
        let Some((first, others)) = line.split_first() else { return Beginning::Maybe };
        if *expected == b'#' {
            let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return Beginning::No;
            }
            line = line.get(digits..).unwrap_or_default();
        } else if first == expected {
            line = others;
        } else {
            return Beginning::No;
        }
    }
    Beginning::Yes
}

/// The status that a progress line gives. `None` if it is cut before.
fn read_status(line: &str) -> Option<ToolStatus> {
    let line = line.trim_start_matches('\r');
    if let Some(launch) = line.strip_prefix("==PROF== Profiling \"") {
        // A kernel's name may contain quotation marks.
        let (name, number) = launch.rsplit_once("\" - ")?;
        let (number, _) = number.split_once(':')?;
        let (index, of) = match number.split_once(" (") {
            Some((index, of)) => (index, of.trim_end_matches(')').split_once('/')),
            None => (number, None),
        };
        let text = match of {
            Some((number, count)) => format!("profile launch {number} of {count}: {name}"),
            None => format!("profile launch {}: {name}", index.parse::<u64>().ok()? + 1),
        };
        let done = of.and_then(|(number, count)| {
            Some((number.parse::<u64>().ok()?.saturating_sub(1), count.parse().ok()?))
        });
        return Some(ToolStatus { text, done });
    }
    let (before, _) = line.rsplit_once('%')?;
    let digits = before.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    let percent: u64 = before.get(digits..)?.parse().ok()?;
    let text =
        if line.starts_with("Processing") { "export the timeline" } else { "make the report" };
    Some(ToolStatus { text: text.to_owned(), done: Some((percent.min(100), 100)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shown output and the statuses of output that comes in pieces.
    fn added(pieces: &[&str]) -> (String, Vec<(String, Option<(u64, u64)>)>) {
        let mut progress = ToolProgress::default();
        let (mut shown, mut statuses) = (Vec::new(), Vec::new());
        for piece in pieces {
            let (bytes, status) = progress.add(Stream::Stdout, piece.as_bytes());
            shown.extend(bytes);
            statuses.extend(status.map(|status| (status.text, status.done)));
        }
        shown.extend(progress.finish());
        (String::from_utf8(shown).unwrap(), statuses)
    }

    #[test]
    fn launches_of_ncu_are_counted_and_the_rest_is_shown() {
        let recorded = include_str!("../../../tests/fixtures/ncu/2025.3.1/cost-minimal/stdout.txt");
        for size in [1, 7, recorded.len()] {
            let pieces: Vec<&str> = recorded
                .as_bytes()
                .chunks(size)
                .map(|chunk| std::str::from_utf8(chunk).unwrap())
                .collect();
            let (shown, statuses) = added(&pieces);
            let kept: Vec<&str> = recorded.lines().filter(|l| !l.contains("Profiling")).collect();
            assert_eq!(shown.lines().collect::<Vec<_>>(), kept);
            let last = statuses.last().unwrap();
            let text = "profile launch 3 of 3: heavy(float *, long long)";
            assert_eq!(*last, (text.to_owned(), Some((2, 3))));
        }
    }

    #[test]
    fn launches_whose_number_is_not_known_are_numbered() {
        let (shown, statuses) =
            added(&["==PROF== Profiling \"a\" - 0: 0%", "....50%", "....100% - 10 passes\nx\n"]);
        assert_eq!(shown, "x\n");
        assert_eq!(statuses.first().unwrap(), &("profile launch 1: a".to_owned(), None));
    }

    #[test]
    fn bars_of_nsys_become_a_percentage() {
        let (shown, statuses) = added(&[
            "\rProcessing 22593 events: [=5%   ]",
            "\rProcessing 22593 events: [==8%  ]\n",
        ]);
        assert_eq!(shown, "");
        let text = "export the timeline".to_owned();
        assert_eq!(statuses, [(text.clone(), Some((5, 100))), (text, Some((8, 100)))]);
        let recorded = include_str!("../../../tests/fixtures/nsys/2025.3.1/regions/stdout.txt");
        let (shown, statuses) = added(&[recorded]);
        assert!(!shown.contains("[1/1]") && shown.contains("Generated:\n\t"), "{shown}");
        assert_eq!(statuses, [("make the report".to_owned(), Some((100, 100)))]);
    }

    #[test]
    fn other_output_stays_as_it_is() {
        for text in ["[1/2] loss 3\r[2/2] loss 2\n", "Processing 3 files\n[", "\r\n==PROF== x", "é"]
        {
            let (shown, statuses) = added(&[text]);
            assert_eq!((shown.replace('\r', ""), statuses.len()), (text.replace('\r', ""), 0));
        }
    }
}
