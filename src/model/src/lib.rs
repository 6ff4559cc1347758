//! The data model that importers, analysis and reports share: the profile of one run and its parts.
//!
//! The model has rgpu's own names and units; importers translate from the exact mirrors of foreign
//! files in `rgpu-format`. It depends on nothing but the protocol's facts, so that importers,
//! analysis and reports can be read, tested and replaced separately.
//!
//! Two rules hold everywhere: a number that is missing or not finite is *absent* and named in
//! [`Profile::gaps`], never 0; and every number can name the artifact it came from.

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod agent_files;
pub mod beneath;
pub mod byte_size;
pub mod duration;
pub mod error;
pub mod fault_point;
pub mod ignore_files;
pub mod number_form;
pub mod ownership;
pub mod program_answer;
pub mod regular_file;
pub mod toml_error;

pub mod account;
pub mod bound;
pub mod build;
pub mod code;
pub mod comparison;
pub mod disasm;
pub mod fan_out;
pub mod finding;
pub mod hotspots;
pub mod launch;
pub mod memory;
pub mod metric;
pub mod module;
pub mod named_numbers;
mod open_enum;
pub mod operator;
pub mod profile;
pub mod rank_work;
pub mod ranks;
pub mod regions;
pub mod rung;
pub mod sanitizer;
pub mod selection;
mod shared_list;
pub mod shared_text;
pub mod sidecars;
pub mod speed_of_light;
pub mod stage;
pub mod stall_meaning;
pub mod suite;
pub mod suite_history;
pub mod timeline;
pub mod trace;

pub use account::Account;
pub use build::Build;
pub use comparison::Comparison;
pub use fan_out::{FanOut, FanOutRow};
pub use finding::{Classification, Evidence, Finding, Verdict};
pub use hotspots::HotSpots;
pub use launch::{Launch, StallReason};
pub use metric::{Metric, Value};
pub use module::KernelCode;
pub use named_numbers::NamedNumbers;
pub use operator::Operator;
pub use profile::Profile;
pub use rank_work::JoinedRanks;
pub use ranks::Ranks;
pub use regions::RegionsDocument;
pub use rung::RungId;
pub use selection::Selection;
pub use shared_list::SharedList;
pub use shared_text::SharedText;
pub use sidecars::Sidecars;
pub use speed_of_light::{SpeedOfLight, Utilization};
pub use stage::Stage;
pub use timeline::{Region, Timeline};
pub use trace::Trace;
