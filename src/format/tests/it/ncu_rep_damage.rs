//! Tests every recorded ncu report, cut and damaged, and the memory that reading takes.

use std::fs;
use std::path::PathBuf;

use crate::damage::{cut_everywhere, flip_bits};
use crate::fixture;
use crate::ncu_rep::repeat::{boundaries, repeat};
use rgpu_format::ncu_rep::{Error, NcuReadLimits, NcuReport};

fn reports() -> Vec<(PathBuf, Vec<u8>)> {
    let packed = fixture::files("ncu", "report.ncu-repz");
    assert!(packed.len() > 10, "the fixtures are not where this test looks");
    let plain = |path: &PathBuf| zstd::decode_all(fs::read(path).unwrap().as_slice()).unwrap();
    packed.iter().map(|path| (path.clone(), plain(path))).collect()
}

/// Reads everything in a report; returns the number of results.
fn read(file: &[u8]) -> Option<usize> {
    let (report, problems) = NcuReport::read(file, &NcuReadLimits { max_size: 64 << 20 }).ok()?;
    for problem in &problems {
        assert!(!problem.to_string().is_empty());
    }
    let mut results = 0;
    for result in report.results() {
        results += 1;
        result.metrics().for_each(|metric| {
            metric.instances().for_each(drop);
            let _ = metric.unit();
        });
        result.rules().for_each(drop);
        let _ = result.nvtx();
        for section in result.sections() {
            let _ = (section.header(), section.tables(), section.rooflines());
            let _ = section.rooflines_for(90);
        }
    }
    for source in report.sources() {
        let _ = source.function_at(u64::MAX);
    }
    Some(results)
}

#[test]
fn every_report_cut_around_each_block_and_in_its_head_keeps_what_is_whole() {
    for (path, whole) in reports() {
        let mut before = 0;
        let mut cuts: Vec<usize> = (0..whole.len().min(1024)).collect();
        let ends = boundaries(&whole);
        // The debug build reads about 30 MB per second, so large reports are not cut at every
        // block.
        let step = ends.len() * whole.len() / (2 << 20) + 1;
        let around = ends.into_iter().step_by(step).flat_map(|end| [end - 1, end, end + 1]);
        cuts.extend(around.filter(|cut| *cut < whole.len() && *cut >= 1024));
        cuts.push(whole.len() - 1);
        for cut in cuts {
            let Some(results) = read(&whole[..cut]) else {
                assert!(cut < 10, "{}: nothing left at {cut}", path.display());
                continue;
            };
            assert!(results >= before, "{}: {results} at {cut}", path.display());
            before = results;
        }
    }
}

#[test]
fn every_report_is_damaged_and_a_small_one_cut_everywhere_without_panic() {
    for (path, whole) in reports() {
        flip_bits(&whole, (2 << 20) / whole.len() + 1, |damaged| {
            read(damaged);
        });
        if path.ends_with("unknown-set/report.ncu-repz") {
            cut_everywhere(&whole, |cut| {
                read(cut);
            });
        }
    }
}

#[test]
fn compressed_reports_are_cut_and_damaged_without_panic() {
    let path = fixture::files("ncu", "unknown-set/report.ncu-repz").remove(0);
    let packed = fs::read(path).unwrap();
    for cut in (0..packed.len()).step_by(97) {
        read(&packed[..cut]);
    }
    flip_bits(&packed, 300, |damaged| {
        read(damaged);
    });
}

/// The peak memory of this process in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

#[test]
fn reading_a_compressed_report_takes_no_more_than_three_times_its_plain_size() {
    let one = reports().into_iter().find(|(path, _)| path.ends_with("full-spill/report.ncu-repz"));
    let one = one.unwrap().1;
    let packed = zstd::encode_all(repeat(&one, 12).as_slice(), 3).unwrap();
    let before = peak();
    let (report, problems) = NcuReport::read(&packed, &NcuReadLimits::default()).unwrap();
    assert!(problems.is_empty());
    assert_eq!(report.results().count(), 12);
    let instances = report.results().flat_map(|result| result.metrics());
    assert!(instances.map(|metric| metric.instances().count()).sum::<usize>() > 30_000);
    let taken = peak().saturating_sub(before);
    assert!(taken < 3 * report.size(), "{taken} bytes for a report of {}", report.size());
}

#[test]
fn a_frame_that_claims_more_than_the_limit_is_refused_without_the_memory() {
    let zeros = vec![0; 80 << 20];
    let bomb = [b"NVR\0".as_slice(), &zeros].concat();
    let packed = zstd::encode_all(bomb.as_slice(), 19).unwrap();
    drop((zeros, bomb));
    // The same holds if the frame does not state its size.
    let streamed =
        zstd::encode_all([b"NVR\0".as_slice(), &vec![0; 80 << 20]].concat().as_slice(), 3);
    for packed in [packed, streamed.unwrap()] {
        let error = NcuReport::read(&packed, &NcuReadLimits { max_size: 2 << 30 }).unwrap_err();
        assert!(matches!(error, Error::Unpacked(e) if e.limit == 64 << 20), "{error}");
        assert!(error.to_string().contains("unpack it with another tool"), "{error}");
    }
}
