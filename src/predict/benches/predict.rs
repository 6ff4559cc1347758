//! How many configurations a second one core predicts. 10 us a configuration are 10^5 a second.

#![allow(clippy::unwrap_used, reason = "an unwrap tells a failure well enough")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use rgpu_predict::Dtype;
use rgpu_predict::collective::Topology;
use rgpu_predict::config::Model;
use rgpu_predict::hw::find;
use rgpu_predict::kernel::{Context, Gemm};
use rgpu_predict::llm::{Deployment, Load, Parallelism, serve};

fn configurations(criterion: &mut Criterion) {
    let gpu = find("h200").unwrap().gpu().unwrap();
    let context = Context::new(&gpu);
    criterion.bench_function("gemm", |bencher| {
        bencher.iter(|| {
            let gemm = Gemm::new(black_box(80.0), 4096.0, 7168.0, Dtype::Bf16);
            gemm.time(&context).time_ns()
        });
    });
    let text = include_str!("../tests/data/configs/llama-3.1-70b.json");
    let model = Model::from_config(&serde_json::from_str(text).unwrap()).unwrap();
    let mut deployment = Deployment::new(&model, Topology::of(&gpu).unwrap());
    deployment.parallelism = Parallelism { tp: 8, ..Parallelism::NONE };
    criterion.bench_function("serve llama 3.1 70b", |bencher| {
        bencher.iter(|| {
            let load = Load {
                input: 1024.0,
                output: 1024.0,
                concurrency: black_box(16.0),
                prefill_gpus: None,
            };
            serve(&model, &deployment, &load, &context).unwrap().serving.tpot_ns
        });
    });
}

criterion_group!(benches, configurations);
criterion_main!(benches);
