//! Theoretical occupancy is low because of a resource that each block needs.

use super::blocks::leave_sms_empty;
use super::matrix::computes_products;
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{MEMORY_THROUGHPUT, OCCUPANCY_THEORETICAL, SM_THROUGHPUT};
use crate::known_kernel::matrix_unit;
use crate::threshold::{Limits, OCCUPANCY_THEORETICAL as LIMIT};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "occupancy_limited",
    category: "occupancy",
    kind: VerdictRole::Cause,
    gain: GainLimit::Score,
    plural_predicate: "have a low theoretical occupancy",
    apply,
};

const SHARED: &str = "launch__occupancy_limit_shared_mem";

/// ncu's occupancy limits (blocks per SM), the name of each in findings, and the hint. Of equal
/// limits the first in this order is named, so hardware limits come before resource limits.
const LIMITERS: &[(&str, &str, &str)] = &[
    ("launch__occupancy_limit_blocks", "the number of blocks", "choose larger blocks"),
    (
        "launch__occupancy_limit_registers",
        "registers",
        "use fewer registers a thread: `__launch_bounds__` (in Triton more `num_warps`, or `maxnreg`), \
         smaller tiles, less unrolling",
    ),
    (
        SHARED,
        "shared memory",
        "use less shared memory a block: smaller tiles, fewer stages, a narrower type",
    ),
    (
        "launch__occupancy_limit_warps",
        "the block's size",
        "choose a block whose warps divide the SM's number of warps",
    ),
    ("launch__occupancy_limit_barriers", "barriers", "use fewer named barriers"),
];

/// The hint for a kernel that uses no shared memory: the driver's 1 KiB per block is then the
/// limit, because the shared-memory carve-out is small.
const CARVE_OUT: &str = "prefer more shared memory for the kernel \
     (`cudaFuncAttributePreferredSharedMemoryCarveout`): the driver takes 1 KiB a block";

/// The smallest of ncu's occupancy limits: metric, name and blocks per SM.
pub(crate) fn limiter(launch: &Launch) -> Option<(&'static str, &'static str, f64)> {
    let limits = LIMITERS
        .iter()
        .filter_map(|(id, name, _)| launch.number(id).map(|blocks| (*id, *name, blocks)));
    limits.min_by(|a, b| a.2.total_cmp(&b.2))
}

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    // With at most one block per SM, occupancy limits have no effect. Matrix products take few
    // warps with large tiles by design.
    if leave_sms_empty(launch)
        || matrix_unit(&launch.kernel).is_some()
        || computes_products(launch, limits)
    {
        return None;
    }
    let (id, theoretical) = launch.first_number(OCCUPANCY_THEORETICAL)?;
    if theoretical >= limits.threshold(&LIMIT).value {
        return None;
    }
    let mut evidence = vec![limits.threshold(&LIMIT).evidence(id, theoretical, "%")];
    let (mut text, mut hint) = (format!("theoretical occupancy is {theoretical:.0} %"), "");
    if let Some((limit, name, blocks)) = limiter(launch) {
        evidence.push(Evidence::number(limit, blocks, "block"));
        text.push_str(&format!(", limited by {name} to {blocks:.0} blocks per SM"));
        hint = match launch.shared_bytes {
            Some(0) if limit == SHARED => CARVE_OUT,
            _ => LIMITERS.iter().find(|row| row.0 == limit).map_or("", |row| row.2),
        };
    }
    // More warps help only if the units are not busy already.
    let busy = launch.first_number(SM_THROUGHPUT).into_iter();
    let busy = busy.chain(launch.first_number(MEMORY_THROUGHPUT)).map(|(_, value)| value);
    let idle = 1.0 - busy.fold(0.0, f64::max) / 100.0;
    Some(Conclusion {
        score: (1.0 - theoretical / 100.0) * idle.clamp(0.0, 1.0),
        confidence: Confidence::Medium,
        evidence,
        text,
        hint: hint.to_owned(),
    })
}
