//! Which architecture to compile for.

use rgpu_protocol::probe::GpuFacts;
use rgpu_protocol::{GpuChoice, HostFacts};

use super::draft::PlanError;
use super::facts::is_assumed;
use super::request::{ProfileTarget, Request};

/// The architecture if there is no GPU, no `--arch` and none in kernel.toml.
const DEFAULT: &str = "sm_90a";

/// The architecture that the kernel of `request` is compiled for: `--arch`, else the most specific
/// one of kernel.toml that runs on the GPU, else the GPU's own, else (without a GPU) kernel.toml's
/// first or `sm_90a`. Empty for a program.
///
/// # Errors
/// [`PlanError`] when the requested GPU does not exist, or cannot run the requested architecture.
pub fn target_arch(request: &Request, facts: &HostFacts) -> Result<String, PlanError> {
    let ProfileTarget::Kernel { spec, .. } = &request.target else { return Ok(String::new()) };
    let gpu = chosen_gpu(request, facts)?;
    if let Some(requested) = &request.arch {
        return match gpu {
            Some(gpu)
                if request.part == super::request::PlanPart::Whole
                    && !runs(requested, gpu.sm)
                    && !is_assumed(facts) =>
            {
                Err(PlanError::Arch { requested: requested.clone(), gpu: native(gpu.sm) })
            }
            _ => Ok(requested.clone()),
        };
    }
    match gpu {
        None => Ok(spec.arch.first().cloned().unwrap_or_else(|| DEFAULT.to_owned())),
        Some(gpu) if spec.arch.is_empty() => Ok(native(gpu.sm)),
        Some(gpu) => {
            // The most specific one that runs on the GPU.
            let mut fitting: Vec<&String> = spec.arch.iter().filter(|a| runs(a, gpu.sm)).collect();
            fitting.sort_by_key(|arch| (parse(arch), arch.len()));
            // A made-up GPU stands for one that the kernel runs on.
            let fitting = fitting.pop().or(spec.arch.first().filter(|_| is_assumed(facts)));
            fitting.cloned().ok_or_else(|| PlanError::Arch {
                requested: spec.arch.join("`, `"),
                gpu: native(gpu.sm),
            })
        }
    }
}

/// The GPU that a plan is made for; `None` if the host has none.
pub(super) fn chosen_gpu<'a>(
    request: &Request,
    facts: &'a HostFacts,
) -> Result<Option<&'a GpuFacts>, PlanError> {
    let requested = match &request.gpu {
        GpuChoice::Any => String::new(),
        GpuChoice::Index(index) => format!("number {index}"),
        GpuChoice::Uuid(uuid) => format!("`{uuid}`"),
        GpuChoice::Name(name) => format!("called `{name}`"),
    };
    let allowed = |gpu: &&GpuFacts| request.gpu.allows(gpu.index, &gpu.uuid, &gpu.name);
    match facts.gpus.iter().find(allowed) {
        Some(gpu) => Ok(Some(gpu)),
        None if facts.gpus.is_empty() => Ok(None),
        None => Err(PlanError::NoSuchGpu {
            requested,
            known: facts
                .gpus
                .iter()
                .map(|gpu| format!("{} {} ({})", gpu.index, gpu.name, gpu.uuid))
                .collect(),
        }),
    }
}

/// The architecture of a GPU. From 9.0 on it is the specific one (`a`): only that has wgmma, TMA
/// multicast and the like.
pub(crate) fn native(sm: u32) -> String {
    match sm {
        90.. => format!("sm_{sm}a"),
        _ => format!("sm_{sm}"),
    }
}

/// Number and suffix of an architecture such as `sm_90a`.
fn parse(arch: &str) -> Option<(u32, Option<char>)> {
    let rest = arch.strip_prefix("sm_")?;
    let suffix = rest.chars().last().filter(char::is_ascii_alphabetic);
    let digits = rest.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    Some((digits.parse().ok()?, suffix))
}

/// Whether code for `arch` runs on a GPU of compute capability `sm` (times ten): `a` runs on
/// exactly that one; plain and `f` run on the same major version from that minor one on.
pub(super) fn runs(arch: &str, sm: u32) -> bool {
    match parse(arch) {
        Some((number, Some('a'))) => number == sm,
        Some((number, _)) => number / 10 == sm / 10 && number <= sm,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_runs_where_the_hardware_says_so() {
        for (arch, sm) in [("sm_90a", 90), ("sm_80", 86), ("sm_100f", 103), ("sm_90", 90)] {
            assert!(runs(arch, sm), "{arch} on {sm}");
        }
        for (arch, sm) in [("sm_90a", 100), ("sm_89", 86), ("sm_80", 90), ("sm_100a", 103)] {
            assert!(!runs(arch, sm), "{arch} on {sm}");
        }
    }
}
