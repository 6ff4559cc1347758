//! `rgpu schema`: the JSON Schemas of what rgpu writes.

use clap::{Args, ValueEnum};

use super::app::{App, Status};
use crate::error::{ErrorDocument, Exit, Failure, Result};

/// Print the JSON Schema of a document that rgpu writes
#[derive(Args, Clone, Debug)]
pub(super) struct SchemaArgs {
    /// Which document
    #[arg(value_enum)]
    pub name: SchemaName,
}

/// The documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SchemaName {
    /// profile.json
    Profile,
    /// run.json
    Run,
    /// env.json
    Env,
    /// inputs.json
    Inputs,
    /// hotspots.json
    Hotspots,
    /// trace.json
    Trace,
    /// compare.json
    Compare,
    /// plan-N.json
    Plan,
    /// A failure under --json
    Error,
}

/// Prints a schema.
pub(super) fn run(app: &App, args: &SchemaArgs) -> Result<Status> {
    let schema = match args.name {
        SchemaName::Profile => schemars::schema_for!(crate::model::Profile),
        SchemaName::Run => schemars::schema_for!(crate::store::RunRecord),
        SchemaName::Env => schemars::schema_for!(crate::run::EnvRecord),
        SchemaName::Inputs => schemars::schema_for!(crate::run::InputsRecord),
        SchemaName::Hotspots => schemars::schema_for!(crate::model::HotSpots),
        SchemaName::Trace => schemars::schema_for!(crate::model::Trace),
        SchemaName::Compare => schemars::schema_for!(crate::model::Comparison),
        SchemaName::Plan => schemars::schema_for!(rgpu_protocol::Plan),
        SchemaName::Error => schemars::schema_for!(ErrorDocument),
    };
    let text = serde_json::to_string_pretty(&schema)
        .map_err(|e| Failure::new(Exit::Bug, "bug", "a schema cannot be written").cause(e))?;
    app.print(&format!("{text}\n"));
    Ok(0)
}
