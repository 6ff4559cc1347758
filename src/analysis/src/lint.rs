//! NVTX lints: they find ranges that mislead tools or readers. Each lint is one file; [`LINTS`]
//! lists them.
//!
//! Lints check single ranges, so they need the trace (`trace.json`). Without it, some lints check
//! the profile's regions instead. Ranges opened by rgpu's own runner are ignored.

use rgpu_model::{Finding, Profile, Trace};

mod closes_early;
mod colliding;
mod outside;
mod unbalanced;
mod unnamed;
mod without_kernels;

#[cfg(test)]
mod tests;

/// The input of a lint.
#[derive(Clone, Copy, Debug)]
pub struct LintInput<'a> {
    /// The profile to check.
    pub profile: &'a Profile,
    /// The trace of the same run, if there is one.
    pub trace: Option<&'a Trace>,
}

/// A check of how a program uses NVTX ranges.
pub struct Lint {
    /// The id of its findings, in snake_case.
    pub id: &'static str,
    /// The next concrete step, the same for all its findings.
    pub hint: &'static str,
    /// Returns one text per finding, with its numbers. Empty if there is nothing to report or the
    /// input does not suffice.
    pub apply: fn(&LintInput<'_>) -> Vec<String>,
}

/// Every lint; `rgpu report --lint nvtx` applies them all.
pub static LINTS: &[Lint] = &[
    unbalanced::LINT,
    unnamed::LINT,
    colliding::LINT,
    without_kernels::LINT,
    outside::LINT,
    closes_early::LINT,
];

/// Applies all lints to a profile.
pub fn lint(profile: &Profile, trace: Option<&Trace>) -> Vec<Finding> {
    let linted = LintInput { profile, trace };
    let found = LINTS.iter().flat_map(|lint| {
        (lint.apply)(&linted).into_iter().map(|text| Finding {
            id: lint.id.to_owned(),
            category: "nvtx".to_owned(),
            priority: 2,
            text,
            hint: lint.hint.to_owned(),
            ..Finding::default()
        })
    });
    found.collect()
}

impl LintInput<'_> {
    /// A name of the trace.
    fn name(&self, index: u32) -> &str {
        self.trace.and_then(|trace| trace.names.get(index as usize)).map_or("", String::as_str)
    }

    /// Whether the trace has GPU work; without it, lints about kernels do not apply.
    fn sees_gpu(&self) -> bool {
        self.trace.is_some_and(|trace| !trace.work.is_empty())
    }
}

/// Whether a region belongs to rgpu's own runner: a phase, a case, or anything inside an unmeasured
/// phase. Ranges that the user's code opens there occur in the timed phase again.
fn is_ours(path: &[String]) -> bool {
    const UNMEASURED: &[&str] = &["rgpu@setup", "rgpu@warmup", "rgpu@verify"];
    let Some(first) = path.first().map(String::as_str) else { return false };
    let phase = first == "rgpu@timed" && path.iter().all(|part| part.starts_with("rgpu@"));
    phase || UNMEASURED.contains(&first)
}

/// The first few names, quoted, and the number of the others.
fn some_of(names: &[String]) -> String {
    const MAX_SHOWN: usize = 5;
    let shown: Vec<String> = names.iter().take(MAX_SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(MAX_SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// `1 range`, `2 ranges`.
fn ranges(count: u64) -> String {
    format!("{count} range{}", if count == 1 { "" } else { "s" })
}

/// The distinct names, in order of first occurrence.
fn distinct(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}
