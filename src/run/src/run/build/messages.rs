//! Known messages of compilers and DSLs with their meaning, from the table `messages.tsv`. Tests
//! check it against recorded failures.

use rgpu_model::build::Diagnosis;

/// One message per line: who, words to look for, likely cause, next step; separated by tabs.
const TABLE: &str = include_str!("messages.tsv");

/// At most this many causes are shown for one failure.
const MAX_DIAGNOSES: usize = 3;

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownMessage {
    /// The tool that prints the message.
    pub who: &'static str,
    /// Words that occur in this order in one line; separated by ` … `.
    pub words: &'static str,
    /// The likely cause, for users.
    pub cause: &'static str,
    /// The next step for the user.
    pub next: &'static str,
}

impl KnownMessage {
    fn is_in(&self, line: &str) -> bool {
        let mut rest = line;
        self.words.split(" … ").all(|part| match rest.split_once(part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    }
}

/// The messages of the table, most specific first.
pub fn messages() -> impl Iterator<Item = KnownMessage> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut parts = line.split('\t');
        let mut part = || parts.next().filter(|part| !part.is_empty());
        Some(KnownMessage { who: part()?, words: part()?, cause: part()?, next: part()? })
    })
}

/// Diagnoses a compiler's output. Each cause occurs once, and each line only for its first message.
pub(super) fn diagnose(text: &str) -> Vec<Diagnosis> {
    let mut found: Vec<Diagnosis> = Vec::new();
    let mut explained: Vec<&str> = Vec::new();
    for message in messages() {
        let mut lines = text.lines().map(str::trim).filter(|line| message.is_in(line));
        let Some(line) = lines.next() else { continue };
        let known = explained.contains(&line) || found.iter().any(|d| d.cause == message.cause);
        if known || found.len() == MAX_DIAGNOSES {
            continue;
        }
        explained.push(line);
        found.push(Diagnosis {
            who: message.who.to_owned(),
            line: line.chars().take(300).collect(),
            cause: message.cause.to_owned(),
            next: message.next.to_owned(),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_whole() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(messages().count(), lines);
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            assert_eq!(line.split('\t').count(), 4, "{line}");
        }
    }

    #[test]
    fn recorded_failures_of_every_compiler_are_explained() {
        let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let folder = folder.join("tests/fixtures/build/messages");
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut logs: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
        logs.sort();
        let mut output = String::new();
        for log in logs {
            let name = log.file_stem().unwrap().to_string_lossy().into_owned();
            let found = diagnose(&std::fs::read_to_string(&log).unwrap());
            assert!(!found.is_empty(), "`{name}` is not explained");
            output += &format!("{name}\n");
            for diagnosis in found {
                output += &format!("  {}: {}\n", diagnosis.who, diagnosis.cause);
            }
        }
        for message in messages() {
            assert!(output.contains(message.cause), "never recorded: {}", message.words);
        }
        insta::assert_snapshot!(output);
    }
}
