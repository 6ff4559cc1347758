//! Bars and live output on the terminal: a consumer of what the run says.
//!
//! On a terminal one line shows the phase with a bar or a spinner, and the program's output scrolls
//! above it. Elsewhere phases are plain lines, said once. A step that is silent for a minute says
//! so with its last line. Under `--json` stdout stays free for the result: output goes to stderr.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use rgpu_protocol::event::Stream;
use rgpu_protocol::{Event, EventBody, RungRecord};

use super::program_output::{OutputStyle, ProgramOutput};
use super::terminal::{Terminal, safe};
use crate::config::LOCAL;
use crate::error::inset;
use crate::report::bytes as show_bytes;
use crate::run::{Canceller, MAX_CAUSE_LINES, Reporter, RunEvent};
use crate::store::LogPosition;
use crate::tool::{SIDES, side_of};

/// Remotes that this process has named on stderr: each is named once, however often it is reached.
static NAMED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// How long a step may be silent before that is said.
const SILENCE_NOTICE_AFTER: Duration = Duration::from_secs(60);

/// Bytes of a compiler's output that are held until it has ended.
const MAX_HELD_BYTES: usize = 64 << 10;

/// The step in which a kernel is compiled.
const BUILD_STEP: &str = "build";

/// Whether it is that step, of a run or of a side of a comparison.
fn is_build(step: &str) -> bool {
    step == BUILD_STEP
        || SIDES.iter().any(|side| side_of(step, side).is_some_and(|own| own == BUILD_STEP))
}

/// What happens with the output of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LiveOutput {
    /// Through, and nothing else on the screen: what a program on a terminal of its own draws.
    Raw,
    /// stdout to stdout and stderr to stderr, byte for byte: `exec`.
    Through,
    /// Both to stderr, above the bar: `profile`.
    Beside,
    /// Nowhere: `--quiet`, or `--json` without `-v`.
    Hidden,
}

/// The terminal's reporter.
pub(super) struct Progress {
    bar: ProgressBar,
    live: LiveOutput,
    quiet: bool,
    terminal: Terminal,
    phase: String,
    silence: Arc<Mutex<SilenceWatch>>,
    ticker: Option<tokio::task::JoinHandle<()>>,
    /// Streams whose loss of output was told.
    cut: Vec<(String, Stream)>,
    /// Where the program's output goes; `None`: beside what is said.
    program_output: Option<ProgramOutput>,
    /// What a compiler says, until it is known whether that is the failure's own words.
    compiler: Option<Vec<u8>>,
    /// What stands before each line: nothing, or the remote where there are several at once.
    lead: String,
}

/// One of several runs at once: its line on the terminal.
#[derive(Clone, Debug)]
pub(super) struct ProgressRow {
    bar: ProgressBar,
    lead: String,
}

impl ProgressRow {
    /// A line each for runs on these remotes.
    pub(super) fn each<'a>(
        terminal: Terminal,
        quiet: bool,
        remotes: impl Iterator<Item = &'a str> + Clone,
    ) -> Vec<Self> {
        let all = MultiProgress::with_draw_target(match quiet || !terminal.stderr_tty {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr_with_hz(12),
        });
        let width = remotes.clone().map(|remote| remote.chars().count()).max().unwrap_or(0);
        remotes
            .map(|remote| Self {
                bar: all.add(ProgressBar::new_spinner()),
                lead: format!("{remote:width$}  "),
            })
            .collect()
    }
}

/// What the silent-step watch knows.
struct SilenceWatch {
    step: String,
    since: Instant,
    last_line: String,
    was_reported: bool,
}

impl Progress {
    /// A reporter for this terminal; `row`: for its line among several.
    pub(super) fn new(
        terminal: Terminal,
        live: LiveOutput,
        quiet: bool,
        canceller: Canceller,
        row: Option<&ProgressRow>,
    ) -> Self {
        // Shown nowhere at first: it draws with all that is set of it.
        let hidden = || ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let bar = row.map_or_else(hidden, |row| row.bar.clone());
        let lead = row.map(|row| row.lead.clone()).unwrap_or_default();
        bar.set_prefix(lead.clone());
        bar.set_style(spinner());
        if row.is_some() {
            bar.enable_steady_tick(Duration::from_millis(120));
        } else if quiet || !terminal.stderr_tty || live == LiveOutput::Raw {
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
        }));
        let (phase, ticker, cut) = (String::new(), None, Vec::new());
        let look = match live {
            LiveOutput::Raw => Some(OutputStyle::Raw),
            LiveOutput::Through => Some(OutputStyle::Safe),
            LiveOutput::Beside | LiveOutput::Hidden => None,
        };
        let program_output =
            look.map(|look| ProgramOutput::new(terminal, look, bar.clone(), canceller));
        let compiler = None;
        Self {
            bar,
            live,
            quiet,
            terminal,
            phase,
            silence,
            ticker,
            cut,
            program_output,
            compiler,
            lead,
        }
    }

    /// Where the program's output goes, if it goes through this process's own streams.
    pub(super) fn outlet(&self) -> Option<ProgramOutput> {
        self.program_output.clone()
    }

    /// Its bar, for those who write to the terminal beside it.
    pub(super) fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// A phase, said once as a line where there is no bar.
    fn phase(&mut self, text: String) {
        if self.phase == text {
            return;
        }
        // The stderr of `exec` is the program's.
        if !self.quiet
            && !self.terminal.stderr_tty
            && !matches!(self.live, LiveOutput::Through | LiveOutput::Raw)
        {
            talk(&format!("{}{text}\n", self.lead));
        }
        self.bar.set_style(spinner());
        self.bar.set_message(text.clone());
        self.phase = text;
    }

    /// A line that stays. Words of a host may hold more lines: none begins like one of ours.
    fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        let text = inset(text, 4);
        self.bar.suspend(|| talk(&format!("{}{text}\n", self.lead)));
    }

    fn transfer(&mut self, verb: &str, done: u64, total: u64) {
        if total < 64 << 10 {
            return;
        }
        if !self.phase.starts_with(verb) {
            self.phase(format!("{verb} {}", show_bytes(total as f64)));
            self.bar.set_style(transfer_style());
            self.bar.set_length(total);
        }
        self.bar.set_position(done);
    }

    fn output(&mut self, step: &str, stream: Stream, bytes: &[u8], recorded: LogPosition<'_>) {
        {
            let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
            silence.since = Instant::now();
            silence.was_reported = false;
            silence.step = step.to_owned();
            // The last line is in the last bytes: output may come at hundreds of megabytes a second.
            let end = &bytes[bytes.len().saturating_sub(4096)..];
            if let Some(line) =
                String::from_utf8_lossy(end).lines().rev().find(|l| !l.trim().is_empty())
            {
                silence.last_line = line.chars().take(120).collect();
            }
        }
        // What is prepared before the program talks beside it.
        match &self.program_output {
            Some(program_output) if step == crate::run::EXEC_STEP => {
                program_output.take(stream, bytes, recorded);
            }
            _ if self.live == LiveOutput::Hidden => {}
            _ => match &mut self.compiler {
                Some(held) if is_build(step) => {
                    held.extend_from_slice(bytes);
                    // More than a failure can say: it is shown as it comes.
                    if held.len() > MAX_HELD_BYTES || filled_lines(held) > MAX_CAUSE_LINES {
                        self.show_compiler();
                    }
                }
                _ => self.beside(bytes),
            },
        }
    }

    /// Output beside what is said.
    fn beside(&self, bytes: &[u8]) {
        self.bar.suspend(|| {
            let mut err = std::io::stderr().lock();
            let _ = match self.terminal.stderr_tty && self.live != LiveOutput::Raw {
                true => err.write_all(safe(bytes).as_bytes()),
                false => err.write_all(bytes),
            };
        });
    }

    /// Shows what a compiler said.
    fn show_compiler(&mut self) {
        if let Some(bytes) = self.compiler.take() {
            self.beside(&bytes);
        }
    }

    /// A compiler has ended: whether the failure says all that it said.
    fn is_told(&mut self, record: &RungRecord) -> bool {
        let told = record.code == "does_not_compile" && self.compiler.is_some();
        match told {
            true => self.compiler = None,
            false => self.show_compiler(),
        }
        told
    }

    fn event(&mut self, event: &Event) {
        match &event.body {
            EventBody::Queued { place, holder } => {
                self.phase(format!(
                    "waiting for the GPU: place {place}, held by {}",
                    safe(holder.as_bytes())
                ));
            }
            EventBody::StepStarted { step, title } => {
                let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
                *silence = SilenceWatch {
                    step: step.clone(),
                    since: Instant::now(),
                    last_line: String::new(),
                    was_reported: false,
                };
                drop(silence);
                if !matches!(self.live, LiveOutput::Through | LiveOutput::Raw) {
                    self.phase(safe(title.as_bytes()));
                }
            }
            EventBody::RungStarted { step, .. } if is_build(step) => {
                self.compiler = Some(Vec::new());
            }
            EventBody::RungEnded(record) if is_build(&record.step) && self.is_told(record) => {}
            // What was passed over for want of a file was not tried.
            EventBody::RungEnded(record)
                if !record.ok
                    && record.code != "missing"
                    && !matches!(self.live, LiveOutput::Through | LiveOutput::Raw) =>
            {
                let words = if record.words.is_empty() {
                    String::new()
                } else {
                    format!(": {}", record.words)
                };
                self.line(&format!(
                    "  {} did not work ({}{})",
                    record.rung,
                    record.code,
                    safe(words.as_bytes())
                ));
            }
            EventBody::Warning { text, .. } => {
                self.line(&format!("warning: {}", safe(text.as_bytes())))
            }
            EventBody::OutputDropped { step, stream, .. } => {
                let which = (step.clone(), *stream);
                // It comes again with the sum.
                if !self.cut.contains(&which) {
                    self.cut.push(which);
                    self.line(&format!(
                        "warning: {} of step `{}` has reached `--log-limit`; the rest is dropped",
                        stream.as_str(),
                        safe(step.as_bytes())
                    ));
                }
            }
            EventBody::Ended { .. } => {
                self.silence.lock().unwrap_or_else(PoisonError::into_inner).was_reported = true;
            }
            _ => {}
        }
    }

    /// Starts the watch over silent steps, once a runtime is there.
    fn watch(&mut self) {
        if self.ticker.is_some() || self.quiet || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let silence = Arc::clone(&self.silence);
        let (bar, lead) = (self.bar.clone(), self.lead.clone());
        self.ticker = Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(5)).await;
                let mut s = silence.lock().unwrap_or_else(PoisonError::into_inner);
                if !s.was_reported && s.since.elapsed() >= SILENCE_NOTICE_AFTER {
                    s.was_reported = true;
                    let last = if s.last_line.is_empty() {
                        String::new()
                    } else {
                        format!("; its last line: {}", safe(s.last_line.as_bytes()))
                    };
                    let text = format!(
                        "{lead}step `{}` has been silent for a minute{last}\n",
                        safe(s.step.as_bytes())
                    );
                    bar.suspend(|| talk(&text));
                }
            }
        }));
    }
}

impl Reporter for Progress {
    fn say(&mut self, event: &RunEvent<'_>) {
        match event {
            RunEvent::Where { remote, address, .. } => {
                self.watch();
                // The stderr of `exec` is the program's, but no command goes to another host
                // unsaid.
                let program_only = matches!(self.live, LiveOutput::Through | LiveOutput::Raw);
                let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
                if !(program_only && *address == LOCAL) && named.insert((*remote).to_owned()) {
                    let more =
                        if address == remote { String::new() } else { format!(" ({address})") };
                    self.line(&safe(format!("on {remote}{more}").as_bytes()));
                }
            }
            RunEvent::Connecting {} => self.bar.set_message("connecting"),
            RunEvent::Starting { what } => self.phase((*what).to_owned()),
            RunEvent::Asking {} => self.phase("asking the host what it has".to_owned()),
            RunEvent::Compiling { what } => self.phase(format!("compiling {what}")),
            // The step's own line was said; what moves is for the bar alone.
            RunEvent::Disassembling { done, total } => {
                self.bar.set_message(format!("disassemble with nvdisasm: {done} of {total}"));
            }
            RunEvent::Uploading { sent, total } => self.transfer("uploading", *sent, *total),
            RunEvent::Fetching { got, total, .. } => self.transfer("fetching", *got, *total),
            RunEvent::Job { event, .. } => self.event(event),
            RunEvent::Output { step, stream, bytes, recorded, .. } => {
                self.output(step, *stream, bytes, *recorded);
            }
            RunEvent::LinkLost { why } => {
                self.show_compiler();
                self.line(&format!("the link was lost ({why}); the job goes on, reconnecting"))
            }
            RunEvent::LinkBack {} => self.line("the link is back"),
            RunEvent::Refused { rung, code, text } => {
                self.line(&format!("  {rung} gave nothing to believe ({code}: {text})"))
            }
            RunEvent::Note { text } => self.line(text),
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

fn filled_lines(bytes: &[u8]) -> usize {
    bytes.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()).count()
}

/// Writes to stderr; a closed stderr is nobody's failure.
fn talk(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

fn spinner() -> ProgressStyle {
    ProgressStyle::with_template("{prefix}{spinner} {msg} {elapsed:.dim}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn transfer_style() -> ProgressStyle {
    ProgressStyle::with_template(
        "{prefix}{spinner} {msg} {bar:24} {bytes}/{total_bytes} {bytes_per_sec}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar())
}
