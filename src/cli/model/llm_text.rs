//! A model's prediction as text.

use rgpu_predict::document::{LlmDocument, PhaseDocument};
use rgpu_predict::llm::{Parallelism, Serving};

use super::llm::Detail;
use crate::cli::support::app::App;
use rgpu_report::{TextTable, bytes, duration, percent};

/// Prints what was asked for.
pub(super) fn print(app: &App, document: &LlmDocument, detail: Detail) {
    let model = &document.model;
    app.print(&format!(
        "{}: {:.2} B parameters, {:.2} B a token, {} layers, on {} ({})\n",
        model.architecture,
        model.parameters / 1e9,
        model.active_parameters / 1e9,
        model.layers,
        document.gpu,
        spread(&document.parallelism),
    ));
    app.print(&format!(
        "{}; KV cache {} a token\n",
        document.calibration.word(),
        bytes(model.kv_bytes_per_token)
    ));
    for phase in &document.phases {
        app.print(&layers(app, phase, detail));
    }
    if detail == Detail::Server {
        app.print(&format!("\nmemory a GPU\n{}", stages(app, document)));
        app.print(&format!("\nserver\n{}", points(app, document)));
        app.print(&suggestions(app, document));
    }
    for note in &document.notes {
        app.print_note(&format!("note: {note}"));
    }
}

/// The parallelism in words, such as `tp 8, pp 1, ep 1, sp`.
pub(super) fn spread(parallelism: &Parallelism) -> String {
    let mut words = format!("tp {}, pp {}, ep {}", parallelism.tp, parallelism.pp, parallelism.ep);
    for (is_on, word) in [(parallelism.sp, ", sp"), (parallelism.dp_attention, ", dp attention")] {
        if is_on {
            words += word;
        }
    }
    words
}

/// The layers of a phase, or their kernels.
fn layers(app: &App, phase: &PhaseDocument, detail: Detail) -> String {
    let name = format!("{:?}", phase.phase).to_lowercase();
    let mut text = format!(
        "\n{name} of {} x {} tokens, context {}\n",
        phase.sequences, phase.queries, phase.keys
    );
    let mut table = TextTable::new(
        "layers: | kind | time of one: | bound: | links: | launches: | MFU: | weights:",
    );
    for layer in &phase.layers {
        table.add_row([
            layer.count.to_string(),
            layer.name.clone(),
            duration(layer.total.time_ns),
            duration(layer.total.bound_ns),
            duration(layer.total.collective_ns),
            layer.total.launches.to_string(),
            percent(100.0 * layer.mfu),
            if layer.weight_bytes > 0.0 { bytes(layer.weight_bytes) } else { String::new() },
        ]);
    }
    text += &table.fitted(app.columns(), 2);
    if detail == Detail::Server {
        return text;
    }
    for layer in &phase.layers {
        text += &format!("\n  {}\n", layer.name);
        let mut table = TextTable::new("part | time: | bound: | limited by");
        for part in &layer.parts {
            table.add_row([
                part.name.to_owned(),
                duration(part.time_ns),
                duration(part.bound_ns),
                format!("{:?}", part.limited_by).to_lowercase(),
            ]);
        }
        text += &table.fitted(app.columns(), 4);
    }
    text
}

fn stages(app: &App, document: &LlmDocument) -> String {
    let mut table =
        TextTable::new("stage: | layers | weights: | KV cache: | activations: | in HBM: | of:");
    for (at, stage) in document.stages.iter().enumerate() {
        table.add_row([
            at.to_string(),
            format!("{} to {}", stage.first_layer, stage.first_layer + stage.layers - 1),
            bytes(stage.weights_bytes),
            bytes(stage.kv_bytes),
            bytes(stage.activation_bytes),
            bytes(stage.hbm_bytes),
            bytes(stage.hbm_capacity_bytes),
        ]);
    }
    table.fitted(app.columns(), 2)
}

/// The columns of a server.
fn cells(serving: &Serving) -> [String; 6] {
    [
        duration(serving.ttft_ns),
        duration(serving.tpot_ns),
        duration(serving.tpot_bound_ns),
        duration(serving.tpot_mixed_ns),
        format!("{:.0}", serving.output_tokens_per_s),
        format!("{:.0}", serving.output_tokens_per_s_gpu),
    ]
}

const SERVING: &str = "TTFT: | TPOT: | its bound: | with prefills: | tokens/s: | a GPU:";

fn points(app: &App, document: &LlmDocument) -> String {
    let mut table = TextTable::new(&format!("requests: | {SERVING} | "));
    for point in &document.points {
        let requests = point.concurrency.to_string();
        match &point.serving {
            Some(serving) => {
                let row = std::iter::once(requests).chain(cells(serving));
                table.add_row(row.chain([String::new()]));
            }
            None => {
                let row = std::iter::once(requests)
                    .chain(std::array::from_fn::<_, 6, _>(|_| String::new()));
                table.add_row(row.chain([point.impossible.clone().unwrap_or_default()]));
            }
        }
    }
    table.fitted(app.columns(), 2)
}

fn suggestions(app: &App, document: &LlmDocument) -> String {
    if document.suggestions.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(&format!("way | {SERVING}"));
    let mut ruled_out = String::new();
    for suggestion in &document.suggestions {
        let way = spread(&suggestion.parallelism);
        match (&suggestion.serving, &suggestion.impossible) {
            (Some(serving), _) => table.add_row(std::iter::once(way).chain(cells(serving))),
            (None, reason) => {
                let reason = reason.as_deref().unwrap_or_default();
                ruled_out += &format!("  {way}: {reason}\n");
            }
        }
    }
    let mut text = "\nways to spread it over as many GPUs\n".to_owned();
    if !table.is_empty() {
        text += &table.fitted(app.columns(), 2);
    }
    if !ruled_out.is_empty() {
        text += &format!("\nruled out\n{ruled_out}");
    }
    text
}
