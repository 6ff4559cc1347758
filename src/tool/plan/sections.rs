//! Section sets of Nsight Compute: its own, passed on by name, and ours, spelled out.

use super::draft::PlanError;
use crate::error::nearest;

/// A set of sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionSet {
    /// Its name.
    pub name: &'static str,
    /// Its sections; `None`: ncu knows the set itself.
    pub sections: Option<&'static [&'static str]>,
}

const fn theirs(name: &'static str) -> SectionSet {
    SectionSet { name, sections: None }
}

/// Every set that `--set` takes.
pub static SETS: &[SectionSet] = &[
    theirs("basic"),
    theirs("detailed"),
    theirs("full"),
    theirs("roofline"),
    theirs("pmsampling"),
    theirs("nvlink"),
    theirs("default"),
    SectionSet { name: "launchstats", sections: Some(&["LaunchStats"]) },
    SectionSet { name: "minimal", sections: Some(&["SpeedOfLight", "LaunchStats", "Occupancy"]) },
    SectionSet {
        name: "sol",
        sections: Some(&["SpeedOfLight", "LaunchStats", "Occupancy", "SpeedOfLight_RooflineChart"]),
    },
    SectionSet {
        name: "extended",
        sections: Some(&[
            "SpeedOfLight",
            "LaunchStats",
            "Occupancy",
            "MemoryWorkloadAnalysis",
            "MemoryWorkloadAnalysis_Chart",
            "SchedulerStats",
            "WarpStateStats",
            "InstructionStats",
        ]),
    },
];

/// Identifiers of sections: `ncu --list-sections` of 2025.3.1 (see tests/fixtures/host), and those
/// that older versions had besides.
static SECTIONS: &[&str] = &[
    "C2CLink",
    "ComputeWorkloadAnalysis",
    "InstructionStats",
    "LaunchStats",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Chart",
    "MemoryWorkloadAnalysis_Deprecated",
    "MemoryWorkloadAnalysis_Tables",
    "NumaAffinity",
    "Nvlink",
    "Nvlink_Tables",
    "Nvlink_Topology",
    "Occupancy",
    "PmSampling",
    "PmSampling_WarpStates",
    "SchedulerStats",
    "SourceCounters",
    "SpeedOfLight",
    "SpeedOfLight_HierarchicalDoubleRooflineChart",
    "SpeedOfLight_HierarchicalHalfRooflineChart",
    "SpeedOfLight_HierarchicalSingleRooflineChart",
    "SpeedOfLight_HierarchicalTensorRooflineChart",
    "SpeedOfLight_RooflineChart",
    "WarpStateStats",
    "WorkloadDistribution",
];

/// The identifiers of ncu's sections that rgpu knows.
pub fn sections() -> &'static [&'static str] {
    SECTIONS
}

/// The set of this name.
///
/// # Errors
/// [`PlanError::Option`] with the nearest names.
pub(crate) fn set_named(name: &str) -> Result<&'static SectionSet, PlanError> {
    SETS.iter().find(|set| set.name == name).ok_or_else(|| PlanError::Option {
        flag: "--set",
        value: name.to_owned(),
        problem: "no such set".to_owned(),
        near: nearest(name, SETS.iter().map(|set| set.name)).iter().map(|n| (*n).into()).collect(),
    })
}

/// Checks the name of a section; `regex:` passes on.
///
/// # Errors
/// [`PlanError::Option`] with the nearest names. A section of a newer ncu goes through
/// `--ncu-args '--section NAME'`.
pub(crate) fn check_section(name: &str) -> Result<(), PlanError> {
    if name.starts_with("regex:") || SECTIONS.contains(&name) {
        return Ok(());
    }
    Err(PlanError::Option {
        flag: "--section",
        value: name.to_owned(),
        problem: "no such section".to_owned(),
        near: nearest(name, SECTIONS.iter().copied()).iter().map(|n| (*n).into()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_sets_name_sections_that_exist() {
        for section in SETS.iter().filter_map(|set| set.sections).flatten() {
            assert!(check_section(section).is_ok(), "{section}");
        }
    }

    #[test]
    fn the_table_holds_what_ncu_lists() {
        let listed = include_str!("../../../tests/fixtures/host/nvidia-h200/ncu-list-sections.txt");
        for line in listed.lines().skip(3).filter(|line| !line.starts_with('-')) {
            let name = line.split_whitespace().next().unwrap_or_default();
            assert!(SECTIONS.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_misspelt_section_offers_the_right_one() {
        let error = check_section("SpeedOfLigth").unwrap_err();
        assert!(matches!(error, PlanError::Option { near, .. } if near[0] == "SpeedOfLight"));
        let error = set_named("fulll").unwrap_err();
        assert!(matches!(error, PlanError::Option { near, .. } if near == ["full"]));
    }
}
