//! Rewrites the failure of a command for the MCP client that called a tool.
//!
//! Flags in the hints become arguments of the tool. A flag that the tool does not have becomes one
//! complete command line. The server removes the folder with the files of a call when the call
//! ends, so its path is cut from all texts.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::arguments::CONSENT_FLAGS;
use super::tool;
use rgpu_model::error::{Failure, shell_word};
use rgpu_plan::kernel::{CALL_PREFIX, CALLS_FOLDER};

/// Flags that the server adds to a command.
const OWN_FLAGS: &[&str] = &["--json", "--run-id", "--mount"];

/// Part of the path of the folder with the files that a client sent with a call. The folder lies in
/// the user's cache.
static SENT_FILES: LazyLock<String> = LazyLock::new(|| format!("/{CALLS_FOLDER}/{CALL_PREFIX}"));

/// The longest command line in a hint, in bytes.
const MAX_LINE_BYTES: usize = 1000;

/// The failure of the command `argv`, rewritten for the client that called a tool.
pub(super) fn for_agent(mut failure: Failure, argv: &[String]) -> Failure {
    let names_sent_files = |text: &String| text.contains(SENT_FILES.as_str());
    let mut texts = failure.hints.iter().chain(argv).chain(&failure.cause);
    let has_sent_files = names_sent_files(&failure.what) || texts.any(names_sent_files);
    let command = FailedCommand::new(argv);
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

/// Adds a hint to ask the user if one of the hints names a flag of [`CONSENT_FLAGS`].
pub(super) fn with_consent(mut hints: Vec<String>) -> Vec<String> {
    let gives_consent = |hint: &String| {
        let mut words = code_spans(hint).flat_map(words_of);
        words.any(|word| CONSENT_FLAGS.contains(&flag_of(&word)))
    };
    if hints.iter().any(gives_consent) {
        hints.push("this needs your user: show them the command, and why it is needed".to_owned());
    }
    hints
}

/// The commands and flags of a hint: what stands between backticks.
pub(super) fn code_spans(hint: &str) -> impl Iterator<Item = &str> {
    pieces(hint).into_iter().skip(1).step_by(2)
}

/// The pieces of a hint, text and code in turns. A backtick without a partner is text.
fn pieces(hint: &str) -> Vec<&str> {
    let mut pieces: Vec<&str> = hint.split('`').collect();
    if pieces.len().is_multiple_of(2) {
        let lone = pieces.pop().map_or(0, str::len) + 1;
        let before = pieces.pop().map_or(0, str::len);
        pieces.push(&hint[hint.len() - lone - before..]);
    }
    pieces
}

/// The words of a command line, as a shell has them; none where its quotes are not closed.
fn words_of(code: &str) -> Vec<String> {
    shlex::split(code).unwrap_or_default()
}

/// The command whose hints are translated.
struct FailedCommand<'a> {
    /// Its words as a user would type them, without `rgpu`.
    words: Vec<&'a str>,
    /// The schemas of the arguments of the tool with the command's name; empty if there is no such
    /// tool.
    fields: Map<String, Value>,
}

impl<'a> FailedCommand<'a> {
    fn new(argv: &'a [String]) -> Self {
        let end = argv.iter().position(|word| word == "--").unwrap_or(argv.len());
        let (own, program) = argv.split_at(end);
        let own = own.strip_prefix(&["rgpu".to_owned()]).unwrap_or(own);
        let is_typed = |word: &&String| !OWN_FLAGS.contains(&flag_of(word));
        let words = own.iter().filter(is_typed).chain(program);
        let words: Vec<&str> = words.map(String::as_str).collect();
        let fields = words.first().and_then(|name| tool::find(name)).map(|tool| (tool.input)());
        let fields = fields.as_ref().and_then(|input| input["properties"].as_object());
        Self { words, fields: fields.cloned().unwrap_or_default() }
    }

    fn translate(&self, hint: &str) -> String {
        let pieces = pieces(hint);
        let mut translated = pieces[0].to_owned();
        let mut rest = &pieces[1..];
        while let [code, text, after @ ..] = rest {
            // `rgpu build` with `--yes`: the flag is one of that command.
            let (code, text) = match after {
                [flag, next, beyond @ ..]
                    if code.starts_with("rgpu ") && *text == " with " && flag.starts_with("--") =>
                {
                    rest = beyond;
                    (self.code(&format!("{code} {flag}")), next)
                }
                _ => {
                    rest = after;
                    (self.code(code), text)
                }
            };
            translated.push_str(&format!("`{code}`{text}"));
        }
        translated
    }

    /// A command or flag of a hint.
    fn code(&self, code: &str) -> String {
        let words = words_of(code);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let translated = match words.as_slice() {
            ["rgpu", "build", "--yes"] => self.build_line(),
            ["rgpu", command @ ..] => as_call(command),
            [flag, ..] if flag.starts_with("--") && !self.words.is_empty() => {
                self.arguments(&words).or_else(|| self.line_with_flag(code, flag_of(flag)))
            }
            _ => None,
        };
        translated.unwrap_or_else(|| code.to_owned())
    }

    /// Flags as arguments of the tool, if it has all of them.
    fn arguments(&self, words: &[&str]) -> Option<String> {
        let translate = |(flag, value): (&str, Option<&str>)| {
            let name = flag.trim_start_matches('-').replace('-', "_");
            let names: &[&str] = match name.as_str() {
                "" => &["program", "argv"],
                "problem_sizes" => &["sizes"],
                // The tool `compare` takes a list of two.
                "kernel" => &["kernel", "kernels"],
                name => &[name],
            };
            let (name, schema) = names.iter().find_map(|name| self.fields.get_key_value(*name))?;
            let has_type = |wanted: &str| match &schema["type"] {
                Value::Array(types) => types.iter().any(|one| one == wanted),
                one => one == wanted,
            };
            Some(match value {
                None if has_type("boolean") => format!("{name}: true"),
                None => name.clone(),
                Some(value) if has_type("array") => format!("{name}: {}", json!([value])),
                Some(value) => format!("{name}: {value}"),
            })
        };
        let translated: Option<Vec<String>> = flags(words)?.into_iter().map(translate).collect();
        Some(translated?.join(", "))
    }

    /// The command line with a flag that is no argument of the tool. `None` if the flag stays as it
    /// is.
    fn line_with_flag(&self, code: &str, flag: &str) -> Option<String> {
        // Tools with `arguments` pass the words on, flags among them.
        let takes_words = self.fields.is_empty() || self.fields.contains_key("arguments");
        if flag == "--" || (takes_words && !CONSENT_FLAGS.contains(&flag)) {
            return None;
        }
        let line = match (flag, self.words.first()) {
            ("--yes", Some(&"build")) => self.build_line(),
            _ => Some(self.with_flag(code)),
        };
        line.filter(|line| line.len() <= MAX_LINE_BYTES)
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
    fn build_line(&self) -> Option<String> {
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

/// The call of a tool that does the same as a command, if there is one.
fn as_call(command: &[&str]) -> Option<String> {
    let (tool, arguments) = match command {
        ["remote", "list"] => ("hosts", json!({"action": "list"})),
        ["doctor"] => ("hosts", json!({"action": "doctor"})),
        ["doctor", remote] if is_value(remote) => {
            ("hosts", json!({"action": "doctor", "remote": remote}))
        }
        ["runs", "list"] => ("runs", json!({"action": "list"})),
        ["runs", action @ ("show" | "cancel"), run] if is_value(run) => {
            ("runs", json!({"action": action, "run": run}))
        }
        ["compare", a, b] if is_value(a) && is_value(b) => ("compare", json!({"runs": [a, b]})),
        ["profile", words @ ..] => ("profile", profile_arguments(words)?),
        _ => return None,
    };
    Some(format!("{tool} {arguments}"))
}

/// The arguments of the tool `profile` for the flags of the command.
fn profile_arguments(words: &[&str]) -> Option<Value> {
    let mut arguments = Map::new();
    for (flag, value) in flags(words)? {
        match (flag, value?) {
            ("--kernel", kernel) => arguments.insert("kernel".to_owned(), json!(kernel)),
            ("--mode", mode) => arguments.insert("mode".to_owned(), json!(mode)),
            ("--section", section) => {
                arguments.insert("mode".to_owned(), json!("ncu"));
                arguments.insert("section".to_owned(), json!([section]))
            }
            _ => return None,
        };
    }
    (!arguments.is_empty()).then_some(Value::Object(arguments))
}

/// Flags with their values. `None` if other words are among them.
fn flags<'a>(words: &[&'a str]) -> Option<Vec<(&'a str, Option<&'a str>)>> {
    let mut flags = Vec::new();
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        if !word.starts_with("--") {
            return None;
        }
        flags.push(match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (word, words.next_if(|next| is_value(next))),
        });
    }
    Some(flags)
}

fn is_value(word: &str) -> bool {
    !word.starts_with('-')
}

/// The name of a flag without its value.
fn flag_of(word: &str) -> &str {
    word.split('=').next().unwrap_or_default()
}

/// The text without the path of the folder with a call's files, so that a file has the name under
/// which the client sent it.
pub(super) fn without_sent_folder(text: &str) -> String {
    let mut rest = text;
    let mut clean = String::new();
    while let Some(at) = rest.find(SENT_FILES.as_str()) {
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
    use rgpu_model::error::Exit;

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
                &["build", "--kernel=k"],
                "`rgpu build` with `--yes`, or `--remote local`",
                "`rgpu build k --yes`, or `remote: local`",
            ),
            (
                &["profile", "--kernel=k"],
                "`--remote NAME`; `rgpu remote list` shows those; `--section X`; `--seed 2`",
                "`remote: NAME`; `hosts {\"action\":\"list\"}` shows those; `section: [\"X\"]`; \
                 `rgpu profile '--kernel=k' --seed 2`",
            ),
            (&["profile", "--kernel=k"], "`--problem-sizes`", "`sizes`"),
            (&["compare", "a", "b"], "`--kernel` twice", "`kernels` twice"),
            (&["profile", "--kernel=k"], "programs after `--`", "programs after `program`"),
            (&["bench", "run"], "try `--level sol`", "try `--level sol`"),
            (&["bench", "run"], "`--yes` if so", "`rgpu bench run --yes` if so"),
            (
                &["disasm", "x", "--hot"],
                "`rgpu profile --kernel K --section SourceCounters`",
                "`profile {\"kernel\":\"K\",\"mode\":\"ncu\",\"section\":[\"SourceCounters\"]}`",
            ),
            (
                &["profile", "--kernel=k"],
                "`rgpu remote check h --accept-new`",
                "`rgpu remote check h --accept-new`",
            ),
            (&["profile", "--kernel=k"], "a lone ` stays", "a lone ` stays"),
            (&["profile", "--kernel=k"], "`--top 3`; a lone ` stays", "`top: 3`; a lone ` stays"),
            // Several flags are arguments together, or stay one command line.
            (
                &["profile", "--kernel=k"],
                "`--mode ncu --metrics=a`, `--mode ncu --out F`",
                "`mode: ncu, metrics: [\"a\"]`, `rgpu profile '--kernel=k' --mode ncu --out F`",
            ),
            // A flag of another command is not one of this.
            (
                &["profile", "--kernel=k"],
                "`rgpu remote add` with `--top 3`",
                "`rgpu remote add --top 3`",
            ),
            (
                &["profile", "--kernel=k"],
                "`rgpu doctor` or `rgpu doctor h`, not `rgpu doctor h --fresh`",
                "`hosts {\"action\":\"doctor\"}` or \
                 `hosts {\"action\":\"doctor\",\"remote\":\"h\"}`, not `rgpu doctor h --fresh`",
            ),
            (
                &["profile", "--kernel=k"],
                "`rgpu runs cancel 2026-x`; `rgpu compare a b`; `rgpu compare a --force`",
                "`runs {\"action\":\"cancel\",\"run\":\"2026-x\"}`; \
                 `compare {\"runs\":[\"a\",\"b\"]}`; `rgpu compare a --force`",
            ),
            (&["profile", "--kernel=k"], "`add {remote}'s address`", "`add {remote}'s address`"),
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
        assert_eq!(with_consent(vec!["`rgpu exec --force=true x`".to_owned()]).len(), 2);
        // Words that only look like it.
        for hint in ["`remote: x`", "`--yesterday`", "the file a--force.cu", "a lone ` --yes"] {
            assert_eq!(with_consent(vec![hint.to_owned()]).len(), 1, "{hint}");
        }
    }
}
