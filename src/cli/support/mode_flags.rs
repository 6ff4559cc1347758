//! Which flags belong to which mode. A flag that the mode would ignore is an error.

use super::profile_args::ProfileArgs;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::{FlagGroup, ProfileMode};
use rgpu_plan::tool::given_flags;

/// Refuses flags of modes where nothing is profiled.
pub(in crate::cli) fn refuse_mode_flags(args: &ProfileArgs) -> Result<()> {
    let of_measurement = given_flags(&args.unmeasured).into_iter();
    let of_measurement = of_measurement.map(|flag| (flag, FlagGroup::Ncu));
    match given(args).into_iter().chain(of_measurement).next() {
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

/// The given flags that belong to certain modes only, each with its group.
fn given(args: &ProfileArgs) -> Vec<(String, FlagGroup)> {
    let of_tools = args.tools.given_flags().into_iter();
    let mut given: Vec<(String, FlagGroup)> =
        of_tools.filter_map(|(flag, group)| Some((flag, group?))).collect();
    if args.ranks.is_some() {
        given.push(("--ranks".to_owned(), FlagGroup::Ranks));
    }
    if args.nodes.is_some() {
        given.push(("--nodes".to_owned(), FlagGroup::Nodes));
    }
    given
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
    if args.kernel.is_some()
        && let Some(flag) = given_flags(&args.tools.window).first()
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
