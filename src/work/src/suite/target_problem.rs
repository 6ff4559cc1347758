//! Entries of bench.toml for which `rgpu bench run` fails a case before it is sent to a host:
//! kernels and programs that do not exist or lie outside the project, axes and sizes that the
//! kernel does not have, and entries that have no effect.

use std::path::Path;

use super::case::{SuiteCase, WordPiece, word_pieces};
use super::file::SuiteFile;
use super::matrix::AxisKind;
use super::target::{TargetKind, TargetSpec, kernel_path, program_path};
use rgpu_model::error::{Failure, Result, nearest};
use rgpu_plan::kernel::{CaseSelection, KernelError, KernelFolders, KernelSpec, find};
use rgpu_plan::tool::python_program_word;

/// An entry of bench.toml for which `rgpu bench run` fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetProblem {
    /// The target that has the entry.
    pub target: String,
    /// The code of the failure, such as `unknown_kernel`.
    pub code: String,
    /// The key of the entry, such as `matrix.sizes.n`.
    pub key: String,
    /// The line of bench.toml.
    pub line: usize,
    /// A sentence: the problem, and what to write instead if that is known.
    pub text: String,
}

/// The problems of these targets of `file`, each once. `is_inside` says whether a path lies in the
/// project. A program without a path may exist on the host.
pub fn target_problems<'t>(
    file: &SuiteFile,
    targets: impl IntoIterator<Item = &'t TargetSpec>,
    folders: &KernelFolders,
    is_inside: &dyn Fn(&Path) -> bool,
) -> Vec<TargetProblem> {
    let Some(folder) = file.folder() else { return Vec::new() };
    let mut problems = Vec::new();
    for target in targets {
        // The caller has read the cases, so they have no error.
        let cases = SuiteCase::for_target(file, target).unwrap_or_default();
        let mut check = TargetCheck { target, folder, folders, is_inside, problems: Vec::new() };
        check.matrix();
        match &target.work {
            TargetKind::Program(program) => {
                check.placeholders(program);
                check.program(program, &cases);
            }
            TargetKind::Kernel(_) | TargetKind::Pair { .. } => check.kernels(&cases),
        }
        problems.append(&mut check.problems);
    }
    problems
}

/// Looks for the problems of one target.
struct TargetCheck<'a> {
    target: &'a TargetSpec,
    /// The folder that the paths of bench.toml are relative to.
    folder: &'a Path,
    folders: &'a KernelFolders,
    is_inside: &'a dyn Fn(&Path) -> bool,
    problems: Vec<TargetProblem>,
}

impl TargetCheck<'_> {
    /// Adds a problem once. `keys` are the keys that may have it, and the first that bench.toml has
    /// is named.
    fn add(&mut self, keys: &[&str], code: &str, text: String) {
        let lines = &self.target.lines;
        let found = keys.iter().find_map(|key| Some((*key, *lines.get(*key)?)));
        let (key, line) = found.unwrap_or(("name", 1));
        let problem = TargetProblem {
            target: self.target.name(),
            code: code.to_owned(),
            key: key.to_owned(),
            line,
            text,
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Looks for entries of `include` and `exclude` without an effect.
    fn matrix(&mut self) {
        for rule in self.target.matrix.unused_rules() {
            self.add(&[&format!("matrix.{}", rule.key)], "unused_entry", rule.text);
        }
    }

    /// Looks for `{name}` in a program where `name` is no axis.
    fn placeholders(&mut self, program: &[String]) {
        let axes: Vec<&str> =
            self.target.matrix.axes.iter().map(|axis| axis.name.as_str()).collect();
        for piece in program.iter().flat_map(|word| word_pieces(word)) {
            let WordPiece::Placeholder(name) = piece else { continue };
            if axes.contains(&name) {
                continue;
            }
            let known = match axes.as_slice() {
                [] => "the target has none".to_owned(),
                axes => format!("its axes: `{}`", axes.join("`, `")),
            };
            let text = format!(
                "`{{{name}}}` is the value of an axis `{name}`, which the target does not have; \
                 {known}; `{{{{{name}}}}}` is the text `{{{name}}}`"
            );
            self.add(&["program"], "unknown_axis", text);
        }
    }

    /// Looks for sizes in `grow` that the sides of a pair do not have.
    fn grow(&mut self, sides: &[(&'static str, KernelSpec)]) {
        let is_pair = matches!(self.target.work, TargetKind::Pair { .. });
        let Some(grow) = self.target.settings.grow.as_ref().filter(|_| is_pair) else { return };
        for var in &grow.vars {
            let lacks = |(_, spec): &&(&str, KernelSpec)| !spec.sizes.vars.contains(var);
            let Some((_, spec)) = sides.iter().find(lacks) else { continue };
            let text = format!(
                "`{var}` is not a size of `{}`; its sizes: `{}`",
                spec.name,
                spec.sizes.vars.join("`, `")
            );
            self.add(&["grow"], "unknown_axis", text);
        }
    }

    fn program(&mut self, program: &[String], cases: &[SuiteCase]) {
        for case in cases {
            let words = case.arguments(program);
            let program = words.first().map_or("", String::as_str);
            let path = program_path(program, self.folder);
            if path.as_ref().is_some_and(|path| !(self.is_inside)(path)) {
                self.add(&["program"], "outside_project", outside_text(program));
            } else if path.is_some_and(|path| !path.is_file()) {
                let text = format!("there is no file `{program}`");
                self.add(&["program"], "missing_source", text);
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            // Python's script, found from the current folder. One that is no file here is the
            // host's.
            let script = python_program_word(&words).map(|at| words[at]);
            let is_outside = |script: &&str| {
                let path = Path::new(*script);
                path.is_file() && !(self.is_inside)(path)
            };
            if let Some(script) = script.filter(is_outside) {
                self.add(&["program"], "outside_project", outside_text(script));
            }
            if let Some(mode) = case.settings.mode.filter(|mode| mode.info().needs_kernel) {
                let text = format!("mode `{mode}` needs a kernel, and this is a program");
                self.add(&["mode"], "usage", text);
            }
        }
    }

    fn kernels(&mut self, cases: &[SuiteCase]) {
        let mut specs = Vec::new();
        for (key, kernel) in self.target.keyed_kernels() {
            match self.load(kernel) {
                Ok(spec) => specs.push((key, spec)),
                Err((code, text)) => self.add(&[key], &code, text),
            }
        }
        self.grow(&specs);
        for case in cases {
            let mut sizes = Vec::new();
            for (key, spec) in &specs {
                match sizes_of(case, spec) {
                    Ok(of_kernel) => sizes.push(of_kernel),
                    Err(failure) => self.add_failure(case, spec, key, &failure),
                }
            }
            if let ([a, b], [(_, first), (key, second)]) = (sizes.as_slice(), specs.as_slice())
                && a != b
                && case.is_compared(None)
            {
                let text = format!("`{}` and `{}` have other sizes", first.name, second.name);
                self.add(&["sizes", key], "unlike_sizes", text);
            }
        }
    }

    /// The kernel of bench.toml, or the code and the text of the reason why there is none.
    fn load(&self, kernel: &str) -> Result<KernelSpec, (String, String)> {
        let path = kernel_path(kernel, self.folder);
        if path.as_ref().is_some_and(|path| !(self.is_inside)(path)) {
            return Err(("outside_project".to_owned(), outside_text(kernel)));
        }
        let path = path.map(|path| path.display().to_string());
        let found = find::find(path.as_deref().unwrap_or(kernel), self.folders);
        found.map(|found| found.spec).map_err(|error| describe_load_error(kernel, error))
    }

    /// Adds what is wrong with the axes or sizes of a case for this kernel, which `key` names.
    fn add_failure(&mut self, case: &SuiteCase, spec: &KernelSpec, key: &str, failure: &Failure) {
        let named =
            case.axes.iter().find_map(|(kind, name, _)| match (kind, failure.code.as_str()) {
                (AxisKind::Size, "unknown_axis") if !spec.sizes.vars.contains(name) => {
                    Some(format!("matrix.sizes.{name}"))
                }
                (AxisKind::Define, "define_without_compiler") => {
                    Some(format!("matrix.define.{name}"))
                }
                _ => None,
            });
        let usual: &[&str] = match failure.code.as_str() {
            "define_without_compiler" => &["define"],
            "several_base_cases" => &["sizes", "matrix.sizes"],
            _ => &["matrix.sizes", "sizes"],
        };
        let keys: Vec<&str> =
            named.iter().map(String::as_str).chain(usual.iter().copied()).chain([key]).collect();
        self.add(&keys, &failure.code, failure_text(failure));
    }
}

fn outside_text(name: &str) -> String {
    format!("`{name}` lies outside the project")
}

/// The sizes that the case has for this kernel, with their names.
fn sizes_of(case: &SuiteCase, spec: &KernelSpec) -> Result<Vec<(String, Vec<Vec<i64>>)>> {
    case.check_macros(spec)?;
    let (mode, _) = case.mode(spec.mode, case.settings.level.unwrap_or_default());
    let cases = spec.cases(&CaseSelection::for_mode(&case.problem_sizes(spec)?, mode))?;
    let rows = |case: rgpu_case::Case| {
        (case.name, case.groups.into_iter().map(|group| group.sizes).collect())
    };
    Ok(cases.into_iter().map(rows).collect())
}

/// The code and the text of the reason why this kernel cannot be loaded.
fn describe_load_error(kernel: &str, error: KernelError) -> (String, String) {
    let (code, text) = match &error {
        KernelError::Unknown { known, .. } => {
            let near = nearest(kernel, known.iter().map(String::as_str));
            let hint = match near.first() {
                Some(near) => format!("; did you mean `{near}`?"),
                None => String::new(),
            };
            ("unknown_kernel", format!("there is no kernel `{kernel}`{hint}"))
        }
        KernelError::Unreadable { path, named_by: None, .. }
            if !path.exists() && !path.is_symlink() =>
        {
            ("missing_source", format!("there is no file `{kernel}`"))
        }
        KernelError::Unreadable { path, named_by: Some(key), .. } if !path.exists() => {
            let text = format!(
                "kernel `{kernel}`: there is no `{}`, which its kernel.toml names under `{key}`",
                path.display()
            );
            ("missing_source", text)
        }
        KernelError::NotInferred { file, .. } if file.is_dir() => {
            ("unknown_kernel", format!("the folder `{kernel}` has no kernel.toml"))
        }
        _ => {
            let failure = Failure::from(error);
            let text = format!("kernel `{kernel}`: {}", failure_text(&failure));
            return (failure.code, text);
        }
    };
    (code.to_owned(), text)
}

/// A failure in one line, with its file and its first hint.
fn failure_text(failure: &Failure) -> String {
    let file = failure.place.file.iter().map(|file| format!(", in `{file}`"));
    let hint = failure.hints.first().into_iter().map(|hint| format!("; {hint}"));
    std::iter::once(failure.what.clone()).chain(file).chain(hint).collect()
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
        let is_inside = |path: &Path| path.starts_with(dir.path());
        let found = target_problems(&file, &file.targets, &folders, &is_inside);
        let broken = "kernel `broken`: not TOML";
        let expected = [
            (4, "kernel", "unknown_kernel", "there is no kernel `brokn`; did you mean `broken`?"),
            (7, "baseline", "bad_kernel_toml", broken),
            (8, "optimised", "missing_source", "there is no file `kernels/there/gone.cu`"),
            (11, "kernel", "unknown_kernel", "the folder `bin/empty` has no kernel.toml"),
            (17, "program", "missing_source", "there is no file `bin/gone`"),
            (20, "program", "outside_project", "`/opt/app` lies outside the project"),
            (23, "kernel", "missing_source", "there is no file `bin/kernel.toml`"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (one, (line, key, code, text)) in found.iter().zip(expected) {
            assert_eq!((one.line, one.key.as_str(), one.code.as_str()), (line, key, code));
            assert!(one.text.starts_with(text), "{}", one.text);
        }
    }

    #[test]
    fn axes_and_sizes_that_the_kernel_does_not_have_are_named_with_line_and_key() {
        let project = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let text = r#"
[defaults]
mode = "bench"
[[target]]
name = "a:axis"
kernel = "vecadd"
[target.matrix]
sizes.n = [1000, 2000]
sizes.m = [1, 2]
[[target]]
name = "a:size"
kernel = "vecadd"
sizes = "huge"
[[target]]
name = "a:pair"
baseline = "transpose-conflicts"
optimised = "vecadd"
[[target]]
name = "a:macro"
kernel = "triton-softmax"
[target.matrix]
define.TILE = [16, 32]
[[target]]
name = "a:right"
kernel = "vecadd"
[target.matrix]
sizes.n = [1000]
define.TILE = [16]
[[target]]
name = "a:program"
program = ["true"]
"#;
        let file = SuiteFile::read(&project.join("bench.toml"), text).unwrap();
        let folders = KernelFolders { project: project.to_owned(), ..KernelFolders::default() };
        let found = target_problems(&file, &file.targets, &folders, &|_| true);
        let expected = [
            (9, "matrix.sizes.m", "unknown_axis", "axis `m` of `a:axis` is not a size of `vecadd`"),
            (13, "sizes", "bad_problem_sizes", "`--problem-sizes huge`: "),
            (17, "optimised", "unlike_sizes", "`transpose-conflicts` and `vecadd` have other"),
            (22, "matrix.define.TILE", "define_without_compiler", "`triton-softmax` is Python"),
            (3, "mode", "usage", "mode `bench` needs a kernel, and this is a program"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (one, (line, key, code, text)) in found.iter().zip(expected) {
            assert_eq!((one.line, one.key.as_str(), one.code.as_str()), (line, key, code));
            assert!(one.text.starts_with(text), "{}", one.text);
        }
        assert!(found[0].text.ends_with("; its sizes: `n`"), "{}", found[0].text);
    }

    #[test]
    fn entries_that_have_no_effect_are_named_with_line_key_and_what_is_allowed() {
        let project = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let text = r#"
[[target]]
name = "a:grow"
baseline = "transpose-conflicts"
optimised = "transpose-padded"
grow = { vars = ["rows", "m"] }
[[target]]
name = "a:matrix"
kernel = "vecadd"
[target.matrix]
sizes.n = [1000, 2000]
exclude = [
  { n = 1000 },
  { n = 3000 },
]
include = [{ n = 1000 }, { n = 2000 }]
[[target]]
name = "a:program"
program = ["app", "--n", "{n}", "x{m}", "${HOME}", "{{m}}"]
[target.matrix]
sizes.n = [1]
[[target]]
name = "a:bare"
program = ["app", "{m}"]
"#;
        let file = SuiteFile::read(&project.join("bench.toml"), text).unwrap();
        let folders = KernelFolders { project: project.to_owned(), ..KernelFolders::default() };
        let found = target_problems(&file, &file.targets, &folders, &|_| true);
        let sizes = "`m` is not a size of `transpose-conflicts`; its sizes: `";
        let expected = [
            (6, "grow", "unknown_axis", sizes),
            (14, "matrix.exclude[1]", "unused_entry", "it excludes no case: axis `n` has no"),
            (16, "matrix.include[1]", "unused_entry", "it adds no case: the matrix has `n=2000`"),
            (19, "program", "unknown_axis", "`{m}` is the value of an axis `m`, which the target"),
            (24, "program", "unknown_axis", "`{m}` is the value of an axis `m`, which the target"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (one, (line, key, code, text)) in found.iter().zip(expected) {
            assert_eq!((one.line, one.key.as_str(), one.code.as_str()), (line, key, code));
            assert!(one.text.starts_with(text), "{}", one.text);
        }
        let written = "; its axes: `n`; `{{m}}` is the text `{m}`";
        assert!(found[3].text.ends_with(written), "{}", found[3].text);
        assert!(found[4].text.contains("; the target has none; "), "{}", found[4].text);
    }

    #[test]
    fn the_worked_suite_has_no_problem() {
        let project = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let file = project.join("kernels/bench.toml");
        let file = SuiteFile::read(&file, &std::fs::read_to_string(&file).unwrap()).unwrap();
        let folders = KernelFolders { project: project.to_owned(), ..KernelFolders::default() };
        let found = target_problems(&file, &file.targets, &folders, &|_| true);
        assert!(found.is_empty(), "{found:#?}");
    }
}
