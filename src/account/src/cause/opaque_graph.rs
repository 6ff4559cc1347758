//! CUDA graphs that hold most of a step and were recorded as a whole.
//!
//! nsys records a graph as one piece of work unless its nodes are traced. No cause can look into it
//! then, so the finding promises nothing: it says what hides the kernels and how to see them. XLA
//! puts kernels into command buffers, which are CUDA graphs.

use rgpu_model::trace::TraceWorkKind;

use super::Found;
use super::picked::Picked;
use crate::view::View;

/// The part of a step from which on the graphs hide what matters.
const MIN_SHARE: f64 = 0.3;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let graphs = Picked::find(view, |work| work.kind == TraceWorkKind::Graph);
    if graphs.share() < MIN_SHARE {
        return None;
    }
    Some(Found {
        change: "record the kernels of CUDA graphs".to_owned(),
        text: format!(
            "CUDA graphs were recorded as a whole, so their kernels are not seen: they take {}",
            graphs.words()
        ),
        hint: "`--nsys-args '--cuda-graph-trace=node'` records each kernel of a graph; a JAX \
               program can also run with `XLA_FLAGS=--xla_gpu_enable_command_buffer=` for this one \
               recording, so that XLA makes no graphs"
            .to_owned(),
        work: graphs.at.clone(),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn a_step_in_a_graph_is_told_without_a_promise() {
        let step = StepScript::new().graph(900.0).kernel(names::ADD, 30.0);
        let found = step.play(4).look(find).unwrap();
        assert!(found.hint.contains("--cuda-graph-trace=node"));
        assert!(found.least.is_empty() && found.most.is_empty());
        assert_eq!(found.work.len(), 3);
    }

    #[test]
    fn a_small_graph_beside_large_kernels_is_silent() {
        let step = StepScript::new().graph(100.0).kernel(names::PRODUCT, 900.0);
        assert!(step.play(4).look(find).is_none());
    }
}
