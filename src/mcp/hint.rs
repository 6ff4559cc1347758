//! Failures of commands in the words of an agent: flags become arguments of the tool, what the tool does
//! not take becomes one complete command line, and the folder of a call's files is not named, since it
//! is removed.

use crate::error::{Failure, shell_word};

use super::tool;

/// Flags by which a person agrees to something.
const CONSENT: &[&str] = &["--yes", "--accept-new", "--force", "--fresh"];

/// Flags that the server adds to a command.
const OWN_FLAGS: &[&str] = &["--json", "--run-id", "--mount"];

/// Where the files of a call lie, in any user's cache.
const SENT_FILES: &str = "/mcp/files-";

/// The longest command line in a hint, in bytes.
const MAX_LINE_BYTES: usize = 1000;

/// Commands that a tool can do.
const AS_CALLS: &[(&str, &str)] = &[
    ("rgpu remote list", r#"hosts {"action": "list"}"#),
    ("rgpu runs list", r#"runs {"action": "list"}"#),
    ("rgpu compare RUN RUN", r#"compare {"runs": ["RUN", "RUN"]}"#),
    (
        "rgpu profile --kernel K --section SourceCounters",
        r#"profile {"kernel": "K", "mode": "ncu", "set": "full"}"#,
    ),
];

/// A failure of the command `argv`, for an agent that called a tool.
pub(super) fn for_agent(mut failure: Failure, argv: &[String]) -> Failure {
    let names_sent_files = |text: &String| text.contains(SENT_FILES);
    let mut texts = failure.hints.iter().chain(argv).chain(&failure.cause);
    let has_sent_files = names_sent_files(&failure.what) || texts.any(names_sent_files);
    let command = Command::new(argv);
    let hints = failure.hints.iter().map(|hint| without_sent_folder(&command.translate(hint)));
    failure.hints = hints.collect();
    failure.what = without_sent_folder(&failure.what);
    failure.cause = failure.cause.map(|cause| without_sent_folder(&cause));
    if has_sent_files && failure.hints.iter().any(|hint| hint.contains("`rgpu ")) {
        failure = failure.hint(
            "the files of a call are removed after it: for such a command put them into the \
             project first, or send what it would write in `files`",
        );
    }
    failure
}

/// The hints, and whom they need, if they name a flag by which a person agrees.
pub(super) fn with_consent(mut hints: Vec<String>) -> Vec<String> {
    if hints.iter().any(|hint| CONSENT.iter().any(|flag| hint.contains(flag))) {
        hints.push("this needs your user: show them the command, and why it is needed".to_owned());
    }
    hints
}

/// The command whose hints are translated.
struct Command<'a> {
    /// Its words as a user would type them, without `rgpu`.
    words: Vec<&'a str>,
    /// The arguments of the tool with the command's name.
    fields: Vec<String>,
}

impl<'a> Command<'a> {
    fn new(argv: &'a [String]) -> Self {
        let end = argv.iter().position(|word| word == "--").unwrap_or(argv.len());
        let (own, program) = argv.split_at(end);
        let own = own.strip_prefix(&["rgpu".to_owned()]).unwrap_or(own);
        let is_typed = |word: &&String| !OWN_FLAGS.contains(&flag_of(word));
        let words = own.iter().filter(is_typed).chain(program);
        let words: Vec<&str> = words.map(String::as_str).collect();
        let fields = words.first().and_then(|name| tool::find(name)).map(|tool| (tool.input)());
        let fields = fields.as_ref().and_then(|input| input["properties"].as_object());
        let fields = fields.map(|fields| fields.keys().cloned().collect()).unwrap_or_default();
        Self { words, fields }
    }

    fn translate(&self, hint: &str) -> String {
        let build = self.building().map(|line| format!("`{line}`"));
        let hint = match build {
            Some(build) => hint.replace("`rgpu build` with `--yes`", &build),
            None => hint.to_owned(),
        };
        // Commands and flags stand between backticks.
        let parts: Vec<&str> = hint.split('`').collect();
        if parts.len().is_multiple_of(2) {
            return hint;
        }
        let parts = parts.iter().enumerate().map(|(at, part)| match at % 2 {
            1 => self.code(part),
            _ => (*part).to_owned(),
        });
        parts.collect::<Vec<_>>().join("`")
    }

    /// A command or flag of a hint.
    fn code(&self, code: &str) -> String {
        if let Some((_, call)) = AS_CALLS.iter().find(|(line, _)| *line == code) {
            return (*call).to_owned();
        }
        if !code.starts_with("--") || self.words.is_empty() {
            return code.to_owned();
        }
        let (flag, value) = code.split_once([' ', '=']).unwrap_or((code, ""));
        let name = flag.trim_start_matches('-').replace('-', "_");
        let names = match name.as_str() {
            "" => ["program".to_owned(), "argv".to_owned()],
            "problem_sizes" => ["sizes".to_owned(), name],
            // `compare` takes two kernels.
            _ => [name.clone(), format!("{name}s")],
        };
        if let Some(field) = names.into_iter().find(|name| self.fields.contains(name)) {
            return if value.is_empty() { field } else { format!("{field}: {value}") };
        }
        if flag == "--" {
            return code.to_owned();
        }
        // Tools that take whole words take flags, too.
        let takes_words = self.fields.is_empty() || self.fields.iter().any(|f| f == "arguments");
        if takes_words && !CONSENT.contains(&flag) {
            return code.to_owned();
        }
        let line = match (flag, self.words.first()) {
            ("--yes", Some(&"build")) => self.building(),
            _ => Some(self.with_flag(code)),
        };
        line.filter(|line| line.len() <= MAX_LINE_BYTES).unwrap_or_else(|| code.to_owned())
    }

    /// The whole command line with one more flag.
    fn with_flag(&self, flag: &str) -> String {
        let end = self.words.iter().position(|word| *word == "--").unwrap_or(self.words.len());
        let (own, program) = self.words.split_at(end);
        let typed = |words: &[&str]| words.iter().map(shell_word).collect::<Vec<_>>();
        let own = typed(own);
        let words = [vec!["rgpu".to_owned()], own, vec![flag.to_owned()], typed(program)];
        words.concat().join(" ")
    }

    /// The command that compiles the same kernel, and may fetch a compiler.
    fn building(&self) -> Option<String> {
        let value = |flag: &str| {
            let mut words = self.words.iter().take_while(|word| **word != "--");
            words.find(|word| flag_of(word) == flag)?.split_once('=').map(|(_, value)| value)
        };
        let file = || self.words.get(1).copied().filter(|word| !word.starts_with('-'));
        let kernel = shell_word(value("--kernel").or_else(file)?);
        let remote = value("--remote").map(|name| format!(" --remote {}", shell_word(name)));
        Some(format!("rgpu build {kernel}{} --yes", remote.unwrap_or_default()))
    }
}

/// The name of a flag without its value.
fn flag_of(word: &str) -> &str {
    word.split('=').next().unwrap_or_default()
}

/// The text without the path of the folder with a call's files, so that a file has the name under which
/// the client sent it.
fn without_sent_folder(text: &str) -> String {
    let mut rest = text;
    let mut clean = String::new();
    while let Some(at) = rest.find(SENT_FILES) {
        let is_end = |c: char| c.is_whitespace() || matches!(c, '`' | '\'' | '"' | '=' | ':' | ',');
        let start = rest[..at]
            .rfind(is_end)
            .map_or(0, |before| before + rest[before..].chars().next().map_or(1, char::len_utf8));
        let inner = &rest[at + SENT_FILES.len()..];
        let end = inner.find(|c| c == '/' || is_end(c)).unwrap_or(inner.len());
        clean.push_str(&rest[..start]);
        rest = match inner[end..].strip_prefix('/') {
            Some(file) => file,
            None => {
                clean.push('.');
                &inner[end..]
            }
        };
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Exit;

    fn translated(argv: &[&str], hint: &str) -> Vec<String> {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        for_agent(Failure::new(Exit::Usage, "x", "x").hint(hint), &argv).hints
    }

    #[test]
    fn flags_become_arguments_or_one_complete_command_line() {
        for (argv, hint, expected) in [
            (
                &["build", "--kernel=vecadd", "--remote=local", "--run-id=x"][..],
                "`--yes` fetches nvcc once",
                "`rgpu build vecadd --remote local --yes` fetches nvcc once",
            ),
            (
                &["rgpu", "--json", "profile", "--kernel=my k", "--mode=ncu"],
                "`rgpu build` with `--yes` fetches NVIDIA's nvcc once",
                "`rgpu build 'my k' --yes` fetches NVIDIA's nvcc once",
            ),
            (
                &["compare", "a", "b"],
                "use `--force` to compare them anyway",
                "use `rgpu compare a b --force` to compare them anyway",
            ),
            (
                &["exec", "--timeout=1s", "--", "sleep", "9"],
                "raise the limit with `--timeout 30m`",
                "raise the limit with `timeout: 30m`",
            ),
            (
                &["profile", "--kernel=k"],
                "`--remote NAME`; `rgpu remote list` shows those; `--section X`",
                "`remote: NAME`; `hosts {\"action\": \"list\"}` shows those; \
                 `rgpu profile '--kernel=k' --section X`",
            ),
            (&["profile", "--kernel=k"], "`--problem-sizes`", "`sizes`"),
            (&["compare", "a", "b"], "`--kernel` twice", "`kernels` twice"),
            (&["profile", "--kernel=k"], "programs after `--`", "programs after `program`"),
            (&["bench", "run"], "try `--level sol`", "try `--level sol`"),
            (&["bench", "run"], "`--yes` if so", "`rgpu bench run --yes` if so"),
            (
                &["disasm", "x", "--hot"],
                "`rgpu profile --kernel K --section SourceCounters`",
                "`profile {\"kernel\": \"K\", \"mode\": \"ncu\", \"set\": \"full\"}`",
            ),
            (
                &["profile", "--kernel=k"],
                "`rgpu remote check h --accept-new`",
                "`rgpu remote check h --accept-new`",
            ),
            (&["profile", "--kernel=k"], "a lone ` stays", "a lone ` stays"),
        ] {
            assert_eq!(translated(argv, hint), [expected], "{argv:?}");
        }
    }

    #[test]
    fn the_removed_folder_of_sent_files_is_not_named() {
        let argv = ["profile", "--kernel=/h/.cache/rgpu/mcp/files-a1/x.cu"];
        let hints = translated(
            &argv,
            "`rgpu kernels new /h/.cache/rgpu/mcp/files-a1/x.cu` writes a kernel.toml",
        );
        assert_eq!(hints[0], "`rgpu kernels new x.cu` writes a kernel.toml");
        assert!(hints[1].contains("are removed") && hints.len() == 2, "{hints:?}");
        let plain = translated(&argv, "name a kernel");
        assert_eq!(plain, ["name a kernel"]);
        let folder = without_sent_folder("in '/h/mcp/files-a1' and /h/mcp/files-a1/k/k.cu:3");
        assert_eq!(folder, "in '.' and k/k.cu:3");
    }

    #[test]
    fn what_needs_a_person_says_so() {
        assert_eq!(with_consent(vec!["`rgpu build k --yes`".to_owned()]).len(), 2);
        assert_eq!(with_consent(vec!["`remote: x`".to_owned()]).len(), 1);
    }
}
