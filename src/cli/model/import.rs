//! `rgpu model import`: configs and results of other tools. Results become one CSV.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rgpu_predict::document::model_document;
use rgpu_predict::import::{ImportDefaults, ImportError, MergedRows, merge};
use rgpu_predict::import::{aic, card, inferencemax, mlperf, trtllm, vllm};
use rgpu_predict::measurement::{Measurement, write_csv};
use schemars::JsonSchema;
use serde::Serialize;

use super::rows::DateArgs;
use super::{input, llm};
use crate::cli::support::app::{App, Status};
use crate::cli::support::overwrite;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::number_form::by_number;
use rgpu_report::{TextTable, bytes};
use rgpu_run::saved_json;
use rgpu_run::store::atomic;

/// Read configs and results of other tools
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct ImportArgs {
    /// The format of the files
    #[arg(value_enum)]
    pub format: Format,

    /// The files; for aic also folders with tables
    #[arg(required = true)]
    pub files: Vec<PathBuf>,

    /// Write the CSV here instead of to stdout
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// The GPU, if the files do not name one; for trtllm it replaces theirs
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,

    /// Number of GPUs, if the files do not give it
    #[arg(long)]
    pub tp: Option<u32>,

    /// Tokens of a prompt, if the files do not give them; for vllm and trtllm it replaces theirs
    #[arg(long, value_parser = input::count)]
    pub isl: Option<f64>,

    /// Tokens of an answer, if the files do not give them; for vllm and trtllm it replaces theirs
    #[arg(long, value_parser = input::count)]
    pub osl: Option<f64>,

    /// The day, if the files do not give it
    #[arg(long, value_parser = input::day)]
    pub date: Option<String>,

    #[command(flatten)]
    pub dates: DateArgs,
}

/// The format of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Format {
    /// A model's config.json: shows what rgpu reads from it
    Hf,
    /// A model card, Markdown with YAML front matter: shows the sizes that it states
    Card,
    /// Results of InferenceMAX: aggregated files and single artifacts
    Inferencemax,
    /// Results of vLLM's and SGLang's serving benchmarks
    Vllm,
    /// Reports of trtllm-bench
    Trtllm,
    /// mlperf_log_summary.txt
    Mlperf,
    /// Measured tables of aiconfigurator: Parquet, text, or a folder of them
    Aic,
}

/// The result of an import (`rgpu.model-import/1`).
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct ImportResult {
    /// Name and version of this schema: `rgpu.model-import/1`.
    schema: &'static str,
    /// The CSV, if it was written to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<String>,
    /// Rows that were left out since an earlier file has their configuration and day.
    duplicates: Vec<Duplicate>,
    /// The rows of all files that were kept.
    rows: Vec<Measurement>,
}

/// A row that was left out.
#[derive(Debug, Serialize, JsonSchema)]
struct Duplicate {
    /// The file of the row that was left out.
    file: String,
    /// The file whose row was kept.
    kept: String,
}

pub(super) fn run(app: &App, args: &ImportArgs) -> Result<Status> {
    if args.format == Format::Card {
        return cards(app, args);
    }
    if args.format == Format::Hf {
        return config(app, args);
    }
    let defaults = ImportDefaults {
        gpu: args.gpu.clone(),
        tp: args.tp,
        input: args.isl,
        output: args.osl,
        date: args.date.clone(),
    };
    let mut rows = Vec::new();
    for file in all_files(args)? {
        let data = input::read(&file)?;
        let name = file.display().to_string();
        if matches!(data.trim_ascii_start().first(), Some(b'{' | b'[')) {
            saved_json::check_any(&data).map_err(|over| {
                Failure::new(Exit::Artifact, "too_large", over.to_string()).file(&name)
            })?;
        }
        let read = match args.format {
            Format::Inferencemax => inferencemax::read(&name, &data, &defaults),
            Format::Vllm => vllm::read(&name, &data, &defaults),
            Format::Trtllm => trtllm::read(&name, &data, &defaults),
            Format::Mlperf => mlperf::read(&name, &data, &defaults),
            Format::Aic | Format::Hf | Format::Card => aic::read(&name, &data),
        };
        rows.extend(read.map_err(failure)?);
    }
    let rows = args.dates.select(rows);
    let MergedRows { rows, duplicates } = merge(rows);
    let mut counts: BTreeMap<&(String, String), usize> = BTreeMap::new();
    for pair in &duplicates {
        *counts.entry(pair).or_default() += 1;
    }
    for ((file, kept), n) in counts {
        let (rows, are) = (by_number(n, "row", "rows"), by_number(n, "is", "are"));
        app.print_note(&format!("duplicates: {n} {rows} of {file} {are} already in {kept}"));
    }
    if rows.is_empty() {
        return Err(Failure::new(Exit::Artifact, "no_rows", "the files have no row that fits")
            .hint("`--since` and `--until` leave out rows without a day"));
    }
    let table = write_csv(&rows).map_err(|error| {
        Failure::new(Exit::Bug, "bug", "the rows cannot be written as CSV").cause(error)
    })?;
    if let Some(out) = &args.out {
        overwrite_csv(out, &table)?;
        atomic::write(out, &table).map_err(|error| {
            Failure::new(Exit::Disk, "disk", "cannot write").file(out.display()).cause(error)
        })?;
        app.print_note(&format!("wrote {} rows to {}", rows.len(), out.display()));
    }
    if app.global.json {
        let duplicates = duplicates.into_iter();
        app.print_json(&ImportResult {
            schema: "rgpu.model-import/1",
            out: args.out.as_ref().map(|out| out.display().to_string()),
            duplicates: duplicates.map(|(file, kept)| Duplicate { file, kept }).collect(),
            rows,
        })?;
    } else if args.out.is_none() {
        app.print_bytes(&table);
    }
    Ok(0)
}

/// Refuses to replace a file that is not a CSV of measurements.
fn overwrite_csv(path: &std::path::Path, new: &[u8]) -> Result<()> {
    let first_line = |bytes: &[u8]| bytes.split(|b| *b == b'\n').next().map(<[u8]>::to_vec);
    match overwrite::head(path).filter(|old| !old.is_empty()) {
        Some(old) if first_line(&old) != first_line(new) => Err(Failure::new(
            Exit::Usage,
            "foreign_file",
            "the existing file is not a CSV of measurements",
        )
        .file(path.display())
        .hint("write to another path, or remove the file")),
        _ => Ok(()),
    }
}

fn failure(error: ImportError) -> Failure {
    let file = match &error {
        ImportError::Json { file, .. } | ImportError::Shape { file, .. } => file.clone(),
    };
    Failure::new(Exit::Artifact, "bad_import", error.to_string()).file(file)
}

/// The files that were named, and for tables those in named folders.
fn all_files(args: &ImportArgs) -> Result<Vec<PathBuf>> {
    let is_table = |path: &std::path::Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.ends_with("_perf.parquet") || name.ends_with("_perf.txt")
    };
    let mut files = Vec::new();
    for named in &args.files {
        if args.format != Format::Aic || !named.is_dir() {
            files.push(named.clone());
            continue;
        }
        let inside = walkdir::WalkDir::new(named).sort_by_file_name().into_iter();
        let before = files.len();
        files.extend(
            inside
                .filter_map(std::result::Result::ok)
                .map(walkdir::DirEntry::into_path)
                .filter(|path| is_table(path)),
        );
        if files.len() == before {
            return Err(Failure::new(Exit::Artifact, "no_rows", "the folder has no table")
                .file(named.display())
                .hint("tables are called *_perf.parquet or *_perf.txt")
                .hint("unpack a wheel first: `unzip FILE.whl`"));
        }
    }
    Ok(files)
}

fn cards(app: &App, args: &ImportArgs) -> Result<Status> {
    for path in &args.files {
        let card = card::read(&path.display().to_string(), &input::text(path)?).map_err(failure)?;
        if app.global.json {
            app.print_json(&card)?;
            continue;
        }
        let mut table = TextTable::new(" | : | ");
        let mut row = |name: &str, value: Option<String>| {
            let line = card.lines.get(name).map(|line| format!("line {line}")).unwrap_or_default();
            let value = value.unwrap_or_else(|| "not stated".to_owned());
            table.add_row([name.replace('_', " "), value, line]);
        };
        let count = |n: Option<f64>| n.map(|n| format!("{:.2} B", n / 1e9));
        row("parameters", count(card.parameters));
        if card.active_parameters.is_some() {
            row("active_parameters", count(card.active_parameters));
        }
        row("layers", card.layers.map(|n| n.to_string()));
        row("context", card.context.map(|n| format!("{n} tokens")));
        row("dtype", card.dtype.map(|dtype| dtype.to_string()));
        app.print(&format!("{}\n", card.name.as_deref().unwrap_or(&card.file)));
        app.print(&table.plain(app.style().width, 2));
        if let Some(base) = &card.base_model {
            app.print(&format!("  made from {base}\n"));
        }
        if !card.unknown.is_empty() {
            app.print_note(&format!(
                "unknown fields of the front matter: {}",
                card.unknown.join(", ")
            ));
        }
        if !card.missing.is_empty() {
            app.print_note(&format!(
                "the card does not state: {}; `rgpu model import hf config.json` reads them",
                card.missing.join(", ")
            ));
        }
    }
    Ok(0)
}

fn config(app: &App, args: &ImportArgs) -> Result<Status> {
    for path in &args.files {
        let document = model_document(&llm::model(path)?);
        if app.global.json {
            app.print_json(&document)?;
            continue;
        }
        app.print(&format!(
            "{}: {:.3} B parameters, {:.3} B a token, {} layers, KV cache {} a token\n",
            document.architecture,
            document.parameters / 1e9,
            document.active_parameters / 1e9,
            document.layers,
            bytes(document.kv_bytes_per_token),
        ));
        for kind in &document.kinds {
            let millions = kind.parameters / 1e6;
            app.print(&format!("  {} x {} ({millions:.1} M)\n", kind.count, kind.name));
        }
    }
    Ok(0)
}
