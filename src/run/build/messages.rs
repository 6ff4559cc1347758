//! Known messages of compilers and DSLs, and what they mean: the table `messages.tsv`, one line
//! each. Recorded words of real failures hold it in tests.

use crate::model::build::Diagnosis;

/// who, words to look for, likely cause, next step; parted by tabs.
const TABLE: &str = include_str!("messages.tsv");

/// Meanings told of one failure.
const MOST: usize = 3;

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who says it.
    pub who: &'static str,
    /// Words that occur in one line of it, in this order; parted by ` … `.
    pub words: &'static str,
    /// The likely cause.
    pub cause: &'static str,
    /// The next step.
    pub next: &'static str,
}

impl Message {
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
pub fn messages() -> impl Iterator<Item = Message> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut parts = line.split('\t');
        let mut part = || parts.next().filter(|part| !part.is_empty());
        Some(Message { who: part()?, words: part()?, cause: part()?, next: part()? })
    })
}

/// What the words of a failure mean, each meaning once.
pub(super) fn diagnose(text: &str) -> Vec<Diagnosis> {
    let mut found: Vec<Diagnosis> = Vec::new();
    for message in messages() {
        let Some(line) = text.lines().find(|line| message.is_in(line)) else { continue };
        if found.iter().any(|known| known.cause == message.cause) {
            continue;
        }
        found.push(Diagnosis {
            who: message.who.to_owned(),
            line: line.trim().chars().take(300).collect(),
            cause: message.cause.to_owned(),
            next: message.next.to_owned(),
        });
        if found.len() == MOST {
            break;
        }
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
}
