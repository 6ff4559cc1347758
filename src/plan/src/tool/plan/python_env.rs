//! Python environments on a host, made once from a list of requirements and kept under the hash of
//! their specification, so that later runs find them in milliseconds.
//!
//! A step makes or finds the environment and links it to `env` in the job's folder; later steps
//! start [`PythonEnv::python`]. A script lists its requirements in a comment block, as PEP 723
//! defines:
//!
//! ```python
//! # /// script
//! # requires-python = ">=3.11"
//! # dependencies = ["einops"]
//! # ///
//! ```

use std::collections::BTreeMap;

use rgpu_model::regular_file;
use rgpu_protocol::plan::{Arg, OnFailure, Rung, Step, Success};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::draft::BundleFile;
use super::message_rows::{MessageRow, NextRungs, RowAction, table};

/// Finds an existing environment; otherwise it runs `python_env.py`, which makes one.
const FIND: &str = rgpu_harness::PYTHON_ENV_FIND;
const MAKE: &str = rgpu_harness::PYTHON_ENV_MAKE;

/// Paths of the scripts and the specification in the job's folder.
const FIND_PATH: &str = "bin/python_env.sh";
const MAKE_PATH: &str = "bin/python_env.py";
const SPEC_PATH: &str = "bin/python_env.json";

/// Messages of uv, pip and our own script.
static MESSAGE_ROWS: &[MessageRow] = &[
    MessageRow("there is no python3 on PATH", "python_missing", RowAction::FailedStop),
    MessageRow("there is no uv to bring another", "python_version", RowAction::FailedStop),
    MessageRow("No module named venv", "python_no_venv", RowAction::FailedStop),
    MessageRow("ensurepip is not", "python_no_venv", RowAction::FailedStop),
    MessageRow("the environment cannot be made", "python_no_venv", RowAction::FailedStop),
    MessageRow("Temporary failure in name resolution", "python_offline", RowAction::FailedStop),
    MessageRow("Name or service not known", "python_offline", RowAction::FailedStop),
    MessageRow("Failed to establish a new connection", "python_offline", RowAction::FailedStop),
    MessageRow("Connection refused", "python_offline", RowAction::FailedStop),
    MessageRow("Network is unreachable", "python_offline", RowAction::FailedStop),
    MessageRow("dns error", "python_offline", RowAction::FailedStop),
    // pip and uv in a network whose proxy signs with its own certificate, lets nothing through, or
    // says nothing.
    MessageRow("CERTIFICATE_VERIFY_FAILED", "python_offline", RowAction::FailedStop),
    MessageRow("invalid peer certificate", "python_offline", RowAction::FailedStop),
    MessageRow("ProxyError", "python_offline", RowAction::FailedStop),
    MessageRow("ConnectTimeoutError", "python_offline", RowAction::FailedStop),
    MessageRow("ReadTimeoutError", "python_offline", RowAction::FailedStop),
    MessageRow("operation timed out", "python_offline", RowAction::FailedStop),
    MessageRow("Invalid requirement", "python_unresolved", RowAction::FailedStop),
    MessageRow("Failed to parse", "python_unresolved", RowAction::FailedStop),
    MessageRow("No matching distribution found", "python_unresolved", RowAction::FailedStop),
    MessageRow(
        "Could not find a version that satisfies",
        "python_unresolved",
        RowAction::FailedStop,
    ),
    MessageRow("No solution found when resolving", "python_unresolved", RowAction::FailedStop),
    MessageRow("ResolutionImpossible", "python_unresolved", RowAction::FailedStop),
    MessageRow("No space left on device", "disk_full", RowAction::FailedStop),
];

/// An invalid `# /// script` block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The block has no end.
    #[error("the block `# /// script` of line {line} has no `# ///` that ends it")]
    Open {
        /// Line on which it begins, from 1.
        line: usize,
    },
    /// The script has two blocks.
    #[error("there are two blocks `# /// script`, in lines {first} and {second}")]
    Twice {
        /// Line of the first block.
        first: usize,
        /// Line of the second block.
        second: usize,
    },
    /// The block is not valid TOML, or has other contents than the format defines.
    #[error("the block `# /// script` of line {line} cannot be read: {problem}")]
    Toml {
        /// Line on which it begins, from 1.
        line: usize,
        /// The problem with the block.
        problem: String,
    },
}

/// The Python environment that a file needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonEnv {
    /// Requirements, as pip reads them.
    pub requirements: Vec<String>,
    /// Versions of Python that are allowed, e.g. `>=3.11`.
    pub requires_python: Option<String>,
    /// Whether the host's own packages (a torch that fits its driver) are visible inside.
    /// Requirements that they satisfy are not installed again.
    pub host_packages: bool,
    /// Whether the host's own Python serves if the packages cannot be installed; its packages of
    /// torch and CUDA stay in any version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_optional: bool,
}

impl PythonEnv {
    /// Id of the step that makes or finds it.
    pub const STEP: &'static str = "python";

    /// The environment that a script's PEP 723 block asks for; `None` if the script has no block.
    /// The host's packages stay visible.
    pub fn from_script(text: &str) -> Result<Option<Self>, ScriptError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Block {
            #[serde(default)]
            dependencies: Vec<String>,
            requires_python: Option<String>,
        }
        let Some((line, block)) = block(text)? else { return Ok(None) };
        regular_file::check_toml_size(&block)
            .map_err(|e| ScriptError::Toml { line, problem: e.to_string() })?;
        let block: Block = toml::from_str(&block).map_err(|error| ScriptError::Toml {
            line,
            problem: error.message().lines().next().unwrap_or_default().to_owned(),
        })?;
        Ok(Some(Self {
            requirements: block.dependencies,
            requires_python: block.requires_python,
            host_packages: true,
            is_optional: false,
        }))
    }

    /// Whether the host's own Python is enough.
    pub fn is_plain(&self) -> bool {
        self.requirements.is_empty() && self.requires_python.is_none() && self.host_packages
    }

    /// The interpreter for the steps after [`PythonEnv::step`].
    pub fn python() -> Arg {
        Arg::in_job("env/bin/python")
    }

    /// The files that the step reads.
    pub fn files(&self) -> Vec<BundleFile> {
        vec![
            BundleFile::text(FIND_PATH, FIND),
            BundleFile::text(MAKE_PATH, MAKE),
            BundleFile::text(SPEC_PATH, self.spec()),
        ]
    }

    /// The step that makes or finds the environment.
    pub fn step(&self, timeout_s: u64) -> Step {
        let argv = vec![
            "sh".into(),
            Arg::in_job(FIND_PATH),
            Arg::in_job(MAKE_PATH),
            self.key().into(),
            Arg::in_job(SPEC_PATH),
        ];
        Step {
            id: Self::STEP.to_owned(),
            title: "the Python environment".to_owned(),
            gpu: false,
            needs: Vec::new(),
            on_failure: OnFailure::Stop,
            timeout_s,
            max_output_bytes: Some(Step::MAX_HELPER_OUTPUT_BYTES),
            stdin: Default::default(),
            rungs: vec![Rung {
                id: Self::STEP.to_owned(),
                needs: Vec::new(),
                argv,
                env: BTreeMap::new(),
                cwd: String::new(),
                success: Success::default(),
                diagnosis: table(MESSAGE_ROWS, NextRungs::default()),
                artifacts: Vec::new(),
                loses: String::new(),
                stop: None,
                hang: None,
            }],
        }
    }

    fn spec(&self) -> Vec<u8> {
        // Plain data with text keys: it always serialises.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Key of the environment on the host: a hash of everything that it is made from.
    fn key(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(MAKE.as_bytes());
        hash.update(self.spec());
        let digest = rgpu_protocol::Digest::from_bytes(&hash.finalize().into());
        digest.as_str().chars().take(24).collect()
    }
}

/// The line on which the block begins, and its text without comment marks.
fn block(text: &str) -> Result<Option<(usize, String)>, ScriptError> {
    let mut found: Option<(usize, String)> = None;
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        if line.trim_end() != "# /// script" {
            continue;
        }
        let first_line = at + 1;
        let mut inner = Vec::new();
        let mut end = None;
        // The block ends at the last `# ///` in the comment lines that follow.
        for (_, line) in lines.by_ref() {
            match line.strip_prefix('#') {
                Some(" ///") => {
                    end = Some(inner.len());
                    inner.push("");
                }
                Some(rest) => inner.push(rest.strip_prefix(' ').unwrap_or(rest)),
                None => break,
            }
        }
        let Some(end) = end else { return Err(ScriptError::Open { line: first_line }) };
        if let Some((first, _)) = found {
            return Err(ScriptError::Twice { first, second: first_line });
        }
        found = Some((first_line, inner[..end].join("\n")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scripts_block_names_its_dependencies_and_its_python() {
        let text = "#!/usr/bin/env python3\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"einops<1\",\n#\n# ]\n# ///\nimport einops\n";
        let env = PythonEnv::from_script(text).unwrap().unwrap();
        assert_eq!(env.requirements, ["einops<1"]);
        assert_eq!(env.requires_python.as_deref(), Some(">=3.11"));
        assert!(!env.is_plain());
        assert_eq!(PythonEnv::from_script("print('# /// script')\n").unwrap(), None);
    }

    #[test]
    fn a_block_that_cannot_be_read_names_its_line() {
        let open = PythonEnv::from_script("x = 1\n# /// script\n# dependencies = []\n");
        assert_eq!(open, Err(ScriptError::Open { line: 2 }));
        let twice = "# /// script\n# ///\n\n# /// script\n# ///\n";
        assert_eq!(PythonEnv::from_script(twice), Err(ScriptError::Twice { first: 1, second: 4 }));
        let wrong = PythonEnv::from_script("# /// script\n# dependencies = 3\n# ///\n");
        assert!(matches!(wrong, Err(ScriptError::Toml { line: 1, .. })), "{wrong:?}");
    }

    #[test]
    fn an_index_behind_an_unknown_certificate_is_out_of_reach() {
        // pip 22.0.2; the last line alone would blame the file's dependencies.
        let printed = "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by 'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain (_ssl.c:997)'))': /simple/einops/\nERROR: No matching distribution found for einops\n";
        let rows = table(MESSAGE_ROWS, NextRungs::default());
        let row = rows.iter().find(|row| row.pattern.find(printed).is_some());
        assert_eq!(row.map(|row| row.code.as_str()), Some("python_offline"));
    }

    #[test]
    fn other_requirements_are_another_environment() {
        let key = |requirement: &str, host_packages| {
            PythonEnv {
                requirements: vec![requirement.into()],
                requires_python: None,
                host_packages,
                is_optional: false,
            }
            .key()
        };
        assert_ne!(key("a", true), key("b", true));
        assert_ne!(key("a", true), key("a", false));
        assert_eq!(key("a", true).len(), 24);
    }
}
