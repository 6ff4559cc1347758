//! The key `rgpu` of a trace: what rgpu's own hook in a Python program adds to it.
//!
//! `harness/templates/torch_hook/sitecustomize.py` writes it. A field that is missing or has
//! another type counts as absent.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The hook's facts about its recording.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Recording {
    /// Why it was this part of the program: `program`, `steps` or `range`.
    pub recorded: String,
    /// Version of torch, as `torch.__version__` states it.
    pub torch: String,
    /// Whether the program used a GPU.
    pub cuda: bool,
    /// Steps that it has.
    pub steps: u64,
    /// Whether it ended at its time limit, before the program did.
    pub cut: bool,
    /// Why it has no places in the source.
    pub no_places: Option<String>,
    /// Processes that do the same work; one is recorded.
    pub ranks: u64,
    /// The Hugging Face model that the program ran.
    pub model: Option<RecordedModel>,
    /// Calls and FLOPs by the name of the range around them.
    pub work: BTreeMap<String, RangeWork>,
    /// Memory of the GPU since the program's start.
    pub memory: Option<RecordedMemory>,
}

/// A Hugging Face model.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RecordedModel {
    /// Name or path of its config, else its class.
    pub name: String,
    /// Name of the model's class.
    pub architecture: String,
    /// Dtype of most parameters.
    pub dtype: String,
    /// Number of parameters; `None` if the hook did not record it.
    pub parameters: Option<u64>,
    /// Number of layers, from the model's config; `None` if that has no such key.
    pub layers: Option<u64>,
}

/// Work of all ranges of one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct RangeWork {
    /// Number of calls that the hook counted.
    pub calls: u64,
    /// FLOPs of all calls.
    pub flops: f64,
}

/// Memory of torch's allocator on one GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RecordedMemory {
    /// Number of the GPU.
    pub device: u32,
    /// Largest number of bytes in tensors.
    pub peak_allocated_bytes: u64,
    /// Largest number of bytes that the allocator held.
    pub peak_reserved_bytes: u64,
    /// Bytes of the GPU.
    pub total_bytes: u64,
}
