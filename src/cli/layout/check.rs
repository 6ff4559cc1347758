//! `layout check`: what the accesses of warps cost.

use clap::{Args, ValueEnum};
use rgpu_layout::access::{Access, AccessReport, RequestCounts, Space, check_access};
use rgpu_layout::{ElementSize, Swizzle, SwizzledLayout};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, line, print};
use super::input::{LimitArgs, parse, usage};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Result};

/// `layout check`.
///
/// The first mode of the layout counts threads, the others the values of a thread. Its offsets
/// count elements from a base that is aligned to 128 bytes. The exit status is 1 if such an access
/// faults: vectors that are misaligned, or whose elements are not neighbours.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CheckArgs {
    /// The layout from threads and values to elements, swizzled or not
    pub layout: String,

    /// Bytes of an element; 0.5 for 4 bits
    #[arg(long, value_name = "BYTES")]
    pub elem_bytes: ElementSize,

    /// The memory: sectors are counted in gmem, bank conflicts in smem
    #[arg(long, value_enum)]
    pub access: Memory,

    /// Active lanes of each warp
    #[arg(long, default_value_t = 32)]
    pub lanes: i64,

    /// Elements that one instruction accesses for a lane: 1, 2, 4, 8 or 16 bytes together, or 32
    /// bytes of gmem (sm_100 and newer)
    #[arg(long, default_value_t = 1)]
    pub vector: i64,

    /// A swizzle of byte addresses, as 3,4,3
    #[arg(long, value_name = "BITS,BASE,SHIFT")]
    pub swizzle: Option<String>,

    #[command(flatten)]
    pub limit: LimitArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Memory {
    /// Shared memory
    Smem,
    /// Global memory
    Gmem,
}

/// The result of `layout check`.
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
pub(super) struct AccessCheck {
    /// The layout that is accessed.
    layout: SwizzledLayout,
    /// How it is accessed.
    access: Access,
    /// Sectors of a request on average (global memory).
    sectors_per_request: Option<f64>,
    /// Wavefronts of a request on average (shared memory).
    wavefronts_per_request: Option<f64>,
    #[serde(flatten)]
    report: AccessReport,
}

pub(super) fn run(app: &App, args: &CheckArgs) -> Result<Status> {
    let layout: SwizzledLayout = parse(&args.layout, "layout")?;
    let swizzle: Swizzle = match &args.swizzle {
        Some(_) if !layout.swizzle().is_identity() => {
            return Err(usage("the layout has a swizzle, and `--swizzle` is another one"));
        }
        Some(text) => parse(text, "swizzle")?,
        None => layout.swizzle(),
    };
    if layout.offset() != 0 {
        return Err(usage("the base of an access is at offset 0 of the swizzle"));
    }
    let access = Access {
        space: match args.access {
            Memory::Smem => Space::Shared,
            Memory::Gmem => Space::Global,
        },
        element_bytes: args.elem_bytes,
        lanes: args.lanes,
        vector: args.vector,
        swizzle,
    };
    let report = check_access(layout.layout(), access, args.limit.limits()).map_err(usage)?;
    let mean =
        |count: Option<RequestCounts>| count.map(|c| c.total as f64 / report.requests as f64);
    let check = AccessCheck {
        sectors_per_request: mean(report.sectors),
        wavefronts_per_request: mean(report.wavefronts),
        layout,
        access,
        report,
    };
    let faults = check.report.misaligned.is_some() || check.report.split_vector.is_some();
    let text = text(&check);
    print(app, LayoutResult::Check(check), &text)?;
    Ok(if faults { Exit::Findings as u8 } else { 0 })
}

fn text(check: &AccessCheck) -> String {
    let report = &check.report;
    let mut text = format!("{}\n", check.layout);
    let needs = report.needs_arch.map_or(String::new(), |arch| format!("; needs {arch} or newer"));
    text += &line(
        "requests",
        format!("{} of {} bytes a lane{needs}", report.requests, report.lane_bytes),
    );
    let range = |count: &RequestCounts| {
        if count.least == count.most {
            format!("{} a request", count.most)
        } else {
            format!("{} to {} a request", count.least, count.most)
        }
    };
    if let Some(count) = &report.sectors {
        let total = format!("{} in all, {} ideal", count.total, count.ideal);
        text += &line("sectors", format!("{}; {total}", range(count)));
    }
    if let Some(efficiency) = report.efficiency {
        text += &line("efficiency", format!("{:.2} % of the bytes are used", efficiency * 100.0));
    }
    if let Some(count) = &report.wavefronts {
        let total = format!("{} in all, {} ideal", count.total, count.ideal);
        text += &line("wavefronts", format!("{}; {total}", range(count)));
    }
    if let Some(ways) = report.conflict_ways {
        text +=
            &line("conflicts", if ways > 1.0 { format!("{ways}-way") } else { "none".to_owned() });
    }
    if let Some(at) = &report.misaligned {
        let bytes = report.lane_bytes;
        let place = format!("lane {} of request {} at byte {}", at.lane, at.request, at.address);
        text += &line("misaligned", format!("{place}, no multiple of {bytes}: the access faults"));
    }
    if let Some(at) = &report.split_vector {
        let place = format!("lane {} of request {}", at.lane, at.request);
        text += &line("split", format!("{place}: its elements are not neighbours"));
    }
    if let Some(offence) = &report.first_conflict {
        let (a, b) = (&offence.first, &offence.second);
        text += &line(
            "first",
            format!(
                "request {}: lane {} at byte {} and lane {} at byte {}: {}",
                a.request, a.lane, a.address, b.lane, b.address, offence.reason
            ),
        );
    }
    text
}
