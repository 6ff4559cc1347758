//! Remarks on the layouts of a kernel, and whether the layouts of its epilogue fit together.

use schemars::JsonSchema;
use serde::Serialize;

use crate::coalesce::{coalesce, equal, filter};
use crate::compose::compose;
use crate::layout::{Layout, Mode};
use crate::proof::{Limits, Proof};
use crate::properties::{Properties, properties};
use crate::swizzle::SwizzledLayout;

/// The facts about a named layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LayoutInsight {
    /// The layout's name in the file.
    pub name: String,
    /// The layout with its swizzle and offset.
    pub layout: SwizzledLayout,
    /// Facts about it as a function, below the swizzle.
    pub properties: Properties,
    /// The same function with as few modes as possible.
    pub coalesced: Layout,
    /// The number of coordinates without modes of stride 0.
    pub filtered_size: i64,
    /// Remarks, as sentences.
    pub remarks: Vec<String>,
}

/// Finds what stands out in a layout.
pub fn insight(name: &str, layout: &SwizzledLayout, limits: Limits) -> LayoutInsight {
    let plain = layout.layout();
    let facts = properties(plain, limits);
    let coalesced = coalesce(plain).layout;
    let filtered = filter(plain).layout;
    let mut remarks = Vec::new();
    match facts.duplication {
        Some(1) | None => {}
        Some(times) => remarks.push(format!(
            "each offset belongs to {times} coordinates: filter the stride 0 before copying ({} of \
             {} {})",
            filtered.size(),
            facts.size,
            if filtered.size() == 1 { "remains" } else { "remain" }
        )),
    }
    if facts.injective == Some(false) && facts.duplication.is_none() {
        remarks.push("coordinates overlap without a stride of 0: two writes meet".to_owned());
    }
    if facts.compact {
        remarks.push(format!("it fills [0, {}) without gaps", facts.size));
    } else if let Some(image) = facts.image_size
        && facts.cosize > image
    {
        remarks.push(format!(
            "it leaves {} of {} offsets unused",
            facts.cosize - image,
            facts.cosize
        ));
    }
    if !facts.tractable {
        remarks.push(
            "its strides form no divisible chain: divisions of it often have no result".to_owned(),
        );
    }
    if !facts.coalesced && coalesced.modes().len() < plain.modes().len() {
        remarks.push(format!("as a function of the index it is {coalesced}"));
    }
    let swizzle = layout.swizzle();
    if !swizzle.is_identity() {
        let mode = swizzle.umma_mode().map_or(String::new(), |mode| format!(", the {mode} mode,"));
        let period = swizzle.period();
        remarks.push(format!(
            "the swizzle {swizzle} of byte addresses{mode} repeats every {period} bytes"
        ));
    }
    LayoutInsight {
        name: name.to_owned(),
        layout: layout.clone(),
        properties: facts,
        filtered_size: filtered.size(),
        coalesced,
        remarks,
    }
}

/// A condition that the layouts of an epilogue must meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EpilogueCheck {
    /// The checked claim, as a sentence.
    pub claim: String,
    /// Whether it holds.
    pub holds: bool,
    /// The found value, in words.
    pub found: String,
    /// How it was proved, if a proof was needed.
    pub proof: Option<Proof>,
}

/// Checks how an epilogue of `tcgen05.ld.32x32b` reads the accumulator and writes C:
/// `accumulator` is tCtAcc, `loads` tDtAcc, `stores` tDgC.
pub fn epilogue_checks(
    accumulator: &Layout,
    loads: &Layout,
    stores: &Layout,
    limits: Limits,
) -> Vec<EpilogueCheck> {
    let check = |claim: &str, holds, found: String| EpilogueCheck {
        claim: claim.to_owned(),
        holds,
        found,
        proof: None,
    };
    let row_stride = accumulator.modes().first().map_or(0, |mode| mode.stride);
    // The first mode of a partition is one instruction: (values, lanes).
    let of_instruction = loads.parts().first().map(Layout::modes).unwrap_or_default();
    let (values, lanes) = (
        of_instruction.first().copied().unwrap_or(Mode::new(1, 0)),
        of_instruction.get(1).copied().unwrap_or(Mode::new(1, 0)),
    );
    let mut checks = vec![
        check(
            "a load reads neighbouring columns of 32 lanes",
            values.stride == 1 && lanes.extent == 32,
            format!("{values} and {lanes}"),
        ),
        check(
            "the lanes of a load are rows of the accumulator",
            lanes.stride == row_stride && row_stride != 0,
            format!("the lane stride is {}, the row stride {row_stride}", lanes.stride),
        ),
    ];
    let written = coalesce(&crate::coalesce::filter_zeros(stores)).layout;
    checks.push(check(
        "a thread writes neighbouring elements",
        written.modes().as_slice() == [Mode::new(stores.size(), 1)] || stores.size() == 1,
        format!("as a function of the index it is {written}"),
    ));
    checks.push(fold(accumulator, loads, values, row_stride, limits));
    checks
}

/// Whether Φ(w, lane, v) = 32·rs·w + rs·lane + v, with the row stride rs, is the accumulator: then
/// a warp w of the warpgroup reads its own quarter of the lanes, and the loads together read it
/// all.
fn fold(
    accumulator: &Layout,
    loads: &Layout,
    values: Mode,
    row_stride: i64,
    limits: Limits,
) -> EpilogueCheck {
    let claim = "32·rs·w + rs·lane + v over warps, lanes and values reads the whole accumulator";
    let mut check =
        EpilogueCheck { claim: claim.to_owned(), holds: false, found: String::new(), proof: None };
    let rows = accumulator.modes().first().map_or(1, |mode| mode.extent);
    let columns = accumulator.size() / rows.max(1);
    let rest: Vec<Mode> = loads
        .parts()
        .iter()
        .skip(1)
        .flat_map(Layout::modes)
        .filter(|mode| mode.extent > 1)
        .collect();
    let mut modes = vec![Mode::new(32, row_stride)];
    if rows > 32
        && rows % 32 == 0
        && let Some(stride) = row_stride.checked_mul(32)
    {
        modes.push(Mode::new(rows / 32, stride));
    }
    modes.push(values);
    modes.extend(rest);
    let Ok(folded) = Layout::flat(&modes) else {
        "the strides do not fit".clone_into(&mut check.found);
        return check;
    };
    // The accumulator by rows and columns, in the same order of coordinates.
    let Ok(order) = Layout::flat(&[Mode::new(rows, 1), Mode::new(columns, rows)]) else {
        return check;
    };
    match compose(accumulator, &order, limits) {
        Ok(expected) => {
            let equality = equal(&folded, &expected.layout);
            check.holds = equality.equal;
            check.found = format!("{folded} for {}", expected.layout);
            check.proof = Some(equality.proof);
        }
        Err(rejection) => check.found = rejection.reason(),
    }
    check
}
