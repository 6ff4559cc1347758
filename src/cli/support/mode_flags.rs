//! Which flags belong to which mode. A flag that the mode would ignore is an error.

use super::profile_args::ProfileArgs;
use crate::error::{Exit, Failure, Result};
use crate::kernel::Mode;

/// Modes that run ncu.
const NCU: &[Mode] = &[Mode::Ncu, Mode::Deep];
/// Modes whose main tool is nsys. It is also a rung of ncu's ladder.
const NSYS: &[Mode] = &[Mode::Nsys, Mode::Deep];
/// Modes that use regions.
const REGIONS: &[Mode] = &[Mode::Ncu, Mode::Deep, Mode::Nsys, Mode::Nvtx];
const SANITIZER: &[Mode] = &[Mode::Sanitizer];
const DEEP: &[Mode] = &[Mode::Deep];

/// A flag and the modes it belongs to.
type ModeFlag = (&'static str, &'static [Mode]);

/// A usage error if a flag of some mode was given where nothing is profiled.
///
/// # Errors
/// There is such a flag.
pub(in crate::cli) fn first_given(args: &ProfileArgs) -> Result<()> {
    match given(args).first() {
        Some((flag, modes)) => {
            let failure = Failure::new(
                Exit::Usage,
                "usage",
                format!("`{flag}` has no effect without `--mode`"),
            );
            Err(match modes.first() {
                Some(first) => failure.hint(format!("add `--mode {first}`")),
                None => failure,
            })
        }
        None => Ok(()),
    }
}

/// The given flags that belong to certain modes only.
fn given(args: &ProfileArgs) -> Vec<ModeFlag> {
    let (ncu, nsys, sanitizer, deep) = (&args.ncu, &args.nsys, &args.sanitizer, &args.deep);
    let all: &[(&'static str, bool, &'static [Mode])] = &[
        ("--regions", !ncu.regions.is_empty(), REGIONS),
        ("--set", ncu.set.is_some(), NCU),
        ("--section", !ncu.section.is_empty(), NCU),
        ("--metrics", !ncu.metrics.is_empty(), NCU),
        ("--kernel-name", !ncu.kernel_name.is_empty(), NCU),
        ("--kernel-name-base", ncu.kernel_name_base.is_some(), NCU),
        ("--kernel-exclude", !ncu.kernel_exclude.is_empty(), NCU),
        ("--launch-skip", ncu.launch_skip.is_some(), NCU),
        ("--launch-count", ncu.launch_count.is_some(), NCU),
        ("--replay-mode", ncu.replay_mode.is_some(), NCU),
        ("--nvtx-include", !ncu.nvtx_include.is_empty(), NCU),
        ("--target-processes", ncu.target_processes.is_some(), NCU),
        ("--clock-control", ncu.clock_control.is_some(), NCU),
        ("--sudo", ncu.sudo, NCU),
        ("--ncu-args", ncu.ncu_args.is_some(), NCU),
        ("--trace", nsys.trace.is_some(), NSYS),
        ("--sample", nsys.sample.is_some(), NSYS),
        ("--capture-range", nsys.capture_range.is_some(), NSYS),
        ("--nsys-args", nsys.nsys_args.is_some(), NSYS),
        ("--tool", !sanitizer.tool.is_empty(), SANITIZER),
        ("--sanitizer-args", sanitizer.sanitizer_args.is_some(), SANITIZER),
        ("--top", deep.top.is_some(), DEEP),
        ("--budget", !deep.budget.is_empty(), DEEP),
        ("--light", deep.light, DEEP),
    ];
    all.iter().filter(|(_, given, _)| *given).map(|(flag, _, modes)| (*flag, *modes)).collect()
}

/// Checks every flag against the mode and the target.
///
/// # Errors
/// A usage error that names the flag and the modes it belongs to.
pub(in crate::cli) fn check(args: &ProfileArgs, mode: Mode) -> Result<()> {
    let given = given(args);
    let misplaced = given.iter().find(|(_, modes)| !modes.contains(&mode));
    if let Some((flag, modes)) = misplaced {
        let names: Vec<String> = modes.iter().map(|mode| format!("`{mode}`")).collect();
        let plural = if names.len() == 1 { "mode" } else { "modes" };
        let failure = Failure::new(
            Exit::Usage,
            "usage",
            format!(
                "`{flag}` has no effect in mode `{mode}`: it belongs to {plural} {}",
                names.join(", ")
            ),
        );
        return Err(match modes.first() {
            Some(first) => failure.hint(format!("add `--mode {first}`, or leave `{flag}` out")),
            None => failure,
        });
    }
    let kernel_flags = [
        ("--problem-sizes", !args.problem_sizes.is_empty()),
        ("--arch", args.arch.is_some()),
        ("--warmup", args.warmup.is_some()),
        ("--iters", args.iters.is_some()),
    ];
    match kernel_flags.iter().find(|(_, given)| *given) {
        Some((flag, _)) if !args.program.is_empty() => Err(Failure::new(
            Exit::Usage,
            "usage",
            format!("`{flag}` has no effect for a program: it belongs to `--kernel`"),
        )),
        _ => Ok(()),
    }
}
