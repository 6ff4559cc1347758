//! The operations of the algebra: each prints a layout with its proof, or why there is none.
//!
//! A swizzle is a bijection of offsets, so `S∘o∘A` composed with `B` is `S∘o∘(A∘B)`, and exists if
//! and only if `A∘B` does. Hence operations that keep the offsets of their first operand work below
//! its swizzle.

use clap::{ArgGroup, Args, ValueEnum};
use rgpu_layout::{
    Condition, Grouping, Layout, Proof, ProvenLayout, Rejection, SwizzledLayout, Tiler,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print, proof_line, rejection_text};
use super::input::{LimitArgs, parse, usage};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ComposeArgs {
    /// The outer layout, swizzled or not
    pub a: String,
    /// The inner layout, or a tiler with one layout for each mode of A
    pub b: String,
    #[command(flatten)]
    pub limit: LimitArgs,
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ComplementArgs {
    /// The layout, e.g. (4,8):(8,1)
    pub layout: String,
    /// How many offsets to cover: a number, or a shape
    pub bound: String,
    #[command(flatten)]
    pub limit: LimitArgs,
}

/// `layout divide` and `layout product`.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct TileArgs {
    /// The layout, swizzled or not
    pub a: String,
    /// The tile (of `divide`) or the layout that counts copies (of `product`); or a tiler
    pub b: String,
    /// How the modes are grouped
    #[arg(long, value_enum, default_value_t = Form::Logical)]
    pub form: Form,
    #[command(flatten)]
    pub limit: LimitArgs,
}

/// How the modes of a division or product are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Form {
    /// ((tile, rest), (tile, rest), …)
    Logical,
    /// ((tile, …), (rest, …))
    Zipped,
    /// ((tile, …), rest, …)
    Tiled,
    /// (tile, …, rest, …)
    Flat,
}

impl Form {
    fn grouping(self) -> Grouping {
        match self {
            Self::Logical => Grouping::Logical,
            Self::Zipped => Grouping::Zipped,
            Self::Tiled => Grouping::Tiled,
            Self::Flat => Grouping::Flat,
        }
    }
}

#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("side").required(true).args(["left", "right"])))]
pub(in crate::cli) struct InverseArgs {
    /// The layout, e.g. (4,8):(8,1)
    pub layout: String,
    /// R with R(L(i)) = i
    #[arg(long)]
    pub left: bool,
    /// R with L(R(i)) = i
    #[arg(long)]
    pub right: bool,
    #[command(flatten)]
    pub limit: LimitArgs,
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CoalesceArgs {
    /// The layout, swizzled or not
    pub layout: String,
    /// Coalesce each mode of the outermost tuple on its own
    #[arg(long)]
    pub by_mode: bool,
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct FilterArgs {
    /// The layout, swizzled or not
    pub layout: String,
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct RecastArgs {
    /// The layout, swizzled or not
    pub layout: String,
    /// Bits of its elements
    #[arg(long, value_name = "BITS")]
    pub from: i64,
    /// Bits of the new elements
    #[arg(long, value_name = "BITS")]
    pub to: i64,
}

/// The result of an operation: a layout with its proof, or a rejection.
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub(super) struct Operation {
    /// The arguments of the operation.
    operands: Vec<String>,
    /// The result. Absent if there is none, or none is known.
    layout: Option<SwizzledLayout>,
    /// How it is proved that this is the result.
    proof: Option<Proof>,
    /// Why there is no result.
    rejection: Option<Box<Rejection>>,
}

fn finish(
    app: &App,
    wrap: fn(Operation) -> LayoutResult,
    operands: &[&str],
    outer: &SwizzledLayout,
    result: std::result::Result<ProvenLayout, Box<Rejection>>,
) -> Result<Status> {
    let operands = operands.iter().map(|&text| text.to_owned()).collect();
    let (operation, text, status) = match result {
        Ok(ProvenLayout { layout, mut proof }) => {
            let layout = outer.over(layout).map_err(usage)?;
            if !outer.swizzle().is_identity() {
                proof.claim = format!("{}; below the swizzle, a bijection", proof.claim).into();
            }
            let text = format!("{layout}\n{}", proof_line(&proof));
            let (layout, proof) = (Some(layout), Some(proof));
            (Operation { operands, layout, proof, rejection: None }, text, 0)
        }
        Err(rejection) => {
            let head = match rejection.condition {
                Condition::Undecided => "no result is known",
                _ if rejection.proof.is_none() => "no such layout was found",
                _ => "there is no such layout",
            };
            let mut text = format!("{head}\n{}", rejection_text(&rejection));
            if rejection.condition == Condition::Undecided {
                text += &line(
                    "help",
                    "`--max-points N` raises the number of points that may be checked",
                );
            }
            let rejection = Some(rejection);
            let operation = Operation { operands, layout: None, proof: None, rejection };
            (operation, text, Exit::Findings as u8)
        }
    };
    print(app, wrap(operation), &text)?;
    Ok(status)
}

/// Reads a layout that has no swizzle.
fn plain(text: &str) -> Result<Layout> {
    if text.trim_start().starts_with('S') && text.parse::<SwizzledLayout>().is_ok() {
        return Err(Failure::new(
            Exit::Usage,
            "swizzled",
            format!("`{text}` is swizzled, and this operand must not be"),
        )
        .hint(
            "compose, divide, product, coalesce, filter and recast take a swizzled layout as their \
             first operand; elsewhere give the layout below the swizzle, after the last `o`",
        ));
    }
    parse(text, "layout")
}

/// Reads the inner operand.
fn tiler(text: &str) -> Result<Tiler> {
    if text.trim_start().starts_with('S') {
        plain(text).map(Tiler::Layout)
    } else {
        parse(text, "layout or tiler")
    }
}

/// Reads the first operand of an operation that works below a swizzle.
fn outer(text: &str) -> Result<SwizzledLayout> {
    parse(text, "layout")
}

pub(super) fn compose(app: &App, args: &ComposeArgs) -> Result<Status> {
    let (a, b) = (outer(&args.a)?, tiler(&args.b)?);
    let result = rgpu_layout::compose_tiler(a.layout(), &b, args.limit.limits());
    finish(app, LayoutResult::Compose, &[&args.a, &args.b], &a, result)
}

pub(super) fn complement(app: &App, args: &ComplementArgs) -> Result<Status> {
    let whole = plain(&args.layout)?;
    let bound: Layout = parse(&args.bound, "number or shape")?;
    let result = rgpu_layout::complement(&whole, bound.size(), args.limit.limits());
    finish(app, LayoutResult::Complement, &[&args.layout, &args.bound], &whole.into(), result)
}

pub(super) fn divide(app: &App, args: &TileArgs) -> Result<Status> {
    let (a, b) = (outer(&args.a)?, tiler(&args.b)?);
    let result = rgpu_layout::divide(a.layout(), &b, args.form.grouping(), args.limit.limits());
    finish(app, LayoutResult::Divide, &[&args.a, &args.b], &a, result)
}

pub(super) fn product(app: &App, args: &TileArgs) -> Result<Status> {
    let (a, b) = (outer(&args.a)?, tiler(&args.b)?);
    let result = rgpu_layout::product(a.layout(), &b, args.form.grouping(), args.limit.limits());
    finish(app, LayoutResult::Product, &[&args.a, &args.b], &a, result)
}

pub(super) fn inverse(app: &App, args: &InverseArgs) -> Result<Status> {
    let (whole, limits) = (plain(&args.layout)?, args.limit.limits());
    let result = if args.left {
        rgpu_layout::left_inverse(&whole, limits)
    } else {
        rgpu_layout::right_inverse(&whole, limits)
    };
    finish(app, LayoutResult::Inverse, &[&args.layout], &whole.into(), result)
}

pub(super) fn coalesce(app: &App, args: &CoalesceArgs) -> Result<Status> {
    let whole = outer(&args.layout)?;
    let result = if args.by_mode {
        rgpu_layout::coalesce_by_mode(whole.layout())
    } else {
        rgpu_layout::coalesce(whole.layout())
    };
    finish(app, LayoutResult::Coalesce, &[&args.layout], &whole, Ok(result))
}

pub(super) fn filter(app: &App, args: &FilterArgs) -> Result<Status> {
    let whole = outer(&args.layout)?;
    let result = rgpu_layout::filter(whole.layout());
    finish(app, LayoutResult::Filter, &[&args.layout], &whole, Ok(result))
}

pub(super) fn recast(app: &App, args: &RecastArgs) -> Result<Status> {
    let whole = outer(&args.layout)?;
    let result = rgpu_layout::recast(whole.layout(), args.from, args.to);
    let recast = match &result {
        Ok(below) if !whole.swizzle().is_identity() => {
            swizzled_recast(&whole, &below.layout, args)?
        }
        _ => whole,
    };
    finish(app, LayoutResult::Recast, &[&args.layout], &recast, result)
}

/// A swizzle of byte addresses stays as it is if it splits neither the old elements nor the new
/// ones.
fn swizzled_recast(
    whole: &SwizzledLayout,
    below: &Layout,
    args: &RecastArgs,
) -> Result<SwizzledLayout> {
    for bits in [args.from, args.to] {
        whole.swizzle().for_elements(bits).map_err(usage)?;
    }
    let offset = whole.offset().checked_mul(args.from).filter(|bits| bits % args.to == 0);
    let offset = offset.ok_or_else(|| {
        usage(format!("the offset {} is not a whole number of new elements", whole.offset()))
    })?;
    SwizzledLayout::new(whole.swizzle(), offset / args.to, below.clone()).map_err(usage)
}
