//! Short texts on one thing that several reports share.

use super::quantity::{self, count_of, duration, percent};
use super::text::cut_middle;
use rgpu_model::memory::{MemoryScope, MemoryUse};
use rgpu_model::profile::{GraphTiming, ModelInfo};

/// Columns of a place.
const MAX_PLACE_COLUMNS: usize = 40;

/// `4.31 µs ± 0.40 %`.
pub(crate) fn graph_text(graph: &GraphTiming) -> String {
    let half = (graph.ci95_ns[1] - graph.ci95_ns[0]) / 2.0;
    format!("{} ± {}", duration(graph.median_ns), percent(100.0 * half / graph.median_ns))
}

/// `decoder 4-layers-256, 5.25 M parameters, bfloat16`.
pub(crate) fn model_text(model: &ModelInfo) -> String {
    let mut text = model.name.clone();
    if !model.variant.is_empty() {
        text += &format!(" {}", model.variant);
    }
    if let Some(count) = model.parameters {
        text += &format!(", {} parameters", count_of(count as f64));
    }
    if !model.dtype.is_empty() {
        text += &format!(", {}", model.dtype);
    }
    text
}

/// `peak 12.3 GB in tensors, 14.1 GB held by the allocator, of 80.0 GB`.
pub(crate) fn memory_text(memory: &MemoryUse) -> String {
    let bytes = |n: u64| quantity::bytes(n as f64);
    let (allocated, reserved) = (memory.peak_allocated_bytes, memory.peak_reserved_bytes);
    let mut text = format!("peak {} in tensors", bytes(allocated));
    if reserved > 0 {
        text += &format!(", {} held by the allocator", bytes(reserved));
    }
    if let Some(total) = memory.total_bytes {
        text += &format!(", of {}", bytes(total));
    }
    if memory.scope == MemoryScope::Trace {
        text += " (in the trace)";
    }
    match memory.device {
        0 => text,
        device => format!("{text} on GPU {device}"),
    }
}

/// `net.py(9): forward` without the folders of its file. Code outside of functions has no line:
/// torch gives its first.
pub(crate) fn short_place(function: &str) -> String {
    let (file, name) = function.split_once('(').unwrap_or((function, ""));
    let file = file.rsplit('/').next().unwrap_or(file);
    let text = match name.split_once("): ") {
        Some((_, "<module>")) => file.to_owned(),
        None if file.ends_with(": <module>") => file.replace(": <module>", ""),
        _ if name.is_empty() => file.to_owned(),
        _ => format!("{file}({name}"),
    };
    cut_middle(&text, MAX_PLACE_COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_a_line_only_if_it_is_a_function() {
        assert_eq!(short_place("/a/b/net.py(9): forward"), "net.py(9): forward");
        assert_eq!(short_place("/a/train.py(13): <module>"), "train.py");
        assert_eq!(short_place("/a/train.py: <module>"), "train.py");
        assert_eq!(short_place("net.py"), "net.py");
    }
}
