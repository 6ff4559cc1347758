//! `nvdisasm`: SASS from a cubin.

use std::collections::BTreeMap;

use rgpu_protocol::plan::{Arg, ArtifactSpec, Limits, OnFailure, Plan, Rung, Step, Success};
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::draft::{BundleFile, Draft, Expectations};
use super::plan::facts::{dotted_after, run, tool};
use super::plan::request::path_of;

/// `nvdisasm`.
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
                // NVIDIA's wheel, and where `rgpu setup nvdisasm` puts it.
                "/usr/local/lib/python3*/dist-packages/nvidia/cu1*/bin/nvdisasm",
                "/usr/local/lib/python3*/site-packages/nvidia/cu1*/bin/nvdisasm",
                "~/.local/lib/python3*/site-packages/nvidia/cu1*/bin/nvdisasm",
                "~/.local/share/rgpu/nvdisasm/nvidia/cu1*/bin/nvdisasm",
                // Python environments that builds have made, and what Triton's wheel brings along.
                "~/.cache/rgpu/python/*/lib/python3*/site-packages/nvidia/cu1*/bin/nvdisasm",
                "~/.cache/rgpu/python/*/lib/python3*/site-packages/triton/backends/nvidia/bin/nvdisasm",
            ],
            &["--version"],
        )]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        // "Cuda compilation tools, release 13.5, V13.5.37"
        let version = |text: &str| dotted_after(text, ", V").or(dotted_after(text, "release "));
        facts.tools.extend(tool(agent, "nvdisasm", version));
    }
}

/// The step's name.
pub const LISTINGS_STEP: &str = "sass";

/// The file of all listings in the job's folder: before each a line with the call's number from 1
/// on, its exit status, and the bytes that follow of its output and of its errors.
pub const LISTINGS: &str = "sass/listings";

/// Where everything lies in the job's folder.
const FOLDER: &str = "sass";

/// Runs the calls, as many at once as the host has cores, which steps of a plan could not.
const SCRIPT: &str = include_str!("nvdisasm.sh");

/// Time for all listings, in seconds. A large library's cubin takes minutes.
const TIMEOUT_S: u64 = 3600;

/// Processor time of each call, in seconds, as the script has it.
pub const CALL_TIMEOUT_S: u64 = 600;

/// One call of nvdisasm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingCall {
    /// Words before the file: flags and numbers, without white space or anything a shell expands.
    pub words: Vec<String>,
    /// Which of the cubins.
    pub cubin: usize,
}

/// The plan that runs `calls` on a host's nvdisasm; `None` where it has none that works.
pub fn listings(
    job: String,
    cubins: Vec<Vec<u8>>,
    calls: &[ListingCall],
    facts: &HostFacts,
) -> Option<Draft> {
    let path = path_of(facts, "nvdisasm").filter(|_| works(facts))?;
    let plain =
        |word: &&String| word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-,".contains(&b));
    let lines = calls.iter().map(|call| {
        let mut line: Vec<&str> = call.words.iter().filter(plain).map(String::as_str).collect();
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
    };
    let step = Step {
        id: LISTINGS_STEP.to_owned(),
        title: "disassemble with nvdisasm".to_owned(),
        gpu: false,
        needs: Vec::new(),
        on_failure: OnFailure::Stop,
        timeout_s: TIMEOUT_S,
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
    Some(Draft { plan, files, expect: Expectations::default() })
}

/// Whether the host's nvdisasm said its version.
fn works(facts: &HostFacts) -> bool {
    facts.tool("nvdisasm").is_some_and(|t| t.problems.is_empty() && !t.version.is_empty())
}
