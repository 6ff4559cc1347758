//! Opens the ranges around each phase and case, in NVTX for tools and in a log of our own.
//!
//! NVTX: domain `rgpu`, push/pop ranges, the phase outside and the case inside
//! (`rgpu@timed/n=1024` in ncu's filter language). Without a tool the calls have no effect.
//!
//! The log serves runs without a tool. It consists of JSON lines. The first is
//! `{"rgpu_ranges":1,"clock":"unix_ns","pid":1234}`, each other one a range that has ended:
//! `{"domain":"rgpu","path":["timed","n=1024"],"start_ns":…,"end_ns":…}` in nanoseconds since 1970
//! (one reading of the wall clock at the start, continued by the monotonic clock, so that steps of
//! the wall clock have no effect). Inner ranges come before the outer ones that contain them.

use crate::fault::{Fault, Result};
use nvtx::Domain;
use nvtx::domain::LocalRange;
use rgpu_case::ErrorClass;
use serde::Serialize;
use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub(crate) struct Ranges {
    domain: Domain,
    log: Option<RefCell<File>>,
    open: RefCell<Vec<String>>,
    start: Instant,
    start_unix_ns: u128,
    /// The process that opened the log. A forked child of it writes no lines there.
    pid: u32,
}

/// An open range; dropping it closes it.
pub(crate) struct Range<'a> {
    ranges: &'a Ranges,
    start_ns: u128,
    nvtx: Option<LocalRange<'a>>,
}

#[derive(Serialize)]
struct Header {
    rgpu_ranges: u32,
    clock: &'static str,
    pid: u32,
}

#[derive(Serialize)]
struct Line<'a> {
    domain: &'a str,
    path: &'a [String],
    start_ns: u128,
    end_ns: u128,
}

/// A name as NVTX's 8-bit form. ncu 2025.3 reads the wide form, which the crate uses for any Rust
/// string, as its first letter (seen on an H200: `r@t` for `rgpu@timed`), so that no filter on our
/// ranges would match. Non-ASCII characters and NUL become `?`.
fn ascii(name: &str) -> nvtx::Str {
    let bytes: Vec<u8> =
        name.chars().map(|c| if c.is_ascii() && c != '\0' { c as u8 } else { b'?' }).collect();
    // No NUL is left, so this cannot fail.
    nvtx::Str::Ascii(std::ffi::CString::new(bytes).unwrap_or_default())
}

impl Ranges {
    /// The file `log` is truncated.
    pub(crate) fn new(log: Option<&Path>) -> Result<Ranges> {
        let ranges = Ranges {
            domain: Domain::new(ascii("rgpu")),
            log: log.map(|path| create(path).map(RefCell::new)).transpose()?,
            open: RefCell::default(),
            start: Instant::now(),
            start_unix_ns: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos()),
            pid: std::process::id(),
        };
        ranges.write(&Header { rgpu_ranges: 1, clock: "unix_ns", pid: ranges.pid });
        Ok(ranges)
    }

    pub(crate) fn push(&self, name: &str) -> Range<'_> {
        self.open.borrow_mut().push(name.to_owned());
        let nvtx = self.domain.local_range(ascii(name));
        Range { ranges: self, start_ns: self.now_ns(), nvtx: Some(nvtx) }
    }

    fn now_ns(&self) -> u128 {
        self.start_unix_ns + self.start.elapsed().as_nanos()
    }

    /// Ignores write errors, because a full disk must not end a measurement.
    fn write(&self, line: &impl Serialize) {
        if let (Some(log), Ok(mut text)) = (&self.log, serde_json::to_string(line))
            && std::process::id() == self.pid
        {
            text.push('\n');
            let _ = log.borrow_mut().write_all(text.as_bytes());
        }
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        // The range that tools see ends first: writing the line is none of its time.
        self.nvtx = None;
        let end_ns = self.ranges.now_ns();
        let mut open = self.ranges.open.borrow_mut();
        let line = Line { domain: "rgpu", path: &open, start_ns: self.start_ns, end_ns };
        self.ranges.write(&line);
        open.pop();
    }
}

fn create(path: &Path) -> Result<File> {
    File::create(path).map_err(|e| {
        let text = format!("cannot write the range log `{}`: {e}", path.display());
        Fault::new(ErrorClass::Output, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_ranges_are_logged_with_their_path_and_lie_within_each_other() {
        let file = std::env::temp_dir().join(format!("rgpu-runner-ranges-{}", std::process::id()));
        let ranges = Ranges::new(Some(&file)).unwrap();
        {
            let _outer = ranges.push("timed");
            drop(ranges.push("n=1"));
            drop(ranges.push("n=2"));
        }
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["rgpu_ranges"], 1);
        let paths: Vec<String> = lines[1..].iter().map(|line| line["path"].to_string()).collect();
        assert_eq!(paths, [r#"["timed","n=1"]"#, r#"["timed","n=2"]"#, r#"["timed"]"#]);
        let ns = |line: usize, key: &str| lines[line][key].as_u64().unwrap();
        assert!(ns(3, "start_ns") <= ns(1, "start_ns") && ns(1, "end_ns") <= ns(2, "start_ns"));
        assert!(ns(2, "end_ns") <= ns(3, "end_ns"));
    }
}
