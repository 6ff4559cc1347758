//! `rgpu model`: predictions, files of other tools, fits and comparisons, without any host.

use std::fs;

use serde_json::Value;

use crate::documents::printed_keeps;
use crate::laptop::{Laptop, status};

/// A config of the crate's fixtures, by its name.
fn config(laptop: &Laptop, name: &str) {
    let path = format!("{}/src/predict/tests/data/configs/{name}.json", env!("CARGO_MANIFEST_DIR"));
    laptop.write("config.json", &fs::read_to_string(path).unwrap());
}

/// The JSON output of a command that succeeds, which keeps to its schema.
fn json(laptop: &Laptop, schema: &str, line: &str) -> Value {
    let output = laptop.run(&format!("model {line} --json"));
    assert_eq!(status(&output), 0, "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let document = serde_json::from_slice(&output.stdout).unwrap();
    printed_keeps(schema, &document);
    document
}

/// What a command that succeeds prints, with all its numbers.
fn printed(laptop: &Laptop, line: &str) -> String {
    let output = laptop.run(line);
    assert_eq!(status(&output), 0, "{line}: {}", String::from_utf8_lossy(&output.stderr));
    format!("$ rgpu {line}\n{}", String::from_utf8_lossy(&output.stdout))
}

/// What a command that fails prints on stderr, and its exit status.
fn refused(laptop: &Laptop, line: &str) -> (i32, String) {
    let output = laptop.run(&format!("model {line}"));
    (status(&output), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_group_of_products_has_the_published_bound_and_every_term_its_source() {
    let laptop = Laptop::new();
    let rows = [80, 176, 128, 72, 64, 248, 96, 160];
    let sizes: Vec<String> = rows.iter().map(|m| format!("{m},4096,7168")).collect();
    laptop.write("sizes.txt", &format!("# m,n,k\n{}\n", sizes.join("\n")));
    let line = "kernel gemm --grouped sizes.txt --dtype nvfp4 --gpu b200";
    let document = json(&laptop, "model-kernel", line);
    let bound = document["bound_ns"].as_f64().unwrap();
    assert!((bound - 18833.0).abs() < 0.5, "{bound}");
    assert_eq!(document["calibration"], "uncalibrated");
    laptop.write("prediction.json", &document.to_string());
    let explained = laptop.show("model explain prediction.json");
    for source in ["GPU MODE", "Q / B", "Getting Started with CUDA Graphs", "n * tau"] {
        assert!(explained.contains(source), "{source} is not in {explained}");
    }
    json(&laptop, "model-terms", "explain prediction.json");
    laptop.write("sizes.txt", "80,4096\n");
    let (exit, text) = refused(&laptop, line);
    assert_eq!(exit, 3);
    assert!(text.contains("sizes.txt:1") && text.contains("is not M,N,K"), "{text}");
}

#[test]
fn a_kernel_of_ones_own_is_predicted_by_its_path() {
    let laptop = Laptop::new();
    let kernel = include_str!("../../kernels/vecadd/kernel.toml");
    laptop.write("mine/kernel.toml", kernel);
    for file in ["vecadd.cu", "reference.c"] {
        let path = format!("{}/kernels/vecadd/{file}", env!("CARGO_MANIFEST_DIR"));
        laptop.write(&format!("mine/{file}"), &fs::read_to_string(path).unwrap());
    }
    let found = json(&laptop, "model-kernel", "kernel ./mine --gpu h200 --problem-sizes n=1048576");
    // Two arrays of 2^20 floats are read, one is written, at 4.8 TB/s.
    let [bound, time] = ["bound_ns", "time_ns"].map(|key| found[key].as_f64().unwrap());
    assert!((bound - 12.0 * 1048576.0 / 4800.0).abs() < 1.0, "{bound}");
    assert!(time > bound && found["calibration"] == "calibrated", "{found}");
    assert!(found["likely_ns"][0].as_f64().unwrap() < time);
    let (exit, text) = refused(&laptop, "kernel mine --gpu h200");
    assert_eq!(exit, 2);
    assert!(text.contains("a slash or an ending: `./mine`"), "{text}");
}

#[test]
fn wrong_names_get_the_nearest_right_one() {
    let laptop = Laptop::new();
    let (exit, text) = refused(&laptop, "kernel gemm --mnk 1,2,3 --gpu h20");
    assert_eq!(exit, 3);
    assert!(text.contains("the nearest is `h200`"), "{text}");
    let (exit, text) = refused(&laptop, "kernel gemm --mnk 1,2,3 --gpu h200 --dtype nvfp5");
    assert_eq!(exit, 2);
    assert!(text.contains("the nearest is `nvfp4`"), "{text}");
    let (exit, text) = refused(&laptop, "coll allreduse --bytes 1M --gpus 8 --gpu h200");
    assert_eq!(exit, 2);
    assert!(text.contains("the nearest is `all_reduce`"), "{text}");
}

#[test]
fn a_measurement_stands_beside_the_bound_at_both_clocks() {
    let laptop = Laptop::new();
    let line = "kernel gemm --mnk 8192,8192,8192 --gpu h200 --measured-us 1600 --clock-mhz 1500";
    let shares = &json(&laptop, "model-kernel", line)["shares"];
    // 1111.3 us at 1830 MHz, 1355.8 us at 1500 MHz.
    assert!((shares["of_bound"].as_f64().unwrap() - 1111.3 / 1600.0).abs() < 1e-3);
    assert!((shares["of_bound_at_clock"].as_f64().unwrap() - 1355.8 / 1600.0).abs() < 1e-3);
    let (exit, text) =
        refused(&laptop, "kernel gemm --mnk 8,8,8 --gpu b200 --measured-us 9 --clock-mhz 1500");
    assert_eq!(exit, 3);
    assert!(text.contains("clock of `b200` is not known"), "{text}");
    let moe = "kernel moe --experts 128,8 --tokens 64 --widths 2048,768 --gpu h200 --measured-us 9";
    let (exit, text) = refused(&laptop, moe);
    assert_eq!(exit, 2);
    assert!(text.contains("there are 2 predictions"), "{text}");
}

#[test]
fn a_server_is_predicted_over_its_load_with_every_layer() {
    let laptop = Laptop::new();
    config(&laptop, "llama-3.1-70b");
    let line = "llm config.json --gpu h200 --tp 4 --pp 2 --sp --concurrency 1..64:x4 --suggest";
    let document = json(&laptop, "model-llm", line);
    let points = document["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    let rate = |at: usize| points[at]["serving"]["output_tokens_per_s"].as_f64().unwrap();
    assert!(rate(0) < rate(1) && rate(1) < rate(3));
    assert_eq!(document["stages"].as_array().unwrap().len(), 2);
    let parts = document["phases"][1]["layers"][0]["parts"].as_array().unwrap();
    let names: Vec<&str> = parts.iter().map(|part| part["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"reduce_scatter") && names.contains(&"gate_up"), "{names:?}");
    assert!(document["suggestions"].as_array().unwrap().len() > 3);
    let text = laptop.show("model layer config.json --gpu h200 --tp 4");
    assert!(text.contains("uncalibrated") && text.contains("all_reduce"), "{text}");
}

#[test]
fn what_cannot_run_is_refused_with_how_much_is_missing() {
    let laptop = Laptop::new();
    config(&laptop, "deepseek-v3");
    let (exit, text) = refused(&laptop, "llm config.json --gpu h200 --tp 4");
    assert_eq!(exit, 3);
    assert!(text.contains("GB too much"), "{text}");
    let (_, text) = refused(&laptop, "llm config.json --gpu h200 --tp 3");
    assert!(text.contains("use one of 1, 2, 4, 8"), "{text}");
    config(&laptop, "llama-3.1-8b");
    let path = laptop.project("config.json");
    let typo = fs::read_to_string(&path).unwrap().replace("num_key_value_heads", "num_kv_heads");
    fs::write(&path, typo).unwrap();
    let (exit, text) = refused(&laptop, "import hf config.json");
    assert_eq!(exit, 3);
    assert!(text.contains("/num_kv_heads"), "{text}");
}

#[test]
fn collectives_are_drawn_by_size_and_follow_a_topology() {
    let laptop = Laptop::new();
    let line = "coll allreduce --bytes 64M --gpus 16 --gpu h200";
    let plain = json(&laptop, "model-collective", line);
    laptop.write("switch.toml", "oversubscription = 4.0\n");
    let narrow = json(&laptop, "model-collective", &format!("{line} --topology switch.toml"));
    let time = |document: &Value| document["time_ns"].as_f64().unwrap();
    assert!(time(&narrow) > time(&plain));
    assert!(plain["sizes"].as_array().unwrap().len() > 6);
    assert!(laptop.show(&format!("model {line}")).contains("###"));
    laptop.write("switch.toml", "oversubscription = 0.5\n");
    let (exit, text) = refused(&laptop, &format!("{line} --topology switch.toml"));
    assert_eq!(exit, 3);
    assert!(text.contains("oversubscription"), "{text}");
}

#[test]
fn a_gpu_is_checked_before_it_is_added() {
    let laptop = Laptop::new();
    let shown = laptop.run("model hw show h200 --toml").stdout;
    let file = String::from_utf8(shown).unwrap().replace("id = \"h200\"", "id = \"h200-lab\"");
    laptop.write("lab.toml", &file.replace("989.4", "1978.9"));
    let output = laptop.run("model hw check lab.toml");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(status(&output), 1);
    assert!(text.contains("sparse figure"), "{text}");
    assert_eq!(refused(&laptop, "hw add lab.toml").0, 3);
    laptop.write("lab.toml", &file);
    assert_eq!(status(&laptop.run("model hw add lab.toml")), 0);
    assert_eq!(refused(&laptop, "hw add lab.toml").0, 3, "it is there already");
    let document = json(&laptop, "model-kernel", "kernel norm --elements 1000 --gpu h200-lab");
    assert_eq!(document["gpu"], "h200-lab");
    let all = json(&laptop, "model-gpus", "hw list");
    assert_eq!(all["gpus"].as_array().unwrap().len(), 16);
    json(&laptop, "model-gpu", "hw show h200-lab");
    assert_eq!(json(&laptop, "model-check", "check")["passed"], true);
}

#[test]
fn results_of_other_tools_become_one_table_and_are_compared() {
    let laptop = Laptop::new();
    config(&laptop, "llama-3.1-8b");
    let row = |concurrency: u32, tpot: f64, date: &str| {
        serde_json::json!({
            "hw": "h200", "tp": 1, "ep": 1, "conc": concurrency, "dp_attention": "false",
            "model": "meta-llama/Llama-3.1-8B", "framework": "vllm", "precision": "bf16",
            "isl": 1024, "osl": 1024, "output_tput_per_gpu": 100.0, "median_ttft": 0.05,
            "median_tpot": tpot, "date": date,
        })
    };
    let first = [row(1, 0.006, "2026-01-05"), row(8, 0.008, "2026-02-05")];
    laptop.write("agg_bmk.json", &serde_json::json!(first).to_string());
    // The same row once more, one of the next month, and one faster than its bound.
    let second =
        [row(8, 0.008, "2026-02-05"), row(64, 0.012, "2026-03-05"), row(64, 1e-6, "2026-03-06")];
    laptop.write("more.json", &serde_json::json!(second).to_string());
    let line = "import inferencemax agg_bmk.json more.json --out rows.csv";
    let imported = json(&laptop, "model-import", line);
    assert_eq!(imported["rows"].as_array().unwrap().len(), 4);
    assert_eq!(imported["duplicates"][0]["file"], "more.json");

    let line = "reconcile rows.csv --gpu h200 --config config.json";
    let compared = json(&laptop, "model-reconcile", line);
    let summary = &compared["summary"];
    assert_eq!(summary["by_quantity"]["tpot"]["n"], 3);
    assert_eq!(summary["too_fast"], 1);
    assert_eq!(summary["trend"].as_array().unwrap().len(), 3);
    let later = json(&laptop, "model-reconcile", &format!("{line} --since 2026-02-01"));
    assert_eq!(later["summary"]["by_quantity"]["tpot"]["n"], 2);
    let (exit, text) = refused(&laptop, "reconcile rows.csv --gpu h200");
    assert_eq!(exit, 7);
    assert!(text.contains("--config config.json"), "{text}");

    // Another file is not overwritten with a table.
    laptop.write("notes.txt", "mine\n");
    assert_eq!(refused(&laptop, "import inferencemax more.json --out notes.txt").0, 2);
    let (exit, text) = refused(&laptop, "import trtllm more.json --gpu h200");
    assert_eq!(exit, 7);
    assert!(text.contains("/world_info/tp_size"), "{text}");
}

#[test]
fn a_fit_is_judged_on_rows_held_out_and_applies_only_inside_them() {
    let laptop = Laptop::new();
    let mut table = "framework,version,device,gemm_dtype,m,n,k,latency\n".to_owned();
    for m in [1, 16, 256, 1024, 4096, 16384] {
        for (n, k) in [(4096, 4096), (8192, 8192), (14336, 4096), (4096, 14336), (7168, 2048)] {
            // 70 % of the products' peak, half of the bandwidth, 4 us a launch.
            let (m, n, k) = (f64::from(m), f64::from(n), f64::from(k));
            let compute = 2.0 * m * n * k / (0.7 * 989.4e12);
            let memory = 2.0 * (m * k + n * k + m * n) / (0.5 * 4.8e12);
            let ms = 1e3 * (compute.max(memory) + 4e-6);
            table += &format!("VLLM,0.24.0,NVIDIA H200,bfloat16,{m},{n},{k},{ms}\n");
        }
    }
    table += "VLLM,0.24.0,NVIDIA H200,bfloat16,8192,8192,8192,0.0001\n";
    laptop.write("tables/gemm_perf.txt", &table);
    assert_eq!(status(&laptop.run("model import aic tables --out rows.csv")), 0);
    let fitted = json(&laptop, "model-fit", "fit rows.csv --gpu h200 --out calib.toml");
    assert_eq!(fitted["too_fast"].as_array().unwrap().len(), 1);
    let kernel = &fitted["calibration"]["kernel"][0];
    assert!(kernel["test"]["n"].as_u64().unwrap() > 0);
    assert!(kernel["test"]["median"].as_f64().unwrap() < 0.15, "{kernel}");
    for share in ["compute", "memory"] {
        let value = kernel["efficiency"][share].as_f64().unwrap();
        assert!(value > 0.4 && value <= 1.0, "{share} {value}");
    }
    let line = "--gpu h200 --calib calib.toml";
    let inside = format!("kernel gemm --mnk 256,4096,4096 {line}");
    assert_eq!(json(&laptop, "model-kernel", &inside)["calibration"], "calibrated");
    let outside = format!("kernel gemm --mnk 1000000,65536,65536 {line}");
    assert_eq!(json(&laptop, "model-kernel", &outside)["calibration"], "uncalibrated");
    let (exit, text) = refused(&laptop, "kernel gemm --mnk 1,2,3 --gpu b200 --calib calib.toml");
    assert_eq!(exit, 3);
    assert!(text.contains("of `h200`, not of `b200`"), "{text}");
    let compared =
        json(&laptop, "model-reconcile", "reconcile rows.csv --gpu h200 --calib calib.toml");
    let calibrated = compared["summary"]["by_quantity"]["time"]["mape"].as_f64().unwrap();
    let plain = json(&laptop, "model-reconcile", "reconcile rows.csv --gpu h200");
    assert!(calibrated < plain["summary"]["by_quantity"]["time"]["mape"].as_f64().unwrap());
}

#[test]
fn a_config_shows_what_was_read_from_it() {
    let laptop = Laptop::new();
    config(&laptop, "gpt-oss-120b");
    let document = json(&laptop, "model-config", "import hf config.json");
    assert_eq!(document["parameters"], 116_829_156_672.0);
    assert_eq!(document["expert_dtype"], "mxfp4");
    assert_eq!(document["kinds"].as_array().unwrap().len(), 2);
}

#[test]
fn a_layer_with_narrow_factors_quantizes_its_activations_first() {
    let laptop = Laptop::new();
    let line = "kernel gemm --mnk 4096,4096,4096 --dtype fp8 --gpu h200";
    let plain = json(&laptop, "model-kernel", line);
    let layer = json(&laptop, "model-kernel", &format!("{line} --quantize"));
    assert_eq!(layer["op"], "quantized_gemm");
    assert_eq!(layer["bound_ns"], plain["bound_ns"]);
    let terms = layer["terms"].as_array().unwrap();
    let quantize = terms.iter().find(|term| term["name"] == "quantize").unwrap();
    // 4096 rows of 2 passes: 2048 elements of 2 and 1 bytes over 4.8 TB/s.
    let expected = 4096.0 * 4096.0 * 3.0 / 4.8e12 * 1e9;
    assert!((quantize["ns"].as_f64().unwrap() - expected).abs() < 1e-6, "{quantize}");
    let (exit, text) = refused(&laptop, "kernel gemm --mnk 8,8,8 --quantize --gpu h200");
    assert_eq!(exit, 2);
    assert!(text.contains("not narrower than bf16"), "{text}");
}

/// A run whose kernel is a product with counted work, started on `day`.
fn run_of_a_product(laptop: &Laptop, id: &str, day: &str, median_ns: f64) {
    let n = 4096.0_f64;
    let rate = |count: f64| count / median_ns * 1e9;
    let profile = serde_json::json!({
        "schema": "rgpu.profile/1",
        "run": {
            "id": id, "started": format!("{day}T10:00:00Z"), "seconds": 1.0, "mode": "bench",
            "remote": "lab", "rgpu": "0.1.0",
        },
        "device": "NVIDIA H200",
        "kernel": {"name": "product", "language": "cuda"},
        "rung": "bench",
        "cases": [{
            "name": "square",
            "sizes": [{"m": 4096, "n": 4096, "k": 4096}],
            "timing": {
                "median_ns": median_ns, "ci95_ns": [median_ns, median_ns], "samples": 30,
                "min_ns": median_ns, "mad_ns": 0.0, "clock": "cuda_events",
                "flops_per_s": rate(2.0 * n * n * n), "bytes_per_s": rate(3.0 * 2.0 * n * n),
            },
        }, {
            "name": "uncounted",
            "sizes": [{"m": 8}],
            "timing": {
                "median_ns": 1000.0, "ci95_ns": [1000.0, 1000.0], "samples": 30,
                "min_ns": 1000.0, "mad_ns": 0.0, "clock": "cuda_events",
            },
        }],
    });
    let run = serde_json::json!({
        "schema": "rgpu.run/1", "id": id, "started": format!("{day}T10:00:00Z"),
        "title": "profile product", "command": "profile", "argv": [], "remote": "lab",
        "state": "done",
    });
    laptop.write(&format!("saved/{id}/run.json"), &run.to_string());
    laptop.write(&format!("saved/{id}/profile.json"), &profile.to_string());
}

#[test]
fn runs_are_compared_like_tables() {
    let laptop = Laptop::new();
    run_of_a_product(&laptop, "20261101-a", "2026-11-01", 200_000.0);
    run_of_a_product(&laptop, "20261120-b", "2026-11-20", 250_000.0);
    let line = "reconcile saved/20261101-a saved/20261120-b --gpu h200";
    let document = json(&laptop, "model-reconcile", line);
    let pairs = document["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 2);
    assert_eq!(
        (&pairs[0]["row"]["op"], &pairs[0]["row"]["dtype"]),
        (&"gemm".into(), &"bf16".into())
    );
    // 138.9 us of compute at the peak.
    assert!((pairs[0]["bound_ns"].as_f64().unwrap() - 138_911.5).abs() < 1.0, "{}", pairs[0]);
    let late = json(&laptop, "model-reconcile", &format!("{line} --since 2026-11-02"));
    assert_eq!(late["pairs"][0]["row"]["source"], "20261120-b");
    assert_eq!(late["pairs"].as_array().unwrap().len(), 1);
    let output = laptop.run(&format!("model {line}"));
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(notes.contains("case `uncounted`: its kernel.toml has no `[work]`"), "{notes}");
    let (exit, text) = refused(&laptop, "fit saved/20261101-a --gpu h200 --until 2026-01-01");
    assert_eq!(exit, 7, "{text}");
    assert!(text.contains("none of 0 rows"), "{text}");
    let (_, text) = refused(&laptop, "fit saved/20261101-a --gpu h200");
    assert!(text.contains("no kind has enough rows"), "{text}");
    let (_, text) = refused(&laptop, "reconcile nowhere --gpu h200");
    assert!(text.contains("nowhere"), "{text}");
}

#[test]
fn a_model_card_is_read_and_what_it_does_not_say_is_named() {
    let laptop = Laptop::new();
    let card = "---\nlicense: apache-2.0\nbase_model: lab/Model-8B-Base\ncolour: red\n---\n\
        # Model 8B\n\n- Number of Parameters: 8.2B\n- Number of Layers: 36\n\
        - Context Length: 32,768 natively\n";
    laptop.write("card.md", card);
    let document = json(&laptop, "model-card", "import card card.md");
    assert_eq!((&document["parameters"], &document["layers"]), (&8.2e9.into(), &36.into()));
    assert_eq!(document["missing"], serde_json::json!(["dtype"]));
    assert_eq!(document["unknown"], serde_json::json!(["colour"]));
    insta::assert_snapshot!(laptop.show("model import card card.md"));
    laptop.write("card.md", &card.replace("36", "36\n- Layers: 40"));
    let (exit, text) = refused(&laptop, "import card card.md");
    assert_eq!(exit, 7);
    assert!(text.contains("line 10 has layers 40, but line 9 has 36"), "{text}");
}

#[test]
fn a_datasheet_is_completed_with_what_a_host_tells() {
    let laptop = Laptop::new();
    let shown = laptop.run("model hw show h200 --toml").stdout;
    let file = String::from_utf8(shown).unwrap().replace("id = \"h200\"", "id = \"h200-lab\"");
    laptop.write("sheet.toml", &file.replace("sm = 90\n", ""));
    let gpu = |name: &str, bytes: u64| {
        serde_json::json!({
            "schema": "rgpu.doctor/1",
            "host": {"driver": "580.95", "gpus": [{
                "index": 0, "name": name, "uuid": "GPU-1", "sm": 90, "memory_bytes": bytes,
                "max_sm_mhz": 1980,
            }]},
        })
        .to_string()
    };
    laptop.write("doctor.json", &gpu("NVIDIA H200", 80_000_000_000));
    let line = "hw add sheet.toml --doctor doctor.json";
    let (exit, text) = refused(&laptop, line);
    assert_eq!(exit, 3);
    assert!(text.contains("the datasheet says 141.0 GB, the host 80.0 GB"), "{text}");
    laptop.write("doctor.json", &gpu("NVIDIA H200", 150_754_820_096));
    assert_eq!(status(&laptop.run(&format!("model {line}"))), 0);
    let text = laptop.show("model hw show h200-lab");
    assert!(text.contains("rgpu doctor: NVIDIA H200, driver 580.95"), "{text}");
    assert!(text.contains("measured"), "{text}");
    laptop.write("doctor.json", "{}");
    assert_eq!(refused(&laptop, &format!("{line} --force")).0, 7);
}

/// A calibration in which 80 % of the held-out products took 0.9 to 1.2 times their prediction.
pub(crate) const CALIBRATION: &str = r#"
schema = "rgpu.calibration/1"
gpu = "h200"

[[kernel]]
op = "gemm"
dtype = "bf16"
efficiency = { compute = 0.8, memory = 0.75, launch_ns = 3000.0 }
active_bounds = []
flops = [1.0, 1e15]
bytes = [1.0, 1e12]
train = { n = 30, mape = 0.1, median = 0.1, p90 = 0.2, bias = 0.0 }
test = { n = 10, mape = 0.1, median = 0.1, p90 = 0.2, bias = 0.0, measured_over_predicted = [0.9, 1.2] }

[[collective]]
op = "all_reduce"
gpus = 8
regimes = [{ bytes = [1.0, 1e12], alpha_ns = 20000.0, bandwidth = 0.8 }]
active_bounds = []
train = { n = 30, mape = 0.1, median = 0.1, p90 = 0.2, bias = 0.0 }
test = { n = 10, mape = 0.1, median = 0.1, p90 = 0.2, bias = 0.0, measured_over_predicted = [0.8, 1.5] }
"#;

#[test]
fn a_calibrated_prediction_has_its_likely_range() {
    let laptop = Laptop::new();
    laptop.write("calib.toml", CALIBRATION);
    let line = "kernel gemm --mnk 4096,4096,4096 --gpu h200";
    let uncalibrated = json(&laptop, "model-kernel", &format!("{line} --calib none"));
    assert!(uncalibrated.get("likely_ns").is_none());
    // The calibration that ships.
    assert!(json(&laptop, "model-kernel", line)["likely_ns"].is_array());
    let document = json(&laptop, "model-kernel", &format!("{line} --calib calib.toml"));
    let time = document["time_ns"].as_f64().unwrap();
    let likely: Vec<f64> = serde_json::from_value(document["likely_ns"].clone()).unwrap();
    assert!((likely[0] / time - 0.9).abs() < 1e-9 && (likely[1] / time - 1.2).abs() < 1e-9);
    let line = "coll allreduce --bytes 64M --gpus 8 --gpu h200 --calib calib.toml";
    let document = json(&laptop, "model-collective", line);
    let size = &document["sizes"][4];
    let likely: Vec<f64> = serde_json::from_value(size["likely_ns"].clone()).unwrap();
    assert!((likely[1] / size["time_ns"].as_f64().unwrap() - 1.5).abs() < 1e-9, "{size}");
    insta::assert_snapshot!(printed(&laptop, &format!("model {line}")));
}

#[test]
fn the_terminal_shows_predictions() {
    let laptop = Laptop::new();
    config(&laptop, "llama-3.1-70b");
    laptop.write("other.toml", "gpu = \"b200\"\ntp = 2\n");
    laptop.write("calib.toml", CALIBRATION);
    let kernel = "model kernel gemm --mnk 80,4096,7168 --dtype nvfp4 --gpu b200";
    let saved = laptop.run(&format!("{kernel} --json")).stdout;
    laptop.write("p.json", &String::from_utf8(saved).unwrap());
    for (name, line) in [
        ("kernel", kernel),
        ("explain", "model explain p.json"),
        (
            "measured kernel",
            "model kernel gemm --mnk 8192,8192,8192 --gpu h200 --measured-us 1600 --clock-mhz 1500",
        ),
        ("calibrated kernel", "model kernel gemm --mnk 80,4096,7168 --gpu h200 --calib calib.toml"),
        (
            "quantized kernel",
            "model kernel gemm --mnk 4096,4096,4096 --dtype fp8 --quantize --gpu h200",
        ),
        (
            "attention",
            "model kernel attention --heads 32 --kv-heads 8 --keys 4096 --batch 8 --gpu h200",
        ),
        ("moe", "model kernel moe --experts 128,8 --tokens 64 --widths 2048,768 --gpu h200"),
        ("llm", "model llm config.json --gpu h200 --tp 4 --concurrency 1..64:x4 --suggest"),
        ("layer", "model layer config.json --gpu h200 --tp 4"),
        ("comparison", "model llm config.json --gpu h200 --tp 4 --compare other.toml"),
        ("config", "model import hf config.json"),
        ("collective", "model coll allreduce --bytes 64M --gpus 8 --gpu h200"),
        ("gpus", "model hw list"),
        ("gpu", "model hw show h200"),
        ("check", "model check"),
    ] {
        insta::assert_snapshot!(
            format!("terminal_{}", name.replace(' ', "_")),
            printed(&laptop, line)
        );
    }
}

/// Two steps as `tests/gpu/decoder_times.py` writes them: one in a CUDA graph, one without.
#[test]
fn steps_of_a_decoder_are_compared_with_their_launches() {
    let laptop = Laptop::new();
    config(&laptop, "llama-3.1-8b");
    laptop.write(
        "steps.csv",
        "kind,source,gpu,op,dtype,batch,queries,keys,model,fusion,launch,launches,launch_ns,time_ns\n\
         step,made,h200,decode,bf16,8,1,2048,llama,eager,graph,1300,,6000000\n\
         step,made,h200,decode,bf16,8,1,2048,llama,eager,stream,1300,9000,12000000\n\
         step,made,h200,decode,bf16,8,1,2048,llama,eager,stream,1300,,12000000\n\
         step,made,h200,prefill,bf16,1,1024,1024,llama,fused,graph,,,30000000\n",
    );
    let line = "reconcile steps.csv --gpu h200 --config config.json";
    let compared = json(&laptop, "model-reconcile", line);
    let pairs = compared["pairs"].as_array().unwrap();
    let quantities: Vec<&str> =
        pairs.iter().map(|pair| pair["quantity"].as_str().unwrap()).collect();
    assert_eq!(quantities, ["decode", "eager_decode", "prefill"]);
    // 41 kernels a layer, and those of embedding, rotation, last norm and logits.
    let launches = |at: usize| pairs[at]["launches"].as_f64().unwrap();
    assert!((32.0 * 41.0..32.0 * 50.0).contains(&launches(0)), "{}", launches(0));
    assert!(launches(2) < 0.3 * launches(0), "{} {}", launches(2), launches(0));
    // Without a graph the host is slower than the GPU: 9 us for each launch.
    let predicted = pairs[1]["predicted_ns"].as_f64().unwrap();
    assert!((predicted / (launches(1) * 9000.0) - 1.0).abs() < 1e-9, "{predicted}");
    let unpredicted = compared["unpredicted"][0]["reason"].as_str().unwrap();
    assert_eq!(unpredicted, "a step without a CUDA graph needs launch_ns");
    let shown = laptop.show(&format!("model {line}"));
    assert!(shown.contains("eager decode") && shown.contains("1300"), "{shown}");
    let (exit, text) = refused(&laptop, "reconcile steps.csv --gpu h200");
    assert_eq!(exit, 7);
    assert!(text.contains("steps need --config"), "{text}");
}

/// NCCL 2.28.3 on two H200 with NVLS off: `rgpu doctor --collectives` on 2026-11-27.
#[test]
fn collectives_measured_on_two_h200_are_within_a_tenth_on_sizes_that_the_fit_has_not_seen() {
    let laptop = Laptop::new();
    let rows = format!("{}/tests/fixtures/model/h200x2-nccl.csv", env!("CARGO_MANIFEST_DIR"));
    let fit = json(&laptop, "model-fit", &format!("fit {rows} --gpu h200 --out calib.toml"));
    let collectives = fit["calibration"]["collective"].as_array().unwrap();
    assert_eq!(collectives.len(), 4);
    for collective in collectives {
        let median = collective["test"]["median"].as_f64().unwrap();
        assert!(median <= 0.1, "{}: {median}", collective["op"]);
    }
}

/// Steps of transformers' LlamaForCausalLM and kernels of torch 2.11 on an H200, driver 580.159.04:
/// tests/gpu/decoder_times.py and kernel_times.py on 2026-11-27.
#[test]
fn launches_of_a_measured_decoder_are_within_an_eighth_and_its_long_prompts_within_a_tenth() {
    let laptop = Laptop::new();
    let folder = format!("{}/tests/fixtures/model/h200-decoder", env!("CARGO_MANIFEST_DIR"));
    json(&laptop, "model-fit", &format!("fit {folder}/kernels.csv --gpu h200 --out calib.toml"));
    let line = format!(
        "reconcile {folder}/steps.csv --gpu h200 --config {folder}/llama-4096.json \
         --model llama-4096 --calib calib.toml"
    );
    let compared = json(&laptop, "model-reconcile", &line);
    let pairs = compared["pairs"].as_array().unwrap();
    let mut prompts = 0;
    for pair in pairs.iter().filter(|pair| pair["row"]["launch"] == "graph") {
        let row = &pair["row"];
        let off = |predicted: &serde_json::Value, measured: &serde_json::Value| {
            (predicted.as_f64().unwrap() / measured.as_f64().unwrap() - 1.0).abs()
        };
        assert!(off(&pair["launches"], &row["launches"]) <= 0.125, "{pair}");
        if row["op"] == "prefill" && row["keys"].as_f64().unwrap() >= 2048.0 {
            prompts += 1;
            assert!(off(&pair["predicted_ns"], &row["time_ns"]) <= 0.1, "{pair}");
        }
    }
    assert_eq!((pairs.len(), prompts), (30, 2));
}

/// The same rows: the small kernels of eager modules are fitted from steps of two models, and the
/// third is predicted.
#[test]
fn a_measured_decoder_is_predicted_from_the_steps_of_others() {
    let laptop = Laptop::new();
    let folder = format!("{}/tests/fixtures/model/h200-decoder", env!("CARGO_MANIFEST_DIR"));
    let line = format!(
        "fit {folder}/kernels.csv {folder}/steps.csv --gpu h200 --config {folder}/llama-1024.json \
         --config llama-2048={folder}/llama-2048.json --out calib.toml"
    );
    let fit = json(&laptop, "model-fit", &line);
    let kernels = fit["calibration"]["kernel"].as_array().unwrap();
    let eager = kernels.iter().find(|kernel| kernel["op"] == "eager_module").unwrap();
    assert!(eager["test"]["n"].as_u64().unwrap() > 0, "{eager}");
    let line = format!(
        "reconcile {folder}/steps.csv --gpu h200 --config {folder}/llama-4096.json \
         --model llama-4096 --calib calib.toml"
    );
    let compared = json(&laptop, "model-reconcile", &line);
    for quantity in ["prefill", "decode"] {
        let median = compared["summary"]["by_quantity"][quantity]["median"].as_f64().unwrap();
        assert!(median <= 0.15, "{quantity}: {median}");
    }
}

/// Kernels of torch 2.11 on an H200, driver 580.159.04: `tests/gpu/run model` on 2026-11-24.
#[test]
fn kernels_measured_on_an_h200_are_within_a_tenth_on_rows_that_the_fit_has_not_seen() {
    let laptop = Laptop::new();
    let rows = format!("{}/tests/fixtures/model/h200-kernels.csv", env!("CARGO_MANIFEST_DIR"));
    let fit = json(&laptop, "model-fit", &format!("fit {rows} --gpu h200 --out calib.toml"));
    let mut held = Vec::new();
    for kernel in fit["calibration"]["kernel"].as_array().unwrap() {
        let (op, dtype) = (kernel["op"].as_str().unwrap(), kernel["dtype"].as_str().unwrap());
        let median = kernel["test"]["median"].as_f64().unwrap();
        assert!(median <= 0.1, "{op} {dtype}: {median}");
        held.push(format!("{op} {dtype}"));
    }
    assert_eq!(held, ["gemm bf16", "gemm fp8", "attention_prefill bf16", "attention_decode bf16"]);
}
