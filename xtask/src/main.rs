//! `cargo xtask`: development tasks that take more than one cargo command. README and `.ci/run`
//! call it, so that the documented steps are also the tested ones.

mod command;
mod cuda;
mod dist;
mod elf;
mod environment;
mod oracle;
mod packages;
mod sass_table;
mod schemas;
mod setup;
mod workspace;

use std::process::ExitCode;
use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  setup [--no-cuda]     system packages, agent, runner, collector and CLI; where no CUDA toolkit is
                        installed, NVRTC and nvdisasm in .rgpu/cuda (--no-cuda: not that)
  run [ARGS...]         setup, then `rgpu ARGS...`
  test [ARGS...]        setup, then all tests; ARGS go to nextest, or to `cargo test` without it
                        (before the ARGS of run and test one `--` may stand)
  dist [aarch64]        agent, runner, collector and CLI for any host with glibc 2.17 or newer
                        (x86_64, or aarch64), as a tree to install and as a tarball
  wheel                 tarballs and Python wheels for both, each with the programs for hosts of both,
                        and one list of their checksums
  wheel debug           a wheel of the debug build as it is, for tests
  macos                 only checks that the CLI compiles for macOS
                        (setup, run, test, dist and wheel ask before they install system packages,
                        or are told `--yes` right after their name)
  schemas [--check]     schemas/*.json from the types (--check: only compare)
  sass-table            the table of opcode names, from nvcc and nvdisasm on PATH
  bench [PART...]       benches/run: every benchmark this machine can run, as ratios to other tools
  roots ROOT [TREE]     tests/roots/run: starts the tree of `dist` in another system's root folder or image
  gpu [PART...]         tests/gpu/run: the tests that need a real GPU
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("  cause: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

/// Runs a script of the repository.
fn script(
    workspace: &Workspace,
    path: &str,
    arguments: &[String],
) -> Result<(), command::CommandError> {
    let mut script = std::process::Command::new(workspace.root.join(path));
    command::run(script.args(arguments).current_dir(&workspace.root))
}

/// The arguments for another program, without the leading `--`. `cargo run` needs it to separate
/// its own arguments, and users type it here as well.
fn passed_on(arguments: &[String]) -> &[String] {
    match arguments.split_first() {
        Some((first, rest)) if first == "--" => rest,
        _ => arguments,
    }
}

fn dispatch(arguments: &[String]) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Some((task, rest)) = arguments.split_first() else {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    };
    if matches!(task.as_str(), "help" | "-h" | "--help") {
        print!("{USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let workspace = Workspace::find()?;
    let rest = match (task.as_str(), rest) {
        ("setup" | "run" | "test" | "dist" | "wheel", [yes, rest @ ..]) if yes == "--yes" => {
            packages::give_consent();
            rest
        }
        _ => rest,
    };
    let rest_is = |allowed: &str| rest.iter().all(|argument| argument == allowed);
    match task.as_str() {
        "setup" if rest_is("--no-cuda") => {
            let cuda = if rest.is_empty() { setup::Cuda::Wanted } else { setup::Cuda::Unwanted };
            setup::everything(&workspace, cuda)?;
        }
        "run" => return Ok(setup::run(&workspace, passed_on(rest))?),
        "test" => setup::test(&workspace, rest)?,
        "dist" => match dist::Target::named(rest) {
            Some(target) => {
                packages::for_build()?;
                dist::everything(&workspace, target)?;
            }
            None => {
                return Err(format!("`{}` is not an architecture\n{USAGE}", rest.join(" ")).into());
            }
        },
        "wheel" if rest.is_empty() => {
            packages::for_build()?;
            dist::wheels(&workspace)?;
        }
        "wheel" if rest_is("debug") => dist::debug_wheel(&workspace)?,
        "macos" if rest.is_empty() => dist::check_macos(&workspace)?,
        "schemas" if rest.is_empty() => schemas::all(&workspace, schemas::Mode::Write)?,
        "schemas" if rest_is("--check") => schemas::all(&workspace, schemas::Mode::Compare)?,
        "sass-table" if rest.is_empty() => sass_table::write(&workspace)?,
        "bench" => script(&workspace, "benches/run", rest)?,
        "roots" => script(&workspace, "tests/roots/run", rest)?,
        "gpu" => script(&workspace, "tests/gpu/run", rest)?,
        _ => return Err(format!("`{}` is not a task\n{USAGE}", arguments.join(" ")).into()),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::passed_on;

    #[test]
    fn one_leading_pair_of_dashes_is_not_passed_on() {
        let of = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(passed_on(&of("-- --version")), of("--version"));
        assert_eq!(passed_on(&of("exec -- ls")), of("exec -- ls"));
        assert_eq!(passed_on(&of("-- exec -- ls")), of("exec -- ls"));
        assert!(passed_on(&[]).is_empty());
    }
}
