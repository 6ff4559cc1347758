//! The rank of a trace's process, and the collectives of its kernels.

use std::collections::HashMap;

use rgpu_format::torch_trace::{EventKind, TorchCollective, TorchTrace};

use crate::nsys::ranks::CollectiveFacts;
use rgpu_model::rank_work::RankWork;
use rgpu_model::ranks::CollectiveOperation;

/// Adds the facts of a trace about its process. Its times become those since 1970, if it says when
/// it began.
pub(super) fn add_rank_location(rank: &mut RankWork, trace: &TorchTrace) {
    let info = trace.distributed.unwrap_or_default();
    rank.location.rank = info.rank.unwrap_or(rank.location.rank);
    rank.is_numbered = info.rank.is_some();
    rank.world_size = info.world_size;
    let host = trace.events.iter().find(|event| event.kind == EventKind::Call);
    rank.location.pid = host.and_then(|event| u32::try_from(event.pid).ok());
    rank.shift(trace.base_ns);
}

/// The collectives, by the correlation id of their kernels.
pub(super) fn collectives(trace: &TorchTrace) -> HashMap<i64, CollectiveFacts> {
    let all = trace.events.iter().filter_map(|event| {
        let collective = event.collective.as_deref()?;
        Some((event.correlation?, facts(collective)))
    });
    all.collect()
}

fn facts(collective: &TorchCollective) -> CollectiveFacts {
    let operation = CollectiveOperation::from_name(&collective.name);
    // nccl-tests counts the whole buffer, which is the output of an all-gather.
    let elements = match operation {
        CollectiveOperation::AllGather => collective.out_elements,
        _ => collective.in_elements,
    };
    let bytes = elements.zip(element_bytes(&collective.dtype));
    CollectiveFacts {
        group: match collective.group_ranks.as_str() {
            "" => collective.group.clone(),
            ranks => format!("{} {ranks}", collective.group),
        },
        operation,
        bytes: bytes.and_then(|(elements, size)| elements.checked_mul(size)),
        ranks: collective.group_size,
    }
}

/// Bytes of an element, by torch's name of its type.
fn element_bytes(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "Double" | "Long" | "ComplexFloat" => 8,
        "Float" | "Int" => 4,
        "Half" | "BFloat16" | "Short" => 2,
        "Byte" | "Char" | "Bool" => 1,
        _ if dtype.starts_with("Float8") => 1,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_nccl_tests() {
        let of = |name: &str| {
            let collective = TorchCollective {
                name: name.to_owned(),
                in_elements: Some(8),
                out_elements: Some(32),
                dtype: "BFloat16".to_owned(),
                group_size: Some(4),
                group: "dp".to_owned(),
                group_ranks: "[0, 2]".to_owned(),
            };
            let facts = facts(&collective);
            (facts.operation.to_string(), facts.bytes, facts.group)
        };
        let group = || "dp [0, 2]".to_owned();
        assert_eq!(of("_allgather_base"), ("all_gather".to_owned(), Some(64), group()));
        assert_eq!(of("allreduce"), ("all_reduce".to_owned(), Some(16), group()));
    }
}
