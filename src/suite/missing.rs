//! Entries of bench.toml that name a kernel or a program which does not exist.

use super::file::SuiteFile;
use super::target::{TargetKind, TargetSpec, kernel_path, program_path};
use crate::error::nearest;
use crate::kernel::{KernelError, KernelFolders, find};

/// A kernel or program of bench.toml that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSource {
    /// The target that names it.
    pub target: String,
    /// The code that running it fails with: `unknown_kernel` or `missing_source`.
    pub code: &'static str,
    /// The line of bench.toml.
    pub line: usize,
    /// A sentence: the missing source, and a kernel with nearly the same name.
    pub text: String,
}

/// The sources that these targets of `file` name and that do not exist. A program without a path, or
/// with an absolute one, may exist on the host.
pub fn missing_sources<'t>(
    file: &SuiteFile,
    targets: impl IntoIterator<Item = &'t TargetSpec>,
    folders: &KernelFolders,
) -> Vec<MissingSource> {
    let Some(folder) = file.folder() else { return Vec::new() };
    let mut missing = Vec::new();
    for target in targets {
        let problems: Vec<Option<(&'static str, String)>> = match &target.work {
            TargetKind::Program(words) => {
                let program = words.first().map_or("", String::as_str);
                let path = program_path(program, folder).filter(|path| !path.is_file());
                let is_missing = path.is_some() && !program.starts_with('/');
                let text = || ("missing_source", format!("there is no file `{program}`"));
                vec![is_missing.then(text)]
            }
            TargetKind::Kernel(_) | TargetKind::Pair { .. } => {
                let problem_of = |kernel: &str| {
                    let path = kernel_path(kernel, folder).map(|path| path.display().to_string());
                    let found = find::find(path.as_deref().unwrap_or(kernel), folders);
                    problem(kernel, &found.err()?)
                };
                target.kernels().into_iter().map(problem_of).collect()
            }
        };
        for (problem, line) in problems.into_iter().zip(&target.lines) {
            let Some((code, text)) = problem else { continue };
            missing.push(MissingSource { target: target.name(), code, line: *line, text });
        }
    }
    missing
}

/// Why this kernel does not exist. `None` if something else is wrong with it.
fn problem(kernel: &str, error: &KernelError) -> Option<(&'static str, String)> {
    match error {
        KernelError::Unknown { known, .. } => {
            let near = nearest(kernel, known.iter().map(String::as_str));
            let hint = match near.first() {
                Some(near) => format!("; did you mean `{near}`?"),
                None => String::new(),
            };
            Some(("unknown_kernel", format!("there is no kernel `{kernel}`{hint}")))
        }
        KernelError::Unreadable { path, named_by: None, .. } if !path.exists() => {
            Some(("missing_source", format!("there is no file `{kernel}`")))
        }
        KernelError::Unreadable { path, named_by: Some(key), .. } if !path.exists() => {
            let text = format!(
                "kernel `{kernel}`: there is no `{}`, which its kernel.toml names under `{key}`",
                path.display()
            );
            Some(("missing_source", text))
        }
        KernelError::NotInferred { file, .. } if file.is_dir() => {
            Some(("unknown_kernel", format!("the folder `{kernel}` has no kernel.toml")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_and_programs_that_do_not_exist_are_named_with_their_lines() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["there", "broken"] {
            std::fs::create_dir_all(dir.path().join("kernels").join(name)).unwrap();
        }
        std::fs::write(dir.path().join("kernels/there/there.cu"), "").unwrap();
        std::fs::write(dir.path().join("kernels/broken/kernel.toml"), "x").unwrap();
        std::fs::create_dir_all(dir.path().join("bin/empty")).unwrap();
        std::fs::write(dir.path().join("bin/app"), "").unwrap();
        let text = r#"
[[target]]
name = "a:unknown"
kernel = "brokn"
[[target]]
name = "a:pair"
baseline = "broken"
optimised = "kernels/there/gone.cu"
[[target]]
name = "a:folder"
kernel = "bin/empty"
[[target]]
name = "a:program"
program = ["bin/app"]
[[target]]
name = "a:no-program"
program = ["bin/gone", "x/y"]
[[target]]
name = "a:host"
program = ["/opt/app", "x/y"]
[[target]]
name = "a:toml"
kernel = "bin/kernel.toml"
"#;
        let file = SuiteFile::read(&dir.path().join("bench.toml"), text).unwrap();
        let folders = KernelFolders { project: dir.path().to_owned(), ..KernelFolders::default() };
        let found = missing_sources(&file, &file.targets, &folders);
        let found: Vec<(usize, &str, &str)> =
            found.iter().map(|one| (one.line, one.code, one.text.as_str())).collect();
        assert_eq!(
            found,
            [
                (4, "unknown_kernel", "there is no kernel `brokn`; did you mean `broken`?"),
                (8, "missing_source", "there is no file `kernels/there/gone.cu`"),
                (11, "unknown_kernel", "the folder `bin/empty` has no kernel.toml"),
                (17, "missing_source", "there is no file `bin/gone`"),
                (23, "missing_source", "there is no file `bin/kernel.toml`"),
            ]
        );
    }
}
