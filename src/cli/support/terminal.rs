//! Detects what the terminal can do, and writes to it.
//!
//! stdout carries data, stderr messages. `has_color` alone decides on colours. All that rgpu writes
//! goes through this file, because any text may contain words of a host, a project or a file:
//! everything but newlines and, where colours are shown, the SGR sequences that rgpu itself writes
//! is escaped, also in a pipe, whose reader may be a pager. `--out FILE` keeps the bytes. Only the
//! output of the user's own program goes unchanged into pipes, and keeps all its colours on a
//! terminal ([`write_program_output`] and `program_output.rs`).

use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use clap::ColorChoice;
use rgpu_protocol::plan::{Stdin, reorders_text};

use super::log;
use rgpu_model::error::{Exit, Failure};
use rgpu_report::own_mark;

/// The first error of a write to stdout, other than a closed pipe.
static WRITE_ERROR: OnceLock<String> = OnceLock::new();

/// The value of `--color`. Failures before the command line is parsed have no
/// [`App`](super::app::App).
static COLOR: Mutex<ColorChoice> = Mutex::new(ColorChoice::Auto);

/// Records `--color`, for [`Terminal::detect`].
pub(in crate::cli) fn choose_color(choice: ColorChoice) {
    *COLOR.lock().unwrap_or_else(PoisonError::into_inner) = choice;
}

/// Whether a stream shows colours. `--color` decides; then, in this order, `NO_COLOR`,
/// `CLICOLOR_FORCE`, `CLICOLOR`, and whether the stream is a terminal.
fn has_color(
    choice: ColorChoice,
    is_terminal: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> bool {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    let is_zero = |name| variable(name).is_some_and(|value| value == "0");
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto if is_set("NO_COLOR") => false,
        ColorChoice::Auto if variable("TERM").is_some_and(|term| term == "dumb") => false,
        ColorChoice::Auto if is_set("CLICOLOR_FORCE") && !is_zero("CLICOLOR_FORCE") => true,
        ColorChoice::Auto => is_terminal && !is_zero("CLICOLOR"),
    }
}

/// Whether a stream of this process shows colours.
fn shows_color(is_terminal: bool) -> bool {
    let choice = *COLOR.lock().unwrap_or_else(PoisonError::into_inner);
    has_color(choice, is_terminal, |name| std::env::var_os(name))
}

/// A text with the colours of rgpu itself where they are shown.
fn escape_for(bytes: &[u8], shows_color: bool) -> String {
    if shows_color {
        escape(bytes, |parameters| parameters.strip_prefix(own_mark()))
    } else {
        escape_controls(bytes)
    }
}

/// Writes data to stdout through [`Stdout`] and returns whether that worked. A failure is
/// kept for [`check_output_written`].
pub(in crate::cli) fn write_out(bytes: &[u8]) -> bool {
    Stdout.write_all(bytes).map_err(|error| record_write_error(&error)).is_ok()
}

/// Writes the output of the user's own program to stdout: unchanged into files and pipes, and to a
/// terminal through [`escape_but_colors`].
pub(in crate::cli) fn write_program_output(bytes: &[u8]) {
    static IS_TERMINAL: LazyLock<bool> = LazyLock::new(|| io::stdout().is_terminal());
    let written = if *IS_TERMINAL {
        write_and_flush(escape_but_colors(bytes).as_bytes())
    } else {
        write_and_flush(bytes)
    };
    if let Err(error) = written {
        record_write_error(&error);
    }
}

fn write_and_flush(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// stdout as a writer that flushes each write. It escapes everything but rgpu's own colours, where
/// they are shown.
pub(in crate::cli) struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nearly all output is such text, and some of it is large.
        let is_harmless = |b: &u8| matches!(b, b'\n' | b'\t' | 0x20..=0x7e);
        if bytes.iter().all(is_harmless) {
            write_and_flush(bytes)?;
        } else {
            let text = escape_for(bytes, shows_color(io::stdout().is_terminal()));
            write_and_flush(text.as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that [`BufferedStdout`] collects before it writes them.
const OUT_BUFFER_BYTES: usize = 64 << 10;

/// Collects the small pieces of a document for [`Stdout`], which must get whole characters.
#[derive(Default)]
pub(in crate::cli) struct BufferedStdout(Vec<u8>);

impl BufferedStdout {
    /// Writes what is left.
    pub(in crate::cli) fn finish(self) -> io::Result<()> {
        Stdout.write_all(&self.0)
    }
}

impl Write for BufferedStdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        if self.0.len() >= OUT_BUFFER_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let whole_len = self.0.len() - incomplete_tail_len(&self.0);
        Stdout.write_all(&self.0[..whole_len])?;
        self.0.drain(..whole_len);
        Ok(())
    }
}

/// Writes a text to stderr. Everything but rgpu's own colours, where they are shown, is escaped. A
/// failure is ignored: there is no place left to report it.
pub(in crate::cli) fn write_stderr(text: &str) {
    let text = escape_for(text.as_bytes(), shows_color(io::stderr().is_terminal()));
    write_stderr_unchanged(text.as_bytes());
}

/// Writes bytes to stderr as they are: for a pipe, or a terminal that the program owns.
pub(in crate::cli) fn write_stderr_unchanged(bytes: &[u8]) {
    let _ = io::stderr().lock().write_all(bytes);
}

/// Keeps the first failure to write to stdout. A closed pipe (`| head`) does not count.
pub(in crate::cli) fn record_write_error(error: &std::io::Error) {
    if error.kind() != ErrorKind::BrokenPipe {
        WRITE_ERROR.get_or_init(|| error.to_string());
    }
}

/// Checks that everything was written to stdout.
pub(in crate::cli) fn check_output_written() -> Result<(), Failure> {
    match WRITE_ERROR.get() {
        None => Ok(()),
        Some(why) => {
            Err(Failure::new(Exit::Disk, "unwritten", format!("cannot write output: {why}")))
        }
    }
}

/// The abilities of the process's streams.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Terminal {
    /// Whether stdout is a terminal.
    pub stdout_tty: bool,
    /// Whether stderr is a terminal.
    pub stderr_tty: bool,
    /// Whether bars are drawn: on a terminal, unless the lines of a log would tear them.
    pub has_bars: bool,
    /// Whether stdout shows colours.
    pub stdout_color: bool,
    /// Whether stderr shows colours.
    pub stderr_color: bool,
    /// Columns, 80 if unknown, at least 40.
    pub width: usize,
    /// Columns given by `COLUMNS`, if it is set and stdout is a terminal. A shell may export it to
    /// every program, so in a pipe nobody has asked for it.
    pub columns: Option<usize>,
}

impl Terminal {
    /// Reads the process's streams and environment.
    pub(in crate::cli) fn detect() -> Self {
        let stdout_tty = std::io::stdout().is_terminal();
        let stderr_tty = std::io::stderr().is_terminal();
        let columns: Option<usize> = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
        let width = columns.or_else(terminal_width);
        let columns = columns.filter(|_| stdout_tty);
        Self {
            stdout_tty,
            stderr_tty,
            has_bars: stderr_tty && !log::is_running(),
            stdout_color: shows_color(stdout_tty),
            stderr_color: shows_color(stderr_tty),
            width: width.unwrap_or(80).max(40),
            columns,
        }
    }
}

#[cfg(unix)]
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout())
        .or_else(|_| rustix::termios::tcgetwinsize(std::io::stderr()))
        .ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(not(unix))]
fn terminal_width() -> Option<usize> {
    None
}

/// The mode of the terminal before it was switched to raw mode; `None` if it is not.
static ORIGINAL_MODE: Mutex<Option<rustix::termios::Termios>> = Mutex::new(None);

/// Restores the terminal's mode if it was switched to raw mode. A process that ends without its
/// destructors calls this.
pub(in crate::cli) fn restore_mode() {
    let original = ORIGINAL_MODE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(original) = original {
        let now = rustix::termios::OptionalActions::Now;
        // A terminal that is gone needs no restoring.
        let _ = rustix::termios::tcsetattr(std::io::stdin(), now, &original);
    }
}

/// This terminal in raw mode, as a program on a host needs it: each key is sent as it is typed.
/// Dropping it restores the old mode.
#[derive(Debug)]
pub(in crate::cli) struct RawTerminal {
    rows: u16,
    cols: u16,
}

impl RawTerminal {
    /// Switches the terminal of standard input, if there is one, to raw mode.
    pub(in crate::cli) fn enter() -> Result<Self, Failure> {
        use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr};
        let stdin = std::io::stdin();
        let size = tcgetwinsize(&stdin).or_else(|_| tcgetwinsize(std::io::stdout()));
        let (rows, cols) =
            size.map(|s| (s.ws_row, s.ws_col)).ok().filter(|s| s.0 > 0).unwrap_or((24, 80));
        let Ok(original) = tcgetattr(&stdin) else {
            return Ok(Self { rows, cols });
        };
        let mut raw = original.clone();
        raw.make_raw();
        *ORIGINAL_MODE.lock().unwrap_or_else(PoisonError::into_inner) = Some(original);
        tcsetattr(&stdin, OptionalActions::Now, &raw).map_err(|e| {
            Failure::new(Exit::Bug, "terminal", "the terminal cannot be switched").cause(e)
        })?;
        Ok(Self { rows, cols })
    }

    /// The terminal as a plan describes it.
    pub(in crate::cli) fn as_stdin(&self) -> Stdin {
        Stdin::Terminal { rows: self.rows, cols: self.cols }
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore_mode();
    }
}

/// Foreign bytes as text that cannot harm a terminal. Newlines stay (a carriage return before one
/// is dropped); other control characters become `\u001b` and the like, so that JSON stays JSON:
/// there they occur in strings only.
pub(in crate::cli) fn escape_controls(bytes: &[u8]) -> String {
    escape(bytes, |_| None)
}

/// As [`escape_controls`], for a text with colours of rgpu's own. They keep their mark, by which
/// they are known when the text is written.
pub(in crate::cli) fn escape_but_own_colors(bytes: &[u8]) -> String {
    escape(bytes, |parameters| parameters.starts_with(own_mark()).then_some(parameters))
}

/// As [`escape_controls`], for the output of a program: its colours stay. What would hide text does
/// not.
pub(in crate::cli) fn escape_but_colors(bytes: &[u8]) -> String {
    escape(bytes, |parameters| (!conceals(parameters)).then_some(parameters))
}

/// Whether an SGR sequence hides text. The numbers after 38, 48 and 58 are of a colour.
fn conceals(parameters: &str) -> bool {
    let mut numbers = parameters.split([';', ':']).map(|number| number.trim_start_matches('0'));
    while let Some(number) = numbers.next() {
        match number {
            "8" => return true,
            "38" | "48" | "58" => {
                let further = match numbers.next() {
                    Some("5") => 1,
                    Some("2") => 3,
                    _ => 0,
                };
                numbers.by_ref().take(further).for_each(drop);
            }
            _ => {}
        }
    }
    false
}

/// The text with everything escaped but the SGR sequences that `shown` has parameters for.
fn escape(bytes: &[u8], shown: impl for<'t> Fn(&'t str) -> Option<&'t str>) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_ref();
    while let Some(c) = rest.chars().next() {
        // Without the `ESC[` and the `m`.
        if let Some(len) = sgr_len(rest)
            && let Some(parameters) = shown(&rest[2..len - 1])
        {
            out.push_str("\u{1b}[");
            out.push_str(parameters);
            out.push('m');
            rest = &rest[len..];
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            '\n' | '\t' => out.push(c),
            '\r' if rest.starts_with('\n') => {}
            '\r' => out.push_str("\\r"),
            // All of them have four digits.
            c if c.is_control() || is_bidi(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// How many bytes at the end belong to something incomplete that [`escape_but_colors`] must get in
/// one piece: a character, a colour sequence, a line end.
pub(in crate::cli) fn incomplete_tail_len(bytes: &[u8]) -> usize {
    const MAX_SEQUENCE_BYTES: usize = 32;
    if bytes.ends_with(b"\r") {
        return 1;
    }
    let from = bytes.len().saturating_sub(MAX_SEQUENCE_BYTES);
    if let Some(at) = bytes[from..].iter().rposition(|b| *b == 0x1b) {
        let tail = &bytes[from + at..];
        let inner = tail.get(2..).unwrap_or_default();
        let is_parameter = |b: &u8| b.is_ascii_digit() || matches!(b, b';' | b':');
        if matches!(tail.get(1), None | Some(b'[')) && inner.iter().all(is_parameter) {
            return tail.len();
        }
    }
    // A character has at most four bytes.
    let from = bytes.len().saturating_sub(3);
    match str::from_utf8(&bytes[from..]) {
        Ok(_) => 0,
        Err(_) => {
            let start = bytes[from..].iter().rposition(|b| b & 0xc0 != 0x80);
            start.map_or(0, |at| {
                let tail = &bytes[from + at..];
                let is_invalid = str::from_utf8(tail).is_err_and(|e| e.error_len().is_some());
                if is_invalid || str::from_utf8(tail).is_ok() { 0 } else { tail.len() }
            })
        }
    }
}

/// The text without SGR sequences.
pub(in crate::cli) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let len = sgr_len(rest).unwrap_or_else(|| {
            out.push(c);
            c.len_utf8()
        });
        rest = &rest[len..];
    }
    out
}

/// Length of the SGR sequence at the start of `text`.
fn sgr_len(text: &str) -> Option<usize> {
    let inner = text.strip_prefix("\u{1b}[")?;
    let end = inner.find(|c: char| !(c.is_ascii_digit() || c == ';' || c == ':'))?;
    inner[end..].starts_with('m').then_some(2 + end + 1)
}

/// Whether a character may change the order of the text around it. The two marks are invisible and
/// belong to names of files in Hebrew and Arabic, so they are shown escaped but not refused.
pub(in crate::cli) fn is_bidi(c: char) -> bool {
    reorders_text(c) || matches!(c, '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stay_and_everything_else_is_shown_escaped() {
        let red = b"\x1b[31mred\x1b[0m\r\n";
        assert_eq!(escape_but_colors(red), "\u{1b}[31mred\u{1b}[0m\n");
        for shown in [
            escape_but_own_colors(red),
            escape_for(red, true),
            escape_for(red, false),
            escape_controls(red),
        ] {
            assert_eq!(shown, "\\u001b[31mred\\u001b[0m\n");
        }
        assert_eq!(escape_controls(b"\x1b]0;title\x07"), "\\u001b]0;title\\u0007");
        assert_eq!(escape_controls(b"\x1b[2J"), "\\u001b[2J");
        assert_eq!(escape_controls(b"50%\r100%"), "50%\\r100%");
        assert_eq!(escape_controls("a\u{202e}b".as_bytes()), "a\\u202eb");
        assert_eq!(escape_controls(b"\xff"), "\u{fffd}");
        // A document is still the same document.
        let document = serde_json::json!({ "a\u{9b}\u{7f}": "\r\n\u{1b}[1m\u{202e}\u{7}" });
        let shown = escape_controls(serde_json::to_string_pretty(&document).unwrap().as_bytes());
        assert!(!shown.contains(|c: char| c != '\n' && (c.is_control() || is_bidi(c))), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), document);
    }

    #[test]
    fn only_the_colours_of_rgpu_and_of_the_users_program_stay() {
        use rgpu_report::Style;
        let style = Style { color: true, ..Style::default() };
        // A name may hold the very sequence that rgpu writes.
        let painted = style.paint("1;31", "SLOWER \u{1b}[1;31mname\u{1b}[0m");
        let shown = "\u{1b}[1;31mSLOWER \\u001b[1;31mname\\u001b[0m\u{1b}[0m";
        assert_eq!(escape_for(painted.as_bytes(), true), shown);
        // Also if it is escaped once more.
        let escaped = escape_but_own_colors(painted.as_bytes());
        assert_eq!(escape_for(escaped.as_bytes(), true), shown);
        let page = rgpu_report::mark_own_colors("\u{1b}[1mUsage\u{1b}[0m");
        assert_eq!(escape_for(page.as_bytes(), true), "\u{1b}[1mUsage\u{1b}[0m");
        for foreign in ["0", "1;31", "8", "38;5;1", "30;48;5;159", "30;48;5;1;8", "7", "1;8", "01"]
        {
            let text = format!("\u{1b}[{foreign}mx");
            let shown = format!("\\u001b[{foreign}mx");
            assert_eq!(escape_but_own_colors(text.as_bytes()), shown);
            let kept = if conceals(foreign) { &shown } else { &text };
            assert_eq!(&escape_but_colors(text.as_bytes()), kept);
        }
        for (parameters, hides) in [
            ("8", true),
            ("08", true),
            ("1;8", true),
            ("38;5;1;8", true),
            ("38;5;8", false),
            ("48;2;8;8;8", false),
            ("38:5:8", false),
            ("28", false),
            ("", false),
        ] {
            assert_eq!(conceals(parameters), hides, "{parameters}");
        }
    }

    #[test]
    fn the_flag_decides_on_colours_before_the_variables_and_these_before_the_terminal() {
        use ColorChoice::{Always, Auto, Never};
        let cases: &[(ColorChoice, bool, &[(&str, &str)], bool)] = &[
            (Auto, true, &[], true),
            (Auto, false, &[], false),
            (Auto, true, &[("NO_COLOR", "1")], false),
            (Auto, true, &[("NO_COLOR", "")], true),
            (Auto, true, &[("CLICOLOR", "0")], false),
            (Auto, false, &[("CLICOLOR", "1")], false),
            (Auto, false, &[("CLICOLOR_FORCE", "1"), ("CLICOLOR", "0")], true),
            (Auto, false, &[("CLICOLOR_FORCE", "0")], false),
            (Auto, false, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], false),
            (Auto, true, &[("TERM", "dumb")], false),
            (Always, false, &[("NO_COLOR", "1"), ("TERM", "dumb")], true),
            (Never, true, &[("CLICOLOR_FORCE", "1")], false),
        ];
        for (choice, is_terminal, variables, expected) in cases {
            let value = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            let shown = has_color(*choice, *is_terminal, value);
            assert_eq!(shown, *expected, "{choice} {is_terminal} {variables:?}");
        }
    }

    #[test]
    fn what_is_cut_in_the_middle_waits_for_its_rest() {
        let cases: &[(&[u8], usize)] = &[
            (b"plain", 0),
            (b"", 0),
            ("a\u{20ac}".as_bytes(), 0),
            (b"a\xe2\x82", 2),
            (b"a\xf0\x9f\x98", 3),
            (b"\xc3", 1),
            (b"\xff", 0),
            (b"\x80\x80\x80\x80", 0),
            (b"red\x1b", 1),
            (b"red\x1b[3", 3),
            (b"red\x1b[31m", 0),
            (b"red\x1b]0;", 0),
            (b"50%\r", 1),
        ];
        for (bytes, held) in cases {
            assert_eq!(incomplete_tail_len(bytes), *held, "{}", bytes.escape_ascii());
        }
    }
}
