//! Progress bars and live output on the terminal, drawn from a run's events.
//!
//! On a terminal one line shows the phase with a bar or a spinner, and the program's output scrolls
//! above it. Elsewhere each phase is printed once as a plain line. A step that is silent for a
//! minute is reported with its last line. With `--json` stdout is left for the result, and output
//! goes to stderr.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use rgpu_protocol::event::Stream;
use rgpu_protocol::{Event, EventBody, RungRecord};

use super::program_output::{OutputStyle, ProgramOutput};
use super::terminal::{
    Terminal, escape_but_colors, escape_controls, write_stderr, write_stderr_unchanged,
};
use super::tool_progress::{ToolProgress, ToolStatus};
use rgpu_model::error::indent_continuation;
use rgpu_plan::tool::{PLAIN_STEP, PROGRAM_BUILD_CODES, SECOND_STEP, SIDES, side_of};
use rgpu_remote::limits::RECONNECT_TIMEOUT;
use rgpu_report::{bytes as show_bytes, one_line, time_span};
use rgpu_run::config::LOCAL;
use rgpu_run::run::{Canceller, MAX_CAUSE_LINES, Reporter, RunEvent, starts_program};
use rgpu_run::store::LogPosition;

/// Remotes that this process has named on stderr. Each is named only once.
static NAMED_REMOTES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// A step that prints nothing for this long is reported as silent.
const SILENCE_NOTICE_AFTER: Duration = Duration::from_secs(60);

/// Compiler output held back until the compiler has ended, in bytes.
const MAX_HELD_BYTES: usize = 64 << 10;

const BUILD_STEP: &str = "build";
/// Codes of builds whose failure has the compiler's own message.
const CODES_IN_FAILURE: [&str; 3] = ["arch_unsupported", "does_not_compile", "nothing_compiled"];

/// Whether `step` compiles a kernel, in a run or for one side of a comparison.
fn is_build_step(step: &str) -> bool {
    step == BUILD_STEP
        || SIDES.iter().any(|side| side_of(step, side).is_some_and(|own| own == BUILD_STEP))
}

/// Where the output of programs goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum LiveOutput {
    /// Raw pass-through: the program owns the terminal.
    Raw,
    /// stdout to stdout and stderr to stderr, byte for byte: `exec`.
    SameStream,
    /// Both to stderr, above the bar: `profile`.
    Stderr,
    /// Nowhere: `--quiet`, or `--json` without `-v`.
    Hidden,
}

/// The reporter that draws on the terminal.
pub(in crate::cli) struct Progress {
    bar: ProgressBar,
    live: LiveOutput,
    quiet: bool,
    terminal: Terminal,
    phase: String,
    /// The run whose job it follows; empty if there is none.
    run: String,
    silence: Arc<Mutex<SilenceWatch>>,
    ticker: Option<tokio::task::JoinHandle<()>>,
    /// Streams for which we already reported lost output.
    cut_streams: Vec<(String, Stream)>,
    /// Writes the program's output to stdout and stderr. `None`: it is printed above the bar.
    program_output: Option<ProgramOutput>,
    /// A running compiler's output, held until we know whether the failure's text contains it.
    compiler_output: Option<Vec<u8>>,
    /// Title of the step whose first rung has not started.
    step_title: Option<String>,
    tool_progress: ToolProgress,
    /// When the tool's first counted part began.
    counting_since: Option<Instant>,
    /// Notes that were printed, and whether it was printed that the host is asked. Each is printed
    /// once, though `doctor` makes several runs.
    printed_notes: BTreeSet<String>,
    has_asked: bool,
    /// Whether the run is on this machine, as `local`.
    is_this_machine: bool,
    /// Printed before each line: empty, or the remote's name if several runs are followed at once.
    line_prefix: String,
}

/// The terminal line of one of several runs at once.
#[derive(Clone, Debug)]
pub(in crate::cli) struct ProgressRow {
    bar: ProgressBar,
    line_prefix: String,
}

impl ProgressRow {
    /// One line for each of these remotes.
    pub(in crate::cli) fn each<'a>(
        terminal: Terminal,
        quiet: bool,
        remotes: impl Iterator<Item = &'a str> + Clone,
    ) -> Vec<Self> {
        let all = MultiProgress::with_draw_target(if quiet || !terminal.has_bars {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(12)
        });
        let width = remotes.clone().map(|remote| remote.chars().count()).max().unwrap_or(0);
        remotes
            .map(|remote| Self {
                bar: all.add(ProgressBar::new_spinner()),
                line_prefix: format!("{remote:width$}  "),
            })
            .collect()
    }

    /// Shows a text on the line.
    pub(in crate::cli) fn show(&self, text: &str) {
        self.bar.set_style(spinner());
        self.bar.set_prefix(self.line_prefix.clone());
        self.bar.set_message(one_line(&escape_controls(text.as_bytes())));
    }
}

/// State of the watch for silent steps.
struct SilenceWatch {
    step: String,
    since: Instant,
    last_line: String,
    was_reported: bool,
    /// Since when the link is down: then nobody knows whether the step prints anything.
    link_lost: Option<Instant>,
}

impl SilenceWatch {
    /// Whether it is to be said now that the step is silent.
    fn is_due(&self) -> bool {
        !self.was_reported
            && self.link_lost.is_none()
            && self.since.elapsed() >= SILENCE_NOTICE_AFTER
    }
}

impl Progress {
    /// Sets the run whose job it follows, which is named when the link is lost.
    pub(in crate::cli) fn for_run(mut self, run: &str) -> Self {
        run.clone_into(&mut self.run);
        self
    }

    /// What is said when the link is lost: how long it is tried, and how to leave the job.
    fn first_loss_text(&self, why: &str, retry_s: u64) -> String {
        let minutes = RECONNECT_TIMEOUT.as_secs() / 60;
        let leave = match self.run.as_str() {
            "" => String::new(),
            run => format!(
                " Ctrl-C twice leaves it to the host, and `rgpu runs attach {run}` follows it again."
            ),
        };
        format!(
            "connection lost: {why}; reconnecting in {retry_s} s, for up to {minutes} min. The job \
             continues.{leave}"
        )
    }

    /// A reporter for this terminal; with `row` it draws on that line.
    pub(in crate::cli) fn new(
        terminal: Terminal,
        live: LiveOutput,
        quiet: bool,
        canceller: Canceller,
        row: Option<&ProgressRow>,
    ) -> Self {
        // Hidden at first, so that the bar is drawn only once it is set up.
        let hidden = || ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let bar = row.map_or_else(hidden, |row| row.bar.clone());
        let line_prefix = row.map(|row| row.line_prefix.clone()).unwrap_or_default();
        bar.set_prefix(line_prefix.clone());
        bar.set_style(spinner());
        if row.is_some() {
            bar.enable_steady_tick(Duration::from_millis(120));
        } else if quiet || !terminal.has_bars || live == LiveOutput::Raw {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        } else {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(12));
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        let silence = Arc::new(Mutex::new(SilenceWatch {
            step: String::new(),
            since: Instant::now(),
            last_line: String::new(),
            was_reported: true,
            link_lost: None,
        }));
        let (phase, ticker, cut_streams) = (String::new(), None, Vec::new());
        let style = match live {
            LiveOutput::Raw => Some(OutputStyle::Raw),
            LiveOutput::SameStream => Some(OutputStyle::Safe),
            LiveOutput::Stderr | LiveOutput::Hidden => None,
        };
        let program_output =
            style.map(|style| ProgramOutput::new(terminal, style, bar.clone(), canceller));
        let compiler_output = None;
        Self {
            bar,
            live,
            quiet,
            terminal,
            phase,
            run: String::new(),
            silence,
            ticker,
            cut_streams,
            program_output,
            compiler_output,
            step_title: None,
            tool_progress: ToolProgress::default(),
            counting_since: None,
            printed_notes: BTreeSet::new(),
            has_asked: false,
            is_this_machine: false,
            line_prefix,
        }
    }

    pub(in crate::cli) fn program_output(&self) -> Option<ProgramOutput> {
        self.program_output.clone()
    }

    /// The bar, for code that writes to the terminal itself.
    pub(in crate::cli) fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// Shows a phase on the bar; without a bar prints it once as a line. The bar writes to the
    /// terminal itself.
    fn set_phase(&mut self, text: &str) {
        let text = one_line(&escape_controls(text.as_bytes()));
        if self.phase == text {
            return;
        }
        // The stderr of `exec` belongs to the program.
        if !self.quiet
            && !self.terminal.has_bars
            && !matches!(self.live, LiveOutput::SameStream | LiveOutput::Raw)
        {
            write_stderr(&format!("{}{text}\n", self.line_prefix));
        }
        self.bar.set_style(spinner());
        self.bar.set_message(text.clone());
        self.phase = text;
    }

    /// Prints a line that stays. Further lines are indented, so that text from a host cannot look
    /// like ours.
    fn print_line(&self, text: &str) {
        if self.quiet {
            return;
        }
        let text = indent_continuation(text, 4);
        self.bar.suspend(|| write_stderr(&format!("{}{text}\n", self.line_prefix)));
    }

    fn show_transfer(&mut self, verb: &str, done: u64, total: u64) {
        if total < 64 << 10 {
            return;
        }
        let verb = if self.is_this_machine { "copying" } else { verb };
        if !self.phase.starts_with(verb) {
            self.set_phase(&format!("{verb} {}", show_bytes(total as f64)));
            self.bar.set_style(transfer_style());
            self.bar.set_length(total);
        }
        self.bar.set_position(done);
    }

    fn show_output(&mut self, step: &str, stream: Stream, bytes: &[u8], recorded: LogPosition<'_>) {
        {
            let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
            silence.since = Instant::now();
            silence.was_reported = false;
            silence.step = step.to_owned();
            // Search only the last bytes: output may come at hundreds of megabytes a second.
            let tail = &bytes[bytes.len().saturating_sub(4096)..];
            if let Some(line) =
                String::from_utf8_lossy(tail).lines().rev().find(|l| !l.trim().is_empty())
            {
                silence.last_line = line.chars().take(120).collect();
            }
        }
        // Only the program's own output goes through; that of earlier steps is printed above the
        // bar.
        match &self.program_output {
            // A repeated run, whose first output was shown; what it fails with is in the failure.
            _ if [PLAIN_STEP, SECOND_STEP].contains(&step) => {}
            Some(program_output) if step == rgpu_run::run::EXEC_STEP => {
                program_output.write(stream, bytes, recorded);
            }
            _ if is_build_step(step) && self.live != LiveOutput::Hidden => {
                match &mut self.compiler_output {
                    Some(held) => {
                        held.extend_from_slice(bytes);
                        // Too long for the failure's text, so show it now.
                        if held.len() > MAX_HELD_BYTES
                            || count_nonblank_lines(held) > MAX_CAUSE_LINES
                        {
                            self.show_compiler();
                        }
                    }
                    None => self.print_beside(bytes),
                }
            }
            _ => {
                let (shown, status) = self.tool_progress.add(stream, bytes);
                if !shown.is_empty() && self.live != LiveOutput::Hidden {
                    self.print_beside(&shown);
                }
                if let Some(status) = status {
                    self.show_tool_status(&status);
                }
            }
        }
    }

    /// Shows on the bar what a tool does, and how long the rest takes at the pace so far.
    fn show_tool_status(&mut self, status: &ToolStatus) {
        let mut text = status.text.clone();
        match status.done {
            Some((done, total)) => {
                self.bar.set_style(counted_style());
                self.bar.set_length(total);
                self.bar.set_position(done);
                let since = *self.counting_since.get_or_insert_with(Instant::now);
                if let Some(seconds) = seconds_left(since.elapsed(), done, total) {
                    // Before the kernel's name, which may be longer than the line.
                    text = format!("about {} left: {text}", time_span(seconds));
                }
            }
            None => self.bar.set_style(spinner()),
        }
        self.bar.set_message(one_line(&escape_controls(text.as_bytes())));
    }

    /// Ends the progress of a tool, and shows what was held back of its output.
    fn end_tool_progress(&mut self) {
        let rest = self.tool_progress.finish();
        self.counting_since = None;
        if !rest.is_empty() && self.live != LiveOutput::Hidden {
            self.print_beside(&rest);
        }
        self.bar.set_style(spinner());
        self.bar.set_message(self.phase.clone());
    }

    /// Prints output above the bar.
    fn print_beside(&self, bytes: &[u8]) {
        let is_shown = self.terminal.stderr_tty && self.live != LiveOutput::Raw;
        let is_programs_own = matches!(self.live, LiveOutput::SameStream | LiveOutput::Raw);
        self.bar.suspend(|| {
            if is_shown {
                write_stderr_unchanged(escape_but_colors(bytes).as_bytes())
            } else if is_programs_own {
                write_stderr_unchanged(bytes)
            } else {
                // rgpu's own lines are in the same pipe.
                write_stderr_unchanged(escape_controls(bytes).as_bytes())
            }
        });
    }

    /// Prints the held compiler output.
    fn show_compiler(&mut self) {
        if let Some(bytes) = self.compiler_output.take() {
            self.print_beside(&bytes);
        }
    }

    /// Ends holding a compiler's output. Returns whether the failure's text contains it; otherwise
    /// prints it.
    fn settle_compiler_output(&mut self, record: &RungRecord) -> bool {
        let code = record.code.as_str();
        let is_told = CODES_IN_FAILURE.contains(&code) || PROGRAM_BUILD_CODES.contains(&code);
        let in_failure = is_told && self.compiler_output.is_some();
        if in_failure {
            self.compiler_output = None
        } else {
            self.show_compiler()
        }
        in_failure
    }

    fn show_event(&mut self, event: &Event) {
        if let EventBody::RungEnded(_) = &event.body {
            self.end_tool_progress();
        }
        // A step without any rung to run is not shown, for example the export of a report that is
        // not there.
        if let EventBody::RungStarted { .. } = &event.body
            && let Some(title) = self.step_title.take()
        {
            self.set_phase(&title);
        }
        match &event.body {
            EventBody::Queued { position, holder } => {
                self.set_phase(&format!(
                    "waiting for the GPU: position {position} in the queue, held by {holder}"
                ));
            }
            EventBody::StepStarted { step, title } => {
                let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
                *silence = SilenceWatch {
                    step: step.clone(),
                    since: Instant::now(),
                    last_line: String::new(),
                    was_reported: false,
                    link_lost: None,
                };
                drop(silence);
                if !matches!(self.live, LiveOutput::SameStream | LiveOutput::Raw) {
                    self.step_title = Some(title.clone());
                }
            }
            EventBody::RungStarted { step, .. } if is_build_step(step) => {
                self.compiler_output = Some(Vec::new());
            }
            EventBody::RungEnded(record)
                if is_build_step(&record.step) && self.settle_compiler_output(record) => {}
            // A rung skipped for a missing file was not tried.
            EventBody::RungEnded(record)
                if !record.ok
                    && record.code != "missing"
                    && !is_told_by_failure(record)
                    && !matches!(self.live, LiveOutput::SameStream | LiveOutput::Raw) =>
            {
                self.print_line(&format!("  {}", failed_rung_text(record)));
            }
            EventBody::Warning { text, .. } => self.print_line(&format!("warning: {text}")),
            EventBody::OutputDropped { step, stream, .. } => {
                let key = (step.clone(), *stream);
                // The event comes again at the end, with the total.
                if !self.cut_streams.contains(&key) {
                    self.cut_streams.push(key);
                    self.print_line(&format!(
                        "warning: {} of step `{step}` has reached `--log-limit`; the rest is dropped",
                        stream.as_str()
                    ));
                }
            }
            // Between two steps a job can wait for a GPU.
            EventBody::StepEnded { .. } | EventBody::Ended { .. } => {
                self.silence.lock().unwrap_or_else(PoisonError::into_inner).was_reported = true;
            }
            _ => {}
        }
    }

    /// Starts the watch for silent steps, if there is a runtime.
    fn start_silence_watch(&mut self) {
        if self.ticker.is_some() || self.quiet || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let silence = Arc::clone(&self.silence);
        let (bar, line_prefix) = (self.bar.clone(), self.line_prefix.clone());
        self.ticker = Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(5)).await;
                let mut s = silence.lock().unwrap_or_else(PoisonError::into_inner);
                if s.is_due() {
                    s.was_reported = true;
                    let last = if s.last_line.is_empty() {
                        String::new()
                    } else {
                        format!("; its last line: {}", s.last_line)
                    };
                    let text = format!("step `{}` has been silent for a minute{last}", s.step);
                    let text = format!("{line_prefix}{}\n", indent_continuation(&text, 4));
                    bar.suspend(|| write_stderr(&text));
                }
            }
        }));
    }
}

impl Reporter for Progress {
    fn report(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Where { remote, address, .. } => {
                self.start_silence_watch();
                self.is_this_machine = *remote == LOCAL && *address == LOCAL;
                // The stderr of `exec` belongs to the program, but a remote host is always named.
                let program_only = matches!(self.live, LiveOutput::SameStream | LiveOutput::Raw);
                let mut named = NAMED_REMOTES.lock().unwrap_or_else(PoisonError::into_inner);
                if !(program_only && *address == LOCAL) && named.insert((*remote).to_owned()) {
                    let more =
                        if address == remote { String::new() } else { format!(" ({address})") };
                    self.print_line(&format!("on {remote}{more}"));
                }
            }
            RunEvent::Connecting {} => self.bar.set_message("connecting"),
            RunEvent::Starting { what } => {
                // No program has printed anything yet.
                let is_exec = matches!(self.live, LiveOutput::SameStream | LiveOutput::Raw);
                if is_exec && !self.terminal.stderr_tty {
                    self.print_line(&escape_controls(what.as_bytes()));
                }
                self.set_phase(what);
            }
            RunEvent::Asking {} => {
                let text = if self.is_this_machine {
                    "looking for this machine's GPUs and tools"
                } else {
                    "asking the host for its GPUs and tools"
                };
                if std::mem::replace(&mut self.has_asked, true) {
                    self.bar.set_message(text)
                } else {
                    self.set_phase(text)
                }
            }
            RunEvent::Compiling { what } => self.set_phase(&format!("compiling {what}")),
            // The step was already printed as a line; the count is only for the bar.
            RunEvent::Disassembling { done, total } => {
                self.bar.set_message(format!("disassemble with nvdisasm: {done} of {total}"));
            }
            RunEvent::Uploading { sent, total } => self.show_transfer("uploading", *sent, *total),
            RunEvent::Fetching { got, total, .. } => self.show_transfer("fetching", *got, *total),
            RunEvent::Job { event, .. } => self.show_event(event),
            RunEvent::Output { step, stream, bytes, recorded, .. } => {
                self.show_output(step, *stream, bytes, *recorded);
            }
            RunEvent::LinkLost { why, retry_s } => {
                self.show_compiler();
                let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
                let lost_at = silence.link_lost;
                silence.link_lost.get_or_insert_with(Instant::now);
                drop(silence);
                let text = match lost_at.map(|at| at.elapsed().as_secs()) {
                    None => self.first_loss_text(why, *retry_s),
                    Some(s) => {
                        format!("no connection for {s} s: {why}; the next try is in {retry_s} s")
                    }
                };
                self.print_line(&text);
            }
            RunEvent::LinkBack {} => {
                let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
                silence.link_lost = None;
                silence.since = Instant::now();
                drop(silence);
                self.print_line("reconnected");
            }
            RunEvent::Refused { rung, code, text } => {
                self.print_line(&format!("  {rung} gave no usable result ({code}: {text})"))
            }
            RunEvent::Note { text } => {
                if self.printed_notes.insert((*text).to_owned()) {
                    self.print_line(text);
                }
            }
            RunEvent::Connected { .. } | RunEvent::Planned { .. } => {}
            RunEvent::Finished { .. } => {
                self.show_compiler();
                self.bar.finish_and_clear();
                if let Some(ticker) = self.ticker.take() {
                    ticker.abort();
                }
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Some(ticker) = self.ticker.take() {
            ticker.abort();
        }
    }
}

/// Whether the command's failure says the same at its end: the program could not be started, or
/// failed by itself.
fn is_told_by_failure(record: &RungRecord) -> bool {
    let did_not_start = record.start_error.is_some() && starts_program(record);
    did_not_start || record.code == "program_failed"
}

/// Why a rung did not work, in one line. The runner says last in which phase it ended, which is not
/// repeated where the rung has the same name.
fn failed_rung_text(record: &RungRecord) -> String {
    let RungRecord { rung, code, message, .. } = record;
    let is_told = message.is_empty() || *message == format!("during `{rung}`");
    let message = if is_told { String::new() } else { format!(": {message}") };
    match code.as_str() {
        "exit" => format!("{rung} ended with an error{message}"),
        code => format!("{rung} did not work ({code}{message})"),
    }
}

/// The seconds that the rest takes if each part takes as long as those that are done. `None` before
/// the first is done.
fn seconds_left(elapsed: Duration, done: u64, total: u64) -> Option<f64> {
    let rest = total.checked_sub(done).filter(|_| done > 0)?;
    Some(elapsed.as_secs_f64() * rest as f64 / done as f64)
}

fn count_nonblank_lines(bytes: &[u8]) -> usize {
    bytes.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()).count()
}

fn spinner() -> ProgressStyle {
    ProgressStyle::with_template("{prefix}{spinner} {msg} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn transfer_style() -> ProgressStyle {
    ProgressStyle::with_template(
        "{prefix}{spinner} {msg} {bar:24} {bytes}/{total_bytes} {bytes_per_sec}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn counted_style() -> ProgressStyle {
    ProgressStyle::with_template("{prefix}{spinner} {bar:24} {msg} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_link_is_told_with_its_limit_and_the_way_back_and_a_step_is_not_silent_then() {
        let terminal = Terminal { stderr_tty: false, has_bars: false, ..Terminal::detect() };
        let (canceller, _cancel) = rgpu_run::run::channel();
        let mut progress =
            Progress::new(terminal, LiveOutput::Stderr, true, canceller, None).for_run("night");
        let text = progress.first_loss_text("the link was cut", 1);
        assert_eq!(
            text,
            "connection lost: the link was cut; reconnecting in 1 s, for up to 10 min. The job \
             continues. Ctrl-C twice leaves it to the host, and `rgpu runs attach night` follows \
             it again."
        );
        let is_due = |progress: &Progress| {
            let mut silence = progress.silence.lock().unwrap();
            silence.was_reported = false;
            silence.since -= 2 * SILENCE_NOTICE_AFTER;
            silence.is_due()
        };
        assert!(is_due(&progress));
        progress.report(&RunEvent::LinkLost { why: "refused".to_owned(), retry_s: 1 });
        assert!(!is_due(&progress));
        progress.report(&RunEvent::LinkBack {});
        assert!(is_due(&progress));
    }

    #[test]
    fn a_compilers_output_is_held_up_to_its_limit_only() {
        let terminal = Terminal {
            stdout_tty: false,
            stderr_tty: false,
            has_bars: false,
            ..Terminal::detect()
        };
        let (canceller, _cancel) = rgpu_run::run::channel();
        let mut progress = Progress::new(terminal, LiveOutput::Stderr, true, canceller, None);
        let started = EventBody::RungStarted {
            step: BUILD_STEP.to_owned(),
            rung: "nvcc".to_owned(),
            argv: Vec::new(),
        };
        progress.show_event(&Event { seq: 1, at_ms: 0, body: started });
        let piece = [b'x'; 1024];
        let recorded = LogPosition { path: std::path::Path::new("log"), offset: 0, len: 1024 };
        let mut held = 0;
        for _ in 0..4 * MAX_HELD_BYTES / piece.len() {
            progress.show_output(BUILD_STEP, Stream::Stderr, &piece, recorded);
            held = held.max(progress.compiler_output.as_ref().map_or(0, Vec::len));
        }
        assert_eq!(held, MAX_HELD_BYTES);
        assert!(progress.compiler_output.is_none(), "the rest goes through");
    }

    #[test]
    fn a_rung_that_ended_with_an_error_is_named_once() {
        let text = |rung: &str, code: &str, message: &str| {
            let (rung, code, message) = (rung.into(), code.into(), message.into());
            failed_rung_text(&RungRecord { rung, code, message, ..RungRecord::default() })
        };
        assert_eq!(text("verify", "exit", "during `verify`"), "verify ended with an error");
        assert_eq!(text("time", "exit", "no such file"), "time ended with an error: no such file");
        assert_eq!(text("nvtx", "no_file", "raw/x"), "nvtx did not work (no_file: raw/x)");
    }

    #[test]
    fn a_program_that_did_not_start_is_told_by_the_failure_alone() {
        let record = |step: &str, rung: &str| {
            let start_error = Some(rgpu_protocol::event::StartError::NotFound);
            let (step, rung) = (step.to_owned(), rung.to_owned());
            RungRecord { step, rung, start_error, ..RungRecord::default() }
        };
        for told in [record("exec", "exec"), record("profile", "cpu"), record("profile", "nvtx")] {
            assert!(is_told_by_failure(&told), "{told:?}");
        }
        for tool in [record("profile", "nsys.full"), record("build", "nvcc")] {
            assert!(!is_told_by_failure(&tool), "{tool:?}");
        }
    }

    #[test]
    fn the_rest_takes_as_long_as_the_parts_that_are_done() {
        let left = |done, total| seconds_left(Duration::from_secs(8), done, total);
        assert_eq!((left(0, 9), left(2, 9), left(9, 9)), (None, Some(28.0), Some(0.0)));
        assert_eq!(left(9, 3), None, "a tool may count wrongly");
    }

    #[test]
    fn only_a_step_that_runs_a_program_is_shown_and_watched() {
        let terminal = Terminal {
            stdout_tty: false,
            stderr_tty: false,
            has_bars: false,
            ..Terminal::detect()
        };
        let (canceller, _cancel) = rgpu_run::run::channel();
        let mut progress = Progress::new(terminal, LiveOutput::Stderr, true, canceller, None);
        let step = || "export".to_owned();
        let mut show = |body| {
            progress.show_event(&Event { seq: 1, at_ms: 0, body });
            let is_watched = !progress.silence.lock().unwrap().was_reported;
            (progress.phase.clone(), is_watched)
        };
        let started =
            |title: &str| EventBody::StepStarted { step: step(), title: title.to_owned() };
        let ended = || EventBody::StepEnded { step: step(), rung: None, code: String::new() };
        assert_eq!(show(started("export the timeline")).0, "");
        assert_eq!(show(ended()), (String::new(), false));
        show(started("profile with ncu"));
        let rung =
            EventBody::RungStarted { step: step(), rung: "ncu".to_owned(), argv: Vec::new() };
        assert_eq!(show(rung), ("profile with ncu".to_owned(), true));
    }
}
