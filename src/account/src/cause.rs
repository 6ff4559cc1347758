//! The causes of slow steps: each finds its signature and says what would remove it.

mod allocation;
mod attention_backend;
mod attention_mask;
mod autotuning;
mod awkward_alignment;
mod awkward_fft;
mod casts;
mod common;
mod communication;
mod compaction;
mod conv_layout;
mod copy_in_stream;
mod default_stream;
mod dense_embedding_gradient;
mod dominant_kernel;
mod double_precision;
mod dropout;
mod eager_loss;
mod eager_norm;
mod element_wise_chain;
mod few_blocks;
mod fp32_products;
mod gradient_fills;
mod graph_breaks;
mod graph_made;
mod growing_copies;
mod host_pause;
mod host_per_launch;
mod index_duplicates;
mod jax_random;
mod large_fills;
mod launch_bound;
mod launches;
mod launches_wait;
mod layout_copies;
mod loading;
mod made_on_host;
mod matrix_vector;
mod needless_wait;
mod opaque_graph;
mod pageable;
mod picked;
mod polling;
#[cfg(test)]
mod random_tests;
mod reads;
mod reads_in_row;
mod recompute;
mod rnn_weights;
mod same_work_again;
mod slow_library_kernel;
mod slow_steps;
mod slow_variants;
mod small_copies;
mod small_kernel_loop;
mod small_products;
mod sort_in_step;
mod stream_waits;
mod strided_access;
#[cfg(test)]
pub(crate) mod test_view;
mod threads;
mod through_host;
mod unfused_optimizer;
mod unified;
mod unread_output;
mod unused_gradients;
mod value_read;
mod varying_lengths;
mod waits_for_short_graphs;
pub(crate) mod words;
mod written_out_attention;

use crate::edits::Edits;
use crate::view::View;

/// A cause of slow steps.
pub struct Cause {
    /// snake_case id of its findings.
    pub id: &'static str,
    /// Looks for the signature in the window's steps.
    pub find: fn(&View<'_>) -> Option<Found>,
}

/// A cause that was found, and the change that removes it.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The change in a few words, as an order: `copy from pinned memory`.
    pub change: String,
    /// What was found, with its numbers; one sentence without a full stop.
    pub text: String,
    /// The next concrete step, with the line of code to write where there is one.
    pub hint: String,
    /// The change where it gives least.
    pub least: Edits,
    /// The change where it gives most.
    pub most: Edits,
    /// The work that it is about: indexes into the trace's work; may be empty.
    pub work: Vec<u32>,
    /// The calls that it is about: indexes into the trace's calls; may be empty.
    pub calls: Vec<u32>,
    /// If another cause explains the same just as well: the measurement that decides.
    pub decides: Option<String>,
    /// Whether `most` is only an upper bound, since the change may not be possible as assumed.
    pub is_bound: bool,
}

/// Every cause.
pub static CAUSES: &[Cause] = &[
    Cause { id: "value_read_back", find: value_read::find },
    Cause { id: "wait_for_selected_count", find: compaction::find },
    Cause { id: "values_read_one_by_one", find: reads_in_row::find },
    Cause { id: "wait_not_needed", find: needless_wait::find },
    Cause { id: "waits_for_short_graphs", find: waits_for_short_graphs::find },
    Cause { id: "polling", find: polling::find },
    Cause { id: "pageable_copies_to_gpu", find: pageable::find_to_gpu },
    Cause { id: "pageable_copies_to_host", find: pageable::find_to_host },
    Cause { id: "copies_in_compute_stream", find: copy_in_stream::find_one_way },
    Cause { id: "copies_one_after_another", find: copy_in_stream::find_both_ways },
    Cause { id: "many_small_copies", find: small_copies::find },
    Cause { id: "arrays_made_on_host", find: made_on_host::find },
    Cause { id: "data_through_host", find: through_host::find },
    Cause { id: "unified_memory_migrations", find: unified::find },
    Cause { id: "launches_wait", find: launches_wait::find },
    Cause { id: "launch_bound", find: launch_bound::find },
    Cause { id: "host_work_per_launch", find: host_per_launch::find },
    Cause { id: "loop_of_small_kernels", find: small_kernel_loop::find },
    Cause { id: "allocation_in_loop", find: allocation::find_in_loop },
    Cause { id: "cache_emptied_in_loop", find: allocation::find_empty_cache },
    Cause { id: "page_locking_in_loop", find: allocation::find_page_locking },
    Cause { id: "graph_made_in_loop", find: graph_made::find },
    Cause { id: "compiled_in_loop", find: loading::find },
    Cause { id: "host_pause", find: host_pause::find },
    Cause { id: "threads_contend", find: threads::find },
    Cause { id: "default_stream", find: default_stream::find },
    Cause { id: "streams_wait_too_often", find: stream_waits::find },
    Cause { id: "many_small_collectives", find: communication::find_small },
    Cause { id: "collectives_wait_for_ranks", find: communication::find_waiting },
    Cause { id: "communication_not_hidden", find: communication::find_exposed },
    Cause { id: "slow_steps", find: slow_steps::find },
    Cause { id: "attention_backend", find: attention_backend::find },
    Cause { id: "attention_mask", find: attention_mask::find },
    Cause { id: "autotuning", find: autotuning::find },
    Cause { id: "awkward_alignment", find: awkward_alignment::find },
    Cause { id: "awkward_fft", find: awkward_fft::find },
    Cause { id: "casts", find: casts::find },
    Cause { id: "conv_layout", find: conv_layout::find },
    Cause { id: "channels_last_left", find: conv_layout::find_breaks },
    Cause { id: "dense_embedding_gradient", find: dense_embedding_gradient::find },
    Cause { id: "dominant_kernel", find: dominant_kernel::find },
    Cause { id: "double_precision", find: double_precision::find },
    Cause { id: "dropout", find: dropout::find },
    Cause { id: "eager_cross_entropy", find: eager_loss::find },
    Cause { id: "eager_norm", find: eager_norm::find },
    Cause { id: "unfused_element_wise", find: element_wise_chain::find },
    Cause { id: "few_blocks", find: few_blocks::find },
    Cause { id: "fp32_products", find: fp32_products::find },
    Cause { id: "graph_breaks", find: graph_breaks::find },
    Cause { id: "gradient_fills", find: gradient_fills::find },
    Cause { id: "growing_copies", find: growing_copies::find },
    Cause { id: "index_duplicates", find: index_duplicates::find },
    Cause { id: "jax_random", find: jax_random::find },
    Cause { id: "large_fills", find: large_fills::find },
    Cause { id: "layout_copies", find: layout_copies::find },
    Cause { id: "recompute", find: recompute::find },
    Cause { id: "rnn_weights", find: rnn_weights::find },
    Cause { id: "same_work_again", find: same_work_again::find },
    Cause { id: "slow_library_kernel", find: slow_library_kernel::find },
    Cause { id: "slow_variant", find: slow_variants::find },
    Cause { id: "small_products", find: small_products::find },
    Cause { id: "sort_in_step", find: sort_in_step::find },
    Cause { id: "strided_access", find: strided_access::find },
    Cause { id: "graph_not_traced", find: opaque_graph::find },
    Cause { id: "sequence_lengths_vary", find: varying_lengths::find },
    Cause { id: "matrix_vector_products", find: matrix_vector::find },
    Cause { id: "output_not_read", find: unread_output::find },
    Cause { id: "unused_gradients", find: unused_gradients::find },
    Cause { id: "gradients_thrown_away", find: unused_gradients::find_thrown_away },
    Cause { id: "unfused_optimizer", find: unfused_optimizer::find },
    Cause { id: "written_out_attention", find: written_out_attention::find },
];

#[cfg(test)]
mod tests;
