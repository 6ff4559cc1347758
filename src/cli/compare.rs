//! `rgpu compare`: compares two runs or report files, or times and profiles two kernels side by
//! side on one GPU.

mod args;
mod live;
mod show;

pub(super) use args::CompareArgs;
pub(super) use live::attach;

use std::io::{BufRead, BufReader};
use std::path::Path;

use super::support::app::{App, Status};
use super::support::{open_profile, saved_comparison};
use rgpu_analysis::compare::{CompareOptions, compare, differences, judge_same_file, untimed};
use rgpu_model::Profile;
use rgpu_model::agent_files;
use rgpu_model::comparison::Difference;
use rgpu_model::error::{Exit, Failure, Result, shell_word};

pub(super) fn run(app: &App, args: &CompareArgs) -> Result<Status> {
    if !args.kernel.is_empty() {
        return live::run(app, args);
    }
    let [a, b] = args.what.as_slice() else {
        return Err(Failure::new(Exit::Usage, "usage", "a comparison needs two sides")
            .hint("two runs or files: rgpu compare latest~1 latest")
            .hint("or two kernels: rgpu compare --kernel BASE --kernel NEW --remote h200"));
    };
    if let Some(flag) = args.kernel_only_flag() {
        let words = format!("`{flag}` has no effect for two runs or files: nothing is run");
        return Err(Failure::new(Exit::Usage, "usage", words)
            .hint("it belongs to two kernels: rgpu compare --kernel BASE --kernel NEW"));
    }
    for what in [a, b] {
        if let Some(folder) = saved_comparison::folder_of(app, what)? {
            return Err(is_comparison(app, what, &folder));
        }
    }
    let (left, right) = (open_profile::open(app, a)?.profile, open_profile::open(app, b)?.profile);
    for (what, profile) in [(a, &left), (b, &right)] {
        if let Some(kind) = untimed(profile) {
            return Err(no_times([a, b], what, kind, [&left, &right]));
        }
    }
    let differing = differences(&left, &right);
    if !differing.is_empty() && !args.force {
        return Err(refused([a, b], &differing));
    }
    let options = CompareOptions { names: [a, b], threshold: args.threshold, paired: &[] };
    let mut comparison = compare(&left, &right, &options);
    if same_file(Path::new(a), Path::new(b)) {
        judge_same_file(&mut comparison);
    }
    saved_comparison::show(app, &comparison)?;
    show::status(app, args, &comparison)
}

/// Whether both are files with the same bytes. `false` if one cannot be read, since it was read
/// before.
fn same_file(a: &Path, b: &Path) -> bool {
    let length = |path: &Path| path.metadata().ok().filter(|m| m.is_file()).map(|m| m.len());
    if length(a).is_none() || length(a) != length(b) {
        return false;
    }
    let (Ok(a), Ok(b)) = (agent_files::open_named(a), agent_files::open_named(b)) else {
        return false;
    };
    let (mut a, mut b) = (BufReader::new(a), BufReader::new(b));
    loop {
        let (Ok(x), Ok(y)) = (a.fill_buf(), b.fill_buf()) else { return false };
        let n = x.len().min(y.len());
        if n == 0 {
            return x.len() == y.len();
        }
        if x[..n] != y[..n] {
            return false;
        }
        a.consume(n);
        b.consume(n);
    }
}

/// The failure for a side that is itself a comparison, and so has two kernels.
fn is_comparison(app: &App, what: &str, folder: &Path) -> Failure {
    let shown = folder.strip_prefix(&app.cwd).unwrap_or(folder);
    let words = format!("`{what}` is a comparison, not one run");
    let failure = Failure::new(Exit::Usage, "is_comparison", words);
    if [folder.join("a"), folder.join("b")].iter().all(|side| side.is_dir()) {
        failure.hint(format!(
            "name one of its sides: `{}` or `{}`",
            shown.join("a").display(),
            shown.join("b").display()
        ))
    } else {
        failure.hint(format!("`rgpu report {}` shows it", shell_word(what)))
    }
}

/// The failure for a side without times.
fn no_times([a, b]: [&str; 2], what: &str, kind: &str, sides: [&Profile; 2]) -> Failure {
    let holds = if kind == "cubin" { "code and no times" } else { "findings and no times" };
    let words = format!("`{what}` has {holds}, so neither side can be faster or slower");
    let failure = Failure::new(Exit::Usage, "no_times", words);
    match kind {
        "cubin" if sides.iter().all(|side| untimed(side) == Some("cubin")) => {
            let (a, b) = (shell_word(a), shell_word(b));
            failure.hint(format!("compare the code: rgpu disasm --diff {a} {b}"))
        }
        "cubin" => failure.hint(format!("`rgpu disasm {}` shows the code", shell_word(what))),
        _ => failure.hint(format!("`rgpu report {}` shows what was found", shell_word(what))),
    }
}

/// The failure for sides that differ in what is measured, listing each difference.
fn refused([a, b]: [&str; 2], differing: &[Difference]) -> Failure {
    let descriptions = differing.iter().map(|d| format!("{}: `{}` against `{}`", d.what, d.a, d.b));
    Failure::new(
        Exit::Usage,
        "unlike_runs",
        format!("`{a}` and `{b}` are too different to compare"),
    )
    .cause(descriptions.collect::<Vec<_>>().join("\n"))
    .hint("use `--force` to compare them anyway")
}
