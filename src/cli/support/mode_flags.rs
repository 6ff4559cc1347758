//! Which flags belong to which mode. A flag that the mode would ignore is an error.

use super::profile_args::ProfileArgs;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::{FlagGroup, ProfileMode};

/// A flag and the group that a mode must take.
type ModeFlag = (&'static str, FlagGroup);

/// Refuses flags of modes where nothing is profiled.
pub(in crate::cli) fn refuse_mode_flags(args: &ProfileArgs) -> Result<()> {
    let of_measurement = args.unmeasured.given().map(|flag| (flag, FlagGroup::Ncu));
    match given(args).first().copied().or(of_measurement) {
        Some((flag, group)) => {
            let failure = Failure::new(
                Exit::Usage,
                "usage",
                format!("`{flag}` has no effect without `--mode`"),
            );
            Err(match ProfileMode::with_flags(group).next() {
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
    let all: &[(&'static str, bool, FlagGroup)] = &[
        ("--regions", !ncu.regions.is_empty(), FlagGroup::Regions),
        ("--set", ncu.set.is_some(), FlagGroup::Ncu),
        ("--section", !ncu.section.is_empty(), FlagGroup::Ncu),
        ("--metrics", !ncu.metrics.is_empty(), FlagGroup::Ncu),
        ("--kernel-name", !ncu.kernel_name.is_empty(), FlagGroup::Ncu),
        ("--kernel-name-base", ncu.kernel_name_base.is_some(), FlagGroup::Ncu),
        ("--kernel-exclude", !ncu.kernel_exclude.is_empty(), FlagGroup::Ncu),
        ("--launch-skip", ncu.launch_skip.is_some(), FlagGroup::Ncu),
        ("--launch-count", ncu.launch_count.is_some(), FlagGroup::Ncu),
        ("--replay-mode", ncu.replay_mode.is_some(), FlagGroup::Ncu),
        ("--nvtx-include", !ncu.nvtx_include.is_empty(), FlagGroup::Ncu),
        ("--target-processes", ncu.target_processes.is_some(), FlagGroup::Ncu),
        ("--clock-control", ncu.clock_control.is_some(), FlagGroup::Ncu),
        ("--sudo", ncu.sudo, FlagGroup::Ncu),
        ("--ncu-args", ncu.ncu_args.is_some(), FlagGroup::Ncu),
        ("--trace", nsys.trace.is_some(), FlagGroup::Nsys),
        ("--sample", nsys.sample.is_some(), FlagGroup::Nsys),
        ("--capture-range", nsys.capture_range.is_some(), FlagGroup::CaptureRange),
        ("--nsys-args", nsys.nsys_args.is_some(), FlagGroup::Nsys),
        ("--tool", !sanitizer.tool.is_empty(), FlagGroup::Sanitizer),
        ("--sanitizer-args", sanitizer.sanitizer_args.is_some(), FlagGroup::Sanitizer),
        ("--top", deep.top.is_some(), FlagGroup::Deep),
        ("--budget", !deep.budget.is_empty(), FlagGroup::Deep),
        ("--light", deep.light, FlagGroup::Deep),
        ("--after", args.window.after.is_some(), FlagGroup::After),
        ("--for", args.window.end.is_some(), FlagGroup::For),
        ("--ranks", args.ranks.is_some(), FlagGroup::Ranks),
        ("--nodes", args.nodes.is_some(), FlagGroup::Nodes),
    ];
    all.iter().filter(|(_, given, _)| *given).map(|(flag, _, group)| (*flag, *group)).collect()
}

/// Checks every flag against the mode and the target.
pub(in crate::cli) fn check(args: &ProfileArgs, mode: ProfileMode) -> Result<()> {
    let given = given(args);
    let misplaced = given.iter().find(|(_, group)| !mode.info().flags.contains(group));
    if let Some((flag, group)) = misplaced {
        let modes: Vec<ProfileMode> = ProfileMode::with_flags(*group).collect();
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
        ("--cuda-graph", args.cuda_graph.is_some()),
    ];
    let program_flags = [
        ("--after", args.window.after.is_some()),
        ("--for", args.window.end.is_some()),
        ("--hang", args.window.hang.is_some()),
    ];
    if let (Some((flag, _)), Some(_)) =
        (program_flags.iter().find(|(_, given)| *given), &args.kernel)
    {
        return Err(Failure::new(
            Exit::Usage,
            "usage",
            format!("`{flag}` has no effect for a kernel: it belongs to programs after `--`"),
        ));
    }
    match kernel_flags.iter().find(|(_, given)| *given) {
        Some((flag, _)) if !args.program.is_empty() => Err(Failure::new(
            Exit::Usage,
            "usage",
            format!("`{flag}` has no effect for a program: it belongs to `--kernel`"),
        )),
        _ => Ok(()),
    }
}
