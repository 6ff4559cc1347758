//! Reports of a suite: for terminals, pull requests, spreadsheets, CI and browsers.
//!
//! They are not in [`super::REPORTS`], since those render a single profile.

mod case_names;
mod csv;
mod history;
mod junit;
mod markdown;
mod page;
mod pair;
mod plot;
mod roofline;
mod table;

pub use csv::csv;
pub use history::{history_page, history_table};
pub use junit::junit;
pub use markdown::markdown;
pub use page::html;
pub use plot::{PlotPoint, PlotSeries, plot_page, text_plot};
pub use table::{MIN_REASON_WIDTH, comparison_table, speedup_text, table};

/// The formats of `rgpu bench show`.
pub const FORMATS: [&str; 6] = ["table", "json", "markdown", "csv", "junit", "html"];
