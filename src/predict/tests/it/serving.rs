//! Servers: hand-worked memory and steps, parallelism that is impossible, and laws.

use rgpu_predict::Dtype;
use rgpu_predict::collective::Topology;
use rgpu_predict::hw::Tier;
use rgpu_predict::kernel::{Context, Fusion};
use rgpu_predict::llm::{
    Deployment, Load, Parallelism, PlacementError, serve, serve_after, suggest,
};

use super::{gpu, model};

const LOAD: Load = Load { input: 1024.0, output: 1024.0, concurrency: 1.0, prefill_gpus: None };

fn deployment(model: &rgpu_predict::config::Model, name: &str, tp: u32, pp: u32) -> Deployment {
    let parallelism = Parallelism { tp, pp, ..Parallelism::NONE };
    Deployment { parallelism, ..Deployment::new(model, Topology::for_gpu(&gpu(name)).unwrap()) }
}

#[test]
fn decode_of_one_request_reads_all_weights_once() {
    let (model, gpu) = (model("llama-3.1-8b"), gpu("h200"));
    let served =
        serve(&model, &deployment(&model, "h200", 1, 1), &LOAD, &Context::new(&gpu)).unwrap();
    // 16.06 GB of weights without the embedding's table (1.05 GB), 2·32·8·128·2 B = 131 kB of
    // cache a token for 1,536 tokens: 15.21 GB over 4.8 TB/s are 3.17 ms.
    let ms = served.serving.tpot_bound_ns / 1e6;
    assert!((ms - 3.17).abs() < 0.02, "{ms}");
    assert!(served.serving.tpot_ns > served.serving.tpot_bound_ns);
    // 11 kernels a layer with two of attention, the embedding, the last norm and the logits.
    assert_eq!(served.decode.stages[0].launches, 32.0 * 10.0 + 3.0);
}

#[test]
fn a_load_after_another_one_is_predicted_as_alone() {
    let (model, gpu) = (model("llama-3.1-8b"), gpu("h200"));
    let (way, context) = (deployment(&model, "h200", 2, 2), Context::new(&gpu));
    let first = serve(&model, &way, &LOAD, &context).unwrap();
    let load = Load { concurrency: 48.0, ..LOAD };
    let after = serve_after(Some(&first), &model, &way, &load, &context).unwrap();
    assert_eq!(after, serve(&model, &way, &load, &context).unwrap());
}

#[test]
fn memory_of_a_stage_is_worked_by_hand() {
    let (model, gpu) = (model("llama-3.1-8b"), gpu("h200"));
    let load = Load { concurrency: 16.0, ..LOAD };
    let served =
        serve(&model, &deployment(&model, "h200", 1, 1), &load, &Context::new(&gpu)).unwrap();
    let memory = served.memory[0];
    // The last norm is not counted in a stage.
    assert_eq!(memory.weights_bytes, 2.0 * (8_030_261_248.0 - 4096.0));
    assert_eq!(memory.kv_bytes, 16.0 * 2048.0 * 131_072.0);
}

#[test]
fn stages_share_layers_and_the_ends() {
    let (model, gpu) = (model("llama-3.1-70b"), gpu("h200"));
    let served =
        serve(&model, &deployment(&model, "h200", 1, 3), &LOAD, &Context::new(&gpu)).unwrap();
    let layers: Vec<usize> = served.memory.iter().map(|memory| memory.layers).collect();
    assert_eq!(layers, [27, 27, 26]);
    assert!(served.memory[0].weights_bytes > served.memory[1].weights_bytes);
    // One request is in one stage at a time.
    assert_eq!(served.serving.bubble, 2.0 / 3.0);
    assert!(served.serving.tpot_ns >= served.decode.pipeline_latency_ns());
    let full = Load { concurrency: 30.0, ..LOAD };
    let full =
        serve(&model, &deployment(&model, "h200", 1, 3), &full, &Context::new(&gpu)).unwrap();
    assert_eq!(full.micro_batches, 3.0);
    assert!(full.serving.bubble < served.serving.bubble);
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let (small, large) = (model("llama-3.1-8b"), model("deepseek-v3"));
    let gpu = gpu("h200");
    let context = Context::new(&gpu);
    let error = serve(&small, &deployment(&small, "h200", 3, 1), &LOAD, &context).unwrap_err();
    assert!(error.to_string().contains("use one of 1, 2, 4, 8, 16, 32"), "{error}");
    let error = serve(&large, &deployment(&large, "h200", 1, 1), &LOAD, &context).unwrap_err();
    let PlacementError::Memory { missing_gb, needed_gb, .. } = error else { panic!("{error}") };
    assert!((needed_gb - 141.0 - missing_gb).abs() < 0.1);
    let error = serve(&small, &deployment(&small, "h200", 1, 64), &LOAD, &context).unwrap_err();
    assert_eq!(error, PlacementError::Stages { layers: 32, stages: 64 });
    let mut experts = deployment(&small, "h200", 2, 1);
    experts.parallelism.ep = 2;
    assert!(matches!(
        serve(&small, &experts, &LOAD, &context),
        Err(PlacementError::Experts { .. })
    ));
    let long = Load { input: 131_072.0, ..LOAD };
    let error = serve(&small, &deployment(&small, "h200", 1, 1), &long, &context).unwrap_err();
    assert!(matches!(error, PlacementError::Context { .. }), "{error}");
}

#[test]
fn data_outside_hbm_come_over_their_link() {
    let (model, gpu) = (model("llama-3.1-8b"), gpu("h200"));
    let context = Context::new(&gpu);
    let here = deployment(&model, "h200", 1, 1);
    let mut there = here;
    there.placement.weights = Tier::Host;
    let served = serve(&model, &there, &LOAD, &context).unwrap();
    // 14 GB of layers over 64 GB/s are 218 ms.
    assert!((served.serving.tpot_ns / 1e6 - 218.0).abs() < 3.0, "{}", served.serving.tpot_ns);
    assert!(served.memory[0].hbm_bytes < 1e9);
    there.placement.weights = Tier::Nvme;
    assert!(matches!(serve(&model, &there, &LOAD, &context), Err(PlacementError::Tier { .. })));
}

#[test]
fn every_model_runs_on_eight_gpus_and_every_law_holds() {
    for name in [
        "llama-3.1-70b",
        "qwen3-8b",
        "qwen3-30b-a3b",
        "mixtral-8x7b",
        "gpt-oss-120b",
        "deepseek-v3",
    ] {
        for gpu_name in ["h200", "b200"] {
            let (model, gpu) = (model(name), gpu(gpu_name));
            let context = Context::new(&gpu);
            let mut last = 0.0;
            for concurrency in [1.0, 4.0, 16.0, 64.0] {
                let load = Load { concurrency, ..LOAD };
                let mut way = deployment(&model, gpu_name, 8, 1);
                if name == "qwen3-30b-a3b" || name == "deepseek-v3" {
                    way.parallelism.ep = 8;
                    way.parallelism.dp_attention = name == "deepseek-v3";
                }
                let serving = serve(&model, &way, &load, &context)
                    .unwrap_or_else(|e| panic!("{name}: {e}"))
                    .serving;
                assert!(serving.tpot_ns >= serving.tpot_bound_ns, "{name}");
                assert!(serving.ttft_ns >= serving.ttft_bound_ns, "{name}");
                assert!(serving.tpot_bound_ns >= last, "{name} {concurrency}");
                assert!(!serving.is_calibrated);
                last = serving.tpot_bound_ns;
            }
        }
    }
}

#[test]
fn fusion_saves_launches_and_fp8_caches_save_memory() {
    let (model, gpu) = (model("llama-3.1-8b"), gpu("h200"));
    let context = Context::new(&gpu);
    let fused = deployment(&model, "h200", 1, 1);
    let eager = Deployment { fusion: Fusion::Eager, ..fused };
    let whole = Deployment { fusion: Fusion::Megakernel, ..fused };
    let launches =
        |way: &Deployment| serve(&model, way, &LOAD, &context).unwrap().decode.stages[0].launches;
    assert!(launches(&eager) > 3.0 * launches(&fused));
    assert_eq!(launches(&whole), 0.0);
    let narrow = Deployment { kv_dtype: Dtype::Fp8, ..fused };
    let kv = |way: &Deployment| serve(&model, way, &LOAD, &context).unwrap().memory[0].kv_bytes;
    assert_eq!(kv(&fused), 2.0 * kv(&narrow));
}

#[test]
fn suggestions_name_what_rules_the_others_out() {
    let (model, gpu) = (model("deepseek-v3"), gpu("h200"));
    // Without DP attention every GPU keeps the latents of all requests.
    let load = Load { input: 32_768.0, output: 32_768.0, concurrency: 64.0, prefill_gpus: None };
    let way = deployment(&model, "h200", 8, 1);
    let candidates = suggest(&model, &way, &load, 8, &Context::new(&gpu));
    let rates: Vec<f64> = candidates
        .iter()
        .map_while(|c| c.outcome.as_ref().ok().map(|serving| serving.output_tokens_per_s))
        .collect();
    assert!(!rates.is_empty() && rates.is_sorted_by(|a, b| a >= b));
    assert!(
        candidates.len() > rates.len()
            && candidates[rates.len()..].iter().all(|c| c.outcome.is_err())
    );
}

#[test]
fn separate_prefill_leaves_decode_alone() {
    let (model, gpu) = (model("llama-3.1-8b"), gpu("h200"));
    let load = Load { concurrency: 64.0, ..LOAD };
    let way = deployment(&model, "h200", 1, 1);
    let together = serve(&model, &way, &load, &Context::new(&gpu)).unwrap().serving;
    let apart = Load { prefill_gpus: Some(1), ..load };
    let apart = serve(&model, &way, &apart, &Context::new(&gpu)).unwrap().serving;
    assert!(apart.tpot_mixed_ns < together.tpot_mixed_ns);
    assert!(apart.ttft_ns > together.ttft_ns);
    assert_eq!(apart.gpus, 2.0);
}
