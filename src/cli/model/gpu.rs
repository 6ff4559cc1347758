//! `--gpu`: a GPU of the catalogue, one that the user added, or a file. And what else all
//! predictions take.

#![expect(
    clippy::disallowed_methods,
    reason = "the GPUs that the user added, in rgpu's data folder"
)]

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use rgpu_predict::Calibration;
use rgpu_predict::calibration::shipped;
use rgpu_predict::hw::{Gpu, Hardware, builtin_gpus, find};
use rgpu_predict::kernel::{Context, KernelTime, LaunchMode};

use super::input;
use crate::cli::support::app::App;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::toml_error;

/// Arguments of every prediction.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct GpuArgs {
    /// The GPU: a name of `rgpu model hw list`, or a hardware file
    #[arg(long, value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub gpu: String,

    /// Measured efficiencies, as `rgpu model fit` writes them, instead of those that ship with
    /// rgpu; `none` predicts with full efficiency
    #[arg(long, value_name = "FILE|none")]
    pub calib: Option<PathBuf>,

    /// How kernels are launched
    #[arg(long, value_parser = ["graph", "stream", "synchronous"], default_value = "graph")]
    pub launch: String,
}

/// A GPU with what predictions for it use.
pub(super) struct PredictedGpu {
    pub(super) hardware: Hardware,
    pub(super) gpu: Gpu,
    pub(super) calibration: Option<Calibration>,
    pub(super) launch: LaunchMode,
}

impl PredictedGpu {
    /// The inputs of predictions.
    pub(super) fn context(&self) -> Context<'_> {
        Context { gpu: &self.gpu, calibration: self.calibration.as_ref(), launch: self.launch }
    }
}

impl PredictedGpu {
    /// Where the efficiencies of a calibrated time come from. `None` for the user's own fit.
    pub(super) fn source_note(&self, time: &KernelTime) -> Option<String> {
        self.calibration.as_ref().filter(|_| time.is_calibrated)?.source_text()
    }

    /// This target at both ends of the likely range. `None` without a calibration.
    pub(super) fn likely_ends(&self) -> Option<[Self; 2]> {
        let calibration = self.calibration.as_ref()?;
        Some(calibration.ends().map(|end| Self {
            hardware: self.hardware.clone(),
            gpu: self.gpu,
            calibration: Some(end),
            launch: self.launch,
        }))
    }
}

/// Loads what the flags name.
pub(super) fn target(app: &App, args: &GpuArgs) -> Result<PredictedGpu> {
    let hardware = load(app, &args.gpu)?;
    let gpu = resolve(&hardware)?;
    let calibration = calibration(args.calib.as_deref(), &hardware.id)?;
    let launch = match args.launch.as_str() {
        "stream" => LaunchMode::Stream,
        "synchronous" => LaunchMode::Synchronous,
        _ => LaunchMode::Graph,
    };
    Ok(PredictedGpu { hardware, gpu, calibration, launch })
}

/// The numbers of a GPU.
pub(super) fn resolve(hardware: &Hardware) -> Result<Gpu> {
    hardware.gpu().map_err(|error| Failure::new(Exit::Config, "bad_hardware", error.to_string()))
}

/// The calibration of the GPU `id`: that of a file, or the one that ships. `None` with `none`, or
/// if none is known.
pub(super) fn calibration(file: Option<&Path>, id: &str) -> Result<Option<Calibration>> {
    let Some(path) = file else { return Ok(shipped(id)) };
    if path.as_os_str() == "none" {
        return Ok(None);
    }
    let calibration = Calibration::parse(&input::toml(path)?).map_err(|error| {
        let what = toml_error::short(&error.to_string());
        Failure::new(Exit::Config, "bad_calibration", what).file(path.display())
    })?;
    if calibration.gpu == id {
        Ok(Some(calibration))
    } else {
        let what = format!("the calibration is of `{}`, not of `{id}`", calibration.gpu);
        Err(Failure::new(Exit::Config, "bad_calibration", what).file(path.display()))
    }
}

/// The folder of the GPUs that the user added.
pub(super) fn folder(app: &App) -> PathBuf {
    app.config_dir.join("rgpu").join("hardware")
}

/// Reads a hardware file.
pub(super) fn read(path: &Path) -> Result<Hardware> {
    Hardware::parse(&input::toml(path)?).map_err(|error| {
        Failure::new(Exit::Config, "bad_hardware", toml_error::short(&error.to_string()))
            .file(path.display())
            .hint("`rgpu model hw show h200 --toml` prints a file of this form")
    })
}

/// The GPU of this name: of the catalogue, added by the user, or a file.
pub(super) fn load(app: &App, name: &str) -> Result<Hardware> {
    if name.ends_with(".toml") || name.contains(std::path::MAIN_SEPARATOR) {
        return read(Path::new(name));
    }
    let unknown = match find(name) {
        Ok(hardware) => return Ok(hardware.clone()),
        Err(unknown) => unknown,
    };
    let added = folder(app).join(format!("{}.toml", name.to_lowercase()));
    if added.is_file() {
        return read(&added);
    }
    Err(Failure::new(Exit::Config, "unknown_gpu", unknown.to_string())
        .hint("`rgpu model hw list` shows all")
        .hint("`rgpu model hw add FILE` adds one"))
}

/// All GPUs that can be named, with where they come from. Files that cannot be read are left out:
/// `rgpu model hw check` tells why.
pub(super) fn all(app: &App) -> Vec<(Hardware, String)> {
    let mut all: Vec<(Hardware, String)> =
        builtin_gpus().map(|hardware| (hardware.clone(), "shipped".to_owned())).collect();
    all.extend(added(app).into_iter().filter_map(|path| {
        let hardware = Hardware::parse(&input::toml(&path).ok()?).ok()?;
        Some((hardware, path.display().to_string()))
    }));
    all
}

/// The files that the user added, sorted.
pub(super) fn added(app: &App) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder(app)).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}
