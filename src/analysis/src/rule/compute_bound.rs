//! Compute bound: SM throughput is high and memory throughput is not higher.

use super::matrix::{computes_products, is_named_product, tensor_use};
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{MEMORY_THROUGHPUT, SM_THROUGHPUT};
use crate::known_kernel::{Author, author};
use crate::roofs::{PER_INSTRUCTION, Roofs, Unit, WorkLeft};
use crate::threshold::{Limits, TENSOR_BUSY, THROUGHPUT_APART, THROUGHPUT_LOW};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "compute_bound",
    category: "compute",
    kind: VerdictRole::Bound,
    gain: GainLimit::Relief(work_left),
    plural_predicate: "are bound by compute",
    apply,
};

const PIPE: (&str, &str) = ("sm__inst_executed_pipe_", ".avg.pct_of_peak_sustained_active");

/// Pipes that compute with integers, and what costs most there.
const INTEGER_PIPES: &[&str] = &["alu", "fmaheavy"];
const INTEGERS: &str = " (a division or remainder by a number that the compiler does not know takes \
     tens of instructions, with 64 bits twice as many: make it a constant or a power of two, or \
     multiply and shift; 32-bit indexes)";

/// How much less the busiest pipe has to do is not known: perhaps nothing of its work is left,
/// perhaps all. Where the issue slots are busier than any pipe, fewer instructions relieve all.
fn work_left(launch: &Launch) -> Vec<WorkLeft> {
    let of_sm = |unit: Unit| PER_INSTRUCTION.contains(&unit) || unit == Unit::Constants;
    let relieved = match Roofs::new(launch).busiest(of_sm) {
        Some((Unit::Issue, _)) => PER_INSTRUCTION.to_vec(),
        Some((busiest, _)) => vec![busiest],
        None => Vec::new(),
    };
    relieved.into_iter().map(|unit| (unit, [0.0, 1.0])).collect()
}

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (sm_id, sm) = launch.first_number(SM_THROUGHPUT)?;
    let (_, memory) = launch.first_number(MEMORY_THROUGHPUT)?;
    if sm < limits.threshold(&THROUGHPUT_LOW).value
        || sm <= memory - limits.threshold(&THROUGHPUT_APART).value
    {
        return None;
    }
    // `tensor_bound` says so of matrix products.
    let busy = limits.threshold(&TENSOR_BUSY).value;
    let tensor = tensor_use(launch, limits).filter(|tensor| tensor.percent >= busy);
    let multiplies = computes_products(launch, limits);
    if tensor.is_some() && multiplies {
        return None;
    }
    let mut evidence = vec![limits.threshold(&THROUGHPUT_LOW).evidence(sm_id, sm, "%")];
    let mut text = format!("the SMs run at {sm:.0} % of their peak");
    let mut integers = "";
    if let Some((id, pipe, value)) = busiest_pipe(launch) {
        if INTEGER_PIPES.contains(&pipe.as_str()) {
            integers = INTEGERS;
        }
        evidence.push(Evidence::number(&id, value, "%"));
        text.push_str(&format!(", pipe `{pipe}` at {value:.0} %"));
    }
    let confidence = if sm - memory >= limits.threshold(&THROUGHPUT_APART).value {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let cores = if multiplies
        || is_named_product(launch)
        || matches!(author(&launch.kernel), Author::Torch | Author::Cupy)
    {
        ""
    } else {
        "tensor cores where the work is a matrix product, "
    };
    let hint = format!(
        "execute fewer instructions on the busiest pipe: {cores}fused multiply-add, cheaper index \
         arithmetic{integers}, a faster algorithm"
    );
    Some(Conclusion { score: sm / 100.0, confidence, evidence, text, hint })
}

fn busiest_pipe(launch: &Launch) -> Option<(String, String, f64)> {
    let pipes = launch.metrics.iter().filter_map(|(id, metric)| {
        let pipe = id.strip_prefix(PIPE.0)?.strip_suffix(PIPE.1)?;
        Some((id.to_string(), pipe.to_owned(), metric.value.as_f64()?))
    });
    pipes.max_by(|a, b| a.2.total_cmp(&b.2))
}
