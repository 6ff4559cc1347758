//! How long reading a full report of one launch takes: 2 MB, 2,246 metrics and their instances.
//!
//! `cargo bench -p rgpu-format --bench ncu_rep`

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, Throughput};
use rgpu_format::ncu_rep::{Limits, NcuReport};

fn read(criterion: &mut Criterion, packed: &[u8], plain: &[u8]) {
    let limits = Limits::default();
    let mut group = criterion.benchmark_group("ncu_rep");
    group.throughput(Throughput::Bytes(plain.len() as u64));
    for (name, file) in
        [("index and check, .ncu-rep", plain), ("index and check, .ncu-repz", packed)]
    {
        group.bench_function(name, |bencher| {
            bencher
                .iter(|| NcuReport::read(black_box(file), &limits).map(|(r, _)| r.blocks()).ok());
        });
    }
    let Ok((report, _)) = NcuReport::read(plain, &limits) else { return };
    let metrics = || report.results().flat_map(|result| result.metrics().collect::<Vec<_>>());
    group.bench_function("every metric with its unit", |bencher| {
        bencher.iter(|| metrics().filter(|metric| metric.unit().is_some()).count());
    });
    group.bench_function("every instance", |bencher| {
        bencher.iter(|| metrics().map(|metric| metric.instances().count()).sum::<usize>());
    });
    group.bench_function("every ceiling", |bencher| {
        let sections = || report.results().flat_map(|result| result.sections());
        bencher.iter(|| sections().map(|section| section.rooflines().len()).sum::<usize>());
    });
    group.finish();
}

fn main() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ncu/2025.3.1");
    let path = fixtures.join("full-spill/report.ncu-repz");
    let mut criterion = Criterion::default().configure_from_args();
    let packed = std::fs::read(&path).expect("the fixture lies beside the sources");
    let plain = zstd::decode_all(packed.as_slice()).expect("the fixture is a zstd frame");
    read(&mut criterion, &packed, &plain);
    criterion.final_summary();
}
