//! `layout insights`: what stands out in dumped layouts, and whether an epilogue fits together.

use std::path::PathBuf;

use clap::Args;
use rgpu_layout::{EpilogueCheck, LayoutInsight, epilogue_checks, insight};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print};
use super::input::LimitArgs;
use super::named;
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct InsightsArgs {
    /// A dump or snapshot, or any JSON with layouts as texts
    pub dump: PathBuf,

    /// Layouts of an epilogue, tCtAcc, tDtAcc and tDgC, if the dump has none
    #[arg(long, value_name = "FILE")]
    pub t2r: Option<PathBuf>,

    #[command(flatten)]
    pub limit: LimitArgs,
}

/// The result of `layout insights`.
#[derive(Serialize, JsonSchema)]
pub(super) struct DumpInsights {
    /// The layouts of the file, each with facts about it.
    layouts: Vec<LayoutInsight>,
    /// Checks of the epilogue; empty if there are no layouts of one.
    epilogue: Vec<EpilogueCheck>,
}

pub(super) fn run(app: &App, args: &InsightsArgs) -> Result<Status> {
    let limits = args.limit.limits();
    let mut layouts = named::read(&args.dump)?;
    if let Some(path) = &args.t2r {
        layouts.extend(named::read(path)?);
    }
    let find = |name: &str| named::plain(&layouts, name);
    let epilogue = match (find("tCtAcc"), find("tDtAcc"), find("tDgC")) {
        (Some(accumulator), Some(loads), Some(stores)) => {
            epilogue_checks(accumulator, loads, stores, limits)
        }
        _ if args.t2r.is_some() => {
            return Err(Failure::new(
                Exit::Artifact,
                "no_epilogue",
                "tCtAcc, tDtAcc and tDgC are needed",
            )
            .hint("`rgpu layout dump --epilogue` writes them"));
        }
        _ => Vec::new(),
    };
    let insights = layouts.iter().map(|l| insight(&l.name, &l.layout, limits)).collect();
    let result = DumpInsights { layouts: insights, epilogue };
    let text = text(&result);
    print(app, LayoutResult::Insights(result), &text)?;
    Ok(0)
}

fn text(result: &DumpInsights) -> String {
    let mut text = String::new();
    for insight in &result.layouts {
        let facts = &insight.properties;
        text += &format!("{}  {}\n", insight.name, insight.layout);
        let yes = |is: bool, word: &str| (if is { word } else { "" }).to_owned();
        let words = [
            format!("size {}", facts.size),
            format!("cosize {}", facts.cosize),
            yes(facts.compact, "compact"),
            yes(facts.tractable, "tractable"),
            yes(facts.coalesced, "coalesced"),
            facts
                .duplication
                .filter(|times| *times > 1)
                .map_or(String::new(), |times| format!("{times} coordinates an offset")),
        ];
        let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
        text += &line("facts", words.join(", "));
        for remark in &insight.remarks {
            text += &line("", remark);
        }
    }
    for check in &result.epilogue {
        let word = if check.holds { "holds" } else { "fails" };
        text += &format!("{word}  {}\n{}", check.claim, line("found", &check.found));
    }
    text
}
