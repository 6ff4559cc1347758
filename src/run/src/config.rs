//! Settings from all their sources, merged once; each value keeps its origin.
//!
//! Later layers win: built-in, the user's `config.toml`, the project's `rgpu.toml`, the environment
//! (`RGPU_REMOTE`, `RGPU_RUNS_DIR`). A command's flags win over all and are applied by the command
//! itself. Remotes (hosts, keys, `via`, commands) come only from the user's file: a cloned project
//! may *name* a remote, never define one. `config/project.rs` has the other limits of a project.

#![expect(clippy::disallowed_methods, reason = "the user's settings, and the project's rgpu.toml")]

mod program;
mod project;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::store::atomic;
pub use program::ProjectProgram;
pub use project::is_below;
use project::{ProjectFile, check_runs_dir};
use rgpu_analysis::Thresholds;
use rgpu_model::error::{Exit, Failure, Result, nearest, shell_word};
use rgpu_model::ownership::{Exposure, may_decide};
use rgpu_model::regular_file::{self, MAX_TOML_BYTES};
use rgpu_model::toml_error;
use rgpu_remote::{RemoteSpec, without_secret};

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The value that rgpu has without settings.
    Default,
    /// The user's own file.
    User(PathBuf),
    /// The project's settings file, at this path.
    Project(PathBuf),
    /// An environment variable, by name.
    Env(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("built in"),
            Self::User(path) | Self::Project(path) => write!(f, "{}", path.display()),
            Self::Env(name) => write!(f, "${name}"),
        }
    }
}

/// A value with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigValue<T> {
    /// The value that is in force.
    pub value: T,
    /// Where the value comes from.
    pub origin: Origin,
}

/// The environment variables of rgpu. The rest of the program reads none.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `RGPU_CONFIG`: replaces the user's settings file.
    pub config: Option<PathBuf>,
    /// The value of `RGPU_REMOTE`.
    pub remote: Option<String>,
    /// The value of `RGPU_RUNS_DIR`.
    pub runs_dir: Option<PathBuf>,
    /// `RGPU_LIBEXEC`: the folder with agent, runner and collector.
    pub libexec: Option<PathBuf>,
    /// The project of the agent that started this process. `None` if no agent did.
    pub agent_project: Option<PathBuf>,
}

impl Environment {
    /// Reads the process's environment, once.
    pub fn read() -> Self {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty());
        Self {
            config: var("RGPU_CONFIG").map(PathBuf::from),
            remote: var("RGPU_REMOTE").and_then(|v| v.into_string().ok()),
            runs_dir: var("RGPU_RUNS_DIR").map(PathBuf::from),
            libexec: var("RGPU_LIBEXEC").map(PathBuf::from),
            agent_project: var(AGENT_VARIABLE).map(PathBuf::from).filter(|dir| dir.is_absolute()),
        }
    }
}

/// The variable by which a command knows that an agent started it, not its user.
pub const AGENT_VARIABLE: &str = "RGPU_STARTED_BY_AGENT";

/// Whether an agent started this process.
pub fn is_started_by_agent() -> bool {
    std::env::var_os(AGENT_VARIABLE).is_some()
}

/// The project of the agent that started this process: the folder that [`AGENT_VARIABLE`] names,
/// else `own`, the project of this process. `None` if no agent did.
pub fn project_of_agent(own: &Path) -> Option<PathBuf> {
    let named = PathBuf::from(std::env::var_os(AGENT_VARIABLE)?);
    Some(if named.is_absolute() { named } else { own.to_owned() })
}

/// All settings, each with its origin.
#[derive(Clone, Debug)]
pub struct Config {
    /// The project folder: the nearest ancestor with `rgpu.toml`, or else the current folder.
    pub project: PathBuf,
    /// An `rgpu.toml` of another user that was found on the way to the project's, and ignored.
    pub ignored: Option<PathBuf>,
    /// The user's settings file, which may not exist.
    pub user_file: PathBuf,
    /// The remotes by name.
    pub remotes: BTreeMap<String, RemoteSpec>,
    /// The remote used without `--remote`.
    pub default_remote: ConfigValue<String>,
    /// The folder for runs.
    pub runs_dir: ConfigValue<PathBuf>,
    /// How many ended runs are kept; `None`: all.
    pub keep: ConfigValue<Option<usize>>,
    /// The size of rgpu's cache in GB above which parts go; 0 is no limit.
    pub cache_limit_gb: u64,
    /// Further folders that are searched for kernels.
    pub kernel_path: ConfigValue<Vec<PathBuf>>,
    /// `[preset.NAME]` tables: flag to value, as in `rgpu profile --help`.
    pub presets: BTreeMap<String, ConfigValue<toml::Table>>,
    /// `[program]` of the project: what runs where no program is typed.
    pub program: Option<ProjectProgram>,
    /// `[analysis]`: thresholds of the rules. The project's values win over the user's.
    pub thresholds: ConfigValue<Thresholds>,
    /// The folder with agent, runner and collector, if set.
    pub libexec: Option<PathBuf>,
}

/// The keys of the user's file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct UserFile {
    default_remote: Option<String>,
    #[serde(default)]
    remote: BTreeMap<String, RemoteSpec>,
    runs_dir: Option<PathBuf>,
    keep: Option<usize>,
    cache_limit_gb: Option<u64>,
    kernel_path: Option<Vec<PathBuf>>,
    #[serde(default)]
    preset: BTreeMap<String, toml::Table>,
    #[serde(default)]
    analysis: Thresholds,
}

/// The size of rgpu's cache in GB without the setting `cache_limit_gb`.
const CACHE_LIMIT_GB: u64 = 8;

/// The name of the local machine as a remote.
pub const LOCAL: &str = "local";

impl Config {
    /// Loads the settings for `cwd`. `home_config` is the user's configuration folder.
    ///
    /// # Errors
    /// A file exists but cannot be read, is not TOML, or has unknown keys; others can change the
    /// user's settings.
    pub fn load(cwd: &Path, home_config: &Path, env: &Environment) -> Result<Self> {
        let user_file = env.config.clone().unwrap_or_else(|| home_config.join("rgpu/config.toml"));
        if env.config.is_none() {
            check_exposure(&user_file)?;
        }
        // `rgpu remote add` makes the file, but a folder that does not exist is a slip.
        if let Some(folder) = env.config.as_deref().and_then(Path::parent)
            && !folder.as_os_str().is_empty()
            && !folder.is_dir()
        {
            return Err(bad_file(&user_file, "its folder does not exist")
                .hint("`RGPU_CONFIG` names this file: correct the variable, or unset it"));
        }
        // An agent may remove its project's `rgpu.toml`. It then has no settings of a folder above.
        let agent_project = env.agent_project.as_deref();
        let within = agent_project.unwrap_or(Path::new("/"));
        let (own, ignored): (Vec<_>, Vec<_>) = cwd
            .ancestors()
            .take_while(|dir| dir.starts_with(within))
            .map(|dir| dir.join("rgpu.toml"))
            .filter(|path| path.is_file())
            .partition(|path| may_decide(path, cwd));
        let project_file = own.into_iter().next();
        let ignored = ignored.into_iter().next();
        let project = project_file
            .as_deref()
            .and_then(Path::parent)
            .or(agent_project)
            .map_or_else(|| cwd.to_owned(), Path::to_owned);

        let user: UserFile = read(&user_file)?;
        for (name, spec) in &user.remote {
            without_secret(&spec.url).map_err(|f| {
                f.file(user_file.display()).cause(format!("it is the `url` of [remote.{name}]"))
            })?;
        }
        // The message about a file that is no TOML has a line of it.
        if let Some(path) = &project_file
            && !is_below(path, &project)
        {
            return Err(bad_file(path, "it is a link to a file outside of the project"));
        }
        let project_settings: ProjectFile = match &project_file {
            Some(path) => read(path).map_err(|f| {
                let cause = f.cause.as_deref().unwrap_or_default();
                let defines_remote = cause.contains("unknown field `remote`");
                if defines_remote { f.hint(DEFINES_REMOTE) } else { f }
            })?,
            None => ProjectFile::default(),
        };
        let from_user = || Origin::User(user_file.clone());
        let from_project = || project_file.clone().map_or(Origin::Default, Origin::Project);

        let default_remote = layered([
            (env.remote.clone(), Origin::Env("RGPU_REMOTE")),
            (project_settings.default_remote, from_project()),
            (user.default_remote, from_user()),
            (Some(LOCAL.to_owned()), Origin::Default),
        ]);
        let user_dir = user_file.parent().unwrap_or(cwd);
        let runs_dir = layered([
            (env.runs_dir.clone().map(|p| cwd.join(p)), Origin::Env("RGPU_RUNS_DIR")),
            (project_settings.runs_dir.map(|p| project.join(p)), from_project()),
            (user.runs_dir.map(|p| project.join(p)), from_user()),
            (Some(project.join("artifacts/runs")), Origin::Default),
        ]);
        check_runs_dir(&runs_dir, &project, &user_file)?;
        let keep = layered([
            (project_settings.keep.map(Some), from_project()),
            (user.keep.map(Some), from_user()),
            (Some(None), Origin::Default),
        ]);
        let join_to = |base: &Path, list: Option<Vec<PathBuf>>| {
            list.map(|l| l.into_iter().map(|p| base.join(p)).collect::<Vec<_>>())
        };
        let kernel_path = layered([
            (join_to(&project, project_settings.kernel_path), from_project()),
            (join_to(user_dir, user.kernel_path), from_user()),
            (Some(Vec::new()), Origin::Default),
        ]);
        let origin = match (project_settings.analysis.iter().next(), user.analysis.iter().next()) {
            (Some(_), _) => from_project(),
            (None, Some(_)) => from_user(),
            (None, None) => Origin::Default,
        };
        let thresholds =
            ConfigValue { value: project_settings.analysis.with_fallback(user.analysis), origin };
        let with_origin = |origin: Origin| {
            move |(name, value): (String, toml::Table)| {
                (name, ConfigValue { value, origin: origin.clone() })
            }
        };
        let mut presets: BTreeMap<_, _> =
            user.preset.into_iter().map(with_origin(from_user())).collect();
        presets.extend(project_settings.preset.into_iter().map(with_origin(from_project())));
        let program = match (project_settings.program, &project_file) {
            (Some(table), Some(file)) => Some(table.checked(file, &project)?),
            _ => None,
        };
        let mut remotes = user.remote;
        remotes.iter_mut().for_each(|(name, spec)| spec.name.clone_from(name));
        Ok(Self {
            project,
            ignored,
            user_file,
            remotes,
            default_remote,
            runs_dir,
            keep,
            cache_limit_gb: user.cache_limit_gb.unwrap_or(CACHE_LIMIT_GB),
            kernel_path,
            presets,
            program,
            thresholds,
            libexec: env.libexec.clone(),
        })
    }

    /// The size of rgpu's cache in bytes above which parts go. `None` if there is no limit.
    pub fn cache_limit_bytes(&self) -> Option<u64> {
        (self.cache_limit_gb > 0).then(|| self.cache_limit_gb.saturating_mul(1_000_000_000))
    }

    /// The definition of a remote: one from the user's settings, `local`, or `name` itself as an
    /// address (`ssh://user@host:port`, or an alias of `~/.ssh/config` according to `is_alias`).
    ///
    /// # Errors
    /// The name is unknown; the failure names similar ones and the command that adds it.
    pub fn remote(&self, name: &str, is_alias: impl FnOnce(&str) -> bool) -> Result<RemoteSpec> {
        if let Some(spec) = self.remotes.get(name) {
            return Ok(spec.clone());
        }
        if name == LOCAL {
            return Ok(RemoteSpec::local());
        }
        without_secret(name)?;
        // An address or an alias is used unchanged; opening it reports errors in it.
        if name.contains("://") || is_alias(name) {
            return Ok(RemoteSpec::new(name, name));
        }
        let known = self.remotes.keys().map(String::as_str).chain([LOCAL]);
        let near = nearest(name, known);
        let mut failure =
            Failure::new(Exit::Config, "unknown_remote", format!("there is no remote `{name}`"))
                .file(self.user_file.display());
        if !near.is_empty() {
            failure = failure.hint(format!("did you mean `{}`?", near.join("` or `")));
        } else if !name.contains(['@', ':', '/'])
            && let Some(list) = configured_remotes_hint(self.remotes.keys())
        {
            failure = failure.hint(list);
        }
        // `user@host` only lacks the scheme.
        Err(failure.hint(if name.contains(':') && !name.contains(['@', '/']) {
            format!("an address is written `ssh://{name}`, of a worker `http://{name}`")
        } else if name.contains(['@', ':', '/']) {
            format!("an address is written `ssh://{name}`")
        } else if name.is_empty() {
            "`rgpu remote list` shows the remotes".to_owned()
        } else {
            format!("rgpu remote add {} ssh://user@host:22", shell_word(name))
        }))
    }

    /// The settings of a run as TOML with the origin of each, for `config.toml` in the run folder.
    /// Of the remote it has only name and address, no keys or variables.
    pub fn record(&self, remote: &RemoteSpec) -> String {
        let mut doc = toml_edit::DocumentMut::new();
        let mut set = |key: &str, value: toml_edit::Value, origin: &Origin| {
            doc[key] = toml_edit::Item::Value(value.decorated(" ", format!(" # {origin}")));
        };
        set(
            "default_remote",
            self.default_remote.value.as_str().into(),
            &self.default_remote.origin,
        );
        set("runs_dir", self.runs_dir.value.display().to_string().into(), &self.runs_dir.origin);
        let folders = self.kernel_path.value.iter().map(|p| p.display().to_string());
        set("kernel_path", folders.collect::<toml_edit::Array>().into(), &self.kernel_path.origin);
        let mut analysis = toml_edit::Table::new();
        for (key, value) in self.thresholds.value.iter() {
            analysis[key] = toml_edit::value(value);
        }
        if !analysis.is_empty() {
            doc["analysis"] = toml_edit::Item::Table(analysis);
        }
        doc["remote"] = implicit_table();
        let mut table = toml_edit::Table::new();
        table["url"] = toml_edit::value(remote.url.as_str());
        doc["remote"][&remote.name] = toml_edit::Item::Table(table);
        doc.to_string()
    }

    /// Adds or replaces a remote in the user's file.
    pub fn add_remote(&self, name: &str, spec: &RemoteSpec, make_default: bool) -> Result<()> {
        // Serialised with the crate that reads it, then parsed for editing.
        let text = toml::to_string(spec).map_err(|e| bad_file(&self.user_file, &e.to_string()))?;
        let value: toml_edit::DocumentMut = text
            .parse()
            .map_err(|e: toml_edit::TomlError| bad_file(&self.user_file, &e.to_string()))?;
        self.edit(|doc| {
            let end = last_position(doc.as_table()) + 1;
            let remotes = doc.entry("remote").or_insert_with(implicit_table);
            let old_table = remotes.get(name).and_then(|item| item.as_table());
            let mut new_table = value.as_table().clone();
            if let Some(old_table) = old_table {
                *new_table.decor_mut() = old_table.decor().clone();
            }
            let position = old_table.and_then(toml_edit::Table::position).unwrap_or(end);
            put_at(&mut new_table, position);
            if let Some(table) = remotes.as_table_mut() {
                table.insert(name, toml_edit::Item::Table(new_table));
            }
            if make_default {
                doc["default_remote"] = toml_edit::value(name);
            }
        })
    }

    /// Removes a remote; returns whether it existed.
    pub fn remove_remote(&self, name: &str) -> Result<bool> {
        let mut existed = false;
        self.edit(|doc| {
            if let Some(table) = doc.get_mut("remote").and_then(|r| r.as_table_mut()) {
                existed = table.remove(name).is_some();
            }
            if doc.get("default_remote").and_then(|v| v.as_str()) == Some(name) {
                doc.remove("default_remote");
            }
        })?;
        Ok(existed)
    }

    /// Sets the default remote in the user's file.
    pub fn set_default(&self, name: &str) -> Result<()> {
        self.edit(|doc| doc["default_remote"] = toml_edit::value(name))
    }

    /// Edits the user's file in place: keeps comments, order, and a symbolic link to it. Sets its
    /// mode to 0600. Concurrent edits wait for each other.
    fn edit(&self, change: impl FnOnce(&mut toml_edit::DocumentMut)) -> Result<()> {
        let write_error = |e: io::Error| {
            Failure::new(Exit::Disk, "disk", "cannot write your settings")
                .file(self.user_file.display())
                .cause(e)
        };
        let file = resolve_links(&self.user_file);
        let _lock = atomic::lock_parent_of(&file).map_err(write_error)?;
        let text = match settings_text(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(bad_file(&self.user_file, &e.to_string())),
        };
        let mut doc: toml_edit::DocumentMut = text
            .parse()
            .map_err(|e: toml_edit::TomlError| bad_file(&self.user_file, &e.to_string()))?;
        change(&mut doc);
        atomic::write_private(&file, doc.to_string().as_bytes()).map_err(write_error)
    }
}

/// Refuses settings that others than the user can change, as ssh does: they say where secrets go
/// and which programs start. A file that the user names (`$RGPU_CONFIG`) is used as it is.
fn check_exposure(user_file: &Path) -> Result<()> {
    // Settings are often kept in another folder and linked.
    let real = user_file.canonicalize().ok();
    let folders = [user_file.parent(), real.as_deref().and_then(Path::parent)];
    let home = std::env::home_dir();
    for path in folders.into_iter().flatten().chain([user_file]) {
        if let Some(exposure) = Exposure::at_path(path, home.as_deref()) {
            let command = match exposure {
                Exposure::Owner => "chown \"$(id -u)\"",
                Exposure::Mode(_) => "chmod go-w",
            };
            let path = path.display().to_string();
            let what = "your settings are not used, since others can change them";
            return Err(Failure::new(Exit::Config, "exposed_settings", what)
                .cause(exposure)
                .hint(format!("check what they say, then: {command} {}", shell_word(&path)))
                .file(path));
        }
    }
    Ok(())
}

/// The target of a symbolic link, which may not exist. Settings are often kept in another folder
/// and linked.
fn resolve_links(path: &Path) -> PathBuf {
    // The system's own limit (`path_resolution(7)`).
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

fn implicit_table() -> toml_edit::Item {
    let mut table = toml_edit::Table::new();
    table.set_implicit(true);
    toml_edit::Item::Table(table)
}

/// The position of the last table in a document.
fn last_position(table: &toml_edit::Table) -> isize {
    let below = |item: &toml_edit::Item| match item {
        toml_edit::Item::Table(table) => last_position(table),
        toml_edit::Item::ArrayOfTables(all) => all.iter().map(last_position).max().unwrap_or(0),
        _ => 0,
    };
    let deepest = table.iter().map(|(_, item)| below(item)).max().unwrap_or(0);
    deepest.max(table.position().unwrap_or(0))
}

/// Moves a table and its inner tables to this position. Tables with the same position are written
/// in the order in which they are stored.
fn put_at(table: &mut toml_edit::Table, position: isize) {
    table.set_position(Some(position));
    for (_, item) in table.iter_mut() {
        if let toml_edit::Item::Table(inner) = item {
            put_at(inner, position);
        }
    }
}

/// The first layer that has a value.
fn layered<T, const N: usize>(layers: [(Option<T>, Origin); N]) -> ConfigValue<T> {
    let set = layers
        .into_iter()
        .find_map(|(value, origin)| value.map(|value| ConfigValue { value, origin }));
    // The last layer of every call is the built-in value.
    match set {
        Some(set) => set,
        None => unreachable!("a setting without a built-in value"),
    }
}

fn settings_text(path: &Path) -> io::Result<String> {
    regular_file::read_to_string(path, MAX_TOML_BYTES)
}

fn read<T: Default + for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    match settings_text(path) {
        Ok(text) => toml::from_str(&text).map_err(|e| bad_file(path, &e.to_string())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(e) => Err(bad_file(path, &e.to_string())),
    }
}

/// The hint for a project's file with a table of a remote.
const DEFINES_REMOTE: &str =
    "a project may name a remote (`default_remote`), never define one: use `rgpu remote add`";

fn bad_file(path: &Path, cause: &str) -> Failure {
    Failure::new(Exit::Config, "bad_config", "a settings file cannot be used")
        .file(path.display())
        .cause(toml_error::short(cause))
}

/// A message names at most this many remotes.
const MAX_NAMED_REMOTES: usize = 5;

/// The user's remotes in a sentence; `None` if there are none.
pub fn configured_remotes_hint<'n>(
    names: impl ExactSizeIterator<Item = &'n String>,
) -> Option<String> {
    let all = names.len();
    let named: Vec<&str> = names.map(String::as_str).take(MAX_NAMED_REMOTES).collect();
    let rest = match all - named.len() {
        0 => String::new(),
        more => format!(" and {more} more (`rgpu remote list`)"),
    };
    (all > 0).then(|| format!("your remotes: `{}`{rest}", named.join("`, `")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(dir: &Path, env: Environment) -> Result<Config> {
        Config::load(&dir.join("project/sub"), &dir.join("home"), &env)
    }

    fn setup(user: &str, project: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("project/sub")).unwrap();
        fs::create_dir_all(dir.path().join("home/rgpu")).unwrap();
        fs::write(dir.path().join("home/rgpu/config.toml"), user).unwrap();
        fs::write(dir.path().join("project/rgpu.toml"), project).unwrap();
        dir
    }

    #[test]
    fn a_settings_file_that_the_user_named_in_no_folder_is_refused() {
        let dir = setup("", "");
        let named = |path: &str| Environment {
            config: Some(dir.path().join(path)),
            ..Environment::default()
        };
        let refused = load(dir.path(), named("nowhere/config.toml")).unwrap_err();
        assert!(refused.to_string().contains("its folder does not exist"), "{refused}");
        assert!(refused.hints[0].contains("RGPU_CONFIG"), "{refused}");
        // The file itself is made by the first `rgpu remote add`.
        assert!(load(dir.path(), named("home/new.toml")).is_ok());
    }

    #[test]
    fn an_agent_keeps_its_project_without_its_settings_file_and_gets_none_of_a_folder_above() {
        let dir = setup("", "keep = 3\n");
        let project = dir.path().join("project/sub");
        fs::create_dir(project.join("inner")).unwrap();
        let load_in = |cwd: &Path, agent_project: Option<PathBuf>| {
            let env = Environment { agent_project, ..Environment::default() };
            let config = Config::load(cwd, &dir.path().join("home"), &env).unwrap();
            (config.project, config.keep.value)
        };
        let inner = project.join("inner");
        assert_eq!(load_in(&project, None), (dir.path().join("project"), Some(3)));
        assert_eq!(load_in(&project, Some(project.clone())), (project.clone(), None));
        assert_eq!(load_in(&inner, Some(project.clone())), (project.clone(), None));
        // A project inside of the agent's own.
        fs::write(inner.join("rgpu.toml"), "keep = 4\n").unwrap();
        assert_eq!(load_in(&inner, Some(project)), (inner, Some(4)));
    }

    #[test]
    fn a_projects_file_that_leads_out_of_it_is_refused_without_a_line_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let (project, secret) = (dir.path().join("project"), dir.path().join("id_ed25519"));
        fs::create_dir(&project).unwrap();
        fs::write(&secret, "-----BEGIN KEY-----\n").unwrap();
        std::os::unix::fs::symlink(&secret, project.join("rgpu.toml")).unwrap();
        let refused = Config::load(&project, dir.path(), &Environment::default()).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("a link to a file outside") && !text.contains("BEGIN"), "{text}");
    }

    #[test]
    fn settings_that_others_can_change_are_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = setup("default_remote = \"a\"\n", "");
        let (folder, file) =
            (dir.path().join("home/rgpu"), dir.path().join("home/rgpu/config.toml"));
        let set_mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        let refused = || load(dir.path(), Environment::default()).unwrap_err();
        for (path, open, closed) in [(&folder, 0o777, 0o700), (&file, 0o666, 0o600)] {
            set_mode(path, open);
            let failure = refused();
            assert_eq!(failure.code, "exposed_settings");
            let told = format!("{:?}", failure.hints);
            assert!(told.contains(&format!("chmod go-w {}", path.display())), "{told}");
            // A file that the user names is used as it is.
            let named = Environment { config: Some(file.clone()), ..Environment::default() };
            assert_eq!(load(dir.path(), named).unwrap().default_remote.value, "a");
            set_mode(path, closed);
        }
        // Settings that are kept elsewhere.
        let kept = dir.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::rename(&file, kept.join("config.toml")).unwrap();
        std::os::unix::fs::symlink(kept.join("config.toml"), &file).unwrap();
        assert!(load(dir.path(), Environment::default()).is_ok());
        set_mode(&kept, 0o777);
        assert_eq!(refused().code, "exposed_settings");
    }

    #[test]
    fn later_layers_win_and_every_value_knows_its_origin() {
        let dir = setup("default_remote = \"a\"\nruns_dir = \"u\"\n", "default_remote = \"b\"\n");
        let config = load(dir.path(), Environment::default()).unwrap();
        assert_eq!(config.default_remote.value, "b");
        assert_eq!(
            config.default_remote.origin,
            Origin::Project(dir.path().join("project/rgpu.toml"))
        );
        assert_eq!(config.runs_dir.value, dir.path().join("project/u"));
        let env = Environment { remote: Some("c".into()), ..Default::default() };
        let config = load(dir.path(), env).unwrap();
        assert_eq!(config.default_remote.value, "c");
        assert_eq!(config.default_remote.origin.to_string(), "$RGPU_REMOTE");
    }

    #[test]
    fn a_runs_record_says_where_each_setting_came_from_and_names_no_key() {
        let dir = setup("", "default_remote = \"box\"\n");
        let config = load(dir.path(), Environment::default()).unwrap();
        let mut remote = RemoteSpec::new("box", "ssh://root@box");
        remote.identity = Some("/secret/key".into());
        let text = config.record(&remote);
        assert!(
            text.contains("default_remote = \"box\" # ") && text.contains("rgpu.toml\n"),
            "{text}"
        );
        assert!(text.contains("kernel_path = [] # built in"), "{text}");
        assert!(text.contains("[remote.box]\nurl = \"ssh://root@box\""), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn thresholds_are_layered_and_a_wrong_key_is_told_with_its_line() {
        let dir = setup(
            "[analysis]\nissue_slots = 0.5\nimbalance = 0.2\n",
            "[analysis]\nimbalance = 0.1\n",
        );
        let config = load(dir.path(), Environment::default()).unwrap();
        let own: Vec<_> = config.thresholds.value.iter().collect();
        assert_eq!(own.len(), 2);
        assert!(own.contains(&("imbalance", 0.1)) && own.contains(&("issue_slots", 0.5)));
        assert!(config.record(&RemoteSpec::local()).contains("[analysis]\nimbalance = 0.1\n"));
        let dir = setup("", "[analysis]\nimbalnce = 0.1\n");
        let failure = load(dir.path(), Environment::default()).unwrap_err();
        let cause = failure.cause.as_deref().unwrap_or_default();
        assert!(cause.contains("line 2") && cause.contains("`imbalnce`"), "{cause}");
    }

    #[test]
    fn a_project_may_not_define_a_remote() {
        let dir = setup("", "[remote.evil]\nurl = \"ssh://x@y\"\n");
        let failure = load(dir.path(), Environment::default()).unwrap_err();
        assert_eq!(failure.exit, Exit::Config);
        assert!(failure.hints[0].contains("never define one"), "{failure}");
    }

    #[test]
    fn adding_and_removing_a_remote_keeps_the_users_comments() {
        let dir = setup("# mine\nruns_dir = \"x\" # here\n", "");
        let config = load(dir.path(), Environment::default()).unwrap();
        let spec = RemoteSpec::new("h200", "ssh://root@box:2222");
        config.add_remote("h200", &spec, true).unwrap();
        let text = fs::read_to_string(&config.user_file).unwrap();
        assert!(text.starts_with("# mine\nruns_dir = \"x\" # here\n"), "{text}");
        let reloaded = load(dir.path(), Environment::default()).unwrap();
        assert_eq!(reloaded.default_remote.value, "h200");
        assert_eq!(reloaded.remotes["h200"], spec);
        assert!(reloaded.remove_remote("h200").unwrap());
        assert!(load(dir.path(), Environment::default()).unwrap().remotes.is_empty());
    }

    #[test]
    fn a_new_remote_stands_last_and_one_said_again_stays_where_it_was() {
        let user = "# mine\ndefault_remote = \"b\"\n\n# the second box\n[remote.b]\nurl = \"ssh://b\"\n\n\
                    [analysis]\nimbalance = 0.2\n\n# the first\n[remote.a]\nurl = \"ssh://a\"\n\n\
                    [remote.a.env]\nX = \"1\"\n";
        let dir = setup(user, "");
        let config = load(dir.path(), Environment::default()).unwrap();
        let mut spec = RemoteSpec::new("new", "ssh://new");
        spec.env.insert("Y".to_owned(), "2".to_owned());
        config.add_remote("new", &spec, false).unwrap();
        let text = fs::read_to_string(&config.user_file).unwrap();
        let rest = text.strip_prefix(user).unwrap_or_else(|| panic!("{text}"));
        assert!(rest.starts_with("\n[remote.new]\nurl = \"ssh://new\"\n"), "{text}");
        assert!(rest.ends_with("[remote.new.env]\nY = \"2\"\n"), "{text}");
        let changed_spec = RemoteSpec::new("b", "ssh://other");
        config.add_remote("b", &changed_spec, false).unwrap();
        let changed = fs::read_to_string(&config.user_file).unwrap();
        assert_eq!(changed, text.replace("ssh://b", "ssh://other"));
    }

    #[test]
    fn an_unknown_remote_names_the_nearest_and_the_line_to_type() {
        let dir = setup("[remote.h200]\nurl = \"ssh://root@box\"\n", "");
        let config = load(dir.path(), Environment::default()).unwrap();
        let failure = config.remote("h20", |_| false).unwrap_err();
        assert_eq!(failure.hints[0], "did you mean `h200`?");
        // Where remotes are kept.
        assert_eq!(failure.place.file, Some(config.user_file.display().to_string()));
        assert!(failure.hints[1].starts_with("rgpu remote add h20 ssh://"));
        // Nothing is near: those that there are.
        let failure = config.remote("cluster", |_| false).unwrap_err();
        assert_eq!(failure.hints[0], "your remotes: `h200`");
        let several: Vec<String> = ["a", "b", "c", "d", "e", "f", "g"].map(str::to_owned).into();
        let list = configured_remotes_hint(several.iter()).unwrap();
        assert_eq!(list, "your remotes: `a`, `b`, `c`, `d`, `e` and 2 more (`rgpu remote list`)");
        assert_eq!(configured_remotes_hint(several[..0].iter()), None);
        let failure = config.remote("root@box", |_| false).unwrap_err();
        assert_eq!(failure.hints, ["an address is written `ssh://root@box`"]);
        let failure = config.remote("127.0.0.1:8790", |_| false).unwrap_err();
        assert!(failure.hints[0].ends_with("of a worker `http://127.0.0.1:8790`"), "{failure}");
    }

    #[test]
    fn a_password_that_was_written_into_the_settings_is_refused_and_not_repeated() {
        let dir = setup("[remote.box]\nurl = \"https://me:hunter2@box\"\n", "");
        let text = load(dir.path(), Environment::default()).unwrap_err().to_string();
        assert!(text.contains("`url` of [remote.box]") && !text.contains("hunter2"), "{text}");
    }
}
