//! The regions that a table shows: the user's own, with GPU work if any region has some. Ranges
//! that libraries open and regions without GPU work are one row each; the JSON document lists them
//! all.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use super::quantity::duration;
use super::text::cut_middle;
use rgpu_model::{Profile, Region};

/// Columns of a region's label.
const MAX_COLUMNS: usize = 56;
/// Domains of NVTX ranges that libraries open around their own work. XLA's compiler uses TSL's.
const LIBRARY_DOMAINS: &[&str] = &[
    "CCCL", "CUTLASS", "NCCL", "TSL", "cuBLAS", "cuBLASLt", "cuDNN", "cuFFT", "cuSOLVER",
    "cuSPARSE", "libcudf", "nvComp",
];

/// A row of a table of regions.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RegionRow {
    /// The region's name, or what is in the row.
    pub(super) label: String,
    pub(super) instances: Option<u64>,
    pub(super) host_ns: Option<u64>,
    pub(super) gpu_ns: Option<u64>,
    pub(super) gpu_span_ns: Option<u64>,
    /// The part of `gpu_ns` that is inferred.
    pub(super) inferred_gpu_ns: Option<u64>,
    pub(super) launches: u64,
}

impl RegionRow {
    /// The GPU time, and how much of it is inferred.
    pub(super) fn gpu_text(&self) -> String {
        let text = |ns: u64| duration(ns as f64);
        match (self.gpu_ns, self.inferred_gpu_ns) {
            (Some(all), Some(inferred)) if inferred == all => format!("{} inferred", text(all)),
            (Some(all), Some(inferred)) => format!("{}, {} inferred", text(all), text(inferred)),
            (all, _) => all.map(text).unwrap_or_default(),
        }
    }
}

/// The rows of a profile's regions, at most `max` of single regions.
pub(super) fn rows(profile: &Profile, max: usize) -> Vec<RegionRow> {
    let has_gpu_work = |region: &Region| {
        region.gpu_ns.is_some_and(|ns| ns > 0)
            || !region.launches.is_empty()
            || !region.ranges.is_empty()
    };
    let any_gpu_work = profile.regions.iter().any(has_gpu_work);
    let mut folded = Folds::default();
    let mut shown = Vec::new();
    for region in by_time(&profile.regions) {
        if is_of_library(region) {
            folded.libraries.push(region);
        } else if any_gpu_work && !has_gpu_work(region) {
            folded.idle.push(region);
        } else {
            shown.push(region);
        }
    }
    // A row in place of one region would tell less.
    if let [only] = folded.idle[..] {
        shown.push(only);
        folded.idle.clear();
    }
    let more = shown.len().saturating_sub(max);
    let labels = distinct_labels(shown.iter().map(|region| region.display()).collect());
    let single = shown.iter().zip(labels).take(max).map(|(region, label)| RegionRow {
        label,
        instances: region.instances,
        host_ns: region.host_ns,
        gpu_ns: region.gpu_ns,
        gpu_span_ns: region.gpu_span_ns,
        inferred_gpu_ns: region.inferred_gpu_ns,
        launches: region.kernels.iter().map(|kernel| kernel.launches).sum(),
    });
    let mut rows: Vec<RegionRow> = single.collect();
    if more > 0 {
        rows.push(RegionRow { label: format!("({more} more regions)"), ..RegionRow::default() });
    }
    rows.extend(folded.rows());
    rows
}

/// What the GPU times of regions are the sums of, where the program also copied.
pub(super) fn gpu_note(profile: &Profile) -> Option<&'static str> {
    let any_gpu_time = profile.regions.iter().any(|region| region.gpu_ns.is_some());
    (any_gpu_time && !profile.copies.is_empty()).then_some("GPU: kernels and copies")
}

/// The row of the regions that libraries open; `None` without any.
pub(super) fn library_row(profile: &Profile) -> Option<RegionRow> {
    let libraries = by_time(&profile.regions).into_iter().filter(|region| is_of_library(region));
    Folds { libraries: libraries.collect(), idle: Vec::new() }.rows().next()
}

/// The regions as a tree in which the one with the most GPU time comes first, and of those without
/// GPU work the one with the most host time.
pub(super) fn by_time(regions: &[Region]) -> Vec<&Region> {
    let time = |region: &Region| (Reverse(region.gpu_ns), Reverse(region.host_ns));
    let times: HashMap<&[String], _> =
        regions.iter().map(|region| (&region.path[..], time(region))).collect();
    let mut sorted: Vec<&Region> = regions.iter().collect();
    sorted.sort_by_cached_key(|region| {
        let path: &[String] = &region.path;
        let ends = 1..=path.len();
        ends.map(|end| (times.get(&path[..end]).copied(), &path[end - 1])).collect::<Vec<_>>()
    });
    sorted
}

/// Regions that are not shown one by one.
#[derive(Default)]
struct Folds<'a> {
    libraries: Vec<&'a Region>,
    idle: Vec<&'a Region>,
}

impl Folds<'_> {
    fn rows(&self) -> impl Iterator<Item = RegionRow> {
        let mut names: Vec<&str> = Vec::new();
        let parts = self.libraries.iter().flat_map(|region| &region.path);
        for name in parts.filter_map(|part| library(part)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let libraries = match self.libraries.len() {
            1 => format!("(1 region of {})", names.join(", ")),
            count => format!("({count} regions of {})", names.join(", ")),
        };
        let idle = format!("({} regions without GPU work)", self.idle.len());
        [(libraries, &self.libraries), (idle, &self.idle)]
            .into_iter()
            .filter(|(_, regions)| !regions.is_empty())
            .map(|(label, regions)| sum(label, regions))
            .collect::<Vec<_>>()
            .into_iter()
    }
}

/// The GPU time of regions. Times of a region include those of the regions inside it, which are
/// left out. Regions of several threads are open at once, so a sum of their host times is no time
/// of the program.
fn sum(label: String, regions: &[&Region]) -> RegionRow {
    let paths: HashSet<&[String]> = regions.iter().map(|region| &region.path[..]).collect();
    let is_inside =
        |region: &Region| (0..region.path.len()).any(|end| paths.contains(&region.path[..end]));
    let outermost: Vec<&&Region> = regions.iter().filter(|region| !is_inside(region)).collect();
    let total = |of: fn(&Region) -> Option<u64>| {
        let known = outermost.iter().filter_map(|region| of(region));
        known.reduce(u64::saturating_add)
    };
    RegionRow {
        label,
        instances: None,
        host_ns: None,
        gpu_ns: total(|region| region.gpu_ns),
        gpu_span_ns: None,
        inferred_gpu_ns: total(|region| region.inferred_gpu_ns),
        launches: total(|r| Some(r.kernels.iter().map(|k| k.launches).sum())).unwrap_or(0),
    }
}

/// Whether a library opened this region, or one around it.
pub(super) fn is_of_library(region: &Region) -> bool {
    region.path.iter().any(|part| library(part).is_some())
}

/// The library that opened a range, from its path component. Inductor's ranges have no domain.
fn library(part: &str) -> Option<&str> {
    if part.starts_with("CachingAutotuner.") {
        return Some("Inductor");
    }
    let (domain, _) = part.split_once('@')?;
    LIBRARY_DOMAINS.contains(&domain).then_some(domain)
}

/// The names cut in the middle. Equal ones get a number.
fn distinct_labels(names: Vec<String>) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let label = |name: String| {
        let label = cut_middle(&short_xla(&name), MAX_COLUMNS);
        let count = seen.entry(label.clone()).or_default();
        *count += 1;
        match *count {
            1 => label,
            n => {
                let number = format!(" #{n}");
                format!("{}{number}", cut_middle(&label, MAX_COLUMNS - number.len()))
            }
        }
    };
    names.into_iter().map(label).collect()
}

/// A region's name in one row of text.
pub(super) fn short_region(name: &str) -> Cow<'_, str> {
    let name = short_xla(name);
    if name.chars().count() <= MAX_COLUMNS {
        name
    } else {
        Cow::Owned(cut_middle(&name, MAX_COLUMNS))
    }
}

/// The names of XLA's ranges without their arguments, except for the one that names the module,
/// operation or pass: `TSL@XlaModule:#prefix=args[0],hlo_module=jit_step,program_id=0#` is
/// `TSL@XlaModule:jit_step`.
pub(super) fn short_xla(name: &str) -> Cow<'_, str> {
    const KEYS: [&str; 4] = ["hlo_op=", "name=", "hlo_module=", "module="];
    let mut out = String::new();
    let mut rest = name;
    while let Some((before, (arguments, after))) = rest
        .split_once(":#")
        .filter(|(before, _)| before.contains("TSL@"))
        .and_then(|(before, after)| Some((before, after.split_once('#')?)))
    {
        let named = |key: &&str| arguments.split(',').find_map(|word| word.strip_prefix(*key));
        let value = KEYS.iter().find_map(named).unwrap_or(arguments);
        out += &format!("{before}:{value}");
        rest = after;
    }
    if out.is_empty() { Cow::Borrowed(name) } else { Cow::Owned(out + rest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::timeline::CopySum;

    #[test]
    fn a_hundred_thousand_regions_of_libraries_are_summed_in_one_pass() {
        let region = |n: u64| Region {
            path: vec![format!("TSL@{}", n / 2), "inner".to_owned()][..1 + (n % 2) as usize]
                .to_vec(),
            gpu_ns: Some(1),
            ..Region::default()
        };
        let regions = (0..100_000).map(region).collect();
        let row = library_row(&Profile { regions, ..Profile::default() }).unwrap();
        assert_eq!(row.gpu_ns, Some(50_000), "inner regions are part of the outer ones");
    }

    #[test]
    fn ranges_of_xla_are_named_by_their_module() {
        let short = |name| short_xla(name).into_owned();
        assert_eq!(
            short("TSL@XlaModule:#prefix=args[0],hlo_module=jit_stage,program_id=0#"),
            "TSL@XlaModule:jit_stage"
        );
        assert_eq!(
            short("TSL@XlaModule:#hlo_module=jit_step,program_id=6632#::TSL@Thunk:#hlo_op=dot.1#"),
            "TSL@XlaModule:jit_step::TSL@Thunk:dot.1"
        );
        for name in ["step", "a:#b#", "TSL@XlaModule:#hlo_module=x", ""] {
            assert_eq!(short(name), name);
        }
    }

    #[test]
    fn the_regions_with_the_most_gpu_time_come_first() {
        let regions = [
            region(&["load"], 9, 0),
            region(&["load", "file"], 8, 0),
            region(&["step"], 10, 7),
            region(&["step", "loss"], 1, 2),
            region(&["step", "attention"], 1, 5),
            region(&["save"], 20, 0),
        ];
        let paths: Vec<String> = by_time(&regions).iter().map(|r| r.path.join("/")).collect();
        assert_eq!(paths, ["step", "step/attention", "step/loss", "save", "load", "load/file"]);
    }

    fn region(path: &[&str], host_ns: u64, gpu_ns: u64) -> Region {
        Region {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            instances: Some(1),
            host_ns: Some(host_ns),
            gpu_ns: Some(gpu_ns),
            ..Region::default()
        }
    }

    fn shown(regions: Vec<Region>) -> Vec<(String, Option<u64>, Option<u64>)> {
        let profile = Profile { regions, ..Profile::default() };
        rows(&profile, 3).into_iter().map(|r| (r.label, r.host_ns, r.gpu_ns)).collect()
    }

    #[test]
    fn ranges_of_libraries_and_regions_without_gpu_work_are_a_row_each() {
        let row = |label: &str, host, gpu| (label.to_owned(), host, Some(gpu));
        let regions = vec![
            region(&["step"], 100, 50),
            region(&["step", "cuBLAS@cublasGemmEx"], 10, 20),
            region(&["load"], 30, 0),
            region(&["parse"], 5, 0),
            region(&["TSL@XlaPass:#name=a#"], 40, 0),
            region(&["TSL@XlaPass:#name=a#", "TSL@XlaPass:#name=b#"], 30, 0),
            region(&["CachingAutotuner.benchmark_all_configs_data: kernel_name=a"], 1, 0),
        ];
        let expected = [
            row("step", Some(100), 50),
            row("(4 regions of cuBLAS, TSL, Inductor)", None, 20),
            row("(2 regions without GPU work)", None, 0),
        ];
        assert_eq!(shown(regions), expected);
        // Where nothing ran on a GPU, every region is shown.
        let expected = [row("load", Some(30), 0), row("parse", Some(5), 0)];
        assert_eq!(shown(vec![region(&["load"], 30, 0), region(&["parse"], 5, 0)]), expected);
    }

    #[test]
    fn long_names_are_cut_in_the_middle_and_stay_distinct() {
        let long = |end: &str| format!("{}{}{end}", "module_".repeat(20), "x".repeat(20));
        let (a, b) = (long("a"), long("b"));
        let regions =
            vec![region(&[&a], 1, 1), region(&[&b], 1, 1), region(&[&long("a"), "i"], 1, 1)];
        let labels: Vec<_> = shown(regions).into_iter().map(|(label, ..)| label).collect();
        assert!(labels.iter().all(|label| label.chars().count() <= MAX_COLUMNS), "{labels:?}");
        assert_eq!(labels.len(), 3);
        assert!(labels[0].ends_with('a') && labels[2].ends_with('b'), "{labels:?}");
        let twice =
            distinct_labels(vec![format!("{}y", "z".repeat(90)), format!("{}y", "z".repeat(91))]);
        assert_eq!(twice[0].chars().count(), MAX_COLUMNS);
        assert!(twice[1].ends_with(" #2") && twice[1].chars().count() == MAX_COLUMNS, "{twice:?}");
    }

    #[test]
    fn gpu_time_with_copies_is_called_so() {
        let mut profile =
            Profile { regions: vec![region(&["step"], 100, 50)], ..Profile::default() };
        assert_eq!(gpu_note(&profile), None);
        profile.copies = vec![CopySum { kind: "HtoD".to_owned(), ..CopySum::default() }];
        assert_eq!(gpu_note(&profile), Some("GPU: kernels and copies"));
        profile.regions[0].gpu_ns = None;
        assert_eq!(gpu_note(&profile), None);
    }

    #[test]
    fn inferred_time_is_told_beside_the_whole() {
        let row = |inferred_gpu_ns| RegionRow {
            gpu_ns: Some(3_000_000),
            inferred_gpu_ns,
            ..RegionRow::default()
        };
        let texts = [None, Some(1_000_000), Some(3_000_000)].map(|ns| row(ns).gpu_text());
        assert_eq!(texts, ["3.00 ms", "3.00 ms, 1.00 ms inferred", "3.00 ms inferred"]);
    }
}
