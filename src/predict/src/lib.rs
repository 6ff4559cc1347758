//! Predicts the time of a kernel, a collective or a language model on a GPU: a speed-of-light
//! bound, and an estimate.
//!
//! Values in, values out: this crate opens no file and asks no host. The bound is the speed of
//! light: the larger of FLOPs over peak and bytes over bandwidth. The prediction adds what a real
//! kernel cannot avoid: padding to tiles, partly filled waves, launches, and, with a
//! [`Calibration`], measured efficiencies. Without one nothing is invented: the prediction is the
//! bound plus terms that have a source.
//!
//! ```text
//! hardware TOML ─▶ hw::Hardware ─▶ hw::Gpu ─┐
//! config.json ──▶ config::Model ────────────┼─▶ kernel, llm, collective ─▶ bound, time, terms
//! measured rows ─▶ fit ─▶ Calibration ──────┘                                    │
//!      └──────────────────────────── reconcile ◀────────────────────────────────┘
//! ```

pub mod calibration;
pub mod collective;
pub mod config;
pub mod document;
pub mod dtype;
pub mod fit;
pub mod hw;
pub mod import;
pub mod kernel;
pub mod known;
pub mod llm;
pub mod measured_step;
pub mod measurement;
pub mod reconcile;
pub mod term;

pub use calibration::Calibration;
pub use dtype::Dtype;
pub use term::Term;

/// The name of `all` that is most like `typed`, to suggest it in an error.
#[must_use]
pub fn nearest<'a>(typed: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&typed, name);
    all.into_iter().map(|name| (distance(name), name)).min().map(|(_, name)| name)
}
