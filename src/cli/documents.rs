//! The JSON Schemas that `rgpu schema` prints: of the documents that rgpu writes, and of the TOML
//! files that users write. Most come from the Rust type of the document, which often belongs to the
//! command that prints it.

use super::schema::SchemaName;

/// The schema of a document.
pub(super) fn schema_of(name: SchemaName) -> schemars::Schema {
    match name {
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
        SchemaName::Doctor => schemars::schema_for!(super::doctor::DoctorReport),
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
        SchemaName::Reindexed => schemars::schema_for!(super::support::suite_index::Reindexed),
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
        SchemaName::ModelReconcile => schemars::schema_for!(super::model::ReconcileResult),
        SchemaName::ModelTerms => schemars::schema_for!(rgpu_predict::document::TermsDocument),
        SchemaName::ModelCard => schemars::schema_for!(rgpu_predict::import::card::ModelCard),
        SchemaName::DashboardExport => schemars::schema_for!(crate::dashboard::Exported),
        SchemaName::Skill => schemars::schema_for!(super::skill::InstalledSkill),
        SchemaName::KernelToml => of_file(include_str!("../../schemas/kernel-toml.json")),
        SchemaName::RgpuToml => of_file(include_str!("../../schemas/rgpu-toml.json")),
        SchemaName::BenchToml => of_file(include_str!("../../schemas/bench-toml.json")),
        SchemaName::LoopToml => rgpu_work::loops::LoopConfig::file_schema(),
        SchemaName::Error => schemars::schema_for!(rgpu_model::error::ErrorDocument),
        SchemaName::DashboardOpenapi => crate::dashboard::openapi().try_into().unwrap_or_default(),
        SchemaName::Openapi => {
            rgpu_protocol::http::openapi::document().try_into().unwrap_or_default()
        }
    }
}

/// A hand-written schema. No Rust type describes these files: own code reads them key by key.
fn of_file(text: &str) -> schemars::Schema {
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    value.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_one() {
        for name in <SchemaName as clap::ValueEnum>::value_variants() {
            let schema = schema_of(*name);
            assert!(schema.as_object().is_some_and(|keys| keys.len() > 2), "{name:?}");
        }
    }
}
