//! The model as a whole: known parameter counts, hand-worked steps, and laws that hold for all
//! sizes.

#![allow(clippy::unwrap_used, reason = "an unwrap tells a test failure well enough")]

mod configs;
mod laws;
mod serving;
mod steps;
mod tables;

use rgpu_predict::config::Model;
use rgpu_predict::hw::{Gpu, find};

/// A config of the fixtures.
fn config(name: &str) -> serde_json::Value {
    let path = format!("{}/tests/data/configs/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn model(name: &str) -> Model {
    Model::from_config(&config(name)).unwrap()
}

fn gpu(name: &str) -> Gpu {
    find(name).unwrap().gpu().unwrap()
}
