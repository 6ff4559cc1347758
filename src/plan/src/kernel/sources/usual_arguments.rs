//! The arguments with which a project starts its own program: those of a line `./NAME ARGS` in its
//! Makefile, its README or the comments of its sources. They are taken where the program ends
//! without arguments, as its comparison of `argc` says, and the user types none.

use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

/// The arguments, and where they are from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsualArguments {
    /// The arguments; empty: the program needs none, or nothing tells them.
    pub words: Vec<String>,
    /// The name of the file that tells them.
    file: String,
}

impl UsualArguments {
    /// What is assumed, in words. `None` if nothing is.
    pub fn assumption(&self) -> Option<String> {
        (!self.words.is_empty()).then(|| {
            let words = self.words.join(" ");
            format!("its arguments are `{words}`, as in `{}`; `-- ARGS` gives others", self.file)
        })
    }

    /// Finds the arguments of a program in `folder` with these sources. `texts`: the files that may
    /// tell them, by name.
    pub(super) fn find<'t>(
        folder: &Path,
        sources: impl IntoIterator<Item = &'t str>,
        texts: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let needs = |text: &str| NEEDS_ARGUMENTS.as_ref().is_some_and(|regex| regex.is_match(text));
        if !sources.into_iter().any(needs) {
            return Self::default();
        }
        let found = texts.into_iter().find_map(|(file, text)| {
            let words = text.lines().take(MAX_LINES).find_map(|line| arguments(line, folder))?;
            Some(Self { words, file })
        });
        found.unwrap_or_default()
    }
}

/// More lines of a file are not looked at.
const MAX_LINES: usize = 20_000;

/// A comparison that is true for a call without arguments, or with too few.
static NEEDS_ARGUMENTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\bargc\s*(?:!=\s*(?:[2-9]|[1-9][0-9])|<\s*(?:[2-9]|[1-9][0-9])|<=\s*[1-9]|==\s*1\b)",
    )
    .ok()
});

/// The arguments that a line gives to a program of the folder. `None`: it starts none, gives none,
/// or gives some that only a shell, a reader or another folder knows.
fn arguments(line: &str, folder: &Path) -> Option<Vec<String>> {
    let at = line.find("./")?;
    let is_start = line[..at].ends_with(|c: char| c.is_whitespace() || "`$>@'(".contains(c));
    if at > 0 && !is_start {
        return None;
    }
    let rest = &line[at..];
    let end = rest.find(char::is_whitespace)?;
    let (program, rest) = rest.split_at(end);
    let name = program.rsplit('/').next().unwrap_or_default();
    let is_program = !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-${}()".contains(c));
    if !is_program || ["configure", "build", "gradlew"].contains(&name) {
        return None;
    }
    let is_end = |c: char| "#|>;&`\"'\\*".contains(c);
    // `<kernel number>` is a placeholder, and `< file` is none.
    let rest = rest.split(is_end).next().unwrap_or_default();
    let whole = &line[at + end..];
    let rest = if whole.contains('<') { whole.trim_end_matches('`') } else { rest };
    let words: Vec<String> =
        words(rest)?.into_iter().map(|w| value(&w, folder)).collect::<Option<_>>()?;
    (!words.is_empty() && words.len() <= 12).then_some(words)
}

/// The words of a text; a placeholder in angle brackets is one. `None` if a bracket has no end.
fn words(text: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = match rest.strip_prefix('<') {
            Some(inner) => inner.find('>')? + 2,
            None => rest.find(char::is_whitespace).unwrap_or(rest.len()),
        };
        found.push(rest[..end].to_owned());
        rest = rest[end..].trim_start();
    }
    Some(found)
}

/// The value for a word. A placeholder for the number of a variant is the first variant. `None`:
/// only a reader knows it, or it names a file that is not there.
fn value(word: &str, folder: &Path) -> Option<String> {
    if let Some(inner) = word.strip_prefix('<') {
        let inner = inner.to_lowercase();
        let is_variant = ["kernel", "version", "variant", "mode", "algo", "id"]
            .iter()
            .any(|w| inner.contains(w));
        return is_variant.then(|| "1".to_owned());
    }
    let is_plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "._-+=/,:".contains(c));
    let is_file = word.contains('/') || word.contains('.') && word.parse::<f64>().is_err();
    let is_there = !is_file || word.contains('=') || folder.join(word).exists();
    (is_plain && is_there && !word.contains("...")).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str, text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("in.txt"), "").unwrap();
        let texts = [("README.md".to_owned(), text.to_owned())];
        UsualArguments::find(folder.path(), [source], texts).words.join(" ")
    }

    #[test]
    fn a_program_that_ends_without_arguments_gets_those_of_its_readme() {
        let needs = "int main(int argc, char **argv) { if (argc != 2) { return 1; } }";
        for (text, words) in [
            ("# x\n\n```\n$ ./sgemm 3\n```\n", "3"),
            ("run: all\n\t./$(TARGET) 1024 100 16\n", "1024 100 16"),
            ("`./build/bin/app --n=5 0.5 in.txt` runs it", "--n=5 0.5 in.txt"),
            ("    DEVICE=0 ./sgemm <kernel number>", "1"),
            ("./sgemm <size>\n./sgemm 7 > log", "7"),
            ("./run.sh 3\n./app\n./configure --x\n../app 3\n", ""),
            ("./app $KERNEL\n./app \"$1\"\n./app other.bin\n", ""),
        ] {
            assert_eq!(found(needs, text), words, "{text}");
        }
        for source in ["if (argc > 1) n = atoi(argv[1]);", "if (argc == 2)", "if (argc != 1)", ""] {
            assert_eq!(found(source, "./app 3"), "", "{source}");
        }
        for source in ["if(argc<3)", "if (argc <= 1)", "if (argc == 1) usage();"] {
            assert_eq!(found(source, "./app 3"), "3", "{source}");
        }
    }
}
