//! Reads loop.toml, and finds mistakes in it before anything is measured.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use toml::de::DeTable;

use super::{Direction, LoopConfig, LoopMetric, LoopMode, is_allowed, matcher};
use crate::loops::LoopError;
use crate::loops::error::NOT_TOML;
use rgpu_model::beneath::Folder;
use rgpu_model::error::shell_word;
use rgpu_model::{agent_files, regular_file, toml_error};
use rgpu_run::store::project_files;

/// The largest file with the user's words for the worker.
const MAX_INSTRUCTIONS_BYTES: u64 = 1 << 20;

/// The smallest byte limit of a prompt: its fixed part must fit.
const MIN_PROMPT_BYTES: usize = 4096;

/// The names that commands may have in braces.
const PLACEHOLDERS: &[&str] = &["prompt", "iter_dir", "kernel"];

/// A key with a wrong value, and what is wrong.
type Fault = (&'static str, String);

/// Where each key of a loop's settings is from, for error messages.
#[derive(Clone, Debug)]
pub struct ConfigOrigin {
    file: PathBuf,
    /// By the key's full name: the name that the user gave, and its line; none on the command line.
    keys: BTreeMap<String, (String, Option<usize>)>,
}

impl ConfigOrigin {
    /// The file with the loop's settings.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether the key's value is one of the command line.
    pub fn is_typed(&self, key: &str) -> bool {
        matches!(self.keys.get(key), Some((_, None)))
    }

    /// The error of a wrong value.
    pub fn error(&self, key: &str, why: impl Into<String>) -> LoopError {
        let why = toml_error::short(&why.into());
        let (line, why) = match self.keys.get(key) {
            Some((name, None)) => (None, format!("`{name}` of the command line: {why}")),
            Some((name, line)) => (*line, format!("`{name}`: {why}")),
            None => (None, format!("`{key}`: {why}")),
        };
        LoopError::Config { file: self.file.clone(), line, why }
    }
}

impl LoopConfig {
    /// Reads a loop.toml with further `KEY=VALUE` of the command line.
    ///
    /// # Errors
    /// [`LoopError::NoFile`] if there is none; [`LoopError::Config`] for a file that cannot be read
    /// and for keys and values that mean nothing.
    pub fn read(file: &Path, overrides: &[String]) -> Result<(Self, ConfigOrigin), LoopError> {
        let wrong = |line, why| LoopError::Config { file: file.to_owned(), line, why };
        let text =
            agent_files::read_to_string(file, regular_file::MAX_TOML_BYTES).map_err(|e| match e
                .kind()
            {
                ErrorKind::NotFound => LoopError::NoFile(file.to_owned()),
                _ => wrong(None, format!("it cannot be read: {e}")),
            })?;
        let not_toml = |e: toml::de::Error| {
            let line = e.span().map(|span| line_of(&text, span.start));
            wrong(line, format!("{NOT_TOML}: {}", toml_error::short(e.message())))
        };
        let mut origin = ConfigOrigin { file: file.to_owned(), keys: BTreeMap::new() };
        for key in DeTable::parse(&text).map_err(not_toml)?.get_ref().keys() {
            let line = line_of(&text, key.span().start);
            let name: &str = key.get_ref().as_ref();
            let known =
                origin.keys.insert(canonical(name).to_owned(), (name.to_owned(), Some(line)));
            if let Some((other, _)) = known {
                let why = format!("`{other}` and `{name}` are the same key: give one of them");
                return Err(wrong(Some(line), why));
            }
        }
        let written: toml::Table = text.parse().map_err(not_toml)?;
        let mut table: toml::Table =
            written.into_iter().map(|(key, value)| (canonical(&key).to_owned(), value)).collect();
        for word in overrides {
            let (name, text) = word.split_once('=').ok_or_else(|| {
                wrong(None, format!("`{word}` of the command line is not KEY=VALUE"))
            })?;
            let name = name.trim();
            // A bare word is text, so that quotes are not needed in a shell.
            let value = format!("x = {text}").parse::<toml::Table>().ok();
            let value = value.and_then(|mut table| table.remove("x"));
            let value = value.unwrap_or_else(|| toml::Value::String(text.to_owned()));
            table.insert(canonical(name).to_owned(), value);
            origin.keys.insert(canonical(name).to_owned(), (name.to_owned(), None));
        }
        // Each key alone, because an error of the whole does not name its key.
        for (key, value) in &table {
            let mut alone = toml::Table::new();
            alone.insert("kernel_path".to_owned(), toml::Value::String(String::new()));
            alone.insert(key.clone(), value.clone());
            Self::deserialize(toml::Value::Table(alone))
                .map_err(|e| origin.error(key, e.message()))?;
        }
        let config = Self::deserialize(toml::Value::Table(table))
            .map_err(|e| wrong(None, toml_error::short(e.message())))?;
        config.check().map_err(|(key, why)| origin.error(key, why))?;
        Ok((config, origin))
    }

    fn check(&self) -> Result<(), Fault> {
        if !(self.threshold > 0.0 && self.threshold < 1.0) {
            return Err(("threshold", "must lie above 0 and below 1, such as 0.01".to_owned()));
        }
        if self.prompt_bytes < MIN_PROMPT_BYTES {
            return Err(("prompt_bytes", format!("must be at least {MIN_PROMPT_BYTES}")));
        }
        let counts = [
            ("max_iterations", self.max_iterations),
            ("max_no_progress", self.max_no_progress),
            ("max_infra_failures", self.max_infra_failures),
            ("target_confirmations", self.target_confirmations),
        ];
        if let Some((key, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err((key, "must be at least 1".to_owned()));
        }
        let times = [
            ("max_wall_time", self.max_wall_time),
            ("worker_timeout", self.worker_timeout),
            ("reviewer_timeout", self.reviewer_timeout),
            ("measure_timeout", self.measure_timeout),
        ];
        if let Some((key, _)) = times.iter().find(|(_, time)| time.duration().is_zero()) {
            return Err((key, "must be above 0".to_owned()));
        }
        if self.mode == LoopMode::Command && self.worker_command.is_none() {
            return Err(("mode", "`command` needs `worker_command`".to_owned()));
        }
        for (key, command) in self.commands() {
            if shlex::split(command).is_none_or(|words| words.is_empty()) {
                let why = format!("`{command}` is not a command: a quote is open, or it is empty");
                return Err((key, why));
            }
            if let Some(name) = unknown_placeholder(command) {
                let known = "`{prompt}`, `{iter_dir}` and `{kernel}`";
                return Err((key, format!("`{{{name}}}` is unknown; there are {known}")));
            }
        }
        let is_wrong_way = match (self.target_metric_name, self.target_metric_direction) {
            (LoopMetric::GmeanUs, Some(way)) => way != Direction::Lower,
            (LoopMetric::Speedup, Some(way)) => way != Direction::Higher,
            (_, None) => false,
        };
        if is_wrong_way {
            let metric = self.target_metric_name.as_str();
            return Err(("target_metric_direction", format!("`{metric}` improves the other way")));
        }
        if self.target_metric_threshold.is_some_and(|target| !(target > 0.0 && target.is_finite()))
        {
            return Err(("target_metric_threshold", "must be a number above 0".to_owned()));
        }
        Ok(())
    }

    fn commands(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let commands = [
            ("worker_command", &self.worker_command),
            ("reviewer_command", &self.reviewer_command),
        ];
        commands.into_iter().filter_map(|(key, command)| Some((key, command.as_ref()?)))
    }

    /// Checks what the settings name in the project: files and programs.
    pub fn check_against_project(
        &self,
        project: &Path,
        origin: &ConfigOrigin,
    ) -> Result<(), LoopError> {
        if let Err(why) = self.instructions_text(project) {
            return Err(origin.error("instructions", why));
        }
        if self.mode == LoopMode::Command {
            for (key, command) in self.commands() {
                let words = shlex::split(command).unwrap_or_default();
                let program = words.first().map(String::as_str).unwrap_or_default();
                if !program.contains('{') && !can_start(project, program) {
                    let why = if !program.contains('/') {
                        format!(
                            "there is no program `{program}` on PATH; write `./` before a program \
                             of the project"
                        )
                    } else if project.join(program).is_file() {
                        format!(
                            "`{program}` is not executable; run `chmod +x {}`",
                            shell_word(program)
                        )
                    } else {
                        format!("there is no program `{program}` in the project")
                    };
                    return Err(origin.error(key, why));
                }
            }
        }
        let mut files: Vec<PathBuf> = Vec::new();
        if !self.allowed_paths.is_empty() {
            for entry in project_files::walk(project) {
                let entry = entry.map_err(|e| origin.error("allowed_paths", e.to_string()))?;
                if !entry.path().is_dir() {
                    files.push(entry.into_path());
                }
            }
        }
        for pattern in &self.allowed_paths {
            let path = Path::new(pattern.trim_start_matches('!'));
            if path.components().any(|part| part == Component::ParentDir) {
                let why = format!("`{pattern}` is outside the project: a pattern has no `..`");
                return Err(origin.error("allowed_paths", why));
            }
            let allowed = matcher(project, std::slice::from_ref(pattern))
                .map_err(|e| origin.error("allowed_paths", e.to_string()))?;
            let is_match = files
                .iter()
                .any(|file| is_allowed(&allowed, file.strip_prefix(project).unwrap_or(file)));
            if !is_match && !pattern.starts_with('!') {
                let why = format!(
                    "`{pattern}` matches no file of the project; patterns are those of \
                     .gitignore, from the project folder"
                );
                return Err(origin.error("allowed_paths", why));
            }
        }
        Ok(())
    }

    /// The user's words for the worker; empty if there are none.
    pub(in crate::loops) fn instructions_text(&self, project: &Path) -> Result<String, String> {
        let Some(file) = &self.instructions else { return Ok(String::new()) };
        // A prompt may go to a service, and loop.toml may come with a clone.
        Folder::open(project)
            .and_then(|project| project.read_to_string(file, MAX_INSTRUCTIONS_BYTES))
            .map_err(|e| {
                let shown = Path::new(file).display();
                format!("`{shown}` cannot be read: {e}; it must be a file of the project")
            })
    }
}

/// Whether a command can start: a path is one from the project, as the command runs there.
fn can_start(project: &Path, program: &str) -> bool {
    which::which_in(program, std::env::var_os("PATH"), project).is_ok()
}

/// The first name in braces that is no placeholder. Braces around anything else are a command's
/// own.
fn unknown_placeholder(command: &str) -> Option<&str> {
    let is_name =
        |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let rests = command.split('{').skip(1);
    let mut names = rests.filter_map(|rest| Some(rest.split_once('}')?.0)).filter(is_name);
    names.find(|name| !PLACEHOLDERS.contains(name))
}

/// The full name of a key.
fn canonical(key: &str) -> &str {
    match key {
        "target" => "target_metric_threshold",
        key => key,
    }
}

/// The line of a byte, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    fn read(text: &str, overrides: &[&str]) -> Result<LoopConfig, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("loop.toml");
        std::fs::write(&file, text).unwrap();
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        LoopConfig::read(&file, &overrides).map(|(config, _)| config).map_err(|error| match error {
            LoopError::Config { line: Some(line), why, .. } => format!("{line}: {why}"),
            LoopError::Config { why, .. } => why,
            other => other.to_string(),
        })
    }

    #[test]
    fn keys_of_the_command_line_win_and_need_no_quotes() {
        let text = "kernel_path = \"kernels/k\"\ntarget = 20\nmax_wall_time = \"2h\"";
        let config = read(
            text,
            &["target=9.5", "max_iterations=600", "remote=h200", "worker_command=sh w.sh {prompt}"],
        )
        .unwrap();
        assert_eq!(config.target_metric_threshold, Some(9.5));
        assert_eq!((config.max_iterations, config.remote.as_deref()), (600, Some("h200")));
        assert_eq!(config.worker_command.as_deref(), Some("sh w.sh {prompt}"));
        assert_eq!(config.max_wall_time.duration(), Duration::from_secs(7200));
        // Its own document is read back.
        let again: LoopConfig =
            serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
        assert_eq!(again, config);
    }

    #[test]
    fn a_key_of_the_command_line_is_told_from_one_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("loop.toml");
        std::fs::write(&file, "kernel_path = \"k\"\nremote = \"a\"\n").unwrap();
        let is_typed = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
            let (_, origin) = LoopConfig::read(&file, &overrides).unwrap();
            assert_eq!(origin.file(), file);
            origin.is_typed("remote")
        };
        assert!(!is_typed(&[]));
        assert!(!is_typed(&["max_iterations=3"]));
        assert!(is_typed(&["remote=b"]));
    }

    #[test]
    fn patterns_name_files_and_whole_folders_and_nothing_else() {
        let text = "kernel_path = \"k\"\nallowed_paths = [\"/k/a.cu\", \"inc/\", \"gen/*.h\"]";
        let config = read(text, &[]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let allowed = config.allowed(dir.path()).unwrap();
        for path in ["k/a.cu", "inc/x.h", "inc/deep/x.h", "gen/y.h"] {
            assert!(is_allowed(&allowed, Path::new(path)), "{path}");
        }
        for path in ["k/b.cu", "other/k/a.cu", "k/a.cu.orig", "gen/y.c", "kernel.toml"] {
            assert!(!is_allowed(&allowed, Path::new(path)), "{path}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        let kernel = "kernel_path = \"k\"\n";
        for (text, overrides, wanted) in [
            ("mode = \"manual\"", &[][..], "missing field `kernel_path`"),
            (kernel, &["max_iteration=3"][..], "unknown field `max_iteration`"),
            (kernel, &["max_iterations"][..], "is not KEY=VALUE"),
            (kernel, &["max_iterations=0"][..], "at least 1"),
            (kernel, &["mode=command"][..], "needs `worker_command`"),
            (kernel, &["mode=command", "worker_command=sh 'x"][..], "a quote is open"),
            (kernel, &["target=-1"][..], "above 0"),
            (kernel, &["target_metric_direction=higher"][..], "the other way"),
            (kernel, &["max_wall_time=2 months"][..], "not a time"),
            (kernel, &["prompt_bytes=10"][..], "at least 4096"),
            (kernel, &["threshold=1"][..], "below 1"),
            (
                kernel,
                &["max_wall_time=0"][..],
                "`max_wall_time` of the command line: must be above 0",
            ),
            (
                "\nkernel_path = \"k\"\nmax_iterations = \"many\"",
                &[][..],
                "3: `max_iterations`: invalid type",
            ),
            (
                "kernel_path = \"k\"\n\nmode = \"auto\"",
                &[][..],
                "3: `mode`: unknown variant `auto`, expected one of `manual`, `command`",
            ),
            ("kernel_path = \"k\"\nmax = 1", &[][..], "`target`"),
            ("kernel_path = \"k\"\nx = [", &[][..], "2: not TOML"),
            (
                "target = 1\nkernel_path = \"k\"\ntarget_metric_threshold = 1",
                &[][..],
                "3: `target` and `target_metric_threshold` are the same key",
            ),
            ("target = 0\nkernel_path = \"k\"", &[][..], "1: `target`: must be a number above 0"),
            (
                kernel,
                &["worker_command=sh w.sh {promt}"][..],
                "`{promt}` is unknown; there are `{prompt}`, `{iter_dir}`",
            ),
        ] {
            let why = read(text, overrides).unwrap_err();
            assert!(why.contains(wanted), "{why}");
        }
    }

    #[test]
    fn instructions_come_from_the_project_alone() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        std::fs::create_dir_all(project.join("notes")).unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::fs::write(project.join("notes/own.md"), "own").unwrap();
        std::os::unix::fs::symlink("../secret", project.join("link.md")).unwrap();
        std::os::unix::fs::symlink("..", project.join("up")).unwrap();
        let text_of = |name: &str| {
            let line = format!("instructions={name}");
            let file = project.join("loop.toml");
            std::fs::write(&file, "kernel_path = \"k\"").unwrap();
            let (config, _) = LoopConfig::read(&file, &[line]).unwrap();
            config.instructions_text(&project)
        };
        assert_eq!(text_of("notes/own.md").unwrap(), "own");
        let absolute = dir.path().join("secret").display().to_string();
        for name in ["../secret", "link.md", "up/secret", "notes/../../secret", &absolute] {
            let why = text_of(name).unwrap_err();
            assert!(why.contains("must be a file of the project"), "{name}: {why}");
        }
    }

    #[test]
    fn what_is_not_in_the_project_is_refused_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path();
        std::fs::create_dir(project.join("k")).unwrap();
        std::fs::write(project.join("k/a.cu"), "").unwrap();
        std::fs::write(project.join("w.sh"), "").unwrap();
        std::fs::set_permissions(project.join("w.sh"), Permissions::from_mode(0o755)).unwrap();
        std::fs::write(project.join("text.sh"), "").unwrap();
        let file = project.join("loop.toml");
        let fault = |line: &str| {
            let is_worker = line.starts_with("worker");
            let worker = if is_worker { "" } else { "worker_command = \"sh w.sh\"" };
            let text = format!("kernel_path = \"k\"\nmode = \"command\"\n{worker}\n{line}\n");
            std::fs::write(&file, text).unwrap();
            let (config, origin) = LoopConfig::read(&file, &[]).unwrap();
            match config.check_against_project(project, &origin) {
                Ok(()) => String::new(),
                Err(LoopError::Config { line, why, .. }) => format!("{}: {why}", line.unwrap()),
                Err(other) => panic!("{other}"),
            }
        };
        for line in [
            "worker_command = \"./w.sh {prompt}\"",
            "worker_command = \"{iter_dir}/made.sh\"",
            "allowed_paths = [\"/k/*.cu\", \"k\", \"!/k/b.cu\"]",
            "instructions = \"w.sh\"",
        ] {
            assert_eq!(fault(line), "", "{line}");
        }
        for (line, wanted) in [
            ("instructions = \"none.md\"", "4: `instructions`: `"),
            (
                "worker_command = \"no-such-program x\"",
                "4: `worker_command`: there is no program `no-such-program` on PATH",
            ),
            ("worker_command = \"./none.sh\"", "there is no program `./none.sh` in the project"),
            ("worker_command = \"./text.sh\"", "`./text.sh` is not executable; run `chmod +x"),
            ("reviewer_command = \"./none.sh\"", "4: `reviewer_command`: "),
            (
                "allowed_paths = [\"k\", \"../x\"]",
                "4: `allowed_paths`: `../x` is outside the project",
            ),
            ("allowed_paths = [\"kernels/a.cu\"]", "`kernels/a.cu` matches no file"),
            ("allowed_paths = [\"/etc/passwd\"]", "`/etc/passwd` matches no file"),
        ] {
            let why = fault(line);
            assert!(why.contains(wanted), "{line}: {why}");
        }
    }
}
