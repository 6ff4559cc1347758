//! The document of `rgpu layout … --json`, and how results look as text.

use rgpu_layout::{Proof, Rejection};
use schemars::JsonSchema;
use serde::Serialize;

use super::algebra::Operation;
use super::check::AccessCheck;
use super::cta::BlockMapping;
use super::diff::SnapshotDiff;
use super::epilogue::EpilogueResult;
use super::equal::PairEquality;
use super::eval::Evaluation;
use super::insights::DumpInsights;
use super::scale::ScaleResult;
use super::tmem::TmemResult;
use super::umma::UmmaResult;
use crate::cli::support::app::App;
use rgpu_model::error::Result;

/// The output of `layout … --json` (`rgpu.layout/1`); `dump` and `snapshot` have documents of their
/// own.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct LayoutDocument {
    /// Name and version of this schema: `rgpu.layout/1`.
    schema: &'static str,
    #[serde(flatten)]
    result: LayoutResult,
}

/// The result of a command.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub(super) enum LayoutResult {
    /// `layout eval`.
    Eval(Evaluation),
    /// `layout compose`.
    Compose(Operation),
    /// `layout complement`.
    Complement(Operation),
    /// `layout divide`.
    Divide(Operation),
    /// `layout product`.
    Product(Operation),
    /// `layout inverse`.
    Inverse(Operation),
    /// `layout coalesce`.
    Coalesce(Operation),
    /// `layout filter`.
    Filter(Operation),
    /// `layout recast`.
    Recast(Operation),
    /// `layout equal`.
    Equal(PairEquality),
    /// `layout check`.
    Check(AccessCheck),
    /// `layout sf`.
    Sf(ScaleResult),
    /// `layout tmem`.
    Tmem(TmemResult),
    /// `layout umma`.
    Umma(UmmaResult),
    /// `layout epilogue`.
    Epilogue(EpilogueResult),
    /// `layout cta`.
    Cta(BlockMapping),
    /// `layout insights`.
    Insights(DumpInsights),
    /// `layout diff`.
    Diff(SnapshotDiff),
}

/// Prints a result: the document with `--json`, otherwise the text.
pub(super) fn print(app: &App, result: LayoutResult, text: &str) -> Result<()> {
    if app.global.json {
        return app.print_json(&LayoutDocument { schema: "rgpu.layout/1", result });
    }
    app.print(text);
    Ok(())
}

/// A line with a name and a value.
pub(super) fn line(name: &str, value: impl std::fmt::Display) -> String {
    format!("  {name:<12} {value}\n")
}

/// The line of a proof.
pub(super) fn proof_line(proof: &Proof) -> String {
    let method = match proof.method {
        rgpu_layout::Method::NormalForm => "normal form".to_owned(),
        rgpu_layout::Method::Algebraic => "algebraic".to_owned(),
        rgpu_layout::Method::Enumeration => format!("enumeration of {} points", proof.points),
    };
    line("proof", format!("{}; by {method}", proof.claim))
}

/// Why there is no result, and what to take in its place.
pub(super) fn rejection_text(rejection: &Rejection) -> String {
    let mut text = line("reason", rejection.reason());
    if let Some(witness) = &rejection.witness {
        let coordinate: Vec<String> = witness.coordinate.iter().map(i64::to_string).collect();
        let value = |value: Option<i64>| value.map_or("nothing".to_owned(), |v| v.to_string());
        text += &line(
            "witness",
            format!(
                "at ({}): {} is required, a candidate has {}",
                coordinate.join(","),
                value(witness.required),
                value(witness.candidate)
            ),
        );
    }
    if let Some(nearest) = &rejection.nearest {
        text += &line("nearest", format!("{nearest} has a result"));
    }
    if let Some(enlarged) = &rejection.enlarged {
        let mask = "as the outer layout has a result; mask the coordinates that it adds";
        text += &line("enlarged", format!("{enlarged} {mask}"));
    }
    text + &match &rejection.proof {
        Some(proof) => proof_line(proof),
        None => line("proof", "it is not proved that there is no result"),
    }
}
