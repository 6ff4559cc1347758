//! `rgpu doctor --collectives` on a played host: its Python writes times of which latency and rate
//! are known.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::documents::printed_keeps;
use crate::fake_host::FakeHost;
use crate::laptop::{Laptop, status};

/// α = 20 µs, and a bus bandwidth of 300 GB/s.
const ALPHA_NS: f64 = 20_000.0;
const BUS: f64 = 300e9;

/// What the program writes for two H200.
fn result() -> Value {
    let volumes =
        [("all_reduce", 1.0), ("all_gather", 0.5), ("reduce_scatter", 0.5), ("all_to_all", 0.5)];
    let row = |(op, volume): (&str, f64), power: u32| {
        let bytes = f64::from(1_u32 << power);
        let time = ALPHA_NS + bytes * volume / BUS * 1e9;
        json!({"op": op, "bytes": bytes, "loops_ns": [time * 1.1, time, time * 0.99]})
    };
    let rows: Vec<Value> =
        volumes.iter().flat_map(|one| (10..30).map(|power| row(*one, power))).collect();
    json!({
        "ranks": 2, "nvls_setting": "0", "gpu": "NVIDIA H200", "version": 22705,
        "library": "/opt/nvidia/nccl/lib/libnccl.so.2", "rows": rows,
        "log": ["h:1:9 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels"],
    })
}

/// A host with two GPUs whose Python writes this result.
fn host(result: &Value) -> Laptop {
    let laptop = Laptop::new();
    FakeHost::new(&laptop).gpus(2);
    let file = laptop.path("result.json");
    fs::write(&file, result.to_string()).unwrap();
    let python = laptop.path("h200/bin/python3");
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\n*collectives.py) echo \"$@\" > '{}'; cp '{}' \"$3\" ;;\n\
         *) exec /usr/bin/python3 \"$@\" ;;\nesac\n",
        laptop.path("arguments").display(),
        file.display()
    );
    fs::write(&python, script).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    laptop
}

/// A failing command's exit status and error.
fn error(laptop: &Laptop, line: &str) -> (i32, Value) {
    let output = laptop.run(line);
    let shown = laptop.shown(line, &output);
    let value: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {shown}"));
    (status(&output), value["error"].clone())
}

#[test]
fn times_of_collectives_become_a_table_and_a_calibration() {
    let laptop = host(&result());
    let line = "doctor h200 --collectives --out calib.toml --out rows.csv";
    let shown = laptop.show(line);
    insta::assert_snapshot!(shown);
    let arguments = fs::read_to_string(laptop.path("arguments")).unwrap();
    assert!(arguments.trim_end().ends_with(" 2 collectives.json"), "NVLS stays off: {arguments}");
    // The cost model predicts what was measured: 20 µs + 64 MiB / 300 GB/s.
    let line = "model coll allreduce --bytes 64M --gpus 2 --gpu h200 --calib calib.toml --json";
    let output = laptop.run(line);
    let predicted: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", laptop.shown(line, &output)));
    let time = predicted["time_ns"].as_f64().unwrap();
    let right = ALPHA_NS + 67_108_864.0 / BUS * 1e9;
    assert!((time / right - 1.0).abs() < 0.02, "{time} {right}");
    assert_eq!(predicted["calibration"], "calibrated");
    let fitted = laptop.show("model fit rows.csv --gpu h200 --out fitted.toml");
    assert!(fitted.ends_with("status 0\n"), "{fitted}");
    let text = |name: &str| fs::read_to_string(laptop.project(name)).unwrap();
    assert_eq!(text("fitted.toml"), text("calib.toml"));
    laptop.wait_until_quiet();
}

#[test]
fn the_document_keeps_its_schema_and_an_unknown_gpu_is_fitted_too() {
    let mut other = result();
    other["gpu"] = "NVIDIA L77".into();
    let laptop = host(&other);
    let line = "doctor h200 --collectives --nvls --gpus 0,1 --json";
    let output = laptop.run(line);
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", laptop.shown(line, &output)));
    printed_keeps("collectives", &document);
    assert_eq!((&document["nvls"], &document["nccl"]), (&"off".into(), &"2.27.5".into()));
    let arguments = fs::read_to_string(laptop.path("arguments")).unwrap();
    assert!(arguments.trim_end().ends_with(" --nvls"), "{arguments}");
    for collective in document["collectives"].as_array().unwrap() {
        let bus = collective["sizes"][19]["bus_bandwidth"].as_f64().unwrap();
        // 20 of 915 µs are latency.
        assert!((bus / BUS - 1.0).abs() < 0.03, "{bus}");
        let alpha = collective["fit"][0]["alpha_ns"].as_f64().unwrap();
        assert!((alpha / ALPHA_NS - 1.0).abs() < 0.03, "{alpha}");
    }
    let (exit, error) = error(&laptop, "doctor h200 --collectives --out calib.toml --json");
    assert_eq!((exit, &error["code"]), (3, &"unknown_gpu".into()), "{error:#}");
}

#[test]
fn a_host_that_cannot_run_collectives_says_why() {
    let trouble = |code: &str| {
        let text = "there is no libnccl.so.2";
        json!({"ranks": 2, "trouble": {"code": code, "text": text, "rank": 1}})
    };
    let line = "doctor h200 --collectives --json";
    for (code, exit, shown) in [
        ("no_nccl", 5, "no_nccl"),
        ("wrong_result", 5, "wrong_result"),
        ("died", 5, "nccl_failed"),
        ("no_driver", 4, "no_driver"),
    ] {
        let laptop = host(&trouble(code));
        let (found, error) = error(&laptop, line);
        assert_eq!((found, &error["code"]), (exit, &shown.into()), "{error:#}");
        assert_eq!(error["place"]["host"], "h200");
    }
    let laptop = Laptop::new();
    FakeHost::new(&laptop).gpus(1);
    let (exit, one) = error(&laptop, line);
    assert_eq!((exit, &one["code"]), (4, &"one_gpu".into()), "{one:#}");
    let (exit, few) = error(&laptop, "doctor h200 --collectives --gpus 3 --json");
    assert_eq!((exit, &few["code"]), (4, &"no_such_gpu".into()), "{few:#}");
    let laptop = Laptop::new();
    FakeHost::with(&laptop, &["nvidia-smi"]).mischief("nvidia-smi no-devices\n");
    let (exit, none) = error(&laptop, line);
    assert_eq!((exit, &none["code"]), (4, &"no_such_gpu".into()), "{none:#}");
    assert_eq!(status(&laptop.run("doctor h200 --nvls")), 2);
    assert_eq!(status(&laptop.run("doctor h200 --collectives --out calib.txt")), 2);
}

#[test]
fn the_program_itself_ends_where_there_is_no_driver() {
    if std::path::Path::new("/dev/nvidia0").exists() {
        eprintln!("skipped: this machine has a GPU");
        return;
    }
    let laptop = Laptop::new();
    FakeHost::new(&laptop).gpus(2);
    let (exit, error) = error(&laptop, "doctor h200 --collectives --json");
    assert_eq!((exit, &error["code"]), (4, &"no_driver".into()), "{error:#}");
    assert!(error["cause"].as_str().unwrap().contains("libcuda.so.1"), "{error:#}");
    laptop.wait_until_quiet();
}
