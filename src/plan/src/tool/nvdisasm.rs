//! `nvdisasm`: disassembles a cubin to SASS.

use std::collections::BTreeMap;

use rgpu_protocol::plan::{Arg, ArtifactSpec, Limits, OnFailure, Plan, Rung, Step, Success};
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::draft::{BundleFile, Draft, DraftInfo};
use super::plan::facts::{run, tool, version_after};
use super::plan::request::path_of;

pub(super) struct Nvdisasm;

impl Tool for Nvdisasm {
    fn name(&self) -> &'static str {
        "nvdisasm"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![run(
            "nvdisasm",
            &[
                "nvdisasm",
                "/usr/local/cuda/bin/nvdisasm",
                "/usr/local/cuda-*/bin/nvdisasm",
                "/opt/cuda/bin/nvdisasm",
                // The packages of NVIDIA's wheel, and the folder that `rgpu setup nvdisasm`
                // installs it to.
                "/usr/local/lib/python3*/dist-packages/nvidia/cu1*/bin/nvdisasm",
                "/usr/local/lib/python3*/site-packages/nvidia/cu1*/bin/nvdisasm",
                "~/.local/lib/python3*/site-packages/nvidia/cu1*/bin/nvdisasm",
                "~/.local/share/rgpu/nvdisasm/nvidia/cu1*/bin/nvdisasm",
                // Python environments of earlier builds, and the copy in Triton's wheel.
                "~/.cache/rgpu/python/*/lib/python3*/site-packages/nvidia/cu1*/bin/nvdisasm",
                "~/.cache/rgpu/python/*/lib/python3*/site-packages/triton/backends/nvidia/bin/nvdisasm",
            ],
            &["--version"],
        )]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        // "Cuda compilation tools, release 13.5, V13.5.37"
        let version = |text: &str| version_after(text, ", V").or(version_after(text, "release "));
        facts.tools.extend(tool(agent, "nvdisasm", version));
    }
}

/// Id of the plan's step that runs nvdisasm.
pub const NVDISASM_STEP_ID: &str = "sass";

/// The file with all listings, in the job's folder. Each begins with a line that has the number of
/// the call from 1, its exit status, and the bytes of its output and of its errors that follow.
pub const LISTINGS: &str = "sass/listings";

/// Folder of the files in the job's folder.
const FOLDER: &str = "sass";

/// Runs as many calls at once as the host has cores, which the steps of a plan cannot do.
const SCRIPT: &str = include_str!("nvdisasm.sh");

/// Time limit for all listings, in seconds. The cubins of a large library take minutes.
const TIMEOUT_S: u64 = 3600;

/// Limit on the processor time of each call in seconds; the script has the same number.
pub const CALL_TIMEOUT_S: u64 = 600;

/// One call of nvdisasm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingCall {
    /// Arguments before the file: flags and numbers, without white space or shell syntax.
    pub args: Vec<String>,
    /// Index of the cubin.
    pub cubin: usize,
}

/// The plan that runs `calls` with a host's nvdisasm; `None` if it has no working one.
pub fn listings(
    job: String,
    cubins: Vec<Vec<u8>>,
    calls: &[ListingCall],
    facts: &HostFacts,
) -> Option<Draft> {
    let path = path_of(facts, "nvdisasm").filter(|_| reports_version(facts))?;
    let is_plain =
        |word: &&String| word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-,".contains(&b));
    let lines = calls.iter().map(|call| {
        let mut line: Vec<&str> = call.args.iter().filter(is_plain).map(String::as_str).collect();
        let file = format!("{}.cubin\n", call.cubin);
        line.push(&file);
        line.join(" ")
    });
    let mut files = vec![
        BundleFile::text(format!("{FOLDER}/calls"), lines.collect::<String>()),
        BundleFile::text(format!("{FOLDER}/nvdisasm.sh"), SCRIPT),
    ];
    files.extend(
        cubins
            .into_iter()
            .enumerate()
            .map(|(at, bytes)| BundleFile::text(format!("{FOLDER}/{at}.cubin"), bytes)),
    );
    let rung = Rung {
        id: "nvdisasm".to_owned(),
        needs: Vec::new(),
        argv: vec!["sh".into(), "nvdisasm.sh".into(), Arg::text(path)],
        env: BTreeMap::new(),
        cwd: FOLDER.to_owned(),
        success: Success { files: vec![LISTINGS.to_owned()], ..Success::default() },
        diagnosis: Vec::new(),
        artifacts: vec![ArtifactSpec { path: LISTINGS.to_owned(), kind: "listings".to_owned() }],
        loses: String::new(),
        stop: None,
        hang: None,
    };
    let step = Step {
        id: NVDISASM_STEP_ID.to_owned(),
        title: "disassemble with nvdisasm".to_owned(),
        gpu: false,
        needs: Vec::new(),
        on_failure: OnFailure::Stop,
        timeout_s: TIMEOUT_S,
        max_output_bytes: Some(Step::MAX_HELPER_OUTPUT_BYTES),
        stdin: Default::default(),
        rungs: vec![rung],
    };
    let plan = Plan {
        job,
        title: "disassemble".to_owned(),
        facts: Some(facts.key()),
        files: Vec::new(),
        steps: vec![step],
        gpu: None,
        env: BTreeMap::new(),
        secrets: Vec::new(),
        origin: None,
        limits: Limits::default(),
    };
    Some(Draft { plan, files, info: DraftInfo::default() })
}

/// Whether the host's nvdisasm reported a version.
fn reports_version(facts: &HostFacts) -> bool {
    facts.tool("nvdisasm").is_some_and(|t| t.problems.is_empty() && !t.version.is_empty())
}
