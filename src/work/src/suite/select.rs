//! Selects cases by patterns.

use std::collections::BTreeSet;

use super::case::SuiteCase;
use super::file::SuiteFile;
use rgpu_model::error::{Exit, Failure, Result, nearest};

/// Whether `text` matches `pattern`, in which `*` stands for any characters and `?` for one.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last `*` stands, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// The cases that match any of the patterns, in the order of the file; all if there is none. A
/// pattern names a suite, a target `suite:case` or a case with its axes. Generated targets are only
/// those that `generated` or a pattern without `*` asks for.
///
/// # Errors
/// A pattern matches nothing; the failure names the nearest targets.
pub fn select(file: &SuiteFile, patterns: &[String], generated: bool) -> Result<Vec<SuiteCase>> {
    let cases = SuiteCase::all(file)?;
    let patterns: Vec<&str> =
        patterns.iter().map(String::as_str).filter(|pattern| *pattern != "all").collect();
    for pattern in &patterns {
        if !cases.iter().any(|case| is_named(case, pattern)) {
            return Err(unknown(file, pattern));
        }
    }
    let chosen = |case: &SuiteCase| {
        let named = |pattern: &&str| is_named(case, pattern);
        let listed = generated || !case.generated;
        if patterns.is_empty() {
            listed
        } else {
            patterns.iter().any(|p| named(p) && (listed || !p.contains('*')))
        }
    };
    Ok(cases.into_iter().filter(|case| chosen(case)).collect())
}

/// The generated targets that these patterns match, and that [`select`] leaves out.
pub fn left_out_targets(file: &SuiteFile, patterns: &[String]) -> Result<BTreeSet<String>> {
    let targets = |generated| -> Result<BTreeSet<String>> {
        Ok(select(file, patterns, generated)?.into_iter().map(|case| case.target).collect())
    };
    Ok(&targets(true)? - &targets(false)?)
}

fn is_named(case: &SuiteCase, pattern: &str) -> bool {
    let (_, name) = case.target.split_once(':').unwrap_or(("", &case.target));
    let in_suite =
        |suite: &String| matches(pattern, suite) || matches(pattern, &format!("{suite}:{name}"));
    matches(pattern, &case.id) || matches(pattern, &case.target) || case.suites.iter().any(in_suite)
}

fn unknown(file: &SuiteFile, pattern: &str) -> Failure {
    let names: Vec<String> = file.targets.iter().map(super::TargetSpec::name).collect();
    let known = names.iter().map(String::as_str).chain(file.suites());
    let near = nearest(pattern, known);
    let failure =
        Failure::new(Exit::Config, "unknown_target", format!("no target matches `{pattern}`"));
    let failure = match &file.file {
        Some(file) => failure.file(file.display()),
        None => failure,
    };
    if near.is_empty() {
        failure.hint("`rgpu bench list` shows the targets")
    } else {
        failure.hint(format!("did you mean `{}`?", near.join("`, `")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_takes_any_characters_and_brackets_are_plain_ones() {
        for (pattern, text, expected) in [
            ("softmax:*", "softmax:large", true),
            ("*:large", "softmax:large", true),
            ("s*m?x*", "softmax:large", true),
            ("softmax", "softmax:large", false),
            ("a[n=1]", "a[n=1]", true),
            ("a[n=*]", "a[n=16,t=2]", true),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "abbbcab", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
