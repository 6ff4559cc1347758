//! Measures reading a full report: index and check, all metrics with units, all instances.
//!
//! `cargo bench -p rgpu-format --bench ncu_rep` measures a report of at least 7 MB that repeats a
//! recorded launch of `--set full` several times. `RGPU_BENCH_NCU_REP=FILE` measures that file
//! instead; `benches/ncu_import.py` measures NVIDIA's readers on it.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

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

/// How often each task is done; its median time is printed.
const REPEATS: usize = 30;

fn measure<T>(name: &str, task: impl Fn() -> T) {
    let time = || {
        let start = Instant::now();
        black_box(task());
        start.elapsed()
    };
    time();
    let mut times: Vec<Duration> = (0..REPEATS).map(|_| time()).collect();
    times.sort_unstable();
    println!("{name:44} {:8.2} ms", times[REPEATS / 2].as_secs_f64() * 1e3);
}

fn read(packed: &[u8], plain: &[u8]) {
    let limits = NcuReadLimits::default();
    let (metrics, instances, _) = all_metrics_and_instances(plain);
    println!("{} bytes, {metrics} metrics, {instances} instances", plain.len());
    measure("all metrics and instances, .ncu-rep", || all_metrics_and_instances(plain));
    measure("all metrics and instances, .ncu-repz", || all_metrics_and_instances(packed));
    measure("index and check alone", || {
        NcuReport::read(plain, &limits).map(|(report, _)| report.blocks()).ok()
    });
    let Ok((report, _)) = NcuReport::read(plain, &limits) else { return };
    let all = || report.results().flat_map(|result| result.metrics());
    measure("every metric with its unit", || all().filter(|m| m.unit().is_some()).count());
    let sections = || report.results().flat_map(|result| result.sections());
    measure("every ceiling", || sections().map(|s| s.rooflines().len()).sum::<usize>());
}

fn main() {
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
    read(&packed, &plain);
}
