//! The NVTX lint: ranges that do not say what their author means. One file a lint, all of them in
//! [`LINTS`].
//!
//! Lints look at single ranges, so they need the trace (`trace.json`); where there is none, those
//! that can look at the profile's regions do. Ranges that rgpu's own runner opens are left out.

use crate::model::{Finding, Profile, Trace};

mod closes_early;
mod colliding;
mod outside;
mod unbalanced;
mod unnamed;
mod without_kernels;

#[cfg(test)]
mod tests;

/// What a lint looks at.
#[derive(Clone, Copy, Debug)]
pub struct LintInput<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// The events beside it.
    pub trace: Option<&'a Trace>,
}

/// One lint.
pub struct Lint {
    /// snake_case id of its finding.
    pub id: &'static str,
    /// The next concrete step, for every finding of it.
    pub hint: &'static str,
    /// What it finds, each with its numbers; nothing where all is well or cannot be told.
    pub apply: fn(&LintInput<'_>) -> Vec<String>,
}

/// Every lint.
pub static LINTS: &[Lint] = &[
    unbalanced::LINT,
    unnamed::LINT,
    colliding::LINT,
    without_kernels::LINT,
    outside::LINT,
    closes_early::LINT,
];

/// Applies all lints.
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

    /// Whether the trace knows work on the GPU: without any, nothing can be said of kernels.
    fn sees_gpu(&self) -> bool {
        self.trace.is_some_and(|trace| !trace.work.is_empty())
    }
}

/// Whether a region is the business of rgpu's own runner: a phase or a case of it, or anything
/// inside a phase that is not measured. What the user's code opens there, it opens in the timed
/// phase again.
fn is_ours(path: &[String]) -> bool {
    const UNMEASURED: &[&str] = &["rgpu@setup", "rgpu@warmup", "rgpu@verify"];
    let Some(first) = path.first().map(String::as_str) else { return false };
    let phase = first == "rgpu@timed" && path.iter().all(|part| part.starts_with("rgpu@"));
    phase || UNMEASURED.contains(&first)
}

/// The first few of many, quoted, and how many more.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// `1 range`, `2 ranges`.
fn ranges(count: u64) -> String {
    format!("{count} range{}", if count == 1 { "" } else { "s" })
}

/// Each once, in the order met.
fn distinct(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}
