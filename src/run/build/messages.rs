//! Known messages of compilers and DSLs, and what they mean: the table `messages.tsv`, one line
//! each. Recorded words of real failures hold it in tests.

use crate::model::build::Diagnosis;

/// who, words to look for, likely cause, next step; parted by tabs.
const TABLE: &str = include_str!("messages.tsv");

/// Meanings told of one failure.
const MAX_DIAGNOSES: usize = 3;

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownMessage {
    /// Who says it.
    pub who: &'static str,
    /// Words that occur in one line of it, in this order; parted by ` … `.
    pub words: &'static str,
    /// The likely cause.
    pub cause: &'static str,
    /// The next step.
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

/// The table, best explanation first.
pub fn messages() -> impl Iterator<Item = KnownMessage> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut parts = line.split('\t');
        let mut part = || parts.next().filter(|part| !part.is_empty());
        Some(KnownMessage { who: part()?, words: part()?, cause: part()?, next: part()? })
    })
}

/// What the words of a failure mean: each meaning once, each line by the first message it holds.
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
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = folder.join("tests/fixtures/build/messages");
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut logs: Vec<_> =
            entries.filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
        logs.sort();
        let mut told = String::new();
        for log in logs {
            let name = log.file_stem().unwrap().to_string_lossy().into_owned();
            let found = diagnose(&std::fs::read_to_string(&log).unwrap());
            assert!(!found.is_empty(), "`{name}` is not explained");
            told += &format!("{name}\n");
            for diagnosis in found {
                told += &format!("  {}: {}\n", diagnosis.who, diagnosis.cause);
            }
        }
        for message in messages() {
            assert!(told.contains(message.cause), "never recorded: {}", message.words);
        }
        insta::assert_snapshot!(told);
    }
}
