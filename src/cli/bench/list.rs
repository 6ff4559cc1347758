//! `rgpu bench list`: the targets of the project.

use std::collections::BTreeSet;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::args::{ListArgs, TargetArgs};
use crate::cli::support::app::{App, Status};
use crate::cli::support::kernel_folders::kernel_folders;
use crate::cli::support::session;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::number_form::counted;
use rgpu_plan::kernel::may_be_sent;
use rgpu_remote::RemoteSpec;
use rgpu_report::TextTable;
use rgpu_run::config::is_below;
use rgpu_work::suite::{
    SuiteCase, SuiteFile, TargetKind, TargetProblem, TargetSpec, left_out_targets, select,
    target_problems,
};

/// The output of `bench list --json` (`rgpu.targets/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct TargetList {
    /// Name and version of this schema: `rgpu.targets/1`.
    schema: &'static str,
    /// The file with the targets; absent if every kernel is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    /// The cases.
    cases: Vec<TargetLine>,
}

/// A case in the JSON output.
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct TargetLine {
    /// The case: the target, with the values of its axes in brackets.
    case: String,
    /// The target, `suite:case`.
    target: String,
    /// The suites that it belongs to.
    suites: Vec<String>,
    /// The kernel, or the program with its arguments.
    runs: String,
    /// The baseline of a pair.
    baseline: Option<String>,
    /// The remote that the file names; of a dry run the one that is used.
    remote: Option<String>,
    /// Whether it is left out unless asked for.
    generated: bool,
}

/// The targets of the project, and the cases that the flags select.
pub(super) fn load(app: &App, args: &TargetArgs) -> Result<(SuiteFile, Vec<SuiteCase>)> {
    let file = file(app, args.file.as_deref())?;
    let cases = select(&file, &args.target, args.include_generated)?;
    Ok((file, cases))
}

/// The targets of the project.
pub(super) fn file(app: &App, chosen: Option<&Path>) -> Result<SuiteFile> {
    let chosen = chosen.map(|file| app.cwd.join(file));
    let file = SuiteFile::load(chosen.as_deref(), &kernel_folders(app))?;
    if file.targets.is_empty() {
        return Err(Failure::new(Exit::Config, "no_targets", "this project has nothing to run")
            .hint(
                "put kernels into `kernels/`, each with a kernel.toml: `rgpu kernels new FILE.cu`",
            )
            .hint("or write a bench.toml: `rgpu help bench`"));
    }
    Ok(file)
}

/// Prints the cases that a suite would run, each with its remote.
pub(super) fn print_planned(
    app: &App,
    file: &SuiteFile,
    cases: Vec<(SuiteCase, RemoteSpec)>,
) -> Result<()> {
    let amount = counted(cases.len(), "case", "cases");
    if app.global.json {
        let file = file.file.as_deref().map(|path| app.short(path));
        let with_remote = |(case, spec): (SuiteCase, RemoteSpec)| TargetLine {
            remote: Some(spec.name),
            ..line(case)
        };
        let cases = cases.into_iter().map(with_remote).collect();
        return app.print_json(&TargetList { schema: "rgpu.targets/1", file, cases });
    }
    let mut table = TextTable::new("case | remote");
    for (case, spec) in cases {
        table.add_row([case.id, spec.name]);
    }
    app.print(&table.fitted(app.columns(), 0));
    app.print_note(&format!("would run {amount}"));
    Ok(())
}

pub(super) fn run(app: &App, args: &ListArgs) -> Result<Status> {
    let (file, cases) = load(app, &args.targets)?;
    let shown = file.file.as_deref().map(|path| app.short(path));
    warn_of_problems(app, &file, &cases);
    if app.global.json {
        let cases = cases.into_iter().map(line).collect();
        app.print_json(&TargetList { schema: "rgpu.targets/1", file: shown, cases })?;
        return Ok(0);
    }
    let mut table = TextTable::new("case | baseline | remote | also in | runs");
    let count = cases.len();
    for case in cases {
        let line = line(case);
        let also = line.suites.get(1..).unwrap_or_default().join(" ");
        table.add_row([
            line.case,
            line.baseline.unwrap_or_default(),
            line.remote.unwrap_or_default(),
            also,
            line.runs,
        ]);
    }
    app.print(&table.without_empty_columns().fitted(app.columns(), 0));
    let left_out = if args.targets.include_generated {
        0
    } else {
        left_out_targets(&file, &args.targets.target)?.len()
    };
    let from = shown.unwrap_or_else(|| match app.config.kernel_path.value.as_slice() {
        [] => "every kernel.toml of this project".to_owned(),
        _ => "every kernel.toml of this project and of `kernel_path`".to_owned(),
    });
    let s = if count == 1 { "" } else { "s" };
    app.print_note(&format!("{count} case{s}, from {from}"));
    if left_out > 0 {
        app.print_note(&match left_out {
            1 => "1 generated target is left out; `--include-generated` shows it".to_owned(),
            n => format!("{n} generated targets are left out; `--include-generated` shows them"),
        });
    }
    Ok(0)
}

/// Problems that no flag of `bench run` mends: it refuses them before it connects.
const REFUSED: &[&str] = &[
    "unknown_kernel",
    "missing_source",
    "outside_project",
    "unknown_axis",
    "bad_problem_sizes",
    "several_base_cases",
    "unused_entry",
];

/// Names the entries of these cases for which `bench run` would fail.
fn warn_of_problems(app: &App, file: &SuiteFile, cases: &[SuiteCase]) {
    let path = file.file.as_deref().map(|path| app.short(path)).unwrap_or_default();
    for problem in problems(app, file, &targets_of(file, cases)) {
        app.print_note(&format!("warning: {path}:{}: {}", problem.line, problem_text(&problem)));
    }
}

/// Refuses targets of these cases that cannot run on any host, before one is asked.
///
/// # Errors
/// A kernel, a program or an axis does not exist, or lies outside the project, sizes are not those
/// of the kernel, or an entry of a matrix has no effect.
pub(super) fn refuse_problems<'c>(
    app: &App,
    file: &SuiteFile,
    cases: impl IntoIterator<Item = &'c SuiteCase>,
) -> Result<()> {
    let mut found = problems(app, file, &targets_of(file, cases));
    found.retain(|problem| REFUSED.contains(&problem.code.as_str()));
    let [first, others @ ..] = found.as_slice() else { return Ok(()) };
    let path = file.file.as_deref().map(|path| app.short(path)).unwrap_or_default();
    let line = |problem: &TargetProblem| {
        format!("also {path}:{}: {}", problem.line, problem_text(problem))
    };
    let others: Vec<String> = others.iter().map(line).collect();
    Err(Failure::new(Exit::Config, &first.code, problem_text(first))
        .file(format!("{path}:{}", first.line))
        .cause(others.join("\n")))
}

/// The targets of these cases.
fn targets_of<'f, 'c>(
    file: &'f SuiteFile,
    cases: impl IntoIterator<Item = &'c SuiteCase>,
) -> Vec<&'f TargetSpec> {
    let names: BTreeSet<&str> = cases.into_iter().map(|case| case.target.as_str()).collect();
    file.targets.iter().filter(|target| names.contains(target.name().as_str())).collect()
}

/// What is wrong with which key of a target.
fn problem_text(problem: &TargetProblem) -> String {
    let TargetProblem { target, key, text, .. } = problem;
    format!("`{target}` at key `{key}`: {text}")
}

/// The remote that a case names in bench.toml. The failure has the line and the key.
pub(super) fn remote_of_case(
    app: &App,
    file: &SuiteFile,
    case: &SuiteCase,
    name: &str,
) -> Result<RemoteSpec> {
    remote_of_file(app, name, file).map_err(|failure| {
        let path = file.file.as_deref().map(|path| app.short(path)).unwrap_or_default();
        let line = targets_of(file, [case]).first().map_or(1, |target| line_of_remote(target));
        let what = format!("`{}` at key `remote`: {}", case.target, failure.what);
        Failure { what, ..failure }.file(format!("{path}:{line}"))
    })
}

/// A remote that bench.toml names: a project may choose among the user's remotes only.
fn remote_of_file(app: &App, name: &str, file: &SuiteFile) -> Result<RemoteSpec> {
    let path = file.file.clone().unwrap_or_default();
    app.config.remote_of_project(name, &path, session::ssh_alias)
}

/// The line of bench.toml that has the remote of a target.
fn line_of_remote(target: &TargetSpec) -> usize {
    target.lines.get("remote").copied().unwrap_or(1)
}

/// The entries of these targets for which `bench run` would fail.
pub(super) fn problems(app: &App, file: &SuiteFile, targets: &[&TargetSpec]) -> Vec<TargetProblem> {
    let folders = kernel_folders(app);
    let folder = file.folder().map_or_else(|| app.cwd.clone(), |folder| app.cwd.join(folder));
    let is_inside =
        |path: &Path| is_below(path, &app.config.project) && may_be_sent(path, &folder, &folders);
    let listed = targets.iter().copied();
    let mut problems = target_problems(file, listed, &folders, &is_inside);
    let mut remotes = BTreeSet::new();
    for target in targets {
        let Some(name) = target.settings.remote.as_deref().filter(|name| remotes.insert(*name))
        else {
            continue;
        };
        if let Err(failure) = remote_of_file(app, name, file) {
            let hint = failure.hints.first().map(|hint| format!("; {hint}"));
            problems.push(TargetProblem {
                target: target.name(),
                code: failure.code,
                key: "remote".to_owned(),
                line: line_of_remote(target),
                text: failure.what + &hint.unwrap_or_default(),
            });
        }
    }
    problems
}

fn line(case: SuiteCase) -> TargetLine {
    let (runs, baseline) = match &case.subject {
        TargetKind::Kernel(kernel) => (kernel.clone(), None),
        TargetKind::Pair { baseline, optimised } => (optimised.clone(), Some(baseline.clone())),
        TargetKind::Program(program) => (case.arguments(program).join(" "), None),
    };
    TargetLine {
        case: case.id,
        target: case.target,
        suites: case.suites,
        runs,
        baseline,
        remote: case.settings.remote,
        generated: case.generated,
    }
}
