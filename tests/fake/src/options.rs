//! Parses command lines as NVIDIA's tools do: options first, then the program and its arguments.

/// A parsed command line.
#[derive(Debug, PartialEq)]
pub(crate) struct Options<'a> {
    options: Vec<(&'a str, &'a str)>,
    /// The program to run and its arguments.
    pub(crate) program: &'a [String],
}

impl<'a> Options<'a> {
    /// `flags` are the options without a value. Every other option has one, after `=` or as the
    /// next word.
    pub(crate) fn read(words: &'a [String], flags: &[&str]) -> Options<'a> {
        let mut options = Vec::new();
        let mut at = 0;
        while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
            at += 1;
            match word.split_once('=') {
                Some((name, value)) => options.push((name, value)),
                None if flags.contains(&word.as_str()) => options.push((word, "")),
                None => {
                    options.push((word, words.get(at).map_or("", String::as_str)));
                    at += 1;
                }
            }
        }
        Options { options, program: words.get(at..).unwrap_or_default() }
    }

    /// The last value given under any of these names.
    pub(crate) fn value(&self, names: &[&str]) -> Option<&'a str> {
        self.values(names).last()
    }

    /// All values given under any of these names.
    pub(crate) fn values(&self, names: &[&str]) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |(name, _)| names.contains(name)).map(|(_, value)| *value)
    }

    /// Whether any of these names was given.
    pub(crate) fn has(&self, names: &[&str]) -> bool {
        self.values(names).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_begins_where_the_options_end() {
        let words: Vec<String> = "--nvtx -k regex:x --set=full -o out ./app -o theirs"
            .split(' ')
            .map(str::to_owned)
            .collect();
        let options = Options::read(&words, &["--nvtx"]);
        assert_eq!(options.program, ["./app", "-o", "theirs"]);
        assert_eq!(options.value(&["-o", "--export"]), Some("out"));
        assert_eq!(options.value(&["--set"]), Some("full"));
        assert!(options.has(&["--nvtx"]) && !options.has(&["--csv"]));
    }
}
