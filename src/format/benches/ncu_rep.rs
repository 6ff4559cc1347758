//! Measures reading a full report: index and check, all metrics with units, all instances.
//!
//! `cargo bench -p rgpu-format --bench ncu_rep` measures a report of at least 7 MB that repeats a
//! recorded launch of `--set full` several times. `RGPU_BENCH_NCU_REP=FILE` measures that file
//! instead; `benches/ncu_import.py` measures NVIDIA's readers on it.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput};
use rgpu_format::ncu_rep::{NcuReadLimits, NcuReport};

#[path = "../tests/it/ncu_rep/repeat.rs"]
mod repeat;

/// The work that a laptop user waits for; the goal is 10 ms.
fn all_metrics_and_instances(file: &[u8]) -> (usize, usize, f64) {
    let Ok((report, _)) = NcuReport::read(file, &NcuReadLimits::default()) else {
        return (0, 0, 0.0);
    };
    let (mut metrics, mut instances, mut sum) = (0, 0, 0.0);
    for metric in report.results().flat_map(|result| result.metrics()) {
        metrics += 1;
        sum += metric.value().finite().unwrap_or(0.0);
        for instance in metric.instances() {
            instances += 1;
            sum += instance.value.finite().unwrap_or(0.0);
        }
    }
    (metrics, instances, sum)
}

fn read(criterion: &mut Criterion, packed: &[u8], plain: &[u8]) {
    let limits = NcuReadLimits::default();
    let (metrics, instances, _) = all_metrics_and_instances(plain);
    println!("{} bytes, {metrics} metrics, {instances} instances", plain.len());
    let mut group = criterion.benchmark_group("ncu_rep");
    group.sample_size(30);
    group.throughput(Throughput::Bytes(plain.len() as u64));
    group.bench_function("all metrics and instances, .ncu-rep", |bencher| {
        bencher.iter(|| all_metrics_and_instances(black_box(plain)));
    });
    group.bench_function("all metrics and instances, .ncu-repz", |bencher| {
        bencher.iter(|| all_metrics_and_instances(black_box(packed)));
    });
    group.bench_function("index and check alone", |bencher| {
        bencher.iter(|| NcuReport::read(black_box(plain), &limits).map(|(r, _)| r.blocks()).ok());
    });
    let Ok((report, _)) = NcuReport::read(plain, &limits) else { return };
    let all = || report.results().flat_map(|result| result.metrics());
    group.bench_function("every metric with its unit", |bencher| {
        bencher.iter(|| all().filter(|metric| metric.unit().is_some()).count());
    });
    group.bench_function("every ceiling", |bencher| {
        let sections = || report.results().flat_map(|result| result.sections());
        bencher.iter(|| sections().map(|section| section.rooflines().len()).sum::<usize>());
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let (packed, plain) = match std::env::var_os("RGPU_BENCH_NCU_REP") {
        Some(path) => {
            let file = std::fs::read(path).expect("RGPU_BENCH_NCU_REP names a report");
            let plain = zstd::decode_all(file.as_slice()).unwrap_or_else(|_| file.clone());
            (zstd::encode_all(plain.as_slice(), 3).expect("memory to compress into"), plain)
        }
        None => {
            let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ncu");
            let path = fixtures.join("2025.3.1/full-tiled-matmul/report.ncu-repz");
            let packed = std::fs::read(&path).expect("the fixture lies beside the sources");
            let one = zstd::decode_all(packed.as_slice()).expect("the fixture is a zstd frame");
            let plain = repeat::repeat(&one, 7_000_000 / one.len() + 1);
            (zstd::encode_all(plain.as_slice(), 3).expect("memory to compress into"), plain)
        }
    };
    read(&mut criterion, &packed, &plain);
    criterion.final_summary();
}
