//! Tests that the files in `schemas/` are what the types of the documents say. With
//! `RGPU_WRITE_SCHEMAS` the test writes them instead; `cargo xtask schemas` runs it so.

use std::path::Path;

use clap::ValueEnum;

use super::schema::SchemaName;
use rgpu_report::json;

/// The schema of a document; `None` if its file is written by hand, because no Rust type describes
/// it.
fn schema_of(name: SchemaName) -> Option<schemars::Schema> {
    let schema = match name {
        SchemaName::Profile => schemars::schema_for!(rgpu_model::Profile),
        SchemaName::Run => schemars::schema_for!(rgpu_run::store::RunRecord),
        SchemaName::Env => schemars::schema_for!(rgpu_run::store::EnvRecord),
        SchemaName::Inputs => schemars::schema_for!(rgpu_run::store::InputsRecord),
        SchemaName::Hotspots => schemars::schema_for!(rgpu_model::HotSpots),
        SchemaName::Trace => schemars::schema_for!(rgpu_model::Trace),
        SchemaName::Compare => schemars::schema_for!(rgpu_model::Comparison),
        SchemaName::FanOut => schemars::schema_for!(rgpu_model::FanOut),
        SchemaName::Disasm => schemars::schema_for!(rgpu_model::disasm::DisasmDocument),
        SchemaName::Code => schemars::schema_for!(rgpu_model::code::CodeDocument),
        SchemaName::DisasmDiff => schemars::schema_for!(rgpu_model::disasm::Diff),
        SchemaName::Build => schemars::schema_for!(rgpu_model::Build),
        SchemaName::Layout => schemars::schema_for!(super::layout::LayoutDocument),
        SchemaName::LayoutDump => schemars::schema_for!(super::layout::LayoutDump),
        SchemaName::LayoutSnapshot => schemars::schema_for!(super::layout::LayoutSnapshot),
        SchemaName::Regions => schemars::schema_for!(rgpu_model::RegionsDocument),
        SchemaName::Plan => schemars::schema_for!(rgpu_protocol::Plan),
        SchemaName::Exec => schemars::schema_for!(super::exec::ExecResult),
        SchemaName::Remotes => schemars::schema_for!(super::remote::RemoteList),
        SchemaName::Host => schemars::schema_for!(super::remote::HostSummary),
        SchemaName::Doctor => schemars::schema_for!(super::doctor::DoctorDocument),
        SchemaName::Collectives => schemars::schema_for!(super::doctor::CollectivesDocument),
        SchemaName::Rental => schemars::schema_for!(super::remote::RentalStatus<'_>),
        SchemaName::Login => schemars::schema_for!(super::remote::Login),
        SchemaName::Kernels => schemars::schema_for!(super::kernels::KernelList),
        SchemaName::Kernel => schemars::schema_for!(super::kernels::KernelDetails),
        SchemaName::Runs => schemars::schema_for!(super::runs::RunList),
        SchemaName::Jobs => schemars::schema_for!(super::runs::JobList),
        SchemaName::Cache => schemars::schema_for!(super::cache::CacheReport),
        SchemaName::Cleaned => schemars::schema_for!(super::support::cleaned::CleanResult),
        SchemaName::Exported => schemars::schema_for!(super::runs::ExportResult),
        SchemaName::Suite => schemars::schema_for!(rgpu_model::suite::SuiteRun),
        SchemaName::SuiteCompare => schemars::schema_for!(rgpu_model::suite::SuiteComparison),
        SchemaName::Targets => schemars::schema_for!(super::bench::TargetList),
        SchemaName::History => schemars::schema_for!(rgpu_model::suite_history::History),
        SchemaName::Audit => schemars::schema_for!(rgpu_work::suite::audit::Audit),
        SchemaName::Expectations => {
            schemars::schema_for!(rgpu_work::suite::expectations::Expectations)
        }
        SchemaName::Reindexed => schemars::schema_for!(super::support::suite_index::ReindexResult),
        SchemaName::Queue => schemars::schema_for!(rgpu_work::queue::QueueDocument),
        SchemaName::QueueEntry => schemars::schema_for!(rgpu_work::queue::QueueEntryDocument),
        SchemaName::Loop => schemars::schema_for!(rgpu_work::loops::LoopStatus),
        SchemaName::LoopWorker => schemars::schema_for!(rgpu_work::loops::WorkerResult),
        SchemaName::LoopReviewer => schemars::schema_for!(rgpu_work::loops::ReviewerVerdict),
        SchemaName::LoopProgress => schemars::schema_for!(super::loops::ProgressDocument),
        SchemaName::LoopCheck => schemars::schema_for!(super::loops::CheckDocument),
        SchemaName::LoopPruned => schemars::schema_for!(super::loops::PrunedDocument),
        SchemaName::ModelGpus => schemars::schema_for!(rgpu_predict::document::GpuList),
        SchemaName::ModelGpu => schemars::schema_for!(rgpu_predict::document::GpuDocument),
        SchemaName::ModelCheck => schemars::schema_for!(rgpu_predict::document::CheckDocument),
        SchemaName::ModelKernel => schemars::schema_for!(rgpu_predict::document::KernelDocument),
        SchemaName::ModelComparison => schemars::schema_for!(super::model::ComparisonDocument),
        SchemaName::ModelLlm => schemars::schema_for!(rgpu_predict::document::LlmDocument),
        SchemaName::ModelCollective => {
            schemars::schema_for!(rgpu_predict::document::CollectiveDocument)
        }
        SchemaName::ModelConfig => schemars::schema_for!(rgpu_predict::document::ModelDocument),
        SchemaName::ModelImport => schemars::schema_for!(super::model::ImportResult),
        SchemaName::ModelFit => schemars::schema_for!(super::model::FitResult),
        SchemaName::ModelOperators => schemars::schema_for!(super::model::OperatorComparison),
        SchemaName::ModelReconcile => schemars::schema_for!(super::model::ReconcileResult),
        SchemaName::ModelTerms => schemars::schema_for!(rgpu_predict::document::TermsDocument),
        SchemaName::ModelCard => schemars::schema_for!(rgpu_predict::import::card::ModelCard),
        SchemaName::DashboardExport => schemars::schema_for!(crate::dashboard::DashboardExport),
        SchemaName::Skill => schemars::schema_for!(super::skill::InstalledSkill),
        SchemaName::KernelToml | SchemaName::RgpuToml | SchemaName::BenchToml => return None,
        SchemaName::LoopToml => rgpu_work::loops::LoopConfig::file_schema(),
        SchemaName::Error => schemars::schema_for!(rgpu_model::error::ErrorDocument),
    };
    Some(schema)
}

#[test]
fn the_schemas_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    let is_writing = std::env::var_os("RGPU_WRITE_SCHEMAS").is_some();
    for name in SchemaName::value_variants() {
        let Some(schema) = schema_of(*name) else {
            let written: serde_json::Value = serde_json::from_str(name.text()).unwrap();
            assert!(written["properties"].is_object(), "{name:?}");
            continue;
        };
        let text = json::pretty(&schema).unwrap();
        if is_writing {
            std::fs::write(folder.join(name.name()).with_extension("json"), text).unwrap();
        } else {
            let is_current = text == name.text();
            assert!(is_current, "{name:?} is out of date: run `cargo xtask schemas`");
        }
    }
}
