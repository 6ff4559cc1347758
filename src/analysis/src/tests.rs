//! The analysis of real reports: every launch in the recordings of ncu.

use std::path::{Path, PathBuf};

use rgpu_format::ncu_rep::NcuReadLimits;

use super::occupancy::{BlockResources, Limiter, limits, occupancy};
use super::{classify, device};
use rgpu_import::ncu::{self, RequestedCounters};
use rgpu_model::Launch;

/// Every launch of every report, with the name of its recording.
fn launches() -> Vec<(String, Launch)> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("tests/fixtures/ncu");
    let mut reports: Vec<PathBuf> = walkdir::WalkDir::new(root)
        .into_iter()
        .filter_map(Result::ok)
        .map(walkdir::DirEntry::into_path)
        .filter(|path| path.extension().is_some_and(|x| x == "ncu-repz" || x == "ncu-rep"))
        .collect();
    reports.sort();
    let mut all = Vec::new();
    for path in reports {
        let case = path.parent().and_then(Path::file_name).unwrap().to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).unwrap();
        let limits = NcuReadLimits { max_size: 1 << 30 };
        let Ok(imported) = ncu::import(&bytes, "report", &RequestedCounters::default(), &limits)
        else {
            continue;
        };
        all.extend(imported.launches.into_iter().map(|launch| (case.clone(), launch)));
    }
    all
}

#[test]
fn the_calculated_occupancy_is_what_ncu_says_of_every_launch() {
    let mut checked = 0;
    for (case, launch) in launches() {
        let number = |name: &str| launch.number(name);
        // A range has no block of its own.
        let Some(theoretical) = number("sm__maximum_warps_per_active_cycle_pct") else { continue };
        let Some(compute) = device::compute(&launch).filter(|_| launch.grid != [0; 3]) else {
            continue;
        };
        let whole = |name: &str| number(name).unwrap() as u64;
        let block = BlockResources {
            threads: whole("launch__block_size") as u32,
            registers: whole("launch__registers_per_thread") as u32,
            shared_bytes: whole("launch__shared_mem_per_block_static")
                + whole("launch__shared_mem_per_block_dynamic"),
            carve_out: Some(whole("launch__shared_mem_config_size")),
        };
        let own = occupancy(limits(compute.0, compute.1).unwrap(), &block).unwrap();
        assert!((own.percent - theoretical).abs() < 1e-9, "{case}: {own:?} and {theoretical}");
        for (limiter, name) in [
            (Limiter::Warps, "launch__occupancy_limit_warps"),
            (Limiter::Registers, "launch__occupancy_limit_registers"),
            (Limiter::SharedMemory, "launch__occupancy_limit_shared_mem"),
            (Limiter::Blocks, "launch__occupancy_limit_blocks"),
        ] {
            let blocks = own.by_limiter.iter().find(|(l, _)| *l == limiter).unwrap().1;
            assert_eq!(f64::from(blocks), number(name).unwrap(), "{case}: {name}");
        }
        checked += 1;
    }
    assert!(checked >= 20, "{checked} launches had what is needed");
}

#[test]
fn sampled_stalls_add_up_to_the_samples_in_every_launch() {
    for (case, launch) in launches() {
        let Some(samples) = launch.number("smsp__pcsamp_sample_count") else { continue };
        let reasons: u64 = launch.stalls.iter().filter_map(|stall| stall.samples).sum();
        let selected = launch.number("smsp__pcsamp_warps_issue_stalled_selected").unwrap_or(0.0);
        assert_eq!(reasons as f64 + selected, samples, "{case}");
        // The exact shares are of the whole latency; `selected` is the rest.
        let exact: f64 = launch.stalls.iter().filter_map(|stall| stall.percent).sum();
        assert!(exact <= 100.5, "{case}: {exact}");
    }
}

#[test]
fn one_small_block_on_a_whole_gpu_is_a_small_grid_and_nothing_of_its_sharing() {
    const CASES: &[&str] =
        &["cost-minimal", "select-mangled", "ten-times", "select-skip-in-region"];
    let mut seen = 0;
    for (case, launch) in launches().into_iter().filter(|(case, _)| CASES.contains(&case.as_str()))
    {
        let one = launch.grid == [1, 1, 1];
        let (class, findings) = classify(&launch);
        let of = |id: &str| findings.iter().find(|f| f.id == id);
        assert!(findings.iter().all(|f| !f.hint.contains("less shared memory")), "{case}");
        if one {
            seen += 1;
            let class = class.unwrap();
            assert!(["small_grid", "launch_bound"].contains(&class.primary.as_str()), "{case}");
            assert!(of("imbalance").is_none() && of("occupancy_limited").is_none(), "{case}");
            let text = &of("small_grid").unwrap().text;
            assert_eq!(text, "the grid of 1 block is less than 0.01 waves");
        }
    }
    assert!(seen > 0);
}

#[test]
fn verdicts_of_the_full_reports_are_these() {
    let told: Vec<String> = launches()
        .into_iter()
        .filter(|(case, _)| case.starts_with("full-"))
        .map(|(case, launch)| {
            let found = classify(&launch).0.unwrap_or_default();
            let verdicts = found.verdicts.iter().map(|v| format!("{} {:.2}", v.verdict, v.score));
            format!("{case}: {}", verdicts.collect::<Vec<_>>().join(", "))
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"));
}

/// The same transposition with padded rows took 39.2 µs, and nothing else was changed.
#[test]
fn the_gain_without_bank_conflicts_is_that_of_the_padded_kernel() {
    let timed = |name: &str| {
        let (_, launch) = launches().into_iter().find(|(case, _)| case == name).unwrap();
        launch
    };
    let padded_ns = timed("full-transpose-padded").duration_ns.unwrap();
    let launch = timed("full-transpose-conflicts");
    let before_ns = launch.duration_ns.unwrap();
    let mut profile = rgpu_model::Profile { launches: vec![launch], ..Default::default() };
    crate::analyze(&mut profile);
    let told = profile.findings.iter().find(|finding| finding.id == "bank_conflicts").unwrap();
    let stake = told.stake.as_ref().unwrap();
    let [low, high] = [stake.low_ns, stake.high_ns].map(|ns| ns.unwrap() as f64);
    assert!(low < before_ns - padded_ns && before_ns - padded_ns < high, "{low} to {high}");
    assert_eq!(stake.high_ns, Some(stake.ns));
}
