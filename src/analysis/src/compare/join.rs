//! Matches the kernels of one side with those of the other.
//!
//! Launches with the same name and geometry form one group. Groups are joined by name and geometry
//! first. The rest is joined by name, so a changed geometry shows as a change. If then each side
//! has exactly one group left, these two are joined: the new version of a kernel often has a new
//! name.

use rgpu_model::comparison::JoinedBy;
use rgpu_model::comparison::{Geometry, UnmatchedKernel};
use rgpu_model::{Launch, Profile};

/// All launches of one kernel with one geometry.
#[derive(Clone, Debug)]
pub(super) struct LaunchGroup<'a> {
    pub(super) kernel: &'a str,
    pub(super) geometry: Geometry,
    pub(super) launches: Vec<&'a Launch>,
}

/// Two groups that are compared as one kernel.
#[derive(Debug)]
pub(super) struct KernelPair<'a> {
    pub(super) a: LaunchGroup<'a>,
    pub(super) b: LaunchGroup<'a>,
    pub(super) by: JoinedBy,
}

/// The result of [`join`].
#[derive(Debug, Default)]
pub(super) struct JoinedKernels<'a> {
    /// The joined kernels, those with the most time first.
    pub(super) joined: Vec<KernelPair<'a>>,
    pub(super) only_a: Vec<LaunchGroup<'a>>,
    pub(super) only_b: Vec<LaunchGroup<'a>>,
}

impl LaunchGroup<'_> {
    /// The sum of all known durations, in nanoseconds.
    pub(super) fn total_ns(&self) -> f64 {
        self.durations().iter().sum()
    }

    /// Durations of the launches. If both a trace and a profiler recorded them, only those of the
    /// trace: a profiler serialises and replays launches.
    pub(super) fn durations(&self) -> Vec<f64> {
        let of = |launches: &mut dyn Iterator<Item = &&Launch>| -> Vec<f64> {
            launches.filter_map(|l| l.duration_ns).filter(|ns| ns.is_finite()).collect()
        };
        match of(&mut self.launches.iter().filter(|l| l.metrics.is_empty())) {
            traced if !traced.is_empty() => traced,
            _ => of(&mut self.launches.iter()),
        }
    }

    /// The launch with the median duration; only launches with metrics if there are any.
    pub(super) fn median_launch(&self) -> &Launch {
        let with_metrics = self.launches.iter().any(|l| !l.metrics.is_empty());
        let fits = |l: &&&Launch| !with_metrics || !l.metrics.is_empty();
        let mut order: Vec<&&Launch> = self.launches.iter().filter(fits).collect();
        order.sort_by(|a, b| {
            let ns = |l: &Launch| l.duration_ns.unwrap_or_default();
            ns(a).total_cmp(&ns(b)).then(a.id.cmp(&b.id))
        });
        order[(order.len() - 1) / 2]
    }

    pub(super) fn unmatched(&self) -> UnmatchedKernel {
        let durations = self.durations();
        UnmatchedKernel {
            kernel: self.kernel.to_owned(),
            geometry: self.geometry,
            launches: self.launches.len() as u64,
            total_ns: (!durations.is_empty()).then(|| durations.iter().sum()),
        }
    }
}

/// Joins the kernels of two profiles.
pub(super) fn join<'a>(a: &'a Profile, b: &'a Profile) -> JoinedKernels<'a> {
    let (mut left, mut right) = (groups(a), groups(b));
    let mut joined = Vec::new();
    let mut pass = |by: JoinedBy, same: fn(&LaunchGroup<'_>, &LaunchGroup<'_>) -> bool| {
        let mut rest = Vec::new();
        for group in left.drain(..) {
            match right.iter().position(|other| same(&group, other)) {
                Some(at) => {
                    joined.push(KernelPair { a: group, b: right.remove(at), by: by.clone() })
                }
                None => rest.push(group),
            }
        }
        left = rest;
    };
    pass(JoinedBy::NameAndGeometry, |a, b| a.kernel == b.kernel && a.geometry == b.geometry);
    pass(JoinedBy::Name, |a, b| a.kernel == b.kernel);
    if left.len() == 1 && right.len() == 1 {
        joined.extend(left.drain(..).zip(right.drain(..)).map(|(a, b)| KernelPair {
            a,
            b,
            by: JoinedBy::Alone,
        }));
    }
    joined.sort_by(|x, y| {
        let time = |j: &KernelPair<'_>| j.a.total_ns() + j.b.total_ns();
        time(y).total_cmp(&time(x))
    });
    JoinedKernels { joined, only_a: left, only_b: right }
}

/// The kernels of a profile, those with the most time first.
fn groups(profile: &Profile) -> Vec<LaunchGroup<'_>> {
    let mut groups: Vec<LaunchGroup<'_>> = Vec::new();
    // nsys names kernels with parameters, ncu without; one profile may have both.
    let has = |metrics: bool| profile.launches.iter().any(|l| l.metrics.is_empty() != metrics);
    let mixed = has(true) && has(false);
    let name = |l: &'_ Launch| match l.kernel.split_once('(') {
        Some((name, _)) if mixed && !name.is_empty() => name.len(),
        _ => l.kernel.len(),
    };
    let mut at = std::collections::HashMap::new();
    for launch in &profile.launches {
        let geometry = Geometry { grid: launch.grid, block: launch.block };
        let kernel = &launch.kernel[..name(launch)];
        let key = (kernel, launch.grid, launch.block);
        let index = *at.entry(key).or_insert_with(|| {
            groups.push(LaunchGroup { kernel, geometry, launches: Vec::new() });
            groups.len() - 1
        });
        groups[index].launches.push(launch);
    }
    groups.sort_by(|x, y| y.total_ns().total_cmp(&x.total_ns()));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(launches: &[(&str, u32, f64)]) -> Profile {
        let launches = launches.iter().map(|(kernel, grid, ns)| Launch {
            kernel: (*kernel).to_owned(),
            grid: [*grid, 1, 1],
            block: [32, 1, 1],
            duration_ns: Some(*ns),
            ..Launch::default()
        });
        Profile { launches: launches.collect(), ..Profile::default() }
    }

    fn told(joins: &JoinedKernels<'_>) -> Vec<(String, String)> {
        joins
            .joined
            .iter()
            .map(|j| (format!("{}={}", j.a.kernel, j.b.kernel), j.by.to_string()))
            .collect()
    }

    #[test]
    fn geometry_comes_before_the_name_and_the_last_two_are_taken_for_one() {
        let a = profile(&[("f", 1, 5.0), ("f", 2, 4.0), ("g", 1, 3.0), ("old", 1, 9.0)]);
        let b = profile(&[("f", 3, 5.0), ("f", 1, 5.0), ("g", 1, 3.0), ("new", 7, 9.0)]);
        let joins = join(&a, &b);
        assert_eq!(
            told(&joins),
            [
                ("old=new".to_owned(), "alone".to_owned()),
                ("f=f".to_owned(), "name_and_geometry".to_owned()),
                ("f=f".to_owned(), "name".to_owned()),
                ("g=g".to_owned(), "name_and_geometry".to_owned()),
            ]
        );
        assert!(joins.only_a.is_empty() && joins.only_b.is_empty());
    }

    #[test]
    fn several_that_are_left_are_listed_and_not_guessed_at() {
        let a = profile(&[("f", 1, 5.0), ("x", 1, 1.0), ("x", 1, 2.0)]);
        let b = profile(&[("f", 1, 5.0), ("y", 1, 1.0), ("z", 1, 1.0)]);
        let joins = join(&a, &b);
        assert_eq!((joins.joined.len(), joins.only_a.len(), joins.only_b.len()), (1, 1, 2));
        let x = joins.only_a[0].unmatched();
        assert_eq!((x.launches, x.total_ns), (2, Some(3.0)));
    }
}
