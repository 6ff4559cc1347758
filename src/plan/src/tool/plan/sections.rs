//! Section sets of Nsight Compute: its own sets, passed on by name, and ours, expanded to sections.

use super::draft::PlanError;
use rgpu_model::error::nearest;

/// A value of `--set`: a name for several sections of ncu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionSet {
    /// The name of the set.
    pub name: &'static str,
    /// The sections of our own set; `None` for a set that ncu knows.
    pub sections: Option<&'static [&'static str]>,
}

const fn ncus_own(name: &'static str) -> SectionSet {
    SectionSet { name, sections: None }
}

/// Every set that `--set` takes.
pub static SETS: &[SectionSet] = &[
    ncus_own("basic"),
    ncus_own("detailed"),
    ncus_own("full"),
    ncus_own("roofline"),
    ncus_own("pmsampling"),
    ncus_own("nvlink"),
    ncus_own("default"),
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

/// Section identifiers: those that `ncu --list-sections` of 2025.3.1 prints (see
/// tests/fixtures/host), and those that only older versions have.
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

/// The set with this name.
pub(crate) fn set_named(name: &str) -> Result<&'static SectionSet, PlanError> {
    SETS.iter().find(|set| set.name == name).ok_or_else(|| PlanError::Option {
        flag: "--set",
        value: name.to_owned(),
        problem: format!(
            "no such set; there are {}",
            SETS.iter().map(|set| set.name).collect::<Vec<_>>().join(", ")
        ),
        near: nearest(name, SETS.iter().map(|set| set.name)).iter().map(|n| (*n).into()).collect(),
    })
}

/// Checks the name of a section; `regex:` is passed on unchecked.
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
        let listed =
            include_str!("../../../../../tests/fixtures/host/nvidia-h200/ncu-list-sections.txt");
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
