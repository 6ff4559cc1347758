//! The run folder: the inputs, events, logs, files and results of one run.
//!
//! ```text
//! artifacts/runs/                     the root (`runs_dir`), with a .gitignore of its own
//!   latest                            link to the last run, for people; rgpu does not follow it
//!   .latest                           the id of the last run
//!   20261120-101502-vecadd-ncu-3f2a1c/
//!     run.json plan-N.json events.jsonl env.json inputs.json config.toml commands.sh
//!     log/<step>.{stdout,stderr}  raw/  ptx/ cubin/ sass/
//!     profile.json hotspots.json trace.json samples.jsonl report.md regions/
//!     suite.json index.html junit.xml suite.csv        (of a suite)
//! ```
//!
//! Files are written under a temporary name and renamed ([`atomic`]), so a reader never sees half a
//! file. Ids sort by time. [`RunFolder::artifact_path`] checks the names that a host sends: it
//! maps an artifact's path into the folder or refuses it. One process at a time follows a run and
//! writes into its folder; reading needs no lock.

pub mod archive;
pub mod atomic;
mod cost;
mod destination;
mod error;
mod folder;
mod follower;
mod git;
mod list;
pub mod live;
mod made;
pub mod project_files;
mod provenance;
mod record;
mod started;
pub mod state;

pub use cost::{BilledCost, Cost, CostSource};
pub use destination::{Destination, DestinationError, DestinationRoot};
pub use error::StoreError;
pub use folder::{LogPosition, Recorder, RunFolder};
pub use git::RepositoryError;
pub use git::{QuietGit, inner_repositories};
pub use list::{RunLine, Runs, RunsToRemove};
pub use made::MadeFolders;
pub use provenance::{
    CaseSizes, EnvRecord, InputDigest, InputsRecord, Repository, digest_file, digest_of, repository,
};
pub use record::{JobRecord, RunParent, RunRecord, RunState, UnsyncedFile, remote_suffix};
pub use rgpu_model::beneath::NewFile;
pub use started::StartedRuns;
