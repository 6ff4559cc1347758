//! `nvidia-smi`: the driver, its CUDA version and the GPUs.

use rgpu_protocol::plan::GpuSetting;
use rgpu_protocol::probe::{AgentFacts, GpuFacts};
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{answer, run, tool, version_after};

/// Columns of the query, in this order.
const QUERY: &str = "--query-gpu=index,name,uuid,driver_version,compute_cap,memory.total,clocks.max.sm,clocks.max.mem,power.limit,mig.mode.current";

/// Paths to search; the second is WSL's.
const SEARCH_PATHS: &[&str] = &["nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"];

/// Arguments that list processes in the form of [`rgpu_protocol::plan::GpuRequest::processes`].
const LIST_PROCESSES: [&str; 2] =
    ["--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader"];

/// The command that lists processes on GPUs with the `nvidia-smi` at `path`.
pub fn gpu_processes(path: &str) -> Vec<String> {
    std::iter::once(path).chain(LIST_PROCESSES).map(str::to_owned).collect()
}

/// Locks the SM clock of a job's GPUs at this frequency while the job holds them, with the
/// `nvidia-smi` at `path`. It needs root, or a driver that lets users change clocks.
pub(super) fn lock_clocks(path: &str, sm_mhz: u32) -> GpuSetting {
    let command =
        |flag: String| vec![path.to_owned(), "-i".to_owned(), GpuSetting::UUID.to_owned(), flag];
    GpuSetting {
        apply: command(format!("--lock-gpu-clocks={sm_mhz},{sm_mhz}")),
        undo: command("--reset-gpu-clocks".to_owned()),
    }
}

pub(super) struct NvidiaSmi;

impl Tool for NvidiaSmi {
    fn name(&self) -> &'static str {
        "nvidia-smi"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![
            run("nvidia-smi", SEARCH_PATHS, &[QUERY, "--format=csv,noheader,nounits"]),
            run("nvidia-smi.version", SEARCH_PATHS, &["--version"]),
        ]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        let Some(mut found) = tool(agent, "nvidia-smi", |_| None) else { return };
        let text = answer(agent, "nvidia-smi").map(|a| a.text.as_str()).unwrap_or_default();
        for line in text.lines() {
            let Some((gpu, driver)) = gpu(line) else { continue };
            facts.gpus.push(gpu);
            facts.driver = Some(driver);
        }
        facts.gpus.sort_by_key(|gpu| gpu.index);
        let version = answer(agent, "nvidia-smi.version").map(|a| a.text.as_str());
        facts.cuda = version.and_then(|text| version_after(text, "CUDA Version"));
        found.version = facts.driver.clone().unwrap_or_default();
        if facts.gpus.is_empty() && found.problems.is_empty() {
            let first_line = text.lines().next().unwrap_or("it prints nothing").trim();
            found.problems.push(format!("sees no GPU: {first_line}"));
        }
        facts.tools.push(found);
    }
}

/// One line of the query: the GPU and the driver's version.
fn gpu(line: &str) -> Option<(GpuFacts, String)> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [index, name, uuid, driver, cc, memory, sm, mem, power, mig] = fields.as_slice() else {
        return None;
    };
    let (major, minor) = cc.split_once('.')?;
    let gpu = GpuFacts {
        index: index.parse().ok()?,
        name: (*name).to_owned(),
        uuid: (*uuid).to_owned(),
        sm: major.parse::<u32>().ok()? * 10 + minor.parse::<u32>().ok()?,
        memory_bytes: memory.parse::<u64>().ok().map_or(0, |mib| mib << 20),
        max_sm_mhz: sm.parse().ok(),
        max_mem_mhz: mem.parse().ok(),
        power_limit_w: power.parse().ok(),
        mig: *mig == "Enabled",
    };
    Some((gpu, (*driver).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_query_is_a_gpu() {
        let line = "0, NVIDIA H200, GPU-17e5a922-c253-121e-317d-f787dfc19245, 580.159.04, 9.0, 143771, 1980, 3201, 700.00, Disabled";
        let (gpu, driver) = gpu(line).unwrap();
        assert_eq!((gpu.sm, gpu.max_sm_mhz, gpu.mig), (90, Some(1980), false));
        assert_eq!(gpu.power_limit_w, Some(700.0));
        assert_eq!(driver, "580.159.04");
        assert_eq!(super::gpu("No devices were found"), None);
    }

    #[test]
    fn what_a_gpu_does_not_tell_is_absent() {
        let line = "1, Tesla T4, GPU-x, 470.1, 7.5, 15109, 1590, 5001, [N/A], [N/A]";
        let (gpu, _) = gpu(line).unwrap();
        assert_eq!((gpu.sm, gpu.power_limit_w, gpu.mig), (75, None, false));
    }
}
