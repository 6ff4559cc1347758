//! `rgpu cache`: what rgpu keeps in the user's cache, how large it is, and how it is removed.
//!
//! ```text
//! ~/.cache/rgpu/
//!   python/KEY/        a fetched compiler or Python environment; `.ready` has its requirements, and
//!                      its time of change is the last use
//!   exec/ listings/    builds of Rust snippets, listings of nvdisasm
//!   jobs/ blobs/ tmp/  jobs of the remote `local`, which have a quota of their own
//! ```
//!
//! What else lies there is small, and some of it says what the user has agreed to. It stays.

#![expect(clippy::disallowed_methods, reason = "files that the user named, or rgpu's own")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::support::app::{App, Status};
use super::support::cleaned::CleanResult;
use rgpu_model::error::{Exit, Failure, Result, nearest};
use rgpu_model::number_form::counted;
use rgpu_plan::tool::{CUTE, NVCC, TRITON, Wheels};
use rgpu_report::{TextTable, age, bytes};
use rgpu_run::store::atomic;

/// How often the limit of the cache is looked at.
const LIMIT_CHECK_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// The file whose time of change says when the limit was last looked at.
const LIMIT_CHECK_FILE: &str = "limit-checked";

/// The folders that rgpu fills again when it needs them, and what is in them.
const FOLDERS: &[(&str, &str)] =
    &[("exec", "builds of Rust snippets"), ("listings", "listings of nvdisasm")];

/// The folders of the agent's jobs on this machine.
const JOB_FOLDERS: &[&str] = &["jobs", "blobs", "tmp"];

/// Show and clean rgpu's cache: fetched compilers, environments, builds
#[derive(Subcommand, Clone, Debug)]
pub(super) enum CacheCommand {
    /// Show each part with its size and last use
    #[command(after_long_help = examples!("rgpu cache show"))]
    Show,
    /// Remove parts; rgpu fetches or makes them again when it needs them
    #[command(after_long_help = examples!(
        "rgpu cache clean listings",
        "rgpu cache clean --dry-run",
    ))]
    Clean(CleanArgs),
}

#[derive(Args, Clone, Debug)]
pub(super) struct CleanArgs {
    /// The parts to remove, as `rgpu cache show` names them [default: all]
    #[arg(value_name = "PART")]
    pub parts: Vec<String>,

    /// Remove without asking
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,

    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The output of `cache show --json` (`rgpu.cache/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct CacheReport {
    /// Name and version of this schema: `rgpu.cache/1`.
    schema: &'static str,
    /// The folder.
    folder: String,
    /// The size of all parts in bytes.
    bytes: u64,
    /// The setting `cache_limit_gb` in bytes. Absent if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_bytes: Option<u64>,
    /// The parts, the largest first.
    parts: Vec<CachePart>,
}

/// A part of the cache.
#[derive(Clone, Serialize, JsonSchema)]
struct CachePart {
    /// The name that `cache clean` takes.
    name: String,
    /// What it is.
    contents: String,
    /// Size on disk in bytes.
    bytes: u64,
    /// Seconds since it was last used. Absent if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    unused_s: Option<u64>,
    /// Whether a job that has not ended uses it.
    in_use: bool,
    /// Whether `cache clean` removes it. Jobs are removed by `runs clean --remote local`.
    removable: bool,
    #[serde(skip)]
    folders: Vec<PathBuf>,
}

/// What `.ready` of an environment says.
#[derive(Deserialize)]
struct EnvironmentSpec {
    requirements: Vec<String>,
}

pub(super) fn run(app: &App, command: &CacheCommand) -> Result<Status> {
    match command {
        CacheCommand::Show => show(app),
        CacheCommand::Clean(args) => clean(app, args),
    }
}

fn show(app: &App) -> Result<Status> {
    let parts = cache_parts(&app.cache);
    let total = parts.iter().map(|part| part.bytes).sum();
    if app.global.json {
        app.print_json(&CacheReport {
            schema: "rgpu.cache/1",
            folder: app.cache.display().to_string(),
            bytes: total,
            limit_bytes: app.config.cache_limit_bytes(),
            parts,
        })?;
        return Ok(0);
    }
    let mut table = TextTable::new("part | size: | last used: | contents");
    for part in parts {
        let used = match part.unused_s {
            _ if part.in_use => "in use".to_owned(),
            Some(seconds) => format!("{} ago", age(Duration::from_secs(seconds))),
            None => String::new(),
        };
        table.add_row([part.name, bytes(part.bytes as f64), used, part.contents]);
    }
    app.print(&table.fitted_with_words(app.columns(), 0, "contents", 20));
    let limit = match app.config.cache_limit_bytes() {
        Some(limit) => format!("above {} the parts unused for longest go", bytes(limit as f64)),
        None => "no limit is set".to_owned(),
    };
    app.print_note(&format!(
        "{} in {}; {limit} (`cache_limit_gb`)",
        bytes(total as f64),
        app.cache.display()
    ));
    Ok(0)
}

fn clean(app: &App, args: &CleanArgs) -> Result<Status> {
    let all = cache_parts(&app.cache);
    for name in &args.parts {
        check_name(name, &all)?;
    }
    let named = |part: &CachePart| args.parts.is_empty() || args.parts.contains(&part.name);
    let (mut chosen, mut kept) = (Vec::new(), 0);
    for part in all.into_iter().filter(|part| part.removable && named(part)) {
        if part.in_use {
            kept += 1;
        } else {
            chosen.push(part);
        }
    }
    let total: u64 = chosen.iter().map(|part| part.bytes).sum();
    let amount = format!("{}, {}", counted(chosen.len(), "part", "parts"), bytes(total as f64));
    if !args.dry_run && !chosen.is_empty() {
        let names: Vec<&str> = chosen.iter().map(|part| part.name.as_str()).collect();
        if !args.yes && !app.agrees(&format!("Remove {amount} ({})?", names.join(", "))) {
            let words = format!("{amount} would be removed, and nothing is removed without a yes");
            return Err(Failure::new(Exit::Usage, "not_confirmed", words)
                .hint("`--dry-run` lists them; `--yes` removes them without asking"));
        }
        chosen.iter().try_for_each(remove)?;
    }
    if app.global.json {
        let removed = chosen.into_iter().map(|part| (part.name, part.bytes)).collect();
        app.print_json(&CleanResult::new(args.dry_run, removed, kept))?;
        return Ok(0);
    }
    for part in chosen.iter().filter(|_| args.dry_run) {
        app.print(&format!("would remove {}  {}\n", part.name, bytes(part.bytes as f64)));
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    app.print_note(&format!("{verb} {amount}"));
    if kept > 0 {
        let stay = counted(kept, "part stays", "parts stay");
        app.print_note(&format!("{stay}: a job that has not ended uses it"));
    }
    Ok(0)
}

fn check_name(name: &str, parts: &[CachePart]) -> Result<()> {
    match parts.iter().find(|part| part.name == name) {
        Some(part) if part.removable => Ok(()),
        Some(_) => Err(Failure::new(
            Exit::Usage,
            "usage",
            format!("`{name}` holds the jobs of the remote `local`"),
        )
        .hint("`rgpu runs clean --remote local` removes those whose results were fetched")),
        None => {
            let failure = Failure::new(
                Exit::Usage,
                "unknown_part",
                format!("the cache has no part `{name}`"),
            );
            let names = parts.iter().map(|part| part.name.as_str());
            Err(match nearest(name, names).first() {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => failure.hint("`rgpu cache show` lists the parts"),
            })
        }
    }
}

/// Removes the parts that were unused for longest until the cache is below its limit, at most once
/// a day. What a job uses stays. Errors do not fail the command.
pub(super) fn enforce_limit(app: &App) {
    let Some(limit) = app.config.cache_limit_bytes() else { return };
    let stamp = app.cache.join(LIMIT_CHECK_FILE);
    let is_recent = age_of(&stamp).is_some_and(|age| age < LIMIT_CHECK_INTERVAL);
    if is_recent || !app.cache.is_dir() || atomic::write_private(&stamp, b"").is_err() {
        return;
    }
    let mut parts = cache_parts(&app.cache);
    let mut total: u64 = parts.iter().map(|part| part.bytes).sum();
    parts.retain(|part| part.removable && !part.in_use);
    parts.sort_by_key(|part| std::cmp::Reverse(part.unused_s));
    for part in parts {
        if total <= limit {
            return;
        }
        if remove(&part).is_ok() {
            total = total.saturating_sub(part.bytes);
            app.print_note(&format!(
                "removed `{}` from the cache, {}: it is above {} (`cache_limit_gb`)",
                part.name,
                bytes(part.bytes as f64),
                bytes(limit as f64)
            ));
        }
    }
}

/// The parts of a cache folder, the largest first.
fn cache_parts(cache: &Path) -> Vec<CachePart> {
    let mut parts = environments(cache);
    for (name, contents) in FOLDERS {
        parts.push(CachePart::new(*name, *contents, vec![cache.join(name)]));
    }
    let folders = JOB_FOLDERS.iter().map(|name| cache.join(name)).collect();
    let mut jobs = CachePart::new("jobs", "jobs of the remote `local` and their inputs", folders);
    jobs.removable = false;
    parts.push(jobs);
    parts.retain(|part| part.bytes > 0);
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    parts
}

/// The fetched compilers and Python environments, by the name of their first requirement.
fn environments(cache: &Path) -> Vec<CachePart> {
    let used = environments_in_use(cache);
    let mut parts: Vec<CachePart> = Vec::new();
    for entry in fs::read_dir(cache.join("python")).into_iter().flatten().flatten() {
        let folder = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let ready = folder.join(".ready");
        let spec = rgpu_model::regular_file::read(&ready, 1 << 20).ok();
        let spec: Option<EnvironmentSpec> = spec.and_then(|s| serde_json::from_slice(&s).ok());
        let requirements: Vec<String> = spec
            .map(|spec| spec.requirements)
            .unwrap_or_default()
            .iter()
            .map(|requirement| distribution(requirement))
            .collect();
        let first = requirements.first().cloned().unwrap_or_else(|| "unfinished".to_owned());
        let more = match requirements.len() {
            0 | 1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let contents = match KNOWN_WHEELS.iter().find(|wheels| is_of(wheels, &requirements)) {
            Some(wheels) => format!("{}: {first}{more}", wheels.title),
            None => format!("Python environment: {first}{more}"),
        };
        let mut part = CachePart::new(first, contents, vec![folder.clone()]);
        part.unused_s = age_of(&ready).map(|age| age.as_secs());
        part.in_use = used.contains(&folder) || is_locked(&folder);
        parts.push(part);
    }
    // Two environments may begin with the same requirement.
    for at in 0..parts.len() {
        let same = parts[..at].iter().filter(|part| part.folders != parts[at].folders);
        if same.map(|part| &part.name).any(|name| *name == parts[at].name) {
            let key = parts[at].folders[0].file_name().unwrap_or_default().to_string_lossy();
            parts[at].name = format!("{}-{}", parts[at].name, key.get(..8).unwrap_or(&key));
        }
    }
    parts
}

/// The wheels that rgpu itself fetches.
static KNOWN_WHEELS: [&Wheels; 3] = [&NVCC, &CUTE, &TRITON];

/// Whether an environment with these distributions is that of the wheels.
fn is_of(wheels: &Wheels, distributions: &[String]) -> bool {
    let own = wheels.environment().requirements;
    let own: Vec<String> = own.iter().map(|requirement| distribution(requirement)).collect();
    own == distributions
}

/// Whether the environment is being made: `python_env.py` holds a lock beside it then.
fn is_locked(environment: &Path) -> bool {
    let Ok(lock) = fs::File::open(environment.with_extension("lock")) else { return false };
    lock.try_lock().is_err()
}

/// The distribution that a requirement names: `nvidia-cuda-nvcc` of `nvidia-cuda-nvcc==13.0.48`.
fn distribution(requirement: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    requirement.split(|c| !is_name(c)).next().unwrap_or_default().to_owned()
}

#[cfg(target_os = "linux")]
fn environments_in_use(cache: &Path) -> BTreeSet<PathBuf> {
    rgpu_agent::job::environments_in_use(cache)
}

/// Other systems run no jobs of their own.
#[cfg(not(target_os = "linux"))]
fn environments_in_use(_cache: &Path) -> BTreeSet<PathBuf> {
    BTreeSet::new()
}

impl CachePart {
    fn new(name: impl Into<String>, contents: impl Into<String>, folders: Vec<PathBuf>) -> Self {
        let unused_s = folders.iter().filter_map(|folder| age_of(folder)).min();
        Self {
            name: name.into(),
            contents: contents.into(),
            bytes: folders.iter().map(|folder| disk_bytes(folder)).sum(),
            unused_s: unused_s.map(|age| age.as_secs()),
            in_use: false,
            removable: true,
            folders,
        }
    }
}

/// Removes the folders of a part. Links in them are removed and not followed.
fn remove(part: &CachePart) -> Result<()> {
    for folder in &part.folders {
        fs::remove_dir_all(folder).map_err(|error| {
            let words = format!("the part `{}` of the cache cannot be removed", part.name);
            Failure::new(Exit::Disk, "disk", words).file(folder.display()).cause(error)
        })?;
    }
    Ok(())
}

/// The time since a file was changed. `None` if there is no file.
fn age_of(path: &Path) -> Option<Duration> {
    let changed = fs::symlink_metadata(path).ok()?.modified().ok()?;
    Some(SystemTime::now().duration_since(changed).unwrap_or_default())
}

/// The disk use of a folder in bytes. Links are not followed.
fn disk_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = walkdir::WalkDir::new(folder).into_iter().filter_map(std::result::Result::ok);
    entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_that_rgpu_fetches_is_told_by_its_title() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("python/aaaaaaaaaa");
        fs::create_dir_all(&folder).unwrap();
        let requirements = NVCC.environment().requirements;
        let spec = serde_json::json!({ "requirements": requirements });
        fs::write(folder.join(".ready"), spec.to_string()).unwrap();
        let parts = cache_parts(dir.path());
        assert!(parts[0].contents.starts_with("nvcc 13.5: "), "{}", parts[0].contents);
    }

    #[test]
    fn environments_are_named_by_their_first_requirement_and_jobs_are_not_removable() {
        let dir = tempfile::tempdir().unwrap();
        for (key, requirement) in [("aaaaaaaaaa", "triton==3.5"), ("bbbbbbbbbb", "triton==3.4")] {
            let folder = dir.path().join("python").join(key);
            fs::create_dir_all(&folder).unwrap();
            let spec = format!(r#"{{"requirements": ["{requirement}", "numpy"]}}"#);
            fs::write(folder.join(".ready"), spec).unwrap();
        }
        fs::create_dir_all(dir.path().join("jobs/one.1")).unwrap();
        let parts = cache_parts(dir.path());
        let mut names: Vec<(&str, bool)> =
            parts.iter().map(|part| (part.name.as_str(), part.removable)).collect();
        names.sort_unstable();
        assert_eq!(names[0], ("jobs", false));
        assert_eq!(names[1], ("triton", true));
        assert!(names[2].0.starts_with("triton-"), "{names:?}");
        assert!(check_name("jobs", &parts).is_err() && check_name("tritn", &parts).is_err());
    }
}
