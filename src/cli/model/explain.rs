//! `rgpu model explain`: every term of a saved prediction, with its formula, values and sources.

use std::path::PathBuf;

use clap::Args;
use rgpu_predict::document::{PartTerms, TermsDocument};
use serde_json::Value;

use super::input;
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::duration;

/// Show every term of a prediction that was saved with --json, with formula and source
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ExplainArgs {
    /// A file with the output of `rgpu model kernel`, `layer`, `llm` or `coll` with --json
    pub prediction: PathBuf,

    /// Only terms of parts with this in their name, for example `gate_up`
    #[arg(long, value_name = "TEXT")]
    pub part: Option<String>,
}

pub(super) fn run(app: &App, args: &ExplainArgs) -> Result<Status> {
    let document: Value = rgpu_run::saved_json::any_from_slice(&input::read(&args.prediction)?)
        .map_err(|error| {
            Failure::new(Exit::Artifact, "not_json", "the file is not JSON")
                .file(args.prediction.display())
                .cause(error)
        })?;
    let mut found = Vec::new();
    collect(&document, &mut Vec::new(), &mut found);
    if let Some(part) = &args.part {
        found.retain(|(path, _)| path.contains(part.as_str()));
    }
    if found.is_empty() {
        let what = match &args.part {
            Some(part) => format!("no part of the prediction has `{part}` in its name"),
            None => "the file has no terms".to_owned(),
        };
        return Err(Failure::new(Exit::Artifact, "no_terms", what)
            .file(args.prediction.display())
            .hint("save a prediction: add `--json > FILE` to `rgpu model kernel`"));
    }
    if app.global.json {
        let parts = found.into_iter();
        let parts = parts
            .map(|(part, terms)| PartTerms { part, terms: terms.into_iter().cloned().collect() });
        let schema = "rgpu.model-terms/1";
        app.print_json(&TermsDocument { schema, parts: parts.collect() })?;
        return Ok(0);
    }
    for (path, terms) in found {
        if !path.is_empty() {
            app.print(&format!("{path}\n"));
        }
        for term in terms {
            app.print(&term_text(term));
        }
        app.print("\n");
    }
    Ok(0)
}

/// All lists of terms below `value`, with the names of the parts above them.
fn collect<'a>(
    value: &'a Value,
    names: &mut Vec<&'a str>,
    found: &mut Vec<(String, Vec<&'a Value>)>,
) {
    match value {
        Value::Object(object) => {
            let name =
                ["phase", "subject", "name"].iter().find_map(|key| object.get(*key)?.as_str());
            names.extend(name);
            if let Some(terms) = object.get("terms").and_then(Value::as_array) {
                found.push((names.join(" / "), terms.iter().collect()));
            }
            for (_, inner) in object.iter().filter(|(key, _)| *key != "terms") {
                collect(inner, names, found);
            }
            if name.is_some() {
                names.pop();
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| collect(inner, names, found)),
        _ => {}
    }
}

fn term_text(term: &Value) -> String {
    let word = |key: &str| term.get(key).and_then(Value::as_str).unwrap_or_default();
    let ns = term.get("ns").and_then(Value::as_f64).unwrap_or_default();
    let counts = term.get("counts").and_then(Value::as_bool).unwrap_or(true);
    let mark = if counts { "" } else { ", not in the sum" };
    let mut text = format!("  {} = {}: {}{mark}\n", word("name"), duration(ns), word("formula"));
    for input in term.get("inputs").and_then(Value::as_array).into_iter().flatten() {
        let word = |key: &str| input.get(key).and_then(Value::as_str);
        let value = input.get("value").and_then(Value::as_f64).unwrap_or_default();
        let shown = if value.abs() >= 1e6 { format!("{value:.6e}") } else { format!("{value}") };
        let unit = word("unit").unwrap_or_default();
        text += &format!("      {} = {shown} {unit}", word("symbol").unwrap_or_default());
        text += &word("source").map(|source| format!("  ({source})")).unwrap_or_default();
        text.push('\n');
    }
    text
}
