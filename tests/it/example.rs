//! The full example of a profile in `schemas/`: a real run on an H200 (driver 580.159.04, ncu
//! 2025.3.1, CUDA 13.0) of
//! `rgpu profile --kernel vecadd --mode ncu --section LaunchStats --metrics dram__bytes_read.sum,nosuch__metric.sum --remote h200 --json`,
//! with the host's name and ids and the user's home replaced.

use rgpu_model::Profile;
use rgpu_report::{Style, report};

fn example() -> (serde_json::Value, Profile) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/profile.example.json");
    let text = std::fs::read_to_string(path).unwrap();
    (serde_json::from_str(&text).unwrap(), serde_json::from_str(&text).unwrap())
}

/// `value` without what the model leaves out when it writes: absent options.
fn without_nulls(value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(map) => map
            .iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k.clone(), without_nulls(v)))
            .collect(),
        serde_json::Value::Array(list) => list.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[test]
fn the_example_holds_exactly_what_the_model_knows() {
    let (written, profile) = example();
    let again = serde_json::to_value(&profile).unwrap();
    assert_eq!(without_nulls(&again), without_nulls(&written));
}

#[test]
fn every_key_of_the_example_stands_in_the_schema() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/profile.json");
    let schema: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (written, _) = example();
    let known = &schema["properties"];
    for key in written.as_object().unwrap().keys() {
        assert!(known.get(key).is_some(), "`{key}` is not in the schema");
    }
}

#[test]
fn the_example_reads_well_on_a_terminal() {
    let (_, profile) = example();
    let text = report("table").unwrap().text(&(&profile).into(), &Style::default());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn the_example_reads_well_as_markdown() {
    let (_, profile) = example();
    insta::assert_snapshot!(
        report("markdown").unwrap().text(&(&profile).into(), &Style::default())
    );
}
