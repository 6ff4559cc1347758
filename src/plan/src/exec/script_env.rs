//! The Python environment of a script: from the block at its head, else from what stands beside it,
//! a requirements.txt or the dependencies of a pyproject.toml.
//!
//! A block is the file's own word. What stands beside it may be meant for another machine: the
//! host's own packages of torch and CUDA stay, and if the rest cannot be installed, the host's
//! Python runs the script all the same.

use std::path::Path;

use rgpu_model::agent_files;
use rgpu_model::ownership::may_decide;
use serde::Deserialize;

use crate::tool::{PythonEnv, ScriptError};

/// The largest list of requirements.
const MAX_LIST_BYTES: u64 = 64 << 10;

/// The most requirements.
const MAX_REQUIREMENTS: usize = 300;

/// Files that describe an environment in a way that rgpu does not build, with what they are.
const OTHERS: [(&str, &str); 7] = [
    ("environment.yml", "an environment of conda"),
    ("environment.yaml", "an environment of conda"),
    ("Dockerfile", "an image"),
    ("Pipfile", "an environment of pipenv"),
    ("poetry.lock", "a lock of poetry"),
    ("pixi.toml", "an environment of pixi"),
    ("setup.py", "an extension to compile"),
];

/// The environment of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptEnv {
    /// The environment; `None`: the host's own Python.
    pub env: Option<PythonEnv>,
    /// What was assumed and what is not honoured, in words, to be printed.
    pub assumptions: Vec<String>,
}

impl ScriptEnv {
    /// The environment for a script with this text. `script`: its path, if it is a file.
    ///
    /// # Errors
    /// Its block cannot be read.
    pub fn find(text: &str, script: Option<&Path>, cwd: &Path) -> Result<Self, ScriptError> {
        if let Some(env) = PythonEnv::from_script(text)? {
            let env = Some(env).filter(|env| !env.is_plain());
            return Ok(Self { env, assumptions: Vec::new() });
        }
        let Some(script) = script else { return Ok(Self::default()) };
        let beside = cwd.join(script).parent().unwrap_or(cwd).to_owned();
        let mut folders = vec![beside];
        if !folders.contains(&cwd.to_owned()) && script.is_relative() {
            folders.push(cwd.to_owned());
        }
        Ok(folders.iter().find_map(|folder| Self::beside(folder)).unwrap_or_default())
    }

    /// The environment that a folder describes. `None`: it describes none.
    fn beside(folder: &Path) -> Option<Self> {
        let read = |name: &str| -> Option<String> {
            let path = folder.join(name);
            counts(&path).then(|| agent_files::read_to_string(&path, MAX_LIST_BYTES).ok())?
        };
        if let Some(list) = read("requirements.txt") {
            return Some(Self::of_list("requirements.txt", list_lines(&list), None));
        }
        if let Some(project) = read("pyproject.toml").and_then(|text| project(&text)) {
            return Some(Self::of_list(
                "pyproject.toml",
                project.dependencies,
                project.requires_python,
            ));
        }
        // A package that is only Python needs no build: its modules travel.
        let needs_build = |name: &str| {
            name != "setup.py" || read(name).is_some_and(|text| text.contains("ext_modules"))
        };
        let mut others = OTHERS.iter().filter(|(name, _)| counts(&folder.join(name)));
        let (name, what) = others.find(|(name, _)| needs_build(name))?;
        let base = read(name).filter(|_| *name == "Dockerfile").and_then(|text| base_image(&text));
        let base = base.map(|image| format!(" from `{image}`")).unwrap_or_default();
        Some(Self {
            env: None,
            assumptions: vec![format!(
                "`{name}` ({what}{base}) is not built: the host's own Python and packages are used"
            )],
        })
    }

    fn of_list(name: &str, lines: Vec<String>, requires_python: Option<String>) -> Self {
        let (requirements, others): (Vec<String>, Vec<String>) =
            lines.into_iter().take(MAX_REQUIREMENTS).partition(|line| is_requirement(line));
        let mut assumptions = Vec::new();
        let env =
            PythonEnv { requirements, requires_python, host_packages: true, is_optional: true };
        let env = Some(env).filter(|env| !env.is_plain());
        if env.is_some() {
            assumptions.push(format!(
                "packages of `{name}` that the host lacks are installed once; its own torch stays"
            ));
        }
        if let Some(first) = others.first() {
            let more = match others.len() {
                1 => String::new(),
                count => format!(" and {} more lines", count - 1),
            };
            assumptions.push(format!("`{first}`{more} of `{name}` is not honoured"));
        }
        Self { env, assumptions }
    }
}

/// Whether there is a file, and it is not somebody else's: anyone may put one into `/tmp`.
fn counts(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new(""));
    may_decide(path, folder) && agent_files::open(path).is_ok()
}

/// The lines of a requirements.txt, without comments and hashes, joined where a line goes on.
fn list_lines(text: &str) -> Vec<String> {
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let lines = joined.lines().map(|line| {
        let line = line.trim();
        let comment = line.starts_with('#').then_some(0).or_else(|| line.find(" #"));
        let line = &line[..comment.unwrap_or(line.len())];
        line.split(" --hash=").next().unwrap_or_default().trim().to_owned()
    });
    lines.filter(|line| !line.is_empty()).collect()
}

/// Whether a line names a package of an index, and neither an option of pip nor a file or another
/// place: these exist on this machine only, or cannot be seen to.
fn is_requirement(line: &str) -> bool {
    let is_first = line.starts_with(|c: char| c.is_ascii_alphanumeric());
    is_first && !line.contains("://") && !line.contains(" @ ") && !line.contains(['/', '\0'])
}

/// The part of a pyproject.toml that counts.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ProjectTable {
    #[serde(default)]
    dependencies: Vec<String>,
    requires_python: Option<String>,
}

fn project(text: &str) -> Option<ProjectTable> {
    #[derive(Deserialize)]
    struct Document {
        project: ProjectTable,
    }
    rgpu_model::regular_file::check_toml_size(text).ok()?;
    let project = toml::from_str::<Document>(text).ok()?.project;
    (!project.dependencies.is_empty()).then_some(project)
}

/// The image that a Dockerfile begins with.
fn base_image(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("FROM "))?;
    let image = line.split_whitespace().find(|word| !word.starts_with("--"))?;
    (image.len() < 200).then(|| image.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)], script: &str) -> ScriptEnv {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        ScriptEnv::find("print(1)", Some(Path::new(script)), dir.path()).unwrap()
    }

    #[test]
    fn requirements_beside_a_script_become_its_environment() {
        let list = "# all of it\ntorch==2.1.0  # pinned\neinops>=0.7 \\\n  ; python_version > '3.8'\n\
                    -e .\ngit+https://x.example/y.git\nnumpy==1.26 --hash=sha256:ab\n./local\n";
        let env = found(&[("requirements.txt", list), ("a/x.py", "")], "a/x.py");
        let python = env.env.unwrap();
        let expected = ["torch==2.1.0", "einops>=0.7    ; python_version > '3.8'", "numpy==1.26"];
        assert_eq!(python.requirements, expected);
        assert!(python.is_optional && python.host_packages);
        let told = env.assumptions.join("\n");
        assert!(told.contains("`-e .` and 2 more lines of `requirements.txt`"), "{told}");
    }

    #[test]
    fn a_pyproject_counts_where_there_is_no_list_and_other_descriptions_are_named() {
        let toml = "[project]\nname = 'x'\ndependencies = ['einops']\nrequires-python = '>=3.9'\n";
        let env = found(&[("pyproject.toml", toml)], "x.py").env.unwrap();
        assert_eq!(env.requires_python.as_deref(), Some(">=3.9"));
        let tools = found(&[("pyproject.toml", "[tool.ruff]\n")], "x.py");
        assert_eq!(tools, ScriptEnv::default());
        let image = "# x\nFROM --platform=linux/amd64 nvcr.io/nvidia/pytorch:24.01-py3 AS base\n";
        let env = found(&[("Dockerfile", image)], "x.py");
        assert_eq!(env.env, None);
        assert!(env.assumptions[0].contains("(an image from `nvcr.io/nvidia/pytorch:24.01-py3`)"));
    }

    #[test]
    fn only_a_package_with_an_extension_needs_a_build() {
        assert_eq!(found(&[("setup.py", "setup(name='x')")], "x.py"), ScriptEnv::default());
        let env = found(&[("setup.py", "setup(ext_modules=[CUDAExtension('x', [])])")], "x.py");
        assert!(env.assumptions[0].contains("`setup.py` (an extension to compile)"));
    }

    #[test]
    fn a_list_of_another_user_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let find = || ScriptEnv::find("print(1)", Some(Path::new("x.py")), dir.path()).unwrap();
        for name in ["requirements.txt", "pyproject.toml", "Dockerfile"] {
            let path = dir.path().join(name);
            let text = "[project]\nname = 'x'\ndependencies = ['einops']\n";
            std::fs::write(&path, if name == "pyproject.toml" { text } else { "einops\n" })
                .unwrap();
            assert_ne!(find(), ScriptEnv::default(), "{name}");
            if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
                eprintln!("skipped: only root can make files of other users");
                return;
            }
            assert_eq!(find(), ScriptEnv::default(), "{name}");
        }
    }

    #[test]
    fn a_block_in_the_file_is_all_that_counts() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("requirements.txt"), "einops\n").unwrap();
        let text = "# /// script\n# dependencies = ['rich']\n# ///\n";
        let env = ScriptEnv::find(text, Some(Path::new("x.py")), dir.path()).unwrap();
        let python = env.env.unwrap();
        assert_eq!((python.requirements, python.is_optional), (vec!["rich".to_owned()], false));
        assert_eq!(env.assumptions.len(), 0);
        let empty = "# /// script\n# dependencies = []\n# ///\n";
        let env = ScriptEnv::find(empty, Some(Path::new("x.py")), dir.path()).unwrap();
        assert_eq!(env, ScriptEnv::default());
    }
}
