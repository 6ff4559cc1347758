//! Decides whether two profiles are comparable: times from different GPUs, drivers, clock policies
//! or problem sizes say nothing about the kernel.

use std::collections::BTreeMap;

use super::{join, time};
use rgpu_model::Profile;
use rgpu_model::comparison::{Difference, Geometry};
use rgpu_model::profile::CaseResult;
use rgpu_model::profile::CodeLanguage;

/// The kind of a profile that has no times, because it holds only code (`cubin`) or `sanitizer`
/// results; `None` for any other profile.
pub fn untimed(profile: &Profile) -> Option<&'static str> {
    let mode = mode(profile);
    ["cubin", "sanitizer"].into_iter().find(|kind| *kind == mode && profile.timing.is_none())
}

/// All differences that make two profiles incomparable. A fact that one side lacks is no
/// difference.
pub fn differences(a: &Profile, b: &Profile) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut compare = |what: &str, a: Option<String>, b: Option<String>| {
        if let (Some(a), Some(b)) = (a, b)
            && a != b
        {
            found.push(Difference { what: what.to_owned(), a, b });
        }
    };
    compare("gpu", device(a), device(b));
    compare("driver", driver(a), driver(b));
    // Times that the runner measured without a tool are comparable, whichever tool ran afterwards.
    if a.timing.is_none() || b.timing.is_none() {
        compare("mode", Some(mode(a)), Some(mode(b)));
    }
    // A program and a kernel under our harness are timed in different ways.
    compare("language", language(a), language(b));
    compare("harness", harness(a), harness(b));
    compare("clocks", clocks(a), clocks(b));
    // Else both are compared by the judge's clock, with new data in place of a flush.
    if !by_bounds(a, b) {
        compare("clock", clock(a), clock(b));
        compare("l2_flush", l2(a), l2(b));
    }
    sizes(a, b, &mut found);
    if let Some([x, y]) = unrelated(a, b) {
        found.push(Difference { what: "kernel".to_owned(), a: x, b: y });
    }
    found
}

/// The kernels of two reports with one kernel each, if neither name nor geometry suggests that they
/// do the same work. Kernels that our runner timed do the same work: they have the same cases.
fn unrelated(a: &Profile, b: &Profile) -> Option<[String; 2]> {
    if a.timing.is_some() && b.timing.is_some() {
        return None;
    }
    let joins = join::join(a, b);
    let [only] = joins.joined.as_slice() else { return None };
    let known = only.a.geometry != Geometry::default();
    let related = only.by != "alone"
        || known && only.a.geometry == only.b.geometry
        || words(only.a.kernel).iter().any(|word| words(only.b.kernel).contains(word));
    (!related).then(|| [only.a.kernel.to_owned(), only.b.kernel.to_owned()])
}

/// The words of a kernel's name, without namespace, template arguments and parameters. Short and
/// common words are left out, since two names may share them by chance.
fn words(kernel: &str) -> Vec<String> {
    let name = kernel.split(['(', '<']).next().unwrap_or(kernel);
    let name = name.rsplit([':', ' ']).next().unwrap_or(name);
    let words = name.split(|c: char| !c.is_ascii_alphabetic()).map(str::to_lowercase);
    words.filter(|word| word.len() >= 3 && word != "kernel").collect()
}

/// The GPU's name: from the reports, else from the host's facts.
pub fn device(profile: &Profile) -> Option<String> {
    let host = profile.host.as_ref();
    let known = host.and_then(|host| {
        let gpu = host.gpus.iter().find(|gpu| Some(&gpu.uuid) == profile.gpu.as_ref())?;
        Some(gpu.name.clone())
    });
    profile.device.clone().or(known)
}

fn driver(profile: &Profile) -> Option<String> {
    profile.gpu.as_ref().and(profile.host.as_ref()?.driver.clone())
}

/// The tool without the form of its report: nsys reports and their sqlite exports are the same
/// mode.
fn mode(profile: &Profile) -> String {
    let mode = profile.run.mode.as_str();
    mode.split('_').next().unwrap_or(mode).to_owned()
}

/// The language of the kernel; `None` for an imported file, whose language is `report`.
fn language(profile: &Profile) -> Option<String> {
    let language = &profile.kernel.language;
    (!language.is_empty() && *language != CodeLanguage::Report).then(|| language.to_string())
}

/// The version of rgpu whose runner timed the kernel; `None` for files of other tools.
fn harness(profile: &Profile) -> Option<String> {
    profile.timing.as_ref().map(|_| format!("rgpu {}", profile.run.rgpu))
}

/// The clock that the GPU was locked at, else the clock control from the command line; `None`
/// without a command line.
fn clocks(profile: &Profile) -> Option<String> {
    if let Some(mhz) = profile.run.locked_sm_mhz {
        return Some(format!("locked at {mhz} MHz"));
    }
    let words = &profile.run.command;
    if words.is_empty() {
        return None;
    }
    let value = words.iter().enumerate().find_map(|(at, word)| {
        let rest = word.strip_prefix("--clock-control")?;
        rest.strip_prefix('=').map(str::to_owned).or_else(|| words.get(at + 1).cloned())
    });
    Some(value.unwrap_or_else(|| "none".to_owned()))
}

/// Whether two profiles are compared by the judge's bounds.
fn by_bounds(a: &Profile, b: &Profile) -> bool {
    let sides = a.timing.as_ref().zip(b.timing.as_ref());
    sides.is_some_and(|(a, b)| time::by_bounds(&[a.into(), b.into()]))
}

fn clock(profile: &Profile) -> Option<String> {
    profile.timing.as_ref().map(|t| t.clock.to_string())
}

fn l2(profile: &Profile) -> Option<String> {
    let timing = profile.timing.as_ref()?;
    Some(if timing.l2_flushed { "flushed" } else { "warm" }.to_owned())
}

/// Adds differences in sizes: cases of the same name must have the same sizes, and the profiles
/// must share at least one case.
fn sizes(a: &Profile, b: &Profile, found: &mut Vec<Difference>) {
    if a.cases.is_empty() || b.cases.is_empty() {
        return;
    }
    let mut common = 0;
    for case in &a.cases {
        let Some(other) = b.cases.iter().find(|other| other.name == case.name) else { continue };
        common += 1;
        if case.sizes != other.sizes && !case.sizes.is_empty() && !other.sizes.is_empty() {
            found.push(Difference {
                what: "sizes".to_owned(),
                a: case_text(&case.name, &case.sizes),
                b: case_text(&other.name, &other.sizes),
            });
        }
    }
    if common == 0 {
        let list = |cases: &[CaseResult]| {
            cases.iter().map(|c| case_text(&c.name, &c.sizes)).collect::<Vec<_>>().join("; ")
        };
        found.push(Difference { what: "sizes".to_owned(), a: list(&a.cases), b: list(&b.cases) });
    }
}

fn case_text(name: &str, sizes: &[BTreeMap<String, i64>]) -> String {
    let groups: Vec<String> = sizes
        .iter()
        .map(|group| group.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(","))
        .collect();
    let groups = groups.join(";");
    if groups.is_empty() || groups == name {
        return name.to_owned();
    }
    format!("{name} ({groups})")
}
