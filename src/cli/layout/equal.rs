//! `layout equal`: whether two layouts are one function, for the shapes of a file too.

use clap::Args;
use rgpu_layout::{Difference, Equality, Proof, Rejection, SwizzledLayout};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print, proof_line};
use super::input::{LimitArgs, file, parse, usage};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Result};
use rgpu_plan::kernel::expr::{Division, Expr, ExprError, Grammar, Scope};

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct EqualArgs {
    /// A layout, swizzled or not
    pub a: String,
    /// The layout to compare it with
    pub b: String,
    /// Compare for each shape of this file: the layouts have expressions such as {ceil_div(M, 128)}
    ///
    /// A line holds M,N,K,L in this order (`80,4096,7168,1`), or names with values (`M=80 K=7168`).
    /// Empty lines and those that begin with # are left out.
    #[arg(long, value_name = "FILE")]
    pub on: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub limit: LimitArgs,
}

/// Whether two layouts are equal.
#[derive(Serialize, JsonSchema)]
pub(super) struct PairEquality {
    /// Whether they are equal, for every shape of `--on`. Absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    equal: Option<bool>,
    /// The proof and the first difference, if there is no `--on`.
    #[serde(flatten)]
    only: Option<EqualityCase>,
    /// The result for each shape of `--on`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shapes: Vec<ShapeEquality>,
}

/// The result for a shape.
#[derive(Serialize, JsonSchema)]
struct ShapeEquality {
    /// The shape, as the file has it.
    shape: String,
    /// Whether the layouts are equal. Absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    equal: Option<bool>,
    #[serde(flatten)]
    case: EqualityCase,
}

/// One comparison.
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct EqualityCase {
    /// The first layout.
    left: SwizzledLayout,
    /// The second layout.
    right: SwizzledLayout,
    /// How the result is proved.
    proof: Option<Proof>,
    /// The first index where they differ. Absent if they are equal, or only their sizes differ.
    first_difference: Option<Difference>,
    /// Why the result is not known.
    rejection: Option<Box<Rejection>>,
}

pub(super) fn run(app: &App, args: &EqualArgs) -> Result<Status> {
    let mut text = String::new();
    let (equal, only, shapes) = match &args.on {
        None => {
            let (equal, case) = compare(&args.a, &args.b, args.limit)?;
            text += &case_text(&case);
            (equal, Some(case), Vec::new())
        }
        Some(path) => {
            let mut shapes = Vec::new();
            let lines = String::from_utf8_lossy(&file(path)?).into_owned();
            let lines = lines.lines().map(str::trim);
            for shape in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
                let (names, values) = variables(shape)?;
                let scope = Scope { vars: &names, values: &values };
                let (a, b) = (filled(&args.a, scope)?, filled(&args.b, scope)?);
                let (equal, case) = compare(&a, &b, args.limit)?;
                text += &(line("shape", shape) + &case_text(&case));
                shapes.push(ShapeEquality { shape: shape.to_owned(), equal, case });
            }
            if shapes.is_empty() {
                return Err(usage("the file names no shape").file(path.display()));
            }
            let equal = if shapes.iter().any(|shape| shape.equal == Some(false)) {
                Some(false)
            } else {
                shapes.iter().all(|shape| shape.equal.is_some()).then_some(true)
            };
            (equal, None, shapes)
        }
    };
    let head = match equal {
        Some(true) => "equal",
        Some(false) => "different",
        None => "not known",
    };
    let text = format!("{head}\n{text}");
    print(app, LayoutResult::Equal(PairEquality { equal, only, shapes }), &text)?;
    Ok(if equal == Some(true) { 0 } else { Exit::Findings as u8 })
}

fn case_text(case: &EqualityCase) -> String {
    match (&case.proof, &case.rejection) {
        (Some(proof), _) => proof_line(proof),
        (None, Some(rejection)) => line("unproved", rejection.reason()),
        (None, None) => String::new(),
    }
}

fn compare(a: &str, b: &str, limit: LimitArgs) -> Result<(Option<bool>, EqualityCase)> {
    let (left, right) = (parse(a, "layout")?, parse(b, "layout")?);
    let result = rgpu_layout::equal_swizzled(&left, &right, limit.limits());
    let mut case =
        EqualityCase { left, right, proof: None, first_difference: None, rejection: None };
    match result {
        Ok(Equality { equal, proof, first_difference }) => {
            (case.proof, case.first_difference) = (Some(proof), first_difference);
            Ok((Some(equal), case))
        }
        Err(rejection) => {
            case.rejection = Some(rejection);
            Ok((None, case))
        }
    }
}

/// The names of a shape's line with their values.
fn variables(line: &str) -> Result<(Vec<String>, Vec<i64>)> {
    let wrong = || usage(format!("`{line}` is not a shape: `80,4096,7168,1` or `M=80 K=7168`"));
    let value = |text: &str| text.trim().parse::<i64>().map_err(|_| wrong());
    if line.contains('=') {
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for part in line.split([' ', ',']).filter(|part| !part.is_empty()) {
            let (name, text) = part.split_once('=').ok_or_else(wrong)?;
            names.push(name.to_owned());
            values.push(value(text)?);
        }
        return Ok((names, values));
    }
    let values = line.split(',').map(value).collect::<Result<Vec<_>>>()?;
    if values.len() > 4 {
        return Err(wrong());
    }
    Ok((["M", "N", "K", "L"][..values.len()].iter().map(|&n| n.to_owned()).collect(), values))
}

/// The text with each `{expression}` replaced by its value.
fn filled(text: &str, scope: Scope<'_>) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (expression, after) =
            after.split_once('}').ok_or_else(|| usage(format!("a `}}` is missing in `{text}`")))?;
        let value = Expr::parse(expression, Grammar::Size, scope.vars)
            .and_then(|expression| expression.int(scope, Division::Exact))
            .map_err(|error| match error {
                ExprError::UnknownVariable { name, .. } => {
                    usage(format!("no value for `{name}` in `{{{expression}}}`"))
                        .hint(format!("the shape has {}", scope.vars.join(", ")))
                }
                error => usage(format!("`{{{expression}}}` has no value")).cause(error),
            })?;
        out += before;
        out += &value.to_string();
        rest = after;
    }
    Ok(out + rest)
}
