//! How long ncu profiled launches in a step, by the times at which it printed the parts of its
//! lines:
//!
//! ```text
//! ==PROF== Profiling "tile" - 2 (3/9): 0%....50%....100% - 38 passes
//! ```
//!
//! The rest of the step's time is the program under ncu, whatever launches are chosen.

use std::collections::HashMap;

use rgpu_protocol::Stream;

const BEGINNING: &[u8] = b"==PROF== Profiling \"";
const END: &[u8] = b" passes";
/// Most bytes of a line that are kept: names of kernels are long.
const MAX_LINE_BYTES: usize = 16 << 10;

/// The launches that ncu profiled in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProfiledTime {
    pub launches: u64,
    /// Milliseconds from the first to the last pass, of all launches.
    pub ms: u64,
}

/// Reads ncu's lines in the output of a job's steps.
#[derive(Clone, Debug, Default)]
pub(super) struct ProfiledTimes {
    streams: HashMap<(String, Stream), CurrentLine>,
    by_step: HashMap<String, ProfiledTime>,
}

#[derive(Clone, Debug, Default)]
struct CurrentLine {
    /// Output whose time is not known yet.
    untimed: Vec<u8>,
    line: Vec<u8>,
    /// When the line became one about a launch, in milliseconds.
    started_ms: Option<u64>,
}

impl ProfiledTimes {
    /// Forgets the step's earlier rungs.
    pub(super) fn start_rung(&mut self, step: &str) {
        self.by_step.remove(step);
        self.streams.retain(|(of_step, _), _| of_step != step);
    }

    /// Adds output, which comes before its time.
    pub(super) fn add_output(&mut self, step: &str, stream: Stream, bytes: &[u8]) {
        let key = (step.to_owned(), stream);
        self.streams.entry(key).or_default().untimed.extend_from_slice(bytes);
    }

    /// Gives the next `len` bytes of output their time on the host.
    pub(super) fn set_time(&mut self, step: &str, stream: Stream, len: u64, at_ms: u64) {
        let Some(current) = self.streams.get_mut(&(step.to_owned(), stream)) else { return };
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(current.untimed.len());
        let mut ended = ProfiledTime::default();
        for byte in current.untimed.drain(..len) {
            if byte != b'\n' {
                if current.line.len() < MAX_LINE_BYTES {
                    current.line.push(byte);
                }
                continue;
            }
            // A terminal's lines end with a carriage return, too.
            let line = current.line.trim_ascii_end();
            if line.starts_with(BEGINNING) && line.ends_with(END) {
                ended.launches += 1;
                ended.ms += at_ms.saturating_sub(current.started_ms.unwrap_or(at_ms));
            }
            current.line.clear();
            current.started_ms = None;
        }
        if current.started_ms.is_none() && current.line.starts_with(BEGINNING) {
            current.started_ms = Some(at_ms);
        }
        let sum = self.by_step.entry(step.to_owned()).or_default();
        sum.launches += ended.launches;
        sum.ms += ended.ms;
    }

    /// The launches of the step's last rung.
    pub(super) fn step_time(&self, step: &str) -> ProfiledTime {
        self.by_step.get(step).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_takes_from_the_beginning_of_its_line_to_its_end() {
        let mut times = ProfiledTimes::default();
        let mut print = |text: &str, at_ms| {
            times.add_output("profile", Stream::Stdout, text.as_bytes());
            times.set_time("profile", Stream::Stdout, text.len() as u64, at_ms);
        };
        print("loading\n==PROF== Connected to process 1\n", 1000);
        print("==PROF== Profiling \"a\" - 0 (1/2): 0%", 2000);
        print("....50%....100% - 38 passes\r\n", 3500);
        print("step 1\nall 9 passes\n", 5000);
        print("==PROF== Profiling \"b\" - 1 (2/2): ", 6000);
        print("0%....50%....100%", 6100);
        print(
            " - 38 passes\nstep 2\n==PROF== Profiling \"c\" - 2: Application replay pass 1\n",
            6500,
        );
        let expected = ProfiledTime { launches: 2, ms: 2000 };
        assert_eq!(times.step_time("profile"), expected);
        assert_eq!(times.step_time("survey"), ProfiledTime::default());
        times.start_rung("profile");
        assert_eq!(times.step_time("profile"), ProfiledTime::default());
    }

    #[test]
    fn output_without_its_time_is_no_launch() {
        let mut times = ProfiledTimes::default();
        let line = b"==PROF== Profiling \"a\" - 0: 0%....50%....100% - 10 passes\n";
        times.set_time("profile", Stream::Stdout, 900, 1000);
        times.add_output("profile", Stream::Stdout, line);
        assert_eq!(times.step_time("profile").launches, 0);
        times.set_time("profile", Stream::Stdout, line.len() as u64, 1000);
        assert_eq!(times.step_time("profile"), ProfiledTime { launches: 1, ms: 0 });
    }
}
